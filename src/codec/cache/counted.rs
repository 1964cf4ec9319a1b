//! Memory that counts for the cache, and buffers of such memory.

use std::mem::replace;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::PooledBuf;

/// Memory that counts in one of the counts of a [`Cache`](super::Cache) until this is dropped.
///
/// Dropping it takes no lock: replies of a mount hold such memory for longer than the cache lives.
pub(in crate::codec) struct Counted {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Counted {
    /// So many bytes, which count in `all`.
    pub(super) fn new(all: &Arc<AtomicU64>, bytes: u64) -> Self {
        let all = Arc::clone(all);
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all, bytes }
    }

    /// Bytes that count.
    pub(in crate::codec) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many bytes in place of those before.
    pub(in crate::codec) fn count(&mut self, bytes: u64) {
        let before = replace(&mut self.bytes, bytes);
        // Added first: what counts is never less than what is held.
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_sub(before, Ordering::Relaxed);
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
    pub(super) counted: Counted,
}

impl CountedBuf {
    /// `len` bytes of any value, for which room was made.
    pub(super) fn new(len: usize, counted: Counted) -> Self {
        Self {
            bytes: PooledBuf::of(len),
            counted,
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
