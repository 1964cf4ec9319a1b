//! Zstandard frames: code `zstd`.
//!
//! Writers make one frame, which has no entries: the whole of it is one window sliding along. So the running decoder's memory is
//! copied every [`SNAPSHOT_SPACING`] decoded bytes, and put back to read near there again. Where a payload has several frames,
//! their starts are entries: found in a seek table, or along the block headers where frame headers have the content size, or
//! else as decoding passes them.
//!
//! A snapshot fits only the memory it was taken from (see [`native`]), so all cursors of a payload with large frames share one
//! decoder: each puts its own state back when it reads, after that of the one before was put aside (see [`slot`]). Payloads of
//! small frames need no snapshots; there each cursor has a decoder of its own, and several may run at once.

mod frame;
mod native;
mod slot;

use std::io::Write;
use std::sync::{Arc, Mutex, Weak};

use super::entries::Entries;
use super::input::{Input, PIECE, Step, Stop};
use super::{Codec, Cursor, Framed, SEGMENT, Stream};
use crate::error::{Error, Result, corrupt, lock};
use crate::source::{PooledBuf, Source, checked_end, each_piece, len_u64};
use frame::{Frames, next_frame};
#[cfg(feature = "blosc")]
pub(super) use native::Decoder;
pub(super) use native::ZstdEncoder;
use native::{Running, Snapshot};
use slot::{DecoderSlot, Seat};

/// Level of what is written: the library's and the ecosystem's default.
const LEVEL: i32 = 3;
/// Least distance of snapshots, in decoded bytes. Frames up to this length have none.
const SNAPSHOT_SPACING: u64 = 32 << 20;
/// Memory for the snapshots of a payload: their distance follows from it. The cache may leave less to them.
const SNAPSHOT_MEMORY: usize = 64 << 20;
/// Greatest window of frames that have snapshots: one must always be had beside the decoder, and of larger ones too few.
const SNAPSHOT_WINDOW: usize = SNAPSHOT_MEMORY / 4;

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
        let written = |cause| Error::io("writing a zstd frame", cause);
        let mut encoder = ZstdEncoder::new(LEVEL)?;
        encoder.begin(decoded.len())?;
        let mut packed = PooledBuf::<u8>::of(PIECE);
        each_piece(decoded, 0..decoded.len(), PIECE, |mut bytes| {
            while !bytes.is_empty() {
                let (taken, given) = encoder.push(bytes, &mut packed)?;
                out.write_all(packed.get(..given).unwrap_or_default())
                    .map_err(written)?;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
            Ok(())
        })?;
        loop {
            let (given, ended) = encoder.finish(&mut packed)?;
            out.write_all(packed.get(..given).unwrap_or_default())
                .map_err(written)?;
            if ended {
                return Ok(());
            }
        }
    }
}

/// A state in the middle of a frame: where the input goes on, whose memory it fits, and the state.
#[derive(Clone)]
struct Checkpoint {
    at: u64,
    slot: Arc<DecoderSlot>,
    state: Arc<Snapshot>,
}

/// The decoded bytes of a payload of Zstandard frames.
struct ZstdStream {
    stored: Arc<dyn Source>,
    data_size: u64,
    /// Whether frames are so large that there are snapshots, and all cursors share one decoder.
    large: bool,
    /// The shared decoder made last. It lives as long as cursors and checkpoints use it.
    slot: Mutex<Weak<DecoderSlot>>,
    frames: Mutex<Frames>,
    snapshots: Mutex<Entries<Option<Checkpoint>>>,
}

impl ZstdStream {
    /// Reads the header of the first frame alone: its content size decides for the whole payload whether there are snapshots, and
    /// its window how far apart these are, so that about [`SNAPSHOT_MEMORY`] holds all of them.
    fn new(stored: Arc<dyn Source>, data_size: u64) -> Result<Self> {
        let first = next_frame(stored.as_ref(), 0)?.map(|(_, frame)| frame);
        if first.is_none() && data_size > 0 {
            return Err(corrupt("no zstd frame"));
        }
        let size = first.map(|frame| frame.content_size);
        let large = size.is_some_and(|size| size.is_none_or(|size| size > SNAPSHOT_SPACING));
        let window = first.map_or(0, |frame| frame.window);
        let spacing = data_size
            .checked_div(len_u64(SNAPSHOT_MEMORY.checked_div(window).unwrap_or(1)))
            .unwrap_or(data_size)
            .max(SNAPSHOT_SPACING);
        Ok(Self {
            stored,
            data_size,
            large,
            slot: Mutex::default(),
            frames: Mutex::new(Frames::new(data_size)),
            snapshots: Mutex::new(Entries::spaced(spacing, None)),
        })
    }

    /// The best place to start from for `offset`: decoded offset, and a frame's start in the payload or a checkpoint.
    fn start(&self, offset: u64) -> (u64, Result<Checkpoint, u64>) {
        let (frame, at) = lock(&self.frames).at(self.stored.as_ref(), offset);
        match lock(&self.snapshots).at(offset) {
            (entry, Some(checkpoint)) if entry > frame => (entry, Ok(checkpoint)),
            _ => (frame, Err(at)),
        }
    }

    /// A decoder for frames with a window of `window` bytes: the shared one, if it is of that size.
    fn slot(&self, window: usize) -> Result<Arc<DecoderSlot>> {
        let mut shared = lock(&self.slot);
        if let Some(slot) = shared.upgrade().filter(|slot| slot.window() == window) {
            return Ok(slot);
        }
        let slot = DecoderSlot::new(window)?;
        if self.large {
            *shared = Arc::downgrade(&slot);
        }
        Ok(slot)
    }

    /// Whether a snapshot may be kept when decoding goes on from `offset` for a segment or two.
    fn may_keep(&self, offset: u64) -> bool {
        let snapshots = lock(&self.snapshots);
        let wants = |segments: u64| {
            snapshots.wants(offset.saturating_add(segments.saturating_mul(len_u64(SEGMENT))))
        };
        self.large && (0..=2).any(wants)
    }

    /// Keeps a copy of a running decoder's state, if there is none nearby.
    fn keep(&self, offset: u64, at: u64, slot: &Arc<DecoderSlot>, running: &Running) {
        let mut snapshots = lock(&self.snapshots);
        if slot.window() > SNAPSHOT_WINDOW || !snapshots.wants(offset) {
            return;
        }
        let checkpoint = Checkpoint {
            at,
            slot: Arc::clone(slot),
            state: Arc::new(running.snapshot()),
        };
        snapshots.add(offset, Some(checkpoint));
    }
}

impl Stream for ZstdStream {
    fn entry(&self, offset: u64) -> u64 {
        self.start(offset).0
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let (position, start) = self.start(offset);
        let (at, seat) = match start {
            Ok(from) => {
                let state = Arc::clone(&from.state);
                (from.at, Some(Seat::new(from.slot, Some(state))))
            }
            Err(at) => (at, None),
        };
        // Damage is told by the first read.
        let next = next_frame(self.stored.as_ref(), at).ok().flatten();
        let window = next.filter(|_| seat.is_none()).map(|(_, next)| next.window);
        Ok(Box::new(ZstdCursor {
            stream: self,
            position,
            input: Input::new(at),
            window: window.unwrap_or_default(),
            within: seat.is_some(),
            seat,
        }))
    }

    fn parallel(&self) -> bool {
        !self.large
    }

    fn held(&self) -> u64 {
        let snapshots = lock(&self.snapshots);
        let checkpoints = || {
            snapshots
                .rest()
                .iter()
                .filter_map(|(_, kept)| kept.as_ref())
        };
        let states: usize = checkpoints().map(|kept| kept.state.len()).sum();
        let mut slots: Vec<&Arc<DecoderSlot>> = checkpoints().map(|kept| &kept.slot).collect();
        slots.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let slots: usize = slots.iter().map(|slot| slot.bytes()).sum();
        let frames = lock(&self.frames).held();
        len_u64(states.saturating_add(slots)).saturating_add(frames)
    }

    fn thin_out(&self) {
        lock(&self.snapshots).thin_out();
    }
}

/// A decoder that runs through the frames.
struct ZstdCursor {
    stream: Arc<ZstdStream>,
    position: u64,
    input: Input,
    /// Window of the next frame, if it is known.
    window: usize,
    /// Whether it is in the middle of a frame, with a state in the slot.
    within: bool,
    /// The decoder of the frame, or of the one before; none before the first.
    seat: Option<Seat>,
}

impl Cursor for ZstdCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        checked_end(self.position, buf.len(), self.stream.data_size)?;
        let announced = self.announced();
        let mut done = 0usize;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(given) = self.read_frame(rest, announced)? else {
                break;
            };
            done = done.saturating_add(given);
        }
        if self.position >= self.stream.data_size {
            self.finish()?;
        }
        Ok(done)
    }

    fn held(&self) -> u64 {
        len_u64(self.decoder()).saturating_add(self.input.held())
    }

    fn needed(&self) -> u64 {
        let window = self.announced();
        let decoder = Running::bytes_for(window);
        let snapshot = window <= SNAPSHOT_WINDOW && self.stream.may_keep(self.position);
        let snapshot = if snapshot { decoder } else { 0 };
        let decoder = decoder.max(self.decoder());
        len_u64(decoder.saturating_add(snapshot)).saturating_add(self.input.held())
    }
}

impl ZstdCursor {
    /// Bytes of the decoder's memory, or of the copy of it.
    fn decoder(&self) -> usize {
        self.seat.as_ref().map_or(0, |seat| seat.slot().bytes())
    }

    /// The greatest window that the next read may need a decoder for: a frame with a larger one is not entered yet.
    fn announced(&self) -> usize {
        let here = self.seat.as_ref().map_or(0, |seat| seat.slot().window());
        if self.within {
            here
        } else {
            here.max(self.window)
        }
    }

    /// Decodes up to the end of `buf` or of the frame, and gives the number of bytes; `None` if the frame has a larger window
    /// than `announced`.
    fn read_frame(&mut self, buf: &mut [u8], announced: usize) -> Result<Option<usize>> {
        let (begun, before) = (self.within, self.seat.take());
        let seat = if begun {
            before.ok_or_else(|| corrupt("zstd frame that has failed before"))?
        } else if let Some(seat) = self.enter(before, announced)? {
            seat
        } else {
            return Ok(None);
        };
        let mut turn = if begun { seat.resume()? } else { seat.begin() };
        let mut done = 0;
        while let Some(out) = buf.get_mut(done..).filter(|out| !out.is_empty()) {
            if self.stream.large {
                let at = self.input.position();
                let running = &turn.running;
                self.stream.keep(self.position, at, seat.slot(), running);
            }
            let step = self.step(&mut turn.running, out)?;
            done = done.saturating_add(step.filled);
            self.position = self.position.saturating_add(len_u64(step.filled));
            if step.stop == Stop::End {
                turn.end();
                self.within = false;
                break;
            }
        }
        drop(turn);
        self.seat = Some(seat);
        Ok(Some(done))
    }

    /// Goes to the next frame: gives a place at a decoder that is large enough for it, the one before if possible.
    fn enter(&mut self, before: Option<Seat>, announced: usize) -> Result<Option<Seat>> {
        let stored = self.stream.stored.as_ref();
        let (at, frame) = next_frame(stored, self.input.position())?
            .ok_or_else(|| corrupt("zstd frames end before the data does"))?;
        if at != self.input.position() {
            self.input.seek(at);
        }
        lock(&self.stream.frames).meet(self.position, at)?;
        self.window = frame.window;
        if frame.window > announced {
            self.seat = before;
            return Ok(None);
        }
        self.within = true;
        if let Some(seat) = before.filter(|seat| seat.slot().suits(frame.window)) {
            return Ok(Some(seat));
        }
        let slot = self.stream.slot(frame.window)?;
        Ok(Some(Seat::new(slot, None)))
    }

    /// Decodes some input into `out`, which has room.
    fn step(&mut self, running: &mut Running, out: &mut [u8]) -> Result<Step> {
        let step = self.decode(running, out)?;
        if step.is_stuck() || self.input.is_idle() {
            return Err(corrupt("zstd frames end before the data does"));
        }
        Ok(step)
    }

    /// Runs the decoder from the last byte of the data to the end of the frame, where it compares the checksum. As for zlib, one that is
    /// cut off is no error.
    fn finish(&mut self) -> Result<()> {
        let Some(seat) = self.seat.take() else {
            return Ok(());
        };
        while self.within && !self.input.is_idle() {
            let mut turn = seat.resume()?;
            let step = self.decode(&mut turn.running, &mut [])?;
            if step.stop == Stop::End {
                turn.end();
                self.within = false;
            } else if step.is_stuck() {
                break;
            }
        }
        self.seat = Some(seat);
        Ok(())
    }

    /// One call of the decoder.
    fn decode(&mut self, running: &mut Running, out: &mut [u8]) -> Result<Step> {
        let stored = self.stream.stored.as_ref();
        let input = self.input.fill(stored, stored.len())?;
        let step = running.decode(input, out)?;
        self.input.moved(&step);
        Ok(step)
    }
}

#[cfg(test)]
mod tests;
