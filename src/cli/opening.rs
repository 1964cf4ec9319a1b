//! Opening FILE to be mounted: alone, or as one of many.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use log::{debug, warn};
use rustix::io::Errno;

use super::complain;
use super::exit::{Exit, Failure, error_of};
use super::on_refuse;
use super::options::Options;
use super::report::{of_replaced, reading, reading_alone};
use super::unmount::serving::{is_daemon_here, serves};
use crate::asdf::external::Sandbox;
use crate::asdf::layout::Severity;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::collection::{Opener, Unopened, is_lack};
use crate::error::{Error, Place, lock};
use crate::save::{self, FilePath, NotOpened, ReadOnly, Recovery, SaveOptions, Writable, Writer};
use crate::source::Mounted;
use crate::source::{FileSource, Source, Stat};
use crate::vfs::{Scratch, Vfs};

/// For so many seconds a process of this program that has no mount any more is waited for.
const ENDING: u32 = 30;

/// A FILE that is to be opened, and how.
struct Opening<'a> {
    path: &'a FilePath,
    options: &'a Options,
    cache: &'a Arc<Cache>,
    reading: OpenOptions,
    /// The files of the mount that are in no FILE.
    scratch: Arc<Scratch>,
}

/// Opens FILE to be mounted alone: for writing if that is wanted and possible. An interrupted save is finished then.
pub(super) fn alone(
    file: &FilePath,
    options: &Options,
    cache: &Arc<Cache>,
) -> Result<Vfs, Failure> {
    let path = file.whole();
    let how = Opening {
        path: file,
        options,
        cache,
        reading: reading_alone(file, options).map_err(|error| Failure::reading(path, &error))?,
        scratch: Scratch::new(options.scratch, path.parent().unwrap_or(path)),
    };
    let vfs = match how.open_for_writing()? {
        Ok(vfs) => vfs,
        Err(why) => {
            let opened = save::open_read_only(file.clone());
            let opened = opened.map_err(|error| how.failed(&error))?;
            how.read(opened, Err(why))?
        }
    };
    for finding in &vfs.snapshot().layout().findings {
        warn!("{}: {}", path.display(), finding.error);
    }
    Ok(vfs)
}

/// A function that opens the members of a mount of many files, with `cache` for their decoded data and `scratch` for what is in
/// none of them.
pub(super) fn opener(options: &Options, scratch: &Arc<Scratch>, cache: &Arc<Cache>) -> Box<Opener> {
    let (options, scratch, cache) = (options.clone(), Arc::clone(scratch), Arc::clone(cache));
    let known = Mutex::default();
    Box::new(move |path| {
        let failed = |error: Error| Unopened {
            why: error_of(path.whole(), &error),
            cause: Some(error),
        };
        let sandbox = || shared_sandbox(&known, path, options.allow_external.as_deref());
        let how = Opening {
            path,
            options: &options,
            cache: &cache,
            reading: reading(path, &options, sandbox).map_err(failed)?,
            scratch: Arc::clone(&scratch),
        };
        let vfs = how.open_member().map_err(|failure| {
            let why = failure.about(path.whole()).to_owned();
            let cause = failure.cause;
            Unopened { why, cause }
        })?;
        for finding in &vfs.snapshot().layout().findings {
            debug!("{}: {}", path.whole().display(), finding.error);
        }
        Ok(vfs)
    })
}

/// The directory that external blocks of a member are opened in. Members in one directory share it while one of them is open: `known`
/// has it by device and inode number, because a path may come to mean another directory.
fn shared_sandbox(
    known: &Mutex<HashMap<(u64, u64), Weak<Sandbox>>>,
    file: &FilePath,
    allowed: Option<&Path>,
) -> Result<Arc<Sandbox>, Error> {
    if allowed.is_some() {
        return Ok(Arc::new(Sandbox::new(file.whole(), allowed)?));
    }
    let own = file.whole().parent().unwrap_or(Path::new("/"));
    let failed = |cause| Error::io(own.display().to_string(), cause);
    let directory = file.directory().map_err(failed)?;
    let found = rustix::fs::fstat(&directory).map_err(|errno| failed(errno.into()))?;
    let id = (found.st_dev, found.st_ino);
    let mut known = lock(known);
    if let Some(sandbox) = known.get(&id).and_then(Weak::upgrade) {
        return Ok(sandbox);
    }
    known.retain(|_, sandbox| sandbox.strong_count() > 0);
    let sandbox = Arc::new(Sandbox::beneath(directory, own));
    known.insert(id, Arc::downgrade(&sandbox));
    Ok(sandbox)
}

impl Opening<'_> {
    fn failed(&self, error: &Error) -> Failure {
        Failure::reading(self.path.whole(), error)
    }

    /// The file system of an opened file. `stat` are the attributes that the file had before it was read.
    fn mount(&self, snapshot: Snapshot, stat: Stat, writing: Result<SaveOptions, String>) -> Vfs {
        let (path, shown) = (self.path.clone(), self.options.shown.clone());
        let scratch = Arc::clone(&self.scratch);
        let vfs = Vfs::new(path, snapshot, stat, writing, shown, scratch);
        if let Some(command) = &self.options.on_refuse {
            on_refuse::run_when_refused(&vfs, self.path.whole(), command);
        }
        vfs
    }

    /// The mount that shows FILE already.
    fn shown_by(&self) -> Option<Mounted> {
        let shows = |mount: &Mounted| mount.looks_ours() && mount.is_of(self.path.whole());
        Mounted::all().into_iter().find(shows)
    }

    /// Locks FILE and opens it. A daemon without a mount holds the lock until it has ended, which takes a while on a busy machine, and is
    /// waited for; so is a command that repairs or copies FILE.
    fn open_writer(&self) -> Result<Writable, NotOpened> {
        let open = || Writer::open(self.path.clone(), self.options.saving);
        let mut opened = open();
        for second in 1..ENDING {
            let Err(NotOpened::Locked { holder: Some(pid) }) = opened else {
                break;
            };
            let path = self.path.whole();
            let serves = |mount: &Mounted| mount.looks_ours() && serves(pid, mount, path);
            let is_ending = pid != std::process::id()
                && is_daemon_here(pid)
                && !Mounted::all().iter().any(serves);
            if !is_ending {
                break;
            }
            if second == 1 {
                let path = path.display();
                complain(&format!(
                    "{path}: locked by process {pid}, which has no mount: waiting for its end"
                ));
            }
            // it waits for the lock for a second
            opened = open();
        }
        opened
    }

    /// Opens it for writing, or says why it can only be read.
    fn open_for_writing(&self) -> Result<Result<Vfs, String>, Failure> {
        if self.options.read_only {
            return Ok(Err("asked for".to_owned()));
        }
        if self.path.is_far() {
            return Ok(Err(save::ONLY_READ.to_owned()));
        }
        let path = self.path.whole();
        let mut opened = match self.open_writer() {
            Ok(opened) => opened,
            Err(NotOpened::Locked { holder }) => {
                let process = holder.map(|pid| format!("process {pid}"));
                let who = match (self.shown_by(), process) {
                    (Some(mount), process) => {
                        let process = process.map_or_else(String::new, |it| format!(" ({it})"));
                        format!("another mount on {}{process}", mount.directory().display())
                    }
                    (None, Some(process)) => process,
                    (None, None) => "another mount, or another program,".to_owned(),
                };
                let why = format!("{who} has it locked; -r mounts it read-only");
                return Err(Failure::of(Exit::Locked, path, why));
            }
            Err(NotOpened::Unwritable(error)) if is_lack(&error) => return Err(self.failed(&error)),
            // if it can't be read either, opening it for reading says so
            Err(NotOpened::Unwritable(error)) => {
                return Ok(Err(match error {
                    // the version is not known; the error advises -o force, which was given
                    Error::Unsupported {
                        at: Place::Line { line: 1, .. },
                        ..
                    } if self.options.force => "its version is not known".to_owned(),
                    error => unwritable(error_of(path, &error)),
                }));
            }
        };
        tell_recovery(path, what_was_settled(&opened.recovery));
        let fail = |error| self.failed(&error);
        let meta = opened.writer.file().metadata();
        let meta = meta.map_err(|cause| fail(Error::io("reading the file's attributes", cause)))?;
        let stat = Stat::from(&meta);
        // another program may have changed it after the scan and before `stat`
        let scan = opened.writer.reload().map_err(fail)?;
        let scan = scan.unwrap_or(opened.scan);
        let file = FileSource::open(Arc::clone(opened.writer.file())).map_err(fail)?;
        let file = Arc::new(file);
        let bytes: Arc<dyn Source> = file.clone();
        let (cache, reading) = (Arc::clone(self.cache), self.reading.clone());
        let snapshot = Snapshot::new(file, bytes, scan, cache, reading);
        self.check_damage(&snapshot)?;
        let mut vfs = self.mount(snapshot, stat, Ok(self.options.saving));
        vfs.take_writer(opened.writer);
        Ok(Ok(vfs))
    }

    /// The file system of a file that was opened for reading; `writing` says how it is opened for writing later, or why it is not.
    fn read(&self, opened: ReadOnly, writing: Result<SaveOptions, String>) -> Result<Vfs, Failure> {
        tell_recovery(self.path.whole(), what_is_shown(&opened.recovery));
        let stat = opened.file.stat;
        let (cache, reading) = (Arc::clone(self.cache), self.reading.clone());
        let snapshot = opened.snapshot(cache, reading);
        let snapshot = snapshot.map_err(|error| self.failed(&error))?;
        self.check_damage(&snapshot)?;
        let writing = match (snapshot.fits(), writing) {
            (Some(_), _) if !self.options.read_only => Err("ASDF in FITS is only read".to_owned()),
            // the reason is told as if it had been opened for writing
            (_, Ok(how)) => match save::writable(snapshot.layout()) {
                Ok(()) => Ok(how),
                Err(error) => Err(error_of(self.path.whole(), &error)),
            },
            (_, Err(why)) => Err(why),
        };
        Ok(self.mount(snapshot, stat, writing))
    }

    /// Refuses a damaged file, unless `-o force` is given.
    fn check_damage(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let worst = snapshot.layout().worst();
        let damage = worst.filter(|finding| finding.severity == Severity::Damaged);
        match damage.filter(|_| !self.options.force) {
            None => Ok(()),
            Some(finding) => {
                let why = format!("{}; -o force mounts the readable parts", finding.error);
                Err(Failure::of(Exit::Damaged, self.path.whole(), why))
            }
        }
    }

    /// How a member is written: it is opened for writing later, if its permissions allow that. A name that is free for the moment is no
    /// obstacle: another program may be about to give it to a new file.
    fn later(&self) -> Result<Result<SaveOptions, String>, Failure> {
        let cause = match self.path.check_writable() {
            Ok(()) => return Ok(Ok(self.options.saving)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Ok(self.options.saving));
            }
            Err(cause) => cause,
        };
        let why = unwritable(cause.to_string());
        let error = Error::io(self.path.whole().display().to_string(), cause);
        if is_lack(&error) {
            // the machine lacks something for now: the file itself may be writable
            return Err(self.failed(&error));
        }
        Ok(Err(why))
    }

    /// Opens it as one of many: for reading, and without a lock. If a save was interrupted, it is opened for writing instead, which
    /// finishes that save.
    fn open_member(&self) -> Result<Vfs, Failure> {
        let opened = save::open_unlocked(self.path).map_err(|error| self.failed(&error))?;
        if self.options.read_only {
            return self.read(opened, Err("asked for".to_owned()));
        }
        if !matches!(opened.recovery, Recovery::Clean) {
            return match self.open_for_writing()? {
                Ok(vfs) => Ok(vfs),
                Err(why) => self.read(opened, Err(why)),
            };
        }
        self.read(opened, self.later()?)
    }
}

/// Why a file can't be written; with advice, if its permissions are the reason.
fn unwritable(why: String) -> String {
    let denied = io::Error::from(Errno::ACCESS).to_string();
    if why == denied {
        return format!(
            "{why}; to save into it, let this user write it and read its directory, and mount it again"
        );
    }
    why
}

/// What became of an interrupted save when FILE was opened for writing.
fn what_was_settled(recovery: &Recovery) -> Option<String> {
    let said = match recovery {
        Recovery::Clean => return None,
        Recovery::Redone => "; it has been finished",
        Recovery::Dropped => " before it took effect; what it had left was removed",
        Recovery::Replaced(kept) => &of_replaced(kept.as_deref()),
        Recovery::Foreign(why) => &format!(", and the file changed since: {why}"),
    };
    Some(said.to_owned())
}

/// How an interrupted save is shown when FILE was opened for reading only, and on disk is as it was.
fn what_is_shown(recovery: &Recovery) -> Option<String> {
    match recovery {
        Recovery::Redone => Some("; it is shown finished, and the next writable mount finishes it on disk".to_owned()),
        Recovery::Dropped => Some(" before it took effect; what it had left is not shown, and the next writable mount removes it".to_owned()),
        Recovery::Clean | Recovery::Replaced(_) | Recovery::Foreign(_) => what_was_settled(recovery),
    }
}

/// Says what an interrupted save had left, if it had.
fn tell_recovery(path: &Path, said: Option<String>) {
    if let Some(said) = said {
        warn!("{}: a save had been interrupted{said}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read-only mount said that the save had been finished.
    #[test]
    fn a_save_that_is_only_shown_finished_is_not_told_as_finished() {
        for recovery in [Recovery::Redone, Recovery::Dropped] {
            let settled = what_was_settled(&recovery).unwrap();
            let shown = what_is_shown(&recovery).unwrap();
            assert!(shown.contains("shown") && shown.contains("the next writable mount"));
            assert!(!settled.contains("next"), "{settled}");
        }
        assert_eq!(what_is_shown(&Recovery::Clean), None);
    }

    /// FILE without its name for the moment between two steps of a program that replaces it was read-only until it was closed.
    #[test]
    fn a_member_whose_file_is_gone_for_a_moment_can_be_written_later() {
        let place = tempfile::TempDir::new().unwrap();
        let (cache, options) = (Cache::new(1 << 20), Options::default());
        let path = FilePath::from(&place.path().join("a.asdf"));
        let how = Opening {
            path: &path,
            options: &options,
            cache: &cache,
            reading: OpenOptions::default(),
            scratch: Scratch::new(0, place.path()),
        };
        let later = |how: &Opening<'_>| how.later().ok();
        assert!(matches!(later(&how), Some(Ok(_))));
        std::fs::write(path.whole(), "").unwrap();
        assert!(matches!(later(&how), Some(Ok(_))));
        let way = FilePath::from(&path.whole().join("in a file"));
        let below = Opening { path: &way, ..how };
        assert!(matches!(later(&below), Some(Err(_))));
    }
}
