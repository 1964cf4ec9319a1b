//! A table of the places at which a stream can be entered, by decoded offset. It stays small whatever the payload is.

use crate::source::len_u64;

/// The most entries that one table keeps.
const MAX_ENTRIES: u64 = 1 << 15;

/// The least distance of entries in decoded bytes, also where chunks are smaller.
const MIN_SPACING: u64 = 64 << 10;

/// Decoded offsets at which a stream can be entered, each with what a decoder needs to start there.
///
/// Invariant: the first is at 0, and no two are closer than `spacing`. So a payload of a million tiny chunks costs no more
/// memory than one of large chunks; a cursor then walks from the entry before.
#[derive(Clone)]
pub(super) struct Entries<T> {
    spacing: u64,
    first: T,
    rest: Vec<(u64, T)>,
}

impl<T: Clone> Entries<T> {
    /// A table for `data_size` decoded bytes with the entry at 0, for entries as dense as its memory allows.
    pub(super) fn new(data_size: u64, first: T) -> Self {
        let spacing = data_size.div_ceil(MAX_ENTRIES).max(MIN_SPACING);
        Self::spaced(spacing, first)
    }

    /// A table with the entry at 0 that keeps entries at least `spacing` decoded bytes apart.
    pub(super) fn spaced(spacing: u64, first: T) -> Self {
        Self {
            spacing: spacing.max(1),
            first,
            rest: Vec::new(),
        }
    }

    /// Whether an entry at `offset` would be kept.
    pub(super) fn wants(&self, offset: u64) -> bool {
        let [before, after] = self.around(offset);
        let before = before.map_or(0, |&(at, _)| at);
        let after = after.map_or(u64::MAX, |&(at, _)| at);
        offset.saturating_sub(before) >= self.spacing
            && after.saturating_sub(offset) >= self.spacing
    }

    /// Keeps the entry at `offset`, unless there is one nearby; one at 0 replaces the first.
    pub(super) fn add(&mut self, offset: u64, entry: T) {
        if offset == 0 {
            self.first = entry;
        } else if self.wants(offset) {
            let next = self.rest.partition_point(|&(at, _)| at <= offset);
            self.rest.insert(next, (offset, entry));
        }
    }

    /// Drops the entries that are nearest to others, and keeps entries as far apart from now on.
    pub(super) fn thin_out(&mut self) {
        let before = self.rest.len();
        // Doubled until something goes: the entries may be far apart already. If none is left, the distance stays: the cache asks again.
        while before > 0 && self.rest.len() == before {
            self.spacing = self.spacing.saturating_mul(2);
            let spacing = self.spacing;
            let mut last = 0;
            self.rest.retain(|&(at, _)| {
                let kept = at.saturating_sub(last) >= spacing;
                if kept {
                    last = at;
                }
                kept
            });
        }
        self.rest.shrink_to_fit();
    }

    /// The last entry at or before `offset`.
    pub(super) fn at(&self, offset: u64) -> (u64, T) {
        let [found, _] = self.around(offset);
        found.cloned().unwrap_or_else(|| (0, self.first.clone()))
    }

    /// The entry at just this offset behind 0.
    pub(super) fn at_mut(&mut self, offset: u64) -> Option<&mut T> {
        let found = self.rest.binary_search_by_key(&offset, |&(at, _)| at);
        self.rest.get_mut(found.ok()?).map(|(_, entry)| entry)
    }

    /// The last entry at or before `offset`, unless that is the one at 0, and the first entry behind `offset`.
    pub(super) fn around(&self, offset: u64) -> [Option<&(u64, T)>; 2] {
        let next = self.rest.partition_point(|&(at, _)| at <= offset);
        let before = self.rest.get(..next).and_then(<[_]>::last);
        [before, self.rest.get(next)]
    }

    /// The entries behind the one at 0.
    pub(super) fn rest(&self) -> &[(u64, T)] {
        &self.rest
    }

    /// Bytes of memory held, but for what entries refer to.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.rest.capacity().saturating_mul(size_of::<(u64, T)>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_distance() {
        let mut entries = Entries::spaced(10, 'a');
        for (offset, name) in [(5, 'b'), (10, 'c'), (15, 'd'), (30, 'e'), (20, 'f')] {
            entries.add(offset, name);
        }
        assert_eq!(entries.at(9), (0, 'a'));
        assert_eq!(entries.at(15), (10, 'c'));
        assert_eq!(entries.at(29), (20, 'f'));
        assert_eq!(entries.at(u64::MAX), (30, 'e'));
        assert_eq!(entries.rest().len(), 3);
    }

    #[test]
    fn entries_thin_out_to_none() {
        let mut entries = Entries::spaced(10, 0);
        for offset in (64..=640).step_by(64) {
            entries.add(offset, offset);
        }
        for len in [5, 2, 1, 0, 0] {
            entries.thin_out();
            assert_eq!(entries.rest().len(), len);
            let (at, entry) = entries.at(600);
            assert!(at == entry && at <= 600);
        }
        assert!(!entries.wants(600));
    }

    #[test]
    fn a_table_of_a_huge_block_is_no_larger_than_that_of_a_big_one() {
        let mut entries = Entries::new(1 << 40, ());
        for n in 0..(1u64 << 17) {
            entries.add(n << 23, ());
        }
        assert!(entries.rest().len() <= 1 << 15);
    }
}
