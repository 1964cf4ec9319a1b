//! Pieces of objects that are kept on disk, for the next mount, and the state in which each object was last: the next mount asks its server
//! whether it still is.
//!
//! The [`files`] are written under another name and renamed, found by their whole key, with a checksum over all of it, and only in a
//! directory that is the user's alone. The key is a SHA-256 of URL, server, size and tag, so that nothing secret of a URL is written, and the number of the piece.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use super::identity::Identity;
use super::location::Location;
use super::pieces::PIECE;
use crate::codec::CountedBuf;
use crate::error::Result;
use crate::source::len_u64;

/// The most pieces that wait to be written; what comes meanwhile is not kept.
pub(super) const WAITING: usize = 64;

/// How long the end of a mount waits for them at most.
const LAST_WRITES: Duration = Duration::from_secs(2);

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

/// What the last state of an object is found by.
fn state_key(at: &Location, origin: &str) -> Vec<u8> {
    hash_of(&[at.key().as_bytes(), origin.as_bytes()]).to_vec()
}

/// A hash that other parts do not have, nor the same ones cut elsewhere.
fn hash_of(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // the length of each part goes in, too: else "ab" + "c" and "a" + "bc" would be one key
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The pieces of one state of an object in a [`PieceStore`].
pub(super) struct Shelf {
    disk: Arc<PieceStore>,
    /// The SHA-256 of what tells this state of the object from others.
    object: [u8; 32],
    /// What this state is found by as the last one, and its text.
    state: (Vec<u8>, String),
}

impl PieceStore {
    /// Keeps at most `room` bytes in `dir`, which need not be there yet.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io) if the directory is not the user's alone.
    pub(super) fn new(dir: &Path, room: u64) -> Result<Arc<Self>> {
        files::check_dir(dir)?;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            room,
            // the first write counts the files: those of earlier mounts are there already
            written: AtomicU64::new(u64::MAX),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Waits a while for the pieces that are being written, when the mount has ended.
    pub(super) fn finish(&self) {
        let begun = Instant::now();
        while self.waiting.load(Ordering::Relaxed) > 0 && begun.elapsed() < LAST_WRITES {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The state that an object was in when its first piece was fetched last, if that piece is still here. Waits for the disk.
    pub(super) fn last(self: &Arc<Self>, at: &Location, origin: &str) -> Option<Identity> {
        let key = state_key(at, origin);
        let found = files::find(&self.dir, &key).ok()?.read(&key)?;
        let last = Identity::of_text(str::from_utf8(&found).ok()?)?;
        // the state alone is of no use: without a piece the server would be asked for all of it again
        let pieces = Shelf::new(self, at, origin, &last, PIECE)?;
        pieces.has(0).then_some(last)
    }

    /// Writes a piece. Then, at the first one and whenever a [`SHARE`]th part of the room has been written since, removes the oldest ones.
    fn write(&self, key: &[u8], bytes: &[u8]) -> io::Result<()> {
        let dir = files::store(&self.dir, key, bytes)?;
        // the directory is listed once for each sixteenth of its room, not at each write
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
        // below the limit by what may be written until the next count
        files::make_room(&dir, self.room.saturating_sub(most), usize::MAX)
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
        // without a strong tag an old piece could not be told from a new one
        let tag = identity.strong_etag()?;
        let object = hash_of(&[
            at.key().as_bytes(),
            origin.as_bytes(),
            tag.as_bytes(),
            identity.to_string().as_bytes(),
            &piece.to_le_bytes(),
        ]);
        Some(Self {
            disk: Arc::clone(disk),
            object,
            state: (state_key(at, origin), identity.to_text()),
        })
    }

    fn key(&self, piece: u64) -> Vec<u8> {
        [&self.object[..], &piece.to_le_bytes()].concat()
    }

    /// Whether there is a file for a piece; it may turn out to be damaged.
    pub(super) fn has(&self, piece: u64) -> bool {
        files::find(&self.disk.dir, &self.key(piece)).is_ok()
    }

    /// A piece of this length, if it is here and whole.
    pub(super) fn load(&self, piece: u64, len: usize) -> Option<Vec<u8>> {
        let key = self.key(piece);
        let found = files::find(&self.disk.dir, &key).ok()?;
        found.read(&key).filter(|bytes| bytes.len() == len)
    }

    /// Lets another thread write a piece soon; with the first one, the state of the object. A piece that can't be written is fetched again by
    /// the next mount.
    pub(super) fn store(&self, piece: u64, bytes: &Arc<CountedBuf>, handle: &Handle) {
        // a disk slower than the network must not fill the memory: the piece is fetched again some day
        if self.disk.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.disk.waiting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (disk, key, bytes) = (Arc::clone(&self.disk), self.key(piece), Arc::clone(bytes));
        let state = (piece == 0).then(|| self.state.clone());
        handle.spawn_blocking(move || {
            let written = disk.write(&key, &bytes);
            let noted = state.map_or(Ok(()), |(key, text)| disk.write(&key, text.as_bytes()));
            if let Err(error) = written.and(noted) {
                log::debug!("piece not kept in {}: {error}", disk.dir.display());
            }
            disk.waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
