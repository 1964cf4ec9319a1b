//! The checkpoints of linked blocks as bytes, to be kept for another mount. Each is:
//!
//! | bytes | what |
//! |---|---|
//! | 8 + 8 | decoded offset, offset in the payload |
//! | 1 | 0 between frames; else bit 7, the block size code of BD in bits 6-4, linked, block and content checksum in bits 0-2 |
//! | 4 + n | length of the decoded bytes before it, and these |
//!
//! Numbers are little-endian.

use std::sync::Arc;

use super::frame::{Frame, Walker, block_max};
use super::{DICTIONARY, Entries, Spot};
use crate::codec::index_store::Fields;

const LINKED: u8 = 1;
const BLOCK_CHECKSUM: u8 = 2;
const CONTENT_CHECKSUM: u8 = 4;
const IN_FRAME: u8 = 0x80;

/// Appends the entries behind the one at 0; `None` if there are none.
pub(super) fn export(entries: &Entries<Spot>, bytes: &mut Vec<u8>) -> Option<()> {
    for (offset, spot) in entries.rest() {
        bytes.extend(offset.to_le_bytes());
        bytes.extend(spot.walker.at.to_le_bytes());
        bytes.push(spot.walker.frame.map_or(Some(0), frame_byte)?);
        bytes.extend(u32::try_from(spot.before.len()).ok()?.to_le_bytes());
        bytes.extend(spot.before.iter());
    }
    (!entries.rest().is_empty()).then_some(())
}

/// Adds the entries to those at 0; `None` if they can't be those of a payload of so many decoded and stored bytes.
pub(super) fn import(
    mut entries: Entries<Spot>,
    bytes: &[u8],
    decoded_len: u64,
    stored_len: u64,
) -> Option<Entries<Spot>> {
    let mut fields = Fields(bytes);
    let mut last = 0;
    while !fields.0.is_empty() {
        let (offset, at) = (fields.u64()?, fields.u64()?);
        let frame = match fields.u8()? {
            0 => None,
            byte => Some(frame(byte)?),
        };
        let len = usize::try_from(fields.u32()?).ok()?;
        let before = fields.bytes(len)?;
        let forward = offset < decoded_len && at > last && at < stored_len;
        if !forward || len > DICTIONARY || !entries.wants(offset) {
            return None;
        }
        last = at;
        let spot = Spot {
            walker: Walker { at, frame, idle: 0 },
            before: Arc::new(before.to_vec()),
        };
        entries.add(offset, spot);
    }
    Some(entries)
}

fn frame_byte(frame: Frame) -> Option<u8> {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let code = (0..8_u8).find(|&code| block_max(code) == Some(frame.block_max))?;
    Some(
        IN_FRAME
            | code << 4
            | flag(frame.linked, LINKED)
            | flag(frame.block_checksum, BLOCK_CHECKSUM)
            | flag(frame.content_checksum, CONTENT_CHECKSUM),
    )
}

fn frame(byte: u8) -> Option<Frame> {
    Some(Frame {
        linked: byte & LINKED != 0,
        block_checksum: byte & BLOCK_CHECKSUM != 0,
        content_checksum: byte & CONTENT_CHECKSUM != 0,
        // Of no use in the middle of a frame.
        content_size: None,
        block_max: block_max((byte >> 4) & 7).filter(|_| byte & IN_FRAME != 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spots(spots: &[(u64, u64, usize)]) -> Entries<Spot> {
        let mut entries = Entries::spaced(10, Spot::default());
        for &(offset, at, len) in spots {
            let frame = Frame {
                linked: true,
                block_checksum: at % 2 == 0,
                content_checksum: at % 2 == 1,
                content_size: None,
                block_max: 256 << 10,
            };
            let walker = Walker {
                at,
                frame: (at > 7).then_some(frame),
                idle: 0,
            };
            let before = Arc::new(vec![3; len]);
            entries.add(offset, Spot { walker, before });
        }
        entries
    }

    #[test]
    fn what_is_exported_is_imported_if_it_can_be() {
        let import_from = |found: &[(u64, u64, usize)]| {
            let mut bytes = Vec::new();
            export(&spots(found), &mut bytes).unwrap();
            let first = || Entries::spaced(10, Spot::default());
            assert!(import(first(), &bytes[..bytes.len() - 1], 100, 1000).is_none());
            import(first(), &bytes, 100, 1000)
        };
        let good = [(20, 7, 20), (40, 300, DICTIONARY), (99, 999, 0)];
        let found = import_from(&good).unwrap();
        for ((offset, spot), (want, at, len)) in found.rest().iter().zip(good) {
            assert_eq!(
                (*offset, spot.walker.at, spot.before.len()),
                (want, at, len)
            );
            let frame = spot.walker.frame;
            assert_eq!(frame, spots(&good).at(*offset).1.walker.frame);
        }
        for bad in [
            (100, 500, 0),
            (50, 1000, 0),
            (50, 300, 0),
            (50, 301, DICTIONARY + 1),
        ] {
            assert!(import_from(&[(40, 300, 1), bad]).is_none(), "{bad:?}");
        }
        assert!(export(&spots(&[]), &mut Vec::new()).is_none());
    }
}
