//! What went wrong with one attempt: whether another one may help, and how it is told.

use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use tokio::time::Instant;

use super::client::{UnwantedAnswer, innermost};
use super::error::RemoteError;
use super::location::Location;

/// How often an attempt that failed is made again while no byte comes.
const RETRIES: u32 = 5;

/// How long is waited before the first of them; before each other, twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A download of a whole file takes so many times as long at most as the timeout, however many attempts it takes.
const DOWNLOAD: u32 = 20;

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
    /// There is no answer that makes sense: why, and at what, if that was known.
    Failed(Option<HttpErrorKind>, String),
}

impl From<object_store::Error> for AttemptFailure {
    /// The store's error without the URL, in which there may be what is secret.
    fn from(error: object_store::Error) -> Self {
        let mut kind = None;
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(cause) = next {
            if let Some(refused) = cause.downcast_ref::<UnwantedAnswer>() {
                return Self::Refused(refused.clone());
            }
            if let Some(cause) = cause.downcast_ref::<HttpError>() {
                kind = Some(cause.kind());
            }
            next = cause.source();
        }
        Self::Failed(kind, innermost(&error))
    }
}

impl AttemptFailure {
    /// The answer to a request for the first bytes of a file by which it has to be one for all of them: the server sends all in any case,
    /// or says that there are none.
    pub(super) fn whole(&self) -> Option<&UnwantedAnswer> {
        match self {
            Self::Refused(refused) if matches!(refused.status, 200..300 | 416) => Some(refused),
            _ => None,
        }
    }

    /// Whether the next attempt may go better.
    fn may_pass(&self, guesses: bool) -> bool {
        match self {
            Self::Stalled | Self::Cut => true,
            Self::Changed(_) => false,
            Self::Refused(refused) => matches!(refused.status, 408 | 425 | 429 | 500..),
            // where no credentials are known, this may be the machine's own that is asked for some
            Self::Failed(kind, _) => {
                !guesses && kind.is_some_and(|kind| kind != HttpErrorKind::Decode)
            }
        }
    }

    /// The failure as it is told, with the URL and what to do.
    pub(super) fn told(&self, at: &Location, guesses: bool, timeout: Duration) -> RemoteError {
        let url = at.to_string();
        match self {
            Self::Stalled => RemoteError::TimedOut {
                url,
                waited: timeout,
            },
            Self::Cut => RemoteError::Failed {
                url,
                why: "the answers of the server end too early; try again later".into(),
            },
            Self::Changed(why) => RemoteError::Changed {
                url,
                why: why.clone(),
            },
            Self::Refused(refused) => told(url, refused, at.can_list()),
            Self::Failed(kind, why) => {
                // what the resolver says is its query, as Rust writes it
                let unknown = why.starts_with("no record");
                let why = if unknown { "no such host" } else { why };
                let advice = match kind {
                    _ if guesses => {
                        "; no credentials were found in the environment or in ~/.aws: for public data, use -o no-sign-request"
                    }
                    Some(HttpErrorKind::Connect) => "; check the name of the host and the network",
                    _ => "",
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

/// How long, and how often, a request is made again.
pub(super) struct Patience {
    timeout: Duration,
    /// When the next bytes must have come.
    deadline: Instant,
    /// Attempts that have failed since bytes came.
    retries: u32,
    /// When it ends, however many bytes have come until then.
    end: Option<Instant>,
}

impl Patience {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: after(timeout),
            retries: 0,
            end: None,
        }
    }

    /// The same for a download of a whole file, which a server that sends little by little could draw out for hours.
    pub(super) fn of_download(timeout: Duration) -> Self {
        Self {
            end: Some(after(timeout.saturating_mul(DOWNLOAD))),
            ..Self::new(timeout)
        }
    }

    /// Starts anew, because something has come.
    pub(super) fn renew(&mut self) {
        self.deadline = after(self.timeout);
        self.retries = 0;
    }

    /// Until when the next byte must have come, for this attempt to go on. The first attempt that stalls leaves time for another.
    pub(super) fn until(&self) -> Instant {
        let stalled = after(self.timeout.checked_div(2).unwrap_or_default());
        let until = self.deadline.min(stalled);
        self.end.map_or(until, |end| until.min(end))
    }

    /// Waits until the next attempt at `at` may be made, if `failure` may pass and the time for it is not over.
    ///
    /// # Errors
    /// The failure as it is told, if there is to be no other attempt.
    pub(super) async fn wait_after(
        &mut self,
        failure: &AttemptFailure,
        at: &Location,
        guesses: bool,
    ) -> Result<(), RemoteError> {
        let may_pass = failure.may_pass(guesses);
        let wait = if may_pass { self.again() } else { None };
        let waited = self.ended().unwrap_or(self.timeout);
        let told = failure.told(at, guesses, waited);
        let Some(wait) = wait else {
            return Err(told);
        };
        log::debug!("tried again: {told}");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// How long it has lasted, if it ends however many bytes come.
    fn ended(&self) -> Option<Duration> {
        let waited = self.timeout.saturating_mul(DOWNLOAD);
        let is_over = self.end.is_some_and(|end| end <= Instant::now());
        is_over.then_some(waited)
    }

    /// How long to wait before the next attempt, if there is to be one.
    fn again(&mut self) -> Option<Duration> {
        let wait = FIRST_WAIT.saturating_mul(1 << self.retries.min(RETRIES));
        let until = self.end.unwrap_or(self.deadline).min(self.deadline);
        let in_time = after(wait) < until && self.retries < RETRIES;
        self.retries = self.retries.saturating_add(1);
        in_time.then_some(wait)
    }
}

/// The instant so long from now; a day from now if it can't be told.
fn after(wait: Duration) -> Instant {
    const DAY: Duration = Duration::from_hours(24);
    let now = Instant::now();
    now.checked_add(wait)
        .or_else(|| now.checked_add(DAY))
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_there_is_told_without_the_query() {
        let why = "no records found for Query { name: Name(\"x.invalid.\"), query_type: AAAA }";
        let failure = AttemptFailure::Failed(Some(HttpErrorKind::Connect), why.to_owned());
        let at = Location::parse("https://x.invalid/a.asdf")
            .unwrap()
            .unwrap();
        let told = failure.told(&at, false, FIRST_WAIT).to_string();
        let want = "no such host; check the name of the host and the network";
        assert!(told.ends_with(want), "{told}");
    }

    #[test]
    fn a_download_ends_whatever_has_come() {
        let timeout = Duration::from_secs(30);
        let mut patience = Patience::of_download(timeout);
        assert!(patience.end.unwrap() > after(timeout * (DOWNLOAD - 1)));
        assert!(patience.until() > Instant::now());
        assert!(patience.ended().is_none() && patience.again().is_some());
        // as if so much time had passed
        patience.end = Some(Instant::now());
        patience.renew();
        assert!(patience.until() <= Instant::now());
        assert_eq!(patience.again(), None);
        assert_eq!(patience.ended(), Some(timeout * DOWNLOAD));
        let mut reading = Patience::new(timeout);
        reading.renew();
        assert!(reading.ended().is_none() && reading.again().is_some());
    }
}
