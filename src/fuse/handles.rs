//! Open files and directories, by the numbers that the kernel knows them by.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fuser::FileHandle;

use crate::vfs::Error;

/// The open handles, by number.
pub(super) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
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
    /// Takes `handle` in. Its number.
    pub(super) fn insert(&self, handle: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // a thread that panicked with the lock held left the map itself whole
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::new(handle));
        FileHandle(number)
    }

    /// The handle of that number.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    pub(super) fn get(&self, number: FileHandle) -> Result<Arc<T>, Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number.0).cloned().ok_or(Error::BadHandle)
    }

    /// Takes the handle of that number out.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    pub(super) fn remove(&self, number: FileHandle) -> Result<Arc<T>, Error> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&number.0).ok_or(Error::BadHandle)
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
}
