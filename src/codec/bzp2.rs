//! The code `bzp2`: one bzip2 stream; several, one behind the other, are read too.
//!
//! A bzip2 stream consists of blocks of up to 900,000 bytes that know nothing of each other. Their lengths are not stored, but
//! each begins with a mark, at any bit. So several blocks are found and decoded at once, on all cores, and each is taken
//! for one only if the block before it ends just there: a mark that occurs by chance costs time, nothing else. Where the
//! blocks are in the decoded bytes is known when they have been decoded once; then each is an entry.

mod batch;
mod bits;
mod block;
mod runs;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use bzip2::Compression;
use bzip2::write::BzEncoder;

use self::batch::{EntryPoint, MOST_AT_ONCE, Ready, decode_batch};
use self::bits::{BitFault, Bits, MARK_BITS, Mark};
use self::block::LEVEL_LEN;
use super::entries::Entries;
use super::headers::array_at;
use super::input::MAX_IDLE;
use super::{Codec, Cursor, Edited, Framed, SEGMENT, Stream};
use crate::error::{Error, Result, corrupt, lock, unsupported};
use crate::source::{Source, at_most, each_piece, len_u64};

/// The code.
const CODE: [u8; 4] = *b"bzp2";

/// Name of the one framing.
const FRAMING: &str = "stream";

/// First bytes of a stream; the level follows, `1` to `9`.
const MAGIC: [u8; 3] = *b"BZh";

/// Length of a stream's header.
const HEADER_LEN: u64 = 4;

/// A block of 900,000 bytes can stand for 46.6 million, and takes at least 25 bytes.
const MAX_RATIO: u64 = 2_000_000;

/// The level that is written where there is none to keep: Python's default.
const BEST_LEVEL: u8 = 9;

/// The codec.
pub(super) struct Bzp2;

impl Codec for Bzp2 {
    fn code(&self) -> [u8; 4] {
        CODE
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        Ok(Framed {
            framing: FRAMING,
            stream: Arc::new(Blocks::new(stored, data_size)?),
        })
    }

    fn max_ratio(&self) -> u64 {
        MAX_RATIO
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        compress(decoded, BEST_LEVEL, out)
    }

    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        // the level says how much memory a reader needs: an edit must not raise it
        let level = match edited.stored_len {
            0 => BEST_LEVEL,
            _ => stream_level(edited.stored.as_ref(), 0)?,
        };
        compress(edited.decoded, level, out)
    }
}

/// Writes a stream of all of `decoded`.
fn compress(decoded: &dyn Source, level: u8, out: &mut dyn Write) -> Result<()> {
    let failed = |cause| Error::io("writing a bzip2 stream", cause);
    let mut encoder = BzEncoder::new(out, Compression::new(level.into()));
    each_piece(decoded, 0..decoded.len(), SEGMENT, |bytes| {
        encoder.write_all(bytes).map_err(failed)
    })?;
    encoder.finish().map_err(failed).map(drop)
}

/// The level of the stream that begins at a stored byte.
fn stream_level(stored: &dyn Source, at: u64) -> Result<u8> {
    let header = array_at::<4>(stored, at)?;
    let [magic @ .., level] = header;
    if magic == MAGIC && (b'1'..=b'9').contains(&level) {
        return Ok(level.saturating_sub(b'0'));
    }
    Err(corrupt(format!(
        "{} at stored byte {at} is not the start of a bzip2 stream",
        header.escape_ascii()
    )))
}

/// Bytes of a block of a level, before the run-length stage.
fn block_len(level: u8) -> usize {
    usize::from(level).saturating_mul(LEVEL_LEN)
}

/// A block's stored bytes as bzip2 blocks.
#[derive(Clone)]
struct Blocks {
    stored: Arc<dyn Source>,
    data_size: u64,
    entries: Arc<Mutex<Entries<EntryPoint>>>,
}

impl Blocks {
    /// Nothing is known but where the first block is.
    fn new(stored: Arc<dyn Source>, data_size: u64) -> Result<Self> {
        let first = if data_size == 0 {
            EntryPoint::default()
        } else {
            EntryPoint {
                bit: HEADER_LEN.saturating_mul(8),
                level: stream_level(stored.as_ref(), 0)?,
                ..EntryPoint::default()
            }
        };
        Ok(Self {
            stored,
            data_size,
            entries: Arc::new(Mutex::new(Entries::new(data_size, first))),
        })
    }
}

impl Stream for Blocks {
    fn entry(&self, offset: u64) -> u64 {
        lock(&self.entries).at(offset).0
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let (_, next) = lock(&self.entries).at(offset);
        Ok(Box::new(BlockCursor {
            position: next.decoded,
            wanted: offset.saturating_add(len_u64(SEGMENT)),
            next,
            at_once: 1,
            ready: VecDeque::new(),
            blocks: self,
        }))
    }

    /// One decoder keeps all cores busy.
    fn parallel(&self) -> bool {
        false
    }

    fn held(&self) -> u64 {
        lock(&self.entries).held()
    }

    fn thin_out(&self) {
        lock(&self.entries).thin_out();
    }

    fn resized(&self, data_size: u64) -> Option<Arc<dyn Stream>> {
        Some(Arc::new(Self {
            data_size,
            ..self.clone()
        }))
    }
}

/// A decoder under way.
struct BlockCursor {
    blocks: Arc<Blocks>,
    /// Decoded offset of the next byte to be read.
    position: u64,
    /// The end of the segment that it was opened for: the first batch has as many blocks as reach there.
    wanted: u64,
    /// The block, or end of a stream, behind `ready`.
    next: EntryPoint,
    /// Blocks to be decoded next time.
    at_once: usize,
    /// Blocks decoded but for their run-length stage.
    ready: VecDeque<Ready>,
}

impl BlockCursor {
    /// Decodes some blocks; at the end of a stream goes on to the next. If that has larger blocks and they need more memory than
    /// was `announced`, decodes none, and gives false.
    fn refill(&mut self, announced: u64) -> Result<bool> {
        let mut idle = 0u32;
        // Streams one behind the other are one payload, as the program bzip2 takes them.
        while self.mark()? == Mark::End {
            self.next_stream()?;
            idle = idle.saturating_add(1);
            if idle > MAX_IDLE {
                let why = format!("more than {MAX_IDLE} bzip2 streams without data");
                return Err(corrupt(why));
            }
        }
        if self.needed() > announced {
            return Ok(false);
        }
        let count = self.planned();
        for ready in decode_batch(self.blocks.stored.as_ref(), self.next, count)? {
            // each block on the way is a place to begin at for later reads
            lock(&self.blocks.entries).add(self.next.decoded, self.next);
            self.next = self.next.behind(&ready);
            self.ready.push_back(ready);
        }
        // a read of a few bytes decodes one block; one that goes on soon keeps all cores busy
        self.at_once = count.saturating_mul(2);
        Ok(true)
    }

    /// Blocks to be decoded at once next: what was wanted at first, then ever more.
    fn planned(&self) -> usize {
        let block_len = len_u64(block_len(self.next.level)).max(1);
        let missing = self.wanted.saturating_sub(self.next.decoded);
        let to_wanted = usize::try_from(missing.div_ceil(block_len)).unwrap_or(usize::MAX);
        self.at_once.max(to_wanted).min(MOST_AT_ONCE)
    }

    /// Whether the next mark is cut off.
    fn is_cut_off(&self) -> bool {
        let end = self.next.bit.saturating_add(MARK_BITS);
        end > self.blocks.stored.len().saturating_mul(8)
    }

    /// The next mark.
    fn mark(&self) -> Result<Mark> {
        let byte = self.next.bit.checked_shr(3).unwrap_or(0);
        let mut bytes = [0; 7];
        let left = self.blocks.stored.len().saturating_sub(byte);
        if self.is_cut_off() {
            return Err(self.short());
        }
        let len = at_most(left, bytes.len());
        let bytes = bytes.get_mut(..len).unwrap_or_default();
        self.blocks.stored.read_exact_at(bytes, byte)?;
        Bits::new(bytes, self.next.bit & 7)
            .mark()
            .map_err(|fault| damaged(self.next.bit, fault))
    }

    /// Compares the checksum behind the mark of an end, if it is there, and gives the stored byte behind it.
    fn check_sum(&self) -> Result<u64> {
        let at = self.next.bit.saturating_add(MARK_BITS);
        // A stream ends on a byte, and the next one begins there.
        let end = at.saturating_add(32).div_ceil(8);
        if end > self.blocks.stored.len() {
            return Ok(end);
        }
        let byte = at.checked_shr(3).unwrap_or(0);
        let mut bytes = [0; 5];
        let len = usize::try_from(end.saturating_sub(byte)).unwrap_or(0);
        self.blocks
            .stored
            .read_exact_at(bytes.get_mut(..len).unwrap_or_default(), byte)?;
        // the mark of an end lies at any bit, and so does the checksum behind it
        let found = Bits::new(&bytes, at & 7).take(32);
        if found != self.next.combined {
            return Err(corrupt(format!(
                "bzip2 checksum {found:08x}, but the blocks give {:08x}",
                self.next.combined
            )));
        }
        Ok(end)
    }

    /// Goes from the end of a stream to the start of the one behind it.
    fn next_stream(&mut self) -> Result<()> {
        let start = self.check_sum()?;
        if start >= self.blocks.stored.len() {
            return Err(self.short());
        }
        self.next = EntryPoint {
            decoded: self.next.decoded,
            bit: start.saturating_add(HEADER_LEN).saturating_mul(8),
            level: stream_level(self.blocks.stored.as_ref(), start)?,
            combined: 0,
        };
        Ok(())
    }

    /// The error of stored bytes that end before all data were decoded.
    fn short(&self) -> Error {
        corrupt(format!(
            "the bzip2 stream ends after {} of {} decoded bytes",
            self.next.decoded, self.blocks.data_size
        ))
    }

    /// Compares the checksum behind the last byte. If the checksum or the mark before it is cut off, that is no error: all data are
    /// there.
    fn check_end(&mut self) -> Result<()> {
        // if decoded bytes are left over, the stream goes on behind the last byte that is wanted
        let all_read = self.ready.iter().all(|ready| ready.len() == 0);
        if all_read && !self.is_cut_off() && self.mark()? == Mark::End {
            self.check_sum()?;
        }
        Ok(())
    }
}

impl Cursor for BlockCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let announced = self.needed();
        let mut filled = 0;
        // an empty block gives nothing, and 0 would mean that more memory is needed
        while filled == 0 && !buf.is_empty() {
            let Some(ready) = self.ready.front_mut() else {
                if self.refill(announced)? {
                    continue;
                }
                break;
            };
            filled = ready.read(buf);
            if ready.len() == 0 {
                self.ready.pop_front();
            }
        }
        self.position = self.position.saturating_add(len_u64(filled));
        if self.position >= self.blocks.data_size {
            self.check_end()?;
        }
        Ok(filled)
    }

    fn held(&self) -> u64 {
        self.ready.iter().map(Ready::held).sum()
    }

    /// What it holds, and for each byte that it decodes next: a stored byte, a table entry of four bytes, and the decoded byte.
    fn needed(&self) -> u64 {
        let more = self.will_decode_to().saturating_sub(self.next.decoded);
        self.held().saturating_add(more.saturating_mul(6))
    }

    fn decoded_to(&self) -> u64 {
        self.next.decoded
    }

    fn will_decode_to(&self) -> u64 {
        let segment = len_u64(SEGMENT);
        let read_until = self
            .position
            .div_ceil(segment)
            .saturating_add(1)
            .saturating_mul(segment);
        if read_until.min(self.blocks.data_size) <= self.next.decoded {
            return self.next.decoded;
        }
        let len = block_len(self.next.level).saturating_mul(self.planned());
        self.next.decoded.saturating_add(len_u64(len))
    }
}

/// The error of a block whose mark is at this bit of the payload: unsupported if it is a feature that is not read, else corrupt.
fn damaged(bit: u64, fault: BitFault) -> Error {
    let what = match fault {
        BitFault::Short => "it is cut off",
        BitFault::Bad(what) | BitFault::Unsupported(what) => what,
    };
    let text = format!(
        "bzip2 block at bit {} of stored byte {}: {what}",
        bit & 7,
        bit.checked_shr(3).unwrap_or(0)
    );
    match fault {
        BitFault::Unsupported(_) => unsupported(text),
        BitFault::Short | BitFault::Bad(_) => corrupt(text),
    }
}

#[cfg(test)]
mod tests;
