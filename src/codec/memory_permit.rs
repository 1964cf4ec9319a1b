//! Memory under the budget of the cache: a permit to use it, and buffers that have one.

use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::{Cache, For};
use super::scheduler::{RunSlot, Scheduler};
use crate::error::Result;
use crate::source::PooledBuf;

/// Memory that its holder may use until this is dropped: granted by the scheduler, which makes decoders wait for it, and
/// counted in the [`Cache`], which makes room for it.
///
/// A thread must give it back before it waits for another decoder, because that one may be waiting for this memory.
pub struct MemoryPermit {
    scheduler: Arc<Scheduler>,
    /// Bytes granted by the scheduler.
    granted: u64,
    /// Bytes counted in the cache.
    counted: u64,
}

impl MemoryPermit {
    /// No memory yet.
    pub(super) fn new(scheduler: &Arc<Scheduler>) -> Self {
        Self {
            scheduler: Arc::clone(scheduler),
            granted: 0,
            counted: 0,
        }
    }

    /// Waits until a decoder that needs `need` bytes in all may run; `None` if there is not that much memory now.
    ///
    /// # Errors
    /// As of [`Scheduler::proceed`].
    pub(super) fn proceed<'a>(
        &mut self,
        cache: &'a Cache,
        need: u64,
        urgent: bool,
        whose: For,
    ) -> Result<Option<RunSlot<'a>>> {
        let slot = cache.scheduler().proceed(&mut self.granted, urgent, need)?;
        if slot.is_some() && need > self.counted {
            cache.count(self, need, whose);
        }
        Ok(slot)
    }

    /// Gives back all, then waits until `need` bytes are granted.
    ///
    /// # Errors
    /// As of [`Scheduler::proceed`].
    pub(super) fn wait_for(&mut self, need: u64) -> Result<()> {
        self.give_back();
        self.granted = self.scheduler.wait_for(need)?;
        Ok(())
    }

    /// Bytes counted.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Counts so many bytes in place of those before. The cache has made room for them.
    pub(super) fn count(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.counted, bytes);
        let used = &self.scheduler.used;
        used.fetch_add(bytes, Ordering::Relaxed);
        used.fetch_sub(before, Ordering::Relaxed);
    }

    /// Gives back what was granted, and leaves a permit for what is counted.
    pub(super) fn at_rest(&mut self) -> Self {
        self.scheduler.give_back(take(&mut self.granted));
        Self {
            scheduler: Arc::clone(&self.scheduler),
            granted: 0,
            counted: take(&mut self.counted),
        }
    }

    /// Gives back all.
    pub(super) fn give_back(&mut self) {
        self.count(0);
        self.scheduler.give_back(take(&mut self.granted));
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.give_back();
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
