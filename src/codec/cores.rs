//! Work on all cores at once, and codecs that panic.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::error::{Result, corrupt};

/// Threads that can run at the same moment; one, if the system does not say.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The results of `work` for each item, in order. The calling thread works on the first item, and a new thread on each other one; if no
/// thread can be started, the calling thread does it. If the work on an item panics, `panicked` gives its result.
pub(super) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    panicked: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let Some((first, others)) = items.split_first() else {
        return Vec::new();
    };
    let work =
        |item: &T| catch_unwind(AssertUnwindSafe(|| work(item))).unwrap_or_else(|_| panicked(item));
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|item| {
                let thread = thread::Builder::new().spawn_scoped(scope, move || work(item));
                (item, thread)
            })
            .collect();
        // Behind the others, which run meanwhile; one item alone costs no thread.
        let mut results = vec![work(first)];
        results.extend(others.into_iter().map(|(item, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| panicked(item)),
            Err(_) => work(item),
        }));
        results
    })
}

/// What `decode` gives, or an error if the codec panics. What it has left behind must not be used again.
pub(super) fn caught<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|cause| codec_panicked(&cause))
}

/// The result of an item whose thread has panicked, for work that ends in this library's errors.
pub(super) fn codec_panicked<T, R>(_: &T) -> Result<R> {
    Err(corrupt("a codec panicked"))
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
