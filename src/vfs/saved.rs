//! From a committed save to the state that follows from it.

use std::fs::File;
use std::sync::{Arc, RwLockWriteGuard};
use std::time::SystemTime;

use log::info;

use super::node::Node;
use super::{Error, Result, Vfs, locked};
use crate::asdf::check::CheckedText;
use crate::asdf::checksum::ChecksumState;
use crate::error::Error as Library;
use crate::save::edit::{BlockEdit, Edit};
use crate::save::{Committed, Method, Writer};
use crate::source::Stat;

/// That a block has other bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockChange {
    pub(super) block: usize,
    /// The file through which all of the change came, so that the kernel has it.
    pub(super) through: Option<Through>,
    /// When; [`None`] for the time of the save.
    pub(super) at: Option<SystemTime>,
}

/// A file that a change has come through, as it was when it was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Through {
    pub(super) file: Node,
    pub(super) version: u64,
    pub(super) form: u64,
}

/// A save that has happened.
#[derive(Default)]
pub(super) struct Saved<'a> {
    /// Keeps other threads from reading stored bytes, if some have changed in place.
    pub(super) _stirring: Option<RwLockWriteGuard<'a, ()>>,
    /// What the save could not do, if it is not finished: [`Error::Unfinished`].
    pub(super) unfinished: Option<Error>,
}

impl Saved<'_> {
    /// Lets stored bytes be read again.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub(super) fn finished(self) -> Result<()> {
        self.unfinished.map_or(Ok(()), Err)
    }
}

impl Vfs {
    /// Writes an edit to FILE and shows what follows from it: that a block has other bytes (`change`), whether its checksum is right
    /// (`sum`), and what was found in the text. It has to be noted before the state is shown: a thread that reads
    /// the block in between would find the state of its checksum unknown, and with `-o verify` sum it up once more.
    ///
    /// If stored bytes change in place, no request reads any from before the first change until the [`Saved`] is dropped. By then the new
    /// state is shown; if the save fails, it has moved nothing, and the old state is still true of FILE. Nothing after a save can fail.
    pub(super) fn commit(
        &self,
        writer: &mut Writer,
        edit: &Edit,
        what: &str,
        change: Option<BlockChange>,
        sum: Option<(usize, ChecksumState)>,
        text: Option<CheckedText>,
    ) -> Result<Saved<'_>> {
        let (mut writing, mut stirring) = (None, None);
        let committed = writer.commit(edit, &mut |changes_data| {
            // the writer calls this once for each way to save that it tries
            writing.get_or_insert_with(|| self.saver.writing());
            if changes_data {
                stirring.get_or_insert_with(|| self.saver.stirring());
            }
        });
        let committed = committed.inspect_err(|error| self.failed(writer, error))?;
        let replaced: Vec<usize> = edit.blocks.iter().filter_map(BlockEdit::replaced).collect();
        let old = self.state().stat.id;
        let unfinished = self.show_saved(writer, committed, what, &replaced, change, sum, text);
        if stirring.is_some() {
            // by the places of the old state other bytes would be read now
            self.earlier.seal(old);
            self.blocks.rebase(&self.state().snapshot);
        }
        Ok(Saved {
            _stirring: stirring,
            unfinished,
        })
    }

    /// Takes in that a save has failed: it may have changed FILE's times.
    pub(super) fn failed(&self, writer: &mut Writer, error: &Library) {
        self.saver.note(writer);
        if matches!(error, Library::Stale { .. }) {
            // the other program may have written within one tick of the file system's clock, so that the times do not tell
            writer.distrust();
            self.show_times(&self.state(), None);
            let named = self.saver.file.stat();
            if !named.is_ok_and(|named| named.id == self.state().stat.id) {
                // blocks may have moved in the file that has lost its name: nothing is read of it before the next look, which is the
                // next request
                self.saver.note_out_of_date(Some(&error.to_string()));
                self.refresh_soon();
            }
        } else {
            self.forgive(writer);
        }
    }

    /// Shows the snapshot that follows from a save; `change`, `sum` and `text` as in [`Vfs::commit`]. Gives what the save could not do, if
    /// it is not finished.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of what a save has changed"
    )]
    pub(super) fn show_saved(
        &self,
        writer: &Writer,
        committed: Committed<Arc<File>>,
        what: &str,
        replaced: &[usize],
        change: Option<BlockChange>,
        sum: Option<(usize, ChecksumState)>,
        text: Option<CheckedText>,
    ) -> Option<Error> {
        self.saver.note(writer);
        // the save has compared FILE with the state
        self.saver.note_out_of_date(None);
        let old = self.state();
        let (how, follows) = match committed.method {
            Method::Nothing => return None,
            Method::Replaced => (
                "by replacing the file",
                "a crash may bring the old file back",
            ),
            Method::InPlace => ("in place", "the next save or mount finishes it"),
        };
        let unfinished = committed.unfinished;
        let unfinished = unfinished.map(|why| Error::Unfinished(why, follows));
        let snapshot = old.snapshot.succeeded_by(
            committed.file,
            committed.bytes,
            committed.scan,
            replaced,
            text,
        );
        // if another program may have written FILE since it was read, it is looked at again, which a state without times tells
        let is_as_read = |found: &Stat| old.timed && found.is_untouched_since(&old.left());
        let around = committed.around.filter(|(found, _)| is_as_read(found));
        let stat = around.map(|(_, now)| now);
        if let Some((n, state)) = sum {
            snapshot.note_checksum(n, state);
        }
        let mut new = old.next(Arc::new(snapshot), stat);
        if let Some(change) = change {
            new.note_changed(change);
        }
        self.show(new);
        let what = format!("{what} {how}, {} bytes written", committed.written);
        let what = match &unfinished {
            None => what,
            Some(error) => format!("{what}; {error}"),
        };
        info!("{}: {what}", self.saver.path.display());
        *locked(&self.saver.last) = Some((SystemTime::now(), what));
        unfinished
    }
}

#[cfg(test)]
mod tests;
