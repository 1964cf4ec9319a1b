//! Boxes of an array in the order of the block, cut into tiles that fit a scratch buffer.
//!
//! Gathering and scattering share this. Both walk the block in ascending order, in pieces as long as the box allows, and put the
//! pieces one behind the other in a buffer. [`super::copy`] moves the elements from or to that buffer.

use super::copy::CopyAxis;
use super::strided::Axis;
use crate::error::{Error, Result, corrupt};

/// The sizes by which arrays are cut, all in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grain {
    /// Most bytes of the pieces of a tile in the scratch buffer.
    pub(super) scratch: u64,
    /// Most bytes between two runs that are still taken as one piece, together with these bytes: as many as can be copied in
    /// the time of one more read.
    pub(super) gap: u64,
    /// Runs of this length and more are read straight into place, one by one.
    pub(super) direct: u64,
    /// Size of the reads that a program is expected to make, to find out whether bands pay.
    pub(super) usual: u64,
}

impl Grain {
    /// For files in the page cache, with a scratch buffer that stays in the processor's second cache.
    pub(super) const DEFAULT: Self = Self {
        scratch: 1 << 20,
        gap: 4 << 10,
        direct: 8 << 10,
        usual: 128 << 10,
    };
}

/// Bytes between the pieces in the buffer, at the least: pieces at a distance of a power of two would compete for the same few
/// lines of the processor's cache.
const PADDING: u64 = 64;

/// A series of positions, ascending in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walk {
    /// Number of positions.
    pub(super) count: u64,
    /// Bytes from one position to the next in the block.
    pub(super) step: u64,
    /// Bytes from one position to the next in C order.
    pub(super) pitch: i64,
}

/// A box of an array, by its walks through the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tile {
    /// Block offset of its lowest byte.
    pub(super) low: u64,
    /// Where that byte is in C order, counted from the start of the box that this one was cut from.
    pub(super) first: u64,
    /// The walks, smallest step first.
    pub(super) walks: Vec<Walk>,
    /// Bytes that lie together at each position.
    pub(super) run: u64,
}

/// How a tile lies in the block: equal pieces at the positions of its last walks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pieces {
    /// How many of the tile's walks are inside a piece.
    pub(super) joined: usize,
    /// Length of a piece in bytes.
    pub(super) span: u64,
    /// Number of pieces.
    pub(super) count: u64,
}

impl Tile {
    /// The box whose first byte in C order is at `offset` of the block, and which has these axes with `run` bytes at each position.
    pub(super) fn new(offset: u64, axes: &[Axis], run: u64) -> Self {
        let mut tile = Self {
            low: offset,
            first: 0,
            walks: Vec::with_capacity(axes.len()),
            run,
        };
        for axis in axes {
            let step = axis.stride.unsigned_abs();
            let mut pitch = axis.pitch.cast_signed();
            // walked from its far end: ascending in the block, descending in C order
            if axis.stride < 0 {
                let last = axis.count.saturating_sub(1);
                tile.low = tile.low.wrapping_sub(last.wrapping_mul(step));
                tile.first = tile.first.wrapping_add(last.wrapping_mul(axis.pitch));
                pitch = pitch.wrapping_neg();
            }
            tile.walks.push(Walk {
                count: axis.count,
                step,
                pitch,
            });
        }
        // the block is read in ascending order, whatever the order of the axes: the kernel reads ahead then
        tile.walks.sort_by_key(|walk| walk.step);
        tile
    }

    /// Bytes of its elements in C order, at most as many as the whole array has.
    pub(super) fn len(&self) -> u64 {
        let counts = self.walks.iter().map(|walk| walk.count);
        counts.fold(self.run, u64::saturating_mul)
    }

    /// Bytes of the block from the lowest to behind the highest.
    pub(super) fn extent(&self) -> u64 {
        self.walks.iter().fold(self.run, grown)
    }

    /// The pieces, when runs at most `gap` bytes apart are taken together.
    pub(super) fn pieces(&self, gap: u64) -> Pieces {
        let mut pieces = Pieces {
            joined: 0,
            span: self.run,
            count: 1,
        };
        for (i, walk) in self.walks.iter().enumerate() {
            // sorted: behind the first step that is too far, no larger one is inside a piece
            if pieces.joined == i && walk.step <= pieces.span.saturating_add(gap) {
                pieces.joined = i.saturating_add(1);
                pieces.span = grown(pieces.span, walk);
            } else {
                pieces.count = pieces.count.saturating_mul(walk.count);
            }
        }
        pieces
    }

    /// The steps by which `copy` takes elements from the scratch buffer to C order.
    ///
    /// # Errors
    /// [`misplaced`] if a distance does not fit into memory.
    pub(super) fn steps(&self, pieces: &Pieces) -> Result<Vec<CopyAxis>> {
        // pieces stand one pitch apart, in the order in which `positions` comes to them
        let mut distance = pieces.pitch();
        let steps = self.walks.iter().enumerate().map(|(i, walk)| {
            let from = if i < pieces.joined {
                walk.step
            } else {
                let next = distance.saturating_mul(walk.count);
                std::mem::replace(&mut distance, next)
            };
            Some(CopyAxis {
                count: usize::try_from(walk.count).ok()?,
                from: isize::try_from(from).ok()?,
                to: isize::try_from(walk.pitch).ok()?,
            })
        });
        steps.collect::<Option<_>>().ok_or_else(misplaced)
    }

    /// Calls `each` for tiles that together are this one, ascending in the block as far as its walks allow.
    ///
    /// Each fits into the scratch buffer, or has no joined walks and so needs none.
    pub(super) fn cut(
        mut self,
        grain: Grain,
        each: &mut dyn FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let pieces = self.pieces(grain.gap);
        if pieces.joined == 0 || pieces.packed() <= grain.scratch {
            return each(&self);
        }
        let one_piece = pieces.joined == self.walks.len();
        // cut along the largest step, so that the tiles ascend in the block
        let Some(last) = self.walks.pop() else {
            return each(&self);
        };
        let rest = self.pieces(grain.gap);
        let fitting = if one_piece {
            // one long piece is cut into as many steps as leave it within the buffer
            let room = grain.scratch.checked_sub(rest.span);
            room.and_then(|room| room.checked_div(last.step))
                .map_or(1, |steps| steps.saturating_add(1))
        } else {
            // whole pieces: as many groups as fit, at least one, which is then cut again
            let each = rest.count.saturating_mul(rest.pitch());
            grain.scratch.checked_div(each).unwrap_or(1).max(1)
        };
        let mut done = 0;
        while done < last.count {
            let count = fitting.min(last.count.saturating_sub(done));
            let mut tile = self.moved(&last, done);
            if count > 1 {
                tile.walks.push(Walk { count, ..last });
            }
            tile.cut(grain, each)?;
            done = done.saturating_add(count);
        }
        Ok(())
    }

    /// The same tile, `index` positions further on `walk`.
    fn moved(&self, walk: &Walk, index: u64) -> Self {
        let (low, first) = walk.from(self.low, self.first, index);
        Self {
            low,
            first,
            ..self.clone()
        }
    }
}

impl Walk {
    /// The block offset and offset in C order, `index` positions from these.
    pub(super) fn from(&self, low: u64, first: u64, index: u64) -> (u64, u64) {
        // Exact: a view proves that its positions lie inside the block, and in C order they lie inside the array.
        (
            low.wrapping_add(index.wrapping_mul(self.step)),
            first.wrapping_add(index.wrapping_mul(self.pitch.cast_unsigned())),
        )
    }
}

impl Pieces {
    /// Bytes from one piece to the next in the scratch buffer.
    pub(super) fn pitch(&self) -> u64 {
        self.span
            .checked_next_multiple_of(PADDING)
            .map_or(u64::MAX, |span| span.saturating_add(PADDING))
    }

    /// Bytes of all pieces in the scratch buffer.
    pub(super) fn packed(&self) -> u64 {
        match self.count {
            1 => self.span,
            count => count.saturating_mul(self.pitch()),
        }
    }
}

/// Calls `each` with the block offset and the offset in C order of every position of `walks`, ascending in the block.
pub(super) fn positions(
    walks: &[Walk],
    low: u64,
    first: u64,
    each: &mut dyn FnMut(u64, u64) -> Result<()>,
) -> Result<()> {
    let Some((last, rest)) = walks.split_last() else {
        return each(low, first);
    };
    for index in 0..last.count {
        let (low, first) = last.from(low, first, index);
        positions(rest, low, first, each)?;
    }
    Ok(())
}

/// Bytes from the first to behind the last, if `span` bytes lie at every position of `walk`.
fn grown(span: u64, walk: &Walk) -> u64 {
    let behind = walk.count.saturating_sub(1).saturating_mul(walk.step);
    behind.saturating_add(span)
}

/// A length as one in memory.
///
/// # Errors
/// [`misplaced`] if it does not fit.
pub(super) fn in_memory(len: u64) -> Result<usize> {
    usize::try_from(len).map_err(|_| misplaced())
}

/// The error for what the proofs of a view exclude; it takes the place of a panic.
pub(super) fn misplaced() -> Error {
    corrupt("an element outside of the array")
}
