//! Edits of blocks, through `blocks/N.bin` or through the arrays that lie in them.
//!
//! A block that is written to has one draft for all handles: its decoded bytes with the edits on top. It is saved when a
//! descriptor is closed or synced, and then gone. A file that `open` emptied is not saved until something is written, so that
//! `cat x > blocks/0.bin` does not first make the block empty.

use std::ffi::OsStr;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use log::warn;

use super::drafted::drafted;
use super::drafts::Draft;
use super::hdus;
use super::kernel::Announced;
use super::node::Node;
use super::publish::Saved;
use super::{
    Error, Handle, Invalidation, Reading, Result, State, Vfs, block_name, block_number, index,
    locked,
};
use crate::asdf::{Origin, Snapshot};
use crate::codec;
use crate::error::{Error as Library, Place};
use crate::source::{Memory, Overlay, Source};

/// The source that a handle reads from, with the generation of the drafts that it was made at.
struct Current {
    generation: u64,
    source: Arc<dyn Source>,
}

/// An open block or array.
pub(super) struct DataHandle {
    pub(super) node: Node,
    /// The block that is written to, if it is open for writing.
    pub(super) block: Option<usize>,
    /// What was shown when it was opened, if it is open for writing.
    opened: Option<Arc<State>>,
    /// How many blocks of that number had been removed then.
    removals: u64,
    source: Mutex<Option<Current>>,
    opener: u32,
    /// Whether it writes behind what is there, where the kernel need not know the end of.
    appends: bool,
    /// Of an array that was opened emptied: how far it has been written since.
    pub(super) rewritten: Mutex<Option<u64>>,
}

impl DataHandle {
    /// Process that opened it; 0 if unknown.
    pub(super) fn opener(&self) -> u32 {
        self.opener
    }

    /// Where a write goes that the kernel takes for one at `offset`; `None` for the end of what is there.
    pub(super) fn place(&self, offset: u64) -> Option<u64> {
        (!self.appends).then_some(offset)
    }
}

impl Vfs {
    /// Opens a block or array.
    pub(super) fn open_data(
        &self,
        state: &Arc<State>,
        node: Node,
        access: super::Access,
    ) -> Result<DataHandle> {
        if let Node::Array(number, _) = node {
            state.array(number)?;
        }
        if let Node::HduHeader(_) | Node::HduBin(_) = node {
            hdus::source(&state.snapshot, node)?;
        }
        if is_elsewhere(state, node) {
            self.look_again(node);
        }
        let block = block_of(state, node).filter(|_| access.write);
        let handle = DataHandle {
            node,
            block,
            removals: block.map_or(0, |block| self.drafts.removals(block)),
            opened: access.write.then(|| Arc::clone(state)),
            source: Mutex::default(),
            opener: access.pid,
            appends: access.append && matches!(node, Node::Block(_)),
            rewritten: Mutex::new(None),
        };
        if !access.write {
            return Ok(handle);
        }
        let block = handle.writable_block()?;
        check_encodable(&state.snapshot, block)?;
        // from here on, `forget_unopened` leaves a new block alone
        self.drafts.add_writer(block);
        let made = block < state.snapshot.layout().blocks.len() || self.drafts.get(block).is_some();
        let begun = if !made {
            // made, not written to, and closed meanwhile
            Err(Error::NotFound)
        } else if access.truncate {
            self.empty_data(&handle)
        } else {
            Ok(())
        };
        if let Err(error) = begun {
            self.drafts.remove_writer(block);
            return Err(error);
        }
        Ok(handle)
    }

    /// What `open` with `O_TRUNC` does: a block is empty until it is written to, an array is to be written anew.
    fn empty_data(&self, handle: &DataHandle) -> Result<()> {
        if matches!(handle.node, Node::Block(_)) {
            self.change(handle, |draft| {
                draft.overlay.resize(0);
                Ok(())
            })?;
        } else {
            *locked(&handle.rewritten) = Some(0);
        }
        Ok(())
    }

    /// The bytes of a block or array, with the edits that are not saved yet.
    fn data_source(&self, state: &State, node: Node) -> Result<Arc<dyn Source>, Library> {
        let snapshot = &state.snapshot;
        let draft = block_of(state, node).and_then(|block| self.drafts.get(block));
        let missing = || Library::corrupt(Place::File, "the tree no longer has this array");
        match (node, draft) {
            (Node::Block(_), Some(draft)) => Ok(draft.overlay.clone()),
            (Node::Block(n), None) => snapshot.block(index(n)),
            (Node::Array(number, format), draft) => {
                let i = state.array_index(number).map_err(|_| missing())?;
                match draft {
                    Some(draft) => drafted(snapshot, i, format, draft.overlay.clone()),
                    None => format.saved(snapshot, i),
                }
            }
            (node, _) => hdus::source(snapshot, node).map_err(|_| missing()),
        }
    }

    /// The source that a handle reads from, made anew when that is no longer the right one. To be read while `_reading`.
    pub(super) fn current_source(
        &self,
        open: &DataHandle,
        _reading: &Reading<'_>,
    ) -> Result<Arc<dyn Source>> {
        let mut current = locked(&open.source);
        // before the state: what is made of a state that is about to change is made anew
        let generation = self.drafts.generation();
        let found = match current.take() {
            Some(found) if found.generation == generation => found,
            _ => Current {
                generation,
                // an error is not kept: the next write may mend it
                source: self.data_source(&self.state(), open.node)?,
            },
        };
        Ok(Arc::clone(&current.insert(found).source))
    }

    /// Has those who have an array of another file open look at that file anew: what they read, the kernel shows to all.
    fn look_again(&self, node: Node) {
        for handle in self.handles.all() {
            if let Handle::Data(open) = &*handle
                && open.node == node
            {
                *locked(&open.source) = None;
            }
        }
    }

    /// The draft of a block, begun if there is none.
    fn draft(&self, block: usize) -> Result<Arc<Draft>> {
        let _reading = self.reading();
        loop {
            if let Some(draft) = self.drafts.get(block) {
                return Ok(draft);
            }
            let state = self.state();
            check_encodable(&state.snapshot, block)?;
            // Opening may sum the whole block. Every lookup and read needs the table of drafts, so it is not locked meanwhile.
            let base = state.snapshot.block(block)?;
            let draft = self.drafts.get_or_begin(block, || {
                let shown = Arc::ptr_eq(&self.state(), &state);
                Ok(shown.then(|| Overlay::new(base, self.spool.part())))
            })?;
            if let Some(draft) = draft {
                return Ok(draft);
            }
        }
    }

    /// Changes what a handle shows. Every change through a descriptor is made here, so that none is made of bytes that it has not
    /// seen.
    pub(super) fn change<T>(
        &self,
        open: &DataHandle,
        change: impl Fn(&Draft) -> Result<T>,
    ) -> Result<T> {
        let block = open.writable_block()?;
        self.check_fresh(open)?;
        self.edit(block, |draft| {
            // while there is a draft, what another program does to FILE is not shown
            self.check_current(open)?;
            change(draft)
        })
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

    /// That the bytes of a handle are still those that were opened: a program that writes a part of them has seen the others, or their
    /// places.
    fn check_current(&self, open: &DataHandle) -> Result<()> {
        let Some(before) = &open.opened else {
            return Ok(());
        };
        let stale = |why: &str| {
            let why = format!("{why}; open it again to write to it");
            Err(Library::Stale { why }.into())
        };
        let now = self.state();
        if before.epoch != now.epoch {
            return stale("the file has been changed by another program since this was opened");
        }
        if open
            .block
            .is_some_and(|block| self.drafts.removals(block) != open.removals)
        {
            return stale("the block has been removed since it was opened");
        }
        match open.node {
            Node::Array(number, _) => {
                let arrays = before.array_data(number).zip(now.array_data(number));
                match arrays.filter(|(before, now)| before.shows_the_same(now)) {
                    Some(_) => Ok(()),
                    None => stale("the tree has another array here since this was opened"),
                }
            }
            _ => Ok(()),
        }
    }

    /// The same, with a look at FILE first.
    fn check_fresh(&self, open: &DataHandle) -> Result<()> {
        self.refresh();
        self.check_current(open)
    }

    /// Writes into a block or array, at the end of it if no offset is given.
    pub(super) fn write_data(
        &self,
        open: &DataHandle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<()> {
        self.change(open, |draft| {
            let offset = offset.unwrap_or_else(|| draft.overlay.len());
            match open.node {
                Node::Block(_) => {
                    draft.overlay.write(offset, data)?;
                    draft.touch(open.node);
                    Ok(())
                }
                _ => self.write_array(open, draft, offset, data),
            }
        })
    }

    /// Changes the size of a block; an array's size is that of its shape.
    pub(super) fn resize_data(&self, node: Node, fh: Option<u64>, size: u64) -> Result<()> {
        let handle = fh.map(|fh| self.handles.get(fh)).transpose()?;
        let open = match handle.as_deref() {
            Some(Handle::Data(open)) => Some(open),
            _ => None,
        };
        let Node::Block(n) = node else {
            if size != self.size(&self.state(), node)? {
                return Err(Error::NotPermitted(
                    "an array has the size of its shape: change that in tree.yaml",
                ));
            }
            return open.map_or(Ok(()), |open| self.fill_up(open));
        };
        if let Some(open) = open {
            return self.resize_block(open, size);
        }
        // no close follows: it is saved now or not at all
        let resized = self.edit(index(n), |draft| {
            if draft.overlay.len() != size {
                Self::check_resize(&self.state().snapshot, draft.block, size)?;
                draft.overlay.resize(size);
                draft.touch(node);
            }
            Ok(())
        });
        let Some(draft) = self.drafts.get(index(n)) else {
            return resized;
        };
        let saved = match resized {
            Ok(()) if draft.is_touched() => self.save_block(&draft),
            outcome => outcome,
        };
        let announced = self.announce_block(&self.state(), draft.block);
        self.drafts.remove_unattended(&draft);
        drop(announced);
        saved
    }

    fn resize_block(&self, open: &DataHandle, size: u64) -> Result<()> {
        self.change(open, |draft| {
            if draft.overlay.len() != size {
                draft.overlay.resize(size);
                draft.touch(open.node);
            }
            Ok(())
        })
    }

    /// Makes a file at least so long.
    pub(super) fn extend_data(&self, open: &DataHandle, end: u64) -> Result<()> {
        self.check_fresh(open)?;
        let len = self.current_source(open, &self.reading())?.len();
        match open.node {
            _ if end <= len => Ok(()),
            Node::Block(_) => self.change(open, |draft| {
                if draft.overlay.len() < end {
                    draft.overlay.resize(end);
                    draft.touch(open.node);
                }
                Ok(())
            }),
            _ => Err(Error::NotPermitted(
                "an array has the size of its shape: change that in tree.yaml",
            )),
        }
    }

    /// Saves what was written, at `close` and `fsync`.
    pub(super) fn save_data(&self, open: &DataHandle) -> Result<()> {
        let Some(block) = open.block else {
            return Ok(());
        };
        let Some(draft) = self.drafts.get(block).filter(|draft| draft.is_touched()) else {
            return Ok(());
        };
        let saved = self.check_rewritten(open);
        self.noted(open.node, saved.and_then(|()| self.save_block(&draft)))
    }

    /// Saves a draft, which is gone then. So is one that was made of a state of FILE that is no more.
    fn save_block(&self, draft: &Arc<Draft>) -> Result<()> {
        let mut saved = draft.saved.write().unwrap_or_else(PoisonError::into_inner);
        if *saved {
            return Ok(());
        }
        // if the bytes were changed in place, no thread reads any before `saved` is set
        let outcome = self.commit_block(draft);
        let announced = match &outcome {
            Ok(_) => {
                locked(&self.history).block_saved(draft.block);
                None
            }
            Err(error @ Error::Library(Library::Stale { .. })) => {
                self.refresh_soon();
                Some(self.give_up(draft, error))
            }
            Err(error) => {
                draft.refuse(error.clone());
                return outcome.and_then(Saved::finished);
            }
        };
        *saved = true;
        self.drafts.remove(draft);
        drop(announced);
        outcome.and_then(Saved::finished)
    }

    /// Tells that a draft is given up. It is gone when what is given back is dropped.
    fn give_up(&self, draft: &Draft, why: &dyn Display) -> Announced<'_> {
        self.note_loss(draft.block, &draft.files(), why);
        self.announce_block(&self.state(), draft.block)
    }

    /// The end of a handle. That of the last writer of a block saves what a map wrote, and gives up what can't be saved; before that,
    /// a draft may hold what another writer has not finished.
    pub(super) fn close_data(&self, open: &DataHandle) -> Result<()> {
        let Some(block) = open.block else {
            return Ok(());
        };
        if self.drafts.leave_to_others(block) {
            self.tell(Invalidation::Inode(open.node.ino()));
            return Ok(());
        }
        // without a draft nothing changes, and the tree need not be known
        let edited = self.drafts.get(block);
        // what was refused is not saved later, when its writer takes it for lost
        let refused = edited.as_ref().and_then(|draft| draft.refusal());
        let saved = refused.map_or_else(|| self.save_data(open), Err);
        let announced = edited.map(|_| self.announce_block(&self.state(), block));
        let draft = self.drafts.remove_writer(block);
        drop(announced);
        if block >= self.state().snapshot.layout().blocks.len() {
            // made, and not written to
            self.tell_block_gone(block);
        }
        if let (Some(draft), Err(error)) = (draft, &saved)
            && draft.is_touched()
        {
            drop(self.give_up(&draft, error));
        }
        self.tell(Invalidation::Inode(open.node.ino()));
        saved
    }

    /// Has the kernel forget the name of a block.
    fn tell_block_gone(&self, block: usize) {
        let (directory, name) = (Node::Blocks.ino(), block_name(block));
        self.tell(Invalidation::Entry(directory, name));
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
        self.drafts.get_or_begin(count, || {
            let empty = Arc::new(Memory::new(Vec::new()));
            Ok(Some(Overlay::new(empty, self.spool.part())))
        })?;
        Ok(Node::Block(n))
    }

    /// Removes the last block, if no array uses it.
    pub(super) fn remove_block(&self, name: &OsStr) -> Result<()> {
        let state = self.state();
        let n = index(block_number(name).ok_or(Error::NotFound)?);
        let count = state.snapshot.layout().blocks.len();
        if n == count && self.drafts.forget_unopened(count) {
            return Ok(());
        }
        if self.drafts.forget_unopened(count) {
            self.tell_block_gone(count);
        }
        self.commit_removal(n)
    }

    /// That block `n` is the last one, that no array uses it, and that no draft is of it or behind it.
    pub(super) fn check_removable(&self, state: &State, n: usize) -> Result<()> {
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
        if self.drafts.any_from(n) {
            return Err(Error::Busy(
                "the block, or a new one behind it, is being edited",
            ));
        }
        Ok(())
    }
}

/// That a block can be written in the form in which it is stored.
fn check_encodable(snapshot: &Snapshot, block: usize) -> Result<()> {
    let Some(header) = snapshot.layout().blocks.get(block) else {
        return Ok(());
    };
    let framing = snapshot.framing(block);
    if header.compression == [0; 4] || codec::codec(header.compression)?.writes(framing) {
        return Ok(());
    }
    Err(Error::ReadOnly(
        "blocks of this compression are only read: encode it anew first, setfattr -n user.asdf.compression -v zlib",
    ))
}

/// The block that holds the bytes of a block or array, if one does.
pub(super) fn block_of(state: &State, node: Node) -> Option<usize> {
    match node {
        Node::Block(n) => Some(index(n)),
        Node::Array(number, _) => match state.array_data(number)?.origin() {
            Origin::Block(n) => Some(*n),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the bytes of an array lie in another file.
pub(super) fn is_elsewhere(state: &State, node: Node) -> bool {
    let Node::Array(number, _) = node else {
        return false;
    };
    let data = state.array_data(number);
    data.is_some_and(|data| matches!(data.origin(), Origin::External(_)))
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
