//! The text that was refused last: why, and where it is kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Name, Role, TreeFile};
use crate::vfs::scratch::{Unsaved, is_blank};
use crate::vfs::{Error, Node, TREE_NAME, locked};

/// What is known of the text that was refused last, until one is saved.
#[derive(Debug)]
pub(in crate::vfs) struct Refused {
    /// The file that it was written to.
    pub(super) file: Node,
    pub(super) text: Arc<Vec<u8>>,
    pub(super) why: Error,
    /// Where it is kept on disk, or why it is in memory only.
    pub(super) kept: Result<PathBuf, String>,
    /// Which of FILE's texts it was made of.
    pub(super) made_of: u64,
}

impl Refused {
    /// Why it is not saved, and where it is.
    pub(in crate::vfs) fn describe(&self) -> String {
        let why = format!("{TREE_NAME}: {}", self.why);
        match &self.kept {
            Ok(path) => format!("{why}; your text is in {}", path.display()),
            Err(error) => format!(
                "{why}; your text is in memory only, and gone at unmount: copy tree.yaml elsewhere. It can't be kept on disk: {error}"
            ),
        }
    }

    /// The same, as it is said at unmount.
    pub(in crate::vfs) fn at_unmount(&self) -> String {
        let place = match &self.kept {
            Ok(path) => format!("it is kept in {}", path.display()),
            Err(_) => "it could not be kept on disk, and is lost with the mount".to_owned(),
        };
        let why = &self.why;
        format!("the tree that was refused is not saved ({why}): {place}")
    }

    /// Where it is kept on disk.
    pub(in crate::vfs) fn kept(&self) -> Option<&Path> {
        self.kept.as_deref().ok()
    }
}

impl TreeFile {
    /// What `tell` makes of the text that was refused last, if none has been saved since.
    pub(in crate::vfs) fn refusal<T>(&self, tell: impl FnOnce(&Refused) -> T) -> Option<T> {
        locked(&self.inner).refused.as_ref().map(tell)
    }

    /// Whether a text was refused before for the same reason, as at fsync(2) before close(2): then the user knows. `None` if the text is
    /// passed over, so that the one that was refused last is kept instead: if it is blank, or was refused before that one.
    pub(in crate::vfs) fn is_known(&self, unsaved: &Unsaved, error: &Error) -> Option<bool> {
        let again = unsaved.file.refusal().is_some();
        let inner = locked(&self.inner);
        let Some(last) = &inner.refused else {
            return Some(false);
        };
        if (again || is_blank(&unsaved.text)) && *last.text != *unsaved.text {
            return None;
        }
        Some(again && last.why.to_string() == error.to_string())
    }

    /// Notes that a text was refused, and where it is `kept`. `tree.yaml` shows one that is in no file on disk, as it can be read nowhere
    /// else.
    pub(in crate::vfs) fn refuse(
        &self,
        unsaved: &Unsaved,
        error: &Error,
        kept: Result<PathBuf, String>,
    ) {
        unsaved.file.note_refused(unsaved.version, error);
        let mut inner = locked(&self.inner);
        let in_memory = kept.is_err();
        inner.refused = Some(Refused {
            file: unsaved.file.node,
            text: Arc::clone(&unsaved.text),
            why: error.clone(),
            kept,
            made_of: unsaved.made_of,
        });
        let Name::File(named) = &inner.name else {
            return;
        };
        // what waits there to be saved, or was refused, too, is shown instead
        if in_memory && !named.file().is_dirty() {
            inner.show_current(Role::Plain);
        }
    }

    /// The refused text, if it could not be kept on disk.
    pub(in crate::vfs) fn only_in_memory(&self) -> Option<Arc<Vec<u8>>> {
        let inner = locked(&self.inner);
        inner.only_in_memory().map(|it| Arc::clone(&it.text))
    }

    /// Notes that a refused text is kept on disk now.
    pub(in crate::vfs) fn is_kept(&self, text: &Arc<Vec<u8>>, path: PathBuf) {
        let mut inner = locked(&self.inner);
        let refused = inner.refused.as_mut();
        let refused = refused.filter(|it| it.kept.is_err() && Arc::ptr_eq(&it.text, text));
        if let Some(refused) = refused {
            refused.kept = Ok(path);
        }
    }

    /// Lets go of the text that was refused, if there is one: `tree.yaml` shows FILE's again. What is written on into the text is refused.
    pub(in crate::vfs) fn revert(&self) {
        let mut inner = locked(&self.inner);
        if inner.refused.take().is_none() {
            return;
        }
        let Name::File(named) = &inner.name else {
            return;
        };
        if !named.file().shares(&inner.committed) {
            inner.show_current(Role::Stale);
        }
    }
}
