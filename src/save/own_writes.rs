//! Whether another program writes FILE during a save.
//!
//! A save changes FILE's times, which then do not tell any more that another program has changed it, too. So FILE's attributes are taken
//! before and behind each write of the save. Most of a save's time goes into syncing, and that changes none of them. What another program
//! writes while a write of the save is going on is not seen, nor what it writes within one tick of the file system's clock behind it.

use std::cell::Cell;
use std::io;

use crate::source::Stat;

/// FILE's attributes around the writes of a save.
#[derive(Default)]
pub(super) struct OwnWrites {
    /// Those that the save has found, unless another program has written FILE since.
    found: Cell<Option<Stat>>,
    /// Those behind the save's last write; `None` if they could not be had.
    last: Cell<Option<Stat>>,
    /// Those that were told last of FILE behind a part of the save.
    told: Cell<Option<Stat>>,
}

impl OwnWrites {
    /// A save begins, and has found these attributes.
    pub(super) fn begin(&self, found: Stat) {
        self.found.set(Some(found));
        self.last.set(Some(found));
        self.told.set(Some(found));
    }

    /// Runs a write of the save.
    pub(super) fn write<T>(
        &self,
        stat: impl Fn() -> io::Result<Stat>,
        write: impl FnOnce() -> T,
    ) -> T {
        self.look(stat());
        let written = write();
        self.last.set(stat().ok());
        written
    }

    /// Compares FILE's attributes with those behind the last write of the save.
    pub(super) fn look(&self, now: io::Result<Stat>) {
        let last = self.last.get().zip(now.ok());
        if !last.is_some_and(|(last, now)| now.is_untouched_since(&last)) {
            self.found.set(None);
        }
    }

    /// A copy has taken FILE's name, which has changed its time of change: of FILE as it was with these attributes, and with these of its
    /// own when it was whole, and `now`.
    pub(super) fn replaced(&self, of: Stat, copy: &Stat, now: io::Result<Stat>) {
        self.look(Ok(of));
        self.last.set(now.ok().filter(|now| now.has_bytes_of(copy)));
    }

    /// FILE's attributes before the save and `now`, behind it; `None` if another program may have written FILE in between.
    pub(super) fn end(&self, now: io::Result<Stat>) -> Option<(Stat, Stat)> {
        let now = now.ok()?;
        self.look(Ok(now));
        self.told.set(Some(now));
        self.found.get().map(|found| (found, now))
    }

    /// Whether the save alone has written FILE since it had the attributes `known`, which were told here, until it had those of `now`.
    pub(super) fn alone_since(&self, known: &Stat, now: &Stat) -> bool {
        let same = |noted: &Cell<Option<Stat>>, stat: &Stat| {
            let noted = noted.get();
            noted.is_some_and(|noted| stat.is_untouched_since(&noted))
        };
        self.found.get().is_some() && same(&self.told, known) && same(&self.last, now)
    }
}
