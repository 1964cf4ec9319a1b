//! The checksum of LZ4 frames: XXH32.
//!
//! From the specification in Cyan4973/xxHash, doc/xxhash_spec.md (XXH32, version 0.1.1).

use crate::source::len_u64;

const P1: u32 = 0x9E37_79B1;
const P2: u32 = 0x85EB_CA77;
const P3: u32 = 0xC2B2_AE3D;
const P4: u32 = 0x27D4_EB2F;
const P5: u32 = 0x1656_67B1;

/// Bytes that are taken at once.
const STRIPE: usize = 16;

/// XXH32 of `input` with seed 0, as LZ4 frames use it.
pub(super) fn xxh32(input: &[u8]) -> u32 {
    let mut sum = Xxh32::default();
    sum.update(input);
    sum.value()
}

/// The same of bytes that come in pieces.
#[derive(Debug, Clone)]
pub(super) struct Xxh32 {
    lanes: [u32; 4],
    /// The first `len` of these are what is not in the lanes yet.
    rest: [u8; STRIPE],
    len: usize,
    total: u64,
}

impl Default for Xxh32 {
    fn default() -> Self {
        Self {
            lanes: [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()],
            rest: [0; STRIPE],
            len: 0,
            total: 0,
        }
    }
}

impl Xxh32 {
    /// Takes more bytes.
    pub(super) fn update(&mut self, mut input: &[u8]) {
        self.total = self.total.wrapping_add(len_u64(input.len()));
        if self.len > 0 {
            input = self.fill(input);
            if self.len < STRIPE {
                return;
            }
            self.lanes = mix(self.lanes, &[self.rest]);
            self.len = 0;
        }
        let (stripes, tail) = input.as_chunks::<STRIPE>();
        self.lanes = mix(self.lanes, stripes);
        self.fill(tail);
    }

    /// Keeps as much as there is room for, and gives what is behind that.
    fn fill<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let room = self.rest.get_mut(self.len..).unwrap_or_default();
        let (taken, behind) = input.split_at_checked(room.len()).unwrap_or((input, &[]));
        if let Some(room) = room.get_mut(..taken.len()) {
            room.copy_from_slice(taken);
        }
        self.len = self.len.saturating_add(taken.len());
        behind
    }

    /// The checksum of what was taken.
    pub(super) fn value(&self) -> u32 {
        let mut sum = if self.total < len_u64(STRIPE) {
            P5
        } else {
            self.lanes
                .iter()
                .zip([1, 7, 12, 18])
                .fold(0u32, |sum, (lane, turn)| {
                    sum.wrapping_add(lane.rotate_left(turn))
                })
        };
        // The specification adds the length modulo 2^32.
        let low = u32::try_from(self.total & 0xFFFF_FFFF).unwrap_or_default();
        sum = sum.wrapping_add(low);
        let tail = self.rest.get(..self.len).unwrap_or_default();
        let (words, bytes) = tail.as_chunks::<4>();
        for word in words {
            sum = sum
                .wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P3))
                .rotate_left(17)
                .wrapping_mul(P4);
        }
        for &byte in bytes {
            sum = sum
                .wrapping_add(u32::from(byte).wrapping_mul(P5))
                .rotate_left(11)
                .wrapping_mul(P1);
        }
        sum = (sum ^ (sum >> 15)).wrapping_mul(P2);
        sum = (sum ^ (sum >> 13)).wrapping_mul(P3);
        sum ^ (sum >> 16)
    }
}

/// The lanes after some stripes.
fn mix(mut lanes: [u32; 4], stripes: &[[u8; STRIPE]]) -> [u32; 4] {
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane
                .wrapping_add(u32::from_le_bytes(*word).wrapping_mul(P2))
                .rotate_left(13)
                .wrapping_mul(P1);
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::{Xxh32, xxh32};

    #[test]
    fn sums_are_those_of_the_reference() {
        // From the xxhash command (xxhsum -H32) and python-xxhash's README.
        assert_eq!(xxh32(b""), 0x02CC_5D05);
        assert_eq!(xxh32(b"a"), 0x550D_7456);
        assert_eq!(xxh32(b"abc"), 0x32D1_53FF);
        assert_eq!(
            xxh32(b"Nobody inspects the spammish repetition"),
            0xE229_3B2F
        );
    }

    #[test]
    fn pieces_have_the_sum_of_the_whole() {
        // From python-lz4: the end of a frame of bytes(range(256)) * 4.
        let whole: Vec<u8> = (0..=255).cycle().take(1024).collect();
        assert_eq!(xxh32(&whole), 0x5865_4D5A);
        for piece in [1, 3, 15, 16, 17, 100] {
            let mut sum = Xxh32::default();
            whole.chunks(piece).for_each(|piece| sum.update(piece));
            assert_eq!(sum.value(), 0x5865_4D5A, "in pieces of {piece}");
        }
    }
}
