//! The smallest, the largest and the mean number of an array, and how many of its elements are none.
//!
//! Elements are read once and in order. NaN counts for itself alone; infinities are numbers here, as in numpy.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

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
    fn new(range: Option<(Number, Number)>, sum: f64, count: u64, nan: u64) -> Self {
        let mean = range.map(|_| sum / unsigned(count));
        Self { range, mean, nan }
    }
}

/// Numbers that are being looked at.
#[derive(Debug, Default)]
struct Tally {
    range: Option<(f64, f64)>,
    count: u64,
    nan: u64,
    /// Of the finished chunks, and of this one: sums of few numbers are the more exact.
    sums: (f64, f64),
}

impl Tally {
    /// Counts a number, or one NaN more.
    fn take(&mut self, number: f64) {
        if number.is_nan() {
            self.nan = self.nan.saturating_add(1);
            return;
        }
        self.count = self.count.saturating_add(1);
        self.sums.1 += number;
        let (low, high) = self.range.unwrap_or((number, number));
        self.range = Some((low.min(number), high.max(number)));
    }

    /// Adds the sum of a chunk to those before. To be called before [`Tally::stats`].
    fn end_chunk(&mut self) {
        self.sums = (self.sums.0 + self.sums.1, 0.0);
    }

    /// The statistics, with numbers as an array of this type has them.
    fn stats(&self, scalar: Scalar) -> Stats {
        let number = |value: f64| match scalar {
            Scalar::Float64 => Number::Double(value),
            Scalar::Float16 | Scalar::Float32 => Number::Single(single(value)),
            _ => Number::Integer(whole(value).into()),
        };
        let range = self.range.map(|(low, high)| (number(low), number(high)));
        Stats::new(range, self.sums.0, self.count, self.nan)
    }
}

/// Integers of 64 bits, which are exact, and so is their sum.
#[derive(Debug, Default)]
struct Integers {
    range: Option<(i128, i128)>,
    count: u64,
    sum: i128,
}

impl Integers {
    fn take(&mut self, number: i128) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(number);
        let (low, high) = self.range.unwrap_or((number, number));
        self.range = Some((low.min(number), high.max(number)));
    }

    fn stats(&self) -> Stats {
        let number = |(low, high)| (Number::Integer(low), Number::Integer(high));
        Stats::new(self.range.map(number), nearest(self.sum), self.count, 0)
    }
}

impl Snapshot {
    /// Reads array `i` and tells of its numbers; `None` of strings, structures, complex numbers, which have no order,
    /// arrays of more than 2^40 bytes, and large ones that show the bytes of their block over and over.
    ///
    /// # Errors
    /// As [`Snapshot::array_bin`], and those of reading it.
    pub fn stats(&self, i: usize) -> Result<Option<Stats>> {
        let array = self.array(i)?;
        match array.datatype() {
            Some(Datatype::Scalar(Scalar::Complex64 | Scalar::Complex128, _)) => Ok(None),
            Some(Datatype::Scalar(scalar, order)) => {
                if array.bin_len() > MOST_READ || self.repeats_endlessly(array) {
                    return Ok(None);
                }
                let elements = self.array_bin(i)?;
                stats_of(self.cache(), &*elements, *scalar, *order).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// [`Snapshot::stats`] of every array, in their order. Reads them on all cores.
    #[must_use]
    pub fn all_stats(&self) -> Vec<Result<Option<Stats>>> {
        let count = self.arrays().len();
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        // each thread takes the array that is next, until none is left
        let wanted = caller::current();
        let work = || {
            let sender = sender.clone();
            while_wanted(wanted.clone(), || {
                while let i = next.fetch_add(1, Ordering::Relaxed)
                    && i < count
                    && sender.send((i, self.stats(i))).is_ok()
                {}
            });
        };
        thread::scope(|scope| {
            for _ in 1..cores().min(count) {
                // without a thread, this one does its work
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        drop(sender);
        let mut found: Vec<_> = receiver.iter().collect();
        found.sort_unstable_by_key(|(i, _)| *i);
        found.into_iter().map(|(_, stats)| stats).collect()
    }
}

/// Reads all elements, of this type and byte order, in chunks. Only 64-bit integers are counted as integers: all others are exact as `f64`.
fn stats_of(
    cache: &Cache,
    elements: &dyn Source,
    scalar: Scalar,
    order: ByteOrder,
) -> Result<Stats> {
    let (mut tally, mut integers) = (Tally::default(), Integers::default());
    let is_long = matches!(scalar, Scalar::Int64 | Scalar::Uint64);
    each_chunk(cache, elements, elements.len(), &mut |bytes| {
        if is_long {
            let is_signed = scalar == Scalar::Int64;
            each_integer(is_signed, order, bytes, &mut |number| integers.take(number));
        } else {
            each_number(scalar, order, bytes, &mut |number| tally.take(number));
            tally.end_chunk();
        }
    })?;
    Ok(if is_long {
        integers.stats()
    } else {
        tally.stats(scalar)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

    fn of(scalar: Scalar, bytes: Vec<u8>) -> Stats {
        let (cache, bytes) = (Cache::new(1 << 20), Memory::new(bytes));
        stats_of(&cache, &bytes, scalar, ByteOrder::Little).unwrap()
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
