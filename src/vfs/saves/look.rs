//! FILE in the hands of other programs: noticing that one has changed it, and showing what it is now.
//!
//! When a file of the mount is looked at or read, but at most once a second, FILE's times are compared with those of the state, and
//! whether another file has FILE's name. After a change FILE is shown anew. A handle that is open for writing then can't save what was
//! made of the old state (`ESTALE`): each handle has the form that its file had. If FILE can't be read, the old state stays. Its places
//! in FILE are wrong then, so that no stored bytes are read.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use log::{info, warn};

use super::Saves;
use crate::asdf::Snapshot;
use crate::error::Error as Library;
use crate::save::{self, NotOpened, SaveOptions, Status, Writer};
use crate::source::Stat;
use crate::vfs::attr::VALID;
use crate::vfs::{Error, MAX_PREPARED, Result, State, locked};

impl Saves {
    /// Shows FILE as it is now, if another program has changed it; `rarely`: only if the last look is a while ago.
    pub(in crate::vfs) fn look(&self, rarely: bool) {
        // another thread is looking: its answer is as good, and requests do not wait for each other
        let Ok(mut compared) = self.compared.try_lock() else {
            return;
        };
        // a look at a far file is a request to its server
        let rarely = rarely || self.file.is_far();
        if rarely && compared.is_some_and(|at| at.elapsed() < VALID) {
            return;
        }
        *compared = Some(Instant::now());
        match self.idle_writer() {
            Ok(mut writer) => {
                let named = self.file.stat();
                self.compare(writer.as_deref_mut(), named, Instant::now());
            }
            // the save that is going on looks for itself before it writes
            Err(_) => self.look_beside_a_save(),
        }
    }

    /// Keeps stored bytes from being read if another program has changed FILE while a save of ours encodes and has not written yet.
    fn look_beside_a_save(&self) {
        let Some(moment) = self.between_writes() else {
            return;
        };
        let state = self.shown.now();
        let found = stat_of(&state, self.file.stat());
        let changed = found.is_some_and(|stat| !state.is_of(&stat));
        // without times a difference may be the save itself
        if changed && state.left().is_some() {
            let why = Some("a save is under way, which will find that out");
            let holds = || self.between_writes() == Some(moment);
            self.note_out_of_date_if(why, holds);
        }
    }

    /// Shows FILE as it is now, without regard to the time of the last look. A save does this first: it takes over new times of FILE, which
    /// would hide a change by another program. The disk is asked for FILE's attributes, which a look takes from a cache.
    pub(in crate::vfs) fn catch_up(&self, writer: Option<&mut Writer>) {
        let named = self.file.stat_asked();
        self.compare(
            writer,
            named,
            self.shown.now().settles.unwrap_or_else(Instant::now),
        );
    }

    /// Shows FILE as it is now; `named`: the attributes of what has its name. Notes why, if FILE can't be shown.
    ///
    /// FILE is compared with the state by its attributes. If these are others, or unknown, or if at the moment `now` they may hide a change
    /// ([`State::settles`]), it is read anew.
    fn compare(&self, writer: Option<&mut Writer>, named: io::Result<Stat>, now: Instant) {
        let state = self.shown.now();
        let Some(stat) = stat_of(&state, named) else {
            // FILE could not be looked at, which says nothing of it
            return;
        };
        // the common case: one stat(2), and no byte of FILE is read
        if state.is_untouched(&stat) && state.settles.is_none_or(|at| now < at) {
            return self.note_out_of_date(None);
        }
        if let Some(unlock) = self.unlock.get().filter(|_| stat.id != state.stat.id) {
            // a file that was renamed may be locked under its old name
            unlock(stat);
        }
        let may_be_same = state.left().is_none() || state.is_of(&stat);
        let why = match self.show_found(&state, writer, stat) {
            Ok(()) => None,
            // as far as is known, FILE has the same bytes; its other attributes are shown when this succeeds
            Err(error) if may_be_same && !matches!(error, Library::Stale { .. }) => {
                return warn!("{}: {error}", self.path.display());
            }
            Err(error) => Some(error.to_string()),
        };
        self.note_out_of_date(why.as_deref());
    }

    /// Reads FILE, which had these attributes just now, and shows it instead of an older state. If it has the same text, headers and times,
    /// only its data are read anew: a program can set times back, and a clock may be coarse. Else it is another one, and what is being
    /// written to a block is refused from then on.
    fn show_found(
        &self,
        old: &State,
        writer: Option<&mut Writer>,
        mut stat: Stat,
    ) -> Result<(), Library> {
        // a change behind this moment leaves FILE other times, if it has settled by now
        let left = old.settles.filter(|at| Instant::now() < *at);
        let (snapshot, has_scan) = match writer {
            None => {
                // another mount may have been killed in a save: FILE is read through the journal that it has left
                let opened = save::open_unlocked(&self.file)?;
                stat = opened.file.stat;
                let found = opened.snapshot_like(&old.snapshot)?;
                let has_scan = found.has_scan_of(&old.snapshot);
                (found, has_scan)
            }
            Some(writer) => {
                if old.is_untouched(&stat) {
                    // they say nothing of it
                    writer.forget_times();
                }
                match writer.reload()? {
                    None => (with_data_anew(old, writer)?, true),
                    Some(scan) => {
                        let new = old.snapshot.replaced_by(Arc::clone(writer.file()), scan);
                        // the writer has this FILE already, and would call it the same at the next look
                        (new.inspect_err(|_| writer.distrust())?, false)
                    }
                }
            }
        };
        let (is_untouched, is_same) = (old.is_untouched(&stat), has_scan && old.is_of(&stat));
        // without times a difference may be a save of ours
        let is_by_another = !has_scan || (!is_same && old.left().is_some());
        let text = Arc::clone(snapshot.text());
        let mut new = old.next(Arc::new(snapshot), Some(stat));
        if is_same {
            new.versions.touch();
        } else {
            new.versions.changed_elsewhere(stat.modified());
        }
        if is_same && is_untouched {
            new.settles = left;
        }
        self.show(new);
        let is_intact = if stat.id == old.stat.id {
            // a new time alone may be that of a program which has set the other one back
            is_same && !is_untouched && stat.has_other_access(&old.stat)
        } else {
            // another file has its name, and the one before may have been written to first
            old.snapshot.stat().is_ok_and(|now| old.is_of(&now))
        };
        if !is_intact {
            // bytes of the file have changed, nobody knows which
            self.seal(old.stat.id);
        }
        if is_by_another {
            info!("{} was changed by another program", self.path.display());
            self.tree.reloaded(text);
        } else {
            // edits go on above the bytes that are read anew; above those of another program they are refused
            self.blocks.rebase(&self.shown.now().snapshot);
        }
        Ok(())
    }

    /// Opens FILE for writing, and locks it, unless that has been done: each operation that changes something does this first, as what it
    /// writes is saved only later.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; why FILE can't be opened for writing.
    pub(in crate::vfs) fn open_for_writing(&self) -> Result<()> {
        let Ok(options) = self.writing else {
            return Err(Error::ReadOnly("this mount"));
        };
        if self.writer.get().is_none() {
            let asked = Instant::now();
            // with this lock one thread opens FILE, and no thread compares it meanwhile
            let _compared = locked(&self.compared);
            if self.writer.get().is_none() {
                self.opened(self.open_writer(options, asked)?);
            }
        }
        let broken = self.status().and_then(Status::broken);
        broken.map_or(Ok(()), |_| {
            Err(Error::ReadOnly(
                "a save has failed, and FILE may be written again only after the next mount",
            ))
        })
    }

    /// FILE, opened for writing, and shown as it is then. Threads that `asked` at the same time wait for its lock at the same time.
    fn open_writer(&self, options: SaveOptions, asked: Instant) -> Result<Writer> {
        let open = || {
            if let Some(unlock) = self.unlock.get() {
                let named = self.file.stat();
                unlock(named.unwrap_or_else(|_| self.shown.now().stat));
            }
            Writer::open_since(self.file.clone(), options, asked)
        };
        let mut opened = open();
        if let Err(NotOpened::Locked { .. }) = opened {
            // what has it under another name may have become idle meanwhile
            opened = open();
        }
        let writer = match opened {
            Ok(opened) => opened.writer,
            Err(NotOpened::Locked { holder }) => {
                let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
                let path = self.path.display();
                let why = format!(
                    "a change was refused, as {path} was locked{by}: unmount its other mount (here it may have another name, too)"
                );
                warn!("{why}");
                // each process that tries has only an errno
                locked(&self.news).refuse(None, None, why);
                return Err(Error::Busy("FILE is locked by another mount"));
            }
            Err(NotOpened::Unwritable(error)) => return Err(error.into()),
        };
        self.writer_of_state(writer)
    }

    /// A writer that has just read FILE, and FILE shown as the writer has read it.
    fn writer_of_state(&self, mut writer: Writer) -> Result<Writer> {
        self.catch_up(None);
        let meta = writer.file().metadata();
        let meta = meta.map_err(|cause| Library::io("reading the file's attributes", cause))?;
        let state = self.shown.now();
        // another program may have changed FILE after the writer has read it, and before it was shown
        let is_as_read = writer.reload()?.is_none();
        // both have to be of one FILE: else the next save would write by places of another one
        if is_as_read && state.is_of(&Stat::from(&meta)) {
            if writer.has_read(state.snapshot.text(), state.snapshot.layout()) {
                return Ok(writer);
            }
            // the times are the same all the same
            self.show_times(&state, None);
        }
        // another program has written it since it was locked, or an interrupted save was finished just now
        let why = "the file was changed while it was opened for writing".to_owned();
        Err(Library::Stale { why }.into())
    }

    /// Takes the times that FILE has now as those of the state, after a save of ours has changed them and then failed. Does not if FILE
    /// differs in anything that a save depends on: then another program has changed it, too.
    pub(in crate::vfs) fn forgive(&self, writer: &mut Writer) {
        let old = self.shown.now();
        let alone = writer.alone_around();
        let alone = alone.filter(|(before, _)| old.is_untouched(before));
        let stat = old.snapshot.stat();
        let done = match stat.and_then(|stat| Ok((stat, writer.reload()?))) {
            Ok((_, Some(_))) => return writer.distrust(),
            Ok((stat, None)) => {
                // no other program has written it
                let is_ours = alone.is_some_and(|(_, now)| stat.is_untouched_since(&now));
                if is_ours || old.is_untouched(&stat) {
                    self.show_times(&old, Some(stat));
                    Ok(())
                } else {
                    self.show_found(&old, Some(writer), stat)
                }
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => self.note_out_of_date(None),
            Err(error) => {
                // without times, FILE is looked at again
                warn!("{}: {error}", self.path.display());
                self.show_times(&old, None);
            }
        }
    }

    /// Shows the same snapshot with these attributes of FILE; without any, FILE's times are not known.
    pub(in crate::vfs) fn show_times(&self, old: &State, stat: Option<Stat>) {
        self.show(old.next(Arc::clone(&old.snapshot), stat));
    }

    /// Shows a state: all that a save or another program has changed passes through here. Handles look for their sources anew then.
    pub(in crate::vfs) fn show(&self, mut new: State) {
        let before = self.shown.now();
        if new.has_other_stream(&before) {
            new.versions.changed_stream();
        }
        if new.snapshot.text() != before.snapshot.text() {
            let changed = before.arrays_changed_in(&new);
            new.versions
                .changed_tree(changed.as_deref(), new.stat.modified());
            self.warn_of_new(&before.snapshot, &new.snapshot);
        }
        self.shown.put(new);
        self.blocks.changed();
    }

    /// Has nothing read any more by earlier states of the file with this device and inode number: its bytes change in place.
    pub(in crate::vfs) fn seal(&self, id: (u64, u64)) {
        self.seal_all(|state| state.stat.id == id);
    }

    /// Has nothing read by these earlier states any more.
    pub(in crate::vfs) fn seal_all(&self, are_over: impl Fn(&State) -> bool) {
        if self.shown.seal(are_over) {
            // a handle may have made its source of such a state since a newer one is shown
            self.blocks.changed();
        }
    }

    /// Logs what is odd about FILE now and was not before.
    fn warn_of_new(&self, before: &Snapshot, now: &Snapshot) {
        let findings = before.layout().findings.iter();
        // compared as texts: a finding has no identity, and its place may be the same in another file
        let known: HashSet<String> = findings.map(|it| it.error.to_string()).collect();
        let findings = now.layout().findings.iter();
        for text in findings
            .map(|it| it.error.to_string())
            .filter(|text| !known.contains(text))
        {
            warn!("{}: {text}", self.path.display());
        }
    }

    /// Lets go of a tree so large that two of them would take too much memory, as another one is going to be read.
    pub(in crate::vfs) fn let_go_of_tree(&self) {
        let state = self.shown.now();
        if state.snapshot.text().len() > MAX_PREPARED && !state.snapshot.is_unread() {
            self.shown.put(state.unread());
        }
    }

    /// Has the next request look at FILE, which is known to have changed.
    pub(in crate::vfs) fn refresh_soon(&self) {
        *locked(&self.compared) = None;
    }
}

/// The attributes of FILE, if what has its name has these. If its name is gone, is no regular file or can't be looked up: those of the file
/// that was mounted, if they have changed. `None` if those have not changed, or can't be had.
fn stat_of(state: &State, named: io::Result<Stat>) -> Option<Stat> {
    let named = named.ok().filter(Stat::is_regular);
    named.or_else(|| {
        let open = state.snapshot.stat().ok()?;
        (!state.is_of(&open)).then_some(open)
    })
}

/// The snapshot of a state, whose data are read anew.
fn with_data_anew(state: &State, writer: &Writer) -> Result<Snapshot, Library> {
    let file = Arc::clone(writer.file());
    let bytes = writer.unsettled_bytes()?;
    state.snapshot.with_data_anew(file, bytes)
}

#[cfg(test)]
mod tests;
