//! Which blocks are open for writing, by which file of the mount, and what was written into them that FILE does not have yet.
//!
//! One file at a time has a block, from its first descriptor to its last; another one is busy until then. All descriptors of the file
//! share one [`WrittenFile`], and so its bytes:
//!
//! | Content | Written | FILE has it |
//! |---|---|---|
//! | `Saved` | nothing since the last save | |
//! | `Patched` | bytes of a raw block, where they are | at once, with the checksum "not verified"; a close puts the checksum |
//! | `Edited` | parts of a compressed block, or bytes that give a block another length | at a close or sync, all or nothing |
//! | `Emptied` | a file from its beginning, which open(2) has emptied, or a new block | the same |

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use log::warn;

use super::scratch::REPLACED_WITHIN;
use super::version::{Shows, Through};
use super::{Error, Node, Result, State, locked};
use crate::asdf::Snapshot;
use crate::asdf::checksum::{ChecksumState, md5};
use crate::error::Error as Library;
use crate::source::{Made, Memory, Overlay, ScratchBytes, ScratchRoom, Source};

/// How long a writer of a block waits for the release of the handle of another file that has been closed. The kernel sends the release
/// before close(2) returns, but the thread that answers it may get no processor for some hundred milliseconds on a busy machine.
const RELEASING: Duration = Duration::from_millis(500);
/// More blocks than this are looked up when something asks for them, and no earlier.
const MANY_BLOCKS: u32 = 1 << 16;

/// What was written through a file, if FILE does not have all of it.
#[derive(Clone)]
pub(super) enum Content {
    /// Nothing.
    Saved,
    /// Bytes of a raw block, which FILE has. It lacks this checksum.
    Patched(Sum),
    /// The decoded bytes of the block, with edits.
    Edited(Arc<Overlay>),
    /// All bytes of the file, from its beginning.
    Emptied(Arc<Overlay>),
}

/// What becomes of the checksum of a block whose bytes change.
///
/// A checksum is of the stored bytes or of the decoded ones, as it was before: asdf-python up to 5.2 verifies that of the decoded bytes
/// and calls the other one wrong; 5.3 and later do the opposite. A program that could verify a block before an edit can do so after it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sum {
    /// It has none.
    None,
    /// It is computed anew, over the stored bytes.
    Stored,
    /// It is this one, in this state. It is that of the decoded bytes, or the block has none, as before; or it did not match before, and is
    /// kept: a new one would vouch for a block that is damaged.
    Is([u8; 16], ChecksumState),
}

impl Sum {
    /// What becomes of the checksum of block `n` when it gets these bytes; `edits`: the same, if some bytes of the block may stay.
    pub(super) fn of(
        snapshot: &Snapshot,
        n: usize,
        decoded: &dyn Source,
        edits: Option<&Overlay>,
    ) -> Result<Self, Library> {
        let header = snapshot.layout().blocks.get(n);
        let Some(header) = header.filter(|it| it.has_checksum() && !it.streamed()) else {
            return Ok(Self::None);
        };
        let is_all_new = edits.is_none_or(|block| {
            let touched = block.touched().into_iter();
            let lens = touched.map(|range| range.end.saturating_sub(range.start));
            lens.fold(0, u64::saturating_add) == block.len()
        });
        if is_all_new && header.compression == [0; 4] {
            return Ok(Self::Stored);
        }
        let verified = match edits {
            Some(block) => snapshot.verify_edited(n, block),
            None => snapshot.verify_checksum(n, &mut |_| {}).and_then(|state| {
                let is_decoded = state == ChecksumState::Decoded;
                let sum = is_decoded.then(|| md5(decoded, &mut |_| {}));
                Ok((state, sum.transpose()?))
            }),
        };
        match verified {
            Ok((state, Some(sum))) => Ok(Self::Is(sum, state)),
            // no old byte stays
            _ if is_all_new => Ok(Self::Stored),
            Ok((ChecksumState::Wrong, None)) => {
                warn!("block {n}: its checksum did not match before this edit, and stays as it is");
                Ok(Self::Is(header.checksum, ChecksumState::Wrong))
            }
            Ok(_) => Ok(Self::Stored),
            Err(error) => Err(error),
        }
    }

    /// What becomes of the checksum of raw block `n` when bytes are written where they are; of the `whole` block, no old byte stays.
    pub(super) fn of_patched(snapshot: &Snapshot, n: usize, whole: bool) -> Result<Self> {
        let header = snapshot.layout().blocks.get(n).ok_or(Error::NotFound)?;
        // to verify the old checksum would read all of a block whose bytes are about to go
        if whole && header.has_checksum() {
            return Ok(Self::Stored);
        }
        let state = snapshot.verify_checksum(n, &mut |_| {})?;
        Ok(match state {
            ChecksumState::Absent | ChecksumState::Wrong => Self::Is(header.checksum, state),
            _ => Self::Stored,
        })
    }

    /// The same when these bytes are stored: one that did not match may do so now.
    pub(super) fn now(self, stored: &dyn Source) -> Result<Self, Library> {
        match self {
            Self::Is(sum, ChecksumState::Wrong) if md5(stored, &mut |_| {})? == sum => {
                Ok(Self::Is(sum, ChecksumState::Used))
            }
            sum => Ok(sum),
        }
    }

    /// The checksum when these bytes are stored.
    pub(super) fn over(&self, stored: &dyn Source) -> Result<[u8; 16], Library> {
        match self {
            Self::None => Ok([0; 16]),
            Self::Stored => md5(stored, &mut |_| {}),
            Self::Is(sum, _) => Ok(*sum),
        }
    }

    /// What is known of it then, as that of block `n`.
    pub(super) fn known(&self, n: usize) -> Option<(usize, ChecksumState)> {
        match self {
            Self::None => None,
            Self::Stored => Some((n, ChecksumState::Used)),
            Self::Is(_, state) => Some((n, *state)),
        }
    }
}

/// A file of the mount that is open for writing, and the block that it writes to.
pub(super) struct WrittenFile {
    pub(super) block: usize,
    pub(super) file: Node,
    /// The version of the file, so its inode number: under another one, nothing is seen of what is not saved.
    version: u64,
    /// The form that the file had when it was opened, or that a save through it has given to it; see [`State::form`].
    form: AtomicU64,
    /// How often another program had changed FILE; see [`Versions::elsewhere`](super::Versions).
    elsewhere: u64,
    /// Descriptors that are open for writing, and threads that change the file without one. Changes with the table locked.
    writers: AtomicUsize,
    turn: Mutex<()>,
    inner: Mutex<Inner>,
}

struct Inner {
    content: Content,
    /// Whether an emptied file is saved even if nothing is written: the block is to be made, or to be empty.
    saved_if_empty: bool,
    /// When bytes were patched last.
    patched: Option<SystemTime>,
    /// Why a write of the emptied file has failed: bytes of it are missing.
    short: Option<Error>,
    /// Why the content could not be saved, if nothing was written since.
    refused: Option<(Instant, Error)>,
}

impl WrittenFile {
    /// The file of a block as a state shows it, with one writer.
    fn new(state: &State, block: usize, file: Node, content: Content) -> Self {
        Self {
            block,
            file,
            version: state.version(file),
            form: AtomicU64::new(state.form(file)),
            elsewhere: state.versions.elsewhere(),
            writers: AtomicUsize::new(1),
            turn: Mutex::default(),
            inner: Mutex::new(Inner {
                saved_if_empty: matches!(content, Content::Emptied(_)),
                content,
                patched: None,
                short: None,
                refused: None,
            }),
        }
    }

    /// The right to change the content: a write holds it, and a save until it is over.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        locked(&self.turn)
    }

    pub(super) fn content(&self) -> Content {
        locked(&self.inner).content.clone()
    }

    pub(super) fn form(&self) -> u64 {
        self.form.load(Ordering::Acquire)
    }

    /// Takes the file as it is in this state for the one that is written to, after a save through it.
    pub(super) fn renew(&self, state: &State) {
        self.form.store(state.form(self.file), Ordering::Release);
    }

    /// Whether the file is the one that a state shows.
    pub(super) fn is_of(&self, state: &State) -> bool {
        self.has_block_in(state) && state.form(self.file) == self.form()
    }

    /// Whether the block is the one of a state, though the file may be another one: only another program makes it another.
    pub(super) fn has_block_in(&self, state: &State) -> bool {
        state.versions.elsewhere() == self.elsewhere
    }

    /// The file, as the kernel knows it, which has what was written as its bytes.
    pub(super) fn through(&self) -> Through {
        Through {
            file: self.file,
            version: self.version,
            form: self.form(),
            is_saved: true,
        }
    }

    /// Notes what became of a write, perhaps from a map: whether it leaves bytes missing, and that there is something to be saved again.
    pub(super) fn note_write(&self, written: &Result<()>, mapped: bool) {
        let mut inner = locked(&self.inner);
        inner.refused = None;
        let Err(why) = written else {
            return;
        };
        let is_lack = matches!(
            why,
            Error::Library(Library::Io { .. } | Library::NoRoom { .. })
        );
        // nobody writes again what was stored in a map; of another write its program knows
        let is_missing = match &inner.content {
            Content::Emptied(_) => true,
            Content::Edited(_) => mapped && is_lack,
            Content::Saved | Content::Patched(_) => false,
        };
        if is_missing {
            inner.short = Some(why.clone());
        }
    }

    /// Why bytes of the file are missing.
    pub(super) fn short(&self) -> Option<Error> {
        locked(&self.inner).short.clone()
    }

    pub(super) fn refuse(&self, why: &Error) {
        locked(&self.inner).refused = Some((Instant::now(), why.clone()));
    }

    /// Why the content could not be saved, if nothing was written since.
    pub(super) fn refusal(&self) -> Option<Error> {
        let refused = locked(&self.inner).refused.clone();
        refused.map(|(_, why)| why)
    }

    /// What becomes of what is not saved, if anything, when the file is closed: a patch is in FILE already, if that is still the same file.
    pub(super) fn unsaved(&self) -> Option<&'static str> {
        let inner = locked(&self.inner);
        match &inner.content {
            Content::Saved => None,
            Content::Patched(_) => Some(PATCHED),
            Content::Emptied(bytes) if !inner.saved_if_empty && bytes.is_empty() => None,
            Content::Edited(_) | Content::Emptied(_) => Some(GIVEN_UP),
        }
    }

    /// Has the emptied file saved even if nothing is written.
    pub(super) fn save_if_empty(&self) {
        locked(&self.inner).saved_if_empty = true;
    }

    /// Notes that bytes of the block were patched, and when.
    pub(super) fn note_patch(&self, at: SystemTime) {
        locked(&self.inner).patched = Some(at);
    }

    /// When bytes of the block were patched last, if any were.
    pub(super) fn patched(&self) -> Option<SystemTime> {
        locked(&self.inner).patched
    }
}

/// What became of bytes that could not be saved.
pub(super) const GIVEN_UP: &str = "what was written is given up";
/// What became of bytes that were written where they are in FILE, as long as that is the same file.
const PATCHED: &str =
    "what was written is in the file, but may not be on the disk; its checksum is not set";
/// The same, if it is another one.
pub(super) const PATCHED_BEFORE: &str =
    "what was written was in the file that another program has changed, replaced or removed";

/// The blocks that are open for writing.
pub(super) struct Blocks {
    by_block: Mutex<HashMap<usize, Arc<WrittenFile>>>,
    /// Files that were emptied by their names, and when: each has a writer until its program opens it, or does not in time.
    emptied: Mutex<Vec<(Instant, Arc<WrittenFile>)>>,
    /// Signalled when a writer of a block has ended.
    freed: Condvar,
    /// Counts each time the content of a file is of another kind, stored bytes move, or another state is shown. A handle whose source was
    /// made at another count makes its source anew.
    generation: AtomicU64,
    /// The room for what is written and not saved yet.
    scratch: Arc<ScratchRoom>,
}

impl Blocks {
    /// None. What is written takes this room.
    pub(super) fn new(scratch: Arc<ScratchRoom>) -> Self {
        Self {
            by_block: Mutex::default(),
            emptied: Mutex::default(),
            freed: Condvar::new(),
            generation: AtomicU64::default(),
            scratch,
        }
    }

    /// An overlay over no bytes.
    pub(super) fn nothing(&self) -> Arc<Overlay> {
        self.over(Arc::new(Memory::new(Vec::new())))
    }

    /// An overlay over these bytes.
    pub(super) fn over(&self, base: Arc<dyn Source>) -> Arc<Overlay> {
        Arc::new(Overlay::new(base, ScratchBytes::new(&self.scratch)))
    }

    /// A number that is another one when contents or states have changed, or FILE can't be read any more.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Has all handles look for their source anew.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Gives a file another content; the caller has its turn.
    pub(super) fn set(&self, written: &WrittenFile, content: Content) {
        let mut inner = locked(&written.inner);
        (inner.content, inner.short, inner.refused) = (content, None, None);
        inner.saved_if_empty &= matches!(inner.content, Content::Emptied(_));
        drop(inner);
        self.changed();
    }

    /// Whether no block is open for writing.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.by_block).is_empty()
    }

    /// The file that has a block of a state open for writing.
    pub(super) fn writer_of(&self, state: &State, block: usize) -> Option<Arc<WrittenFile>> {
        let blocks = locked(&self.by_block);
        let written = blocks.get(&block);
        written.filter(|it| it.has_block_in(state)).cloned()
    }

    /// What was written through a file of this version, as a state shows it, if that is more than FILE has.
    pub(super) fn content_of(&self, state: &State, file: Node, version: u64) -> Option<Content> {
        if self.is_empty() {
            return None;
        }
        let written = self.writer_of(state, state.block_of(file)?)?;
        let is_it = (written.file, written.version) == (file, version);
        let content = is_it.then(|| written.content())?;
        matches!(content, Content::Edited(_) | Content::Emptied(_)).then_some(content)
    }

    /// The bytes of a block or array, as it is being written through its own file.
    pub(super) fn size(&self, state: &State, node: Node) -> Result<u64> {
        match (node, self.content_of(state, node, state.version(node))) {
            (_, Some(Content::Emptied(bytes))) | (Node::Block(_), Some(Content::Edited(bytes))) => {
                return Ok(bytes.len());
            }
            (Node::Array(number, format), _) => {
                let data = state.array_data(number);
                return data.map(|data| format.len(data)).ok_or(Error::NotFound);
            }
            _ => {}
        }
        let n = state.block_of(node).ok_or(Error::NotFound)?;
        let len = state.snapshot.block_len(n).ok_or(Error::NotFound)?;
        // a streamed block may grow at any time, but shows what is there in one state
        let header = state.snapshot.layout().blocks.get(n);
        let there = header
            .filter(|header| header.streamed() && state.snapshot.plain_file().is_some())
            .map(|header| state.stat.size.saturating_sub(header.data_offset()));
        // FILE may have been made shorter since its length was taken
        Ok(there.map_or(len, |there| len.min(there)))
    }

    /// When bytes of the block of a file were patched last, if FILE's state does not say yet.
    pub(super) fn patched_time(&self, state: &State, node: Node) -> Option<SystemTime> {
        if self.is_empty() {
            return None;
        }
        let written = self.writer_of(state, state.block_of(node)?)?;
        let is_patched = matches!(written.content(), Content::Patched(_));
        written.patched().filter(|_| is_patched)
    }

    /// Bytes of each block, if they are known and not very many.
    pub(super) fn lens(&self, state: &State) -> Option<Arc<[u64]>> {
        let count = u32::try_from(state.snapshot.layout().blocks.len()).ok()?;
        let lens = (0..count).map(|n| self.size(state, Node::Block(n)).ok());
        // a closed file keeps these lengths: eight bytes each, in a mount that may have thousands of files
        (count <= MANY_BLOCKS).then(|| lens.collect()).flatten()
    }

    /// Whether bytes that a file of a state may show are being written through another one, straight into FILE: then it has other bytes
    /// with the same version.
    pub(super) fn are_patched_beside(&self, state: &State, file: Node) -> bool {
        if self.is_empty() {
            return false;
        }
        // without the table, which writes wait for: this may read the tree
        let version = state.version(file);
        let shows = match file {
            Node::View(..) => Shows::Several,
            file => state.shown_by(file),
        };
        locked(&self.by_block).values().any(|it| {
            let is_shown = shows == Shows::Several || shows == Shows::Block(it.block);
            let is_it = (it.file, it.version) == (file, version);
            is_shown && !is_it && matches!(it.content(), Content::Patched(_))
        })
    }

    /// Whether a block behind block `n` of a state is open for writing.
    pub(super) fn any_behind(&self, state: &State, n: usize) -> bool {
        let blocks = locked(&self.by_block);
        let mut written = blocks.values();
        written.any(|it| it.block > n && it.has_block_in(state))
    }

    /// The files that are open for writing.
    pub(super) fn written(&self) -> Vec<Arc<WrittenFile>> {
        locked(&self.by_block).values().cloned().collect()
    }

    /// Adds a writer of a block through `file`, as this state shows it; `alone`: if no other has it, not even the same file. If one has, gives
    /// its file. Waits a moment for it: the kernel lets close(2) return before it releases the handle.
    pub(super) fn add_writer(
        &self,
        state: &State,
        block: usize,
        file: Node,
        alone: bool,
    ) -> Result<Arc<WrittenFile>, Node> {
        // what was written into a block that is another one by now is refused, and keeps nobody from the new one
        let found = |blocks: &HashMap<usize, Arc<WrittenFile>>| {
            let found = blocks.get(&block);
            found.filter(|found| found.has_block_in(state)).cloned()
        };
        let is_it = |found: &Arc<WrittenFile>| {
            // after the last writer it is about to be free
            let is_open = found.writers.load(Ordering::Relaxed) > 0;
            !alone
                && is_open
                && found.is_of(state)
                && (found.file, found.version) == (file, state.version(file))
        };
        let blocks = locked(&self.by_block);
        // close(2) of the other file has returned to its program already, which may have started this one
        let waited = self.freed.wait_timeout_while(blocks, RELEASING, |blocks| {
            found(blocks).is_some_and(|found| !is_it(&found))
        });
        let (mut blocks, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // looked up with the lock held since the wait: no other thread can have come in between
        match found(&blocks) {
            Some(shared) if is_it(&shared) => {
                shared.writers.fetch_add(1, Ordering::Relaxed);
                return Ok(shared);
            }
            Some(other) => return Err(other.file),
            None => {}
        }
        let written = Arc::new(WrittenFile::new(state, block, file, Content::Saved));
        blocks.insert(block, Arc::clone(&written));
        Ok(written)
    }

    /// Waits a moment for the release of a file, if what was written could not be saved just now: the release gives that up. A program that
    /// goes on having the file open holds others up no longer than that.
    pub(super) fn wait_for_release(&self, state: &State, block: usize, file: Node) {
        let blocks = locked(&self.by_block);
        let is_refused = |blocks: &mut HashMap<usize, Arc<WrittenFile>>| {
            let written = blocks.get(&block);
            let written = written.filter(|it| it.has_block_in(state) && it.file == file);
            let refused = written.and_then(|it| locked(&it.inner).refused.clone());
            refused.is_some_and(|(at, _)| at.elapsed() < RELEASING)
        };
        drop(self.freed.wait_timeout_while(blocks, RELEASING, is_refused));
    }

    /// Takes over a writer of a file that was emptied by its name: its program opens it next.
    pub(super) fn note_emptied(&self, written: Arc<WrittenFile>) {
        locked(&self.emptied).push((Instant::now(), written));
    }

    /// The writers of a file that was emptied by its name, which has been opened; without one, those of all that were not opened in time.
    pub(super) fn take_emptied(&self, opened: Option<&Arc<WrittenFile>>) -> Vec<Arc<WrittenFile>> {
        let ends = |(at, written): &mut (Instant, Arc<WrittenFile>)| match opened {
            Some(opened) => Arc::ptr_eq(written, opened),
            None => at.elapsed() > REPLACED_WITHIN,
        };
        let mut emptied = locked(&self.emptied);
        let ended = emptied.extract_if(.., ends);
        ended.map(|(_, written)| written).collect()
    }

    /// Makes a block that FILE does not have, with one writer; `None` if another thread has made it.
    pub(super) fn make(&self, state: &State, block: usize, file: Node) -> Option<Arc<WrittenFile>> {
        let content = Content::Emptied(self.nothing());
        let mut blocks = locked(&self.by_block);
        let found = blocks.get(&block);
        if found.is_some_and(|found| found.has_block_in(state)) {
            return None;
        }
        let written = Arc::new(WrittenFile::new(state, block, file, content));
        blocks.insert(block, Arc::clone(&written));
        Some(written)
    }

    /// Counts one writer less. After the last one the block is free.
    pub(super) fn remove_writer(&self, written: &WrittenFile) {
        if self.leave(written, true) {
            self.free(written);
        }
    }

    /// Counts one writer of a file less, `even_last` the last one: no other joins after that, and the block is not free before [`Self::free`].
    /// Whether it is the last.
    pub(super) fn leave(&self, written: &WrittenFile, even_last: bool) -> bool {
        let _blocks = locked(&self.by_block);
        let is_last = written.writers.load(Ordering::Relaxed) <= 1;
        if even_last || !is_last {
            written.writers.fetch_sub(1, Ordering::Relaxed);
        }
        is_last
    }

    /// Frees the block of a file that has no writer any more, or that another one was renamed over: its descriptors can write no more.
    pub(super) fn free(&self, written: &WrittenFile) {
        let mut blocks = locked(&self.by_block);
        let is_it = |found: &Arc<WrittenFile>| std::ptr::eq(&raw const **found, written);
        if blocks.get(&written.block).is_some_and(is_it) {
            blocks.remove(&written.block);
        }
        drop(blocks);
        self.freed.notify_all();
        self.changed();
    }

    /// Has edits read the bytes below them from where these are now, after stored bytes have moved.
    pub(super) fn rebase(&self, snapshot: &Arc<Snapshot>) {
        self.changed();
        for written in locked(&self.by_block).values() {
            if let Content::Edited(overlay) = written.content() {
                let (snapshot, block) = (Arc::clone(snapshot), written.block);
                // made at the first read: most edits are saved without reading what lies below them
                let later = move || snapshot.unverified_block(block);
                overlay.rebase(Arc::new(Made::new(overlay.base_len(), later)));
            }
        }
    }
}
