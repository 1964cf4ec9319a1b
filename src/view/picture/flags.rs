//! Flags and masks: unsigned integers of which each bit says something of its own.

use super::canvas::Rgb;
use crate::asdf::numbers::unsigned;

/// Where each value is a single bit, and one of them is that of this number or a higher one, these are flags whatever their name. Classes, labels and
/// counts of photons are never so.
const HIGH: usize = 8;
/// The colour of a bit that is alone, as of a mask.
const SINGLE: Rgb = [0xFF, 0xBB, 0x22];
/// What is in the names of flags.
const NAMES: [&str; 5] = ["dq", "flag", "mask", "quality", "bits"];

/// Whether an array of that name holds flags.
pub(super) fn is_named(name: &str) -> bool {
    let name = name.to_lowercase();
    NAMES.iter().any(|part| name.contains(part))
}

/// The flags of a plane.
pub(super) struct Flags {
    /// Elements in all, and those with each bit.
    total: u64,
    counts: [u64; 64],
    /// Whether no element has two of them.
    are_single: bool,
    is_named: bool,
}

impl Flags {
    /// None yet. What has such a name is flags.
    pub(super) fn new(is_named: bool) -> Self {
        Self {
            total: 0,
            counts: [0; 64],
            are_single: true,
            is_named,
        }
    }

    /// Takes the next element.
    pub(super) fn take(&mut self, bits: u64) {
        self.are_single &= bits.count_ones() < 2;
        if !self.are_single && !self.is_named {
            return;
        }
        self.total = self.total.saturating_add(1);
        let mut left = bits;
        while let Some(count) = self.counts.get_mut(lowest(left)) {
            *count = count.saturating_add(1);
            // one less turns over the lowest bit that is set, and all below it
            left &= left.wrapping_sub(1);
        }
    }

    /// Whether these are flags, and no numbers.
    pub(super) fn are_flags(&self) -> bool {
        let mut high = self.counts.iter().skip(HIGH);
        self.is_named || self.are_single && high.any(|count| *count > 0)
    }

    /// The bits that are set anywhere, their colours, and the parts of all elements that have them.
    pub(super) fn legend(&self) -> Vec<(usize, Rgb, f64)> {
        let bits = self.counts.iter().enumerate();
        let present: Vec<_> = bits.filter(|(_, count)| **count > 0).collect();
        let len = present.len();
        let numbered = present.into_iter().enumerate();
        let part = |count: u64| unsigned(count) / unsigned(self.total);
        let coloured = numbered.map(|(n, (bit, count))| (bit, colour(n, len), part(*count)));
        coloured.collect()
    }

    /// The colours of blocks with these bits: each that of its rarest bit, as a rare one would be lost behind a common one.
    pub(super) fn colours(&self, blocks: &[u64]) -> impl Iterator<Item = Rgb> {
        let mut legend = self.legend();
        legend.sort_by(|a, b| a.2.total_cmp(&b.2));
        blocks.iter().map(move |bits| {
            let has = |bit: usize| u32::try_from(bit).is_ok_and(|bit| bits >> bit & 1 == 1);
            let rarest = legend.iter().find(|(bit, ..)| has(*bit));
            rarest.map_or([0; 3], |(_, colour, _)| *colour)
        })
    }
}

/// The lowest bit that is set; 64 of none.
fn lowest(bits: u64) -> usize {
    usize::try_from(bits.trailing_zeros()).unwrap_or(64)
}

/// The colour of bit `n` of so many. Both digits of each part are equal: see [`super::canvas::Canvas::settle`].
fn colour(n: usize, count: usize) -> Rgb {
    let categories = colorous::TABLEAU10;
    let found = match categories.get(n) {
        _ if count == 1 => return SINGLE,
        Some(colour) if count <= categories.len() => colour.into_array(),
        _ => {
            // eleven hues and three shades: the first 33 bits differ, and neighbours in both
            let hue = colorous::SINEBOW.eval_rational(n % 11, 11).into_array();
            let darker = |part: u8| (part / 5).saturating_mul(3);
            let shade = |part: u8| match n % 3 {
                0 => part,
                1 => darker(part),
                _ => u8::MAX.saturating_sub(darker(u8::MAX.saturating_sub(part))),
            };
            hue.map(shade)
        }
    };
    found.map(|part| part >> 4 | part & 0xF0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits 0 and 31 looked alike, and so did bits 4 to 8.
    #[test]
    fn no_two_of_many_bits_look_alike() {
        for count in [2, 10, 11, 32] {
            let all: Vec<_> = (0..count).map(|n| colour(n, count)).collect();
            for (n, one) in all.iter().enumerate() {
                for other in all.iter().skip(n + 1).chain(&[[0; 3]]) {
                    let distances = one.iter().zip(other).map(|(a, b)| a.abs_diff(*b));
                    let distance: u32 = distances.map(u32::from).sum();
                    assert!(distance >= 0x40, "{count}: {one:x?} {other:x?}");
                }
            }
        }
    }
}
