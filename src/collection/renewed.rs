//! What servers say, asked for again after some time.

use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::vfs::locked;

/// So long a failure counts at least.
const FAILED: Duration = Duration::from_secs(10);

/// The longest that an answer counts: longer than any mount.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// What a server said, which is asked for again when it is old. One thread asks; the others get the last value meanwhile, so that a
/// server that does not answer keeps only that thread waiting.
#[derive(Debug)]
pub(super) struct Renewed<T> {
    /// A server is asked after so long at the earliest,
    ttl: Duration,
    /// and after so many times the time that the answer took.
    pause: u32,
    /// Whether the server has said a value; else the value is what is told without an answer.
    is_said: fn(&T) -> bool,
    /// Held for moments.
    state: Mutex<RenewedState<T>>,
    /// Held by the thread that asks. It takes `state` meanwhile, and what asking takes.
    asking: Mutex<()>,
}

#[derive(Debug)]
struct RenewedState<T> {
    last: Option<T>,
    /// Until when that is as good as new.
    until: Option<Instant>,
    /// When the last answer was asked for, or when it was forgotten: what was asked for before that is older than what is known.
    since: Option<Instant>,
}

impl<T: Clone> Renewed<T> {
    /// A value that is not known. An answer counts for `ttl`, or for `pause` times the time that it took if that is longer; a failure, of
    /// which `is_said` is false, no longer than [`FAILED`] instead of `ttl`.
    pub(super) fn new(ttl: Duration, pause: u32, is_said: fn(&T) -> bool) -> Self {
        let state = RenewedState {
            last: None,
            until: None,
            since: None,
        };
        Self {
            ttl,
            pause,
            is_said,
            state: Mutex::new(state),
            asking: Mutex::default(),
        }
    }

    /// The value. If it is old, `ask` gives a new one; it gets the last one. If there is no last one, other threads wait for this answer.
    pub(super) fn get(&self, ask: impl FnOnce(Option<T>) -> T) -> T {
        let state = locked(&self.state);
        if let Some(fresh) = state.fresh() {
            return fresh;
        }
        let last = state.last.clone();
        drop(state);
        let _asking = match (self.asking.try_lock(), last) {
            (Ok(asking), _) => asking,
            (Err(TryLockError::Poisoned(poisoned)), _) => poisoned.into_inner(),
            (Err(TryLockError::WouldBlock), Some(last)) => return last,
            (Err(TryLockError::WouldBlock), None) => locked(&self.asking),
        };
        // another thread may have asked while this one waited
        let state = locked(&self.state);
        if let Some(fresh) = state.fresh() {
            return fresh;
        }
        let last = state.last.clone();
        drop(state);
        let begun = Instant::now();
        let value = ask(last);
        self.learn(begun, value.clone());
        // another thread may have learnt a newer one
        locked(&self.state).fresh().unwrap_or(value)
    }

    /// The last value, however old it is.
    pub(super) fn last(&self) -> Option<T> {
        locked(&self.state).last.clone()
    }

    /// The value, if it is not old.
    #[cfg(feature = "remote")]
    pub(super) fn fresh(&self) -> Option<T> {
        locked(&self.state).fresh()
    }

    /// Takes the answer that a server has just given, and that was asked for at `begun`, unless a newer one is known, or the value was
    /// forgotten since.
    pub(super) fn learn(&self, begun: Instant, value: T) {
        let least = if (self.is_said)(&value) {
            self.ttl
        } else {
            self.ttl.min(FAILED)
        };
        let pause = begun.elapsed().saturating_mul(self.pause).max(least);
        let mut state = locked(&self.state);
        if state.since.is_some_and(|since| begun < since) {
            return;
        }
        state.last = Some(value);
        state.until = Instant::now().checked_add(pause.min(LONGEST));
        state.since = Some(begun);
    }

    /// Forgets the value, which is known to be wrong: the next thread asks, and others wait for it.
    #[cfg(any(test, feature = "remote"))]
    pub(super) fn forget(&self) {
        let mut state = locked(&self.state);
        state.last = None;
        state.until = None;
        state.since = Some(Instant::now());
    }

    /// Until when the value is as good as new.
    #[cfg(all(test, feature = "remote"))]
    pub(super) fn until(&self) -> Option<Instant> {
        locked(&self.state).until
    }

    /// Has the next thread ask.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        locked(&self.state).until = None;
    }
}

impl<T: Clone> RenewedState<T> {
    /// The value, if it is not old.
    fn fresh(&self) -> Option<T> {
        let until = self.until?;
        self.last.clone().filter(|_| Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    const TTL: Duration = Duration::from_secs(10);

    /// A number that a server has said, unless it is negative.
    fn number(ttl: Duration) -> Renewed<i32> {
        Renewed::new(ttl, 2, |number| *number >= 0)
    }

    #[test]
    fn an_answer_counts_for_its_time_and_a_failure_for_no_longer_than_usual() {
        let day = Duration::from_hours(24);
        let left = |value: &Renewed<i32>| {
            let until = locked(&value.state).until.unwrap();
            until.duration_since(Instant::now())
        };
        for (ttl, of_answer, of_failure) in [
            (day, TTL..=day, TTL),
            (Duration::ZERO, Duration::ZERO..=TTL, TTL),
        ] {
            let value = number(ttl);
            value.get(|_| 1);
            assert!(of_answer.contains(&left(&value)), "{ttl:?}");
            value.forget();
            value.get(|_| -1);
            assert!(left(&value) <= of_failure, "{ttl:?}");
        }
        let never = number(Duration::MAX);
        never.get(|_| 1);
        assert_eq!(never.get(|_| 2), 1);
    }

    /// A server that does not answer kept every thread that wanted to know of a file.
    #[test]
    fn while_one_thread_asks_the_others_have_the_last_value() {
        let value = number(TTL);
        assert_eq!(value.get(|_| 1), 1);
        assert_eq!(value.get(|_| 2), 1, "as good as new");
        value.expire();
        let (release, released) = mpsc::channel::<()>();
        let (ask, asked) = mpsc::channel();
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                value.get(move |last| {
                    ask.send(last).unwrap();
                    released.recv().unwrap();
                    3
                })
            });
            assert_eq!(asked.recv().unwrap(), Some(1));
            assert_eq!(value.get(|_| 4), 1);
            release.send(()).unwrap();
            assert_eq!(asking.join().unwrap(), 3);
        });
        assert_eq!(value.get(|_| 5), 3);
    }

    #[test]
    fn what_was_forgotten_meanwhile_is_asked_for_again() {
        let value = number(TTL);
        value.learn(Instant::now(), 1);
        value.expire();
        let asked = value.get(|_| {
            value.forget();
            2
        });
        assert_eq!((asked, value.get(|_| 3)), (2, 3));
        value.forget();
        assert_eq!(value.get(|last| last.map_or(4, |_| 0)), 4);
    }

    /// What one thread had found in a file was replaced by what another one had been told before that.
    #[test]
    fn an_older_answer_that_comes_later_is_not_taken() {
        let value = number(TTL);
        let known = value.get(|_| {
            value.learn(Instant::now(), 2);
            1
        });
        assert_eq!((known, value.get(|_| 3)), (2, 2));
        value.forget();
        let late = Instant::now();
        value.learn(Instant::now(), 5);
        value.learn(late, 4);
        assert_eq!(value.get(|_| 6), 5);
    }
}
