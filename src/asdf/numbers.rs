//! The elements of an array as floating-point numbers: for pictures and statistics, not for storage.

use super::datatype::{ByteOrder, Scalar};
use super::{Array, Origin, Snapshot};
use crate::codec::Cache;
use crate::error::Result;
use crate::source::{Source, each_piece};

/// Bytes of elements that are read at a time.
const CHUNK: usize = 256 << 10;
/// The most bytes of an array that are read for a picture or for statistics: strides of 0 make a small block an array without end.
pub(crate) const MOST_READ: u64 = 1 << 40;

/// Bits of a float16 behind its sign, and of its fraction.
const HALF_EXPONENT: u32 = 10;
/// Added to the exponent of a float16 to make a float64's: the difference of their biases.
const HALF_BIAS: u64 = 1023 - 15;

/// Arrays of fewer bytes are read, however often they show a byte of their block.
const SHORT: u64 = 1 << 30;
/// How often a longer array may show each byte of its block, on average, to be read for a picture or for statistics.
const MOST_SHOWN: u64 = 64;

impl Snapshot {
    /// Whether a long array shows the bytes of its block over and over, as by strides of 0, or hardly any of the file: some bytes could
    /// keep a reader waiting for hours.
    pub(crate) fn repeats_endlessly(&self, array: &Array) -> bool {
        let len = array.bin_len();
        let block = match array.data().origin() {
            Origin::Block(n) => self.block_len(*n).unwrap_or(0),
            // any number of its chunks may be missing
            Origin::Chunked => self.file_len(),
            Origin::Inline | Origin::External(_) | Origin::Fits { .. } | Origin::Unknown => {
                return false;
            }
        };
        len > SHORT && block.checked_mul(MOST_SHOWN).is_some_and(|most| len > most)
    }
}

/// Calls `each` with the first `len` bytes of the elements, a chunk of whole ones at a time.
///
/// # Errors
/// The errors of reading; [`Error::Io`](crate::error::Error::Io) if the mount ends meanwhile.
pub(crate) fn each_chunk(
    cache: &Cache,
    elements: &dyn Source,
    len: u64,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    each_piece(elements, 0..len, CHUNK, |bytes| {
        cache.check_wanted()?;
        each(bytes);
        Ok(())
    })
}

/// Calls `each` with every number of `bytes`, in order. For a complex number that is its magnitude.
/// Integers of 64 bits are rounded.
pub(crate) fn each_number(
    scalar: Scalar,
    order: ByteOrder,
    bytes: &[u8],
    each: &mut impl FnMut(f64),
) {
    match scalar {
        Scalar::Int8 => of(bytes, order, |b| f64::from(i8::from_le_bytes(b)), each),
        Scalar::Uint8 => of(bytes, order, |[b]| f64::from(b), each),
        Scalar::Bool8 => of(bytes, order, |[b]| f64::from(u8::from(b != 0)), each),
        Scalar::Int16 => of(bytes, order, |b| f64::from(i16::from_le_bytes(b)), each),
        Scalar::Uint16 => of(bytes, order, |b| f64::from(u16::from_le_bytes(b)), each),
        Scalar::Int32 => of(bytes, order, |b| f64::from(i32::from_le_bytes(b)), each),
        Scalar::Uint32 => of(bytes, order, |b| f64::from(u32::from_le_bytes(b)), each),
        Scalar::Int64 => of(bytes, order, |b| rounded(i64::from_le_bytes(b)), each),
        Scalar::Uint64 => of(bytes, order, |b| unsigned(u64::from_le_bytes(b)), each),
        Scalar::Float16 => of(bytes, order, |b| half(u16::from_le_bytes(b)), each),
        Scalar::Float32 => of(bytes, order, |b| f64::from(f32::from_le_bytes(b)), each),
        Scalar::Float64 => of(bytes, order, f64::from_le_bytes, each),
        Scalar::Complex64 => {
            // a chunk holds whole elements, so that no real part is left alone at its end
            let mut real = None;
            let single = |part| f64::from(f32::from_le_bytes(part));
            of(bytes, order, single, &mut |part| {
                pair(&mut real, part, each);
            });
        }
        Scalar::Complex128 => {
            let mut real = None;
            of(bytes, order, f64::from_le_bytes, &mut |part| {
                pair(&mut real, part, each);
            });
        }
    }
}

/// Calls `each` with every number of `bytes`, of an array of integers of 64 bits, in order.
pub(crate) fn each_integer(
    is_signed: bool,
    order: ByteOrder,
    bytes: &[u8],
    each: &mut impl FnMut(i128),
) {
    let (numbers, _) = bytes.as_chunks::<8>();
    for number in numbers {
        let bits = match order {
            ByteOrder::Little => u64::from_le_bytes(*number),
            ByteOrder::Big => u64::from_be_bytes(*number),
        };
        each(if is_signed {
            bits.cast_signed().into()
        } else {
            bits.into()
        });
    }
}

/// Takes a part of a complex number. With the second part it passes the magnitude on.
fn pair(real: &mut Option<f64>, part: f64, each: &mut impl FnMut(f64)) {
    match real.take() {
        None => *real = Some(part),
        Some(real) => each(real.hypot(part)),
    }
}

/// Numbers of `N` bytes, which `read` takes in little-endian order.
fn of<const N: usize>(
    bytes: &[u8],
    order: ByteOrder,
    read: impl Fn([u8; N]) -> f64,
    each: &mut impl FnMut(f64),
) {
    let (numbers, _) = bytes.as_chunks::<N>();
    match order {
        ByteOrder::Little => numbers.iter().for_each(|number| each(read(*number))),
        ByteOrder::Big => {
            for number in numbers {
                let mut number = *number;
                number.reverse();
                each(read(number));
            }
        }
    }
}

/// A float16 (IEEE 754-2008 binary16).
fn half(bits: u16) -> f64 {
    let bits = u64::from(bits);
    let (negative, exponent) = (bits >> 15 == 1, (bits >> HALF_EXPONENT) & 0x1F);
    let fraction = bits & ((1 << HALF_EXPONENT) - 1);
    let magnitude = match exponent {
        // a multiple of the smallest number, 2^-24
        0 => unsigned(fraction) / f64::from(1_u32 << 24),
        0x1F if fraction == 0 => f64::INFINITY,
        0x1F => f64::NAN,
        // bit 52 is where a double has its exponent; the 10
        // bits of the fraction go just below, by 42
        _ => f64::from_bits(exponent.wrapping_add(HALF_BIAS) << 52 | fraction << 42),
    };
    if negative { -magnitude } else { magnitude }
}

/// The nearest single; infinite beyond its range, as in NumPy.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "rounding is what is wanted"
)]
pub(crate) fn single(x: f64) -> f32 {
    x as f32
}

/// The float64 nearest to an integer.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "that is what rounding is"
)]
pub(crate) fn nearest(number: i128) -> f64 {
    number as f64
}

/// As [`nearest`], but quick enough to be called for each element of an array.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "that is what rounding is"
)]
fn rounded(number: i64) -> f64 {
    number as f64
}

/// A count or an unsigned integer, rounded to the nearest float64.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "that is what rounding is"
)]
pub(crate) fn unsigned(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(scalar: Scalar, order: ByteOrder, bytes: &[u8]) -> Vec<f64> {
        let mut found = Vec::new();
        each_number(scalar, order, bytes, &mut |number| found.push(number));
        found
    }

    #[test]
    fn every_type_is_read_in_both_byte_orders() {
        let (little, big) = (ByteOrder::Little, ByteOrder::Big);
        for (scalar, bytes, want) in [
            (Scalar::Int8, &[0xFF][..], -1.0),
            (Scalar::Bool8, &[7], 1.0),
            (Scalar::Int16, &[0xFE, 0xFF], -2.0),
            (Scalar::Uint16, &[0, 0x80], 32768.0),
            (Scalar::Int32, &[0, 0, 0, 0x80], -2_147_483_648.0),
            (Scalar::Uint32, &[0, 0, 0, 0x80], 2_147_483_648.0),
            (
                Scalar::Int64,
                &[0xFD, 255, 255, 255, 255, 255, 255, 255],
                -3.0,
            ),
            (
                Scalar::Uint64,
                &[0, 0, 0, 0, 0, 0, 0, 1],
                72_057_594_037_927_936.0,
            ),
            (Scalar::Float32, &[0, 0, 0xC0, 0x3F], 1.5),
            (Scalar::Float64, &[0, 0, 0, 0, 0, 0, 0xF8, 0xBF], -1.5),
        ] {
            assert_eq!(numbers(scalar, little, bytes), [want], "{scalar:?}");
            let turned: Vec<u8> = bytes.iter().rev().copied().collect();
            assert_eq!(numbers(scalar, big, &turned), [want], "{scalar:?}");
        }
        let complex = [3.0_f32, 4.0].map(f32::to_be_bytes).concat();
        assert_eq!(numbers(Scalar::Complex64, big, &complex), [5.0]);
    }

    #[test]
    fn half_precision_is_exact() {
        for (bits, want) in [
            (0x3C00, 1.0),
            (0xC000, -2.0),
            (0x7BFF, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x8000, -0.0),
            (0xFC00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half(bits).to_bits(), f64::to_bits(want), "{bits:#x}");
        }
        assert!(half(0x7E00).is_nan());
    }
}
