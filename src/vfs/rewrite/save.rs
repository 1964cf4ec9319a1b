//! Saves a file that was written anew when it is whole, and gives it up when it can't become whole.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use super::super::block_edits::BlockDraft;
use super::super::commit::Sum;
use super::super::edit::{DataHandle, Writes, fixed_size};
use super::super::format::Format;
use super::super::saved::{BlockChange, Saved};
use super::super::write::copy;
use super::super::{Error, Result, Vfs, locked};
use super::{ArrayFile, Rewritten, SoFar, WrittenElements};
use crate::asdf::check::check_text;
use crate::asdf::npy::Header;
use crate::save::edit::{BlockEdit, Edit};
use crate::source::{Overlay, Source};

impl Vfs {
    /// Checks that all of a file that was emptied has been written. `false` if nothing has.
    fn check_whole(&self, open: &DataHandle, writes: &Writes) -> Result<bool> {
        let is_nothing = |it: &Rewritten| it.so_far.is_nothing();
        let nothing = locked(&open.rewriting.rewritten)
            .as_ref()
            .is_none_or(is_nothing);
        if nothing {
            return Ok(false);
        }
        // the tree may have another array there by now
        self.check_current(open, writes)?;
        let state = self.state();
        let file = ArrayFile::of(&state, open.node)?;
        match locked(&open.rewriting.rewritten)
            .as_ref()
            .map(|it| &it.so_far)
        {
            Some(SoFar::Failed(why)) => Err(why.clone()),
            Some(SoFar::Head(head)) => {
                let why = format!("{} bytes written, which is no whole NPY header", head.len());
                Err(file.refused(why, "write all of the file"))
            }
            Some(SoFar::Elements(elements)) => check_done(file, elements).map(|()| true),
            None => Ok(false),
        }
    }

    /// Saves a file that was emptied, once all of it is there; `None` if it was not emptied, or if this handle has neither emptied it nor
    /// written to it. What can't be saved now may be at the next sync.
    pub(in crate::vfs) fn save_rewritten(
        &self,
        open: &DataHandle,
        writes: &Writes,
    ) -> Option<Result<()>> {
        let is_saved = |it: &Rewritten| it.is_saved_by(writes);
        let part = || locked(&open.rewriting.rewritten).as_ref().map(is_saved);
        let mut is_ours = part();
        if is_ours.is_none() {
            // Another thread may be saving what was written through this handle: it holds the lock of the draft, and if it can't save the
            // elements, it puts them back before it releases the lock. So this waits for the lock, and looks again.
            let draft = self.edits.of_file(writes.block, open.node)?;
            drop(draft.saved.write().unwrap_or_else(PoisonError::into_inner));
            is_ours = part();
        }
        if is_ours != Some(true) {
            return None;
        }
        match self.check_whole(open, writes) {
            // the file is another one after that, but its writer may go on
            Ok(true) => Some(
                self.save_elements(open, writes)
                    .inspect(|()| self.renew(open)),
            ),
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    /// Saves a file that is whole. A thread that writes to it meanwhile waits for the lock of the draft. If the save fails, the file stays
    /// as it was written, and may be saved later.
    fn save_elements(&self, open: &DataHandle, writes: &Writes) -> Result<()> {
        // with the lock of the draft held, no other draft is begun on bytes that this save replaces
        self.alone(writes.block, |draft, saved| {
            let rewritten = &open.rewriting.rewritten;
            let Some(mut taken) = locked(rewritten).take_if(|it| it.is_saved_by(writes)) else {
                // another thread has put it into the draft, which it may not have been able to save
                let is_in = draft.is_touched();
                return if is_in {
                    self.save_held(draft, saved)
                } else {
                    Ok(())
                };
            };
            let current = self.check_current(open, writes);
            draft.take_in(&taken.lost);
            let mut is_in = false;
            let done = current.and_then(|()| match &taken.so_far {
                SoFar::Elements(whole) => {
                    self.save_held_elements(open, writes, whole, (draft, saved), &mut is_in)
                }
                SoFar::Head(_) | SoFar::Failed(_) => Err(fixed_size()),
            });
            if let Err(why) = &done
                && !**saved
                && !is_in
            {
                draft.take_out();
                taken.unsaved = Some(why.clone());
                locked(rewritten).get_or_insert(taken);
            }
            done
        })
    }

    /// Saves whole elements; the caller holds the lock of the draft, which is `saved`. If the array keeps datatype and shape, they
    /// go into the draft. Else they replace the block, and its declaration with it.
    /// `is_in` becomes true if they are in the draft afterwards.
    fn save_held_elements(
        &self,
        open: &DataHandle,
        writes: &Writes,
        elements: &WrittenElements,
        (draft, saved): (&Arc<BlockDraft>, &mut RwLockWriteGuard<'_, bool>),
        is_in: &mut bool,
    ) -> Result<()> {
        let state = self.state();
        let file = ArrayFile::of(&state, open.node)?;
        // it may have been emptied once more since it was whole
        check_done(file, elements)?;
        match &elements.header {
            None => self.save_in_block(writes, &elements.bytes, (draft, saved), is_in),
            Some(header) if file.is_of(header) => {
                let placed = self.placed(file, header, Arc::clone(&elements.bytes))?;
                self.save_in_block(writes, &placed, (draft, saved), is_in)
            }
            // Replaces the array and all of its block. What was written through this file before it was emptied is gone, as on any file
            // system.
            Some(header) => {
                let done = self.commit_anew(open, writes, header, &elements.bytes, saved)?;
                locked(&self.edits.news).saved(draft.block, &[open.node]);
                self.end_draft(draft, saved, None);
                done.finished()
            }
        }
    }

    /// Ends a handle. If it is the last one that has emptied the file, gives up a file that is not whole.
    pub(in crate::vfs) fn end_rewriting(&self, open: &DataHandle, writes: &Writes) {
        let last = || open.rewriting.emptied.fetch_sub(1, Ordering::AcqRel) == 1;
        if !writes.has_emptied.load(Ordering::Relaxed) || !last() || !open.rewriting.is_under_way()
        {
            return;
        }
        let why = match self.check_whole(open, writes) {
            Ok(false) => None,
            Ok(true) => {
                let rewritten = locked(&open.rewriting.rewritten);
                let why = rewritten.as_ref().and_then(|it| it.unsaved.clone());
                Some(why.unwrap_or(Error::NotPermitted("it could not be saved")))
            }
            Err(why) => Some(why),
        };
        let mut rewritten = locked(&open.rewriting.rewritten);
        if open.rewriting.emptied.load(Ordering::Acquire) > 0 {
            // another handle has emptied the file meanwhile: what is there now is for that handle to save
            return;
        }
        let given_up = rewritten.take();
        drop(rewritten);
        if let Some((given_up, why)) = given_up.zip(why) {
            self.note_loss(writes.block, &[open.node], &why);
            let _ = given_up.lost.set(why);
            self.show_other_file(open.node);
        }
    }

    /// Elements that were written in another order than the array has, put where the array has them in its block.
    fn placed(
        &self,
        file: ArrayFile<'_>,
        header: &Header,
        elements: Arc<Overlay>,
    ) -> Result<Arc<Overlay>> {
        let placed = self.nothing_in_block(file)?;
        let elements = file.state.snapshot.in_c_order(header, elements)?;
        let format = Format::Bin;
        let in_c_order = ArrayFile { format, ..file };
        copy(&*elements, |at, piece| in_c_order.put(&placed, at, piece))?;
        Ok(placed)
    }

    /// Puts elements into the draft of their block, and saves it with what was written through other files. If the save fails and nothing
    /// else was written into the draft, takes the elements out again. `is_in` tells whether they are in the draft afterwards.
    fn save_in_block(
        &self,
        writes: &Writes,
        bytes: &Overlay,
        (draft, saved): (&Arc<BlockDraft>, &mut RwLockWriteGuard<'_, bool>),
        is_in: &mut bool,
    ) -> Result<()> {
        if draft.overlay.len() < bytes.len() {
            return Err(Error::Busy("its block is being made shorter"));
        }
        let lone = !draft.is_touched() && draft.overlay.keeps_length();
        draft.overlay.take(bytes)?;
        *is_in = true;
        draft.touch(writes.through);
        let done = self.save_held(draft, saved);
        if done.is_err() && !**saved && lone {
            bytes.take(&draft.overlay)?;
            *is_in = false;
            draft.forget();
            self.edits.changed();
        } else {
            *locked(&writes.lost) = Arc::clone(&draft.lost);
        }
        done
    }

    /// Saves an array that gets another datatype or shape: its new declaration in the tree, and its block.
    fn commit_anew(
        &self,
        open: &DataHandle,
        target: &Writes,
        header: &Header,
        elements: &Arc<Overlay>,
        _saved: &RwLockWriteGuard<'_, bool>,
    ) -> Result<Saved<'_>> {
        let (mut writer, state) = self.begin_save()?;
        self.check_current(open, target)?;
        let n = target.block;
        let file = ArrayFile::of(&state, open.node)?;
        let path = file.array.path();
        let text = Arc::new(state.snapshot.redeclared(file.index, header)?);
        let decoded = state.snapshot.in_c_order(header, elements.clone())?;
        self.check_room_for(n, decoded.len())?;
        self.let_go_of_tree();
        let state = self.state();
        let resized = Some((n, decoded.len()));
        let checked = check_text(&state.snapshot, &text, self.options.validate, resized)?;
        let sum = Sum::of_new(&state.snapshot, n, &*decoded)?;
        let stored = self.stored_anew(&state, n, decoded, &sum)?;
        let edit = Edit {
            text: Some(Arc::clone(&text)),
            blocks: vec![BlockEdit::Replace { n, stored }],
        };
        let what = format!("array {path} and its block {n} saved");
        let change = BlockChange {
            block: n,
            through: None,
        };
        let saved = self.commit(&mut writer, &edit, &what, Some(change), None, Some(checked))?;
        self.tree.reloaded(text);
        Ok(saved)
    }
}

/// Checks that all elements have been written.
fn check_done(file: ArrayFile<'_>, elements: &WrittenElements) -> Result<()> {
    let (done, full) = (elements.done, file.full(elements.header.as_ref()));
    if done >= full {
        return Ok(());
    }
    let why = format!("{done} bytes written of {full}");
    let advice = "write all of it, or change the shape in tree.yaml first";
    Err(file.refused(why, advice))
}
