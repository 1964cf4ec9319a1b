//! Writing into blocks and arrays: bytes of a raw block go to FILE as they come, all others are kept until a close or sync.
//!
//! Who changes what was written holds [`WrittenFile::turn`]. FILE and its state are used with the writer's lock: no save of
//! something else moves blocks meanwhile, and no other program's FILE is shown.

use std::ops::Range;
use std::sync::Arc;

use log::warn;

use super::array_file::ArrayFile;
use super::blocks::{Content, Owed, WrittenFile};
use super::commit::Saving;
use super::data::{DataHandle, check_encodable};
use super::import::is_saved;
use super::node::Node;
use super::saved::{BlockChange, Through};
use super::write::WRITE;
use super::{Access, Error, Result, State, Vfs, index, locked};
use crate::asdf::checksum::{ChecksumState, md5};
use crate::error::Error as Library;
use crate::save::{Put, Writer};
use crate::source::{Overlay, Source, len_u64};

impl Vfs {
    /// Writes into a block or array, at the end of it if no offset is given.
    pub(super) fn write_data(
        &self,
        open: &DataHandle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<()> {
        let written = open.writes()?;
        self.refresh();
        let _turn = written.turn();
        self.check_known(open, written)?;
        let done = match written.content() {
            Content::Emptied(bytes) => {
                let at = offset.unwrap_or_else(|| bytes.len());
                bytes.write(at, data).map_err(Error::from)
            }
            _ => match written.file {
                Node::Block(_) => self.write_block(written, offset, data),
                _ => self.write_array(written, offset, data),
            },
        };
        written.note_write(&done);
        done
    }

    /// Checks that the file is the one that a handle has opened: its program writes a part of the bytes, and relies on the rest, or on where
    /// it is.
    fn check_known(&self, open: &DataHandle, written: &WrittenFile) -> Result<()> {
        self.check_current(written)?;
        if open.form() == written.form() {
            return Ok(());
        }
        stale("it has been replaced since it was opened")
    }

    /// Checks that the file is still the one that is written to.
    pub(super) fn check_current(&self, written: &WrittenFile) -> Result<()> {
        if written.is_of(&self.state()) {
            return Ok(());
        }
        stale(
            "it has been changed since it was opened, by another program or another file of the mount",
        )
    }

    /// Writes into a block that was not emptied.
    fn write_block(&self, written: &WrittenFile, offset: Option<u64>, data: &[u8]) -> Result<()> {
        if let Content::Edited(block) = written.content() {
            return Ok(block.write(offset.unwrap_or_else(|| block.len()), data)?);
        }
        let state = self.state();
        let len = state.snapshot.block_len(written.block);
        let len = len.ok_or(Error::NotFound)?;
        let at = offset.unwrap_or(len);
        let end = at.checked_add(len_u64(data.len()));
        let end = end.ok_or(Error::TooBig("beyond 2^64"))?;
        // bytes that make the block longer need its header changed, and so a save of the whole
        if is_patched(&state, written.block) && end <= len {
            return self.patch(written, &(at..end), |put| put(at, data));
        }
        Ok(self.begin_edit(written)?.write(at, data)?)
    }

    /// Writes into an array that was not emptied: its elements, as it has the size of its shape.
    fn write_array(&self, written: &WrittenFile, offset: Option<u64>, data: &[u8]) -> Result<()> {
        let state = self.state();
        let file = ArrayFile::of(&state, written.file)?;
        // nothing can be appended to an array
        // numpy.save writes the header first, then the elements: both arrive here, and the header has to be the one that is shown
        let (at, data) = file.elements_of(offset.ok_or_else(fixed_size)?, data)?;
        let end = at.checked_add(len_u64(data.len()));
        if end.is_none_or(|end| end > file.array.bin_len()) {
            return Err(fixed_size());
        }
        if data.is_empty() {
            return Ok(());
        }
        if let Content::Edited(block) = written.content() {
            let put = &mut |at, run: &[u8]| block.write(at, run);
            return Ok(file.put(block.len(), at, data, put)?);
        }
        let len = state.snapshot.block_len(written.block);
        let len = len.ok_or(Error::NotFound)?;
        // nothing is begun for an array that can't be written
        file.put(len, at, &[], &mut |_, _| Ok(()))?;
        if is_patched(&state, written.block) {
            return self.patch(written, &(0..0), |put| file.put(len, at, data, put));
        }
        let block = self.begin_edit(written)?;
        let put = &mut |at, run: &[u8]| block.write(at, run);
        Ok(file.put(block.len(), at, data, put)?)
    }

    /// Has `write` put bytes into a raw block, where FILE has them.
    fn patch(
        &self,
        written: &WrittenFile,
        reserved: &Range<u64>,
        write: impl FnOnce(&mut Put<'_>) -> Result<(), Library>,
    ) -> Result<()> {
        if let Content::Saved = written.content() {
            // this may take as long as it takes to read the block, so it is done before other saves have to wait
            let snapshot = Arc::clone(&self.state().snapshot);
            snapshot.verify_checksum(written.block, &mut |_| {})?;
            // no other save may move the block between the check and the change of its checksum
            let (mut writer, _) = self.begin_save()?;
            self.check_current(written)?;
            let through = Some(written.through());
            let owed = self.take_checksum(&mut writer, written, reserved, false, through)?;
            // what was given up before is being written again
            locked(&self.blocks.news).saved(written.block, written.file);
            self.blocks.set(written, Content::Patched(owed));
        }
        let mut writer = self.saver.writer()?;
        // another program's FILE may be shown by now
        self.check_current(written)?;
        self.put(&mut writer, written, write)
    }

    /// Has `write` put bytes into a raw block; its checksum is "not verified".
    pub(super) fn put(
        &self,
        writer: &mut Writer,
        written: &WrittenFile,
        write: impl FnOnce(&mut Put<'_>) -> Result<(), Library>,
    ) -> Result<()> {
        let _writing = self.saver.writing();
        let put = writer.patch(written.block, write);
        // views may have decoded a chunk of an array while it was being written
        self.state().snapshot.forget_chunks();
        if let Some(left) = writer.left() {
            self.state().note_left(left);
            written.note_patch(left.modified());
        }
        // to give the other files a new inode number at each write would cost a lookup a write: it is done when one of them was opened
        if written.take_opened() {
            // who opens one of the block's other files, or an array that has it as a chunk, sees what was written from now on
            self.show_patched(written, Some(written.through()));
        }
        Ok(put.inspect_err(|error| self.patch_failed(writer, error))?)
    }

    /// Sets the checksum of a raw block to "not verified", before bytes of it, or of the `whole` block, are written. From then on its other
    /// files are others than they were, and nothing is read of the block by an earlier state. `through`: the file that the kernel has the
    /// bytes of.
    pub(super) fn take_checksum(
        &self,
        writer: &mut Writer,
        written: &WrittenFile,
        reserved: &Range<u64>,
        whole: bool,
        through: Option<Through>,
    ) -> Result<Owed> {
        let (n, state) = (written.block, self.state());
        let header = state.snapshot.layout().blocks.get(n);
        let header = header.ok_or(Error::NotFound)?;
        let owed = Owed {
            md5: header.checksum,
            // of a whole block, no old byte stays
            // to verify the old checksum would read all of a block whose bytes are about to go
            state: if whole && header.has_checksum() {
                ChecksumState::Used
            } else {
                state.snapshot.verify_checksum(n, &mut |_| {})?
            },
        };
        // before the first byte changes: a reader of an earlier state must not get new bytes under an old number
        self.show_patched(written, through);
        let _writing = self.saver.writing();
        match writer.begin_patch(n, reserved) {
            Ok(begun) => {
                let what = format!("block {n} not verified while it is written");
                let unfinished = self.show_saved(writer, begun, &what, &[], None, None, None);
                unfinished.map_or(Ok(owed), Err)
            }
            Err(error) => {
                self.failed(writer, &error);
                Err(error.into())
            }
        }
    }

    /// Gives the other files of a block that is being patched another version; nothing is read of it by an earlier state from then on. The
    /// caller has the writer.
    fn show_patched(&self, written: &WrittenFile, through: Option<Through>) {
        let state = self.state();
        self.show_changed_block(BlockChange {
            block: written.block,
            through,
            at: written.patched().or(state.time(written.file)),
        });
        self.earlier.seal(state.stat.id);
    }

    /// Makes what was written into a raw block durable, and puts its checksum.
    pub(super) fn put_checksum(
        &self,
        writer: &mut Writer,
        written: &WrittenFile,
        owed: &Owed,
        through: Option<Through>,
    ) -> Result<()> {
        let (n, state) = (written.block, self.state());
        let _writing = self.saver.writing();
        // the data are durable before the checksum that vouches for them
        let ended = writer.sync_patch().and_then(|()| {
            let (md5, known) = owed.now(&state, n)?;
            Ok((writer.end_patch(n, md5)?, known))
        });
        let (ended, known) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.failed(writer, &error);
                return Err(error.into());
            }
        };
        let at = written.patched();
        let change = Some(BlockChange {
            block: n,
            through,
            at,
        });
        let known = known.map(|known| (n, known));
        let what = format!("block {n} saved");
        let unfinished = self.show_saved(writer, ended, &what, &[], change, known, None);
        unfinished.map_or(Ok(()), Err)
    }

    /// Checks that the block of a file is still the one that was written to.
    fn check_block(&self, written: &WrittenFile) -> Result<()> {
        if written.has_block_in(&self.state()) {
            return Ok(());
        }
        self.check_current(written)
            .and_then(|()| stale("another program has changed the file"))
    }

    /// The writer of FILE, once no other thread saves, if FILE still has the block that was written to.
    pub(super) fn begin_saving(&self, written: &WrittenFile) -> Result<Saving<'_>> {
        let saving = self.begin_save()?;
        self.check_block(written)?;
        Ok(saving)
    }

    /// Takes in that bytes could not be written into a raw block.
    fn patch_failed(&self, writer: &mut Writer, error: &Library) {
        self.saver.note(writer);
        if let Library::Stale { .. } = error {
            writer.distrust();
            self.refresh_soon();
        }
    }

    /// Puts the checksum of a raw block into which bytes were written.
    pub(super) fn end_patch(&self, written: &WrittenFile, owed: &Owed) -> Result<()> {
        let (mut writer, _) = self.begin_saving(written)?;
        let through = Some(written.through());
        let done = self.put_checksum(&mut writer, written, owed, through);
        if is_saved(&done) {
            self.blocks.set(written, Content::Saved);
        }
        done
    }

    /// Makes what was written into a raw block durable; its checksum stays "not verified".
    pub(super) fn sync_patch(&self, written: &WrittenFile) -> Result<()> {
        let (mut writer, _) = self.begin_saving(written)?;
        let synced = writer.sync_patch();
        Ok(synced.inspect_err(|error| self.patch_failed(&mut writer, error))?)
    }

    /// Begins to keep what is written into a block until it is saved.
    fn begin_edit(&self, written: &WrittenFile) -> Result<Arc<Overlay>> {
        if let Content::Patched(owed) = written.content() {
            self.end_patch(written, &owed)?;
        }
        // with the writer's lock no save moves the bytes below the edits before the table has these
        let (_writer, state) = self.begin_save()?;
        self.check_current(written)?;
        check_encodable(&state.snapshot, written.block)?;
        // only bytes that are written take memory; all others are read from the block when they are needed
        let block = self.blocks.over(state.snapshot.block(written.block)?);
        self.blocks
            .set(written, Content::Edited(Arc::clone(&block)));
        Ok(block)
    }

    /// Empties a file: what is written from now on is all of it. Until something is, it is not saved.
    pub(super) fn empty(&self, written: &WrittenFile) -> Result<()> {
        let _turn = written.turn();
        self.empty_held(written)
    }

    /// [`Vfs::empty`] for a caller that has the turn of the file.
    fn empty_held(&self, written: &WrittenFile) -> Result<()> {
        if let Content::Patched(owed) = written.content() {
            self.end_patch(written, &owed)?;
        }
        let nothing = Content::Emptied(self.blocks.nothing());
        self.blocks.set(written, nothing);
        Ok(())
    }

    /// Changes the size of a block or array. That of an array follows from its shape, unless it is written from its beginning.
    pub(super) fn resize_data(
        &self,
        node: Node,
        open: Option<&DataHandle>,
        size: u64,
    ) -> Result<()> {
        match (node, open) {
            (_, Some(open)) => self.resize_open(open, size),
            (Node::Block(n), None) => match self.resize_by_path(index(n), size) {
                // arrays need its bytes, but what follows may be these
                Err(Error::Library(Library::Rejected { .. })) if size == 0 => {
                    self.empty_by_name(node)
                }
                resized => resized,
            },
            (array, None) if size == 0 && self.size(&self.state(), array)? != 0 => {
                self.empty_by_name(array)
            }
            (array, None) => self.check_size(array, size),
        }
    }

    /// Empties a file by its name, as a file system that stands on this one does for `O_TRUNC`, before it opens the file or behind that. If
    /// nobody has it open in time, it keeps its bytes, as a file that open(2) has emptied and nobody has written to.
    fn empty_by_name(&self, node: Node) -> Result<()> {
        let state = self.state();
        let truncate = true;
        let open = self.open_data(&state, node, Access { truncate, ..WRITE })?;
        let written = open.writes()?;
        if !self.blocks.leave_to_others(written) {
            self.blocks.note_emptied(Arc::clone(written));
        }
        Ok(())
    }

    /// Ends what was emptied by name and was not opened in time.
    pub(super) fn end_emptied(&self) {
        for written in self.blocks.take_emptied(None) {
            if let Err(error) = self.close_written(&written) {
                let path = self.path_of(written.file);
                warn!("{}: {path}: {error}", self.saver.path.display());
            }
        }
    }

    fn resize_open(&self, open: &DataHandle, size: u64) -> Result<()> {
        let written = open.writes()?;
        self.refresh();
        let _turn = written.turn();
        self.check_known(open, written)?;
        self.resize_held(written, size)
    }

    /// Changes the size of a file for a caller that has its turn.
    fn resize_held(&self, written: &WrittenFile, size: u64) -> Result<()> {
        match (written.content(), written.file) {
            (Content::Emptied(_), file) if size == 0 => {
                self.empty_held(written)?;
                // unlike O_TRUNC alone, this asks for no bytes
                if let Node::Block(_) = file {
                    written.save_if_empty();
                }
            }
            (Content::Emptied(bytes), _) | (Content::Edited(bytes), Node::Block(_)) => {
                bytes.resize(size);
            }
            // ftruncate(2) to the present size changes nothing, and must not encode the block again
            (_, Node::Block(_)) => {
                if self.size(&self.state(), written.file)? != size {
                    self.begin_edit(written)?.resize(size);
                }
            }
            (_, array) if size == 0 && self.size(&self.state(), array)? != 0 => {
                self.empty_held(written)?;
            }
            (_, array) => self.check_size(array, size)?,
        }
        written.note_write(&Ok(()));
        Ok(())
    }

    /// Changes the size of a block without a handle, and saves it: no close follows. If it can't be saved, the block is as it was, but for
    /// what is cut off of bytes that are not saved yet.
    fn resize_by_path(&self, block: usize, size: u64) -> Result<()> {
        let node = Node::Block(u32::try_from(block).map_err(|_| Error::NotFound)?);
        let state = self.state();
        let before = self.size(&state, node)?;
        let open = self.open_data(&state, node, WRITE)?;
        let written = open.writes()?;
        let turn = written.turn();
        let content = written.content();
        let is_there = block < state.snapshot.layout().blocks.len();
        let checked = is_there.then(|| Self::check_resize(&state.snapshot, block, size));
        let resized = checked.unwrap_or(Ok(()));
        let resized = resized.and_then(|()| self.resize_held(written, size));
        let saved = resized.and_then(|()| self.save_held(written, true));
        match (&saved, content) {
            (Err(_), Content::Saved | Content::Patched(_)) => {
                if let Content::Edited(_) = written.content() {
                    self.blocks.set(written, Content::Saved);
                }
            }
            // what a shorter size has cut off is gone; a longer one is taken back
            (Err(_), Content::Edited(bytes) | Content::Emptied(bytes)) if size > before => {
                bytes.resize(before);
            }
            _ => {}
        }
        drop(turn);
        saved.and(self.close_data(&open))
    }

    /// Makes a block at least so long. An array must be so long already, unless it is written from its beginning.
    pub(super) fn extend_data(&self, open: &DataHandle, end: u64) -> Result<()> {
        let len = self.size(&self.state(), open.node)?;
        if end <= len {
            return Ok(());
        }
        self.resize_open(open, end)
    }

    /// Checks that the size of an array is this one.
    fn check_size(&self, array: Node, size: u64) -> Result<()> {
        if self.size(&self.state(), array)? == size {
            return Ok(());
        }
        Err(fixed_size())
    }

    /// Saves what was written, at `close` or `fsync`. Only a close puts the checksum of a block that was patched.
    pub(super) fn save_data(&self, open: &DataHandle, closing: bool) -> Result<()> {
        let Ok(written) = open.writes() else {
            return Ok(());
        };
        // asked before the save, which may give the file another form
        let is_known = open.form() == written.form();
        let saved = self.noted(open.node, self.save_written(written, closing));
        if is_known {
            // also if the save has made it another file
            open.renew(written.form());
        }
        saved
    }

    /// Saves what was written through a file; `ends`: also the checksum of a block that was patched.
    fn save_written(&self, written: &WrittenFile, ends: bool) -> Result<()> {
        let _turn = written.turn();
        self.save_held(written, ends)
    }

    /// [`Vfs::save_written`] for a caller that has the turn of the file.
    fn save_held(&self, written: &WrittenFile, ends: bool) -> Result<()> {
        let saved = match written.content() {
            Content::Saved => Ok(()),
            Content::Patched(owed) if ends => self.end_patch(written, &owed),
            Content::Patched(_) => self.sync_patch(written),
            Content::Edited(block) => self.save_edited(written, &block),
            Content::Emptied(bytes) => self.save_emptied(written, bytes),
        };
        saved.inspect_err(|why| written.refuse(why))
    }

    /// Ends a handle. The last one of a file saves what a map wrote, and gives up what can't be saved.
    pub(super) fn close_data(&self, open: &DataHandle) -> Result<()> {
        open.writes()
            .map_or(Ok(()), |written| self.close_written(written))
    }

    fn close_written(&self, written: &WrittenFile) -> Result<()> {
        if self.blocks.leave_to_others(written) {
            return Ok(());
        }
        // what was refused is not tried again: its writer was told, and takes it for lost
        let refused = written.refusal().map(Err);
        let saved = refused.unwrap_or_else(|| {
            let saved = self.save_written(written, true);
            self.noted(written.file, saved)
        });
        // the last descriptor is gone: nobody is left who could try again
        if self.blocks.remove_writer(written)
            && written.is_unsaved()
            && let Err(why) = &saved
        {
            self.note_loss(written.block, written.file, why, written.fate());
            let _writer = self.saver.writer();
            if written.is_of(&self.state()) {
                // the kernel has what was written
                self.show_changed_block(BlockChange {
                    block: written.block,
                    through: None,
                    at: written.patched(),
                });
            }
        }
        saved
    }
}

impl Owed {
    /// The checksum of a raw block as it is now, and what is known of it: none if it had none. One that did not match before is kept, unless
    /// it matches now: a new one would vouch for a block that is damaged.
    fn now(&self, state: &State, n: usize) -> Result<([u8; 16], Option<ChecksumState>), Library> {
        if self.state == ChecksumState::Absent {
            return Ok((self.md5, None));
        }
        let sum = md5(&*state.snapshot.stored(n)?, &mut |_| {})?;
        Ok(match self.state {
            ChecksumState::Wrong if sum != self.md5 => (self.md5, Some(ChecksumState::Wrong)),
            _ => (sum, Some(ChecksumState::Used)),
        })
    }
}

/// The error of a write to a file that is another one by now.
fn stale(why: &str) -> Result<()> {
    let why = format!("{why}; open it again to write to it");
    Err(Library::Stale { why }.into())
}

/// Why an array can't have another size.
pub(super) fn fixed_size() -> Error {
    Error::NotPermitted("an array has the size of its shape: change that in tree.yaml")
}

/// Whether bytes of a block are written where FILE has them.
pub(super) fn is_patched(state: &State, block: usize) -> bool {
    let header = state.snapshot.layout().blocks.get(block);
    header.is_some_and(|header| header.compression == [0; 4])
}

#[cfg(test)]
mod tests;
