//! Whether a file still has the form that it had when a handle opened it.
//!
//! A program understands the bytes of an array, a FITS file or a picture by what it read first: an NPY or FITS header, or the datatype
//! and shape in the tree; and the lines of `info/stats.tsv` by the arrays that they are of. If a save or another program has given an
//! array another form, a handle from before can't read on (`ESTALE`). It can if only elements have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::edit::DataHandle;
use super::format::Format;
use super::node::Node;
use super::{Reading, Result, State, Vfs, hash_of};
use crate::error::Error as Library;
use crate::source::Source;

impl State {
    /// A hash of the form of a file, if it has one; the same as long as the process lives.
    pub(super) fn form(&self, file: Node) -> Option<u64> {
        match file {
            Node::Array(number, format) => {
                let data = self.array_data(number)?;
                let header = data.npy_len().saturating_sub(data.bin_len());
                let header = match format {
                    Format::Npy => Some(header),
                    Format::Bin => None,
                };
                Some(hash_of((header, data.form())))
            }
            Node::View(view, number) => self.form_of_view(view, number),
            Node::StatsTsv => Some(self.form_of_stats()),
            _ => None,
        }
    }
}

impl Vfs {
    /// The source that a handle reads from now.
    ///
    /// # Errors
    /// [`Library::Stale`] if the file has another form than when it was opened, unless this handle has emptied it; and for a file on a
    /// server after any change, as a program must not read half of each state.
    pub(super) fn source_of(
        &self,
        open: &DataHandle,
        reading: &Reading<'_>,
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
        Ok(self.data_source(&state, open.node, reading)?)
    }
}
