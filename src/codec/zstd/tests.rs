//! Tests of the Zstandard codec: frames recorded from python-zstandard, and our own.

use proptest::prelude::*;

use super::*;
use crate::codec::caller::while_wanted;
use crate::codec::headers::tests::{decode, decode_from, encode, noise, pattern, poke, recorded};
use crate::codec::testing::{Counted, read_all};
use crate::codec::{Cache, Decoded};
use crate::source::{Memory, len_u64};
use std::sync::atomic::{AtomicU64, Ordering};

const SIZE: usize = 270_001;
const RECORDED: [&str; 4] = ["single.zst", "unsized.zst", "frames.zst", "seekable.zst"];

fn open(stored: Vec<u8>, data_size: u64) -> Arc<dyn Stream> {
    let opened = Zstd.open(Arc::new(Memory::new(stored)), data_size);
    opened.unwrap().stream
}

/// A frame of 8 MiB with noise here and there, and what it decodes to.
fn long_frame() -> (Vec<u8>, Vec<u8>) {
    let unit = [pattern(3 << 20), noise(1000), pattern(1 << 20)].concat();
    let mut data = Vec::new();
    for n in 0..2u8 {
        data.extend_from_slice(&unit);
        data.extend_from_slice(&noise(usize::from(n) * 100));
    }
    let mut encoder = ZstdEncoder::new(1).unwrap();
    let mut out = vec![0; data.len()];
    let len = encoder.encode(&data, &mut out).unwrap();
    out.truncate(len);
    (out, data)
}

#[test]
fn frames_of_the_reference_library_are_read() {
    for name in RECORDED {
        for step in [1000, 65_536, SIZE] {
            let decoded = decode(&Zstd, &recorded(name), SIZE as u64, step).unwrap();
            assert!(decoded == pattern(SIZE), "{name} in steps of {step}");
        }
    }
}

#[test]
fn any_offset_of_recorded_frames_can_be_entered() {
    for name in RECORDED {
        let stream = open(recorded(name), SIZE as u64);
        for offset in [200_000, 0, 65_535, 100_000, SIZE as u64 - 1] {
            let decoded = decode_from(&stream, offset, SIZE as u64, 4096).unwrap();
            assert!(
                decoded == pattern(SIZE)[offset as usize..],
                "{name} from {offset}"
            );
        }
    }
}

#[test]
fn frames_are_entries_without_decoding() {
    let stream = open(recorded("frames.zst"), SIZE as u64);
    assert_eq!(stream.entry(250_000), 200_000);
    let stream = open(recorded("seekable.zst"), SIZE as u64);
    assert_eq!(stream.entry(269_999), 210_000);
}

#[test]
fn cursors_of_a_long_frame_know_nothing_of_each_other() {
    let (stored, data) = long_frame();
    let size = data.len() as u64;
    let stream = open(stored, size);
    let mut first = Arc::clone(&stream).cursor(0).unwrap();
    let mut second = Arc::clone(&stream).cursor(0).unwrap();
    let mut buf = vec![0; 50_000];
    for n in 0..20 {
        first.fill(&mut buf, u64::MAX).unwrap();
        assert!(buf == data[n * 50_000..][..50_000], "first, {n}");
        if n % 3 == 0 {
            let at = second.position() as usize;
            second.fill(&mut buf[..33_333], u64::MAX).unwrap();
            assert!(buf[..33_333] == data[at..][..33_333], "second, {n}");
        }
    }
    drop(second);
    first.fill(&mut buf, u64::MAX).unwrap();
    assert!(buf == data[1_000_000..][..50_000]);
}

/// A frame that ends in a checksum, which is wrong.
fn summed(data: &[u8]) -> Vec<u8> {
    let mut stored = frame(data, 17);
    stored[4] |= 4;
    stored.extend([1; 4]);
    stored
}

/// Stored bytes are read in pieces. A checksum that was in another piece than the last block was never looked at.
#[test]
fn a_checksum_is_compared_wherever_the_pieces_of_the_stored_bytes_end() {
    for before in PIECE - 5..=PIECE + 1 {
        let data = noise(before - 12);
        let (size, stored) = (data.len() as u64, summed(&data));
        assert_eq!(stored.len(), before + 4);
        for cut in 0..=4 {
            let stored = &stored[..stored.len() - cut];
            for step in [data.len(), 70_000] {
                let decoded = decode(&Zstd, stored, size, step);
                assert_eq!(decoded.is_ok(), cut > 0, "{before} {cut} {step}");
                let stream = Zstd.open(Arc::new(Memory::new(stored.to_vec())), size);
                let whole = Decoded::new(stream.unwrap().stream, size, &Cache::new(1 << 20));
                let _ = read_all(&*whole);
                assert_eq!(whole.stream.lacks_end(), cut > 0, "{before} {cut}");
            }
        }
        let python =
            "import zstandard\no.write(zstandard.ZstdCompressor(write_checksum=True).compress(d))";
        if let Some(good) = crate::codec::testing::python(python, &data) {
            assert!(good.len().abs_diff(stored.len()) < 9);
            assert!(decode(&Zstd, &good, size, 70_000).unwrap() == data);
            let mut bad = good;
            *bad.last_mut().unwrap() ^= 1;
            assert!(decode(&Zstd, &bad, size, 70_000).is_err());
        }
    }
}

/// A seek table for frames of these stored and decoded sizes.
fn seek_table(frames: &[(usize, usize)]) -> Vec<u8> {
    let mut table = 0x184D_2A5E_u32.to_le_bytes().to_vec();
    table.extend((frames.len() as u32 * 8 + 9).to_le_bytes());
    for &(stored, decoded) in frames {
        table.extend((stored as u32).to_le_bytes());
        table.extend((decoded as u32).to_le_bytes());
    }
    table.extend((frames.len() as u32).to_le_bytes());
    table.push(0);
    table.extend(0x8F92_EAB1_u32.to_le_bytes());
    table
}

/// Its sums are right, but not the lengths. Decoding past the end of a frame never told, and reads in between got other bytes.
#[test]
fn a_seek_table_that_the_frames_contradict_is_no_longer_believed() {
    let data = noise(700_000);
    let frames = [&data[..200_000], &data[200_000..]].map(|part| frame(part, 17));
    let lens = frames.each_ref().map(Vec::len);
    let open = |sizes: [usize; 2]| {
        let table = seek_table(&[(lens[0], sizes[0]), (lens[1], sizes[1])]);
        open([&frames.concat()[..], &table].concat(), 700_000)
    };
    for wrong in [[200_001, 499_999], [400_000, 300_000], [100_000, 600_000]] {
        let stream = open(wrong);
        assert_eq!(stream.entry(699_999), wrong[0] as u64);
        let read = decode_from(&stream, 0, 700_000, 70_000).map(drop);
        let error = read.unwrap_err();
        assert!(error.to_string().contains("seek table"), "{error}");
        assert_eq!(stream.entry(699_999), 0);
        assert!(decode_from(&stream, 500_000, 700_000, 70_000).unwrap() == data[500_000..]);
    }
    let stream = open([200_000, 500_000]);
    assert_eq!(stream.entry(699_999), 200_000);
    for offset in [0, 500_000, 199_999, 0] {
        let decoded = decode_from(&stream, offset, 700_000, 70_000).unwrap();
        assert!(decoded == data[offset as usize..]);
    }
}

/// A walk along millions of frames went on for seconds after its reader was killed.
#[test]
fn a_walk_along_frames_ends_when_its_reader_is_gone() {
    let stream = open(recorded("frames.zst"), SIZE as u64);
    let gone = while_wanted(Some(Arc::new(|| false)), || stream.entry(250_000));
    assert_eq!(gone, 0);
    assert_eq!(stream.entry(250_000), 200_000);
}

/// One that contradicts itself was read anew for each read of the first frame.
#[test]
fn a_seek_table_is_read_once() {
    let mut stored = encode(&Zstd, &pattern(3_000_000));
    stored.extend(seek_table(&vec![(1, 1); 100_000]));
    let stored = Arc::new(Counted(Memory::new(stored), AtomicU64::new(0)));
    let stream = Zstd.open(stored.clone(), 3_000_000).unwrap().stream;
    for offset in 0..1000 {
        assert_eq!(stream.entry(offset), 0);
    }
    let read = stored.1.load(Ordering::Relaxed);
    assert!(read < 900_000, "{read} bytes read");
}

/// A frame with a window of 2^`log` bytes that does not say how long it is.
fn frame(data: &[u8], log: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, (log - 10) << 3];
    let mut blocks = data.chunks(100_000).peekable();
    while let Some(block) = blocks.next() {
        let last = u32::from(blocks.peek().is_none());
        frame.extend_from_slice(&((block.len() as u32) << 3 | last).to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

#[test]
fn a_decoder_takes_no_more_than_was_promised() {
    for log in [17, 20, 23] {
        let data = pattern(9 << 20);
        let mut cursor = open(frame(&data, log), data.len() as u64)
            .cursor(0)
            .unwrap();
        let mut buf = vec![0; 1 << 20];
        while cursor.position() < data.len() as u64 {
            let promised = cursor.needed();
            cursor.fill(&mut buf, u64::MAX).unwrap();
            assert!(cursor.held() <= promised + len_u64(PIECE), "{log}");
        }
        assert!(cursor.held() > 1 << log);
    }
}

#[test]
fn a_frame_with_a_larger_window_is_entered_when_its_memory_was_asked_for() {
    let data = pattern(1 << 20);
    let stored = [frame(&data[..500_000], 17), frame(&data[500_000..], 22)].concat();
    let mut cursor = open(stored, 1 << 20).cursor(0).unwrap();
    assert!(cursor.needed() < 1 << 20);
    let mut buf = vec![0; 1 << 20];
    assert_eq!(cursor.read(&mut buf).unwrap(), 500_000);
    assert!(cursor.held() < 1 << 20);
    assert!(cursor.needed() > 4 << 20);
    let given = cursor.read(&mut buf[500_000..]).unwrap();
    assert_eq!(given, data.len() - 500_000);
    assert!(buf == data);
}

#[test]
fn what_is_written_is_one_frame_with_its_size_and_read_again() {
    for size in [0, 1, 4095, PIECE - 1, PIECE, PIECE + 1, 3_000_000] {
        let decoded = pattern(size);
        let stored = encode(&Zstd, &decoded);
        let (at, frame) = next_frame(&Memory::new(stored.clone()), 0)
            .unwrap()
            .unwrap();
        assert_eq!((at, frame.content_size), (0, Some(size as u64)));
        assert!(decode(&Zstd, &stored, size as u64, 1 << 20).unwrap() == decoded);
    }
}

#[test]
fn a_frame_that_ends_before_the_data_does_is_an_error() {
    let error = decode(&Zstd, &recorded("single.zst"), SIZE as u64 + 1, SIZE).unwrap_err();
    assert_eq!(error.to_string(), "zstd frames end before the data does");
}

#[test]
fn a_cursor_knows_what_it_is_going_to_need() {
    for name in RECORDED {
        let mut cursor = open(recorded(name), SIZE as u64).cursor(0).unwrap();
        let promised = cursor.needed() + len_u64(PIECE);
        cursor.read(&mut [0]).unwrap();
        assert!(cursor.held() <= promised, "{name}");
        assert!(promised < 4 << 20, "{name}");
    }
}

#[test]
fn a_window_of_a_gigabyte_is_refused() {
    let mut stored = recorded("unsized.zst");
    stored[5] = 20 << 3;
    let error = decode(&Zstd, &stored, SIZE as u64, SIZE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "zstd window of 1073741824 bytes, at most 134217728 allowed"
    );
}

#[test]
fn a_frame_of_empty_blocks_ends_in_an_error() {
    let mut stored = recorded("unsized.zst")[..6].to_vec();
    stored.resize(4 << 20, 0);
    assert!(decode(&Zstd, &stored, SIZE as u64, SIZE).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_frames_never_panic(
        which in 0usize..4,
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        head in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        data_size in prop_oneof![Just(SIZE as u64), 0..SIZE as u64, any::<u64>().prop_map(|n| n % (1 << 22))],
    ) {
        let mut stored = recorded(RECORDED[which]);
        let len = if head { 20 } else { stored.len() };
        for (spot, byte) in spots {
            stored[spot.index(len)] = byte;
        }
        stored.truncate(1 + cut.index(stored.len() * 4).min(stored.len() - 1));
        poke(&Zstd, &stored, data_size, data_size / 2);
    }
}
