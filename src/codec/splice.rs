//! An edited block, and how the codecs of chunks encode it: chunks that the edit does not touch are copied as stored.
//!
//! Copied chunks are not decoded. So a damaged chunk stays as it is, and does not keep an edit of other chunks from being saved.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use super::chunks::ChunkStart;
use crate::error::{Error, Result, corrupt};
use crate::source::{Source, at_most, each_piece};

/// Stored bytes copied at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// The greatest chunk that is encoded in one piece; a greater one becomes several.
const MAX_CHUNK: u64 = 16 << 20;

/// Where a later chunk is larger than the first, added chunks get the size of the first only if that is at least so many bytes.
const MIN_CHUNK: u64 = 64 << 10;

/// A compressed block and an edit of it.
pub struct Edited<'a> {
    /// Name of the framing that the block is stored in.
    pub framing: &'a str,
    /// Its stored bytes, as they were before the edit.
    pub stored: &'a Arc<dyn Source>,
    /// How many bytes they decode to.
    pub stored_len: u64,
    /// The decoded bytes as they are now.
    pub decoded: &'a dyn Source,
    /// The ranges in which `decoded` may differ from what is stored, in order. Bytes behind the shorter of the two ends always differ.
    pub touched: &'a [Range<u64>],
}

impl Edited<'_> {
    /// Whether any of these decoded bytes differs from what is stored, or is new, or is gone.
    pub(super) fn touches(&self, decoded: &Range<u64>) -> bool {
        if decoded.end > self.stored_len.min(self.decoded.len()) {
            return true;
        }
        // The ranges are in order: of those that end behind the start the first begins first.
        let next = self
            .touched
            .partition_point(|touched| touched.end <= decoded.start);
        self.touched
            .get(next)
            .is_some_and(|touched| touched.start < decoded.end)
    }

    /// Copies stored bytes.
    pub(super) fn copy(&self, stored: Range<u64>, out: &mut dyn Write) -> Result<()> {
        each_piece(self.stored.as_ref(), stored, COPIED_AT_ONCE, |bytes| {
            write(out, bytes)
        })
    }
}

/// A framing of chunks, one behind the other, that know nothing of each other.
pub(super) trait Framing {
    /// Decoded size of a chunk where nothing says otherwise.
    const CHUNK: u64;

    /// What a chunk looks like beside its size; the default for a chunk that replaces none.
    type Shape: Default;

    /// Reads the header of the stored chunk that begins at `at`: where the chunk behind it begins, and its shape. The mark of a
    /// [`ChunkStart`] is the offset in the payload here.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none.
    fn read(&mut self, edited: &Edited, at: ChunkStart) -> Result<(ChunkStart, Self::Shape)>;

    /// Writes a chunk of these decoded bytes.
    ///
    /// # Errors
    /// As of `out`.
    fn encode(&mut self, bytes: &[u8], shape: &Self::Shape, out: &mut dyn Write) -> Result<()>;
}

/// Writes all of `decoded` in chunks of the usual size.
///
/// # Errors
/// Of reading `decoded`, and of `out`.
pub(super) fn encode<F: Framing>(
    framing: &mut F,
    decoded: &dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    let shape = F::Shape::default();
    encode_range(framing, &shape, decoded, 0..decoded.len(), F::CHUNK, out)
}

/// Writes an edited block: encodes touched chunks again, in their own size and shape, and copies the others.
///
/// Bytes that were added, and all bytes behind a chunk whose header can't be read, go into chunks of the size of the first. A last
/// chunk that is shorter than the first is filled up to that size. A chunk that is alone is filled up to [`Framing::CHUNK`]: it does
/// not show how long its writer makes chunks.
///
/// No chunk becomes larger than the first, unless some are already: libasdf makes room for the first chunk, and takes it for the
/// largest.
///
/// # Errors
/// Of reading the edited bytes or the stored ones, and of `out`.
pub(super) fn reencode<F: Framing>(
    framing: &mut F,
    edited: &Edited,
    out: &mut dyn Write,
) -> Result<()> {
    let len = edited.decoded.len();
    let known = edited.stored_len.min(len);
    let mut at = ChunkStart::default();
    let mut sizes = Sizes::default();
    while at.start < known {
        // Without a header nothing tells where the next chunk begins: all from here on is encoded again.
        let Ok((next, shape)) = framing.read(edited, at) else {
            break;
        };
        let decoded = at.start..next.start;
        let size = decoded.end.saturating_sub(decoded.start);
        let is_last = decoded.end >= edited.stored_len;
        if is_last && len > edited.stored_len && size < sizes.usual::<F>() {
            // The last chunk has room for what was added.
            break;
        }
        if size > 0 {
            if let Some(size) = sizes.anew::<F>(size, edited.touches(&decoded)) {
                let range = decoded.start..decoded.end.min(len);
                encode_range(framing, &shape, edited.decoded, range, size, out)?;
            } else {
                edited.copy(at.mark..next.mark, out)?;
            }
        }
        at = next;
    }
    let usual = sizes.usual::<F>();
    let shape = F::Shape::default();
    encode_range(framing, &shape, edited.decoded, at.start..len, usual, out)
}

/// The sizes of the chunks so far.
#[derive(Default)]
struct Sizes {
    /// The size of the first chunk, as it was stored and as it is written.
    first: Option<(u64, u64)>,
    /// Whether a later one was larger.
    rising: bool,
}

impl Sizes {
    /// Records a stored chunk. Gives the size of the chunks that it is encoded in, or `None` if it is copied.
    fn anew<F: Framing>(&mut self, size: u64, touched: bool) -> Option<u64> {
        let own = match size {
            ..=MAX_CHUNK => size,
            _ => F::CHUNK,
        };
        let Some((stored, written)) = self.first else {
            self.first = Some((size, if touched { own } else { size }));
            return touched.then_some(own);
        };
        self.rising |= size > stored;
        let most = if self.rising { u64::MAX } else { written };
        (touched || size > most).then_some(own.min(most))
    }

    /// The size of added chunks.
    fn usual<F: Framing>(&self) -> u64 {
        let least = if self.rising { MIN_CHUNK } else { 1 };
        self.first
            .map(|(_, written)| written)
            .filter(|first| (least..=MAX_CHUNK).contains(first))
            .unwrap_or(F::CHUNK)
    }
}

/// Writes a range of `decoded` in chunks of `size`.
fn encode_range<F: Framing>(
    framing: &mut F,
    shape: &F::Shape,
    decoded: &dyn Source,
    range: Range<u64>,
    size: u64,
    out: &mut dyn Write,
) -> Result<()> {
    each_piece(decoded, range, at_most(size, usize::MAX), |bytes| {
        framing.encode(bytes, shape, out)
    })
}

/// A length in a payload that has 32 bits for it.
///
/// # Errors
/// [`Error::Corrupt`] if it needs more.
pub(super) fn u32_len(len: impl TryInto<u32>) -> Result<u32> {
    let len = len.try_into();
    len.map_err(|_| corrupt("a part of a payload of 2^32 bytes or more"))
}

/// Writes a part of a payload.
pub(super) fn write(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes)
        .map_err(|cause| Error::io("writing an encoded block", cause))
}
