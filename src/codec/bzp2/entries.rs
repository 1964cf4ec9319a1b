//! Where the blocks of a bzip2 stream are among the decoded bytes, as far as they have been decoded once.

use super::batch::Ready;

/// Rows kept; when there are more the nearest to each other are dropped.
const ROWS: usize = 1 << 16;

/// The least distance of rows, in decoded bytes, after the first time that there were too many.
const FIRST_SPACING: u64 = 1 << 19;

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
            self.spacing = self.spacing.saturating_mul(2).max(FIRST_SPACING);
            let mut next = 0;
            let spacing = self.spacing;
            self.rows.retain(|row| {
                let kept = row.decoded >= next;
                if kept {
                    next = row.decoded.saturating_add(spacing);
                }
                kept
            });
        }
        self.rows.push(entry);
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let len = self.rows.capacity().saturating_mul(size_of::<Entry>());
        u64::try_from(len).unwrap_or(u64::MAX)
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
        let found = entries.before(50);
        assert!(found.decoded <= 50 && found.bit == found.decoded * 3);
    }
}
