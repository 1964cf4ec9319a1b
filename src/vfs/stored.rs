//! Stored bytes: either they are read, by the places that a snapshot gives, or a save changes them in place.
//!
//! A new file that takes FILE's place changes nothing for those who read the old one; nor does a raw block that is written
//! where it is, as its draft is shown meanwhile.

use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

use super::Vfs;

/// For as long as this lives, no save changes or moves stored bytes that the snapshot of the moment shows.
///
/// Not reentrant. A thread takes it before `DataHandle::source` and `Drafts::by_block`: a save takes those while it holds the other
/// side of the lock.
pub type Reading<'a> = RwLockReadGuard<'a, ()>;

/// For as long as this lives, no thread reads stored bytes: a save changes or moves some in place.
pub(super) type Stirring<'a> = RwLockWriteGuard<'a, ()>;

impl Vfs {
    /// Keeps saves from changing stored bytes.
    pub(super) fn reading(&self) -> Reading<'_> {
        self.stored.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread reads stored bytes, and keeps others from it.
    pub(super) fn stirring(&self) -> Stirring<'_> {
        self.stored.write().unwrap_or_else(PoisonError::into_inner)
    }
}
