//! The arithmetic of pieces: which are read, which are asked for with one request, and how far ahead of a reader.
//!
//! An object is cut into pieces of 64 KiB, the last one shorter. They are what is kept; a request is for as many of them as are
//! missing and lie next to each other. So a short read costs one piece, and reading on costs requests of 16 MiB. A header far from others
//! costs less: for these the object is cut once more, into pieces of 512 bytes.

use std::ops::Range;

use crate::codec::{Reader, Readers};

/// Length of a piece in bytes.
pub(super) const PIECE: u64 = 64 << 10;

/// Length of a piece in bytes, of the pieces with a header that lies alone. They are kept apart from the others.
pub(super) const HEADER_PIECE: u64 = 512;

/// The most pieces of one request: 16 MiB. Three of them ahead of a reader at a latency of 50 ms let it have 600 MB/s.
pub(super) const REQUEST: u64 = 256;

/// A reader that has read so many pieces or less has at most half as many fetched ahead, and none if it began at the start of the file: what
/// reads the text there is not to fetch what follows.
const TIMID: u64 = 16;

/// Requests ahead of a reader that has gone on for long.
const AHEAD: u64 = 4;

/// How far out of order the reads of one reader may arrive, in pieces: the kernel sends several at once.
const SLACK: u64 = 32;

/// How an object is cut into pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Length of a piece in bytes; the last one may be shorter.
    pub(super) piece: u64,
    /// Length of the object.
    pub(super) len: u64,
}

impl Cut {
    /// All pieces.
    pub(super) fn all(&self) -> Range<u64> {
        self.pieces_of(&(0..self.len))
    }

    /// The pieces with the bytes of `range`.
    pub(super) fn pieces_of(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.checked_div(self.piece).unwrap_or(0);
        start..range.end.div_ceil(self.piece)
    }

    /// The bytes of `pieces`.
    pub(super) fn bytes_of(&self, pieces: &Range<u64>) -> Range<u64> {
        let start = |piece: u64| piece.saturating_mul(self.piece).min(self.len);
        start(pieces.start)..start(pieces.end)
    }

    /// How many bytes these have.
    pub(super) fn len_of(&self, pieces: &Range<u64>) -> u64 {
        let bytes = self.bytes_of(pieces);
        bytes.end.saturating_sub(bytes.start)
    }

    /// Length of a piece.
    pub(super) fn piece_len(&self, piece: u64) -> usize {
        let len = self.len_of(&(piece..piece.saturating_add(1)));
        usize::try_from(len).unwrap_or(0)
    }
}

/// The missing ones of `wanted`, in runs for one request each.
pub(super) fn runs(wanted: Range<u64>, is_missing: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for piece in wanted.filter(|&piece| is_missing(piece)) {
        let next = piece.saturating_add(1);
        match out.last_mut() {
            // pieces that follow each other are one request, as each request costs a round trip
            Some(run) if run.end == piece && next.saturating_sub(run.start) <= REQUEST => {
                run.end = next;
            }
            _ => out.push(piece..next),
        }
    }
    out
}

/// Records a read, and gives the pieces that are to be asked for ahead of its reader now: at most `most`, often none. They lie behind
/// `read`. A reader begins to have some ahead of it when it reads what is not here: what was fetched when the object was
/// opened is no reason to fetch more.
///
/// [`Reader::ahead_to`] is the piece behind the last one that was asked for ahead of it.
pub(super) fn ahead_of(
    readers: &mut Readers,
    read: &Range<u64>,
    is_here: bool,
    most: u64,
) -> Range<u64> {
    let (reader, had_reached) = readers.follow(read, SLACK);
    reader.ahead_to = reader.ahead_to.max(reader.reached);
    let has_begun = !is_here || reader.ahead_to > reader.reached;
    match had_reached {
        // one long read, as that of a chunk of a compressed block, does not tell that there will be more
        Some(had_reached) if has_begun => {
            next_requests(reader, had_reached.saturating_sub(reader.from), most)
        }
        _ => read.end..read.end,
    }
}

/// Records that the pieces up to `end` have been asked for ahead of the reader of the last read.
pub(super) fn note_asked(readers: &mut Readers, end: u64) {
    if let Some(reader) = readers.latest() {
        reader.ahead_to = reader.ahead_to.max(end);
    }
}

/// Ever larger requests, each when the one before it is half read; from the largest on there are always some ahead. So many pieces
/// were `read` before this read.
fn next_requests(reader: &Reader, read: u64, most: u64) -> Range<u64> {
    let largest = REQUEST.min(most);
    // doubled while the reader goes on: short files cost little, long ones reach the full size after a few requests
    let size = if read > TIMID {
        read.saturating_mul(2).min(largest)
    } else if reader.from == 0 {
        0
    } else {
        read.min(TIMID / 2).min(largest)
    };
    // asked for again when half is read, so that the next answer is there in time
    let enough = if size < largest {
        size.div_ceil(2)
    } else {
        size.saturating_mul(AHEAD)
    };
    let there = reader.ahead_to.saturating_sub(reader.reached);
    let wanted = if there < enough { size } else { 0 };
    reader.ahead_to..reader.ahead_to.saturating_add(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pieces_of_a_read_cover_it_and_no_more_than_they_must(
            len in 1_u64..10 << 20, start in any::<prop::sample::Index>(), size in 0_u64..3 << 20,
        ) {
            let start = start.index(len as usize) as u64;
            let end = (start + size).min(len);
            let cut = Cut { piece: PIECE, len };
            let pieces = cut.pieces_of(&(start..end));
            let bytes = cut.bytes_of(&pieces);
            prop_assert!(bytes.start <= start && end <= bytes.end && bytes.end <= len);
            if start < end {
                prop_assert!(start - bytes.start < PIECE && bytes.end - end < PIECE);
            }
            let sum: u64 = pieces.map(|piece| cut.piece_len(piece) as u64).sum();
            prop_assert_eq!(sum, bytes.end - bytes.start);
        }

        #[test]
        fn runs_are_all_that_is_missing_in_order_and_in_bounds(
            start in 0_u64..100, missing in prop::collection::vec(any::<bool>(), 0..600),
        ) {
            let is_missing = |piece: u64| missing[(piece - start) as usize];
            let wanted = start..start + missing.len() as u64;
            let found = runs(wanted.clone(), is_missing);
            prop_assert!(found.iter().all(|run| run.start < run.end && run.end - run.start <= REQUEST));
            for two in found.windows(2) {
                let full = two[0].end - two[0].start == REQUEST;
                prop_assert!(two[0].end < two[1].start || full && two[0].end == two[1].start);
            }
            let all: Vec<u64> = found.into_iter().flatten().collect();
            let expected: Vec<u64> = wanted.filter(|&piece| is_missing(piece)).collect();
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn what_is_asked_for_ahead_is_new_and_in_bounds(
            reads in prop::collection::vec((0_u64..2000, 1_u64..40), 1..60), most in 0_u64..200,
        ) {
            let mut readers = Readers::default();
            for (start, len) in reads {
                let ahead = ahead_of(&mut readers, &(start..start + len), false, most);
                prop_assert!(ahead.start >= start + len);
                prop_assert!(ahead.end - ahead.start <= most.min(REQUEST));
                note_asked(&mut readers, ahead.end);
            }
        }
    }

    #[test]
    fn numbers_beyond_the_end_of_the_world_do_no_harm() {
        let most = u64::MAX / PIECE;
        let cut = Cut {
            piece: PIECE,
            len: u64::MAX,
        };
        assert_eq!(cut.pieces_of(&(u64::MAX - 1..u64::MAX)), most..most + 1);
        assert_eq!(cut.piece_len(most) as u64, PIECE - 1);
        assert_eq!(cut.piece_len(u64::MAX), 0);
        let mut readers = Readers::default();
        for _ in 0..3 {
            ahead_of(&mut readers, &(u64::MAX - 1..u64::MAX), false, u64::MAX);
        }
    }

    #[test]
    fn a_reader_that_goes_on_has_ever_more_ahead_of_it() {
        let mut readers = Readers::default();
        let mut sizes = Vec::new();
        for piece in 9..600 {
            let ahead = ahead_of(&mut readers, &(piece..piece + 1), false, u64::MAX);
            if ahead.end > ahead.start {
                sizes.push(ahead.end - ahead.start);
                note_asked(&mut readers, ahead.end);
                assert!(ahead.end - piece <= (AHEAD + 1) * REQUEST + 1);
            }
        }
        assert!(sizes.is_sorted());
        assert_eq!((sizes[0], sizes.last()), (1, Some(&REQUEST)));
    }

    #[test]
    fn the_text_of_a_file_fetches_nothing_that_follows() {
        let mut readers = Readers::default();
        // as the scan reads
        for read in [0..1, 1..2, 2..3, 3..4, 4..5, 5..7, 7..16] {
            let ahead = ahead_of(&mut readers, &read, false, u64::MAX);
            assert!(ahead.is_empty(), "{read:?}");
        }
    }

    /// Twice as much as a chunk of a compressed block came along with it.
    #[test]
    fn one_long_read_behind_a_header_has_hardly_anything_ahead() {
        let mut readers = Readers::default();
        ahead_of(&mut readers, &(700..701), false, u64::MAX);
        let ahead = ahead_of(&mut readers, &(700..764), false, u64::MAX);
        assert_eq!(ahead, 764..765);
    }

    #[test]
    fn what_is_here_already_has_nothing_ahead() {
        let mut readers = Readers::default();
        for read in [5..6, 5..7, 5..6] {
            assert!(ahead_of(&mut readers, &read, true, u64::MAX).is_empty());
        }
        let ahead = ahead_of(&mut readers, &(7..8), false, u64::MAX);
        assert_eq!(ahead, 8..10);
        note_asked(&mut readers, ahead.end);
        assert_eq!(ahead_of(&mut readers, &(8..9), true, u64::MAX), 10..13);
    }

    #[test]
    fn reads_here_and_there_have_nothing_ahead() {
        let mut readers = Readers::default();
        for piece in [700, 300, 90_000, 500, 10_000, 5000, 2500, 1200, 600_000, 1] {
            let read = piece..piece + 1;
            assert!(ahead_of(&mut readers, &read, false, u64::MAX).is_empty());
        }
    }
}
