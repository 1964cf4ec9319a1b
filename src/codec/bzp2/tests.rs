use super::*;
use crate::codec::testing::{
    EditCase, assert_harmless, assert_reads_like, encoded, image, open, python_agrees,
    python_encodes, read_all,
};
use crate::source::Memory;
use proptest::prelude::*;
use std::io::Read;

fn compressed(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = BzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// What the crate makes of a stream, up to where it fails.
fn oracle(stored: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    bzip2::read::MultiBzDecoder::new(stored)
        .take(len as u64)
        .read_to_end(&mut out)
        .ok()?;
    Some(out)
}

#[test]
fn what_is_written_is_read_again_here_and_by_python() {
    let mut cases = Vec::new();
    for len in [0, 1, 899_981, 1_900_000] {
        let plain = image(len);
        let stored = encoded(&Bzp2, &plain);
        assert_reads_like(&*open(&Bzp2, &stored, len as u64).unwrap(), &plain);
        cases.push((stored, plain));
    }
    assert!(python_agrees("bzp2", &cases));
}

#[test]
fn what_python_writes_is_read() {
    let plain = image(1_000_000);
    if let Some(stored) = python_encodes("bzp2", &plain) {
        assert_reads_like(&*open(&Bzp2, &stored, plain.len() as u64).unwrap(), &plain);
    }
}

#[test]
fn an_edited_block_keeps_its_level() {
    let before = image(150_000);
    let case = EditCase {
        framing: FRAMING,
        stored: compressed(&before, 1),
        writes: vec![(120_000, vec![7; 10])],
        len: before.len() + 10,
        before,
    };
    let edited = case.run(&Bzp2);
    assert_eq!(edited.stored[..4], *b"BZh1");
    assert_eq!(oracle(&edited.stored, case.len), Some(edited.decoded));
}

#[test]
fn every_level_and_many_blocks_are_read() {
    let plain = image(1_000_000);
    for level in [1, 2, 5] {
        let stored = compressed(&plain, level);
        assert_reads_like(&*open(&Bzp2, &stored, plain.len() as u64).unwrap(), &plain);
    }
}

#[test]
fn runs_are_made_when_they_are_read() {
    let plain = [image(50_000), vec![0; 30 << 20], image(50_000)].concat();
    let stored = compressed(&plain, 9);
    assert!(stored.len() < 120_000);
    assert_reads_like(&*open(&Bzp2, &stored, plain.len() as u64).unwrap(), &plain);
}

#[test]
fn several_streams_are_one() {
    let plain = image(700_000);
    let (first, second) = plain.split_at(300_000);
    let stored = [
        compressed(first, 1),
        compressed(b"", 9),
        compressed(second, 3),
    ]
    .concat();
    assert_reads_like(&*open(&Bzp2, &stored, plain.len() as u64).unwrap(), &plain);
}

#[test]
fn after_one_pass_every_block_is_an_entry() {
    let plain = image(500_000);
    let stored = Arc::new(Memory::new(compressed(&plain, 1)));
    let stream = Bzp2.open(stored, plain.len() as u64).unwrap().stream;
    assert_eq!(stream.entry(450_000), 0);
    let mut cursor = Arc::clone(&stream).cursor(0).unwrap();
    cursor.fill(&mut vec![0; plain.len()], u64::MAX).unwrap();
    for offset in [450_000_u64, 123_456, 250_000, 99_000] {
        let entry = stream.entry(offset);
        assert!(
            entry <= offset && offset - entry < 101_000,
            "{entry} for {offset}"
        );
        let mut cursor = Arc::clone(&stream).cursor(offset).unwrap();
        assert_eq!(cursor.position(), entry);
        let mut buf = vec![0; (offset - entry) as usize + 5000];
        cursor.fill(&mut buf, u64::MAX).unwrap();
        assert!(buf == plain[entry as usize..entry as usize + buf.len()]);
    }
    assert!(stream.held() > 0);
    while stream.held() > 0 {
        let before = stream.held();
        stream.thin_out();
        assert!(stream.held() < before);
    }
    assert_eq!(stream.entry(450_000), 0);
}

#[test]
fn a_damaged_block_costs_what_cannot_be_reached_without_it() {
    let plain = image(2_000_000);
    let mut stored = compressed(&plain, 1);
    let at = stored.len() / 4 * 3;
    stored[at] ^= 0x10;
    let decoded = open(&Bzp2, &stored, plain.len() as u64).unwrap();
    let mut buf = vec![0; 1 << 20];
    decoded.read_exact_at(&mut buf, 0).unwrap();
    assert!(buf == plain[..buf.len()]);
    assert!(
        read_all(&*decoded)
            .unwrap_err()
            .to_string()
            .starts_with("bzip2 block at bit")
    );
}

#[test]
fn a_wrong_checksum_of_all_is_an_error_at_the_end() {
    let plain = image(150_000);
    let mut stored = compressed(&plain, 1);
    let last = stored.len() - 3;
    stored[last] ^= 1;
    let error = read_all(&*open(&Bzp2, &stored, plain.len() as u64).unwrap()).unwrap_err();
    assert!(error.to_string().contains("but the blocks give"), "{error}");
    for cut in [2, 7] {
        let cut = &stored[..last - cut];
        assert!(read_all(&*open(&Bzp2, cut, plain.len() as u64).unwrap()).unwrap() == plain);
    }
    stored[last - 4] ^= 0x40;
    let error = read_all(&*open(&Bzp2, &stored, plain.len() as u64).unwrap()).unwrap_err();
    assert!(error.to_string().contains("bzip2 block at bit"), "{error}");
}

#[test]
fn sizes_that_disagree_cost_only_what_is_not_there() {
    let plain = image(250_000);
    let stored = compressed(&plain, 1);
    assert!(read_all(&*open(&Bzp2, &stored, 220_000).unwrap()).unwrap() == plain[..220_000]);
    let error = read_all(&*open(&Bzp2, &stored, 260_000).unwrap()).unwrap_err();
    let want = "the bzip2 stream ends after 250000 of 260000 decoded bytes";
    assert_eq!(error.to_string(), want);
    assert!(open(&Bzp2, b"BZh0", 1).is_err());
    assert!(open(&Bzp2, b"", 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn agrees_with_the_crate(
        runs in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 1..30), 1usize..400), 0..40),
        level in 1u32..=9,
    ) {
        let plain: Vec<u8> = runs
            .iter()
            .flat_map(|(bytes, times)| bytes.repeat(*times))
            .collect();
        let stored = compressed(&plain, level);
        let decoded = open(&Bzp2, &stored, plain.len() as u64).unwrap();
        prop_assert!(read_all(&*decoded).unwrap() == plain);
    }

    #[test]
    fn damaged_bytes_are_harmless_and_never_taken_for_others(
        len in 1usize..20_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        size in 0u64..40_000,
    ) {
        let mut stored = compressed(&image(len), 1);
        for (place, value) in changes {
            let at = place.index(stored.len());
            stored[at] = value;
        }
        stored.truncate(cut.index(stored.len()) + 1);
        assert_harmless(&Bzp2, &stored, size);
        if let Some(want) = oracle(&stored, size as usize).filter(|want| want.len() as u64 == size)
            && let Ok(decoded) = open(&Bzp2, &stored, size)
            && let Ok(found) = read_all(&*decoded)
        {
            prop_assert!(found == want);
        }
    }
}

/// One step of the decoder read all of gigabytes of them, and did not end when it was asked to.
#[test]
fn only_so_many_streams_without_data_are_passed_over() {
    let empty = compressed(b"", 9);
    for (count, is_read) in [(MAX_IDLE as usize, true), (MAX_IDLE as usize + 1, false)] {
        let stored = [empty.repeat(count), compressed(b"abc", 9)].concat();
        let read = read_all(&*open(&Bzp2, &stored, 3).unwrap());
        assert_eq!(
            read.is_ok_and(|read| read == b"abc"),
            is_read,
            "{count} streams"
        );
    }
}

/// The bits of a mark within a block, as they occur by chance: among the selectors of the first block, behind those that it uses.
fn with_mark_inside(stored: &[u8], mark: u64) -> Vec<u8> {
    let bits_of = |bytes: &[u8]| -> Vec<bool> {
        let bits = bytes.iter();
        bits.flat_map(|byte| (0..8).rev().map(move |shift| byte >> shift & 1 == 1))
            .collect()
    };
    let number = |bits: &[bool]| bits.iter().fold(0, |n, bit| n << 1 | usize::from(*bit));
    let mut bits = bits_of(stored);
    // the header of the stream; mark, checksum, flag and origin of the block
    let mut at = 32 + 48 + 32 + 1 + 24;
    let groups = bits[at..at + 16].iter().filter(|bit| **bit).count();
    at += 16 + 16 * groups;
    assert!(number(&bits[at..at + 3]) >= 4, "tables");
    let count = at + 3..at + 18;
    let selectors = number(&bits[count.clone()]);
    at = count.end;
    for _ in 0..selectors {
        at += 1 + bits[at..].iter().take_while(|bit| **bit).count();
    }
    let inside = bits_of(&(mark << 8).to_be_bytes()[1..]);
    let more = selectors + inside.iter().filter(|bit| !**bit).count();
    for (place, shift) in count.zip((0..15).rev()) {
        bits[place] = more >> shift & 1 == 1;
    }
    bits.splice(at..at, inside);
    bits.chunks(8).map(|bits| number(bits) as u8).collect()
}

/// A mark of an end cut the block off, also where it was read again without looking for more blocks.
#[test]
fn a_mark_by_chance_is_a_part_of_its_block() {
    let plain = image(1_000_000);
    for level in [1, 9] {
        let stored = compressed(&plain, level);
        for mark in [0x3141_5926_5359, bits::END_MARK] {
            let stored = with_mark_inside(&stored, mark);
            assert!(oracle(&stored, plain.len()).unwrap() == plain);
            assert_reads_like(&*open(&Bzp2, &stored, plain.len() as u64).unwrap(), &plain);
        }
    }
}
