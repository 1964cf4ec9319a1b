//! Tests of the LZ4 frame codec: frames recorded from python-lz4, and our own.

use proptest::prelude::*;

use super::*;
use crate::codec::caller::while_wanted;
use crate::codec::headers::tests::{decode, decode_from, encode, noise, pattern, poke, recorded};
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
fn a_scan_ends_when_its_reader_is_gone_and_the_next_one_has_it_done() {
    let stream = open(recorded("apart.lz4"), SIZE as u64);
    let gone = while_wanted(Some(Arc::new(|| false)), || stream.entry(200_000));
    assert_eq!(gone, 0);
    assert_eq!(stream.entry(200_000), 3 * 65_536);
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
    let whole = decode_from(&stream, 0, size, 1 << 20).unwrap();
    let offset = 18_000_000;
    assert!(stream.entry(offset) >= 16 << 20, "no checkpoint was left");
    assert!(stream.held() >= 2 * 65_536);
    let part = decode_from(&stream, offset, size, 100_000).unwrap();
    assert!(part == whole[offset as usize..]);

    let again = stream.resized(size + 1).unwrap();
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

/// Only the blocks of the first frame were announced.
#[test]
fn no_frame_takes_more_memory_than_was_announced() {
    let plain = pattern(SIZE);
    let stored = [recorded("apart.lz4"), encode(&Lz4f, &plain)].concat();
    let stream = open(stored, 2 * SIZE as u64);
    let mut cursor = stream.cursor(0).unwrap();
    let mut decoded = vec![0; 2 * SIZE];
    let mut done = 0;
    while done < decoded.len() {
        let announced = cursor.needed();
        let to = decoded.len().min(done + 70_000);
        let given = cursor.read(&mut decoded[done..to]).unwrap();
        assert!(given > 0 || cursor.needed() > announced, "at {done}");
        assert!(cursor.held() <= announced + (256 << 10), "at {done}");
        done += given;
    }
    assert!(decoded == [&plain[..], &plain].concat());
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
    assert_eq!(error.to_string(), "LZ4 frames end before the data does");
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

#[test]
fn a_wrong_content_checksum_is_an_error_at_the_end_and_a_missing_one_is_none() {
    let mut stored = recorded("linked_sums.lz4");
    let len = stored.len();
    for step in [1000, 65_536, SIZE] {
        assert!(decode(&Lz4f, &stored[..len - 4], SIZE as u64, step).unwrap() == pattern(SIZE));
        stored[len - 1] ^= 1;
        let error = decode(&Lz4f, &stored, SIZE as u64, step).unwrap_err();
        let expected = "LZ4 frame does not match its content checksum";
        assert_eq!(error.to_string(), expected);
        let mut cursor = open(stored.clone(), SIZE as u64).cursor(0).unwrap();
        cursor.fill(&mut vec![0; SIZE - 1], u64::MAX).unwrap();
        assert!(cursor.fill(&mut [0], u64::MAX).is_err());
        stored[len - 1] ^= 1;
    }
    // The next frame is none of its business.
    let two = [stored.clone(), stored].concat();
    assert_eq!(
        decode(&Lz4f, &two, 2 * SIZE as u64, 1 << 20).unwrap().len(),
        2 * SIZE
    );
}

/// A frame of independent blocks of 64 KiB, stored as they are: twenty with their number in each byte, the fourth of them short.
fn frame_with_a_short_block(content_size: Option<u64>) -> Vec<u8> {
    let size_flag = content_size.map_or(0, |_| FLG_CONTENT_SIZE);
    let mut descriptor = vec![FLG_VERSION | FLG_INDEPENDENT | size_flag, 4 << 4];
    descriptor.extend(content_size.iter().flat_map(|size| size.to_le_bytes()));
    descriptor.push(header_checksum(&descriptor));
    let mut stored = [MAGIC.to_le_bytes().to_vec(), descriptor].concat();
    for number in 0..20 {
        let len = if number == 3 { 32 << 10 } else { 64 << 10 };
        stored.extend((len as u32 | STORED).to_le_bytes());
        stored.extend(vec![number; len]);
    }
    [stored, vec![0; 4]].concat()
}

#[test]
fn a_short_block_contradicts_a_size_that_only_full_ones_have() {
    // Once the same offset had other bytes when it was read at random than when it was read in order.
    let right = (20 << 16) - (32 << 10);
    let stream = open(frame_with_a_short_block(None), 20 << 16);
    let in_order = |stream: &Arc<dyn Stream>| {
        let mut cursor = Arc::clone(stream).cursor(0)?;
        (0..20).try_for_each(|_| cursor.fill(&mut vec![0; 60_000], u64::MAX))
    };
    let expected = "an LZ4 block that is not full, though only full ones have 1310720 bytes";
    assert_eq!(in_order(&stream).unwrap_err().to_string(), expected);
    assert_eq!(stream.entry(1 << 20), 0, "nothing behind it is entered");
    assert!(decode_from(&stream, 1 << 20, 20 << 16, 1000).is_err());
    for (content_size, data_size) in [(Some(right), 20 << 16), (None, right), (Some(right), right)]
    {
        let stream = open(frame_with_a_short_block(content_size), data_size);
        assert_eq!(stream.entry(1 << 20), 0);
        let found = decode_from(&stream, 1 << 20, right, 70_000).unwrap();
        assert_eq!((found[0], found[found.len() - 1]), (16, 19));
    }
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
