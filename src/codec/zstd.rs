//! Zstandard frames: code `zstd`.
//!
//! Writers make one frame, which has no entries: the whole of it is one window sliding along. So the running decoder's memory is
//! copied every [`SNAPSHOT_SPACING`] decoded bytes, and put back to read near there again. Where a payload has several frames,
//! their starts are entries: found in a seek table, or along the block headers where frame headers have the content size, or
//! else as decoding passes them.
//!
//! A snapshot fits only the memory it was taken from (see [`native`]), so all cursors of a payload with large frames share one
//! decoder: each puts its own state back when it reads, after that of the one before was saved. Payloads of small frames need
//! no snapshots; there each cursor has a decoder of its own, and several may run at once.

mod frame;
mod native;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::chunked::{Entries, Input, PIECE, corrupt, read_into};
use super::{Codec, Cursor, Opened, Stream};
use crate::error::{Error, Result};
use crate::source::{Source, checked_end, len_u64};
use frame::{Frames, next_frame};
#[cfg(feature = "blosc")]
pub(super) use native::Decoder;
pub(super) use native::Encoder;
use native::{Running, Snapshot, Step};

/// Level of what is written: the library's and the ecosystem's default.
const LEVEL: i32 = 3;
/// Least distance of snapshots, in decoded bytes. Frames up to this length have none.
const SNAPSHOT_SPACING: u64 = 32 << 20;
/// Memory for snapshots, in all payloads together: their distance follows from it, and beyond it none are taken.
const SNAPSHOT_MEMORY: usize = 64 << 20;
/// A payload that gives no data for so much input is taken for hostile; a frame has 128 KiB of data in each block or so.
const MAX_IDLE_INPUT: usize = 1 << 20;

/// Bytes in snapshots, in all payloads together.
static SNAPSHOTS: AtomicUsize = AtomicUsize::new(0);

/// The Zstandard codec.
pub(super) struct Zstd;

impl Codec for Zstd {
    fn code(&self) -> [u8; 4] {
        *b"zstd"
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Opened> {
        let first = next_frame(stored.as_ref(), 0)?;
        if first.is_none() && data_size > 0 {
            return Err(corrupt("no zstd frame"));
        }
        let large = first.is_some_and(|(_, frame)| {
            frame
                .content_size
                .is_none_or(|size| size > SNAPSHOT_SPACING)
        });
        let window = first.map_or(0, |(_, frame)| frame.window);
        let spacing = data_size
            .checked_div(len_u64(SNAPSHOT_MEMORY.checked_div(window).unwrap_or(1)))
            .unwrap_or(data_size)
            .max(SNAPSHOT_SPACING);
        let stream = ZstdStream {
            stored,
            data_size,
            large,
            window,
            slot: Mutex::new(None),
            frames: Mutex::new(Frames::new(data_size)),
            snapshots: Mutex::new(Entries::spaced(spacing, None)),
        };
        Ok(Opened {
            framing: "frame",
            stream: Arc::new(stream),
        })
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        let written = |cause| Error::io("writing a zstd frame", cause);
        let mut encoder = Encoder::new(LEVEL)?;
        encoder.begin(decoded.len())?;
        let (mut input, mut packed) = (Vec::new(), vec![0; PIECE]);
        let mut at = 0;
        while at < decoded.len() {
            let len = usize::try_from(decoded.len().saturating_sub(at))
                .unwrap_or(PIECE)
                .min(PIECE);
            let mut bytes = read_into(decoded, at, len, &mut input)?;
            at = at.saturating_add(len_u64(len));
            while !bytes.is_empty() {
                let (taken, given) = encoder.push(bytes, &mut packed)?;
                out.write_all(packed.get(..given).unwrap_or_default())
                    .map_err(written)?;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
        }
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

/// A decoder's memory, the greatest window it is made for, and whose state is in it.
struct Slot {
    running: Running,
    window: usize,
    owner: Weak<Mutex<State>>,
}

/// Where the state of a cursor's decoder is.
enum State {
    /// Nowhere yet: the next frame starts from nothing.
    Fresh,
    /// In the slot.
    Live,
    /// Aside.
    Saved(Arc<Snapshot>),
}

/// A state in the middle of a frame: where the input goes on, whose memory it fits, and the state.
#[derive(Clone)]
struct Checkpoint {
    at: u64,
    slot: Arc<Mutex<Slot>>,
    state: Arc<Counted>,
}

/// A snapshot that counts against [`SNAPSHOT_MEMORY`] while it is kept.
struct Counted(Arc<Snapshot>);

impl Drop for Counted {
    fn drop(&mut self) {
        SNAPSHOTS.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// The decoded bytes of a payload of Zstandard frames.
struct ZstdStream {
    stored: Arc<dyn Source>,
    data_size: u64,
    /// Whether frames are so large that there are snapshots, and all cursors share one decoder.
    large: bool,
    /// Window of the first frame.
    window: usize,
    slot: Mutex<Option<Arc<Mutex<Slot>>>>,
    frames: Mutex<Frames>,
    snapshots: Mutex<Entries<Option<Checkpoint>>>,
}

/// The contents of a mutex whose holders leave them whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ZstdStream {
    /// The best place to start from for `offset`: decoded offset, and a frame's start in the payload or a checkpoint.
    fn start(&self, offset: u64) -> (u64, Result<Checkpoint, u64>) {
        let (frame, at) = lock(&self.frames).at(self.stored.as_ref(), offset);
        match lock(&self.snapshots).at(offset) {
            (entry, Some(checkpoint)) if entry > frame => (entry, Ok(checkpoint)),
            _ => (frame, Err(at)),
        }
    }

    /// A decoder for frames with a window of up to `window` bytes: the shared one, if it is large enough.
    fn slot(&self, window: usize) -> Result<Arc<Mutex<Slot>>> {
        let mut shared = lock(&self.slot);
        if let Some(slot) = shared.as_ref().filter(|slot| lock(slot).window >= window) {
            return Ok(Arc::clone(slot));
        }
        let slot = Arc::new(Mutex::new(Slot {
            running: Running::new(window)?,
            window,
            owner: Weak::new(),
        }));
        if self.large {
            *shared = Some(Arc::clone(&slot));
        }
        Ok(slot)
    }

    /// Keeps a copy of a running decoder's state, if there is none nearby and there is memory for it.
    fn keep(&self, offset: u64, at: u64, slot: &Arc<Mutex<Slot>>, running: &Running) {
        let mut snapshots = lock(&self.snapshots);
        if !snapshots.wants(offset) {
            return;
        }
        let bytes = running.bytes();
        if SNAPSHOTS.fetch_add(bytes, Ordering::Relaxed) > SNAPSHOT_MEMORY.saturating_sub(bytes) {
            SNAPSHOTS.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        let checkpoint = Checkpoint {
            at,
            slot: Arc::clone(slot),
            state: Arc::new(Counted(Arc::new(running.snapshot()))),
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
        let (at, slot, state) = match start {
            Ok(from) => (
                from.at,
                Some(from.slot),
                State::Saved(Arc::clone(&from.state.0)),
            ),
            Err(at) => (at, None, State::Fresh),
        };
        Ok(Box::new(ZstdCursor {
            stream: self,
            position,
            input: Input::new(at),
            slot,
            state: Arc::new(Mutex::new(state)),
            memory: 0,
        }))
    }

    fn parallel(&self) -> bool {
        !self.large
    }

    fn held(&self) -> u64 {
        let snapshots: usize = lock(&self.snapshots)
            .rest()
            .iter()
            .filter_map(|(_, checkpoint)| Some(checkpoint.as_ref()?.state.0.len()))
            .sum();
        len_u64(snapshots.saturating_add(lock(&self.frames).held()))
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
    /// The decoder that the state fits; none before the first frame.
    slot: Option<Arc<Mutex<Slot>>>,
    /// Locked only while the slot is, so that whoever holds the slot may move any cursor's state out of it.
    state: Arc<Mutex<State>>,
    /// Bytes of the decoder's memory, or of the copy of it.
    memory: usize,
}

impl Cursor for ZstdCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        let end = checked_end(self.position, buf.len(), self.stream.data_size)?;
        let mut done = 0;
        let mut idle = 0;
        while done < buf.len() {
            let slot = self.frame_slot(done)?;
            let mut held = lock(&slot);
            self.take_over(&mut held);
            while let Some(out) = buf.get_mut(done..).filter(|out| !out.is_empty()) {
                if self.stream.large {
                    let offset = self.position.saturating_add(len_u64(done));
                    let at = self.input.position();
                    self.stream.keep(offset, at, &slot, &held.running);
                }
                let step = self.step(&mut held.running, out, &mut idle)?;
                done = done.saturating_add(step.given);
                if step.ended {
                    *lock(&self.state) = State::Fresh;
                    break;
                }
            }
        }
        self.position = end;
        Ok(())
    }

    fn held(&self) -> u64 {
        len_u64(self.memory).saturating_add(self.input.held())
    }

    fn scratch(&self) -> u64 {
        let decoder = Running::bytes_for(self.stream.window);
        len_u64(decoder.saturating_sub(self.memory))
    }
}

impl ZstdCursor {
    /// The decoder of the frame that the cursor is in: between frames, one that is large enough for the next.
    fn frame_slot(&mut self, done: usize) -> Result<Arc<Mutex<Slot>>> {
        let fresh = matches!(*lock(&self.state), State::Fresh);
        if let Some(slot) = self.slot.as_ref().filter(|_| !fresh) {
            return Ok(Arc::clone(slot));
        }
        let stored = self.stream.stored.as_ref();
        let (at, frame) = next_frame(stored, self.input.position())?
            .ok_or_else(|| corrupt("zstd frames end before the data does"))?;
        if at != self.input.position() {
            self.input.seek(at);
        }
        let offset = self.position.saturating_add(len_u64(done));
        lock(&self.stream.frames).add(offset, at);
        let slot = match self
            .slot
            .take()
            .filter(|slot| lock(slot).window >= frame.window)
        {
            Some(slot) => slot,
            None => self.stream.slot(frame.window)?,
        };
        self.slot = Some(Arc::clone(&slot));
        Ok(slot)
    }

    /// Brings this cursor's state into the slot, after that of the cursor that has been using it was put aside.
    fn take_over(&mut self, slot: &mut Slot) {
        let mut state = lock(&self.state);
        if let State::Live = *state {
            return;
        }
        if let Some(other) = slot
            .owner
            .upgrade()
            .filter(|other| !Arc::ptr_eq(other, &self.state))
        {
            let mut other = lock(&other);
            if let State::Live = *other {
                *other = State::Saved(Arc::new(slot.running.snapshot()));
            }
        }
        if let State::Saved(snapshot) = &*state {
            slot.running.restore(snapshot);
        } else {
            slot.running.reset();
        }
        *state = State::Live;
        slot.owner = Arc::downgrade(&self.state);
        self.memory = slot.running.bytes();
    }

    /// Decodes some input into `out`; `idle` counts the input since the last output.
    fn step(&mut self, running: &mut Running, out: &mut [u8], idle: &mut usize) -> Result<Step> {
        let stored = self.stream.stored.as_ref();
        let input = self.input.fill(stored, stored.len())?;
        let step = running.decode(input, out)?;
        self.input.take(step.taken);
        *idle = if step.given == 0 {
            idle.saturating_add(step.taken)
        } else {
            0
        };
        let stuck = step.taken == 0 && step.given == 0 && !step.ended;
        if stuck || *idle > MAX_IDLE_INPUT {
            return Err(corrupt("zstd frames end before the data does"));
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests;
