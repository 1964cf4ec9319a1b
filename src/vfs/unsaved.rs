//! What was written and is not saved: texts that were refused, and edits of blocks that were given up.

use std::fmt::Display;
use std::time::Duration;

use log::{info, warn};

use super::data::block_of;
use super::node::Node;
use super::scratch::Unsaved;
use super::tree_file::Refused;
use super::{Error, Result, Vfs, locked};
use crate::error::Error as Library;

/// The longest wait for handles to be released: less than the time after which `-u` says that it waits.
const CLOSING: Duration = Duration::from_millis(500);

/// What the end of the mount loses, a line each.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// What was written and is not saved.
    pub unsaved: Vec<String>,
    /// Files that are in the mount only, and that no editor has made, with their lengths.
    pub scratch: Vec<String>,
}

impl Losses {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unsaved.is_empty() && self.scratch.is_empty()
    }

    /// Says in the log what the mount of the file at `path` has lost. Whether nothing was written that is not saved.
    pub(super) fn say(&self, path: &dyn Display) -> bool {
        for file in &self.scratch {
            warn!("{path}: unmounted; {file} existed only in the mount and is lost");
        }
        for line in &self.unsaved {
            warn!("{path}: unmounted, but {line}");
        }
        self.unsaved.is_empty()
    }
}

impl Vfs {
    /// Keeps a text that could not be saved, on disk if possible, with the reason.
    pub(super) fn refuse_text(&self, unsaved: &Unsaved, error: &Error) {
        // Held until `TreeFile` knows where the text is kept: meanwhile a save by another thread would remove that file, or another refused
        // text would replace it.
        let mut writer = self.saver.writer();
        if self.tree.makes_way(unsaved) {
            return;
        }
        let is_known = self.tree.is_known(unsaved, error);
        let kept = match &mut writer {
            Ok(writer) => self.saver.put_aside(writer, &unsaved.text),
            Err(error) => Err(error.clone()),
        };
        let kept = kept.map_err(|error| error.to_string());
        if matches!(error, Error::Library(Library::Stale { .. })) {
            self.refresh_soon();
        }
        self.tree.refuse(unsaved, error, kept);
        drop(writer);
        if let Some(what) = self.tree.refusal(Refused::describe).filter(|_| !is_known) {
            warn!("{}: refused: {what}", self.saver.path.display());
        }
        if let Some(tell) = self.on_refusal.get().filter(|_| !is_known) {
            tell(error.clone());
        }
    }

    /// Waits until the texts of closed descriptors have been refused, if they are to be: the kernel lets close(2) return before it releases
    /// the handle. Does not wait long: another process may have inherited the descriptor, so that no release comes.
    pub(super) fn wait_for_closing(&self) {
        self.tree.wait_for_closing(CLOSING);
    }

    /// Tries once more to keep a refused text that is in memory only.
    ///
    /// # Errors
    /// Why it still can't be kept.
    pub fn rescue(&self) -> Result<()> {
        if self.tree.only_in_memory().is_none() {
            return Ok(());
        }
        let mut writer = self.saver.writer()?;
        // asked again with the lock: another thread may have kept the text meanwhile
        let Some(text) = self.tree.only_in_memory() else {
            return Ok(());
        };
        let path = self.saver.put_aside(&mut writer, &text)?;
        info!(
            "{}: the text that was refused is kept in {} now",
            self.saver.path.display(),
            path.display()
        );
        self.tree.is_kept(&text, path);
        Ok(())
    }

    /// Has `tree.yaml` show FILE's tree again instead of a text that was refused; that stays where it is kept on disk.
    ///
    /// # Errors
    /// Why the text can't be kept, if it is in memory only, and unless it may be `lost`.
    pub(super) fn revert(&self, lost: bool) -> Result<()> {
        if !lost {
            self.rescue()?;
        }
        // a second text was refused after the first had been rescued
        if !lost && self.tree.only_in_memory().is_some() {
            return Err(Error::Busy("a text has just been refused"));
        }
        self.tree.revert();
        Ok(())
    }

    /// Notes that what was written into a block through a file could not be saved, why, and what became of it.
    pub(super) fn note_loss(&self, block: usize, file: Node, why: &dyn Display, fate: &str) {
        let path = self.path_of(file);
        let why = format!("{path}: {why}; {fate}");
        warn!("{}: {why}", self.saver.path.display());
        locked(&self.blocks.news).give_up(block, file, why);
    }

    /// Passes on what became of a change of a block or array. Notes the reason of a refusal for `info/status`, as an errno does not tell it.
    pub(super) fn noted<T>(&self, node: Node, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            let block = block_of(&self.state(), node);
            let why = format!("{}: {error}", self.path_of(node));
            locked(&self.blocks.news).refuse(block, why);
        }
        done
    }

    /// Says in the log what was not saved, when the mount has ended. Whether everything was saved.
    #[must_use]
    pub fn end(&self) -> bool {
        let path = self.saver.path.display();
        if let Err(error) = self.rescue() {
            warn!("{path}: the tree that was refused is lost: {error}");
        }
        for written in self.blocks.unsaved() {
            let why = "the mount has ended before it was closed";
            self.note_loss(written.block, written.file, &why, written.fate());
        }
        self.losses().say(&path)
    }

    /// What the end of the mount would lose.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let text = self.tree.refusal(Refused::at_unmount);
        let edits = locked(&self.blocks.news).unsaved();
        let scratch = self.options.scratch.described(self.member);
        Losses {
            unsaved: text.into_iter().chain(edits).collect(),
            scratch,
        }
    }
}

#[cfg(test)]
mod tests;
