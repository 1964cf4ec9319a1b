//! What a save that failed has left in FILE. Reads here go through it, and the next save settles it first.

use std::sync::Arc;

use super::{Committed, Method, Writer};
use crate::error::{Error, Result};
use crate::save::inplace::{SaveFailure, written};
use crate::save::journal::Record;
use crate::save::recovery::{explains, redone, remove_temporaries};
use crate::save::rope::Rope;
use crate::save::store::Store;
use crate::save::view::StoreSource;
use crate::source::{Source, Window};

/// What a save has left to do.
pub(super) enum Unsettled {
    /// One in place was neither finished nor taken back.
    InPlace {
        record: Record,
        /// Whether the record is durable, so that FILE is what it says; else FILE is what it was.
        committed: bool,
    },
    /// A new file has taken FILE's name, or has given it back, but the directory could not be synced.
    Name,
}

impl Unsettled {
    /// What `file` is once this is settled.
    fn shown(&self, file: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        let len = file.len();
        match self {
            Self::InPlace {
                record,
                committed: true,
            } => Ok(Arc::new(Rope::new(file, redone(len, record)?))),
            Self::InPlace { record, .. } => {
                // without what may be left of the record in the tail
                Ok(Arc::new(Window::new(file, 0, record.old_len.min(len))?))
            }
            Self::Name => Ok(file),
        }
    }
}

impl<S: Store> Writer<S> {
    /// Notes in `save` what came of it in place. What it has left to do, if anything, is kept for [`Writer::settle`].
    pub(super) fn outcome(
        &mut self,
        done: Result<(), SaveFailure>,
        record: Record,
        save: &mut Committed<S::File>,
    ) -> Result<(), SaveFailure> {
        (save.method, save.written) = (Method::InPlace, written(&record));
        let (error, committed) = match done {
            Ok(()) => return Ok(()),
            Err(SaveFailure::Unsure(error)) => (error, false),
            Err(SaveFailure::Unfinished(error)) => (error, true),
            Err(refused) => return Err(refused),
        };
        self.leave(Unsettled::InPlace { record, committed }, &error);
        // FILE reads as before, so for the caller the save has not happened
        if !committed {
            return Err(SaveFailure::Refused(error));
        }
        save.unfinished = Some(error);
        Ok(())
    }

    /// Notes what a save has left. No other may follow, unless this one failed for want of room.
    pub(super) fn leave(&mut self, left: Unsettled, error: &Error) {
        self.unsettled = Some(left);
        self.note_failure(error);
    }

    /// Notes a failure on which any further save depends.
    pub(super) fn note_failure(&mut self, error: &Error) {
        if !error.is_no_room() {
            self.status.note_broken(error.clone());
        }
    }

    /// As after a disk that has failed: nothing more is written.
    #[cfg(test)]
    pub(crate) fn fail(&mut self, why: Error) {
        self.status.note_broken(why);
    }

    /// Whether the last save has left nothing to do.
    pub(in crate::save) fn is_settled(&self) -> bool {
        self.unsettled.is_none()
    }

    /// FILE as it is to be read, without what the last save has left in it.
    pub(in crate::save) fn view(&self) -> Result<Arc<dyn Source>> {
        let file: Arc<dyn Source> = Arc::new(StoreSource::open(&self.store, &self.file)?);
        self.seen(file)
    }

    /// `file`, which is FILE, as it is to be read.
    pub(super) fn seen(&self, file: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        match &self.unsettled {
            Some(unsettled) => unsettled.shown(file),
            None => Ok(file),
        }
    }

    /// That FILE, which has these bytes, is what the last save has left, as far as the record of it hides them.
    pub(super) fn check_unsettled(&self, bytes: &dyn Source) -> Result<()> {
        let Some(Unsettled::InPlace { record, .. }) = &self.unsettled else {
            return Ok(());
        };
        // the view hides the record: a change of another program in these bytes would be hidden, too
        if explains(bytes, record)? {
            return Ok(());
        }
        Err(self.changed_unsettled())
    }

    /// The error if FILE is not what the last save has left.
    pub(super) fn changed_unsettled(&self) -> Error {
        let why = format!(
            "{} was changed by another program while a save of it was not finished",
            self.name.display()
        );
        Error::Stale { why }
    }

    /// FILE as it is to be read, if the last save has left something in it.
    ///
    /// # Errors
    /// [`Error::Io`] of looking at it.
    pub fn unsettled_bytes(&self) -> Result<Option<Arc<dyn Source>>> {
        match self.unsettled {
            Some(Unsettled::InPlace { .. }) => self.view().map(Some),
            Some(Unsettled::Name) | None => Ok(None),
        }
    }

    /// Finishes the last save, or takes away what it has left, if it failed for want of room.
    pub(in crate::save) fn settle(&mut self) -> Result<()> {
        let settled = match &self.unsettled {
            None => return Ok(()),
            Some(Unsettled::Name) => self.settle_name(),
            Some(Unsettled::InPlace { record, committed }) => {
                let file = self.open_writable()?;
                let save = self.journaled(&file, record);
                if *committed {
                    save.finish()
                } else {
                    save.withdraw()
                }
            }
        };
        settled.inspect_err(|error| self.note_failure(error))?;
        self.unsettled = None;
        self.baseline.renew(self.store.stat(&self.file).ok());
        Ok(())
    }

    /// Makes sure that no crash brings back the file that the last save has replaced.
    ///
    /// # Errors
    /// What keeps it from that.
    pub fn make_last(&mut self) -> Result<()> {
        if !matches!(self.unsettled, Some(Unsettled::Name)) {
            return Ok(());
        }
        self.check_whole()?;
        self.compare()?;
        self.settle()
    }

    /// Makes the name last that FILE has, and removes what it was exchanged with.
    fn settle_name(&self) -> Result<()> {
        // the first call may report an error from before this save
        let synced = self.store.sync_dir().or_else(|_| self.store.sync_dir());
        synced.map_err(|cause| self.error("writing to disk", cause))?;
        // FILE is what it was when it was last scanned: `commit` has compared it
        remove_temporaries(&*self.store, &self.name);
        Ok(())
    }
}
