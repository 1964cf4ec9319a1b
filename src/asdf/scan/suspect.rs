//! Whether the numbers of blocks are sure where no block index vouches for them.
//!
//! The standard allows unused space after the tree and between blocks. A block whose header is lost looks like such space. Zeros
//! and text are taken for space. Other bytes that could be a block are not, and neither is a header right behind the used bytes of
//! a block that has more space.

use super::walk::{BlockWalk, LONGEST_HEADER};
use super::{GAP_LIMIT, PADDING_LIMIT};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{BlockIndex, Doubt, Severity};
use crate::asdf::text::CHUNK;
use crate::error::{Error, Place, Result};
use crate::source::{at_most, len_u64, read_up_to};

/// Whether a byte can be one that fills unused space.
pub(super) fn blank(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

/// Whether bytes are anything but text and zeros.
pub(super) fn binary(bytes: &[u8]) -> bool {
    let control = |&byte: &u8| byte.is_ascii_control() && !blank(byte);
    bytes.iter().any(control)
        // a character that the end of the piece cuts in two is no fault
        || std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some())
}

impl BlockWalk<'_> {
    /// Puts the numbers of blocks from `from` on in doubt, and notes the file as damaged.
    pub(super) fn doubt(&mut self, from: usize, error: Error) {
        self.layout.note(Severity::Damaged, error.clone());
        let doubt = || Box::new(Doubt { from, error });
        self.layout.doubt.get_or_insert_with(doubt);
    }

    /// Puts block numbers in doubt if the gap from `end` to the header at `next` may be a block whose header is lost.
    pub(super) fn check_gap(&mut self, end: u64, next: u64) -> Result<()> {
        let last = self.layout.blocks.len().checked_sub(1);
        // between blocks even text is suspect, because writers leave only blanks there
        if self.found_in(end, next, GAP_LIMIT, |bytes| {
            !bytes.iter().all(|&byte| blank(byte))
        })? {
            let why = format!(
                "{} bytes between blocks, which may be a block whose header is lost: the numbers of the blocks behind are in doubt",
                next.saturating_sub(end)
            );
            self.doubt(
                self.layout.blocks.len(),
                Error::corrupt(Place::Byte(end), why),
            );
        } else if let Some(n) = last
            && let Some(at) = self.hidden(n)?
        {
            self.doubt_behind(n, at);
        }
        Ok(())
    }

    /// Looks for blocks that are not found, unless the block index says that there are none.
    pub(super) fn look_for_doubt(&mut self, text_end: u64) -> Result<()> {
        if matches!(self.layout.index, BlockIndex::Valid(_)) || self.guided {
            return Ok(());
        }
        let first = self.layout.blocks.first().map(|block| block.offset);
        if let Some(first) = first.filter(|_| self.layout.dialect.writable)
            && self.found_in(text_end, first, PADDING_LIMIT, binary)?
        {
            let why = format!(
                "{} bytes in front of the first block, which may be a block whose header is lost: the numbers of all blocks are in doubt",
                first.saturating_sub(text_end)
            );
            self.doubt(0, Error::corrupt(Place::Byte(text_end), why));
        }
        for n in 0..self.layout.blocks.len() {
            let Some(at) = self.hidden(n)? else { continue };
            if self.leads_to_end_of(n, at)? {
                // asdf-python 2 leaves old headers in the space of blocks that have become shorter
                if self.blocks_needed() != Some(self.layout.blocks.len()) {
                    self.doubt_behind(n, at);
                }
                break;
            }
        }
        Ok(())
    }

    /// Notes that there is a header at `at`, in the space of block `n`: the blocks behind it may have other numbers.
    fn doubt_behind(&mut self, n: usize, at: u64) {
        let why = format!(
            "a block header in the space of block {n}, behind its used bytes: the numbers of the blocks behind are in doubt"
        );
        self.doubt(n.saturating_add(1), Error::corrupt(Place::Byte(at), why));
    }

    /// The offset of a block header right behind the used bytes of block `n`, in its space.
    fn hidden(&mut self, n: usize) -> Result<Option<u64>> {
        let Some(block) = self.layout.blocks.get(n) else {
            return Ok(None);
        };
        // a streamed block has sizes of 0; with others, its flag may be the damage
        let (used, room) = if block.streamed() {
            (block.allocated, u64::MAX)
        } else {
            (block.used, block.allocated)
        };
        let at = block.data_offset().saturating_add(used);
        let fits = room.saturating_sub(used) >= len_u64(LONGEST_HEADER);
        if !fits || at == block.data_offset() && block.streamed() || at >= self.layout.len {
            return Ok(None);
        }
        Ok(self.plausible(at)?.map(|_| at))
    }

    /// Whether blocks lie one behind the other from `at` to where block `n` ends, so that they can hardly be its data.
    fn leads_to_end_of(&mut self, n: usize, at: u64) -> Result<bool> {
        let block = self.layout.blocks.get(n);
        let end = block.filter(|block| !block.streamed());
        let Some(end) = end.and_then(BlockHeader::end) else {
            // it reaches to the end of the file or further: nothing speaks against a block in it
            return Ok(true);
        };
        if end > self.layout.len {
            return Ok(true);
        }
        let mut at = at;
        while at < end {
            let next = self.plausible(at)?.and_then(|header| header.end());
            // a header that leads nowhere would keep this loop here for ever
            match next.filter(|&next| next > at) {
                Some(next) => at = next,
                None => return Ok(false),
            }
        }
        Ok(at == end)
    }

    /// Whether a block can be in the bytes from `start` to `end`: they have room for a header, and the first chunk that is not blank is
    /// of that `kind`. After `limit` blank bytes the rest is not read, and the answer is yes.
    pub(super) fn found_in(
        &self,
        start: u64,
        end: u64,
        limit: u64,
        kind: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        // too short for a header, so none can be lost here
        if end.saturating_sub(start) < len_u64(LONGEST_HEADER) {
            return Ok(false);
        }
        let mut at = start;
        while at < end {
            if at.saturating_sub(start) >= limit {
                return Ok(true);
            }
            let len = end.saturating_sub(at).min(CHUNK);
            let bytes = read_up_to(self.source, at, at_most(len, usize::MAX))?;
            if !bytes.iter().all(|&byte| blank(byte)) {
                return Ok(kind(&bytes));
            }
            at = at.saturating_add(len);
        }
        Ok(false)
    }
}
