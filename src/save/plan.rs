//! From a layout and an edit to the next file, by arithmetic alone.
//!
//! ASDF Standard, "Low-level file layout". A [`Plan`] is the next file as [`Segments`] together with the layout that it will
//! scan to. What it may change is little:
//!
//! - A text that fits in front of the first block is written there and the rest of that space filled with the byte that
//!   is asked for. Otherwise the first block moves, and as much as `new_padding` says is left free for the edits to come. If there is to be no such space, the first block always stands right behind the text. A file without blocks is
//!   just its text.
//! - A block stays where it is. If its new bytes fit into its allocated space, the size of that space does not change. The bytes behind
//!   the used ones stay as well, except that a block header right there is overwritten. Otherwise the space becomes as large as the
//!   bytes, and everything behind it moves. A header that is longer than its fields keeps the bytes behind them.
//! - Bytes that belong to no block stay where they are and are allocated to the block in front of them: readers that skip from block
//!   to block stop at such bytes, or take a stale header among them for a block. So are the bytes behind the last block: the block
//!   index then stands right behind that block and ends the file, where asdf-python expects it.
//! - The block index is written anew if it would be wrong or was not there. Nothing is ever written behind a streamed block, nor
//!   behind a block whose data are cut short by the end of the file: it would become data of that block. If only unused space of a
//!   block is cut short, the block is allocated the space that there is.
//!
//! Where kept bytes may be shared with the old file instead of copied, they have to move by a multiple of the filesystem's
//! block: that is the `grain`.

mod behind;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edit::{BlockEdit, Edit, Piece, StoredBlock, no_such_block};
use super::rope::{Rope, Segment, Segments, sum, too_long};
use crate::asdf::header::{BlockHeader, STREAMED};
use crate::asdf::layout::{BlockIndex, Extent, Layout, index_text};
use crate::error::{Error, Place, Result};
use crate::source::{Source, len_u64};

/// The least space that is left behind a text that outgrew its place, in bytes.
const PADDING_MIN: u64 = 4096;
/// The most that is left for the sake of a long text, or of a long file.
const PADDING_MAX: u64 = 1 << 20;
/// One byte in so many of a file is left: the longer it is, the more it costs to move its blocks once more.
const FILE_SHARE: u64 = 1024;
/// Where the first block of a file is put, if it is put anywhere: at a multiple of this many bytes.
pub const FIRST_BLOCK_ALIGNMENT: u64 = 4096;
/// Bytes of a block header that are ours to write: magic, size and fields.
const HEADER_LEN: u64 = 54;

/// What the user wants between the text and the first block.
///
/// ASDF Standard, "Low-level file layout", section "Tree": any bytes may stand there. But not every reader takes all: asdf-python 3.0
/// to 3.5 takes zeros only (`_reader.py`, `read_blocks_serially`), asdf-cxx and asdf-cpp no space at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pad {
    /// The byte that is there now; zeros if there is none, or more than one value. A file without space gets none, as long as blocks
    /// are copied in any case and that costs little.
    #[default]
    Kept,
    /// This byte.
    Filled(u8),
    /// No space: the blocks move whenever the length of the text changes.
    Absent,
}

/// The next file.
#[derive(Debug, Clone)]
pub struct Plan {
    segments: Segments,
    layout: Layout,
    moves: bool,
}

impl Plan {
    /// The file that `layout` describes, after `edit`.
    ///
    /// `padding` is the byte between a new text and the first block; `None` if there is to be no space there, so that the first block
    /// moves with the end of the text. `grain` is the filesystem's block size in bytes if it can share bytes between
    /// files.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the edit names blocks that are not there or would break the file, [`Error::Unsupported`] for
    /// files that are not written, [`Error::NoRoom`] for sizes beyond 2^63.
    pub fn new(
        layout: &Layout,
        edit: &Edit,
        padding: Option<u8>,
        grain: Option<u64>,
    ) -> Result<Self> {
        if !layout.dialect.writable {
            let why = format!("{} files are read only", layout.dialect.name);
            return Err(Error::unsupported(Place::File, why));
        }
        let mut blocks: Vec<Next> = (0..layout.blocks.len())
            .filter_map(|n| Next::kept(layout, n))
            .collect();
        for change in &edit.blocks {
            apply(layout, &mut blocks, change)?;
        }
        Assembly {
            old: layout,
            padding,
            grain: grain.filter(|&grain| grain > 0),
            gaps_left: behind::GAPS_AT_ONCE,
            out: Segments::default(),
        }
        .run(edit, blocks)
    }

    /// The layout of the next file.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The next file, piece by piece.
    #[must_use]
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Whether a block or bytes of one move.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// What is to be written where, if no block and no byte of one moves. The length is then that of [`Plan::layout`].
    ///
    /// Kept segments among it are bytes behind the last block that make way for it, or follow it.
    #[must_use]
    pub fn in_place(&self) -> Option<Vec<&(u64, Segment)>> {
        (!self.moves).then(|| self.segments.changes().collect())
    }

    /// Whether a file that was scanned is the one that was planned.
    ///
    /// # Errors
    /// [`Error::Rejected`] saying where it is not.
    pub fn check(&self, found: &Layout) -> Result<()> {
        let want = &self.layout;
        let at = if found.text_end != want.text_end {
            Place::Byte(found.text_end.min(want.text_end))
        } else if found.blocks != want.blocks {
            let pairs = found.blocks.iter().zip(want.blocks.iter());
            Place::Block(pairs.take_while(|(a, b)| a == b).count())
        } else if found.index != want.index || found.len != want.len {
            Place::File
        } else {
            return Ok(());
        };
        Err(Error::Rejected {
            at,
            why: "the file would not read as it was meant to".to_owned(),
            advice: "look for a second document or for text behind `...`".to_owned(),
        })
    }

    /// The next file as a source, over the old one.
    #[must_use]
    pub fn next(&self, old: Arc<dyn Source>) -> Rope {
        Rope::new(old, self.segments.clone())
    }
}

/// A block of the next file.
struct Next {
    /// Its header; the offset is set when it is placed.
    header: BlockHeader,
    /// Which block of the old file it is.
    old: Option<usize>,
    /// Its stored bytes, if they are not just the old ones.
    pieces: Option<Vec<Piece>>,
    /// Whether its allocated space is as large as its bytes.
    shrink: bool,
    /// Whether it reaches to the end of the file, so that nothing may be written behind it.
    open: bool,
}

impl Next {
    /// Block `n` of the old file as it is. What of it lies behind the end of the file is no longer allocated, if that is unused
    /// space.
    fn kept(layout: &Layout, n: usize) -> Option<Self> {
        let mut header = layout.blocks.get(n)?.clone();
        let there = layout.block_end(n);
        // the file may end inside the allocated space: some writers allocate more than they write
        let mut cut_short = header.end().is_none_or(|end| Some(end) > there);
        if cut_short && !header.streamed() && header.used == layout.stored_len(n) {
            header.allocated = room(layout, n);
            cut_short = false;
        }
        Some(Self {
            open: header.streamed() || cut_short,
            header,
            old: Some(n),
            pieces: None,
            shrink: false,
        })
    }

    /// Gives the block other stored bytes, and a header that describes them.
    fn replace(&mut self, layout: &Layout, stored: &StoredBlock) -> Result<()> {
        let used = stored.used()?;
        // the header of a streamed block has no sizes and no checksum to change
        let stays_streamed = self.header.streamed() && stored.compression == [0; 4];
        self.pieces = Some(stored.pieces.clone());
        if stays_streamed {
            return Ok(());
        }
        let was_streamed = self.header.streamed();
        let room = self.old.map_or(0, |n| room(layout, n));
        // a streamed block has no allocated space of its own: its bytes are its space
        self.shrink = stored.shrink || was_streamed || used > room;
        self.open = false;
        self.header = BlockHeader {
            flags: self.header.flags & !STREAMED,
            compression: stored.compression,
            allocated: if self.shrink { used } else { room },
            used,
            data_size: stored.data_size,
            checksum: stored.checksum,
            ..self.header.clone()
        };
        Ok(())
    }
}

/// Bytes of the file that belong to block `n` behind its header.
fn room(layout: &Layout, n: usize) -> u64 {
    let data = layout.blocks.get(n).map_or(0, BlockHeader::data_offset);
    layout.block_end(n).unwrap_or(data).saturating_sub(data)
}

/// Applies one edit to the blocks.
fn apply(layout: &Layout, blocks: &mut Vec<Next>, change: &BlockEdit) -> Result<()> {
    let count = blocks.len();
    let missing = |n| no_such_block(n, &format!("there are only {count} blocks"));
    match change {
        BlockEdit::Replace { n, stored } => {
            let block = blocks.get_mut(*n).ok_or_else(|| missing(*n))?;
            check_pieces(layout, *n, block.old, &stored.pieces)?;
            block.replace(layout, stored)
        }
        BlockEdit::Checksum { n, md5 } => {
            let block = blocks.get_mut(*n).ok_or_else(|| missing(*n))?;
            block.header.checksum = *md5;
            Ok(())
        }
        BlockEdit::Append(stored) => {
            // what is written behind such a block would be read as data of it
            if blocks.last().is_some_and(|last| last.open) {
                let why = "the last block reaches to the end of the file";
                return Err(no_such_block(count, why));
            }
            check_pieces(layout, count, None, &stored.pieces)?;
            let mut block = Next {
                header: BlockHeader::new(0),
                old: None,
                pieces: None,
                shrink: true,
                open: false,
            };
            block.replace(layout, stored)?;
            blocks.push(block);
            Ok(())
        }
        BlockEdit::RemoveLast => blocks.pop().map(drop).ok_or_else(|| missing(0)),
    }
}

/// Whether the old bytes that these pieces name are there.
fn check_pieces(layout: &Layout, n: usize, old: Option<usize>, pieces: &[Piece]) -> Result<()> {
    let there = old.map_or(0, |n| layout.stored_len(n));
    for piece in pieces {
        if let Piece::Old(extent) = piece
            && (extent.end > there || extent.start > extent.end)
        {
            let why = format!("bytes up to {} are to be kept of {there}", extent.end);
            return Err(no_such_block(n, &why));
        }
    }
    Ok(())
}

/// The next file as it is put together.
struct Assembly<'a> {
    old: &'a Layout,
    /// What fills the space between text and first block, if there is any.
    padding: Option<u8>,
    grain: Option<u64>,
    /// How many gaps may still be allocated.
    gaps_left: usize,
    out: Segments,
}

impl Assembly<'_> {
    /// Puts text, blocks and index together, and predicts the layout that they will scan to.
    fn run(mut self, edit: &Edit, mut blocks: Vec<Next>) -> Result<Plan> {
        let text_end = self.head(edit, &mut blocks)?;
        // asked before any header gets its new offset
        let followers: Vec<bool> = (0..blocks.len()).map(|n| followed(&blocks, n)).collect();
        let ending = self.before_ending(&blocks);
        for (n, block) in blocks.iter_mut().enumerate() {
            let followed = followers.get(n).copied().unwrap_or(false);
            self.block(block, followed, ending == Some(n))?;
        }
        let headers: Vec<BlockHeader> = blocks.iter().map(|block| block.header.clone()).collect();
        let moves = self.moves(&blocks);
        // behind an open block an index would be data of that block
        let index = if headers.is_empty() || blocks.last().is_some_and(|last| last.open) {
            BlockIndex::Absent
        } else {
            self.index(&headers)?
        };
        let has_tree = edit
            .text
            .as_ref()
            .map_or(self.old.has_tree, |text| has_tree(text));
        Ok(Plan {
            layout: Layout {
                dialect: self.old.dialect,
                version: self.old.version,
                text_end,
                has_tree,
                blocks: headers.into_iter().collect(),
                lost: BTreeMap::new(),
                doubt: None,
                index,
                len: self.out.len(),
                findings: Vec::new(),
            },
            segments: self.out,
            moves,
        })
    }

    /// Text and padding. The end of the text.
    fn head(&mut self, edit: &Edit, blocks: &mut [Next]) -> Result<u64> {
        let Some(text) = &edit.text else {
            return self.kept_head(edit, blocks);
        };
        let mut text_end = len_u64(text.len());
        self.out.push(Segment::Write(Arc::clone(text)))?;
        if blocks.is_empty() {
            return Ok(text_end);
        }
        // readers look for the line `...` and the end of that line
        if !text.ends_with(b"\n") {
            self.out.push(Segment::Write(Arc::new(b"\n".to_vec())))?;
            text_end = sum(text_end, 1)?;
        }
        let first = self.first_block(text_end)?;
        let space = first.saturating_sub(text_end);
        self.out
            .push(Segment::Fill(self.padding.unwrap_or(0), space))?;
        Ok(text_end)
    }

    /// Text and padding as they are.
    fn kept_head(&mut self, edit: &Edit, blocks: &[Next]) -> Result<u64> {
        let old = self.old;
        if old.blocks.is_empty() && !blocks.is_empty() {
            let why = "a first block needs the text that it is to stand behind";
            return Err(no_such_block(0, why));
        }
        let head = if blocks.is_empty() && !edit.blocks.is_empty() {
            Extent {
                start: 0,
                end: old.text_end,
            }
        } else {
            old.head()
        };
        self.out.push(Segment::Keep(head))?;
        Ok(old.text_end)
    }

    /// Where the first block is to be, behind a text that ends at `text_end`.
    fn first_block(&self, text_end: u64) -> Result<u64> {
        if self.padding.is_none() {
            return Ok(text_end);
        }
        let old = self.old.blocks.first().map(|block| block.offset);
        // the space in front of the first block is there for this: the text grows into it, and no block moves
        if let Some(stays) = old.filter(|&offset| offset >= text_end) {
            return Ok(stays);
        }
        let wanted = sum(text_end, new_padding(text_end, self.old.len))?;
        match (self.grain, old) {
            // from where it was by whole blocks of the filesystem: then the copy shares the bytes of all blocks with FILE
            (Some(grain), Some(old)) => sum(old, round_up(wanted.saturating_sub(old), grain)?),
            _ => round_up(wanted, FIRST_BLOCK_ALIGNMENT),
        }
    }

    /// One block with its header, and the bytes behind it that belonged to none.
    fn block(&mut self, block: &mut Next, followed: bool, ending: bool) -> Result<()> {
        block.header.offset = self.out.len();
        if followed && block.shrink {
            self.align(block)?;
        }
        let own = block.header.allocated;
        let behind = if ending {
            self.ending()
        } else {
            self.gap(block, followed)
        };
        let more = self.allotted(&behind, ending)?;
        if !block.open {
            // of one that reaches to the end of the file it means nothing, and may be any number
            block.header.allocated = sum(own, more)?;
        }
        let before = block.old.and_then(|n| self.old.blocks.get(n));
        // a header that says the same but for its place is moved with its block, as a run of kept bytes
        let unchanged = before.is_some_and(|before| {
            BlockHeader {
                offset: before.offset,
                ..block.header.clone()
            } == *before
        });
        match before {
            Some(before) if unchanged => self.keep(before.offset, before.data_offset())?,
            Some(before) => {
                self.out
                    .push(Segment::Write(Arc::new(block.header.to_bytes())))?;
                self.keep(sum(before.offset, HEADER_LEN)?, before.data_offset())?;
            }
            None => self
                .out
                .push(Segment::Write(Arc::new(block.header.to_bytes())))?,
        }
        let data = before.map_or(0, BlockHeader::data_offset);
        match (&block.pieces, block.old) {
            (Some(pieces), _) => {
                self.pieces(pieces, data)?;
                self.slack(block, data, own)?;
            }
            (None, Some(n)) => {
                let end = self.old.block_end(n);
                self.keep(data, end.ok_or_else(|| no_such_block(n, "FILE has none"))?)?;
            }
            (None, None) => {}
        }
        behind
            .into_iter()
            .try_for_each(|segment| self.out.push(segment))
    }

    /// Allocates so much that the blocks behind this one move by a multiple of the grain.
    fn align(&self, block: &mut Next) -> Result<()> {
        let (Some(grain), Some(n)) = (self.grain, block.old) else {
            return Ok(());
        };
        let old_end = self.old.block_end(n).unwrap_or(0);
        let end = sum(block.header.data_offset(), block.header.allocated)?;
        // the new end and the old end have to leave the same remainder; what is missing for that is allocated to this block
        let over = |at: u64| at.checked_rem(grain).unwrap_or(0);
        let more = over(sum(over(old_end), grain.saturating_sub(over(end)))?);
        block.header.allocated = sum(block.header.allocated, more)?;
        Ok(())
    }

    /// The stored bytes of a block whose data begin at `data` in the old file.
    fn pieces(&mut self, pieces: &[Piece], data: u64) -> Result<()> {
        for piece in pieces {
            match piece {
                Piece::Old(extent) => {
                    self.keep(sum(data, extent.start)?, sum(data, extent.end)?)?;
                }
                Piece::New(source) => self.out.push(Segment::Stream(Arc::clone(source)))?,
            }
        }
        Ok(())
    }

    /// The allocated space behind the used bytes: as it was, zeros where there was none. Zeros too where a block header would
    /// stand right behind the used bytes, now that they end elsewhere: what is there would put the next scan in doubt.
    fn slack(&mut self, block: &Next, data: u64, allocated: u64) -> Result<()> {
        if block.header.streamed() {
            return Ok(());
        }
        let before = block.old.and_then(|n| self.old.blocks.get(n));
        let used = block.header.used;
        let room = block.old.map_or(0, |n| room(self.old, n)).min(allocated);
        // only then can a stale header in the unused space come to stand where a scan looks for the next one
        let ends_elsewhere = before.is_some_and(|before| before.used != used);
        if used < room {
            let len = room.saturating_sub(used);
            let zeros = if ends_elsewhere {
                len.min(HEADER_LEN)
            } else {
                0
            };
            self.out.push(Segment::Fill(0, zeros))?;
            self.keep(sum(data, sum(used, zeros)?)?, sum(data, room)?)?;
        }
        let fresh = allocated.saturating_sub(used.max(room));
        self.out.push(Segment::Fill(0, fresh))
    }

    fn keep(&mut self, start: u64, end: u64) -> Result<()> {
        self.out.push(Segment::Keep(Extent { start, end }))
    }

    /// Whether any block, or a kept part of one, is not where it was.
    fn moves(&self, blocks: &[Next]) -> bool {
        let moved = blocks.iter().any(|block| {
            let old = block.old.and_then(|n| self.old.blocks.get(n));
            old.is_some_and(|old| old.offset != block.header.offset)
        });
        // what lies behind the blocks may move: it is an index or unused bytes
        let blocks_end = self.old.blocks_end();
        moved
            || self
                .out
                .changes()
                .any(|(_, segment)| matches!(segment, Segment::Keep(old) if old.start < blocks_end))
    }

    /// The block index, which ends the file.
    fn index(&mut self, headers: &[BlockHeader]) -> Result<BlockIndex> {
        let offsets: Vec<u64> = headers.iter().map(|header| header.offset).collect();
        let before = self.old.blocks.iter().map(|block| block.offset);
        let start = self.out.len();
        match &self.old.index {
            BlockIndex::Valid(old)
                if (old.start, old.end) == (start, self.old.len)
                    && before.eq(offsets.iter().copied()) =>
            {
                self.keep(old.start, old.end)?;
            }
            _ => self
                .out
                .push(Segment::Write(Arc::new(index_text(&offsets))))?,
        }
        let end = self.out.len();
        Ok(BlockIndex::Valid(Extent { start, end }))
    }
}

/// Whether block `n` of the next file has the same neighbour behind it as in the old file.
fn followed(blocks: &[Next], n: usize) -> bool {
    let old = |n: usize| blocks.get(n).and_then(|block| block.old);
    let next = n.checked_add(1).and_then(old);
    next.is_some() && next == old(n).and_then(|n| n.checked_add(1))
}

/// Whether a text has a tree: a line that begins with a directive or a document marker, behind the first line.
fn has_tree(text: &[u8]) -> bool {
    text.split(|&byte| byte == b'\n').skip(1).any(|line| {
        let line = line.trim_ascii_start();
        line.starts_with(b"%") || line.starts_with(b"---")
    })
}

/// The least space behind a text that ends at `text_end` in a file of `len` bytes, where the first block is put anew.
pub(super) fn new_padding(text_end: u64, len: u64) -> u64 {
    let share = len.checked_div(FILE_SHARE).unwrap_or(0);
    text_end.max(share).clamp(PADDING_MIN, PADDING_MAX)
}

/// The least multiple of `unit` that is not below `n`.
fn round_up(n: u64, unit: u64) -> Result<u64> {
    n.checked_next_multiple_of(unit).ok_or_else(too_long)
}
