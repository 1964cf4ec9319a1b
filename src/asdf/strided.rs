//! Views by strides: how the elements of an array lie in a block. Item size, shape, strides and offset are
//! proved once to stay inside it.
//!
//! Knows positions and lengths; never sees a byte. "C order" is the order of the elements with the last index running fastest,
//! and an offset "in C order" counts the bytes of the elements put one behind the other that way. Shapes, strides and axes are
//! listed slowest axis first, as in the tree.

use std::ops::Range;

use super::tile::{Tile, misplaced};
use crate::error::{Result, corrupt, unsupported};

/// Most dimensions of an array, as in NumPy.
pub const MAX_NDIM: usize = 32;

/// Most bytes of an array in C order. A stride of 0 repeats elements, so that a small block can hold a larger array: the block
/// bounds where elements lie, and not how often they are used.
pub const MAX_LEN: u64 = u64::MAX / 2;

/// Where the elements of an array are in a block of known length.
///
/// Invariant: every byte of every element lies inside the block.
#[derive(Debug, Clone)]
pub struct View {
    itemsize: u64,
    shape: Vec<u64>,
    /// Block offset of the element with all indices 0.
    origin: u64,
    /// Bytes in C order.
    len: u64,
    extent: Range<u64>,
    /// Axes that can't be walked as one, each of two steps or more.
    axes: Vec<Axis>,
    /// Bytes that lie in the block as in C order; at least one unless `len` is 0.
    run: u64,
    fortran_dense: bool,
}

/// A series of steps through the array at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Number of positions.
    pub count: u64,
    /// Bytes from one position to the next in the block.
    pub stride: i64,
    /// Bytes from one position to the next in C order.
    pub pitch: u64,
}

impl View {
    /// The view of elements in `shape` whose first one is at `offset` of a block of `block_len` bytes, with `strides` in bytes or
    /// else in C order without gaps.
    ///
    /// An array without elements, or of elements without bytes, touches no byte of the block: it may have any offset.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if an element reaches outside the block, the number of strides is wrong or the array exceeds
    /// [`MAX_LEN`]; [`Error::Unsupported`](crate::error::Error::Unsupported) above [`MAX_NDIM`].
    pub fn new(
        itemsize: u64,
        shape: &[u64],
        strides: Option<&[i64]>,
        offset: u64,
        block_len: u64,
    ) -> Result<Self> {
        if shape.len() > MAX_NDIM {
            let why = format!("{} dimensions, at most {MAX_NDIM} allowed", shape.len());
            return Err(unsupported(why));
        }
        if let Some(strides) = strides.filter(|strides| strides.len() != shape.len()) {
            let (strides, ndim) = (strides.len(), shape.len());
            return Err(corrupt(format!("{strides} strides for {ndim} dimensions")));
        }
        let len = c_order_len(itemsize, shape).ok_or_else(|| {
            corrupt(format!(
                "{shape:?} elements of {itemsize} bytes are 2^63 bytes or more"
            ))
        })?;
        let mut view = Self {
            itemsize,
            shape: shape.to_vec(),
            origin: 0,
            len,
            extent: 0..0,
            axes: Vec::new(),
            run: 0,
            fortran_dense: true,
        };
        // no byte of the block is touched, so strides and offset can't lead out of it
        if len == 0 {
            return Ok(view);
        }
        let steps = steps(itemsize, shape, strides).ok_or_else(misplaced)?;
        // the one proof on which every later position rests
        let (low, high) = reach(itemsize, &steps, offset).ok_or_else(|| {
            corrupt(format!(
                "strides reach beyond 2^64, but the block has {block_len} bytes"
            ))
        })?;
        view.extent = u64::try_from(low)
            .ok()
            .zip(u64::try_from(high).ok().filter(|&high| high <= block_len))
            .map(|(low, high)| low..high)
            .ok_or_else(|| {
                corrupt(format!(
                    "bytes {low}..{high} wanted of a block of {block_len}"
                ))
            })?;
        view.origin = offset;
        (view.axes, view.run) = merge(itemsize, &steps);
        view.fortran_dense = is_without_gaps(itemsize, steps.iter());
        Ok(view)
    }

    /// The number of whole rows from `offset` to the end of the block: what `'*'` stands for as the first dimension.
    ///
    /// `row` is the rest of the shape and `stride` the first stride, if the tree has one. Python's asdf counts the same way.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if that stride is not positive or a row has no bytes: then any number would do.
    /// Also if `offset` lies behind the end of the block: NumPy refuses it too, even for no rows.
    pub fn rows_to_end(
        itemsize: u64,
        row: &[u64],
        stride: Option<i64>,
        offset: u64,
        block_len: u64,
    ) -> Result<u64> {
        // with a stride, the gap behind a row belongs to it
        let step = match stride {
            Some(stride) => u64::try_from(stride).ok(),
            None => c_order_len(itemsize, row),
        };
        let left = block_len.checked_sub(offset).ok_or_else(|| {
            let why = format!("an array at byte {offset} wanted of a block of {block_len}");
            corrupt(why)
        })?;
        step.and_then(|step| left.checked_div(step))
            .ok_or_else(|| {
                let why = "a shape that begins with '*' needs rows of one byte or more and a positive first stride";
                corrupt(why)
            })
    }

    /// Bytes of all elements together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of one element.
    #[must_use]
    pub fn itemsize(&self) -> u64 {
        self.itemsize
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// From the first to behind the last byte of the block that belongs to an element; `0..0` if there is none.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// The axes that remain after neighbours that can be walked as one are merged.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// How many bytes lie together, at the least, wherever the array is entered at an element's first byte.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Whether the bytes of [`View::extent`] are the array in C order.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.axes.is_empty()
    }

    /// Whether the bytes of [`View::extent`] are the array with the first index running fastest.
    #[must_use]
    pub fn is_fortran_dense(&self) -> bool {
        self.fortran_dense
    }

    /// Whether no two elements share a byte, so that a write means one thing.
    ///
    /// Sorted by the size of their steps, each axis must step over all that the smaller ones cover. That holds for every view
    /// cut, transposed or reversed from an array. It is refused for views that interleave without touching, such as 3 × 2 bytes
    /// with strides 2 and 3: no program makes these, and to refuse a write harms nothing.
    #[must_use]
    pub fn is_injective(&self) -> bool {
        let mut steps: Vec<_> = self
            .axes
            .iter()
            .map(|axis| (axis.stride.unsigned_abs(), axis.count))
            .collect();
        steps.sort_unstable();
        steps
            .iter()
            // `covered` counts from the first to behind the last byte of all smaller axes
            .try_fold(self.run, |covered, &(step, count)| {
                let behind = count.checked_sub(1)?.checked_mul(step)?;
                behind.checked_add(covered).filter(|_| step >= covered)
            })
            .is_some()
    }

    /// Where the byte at `at` in C order is in the block, and how many bytes from there on follow each other in both orders.
    #[must_use]
    pub fn run_at(&self, at: u64) -> Option<(u64, u64)> {
        let (offset, inside) = self
            .axes
            .iter()
            .fold((self.origin, at), |(offset, at), axis| {
                let index = at.checked_div(axis.pitch).unwrap_or(0);
                (
                    step_by(offset, index, axis.stride),
                    at.checked_rem(axis.pitch).unwrap_or(0),
                )
            });
        // what is left of `at` behind the last axis counts within a run
        let left = self.run.checked_sub(inside).filter(|_| at < self.len)?;
        Some((offset.checked_add(inside)?, left))
    }

    /// Where the bytes of the range in C order are: runs of (block offset, length).
    pub fn runs(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let wanted = range.end.checked_sub(at).filter(|&wanted| wanted > 0)?;
            let (offset, left) = self.run_at(at)?;
            at = at.checked_add(left)?;
            Some((offset, left.min(wanted)))
        })
    }

    /// The range in C order as boxes, in that order; at most two for each axis, and one more.
    #[must_use]
    pub(super) fn parts(&self, range: Range<u64>) -> Vec<Tile> {
        let mut parts = Vec::new();
        let range = range.start.min(self.len)..range.end.min(self.len);
        if range.start < range.end {
            split(&self.axes, self.run, self.origin, range, &mut parts);
        }
        parts
    }
}

/// Bytes of the elements together, or `None` above [`MAX_LEN`].
fn c_order_len(itemsize: u64, shape: &[u64]) -> Option<u64> {
    if itemsize == 0 || shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(itemsize, |len, &count| len.checked_mul(count))
        .filter(|&len| len <= MAX_LEN)
}

/// The strides of an array in C order without gaps, or `None` from 2^63 bytes on. Without elements the strides mean nothing; an
/// axis of length 0 then counts like one of length 1.
pub(super) fn c_strides(itemsize: u64, shape: &[u64]) -> Option<Vec<i64>> {
    let mut next = i64::try_from(itemsize).ok()?;
    let strides = shape.iter().rev().map(|&count| {
        let stride = next;
        next = stride.checked_mul(i64::try_from(count.max(1)).ok()?)?;
        Some(stride)
    });
    let mut strides = strides.collect::<Option<Vec<_>>>()?;
    strides.reverse();
    Some(strides)
}

/// The dimensions that have steps, as (count, stride). `shape` and `itemsize` have passed [`c_order_len`] as not empty.
fn steps(itemsize: u64, shape: &[u64], strides: Option<&[i64]>) -> Option<Vec<(u64, i64)>> {
    let given = strides.map(<[i64]>::to_vec);
    let strides = given.or_else(|| c_strides(itemsize, shape))?;
    let steps = shape.iter().copied().zip(strides);
    // an axis of one element takes no step, whatever its stride says
    Some(steps.filter(|&(count, _)| count > 1).collect())
}

/// The lowest offset of an element and the end of the highest, or `None` beyond what can be counted.
fn reach(itemsize: u64, steps: &[(u64, i64)], offset: u64) -> Option<(i128, i128)> {
    // in 128 bits one count times one stride can't overflow, but the sum of all axes can
    let first = (
        i128::from(offset),
        i128::from(offset).checked_add(i128::from(itemsize))?,
    );
    steps
        .iter()
        .try_fold(first, |(low, high), &(count, stride)| {
            let last = i128::from(count)
                .checked_sub(1)?
                .checked_mul(i128::from(stride))?;
            Some((
                low.checked_add(last.min(0))?,
                high.checked_add(last.max(0))?,
            ))
        })
}

/// Whether walking `steps`, fastest first, leaves no gap.
fn is_without_gaps<'a>(itemsize: u64, mut steps: impl Iterator<Item = &'a (u64, i64)>) -> bool {
    steps
        .try_fold(i128::from(itemsize), |dense, &(count, stride)| {
            dense
                .checked_mul(i128::from(count))
                .filter(|_| i128::from(stride) == dense)
        })
        .is_some()
}

/// The same walk over the elements with as few axes as possible, and the bytes that lie together at its positions.
fn merge(itemsize: u64, steps: &[(u64, i64)]) -> (Vec<Axis>, u64) {
    let (mut run, mut pitch) = (itemsize, itemsize);
    let mut axes: Vec<Axis> = Vec::new();
    for &(count, stride) in steps.iter().rev() {
        match axes.last_mut() {
            // the elements of this axis lie one behind the other: it becomes a part of the run
            None if u64::try_from(stride) == Ok(run) => run = run.saturating_mul(count),
            // rows that follow each other at the distance of their elements are one long axis
            Some(inner) if continues(inner, stride) => {
                inner.count = inner.count.saturating_mul(count);
            }
            _ => axes.push(Axis {
                count,
                stride,
                pitch,
            }),
        }
        // below 2^63 to the last axis, as `c_order_len` has proved
        pitch = pitch.saturating_mul(count);
    }
    axes.reverse();
    (axes, run)
}

/// Whether one step of `stride` leads as far as all steps of `inner` and one more, so that both axes can be walked as one.
fn continues(inner: &Axis, stride: i64) -> bool {
    i128::from(inner.stride).checked_mul(i128::from(inner.count)) == Some(i128::from(stride))
}

/// The block offset `index` steps from `offset`; exact, because [`View::new`] proved that every element is in the block.
fn step_by(offset: u64, index: u64, stride: i64) -> u64 {
    // two's complement: a negative stride wraps round to the right offset
    offset.wrapping_add(index.wrapping_mul(stride.cast_unsigned()))
}

/// Appends to `out` the boxes of `range`, which counts from `offset` in the order of `axes`.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a pitch is never 0, and all sums stay below the length of the array, which is below 2^63"
)]
fn split(axes: &[Axis], run: u64, offset: u64, range: Range<u64>, out: &mut Vec<Tile>) {
    let Some((&outer, inner)) = axes.split_first() else {
        out.push(Tile::new(
            offset + range.start,
            &[],
            range.end - range.start,
        ));
        return;
    };
    let position = |index| step_by(offset, index, outer.stride);
    let mut at = range.start;
    let (index, inside) = (at / outer.pitch, at % outer.pitch);
    // the rest of a row that begins in front of the range
    if inside > 0 {
        let end = range.end.min(at - inside + outer.pitch);
        split(
            inner,
            run,
            position(index),
            inside..end - (at - inside),
            out,
        );
        at = end;
    }
    // all whole rows, as one box
    let count = (range.end - at) / outer.pitch;
    if count > 0 {
        let start = position(at / outer.pitch);
        let this = (count > 1).then_some(Axis { count, ..outer });
        let axes: Vec<Axis> = this.into_iter().chain(inner.iter().copied()).collect();
        out.push(Tile::new(start, &axes, run));
        at += count * outer.pitch;
    }
    // the first part of a row that goes on behind the range
    if at < range.end {
        split(
            inner,
            run,
            position(at / outer.pitch),
            0..range.end - at,
            out,
        );
    }
}

#[cfg(test)]
#[path = "tests/strided.rs"]
mod tests;
