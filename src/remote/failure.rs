//! What went wrong with one attempt: whether another one may help, and how it is told.

use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use rustls::CertificateError;

use super::checked::UnwantedAnswer;
use super::client::{StoredObject, innermost};
use super::error::RemoteError;
use super::location::Location;

/// Why an attempt gave less than was asked for.
pub(super) enum AttemptFailure {
    /// Nothing came for too long.
    Stalled,
    /// The answer ended too early.
    Cut,
    /// The answer is of another state of the object.
    Changed(String),
    /// The server answers with another status.
    Refused(UnwantedAnswer),
    /// There is no answer, or none that makes sense: what kind of trouble that is, and why.
    Failed(Trouble, String),
}

/// What keeps an answer from making sense or from coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It makes no sense.
    Senseless,
    /// It was lost on the way.
    Lost,
    /// The server, or the proxy before it, can't be reached.
    Unreached,
    /// There is no such host.
    NoHost,
    /// The certificate of the server is not accepted.
    Certificate,
}

impl From<object_store::Error> for AttemptFailure {
    /// The store's error without the URL, in which there may be what is secret.
    fn from(error: object_store::Error) -> Self {
        let mut trouble = Trouble::Senseless;
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        let mut why = innermost(&error);
        // the interesting error is somewhere in the chain, wrapped by two libraries
        while let Some(cause) = next {
            if let Some(refused) = cause.downcast_ref::<UnwantedAnswer>() {
                return Self::Refused(refused.clone());
            }
            if let Some(cause) = cause.downcast_ref::<HttpError>() {
                trouble = match cause.kind() {
                    HttpErrorKind::Decode => Trouble::Senseless,
                    HttpErrorKind::Connect => Trouble::Unreached,
                    _ => Trouble::Lost,
                };
            }
            if let Some(refused) = certificate_error(cause) {
                trouble = Trouble::Certificate;
                why = refused;
            }
            next = cause.source();
            // what the resolver says is its query, as Rust writes it
            if next.is_none() && why.starts_with("no record") {
                let is_said = format!("{cause:?}").contains("NXDomain");
                trouble = if is_said { Trouble::NoHost } else { trouble };
                "no such host".clone_into(&mut why);
            }
            // that of a proxy
            if next.is_none() && why.starts_with("unsupported scheme") {
                trouble = Trouble::NoHost;
            }
        }
        Self::Failed(trouble, why)
    }
}

/// What is wrong with the certificate of a server, if this error is of one.
fn certificate_error(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut error = error;
    // an error of the system may hold others, which are not its sources
    while let Some(inside) = error.downcast_ref::<std::io::Error>()
        && let Some(inside) = inside.get_ref()
    {
        error = inside;
    }
    let rustls::Error::InvalidCertificate(why) = error.downcast_ref::<rustls::Error>()? else {
        return None;
    };
    Some(match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate of the server has expired; the clock of this machine may be wrong, too"
                .to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate of the server is not valid yet; check the clock of this machine"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate of the server is for another host; check the name of the host"
                .to_owned()
        }
        CertificateError::UnknownIssuer => {
            "no authority that is known here has signed the certificate of the server; SSL_CERT_FILE= names a file with one that is trusted"
                .to_owned()
        }
        why => format!("the certificate of the server: {why}"),
    })
}

impl AttemptFailure {
    /// That a body is longer than its headers say.
    pub(super) fn surplus() -> Self {
        let why =
            "the server sends more bytes than its answer says; a proxy on the way may do that";
        Self::Failed(Trouble::Senseless, why.to_owned())
    }

    /// The answer to a request for the first bytes of a file by which it has to be one for all of them: the server sends all in any case,
    /// or says that there are none.
    pub(super) fn whole(&self) -> Option<&UnwantedAnswer> {
        match self {
            Self::Refused(refused) if matches!(refused.status, 200..300 | 416) => Some(refused),
            _ => None,
        }
    }

    /// How long the server wants to be left alone.
    pub(super) fn pause(&self) -> Option<Duration> {
        match self {
            Self::Refused(refused) => refused.pause,
            _ => None,
        }
    }

    /// Whether one server of several may answer so, and the next one not: with another state of the object, or with all of it.
    pub(super) fn is_odd(&self) -> bool {
        match self {
            Self::Changed(_) => true,
            Self::Refused(refused) => matches!(refused.status, 200..300 | 412),
            _ => false,
        }
    }

    /// Whether the next attempt may go better.
    pub(super) fn may_pass(&self, guesses: bool) -> bool {
        match self {
            Self::Stalled | Self::Cut | Self::Changed(_) => true,
            Self::Refused(refused) => {
                self.is_odd()
                    || matches!(refused.status, 408 | 425 | 429 | 500..)
                    || refused.code == "RequestTimeout"
            }
            // where no credentials are known, this may be the machine's own that is asked for some
            Self::Failed(trouble, _) => {
                !guesses && matches!(trouble, Trouble::Lost | Trouble::Unreached)
            }
        }
    }

    /// The failure as it is told, with the URL and what to do.
    pub(super) fn told(
        &self,
        at: &Location,
        stored: &StoredObject,
        timeout: Duration,
    ) -> RemoteError {
        let url = at.to_string();
        let proxy = stored.proxy.as_deref();
        match self {
            Self::Stalled => RemoteError::silent(url, timeout),
            Self::Cut => RemoteError::Failed {
                url,
                why: "the answers of the server end too early; try again later".into(),
            },
            Self::Changed(why) => RemoteError::Changed {
                url,
                why: why.clone(),
            },
            Self::Refused(refused) if refused.status == 407 => {
                let proxy = proxy.unwrap_or("on the way");
                let why = format!(
                    "the proxy {proxy} wants a login (407); http://USER:PASSWORD@HOST:PORT gives it one"
                );
                RemoteError::Failed { url, why }
            }
            Self::Refused(refused) => told(url, refused, at.can_list()),
            Self::Failed(trouble, why) => {
                let advice = match (trouble, proxy) {
                    _ if stored.guesses() => {
                        "; no credentials were found in the environment or in ~/.aws: for public data, use -o no-sign-request".to_owned()
                    }
                    (Trouble::Unreached | Trouble::NoHost, Some(proxy)) => {
                        format!("; it was asked by way of the proxy {proxy}: check that")
                    }
                    (Trouble::Unreached | Trouble::NoHost, None) => {
                        "; check the name of the host and the network".to_owned()
                    }
                    _ => String::new(),
                };
                RemoteError::Failed {
                    url,
                    why: format!("{why}{advice}"),
                }
            }
        }
    }
}

/// What a status means.
fn told(url: String, refused: &UnwantedAnswer, is_bucket: bool) -> RemoteError {
    let why = refused.to_string().trim_end().to_owned();
    match refused.status {
        401 | 403 => RemoteError::Denied {
            url,
            why,
            advice: if is_bucket {
                "set credentials in the environment, for S3 AWS_PROFILE, or use -o no-sign-request for public data"
            } else {
                "give user name and password in the URL, or get a new one if it was signed for a time"
            },
        },
        200..=299 => RemoteError::Failed {
            url,
            why: format!("{why}, with all of the file where it sent parts before; try again later"),
        },
        404 | 410 => RemoteError::Missing { url, why },
        412 => RemoteError::Changed { url, why },
        416 => RemoteError::Failed {
            url,
            why: format!("{why}: there are no bytes"),
        },
        300..=399 if is_bucket => RemoteError::Failed {
            url,
            why: format!("{why}: the bucket is in another region; set AWS_REGION"),
        },
        408 | 425 | 429 | 500.. => RemoteError::Failed {
            url,
            why: format!("{why}; try again later"),
        },
        _ => RemoteError::Failed { url, why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::Error;

    fn failed(kind: HttpErrorKind, cause: std::io::Error) -> AttemptFailure {
        let source = Box::new(HttpError::new(kind, cause));
        Error::Generic { store: "x", source }.into()
    }

    /// It was said that the name of the host and the network were to be checked, after five more attempts.
    #[test]
    fn a_certificate_that_is_refused_is_told_as_that_and_not_tried_again() {
        for (why, want) in [
            (CertificateError::Expired, "expired"),
            (CertificateError::UnknownIssuer, "SSL_CERT_FILE="),
            (CertificateError::NotValidForName, "another host"),
            (CertificateError::BadSignature, "BadSignature"),
        ] {
            let cause = std::io::Error::other(rustls::Error::InvalidCertificate(why));
            let cause = std::io::Error::other(cause);
            let failure = failed(HttpErrorKind::Connect, cause);
            assert!(!failure.may_pass(false));
            let AttemptFailure::Failed(Trouble::Certificate, told) = failure else {
                panic!("{want}");
            };
            assert!(told.contains(want), "{told}");
        }
    }

    #[test]
    fn a_host_that_is_not_there_is_told_without_the_query_and_not_tried_again() {
        for (code, trouble) in [
            ("NXDomain", Trouble::NoHost),
            ("ServFail", Trouble::Unreached),
        ] {
            let why = format!("no records found for Query {{ name: \"x.\" }} {code}");
            let failure = failed(HttpErrorKind::Connect, std::io::Error::other(why));
            let AttemptFailure::Failed(found, told) = failure else {
                panic!("{code}");
            };
            assert_eq!((found, told.as_str()), (trouble, "no such host"));
        }
    }

    #[test]
    fn what_is_lost_on_the_way_is_tried_again_and_nonsense_is_not() {
        let reset = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        for (kind, may_pass) in [
            (HttpErrorKind::Connect, true),
            (HttpErrorKind::Request, true),
            (HttpErrorKind::Decode, false),
        ] {
            assert_eq!(failed(kind, reset()).may_pass(false), may_pass);
        }
        // of the machine itself, which may have no credentials
        assert!(!failed(HttpErrorKind::Connect, reset()).may_pass(true));
    }
}
