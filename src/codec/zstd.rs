//! Zstandard frames: code `zstd`.
//!
//! Where a payload has several frames, their starts are entries: found in a seek table, or along the block headers where frame
//! headers have the content size, or else as decoding passes them. A frame is one window sliding along and has no entries inside. A
//! payload of one frame, as most writers make it, is read on from a decoder at rest, or else from its start.

mod frame;
mod native;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::input::{Input, PIECE, Step, Stop};
use super::splice::write;
use super::{Codec, Cursor, Framed, Stream};
use crate::error::{Result, corrupt, lock};
use crate::source::{PooledBuf, Source, checked_end, each_piece, len_u64};
use frame::{Frames, next_frame};
pub(super) use native::{Decoder, ZstdEncoder};

/// Level of what is written: the library's and the ecosystem's default.
const LEVEL: i32 = 3;

/// The Zstandard codec.
pub(super) struct Zstd;

impl Codec for Zstd {
    fn code(&self) -> [u8; 4] {
        *b"zstd"
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
        Ok(Framed {
            framing: "frame",
            stream: Arc::new(ZstdStream::new(stored, data_size)?),
        })
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        let mut encoder = ZstdEncoder::new(LEVEL)?;
        // so that the header of the frame says how long it is
        encoder.begin(decoded.len())?;
        let mut packed = PooledBuf::<u8>::of(PIECE);
        each_piece(decoded, 0..decoded.len(), PIECE, |mut bytes| {
            while !bytes.is_empty() {
                let (taken, given) = encoder.push(bytes, &mut packed)?;
                write(out, packed.get(..given).unwrap_or_default())?;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
            Ok(())
        })?;
        loop {
            let (given, ended) = encoder.finish(&mut packed)?;
            write(out, packed.get(..given).unwrap_or_default())?;
            if ended {
                return Ok(());
            }
        }
    }
}

/// The decoded bytes of a payload of Zstandard frames.
struct ZstdStream {
    stored: Arc<dyn Source>,
    data_size: u64,
    frames: Mutex<Frames>,
    lacks_end: AtomicBool,
}

impl ZstdStream {
    /// Reads the header of the first frame alone.
    fn new(stored: Arc<dyn Source>, data_size: u64) -> Result<Self> {
        if data_size > 0 && next_frame(stored.as_ref(), 0)?.is_none() {
            return Err(corrupt("no zstd frame"));
        }
        Ok(Self {
            stored,
            data_size,
            frames: Mutex::new(Frames::new(data_size)),
            lacks_end: AtomicBool::default(),
        })
    }

    /// The last frame that is known to start at or before `offset`: its decoded offset and its offset in the payload.
    fn start(&self, offset: u64) -> (u64, u64) {
        lock(&self.frames).at(self.stored.as_ref(), offset)
    }
}

impl Stream for ZstdStream {
    fn entry(&self, offset: u64) -> u64 {
        self.start(offset).0
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let (position, at) = self.start(offset);
        // Damage is told by the first read.
        let next = next_frame(self.stored.as_ref(), at).ok().flatten();
        Ok(Box::new(ZstdCursor {
            stream: self,
            position,
            input: Input::new(at),
            window: next.map_or(0, |(_, frame)| frame.window),
            within: false,
            decoder: Decoder::new()?,
        }))
    }

    fn held(&self) -> u64 {
        lock(&self.frames).entries.held()
    }

    fn lacks_end(&self) -> bool {
        self.lacks_end.load(Ordering::Relaxed)
    }
}

/// A decoder that runs through the frames.
struct ZstdCursor {
    stream: Arc<ZstdStream>,
    position: u64,
    input: Input,
    /// The greatest window of the frames so far, the next one included if it is known.
    window: usize,
    /// Whether it is in the middle of a frame.
    within: bool,
    decoder: Decoder,
}

impl Cursor for ZstdCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.stream.data_size)?;
        let announced = self.window;
        let mut done = 0usize;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            if !self.within {
                self.enter()?;
                // Not a byte of the frame yet: the caller counts the larger window first.
                if self.window > announced {
                    break;
                }
                self.within = true;
            }
            let step = self.step(rest)?;
            if step.is_stuck() || self.input.is_idle() {
                return Err(corrupt("zstd frames end before the data does"));
            }
            done = done.saturating_add(step.filled);
            self.position = self.position.saturating_add(len_u64(step.filled));
        }
        if self.position >= self.stream.data_size {
            self.finish()?;
        }
        Ok(done)
    }

    fn held(&self) -> u64 {
        self.decoder.held().saturating_add(self.input.held())
    }

    fn needed(&self) -> u64 {
        let decoder = Decoder::bytes_for(self.window).max(self.decoder.held());
        decoder.saturating_add(self.input.held())
    }
}

impl ZstdCursor {
    /// Goes to the next frame, whose window may be the greatest so far.
    fn enter(&mut self) -> Result<()> {
        let stored = self.stream.stored.as_ref();
        let (at, frame) = next_frame(stored, self.input.position())?
            .ok_or_else(|| corrupt("zstd frames end before the data does"))?;
        if at != self.input.position() {
            self.input.seek(at);
        }
        lock(&self.stream.frames).meet(self.position, at)?;
        self.window = self.window.max(frame.window);
        Ok(())
    }

    /// Runs the decoder from the last byte of the data to the end of the frame, where it compares the checksum. As for zlib, one that is
    /// cut off is no error.
    fn finish(&mut self) -> Result<()> {
        while self.within && !self.input.is_idle() {
            if self.step(&mut [])?.is_stuck() {
                self.stream.lacks_end.store(true, Ordering::Relaxed);
                break;
            }
        }
        Ok(())
    }

    /// One call of the decoder.
    fn step(&mut self, out: &mut [u8]) -> Result<Step> {
        let stored = self.stream.stored.as_ref();
        let input = self.input.fill(stored, stored.len())?;
        let step = self.decoder.step(input, out)?;
        self.input.moved(&step);
        self.within = step.stop != Stop::End;
        Ok(step)
    }
}

#[cfg(test)]
mod tests;
