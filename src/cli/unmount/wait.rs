//! Waiting for the end of a process, up to a limit; the user is told what is waited for.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cli::complain;

/// How long nothing is said.
const SILENT: Duration = Duration::from_secs(2);

/// The time that there is to wait in.
pub(in crate::cli) struct Wait {
    begun: Instant,
    limit: Duration,
    /// Whether it has been said what is waited for.
    told: bool,
}

impl Wait {
    /// Time that runs from now on.
    pub(in crate::cli) fn new(limit: Duration) -> Self {
        Self {
            begun: Instant::now(),
            limit,
            told: false,
        }
    }

    /// Waits for the end of a process, given by its handle; whether it ended in time. What is waited for is said once.
    pub(in crate::cli) fn for_end(
        &mut self,
        process: &OwnedFd,
        what: impl FnOnce() -> String,
    ) -> bool {
        if !self.told && self.limit > SILENT {
            if self.ends_within(SILENT, process) {
                return true;
            }
            self.told = true;
            complain(&what());
        }
        self.ends_within(self.limit, process)
    }

    /// Whether the process ends before `limit` is over, which runs from the beginning of all waiting.
    fn ends_within(&self, limit: Duration, process: &OwnedFd) -> bool {
        loop {
            let left = limit.saturating_sub(self.begun.elapsed());
            // more seconds than the kernel can count are no limit
            let left = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(process, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Err(Errno::INTR) => {}
                ended => return ended.is_ok_and(|ended| ended > 0),
            }
        }
    }
}
