//! An array in chunks, as the tree declares it: its elements are in several blocks.
//!
//! There are two forms, neither of the ASDF Standard:
//! - `asdf://asdf-format.org/zarr/tags/zarr-1.0.0` of asdf-zarr 0.0.4 (`storage.py`, its internal store). `.zarray` is the metadata of an
//!   array of Zarr version 2. `chunk_block_map` is the number of a block that holds one little-endian int32 for each chunk, in C order: the
//!   number of the block with the chunk as Zarr stores it, or -1 if there is none, and the elements are the fill value. Chunks at the end of
//!   an axis are whole.
//! - `core/chunked-ndarray-1.0.0` of ASDF.jl (`ChunkedNDArray`). `chunks` is a list of `core/ndarray-chunk-1.0.0`, each an ndarray and the
//!   index of its first element; chunks at the end of an axis are cut. ASDF.jl allows any chunks; here they make a grid. What is in none of
//!   them is not defined there, and zero here.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::{Allowance, Declared, bad, is_ndarray, property};
use crate::asdf::chunked::Grid;
use crate::asdf::datatype::{ByteOrder, Datatype, Field, MAX_DEPTH, Scalar};
use crate::asdf::scalar::{Type, Value};
use crate::asdf::tree::{Node, NodeId, NodeKind};
use crate::asdf::{inline, npy};
use crate::codec::{self, NUMCODECS};
use crate::error::{Result, corrupt, unsupported};

/// What the tags begin with.
const ZARR: &str = "asdf://asdf-format.org/zarr/tags/zarr-";
const ARRAYS: &str = "tag:stsci.edu:asdf/core/chunked-ndarray-";
/// The key of the block that holds the numbers of others.
const MAP: &str = "chunk_block_map";
/// Most bytes of an element.
const MOST_ELEMENT: u64 = 1 << 20;
/// Bytes of a fill value that cost as much as a field.
const FILL_UNIT: usize = 64;

/// An array in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunked {
    /// Type of the elements.
    pub(in crate::asdf) datatype: Datatype,
    /// How the array is cut.
    pub(in crate::asdf) grid: Grid,
    /// The element that stands for all of a chunk that is not there; none for zero.
    pub(in crate::asdf) fill: Vec<u8>,
    /// Where the chunks are.
    pub(in crate::asdf) chunks: Chunks,
}

/// Where chunks are.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::asdf) enum Chunks {
    /// Each in a block of its own.
    Blocks {
        /// The block with their numbers.
        map: usize,
        /// How Zarr has compressed each, as a block header calls it; zeros for not at all.
        code: [u8; 4],
        /// Whether the elements of each are in Fortran order.
        fortran: bool,
    },
    /// Arrays of the tree: the node of each, by the number of the chunk.
    Arrays(BTreeMap<u64, NodeId>),
}

/// Whether a tag is that of arrays in chunks.
pub(in crate::asdf) fn is_tag(tag: &str) -> bool {
    tag.starts_with(ZARR) || tag.starts_with(ARRAYS)
}

/// Whether the chunks of such a node are in the file: those of asdf-zarr may be in a store somewhere else.
pub(super) fn is_inside(node: Node<'_>) -> bool {
    let is_zarr = node.tag().is_some_and(|tag| tag.starts_with(ZARR));
    !is_zarr || map_of(node).is_some()
}

/// The block with the numbers of the blocks of such a node, if it has one.
pub(in crate::asdf) fn map_of(node: Node<'_>) -> Option<Result<usize>> {
    let map = node.tag().filter(|tag| tag.starts_with(ZARR));
    let map = map.and_then(|_| node.get(MAP))?;
    let number = integer(map).and_then(|n| usize::try_from(n).ok());
    Some(number.ok_or_else(|| bad(map, "a chunk_block_map that is no block")))
}

impl Chunked {
    /// Reads the declaration at a node with such a tag.
    pub(super) fn read(node: Node<'_>, allowance: &mut Allowance) -> Result<Self> {
        match map_of(node) {
            Some(map) => Self::of_zarr(node, map?, allowance),
            None => Self::of_arrays(node, allowance),
        }
    }

    /// What asdf-zarr writes.
    fn of_zarr(node: Node<'_>, map: usize, allowance: &mut Allowance) -> Result<Self> {
        let meta = wanted(node, ".zarray")?;
        let version = wanted(meta, "zarr_format")?;
        if integer(version) != Some(2) {
            return Err(unsupported("chunks of another version of Zarr than 2"));
        }
        // each filter of numcodecs changes the bytes in its own way
        if is_set(meta.get("filters")) {
            return Err(unsupported("chunks behind filters of numcodecs"));
        }
        let fortran = match wanted(meta, "order")?.text() {
            Some("C") => false,
            Some("F") => true,
            _ => return Err(corrupt("an order of chunks that is neither C nor F")),
        };
        let datatype = dtype(wanted(meta, "dtype")?, MAX_DEPTH, allowance)?;
        let (shape, chunk) = (
            lens(wanted(meta, "shape")?)?,
            lens(wanted(meta, "chunks")?)?,
        );
        let grid = Grid::new(shape, chunk, size(&datatype)?, false)?;
        let code = meta.get("compressor").filter(|it| is_set(Some(*it)));
        Ok(Self {
            fill: fill(meta.get("fill_value"), &datatype, allowance)?,
            chunks: Chunks::Blocks {
                map,
                code: code.map_or(Ok([0; 4]), compression)?,
                fortran,
            },
            datatype,
            grid,
        })
    }

    /// What ASDF.jl reads.
    fn of_arrays(node: Node<'_>, allowance: &mut Allowance) -> Result<Self> {
        let shape = lens(wanted(node, "shape")?)?;
        let (mut datatype, mut parts) = (None, Vec::new());
        for chunk in wanted(node, "chunks")?.items() {
            let array = wanted(chunk, "ndarray")?;
            if !array.tag().is_some_and(is_ndarray) {
                return Err(bad(chunk, "a chunk that is no ndarray"));
            }
            let (own, lens_of) = match Declared::read(array, allowance)? {
                Declared::Stored(stored) => (Some(stored.datatype), Some(stored.shape)),
                Declared::Inline(inline) => (inline.datatype, inline.shape),
                Declared::Chunked(_) => (None, None),
            };
            let lens_of: Option<Vec<u64>> = lens_of.and_then(|lens| lens.into_iter().collect());
            let missing = || bad(chunk, "a chunk without a datatype, or with an open shape");
            let (own, lens_of) = own.zip(lens_of).ok_or_else(missing)?;
            // all chunks are shown as one array, which has one datatype
            if *datatype.get_or_insert_with(|| own.clone()) != own {
                return Err(unsupported("chunks of different datatypes"));
            }
            parts.push((array.id(), lens(wanted(chunk, "start")?)?, lens_of));
        }
        let declared = wanted(node, "datatype")?;
        let declared = property::datatype(declared, ByteOrder::Little, MAX_DEPTH, allowance)?;
        // the byte order is that of the chunks
        let datatype = datatype.unwrap_or_else(|| declared.clone());
        if datatype.to_string() != declared.to_string() {
            let why = format!("chunks of {datatype} in an array of {declared}");
            return Err(corrupt(why));
        }
        let mut chunk = vec![1; shape.len()];
        for (_, start, lens) in &parts {
            if [start.len(), lens.len()] != [shape.len(); 2] {
                return Err(corrupt("a chunk of another number of axes than the array"));
            }
            for (most, len) in chunk.iter_mut().zip(lens) {
                *most = (*len).max(*most);
            }
        }
        let grid = Grid::new(shape, chunk, size(&datatype)?, true)?;
        let mut arrays = BTreeMap::new();
        for (array, start, lens) in parts {
            let number = grid.chunk_of(&start, &lens);
            // of two chunks at one place nothing says which one counts
            let apart = number.filter(|number| arrays.insert(*number, array).is_none());
            apart.ok_or_else(|| unsupported("chunks that make no grid"))?;
        }
        Ok(Self {
            datatype,
            grid,
            fill: Vec::new(),
            chunks: Chunks::Arrays(arrays),
        })
    }
}

/// The value of a key that has to be there.
fn wanted<'t>(node: Node<'t>, key: &str) -> Result<Node<'t>> {
    let why = || format!("an array in chunks without {key}");
    node.get(key).ok_or_else(|| bad(node, why()))
}

/// Whether a key has a value that asks for something.
fn is_set(node: Option<Node<'_>>) -> bool {
    node.is_some_and(|node| {
        let is_empty = node.kind() == NodeKind::Sequence && node.is_empty();
        node.scalar_type() != Some(Type::Null) && !is_empty
    })
}

fn integer(node: Node<'_>) -> Option<i128> {
    match node.value() {
        Some(Value::Int(n)) => Some(n),
        _ => None,
    }
}

/// A list of lengths or indices.
fn lens(node: Node<'_>) -> Result<Vec<u64>> {
    let lens = property::shape(node)?.into_iter().collect();
    let lens: Option<Vec<u64>> = lens;
    lens.ok_or_else(|| bad(node, "a '*', where a length belongs"))
}

/// Bytes of an element.
fn size(datatype: &Datatype) -> Result<u64> {
    let size = datatype.size().filter(|size| *size <= MOST_ELEMENT);
    let why = || format!("chunks of elements of more than {MOST_ELEMENT} bytes");
    size.ok_or_else(|| unsupported(why()))
}

/// The datatype of Zarr version 2: NumPy's text, or a list of fields.
fn dtype(node: Node<'_>, depth: usize, allowance: &mut Allowance) -> Result<Datatype> {
    allowance.charge(node, "")?;
    if let Some(text) = node.text() {
        return npy::plain(text).map_err(|error| error.at(node.place()));
    }
    let wrong = || bad(node, "a dtype that is neither a text nor a list of fields");
    // the tree is hostile, and without a bound this recursion would run out of stack
    let below = depth.checked_sub(1).ok_or_else(wrong)?;
    let mut fields = Vec::new();
    for field in node.items() {
        let mut parts = field.items();
        let name = parts.next().and_then(Node::text).unwrap_or_default();
        allowance.charge(field, name)?;
        fields.push(Field {
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            datatype: dtype(parts.next().ok_or_else(wrong)?, below, allowance)?,
            shape: parts.next().map_or(Ok(Vec::new()), lens)?,
        });
    }
    if fields.is_empty() {
        return Err(wrong());
    }
    Ok(Datatype::Struct(fields))
}

/// The bytes of the fill value of Zarr version 2; none for zero, or if it has none. That of records and of strings of bytes is in base64,
/// that of complex numbers in two parts.
fn fill(node: Option<Node<'_>>, datatype: &Datatype, allowance: &mut Allowance) -> Result<Vec<u8>> {
    let is_zero = |node: &Node<'_>| !is_set(Some(*node)) || integer(*node) == Some(0);
    let Some(node) = node.filter(|node| !is_zero(node)) else {
        return Ok(Vec::new());
    };
    let wrong = || bad(node, "a fill_value that is none of its dtype");
    let len = usize::try_from(size(datatype)?).unwrap_or(usize::MAX);
    // aliases may repeat an array with a large fill value without end
    if !allowance.take(len / FILL_UNIT) {
        return Err(bad(node, "fill values of too many bytes in all"));
    }
    match datatype {
        Datatype::Ascii(_) | Datatype::Struct(_) => {
            let text = node.text().ok_or_else(wrong)?;
            let mut bytes = BASE64_STANDARD.decode(text).map_err(|_| wrong())?;
            let is_short = bytes.len() < len && matches!(datatype, Datatype::Ascii(_));
            if bytes.len() != len && !is_short {
                return Err(wrong());
            }
            // a shorter string is padded with NUL, as in NumPy
            bytes.resize(len, 0);
            Ok(bytes)
        }
        Datatype::Scalar(Scalar::Complex64 | Scalar::Complex128, order) if node.len() == 2 => {
            let half = if len == 8 {
                Scalar::Float32
            } else {
                Scalar::Float64
            };
            let half = Datatype::Scalar(half, *order);
            let halves = node.items().map(|item| inline::element(item, &half));
            Ok(halves.collect::<Result<Vec<_>>>()?.concat())
        }
        _ => inline::element(node, datatype),
    }
}

/// What a block header calls the compressor that numcodecs knows by its `id`.
fn compression(node: Node<'_>) -> Result<[u8; 4]> {
    let id = node.get("id").and_then(Node::text).unwrap_or_default();
    let known = NUMCODECS.iter().find(|(name, _)| *name == id);
    let why = || unsupported(format!("chunks compressed with {id:?} of numcodecs"));
    let (_, code) = *known.ok_or_else(why)?;
    // fails here, and not at the first read, if the program is built without this codec
    codec::codec(code)?;
    Ok(code)
}
