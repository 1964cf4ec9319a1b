//! The encoding `quantize`: floating-point numbers as integers of few bits, with a scale and an offset for each chunk of them.
//!
//! A chunk begins with, big-endian:
//!
//! | offset | field |
//! |---|---|
//! | 0 | bits of each integer, u8 |
//! | 1 | offset, f64 |
//! | 9 | scale, f64 |
//! | 17 | number of integers, u64 |
//!
//! and the integers, in two's complement, follow without gaps, zero-padded to a whole byte. All headers are read into a table
//! first, so that any number can be decoded without the ones before it.

use std::sync::Arc;

use super::tile::product;
use super::{Encoding, argument, expect_len, number, numbers};
use crate::asdf::numbers::single;
use crate::asdf::tree::Node;
use crate::error::{Error, Result, corrupt, unsupported};
use crate::source::{Source, checked_end, len_u64};

/// Bytes of a chunk's header.
const HEADER_LEN: usize = 25;
/// The most chunks of a block; the table of them is 48 MiB then.
const CHUNK_LIMIT: usize = 1 << 20;
/// Integers that are unpacked at once; a multiple of 8, so that each portion begins at a whole byte.
const PORTION: u64 = 4096;

/// Bytes of a number of single and of double precision.
const SINGLE: u64 = 4;
const DOUBLE: u64 = 8;

/// Reads the arguments of `quantize` from the chain.
pub(super) fn read(arguments: Option<Node<'_>>) -> Result<Encoding> {
    let of = "quantize";
    let width = match number(of, argument(of, arguments, "dtype")?)? {
        32 => SINGLE,
        64 => DOUBLE,
        other => return Err(corrupt(format!("quantize: dtype {other}, not 32 or 64"))),
    };
    let shape = numbers(of, argument(of, arguments, "original_shape")?)?;
    let len = product(width, shape)?;
    Ok(Encoding::Quantize { width, len })
}

/// One chunk.
#[derive(Debug, Clone, Copy)]
struct QuantizedChunk {
    /// Numbers before it.
    first: u64,
    /// Offset of the packed integers.
    at: u64,
    /// Bits of each, at most 64.
    bits: u8,
    offset: f64,
    scale: f64,
    /// How many there are.
    count: u64,
}

/// The numbers that packed integers stand for, big-endian.
pub(super) struct Quantized {
    packed: Arc<dyn Source>,
    /// Bytes of each: [`SINGLE`] or [`DOUBLE`].
    width: u64,
    len: u64,
    chunks: Vec<QuantizedChunk>,
}

impl Quantized {
    /// The numbers of `packed`, `len` bytes of them. Reads all headers.
    pub(super) fn new(packed: Arc<dyn Source>, width: u64, len: u64) -> Result<Self> {
        let wanted = len.checked_div(width).unwrap_or(0);
        let chunks = read_chunks(&*packed, wanted)?;
        let found = chunks
            .last()
            .map_or(0, |last| last.first.saturating_add(last.count));
        expect_len("quantize", found.saturating_mul(width), Some(len))?;
        Ok(Self {
            packed,
            width,
            len,
            chunks,
        })
    }

    /// Index of the chunk that a number is in.
    fn find(&self, number: u64) -> usize {
        let behind = self.chunks.partition_point(|chunk| chunk.first <= number);
        behind.saturating_sub(1)
    }

    /// Appends the bytes of `count` numbers of `chunk`, from number `from` on. `from` must be a multiple of 8: only there do
    /// integers begin at a whole byte.
    fn unpack(
        &self,
        chunk: &QuantizedChunk,
        from: u64,
        count: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let too_long = || corrupt("quantize: a chunk of 2^64 bits or more");
        let before = packed_len(from, chunk.bits).ok_or_else(too_long)?;
        let len = packed_len(count, chunk.bits).ok_or_else(too_long)?;
        let len = usize::try_from(len).map_err(|_| too_long())?;
        // callers ask for at most PORTION integers of 64 bits: 32 KiB
        let mut packed = vec![0; len];
        self.packed
            .read_exact_at(&mut packed, chunk.at.saturating_add(before))?;
        let mut bits = Bits::new(&packed);
        for _ in 0..count {
            let value = chunk.number(bits.next(chunk.bits));
            match self.width {
                SINGLE => out.extend_from_slice(&single(value).to_be_bytes()),
                _ => out.extend_from_slice(&value.to_be_bytes()),
            }
        }
        Ok(())
    }
}

impl Source for Quantized {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let width = self.width;
        let mut rest = buf;
        let mut at = offset;
        let mut numbers = Vec::new();
        while !rest.is_empty() {
            let number = at.checked_div(width).unwrap_or(0);
            let chunk = self
                .chunks
                .get(self.find(number))
                .ok_or_else(|| corrupt("quantize: beyond the last chunk"))?;
            let inside = number.saturating_sub(chunk.first);
            // begins at the whole byte before the number, and skips up to 7 numbers below
            let from = inside.saturating_sub(inside % 8);
            // 8 more: up to 7 that are skipped, and one that `rest` may want in part
            let wanted = len_u64(rest.len()).div_ceil(width).saturating_add(8);
            let left = chunk.count.saturating_sub(from);
            numbers.clear();
            self.unpack(chunk, from, left.min(wanted).min(PORTION), &mut numbers)?;
            // the byte `at` among those just unpacked
            let start = chunk.first.saturating_add(from).saturating_mul(width);
            let skip = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let found = numbers.get(skip..).unwrap_or_default();
            let take = found.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(found.get(..take).unwrap_or_default());
            // a chunk of 0 numbers would keep this loop here for ever
            if take == 0 {
                return Err(corrupt("quantize: an empty chunk"));
            }
            at = at.saturating_add(len_u64(take));
            rest = later;
        }
        Ok(())
    }
}

impl QuantizedChunk {
    /// `decoded = (encoded * scale) + offset`, in double precision.
    fn number(&self, encoded: i64) -> f64 {
        #[expect(
            clippy::as_conversions,
            clippy::cast_precision_loss,
            reason = "the draft computes with floating-point numbers; integers beyond 2^53 are rounded"
        )]
        let encoded = encoded as f64;
        encoded * self.scale + self.offset
    }

    /// The header at `at`, of a chunk with `first` numbers before it.
    fn read(packed: &dyn Source, at: u64, first: u64) -> Result<Self> {
        let mut header = [0; HEADER_LEN];
        packed
            .read_exact_at(&mut header, at)
            // the end of the data is a fault of the chunk; an error of the medium stays what it is
            .map_err(|error| match error {
                Error::Corrupt { .. } => corrupt("quantize: a chunk header is cut short"),
                other => other,
            })?;
        let word = |from: usize| {
            let found = header.get(from..).and_then(|rest| rest.first_chunk::<8>());
            u64::from_be_bytes(found.copied().unwrap_or_default())
        };
        let [bits, ..] = header;
        // an integer is unpacked into an `i64`
        if bits > 64 {
            let why = format!("quantize: integers of {bits} bits");
            return Err(unsupported(why));
        }
        Ok(Self {
            first,
            at: at.saturating_add(len_u64(HEADER_LEN)),
            bits,
            offset: f64::from_bits(word(1)),
            scale: f64::from_bits(word(9)),
            count: word(17),
        })
    }
}

/// The chunks of `packed`, which must hold `wanted` numbers and all lie in it.
fn read_chunks(packed: &dyn Source, wanted: u64) -> Result<Vec<QuantizedChunk>> {
    let mut chunks = Vec::new();
    let (mut at, mut first) = (0_u64, 0_u64);
    while at < packed.len() {
        if chunks.len() >= CHUNK_LIMIT {
            let why = format!("quantize: more than {CHUNK_LIMIT} chunks");
            return Err(unsupported(why));
        }
        let chunk = QuantizedChunk::read(packed, at, first)?;
        // with the sum bounded by the block's length, no later product with `width` can overflow
        first = first
            .checked_add(chunk.count)
            .filter(|&numbers| numbers <= wanted)
            .ok_or_else(|| {
                corrupt(format!(
                    "quantize: more than the {wanted} numbers of the block"
                ))
            })?;
        at = packed_len(chunk.count, chunk.bits)
            .and_then(|len| chunk.at.checked_add(len))
            .filter(|&end| end <= packed.len())
            .ok_or_else(|| corrupt("quantize: a chunk reaches beyond the data"))?;
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// Bytes of `count` integers of so many bits.
fn packed_len(count: u64, bits: u8) -> Option<u64> {
    let bits = u128::from(count).checked_mul(u128::from(bits))?;
    u64::try_from(bits.div_ceil(8)).ok()
}

/// Integers without gaps, the first bit of each byte being its highest.
struct Bits<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// Bits read and not used yet, in the lowest places.
    held: u128,
    count: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
            held: 0,
            count: 0,
        }
    }

    /// The next integer of at most 64 bits, with its sign.
    fn next(&mut self, bits: u8) -> i64 {
        let wanted = u32::from(bits);
        while self.count < wanted {
            let byte = self.bytes.next().copied().unwrap_or(0);
            // at most 63 + 8 bits are unused here; used ones move up and out of the 128
            self.held = (self.held << 8) | u128::from(byte);
            self.count = self.count.saturating_add(8);
        }
        self.count = self.count.saturating_sub(wanted);
        // the integer's highest bit comes to the top, and back down it leaves copies of itself
        let up = 128_u32.saturating_sub(self.count).saturating_sub(wanted);
        let top = self.held.checked_shl(up).unwrap_or(0).cast_signed();
        let down = 128_u32.saturating_sub(wanted);
        i64::try_from(top.checked_shr(down).unwrap_or(0)).unwrap_or(0)
    }
}
