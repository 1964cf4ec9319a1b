//! FILE: what writes it, why it can't be written, whether its bytes are where the state says, and what is shown after a save and told of it.
//!
//! One save at a time. A save begins with the writer's lock and a look at FILE ([`Saves::begin`] for blocks and arrays), checks what is to
//! be written, commits it through [`Writer`], shows the state that follows, and only then returns.

mod encode;
mod look;

use std::fmt::Display;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard, TryLockError,
};
use std::time::{Instant, SystemTime};

use log::{info, warn};

pub(super) use self::encode::check_counted;
use super::attr::{Reading, usable};
use super::blocks::{Blocks, Content, PATCHED_BEFORE, WrittenFile};
use super::node::{Format, Node};
use super::state::{Shown, State};
use super::tree_file::TreeFile;
use super::version::{BlockChange, Through};
use super::{Error, Result, VfsOptions, locked, sizes_of_disk};
use crate::asdf::check::CheckedText;
use crate::asdf::checksum::ChecksumState;
use crate::error::Error as Library;
use crate::save::edit::{BlockEdit, Edit};
use crate::save::{Committed, FilePath, Method, SaveOptions, Status, Writer};
use crate::source::Stat;

/// FILE, while one thread saves: its writer, and what it is.
pub(super) struct Saving<'a> {
    pub(super) saves: &'a Saves,
    pub(super) writer: MutexGuard<'a, Writer>,
    pub(super) state: Arc<State>,
    /// The file through which all of a change of a block comes, so that the kernel has it.
    pub(super) through: Option<Through>,
}

/// FILE, what writes it, and what a save or another program changes of what is shown.
pub(super) struct Saves {
    pub(super) options: Arc<VfsOptions>,
    pub(super) shown: Arc<Shown>,
    pub(super) tree: Arc<TreeFile>,
    pub(super) blocks: Arc<Blocks>,
    /// Its whole path, for messages.
    pub(super) path: PathBuf,
    /// How it is found.
    pub(super) file: FilePath,
    /// How FILE is opened for writing, or why it is not.
    pub(super) writing: Result<SaveOptions, String>,
    /// What saves FILE, and has it locked; there may be none yet. The lock admits one save at a time. With what is asked of the writer
    /// without waiting for it.
    writer: OnceLock<(Mutex<Writer>, Arc<Status>)>,
    /// What unlocks FILE, if this process has locked it under another name that is no longer used.
    pub(super) unlock: OnceLock<Box<dyn Fn(Stat) + Send + Sync>>,
    /// Held for reading by requests that read stored bytes, and for writing while a save changes some in place.
    stored: RwLock<()>,
    /// Why the state is not FILE as another program has left it: no bytes may be read where the state says. It may be set for a file that
    /// is only read, too.
    out_of_date: Mutex<Option<String>>,
    /// When FILE was last compared with the state. The thread that compares holds the lock meanwhile.
    pub(super) compared: Mutex<Option<Instant>>,
    /// Counts up when a save begins to write FILE and when it ends, so that it is odd meanwhile.
    writes: AtomicU64,
    /// What there is to tell of saves.
    pub(super) news: Mutex<News>,
}

impl Saves {
    /// `writing`: how FILE is opened for writing when something is first to be changed, or why it is never.
    pub(super) fn new(
        file: FilePath,
        writing: Result<SaveOptions, String>,
        options: &Arc<VfsOptions>,
        shown: &Arc<Shown>,
        tree: &Arc<TreeFile>,
        blocks: &Arc<Blocks>,
    ) -> Self {
        Self {
            options: Arc::clone(options),
            shown: Arc::clone(shown),
            tree: Arc::clone(tree),
            blocks: Arc::clone(blocks),
            path: file.whole().to_owned(),
            file,
            writing,
            writer: OnceLock::new(),
            unlock: OnceLock::new(),
            stored: RwLock::default(),
            out_of_date: Mutex::default(),
            compared: Mutex::default(),
            writes: AtomicU64::new(0),
            news: Mutex::default(),
        }
    }

    /// Takes FILE as it has been opened for writing.
    pub(super) fn opened(&self, writer: Writer) {
        // it was locked by others, perhaps
        locked(&self.news).forget_refusals(None);
        let status = Arc::clone(writer.status());
        // there is no other: the thread that opens FILE later holds `compared`
        let _ = self.writer.set((Mutex::new(writer), status));
    }

    /// The writer of FILE, once no other thread saves.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Writer>> {
        let writer = self.writer.get();
        writer
            .map(|it| locked(&it.0))
            .ok_or(Error::ReadOnly("this mount"))
    }

    /// The writer of FILE, without waiting; `None` if FILE has not been opened for writing.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread saves.
    pub(super) fn idle_writer(&self) -> Result<Option<MutexGuard<'_, Writer>>> {
        match self.writer.get().map(|it| it.0.try_lock()) {
            None => Ok(None),
            Some(Ok(writer)) => Ok(Some(writer)),
            Some(Err(TryLockError::Poisoned(poisoned))) => Ok(Some(poisoned.into_inner())),
            Some(Err(TryLockError::WouldBlock)) => Err(Error::Busy("another thread saves")),
        }
    }

    /// Keeps saves from changing stored bytes while the guard lives.
    pub(super) fn reading(&self) -> Reading<'_> {
        self.stored.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request reads stored bytes, and keeps others from it, while a save changes or moves some in place.
    ///
    /// A new file that takes FILE's place needs no such wait: it leaves the old one to the threads that read it.
    pub(super) fn stirring(&self) -> RwLockWriteGuard<'_, ()> {
        self.stored.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a save begins to write FILE, until the guard is dropped. The thread holds the writer's lock.
    pub(super) fn writing(&self) -> Writing<'_> {
        self.writes.fetch_add(1, Ordering::AcqRel);
        Writing(&self.writes)
    }

    /// A number that tells the time between two saves from other such times; `None` while a save writes FILE.
    pub(super) fn between_writes(&self) -> Option<u64> {
        let writes = self.writes.load(Ordering::Acquire);
        writes.is_multiple_of(2).then_some(writes)
    }

    /// Why nothing can be written, if that is so.
    pub(super) fn why_read_only(&self) -> Option<String> {
        let broken = |why| format!("a save has failed; unmount, and mount again: {why}");
        match &self.writing {
            Ok(_) => self.status().and_then(Status::broken).map(broken),
            Err(why) => Some(why.clone()),
        }
    }

    /// Checks that FILE's bytes are where the state says, so that they can be read and saved.
    ///
    /// # Errors
    /// [`Library::Stale`].
    pub(super) fn check_up_to_date(&self) -> Result<(), Library> {
        let why = locked(&self.out_of_date).clone();
        why.map_or(Ok(()), |why| Err(Library::Stale { why }))
    }

    /// Notes why the state is not FILE as it is now; `None` if it is.
    pub(super) fn note_out_of_date(&self, why: Option<&str>) {
        self.note_out_of_date_if(why, || true);
    }

    /// The same, if `holds` with the note locked: a save that ends takes the note back after it has counted up.
    pub(super) fn note_out_of_date_if(&self, why: Option<&str>, holds: impl FnOnce() -> bool) {
        let changed = |why| {
            format!(
                "the file has been changed by another program, and can't be shown as it is now: {why}"
            )
        };
        let why = why.map(|why| self.why_not_there().unwrap_or_else(|| changed(why)));
        let mut noted = locked(&self.out_of_date);
        if !holds() {
            return;
        }
        let before = std::mem::replace(&mut *noted, why.clone());
        drop(noted);
        // logged once, not at each request that finds it so
        if let (None, Some(news)) = (before, why) {
            // reads ask for this as they make their source
            self.blocks.changed();
            warn!("{}: {news}", self.path.display());
        }
    }

    /// A message that FILE's name is gone, if it is. FILE is looked for beneath its directory, as when it is opened: a path through a
    /// link could lead into the mount, and this thread serves the mount.
    pub(super) fn why_not_there(&self) -> Option<String> {
        let gone = self.file.stat().err()?;
        let why = "the file is no longer there: it was moved or removed, and nothing can be saved; what was opened is still shown, copy it out";
        (gone.kind() == ErrorKind::NotFound).then(|| why.to_owned())
    }

    /// Keeps a refused text on disk, and gives the path of its file.
    ///
    /// # Errors
    /// Why it can't be kept there.
    pub(super) fn put_aside(&self, writer: &mut Writer, text: &[u8]) -> Result<PathBuf> {
        Ok(self.beside(&writer.keep_rejected(text)?))
    }

    /// The path of what has that path from FILE's directory.
    pub(super) fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// What the writer of FILE tells while another thread saves; `None` if FILE has not been opened for writing.
    pub(super) fn status(&self) -> Option<&Status> {
        self.writer.get().map(|it| &*it.1)
    }

    /// The writer of FILE, once no other thread saves, and the state of FILE then. A save of a block takes the state only here: it may
    /// change while the save waits for the writer.
    pub(super) fn begin(&self) -> Result<Saving<'_>> {
        let mut writer = self.writer()?;
        self.catch_up(Some(&mut writer));
        self.check_up_to_date()?;
        let (saves, state) = (self, self.shown.now());
        Ok(Saving {
            saves,
            writer,
            state,
            through: None,
        })
    }

    /// Writes an edit to FILE and shows what follows from it: that a block has other bytes (`change`), whether its checksum is right
    /// (`sum`), and what was found in the text. It has to be noted before the state is shown: a thread that reads
    /// the block in between would find the state of its checksum unknown, and with `-o verify` sum it up once more.
    ///
    /// If stored bytes change in place, no request reads any from before the first change until the new state is shown; if the save fails,
    /// it has moved nothing, and the old state is still true of FILE.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if FILE has the edit, but the save could not do all that belongs to it; why FILE does not have it.
    pub(super) fn commit(
        &self,
        writer: &mut Writer,
        edit: &Edit,
        what: &str,
        change: Option<BlockChange>,
        sum: Option<(usize, ChecksumState)>,
        text: Option<CheckedText>,
    ) -> Result<()> {
        let (mut stirring, mut writing) = (None, None);
        let committed = writer.commit(edit, &mut |changes_data| {
            // the writer calls this once for each way to save that it tries
            writing.get_or_insert_with(|| self.writing());
            if changes_data {
                stirring.get_or_insert_with(|| self.stirring());
            }
        });
        let committed = committed.inspect_err(|error| self.failed(writer, error))?;
        let replaced: Vec<usize> = edit.blocks.iter().filter_map(BlockEdit::replaced).collect();
        let old = self.shown.now().stat.id;
        let saved = self.show_saved(committed, what, &replaced, change, sum, text);
        if stirring.is_some() {
            // by the places of the old state other bytes would be read now
            self.seal(old);
            self.blocks.rebase(&self.shown.now().snapshot);
        }
        saved
    }

    /// Takes in that a save has failed: it may have changed FILE's times.
    pub(super) fn failed(&self, writer: &mut Writer, error: &Library) {
        if matches!(error, Library::Stale { .. }) {
            // the other program may have written within one tick of the file system's clock, so that the times do not tell
            writer.distrust();
            self.show_times(&self.shown.now(), None);
            let named = self.file.stat();
            if !named.is_ok_and(|named| named.id == self.shown.now().stat.id) {
                // blocks may have moved in the file that has lost its name: nothing is read of it before the next look, which is the
                // next request
                self.note_out_of_date(Some(&error.to_string()));
                self.refresh_soon();
            }
        } else {
            self.forgive(writer);
        }
    }

    /// Shows the snapshot that follows from a save; `change`, `sum` and `text` as in [`Saves::commit`]. The thread holds the writer's lock.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub(super) fn show_saved(
        &self,
        committed: Committed<Arc<File>>,
        what: &str,
        replaced: &[usize],
        change: Option<BlockChange>,
        sum: Option<(usize, ChecksumState)>,
        text: Option<CheckedText>,
    ) -> Result<()> {
        // the save has compared FILE with the state
        self.note_out_of_date(None);
        let old = self.shown.now();
        let (how, follows) = match committed.method {
            Method::Nothing => return Ok(()),
            Method::Replaced => (
                "by replacing the file",
                "a crash may bring the old file back",
            ),
            Method::InPlace => ("in place", "the next save or mount finishes it"),
        };
        let unfinished = committed.unfinished;
        let unfinished = unfinished.map(|why| Error::Unfinished(why, follows));
        let snapshot = old.snapshot.succeeded_by(
            committed.file,
            committed.bytes,
            committed.scan,
            replaced,
            text,
        );
        // if another program may have written FILE since it was read, it is looked at again, which a state without times tells
        let around = committed.around;
        let stat = around.and_then(|(found, now)| old.is_untouched(&found).then_some(now));
        if let Some((n, state)) = sum {
            snapshot.note_checksum(n, state);
        }
        let mut new = old.next(Arc::new(snapshot), stat);
        if let Some(change) = change {
            new.note_changed(change);
        }
        self.show(new);
        let what = format!("{what} {how}, {} bytes written", committed.written);
        let what = match &unfinished {
            None => what,
            Some(error) => format!("{what}; {error}"),
        };
        info!("{}: {what}", self.path.display());
        locked(&self.news).last_save = Some((SystemTime::now(), what));
        unfinished.map_or(Ok(()), Err)
    }

    /// Shows the same state, in which a block has other bytes.
    pub(super) fn show_changed_block(&self, change: BlockChange) {
        let old = self.shown.now();
        old.snapshot.forget_gathered();
        let mut new = old.next(Arc::clone(&old.snapshot), old.left());
        new.note_changed(change);
        self.show(new);
    }

    /// Checks that the disk has so many bytes left for block `n`, as far as this user may fill it.
    pub(super) fn check_free(&self, n: usize, growth: u64) -> Result<()> {
        let state = self.shown.now();
        let file = state.snapshot.file().map(|file| file.file());
        let disk = file.map(|file| sizes_of_disk(file, false)).transpose()?;
        let privileged = rustix::process::geteuid().is_root();
        let free = disk.map_or(0, |disk| usable(&disk, privileged));
        if growth <= free {
            return Ok(());
        }
        let why = format!("block {n} would take {growth} bytes more, but the disk has {free} left");
        Err(Library::NoRoom { why, limit: false }.into())
    }

    /// What becomes of what was written through a file and is not saved, if anything, when that is closed.
    pub(super) fn fate_of(&self, written: &WrittenFile) -> Option<&'static str> {
        let fate = written.unsaved()?;
        let state = self.shown.now();
        let is_there = || match self.file.stat() {
            Ok(named) => named.id == state.stat.id,
            // what can't be looked at may be the same still
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        match written.content() {
            Content::Patched(_) if !is_there() || !written.has_block_in(&state) => {
                Some(PATCHED_BEFORE)
            }
            _ => Some(fate),
        }
    }

    /// Notes that what was written into a block through a file could not be saved, why, and what became of it.
    pub(super) fn note_loss(&self, block: usize, file: Node, why: &dyn Display, fate: &str) {
        let why = format!("{}: {why}; {fate}", self.shown.now().path(file));
        warn!("{}: {why}", self.path.display());
        locked(&self.news).refuse(Some(block), Some(file), why);
    }

    /// Passes on what became of a change of a block or array. Notes the reason of a refusal for `info/status`, as an errno does not tell it.
    pub(super) fn noted<T>(&self, node: Node, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            let state = self.shown.now();
            let why = format!("{}: {error}", state.path(node));
            let block = state.block_of(node);
            locked(&self.news).refuse(block, None, why);
        }
        done
    }
}

/// Whether what was to be saved is, if not all that belongs to it.
pub(super) fn is_saved(done: &Result<()>) -> bool {
    matches!(done, Ok(()) | Err(Error::Unfinished(..)))
}

/// While this lives, a save writes FILE, and FILE's times are not compared.
pub(super) struct Writing<'a>(&'a AtomicU64);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// What the end of the mount loses, a line each.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// What was written and is not saved.
    pub unsaved: Vec<String>,
    /// Files that are in the mount only, and that no editor has made, with their lengths.
    pub scratch: Vec<String>,
}

impl Losses {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unsaved.is_empty() && self.scratch.is_empty()
    }

    /// Says in the log what the mount of the file at `path` has lost. Whether nothing was written that is not saved.
    #[must_use]
    pub fn say(&self, path: &dyn Display) -> bool {
        for file in &self.scratch {
            warn!("{path}: unmounted; {file} existed only in the mount and is lost");
        }
        for line in &self.unsaved {
            warn!("{path}: unmounted, but {line}");
        }
        self.unsaved.is_empty()
    }
}

/// What became of saves, and why edits were refused or given up. A line goes when what it is about has been saved.
#[derive(Debug, Default)]
pub(super) struct News {
    /// When the last save was, and what it did.
    pub(super) last_save: Option<(SystemTime, String)>,
    /// Why changes were refused or given up, the oldest first.
    lines: Vec<Line>,
}

/// How many lines are kept.
const MAX_LINES: usize = 100;

/// Why a change of a block was refused, or of an array that lies in no block: the process that tried has only an errno.
#[derive(Debug)]
struct Line {
    block: Option<usize>,
    /// The file through which was written what is gone, `.bin` for both files of an array; `None` if nothing is.
    lost: Option<Node>,
    text: String,
}

impl News {
    /// Why what was written into blocks was given up.
    pub(super) fn given_up(&self) -> impl Iterator<Item = &String> {
        self.texts(true)
    }

    /// Why changes of blocks were refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = &String> {
        self.texts(false)
    }

    fn texts(&self, is_loss: bool) -> impl Iterator<Item = &String> {
        let lines = self
            .lines
            .iter()
            .filter(move |it| it.lost.is_some() == is_loss);
        lines.map(|line| &line.text)
    }

    /// Why what was written into blocks was given up, as it is said at unmount.
    pub(super) fn unsaved(&self) -> Vec<String> {
        let edits = self.given_up();
        edits
            .map(|why| format!("an edit is not saved: {why}"))
            .collect()
    }

    /// Whether there is nothing to say.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.last_save.is_none()
    }

    /// Notes why a change was refused, or given up if what was written through a file is `lost`. It replaces what was refused of the block
    /// before.
    pub(super) fn refuse(&mut self, block: Option<usize>, lost: Option<Node>, text: String) {
        // what was given up for the same reason says more
        if lost.is_none() && self.given_up().any(|said| said.starts_with(&text)) {
            return;
        }
        if block.is_some() {
            self.forget_refusals(block);
        }
        // said again, it is the newest
        self.lines.retain(|said| said.text != text);
        let lost = lost.map(both_formats);
        self.lines.push(Line { block, lost, text });
        if self.lines.len() > MAX_LINES {
            let refusal = self.lines.iter().position(|said| said.lost.is_none());
            self.lines.remove(refusal.unwrap_or(0));
        }
    }

    /// Notes that something was written into a block through a file, and saved: what was lost of another file is still not. For `None`, that
    /// the block has been removed.
    pub(super) fn saved(&mut self, block: usize, file: Option<Node>) {
        let file = file.map(both_formats);
        let is_over = |lost: Node| file.is_none_or(|file| file == lost);
        let lines = &mut self.lines;
        lines.retain(|said| said.block != Some(block) || !said.lost.is_none_or(is_over));
    }

    /// Drops lines about refused changes of a block, which has been encoded anew; for `None`, about arrays that lie in no block: a tree has
    /// been saved in which these may have been changed.
    pub(super) fn forget_refusals(&mut self, block: Option<usize>) {
        self.lines
            .retain(|said| said.lost.is_some() || said.block != block);
    }
}

/// A file, or `.bin` for a file of an array: what is written through one of its files shows in the other.
fn both_formats(file: Node) -> Node {
    match file {
        Node::Array(number, _) => Node::Array(number, Format::Bin),
        file => file,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unsaved;
