//! Tests of the LZ4 frame codec: frames recorded from python-lz4, and our own.

use proptest::prelude::*;

use super::*;
use crate::codec::chunked::tests::{decode, decode_from, encode, noise, pattern, poke, recorded};
use crate::source::Memory;

const SIZE: usize = 270_001;
const RECORDED: [&str; 5] = [
    "linked.lz4",
    "linked_sums.lz4",
    "apart.lz4",
    "frames.lz4",
    "short.lz4",
];

fn open(stored: Vec<u8>, data_size: u64) -> Arc<dyn Stream> {
    let opened = Lz4f.open(Arc::new(Memory::new(stored)), data_size);
    opened.unwrap().stream
}

#[test]
fn frames_of_the_reference_library_are_read() {
    for name in RECORDED {
        for step in [1000, 65_536, 70_001, SIZE] {
            let decoded = decode(&Lz4f, &recorded(name), SIZE as u64, step).unwrap();
            assert!(decoded == pattern(SIZE), "{name} in steps of {step}");
        }
    }
}

#[test]
fn any_offset_of_a_recorded_frame_can_be_entered() {
    for name in RECORDED {
        let stream = open(recorded(name), SIZE as u64);
        for offset in [200_000, 0, 65_535, 65_536, 131_072, SIZE as u64 - 1] {
            let decoded = decode_from(&stream, offset, SIZE as u64, 4096).unwrap();
            assert!(
                decoded == pattern(SIZE)[offset as usize..],
                "{name} from {offset}"
            );
        }
    }
}

#[test]
fn independent_blocks_are_entries_without_decoding() {
    let stream = open(recorded("apart.lz4"), SIZE as u64);
    assert_eq!(stream.entry(200_000), 3 * 65_536);
    let stream = open(recorded("frames.lz4"), SIZE as u64);
    assert_eq!(stream.entry(269_999), 100_000 + 131_072);
}

#[test]
fn blocks_that_are_not_full_are_no_entries() {
    let stream = open(recorded("short.lz4"), SIZE as u64);
    assert_eq!(stream.entry(269_999), 0);
}

#[test]
fn linked_blocks_leave_checkpoints_behind() {
    let stored = [recorded("linked.lz4")].concat();
    // A long frame from a short one: its blocks again and again, each linked to the bytes before it.
    let (header, blocks, end) = (&stored[..15], &stored[15..stored.len() - 4], [0; 4]);
    let mut long = header.to_vec();
    let first = 4 + u32::from_le_bytes(blocks[..4].try_into().unwrap()) as usize;
    for _ in 0..300 {
        long.extend(&blocks[..first]);
    }
    long.extend(end);
    let size = 300 * 65_536;
    let stream = open(long.clone(), size);
    assert!(stream.learns() && stream.export(&mut Vec::new()).is_none());
    let whole = decode_from(&stream, 0, size, 1 << 20).unwrap();
    let offset = 18_000_000;
    assert!(stream.entry(offset) >= 16 << 20, "no checkpoint was left");
    assert!(stream.held() >= 2 * 65_536);
    let part = decode_from(&stream, offset, size, 100_000).unwrap();
    assert!(part == whole[offset as usize..]);

    let mut kept = Vec::new();
    stream.export(&mut kept).unwrap();
    let again = open(long, size).import(&kept).unwrap();
    assert_eq!(again.entry(offset), stream.entry(offset));
    assert_eq!(again.held(), stream.held());
    let part = decode_from(&again, offset, size, 100_000).unwrap();
    assert!(part == whole[offset as usize..]);
    while again.held() > 0 {
        let before = again.held();
        again.thin_out();
        assert!(again.held() < before);
    }
    let part = decode_from(&again, offset, size, 100_000).unwrap();
    assert!(part == whole[offset as usize..]);
}

#[test]
fn what_is_written_is_read_again() {
    for size in [
        0,
        1,
        4095,
        WRITTEN_BLOCK - 1,
        WRITTEN_BLOCK,
        WRITTEN_BLOCK + 1,
    ] {
        let decoded = pattern(size);
        let stored = encode(&Lz4f, &decoded);
        assert!(decode(&Lz4f, &stored, size as u64, 1 << 20).unwrap() == decoded);
    }
}

#[test]
fn incompressible_bytes_are_stored() {
    let decoded = noise(5000);
    let stored = encode(&Lz4f, &decoded);
    assert_eq!(stored.len(), 15 + 4 + 5000 + 4);
    assert!(decode(&Lz4f, &stored, 5000, 5000).unwrap() == decoded);
}

#[test]
fn a_frame_that_ends_before_the_data_does_is_an_error() {
    let error = decode(&Lz4f, &recorded("linked.lz4"), SIZE as u64 + 1, SIZE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "file: LZ4 frames end before the data does"
    );
}

#[test]
fn damage_is_found_by_the_checksums() {
    let mut stored = recorded("linked_sums.lz4");
    stored[5] ^= 1 << 4;
    let error = decode(&Lz4f, &stored, SIZE as u64, SIZE).unwrap_err();
    assert!(error.to_string().contains("header does not match"));
    let mut stored = recorded("linked_sums.lz4");
    stored[400] ^= 1;
    let error = decode(&Lz4f, &stored, SIZE as u64, SIZE).unwrap_err();
    assert!(error.to_string().contains("block does not match"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_frames_never_panic(
        which in 0usize..5,
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        head in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        data_size in prop_oneof![Just(SIZE as u64), 0..SIZE as u64, any::<u64>().prop_map(|n| n % (1 << 22))],
    ) {
        let mut stored = recorded(RECORDED[which]);
        let len = if head { 40 } else { stored.len() };
        for (spot, byte) in spots {
            stored[spot.index(len)] = byte;
        }
        stored.truncate(1 + cut.index(stored.len() * 4).min(stored.len() - 1));
        poke(&Lz4f, &stored, data_size, data_size / 2);
    }
}
