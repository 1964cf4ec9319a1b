//! What stays of objects that nobody has open: which state the server had last, and the keys of their pieces in the cache.
//!
//! So an object that is opened again, and has not changed, has all its pieces that the cache had room for, and costs no request.

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use lru::LruCache;

use super::client::StoredObject;
use super::identity::Identity;
use super::location::Location;
use crate::codec::Cache;
use crate::error::lock;

/// The most objects that are known while nobody has them open.
const KNOWN: NonZero<usize> = NonZero::new(1 << 15).unwrap();

/// A state of an object, and where its pieces are in the cache. They go when nobody has it any more.
pub(super) struct KeptState {
    pub(super) identity: Arc<Identity>,
    /// The key of its pieces.
    pub(super) pieces: u64,
    /// The key of the small pieces with its headers.
    pub(super) headers: u64,
    cache: Arc<Cache>,
}

impl Drop for KeptState {
    fn drop(&mut self) {
        self.cache.forget(self.pieces);
        self.cache.forget(self.headers);
    }
}

/// The last state of each object that was opened, the least recently opened ones excepted.
pub(super) struct KeptStates {
    cache: Arc<Cache>,
    /// Held for moments.
    states: Mutex<LruCache<String, Arc<KeptState>>>,
}

impl KeptStates {
    pub(super) fn new(cache: &Arc<Cache>) -> Self {
        Self {
            cache: Arc::clone(cache),
            states: Mutex::new(LruCache::new(KNOWN)),
        }
    }

    /// The state of an object that was opened before, if it is this one. It may have been stored once more since, at another time.
    pub(super) fn find(
        &self,
        at: &Location,
        stored: &StoredObject,
        identity: &Identity,
    ) -> Option<Arc<KeptState>> {
        let mut states = lock(&self.states);
        let found = states.get(&key(at, stored))?;
        // without a strong tag a change may not show
        let is_it = identity.strong_etag().is_some() && found.identity.is_same(identity);
        is_it.then(|| Arc::clone(found))
    }

    /// The state of an object that a server has just told.
    pub(super) fn of(
        &self,
        at: &Location,
        stored: &StoredObject,
        identity: &Arc<Identity>,
    ) -> Arc<KeptState> {
        if let Some(found) = self.find(at, stored, identity) {
            return found;
        }
        let state = Arc::new(KeptState {
            identity: Arc::clone(identity),
            pieces: self.cache.new_key(),
            headers: self.cache.new_key(),
            cache: Arc::clone(&self.cache),
        });
        let mut states = lock(&self.states);
        // the earlier state, or the one that was opened longest ago
        let before = states.push(key(at, stored), Arc::clone(&state));
        // its pieces go with the lock released
        drop(states);
        drop(before);
        state
    }
}

fn key(at: &Location, stored: &StoredObject) -> String {
    format!("{} {}", at.key(), stored.origin)
}
