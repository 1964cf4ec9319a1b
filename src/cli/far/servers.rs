//! What reads URLs, with the feature `remote`.

use std::path::Path;
use std::sync::Arc;

use crate::cli::options::Options;
use crate::codec::Cache;
use crate::collection::{Listable, far};
use crate::error::Result;
use crate::remote::{self, Remote};
use crate::save::FilePath;

pub(super) use crate::remote::Location;

/// What asks servers.
pub(super) struct Servers(Remote);

impl Servers {
    pub(super) fn new(options: &Options, cache: &Arc<Cache>) -> Result<Self> {
        let options = remote::RemoteOptions {
            timeout: options.timeout,
            sign: options.sign,
            max_download: options.max_download,
            disk: options.remote_cache.clone(),
        };
        Ok(Self(Remote::new(options, cache)?))
    }

    /// The file at a URL, by what messages call it.
    pub(super) fn file(&self, at: &Location, name: &Path) -> FilePath {
        far::file(&self.0, at.clone(), name)
    }

    /// What lies below a URL.
    pub(super) fn bucket(&self, at: &Location) -> Box<dyn Listable> {
        far::bucket(&self.0, at.clone())
    }
}
