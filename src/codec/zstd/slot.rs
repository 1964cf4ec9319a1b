//! Decoders that several cursors use in turn.
//!
//! All that says whose state is where is behind one lock: the state of the cursor that read last is in the decoder's memory,
//! those of the others lie beside it. So no state can be taken for that of another decoder, or of another cursor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::native::{Running, Snapshot};
use crate::error::{Result, corrupt, lock};

/// A decoder larger than a frame needs by this factor is not used for it: states would take as much more memory.
const WASTE: usize = 4;

/// A decoder, and the states of the cursors that use it.
pub(super) struct DecoderSlot {
    window: usize,
    bytes: usize,
    turns: Mutex<Turns>,
}

/// What is in the decoder, and what beside it. It is locked for one cursor while that decodes.
pub(super) struct Turns {
    /// The decoder, with the state of the `owner` in it.
    pub(super) running: Running,
    /// The number of the cursor whose state is in the decoder, if it is of use.
    owner: Option<u64>,
    /// The states of the others that are within a frame.
    aside: HashMap<u64, Arc<Snapshot>>,
    next: u64,
}

impl DecoderSlot {
    /// A decoder for frames with a window of up to `window` bytes.
    pub(super) fn new(window: usize) -> Result<Arc<Self>> {
        let running = Running::new(window)?;
        Ok(Arc::new(Self {
            window,
            bytes: running.bytes(),
            turns: Mutex::new(Turns {
                running,
                owner: None,
                aside: HashMap::new(),
                next: 0,
            }),
        }))
    }

    /// Whether it is large enough for frames with such a window, and not too large.
    pub(super) fn suits(&self, window: usize) -> bool {
        window <= self.window && self.window <= window.saturating_mul(WASTE)
    }

    /// The greatest window that it is made for.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Bytes of memory of the decoder, and of each state.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The place of one cursor at a decoder that several cursors share.
pub(super) struct Seat {
    slot: Arc<DecoderSlot>,
    number: u64,
}

impl Seat {
    /// For a cursor between frames, or in the middle of one with this state.
    pub(super) fn new(slot: Arc<DecoderSlot>, state: Option<Arc<Snapshot>>) -> Self {
        let number = {
            let mut turns = lock(&slot.turns);
            let number = turns.next;
            turns.next = number.saturating_add(1);
            if let Some(state) = state {
                turns.aside.insert(number, state);
            }
            number
        };
        Self { slot, number }
    }

    /// The decoder.
    pub(super) fn slot(&self) -> &Arc<DecoderSlot> {
        &self.slot
    }

    /// The decoder at the start of a frame.
    pub(super) fn begin(&self) -> MutexGuard<'_, Turns> {
        let mut turns = lock(&self.slot.turns);
        turns.aside.remove(&self.number);
        turns.put_aside(self.number);
        turns.running.reset();
        turns.owner = Some(self.number);
        turns
    }

    /// The decoder in the state that this cursor has left it in.
    ///
    /// # Errors
    /// If there is no such state: nothing is decoded with that of another.
    pub(super) fn resume(&self) -> Result<MutexGuard<'_, Turns>> {
        let mut turns = lock(&self.slot.turns);
        if turns.owner != Some(self.number) {
            let lost = || corrupt("the state of a zstd decoder is lost");
            let state = turns.aside.remove(&self.number).ok_or_else(lost)?;
            turns.exchange(state).ok_or_else(lost)?;
            turns.owner = Some(self.number);
        }
        Ok(turns)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut turns = lock(&self.slot.turns);
        turns.aside.remove(&self.number);
        if turns.owner == Some(self.number) {
            turns.owner = None;
        }
    }
}

impl Turns {
    /// The frame of the cursor whose state is in the decoder has ended: the state is of no more use.
    pub(super) fn end(&mut self) {
        self.owner = None;
    }

    /// Keeps the state that is in the decoder, if it is that of another cursor than `number`.
    fn put_aside(&mut self, number: u64) {
        if let Some(owner) = self.owner.take().filter(|&owner| owner != number) {
            let state = Arc::new(self.running.snapshot());
            self.aside.insert(owner, state);
        }
    }

    /// Puts `state` into the decoder, and the one that is there aside; `None` if it is not one of this decoder.
    fn exchange(&mut self, state: Arc<Snapshot>) -> Option<()> {
        match (self.owner, Arc::try_unwrap(state)) {
            (Some(owner), Ok(mut state)) => {
                self.running.exchange(&mut state).then_some(())?;
                self.aside.insert(owner, Arc::new(state));
            }
            (None, Ok(state)) => self.running.restore(&state).then_some(())?,
            (_, Err(shared)) => {
                self.put_aside(u64::MAX);
                self.running.restore(&shared).then_some(())?;
            }
        }
        Some(())
    }
}
