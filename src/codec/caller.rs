//! Who work is done for: what a program has asked for that is gone by now needs no bytes any more.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Whether the work of a thread is still wanted. It is asked often and must be quick.
pub type Wanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Steps from one check to the next: they take a moment, and a check less than a step or two.
const CHECK_EVERY: u32 = 1024;

thread_local! {
    /// Of the work that this thread does.
    static WANTED: RefCell<Option<Wanted>> = const { RefCell::new(None) };
}

/// Puts back what was there before, also after a panic.
struct Before(Option<Wanted>);

impl Drop for Before {
    fn drop(&mut self) {
        WANTED.set(self.0.take());
    }
}

/// Does `work` for somebody: what the thread decodes or sums up in it ends at its next step once `wanted` returns false, with an error.
pub fn while_wanted<T>(wanted: Option<Wanted>, work: impl FnOnce() -> T) -> T {
    let _before = Before(WANTED.replace(wanted));
    work()
}

/// Who this thread works for, to be handed on to threads that do a part of the work.
pub(crate) fn current() -> Option<Wanted> {
    WANTED.with_borrow(Clone::clone)
}

/// Whether the work of this thread is still wanted.
pub(super) fn is_wanted() -> bool {
    current().is_none_or(|wanted| wanted())
}

/// The error of work that is wanted no more.
pub(super) fn ended() -> Error {
    let ended = io::ErrorKind::Interrupted.into();
    Error::io("decoding after the mount has ended", ended)
}

/// Many short steps without a decode, such as along headers.
#[derive(Debug, Default)]
pub(super) struct Steps(u32);

impl Steps {
    /// Counts a step, and checks before the first and some of the others that the work of this thread is still wanted.
    ///
    /// # Errors
    /// [`Error::Io`] if not.
    pub(super) fn check(&mut self) -> Result<()> {
        let is_due = self.0.is_multiple_of(CHECK_EVERY);
        self.0 = self.0.wrapping_add(1);
        if is_due && !is_wanted() {
            return Err(ended());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_wanted_as_long_as_the_one_who_has_asked_for_it_says() {
        assert!(is_wanted());
        let seen = while_wanted(Some(Arc::new(|| false)), || {
            let inner = while_wanted(None, is_wanted);
            (
                inner,
                is_wanted(),
                std::thread::spawn(is_wanted).join().unwrap(),
            )
        });
        assert_eq!(seen, (true, false, true));
        assert!(is_wanted());
    }
}
