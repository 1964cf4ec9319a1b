//! Contiguous frames of Blosc2: a header, chunks, and a chunk with the offsets of the chunks.
//!
//! Written from Blosc/c-blosc2 README_CFRAME_FORMAT.rst and the frames that c-blosc2 3.3 makes, which have a block size before the
//! chunk size and other numbers for special offsets. Integers in the header are MessagePack, so big-endian; offsets little-endian.
//!
//! | offset | what |
//! |---|---|
//! | 0 | array of 13 or 14, string `b2frame\0` |
//! | 11 | length of the header |
//! | 16 | length of the frame |
//! | 25 | flags: format version, width of offsets (bits 4, 5), chunks of various sizes (6), blocks of various sizes (7) |
//! | 26 | frame type: 0 contiguous |
//! | 30, 39 | decoded size, size of all chunks |
//! | 48 | type size, block size if there are 14 fields, chunk size: four bytes each behind a type byte |
//!
//! The chunk of offsets stands behind the other chunks; an offset counts from the end of the header. One with its top bit set is
//! no offset: its top byte names the special value of which the chunk consists.
//!
//! Of the offsets no more is kept than a piece of [`PIECE`] bytes, whatever the blocks that they are packed in: a chunk of a
//! few bytes may say that it has blocks of 16 MiB.

use std::ops::Range;
use std::sync::Mutex;

use super::chunk::{BlockDecoder, Chunk};
use crate::codec::headers::{Headers, array_at};
use crate::error::{Result, corrupt, lock, unsupported};
use crate::source::{PooledBuf, Source, len_u64};

const MAGIC: &[u8; 9] = b"\xA8b2frame\0";
/// Bytes of the header that are looked at.
const HEADER: usize = 62;
/// Newest format version of frames.
const VERSION: u8 = 3;
const WIDTH_64: u8 = 0x10;
const WIDTH_MASK: u8 = 0x30;
const SIZES_VARY: u8 = 0x40;
const BLOCKS_VARY: u8 = 0x80;
/// First byte of a header that has a block size: an array of 14 elements.
const WITH_BLOCK_SIZE: u8 = 0x9E;
const SPECIAL: u8 = 0x80;
/// Bytes of the offsets that are kept when a block of them has been decoded.
const PIECE: usize = 64 << 10;
/// Length of an offset.
const OFFSET: usize = 8;

/// A contiguous frame.
pub(super) struct Cframe {
    /// Offset of the first chunk in the payload.
    header: u64,
    /// Offset of the chunk of offsets.
    end: u64,
    /// Decoded bytes of all chunks.
    size: u64,
    /// Decoded bytes of each chunk but the last; `None` if that varies.
    pub(super) chunk_size: Option<u64>,
    typesize: u8,
    offsets: Chunk,
    /// A piece of the decoded chunk of offsets, the one that was looked at last: where in the chunk it begins, and its bytes.
    piece: Mutex<Option<(u64, Vec<u8>)>>,
}

/// A chunk of a frame that is written.
pub(super) enum FrameChunk {
    /// These bytes of the payload.
    Stored(Range<u64>),
    /// An offset alone, which names a special value.
    Special([u8; OFFSET]),
    /// A chunk that is encoded now.
    New(Vec<u8>),
}

impl FrameChunk {
    /// Bytes that it takes among the chunks of the frame.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Stored(range) => range.end.saturating_sub(range.start),
            Self::Special(_) => 0,
            Self::New(bytes) => len_u64(bytes.len()),
        }
    }
}

/// Whether the payload begins like a contiguous frame.
///
/// # Errors
/// As of the source.
pub(super) fn is_cframe(stored: &dyn Source) -> Result<bool> {
    Ok(stored.len() > 10 && array_at::<10>(stored, 0)?.ends_with(MAGIC))
}

impl Cframe {
    /// Reads the header of a frame and that of its offsets.
    pub(super) fn open(stored: &dyn Source, data_size: u64) -> Result<Self> {
        let mut headers = Headers::new(stored);
        let fields = headers.array::<HEADER>(0)?;
        let [count, .., flags, kind] = *fields.first_chunk::<27>().unwrap_or(&[0; 27]);
        let number = |at: usize, len: usize| {
            let bytes = fields.get(at..).and_then(|bytes| bytes.get(..len));
            bytes
                .unwrap_or_default()
                .iter()
                .fold(0u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let version = flags & 0x0F;
        if version > VERSION
            || flags & WIDTH_MASK != WIDTH_64
            || flags & BLOCKS_VARY != 0
            || kind != 0
        {
            return Err(unsupported(format!(
                "Blosc2 frame with flags {flags:#04x} of type {kind}"
            )));
        }
        let chunk_size = number(if count == WITH_BLOCK_SIZE { 58 } else { 53 }, 4);
        let header = number(11, 4);
        let size = number(30, 8);
        let chunks = number(39, 8);
        // two lengths for the same bytes: neither can be trusted
        if size != data_size {
            return Err(corrupt(format!(
                "Blosc2 frame of {size} bytes for a block of {data_size}"
            )));
        }
        let end = header.saturating_add(chunks);
        let varies = flags & SIZES_VARY != 0 || chunk_size == 0;
        // As many offsets as there can be: chunks hold data, or take room.
        let room = stored.len().saturating_sub(end);
        let offsets = match size {
            0 => Chunk::special(1, 1, 0)?,
            _ => Chunk::read(&mut headers, end, room, u64::MAX)?,
        };
        let chunk_size = Some(chunk_size).filter(|_| !varies);
        if let Some(chunk_size) = chunk_size
            && offsets.size != size.div_ceil(chunk_size).saturating_mul(8)
        {
            return Err(corrupt(format!(
                "Blosc2 frame with {} bytes of offsets for {size} bytes in chunks of {chunk_size}",
                offsets.size
            )));
        }
        Ok(Self {
            header,
            end,
            size,
            chunk_size,
            typesize: u8::try_from(number(48, 4)).unwrap_or(1),
            offsets,
            piece: Mutex::default(),
        })
    }

    /// Decoded offset and number of the chunk that holds the byte at `offset`, if that can be known from the header.
    pub(super) fn find(&self, offset: u64) -> Option<(u64, u64)> {
        let size = self.chunk_size?;
        let number = offset.checked_div(size)?;
        Some((number.saturating_mul(size), number))
    }

    /// Chunk `number`, which starts at the decoded offset `start`.
    pub(super) fn chunk(
        &self,
        headers: &mut Headers,
        stored: &dyn Source,
        start: u64,
        number: u64,
    ) -> Result<Chunk> {
        let offset = self.offset(stored, number)?;
        let [.., top] = offset;
        let room = self.size.saturating_sub(start);
        // such an offset is the value itself: the chunk takes no room in the payload
        if top & SPECIAL != 0 {
            let size = self
                .chunk_size
                .ok_or_else(|| unsupported("special Blosc2 chunks of various sizes"))?;
            return Chunk::special(top & !SPECIAL, self.typesize, size.min(room));
        }
        let at = self.header.saturating_add(u64::from_le_bytes(offset));
        let chunk = Chunk::read(headers, at, self.end.saturating_sub(at), room)?;
        let wanted = self.chunk_size.map(|size| size.min(room));
        // `find` computes with this size, so one chunk of another would shift all behind it
        if wanted.is_some_and(|size| size != chunk.size) {
            return Err(corrupt(format!(
                "Blosc2 chunk {number} of {} bytes",
                chunk.size
            )));
        }
        Ok(chunk)
    }

    /// Where chunk `number`, which starts at the decoded offset `start`, is stored.
    pub(super) fn stored_chunk(
        &self,
        stored: &dyn Source,
        start: u64,
        number: u64,
    ) -> Result<FrameChunk> {
        let offset = self.offset(stored, number)?;
        let [.., top] = offset;
        if top & SPECIAL != 0 {
            return Ok(FrameChunk::Special(offset));
        }
        let chunk = self.chunk(&mut Headers::new(stored), stored, start, number)?;
        let end = chunk.at.saturating_add(chunk.len);
        Ok(FrameChunk::Stored(chunk.at..end))
    }

    /// What stands in front of the chunks, and behind the chunk of offsets, in a frame of so many bytes.
    pub(super) fn around(&self, len: u64) -> [Range<u64>; 2] {
        let offsets = self.end.saturating_add(self.offsets.len);
        [0..self.header, offsets..len]
    }

    /// The offset of chunk `number`.
    fn offset(&self, stored: &dyn Source, number: u64) -> Result<[u8; OFFSET]> {
        let none = || corrupt(format!("Blosc2 frame without a chunk {number}"));
        let len = len_u64(OFFSET);
        let at = number
            .checked_mul(len)
            .filter(|&at| at.saturating_add(len) <= self.offsets.size)
            .ok_or_else(none)?;
        if let Some(offset) = self.offsets.plain_at(stored, at)? {
            return Ok(offset);
        }
        let mut held = lock(&self.piece);
        if let Some(offset) = held.as_ref().and_then(|piece| offset_in(piece, at)) {
            return Ok(offset);
        }
        // freed first, so that two pieces are never in memory at once
        *held = None;
        // under the lock: threads that want the same piece wait instead of decoding it too
        let piece = self.unpack(stored, at)?;
        let offset = offset_in(&piece, at).ok_or_else(none)?;
        *held = Some(piece);
        Ok(offset)
    }

    /// Decodes the block of packed offsets that has the byte at `at`, and gives the piece around it.
    fn unpack(&self, stored: &dyn Source, at: u64) -> Result<(u64, Vec<u8>)> {
        let n = at.checked_div(self.offsets.block).unwrap_or_default();
        let start = n.saturating_mul(self.offsets.block);
        let mut block = PooledBuf::of(self.offsets.block_len(n));
        BlockDecoder::default().decode(stored, &self.offsets, n, &mut block)?;
        let within = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let skipped = within & !PIECE.saturating_sub(1);
        let rest = block.get(skipped..).unwrap_or_default();
        let piece = rest.get(..PIECE).unwrap_or(rest).to_vec();
        Ok((start.saturating_add(len_u64(skipped)), piece))
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let held = lock(&self.piece);
        held.as_ref()
            .map_or(0, |(_, bytes)| len_u64(bytes.capacity()))
    }
}

/// The offset at `at` in the chunk of offsets, if it is in this piece, which begins at `start`.
fn offset_in((start, bytes): &(u64, Vec<u8>), at: u64) -> Option<[u8; OFFSET]> {
    let within = usize::try_from(at.checked_sub(*start)?).ok()?;
    bytes.get(within..)?.first_chunk().copied()
}
