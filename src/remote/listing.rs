//! What lies below a prefix.

use std::future::poll_fn;
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use tokio::time::timeout_at;

use super::client::Stored;
use super::error::{Error, Result};
use super::failure::{Failure, Patience};
use super::location::Location;
use crate::error::printable;

/// The most objects that are listed.
const LISTED: usize = 1 << 20;

/// An object below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
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
pub(super) async fn list(at: &Location, stored: &Stored, timeout: Duration) -> Result<Vec<Entry>> {
    let prefix = stored.path.as_ref().to_owned();
    let mut found: Vec<Entry> = Vec::new();
    let mut last: Option<Path> = None;
    let mut patience = Patience::new(timeout);
    loop {
        let failure = match more(at, stored, &prefix, &mut found, &mut last, &mut patience).await {
            Ok(()) => return Ok(found),
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
        if found.len() >= LISTED {
            return Err(Error::Failed {
                url: at.to_string(),
                why: format!("more than {LISTED} objects; name a longer prefix"),
            });
        }
    }
}

/// Lists what comes behind the last one, until the end or a failure.
async fn more(
    at: &Location,
    stored: &Stored,
    prefix: &str,
    found: &mut Vec<Entry>,
    last: &mut Option<Path>,
    patience: &mut Patience,
) -> Result<(), Failure> {
    let path = Some(&stored.path).filter(|path| !path.as_ref().is_empty());
    let mut pages = match last {
        Some(last) => stored.store.list_with_offset(path, last),
        None => stored.store.list(path),
    };
    while found.len() < LISTED {
        let next = poll_fn(|context| pages.as_mut().poll_next(context));
        let next = timeout_at(patience.until(), next).await;
        let Some(meta) = next.map_err(|_| Failure::Stalled)? else {
            return Ok(());
        };
        let meta = meta.map_err(Failure::Store)?;
        patience.renew();
        let key = meta.location.as_ref();
        let name = key.strip_prefix(prefix).unwrap_or(key);
        let name = name.strip_prefix('/').unwrap_or(name);
        if name.split('/').all(is_name) {
            found.push(Entry {
                name: name.to_owned(),
                size: meta.size,
                modified: meta.last_modified.into(),
                etag: meta.e_tag.clone(),
            });
        } else {
            log::warn!("{at}: {} is left out: no name of a file", printable(key));
        }
        *last = Some(meta.location);
    }
    Err(Failure::Cut)
}

fn is_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains('\0')
}
