//! What reads URLs, with the feature `remote`.

use std::sync::Arc;

use crate::cli::options::Options;
use crate::codec::Cache;
use crate::error::Result;
use crate::remote::RemoteOptions;

pub(super) use crate::collection::far::{bucket, file};
pub(super) use crate::remote::{Location, Remote};

/// The file of that name below a prefix.
pub(super) fn below(prefix: &Location, name: &str) -> Result<Location> {
    Ok(prefix.join(name)?)
}

/// Starts what asks servers.
pub(super) fn start(options: &Options, cache: &Arc<Cache>) -> Result<Remote> {
    let options = RemoteOptions {
        timeout: options.timeout,
        sign: options.sign,
        max_download: options.max_download,
        ttl: options.ttl,
        disk: options.remote_cache.clone(),
    };
    Remote::new(options, cache)
}
