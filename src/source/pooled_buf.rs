//! A process-wide pool of large temporary buffers, so that each read does not pay for fresh pages.
//!
//! New memory costs a page fault for every 4 KiB, which takes as long as a fast codec does. An allocator that keeps freed
//! buffers of many sizes soon holds twice as much as is in use. So large temporary buffers come from this pool, and the
//! allocator returns all others to the system at once.

use crate::error::lock;
use std::any::Any;
use std::collections::VecDeque;
use std::mem::size_of;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Bytes of idle buffers that the pool keeps.
const KEPT: usize = 32 << 20;

/// Smaller buffers are left to the allocator.
const LEAST: usize = 64 << 10;

/// Lengths of buffers between two powers of two.
const STEPS: usize = 16;

/// The idle buffers of the process.
static POOL: Pool = Pool(Mutex::new(VecDeque::new()));

/// A vector whose memory goes back to the pool when it is dropped.
#[derive(Debug, Default)]
pub struct PooledBuf<T: Send + 'static>(Vec<T>);

/// Idle vectors of any type of elements, each with the bytes of memory that it takes; the one that was given back longest ago comes
/// first. Its lock is taken last of all.
struct Pool(Mutex<VecDeque<(usize, Box<dyn Any + Send>)>>);

impl Pool {
    /// A buffer with room for `len` elements, but not for a quarter more: a larger one is left for a larger read.
    fn take<T: 'static>(&self, len: usize) -> Option<Vec<T>> {
        let fits = len..=len.saturating_add(len / 4);
        let mut idle = lock(&self.0);
        // from the end: the buffer that came back last is most likely still in the cache
        let found = idle.iter().rposition(|(_, buffer)| {
            let buffer = buffer.downcast_ref::<Vec<T>>();
            buffer.is_some_and(|buffer| fits.contains(&buffer.capacity()))
        })?;
        let (_, buffer) = idle.remove(found)?;
        buffer.downcast().ok().map(|buffer| *buffer)
    }

    /// Keeps a buffer, and drops those given back longest ago if there are too many.
    fn give<T: Send + 'static>(&self, buffer: Vec<T>) {
        let size = buffer.capacity().saturating_mul(size_of::<T>());
        // a buffer larger than the whole pool would only push out all others
        if !(LEAST..=KEPT).contains(&size) {
            return;
        }
        let buffer = Box::new(buffer);
        let mut gone = Vec::new();
        let mut idle = lock(&self.0);
        idle.push_back((size, buffer));
        while idle.iter().map(|(size, _)| size).sum::<usize>() > KEPT {
            gone.extend(idle.pop_front());
        }
        drop(idle);
        // freed without the lock, because giving pages back takes long
        drop(gone);
    }

    fn free(&self) {
        let idle = std::mem::take(&mut *lock(&self.0));
        // without the lock, as in `give`
        drop(idle);
    }
}

/// Frees all idle buffers, when memory is short.
pub fn free_idle() {
    POOL.free();
}

/// The capacity to allocate for `len` elements: a little more, so that the buffer fits the next read of about that length.
fn rounded(len: usize) -> usize {
    let power = len.checked_next_power_of_two().unwrap_or(len);
    let step = power.checked_div(STEPS).unwrap_or(0).max(1);
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl<T: Clone + Default + Send> PooledBuf<T> {
    /// No elements, with room for `len`, a number that the caller has bounded.
    #[must_use]
    pub fn with_room(len: usize) -> Self {
        if len.saturating_mul(size_of::<T>()) < LEAST {
            return Self(Vec::with_capacity(len));
        }
        let mut buffer = POOL
            .take(len)
            .unwrap_or_else(|| Vec::with_capacity(rounded(len)));
        buffer.clear();
        Self(buffer)
    }

    /// `len` elements of any value, a number that the caller has bounded.
    #[must_use]
    pub fn of(len: usize) -> Self {
        if len.saturating_mul(size_of::<T>()) < LEAST {
            return Self(vec![T::default(); len]);
        }
        let mut buffer = POOL
            .take(len)
            .unwrap_or_else(|| vec![T::default(); rounded(len)]);
        // what is left in it from its last use stays, because callers overwrite it
        buffer.resize(len, T::default());
        Self(buffer)
    }

    /// Makes it `len` elements long, of any value: a number that the caller has bounded.
    pub fn reset(&mut self, len: usize) {
        if self.0.capacity() < len {
            *self = Self::of(len);
        }
        self.0.resize(len, T::default());
    }
}

impl<T: Send> Drop for PooledBuf<T> {
    fn drop(&mut self) {
        POOL.give(std::mem::take(&mut self.0));
    }
}

impl<T: Send> Deref for PooledBuf<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Send> DerefMut for PooledBuf<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_only_so_much_is_kept() {
        let pool = Pool(Mutex::new(VecDeque::new()));
        let sizes = || {
            lock(&pool.0)
                .iter()
                .map(|(size, _)| *size)
                .collect::<Vec<_>>()
        };
        let bytes = |len| vec![0_u8; len];
        let large = bytes(4 * LEAST);
        let address = large.as_ptr();
        pool.give(bytes(LEAST));
        pool.give(large);
        pool.give(vec![0_u32; LEAST]);
        pool.give(bytes(LEAST - 1));
        assert_eq!(sizes(), [LEAST, 4 * LEAST, 4 * LEAST]);

        assert_eq!(pool.take::<u8>(2 * LEAST), None, "none of about that size");
        let again = pool.take::<u8>(4 * LEAST - 9).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, 4 * LEAST));
        assert_eq!(pool.take::<u8>(3 * LEAST), None, "only words are left");
        assert_eq!(sizes(), [LEAST, 4 * LEAST]);

        pool.give(bytes(KEPT + 1));
        assert_eq!(sizes(), [LEAST, 4 * LEAST], "too large to be kept");
        pool.give(bytes(KEPT - 4 * LEAST));
        assert_eq!(sizes(), [4 * LEAST, KEPT - 4 * LEAST], "the oldest is gone");
        pool.free();
        assert!(sizes().is_empty());
    }

    #[test]
    fn a_buffer_fits_the_next_of_about_that_length() {
        for len in [0, 1, LEAST + 1, 2_900_123, KEPT - 1, usize::MAX] {
            let made = rounded(len);
            assert!(made >= len && made - len <= len / 8, "{made} for {len}");
        }
        assert_eq!(rounded(2_900_123), rounded(2_900_999));
        assert_eq!(rounded(1 << 22), 1 << 22);
    }

    #[test]
    fn a_buffer_has_as_many_elements_as_asked_for() {
        for len in [0, 5, LEAST, LEAST + 1, 3 * LEAST, LEAST] {
            assert_eq!(PooledBuf::<u8>::of(len).len(), len);
            let room = PooledBuf::<u32>::with_room(len);
            assert!(room.is_empty() && room.capacity() >= len);
        }
    }
}
