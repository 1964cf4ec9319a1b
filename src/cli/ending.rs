//! The end of a mount that is asked for from inside: it is unmounted, or if another program has made it, no longer served.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use log::warn;
use rustix::mount::UnmountFlags;

use super::unmount;
use crate::fuse::Mount;
use crate::source::Mounted;

/// What ends a mount.
#[derive(Clone)]
pub(super) enum Ending {
    /// Files that are still open are served until they are closed, as far as that does not take long. See [`Mount::is_ending`].
    Unmount(Mounted, Arc<AtomicBool>),
    /// Whatever is on its way fails as if the daemon were gone; what was saved is on disk.
    Leave(Sender<io::Result<()>>),
}

/// The end of a mount, to be waited for.
pub(super) struct Ended(Sender<io::Result<()>>, Receiver<io::Result<()>>);

impl Ending {
    /// What ends `mount`, and what waits for the end.
    pub(super) fn of(mount: &Mount) -> (Self, Ended) {
        let (end, ended) = channel();
        let ending = match mount.mounted() {
            Some(mounted) => Self::Unmount(mounted.clone(), Arc::clone(mount.is_ending())),
            None => Self::Leave(end.clone()),
        };
        (ending, Ended(end, ended))
    }

    /// Ends it.
    pub(super) fn end(&self) {
        match self {
            Self::Unmount(mounted, is_ending) => {
                if let Err(why) = unmount::unmount(mounted, UnmountFlags::DETACH) {
                    warn!("{}: {why}", mounted.directory().display());
                }
                // a mount that another one covers stays; one that `umount -l` has taken away ends
                is_ending.store(mounted.again().is_none(), Ordering::Relaxed);
            }
            // if nobody waits any more, it has ended
            Self::Leave(end) => drop(end.send(Ok(()))),
        }
    }
}

impl Ended {
    /// Serves until the end.
    ///
    /// # Errors
    /// What ended the session, if that was no unmount.
    pub(super) fn wait_for(self, mount: Mount) -> io::Result<()> {
        if mount.mounted().is_some() {
            return mount.join();
        }
        let Self(end, ended) = self;
        std::thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || end.send(mount.join()))?;
        ended.recv().unwrap_or(Ok(()))
    }
}
