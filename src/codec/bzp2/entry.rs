//! A place in a bzip2 stream that decoding can begin at, and its bytes in a seek index.

use std::ops::RangeInclusive;

use super::batch::Ready;
use crate::codec::entries::IndexEntry;
use crate::source::Fields;

/// The levels of a stream.
const LEVELS: RangeInclusive<u8> = 1..=9;

/// A place to begin at: the mark of a block, or of the end of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// Decoded bytes before it.
    pub(super) decoded: u64,
    /// Stored bits before it.
    pub(super) bit: u64,
    /// The level of its stream.
    pub(super) level: u8,
    /// Checksum of the blocks of its stream before it.
    pub(super) combined: u32,
}

impl EntryPoint {
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

/// As bytes: [`EntryPoint::bit`], [`EntryPoint::level`] and [`EntryPoint::combined`], little-endian.
impl IndexEntry for EntryPoint {
    fn position(&self) -> u64 {
        self.bit
    }

    fn export(&self, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.extend(self.bit.to_le_bytes());
        bytes.push(self.level);
        bytes.extend(self.combined.to_le_bytes());
        Some(())
    }

    fn import(decoded: u64, fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            decoded,
            bit: fields.u64()?,
            level: fields.u8().filter(|level| LEVELS.contains(level))?,
            combined: fields.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_level_that_can_not_be_is_not_imported() {
        for level in 0..=10 {
            let entry = EntryPoint {
                decoded: 5,
                bit: 50,
                level,
                combined: 7,
            };
            let mut bytes = Vec::new();
            entry.export(&mut bytes).unwrap();
            let found = EntryPoint::import(5, &mut Fields(&bytes));
            assert_eq!(found, LEVELS.contains(&level).then_some(entry));
            assert!(EntryPoint::import(5, &mut Fields(&bytes[1..])).is_none());
        }
    }
}
