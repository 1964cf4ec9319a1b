//! The decoded bytes of a stream, as the source of another decoder.
//!
//! A thread that has a permit must not wait for another one (see [`limit`](crate::codec::limit)). So
//! of decoders that read from each other only the last, which readers see, is a [`Decoded`](super::Decoded). Here a thread
//! waits for no other thread: it takes the decoder at rest nearest before the offset, or a new one, and leaves it to the cache
//! behind what it has read. No bytes are kept, because the decoder above reads them in order, once.

use std::sync::Arc;

use super::{Decoded, SKIP};
use crate::codec::misplaced;
use crate::error::Result;
use crate::source::{PooledBuf, Source, at_most, checked_end};

/// A decoded block that another decoder reads.
pub(in crate::codec) struct Beneath(pub(in crate::codec) Arc<Decoded>);

impl Source for Beneath {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let block = &*self.0;
        let end = checked_end(offset, buf.len(), block.len)?;
        // Its memory is not taken of the limit: the thread would wait.
        let (mut cursor, mut memory) = block.cursor(offset)?;
        memory.count(cursor.held());
        block.cache.make_room();
        while cursor.position() < offset {
            block.cache.check_wanted()?;
            let left = offset.saturating_sub(cursor.position());
            cursor.fill(&mut PooledBuf::of(at_most(left, SKIP)))?;
        }
        if cursor.position() != offset {
            return Err(misplaced(offset));
        }
        cursor.fill(buf)?;
        if end < block.len {
            block.cache.rest(cursor, memory, block.key);
        }
        block.cache.recount(block.key, &block.stream);
        Ok(())
    }
}
