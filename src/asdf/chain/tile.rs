//! The encoding `tile`: an array cut into tiles of one shape, one behind the other.
//!
//! The tiles are in C order, and so are the elements of each. What lies in them beyond the array's edges is padding. Undoing it
//! is two views: one puts the tiles into their places, one cuts off the padding.

use std::sync::Arc;

use super::{argument, corrupt, number, numbers};
use crate::asdf::buffers::Buffers;
use crate::asdf::gather::Strided;
use crate::asdf::strided::{View, c_strides};
use crate::asdf::tree::Node;
use crate::error::{Error, Result};
use crate::source::Source;

/// The arguments of `tile`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tiling {
    /// Shape of each tile, no dimension 0.
    tile: Vec<u64>,
    /// Shape of the array, as many dimensions.
    shape: Vec<u64>,
    /// Bytes of an element, not 0.
    itemsize: u64,
}

impl Tiling {
    /// Checks the arguments: tile and array have as many dimensions, tiles and elements have bytes, and all tiles together
    /// take less than 2^63 bytes.
    pub(super) fn new(tile: Vec<u64>, shape: Vec<u64>, itemsize: u64) -> Result<Self> {
        if tile.len() != shape.len() {
            let (tile, shape) = (tile.len(), shape.len());
            return Err(corrupt(format!(
                "tile: {tile} dimensions of tiles, {shape} of the array"
            )));
        }
        if itemsize == 0 || tile.contains(&0) {
            return Err(corrupt("tile: tiles or elements without bytes"));
        }
        let tiling = Self {
            tile,
            shape,
            itemsize,
        };
        // fails for 2^63 bytes or more, so that no product of the same numbers fails later
        tiling.tiled_len()?;
        Ok(tiling)
    }

    /// Reads the arguments from the chain.
    pub(super) fn read(arguments: Option<Node<'_>>) -> Result<Self> {
        let list = |name| numbers("tile", argument("tile", arguments, name)?);
        let itemsize = number("tile", argument("tile", arguments, "item_size")?)?;
        Self::new(list("shape")?, list("original_shape")?, itemsize)
    }

    /// Number of tiles in each dimension.
    fn grid(&self) -> Vec<u64> {
        let dimensions = self.shape.iter().zip(&self.tile);
        dimensions
            .map(|(&len, &tile)| len.div_ceil(tile.max(1)))
            .collect()
    }

    /// Bytes of the array.
    pub(super) fn len(&self) -> Result<u64> {
        product(self.itemsize, self.shape.iter().copied())
    }

    /// Bytes of the tiles, with their padding.
    pub(super) fn tiled_len(&self) -> Result<u64> {
        product(
            self.itemsize,
            self.grid().into_iter().chain(self.tile.iter().copied()),
        )
    }

    /// Undoes the encoding. The array is gathered in `buffers` from the padded array; that one is gathered
    /// in `padded` from `tiles`.
    pub(super) fn undo(
        &self,
        tiles: Arc<dyn Source>,
        padded: &Arc<Buffers>,
        buffers: &Arc<Buffers>,
    ) -> Result<Arc<dyn Source>> {
        let grid = self.grid();
        // `tiles` is an array of twice the dimensions: the
        // grid of tiles, then the elements of one tile
        let counts: Vec<u64> = grid.iter().chain(&self.tile).copied().collect();
        let strides = c_strides(self.itemsize, &counts).ok_or_else(too_large)?;
        let (of_grid, of_tile) = strides.split_at(grid.len());
        // dimensions without a step are left out: there may be twice as many as the array has
        let placed = grid
            .iter()
            .zip(of_grid)
            .zip(self.tile.iter().zip(of_tile))
            .flat_map(|(outer, inner)| [outer, inner])
            .filter(|dimension| *dimension.0 != 1);
        let (shape, strides): (Vec<u64>, Vec<i64>) = placed.map(|(&n, &step)| (n, step)).unzip();
        let view = View::new(self.itemsize, &shape, Some(&strides), 0, tiles.len())?;
        let padded = Strided::open(tiles, view, padded)?;

        // the padded array is in C order now; a second view
        // cuts off what lies beyond the array's edges
        let counts = grid.iter().zip(&self.tile);
        let padded_shape = counts
            .map(|(&n, &tile)| product(n, [tile]))
            .collect::<Result<Vec<_>>>()?;
        let strides = c_strides(self.itemsize, &padded_shape).ok_or_else(too_large)?;
        let view = View::new(self.itemsize, &self.shape, Some(&strides), 0, padded.len())?;
        Strided::open(padded, view, buffers)
    }
}

/// `first` times all of `counts`.
pub(super) fn product(first: u64, counts: impl IntoIterator<Item = u64>) -> Result<u64> {
    counts
        .into_iter()
        .try_fold(first, u64::checked_mul)
        // below 2^63, because strides are signed
        .filter(|&len| i64::try_from(len).is_ok())
        .ok_or_else(too_large)
}

fn too_large() -> Error {
    corrupt("an array of 2^63 bytes or more")
}
