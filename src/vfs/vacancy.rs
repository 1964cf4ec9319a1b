//! A name that a process has taken away, of a file that is never gone: `tree.yaml`, or that of an array.
//!
//! The process wants to make it anew: `mv` and `tar` remove what they are going to make, editors rename it to a backup, and both demand that
//! there is none then (`O_EXCL`). So for a while that process alone finds the name free. Others, and later the process too, see what was there.

use std::time::{Duration, Instant};

/// How long the name is free. Between the two calls of a program lie microseconds.
const FREE_FOR: Duration = Duration::from_secs(2);

/// That a process has taken a name away.
#[derive(Debug)]
pub(super) struct Vacancy {
    process: u32,
    since: Instant,
}

impl Vacancy {
    /// From now on, to that process.
    pub(super) fn to(process: u32) -> Self {
        let since = Instant::now();
        Self { process, since }
    }

    /// Whether the name is still free.
    pub(super) fn lasts(&self) -> bool {
        self.since.elapsed() < FREE_FOR
    }

    /// Whether it is free to that process, which is asked for only if it is free at all.
    pub(super) fn is_to(&self, process: impl FnOnce() -> u32) -> bool {
        self.lasts() && self.process == process()
    }
}
