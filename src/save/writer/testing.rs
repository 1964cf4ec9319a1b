//! A writer of a simulated disk, also in states that only a failing disk brings about.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

use super::unsettled::Unsettled;
use super::{NotOpened, SaveOptions, Writable, Writer};
use crate::asdf::scan::scan;
use crate::error::{Error, Result};
use crate::save::journal::{Range, Record};
use crate::save::store::Store;
use crate::source::{Source, len_u64, read_all};

impl<S: Store> Writer<S> {
    /// [`Writer::open`] in a directory that is open.
    pub(crate) fn open_in(
        store: Arc<S>,
        name: &OsStr,
        options: SaveOptions,
    ) -> Result<Writable<S>, NotOpened> {
        Self::open_in_since(store, name, options, Instant::now())
    }

    /// As after a save in place whose journal is durable and none of whose bytes could be written: FILE is to become `bytes`. Gives FILE as
    /// it is to be read.
    pub(crate) fn leave_committed(&mut self, bytes: &dyn Source) -> Result<Arc<dyn Source>> {
        let old = read_all(&*self.view()?, 1 << 20)?;
        let new = read_all(bytes, 1 << 20)?;
        let record = Record {
            old_len: len_u64(old.len()),
            new_len: len_u64(new.len()),
            sidecar_of: None,
            ranges: vec![Range {
                offset: 0,
                old,
                new,
            }],
        };
        self.baseline = self.baseline.succeeded_by(bytes, &scan(bytes, false)?)?;
        self.unsettled = Some(Unsettled::InPlace {
            record,
            committed: true,
        });
        self.view()
    }

    /// As after a new file took FILE's name and the directory could not be synced.
    pub(crate) fn leave_name(&mut self, error: &Error) {
        self.leave(Unsettled::Name, error);
    }
}
