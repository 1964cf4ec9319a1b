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

use std::sync::{Mutex, PoisonError};

use super::chunk::{BlockDecoder, Chunk};
use crate::codec::chunked::{Headers, array_at, corrupt, unsupported};
use crate::error::Result;
use crate::source::{Source, len_u64};

const MAGIC: &[u8; 9] = b"\xA8b2frame\0";
/// Bytes of the header that are looked at.
const HEADER: usize = 62;
/// Newest format version of frames.
const VERSION: u8 = 3;
const WIDTH_64: u8 = 0x10;
const WIDTH_MASK: u8 = 0x30;
const SIZES_VARY: u8 = 0x40;
const BLOCKS_VARY: u8 = 0x80;
/// Elements in the header's array since there is a block size.
const WITH_BLOCK_SIZE: u8 = 0x9E;
const SPECIAL: u8 = 0x80;

/// A contiguous frame.
pub(super) struct Cframe {
    /// Offset of the first chunk in the payload.
    header: u64,
    /// Offset of the chunk of offsets.
    end: u64,
    /// Decoded bytes of all chunks.
    size: u64,
    /// Decoded bytes of each chunk but the last; `None` if that varies.
    chunk_size: Option<u64>,
    typesize: u8,
    offsets: Chunk,
    /// The block of offsets that was looked at last, by its number.
    block: Mutex<(Option<u64>, Vec<u8>, BlockDecoder)>,
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
            block: Mutex::default(),
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
        if top & SPECIAL != 0 {
            let size = self
                .chunk_size
                .ok_or_else(|| unsupported("special Blosc2 chunks of various sizes"))?;
            return Chunk::special(top & !SPECIAL, self.typesize, size.min(room));
        }
        let at = self.header.saturating_add(u64::from_le_bytes(offset));
        let chunk = Chunk::read(headers, at, self.end.saturating_sub(at), room)?;
        let wanted = self.chunk_size.map(|size| size.min(room));
        if wanted.is_some_and(|size| size != chunk.size) {
            return Err(corrupt(format!(
                "Blosc2 chunk {number} of {} bytes",
                chunk.size
            )));
        }
        Ok(chunk)
    }

    /// The offset of chunk `number`.
    fn offset(&self, stored: &dyn Source, number: u64) -> Result<[u8; 8]> {
        let none = || corrupt(format!("Blosc2 frame without a chunk {number}"));
        let at = number
            .checked_mul(8)
            .filter(|&at| at < self.offsets.size)
            .ok_or_else(none)?;
        let n = at.checked_div(self.offsets.block).ok_or_else(none)?;
        let mut held = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        let (current, bytes, decoder) = &mut *held;
        if *current != Some(n) {
            *current = None;
            bytes.resize(self.offsets.block_len(n), 0);
            decoder.decode(stored, &self.offsets, n, bytes)?;
            *current = Some(n);
        }
        let within = at.saturating_sub(n.saturating_mul(self.offsets.block));
        usize::try_from(within)
            .ok()
            .and_then(|within| bytes.get(within..)?.first_chunk().copied())
            .ok_or_else(none)
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let held = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        len_u64(held.1.capacity()).saturating_add(held.2.held())
    }
}
