//! The sectors that a journal record is made of: each one says what it is and of which save.
//!
//! The offsets are in the table of [`super::journal`].

use crate::error::Result;
use crate::source::{Fields, at_most};

/// Where a record in FILE's tail may begin: at a multiple of this many bytes.
pub const ALIGNMENT: u64 = 4096;
/// The smallest unit that a disk writes whole, in bytes.
pub const SECTOR: u64 = 512;
/// Bytes of a sector.
pub(super) const SECTOR_LEN: usize = 512;
/// The longest record, in bytes: old and new bytes, what describes them, and the tags of the sectors.
pub const RECORD_LIMIT: u64 = 144 << 20;
const MAGIC: [u8; 8] = *b"\x89ASDFjrn";
/// Bytes in front of each sector's part of the body.
pub(super) const TAG_LEN: usize = 24;
/// Bytes of the body in each sector.
const PART: u64 = 488;
/// Bytes of the footer.
pub(super) const FOOTER_LEN: u64 = 48;

/// What each sector of a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Length of FILE before.
    pub old_len: u64,
    /// Length of FILE after.
    pub new_len: u64,
}

impl Tag {
    /// Parses the start of a sector; `None` if it is not one of a record.
    #[must_use]
    pub fn parse(sector: &[u8]) -> Option<Self> {
        let mut fields = Fields(sector);
        if fields.array()? != MAGIC {
            return None;
        }
        Some(Self {
            old_len: fields.u64_be()?,
            new_len: fields.u64_be()?,
        })
    }

    /// The start of each sector of the record.
    pub(super) fn bytes(self) -> [u8; TAG_LEN] {
        let mut out = [0; TAG_LEN];
        let fields = [
            MAGIC,
            self.old_len.to_be_bytes(),
            self.new_len.to_be_bytes(),
        ];
        for (to, from) in out.iter_mut().zip(fields.as_flattened()) {
            *to = *from;
        }
        out
    }

    /// Where a record with these lengths begins when it is in FILE's tail.
    #[must_use]
    pub fn base(self) -> Option<u64> {
        self.old_len
            .max(self.new_len)
            .checked_next_multiple_of(ALIGNMENT)
    }
}

/// Whether a crash may have left these bytes of a sector of a record, of which the end may be missing.
pub(super) fn may_be_ours(sector: &[u8]) -> bool {
    let ours = sector.iter().zip(&MAGIC).take_while(|(a, b)| a == b);
    let ours = ours.count();
    // nothing is known of the bytes behind the magic; where it was cut off, the rest was not written
    let mut rest = sector.iter().skip(ours);
    ours == MAGIC.len() || rest.all(|&byte| byte == 0)
}

/// The parts of `bytes`, which lie at `offset` in a file, that a disk writes whole: one for each sector that they touch.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a remainder is less than the length of a sector"
)]
pub(super) fn sectors_of(offset: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    // the first part ends where a sector of the file ends, not 512 bytes behind `offset`
    let first = SECTOR_LEN - (offset % SECTOR) as usize;
    let (head, rest) = bytes.split_at(first.min(bytes.len()));
    let head = std::iter::once(head).filter(|head| !head.is_empty());
    head.chain(rest.chunks(SECTOR_LEN))
}

/// Length in bytes of the sectors that a body with its footer takes; `None` beyond all bounds.
pub(super) fn framed(body_len: u64) -> Option<u64> {
    let sectors = body_len.checked_add(FOOTER_LEN)?.div_ceil(PART);
    sectors
        .checked_mul(SECTOR)
        .filter(|&len| len <= RECORD_LIMIT)
}

/// Zeros between a body and its footer.
pub(super) fn padding(body_len: u64) -> Vec<u8> {
    // the footer has to end a sector, so that a record can be found from the end of the file
    let over = body_len
        .saturating_add(FOOTER_LEN)
        .checked_rem(PART)
        .unwrap_or(0);
    let len = if over == 0 {
        0
    } else {
        PART.saturating_sub(over)
    };
    vec![0; at_most(len, SECTOR_LEN)]
}

/// Gives what takes a body in parts, and hands it on to `out` in sectors.
pub(super) fn framer(
    tag: [u8; TAG_LEN],
    out: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> impl FnMut(&[u8]) -> Result<()> {
    let mut sector = Vec::with_capacity(SECTOR_LEN);
    move |mut bytes| {
        while !bytes.is_empty() {
            // each sector says of which save it is: the next mount recognises a record of which the disk has only some sectors
            if sector.is_empty() {
                sector.extend_from_slice(&tag);
            }
            let room = SECTOR_LEN.saturating_sub(sector.len()).min(bytes.len());
            let (now, later) = bytes.split_at(room);
            sector.extend_from_slice(now);
            bytes = later;
            if sector.len() == SECTOR_LEN {
                out(&sector)?;
                sector.clear();
            }
        }
        Ok(())
    }
}

/// The body in sectors; `None` if one of them has another tag.
pub(super) fn unframed(sectors: &[u8], tag: Tag) -> Option<Vec<u8>> {
    let tag = tag.bytes();
    let mut body = Vec::with_capacity(sectors.len());
    for sector in sectors.chunks(SECTOR_LEN) {
        body.extend_from_slice(sector.strip_prefix(&tag)?);
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sectors_of_bytes_are_all_of_them_and_none_goes_over_an_edge(
            offset in prop_oneof![0..4 * SECTOR, u64::MAX - 3 * SECTOR..=u64::MAX], len in 0_usize..4 * SECTOR_LEN,
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut at = u128::from(offset);
            for sector in sectors_of(offset, &bytes) {
                let end = at + sector.len() as u128;
                prop_assert!(at < end && (end - 1) / 512 == at / 512);
                at = end;
            }
            prop_assert_eq!(sectors_of(offset, &bytes).collect::<Vec<_>>().concat(), bytes);
        }
    }
}
