//! Planned files as a reader sees them that skips along from block to block, as asdf-python does: no gap, no stale header, and
//! the block index right behind the last block and nothing behind it.

use std::sync::Arc;

use proptest::prelude::*;

use super::reference::{Case, Model, case, layout, model, text};
use super::source;
use crate::asdf::layout::{BlockIndex, Extent, Layout, Severity, index_text};
use crate::asdf::sample::{Sample, block, header};
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::save::plan::Plan;
use crate::save::rope::Segment;
use crate::source::read_all;

/// The file that the edit makes of `old`.
fn edited(old: &[u8], edit: &Edit) -> (Plan, Vec<u8>) {
    let plan = Plan::new(&layout(old), edit, Some(0), None).unwrap();
    let new = read_all(&plan.next(source(old)), 1 << 20).unwrap();
    (plan, new)
}

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Data of the blocks that lie one behind the other from `at` on, their offsets, and what follows; nothing can follow a stream.
fn walk(bytes: &[u8], mut at: usize) -> (Vec<&[u8]>, Vec<u64>, &[u8]) {
    let (mut data, mut offsets) = (Vec::new(), Vec::new());
    while bytes[at..].starts_with(b"\xd3BLK") {
        offsets.push(at as u64);
        let size = u16::from_be_bytes(bytes[at + 4..at + 6].try_into().unwrap());
        let start = at + 6 + usize::from(size);
        if bytes[at + 9] & 1 == 1 {
            data.push(&bytes[start..]);
            return (data, offsets, b"");
        }
        let (allocated, used) = (number(bytes, at + 14), number(bytes, at + 22));
        data.push(&bytes[start..start + used]);
        at = start + allocated;
    }
    (data, offsets, &bytes[at..])
}

/// Whether the walk over a planned file finds these blocks, and then their index.
fn check_walk(new: &[u8], layout: &Layout, want: &Model) -> Result<(), TestCaseError> {
    let Some(first) = layout.blocks.first() else {
        return Ok(());
    };
    let (data, offsets, rest) = walk(new, first.offset as usize);
    let stored: Vec<&[u8]> = want.blocks.iter().map(|block| &block.stored[..]).collect();
    prop_assert_eq!(data, stored);
    let streamed = want.blocks.last().is_some_and(|last| last.streamed);
    prop_assert_eq!(
        rest,
        if streamed {
            vec![]
        } else {
            index_text(&offsets)
        }
    );
    Ok(())
}

/// The file with `more` bytes allocated to the last block than there are.
fn reaching_beyond(old: &[u8], more: u64) -> Vec<u8> {
    let mut out = old.to_vec();
    if let Some(last) = layout(old).blocks.last() {
        let at = last.offset as usize + 14;
        out[at..at + 8].copy_from_slice(&(last.allocated + more).to_be_bytes());
    }
    out
}

fn without_ending(case: &Case) -> Vec<u8> {
    let mut before = case.before.clone();
    (before.index, before.trailer) = (None, Vec::new());
    // behind a gap no block is believed in that does not end in the file
    for block in before.blocks.iter_mut().rev().take(2) {
        block.gap = Vec::new();
    }
    before.bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]

    #[test]
    fn a_serial_reader_finds_the_blocks_and_then_their_index(case in case()) {
        let (plan, new) = edited(&case.before.bytes(), &case.edit());
        check_walk(&new, plan.layout(), &case.after)?;
    }

    #[test]
    fn so_it_does_where_the_last_block_reached_beyond_the_end(case in case(), more in 1u64..1 << 40) {
        if case.before.blocks.last().is_none_or(|last| last.streamed) {
            return Ok(());
        }
        let old = reaching_beyond(&without_ending(&case), more);
        let (plan, new) = edited(&old, &case.edit());
        check_walk(&new, plan.layout(), &case.after)?;
    }

    #[test]
    fn a_new_text_leaves_every_byte_behind_it(model in model(), text in text()) {
        let old = model.bytes();
        let before = layout(&old);
        let (plan, new) = edited(&old, &Edit::text(Arc::new(text)));
        let ends = before.blocks.iter().skip(1).map(|block| block.offset);
        let index = match &before.index {
            BlockIndex::Valid(index) | BlockIndex::Wrong(index, _) => *index,
            BlockIndex::Absent => Extent { start: before.len, end: before.len },
        };
        for ((old_block, end), block) in before.blocks.iter().zip(ends.chain([index.start])).zip(plan.layout().blocks.iter()) {
            let kept = &old[old_block.data_offset() as usize..end as usize];
            prop_assert_eq!(&new[block.data_offset() as usize..][..kept.len()], kept);
            prop_assert_eq!((block.used, block.data_size), (old_block.used, old_block.data_size));
        }
        let (Some(last), false) = (plan.layout().blocks.last(), before.streamed()) else {
            return Ok(());
        };
        let trailer = &old[index.end as usize..];
        prop_assert!(new[..last.end().unwrap() as usize].ends_with(trailer));
        let clean = model.blocks.iter().all(|block| block.gap.is_empty()) && trailer.is_empty();
        if clean && !plan.moves() && matches!(before.index, BlockIndex::Valid(_)) {
            let end = before.head().end;
            prop_assert!(plan.segments().changes().all(|(at, part)| at + part.len() <= end));
        }
    }
}

#[test]
fn an_index_that_zeros_follow_gives_way_to_one_that_ends_the_file() {
    let mut old = Sample::new().block(b"abc").bytes();
    old.extend([0; 77]);
    let (plan, new) = edited(&old, &Edit::text(Arc::new(Sample::TREE.to_vec())));
    let texts = new.windows(17).filter(|&part| part == b"#ASDF BLOCK INDEX");
    assert_eq!(texts.count(), 1);
    assert!(new.ends_with(&index_text(&[Sample::TREE.len() as u64])));
    assert!(plan.in_place().is_some());
}

#[test]
fn a_block_can_be_put_behind_one_whose_unused_space_is_cut_short() {
    let whole = Sample::new().block(b"abc").index(false).bytes();
    let old = reaching_beyond(&whole, 4096);
    let append = Edit::block(BlockEdit::Append(StoredBlock::raw(source(b"new"))));
    let (plan, new) = edited(&old, &append);
    assert_eq!(walk(&new, Sample::TREE.len()).0, [b"abc", b"new"]);
    assert_eq!(plan.layout().blocks[0].allocated, 3);
}

#[test]
fn a_block_that_says_it_reaches_over_the_next_is_allocated_what_there_is() {
    let old = Sample::new().block(b"abc").block(b"de").bytes();
    let mut before = layout(&old);
    before.blocks.get_mut(0).unwrap().allocated = 1000;
    let text = Edit::text(Arc::new(Sample::TREE.to_vec()));
    let plan = Plan::new(&before, &text, Some(0), None).unwrap();
    assert_eq!(plan.layout().blocks, layout(&old).blocks);
    assert!(plan.in_place().is_some());
}

/// Truncated in front of bytes that look like a block, a block of a file without index could not be told from two.
#[test]
fn a_header_behind_the_used_bytes_does_not_survive() {
    let inner = [&[1; 100][..], &block(&[7; 300])].concat();
    let mut half_used = header(48, 0, [0; 4], [454, 90, 90], [0; 16]);
    half_used.extend(&inner);
    let kept = |end, more: &[u8]| StoredBlock {
        pieces: vec![
            Piece::Old(Extent { start: 0, end }),
            Piece::New(source(more)),
        ],
        ..StoredBlock::raw(source(&vec![0; end as usize + more.len()]))
    };
    let shorter = (block(&inner), kept(100, b""));
    let longer = (half_used, kept(90, &[1; 10]));
    for (first, stored) in [shorter, longer] {
        let old = Sample::new().stored(first).streamed(b"stream").bytes();
        let (plan, new) = edited(&old, &Edit::block(BlockEdit::Replace { n: 0, stored }));
        let found = layout(&new);
        assert!(
            found
                .worst()
                .is_none_or(|worst| worst.severity < Severity::ReadOnly)
        );
        assert_eq!(found.blocks, plan.layout().blocks);
        let behind = plan
            .segments()
            .changes()
            .map(|(_, part)| part.len())
            .sum::<u64>();
        assert!(behind <= 54 + 54 + 10, "{behind}");
    }
}

#[test]
fn a_save_in_place_stays_small_however_many_gaps_there_are() {
    let mut old = Sample::TREE.to_vec();
    for _ in 0..2500 {
        old.extend(block(b"abc"));
        old.extend(b"   ");
    }
    let mut gaps = vec![];
    for _ in 0..3 {
        let (plan, new) = edited(&old, &Edit::text(Arc::new(Sample::TREE.to_vec())));
        let headers = plan
            .segments()
            .changes()
            .filter(|(_, part)| matches!(part, Segment::Write(_)));
        assert!(headers.count() <= 1003 && plan.in_place().is_some());
        old = new;
        gaps.push(layout(&old).regions().len());
    }
    assert_eq!(gaps, [4001, 3001, 2502]);
}
