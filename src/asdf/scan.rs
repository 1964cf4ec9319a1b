//! From the bytes of a file to its [`Layout`], reading headers only.
//!
//! ASDF Standard, "Low-level file layout". The cost is the text and one small read a block; block data are never looked at, so
//! that a block may contain a block magic or `#ASDF BLOCK INDEX`. Blocks are found by skipping along from header to header;
//! the block index is checked against that and never trusted, except for a hint where skipping along leads nowhere. What
//! other readers (asdf of Python, libasdf) accept is accepted, with a finding.

use super::dialect::{Dialect, FIRST_LINE_LIMIT, FirstLine};
use super::header::BlockHeader;
use super::layout::{Extent, Finding, INDEX_HEADER, Index, Layout, Severity, parse_index};
use super::text::{CHUNK, position_of_magic, read_text, read_up_to};
use crate::error::{Error, Place, Result};
use crate::source::{Peek, Source, len_u64};

/// The longest padding in front of the first block that is searched for it, in bytes.
pub const PADDING_LIMIT: u64 = 256 << 20;
/// The longest gap behind a block that is searched for another one, in bytes.
pub const GAP_LIMIT: u64 = 16 << 20;
/// The most blocks that a file may have.
pub const BLOCK_LIMIT: usize = 1 << 20;
/// The longest block index that is read, in bytes: 20 digits and two blanks for each of the most blocks.
pub const INDEX_LIMIT: u64 = 32 << 20;
/// The most places that are tried for the first block of a draft with two magics.
const CANDIDATE_LIMIT: usize = 1000;
/// Bytes of the longest block header whose fields are known, magic included.
const LONGEST_HEADER: usize = 54;
/// What a scan gives: the layout, and the text it had to read.
#[derive(Debug)]
pub struct Scan {
    /// Where everything lies.
    pub layout: Layout,
    /// The bytes `0..layout.text_end`.
    pub text: Vec<u8>,
}

/// Finds text, blocks and index of the file that `source` is.
///
/// `force` reads files of a newer major version.
///
/// # Errors
/// [`Error::Corrupt`] if this is no ASDF file, [`Error::Unsupported`] for a newer major version, [`Error::Io`]. Damage
/// behind the first line is no error but a finding of the layout.
pub fn scan(source: &dyn Source, force: bool) -> Result<Scan> {
    let len = source.len();
    let start = read_up_to(source, 0, FIRST_LINE_LIMIT)?;
    let first = FirstLine::parse(&start, force)?;
    let text = read_text(source, &first)?;
    let mut layout = Layout {
        dialect: first.dialect,
        version: first.version,
        text_end: len_u64(text.bytes.len()),
        has_tree: text.has_tree,
        blocks: Vec::new(),
        index: Index::Absent,
        len,
        findings: text.findings,
    };
    if first.newer_minor() {
        let why = format!(
            "file format {} is newer than 1.0; read as 1.0",
            first.version
        );
        layout.note(
            Severity::Odd,
            Error::unsupported(Place::Line { line: 1, column: 7 }, why),
        );
    }
    let from = layout.text_end;
    let mut walk = Walk {
        source,
        layout: &mut layout,
        peek: Peek::default(),
    };
    if let Some(first_block) = walk.first_block(from)? {
        walk.run(first_block)?;
    } else if len.saturating_sub(from) > PADDING_LIMIT {
        let why = format!(
            "no block in the first {PADDING_LIMIT} bytes after the tree; what follows is not looked at"
        );
        layout.note(Severity::Damaged, Error::corrupt(Place::Byte(from), why));
    }
    Ok(Scan {
        layout,
        text: text.bytes,
    })
}

impl Layout {
    fn note(&mut self, severity: Severity, error: Error) {
        self.findings.push(Finding { severity, error });
    }
}

/// The first block magic at or after `from`, at most `limit` bytes away.
fn find_magic(
    source: &dyn Source,
    dialect: &Dialect,
    from: u64,
    limit: u64,
) -> Result<Option<u64>> {
    const OVERLAP: u64 = 3;
    let end = source.len().min(from.saturating_add(limit));
    let mut at = from;
    while at < end {
        let chunk = read_up_to(source, at, usize::try_from(CHUNK).unwrap_or(usize::MAX))?;
        if let Some(found) = position_of_magic(&chunk, dialect) {
            return Ok(Some(at.saturating_add(len_u64(found))));
        }
        if len_u64(chunk.len()) < CHUNK {
            break;
        }
        at = at.saturating_add(CHUNK.saturating_sub(OVERLAP));
    }
    Ok(None)
}

/// Skipping along the blocks.
struct Walk<'a> {
    source: &'a dyn Source,
    layout: &'a mut Layout,
    peek: Peek,
}

impl Walk<'_> {
    /// The offset of the first block, at or after `from`.
    ///
    /// In drafts with two magics a file uses one of them: that of the first header that can be one.
    fn first_block(&mut self, from: u64) -> Result<Option<u64>> {
        let limit = from.saturating_add(PADDING_LIMIT);
        let dialect = self.layout.dialect;
        let first = find_magic(self.source, dialect, from, PADDING_LIMIT)?;
        if dialect.magics.len() < 2 {
            return Ok(first);
        }
        let mut found = first;
        for _ in 0..CANDIDATE_LIMIT {
            let Some(at) = found.filter(|&at| !self.plausible(at)) else {
                break;
            };
            let behind = at.saturating_add(1);
            found = find_magic(self.source, dialect, behind, limit.saturating_sub(behind))?;
        }
        let Some(at) = found.or(first) else {
            return Ok(None);
        };
        let magic = read_up_to(self.source, at, 4)?;
        if let Some(magic) = magic.first_chunk() {
            self.layout.dialect = dialect.of_magic(*magic);
        }
        Ok(Some(at))
    }

    fn run(&mut self, first: u64) -> Result<()> {
        let mut next = Some(first);
        while let Some(at) = next {
            next = match self.block(at)? {
                Some(end) => self.after_block(end)?,
                None => None,
            };
        }
        self.find_index()
    }

    /// Takes in the block whose magic is at `at`. The offset behind it, or `None` if nothing can follow.
    fn block(&mut self, at: u64) -> Result<Option<u64>> {
        let bytes = self.peek.read(self.source, at, LONGEST_HEADER)?;
        let header = BlockHeader::parse(bytes, at, self.layout.dialect).and_then(|header| {
            if header.data_offset() > self.layout.len {
                return Err(Error::corrupt(
                    Place::Byte(at),
                    "block header cut short by the end of the file",
                ));
            }
            Ok(header)
        });
        let header = match header {
            Ok(header) if self.layout.blocks.len() < BLOCK_LIMIT => header,
            Ok(_) => {
                let why = format!("more than {BLOCK_LIMIT} blocks; the rest is not shown");
                self.layout
                    .note(Severity::Damaged, Error::unsupported(Place::Byte(at), why));
                return Ok(None);
            }
            Err(error) => {
                self.layout.note(Severity::Damaged, error);
                return Ok(None);
            }
        };
        let n = self.layout.blocks.len();
        self.check_sizes(n, &header);
        let end = header.end().filter(|&end| end <= self.layout.len);
        let end = if header.streamed() { None } else { end };
        self.layout.blocks.push(header);
        Ok(end)
    }

    fn check_sizes(&mut self, n: usize, header: &BlockHeader) {
        if header.streamed() {
            return;
        }
        if header.end().is_none_or(|end| end > self.layout.len) {
            let there = self.layout.len.saturating_sub(header.data_offset());
            let why = format!(
                "{} bytes allocated, but the file ends after {there}",
                header.allocated
            );
            self.layout
                .note(Severity::Partial, Error::corrupt(Place::Block(n), why));
        }
        if header.used > header.allocated {
            let why = format!(
                "used {} bytes of {} allocated",
                header.used, header.allocated
            );
            self.layout
                .note(Severity::Partial, Error::corrupt(Place::Block(n), why));
        } else if header.compression == [0; 4]
            && !header.encoded()
            && header.data_size != header.used
        {
            let why = format!(
                "not compressed, but data size {} and used size {}",
                header.data_size, header.used
            );
            self.layout
                .note(Severity::Partial, Error::corrupt(Place::Block(n), why));
        }
    }

    /// What lies behind a block: the offset of the next one, if there is one.
    fn after_block(&mut self, end: u64) -> Result<Option<u64>> {
        let here = self.peek.read(self.source, end, INDEX_HEADER.len())?;
        if self
            .layout
            .dialect
            .magics
            .iter()
            .any(|magic| here.starts_with(magic))
        {
            return Ok(Some(end));
        }
        if here.is_empty() || here.starts_with(INDEX_HEADER) {
            return Ok(None);
        }
        let next = match self.hinted(end)? {
            Some(hinted) => Some(hinted),
            None => self.searched(end)?,
        };
        let Some(next) = next else { return Ok(None) };
        let why = format!("{} bytes that belong to no block", next.saturating_sub(end));
        self.layout
            .note(Severity::Odd, Error::corrupt(Place::Byte(end), why));
        Ok(Some(next))
    }

    /// The first offset behind `end` that the block index names, if the index at the end of the file is in order.
    fn hinted(&self, end: u64) -> Result<Option<u64>> {
        let Some((at, _)) = self.last_index(end)? else {
            return Ok(None);
        };
        let text = read_up_to(
            self.source,
            at,
            usize::try_from(INDEX_LIMIT).unwrap_or(usize::MAX),
        )?;
        let Some((offsets, _)) = parse_index(&text) else {
            return Ok(None);
        };
        let first = self.layout.blocks.first().map(|block| block.offset);
        if offsets.first().copied() != first || !offsets.is_sorted() {
            return Ok(None);
        }
        let hint = offsets
            .into_iter()
            .find(|&offset| offset >= end && offset < at);
        Ok(hint.filter(|&offset| self.plausible(offset)))
    }

    /// The offset of the first block header in the gap from `end` on that fits into the file.
    fn searched(&self, end: u64) -> Result<Option<u64>> {
        let limit = end.saturating_add(GAP_LIMIT);
        let mut at = end;
        while let Some(found) = find_magic(
            self.source,
            self.layout.dialect,
            at,
            limit.saturating_sub(at),
        )? {
            if self.plausible(found) {
                return Ok(Some(found));
            }
            at = found.saturating_add(1);
        }
        Ok(None)
    }

    /// Whether a block header that fits into the file is at `at`: a magic alone may be chance.
    fn plausible(&self, at: u64) -> bool {
        let header = read_up_to(self.source, at, LONGEST_HEADER)
            .and_then(|bytes| BlockHeader::parse(&bytes, at, self.layout.dialect));
        header.is_ok_and(|header| {
            header.streamed() || header.end().is_some_and(|end| end <= self.layout.len)
        })
    }

    /// Start of the last block index text behind `from`, and whether nothing but the index can be there.
    fn last_index(&self, from: u64) -> Result<Option<(u64, bool)>> {
        let here = read_up_to(self.source, from, INDEX_HEADER.len())?;
        if here.starts_with(INDEX_HEADER) {
            return Ok(Some((from, true)));
        }
        let start = self.layout.len.saturating_sub(INDEX_LIMIT).max(from);
        let tail = read_up_to(
            self.source,
            start,
            usize::try_from(INDEX_LIMIT).unwrap_or(usize::MAX),
        )?;
        let found = tail
            .windows(INDEX_HEADER.len())
            .rposition(|window| window == INDEX_HEADER);
        Ok(found.map(|at| (start.saturating_add(len_u64(at)), false)))
    }

    /// Finds the block index behind the last block and checks it against the blocks.
    fn find_index(&mut self) -> Result<()> {
        let end = self.layout.blocks_end();
        if self.layout.streamed() || end >= self.layout.len {
            return Ok(());
        }
        let Some((at, adjacent)) = self.last_index(end)? else {
            return self.check_trailer(end);
        };
        let text = read_up_to(
            self.source,
            at,
            usize::try_from(INDEX_LIMIT).unwrap_or(usize::MAX),
        )?;
        let offsets: Vec<u64> = self
            .layout
            .blocks
            .iter()
            .map(|block| block.offset)
            .collect();
        let (len, wrong) = match parse_index(&text) {
            None => (text.len(), Some("not a list of offsets".to_owned())),
            Some((_, len)) if !adjacent => (
                len,
                Some(format!("not right behind the last block, at {end}")),
            ),
            Some((found, len)) if found != offsets => (len, Some(difference(&found, &offsets))),
            Some((_, len)) => (len, None),
        };
        let extent = Extent {
            start: at,
            end: at.saturating_add(len_u64(len)),
        };
        self.layout.index = match wrong {
            None => Index::Valid(extent),
            Some(why) => {
                let error =
                    Error::corrupt(Place::Byte(at), format!("block index: {why}; not used"));
                self.layout.note(Severity::Odd, error);
                Index::Wrong(extent, why)
            }
        };
        self.check_trailer(extent.end)
    }

    /// Notes bytes at the end of the file that are neither zero nor anything else that is known.
    fn check_trailer(&mut self, from: u64) -> Result<()> {
        let trailer = read_up_to(
            self.source,
            from,
            usize::try_from(CHUNK).unwrap_or(usize::MAX),
        )?;
        if trailer
            .iter()
            .any(|byte| !byte.is_ascii_whitespace() && *byte != 0)
        {
            let why = format!(
                "{} bytes that are neither block nor index",
                self.layout.len.saturating_sub(from)
            );
            self.layout
                .note(Severity::Odd, Error::corrupt(Place::Byte(from), why));
        }
        Ok(())
    }
}

/// How a block index differs from the blocks that are there.
fn difference(found: &[u64], blocks: &[u64]) -> String {
    let first = found.iter().zip(blocks).position(|(a, b)| a != b);
    match first.and_then(|n| Some((n, found.get(n)?, blocks.get(n)?))) {
        Some((n, said, is)) => format!("it says block {n} is at {said}, but it is at {is}"),
        None => format!(
            "it lists {} blocks, but there are {}",
            found.len(),
            blocks.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::layout::Region;
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
        assert_eq!(text, Sample::TREE);
        assert!(layout.has_tree && layout.findings.is_empty());
        assert!(matches!(layout.index, Index::Valid(_)));
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
            assert_eq!(found.layout.dialect.magics, [*own]);
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
        let source = crate::source::FileSource::open(std::sync::Arc::new(file)).unwrap();
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
