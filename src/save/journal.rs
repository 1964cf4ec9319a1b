//! The redo record of J: what a save is going to write into FILE, in full, from and to bytes.
//!
//! It lies in FILE's own tail, from a multiple of [`ALIGNMENT`] bytes on, or in a sidecar. Numbers are big-endian.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic `89 41 53 44 46 6A 72 6E` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | number of ranges |
//! | 16 | 8 | length of the record without the footer |
//! | 24 | 8 | length of FILE before |
//! | 32 | 8 | length of FILE after |
//! | 40 | 16 | device and inode of FILE, for a sidecar; else zero |
//! | 56 | 24 + … each | offset, number of old bytes, number of new bytes; the old bytes; the new bytes |
//! | footer | 8 | magic, reversed |
//! | | 8 | length of the record without the footer |
//! | | 32 | SHA-256 of the record without the footer |
//!
//! The footer ends the file that it is in. Old bytes are fewer than new ones only where the range reaches beyond the old end
//! of FILE. They are there to tell a save that was interrupted from a file that somebody else has changed since: a sector that
//! power failed under is old, or new, or cut from both.

use super::digest::{Digest, Hasher};
use crate::error::Result;
use crate::source::Source;

/// The most new bytes that a record may hold.
pub const JOURNAL_LIMIT: u64 = 64 << 20;
/// Where a record in FILE's tail may begin: at a multiple of this many bytes.
pub const ALIGNMENT: u64 = 4096;
/// The most ranges that a record may hold.
pub const RANGE_LIMIT: usize = 1 << 16;
/// The smallest unit that a disk writes whole, in bytes.
pub const SECTOR: u64 = 512;
/// The longest record that is read, in bytes: old and new bytes, and what describes them.
const RECORD_LIMIT: u64 = 2 * JOURNAL_LIMIT + 24 * (1 << 16) + HEAD_LEN;
const MAGIC: [u8; 8] = *b"\x89ASDFjrn";
const FOOTER_MAGIC: [u8; 8] = *b"nrjFDSA\x89";
const VERSION: u32 = 1;
/// Bytes in front of the ranges.
pub const HEAD_LEN: u64 = 56;
/// Bytes of the footer.
pub const FOOTER_LEN: u64 = 48;

/// Bytes that a save writes at one place of FILE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Offset in FILE.
    pub offset: u64,
    /// What is there before, as far as FILE reaches.
    pub old: Vec<u8>,
    /// What is to be there.
    pub new: Vec<u8>,
}

/// All that a save writes into FILE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Length of FILE before, in bytes.
    pub old_len: u64,
    /// Length of FILE after, in bytes.
    pub new_len: u64,
    /// Device and inode of FILE, if the record is in a sidecar; else zero.
    pub id: (u64, u64),
    /// The ranges, in the order of FILE and apart from each other.
    pub ranges: Vec<Range>,
}

/// What the first bytes of a record say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    count: u32,
    len: u64,
    /// Length of FILE before.
    pub old_len: u64,
    /// Length of FILE after.
    pub new_len: u64,
    id: (u64, u64),
}

impl Head {
    /// Parses the start of a record; `None` if it is none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.take(8)? != MAGIC || fields.u32()? != VERSION {
            return None;
        }
        Some(Self {
            count: fields.u32()?,
            len: fields.u64()?,
            old_len: fields.u64()?,
            new_len: fields.u64()?,
            id: (fields.u64()?, fields.u64()?),
        })
    }

    /// Where a record with these lengths begins when it is in FILE's tail.
    #[must_use]
    pub fn base(&self) -> Option<u64> {
        tail_base(self.old_len, self.new_len)
    }

    /// Where the record ends with its footer, if it begins at `base`.
    #[must_use]
    pub fn end(&self, base: u64) -> Option<u64> {
        base.checked_add(self.len)?.checked_add(FOOTER_LEN)
    }
}

/// Where a record in FILE's tail begins.
#[must_use]
pub fn tail_base(old_len: u64, new_len: u64) -> Option<u64> {
    old_len.max(new_len).checked_next_multiple_of(ALIGNMENT)
}

impl Record {
    /// Length with the footer, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.body_len().saturating_add(FOOTER_LEN)
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.old_len == self.new_len
    }

    fn body_len(&self) -> u64 {
        self.ranges.iter().fold(HEAD_LEN, |total, range| {
            total
                .saturating_add(24)
                .saturating_add(len_of(&range.old))
                .saturating_add(len_of(&range.new))
        })
    }

    /// Bytes to be written into FILE.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        self.ranges
            .iter()
            .fold(0, |total, range| total.saturating_add(len_of(&range.new)))
    }

    /// Hands out the record with its footer, in pieces.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut hasher = Hasher::default();
        let len = self.body_len();
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            out(bytes)
        };
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_be_bytes());
        head.extend(
            u32::try_from(self.ranges.len())
                .unwrap_or(u32::MAX)
                .to_be_bytes(),
        );
        for number in [len, self.old_len, self.new_len, self.id.0, self.id.1] {
            head.extend(number.to_be_bytes());
        }
        put(&head)?;
        for range in &self.ranges {
            let mut head = Vec::with_capacity(24);
            for number in [range.offset, len_of(&range.old), len_of(&range.new)] {
                head.extend(number.to_be_bytes());
            }
            put(&head)?;
            put(&range.old)?;
            put(&range.new)?;
        }
        let mut footer = FOOTER_MAGIC.to_vec();
        footer.extend(len.to_be_bytes());
        footer.extend(hasher.finish().0);
        out(&footer)
    }

    /// The record whose footer ends `source`, and its offset there; `None` if there is none, or not whole.
    ///
    /// # Errors
    /// Of reading `source`.
    pub fn read(source: &dyn Source) -> Result<Option<(Self, u64)>> {
        let Some(footer_at) = source.len().checked_sub(FOOTER_LEN) else {
            return Ok(None);
        };
        let mut footer = [0; 48];
        source.read_exact_at(&mut footer, footer_at)?;
        let Some((len, digest)) = parse_footer(&footer) else {
            return Ok(None);
        };
        let Some(base) = footer_at
            .checked_sub(len)
            .filter(|_| (HEAD_LEN..=RECORD_LIMIT).contains(&len))
        else {
            return Ok(None);
        };
        let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
        source.read_exact_at(&mut body, base)?;
        if Digest::of(&body) != digest {
            return Ok(None);
        }
        Ok(Self::parse(&body).map(|record| (record, base)))
    }

    /// Parses a record without its footer; `None` unless every rule of the format is kept.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let head = Head::parse(body)?;
        let mut fields = Fields(body.get(usize::try_from(HEAD_LEN).ok()?..)?);
        let count = usize::try_from(head.count).ok()?;
        if head.len != len_of(body) || count > RANGE_LIMIT {
            return None;
        }
        let mut ranges = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let (offset, old, new) = (fields.u64()?, fields.u64()?, fields.u64()?);
            let there = head.old_len.saturating_sub(offset).min(new);
            if offset < end || old != there {
                return None;
            }
            end = offset.checked_add(new).filter(|&end| end <= head.new_len)?;
            ranges.push(Range {
                offset,
                old: fields.take(old)?.to_vec(),
                new: fields.take(new)?.to_vec(),
            });
        }
        fields.0.is_empty().then_some(Self {
            old_len: head.old_len,
            new_len: head.new_len,
            id: head.id,
            ranges,
        })
    }
}

fn parse_footer(footer: &[u8]) -> Option<(u64, Digest)> {
    let mut fields = Fields(footer);
    if fields.take(8)? != FOOTER_MAGIC {
        return None;
    }
    Some((fields.u64()?, Digest(*fields.0.first_chunk()?)))
}

impl Range {
    /// Whether `found`, what FILE now holds at the range, is what an interrupted save can leave there.
    ///
    /// Each sector is old or new; where writing was stopped in its middle, it begins as the one and ends as the other. Bytes
    /// beyond the old end of FILE are zero before they are written.
    #[must_use]
    pub fn explains(&self, found: &[u8]) -> bool {
        let mut old = self.old.clone();
        old.resize(self.new.len(), 0);
        if found.len() != self.new.len() {
            return false;
        }
        let mut at = 0;
        let mut room = SECTOR.saturating_sub(self.offset.checked_rem(SECTOR).unwrap_or(0));
        while at < found.len() {
            let end = at
                .saturating_add(usize::try_from(room).unwrap_or(1))
                .min(found.len());
            let part = |bytes| <[u8]>::get(bytes, at..end).unwrap_or_default();
            if !cut_from_both(part(found), part(&old), part(&self.new)) {
                return false;
            }
            at = end;
            room = SECTOR;
        }
        true
    }
}

/// Whether `found` begins like one of two and goes on like the other.
fn cut_from_both(found: &[u8], a: &[u8], b: &[u8]) -> bool {
    let common = |with: &[u8]| found.iter().zip(with).take_while(|(x, y)| x == y).count();
    let tail = |with: &[u8], from: usize| found.get(from..) == with.get(from..);
    tail(b, common(a)) || tail(a, common(b))
}

/// Bytes that fields are taken off the front of.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?
            .first_chunk()
            .map(|bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes))
    }
}

/// `usize` is never wider than 64 bits.
pub(super) fn len_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;
    use proptest::prelude::*;

    fn bytes(record: &Record) -> Vec<u8> {
        let mut out = Vec::new();
        record
            .write(&mut |part| {
                out.extend(part);
                Ok(())
            })
            .unwrap();
        out
    }

    fn record() -> impl Strategy<Value = Record> {
        let range = (0u64..50, prop::collection::vec(any::<u8>(), 0..40));
        (0u64..300, prop::collection::vec(range, 0..6)).prop_map(|(old_len, parts)| {
            let mut ranges: Vec<Range> = Vec::new();
            let mut at = 0;
            for (gap, new) in parts {
                let offset = at + gap;
                let there = old_len.saturating_sub(offset).min(new.len() as u64) as usize;
                at = offset + new.len() as u64;
                ranges.push(Range {
                    offset,
                    old: vec![7; there],
                    new,
                });
            }
            Record {
                old_len,
                new_len: at.max(100),
                id: (1, 2),
                ranges,
            }
        })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record(), before in 0usize..50) {
            let file = [vec![0; before], bytes(&record)].concat();
            prop_assert_eq!(record.len(), (file.len() - before) as u64);
            let head = Head::parse(&file[before..]).unwrap();
            prop_assert_eq!(head.end(before as u64), Some(file.len() as u64));
            prop_assert_eq!(Record::read(&Memory::new(file)).unwrap(), Some((record, before as u64)));
        }

        #[test]
        fn a_record_with_a_wrong_byte_or_cut_short_is_none(
            record in record(), at in any::<prop::sample::Index>(), flip in 1u8..,
        ) {
            let mut file = bytes(&record);
            let at = at.index(file.len());
            prop_assert_eq!(Record::read(&Memory::new(file[..at].to_vec())).unwrap(), None);
            file[at] ^= flip;
            prop_assert_eq!(Record::read(&Memory::new(file)).unwrap(), None);
        }

        #[test]
        fn hostile_bytes_are_a_record_or_not(
            count: u32, mut numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..200], 5..12), tail: Vec<u8>,
        ) {
            let mut body = MAGIC.to_vec();
            body.extend(VERSION.to_be_bytes());
            body.extend((count % 4).to_be_bytes());
            numbers[0] = 16 + 8 * numbers.len() as u64 + tail.len() as u64;
            body.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
            body.extend(&tail);
            if let Some(record) = Record::parse(&body) {
                prop_assert!(record.ranges.iter().all(|range| range.offset + range.new.len() as u64 <= record.new_len));
            }
        }

        #[test]
        fn what_an_interrupted_write_leaves_is_explained_and_nothing_else(
            offset in 0u64..2000, len in 1usize..1500, mask: u8, cut in any::<prop::sample::Index>(), foreign: bool,
        ) {
            let range = Range { offset, old: vec![1; len], new: vec![2; len] };
            let mut found = vec![1; len];
            for (i, byte) in found.iter_mut().enumerate() {
                if mask >> ((offset as usize + i) / 512 % 8) & 1 == 1 {
                    *byte = 2;
                }
            }
            prop_assert!(range.explains(&found));
            let at = cut.index(len);
            found[at] = if foreign { 3 } else { found[at] };
            prop_assert_eq!(range.explains(&found), !foreign);
        }
    }

    #[test]
    fn a_sector_that_a_killed_process_left_half_written_is_explained() {
        let range = Range {
            offset: 0,
            old: vec![1; 600],
            new: vec![2; 600],
        };
        let mut found = [vec![2; 300], vec![1; 300]].concat();
        assert!(range.explains(&found));
        found[100] = 1;
        assert!(!range.explains(&found));
    }
}
