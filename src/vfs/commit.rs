//! Saves: from a text or an edited block to FILE, and to the snapshot that follows.

use std::sync::Arc;

use super::edit::Draft;
use super::info::Saves;
use super::{Error, Result, Vfs};

/// What happened to saves since the file was mounted.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When the last save was, and what it did.
    last: Option<String>,
    /// Why the text that is shown is not saved.
    refused: Option<String>,
}

impl History {
    /// What `info/status` says of them.
    pub(super) fn describe<'a>(&self, read_only: Option<&'a str>) -> Saves<'a> {
        Saves {
            read_only,
            last: self.last.clone(),
            refused: self.refused.clone(),
        }
    }
}

impl Vfs {
    pub(super) fn save_text(&self, _text: &Arc<Vec<u8>>) -> Result<()> {
        Err(Error::ReadOnly("this mount"))
    }

    pub(super) fn keep_refused(&self, _text: &Arc<Vec<u8>>, _error: &Error, _shown: bool) {}

    pub(super) fn commit_block(&self, _draft: &Draft) -> Result<()> {
        Err(Error::ReadOnly("this mount"))
    }

    pub(super) fn commit_removal(&self, _n: usize) -> Result<()> {
        Err(Error::ReadOnly("this mount"))
    }
}
