//! Plans against a model that knows the format only as bytes in a row.

use std::sync::Arc;

use proptest::prelude::*;

use super::disk::Sim;
use super::source;
use crate::asdf::layout::{BlockIndex, Extent, Layout, index_text};
use crate::asdf::sample::{Sample, header};
use crate::asdf::scan::scan;
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::save::plan::{Plan, new_padding};
use crate::save::rope::Segment;
use crate::save::writer::{SaveOptions, Writer};
use crate::source::{Memory, read_all};

/// A block as people think of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) header_size: u16,
    pub(super) streamed: bool,
    pub(super) code: [u8; 4],
    pub(super) stored: Vec<u8>,
    pub(super) data_size: u64,
    pub(super) checksum: [u8; 16],
    pub(super) slack: Vec<u8>,
    pub(super) gap: Vec<u8>,
}

/// A file as people think of it.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) text: Vec<u8>,
    pub(super) padding: Vec<u8>,
    pub(super) blocks: Vec<Block>,
    pub(super) index: Option<bool>,
    pub(super) trailer: Vec<u8>,
}

impl Block {
    fn bytes(&self) -> Vec<u8> {
        let used = self.stored.len() as u64;
        let sizes = if self.streamed {
            [0; 3]
        } else {
            [used + self.slack.len() as u64, used, self.data_size]
        };
        let mut out = header(
            self.header_size,
            u32::from(self.streamed),
            self.code,
            sizes,
            self.checksum,
        );
        out.extend([&self.stored[..], &self.slack].concat());
        out
    }
}

impl Model {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = [&self.text[..], &self.padding].concat();
        let mut offsets = Vec::new();
        for block in &self.blocks {
            offsets.push(out.len() as u64);
            out.extend(block.bytes());
            if !block.streamed {
                out.extend(&block.gap);
            }
        }
        if offsets.is_empty() || self.blocks.last().is_some_and(|last| last.streamed) {
            return out;
        }
        match self.index {
            Some(true) => out.extend(index_text(&offsets)),
            Some(false) => out.extend(index_text(&[7, 8])),
            None => {}
        }
        out.extend(&self.trailer);
        out
    }
}

pub(super) fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn block() -> impl Strategy<Value = Block> {
    (
        prop::sample::select(vec![48u16, 48, 48, 61]),
        prop::sample::select(vec![*b"\0\0\0\0", *b"zlib"]),
        bytes(300),
        prop::sample::select(vec![[0; 16], [9; 16]]),
        prop_oneof![Just(Vec::new()), bytes(200)],
        prop_oneof![3 => Just(Vec::new()), 1 => Just(b"gap".to_vec()), 1 => Just(vec![0; 40])],
    )
        .prop_map(|(header_size, code, stored, checksum, slack, gap)| Block {
            header_size,
            streamed: false,
            code,
            data_size: stored.len() as u64,
            stored,
            checksum,
            slack,
            gap,
        })
}

pub(super) fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = "[a-z]{1,9}: [a-z0-9 ]{0,40}\n";
    prop_oneof![
        8 => prop::collection::vec(line, 0..12)
            .prop_map(|lines| format!("#ASDF 1.0.0\n--- \n{}...\n", lines.concat()).into_bytes()),
        1 => (0usize..30_000)
            .prop_map(|len| format!("#ASDF 1.0.0\r\n---\r\na: {}\r\n...\r\n", "x".repeat(len)).into_bytes()),
        1 => Just(b"#ASDF 1.0.0\n# no tree\n".to_vec()),
        1 => Just(b"#ASDF 1.0.0\n--- {}\n...".to_vec()),
    ]
}

pub(super) fn model() -> impl Strategy<Value = Model> {
    let padding = prop_oneof![
        Just(Vec::new()),
        (0usize..9000).prop_map(|len| vec![b' '; len]),
        (0usize..500).prop_map(|len| vec![0; len]),
    ];
    let index = prop::option::weighted(0.8, prop::bool::weighted(0.8));
    let trailer =
        prop_oneof![3 => Just(Vec::new()), 1 => Just(vec![0; 700]), 1 => Just(b"junk".to_vec())];
    (
        text(),
        padding,
        prop::collection::vec(block(), 0..5),
        any::<bool>(),
        index,
        trailer,
    )
        .prop_map(
            |(mut text, padding, mut blocks, streamed, index, trailer)| {
                if !text.ends_with(b"\n") && !blocks.is_empty() {
                    text.push(b'\n');
                }
                if let (true, Some(last)) = (streamed, blocks.last_mut()) {
                    *last = Block {
                        streamed: true,
                        code: [0; 4],
                        checksum: [0; 16],
                        slack: Vec::new(),
                        data_size: 0,
                        ..last.clone()
                    };
                }
                let padding = if blocks.is_empty() {
                    Vec::new()
                } else {
                    padding
                };
                Model {
                    text,
                    padding,
                    blocks,
                    index,
                    trailer,
                }
            },
        )
}

/// An edit of a model, before it is known how many blocks there are.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Replace(prop::sample::Index, Vec<u8>, bool),
    Grow(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index, prop::sample::Index),
    Checksum(prop::sample::Index, [u8; 16]),
    Append(Vec<u8>),
    RemoveLast,
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let n = any::<prop::sample::Index>;
    prop_oneof![
        (n(), bytes(600), any::<bool>()).prop_map(|(n, to, shrink)| Change::Replace(n, to, shrink)),
        (n(), bytes(100)).prop_map(|(n, more)| Change::Grow(n, more)),
        (n(), n()).prop_map(|(n, to)| Change::Cut(n, to)),
        (n(), any::<[u8; 16]>()).prop_map(|(n, md5)| Change::Checksum(n, md5)),
        bytes(300).prop_map(Change::Append),
        Just(Change::RemoveLast),
    ]
}

fn stored(pieces: Vec<Piece>, data_size: usize, shrink: bool) -> StoredBlock {
    StoredBlock {
        pieces,
        compression: [0; 4],
        data_size: data_size as u64,
        checksum: [5; 16],
        shrink,
    }
}

impl Block {
    /// A block of these bytes with nothing about it.
    fn of(stored: &[u8]) -> Self {
        Self {
            header_size: 48,
            streamed: false,
            code: [0; 4],
            stored: stored.to_vec(),
            data_size: stored.len() as u64,
            checksum: [5; 16],
            slack: Vec::new(),
            gap: Vec::new(),
        }
    }

    /// Gives the block other bytes: the first `kept` of those it has, and then `new`. The edit that does so.
    fn replace(&mut self, kept: usize, new: &[u8], shrink: bool) -> StoredBlock {
        let to = [&self.stored[..kept], new].concat();
        let end = kept as u64;
        let pieces = vec![
            Piece::Old(Extent { start: 0, end }),
            Piece::New(source(new)),
        ];
        let edit = stored(pieces, to.len(), shrink);
        if !self.streamed {
            let plain = Self::of(&to);
            (self.code, self.checksum, self.data_size) =
                (plain.code, plain.checksum, plain.data_size);
        }
        self.stored = to;
        edit
    }
}

impl Change {
    /// Applies the change to the model, and gives the edit that says the same; `None` if it makes no sense there.
    pub(super) fn apply(&self, model: &mut Model) -> Option<BlockEdit> {
        let count = model.blocks.len();
        let open = model.blocks.last().is_some_and(|last| last.streamed);
        let pick = |n: &prop::sample::Index| (count > 0).then(|| n.index(count));
        Some(match self {
            Self::Replace(n, to, shrink) => {
                let n = pick(n)?;
                let stored = model.blocks[n].replace(0, to, *shrink);
                BlockEdit::Replace { n, stored }
            }
            Self::Grow(n, more) => {
                let n = pick(n)?;
                let kept = model.blocks[n].stored.len();
                let stored = model.blocks[n].replace(kept, more, false);
                BlockEdit::Replace { n, stored }
            }
            Self::Cut(n, to) => {
                let n = pick(n)?;
                let kept = to.index(model.blocks[n].stored.len() + 1);
                let stored = model.blocks[n].replace(kept, b"", false);
                BlockEdit::Replace { n, stored }
            }
            Self::Checksum(n, md5) => {
                let n = pick(n)?;
                model.blocks[n].checksum = *md5;
                BlockEdit::Checksum { n, md5: *md5 }
            }
            Self::Append(to) if !open => {
                model.blocks.push(Block::of(to));
                BlockEdit::Append(stored(vec![Piece::New(source(to))], to.len(), false))
            }
            Self::RemoveLast if count > 0 => {
                model.blocks.pop();
                BlockEdit::RemoveLast
            }
            _ => return None,
        })
    }
}

/// A file, an edit of it, and the file as it should then be.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) before: Model,
    pub(super) after: Model,
    changes: Vec<Change>,
    new_text: bool,
}

impl Case {
    pub(super) fn edit(&self) -> Edit {
        let mut model = self.before.clone();
        Edit {
            text: self.new_text.then(|| Arc::new(self.after.text.clone())),
            blocks: self
                .changes
                .iter()
                .filter_map(|change| change.apply(&mut model))
                .collect(),
        }
    }
}

/// Cases whose changes refer each to what the file held before all of them: one change a block.
pub(super) fn case() -> impl Strategy<Value = Case> {
    (
        model(),
        prop::option::of(text()),
        prop::collection::vec(change(), 0..4),
    )
        .prop_map(|(before, text, changes)| {
            let mut after = before.clone();
            let mut kept = Vec::new();
            for change in changes {
                let mut next = after.clone();
                let edit = change.apply(&mut next);
                let fresh = match &edit {
                    Some(BlockEdit::Replace { n, .. }) => {
                        after.blocks.get(*n) == before.blocks.get(*n)
                    }
                    other => other.is_some(),
                };
                if fresh {
                    after = next;
                    kept.push(change);
                }
            }
            let first = before.blocks.is_empty() && !after.blocks.is_empty();
            let new_text = text.is_some() || first;
            after.text = text.unwrap_or(after.text);
            Case {
                before,
                after,
                changes: kept,
                new_text,
            }
        })
}

pub(super) fn layout(bytes: &[u8]) -> Layout {
    scan(&Memory::new(bytes.to_vec()), false).unwrap().layout
}

/// The file as it is after writing the changes into it.
fn written(old: &[u8], plan: &Plan) -> Option<Vec<u8>> {
    let mut out = old.to_vec();
    let len = plan.layout().len as usize;
    out.resize(len.max(out.len()), 0xEE);
    for (offset, segment) in plan.in_place()? {
        let at = *offset as usize;
        segment
            .read(
                &Memory::new(old.to_vec()),
                &mut out[at..at + segment.len() as usize],
                0,
            )
            .unwrap();
    }
    out.truncate(len);
    Some(out)
}

fn padding() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.7, prop::sample::select(vec![0, b' ', b'x']))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(700))]

    #[test]
    fn a_planned_file_scans_to_the_edited_content(
        case in case(), padding in padding(), grain in prop::option::of(Just(512u64)),
    ) {
        let old = case.before.bytes();
        let before = layout(&old);
        prop_assert_eq!(before.blocks.len(), case.before.blocks.len());
        let plan = Plan::new(&before, &case.edit(), padding, grain).unwrap();
        let new = read_all(&plan.next(source(&old)), 1 << 20).unwrap();
        let found = scan(&Memory::new(new.clone()), false).unwrap();

        let mut text = case.after.text.clone();
        if !text.ends_with(b"\n") && !case.after.blocks.is_empty() {
            text.push(b'\n');
        }
        prop_assert_eq!(&**found.text, &*text);
        let (is, said) = (&found.layout, plan.layout());
        prop_assert_eq!((is.text_end, is.has_tree, is.len), (said.text_end, said.has_tree, said.len));
        prop_assert_eq!((&is.blocks, &is.index), (&said.blocks, &said.index));

        let space = &new[is.text_end as usize..is.head().end as usize];
        if case.edit().text.is_some() {
            prop_assert!(space.iter().all(|&byte| Some(byte) == padding));
        } else {
            prop_assert!(space.is_empty() || space == &case.before.padding[..]);
        }

        prop_assert_eq!(is.blocks.len(), case.after.blocks.len());
        for (n, want) in case.after.blocks.iter().enumerate() {
            let at = is.blocks[n].data_offset() as usize;
            let extra = &new[is.blocks[n].offset as usize + 54..at];
            prop_assert!(extra.iter().all(|&byte| byte == 0xaa));
            prop_assert_eq!(&new[at..at + is.stored_len(n) as usize], &want.stored[..]);
            let header = &is.blocks[n];
            let fields = (header.header_size, header.streamed(), header.compression, header.checksum);
            prop_assert_eq!(fields, (want.header_size, want.streamed, want.code, want.checksum));
            if !want.streamed {
                prop_assert_eq!(header.data_size, want.data_size);
            }
            if case.before.blocks.get(n) == Some(want) {
                let whole = before.blocks[n].data_offset() as usize..before.block_end(n).unwrap() as usize;
                prop_assert_eq!(&new[at..at + whole.len()], &old[whole]);
            }
        }
        let open = case.after.blocks.last().is_none_or(|last| last.streamed);
        prop_assert_eq!(matches!(is.index, BlockIndex::Valid(_)), !open);
        if let Some(written) = written(&old, &plan) {
            prop_assert_eq!(written, new);
        }
    }

    #[test]
    fn what_fits_moves_nothing_and_what_moves_moves_by_the_grain(case in case()) {
        let before = layout(&case.before.bytes());
        let plan = Plan::new(&before, &case.edit(), Some(0), Some(512)).unwrap();
        let text_fits = case.after.text.len() < before.head().end as usize
            || (case.after.text.len() == before.head().end as usize && case.after.text.ends_with(b"\n"));
        let fits = case.after.blocks.iter().zip(&case.before.blocks).all(|(after, before)| {
            after.streamed || before.streamed || after.stored.len() <= before.stored.len() + before.slack.len()
        });
        let shrink = case.changes.iter().any(|change| matches!(change, Change::Replace(_, _, true)));
        if (text_fits || before.blocks.is_empty()) && fits && !shrink {
            prop_assert!(plan.in_place().is_some());
        }
        let kept = before.blocks.len().min(plan.layout().blocks.len());
        let removed = case.changes.iter().any(|change| matches!(change, Change::RemoveLast));
        let count = if removed { 0 } else { kept };
        for (old, new) in before.blocks.iter().zip(plan.layout().blocks.iter()).take(count) {
            prop_assert_eq!(new.offset.abs_diff(old.offset) % 512, 0);
        }
    }
}

#[test]
fn a_save_in_a_huge_file_writes_the_head_and_no_more() {
    let mut before = layout(
        &Sample::new()
            .text(b"#ASDF 1.0.0\n---\n...\n")
            .padding(&[0; 3000])
            .block(b"abc")
            .bytes(),
    );
    before.blocks.get_mut(0).unwrap().allocated = 100 << 30;
    before.len = before.blocks[0].end().unwrap();
    before.index = BlockIndex::Absent;
    let text = Sample::TREE.to_vec();
    let plan = Plan::new(&before, &Edit::text(Arc::new(text)), Some(0), None).unwrap();
    let written: u64 = plan
        .in_place()
        .unwrap()
        .iter()
        .map(|(_, segment)| segment.len())
        .sum();
    assert!(written <= before.head().len() + 100, "{written}");
}

#[test]
fn a_text_that_outgrows_its_space_gets_room_for_the_next_edits() {
    let old = Sample::new().block(b"abc").bytes();
    let text = format!("#ASDF 1.0.0\n---\na: {}\n...\n", "x".repeat(100_000));
    let edit = Edit::text(Arc::new(text.clone().into_bytes()));
    let first = |grain| {
        Plan::new(&layout(&old), &edit, Some(0), grain)
            .unwrap()
            .layout()
            .blocks[0]
            .offset
    };
    assert_eq!(first(None) % 4096, 0);
    for grain in [None, Some(4096), Some(65536)] {
        let room = first(grain) - text.len() as u64;
        assert!(room >= text.len() as u64, "{room}");
    }
}

/// A tree that grew in a full file of 1 GiB had 4 KiB for its next growths, and each copied the file.
#[test]
fn the_room_for_the_next_edits_grows_with_text_and_file() {
    let (kib, mib, gib) = (1 << 10, 1 << 20, 1 << 30);
    for (text, file, room) in [
        (100, 200, 4 * kib),
        (5 * kib, 6 * kib, 5 * kib),
        (3 * mib, 4 * mib, mib),
        (100, 64 * mib, 64 * kib),
        (100, gib, mib),
        (100, 5 * gib, mib),
    ] {
        assert_eq!(new_padding(text, file), room);
    }
}

#[test]
fn edits_that_name_nothing_are_refused() {
    let layout = layout(&Sample::new().block(b"abc").bytes());
    let old = |start, end| StoredBlock {
        pieces: vec![Piece::Old(Extent { start, end })],
        ..StoredBlock::raw(source(b""))
    };
    let edits = [
        BlockEdit::Replace {
            n: 1,
            stored: StoredBlock::raw(source(b"x")),
        },
        BlockEdit::Replace {
            n: 0,
            stored: old(0, 4),
        },
        BlockEdit::Append(old(0, 1)),
        BlockEdit::Checksum { n: 7, md5: [5; 16] },
    ];
    for edit in edits {
        assert!(Plan::new(&layout, &Edit::block(edit), Some(0), None).is_err());
    }
}

#[test]
fn a_text_that_begins_a_block_is_refused_before_anything_is_written() {
    for text in [
        &b"#ASDF 1.0.0\n--- \xd3BLK\n...\n"[..],
        b"#ASDF 1.0.0\n\xd3BLK",
    ] {
        for sample in [Sample::new().block(b"abc"), Sample::new()] {
            let old = sample.bytes();
            let edit = Edit::text(Arc::new(text.to_vec()));
            let plan = Plan::new(&layout(&old), &edit, Some(0), None).unwrap();
            let next = scan(&plan.next(source(&old)), false);
            assert!(next.and_then(|next| plan.check(&next.layout)).is_err());
            let disk = Arc::new(Sim::new("f.asdf".as_ref(), &old));
            let opened =
                Writer::open_in(Arc::clone(&disk), "f.asdf".as_ref(), SaveOptions::default());
            assert!(opened.is_ok_and(|mut opened| opened.writer.save(&edit).is_err()));
            assert!(disk.content("f.asdf".as_ref()).unwrap() == old);
        }
    }
}

#[test]
fn a_block_cut_short_gets_nothing_behind_it() {
    let mut old = Sample::new()
        .block(b"abc")
        .block(b"defgh")
        .index(false)
        .bytes();
    old.truncate(old.len() - 2);
    let before = layout(&old);
    let plan = Plan::new(
        &before,
        &Edit::text(Arc::new(Sample::TREE.to_vec())),
        Some(0),
        None,
    )
    .unwrap();
    assert_eq!(
        (plan.layout().len, &plan.layout().index),
        (before.len, &BlockIndex::Absent)
    );
    let mend = BlockEdit::Replace {
        n: 1,
        stored: StoredBlock::raw(source(b"whole")),
    };
    let plan = Plan::new(&before, &Edit::block(mend), Some(0), None).unwrap();
    assert!(matches!(plan.layout().index, BlockIndex::Valid(_)));
    assert!(
        !plan
            .segments()
            .placed()
            .iter()
            .any(|(_, part)| matches!(part, Segment::Fill(..)))
    );
}
