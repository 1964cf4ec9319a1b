//! Writing a contiguous frame of Blosc2, which [`cframe`](super::cframe) describes.
//!
//! Behind the chunk of offsets stands a trailer: metadata of variable length (none in a frame that is new), its own length, and
//! room for a fingerprint. Between the fields that change stand the bytes that c-blosc2 3.3 writes; abacusutils and asdf-cxx read
//! such frames through that library.
//!
//! The header says how long all chunks are together. So each chunk is packed twice, as a block of `single` is: first to count its
//! bytes, then to write them.
//!
//! An edit that keeps the length of a frame copies the chunks that it does not touch, and everything in front of the chunks and
//! behind them: metadata, such as the shape of a b2nd array.

use std::io::Write;

use super::cframe::{Cframe, FrameChunk};
use super::chunk::STORED;
use super::encode::{BlockShape, BloscEncoder, header};
use crate::codec::headers::array_at;
use crate::codec::splice::{Edited, write};
use crate::error::{Result, corrupt};
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
/// Two threads, which a reader need not start, and no metadata of variable length.
const THREADS: &[u8] = b"\xD1\0\x02\xD1\0\x02\xC2";
/// Six filters, of which the last is a shuffle, Zstandard, and their parameters.
const PIPELINE: &[u8] = b"\xD8\x06\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\0\0";
/// No metadata of fixed length.
const NO_LAYERS: &[u8] = b"\x93\xCD\0\x07\xDE\0\0\xDC\0\0";
const TRAILER: &[u8] =
    b"\x94\x01\x93\xCD\0\x06\xDE\0\0\xDC\0\0\xCE\0\0\0\x23\xD8\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// Bytes of an offset.
const OFFSET: u8 = 8;

/// Where a header has the bytes of the frame, the bytes of all chunks, and the decoded bytes of a type, a block and a chunk.
const LEN_AT: usize = 16;
const CHUNKS_AT: usize = 39;
const TYPE_AT: u64 = 48;
const BLOCK_AT: u64 = 53;
const CHUNK_AT: u64 = 58;
/// The longest header that is copied.
const MAX_HEADER: u64 = 1 << 20;

/// Writes `decoded` as a frame.
///
/// # Errors
/// Of reading `decoded`, and of `out`.
pub(super) fn encode(
    encoder: &mut BloscEncoder,
    decoded: &dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    FrameWriter::new(decoded, CHUNK_LEN, 1).write(encoder, out)
}

/// Writes an edited frame. It keeps the length of its chunks and its typesize; and if it also keeps its own length, the chunks that
/// the edit does not touch.
///
/// # Errors
/// Of reading the edited bytes or the stored ones, and of `out`.
pub(super) fn reencode(
    encoder: &mut BloscEncoder,
    edited: &Edited,
    out: &mut dyn Write,
) -> Result<()> {
    let stored = edited.stored.as_ref();
    let field = |at| array_at(stored, at).map_or(0, u32::from_be_bytes);
    // the field is hostile: a chunk is encoded in memory
    let chunk = field(CHUNK_AT).clamp(MIN_CHUNK, MAX_CHUNK);
    let typesize = u8::try_from(field(TYPE_AT)).unwrap_or(0);
    let mut writer = FrameWriter::new(edited.decoded, chunk, typesize.max(1));
    let frame = Cframe::open(stored, edited.stored_len).ok();
    let frame = frame.filter(|frame| {
        let [head, tail] = frame.around(frame_len(stored));
        edited.decoded.len() == edited.stored_len
            && frame.chunk_size == Some(chunk.into())
            && head.end <= MAX_HEADER
            && tail.start <= tail.end
            && tail.end <= stored.len()
    });
    if let Some(frame) = frame {
        writer.shape = writer.shape.in_blocks(field(BLOCK_AT));
        writer.kept = Some((edited, frame));
    }
    writer.write(encoder, out)
}

/// Bytes of a stored frame, as its header says.
fn frame_len(stored: &dyn Source) -> u64 {
    array_at(stored, len_u64(LEN_AT)).map_or(0, u64::from_be_bytes)
}

/// A frame that is to be written.
struct FrameWriter<'a> {
    decoded: &'a dyn Source,
    /// Decoded bytes of a chunk.
    chunk: u32,
    typesize: u8,
    /// What chunks that are packed look like.
    shape: BlockShape,
    /// The stored frame that this one replaces, if chunks of it are copied.
    kept: Option<(&'a Edited<'a>, Cframe)>,
}

impl<'a> FrameWriter<'a> {
    /// A new frame. Its typesize becomes 1 where bytes would be left over: readers count elements, so that all chunks must consist
    /// of whole ones.
    fn new(decoded: &'a dyn Source, chunk: u32, typesize: u8) -> Self {
        let is_whole = |len: u64| len.is_multiple_of(typesize.into());
        let typesize = if is_whole(decoded.len()) && is_whole(chunk.into()) {
            typesize
        } else {
            1
        };
        Self {
            decoded,
            chunk,
            typesize,
            shape: BlockShape::of_blosc2(typesize),
            kept: None,
        }
    }

    /// Calls `each` with the chunks in their order.
    fn chunks(
        &self,
        encoder: &mut BloscEncoder,
        mut each: impl FnMut(FrameChunk) -> Result<()>,
    ) -> Result<()> {
        let (len, chunk) = (self.decoded.len(), u64::from(self.chunk));
        for number in 0..len.div_ceil(chunk) {
            let start = number.saturating_mul(chunk);
            let range = start..start.saturating_add(chunk).min(len);
            let kept = self.kept.as_ref();
            if let Some((edited, frame)) = kept.filter(|(edited, _)| !edited.touches(&range)) {
                each(frame.stored_chunk(edited.stored.as_ref(), start, number)?)?;
            } else {
                each_piece(self.decoded, range, at_most(chunk, usize::MAX), |bytes| {
                    each(FrameChunk::New(encoder.chunk(self.shape, bytes)?))
                })?;
            }
        }
        Ok(())
    }

    /// Packs all chunks twice: for their offsets and lengths first, then to write header, chunks, offsets and trailer. Offsets count
    /// from the end of the header; that of a special chunk is the chunk itself, which takes no bytes.
    fn write(&self, encoder: &mut BloscEncoder, out: &mut dyn Write) -> Result<()> {
        let mut offsets = Vec::new();
        let mut end: u64 = 0;
        self.chunks(encoder, |chunk| {
            if let FrameChunk::Special(offset) = chunk {
                offsets.extend(offset);
                return Ok(());
            }
            offsets.extend(end.to_le_bytes());
            end = end.saturating_add(chunk.len());
            Ok(())
        })?;
        let offsets = offsets_chunk(&offsets)?;
        write(out, &self.header(end, len_u64(offsets.len()))?)?;
        let mut at: u64 = 0;
        self.chunks(encoder, |chunk| {
            at = at.saturating_add(chunk.len());
            match (chunk, &self.kept) {
                (FrameChunk::New(chunk), _) => write(out, &chunk),
                (FrameChunk::Stored(range), Some((edited, _))) => edited.copy(range, out),
                (FrameChunk::Stored(_) | FrameChunk::Special(_), _) => Ok(()),
            }
        })?;
        // the header and the offsets have the lengths of the first pass: such a frame would be damaged
        if at != end {
            return Err(corrupt("bytes that change while they are encoded"));
        }
        write(out, &offsets)?;
        match &self.kept {
            Some((edited, frame)) => {
                let [_, tail] = frame.around(frame_len(edited.stored.as_ref()));
                edited.copy(tail, out)
            }
            None => write(out, TRAILER),
        }
    }

    /// The header of a frame with so many bytes of chunks, and of the chunk of offsets: a new one, or the stored one with these numbers.
    fn header(&self, chunks: u64, offsets: u64) -> Result<Vec<u8>> {
        let Some((edited, frame)) = &self.kept else {
            return Ok(self.new_header(chunks, offsets));
        };
        let stored = edited.stored.as_ref();
        let [head, tail] = frame.around(frame_len(stored));
        let lens = [head.end, chunks, offsets];
        let len = lens
            .into_iter()
            .fold(tail.end.saturating_sub(tail.start), u64::saturating_add);
        let mut header = vec![0; at_most(head.end, usize::MAX)];
        stored.read_exact_at(&mut header, head.start)?;
        for (at, number) in [(LEN_AT, len), (CHUNKS_AT, chunks)] {
            let field = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
            *field.ok_or_else(|| corrupt("Blosc2 frame with a short header"))? =
                number.to_be_bytes();
        }
        Ok(header)
    }

    /// The 97 bytes of the header of a frame without metadata, as MessagePack: "Blosc2 Contiguous Frame Format". Its chunk size is
    /// no longer than the decoded bytes are; of none it is 1.
    fn new_header(&self, chunks: u64, offsets: u64) -> Vec<u8> {
        let size = self.decoded.len();
        let lens = [HEADER_LEN.into(), chunks, offsets, len_u64(TRAILER.len())];
        let len = lens.into_iter().fold(0, u64::saturating_add);
        let chunk = u64::from(self.chunk).min(size.max(1));
        let chunk = u32::try_from(chunk).unwrap_or(self.chunk);
        let long = |mark: u8, n: u64| [&[mark][..], &n.to_be_bytes()].concat();
        let short = |n: u32| [&[0xD2][..], &n.to_be_bytes()].concat();
        [
            MAGIC,
            &short(HEADER_LEN),
            &long(0xCF, len),
            &FLAGS,
            &long(0xD3, size),
            &long(0xD3, chunks),
            &short(self.typesize.into()),
            &short(0), // blocks of each chunk's own size
            &short(chunk),
            THREADS,
            PIPELINE,
            NO_LAYERS,
        ]
        .concat()
    }
}

/// The chunk that holds the offsets, as they are; nothing for none.
fn offsets_chunk(offsets: &[u8]) -> Result<Vec<u8>> {
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let shape = BlockShape::of_blosc2(OFFSET);
    let len = shape.header_len().saturating_add(len_u64(offsets.len()));
    let header = header(shape, STORED, len_u64(offsets.len()), len)?;
    Ok([&header, offsets].concat())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Blosc, CFRAME};
    use super::*;
    use crate::codec::headers::tests::noise;
    use crate::codec::testing::{EditCase, image, plains, python};
    use crate::codec::{Cache, Codec, decode};
    use crate::source::{Memory, read_all};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const BSC2: Blosc = Blosc(*b"bsc2");

    #[track_caller]
    fn assert_reads(stored: &[u8], plain: &[u8]) {
        let source = Arc::new(Memory::new(stored.to_vec()));
        let cache = Cache::new(1 << 24);
        let (framing, decoded) = decode(*b"bsc2", source, len_u64(plain.len()), &cache).unwrap();
        assert_eq!(framing, CFRAME);
        assert!(read_all(&*decoded, 1 << 30).unwrap() == plain);
        let program = "import blosc2\ns = blosc2.schunk_from_cframe(d)\n\
            o.write(s[:] if s.nchunks else b'')";
        let found = python(program, stored);
        assert!(found.is_none_or(|found| found == plain));
    }

    #[test]
    fn a_frame_is_read_by_us_and_by_python() {
        for len in [0, 1, 5000, 3 << 20, 4 << 20, (9 << 20) + 3] {
            for plain in plains(len) {
                let mut stored = Vec::new();
                let source = Memory::new(plain.clone());
                BSC2.encode(None, &source, &mut stored).unwrap();
                let len = u64::from_be_bytes(stored[16..24].try_into().unwrap());
                assert_eq!(len, stored.len() as u64);
                assert_reads(&stored, &plain);
            }
        }
    }

    /// The chunks of a frame as they are stored; of those that are an offset alone, that.
    fn chunks(stored: &[u8], size: usize) -> Vec<Vec<u8>> {
        let source = Memory::new(stored.to_vec());
        let frame = Cframe::open(&source, size as u64).unwrap();
        let chunk = frame.chunk_size.unwrap();
        let stored_chunk = |n| match frame.stored_chunk(&source, n * chunk, n).unwrap() {
            FrameChunk::Stored(range) => stored[range.start as usize..range.end as usize].to_vec(),
            FrameChunk::Special(offset) => offset.to_vec(),
            FrameChunk::New(_) => panic!("chunk {n} is not stored"),
        };
        (0..(size as u64).div_ceil(chunk))
            .map(stored_chunk)
            .collect()
    }

    /// Edits a frame, and gives the frame then, after a look at which chunks became other ones.
    #[track_caller]
    fn spliced(stored: &[u8], before: &[u8], at: usize, touched: &[usize]) -> Vec<u8> {
        let case = EditCase {
            framing: CFRAME,
            stored: stored.to_vec(),
            writes: vec![(at, vec![9; 10])],
            len: before.len(),
            before: before.to_vec(),
        };
        let edited = case.run(&BSC2);
        let (old, new) = (
            chunks(stored, before.len()),
            chunks(&edited.stored, before.len()),
        );
        assert_eq!(old.len(), new.len());
        for (n, (old, new)) in old.iter().zip(&new).enumerate() {
            assert_eq!(old == new, !touched.contains(&n), "chunk {n}");
        }
        let len = u64::from_be_bytes(edited.stored[16..24].try_into().unwrap());
        assert_eq!(len, edited.stored.len() as u64);
        edited.stored
    }

    /// A few bytes of it cost as much as all of it.
    #[test]
    fn ten_bytes_of_a_frame_cost_one_chunk_and_python_reads_it() {
        let before = image(3 * CHUNK_LEN as usize + 10);
        let mut stored = Vec::new();
        BSC2.encode(None, &Memory::new(before.clone()), &mut stored)
            .unwrap();
        let at = CHUNK_LEN as usize + 77;
        let edited = spliced(&stored, &before, at, &[1]);
        let mut plain = before;
        plain[at..at + 10].fill(9);
        assert_reads(&edited, &plain);
        // across two chunks, the last one included
        let at = 3 * CHUNK_LEN as usize - 5;
        let again = spliced(&edited, &plain, at, &[2, 3]);
        plain[at..at + 10].fill(9);
        assert_reads(&again, &plain);
    }

    #[test]
    fn an_edit_keeps_the_metadata_of_a_frame_and_its_other_chunks_whatever_packed_them() {
        let mut before = image(400_000);
        before[200_000..300_000].fill(0);
        let program = "import blosc2\n\
            s = blosc2.SChunk(chunksize=100000, data=d, contiguous=True, meta={'m': b'fixed'},\n \
              cparams={'typesize': 4, 'codec': blosc2.Codec.LZ4, 'filters': [blosc2.Filter.BITSHUFFLE]})\n\
            s.vlmeta['v'] = 'long'\no.write(s.to_cframe())";
        let Some(stored) = python(program, &before) else {
            return;
        };
        let check = "import blosc2\ns = blosc2.schunk_from_cframe(d)\n\
            assert s.meta['m'] == b'fixed' and s.vlmeta['v'] == 'long' and s.nchunks == 4\no.write(s[:])";
        let zeros = chunks(&stored, before.len())[2].len();
        assert!(zeros <= 32, "the run is {zeros} bytes");
        for (at, touched) in [(77, 0), (250_000, 2), (399_990, 3)] {
            let edited = spliced(&stored, &before, at, &[touched]);
            let mut plain = before.clone();
            plain[at..at + 10].fill(9);
            assert!(python(check, &edited) == Some(plain), "{at}");
        }
    }

    #[test]
    fn an_array_of_b2nd_is_one_after_an_edit_too() {
        let make = "import blosc2, numpy as np\na = np.arange(300*400, dtype='<f8').reshape(300, 400)\n\
            o.write(blosc2.asarray(a, chunks=(100, 400), blocks=(20, 100), contiguous=True).to_cframe())";
        let Some(stored) = python(make, b"") else {
            return;
        };
        let source = Arc::new(Memory::new(stored.clone()));
        let decoded = decode(*b"bsc2", source, 960_000, &Cache::new(1 << 24))
            .unwrap()
            .1;
        let before = read_all(&*decoded, 1 << 30).unwrap();
        let edited = spliced(&stored, &before, 400_000, &[1]);
        let read = "import blosc2, numpy as np\na = blosc2.ndarray_from_cframe(d)\n\
            b = np.arange(300*400, dtype='<f8').reshape(300, 400)\n\
            assert a.shape == (300, 400) and a.blocks == (20, 100)\no.write(bytes([np.sum(a[:] != b)]))";
        assert!(matches!(python(read, &edited).unwrap()[..], [1 | 2]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn an_edited_frame_holds_the_edited_bytes(
            typesize in 1u8..9,
            kinds in vec(0u8..3, 5),
            last in 1usize..MIN_CHUNK as usize,
            writes in vec((0usize..5 << 16, vec(any::<u8>(), 1..300)), 0..4),
            more in prop::sample::select(vec![0usize, 1, 70_000]),
        ) {
            let size = MIN_CHUNK as usize;
            let len = 4 * size + last;
            let parts = kinds.iter().flat_map(|kind| match kind {
                0 => image(size),
                1 => noise(size),
                _ => vec![7; size],
            });
            let before: Vec<u8> = parts.take(len).collect();
            let mut stored = Vec::new();
            let mut encoder = BloscEncoder::new().unwrap();
            let source = Memory::new(before.clone());
            FrameWriter::new(&source, MIN_CHUNK, typesize).write(&mut encoder, &mut stored).unwrap();
            let writes: Vec<_> = writes.into_iter().filter(|(at, bytes)| at + bytes.len() <= len).collect();
            let case = EditCase { framing: CFRAME, stored, before, writes, len: len + more };
            // which compares what it decodes to with the edited bytes
            let edited = case.run(&BSC2);
            if more == 0 {
                let (old, new) = (chunks(&case.stored, len), chunks(&edited.stored, len));
                for (n, (old, new)) in old.iter().zip(&new).enumerate() {
                    let (start, end) = (n * size, (n + 1) * size);
                    let touches = |at: usize, bytes: &[u8]| at < end && start < at + bytes.len();
                    let touched = case.writes.iter().any(|(at, bytes)| touches(*at, bytes));
                    prop_assert!(touched || old == new, "chunk {n}");
                }
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
