//! What a mount of many files asks of one of them: it is closed while none of it is used, and opened again later.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::news::News;
use super::refresh::everything;
use super::{Invalidation, Losses, Node, Scratch, TreeMark, Vfs, locked};
use crate::asdf::Snapshot;
use crate::source::Stat;

/// What a [`Vfs`] leaves when it is closed and FILE does not hold: that there are files in the mount only, and what `info/status` tells. The
/// next [`Vfs`] of FILE takes it up.
pub struct Remains {
    /// The files that are in the mount only, if it has any: they stay in the table of the mount.
    files: Option<(Arc<Scratch>, u32)>,
    news: News,
    last_save: Option<(SystemTime, String)>,
    older_text: Option<PathBuf>,
    losses: Losses,
}

impl Remains {
    /// What of it is lost when the mount ends.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.losses.clone()
    }

    /// Whether it has files that are in the mount only, of users or of tools.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Drops the files that are in the mount only, as FILE is gone. Gives a line for each that a user has made.
    pub fn drop_files(&mut self) -> Vec<String> {
        if let Some((scratch, member)) = self.files.take() {
            scratch.drop_all(member);
        }
        std::mem::take(&mut self.losses.scratch)
    }

    /// Says in the log what was not saved of FILE, which has this path, when the mount has ended; as [`Vfs::end`].
    #[must_use]
    pub fn end(self, path: &dyn Display) -> bool {
        self.losses.say(path)
    }
}

impl Vfs {
    /// Takes out what this leaves when it is closed, if anything. Call it only if [`Vfs::is_at_rest`], and nothing after it.
    #[must_use]
    pub fn leave(&self) -> Option<Remains> {
        let losses = self.losses();
        let scratch = &self.options.scratch;
        let has_files = scratch.has_any(self.member);
        let remains = Remains {
            files: has_files.then(|| (Arc::clone(scratch), self.member)),
            news: std::mem::take(&mut locked(&self.edits.news)),
            last_save: locked(&self.saver.last).take(),
            older_text: self.saver.noted_text().map(Into::into),
            losses,
        };
        let anything = remains.files.is_some()
            || !remains.news.is_empty()
            || remains.last_save.is_some()
            || remains.older_text.is_some();
        anything.then_some(remains)
    }

    /// Takes up what an earlier [`Vfs`] of FILE has left. Call it before anything else.
    pub fn take_up(&mut self, remains: Remains) {
        *locked(&self.edits.news) = remains.news;
        *locked(&self.saver.last) = remains.last_save;
        if let Some(path) = remains.older_text {
            self.saver.note_older_text(path);
        }
    }

    /// Says which member of the mount this is, and what `tree.yaml` begins with. Call it before anything else.
    pub fn begin_as(&mut self, member: u32, tree: TreeMark) {
        self.member = member;
        self.tree.begin(tree);
    }

    /// What the next [`Vfs`] of FILE is to begin with.
    #[must_use]
    pub fn tree_mark(&self) -> TreeMark {
        self.tree.mark()
    }

    /// Gives names under `arrays/` only numbers above `base`: the kernel knows those up to `base` for names of an earlier [`Vfs`], from
    /// before FILE was changed. It may know those above `base`, up to `known`, for names of FILE as it is now. Call it before any lookup.
    pub fn number_behind(&self, base: u32, known: u32) {
        locked(&self.state().numbers).begin_behind(base, known);
    }

    /// The last number that a name under `arrays/` was given.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        locked(&self.state().numbers).last_given()
    }

    /// Has the kernel forget all that it knows of FILE's bytes.
    pub fn tell_all(&self) {
        let state = self.state();
        let root = Invalidation::Pages(Node::Root);
        let all = everything(&state, &state).chain([root]);
        drop(self.kernel.announce(all.collect(), None));
    }

    /// FILE's attributes from before the state that is shown was read.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.state().stat
    }

    /// FILE's attributes, if a new [`Vfs`] of a FILE with these would give names under `arrays/` the same numbers as this one.
    #[must_use]
    pub fn numbered_stat(&self) -> Option<Stat> {
        let state = self.state();
        let lasts = state.timed && state.is_numbered_as_anew();
        lasts.then_some(state.stat)
    }

    /// The snapshot that is shown.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    /// Whether FILE has become something that can't be shown.
    #[must_use]
    pub fn is_out_of_date(&self) -> bool {
        self.saver.check_up_to_date().is_err()
    }

    /// Whether FILE is on a server.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.saver.file.is_far()
    }

    /// How often FILE has changed, if it is on a server, else 0: to the kernel the files of each state are other files, so that it never
    /// has pages of two states of one file.
    #[must_use]
    pub fn file_epoch(&self) -> u64 {
        if self.is_far() {
            self.state().file_epoch
        } else {
            0
        }
    }

    /// Whether this can be closed, and be made again later from FILE and what it [leaves](Vfs::leave): no block is being edited, no refused
    /// text waits to be mended, and the kernel has been told of all changes. The caller must know whether any file is open.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.kernel.is_settled() && self.edits.is_empty() && self.tree.is_at_rest()
    }
}
