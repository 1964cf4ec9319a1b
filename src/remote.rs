//! Files that lie far away: behind `http`, `https`, `s3`, `gs` and `az` URLs.
//!
//! An [`Object`] is a [`Source`](crate::source::Source) as any other; nothing above knows that its bytes come from a server.
//! It is read in pieces of 64 KiB, a header far from others in one of 512 bytes (`pieces`), which are kept in the [`Cache`] of decoded data, under its one budget. What is missing and lies together is asked
//! for with one request, and a reader that goes on has ever larger ones ahead of it (`parts`). They belong to the state of the object, and stay when
//! it is closed (`kept`). A request is made again from where it stopped, with growing pauses, as long as that may help (`flight`, `failure`, `patience`).
//!
//! **Never a mixture.** The first answer pins the [`Identity`] of the object, each other one is compared with it, and `If-Match`
//! asks the server to do so too, where the tag is a strong one. After a difference nothing of the object can be read.
//!
//! **Nothing secret** is shown: [`Location`] leaves out what may be, and no text of the crates below is taken but that of the
//! innermost error, because those above it name the URL.
//!
//! # Locks and threads
//!
//! One thread, `asdf-remote`, runs all requests, and looks up the names of hosts. A few others come and go, to look for pieces on disk and to write them there.
//! Readers wait for the pieces:
//!
//! | lock | guards | while it is held |
//! |---|---|---|
//! | `PiecedObject::state` | the pieces of one object that are under way, its readers, whether it has changed | `Cache::kept`, for a moment |
//! | `Clients::web`, `Clients::buckets` | the clients that are known | nothing else |
//! | `Traffic::last` | what was noted last of an object | nothing else |
//! | `KeptStates::states` | the states of objects whose pieces stay | nothing else |
//!
//! A thread waits only on `PiecedObject::moved`, with none of these locks; if it decodes, with the memory of its decoder. So a server that
//! does not answer keeps no other file from being read, unless so many decoders wait for it that there is no memory for another. A request ends at the latest when nothing has come for
//! [`RemoteOptions::timeout`]: the waiting threads have its error then. They look four times a second whether the mount has ended.

mod checked;
mod client;
mod credentials;
mod disk;
mod environment;
mod error;
mod failure;
mod flight;
mod identity;
mod kept;
mod listing;
mod location;
mod object;
mod open;
mod parts;
mod patience;
mod pieces;
mod proxy;
mod redirect;
#[cfg(test)]
mod tests;
mod traffic;

use std::collections::HashMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::codec::Cache;
use client::{Clients, StoredObject};
use disk::PieceStore;
use kept::KeptStates;
use location::Address;
use object::ObjectBytes;

pub use error::RemoteError;
pub use identity::Identity;
pub use listing::{ObjectEntry, ObjectListing};
pub use location::Location;
pub use object::Object;
pub use traffic::Traffic;

/// How long a thread waits before it looks whether the mount has ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The most threads that wait for the disk: those that write pieces, each of which may have one, and those that look for pieces.
const HELPERS: usize = disk::WAITING + 16;

/// How objects that lie far away are read.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The longest wait for the next 64 KiB, attempts that fail included; or [`RemoteOptions::FOR_EVER`].
    pub timeout: Duration,
    /// Whether requests to buckets are signed with the user's credentials; else they are anonymous.
    pub sign: bool,
    /// The longest file, in bytes, that is downloaded as a whole if the server does not send parts.
    pub max_download: u64,
    /// How long counts what a server has said of an object or a prefix.
    pub ttl: Duration,
    /// The directory where pieces of objects are kept for the next mount, and how many bytes in all.
    pub disk: Option<(PathBuf, u64)>,
}

impl RemoteOptions {
    /// The timeout with which a server is waited for until it answers, however long that takes.
    pub const FOR_EVER: Duration = Duration::MAX;
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            sign: true,
            max_download: 1 << 30,
            ttl: Duration::from_secs(10),
            disk: None,
        }
    }
}

/// What reads far objects: the clients, and the thread of their requests. A clone is the same one.
#[derive(Clone)]
pub struct Remote(Arc<Inner>);

struct Inner {
    options: RemoteOptions,
    cache: Arc<Cache>,
    clients: Clients,
    disk: Option<Arc<PieceStore>>,
    kept: KeptStates,
    handle: Handle,
    /// Bytes that are under way and that no reader has asked for.
    ahead: Arc<AtomicU64>,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl Remote {
    /// Starts the thread of the requests. A process that goes into the background calls this afterwards: a fork leaves the thread
    /// behind.
    ///
    /// # Errors
    /// [`RemoteError::Io`](crate::error::Error::Io) if there can be no thread, or if others may write in the directory of [`RemoteOptions::disk`].
    pub fn new(options: RemoteOptions, cache: &Arc<Cache>) -> crate::error::Result<Self> {
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables = std::env::vars_os().filter_map(text).collect();
        Self::with_variables(options, cache, variables)
    }

    /// As [`Remote::new`], with these environment variables for buckets of S3.
    fn with_variables(
        options: RemoteOptions,
        cache: &Arc<Cache>,
        variables: HashMap<String, String>,
    ) -> crate::error::Result<Self> {
        let disk = options.disk.as_ref();
        let disk = disk
            .map(|(dir, room)| PieceStore::new(dir, *room))
            .transpose()?;
        // a second mount of the process finds it installed
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(HELPERS)
            .thread_name("asdf-remote")
            .enable_all()
            .build()
            .map_err(|cause| crate::error::Error::io("starting the thread of requests", cause))?;
        Ok(Self(Arc::new(Inner {
            clients: Clients::new(&options, variables),
            options,
            disk,
            kept: KeptStates::new(cache),
            cache: Arc::clone(cache),
            handle: runtime.handle().clone(),
            ahead: Arc::default(),
            runtime: Some(runtime),
        })))
    }

    /// How long counts what a server has said, see [`RemoteOptions::ttl`].
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.options.ttl
    }

    /// Opens an object, and fetches its first and last bytes.
    ///
    /// # Errors
    /// [`RemoteError`], after at most about the [timeout](RemoteOptions::timeout); longer, if the file has to be downloaded.
    pub fn open(&self, at: &Location) -> Result<Arc<Object>, RemoteError> {
        self.open_known(at, None, &Arc::default())
    }

    /// As [`Remote::open`], of an object that is in the `known` state now, as its server or a listing says. If its first bytes are here, or on
    /// disk, no request is made. What is asked from then on counts as `traffic`.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub fn open_known(
        &self,
        at: &Location,
        known: Option<Identity>,
        traffic: &Arc<Traffic>,
    ) -> Result<Arc<Object>, RemoteError> {
        let (inner, place) = (Arc::clone(&self.0), at.clone());
        let traffic = Arc::clone(traffic);
        let work = async move { open::open(&inner, &place, known, traffic).await };
        self.0.wait(at, work).map(Arc::new)
    }

    /// What an object is now, to compare with the `known` state: if it is in that, the server need not send any byte. With
    /// it, whether the server sends parts of it. What is asked counts as `traffic`.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub fn probe(
        &self,
        at: &Location,
        known: Option<Identity>,
        traffic: &Arc<Traffic>,
    ) -> Result<(Identity, bool), RemoteError> {
        let (inner, place) = (Arc::clone(&self.0), at.clone());
        let traffic = Arc::clone(traffic);
        let work = async move { open::probe(&inner, &place, known, traffic).await };
        self.0.wait(at, work)
    }

    /// The objects and folders below a prefix, one level deep.
    ///
    /// # Errors
    /// [`RemoteError::NoListing`] where that can't be asked, [`RemoteError`] as [`Remote::open`].
    pub fn list(&self, prefix: &Location) -> Result<ObjectListing, RemoteError> {
        let (inner, place) = (Arc::clone(&self.0), prefix.clone());
        let work = async move {
            let (Address::Bucket { key, .. }, stored @ StoredObject { pages: Some(_), .. }) = (
                place.kind(),
                inner.clients.find(&place, Arc::default()).await?,
            ) else {
                return Err(RemoteError::NoListing {
                    url: place.to_string(),
                });
            };
            listing::list(&place, &stored, key, inner.options.timeout).await
        };
        self.0.wait(prefix, work)
    }
}

impl Inner {
    /// Runs `work` on the thread of the requests and waits for it, unless the mount ends.
    fn wait<T: Send + 'static>(
        &self,
        at: &Location,
        work: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
    ) -> Result<T, RemoteError> {
        let (sender, receiver) = sync_channel(1);
        let task = self.handle.spawn(async move {
            // there is no receiver any more if the mount has ended
            let _ = sender.send(work.await);
        });
        loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => {
                    self.check_wanted(at).inspect_err(|_| task.abort())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(RemoteError::Failed {
                        url: at.to_string(),
                        why: "the request ended without an outcome".to_owned(),
                    });
                }
            }
        }
    }

    /// That the mount has not ended.
    fn check_wanted(&self, at: &Location) -> Result<(), RemoteError> {
        self.cache.check_wanted().map_err(|_| RemoteError::Ended {
            url: at.to_string(),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.finish();
        }
        if let Some(runtime) = self.runtime.take() {
            // a request that does not come back must not hold up unmounting
            runtime.shutdown_background();
        }
    }
}
