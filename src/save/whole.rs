//! A new file of a text and blocks that lie elsewhere, put together without looking at their data.

use std::sync::Arc;

use super::plan::{FIRST_BLOCK_ALIGNMENT, new_padding};
use super::rope::{Rope, Segment, Segments, sum};
use crate::asdf::header::{BlockHeader, FIELDS_LEN, STREAMED};
use crate::asdf::layout::{Severity, index_text};
use crate::asdf::scan::scan;
use crate::error::{Error, Place, Result};
use crate::source::{Memory, Source, at_most, len_u64};

/// A block as it lies somewhere.
pub struct WholeBlock {
    /// Its header there; place, flags without meaning and allocated space are not taken over.
    pub header: BlockHeader,
    /// Its used bytes, as they are stored.
    pub stored: Arc<dyn Source>,
}

/// What stands between the text of a new file and its first block.
pub enum Room {
    /// Nothing.
    Absent,
    /// As much as for any text that is to grow.
    Usual,
    /// These bytes, but no more than that.
    Kept(Vec<u8>),
}

impl Room {
    /// The most bytes that are ever kept.
    pub const MOST: u64 = 4096 + FIRST_BLOCK_ALIGNMENT;

    /// What stands behind a text of that length, in a file of so many bytes.
    fn behind(self, text: u64, len: u64) -> Result<Segment> {
        let least = sum(text, new_padding(text, len))?;
        let usual = least
            .next_multiple_of(FIRST_BLOCK_ALIGNMENT)
            .saturating_sub(text);
        Ok(match self {
            Self::Absent => Segment::Fill(0, 0),
            Self::Usual => Segment::Fill(0, usual),
            Self::Kept(mut bytes) => {
                bytes.truncate(at_most(usual.min(Self::MOST), usize::MAX));
                Segment::Write(Arc::new(bytes))
            }
        })
    }
}

/// The file of that text and those blocks, with a block index.
///
/// # Errors
/// [`Error::Unsupported`] if a streamed block is not the last one; [`Error::Corrupt`] if what comes out is not a file with
/// these blocks.
pub fn whole(text: Vec<u8>, blocks: &[WholeBlock], room: Room) -> Result<Rope> {
    let mut segments = Segments::default();
    let text_end = len_u64(text.len());
    segments.push(Segment::Write(Arc::new(text)))?;
    if !blocks.is_empty() {
        let mut lens = blocks.iter().map(|block| block.stored.len());
        let len = lens.try_fold(text_end, sum)?;
        segments.push(room.behind(text_end, len)?)?;
    }
    let mut offsets = Vec::with_capacity(blocks.len());
    for (n, block) in blocks.iter().enumerate() {
        if block.header.streamed() && n.saturating_add(1) < blocks.len() {
            let why = "a streamed block in front of another one";
            return Err(Error::unsupported(Place::Block(n), why));
        }
        offsets.push(segments.len());
        let header = moved(block, segments.len());
        segments.push(Segment::Write(Arc::new(header.to_bytes())))?;
        segments.push(Segment::Stream(Arc::clone(&block.stored)))?;
    }
    if blocks.last().is_some_and(|last| !last.header.streamed()) {
        segments.push(Segment::Write(Arc::new(index_text(&offsets))))?;
    }
    let rope = Rope::new(Arc::new(Memory::new(Vec::new())), segments);
    let found = scan(&rope, false)?.layout;
    let at: Vec<u64> = found.blocks.iter().map(|block| block.offset).collect();
    if at != offsets
        || found.text_end != text_end
        || found
            .worst()
            .is_some_and(|worst| worst.severity > Severity::Odd)
    {
        let why = "text and blocks together do not make a file with these blocks";
        return Err(Error::corrupt(Place::File, why));
    }
    Ok(rope)
}

/// The header that a block gets at `offset`.
fn moved(block: &WholeBlock, offset: u64) -> BlockHeader {
    let streamed = block.header.streamed();
    BlockHeader {
        offset,
        header_size: FIELDS_LEN,
        flags: block.header.flags & STREAMED,
        allocated: if streamed { 0 } else { block.stored.len() },
        ..block.header.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::read_all;

    fn block(data: &[u8], flags: u32) -> WholeBlock {
        let len = data.len() as u64;
        WholeBlock {
            header: BlockHeader {
                flags,
                used: len,
                data_size: len,
                ..BlockHeader::new(99)
            },
            stored: Arc::new(Memory::new(data.to_vec())),
        }
    }

    #[test]
    fn text_and_blocks_make_a_file_with_an_index() {
        let mut want = Sample::new();
        let blocks: Vec<_> = [&b"abc"[..], b""]
            .iter()
            .map(|data| block(data, 0))
            .collect();
        for block in &blocks {
            let stored = read_all(&*block.stored, 10).unwrap();
            want = want.stored([moved(block, 0).to_bytes(), stored].concat());
        }
        let rope = whole(Sample::TREE.to_vec(), &blocks, Room::Absent).unwrap();
        assert_eq!(read_all(&rope, 1000).unwrap(), want.bytes());
        let roomy = whole(Sample::TREE.to_vec(), &blocks, Room::Usual).unwrap();
        assert_eq!(scan(&roomy, false).unwrap().layout.blocks[0].offset, 8192);
        for (kept, first) in [(0, Sample::TREE.len() as u64), (9000, 8192)] {
            let kept = whole(
                Sample::TREE.to_vec(),
                &blocks,
                Room::Kept(vec![b'\n'; kept]),
            )
            .unwrap();
            assert_eq!(scan(&kept, false).unwrap().layout.blocks[0].offset, first);
        }
    }

    #[test]
    fn a_streamed_block_can_only_be_the_last() {
        let blocks = [block(b"abc", 0), block(b"rest", STREAMED)];
        let rope = whole(Sample::TREE.to_vec(), &blocks, Room::Absent).unwrap();
        assert!(scan(&rope, false).unwrap().layout.streamed());
        let blocks = [block(b"rest", STREAMED), block(b"abc", 0)];
        assert!(whole(Sample::TREE.to_vec(), &blocks, Room::Absent).is_err());
    }

    #[test]
    fn a_text_that_hides_blocks_is_an_error() {
        let blocks = [block(b"abc", 0)];
        assert!(whole(b"no ASDF".to_vec(), &blocks, Room::Absent).is_err());
        let text = b"#ASDF 1.0.0\n\xd3BLK";
        assert!(whole(text.to_vec(), &blocks, Room::Absent).is_err());
    }
}
