//! J: changing FILE in place, with a redo record.
//!
//! The steps and their names are those of the protocol in [`super`]. Until the record is durable FILE is not touched; from
//! then on the save has happened, whatever else goes wrong, because every step that follows can be done again. Only where the
//! disk has no room for these steps is it taken back: the old bytes are written and durable before the record goes, so that a
//! crash in between leaves a record that makes FILE new.

use std::ffi::OsStr;
use std::io;
use std::iter;
use std::sync::Arc;

use super::journal::{JOURNAL_LIMIT, RANGE_LIMIT, Range, Record};
use super::name;
use super::own_writes::OwnWrites;
use super::rope::{Segment, sum};
use super::sector::sectors_of;
use super::store::{Store, impossible};
use super::view::write_all;
use crate::asdf::layout::Extent;
use crate::error::{Error, Result};
use crate::source::{Source, Stat, at_most, len_u64, read_up_to};

/// How a save failed, by the state that it has left FILE in.
#[derive(Debug)]
pub(super) enum SaveFailure {
    /// This can't be done to this file here, or not by us: why. FILE is as it was.
    Impossible(String),
    /// FILE is as it was.
    Refused(Error),
    /// FILE has its old bytes, but what was to be its journal may be in it still, so that a crash may make it new. Or FILE is the copy of
    /// R, as the names could not be exchanged back, and a crash may bring the old one back.
    Unsure(Error),
    /// The save is committed, but not all of it has been written: its journal makes FILE new.
    Unfinished(Error),
}

impl SaveFailure {
    /// That a system call of the save of `name` has failed before anything of FILE was changed.
    pub(super) fn of(name: &OsStr, what: &str, cause: io::Error) -> Self {
        if impossible(&cause) {
            Self::Impossible(format!("{}: {what}: {cause}", name.display()))
        } else {
            Error::io(format!("{}: {what}", name.display()), cause).into()
        }
    }
}

impl From<Error> for SaveFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// One save in place.
pub(super) struct InPlace<'a, S: Store> {
    pub(super) store: &'a Arc<S>,
    /// FILE, open for writing.
    pub(super) file: &'a S::File,
    /// The name of FILE.
    pub(super) name: &'a OsStr,
    pub(super) record: &'a Record,
    /// Takes note of each write to FILE.
    pub(super) own: &'a OwnWrites,
}

/// The record of these changes to `old`; `None` if there are too many for one.
///
/// Sectors that already hold what they should are left out.
pub(super) fn record<'a>(
    old: &dyn Source,
    changes: impl IntoIterator<Item = &'a (u64, Segment)>,
    new_len: u64,
) -> Result<Option<Record>> {
    /// How much is compared at a time.
    const STEP: u64 = 1 << 20;
    let mut ranges = Vec::new();
    let mut total = 0u64;
    for (start, segment) in changes {
        let mut done = 0;
        while done < segment.len() {
            let offset = sum(*start, done)?;
            // steps end at multiples of STEP, and so of a sector: no sector is compared in two parts
            let whole = STEP.saturating_sub(offset.checked_rem(STEP).unwrap_or(0));
            let len = whole.min(segment.len().saturating_sub(done));
            let mut new = vec![0; at_most(len, usize::MAX)];
            segment.read(old, &mut new, done)?;
            let before = read_up_to(old, offset, new.len())?;
            total = sum(total, differences(&mut ranges, offset, &before, &new)?)?;
            // checked inside the loop, so that a long save is given up before its ranges fill the memory
            if total > JOURNAL_LIMIT || ranges.len() > RANGE_LIMIT {
                return Ok(None);
            }
            done = sum(done, len)?;
        }
    }
    let record = Record {
        old_len: old.len(),
        new_len,
        sidecar_of: None,
        ranges,
    };
    Ok(record.len().is_some().then_some(record))
}

/// Adds the sectors that differ to the ranges. How many bytes they are.
fn differences(ranges: &mut Vec<Range>, offset: u64, old: &[u8], new: &[u8]) -> Result<u64> {
    let (mut added, mut here) = (0u64, offset);
    // where FILE ends earlier, there is nothing of before
    let before = sectors_of(offset, old).chain(iter::repeat(&[][..]));
    for (wanted, found) in sectors_of(offset, new).zip(before) {
        if wanted != found {
            added = sum(added, len_u64(wanted.len()))?;
            match ranges.last_mut() {
                // sectors that follow each other are one range: each range costs 24 bytes of the record, and a write
                Some(last) if last.extent().end == here => {
                    last.old.extend_from_slice(found);
                    last.new.extend_from_slice(wanted);
                }
                _ => ranges.push(Range {
                    offset: here,
                    old: found.to_vec(),
                    new: wanted.to_vec(),
                }),
            }
        }
        here = sum(here, len_u64(wanted.len()))?;
    }
    Ok(added)
}

impl<S: Store> InPlace<'_, S> {
    /// The whole save: J1 to J5.
    pub(super) fn run(&self) -> Result<(), SaveFailure> {
        match self.record.sidecar_of {
            Some(_) => self.place_sidecar()?,
            None => self.place_tail()?,
        }
        // the sync may have failed after it had reached the disk: only a record that is gone durably cannot make FILE new
        self.commit().map_err(|error| match self.withdraw() {
            Ok(()) if error.is_no_room() => SaveFailure::Refused(error),
            _ => SaveFailure::Unsure(error),
        })?;
        if self.record.sidecar_of.is_some() && self.changes_length() {
            // behind the end there is no record, but there may be what another program has appended
            let checked = self.check_len(self.record.old_len, self.record.old_len);
            checked.map_err(|error| match self.withdraw() {
                Ok(()) => SaveFailure::Refused(error),
                Err(_) => SaveFailure::Unsure(error),
            })?;
        }
        self.write_durably()
            .map_err(|error| self.taken_back(error))?;
        self.close(self.record.new_len)
            .map_err(SaveFailure::Unfinished)
    }

    /// J3 to J5, of which any part may have been done before.
    pub(super) fn finish(&self) -> Result<()> {
        self.write_durably()?;
        self.close(self.record.new_len)
    }

    /// Takes the record away so that no crash brings it back. FILE must have its old bytes.
    pub(super) fn withdraw(&self) -> Result<()> {
        self.close(self.record.old_len)
    }

    /// Takes the record away durably; FILE is `len` bytes long without it.
    fn close(&self, len: u64) -> Result<()> {
        if self.record.sidecar_of.is_some() {
            return self.remove_sidecar();
        }
        // to cut a file that another program has made longer would lose its bytes
        self.check_len(len, self.record.tail()?.end)?;
        self.cut(len)?;
        // POSIX does not promise that fdatasync(2) keeps a shorter length
        self.durable(|| self.cut(len), || self.store.sync_all(self.file))
    }

    /// J1 with the record in FILE's tail.
    fn place_tail(&self) -> Result<(), SaveFailure> {
        let place = || {
            // all room is taken before the first byte changes: a full disk refuses the save instead of breaking it off
            self.reserve(self.record.tail()?)?;
            self.reserve_ranges()?;
            self.check_len(self.record.old_len, self.record.old_len)?;
            self.write_tail()
        };
        place().map_err(|error| {
            if matches!(error, Error::Stale { .. }) {
                // what is behind the end is another program's
                return SaveFailure::Refused(error);
            }
            // the end of the footer is written last, and was not, so that the tail means nothing
            match self.cut(self.record.old_len) {
                Ok(()) => SaveFailure::Refused(error),
                Err(_) => SaveFailure::Unsure(error),
            }
        })
    }

    /// J2. What it makes durable is the record in FILE's tail, or the name of a sidecar that is durable itself.
    fn commit(&self) -> Result<()> {
        match self.record.sidecar_of {
            Some(_) => self.durable(|| Ok(()), || self.store.sync_dir()),
            // after a sync that failed the kernel may count dirty pages as clean: the record is written again before the second sync
            None => self.durable(|| self.write_tail(), || self.store.sync_data(self.file)),
        }
    }

    /// Ends a committed save whose bytes can't be written because of `error`. If the disk was full, the save is taken back: the old bytes
    /// are made durable, and then the record goes. Until they are durable, the record makes FILE new.
    fn taken_back(&self, error: Error) -> SaveFailure {
        // what a shorter file has lost is not in the record
        let whole = self.record.new_len >= self.record.old_len;
        if !error.is_no_room() || !whole || self.restore().is_err() {
            return SaveFailure::Unfinished(error);
        }
        match self.withdraw() {
            Ok(()) => SaveFailure::Refused(error),
            Err(_) => SaveFailure::Unsure(error),
        }
    }

    /// Makes FILE what it was, durably; a record in its tail stays.
    fn restore(&self) -> Result<()> {
        let write = || {
            self.write_ranges(|range| &range.old)?;
            // with the record in FILE's tail the length goes back when the record is cut off
            if self.record.sidecar_of.is_some() && self.changes_length() {
                return self.cut(self.record.old_len);
            }
            Ok(())
        };
        write()?;
        self.durable(write, || self.store.sync_all(self.file))
    }

    /// Writes the record behind the bytes of FILE.
    fn write_tail(&self) -> Result<()> {
        let start = self.record.tail()?.start;
        self.write(|| self.write_record(self.file, start))
    }

    /// Writes the record to its place in a file, in large pieces.
    fn write_record(&self, to: &S::File, start: u64) -> Result<()> {
        /// Bytes of a piece: a whole number of sectors, in which the record comes.
        const PIECE: usize = 1 << 20;
        // a write for each sector would be 2,000 calls for a megabyte
        let (mut at, mut piece) = (start, Vec::new());
        let mut flush = |piece: &mut Vec<u8>| {
            write_all(&**self.store, to, piece, at)?;
            at = sum(at, len_u64(piece.len()))?;
            piece.clear();
            Ok(())
        };
        self.record.write(&mut |sector| {
            piece.extend_from_slice(sector);
            if piece.len() >= PIECE {
                flush(&mut piece)?;
            }
            Ok(())
        })?;
        flush(&mut piece)
    }

    /// J3 and J4. A sidecar stays when FILE is cut to its new length, so that is done here; in FILE's tail the record would go with it.
    fn write_durably(&self) -> Result<()> {
        let beside = self.record.sidecar_of.is_some();
        let write = || {
            self.apply()?;
            if beside && self.changes_length() {
                self.cut(self.record.new_len)
            } else {
                Ok(())
            }
        };
        write()?;
        // POSIX does not promise that fdatasync(2) keeps a shorter length; a longer one is needed to read the data
        if beside && self.record.new_len < self.record.old_len {
            self.durable(write, || self.store.sync_all(self.file))
        } else {
            self.durable(write, || self.store.sync_data(self.file))
        }
    }

    /// That FILE is no shorter and no longer than a save leaves it: another program may have written to its end. If that can't be found
    /// out, nothing is known of another program.
    fn check_len(&self, least: u64, most: u64) -> Result<()> {
        match self.store.stat(self.file) {
            Ok(found) if !(least..=most).contains(&found.size) => {
                let name = self.name.display();
                let why = format!("{name} has been made longer or shorter during the save");
                Err(Error::Stale { why })
            }
            _ => Ok(()),
        }
    }

    /// Whether FILE gets another length. If not, none is set: another program may append to a streamed block meanwhile.
    fn changes_length(&self) -> bool {
        self.record.new_len != self.record.old_len
    }

    /// J1 with the record in a sidecar: it is durable, but not yet its name.
    fn place_sidecar(&self) -> Result<(), SaveFailure> {
        let temporary = name::temporary(self.name);
        // the record gets its name only when it is whole, because the next mount takes the name for a record
        let sidecar = name::sidecar(self.name);
        let renamed = self.prepare_sidecar(&temporary).and_then(|()| {
            let renamed = self.store.rename(&temporary, &sidecar);
            renamed.map_err(|cause| self.refusal("writing the journal", cause))
        });
        renamed.inspect_err(|_| {
            // it may never have been made; a leftover goes at the next mount
            let _ = self.store.unlink(&temporary);
        })
    }

    /// Removes the sidecar, durably.
    fn remove_sidecar(&self) -> Result<()> {
        match self.store.unlink(&name::sidecar(self.name)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(self.error("removing the journal", cause));
            }
            _ => {}
        }
        self.durable(|| Ok(()), || self.store.sync_dir())
    }

    /// Makes the sidecar under a temporary name, with the record in it, durably.
    fn prepare_sidecar(&self, temporary: &OsStr) -> Result<(), SaveFailure> {
        let grown = Extent {
            start: self.record.old_len,
            end: self.record.new_len.max(self.record.old_len),
        };
        self.reserve(grown)?;
        self.reserve_ranges()?;
        let made = self.store.create(temporary, None);
        let journal = made.map_err(|cause| self.refusal("making a journal beside it", cause))?;
        let stat = self.store.stat(&journal);
        let stat = stat.map_err(|cause| self.error("making a journal beside it", cause))?;
        if !is_ours(&stat, self.store.user(), stat.uid) {
            let why = format!(
                "{}: no journal can be made beside it for us alone",
                self.name.display()
            );
            return Err(SaveFailure::Impossible(why));
        }
        let fill = || self.write_record(&journal, 0);
        fill()?;
        Ok(self.durable(fill, || self.store.sync_all(&journal))?)
    }

    /// Writes the ranges: a second time if the first one fails.
    fn apply(&self) -> Result<()> {
        let write = || self.write_ranges(|range| &range.new);
        write().or_else(|_| write())
    }

    /// Writes the old or the new bytes of each range to its place.
    fn write_ranges(&self, bytes: impl Fn(&Range) -> &Vec<u8>) -> Result<()> {
        let mut ranges = self.record.ranges.iter();
        let mut write =
            |range: &Range| write_all(&**self.store, self.file, bytes(range), range.offset);
        self.write(|| ranges.try_for_each(&mut write))
    }

    /// Runs a write to FILE.
    fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.own.write(|| self.store.stat(self.file), write)
    }

    /// Gives FILE its old or new length, which takes a record in its tail away.
    fn cut(&self, len: u64) -> Result<()> {
        self.write(|| self.store.set_len(self.file, len))
            .map_err(|cause| self.error("setting the length", cause))
    }

    /// Syncs. If that fails the system may have dropped what was written, so it is written again, and synced once more.
    fn durable(
        &self,
        again: impl FnOnce() -> Result<()>,
        sync: impl Fn() -> io::Result<()>,
    ) -> Result<()> {
        if sync().is_ok() {
            return Ok(());
        }
        again()?;
        sync().map_err(|cause| self.error("writing to disk", cause))
    }

    /// Has the filesystem reserve room for all ranges, so that none lacks it once the record counts.
    fn reserve_ranges(&self) -> Result<()> {
        for range in &self.record.ranges {
            self.reserve(range.extent())?;
        }
        Ok(())
    }

    fn reserve(&self, extent: Extent) -> Result<()> {
        self.write(|| self.store.reserve(self.file, extent))
            .map_err(|cause| self.error("reserving space", cause))
    }

    fn refusal(&self, what: &str, cause: io::Error) -> SaveFailure {
        SaveFailure::of(self.name, what, cause)
    }

    fn error(&self, what: &str, cause: io::Error) -> Error {
        Error::io(format!("{}: {what}", self.name.display()), cause)
    }
}

/// Whether a sidecar is one that this program made, for `user` or for the owner of FILE.
pub(super) fn is_ours(sidecar: &Stat, user: u32, owner: u32) -> bool {
    const OWNER_ONLY: u32 = 0o100_600;
    sidecar.mode == OWNER_ONLY
        && sidecar.links == 1
        && (sidecar.uid == user || sidecar.uid == owner)
}

/// Bytes that a save in place writes, its record included.
pub(super) fn written(record: &Record) -> u64 {
    record.len().unwrap_or(0).saturating_add(record.new_bytes())
}
