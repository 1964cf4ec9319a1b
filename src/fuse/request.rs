//! A request of the kernel, and what the log says of it.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fuser::{Errno, INodeNo};
use log::{Level, debug, log_enabled, warn};

use super::Shim;
use super::convert::inode;
use crate::collection::Collection;
use crate::vfs::{Call, Error};

/// A request that is being served.
pub(super) struct Asked<'a> {
    files: &'a Collection,
    call: Call,
    /// The file, or the directory of the name.
    ino: INodeNo,
    name: Option<&'a OsStr>,
    /// The extended attribute that the request is about, if it is.
    attribute: Option<&'a OsStr>,
    /// When it came, if each request is logged.
    since: Option<Instant>,
}

impl Shim {
    /// Counts a request for a file that is served from now on.
    pub(super) fn asked(&self, call: Call, ino: INodeNo) -> Asked<'_> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Asked {
            files: &self.files,
            call,
            ino,
            name: None,
            attribute: None,
            since: log_enabled!(Level::Debug).then(Instant::now),
        }
    }
}

impl<'a> Asked<'a> {
    /// The same request, for a name in the directory.
    pub(super) fn named(self, name: &'a OsStr) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    /// The same request, for an extended attribute.
    pub(super) fn of(self, attribute: &'a OsStr) -> Self {
        Self {
            attribute: Some(attribute),
            ..self
        }
    }

    /// As [`Asked::moved`], for a request that moves no bytes.
    pub(super) fn done<T>(self, done: Result<T, Error>) -> Result<T, Errno> {
        self.moved(done, None)
    }

    /// Logs what became of the request, with the bytes that it has moved, and turns an error into its errno. It logs a warning of what users
    /// should know, and everything if each request is logged. The path is only made for what is logged.
    pub(super) fn moved<T>(self, done: Result<T, Error>, len: Option<u64>) -> Result<T, Errno> {
        let call = self.call;
        let path = || {
            let path = self.files.path_of(inode(self.ino).ok(), self.name);
            let of = |name: &OsStr| format!("{path} {}", name.display());
            self.attribute.map_or_else(|| path.clone(), of)
        };
        let time = |since: Instant| format!(", {} µs", since.elapsed().as_micros());
        let time = self.since.map_or_else(String::new, time);
        match (&done, len) {
            (Err(error), _) if error.is_remarkable() => {
                warn!("{call:?} {}: {error}{time}", path());
            }
            _ if self.since.is_none() => {}
            (Ok(_), None) => debug!("{call:?} {}: done{time}", path()),
            (Ok(_), Some(len)) => debug!("{call:?} {}: {len} bytes{time}", path()),
            (Err(error), _) => debug!("{call:?} {}: {error}{time}", path()),
        }
        done.map_err(|error| Errno::from_i32(error.errno(call)))
    }
}
