//! The decoders that run, as other threads see them: a thread that wants the same segment waits for its decode.

use std::ptr;
use std::sync::{Arc, OnceLock};

use super::{Decoded, DecodedState};
use crate::codec::{CountedBuf, Cursor, SEGMENT};
use crate::error::Result;
use crate::source::len_u64;

/// A running decoder.
pub(super) struct Decode {
    /// The segment it is decoding; `None` while it is being opened.
    pub(super) segment: Option<u64>,
    /// Its position.
    pub(super) from: u64,
    /// The decoded offset that its present step will reach.
    pub(super) will_decode_to: u64,
    /// Whether it began at an entry of an index that was loaded.
    pub(super) imported: bool,
    /// The segment or the error, set once, for the threads that wait for it: they wake when the guard moves on or is dropped.
    pub(super) outcome: OnceLock<Result<Arc<CountedBuf>>>,
}

impl Decode {
    /// A decoder that decodes the segment that it stands in or before; without a `cursor`, one that is being opened at the decoded
    /// offset `entry`.
    pub(super) fn new(cursor: Option<&dyn Cursor>, entry: u64, imported: bool) -> Self {
        let from = cursor.map_or(entry, Cursor::position);
        Self {
            segment: cursor.map(|_| from.div_ceil(len_u64(SEGMENT))),
            from,
            will_decode_to: cursor.map_or(entry, Cursor::will_decode_to),
            imported,
            outcome: OnceLock::new(),
        }
    }

    /// Whether its index has proved wrong since: its error then says nothing of the block.
    pub(super) fn was_misled(&self, state: &DecodedState) -> bool {
        self.imported && state.imported.is_none()
    }

    /// Whether it still runs.
    pub(super) fn is_running(&self, state: &DecodedState) -> bool {
        state
            .decodes
            .iter()
            .any(|other| ptr::eq(&raw const **other, self))
    }
}

/// Shows a [`Decode`] to other threads until dropped. If it has no outcome by then, one of those that wait decodes the segment.
pub(super) struct DecodeGuard<'a> {
    pub(super) block: &'a Decoded,
    /// The segment that the decoder is at. Another one takes its place when it moves on, so that threads which wait for this keep its
    /// outcome.
    pub(super) decode: Arc<Decode>,
}

impl DecodeGuard<'_> {
    /// Goes on to the next segment, and wakes the threads that wait for the one before.
    pub(super) fn move_on(&mut self, segment: u64, cursor: &dyn Cursor) {
        if self.decode.segment == Some(segment) {
            return;
        }
        let decode = Arc::new(Decode::new(Some(cursor), 0, self.decode.imported));
        let mut state = self.block.lock();
        state
            .decodes
            .retain(|other| !Arc::ptr_eq(other, &self.decode));
        state.decodes.push(Arc::clone(&decode));
        self.decode = decode;
        drop(state);
        self.block.moved.notify_all();
    }
}

impl Drop for DecodeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.block.lock();
        state
            .decodes
            .retain(|other| !Arc::ptr_eq(other, &self.decode));
        drop(state);
        self.block.moved.notify_all();
    }
}
