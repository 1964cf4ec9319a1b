//! What a handle reads from, and whether that still has the form that it had when the handle was opened.
//!
//! A program understands the bytes of an array, a FITS file or a picture by what it read first: an NPY or FITS header, or the datatype
//! and shape in the tree; and the lines of `info/stats.tsv` by the arrays that they are of. If a save or another program has given an
//! array another form, a handle from before can't read on (`ESTALE`). It can if only elements have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::edit::DataHandle;
use super::hdus;
use super::node::Node;
use super::{Reading, Result, State, Vfs, hash_of, index};
use crate::error::{Error as Library, Place};
use crate::source::Source;

impl State {
    /// A hash of the form of a file, if it has one; the same as long as the process lives.
    pub(super) fn form(&self, file: Node) -> Option<u64> {
        match file {
            Node::Array(number, format) => {
                let data = self.array_data(number)?;
                let header = format.len(data).saturating_sub(data.bin_len());
                Some(hash_of((header, data.form())))
            }
            Node::View(view, number) => self.form_of_view(view, number),
            Node::StatsTsv => Some(self.form_of_stats()),
            _ => None,
        }
    }
}

impl Vfs {
    /// The source that a handle reads from now, with the edits that are not saved yet.
    ///
    /// # Errors
    /// [`Library::Stale`] if the file has another form than when it was opened, unless this handle has emptied it; and for a file on a
    /// server after any change, as a program must not read half of each state.
    pub(super) fn source_of(
        &self,
        open: &DataHandle,
        _reading: &Reading<'_>,
    ) -> Result<Arc<dyn Source>> {
        let state = self.state();
        let changed = |why: &str| {
            let why = why.to_owned();
            Err(Library::Stale { why }.into())
        };
        if state.file_epoch != open.file_epoch && self.saver.file.is_far() {
            return changed("the file has changed since this was opened: open it again");
        }
        let writes = open.writes.as_ref();
        let is_own = writes.is_some_and(|writes| writes.has_emptied.load(Ordering::Relaxed));
        if !is_own && state.form(open.node) != open.form {
            return changed(
                "the tree has other arrays here than when this was opened, by name, datatype, shape or order; open it again",
            );
        }
        let snapshot = &state.snapshot;
        let missing = || Library::corrupt(Place::File, "the tree no longer has this array");
        let source: Result<Arc<dyn Source>, Library> = match open.node {
            Node::Block(n) => match self.edits.get(index(n)) {
                Some(draft) => Ok(draft.overlay.clone()),
                None => snapshot.block(index(n)),
            },
            Node::Array(number, format) => {
                let i = state.array_index(number).map_err(|_| missing())?;
                self.array_source(snapshot, i, format)
            }
            Node::View(view, number) => self.view_source(&state, view, number),
            Node::StatsTsv => Ok(state.stats_source()),
            node => hdus::source(snapshot, node).map_err(|_| missing()),
        };
        Ok(source?)
    }
}
