//! Arrays in chunks as sources of bytes: which chunk holds an element, and where in it.
//!
//! Nothing of a file is trusted here but what [`Grid::new`] and [`Chunked::read`] have checked. Numbers of blocks are looked up when a
//! chunk is read, so that opening an array reads nothing. Of chunks in blocks it takes no memory that depends on how many there are.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::Snapshot;
use super::array::{Array, Origin};
use super::decl::chunked::{self, Chunked, Chunks};
use super::find::block_index;
use super::gather::Strided;
use super::strided::{MAX_LEN, MAX_NDIM, View, c_strides};
use super::tile::misplaced;
use crate::codec;
use crate::error::{Error, Place, Result, corrupt, lock, unsupported};
use crate::source::{Joined, Memory, Source, at_most, checked_end, each_piece, len_u64};

/// Most chunks of an array.
const MOST_CHUNKS: u64 = 1 << 24;
/// Most numbers of blocks that are read to find out which blocks have chunks.
const MOST_NUMBERS: u64 = 1 << 20;
/// Bytes of the number of a block.
const NUMBER: u64 = 4;
/// What stands there for a chunk that is not in the file.
const MISSING: i32 = -1;
/// Bytes of numbers that are read at a time when all are.
const NUMBERS: usize = 64 << 10;
/// How many opened chunks are kept: what is decoded of each counts in the cache.
const MOST_OPEN: usize = 1 << 10;

/// How an array is cut into chunks of one shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    itemsize: u64,
    /// Whether chunks at the end of an axis have only what the array has of them.
    cut: bool,
}

/// Bytes that lie together in the array and in a chunk.
#[derive(Debug, PartialEq)]
struct Piece {
    chunk: u64,
    /// Where they begin in the chunk, in C order.
    at: u64,
    len: u64,
}

impl Grid {
    /// The grid of an array of `shape` with chunks of the shape `chunk`, both slowest axis first.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not fit each other; [`Error::Unsupported`] beyond a limit.
    pub(super) fn new(shape: Vec<u64>, chunk: Vec<u64>, itemsize: u64, cut: bool) -> Result<Self> {
        if shape.len() != chunk.len() || shape.len() > MAX_NDIM {
            let why = format!("chunks of {chunk:?} elements of an array of {shape:?}");
            return Err(corrupt(why));
        }
        // any number of them would fill an axis
        if chunk.contains(&0) {
            return Err(corrupt("chunks of no elements"));
        }
        let grid = Self {
            shape,
            chunk,
            itemsize,
            cut,
        };
        let bytes = chunk_bytes(&grid.chunk, itemsize);
        bytes.ok_or_else(|| corrupt("chunks of 2^63 bytes or more"))?;
        let count = grid.shape.iter().zip(&grid.chunk);
        let count = count
            .map(|(len, part)| len.div_ceil(*part))
            .try_fold(1_u64, u64::checked_mul);
        match count.filter(|count| *count <= MOST_CHUNKS) {
            Some(_) => Ok(grid),
            None => Err(unsupported(format!("more than {MOST_CHUNKS} chunks"))),
        }
    }

    /// Bytes of an element.
    pub(super) fn itemsize(&self) -> u64 {
        self.itemsize
    }

    /// Lengths of the array's axes.
    pub(super) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u64 {
        self.axes().fold(1, |count, (len, part)| {
            count.saturating_mul(len.div_ceil(part))
        })
    }

    /// Lengths of the axes of the array and of a chunk, none of which is 0.
    fn axes(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + ExactSizeIterator {
        let parts = self.chunk.iter().map(|part| (*part).max(1));
        self.shape.iter().copied().zip(parts)
    }

    /// The number of the cut chunk that begins at an element and has these lengths, if the grid has that one.
    pub(super) fn chunk_of(&self, start: &[u64], lens: &[u64]) -> Option<u64> {
        let mut number = 0_u64;
        for ((len, part), (start, own)) in self.axes().zip(start.iter().zip(lens)) {
            let index = start.checked_div(part)?;
            let left = len.checked_sub(*start)?;
            // it has to begin where a chunk of the grid does, and to be as long as that one
            if index.checked_mul(part)? != *start || part.min(left) != *own || left == 0 {
                return None;
            }
            number = number.checked_mul(len.div_ceil(part))?.checked_add(index)?;
        }
        Some(number)
    }

    /// The piece that begins at a byte of the array in C order. `None` behind its end.
    fn piece(&self, at: u64) -> Option<Piece> {
        let (mut element, within) = (
            at.checked_div(self.itemsize)?,
            at.checked_rem(self.itemsize)?,
        );
        // of the chunk and of what is before the element in it, for an element one further along an axis
        let (mut chunks, mut stride) = (1_u64, 1_u64);
        let (mut chunk, mut before) = (0_u64, 0_u64);
        // elements that follow in both orders; as long as the axes so far lie in one chunk whole
        let (mut run, mut is_whole) = (1_u64, true);
        for (len, part) in self.axes().rev() {
            let index = element.checked_rem(len)?;
            element = element.checked_div(len)?;
            let (number, inside) = (index.checked_div(part)?, index.checked_rem(part)?);
            let first = index.checked_sub(inside)?;
            let there = part.min(len.checked_sub(first)?);
            if is_whole {
                // `before` is what the axes so far have in front of the element
                let left = there.checked_sub(inside)?;
                run = left.checked_mul(stride)?.checked_sub(before)?;
            }
            chunk = number.checked_mul(chunks)?.checked_add(chunk)?;
            chunks = chunks.checked_mul(len.div_ceil(part))?;
            before = inside.checked_mul(stride)?.checked_add(before)?;
            let own = if self.cut { there } else { part };
            is_whole = is_whole && own == len;
            stride = stride.checked_mul(own)?;
        }
        let bytes = |elements: u64| elements.checked_mul(self.itemsize);
        (element == 0).then_some(Piece {
            chunk,
            at: bytes(before)?.checked_add(within)?,
            len: bytes(run)?.checked_sub(within)?,
        })
    }
}

/// Bytes of a chunk.
fn chunk_bytes(chunk: &[u64], itemsize: u64) -> Option<u64> {
    let bytes = chunk.iter().copied().try_fold(itemsize, u64::checked_mul);
    bytes.filter(|bytes| *bytes <= MAX_LEN)
}

/// A chunk that has been opened, with its elements in C order; `None` if it is not in the file.
type OpenChunk = Option<Arc<dyn Source>>;

/// The chunks of a snapshot's arrays that have been opened, by the number of the array and their own.
#[derive(Default)]
pub(super) struct OpenChunks(Mutex<HashMap<(usize, u64), OpenChunk>>);

/// The elements of an array in chunks, in C order.
struct Elements {
    of: Snapshot,
    array: usize,
    chunked: Arc<Chunked>,
    len: u64,
}

impl Elements {
    /// A chunk, opened now or before.
    fn chunk(&self, number: u64) -> Result<OpenChunk> {
        let key = (self.array, number);
        if let Some(found) = lock(&self.of.chunks.0).get(&key) {
            return Ok(found.clone());
        }
        let opened = self.of.open_chunk(&self.chunked, number);
        let opened = opened.map_err(|error| match error {
            Error::Corrupt { at, why } => {
                corrupt(format!("chunk {number}: {}", Error::corrupt(at, why)))
            }
            other => other,
        })?;
        // an array in a file of its own may change at any time, and others are kept with their blocks
        if let Chunks::Arrays(_) = self.chunked.chunks {
            return Ok(opened);
        }
        // dropped when the lock is free again: what is decoded of them leaves the cache
        let mut left = HashMap::new();
        let mut open = lock(&self.of.chunks.0);
        if open.len() >= MOST_OPEN {
            std::mem::swap(&mut *open, &mut left);
        }
        // another thread may have opened it, too: that one is used, and this one dropped without the lock
        let chunk = open.entry(key).or_insert_with(|| opened.clone()).clone();
        drop(open);
        drop(left);
        Ok(chunk)
    }

    fn read(&self, mut buf: &mut [u8], mut at: u64) -> Result<()> {
        while !buf.is_empty() {
            let piece = self.chunked.grid.piece(at);
            let piece = piece.ok_or_else(|| corrupt("an element that is in no chunk"))?;
            let (now, later) = buf.split_at_mut(at_most(piece.len, buf.len()).max(1));
            match self.chunk(piece.chunk)? {
                Some(chunk) => chunk.read_exact_at(now, piece.at)?,
                None => self.fill(now, piece.at),
            }
            at = at.saturating_add(len_u64(now.len()));
            buf = later;
        }
        Ok(())
    }

    /// What stands for bytes of a chunk that is not there, from that one on.
    fn fill(&self, buf: &mut [u8], at: u64) {
        let fill = &self.chunked.fill;
        let within = at.checked_rem(len_u64(fill.len())).unwrap_or(0);
        let endless = fill.iter().cycle().skip(at_most(within, usize::MAX));
        // cycling through nothing gives nothing
        buf.fill(0);
        for (to, from) in buf.iter_mut().zip(endless) {
            *to = *from;
        }
    }
}

impl Source for Elements {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let array = || self.of.arrays().get(self.array).map(Array::brief_path);
        let named = |error: Error| error.at(Place::Array(array().unwrap_or_default()));
        self.read(buf, offset).map_err(named)
    }
}

impl Snapshot {
    /// The elements of array `i`, which is in chunks. Opens none of them yet.
    pub(super) fn chunked_bytes(
        &self,
        i: usize,
        chunked: &Arc<Chunked>,
    ) -> Result<Arc<dyn Source>> {
        let array = self.array(i)?;
        Ok(Arc::new(Elements {
            of: self.copy(),
            array: i,
            chunked: Arc::clone(chunked),
            len: array.bin_len(),
        }))
    }

    /// Forgets what has been decoded of chunks, and gathered of arrays: bytes of their blocks have changed, or are going to.
    #[doc(hidden)]
    pub fn forget_gathered(&self) {
        let left = std::mem::take(&mut *lock(&self.chunks.0));
        drop(left);
        self.buffers.forget_all();
    }

    /// Opens a chunk.
    fn open_chunk(&self, chunked: &Chunked, number: u64) -> Result<OpenChunk> {
        let (map, code, fortran) = match &chunked.chunks {
            Chunks::Blocks { map, code, fortran } => (*map, *code, *fortran),
            Chunks::Arrays(arrays) => {
                let outline = self.paths().map(super::Paths::outline);
                let Some(node) = arrays.get(&number) else {
                    return Ok(None);
                };
                let array = outline.and_then(|outline| outline.array(outline.find(*node)?));
                let array = array.ok_or_else(|| corrupt("its array has no place in the tree"))?;
                return self.array_bin(array).map(Some);
            }
        };
        let mut bytes = [0; 4];
        let at = number.saturating_mul(NUMBER);
        self.block(map)?.read_exact_at(&mut bytes, at)?;
        let Some(n) = self.numbered(i32::from_le_bytes(bytes))? else {
            return Ok(None);
        };
        let grid = &chunked.grid;
        let wanted = chunk_bytes(&grid.chunk, grid.itemsize).ok_or_else(misplaced)?;
        let elements = self.chunk_elements(n, code, wanted)?;
        if elements.len() != wanted {
            let why = format!("block {n} has {} bytes of {wanted}", elements.len());
            return Err(corrupt(why));
        }
        if !fortran {
            return Ok(Some(elements));
        }
        let turned: Vec<u64> = grid.chunk.iter().rev().copied().collect();
        let mut strides = c_strides(grid.itemsize, &turned).ok_or_else(misplaced)?;
        strides.reverse();
        let view = View::new(grid.itemsize, &grid.chunk, Some(&strides), 0, wanted)?;
        Strided::open(elements, view, &self.buffers).map(Some)
    }

    /// The block of that number, if it is not the one of a chunk that is missing.
    fn numbered(&self, number: i32) -> Result<Option<usize>> {
        if number == MISSING {
            return Ok(None);
        }
        if number < 0 {
            return Err(corrupt(format!("block {number} wanted")));
        }
        block_index(number.into(), self.layout.blocks.len()).map(Some)
    }

    /// What Zarr has stored in block `n`, decoded.
    fn chunk_elements(&self, n: usize, code: [u8; 4], len: u64) -> Result<Arc<dyn Source>> {
        let block = self.block(n)?;
        if code == [0; 4] {
            return Ok(block);
        }
        let header = self.layout.blocks.get(n);
        let header = header.ok_or_else(|| corrupt("no such block"))?;
        let mut stored = match header.compression {
            [0, 0, 0, 0] => block,
            // a decoder must not wait for another one
            own => codec::decode_beneath(own, self.stored(n)?, header.data_size, &self.cache)?,
        };
        if code == *b"lz4\0" {
            // numcodecs writes what ASDF has as one of many, each behind its length
            let len = u32::try_from(stored.len());
            let len = len.map_err(|_| corrupt("a chunk of 2^32 bytes or more"))?;
            let head = Memory::new(len.to_be_bytes().to_vec());
            stored = Arc::new(Joined::new(Arc::new(head), stored)?);
        }
        let (_, decoded) = codec::decode(code, Arc::clone(&stored), len, &self.cache)?;
        // a chunk of another shape: its first bytes would pass for elements
        let goes_on = codec::goes_on(code, stored, &decoded, &self.cache);
        if goes_on.map_err(|error| error.at(Place::Block(n)))? {
            return Err(corrupt(format!("block {n} has more than {len} bytes")));
        }
        Ok(decoded)
    }

    /// The arrays whose chunks are in blocks, each with the block that holds the numbers of these. Reads no block.
    pub fn chunk_maps(&self) -> impl Iterator<Item = (&Array, Result<usize>)> {
        let maps = self.arrays().iter().filter_map(|array| {
            // an array that is wrong in any other way, or not read, may have chunks in blocks as well
            let may_have = matches!(array.origin(), Origin::Chunked | Origin::Unknown);
            let node = array.node().filter(|_| may_have)?;
            Some((array, chunked::map_of(node)?))
        });
        maps.map(|(array, map)| (array, map.map_err(|error| array.named(error))))
    }

    /// The blocks with chunks of arrays, or with the numbers of such blocks. Reads those numbers.
    ///
    /// # Errors
    /// Why not all can be known.
    pub fn chunk_blocks(&self) -> Result<BTreeSet<usize>> {
        let mut blocks = BTreeSet::new();
        let mut left = MOST_NUMBERS.saturating_mul(NUMBER);
        for (array, map) in self.chunk_maps() {
            let map = map?;
            let mut read = || {
                let block = self.block(map)?;
                blocks.insert(map);
                let more = || unsupported(format!("more than {MOST_NUMBERS} chunks in all"));
                left = left.checked_sub(block.len()).ok_or_else(more)?;
                each_piece(&*block, 0..block.len(), NUMBERS, |bytes| {
                    for number in bytes.as_chunks().0 {
                        blocks.extend(self.numbered(i32::from_le_bytes(*number))?);
                    }
                    Ok(())
                })
            };
            read().map_err(|error| array.named(error))?;
        }
        Ok(blocks)
    }
}

impl Chunked {
    /// Checks that the block with the numbers of others has one for each chunk.
    pub(super) fn check_map(&self, len: u64) -> Result<()> {
        let count = self.grid.count();
        if count.checked_mul(NUMBER) == Some(len) {
            return Ok(());
        }
        let why = format!("{count} chunks, but their numbers have {len} bytes");
        Err(corrupt(why))
    }
}

#[cfg(test)]
#[path = "tests/chunked.rs"]
mod tests;
