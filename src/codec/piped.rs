//! The decoded bytes of a stream as what another decoder reads.
//!
//! A thread that decodes must not wait for leave to decode (see [`Work`](super::work::Work)), so decoders that lie behind each
//! other can't all be [`Decoded`](super::Decoded): only the last one is, which readers see. Here a thread waits for no other. It
//! goes on with the decoder parked nearest before what it reads, or with a new one, and parks it behind that. No bytes are kept,
//! because the decoder above reads them in order, once.

use std::sync::Arc;

use super::cache::{Cache, For};
use super::{Cursor, Stream, misplaced};
use crate::error::Result;
use crate::source::{Source, checked_end, len_u64};

/// The length in which bytes are decoded that are not wanted, on the way from an entry to those that are.
const SKIP: u64 = 64 << 10;

/// A decoded block that is what another decoder reads.
pub(super) struct Piped {
    stream: Arc<dyn Stream>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
}

impl Piped {
    /// The first `len` bytes of `stream`; its decoders are parked in `cache`.
    pub(super) fn new(stream: Arc<dyn Stream>, len: u64, cache: &Arc<Cache>) -> Self {
        Self {
            stream,
            len,
            cache: Arc::clone(cache),
            key: cache.new_key(),
        }
    }

    /// The parked decoder nearest before `offset`, or a new one if that gets there sooner.
    fn cursor(&self, offset: u64) -> Result<Box<dyn Cursor>> {
        let entry = self.stream.entry(offset);
        let parked = self
            .cache
            .unpark(self.key, offset, |cursor| cursor.position() >= entry);
        match parked {
            Some(cursor) => Ok(cursor),
            None => Arc::clone(&self.stream).cursor(offset),
        }
    }
}

impl Source for Piped {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let whose = For {
            key: self.key,
            streaming: false,
        };
        let mut cursor = self.cursor(offset)?;
        let _room = self.cache.room(cursor.held(), whose);
        while cursor.position() < offset {
            self.cache.work().check(0)?;
            let left = offset.saturating_sub(cursor.position()).min(SKIP);
            cursor.read(&mut vec![0; usize::try_from(left).unwrap_or(0)])?;
        }
        if cursor.position() != offset {
            return Err(misplaced(offset));
        }
        cursor.read(buf)?;
        if offset.saturating_add(len_u64(buf.len())) < self.len {
            self.cache.park(cursor, whose);
        }
        self.cache.recount(&self.stream, 0, whose);
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}
