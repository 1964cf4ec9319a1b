//! Open files and directories.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::error::Error;

/// The open handles of one kind, by number.
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
    pub(super) fn insert(&self, handle: T) -> u64 {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        // a thread that panicked with the lock held left the map itself whole
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(fh, Arc::new(handle));
        fh
    }

    /// The handle of that number.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if there is none.
    pub(super) fn get(&self, fh: u64) -> Result<Arc<T>, Error> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&fh).cloned().ok_or(Error::BadHandle)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().cloned().collect()
    }

    /// Takes the handle of that number out.
    pub(super) fn remove(&self, fh: u64) -> Option<Arc<T>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&fh)
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
        handles.remove(a);
        assert!(matches!(handles.get(a), Err(Error::BadHandle)));
        assert_eq!(*handles.get(b).unwrap(), "b");
    }
}
