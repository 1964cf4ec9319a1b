//! What lies below a prefix.

use std::future::poll_fn;
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use tokio::time::timeout_at;

use super::client::StoredObject;
use super::error::RemoteError;
use super::failure::{AttemptFailure, Patience};
use super::location::Location;
use crate::error::printable;

/// The most objects that are listed.
const LISTED: usize = 1 << 20;

/// An object below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectEntry {
    /// Its name below the prefix, with a slash between parts of which none is empty, `.` or `..`.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed.
    pub modified: SystemTime,
    /// Its tag, if the server says one.
    pub etag: Option<String>,
}

/// All objects below the prefix, in the order of the server. A page that can't be had is asked for again.
pub(super) async fn list(
    at: &Location,
    stored: &StoredObject,
    timeout: Duration,
) -> Result<Vec<ObjectEntry>, RemoteError> {
    let prefix = stored.path.as_ref().to_owned();
    let mut so_far = SoFar::default();
    let mut patience = Patience::new(timeout);
    loop {
        let failure = match more(at, stored, &prefix, &mut so_far, &mut patience).await {
            Ok(()) => return Ok(so_far.found),
            Err(failure) => failure,
        };
        let wait = if failure.may_pass(stored.guesses) {
            patience.again()
        } else {
            None
        };
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(failure.told(at, stored.guesses, timeout)),
        }
        if so_far.seen >= LISTED {
            return Err(RemoteError::Failed {
                url: at.to_string(),
                why: format!("more than {LISTED} objects; name a longer prefix"),
            });
        }
    }
}

/// What has been listed.
#[derive(Default)]
struct SoFar {
    found: Vec<ObjectEntry>,
    /// Objects, with those that are left out: a server may list one for ever.
    seen: usize,
    last: Option<Path>,
}

/// Lists what comes behind the last one, until the end or a failure.
async fn more(
    at: &Location,
    stored: &StoredObject,
    prefix: &str,
    so_far: &mut SoFar,
    patience: &mut Patience,
) -> Result<(), AttemptFailure> {
    let path = Some(&stored.path).filter(|path| !path.as_ref().is_empty());
    let mut pages = match &so_far.last {
        Some(last) => stored.store.list_with_offset(path, last),
        None => stored.store.list(path),
    };
    while so_far.seen < LISTED {
        let next = poll_fn(|context| pages.as_mut().poll_next(context));
        let next = timeout_at(patience.until(), next).await;
        let Some(meta) = next.map_err(|_| AttemptFailure::Stalled)? else {
            return Ok(());
        };
        let meta = meta.map_err(AttemptFailure::Store)?;
        patience.renew();
        let key = meta.location.as_ref();
        let name = key.strip_prefix(prefix).unwrap_or(key);
        let name = name.strip_prefix('/').unwrap_or(name);
        so_far.seen = so_far.seen.saturating_add(1);
        if name.split('/').all(is_name) {
            so_far.found.push(ObjectEntry {
                name: name.to_owned(),
                size: meta.size,
                modified: meta.last_modified.into(),
                etag: meta.e_tag.clone(),
            });
        } else if !name.is_empty() {
            // an empty one marks the folder itself
            log::warn!("{at}: {} is left out: no name of a file", printable(key));
        }
        so_far.last = Some(meta.location);
    }
    Err(AttemptFailure::Cut)
}

fn is_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains('\0')
}
