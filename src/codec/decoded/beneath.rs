//! The decoded bytes of a stream, as the source of another decoder.
//!
//! A thread that has a permit must not wait for another one (see [`limit`](crate::codec::limit)). So
//! of decoders that read from each other only the last, which readers see, is a [`Decoded`](super::Decoded). Here a thread
//! waits for no other thread: it takes the decoder at rest nearest before the offset, or a new one, and leaves it to the cache
//! behind what it has read. No bytes are kept, because the decoder above reads them in order, once.

use std::sync::Arc;

use super::is_worth_taking;
use crate::codec::cache::{Cache, Counted};
use crate::codec::{Cursor, Stream, misplaced};
use crate::error::Result;
use crate::source::{PooledBuf, Source, at_most, checked_end, len_u64};

/// Size of the buffer used to skip from an entry to the wanted bytes.
const SKIP: usize = 64 << 10;

/// A decoded block that another decoder reads.
pub(in crate::codec) struct Beneath {
    stream: Arc<dyn Stream>,
    len: u64,
    cache: Arc<Cache>,
    /// This block's key in the cache.
    key: u64,
}

impl Beneath {
    /// The first `len` bytes of `stream`; its decoders rest in `cache`.
    pub(in crate::codec) fn new(stream: Arc<dyn Stream>, len: u64, cache: &Arc<Cache>) -> Self {
        Self {
            stream,
            len,
            cache: Arc::clone(cache),
            key: cache.new_key(),
        }
    }

    /// The decoder at rest nearest before `offset`, or a new one if that gets there sooner; and its memory. That is not taken of the limit:
    /// the thread would wait.
    fn cursor(&self, offset: u64) -> Result<(Box<dyn Cursor>, Counted)> {
        let entry = self.stream.entry(offset);
        let resting = self.cache.take(self.key, offset, |cursor| {
            is_worth_taking(cursor, offset, entry)
        });
        if let Some(resting) = resting {
            return Ok(resting);
        }
        let cursor = Arc::clone(&self.stream).cursor(offset)?;
        let memory = self.cache.count(cursor.held());
        Ok((cursor, memory))
    }
}

impl Source for Beneath {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let (mut cursor, memory) = self.cursor(offset)?;
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
            self.cache.rest(cursor, memory, self.key);
        }
        self.cache.recount(self.key, &self.stream);
        Ok(())
    }
}

impl Drop for Beneath {
    fn drop(&mut self) {
        self.cache.forget(self.key);
    }
}
