//! The memory that strided arrays share: bands of gathered rows, in a part of the cache's budget.
//!
//! Knows arrays by number and bands by where they start; knows nothing of views.
//!
//! # Levels
//! The bytes of an array may be gathered from another array, or decoded from one. Each level of such arrays has buffers of its own,
//! so that a thread which holds room for a band never waits for room in the same buffers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use lru::LruCache;

use super::tile::Grain;
use crate::codec::{Cache, CountedBuf};
use crate::error::lock;
use crate::source::PooledBuf;

/// Most bytes of bands. Longer bands make a sequential read faster, but hardly beyond this.
const MOST: usize = 32 << 20;

/// Most bands that are kept, whatever their size: the entry of each takes memory that the budget does not count.
const MAX_BANDS: usize = 64;

/// The memory that strided arrays share.
pub struct Buffers {
    /// The cache in whose budget the bands count.
    cache: Arc<Cache>,
    /// Most bytes of bands.
    pub(super) budget: usize,
    pub(super) grain: Grain,
    bands: Mutex<Bands>,
    /// Notified when a band is dropped or its room given back.
    freed: Condvar,
    /// How many arrays have a number.
    arrays: AtomicU64,
    /// Whether decoders read the arrays.
    pub(super) feed_decoders: bool,
    /// The level beneath, once it is asked for.
    beneath: OnceLock<Arc<Self>>,
    /// The level beneath decoders, once it is asked for.
    beneath_decoders: OnceLock<Arc<Self>>,
}

struct Bands {
    /// Gathered bands, by the number of the array and the band's offset in it.
    kept: LruCache<(u64, u64), Arc<CountedBuf>>,
    /// Bytes of the bands in `kept` and of the bands that are being gathered.
    held: usize,
    /// How often all bands were forgotten.
    forgotten: u64,
}

/// Room for a band that is being gathered; given back unless the band is kept.
pub(super) struct Room<'a> {
    buffers: &'a Buffers,
    /// None once the band is kept.
    bytes: Option<CountedBuf>,
    len: usize,
    /// How often all bands were forgotten before it was made: what is gathered in it may be old after that.
    forgotten: u64,
}

impl Buffers {
    /// Buffers that keep bands in up to half the budget of the cache.
    #[must_use]
    pub fn new(cache: &Arc<Cache>) -> Arc<Self> {
        let half = usize::try_from(cache.budget() / 2).unwrap_or(MOST);
        Self::with_grain(cache, half.min(MOST), Grain::DEFAULT)
    }

    /// Buffers that keep at most `budget` bytes of bands, and cut arrays by these numbers.
    pub(super) fn with_grain(cache: &Arc<Cache>, budget: usize, grain: Grain) -> Arc<Self> {
        Self::level(cache, budget, grain, false)
    }

    /// Empty buffers for one level; `feed_decoders` if decoders read its arrays.
    fn level(cache: &Arc<Cache>, budget: usize, grain: Grain, feed_decoders: bool) -> Arc<Self> {
        Arc::new(Self {
            cache: Arc::clone(cache),
            budget,
            grain,
            bands: Mutex::new(Bands {
                kept: LruCache::unbounded(),
                held: 0,
                forgotten: 0,
            }),
            freed: Condvar::new(),
            arrays: AtomicU64::new(0),
            feed_decoders,
            beneath: OnceLock::new(),
            beneath_decoders: OnceLock::new(),
        })
    }

    /// Buffers for the next level down: the arrays from which arrays of this level are gathered. They have half the budget.
    pub(super) fn beneath(&self) -> Arc<Self> {
        // halved at each level, so a chain of levels takes less than twice the budget of the first
        let half = || Self::level(&self.cache, self.budget / 2, self.grain, self.feed_decoders);
        Arc::clone(self.beneath.get_or_init(half))
    }

    /// Buffers for arrays that decoders read, with a quarter of the budget. Returns these buffers if decoders
    /// already read their arrays.
    ///
    /// A thread that decodes waits for room in them. So a thread that holds room in them must not wait for a decode: arrays that are
    /// gathered from decoded bytes use other buffers.
    pub(super) fn beneath_decoders(self: &Arc<Self>) -> Arc<Self> {
        if self.feed_decoders {
            return Arc::clone(self);
        }
        let quarter = || Self::level(&self.cache, self.budget / 4, self.grain, true);
        Arc::clone(self.beneath_decoders.get_or_init(quarter))
    }

    /// The cache in whose budget the bands count.
    pub(super) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Buffers with a cache of their own.
    #[cfg(test)]
    pub(super) fn alone(budget: usize, grain: Grain) -> Arc<Self> {
        Self::with_grain(&Cache::new(u64::MAX), budget, grain)
    }

    /// A number for an array, which no other array of these buffers has.
    pub(super) fn number(&self) -> u64 {
        self.arrays.fetch_add(1, Ordering::Relaxed)
    }

    /// The band of that array that begins at `start`, if it is still kept.
    pub(super) fn find(&self, array: u64, start: u64) -> Option<Arc<CountedBuf>> {
        lock(&self.bands).kept.get(&(array, start)).map(Arc::clone)
    }

    /// Room for a band of `len` bytes, which must not be more than the budget. Drops the bands used longest ago, and waits while all
    /// of the budget belongs to bands that are being gathered.
    ///
    /// A thread that holds room must give it back or keep the band before it asks these buffers for more: other threads wait for
    /// it. It may ask those [beneath](Buffers::beneath).
    pub(super) fn room(&self, len: usize) -> Room<'_> {
        let mut bands = lock(&self.bands);
        while bands.held.saturating_add(len) > self.budget || bands.kept.len() >= MAX_BANDS {
            if let Some((_, band)) = bands.kept.pop_lru() {
                bands.held = bands.held.saturating_sub(band.len());
            } else {
                // Nothing is left to drop: all of `held` is room of other threads. Each gives
                // its room back without asking these buffers for more, so this wait ends.
                bands = self
                    .freed
                    .wait(bands)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        bands.held = bands.held.saturating_add(len);
        let forgotten = bands.forgotten;
        drop(bands);
        Room {
            buffers: self,
            bytes: Some(self.cache.buffer(len)),
            len,
            forgotten,
        }
    }

    /// Drops all bands of an array.
    pub(super) fn forget(&self, array: u64) {
        let mut bands = lock(&self.bands);
        let places = bands.kept.iter().map(|(place, _)| *place);
        let gone: Vec<_> = places.filter(|(owner, _)| *owner == array).collect();
        for place in gone {
            let band = bands.kept.pop(&place);
            bands.held = bands.held.saturating_sub(band.map_or(0, |band| band.len()));
        }
        self.freed.notify_all();
    }

    /// Drops all bands, also of the levels beneath, and keeps none that is being gathered: bytes that they were gathered from have changed.
    pub(super) fn forget_all(&self) {
        let mut bands = lock(&self.bands);
        bands.forgotten = bands.forgotten.wrapping_add(1);
        while let Some((_, band)) = bands.kept.pop_lru() {
            bands.held = bands.held.saturating_sub(band.len());
        }
        drop(bands);
        self.freed.notify_all();
        let levels = [self.beneath.get(), self.beneath_decoders.get()];
        levels
            .into_iter()
            .flatten()
            .for_each(|level| level.forget_all());
    }

    /// Bytes of all bands.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        lock(&self.bands).held
    }

    /// Calls `work` with a scratch buffer.
    pub(super) fn with_scratch<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        work(&mut PooledBuf::of(
            usize::try_from(self.grain.scratch).unwrap_or(0),
        ))
    }
}

impl Room<'_> {
    /// The bytes of the band, to be filled.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().unwrap_or_default()
    }

    /// Keeps the band for other readers.
    pub(super) fn keep(mut self, array: u64, start: u64) -> Option<Arc<CountedBuf>> {
        let bytes = Arc::new(self.bytes.take()?);
        let mut bands = lock(&self.buffers.bands);
        if bands.forgotten == self.forgotten {
            // the band stays counted in `held`, so dropping this room gives nothing back
            self.len = 0;
            bands.kept.put((array, start), Arc::clone(&bytes));
        }
        drop(bands);
        Some(bytes)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut bands = lock(&self.buffers.bands);
        bands.held = bands.held.saturating_sub(self.len);
        // also when the band is kept: a thread that waits may now drop it
        self.buffers.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A band was read back after its array had been written to.
    #[test]
    fn no_band_from_before_a_change_is_kept() {
        let buffers = Buffers::alone(100, Grain::DEFAULT);
        buffers.room(10).keep(0, 0);
        let gathering = buffers.room(20);
        buffers.forget_all();
        assert!(buffers.find(0, 0).is_none());
        // its own reader may have begun before the change
        assert!(gathering.keep(0, 10).is_some());
        assert!(buffers.find(0, 10).is_none());
        assert_eq!(buffers.held(), 0);
        buffers.room(100).keep(0, 0);
        assert!(buffers.find(0, 0).is_some());
    }
}
