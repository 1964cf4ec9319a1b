//! A file that does not exist yet, as a rope: runs of the old file and new bytes in their order.
//!
//! The rope is what a plan consists of, what R writes out, and what a read-only mount shows while a journal is pending. As a
//! [`Source`] it can be scanned like any file before a byte of it is on disk.

use std::sync::Arc;

use crate::asdf::layout::Extent;
use crate::error::{Error, Result};
use crate::source::{Borrower, Loan, Memory, Source, at_most, checked_end, len_u64};

/// One run of bytes of the next file.
#[derive(Clone)]
pub enum Segment {
    /// Bytes that the old file has, by their place there.
    Keep(Extent),
    /// Bytes in memory.
    Write(Arc<Vec<u8>>),
    /// Bytes that are read from somewhere when they are needed.
    Stream(Arc<dyn Source>),
    /// One byte value, so many times.
    Fill(u8, u64),
}

impl Segment {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Keep(extent) => extent.len(),
            Self::Write(bytes) => len_u64(bytes.len()),
            Self::Stream(source) => source.len(),
            Self::Fill(_, len) => *len,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes at `offset` of the segment; `old` is the file that kept bytes are in.
    ///
    /// # Errors
    /// What reading the old file or the stream gives; [`Error::Corrupt`] beyond the end.
    pub fn read(&self, old: &dyn Source, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len())?;
        match self {
            Self::Keep(extent) => old.read_exact_at(buf, sum(extent.start, offset)?),
            Self::Stream(source) => source.read_exact_at(buf, offset),
            Self::Write(bytes) => Memory::shared(Arc::clone(bytes)).read_exact_at(buf, offset),
            Self::Fill(byte, _) => {
                buf.fill(*byte);
                Ok(())
            }
        }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Keep(extent) => write!(f, "Keep({}..{})", extent.start, extent.end),
            Self::Write(bytes) => write!(f, "Write({} bytes)", bytes.len()),
            Self::Stream(source) => write!(f, "Stream({} bytes)", source.len()),
            Self::Fill(byte, len) => write!(f, "Fill({byte:#x}, {len} bytes)"),
        }
    }
}

/// Segments in their order, each with its offset in the next file.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    placed: Vec<(u64, Segment)>,
    len: u64,
}

impl Segments {
    /// Length of all segments together, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments with their offsets.
    #[must_use]
    pub fn placed(&self) -> &[(u64, Segment)] {
        &self.placed
    }

    /// Adds a segment at the end. Runs that follow each other in the old file become one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the file would be longer than 2^64 bytes.
    pub fn push(&mut self, segment: Segment) -> Result<()> {
        if segment.is_empty() {
            return Ok(());
        }
        let end = sum(self.len, segment.len())?;
        match (self.placed.last_mut(), &segment) {
            // so a plan of 100,000 blocks that stay is one run, and is copied or shared by one call
            (Some((_, Segment::Keep(last))), Segment::Keep(more)) if last.end == more.start => {
                last.end = more.end;
            }
            _ => self.placed.push((self.len, segment)),
        }
        self.len = end;
        Ok(())
    }

    /// How many bytes of them have to be written into a new file: those that no other file has, but for zeros.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        let is_new = |segment: &Segment| !matches!(segment, Segment::Keep(_) | Segment::Fill(0, _));
        let new = self.placed.iter().filter(|(_, segment)| is_new(segment));
        new.fold(0, |sum, (_, segment)| sum.saturating_add(segment.len()))
    }

    /// Everything but the runs that stay at their place.
    pub fn changes(&self) -> impl Iterator<Item = &(u64, Segment)> {
        self.placed.iter().filter(
            |(offset, segment)| !matches!(segment, Segment::Keep(old) if old.start == *offset),
        )
    }
}

/// Segments together with the old file: the next file as a source.
pub struct Rope {
    old: Arc<dyn Source>,
    segments: Segments,
}

impl Rope {
    /// The file that `segments` of `old` make.
    #[must_use]
    pub fn new(old: Arc<dyn Source>, segments: Segments) -> Self {
        Self { old, segments }
    }

    /// Index of the segment that the byte at `offset` is in.
    fn find(&self, offset: u64) -> usize {
        self.segments
            .placed
            // the segment before the first one that begins behind the byte
            .partition_point(|(start, _)| *start <= offset)
            .saturating_sub(1)
    }
}

impl Source for Rope {
    fn len(&self) -> u64 {
        self.segments.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.segments.len)?;
        let mut at = offset;
        let mut rest = buf;
        for (start, segment) in self.segments.placed.iter().skip(self.find(offset)) {
            if rest.is_empty() {
                break;
            }
            let inside = at.saturating_sub(*start);
            let here = segment.len().saturating_sub(inside);
            let take = at_most(here, rest.len());
            let (now, later) = rest.split_at_mut(take);
            segment.read(&*self.old, now, inside)?;
            at = sum(at, len_u64(take))?;
            rest = later;
        }
        // a stream that has become shorter leaves bytes over
        checked_end(at, rest.len(), at).map(drop)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        let Some((start, segment)) = self.segments.placed.get(self.find(offset)) else {
            return Ok(None);
        };
        let inside = offset.saturating_sub(*start);
        // bytes of two segments do not lie in one piece anywhere
        if checked_end(inside, len, segment.len()).is_err() {
            return Ok(None);
        }
        match segment {
            Segment::Keep(extent) => self.old.lend(sum(extent.start, inside)?, len, to),
            Segment::Stream(source) => source.lend(inside, len, to),
            Segment::Write(bytes) => Memory::shared(Arc::clone(bytes)).lend(inside, len, to),
            Segment::Fill(..) => Ok(None),
        }
    }
}

/// `a + b`, or the error that the file would be too long.
pub(super) fn sum(a: u64, b: u64) -> Result<u64> {
    a.checked_add(b)
        // offsets of files are signed in the kernel's calls
        .filter(|&sum| i64::try_from(sum).is_ok())
        .ok_or_else(too_long)
}

/// The error for a file that would be longer than any file can be.
pub(super) fn too_long() -> Error {
    Error::NoRoom {
        why: "a file of more than 2^63 bytes".to_owned(),
        limit: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, read_all};
    use proptest::prelude::*;

    fn segment() -> impl Strategy<Value = (Segment, Vec<u8>)> {
        let old: Vec<u8> = (0..100).collect();
        prop_oneof![
            (0u64..100, 0u64..100).prop_map(move |(a, b)| {
                let extent = Extent {
                    start: a.min(b),
                    end: a.max(b),
                };
                (
                    Segment::Keep(extent),
                    old[extent.start as usize..extent.end as usize].to_vec(),
                )
            }),
            prop::collection::vec(any::<u8>(), 0..20)
                .prop_map(|bytes| (Segment::Write(Arc::new(bytes.clone())), bytes)),
            prop::collection::vec(any::<u8>(), 0..20)
                .prop_map(|bytes| (Segment::Stream(Arc::new(Memory::new(bytes.clone()))), bytes)),
            (any::<u8>(), 0usize..20)
                .prop_map(|(byte, len)| (Segment::Fill(byte, len as u64), vec![byte; len])),
        ]
    }

    proptest! {
        #[test]
        fn a_rope_reads_like_its_bytes_in_a_row(
            parts in prop::collection::vec(segment(), 0..8), start in 0usize..120, len in 0usize..120,
        ) {
            let mut segments = Segments::default();
            let mut model = Vec::new();
            for (segment, bytes) in parts {
                segments.push(segment).unwrap();
                model.extend(bytes);
            }
            let rope = Rope::new(Arc::new(Memory::new((0..100).collect())), segments);
            prop_assert_eq!(&read_all(&rope, 1 << 20).unwrap(), &model);
            let mut buf = vec![0; len];
            let got = rope.read_exact_at(&mut buf, start as u64);
            match model.get(start..start + len) {
                Some(want) => prop_assert_eq!(&buf[..], want),
                None => prop_assert!(got.is_err()),
            }
            if let (Some(Loan::Shared(bytes, range)), true) = (rope.lend(start as u64, len, Borrower::Kernel).unwrap(), len > 0) {
                prop_assert_eq!(&(*bytes).as_ref()[range], &model[start..start + len]);
            }
        }
    }

    #[test]
    fn runs_that_follow_each_other_become_one_and_unmoved_ones_are_no_change() {
        let mut segments = Segments::default();
        for (start, end) in [(0, 4), (4, 9), (12, 20)] {
            segments.push(Segment::Keep(Extent { start, end })).unwrap();
        }
        assert_eq!(segments.placed().len(), 2);
        assert_eq!(segments.changes().count(), 1);
    }

    #[test]
    fn a_file_beyond_two_to_the_63_is_an_error() {
        let mut segments = Segments::default();
        segments.push(Segment::Fill(0, 1 << 62)).unwrap();
        assert!(segments.push(Segment::Fill(0, 1 << 62)).is_err());
    }
}
