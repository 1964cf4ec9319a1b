//! The text that was refused last, and is shown until a better one is saved.

use std::sync::Arc;

use super::{Number, Root, TREE_NAME, TextHandle};

/// The refused text that is shown.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) text: Arc<Vec<u8>>,
    /// Whether it is also kept in a file.
    pub(super) kept: bool,
    /// The root's when it was refused.
    pub(super) epoch: u64,
}

impl Root {
    /// Notes that `text` was refused; it goes on being shown. `kept`: there is a copy of it in a file.
    pub(in crate::vfs) fn refused(&mut self, text: Arc<Vec<u8>>, kept: bool) {
        let epoch = self.epoch;
        self.pending = Some(Pending { text, kept, epoch });
    }

    /// Has `tree.yaml` show the text that was refused in another file. Its number.
    pub(in crate::vfs) fn show_refused(&mut self) -> Option<Number> {
        let number = self.lookup(TREE_NAME.as_ref())?;
        let text = Arc::clone(&self.pending.as_ref()?.text);
        self.show(number, text).ok().map(|()| number)
    }

    /// The refused text of which there is no copy in a file.
    pub(in crate::vfs) fn only_in_memory(&self) -> Option<Arc<Vec<u8>>> {
        let pending = self.pending.as_ref().filter(|pending| !pending.kept)?;
        Some(Arc::clone(&pending.text))
    }

    /// Notes that there is a copy of a refused text in a file now.
    pub(in crate::vfs) fn is_kept(&mut self, text: &Arc<Vec<u8>>) {
        if let Some(pending) = &mut self.pending {
            pending.kept |= Arc::ptr_eq(&pending.text, text);
        }
    }

    /// The text that closing this handle would lose: a draft in which something was written, but no document has begun. With it,
    /// whether the file shows it, rather than what another handle has written since.
    #[must_use]
    pub(in crate::vfs) fn unfinished(&self, handle: &TextHandle) -> Option<(Arc<Vec<u8>>, bool)> {
        let draft = handle.draft.as_ref().filter(|draft| draft.touched)?;
        let text = &draft.bytes;
        let begun = draft.is_beginning() && !draft.is_blank() && *text != self.committed;
        if !begun || !self.is_text(handle.number) {
            return None;
        }
        let shown = Arc::ptr_eq(self.bytes(handle.number).ok()?, text);
        Some((Arc::clone(text), shown && !self.is_outdated(handle.epoch())))
    }
}
