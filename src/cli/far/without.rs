//! What stands in for reading URLs without the feature `remote`: each URL is refused.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::cli::options::Options;
use crate::codec::Cache;
use crate::collection::Listable;
use crate::error::Result;
use crate::save::FilePath;

/// The beginnings of URLs that a program with the feature reads.
const SCHEMES: [&str; 5] = ["http", "https", "s3", "gs", "az"];
/// What is said of them.
const WITHOUT: &str = "URLs are read by the packages and by builds with --features remote, not by this one; download it";

/// A URL that can be read: there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Location {}

/// What asks servers: there is none either.
pub(super) use Location as Remote;

impl Location {
    pub(super) fn parse(text: &str) -> Option<Result<Self, &'static str>> {
        let (scheme, _) = text.split_once("://")?;
        let mut schemes = SCHEMES.iter();
        let known = schemes.any(|known| known.eq_ignore_ascii_case(scheme));
        known.then_some(Err(WITHOUT))
    }

    pub(super) fn name(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn public(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn is_prefix(&self) -> bool {
        match *self {}
    }

    pub(super) fn can_list(&self) -> bool {
        match *self {}
    }
}

impl fmt::Display for Location {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Refuses, as each use of a URL does.
pub(super) fn start(_: &Options, _: &Arc<Cache>) -> Result<Remote> {
    Err(crate::error::Error::unsupported(
        crate::error::Place::File,
        WITHOUT,
    ))
}

pub(super) fn below(prefix: &Location, _: &str) -> Result<Location> {
    match *prefix {}
}

pub(super) fn file(remote: &Remote, _: &Location, _: &Path) -> FilePath {
    match *remote {}
}

pub(super) fn bucket(remote: &Remote, _: &Location) -> Box<dyn Listable> {
    match *remote {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["https://h/a.asdf", "S3://b/k", "az://b"] {
            assert!(Location::parse(url).is_some(), "{url}");
        }
        for path in ["a.asdf", "/a//b", "ftp://h/a", "://"] {
            assert!(Location::parse(path).is_none(), "{path}");
        }
    }
}
