//! Several blocks of a bzip2 stream decoded at once: found by their marks, spread over the cores, and put in a row again.

use std::ops::Range;

use super::bits::{BitFault, Mark, find_mark};
use super::block::{Pointers, follow};
use super::runs::{measure, split_span};
use super::{block_len, damaged};
use crate::codec::cores::{cores, on_all_cores};
use crate::error::{Result, corrupt};
use crate::source::{PooledBuf, Source, at_most, len_u64};

/// Blocks that one batch decodes at once, at most; each takes 3.6 MB of memory meanwhile.
pub(super) const MOST_AT_ONCE: usize = 8;

/// Stored bytes read at once in search of marks: few at first, as there may be thousands of tiny blocks.
const FIRST_PIECE_LEN: usize = 4 << 10;
const PIECE_LEN: usize = 256 << 10;

/// More than a block can be stored in: 900,000 codes of 20 bits, and what is before them.
const MAX_STORED: usize = 2_400_000;

/// What a block of image data is stored in; it may be more.
const USUAL_STORED: usize = 500_000;

/// What a block is stored in as a rule, at most, in percent of its bytes.
const STORED_PERCENT: usize = 110;

/// A place to begin at: the mark of a block, or of the end of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Decoded bytes before it.
    pub(super) decoded: u64,
    /// Stored bits before it.
    pub(super) bit: u64,
    /// The level of its stream.
    pub(super) level: u8,
    /// Checksum of the blocks of its stream before it.
    pub(super) combined: u32,
}

impl EntryPoint {
    /// The place behind a block that begins here.
    pub(super) fn behind(self, block: &Ready) -> Self {
        Self {
            decoded: self.decoded.saturating_add(block.len()),
            bit: block.end,
            level: self.level,
            combined: self.combined.rotate_left(1) ^ block.crc,
        }
    }
}

/// A block decoded but for its run-length stage.
pub(super) struct Ready {
    bytes: PooledBuf<u8>,
    /// Bytes taken.
    taken: usize,
    /// The span that is being read: its bytes to come, and how often the last of them comes again.
    literal: Range<usize>,
    repeat: u8,
    /// Decoded bytes to come.
    len: u64,
    /// Checksum of all of them.
    pub(super) crc: u32,
    /// Bit position of what follows.
    pub(super) end: u64,
}

impl Ready {
    /// Decoded bytes to come.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Memory held.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.bytes.capacity())
    }

    /// Fills a part of `buf`; gives how much.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> usize {
        let mut filled = 0_usize;
        while let Some(rest) = buf.get_mut(filled..)
            && !rest.is_empty()
        {
            let run = if self.literal.is_empty() {
                self.repeat_last(rest)
            } else {
                self.copy(rest)
            };
            filled = filled.saturating_add(run);
            if run == 0 && !self.next_span() {
                break;
            }
        }
        self.len = self.len.saturating_sub(len_u64(filled));
        filled
    }

    /// Copies bytes of the span that is being read, as they are; gives how many.
    fn copy(&mut self, rest: &mut [u8]) -> usize {
        let len = self.literal.len().min(rest.len());
        let end = self.literal.start.saturating_add(len);
        let found = self.bytes.get(self.literal.start..end).unwrap_or_default();
        if let Some(target) = rest.get_mut(..found.len()) {
            target.copy_from_slice(found);
        }
        self.literal.start = end;
        len
    }

    /// Fills with the repeats of the span's last byte that are still to come; gives how many. 0 means that the span is at its end.
    fn repeat_last(&mut self, rest: &mut [u8]) -> usize {
        let last = self.literal.end.checked_sub(1);
        let byte = last.and_then(|last| self.bytes.get(last)).copied();
        let len = usize::from(self.repeat).min(rest.len());
        if let (Some(byte), Some(target)) = (byte, rest.get_mut(..len)) {
            target.fill(byte);
        }
        self.repeat = self
            .repeat
            .saturating_sub(u8::try_from(len).unwrap_or(u8::MAX));
        len
    }

    /// Goes on to the next span; false if there is none.
    fn next_span(&mut self) -> bool {
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        if rest.is_empty() {
            return false;
        }
        let (literal, repeat, behind) = split_span(rest);
        self.literal = self.taken..self.taken.saturating_add(literal.len());
        self.repeat = repeat;
        self.taken = self.bytes.len().saturating_sub(behind.len());
        true
    }
}

/// Stored bytes with the marks in them.
struct Marked {
    bytes: PooledBuf<u8>,
    /// Stored byte of the first.
    start: u64,
    /// Bit positions in `bytes` of the blocks.
    blocks: Vec<u64>,
    /// Whether `bytes` reach to the end of the payload.
    to_the_end: bool,
}

impl Marked {
    /// Reads from the block at bit `first` on, until it has `count` blocks and the mark behind them, or `limit` bytes.
    fn read(stored: &dyn Source, first: u64, count: usize, limit: usize) -> Result<Self> {
        let start = first.checked_shr(3).unwrap_or(0);
        let mut marked = Self {
            bytes: PooledBuf::with_room(USUAL_STORED.saturating_mul(count.min(MOST_AT_ONCE))),
            start,
            blocks: vec![first & 7],
            to_the_end: false,
        };
        let mut from = (first & 7).saturating_add(1);
        loop {
            while let Some((bit, mark)) = find_mark(&marked.bytes, from) {
                if mark == Mark::End || marked.blocks.len() >= count {
                    return Ok(marked);
                }
                marked.blocks.push(bit);
                from = bit.saturating_add(1);
            }
            let len = marked.bytes.len();
            // A mark may reach over the end of what was searched.
            let searched = u64::try_from(len.saturating_sub(6))
                .unwrap_or(0)
                .saturating_mul(8);
            from = from.max(searched);
            let at = start.saturating_add(len_u64(len));
            let left = stored.len().saturating_sub(at);
            if left == 0 {
                marked.to_the_end = true;
                return Ok(marked);
            }
            if len >= limit {
                // Where the last one ends is not known; the next time it is the first.
                if marked.blocks.len() > 1 {
                    marked.blocks.pop();
                }
                return Ok(marked);
            }
            let piece = len.clamp(FIRST_PIECE_LEN, PIECE_LEN);
            let more = at_most(left, piece);
            marked.bytes.resize(len.saturating_add(more), 0);
            let target = marked.bytes.get_mut(len..).unwrap_or_default();
            stored.read_exact_at(target, at)?;
        }
    }

    /// Reads the block at bit `first` whole, whatever marks seem to be in it.
    fn alone(stored: &dyn Source, first: u64) -> Result<Self> {
        let start = first.checked_shr(3).unwrap_or(0);
        let left = stored.len().saturating_sub(start);
        let mut bytes = PooledBuf::of(at_most(left, MAX_STORED));
        stored.read_exact_at(&mut bytes, start)?;
        Ok(Self {
            to_the_end: len_u64(bytes.len()) == left,
            bytes,
            start,
            blocks: vec![first & 7],
        })
    }
}

/// Decodes the block that begins at an entry of `stored` and, at the same time, blocks behind it: up to `count` in all.
pub(super) fn decode_batch(
    stored: &dyn Source,
    entry: EntryPoint,
    count: usize,
) -> Result<Vec<Ready>> {
    let max_len = block_len(entry.level);
    let per_block = max_len
        .saturating_mul(STORED_PERCENT)
        .checked_div(100)
        .unwrap_or(0);
    let limit = per_block
        .saturating_mul(count.saturating_add(1))
        .min(MAX_STORED.saturating_mul(count));
    let marked = Marked::read(stored, entry.bit, count, limit)?;
    let to_the_end = marked.to_the_end;
    let mut found = decode_marked(&marked, max_len);
    if matches!(found, Err(BitFault::Short)) && !to_the_end {
        // A mark by chance, or very long codes.
        let alone = Marked::alone(stored, entry.bit)?;
        found = decode_marked(&alone, max_len);
    }
    let blocks = found.map_err(|fault| damaged(entry.bit, fault))?;
    if blocks.is_empty() {
        return Err(corrupt("no bzip2 block decoded"));
    }
    Ok(blocks)
}

/// Decodes the blocks that were found, and gives the first and those that follow it without a gap or damage.
fn decode_marked(marked: &Marked, max_len: usize) -> Result<Vec<Ready>, BitFault> {
    let mut ready: Vec<Ready> = Vec::new();
    let mut expected = marked.blocks.first().copied();
    let mut first_fault = None;
    for (bit, outcome) in marked.blocks.iter().zip(decode_blocks(marked, max_len)) {
        if expected != Some(*bit) {
            continue;
        }
        match outcome {
            Ok(block) => {
                expected = Some(block.end);
                ready.push(block);
            }
            Err(fault) => {
                first_fault = Some(fault);
                expected = None;
            }
        }
    }
    match first_fault {
        Some(fault) if ready.is_empty() => return Err(fault),
        _ => {}
    }
    let before = marked.start.saturating_mul(8);
    for block in &mut ready {
        block.end = block.end.saturating_add(before);
    }
    Ok(ready)
}

/// Decodes each of the blocks, an equal part of them on each core.
fn decode_blocks(marked: &Marked, max_len: usize) -> Vec<Result<Ready, BitFault>> {
    let count = marked.blocks.len();
    let per_thread = count.div_ceil(cores().min(count).max(1)).max(1);
    let parts: Vec<&[u64]> = marked.blocks.chunks(per_thread).collect();
    let panicked = |part: &&[u64]| {
        let panicked = |_| Err(BitFault::Bad("the decoder panicked"));
        part.iter().map(panicked).collect()
    };
    let decode = |part: &&[u64]| decode_part(&marked.bytes, part, max_len);
    on_all_cores(&parts, decode, panicked)
        .into_iter()
        .flatten()
        .collect()
}

/// Decodes some blocks on this thread.
fn decode_part(bytes: &[u8], starts: &[u64], max_len: usize) -> Vec<Result<Ready, BitFault>> {
    let mut faults = Vec::new();
    let mut good = Vec::new();
    for &start in starts {
        let block = Pointers::decode(bytes, start, max_len);
        faults.push(block.map(|block| good.push(block)));
    }
    let mut columns = good.iter().zip(follow(&good));
    faults
        .into_iter()
        .map(|fault| {
            fault.and_then(|()| {
                let (block, bytes) = columns.next().ok_or(BitFault::Bad("it was not decoded"))?;
                ready(block, bytes)
            })
        })
        .collect()
}

/// Measures the bytes before the run-length stage, and compares the checksum that the block has for those behind it.
fn ready(block: &Pointers, bytes: PooledBuf<u8>) -> Result<Ready, BitFault> {
    let (len, crc) = measure(&bytes);
    // the checksum is of the bytes behind the run-length stage, which nobody has written out yet
    if crc != block.crc {
        return Err(BitFault::Bad("its checksum is wrong"));
    }
    Ok(Ready {
        bytes,
        taken: 0,
        literal: 0..0,
        repeat: 0,
        len,
        crc,
        end: block.end,
    })
}
