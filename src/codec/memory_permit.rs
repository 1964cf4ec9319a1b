//! Memory that counts under the budget of the cache: a permit for it, and buffers that have one.

use std::mem::replace;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::PooledBuf;

/// Memory that counts in a [`Cache`](super::Cache) until this is dropped.
///
/// Dropping it takes no lock: replies of a mount hold permits for longer than the cache lives, and the cache itself drops some
/// while its ledger is locked.
pub(super) struct MemoryPermit {
    /// Bytes that count in the cache.
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl MemoryPermit {
    /// For no memory yet, of what counts as `used`.
    pub(super) fn new(used: &Arc<AtomicU64>) -> Self {
        Self {
            used: Arc::clone(used),
            bytes: 0,
        }
    }

    /// Bytes that count.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many bytes in place of those before. The cache has made room for them.
    pub(super) fn count(&mut self, bytes: u64) {
        let before = replace(&mut self.bytes, bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(before, Ordering::Relaxed);
    }

    /// The permit for what counts, and one for nothing in its place.
    pub(super) fn take(&mut self) -> Self {
        let none = Self::new(&self.used);
        replace(self, none)
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// A buffer that counts in the cache. Its memory goes back to the pool of buffers when it is dropped.
pub struct CountedBuf {
    bytes: PooledBuf<u8>,
    _counted: MemoryPermit,
}

impl CountedBuf {
    /// `len` bytes of any value, for which room was made.
    pub(super) fn new(len: usize, counted: MemoryPermit) -> Self {
        Self {
            bytes: PooledBuf::of(len),
            _counted: counted,
        }
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
