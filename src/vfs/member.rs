//! What a mount asks of a file that is one of many: it is closed when nothing of it is used, and opened again later.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::beside::Beside;
use super::news::News;
use super::refresh::everything;
use super::texts::{TREE_NAME, Texts};
use super::{Invalidation, Losses, Node, State, Vfs, locked};
use crate::asdf::Snapshot;
use crate::source::Stat;

/// What is left when a [`Vfs`] is closed and is not in FILE: files that are in the mount only, and what there is to tell. The next
/// [`Vfs`] of FILE takes it up.
pub struct Remains {
    /// The files of the root, and a hash of the text that FILE had.
    texts: Option<(Texts, u64)>,
    beside: Option<Beside>,
    /// The directories under `arrays/` that these are in, with their paths: if FILE has changed, they have other numbers.
    directories: Vec<(Node, String)>,
    news: News,
    last_save: Option<(SystemTime, String)>,
    older_text: Option<PathBuf>,
    losses: Losses,
}

impl Remains {
    /// What of it the end of the mount loses.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.losses.clone()
    }

    /// Whether it has files that are in the mount only, of users or of tools.
    #[must_use]
    pub fn has_files(&self) -> bool {
        let texts = self.texts.as_ref();
        texts.is_some_and(|(texts, _)| texts.has_scratch()) || self.beside.is_some()
    }

    /// Drops these files, as FILE is gone: those of users, a line each.
    pub fn drop_files(&mut self) -> Vec<String> {
        if let Some((texts, _)) = &mut self.texts {
            texts.drop_scratch();
        }
        self.beside = None;
        std::mem::take(&mut self.losses.scratch)
    }

    /// To be called when the mount has ended, as [`Vfs::end`], with the path of FILE.
    #[must_use]
    pub fn end(self, path: &dyn Display) -> bool {
        self.losses.say(path)
    }
}

impl Vfs {
    /// Takes out what is left when this is closed, if that is anything. To be called if [`Vfs::is_at_rest`], and nothing after it.
    #[must_use]
    pub fn leave(&self) -> Option<Remains> {
        let state = self.state();
        let losses = self.losses();
        let directories = self.paths_beside(&state);
        let beside = locked(&self.beside).leave();
        let remains = Remains {
            texts: locked(&self.texts).leave(),
            directories,
            beside,
            news: std::mem::take(&mut locked(&self.edits.news)),
            last_save: locked(&self.saver.last).take(),
            older_text: self.saver.noted_text().map(Into::into),
            losses,
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
        if let Some((texts, text)) = remains.texts {
            locked(&self.texts).take_up(texts, text);
        }
        if let Some(beside) = remains.beside {
            *locked(&self.beside) = beside;
            self.find_again(&remains.directories);
        }
        *locked(&self.edits.news) = remains.news;
        *locked(&self.saver.last) = remains.last_save;
        if let Some(path) = remains.older_text {
            self.saver.note_older_text(path);
        }
    }

    /// The directories under `arrays/` that tools have made files in, with their paths.
    fn paths_beside(&self, state: &State) -> Vec<(Node, String)> {
        let directories = locked(&self.beside).directories().into_iter();
        let below = directories.filter(|node| matches!(node, Node::ArrayDir(_)));
        let named = below.filter_map(|node| Some((node, state.catalogue().path(node)?)));
        named.collect()
    }

    /// Has files that tools made in these directories stand in them again.
    fn find_again(&self, directories: &[(Node, String)]) {
        let state = self.state();
        let find = |path: &str| state.catalogue().directory(path);
        let each = directories.iter();
        let now = each.map(|(before, path)| (*before, find(path)));
        let now = now.collect();
        let gone = locked(&self.beside).move_all(&now);
        for (directory, name) in gone {
            let path = directories.iter().find(|(before, _)| *before == directory);
            let path = path.map_or("arrays", |(_, path)| path);
            self.say_is_gone(&format_args!("{path}/{}", name.display()));
        }
    }

    /// Gives names under `arrays/` only numbers above `base`: those up to it are known to the kernel for names that an earlier
    /// [`Vfs`] of FILE gave, before FILE was changed. Those from there up to `known` it may know for the names of FILE as it is. To be
    /// called before anything is looked up.
    pub fn number_behind(&self, base: u32, known: u32) {
        locked(&self.state().numbers).begin_behind(base, known);
    }

    /// The last number that a name under `arrays/` was given.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        locked(&self.state().numbers).last_given()
    }

    /// Has the kernel told that what it knows of FILE's bytes is out of date.
    pub fn tell_all(&self) {
        let state = self.state();
        let root = Invalidation::Pages(Node::Root);
        let all = everything(&state, &state).chain([root]);
        drop(self.kernel.announce(all.collect(), None));
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
    pub fn file_epoch(&self) -> u64 {
        if self.is_far() {
            self.state().file_epoch
        } else {
            0
        }
    }

    /// Whether this can be closed, and made again when something is asked of it, of FILE and what it [leaves](Vfs::leave): no block is
    /// being edited, no text waits to be mended, and the kernel has been told of all changes. Files that are open are the caller's to
    /// know.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.kernel.is_settled() && self.edits.is_empty() && locked(&self.texts).is_at_rest()
    }
}
