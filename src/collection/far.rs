//! Files on servers as files of a mount: which attributes they have, and how often their servers are asked.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use log::warn;

use super::contents::far_stat;
use super::item::ItemKind;
use super::listing::{Listable, Listed, ListedSource};
use super::renewed::Renewed;
use crate::error::{Error, Result};
use crate::remote::{Identity, Location, Remote, RemoteError, Traffic};
use crate::save::{FarFile, FilePath, OpenFile};
use crate::source::Stat;
use crate::vfs::locked;

/// A server is asked again after so many times the time that its last answer took.
const PAUSE: u32 = 2;

/// The file at a URL, which messages call `name`.
#[must_use]
pub fn file(remote: &Remote, at: &Location, name: &Path) -> FilePath {
    let file = RemoteFile::new(remote, at.clone());
    FilePath::far(name.to_owned(), Arc::new(file))
}

/// What lies below a URL that ends in a slash.
#[must_use]
pub fn bucket(remote: &Remote, prefix: &Location) -> Box<dyn Listable> {
    Box::new(Prefix {
        remote: remote.clone(),
        at: prefix.clone(),
    })
}

/// A file at a URL, and what its server said of it last.
struct RemoteFile {
    remote: Remote,
    at: Location,
    known: Renewed<Said>,
    /// Held for moments.
    opened: Mutex<LastOpened>,
    /// What its server was asked.
    traffic: Arc<Traffic>,
}

/// What was opened last of a file.
#[derive(Default)]
struct LastOpened {
    /// Where it is noted that the object has changed; the file may be closed when it is, or could not be opened whole.
    changed: Arc<OnceLock<RemoteError>>,
    /// How many of those that were opened can no longer be read, because a server has once answered with another state. The file is another
    /// one then, even if the server has the same state again: so it is opened anew.
    lost: u64,
}

/// What a server has said of a file.
#[derive(Clone)]
struct Said {
    /// The last that it said, also if it can't be asked now. If it has never said anything, or said that there is no such file, the error.
    stat: Result<Stat>,
    /// The state that it said, if it sends parts of files.
    identity: Option<Identity>,
    /// Why it could not be asked last. As to ask a server that does not answer takes long, the file is not opened for some time then.
    failure: Option<Error>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.at, f)
    }
}

impl RemoteFile {
    fn new(remote: &Remote, at: Location) -> Self {
        Self {
            remote: remote.clone(),
            at,
            // without an attribute there is a failure, too
            known: Renewed::new(remote.ttl(), PAUSE, |said| said.failure.is_none()),
            opened: Mutex::default(),
            traffic: Arc::default(),
        }
    }

    /// The number of states that were lost. If what was opened last is among them, what is known of it is too old.
    fn lost(&self) -> u64 {
        let mut opened = locked(&self.opened);
        if opened.changed.get().is_some() {
            opened.changed = Arc::default();
            opened.lost = opened.lost.saturating_add(1);
            self.known.forget();
        }
        opened.lost
    }
}

impl FarFile for RemoteFile {
    fn stat(&self) -> io::Result<Stat> {
        let lost = self.lost();
        let found = self.known.get(|last| {
            let before = last
                .as_ref()
                .and_then(|said| said.stat.as_ref().ok().copied());
            let known = last.and_then(|said| said.identity);
            let found = self.remote.probe(&self.at, known, &self.traffic);
            match found.map_err(Error::from) {
                Ok((identity, in_parts)) => {
                    let mut stat = stat_of(&identity, lost);
                    // it was counted when the file was opened
                    if let Some(before) = before.filter(|_| !identity.says_size()) {
                        stat.size = before.size;
                    }
                    Said {
                        stat: Ok(stat),
                        identity: in_parts.then_some(identity),
                        failure: None,
                    }
                }
                Err(error) => {
                    warn!("{error}");
                    let is_gone = error.to_system().kind() == io::ErrorKind::NotFound;
                    // any other error says nothing of the file
                    let stat = before.filter(|_| !is_gone);
                    Said {
                        stat: stat.ok_or_else(|| error.clone()),
                        identity: None,
                        failure: Some(error),
                    }
                }
            }
        });
        found.stat.map_err(|error| error.to_system())
    }

    fn open(&self) -> Result<OpenFile> {
        // first, as it may forget what is known
        let lost = self.lost();
        let said = self.known.fresh();
        if let Some(failure) = said.as_ref().and_then(|said| said.failure.clone()) {
            return Err(failure);
        }
        // the answer is as old as the request: a later one of another thread must not be replaced by it
        let begun = Instant::now();
        let known = said.and_then(|said| said.identity);
        let object = self
            .remote
            .open_known(&self.at, known.clone(), &self.traffic)?;
        locked(&self.opened).changed = object.changed();
        let identity = object.identity();
        if !identity.is_sure() {
            warn!(
                "{}: its server says neither ETag nor Last-Modified: a change that keeps its size goes unnoticed",
                self.at
            );
        }
        let stat = stat_of(identity, lost);
        // of a state that is known, the server may not have been asked: what it has said grows no younger
        if known.as_ref() != Some(identity) {
            let said = Said {
                stat: Ok(stat),
                identity: Some(identity.clone()).filter(|_| object.is_in_parts()),
                failure: None,
            };
            self.known.learn(begun, said);
        }
        Ok(OpenFile {
            local: None,
            bytes: object,
            stat,
        })
    }

    fn forget(&self) {
        self.known.forget();
    }

    fn told(&self) -> Vec<(&'static str, String)> {
        let mut lines = self.traffic.lines();
        let said = self.known.last();
        if let Some(identity) = said.and_then(|said| said.identity) {
            lines.insert(1, ("validator", identity.validator()));
        }
        lines
    }
}

/// All files below a URL.
struct Prefix {
    remote: Remote,
    at: Location,
}

impl Listable for Prefix {
    fn name(&self) -> PathBuf {
        self.at.to_string().into()
    }

    fn ttl(&self) -> Duration {
        self.remote.ttl()
    }

    fn list(&self, folder: &str) -> Result<Vec<(String, Listed)>> {
        let at = match folder {
            "" => self.at.clone(),
            folder => self.at.join(&format!("{folder}/"))?,
        };
        let found = self.remote.list(&at)?;
        let files = found.entries.into_iter().map(|entry| {
            let stat = stat_of(&entry.identity, 0);
            (entry.name, Listed::File(stat, Arc::new(entry.identity)))
        });
        let folders = found.folders.into_iter();
        let folders = folders.map(|name| (name, Listed::Folder));
        let unreadable = found.unreadable.into_iter();
        let unreadable = unreadable.map(|name| (name, Listed::Unreadable));
        Ok(files.chain(folders).chain(unreadable).collect())
    }

    fn file(&self, name: &str, source: Option<&ListedSource>) -> Result<FilePath> {
        let at = self.at.join(name)?;
        let name = at.to_string();
        let file = RemoteFile::new(&self.remote, at);
        if let Some(identity) = source.and_then(|source| source.downcast_ref::<Identity>()) {
            let said = Said {
                stat: Ok(stat_of(identity, 0)),
                identity: Some(identity.clone()),
                failure: None,
            };
            file.known.learn(Instant::now(), said);
        }
        Ok(FilePath::far(name.into(), Arc::new(file)))
    }
}

fn stat_of(identity: &Identity, lost: u64) -> Stat {
    stat(
        (identity.number(), lost),
        identity.size(),
        identity.modified(),
    )
}

/// The attributes of a file that is known by `id` and these.
fn stat(id: impl Hash, size: u64, modified: Option<SystemTime>) -> Stat {
    let mut hasher = DefaultHasher::new();
    // there is no inode: what identifies a state of the object stands for it
    id.hash(&mut hasher);
    let since = modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let since = since.unwrap_or_default();
    let mtime = (
        i64::try_from(since.as_secs()).unwrap_or(0),
        since.subsec_nanos().into(),
    );
    far_stat(hasher.finish(), size, mtime, ItemKind::Member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Cache;
    use crate::remote::RemoteOptions;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU16, Ordering};

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

    /// After one failure the file of a server that sends no length was taken for another one, and a file of a list had no attributes.
    #[test]
    fn a_server_that_cannot_be_asked_says_nothing_of_a_file() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let status = Arc::new(AtomicU16::new(200));
        let now = Arc::clone(&status);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                let status = now.load(Ordering::Relaxed);
                let body = if status == 200 { "all of it" } else { "" };
                let answer = format!(
                    "HTTP/1.1 {status} x\r\nETag: \"a\"\r\nConnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let at = Location::parse(&format!("http://127.0.0.1:{port}/a.asdf"));
        let file = RemoteFile::new(
            &Remote::new(RemoteOptions::default(), &Cache::new(1 << 20)).unwrap(),
            at.unwrap().unwrap(),
        );
        let opened = file.open().unwrap().stat;
        assert_eq!(opened.size, 9);
        for answers in [403, 200] {
            status.store(answers, Ordering::Relaxed);
            file.known.expire();
            let found = file.stat().unwrap();
            assert!(found.is_untouched_since(&opened), "{answers}: {found:?}");
            assert_eq!(file.open().is_ok(), answers == 200, "{answers}");
        }
        status.store(403, Ordering::Relaxed);
        file.known.expire();
        file.stat().unwrap();
        status.store(200, Ordering::Relaxed);
        assert!(file.open().is_err(), "it is not asked so soon again");
        status.store(404, Ordering::Relaxed);
        file.known.expire();
        let gone = file.stat().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    /// The file of a server that says the number `tag` as its state, and sends zeros.
    fn tagged(tag: &Arc<AtomicU16>) -> RemoteFile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let now = Arc::clone(tag);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut asked = [0; 4096];
                let len = stream.read(&mut asked).unwrap();
                let asked = String::from_utf8_lossy(&asked[..len]).to_ascii_lowercase();
                let range = asked.split("range: bytes=").nth(1).unwrap();
                let (first, last) = range.lines().next().unwrap().split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                let last = last.min(999_999);
                let tag = now.load(Ordering::Relaxed);
                let answer = format!(
                    "HTTP/1.1 206 x\r\nETag: \"{tag}\"\r\nContent-Range: bytes {first}-{last}/1000000\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    last + 1 - first
                );
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.write_all(&vec![0; last + 1 - first]);
            }
        });
        let at = Location::parse(&format!("http://127.0.0.1:{port}/a.asdf"));
        let remote = Remote::new(RemoteOptions::default(), &Cache::new(1 << 20)).unwrap();
        RemoteFile::new(&remote, at.unwrap().unwrap())
    }

    /// A file was lost until the unmount, though its server had the same state as ever; or if it had said another one just when
    /// the file was opened again.
    #[test]
    fn a_state_that_was_lost_and_is_there_again_is_another_file() {
        for is_closed in [false, true] {
            let tag = Arc::new(AtomicU16::new(1));
            let file = tagged(&tag);
            let opened = file.open().unwrap();
            let before = opened.stat;
            assert!(file.stat().unwrap().is_untouched_since(&before));
            tag.store(2, Ordering::Relaxed);
            assert!(opened.bytes.read_exact_at(&mut [0], 500_000).is_err());
            let _still = (!is_closed).then_some(opened);
            tag.store(1, Ordering::Relaxed);
            let found = file.stat().unwrap();
            assert!(!found.has_bytes_of(&before));
            let again = file.open().unwrap();
            assert!(again.stat.is_untouched_since(&found));
            again.bytes.read_exact_at(&mut [0], 500_000).unwrap();
        }
    }

    /// A file that was opened again and again, from what was fetched before, never changed.
    #[test]
    fn an_open_without_a_request_does_not_tell_what_a_server_says() {
        let tag = Arc::new(AtomicU16::new(1));
        let file = tagged(&tag);
        file.open().unwrap();
        let until = file.known.until();
        let requests = file.told();
        file.open().unwrap();
        assert_eq!(file.told(), requests, "it is in the cache");
        assert_eq!(file.known.until(), until);
    }
}
