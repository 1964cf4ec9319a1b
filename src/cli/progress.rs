//! How far a long piece of work has come, as a bar on standard error if that is a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use super::on_terminal;

/// Work that takes less time than this shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the bar moves.
const STEP: Duration = Duration::from_millis(200);

/// How long work must have gone on before its end is estimated.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// Work that is estimated to take less time than this is not called long.
const WORTH_TELLING: Duration = Duration::from_mins(1);

/// How far a long piece of work has come.
pub(super) struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    begun: Instant,
    /// When the bar moves next.
    next: Instant,
    /// Whether a bar is wanted, and standard error is a terminal.
    active: bool,
    /// Whether the bar is on the terminal.
    shown: bool,
    /// Whether [`Progress::long_left`] has said how long the work takes.
    said: bool,
}

impl Progress {
    /// Work on `total` bytes, or files. The bar is shown only if `shown`.
    pub(super) fn new(what: &'static str, total: u64, shown: bool) -> Self {
        let begun = Instant::now();
        Self {
            what,
            total,
            done: 0,
            begun,
            next: begun.checked_add(PATIENCE).unwrap_or(begun),
            active: shown && on_terminal(),
            shown: false,
            said: false,
        }
    }

    /// Counts so many more bytes, or files, as done.
    pub(super) fn add(&mut self, more: u64) {
        self.done = self.done.saturating_add(more);
        let now = Instant::now();
        if !self.active || now < self.next {
            return;
        }
        self.next = now.checked_add(STEP).unwrap_or(now);
        self.shown = true;
        let percent = self
            .done
            .saturating_mul(100)
            .checked_div(self.total)
            .unwrap_or(100)
            .min(100);
        // a terminal that is gone needs no bar
        let _ = write!(std::io::stderr().lock(), "\r{} {percent:3} %", self.what);
    }

    /// How long the rest takes, once, if that is long: a short file can decode to terabytes.
    pub(super) fn long_left(&mut self) -> Option<Duration> {
        if self.said {
            return None;
        }
        let left = time_left(self.begun.elapsed(), self.done, self.total);
        self.said = left.is_some();
        left
    }
}

/// How long the rest of long work takes, if that can be estimated by now and is worth telling.
fn time_left(elapsed: Duration, done: u64, total: u64) -> Option<Duration> {
    let left = u128::from(total.saturating_sub(done));
    let millis = elapsed
        .as_millis()
        .saturating_mul(left)
        .checked_div(u128::from(done))?;
    let left = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    (elapsed >= FIRST_LOOK && left >= WORTH_TELLING).then_some(left)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_work_that_goes_on_for_long_is_told_of() {
        let seconds = Duration::from_secs;
        let tib = 1 << 40;
        assert_eq!(time_left(seconds(1), 1 << 30, tib), None, "not known yet");
        assert_eq!(time_left(seconds(10), 1 << 34, tib), Some(seconds(630)));
        assert_eq!(time_left(seconds(10), tib / 2, tib), None, "soon done");
        assert_eq!(time_left(seconds(10), 0, tib), None);
        assert!(time_left(seconds(10), 1, u64::MAX).is_some());
    }
}
