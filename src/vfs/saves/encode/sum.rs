//! The checksum of a block whose bytes change: of the stored bytes or of the decoded ones, as it was before.
//!
//! asdf-python up to 5.2 verifies the checksum of the decoded bytes and calls the other one wrong; 5.3 and later do the opposite.
//! A program that could verify a block before an edit can do so after it.

use log::warn;

use crate::asdf::Snapshot;
use crate::asdf::checksum::{ChecksumState, md5};
use crate::error::Error as Library;
use crate::source::{Overlay, Source};
use crate::vfs::Result;

/// What becomes of the checksum of a block whose bytes change.
pub(in crate::vfs) enum Sum {
    /// It has none.
    None,
    /// It is computed anew, over the stored bytes.
    Stored,
    /// It is this one, in this state. It is either that of the decoded bytes, as it was before; or it did not match before, and is
    /// kept: a new one would vouch for a block that is damaged.
    Is([u8; 16], ChecksumState),
}

impl Sum {
    /// What becomes of the checksum of block `n` when edits of it are saved.
    pub(in crate::vfs) fn of(
        snapshot: &Snapshot,
        n: usize,
        block: &Overlay,
    ) -> Result<Self, Library> {
        let header = snapshot.layout().blocks.get(n);
        let Some(header) = header.filter(|it| it.has_checksum() && !it.streamed()) else {
            return Ok(Self::None);
        };
        let touched = block.touched();
        let len = touched
            .iter()
            .map(|range| range.end.saturating_sub(range.start))
            .fold(0, u64::saturating_add);
        let all_new = len == block.len();
        if all_new && header.compression == [0; 4] {
            return Ok(Self::Stored);
        }
        match snapshot.verify_edited(n, block) {
            Ok((state, Some(sum))) => Ok(Self::Is(sum, state)),
            // no old byte stays
            _ if all_new => Ok(Self::Stored),
            Ok((ChecksumState::Wrong, None)) => {
                warn!("block {n}: its checksum did not match before this edit, and stays as it is");
                Ok(Self::Is(header.checksum, ChecksumState::Wrong))
            }
            Ok(_) => Ok(Self::Stored),
            Err(error) => Err(error),
        }
    }

    /// What becomes of the checksum of block `n` when it gets other bytes altogether.
    pub(in crate::vfs) fn of_new(
        snapshot: &Snapshot,
        n: usize,
        decoded: &dyn Source,
    ) -> Result<Self, Library> {
        let header = snapshot.layout().blocks.get(n);
        let Some(header) = header.filter(|it| it.has_checksum() && !it.streamed()) else {
            return Ok(Self::None);
        };
        if header.compression == [0; 4] {
            return Ok(Self::Stored);
        }
        // one that can't be verified follows neither convention
        match snapshot.verify_checksum(n, &mut |_| {}) {
            Ok(ChecksumState::Decoded) => {
                let sum = md5(decoded, &mut |_| {})?;
                Ok(Self::Is(sum, ChecksumState::Decoded))
            }
            _ => Ok(Self::Stored),
        }
    }

    /// The checksum when these bytes are stored.
    pub(in crate::vfs) fn over(&self, stored: &dyn Source) -> Result<[u8; 16], Library> {
        match self {
            Self::None => Ok([0; 16]),
            Self::Stored => md5(stored, &mut |_| {}),
            Self::Is(sum, _) => Ok(*sum),
        }
    }

    /// What is known of it then, as that of block `n`.
    pub(in crate::vfs) fn known(&self, n: usize) -> Option<(usize, ChecksumState)> {
        match self {
            Self::None => None,
            Self::Stored => Some((n, ChecksumState::Used)),
            Self::Is(_, state) => Some((n, *state)),
        }
    }
}
