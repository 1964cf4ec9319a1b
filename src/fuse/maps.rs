//! Has the kernel hand over what programs have changed in maps of a file.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fuser::Notifier;
use log::debug;

use super::invalidate::number;
use crate::collection::Inode;
use crate::vfs::locked;

/// How long a request waits until few enough others wait for maps.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the kernel, for requests that need all that maps of a file have changed.
///
/// The kernel sends a write for each page, and answers when all have been served. A request that waits for that occupies a thread of fuser;
/// so fewer requests than there are threads wait at a time, and one thread is left that serves the writes.
pub(super) struct Maps {
    notifier: Notifier,
    turns: Turns,
}

impl Maps {
    /// `threads`: how many serve requests, at least two.
    pub(super) fn new(notifier: Notifier, threads: usize) -> Self {
        Self {
            notifier,
            turns: Turns::new(threads.saturating_sub(1), PATIENCE),
        }
    }

    /// Returns when the kernel has handed over what maps of a file have changed: it does that when it forgets the pages. `false` if too many
    /// other requests wait for maps.
    pub(super) fn hand_over(&self, file: Inode) -> bool {
        self.turns.run(|| {
            if let Err(error) = self.notifier.inval_inode(number(file), 0, 0) {
                debug!("what maps of {file:?} have changed: {error}");
            }
        })
    }
}

/// Lets so many threads at a time do something.
struct Turns {
    most: usize,
    patience: Duration,
    taken: Mutex<usize>,
    /// Signalled when a turn has ended.
    ended: Condvar,
}

impl Turns {
    fn new(most: usize, patience: Duration) -> Self {
        Self {
            most,
            patience,
            taken: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// Runs `work` when there is a turn for it; whether there was one before patience was over.
    fn run(&self, work: impl FnOnce()) -> bool {
        let is_full = |taken: &mut usize| *taken >= self.most;
        let waited = self
            .ended
            .wait_timeout_while(locked(&self.taken), self.patience, is_full);
        let (mut taken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return false;
        }
        *taken = taken.saturating_add(1);
        drop(taken);
        work();
        let mut taken = locked(&self.taken);
        *taken = taken.saturating_sub(1);
        drop(taken);
        self.ended.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_threads_have_a_turn_and_the_others_wait() {
        let turns = Turns::new(2, Duration::ZERO);
        let mut third = None;
        let done = turns.run(|| {
            assert!(turns.run(|| third = Some(turns.run(|| {}))));
        });
        assert!(done);
        assert_eq!(third, Some(false));
        assert!(turns.run(|| {}));
        let patient = Turns::new(1, Duration::from_hours(1));
        std::thread::scope(|scope| {
            let waits = patient.run(|| drop(scope.spawn(|| patient.run(|| {}))));
            assert!(waits && patient.run(|| {}));
        });
        assert_eq!(*locked(&patient.taken), 0);
    }
}
