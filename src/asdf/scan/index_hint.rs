//! The block index at the end of a file, as a hint at the places of blocks.

use super::walk::LONGEST_HEADER;
use super::{BLOCK_LIMIT, INDEX_LIMIT};
use crate::asdf::layout::{Extent, INDEX_HEADER, parse_index};
use crate::asdf::text::CHUNK;
use crate::error::Result;
use crate::source::{Source, at_most, len_u64, read_up_to};

/// Bytes of the end that are read first: the indexes of most files are shorter.
const PIECE: u64 = 4 << 10;

/// A block index that can be right.
pub(super) struct IndexHint {
    /// Offsets of the blocks, with room for a header between them and behind the last.
    pub(super) offsets: Vec<u64>,
    /// Where its text lies.
    pub(super) extent: Extent,
}

impl IndexHint {
    /// The index at the end of the file, with only blanks and zeros behind it, if it lies behind `text_end` and can be right. If
    /// the file ends in something else, one small piece is read.
    pub(super) fn read(source: &dyn Source, text_end: u64) -> Result<Option<Self>> {
        let mut size = PIECE;
        loop {
            let start = source.len().saturating_sub(size).max(text_end);
            let tail = read_up_to(source, start, at_most(size, usize::MAX))?;
            let found = tail
                .windows(INDEX_HEADER.len())
                .rposition(|window| window == INDEX_HEADER);
            if let Some((at, text)) = found.and_then(|at| Some((at, tail.get(at..)?))) {
                return Ok(Self::parse(
                    text,
                    start.saturating_add(len_u64(at)),
                    text_end,
                ));
            }
            // a longer piece is worth reading only if this one may be the rest of an index
            let all_zero = tail.iter().all(|&byte| byte == 0);
            let at_start = start == text_end || size >= INDEX_LIMIT;
            if at_start || all_zero || !tail.iter().all(|&byte| in_index(byte)) {
                return Ok(None);
            }
            // fourfold, so that all reads together are only a third more than the last one
            size = size.saturating_mul(4).clamp(CHUNK, INDEX_LIMIT);
        }
    }

    /// Where each block begins, and where the next thing behind it begins.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        let limits = self.offsets.iter().skip(1).copied();
        let limits = limits.chain([self.extent.start]);
        self.offsets.iter().copied().zip(limits)
    }

    /// The index in this text, if it can be right.
    fn parse(text: &[u8], start: u64, text_end: u64) -> Option<Self> {
        let (offsets, len) = parse_index(text)?;
        let behind = text.get(len..)?;
        let ends_file = behind.iter().all(|&byte| super::suspect::blank(byte));
        let header = len_u64(LONGEST_HEADER);
        // two blocks that are closer than a header is long can't both be blocks
        let apart = |a: u64, b: u64| a.checked_add(header).is_some_and(|end| end <= b);
        let in_order = offsets
            .iter()
            .zip(offsets.iter().skip(1))
            .all(|(&a, &b)| apart(a, b));
        let first = *offsets.first()?;
        let last = *offsets.last()?;
        let usable = ends_file
            && in_order
            && first >= text_end
            && apart(last, start)
            && offsets.len() <= BLOCK_LIMIT;
        usable.then_some(Self {
            offsets,
            extent: Extent {
                start,
                end: start.saturating_add(len_u64(len)),
            },
        })
    }
}

/// Whether the text of a block index can hold that byte.
fn in_index(byte: u8) -> bool {
    byte.is_ascii_graphic() || super::suspect::blank(byte)
}
