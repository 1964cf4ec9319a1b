//! One request under way: it brings pieces of an object, one after the other, from the disk or from the server. The server is asked again
//! from where its answer stopped.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Context;

use object_store::{GetOptions, GetRange};
use tokio::task::spawn_blocking;

use super::checked::{PartHead, UnwantedAnswer};
use super::client::StoredObject;
use super::error::RemoteError;
use super::failure::AttemptFailure;
use super::identity::Identity;
use super::parts::PiecedObject;
use super::patience::Patience;
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
    /// The first of them that is not full, with how many bytes of it have come. Another answer goes on there.
    filling: Option<(CountedBuf, usize)>,
    /// Full pieces in front of that, of an answer whose length is known when it has ended.
    held: Vec<CountedBuf>,
    /// Whether the last answer says its length. Of one that does not, nothing is sure before it has ended.
    is_counted: bool,
    /// How many bytes the last answer was shorter than what was asked for, so many more are asked for. A cache on the way may give fewer.
    short: u64,
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
            filling: None,
            held: Vec::new(),
            is_counted: true,
            short: 0,
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
            self.stored.traffic.note_on_disk();
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
        while self.pieces.start < end {
            let outcome = self.attempt(end).await;
            let Some(at) = self.parts.upgrade().map(|parts| parts.at.clone()) else {
                return false;
            };
            let Err(failure) = outcome else { continue };
            let again = self.patience.wait_after(&failure, &at, &self.stored);
            // no lock and no strong reference is held here: the object may end while this waits
            let again = again.await;
            if let Err(failure) = again {
                self.failure = self.parts.upgrade().map(|parts| parts.judge(failure));
                return false;
            }
        }
        true
    }

    /// Makes one request for what is missing of the pieces up to `end`, and takes it in, as long as any thread reads the object.
    async fn attempt(&mut self, end: u64) -> Result<(), AttemptFailure> {
        let before = self.patience.clone();
        let done = self.take_answer(end).await;
        // of an answer that was cut nothing is sure if it did not say its length; else this is empty
        self.held.clear();
        if done.is_err() && !self.is_counted {
            self.filling = None;
            // what has come was nothing
            self.patience = before;
        }
        done
    }

    /// Makes one request, and takes in what comes. Pieces of an answer that does not say its length are held until it has ended.
    async fn take_answer(&mut self, end: u64) -> Result<(), AttemptFailure> {
        let missing = self.cut.bytes_of(&(self.pieces.start..end));
        let have = self.filling.as_ref().map_or(0, |(_, have)| len_u64(*have));
        let start = missing.start.saturating_add(have);
        let asked = missing.end.saturating_add(self.short).min(self.cut.len);
        if start >= missing.end {
            return Ok(());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..asked)),
            // a hint that saves bytes: some servers ignore it, so the state is compared below in any case
            if_match: self.identity.strong_etag().map(str::to_owned),
            ..GetOptions::default()
        };
        let ask = || self.stored.get(options.clone());
        let answer = self.patience.answer(ask).await;
        let answer = answer.map_err(|failure| match failure {
            AttemptFailure::Refused(UnwantedAnswer { status: 416, .. }) => {
                AttemptFailure::Changed(format!("shorter, no more {}", self.identity))
            }
            failure => failure,
        })?;
        self.stored.note_answer();
        let found = Identity::of(&answer.meta);
        if !self.identity.is_same(&found) {
            return Err(AttemptFailure::Changed(format!(
                "{found}, no more {}",
                self.identity
            )));
        }
        let head = PartHead::of(&answer)?;
        self.short = asked.saturating_sub(head.end);
        self.is_counted = head.is_counted;
        let until = if head.is_counted {
            head.end.min(missing.end)
        } else {
            head.end
        };
        let mut body = answer.into_stream();
        let mut at = start;
        while at < until || !head.is_counted {
            let poll = |context: &mut Context<'_>| body.as_mut().poll_next(context);
            let Some(bytes) = self.patience.bytes(poll, &self.stored).await? else {
                break;
            };
            at = at.saturating_add(len_u64(bytes.len()));
            // more bytes than the headers say: those before may be wrong as well
            if at > head.end {
                return Err(AttemptFailure::surplus());
            }
            let mut rest: &[u8] = &bytes;
            while !rest.is_empty() && self.next() < end {
                // upgraded for each chunk: the request ends soon after the last reader has gone
                let Some(parts) = self.parts.upgrade() else {
                    return Ok(());
                };
                self.fill(&parts, &mut rest);
            }
        }
        if at < until {
            return Err(AttemptFailure::Cut);
        }
        if let Some(parts) = self.parts.upgrade() {
            for buffer in std::mem::take(&mut self.held) {
                self.bring(|piece, ahead| parts.arrive(piece, buffer, ahead));
            }
        }
        Ok(())
    }

    /// The first piece that is not full.
    fn next(&self) -> u64 {
        self.pieces.start.saturating_add(len_u64(self.held.len()))
    }

    /// Takes from `rest` what the next piece lacks. Hands the piece over when it is full, or holds it, if the length of the answer is not
    /// known. Its memory is taken when its first byte is there.
    fn fill(&mut self, parts: &PiecedObject, rest: &mut &[u8]) {
        let len = self.cut.piece_len(self.next());
        let (mut buffer, have) = self
            .filling
            .take()
            .unwrap_or_else(|| (parts.inner.cache.fetched(parts.key, len), 0));
        let (now, behind) = rest.split_at(rest.len().min(len.saturating_sub(have)));
        *rest = behind;
        let end = have.saturating_add(now.len());
        if let Some(free) = buffer.get_mut(have..end) {
            free.copy_from_slice(now);
        }
        if end < len {
            self.filling = Some((buffer, end));
        } else if self.is_counted {
            self.bring(|piece, ahead| parts.arrive(piece, buffer, ahead));
        } else {
            self.held.push(buffer);
            self.patience.renew();
        }
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
        // what has come was taken off in `bring`
        let missing = self.pieces.start.max(self.ahead)..self.pieces.end;
        let bytes = self.cut.len_of(&missing);
        self.ahead_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parts) = self.parts.upgrade() {
            parts.land(self.pieces.clone(), self.failure.take());
        }
    }
}
