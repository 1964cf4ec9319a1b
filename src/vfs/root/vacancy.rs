//! The name `tree.yaml` is never gone: FILE has a tree whatever becomes of the file that has the name.
//!
//! A process that renames or unlinks that file wants to make it anew: editors do so to save, and `mv` and `tar` demand that there is
//! none then (`O_EXCL`). So for a while that process alone finds the name free. To all others, and later to itself, it is a new file
//! that shows FILE's tree; what is made under the name takes the place of that. A save over the name that is refused ends it too, and
//! so does a process that opens the new file to write to it.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Content, File, Number, Root, TREE_NAME};

/// How long the name is free to the process that has taken it away. Between the two calls of an editor lie microseconds.
const FREE_FOR: Duration = Duration::from_secs(2);

/// That a process has taken the name away.
#[derive(Debug)]
pub(super) struct Vacancy {
    process: u32,
    since: Instant,
}

impl Root {
    /// Whether a process finds a name free that is not.
    #[must_use]
    pub(in crate::vfs) fn is_free_to(&self, name: &OsStr, process: impl FnOnce() -> u32) -> bool {
        let vacancy = self.vacancy().filter(|_| name == TREE_NAME);
        vacancy.is_some_and(|vacancy| vacancy.process == process())
    }

    /// Whether the name of a file is free to a process.
    #[must_use]
    pub(in crate::vfs) fn is_vacant(&self, number: Number) -> bool {
        self.vacancy().is_some() && self.is_tree(number)
    }

    /// Has all find the name taken.
    pub(in crate::vfs) fn end_vacancy(&mut self) {
        self.vacancy = None;
    }

    fn vacancy(&self) -> Option<&Vacancy> {
        let vacancy = self.vacancy.as_ref();
        vacancy.filter(|vacancy| vacancy.since.elapsed() < FREE_FOR)
    }

    /// Whether nothing can be made under a name. The kernel asks for that only where it was told that there is nothing.
    pub(in crate::vfs) fn is_taken(&self, name: &OsStr) -> bool {
        self.names.contains_key(name) && !(name == TREE_NAME && self.vacancy().is_some())
    }

    /// Gives the name, if it is `tree.yaml`, to a new file in the place of the one that a process has taken away.
    pub(super) fn fill(&mut self, name: &OsStr, process: u32, gone: Number) -> Option<Number> {
        if name != TREE_NAME {
            return None;
        }
        let number = self.add_tree(gone)?;
        self.vacancy = Some(Vacancy {
            process,
            since: Instant::now(),
        });
        Some(number)
    }

    /// Gives the name `tree.yaml` to a new file that shows FILE's text, and leaves the one that had it to its handles: a program
    /// that has read a part of the old text reads the rest of it, and what it saves is refused.
    pub(super) fn supersede(&mut self, number: Number) -> Option<Number> {
        let new = self.add_tree(number)?;
        self.file_mut(number).ok()?.superseded = true;
        self.drop_name(number);
        Some(new)
    }

    /// A new file that has the name `tree.yaml` in the place of another one. Its number.
    fn add_tree(&mut self, other: Number) -> Option<Number> {
        let facts = self.file(other).ok()?.facts.clone();
        let number = self.next;
        self.next = number.checked_add(1)?;
        // a refused text that is nowhere else stays in sight
        let text = self.only_in_memory();
        let text = text.unwrap_or_else(|| Arc::clone(&self.committed));
        let file = File::new(Content::Bytes(text), facts, self.epoch);
        self.files.insert(number, file);
        self.names.insert(TREE_NAME.into(), number);
        Some(number)
    }

    /// Undoes that a name was given to another file.
    pub(super) fn put_back(&mut self, name: &OsStr, replaced: Option<Number>) {
        match replaced {
            Some(number) => self.names.insert(name.to_owned(), number),
            None => self.names.remove(name),
        };
    }

    /// Lets go of the file whose name another one was given, while it was free to a process.
    pub(super) fn has_replaced(&mut self, replaced: Option<Number>) {
        if let Some(number) = replaced {
            self.vacancy = None;
            self.drop_name(number);
        }
    }

    /// Notes that a file is to be renamed: `tree.yaml` becomes a backup, and what becomes `tree.yaml` is none any more.
    pub(super) fn note_backup(&mut self, number: Number, new: &OsStr) {
        let backup = new != TREE_NAME && self.is_tree(number);
        if let Some(file) = self.files.get_mut(&number)
            && (backup || new == TREE_NAME)
        {
            file.backup = backup;
        }
    }

    /// Whether that file was `tree.yaml` and is as it was then.
    #[must_use]
    pub(in crate::vfs) fn is_backup(&self, number: Number) -> bool {
        self.file(number).is_ok_and(|file| file.backup)
    }
}
