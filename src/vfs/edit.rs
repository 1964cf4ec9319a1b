//! Edits of blocks, through `blocks/N.bin` or through the arrays that lie in them.
//!
//! A block that is written to has one draft, whoever writes: its decoded bytes with the edits on top. It is saved when a
//! descriptor is closed or synced, and then gone. A file that `open` emptied is not saved until something is written, so that
//! `cat x > blocks/0.bin` does not first make the block empty.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use log::warn;

use super::node::Node;
use super::spool::unlinked_file;
use super::{Error, Invalidation, Result, State, Vfs, block_number, index, locked};
use crate::asdf::Origin;
use crate::asdf::scatter::Scatter;
use crate::error::{Error as Library, Place};
use crate::source::{Memory, Overlay, Source};

/// The decoded bytes of a block with edits that are not saved yet.
pub(super) struct Draft {
    pub(super) block: usize,
    pub(super) overlay: Arc<Overlay>,
    /// Whether something was written since the last save.
    touched: AtomicBool,
    /// Whether it has been saved: what is written now belongs in another draft. Held for reading by whoever writes, and for
    /// writing by a save, so that a save has all of a write or nothing of it.
    saved: RwLock<bool>,
}

impl Draft {
    fn new(block: usize, overlay: Arc<Overlay>) -> Self {
        Self {
            block,
            overlay,
            touched: AtomicBool::new(false),
            saved: RwLock::new(false),
        }
    }

    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    fn touch(&self) {
        self.touched.store(true, Ordering::Release);
    }
}

/// The drafts of all blocks.
#[derive(Default)]
pub(super) struct Drafts {
    by_block: Mutex<HashMap<usize, Slot>>,
    /// Changes whenever a draft comes or goes, so that handles know that their source is no longer the right one.
    generation: AtomicU64,
}

#[derive(Default)]
struct Slot {
    draft: Option<Arc<Draft>>,
    /// Handles that are open for writing.
    writers: usize,
}

/// The source that a handle reads from, with the generation of the drafts that it was made at.
struct Current {
    generation: u64,
    source: Result<Arc<dyn Source>, Library>,
}

/// An open block or array.
pub(super) struct DataHandle {
    node: Node,
    /// The block that holds the bytes, if one does.
    block: Option<usize>,
    source: Mutex<Current>,
    opener: u32,
    write: bool,
    /// Of an array that was opened emptied: how far it has been written since.
    rewritten: Mutex<Option<u64>>,
}

impl DataHandle {
    /// Process that opened it; 0 if unknown.
    pub(super) fn opener(&self) -> u32 {
        self.opener
    }
}

impl Drafts {
    /// The draft of a block.
    pub(super) fn get(&self, block: usize) -> Option<Arc<Draft>> {
        locked(&self.by_block).get(&block)?.draft.clone()
    }

    /// Whether any block is being edited.
    pub(super) fn any(&self) -> bool {
        locked(&self.by_block)
            .values()
            .any(|slot| slot.draft.is_some())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn insert(&self, draft: Draft) -> Arc<Draft> {
        let draft = Arc::new(draft);
        locked(&self.by_block).entry(draft.block).or_default().draft = Some(Arc::clone(&draft));
        self.changed();
        draft
    }

    /// Forgets a draft: it is saved, or given up.
    pub(super) fn remove(&self, block: usize) {
        let mut drafts = locked(&self.by_block);
        if let Some(slot) = drafts.get_mut(&block) {
            slot.draft = None;
            if slot.writers == 0 {
                drafts.remove(&block);
            }
        }
        self.changed();
    }

    fn add_writer(&self, block: usize) {
        let mut drafts = locked(&self.by_block);
        let slot = drafts.entry(block).or_default();
        slot.writers = slot.writers.saturating_add(1);
    }

    /// Whether that was the last writer.
    fn remove_writer(&self, block: usize) -> bool {
        let mut drafts = locked(&self.by_block);
        let Some(slot) = drafts.get_mut(&block) else {
            return true;
        };
        slot.writers = slot.writers.saturating_sub(1);
        slot.writers == 0
    }
}

impl Vfs {
    /// Opens a block or array.
    pub(super) fn open_data(
        &self,
        state: &State,
        node: Node,
        access: super::Access,
    ) -> Result<DataHandle> {
        let block = match node {
            Node::Block(n) => Some(index(n)),
            Node::ArrayBin(number) | Node::ArrayNpy(number) => {
                match state.array(number)?.origin() {
                    Origin::Block(n) => Some(*n),
                    _ => None,
                }
            }
            _ => None,
        };
        let handle = DataHandle {
            node,
            block,
            source: Mutex::new(Current {
                generation: self.drafts.generation(),
                source: self.data_source(state, node, block),
            }),
            opener: access.pid,
            write: access.write,
            rewritten: Mutex::new(None),
        };
        if !access.write {
            return Ok(handle);
        }
        let block = handle.writable_block()?;
        self.drafts.add_writer(block);
        if access.truncate
            && let Err(error) = self.empty_data(&handle, block)
        {
            self.drafts.remove_writer(block);
            return Err(error);
        }
        Ok(handle)
    }

    /// What `open` with `O_TRUNC` does: a block is empty until it is written to, an array is to be written anew.
    fn empty_data(&self, handle: &DataHandle, block: usize) -> Result<()> {
        if matches!(handle.node, Node::Block(_)) {
            self.edit(block, |draft| {
                draft.overlay.resize(0);
                Ok(())
            })?;
        } else {
            *locked(&handle.rewritten) = Some(0);
        }
        Ok(())
    }

    /// The bytes of a block or array, with the edits that are not saved yet.
    fn data_source(
        &self,
        state: &State,
        node: Node,
        block: Option<usize>,
    ) -> Result<Arc<dyn Source>, Library> {
        let snapshot = &state.snapshot;
        let draft = block.and_then(|block| self.drafts.get(block));
        let missing = || Library::corrupt(Place::File, "the tree no longer has this array");
        match (node, draft) {
            (Node::Block(_), Some(draft)) => Ok(draft.overlay.clone()),
            (Node::Block(n), None) => snapshot.block(index(n)),
            (Node::ArrayBin(number), draft) => {
                let i = state.catalogue().array(number).ok_or_else(missing)?;
                match draft {
                    Some(draft) => snapshot.array_over(i, draft.overlay.clone()),
                    None => snapshot.array_bin(i),
                }
            }
            (Node::ArrayNpy(number), draft) => {
                let i = state.catalogue().array(number).ok_or_else(missing)?;
                match draft {
                    Some(draft) => snapshot.npy_over(i, draft.overlay.clone()),
                    None => snapshot.array_npy(i),
                }
            }
            _ => Err(missing()),
        }
    }

    /// The source that a handle reads from, made anew when a draft has come or gone since.
    pub(super) fn current_source(&self, open: &DataHandle) -> Result<Arc<dyn Source>> {
        let mut current = locked(&open.source);
        let generation = self.drafts.generation();
        if current.generation != generation {
            *current = Current {
                generation,
                source: self.data_source(&self.state(), open.node, open.block),
            };
        }
        Ok(Arc::clone(current.source.as_ref().map_err(Clone::clone)?))
    }

    /// The draft of a block, begun if there is none.
    fn draft(&self, block: usize) -> Result<Arc<Draft>> {
        if let Some(draft) = self.drafts.get(block) {
            return Ok(draft);
        }
        let base = self.state().snapshot.block(block)?;
        let overlay = Arc::new(Overlay::new(base, self.spool_file()?));
        Ok(self.drafts.insert(Draft::new(block, overlay)))
    }

    /// Changes the draft of a block; waits for a save of it, which ends that draft.
    fn edit<T>(&self, block: usize, change: impl Fn(&Draft) -> Result<T>) -> Result<T> {
        loop {
            let draft = self.draft(block)?;
            let saved = draft.saved.read().unwrap_or_else(PoisonError::into_inner);
            if !*saved {
                return change(&draft);
            }
        }
    }

    /// A temporary file without a name, beside FILE if that is possible.
    pub(super) fn spool_file(&self) -> Result<std::fs::File> {
        unlinked_file(self.path.parent())
            .map_err(|error| Library::io("a temporary file", error).into())
    }

    /// Writes into a block or array.
    pub(super) fn write_data(&self, open: &DataHandle, offset: u64, data: &[u8]) -> Result<()> {
        self.edit(open.writable_block()?, |draft| match open.node {
            Node::Block(_) => {
                draft.overlay.write(offset, data)?;
                draft.touch();
                Ok(())
            }
            _ => self.write_array(open, draft, offset, data),
        })
    }

    fn write_array(
        &self,
        open: &DataHandle,
        draft: &Draft,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let state = self.state();
        let (number, is_npy) = match open.node {
            Node::ArrayNpy(number) => (number, true),
            Node::ArrayBin(number) => (number, false),
            _ => return Err(Error::NotFound),
        };
        let i = state.array_index(number)?;
        let header = if is_npy {
            state.snapshot.npy_header_len(i)?
        } else {
            0
        };
        let data = self.skip_header(open, header, offset, data)?;
        let at = offset.max(header).saturating_sub(header);
        let end = u64::try_from(data.len())
            .ok()
            .and_then(|len| at.checked_add(len));
        let len = state.array(number)?.bin_len();
        if end.is_none_or(|end| end > len) {
            return Err(Error::NotPermitted(
                "an array has the size of its shape: change that in tree.yaml",
            ));
        }
        let view = state.snapshot.array_view(i, draft.overlay.len())?;
        if is_npy && state.array(number)?.is_fortran() {
            draft
                .overlay
                .write(view.extent().start.saturating_add(at), data)?;
        } else {
            let place = Place::Array(state.array(number)?.path());
            let overlay = &draft.overlay;
            Scatter::new(view, place)?
                .scatter(at, data, &mut |offset, bytes| overlay.write(offset, bytes))?;
        }
        draft.touch();
        if let Some(rewritten) = locked(&open.rewritten).as_mut() {
            *rewritten = (*rewritten).max(end.unwrap_or(0));
        }
        Ok(())
    }

    /// The part of a write behind the NPY header. What lies in the header must be what is there already.
    fn skip_header<'a>(
        &self,
        open: &DataHandle,
        header: u64,
        offset: u64,
        data: &'a [u8],
    ) -> Result<&'a [u8]> {
        let inside = usize::try_from(header.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(data.len());
        let (inside, behind) = data.split_at(inside);
        if !inside.is_empty() {
            let mut there = vec![0; inside.len()];
            self.current_source(open)?
                .read_exact_at(&mut there, offset)?;
            if there != inside {
                return Err(Error::NotPermitted(
                    "the NPY header follows the tree: change datatype or shape there",
                ));
            }
        }
        Ok(behind)
    }

    /// Changes the size of a block; an array's size is that of its shape.
    pub(super) fn resize_data(&self, node: Node, fh: Option<u64>, size: u64) -> Result<()> {
        let state = self.state();
        let Node::Block(n) = node else {
            let len = self.attr(&state, node)?.size;
            if size == len {
                return Ok(());
            }
            return Err(Error::NotPermitted(
                "an array has the size of its shape: change that in tree.yaml",
            ));
        };
        self.edit(index(n), |draft| {
            if draft.overlay.len() != size {
                draft.overlay.resize(size);
                draft.touch();
            }
            Ok(())
        })?;
        if fh.is_none()
            && let Some(draft) = self.drafts.get(index(n))
        {
            // nobody will close this: it is saved now or not at all
            let saved = self.save_block(&draft);
            if saved.is_err() {
                self.drafts.remove(index(n));
            }
            return saved;
        }
        Ok(())
    }

    /// Makes a file at least so long.
    pub(super) fn extend_data(&self, open: &DataHandle, end: u64) -> Result<()> {
        let Node::Block(n) = open.node else {
            return Ok(());
        };
        let len = self.current_source(open)?.len();
        if end > len {
            self.resize_data(Node::Block(n), Some(0), end)
        } else {
            Ok(())
        }
    }

    /// Saves what was written, at `close` and `fsync`.
    pub(super) fn save_data(&self, open: &DataHandle) -> Result<()> {
        let Some(block) = open.block.filter(|_| open.write) else {
            return Ok(());
        };
        let Some(draft) = self.drafts.get(block).filter(|draft| draft.is_touched()) else {
            return Ok(());
        };
        self.check_rewritten(open)?;
        self.save_block(&draft)
    }

    /// An array that was emptied must have been written to its end.
    fn check_rewritten(&self, open: &DataHandle) -> Result<()> {
        let Some(rewritten) = *locked(&open.rewritten) else {
            return Ok(());
        };
        let (Node::ArrayBin(number) | Node::ArrayNpy(number)) = open.node else {
            return Ok(());
        };
        let state = self.state();
        let array = state.array(number)?;
        if rewritten < array.bin_len() {
            return Err(Error::Library(Library::Rejected {
                at: Place::Array(array.path()),
                why: format!("{rewritten} bytes written of {}", array.bin_len()),
                advice: "write all of it, or change the shape in tree.yaml first".to_owned(),
            }));
        }
        Ok(())
    }

    fn save_block(&self, draft: &Draft) -> Result<()> {
        let mut saved = draft.saved.write().unwrap_or_else(PoisonError::into_inner);
        if !*saved {
            self.commit_block(draft)?;
            *saved = true;
            self.drafts.remove(draft.block);
        }
        Ok(())
    }

    /// The end of a handle: saves what a map wrote, and gives up what can't be saved when nobody is left to mend it.
    pub(super) fn close_data(&self, open: &DataHandle) -> Result<()> {
        let Some(block) = open.block.filter(|_| open.write) else {
            return Ok(());
        };
        let saved = self.save_data(open);
        if self.drafts.remove_writer(block) {
            if self
                .drafts
                .get(block)
                .is_some_and(|draft| draft.is_touched())
            {
                warn!("block {block}: what was written is not saved, and given up");
            }
            self.drafts.remove(block);
            self.tell(Invalidation::Inode(open.node.ino()));
        }
        saved
    }

    /// A new block at the end, which begins to exist when it is written to.
    pub(super) fn make_block(&self, name: &OsStr) -> Result<Node> {
        let state = self.state();
        let layout = state.snapshot.layout();
        let count = layout.blocks.len();
        let n = block_number(name)
            .filter(|&n| index(n) == count)
            .ok_or(Error::NotPermitted(
                "a new block gets the next free number, and nothing else can be made here",
            ))?;
        if layout.streamed() {
            return Err(Error::NotPermitted("nothing can follow a streamed block"));
        }
        let overlay = Arc::new(Overlay::new(
            Arc::new(Memory::new(Vec::new())),
            self.spool_file()?,
        ));
        self.drafts.insert(Draft::new(count, overlay));
        Ok(Node::Block(n))
    }

    /// Removes the last block, if no array uses it.
    pub(super) fn remove_block(&self, name: &OsStr) -> Result<()> {
        let state = self.state();
        let n = index(block_number(name).ok_or(Error::NotFound)?);
        let count = state.snapshot.layout().blocks.len();
        if n >= count {
            return Err(Error::NotFound);
        }
        if n.checked_add(1) != Some(count) {
            return Err(Error::NotPermitted("only the last block can be removed"));
        }
        if state
            .snapshot
            .block_users()
            .get(n)
            .is_some_and(|users| !users.is_empty())
        {
            return Err(Error::Busy(
                "arrays use this block: take them out of tree.yaml first",
            ));
        }
        self.commit_removal(n)
    }
}

impl DataHandle {
    /// The block that a write goes to.
    fn writable_block(&self) -> Result<usize> {
        self.block.ok_or_else(|| {
            warn!(
                "inline and external arrays are read-only here: edit tree.yaml, or the other file"
            );
            Error::ReadOnly("inline and external arrays: edit tree.yaml, or the other file")
        })
    }
}
