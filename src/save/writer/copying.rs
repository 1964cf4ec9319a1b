//! Whether a save may copy FILE, and the save that does.

use super::unsettled::Unsettled;
use super::{Committed, Method, Writer};
use crate::error::Result;
use crate::save::inplace::SaveFailure;
use crate::save::plan::Plan;
use crate::save::replace::{Replace, bytes_to_copy};
use crate::save::store::Store;

impl<S: Store> Writer<S> {
    /// Bytes of FILE that a new file would not share with it.
    fn to_copy(&self, plan: &Plan) -> Result<u64> {
        let found = bytes_to_copy(&*self.store, &self.file, plan, self.grain());
        found.map_err(|cause| self.error("looking for holes", cause))
    }

    /// Why the file may not be copied, if that is because of its size.
    pub(super) fn copy_limit(&self, plan: &Plan) -> Result<Option<String>> {
        let (bytes, limit) = (self.to_copy(plan)?, self.options.max_copy);
        Ok((bytes > limit)
            .then(|| format!("{bytes} bytes would have to be copied, -o max-copy allows {limit}")))
    }

    /// R.
    pub(super) fn replace(
        &mut self,
        plan: &Plan,
        save: &mut Committed<S::File>,
        observer: &mut dyn FnMut(bool),
    ) -> Result<(), SaveFailure> {
        if let Some(why) = &self.no_copies {
            return Err(SaveFailure::Impossible(why.clone()));
        }
        let bytes = self
            .to_copy(plan)?
            .saturating_add(plan.segments().new_bytes());
        if let Some(free) = self.store.free().filter(|&free| free < bytes) {
            let why = format!("{bytes} bytes would have to be written, the disk has {free} left");
            return Err(SaveFailure::Impossible(why));
        }
        self.status.begin_copy(bytes);
        let replace = Replace {
            status: &self.status,
            store: &self.store,
            name: &self.name,
            baseline: &self.baseline,
            plan,
            grain: self.grain(),
        };
        let mut is_made = false;
        let done = replace.run(|| {
            is_made = true;
            observer(false);
        });
        self.status.end_copy();
        if let Err(SaveFailure::Impossible(why)) = &done {
            self.no_copies = Some(why.clone()).filter(|_| is_made);
        }
        let (copy, unsynced) = done?;
        let now = self.store.stat(&copy.file);
        self.own.replaced(copy.of, &copy.stat, now);
        (self.file, self.lock) = (copy.file.clone(), copy.file);
        self.baseline.stat.id = copy.stat.id;
        self.raw = self.raw.take().map(|_| copy.writer);
        if let Some(error) = &unsynced {
            self.leave(Unsettled::Name, error);
        }
        (save.method, save.written) = (Method::Replaced, copy.written);
        save.unfinished = unsynced;
        Ok(())
    }
}
