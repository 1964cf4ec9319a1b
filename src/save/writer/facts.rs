//! Owner and mode of FILE, changed without a change of its bytes.

use std::io::{self, ErrorKind};

use super::Writer;
use crate::error::Result;
use crate::save::store::{Access, Facts, Store};
use crate::source::Stat;

/// The permission bits of a mode, with set-id and sticky bits.
const MODE_MASK: u32 = 0o7777;
/// The owner's right to write.
const OWNER_WRITES: u32 = 0o200;

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

    /// FILE, open for writing after this was `refused`: because its owner, who this process acts for, has taken the right to write from it.
    /// What was open for writing before that writes on, as to any file; so the owner gets the right back for as long as the open takes.
    pub(super) fn open_as_owner(&self, refused: io::Error) -> io::Result<S::File> {
        let stat = self.store.stat(&self.file)?;
        let is_taken = stat.uid == self.store.user() && stat.mode & OWNER_WRITES == 0;
        if refused.kind() != ErrorKind::PermissionDenied || !is_taken {
            return Err(refused);
        }
        let own = stat.mode & MODE_MASK;
        let set = |mode| {
            let mode = Some(mode);
            self.store.set_facts(
                &self.file,
                Facts {
                    mode,
                    ..Facts::default()
                },
            )
        };
        set(own | OWNER_WRITES)?;
        let opened = self.store.open(&self.name, Access::Write);
        set(own)?;
        opened
    }
}
