//! Open files and directories, by the numbers by which the kernel knows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fuser::{Errno, FileHandle, FopenFlags, INodeNo, ReplyOpen};

use super::Shim;
use super::convert::inode;
use super::pending::PendingReply;
use crate::collection::Handle;
use crate::vfs::Error;

/// The open handles, by number.
pub(super) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, OpenHandle<T>>>,
}

/// What is open.
struct OpenHandle<T> {
    handle: Arc<T>,
    /// Whether it is a directory whose listing has begun.
    is_listed: AtomicBool,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            open: RwLock::default(),
        }
    }
}

impl<T> Handles<T> {
    /// Adds a handle, and gives its number.
    pub(super) fn insert(&self, handle: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // a thread that panicked with the lock held left the map itself whole
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let opening = OpenHandle {
            handle: Arc::new(handle),
            is_listed: AtomicBool::new(false),
        };
        open.insert(number, opening);
        FileHandle(number)
    }

    /// The handle of that number.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    pub(super) fn get(&self, number: FileHandle) -> Result<Arc<T>, Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let opening = open.get(&number.0).ok_or(Error::BadHandle)?;
        Ok(Arc::clone(&opening.handle))
    }

    /// Whether the listing of a directory begins once more.
    fn is_rewound(&self, number: FileHandle, offset: u64) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let opening = open.get(&number.0).filter(|_| offset == 0);
        opening.is_some_and(|opening| opening.is_listed.swap(true, Ordering::Relaxed))
    }

    /// Replaces the handle of that number, and gives the old one.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    fn replace(&self, number: FileHandle, handle: T) -> Result<Arc<T>, Error> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let opening = open.get_mut(&number.0).ok_or(Error::BadHandle)?;
        Ok(std::mem::replace(&mut opening.handle, Arc::new(handle)))
    }

    /// Removes the handle of that number, and gives it.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    pub(super) fn remove(&self, number: FileHandle) -> Result<Arc<T>, Error> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let opening = open.remove(&number.0).ok_or(Error::BadHandle)?;
        Ok(opening.handle)
    }
}

impl Shim {
    /// Replies with the number of what was opened. Closes it again if the caller has been killed and does not wait any more.
    pub(super) fn opened(
        &self,
        reply: &PendingReply<ReplyOpen>,
        opened: Result<(FopenFlags, Handle), Errno>,
    ) {
        match opened {
            Ok((flags, handle)) => {
                let number = self.handles.insert(handle);
                let is_open = reply.send(|reply| reply.opened(number, flags));
                if !is_open && let Ok(handle) = self.handles.remove(number) {
                    self.files.release(&handle);
                }
            }
            Err(errno) => {
                reply.send(|reply| reply.error(errno));
            }
        }
    }

    /// The handle of a directory that is listed from `offset` on. If the listing begins once more, as after rewinddir(3), or has not begun
    /// when the names are outdated, the directory is opened anew, so that it has the current names.
    ///
    /// # Errors
    /// [`Error::BadHandle`]; as [`crate::collection::Collection::opendir`].
    pub(super) fn listed(
        &self,
        directory: INodeNo,
        fh: FileHandle,
        offset: u64,
    ) -> Result<Arc<Handle>, Error> {
        let handle = self.handles.get(fh)?;
        let is_outdated = || offset == 0 && self.files.is_outdated(&handle);
        if !self.handles.is_rewound(fh, offset) && !is_outdated() {
            return Ok(handle);
        }
        // opened before the old one is released: an error leaves the listing as it was
        let anew = self.files.opendir(inode(directory)?)?;
        self.files.release(&*self.handles.replace(fh, anew.handle)?);
        self.handles.get(fh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_lives_until_it_is_removed() {
        let handles = Handles::default();
        let (a, b) = (handles.insert("a"), handles.insert("b"));
        assert_ne!(a, b);
        assert_eq!(*handles.get(a).unwrap(), "a");
        handles.remove(a).unwrap();
        assert!(matches!(handles.get(a), Err(Error::BadHandle)));
        assert_eq!(*handles.get(b).unwrap(), "b");
    }

    #[test]
    fn a_directory_is_rewound_when_its_beginning_is_listed_again() {
        let handles = Handles::default();
        let number = handles.insert("a");
        let offsets = [0, 5, 0, 5, 0];
        let rewound = offsets.map(|offset| handles.is_rewound(number, offset));
        assert_eq!(rewound, [false, false, true, false, true]);
        assert_eq!(*handles.replace(number, "b").unwrap(), "a");
        assert_eq!(*handles.get(number).unwrap(), "b");
    }
}
