//! How far a save is that copies FILE, for other threads to tell.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes a save copies, and has copied so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Zero while nothing is copied.
    total: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// A copy of so many bytes begins.
    pub(super) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// So many more of them have been copied.
    pub(super) fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// The copy is over.
    pub(super) fn end(&self) {
        self.begin(0);
    }

    /// Bytes copied, and to be copied in all, while a save copies some.
    #[must_use]
    pub fn now(&self) -> Option<(u64, u64)> {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed).min(total);
        (total > 0).then_some((done, total))
    }
}
