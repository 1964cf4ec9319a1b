//! What became of saves, for those who ask later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;
use super::info::Saves;

/// What happened to saves since the file was mounted.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When the last save was, and what it did.
    last: Option<(SystemTime, String)>,
    /// Why the text that was written last is not saved.
    refused: Option<String>,
    /// Where that text is kept on disk, if it could be.
    kept: Option<PathBuf>,
    /// Why what was written into a block was given up, by block.
    given_up: BTreeMap<usize, String>,
}

impl History {
    /// What `info/status` says of them, and of whether there can be any.
    pub(super) fn describe<'a>(
        &self,
        read_only: Option<&'a str>,
        adrift: Option<String>,
    ) -> Saves<'a> {
        let last = self.last.as_ref().map(|(when, what)| {
            let ago = when.elapsed().unwrap_or_default().as_secs();
            format!("{what}, {ago} s ago")
        });
        Saves {
            adrift,
            read_only,
            last,
            refused: self
                .refused
                .as_ref()
                .or_else(|| self.given_up.values().next())
                .cloned(),
        }
    }

    /// Notes a save, and what it did.
    pub(super) fn saved(&mut self, what: String) {
        self.last = Some((SystemTime::now(), what));
    }

    /// Notes that what was written into a block could not be saved and is gone.
    pub(super) fn give_up(&mut self, block: usize, why: &Error) {
        let why = format!("block {block}: {why}; what was written is given up");
        self.given_up.insert(block, why);
    }

    /// Notes that a block has been saved, so that what was given up of it before is no news any more.
    pub(super) fn block_saved(&mut self, block: usize) {
        self.given_up.remove(&block);
    }

    /// Why the text that was written last is not saved.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Where that text is kept on disk.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Notes what became of a text: saved, or refused and kept somewhere if that could be done.
    pub(super) fn text_is(&mut self, refused: Option<String>, kept: Option<PathBuf>) {
        (self.refused, self.kept) = (refused, kept);
    }
}
