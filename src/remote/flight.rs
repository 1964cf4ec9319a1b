//! One request under way: it brings pieces of an object, one after the other, from the disk or from the server. The server is asked again
//! from where its answer stopped.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use object_store::{GetOptions, GetRange};
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;

use super::client::{StoredObject, UnwantedAnswer};
use super::error::RemoteError;
use super::failure::{AttemptFailure, Patience};
use super::identity::Identity;
use super::parts::PiecedObject;
use super::pieces::Cut;
use crate::codec::CountedBuf;
use crate::source::len_u64;

/// A request under way. However it ends, dropping it wakes the threads that wait for its pieces.
pub(super) struct Flight {
    /// Gone when no thread reads the object any more.
    parts: Weak<PiecedObject>,
    stored: StoredObject,
    identity: Arc<Identity>,
    cut: Cut,
    /// The pieces that have not come yet.
    pieces: Range<u64>,
    /// The first piece that no reader has asked for.
    ahead: u64,
    /// Bytes that are under way and that no reader has asked for, of all objects together.
    ahead_bytes: Arc<AtomicU64>,
    /// Why the rest does not come.
    failure: Option<RemoteError>,
    patience: Patience,
}

impl Flight {
    /// A request for these pieces.
    pub(super) fn new(parts: &Arc<PiecedObject>, pieces: Range<u64>, ahead: u64) -> Self {
        Self {
            parts: Arc::downgrade(parts),
            stored: parts.stored.clone(),
            identity: Arc::clone(&parts.identity),
            cut: parts.cut,
            pieces,
            ahead,
            ahead_bytes: Arc::clone(&parts.inner.ahead),
            failure: None,
            patience: Patience::new(parts.inner.options.timeout),
        }
    }

    /// Brings the pieces, or says why they can't be had.
    pub(super) async fn run(mut self) {
        while !self.pieces.is_empty() {
            let has_disk = self.parts.upgrade().map(|parts| parts.has_disk());
            let end = match has_disk {
                Some(false) => self.pieces.end,
                Some(true) => {
                    // without a disk that answers, only this request waits
                    let loaded = spawn_blocking(move || (self.load(), self)).await;
                    let Ok((Some(end), flight)) = loaded else {
                        return;
                    };
                    self = flight;
                    end
                }
                None => return,
            };
            if !self.fetch(end).await {
                return;
            }
        }
    }

    /// Takes in the pieces that are on disk, up to the first one that is not. Gives the piece up to which all others are not either;
    /// `None` if no thread reads the object any more.
    fn load(&mut self) -> Option<u64> {
        let parts = self.parts.upgrade()?;
        while !self.pieces.is_empty()
            && let Some(buffer) = parts.load(self.pieces.start)
        {
            self.bring(|piece, ahead| drop(parts.take_in(piece, buffer, ahead)));
        }
        let behind = self.pieces.start.saturating_add(1)..self.pieces.end;
        let mut on_disk = behind.filter(|piece| parts.is_on_disk(*piece));
        let end = on_disk.next().unwrap_or(self.pieces.end);
        // the server is not waited for yet
        self.patience.renew();
        Some(end)
    }

    /// Brings the pieces up to `end` from the server. Whether that was done.
    async fn fetch(&mut self, end: u64) -> bool {
        while let Err(failure) = self.attempt(end).await {
            let Some(at) = self.parts.upgrade().map(|parts| parts.at.clone()) else {
                return false;
            };
            let guesses = self.stored.guesses;
            let again = self.patience.wait_after(&failure, &at, guesses).await;
            if let Err(failure) = again {
                self.failure = self.parts.upgrade().map(|parts| parts.judge(failure));
                return false;
            }
        }
        self.pieces.start >= end
    }

    /// Makes one request for the pieces up to `end` that have not come, and takes them in, as long as any thread reads the object. If it
    /// fails within a piece, what has come of that is lost.
    async fn attempt(&mut self, end: u64) -> Result<(), AttemptFailure> {
        let missing = self.pieces.start..end;
        if missing.is_empty() {
            return Ok(());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(self.cut.bytes_of(&missing))),
            if_match: self.identity.strong_etag().map(str::to_owned),
            ..GetOptions::default()
        };
        let answer = self.stored.store.get_opts(&self.stored.path, options);
        let answer = timeout_at(self.patience.until(), answer).await;
        let answer = answer.map_err(|_| AttemptFailure::Stalled)?;
        let answer = answer.map_err(|error| match AttemptFailure::from(error) {
            AttemptFailure::Refused(UnwantedAnswer { status: 416, .. }) => {
                AttemptFailure::Changed(format!("shorter, no more {}", self.identity))
            }
            failure => failure,
        })?;
        let found = Identity::of(&answer.meta);
        if !self.identity.is_same(&found) {
            return Err(AttemptFailure::Changed(format!(
                "{found}, no more {}",
                self.identity
            )));
        }
        let mut body = answer.into_stream();
        let mut filling = None;
        while self.pieces.start < end {
            let bytes = poll_fn(|context| body.as_mut().poll_next(context));
            let bytes = timeout_at(self.patience.until(), bytes).await;
            let bytes = bytes
                .map_err(|_| AttemptFailure::Stalled)?
                .ok_or(AttemptFailure::Cut)??;
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() && self.pieces.start < end {
                let Some(parts) = self.parts.upgrade() else {
                    return Ok(());
                };
                self.fill(&parts, &mut filling, &mut rest);
            }
        }
        Ok(())
    }

    /// Takes from `rest` what the next piece lacks, and hands the piece over when it is full. Its memory is taken when its first byte
    /// is there.
    fn fill(
        &mut self,
        parts: &PiecedObject,
        filling: &mut Option<(CountedBuf, usize)>,
        rest: &mut &[u8],
    ) {
        let piece = self.pieces.start;
        let len = self.cut.piece_len(piece);
        let (mut buffer, have) = filling
            .take()
            .unwrap_or_else(|| (parts.inner.cache.fetched(parts.key, len), 0));
        let (now, behind) = rest.split_at(rest.len().min(len.saturating_sub(have)));
        *rest = behind;
        let end = have.saturating_add(now.len());
        if let Some(free) = buffer.get_mut(have..end) {
            free.copy_from_slice(now);
        }
        if end < len {
            *filling = Some((buffer, end));
            return;
        }
        self.bring(|piece, ahead| parts.arrive(piece, buffer, ahead));
    }

    /// Has the next piece, which has come, handed over: `hand_over` gets its number and whether no reader has asked for it.
    fn bring(&mut self, hand_over: impl FnOnce(u64, bool)) {
        let piece = self.pieces.start;
        let is_ahead = piece >= self.ahead;
        if is_ahead {
            let len = len_u64(self.cut.piece_len(piece));
            self.ahead_bytes.fetch_sub(len, Ordering::Relaxed);
        }
        hand_over(piece, is_ahead);
        self.pieces.start = piece.saturating_add(1);
        self.patience.renew();
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let missing = self.pieces.start.max(self.ahead)..self.pieces.end;
        let bytes = self.cut.len_of(&missing);
        self.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parts) = self.parts.upgrade() {
            parts.land(self.pieces.clone(), self.failure.take());
        }
    }
}
