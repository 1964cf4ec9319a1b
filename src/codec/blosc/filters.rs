//! The filters of Blosc: byte and bit transposition, both ways, and differences, backwards.
//!
//! From the behaviour of Blosc/c-blosc2 blosc/{shuffle,bitshuffle-generic,delta}.c and plugins/filters/bytedelta. All of them leave
//! the length as it is. Bytes that do not make a whole element (or group of eight elements) stand behind, untouched.
#![expect(
    clippy::indexing_slicing,
    reason = "inner loops over rows whose lengths are computed from the buffers just before"
)]
#![expect(
    clippy::arithmetic_side_effects,
    reason = "indices below the length of a buffer in memory"
)]

/// Puts bytes that were stored by significance back into elements of `typesize` bytes.
pub(super) fn unshuffle(typesize: usize, from: &[u8], to: &mut [u8]) {
    match typesize {
        0 | 1 => to.copy_from_slice(from),
        // the usual sizes, for which the compiler unrolls the loop over an element
        2 => planes::<2>(from, to),
        4 => planes::<4>(from, to),
        8 => planes::<8>(from, to),
        _ => {
            let count = from.len() / typesize;
            let whole = count * typesize;
            for (element, n) in to[..whole].chunks_exact_mut(typesize).zip(0..) {
                for (byte, plane) in element.iter_mut().zip(from[..whole].chunks_exact(count)) {
                    *byte = plane[n];
                }
            }
            // bytes behind the last whole element are not shuffled
            to[whole..].copy_from_slice(&from[whole..]);
        }
    }
}

/// [`unshuffle`] for a size that the compiler knows.
fn planes<const N: usize>(from: &[u8], to: &mut [u8]) {
    let count = from.len() / N;
    let whole = count * N;
    let rows: [&[u8]; N] = std::array::from_fn(|n| &from[n * count..][..count]);
    let (elements, rest) = to.as_chunks_mut::<N>();
    for (n, element) in elements.iter_mut().enumerate() {
        *element = std::array::from_fn(|plane| rows[plane][n]);
    }
    rest.copy_from_slice(&from[whole..]);
}

/// Stores the bytes of elements of `typesize` bytes by significance.
pub(super) fn shuffle(typesize: usize, from: &[u8], to: &mut [u8]) {
    let typesize = typesize.max(1);
    let count = from.len() / typesize;
    let whole = count * typesize;
    if count > 0 {
        for (byte, plane) in to[..whole].chunks_exact_mut(count).enumerate() {
            for (value, element) in plane.iter_mut().zip(from.chunks_exact(typesize)) {
                *value = element[byte];
            }
        }
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// Stores the bits of elements of `typesize` bytes by significance, by the rule of Blosc1: all elements, or none where their
/// number is not a multiple of eight.
pub(super) fn bit_shuffle(typesize: usize, from: &[u8], to: &mut [u8]) {
    let typesize = typesize.max(1);
    let count = from.len() / typesize;
    let groups = if count.is_multiple_of(8) {
        count / 8
    } else {
        0
    };
    let whole = groups * 8 * typesize;
    if groups > 0 {
        for (byte, rows) in to[..whole].chunks_exact_mut(groups * 8).enumerate() {
            for (group, elements) in from[..whole].chunks_exact(8 * typesize).enumerate() {
                let column = std::array::from_fn(|n| elements[n * typesize + byte]);
                let bits = transposed(u64::from_le_bytes(column));
                for (row, value) in rows.chunks_exact_mut(groups).zip(bits.to_le_bytes()) {
                    row[group] = value;
                }
            }
        }
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// Puts bits that were stored by significance back into elements of `typesize` bytes.
///
/// `blosc1` chooses the rule of Blosc1 (format version 2) for a number of elements that is not a multiple of eight: nothing is
/// transposed. Blosc2 transposes the elements before the last incomplete group.
pub(super) fn bit_unshuffle(typesize: usize, blosc1: bool, from: &[u8], to: &mut [u8]) {
    let typesize = typesize.max(1);
    let count = from.len() / typesize;
    let groups = if blosc1 && !count.is_multiple_of(8) {
        0
    } else {
        count / 8
    };
    let whole = groups * 8 * typesize;
    if groups > 0 {
        // One row per bit of an element, of one byte per group; the first element is in the lowest bit.
        for (byte, rows) in from[..whole].chunks_exact(groups * 8).enumerate() {
            let rows: [&[u8]; 8] = std::array::from_fn(|bit| &rows[bit * groups..][..groups]);
            for (group, elements) in to[..whole].chunks_exact_mut(8 * typesize).enumerate() {
                let bits = transposed(u64::from_le_bytes(rows.map(|row| row[group])));
                for (element, value) in elements.chunks_exact_mut(typesize).zip(bits.to_le_bytes())
                {
                    element[byte] = value;
                }
            }
        }
    }
    to[whole..].copy_from_slice(&from[whole..]);
}

/// An 8 by 8 matrix of bits, rows as bytes, mirrored at its diagonal (Hacker's Delight §7-3).
fn transposed(mut x: u64) -> u64 {
    for (shift, mask) in [
        (7, 0x00AA_00AA_00AA_00AA),
        (14, 0x0000_CCCC_0000_CCCC),
        (28, 0x0000_0000_F0F0_F0F0),
    ] {
        let swap = (x ^ (x >> shift)) & mask;
        x ^= swap ^ (swap << shift);
    }
    x
}

/// Undoes the differences to a reference: to the element before within the first block of a chunk, else to the same place in
/// `first`, the decoded first block. Differences are exclusive ors of elements.
pub(super) fn undelta(typesize: usize, first: Option<&[u8]>, data: &mut [u8]) {
    let unit = match typesize {
        1 | 2 | 4 => typesize,
        _ if typesize.is_multiple_of(8) && typesize > 0 => 8,
        _ => 1,
    };
    let whole = data.len() / unit * unit;
    if let Some(first) = first {
        for (byte, reference) in data[..whole].iter_mut().zip(first) {
            *byte ^= reference;
        }
    } else {
        for n in unit..whole {
            data[n] ^= data[n - unit];
        }
    }
}

/// Undoes the differences of bytes of the same significance in data that is stored by significance.
pub(super) fn unbytedelta(typesize: usize, data: &mut [u8]) {
    let count = data.len() / typesize.max(1);
    for plane in data.chunks_exact_mut(count.max(1)).take(typesize) {
        let mut sum = 0u8;
        for byte in plane {
            sum = sum.wrapping_add(*byte);
            *byte = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: byte `p` of element `n` is at `p * count + n`.
    fn shuffled(typesize: usize, data: &[u8]) -> Vec<u8> {
        let count = data.len() / typesize;
        let mut out = data.to_vec();
        for n in 0..count {
            for p in 0..typesize {
                out[p * count + n] = data[n * typesize + p];
            }
        }
        out
    }

    /// The definition: bit `b` of byte `p` of element `n` is bit `n % 8` of byte `(p * 8 + b) * count / 8 + n / 8`.
    fn bit_shuffled(typesize: usize, count: usize, data: &[u8]) -> Vec<u8> {
        let mut out = data.to_vec();
        out[..count * typesize].fill(0);
        for n in 0..count {
            for bit in 0..typesize * 8 {
                let value = data[n * typesize + bit / 8] >> (bit % 8) & 1;
                out[bit * (count / 8) + n / 8] |= value << (n % 8);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn shuffling_is_undone(
            typesize in 1usize..20,
            data in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut out = vec![0; data.len()];
            shuffle(typesize, &data, &mut out);
            prop_assert_eq!(&out, &shuffled(typesize, &data));
            unshuffle(typesize, &shuffled(typesize, &data), &mut out);
            prop_assert_eq!(&out, &data);
            let count = data.len() / typesize;
            bit_unshuffle(typesize, false, &bit_shuffled(typesize, count / 8 * 8, &data), &mut out);
            prop_assert_eq!(&out, &data);
            let blosc1 = if count % 8 == 0 { bit_shuffled(typesize, count, &data) } else { data.clone() };
            bit_shuffle(typesize, &data, &mut out);
            prop_assert_eq!(&out, &blosc1);
            bit_unshuffle(typesize, true, &blosc1, &mut out);
            prop_assert_eq!(&out, &data);
        }

        #[test]
        fn differences_never_panic(
            typesize in 0usize..20,
            mut data in prop::collection::vec(any::<u8>(), 0..100),
            first in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
        ) {
            undelta(typesize, first.as_deref(), &mut data);
            unbytedelta(typesize, &mut data);
        }
    }
}
