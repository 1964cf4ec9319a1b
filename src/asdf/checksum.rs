//! Checksums of blocks, by both conventions that exist.
//!
//! ASDF Standard, "Block header": MD5 of the used bytes, as they are stored. Python asdf up to 5.2 wrote the MD5 of the decoded
//! bytes for compressed blocks; so do all AbacusSummit files and the compressed reference files of the standard. A checksum
//! that is right by either convention is right, and which one is told.

use std::fmt;

use md5::{Digest, Md5};

use super::Snapshot;
use crate::error::Result;
use crate::source::{Source, len_u64};

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// What is known of a block's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumState {
    /// The header has none.
    Absent,
    /// It has not been looked at.
    Unverified,
    /// It is that of the used bytes, as the standard says.
    Used,
    /// It is that of the decoded bytes, as older versions of Python asdf wrote it.
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
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    let len = source.len();
    while at < len {
        let want = usize::try_from(len.saturating_sub(at))
            .unwrap_or(usize::MAX)
            .min(CHUNK);
        let Some(piece) = buf.get_mut(..want) else {
            break;
        };
        source.read_exact_at(piece, at)?;
        hasher.update(&*piece);
        let read = len_u64(want);
        at = at.saturating_add(read);
        progress(read);
    }
    Ok(hasher.finalize().into())
}

impl Snapshot {
    /// Verifies the checksum of block `n`, once; later calls give the same answer without reading again.
    ///
    /// # Errors
    /// Of reading the stored bytes, if they are not all there.
    pub fn verify_checksum(
        &self,
        n: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ChecksumState> {
        let known = self.checksum_state(n);
        if known != ChecksumState::Unverified {
            return Ok(known);
        }
        let state = self.compute_checksum_state(n, progress)?;
        if let Some(slot) = self.checksums.get(n) {
            // another thread that was faster has found the same
            let _ = slot.set(state);
        }
        Ok(state)
    }

    /// Takes in what is known of the checksum of block `n` by whoever has just written it.
    pub fn note_checksum(&self, n: usize, state: ChecksumState) {
        if let Some(slot) = self.checksums.get(n) {
            let _ = slot.set(state);
        }
    }

    /// What is known of the checksum of block `n`, without reading.
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

    fn compute_checksum_state(
        &self,
        n: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ChecksumState> {
        let Some(header) = self.layout.blocks.get(n) else {
            return Ok(ChecksumState::Absent);
        };
        let stored = self.stored(n)?;
        if stored.len() == header.used && md5(&*stored, progress)? == header.checksum {
            return Ok(ChecksumState::Used);
        }
        if header.compression == [0; 4] {
            return Ok(ChecksumState::Wrong);
        }
        // a block that can't be decoded has no checksum of decoded bytes
        let decoded = self
            .unverified_block(n)
            .and_then(|block| md5(&*block, progress));
        Ok(match decoded {
            Ok(found) if found == header.checksum => ChecksumState::Decoded,
            _ => ChecksumState::Wrong,
        })
    }
}
