//! The text that was refused last: why, where it is kept, and whether `tree.yaml` goes on showing it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::open::is_blank;
use super::{TREE_NAME, Texts, Unsaved};
use crate::vfs::Error;

/// What is known of the text that was refused last, until one is saved.
#[derive(Debug)]
pub(in crate::vfs) struct Refused {
    text: Arc<Vec<u8>>,
    why: String,
    /// Where it is kept on disk, or why it is in memory only.
    kept: Result<PathBuf, String>,
    /// While `tree.yaml` shows it: the epoch of the text that it was made of.
    shown: Option<u64>,
}

impl Refused {
    /// Why it is not saved, and where it is.
    pub(in crate::vfs) fn describe(&self) -> String {
        let why = not_saved(&self.why);
        match &self.kept {
            Ok(path) => format!("{why}; the text is kept in {}", path.display()),
            Err(error) => format!(
                "{why}; the text is in memory only, and gone at unmount: copy tree.yaml elsewhere. It can't be kept on disk: {error}"
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

impl Texts {
    /// What is known of the text that was refused last, if none has been saved since.
    pub(in crate::vfs) fn refusal(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// The refused text that `tree.yaml` shows, and the epoch of the text that it was made of.
    fn shown_refused(&self) -> Option<(&Arc<Vec<u8>>, u64)> {
        let refused = self.refused.as_ref()?;
        Some((&refused.text, refused.shown?))
    }

    /// The text that a program gets that opens `tree.yaml`: the refused one, while that is shown so that it can be mended; else FILE's.
    pub(super) fn current(&self) -> &Arc<Vec<u8>> {
        self.shown_refused()
            .map_or(&self.committed, |shown| shown.0)
    }

    /// The epoch of the text that a file shows to a handle that opens it.
    pub(super) fn shown_epoch(&self, number: u32) -> u64 {
        let shown = self.shown_refused().filter(|_| self.is_tree(number));
        shown.map_or(self.text_epoch, |shown| shown.1)
    }

    /// Notes that a text was refused, and where it is `kept`. `tree.yaml` shows the text if it showed this one, or another refused one,
    /// before; but not if FILE has got a newer tree from another program (`stale`). A text that is in no file on disk is always shown: it
    /// can be read nowhere else. Gives the number of `tree.yaml` if it shows another text now.
    pub(in crate::vfs) fn refuse(
        &mut self,
        unsaved: &Unsaved,
        error: &Error,
        kept: Result<PathBuf, String>,
        stale: bool,
    ) -> Option<u32> {
        self.note_refused(unsaved, error);
        let showed_one = unsaved.shown || self.shown_refused().is_some();
        let stale = stale || self.is_outdated(unsaved);
        let is_shown = kept.is_err() || showed_one && !stale;
        self.refused = Some(Refused {
            text: Arc::clone(&unsaved.text),
            why: error.to_string(),
            kept,
            shown: is_shown.then_some(unsaved.text_epoch),
        });
        let number = self.lookup(TREE_NAME.as_ref())?;
        let before = self.bytes(number).ok()?;
        // `tree.yaml` goes on showing an unsaved draft of another handle until that is released
        let is_of_another = self.is_unsaved(before) && !Arc::ptr_eq(before, &unsaved.text);
        if is_of_another || Arc::ptr_eq(before, self.current()) {
            return None;
        }
        self.show(number, Arc::clone(self.current())).ok()?;
        Some(number)
    }

    /// Whether a refused text is passed over, so that the one that was refused last is kept instead: if it is blank, if it was refused
    /// before that one, or if it is a backup of `tree.yaml` that an editor moves back as it gives up.
    pub(in crate::vfs) fn makes_way(&self, unsaved: &Unsaved) -> bool {
        let again = match unsaved.through {
            Some(handle) => self.refused_through(handle).is_some(),
            None => self.file(unsaved.number).is_ok_and(|file| file.backup),
        };
        let last = self.refused.as_ref();
        (again || is_blank(&unsaved.text)) && last.is_some_and(|last| *last.text != *unsaved.text)
    }

    /// Whether a handle's text was refused before for the same reason, as at fsync(2) before close(2): then the user knows.
    pub(in crate::vfs) fn is_known(&self, unsaved: &Unsaved, error: &Error) -> bool {
        let through = unsaved.through;
        let again = through.is_some_and(|handle| self.refused_through(handle).is_some());
        let last = self.refused.as_ref();
        again
            && last.is_some_and(|last| *last.text == *unsaved.text && last.why == error.to_string())
    }

    /// The refused text, if it could not be kept on disk.
    pub(in crate::vfs) fn only_in_memory(&self) -> Option<&Arc<Vec<u8>>> {
        let refused = self.refused.as_ref().filter(|it| it.kept.is_err())?;
        Some(&refused.text)
    }

    /// Has `tree.yaml` show FILE's text to handles that open it from now on, unless it shows the only copy of one that was refused.
    pub(super) fn hide_refused(&mut self) {
        if let Some(refused) = self.refused.as_mut().filter(|it| it.kept.is_ok()) {
            refused.shown = None;
        }
    }

    /// Notes that a refused text is kept on disk now.
    pub(in crate::vfs) fn is_kept(&mut self, text: &Arc<Vec<u8>>, path: PathBuf) {
        let same = self
            .only_in_memory()
            .is_some_and(|it| Arc::ptr_eq(it, text));
        if let Some(refused) = self.refused.as_mut().filter(|_| same) {
            refused.kept = Ok(path);
        }
    }

    /// Lets go of the text that was refused, if there is one: `tree.yaml` shows FILE's again. The number of the file that shows it now.
    pub(in crate::vfs) fn revert(&mut self) -> Option<u32> {
        self.refused.take()?;
        self.show_current()
    }

    /// Takes in FILE's text after another program, or a save of an array, has changed it. Gives the number of the file that is `tree.yaml`
    /// now: a new one if the one before is open. A refused text is no longer shown, unless it is in no file on disk.
    pub(in crate::vfs) fn reloaded(&mut self, text: Arc<Vec<u8>>) -> Option<u32> {
        let mut number = self.lookup(TREE_NAME.as_ref())?;
        if *text != *self.committed {
            self.note_tree();
            self.committed = text;
            self.text_epoch = self.text_epoch.saturating_add(1);
            self.hide_refused();
            number = self.show_current()?;
        }
        let facts = self.of_file.clone();
        self.file_mut(number).ok()?.facts = facts;
        Some(number)
    }

    /// Has `tree.yaml` show the current text: as a new file, if the one before is open. Its number.
    pub(in crate::vfs) fn show_current(&mut self) -> Option<u32> {
        let number = self.lookup(TREE_NAME.as_ref())?;
        if self.is_open(number) {
            return self.supersede(number);
        }
        self.show(number, Arc::clone(self.current())).ok()?;
        Some(number)
    }
}

/// What is said of a text that is refused.
pub(in crate::vfs) fn not_saved(error: &str) -> String {
    format!("tree.yaml: {error}; not saved")
}
