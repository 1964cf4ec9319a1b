//! The drafts: blocks with edits that are not saved yet, and who has them open for writing.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::{Error, Node, Result, locked};
use crate::asdf::Snapshot;
use crate::error::Error as Library;
use crate::source::{Overlay, Source};

/// The decoded bytes of a block with edits that are not saved yet.
pub(super) struct Draft {
    pub(super) block: usize,
    pub(super) overlay: Arc<Overlay>,
    /// Whether something was written.
    touched: AtomicBool,
    /// The files that it was written through.
    files: Mutex<HashSet<Node>>,
    /// Why it could not be saved, if nothing was written since: the process that asked was told.
    refused: Mutex<Option<Error>>,
    /// Whether it has been saved: what is written now belongs in another draft. Held for reading by threads that write, and for
    /// writing by a save, so that a save has all of a write or nothing of it.
    pub(super) saved: RwLock<bool>,
}

impl Draft {
    pub(super) fn new(block: usize, overlay: Arc<Overlay>) -> Self {
        Self {
            block,
            overlay,
            touched: AtomicBool::new(false),
            files: Mutex::default(),
            refused: Mutex::default(),
            saved: RwLock::new(false),
        }
    }

    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    /// Notes that something was written through a file.
    pub(super) fn touch(&self, file: Node) {
        locked(&self.files).insert(file);
        self.touched.store(true, Ordering::Release);
        *locked(&self.refused) = None;
    }

    /// Notes why it can't be saved.
    pub(super) fn refuse(&self, why: Error) {
        *locked(&self.refused) = Some(why);
    }

    /// Why it could not be saved, if nothing was written since.
    pub(super) fn refusal(&self) -> Option<Error> {
        locked(&self.refused).clone()
    }

    /// The files that it was written through.
    pub(super) fn files(&self) -> Vec<Node> {
        locked(&self.files).iter().copied().collect()
    }
}

impl Slot {
    /// Whether this is a new block, behind `count` others, that was made and that no handle has open for writing.
    fn is_unopened(&self, block: usize, count: usize) -> bool {
        let touched = self.draft.as_ref().is_some_and(|draft| draft.is_touched());
        block >= count && self.writers == 0 && !touched
    }
}

/// A block that is looked for when it is read.
struct Later {
    snapshot: Arc<Snapshot>,
    block: usize,
}

impl Source for Later {
    fn len(&self) -> u64 {
        self.snapshot.block_len(self.block).unwrap_or(0)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Library> {
        let block = self.snapshot.block(self.block)?;
        block.read_exact_at(buf, offset)
    }
}

/// The drafts of all blocks.
#[derive(Default)]
pub(super) struct Drafts {
    by_block: Mutex<HashMap<usize, Slot>>,
    /// Changes whenever a draft comes or goes, stored bytes have moved or another state is shown, so that handles know that their
    /// source is no longer the right one.
    generation: AtomicU64,
    /// How often a block of that number was removed.
    removals: Mutex<HashMap<usize, u64>>,
}

#[derive(Default)]
struct Slot {
    draft: Option<Arc<Draft>>,
    /// Handles that are open for writing.
    writers: usize,
}

impl Drafts {
    /// The draft of a block.
    pub(super) fn get(&self, block: usize) -> Option<Arc<Draft>> {
        locked(&self.by_block).get(&block)?.draft.clone()
    }

    /// Runs `change` if no block, of a file of `count`, is being edited, and lets no edit begin meanwhile; whether it ran.
    pub(super) fn while_none(&self, count: usize, change: impl FnOnce()) -> bool {
        let mut drafts = locked(&self.by_block);
        let edited = |(&block, slot): (&usize, &Slot)| {
            slot.draft.is_some() && !slot.is_unopened(block, count)
        };
        if drafts.iter().any(edited) {
            return false;
        }
        drafts.retain(|&block, slot| !slot.is_unopened(block, count));
        change();
        self.changed();
        true
    }

    /// How often a block of that number was removed: what had it open before is not of the one that has the number now.
    pub(super) fn removals(&self, block: usize) -> u64 {
        locked(&self.removals).get(&block).copied().unwrap_or(0)
    }

    /// Notes that a block was removed.
    pub(super) fn removed(&self, block: usize) {
        let mut removals = locked(&self.removals);
        let count = removals.entry(block).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Has all handles look for their source anew.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The draft of a block, else one of what `begin` gives, if it does. The table is locked meanwhile: one draft is begun, whichever
    /// thread comes first, and `begin` can tell whether it is on what the last save has left. It must be quick.
    pub(super) fn get_or_begin(
        &self,
        block: usize,
        begin: impl FnOnce() -> Result<Option<Overlay>>,
    ) -> Result<Option<Arc<Draft>>> {
        let mut drafts = locked(&self.by_block);
        if let Some(draft) = drafts.get(&block).and_then(|slot| slot.draft.as_ref()) {
            return Ok(Some(Arc::clone(draft)));
        }
        let Some(overlay) = begin()? else {
            return Ok(None);
        };
        let draft = Arc::new(Draft::new(block, Arc::new(overlay)));
        drafts.entry(block).or_default().draft = Some(Arc::clone(&draft));
        self.changed();
        Ok(Some(draft))
    }

    /// Forgets new blocks, behind the `count` that there are, which no handle has open for writing; whether there were any.
    pub(super) fn forget_unopened(&self, count: usize) -> bool {
        let mut drafts = locked(&self.by_block);
        let before = drafts.len();
        drafts.retain(|&block, slot| !slot.is_unopened(block, count));
        let any = drafts.len() < before;
        if any {
            self.changed();
        }
        any
    }

    /// Whether a block from `n` on is being edited.
    pub(super) fn any_from(&self, n: usize) -> bool {
        let drafts = locked(&self.by_block);
        drafts
            .iter()
            .any(|(&block, slot)| block >= n && slot.draft.is_some())
    }

    /// The drafts that hold something that is not saved.
    pub(super) fn touched(&self) -> Vec<Arc<Draft>> {
        let drafts = locked(&self.by_block);
        let drafts = drafts.values().filter_map(|slot| slot.draft.as_ref());
        drafts
            .filter(|draft| draft.is_touched())
            .map(Arc::clone)
            .collect()
    }

    /// Forgets a draft that is saved.
    pub(super) fn remove(&self, draft: &Arc<Draft>) {
        self.remove_if(draft, |_| true);
    }

    /// Forgets a draft of a block that no handle has open for writing.
    pub(super) fn remove_unattended(&self, draft: &Arc<Draft>) {
        self.remove_if(draft, |slot| slot.writers == 0);
    }

    fn remove_if(&self, draft: &Arc<Draft>, condition: impl Fn(&Slot) -> bool) {
        let mut drafts = locked(&self.by_block);
        let Some(slot) = drafts.get_mut(&draft.block) else {
            return;
        };
        let same = slot
            .draft
            .as_ref()
            .is_some_and(|found| Arc::ptr_eq(found, draft));
        if !same || !condition(slot) {
            return;
        }
        slot.draft = None;
        if slot.writers == 0 {
            drafts.remove(&draft.block);
        }
        self.changed();
    }

    /// Has the drafts read what lies below them where it is now, after stored bytes have moved: never again by the places of before,
    /// even if it can't be found at the moment.
    pub(super) fn rebase(&self, snapshot: &Arc<Snapshot>) {
        let drafts = locked(&self.by_block);
        self.changed();
        for draft in drafts.values().filter_map(|slot| slot.draft.as_ref()) {
            if draft.block < snapshot.layout().blocks.len() {
                let later = |_| -> Arc<dyn Source> {
                    Arc::new(Later {
                        snapshot: Arc::clone(snapshot),
                        block: draft.block,
                    })
                };
                // what lies below was verified when the draft began
                let base = snapshot.unverified_block(draft.block);
                draft.overlay.rebase(base.unwrap_or_else(later));
            }
        }
    }

    pub(super) fn add_writer(&self, block: usize) {
        let mut drafts = locked(&self.by_block);
        let slot = drafts.entry(block).or_default();
        slot.writers = slot.writers.saturating_add(1);
    }

    /// One writer less, if there are others; whether there are.
    pub(super) fn leave_to_others(&self, block: usize) -> bool {
        let mut drafts = locked(&self.by_block);
        let slot = drafts.get_mut(&block).filter(|slot| slot.writers > 1);
        let left = slot.map(|slot| slot.writers = slot.writers.saturating_sub(1));
        left.is_some()
    }

    /// One writer less. After the last one no close follows that saves the draft: it is given back, and forgotten.
    pub(super) fn remove_writer(&self, block: usize) -> Option<Arc<Draft>> {
        let mut drafts = locked(&self.by_block);
        let slot = drafts.get_mut(&block)?;
        slot.writers = slot.writers.saturating_sub(1);
        if slot.writers > 0 {
            return None;
        }
        let draft = drafts.remove(&block)?.draft;
        self.changed();
        draft
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Node;
    use super::super::testing::writable_with;
    use super::super::{Access, Vfs};
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::error::Result;
    use crate::source::{FileSource, Source};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    /// A file whose bytes, once it is `closed`, come only when the test says so.
    struct Held {
        file: Arc<FileSource>,
        closed: AtomicBool,
        asked: Mutex<Sender<()>>,
        given: Mutex<Receiver<()>>,
    }

    impl Source for Held {
        fn len(&self) -> u64 {
            self.file.len()
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            if self.closed.swap(false, Ordering::Relaxed) {
                self.asked.lock().unwrap().send(()).unwrap();
                self.given.lock().unwrap().recv().unwrap();
            }
            self.file.read_exact_at(buf, offset)
        }
    }

    /// With `-o verify` all lookups and reads waited while the block of a first write was summed.
    #[test]
    fn a_block_is_opened_for_an_edit_while_others_are_looked_up() {
        let (asked, is_asked) = channel();
        let (give, given) = channel();
        let mut source = None;
        let options = OpenOptions {
            verify: true,
            ..OpenOptions::default()
        };
        let (_dir, vfs) = writable_with(&Sample::new().block(b"abc"), options, |file| {
            let held = Arc::new(Held {
                file,
                closed: AtomicBool::new(false),
                asked: Mutex::new(asked),
                given: Mutex::new(given),
            });
            source = Some(Arc::clone(&held));
            held
        });
        let vfs: Arc<Vfs> = Arc::new(vfs);
        let access = Access {
            write: true,
            ..Access::default()
        };
        let open = vfs.open(Node::Block(0).ino(), access).unwrap();
        source.unwrap().closed.store(true, Ordering::Relaxed);
        let writing = Arc::clone(&vfs);
        let writer = thread::spawn(move || writing.write(open.fh, 0, b"x", false).map(drop));
        is_asked.recv().unwrap();
        let (found, size) = channel();
        // Not joined: without the mend it waits for the writer.
        thread::spawn(move || {
            let attr = vfs.lookup(Node::Blocks.ino(), "0.bin".as_ref()).unwrap();
            let _ = found.send(attr.size);
        });
        let size = size.recv_timeout(Duration::from_mins(1));
        give.send(()).unwrap();
        assert_eq!(size, Ok(3));
        writer.join().unwrap().unwrap();
    }
}
