//! Headers that are looked at one after the other.

use super::{Source, at_most};
use crate::error::Result;

/// The piece of a source in which headers were looked at last. Headers that lie close together cost one read.
///
/// Always used with the same source.
#[derive(Default)]
pub struct Peek {
    /// Offset of `bytes`.
    at: u64,
    bytes: Vec<u8>,
}

impl Peek {
    /// Bytes read at once: a page of the file's cache.
    const PIECE: usize = 4096;

    /// Bytes that are read for a header without others near it: a block's header is the longest.
    const LONE: usize = 64;

    /// Headers at this distance or more, in bytes, are lone. A remote source then answers for each of them, which may take longer
    /// than to send the data in between. But nobody may want that data, and to transfer it has a price.
    const FAR: u64 = 512 << 10;

    /// `len` bytes at `offset`; fewer at the end of `source`, none behind it.
    ///
    /// `len` is the length of a header and not a number from a file: it is the memory that is taken.
    ///
    /// # Errors
    /// As of the source.
    pub fn read(&mut self, source: &dyn Source, offset: u64, len: usize) -> Result<&[u8]> {
        let start = if let Some(start) = self.buffered(offset, len) {
            start
        } else {
            self.fill(source, offset, len)?;
            0
        };
        let end = start.saturating_add(len).min(self.bytes.len());
        Ok(self.bytes.get(start..end).unwrap_or_default())
    }

    /// Where in `bytes` these are, if all of them are there.
    fn buffered(&self, offset: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start)
    }

    /// Reads a piece from `offset` on, or probably enough for a lone header; at least `len` bytes, if there are so many. After an
    /// error nothing is buffered.
    fn fill(&mut self, source: &dyn Source, offset: u64, len: usize) -> Result<()> {
        // the first header gets a whole piece, because others may be near it
        let is_lone = !self.bytes.is_empty() && offset.abs_diff(self.at) >= Self::FAR;
        let most = if is_lone { Self::LONE } else { Self::PIECE };
        let there = source.len().saturating_sub(offset);
        let len = at_most(there, len.max(most));
        // a read that fails must not leave bytes that pass for bytes of another place
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(len, 0);
        if len > 0 && is_lone {
            source.read_header_at(&mut bytes, offset)?;
        } else if len > 0 {
            source.read_exact_at(&mut bytes, offset)?;
        }
        self.at = offset;
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Place};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Bytes that tell their offset, which counts the reads and fails beyond `good`.
    struct Counted {
        good: u64,
        reads: AtomicUsize,
    }

    fn counted(good: u64) -> Counted {
        Counted {
            good,
            reads: AtomicUsize::new(0),
        }
    }

    impl Source for Counted {
        fn len(&self) -> u64 {
            10_000
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            buf.fill(0xee);
            if offset >= self.good {
                return Err(Error::corrupt(Place::Byte(offset), "a bad sector"));
            }
            for (byte, at) in buf.iter_mut().zip(offset..) {
                *byte = u8::try_from(at % 251).unwrap();
            }
            Ok(())
        }
    }

    fn expected(offset: u64, len: u64) -> Vec<u8> {
        (offset..(offset + len).min(10_000))
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect()
    }

    #[test]
    fn headers_close_together_cost_one_read() {
        let source = counted(10_000);
        let mut peek = Peek::default();
        for offset in [100, 100, 2_000, 4_180, 100] {
            let bytes = peek.read(&source, offset, 16).unwrap();
            assert_eq!(bytes, expected(offset, 16), "at {offset}");
        }
        assert_eq!(source.reads.load(Ordering::Relaxed), 1);
        // one that only begins in the piece, and one before it
        assert_eq!(peek.read(&source, 4_181, 16).unwrap(), expected(4_181, 16));
        assert_eq!(peek.read(&source, 99, 16).unwrap(), expected(99, 16));
        assert_eq!(source.reads.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn there_is_less_at_the_end_and_nothing_behind_it() {
        let source = counted(10_000);
        let mut peek = Peek::default();
        for offset in [9_990, 9_999, 10_000, 10_001, u64::MAX - 16] {
            let bytes = peek.read(&source, offset, 16).unwrap();
            assert_eq!(bytes, expected(offset, 16), "at {offset}");
        }
        assert_eq!(peek.read(&source, 9_000, 5_000).unwrap().len(), 1_000);
    }

    #[test]
    fn a_failed_read_leaves_nothing_behind() {
        let source = counted(5_000);
        let mut peek = Peek::default();
        peek.read(&source, 0, 16).unwrap();
        peek.read(&source, 6_000, 16).unwrap_err();
        assert_eq!(peek.read(&source, 0, 16).unwrap(), expected(0, 16));
        peek.read(&source, 6_000, 16).unwrap_err();
    }
}
