//! What a pass through a block teaches, kept for the next mount: the stream's entries, and a checksum of each segment.
//!
//! An index that comes from a file must agree with itself: each segment that is decoded with it must have the checksum that
//! the same file gives for it before anybody gets to see it. When one has not, or can't be decoded, the index is given up,
//! with all that came by it, and the block is read as if there had been none. That happens once for a block, at most.
//!
//! So what is torn, stale or damaged by chance does no harm. It is no guard against people: whoever can write the file can
//! write entries and checksums that agree, and with them bytes that are not the block's; who that is, the permissions of
//! file and directory say (see [`kept`](crate::codec::kept)). Even then nothing panics or hangs, and memory stays in bounds.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | decoded length |
//! | 4 n | CRC-32 of each segment |
//! | rest | the entries, as [`Stream::export`] gives them |
//!
//! Numbers are little-endian.

use std::sync::{Arc, PoisonError};

use super::{Demand, SEGMENT, Shared, State, Stream};
use crate::codec::kept::{Fields, Slot};
use crate::error::{Error, Place, Result};
use crate::source::len_u64;

/// Blocks of fewer segments have no index kept: decoding them takes no time.
const LEAST_SEGMENTS: u64 = 4;

/// Checksums of segments, where they are known.
type Sums = Vec<Option<u32>>;

/// Bytes of memory for each byte of a kept index while it is taken: its own, and what [`Stream::import`] makes of it.
const RECALL_NEED: u64 = 6;

/// What is known of the segments.
#[derive(Default)]
pub(super) struct Learnt {
    /// Checksums of the segments that have been decoded, as far as the last of them.
    sums: Sums,
    /// How many these are.
    known: u64,
    /// Whether the stream in use has entries of another mount.
    pub(super) imported: bool,
    /// Whether all is kept already, or is going to be.
    kept: bool,
    /// The slot's key, as it was when the block was first read or the file last saved; none if the file has changed otherwise.
    key: Option<Vec<u8>>,
}

impl Learnt {
    /// Takes note of a segment that has been decoded, or finds that it is not the right one.
    fn note(&mut self, index: u64, sum: u32) -> Result<()> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        // What has been decoded is of that so this is no more than a part of it.
        let len = self.sums.len().max(index.saturating_add(1));
        self.sums.resize(len, None);
        match self.sums.get_mut(index) {
            Some(Some(known)) if self.imported && *known != sum => Err(wrong_index()),
            Some(unknown @ None) => {
                *unknown = Some(sum);
                self.known = self.known.saturating_add(1);
                Ok(())
            }
            Some(Some(_)) | None => Ok(()),
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        sums_len(self.sums.capacity())
    }
}

impl Shared {
    /// The slot, if it is worth while to keep an index of this stream.
    pub(super) fn worth_keeping(slot: Option<Slot>, stream: &dyn Stream, len: u64) -> Option<Slot> {
        slot.filter(|_| stream.learns() && segments(len) >= LEAST_SEGMENTS)
    }

    /// The stream in use.
    pub(super) fn stream(&self) -> Arc<dyn Stream> {
        let imported = self.imported.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(imported.as_ref().unwrap_or(&self.first))
    }

    /// Takes the entries that another mount has left, if there are some. Comes before all else, once.
    pub(super) fn recall(&self) {
        if let Some(slot) = &self.slot {
            self.recalled.get_or_init(|| {
                let key = slot.key();
                if let Some(key) = &key {
                    self.recall_from(slot, key);
                }
                self.lock().learnt.key = key;
            });
        }
    }

    fn recall_from(&self, slot: &Slot, key: &[u8]) -> Option<()> {
        let found = slot.find(key)?;
        let need = found.len().saturating_mul(RECALL_NEED);
        let _pass = self.cache.work().enter(true, need).ok()?;
        let _room = self.cache.room(need, self.whose(Demand::AHEAD));
        let bytes = found.read(key)?;
        let Some((stream, sums)) = self.parse(&bytes) else {
            log::warn!("an index that was kept does not fit its block, and is not used");
            return None;
        };
        let mut state = self.lock();
        state.learnt = Learnt {
            known: segments(self.len),
            sums,
            imported: true,
            kept: true,
            key: None,
        };
        *self
            .imported
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(stream);
        self.recount(&state, self.whose(Demand::AHEAD));
        Some(())
    }

    fn parse(&self, bytes: &[u8]) -> Option<(Arc<dyn Stream>, Sums)> {
        let mut fields = Fields(bytes);
        if fields.u64()? != self.len {
            return None;
        }
        let len = usize::try_from(segments(self.len)).ok()?;
        let (sums, _) = fields.bytes(len.checked_mul(4)?)?.as_chunks();
        if !self.cache.may_hold(sums_len(len)) {
            return None;
        }
        let sums = sums
            .iter()
            .map(|sum| Some(u32::from_le_bytes(*sum)))
            .collect();
        Some((self.first.import(fields.0)?, sums))
    }

    /// Compares a decoded segment with what is known of it, and has all kept when this was the last to be known.
    ///
    /// # Errors
    /// If the decoder that `imported` says something of began with an index that is wrong.
    pub(super) fn learn(
        &self,
        state: &mut State,
        index: u64,
        sum: u32,
        imported: bool,
    ) -> Result<()> {
        if imported && !state.learnt.imported {
            return Err(wrong_index());
        }
        state.learnt.note(index, sum)?;
        self.keep_learnt(state);
        Ok(())
    }

    /// Gives up an index that comes from a file, with all that came by it. Decoders under way find out at their next segment.
    pub(super) fn unlearn(&self, state: &mut State) {
        if state.learnt.imported {
            state.learnt = Learnt {
                key: state.learnt.key.take(),
                ..Learnt::default()
            };
            log::warn!("an index that was kept does not lead to the right bytes, and is not used");
            *self
                .imported
                .write()
                .unwrap_or_else(PoisonError::into_inner) = None;
            self.cache.forget(self.key);
            self.recount(state, self.whose(Demand::AHEAD));
        }
    }

    /// Has what is learnt kept, if all is and nobody has yet.
    pub(super) fn keep_learnt(&self, state: &mut State) {
        let learnt = &state.learnt;
        let all = learnt.known == segments(self.len);
        if self.slot.is_some() && learnt.key.is_some() && all && !learnt.kept {
            let shared = self.this.clone();
            state.learnt.kept = self.cache.work().later(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.tidy();
                    shared.write_learnt();
                }
            }));
        }
    }

    /// Takes the file as it is now for the one that has been decoded, and has what is learnt kept for it.
    pub(super) fn keep_anew(&self) {
        if let Some(slot) = &self.slot
            && self.recalled.get().is_some()
        {
            let key = slot.key();
            let mut state = self.lock();
            state.learnt.key = key;
            state.learnt.kept = false;
            self.keep_learnt(&mut state);
        }
    }

    fn write_learnt(&self) -> Option<()> {
        let slot = self.slot.as_ref()?;
        let count = segments(self.len);
        let need = sums_len(usize::try_from(count).ok()?).saturating_add(self.stream().held());
        let _pass = self.cache.work().enter(false, need).ok()?;
        let _room = self.cache.room(need, self.whose(Demand::AHEAD));
        let mut index = Vec::with_capacity(usize::try_from(need).ok()?.checked_add(16)?);
        let (stream, key) = {
            let learnt = &self.lock().learnt;
            if len_u64(learnt.sums.len()) != count {
                return None;
            }
            index.extend(self.len.to_le_bytes());
            for sum in &learnt.sums {
                index.extend((*sum)?.to_le_bytes());
            }
            (self.stream(), learnt.key.clone()?)
        };
        stream.export(&mut index)?;
        if slot.key().as_ref() == Some(&key) {
            slot.store(&key, &index);
        } else {
            // What has been changed meanwhile is not what was decoded.
            let learnt = &mut self.lock().learnt;
            if learnt.key == Some(key) {
                (learnt.key, learnt.kept) = (None, false);
            }
        }
        Some(())
    }
}

/// Memory for the checksums of so many segments.
fn sums_len(segments: usize) -> u64 {
    len_u64(segments.saturating_mul(size_of::<Option<u32>>()))
}

fn segments(len: u64) -> u64 {
    len.div_ceil(len_u64(SEGMENT))
}

fn wrong_index() -> Error {
    Error::corrupt(
        Place::File,
        "an index that was kept does not lead to the right bytes",
    )
}

#[cfg(test)]
mod tests;
