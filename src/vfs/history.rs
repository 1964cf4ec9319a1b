//! What became of saves, for those who ask later.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::info::Saves;

/// What happened to saves since the file was mounted.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When the last save was, and what it did.
    last: Option<(SystemTime, String)>,
    /// The text that was written last, if it is not saved.
    refused: Option<Refused>,
    /// Why what was written into a block was given up, by block.
    given_up: News,
    /// Why a change of a block was refused last, by block.
    refusals: News,
}

/// What is said of blocks, the oldest first.
#[derive(Debug, Default)]
struct News(VecDeque<(usize, String)>);

impl News {
    /// How many are kept.
    const MAX: usize = 100;

    fn add(&mut self, block: usize, what: String) {
        self.0.retain(|(_, said)| *said != what);
        self.0.push_back((block, what));
        if self.0.len() > Self::MAX {
            self.0.pop_front();
        }
    }

    /// Forgets what was said of a block.
    fn forget(&mut self, block: usize) {
        self.0.retain(|(of, _)| *of != block);
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(_, what)| what)
    }
}

/// A text that is not saved.
#[derive(Debug)]
struct Refused {
    why: String,
    /// Where it is kept on disk, or why it is in memory only.
    kept: Result<PathBuf, String>,
}

impl Refused {
    fn describe(&self) -> String {
        let why = &self.why;
        match &self.kept {
            Ok(path) => format!("{why}; the text is kept in {}", path.display()),
            Err(error) => format!(
                "{why}; the text is in memory only, and gone at unmount: copy tree.yaml elsewhere. It can't be kept on disk: {error}"
            ),
        }
    }
}

impl History {
    /// What `info/status` says of them, and of whether there can be any.
    pub(super) fn describe<'a>(
        &self,
        read_only: Option<&'a str>,
        out_of_date: Option<String>,
    ) -> Saves<'a> {
        let last = self.last.as_ref().map(|(when, what)| {
            let ago = when.elapsed().unwrap_or_default().as_secs();
            format!("{what}, {ago} s ago")
        });
        Saves {
            scratch: Vec::new(),
            out_of_date,
            read_only,
            last,
            unsaved: self
                .refused()
                .into_iter()
                .chain(self.given_up.texts().cloned())
                .collect(),
            refusals: self.refusals.texts().cloned().collect(),
        }
    }

    /// Notes a save, and what it did.
    pub(super) fn saved(&mut self, what: String) {
        self.last = Some((SystemTime::now(), what));
    }

    /// Notes that what was written into a block could not be saved and is gone.
    pub(super) fn give_up(&mut self, block: usize, why: String) {
        self.refusals.forget(block);
        self.given_up.add(block, why);
    }

    /// Notes that a change of a block was refused: the process that tried knows that, but not why.
    pub(super) fn refuse(&mut self, block: usize, why: String) {
        // what was given up for the same reason says more
        if !self.given_up.texts().any(|said| said.starts_with(&why)) {
            self.refusals.forget(block);
            self.refusals.add(block, why);
        }
    }

    /// Notes that a block has been saved, so that what was refused or given up of it before is no news any more.
    pub(super) fn block_saved(&mut self, block: usize) {
        self.given_up.forget(block);
        self.refusals.forget(block);
    }

    /// Why the text that was written last is not saved, and where it is.
    pub(super) fn refused(&self) -> Option<String> {
        self.refused.as_ref().map(Refused::describe)
    }

    /// What is not saved, a line each, as it is said at unmount.
    pub(super) fn unsaved(&self) -> Vec<String> {
        let text = self.refused.iter().map(|refused| {
            let place = match &refused.kept {
                Ok(path) => format!("it is kept in {}", path.display()),
                Err(_) => "it could not be kept on disk, and is gone".to_owned(),
            };
            format!("the tree that was refused is not saved: {place}")
        });
        let edits = self.given_up.texts();
        text.chain(edits.map(|why| format!("an edit is not saved: {why}")))
            .collect()
    }

    /// Where that text is kept on disk.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.refused.as_ref()?.kept.as_deref().ok()
    }

    /// Notes that a text is not saved, and where it is kept, or why it is not.
    pub(super) fn text_is_refused(&mut self, why: String, kept: Result<PathBuf, String>) {
        self.refused = Some(Refused { why, kept });
    }

    /// Notes where the text that is not saved is kept after all.
    pub(super) fn text_is_kept(&mut self, path: PathBuf) {
        if let Some(refused) = &mut self.refused {
            refused.kept = Ok(path);
        }
    }

    /// Notes that the text that was written last is saved.
    pub(super) fn text_is_saved(&mut self) {
        self.refused = None;
    }
}
