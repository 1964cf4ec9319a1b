//! What tells one state of an object from another.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDateTime, Utc};
use object_store::ObjectMeta;

use crate::error::printable;

/// Size, `ETag`, `Last-Modified` and version of an object, as the server says them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    size: u64,
    /// Whether the server has said the size. One that sends whole files may not: then it is counted.
    says_size: bool,
    etag: Option<String>,
    modified: Option<SystemTime>,
    version: Option<String>,
}

impl Identity {
    /// That of an answer.
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let modified = SystemTime::from(meta.last_modified);
        Self {
            size: meta.size,
            says_size: meta.size != 0,
            etag: meta.e_tag.clone(),
            // the store's word for "not said"
            modified: (modified != SystemTime::UNIX_EPOCH).then_some(modified),
            version: meta.version.clone(),
        }
    }

    /// That of an object in a listing, in which a tag may stand without its quotes, and a time with parts of a second that no header has.
    pub(super) fn listed(size: u64, etag: Option<&str>, modified: SystemTime) -> Self {
        let quoted = |etag: &str| match etag {
            etag if etag.starts_with('"') || is_weak(etag) => etag.to_owned(),
            etag => format!("\"{etag}\""),
        };
        let since = modified.duration_since(SystemTime::UNIX_EPOCH);
        // a listing has fractions of a second, the headers of the object have none: both have to compare equal
        let whole = since.map(|since| Duration::from_secs(since.as_secs()));
        let modified = whole
            .ok()
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        Self {
            size,
            says_size: true,
            etag: etag.map(quoted),
            modified: modified.filter(|at| *at != SystemTime::UNIX_EPOCH),
            version: None,
        }
    }

    /// The same with the length that was counted, where the server has `said` one before, or none.
    pub(super) fn with_size(self, size: u64, said: Option<u64>) -> Self {
        Self {
            size,
            // by zero a store means that nothing was said
            says_size: self.says_size || size == 0 && said == Some(0),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn new(size: u64, etag: Option<String>, modified: Option<SystemTime>) -> Self {
        Self {
            size,
            says_size: true,
            etag,
            modified,
            version: None,
        }
    }

    /// A text from which [`Identity::of_text`] makes it again, for objects that are read in parts.
    pub(super) fn to_text(&self) -> String {
        let since = self
            .modified
            .map(|at| at.duration_since(SystemTime::UNIX_EPOCH));
        let since = since.and_then(Result::ok);
        let since = since.map_or_else(String::new, |since| since.as_nanos().to_string());
        let (tag, version) = (self.etag.as_deref(), self.version.as_deref());
        // the = tells an empty tag from none
        let said = |text: Option<&str>| text.map_or_else(String::new, |text| format!("={text}"));
        format!("{}\n{since}\n{}\n{}", self.size, said(tag), said(version))
    }

    /// That of a text.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let size = lines.next()?.parse().ok()?;
        let modified = match lines.next()? {
            "" => None,
            since => {
                let since = Duration::from_nanos(since.parse().ok()?);
                Some(SystemTime::UNIX_EPOCH.checked_add(since)?)
            }
        };
        let mut said = || {
            lines
                .next()
                .map(|text| text.strip_prefix('=').map(str::to_owned))
        };
        Some(Self {
            size,
            says_size: true,
            etag: said()?,
            modified,
            version: said()?,
        })
    }

    /// Length of the object in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the server has said the length.
    #[must_use]
    pub fn says_size(&self) -> bool {
        self.says_size
    }

    /// When the object was last changed, if the server says it.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Whether a change that keeps the size would show.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.etag.is_some() || self.modified.is_some() || self.version.is_some()
    }

    /// What tells a change of the object, for people.
    #[must_use]
    pub fn validator(&self) -> String {
        let tag = self
            .etag
            .as_deref()
            .map(|tag| format!("ETag {}", printable(tag)));
        let version = self.version.as_deref();
        let version = version.map(|version| format!("version {}", printable(version)));
        let time = self.modified.map(DateTime::<Utc>::from);
        let time = time.map(|time| time.format("changed at %Y-%m-%dT%H:%M:%SZ").to_string());
        let said: Vec<String> = [tag, version, time].into_iter().flatten().collect();
        if said.is_empty() {
            return "none: a change that keeps the size goes unnoticed".to_owned();
        }
        said.join(", ")
    }

    /// Whether both are of the same state of an object, as far as the server tells them apart.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        // a strong tag tells each change; the same bytes that are stored once more have another time and version
        let is_told = self.strong_etag().is_some() && other.strong_etag().is_some();
        self.said_size() == other.said_size()
            // a server may drop the mark of a weak tag when the file is older than a second
            && self.etag.as_deref().map(opaque) == other.etag.as_deref().map(opaque)
            && (is_told || self.modified == other.modified && self.has_version_of(other))
    }

    /// Whether the versions are the same. A listing has none; where there are tags, these tell.
    fn has_version_of(&self, other: &Self) -> bool {
        match (&self.version, &other.version) {
            (Some(version), Some(other)) => version == other,
            (None, None) => true,
            _ => self.etag.is_some(),
        }
    }

    /// A number for the state of a file, which hardly any others have. A new time makes it another one, also of the same bytes.
    #[must_use]
    pub fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let etag = self.etag.as_deref().map(opaque);
        // some answers leave the version out; with an ETag it adds nothing
        let version = self.version.as_ref().filter(|_| etag.is_none());
        (self.said_size(), etag, self.modified, version).hash(&mut hasher);
        hasher.finish()
    }

    /// The size, if it tells states apart.
    fn said_size(&self) -> Option<u64> {
        self.says_size.then_some(self.size)
    }

    /// The tag for `If-Match`, which a weak one must not be in. An empty one tells nothing.
    pub(super) fn strong_etag(&self) -> Option<&str> {
        let tag = self.etag.as_deref();
        tag.filter(|tag| !is_weak(tag) && !tag.trim_matches('"').is_empty())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.size)?;
        if let Some(etag) = &self.etag {
            write!(f, ", ETag {}", printable(etag))?;
        }
        Ok(())
    }
}

fn is_weak(etag: &str) -> bool {
    etag.starts_with("W/")
}

fn opaque(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

/// Whether the store can parse the time of an object as S3 and Google Cloud Storage list it.
pub(super) fn is_time(text: &str) -> bool {
    text.trim().parse::<DateTime<Utc>>().is_ok()
}

/// Whether the store can parse the time of an object as Azure lists it.
pub(super) fn is_azure_time(text: &str) -> bool {
    NaiveDateTime::parse_from_str(text.trim(), "%a, %d %h %Y %T GMT").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(etag: Option<&str>, seconds: Option<u64>) -> Identity {
        let time = seconds.map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        Identity::new(9, etag.map(str::to_owned), time)
    }

    #[test]
    fn any_difference_counts_but_the_mark_of_a_weak_tag_and_the_time_beside_a_strong_one() {
        let strong = identity(Some("\"a\""), Some(1));
        let weak = identity(Some("W/\"a\""), Some(1));
        assert!(strong.is_same(&weak) && strong.number() == weak.number());
        for time in [Some(2), None] {
            let again = Identity {
                version: Some("2".to_owned()),
                ..identity(Some("\"a\""), time)
            };
            assert!(strong.is_same(&again) && again.is_same(&strong));
            assert!(!weak.is_same(&again) && !again.is_same(&weak));
            // a program that looks at the file sees its time
            assert_ne!(strong.number(), again.number());
        }
        for other in [
            identity(Some("\"b\""), Some(1)),
            identity(Some("W/\"a\""), Some(2)),
            identity(Some("W/\"a\""), None),
            identity(None, Some(1)),
        ] {
            assert!(!strong.is_same(&other) && !other.is_same(&strong));
            assert_ne!(strong.number(), other.number());
        }
        let longer = Identity::new(10, Some("\"a\"".into()), strong.modified);
        assert!(!strong.is_same(&longer));
    }

    /// A file whose size had to be counted was taken for another one each time that its server was asked.
    #[test]
    fn a_size_that_was_counted_does_not_count() {
        let unsaid = Identity {
            size: 0,
            says_size: false,
            ..identity(Some("\"a\""), Some(1))
        };
        let counted = unsaid.clone().with_size(9, None);
        assert!(counted.is_same(&unsaid) && counted.number() == unsaid.number());
        assert_eq!(counted.size(), 9);
        assert!(!unsaid.clone().with_size(0, None).says_size());
        assert!(unsaid.clone().with_size(0, Some(0)).says_size());
        assert!(!counted.is_same(&identity(Some("\"a\""), Some(1))));
    }

    #[test]
    fn a_state_is_the_same_when_it_was_written_down() {
        let versioned = Identity {
            version: Some(String::new()),
            ..identity(None, Some(1))
        };
        for state in [
            identity(Some("\"a\""), Some(1)),
            identity(Some(""), None),
            versioned,
        ] {
            assert_eq!(Identity::of_text(&state.to_text()), Some(state));
        }
        for text in ["", "9", "9\n\n", "x\n\n\n", "9\nx\n\n"] {
            assert_eq!(Identity::of_text(text), None, "{text:?}");
        }
        let strong = identity(Some("\"a\""), Some(1));
        assert_eq!(
            strong.validator(),
            "ETag \"a\", changed at 1970-01-01T00:00:01Z"
        );
        assert!(identity(None, None).validator().starts_with("none: "));
    }

    #[test]
    fn a_weak_tag_is_never_asked_for_and_an_empty_one_tells_nothing() {
        for empty in ["", "\"\""] {
            let state = identity(Some(empty), Some(1));
            assert!(state.strong_etag().is_none() && state.is_same(&state.clone()));
            assert!(!state.is_same(&identity(Some(empty), Some(2))));
        }
        assert_eq!(identity(Some("W/\"a\""), None).strong_etag(), None);
        assert_eq!(identity(Some("\"a\""), None).strong_etag(), Some("\"a\""));
        assert!(identity(Some("W/\"a\""), None).is_sure());
        assert!(!identity(None, None).is_sure());
    }
}
