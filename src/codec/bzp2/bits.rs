//! Bits of a bzip2 stream, the most significant of each byte first, and the marks at its blocks.

use std::sync::LazyLock;

use crate::source::len_u64;

/// Length in bits of the marks at the start of a block and of the end.
pub(super) const MARK_BITS: u64 = 48;

/// The start of a block: pi in decimal digits.
const BLOCK_MARK: u64 = 0x3141_5926_5359;

/// The end of a stream: its square root.
pub(super) const END_MARK: u64 = 0x1772_4538_5090;

/// Bits that are in the buffer after a refill, at least.
const WORD_BITS: u32 = 0x38;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A block follows.
    Block,
    /// The checksum of all blocks follows.
    End,
}

/// Why bits can't be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BitFault {
    /// There are not enough of them.
    Short,
    /// They contradict the format.
    Bad(&'static str),
    /// A feature of the format that is not read.
    Unsupported(&'static str),
}

/// A reader of bits. Behind the end it reads zeros; [`Bits::check`] tells whether it has.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bytes taken into `buffer`, those invented behind the end too.
    next: usize,
    /// Bits taken and not used, at its upper end.
    buffer: u64,
    /// How many.
    count: u32,
}

impl<'a> Bits<'a> {
    /// The bits of `bytes` from a position on.
    pub(super) fn new(bytes: &'a [u8], position: u64) -> Self {
        let byte = usize::try_from(position.checked_shr(3).unwrap_or(0)).unwrap_or(usize::MAX);
        let mut bits = Self {
            bytes,
            next: byte,
            buffer: 0,
            count: 0,
        };
        bits.take(u32::try_from(position & 7).unwrap_or(0));
        bits
    }

    /// The position, in bits from the start of the bytes.
    pub(super) fn position(&self) -> u64 {
        len_u64(self.next)
            .saturating_mul(8)
            .saturating_sub(self.count.into())
    }

    /// An error if more bits have been read than there are.
    pub(super) fn check(&self) -> Result<(), BitFault> {
        let all = len_u64(self.bytes.len());
        if self.position() > all.saturating_mul(8) {
            return Err(BitFault::Short);
        }
        Ok(())
    }

    /// Makes sure that at least 56 bits are in the buffer.
    #[inline]
    fn refill(&mut self) {
        let word = self
            .bytes
            .get(self.next..)
            .and_then(|rest| rest.first_chunk::<8>());
        // eight bytes at once; of those that do not fit, the next refill takes the rest
        if let Some(&word) = word {
            self.buffer |= u64::from_be_bytes(word).wrapping_shr(self.count);
            self.next = self
                .next
                .wrapping_add(63_usize.wrapping_sub(self.count_len()).wrapping_shr(3));
            self.count |= WORD_BITS;
            return;
        }
        // near the end byte by byte, and zeros behind it: `check` tells whether any of these were used
        while self.count <= WORD_BITS {
            let byte = self.bytes.get(self.next).copied().unwrap_or(0);
            let shift = WORD_BITS.wrapping_sub(self.count);
            self.buffer |= u64::from(byte).wrapping_shl(shift);
            self.next = self.next.saturating_add(1);
            self.count = self.count.wrapping_add(8);
        }
    }

    fn count_len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(0)
    }

    /// The next 20 bits and more, at the upper end, without using them.
    #[inline]
    pub(super) fn peek(&mut self) -> u64 {
        if self.count < 20 {
            self.refill();
        }
        self.buffer
    }

    /// Uses up to 20 bits that have been looked at.
    #[inline]
    pub(super) fn skip(&mut self, len: u32) {
        self.buffer = self.buffer.wrapping_shl(len);
        self.count = self.count.wrapping_sub(len);
    }

    /// Takes up to 32 bits.
    #[inline]
    pub(super) fn take(&mut self, len: u32) -> u32 {
        if len == 0 {
            return 0;
        }
        if self.count < len {
            self.refill();
        }
        let value = self.buffer.wrapping_shr(64_u32.wrapping_sub(len));
        self.skip(len);
        u32::try_from(value).unwrap_or(0)
    }

    /// Takes one bit.
    #[inline]
    pub(super) fn bit(&mut self) -> bool {
        self.take(1) == 1
    }

    /// Takes a mark.
    pub(super) fn mark(&mut self) -> Result<Mark, BitFault> {
        let high = u64::from(self.take(24));
        let mark = high.wrapping_shl(24) | u64::from(self.take(24));
        self.check()?;
        kind_of(mark).ok_or(BitFault::Bad("neither a block nor the end of the stream"))
    }
}

/// What the 48 bits of a mark say; `None` if they are no mark.
fn kind_of(mark: u64) -> Option<Mark> {
    match mark {
        BLOCK_MARK => Some(Mark::Block),
        END_MARK => Some(Mark::End),
        _ => None,
    }
}

/// By byte: at which of the 8 shifts it may be the second byte touched by a block's mark (lower half), or an end's. Then the same for the
/// third byte.
static MARK_BYTES: LazyLock<[[u16; 256]; 2]> = LazyLock::new(mark_bytes);

/// Of a mark that begins at bit `shift` of a byte, the next byte has bits 32 + `shift` and up, the one behind it bits 24 + `shift` and up.
fn mark_bytes() -> [[u16; 256]; 2] {
    let (mut second, mut third) = ([0; 256], [0; 256]);
    for shift in 0..8_u32 {
        for (mark, half) in [(BLOCK_MARK, 0_u32), (END_MARK, 8)] {
            let flag = 1_u16.wrapping_shl(half.wrapping_add(shift));
            for (table, from) in [(&mut second, 32_u32), (&mut third, 24)] {
                let [.., byte] = mark.wrapping_shr(from.wrapping_add(shift)).to_be_bytes();
                if let Some(flags) = table.get_mut(usize::from(byte)) {
                    *flags |= flag;
                }
            }
        }
    }
    [second, third]
}

/// The first mark at or behind a bit position, and that position. It is found by two bytes that lie wholly inside it, then by comparing.
pub(super) fn find_mark(bytes: &[u8], from: u64) -> Option<(u64, Mark)> {
    let [seconds, thirds] = &*MARK_BYTES;
    let start = usize::try_from(from.checked_shr(3)?).ok()?;
    let pairs = bytes.get(start.checked_add(1)?..)?.windows(2);
    for (byte, pair) in (start..).zip(pairs) {
        let [second, third] = pair else { continue };
        let flags = seconds.get(usize::from(*second)).copied().unwrap_or(0)
            & thirds.get(usize::from(*third)).copied().unwrap_or(0);
        // hardly any two bytes can be in a mark, so that the eight shifts are seldom tried
        if flags == 0 {
            continue;
        }
        let found = (0..8)
            .map(|shift| {
                u64::try_from(byte)
                    .unwrap_or(0)
                    .saturating_mul(8)
                    .saturating_add(shift)
            })
            .filter(|&position| position >= from)
            .find_map(|position| Some((position, Bits::new(bytes, position).mark().ok()?)));
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_taken_in_order(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            start in 0u64..50,
            lens in prop::collection::vec(0u32..=32, 0..12),
        ) {
            let all: Vec<u32> = bytes
                .iter()
                .flat_map(|byte| (0..8).rev().map(move |shift| u32::from(byte >> shift & 1)))
                .collect();
            let mut bits = Bits::new(&bytes, start);
            let mut at = start as usize;
            for len in lens {
                let want = (at..at + len as usize)
                    .fold(0, |value: u32, n| value << 1 | all.get(n).copied().unwrap_or(0));
                prop_assert_eq!(bits.take(len), want);
                at += len as usize;
                prop_assert_eq!(bits.position(), at as u64);
                prop_assert_eq!(bits.check().is_ok(), at <= all.len());
            }
        }

        #[test]
        fn a_mark_is_found_at_any_bit(
            before in prop::collection::vec(any::<u8>(), 1..40),
            cut in 0u32..8,
            end in any::<bool>(),
        ) {
            let mark = if end { END_MARK } else { BLOCK_MARK };
            let mut bits: Vec<u8> = before
                .iter()
                .flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1))
                .collect();
            bits.truncate(bits.len() - cut as usize);
            let position = bits.len() as u64;
            bits.extend((0..48).rev().map(|shift| (mark >> shift & 1) as u8));
            bits.resize(bits.len().next_multiple_of(8), 0);
            let bytes: Vec<u8> = bits
                .chunks(8)
                .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit))
                .collect();
            let kind = if end { Mark::End } else { Mark::Block };
            prop_assert_eq!(find_mark(&bytes, 0), Some((position, kind)));
            prop_assert_eq!(find_mark(&bytes, position), Some((position, kind)));
            prop_assert_eq!(find_mark(&bytes, position + 1), None);
        }
    }
}
