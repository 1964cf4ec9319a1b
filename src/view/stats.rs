//! The smallest, the largest and the mean number of an array, how many of its elements are none, and how the others are spread.
//!
//! Elements are read once and in order. NaN counts for itself alone; infinities are numbers here, as in numpy.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub use super::sample::Histogram;
use super::sample::Sample;
use super::whole;
use crate::asdf::Snapshot;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::numbers::{
    MOST_READ, each_chunk, each_integer, each_number, nearest, single, unsigned,
};
use crate::codec::caller::{self, while_wanted};
use crate::codec::{Cache, cores};
use crate::error::Result;
use crate::source::Source;

/// Numbers of an array that are looked at for its histogram.
const SAMPLE: u64 = 1 << 16;

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

impl Stats {
    /// Those of so many numbers with this range and sum, and of so many NaN.
    fn of(range: Option<(Number, Number)>, sum: f64, count: u64, nan: u64) -> Self {
        let mean = range.map(|_| sum / unsigned(count));
        Self { range, mean, nan }
    }
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
        for_each(&all, |i| self.stats(i, &mut |_| {}))
    }

    /// [`Snapshot::all_stats`] of these arrays alone, and how their numbers are spread.
    #[must_use]
    pub fn spreads(&self, arrays: &[usize]) -> Vec<Result<Option<Spread>>> {
        for_each(arrays, |i| {
            let array = self.array(i)?;
            let size = array.datatype().and_then(Datatype::size);
            let count = array.bin_len().checked_div(size.unwrap_or(1)).unwrap_or(0);
            let mut sample = Sample::new(count, SAMPLE);
            let stats = self.stats(i, &mut |number| sample.take(number))?;
            Ok(stats.map(|stats| (stats, Histogram::of(sample))))
        })
    }
}

/// The statistics of an array, and how its numbers are spread, if they are not all one.
pub type Spread = (Stats, Option<Histogram>);

/// What each of these arrays comes to, in their order. A thread for each core takes the next array until none is left, so that a large
/// one keeps no other core waiting.
fn for_each<T: Send + Sync>(arrays: &[usize], of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let found: Vec<_> = arrays.iter().map(|_| OnceLock::new()).collect();
    let (next, wanted) = (AtomicUsize::new(0), caller::current());
    let work = || {
        while_wanted(wanted.clone(), || {
            while let n = next.fetch_add(1, Ordering::Relaxed)
                && let Some((to, i)) = found.get(n).zip(arrays.get(n))
            {
                to.get_or_init(|| of(*i));
            }
        });
    };
    thread::scope(|scope| {
        for _ in 1..cores().min(found.len()) {
            // without a thread, this one does its work
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    found.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Reads all elements, of this type and byte order, in chunks, and calls `each` with each of them.
fn stats_of(
    cache: &Cache,
    elements: &dyn Source,
    (scalar, order): (Scalar, ByteOrder),
    each: &mut impl FnMut(f64),
) -> Result<Stats> {
    let (len, mut count) = (elements.len(), 0_u64);
    if matches!(scalar, Scalar::Int64 | Scalar::Uint64) {
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
        return Ok(Stats::of(range, nearest(sum), count, 0));
    }
    let (mut range, mut sum, mut nan) = (None::<(f64, f64)>, 0.0, 0_u64);
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
    let range = range.map(|(low, high)| (number(low), number(high)));
    Ok(Stats::of(range, sum, count, nan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

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
}
