//! The headers of LZ4 frames: a walk from block to block, and the decoding of one.

use twox_hash::XxHash32;

use super::super::headers::{Headers, array_at, read_into};
use super::super::input::MAX_IDLE;
use super::decode_block;
use crate::error::{Result, corrupt, unsupported};
use crate::source::{PooledBuf, Source, len_u64};

/// What a frame begins with, little-endian (LZ4 Frame Format 1.6, "Magic Number").
pub(super) const MAGIC: u32 = 0x184D_2204;
/// Skippable frames have magics from here to here + 15.
const SKIPPABLE: u32 = 0x184D_2A50;
/// Bits of the descriptor's first byte, FLG: the version, which is 01, and what the frame has.
pub(super) const FLG_VERSION: u8 = 0b0100_0000;
const FLG_VERSION_MASK: u8 = 0b1100_0000;
pub(super) const FLG_INDEPENDENT: u8 = 0b0010_0000;
const FLG_BLOCK_CHECKSUM: u8 = 0b0001_0000;
pub(super) const FLG_CONTENT_SIZE: u8 = 0b0000_1000;
const FLG_CONTENT_CHECKSUM: u8 = 0b0000_0100;
const FLG_DICTIONARY: u8 = 0b0000_0001;
/// Set in a block's size: the bytes are stored as they are.
pub(super) const STORED: u32 = 1 << 31;

/// What a frame's descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Whether a block may refer to the 64 KiB decoded before it.
    pub(super) linked: bool,
    /// Whether each block is followed by the XXH32 of its stored bytes.
    pub(super) block_checksum: bool,
    /// Whether the end mark is followed by the XXH32 of all decoded bytes.
    pub(super) content_checksum: bool,
    /// Decoded size of the frame, if it says so; not 0.
    pub(super) content_size: Option<u64>,
    /// Greatest decoded size of a block.
    pub(super) block_max: usize,
}

/// A block of a frame, as its header has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameBlock {
    /// The frame that it belongs to.
    pub(super) frame: Frame,
    /// Offset of its bytes in the payload.
    pub(super) at: u64,
    /// Stored bytes.
    pub(super) len: usize,
    /// Whether these are the decoded bytes themselves.
    pub(super) stored: bool,
}

/// What a walk along the headers meets.
pub(super) enum FramePart {
    Block(FrameBlock),
    FrameEnd(Frame),
    End,
}

/// A position in the payload: at the header of a block, or between frames.
#[derive(Debug, Clone, Default)]
pub(super) struct Walker {
    /// Offset of the next header in the payload.
    pub(super) at: u64,
    /// The frame that the header is in; none between frames.
    pub(super) frame: Option<Frame>,
    /// Frames without data that were just passed.
    pub(super) idle: u32,
}

impl Walker {
    /// Reads the next header and moves behind what it heads.
    pub(super) fn next(&mut self, headers: &mut Headers) -> Result<FramePart> {
        let Some(frame) = self.frame else {
            return self.enter(headers);
        };
        // "Data Blocks": 0 is the end mark, and the top bit says that the bytes are stored as they are.
        let size = u32::from_le_bytes(headers.array(self.at)?);
        self.skip(4);
        if size == 0 {
            self.skip(if frame.content_checksum { 4 } else { 0 });
            self.frame = None;
            return Ok(FramePart::FrameEnd(frame));
        }
        let len = usize::try_from(size & !STORED).unwrap_or(usize::MAX);
        // a block that got larger is stored as it is, so this bounds the buffer for it
        if len == 0 || len > frame.block_max {
            return Err(corrupt(format!(
                "LZ4 block of {len} bytes in a frame of blocks up to {}",
                frame.block_max
            )));
        }
        let block = FrameBlock {
            frame,
            at: self.at,
            len,
            stored: size & STORED != 0,
        };
        self.skip(len_u64(len));
        self.skip(if frame.block_checksum { 4 } else { 0 });
        self.idle = 0;
        Ok(FramePart::Block(block))
    }

    /// Reads the header of the next frame; skippable ones are passed by.
    fn enter(&mut self, headers: &mut Headers) -> Result<FramePart> {
        while self.at < headers.len() {
            self.idle = self.idle.saturating_add(1);
            // a hostile payload of empty frames would be walked for hours
            if self.idle > MAX_IDLE {
                return Err(corrupt(format!("more than {MAX_IDLE} frames without data")));
            }
            let magic = u32::from_le_bytes(headers.array(self.at)?);
            self.skip(4);
            if magic & !0xF == SKIPPABLE {
                let len = u32::from_le_bytes(headers.array(self.at)?);
                self.skip(4);
                self.skip(len.into());
            } else if magic == MAGIC {
                self.frame = Some(self.descriptor(headers)?);
                return self.next(headers);
            } else {
                return Err(corrupt(format!(
                    "magic {magic:08x} is not that of an LZ4 frame"
                )));
            }
        }
        Ok(FramePart::End)
    }

    /// Reads a frame descriptor and moves behind it.
    fn descriptor(&mut self, headers: &mut Headers) -> Result<Frame> {
        let [flg, bd] = headers.array(self.at)?;
        if flg & FLG_VERSION_MASK != FLG_VERSION {
            return Err(unsupported(format!("LZ4 frame version {}", flg >> 6)));
        }
        if flg & FLG_DICTIONARY != 0 {
            return Err(unsupported("LZ4 frame with an external dictionary"));
        }
        // "Frame Descriptor": the header checksum covers FLG to the content size.
        let (long, short);
        let descriptor: &[u8] = if flg & FLG_CONTENT_SIZE != 0 {
            long = headers.array::<10>(self.at)?;
            &long
        } else {
            short = [flg, bd];
            &short
        };
        self.skip(len_u64(descriptor.len()));
        let [checksum] = headers.array(self.at)?;
        self.skip(1);
        if header_checksum(descriptor) != checksum {
            return Err(corrupt("LZ4 frame header does not match its checksum"));
        }
        let code = (bd >> 4) & 7;
        let block_max =
            block_max(code).ok_or_else(|| corrupt(format!("LZ4 block size code {code}")))?;
        Ok(Frame {
            linked: flg & FLG_INDEPENDENT == 0,
            block_checksum: flg & FLG_BLOCK_CHECKSUM != 0,
            content_checksum: flg & FLG_CONTENT_CHECKSUM != 0,
            content_size: descriptor
                .get(2..)
                .and_then(|size| size.first_chunk())
                .map(|&size| u64::from_le_bytes(size))
                .filter(|&size| size > 0),
            block_max,
        })
    }

    fn skip(&mut self, len: u64) {
        self.at = self.at.saturating_add(len);
    }
}

/// Greatest decoded size of a block, from its code in BD.
pub(super) fn block_max(code: u8) -> Option<usize> {
    match code {
        4 => Some(64 << 10),
        5 => Some(256 << 10),
        6 => Some(1 << 20),
        7 => Some(4 << 20),
        _ => None,
    }
}

impl FrameBlock {
    /// Decodes the block into `out`, of at least [`Frame::block_max`] bytes, with the decoded bytes before it.
    pub(super) fn decode(
        &self,
        stored: &dyn Source,
        before: &[u8],
        out: &mut [u8],
        input: &mut PooledBuf<u8>,
    ) -> Result<usize> {
        let packed = read_into(stored, self.at, self.len, input)?;
        if self.frame.block_checksum {
            let sum = array_at(stored, self.at.saturating_add(len_u64(self.len)))?;
            if xxh32(packed) != u32::from_le_bytes(sum) {
                return Err(corrupt("LZ4 block does not match its checksum"));
            }
        }
        if self.stored {
            let out = out.get_mut(..self.len).unwrap_or_default();
            out.copy_from_slice(packed);
            return Ok(self.len);
        }
        let decoded = decode_block(packed, before, out)?;
        // a reader needs one byte at least, and would ask again for ever
        if decoded == 0 {
            return Err(corrupt("LZ4 block without data"));
        }
        Ok(decoded)
    }
}

/// Descriptor of the first frame that holds data.
pub(super) fn first_frame(stored: &dyn Source) -> Result<Option<Frame>> {
    let mut headers = Headers::new(stored);
    let mut walker = Walker::default();
    loop {
        match walker.next(&mut headers)? {
            FramePart::Block(block) => return Ok(Some(block.frame)),
            FramePart::FrameEnd(_) => {}
            FramePart::End => return Ok(None),
        }
    }
}

/// The checksum of LZ4 frames: XXH32 with seed 0.
fn xxh32(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

/// The checksum of a frame descriptor.
pub(super) fn header_checksum(descriptor: &[u8]) -> u8 {
    xxh32(descriptor).to_le_bytes()[1]
}
