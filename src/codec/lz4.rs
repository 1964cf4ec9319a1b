//! The code `lz4`: LZ4 blocks with lengths before them, as Python's asdf writes them, or an LZ4 frame, as ASDF.jl may.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of what follows of this chunk, n, big-endian |
//! | 4 | decoded size of this chunk, little-endian |
//! | n - 4 | an LZ4 block |
//!
//! and so on until all is decoded; chunks have 4 MiB as a rule (ASDF.jl: 8 MiB). The lengths make a table of the chunks,
//! so that each can be reached without a look at the others' data.

mod chunk;
mod encode;
mod long;

use std::io::Write;
use std::sync::Arc;

use lz4_flex::block::decompress_into;

use self::chunk::{Lz4Chunk, MAX_RATIO};
use self::encode::Lz4Encoder;
use self::long::LongBlock;
use super::chunks::{ChunkStart, Chunked, Chunks, FoundChunk, Pieces};
use super::headers::{Headers, read_into};
use super::{Codec, Edited, Framed, splice};
use crate::error::Result;
use crate::source::{PooledBuf, Source};

/// The code.
const CODE: [u8; 4] = *b"lz4\0";

/// The code of the codec for frames.
const FRAME_CODE: [u8; 4] = *b"lz4f";

/// Name of Python's framing.
const CHUNKS: &str = "chunks";

/// First bytes of an LZ4 frame.
const FRAME_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];

/// The upper two bits of the byte behind the magic of a frame.
const FRAME_VERSION: u8 = 0b01;

/// The codec.
pub(super) struct Lz4;

impl Codec for Lz4 {
    fn code(&self) -> [u8; 4] {
        CODE
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        let mut start = [0; 5];
        if stored.len() >= 5 {
            stored.read_exact_at(&mut start, 0)?;
        }
        let [magic @ .., flags] = start;
        // As the length of a chunk the magic is 69 MB, which no writer makes.
        if magic == FRAME_MAGIC && flags.checked_shr(6) == Some(FRAME_VERSION) {
            return super::codec(FRAME_CODE)?.open(stored, data_size);
        }
        Ok(Framed {
            framing: CHUNKS,
            stream: Chunks::open(stored, data_size, PythonChunks)?,
        })
    }

    fn max_ratio(&self) -> u64 {
        MAX_RATIO
    }

    fn encode(
        &self,
        framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        // a frame under the code lz4 stays a frame: its writer may read nothing else
        if framing.is_some_and(|framing| framing != CHUNKS) {
            return super::codec(FRAME_CODE)?.encode(framing, decoded, out);
        }
        splice::encode(&mut Lz4Encoder::default(), decoded, out)
    }

    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        if edited.framing != CHUNKS {
            return super::codec(FRAME_CODE)?.reencode(edited, out);
        }
        splice::reencode(&mut Lz4Encoder::default(), edited, out)
    }
}

/// Python's framing.
struct PythonChunks;

impl Chunked for PythonChunks {
    type Chunk = Lz4Chunk;
    type Scratch = ();

    fn chunk(&self, headers: &mut Headers, at: ChunkStart) -> Result<(Lz4Chunk, FoundChunk)> {
        let chunk = Lz4Chunk::read(headers, at)?;
        Ok((chunk, chunk.found()))
    }

    fn decode(
        &self,
        stored: &dyn Source,
        chunk: &Lz4Chunk,
        _: u64,
        (): &mut (),
        out: &mut [u8],
    ) -> Result<()> {
        let len = usize::try_from(chunk.len).map_err(|cause| chunk.damaged(cause))?;
        let mut block = PooledBuf::default();
        let block = read_into(stored, chunk.block_start(), len, &mut block)?;
        let decoded = decompress_into(block, out).map_err(|cause| chunk.damaged(cause))?;
        // fewer bytes than announced would leave old ones in the buffer, from another block
        if decoded != out.len() {
            let announced = out.len();
            return Err(chunk.damaged(format!("{decoded} decoded bytes, {announced} announced")));
        }
        Ok(())
    }

    fn in_pieces(&self, stored: &Arc<dyn Source>, chunk: &Lz4Chunk) -> Option<Box<dyn Pieces>> {
        let block = || LongBlock::new(Arc::clone(stored), chunk);
        chunk
            .is_long()
            .then(|| -> Box<dyn Pieces> { Box::new(block()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::caller::while_wanted;
    use super::super::testing::{
        assert_harmless, assert_reads_like, encoded, image, open, python_agrees, python_encodes,
        read_all,
    };
    use super::super::{Cache, Decoded};
    use super::chunk::LONG_CHUNK;
    use super::encode::CHUNK_LEN;
    use super::*;
    use proptest::prelude::*;

    /// Chunks of these decoded sizes.
    fn chunked(plain: &[u8], sizes: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let mut stored = Vec::new();
        let mut rest = plain;
        for size in sizes {
            let (chunk, behind) = rest.split_at(size.min(rest.len()));
            let block = lz4_flex::block::compress(chunk);
            stored.extend((block.len() as u32 + 4).to_be_bytes());
            stored.extend((chunk.len() as u32).to_le_bytes());
            stored.extend(block);
            rest = behind;
        }
        assert!(rest.is_empty());
        stored
    }

    #[test]
    fn what_is_written_is_read_again_here_and_by_python() {
        let mut cases = Vec::new();
        let chunk = CHUNK_LEN as usize;
        for len in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 5] {
            let plain = image(len);
            let stored = encoded(&Lz4, &plain);
            let decoded = open(&Lz4, &stored, len as u64).unwrap();
            assert_reads_like(&*decoded, &plain);
            cases.push((stored, plain));
        }
        assert!(python_agrees("lz4", &cases));
    }

    #[test]
    fn what_python_writes_is_read() {
        let plain = image(CHUNK_LEN as usize + 77);
        if let Some(stored) = python_encodes("lz4", &plain) {
            assert_reads_like(&*open(&Lz4, &stored, plain.len() as u64).unwrap(), &plain);
        }
    }

    /// A walk along millions of chunks went on for seconds after its reader was killed.
    #[test]
    fn a_walk_along_chunks_ends_when_its_reader_is_gone() {
        let stored = chunked(&image(9), [3, 3, 3]);
        let opened = Lz4.open(Arc::new(crate::source::Memory::new(stored)), 9);
        let stream = opened.unwrap().stream;
        let gone = while_wanted(Some(Arc::new(|| false)), || stream.entry(8));
        assert_eq!(gone, 3);
        assert_eq!(stream.entry(8), 6);
    }

    #[test]
    fn a_table_of_many_small_chunks_stays_small_and_finds_all() {
        let plain = image(5 * (1 << 15) + 3);
        let stored = chunked(&plain, std::iter::repeat_n(2, plain.len().div_ceil(2)));
        let opened = Lz4
            .open(
                Arc::new(crate::source::Memory::new(stored)),
                plain.len() as u64,
            )
            .unwrap();
        for offset in [plain.len() - 1, 70_001, 5, 0, 131_071] {
            assert_eq!(opened.stream.entry(offset as u64), offset as u64 / 2 * 2);
        }
        assert!(opened.stream.held() <= 1 << 10);
        let mut cursor = opened.stream.cursor(150_001).unwrap();
        let mut buf = [0; 9];
        cursor.fill(&mut buf, u64::MAX).unwrap();
        assert_eq!(buf, plain[150_000..150_009]);
    }

    #[test]
    fn a_chunk_too_long_for_memory_is_decoded_in_pieces() {
        let plain = image(LONG_CHUNK as usize + 100_001);
        let stored = chunked(&plain, [plain.len() - 1000, 1000]);
        let decoded = open(&Lz4, &stored, plain.len() as u64).unwrap();
        assert!(read_all(&*decoded).unwrap() == plain);
    }

    /// Its memory was taken without a word where the chunks before it were small.
    #[test]
    fn a_larger_chunk_is_decoded_when_its_memory_was_asked_for() {
        let plain = image(9 << 20);
        let stored = Arc::new(crate::source::Memory::new(chunked(
            &plain,
            [1000, plain.len() - 1000],
        )));
        let stream = Lz4.open(stored, plain.len() as u64).unwrap().stream;
        let mut cursor = stream.cursor(0).unwrap();
        assert!(cursor.needed() < 1 << 20);
        let mut buf = vec![0; 1 << 20];
        assert_eq!(cursor.read(&mut buf).unwrap(), 1000);
        assert!(cursor.needed() < 1 << 20);
        assert_eq!(cursor.read(&mut buf).unwrap(), 0);
        assert!(cursor.held() < 1 << 20 && cursor.needed() > 9 << 20);
        assert_eq!(cursor.read(&mut buf).unwrap(), 1 << 20);
        assert!(buf == plain[1000..][..1 << 20]);
    }

    #[test]
    fn more_than_the_announced_size_is_cut_and_less_is_an_error_where_it_ends() {
        let plain = image(3 << 20);
        let stored = chunked(&plain, [1 << 20, 1 << 20, 1 << 20]);
        let decoded = open(&Lz4, &stored, 2_500_000).unwrap();
        assert_reads_like(&*decoded, &plain[..2_500_000]);
        let decoded = open(&Lz4, &stored, 4 << 20).unwrap();
        let mut buf = vec![0; 3 << 20];
        decoded.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf == plain);
        assert!(decoded.read_exact_at(&mut [0], 3 << 20).is_err());
    }

    #[test]
    fn a_damaged_chunk_leaves_the_others_readable() {
        let plain = image(4 << 20);
        let mut stored = chunked(&plain, [1 << 20; 4]);
        let second = chunked(&plain[..1 << 20], [1 << 20]).len();
        stored[second + 20..second + 1000].fill(0xFF);
        let decoded = open(&Lz4, &stored, plain.len() as u64).unwrap();
        let mut buf = vec![0; 1 << 20];
        for (index, piece) in plain.chunks(1 << 20).enumerate() {
            let outcome = decoded.read_exact_at(&mut buf, (index as u64) << 20);
            assert_eq!(outcome.is_ok() && buf == piece, index != 1);
        }
    }

    #[test]
    fn a_chunk_that_is_longer_than_any_can_be_is_no_reason_to_refuse_the_others() {
        let plain = image(3 << 20);
        let mut stored = chunked(&plain, [1 << 20; 3]);
        let lie = stored.len();
        stored.extend((60_000_004_u32).to_be_bytes());
        stored.extend(10_u32.to_le_bytes());
        stored.resize(lie + 8 + 60_000_000, 0);
        let len = plain.len() as u64;
        let opened = Lz4.open(Arc::new(crate::source::Memory::new(stored)), len + 10);
        let decoded = Decoded::new(opened.unwrap().stream, len + 10, &Cache::new(8 << 20));
        assert!(decoded.read_exact_at(&mut [0; 10], len).is_err());
        let mut buf = vec![0; plain.len()];
        decoded.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf == plain);
    }

    #[test]
    fn a_size_that_no_chunk_can_have_is_refused_at_once() {
        let stored = [
            0, 0, 0, 14, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
        ];
        let error = open(&Lz4, &stored, 1 << 32).err().unwrap().to_string();
        assert_eq!(
            error,
            "LZ4 chunk at stored byte 0: 4294967295 decoded bytes can't come from 10"
        );
        assert!(open(&Lz4, &[], 1).is_err());
        assert!(open(&Lz4, &[], 0).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_bytes_are_harmless(
            sizes in prop::collection::vec(1usize..3000, 1..9),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            size in 0u64..100_000,
        ) {
            let plain = image(sizes.iter().sum());
            let mut stored = chunked(&plain, sizes);
            for (place, value) in changes {
                let at = place.index(stored.len());
                stored[at] = value;
            }
            stored.truncate(cut.index(stored.len()) + 1);
            assert_harmless(&Lz4, &stored, size);
        }
    }
}
