//! Writing all of a block as one chunk.
//!
//! A chunk begins with the places of its blocks, which are known when all of them are packed. They are packed twice: first to
//! count their bytes, then to write them. That takes no memory but for the places, four bytes a block.

use std::io::Write;

use super::chunk::STORED;
use super::encode::{BlockShape, BloscEncoder, PACKED, header};
use crate::codec::splice::{u32_len, write};
use crate::error::{Error, Result, corrupt};
use crate::source::{Source, each_piece, len_u64};

/// The most decoded bytes that a chunk has with its header: what c-blosc counts in an `int`.
const MAX_LEN: u64 = 0x7FFF_FFFF;

/// Writes `decoded` as one chunk; stored as it is if packing does not make it smaller.
///
/// # Errors
/// [`Error::NoRoom`] if it is more than a chunk holds; of reading `decoded`, and of `out`.
pub(super) fn encode(
    encoder: &mut BloscEncoder,
    shape: BlockShape,
    decoded: &dyn Source,
    out: &mut dyn Write,
) -> Result<()> {
    let len = decoded.len();
    let most = MAX_LEN.saturating_sub(shape.header_len());
    if len > most {
        let why =
            format!("a Blosc chunk has at most {most} bytes, not {len}; `blsc` writes several");
        return Err(Error::NoRoom { why, limit: true });
    }
    let starts_len = len.div_ceil(len_u64(shape.block)).saturating_mul(4);
    let mut end = shape.header_len().saturating_add(starts_len);
    let mut starts = Vec::new();
    // packed twice: the starts stand in front of the blocks, and all packed blocks may not fit into memory
    each_piece(decoded, 0..len, shape.block, |block| {
        starts.push(end);
        let packed = encoder.pack(shape, block).len();
        end = end.saturating_add(4).saturating_add(len_u64(packed));
        Ok(())
    })?;
    if end >= shape.header_len().saturating_add(len) {
        return store(shape, decoded, out);
    }
    write(out, &header(shape, PACKED, len, end)?)?;
    for start in &starts {
        write(out, &u32_len(*start)?.to_le_bytes())?;
    }
    let mut at = shape.header_len().saturating_add(starts_len);
    let mut starts = starts.into_iter();
    each_piece(decoded, 0..len, shape.block, |block| {
        // The table of starts is written: blocks packed again must take as much room as before.
        if starts.next() != Some(at) {
            return Err(corrupt("bytes that change while they are encoded"));
        }
        let packed = encoder.pack(shape, block);
        at = at.saturating_add(4).saturating_add(len_u64(packed.len()));
        write(out, &u32_len(packed.len())?.to_le_bytes())?;
        write(out, packed)
    })?;
    if at == end {
        Ok(())
    } else {
        Err(corrupt("bytes that change while they are encoded"))
    }
}

/// Writes the bytes behind a header.
fn store(shape: BlockShape, decoded: &dyn Source, out: &mut dyn Write) -> Result<()> {
    let len = decoded.len();
    let mut first = [0; 4];
    if len >= 4 {
        decoded.read_exact_at(&mut first, 0)?;
    }
    let total = shape.header_len().saturating_add(len);
    let mut head = header(shape, STORED, len, total)?;
    if !shape.blosc2 && looks_prefixed(&head, first) {
        // the filter means nothing here
        head = header(shape.with_another_filter(), STORED, len, total)?;
    }
    write(out, &head)?;
    each_piece(decoded, 0..len, shape.block, |block| write(out, block))
}

/// Whether the chunk with this header and these first bytes would be taken for one of those that have their length in front.
fn looks_prefixed(header: &[u8], first: [u8; 4]) -> bool {
    let start = header.first_chunk::<4>();
    start.is_some_and(|start| u32::from_be_bytes(*start) == u32::from_le_bytes(first))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Blosc, ONE_CHUNK};
    use super::*;
    use crate::codec::headers::tests::noise;
    use crate::codec::testing::{EditCase, image, plains, python};
    use crate::codec::{Cache, Codec, decode};
    use crate::error::Place;
    use crate::source::{Memory, Short, read_all};

    const BLSC: Blosc = Blosc(*b"blsc");
    const BLS2: Blosc = Blosc(*b"bls2");

    #[track_caller]
    fn assert_reads_2(stored: &[u8], plain: &[u8]) {
        let source = Arc::new(Memory::new(stored.to_vec()));
        let cache = Cache::new(1 << 24);
        let (framing, decoded) = decode(*b"bls2", source, len_u64(plain.len()), &cache).unwrap();
        assert_eq!(framing, ONE_CHUNK);
        assert!(read_all(&*decoded, 1 << 30).unwrap() == plain);
        let found = python("import blosc2\no.write(blosc2.decompress(d))", stored);
        assert!(found.is_none_or(|found| found == plain));
    }

    #[test]
    fn a_chunk_of_blosc2_is_read_by_us_and_by_python() {
        for len in [0, 1, 31, 32, 5000, 512 << 10, (512 << 10) + 1, 3 << 20] {
            for plain in plains(len) {
                let mut stored = Vec::new();
                let source = Memory::new(plain.clone());
                BLS2.encode(None, &source, &mut stored).unwrap();
                assert!(stored.len() <= plain.len() + 32);
                assert_reads_2(&stored, &plain);
            }
        }
    }

    #[test]
    fn an_edit_keeps_the_chunk_of_blosc2_with_its_typesize_and_its_blocks() {
        let before = image(400_000);
        for (filter, kept) in [("NOFILTER", true), ("SHUFFLE", true), ("BITSHUFFLE", false)] {
            let program = format!(
                "import blosc2\no.write(blosc2.compress2(d, typesize=4, clevel=5, blocksize=65536, \
                 filters=[blosc2.Filter.{filter}], codec=blosc2.Codec.ZSTD, splitmode=blosc2.SplitMode.NEVER_SPLIT))"
            );
            let Some(stored) = python(&program, &before) else {
                return;
            };
            let case = EditCase {
                framing: ONE_CHUNK,
                stored: stored.clone(),
                writes: vec![(77, vec![9; 10])],
                len: before.len() + 3,
                before: before.clone(),
            };
            let edited = case.run(&BLS2);
            assert_reads_2(&edited.stored, &edited.decoded);
            assert_eq!(edited.stored[3] == stored[3], kept, "{filter}");
            assert_eq!(edited.stored[8..12] == stored[8..12], kept, "{filter}");
        }
    }

    fn single(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let plain = Memory::new(plain.to_vec());
        BLSC.encode(Some(ONE_CHUNK), &plain, &mut out).unwrap();
        out
    }

    #[track_caller]
    fn assert_reads(stored: &[u8], plain: &[u8]) {
        let source = Arc::new(Memory::new(stored.to_vec()));
        let cache = Cache::new(1 << 24);
        let (framing, decoded) = decode(*b"blsc", source, len_u64(plain.len()), &cache).unwrap();
        assert_eq!(framing, ONE_CHUNK);
        assert!(read_all(&*decoded, 1 << 30).unwrap() == plain);
        let found = python("import blosc\no.write(blosc.decompress(d))", stored);
        assert!(found.is_none_or(|found| found == plain));
    }

    #[test]
    fn one_chunk_is_read_by_us_and_by_python() {
        for len in [
            0,
            1,
            3,
            4,
            16,
            127,
            5000,
            512 << 10,
            (512 << 10) + 1,
            3 << 20,
        ] {
            for plain in plains(len) {
                let stored = single(&plain);
                assert!(stored.len() <= plain.len() + 16);
                assert_reads(&stored, &plain);
            }
        }
    }

    #[test]
    fn stored_bytes_are_not_taken_for_a_length() {
        let mut plain = noise(34 << 20);
        let unlucky = single(&plain)[..4].try_into().unwrap();
        plain[..4].copy_from_slice(&u32::from_be_bytes(unlucky).to_le_bytes());
        assert_reads(&single(&plain), &plain);
    }

    #[test]
    fn an_edit_keeps_the_one_chunk_with_its_typesize_and_its_blocks() {
        let before = image(400_000);
        let program = "import blosc\nblosc.set_blocksize(9 * 4096)\n\
            o.write(blosc.compress(d, typesize=9, clevel=5, shuffle=blosc.BITSHUFFLE, cname='zstd'))";
        let theirs = python(program, &before);
        for stored in theirs.into_iter().chain([single(&before)]) {
            let case = EditCase {
                framing: ONE_CHUNK,
                stored: stored.clone(),
                writes: vec![(77, vec![9; 10])],
                len: before.len() + 3,
                before: before.clone(),
            };
            let edited = case.run(&BLSC);
            assert_reads(&edited.stored, &edited.decoded);
            assert_eq!(edited.stored[2..4], stored[2..4]);
            assert_eq!(edited.stored[8..12], stored[8..12]);
        }
    }

    #[test]
    fn what_no_chunk_holds_is_refused_for_its_length() {
        let nothing = Arc::new(Memory::new(Vec::new()));
        let unread = Error::corrupt(Place::File, "read");
        let long = Short::new(nothing, MAX_LEN - 15, unread);
        let refused = BLSC.encode(Some(ONE_CHUNK), &long, &mut std::io::sink());
        assert!(
            matches!(refused, Err(Error::NoRoom { limit: true, .. })),
            "{refused:?}"
        );
    }
}
