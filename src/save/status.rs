//! What other threads ask of a writer without waiting for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// How far a save is that copies FILE, and why nothing may be written any more.
#[derive(Debug, Default)]
pub struct Status {
    /// How many bytes a save copies; zero while nothing is copied.
    total: AtomicU64,
    /// How many of them it has copied so far.
    done: AtomicU64,
    broken: OnceLock<Error>,
}

impl Status {
    /// A copy of so many bytes begins.
    pub(super) fn begin_copy(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// So many more of them have been copied.
    pub(super) fn add_copied(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// The copy is over.
    pub(super) fn end_copy(&self) {
        self.begin_copy(0);
    }

    /// Bytes copied, and to be copied in all, while a save copies some.
    #[must_use]
    pub fn copying(&self) -> Option<(u64, u64)> {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed).min(total);
        (total > 0).then_some((done, total))
    }

    /// A save has failed so badly that no other may follow.
    pub(super) fn note_broken(&self, why: Error) {
        // the first cause is the one that counts
        let _ = self.broken.set(why);
    }

    /// Why nothing may be written any more, if a save has failed so badly.
    #[must_use]
    pub fn broken(&self) -> Option<&Error> {
        self.broken.get()
    }
}
