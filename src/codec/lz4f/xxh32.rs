//! The checksum of LZ4 frames: XXH32 of bytes in memory.
//!
//! From the specification in Cyan4973/xxHash, doc/xxhash_spec.md (XXH32, version 0.1.1).

const P1: u32 = 0x9E37_79B1;
const P2: u32 = 0x85EB_CA77;
const P3: u32 = 0xC2B2_AE3D;
const P4: u32 = 0x27D4_EB2F;
const P5: u32 = 0x1656_67B1;

/// XXH32 of `input` with seed 0, as LZ4 frames use it.
pub(super) fn xxh32(input: &[u8]) -> u32 {
    let (stripes, tail) = input.as_chunks::<16>();
    let mut sum = if stripes.is_empty() {
        P5
    } else {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()];
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
            .iter()
            .zip([1, 7, 12, 18])
            .fold(0u32, |sum, (lane, turn)| {
                sum.wrapping_add(lane.rotate_left(turn))
            })
    };
    // The specification adds the length modulo 2^32.
    let low = u32::try_from(input.len() & 0xFFFF_FFFF).unwrap_or_default();
    sum = sum.wrapping_add(low);
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

#[cfg(test)]
mod tests {
    use super::xxh32;

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
}
