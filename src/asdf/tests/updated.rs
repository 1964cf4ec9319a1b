//! Tests of files as the `update()` of asdf-python leaves them: headers of blocks that are gone stay where nothing says so but the
//! block index, and that may be missing.

use crate::asdf::layout::{BlockIndex, Layout, Severity, index_text};
use crate::asdf::sample::{Sample, block, block_with};
use crate::asdf::scan::scan;
use crate::source::Memory;

fn layout(bytes: &[u8]) -> Layout {
    scan(&Memory::new(bytes.to_vec()), false).unwrap().layout
}

fn offsets(layout: &Layout) -> Vec<u64> {
    layout.blocks.iter().map(|block| block.offset).collect()
}

/// A text whose arrays have these sources.
fn text(sources: &[usize]) -> Vec<u8> {
    let arrays = sources.iter().map(|source| {
        format!(
            "a{source}: !core/ndarray-1.0.0 {{source: {source}, datatype: uint8, shape: [3]}}\n"
        )
    });
    let arrays: String = arrays.collect();
    let head = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
    format!("{head}{arrays}...\n").into_bytes()
}

/// A file of three blocks that lie one behind the other, and where they lie.
fn three(sources: &[usize]) -> (Vec<u8>, [u64; 3]) {
    let sample = Sample::new().text(&text(sources)).index(false);
    let bytes = sample.block(b"abc").block(b"old").block(b"def").bytes();
    let offsets = offsets(&layout(&bytes)).try_into().unwrap();
    (bytes, offsets)
}

#[test]
fn a_header_that_the_index_leaves_out_is_no_block() {
    let (blocks, [first, old, last]) = three(&[0, 1]);
    let bytes = [&blocks[..], &index_text(&[first, last])].concat();
    let found = layout(&bytes);
    assert_eq!(offsets(&found), [first, last]);
    assert!(matches!(found.index, BlockIndex::Valid(_)) && found.doubt.is_none());
    let worst = found.worst().unwrap();
    assert_eq!(worst.severity, Severity::Odd);
    assert!(
        worst.error.to_string().contains(&old.to_string()),
        "{worst:?}"
    );
}

#[test]
fn an_index_costs_no_block_that_the_tree_uses_nor_is_believed_further() {
    let (blocks, [first, old, last]) = three(&[0, 2]);
    for listed in [
        &[first, last][..],
        &[first, old],
        &[old, last],
        &[first + 1, last],
    ] {
        let found = layout(&[&blocks[..], &index_text(listed)].concat());
        assert_eq!(offsets(&found), [first, old, last], "{listed:?}");
        assert!(matches!(found.index, BlockIndex::Wrong(..)));
    }
    let (blocks, [first, old, last]) = three(&[0, 1]);
    let moved = [&blocks[..], b"\n", &index_text(&[first, last])].concat();
    assert_eq!(offsets(&layout(&moved)), [first, old, last]);
}

#[test]
fn a_header_in_the_space_of_a_block_is_none_if_the_tree_uses_the_blocks_without_it() {
    let stale = block(&[7; 40]);
    let mut long = block_with(*b"\0\0\0\0", b"abc", 3, 3 + stale.len() as u64);
    let at = long.len() - stale.len();
    long[at..].copy_from_slice(&stale);
    for (sources, sure) in [(&[0, 1][..], true), (&[0], false), (&[0, 2], false)] {
        let sample = Sample::new().text(&text(sources)).index(false);
        let found = layout(&sample.stored(long.clone()).block(b"def").bytes());
        assert_eq!(found.blocks.len(), 2);
        assert_eq!(found.doubt.is_none(), sure, "{sources:?}");
        assert_eq!(found.worst().is_none(), sure);
    }
}

#[test]
fn what_was_behind_the_last_block_is_no_block_if_an_index_says_so() {
    let junk = [vec![0xff; 20], vec![1; 80]].concat();
    let sample = Sample::new().text(&text(&[0, 1])).index(false);
    let blocks = sample.block(b"abc").block(b"def").bytes();
    let listed = offsets(&layout(&blocks));
    for (index, worst) in [
        (&listed[..], Severity::Odd),
        (&listed[..1], Severity::ReadOnly),
    ] {
        let found = layout(&[&blocks[..], &junk, &index_text(index)].concat());
        assert_eq!(offsets(&found), listed);
        assert_eq!(found.worst().unwrap().severity, worst);
    }
}

#[test]
fn what_is_behind_a_tree_without_arrays_is_no_block() {
    let junk = [vec![0xff; 20], vec![1; 80], index_text(&[70])].concat();
    for (sources, worst) in [(&[][..], Severity::Odd), (&[0], Severity::ReadOnly)] {
        let found = layout(&[&text(sources)[..], &junk].concat());
        assert!(found.blocks.is_empty());
        assert_eq!(found.worst().unwrap().severity, worst, "{sources:?}");
    }
}

#[test]
fn padding_that_was_not_written_is_no_damage() {
    let whole = block_with(*b"\0\0\0\0", b"abcdef", 6, 4096);
    let bytes = Sample::new().index(false).stored(whole).bytes();
    let used_end = Sample::TREE.len() + 54 + 6;
    for (len, severity) in [
        (used_end + 1, Severity::Odd),
        (used_end, Severity::Odd),
        (used_end - 1, Severity::Partial),
    ] {
        let found = layout(&bytes[..len]);
        assert_eq!(found.worst().unwrap().severity, severity);
    }
}
