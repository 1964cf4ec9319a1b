//! Where everything lies in a file: text, padding, blocks, index; and the text of a block index.
//!
//! ASDF Standard, "Low-level file layout". A [`Layout`] is a record of what `scan` found. It is pure arithmetic: the plans of
//! saves are computed from it without looking at the file again.

use std::collections::BTreeMap;

use super::dialect::{Dialect, FirstLine, Version};
use super::header::BlockHeader;
use super::parts::Parts;
use crate::error::Error;

/// How a block index begins.
pub const INDEX_HEADER: &[u8] = b"#ASDF BLOCK INDEX";

/// A run of bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset just behind the last byte, never before `start`.
    pub end: u64,
}

impl Extent {
    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// What was found of a block index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockIndex {
    /// There is none.
    Absent,
    /// It lies there and lists the offset of every block.
    Valid(Extent),
    /// It lies there and is wrong.
    Wrong(Extent, String),
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The format is bent, but everything can be read; a save mends it or leaves it.
    Odd,
    /// One block or array can't be read, or only in part; everything else can.
    Partial,
    /// A block header is damaged. The other blocks were found by the block index, or by sizes that contradict each other: they can be
    /// read, and a save is refused.
    ReadOnly,
    /// Blocks may be missing: their number and place can't be known.
    Damaged,
}

/// Something about the file that is not as it should be.
#[derive(Debug, Clone)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What and where.
    pub error: Error,
}

/// The block from which on block numbers are uncertain, because a block in front may have lost its header.
#[derive(Debug, Clone)]
pub struct Doubt {
    /// The first block whose number is in doubt. The number of blocks is in doubt as well.
    pub from: usize,
    /// Why.
    pub error: Error,
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// The first line to the end of the tree: what `tree.yaml` shows.
    Text,
    /// Space between the text and the first block.
    Padding,
    /// Header and allocated space of a block.
    Block(usize),
    /// Bytes between blocks that belong to none.
    Gap,
    /// The block index.
    Index,
    /// Whatever follows.
    Trailer,
}

/// Where everything lies in a file.
#[derive(Debug, Clone)]
pub struct Layout {
    /// What kind of file it is.
    pub dialect: &'static Dialect,
    /// Version of the file format, from the first line.
    pub version: Version,
    /// Bytes of text: first line, comments and tree with the newline of its `...` line.
    pub text_end: u64,
    /// Whether the text holds a tree.
    pub has_tree: bool,
    /// The blocks in the order of the file; their offsets grow.
    pub blocks: Parts<BlockHeader>,
    /// Blocks known only from the block index, because their headers are lost; with the reason.
    pub lost: BTreeMap<usize, Error>,
    /// Blocks that may have another number than the tree means.
    pub doubt: Option<Box<Doubt>>,
    /// The block index.
    pub index: BlockIndex,
    /// Length of the file in bytes.
    pub len: u64,
    /// Everything about the file that is not as it should be.
    pub findings: Vec<Finding>,
}

impl Layout {
    /// The layout of a file of `len` bytes as long as nothing is known but where its text ends.
    pub(super) fn of_text(first: &FirstLine, text_end: u64, len: u64) -> Self {
        Self {
            dialect: first.dialect,
            version: first.version,
            text_end,
            has_tree: false,
            blocks: Parts::default(),
            lost: BTreeMap::new(),
            doubt: None,
            index: BlockIndex::Absent,
            len,
            findings: Vec::new(),
        }
    }

    /// Where block `n` ends: behind its allocated space, or at the end of the file if it is streamed or cut short. A block whose
    /// size reaches over something behind it ends where that begins.
    #[must_use]
    pub fn block_end(&self, n: usize) -> Option<u64> {
        let block = self.blocks.get(n)?;
        let limit = self.limit(n, block);
        if block.streamed() {
            return Some(limit);
        }
        // `end` fails beyond 2^64, which only a hostile header says
        Some(block.end().map_or(limit, |end| end.min(limit)))
    }

    /// Where something else begins behind the header of block `n`: the next block, the index, or the end of the file.
    fn limit(&self, n: usize, block: &BlockHeader) -> u64 {
        let next = n.checked_add(1).and_then(|next| self.blocks.get(next));
        let index = match &self.index {
            BlockIndex::Valid(extent) | BlockIndex::Wrong(extent, _) => extent.start,
            BlockIndex::Absent => self.len,
        };
        next.map_or(index, |next| next.offset)
            // in a hostile file the index may claim a place within this header
            .max(block.data_offset())
            .min(self.len)
    }

    /// Why the data of block `n` must not be shown. `force` shows a block if only its number is in doubt.
    #[must_use]
    pub fn withheld(&self, n: usize, force: bool) -> Option<&Error> {
        let doubt = self
            .doubt
            .as_ref()
            .filter(|doubt| n >= doubt.from && !force);
        self.lost.get(&n).or(doubt.map(|doubt| &doubt.error))
    }

    /// The space in front of the first block, in which the text may grow; the whole file if there is no block.
    #[must_use]
    pub fn head(&self) -> Extent {
        Extent {
            start: 0,
            end: self.blocks.first().map_or(self.len, |block| block.offset),
        }
    }

    /// Where the last block ends; without blocks the end of the text.
    #[must_use]
    pub fn blocks_end(&self) -> u64 {
        self.blocks
            .len()
            .checked_sub(1)
            .and_then(|last| self.block_end(last))
            .unwrap_or(self.text_end)
    }

    /// Whether the last block is streamed.
    #[must_use]
    pub fn streamed(&self) -> bool {
        self.blocks.last().is_some_and(BlockHeader::streamed)
    }

    /// Bytes of stored data in block `n` that the file really has: the used size, or as much of it as fits in
    /// front of whatever begins next.
    #[must_use]
    pub fn stored_len(&self, n: usize) -> u64 {
        let Some(block) = self.blocks.get(n) else {
            return 0;
        };
        // a file that was cut short ends within its last block
        let room = self.limit(n, block).saturating_sub(block.data_offset());
        if block.streamed() {
            room
        } else {
            block.used.min(room)
        }
    }

    /// Whether any of these bytes of the file are stored data of a block.
    #[must_use]
    pub fn holds_data(&self, extent: Extent) -> bool {
        // blocks lie one behind the other: the last one that begins before its end reaches farthest
        let behind = self
            .blocks
            .partition_point(|block| block.data_offset() < extent.end);
        let last = behind.checked_sub(1);
        last.and_then(|n| Some((n, self.blocks.get(n)?)))
            .is_some_and(|(n, block)| {
                let end = block.data_offset().saturating_add(self.stored_len(n));
                extent.start < end
            })
    }

    /// The gravest finding.
    #[must_use]
    pub fn worst(&self) -> Option<&Finding> {
        self.findings.iter().max_by_key(|finding| finding.severity)
    }

    /// The parts of the file in order; together they are the whole file, without hole or overlap.
    #[must_use]
    pub fn regions(&self) -> Vec<(Region, Extent)> {
        let mut out = Vec::with_capacity(self.blocks.len().saturating_add(4));
        let mut at = 0;
        let mut push = |region, end: u64| {
            // a region without bytes is left out; one that
            // overlaps the last begins where that ended
            if end > at {
                out.push((region, Extent { start: at, end }));
                at = end;
            }
        };
        push(Region::Text, self.text_end);
        for (n, block) in self.blocks.iter().enumerate() {
            push(
                if n == 0 { Region::Padding } else { Region::Gap },
                block.offset,
            );
            push(Region::Block(n), self.block_end(n).unwrap_or(self.len));
        }
        if let BlockIndex::Valid(extent) | BlockIndex::Wrong(extent, _) = &self.index {
            push(Region::Gap, extent.start);
            push(Region::Index, extent.end);
        }
        push(
            // without blocks, all that follows the text is room into which it may grow
            if self.blocks.is_empty() {
                Region::Padding
            } else {
                Region::Trailer
            },
            self.len,
        );
        out
    }
}

/// The text of a block index for blocks at these offsets, as Python asdf writes it.
#[must_use]
pub fn index_text(offsets: &[u64]) -> Vec<u8> {
    let mut out = INDEX_HEADER.to_vec();
    out.extend_from_slice(b"\n%YAML 1.1\n---\n");
    for offset in offsets {
        out.extend_from_slice(format!("- {offset}\n").as_bytes());
    }
    out.extend_from_slice(b"...\n");
    out
}

/// Parses the text of a block index: the offsets, and the length of the text in bytes.
///
/// Accepts the block style of Python (`- 1`) and the flow styles of old Python and asdf-cxx (`--- [1, 2]`, `[950,]`).
/// `None` if it is no list of whole numbers.
#[must_use]
pub fn parse_index(text: &[u8]) -> Option<(Vec<u64>, usize)> {
    let mut offsets = Vec::new();
    let mut len = 0usize;
    let mut in_document = false;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let content = line.trim_ascii_end();
        // an empty line or zeros end a list that has no `...` line
        if content.iter().all(|&byte| byte == 0) && in_document {
            break;
        }
        len = len.checked_add(line.len())?;
        if content == b"..." {
            break;
        }
        let content = match content.strip_prefix(b"---") {
            Some(rest) if !in_document => {
                in_document = true;
                rest
            }
            // the header line and `%YAML`
            _ if !in_document => continue,
            _ => content,
        };
        for token in content
            .split(|byte| b" \t[],".contains(byte))
            .filter(|token| !token.is_empty())
        {
            if token != b"-" {
                // anything but a number: this is no block index, and the blocks are found by their headers
                offsets.push(std::str::from_utf8(token).ok()?.parse().ok()?);
            }
        }
    }
    in_document.then_some((offsets, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_index_styles_in_the_wild_are_read() {
        let cases: [(&[u8], Option<Vec<u64>>); 7] = [
            (
                b"#ASDF BLOCK INDEX\n%YAML 1.1\n---\n- 10\n- 20\n...\n",
                Some(vec![10, 20]),
            ),
            (
                b"#ASDF BLOCK INDEX\n%YAML 1.1\n--- [10, 20]\n...\n",
                Some(vec![10, 20]),
            ),
            (
                b"#ASDF BLOCK INDEX\n%YAML 1.1\n---\n[950,\n]\n...\n",
                Some(vec![950]),
            ),
            (
                b"#ASDF BLOCK INDEX\r\n%YAML 1.1\r\n---\r\n- 10\r\n...\r\n",
                Some(vec![10]),
            ),
            (
                b"#ASDF BLOCK INDEX\n%YAML 1.1\n---\n- 10\n\0\0\0\0",
                Some(vec![10]),
            ),
            (b"#ASDF BLOCK INDEX\n%YAML 1.1\n---\n- ten\n...\n", None),
            (b"#ASDF BLOCK INDEX\nmore text", None),
        ];
        for (text, want) in cases {
            assert_eq!(
                parse_index(text).map(|found| found.0),
                want,
                "{}",
                text.escape_ascii()
            );
        }
    }

    proptest! {
        #[test]
        fn an_index_is_read_as_it_was_written(offsets: Vec<u64>, rest in "[^.]*") {
            let mut text = index_text(&offsets);
            let len = text.len();
            text.extend(rest.bytes());
            prop_assert_eq!(parse_index(&text), Some((offsets, len)));
        }

        #[test]
        fn any_bytes_are_an_index_or_not(bytes: Vec<u8>) {
            let _ = parse_index(&bytes);
        }
    }
}
