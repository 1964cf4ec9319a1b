//! Whether somebody else has changed FILE, and what it is then.

use super::{Refusal, Writer, locked, writable};
use crate::asdf::scan::Scan;
use crate::error::{Error, Result};
use crate::save::baseline::{Baseline, Drift, Reload, Scanned, named};
use crate::save::store::{Store, busy};

impl<S: Store> Writer<S> {
    /// Whether somebody else has changed FILE, to be asked now and then. Times alone are compared first, so that this is cheap.
    ///
    /// # Errors
    /// [`Error::Stale`] if it has been changed, and can't be read at the moment or is no file that is written. It may be so again
    /// the next time it is asked for; until then each save is refused. [`Error::Io`] if the system does not tell.
    pub fn reload(&mut self) -> Result<Reload> {
        let named = named(&*self.store, &self.name)?;
        if named.is_some_and(|stat| self.baseline.same_moment(&stat)) {
            return Ok(Reload::Same);
        }
        match self.drift()? {
            Drift::Same(now) => {
                self.baseline = now;
                Ok(Reload::Touched)
            }
            Drift::Changed(why) => {
                let scan = self.reopen().map_err(|error| Error::Stale {
                    why: format!("{why}; it can't be read now: {error}"),
                })?;
                Ok(Reload::Changed(scan))
            }
        }
    }

    /// Compares FILE with its baseline.
    pub(super) fn drift(&self) -> Result<Drift> {
        let view = self.view()?;
        let (store, file) = (&self.store, &self.file);
        self.baseline
            .drift(store, &self.name, file, &*view, &self.layout)
    }

    /// Has [`Writer::reload`] read FILE once more: nothing was made of what it found last.
    pub fn distrust(&mut self) {
        self.baseline.torn = true;
    }

    /// As after a save that the system did not tell the times of.
    #[cfg(test)]
    pub(in crate::save) fn forget_times(&mut self) {
        self.baseline.timed = false;
    }

    /// Opens whatever has FILE's name now.
    fn reopen(&mut self) -> Result<Scan> {
        let named = named(&*self.store, &self.name)?;
        let same = named.is_some_and(|stat| stat.id == self.baseline.stat.id);
        let file = if same {
            self.file.clone()
        } else {
            locked(&*self.store, &self.name).map_err(|refusal| match refusal {
                Refusal::Locked { .. } => self.error("locked by another mount", busy()),
                Refusal::Unwritable(error) => error,
            })?
        };
        let read = Scanned::of(&self.store, &file)?;
        writable(&read.scan.layout)?;
        self.baseline = Baseline::of(&self.store, &file, &read)?;
        self.layout = read.scan.layout.clone();
        self.file = file;
        if self.unsettled.take().is_some() && same && self.broken.is_none() {
            let why = format!(
                "{} was changed by another program while a save of it was not finished",
                self.name.display()
            );
            self.broken = Some(Error::Stale { why });
        }
        Ok(read.scan)
    }
}
