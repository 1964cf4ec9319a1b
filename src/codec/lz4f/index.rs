//! The checkpoints of linked blocks as bytes of a seek index. Each is:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | offset in the payload |
//! | 1 | 0 between frames; else bit 7, the block size code of BD in bits 6-4, linked, block and content checksum in bits 0-2 |
//! | 4 + n | length of the decoded bytes before it, and these |
//!
//! Numbers are little-endian.

use std::sync::Arc;

use super::frame::{Frame, Walker, block_max};
use super::{DICTIONARY, Spot};
use crate::codec::entries::IndexEntry;
use crate::source::Fields;

const LINKED: u8 = 1;
const BLOCK_CHECKSUM: u8 = 2;
const CONTENT_CHECKSUM: u8 = 4;
const IN_FRAME: u8 = 0x80;

impl IndexEntry for Spot {
    fn position(&self) -> u64 {
        self.walker.at
    }

    fn export(&self, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.extend(self.walker.at.to_le_bytes());
        bytes.push(self.walker.frame.map_or(Some(0), frame_byte)?);
        bytes.extend(u32::try_from(self.before.len()).ok()?.to_le_bytes());
        bytes.extend(self.before.iter());
        Some(())
    }

    fn import(_decoded: u64, fields: &mut Fields<'_>) -> Option<Self> {
        let at = fields.u64()?;
        let frame = match fields.u8()? {
            0 => None,
            byte => Some(frame(byte)?),
        };
        let len = usize::try_from(fields.u32()?).ok()?;
        let before = fields.bytes(len).filter(|_| len <= DICTIONARY)?;
        Some(Self {
            walker: Walker { at, frame, idle: 0 },
            before: Arc::new(before.to_vec()),
        })
    }
}

/// The byte for a place within `frame`; `None` if its block size is none that BD can say.
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

/// The frame that a byte of [`frame_byte`] stands for; `None` if it is none of these.
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

    fn spot(at: u64, len: usize) -> Spot {
        let frame = Frame {
            linked: true,
            block_checksum: at.is_multiple_of(2),
            content_checksum: !at.is_multiple_of(2),
            content_size: None,
            block_max: 256 << 10,
        };
        let walker = Walker {
            at,
            frame: (at > 7).then_some(frame),
            idle: 0,
        };
        let before = Arc::new(vec![3; len]);
        Spot { walker, before }
    }

    #[test]
    fn what_is_exported_is_imported_if_it_can_be() {
        for (at, len) in [(7, 20), (300, DICTIONARY), (999, 0)] {
            let spot = spot(at, len);
            let mut bytes = Vec::new();
            spot.export(&mut bytes).unwrap();
            let found = Spot::import(0, &mut Fields(&bytes)).unwrap();
            assert_eq!((found.walker.at, found.before.len()), (at, len));
            assert_eq!(found.walker.frame, spot.walker.frame);
            let cut = &bytes[..bytes.len() - 1];
            assert!(Spot::import(0, &mut Fields(cut)).is_none());
        }
        let mut bytes = Vec::new();
        spot(301, DICTIONARY + 1).export(&mut bytes).unwrap();
        assert!(Spot::import(0, &mut Fields(&bytes)).is_none());
    }
}
