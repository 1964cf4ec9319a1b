//! Edits of blocks, through `blocks/N.bin` or through the arrays that lie in them.
//!
//! A block that is written to has one draft for all handles: its decoded bytes with the edits on top. It is saved when a
//! descriptor is closed or synced, and then gone. A file that `open` emptied is not saved until something is written, so that
//! `cat x > blocks/0.bin` does not first make the block empty.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLockWriteGuard};

use super::block_edits::BlockDraft;
use super::hdus;
use super::node::Node;
use super::rewrite::Rewriting;
use super::saved::{BlockChange, Saved};
use super::{Error, Open, Reading, Result, State, Vfs, index, locked};
use crate::asdf::{Origin, Snapshot};
use crate::codec;
use crate::error::{Error as Library, Place};
use crate::source::Source;

/// An open block or array.
pub(super) struct DataHandle {
    pub(super) node: Node,
    /// What was shown when it was opened.
    opened: Arc<State>,
    /// The form that the file had then, or that a save through this handle has given to it since.
    form: AtomicU64,
    /// What it writes to, if it is open for writing.
    pub(super) writes: Option<Box<Writes>>,
    /// What it reads from, with [`BlockEdits::generation`](super::BlockEdits::generation) when that was made.
    source: Mutex<Option<(u64, Arc<dyn Source>)>>,
    /// What is written into the file of an array, once a handle has emptied it.
    pub(super) rewriting: Arc<Rewriting>,
}

/// What a handle writes to.
pub(super) struct Writes {
    pub(super) block: usize,
    /// The id of the block's slot in `BlockEdits`.
    pub(super) slot: u64,
    /// The file that the bytes come through: the open one, or the scratch file that is being renamed over that.
    pub(super) through: Node,
    /// Set if the draft that it has written into was given up.
    pub(super) lost: Mutex<Arc<OnceLock<Error>>>,
    /// Whether it has emptied the file of an array.
    pub(super) has_emptied: AtomicBool,
}

impl DataHandle {
    /// Checks that what was written through it was not given up. The error comes at each flush and write from then on: a program may not
    /// see the first one, which may be that of a process it has forked.
    pub(super) fn check_kept(&self) -> Result<()> {
        let Some(writes) = &self.writes else {
            return Ok(());
        };
        let lost = Arc::clone(&locked(&writes.lost));
        lost.get().cloned().map_or(Ok(()), Err)
    }

    /// The block that a write goes to.
    pub(super) fn writes(&self) -> Result<&Writes> {
        self.writes.as_deref().ok_or(Error::ReadOnly(
            "inline and external arrays: edit tree.yaml, or the other file",
        ))
    }
}

impl Vfs {
    /// Opens a block or array. `import`: the scratch file that is being renamed over it. What is written anew of the file then, no other
    /// handle sees.
    pub(super) fn open_data(
        &self,
        state: &Arc<State>,
        node: Node,
        access: super::Access,
        import: Option<Node>,
    ) -> Result<DataHandle> {
        check_openable(state, node, access.write)?;
        if state.is_elsewhere(node) {
            // the kernel shows the same pages to all handles of the file: those that are open look at the other file anew, too
            self.edits.changed();
        }
        let block = block_of(state, node).filter(|_| access.write);
        let writes = block.map(|block| {
            check_encodable(&state.snapshot, block)?;
            // from here on, `forget_unopened` leaves a new block alone
            let slot = self.edits.add_writer(block, node);
            Ok::<_, Error>(Box::new(Writes {
                block,
                slot: slot.map_err(|other| self.in_use(other))?,
                through: import.unwrap_or(node),
                lost: Mutex::default(),
                has_emptied: AtomicBool::new(false),
            }))
        });
        let handle = DataHandle {
            node,
            opened: Arc::clone(state),
            form: AtomicU64::new(state.form(node)),
            writes: writes.transpose()?,
            source: Mutex::default(),
            rewriting: match import {
                Some(_) => Arc::new(Rewriting::new(state)),
                None => self.edits.rewriting(node, state),
            },
        };
        if !access.write {
            return Ok(handle);
        }
        let writes = handle.writes()?;
        let count = state.snapshot.layout().blocks.len();
        let begun = if writes.block >= count && self.edits.get(writes.block).is_none() {
            // made, not written to, and closed meanwhile
            Err(Error::NotFound)
        } else if access.truncate {
            self.empty_data(state, &handle)
        } else {
            Ok(())
        };
        if let Err(error) = begun {
            self.edits.remove_writer(writes.block, writes.slot);
            return Err(error);
        }
        Ok(handle)
    }

    /// What `open` with `O_TRUNC` does: a block is empty until it is written to, an array is to be written anew.
    fn empty_data(&self, state: &State, handle: &DataHandle) -> Result<()> {
        if let Node::Array(..) = handle.node {
            return self.begin_anew(handle, handle.writes()?, state);
        }
        self.change(handle, |draft| {
            draft.overlay.resize(0);
            Ok(())
        })
    }

    /// The error if a block is written through another file.
    fn in_use(&self, other: Node) -> Error {
        Error::InUse(self.path_of(other))
    }

    /// The state that a handle reads: the one that is shown, if the file still has the form that it had when it was opened; else the one
    /// from then, as long as FILE has its bytes.
    ///
    /// # Errors
    /// [`Library::Stale`].
    fn state_of(&self, open: &DataHandle) -> Result<Arc<State>> {
        let state = self.state();
        if state.form(open.node) == open.form.load(Ordering::Acquire) {
            return Ok(state);
        }
        let is_last = open.opened.has_last_bytes(open.node, &state);
        if is_last && !open.opened.is_sealed() && !self.saver.file.is_far() {
            return Ok(Arc::clone(&open.opened));
        }
        let why = "it has changed since it was opened: open it again".to_owned();
        Err(Library::Stale { why }.into())
    }

    /// The source that a handle reads from now: with what is written through its file and not saved yet.
    ///
    /// # Errors
    /// As [`Vfs::state_of`]; why the bytes can't be had.
    pub(super) fn source_of(
        &self,
        open: &DataHandle,
        _reading: &Reading<'_>,
    ) -> Result<Arc<dyn Source>> {
        let missing = || Library::corrupt(Place::File, "the tree no longer has this array");
        let draft = block_of(&open.opened, open.node)
            .and_then(|block| self.edits.of_file(block, open.node))
            .map(|draft| Arc::clone(&draft.overlay));
        // what is written goes where it was to go when the file was opened, or is refused
        let state = match &draft {
            Some(_) => Arc::clone(&open.opened),
            None => self.state_of(open)?,
        };
        let snapshot = &state.snapshot;
        let source: Result<Arc<dyn Source>, Library> = match (open.node, draft) {
            (Node::Block(_), Some(draft)) => Ok(draft),
            (Node::Block(n), None) => snapshot.block(index(n)),
            (Node::Array(number, format), draft) => {
                let i = state.array_index(number).map_err(|_| missing())?;
                match draft {
                    Some(draft) => format.over(snapshot, i, draft),
                    None => format.saved(snapshot, i),
                }
            }
            (Node::View(view, number), _) => state.view_source(view, number),
            (Node::StatsTsv, _) => Ok(state.stats_source()),
            (node, _) => hdus::source(snapshot, node).map_err(|_| missing()),
        };
        Ok(source?)
    }

    /// The source that a handle reads from, made anew if edits or states have changed since.
    pub(super) fn current_source(
        &self,
        open: &DataHandle,
        reading: &Reading<'_>,
    ) -> Result<Arc<dyn Source>> {
        if let Some(rewritten) = self.rewritten_source(open)? {
            return Ok(rewritten);
        }
        let mut current = locked(&open.source);
        // taken before the state is: if another state is shown meanwhile, the source is made anew at the next read
        let generation = self.edits.generation();
        let found = match current.take() {
            Some(found) if found.0 == generation => found,
            // an error is not kept: the next write may mend it
            _ => (generation, self.source_of(open, reading)?),
        };
        Ok(Arc::clone(&current.insert(found).1))
    }

    /// The draft of a block, begun if there is none.
    pub(super) fn draft(&self, block: usize) -> Result<Arc<BlockDraft>> {
        let _reading = self.saver.reading();
        loop {
            if let Some(draft) = self.edits.get(block) {
                return Ok(draft);
            }
            let state = self.state();
            check_encodable(&state.snapshot, block)?;
            // Opening may sum the whole block, and lookups take the lock of the table: so it is not held meanwhile.
            let base = state.snapshot.block(block)?;
            let draft = self.edits.get_or_begin(block, None, || {
                Arc::ptr_eq(&self.state(), &state).then_some(base)
            });
            if let Some(draft) = draft {
                return Ok(draft);
            }
        }
    }

    /// Changes the draft that a handle writes to. Every change through a handle is made here, so that none is made to bytes that its
    /// program has not seen.
    pub(super) fn change<T>(
        &self,
        open: &DataHandle,
        change: impl FnOnce(&BlockDraft) -> Result<T>,
    ) -> Result<T> {
        let writes = open.writes()?;
        self.refresh();
        self.check_current(open, writes)?;
        loop {
            let draft = self.draft(writes.block)?;
            let saved = draft.saved.read().unwrap_or_else(PoisonError::into_inner);
            if *saved {
                // this thread has waited for a save, which has ended the draft
                continue;
            }
            // while there is a draft, a change of FILE by another program is not shown: so the check holds from here on
            self.check_current(open, writes)?;
            open.check_kept()?;
            *locked(&writes.lost) = Arc::clone(&draft.lost);
            let len = draft.overlay.len();
            let changed = change(&draft);
            if draft.overlay.len() != len {
                // an array of it may lie in the draft now, or no longer
                self.edits.changed();
            }
            return changed;
        }
    }

    /// Checks that the file is the one that was opened: a program that writes a part of its bytes relies on the rest, or on where it is.
    pub(super) fn check_current(&self, open: &DataHandle, writes: &Writes) -> Result<()> {
        let stale = |why: &str| {
            let why = format!("{why}; open it again to write to it");
            Err(Library::Stale { why }.into())
        };
        if !self.edits.is_of(writes.block, writes.slot) {
            return stale("the block has been removed since it was opened");
        }
        if self.state().form(open.node) != open.form.load(Ordering::Acquire) {
            return stale(
                "it has been changed since it was opened, by another program or another file of the mount",
            );
        }
        Ok(())
    }

    /// Writes into a block or array, at the end of it if no offset is given.
    pub(super) fn write_data(
        &self,
        open: &DataHandle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<()> {
        let writes = open.writes()?;
        loop {
            if let Some(written) = self.rewrite(open, writes, offset, data) {
                return written;
            }
            let written = self.change(open, |draft| {
                match open.node {
                    Node::Block(_) => {
                        let offset = offset.unwrap_or_else(|| draft.overlay.len());
                        draft.overlay.write(offset, data)?;
                        draft.touch(open.node);
                    }
                    // another handle has emptied the file meanwhile, or another thread could not save it and has put it back
                    _ if open.rewriting.is_under_way() => return Ok(false),
                    _ => {
                        // nothing can be appended to an array
                        let offset = offset.ok_or_else(fixed_size)?;
                        self.write_array(open, draft, offset, data)?;
                    }
                }
                Ok(true)
            })?;
            if written {
                return Ok(());
            }
        }
    }

    /// Changes the size of a block. An array has that of its shape; one that `open` emptied is filled up to it.
    pub(super) fn resize_data(&self, node: Node, open: Option<&Open>, size: u64) -> Result<()> {
        match (node, open) {
            (Node::Block(_), Some(Open::Data(open))) => self.change(open, |draft| {
                draft.resize(node, size);
                Ok(())
            }),
            (_, Some(Open::Data(open))) => self.resize_array(open, size),
            (Node::Block(n), _) => self.resize_by_path(index(n), size),
            _ => self.check_size(node, size..=size),
        }
    }

    /// Changes the size of a block without a handle. This thread is a writer of the block meanwhile, but no close follows, so that the
    /// block is saved now or not at all.
    fn resize_by_path(&self, block: usize, size: u64) -> Result<()> {
        let node = Node::Block(u32::try_from(block).map_err(|_| Error::NotFound)?);
        let slot = self.edits.add_writer(block, node);
        let slot = slot.map_err(|other| self.in_use(other))?;
        let resized = self.alone(block, |draft, saved| {
            let len = draft.overlay.len();
            let (touched, whole) = (draft.is_touched(), draft.overlay.keeps_length());
            if touched && size < len {
                // what is cut off could not be put back if this can't be saved
                return Err(Error::Busy("the block is being edited"));
            }
            if len != size {
                Self::check_resize(&self.state().snapshot, block, size)?;
                draft.resize(node, size);
                self.edits.changed();
            }
            let done = if draft.is_touched() {
                self.save_held(draft, saved)
            } else {
                Ok(())
            };
            if done.is_err() && !**saved && !touched && whole {
                self.end_draft(draft, saved, None);
            } else if done.is_err() && !**saved {
                draft.overlay.resize(len);
                if !touched {
                    draft.forget();
                }
                self.edits.changed();
            }
            done
        });
        resized.and(self.end_writer(node, block, slot))
    }

    /// Makes a block at least so long. An array must be so long already.
    pub(super) fn extend_data(&self, open: &DataHandle, end: u64) -> Result<()> {
        self.change(open, |draft| match open.node {
            Node::Block(_) => {
                draft.resize(open.node, draft.overlay.len().max(end));
                Ok(())
            }
            node => self.check_size(node, end..=u64::MAX),
        })
    }

    /// Checks that the size of an array is one of these.
    pub(super) fn check_size(&self, array: Node, sizes: RangeInclusive<u64>) -> Result<()> {
        if sizes.contains(&self.size(&self.state(), array)?) {
            return Ok(());
        }
        Err(fixed_size())
    }

    /// Saves what was written, at `close` and `fsync`.
    pub(super) fn save_data(&self, open: &DataHandle) -> Result<()> {
        open.check_kept()?;
        let writes = open.writes.as_deref();
        let Some(writes) = writes.filter(|it| self.edits.is_of(it.block, it.slot)) else {
            return open.check_kept();
        };
        let saved = self.save_rewritten(open, writes).unwrap_or_else(|| {
            // what a map of this file has changed comes through any of its handles
            let draft = self.edits.of_file(writes.block, open.node);
            let draft = draft.filter(|draft| draft.is_touched());
            draft.map_or(Ok(()), |draft| self.save_block(&draft))
        });
        self.noted(open.node, saved)?;
        // another thread may have been saving it, and given it up
        open.check_kept()
    }

    /// Takes the file as it is now for the one that the handle has opened, after a save through it.
    pub(super) fn renew(&self, open: &DataHandle) {
        let form = self.state().form(open.node);
        open.form.store(form, Ordering::Release);
    }

    /// Saves a draft, and ends it. Gives up one that was made of a FILE that another program has changed.
    pub(super) fn save_block(&self, draft: &Arc<BlockDraft>) -> Result<()> {
        let mut saved = draft.saved.write().unwrap_or_else(PoisonError::into_inner);
        if *saved {
            return draft.lost.get().cloned().map_or(Ok(()), Err);
        }
        self.save_held(draft, &mut saved)
    }

    /// Saves a draft as [`Vfs::save_block`] does, with its lock held.
    pub(super) fn save_held(
        &self,
        draft: &Arc<BlockDraft>,
        saved: &mut RwLockWriteGuard<'_, bool>,
    ) -> Result<()> {
        // if stored bytes were changed in place, `outcome` keeps other threads from reading them until `saved` is set
        let outcome = self.commit_block(draft, saved);
        match &outcome {
            Ok(_) => {
                locked(&self.edits.news).saved(draft.block, &draft.files());
                self.end_draft(draft, saved, None);
            }
            Err(error @ Error::Library(Library::Stale { .. })) => {
                self.refresh_soon();
                self.end_draft(draft, saved, Some(error));
            }
            Err(error) => draft.refuse(error.clone()),
        }
        outcome.and_then(Saved::finished)
    }

    /// Runs `change` with the draft of a block, begun if there is none, while no other thread changes it.
    pub(super) fn alone<T>(
        &self,
        block: usize,
        change: impl FnOnce(&Arc<BlockDraft>, &mut RwLockWriteGuard<'_, bool>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let draft = self.draft(block)?;
            let mut saved = draft.saved.write().unwrap_or_else(PoisonError::into_inner);
            if !*saved {
                return change(&draft, &mut saved);
            }
        }
    }

    /// Ends a draft, which was saved or, for a reason, given up.
    pub(super) fn end_draft(
        &self,
        draft: &Arc<BlockDraft>,
        saved: &mut RwLockWriteGuard<'_, bool>,
        given_up: Option<&Error>,
    ) {
        if let Some(why) = given_up {
            self.give_up(draft, why);
        }
        **saved = true;
        self.edits.remove(draft);
    }

    /// Tells handles and the log that a draft is given up. The file through which it was written is another one from now on, as the kernel
    /// has what was written.
    fn give_up(&self, draft: &BlockDraft, why: &Error) {
        draft.lose(why);
        self.note_loss(draft.block, &draft.files(), why);
        self.show_changed_block(BlockChange {
            block: draft.block,
            through: None,
        });
    }

    /// Ends a handle.
    pub(super) fn close_data(&self, open: &DataHandle) -> Result<()> {
        let Some(writes @ &Writes { block, slot, .. }) = open.writes.as_deref() else {
            return Ok(());
        };
        self.end_rewriting(open, writes);
        self.end_writer(open.node, block, slot)
    }

    /// Counts one writer of a block less, which has written through `file`. The last one saves what a map wrote, and gives up what can't
    /// be saved. If it is not the last, the draft may hold what another writer has not finished.
    fn end_writer(&self, file: Node, block: usize, slot: u64) -> Result<()> {
        if self.edits.leave_to_others(block, slot) {
            return Ok(());
        }
        // without a draft nothing changes, and the tree need not be known
        let edited = self.edits.get(block);
        // what was refused is not tried again: its writer was told, and takes it for lost
        let refused = edited.as_ref().and_then(|draft| draft.refusal());
        let touched = edited.as_ref().filter(|draft| draft.is_touched());
        let saved = match (refused, touched) {
            (Some(error), _) => Err(error),
            (None, Some(draft)) => {
                let saved = self.save_block(draft);
                self.noted(file, saved)
            }
            (None, None) => Ok(()),
        };
        let draft = self.edits.remove_writer(block, slot);
        if let (Some(draft), Err(error)) = (draft, &saved)
            && draft.is_touched()
        {
            self.give_up(&draft, error);
        }
        saved
    }
}

/// Why an array can't have another size.
pub(super) fn fixed_size() -> Error {
    Error::NotPermitted("an array has the size of its shape: change that in tree.yaml")
}

/// Checks that this program can write the compression of a block.
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

/// Checks that a block or array is there, and may be opened so.
fn check_openable(state: &State, node: Node, writes: bool) -> Result<()> {
    if let Node::Array(number, _) = node {
        state.array(number)?;
    }
    if let Node::HduHeader(_) | Node::HduBin(_) = node {
        hdus::source(&state.snapshot, node)?;
    }
    if node == Node::StatsTsv && writes {
        return Err(Error::ReadOnly("info/ describes the mount"));
    }
    if let Node::View(view, number) = node {
        state.view_len(view, number)?;
        if writes {
            return Err(Error::ReadOnly(
                "views are made of arrays: write to the file in arrays/",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
