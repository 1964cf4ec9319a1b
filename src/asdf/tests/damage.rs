//! Tests of files with a damaged block header: no block shows bytes of another, and the others can be had.

use std::io::Write;
use std::sync::Arc;

use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{BlockIndex, Layout, Severity};
use crate::asdf::sample::{Sample, block, block_with};
use crate::asdf::scan::scan;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::source::{Memory, read_all};

/// Bytes of a header.
const HEADER: usize = 54;
/// The data of the blocks, none of which can be taken for another's, nor for text.
fn data() -> [Vec<u8>; 4] {
    [1u8, 2, 3, 4].map(|n| vec![n; 40 + 30 * usize::from(n)])
}

fn sample(index: bool) -> (Vec<u8>, Vec<usize>) {
    let mut sample = Sample::new().index(index);
    let mut at = Sample::TREE.len();
    let mut offsets = Vec::new();
    for data in data() {
        offsets.push(at);
        at += HEADER + data.len();
        sample = sample.block(&data);
    }
    (sample.bytes(), offsets)
}

fn open(bytes: &[u8], force: bool) -> Snapshot {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let options = OpenOptions {
        force,
        ..OpenOptions::default()
    };
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), options).unwrap()
}

/// What each block shows of as many bytes as its array has, `None` for an error.
fn shown(snapshot: &Snapshot) -> Vec<Option<Vec<u8>>> {
    let blocks = data().into_iter().enumerate();
    let array = |(n, data): (usize, Vec<u8>)| {
        let mut bytes = vec![0; data.len()];
        let block = snapshot.block(n).ok()?;
        block.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    };
    blocks.map(array).collect()
}

/// Which blocks show their own data; the others must show an error.
fn right(bytes: &[u8]) -> Vec<bool> {
    let snapshot = open(bytes, false);
    let shown = shown(&snapshot);
    let pairs = shown.iter().zip(data());
    for (n, (shown, want)) in pairs.clone().enumerate() {
        let layout = snapshot.layout();
        assert!(
            shown.as_ref().is_none_or(|shown| *shown == want),
            "block {n} shows {shown:?}: {layout:?}"
        );
    }
    pairs
        .map(|(shown, want)| shown.as_ref() == Some(&want))
        .collect()
}

fn layout(bytes: &[u8]) -> Layout {
    scan(&Memory::new(bytes.to_vec()), false).unwrap().layout
}

fn worst(bytes: &[u8]) -> Option<Severity> {
    layout(bytes).worst().map(|worst| worst.severity)
}

/// The sample with its header fields from `at` of block `n` on replaced.
fn with(index: bool, n: usize, at: usize, new: &[u8]) -> Vec<u8> {
    let (mut bytes, offsets) = sample(index);
    let at = offsets[n] + at;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// What asdf of Python 6 reads of a block with this header: it finds blocks by the index, if its first entry has a magic, and
/// looks at `header_size`, the flag of streamed blocks, compression and used size only.
fn python_reads(bytes: &[u8], offsets: &[usize], n: usize) -> bool {
    let header = &bytes[offsets[n]..][..HEADER];
    let size = u16::from_be_bytes([header[4], header[5]]);
    let used = u64::from_be_bytes(header[22..30].try_into().unwrap());
    let fits = used == data()[n].len() as u64 || header[9] & 1 != 0;
    let first_magic = bytes[offsets[0]..].starts_with(b"\xd3BLK");
    first_magic && size == 48 && header[10..14] == [0; 4] && fits
}

#[test]
fn a_flipped_bit_in_a_header_costs_one_block_at_most() {
    let (whole, offsets) = sample(true);
    for n in 0..4 {
        for bit in 0..HEADER * 8 {
            let mut bytes = whole.clone();
            bytes[offsets[n] + bit / 8] ^= 1 << (bit % 8);
            let right = right(&bytes);
            for (other, right) in right.iter().enumerate() {
                let readable = other != n || python_reads(&bytes, &offsets, n);
                assert!(*right || !readable, "bit {bit} of {n} costs {other}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_without_an_index_shows_no_wrong_data() {
    let (whole, offsets) = sample(false);
    for at in offsets {
        for bit in 0..HEADER * 8 {
            // a longer header begins its data later, and nothing tells that of the last block
            if (32..48).contains(&bit) {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[at + bit / 8] ^= 1 << (bit % 8);
            right(&bytes);
        }
    }
}

#[test]
fn a_lost_header_costs_its_block() {
    for n in 0..4 {
        let bytes = with(true, n, 0, &[0; HEADER]);
        let mut want = vec![true; 4];
        want[n] = false;
        assert_eq!(right(&bytes), want);
        let layout = layout(&bytes);
        assert!(layout.lost.contains_key(&n) && layout.doubt.is_none());
        assert_eq!(layout.worst().unwrap().severity, Severity::ReadOnly);
        assert!(matches!(layout.index, BlockIndex::Valid(_)));
    }
}

#[test]
fn two_lost_headers_cost_two_blocks() {
    let (mut bytes, offsets) = sample(true);
    bytes[offsets[0]..offsets[0] + HEADER].fill(0);
    bytes[offsets[2]..offsets[2] + HEADER].fill(0xff);
    assert_eq!(right(&bytes), [false, true, false, true]);
}

#[test]
fn a_lost_magic_costs_nothing_and_forbids_saving() {
    for n in 0..4 {
        let bytes = with(true, n, 0, &[0; 4]);
        assert_eq!(right(&bytes), [true; 4]);
        assert_eq!(worst(&bytes), Some(Severity::ReadOnly));
    }
}

#[test]
fn an_allocated_size_that_is_wrong_costs_nothing() {
    let (_, offsets) = sample(true);
    for n in 0..4 {
        let len = data()[n].len() as u64;
        let over_next = offsets
            .get(n + 2)
            .map(|&end| (end - offsets[n] - HEADER) as u64);
        let sizes = [1 << 40, u64::MAX, len + 10, len - 10, 0];
        for allocated in sizes.into_iter().chain(over_next) {
            let bytes = with(true, n, 14, &allocated.to_be_bytes());
            assert_eq!(right(&bytes), [true; 4], "{allocated} of {n}");
            assert_eq!(
                worst(&bytes),
                Some(Severity::ReadOnly),
                "{allocated} of {n}"
            );
        }
    }
}

#[test]
fn a_header_size_or_flag_that_is_wrong_costs_nothing() {
    for n in 0..4 {
        for (at, new) in [(4, [0, 0]), (4, [0xff, 0xff]), (4, [0, 49]), (8, [0, 1])] {
            let bytes = with(true, n, at, &new);
            assert_eq!(right(&bytes), [true; 4], "{new:?} of {n}");
            assert_eq!(worst(&bytes), Some(Severity::ReadOnly), "{new:?} of {n}");
        }
    }
}

#[test]
fn a_lost_header_without_an_index_puts_numbers_in_doubt() {
    for n in 0..4 {
        let bytes = with(false, n, 0, &[0; HEADER]);
        let want: Vec<bool> = (0..4).map(|other| other < n).collect();
        assert_eq!(right(&bytes), want, "{n}");
        let severity = if n < 3 {
            Severity::Damaged
        } else {
            Severity::ReadOnly
        };
        assert_eq!(worst(&bytes), Some(severity));
        assert_eq!(layout(&bytes).doubt.map(|doubt| doubt.from), Some(n));
        assert_eq!(open(&bytes, true).block(n).is_ok(), n < 3);
    }
}

#[test]
fn a_block_over_the_next_without_an_index_puts_numbers_in_doubt() {
    let (_, offsets) = sample(false);
    for allocated in [
        offsets[2] - offsets[0] - HEADER,
        1 << 40,
        data()[0].len() + 60,
    ] {
        let bytes = with(false, 0, 14, &(allocated as u64).to_be_bytes());
        assert_eq!(right(&bytes), [true, false, false, false], "{allocated}");
        assert_eq!(worst(&bytes), Some(Severity::Damaged));
    }
}

#[test]
fn a_large_lost_block_is_jumped() {
    let large = vec![7; (crate::asdf::scan::GAP_LIMIT + 100) as usize];
    let bytes = Sample::new()
        .block(b"abc")
        .block(&large)
        .block(b"de")
        .bytes();
    let second = Sample::TREE.len() + HEADER + 3;
    let mut lost = bytes.clone();
    lost[second..second + HEADER].fill(0);
    let snapshot = open(&lost, false);
    let used: Vec<u64> = snapshot
        .layout()
        .blocks
        .iter()
        .map(|block| block.used)
        .collect();
    assert_eq!(used, [3, large.len() as u64, 2]);
    assert!(snapshot.block(1).is_err());
    assert_eq!(read_all(&*snapshot.block(2).unwrap(), 9).unwrap(), b"de");
}

#[test]
fn an_index_that_is_stale_is_not_taken_for_advice() {
    let (whole, offsets) = sample(false);
    let mut lost = whole.clone();
    lost[offsets[1]..offsets[1] + HEADER].fill(0);
    let listed = |shift: isize| -> Vec<u64> {
        let shifted = offsets
            .iter()
            .map(|&at| at.checked_add_signed(shift).unwrap() as u64);
        shifted.collect()
    };
    let stale = [listed(1), listed(-1), listed(200), listed(0)[..2].to_vec()];
    for index in stale {
        let text = crate::asdf::layout::index_text(&index);
        assert_eq!(right(&[&whole[..], &text].concat()), [true; 4]);
        assert_eq!(worst(&[&whole[..], &text].concat()), Some(Severity::Odd));
        let found = right(&[&lost[..], &text].concat());
        assert_eq!(found, [true, false, false, false], "{index:?}");
    }
}

#[test]
fn a_chance_index_in_data_is_no_advice() {
    let inner = Sample::new().block(b"abc").block(&[9; 80]).bytes();
    for outer in [
        Sample::new().block(b"abc").block(&inner).index(false),
        Sample::new().block(b"abc").streamed(&inner),
        Sample::new().stored(block_with([0; 4], &inner, inner.len() as u64, 4000)),
    ] {
        let bytes = outer.bytes();
        let layout = layout(&bytes);
        assert!(layout.findings.is_empty(), "{:?}", layout.findings);
        let last = layout.blocks.len() - 1;
        let start = layout.blocks[last].data_offset() as usize;
        let stored = &bytes[start..start + layout.stored_len(last) as usize];
        assert_eq!(stored, inner);
    }
}

#[test]
fn a_listed_block_inside_another_is_data_where_that_uses_the_bytes() {
    let fake = block(&[5; 60]);
    let first = Sample::TREE.len() as u64;
    for (number, used) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut stored = vec![block(b"abc"); 2];
        stored[number] = if used {
            block(&fake)
        } else {
            block_with([0; 4], b"", 0, fake.len() as u64)
        };
        let start = Sample::TREE.len() + stored[..number].concat().len() + HEADER;
        let second = first + stored[0].len() as u64;
        let mut bytes = [Sample::TREE, &stored.concat()].concat();
        bytes[start..start + fake.len()].copy_from_slice(&fake);
        let mut index = vec![first, second, start as u64];
        index.sort_unstable();
        let bytes = [bytes, crate::asdf::layout::index_text(&index)].concat();
        let layout = layout(&bytes);
        let offsets: Vec<u64> = layout.blocks.iter().map(|block| block.offset).collect();
        let severity = layout.worst().unwrap().severity;
        if used {
            assert_eq!((offsets, severity), (vec![first, second], Severity::Odd));
        } else {
            assert_eq!((offsets, severity), (index, Severity::ReadOnly));
        }
    }
}

#[test]
fn a_raw_block_shows_its_used_bytes_whatever_its_data_size() {
    for data_size in [0u64, 10, 1000] {
        let bytes = with(true, 1, 30, &data_size.to_be_bytes());
        assert_eq!(right(&bytes), [true; 4]);
        assert_eq!(worst(&bytes), Some(Severity::Odd));
        assert_eq!(open(&bytes, false).block_len(1), Some(100));
    }
}

#[test]
fn a_block_that_uses_more_than_there_is_costs_no_other() {
    for n in 0..4 {
        let bytes = with(true, n, 22, &1000u64.to_be_bytes());
        let others: Vec<bool> = (0..4).map(|other| other != n).collect();
        assert_eq!(right(&bytes), others[..]);
        assert_eq!(worst(&bytes), Some(Severity::ReadOnly));
        assert!(open(&bytes, false).block(n).is_err());
    }
}

#[test]
fn padding_that_is_text_leaves_no_doubt() {
    let text = "A note of whoever wrote this file. ".repeat(10);
    let sample = Sample::new().block(b"abc").index(false);
    let found = layout(&sample.clone().padding(text.as_bytes()).bytes());
    assert!(found.findings.is_empty());
    let binary = [0x80; 60];
    assert_eq!(
        worst(&sample.padding(&binary).bytes()),
        Some(Severity::Damaged)
    );
    let indexed = Sample::new().block(b"abc").padding(&binary).bytes();
    assert_eq!(worst(&indexed), None);
}

#[test]
fn the_only_block_is_found_by_the_index() {
    let bytes = Sample::new().block(&[8; 100]).bytes();
    let at = Sample::TREE.len();
    let lost = [&bytes[..at], &[0; HEADER], &bytes[at + HEADER..]].concat();
    let found = layout(&lost);
    assert!(found.lost.contains_key(&0));
    assert_eq!(found.blocks[0].used, 100);
    let magic = [&bytes[..at], b"....", &bytes[at + 4..]].concat();
    assert_eq!(
        layout(&magic).blocks,
        std::iter::once(BlockHeader::parse(&bytes[at..], at as u64, found.dialect).unwrap())
            .collect()
    );
}
