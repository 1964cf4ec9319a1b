//! What is said of edits of blocks that came to nothing.

use std::collections::VecDeque;

/// Edits that are not saved, and why, until their block is.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Why what was written into a block was given up.
    given_up: Lines,
    /// Why a change of a block was refused.
    refusals: Lines,
}

/// Lines, each of a block, the oldest first.
#[derive(Debug, Default)]
struct Lines(VecDeque<(usize, String)>);

impl Lines {
    /// How many are kept.
    const MAX: usize = 100;

    fn add(&mut self, block: usize, line: String) {
        self.0.retain(|(_, said)| *said != line);
        self.0.push_back((block, line));
        if self.0.len() > Self::MAX {
            self.0.pop_front();
        }
    }

    fn forget(&mut self, block: usize) {
        self.0.retain(|(of, _)| *of != block);
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|(_, line)| line)
    }
}

impl News {
    /// Why what was written into blocks was given up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = &String> {
        self.given_up.texts()
    }

    /// The same, as it is said at unmount.
    pub(super) fn unsaved(&self) -> Vec<String> {
        let edits = self.given_up.texts();
        edits
            .map(|why| format!("an edit is not saved: {why}"))
            .collect()
    }

    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.given_up.0.is_empty() && self.refusals.0.is_empty()
    }

    /// Why changes of blocks were refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = &String> {
        self.refusals.texts()
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

    /// Notes that a block has been saved: what was refused or given up of it before is no news any more.
    pub(super) fn block_saved(&mut self, block: usize) {
        self.given_up.forget(block);
        self.refusals.forget(block);
    }
}
