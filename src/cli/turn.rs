//! Locks between daemons that begin and end at the same time.

use std::fs::{File, TryLockError};
use std::thread;
use std::time::Duration;

/// How often a lock is tried for, and the pause between: together longer than a process of ours has it.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until no other process of ours has the file locked, and locks it until it is closed. What another program has locked for longer
/// is not waited for; where there are no locks, nothing is.
pub(super) fn lock_for_a_moment(file: &File) {
    for _ in 0..TRIES {
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return;
        }
        thread::sleep(PAUSE);
    }
}
