//! A progress bar on standard error, on a terminal only.

use std::io::Write;
use std::time::{Duration, Instant};

use super::on_terminal;

/// Nothing is shown of what takes less.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the bar moves.
const STEP: Duration = Duration::from_millis(200);

/// How far a long piece of work has come.
pub(super) struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    shown: Option<Instant>,
    next: Instant,
    active: bool,
}

impl Progress {
    /// Work on `total` bytes, or files; nothing is shown of it unless `shown`.
    pub(super) fn new(what: &'static str, total: u64, shown: bool) -> Self {
        let now = Instant::now();
        let next = now.checked_add(PATIENCE).unwrap_or(now);
        Self {
            what,
            total,
            done: 0,
            shown: None,
            next,
            active: shown && on_terminal(),
        }
    }

    /// So many more are done.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        let now = Instant::now();
        if !self.active || now < self.next {
            return;
        }
        self.next = now.checked_add(STEP).unwrap_or(now);
        self.shown = Some(now);
        let percent = self
            .done
            .saturating_mul(100)
            .checked_div(self.total)
            .unwrap_or(100)
            .min(100);
        // a terminal that is gone needs no bar
        let _ = write!(std::io::stderr().lock(), "\r{} {percent:3} %", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
