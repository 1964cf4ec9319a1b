//! What is told of changes that were refused, given up or lost.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::SystemTime;

use log::warn;

use super::node::{Format, Node};

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
    /// Why what was written into a block was given up, the oldest first.
    given_up: VecDeque<Line>,
    /// Why a change of a block was refused, likewise.
    refusals: VecDeque<Line>,
}

/// How many lines of a kind are kept.
const MAX_LINES: usize = 100;

/// A line about a block, or about an array that lies in no block.
#[derive(Debug)]
struct Line {
    block: Option<usize>,
    /// The file through which the block was written, if it was, see [`written`].
    file: Option<Node>,
    text: String,
}

/// Adds a line. It replaces one with the same text.
fn add(lines: &mut VecDeque<Line>, line: Line) {
    // said again, it is the newest
    lines.retain(|said| said.text != line.text);
    lines.push_back(line);
    if lines.len() > MAX_LINES {
        lines.pop_front();
    }
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
        self.given_up.iter().map(|said| &said.text)
    }

    /// The same, as it is said at unmount.
    pub(super) fn unsaved(&self) -> Vec<String> {
        let edits = self.given_up();
        edits
            .map(|why| format!("an edit is not saved: {why}"))
            .collect()
    }

    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.given_up.is_empty()
            && self.refusals.is_empty()
            && self.last_save.is_none()
            && self.older_texts.is_empty()
    }

    /// Why changes of blocks were refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = &String> {
        self.refusals.iter().map(|said| &said.text)
    }

    /// Notes that what was written into a block through a file could not be saved and is gone.
    pub(super) fn give_up(&mut self, block: usize, file: Node, text: String) {
        self.forget_refusals(Some(block));
        let line = Line {
            block: Some(block),
            file: Some(written(file)),
            text,
        };
        add(&mut self.given_up, line);
    }

    /// Notes why a change of a block was refused, or of an array that lies in no block: the process that tried has only an errno.
    pub(super) fn refuse(&mut self, block: Option<usize>, text: String) {
        // what was given up for the same reason says more
        if !self.given_up().any(|said| said.starts_with(&text)) {
            if block.is_some() {
                self.forget_refusals(block);
            }
            let file = None;
            add(&mut self.refusals, Line { block, file, text });
        }
    }

    /// Notes that a block has been saved with what was written through a file. Drops lines about refused changes of the block, and about an
    /// edit that was given up and has been made through the same file again.
    pub(super) fn saved(&mut self, block: usize, file: Node) {
        let again = Some(written(file));
        self.given_up
            .retain(|said| said.block != Some(block) || said.file != again);
        self.forget_refusals(Some(block));
    }

    /// Drops lines about refused changes of a block, which has been encoded anew; for `None`, about arrays that lie in no block: a tree has
    /// been saved in which these may have been changed.
    pub(super) fn forget_refusals(&mut self, block: Option<usize>) {
        self.refusals.retain(|said| said.block != block);
    }

    /// Notes that a block has been removed.
    pub(super) fn removed(&mut self, block: usize) {
        self.given_up.retain(|said| said.block != Some(block));
        self.forget_refusals(Some(block));
    }
}

/// A file, or `.bin` for a file of an array: what is written through one of its files shows in the other.
fn written(file: Node) -> Node {
    match file {
        Node::Array(number, _) => Node::Array(number, Format::Bin),
        file => file,
    }
}

#[cfg(test)]
mod unsaved;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_no_news_when_the_array_is_saved_through_another_of_its_files() {
        let [bin, npy, other] = [(1, Format::Bin), (1, Format::Npy), (2, Format::Npy)]
            .map(|(number, format)| Node::Array(number, format));
        let mut news = News::default();
        news.give_up(0, bin, "a.bin: lost".to_owned());
        news.saved(0, other);
        assert_eq!(news.unsaved().len(), 1);
        news.saved(0, npy);
        assert!(news.is_empty());
    }
}
