//! The decoded bytes of a stream, as the source of another decoder.
//!
//! A thread that has a run slot must not wait for another one (see [`Grant::admit`](super::grant::Grant::admit)). So
//! of decoders that read from each other only the last, which readers see, is a [`Decoded`](super::Decoded). Here a thread
//! waits for no other thread: it takes the decoder parked nearest before the offset, or a new one, and parks it
//! behind what it has read. No bytes are kept, because the decoder above reads them in order, once.

use std::sync::Arc;

use super::cache::{Cache, Demand, Parked};
use super::decoded::is_no_later_than_new;
use super::memory_permit::MemoryPermit;
use super::{Cursor, Stream, misplaced};
use crate::error::Result;
use crate::source::{PooledBuf, Source, at_most, checked_end, len_u64};

/// Size of the buffer used to skip from an entry to the wanted bytes.
const SKIP: usize = 64 << 10;

/// A decoded block that another decoder reads.
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

    /// The parked decoder nearest before `offset`, or a new one if that gets there sooner; and the permit for its memory. The gate does not
    /// grant that: the thread would wait.
    fn cursor(&self, offset: u64, demand: Demand) -> Result<(Box<dyn Cursor>, MemoryPermit)> {
        let entry = self.stream.entry(offset);
        let parked = self.cache.unpark(self.key, offset, |cursor| {
            is_no_later_than_new(&cursor.in_hand(), offset, entry)
        });
        if let Some(Parked { cursor, memory, .. }) = parked {
            return Ok((cursor, memory));
        }
        let cursor = Arc::clone(&self.stream).cursor(offset)?;
        let memory = self.cache.permit(cursor.held(), demand);
        Ok((cursor, memory))
    }
}

impl Source for Piped {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let demand = Demand::Random(self.key);
        let (mut cursor, memory) = self.cursor(offset, demand)?;
        while cursor.position() < offset {
            self.cache.check_wanted()?;
            let left = offset.saturating_sub(cursor.position());
            cursor.fill(&mut PooledBuf::of(at_most(left, SKIP)))?;
        }
        if cursor.position() != offset {
            return Err(misplaced(offset));
        }
        cursor.fill(buf)?;
        if offset.saturating_add(len_u64(buf.len())) < self.len {
            self.cache.park(cursor, memory, false, demand);
        }
        self.cache.recount(&self.stream, demand);
        Ok(())
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}
