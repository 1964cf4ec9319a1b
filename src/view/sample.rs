//! Samples of the numbers of an array, and how they are spread.

use crate::asdf::numbers::unsigned;
use crate::source::len_u64;

/// Parts of the range of a histogram.
const PARTS: usize = 60;
/// The part of all numbers below and above that is left out, as few of them would stretch the range.
const BEYOND: usize = 500;

/// The finite ones of many numbers that come in order: all, or some of each part of them.
pub(super) struct Sample {
    pub(super) numbers: Vec<f64>,
    /// From one that is looked at to the next: on average, and now.
    step: u64,
    left: u64,
    state: u64,
}

impl Sample {
    /// No number yet. Of so many, about `most` will be looked at.
    pub(super) fn new(count: u64, most: u64) -> Self {
        let step = count.div_ceil(most.max(1)).max(1);
        Self {
            numbers: Vec::new(),
            step,
            left: step.div_ceil(2),
            state: 0,
        }
    }

    /// Takes the next number.
    pub(super) fn take(&mut self, number: f64) {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        if number.is_finite() {
            self.numbers.push(number);
        }
        // steps of many lengths: of a plane of any width, no column is preferred (Knuth's MMIX generator)
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let longest = self.step.saturating_mul(2).saturating_sub(1);
        let more = (self.state >> 33).checked_rem(longest).unwrap_or(0);
        self.left = more.saturating_add(1);
    }
}

/// How many of the numbers of an array are in each part of their range.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Where it begins and ends.
    pub limits: (f64, f64),
    /// How high each part is, from 0 to 1, by the logarithm of its count.
    pub heights: Vec<f64>,
}

impl Histogram {
    /// Of the numbers of a sample; none if all of them are one.
    pub(super) fn of(sample: Sample) -> Option<Self> {
        let mut sorted = sample.numbers;
        sorted.sort_unstable_by(f64::total_cmp);
        let beyond = sorted.len() / BEYOND;
        let kept = sorted.get(beyond..sorted.len().saturating_sub(beyond))?;
        let (low, high) = (*kept.first()?, *kept.last()?);
        let range = high - low;
        if !(range.is_finite() && range > 0.0) {
            return None;
        }
        let mut before = 0;
        let heights = (1..=len_u64(PARTS)).map(|n| {
            let end = low + range * (unsigned(n) / unsigned(len_u64(PARTS)));
            let below = kept.partition_point(|number| *number <= end);
            let count = below.saturating_sub(std::mem::replace(&mut before, below));
            unsigned(len_u64(count).saturating_add(1)).ln()
        });
        let heights: Vec<f64> = heights.collect();
        let most = heights.iter().copied().fold(0.0, f64::max);
        Some(Self {
            limits: (low, high),
            heights: heights.iter().map(|height| height / most).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: &[f64], most: u64) -> Sample {
        let mut sample = Sample::new(len_u64(numbers.len()), most);
        for number in numbers {
            sample.take(*number);
        }
        sample
    }

    #[test]
    fn each_number_is_in_one_part() {
        let found = Histogram::of(sample(&[0.0, 1.0, 1.0, 60.0, f64::NAN], 10)).unwrap();
        assert_eq!((found.limits, found.heights.len()), ((0.0, 60.0), 60));
        for (part, height) in [(0, 1.0), (1, 0.0), (59, 0.5)] {
            assert!((found.heights[part] - height).abs() < 1e-9, "{part}");
        }
        assert_eq!(Histogram::of(sample(&[2.0, 2.0], 10)), None);
    }

    /// Each hundredth number was taken: of a hundred columns always the first.
    #[test]
    fn no_width_makes_a_sample_of_one_column() {
        for columns in [100, 250, 500, 987, 1000, 1024, 1597] {
            let ramp: Vec<f64> = (0..columns * 400).map(|i| f64::from(i % columns)).collect();
            let mut found = sample(&ramp, 4000).numbers;
            assert!((3000..5000).contains(&found.len()), "{}", found.len());
            found.sort_unstable_by(f64::total_cmp);
            for (part, want) in [(found.len() / 4, 0.25), (found.len() / 2, 0.5)] {
                let found = found[part] / f64::from(columns);
                assert!((found - want).abs() < 0.03, "{columns}: {found}");
            }
        }
    }
}
