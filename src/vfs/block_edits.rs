//! Blocks with edits that are not saved yet, and which of them handles have open for writing.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use super::news::News;
use super::rewrite::Rewriting;
use super::{Error, Node, State, locked};
use crate::asdf::Snapshot;
use crate::source::{Made, Overlay, ScratchBytes, ScratchRoom, Source};

/// How long a writer of a block waits for the kernel to release the handle of another file that has been closed.
const RELEASING: Duration = Duration::from_millis(100);

/// The decoded bytes of a block with edits that are not saved yet.
pub(super) struct BlockDraft {
    pub(super) block: usize,
    pub(super) overlay: Arc<Overlay>,
    written: Mutex<DraftRecord>,
    /// Whether the draft has been saved or given up: what is written from then on belongs in another draft. A thread that writes into the
    /// draft holds the lock for reading, and a save holds it for writing, so that a save has all of a write or nothing of it.
    pub(super) saved: RwLock<bool>,
    /// Why the draft was given up, if it was. Each handle that has written into it has this, too.
    pub(super) lost: Arc<OnceLock<Error>>,
}

/// What was written into a draft.
#[derive(Default)]
struct DraftRecord {
    /// The files that were written to; none while only `open` has emptied the block.
    files: HashSet<Node>,
    /// Why the draft could not be saved, if nothing was written since. The process that asked for the save knows.
    refused: Option<Error>,
    /// [`BlockDraft::lost`] for the handles of each file that was written anew and that the draft has taken in.
    taken_in: Vec<Arc<OnceLock<Error>>>,
}

impl BlockDraft {
    /// A draft of a block, into which nothing was written.
    fn new(block: usize, overlay: Overlay) -> Self {
        Self {
            block,
            overlay: Arc::new(overlay),
            written: Mutex::default(),
            saved: RwLock::new(false),
            lost: Arc::default(),
        }
    }

    /// Notes that the draft has taken in a file that was written anew: `lost` is set if the draft is given up.
    pub(super) fn take_in(&self, lost: &Arc<OnceLock<Error>>) {
        locked(&self.written).taken_in.push(Arc::clone(lost));
    }

    /// Notes that what was taken in last has been taken out again.
    pub(super) fn take_out(&self) {
        locked(&self.written).taken_in.pop();
    }

    /// Tells each handle that has written into the draft that it is given up. The first reason counts.
    pub(super) fn lose(&self, why: &Error) {
        for lost in locked(&self.written).taken_in.iter().chain([&self.lost]) {
            let _ = lost.set(why.clone());
        }
    }

    /// Whether nothing could be lost: no written bytes, and no length that `open` has set.
    fn is_empty(&self) -> bool {
        !self.is_touched() && self.overlay.keeps_length()
    }

    /// The file through which all that was written has come as it is in the draft.
    pub(super) fn through(&self) -> Option<Node> {
        let written = locked(&self.written);
        let mut files = written.files.iter();
        let only = files.next().filter(|_| files.next().is_none());
        // the header of a file that was written anew may be spelled otherwise than it is shown
        let is_spelled =
            |file: &Node| matches!(file, Node::Array(_, format) if format.has_header());
        let only = only.filter(|file| written.taken_in.is_empty() || !is_spelled(file));
        // a file that was renamed over the block is not one that shows it
        only.filter(|file| !matches!(file, Node::Scratch(_)))
            .copied()
    }

    /// Whether something was written.
    pub(super) fn is_touched(&self) -> bool {
        !locked(&self.written).files.is_empty()
    }

    /// Notes that something was written through a file.
    pub(super) fn touch(&self, file: Node) {
        let mut written = locked(&self.written);
        written.files.insert(file);
        written.refused = None;
    }

    /// Notes that what was written into the draft has been taken out again.
    pub(super) fn forget(&self) {
        let mut written = locked(&self.written);
        written.files.clear();
        written.refused = None;
    }

    /// Gives the draft another length, through a file.
    pub(super) fn resize(&self, file: Node, len: u64) {
        if self.overlay.len() != len {
            self.overlay.resize(len);
            self.touch(file);
        }
    }

    /// Notes why the draft can't be saved.
    pub(super) fn refuse(&self, why: Error) {
        locked(&self.written).refused = Some(why);
    }

    /// Why the draft could not be saved, if nothing was written since.
    pub(super) fn refusal(&self) -> Option<Error> {
        locked(&self.written).refused.clone()
    }

    /// The files that were written to.
    pub(super) fn files(&self) -> Vec<Node> {
        locked(&self.written).files.iter().copied().collect()
    }
}

/// The blocks that are being edited.
pub(super) struct BlockEdits {
    by_block: Mutex<HashMap<usize, BlockSlot>>,
    /// How many slots there have been.
    slots: AtomicU64,
    /// Signalled when a writer of a block has ended.
    freed: Condvar,
    /// Counts each time a draft comes, goes or gets another length, stored bytes move, or another state is shown. A handle whose source was
    /// made at another count makes its source anew.
    generation: AtomicU64,
    /// The files of arrays that handles have open for writing.
    rewriting: Mutex<HashMap<Node, Weak<Rewriting>>>,
    /// The room for what is written and not saved yet.
    pub(super) scratch: Arc<ScratchRoom>,
    /// What there is to tell of edits that were refused or given up.
    pub(super) news: Mutex<News>,
}

/// A block that is being edited or that handles have open for writing.
struct BlockSlot {
    /// Tells this block from removed ones that had the same number.
    id: u64,
    /// The file through which it is written: no other one writes it meanwhile.
    file: Option<Node>,
    /// How many scratch files are being renamed over it: none of their bytes is seen before all are saved.
    imports: usize,
    draft: Option<Arc<BlockDraft>>,
    /// Handles that are open for writing, and threads that change the block without one.
    writers: usize,
}

impl BlockSlot {
    /// Whether this is a new block, not one of the `count` that FILE has, to which nothing was written and that no handle can write to.
    fn is_unopened(&self, block: usize, count: usize) -> bool {
        let touched = self.draft.as_ref().is_some_and(|draft| draft.is_touched());
        block >= count && self.writers == 0 && !touched
    }

    /// The file through which the block is written, if it is not this one.
    fn other(&self, file: Node) -> Option<Node> {
        let is_edited = self.draft.as_ref().is_some_and(|draft| draft.is_touched());
        self.file
            .filter(|other| *other != file && (self.writers > 0 || is_edited))
    }

    /// Ends the draft, if the block is one of the `count` that FILE has and the draft holds nothing. Whether there is no draft now. A
    /// thread that was about to write into it finds it ended, and begins another.
    fn end_empty(&mut self, block: usize, count: usize) -> bool {
        let Some(draft) = &self.draft else {
            return true;
        };
        let Ok(mut saved) = draft.saved.try_write() else {
            return false;
        };
        *saved |= block < count && draft.is_empty();
        let ended = *saved;
        drop(saved);
        if ended {
            self.draft = None;
        }
        ended
    }
}

impl BlockEdits {
    /// No edits. What is written takes this room.
    pub(super) fn new(scratch: Arc<ScratchRoom>) -> Self {
        Self {
            by_block: Mutex::default(),
            slots: AtomicU64::default(),
            freed: Condvar::new(),
            generation: AtomicU64::default(),
            rewriting: Mutex::default(),
            scratch,
            news: Mutex::default(),
        }
    }

    /// A slot without draft and writers, with an id of its own.
    fn new_slot(&self) -> BlockSlot {
        BlockSlot {
            id: self.slots.fetch_add(1, Ordering::Relaxed),
            file: None,
            imports: 0,
            draft: None,
            writers: 0,
        }
    }

    /// Whether no block is being edited, and no handle has one open for writing.
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.by_block).is_empty()
    }

    /// The draft of a block.
    pub(super) fn get(&self, block: usize) -> Option<Arc<BlockDraft>> {
        locked(&self.by_block).get(&block)?.draft.clone()
    }

    /// Runs `change` if no block is being edited, where FILE has `count` blocks, and lets no edit begin meanwhile. Whether it ran. Ends
    /// drafts that hold nothing, such as that of a handle whose first write was refused.
    pub(super) fn while_none(&self, count: usize, change: impl FnOnce()) -> bool {
        let mut slots = locked(&self.by_block);
        let edited = |(&block, slot): (&usize, &mut BlockSlot)| {
            !slot.is_unopened(block, count) && !slot.end_empty(block, count)
        };
        if slots.iter_mut().any(edited) {
            return false;
        }
        slots.retain(|&block, slot| !slot.is_unopened(block, count));
        change();
        self.changed();
        true
    }

    /// Forgets a block that was removed, with the handles that have it open.
    pub(super) fn removed(&self, block: usize) {
        locked(&self.by_block).remove(&block);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Has all handles look for their source anew.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The draft of a block; if there is none, a new one over the bytes that `begin` gives, if it gives any. `begin` runs with the table
    /// locked, so that one thread begins the draft and no save comes between. It must be quick. `made`: the file of a block that is new.
    pub(super) fn get_or_begin(
        &self,
        block: usize,
        made: Option<Node>,
        begin: impl FnOnce() -> Option<Arc<dyn Source>>,
    ) -> Option<Arc<BlockDraft>> {
        let mut slots = locked(&self.by_block);
        if let Some(draft) = slots.get(&block).and_then(|slot| slot.draft.as_ref()) {
            return Some(Arc::clone(draft));
        }
        let overlay = Overlay::new(begin()?, ScratchBytes::new(&self.scratch));
        let draft = Arc::new(BlockDraft::new(block, overlay));
        let slot = slots.entry(block).or_insert_with(|| self.new_slot());
        slot.draft = Some(Arc::clone(&draft));
        slot.file = slot.file.or(made);
        self.changed();
        Some(draft)
    }

    /// Forgets new blocks, not of the `count` that FILE has, to which nothing was written and no handle can write. Whether there were any.
    pub(super) fn forget_unopened(&self, count: usize) -> bool {
        let mut slots = locked(&self.by_block);
        let before = slots.len();
        slots.retain(|&block, slot| !slot.is_unopened(block, count));
        let any = slots.len() < before;
        if any {
            self.changed();
        }
        any
    }

    /// Whether a block from `n` on is being edited.
    pub(super) fn any_from(&self, n: usize) -> bool {
        let slots = locked(&self.by_block);
        slots
            .iter()
            .any(|(&block, slot)| block >= n && slot.draft.is_some())
    }

    /// The drafts that hold something that is not saved.
    pub(super) fn touched(&self) -> Vec<Arc<BlockDraft>> {
        let slots = locked(&self.by_block);
        let drafts = slots.values().filter_map(|slot| slot.draft.as_ref());
        drafts
            .filter(|draft| draft.is_touched())
            .map(Arc::clone)
            .collect()
    }

    /// Forgets a draft that is over.
    pub(super) fn remove(&self, draft: &Arc<BlockDraft>) {
        let mut slots = locked(&self.by_block);
        let is_it = |found: &Arc<BlockDraft>| Arc::ptr_eq(found, draft);
        let slot = slots.get_mut(&draft.block);
        let Some(slot) = slot.filter(|slot| slot.draft.as_ref().is_some_and(is_it)) else {
            return;
        };
        slot.draft = None;
        if slot.writers == 0 {
            slots.remove(&draft.block);
        }
        self.changed();
    }

    /// Has drafts read the bytes below them from where these are now, after stored bytes have moved. They never read from the old places
    /// again, even if the block can't be opened at the moment.
    pub(super) fn rebase(&self, snapshot: &Arc<Snapshot>) {
        let slots = locked(&self.by_block);
        self.changed();
        for draft in slots.values().filter_map(|slot| slot.draft.as_ref()) {
            if draft.block < snapshot.layout().blocks.len() {
                let later = |_| -> Arc<dyn Source> {
                    let (snapshot, block) = (Arc::clone(snapshot), draft.block);
                    let len = draft.overlay.base_len();
                    Arc::new(Made::new(len, move || snapshot.block(block)))
                };
                // what lies below was verified when the draft began
                let base = snapshot.unverified_block(draft.block);
                draft.overlay.rebase(base.unwrap_or_else(later));
            }
        }
    }

    /// What is written anew of a file, which all handles share that have opened it as it is in this state.
    pub(super) fn rewriting(&self, file: Node, state: &Arc<State>) -> Arc<Rewriting> {
        let mut table = locked(&self.rewriting);
        let known = table.get(&file).and_then(Weak::upgrade);
        let form = state.form(file);
        if let Some(known) = known.filter(|known| known.opened.form(file) == form) {
            return known;
        }
        table.retain(|_, rewriting| rewriting.strong_count() > 0);
        let new = Arc::new(Rewriting::new(state));
        table.insert(file, Arc::downgrade(&new));
        new
    }

    /// How many bytes of the file of an array have been written, if the one of this state is being written anew.
    pub(super) fn rewritten_len(&self, file: Node, state: &State) -> Option<u64> {
        let known = locked(&self.rewriting).get(&file).and_then(Weak::upgrade);
        known
            .filter(|known| known.opened.form(file) == state.form(file))?
            .len()
    }

    /// Whether a handle has a block open for writing.
    pub(super) fn is_open(&self, block: usize) -> bool {
        let slots = locked(&self.by_block);
        slots.get(&block).is_some_and(|slot| slot.writers > 0)
    }

    /// Notes that a handle has a block open for writing through `file`, or that a thread changes it without one. The id of the block's slot;
    /// the file that has the block open for writing, if that is another one. Waits a moment for that: the kernel lets close(2) return before
    /// it releases the handle.
    pub(super) fn add_writer(&self, block: usize, file: Node) -> Result<u64, Node> {
        let is_taken = |slots: &mut HashMap<usize, BlockSlot>| {
            let slot = slots.get(&block);
            slot.is_some_and(|slot| slot.other(file).is_some())
        };
        let slots = locked(&self.by_block);
        let waited = self.freed.wait_timeout_while(slots, RELEASING, is_taken);
        let (mut slots, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(block).or_insert_with(|| self.new_slot());
        if let Some(other) = slot.other(file) {
            return Err(other);
        }
        slot.file = Some(file);
        slot.writers = slot.writers.saturating_add(1);
        Ok(slot.id)
    }

    /// Runs the rename of a scratch file over a file of a block, which does not see the draft meanwhile.
    pub(super) fn import<T>(&self, block: usize, id: u64, run: impl FnOnce() -> T) -> T {
        let imports = |change: fn(usize, usize) -> usize| {
            let mut slots = locked(&self.by_block);
            // the slot is gone after its last writer, and another rename may have made the next one
            if let Some(slot) = slots.get_mut(&block).filter(|slot| slot.id == id) {
                slot.imports = change(slot.imports, 1);
            }
        };
        imports(usize::saturating_add);
        let done = run();
        imports(usize::saturating_sub);
        self.changed();
        done
    }

    /// The draft of a block, if it is written through that file, and not filled from one that is being renamed over it.
    pub(super) fn of_file(&self, block: usize, file: Node) -> Option<Arc<BlockDraft>> {
        let slots = locked(&self.by_block);
        let slot = slots.get(&block)?;
        let is_seen = slot.file == Some(file) && slot.imports == 0;
        slot.draft.clone().filter(|_| is_seen)
    }

    /// Whether the block with that number is still the one of the slot, and was not removed.
    pub(super) fn is_of(&self, block: usize, id: u64) -> bool {
        let slots = locked(&self.by_block);
        slots.get(&block).is_some_and(|slot| slot.id == id)
    }

    /// Counts one writer less, unless it is the last one of the block. Whether it is not the last.
    pub(super) fn leave_to_others(&self, block: usize, id: u64) -> bool {
        let mut slots = locked(&self.by_block);
        let Some(slot) = slots.get_mut(&block).filter(|slot| slot.id == id) else {
            return true;
        };
        let others = slot.writers > 1;
        slot.writers = slot.writers.saturating_sub(others.into());
        others
    }

    /// Counts one writer less. After the last one no close saves the draft any more: it is forgotten, and given to the caller.
    pub(super) fn remove_writer(&self, block: usize, id: u64) -> Option<Arc<BlockDraft>> {
        let mut slots = locked(&self.by_block);
        let slot = slots.get_mut(&block).filter(|slot| slot.id == id)?;
        slot.writers = slot.writers.saturating_sub(1);
        self.freed.notify_all();
        // a draft that another thread has locked stays: that thread saves it, or forgets it if it can't
        let over = |draft: &Arc<BlockDraft>| match draft.saved.try_write() {
            Ok(mut saved) => {
                *saved = true;
                true
            }
            Err(_) => false,
        };
        if slot.writers > 0 || !slot.draft.as_ref().is_none_or(over) {
            return None;
        }
        let removed = slots.remove(&block);
        self.changed();
        removed.and_then(|slot| slot.draft)
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Node;
    use super::super::testing::writable_with;
    use super::super::{Access, Handle, Vfs};
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::error::{Error, Result};
    use crate::source::{FileSource, Source};
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use tempfile::TempDir;

    /// A file whose bytes, once it is `closed`, come only when the test says so, or not at all.
    struct Held {
        file: Arc<FileSource>,
        closed: AtomicBool,
        asked: Mutex<Sender<()>>,
        /// Whether the bytes can be read.
        given: Mutex<Receiver<bool>>,
    }

    impl Source for Held {
        fn len(&self) -> u64 {
            self.file.len()
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            if self.closed.swap(false, Ordering::Relaxed) {
                self.asked.lock().unwrap().send(()).unwrap();
                if !self.given.lock().unwrap().recv().unwrap() {
                    let cause = io::ErrorKind::TimedOut.into();
                    return Err(Error::io("reading", cause));
                }
            }
            self.file.read_exact_at(buf, offset)
        }
    }

    /// A sample with the block `abc`, that block open for writing, and its file, which tells when it is read and waits then.
    struct Fixture {
        _dir: TempDir,
        vfs: Arc<Vfs>,
        source: Arc<Held>,
        open: Handle,
        is_asked: Receiver<()>,
        give: Sender<bool>,
    }

    fn fixture(options: OpenOptions) -> Fixture {
        let (asked, is_asked) = channel();
        let (give, given) = channel();
        let mut source = None;
        let (dir, vfs) = writable_with(&Sample::new().block(b"abc"), options, |file| {
            let held = Arc::new(Held {
                file,
                closed: AtomicBool::new(false),
                asked: Mutex::new(asked),
                given: Mutex::new(given),
            });
            source = Some(Arc::clone(&held));
            held
        });
        let access = Access {
            write: true,
            ..Access::default()
        };
        let open = vfs.open_now(Node::Block(0), access).unwrap().handle;
        Fixture {
            _dir: dir,
            vfs: Arc::new(vfs),
            source: source.unwrap(),
            open,
            is_asked,
            give,
        }
    }

    /// What a program had written was gone without a word if it closed the block while another one, by its path, made it longer, which
    /// could not be saved.
    #[test]
    fn what_the_last_handle_leaves_to_a_change_by_path_is_not_lost_silently() {
        let Fixture {
            vfs,
            source,
            open,
            is_asked,
            give,
            ..
        } = &fixture(OpenOptions::default());
        let close = || source.closed.store(true, Ordering::Relaxed);
        vfs.write(open, 0, b"x", false).unwrap();
        close();
        give.send(false).unwrap();
        vfs.flush(open, 0).unwrap_err();
        is_asked.recv().unwrap();
        close();
        let done = thread::scope(|scope| {
            let resizing = scope.spawn(|| vfs.resize_data(Node::Block(0), None, 5));
            is_asked.recv().unwrap();
            vfs.release(open);
            give.send(false).unwrap();
            resizing.join().unwrap()
        });
        done.unwrap_err();
        assert_eq!(vfs.losses().unsaved.len(), 1);
        assert!(vfs.edits.is_empty());
    }

    /// With `-o verify` all lookups and reads waited while the block of a first write was summed.
    #[test]
    fn a_block_is_opened_for_an_edit_while_others_are_looked_up() {
        let Fixture {
            _dir,
            vfs,
            source,
            open,
            is_asked,
            give,
        } = fixture(OpenOptions {
            verify: true,
            ..OpenOptions::default()
        });
        source.closed.store(true, Ordering::Relaxed);
        let writing = Arc::clone(&vfs);
        let writer = thread::spawn(move || writing.write(&open, 0, b"x", false).map(drop));
        is_asked.recv().unwrap();
        let (found, size) = channel();
        // Not joined: without the mend it waits for the writer.
        thread::spawn(move || {
            let attr = vfs.lookup(Node::Blocks, "0.bin".as_ref()).unwrap();
            let _ = found.send(attr.size);
        });
        let size = size.recv_timeout(Duration::from_mins(1));
        give.send(true).unwrap();
        assert_eq!(size, Ok(3));
        writer.join().unwrap().unwrap();
    }
}
