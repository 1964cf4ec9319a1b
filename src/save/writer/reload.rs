//! Whether another program has changed FILE, and what it is then.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Method, NotOpened, Writer, writable};
use crate::asdf::layout::Layout;
use crate::asdf::scan::Scan;
use crate::error::{Error, Place, Result};
use crate::save::baseline::{Baseline, in_directory, named, scanned};
use crate::save::store::{Access, Store, busy, is_gone, lock_either};
use crate::save::view::StoreSource;
use crate::source::{Source, Stat};

impl<S: Store> Writer<S> {
    /// What FILE is, if another program has changed it: if it has another text or other block headers, or another file has its name.
    /// Data of blocks may have changed without that. Cheap enough to be asked at each look-up: if its times are the same, nothing is read.
    ///
    /// # Errors
    /// [`Error::Stale`] if it has been changed and can't be read now, or is not a file that can be written. Each save is refused until
    /// a later call succeeds. [`Error::Io`] of looking at it.
    pub fn reload(&mut self) -> Result<Option<Scan>> {
        let named = named(&*self.store, &self.name)?;
        if named.is_some_and(|stat| self.baseline.same_moment(&stat)) {
            return Ok(None);
        }
        match self.compare() {
            Ok(()) => Ok(None),
            Err(Error::Stale { why }) => {
                let now = |error| match error {
                    Error::Io { cause, .. } if cause.kind() == ErrorKind::NotFound => why,
                    error => format!("{why}; it can't be read now: {error}"),
                };
                let scan = self.reopen();
                let scan = scan.map_err(|error| Error::Stale { why: now(error) })?;
                Ok(Some(scan))
            }
            Err(error) => Err(error),
        }
    }

    /// Compares FILE with its baseline, and takes over its times. FILE is read through a new descriptor, which is kept if FILE has been
    /// touched: what an older one shows may be older.
    ///
    /// # Errors
    /// As [`Baseline::opened_anew`] and [`Baseline::compare`].
    pub(super) fn compare(&mut self) -> Result<()> {
        let (file, stat) = self.baseline.opened_anew(&self.store, &self.name)?;
        let bytes: Arc<dyn Source> = Arc::new(StoreSource::new(&self.store, &file, stat.size));
        self.check_unsettled(&*bytes)?;
        self.baseline.compare(&self.name, &*self.seen(bytes)?)?;
        if !self.baseline.same_moment(&stat) {
            self.file = file;
        }
        // a save that is not finished will give it its length
        self.baseline.renew(Some(stat));
        Ok(())
    }

    /// That FILE has not lost its name during a save in place. If that can't be found out, the next save finds it out.
    pub(super) fn check_named(&self, method: Method) -> Result<()> {
        let id = self.baseline.stat.id;
        let lost = |found: Option<Stat>| found.is_none_or(|found| found.id != id);
        if method == Method::InPlace && named(&*self.store, &self.name).is_ok_and(lost) {
            return Err(self.replaced());
        }
        Ok(())
    }

    /// Whether FILE has been read as it is shown, with that text and that layout. Then the text is in memory once.
    pub fn has_read(&mut self, text: &Arc<Vec<u8>>, layout: &Layout) -> bool {
        self.baseline.share_text(text);
        Arc::ptr_eq(&self.baseline.text, text) && self.baseline.layout.blocks == layout.blocks
    }

    /// Has [`Writer::reload`] read FILE once more, because the caller did not show what it found last.
    pub fn distrust(&mut self) {
        self.baseline.torn = true;
    }

    /// Has [`Writer::reload`] compare bytes, whatever the times say.
    pub fn forget_times(&mut self) {
        self.baseline.timed = false;
    }

    /// Opens and locks the other file that has FILE's name now. Some file systems take it for the same file: then the lock of the one from
    /// before is in the way, and is given up.
    fn locked_anew(&mut self) -> Result<S::File> {
        let lock = || locked(&*self.store, &self.name, Duration::ZERO);
        let mut opened = lock();
        if matches!(opened, Err(NotOpened::Locked { .. })) && self.store.unlock(&self.lock).is_ok()
        {
            opened = lock();
            if opened.is_err() && !self.store.lock(&self.lock).unwrap_or(false) {
                let why = self.error("the lock was lost to another program", busy());
                self.status.note_broken(why);
            }
        }
        opened.map_err(|refusal| match refusal {
            NotOpened::Locked { .. } => self.error(
                "locked by another mount, or by this one under another name",
                busy(),
            ),
            NotOpened::Unwritable(error) => error,
        })
    }

    /// Opens the file that has FILE's name now: in the directory that has the path of FILE's, or else in FILE's.
    fn reopen(&mut self) -> Result<Scan> {
        match self.store.moved() {
            Ok(Some(other)) if in_directory(&other, &self.name)?.is_some() => {
                other.hold(&self.name);
                self.store = Arc::new(other);
                self.rejected.left_behind();
            }
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(cause) => return Err(self.error("its directory", cause)),
        }
        let Some(named) = named(&*self.store, &self.name)? else {
            return Err(self.error("no longer there", ErrorKind::NotFound.into()));
        };
        let same = named.id == self.baseline.stat.id;
        let file = if same {
            self.baseline.opened_anew(&self.store, &self.name)?.0
        } else {
            self.locked_anew()?
        };
        let (before, scan) = scanned(&self.store, &file)?;
        writable(&scan.layout)?;
        let mut baseline = Baseline::of(&self.store, &file, &before, &scan)?;
        baseline.share_text(&self.baseline.text);
        self.baseline = baseline;
        if !same {
            self.lock = file.clone();
            self.no_copies = None;
        }
        self.file = file;
        if self.unsettled.take().is_some() && same {
            self.status.note_broken(self.changed_unsettled());
        }
        Ok(scan)
    }
}

/// How long a lock is waited for: a mount that was unmounted or killed holds it until its process has ended.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Opens and locks the file of that name, which must be a regular one that may be written.
pub(super) fn locked<S: Store>(
    store: &S,
    name: &OsStr,
    patience: Duration,
) -> Result<S::File, NotOpened> {
    /// How often the name may come to mean another file while it is being locked.
    const ATTEMPTS: usize = 10;
    /// Between two attempts at the lock.
    const PAUSE: Duration = Duration::from_millis(5);
    let failed = |cause| Error::io(name.display().to_string(), cause);
    let deadline = Instant::now().checked_add(patience);
    let mut attempts = 0;
    while attempts < ATTEMPTS {
        let file = store.open(name, Access::Read).map_err(failed)?;
        let stat = store.stat(&file).map_err(failed)?;
        if !stat.is_regular() {
            return Err(Error::unsupported(Place::File, "not a regular file").into());
        }
        let writable = store.open(name, Access::Write).map_err(failed)?;
        let (file, locked) = lock_either(store, file, || Ok(writable)).map_err(failed)?;
        if !locked {
            if deadline.is_some_and(|deadline| Instant::now() < deadline) {
                std::thread::sleep(PAUSE);
                continue;
            }
            let holder = store.lock_holder(&file);
            return Err(NotOpened::Locked { holder });
        }
        attempts = attempts.saturating_add(1);
        if named(store, name)?.is_some_and(|named| named.id == stat.id) {
            return Ok(file);
        }
    }
    let why = format!("{} is being replaced again and again", name.display());
    Err(Error::Stale { why }.into())
}
