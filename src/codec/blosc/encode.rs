//! Writing chunks, and prefixed ones one behind the other.
//!
//! A new chunk is what abacusutils writes: 4 MiB in blocks of 512 KiB, each a Zstandard frame of level 1. A chunk that is written
//! again keeps the typesize, the shuffle and the block size of the one that it replaces, and Zstandard; of other inner codecs
//! and filters, which Abacus files do not have, it becomes a new chunk.
//!
//! A chunk of Blosc2 differs in its header only, which says again what the filter and the inner codec are.

use std::io::Write;

use super::chunk::{BIT_SHUFFLED, Chunk, DELTA, EXTENDED, HEADER, NOT_SPLIT, SHUFFLED, STORED};
use super::filters::{bit_shuffle, shuffle};
use crate::codec::chunks::ChunkStart;
use crate::codec::headers::{Headers, array_at};
use crate::codec::splice::{Edited, Framing, u32_len, write};
use crate::codec::zstd;
use crate::error::{Result, corrupt};
use crate::source::len_u64;

/// Decoded sizes of a chunk and of its blocks.
pub(super) const CHUNK_LEN: u64 = 4 << 20;
pub(super) const BLOCK_LEN: usize = 512 << 10;
/// Limits of a block size that is kept.
const MIN_BLOCK: usize = 4 << 10;
const MAX_BLOCK: usize = 8 << 20;
const LEVEL: i32 = 1;
/// Format version 2, codec version 1; of Blosc2 format version 5.
const VERSION: [u8; 2] = [2, 1];
const VERSION_2: [u8; 2] = [5, 1];
/// Zstandard, blocks not split.
const FLAGS: u8 = 4 << 5 | NOT_SPLIT;
/// The flags of a chunk that is packed, where others are [`STORED`].
pub(super) const PACKED: u8 = 0;
/// What c-blosc2 calls Zstandard.
const ZSTD_2: u8 = 5;
/// The inner codec in the flags.
const FORMAT: u8 = 7 << 5;

/// What the blocks of a chunk are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockShape {
    typesize: u8,
    /// Decoded bytes of a block; the last one of a chunk may be shorter.
    pub(super) block: usize,
    /// [`SHUFFLED`] or [`BIT_SHUFFLED`], or nothing; of Blosc2 not [`BIT_SHUFFLED`].
    filter: u8,
    /// Whether the chunk has the extended header of Blosc2.
    pub(super) blosc2: bool,
}

impl Default for BlockShape {
    fn default() -> Self {
        // A shuffle of elements of one byte moves nothing, but it is what abacusutils asks for.
        Self {
            typesize: 1,
            block: BLOCK_LEN,
            filter: SHUFFLED,
            blosc2: false,
        }
    }
}

impl BlockShape {
    /// The shape of a new chunk of Blosc2, with elements of so many bytes.
    pub(super) fn of_blosc2(typesize: u8) -> Self {
        let size = usize::from(typesize.max(1));
        Self {
            typesize: typesize.max(1),
            block: BLOCK_LEN.saturating_sub(BLOCK_LEN.checked_rem(size).unwrap_or(0)),
            filter: SHUFFLED,
            blosc2: true,
        }
    }

    /// The same with blocks of another size, if blocks of that size are written.
    pub(super) fn in_blocks(self, block: u32) -> Self {
        let block = usize::try_from(block).unwrap_or(0);
        let other = Self { block, ..self };
        if other.is_written() { other } else { self }
    }

    /// Whether blocks like these are written.
    fn is_written(self) -> bool {
        self.typesize > 0
            && (MIN_BLOCK..=MAX_BLOCK).contains(&self.block)
            && self.block.is_multiple_of(self.typesize.into())
    }

    /// Bytes of a chunk's header.
    pub(super) fn header_len(self) -> u64 {
        if self.blosc2 { EXTENDED } else { HEADER }
    }

    /// The shape of the Blosc2 chunk with this header, if such a chunk is written: with Zstandard, and a shuffle or no filter.
    pub(super) fn of_header_2(header: [u8; 32]) -> Option<Self> {
        let [version, _, flags, typesize, ..] = header;
        let [_, _, _, _, _, _, _, _, b0, b1, b2, b3, ..] = header;
        let (filters, more) = (header.get(16..22)?, header.last());
        let both = SHUFFLED | BIT_SHUFFLED;
        let known = (3..=5).contains(&version)
            && flags & (FORMAT | both | DELTA) == FLAGS & FORMAT | both
            && filters.iter().map(|&filter| u32::from(filter)).sum::<u32>() <= SHUFFLED.into()
            && more == Some(&0);
        let shape = Self {
            typesize,
            block: usize::try_from(u32::from_le_bytes([b0, b1, b2, b3])).ok()?,
            filter: filters.contains(&SHUFFLED).into(),
            blosc2: true,
        };
        Some(shape).filter(|shape| known && shape.is_written())
    }

    /// The shape of the Blosc1 chunk with this header, if such a chunk is written.
    pub(super) fn of(
        [version, _, flags, typesize, _, _, _, _, b0, b1, b2, b3, ..]: [u8; 16],
    ) -> Option<Self> {
        let filter = flags & (SHUFFLED | BIT_SHUFFLED | DELTA);
        let known = version <= 2
            && flags & FORMAT == FLAGS & FORMAT
            && matches!(filter, 0 | SHUFFLED | BIT_SHUFFLED);
        let shape = Self {
            typesize,
            block: usize::try_from(u32::from_le_bytes([b0, b1, b2, b3])).ok()?,
            filter,
            blosc2: false,
        };
        Some(shape).filter(|shape| known && shape.is_written())
    }

    /// The same with another filter.
    pub(super) fn with_another_filter(self) -> Self {
        let filter = if self.filter == 0 { SHUFFLED } else { 0 };
        Self { filter, ..self }
    }
}

/// The header of a chunk of `len` bytes that holds so many `decoded` ones.
///
/// # Errors
/// As [`u32_len`].
pub(super) fn header(shape: BlockShape, flags: u8, decoded: u64, len: u64) -> Result<Vec<u8>> {
    // c-blosc2 reads no chunk with blocks of no bytes, even if it has none
    let block = len_u64(shape.block).min(decoded).max(1);
    let sizes = [u32_len(decoded)?, u32_len(block)?, u32_len(len)?];
    let sizes = sizes.map(u32::to_le_bytes);
    if !shape.blosc2 {
        let kind = [FLAGS | shape.filter | flags, shape.typesize];
        return Ok([&VERSION[..], &kind, sizes.as_flattened()].concat());
    }
    // both shuffles say that the header is the long one
    let kind = [FLAGS | SHUFFLED | BIT_SHUFFLED | flags, shape.typesize];
    // One filter, the last of six; the codec; and nothing more.
    let pipeline = [&[0; 5][..], &[shape.filter, ZSTD_2], &[0; 9]].concat();
    Ok([&VERSION_2[..], &kind, sizes.as_flattened(), &pipeline].concat())
}

/// Reads the headers of chunks, and writes chunks.
pub(super) struct BloscEncoder {
    zstd: zstd::ZstdEncoder,
    filtered: Vec<u8>,
    packed: Vec<u8>,
}

impl BloscEncoder {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            zstd: zstd::ZstdEncoder::new(LEVEL)?,
            filtered: Vec::new(),
            packed: Vec::new(),
        })
    }

    /// Packs a block; one that does not get smaller stays as it is behind its filter.
    pub(super) fn pack(&mut self, shape: BlockShape, block: &[u8]) -> &[u8] {
        self.filtered.resize(block.len(), 0);
        let typesize = usize::from(shape.typesize);
        match shape.filter {
            SHUFFLED => shuffle(typesize, block, &mut self.filtered),
            BIT_SHUFFLED => bit_shuffle(typesize, block, &mut self.filtered),
            _ => self.filtered.copy_from_slice(block),
        }
        // A stream as long as its block is taken for stored.
        self.packed.resize(block.len().saturating_sub(1), 0);
        let len = self.zstd.encode(&self.filtered, &mut self.packed);
        len.and_then(|len| self.packed.get(..len))
            .unwrap_or(&self.filtered)
    }

    /// A chunk of `bytes`: packed if that makes it smaller.
    ///
    /// # Errors
    /// As [`header`].
    pub(super) fn chunk(&mut self, shape: BlockShape, bytes: &[u8]) -> Result<Vec<u8>> {
        let header = |flags, len| header(shape, flags, len_u64(bytes.len()), len_u64(len));
        let mut chunk = header(PACKED, 0)?;
        let mut starts = Vec::new();
        let mut streams = Vec::new();
        let table = bytes.len().div_ceil(shape.block).saturating_mul(4);
        let before = chunk.len().saturating_add(table);
        for block in bytes.chunks(shape.block) {
            starts.extend(u32_len(before.saturating_add(streams.len()))?.to_le_bytes());
            let stream = self.pack(shape, block);
            streams.extend(u32_len(stream.len())?.to_le_bytes());
            streams.extend_from_slice(stream);
        }
        let len = before.saturating_add(streams.len());
        let stored_len = chunk.len().saturating_add(bytes.len());
        // also if each block got smaller: starts and lengths may take more than that saves
        if len >= stored_len {
            return Ok([&header(STORED, stored_len)?[..], bytes].concat());
        }
        chunk = header(PACKED, len)?;
        chunk.extend(starts);
        chunk.extend(streams);
        Ok(chunk)
    }
}

impl Framing for BloscEncoder {
    const CHUNK: u64 = CHUNK_LEN;

    type Shape = BlockShape;

    fn read(&mut self, edited: &Edited, at: ChunkStart) -> Result<(ChunkStart, BlockShape)> {
        let source = edited.stored.as_ref();
        let len = u64::from(u32::from_be_bytes(array_at(source, at.mark)?));
        let chunk_at = at.mark.saturating_add(4);
        let end = chunk_at.saturating_add(len);
        if end > source.len() {
            return Err(corrupt("Blosc chunk that is cut short"));
        }
        let data_room = edited.stored_len.saturating_sub(at.start);
        let chunk = Chunk::read(&mut Headers::new(source), chunk_at, len, data_room)?;
        // a chunk of a kind that is not written, such as one of lz4, is written in our own way once it is edited
        let shape = BlockShape::of(array_at(source, chunk_at)?).unwrap_or_default();
        let next = ChunkStart {
            start: at.start.saturating_add(chunk.size),
            mark: end,
        };
        Ok((next, shape))
    }

    fn encode(&mut self, bytes: &[u8], shape: &BlockShape, out: &mut dyn Write) -> Result<()> {
        let chunk = self.chunk(*shape, bytes)?;
        write(out, &u32_len(chunk.len())?.to_be_bytes())?;
        write(out, &chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Blosc, PREFIXED};
    use super::*;
    use crate::codec::headers::tests::{encode, noise};
    use crate::codec::testing::{EditCase, edits, image, python};
    use proptest::prelude::*;

    const BLSC: Blosc = Blosc(*b"blsc");

    /// The chunks of a payload, by the decoded offset.
    fn chunks(stored: &[u8]) -> Vec<(u64, &[u8])> {
        let (mut rest, mut start, mut found) = (stored, 0, Vec::new());
        while let Some((head, _)) = rest.split_first_chunk::<12>() {
            let (chunk, behind) =
                rest.split_at(u32::from_be_bytes(head[..4].try_into().unwrap()) as usize + 4);
            found.push((start, chunk));
            start += u64::from(u32::from_le_bytes(head[8..].try_into().unwrap()));
            rest = behind;
        }
        found
    }

    fn stored(plain: &[u8], size: usize, shape: BlockShape) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = BloscEncoder::new().unwrap();
        for chunk in plain.chunks(size) {
            encoder.encode(chunk, &shape, &mut out).unwrap();
        }
        out
    }

    /// Whether Python's blosc decodes a payload to these bytes; true where there is no such Python.
    fn python_agrees(stored: &[u8], plain: &[u8]) -> bool {
        let program = "import blosc\nwhile d:\n n = int.from_bytes(d[:4], 'big')\n \
                       o.write(blosc.decompress(d[4:4+n])); d = d[4+n:]";
        python(program, stored).is_none_or(|found| found == plain)
    }

    #[test]
    fn ten_bytes_cost_one_chunk_and_python_reads_it() {
        let before = image(3 * CHUNK_LEN as usize + 10);
        let case = EditCase {
            framing: PREFIXED,
            stored: encode(&BLSC, &before),
            writes: vec![(CHUNK_LEN as usize + 77, vec![9; 10])],
            len: before.len(),
            before,
        };
        let edited = case.run(&BLSC);
        assert_eq!(edited.encoded, CHUNK_LEN);
        let (old, new) = (chunks(&case.stored), chunks(&edited.stored));
        assert_eq!(old.len(), new.len());
        for (n, (old, new)) in old.iter().zip(&new).enumerate() {
            assert_eq!(old == new, n != 1, "chunk {n}");
        }
        assert!(python_agrees(&edited.stored, &edited.decoded));
    }

    #[test]
    fn a_chunk_keeps_its_typesize_its_shuffle_and_its_blocks() {
        let before = image(400_004);
        for (name, filter) in [("NOSHUFFLE", 0), ("SHUFFLE", 1), ("BITSHUFFLE", 4)] {
            for typesize in [2, 9] {
                let program = format!(
                    "import blosc\nblosc.set_blocksize(9 * 4096)\nfor i in range(0, len(d), 200000):\n \
                     b = blosc.compress(d[i:i+200000], typesize={typesize}, clevel=5, shuffle=blosc.{name}, cname='zstd')\n \
                     o.write(len(b).to_bytes(4, 'big') + b)"
                );
                let Some(stored) = python(&program, &before) else {
                    return;
                };
                let case = EditCase {
                    framing: PREFIXED,
                    stored,
                    before: before.clone(),
                    writes: vec![(250_000, vec![1; 10]), (400_003, vec![1])],
                    len: before.len(),
                };
                let edited = case.run(&BLSC);
                let (old, new) = (chunks(&case.stored), chunks(&edited.stored));
                assert_eq!(old[0], new[0]);
                let head = |chunk: &[u8]| [&chunk[4..5], &chunk[6..16]].concat();
                assert_eq!(head(old[1].1), head(new[1].1), "{name} {typesize}");
                assert_eq!(new[1].1[6] & 5, filter);
                assert!(python_agrees(&edited.stored, &edited.decoded));
            }
        }
    }

    #[test]
    fn what_other_codecs_packed_becomes_a_new_chunk() {
        let packed = |flags, typesize| {
            let mut header = [2, 1, flags, typesize, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0, 0];
            header[12] = 200;
            BlockShape::of(header)
        };
        assert_eq!(packed(FLAGS | SHUFFLED, 1), Some(BlockShape::default()));
        assert!(packed(FLAGS | BIT_SHUFFLED, 8).is_some());
        assert_eq!(packed(1 << 5 | SHUFFLED, 4), None);
        assert_eq!(packed(FLAGS | DELTA, 4), None);
        assert_eq!(packed(FLAGS | SHUFFLED, 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn edits_keep_the_chunks_they_do_not_touch(
            size in 40usize..3000,
            typesize in 1u8..20,
            filter in prop::sample::select(vec![0, SHUFFLED, BIT_SHUFFLED]),
            packs in any::<bool>(),
            (writes, len) in edits(6000),
        ) {
            let before = if packs { image(6000) } else { noise(6000) };
            let shape = BlockShape { typesize, block: usize::from(typesize) * 64, filter, blosc2: false };
            let stored = stored(&before, size, shape);
            let case = EditCase { framing: PREFIXED, stored, before, writes, len };
            let edited = case.run(&BLSC);
            case.check_untouched(&edited, size, chunks);
        }
    }
}
