//! The xz format: code `xz\0\0`, which ASDF.jl writes.
//!
//! Payloads of several blocks, as threaded writers make them, are entered at each block, by the index at their end. One block
//! is one LZMA stream, which runs from its start. Written from tukaani-project/xz, doc/xz-file-format.txt 1.2.1:
//!
//! | bytes | what |
//! |---|---|
//! | 12 | stream header: `FD 37 7A 58 5A 00`, flags, CRC-32 |
//! | | blocks, each of a multiple of four bytes, with a check of its data (verified by the decoder) |
//! | | index: 0, number of blocks, for each its unpadded size and its decoded size (variable-length integers), padding, CRC-32 |
//! | 12 | footer: CRC-32, size of the index / 4 − 1, flags, `YZ`; then zeros up to a multiple of four bytes |
//!
//! We write blocks of [`BLOCK`] decoded bytes, so that what we have written can be entered at each.
//!
//! To start at a block, the decoder is given the stream header and then the block. Without a sound index of one stream there is
//! one entry, and everything goes through the decoder as it comes.

use std::io::{ErrorKind::Unsupported, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use lzma_rust2::{Action, XzOptions, XzStream, XzWriter};

use super::deflate::crc32;
use super::entries::Entries;
use super::headers::{Headers, array_at};
use super::input::{Input, MAX_IDLE_INPUT, PIECE};
use super::{Codec, Cursor, Framed, Stream};
use crate::error::{Error, Lasting, Result, corrupt, unless_damaged, unsupported};
use crate::source::{Source, at_most, checked_end, each_piece, len_u64};

const MAGIC: [u8; 6] = *b"\xFD7zXZ\0";
const FOOTER_MAGIC: [u8; 2] = *b"YZ";
const HEADER: u64 = 12;
const FOOTER: u64 = 12;
/// Most padding behind the stream that is looked through for its footer.
const MAX_PADDING: u64 = 64 << 10;
/// Greatest index that is read, enough for ten million blocks: it is read as a whole, and summed up, before anything is decoded.
const MAX_INDEX: u64 = 64 << 20;
/// Greatest memory of a decoder in KiB: enough for dictionaries of 64 MiB, as the best preset of xz has them.
const MEMORY_KIB: u32 = 66 << 10;

/// Decoded bytes of the blocks that are written.
const BLOCK: u64 = 4 << 20;
/// The preset of xz that is written: the best of those with its fast mode, whose dictionary is as large as a block.
const PRESET: u32 = 3;

/// The xz codec.
pub(super) struct Xz;

impl Codec for Xz {
    fn code(&self) -> [u8; 4] {
        *b"xz\0\0"
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        if data_size > 0 || !stored.is_empty() {
            let magic = array_at::<6>(stored.as_ref(), 0)?;
            if magic != MAGIC {
                return Err(corrupt(format!("xz stream that begins with {magic:02x?}")));
            }
        }
        Ok(Framed {
            framing: "stream",
            stream: Arc::new(XzPayload {
                stored,
                data_size,
                index: Lasting::new(),
            }),
        })
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        let failed = |cause| Error::io("writing xz", cause);
        let mut options = XzOptions::with_preset(PRESET);
        options.set_block_size(NonZeroU64::new(BLOCK));
        let mut writer = XzWriter::new(out, options).map_err(failed)?;
        each_piece(decoded, 0..decoded.len(), PIECE, |piece| {
            writer.write_all(piece).map_err(failed)
        })?;
        writer.finish().map_err(failed).map(drop)
    }
}

/// The blocks of a payload that is one stream.
struct XzIndex {
    /// Offsets in the payload, by decoded offset.
    blocks: Entries<u64>,
    /// Offset of the index: no block reaches beyond it.
    at: u64,
}

/// The decoded bytes of an xz payload.
struct XzPayload {
    stored: Arc<dyn Source>,
    data_size: u64,
    /// `None` inside if the payload has no sound index, or several streams.
    index: Lasting<Option<XzIndex>>,
}

impl XzPayload {
    /// The index, if it is sound.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn index(&self) -> Result<Option<&XzIndex>> {
        let read = || unless_damaged(read_index(self.stored.as_ref(), self.data_size));
        self.index.get_or_make(read).map(Option::as_ref)
    }

    /// The part of the payload to decode for `offset`: its decoded bytes, and where it is stored.
    fn part(&self, offset: u64) -> Result<(Range<u64>, Range<u64>)> {
        let Some(index) = self.index()? else {
            return Ok((0..self.data_size, HEADER..self.stored.len()));
        };
        let (start, at) = index.blocks.at(offset);
        let [_, next] = index.blocks.around(start);
        let (end, stored_end) = next.copied().unwrap_or((self.data_size, index.at));
        Ok((start..end, at..stored_end))
    }
}

impl Stream for XzPayload {
    fn entry(&self, offset: u64) -> u64 {
        self.part(offset).map_or(0, |(decoded, _)| decoded.start)
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let mut cursor = XzCursor {
            stream: self,
            position: 0,
            part_end: 0,
            decoder: XzStream::new_mem_limit(true, 0),
            memory: 0,
            input: Input::new(0),
            end: 0,
            given: 0,
        };
        cursor.start(offset)?;
        Ok(Box::new(cursor))
    }

    fn parallel(&self) -> bool {
        let index = self.index().ok().flatten();
        index.is_some_and(|index| !index.blocks.rest().is_empty())
    }

    fn held(&self) -> u64 {
        let index = self.index.get().and_then(Option::as_ref);
        index.map_or(0, |index| index.blocks.held())
    }
}

/// A decoder that runs through the blocks.
struct XzCursor {
    stream: Arc<XzPayload>,
    position: u64,
    /// Decoded offset where the running part ends and the next begins.
    part_end: u64,
    decoder: XzStream,
    /// KiB of memory that it may take: what the dictionaries so far have needed.
    memory: u32,
    input: Input,
    /// Offset in the payload where the running part ends.
    end: u64,
    /// Decoded bytes of the running part that were given.
    given: u64,
}

impl Cursor for XzCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.stream.data_size)?;
        // the caller has made room for what `needed` said, so the decoder may take it now
        self.memory = self.memory.max(self.used());
        self.decoder.set_mem_limit(self.memory);
        let mut done = 0usize;
        while done < buf.len() {
            if self.position >= self.part_end {
                self.start(self.position)?;
            }
            let rest = buf.get_mut(done..).unwrap_or_default();
            let left = at_most(self.part_end.saturating_sub(self.position), rest.len());
            let out = rest.get_mut(..left).unwrap_or_default();
            let Some(given) = self.step(out)? else {
                break;
            };
            done = done.saturating_add(given);
            self.position = self.position.saturating_add(len_u64(given));
            self.given = self.given.saturating_add(len_u64(given));
            if self.position >= self.part_end {
                self.finish()?;
            }
        }
        Ok(done)
    }

    fn held(&self) -> u64 {
        kib(self.used().min(self.memory)).saturating_add(self.input.held())
    }

    fn needed(&self) -> u64 {
        kib(self.used().max(self.memory)).saturating_add(self.input.held())
    }
}

impl XzCursor {
    /// KiB of memory that the decoder has, or that it must have to go on.
    fn used(&self) -> u32 {
        self.decoder.memory_usage().unwrap_or_default()
    }

    /// Begins with the part that holds `offset`.
    fn start(&mut self, offset: u64) -> Result<()> {
        let (decoded, stored) = self.stream.part(offset)?;
        let header = array_at::<12>(self.stream.stored.as_ref(), 0);
        // it stops before it takes more than so many KiB
        self.decoder = XzStream::new_mem_limit(true, self.memory);
        // The stream header tells the decoder the kind of check, whichever block comes behind it.
        if self.stream.data_size > 0 {
            process(&mut self.decoder, &header?, &mut [])?;
        }
        self.input.seek(stored.start);
        (self.position, self.part_end) = (decoded.start, decoded.end);
        (self.end, self.given) = (stored.end, 0);
        Ok(())
    }

    /// Decodes some input into `out`, and gives the number of bytes; `None` if a dictionary needs more memory first.
    fn step(&mut self, out: &mut [u8]) -> Result<Option<usize>> {
        let input = self.input.fill(self.stream.stored.as_ref(), self.end)?;
        let before = self.decoder.total_in();
        let (taken, given) = match process(&mut self.decoder, input, out) {
            Ok(step) => step,
            Err(error) => {
                // At a dictionary that is too large for it the decoder stops, and goes on when it may take more.
                let (used, allowed) = (self.used(), self.memory);
                // a real fault, or a dictionary beyond what is ever allowed
                if used <= allowed || used > MEMORY_KIB {
                    return Err(error);
                }
                let taken = self.decoder.total_in().saturating_sub(before);
                self.input
                    .take(usize::try_from(taken).unwrap_or(usize::MAX));
                return Ok(None);
            }
        };
        self.input.take(taken);
        let stuck = taken == 0 && given == 0;
        if stuck || self.decoder.total_in() > self.most_input().saturating_add(len_u64(given)) {
            return Err(corrupt("xz stream that ends before the data does"));
        }
        Ok(Some(given))
    }

    /// Runs the decoder over what is left of the running part: the check of its last block. One that is cut off is no error.
    fn finish(&mut self) -> Result<()> {
        // Blocks without data take no memory, whatever they ask for.
        self.decoder.set_mem_limit(MEMORY_KIB);
        while self.decoder.total_in() <= self.most_input() {
            let input = self.input.fill(self.stream.stored.as_ref(), self.end)?;
            let (taken, given) = process(&mut self.decoder, input, &mut [0])?;
            // without an index the part is the whole payload, and bytes behind the last wanted one are ignored
            if given > 0 && self.stream.index()?.is_some() {
                return Err(corrupt("xz block of more bytes than its index says"));
            }
            self.input.take(taken);
            if taken == 0 || given > 0 {
                break;
            }
        }
        Ok(())
    }

    /// The most input for what was given of the running part: as much as data takes in any case, and some that gives none. Data is stored
    /// as it is where it can't be made smaller, so that input hardly ever exceeds it.
    fn most_input(&self) -> u64 {
        let more = (self.given >> 3).saturating_add(len_u64(MAX_IDLE_INPUT));
        self.given.saturating_add(more)
    }
}

fn kib(memory: u32) -> u64 {
    u64::from(memory).saturating_mul(1024)
}

/// One step of a decoder: bytes taken and given.
fn process(decoder: &mut XzStream, input: &[u8], out: &mut [u8]) -> Result<(usize, usize)> {
    match decoder.process(input, out, Action::Run) {
        Ok(step) => Ok((step.bytes_consumed, step.bytes_produced)),
        Err(cause) if decoder.memory_usage() > Some(MEMORY_KIB) => {
            Err(unsupported(format!("xz: {cause}")))
        }
        // of filters that it lacks, the decoder says no more than this in its text
        Err(cause) if cause.kind() == Unsupported || cause.to_string().contains("supported") => {
            Err(unsupported(format!("xz: {cause}")))
        }
        Err(cause) => Err(corrupt(format!("xz: {cause}"))),
    }
}

/// Reads the index of a payload that is one stream.
fn read_index(stored: &dyn Source, data_size: u64) -> Result<XzIndex> {
    let mut headers = Headers::new(stored);
    let footer = footer_offset(stored)?;
    let [c0, c1, c2, c3, body @ .., y, z] = headers.array::<12>(footer)?;
    let sum = u32::from_le_bytes([c0, c1, c2, c3]);
    let [s0, s1, s2, s3, f0, f1] = body;
    let [.., h0, h1, _, _, _, _] = array_at::<12>(stored, 0)?;
    if [y, z] != FOOTER_MAGIC || [f0, f1] != [h0, h1] || crc32(0, &body) != sum {
        return Err(corrupt("xz footer"));
    }
    // §2.1.2.2: the size of the index in units of four bytes, less one.
    let size = u64::from(u32::from_le_bytes([s0, s1, s2, s3]))
        .saturating_add(1)
        .saturating_mul(4);
    let at = footer
        .checked_sub(size)
        .filter(|&at| at >= HEADER && size <= MAX_INDEX)
        .ok_or_else(|| corrupt("xz index"))?;
    let mut records = Records {
        headers,
        at,
        crc: 0,
    };
    let [zero] = [records.byte()?];
    let count = records.number()?;
    let mut blocks = Entries::new(data_size, HEADER);
    let (mut block, mut decoded) = (HEADER, 0u64);
    for _ in 0..count {
        blocks.add(decoded, block);
        // §4.3: a block is padded to a multiple of four bytes, which this size does not count.
        let unpadded = records.number()?;
        block = block.saturating_add(unpadded.saturating_add(3) & !3);
        decoded = decoded.saturating_add(records.number()?);
        // at each block, so that a hostile index of millions ends at the first one that makes no sense
        if block > at || decoded > data_size {
            return Err(corrupt("xz index of more than there is"));
        }
    }
    // §4.4, index padding.
    while !records.at.saturating_sub(at).is_multiple_of(4) {
        records.byte()?;
    }
    let computed = records.crc;
    let sum = u32::from_le_bytes(records.headers.array(records.at)?);
    let whole = records.at.saturating_add(4) == footer;
    if zero != 0 || !whole || sum != computed || block != at || decoded != data_size {
        return Err(corrupt("xz index that does not fit its stream"));
    }
    Ok(XzIndex { blocks, at })
}

/// The offset of the footer: before the padding, which is of zeros.
fn footer_offset(stored: &dyn Source) -> Result<u64> {
    let mut end = stored.len();
    let least = end.saturating_sub(MAX_PADDING);
    while let Some(word) = end.checked_sub(4).filter(|&word| word >= least) {
        if array_at::<4>(stored, word)? != [0; 4] {
            break;
        }
        end = word;
    }
    end.checked_sub(FOOTER)
        .filter(|&footer| footer >= HEADER)
        .ok_or_else(|| corrupt("no xz footer"))
}

/// The bytes of an index, summed up as they are read.
struct Records<'a> {
    headers: Headers<'a>,
    at: u64,
    crc: u32,
}

impl Records<'_> {
    /// The next byte, which counts in the checksum.
    fn byte(&mut self) -> Result<u8> {
        let [byte] = self.headers.array(self.at)?;
        self.at = self.at.saturating_add(1);
        self.crc = crc32(self.crc, &[byte]);
        Ok(byte)
    }

    /// A variable-length integer: seven bits a byte, the lowest first.
    fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        // §1.2: at most nine bytes.
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(corrupt("xz index with a number beyond 2^63"))
    }
}

#[cfg(test)]
mod tests;
