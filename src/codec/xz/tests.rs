//! Tests of the xz codec: streams recorded from xz and Python, and our own.

use super::*;
use crate::codec::headers::tests::{decode, decode_from, encode, noise, pattern, poke, recorded};
use crate::codec::testing::{image, python};
use crate::codec::{self, Cache, decode_beneath, goes_on};
use crate::source::Memory;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

const SIZE: usize = 270_001;
const RECORDED: [&str; 3] = ["single.xz", "blocks.xz", "streams.xz"];

#[test]
fn streams_of_the_reference_tool_are_read() {
    for name in RECORDED {
        for step in [1000, 65_536, SIZE] {
            let decoded = decode(&Xz, &recorded(name), SIZE as u64, step).unwrap();
            assert!(decoded == pattern(SIZE), "{name} in steps of {step}");
        }
    }
}

#[test]
fn what_is_written_is_read_by_us_and_by_python_and_entered_at_its_blocks() {
    let block = usize::try_from(BLOCK).unwrap();
    for plain in [
        vec![],
        vec![7],
        image(PIECE + 1),
        noise(5000),
        image(2 * block + 3),
    ] {
        let stored = encode(&Xz, &plain);
        let size = plain.len() as u64;
        assert!(decode(&Xz, &stored, size, 100_000).unwrap() == plain);
        let found = python("import lzma\no.write(lzma.decompress(d))", &stored);
        assert!(found.is_none_or(|found| found == plain));
        let opened = Xz.open(Arc::new(Memory::new(stored)), size).unwrap();
        if plain.len() > block {
            assert_eq!(opened.stream.entry(BLOCK + 1), BLOCK);
            assert!(
                decode_from(&opened.stream, 2 * BLOCK, size, 5000).unwrap() == plain[2 * block..]
            );
        }
    }
}

#[test]
fn blocks_are_entries_by_the_index() {
    let stored = recorded("blocks.xz");
    let opened = Xz.open(Arc::new(Memory::new(stored)), SIZE as u64).unwrap();
    assert!(opened.stream.parallel());
    for (offset, entry) in [(269_999, 200_000), (100_000, 100_000), (99_999, 0)] {
        assert_eq!(opened.stream.entry(offset), entry);
        let decoded = decode_from(&opened.stream, offset, SIZE as u64, 5000).unwrap();
        assert!(decoded == pattern(SIZE)[offset as usize..], "from {offset}");
    }
}

#[test]
fn damage_is_found_by_the_check_of_its_block() {
    for name in ["single.xz", "blocks.xz"] {
        let stored = recorded(name);
        for at in (600..stored.len() - 200).step_by(997) {
            let mut stored = stored.clone();
            stored[at] ^= 0x10;
            assert!(
                decode(&Xz, &stored, SIZE as u64, SIZE).is_err(),
                "{name} at {at}"
            );
        }
    }
}

/// Of a payload without an index of all its blocks, the last check was compared only if it was in the same piece of stored bytes as what
/// is before it.
#[test]
fn the_last_check_is_compared_wherever_the_pieces_of_the_stored_bytes_end() {
    let start = encode(&Xz, b"before");
    let piece_end = PIECE + usize::try_from(HEADER).unwrap();
    for len in (PIECE - 150..PIECE - 100).step_by(3) {
        let data = [b"before".to_vec(), noise(len)].concat();
        let stored = [&start[..], &encode(&Xz, &data[6..])].concat();
        let footer = stored.len() - 12;
        let size = u32::from_le_bytes(*stored[footer + 4..].first_chunk().unwrap());
        let index = footer - (size as usize + 1) * 4;
        assert!(index.abs_diff(piece_end) < 100, "{index}");
        let read = |stored: &[u8]| {
            let read = decode(&Xz, stored, data.len() as u64, 60_000);
            read.map(|read| assert!(read == data))
        };
        read(&stored).unwrap();
        for cut in index - 8..=index {
            read(&stored[..cut]).unwrap();
        }
        for at in [index - 1, index + 1, footer + 1] {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_err(), "{len} {at}");
        }
        let fewer = decode(&Xz, &stored, data.len() as u64 - 1, 60_000).unwrap();
        assert!(fewer == data[..data.len() - 1]);
    }
}

#[test]
fn a_stream_that_ends_before_the_data_does_is_an_error() {
    for name in RECORDED {
        assert!(decode(&Xz, &recorded(name), SIZE as u64 + 1, SIZE).is_err());
    }
}

/// A stream of one block with another size of its dictionary.
fn with_dictionary(size: u8) -> Vec<u8> {
    let mut stored = recorded("single.xz");
    // Block header at 12: size, flags, LZMA2, one property byte: the dictionary; the header's CRC-32 at its end.
    let header = usize::from(stored[12]) * 4 + 4;
    let property = stored[12..12 + header]
        .windows(2)
        .position(|w| w == [0x21, 1])
        .unwrap();
    stored[12 + property + 2] = size;
    let sum = crc32(0, &stored[12..12 + header - 4]).to_le_bytes();
    stored[12 + header - 4..12 + header].copy_from_slice(&sum);
    stored
}

#[test]
fn a_dictionary_of_gigabytes_is_refused() {
    let stored = with_dictionary(38);
    let error = decode(&Xz, &stored, SIZE as u64, SIZE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "xz: needed memory too big for mem_limit_kb"
    );
}

/// Each chunk of an array was decoded in as much memory as it asked for, however small the cache.
#[test]
fn a_dictionary_beyond_the_limit_is_refused_beneath_another_decoder() {
    // 64 MiB
    let stored: Arc<dyn Source> = Arc::new(Memory::new(with_dictionary(28)));
    let read = |budget| {
        let (cache, len) = (Cache::new(budget), SIZE as u64);
        let decoded = decode_beneath(*b"xz\0\0", Arc::clone(&stored), len, &cache)?;
        decoded.read_exact_at(&mut [0], len - 1)
    };
    let refused = read(16 << 20).unwrap_err().to_string();
    assert!(refused.contains("-o cache=3"), "{refused}");
    read(64 << 20).unwrap();
}

/// It was taken for the end, so that a chunk with too many bytes passed for one of the right length.
#[test]
fn what_goes_on_in_a_dictionary_beyond_the_limit_is_no_end() {
    // 8 MiB, 64 MiB
    let stored = [with_dictionary(22), with_dictionary(28)].concat();
    let stored: Arc<dyn Source> = Arc::new(Memory::new(stored));
    let look = |budget| {
        let (cache, len) = (Cache::new(budget), SIZE as u64);
        let (_, decoded) = codec::decode(*b"xz\0\0", Arc::clone(&stored), len, &cache)?;
        goes_on(*b"xz\0\0", Arc::clone(&stored), &decoded, &cache)
    };
    let refused = look(16 << 20).unwrap_err().to_string();
    assert!(refused.contains("-o cache=3"), "{refused}");
    assert!(look(64 << 20).unwrap());
}

#[test]
fn a_dictionary_is_made_when_its_memory_was_asked_for() {
    for name in RECORDED {
        let stored = Arc::new(Memory::new(recorded(name)));
        let stream = Xz.open(stored, SIZE as u64).unwrap().stream;
        let mut cursor = stream.cursor(0).unwrap();
        let mut decoded = vec![0; SIZE];
        let (mut done, mut pauses) = (0, 0);
        while done < SIZE {
            let announced = cursor.needed();
            let given = cursor.read(&mut decoded[done..]).unwrap();
            assert!(cursor.held() <= announced + len_u64(PIECE), "{name}");
            pauses += usize::from(given == 0);
            done += given;
        }
        assert!(decoded == pattern(SIZE), "{name}");
        assert_eq!(pauses, 1, "{name}");
    }
}

/// Zeros, but for a stream header, the start of an index of 2^34 blocks, and a footer that gives the index all of the space.
struct EndlessIndex(AtomicU64);

impl Source for EndlessIndex {
    fn len(&self) -> u64 {
        1 << 30
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let backward = u32::try_from((self.len() - 24) / 4 - 1).unwrap();
        let body = [&backward.to_le_bytes()[..], &[0, 0]].concat();
        let footer = [&crc32(0, &body).to_le_bytes()[..], &body, b"YZ"].concat();
        let start = [&MAGIC[..], &[0; 7], &[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]].concat();
        for (at, byte) in (offset..).zip(buf.iter_mut()) {
            let known = match at.checked_sub(self.len() - FOOTER) {
                Some(within) => footer.get(within as usize),
                None => start.get(at as usize),
            };
            *byte = known.copied().unwrap_or(0);
        }
        self.0.fetch_add(len_u64(buf.len()), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn an_index_of_a_gigabyte_is_not_read() {
    let stored = Arc::new(EndlessIndex(AtomicU64::new(0)));
    let opened = Xz.open(stored.clone(), 1 << 40).unwrap();
    assert!(!opened.stream.parallel());
    let read = stored.0.load(Ordering::Relaxed);
    assert!(read < 1 << 20, "{read} bytes read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn damaged_streams_never_panic(
        which in 0usize..3,
        spots in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        place in 0usize..3,
        cut in any::<prop::sample::Index>(),
        data_size in prop_oneof![Just(SIZE as u64), 0..SIZE as u64, any::<u64>().prop_map(|n| n % (1 << 22))],
    ) {
        let mut stored = recorded(RECORDED[which]);
        let len = stored.len();
        for (spot, byte) in spots {
            let at = [spot.index(len), spot.index(40), len - 1 - spot.index(40)][place];
            stored[at] = byte;
        }
        stored.truncate(1 + cut.index(stored.len() * 4).min(stored.len() - 1));
        poke(&Xz, &stored, data_size, data_size / 2);
    }
}

/// It was said to be damaged.
#[test]
fn more_filters_than_are_read_are_no_damage() {
    // of Python: delta, x86, LZMA2
    let digits = "fd377a585a0000016922de360302030103040021010c00005bb9ac9f01000468656c6c070000000086a6103600011d05b82d80af9042990d010000000001595a";
    let mut stored: Vec<u8> = (0..digits.len() / 2)
        .map(|n| u8::from_str_radix(&digits[2 * n..][..2], 16).unwrap())
        .collect();
    let error = |stored: &[u8]| decode(&Xz, stored, 5, 5).unwrap_err();
    assert!(matches!(error(&stored), Error::Unsupported { .. }));
    // the header of the block, which has a checksum
    stored[15] ^= 1;
    assert!(matches!(error(&stored), Error::Corrupt { .. }));
}
