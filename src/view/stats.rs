//! The smallest, the largest and the mean number of an array, how many of its elements are none, and how the others are spread.
//!
//! Elements are read once and in order. NaN counts for itself alone; infinities are numbers here, as in numpy.

use std::fmt;

use super::whole;
use crate::asdf::Snapshot;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::numbers::{
    MOST_READ, each_chunk, each_integer, each_number, nearest, single, unsigned,
};
use crate::codec::Cache;
use crate::codec::cores::{on_all_cores, program_panicked};
use crate::error::Result;
use crate::source::{Source, len_u64};

/// Numbers of an array that are looked at for its histogram.
const SAMPLE: u64 = 1 << 16;
/// Parts of the range of a histogram.
const PARTS: usize = 60;
/// The part of all numbers below and above that is left out, as few of them would stretch the range.
const BEYOND: usize = 500;

/// A number as its array has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Of an array of integers.
    Integer(i128),
    /// Of float16 and float32, whose numbers have fewer digits.
    Single(f32),
    /// Of float64.
    Double(f64),
}

impl fmt::Display for Number {
    /// As few digits as tell it from all others of its type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Single(number) => write!(f, "{number:?}"),
            Self::Double(number) => write!(f, "{number:?}"),
        }
    }
}

/// What is known of the numbers of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    /// The smallest and the largest; none if there is no number.
    pub range: Option<(Number, Number)>,
    /// The mean.
    pub mean: Option<f64>,
    /// How many elements are NaN.
    pub nan: u64,
}

impl Snapshot {
    /// Reads array `i` and tells of its numbers, and calls `each` with each of them; `None` of strings, structures, complex numbers, which
    /// have no order, arrays of more than 2^40 bytes, and large ones that show the bytes of their block over and over.
    ///
    /// # Errors
    /// As [`Snapshot::array_bin`], and those of reading it.
    fn stats(&self, i: usize, each: &mut impl FnMut(f64)) -> Result<Option<Stats>> {
        let array = self.array(i)?;
        match array.datatype() {
            Some(Datatype::Scalar(Scalar::Complex64 | Scalar::Complex128, _)) => Ok(None),
            Some(Datatype::Scalar(scalar, order)) => {
                if array.bin_len() > MOST_READ || self.repeats_endlessly(array) {
                    return Ok(None);
                }
                let elements = self.array_bin(i)?;
                stats_of(self.cache(), &*elements, (*scalar, *order), each).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What is known of the numbers of every array, in their order. Reads them on all cores; `None` of what has no order or no end.
    #[must_use]
    pub fn all_stats(&self) -> Vec<Result<Option<Stats>>> {
        let all: Vec<usize> = (0..self.arrays().len()).collect();
        on_all_cores(&all, |i| self.stats(*i, &mut |_| {}), program_panicked)
    }

    /// [`Snapshot::all_stats`] of these arrays alone, and how their numbers are spread.
    #[must_use]
    pub fn spreads(&self, arrays: &[usize]) -> Vec<Result<Option<Spread>>> {
        let spread = |i: &usize| {
            let array = self.array(*i)?;
            let size = array.datatype().and_then(Datatype::size);
            let count = array.bin_len().checked_div(size.unwrap_or(1)).unwrap_or(0);
            let mut sample = Sample::new(count, SAMPLE);
            let stats = self.stats(*i, &mut |number| sample.take(number))?;
            Ok(stats.map(|stats| (stats, Histogram::of(sample))))
        };
        on_all_cores(arrays, spread, program_panicked)
    }
}

/// The statistics of an array, and how its numbers are spread, if they are not all one.
pub type Spread = (Stats, Option<Histogram>);

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

/// Reads all elements, of this type and byte order, in chunks, and calls `each` with each of them.
fn stats_of(
    cache: &Cache,
    elements: &dyn Source,
    (scalar, order): (Scalar, ByteOrder),
    each: &mut impl FnMut(f64),
) -> Result<Stats> {
    let (len, mut count, mut nan) = (elements.len(), 0_u64, 0_u64);
    let (range, sum) = if matches!(scalar, Scalar::Int64 | Scalar::Uint64) {
        // only these are counted as integers: all others are exact as `f64`
        let is_signed = scalar == Scalar::Int64;
        let (mut range, mut sum) = (None::<(i128, i128)>, 0_i128);
        each_chunk(cache, elements, len, &mut |bytes| {
            each_integer(is_signed, order, bytes, &mut |number| {
                count = count.saturating_add(1);
                sum = sum.saturating_add(number);
                let (low, high) = range.unwrap_or((number, number));
                range = Some((low.min(number), high.max(number)));
                each(nearest(number));
            });
        })?;
        let range = range.map(|(low, high)| (Number::Integer(low), Number::Integer(high)));
        (range, nearest(sum))
    } else {
        let (mut range, mut sum) = (None::<(f64, f64)>, 0.0);
        each_chunk(cache, elements, len, &mut |bytes| {
            // sums of few numbers are the more exact: each chunk has its own
            let mut of_chunk = 0.0;
            each_number(scalar, order, bytes, &mut |number: f64| {
                if number.is_nan() {
                    nan = nan.saturating_add(1);
                    return;
                }
                each(number);
                count = count.saturating_add(1);
                of_chunk += number;
                let (low, high) = range.unwrap_or((number, number));
                range = Some((low.min(number), high.max(number)));
            });
            sum += of_chunk;
        })?;
        let number = |number: f64| match scalar {
            Scalar::Float64 => Number::Double(number),
            Scalar::Float16 | Scalar::Float32 => Number::Single(single(number)),
            _ => Number::Integer(whole(number).into()),
        };
        (range.map(|(low, high)| (number(low), number(high))), sum)
    };
    let mean = range.map(|_| sum / unsigned(count));
    Ok(Stats { range, mean, nan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::error::Error;
    use crate::source::Memory;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Bytes whose readers panic once this is wanted.
    struct Panicking(Memory, AtomicBool);

    impl Source for Panicking {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            assert!(!self.1.load(Ordering::Relaxed), "of a test");
            self.0.read_exact_at(buf, offset)
        }
    }

    /// The file was said to be damaged, and a codec to have panicked, though none was there.
    #[test]
    fn a_panic_is_no_damage_of_the_file() {
        let text = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [8]}\n...\n";
        let bytes = crate::asdf::sample::Sample::new()
            .text(text)
            .block(&[0; 8])
            .bytes();
        let bytes = Arc::new(Panicking(Memory::new(bytes), AtomicBool::new(false)));
        let (cache, options) = (Cache::new(1 << 20), OpenOptions::default());
        let snapshot = Snapshot::read(None, bytes.clone(), cache, options).unwrap();
        bytes.1.store(true, Ordering::Relaxed);
        let all = snapshot
            .all_stats()
            .into_iter()
            .map(|stats| stats.map(drop));
        let spreads = snapshot.spreads(&[0]).into_iter();
        for found in all.chain(spreads.map(|spread| spread.map(drop))) {
            let error = found.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            assert_eq!(
                error.to_string(),
                "a panic of this program, which is no fault of the file"
            );
        }
    }

    fn of(scalar: Scalar, bytes: Vec<u8>) -> Stats {
        let (cache, bytes) = (Cache::new(1 << 20), Memory::new(bytes));
        stats_of(&cache, &bytes, (scalar, ByteOrder::Little), &mut |_| {}).unwrap()
    }

    /// Smallest, largest, mean and count of NaN, as they are listed.
    fn text(stats: Stats) -> String {
        let range = stats.range.map(|(low, high)| format!("{low} {high}"));
        format!("{range:?} {:?} {}", stats.mean, stats.nan)
    }

    #[test]
    fn nan_counts_for_itself() {
        let values = [0.1_f32, f32::NAN, 2.5, -1.0].map(f32::to_le_bytes);
        let found = of(Scalar::Float32, values.concat());
        assert_eq!(text(found), "Some(\"-1.0 2.5\") Some(0.5333333338300387) 1");
        let found = of(Scalar::Float64, f64::NAN.to_le_bytes().to_vec());
        assert_eq!(text(found), "None None 1");
        let values = [f64::INFINITY, 1.0].map(f64::to_le_bytes);
        let found = of(Scalar::Float64, values.concat());
        assert_eq!(text(found), "Some(\"1.0 inf\") Some(inf) 0");
    }

    #[test]
    fn integers_are_exact() {
        let values = [u64::MAX, u64::MAX - 1].map(u64::to_le_bytes).concat();
        let found = of(Scalar::Uint64, values);
        let want =
            "Some(\"18446744073709551614 18446744073709551615\") Some(1.8446744073709552e19) 0";
        assert_eq!(text(found), want);
        let values = [i64::MIN, -1].map(i64::to_le_bytes).concat();
        assert_eq!(
            text(of(Scalar::Int64, values)),
            "Some(\"-9223372036854775808 -1\") Some(-4.611686018427388e18) 0"
        );
        assert_eq!(
            text(of(Scalar::Bool8, vec![0, 1, 1, 1])),
            "Some(\"0 1\") Some(0.75) 0"
        );
        assert_eq!(text(of(Scalar::Int16, vec![])), "None None 0");
    }

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
