//! Writing a contiguous frame of Blosc2, which [`cframe`](super::cframe) describes.
//!
//! Behind the chunk of offsets stands a trailer: metadata of variable length, of which there are none here, its own length, and room
//! for a fingerprint. The bytes between the fields that change are those that c-blosc2 3.3 writes; abacusutils and asdf-cxx read such
//! frames through it.
//!
//! The header says how long all chunks are together. So they are packed twice, as those of `single` are: first to count their bytes.

use std::io::Write;

use super::chunk::STORED;
use super::encode::{BlockShape, BloscEncoder, header};
use crate::codec::chunked::{array_at, corrupt};
use crate::codec::splice::write;
use crate::error::Result;
use crate::source::{Source, at_most, each_piece, len_u64};

/// Decoded bytes of a chunk, and the limits of a length that is kept.
const CHUNK_LEN: u32 = 4 << 20;
const MIN_CHUNK: u32 = 64 << 10;
const MAX_CHUNK: u32 = 64 << 20;
const HEADER_LEN: u32 = 97;
/// A frame of 14 fields, and its magic number.
const MAGIC: &[u8] = b"\x9E\xA8b2frame\0";
/// Format version 2 with offsets of 64 bits, contiguous, Zstandard at level 1, blocks that are split if that helps.
const FLAGS: [u8; 5] = [0xA4, 0x12, 0, 0x15, 2];
/// Two threads, which nobody has to use, and no metadata of variable length.
const THREADS: &[u8] = b"\xD1\0\x02\xD1\0\x02\xC2";
/// Six filters, of which the last is a shuffle, Zstandard, and their parameters.
const PIPELINE: &[u8] = b"\xD8\x06\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\0\0";
/// No metadata of fixed length.
const NO_LAYERS: &[u8] = b"\x93\xCD\0\x07\xDE\0\0\xDC\0\0";
const TRAILER: &[u8] =
    b"\x94\x01\x93\xCD\0\x06\xDE\0\0\xDC\0\0\xCE\0\0\0\x23\xD8\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Bytes of an offset.
const OFFSET: u8 = 8;

/// What a frame is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameShape {
    chunk: u32,
    typesize: u8,
}

impl Default for FrameShape {
    fn default() -> Self {
        Self {
            chunk: CHUNK_LEN,
            typesize: 1,
        }
    }
}

impl FrameShape {
    /// That of a stored frame, as far as such frames are written.
    pub(super) fn of(stored: &dyn Source) -> Self {
        let field = |at| array_at::<4>(stored, at).map_or(0, u32::from_be_bytes);
        let (chunk, typesize) = (field(58), u8::try_from(field(48)).unwrap_or(0));
        Self {
            chunk: chunk.clamp(MIN_CHUNK, MAX_CHUNK),
            typesize: typesize.max(1),
        }
    }

    /// The same for so many bytes. Readers count elements, so that all chunks must consist of whole ones.
    fn of_len(self, len: u64) -> Self {
        let whole = |n: u64| n.is_multiple_of(self.typesize.into());
        let typesize = if whole(len) && whole(self.chunk.into()) {
            self.typesize
        } else {
            1
        };
        Self { typesize, ..self }
    }
}

/// Writes `decoded` as a frame.
///
/// # Errors
/// Of reading `decoded`, and of `out`.
pub(super) fn encode(
    encoder: &mut BloscEncoder,
    frame: FrameShape,
    decoded: &dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    let frame = frame.of_len(decoded.len());
    let shape = BlockShape::of_blosc2(frame.typesize);
    let mut offsets = Vec::new();
    let chunk = at_most(frame.chunk.into(), usize::MAX);
    let mut end: u64 = 0;
    each_piece(decoded, 0..decoded.len(), chunk, |bytes| {
        offsets.extend(end.to_le_bytes());
        end = end.saturating_add(len_u64(encoder.chunk(shape, bytes).len()));
        Ok(())
    })?;
    let offsets = offsets_chunk(&offsets);
    write(
        out,
        &frame_header(frame, decoded.len(), end, len_u64(offsets.len())),
    )?;
    let mut at: u64 = 0;
    each_piece(decoded, 0..decoded.len(), chunk, |bytes| {
        let chunk = encoder.chunk(shape, bytes);
        at = at.saturating_add(len_u64(chunk.len()));
        write(out, &chunk)
    })?;
    if at != end {
        return Err(corrupt("bytes that change while they are encoded"));
    }
    write(out, &offsets)?;
    write(out, TRAILER)
}

/// The header of a frame with so many decoded bytes, bytes of chunks, and bytes of the chunk of offsets.
fn frame_header(frame: FrameShape, size: u64, chunks: u64, offsets: u64) -> Vec<u8> {
    let lens = [HEADER_LEN.into(), chunks, offsets, len_u64(TRAILER.len())];
    let len = lens.into_iter().fold(0, u64::saturating_add);
    let chunk = u64::from(frame.chunk).min(size.max(1));
    let chunk = u32::try_from(chunk).unwrap_or(frame.chunk);
    let long = |mark: u8, n: u64| [&[mark][..], &n.to_be_bytes()].concat();
    let short = |n: u32| [&[0xD2][..], &n.to_be_bytes()].concat();
    [
        MAGIC,
        &short(HEADER_LEN),
        &long(0xCF, len),
        &FLAGS,
        &long(0xD3, size),
        &long(0xD3, chunks),
        &short(frame.typesize.into()),
        &short(0), // blocks of each chunk's own size
        &short(chunk),
        THREADS,
        PIPELINE,
        NO_LAYERS,
    ]
    .concat()
}

/// The chunk that holds the offsets, as they are; nothing for none.
fn offsets_chunk(offsets: &[u8]) -> Vec<u8> {
    if offsets.is_empty() {
        return Vec::new();
    }
    let shape = BlockShape::of_blosc2(OFFSET);
    let len = shape.header_len().saturating_add(len_u64(offsets.len()));
    [
        &header(shape, STORED, len_u64(offsets.len()), len)[..],
        offsets,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Blosc, CFRAME};
    use super::*;
    use crate::codec::chunked::tests::noise;
    use crate::codec::testing::{EditCase, image, python};
    use crate::codec::{Cache, Codec, decode};
    use crate::source::{Memory, read_all};

    const BSC2: Blosc = Blosc(*b"bsc2");

    #[track_caller]
    fn assert_reads(stored: &[u8], plain: &[u8]) {
        let source = Arc::new(Memory::new(stored.to_vec()));
        let cache = Cache::new(1 << 24);
        let (framing, decoded) = decode(*b"bsc2", source, len_u64(plain.len()), &cache).unwrap();
        assert_eq!(framing, CFRAME);
        assert!(read_all(&decoded, 1 << 30).unwrap() == plain);
        let program = "import blosc2\ns = blosc2.schunk_from_cframe(d)\n\
            o.write(s[:] if s.nchunks else b'')";
        let found = python(program, stored);
        assert!(found.is_none_or(|found| found == plain));
    }

    #[test]
    fn a_frame_is_read_by_us_and_by_python() {
        for len in [0, 1, 5000, 4 << 20, (9 << 20) + 3] {
            for plain in [image(len), noise(len), vec![0; len]] {
                let mut stored = Vec::new();
                let source = Memory::new(plain.clone());
                BSC2.encode(None, &source, &mut stored).unwrap();
                let len = u64::from_be_bytes(stored[16..24].try_into().unwrap());
                assert_eq!(len, stored.len() as u64);
                assert_reads(&stored, &plain);
            }
        }
    }

    #[test]
    fn an_edit_keeps_the_typesize_and_the_chunks_of_a_frame() {
        let before = image(400_000);
        let program = "import blosc2\n\
            s = blosc2.SChunk(chunksize=100000, data=d, contiguous=True, cparams={'typesize': 4, 'codec': blosc2.Codec.LZ4})\n\
            o.write(s.to_cframe())";
        let Some(stored) = python(program, &before) else {
            return;
        };
        for (more, typesize) in [(4, 4), (3, 1)] {
            let case = EditCase {
                framing: CFRAME,
                stored: stored.clone(),
                writes: vec![(77, vec![9; 10])],
                len: before.len() + more,
                before: before.clone(),
            };
            let edited = case.run(&BSC2);
            assert_reads(&edited.stored, &edited.decoded);
            assert_eq!(edited.stored[51], typesize);
            assert_eq!(edited.stored[58..62], stored[58..62]);
        }
    }
}
