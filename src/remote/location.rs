//! Where a far object lies: a URL, and how it is shown without what is secret in it.

use std::fmt;

use reqwest::Url;

use super::error::RemoteError;
use crate::error::{percent_decoded, printable};

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// A URL of an object, or of all objects with a prefix.
///
/// `Display` and `Debug` leave out user name, password and the values of a query, which may be a signature.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Location(Address);

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    /// `http` or `https`: the URL without user name, password and fragment.
    Web { url: Url, login: Option<Login> },
    /// An object, or a prefix of objects, in a bucket. The key is what the URL says, without percent-decoding.
    Bucket {
        cloud: Cloud,
        bucket: String,
        key: String,
    },
}

/// User name and password of a URL.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// Who keeps a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cloud {
    Amazon,
    Google,
    Azure,
}

impl Cloud {
    fn scheme(self) -> &'static str {
        match self {
            Self::Amazon => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }
}

impl Cloud {
    /// Its name, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Amazon => "Amazon S3",
            Self::Google => "Google Cloud Storage",
            Self::Azure => "Azure Blob Storage",
        }
    }

    /// How the names of its settings in the environment begin.
    pub(super) fn settings(self) -> &'static str {
        match self {
            Self::Amazon => "AWS_",
            Self::Google => "GOOGLE_",
            Self::Azure => "AZURE_",
        }
    }
}

impl Location {
    /// The location that a text names; `None` if it begins with no scheme that is known here, and so is a path.
    ///
    /// # Errors
    /// [`RemoteError::Invalid`] if there is no host or bucket, or no sense in the rest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, RemoteError>> {
        let (scheme, rest) = text.split_once("://")?;
        let cloud = match scheme.to_ascii_lowercase().as_str() {
            "http" | "https" => return Some(Self::web(text)),
            "s3" => Cloud::Amazon,
            "gs" => Cloud::Google,
            "az" => Cloud::Azure,
            _ => return None,
        };
        Some(Self::bucket(cloud, rest))
    }

    /// An `http` or `https` URL, without its login.
    fn web(text: &str) -> Result<Self, RemoteError> {
        let mut url = Url::parse(text).map_err(|error| RemoteError::Invalid {
            // what could not be parsed can't be redacted either
            url: text
                .split_once(':')
                .map_or("", |(scheme, _)| scheme)
                .to_owned()
                + "://…",
            why: error.to_string(),
        })?;
        let login = (!url.username().is_empty() || url.password().is_some()).then(|| Login {
            user: decoded(url.username()),
            password: decoded(url.password().unwrap_or_default()),
        });
        // never sent to a server (RFC 9110 §4.2.5)
        url.set_fragment(None);
        // both fail only for URLs without a host, which http has
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Self(Address::Web { url, login }))
    }

    /// A bucket and a key, which stand behind `://` in `rest`. A key with empty parts or dots for parts can't be asked for.
    fn bucket(cloud: Cloud, rest: &str) -> Result<Self, RemoteError> {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if bucket.is_empty() || !bucket.chars().all(plain) {
            return Err(RemoteError::Invalid {
                url: format!("{}://…", cloud.scheme()),
                why: "the name of a bucket must follow, of letters, digits, '-', '.' and '_'"
                    .into(),
            });
        }
        let place = Self(Address::Bucket {
            cloud,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        });
        // keys are paths to the store, which has no way to ask for one with an empty part
        let inside = key.strip_suffix('/').unwrap_or(key);
        if !inside.is_empty()
            && inside
                .split('/')
                .any(|part| matches!(part, "" | "." | ".."))
        {
            return Err(RemoteError::Invalid {
                url: place.to_string(),
                why: "a key with '//', '/./' or '/../' can't be read".into(),
            });
        }
        Ok(place)
    }

    /// All of it, with what is secret: only to tell it from others.
    pub(super) fn key(&self) -> String {
        match &self.0 {
            Address::Web { url, login } => {
                // another user may get other bytes under the same URL
                let login = login.as_ref().map(|login| (&login.user, &login.password));
                format!("{url} {login:?}")
            }
            Address::Bucket { cloud, bucket, key } => {
                format!("{}://{bucket}/{key}", cloud.scheme())
            }
        }
    }

    /// The URL as other programs are to ask for it; `None` if it may have something secret in it.
    #[must_use]
    pub fn public(&self) -> Option<String> {
        match &self.0 {
            Address::Web { url, login } => {
                let is_public = login.is_none() && url.query().is_none();
                is_public.then(|| url.to_string())
            }
            Address::Bucket { .. } => Some(self.key()),
        }
    }

    pub(super) fn kind(&self) -> &Address {
        &self.0
    }

    /// The last part of the path as the name of a file; `None` if there is none that could be one.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        let name = match &self.0 {
            Address::Web { url, .. } => decoded(url.path_segments()?.next_back()?),
            Address::Bucket { key, .. } => key.rsplit('/').next()?.to_owned(),
        };
        let fits = !matches!(name.as_str(), "" | "." | "..")
            && !name.contains(['/', '\0'])
            && name.len() <= NAME_MAX;
        fits.then_some(name)
    }

    /// Whether it stands for all objects whose URL begins with it: it ends in a slash, or is a bucket.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        match &self.0 {
            Address::Web { url, .. } => url.path().ends_with('/') && url.query().is_none(),
            Address::Bucket { key, .. } => key.is_empty() || key.ends_with('/'),
        }
    }

    /// Whether objects with a prefix can be listed there.
    #[must_use]
    pub fn can_list(&self) -> bool {
        matches!(self.0, Address::Bucket { .. })
    }

    /// The object of this name below a prefix.
    ///
    /// # Errors
    /// [`RemoteError::Invalid`] if this is no prefix, or the name makes no sense there.
    pub fn join(&self, name: &str) -> Result<Self, RemoteError> {
        let invalid = |why: &str| RemoteError::Invalid {
            url: self.to_string(),
            why: why.to_owned(),
        };
        if !self.is_prefix() {
            return Err(invalid("not a prefix: it does not end in '/'"));
        }
        match &self.0 {
            Address::Web { url, login } => {
                let mut url = url.clone();
                let parts = url.path_segments_mut();
                let mut parts = parts.map_err(|()| invalid("no path can follow"))?;
                parts.pop_if_empty().extend(name.split('/'));
                drop(parts);
                let login = login.clone();
                Ok(Self(Address::Web { url, login }))
            }
            Address::Bucket { cloud, bucket, key } => {
                Self::bucket(*cloud, &format!("{bucket}/{key}{name}"))
            }
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Web { url, .. } => {
                write!(
                    f,
                    "{}://{}",
                    url.scheme(),
                    url.host_str().unwrap_or_default()
                )?;
                if let Some(port) = url.port() {
                    write!(f, ":{port}")?;
                }
                f.write_str(url.path())?;
                let Some(query) = url.query() else {
                    return Ok(());
                };
                // values may be signatures or tokens: names alone are shown
                for (n, pair) in query.split('&').enumerate() {
                    f.write_str(if n == 0 { "?" } else { "&" })?;
                    match pair.split_once('=') {
                        Some((name, _)) => write!(f, "{name}=…")?,
                        // a bare word may be a token
                        None => f.write_str("…")?,
                    }
                }
                Ok(())
            }
            Address::Bucket { cloud, bucket, key } => {
                write!(f, "{}://{bucket}/{}", cloud.scheme(), printable(key))
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A part of a URL with its percent-encoded bytes decoded.
fn decoded(text: &str) -> String {
    let bytes = percent_decoded(text).unwrap_or_else(|lenient| lenient);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Location {
        Location::parse(text).unwrap().unwrap()
    }

    #[test]
    fn nothing_secret_is_shown() {
        let cases = [
            (
                "https://me:pa%40ss@h.org/a/b.asdf",
                "https://h.org/a/b.asdf",
            ),
            (
                "HTTP://h.org:8080/x?a=1&X-Amz-Signature=secret&token#frag",
                "http://h.org:8080/x?a=…&X-Amz-Signature=…&…",
            ),
            (
                "https://h.org/d?uri=mast:JWST/secret=x",
                "https://h.org/d?uri=…",
            ),
            ("s3://b/k/ä b.asdf", "s3://b/k/ä b.asdf"),
            ("gs://b/a\nb", "gs://b/a%0Ab"),
            ("az://b", "az://b/"),
        ];
        for (text, shown) in cases {
            let at = at(text);
            assert_eq!(at.to_string(), shown);
            assert_eq!(format!("{at:?}"), shown);
        }
        let wrong = Location::parse("https://me:secret@:99999/x?token=secret");
        let wrong = wrong.unwrap().unwrap_err();
        assert!(!format!("{wrong} {wrong:?}").contains("secret"), "{wrong}");
    }

    #[test]
    fn a_path_is_no_location() {
        for text in [
            "a.asdf",
            "/a/b",
            "file:///a",
            "c:/x",
            "ftp://h/x",
            "http:/x",
            "://x",
        ] {
            assert!(Location::parse(text).is_none(), "{text}");
        }
        for text in [
            "http://",
            "s3://",
            "s3:///k",
            "s3://b c/k",
            "s3://b/a//b",
            "gs://b/../x",
        ] {
            assert!(Location::parse(text).unwrap().is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        let cases = [
            ("https://h/a/b%20c.asdf?x=1", Some("b c.asdf")),
            ("https://h/a/%2e%2e%2fx", Some("../x")),
            ("https://h/a%2Fb", None),
            ("https://h/%00", None),
            ("https://h/", None),
            ("https://h", None),
            ("s3://b/a/b%20c", Some("b%20c")),
            ("s3://b/a/", None),
        ];
        for (text, name) in cases {
            let name = name.filter(|name| !name.contains('/'));
            assert_eq!(at(text).name().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn a_prefix_ends_in_a_slash_and_names_join_it() {
        for text in ["s3://b", "s3://b/", "s3://b/a/", "https://h/a/"] {
            assert!(at(text).is_prefix(), "{text}");
        }
        for text in ["s3://b/a", "https://h/a", "https://h/a/?x=1"] {
            assert!(!at(text).is_prefix(), "{text}");
            assert!(at(text).join("x").is_err());
        }
        let joined = |text, name| at(text).join(name).unwrap();
        assert_eq!(joined("s3://b", "c/d%20.asdf"), at("s3://b/c/d%20.asdf"));
        assert_eq!(joined("gs://b/a/", "x"), at("gs://b/a/x"));
        assert_eq!(joined("https://h/a/", "x y/z"), at("https://h/a/x%20y/z"));
        assert!(at("s3://b/a/").join("../x").is_err());
    }
}
