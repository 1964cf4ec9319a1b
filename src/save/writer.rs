//! [`Writer`] writes FILE: lock, recovery, the choice between the ways to save, and the state that follows from each.

mod checksum;
mod copying;
mod facts;
mod patch;
mod reload;
#[cfg(test)]
mod testing;
mod unsettled;

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::baseline::Baseline;
use super::edit::Edit;
use super::file_path::FilePath;
use super::holder::warn_of_locks;
use super::inplace::{self, InPlace, SaveFailure};
use super::journal::{JOURNAL_LIMIT, Range, Record};
use super::own_writes::OwnWrites;
use super::plan::{Pad, Plan};
use super::recovery::{self, Recovery};
use super::rejected::{RejectedText, other_directories};
use super::status::Status;
use super::store::{Access, Disk, Store, busy};
use super::view::StoreSource;
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::{Extent, Layout, Severity};
use crate::asdf::scan::{Scan, scan};
use crate::error::{Error, Place, Result};
use crate::source::{Source, Stat};

use unsettled::Unsettled;

pub use patch::Put;
use reload::{PATIENCE, locked};

/// What the user allows a save to do.
#[derive(Debug, Clone, Copy)]
pub struct SaveOptions {
    /// `save=replace`: rather make a new file than change FILE in place.
    pub replace: bool,
    /// `grow=auto`: whether blocks may move.
    pub grow: bool,
    /// `max-copy`: the most bytes that are copied because blocks move; any number by default.
    pub max_copy: u64,
    /// `pad`: what stands between the text and the first block.
    pub pad: Pad,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            replace: false,
            grow: true,
            max_copy: u64::MAX,
            pad: Pad::Kept,
        }
    }
}

/// Why a file can't be had for writing.
#[derive(Debug)]
pub enum NotOpened {
    /// Another mount has it: its process, if `/proc` tells.
    Locked {
        /// Process id.
        holder: Option<u32>,
    },
    /// It can't be written, or not even be read: why.
    Unwritable(Error),
}

impl From<Error> for NotOpened {
    fn from(error: Error) -> Self {
        Self::Unwritable(error)
    }
}

/// A file that has been opened for writing.
pub struct Writable<S: Store = Disk> {
    /// What saves it.
    pub writer: Writer<S>,
    /// Its layout and text.
    pub scan: Scan,
    /// What an interrupted save had left.
    pub recovery: Recovery,
}

/// How a save was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// FILE already was what it was to be.
    Nothing,
    /// In place.
    InPlace,
    /// By a new file that took FILE's name.
    Replaced,
}

/// A save that has happened.
pub struct Committed<F> {
    /// FILE, open for reading: the one from before, or the one that took its place.
    pub file: F,
    /// Its layout and text.
    pub scan: Scan,
    /// How it was done.
    pub method: Method,
    /// Bytes that were written, the journal included.
    pub written: u64,
    /// Why not all of it is done, if that is so. The journal of a save in place outlives a crash, and makes FILE new at the next save
    /// or mount; where a new file took FILE's name, a crash may bring the old one back.
    pub unfinished: Option<Error>,
    /// The bytes of FILE as they will be, where the journal is yet to make them so.
    pub bytes: Option<Arc<dyn Source>>,
    /// FILE's attributes before and behind the save; `None` if another program may have written it meanwhile.
    pub around: Option<(Stat, Stat)>,
}

/// One file that is open for writing, locked for as long as this lives.
pub struct Writer<S: Store = Disk> {
    store: Arc<S>,
    name: OsString,
    /// FILE, open for reading. No lease could be had if it were open for writing.
    file: S::File,
    /// Holds the lock: the descriptor by which FILE was opened first.
    lock: S::File,
    baseline: Baseline,
    options: SaveOptions,
    /// The filesystem's block, if files may share blocks. Empty until that has been tried.
    grain: OnceCell<Option<u64>>,
    /// What the last save has left to do.
    unsettled: Option<Unsettled>,
    rejected: RejectedText,
    /// FILE, open for writing, from a write into a raw block to the next save of something else.
    raw: Option<S::File>,
    /// What other programs write during a save.
    own: OwnWrites,
    status: Arc<Status>,
    /// Why a copy could not take FILE's name, when it had been made: no other is made of that file.
    no_copies: Option<String>,
}

impl Writer<Disk> {
    /// Opens FILE for writing: locks it, finishes what a crash has left, and reads its layout.
    ///
    /// Symlinks are resolved here, once.
    ///
    /// # Errors
    /// [`NotOpened`] says what can be done instead.
    pub fn open(path: impl Into<FilePath>, options: SaveOptions) -> Result<Writable, NotOpened> {
        Self::open_since(path, options, Instant::now())
    }

    /// The same for who has waited since that moment: the lock is waited for no longer than if it had been tried then.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub fn open_since(
        path: impl Into<FilePath>,
        options: SaveOptions,
        asked: Instant,
    ) -> Result<Writable, NotOpened> {
        let path = path.into();
        let failed = |cause| Error::io(path.whole().display().to_string(), cause);
        let (store, name) = path.resolved(Access::Write).map_err(failed)?;
        let opened = Self::open_in_since(Arc::new(store), &name, options, asked)?;
        warn_of_locks(path.whole(), opened.writer.file());
        Ok(opened)
    }
}

impl<S: Store> Writer<S> {
    /// [`Writer::open_since`] in a directory that is open.
    pub(super) fn open_in_since(
        store: Arc<S>,
        name: &OsStr,
        options: SaveOptions,
        asked: Instant,
    ) -> Result<Writable<S>, NotOpened> {
        let file = locked(&*store, name, PATIENCE.saturating_sub(asked.elapsed()))?;
        let (recovery, before, scan) = recovery::settle(&store, name, &file)?;
        writable(&scan.layout)?;
        let baseline = Baseline::of(&store, &file, &before, &scan)?;
        let writer = Self {
            store,
            name: name.to_owned(),
            lock: file.clone(),
            file,
            baseline,
            options,
            grain: OnceCell::new(),
            unsettled: None,
            rejected: RejectedText::new(&other_directories()),
            raw: None,
            own: OwnWrites::default(),
            status: Arc::default(),
            no_copies: None,
        };
        Ok(Writable {
            writer,
            scan,
            recovery,
        })
    }

    /// FILE, open for reading.
    #[must_use]
    pub fn file(&self) -> &S::File {
        &self.file
    }

    /// The layout of FILE as it was last read or saved.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.baseline.layout
    }

    /// What other threads may ask of it while it saves.
    #[must_use]
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Checks that no save has broken the writer.
    fn check_whole(&self) -> Result<()> {
        self.status.broken().cloned().map_or(Ok(()), Err)
    }

    /// What a save of `edit` would do.
    ///
    /// # Errors
    /// Those of [`Plan::new`].
    pub(super) fn plan(&self, edit: &Edit) -> Result<Plan> {
        let plan = |padding, grain| Plan::new(self.layout(), edit, padding, grain);
        let padding = match self.options.pad {
            Pad::Kept => Some(self.baseline.padding),
            Pad::Filled(byte) => Some(byte),
            Pad::Absent => None,
        };
        // planned without sharing first: most edits fit, and to find out the grain makes a file
        let found = plan(padding, None)?;
        let fits = found.in_place().is_some();
        let rather_copied = self.options.replace && self.options.grow;
        if self.stays_without_padding(edit) && (rather_copied || !fits) {
            return plan(None, None);
        }
        match self.grain() {
            Some(grain) if !fits => plan(padding, Some(grain)),
            _ => Ok(found),
        }
    }

    /// By how many bytes `edit` would make FILE longer, computed from lengths alone: before the bytes of the edit are read, encoded or
    /// digested. A long hole in an edit costs nothing to make, but reading it would keep all other saves waiting.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if a save would fail with that whatever the bytes are; those of [`Plan::new`].
    pub fn growth(&self, edit: &Edit) -> Result<u64> {
        let plan = self.plan(edit)?;
        let growth = plan.layout().len.saturating_sub(self.layout().len);
        // an edit that fits in its place needs no copy, so no limit of copies concerns it
        if plan.in_place().is_some() {
            return Ok(growth);
        }
        let limit = if self.options.grow {
            self.copy_limit(&plan)?
        } else {
            Some("-o grow=never forbids to move what is behind it".to_owned())
        };
        // what a journal holds may move in place
        match limit.filter(|_| growth > JOURNAL_LIMIT || !self.options.grow) {
            Some(why) => {
                let why = format!("the edit makes the file {growth} bytes longer, but {why}");
                Err(Error::NoRoom { why, limit: true })
            }
            None => Ok(growth),
        }
    }

    /// Whether no space is to be made between a new text and the first block, as there is none now.
    fn stays_without_padding(&self, edit: &Edit) -> bool {
        /// The longest file of which each save is allowed to be a copy for that. A journal could hold it.
        const CHEAP_COPY: u64 = JOURNAL_LIMIT / 2;
        let layout = self.layout();
        let first = layout.blocks.first();
        self.options.pad == Pad::Kept
            && edit.text.is_some()
            && first.is_some_and(|first| first.offset == layout.text_end)
            && layout.len <= CHEAP_COPY
    }

    fn grain(&self) -> Option<u64> {
        *self.grain.get_or_init(|| self.store.grain(&self.file))
    }

    /// Makes FILE what `edit` says. When this returns, that is durable, unless [`Committed::unfinished`] says what is missing.
    ///
    /// `observer` is called just before FILE is written, or its name is given to another file. From then on FILE's times tell nothing of
    /// other programs. With `true` it says that stored bytes of blocks change or move in the file that is open now: then nothing may be
    /// read by the places of the old layout from then on.
    ///
    /// # Errors
    /// [`Error::Stale`] if another program has changed FILE since it was read; those of [`Plan::new`]; [`Error::NoRoom`];
    /// [`Error::Rejected`] if FILE would not read as planned; [`Error::Io`]. What is read of FILE is then as it was, and nothing
    /// has moved. What has made the writer [broken](Status::broken) is given to each save after it.
    pub fn commit(
        &mut self,
        edit: &Edit,
        observer: &mut dyn FnMut(bool),
    ) -> Result<Committed<S::File>> {
        self.end_raw()?;
        self.commit_beside(edit, observer)
    }

    /// [`Writer::commit`] while data of a raw block are written, too.
    fn commit_beside(
        &mut self,
        edit: &Edit,
        observer: &mut dyn FnMut(bool),
    ) -> Result<Committed<S::File>> {
        self.check_whole()?;
        if let Some(save) = self.commit_checksum(edit, observer)? {
            return Ok(save);
        }
        // FILE is what was read, and what the last save has left is finished
        self.compare()?;
        self.begin_own();
        self.settle()?;
        let plan = &self.plan(edit)?;
        let old: Arc<dyn Source> = Arc::new(StoreSource::open(&self.store, &self.file)?);
        let bytes = plan.next(Arc::clone(&old));
        let next = scan(&bytes, false)?;
        // the next file is scanned before a byte of it is written: a text that hides a second document would make blocks vanish
        plan.check(&next.layout)?;
        let record = match plan.in_place() {
            Some(changes) => inplace::record(&*old, changes, plan.layout().len)?,
            None => None,
        };
        let mut save = Committed {
            file: self.file.clone(),
            scan: next,
            method: Method::Nothing,
            written: 0,
            unfinished: None,
            bytes: None,
            around: None,
        };
        if record.as_ref().is_some_and(Record::is_empty) {
            return Ok(save);
        }
        self.alone()?;
        // known before the first byte changes, so that nothing has to be read behind the commit
        let baseline = self.baseline.succeeded_by(&bytes, &save.scan)?;
        let done = match record {
            // the way that was asked for first; the other one where that cannot be done at all
            Some(record) if self.options.replace => match self.replace(plan, &mut save, observer) {
                Err(SaveFailure::Impossible(_)) => {
                    self.in_place(plan.moves(), record, &mut save, observer)
                }
                done => done,
            },
            Some(record) => match self.in_place(plan.moves(), record, &mut save, observer) {
                Err(SaveFailure::Impossible(_)) => self.replace(plan, &mut save, observer),
                done => done,
            },
            None => self.make_room(plan, &*old, &mut save, observer),
        };
        self.finished(done, save, baseline, old)
    }

    /// Takes note of FILE's times before the first write of a save.
    fn begin_own(&self) {
        match self.raw {
            Some(_) => self.own.look(Ok(self.baseline.stat)),
            None => self.own.begin(self.baseline.stat),
        }
    }

    /// What came of a save, and what FILE is to be taken for after it.
    fn finished(
        &mut self,
        done: Result<(), SaveFailure>,
        save: Committed<S::File>,
        baseline: Baseline,
        old: Arc<dyn Source>,
    ) -> Result<Committed<S::File>> {
        match done {
            Ok(()) => {
                self.check_named(save.method)?;
                self.done(save, baseline, old)
            }
            Err(SaveFailure::Impossible(why)) => Err(Error::NoRoom { why, limit: false }),
            Err(SaveFailure::Refused(error)) => Err(error),
            Err(SaveFailure::Unsure(error) | SaveFailure::Unfinished(error)) => {
                self.leave(Unsettled::Name, &error);
                Err(error)
            }
        }
    }

    /// That no other process has FILE open for writing, as far as a lease can tell.
    fn alone(&self) -> Result<()> {
        if self.raw.is_some() {
            return Ok(());
        }
        // the kernel refuses a read lease while anybody has the file open for writing
        let elsewhere = self.store.written_elsewhere(&self.lock);
        if elsewhere.map_err(|cause| self.error("asking for a lease", cause))? {
            let users = self.store.writers(&self.file);
            let users = users.unwrap_or_else(|| "another program (fuser names it)".to_owned());
            let what = format!("open for writing in {users}: close it there, and save again");
            return Err(self.error(&what, busy()));
        }
        Ok(())
    }

    /// J. `moves`: whether blocks or bytes of one move.
    fn in_place(
        &mut self,
        moves: bool,
        mut record: Record,
        save: &mut Committed<S::File>,
        observer: &mut dyn FnMut(bool),
    ) -> Result<(), SaveFailure> {
        let mut extents = record.ranges.iter().map(Range::extent);
        let cut = Extent {
            start: record.new_len.min(record.old_len),
            end: record.old_len,
        };
        let changes_data = moves
            || self.layout().holds_data(cut)
            || extents.any(|extent| self.layout().holds_data(extent));
        observer(changes_data);
        let file = match &self.raw {
            Some(file) => file.clone(),
            None => self.open_writable()?,
        };
        // a record behind a streamed block would be data of that block
        let tail_will_do = !self.open_ended();
        // a shorter FILE would end in front of the record in its tail
        let beside = !tail_will_do || record.new_len < record.old_len;
        record.sidecar_of = beside.then_some(self.baseline.stat.id);
        let mut done = self.journaled(&file, &record).run();
        // no file can be made in this directory: the record goes to the tail of FILE, where a shorter length is set in two steps
        if beside && tail_will_do && matches!(done, Err(SaveFailure::Impossible(_))) {
            record.sidecar_of = None;
            done = self.journaled(&file, &record).run();
        }
        self.outcome(done, record, save)
    }

    fn journaled<'a>(&'a self, file: &'a S::File, record: &'a Record) -> InPlace<'a, S> {
        InPlace {
            store: &self.store,
            file,
            name: &self.name,
            record,
            own: &self.own,
        }
    }

    /// Whether bytes behind the last block would be data of it.
    fn open_ended(&self) -> bool {
        let layout = self.layout();
        let cut_short = |last: &BlockHeader| last.end().is_none_or(|end| end > layout.len);
        let last = layout.blocks.last();
        last.is_some_and(|last| last.streamed() || cut_short(last))
    }

    /// The ways to save when blocks move, or more changes than a journal holds.
    fn make_room(
        &mut self,
        plan: &Plan,
        old: &dyn Source,
        save: &mut Committed<S::File>,
        observer: &mut dyn FnMut(bool),
    ) -> Result<(), SaveFailure> {
        if plan.in_place().is_none() && !self.options.grow {
            let why = "the edit moves blocks of the file, which -o grow=never forbids".to_owned();
            return Err(Error::NoRoom { why, limit: true }.into());
        }
        let (why, limit) = match self.copy_limit(plan)? {
            Some(why) => (why, true),
            None => match self.replace(plan, save, observer) {
                Err(SaveFailure::Impossible(why)) => (why, false),
                done => return done,
            },
        };
        // few bytes may move in place, all of them in the journal
        let changes = plan.segments().changes();
        if let Some(record) = inplace::record(old, changes, plan.layout().len)? {
            return self.in_place(plan.moves(), record, save, observer);
        }
        let why = format!("the edit needs a new copy of the file, but {why}");
        Err(Error::NoRoom { why, limit }.into())
    }

    /// Takes in what FILE now is. `old` is the file that was there before, as it is now.
    fn done(
        &mut self,
        mut save: Committed<S::File>,
        baseline: Baseline,
        old: Arc<dyn Source>,
    ) -> Result<Committed<S::File>> {
        // of the file that has FILE's name now, whose attributes may not be had
        let id = self.baseline.stat.id;
        self.baseline = baseline;
        self.baseline.stat.id = id;
        save.around = self.own.end(self.store.stat(&self.file));
        self.baseline.renew(save.around.map(|around| around.1));
        save.file = self.file.clone();
        if save.unfinished.is_some() && save.method == Method::InPlace {
            save.bytes = Some(self.seen(old)?);
        }
        Ok(save)
    }

    /// Keeps a text that was refused in a file beside FILE, or where [`rejected`](super::rejected) says. The path, from FILE's directory.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be kept anywhere.
    pub fn keep_rejected(&mut self, text: &[u8]) -> Result<PathBuf> {
        let file = (self.name.as_os_str(), Some(&self.file));
        let name = self.rejected.keep(&self.store, file, text)?;
        Ok(self.as_found(name))
    }

    /// Where the text is that was kept last, from FILE's directory; `None` if its file is gone.
    #[must_use]
    pub fn kept_rejected(&self) -> Option<PathBuf> {
        let name = self.rejected.kept(&self.store)?;
        Some(self.as_found(name))
    }

    /// Removes the refused text that was kept, if any, after `saved` has been saved. A file that has neither of these texts by now stays.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be removed.
    pub fn clear_rejected(&mut self, saved: &[u8]) -> Result<()> {
        self.rejected.clear(&self.store, saved)
    }

    /// Leaves the refused text that was kept where it is: no save removes it, and no other text takes its place.
    pub fn release_rejected(&mut self) {
        self.rejected.release();
    }

    /// A path from FILE's directory, as it is found from where that was at first.
    fn as_found(&self, path: PathBuf) -> PathBuf {
        let elsewhere = self.store.path_elsewhere();
        elsewhere.map_or(path.clone(), |directory| directory.join(path))
    }

    /// FILE, open for writing. Each save opens it anew: no lease can be had while it is open.
    fn open_writable(&self) -> Result<S::File> {
        let failed = |cause| self.error("opening it for writing", cause);
        let opened = self.store.open(&self.name, Access::Write);
        let file = opened
            .or_else(|refused| self.open_as_owner(refused))
            .map_err(failed)?;
        // the name may lead to another file since the last look: its bytes are not ours to write
        if self.store.stat(&file).map_err(failed)?.id != self.baseline.stat.id {
            return Err(self.replaced());
        }
        Ok(file)
    }

    /// The error if another file has FILE's name.
    fn replaced(&self) -> Error {
        let why = format!("{} has been replaced by another file", self.name.display());
        Error::Stale { why }
    }

    fn error(&self, what: &str, cause: std::io::Error) -> Error {
        Error::io(format!("{}: {what}", self.name.display()), cause)
    }
}

/// Whether files like this are written at all.
///
/// # Errors
/// Why not.
pub fn writable(layout: &Layout) -> Result<()> {
    if !layout.dialect.writable {
        let why = format!("{} files are read only", layout.dialect.name);
        return Err(Error::unsupported(Place::File, why));
    }
    match layout.worst() {
        Some(finding) if finding.severity >= Severity::ReadOnly => Err(finding.error.clone()),
        _ => Ok(()),
    }
}
