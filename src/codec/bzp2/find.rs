//! Finding the blocks of a stream, so that an edit can leave those alone that it does not touch.
//!
//! Blocks that any program has written can stay, because no block depends on another. Their places are known only when they have been
//! decoded, which takes a fifth of the time of encoding them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::bits::Mark;
use super::{BlockCursor, Blocks};
use crate::error::{Error, Result, lock};
use crate::source::Source;

/// Blocks decoded at once, at most.
const AT_ONCE: usize = 4;

/// A block of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundBlock {
    /// The bits that it is stored in, from its mark to what follows.
    pub(super) bits: Range<u64>,
    /// Number of decoded bytes, and their checksum.
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// The blocks of a stream of `data_size` bytes; `None` if there are several streams, or anything is damaged.
///
/// # Errors
/// Of reading `stored`.
pub(super) fn find(stored: &Arc<dyn Source>, data_size: u64) -> Result<Option<Vec<FoundBlock>>> {
    match walk(stored, data_size) {
        Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => Ok(None),
        found => found,
    }
}

/// The same, with damage as an error.
fn walk(stored: &Arc<dyn Source>, data_size: u64) -> Result<Option<Vec<FoundBlock>>> {
    let blocks = Arc::new(Blocks::new(Arc::clone(stored), data_size)?);
    let (_, next) = lock(&blocks.entries).at(0);
    let mut cursor = BlockCursor {
        next,
        blocks,
        position: 0,
        wanted: 0,
        at_once: AT_ONCE,
        ready: VecDeque::new(),
    };
    let mut found = Vec::new();
    while cursor.mark()? == Mark::Block {
        let mut start = cursor.next.bit;
        cursor.at_once = AT_ONCE;
        cursor.refill(u64::MAX)?;
        for block in cursor.ready.drain(..) {
            found.push(FoundBlock {
                bits: start..block.end,
                len: block.len(),
                crc: block.crc,
            });
            start = block.end;
        }
    }
    let is_all = cursor.next.decoded == data_size && cursor.check_sum()? == stored.len();
    Ok(is_all.then_some(found))
}

impl FoundBlock {
    /// Number of bits.
    pub(super) fn bit_len(&self) -> u64 {
        self.bits.end.saturating_sub(self.bits.start)
    }

    /// The stored bytes that its bits are in.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.bits.start.checked_shr(3).unwrap_or(0)..self.bits.end.div_ceil(8)
    }
}
