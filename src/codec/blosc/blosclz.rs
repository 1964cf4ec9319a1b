//! BloscLZ, the codec that only Blosc has: a stream of literal runs and matches.
//!
//! From the behaviour of Blosc/c-blosc2 blosc/blosclz.c (a FastLZ level 2 stream). A control byte below 32 heads that many
//! literals plus one; any other is a match: length − 2 in the top three bits (7: more bytes follow, each added, until one is not
//! 255), then the distance − 1: five bits and a byte, or if these are all ones, 8191 more than the two bytes that follow. The first
//! control byte counts only with its lower five bits.

const SHORT: usize = 6;
const FAR: usize = 8191;

/// Decodes `packed` into `out`, which it must fill; `None` if it is damaged.
pub(super) fn decode(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (&first, mut input) = packed.split_first()?;
    let mut control = first & 31;
    let mut done = 0usize;
    loop {
        if control < 32 {
            let len = usize::from(control).wrapping_add(1);
            let (literals, rest) = input.split_at_checked(len)?;
            let end = done.checked_add(len)?;
            out.get_mut(done..end)?.copy_from_slice(literals);
            (done, input) = (end, rest);
        } else {
            let mut len = usize::from(control >> 5).wrapping_sub(1);
            let mut distance = usize::from(control & 31) << 8;
            if len == SHORT {
                loop {
                    let more = take(&mut input)?;
                    len = len.checked_add(usize::from(more))?;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = take(&mut input)?;
            distance |= usize::from(low);
            if distance == FAR {
                let high = usize::from(take(&mut input)?) << 8;
                distance = FAR.wrapping_add(high | usize::from(take(&mut input)?));
            }
            done = repeat(out, done, distance.wrapping_add(1), len.checked_add(3)?)?;
        }
        match take(&mut input) {
            Some(next) => control = next,
            None => break,
        }
    }
    (done == out.len()).then_some(())
}

fn take(input: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = input.split_first()?;
    *input = rest;
    Some(first)
}

/// Copies `len` bytes from `distance` before `done` to there, over and over if they overlap; gives the new end.
fn repeat(out: &mut [u8], done: usize, distance: usize, len: usize) -> Option<usize> {
    let end = done.checked_add(len)?;
    let start = done.checked_sub(distance)?;
    let (before, space) = out.get_mut(..end)?.split_at_mut_checked(done)?;
    let source = before.get(start..)?;
    if let Some(source) = source.get(..len) {
        space.copy_from_slice(source);
        return Some(end);
    }
    if let &[byte] = source {
        space.fill(byte);
        return Some(end);
    }
    for piece in space.chunks_mut(distance) {
        piece.copy_from_slice(source.get(..piece.len())?);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::decode;
    use proptest::prelude::*;

    #[test]
    fn literals_near_and_far_matches_are_decoded() {
        // abc, then 9 bytes from 3 back, then a run of 5.
        let mut out = [0; 17];
        assert_eq!(
            decode(&[2, b'a', b'b', b'c', 7 << 5, 0, 2, 3 << 5, 0], &mut out),
            Some(())
        );
        assert_eq!(&out, b"abcabcabcabcccccc");
    }

    #[test]
    fn a_match_before_the_start_is_damage() {
        assert_eq!(decode(&[0, b'a', 1 << 5, 1], &mut [0; 4]), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            packed in prop::collection::vec(prop_oneof![any::<u8>(), Just(255u8), Just(32)], 0..80),
            len in 0usize..600,
        ) {
            let _ = decode(&packed, &mut vec![0; len]);
        }
    }
}
