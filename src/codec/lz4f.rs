//! LZ4 frames: code `lz4f`, and what some writers label `lz4\0`.
//!
//! The frame walk is ours, over the block functions of `lz4_flex`, because a frame reader cannot be entered in the middle.
//! Written from lz4/lz4, doc/lz4_Frame_format.md 1.6.4:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | magic `04 22 4D 18`; `50..5F 2A 4D 18`, bytes: a skippable frame |
//! | 1 | FLG: version (01) in bits 7-6, independent blocks, block checksums, content size, content checksum, 0, dictionary id |
//! | 1 | BD: greatest decoded size of a block in bits 6-4: 4 to 7 for 64 KiB, 256 KiB, 1 MiB, 4 MiB |
//! | 8 | content size, if so flagged |
//! | 1 | second byte of XXH32 of FLG to here |
//! | 4 n | blocks: size (top bit: stored uncompressed), bytes, XXH32 of the bytes if so flagged; a size of 0 ends the frame |
//! | 4 | XXH32 of the content, if so flagged |
//!
//! Header and block checksums are verified. The content checksum covers a whole frame: it is verified by a decoder that has
//! been through all of one, at its end, but one that began in the middle can't. As for zlib, one that is cut off is no error.
//!
//! Independent blocks are entries at once, if every block but the last of a frame is full. That follows, by walking the
//! headers to the end and decoding the last block (see [`Frames::scan`]), from the sizes that the frames and the ASDF block
//! say they have; a decoder that meets a short block all the same ends there, and so does each later one. Linked
//! blocks need the 64 KiB before them: checkpoints with that dictionary are left behind while decoding.

mod content;
mod frame;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lz4_flex::block;

use super::caller::Steps;
use super::entries::Entries;
use super::headers::Headers;
use super::input::{Pending, keep_last};
use super::splice::{u32_len, write};
use super::{Codec, Cursor, Framed, Stream};
use crate::error::{Error, Result, corrupt, lock, unsupported};
use crate::source::{PooledBuf, Source, checked_end, each_piece, len_u64};
use content::FrameContent;
use frame::{
    FLG_CONTENT_SIZE, FLG_INDEPENDENT, FLG_VERSION, FrameBlock, FramePart, MAGIC, STORED, Walker,
    first_frame, header_checksum,
};

/// How far back a match can reach.
const DICTIONARY: usize = 64 << 10;
/// Distance of the checkpoints in linked blocks, in decoded bytes; more if the block is so large that there would be more
/// than [`MAX_CHECKPOINTS`].
const CHECKPOINT_SPACING: u64 = 8 << 20;
const MAX_CHECKPOINTS: u64 = 256;
/// What is written: independent blocks of 4 MiB.
const WRITTEN_BLOCK: usize = 4 << 20;
const WRITTEN_BD: u8 = 7 << 4;

/// The LZ4 frame codec.
pub(super) struct Lz4f;

impl Codec for Lz4f {
    fn code(&self) -> [u8; 4] {
        *b"lz4f"
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        let first = first_frame(stored.as_ref())?;
        let linked = first.is_some_and(|frame| frame.linked);
        let table = BlockTable {
            scanned: linked,
            full: false,
            entries: checkpoints(data_size),
        };
        let frames = Frames {
            stored,
            data_size,
            linked,
            block_max: first.map_or(0, |frame| frame.block_max),
            table: Arc::new(Mutex::new(table)),
            lacks_end: Arc::default(),
        };
        if data_size > 0 && frames.stored.is_empty() {
            return Err(corrupt("no LZ4 frame"));
        }
        Ok(Framed {
            framing: "frame",
            stream: Arc::new(frames),
        })
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        write(out, &written_header(decoded.len()))?;
        let mut packed = PooledBuf::of(block::get_maximum_output_size(WRITTEN_BLOCK));
        each_piece(decoded, 0..decoded.len(), WRITTEN_BLOCK, |bytes| {
            // a block that does not get smaller is written as it is: the format allows none that is longer than its data
            let smaller = encode_block(bytes, &mut packed)
                .and_then(|n| packed.get(..n))
                .filter(|packed| packed.len() < bytes.len());
            let (body, flag) = smaller.map_or((bytes, STORED), |packed| (packed, 0));
            let size = u32_len(body.len())? | flag;
            write(out, &size.to_le_bytes())?;
            write(out, body)
        })?;
        write(out, &0u32.to_le_bytes())
    }
}

/// Magic and descriptor of the frame that is written.
fn written_header(content_size: u64) -> Vec<u8> {
    let mut header = MAGIC.to_le_bytes().to_vec();
    let mut descriptor = vec![FLG_VERSION | FLG_INDEPENDENT | FLG_CONTENT_SIZE, WRITTEN_BD];
    descriptor.extend(content_size.to_le_bytes());
    descriptor.push(header_checksum(&descriptor));
    header.extend(descriptor);
    header
}

/// Decodes one LZ4 block into `out`, which may be longer, and gives the decoded length. The block may refer to the bytes `before` it.
///
/// # Errors
/// [`Error::Corrupt`] if the block is damaged or larger than `out`.
pub(super) fn decode_block(packed: &[u8], before: &[u8], out: &mut [u8]) -> Result<usize> {
    let decoded = if before.is_empty() {
        block::decompress_into(packed, out)
    } else {
        block::decompress_into_with_dict(packed, out, before)
    };
    decoded.map_err(|cause| corrupt(format!("LZ4 block: {cause}")))
}

/// Encodes `bytes` as one LZ4 block into `out`, and gives its length; `None` if it does not fit.
pub(super) fn encode_block(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    block::compress_into(bytes, out).ok()
}

/// No checkpoints yet, for a payload of so many decoded bytes.
fn checkpoints(data_size: u64) -> Entries<Spot> {
    let spacing = data_size.div_ceil(MAX_CHECKPOINTS).max(CHECKPOINT_SPACING);
    Entries::spaced(spacing, Spot::default())
}

/// Where a decoder can start: a header, and the decoded bytes before it if its block is linked to them.
#[derive(Clone, Default)]
struct Spot {
    walker: Walker,
    before: Arc<Vec<u8>>,
}

/// The entries of a payload, and how they were found.
struct BlockTable {
    /// Whether [`Frames::scan`] was tried, or would be of no use.
    scanned: bool,
    /// Whether its entries are those of full blocks.
    full: bool,
    entries: Entries<Spot>,
}

/// The decoded bytes of a payload of LZ4 frames.
#[derive(Clone)]
struct Frames {
    stored: Arc<dyn Source>,
    data_size: u64,
    /// Whether the blocks of the first frame are linked, and the greatest decoded size of one.
    linked: bool,
    block_max: usize,
    table: Arc<Mutex<BlockTable>>,
    lacks_end: Arc<AtomicBool>,
}

impl Frames {
    /// The last entry at or before `offset`, after a scan if that may find more than the first.
    fn spot(&self, offset: u64) -> (u64, Spot) {
        let mut table = lock(&self.table);
        // Near the start a scan finds no entry that saves much.
        if offset >= len_u64(DICTIONARY) {
            self.scan_once(&mut table);
        }
        table.entries.at(offset)
    }

    /// Looks at all block headers, the first time; again if the medium has refused some, or the reader was gone meanwhile.
    fn scan_once(&self, table: &mut BlockTable) {
        if !table.scanned {
            let scan = self.scan();
            // What the medium refuses now it may give later.
            table.scanned = !matches!(scan, Err(Error::Io { .. }));
            // A payload that is damaged, or has short blocks in the middle, is read from its start.
            if let Ok(entries) = scan {
                (table.entries, table.full) = (entries, true);
            }
        }
    }

    /// Records that a block in the middle of a frame is short.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the scan has taken all blocks for full: the entries that it found are dropped then.
    fn meet_short(&self) -> Result<()> {
        let mut table = lock(&self.table);
        self.scan_once(&mut table);
        if !table.full {
            return Ok(());
        }
        // their offsets were sums of full blocks, so all behind the short one are wrong
        table.entries = checkpoints(self.data_size);
        Err(corrupt(format!(
            "an LZ4 block that is not full, though only full ones have {} bytes",
            self.data_size
        )))
    }

    /// The entries of a payload whose blocks are independent.
    ///
    /// Block headers have no decoded size, so all blocks of a frame but the last are taken for full, and the last is decoded.
    /// No block can be longer than full: so if the sum is `data_size`, and that is right, none was shorter, and every offset is
    /// right. A content size is compared, too.
    fn scan(&self) -> Result<Entries<Spot>> {
        let mut entries = Entries::new(self.data_size, Spot::default());
        let mut headers = Headers::new(self.stored.as_ref());
        let (mut walker, mut steps) = (Walker::default(), Steps::default());
        let mut last: Option<FrameBlock> = None;
        let (mut start, mut end) = (0u64, 0u64);
        let (mut out, mut input) = (PooledBuf::default(), PooledBuf::default());
        loop {
            steps.check()?;
            // an entry stands in front of a block header, and `next` moves behind it
            let before = walker.clone();
            match walker.next(&mut headers)? {
                FramePart::Block(block) => {
                    // Another one follows, so it is not the last of its frame.
                    if let Some(full) = last.replace(block) {
                        if full.frame.linked {
                            return Err(unsupported("linked blocks"));
                        }
                        end = end.saturating_add(len_u64(full.frame.block_max));
                    }
                    entries.add(
                        end,
                        Spot {
                            walker: before,
                            ..Spot::default()
                        },
                    );
                }
                FramePart::FrameEnd(frame) => {
                    if let Some(block) = last.take() {
                        out.reset(block.frame.block_max);
                        let len = block.decode(self.stored.as_ref(), &[], &mut out, &mut input)?;
                        end = end.saturating_add(len_u64(len));
                    }
                    let len = end.saturating_sub(start);
                    if frame.content_size.is_some_and(|size| size != len) {
                        return Err(corrupt("a frame of another size than its blocks"));
                    }
                    start = end;
                }
                FramePart::End if end == self.data_size => return Ok(entries),
                FramePart::End => return Err(corrupt("blocks that are not full")),
            }
            // stops early: a hostile payload may have millions of headers
            if end > self.data_size {
                return Err(corrupt("more blocks than data"));
            }
        }
    }

    /// Leaves a checkpoint at the block header `walker` with the bytes `before` it, unless there is one nearby.
    fn remember(&self, offset: u64, walker: &Walker, before: &[u8]) {
        let mut table = lock(&self.table);
        if table.entries.wants(offset) {
            let spot = Spot {
                walker: walker.clone(),
                before: Arc::new(before.to_vec()),
            };
            table.entries.add(offset, spot);
        }
    }
}

impl Stream for Frames {
    fn entry(&self, offset: u64) -> u64 {
        self.spot(offset).0
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let (position, spot) = self.spot(offset);
        Ok(Box::new(FrameCursor {
            block_max: self.block_max,
            stream: self,
            walker: spot.walker,
            position,
            content: FrameContent::default(),
            history: spot.before.to_vec(),
            pending: Pending::default(),
            input: PooledBuf::default(),
        }))
    }

    fn parallel(&self) -> bool {
        !self.linked
    }

    fn lacks_end(&self) -> bool {
        self.lacks_end.load(Ordering::Relaxed)
    }

    fn thin_out(&self) {
        let mut table = lock(&self.table);
        table.entries.thin_out();
    }

    fn resized(&self, data_size: u64) -> Option<Arc<dyn Stream>> {
        // What a scan finds of independent blocks holds for one length alone; checkpoints hold for each.
        let resized = self.linked.then(|| self.clone())?;
        Some(Arc::new(Self {
            data_size,
            ..resized
        }))
    }

    fn held(&self) -> u64 {
        let table = lock(&self.table);
        let rest = table.entries.rest();
        rest.iter()
            .map(|(_, spot)| len_u64(spot.before.len().saturating_add(size_of::<(u64, Spot)>())))
            .sum()
    }
}

/// A decoder that runs through the blocks.
struct FrameCursor {
    stream: Arc<Frames>,
    walker: Walker,
    position: u64,
    content: FrameContent,
    /// The last decoded bytes before the buffer of the running read, up to [`DICTIONARY`] of them, if blocks are linked.
    history: Vec<u8>,
    pending: Pending,
    input: PooledBuf<u8>,
    /// The greatest decoded size of a block in the frames so far, the next one included: memory for such a block is announced.
    block_max: usize,
}

impl Cursor for FrameCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.stream.data_size)?;
        let stream = Arc::clone(&self.stream);
        let mut headers = Headers::new(stream.stored.as_ref());
        let mut given = self.pending.take(buf);
        let announced = self.block_max;
        while given == 0 && !buf.is_empty() && self.block_max == announced {
            given = self.read_block(&stream, &mut headers, buf)?;
        }
        self.position = self.position.saturating_add(len_u64(given));
        self.end_frame(&mut headers)?;
        Ok(given)
    }

    fn held(&self) -> u64 {
        let buffers = self
            .history
            .capacity()
            .saturating_add(self.input.capacity());
        self.pending.held().saturating_add(len_u64(buffers))
    }

    fn needed(&self) -> u64 {
        let block = len_u64(self.block_max).saturating_mul(2);
        block.max(self.held())
    }

    fn decoded_to(&self) -> u64 {
        self.position.saturating_add(len_u64(self.pending.len()))
    }
}

impl FrameCursor {
    /// Decodes the next block, or ends a frame; gives how much of `buf` that has filled. A block that may be larger than all before is not
    /// decoded yet: `block_max` says so.
    fn read_block(
        &mut self,
        stream: &Frames,
        headers: &mut Headers,
        buf: &mut [u8],
    ) -> Result<usize> {
        let source = stream.stored.as_ref();
        let at = self.walker.clone();
        let block = match self.walker.next(headers)? {
            FramePart::Block(block) => block,
            FramePart::FrameEnd(frame) => {
                if at.frame.is_none() {
                    self.content = FrameContent::of(frame);
                }
                self.content.end(source, self.walker.at)?;
                self.history.clear();
                return Ok(0);
            }
            FramePart::End => return Err(corrupt("LZ4 frames end before the data does")),
        };
        if block.frame.block_max > self.block_max {
            // The walk goes back, so that the next read meets the block again, with memory for it.
            (self.block_max, self.walker) = (block.frame.block_max, at);
            return Ok(0);
        }
        if at.frame.is_none() {
            self.content = FrameContent::of(block.frame);
        } else if self.content.short {
            stream.meet_short()?;
        }
        if self.input.capacity() < block.len {
            self.input.reset(block.frame.block_max);
        }
        // in front of the block: a decoder that starts there needs what came before it
        stream.remember(self.position, &at, &self.history);
        let (size, linked) = (block.frame.block_max, block.frame.linked);
        // the decoded length is known only afterwards: a smaller buffer than a full block gets a copy
        let direct = buf.len() >= size;
        let out = match buf.get_mut(..size) {
            Some(out) => out,
            None => self.pending.space(size),
        };
        let len = block.decode(source, &self.history, out, &mut self.input)?;
        let fresh = out.get(..len).unwrap_or_default();
        self.content.take(&block, fresh);
        if linked {
            keep_last(&mut self.history, DICTIONARY, fresh);
        }
        if direct {
            return Ok(len);
        }
        self.pending.keep(len);
        Ok(self.pending.take(buf))
    }

    /// Compares the checksum of the content if the frame ends just here.
    fn end_frame(&mut self, headers: &mut Headers) -> Result<()> {
        if self.pending.len() > 0 || self.content.sum.is_none() {
            return Ok(());
        }
        // An end mark that is missing is not missed before more bytes are wanted.
        let mut walker = self.walker.clone();
        let end = walker.next(headers);
        let is_whole = matches!(&end, Ok(FramePart::FrameEnd(_)) if walker.at <= headers.len());
        if self.position >= self.stream.data_size && !is_whole {
            self.stream.lacks_end.store(true, Ordering::Relaxed);
        }
        match end {
            Ok(FramePart::FrameEnd(_)) => {
                self.content.end(self.stream.stored.as_ref(), walker.at)?;
                self.history.clear();
                self.walker = walker;
                Ok(())
            }
            Err(error @ Error::Io { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
