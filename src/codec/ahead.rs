//! Which readers are decoded and fetched ahead of, and how far.
//!
//! A source does not know by which descriptor it is read. So a read that begins where an earlier one ended is taken for one of the same reader.

use std::ops::Range;

/// Readers of one block or object that are told apart.
const READERS: usize = 8;

/// How far out of order the reads of one reader may arrive, in segments: the kernel sends several at once.
const SLACK: u64 = 2;

/// The furthest that jobs decode ahead of a reader, in segments.
const MAX_AHEAD: u64 = 8;

/// The readers of a block or an object, told apart by the segments or pieces they read. The one that read longest ago comes first.
#[derive(Debug, Default)]
pub(crate) struct Readers(Vec<Reader>);

/// A reader that goes on where it ended, as far as the reads tell.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Where it began.
    pub(crate) from: u64,
    /// Where it is to go on: behind the last segment or piece that it has read.
    pub(crate) reached: u64,
    /// Behind the last segment or piece that is decoded or fetched before it reads there; no more than `reached` if none is.
    pub(crate) ahead_to: u64,
}

impl Readers {
    /// Records a read, which may arrive up to `slack` out of order. Gives its reader, which is the latest now, and where that reader had
    /// got to before; `None` if the read goes on where no reader ended, so that its reader is new.
    pub(crate) fn follow(&mut self, read: &Range<u64>, slack: u64) -> (&mut Reader, Option<u64>) {
        let mut readers = self.0.iter();
        let found = readers.position(|reader| reader.goes_on_at(read.start, slack));
        let before = found.map(|found| self.0.remove(found));
        if self.0.len() >= READERS {
            self.0.remove(0);
        }
        let had_reached = before.as_ref().map(|reader| reader.reached);
        let mut reader = before.unwrap_or(Reader {
            from: read.start,
            reached: read.end,
            ahead_to: 0,
        });
        reader.reached = reader.reached.max(read.end);
        // The latest comes last: the first is the one to forget.
        (self.0.push_mut(reader), had_reached)
    }

    /// The reader of the last read.
    #[cfg(feature = "remote")]
    pub(crate) fn latest(&mut self) -> Option<&mut Reader> {
        self.0.last_mut()
    }

    /// Records a read of the segments `first..=last`; tells whether segments are to be decoded ahead of its reader.
    pub(super) fn note(&mut self, first: u64, last: u64) -> bool {
        let read = first..last.saturating_add(1);
        let (reader, had_reached) = self.follow(&read, SLACK);
        if let Some(had_reached) = had_reached
            && reader.reached > had_reached
        {
            let had_ahead = reader.ahead_to.saturating_sub(had_reached);
            // Twice as far as before: a reader that has read two segments may stop at the third.
            let more = had_ahead.saturating_mul(2).clamp(1, MAX_AHEAD);
            reader.ahead_to = reader.reached.saturating_add(more);
        }
        reader.ahead_to > reader.reached
    }

    /// The segments below `end` to be decoded ahead, the most urgent first: those of the latest reader, then those of the others.
    pub(super) fn wanted(&self, end: u64) -> impl Iterator<Item = u64> {
        let latest_first = self.0.iter().rev();
        latest_first.flat_map(move |reader| reader.reached..reader.ahead_to.min(end))
    }

    /// Stops decoding ahead until a reader reads on.
    pub(super) fn discourage(&mut self) {
        for reader in &mut self.0 {
            reader.ahead_to = reader.reached;
        }
    }
}

impl Reader {
    /// Whether a read that begins at `start` is taken for one of this reader: it begins where the reader has got to, or up to `slack`
    /// before.
    fn goes_on_at(&self, start: u64, slack: u64) -> bool {
        let first = self.reached.saturating_sub(slack).max(self.from);
        (first..=self.reached).contains(&start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reading_on_is_run_ahead_of_and_ever_further() {
        let mut readers = Readers::default();
        let mut ahead = Vec::new();
        for index in 0..6 {
            for _request in 0..3 {
                readers.note(index, index);
            }
            ahead.push(readers.wanted(2000).count());
        }
        assert_eq!(ahead, [0, 1, 2, 4, 8, 8]);
        assert_eq!(readers.wanted(2000).next(), Some(6));
    }

    #[test]
    fn reads_here_and_there_are_not() {
        let mut readers = Readers::default();
        for index in [7, 3, 900, 5, 100, 50, 25, 12, 6000, 1] {
            assert!(!readers.note(index, index));
        }
        assert_eq!(readers.wanted(2000).count(), 0);
        assert_eq!(readers.0.len(), READERS);
    }

    #[test]
    fn two_readers_are_told_apart_and_late_requests_belong_to_theirs() {
        let mut readers = Readers::default();
        for index in 0..4 {
            readers.note(index, index);
            readers.note(1000 + index, 1000 + index);
            readers.note(index, index);
        }
        assert!(readers.note(2, 2), "a late request");
        assert_eq!(readers.0.len(), 2);
        let wanted: Vec<_> = readers.wanted(2000).collect();
        assert_eq!(wanted, [4, 5, 6, 7, 1004, 1005, 1006, 1007]);
        readers.note(1004, 1004);
        let wanted: Vec<_> = readers.wanted(1005).collect();
        assert_eq!(wanted, [4, 5, 6, 7], "one reader is at the end, not both");
    }
}
