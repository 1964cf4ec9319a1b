//! The first answer of an object: what it is, and its first bytes.

use std::ops::Range;
use std::sync::Arc;
use std::task::Context;

use object_store::{GetOptions, GetRange, GetResult};
use tokio::task::spawn_blocking;

use super::checked::{PartHead, UnwantedAnswer};
use super::client::StoredObject;
use super::disk::Shelf;
use super::error::RemoteError;
use super::failure::AttemptFailure;
use super::identity::Identity;
use super::kept::KeptState;
use super::listing;
use super::location::{Address, Location};
use super::object::Object;
use super::parts::PiecedObject;
use super::patience::Patience;
use super::pieces::PIECE;
use super::{Inner, ObjectBytes, Traffic};
use crate::source::{ScratchBytes, ScratchRoom, at_most, len_u64};

/// Pieces at the start that are fetched with the first request: most texts are in them, and the header of the block behind it.
const HEAD: u64 = 1;

/// Bytes at the end that are fetched in small pieces: the block index is there, and often all of it.
pub(super) const TAIL: u64 = 4 << 10;

/// Opens an object, or downloads it if that is the only way.
pub(super) async fn open(
    inner: &Arc<Inner>,
    at: &Location,
    known: Option<Identity>,
    traffic: Arc<Traffic>,
) -> Result<Object, RemoteError> {
    let stored = inner.clients.find(at, traffic).await?;
    // by zero some servers mean that they do not know
    let known = known.filter(|known| known.size() > 0).map(Arc::new);
    if let Some(known) = &known {
        let kept = match inner.kept.find(at, &stored, known) {
            Some(kept) => Some(kept),
            None => on_disk(inner, at, &stored, known).await,
        };
        if let Some(kept) = kept {
            let known = Arc::clone(known);
            return Ok(far(PiecedObject::new(inner, at, stored, known, &kept)));
        }
    }
    // a state of an earlier mount lets the server answer "not modified", without a byte of body
    let last = match known {
        Some(_) => None,
        None => last_on_disk(inner, at, &stored).await,
    };
    let mut patience = Patience::new(inner.options.timeout);
    let answer = first(at, &stored, 0..HEAD * PIECE, last, &mut patience).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Err(hinted(at, &stored, error, &patience).await),
    };
    let (identity, first) = match answer {
        FirstAnswer::Part(identity, bytes) => (identity, bytes),
        FirstAnswer::Whole(len) => return download(inner, at, &stored, len).await,
    };
    let identity = Arc::new(identity);
    let kept = inner.kept.of(at, &stored, &identity);
    let parts = PiecedObject::new(inner, at, stored, identity, &kept);
    // a server may give fewer bytes than asked for; a piece that is not full would be taken for whole
    let full = |(piece, bytes): &(u64, &[u8])| bytes.len() == parts.cut.piece_len(*piece);
    let first = (0..).zip(first.chunks(at_most(PIECE, usize::MAX)));
    for (piece, bytes) in first.filter(full) {
        let mut buffer = inner.cache.fetched(parts.key, bytes.len());
        buffer.copy_from_slice(bytes);
        parts.arrive(piece, buffer, false);
    }
    Ok(far(parts))
}

/// The state of an object of which the first piece is on disk: it was stored there under what the server had said, so this is that.
async fn on_disk(
    inner: &Arc<Inner>,
    at: &Location,
    stored: &StoredObject,
    known: &Arc<Identity>,
) -> Option<Arc<KeptState>> {
    let shelf = Shelf::new(inner.disk.as_ref()?, at, &stored.origin, known, PIECE)?;
    let found = spawn_blocking(move || shelf.has(0)).await;
    found
        .unwrap_or(false)
        .then(|| inner.kept.of(at, stored, known))
}

/// The state that an object had when its first piece was stored, to ask the server whether it still has it.
async fn last_on_disk(inner: &Inner, at: &Location, stored: &StoredObject) -> Option<Identity> {
    let disk = inner.disk.clone()?;
    let (at, origin) = (at.clone(), stored.origin.clone());
    let last = spawn_blocking(move || disk.last(&at, &origin)).await;
    last.unwrap_or_default()
}

/// An object that is read in pieces.
fn far(parts: Arc<PiecedObject>) -> Object {
    let headers = parts.headers();
    let (at, identity) = (parts.at.clone(), Arc::clone(&parts.identity));
    Object::new(&at, identity, ObjectBytes::Far { parts, headers })
}

/// What an object is now, and whether its server sends parts of it.
pub(super) async fn probe(
    inner: &Arc<Inner>,
    at: &Location,
    known: Option<Identity>,
    traffic: Arc<Traffic>,
) -> Result<(Identity, bool), RemoteError> {
    let stored = inner.clients.find(at, traffic).await?;
    let known = match known {
        Some(known) => Some(known),
        None => last_on_disk(inner, at, &stored).await,
    };
    let mut patience = Patience::new(inner.options.timeout);
    match first(at, &stored, 0..1, known, &mut patience).await? {
        FirstAnswer::Part(identity, _) => Ok((identity, true)),
        FirstAnswer::Whole(len) => {
            let patience = Patience::new(inner.options.timeout);
            let whole = whole(&stored, &patience).await;
            let told = |failure: AttemptFailure| failure.told(at, &stored, inner.options.timeout);
            let identity = Identity::of(&whole.map_err(told)?.meta);
            let size = identity.size();
            Ok((identity.with_size(size, len), false))
        }
    }
}

/// The first answer to a request for a part.
enum FirstAnswer {
    Part(Identity, Vec<u8>),
    /// The server sends the whole file only, and may say how long it is. It may be empty.
    Whole(Option<u64>),
}

/// Asks for the first bytes until there is an answer that is final. Of a file in the `known` state the server need not send any.
async fn first(
    at: &Location,
    stored: &StoredObject,
    range: Range<u64>,
    known: Option<Identity>,
    patience: &mut Patience,
) -> Result<FirstAnswer, RemoteError> {
    // a weak tag says that the content means the same, not that its bytes are the same
    let known = known.filter(|known| known.strong_etag().is_some());
    let tag = known.as_ref().and_then(Identity::strong_etag);
    loop {
        let failure = match attempt(stored, range.clone(), tag, patience).await {
            Ok((identity, bytes)) => return Ok(FirstAnswer::Part(identity, bytes)),
            Err(failure) => failure,
        };
        if let AttemptFailure::Refused(UnwantedAnswer { status: 304, .. }) = &failure
            && let Some(known) = &known
        {
            stored.note_answer();
            return Ok(FirstAnswer::Part(known.clone(), Vec::new()));
        }
        if let Some(whole) = failure.whole() {
            // there is no byte 0: the file is empty
            let len = if whole.status == 416 {
                Some(0)
            } else {
                whole.len
            };
            return Ok(FirstAnswer::Whole(len));
        }
        patience.wait_after(&failure, at, stored).await?;
    }
}

/// The failure to open an object, with advice if it is missing: there may be objects below it, so that it lacks its slash, or others whose
/// names begin with its own. It is missing all the same.
async fn hinted(
    at: &Location,
    stored: &StoredObject,
    error: RemoteError,
    patience: &Patience,
) -> RemoteError {
    let (RemoteError::Missing { url, .. }, Address::Bucket { key, .. }) = (&error, at.kind())
    else {
        return error;
    };
    let why = if listing::has_below(stored, &format!("{key}/"), patience).await {
        format!("not an object, but there are objects below it: {url}/ names them")
    } else if listing::has_below(stored, key, patience).await {
        let (folder, name) = url.rsplit_once('/').unwrap_or_default();
        format!(
            "not an object, but the names of objects begin so: {folder}/ with -o match='{name}*' names them"
        )
    } else {
        return error;
    };
    RemoteError::Missing {
        url: url.clone(),
        why,
    }
}

/// Makes one request for the first bytes, of which there may be fewer.
async fn attempt(
    stored: &StoredObject,
    range: Range<u64>,
    tag: Option<&str>,
    patience: &mut Patience,
) -> Result<(Identity, Vec<u8>), AttemptFailure> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        if_none_match: tag.map(str::to_owned),
        ..GetOptions::default()
    };
    let answer = patience.answer(|| stored.get(options.clone())).await?;
    stored.note_answer();
    let identity = Identity::of(&answer.meta);
    let head = PartHead::of(&answer)?;
    // the range that was asked for begins at zero and has a few pieces
    let len = at_most(head.end, at_most(HEAD * PIECE, usize::MAX));
    let mut out = Vec::new();
    let mut body = answer.into_stream();
    while out.len() < len || !head.is_counted {
        let poll = |context: &mut Context<'_>| body.as_mut().poll_next(context);
        let bytes = match patience.bytes(poll, stored).await? {
            Some(bytes) => bytes,
            None if out.len() < len => return Err(AttemptFailure::Cut),
            None => break,
        };
        if bytes.len() > len.saturating_sub(out.len()) {
            return Err(AttemptFailure::surplus());
        }
        out.extend_from_slice(&bytes);
    }
    Ok((identity, out))
}

/// Downloads a file into a temporary one without a name.
async fn download(
    inner: &Arc<Inner>,
    at: &Location,
    stored: &StoredObject,
    len: Option<u64>,
) -> Result<Object, RemoteError> {
    let limit = inner.options.max_download;
    if let Some(len) = len.filter(|&len| len > limit) {
        return Err(too_long(at, Some(len), limit));
    }
    let mut patience = Patience::of_download(inner.options.timeout);
    loop {
        let mut file = ScratchBytes::new(&ScratchRoom::new(limit, &std::env::temp_dir()));
        let failure = match fetch(at, stored, &mut file, limit, &mut patience).await? {
            Ok((identity, counted)) => {
                let identity = identity.with_size(counted, len);
                return Ok(Object::new(at, Arc::new(identity), ObjectBytes::Here(file)));
            }
            Err(failure) => failure,
        };
        patience.wait_after(&failure, at, stored).await?;
    }
}

/// The error of a file that is too long to be downloaded, if it has `len` bytes or an unknown number.
fn too_long(at: &Location, len: Option<u64>, limit: u64) -> RemoteError {
    let len = len.map_or(format!("more than {limit}"), |len| len.to_string());
    RemoteError::NoRanges {
        url: at.to_string(),
        why: format!("the server sends no parts of files, and this one has {len} bytes"),
    }
}

/// One attempt of a download: what the answer says, and how many bytes there were. The outer error is one that no further attempt helps against.
async fn fetch(
    at: &Location,
    stored: &StoredObject,
    file: &mut ScratchBytes,
    limit: u64,
    patience: &mut Patience,
) -> Result<Result<(Identity, u64), AttemptFailure>, RemoteError> {
    let answer = match whole(stored, patience).await {
        Ok(answer) => answer,
        Err(failure) => return Ok(Err(failure)),
    };
    let said = Identity::of(&answer.meta);
    let mut body = answer.into_stream();
    let (mut len, mut renewed) = (0_u64, 0_u64);
    loop {
        let poll = |context: &mut Context<'_>| body.as_mut().poll_next(context);
        let bytes = match patience.bytes(poll, stored).await {
            Err(failure) => return Ok(Err(failure)),
            Ok(None) => break,
            Ok(Some(bytes)) => bytes,
        };
        let end = len.saturating_add(len_u64(bytes.len()));
        if end > limit {
            return Err(too_long(at, None, limit));
        }
        file.write(len, &bytes)
            .map_err(|cause| RemoteError::Failed {
                url: at.to_string(),
                why: format!("downloading to {}: {cause}", std::env::temp_dir().display()),
            })?;
        len = end;
        // a few bytes now and then are no progress
        if len.saturating_sub(renewed) >= PIECE {
            renewed = len;
            patience.renew();
        }
    }
    // a length of zero is one that the server has not said
    if said.size() != 0 && said.size() != len {
        return Ok(Err(AttemptFailure::Cut));
    }
    Ok(Ok((said, len)))
}

/// The answer to a request for all of the file.
async fn whole(stored: &StoredObject, patience: &Patience) -> Result<GetResult, AttemptFailure> {
    patience.answer(|| stored.get(GetOptions::default())).await
}
