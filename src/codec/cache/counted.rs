//! Memory that counts under the budget of the cache, and buffers of such memory.

use std::mem::replace;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::PooledBuf;

/// Memory that counts in a [`Cache`](super::Cache) until this is dropped.
///
/// Dropping it takes no lock: replies of a mount hold such memory for longer than the cache lives.
pub(in crate::codec) struct Counted {
    /// Bytes that count in the cache.
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Counted {
    /// No memory yet, of a cache in which `used` bytes count.
    pub(super) fn new(used: &Arc<AtomicU64>) -> Self {
        Self {
            used: Arc::clone(used),
            bytes: 0,
        }
    }

    /// Bytes that count.
    pub(in crate::codec) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many bytes in place of those before.
    pub(in crate::codec) fn count(&mut self, bytes: u64) {
        let before = replace(&mut self.bytes, bytes);
        // Added first: what counts is never less than what is held.
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// A buffer that counts in the cache. Its memory goes back to the pool of buffers when it is dropped.
pub struct CountedBuf {
    bytes: PooledBuf<u8>,
    counted: Counted,
}

impl CountedBuf {
    /// `len` bytes of any value, for which room was made.
    pub(super) fn new(len: usize, counted: Counted) -> Self {
        Self {
            bytes: PooledBuf::of(len),
            counted,
        }
    }

    /// Bytes that count.
    pub(super) fn cost(&self) -> u64 {
        self.counted.bytes()
    }
}

impl Deref for CountedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for CountedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for CountedBuf {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
