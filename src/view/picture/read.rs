//! The elements of an array, read in order or at some places, and what blocks of a plane come to.

use std::sync::Arc;

use crate::asdf::datatype::{ByteOrder, Scalar};
use crate::asdf::numbers::{each_chunk, each_integer, each_number, unsigned};
use crate::codec::Cache;
use crate::error::Result;
use crate::source::{Source, Window};

/// Elements of a type that can be read.
pub(super) struct Reader {
    pub(super) cache: Arc<Cache>,
    pub(super) elements: Arc<dyn Source>,
    pub(super) scalar: Scalar,
    pub(super) order: ByteOrder,
}

impl Reader {
    /// Calls `each` with so many numbers from number `first` on, in order: with the number, and with its bits if its type is unsigned.
    pub(super) fn run(
        &self,
        first: u64,
        count: u64,
        each: &mut impl FnMut(f64, u64),
    ) -> Result<()> {
        let size = u64::from(self.scalar.size());
        let (start, len) = (first.saturating_mul(size), count.saturating_mul(size));
        let part = Window::new(Arc::clone(&self.elements), start, len)?;
        each_chunk(&self.cache, &part, len, &mut |bytes| {
            self.numbers(bytes, each);
        })
    }

    /// Calls `each` with number `at`. Reads no more than that.
    pub(super) fn one(&self, at: u64, each: &mut impl FnMut(f64, u64)) -> Result<()> {
        let mut bytes = [0; 16];
        let bytes = bytes.get_mut(..self.scalar.size().into());
        let bytes = bytes.unwrap_or_default();
        let start = at.saturating_mul(self.scalar.size().into());
        self.elements.read_exact_at(bytes, start)?;
        self.numbers(bytes, each);
        Ok(())
    }

    fn numbers(&self, bytes: &[u8], each: &mut impl FnMut(f64, u64)) {
        let (scalar, order) = (self.scalar, self.order);
        match scalar {
            Scalar::Uint64 => each_integer(false, order, bytes, &mut |number| {
                let bits = u64::try_from(number).unwrap_or(u64::MAX);
                each(unsigned(bits), bits);
            }),
            _ if scalar.kind() == 'u' || scalar.kind() == 'b' => {
                each_number(scalar, order, bytes, &mut |number| {
                    each(number, bits(number));
                });
            }
            _ => each_number(scalar, order, bytes, &mut |number| each(number, 0)),
        }
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was an unsigned integer of 32 bits or fewer"
)]
fn bits(number: f64) -> u64 {
    number as u64
}

/// A plane in blocks, each of which is a point of its picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Columns and rows of the plane.
    pub(super) sides: (u64, u64),
    /// Columns and rows of a block.
    pub(super) block: (u64, u64),
    /// Blocks in a row, and rows of blocks.
    pub(super) points: (u16, u16),
}

impl Grid {
    /// Calls `each` with the numbers of the plane that begins at number `first` and has `channels` of them for each element. No more
    /// than about `most` bytes are read where that is possible: then some rows of each block, or one element of each.
    pub(super) fn read(
        &self,
        reader: &Reader,
        (first, channels): (u64, u64),
        most: u64,
        each: &mut impl FnMut(f64, u64),
    ) -> Result<()> {
        let row = self.sides.0.saturating_mul(channels);
        let sampled = self.sampled(row.saturating_mul(reader.scalar.size().into()), most);
        if sampled.block == self.block {
            return reader.run(first, row.saturating_mul(self.sides.1), each);
        }
        for y in 0..sampled.sides.1 {
            let within = y.checked_rem(sampled.block.1).unwrap_or(0);
            let block = y.checked_div(sampled.block.1).unwrap_or(0);
            let inside = within.saturating_mul(self.block.1);
            let inside = inside.checked_div(sampled.block.1).unwrap_or(0);
            let y = block.saturating_mul(self.block.1).saturating_add(inside);
            let y = y.min(self.sides.1.saturating_sub(1));
            let start = first.saturating_add(y.saturating_mul(row));
            if sampled.sides.0 == self.sides.0 {
                reader.run(start, row, each)?;
                continue;
            }
            reader.cache.check_wanted()?;
            for x in 0..sampled.sides.0 {
                let x = x.saturating_mul(self.block.0).saturating_mul(channels);
                for number in x..x.saturating_add(channels) {
                    reader.one(start.saturating_add(number), each)?;
                }
            }
        }
        Ok(())
    }

    /// What [`Grid::read`] reads of rows of so many bytes: a plane with the same points.
    pub(super) fn sampled(&self, row: u64, most: u64) -> Self {
        let points = (u64::from(self.points.0), u64::from(self.points.1));
        let rows = row.saturating_mul(points.1).max(1);
        match most.checked_div(rows).unwrap_or(0) {
            height if height >= self.block.1 => *self,
            0 => Self {
                sides: points,
                block: (1, 1),
                ..*self
            },
            height => Self {
                sides: (self.sides.0, points.1.saturating_mul(height)),
                block: (self.block.0, height),
                ..*self
            },
        }
    }
}

/// What the numbers of a block come to.
pub(super) trait Cell: Default + Clone {
    /// The outcome.
    type Sum;
    fn take(&mut self, number: f64, bits: u64);
    fn sum(&self) -> Self::Sum;
}

/// The mean of the finite numbers; NaN without one. How many they are: so many that a whole number of 32 bits has no room for them.
#[derive(Debug, Default, Clone)]
pub(super) struct Mean {
    sum: f64,
    count: f64,
}

#[cfg(test)]
impl Mean {
    /// The mean of so many numbers with that sum.
    pub(super) fn with(sum: f64, count: f64) -> Self {
        Self { sum, count }
    }
}

impl Cell for Mean {
    type Sum = f64;

    fn take(&mut self, number: f64, _: u64) {
        if number.is_finite() {
            self.sum += number;
            self.count += 1.0;
        }
    }

    fn sum(&self) -> f64 {
        self.sum / self.count
    }
}

/// The bits that any number has.
#[derive(Debug, Default, Clone)]
pub(super) struct AnyBit(u64);

impl Cell for AnyBit {
    type Sum = u64;

    fn take(&mut self, _: f64, bits: u64) {
        self.0 |= bits;
    }

    fn sum(&self) -> u64 {
        self.0
    }
}

/// The blocks of a plane, whose numbers come in order.
pub(super) struct Blocks<C: Cell> {
    grid: Grid,
    /// The row of blocks that is being read.
    cells: Vec<C>,
    /// The column and the row of the next number, the block it is in, and how many columns of that are left.
    at: (u64, u64),
    column: usize,
    left: u64,
    /// Of the rows of blocks that are done.
    pub(super) done: Vec<C::Sum>,
}

impl<C: Cell> Blocks<C> {
    /// None done yet.
    pub(super) fn new(grid: Grid) -> Self {
        Self {
            cells: vec![C::default(); grid.points.0.into()],
            at: (0, 0),
            column: 0,
            left: grid.block.0,
            grid,
            done: Vec::new(),
        }
    }

    /// Takes the next number.
    pub(super) fn take(&mut self, number: f64, bits: u64) {
        if let Some(cell) = self.cells.get_mut(self.column) {
            cell.take(number, bits);
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.column = self.column.saturating_add(1);
            self.left = self.grid.block.0;
        }
        self.at.0 = self.at.0.saturating_add(1);
        if self.at.0 >= self.grid.sides.0 {
            self.end_row();
        }
    }

    /// Goes on to the next row of numbers. Behind the last one of a row of blocks these are done.
    fn end_row(&mut self) {
        (self.column, self.left) = (0, self.grid.block.0);
        self.at = (0, self.at.1.saturating_add(1));
        let inside = self.at.1.checked_rem(self.grid.block.1).unwrap_or(0);
        if inside == 0 || self.at.1 == self.grid.sides.1 {
            self.done.extend(self.cells.iter().map(C::sum));
            self.cells.fill(C::default());
        }
    }
}
