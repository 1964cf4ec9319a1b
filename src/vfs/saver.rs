//! FILE: what writes it, why it can't be written, and whether its bytes are where the state says.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    TryLockError,
};
use std::time::{Instant, SystemTime};

use log::warn;

use super::{Error, Result, locked};
use crate::error::Error as Library;
use crate::save::{FilePath, Progress, SaveOptions, Writer};

/// While this lives, no save changes or moves stored bytes of the current snapshot.
///
/// Not reentrant. A thread takes it before `DataHandle::source` and `Blocks::by_block`: a save takes those while it holds the
/// other side of the lock.
pub type Reading<'a> = RwLockReadGuard<'a, ()>;

/// FILE, what writes it, and whether it can be written.
pub(super) struct Saver {
    /// Its whole path, for messages.
    pub(super) path: PathBuf,
    /// How it is found.
    pub(super) file: FilePath,
    /// How FILE is opened for writing, or why it is not.
    writing: Result<SaveOptions, String>,
    /// What saves FILE, and has it locked; there may be none yet. The lock admits one save at a time.
    writer: OnceLock<Mutex<Writer>>,
    /// Held for reading by requests that read stored bytes, and for writing while a save changes some in place.
    stored: RwLock<()>,
    /// Why a save has failed, if it failed so badly that no other may follow. A copy of the writer's own, so that no thread waits for the
    /// writer to read it.
    broken: OnceLock<Library>,
    /// Why the state is not FILE as another program has left it: no bytes may be read where the state says. It may be set for a file that
    /// is only read, too.
    out_of_date: Mutex<Option<String>>,
    /// When FILE was last compared with the state. The thread that compares holds the lock meanwhile.
    pub(super) compared: Mutex<Option<Instant>>,
    /// Counts up when a save begins to write FILE and when it ends, so that it is odd meanwhile.
    writes: AtomicU64,
    /// How far a save is that copies FILE; of the writer, to be read without waiting for it.
    progress: OnceLock<Arc<Progress>>,
    /// When the last save was, and what it did.
    pub(super) last: Mutex<Option<(SystemTime, String)>>,
    /// The texts beside FILE that earlier mounts refused and that were there when FILE was opened for writing.
    older_texts: OnceLock<Vec<PathBuf>>,
}

impl Saver {
    /// `writing`: how FILE is opened for writing when something is first to be changed, or why it is never.
    pub(super) fn new(file: FilePath, writing: Result<SaveOptions, String>) -> Self {
        Self {
            path: file.whole().to_owned(),
            file,
            writing,
            writer: OnceLock::new(),
            stored: RwLock::default(),
            broken: OnceLock::new(),
            out_of_date: Mutex::default(),
            compared: Mutex::default(),
            writes: AtomicU64::new(0),
            progress: OnceLock::new(),
            last: Mutex::default(),
            older_texts: OnceLock::new(),
        }
    }

    /// Whether there are no saves.
    pub(super) fn is_read_only(&self) -> bool {
        self.writing.is_err()
    }

    /// How FILE is opened for writing, if it is not yet and may be.
    pub(super) fn opens_later(&self) -> Option<SaveOptions> {
        let is_open = self.writer.get().is_some();
        self.writing.as_ref().ok().filter(|_| !is_open).copied()
    }

    /// Takes FILE as it has been opened for writing.
    pub(super) fn opened(&self, writer: Writer) {
        let older = writer.older_rejected().into_iter();
        self.note_older_texts(older.map(|name| self.path.with_file_name(name)).collect());
        let _ = self.progress.set(Arc::clone(writer.progress()));
        // there is no other: the thread that opens FILE later holds `compared`
        let _ = self.writer.set(Mutex::new(writer));
    }

    /// The writer of FILE, once no other thread saves.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = self.writer.get();
        writer.map(locked).ok_or(Error::ReadOnly("this mount"))
    }

    /// The writer of FILE, without waiting; `None` if FILE has not been opened for writing.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread saves.
    pub(super) fn idle_writer(&self) -> Result<Option<MutexGuard<'_, Writer>>> {
        match self.writer.get().map(Mutex::try_lock) {
            None => Ok(None),
            Some(Ok(writer)) => Ok(Some(writer)),
            Some(Err(TryLockError::Poisoned(poisoned))) => Ok(Some(poisoned.into_inner())),
            Some(Err(TryLockError::WouldBlock)) => Err(Error::Busy("another thread saves")),
        }
    }

    /// Keeps saves from changing stored bytes while the guard lives.
    pub(super) fn reading(&self) -> Reading<'_> {
        self.stored.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request reads stored bytes, and keeps others from it, while a save changes or moves some in place.
    ///
    /// A new file that takes FILE's place needs no such wait: it leaves the old one to the threads that read it.
    pub(super) fn stirring(&self) -> RwLockWriteGuard<'_, ()> {
        self.stored.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a save begins to write FILE, until the guard is dropped. The thread holds the writer's lock.
    pub(super) fn writing(&self) -> Writing<'_> {
        self.writes.fetch_add(1, Ordering::AcqRel);
        Writing(&self.writes)
    }

    /// A number that tells the time between two saves from other such times; `None` while a save writes FILE.
    pub(super) fn between_writes(&self) -> Option<u64> {
        let writes = self.writes.load(Ordering::Acquire);
        writes.is_multiple_of(2).then_some(writes)
    }

    /// Checks that what is written now may be saved later.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly("this mount"));
        }
        match self.broken.get() {
            Some(_) => Err(Error::ReadOnly(
                "a save has failed, and FILE may be written again only after the next mount",
            )),
            None => Ok(()),
        }
    }

    /// Why nothing can be written, if that is so.
    pub(super) fn why_read_only(&self) -> Option<String> {
        let broken = |why| format!("a save has failed; unmount, and mount again: {why}");
        match &self.writing {
            Ok(_) => self.broken.get().map(broken),
            Err(why) => Some(why.clone()),
        }
    }

    /// Notes whether a save has left the writer broken.
    pub(super) fn note(&self, writer: &Writer) {
        if let Some(error) = writer.broken() {
            // the first cause is the one that counts
            let _ = self.broken.set(error.clone());
        }
    }

    /// Checks that FILE's bytes are where the state says, so that they can be read and saved.
    ///
    /// # Errors
    /// [`Library::Stale`].
    pub(super) fn check_up_to_date(&self) -> Result<(), Library> {
        let why = locked(&self.out_of_date).clone();
        why.map_or(Ok(()), |why| Err(Library::Stale { why }))
    }

    /// Notes why the state is not FILE as it is now; `None` if it is.
    pub(super) fn note_out_of_date(&self, why: Option<&str>) {
        self.note_out_of_date_if(why, || true);
    }

    /// The same, if `holds` with the note locked: a save that ends takes the note back after it has counted up.
    pub(super) fn note_out_of_date_if(&self, why: Option<&str>, holds: impl FnOnce() -> bool) {
        let why = why.map(|why| {
            format!(
                "the file has been changed by another program, and can't be shown as it is now: {why}"
            )
        });
        let mut noted = locked(&self.out_of_date);
        if !holds() {
            return;
        }
        let before = std::mem::replace(&mut *noted, why.clone());
        drop(noted);
        // logged once, not at each request that finds it so
        if let (None, Some(news)) = (before, why) {
            warn!("{}: {news}", self.path.display());
        }
    }

    /// A message that FILE's name is gone, if it is. FILE is looked for beneath its directory, as when it is opened: a path through a
    /// link could lead into the mount, and this thread serves the mount.
    pub(super) fn why_not_there(&self) -> Option<String> {
        let gone = self.file.stat().err()?;
        (gone.kind() == ErrorKind::NotFound).then(|| {
            format!(
                "{} is no longer there: it was moved or removed, and nothing can be saved; what was opened is still shown, copy it out",
                self.path.display()
            )
        })
    }

    /// Notes the texts beside FILE that earlier mounts refused; the first call counts.
    pub(super) fn note_older_texts(&self, paths: Vec<PathBuf>) {
        let _ = self.older_texts.set(paths);
    }

    /// The texts that were noted, whether they are still there or not.
    pub(super) fn noted_texts(&self) -> &[PathBuf] {
        self.older_texts.get().map_or(&[], Vec::as_slice)
    }

    /// The texts beside FILE that earlier mounts refused and that are still there.
    pub(super) fn older_texts(&self) -> impl Iterator<Item = &Path> {
        let texts = self.noted_texts().iter().map(PathBuf::as_path);
        texts.filter(|path| path.symlink_metadata().is_ok())
    }

    /// Keeps a refused text on disk, and gives the path of its file.
    ///
    /// # Errors
    /// Why it can't be kept there.
    pub(super) fn put_aside(&self, writer: &mut Writer, text: &[u8]) -> Result<PathBuf> {
        let name = writer.keep_rejected(text)?;
        Ok(self.path.parent().unwrap_or(Path::new("")).join(name))
    }

    /// Bytes that the save which is going on has copied, and is to copy in all, if it copies FILE.
    pub(super) fn copying(&self) -> Option<(u64, u64)> {
        self.progress.get().and_then(|progress| progress.now())
    }

    /// What the last save did, and how long ago.
    pub(super) fn last(&self) -> Option<String> {
        let last = locked(&self.last);
        let (when, what) = last.as_ref()?;
        let ago = when.elapsed().unwrap_or_default().as_secs();
        Some(format!("{what}, {ago} s ago"))
    }
}

/// While this lives, a save writes FILE, and FILE's times are not compared.
pub(super) struct Writing<'a>(&'a AtomicU64);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
