use super::*;
use crate::codec::deflate::{ADLER_START, adler32, crc32, deflate, ordinary_stream};
use crate::codec::testing::{
    EditCase, assert_harmless, assert_reads_like, encoded, image, open, python, python_agrees,
    python_encodes, read_all,
};
use crate::codec::{Cache, Decoded};
use crate::source::Memory;
use proptest::prelude::*;

fn stream(stored: Vec<u8>, data_size: usize) -> Arc<dyn Stream> {
    let stored = Arc::new(Memory::new(stored));
    Zlib.open(stored, data_size as u64).unwrap().stream
}

/// Reads all in segments, as [`Decoded`](super::super::Decoded) does.
fn pass(stream: &Arc<dyn Stream>, data_size: usize) -> Result<Vec<u8>> {
    let mut cursor = Arc::clone(stream).cursor(0)?;
    let mut out = vec![0; data_size];
    for segment in out.chunks_mut(SEGMENT) {
        cursor.fill(segment, u64::MAX)?;
    }
    Ok(out)
}

#[test]
fn what_is_written_is_read_again_here_and_by_python() {
    let mut cases = Vec::new();
    for len in [0, 1, SEGMENT, SEGMENT + 1, 3_000_000] {
        let plain = image(len);
        let stored = encoded(&Zlib, &plain);
        assert_reads_like(&*open(&Zlib, &stored, len as u64).unwrap(), &plain);
        cases.push((stored, plain));
    }
    assert!(python_agrees("zlib", &cases));
}

#[test]
fn what_python_writes_is_read() {
    let plain = image(2_222_222);
    if let Some(stored) = python_encodes("zlib", &plain) {
        assert_reads_like(&*open(&Zlib, &stored, plain.len() as u64).unwrap(), &plain);
    }
}

#[test]
fn after_one_pass_every_segment_is_entered_just_before_it() {
    let plain = image(6 << 20);
    let stored = ordinary_stream(&plain, 6);
    for tidy in [false, true] {
        let stream = stream(stored.clone(), plain.len());
        assert_eq!(stream.entry(5 << 20), 0);
        assert!(pass(&stream, plain.len()).unwrap() == plain);
        let before = stream.held();
        while tidy && stream.tidy() {}
        assert!(stream.held() < before || !tidy);
        for index in 1..6 {
            let start = index * SEGMENT;
            let mut cursor = Arc::clone(&stream).cursor(start as u64).unwrap();
            let entry = cursor.position() as usize;
            assert!(entry <= start && start - entry < SEARCH_LEN);
            let mut buf = vec![0; SEGMENT + start - entry];
            cursor.fill(&mut buf, u64::MAX).unwrap();
            assert!(buf == plain[entry..entry + buf.len()]);
        }
    }
}

#[test]
fn our_own_streams_need_no_window() {
    let plain = image(4 << 20);
    let stream = stream(encoded(&Zlib, &plain), plain.len());
    pass(&stream, plain.len()).unwrap();
    while stream.tidy() {}
    assert_eq!(stream.entry((3 << 20) + 5), 3 << 20);
    assert!(stream.held() < 3 * 500, "{} bytes held", stream.held());
}

#[test]
fn a_stream_of_one_block_is_read_from_its_start() {
    let plain = vec![7; 5 << 20];
    let stored = ordinary_stream(&plain, 9);
    let stream = stream(stored.clone(), plain.len());
    pass(&stream, plain.len()).unwrap();
    assert_eq!(stream.entry(1 << 20), 0);
    assert_reads_like(&*open(&Zlib, &stored, plain.len() as u64).unwrap(), &plain);
}

/// A block that is stored as it is, of no bytes.
const EMPTY: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// One step of the decoder read all of gigabytes of them, and did not end when it was asked to.
#[test]
fn only_so_many_bytes_without_data_are_passed_over() {
    let abc = ordinary_stream(b"abc", 9);
    let (header, rest) = abc.split_at(HEADER_LEN as usize);
    for (count, is_read) in [
        (MAX_IDLE_INPUT / EMPTY.len(), true),
        (MAX_IDLE_INPUT, false),
    ] {
        let stored = [header, &EMPTY.repeat(count), rest].concat();
        let read = read_all(&*open(&Zlib, &stored, 3).unwrap());
        assert_eq!(
            read.is_ok_and(|read| read == b"abc"),
            is_read,
            "{count} blocks"
        );
    }
}

/// The last read failed, though it had all of its bytes.
#[test]
fn blocks_without_data_behind_the_last_byte_cost_no_byte() {
    let abc = deflate(b"abc", 9, false).unwrap();
    let sum = adler32(ADLER_START, b"abc");
    for (count, is_summed) in [(9, true), (MAX_IDLE_INPUT, false)] {
        for wrong in [0, 1] {
            let end = [&[1, 0, 0, 0xff, 0xff][..], &(sum ^ wrong).to_be_bytes()].concat();
            let stored = [&[0x78, 0xDA][..], &abc, &EMPTY.repeat(count), &end].concat();
            let read = read_all(&*open(&Zlib, &stored, 3).unwrap());
            let is_read = wrong == 0 || !is_summed;
            assert_eq!(
                read.is_ok_and(|read| read == b"abc"),
                is_read,
                "{count} blocks"
            );
        }
    }
}

#[test]
fn a_wrong_checksum_is_an_error_at_the_end_and_a_missing_one_is_none() {
    let plain = image(2_500_000);
    let mut stored = ordinary_stream(&plain, 6);
    let without = &stored[..stored.len() - 4];
    assert!(read_all(&*open(&Zlib, without, plain.len() as u64).unwrap()).unwrap() == plain);
    *stored.last_mut().unwrap() ^= 1;
    let decoded = open(&Zlib, &stored, plain.len() as u64).unwrap();
    let mut buf = vec![0; 2 << 20];
    decoded.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf == plain[..buf.len()]);
    let error = read_all(&*decoded).unwrap_err().to_string();
    assert_eq!(error, "zlib: incorrect data check");
}

/// Once a decoder that began at a point could not compare the checksum, and most often it was such a one that got there.
#[test]
fn a_wrong_checksum_is_found_whichever_decoder_gets_to_the_end() {
    let plain = image(16 << 20);
    let len = plain.len() as u64;
    let mut stored = ordinary_stream(&plain, 6);
    let learnt = stream(stored.clone(), plain.len());
    pass(&learnt, plain.len()).unwrap();
    assert!(learnt.entry(15 << 20) > 14 << 20, "it has points");
    let open_with = |stored: &[u8], budget: u64| {
        let stored: Arc<dyn Source> = Arc::new(Memory::new(stored.to_vec()));
        let stream = Zlib.open(stored, len).unwrap().stream;
        Decoded::new(stream, len, &Cache::new(budget))
    };
    let reads_well = |decoded: &Decoded| {
        let mut buf = vec![0; 128 << 10];
        (0..len)
            .step_by(buf.len())
            .filter(|&at| decoded.read_exact_at(&mut buf, at).is_ok())
            .count()
    };
    // The decoder from the start is pushed out by others.
    let parked_out = |decoded: &Decoded| {
        let mut buf = [0; 1000];
        let mut segments = [9, 1, 3, 5, 7, 10, 11, 12, 13, 14, 15].into_iter();
        segments.all(|segment| decoded.read_exact_at(&mut buf, segment << 20).is_ok())
    };
    assert_eq!(reads_well(&open_with(&stored, 64 << 20)), 128);
    assert!(parked_out(&open_with(&stored, 3 << 20)));
    *stored.last_mut().unwrap() ^= 1;
    assert!(!parked_out(&open_with(&stored, 3 << 20)));
    for _round in 0..8 {
        assert_eq!(reads_well(&open_with(&stored, 64 << 20)), 120);
    }
    for _round in 0..8 {
        let decoded = open_with(&stored, 64 << 20);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| assert_eq!(reads_well(&decoded), 120));
            }
        });
    }
}

/// An ordinary stream in gzip's wrapper, with these flags and what they stand for.
fn gzip(plain: &[u8], flags: u8, fields: &[u8]) -> Vec<u8> {
    let zlib = ordinary_stream(plain, 6);
    let mut stored = vec![0x1F, 0x8B, 8, flags, 1, 2, 3, 4, 0, 255];
    stored.extend(fields);
    stored.extend(&zlib[2..zlib.len() - 4]);
    stored.extend(crc32(0, plain).to_le_bytes());
    stored.extend((plain.len() as u32).to_le_bytes());
    stored
}

#[test]
fn gzip_is_read_as_libasdf_does() {
    // Once it was refused: 1f8b is not the start of a zlib stream.
    let plain = image(3_300_000);
    let python = python("import gzip\no.write(gzip.compress(d))", &plain);
    let fields = b"\x03\0abcname\0\0";
    let headers = [gzip(&plain, 0, b""), gzip(&plain, 28, fields)];
    let mut summed = gzip(&plain, 30, fields);
    let sum = crc32(0, &summed[..10 + fields.len()]).to_le_bytes();
    summed.splice(10 + fields.len()..10 + fields.len(), [sum[0], sum[1]]);
    for stored in headers.into_iter().chain([summed]).chain(python) {
        let len = plain.len() as u64;
        assert_reads_like(&*open(&Zlib, &stored, len).unwrap(), &plain);
        let opened = Zlib.open(Arc::new(Memory::new(stored.clone())), len);
        assert_eq!(opened.unwrap().framing, "gzip");
        let stream = stream(stored.clone(), plain.len());
        assert!(pass(&stream, plain.len()).unwrap() == plain);
        assert!(stream.entry(3 << 20) > 2 << 20, "points are left");
        for behind in [8, 5, 4, 1] {
            let mut bad = stored.clone();
            let at = bad.len() - behind;
            bad[at] ^= 0x10;
            let error = read_all(&*open(&Zlib, &bad, len).unwrap()).unwrap_err();
            assert_eq!(error.to_string(), "zlib: incorrect data check");
            let cut = &stored[..at];
            assert!(read_all(&*open(&Zlib, cut, len).unwrap()).unwrap() == plain);
        }
    }
}

#[test]
fn an_edit_of_gzip_makes_an_ordinary_stream_of_it() {
    let before = image(1_300_000);
    let case = EditCase {
        framing: GZIP_FRAMING,
        stored: gzip(&before, 0, b""),
        writes: vec![(77, vec![1; 10])],
        len: before.len(),
        before,
    };
    let edited = case.run(&Zlib);
    assert_eq!(edited.stored[..2], [0x78, 0x9C]);
    assert!(python_agrees("zlib", &[(edited.stored, edited.decoded)]));
}

#[test]
fn headers_of_gzip_that_can_not_be_are_refused() {
    let endless = b"x".repeat(PIECE);
    for (flags, fields) in [
        (32, &b""[..]),
        (4, b"\xFF\xFF"),
        (8, &endless),
        (2, b"\0\0"),
    ] {
        let stored = gzip(b"x", flags, fields);
        let error = open(&Zlib, &stored, 1).err().unwrap().to_string();
        assert_eq!(error, "not the header of a gzip stream");
    }
}

#[test]
fn sizes_that_disagree_cost_only_what_is_not_there() {
    let plain = image(1_500_000);
    let stored = ordinary_stream(&plain, 6);
    let decoded = open(&Zlib, &stored, 1_400_000).unwrap();
    assert!(read_all(&*decoded).unwrap() == plain[..1_400_000]);
    let decoded = open(&Zlib, &stored, 1_600_000).unwrap();
    let mut buf = vec![0; 1 << 20];
    decoded.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf == plain[..buf.len()]);
    let error = read_all(&*decoded).unwrap_err().to_string();
    assert_eq!(
        error,
        "the zlib stream ends after 1500000 of 1600000 decoded bytes"
    );
}

#[test]
fn what_is_not_zlib_is_refused_at_once() {
    assert!(open(&Zlib, b"BZh9", 10).is_err());
    assert!(open(&Zlib, b"x", 10).is_err());
    assert!(open(&Zlib, &[0x88, 0x1C, 3, 0], 10).is_err());
    let error = open(&Zlib, &[0x78, 0xBB, 0, 0, 0, 0], 10).err().unwrap();
    let want = "a zlib stream that needs a preset dictionary";
    assert_eq!(error.to_string(), want);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_bytes_are_harmless(
        len in 1usize..50_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        size in 0u64..100_000,
        zipped in any::<bool>(),
    ) {
        let mut stored = ordinary_stream(&image(len), 6);
        if zipped {
            stored = gzip(&image(len), 28, b"\x02\0abname\0\0");
        }
        for (place, value) in changes {
            let at = place.index(stored.len());
            stored[at] = value;
        }
        stored.truncate(cut.index(stored.len()) + 1);
        assert_harmless(&Zlib, &stored, size);
    }
}
