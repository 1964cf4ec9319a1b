//! The elements of an array, read in order or at some places, and what blocks of a plane come to.

use std::sync::Arc;

use crate::asdf::Array;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::numbers::{each_chunk, each_integer, each_number, unsigned};
use crate::codec::Cache;
use crate::error::Result;
use crate::source::{Source, Window};
use crate::view::stats::Sample;
use crate::view::{Elements, whole};

/// Elements of a plane or a line that are looked at for limits.
pub(super) const SAMPLE: u64 = 1 << 20;

/// An array of numbers, by its index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) array: usize,
    pub(super) scalar: Scalar,
    order: ByteOrder,
}

impl Numbers {
    /// Array `i`, if its elements are numbers.
    pub(super) fn of(i: usize, array: &Array) -> Option<Self> {
        let Some(Datatype::Scalar(scalar, order)) = array.datatype() else {
            return None;
        };
        Some(Self {
            array: i,
            scalar: *scalar,
            order: *order,
        })
    }

    /// Bytes of so many numbers.
    pub(super) fn bytes(self, count: u64) -> u64 {
        count.saturating_mul(self.scalar.size().into())
    }

    /// Opens their elements.
    pub(super) fn open(self, cache: &Arc<Cache>, elements: Elements<'_>) -> Result<Reader> {
        Ok(Reader {
            cache: Arc::clone(cache),
            elements: elements(self.array)?,
            numbers: self,
        })
    }
}

/// Numbers that can be read.
pub(super) struct Reader {
    cache: Arc<Cache>,
    elements: Arc<dyn Source>,
    numbers: Numbers,
}

impl Reader {
    /// Calls `each` with so many numbers from number `first` on, in order: with the number, and with its bits if its type is unsigned.
    pub(super) fn run(
        &self,
        first: u64,
        count: u64,
        each: &mut impl FnMut(f64, u64),
    ) -> Result<()> {
        let (start, len) = (self.numbers.bytes(first), self.numbers.bytes(count));
        let part = Window::new(Arc::clone(&self.elements), start, len)?;
        each_chunk(&self.cache, &part, len, &mut |bytes| {
            self.numbers(bytes, each);
        })
    }

    /// Calls `each` with number `at`. Reads no more than that.
    pub(super) fn one(&self, at: u64, each: &mut impl FnMut(f64, u64)) -> Result<()> {
        // the longest number is a complex one of two float64
        let mut bytes = [0; 16];
        let bytes = bytes.get_mut(..self.numbers.scalar.size().into());
        let bytes = bytes.unwrap_or_default();
        self.elements.read_exact_at(bytes, self.numbers.bytes(at))?;
        self.numbers(bytes, each);
        Ok(())
    }

    fn numbers(&self, bytes: &[u8], each: &mut impl FnMut(f64, u64)) {
        let Numbers { scalar, order, .. } = self.numbers;
        if scalar == Scalar::Uint64 {
            // a float64 has 53 bits of them, and would lose the lowest flags
            each_integer(false, order, bytes, &mut |number| {
                let bits = u64::try_from(number).unwrap_or(u64::MAX);
                each(unsigned(bits), bits);
            });
        } else if matches!(scalar.kind(), 'u' | 'b') {
            each_number(scalar, order, bytes, &mut |number| {
                each(number, u64::try_from(whole(number)).unwrap_or(0));
            });
        } else {
            each_number(scalar, order, bytes, &mut |number| each(number, 0));
        }
    }
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
    /// Calls `each` with the numbers of the plane that begins at number `first`, `channels` of them for each element. If they have more
    /// than `most` bytes, it reads some rows of each block, or one element of each.
    pub(super) fn read(
        &self,
        reader: &Reader,
        (first, channels): (u64, u64),
        most: u64,
        each: &mut impl FnMut(f64, u64),
    ) -> Result<()> {
        let row = self.sides.0.saturating_mul(channels);
        let sampled = self.sampled(reader.numbers.bytes(row), most);
        if sampled.block == self.block {
            return reader.run(first, row.saturating_mul(self.sides.1), each);
        }
        for y in 0..sampled.sides.1 {
            // the rows that are read of a block are spread over all of it
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

/// What the numbers of a block have come to.
#[derive(Debug, Default, Clone, Copy)]
struct Cell {
    sum: f64,
    /// How many are finite. The numbers of a block can be too many for a whole number of 32 bits.
    finite: f64,
    /// The bits that any of them has.
    bits: u64,
}

/// The blocks of a plane, whose numbers come in order.
pub(super) struct Blocks {
    grid: Grid,
    /// The row of blocks that is being read.
    cells: Vec<Cell>,
    /// The column and the row of the next number, the block it is in, and how many columns of that are left.
    at: (u64, u64),
    column: usize,
    left: u64,
    /// Of each block in the rows of blocks that are done: the mean of its finite numbers, or NaN without one.
    pub(super) means: Vec<f64>,
    /// The bits that any number of it has.
    pub(super) bits: Vec<u64>,
    /// Some of all numbers.
    pub(super) sample: Sample,
    /// How many numbers there are in all, and how many that are infinite or NaN.
    pub(super) count: u64,
    pub(super) not_finite: u64,
}

impl Blocks {
    /// None done yet.
    pub(super) fn new(grid: Grid) -> Self {
        let count = grid.sides.0.saturating_mul(grid.sides.1);
        Self {
            cells: vec![Cell::default(); grid.points.0.into()],
            at: (0, 0),
            column: 0,
            left: grid.block.0,
            grid,
            means: Vec::new(),
            bits: Vec::new(),
            sample: Sample::new(count, SAMPLE),
            count,
            not_finite: 0,
        }
    }

    /// Takes the next number.
    pub(super) fn take(&mut self, number: f64, bits: u64) {
        self.sample.take(number);
        if let Some(cell) = self.cells.get_mut(self.column) {
            cell.bits |= bits;
            if number.is_finite() {
                cell.sum += number;
                cell.finite += 1.0;
            } else {
                self.not_finite = self.not_finite.saturating_add(1);
            }
        }
        // counted down: a division for each number would take longer than all else
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
            let done = self.cells.iter();
            self.means.extend(done.clone().map(|it| it.sum / it.finite));
            self.bits.extend(done.map(|it| it.bits));
            self.cells.fill(Cell::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count stopped at its largest number, while the sum went on.
    #[test]
    fn a_block_of_billions_of_elements_has_their_mean() {
        let grid = Grid {
            sides: (2, 1),
            block: (2, 1),
            points: (1, 1),
        };
        let mut blocks = Blocks::new(grid);
        blocks.cells[0].sum = 4_294_967_295.0;
        blocks.cells[0].finite = f64::from(u32::MAX);
        blocks.take(8_589_934_592.0, 0);
        blocks.take(8_589_934_592.0, 0);
        let want: f64 = (4_294_967_295.0 + 2.0 * 8_589_934_592.0) / 4_294_967_297.0;
        assert_eq!(blocks.means[0].to_bits(), want.to_bits());
    }
}
