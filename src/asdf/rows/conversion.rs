//! Conversion of elements between an array and a FITS file (FITS Standard 4.0, sections 4.4.2.5 and 7.3).
//!
//! FITS stores numbers big-endian, unsigned integers as signed ones with an offset of half their range, truth values as
//! letters, and strings as ASCII.

use crate::asdf::datatype::ByteOrder;
use crate::asdf::tile::{in_memory, misplaced};
use crate::error::{Error, Result, unsupported};

/// The sign bit of a number, in its first byte when that is the most significant one.
pub(crate) const SIGN: u8 = 0x80;
/// Bytes of a UCS-4 character.
const CHARACTER: usize = 4;
/// Bits of the fraction of a float16 and of a float32.
const HALF_FRACTION: u32 = 10;
const FRACTION: u32 = 23;
/// The exponent of a float16 that is infinite or NaN, and the exponent of such a float32 in its place.
const HALF_SPECIAL: u16 = 0x1F;
const SPECIAL: u32 = 0xFF << FRACTION;
/// Added to the exponent of a float16 to make a float32's: the difference of their biases.
const BIAS: u32 = 127 - 15;
/// The smallest float16 above 0: 2^-24.
const HALF_SMALLEST: f32 = 1.0 / 16_777_216.0;

/// The conversion of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// A number of that many bytes: big-endian, with its sign bit turned over if it was unsigned (or, of one byte, signed).
    Number {
        /// Bytes.
        size: u8,
        /// Its bytes are turned round.
        swap: bool,
        /// Its sign bit is turned over.
        flip: bool,
    },
    /// A truth value becomes `T` or `F`.
    Truth,
    /// A truth value becomes 1 or 0.
    Bit,
    /// A letter becomes a truth value: `T` is true.
    Letter,
    /// A float16 becomes a big-endian float32.
    Widen(ByteOrder),
    /// A UCS-4 character becomes one byte of ASCII.
    Narrow(ByteOrder),
}

impl Conversion {
    /// Bytes of the element before and after.
    pub(crate) fn sizes(self) -> (u64, u64) {
        match self {
            Self::Number { size, .. } => (size.into(), size.into()),
            Self::Truth | Self::Bit | Self::Letter => (1, 1),
            Self::Widen(_) => (2, 4),
            Self::Narrow(_) => (4, 1),
        }
    }

    /// Whether the bytes stay as they are.
    pub(crate) fn is_nothing(self) -> bool {
        matches!(
            self,
            Self::Number {
                swap: false,
                flip: false,
                ..
            }
        )
    }

    /// Converts elements that keep their size where they are.
    pub(crate) fn in_place(self, bytes: &mut [u8]) {
        match self {
            Self::Number { size, swap, flip } => match (size, swap) {
                (2, true) => each_in_place::<2>(bytes, turned(flip)),
                (4, true) => each_in_place::<4>(bytes, turned(flip)),
                (8, true) => each_in_place::<8>(bytes, turned(flip)),
                (2, _) => each_in_place::<2>(bytes, flipped(flip)),
                (4, _) => each_in_place::<4>(bytes, flipped(flip)),
                (8, _) => each_in_place::<8>(bytes, flipped(flip)),
                _ => each_in_place::<1>(bytes, flipped(flip)),
            },
            Self::Truth => each_in_place(bytes, letter),
            Self::Bit => each_in_place(bytes, bit),
            Self::Letter => each_in_place(bytes, truth),
            // these change the size of an element, and only `convert` does them
            Self::Widen(_) | Self::Narrow(_) => {}
        }
    }

    /// Converts the elements of cells on their way from one buffer to the other.
    pub(crate) fn convert(self, cells: Cells<'_>) -> Result<()> {
        match self {
            // single elements are left to the loops below: a
            // copy of some bytes costs more than such a step
            _ if self.is_nothing() && cells.count > 1 => cells.copy(self.sizes().0)?,
            // a loop of its own for each size and change: a call for each element would take longer than the element
            Self::Number { size, swap, flip } => match (size, swap) {
                (2, true) => cells.each(turned::<2>(flip)),
                (4, true) => cells.each(turned::<4>(flip)),
                (8, true) => cells.each(turned::<8>(flip)),
                (2, _) => cells.each(flipped::<2>(flip)),
                (4, _) => cells.each(flipped::<4>(flip)),
                (8, _) => cells.each(flipped::<8>(flip)),
                _ => cells.each(flipped::<1>(flip)),
            },
            Self::Truth => cells.each(letter),
            Self::Bit => cells.each(bit),
            Self::Letter => cells.each(truth),
            Self::Widen(ByteOrder::Big) => cells.each(|half| widened(u16::from_be_bytes(half))),
            Self::Widen(ByteOrder::Little) => cells.each(|half| widened(u16::from_le_bytes(half))),
            Self::Narrow(order) => {
                let count = cells.count;
                for (from, to) in cells.pairs() {
                    narrow(order, from, to.get_mut(..count).ok_or_else(misplaced)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Turns the bytes of a number round, and then its sign bit over if that is wanted.
fn turned<const N: usize>(flip: bool) -> impl Fn([u8; N]) -> [u8; N] {
    let flipped = flipped(flip);
    move |mut number| {
        number.reverse();
        flipped(number)
    }
}

/// Turns the sign bit of a big-endian number over, if that is wanted.
fn flipped<const N: usize>(flip: bool) -> impl Fn([u8; N]) -> [u8; N] {
    let mask = if flip { SIGN } else { 0 };
    move |mut number| {
        if let Some(first) = number.first_mut() {
            *first ^= mask;
        }
        number
    }
}

/// The letter of a truth value.
fn letter([byte]: [u8; 1]) -> [u8; 1] {
    [if byte == 0 { b'F' } else { b'T' }]
}

/// The number of a truth value: any byte but 0 is true, as in NumPy.
fn bit([byte]: [u8; 1]) -> [u8; 1] {
    [u8::from(byte != 0)]
}

/// The truth value of a letter. As in astropy, any letter but `T` is false.
fn truth([letter]: [u8; 1]) -> [u8; 1] {
    [u8::from(letter == b'T')]
}

/// A float16 (IEEE 754-2008 binary16) as a big-endian float32. The bits of a NaN are kept, as by NumPy.
fn widened(half: u16) -> [u8; 4] {
    let magnitude = half & !(1 << 15);
    let bits = match magnitude >> HALF_FRACTION {
        // multiples of the smallest number
        0 => (f32::from(magnitude) * HALF_SMALLEST).to_bits(),
        HALF_SPECIAL => SPECIAL | u32::from(magnitude) << (FRACTION - HALF_FRACTION),
        _ => {
            // the fraction goes to the top of the longer one, and the exponent gets the other bias
            let shifted = u32::from(magnitude) << (FRACTION - HALF_FRACTION);
            shifted.wrapping_add(BIAS << FRACTION)
        }
    };
    (bits | u32::from(half & 1 << 15) << 16).to_be_bytes()
}

/// Changes each element where it is.
fn each_in_place<const N: usize>(bytes: &mut [u8], change: impl Fn([u8; N]) -> [u8; N]) {
    for element in bytes.as_chunks_mut().0 {
        *element = change(*element);
    }
}

/// The cells of a field in consecutive records and rows.
pub(crate) struct Cells<'a> {
    /// Records, from the first element of the first cell on.
    pub(crate) from: &'a [u8],
    /// Bytes from one cell to the next there.
    pub(crate) record: usize,
    /// Rows, from the place of the first cell on.
    pub(crate) to: &'a mut [u8],
    /// Bytes from one cell to the next there.
    pub(crate) row: usize,
    /// Elements of a cell.
    pub(crate) count: usize,
}

impl<'a> Cells<'a> {
    /// For each cell, the bytes from its start on, and the bytes from its place in the row on.
    fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
        let from = self.from.chunks(self.record.max(1));
        from.zip(self.to.chunks_mut(self.row.max(1)))
    }

    /// Changes each element on its way.
    fn each<const N: usize, const M: usize>(self, change: impl Fn([u8; N]) -> [u8; M]) {
        let count = self.count;
        // one element in a cell, as in most columns, needs no inner loop
        if count == 1 {
            for (from, to) in self.pairs() {
                if let (Some(from), Some(to)) = (from.first_chunk(), to.first_chunk_mut()) {
                    *to = change(*from);
                }
            }
            return;
        }
        for (from, to) in self.pairs() {
            let elements = from.as_chunks().0.iter().zip(to.as_chunks_mut().0);
            for (from, to) in elements.take(count) {
                *to = change(*from);
            }
        }
    }

    /// Copies cells of elements of this size.
    fn copy(self, size: u64) -> Result<()> {
        let len = in_memory(size)?.saturating_mul(self.count);
        for (from, to) in self.pairs() {
            let (from, to) = (from.get(..len), to.get_mut(..len));
            let (from, to) = from.zip(to).ok_or_else(misplaced)?;
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// Writes UCS-4 characters as bytes of ASCII.
fn narrow(order: ByteOrder, from: &[u8], to: &mut [u8]) -> Result<()> {
    let (characters, _) = from.as_chunks::<CHARACTER>();
    for (character, to) in characters.iter().zip(to) {
        let code = match order {
            ByteOrder::Big => u32::from_be_bytes(*character),
            ByteOrder::Little => u32::from_le_bytes(*character),
        };
        let ascii = u8::try_from(code).ok().filter(u8::is_ascii);
        *to = ascii.ok_or_else(|| not_ascii(code))?;
    }
    Ok(())
}

fn not_ascii(code: u32) -> Error {
    let why = format!("the character U+{code:04X} is not ASCII, and FITS has no other strings");
    unsupported(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the meaning of its bits, not by how they are moved.
    fn value(half: u16) -> f64 {
        let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(-24),
            0x1f => f64::INFINITY,
            _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
        };
        if half >> 15 == 1 {
            -magnitude
        } else {
            magnitude
        }
    }

    #[test]
    fn every_float16_is_a_float32() {
        for half in 0..=u16::MAX {
            let wide = u32::from_be_bytes(widened(half));
            let is_number = half & 0x7fff <= 0x7c00;
            let want = if is_number {
                (value(half) as f32).to_bits()
            } else {
                // what NumPy makes of it
                u32::from(half & 0x8000) << 16 | 0x7f80_0000 | u32::from(half & 0x3ff) << 13
            };
            assert_eq!(wide, want, "{half:#x}");
        }
    }
}
