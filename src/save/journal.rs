//! The redo record of J: what a save is going to write into FILE, in full, from and to bytes.
//!
//! It lies in FILE's own tail, from a multiple of [`super::sector::ALIGNMENT`] bytes on, or in a sidecar. It is made of sectors, and
//! each sector says that it is part of a record: so a tail of which only some sectors have reached the disk is recognised, too.
//! Numbers are big-endian.
//!
//! | offset in a sector | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic `89 41 53 44 46 6A 72 6E` |
//! | 8 | 8 | length of FILE before |
//! | 16 | 8 | length of FILE after |
//! | 24 | 488 | part of the body |
//!
//! | offset in the body | bytes | |
//! |---|---|---|
//! | 0 | 4 | version, 1 |
//! | 4 | 4 | number of ranges |
//! | 8 | 8 | length of the body without padding and footer |
//! | 16 | 16 | device and inode of FILE, for a sidecar; else zero |
//! | 32 | 48 | witness: offset and length in FILE, and the SHA-256 of the new bytes there |
//! | 80 | 24 + … each | offset, number of old bytes, number of new bytes; the old bytes; the new bytes |
//! | | | zeros, so that the footer ends a sector |
//! | footer | 8 | magic, reversed |
//! | | 8 | length of the body without padding and footer |
//! | | 32 | SHA-256 of the first 24 bytes of a sector and the body without padding and footer |
//!
//! The footer ends the file that it is in. Old bytes are fewer than new ones only where the range reaches beyond the old end
//! of FILE. They tell an interrupted save from a file that another program has changed since: after an interrupted save each sector
//! is old, or new, or begins as one of the two and ends as the other.
//!
//! The witness is for a record that is not whole. Either it was never completed, and FILE is old; or it was being removed, which
//! some filesystems do in several steps, and FILE is new. The witness is the first sector that differs, so it tells.

use super::digest::{Digest, Sha256, sha256};
use super::sector::{
    FOOTER_LEN, SECTOR, SECTOR_LEN, TAG_LEN, Tag, framed, framer, padding, sectors_of, unframed,
};
use crate::asdf::layout::Extent;
use crate::error::{Error, Result, unsupported};
use crate::source::{Fields, Source, at_most, len_u64, read_up_to};

/// The most new bytes that a record may hold.
pub const JOURNAL_LIMIT: u64 = 64 << 20;
/// The most ranges that a record may hold.
pub const RANGE_LIMIT: usize = 1 << 16;
const FOOTER_MAGIC: [u8; 8] = *b"nrjFDSA\x89";
const VERSION: u32 = 1;
/// Bytes in front of the ranges.
const HEAD_LEN: u64 = 80;

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

impl Range {
    /// Where it is.
    #[must_use]
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.offset,
            end: self.offset.saturating_add(len_u64(self.new.len())),
        }
    }
}

/// All that a save writes into FILE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Length of FILE before, in bytes.
    pub old_len: u64,
    /// Length of FILE after, in bytes.
    pub new_len: u64,
    /// Device and inode of FILE, if the record is in a sidecar; `None` if it is in FILE's tail.
    pub sidecar_of: Option<(u64, u64)>,
    /// The ranges, in the order of FILE and apart from each other.
    pub ranges: Vec<Range>,
}

/// What the first sector of a record says beside its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    count: u32,
    body_len: u64,
    sidecar_of: Option<(u64, u64)>,
    /// What is new in FILE once the record has been applied.
    pub witness: Witness,
}

impl Head {
    /// Parses the first sector of a record, of which the tag has been found.
    #[must_use]
    pub fn of_sector(sector: &[u8]) -> Option<Self> {
        Self::parse(&mut Fields(sector.get(TAG_LEN..)?))
    }

    /// Parses the start of a body; `None` if it is of another version.
    fn parse(fields: &mut Fields) -> Option<Self> {
        if fields.u32_be()? != VERSION {
            return None;
        }
        Some(Self {
            count: fields.u32_be()?,
            body_len: fields.u64_be()?,
            sidecar_of: Some((fields.u64_be()?, fields.u64_be()?)).filter(|id| *id != (0, 0)),
            witness: Witness::parse(fields)?,
        })
    }

    /// Length of the record in bytes; `None` beyond all bounds.
    #[must_use]
    pub fn record_len(&self) -> Option<u64> {
        framed(self.body_len)
    }
}

/// A run of FILE that is new once a record has been applied, and was not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Offset in FILE.
    pub offset: u64,
    /// Length in bytes, at most [`SECTOR`].
    pub len: u64,
    /// The SHA-256 of the new bytes.
    pub digest: [u8; 32],
}

impl Witness {
    /// The witness of these ranges: up to [`SECTOR`] new bytes of the first. Without ranges it is empty, and any file holds it.
    fn of(ranges: &[Range]) -> Self {
        let first = ranges.first();
        let new = first.map_or(&[][..], |range| &range.new);
        let seen = new.get(..SECTOR_LEN).unwrap_or(new);
        Self {
            offset: first.map_or(0, |range| range.offset),
            len: len_u64(seen.len()),
            digest: sha256(seen),
        }
    }

    fn parse(fields: &mut Fields) -> Option<Self> {
        Some(Self {
            offset: fields.u64_be()?,
            len: fields.u64_be().filter(|&len| len <= SECTOR)?,
            digest: fields.array()?,
        })
    }

    /// Whether FILE has been written: whether `file` holds the new bytes.
    ///
    /// # Errors
    /// Of reading `file`.
    pub fn holds(&self, file: &dyn Source) -> Result<bool> {
        let end = self.offset.checked_add(self.len);
        // a save makes FILE long enough before it writes: a file too short for the run has not been written
        if end.is_none_or(|end| end > file.len()) {
            return Ok(false);
        }
        let found = read_up_to(file, self.offset, at_most(self.len, usize::MAX))?;
        Ok(sha256(&found) == self.digest)
    }
}

impl Record {
    /// Length in bytes, all sectors; `None` if there are more bytes than a record may hold.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        framed(self.body_len()).filter(|_| self.ranges.len() <= RANGE_LIMIT)
    }

    /// Whether the save changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.old_len == self.new_len
    }

    /// Where it begins when it is in FILE's tail, and where it then ends.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is too long.
    pub fn tail(&self) -> Result<Extent> {
        let start = self.tag().base();
        start
            .and_then(|start| {
                Some(Extent {
                    start,
                    end: start.checked_add(self.len()?)?,
                })
            })
            .ok_or_else(beyond)
    }

    fn tag(&self) -> Tag {
        Tag {
            old_len: self.old_len,
            new_len: self.new_len,
        }
    }

    /// Bytes of the body without padding and footer.
    fn body_len(&self) -> u64 {
        self.ranges.iter().fold(HEAD_LEN, |total, range| {
            total
                .saturating_add(24)
                .saturating_add(len_u64(range.old.len()))
                .saturating_add(len_u64(range.new.len()))
        })
    }

    /// Bytes to be written into FILE.
    #[must_use]
    pub fn new_bytes(&self) -> u64 {
        self.ranges.iter().fold(0, |total, range| {
            total.saturating_add(len_u64(range.new.len()))
        })
    }

    /// Hands out the record, sector by sector.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut hasher = Sha256::default();
        hasher.update(self.tag().bytes());
        let mut put_framed = framer(self.tag().bytes(), out);
        let body_len = self.body_len();
        let count = u32::try_from(self.ranges.len()).map_err(|_| beyond())?;
        let mut put = |bytes: &[u8]| {
            hasher.update(bytes);
            put_framed(bytes)
        };
        // the body goes to the hash and, cut into sectors, to the disk; padding and footer go to the disk alone
        let mut head = VERSION.to_be_bytes().to_vec();
        head.extend(count.to_be_bytes());
        let witness = Witness::of(&self.ranges);
        let (device, inode) = self.sidecar_of.unwrap_or_default();
        for number in [body_len, device, inode, witness.offset, witness.len] {
            head.extend(number.to_be_bytes());
        }
        head.extend(witness.digest);
        put(&head)?;
        for range in &self.ranges {
            let mut head = Vec::with_capacity(24);
            for number in [
                range.offset,
                len_u64(range.old.len()),
                len_u64(range.new.len()),
            ] {
                head.extend(number.to_be_bytes());
            }
            put(&head)?;
            put(&range.old)?;
            put(&range.new)?;
        }
        let mut footer = FOOTER_MAGIC.to_vec();
        footer.extend(body_len.to_be_bytes());
        footer.extend(hasher.finalize());
        put_framed(&padding(body_len))?;
        put_framed(&footer)
    }

    /// The record whose footer ends `source`, and its offset there; `None` if there is none, or not whole.
    ///
    /// # Errors
    /// Of reading `source`.
    pub fn read(source: &dyn Source) -> Result<Option<(Self, u64)>> {
        // the footer is written last and ends the file: if it is there and its hash fits, every byte in front of it is, too
        let Some(footer_at) = source.len().checked_sub(FOOTER_LEN) else {
            return Ok(None);
        };
        let mut footer = [0; 48];
        source.read_exact_at(&mut footer, footer_at)?;
        let Some((body_len, digest)) = parse_footer(&footer) else {
            return Ok(None);
        };
        let len = framed(body_len);
        let Some((len, base)) = len.and_then(|len| Some((len, source.len().checked_sub(len)?)))
        else {
            return Ok(None);
        };
        // at most RECORD_LIMIT bytes, which `framed` has checked: a hostile footer cannot ask for more
        let sectors = read_up_to(source, base, at_most(len, usize::MAX))?;
        let Some(tag) = Tag::parse(&sectors) else {
            return Ok(None);
        };
        let Some(mut body) = unframed(&sectors, tag) else {
            return Ok(None);
        };
        drop(sectors);
        let rest = body.split_off(at_most(body_len, body.len()));
        let mut hasher = Sha256::default();
        hasher.update(tag.bytes());
        hasher.update(&body);
        // a shorter padding would leave room for bytes that no hash covers
        if hasher.finalize()[..] != digest || !rest.starts_with(&padding(body_len)) {
            return Ok(None);
        }
        Ok(Self::parse(tag, &body).map(|record| (record, base)))
    }

    /// Parses the body of a record without padding and footer; `None` unless every rule of the format is kept.
    fn parse(tag: Tag, body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let head = Head::parse(&mut fields)?;
        let count = usize::try_from(head.count).ok()?;
        if head.body_len != len_u64(body.len()) || count > RANGE_LIMIT {
            return None;
        }
        let mut ranges = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let (offset, old, new) = (fields.u64_be()?, fields.u64_be()?, fields.u64_be()?);
            // what FILE had at the range: nothing of it where the range begins behind the old end
            let there = tag.old_len.saturating_sub(offset).min(new);
            // ranges that overlap could undo each other, depending on the order in which they are written again
            if offset < end || old != there {
                return None;
            }
            end = offset.checked_add(new).filter(|&end| end <= tag.new_len)?;
            ranges.push(Range {
                offset,
                old: fields.bytes(usize::try_from(old).ok()?)?.to_vec(),
                new: fields.bytes(usize::try_from(new).ok()?)?.to_vec(),
            });
        }
        // a witness of other bytes could call an old FILE new, and the save would be lost
        let whole = fields.0.is_empty() && head.witness == Witness::of(&ranges);
        whole.then_some(Self {
            old_len: tag.old_len,
            new_len: tag.new_len,
            sidecar_of: head.sidecar_of,
            ranges,
        })
    }
}

/// The error for a record of more than one may hold.
fn beyond() -> Error {
    unsupported("a journal beyond all bounds")
}

/// The length of the body and the SHA-256 that a footer says, if it is one.
fn parse_footer(footer: &[u8]) -> Option<(u64, [u8; 32])> {
    let mut fields = Fields(footer);
    if fields.array()? != FOOTER_MAGIC {
        return None;
    }
    Some((fields.u64_be()?, fields.array()?))
}

impl Range {
    /// Whether `found`, what FILE now holds at the range, is what an interrupted save can leave there.
    ///
    /// Each sector is old or new; where writing was stopped in its middle, it begins as the one and ends as the other. Bytes
    /// beyond the old end of FILE are zero before they are written.
    #[must_use]
    pub fn explains(&self, found: &[u8]) -> bool {
        let mut old = self.old.clone();
        // a file that is made longer is filled with zeros until its bytes are written
        old.resize(self.new.len(), 0);
        if found.len() != self.new.len() {
            return false;
        }
        let sectors = |bytes| sectors_of(self.offset, bytes);
        let mut both = sectors(&old).zip(sectors(&self.new));
        sectors(found).all(|found| {
            both.next()
                .is_some_and(|(old, new)| cut_from_both(found, old, new))
        })
    }
}

/// Whether `found` begins like one of two and goes on like the other.
fn cut_from_both(found: &[u8], a: &[u8], b: &[u8]) -> bool {
    let common = |with: &[u8]| found.iter().zip(with).take_while(|(x, y)| x == y).count();
    let tail = |with: &[u8], from: usize| found.get(from..) == with.get(from..);
    tail(b, common(a)) || tail(a, common(b))
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
                sidecar_of: Some((1, 2)),
                ranges,
            }
        })
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in record(), before in 0usize..50) {
            let file = [vec![0; before], bytes(&record)].concat();
            prop_assert_eq!(record.len(), Some((file.len() - before) as u64));
            for sector in file[before..].chunks(512) {
                prop_assert_eq!(Tag::parse(sector), Some(record.tag()));
            }
            prop_assert_eq!(Head::of_sector(&file[before..]).unwrap().record_len(), record.len());
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
            record in record(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let mut body = unframed(&bytes(&record), record.tag()).unwrap();
            body.truncate(record.body_len() as usize);
            for (at, value) in &changes {
                let at = at.index(body.len());
                body[at] = *value;
            }
            match Record::parse(record.tag(), &body) {
                Some(found) => {
                    let end = |range: &Range| range.offset + range.new.len() as u64;
                    prop_assert!(found.ranges.iter().all(|range| end(range) <= found.new_len));
                }
                None => prop_assert!(!changes.is_empty()),
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
