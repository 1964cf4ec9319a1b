//! How the numbers that a picture shows are spread.

use super::short;
use crate::asdf::numbers::unsigned;
use crate::source::len_u64;

/// Parts of the range, and digits of its ends.
const PARTS: usize = 60;
const DIGITS: usize = 4;
/// The part of all numbers below and above that is left out, as few of them would stretch the range.
const BEYOND: usize = 500;

/// How many of the numbers that a picture shows are in each part of their range.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    limits: (f64, f64),
    counts: Vec<u64>,
}

impl Histogram {
    /// Of the finite ones of these; none if all of them are one.
    pub(super) fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.iter().copied().filter(|n| n.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let beyond = sorted.len() / BEYOND;
        let kept = sorted.get(beyond..sorted.len().saturating_sub(beyond))?;
        let (low, high) = (*kept.first()?, *kept.last()?);
        let range = high - low;
        if !(range.is_finite() && range > 0.0) {
            return None;
        }
        let numbers = (1..=len_u64(PARTS)).map(unsigned);
        let mut before = 0;
        let counts = numbers.map(|n| {
            let end = low + range * (n / unsigned(len_u64(PARTS)));
            let below = kept.partition_point(|number| *number <= end);
            len_u64(below.saturating_sub(std::mem::replace(&mut before, below)))
        });
        Some(Self {
            counts: counts.collect(),
            limits: (low, high),
        })
    }

    /// Where it begins and ends, in few digits.
    #[must_use]
    pub fn ends(&self) -> [String; 2] {
        [self.limits.0, self.limits.1].map(|end| short(end, DIGITS))
    }

    /// How high each part is, from 0 to 1, by the logarithm of its count.
    #[must_use]
    pub fn heights(&self) -> Vec<f64> {
        let logarithm = |count: &u64| unsigned(count.saturating_add(1)).ln();
        let most = self.counts.iter().max().map_or(1.0, logarithm);
        let heights = self.counts.iter().map(|count| logarithm(count) / most);
        heights.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_one_part() {
        let found = Histogram::of(&[0.0, 1.0, 1.0, 60.0, f64::NAN]).unwrap();
        assert_eq!(found.counts.iter().sum::<u64>(), 4);
        assert_eq!((found.counts[0], found.counts[59]), (3, 1));
        assert_eq!(found.ends(), ["0", "60"]);
        assert_eq!((found.heights()[0], found.heights()[1]), (1.0, 0.0));
        assert_eq!(Histogram::of(&[2.0, 2.0]), None);
    }
}
