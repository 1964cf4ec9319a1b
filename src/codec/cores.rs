//! Work on all cores at once, and codecs that panic.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::caller::{self, while_wanted};
use crate::error::{Result, corrupt, unsupported};

/// Threads that can run at the same moment; one, if the system does not say.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The results of `work` for each item, in order. On each core a thread takes the next item until none is left, so that a large one keeps
/// no other core waiting; the calling thread is one of them. If the work on an item panics, `panicked` gives its result.
pub(crate) fn on_all_cores<T: Sync, R: Send + Sync>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    panicked: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results: Vec<_> = items.iter().map(|_| OnceLock::new()).collect();
    let (next, wanted) = (AtomicUsize::new(0), caller::current());
    let work = |item| catch_unwind(AssertUnwindSafe(|| work(item)));
    let take = || {
        while let n = next.fetch_add(1, Ordering::Relaxed)
            && let Some((result, item)) = results.get(n).zip(items.get(n))
        {
            result.get_or_init(|| work(item).unwrap_or_else(|_| panicked(item)));
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores().min(items.len()) {
            let take = || while_wanted(wanted.clone(), take);
            // without a thread, this one does its work
            let _ = thread::Builder::new().spawn_scoped(scope, take);
        }
        take();
    });
    results
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .collect()
}

/// What `decode` gives, or an error if the codec panics. What it has left behind must not be used again.
pub(super) fn caught<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|cause| codec_panicked(&cause))
}

/// The result of an item whose thread has panicked, for work that ends in this library's errors.
pub(super) fn codec_panicked<T, R>(_: &T) -> Result<R> {
    Err(corrupt("a codec panicked"))
}

/// The same, where what has panicked is no codec.
pub(crate) fn program_panicked<T, R>(_: &T) -> Result<R> {
    let why = "a panic of this program, which is no fault of the file";
    Err(unsupported(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only that of a new thread was caught.
    #[test]
    fn a_panic_costs_the_result_of_its_item_alone() {
        let work = |&item: &u8| {
            assert!(item % 2 == 1, "of a test");
            item
        };
        assert_eq!(on_all_cores(&[1, 2, 3], work, |_| 9), [1, 9, 3]);
        assert_eq!(on_all_cores(&[2, 3, 4], work, |_| 9), [9, 3, 9]);
    }
}
