//! Files far away as files of a mount: which attributes they have, and how often their servers are asked.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use log::warn;

use super::listing::{Bucket, Listed};
use crate::error::{Error, Result};
use crate::remote::{Identity, Location, Remote};
use crate::save::{FarFile, FilePath, OpenFile};
use crate::source::Stat;

/// A server is asked after so long at the earliest whether a file has changed,
const INTERVAL: Duration = Duration::from_secs(10);
/// and after so many times the time that it took.
const PAUSE: u32 = 2;
/// Files far away are on no device of this machine.
const DEVICE: u64 = u64::MAX;
/// The mode of a file: everybody may read it, whom the mount lets in at all.
const FILE: u32 = 0o100_444;

/// The file at a URL, which messages call `name`.
#[must_use]
pub fn file(remote: &Remote, at: Location, name: &Path) -> FilePath {
    FilePath::far(
        name.to_owned(),
        Arc::new(Far {
            remote: remote.clone(),
            at,
            known: Mutex::default(),
        }),
    )
}

/// What lies below a URL that ends in a slash.
#[must_use]
pub fn bucket(remote: &Remote, prefix: Location) -> Box<dyn Bucket> {
    Box::new(Prefix {
        remote: remote.clone(),
        at: prefix,
    })
}

/// A file at a URL, and what its server said of it last.
struct Far {
    remote: Remote,
    at: Location,
    /// One thread asks; others wait for it, as they would for an answer of their own.
    known: Mutex<Option<KnownStat>>,
}

struct KnownStat {
    /// When it is to be asked again.
    until: Instant,
    /// What it said: also that it does not answer, which would take as long again.
    stat: Result<Stat>,
}

impl KnownStat {
    /// What a server has just said that was asked then.
    fn since(begun: Instant, stat: Result<Stat>) -> Self {
        let pause = begun.elapsed().saturating_mul(PAUSE).max(INTERVAL);
        let until = Instant::now().checked_add(pause).unwrap_or(begun);
        Self { until, stat }
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.at, f)
    }
}

impl Far {
    fn lock(&self) -> MutexGuard<'_, Option<KnownStat>> {
        // a thread that panicked with it left the value itself whole
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FarFile for Far {
    fn stat(&self) -> io::Result<Stat> {
        let mut known = self.lock();
        if let Some(known) = known.as_ref().filter(|known| Instant::now() < known.until) {
            return known.stat.clone().map_err(|error| error.to_system());
        }
        let begun = Instant::now();
        let found = self.remote.probe(&self.at).map_err(Error::from);
        let before = known.as_ref().and_then(|known| known.stat.as_ref().ok());
        let before = before.map(|stat| stat.size);
        let stat = found.map(|identity| Stat {
            // it was counted when the file was opened
            size: before
                .filter(|_| !identity.says_size())
                .unwrap_or(identity.size()),
            ..stat_of(&identity)
        });
        if let Err(error) = &stat {
            warn!("{error}");
        }
        let known = known.insert(KnownStat::since(begun, stat));
        known.stat.clone().map_err(|error| error.to_system())
    }

    fn open(&self) -> Result<OpenFile> {
        let begun = Instant::now();
        let object = self.remote.open(&self.at)?;
        let identity = object.identity();
        if !identity.is_sure() {
            warn!(
                "{}: its server says neither ETag nor Last-Modified: a change that keeps its size goes unnoticed",
                self.at
            );
        }
        let stat = stat_of(identity);
        *self.lock() = Some(KnownStat::since(begun, Ok(stat)));
        Ok(OpenFile {
            local: None,
            bytes: object,
            stat,
        })
    }

    fn forget(&self) {
        *self.lock() = None;
    }
}

/// All files below a URL.
struct Prefix {
    remote: Remote,
    at: Location,
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.at, f)
    }
}

impl Bucket for Prefix {
    fn name(&self) -> PathBuf {
        self.at.to_string().into()
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let entries = self.remote.list(&self.at)?.into_iter();
        let listed = entries.map(|entry| Listed {
            stat: stat((&entry.name, &entry.etag), entry.size, Some(entry.modified)),
            name: entry.name,
        });
        Ok(listed.collect())
    }

    fn file(&self, name: &str) -> Result<FilePath> {
        let at = self.at.join(name)?;
        let name = at.to_string();
        Ok(file(&self.remote, at, Path::new(&name)))
    }
}

fn stat_of(identity: &Identity) -> Stat {
    stat(identity.number(), identity.size(), identity.modified())
}

/// The attributes of a file that is known by `id` and these, and owned by the user who mounts it.
fn stat(id: impl Hash, size: u64, modified: Option<SystemTime>) -> Stat {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let since = modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let since = since.unwrap_or_default();
    let mtime = (
        i64::try_from(since.as_secs()).unwrap_or(0),
        since.subsec_nanos().into(),
    );
    Stat {
        id: (DEVICE, hasher.finish()),
        size,
        mtime,
        ctime: mtime,
        links: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: FILE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_tell_states_of_a_file_apart() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let a = stat("a", 9, at(5));
        assert!(a.is_regular() && a.has_bytes_of(&stat("a", 9, at(5))));
        for other in [
            stat("b", 9, at(5)),
            stat("a", 8, at(5)),
            stat("a", 9, at(6)),
            stat("a", 9, None),
        ] {
            assert!(!a.has_bytes_of(&other));
        }
        assert_eq!(a.modified(), at(5).unwrap());
    }
}
