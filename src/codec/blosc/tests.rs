//! Tests of the Blosc codecs: chunks and frames recorded from python-blosc and python-blosc2, and our own.

use proptest::prelude::*;

use super::encode::{BLOCK_LEN, BlockShape, BloscEncoder, CHUNK_LEN};
use super::*;
use crate::codec::headers::tests::{decode, decode_from, encode, noise, pattern, poke, recorded};
use crate::codec::splice::u32_len;
use crate::codec::testing::{Counted, EditCase};
use crate::source::Memory;
use std::sync::atomic::{AtomicU64, Ordering};

const BLSC: Blosc = Blosc(*b"blsc");
const BLS2: Blosc = Blosc(*b"bls2");

/// The chunks of a recorded file with their decoded sizes.
fn chunks(name: &str) -> Vec<(Vec<u8>, u64)> {
    let all = recorded(name);
    let mut rest = all.as_slice();
    let mut chunks = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let [len, size] = [0, 4].map(|n| u32::from_le_bytes(head[n..n + 4].try_into().unwrap()));
        let (chunk, tail) = tail.split_at(len as usize);
        chunks.push((chunk.to_vec(), size.into()));
        rest = tail;
    }
    chunks
}

/// Abacus' framing of chunks.
fn prefixed(chunks: &[&[u8]]) -> Vec<u8> {
    let with_len =
        |chunk: &&[u8]| [&u32_len(chunk.len()).unwrap().to_be_bytes()[..], chunk].concat();
    chunks.iter().flat_map(with_len).collect()
}

fn open(codec: &Blosc, stored: Vec<u8>, data_size: u64) -> Framed {
    codec
        .open(Arc::new(Memory::new(stored)), data_size)
        .unwrap()
}

#[test]
fn chunks_of_the_reference_libraries_are_read() {
    for (name, codec) in [("blosc1.chunks", BLSC), ("blosc2.chunks", BLS2)] {
        for (n, (chunk, size)) in chunks(name).into_iter().enumerate() {
            let about = format!("{name}, record {n}, header {:02x?}", &chunk[..16]);
            for step in [100_000, 700] {
                let decoded = decode(&codec, &chunk, size, step);
                let decoded = decoded.unwrap_or_else(|error| panic!("{about}: {error}"));
                assert!(decoded == pattern(size as usize), "{about}: wrong bytes");
            }
        }
    }
}

#[test]
fn any_offset_of_a_chunk_is_entered_at_its_block() {
    for (chunk, size) in chunks("blosc2.chunks") {
        let block = u32::from_le_bytes(chunk[8..12].try_into().unwrap());
        let stored = chunk[2] & 2 != 0;
        let stream = open(&BLS2, chunk, size).stream;
        for offset in [size - 1, size / 2, 0] {
            if !stored {
                assert_eq!(stream.entry(offset), offset - offset % u64::from(block));
            }
            let decoded = decode_from(&stream, offset, size, 999).unwrap();
            assert!(decoded == pattern(size as usize)[offset as usize..]);
        }
    }
}

#[test]
fn prefixed_chunks_follow_each_other() {
    let chunks = chunks("blosc1.chunks");
    let parts: Vec<&[u8]> = chunks.iter().map(|(chunk, _)| chunk.as_slice()).collect();
    let expected: Vec<u8> = chunks
        .iter()
        .flat_map(|&(_, size)| pattern(size as usize))
        .collect();
    let size = expected.len() as u64;
    let opened = open(&BLSC, prefixed(&parts), size);
    assert_eq!(opened.framing, PREFIXED);
    for offset in [size - 1, 0, 5003, 200_000, 1] {
        let decoded = decode_from(&opened.stream, offset, size, 10_000).unwrap();
        assert!(decoded == expected[offset as usize..], "from {offset}");
    }
}

#[test]
fn damage_in_one_chunk_leaves_those_before_it() {
    let chunks = chunks("blosc1.chunks");
    let parts = [&chunks[5], &chunks[6], &chunks[7]].map(|(chunk, _)| chunk.as_slice());
    let sizes = [5, 6, 7].map(|n| chunks[n].1);
    let mut stored = prefixed(&parts);
    let second = 4 + parts[0].len();
    stored[second + 4] = 99;
    let size = sizes.iter().sum();
    let stream = open(&BLSC, stored, size).stream;
    assert_eq!(stream.entry(size - 1), sizes[0]);
    let error = Arc::clone(&stream).cursor(size - 1).err().unwrap();
    assert_eq!(error.to_string(), "Blosc format version 99");
    let mut first = vec![0; sizes[0] as usize];
    stream
        .cursor(0)
        .unwrap()
        .fill(&mut first, u64::MAX)
        .unwrap();
    assert!(first == pattern(first.len()));
}

#[test]
fn frames_are_read_and_entered_at_any_chunk() {
    let opened = open(
        &BLS2,
        recorded("pattern.b2frame"),
        200_000 - 20_000 + 20_000,
    );
    assert_eq!(opened.framing, CFRAME);
    for offset in [0, 59_999, 60_000, 199_999, 130_001] {
        let decoded = decode_from(&opened.stream, offset, 200_000, 7001).unwrap();
        assert!(
            decoded == pattern(200_000)[offset as usize..],
            "from {offset}"
        );
    }
    assert_eq!(opened.stream.entry(130_000), 128_000);
}

/// A frame of a million zeros in chunks of four bytes, of which only the offsets are stored: in a chunk with this content.
fn frame_of_zeros(flags: u8, kind: u8, content: &[u8]) -> Vec<u8> {
    let numbers = [2 << 20, 2 << 20, 32 + u32_len(content.len()).unwrap()];
    let mut chunk = vec![5, 1, flags, 8];
    chunk.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    chunk.extend([0; 15]);
    chunk.push(kind << 4);
    chunk.extend(content);
    let mut frame = vec![0x9E, 0xA8];
    frame.extend(b"b2frame\0");
    frame.extend([&[0xD2][..], &97_u32.to_be_bytes(), &[0xCF]].concat());
    frame.extend((97 + chunk.len() as u64).to_be_bytes());
    frame.extend([0xA4, 0x12, 0, 0, 0, 0xD3]);
    frame.extend((1_u64 << 20).to_be_bytes());
    frame.extend([0xD3, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [1_u32, 4, 4] {
        frame.push(0xD2);
        frame.extend(number.to_be_bytes());
    }
    frame.resize(97, 0);
    [frame, chunk].concat()
}

#[test]
fn offsets_of_chunks_are_looked_up_and_not_held() {
    // Once a whole block of offsets stayed for as long as the stream, 16 MiB for 400 bytes of a file.
    let zeros = 0x8100_0000_0000_0000_u64.to_le_bytes();
    let run = frame_of_zeros(5, 3, &zeros);
    let stored = frame_of_zeros(7, 0, &zeros.repeat(1 << 18));
    // One stream per byte of an element: a size that is negative, and a token.
    let mut packed = 36_u32.to_le_bytes().to_vec();
    for byte in zeros {
        packed.extend(
            [-i32::from(byte)]
                .iter()
                .flat_map(|size| size.to_le_bytes()),
        );
        packed.extend((byte > 0).then_some(1));
    }
    let mut packed = frame_of_zeros(5, 0, &packed);
    packed[97 + 16] = 1;
    for (frame, most) in [(run, 0), (stored, 0), (packed, 64 << 10)] {
        let stream = open(&BLS2, frame, 1 << 20).stream;
        for offset in [0, 999_999, 32_768, 500_000, (1 << 20) - 1] {
            assert_eq!(stream.entry(offset), offset / 4 * 4);
            let mut cursor = Arc::clone(&stream).cursor(offset).unwrap();
            let mut buf = vec![1; ((1 << 20) - cursor.position()).min(300) as usize];
            cursor.fill(&mut buf, u64::MAX).unwrap();
            assert!(buf.iter().all(|&byte| byte == 0), "at {offset}");
            assert_eq!(stream.held(), most);
        }
    }
}

#[test]
fn runs_of_special_values_are_made_up() {
    for (name, value) in [
        ("zero", 0.0),
        ("uninit", 0.0),
        ("value", 3.25),
        ("nan", f64::NAN),
    ] {
        let stored = recorded(&format!("{name}.b2frame"));
        let decoded = decode(&BLS2, &stored, 80_000, 3000).unwrap();
        let expected = value.to_le_bytes().repeat(10_000);
        assert!(decoded == expected, "{name}");
    }
}

#[test]
fn streams_of_one_byte_are_made_up() {
    let decoded = decode(&BLS2, &recorded("constant.b2chunk"), 16_000, 16_000).unwrap();
    assert!(decoded == 0x0707_0701u32.to_le_bytes().repeat(4000));
}

#[test]
fn what_is_written_is_read_again() {
    for size in [
        0,
        1,
        4095,
        BLOCK_LEN,
        CHUNK_LEN as usize - 1,
        CHUNK_LEN as usize,
        CHUNK_LEN as usize + 1,
    ] {
        let decoded = pattern(size);
        let stored = encode(&BLSC, &decoded);
        assert!(
            stored.len() <= size / 20 + 100,
            "{} for {size}",
            stored.len()
        );
        assert!(decode(&BLSC, &stored, size as u64, 1 << 20).unwrap() == decoded);
        assert_eq!(open(&BLSC, stored, size as u64).framing, PREFIXED);
    }
}

#[test]
fn incompressible_bytes_are_stored() {
    let decoded = noise(600_000);
    let stored = encode(&BLSC, &decoded);
    assert_eq!(stored.len(), 4 + 16 + 600_000);
    assert!(decode(&BLSC, &stored, 600_000, 600_000).unwrap() == decoded);
}

#[test]
fn other_framings_are_not_written() {
    let write = |codec: Blosc, framing| {
        codec
            .encode(framing, &Memory::new(vec![1]), &mut Vec::new())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        write(BLSC, Some(CFRAME)),
        "writing blsc as contiguous frame"
    );
    assert_eq!(
        write(BLS2, Some(PREFIXED)),
        "writing bls2 as prefixed chunks"
    );
}

#[test]
fn unknown_parts_are_named() {
    let chunks = chunks("blosc2.chunks");
    let (chunk, size) = chunks.iter().find(|(chunk, _)| chunk[2] >> 5 == 4).unwrap();
    let with = |at: usize, byte: u8| {
        let mut chunk = chunk.clone();
        chunk[at] = byte;
        decode(&BLS2, &chunk, *size, 5000).unwrap_err().to_string()
    };
    assert_eq!(with(21, 77), "Blosc2 filter 77");
    assert_eq!(with(2, chunk[2] & 31 | 7 << 5), "Blosc codec format 7");
    assert_eq!(with(0, 6), "Blosc format version 6");
    assert_eq!(with(31, 8), "Blosc2 chunk with flags 0x08");
}

#[test]
fn a_block_that_takes_more_than_the_memory_allowed_is_refused() {
    // Fuzzing found 100 MiB in use for a few hundred bytes: a block, the one that deltas are to, and buffers for both.
    for size in [(16 << 20) + 4, 1 << 30] {
        let mut chunk = chunks("blosc1.chunks")[0].0.clone();
        let bytes = u32_len(size).unwrap().to_le_bytes();
        chunk[4..8].copy_from_slice(&bytes);
        chunk[8..12].copy_from_slice(&bytes);
        let error = decode(&BLSC, &chunk, size as u64, 1000).unwrap_err();
        let expected = format!("Blosc block of {size} bytes");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn a_cursor_knows_what_it_is_going_to_need() {
    for (name, codec) in [("blosc1.chunks", BLSC), ("blosc2.chunks", BLS2)] {
        for (chunk, size) in chunks(name).into_iter().filter(|(_, size)| *size > 0) {
            let mut cursor = open(&codec, chunk, size).stream.cursor(size - 1).unwrap();
            let promised = cursor.needed();
            cursor.read(&mut [0]).unwrap();
            let held = cursor.held();
            assert!(held <= promised, "{held} of {promised} in {name}");
            assert!(promised <= 6 * size + (129 << 10));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn damaged_chunks_never_panic(
        which in any::<prop::sample::Index>(),
        two in any::<bool>(),
        framed in any::<bool>(),
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        head in any::<bool>(),
        longer in 0u64..10_000,
    ) {
        let chunks = chunks(if two { "blosc2.chunks" } else { "blosc1.chunks" });
        let (mut stored, size) = which.get(&chunks).clone();
        let len = if head { 44.min(stored.len()) } else { stored.len() };
        for (spot, byte) in spots {
            stored[spot.index(len)] = byte;
        }
        let stored = if framed { prefixed(&[&stored, &stored]) } else { stored };
        let size = if longer % 2 == 0 { size } else { size + longer };
        poke(if two { &BLS2 } else { &BLSC }, &stored, size, size / 2);
    }

    #[test]
    fn damaged_frames_never_panic(
        which in prop::sample::select(vec!["pattern", "nan", "value"]),
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<bool>(),
    ) {
        let mut stored = recorded(&format!("{which}.b2frame"));
        let len = stored.len().min(160);
        let from = if end { stored.len() - len } else { 0 };
        for (spot, byte) in spots {
            stored[from + spot.index(len)] = byte;
        }
        let size = u64::from_be_bytes(stored[30..38].try_into().unwrap());
        poke(&BLS2, &stored, size.min(1 << 20), size / 2 % (1 << 20));
    }
}

/// The start of the next block tells how much to read, and may be a lie: once each stream cost all those before it again.
#[test]
fn streams_beyond_where_the_next_block_begins_are_read_once() {
    const STREAM: u32 = 1000;
    let (block, starts) = (255 * STREAM, 16_u32);
    let plain = noise(block as usize);
    let mut chunk = vec![5, 1, 0, 255];
    let len = starts + 8 + 255 * (STREAM + 4);
    chunk.extend(
        [2 * block, block, len, starts + 8, starts + 9]
            .map(u32::to_le_bytes)
            .as_flattened(),
    );
    for stream in plain.chunks(STREAM as usize) {
        chunk.extend(STREAM.to_le_bytes());
        chunk.extend(stream);
    }
    let stored = Arc::new(Counted(Memory::new(chunk), AtomicU64::new(0)));
    let stream = Blosc(*b"bls2")
        .open(stored.clone(), 2 * u64::from(block))
        .unwrap()
        .stream;
    let mut decoded = vec![0; block as usize];
    stream
        .cursor(0)
        .unwrap()
        .fill(&mut decoded, u64::MAX)
        .unwrap();
    assert!(decoded == plain);
    let read = stored.1.load(Ordering::Relaxed);
    assert!(read < 2 * u64::from(block), "{read} bytes read");
}

/// The memory for it was taken without a word where the chunks before it had small blocks.
#[test]
fn a_chunk_with_larger_blocks_is_entered_when_its_memory_was_asked_for() {
    let plain = pattern(9 << 20);
    let mut encoder = BloscEncoder::new().unwrap();
    let mut chunk = |bytes: &[u8], block: u32| {
        let shape = BlockShape::default().in_blocks(block);
        encoder.chunk(shape, bytes).unwrap()
    };
    let (small, large) = (
        chunk(&plain[..50_000], 4096),
        chunk(&plain[50_000..], 8 << 20),
    );
    let stored = prefixed(&[&small, &large]);
    let mut cursor = open(&BLSC, stored, 9 << 20).stream.cursor(0).unwrap();
    let mut decoded = vec![0; 9 << 20];
    let (mut done, mut pauses) = (0, 0);
    while done < decoded.len() {
        let announced = cursor.needed();
        let given = cursor
            .read(&mut decoded[done..done + 1000.min((9 << 20) - done)])
            .unwrap();
        assert!(
            cursor.held() <= announced,
            "{done}: {} of {announced}",
            cursor.held()
        );
        pauses += usize::from(given == 0);
        done += given;
    }
    assert!(decoded == plain);
    assert_eq!(pauses, 1);
}

/// One of `bls2` or `bsc2` was taken for a framing that these do not have, so that it could not be edited.
#[test]
fn a_block_without_bytes_grows_to_the_framing_of_its_code() {
    for code in [*b"blsc", *b"bls2", *b"bsc2"] {
        let codec = Blosc(code);
        let framing = open(&codec, Vec::new(), 0).framing;
        assert!(codec.writes(Some(framing)), "{framing}");
        let case = EditCase {
            framing,
            stored: Vec::new(),
            before: Vec::new(),
            writes: vec![(3, vec![9; 70_000])],
            len: 70_003,
        };
        let edited = case.run(&codec);
        assert_eq!(
            open(&codec, edited.stored, 70_003).framing,
            codec.common_framing()
        );
    }
}
