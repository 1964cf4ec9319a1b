//! Whether there is room for an edit, from lengths alone, before its bytes are read, encoded or digested: a long hole in an edit
//! costs nothing to make, but would keep all other saves waiting while it is read.

use super::Writer;
use crate::error::{Error, Result};
use crate::save::edit::Edit;
use crate::save::journal::JOURNAL_LIMIT;
use crate::save::store::Store;

impl<S: Store> Writer<S> {
    /// By how many bytes `edit` would make FILE longer. Checksums of what it stores do not matter here.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if a save of it would give that for any bytes of these lengths; those of [`Plan::new`](crate::save::plan::Plan::new).
    pub fn growth(&self, edit: &Edit) -> Result<u64> {
        let plan = self.plan(edit)?;
        let growth = plan.layout().len.saturating_sub(self.layout.len);
        if plan.in_place().is_some() {
            return Ok(growth);
        }
        let limit = if self.options.grow {
            self.copy_limit(&plan)?
        } else {
            Some("-o grow=never forbids to move what is behind it".to_owned())
        };
        // what a journal holds may move in place
        match limit.filter(|_| growth > JOURNAL_LIMIT || !self.options.grow) {
            Some(why) => {
                let why = format!("the edit makes the file {growth} bytes longer, but {why}");
                Err(Error::NoRoom { why, limit: true })
            }
            None => Ok(growth),
        }
    }
}
