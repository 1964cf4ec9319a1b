//! The files of the root while FILE is closed, as one of many files is while none of it is used.

use std::sync::Arc;

use super::Texts;
use crate::vfs::hash_of;

impl Texts {
    /// Whether no handle is open and no text waits to be mended, so that FILE can be closed.
    #[must_use]
    pub(in crate::vfs) fn is_at_rest(&self) -> bool {
        self.open.is_empty() && self.refused.is_none()
    }

    /// FILE's text, if the first `tree.yaml` shows it and there never was another file.
    pub(in crate::vfs) fn only_text(&self) -> Option<&Arc<Vec<u8>>> {
        let shown = self.bytes(0).ok()?;
        let only = self.next == 1 && Arc::ptr_eq(shown, &self.committed);
        only.then_some(shown)
    }

    /// Whether all pages that the kernel has of the first `tree.yaml` are of FILE's text, if it `had` only such pages when this was made.
    pub(in crate::vfs) fn keeps_pages(&self, had: bool) -> bool {
        self.pages_are_of_text.unwrap_or(had)
    }

    /// Takes the files out, if there ever was one beside the first `tree.yaml`: the kernel may know it by its number. Gives them without
    /// FILE's text, which is read again later, and a hash of that text.
    pub(in crate::vfs) fn leave(&mut self) -> Option<(Self, u64)> {
        let tree = self.lookup(super::TREE_NAME.as_ref())?;
        if self.next == 1 {
            return None;
        }
        let (facts, room) = (self.of_file.clone(), Arc::clone(&self.room));
        let next = Self::new(Arc::default(), facts, room);
        let mut texts = std::mem::replace(self, next);
        let committed = hash_of(&*std::mem::take(&mut texts.committed));
        for former in std::mem::take(&mut texts.trees) {
            texts.forget_if_gone(former);
        }
        // the file is there: it has just been found
        let _ = texts.show(tree, Arc::default());
        Some((texts, committed))
    }

    /// Takes up files that were left when FILE's text had the hash `committed`. They get the text and attributes that FILE has now.
    pub(in crate::vfs) fn take_up(&mut self, mut texts: Self, committed: u64) {
        let text_epoch = texts.text_epoch;
        texts.of_file = self.of_file.clone();
        let same = hash_of(&*self.committed) == committed;
        // nothing is open that has to be told
        let _ = texts.reloaded(Arc::clone(&self.committed));
        if same {
            texts.text_epoch = text_epoch;
        }
        *self = texts;
    }

    /// Whether there are others than `tree.yaml`.
    #[must_use]
    pub(in crate::vfs) fn has_scratch(&self) -> bool {
        self.names.len() > 1
    }

    /// Drops all others than `tree.yaml`. Numbers are not given again: the kernel knows files by them.
    pub(in crate::vfs) fn drop_scratch(&mut self) {
        let others = self
            .names
            .extract_if(.., |name, _| name != super::TREE_NAME);
        let others: Vec<_> = others.map(|(_, number)| number).collect();
        for number in others {
            self.drop_name(number);
        }
    }
}
