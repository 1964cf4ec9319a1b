//! The code `zlib`: one DEFLATE stream in the wrapper of RFC 1950, or in that of gzip, which libasdf reads as well.
//!
//! Such a stream can only be decoded from its start, unless one has been there before: while it is decoded, places are noted
//! where a DEFLATE block ends, as near before the start of a segment as there is one, with what is needed to go on from
//! there (see [`index`]). What comes first is decoded once, then everything is within reach, and for several cores.
//!
//! As in Python, what follows the stream is ignored, and so is a checksum that is cut off; a wrong one is an error at the end,
//! for every decoder that gets there: the checksum of what comes before a point is noted with it. One that stands behind more than
//! [`MAX_IDLE_INPUT`] bytes of blocks without data is not looked for.

mod encode;
mod index;
mod segments;
mod wrapper;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use self::index::{Point, PointIndex, WINDOW, Window};
use self::segments::CHECKSUM_LEN;
use self::wrapper::Wrapper;
use super::inflate::Inflate;
use super::input::{Input, MAX_IDLE_INPUT, PIECE, Step, Stop, keep_last};
use super::{Cache, Codec, Cursor, Edited, Framed, SEGMENT, Stream};
use crate::error::{Error, Result, corrupt, lock};
use crate::source::{Source, at_most, len_u64};

/// The code.
const CODE: [u8; 4] = *b"zlib";

/// Name of the framing that is written, and of the other one.
const FRAMING: &str = "stream";
const GZIP_FRAMING: &str = "gzip";

/// Length of a zlib stream's header.
const HEADER_LEN: u64 = 2;

/// Set in that header's second byte when a dictionary comes before the first block.
const PRESET_DICTIONARY: u8 = 0x20;

/// No DEFLATE stream gives more than 1032 bytes for each of its own.
const MAX_RATIO: u64 = 1032;

/// Block ends are looked for in so many bytes before the start of a segment; most streams have several there.
const SEARCH_LEN: usize = 128 << 10;

/// What zlib's own state takes, window included.
const STATE_LEN: u64 = 48 << 10;

/// The text of zlib's own error.
const WRONG_CHECKSUM: &str = "zlib: incorrect data check";

/// The codec.
pub(super) struct Zlib;

impl Codec for Zlib {
    fn code(&self) -> [u8; 4] {
        CODE
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        let (wrapper, start) = match data_size {
            // A block without data may have no stored bytes, either.
            0 => (Wrapper::Zlib, HEADER_LEN),
            _ => Wrapper::open(stored.as_ref())?,
        };
        let first = Point::first(start, wrapper.sum_of_nothing());
        Ok(Framed {
            framing: wrapper.framing(),
            stream: Arc::new(Deflated {
                stored,
                wrapper,
                data_size,
                index: Arc::new(Mutex::new(PointIndex::new(first))),
                lacks_end: Arc::default(),
            }),
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
        encode::encode(decoded, encode::DEFAULT_LEVEL, out)
    }

    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        encode::reencode(edited, out)
    }
}

/// How many bytes a zlib stream decodes to, if that is stored nowhere. Decodes it once, and keeps
/// none of the bytes.
///
/// # Errors
/// [`Error::Corrupt`] if it is damaged or ends early, [`Error::Io`] if the mount ends meanwhile; of reading it.
pub fn decoded_len(stored: &dyn Source, cache: &Cache) -> Result<u64> {
    let mut inflate = Inflate::zlib()?;
    let mut input = Input::new(0);
    let mut output = vec![0; PIECE];
    let mut decoded = 0_u64;
    loop {
        // a short stream may decode for hours, and the mount may end meanwhile
        cache.check_wanted()?;
        let step = inflate.run(input.fill(stored, stored.len())?, &mut output, false)?;
        input.take(step.used);
        decoded = decoded.saturating_add(len_u64(step.filled));
        if step.stop == Stop::End {
            return Ok(decoded);
        }
        if step.is_stuck() {
            let why = format!("the zlib stream does not end; {decoded} bytes were decoded");
            return Err(corrupt(why));
        }
    }
}

/// A DEFLATE stream in its wrapper.
#[derive(Clone)]
struct Deflated {
    stored: Arc<dyn Source>,
    wrapper: Wrapper,
    data_size: u64,
    index: Arc<Mutex<PointIndex>>,
    lacks_end: Arc<AtomicBool>,
}

impl Deflated {
    /// A decoder that stands at a point; `window` is what was decoded before it.
    fn resume(&self, point: &Point, window: &[u8]) -> Result<Inflate> {
        // a DEFLATE block may begin inside a byte: the decoder gets the upper bits of that byte first
        let mut head = [0];
        if point.bits > 0 {
            self.stored
                .read_exact_at(&mut head, point.stored.saturating_sub(1))?;
        }
        let [head] = head;
        // RFC 1951 §3.1.1: bits are taken from the lowest up, so the upper ones belong to the block.
        let used_bits = 8_u32.saturating_sub(point.bits.into());
        let head = head.checked_shr(used_bits).unwrap_or(0);
        Inflate::resume(point.bits, head, window)
    }
}

impl Stream for Deflated {
    fn entry(&self, offset: u64) -> u64 {
        lock(&self.index).before(offset).decoded
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let point = lock(&self.index).before(offset);
        let tail = point.window.expand();
        Ok(Box::new(Inflating {
            inflate: self.resume(&point, &tail)?,
            stream: self,
            position: point.decoded,
            sum: point.sum,
            input: Input::new(point.stored),
            tail,
            search_all: false,
        }))
    }

    fn held(&self) -> u64 {
        lock(&self.index).held()
    }

    fn lacks_end(&self) -> bool {
        self.lacks_end.load(Ordering::Relaxed)
    }

    fn thin_out(&self) {
        lock(&self.index).thin_out();
    }

    fn resized(&self, data_size: u64) -> Option<Arc<dyn Stream>> {
        Some(Arc::new(Self {
            data_size,
            ..self.clone()
        }))
    }

    /// Makes one window smaller: keeps only what the decoder will look at.
    fn tidy(&self) -> bool {
        // the lock is not held while this decodes: readers look for points meanwhile
        let untidy = lock(&self.index).take_untidy();
        let Some(point) = untidy else {
            return false;
        };
        let plain = point.window.expand();
        // Data that got no smaller take hardly more input than they give.
        let mut input = vec![0; WINDOW.saturating_mul(2)];
        let left = self.stored.len().saturating_sub(point.stored);
        input.truncate(at_most(left, input.len()));
        let stored = self.stored.read_exact_at(&mut input, point.stored);
        let sparse = stored.and_then(|()| {
            Window::sparse(&plain, |dictionary| {
                let mut ahead = vec![0; WINDOW];
                let mut inflate = self.resume(&point, dictionary)?;
                let step = inflate.run(&input, &mut ahead, false)?;
                ahead.truncate(step.filled);
                // Input enough, or the stream ends here: nothing further on looks at the window.
                let whole = step.filled == WINDOW || step.stop == Stop::End;
                Ok(whole.then_some(ahead))
            })
        });
        // after an error the whole window stays: it is larger, but right; the reader that gets there reports the error
        if let Ok(Some(sparse)) = sparse {
            lock(&self.index).replace(point.decoded, sparse);
        }
        true
    }
}

/// A decoder under way in such a stream.
struct Inflating {
    stream: Arc<Deflated>,
    inflate: Inflate,
    position: u64,
    /// Checksum of all that was decoded before it.
    sum: u32,
    input: Input,
    /// The last decoded bytes, as many as a window.
    tail: Vec<u8>,
    /// Whether block ends are so rare that they are to be looked for everywhere.
    search_all: bool,
}

/// The end of a DEFLATE block.
#[derive(Clone, Copy)]
struct Boundary {
    /// Bytes of the reader's buffer before it.
    filled: usize,
    /// The stored byte behind those that the decoder has taken.
    stored: u64,
    /// How many bits of the last of these belong to the next block.
    bits: u8,
}

impl Inflating {
    /// One call of the decoder.
    fn step(&mut self, output: &mut [u8], stop_at_blocks: bool) -> Result<Step> {
        let stored = self.stream.stored.as_ref();
        let input = self.input.fill(stored, stored.len())?;
        let step = self.inflate.run(input, output, stop_at_blocks)?;
        self.input.moved(&step);
        Ok(step)
    }

    /// Decodes all of `buf`; gives the last block end at or behind `search_from`.
    fn fill(&mut self, buf: &mut [u8], search_from: usize) -> Result<Option<Boundary>> {
        let mut boundary = None;
        let mut filled = 0;
        while filled < buf.len() {
            // zlib is slower when it stops at block ends: it does so only where a point is looked for.
            let searching = filled >= search_from;
            let until = if searching { buf.len() } else { search_from };
            let target = buf.get_mut(filled..until).unwrap_or_default();
            let step = self.step(target, searching)?;
            if self.input.is_idle() {
                let why = format!("more than {MAX_IDLE_INPUT} bytes of zlib blocks without data");
                return Err(corrupt(why));
            }
            filled = filled.saturating_add(step.filled);
            match step.stop {
                Stop::Boundary(bits) => boundary = Some(self.boundary(filled, bits)),
                Stop::End if filled < buf.len() => return Err(self.short(filled)),
                // neither input nor output moves: there are no more stored bytes
                Stop::Full if step.is_stuck() => return Err(self.short(filled)),
                Stop::Full | Stop::End => {}
            }
        }
        Ok(boundary)
    }

    /// Decodes the last bytes, and compares the checksum of all if the stream ends there and it is not cut off.
    fn read_end(&mut self, buf: &mut [u8]) -> Result<()> {
        self.fill(buf, buf.len())?;
        self.sum = self.stream.wrapper.sum(self.sum, buf);
        let decoded = self.position.saturating_add(len_u64(buf.len()));
        // RFC 1951 §3.2.3: the last block says so in its header, and may come behind others without data.
        let (_, ends) = self.peek(buf.len())?;
        let Deflated {
            stored, wrapper, ..
        } = self.stream.as_ref();
        let at = self.input.position();
        if ends && !wrapper.agrees(stored.as_ref(), at, self.sum, decoded)? {
            return Err(corrupt(WRONG_CHECKSUM));
        }
        if !ends || at.saturating_add(CHECKSUM_LEN) > stored.len() {
            self.stream.lacks_end.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Moves on over blocks without data, as long as these are not too many. Gives the last block end on the way, and whether the stream
    /// ended there.
    fn peek(&mut self, len: usize) -> Result<(Option<Boundary>, bool)> {
        let mut boundary = None;
        while !self.input.is_idle() {
            // without room for data, the decoder takes block headers only
            let step = self.step(&mut [], true)?;
            match step.stop {
                Stop::Boundary(bits) => boundary = Some(self.boundary(len, bits)),
                Stop::Full if !step.is_stuck() => {}
                other => return Ok((boundary, other == Stop::End)),
            }
        }
        Ok((boundary, false))
    }

    /// The block end that the last step has come to; no other step may come between.
    fn boundary(&self, filled: usize, bits: u8) -> Boundary {
        Boundary {
            filled,
            stored: self.input.position(),
            bits,
        }
    }

    /// Notes a block end in the index, with the window and the checksum of what comes before it.
    fn note(&self, boundary: Boundary, sum: u32, before: &[u8]) {
        // A window may begin before the buffer: there it is the end of what the last reads gave.
        let mut window = self.tail.clone();
        keep_last(&mut window, WINDOW, before);
        let point = Point {
            decoded: self.position.saturating_add(len_u64(before.len())),
            stored: boundary.stored,
            bits: boundary.bits,
            sum,
            window: Arc::new(Window::whole(&window)),
        };
        lock(&self.stream.index).add(point);
    }

    /// The error of a stream that ends when so many bytes of the reader's buffer are filled.
    fn short(&self, filled: usize) -> Error {
        corrupt(format!(
            "the zlib stream ends after {} of {} decoded bytes",
            self.position.saturating_add(len_u64(filled)),
            self.stream.data_size
        ))
    }
}

impl Cursor for Inflating {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let end = self.position.saturating_add(len_u64(buf.len()));
        let wanted = lock(&self.stream.index).wants(end);
        let search_from = match (wanted, self.search_all) {
            (false, _) => buf.len(),
            (true, true) => 0,
            (true, false) => buf.len().saturating_sub(SEARCH_LEN),
        };
        // nothing begins behind the last byte, so no point is looked for; but the checksum stands there
        if end >= self.stream.data_size {
            self.read_end(buf)?;
            self.position = end;
            return Ok(buf.len());
        }
        let mut boundary = self.fill(buf, search_from)?;
        let mut fresh = &*buf;
        if wanted {
            // An error here belongs to the next read.
            let peeked = self.peek(buf.len()).ok();
            boundary = peeked.and_then(|(here, _)| here).or(boundary);
            // No block ends in the last part of a whole segment: blocks are long, and the next segment is searched whole.
            if buf.len() >= SEGMENT {
                self.search_all = boundary.is_none();
            }
            if let Some(boundary) = boundary {
                // a decoder that starts at the point needs the checksum up to there, not up to the end of the buffer
                let parts = buf.split_at_checked(boundary.filled);
                let (before, behind) = parts.ok_or_else(|| self.short(boundary.filled))?;
                self.sum = self.stream.wrapper.sum(self.sum, before);
                self.note(boundary, self.sum, before);
                fresh = behind;
            }
        }
        self.sum = self.stream.wrapper.sum(self.sum, fresh);
        keep_last(&mut self.tail, WINDOW, buf);
        self.position = end;
        Ok(buf.len())
    }

    fn held(&self) -> u64 {
        let tail = len_u64(self.tail.capacity());
        self.input
            .held()
            .saturating_add(tail)
            .saturating_add(STATE_LEN)
    }
}

#[cfg(test)]
mod tests;
