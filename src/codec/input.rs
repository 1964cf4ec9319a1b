//! The stored bytes of one long stream, read in pieces, and the decoded ones that what follows refers to.

use crate::error::{Error, Place, Result};
use crate::source::{Source, at_most, len_u64};

/// Such a payload is read in pieces of this size.
pub(super) const PIECE: usize = 128 << 10;

/// A payload that is read from an offset on, in pieces.
pub(super) struct Input {
    /// Offset in the payload behind `bytes`.
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
}

impl Input {
    /// The payload from `at` on.
    pub(super) fn new(at: u64) -> Self {
        Self {
            at,
            bytes: Vec::new(),
            taken: 0,
        }
    }

    /// Offset in the payload of the next byte.
    pub(super) fn position(&self) -> u64 {
        let left = self.bytes.len().saturating_sub(self.taken);
        self.at.saturating_sub(len_u64(left))
    }

    /// Goes to another offset.
    #[cfg(any(feature = "xz", feature = "zstd"))]
    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
        self.bytes.clear();
        self.taken = 0;
    }

    /// The next bytes, none at `end`.
    pub(super) fn fill(&mut self, stored: &dyn Source, end: u64) -> Result<&[u8]> {
        if self.taken >= self.bytes.len() {
            let len = at_most(end.saturating_sub(self.at), PIECE);
            check_end(stored, self.at, len)?;
            // A read that fails leaves no bytes that could be taken for those of the payload.
            let mut bytes = std::mem::take(&mut self.bytes);
            self.taken = 0;
            bytes.resize(len, 0);
            stored.read_exact_at(&mut bytes, self.at)?;
            self.bytes = bytes;
            self.at = self.at.saturating_add(len_u64(len));
        }
        Ok(self.bytes.get(self.taken..).unwrap_or_default())
    }

    /// Moves on by `len` of the bytes that [`Input::fill`] gave.
    pub(super) fn take(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.bytes.capacity())
    }
}

/// Appends `bytes` to `history`, of which the last `most` bytes stay.
pub(super) fn keep_last(history: &mut Vec<u8>, most: usize, bytes: &[u8]) {
    let tail = bytes.get(bytes.len().saturating_sub(most)..);
    let tail = tail.unwrap_or_default();
    let room = most.saturating_sub(tail.len());
    history.drain(..history.len().saturating_sub(room));
    history.extend_from_slice(tail);
}

/// That a payload has `len` bytes at `offset`.
///
/// # Errors
/// [`Error::Corrupt`] if not; not of a place in the file, because the offset is one in the payload.
pub(super) fn check_end(source: &dyn Source, offset: u64, len: usize) -> Result<()> {
    if offset.saturating_add(len_u64(len)) > source.len() {
        let why = format!(
            "{len} bytes wanted at {offset} of the payload, which has {}",
            source.len()
        );
        return Err(Error::corrupt(Place::File, why));
    }
    Ok(())
}
