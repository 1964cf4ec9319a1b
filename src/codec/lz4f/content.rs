//! What a decoder has seen of the content of a frame.

use std::hash::Hasher;

use twox_hash::XxHash32;

use super::super::headers::array_at;
use super::frame::{Frame, FrameBlock};
use crate::error::{Result, corrupt};
use crate::source::Source;

/// Length of the checksum.
const SUM_LEN: u64 = 4;

/// The content of the frame that a decoder is in, as far as it has seen it.
#[derive(Debug, Default)]
pub(super) struct FrameContent {
    /// The checksum so far; `None` if the frame has none, or the decoder did not begin at its start.
    pub(super) sum: Option<XxHash32>,
    /// Whether the last block was not full.
    pub(super) short: bool,
}

impl FrameContent {
    /// The content of a frame that begins: no bytes yet.
    pub(super) fn of(frame: Frame) -> Self {
        Self {
            sum: frame.content_checksum.then(XxHash32::default),
            short: false,
        }
    }

    /// Takes the decoded bytes of a block.
    pub(super) fn take(&mut self, block: &FrameBlock, bytes: &[u8]) {
        self.short = bytes.len() < block.frame.block_max;
        if let Some(sum) = &mut self.sum {
            sum.write(bytes);
        }
    }

    /// Ends the frame at `end` in the payload, and compares its checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if it is another one.
    pub(super) fn end(&mut self, stored: &dyn Source, end: u64) -> Result<()> {
        let Self { sum, .. } = std::mem::take(self);
        // A decoder that began in the middle has none; a checksum that is cut off is no error.
        let Some(sum) = sum.filter(|_| end <= stored.len()) else {
            return Ok(());
        };
        let wanted = u32::from_le_bytes(array_at(stored, end.saturating_sub(SUM_LEN))?);
        if sum.finish_32() != wanted {
            return Err(corrupt("LZ4 frame does not match its content checksum"));
        }
        Ok(())
    }
}
