//! Bytes that belong to no block: which of the blocks gets them.

use super::{Assembly, Next};
use crate::asdf::layout::{BlockIndex, Extent};
use crate::error::Result;
use crate::save::rope::{Segment, sum};

/// The most gaps between blocks that one save allocates: each is a header to write, and a save in place is to stay small.
pub(super) const GAPS_AT_ONCE: usize = 1000;

impl Assembly<'_> {
    /// Which block of the next file the bytes at the end of the old one go to: the one that they follow, or else the last.
    pub(super) fn before_ending(&self, blocks: &[Next]) -> Option<usize> {
        let old = self.old.blocks.len().checked_sub(1)?;
        let followed = blocks.iter().position(|block| block.old == Some(old));
        followed
            .or(blocks.len().checked_sub(1))
            .filter(|&n| blocks.get(n).is_some_and(|block| !block.open))
    }

    /// The bytes between a block and the one behind it.
    pub(super) fn gap(&self, block: &Next, followed: bool) -> Vec<Segment> {
        let end = block.old.and_then(|n| self.old.block_end(n));
        let next = block.old.and_then(|n| n.checked_add(1));
        match (end, next.and_then(|next| self.old.blocks.get(next))) {
            // a gap goes with its block only if both neighbours still stand next to each other
            (Some(start), Some(next)) if followed => vec![Segment::Keep(Extent {
                start,
                end: next.offset,
            })],
            _ => Vec::new(),
        }
    }

    /// The bytes behind the last block of the old file. An index at its very end goes, and one among them gives way to zeros:
    /// asdf-python searches the last part of a file for an index, and takes the first that it finds there.
    pub(super) fn ending(&self) -> Vec<Segment> {
        let (start, end) = (self.old.blocks_end(), self.old.len);
        let keep = |start: u64, end: u64| Segment::Keep(Extent { start, end });
        match &self.old.index {
            BlockIndex::Valid(index) | BlockIndex::Wrong(index, _) if index.start >= start => {
                let mut out = vec![keep(start, index.start)];
                if index.end < end {
                    out.extend([Segment::Fill(0, index.len()), keep(index.end, end)]);
                }
                out
            }
            _ => vec![keep(start, end)],
        }
    }

    /// How many of these bytes behind a block are allocated to it: all of them, unless enough gaps have been.
    pub(super) fn allotted(&mut self, behind: &[Segment], ending: bool) -> Result<u64> {
        let len = behind
            .iter()
            .try_fold(0, |total, segment| sum(total, segment.len()))?;
        if len == 0 || ending {
            return Ok(len);
        }
        // a gap that is not allocated stays as it is, and the next save allocates it
        let left = self.gaps_left.checked_sub(1);
        self.gaps_left = left.unwrap_or(0);
        Ok(left.map_or(0, |_| len))
    }
}
