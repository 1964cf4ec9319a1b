//! Checksums of blocks, by both conventions that exist.
//!
//! ASDF Standard, "Block header": MD5 of the used bytes, as they are stored. Python asdf up to 5.2 wrote the MD5 of the decoded
//! bytes for compressed blocks; so do all AbacusSummit files and the compressed reference files of the standard. A checksum that is
//! right by either convention counts as right; [`ChecksumState`] says which one it is.

use std::fmt;
use std::sync::Arc;

use md5::{Digest, Md5};

use super::Snapshot;
use crate::error::{Result, corrupt, unless_damaged};
use crate::source::{Overlay, Source, at_most, each_piece, len_u64};

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// The state of a block's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumState {
    /// The header has none.
    Absent,
    /// It has not been looked at.
    Unverified,
    /// It is the MD5 of the used bytes, as the standard says.
    Used,
    /// It is the MD5 of the decoded bytes, as older versions of Python asdf wrote it.
    Decoded,
    /// It is neither.
    Wrong,
}

impl fmt::Display for ChecksumState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "none",
            Self::Unverified => "unverified",
            Self::Used => "ok",
            Self::Decoded => "ok-decoded",
            Self::Wrong => "wrong",
        })
    }
}

/// MD5 of all bytes of a source. `progress` is called with the number of bytes read after each piece.
///
/// # Errors
/// Of reading.
pub fn md5(source: &dyn Source, progress: &mut dyn FnMut(u64)) -> Result<[u8; 16]> {
    let mut hasher = Md5::new();
    each_piece(source, 0..source.len(), CHUNK, |piece| {
        hasher.update(piece);
        progress(len_u64(piece.len()));
        Ok(())
    })?;
    Ok(hasher.finalize().into())
}

impl Snapshot {
    /// Verifies the checksum of block `n`, once; later calls give the same answer without reading again.
    ///
    /// # Errors
    /// Of reading the stored bytes, if they are not all there; [`Io`](crate::error::Error::Io) of decoding them.
    pub fn verify_checksum(
        &self,
        n: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ChecksumState> {
        let known = self.checksum_state(n);
        if known != ChecksumState::Unverified {
            return Ok(known);
        }
        // the standard's convention first, because it needs no decoding
        let state = if self.is_sum_of_used(n, progress)? {
            ChecksumState::Used
        } else {
            let sum = match self.decoded_otherwise(n)? {
                // damage in the payload is no error here: no
                // sum matches then, and the checksum is wrong
                Some(block) => unless_damaged(md5(&*block, progress))?,
                None => None,
            };
            self.sum_of_decoded(n, sum)
        };
        self.note_checksum(n, state);
        Ok(state)
    }

    /// As [`Snapshot::verify_checksum`], for a block whose decoded bytes are being edited. If the checksum is the MD5 of the
    /// decoded bytes, also returns that MD5 after the edit. One pass computes both, so that nothing is decoded twice.
    ///
    /// # Errors
    /// As there, and of reading the edit.
    pub fn verify_edited(
        &self,
        n: usize,
        edited: &Overlay,
    ) -> Result<(ChecksumState, Option<[u8; 16]>)> {
        let mut state = self.checksum_state(n);
        let mut after = None;
        if state == ChecksumState::Unverified {
            state = if self.is_sum_of_used(n, &mut |_| {})? {
                ChecksumState::Used
            } else {
                let sums = self.decoded_otherwise(n)?;
                let sums = sums.map(|old| md5_of_both(&*old, edited)).transpose()?;
                after = sums.map(|(_, after)| after);
                self.sum_of_decoded(n, sums.and_then(|(before, _)| before))
            };
            self.note_checksum(n, state);
        }
        // by the standard's convention the sum depends on the stored bytes, which are not made yet
        if state != ChecksumState::Decoded {
            return Ok((state, None));
        }
        let after = after.map_or_else(|| md5(edited, &mut |_| {}), Ok)?;
        Ok((state, Some(after)))
    }

    /// Records the checksum state of block `n`. The save that has just written the block knows it.
    pub fn note_checksum(&self, n: usize, state: ChecksumState) {
        if let Some(slot) = self.checksums.get(n) {
            // another thread that was faster has found the same
            let _ = slot.set(state);
        }
    }

    /// The checksum state of block `n`, as far as it is known without reading.
    #[must_use]
    pub fn checksum_state(&self, n: usize) -> ChecksumState {
        match (
            self.layout.blocks.get(n),
            self.checksums.get(n).and_then(|slot| slot.get()),
        ) {
            (_, Some(&state)) => state,
            (Some(header), None) if header.has_checksum() && !header.streamed() => {
                ChecksumState::Unverified
            }
            _ => ChecksumState::Absent,
        }
    }

    /// Whether the checksum of block `n` is the MD5 of its used bytes, and the file has all of them.
    fn is_sum_of_used(&self, n: usize, progress: &mut dyn FnMut(u64)) -> Result<bool> {
        let Some(header) = self.layout.blocks.get(n) else {
            return Ok(false);
        };
        let stored = self.stored(n)?;
        Ok(stored.len() == header.used && md5(&*stored, progress)? == header.checksum)
    }

    /// The decoded bytes of block `n`; `None` if the block is not compressed or can't be decoded.
    fn decoded_otherwise(&self, n: usize) -> Result<Option<Arc<dyn Source>>> {
        match self.layout.blocks.get(n) {
            Some(header) if header.compression != [0; 4] => {
                unless_damaged(self.unverified_block(n))
            }
            _ => Ok(None),
        }
    }

    /// The checksum state of block `n`, given that the used bytes do not match. `sum` is the MD5 of the
    /// decoded bytes, if there is one.
    fn sum_of_decoded(&self, n: usize, sum: Option<[u8; 16]>) -> ChecksumState {
        let said = self.layout.blocks.get(n).map(|header| header.checksum);
        if sum.is_some() && sum == said {
            ChecksumState::Decoded
        } else {
            ChecksumState::Wrong
        }
    }
}

/// MD5 of a source, if it is not damaged, and of the same source with edits. Reads `old` once.
///
/// # Errors
/// Of reading the edits; [`Io`](crate::error::Error::Io) of reading the source.
fn md5_of_both(old: &dyn Source, edited: &Overlay) -> Result<(Option<[u8; 16]>, [u8; 16])> {
    let (mut before, mut after) = (Md5::new(), Md5::new());
    let touched = edited.touched();
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    let part = |len: u64, at: u64| at_most(len.saturating_sub(at), CHUNK);
    while at < old.len().max(edited.len()) {
        let piece = buf.get_mut(..part(old.len(), at)).unwrap_or_default();
        if !piece.is_empty() && unless_damaged(old.read_exact_at(piece, at))?.is_none() {
            // a damaged block matches no sum, and then nobody uses the second result
            return Ok((None, [0; 16]));
        }
        before.update(&*piece);
        let len = part(edited.len(), at);
        let end = at.saturating_add(len_u64(len));
        // `buf` holds the old bytes already, so only the ranges that were edited are read into it
        let first = touched.partition_point(|range| range.end <= at);
        let ranges = touched.iter().skip(first);
        for range in ranges.take_while(|range| range.start < end) {
            let (start, stop) = (range.start.max(at), range.end.min(end));
            let inside = |offset: u64| usize::try_from(offset.saturating_sub(at)).unwrap_or(CHUNK);
            let new = buf.get_mut(inside(start)..inside(stop));
            let new = new.ok_or_else(|| corrupt("an edit lies outside its block"))?;
            edited.read_exact_at(new, start)?;
        }
        after.update(buf.get(..len).unwrap_or_default());
        at = at.saturating_add(len_u64(CHUNK));
    }
    Ok((Some(before.finalize().into()), after.finalize().into()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::source::{Memory, ScratchBytes, ScratchRoom, checked_end};
    use proptest::prelude::*;

    /// Counts the bytes that are read.
    struct Counted(Memory, AtomicU64);

    impl Source for Counted {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            checked_end(offset, buf.len(), self.len())?;
            self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
            self.0.read_exact_at(buf, offset)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn both_sums_are_had_by_reading_the_old_bytes_once(
            len in 0..2 * CHUNK + 9,
            writes in prop::collection::vec((0..2 * CHUNK + 9, 1usize..3000), 0..5),
            resize in prop::option::of(0..3 * CHUNK as u64),
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let old = Arc::new(Counted(Memory::new(bytes.clone()), AtomicU64::new(0)));
            let edited = Overlay::new(old.clone(), ScratchBytes::new(&ScratchRoom::new(u64::MAX, &std::env::temp_dir())));
            if let Some(len) = resize {
                edited.resize(len);
            }
            for (at, len) in writes {
                edited.write(at as u64, &vec![255; len]).unwrap();
            }
            let (before, after) = md5_of_both(&*old, &edited).unwrap();
            prop_assert_eq!(old.1.load(Ordering::Relaxed), len as u64);
            prop_assert_eq!(before, Some(Md5::digest(&bytes).into()));
            prop_assert_eq!(after, md5(&edited, &mut |_| {}).unwrap());
        }
    }
}
