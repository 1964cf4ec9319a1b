//! What was asked of the server of an object and what came, for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::error::lock;

/// The requests for an object: all that read it count here.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: AtomicU64,
    /// Bytes of bodies.
    bytes: AtomicU64,
    /// Pieces that were read from memory.
    in_memory: AtomicU64,
    /// Pieces that were read from disk.
    on_disk: AtomicU64,
    /// Held for moments.
    last: Mutex<Last>,
}

/// What was noted last.
#[derive(Debug, Default)]
struct Last {
    /// Who is asked.
    server: String,
    /// What failed last, and when.
    failure: Option<(Instant, String)>,
}

impl Traffic {
    fn last(&self) -> MutexGuard<'_, Last> {
        lock(&self.last)
    }

    /// Notes who is asked.
    pub(super) fn note_server(&self, server: &str) {
        server.clone_into(&mut self.last().server);
    }

    /// Counts a request.
    pub(super) fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of a body.
    pub(super) fn note_bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a piece that is in memory.
    pub(super) fn note_in_memory(&self) {
        self.in_memory.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a piece that was on disk.
    pub(super) fn note_on_disk(&self) {
        self.on_disk.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what has failed, also if it is tried again.
    pub(super) fn note_failure(&self, why: &str) {
        self.last().failure = Some((Instant::now(), why.to_owned()));
    }

    /// Lines of a status: what each is about, and what it says.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (requests, bytes) = (count(&self.requests), count(&self.bytes));
        let (in_memory, on_disk) = (count(&self.in_memory), count(&self.on_disk));
        let last = self.last();
        let failure = match &last.failure {
            Some((at, why)) => format!("{why}, {} s ago", at.elapsed().as_secs()),
            None => "none".to_owned(),
        };
        vec![
            ("server", last.server.clone()),
            ("requests", format!("{requests}, {bytes} bytes came")),
            (
                "hits",
                format!("{in_memory} pieces in memory, {on_disk} on disk"),
            ),
            ("error", failure),
        ]
    }
}
