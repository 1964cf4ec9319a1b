//! What a mount of many files asks of one of them: it is closed while none of it is used, and opened again later.

use std::sync::Arc;

use log::warn;

use super::news::{Losses, News};
use super::tree_file::Refused;
use super::version::Versions;
use super::{ClosedFile, Scratch, TreeMark, Vfs, locked};
use crate::asdf::Snapshot;
use crate::source::{Look, Stat};

/// What a [`Vfs`] leaves when it is closed and FILE does not hold: that there are files in the mount only, and what `info/status` tells. The
/// next [`Vfs`] of FILE takes it up.
pub struct Remains {
    /// The files that are in the mount only, if it has any: they stay in the table of the mount.
    files: Option<(Arc<Scratch>, u32)>,
    news: News,
}

impl Remains {
    /// What of it is lost when the mount ends.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let described = |(scratch, member): &(Arc<Scratch>, u32)| scratch.described(*member);
        Losses {
            unsaved: self.news.unsaved(),
            scratch: self.files.as_ref().map_or_else(Vec::new, described),
        }
    }

    /// Whether it has files that are in the mount only, of users or of tools.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Drops the files that are in the mount only, as FILE is gone. Gives a line for each that a user has made.
    pub fn drop_files(&mut self) -> Vec<String> {
        let lost = self.losses().scratch;
        if let Some((scratch, member)) = self.files.take() {
            scratch.drop_all(member);
        }
        lost
    }
}

/// What is known when a [`Vfs`] is closed: what is shown of FILE until it is opened again, and what the next [`Vfs`] of FILE goes on from.
pub struct Left {
    /// The look at FILE by which it is shown, if its times tell whether it has changed since.
    pub look: Option<Look>,
    /// The versions of its files, if FILE is as it was.
    pub versions: Versions,
    /// What `tree.yaml` begins with.
    pub tree: TreeMark,
    /// What is shown if FILE stays as it is. `None` if FILE's attributes would not tell of a change, or if there are scratch files.
    pub closed: Option<ClosedFile>,
    /// What FILE does not hold, if there is anything.
    pub remains: Option<Remains>,
}

impl Vfs {
    /// Says in the log what was not saved, when the mount has ended. Whether everything was saved.
    #[must_use]
    pub fn end(&self) -> bool {
        let path = self.saves.path.display();
        if let Err(error) = self.tree.rescue(&self.saves) {
            warn!("{path}: the tree that was refused is lost: {error}");
        }
        for (written, fate) in self.blocks.unsaved() {
            let why = "the mount has ended before it was closed";
            self.saves
                .note_loss(written.block, written.file, &why, fate);
        }
        self.losses().say(&path)
    }

    /// What the end of the mount would lose.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let text = self.tree.refusal(Refused::at_unmount);
        let edits = locked(&self.saves.news).unsaved();
        let scratch = self.scratch.scratch.described(self.scratch.member);
        Losses {
            unsaved: text.into_iter().chain(edits).collect(),
            scratch,
        }
    }

    /// Takes out what this leaves when it is closed. `room`: the memory that names and lengths may take, in bytes; if they take more, only
    /// the root is known while FILE is closed. Call it only if [`Vfs::is_at_rest`], and nothing after it.
    #[must_use]
    pub fn leave(&self, room: usize) -> Left {
        let (scratch, member) = (&self.scratch.scratch, self.scratch.member);
        let files = scratch.has_any(member);
        let files = files.then(|| (Arc::clone(scratch), member));
        let mut closed = files
            .is_none()
            .then(|| ClosedFile::of(self, room))
            .flatten();
        let state = self.shown.now();
        let mut versions = state.versions.clone();
        let keeps_names = closed.as_ref().is_some_and(|closed| closed.names.is_some());
        if !keeps_names && !versions.are_unchanged() && !locked(&state.numbers).is_empty() {
            // the next Vfs may number the names otherwise: a save may have brought in a name, or a longer block an array
            versions = versions.renewed();
        }
        if let Some(closed) = &mut closed {
            closed.versions = versions.clone();
        }
        let news = std::mem::take(&mut *locked(&self.saves.news));
        let anything = files.is_some() || !news.is_empty();
        Left {
            look: self.timed_look(),
            versions,
            tree: self.tree.mark(),
            closed,
            remains: anything.then_some(Remains { files, news }),
        }
    }

    /// Takes up what an earlier [`Vfs`] of FILE has left. Call it before this is used.
    pub fn take_up(&mut self, remains: Remains) {
        let mut news = locked(&self.saves.news);
        // if FILE was opened for writing to repair it, the texts beside it have been looked for already
        let found = std::mem::replace(&mut *news, remains.news).older_texts;
        news.note_older_texts(found);
    }

    /// Makes this the `Vfs` of a member of the mount, and goes on from the last one of FILE: with its `tree`, with the versions of its
    /// files, and with the names under `arrays/`, if it knew them when it was `closed` and FILE still has them. Call it before this is
    /// used.
    pub fn begin_as(
        &mut self,
        member: u32,
        tree: TreeMark,
        mut versions: Versions,
        closed: Option<&ClosedFile>,
    ) {
        self.scratch.member = member;
        self.tree.begin(tree);
        self.shown.begin(|state| {
            versions.begin(state.stat.modified());
            state.versions = versions;
            if let Some(names) = closed.and_then(|closed| closed.names.as_ref()) {
                state.take_names(Arc::clone(names));
            }
        });
    }

    /// FILE's attributes from before the state that is shown was read.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.shown.now().stat
    }

    /// The look at FILE by which it is shown, if its times tell whether it has changed since.
    #[must_use]
    pub fn timed_look(&self) -> Option<Look> {
        let state = self.shown.now();
        state.timed.then(|| Look {
            stat: state.left(),
            settles: state.settles,
        })
    }

    /// The snapshot that is shown.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shown.now().snapshot)
    }

    /// Whether FILE has become something that can't be shown.
    #[must_use]
    pub fn is_out_of_date(&self) -> bool {
        self.saves.check_up_to_date().is_err()
    }

    /// Whether FILE is on a server.
    #[must_use]
    pub fn is_far(&self) -> bool {
        self.saves.file.is_far()
    }

    /// Whether this can be closed, and be made again later from FILE and what it [leaves](Vfs::leave): no block is being edited, and no
    /// refused text waits to be mended. The caller must know whether any file is open.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.blocks.is_empty() && self.tree.is_at_rest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;

    /// A member with scratch files that was opened to repair an interrupted save forgot the texts beside FILE.
    #[test]
    fn refused_texts_that_are_found_at_a_repair_stay_known() {
        let (dir, mut vfs) = writable(&Sample::new());
        let [found, known] = ["found", "known"].map(|name| dir.path().join(name));
        let left = |older_texts| {
            let mut news = News::default();
            news.note_older_texts(older_texts);
            Remains { files: None, news }
        };
        let texts = |vfs: &Vfs| locked(&vfs.saves.news).older_texts.clone();
        locked(&vfs.saves.news).note_older_texts(vec![found.clone()]);
        vfs.take_up(left(Vec::new()));
        assert_eq!(texts(&vfs), [found]);
        // what is left knows them from the time when FILE was first opened for writing
        vfs.take_up(left(vec![known.clone()]));
        assert_eq!(texts(&vfs), [known]);
    }
}
