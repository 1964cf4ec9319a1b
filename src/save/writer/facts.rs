//! Owner and mode of FILE, changed without a change of its bytes.

use super::Writer;
use crate::error::Result;
use crate::save::store::{Facts, Store};
use crate::source::Stat;

impl<S: Store> Writer<S> {
    /// Gives FILE another owner, group or mode. FILE's attributes behind that.
    ///
    /// # Errors
    /// [`Error::Stale`](crate::error::Error::Stale) if it is not the file any more that was read; [`Error::Io`](crate::error::Error::Io)
    /// of the system, which may permit it not.
    pub fn set_facts(&mut self, facts: Facts) -> Result<Stat> {
        self.compare()?;
        let failed = |cause| self.error("changing its owner or mode", cause);
        let set = self.store.set_facts(&self.file, facts);
        set.map_err(failed)?;
        let stat = self.store.stat(&self.file).map_err(failed)?;
        if stat.has_bytes_of(&self.baseline.stat) {
            self.baseline.stat = stat;
        }
        Ok(stat)
    }
}
