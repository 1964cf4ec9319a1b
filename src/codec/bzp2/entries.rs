//! Where the blocks of a bzip2 stream are among the decoded bytes, as far as they have been decoded once.

use crate::source::len_u64;
use std::ops::RangeInclusive;

use super::batch::Ready;
use crate::codec::index_store::Fields;

/// Rows kept; when there are more the nearest to each other are dropped.
const ROWS: usize = 1 << 16;

/// The least distance of rows, in decoded bytes, after the first time that there were too many.
const FIRST_SPACING: u64 = 1 << 19;

/// The levels that there are.
const LEVELS: RangeInclusive<u8> = 1..=9;

/// A place to begin at: the mark of a block, or of the end of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Decoded bytes before it.
    pub(super) decoded: u64,
    /// Stored bits before it.
    pub(super) bit: u64,
    /// The level of its stream.
    pub(super) level: u8,
    /// Checksum of the blocks of its stream before it.
    pub(super) combined: u32,
}

impl Entry {
    /// The place behind a block that begins here.
    pub(super) fn behind(self, block: &Ready) -> Self {
        Self {
            decoded: self.decoded.saturating_add(block.len()),
            bit: block.end,
            level: self.level,
            combined: self.combined.rotate_left(1) ^ block.crc,
        }
    }
}

/// The places known of a block.
pub(super) struct Entries {
    first: Entry,
    /// In order.
    rows: Vec<Entry>,
    spacing: u64,
}

impl Entries {
    pub(super) fn new(first: Entry) -> Self {
        Self {
            first,
            rows: Vec::new(),
            spacing: 1,
        }
    }

    /// The last place at or before a decoded offset.
    pub(super) fn before(&self, offset: u64) -> Entry {
        let behind = self.rows.partition_point(|row| row.decoded <= offset);
        behind
            .checked_sub(1)
            .and_then(|last| self.rows.get(last))
            .copied()
            .unwrap_or(self.first)
    }

    /// Adds a place behind all others, unless it is too near to them.
    pub(super) fn add(&mut self, entry: Entry) {
        let last = self.rows.last().map_or(0, |last| last.decoded);
        if entry.decoded < last.saturating_add(self.spacing) {
            return;
        }
        if self.rows.len() >= ROWS {
            self.thin_out();
        }
        self.rows.push(entry);
    }

    /// Drops those that are the nearest to each other.
    pub(super) fn thin_out(&mut self) {
        let before = self.rows.len();
        for _ in 0..u64::BITS {
            self.spacing = self.spacing.saturating_mul(2).max(FIRST_SPACING);
            let spacing = self.spacing;
            let mut next = spacing;
            self.rows.retain(|row| {
                let kept = row.decoded >= next;
                if kept {
                    next = row.decoded.saturating_add(spacing);
                }
                kept
            });
            if self.rows.len() < before || before == 0 {
                break;
            }
        }
        self.rows.shrink_to_fit();
    }

    /// Appends the places as bytes: the spacing, then of each place what [`Entry`] has, in that order and little-endian.
    ///
    /// `None` if there is none but the first.
    pub(super) fn export(&self, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.extend(self.spacing.to_le_bytes());
        for row in &self.rows {
            bytes.extend(row.decoded.to_le_bytes());
            bytes.extend(row.bit.to_le_bytes());
            bytes.push(row.level);
            bytes.extend(row.combined.to_le_bytes());
        }
        (!self.rows.is_empty()).then_some(())
    }

    /// The places that were exported, if they may be those of a block of so many decoded bytes and stored bits.
    pub(super) fn import(first: Entry, bytes: &[u8], data_size: u64, bits: u64) -> Option<Self> {
        let mut fields = Fields(bytes);
        let mut entries = Self::new(first);
        entries.spacing = fields.u64().filter(|&spacing| spacing > 0)?;
        let mut last = first;
        while !fields.0.is_empty() {
            let row = Entry {
                decoded: fields.u64()?,
                bit: fields.u64()?,
                level: fields.u8()?,
                combined: fields.u32()?,
            };
            let forward = row.decoded > last.decoded && row.bit > last.bit;
            let within = row.decoded < data_size && row.bit < bits;
            if !forward || !within || !LEVELS.contains(&row.level) || entries.rows.len() >= ROWS {
                return None;
            }
            entries.rows.push(row);
            last = row;
        }
        Some(entries)
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let len = self.rows.capacity().saturating_mul(size_of::<Entry>());
        len_u64(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_places_thin_out() {
        let mut entries = Entries::new(Entry::default());
        for decoded in 0..ROWS as u64 * 4 {
            let bit = decoded * 3;
            entries.add(Entry {
                decoded,
                bit,
                ..Entry::default()
            });
        }
        assert!(entries.rows.len() <= ROWS && entries.held() < 4 << 20);
        for _ in 0..20 {
            let before = entries.rows.len();
            entries.thin_out();
            assert!(entries.rows.len() < before || before == 0);
        }
        assert_eq!(entries.held(), 0);
        let found = entries.before(50);
        assert!(found.decoded <= 50 && found.bit == found.decoded * 3);
    }

    #[test]
    fn places_that_can_not_be_are_not_imported() {
        let row = |decoded, bit, level| Entry {
            decoded,
            bit,
            level,
            combined: 7,
        };
        let import = |rows: &[Entry]| {
            let mut entries = Entries::new(Entry::default());
            entries.rows = rows.to_vec();
            let mut bytes = Vec::new();
            entries.export(&mut bytes)?;
            assert!(bytes.len() as u64 <= entries.held() + 8);
            assert!(Entries::import(Entry::default(), &bytes[1..], 100, 1000).is_none());
            Entries::import(Entry::default(), &bytes, 100, 1000)
        };
        let good = [row(1, 50, 1), row(99, 999, 9)];
        assert_eq!(import(&good).unwrap().rows, good);
        for bad in [
            row(100, 60, 1),
            row(2, 1000, 1),
            row(1, 60, 1),
            row(2, 50, 1),
            row(2, 60, 0),
            row(2, 60, 10),
        ] {
            assert!(import(&[row(1, 50, 1), bad]).is_none(), "{bad:?}");
        }
        let many: Vec<_> = (1..=ROWS as u64 + 1).map(|n| row(n, n, 1)).collect();
        let mut entries = Entries::new(Entry::default());
        entries.rows = many;
        let mut bytes = Vec::new();
        entries.export(&mut bytes).unwrap();
        assert!(Entries::import(Entry::default(), &bytes, u64::MAX, u64::MAX).is_none());
    }
}
