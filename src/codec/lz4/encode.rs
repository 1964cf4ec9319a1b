//! Writing chunks.

use std::io::Write;

use lz4_flex::block::{compress_into, get_maximum_output_size};

use super::super::chunks::ChunkStart;
use super::super::headers::Headers;
use super::super::splice::{Edited, Framing, u32_len, write};
use super::chunk::Lz4Chunk;
use crate::error::{Result, corrupt};

/// Decoded size of a chunk: Python's default.
pub(super) const CHUNK_LEN: u64 = 4 << 20;

/// Writes chunks.
#[derive(Default)]
pub(super) struct Lz4Encoder {
    block: Vec<u8>,
}

impl Framing for Lz4Encoder {
    const CHUNK: u64 = CHUNK_LEN;

    type Shape = ();

    fn read(&mut self, edited: &Edited, at: ChunkStart) -> Result<(ChunkStart, ())> {
        let chunk = Lz4Chunk::read(&mut Headers::new(edited.stored.as_ref()), at)?;
        Ok((chunk.next(), ()))
    }

    fn encode(&mut self, bytes: &[u8], (): &(), out: &mut dyn Write) -> Result<()> {
        self.block.resize(get_maximum_output_size(bytes.len()), 0);
        let written = compress_into(bytes, &mut self.block)
            .map_err(|cause| corrupt(format!("LZ4: {cause}")))?;
        let block = self.block.get(..written);
        let block = block.ok_or_else(|| corrupt("LZ4 block too long"))?;
        // as asdf-python: the length of the chunk is big-endian, the size in front of the block little-endian
        write(out, &u32_len(written.saturating_add(4))?.to_be_bytes())?;
        write(out, &u32_len(bytes.len())?.to_le_bytes())?;
        write(out, block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Codec;
    use super::super::super::testing::{EditCase, edits, encoded, image, python_agrees};
    use super::super::{CHUNKS, Lz4};
    use super::*;
    use crate::source::{Memory, Source};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The chunks of a payload: their stored bytes, by the decoded offset.
    fn chunks(stored: &[u8]) -> Vec<(u64, &[u8])> {
        let (mut rest, mut start, mut found) = (stored, 0, Vec::new());
        while let Some((head, _)) = rest.split_first_chunk::<8>() {
            let [len, size] = [&head[..4], &head[4..]].map(|part| part.try_into().unwrap());
            let (chunk, behind) = rest.split_at(u32::from_be_bytes(len) as usize + 4);
            found.push((start, chunk));
            start += u64::from(u32::from_le_bytes(size));
            rest = behind;
        }
        found
    }

    /// Chunks of `size`.
    fn stored(plain: &[u8], size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in plain.chunks(size) {
            Lz4Encoder::default().encode(chunk, &(), &mut out).unwrap();
        }
        out
    }

    #[test]
    fn ten_bytes_cost_one_chunk_and_python_reads_it() {
        let before = image(5 * CHUNK_LEN as usize + 10);
        let case = EditCase {
            framing: CHUNKS,
            stored: encoded(&Lz4, &before),
            writes: vec![(2 * CHUNK_LEN as usize + 77, vec![9; 10])],
            len: before.len(),
            before,
        };
        let edited = case.run(&Lz4);
        assert_eq!(edited.encoded, CHUNK_LEN);
        let (old, new) = (chunks(&case.stored), chunks(&edited.stored));
        assert_eq!(old.len(), new.len());
        for (n, (old, new)) in old.iter().zip(&new).enumerate() {
            assert_eq!(old == new, n != 2, "chunk {n}");
        }
        assert!(python_agrees("lz4", &[(edited.stored, edited.decoded)]));
    }

    #[test]
    fn what_is_appended_fills_the_last_chunk_up() {
        let before = image(250_000);
        let case = EditCase {
            framing: CHUNKS,
            stored: stored(&before, 100_000),
            writes: vec![(250_000, vec![3; 120_000])],
            len: 370_000,
            before,
        };
        let edited = case.run(&Lz4);
        let starts: Vec<u64> = chunks(&edited.stored).iter().map(|chunk| chunk.0).collect();
        assert_eq!(starts, [0, 100_000, 200_000, 300_000]);
        assert_eq!(edited.encoded, 170_000);
    }

    /// The decoded sizes of the chunks of what an edit makes of chunks of these sizes.
    fn sizes_after(sizes: &[usize], writes: Vec<(usize, Vec<u8>)>, len: usize) -> Vec<u64> {
        let before = image(sizes.iter().sum());
        let (mut stored, mut rest) = (Vec::new(), before.as_slice());
        for &size in sizes {
            let (chunk, behind) = rest.split_at(size);
            Lz4Encoder::default()
                .encode(chunk, &(), &mut stored)
                .unwrap();
            rest = behind;
        }
        let case = EditCase {
            framing: CHUNKS,
            stored,
            before,
            writes,
            len,
        };
        let edited = case.run(&Lz4);
        let starts = chunks(&edited.stored).into_iter().map(|chunk| chunk.0);
        let ends = starts.clone().skip(1).chain([len as u64]);
        starts.zip(ends).map(|(start, end)| end - start).collect()
    }

    #[test]
    fn no_chunk_becomes_larger_than_the_first() {
        // Once 5 MiB behind a block of 10,000 bytes became chunks of 4 MiB, and libasdf has room for as much as the first.
        const MIB: usize = 1 << 20;
        let grown = |sizes: &[usize], by: usize| {
            let len = sizes.iter().sum::<usize>() + by;
            sizes_after(sizes, Vec::new(), len)
        };
        assert_eq!(grown(&[10_000], 5 * MIB), [4 << 20, (1 << 20) + 10_000]);
        assert_eq!(grown(&[5 * MIB], 6 * MIB), [5 << 20, 5 << 20, 1 << 20]);
        assert_eq!(grown(&[300, 300, 100], 700), [300, 300, 300, 300, 200]);
        let larger_already = grown(&[300, 400], 5 * MIB);
        assert_eq!(larger_already, [300, 400, 4 << 20, 1 << 20]);
        let split = sizes_after(&[17 * MIB, 17 * MIB], vec![(5, vec![1])], 34 * MIB);
        let pieces = [4 << 20, 4 << 20, 4 << 20, 4 << 20, 1 << 20];
        assert_eq!(split, pieces.repeat(2));
    }

    #[test]
    fn a_block_that_grows_line_by_line_stays_one_chunk() {
        let line = b"2026-01-01T00:00:00 one more line\n";
        let mut before = line.to_vec();
        let mut payload = stored(&before, before.len());
        for _ in 0..50 {
            let case = EditCase {
                framing: CHUNKS,
                stored: payload,
                writes: vec![(before.len(), line.to_vec())],
                len: before.len() + line.len(),
                before,
            };
            let edited = case.run(&Lz4);
            assert_eq!(chunks(&edited.stored).len(), 1);
            (payload, before) = (edited.stored, edited.decoded);
        }
    }

    #[test]
    fn a_damaged_chunk_that_no_edit_touches_stays_as_it_is() {
        let before = image(300_000);
        let mut damaged = stored(&before, 100_000);
        let second = chunks(&damaged)[0].1.len();
        damaged[second + 20..second + 300].fill(0xFF);
        let source: Arc<dyn Source> = Arc::new(Memory::new(damaged.clone()));
        let edited = Edited {
            framing: CHUNKS,
            stored: &source,
            stored_len: 300_000,
            decoded: &Memory::new(before),
            touched: std::slice::from_ref(&(250_000..250_010)),
        };
        let mut out = Vec::new();
        Lz4.reencode(&edited, &mut out).unwrap();
        assert!(out == damaged);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn edits_keep_the_chunks_they_do_not_touch(
            size in 1usize..400,
            (writes, len) in edits(3000),
        ) {
            let before = image(3000);
            let case = EditCase { framing: CHUNKS, stored: stored(&before, size), before, writes, len };
            let edited = case.run(&Lz4);
            case.check_untouched(&edited, size, chunks);
        }
    }
}
