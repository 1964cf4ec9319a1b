//! One request under way: it brings pieces of an object, one after the other, and is made again from where it stopped.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use object_store::{GetOptions, GetRange};
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
        while let Err(failure) = self.attempt().await {
            let Some(at) = self.parts.upgrade().map(|parts| parts.at.clone()) else {
                return;
            };
            let guesses = self.stored.guesses;
            let again = self.patience.wait_after(&failure, &at, guesses).await;
            if let Err(failure) = again {
                self.failure = self.parts.upgrade().map(|parts| parts.judge(failure));
                return;
            }
        }
    }

    /// Makes one request for the pieces that have not come, and takes them in, as long as any thread reads the object. If it fails
    /// within a piece, what has come of that is lost.
    async fn attempt(&mut self) -> Result<(), AttemptFailure> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(self.cut.bytes_of(&self.pieces))),
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
        while !self.pieces.is_empty() {
            let bytes = poll_fn(|context| body.as_mut().poll_next(context));
            let bytes = timeout_at(self.patience.until(), bytes).await;
            let bytes = bytes
                .map_err(|_| AttemptFailure::Stalled)?
                .ok_or(AttemptFailure::Cut)??;
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() && !self.pieces.is_empty() {
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
        if piece >= self.ahead {
            self.ahead_bytes.fetch_sub(len_u64(len), Ordering::Relaxed);
        }
        parts.arrive(piece, buffer, piece >= self.ahead);
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
