//! The memory that strided arrays share: bands of gathered rows, in a part of the cache's budget.
//!
//! Knows arrays by number and bands by where they start; knows nothing of views.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use lru::LruCache;

use super::tile::Grain;
use crate::codec::{Cache, CountedBuf};
use crate::error::lock;
use crate::source::PooledBuf;

/// The most that is kept in bands: a sequential read is the faster the longer they are, but hardly beyond.
const MOST: usize = 32 << 20;

/// Most bands kept, whatever their size: what each takes beside its bytes is not counted.
const MAX_BANDS: usize = 64;

/// The memory that strided arrays share.
pub struct Buffers {
    /// Where they count.
    cache: Arc<Cache>,
    pub(super) budget: usize,
    pub(super) grain: Grain,
    bands: Mutex<Bands>,
    /// Told when room was given back.
    freed: Condvar,
    /// How many arrays have got a number.
    arrays: AtomicU64,
    /// Those of the next level.
    beneath: OnceLock<Arc<Self>>,
    /// Those of arrays that decoders read.
    beneath_decoders: OnceLock<Arc<Self>>,
}

struct Bands {
    /// Gathered bands, by the number of the array and where they start in it.
    kept: LruCache<(u64, u64), Arc<CountedBuf>>,
    /// Bytes of those and of the ones being gathered.
    held: usize,
}

/// Room for a band that is being gathered; given back unless the band is kept.
pub(super) struct Room<'a> {
    buffers: &'a Buffers,
    /// None once the band is kept.
    bytes: Option<CountedBuf>,
    len: usize,
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
        Arc::new(Self {
            cache: Arc::clone(cache),
            budget,
            grain,
            bands: Mutex::new(Bands {
                kept: LruCache::unbounded(),
                held: 0,
            }),
            freed: Condvar::new(),
            arrays: AtomicU64::new(0),
            beneath: OnceLock::new(),
            beneath_decoders: OnceLock::new(),
        })
    }

    /// Buffers for the arrays that those of these buffers are gathered from, with half their budget: no thread waits here for
    /// room that it holds above.
    pub(super) fn beneath(&self) -> Arc<Self> {
        self.part(&self.beneath, 2)
    }

    /// Buffers for the arrays that decoders read, with a quarter of the budget. A thread that decodes waits here for room, so a
    /// thread that holds room here must not wait for a decode: arrays that are gathered from decoded bytes use other buffers.
    pub(super) fn beneath_decoders(&self) -> Arc<Self> {
        self.part(&self.beneath_decoders, 4)
    }

    fn part(&self, level: &OnceLock<Arc<Self>>, parts: usize) -> Arc<Self> {
        let budget = self.budget.checked_div(parts).unwrap_or(0);
        let part = || Self::with_grain(&self.cache, budget, self.grain);
        Arc::clone(level.get_or_init(part))
    }

    /// Buffers with a cache of their own.
    #[cfg(test)]
    pub(super) fn alone(budget: usize, grain: Grain) -> Arc<Self> {
        Self::with_grain(&Cache::new(u64::MAX), budget, grain)
    }

    /// A number for an array that the others don't have.
    pub(super) fn number(&self) -> u64 {
        self.arrays.fetch_add(1, Ordering::Relaxed)
    }

    /// The band of that array that begins at `start`, if it is still kept.
    pub(super) fn find(&self, array: u64, start: u64) -> Option<Arc<CountedBuf>> {
        lock(&self.bands).kept.get(&(array, start)).map(Arc::clone)
    }

    /// Room for a band of `len` bytes, at most the budget, for which the bands used longest ago make way.
    ///
    /// A thread that has room must give it back or keep the band without asking for more, but [beneath](Buffers::beneath): others
    /// wait for it.
    pub(super) fn room(&self, len: usize) -> Room<'_> {
        let mut bands = lock(&self.bands);
        while bands.held.saturating_add(len) > self.budget || bands.kept.len() >= MAX_BANDS {
            if let Some((_, band)) = bands.kept.pop_lru() {
                bands.held = bands.held.saturating_sub(band.len());
            } else {
                // All of it belongs to bands that are being gathered.
                bands = self
                    .freed
                    .wait(bands)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        bands.held = bands.held.saturating_add(len);
        drop(bands);
        Room {
            buffers: self,
            bytes: Some(self.cache.buffer(len)),
            len,
        }
    }

    /// Drops the bands of an array that is closed.
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
    /// Where the band goes.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().unwrap_or_default()
    }

    /// Keeps the band for other readers.
    pub(super) fn keep(mut self, array: u64, start: u64) -> Option<Arc<CountedBuf>> {
        let bytes = Arc::new(self.bytes.take()?);
        self.len = 0;
        let place = (array, start);
        let mut bands = lock(&self.buffers.bands);
        bands.kept.put(place, Arc::clone(&bytes));
        drop(bands);
        Some(bytes)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut bands = lock(&self.buffers.bands);
        bands.held = bands.held.saturating_sub(self.len);
        self.buffers.freed.notify_all();
    }
}
