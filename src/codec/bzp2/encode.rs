//! Writing: blocks that are compressed apart, on all cores, and joined bit by bit to one stream.
//!
//! The blocks of a stream know nothing of each other, but they do not end on a byte, and readers such as Python's know one
//! stream only. So each block is made as a stream of its own by the library, and its bits are put behind those of the one before.
//! So are those of the blocks that an edit leaves as they are, whichever program has written them.

use std::io::Write;
use std::ops::Range;

use bzip2::Compression;
use bzip2::write::BzEncoder;

use super::super::jobs::{codec_panicked, cores, on_all_cores};
use super::super::splice::{Edited, write};
use super::bits::END_MARK;
use super::find::{FoundBlock, find};
use super::{HEADER_LEN, MAGIC, block_len, len_u64};
use crate::error::{Error, Place, Result};
use crate::source::{Source, at_most, each_piece};

/// Blocks made at once, at most.
const AT_ONCE: usize = 4;

/// Bytes of a block that the library leaves empty.
const SPARE: usize = 19;

/// The most bytes of a block: runs may make it very long.
const MAX_PIECE: usize = 4 << 20;

/// Bytes read at once.
const READ_LEN: usize = 1 << 20;

/// A run of this length is followed by the number of further ones, up to this length in all.
const SHORT_RUN: usize = 4;
const LONG_RUN: usize = 255;

/// Bits of what ends a stream: its mark, and the checksum.
const END_BITS: u32 = 48 + CHECKSUM_BITS;
const CHECKSUM_BITS: u32 = 32;

/// Where the checksum of a stream's first block is.
const CHECKSUM_AT: usize = 10;

/// A block of fewer decoded bytes is encoded anew if the one before it is, so that edits do not leave ever more small blocks.
const FEW: u64 = 10_000;

/// Stored bytes copied at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Writes a stream of all of `decoded`, in blocks of a level.
pub(super) fn encode(decoded: &dyn Source, level: u8, out: &mut dyn Write) -> Result<()> {
    let mut encoder = Bzip2Encoder::begin(decoded, level, out)?;
    encoder.encode(0..decoded.len())?;
    encoder.end()
}

/// Writes an edited stream: blocks that the edit did not touch as they are stored, bit for bit, if they are found again.
pub(super) fn reencode(edited: &Edited, level: u8, out: &mut dyn Write) -> Result<()> {
    let Some(blocks) = find(edited.stored, edited.stored_len)? else {
        return encode(edited.decoded, level, out);
    };
    let len = edited.decoded.len();
    let mut encoder = Bzip2Encoder::begin(edited.decoded, level, out)?;
    let mut start = 0_u64;
    // The range to be encoded next; it begins where a block does.
    let mut new = 0..0;
    for block in &blocks {
        let decoded = start..start.saturating_add(block.len);
        start = decoded.end;
        let grows = start == edited.stored_len && start < len;
        let joins = !new.is_empty() && block.len < FEW;
        if edited.touches(&decoded) || grows || joins {
            new.end = start.min(len);
            continue;
        }
        encoder.encode(new)?;
        new = start..start;
        encoder.copy(edited.stored.as_ref(), block)?;
    }
    new.end = len;
    encoder.encode(new)?;
    encoder.end()
}

/// A stream under way.
struct Bzip2Encoder<'a> {
    decoded: &'a dyn Source,
    level: u8,
    at_once: usize,
    /// The checksum of the blocks that are written.
    combined: u32,
    bits: Joiner<'a>,
}

impl<'a> Bzip2Encoder<'a> {
    /// Writes the header of the stream.
    fn begin(decoded: &'a dyn Source, level: u8, out: &'a mut dyn Write) -> Result<Self> {
        write(out, &MAGIC)?;
        write(out, &[level.saturating_add(b'0')])?;
        Ok(Self {
            decoded,
            level,
            at_once: cores().min(AT_ONCE),
            combined: 0,
            bits: Joiner::new(out),
        })
    }

    /// Encodes a range of the decoded bytes.
    fn encode(&mut self, range: Range<u64>) -> Result<()> {
        let level = self.level;
        let mut pieces = Pieces {
            decoded: self.decoded,
            at: range.start,
            end: range.end,
            ahead: Vec::new(),
            limit: block_len(level).saturating_sub(SPARE),
        };
        loop {
            let mut batch = Vec::new();
            while batch.len() < self.at_once
                && let Some(piece) = pieces.next()?
            {
                batch.push(piece);
            }
            if batch.is_empty() {
                return Ok(());
            }
            let pack = |piece: &Vec<u8>| compress(piece, level);
            for stream in on_all_cores(&batch, pack, codec_panicked) {
                self.take_block(&stream?)?;
            }
        }
    }

    /// Writes the block of a stream that has only one.
    fn take_block(&mut self, stream: &[u8]) -> Result<()> {
        let found = only_block(stream).ok_or_else(|| {
            Error::corrupt(Place::File, "bzip2: not one block, but one was expected")
        });
        let (block, bits, checksum) = found?;
        self.count(checksum);
        self.bits.add(block, bits)
    }

    /// Copies a block as it is stored.
    fn copy(&mut self, stored: &dyn Source, block: &FoundBlock) -> Result<()> {
        let mut left = block.bit_len();
        let mut before = u32::try_from(block.bits.start & 7).unwrap_or(0);
        each_piece(stored, block.bytes(), COPIED_AT_ONCE, |mut bytes| {
            if before > 0
                && let Some((first, rest)) = bytes.split_first()
            {
                let bits = left.min(u8::BITS.saturating_sub(before).into());
                self.bits.add(&[first.wrapping_shl(before)], bits)?;
                left = left.saturating_sub(bits);
                (before, bytes) = (0, rest);
            }
            let bits = left.min(len_u64(bytes.len()).saturating_mul(8));
            self.bits.add(bytes, bits)?;
            left = left.saturating_sub(bits);
            Ok(())
        })?;
        self.count(block.crc);
        Ok(())
    }

    /// Takes account of a block.
    fn count(&mut self, checksum: u32) {
        self.combined = self.combined.rotate_left(1) ^ checksum;
    }

    /// Ends the stream: its end mark and the checksum of all blocks.
    fn end(mut self) -> Result<()> {
        let bytes = end_of(self.combined).checked_shl(u128::BITS.saturating_sub(END_BITS));
        self.bits
            .add(&bytes.unwrap_or(0).to_be_bytes(), END_BITS.into())?;
        self.bits.end()
    }
}

/// Bytes cut into blocks.
struct Pieces<'a> {
    decoded: &'a dyn Source,
    at: u64,
    end: u64,
    /// What was read, but did not fit into the block before.
    ahead: Vec<u8>,
    /// The most bytes of a block behind the run-length stage.
    limit: usize,
}

impl Pieces<'_> {
    /// The bytes of the next block: as many as fill it behind the run-length stage. None at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut piece = std::mem::take(&mut self.ahead);
        let mut runs = Runs::default();
        let mut fits = 0;
        loop {
            let new = piece.get(fits..).unwrap_or_default();
            fits = fits.saturating_add(runs.take(new, self.limit));
            let left = self.end.saturating_sub(self.at);
            if fits < piece.len() || piece.len() >= MAX_PIECE || left == 0 {
                break;
            }
            let len = at_most(left, READ_LEN);
            let from = piece.len();
            piece.resize(from.saturating_add(len), 0);
            let buf = piece.get_mut(from..).unwrap_or_default();
            self.decoded.read_exact_at(buf, self.at)?;
            self.at = self.at.saturating_add(len_u64(len));
        }
        self.ahead = piece.split_off(fits);
        Ok((!piece.is_empty()).then_some(piece))
    }
}

/// How many bytes the run-length stage makes of those that it has been given.
#[derive(Default)]
struct Runs {
    len: usize,
    last: Option<u8>,
    /// How long the last run is.
    run: usize,
}

impl Runs {
    /// Takes as many bytes as fit into `limit` bytes of its output, and gives their number.
    fn take(&mut self, bytes: &[u8], limit: usize) -> usize {
        for (taken, &byte) in bytes.iter().enumerate() {
            let goes_on = self.last == Some(byte) && self.run < LONG_RUN;
            let run = if goes_on {
                self.run.saturating_add(1)
            } else {
                1
            };
            let more = match run {
                ..SHORT_RUN => 1,
                // with the number of further ones
                SHORT_RUN => 2,
                _ => 0,
            };
            let len = self.len.saturating_add(more);
            if len > limit {
                return taken;
            }
            (self.len, self.last, self.run) = (len, Some(byte), run);
        }
        bytes.len()
    }
}

/// Has the library make a stream of the bytes of one block.
fn compress(plain: &[u8], level: u8) -> Result<Vec<u8>> {
    let failed = |cause| Error::io("compressing a bzip2 block", cause);
    let mut encoder = BzEncoder::new(Vec::new(), Compression::new(level.into()));
    encoder.write_all(plain).map_err(failed)?;
    encoder.finish().map_err(failed)
}

/// The only block of a stream: the bytes that its bits begin in, the number of bits, and its checksum.
fn only_block(stream: &[u8]) -> Option<(&[u8], u64, u32)> {
    let checksum = u32::from_be_bytes(*stream.get(CHECKSUM_AT..)?.first_chunk()?);
    let tail = u128::from_be_bytes(*stream.last_chunk()?);
    // Of one block, the checksum of all is its own.
    let end = end_of(checksum);
    let spare = (0..u8::BITS).find(|&spare| {
        let above = u128::BITS.saturating_sub(END_BITS).saturating_sub(spare);
        tail.checked_shl(above).unwrap_or(0) >> above == end << spare
    })?;
    let block = stream.get(usize::try_from(HEADER_LEN).ok()?..)?;
    let behind = u64::from(END_BITS.checked_add(spare)?);
    let bits = len_u64(block.len()).checked_mul(8)?.checked_sub(behind)?;
    Some((block, bits, checksum))
}

/// What ends a stream with this checksum of all its blocks.
fn end_of(checksum: u32) -> u128 {
    u128::from(END_MARK) << CHECKSUM_BITS | u128::from(checksum)
}

/// Bits, written one behind the other.
struct Joiner<'a> {
    out: &'a mut dyn Write,
    /// The bits of the byte that is not full yet, in its upper end.
    open: u8,
    /// Their number, below 8.
    count: u32,
    buf: Vec<u8>,
}

impl<'a> Joiner<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            open: 0,
            count: 0,
            buf: Vec::new(),
        }
    }

    /// Puts the first `bits` bits of `bytes` behind the others.
    fn add(&mut self, bytes: &[u8], bits: u64) -> Result<()> {
        let whole = usize::try_from(bits >> 3).unwrap_or(usize::MAX);
        let (whole, rest) = bytes.split_at_checked(whole).unwrap_or((bytes, &[]));
        self.buf.clear();
        self.buf.reserve(whole.len());
        for &byte in whole {
            let both = u16::from_be_bytes([byte, 0]) >> self.count;
            let [full, open] = both.to_be_bytes();
            self.buf.push(self.open | full);
            self.open = open;
        }
        let more = u32::try_from(bits & 7).unwrap_or(0);
        if let Some(&byte) = rest.first().filter(|_| more > 0) {
            let kept = byte & !u8::MAX.checked_shr(more).unwrap_or(0);
            let both = u16::from_be_bytes([kept, 0]) >> self.count;
            let [full, open] = both.to_be_bytes();
            self.open |= full;
            self.count = self.count.saturating_add(more);
            if self.count >= u8::BITS {
                self.buf.push(self.open);
                self.open = open;
                self.count = self.count.saturating_sub(u8::BITS);
            }
        }
        write(self.out, &self.buf)
    }

    /// Writes the last byte, filled up with zeros.
    fn end(self) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        write(self.out, &[self.open])
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{
        EditCase, edits, encoded, image, numbers, python_agrees, python_encodes, read_all,
    };
    use super::super::{Bzp2, FRAMING};
    use super::*;
    use crate::source::Memory;
    use proptest::prelude::*;
    use std::io::Read;
    use std::sync::Arc;

    /// What the crate makes of one stream, and whether that was all.
    fn oracle(stored: &[u8]) -> (Vec<u8>, bool) {
        let mut decoder = bzip2::bufread::BzDecoder::new(stored);
        let mut out = Vec::new();
        decoder.read_to_end(&mut out).unwrap();
        (out, decoder.into_inner().is_empty())
    }

    fn at_level(plain: &[u8], level: u8) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&Memory::new(plain.to_vec()), level, &mut out).unwrap();
        out
    }

    #[test]
    fn many_blocks_are_one_stream_for_python_too() {
        let mut below = numbers(1);
        let block = block_len(9) - SPARE;
        let noise: Vec<u8> = (0..3 * block + 5).map(|_| below(256) as u8).collect();
        let mut cases = Vec::new();
        for len in [0, 1, block - 1, block, block + 1, 3 * block + 5] {
            let plain = noise[..len].to_vec();
            let stored = encoded(&Bzp2, &plain);
            assert!(oracle(&stored) == (plain.clone(), true), "{len}");
            cases.push((stored, plain));
        }
        assert!(python_agrees("bzp2", &cases));
    }

    #[test]
    fn runs_neither_overflow_a_block_nor_fill_memory() {
        // Runs of four take five bytes each: the worst that the run-length stage does.
        let worst: Vec<u8> = (0..400_000_u32).map(|n| (n / 4 % 251) as u8).collect();
        let zeros = vec![0; 2 * MAX_PIECE + 5];
        for plain in [worst, zeros] {
            assert!(oracle(&at_level(&plain, 1)) == (plain, true));
        }
    }

    #[test]
    fn an_edited_block_keeps_its_level() {
        let before = image(150_000);
        let case = EditCase {
            framing: FRAMING,
            stored: at_level(&before, 1),
            writes: vec![(120_000, vec![7; 10])],
            len: before.len(),
            before,
        };
        let edited = case.run(&Bzp2);
        assert_eq!(edited.stored[..4], *b"BZh1");
        assert!(oracle(&edited.stored) == (edited.decoded, true));
    }

    fn blocks(stored: &[u8], len: usize) -> Option<Vec<FoundBlock>> {
        let stored: Arc<dyn Source> = Arc::new(Memory::new(stored.to_vec()));
        find(&stored, len as u64).unwrap()
    }

    /// The decoded ranges of the blocks of a stream, each with its checksum.
    fn ranges(stored: &[u8], len: usize) -> Vec<(Range<u64>, u32)> {
        let mut end = 0;
        let range = |block: FoundBlock| {
            let start = end;
            end += block.len;
            (start..end, block.crc)
        };
        blocks(stored, len)
            .unwrap()
            .into_iter()
            .map(range)
            .collect()
    }

    fn case(stored: Vec<u8>, before: Vec<u8>, writes: Vec<(usize, Vec<u8>)>) -> EditCase {
        EditCase {
            framing: FRAMING,
            stored,
            writes,
            len: before.len(),
            before,
        }
    }

    #[test]
    fn ten_bytes_cost_one_block_and_python_reads_it() {
        let before = image(750_000);
        // as Python writes it, if there is one: not our blocks
        let theirs = python_encodes("bzp2", &before);
        let mut cases = Vec::new();
        for stored in theirs.into_iter().chain([at_level(&before, 1)]) {
            let old = ranges(&stored, before.len());
            let edited = case(stored, before.clone(), vec![(350_000, vec![9; 10])]).run(&Bzp2);
            let hit = old
                .iter()
                .find(|(range, _)| range.contains(&350_000))
                .unwrap();
            assert_eq!(edited.encoded, hit.0.end - hit.0.start);
            let new = ranges(&edited.stored, before.len());
            for block in old.iter().filter(|block| *block != hit) {
                assert!(new.contains(block), "{block:?}");
            }
            cases.push((edited.stored, edited.decoded));
        }
        assert!(python_agrees("bzp2", &cases));
    }

    #[test]
    fn what_is_appended_fills_up_the_last_block() {
        let before = image(250_000);
        let stored = at_level(&before, 1);
        let old = ranges(&stored, before.len());
        let mut case = case(stored, before, vec![(250_000, vec![9; 10])]);
        case.len += 10;
        let edited = case.run(&Bzp2);
        let new = ranges(&edited.stored, case.len);
        assert_eq!(new.len(), old.len());
        assert_eq!(new[..old.len() - 1], old[..old.len() - 1]);
    }

    #[test]
    fn many_edits_leave_no_more_blocks_than_few() {
        let mut before = image(300_000);
        let mut stored = at_level(&before, 1);
        let count = ranges(&stored, before.len()).len();
        let mut below = numbers(5);
        for _ in 0..40 {
            // runs of four become longer behind the run-length stage, so a full block becomes two
            let at = below(299_000) as usize;
            let edited = case(stored, before, vec![(at, vec![7; 4])]).run(&Bzp2);
            (stored, before) = (edited.stored, edited.decoded);
        }
        let now = ranges(&stored, before.len());
        assert!(now.len() <= 2 * count, "{} of {count}", now.len());
    }

    #[test]
    fn what_is_not_one_good_stream_is_encoded_whole() {
        let before = image(250_000);
        let (first, second) = before.split_at(120_000);
        let good = at_level(&before, 1);
        let two = [at_level(first, 1), at_level(second, 1)].concat();
        let more = [&good[..], b"more"].concat();
        let mut damaged = good.clone();
        let last = damaged.len() - 2;
        damaged[last] ^= 1;
        for stored in [&two, &more, &damaged] {
            assert_eq!(blocks(stored, before.len()), None);
        }
        assert_eq!(blocks(&good, before.len() - 1), None);
        assert!(blocks(&good, before.len()).is_some());
        let edited = case(two, before.clone(), vec![(5, vec![1])]).run(&Bzp2);
        assert_eq!(edited.encoded, before.len() as u64);
        assert!(oracle(&edited.stored) == (edited.decoded, true));
    }

    #[test]
    fn pieces_together_are_the_bytes() {
        let plain = image(700_001);
        let source = Memory::new(plain.clone());
        let mut pieces = Pieces {
            decoded: &source,
            at: 0,
            end: source.len(),
            ahead: Vec::new(),
            limit: 90_000,
        };
        let mut found = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            // A run of four takes five bytes, so a block may have a fifth less.
            let full = piece.len() >= 72_000 && piece.len() <= 110_000;
            assert!(full || found.len() + piece.len() == plain.len());
            found.extend(piece);
        }
        assert!(found == read_all(&source).unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn edits_keep_the_blocks_they_do_not_touch((writes, len) in edits(350_000)) {
            let before = image(350_000);
            let stored = at_level(&before, 1);
            let mut case = case(stored, before, writes);
            case.len = len;
            let edited = case.run(&Bzp2);
            prop_assert!(oracle(&edited.stored) == (edited.decoded, true));
            let new = ranges(&edited.stored, len);
            let mut kept = 0;
            for (range, crc) in ranges(&case.stored, case.before.len()) {
                let touched = edited.touched.iter().any(|t| t.start < range.end && range.start < t.end);
                let ends = range.end == case.before.len() as u64 && len as u64 > range.end;
                let small = range.end - range.start < FEW;
                if !touched && !ends && !small && range.end <= len as u64 {
                    kept += range.end - range.start;
                    prop_assert!(new.contains(&(range, crc)));
                }
            }
            prop_assert!(edited.encoded + kept <= len as u64);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_crate_reads_what_is_written(
            runs in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 1..30), 1usize..2000), 0..60),
            level in 1u8..=9,
        ) {
            let plain: Vec<u8> = runs
                .iter()
                .flat_map(|(bytes, times)| bytes.repeat(*times))
                .collect();
            prop_assert!(oracle(&at_level(&plain, level)) == (plain, true));
        }
    }
}
