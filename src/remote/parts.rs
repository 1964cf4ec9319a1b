//! The pieces of an object that are here, under way and waited for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use super::client::StoredObject;
use super::disk::Shelf;
use super::error::RemoteError;
use super::flight::Flight;
use super::identity::Identity;
use super::kept::KeptState;
use super::location::Location;
use super::pieces::{Cut, HEADER_PIECE, PIECE, REQUEST, ahead_of, note_asked, runs};
use super::{Inner, LOOK_EVERY};
use crate::codec::{CountedBuf, Readers};
use crate::error::{Error, Place, lock};
use crate::source::{checked_end, len_u64};

/// The most requests that are under way for one object. One of them is kept for what a reader waits for, so that it need not wait
/// for the end of a long one that is ahead of another reader.
const AT_ONCE: usize = 4;

/// What is asked for at once for one read is at most this part of the budget.
const READ_SHARE: u64 = 4;

/// Headers are expected where the budget has so many bytes at least.
const EXPECTING: u64 = 16 << 20;

/// So much is read of a header at once, in bytes.
const HEADER: u64 = 4096;

/// What is fetched ahead with one request is at most this part of the budget.
const REQUEST_SHARE: u64 = 16;

/// An object that is read in pieces.
pub(super) struct PiecedObject {
    pub(super) inner: Arc<Inner>,
    pub(super) at: Location,
    pub(super) stored: StoredObject,
    pub(super) identity: Arc<Identity>,
    pub(super) cut: Cut,
    /// Why nothing of the object can be read any more.
    pub(super) changed: Arc<OnceLock<RemoteError>>,
    /// The pieces' key in the cache.
    pub(super) key: u64,
    /// Has the pieces stay in the cache.
    kept: Arc<KeptState>,
    /// Its place on disk, if it has one.
    shelf: Option<Shelf>,
    /// Not held while anything is waited for, be it the disk. Under it the lock of the cache is taken, and no other.
    state: Mutex<PartsState>,
    /// Signalled when a piece has come or a request has ended.
    moved: Condvar,
    this: Weak<Self>,
}

#[derive(Default)]
struct PartsState {
    /// The pieces under way, and those that have come or failed and that a thread waits for.
    slots: BTreeMap<u64, PieceSlot>,
    /// Requests under way.
    requests: usize,
    readers: Readers,
    /// Pieces with headers that are going to be read, and for which no request was made yet.
    expected: VecDeque<u64>,
    /// When a request last failed because nothing came; `None` once a piece has come after that.
    silent: Option<Instant>,
}

#[derive(Default)]
struct PieceSlot {
    /// Threads that wait for the piece.
    waiting: usize,
    outcome: Option<Result<Arc<CountedBuf>, RemoteError>>,
}

impl PiecedObject {
    /// An object in this state, whose pieces are those of the `kept` one.
    pub(super) fn new(
        inner: &Arc<Inner>,
        at: &Location,
        stored: StoredObject,
        identity: Arc<Identity>,
        kept: &Arc<KeptState>,
    ) -> Arc<Self> {
        Self::cut(inner, at, stored, identity, (kept, Arc::default()), PIECE)
    }

    /// The same object for its headers that lie alone.
    pub(super) fn headers(&self) -> Arc<Self> {
        let state = (&self.kept, Arc::clone(&self.changed));
        let (stored, identity) = (self.stored.clone(), Arc::clone(&self.identity));
        Self::cut(&self.inner, &self.at, stored, identity, state, HEADER_PIECE)
    }

    /// An object in pieces of that length.
    fn cut(
        inner: &Arc<Inner>,
        at: &Location,
        stored: StoredObject,
        identity: Arc<Identity>,
        (kept, changed): (&Arc<KeptState>, Arc<OnceLock<RemoteError>>),
        piece: u64,
    ) -> Arc<Self> {
        let disk = inner.disk.as_ref();
        let shelf = disk.and_then(|disk| Shelf::new(disk, at, &stored.origin, &identity, piece));
        Arc::new_cyclic(|this| Self {
            key: if piece == PIECE {
                kept.pieces
            } else {
                kept.headers
            },
            kept: Arc::clone(kept),
            shelf,
            inner: Arc::clone(inner),
            at: at.clone(),
            stored,
            cut: Cut {
                piece,
                len: identity.size(),
            },
            identity,
            changed,
            state: Mutex::default(),
            moved: Condvar::new(),
            this: this.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, PartsState> {
        lock(&self.state)
    }

    /// Fills `buf` with the bytes at `offset`, from memory, from the disk or from the server.
    ///
    /// # Errors
    /// As [`Source::read_exact_at`](crate::source::Source::read_exact_at).
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> crate::error::Result<()> {
        let end = checked_end(offset, buf.len(), self.identity.size())?;
        let pieces = self.cut.pieces_of(&(offset..end));
        if buf.is_empty() {
            return Ok(());
        }
        self.begin(&pieces)?;
        let mut rest = buf;
        let mut at = offset;
        for piece in pieces.clone() {
            let bytes = self.piece(piece, pieces.end)?;
            let start = self.cut.bytes_of(&(piece..pieces.end)).start;
            let within = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            let found = bytes.get(within..).unwrap_or_default();
            let (part, behind) = rest.split_at_mut(found.len().min(rest.len()));
            part.copy_from_slice(found.get(..part.len()).unwrap_or_default());
            at = at.saturating_add(len_u64(part.len()));
            rest = behind;
        }
        if !rest.is_empty() {
            let why = "a piece of the file is shorter than its place";
            return Err(Error::corrupt(Place::Byte(at), why));
        }
        Ok(())
    }

    /// Whether these bytes are here or under way.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        let mut pieces = self
            .cut
            .pieces_of(&(offset..offset.saturating_add(len_u64(len))));
        let is_known = |piece| self.lock().slots.contains_key(&piece) || self.is_here(piece);
        pieces.all(|piece| is_known(piece) || self.is_on_disk(piece))
    }

    /// Requests the missing pieces of a read, and those that its reader is going to want.
    fn begin(&self, pieces: &Range<u64>) -> Result<(), RemoteError> {
        let mut state = self.lock();
        self.check()?;
        let budget = self.inner.cache.budget();
        let most = budget
            .checked_div(REQUEST_SHARE.saturating_mul(self.cut.piece))
            .unwrap_or(0);
        let end = self.cut.all().end;
        let is_here = pieces.clone().all(|piece| self.is_here(piece));
        let mut ahead = ahead_of(&mut state.readers, pieces, is_here, most);
        ahead.end = ahead.end.min(end);
        let bytes = self.cut.len_of(&ahead);
        let under_way = self.inner.ahead.load(Ordering::Relaxed);
        let room = self.inner.cache.room_ahead().saturating_sub(under_way);
        // what is fetched ahead never takes the last request: a reader that waits gets that one
        if ahead.is_empty() || bytes > room || state.requests >= AT_ONCE - 1 {
            self.launch(&mut state, pieces.clone(), pieces.end);
        } else if ahead.start > pieces.end {
            self.launch(&mut state, pieces.clone(), pieces.end);
            let asked = self.launch(&mut state, ahead.clone(), ahead.start);
            note_asked(&mut state.readers, asked);
        } else {
            let asked = self.launch(&mut state, pieces.start..ahead.end, pieces.end);
            note_asked(&mut state.readers, asked);
        }
        Ok(())
    }

    /// Fetches the pieces with these headers, a request each unless they are neighbours. Whether that is of use: what has to go before
    /// it is read would be fetched twice.
    pub(super) fn expect(&self, headers: &[u64]) -> bool {
        let len = self.identity.size();
        let mut state = self.lock();
        for &header in headers {
            let end = header.saturating_add(HEADER).min(len);
            let pieces = self.cut.pieces_of(&(header..end));
            // the headers come in the order of the file, so only the last one may share a piece with the next
            let last = state.expected.back().copied();
            let new = pieces.filter(|&piece| last.is_none_or(|last| last < piece));
            state.expected.extend(new);
        }
        self.fetch_expected(&mut state);
        self.inner.cache.budget() >= EXPECTING
    }

    /// Makes as many requests for expected pieces as there may be now.
    fn fetch_expected(&self, state: &mut PartsState) {
        while state.requests < AT_ONCE
            && let Some(first) = state.expected.pop_front()
        {
            let mut run = first..first.saturating_add(1);
            while state
                .expected
                .pop_front_if(|next| *next == run.end)
                .is_some()
            {
                run.end = run.end.saturating_add(1);
            }
            // a thread is going to wait for each
            let end = run.end;
            self.launch(state, run, end);
        }
    }

    /// Sends requests for those of the pieces that are neither in memory nor under way, as far as there may be more; those from `ahead` on
    /// no reader has asked for. Returns the piece up to which all is here or asked for.
    fn launch(&self, state: &mut PartsState, wanted: Range<u64>, ahead: u64) -> u64 {
        let is_missing = |piece| !state.slots.contains_key(&piece) && !self.is_here(piece);
        // a long read asks for more when it gets there; what does not stay until then would be fetched twice
        let share = self
            .inner
            .cache
            .budget()
            .checked_div(READ_SHARE.saturating_mul(self.cut.piece));
        let most = share.unwrap_or(0).clamp(1, REQUEST.saturating_mul(2));
        let end = wanted.end.min(wanted.start.saturating_add(most));
        for run in runs(wanted.start..end, is_missing) {
            let most = if run.start < ahead {
                AT_ONCE
            } else {
                AT_ONCE - 1
            };
            // the reader asks again when it gets there, in `wait_for`
            let Some(this) = self.this.upgrade().filter(|_| state.requests < most) else {
                return run.start;
            };
            for piece in run.clone() {
                // under the lock, so that no other reader asks for the piece, too
                state.slots.insert(piece, PieceSlot::default());
            }
            state.requests = state.requests.saturating_add(1);
            let bytes = self.cut.len_of(&(run.start.max(ahead)..run.end));
            self.inner.ahead.fetch_add(bytes, Ordering::Relaxed);
            let flight = Flight::new(&this, run, ahead);
            self.inner.handle.spawn(flight.run());
        }
        end
    }

    /// Whether a piece is in memory.
    fn is_here(&self, piece: u64) -> bool {
        self.inner.cache.contains(self.key, piece)
    }

    /// Whether pieces are kept on disk.
    pub(super) fn has_disk(&self) -> bool {
        self.shelf.is_some()
    }

    /// Whether there is a file for a piece. Waits for the disk, as [`PiecedObject::load`] does.
    pub(super) fn is_on_disk(&self, piece: u64) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| shelf.has(piece))
    }

    /// A piece from the disk, if it is there and whole.
    pub(super) fn load(&self, piece: u64) -> Option<CountedBuf> {
        let len = self.cut.piece_len(piece);
        let found = self.shelf.as_ref()?.load(piece, len)?;
        let mut buffer = self.inner.cache.fetched(self.key, len);
        buffer.copy_from_slice(&found);
        Some(buffer)
    }

    /// A piece, of a read that goes up to `end`.
    fn piece(&self, piece: u64, end: u64) -> crate::error::Result<Arc<CountedBuf>> {
        if let Some((found, _)) = self.inner.cache.get(self.key, piece) {
            self.stored.traffic.note_in_memory();
            return Ok(found);
        }
        Ok(self.wait_for(piece, end)?)
    }

    /// Waits until a piece is here. Requests it if no request for it is under way, also if it came and was dropped again.
    fn wait_for(&self, piece: u64, end: u64) -> Result<Arc<CountedBuf>, RemoteError> {
        let mut state = self.lock();
        let begun = Instant::now();
        loop {
            self.check()?;
            if let Some((found, _)) = self.inner.cache.get(self.key, piece) {
                return Ok(found);
            }
            // a new request would have all of the timeout once more, and its reader has waited long already
            let timeout = self.inner.options.timeout;
            let half = timeout.checked_div(2).unwrap_or_default();
            let long = begun.elapsed() >= half;
            let is_silent = state.silent.is_some_and(|silent| silent > begun);
            if !state.slots.contains_key(&piece) && long && is_silent {
                // all requests that there may be are for other readers, and this one has waited nearly as long as they have
                return Err(RemoteError::silent(self.at.to_string(), timeout));
            }
            if !state.slots.contains_key(&piece) {
                self.launch(&mut state, piece..end, end);
            }
            if let Some(slot) = state.slots.get_mut(&piece) {
                slot.waiting = slot.waiting.saturating_add(1);
                let (next, outcome) = self.wait_slot(state, piece);
                state = next;
                match outcome {
                    Some(outcome) => return outcome,
                    None => self.inner.check_wanted(&self.at)?,
                }
            } else {
                state = self.wait(state);
                self.inner.check_wanted(&self.at)?;
            }
        }
    }

    /// Waits a while for the outcome of a piece, for which this thread counts as waiting.
    fn wait_slot<'a>(
        &self,
        mut state: MutexGuard<'a, PartsState>,
        piece: u64,
    ) -> (
        MutexGuard<'a, PartsState>,
        Option<Result<Arc<CountedBuf>, RemoteError>>,
    )
    where
        Self: 'a,
    {
        loop {
            let Some(slot) = state.slots.get_mut(&piece) else {
                return (state, None);
            };
            if let Some(outcome) = slot.outcome.clone() {
                slot.waiting = slot.waiting.saturating_sub(1);
                // the last one that waited: a later read finds the piece in the cache, or requests it again
                if slot.waiting == 0 {
                    state.slots.remove(&piece);
                }
                return (state, Some(outcome));
            }
            // behind the look at the outcome, which would else stay for a later read
            if let Err(ended) = self.inner.check_wanted(&self.at) {
                slot.waiting = slot.waiting.saturating_sub(1);
                return (state, Some(Err(ended)));
            }
            // wakes by itself: nobody signals that the mount has ended or that the program was killed
            state = self.wait(state);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, PartsState>) -> MutexGuard<'a, PartsState> {
        let woken = self.moved.wait_timeout(state, LOOK_EVERY);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes in a piece that has come from the server, and has it written to the disk soon.
    pub(super) fn arrive(&self, piece: u64, bytes: CountedBuf, ahead: bool) {
        let bytes = self.take_in(piece, bytes, ahead);
        if let Some(shelf) = &self.shelf {
            shelf.store(piece, &bytes, &self.inner.handle);
        }
    }

    /// Puts a piece that has come into memory, and gives it to the threads that wait for it.
    pub(super) fn take_in(&self, piece: u64, bytes: CountedBuf, ahead: bool) -> Arc<CountedBuf> {
        let mut state = self.lock();
        state.silent = None;
        let slot = state.slots.remove(&piece);
        let waiting = slot.map_or(0, |slot| slot.waiting);
        // a reader may have caught up with what was fetched ahead of it
        let unread = ahead && waiting == 0;
        let bytes = self.inner.cache.insert(self.key, piece, bytes, unread);
        // handed over beside the cache, which may have no room and drop it before they look
        if waiting > 0 {
            let slot = PieceSlot {
                waiting,
                outcome: Some(Ok(Arc::clone(&bytes))),
            };
            state.slots.insert(piece, slot);
            drop(state);
            self.moved.notify_all();
        }
        bytes
    }

    /// Ends a request: the threads that wait for pieces which it has not brought get `failure`.
    pub(super) fn land(&self, missing: Range<u64>, failure: Option<RemoteError>) {
        let failure = failure.unwrap_or_else(|| RemoteError::Ended {
            url: self.at.to_string(),
        });
        let mut state = self.lock();
        state.requests = state.requests.saturating_sub(1);
        if matches!(failure, RemoteError::TimedOut { .. }) {
            state.silent = Some(Instant::now());
        }
        for piece in missing {
            if let Some(slot) = state.slots.get_mut(&piece)
                && slot.outcome.is_none()
            {
                slot.outcome = Some(Err(failure.clone()));
                if slot.waiting == 0 {
                    state.slots.remove(&piece);
                }
            }
        }
        // a request is free now
        self.fetch_expected(&mut state);
        drop(state);
        self.moved.notify_all();
    }

    /// Nothing of an object that has changed is read, so that no reader has some bytes of before and some of now.
    fn check(&self) -> Result<(), RemoteError> {
        self.changed
            .get()
            .map_or(Ok(()), |changed| Err(changed.clone()))
    }

    /// Remembers a failure that says that the object has changed. An object that is missing is reported as changed.
    pub(super) fn judge(&self, failure: RemoteError) -> RemoteError {
        match failure {
            RemoteError::Changed { .. } => {
                // a second one says the same
                let _ = self.changed.set(failure.clone());
                log::warn!("{failure}");
                failure
            }
            RemoteError::Missing { url, why } => RemoteError::Changed { url, why },
            other => other,
        }
    }
}
