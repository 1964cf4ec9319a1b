//! What can go wrong with a far object. Each text names the URL, without what is secret in it, and what to do.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::{Error as Library, Place};

/// Why a far object can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Not a URL that makes sense.
    #[error("{url}: {why}")]
    Invalid {
        /// What of it can be shown.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such object.
    #[error("{url}: {why}; check the URL")]
    Missing {
        /// The URL.
        url: String,
        /// What the server says.
        why: String,
    },
    /// The server wants other credentials, or any.
    #[error("{url}: {why}; {advice}")]
    Denied {
        /// The URL.
        url: String,
        /// What the server says.
        why: String,
        /// What may help.
        advice: &'static str,
    },
    /// The object is not the one that was opened.
    #[error("{url}: it has changed since it was opened: {why}; open it again")]
    Changed {
        /// The URL.
        url: String,
        /// What is different.
        why: String,
    },
    /// There was no full answer in time, whatever the server has sent instead.
    #[error("{url}: {why}")]
    TimedOut {
        /// The URL.
        url: String,
        /// What happened last, and what to do if that is known.
        why: String,
    },
    /// The server sends whole files only, and this one is too long for that.
    #[error("{url}: {why}; download it, or raise -o max-download=")]
    NoRanges {
        /// The URL.
        url: String,
        /// What is missing, and the length if it is known.
        why: String,
    },
    /// Nothing can be listed there.
    #[error(
        "{url}: what lies below an http URL can't be listed; name the files, in --files-from too"
    )]
    NoListing {
        /// The URL.
        url: String,
    },
    /// Anything else, after it was tried again where that may help.
    #[error("{url}: {why}")]
    Failed {
        /// The URL.
        url: String,
        /// What happened, and what to do if that is known.
        why: String,
    },
    /// The mount has ended meanwhile.
    #[error("reading {url} after the mount has ended")]
    Ended {
        /// The URL.
        url: String,
    },
}

impl RemoteError {
    /// That no full answer came within this time.
    pub(super) fn silent(url: String, waited: Duration) -> Self {
        let why = format!("no full answer within {waited:?}; -o timeout= gives it longer");
        Self::TimedOut { url, why }
    }

    /// The same failure, after which there is no time for another attempt.
    pub(super) fn at_last(self) -> Self {
        match self {
            Self::Failed { url, why } => Self::TimedOut { url, why },
            other => other,
        }
    }
}

impl From<RemoteError> for Library {
    fn from(error: RemoteError) -> Self {
        let text = error.to_string();
        let system = |errno: Errno| {
            Self::io(
                text.clone(),
                io::Error::from_raw_os_error(errno.raw_os_error()),
            )
        };
        match error {
            RemoteError::Missing { .. } => system(Errno::NOENT),
            RemoteError::Denied { .. } => system(Errno::ACCESS),
            RemoteError::TimedOut { .. } => system(Errno::TIMEDOUT),
            RemoteError::Failed { .. } => system(Errno::IO),
            RemoteError::Ended { .. } => Self::io(text, io::ErrorKind::Interrupted.into()),
            RemoteError::Changed { .. } => Self::Stale { why: text },
            RemoteError::Invalid { .. }
            | RemoteError::NoRanges { .. }
            | RemoteError::NoListing { .. } => Self::unsupported(Place::File, text),
        }
    }
}
