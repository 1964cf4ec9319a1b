//! What scratch files may take of memory, all together.

use super::Texts;
use crate::vfs::Error;

/// What each name of a scratch file costs of the limit, beside the bytes of the file.
const NAME_COST: u64 = 1024;

impl Drop for Texts {
    fn drop(&mut self) {
        for file in self.files.values() {
            self.room.give(file.charged);
        }
    }
}

impl Texts {
    /// What a file of `len` bytes costs of the limit: its bytes and its names. `tree.yaml` costs neither its bytes nor that name.
    fn cost(&self, number: u32, len: u64) -> Result<u64, Error> {
        let names = u64::from(self.file(number)?.names);
        let (names, len) = if self.is_tree(number) {
            (names.saturating_sub(1), 0)
        } else {
            // a file without a name lives on in its handles
            (names.max(1), len)
        };
        Ok(names.saturating_mul(NAME_COST).saturating_add(len))
    }

    /// Checks that the limit allows a file to have `len` bytes. A change that makes it cheaper is always allowed.
    pub(super) fn check_room(&self, number: u32, len: u64) -> Result<(), Error> {
        let cost = self.cost(number, len)?;
        let before = self.file(number)?.charged;
        let used = self.room.used().saturating_sub(before);
        if used.saturating_add(cost) > self.room.limit() && cost > before {
            return Err(Error::ScratchFull(self.room.limit()));
        }
        Ok(())
    }

    /// Counts what a file costs, if the limit allows it.
    pub(super) fn charge(&mut self, number: u32) -> Result<(), Error> {
        self.check_room(number, self.file(number)?.len())?;
        self.recount(number);
        Ok(())
    }

    /// Counts what a file costs now, whether the limit allows it or not.
    pub(super) fn recount(&mut self, number: u32) {
        let file = self.file(number);
        let Ok(cost) = file.and_then(|file| self.cost(number, file.len())) else {
            return;
        };
        if let Some(file) = self.files.get_mut(&number) {
            let before = std::mem::replace(&mut file.charged, cost);
            self.room.give(before);
            // the limit was checked before, and one text of any length may be renamed away
            let _ = self.room.take(cost);
        }
    }

    /// Checks that a file, if it is `tree.yaml`, may become a scratch file in the place of `replaced`. An editor may rename one text of any
    /// length away, even if the limit is exceeded then; but no second one until the first is gone.
    pub(super) fn check_may_lose_name(
        &self,
        number: u32,
        replaced: Option<u32>,
    ) -> Result<(), Error> {
        let replaced = replaced.and_then(|replaced| self.files.get(&replaced));
        let freed = replaced.map_or(0, |file| file.charged);
        if self.is_tree(number) && self.room.used().saturating_sub(freed) > self.room.limit() {
            return Err(Error::ScratchFull(self.room.limit()));
        }
        Ok(())
    }
}
