//! From the bytes of a file to its [`Layout`], reading headers only.
//!
//! ASDF Standard, "Low-level file layout". A scan reads the text, and one small piece for each block. It never looks at block data,
//! so that a block may contain a block magic or `#ASDF BLOCK INDEX`. It finds blocks by skipping along from header to header
//! (`walk`), and checks the block index against them (`chain_end`). Where skipping along leads nowhere or past blocks, the index is
//! a hint (`by_index`): if it is sure to be right, a damaged header costs only its own block, and headers that older versions left
//! behind are no blocks. Without an index that helps, block numbers are in doubt behind a place where a header may be lost
//! (`suspect`). Files that other readers (asdf-python, libasdf) accept are accepted, with a finding.

mod by_index;
mod chain_end;
mod foresight;
mod index_hint;
mod suspect;
mod tree_hint;
mod walk;

use std::sync::Arc;

use super::dialect::{FIRST_LINE_LIMIT, FirstLine};
use super::layout::{Finding, Layout, Severity};
use super::text::read_text;
use super::text_frame::newer_standard;
use crate::error::{Error, Place, Result};
use crate::source::{Source, read_up_to};
use walk::BlockWalk;

/// The longest padding in front of the first block that is searched for it, in bytes.
pub const PADDING_LIMIT: u64 = 256 << 20;
/// The longest gap behind a block that is searched for another one, in bytes.
pub const GAP_LIMIT: u64 = 16 << 20;
/// The most blocks that a file may have.
pub const BLOCK_LIMIT: usize = 1 << 20;
/// The longest block index that is read, in bytes: 20 digits and two blanks for each of the most blocks.
pub const INDEX_LIMIT: u64 = 32 << 20;

/// The result of a scan: the layout, and the text that it had to read.
#[derive(Debug)]
pub struct Scan {
    /// Where everything lies.
    pub layout: Layout,
    /// The bytes `0..layout.text_end`.
    pub text: Arc<Vec<u8>>,
}

/// Finds text, blocks and index of the file `source`.
///
/// `force` reads files of a newer major version.
///
/// # Errors
/// [`Error::Corrupt`] if this is no ASDF file, [`Error::Unsupported`] for a newer major version, [`Error::Io`]. Damage
/// behind the first line is no error but a finding of the layout.
pub fn scan(source: &dyn Source, force: bool) -> Result<Scan> {
    let len = source.len();
    let mut scan = scan_text(source, force)?;
    let Scan { layout, text } = &mut scan;
    let from = layout.text_end;
    BlockWalk::new(source, layout, text).run(from)?;
    // the walk has searched no further: a hostile file may go on for terabytes without a block
    if layout.blocks.is_empty() && len.saturating_sub(from) > PADDING_LIMIT {
        let why = format!(
            "no block in the first {PADDING_LIMIT} bytes after the tree; what follows is not looked at"
        );
        layout.note(Severity::Damaged, Error::corrupt(Place::Byte(from), why));
    }
    Ok(scan)
}

/// As [`scan`], for the text alone. Nothing behind it is read.
///
/// # Errors
/// As [`scan`].
pub fn scan_text(source: &dyn Source, force: bool) -> Result<Scan> {
    let start = read_up_to(source, 0, FIRST_LINE_LIMIT)?;
    let first = FirstLine::parse(&start, force)?;
    let mut scan = read_text(source, &first)?;
    if first.newer_minor() {
        let why = format!(
            "file format {} is newer than 1.0; read as 1.0",
            first.version
        );
        scan.layout.note(
            Severity::Odd,
            Error::unsupported(Place::Line { line: 1, column: 7 }, why),
        );
    }
    if let Some(newer) = newer_standard(&scan.text) {
        scan.layout.note(Severity::Odd, newer);
    }
    Ok(scan)
}

impl Layout {
    fn note(&mut self, severity: Severity, error: Error) {
        self.findings.push(Finding { severity, error });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::header::BlockHeader;
    use crate::asdf::layout::{BlockIndex, Region};
    use crate::asdf::sample::{Sample, block};
    use crate::source::Memory;
    use proptest::prelude::*;

    fn scanned(bytes: &[u8]) -> Scan {
        scan(&Memory::new(bytes.to_vec()), false).unwrap()
    }

    fn sizes(scan: &Scan) -> Vec<u64> {
        scan.layout.blocks.iter().map(|block| block.used).collect()
    }

    #[test]
    fn a_plain_file_is_text_blocks_and_index() {
        let bytes = Sample::new().block(b"abc").block(b"").bytes();
        let Scan { layout, text } = scanned(&bytes);
        assert_eq!(**text, *Sample::TREE);
        assert!(layout.has_tree && layout.findings.is_empty());
        assert!(matches!(layout.index, BlockIndex::Valid(_)));
        let regions: Vec<_> = layout.regions().iter().map(|part| part.0).collect();
        assert_eq!(
            regions,
            [
                Region::Text,
                Region::Block(0),
                Region::Block(1),
                Region::Index
            ]
        );
    }

    #[test]
    fn a_missing_end_marker_ends_the_text_at_the_first_block() {
        let mut bytes = b"#ASDF 1.0.0\n---\na: 1\n...".to_vec();
        let len = bytes.len();
        bytes.extend(block(b"data"));
        let found = scanned(&bytes);
        assert_eq!((found.text.len(), sizes(&found)), (len, vec![4]));
        assert_eq!(found.layout.worst().unwrap().severity, Severity::Odd);
    }

    #[test]
    fn data_that_look_like_blocks_or_an_index_are_data() {
        let mut fake = block(b"fake");
        fake.extend(crate::asdf::layout::index_text(&[1, 2, 3]));
        for with_index in [true, false] {
            let bytes = Sample::new()
                .block(&fake)
                .block(b"x")
                .index(with_index)
                .bytes();
            let found = scanned(&bytes);
            assert_eq!(sizes(&found), [fake.len() as u64, 1]);
            assert!(found.layout.findings.is_empty());
        }
    }

    #[test]
    fn a_wrong_index_costs_no_block() {
        let blocks = Sample::new()
            .block(b"abc")
            .block(b"de")
            .index(false)
            .bytes();
        let texts: [&[u8]; 4] = [
            b"#ASDF BLOCK INDEX\n---\n- 7\n- 8\n...\n",
            b"#ASDF BLOCK INDEX\n---\n- 7\n",
            b"#ASDF BLOCK INDEX\nnonsense",
            b"garbage",
        ];
        for text in texts {
            let found = scanned(&[&blocks[..], text].concat());
            assert_eq!(sizes(&found), [3, 2]);
            assert_eq!(found.layout.worst().unwrap().severity, Severity::Odd);
        }
    }

    #[test]
    fn blocks_behind_a_gap_are_found() {
        let first = Sample::new().block(b"abc").index(false).bytes();
        let offsets = [Sample::TREE.len() as u64, first.len() as u64 + 9];
        let gap = [&first[..], b"gap \xd3BLK ", &block(b"de")].concat();
        assert_eq!(sizes(&scanned(&gap)), [3, 2]);
        let index = crate::asdf::layout::index_text(&offsets);
        assert_eq!(sizes(&scanned(&[gap, index].concat())), [3, 2]);
    }

    #[test]
    fn a_block_cut_short_is_listed_and_noted() {
        let mut bytes = Sample::new()
            .block(b"abc")
            .block(b"defgh")
            .index(false)
            .bytes();
        bytes.truncate(bytes.len() - 2);
        let found = scanned(&bytes);
        assert_eq!(sizes(&found), [3, 5]);
        assert_eq!(found.layout.stored_len(1), 3);
        assert_eq!(found.layout.worst().unwrap().severity, Severity::Partial);
    }

    #[test]
    fn a_header_cut_short_is_damage() {
        let mut bytes = Sample::new().block(b"abc").block(b"").index(false).bytes();
        bytes.truncate(bytes.len() - 2);
        let found = scanned(&bytes);
        assert_eq!(sizes(&found), [3]);
        assert_eq!(found.layout.worst().unwrap().severity, Severity::Damaged);
    }

    #[test]
    fn a_draft_file_uses_one_of_its_two_magics() {
        let block = |magic: &[u8], data: &[u8]| {
            let len = (data.len() as u64).to_be_bytes();
            [magic, &[0, 40], &len, &len, &[0; 24], data].concat()
        };
        for (own, other) in [(b"\x89BLK", b"\xd3BLK"), (b"\xd3BLK", b"\x89BLK")] {
            let bytes = [
                &b"%FINF 0.1.0\n---\n...\n"[..],
                other,
                &[0; 60],
                &block(own, b"abc"),
                &block(own, other),
            ]
            .concat();
            let found = scanned(&bytes);
            assert_eq!(sizes(&found), [3, 4]);
            assert!(found.layout.findings.is_empty());
        }
    }

    #[test]
    fn a_streamed_block_reaches_to_the_end() {
        let bytes = Sample::new().block(b"abc").streamed(b"0123456789").bytes();
        let layout = scanned(&bytes).layout;
        assert!(layout.streamed());
        assert_eq!(layout.stored_len(1), 10);
        assert_eq!(layout.block_end(1), Some(bytes.len() as u64));
    }

    #[test]
    fn opening_a_sparse_tebibyte_reads_headers_only() {
        let file = tempfile::tempfile().unwrap();
        let head = Sample::new().index(false).bytes();
        let header = BlockHeader {
            allocated: 1 << 40,
            used: 1 << 40,
            data_size: 1 << 40,
            ..BlockHeader::new(head.len() as u64)
        };
        std::os::unix::fs::FileExt::write_all_at(&file, &[head, header.to_bytes()].concat(), 0)
            .unwrap();
        file.set_len(header.end().unwrap()).unwrap();
        let source = crate::source::FileSource::open(Arc::new(file)).unwrap();
        assert_eq!(sizes(&scan(&source, false).unwrap()), [1 << 40]);
    }

    proptest! {
        #[test]
        fn the_regions_tile_whatever_the_bytes_are(
            blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut sample = Sample::new();
            for data in &blocks {
                sample = sample.block(data);
            }
            let mut bytes = sample.bytes();
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            if flips.len() > 3 {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(found) = scan(&Memory::new(bytes.clone()), false) {
                let mut at = 0;
                for (_, extent) in found.layout.regions() {
                    prop_assert_eq!(extent.start, at);
                    prop_assert!(extent.end > at);
                    at = extent.end;
                }
                prop_assert_eq!(at, bytes.len() as u64);
                if flips.is_empty() {
                    let want: Vec<_> = blocks.iter().map(|data| data.len() as u64).collect();
                    prop_assert_eq!(sizes(&found), want);
                }
            }
        }
    }
}
