//! What reads URLs, with the feature `remote`.

use std::path::Path;
use std::sync::Arc;

use crate::cli::options::Options;
use crate::codec::Cache;
use crate::collection::{Listable, far};
use crate::error::Result;
use crate::remote::RemoteOptions;
use crate::save::FilePath;

pub(super) use crate::remote::{Location, Remote};

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

/// The file at a URL, which messages call `name`.
pub(super) fn file(remote: &Remote, at: &Location, name: &Path) -> FilePath {
    far::file(remote, at.clone(), name)
}

/// The objects whose URLs begin with this one.
pub(super) fn bucket(remote: &Remote, at: &Location) -> Box<dyn Listable> {
    far::bucket(remote, at.clone())
}
