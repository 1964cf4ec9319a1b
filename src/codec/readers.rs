//! Recognises sequential readers of a block, and how far ahead of each to decode.

/// Readers of one block that are told apart.
const READERS: usize = 8;

/// How far out of order the reads of one reader may arrive, in segments: the kernel sends several at once.
const SLACK: u64 = 1;

/// The furthest that anything is decoded ahead, in segments.
const MAX_AHEAD: u64 = 8;

/// The readers of a block, told apart by the segments they read.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// The one that read longest ago first.
    readers: Vec<Reader>,
}

/// A reader that goes on where it ended, as far as the reads tell.
#[derive(Debug)]
struct Reader {
    /// The last segment it has reached.
    last: u64,
    /// Segments to be decoded behind that: 0, 1, 2, 4, 8.
    ahead: u64,
}

impl Readers {
    /// Records a read of the segments `first..=last`; tells whether it goes on where an earlier one ended.
    pub(super) fn note(&mut self, first: u64, last: u64) -> bool {
        let found = self.readers.iter().position(|reader| {
            first >= reader.last.saturating_sub(SLACK) && first <= reader.last.saturating_add(1)
        });
        let reader = if let Some(found) = found {
            let mut reader = self.readers.remove(found);
            if last > reader.last {
                reader.last = last;
                reader.ahead = reader.ahead.saturating_mul(2).clamp(1, MAX_AHEAD);
            }
            reader
        } else {
            if self.readers.len() >= READERS {
                self.readers.remove(0);
            }
            Reader { last, ahead: 0 }
        };
        let sequential = reader.ahead > 0;
        self.readers.push(reader);
        sequential
    }

    /// The segments to be decoded ahead, the most urgent first: those of the latest reader, then those of the others.
    pub(super) fn wanted(&self) -> impl Iterator<Item = u64> {
        self.readers
            .iter()
            .rev()
            .flat_map(|reader| (1..=reader.ahead).map_while(|next| reader.last.checked_add(next)))
    }

    /// Stops decoding ahead until a reader reads on.
    pub(super) fn discourage(&mut self) {
        for reader in &mut self.readers {
            reader.ahead = 0;
        }
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
            ahead.push(readers.wanted().count());
        }
        assert_eq!(ahead, [0, 1, 2, 4, 8, 8]);
        assert_eq!(readers.wanted().next(), Some(6));
    }

    #[test]
    fn reads_here_and_there_are_not() {
        let mut readers = Readers::default();
        for index in [7, 3, 900, 5, 100, 50, 25, 12, 6000, 1] {
            assert!(!readers.note(index, index));
        }
        assert_eq!(readers.wanted().count(), 0);
        assert_eq!(readers.readers.len(), READERS);
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
        assert_eq!(readers.readers.len(), 2);
        let wanted: Vec<_> = readers.wanted().collect();
        assert_eq!(wanted, [4, 5, 6, 7, 1004, 1005, 1006, 1007]);
    }
}
