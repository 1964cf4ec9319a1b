//! The seek index of a block, stored for the next mount: the stream's entries, and a checksum of each segment.
//!
//! A loaded index must agree with itself: each segment that is decoded with it must have the checksum that the index gives
//! for it before a reader gets its bytes. If one has not, or can't be decoded, the index is dropped, with all segments and
//! decoders that came from it, and the block is read as if there had been no index. That happens at most once for a block.
//!
//! So an index that is torn, stale or damaged by chance does no harm. The checksums are no guard against a forged index:
//! a user who can write the file can write entries and checksums that agree, and so show bytes that are not the block's. The
//! permissions of file and directory guard against that (see [`index_store`](crate::codec::index_store)). Even a forged index
//! causes no panic and no hang, and memory stays in bounds.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | decoded length |
//! | 4 n | CRC-32 of each segment |
//! | rest | the entries, as [`Stream::export`] gives them |
//!
//! Numbers are little-endian.

use std::sync::Arc;

use super::{Decode, Decoded, DecodedState, Demand, SEGMENT, Stream};
use crate::codec::grant::Grant;
use crate::codec::index_store::IndexSlot;
use crate::error::{Error, Place, Result};
use crate::source::{Fields, len_u64};

/// Blocks of fewer segments have no index: decoding them is as fast as loading one.
const LEAST_SEGMENTS: u64 = 4;

/// Bytes of memory for each byte of an index while it is loaded: its own, and what [`Stream::import`] makes of it.
const LOAD_FACTOR: u64 = 6;

/// What is known of the segments, and of the index that is made of it.
#[derive(Default)]
pub(super) struct SegmentSums {
    /// Checksums of the segments that have been decoded, as far as the last of them.
    by_segment: Vec<Option<u32>>,
    /// How many these are.
    known: u64,
    /// Whether the index is stored, or was to be.
    pub(super) stored: bool,
    /// The slot's key when the block was first read or the file last saved; `None` once another program has changed the file.
    key: Option<Vec<u8>>,
}

impl SegmentSums {
    /// Records the checksum of a decoded segment; tells whether it is the known one, if one is.
    fn note(&mut self, segment: u64, sum: u32) -> bool {
        let at = usize::try_from(segment).unwrap_or(usize::MAX);
        // Bounded by the decoded length, because the segment was decoded.
        let len = self.by_segment.len().max(at.saturating_add(1));
        self.by_segment.resize(len, None);
        match self.by_segment.get_mut(at) {
            Some(Some(known)) => *known == sum,
            Some(unknown @ None) => {
                *unknown = Some(sum);
                self.known = self.known.saturating_add(1);
                true
            }
            None => true,
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        sums_len(self.by_segment.capacity())
    }
}

impl Decoded {
    /// Whether a stream of this block has the entries of a loaded index.
    pub(super) fn is_indexed(&self, stream: &Arc<dyn Stream>) -> bool {
        !Arc::ptr_eq(stream, &self.first)
    }

    /// Records the checksum of a segment that a decoder has decoded.
    ///
    /// # Errors
    /// If it contradicts the loaded index, or the index of the decoder has proved wrong.
    pub(super) fn note_sum(
        &self,
        state: &mut DecodedState,
        decode: &Decode,
        segment: u64,
        sum: u32,
    ) -> Result<()> {
        let believed = !decode.is_outdated(state)
            && (state.sums.note(segment, sum) || !self.is_indexed(&decode.stream));
        believed.then_some(()).ok_or_else(wrong_index)
    }

    /// Loads the index that another mount has stored, if there is one. For the first thread that reads the block, before anything
    /// is decoded.
    pub(super) fn load_index(&self) {
        if let Some(slot) = &self.slot {
            let key = slot.key();
            if let Some(key) = &key {
                self.load_index_from(slot, key);
            }
            self.lock().sums.key = key;
        }
    }

    /// Loads the index of this key. `None` if there is none that fits the block, or no memory for it.
    fn load_index_from(&self, slot: &IndexSlot, key: &[u8]) -> Option<()> {
        let found = slot.find(key)?;
        let total = found.len().saturating_mul(LOAD_FACTOR);
        let mut grant = Grant::new(&self.cache);
        admit(&mut grant, total, Demand::Sequential(self.key))?;
        let bytes = found.read(key)?;
        let Some((stream, sums)) = self.parse(&bytes) else {
            log::warn!("a stored index does not fit its block, and is not used");
            return None;
        };
        let mut state = self.lock();
        state.sums = sums;
        state.stream = stream;
        self.recount(state, Demand::Background(self.key));
        Some(())
    }

    /// The stream with the entries of an index, and the checksums of its segments.
    fn parse(&self, bytes: &[u8]) -> Option<(Arc<dyn Stream>, SegmentSums)> {
        let mut fields = Fields(bytes);
        if fields.u64()? != self.len {
            return None;
        }
        let len = usize::try_from(segments(self.len)).ok()?;
        let (sums, _) = fields.bytes(len.checked_mul(4)?)?.as_chunks();
        if !self.cache.may_hold(sums_len(len)) {
            return None;
        }
        let known = |sum: &[u8; 4]| Some(u32::from_le_bytes(*sum));
        let sums = SegmentSums {
            by_segment: sums.iter().map(known).collect(),
            known: segments(self.len),
            stored: true,
            key: None,
        };
        Some((self.first.import(fields.0)?, sums))
    }

    /// Drops a loaded index, and the segments and decoders that came from it. Running decoders notice at their next segment.
    pub(super) fn drop_index(&self, state: &mut DecodedState) {
        if self.is_indexed(&state.stream) {
            state.stream = Arc::clone(&self.first);
            state.sums = SegmentSums {
                key: state.sums.key.take(),
                ..SegmentSums::default()
            };
            log::warn!("a stored index does not lead to the right bytes, and is not used");
            // the next segment that is decoded counts what the stream holds
            self.cache.forget(self.key);
        }
    }

    /// Whether all segments are known and the index is not stored.
    pub(super) fn has_index_to_store(&self, state: &DecodedState) -> bool {
        let sums = &state.sums;
        let all = sums.known == segments(self.len);
        self.slot.is_some() && sums.key.is_some() && all && !sums.stored
    }

    /// Stores the seek index under a new key, after a save has changed the file but not this block.
    pub fn store_index_anew(&self) {
        if let Some(slot) = &self.slot
            && self.index_loaded.get().is_some()
        {
            let key = slot.key();
            let mut state = self.lock();
            state.sums.key = key;
            state.sums.stored = false;
            self.tidy_later(&mut state, false);
        }
    }

    /// Stores the index, if the file is still the one that was decoded. `None` if not all is known of the segments.
    pub(super) fn write_index(&self) -> Option<()> {
        let slot = self.slot.as_ref()?;
        let count = segments(self.len);
        let held = self.lock().stream.held();
        let total = sums_len(usize::try_from(count).ok()?).saturating_add(held);
        let mut grant = Grant::new(&self.cache);
        admit(&mut grant, total, Demand::Background(self.key))?;
        let mut index = Vec::with_capacity(usize::try_from(total).ok()?.checked_add(16)?);
        let (stream, key) = {
            let state = &*self.lock();
            let sums = &state.sums;
            if len_u64(sums.by_segment.len()) != count {
                return None;
            }
            index.extend(self.len.to_le_bytes());
            for sum in &sums.by_segment {
                index.extend((*sum)?.to_le_bytes());
            }
            (Arc::clone(&state.stream), sums.key.clone()?)
        };
        stream.export(&mut index)?;
        if slot.key().as_ref() == Some(&key) {
            slot.store(&key, &index);
        } else {
            // Another program has changed the file: what was decoded may not be what it holds now.
            let sums = &mut self.lock().sums;
            if sums.key == Some(key) {
                (sums.key, sums.stored) = (None, false);
            }
        }
        Some(())
    }
}

/// Waits until `total` bytes of memory may be used for an index.
fn admit(grant: &mut Grant<'_>, total: u64, demand: Demand) -> Option<()> {
    grant.wait_for(total).ok()?;
    grant.admit(total, demand).ok()?.then_some(())
}

/// Whether an index of this stream, of so many decoded bytes, is worth storing.
pub(super) fn is_worth_indexing(stream: &dyn Stream, len: u64) -> bool {
    stream.learns() && segments(len) >= LEAST_SEGMENTS
}

/// Memory for the checksums of so many segments.
fn sums_len(segments: usize) -> u64 {
    len_u64(segments.saturating_mul(size_of::<Option<u32>>()))
}

/// How many segments so many decoded bytes have.
pub(super) fn segments(len: u64) -> u64 {
    len.div_ceil(len_u64(SEGMENT))
}

fn wrong_index() -> Error {
    Error::corrupt(
        Place::File,
        "a stored index does not lead to the right bytes",
    )
}

#[cfg(test)]
mod tests;
