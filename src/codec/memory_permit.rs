//! The memory of a running decoder, or of what is made from decoded bytes.

use std::mem::take;
use std::sync::Arc;

use super::cache::{Cache, For};
use super::scheduler::RunSlot;
use crate::error::Result;

/// Memory that its holder may use until this is dropped: granted by the scheduler, which makes decoders wait for it, and
/// counted in the [`Cache`], which makes room for it.
///
/// A thread must give it back before it waits for another decoder, because that one may be waiting for this memory.
pub struct MemoryPermit {
    cache: Arc<Cache>,
    /// Bytes granted by the scheduler.
    granted: u64,
    /// Bytes counted in the cache.
    counted: u64,
}

impl MemoryPermit {
    /// No memory yet.
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        Self {
            cache: Arc::clone(cache),
            granted: 0,
            counted: 0,
        }
    }

    /// `bytes` that only count in the cache: they were granted otherwise, or are too few to wait for.
    pub(super) fn counted(cache: &Arc<Cache>, bytes: u64, whose: For) -> Self {
        cache.count(bytes, whose);
        let mut permit = Self::new(cache);
        permit.counted = bytes;
        permit
    }

    /// Waits until a decoder that needs `need` bytes in all may run; `None` if there is not that much memory now.
    ///
    /// # Errors
    /// As of [`Scheduler::enter`](super::scheduler::Scheduler::enter).
    pub(super) fn proceed(
        &mut self,
        need: u64,
        urgent: bool,
        whose: For,
    ) -> Result<Option<RunSlot<'_>>> {
        let scheduler = self.cache.scheduler();
        let slot = scheduler.proceed(&mut self.granted, urgent, need)?;
        if slot.is_some() && need > self.counted {
            self.cache.uncount(take(&mut self.counted));
            self.cache.count(need, whose);
            self.counted = need;
        }
        Ok(slot)
    }

    /// Gives back all, then waits until `need` bytes are granted.
    ///
    /// # Errors
    /// As of [`Scheduler::enter`](super::scheduler::Scheduler::enter).
    pub(super) fn wait_for(&mut self, need: u64, urgent: bool) -> Result<()> {
        self.give_back();
        self.granted = self.cache.scheduler().wait_for(urgent, need)?;
        Ok(())
    }

    /// Counts nothing in the cache any more, because the cache is going to count the parked decoder itself.
    pub(super) fn uncount(&mut self) {
        self.cache.uncount(take(&mut self.counted));
    }

    /// Gives back all.
    pub(super) fn give_back(&mut self) {
        self.uncount();
        self.cache.scheduler().give_back(take(&mut self.granted));
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.give_back();
    }
}
