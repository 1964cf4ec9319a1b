//! What a mount asks of a file that is one of many: it is closed when nothing of it is used, and opened again later.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::beside::Beside;
use super::news::News;
use super::refresh::everything;
use super::texts::{LeftTexts, TREE_NAME};
use super::unsaved::say_what_is_lost;
use super::{Vfs, locked};
use crate::asdf::Snapshot;
use crate::source::Stat;

/// What is left when a [`Vfs`] is closed and is not in FILE: files that are in memory only, and what there is to tell. The next
/// [`Vfs`] of FILE takes it up.
pub struct Remains {
    texts: Option<LeftTexts>,
    beside: Option<Beside>,
    news: News,
    last_save: Option<(SystemTime, String)>,
    older_text: Option<PathBuf>,
}

impl Remains {
    /// What was written and is not saved, as [`Vfs::unsaved`] says.
    #[must_use]
    pub fn unsaved(&self) -> Vec<String> {
        self.news.unsaved()
    }

    /// Files that are in memory only, as [`Vfs::scratch`] says.
    #[must_use]
    pub fn scratch(&self) -> Vec<String> {
        let texts = self.texts.as_ref();
        texts.map_or_else(Vec::new, LeftTexts::described)
    }

    /// To be called when the mount has ended, as [`Vfs::end`], with the path of FILE.
    #[must_use]
    pub fn end(&self, path: &dyn Display) -> bool {
        say_what_is_lost(path, &self.scratch(), &self.unsaved())
    }
}

impl Vfs {
    /// Takes out what is left when this is closed, if that is anything. To be called if [`Vfs::is_at_rest`], and nothing after it.
    #[must_use]
    pub fn leave(&self) -> Option<Remains> {
        let remains = Remains {
            texts: locked(&self.texts).leave(),
            beside: self.beside.leave(),
            news: std::mem::take(&mut locked(&self.edits.news)),
            last_save: locked(&self.saver.last).take(),
            older_text: self.saver.older_text().map(Into::into),
        };
        let anything = remains.texts.is_some()
            || remains.beside.is_some()
            || !remains.news.is_empty()
            || remains.last_save.is_some()
            || remains.older_text.is_some();
        anything.then_some(remains)
    }

    /// Takes what an earlier [`Vfs`] of FILE has left. To be called before anything is asked of this one.
    pub fn take_up(&mut self, remains: Remains) {
        if let Some(texts) = remains.texts {
            locked(&self.texts).take_up(texts);
        }
        if let Some(beside) = remains.beside {
            self.edits.spool = Arc::clone(beside.spool());
            self.beside = beside;
            self.drop_unreachable();
        }
        *locked(&self.edits.news) = remains.news;
        *locked(&self.saver.last) = remains.last_save;
        if let Some(path) = remains.older_text {
            self.saver.note_older_text(path);
        }
    }

    /// Gives names under `arrays/` only numbers above `base`: those up to it are known to the kernel for names that an earlier
    /// [`Vfs`] of FILE gave, before FILE was changed. Those from there up to `known` it may know for the names of FILE as it is. To be
    /// called before anything is looked up.
    pub fn number_behind(&self, base: u32, known: u32) {
        self.state().number_behind(base, known);
    }

    /// The last number that a name under `arrays/` was given.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        self.state().last_number()
    }

    /// Has the kernel told that what it knows of FILE's bytes is out of date.
    pub fn tell_all(&self) {
        let state = self.state();
        drop(
            self.kernel
                .announce(everything(&state, &state).collect(), None),
        );
        let tree = locked(&self.texts).lookup(TREE_NAME.as_ref());
        if let Some(number) = tree {
            self.tell_tree(number);
        }
    }

    /// FILE's attributes from before the state that is shown was read.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.state().stat
    }

    /// The same, if a [`Vfs`] of FILE as it is then gives names under `arrays/` the numbers that they have here.
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

    /// Whether FILE lies far away.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.saver.file.is_far()
    }

    /// How often FILE has changed, if it lies far away: files of another state are other files to the kernel, so that it never has
    /// pages of two states of one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        if self.is_far() { self.state().epoch } else { 0 }
    }

    /// Whether this can be closed, and made again when something is asked of it, of FILE and what it [leaves](Vfs::leave): no block is
    /// being edited, no text waits to be mended, and the kernel has been told of all changes. Files that are open are the caller's to
    /// know.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.kernel.is_settled() && self.edits.is_empty() && locked(&self.texts).is_at_rest()
    }
}
