//! Arrays whose elements are scattered over a block, read as if they lay in C order.
//!
//! A read is cut into boxes of the array, a box into tiles (`tile`). The pieces of a tile are read in the order of the
//! block into a scratch buffer, with small gaps read along because that is cheaper than another read, and the elements are
//! copied from there. So whole rows are read straight into place, and a column of a table costs one read of its rows.
//!
//! # Transposed arrays
//! A few rows of a transposed array are a few bytes of every row of the block: to read 128 KiB one touches all of the block.
//! Such arrays are gathered in bands of as many rows as memory allows, and a band is kept for the reads that follow, so that a
//! sequential read touches each part of the block once per band and not once per read. A single small read far from the last one is
//! gathered alone, if that costs less than a quarter of its band. Where not even a few rows fit into a band, as in a cube of more
//! than the budget with all axes reversed, the block is read once per band all the same, and that is slow.
//!
//! # Memory
//! Bands of all arrays together stay within the budget of one [`Buffers`], at most half of it for a band; a band that left it lives
//! on until the replies that use it are sent. Each read in progress has one scratch buffer of 1 MiB.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::buffers::Buffers;
use super::copy::copy;
use super::strided::View;
use super::tile::{Grain, Tile, in_memory, misplaced, positions};
use crate::codec::CountedBuf;
use crate::error::{Result, corrupt, lock};
use crate::source::{Borrower, Loan, Source, Window, checked_end, len_u64};

/// Divisor of a band's cost: a read that is not sequential uses a band if alone it would cost more than that part.
const ALONE: u64 = 4;

/// The elements of an array in C order.
pub struct Strided {
    inner: Arc<dyn Source>,
    view: View,
    buffers: Arc<Buffers>,
    /// The number under which `buffers` knows this array.
    array: u64,
    bands: Option<Banding>,
    /// End of the last read.
    next: AtomicU64,
    /// Held by a thread while it gathers a band, so that other threads that need the same band wait for it.
    gathering: Mutex<()>,
}

/// How an array is cut into bands.
#[derive(Debug, Clone, Copy)]
struct Banding {
    /// Bytes of a band; the last one before a multiple of `parent` may be shorter.
    len: u64,
    /// Bytes of the rows that a band is a part of.
    parent: u64,
    /// What gathering a band costs, in bytes.
    cost: u64,
}

impl Strided {
    /// The array that `view` shows of the block `inner`.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if the view was made for a longer block.
    pub fn new(inner: Arc<dyn Source>, view: View, buffers: &Arc<Buffers>) -> Result<Self> {
        if view.extent().end > inner.len() {
            let why = format!(
                "the array ends at {}, the block at {}",
                view.extent().end,
                inner.len()
            );
            return Err(corrupt(why));
        }
        Ok(Self {
            bands: Banding::choose(&view, buffers),
            array: buffers.number(),
            buffers: Arc::clone(buffers),
            inner,
            view,
            next: AtomicU64::new(0),
            gathering: Mutex::default(),
        })
    }

    /// The array that `view` shows of the block `inner`: a window if the elements already lie in C order, else gathered.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if the view was made for a longer block.
    pub fn open(
        inner: Arc<dyn Source>,
        view: View,
        buffers: &Arc<Buffers>,
    ) -> Result<Arc<dyn Source>> {
        if view.is_dense() {
            let extent = view.extent();
            return Ok(Arc::new(Window::new(inner, extent.start, view.len())?));
        }
        Ok(Arc::new(Self::new(inner, view, buffers)?))
    }

    /// Reads without bands.
    fn gather(&self, buf: &mut [u8], at: u64) -> Result<()> {
        let end = checked_end(at, buf.len(), self.view.len())?;
        // long runs are read straight into place, which costs no copy
        if self.view.run() >= self.buffers.grain.direct || self.view.is_dense() {
            let mut rest = buf;
            for (offset, len) in self.view.runs(at..end) {
                let (run, tail) = rest.split_at_mut(in_memory(len)?.min(rest.len()));
                self.inner.read_exact_at(run, offset)?;
                rest = tail;
            }
            return Ok(());
        }
        let mut rest = buf;
        for part in self.view.parts(at..end) {
            let (out, tail) = rest.split_at_mut(in_memory(part.len())?.min(rest.len()));
            part.cut(self.buffers.grain, &mut |tile| self.gather_tile(tile, out))?;
            rest = tail;
        }
        Ok(())
    }

    /// Puts the elements of `tile` into their places in `out`.
    fn gather_tile(&self, tile: &Tile, out: &mut [u8]) -> Result<()> {
        let first = in_memory(tile.first)?;
        let extent = in_memory(tile.extent())?;
        // an error counts only below: the bytes that can't be read may lie between the runs
        let lent = self.inner.lend(tile.low, extent, Borrower::Program);
        if let Ok(Some(Loan::Shared(bytes, range))) = lent {
            let from = (*bytes).as_ref().get(range).ok_or_else(misplaced)?;
            // All of the tile as one piece, with whatever is between its runs.
            let steps = tile.steps(&tile.pieces(u64::MAX))?;
            let copied = copy((from, 0), (out, first), &steps, in_memory(tile.run)?);
            return copied.ok_or_else(misplaced);
        }
        let pieces = tile.pieces(self.buffers.grain.gap);
        let (inside, between) = tile.walks.split_at(pieces.joined);
        // nothing to join: each run is read straight into place
        if inside.is_empty() {
            let run = in_memory(tile.run)?;
            return positions(between, tile.low, tile.first, &mut |offset, first| {
                let out = in_memory(first)
                    .ok()
                    .and_then(|first| out.get_mut(first..)?.get_mut(..run));
                self.inner.read_exact_at(out.ok_or_else(misplaced)?, offset)
            });
        }
        let (span, pitch) = (in_memory(pieces.span)?, in_memory(pieces.pitch())?);
        let steps = tile.steps(&pieces)?;
        self.buffers.with_scratch(|scratch| {
            let mut at = 0usize;
            positions(between, tile.low, 0, &mut |offset, _| {
                let piece = scratch.get_mut(at..).and_then(|rest| rest.get_mut(..span));
                at = at.saturating_add(pitch);
                self.inner
                    .read_exact_at(piece.ok_or_else(misplaced)?, offset)
            })?;
            let copied = copy((scratch, 0), (out, first), &steps, in_memory(tile.run)?);
            copied.ok_or_else(misplaced)
        })
    }

    /// Reads by way of the bands that hold the range.
    fn read_banded(&self, banding: &Banding, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.view.len())?;
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let band = banding.around(at, self.view.len());
            let stop = band.end.min(end);
            let (out, tail) =
                rest.split_at_mut(in_memory(stop.saturating_sub(at))?.min(rest.len()));
            // a read of exactly one band gains nothing from keeping it
            let whole = band == (at..stop);
            let wanted = || !whole && self.is_worth_a_band(banding, offset..end);
            match self.band(&band, wanted)? {
                Some(bytes) => {
                    let from = in_memory(at.saturating_sub(band.start))?;
                    let found = bytes.get(from..).and_then(|bytes| bytes.get(..out.len()));
                    out.copy_from_slice(found.ok_or_else(misplaced)?);
                }
                None => self.gather(out, at)?,
            }
            (rest, at) = (tail, stop);
        }
        Ok(())
    }

    /// Whether a read of `range` should gather the whole band: more reads will follow, or the read alone would cost too much.
    fn is_worth_a_band(&self, banding: &Banding, range: Range<u64>) -> bool {
        let sequential = self.next.load(Ordering::Relaxed) == range.start;
        let alone = || cost(&self.view, range, self.buffers.grain);
        sequential || alone().saturating_mul(ALONE) >= banding.cost
    }

    /// The band of `range` if it is kept. Else gathers it if it is `wanted`.
    fn band(
        &self,
        range: &Range<u64>,
        wanted: impl FnOnce() -> bool,
    ) -> Result<Option<Arc<CountedBuf>>> {
        let find = || self.buffers.find(self.array, range.start);
        if let Some(found) = find() {
            return Ok(Some(found));
        }
        if !wanted() {
            return Ok(None);
        }
        let _gathering = lock(&self.gathering);
        // another thread may have gathered it while this one waited
        if let Some(found) = find() {
            return Ok(Some(found));
        }
        let len = in_memory(range.end.saturating_sub(range.start))?;
        let mut room = self.buffers.room(len);
        self.gather(room.bytes(), range.start)?;
        Ok(room.keep(self.array, range.start))
    }
}

impl Source for Strided {
    fn len(&self) -> u64 {
        self.view.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.view.len())?;
        match &self.bands {
            Some(banding) => self.read_banded(banding, buf, offset)?,
            None => self.gather(buf, offset)?,
        }
        // only a hint for the next read: a lost race costs time and no byte
        self.next.store(end, Ordering::Relaxed);
        Ok(())
    }

    /// Lends bytes that lie inside one run of the block or one band.
    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        let end = checked_end(offset, len, self.view.len())?;
        let Some(banding) = &self.bands else {
            return match self.view.run_at(offset) {
                Some((start, left)) if len_u64(len) <= left => self.inner.lend(start, len, to),
                _ => Ok(None),
            };
        };
        let band = banding.around(offset, self.view.len());
        // a read of one whole band goes into its own buffer instead
        if end > band.end || (offset == band.start && end == band.end) {
            return Ok(None);
        }
        let wanted = || self.is_worth_a_band(banding, offset..end);
        let Some(bytes) = self.band(&band, wanted)? else {
            return Ok(None);
        };
        self.next.store(end, Ordering::Relaxed);
        let start = in_memory(offset.saturating_sub(band.start))?;
        Ok(Some(Loan::Shared(bytes, start..start.saturating_add(len))))
    }
}

impl Drop for Strided {
    fn drop(&mut self) {
        self.buffers.forget(self.array);
    }
}

impl Banding {
    /// The bands for arrays of `view`, if usual reads then cost two thirds or less.
    fn choose(view: &View, buffers: &Buffers) -> Option<Self> {
        let most = u64::try_from(buffers.budget / 2).ok()?;
        let (parent, len) = rows_below(view, most)?;
        let usual = buffers.grain.usual.min(most);
        let usual = rows_below(view, usual).map_or(usual, |(_, len)| len);
        let whole = |len| cost(view, 0..len, buffers.grain);
        let cost = whole(len);
        // cost per byte, multiplied out; in 128 bits, because both factors may have 64
        let by_bands = u128::from(cost).saturating_mul(u128::from(usual));
        let by_reads = u128::from(whole(usual)).saturating_mul(u128::from(len));
        // an array that shows few bytes over and over reads little: there the copies are the cost
        let cost = cost.max(len);
        (by_reads / 3 >= by_bands / 2).then_some(Self { len, parent, cost })
    }

    /// The band that holds the byte at `at`, of an array of `len` bytes.
    fn around(&self, at: u64, len: u64) -> Range<u64> {
        // bands are counted from the beginning of their `parent`
        let inside = at.checked_rem(self.parent).unwrap_or(0);
        let parent = at.saturating_sub(inside);
        let start = at.saturating_sub(inside.checked_rem(self.len).unwrap_or(0));
        let stop = parent.saturating_add(self.parent).min(len);
        start..start.saturating_add(self.len).min(stop)
    }
}

/// The slowest axis whose rows have at most `most` bytes. Returns the bytes of all rows along that axis, and the bytes of as
/// many rows as `most` holds.
fn rows_below(view: &View, most: u64) -> Option<(u64, u64)> {
    let axis = view.axes().iter().find(|axis| axis.pitch <= most)?;
    let rows = most.checked_div(axis.pitch)?.min(axis.count);
    Some((
        axis.pitch.saturating_mul(axis.count),
        axis.pitch.saturating_mul(rows),
    ))
}

/// The cost of gathering `range` without bands, in bytes.
fn cost(view: &View, range: Range<u64>, grain: Grain) -> u64 {
    let parts = view.parts(range).into_iter();
    let costs = parts.map(|part| {
        let pieces = part.pieces(grain.gap);
        // a read costs about as much as the gap that is still read along
        let each = pieces.span.saturating_add(grain.gap);
        pieces.count.saturating_mul(each)
    });
    costs.fold(0, u64::saturating_add)
}

#[cfg(test)]
#[path = "tests/gather.rs"]
mod tests;
