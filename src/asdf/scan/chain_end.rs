//! What lies behind the last block: the block index, checked against the blocks, and the rest of the file.

use super::suspect::{binary, blank};
use super::walk::BlockWalk;
use super::{GAP_LIMIT, INDEX_LIMIT};
use crate::asdf::layout::{BlockIndex, Doubt, Extent, INDEX_HEADER, Severity, parse_index};
use crate::asdf::text::CHUNK;
use crate::error::{Error, Place, Result};
use crate::source::{at_most, len_u64, read_up_to};

impl BlockWalk<'_> {
    /// Finds the block index behind the last block and checks it against the blocks.
    pub(super) fn find_index(&mut self) -> Result<()> {
        let end = self.layout.blocks_end();
        // a streamed block reaches to the end of the file: nothing can follow
        if self.layout.streamed() || end >= self.layout.len {
            return Ok(());
        }
        let Some((at, adjacent)) = self.last_index(end)? else {
            return Ok(());
        };
        let text = read_up_to(self.source, at, at_most(INDEX_LIMIT, usize::MAX))?;
        let offsets: Vec<u64> = self
            .layout
            .blocks
            .iter()
            .map(|block| block.offset)
            .collect();
        let (len, wrong) = match parse_index(&text) {
            None => (text.len(), Some("not a list of offsets".to_owned())),
            // the bytes in between may be a block that the index does not know either
            Some((_, len)) if !adjacent => (
                len,
                Some(format!("not right behind the last block, at {end}")),
            ),
            Some((found, len)) if found != offsets => (len, Some(difference(&found, &offsets))),
            Some((_, len)) => (len, None),
        };
        let extent = Extent {
            start: at,
            end: at.saturating_add(len_u64(len)),
        };
        self.layout.index = match wrong {
            None => BlockIndex::Valid(extent),
            Some(why) => BlockIndex::Wrong(extent, why),
        };
        Ok(())
    }

    /// Start of the last block index text behind `from`, and whether it begins right there.
    fn last_index(&self, from: u64) -> Result<Option<(u64, bool)>> {
        let here = read_up_to(self.source, from, INDEX_HEADER.len())?;
        if here.starts_with(INDEX_HEADER) {
            return Ok(Some((from, true)));
        }
        // one that stands further on is not used; it is only looked for to be named in a finding
        let start = self.layout.len.saturating_sub(INDEX_LIMIT).max(from);
        let tail = read_up_to(self.source, start, at_most(INDEX_LIMIT, usize::MAX))?;
        let found = tail
            .windows(INDEX_HEADER.len())
            .rposition(|window| window == INDEX_HEADER);
        Ok(found.map(|at| (start.saturating_add(len_u64(at)), false)))
    }

    /// Notes a wrong index, and bytes at the end of the file that are neither blank nor a part of anything known.
    pub(super) fn check_ending(&mut self) -> Result<()> {
        let len = self.layout.len;
        let end = self.layout.blocks_end();
        let (index, from) = match &self.layout.index {
            BlockIndex::Absent => (None, end),
            BlockIndex::Valid(extent) => (None, extent.end),
            BlockIndex::Wrong(extent, why) => (Some((*extent, why.clone())), extent.end),
        };
        if let Some((extent, why)) = &index {
            let why = format!("block index: {why}; not used");
            self.layout.note(
                Severity::Odd,
                Error::corrupt(Place::Byte(extent.start), why),
            );
        }
        // one chunk, because the rest of a file may be terabytes
        let trailer = read_up_to(self.source, from, at_most(CHUNK, usize::MAX))?;
        if !trailer.iter().all(|&byte| blank(byte)) {
            let why = format!(
                "{} bytes that are neither block nor index",
                len.saturating_sub(from)
            );
            self.layout
                .note(Severity::Odd, Error::corrupt(Place::Byte(from), why));
        }
        // in front of an index that is wrong, and behind it
        self.doubt_trailer(end, index.map_or(end, |(extent, _)| extent.start))?;
        self.doubt_trailer(from, len)
    }

    /// Whether there is surely no block behind the last one. That is sure if the index at the end of the file lists exactly the
    /// blocks that were found, or if there are no blocks and the tree needs none. asdf-python leaves old bytes behind a tree that
    /// has become shorter and has no arrays.
    fn none_is_missing(&self) -> Result<bool> {
        if self.layout.blocks.is_empty() {
            return Ok(self.blocks_needed() == Some(0));
        }
        let Some(hint) = self.hint()? else {
            return Ok(false);
        };
        let found = self.layout.blocks.iter().map(|block| block.offset);
        Ok(found.eq(hint.offsets.iter().copied()))
    }

    /// Puts block numbers in doubt if the bytes from `start` to `end`, behind the last block, may be a block whose header is lost.
    fn doubt_trailer(&mut self, start: u64, end: u64) -> Result<()> {
        let sure = self.guided || matches!(self.layout.index, BlockIndex::Valid(_));
        // in the order of cost: the last two read the file
        if sure || !self.found_in(start, end, GAP_LIMIT, binary)? || self.none_is_missing()? {
            return Ok(());
        }
        let why = "behind the last block lies what may be a block whose header is lost";
        let error = Error::corrupt(Place::Byte(start), why);
        self.layout.note(Severity::ReadOnly, error.clone());
        let from = self.layout.blocks.len();
        let doubt = || Box::new(Doubt { from, error });
        self.layout.doubt.get_or_insert_with(doubt);
        Ok(())
    }
}

/// How a block index differs from the blocks that are there.
fn difference(found: &[u64], blocks: &[u64]) -> String {
    let first = found.iter().zip(blocks).position(|(a, b)| a != b);
    match first.and_then(|n| Some((n, found.get(n)?, blocks.get(n)?))) {
        Some((n, said, is)) => format!("it says block {n} is at {said}, but it is at {is}"),
        None => format!(
            "it lists {} blocks, but there are {}",
            found.len(),
            blocks.len()
        ),
    }
}
