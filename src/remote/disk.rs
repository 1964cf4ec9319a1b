//! Pieces of objects that are kept on disk, for the next mount.
//!
//! The files are as those of seek indexes (see [`index_store`]): written under another name and
//! renamed, found by their whole key, with a checksum over all of it, and only in a directory that is the user's alone. The key is
//! a SHA-256 of URL, server and identity, so that nothing secret of a URL is written, and the number of the piece.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use super::identity::Identity;
use super::location::Location;
use super::pieces::PIECE;
use crate::codec::CountedBuf;
use crate::codec::index_store::{self, FileFormat};
use crate::error::Result;
use crate::source::len_u64;

static PIECES: FileFormat = FileFormat {
    magic: *b"ASDFFAR\x01",
    suffix: ".piece",
    // with what stands before the piece
    longest: PIECE + 4096,
};

/// The most pieces that wait to be written; what comes meanwhile is not kept.
pub(super) const WAITING: usize = 64;

/// Files are counted, and the oldest removed, when so much of the room has been written.
const SHARE: u64 = 16;

/// A directory for pieces.
pub(super) struct PieceStore {
    dir: PathBuf,
    room: u64,
    /// Bytes written since the files were counted.
    written: AtomicU64,
    /// Pieces that wait to be written.
    waiting: AtomicUsize,
}

/// The pieces of one state of an object in a [`PieceStore`].
pub(super) struct Shelf {
    disk: Arc<PieceStore>,
    /// The SHA-256 of what tells this state of the object from others.
    object: [u8; 32],
}

impl PieceStore {
    /// Keeps at most `room` bytes in `dir`, which need not be there yet.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the directory is not the user's alone.
    pub(super) fn new(dir: &Path, room: u64) -> Result<Arc<Self>> {
        index_store::check_index_dir(dir)?;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            room,
            written: AtomicU64::new(u64::MAX),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Writes a piece. Then, at the first one and whenever a [`SHARE`]th part of the room has been written since, removes the oldest ones.
    fn write(&self, key: &[u8], bytes: &[u8]) -> io::Result<()> {
        let dir = PIECES.store(&self.dir, key, bytes)?;
        let most = self.room.checked_div(SHARE).unwrap_or(0);
        let before = self.written.load(Ordering::Relaxed);
        // with what stands before it, rounded up to a block of the disk
        let now = before
            .saturating_add(len_u64(bytes.len()))
            .saturating_add(4096);
        // two threads that both count do no harm
        if now < most {
            self.written.store(now, Ordering::Relaxed);
            return Ok(());
        }
        self.written.store(0, Ordering::Relaxed);
        PIECES.make_room(&dir, self.room.saturating_sub(most), usize::MAX)
    }
}

impl Shelf {
    /// The shelf of an object that is cut into pieces of `piece` bytes; `origin` is that of its [bucket](super::client::StoredObject).
    /// None without a strong tag, because a change might not show.
    pub(super) fn new(
        disk: &Arc<PieceStore>,
        at: &Location,
        origin: &str,
        identity: &Identity,
        piece: u64,
    ) -> Option<Self> {
        let tag = identity.strong_etag()?;
        let mut hash = Sha256::new();
        for part in [
            at.key().as_bytes(),
            origin.as_bytes(),
            tag.as_bytes(),
            identity.to_string().as_bytes(),
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.update(format!("{:?}", identity.modified()));
        hash.update(piece.to_le_bytes());
        Some(Self {
            disk: Arc::clone(disk),
            object: hash.finalize().into(),
        })
    }

    fn key(&self, piece: u64) -> Vec<u8> {
        [&self.object[..], &piece.to_le_bytes()].concat()
    }

    /// Whether there is a file for a piece; it may turn out to be damaged.
    pub(super) fn has(&self, piece: u64) -> bool {
        PIECES.find(&self.disk.dir, &self.key(piece)).is_ok()
    }

    /// A piece of this length, if it is here and whole.
    pub(super) fn load(&self, piece: u64, len: usize) -> Option<Vec<u8>> {
        let key = self.key(piece);
        let found = PIECES.find(&self.disk.dir, &key).ok()?;
        found.read(&key).filter(|bytes| bytes.len() == len)
    }

    /// Lets another thread write a piece soon. A piece that can't be written is fetched again by the next mount.
    pub(super) fn store(&self, piece: u64, bytes: &Arc<CountedBuf>, handle: &Handle) {
        if self.disk.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.disk.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (disk, key, bytes) = (Arc::clone(&self.disk), self.key(piece), Arc::clone(bytes));
        handle.spawn_blocking(move || {
            if let Err(error) = disk.write(&key, &bytes) {
                log::debug!("piece not kept in {}: {error}", disk.dir.display());
            }
            disk.waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
