//! Skipping along the blocks, from header to header.

use std::cell::OnceCell;
use std::rc::Rc;

use super::index_hint::IndexHint;
use super::tree_hint::blocks_needed;
use super::{BLOCK_LIMIT, GAP_LIMIT, PADDING_LIMIT};
use crate::asdf::dialect::Dialect;
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{BlockIndex, INDEX_HEADER, Layout, Severity};
use crate::asdf::text::{CHUNK, position_of_magic};
use crate::error::{Error, Place, Result};
use crate::source::{Peek, Source, at_most, len_u64, read_up_to};

/// The most places that are tried for the first block of a draft with two magics.
const CANDIDATE_LIMIT: usize = 1000;
/// Bytes of the longest block header whose fields are known, magic included.
pub(super) const LONGEST_HEADER: usize = 54;

/// Skipping along the blocks.
pub(super) struct BlockWalk<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) layout: &'a mut Layout,
    /// The dialect of the layout. Once it is known with which magic the blocks of this file begin, with this magic alone.
    pub(super) dialect: Dialect,
    text: &'a [u8],
    peek: Peek,
    /// The block index as a hint, once it has been asked for.
    hint: OnceCell<Option<Rc<IndexHint>>>,
    /// How many headers of the hint have been announced to the source.
    pub(super) foretold: usize,
    /// Whether the blocks were taken from the block index.
    pub(super) guided: bool,
}

/// How skipping along has ended.
pub(super) enum Ended {
    /// Nothing can follow: there is no block at all, or the last one reaches to a block index, to the end of the file or further.
    Complete,
    /// Something else is behind the last block, which ends at this offset.
    Stuck(u64),
    /// There is no header at this offset, where one should be; or there is one too many.
    Unreadable(u64, Error),
}

impl<'a> BlockWalk<'a> {
    /// A walk that has not begun, along the blocks behind `text`. What it finds goes into `layout`.
    pub(super) fn new(source: &'a dyn Source, layout: &'a mut Layout, text: &'a [u8]) -> Self {
        Self {
            source,
            dialect: *layout.dialect,
            layout,
            text,
            peek: Peek::default(),
            hint: OnceCell::new(),
            foretold: 0,
            guided: false,
        }
    }

    /// Finds blocks and index from `from` on, the end of the text.
    pub(super) fn run(&mut self, from: u64) -> Result<()> {
        let mut next = self.first_block(from)?;
        let mut may_ask = true;
        loop {
            let ended = self.skip_along(next)?;
            if matches!(ended, Ended::Complete) {
                self.find_index()?;
            }
            // an index that did not help once is not asked again
            if may_ask && self.ask_index(&ended)? {
                break;
            }
            may_ask = false;
            next = self.go_on(ended)?;
            if next.is_none() {
                break;
            }
        }
        // not looked for yet, or set back when `ask_index` took other blocks
        if matches!(self.layout.index, BlockIndex::Absent) {
            self.find_index()?;
        }
        self.check_ending()?;
        self.look_for_doubt(from)?;
        self.check_sizes();
        Ok(())
    }

    /// The offset of the first block, at or after `from`.
    ///
    /// A file of a draft with two magics uses one of them, the magic of its first plausible header.
    fn first_block(&mut self, from: u64) -> Result<Option<u64>> {
        let limit = from.saturating_add(PADDING_LIMIT);
        let dialect = self.dialect;
        let first = find_magic(self.source, &dialect, from, PADDING_LIMIT)?;
        if dialect.magics.len() < 2 {
            return Ok(first);
        }
        // four bytes may be a magic by chance, so a whole header must fit
        let mut found = first;
        for _ in 0..CANDIDATE_LIMIT {
            let Some(at) = found else { break };
            if self.plausible(at)?.is_some() {
                break;
            }
            let behind = at.saturating_add(1);
            found = find_magic(self.source, &dialect, behind, limit.saturating_sub(behind))?;
        }
        let Some(at) = found.or(first) else {
            return Ok(None);
        };
        let here = read_up_to(self.source, at, 4)?;
        let mut magics = dialect.magics.iter();
        if let Some(magic) = magics.find(|magic| here == **magic) {
            // the other one is data from here on
            self.dialect.magics = std::slice::from_ref(magic);
        }
        Ok(Some(at))
    }

    /// Adds the block whose magic is at `next`, and the blocks that follow it without a gap.
    fn skip_along(&mut self, next: Option<u64>) -> Result<Ended> {
        let Some(mut at) = next else {
            return Ok(Ended::Complete);
        };
        loop {
            self.foretell(at)?;
            let header = match self.header(at)? {
                Ok(header) => header,
                Err(error) => return Ok(Ended::Unreadable(at, error)),
            };
            if self.layout.blocks.len() >= BLOCK_LIMIT {
                let why = format!("more than {BLOCK_LIMIT} blocks; the rest is not shown");
                let error = Error::unsupported(Place::Byte(at), why);
                return Ok(Ended::Unreadable(at, error));
            }
            let end = self.end_in_file(&header);
            self.layout.blocks.push(header);
            let Some(end) = end else {
                return Ok(Ended::Complete);
            };
            // the start of the next header, in most files: one read for both
            let here = self.peek.read(self.source, end, INDEX_HEADER.len())?;
            if here.is_empty() || here.starts_with(INDEX_HEADER) {
                return Ok(Ended::Complete);
            }
            let mut magics = self.dialect.magics.iter();
            if !magics.any(|magic| here.starts_with(magic)) {
                return Ok(Ended::Stuck(end));
            }
            at = end;
        }
    }

    /// The end of a block; `None` if it is streamed, or ends behind the end of the file.
    pub(super) fn end_in_file(&self, header: &BlockHeader) -> Option<u64> {
        let end = header.end().filter(|&end| end <= self.layout.len);
        end.filter(|_| !header.streamed())
    }

    /// The block header at `at`, or why there is none.
    pub(super) fn header(&mut self, at: u64) -> Result<Result<BlockHeader>> {
        let bytes = self.peek.read(self.source, at, LONGEST_HEADER)?;
        let header = BlockHeader::parse(bytes, at, &self.dialect);
        // the outer error is the medium's, and ends the scan; the inner one is a fault of the file
        Ok(header.and_then(|header| {
            if header.data_offset() > self.layout.len {
                let why = "block header cut short by the end of the file";
                return Err(Error::corrupt(Place::Byte(at), why));
            }
            Ok(header)
        }))
    }

    /// The block index at the end of the file, if it can be right. It is read once.
    pub(super) fn hint(&self) -> Result<Option<Rc<IndexHint>>> {
        if let Some(hint) = self.hint.get() {
            return Ok(hint.clone());
        }
        let hint = IndexHint::read(self.source, self.layout.text_end)?.map(Rc::new);
        Ok(self.hint.get_or_init(|| hint).clone())
    }

    /// How many blocks the tree needs, if there is a tree and its text shows the number.
    pub(super) fn blocks_needed(&self) -> Option<usize> {
        blocks_needed(self.text).filter(|_| self.layout.has_tree)
    }

    /// The first bytes of what should be a block header.
    pub(super) fn header_bytes(&mut self, at: u64) -> Result<&[u8]> {
        self.peek.read(self.source, at, LONGEST_HEADER)
    }

    /// Where to skip along from again, if there can be blocks behind the place where the walk has ended.
    fn go_on(&mut self, ended: Ended) -> Result<Option<u64>> {
        let (end, next) = match ended {
            Ended::Complete => return Ok(None),
            Ended::Unreadable(_, error) => {
                self.doubt(self.layout.blocks.len(), error);
                return Ok(None);
            }
            Ended::Stuck(end) => (end, self.searched(end)?),
        };
        let Some(next) = next else { return Ok(None) };
        self.check_gap(end, next)?;
        let why = format!("{} bytes that belong to no block", next.saturating_sub(end));
        self.layout
            .note(Severity::Odd, Error::corrupt(Place::Byte(end), why));
        Ok(Some(next))
    }

    /// The offset of the first block header in the gap from `end` on that fits into the file.
    fn searched(&mut self, end: u64) -> Result<Option<u64>> {
        let limit = end.saturating_add(GAP_LIMIT);
        let mut at = end;
        while let Some(found) =
            find_magic(self.source, &self.dialect, at, limit.saturating_sub(at))?
        {
            if self.plausible(found)?.is_some() {
                return Ok(Some(found));
            }
            at = found.saturating_add(1);
        }
        Ok(None)
    }

    /// The block header at `at`, if there is one that fits into the file: a magic alone may be chance.
    pub(super) fn plausible(&mut self, at: u64) -> Result<Option<BlockHeader>> {
        let header = self.header(at)?.ok();
        Ok(header.filter(|header| header.streamed() || self.end_in_file(header).is_some()))
    }

    /// Notes headers whose sizes contradict each other or the file.
    fn check_sizes(&mut self) {
        let layout = &mut *self.layout;
        let mut notes = Vec::new();
        for (n, header) in layout.blocks.iter().enumerate() {
            if header.streamed() {
                continue;
            }
            if header.end().is_none_or(|end| end > layout.len) {
                let there = layout.len.saturating_sub(header.data_offset());
                let why = format!(
                    "{} bytes allocated, but the file ends after {there}",
                    header.allocated
                );
                // the padding of the last block may not have been written
                let severity = if header.used > there {
                    Severity::Partial
                } else {
                    Severity::Odd
                };
                notes.push((severity, n, why));
            }
            if header.used > header.allocated {
                let why = format!(
                    "used {} bytes of {} allocated",
                    header.used, header.allocated
                );
                // either of the two may be right, and a save could cut off data
                notes.push((Severity::ReadOnly, n, why));
            } else if !header.is_transformed() && header.data_size != header.used {
                let why = format!(
                    "not compressed, but data size {} and used size {}; the used bytes are shown",
                    header.data_size, header.used
                );
                notes.push((Severity::Odd, n, why));
            }
        }
        for (severity, n, why) in notes {
            layout.note(severity, Error::corrupt(Place::Block(n), why));
        }
    }
}

/// The first block magic at or after `from`, at most `limit` bytes away.
fn find_magic(
    source: &dyn Source,
    dialect: &Dialect,
    from: u64,
    limit: u64,
) -> Result<Option<u64>> {
    // a magic may begin in the last three bytes of a chunk
    const OVERLAP: u64 = 3;
    let end = source.len().min(from.saturating_add(limit));
    let mut at = from;
    while at < end {
        // up to the next chunk of the file: a remote file
        // has fetched this one already, and not the next
        let within = at.checked_rem(CHUNK).unwrap_or(0);
        let len = match CHUNK.saturating_sub(within) {
            rest if rest > OVERLAP => rest,
            rest => rest.saturating_add(CHUNK),
        };
        let chunk = read_up_to(source, at, at_most(len, usize::MAX))?;
        if let Some(found) = position_of_magic(&chunk, dialect) {
            return Ok(Some(at.saturating_add(len_u64(found))));
        }
        if len_u64(chunk.len()) < len {
            break;
        }
        at = at.saturating_add(len.saturating_sub(OVERLAP));
    }
    Ok(None)
}
