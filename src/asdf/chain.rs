//! Encoding chains of the ASDF 0.1.0 draft: the YAML list in front of a block's data, and the decoders it names.
//!
//! ASDF 0.1.0 draft, "Block encoding". An encoder applies the chain from the first entry to the last; a decoder goes back. The
//! length of an entry's input follows from the length of the decoded block or from the entry's arguments. The output of `quantize`
//! and `zlib` has any length; one pass over it finds the end. Where the draft leaves a choice, we chose: chunk and tree end alike,
//! edge tiles hold padding in C order, and `quantize` decodes to big-endian numbers, like all else in such a block.

mod quantize;
mod tile;

use std::sync::Arc;

use self::quantize::Quantized;
use self::tile::Tiling;
use super::buffers::Buffers;
use super::tree::{Node, NodeKind, Tree};
use crate::codec;
use crate::error::{Error, Result, corrupt, unsupported};
use crate::source::{Made, Source, Window, len_u64, read_up_to};

/// The longest encoding chain that is read, in bytes.
const CHAIN_LIMIT: usize = 64 << 10;
/// The most entries of a chain.
const ENTRY_LIMIT: usize = 16;
/// The most decoders of a chain: the decoders of a few readers must fit into the smallest cache.
const DECODER_LIMIT: usize = 8;

/// One entry of a chain.
#[derive(Debug, Clone, PartialEq)]
enum Encoding {
    Tile(Tiling),
    /// Decodes to numbers of `width` bytes each. `len` is their length in bytes, by the shape in the arguments. Behind `tile`
    /// writers may give the shape of the array without padding.
    Quantize {
        width: u64,
        len: u64,
    },
    Zlib,
}

/// An encoding chain.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chain(Vec<Encoding>);

impl Chain {
    /// The one-entry chain for a 16-byte encoding name of the drafts; `None` if the name is all zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a name that is not known. Entries that need arguments have no such name.
    pub(super) fn named(name: [u8; 16]) -> Result<Option<Self>> {
        let len = name.iter().rposition(|&byte| byte != 0);
        let name = name
            .get(..len.map_or(0, |last| last.saturating_add(1)))
            .unwrap_or_default();
        match name {
            b"" => Ok(None),
            b"zlib" => Ok(Some(Self(vec![Encoding::Zlib]))),
            other => Err(unknown(&other.escape_ascii().to_string())),
        }
    }

    /// Reads the chain in front of a block's data. Returns it with the data behind it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no chain or an entry makes no sense, [`Error::Unsupported`] naming an unknown encoding.
    pub(super) fn read(stored: Arc<dyn Source>) -> Result<(Self, Arc<dyn Source>)> {
        // the chain has no length of its own: it ends with its `...` line
        let head = read_up_to(&*stored, 0, CHAIN_LIMIT)?;
        let len =
            chain_len(&head).ok_or_else(|| corrupt("the encoding chain has no `...` line"))?;
        let tree =
            Tree::parse(head.get(..len).unwrap_or_default()).map_err(|error| inside(&error))?;
        let list = tree
            .root()
            .filter(|root| root.kind() == NodeKind::Sequence)
            .ok_or_else(|| corrupt("the encoding chain is not a list"))?;
        // each entry is a source on top of the next, and a read goes down through all of them
        if list.len() > ENTRY_LIMIT {
            let why = format!("an encoding chain of more than {ENTRY_LIMIT} entries");
            return Err(unsupported(why));
        }
        let steps: Vec<Encoding> = list.items().map(step).collect::<Result<_>>()?;
        if steps.iter().filter(|step| **step == Encoding::Zlib).count() > DECODER_LIMIT {
            let why = format!("an encoding chain with more than {DECODER_LIMIT} times zlib");
            return Err(unsupported(why));
        }
        let rest = stored.len().saturating_sub(len_u64(len));
        Ok((
            Self(steps),
            Arc::new(Window::new(stored, len_u64(len), rest)?),
        ))
    }

    /// Checks what can be checked without decoding: that the arguments fit a block of `len` decoded bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they do not.
    pub(super) fn check(&self, len: u64) -> Result<()> {
        let mut known = Some(len);
        for step in &self.0 {
            known = match step {
                Encoding::Tile(tiling) => {
                    expect_len("tile", tiling.len()?, known)?;
                    Some(tiling.tiled_len()?)
                }
                // what comes out of these depends on the data, so no later entry can be checked yet
                Encoding::Quantize { .. } | Encoding::Zlib => None,
            };
        }
        Ok(())
    }

    /// Bytes of the decoded data, found by going through `stored` once. Arrays in between are gathered in `buffers`.
    ///
    /// # Errors
    /// Of decoding it.
    pub(super) fn decoded_len(
        &self,
        stored: &Arc<dyn Source>,
        buffers: &Arc<Buffers>,
    ) -> Result<u64> {
        Ok(undo_all(&self.0, Arc::clone(stored), buffers)?.len())
    }

    /// `stored` decoded to `len` bytes. Nothing is decoded before the first read. Arrays in between are gathered in `buffers`,
    /// which must be the level beneath the buffers of the block's arrays.
    ///
    /// # Errors
    /// As [`Chain::check`].
    pub(super) fn decoded(
        self,
        stored: Arc<dyn Source>,
        len: u64,
        buffers: Arc<Buffers>,
    ) -> Result<Made> {
        self.check(len)?;
        let decode = move || undo(&self.0, Arc::clone(&stored), len, &buffers);
        Ok(Made::new(len, decode))
    }
}

/// Undoes `steps`: returns the `len` bytes from which they made `stored`.
fn undo(
    steps: &[Encoding],
    stored: Arc<dyn Source>,
    len: u64,
    buffers: &Arc<Buffers>,
) -> Result<Arc<dyn Source>> {
    let Some((step, later)) = steps.split_first() else {
        expect_len("the stored data", stored.len(), Some(len))?;
        return Ok(stored);
    };
    match step {
        Encoding::Tile(tiling) => {
            expect_len("tile", tiling.len()?, Some(len))?;
            // A read of the array gathers from the padded array, and that one from the tiles. Each
            // has a level of its own, so that a thread never waits for room that it holds itself.
            let padded = buffers.beneath();
            let tiles = undo(later, stored, tiling.tiled_len()?, &padded.beneath())?;
            tiling.undo(tiles, &padded, buffers)
        }
        Encoding::Quantize { width, .. } => {
            let packed = undo_all(later, stored, buffers)?;
            Ok(Arc::new(Quantized::new(packed, *width, len)?))
        }
        Encoding::Zlib => {
            let packed = undo_all(later, stored, &buffers.beneath_decoders())?;
            inflate(packed, len, buffers)
        }
    }
}

/// Undoes `steps` where nothing outside says how long the result is.
fn undo_all(
    steps: &[Encoding],
    stored: Arc<dyn Source>,
    buffers: &Arc<Buffers>,
) -> Result<Arc<dyn Source>> {
    let Some((step, later)) = steps.split_first() else {
        return Ok(stored);
    };
    let len = match step {
        Encoding::Tile(tiling) => tiling.len()?,
        Encoding::Quantize { len, .. } => *len,
        Encoding::Zlib => {
            let packed = undo_all(later, stored, &buffers.beneath_decoders())?;
            // the draft writes no decoded length for zlib: one pass counts it
            let len = codec::zlib_len(&*packed, buffers.cache())?;
            return inflate(packed, len, buffers);
        }
    };
    undo(steps, stored, len, buffers)
}

/// The `len` bytes that a zlib stream decodes to, for arrays of `buffers` or for a decoder that reads such arrays.
fn inflate(packed: Arc<dyn Source>, len: u64, buffers: &Buffers) -> Result<Arc<dyn Source>> {
    let cache = buffers.cache();
    if buffers.feed_decoders {
        return codec::decode_beneath(*b"zlib", packed, len, cache);
    }
    let (_, decoded) = codec::decode(*b"zlib", packed, len, cache)?;
    Ok(decoded)
}

/// An entry: `name`, `[name]` or `[name, {arguments}]`.
fn step(entry: Node<'_>) -> Result<Encoding> {
    let entry = entry.follow();
    let (name, arguments) = match entry.kind() {
        NodeKind::Sequence if entry.len() <= 2 => {
            let mut items = entry.items();
            (
                items.next().map(Node::follow),
                items.next().map(Node::follow),
            )
        }
        _ => (Some(entry), None),
    };
    let name = name
        .and_then(Node::text)
        .ok_or_else(|| corrupt("an entry of the encoding chain has no name"))?;
    match name {
        "zlib" => Ok(Encoding::Zlib),
        "tile" => Ok(Encoding::Tile(Tiling::read(arguments)?)),
        "quantize" => quantize::read(arguments),
        other => Err(unknown(other)),
    }
}

/// Bytes of the chain with the newline of its `...` line.
fn chain_len(head: &[u8]) -> Option<usize> {
    let mut end = 0_usize;
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        end = end.saturating_add(line.len());
        if line
            .strip_prefix(b"...")
            .is_some_and(|tail| tail.trim_ascii().is_empty())
        {
            return Some(end);
        }
    }
    None
}

/// An argument of an entry.
fn argument<'t>(of: &str, arguments: Option<Node<'t>>, name: &str) -> Result<Node<'t>> {
    arguments
        .filter(|node| node.kind() == NodeKind::Mapping)
        .and_then(|node| node.get(name))
        .map(Node::follow)
        .ok_or_else(|| corrupt(format!("{of} without its argument {name}")))
}

/// A whole number, not negative.
fn number(of: &str, node: Node<'_>) -> Result<u64> {
    match node.value() {
        Some(super::scalar::Value::Int(value)) => u64::try_from(value).ok(),
        _ => None,
    }
    .ok_or_else(|| corrupt(format!("an argument of {of} is not a whole number")))
}

/// A list of such numbers.
fn numbers(of: &str, node: Node<'_>) -> Result<Vec<u64>> {
    if node.kind() != NodeKind::Sequence {
        return Err(corrupt(format!("an argument of {of} is not a list")));
    }
    node.items().map(|item| number(of, item.follow())).collect()
}

/// Checks a length against the wanted one, if that is known.
fn expect_len(what: &str, found: u64, wanted: Option<u64>) -> Result<()> {
    match wanted {
        Some(wanted) if wanted != found => Err(corrupt(format!(
            "{what}: {found} bytes where the block has {wanted}"
        ))),
        _ => Ok(()),
    }
}

fn unknown(name: &str) -> Error {
    unsupported(format!("unknown encoding {name}"))
}

/// An error in the chain's own YAML. Its line and column count from the chain, so they stay in the text of the error.
fn inside(error: &Error) -> Error {
    corrupt(format!("encoding chain: {error}"))
}

#[cfg(test)]
#[path = "tests/chain.rs"]
mod tests;
