//! The files of the root while FILE is closed: a file that is one of many is closed when nothing of it is used.

use std::sync::Arc;

use super::Texts;
use crate::vfs::hash_of;

/// The files of the root without FILE's text, which is read again.
#[derive(Debug)]
pub(in crate::vfs) struct LeftTexts {
    texts: Texts,
    /// A hash of FILE's text.
    committed: u64,
    /// The scratch files that are not to be lost without a word.
    described: Vec<String>,
}

impl Texts {
    /// Whether no handle is open and no text waits to be mended, so that FILE can be closed.
    #[must_use]
    pub(in crate::vfs) fn is_at_rest(&self) -> bool {
        self.open.is_empty() && self.refused.is_none()
    }

    /// Takes the files out, if there ever was one beside the first `tree.yaml`: the kernel knows them by their numbers, too.
    pub(in crate::vfs) fn leave(&mut self) -> Option<LeftTexts> {
        let tree = self.lookup(super::TREE_NAME.as_ref())?;
        if self.next == 1 {
            return None;
        }
        let described = self.described();
        let (facts, room) = (self.of_file.clone(), Arc::clone(&self.room));
        let next = Self::new(Arc::default(), facts, room);
        let mut texts = std::mem::replace(self, next);
        let committed = hash_of(&*std::mem::take(&mut texts.committed));
        // the file is there: it has just been found
        let _ = texts.show(tree, Arc::default());
        Some(LeftTexts {
            texts,
            committed,
            described,
        })
    }

    /// Takes files that were left, with the text and the attributes that FILE has now.
    pub(in crate::vfs) fn take_up(&mut self, left: LeftTexts) {
        let LeftTexts {
            mut texts,
            committed,
            ..
        } = left;
        let epoch = texts.epoch;
        texts.of_file = self.of_file.clone();
        let same = hash_of(&*self.committed) == committed;
        // nothing is open that has to be told
        let _ = texts.reloaded(Arc::clone(&self.committed));
        if same {
            texts.epoch = epoch;
        }
        *self = texts;
    }
}

impl LeftTexts {
    /// The files that hold what is nowhere else and that no editor has made, as [`Texts::described`] has them.
    pub(in crate::vfs) fn described(&self) -> Vec<String> {
        self.described.clone()
    }
}
