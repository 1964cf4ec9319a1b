//! The name `tree.yaml` is never gone: FILE has a tree, whatever becomes of the file that has the name.
//!
//! A process that renames or unlinks that file finds the name free for a while, see [`Vacancy`]. All others, and later that process too,
//! find a new file there that shows FILE's tree. A file that is made under the name replaces the new one. The name is also free no more
//! when a rename over it is refused, or when a process opens the new file to write to it.
//!
//! A program may have looked up a file that loses the name before it opens it. Told that this one is gone, the kernel looks the name up
//! again, but once only, and a program that makes `tree.yaml` anew changes twice what has the name. So the files that had it last can be
//! read for a while.

use std::ffi::OsStr;
use std::sync::Arc;

use super::{FileFacts, FileKind, RootFile, TREE_NAME, Texts, Vacancy};

/// How many files that had the name last stay known, with the one that has it.
const TREES: usize = 3;
/// A file stays known only if it has at most so many bytes.
const KNOWN_LEN: u64 = 1 << 20;

impl Texts {
    /// Whether a process finds a name free that has a file.
    #[must_use]
    pub(in crate::vfs) fn is_free_to(&self, name: &OsStr, process: impl FnOnce() -> u32) -> bool {
        let vacancy = self.vacancy.as_ref().filter(|_| name == TREE_NAME);
        vacancy.is_some_and(|vacancy| vacancy.is_to(process))
    }

    /// Whether the name of a file is free to a process.
    #[must_use]
    pub(in crate::vfs) fn is_vacant(&self, number: u32) -> bool {
        self.has_vacancy() && self.is_tree(number)
    }

    /// Has all find the name taken.
    pub(in crate::vfs) fn end_vacancy(&mut self) {
        self.vacancy = None;
    }

    fn has_vacancy(&self) -> bool {
        self.vacancy.as_ref().is_some_and(Vacancy::lasts)
    }

    /// Whether nothing can be made under a name. The kernel asks to make a file only if it was told that there is none.
    pub(in crate::vfs) fn is_taken(&self, name: &OsStr) -> bool {
        self.names.contains_key(name) && !(name == TREE_NAME && self.has_vacancy())
    }

    /// Gives the name, if it is `tree.yaml`, to a new file in the place of the one that a process has taken away.
    pub(super) fn fill(&mut self, name: &OsStr, process: u32) {
        if name == TREE_NAME && self.add_tree().is_some() {
            self.vacancy = Some(Vacancy::to(process));
        }
    }

    /// Gives the name `tree.yaml` to a new file that shows FILE's text. The old one stays for its handles: a program that has read a part
    /// of the old text can read the rest, and what it saves is refused.
    pub(super) fn supersede(&mut self, number: u32) -> Option<u32> {
        let new = self.add_tree()?;
        let opened = self.opened;
        self.file_mut(number).ok()?.superseded = Some(opened);
        self.drop_name(number);
        Some(new)
    }

    /// The files that were `tree.yaml` and still have another name: they have one link less than the kernel knows of.
    pub(in crate::vfs) fn superseded(&self) -> Vec<u32> {
        let files = self.files.iter();
        let linked = files.filter(|(_, file)| file.superseded.is_some() && file.names > 0);
        linked.map(|(&number, _)| number).collect()
    }

    /// A new file that has the name `tree.yaml`. Its number.
    fn add_tree(&mut self) -> Option<u32> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        self.hide_refused();
        let (text, facts) = (Arc::clone(self.current()), self.of_file.clone());
        let file = RootFile::new(FileKind::File, text, facts, self.text_epoch);
        self.files.insert(number, file);
        self.names.insert(TREE_NAME.into(), number);
        Some(number)
    }

    /// Notes of which text the file is that is `tree.yaml`: before it may lose that name, or FILE gets another text. If it loses the name,
    /// it is a backup.
    pub(super) fn note_tree(&mut self) {
        let tree = self.lookup(TREE_NAME.as_ref());
        let shown = tree.map(|number| (number, self.shown_epoch(number)));
        if let Some((number, text_epoch)) = shown
            && let Some(file) = self.files.get_mut(&number)
        {
            file.backup = true;
            file.text_epoch = text_epoch;
            if self.trees.back() != Some(&number) {
                self.trees.push_back(number);
            }
        }
        if self.trees.len() > TREES
            && let Some(oldest) = self.trees.pop_front()
        {
            self.forget_if_gone(oldest);
        }
    }

    /// Whether a file that has no name any more is one that had the name `tree.yaml` just now.
    pub(super) fn stays_known(&self, number: u32) -> bool {
        let is_short = |file: &RootFile| file.len() <= KNOWN_LEN;
        self.trees.contains(&number) && self.file(number).is_ok_and(is_short)
    }

    /// Notes that a file gets a name. One that becomes `tree.yaml` is no backup any more, and has FILE's owner, group and mode instead of
    /// those of the process that made it.
    pub(super) fn note_name(&mut self, number: u32, new: &OsStr) {
        if let Some(file) = self.files.get_mut(&number)
            && new == TREE_NAME
        {
            file.backup = false;
            file.facts = FileFacts {
                mtime: file.facts.mtime,
                ..self.of_file.clone()
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OTHER, TEXT, WRITE, root};
    use super::*;
    use crate::vfs::{Access, Error};

    /// It was said to be outdated, as it had been made before another program had changed FILE.
    #[test]
    fn a_tree_that_is_renamed_away_is_of_the_text_that_it_shows() {
        let mut root = root();
        root.reloaded(Arc::new(OTHER.to_vec())).unwrap();
        root.rename(TREE_NAME.as_ref(), "t".as_ref(), 0).unwrap();
        let handle = root.open(0, WRITE).unwrap();
        root.write(handle, 0, b"#", false).unwrap();
        let unsaved = root.begin_becoming(0).unwrap().unwrap();
        assert!(!root.is_outdated(&unsaved));
        root.end_becoming(0);
        root.reloaded(Arc::new(TEXT.to_vec())).unwrap();
        let unsaved = root.begin_becoming(0).unwrap().unwrap();
        assert!(root.is_outdated(&unsaved));
    }
    /// A link of `tree.yaml` was of the text that FILE had when the link was made.
    #[test]
    fn a_link_of_the_tree_is_of_the_text_that_it_shows() {
        for is_open in [false, true] {
            let mut root = root();
            root.link(0, "x".as_ref()).unwrap();
            let reader = is_open.then(|| root.open(0, Access::default()).unwrap());
            root.reloaded(Arc::new(OTHER.to_vec())).unwrap();
            reader.map(|reader| root.release(reader));
            let tree = root.lookup(TREE_NAME.as_ref()).unwrap();
            assert_eq!(tree == 0, !is_open);
            root.unlink(TREE_NAME.as_ref(), 0).unwrap();
            let handle = root.open(0, WRITE).unwrap();
            root.write(handle, 0, b"#", false).unwrap();
            let unsaved = root.begin_becoming(0).unwrap().unwrap();
            assert_eq!(root.is_outdated(&unsaved), is_open);
        }
    }

    /// A program that looked while another one made `tree.yaml` anew found a stale file, and found the next one stale, too.
    #[test]
    fn a_file_that_has_just_lost_the_name_can_be_read() {
        let mut root = root();
        let read = |root: &mut Texts, number| {
            let handle = root.open(number, Access::default())?;
            let text = root.view(handle);
            root.release(handle);
            text.map(|text| text.to_vec())
        };
        let mut last = 0;
        for _ in 0..2 {
            root.unlink(TREE_NAME.as_ref(), 7).unwrap();
            let filler = root.lookup(TREE_NAME.as_ref()).unwrap();
            let made = root.create(TREE_NAME.as_ref(), root.of_file.clone());
            for gone in [last, filler] {
                assert_eq!(root.attr(gone).unwrap().nlink, 0);
                assert_eq!(read(&mut root, gone).unwrap(), TEXT);
                assert!(matches!(root.open(gone, WRITE), Err(Error::NotFound)));
            }
            last = made.unwrap();
        }
        assert!(matches!(root.attr(0), Err(Error::NotFound)));
        assert_eq!(root.room.used(), 0);
    }
}
