//! Writing: blocks that are compressed apart, on all cores, and joined bit by bit to one stream.
//!
//! The blocks of a stream know nothing of each other, but they do not end on a byte, and readers such as Python's know one
//! stream only. So each block is made as a stream of its own by the library, and its bits are put behind those of the one before.

use std::io::Write;
use std::thread;

use bzip2::Compression;
use bzip2::write::BzEncoder;

use super::super::splice::write;
use super::super::work::on_all_cores;
use super::{HEADER_LEN, MAGIC, len_u64};
use crate::error::{Error, Place, Result};
use crate::source::Source;

/// Blocks made at once, at most.
const AT_ONCE: usize = 4;

/// Bytes of a block for each level, as they come from the run-length stage.
const LEVEL_LEN: usize = 100_000;

/// What the library leaves empty of a block, and a lot.
const SPARE: usize = 100;

/// The most bytes of a block: runs may make it very long.
const MAX_PIECE: usize = 4 << 20;

/// Bytes read at once.
const READ_LEN: usize = 1 << 20;

/// A run of this length is followed by the number of further ones, up to this length in all.
const SHORT_RUN: usize = 4;
const LONG_RUN: usize = 255;

/// What ends a stream, before its checksum.
const END: u128 = 0x1772_4538_5090;
const END_BITS: u32 = 48;
const CHECKSUM_BITS: u32 = 32;

/// Where the checksum of a stream's first block is.
const CHECKSUM_AT: usize = 10;

/// Writes a stream of all of `decoded`, in blocks of a level.
pub(super) fn encode(decoded: &dyn Source, level: u8, out: &mut dyn Write) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut pieces = Pieces {
        decoded,
        at: 0,
        ahead: Vec::new(),
        limit: usize::from(level)
            .saturating_mul(LEVEL_LEN)
            .saturating_sub(SPARE),
    };
    write(out, &MAGIC)?;
    write(out, &[level.saturating_add(b'0')])?;
    let mut bits = Joiner::new(out);
    let mut combined = 0_u32;
    loop {
        let mut batch = Vec::new();
        while batch.len() < cores.min(AT_ONCE)
            && let Some(piece) = pieces.next()?
        {
            batch.push(piece);
        }
        if batch.is_empty() {
            break;
        }
        for block in on_all_cores(&batch, |piece| Block::new(piece, level)) {
            let block = block?;
            combined = combined.rotate_left(1) ^ block.checksum;
            bits.add(&block.bytes, block.bits)?;
        }
    }
    let end = (END << CHECKSUM_BITS) | u128::from(combined);
    let end_bits = END_BITS.saturating_add(CHECKSUM_BITS);
    let bytes = end.checked_shl(u128::BITS.saturating_sub(end_bits));
    bits.add(&bytes.unwrap_or(0).to_be_bytes(), end_bits.into())?;
    bits.end()
}

/// Bytes cut into blocks.
struct Pieces<'a> {
    decoded: &'a dyn Source,
    at: u64,
    /// What was read, but did not fit into the block before.
    ahead: Vec<u8>,
    /// The most bytes of a block behind the run-length stage.
    limit: usize,
}

impl Pieces<'_> {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut piece = std::mem::take(&mut self.ahead);
        let mut runs = Runs::default();
        let mut fits = 0;
        loop {
            let new = piece.get(fits..).unwrap_or_default();
            fits = fits.saturating_add(runs.take(new, self.limit));
            let left = self.decoded.len().saturating_sub(self.at);
            if fits < piece.len() || piece.len() >= MAX_PIECE || left == 0 {
                break;
            }
            let len = usize::try_from(left).map_or(READ_LEN, |left| left.min(READ_LEN));
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

/// What the run-length stage makes of some bytes, as far as its length goes.
#[derive(Default)]
struct Runs {
    len: usize,
    last: Option<u8>,
    /// How long the last run is.
    run: usize,
}

impl Runs {
    /// Goes on by as many bytes as fit, and gives their number.
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

/// A compressed block, without anything around it.
struct Block {
    /// Its bits, from the first on.
    bytes: Vec<u8>,
    bits: u64,
    checksum: u32,
}

impl Block {
    fn new(plain: &[u8], level: u8) -> Result<Self> {
        let failed = |cause| Error::io("compressing a bzip2 block", cause);
        let mut encoder = BzEncoder::new(Vec::new(), Compression::new(level.into()));
        encoder.write_all(plain).map_err(failed)?;
        let stream = encoder.finish().map_err(failed)?;
        Self::of_stream(stream).ok_or_else(|| {
            Error::corrupt(Place::File, "bzip2: not one block, but one was expected")
        })
    }

    /// The only block of a stream.
    fn of_stream(mut stream: Vec<u8>) -> Option<Self> {
        let checksum = u32::from_be_bytes(*stream.get(CHECKSUM_AT..)?.first_chunk()?);
        let tail = u128::from_be_bytes(*stream.last_chunk()?);
        // Of one block, the checksum of all is its own.
        let end = (END << CHECKSUM_BITS) | u128::from(checksum);
        let end_bits = END_BITS.saturating_add(CHECKSUM_BITS);
        let spare = (0..u8::BITS).find(|&spare| {
            let above = u128::BITS.saturating_sub(end_bits).saturating_sub(spare);
            tail.checked_shl(above).unwrap_or(0) >> above == end << spare
        })?;
        let before = HEADER_LEN.checked_mul(8)?;
        let behind = u64::from(end_bits.checked_add(spare)?);
        let bits = len_u64(stream.len())
            .checked_mul(8)?
            .checked_sub(before)?
            .checked_sub(behind)?;
        stream.drain(..usize::try_from(HEADER_LEN).ok()?);
        Some(Self {
            bytes: stream,
            bits,
            checksum,
        })
    }
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
        EditCase, encoded, image, numbers, python_agrees, read_all,
    };
    use super::super::{Bzp2, FRAMING};
    use super::*;
    use crate::source::Memory;
    use proptest::prelude::*;
    use std::io::Read;

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
        let block = 9 * LEVEL_LEN - SPARE;
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

    #[test]
    fn pieces_together_are_the_bytes() {
        let plain = image(700_001);
        let source = Memory::new(plain.clone());
        let mut pieces = Pieces {
            decoded: &source,
            at: 0,
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
