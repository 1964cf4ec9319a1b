//! What was written and is not saved: refused texts, and where they are kept until they can be saved.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::{info, warn};

use super::edit::{DataHandle, block_of};
use super::node::Node;
use super::{Error, Invalidation, Result, Vfs, locked};
use crate::error::Error as Library;

/// So many files are named of those that a block was written through.
const MAX_PATHS: usize = 3;

impl Vfs {
    /// Keeps a text that could not be saved. `shown`: `tree.yaml` goes on showing it; but not instead of another program's tree, if
    /// it can be had elsewhere. One that can't be kept on disk is always shown, as that is where it can be had.
    pub(super) fn keep_refused(&self, text: &Arc<Vec<u8>>, error: &Error, shown: bool) {
        let why = format!("tree.yaml: {error}; not saved");
        let kept = self.put_aside(text).map_err(|error| error.to_string());
        if let Err(error) = &kept {
            warn!("{why}; the text is in memory only, and gone at unmount: {error}");
        }
        let stale = matches!(error, Error::Library(Library::Stale { .. }));
        if stale {
            self.refresh_soon();
        }
        let mut root = locked(&self.root);
        // an older text of which there is no copy makes way for this one: the last that was refused is what is kept
        let in_sight = kept.is_err() || root.only_in_memory().is_some();
        if in_sight || shown && !stale {
            root.refused(Arc::clone(text), kept.is_ok());
        }
        if in_sight
            && !shown
            && let Some(number) = root.show_refused()
        {
            self.tell(Invalidation::Inode(Node::Text(number).ino()));
        }
        drop(root);
        locked(&self.history).text_is_refused(why, kept);
    }

    /// Keeps a text on disk: the path of its file.
    fn put_aside(&self, text: &[u8]) -> Result<PathBuf> {
        let name = locked(self.writer()?).keep_rejected(text)?;
        Ok(self.path.parent().unwrap_or(Path::new("")).join(name))
    }

    /// Tries once more to keep a refused text that is in memory only.
    ///
    /// # Errors
    /// Why it still can't be kept.
    pub fn rescue(&self) -> Result<()> {
        let Some(text) = locked(&self.root).only_in_memory() else {
            return Ok(());
        };
        let path = self.put_aside(&text)?;
        info!(
            "the text that was refused is kept in {} now",
            path.display()
        );
        locked(&self.root).is_kept(&text);
        locked(&self.history).text_is_kept(path);
        Ok(())
    }

    /// Notes that what was written into a block through these files is given up.
    pub(super) fn note_loss(&self, block: usize, files: &[Node], why: &dyn Display) {
        let mut paths: Vec<String> = files.iter().map(|file| self.path_of(*file)).collect();
        paths.sort_unstable();
        let more = paths.len().saturating_sub(MAX_PATHS);
        paths.truncate(MAX_PATHS);
        if more > 0 {
            paths.push(format!("{more} more"));
        }
        let why = format!("{}: {why}; what was written is given up", paths.join(", "));
        warn!("{why}");
        locked(&self.history).give_up(block, why);
    }

    /// Notes that what was stored in a map of a file is not taken: no call tells its process.
    pub(super) fn note_lost_page(&self, open: &DataHandle, why: &Error) {
        if let Some(block) = open.block {
            self.note_loss(block, &[open.node], why);
        }
    }

    /// What became of a change of a block, with a note of why it was refused if it was: an errno does not say it.
    pub(super) fn noted<T>(&self, node: Node, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && let Some(block) = block_of(&self.state(), node)
        {
            let why = format!("{}: {error}", self.path_of(node));
            locked(&self.history).refuse(block, why);
        }
        done
    }

    /// To be called when the mount has ended: says in the log what was not saved. Whether that is nothing.
    #[must_use]
    pub fn end(&self) -> bool {
        let path = self.path.display();
        if let Err(error) = self.rescue() {
            warn!("{path}: the tree that was refused is lost: {error}");
        }
        for draft in self.drafts.touched() {
            let why = "the mount has ended before it was closed";
            self.note_loss(draft.block, &draft.files(), &why);
        }
        for file in self.scratch() {
            warn!("{path}: unmounted, and with it went what was in its memory only: {file}");
        }
        let unsaved = self.unsaved();
        for line in &unsaved {
            warn!("{path}: unmounted, but {line}");
        }
        unsaved.is_empty()
    }

    /// What was written and is not saved, a line each, for those who unmount.
    #[must_use]
    pub fn unsaved(&self) -> Vec<String> {
        locked(&self.history).unsaved()
    }

    /// Files of the root that are in memory only and that no editor has made, with their lengths.
    #[must_use]
    pub fn scratch(&self) -> Vec<String> {
        let root = locked(&self.root);
        let files = root.files_of_users();
        files
            .map(|(name, len)| format!("{} ({len} bytes)", name.display()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
