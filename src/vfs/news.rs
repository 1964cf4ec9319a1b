//! What is told of changes that were refused, given up or lost.

use std::fmt::Display;
use std::path::PathBuf;
use std::time::SystemTime;

use log::warn;

/// What the end of the mount loses, a line each.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// What was written and is not saved.
    pub unsaved: Vec<String>,
    /// Files that are in the mount only, and that no editor has made, with their lengths.
    pub scratch: Vec<String>,
}

impl Losses {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unsaved.is_empty() && self.scratch.is_empty()
    }

    /// Says in the log what the mount of the file at `path` has lost. Whether nothing was written that is not saved.
    #[must_use]
    pub fn say(&self, path: &dyn Display) -> bool {
        for file in &self.scratch {
            warn!("{path}: unmounted; {file} existed only in the mount and is lost");
        }
        for line in &self.unsaved {
            warn!("{path}: unmounted, but {line}");
        }
        self.unsaved.is_empty()
    }
}

/// What became of saves, and why edits were refused or given up. A line goes when what it is about has been saved.
#[derive(Debug, Default)]
pub(super) struct News {
    /// When the last save was, and what it did.
    pub(super) last_save: Option<(SystemTime, String)>,
    /// The texts beside FILE that earlier mounts refused and that were there when FILE was opened for writing.
    pub(super) older_texts: Vec<PathBuf>,
    /// Why changes were refused or given up, the oldest first.
    lines: Vec<Line>,
}

/// How many lines are kept.
const MAX_LINES: usize = 100;

/// Why a change of a block was refused, or of an array that lies in no block: the process that tried has only an errno.
#[derive(Debug)]
struct Line {
    block: Option<usize>,
    /// Whether what was written is gone.
    is_loss: bool,
    text: String,
}

impl News {
    /// Notes the texts of before that were found beside FILE, unless some are noted already.
    pub(super) fn note_older_texts(&mut self, found: Vec<PathBuf>) {
        if self.older_texts.is_empty() {
            self.older_texts = found;
        }
    }

    /// Why what was written into blocks was given up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = &String> {
        self.texts(true)
    }

    /// Why changes of blocks were refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = &String> {
        self.texts(false)
    }

    fn texts(&self, is_loss: bool) -> impl Iterator<Item = &String> {
        let lines = self.lines.iter().filter(move |it| it.is_loss == is_loss);
        lines.map(|line| &line.text)
    }

    /// Why what was written into blocks was given up, as it is said at unmount.
    pub(super) fn unsaved(&self) -> Vec<String> {
        let edits = self.given_up();
        edits
            .map(|why| format!("an edit is not saved: {why}"))
            .collect()
    }

    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.last_save.is_none() && self.older_texts.is_empty()
    }

    /// Notes why a change was refused, or given up if it `is_loss`. It replaces what was refused of the block before.
    pub(super) fn refuse(&mut self, block: Option<usize>, is_loss: bool, text: String) {
        // what was given up for the same reason says more
        if !is_loss && self.given_up().any(|said| said.starts_with(&text)) {
            return;
        }
        if block.is_some() {
            self.forget_refusals(block);
        }
        // said again, it is the newest
        self.lines.retain(|said| said.text != text);
        self.lines.push(Line {
            block,
            is_loss,
            text,
        });
        if self.lines.len() > MAX_LINES {
            let refusal = self.lines.iter().position(|said| !said.is_loss);
            self.lines.remove(refusal.unwrap_or(0));
        }
    }

    /// Notes that something was written into a block and saved, or that it has been removed.
    pub(super) fn saved(&mut self, block: usize) {
        self.lines.retain(|said| said.block != Some(block));
    }

    /// Drops lines about refused changes of a block, which has been encoded anew; for `None`, about arrays that lie in no block: a tree has
    /// been saved in which these may have been changed.
    pub(super) fn forget_refusals(&mut self, block: Option<usize>) {
        self.lines
            .retain(|said| said.is_loss || said.block != block);
    }
}

#[cfg(test)]
mod unsaved;
