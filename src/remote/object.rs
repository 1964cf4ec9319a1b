//! An object as a source.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::error::RemoteError;
use super::identity::Identity;
use super::location::Location;
use super::open::TAIL;
use super::parts::PiecedObject;
use crate::error::Result;
use crate::source::{ScratchBytes, Source};

/// An object that lies far away, as it was when it was opened.
///
/// Each answer of the server is compared with the first one. When the object turns out to have changed, nothing of it can be read
/// any more, so that no reader gets bytes of two states; opening it again shows the new one.
pub struct Object {
    at: Location,
    identity: Arc<Identity>,
    bytes: ObjectBytes,
}

pub(super) enum ObjectBytes {
    /// Fetched when they are read; headers that lie alone in smaller pieces.
    Far {
        parts: Arc<PiecedObject>,
        headers: Arc<PiecedObject>,
    },
    /// Downloaded, because the server sends whole files only.
    Here(ScratchBytes),
}

impl Object {
    pub(super) fn new(at: &Location, identity: Arc<Identity>, bytes: ObjectBytes) -> Self {
        Self {
            at: at.clone(),
            identity,
            bytes,
        }
    }

    /// Where it lies.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.at
    }

    /// When it was last changed, if the server says it.
    #[must_use]
    pub fn modified(&self) -> Option<SystemTime> {
        self.identity.modified()
    }

    /// What it was when it was opened.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether its server sends parts of it.
    #[must_use]
    pub fn is_in_parts(&self) -> bool {
        matches!(self.bytes, ObjectBytes::Far { .. })
    }

    /// Where the failure is noted by which it was found to have changed. Nothing of it can be read any more then.
    #[must_use]
    pub fn changed(&self) -> Arc<OnceLock<RemoteError>> {
        match &self.bytes {
            ObjectBytes::Far { parts, .. } => Arc::clone(&parts.changed),
            ObjectBytes::Here(_) => Arc::default(),
        }
    }
}

impl Source for Object {
    fn len(&self) -> u64 {
        self.identity.size()
    }

    /// Fills `buf`, and waits for the server if the bytes are not here.
    ///
    /// # Errors
    /// [`Error::Stale`] if the object has changed, [`Error::Io`] with the errno that says what the server or the network does,
    /// [`Error::Corrupt`] beyond the end.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match &self.bytes {
            // the end has come in small pieces
            ObjectBytes::Far { parts, headers }
                if self.len().saturating_sub(offset) <= TAIL && !parts.has(offset, buf.len()) =>
            {
                headers.read(buf, offset)
            }
            ObjectBytes::Far { parts, .. } => parts.read(buf, offset),
            ObjectBytes::Here(bytes) => bytes.read_exact_at(buf, offset),
        }
    }

    fn read_header_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match &self.bytes {
            ObjectBytes::Far { parts, headers } if !parts.has(offset, buf.len()) => {
                headers.read(buf, offset)
            }
            ObjectBytes::Far { .. } | ObjectBytes::Here(_) => self.read_exact_at(buf, offset),
        }
    }

    /// Makes the requests for them, as many at a time as there may be.
    fn expect(&self, headers: &[u64]) -> bool {
        match &self.bytes {
            ObjectBytes::Far { parts, .. } => parts.expect(headers),
            ObjectBytes::Here(_) => false,
        }
    }
}
