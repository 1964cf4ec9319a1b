//! Writing into blocks and arrays: bytes of a raw block go to FILE as they come, all others are kept until a close or sync.
//!
//! Who changes what was written holds [`WrittenFile::turn`]. FILE and its state are used with the writer's lock: no save of
//! something else moves blocks meanwhile, and no other program's FILE is shown.

mod import;

use std::ops::Range;
use std::sync::Arc;

use log::warn;

pub(super) use self::import::import_file;
use self::import::{ArrayFile, check_resize};
use super::attr::WRITE;
use super::blocks::{Content, Sum, WrittenFile};
use super::data::DataHandle;
use super::node::Node;
use super::saves::{Saves, Saving, is_saved};
use super::version::{BlockChange, Through};
use super::{Access, Error, Result, index, locked};
use crate::error::Error as Library;
use crate::save::{Put, Writer};
use crate::source::{Overlay, Source, len_u64};

impl DataHandle {
    /// Writes into a block or array, at the end of it if no offset is given, perhaps from a map.
    pub(super) fn write(
        &self,
        saves: &Saves,
        offset: Option<u64>,
        data: &[u8],
        mapped: bool,
    ) -> Result<()> {
        let written = self.writes()?;
        look(saves, true);
        let _turn = written.turn();
        self.check_known(saves, written)?;
        let done = match written.content() {
            Content::Emptied(bytes) => {
                let at = offset.unwrap_or_else(|| bytes.len());
                bytes.write(at, data).map_err(Error::from)
            }
            _ => match written.file {
                Node::Block(_) => written.write_block(saves, offset, data),
                _ => written.write_array(saves, offset, data),
            },
        };
        if let Content::Edited(_) | Content::Emptied(_) = written.content() {
            // as `put` does of bytes that go into FILE
            saves.shown.now().snapshot.forget_gathered();
        }
        written.note_write(&done, mapped);
        done
    }

    /// Checks that the file is the one that a handle has opened: its program writes a part of the bytes, and relies on the rest, or on where
    /// it is.
    fn check_known(&self, saves: &Saves, written: &WrittenFile) -> Result<()> {
        written.check_current(saves)?;
        if self.form() == written.form() {
            return Ok(());
        }
        Err(stale("it has been replaced since it was opened"))
    }

    fn resize(&self, saves: &Saves, size: u64) -> Result<()> {
        let written = self.writes()?;
        look(saves, true);
        let _turn = written.turn();
        self.check_known(saves, written)?;
        written.resize(saves, size)
    }

    /// Makes a block at least so long. An array must be so long already, unless it is written from its beginning.
    pub(super) fn extend(&self, saves: &Saves, end: u64) -> Result<()> {
        let len = saves.blocks.size(&saves.shown.now(), self.node)?;
        if end <= len {
            return Ok(());
        }
        self.resize(saves, end)
    }

    /// Saves what was written, at a sync or as a descriptor `closes`.
    pub(super) fn save(&self, saves: &Saves, closes: bool) -> Result<()> {
        let Ok(written) = self.writes() else {
            return Ok(());
        };
        let turn = written.turn();
        // asked before the save, which may give the file another form; but in its turn, as another descriptor may be saving one now
        let is_known = self.form() == written.form();
        let done = written.save(saves, closes);
        let form = written.form();
        drop(turn);
        let done = saves.noted(self.node, done);
        if is_known {
            // also if the save has made it another file
            self.renew(form);
        }
        done
    }

    /// Ends a handle. The last one of a file saves what a map wrote, and gives up what can't be saved.
    pub(super) fn close(&self, saves: &Saves) -> Result<()> {
        self.writes().map_or(Ok(()), |written| written.close(saves))
    }
}

impl WrittenFile {
    /// Checks that the file is still the one that is written to.
    pub(super) fn check_current(&self, saves: &Saves) -> Result<()> {
        if self.is_of(&saves.shown.now()) {
            return Ok(());
        }
        Err(stale(CHANGED))
    }

    /// Writes into a block that was not emptied.
    fn write_block(&self, saves: &Saves, offset: Option<u64>, data: &[u8]) -> Result<()> {
        if let Content::Edited(block) = self.content() {
            return Ok(block.write(offset.unwrap_or_else(|| block.len()), data)?);
        }
        let state = saves.shown.now();
        let len = state.snapshot.block_len(self.block);
        let len = len.ok_or(Error::NotFound)?;
        let at = offset.unwrap_or(len);
        let end = at.checked_add(len_u64(data.len()));
        let end = end.ok_or(Error::TooBig("beyond 2^64"))?;
        // bytes that make the block longer need its header changed, and so a save of the whole
        if state.is_raw(self.block) && end <= len {
            return self.patch(saves, &(at..end), |put| put(at, data));
        }
        Ok(self.begin_edit(saves)?.write(at, data)?)
    }

    /// Writes into an array that was not emptied: its elements, as it has the size of its shape.
    fn write_array(&self, saves: &Saves, offset: Option<u64>, data: &[u8]) -> Result<()> {
        let state = saves.shown.now();
        let file = ArrayFile::of(&state, self.file)?;
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
        if let Content::Edited(block) = self.content() {
            let put = &mut |at, run: &[u8]| block.write(at, run);
            return Ok(file.put(block.len(), at, data, put)?);
        }
        let len = state.snapshot.block_len(self.block);
        let len = len.ok_or(Error::NotFound)?;
        // nothing is begun for an array that can't be written
        file.put(len, at, &[], &mut |_, _| Ok(()))?;
        if state.is_raw(self.block) {
            return self.patch(saves, &(0..0), |put| file.put(len, at, data, put));
        }
        let block = self.begin_edit(saves)?;
        let put = &mut |at, run: &[u8]| block.write(at, run);
        Ok(file.put(block.len(), at, data, put)?)
    }

    /// Has `write` put bytes into a raw block, where FILE has them.
    fn patch(
        &self,
        saves: &Saves,
        reserved: &Range<u64>,
        write: impl FnOnce(&mut Put<'_>) -> Result<(), Library>,
    ) -> Result<()> {
        if let Content::Saved = self.content() {
            // this may take as long as it takes to read the block, so it is done before other saves have to wait
            let snapshot = Arc::clone(&saves.shown.now().snapshot);
            snapshot.verify_checksum(self.block, &mut |_| {})?;
            // no other save may move the block between the check and the change of its checksum
            let mut saving = self.begin(saves)?;
            self.check_current(saves)?;
            let sum = self.take_checksum(&mut saving, reserved, false)?;
            // what was given up before is being written again
            locked(&saves.news).saved(self.block, Some(self.file));
            saves.blocks.set(self, Content::Patched(sum));
            // before the first byte changes: a reader of an earlier state must not get new bytes under an old number
            self.show_patched(saves, saving.through);
        }
        let mut writer = saves.writer()?;
        // another program's FILE may be shown by now
        self.check_current(saves)?;
        self.put(saves, &mut writer, write)
    }

    /// Has `write` put bytes into a raw block; its checksum is "not verified".
    pub(super) fn put(
        &self,
        saves: &Saves,
        writer: &mut Writer,
        write: impl FnOnce(&mut Put<'_>) -> Result<(), Library>,
    ) -> Result<()> {
        let _writing = saves.writing();
        // Nothing is read of the block by an earlier state from now on, also not by one from between two writes. A save may have put another
        // file in the place of FILE since: the bytes that are written now are not in the one before.
        let now = saves.shown.now();
        saves.seal_all(|state| {
            state.stat.id == now.stat.id || state.versions.elsewhere() == now.versions.elsewhere()
        });
        let put = writer.patch(self.block, write);
        // readers may have decoded a chunk, or gathered rows, of an array while it was being written
        saves.shown.now().snapshot.forget_gathered();
        if let Some(left) = writer.left() {
            saves.shown.now().note_left(left);
            self.note_patch(left.modified());
        }
        Ok(put.inspect_err(|error| saves.failed(writer, error))?)
    }

    /// Sets the checksum of a raw block to "not verified", before bytes of it, or of the `whole` block, are written.
    pub(super) fn take_checksum(
        &self,
        saving: &mut Saving<'_>,
        reserved: &Range<u64>,
        whole: bool,
    ) -> Result<Sum> {
        let (saves, writer) = (saving.saves, &mut saving.writer);
        let (n, state) = (self.block, saves.shown.now());
        let sum = Sum::of_patched(&state.snapshot, n, whole)?;
        let _writing = saves.writing();
        match writer.begin_patch(n, reserved) {
            Ok(begun) => {
                let what = format!("block {n} not verified while it is written");
                saves.show_saved(begun, &what, &[], None, None, None)?;
                Ok(sum)
            }
            Err(error) => {
                saves.failed(writer, &error);
                Err(error.into())
            }
        }
    }

    /// Gives the other files of a block that is being patched another version. The caller has the writer.
    pub(super) fn show_patched(&self, saves: &Saves, through: Option<Through>) {
        let state = saves.shown.now();
        saves.show_changed_block(BlockChange {
            block: self.block,
            through,
            at: self.patched().or(state.time(self.file)),
        });
    }

    /// Makes what was written into a raw block durable, and puts its checksum.
    pub(super) fn put_checksum(&self, saving: &mut Saving<'_>, sum: Sum) -> Result<()> {
        let (saves, writer) = (saving.saves, &mut saving.writer);
        let (n, state) = (self.block, saves.shown.now());
        let _writing = saves.writing();
        // the data are durable before the checksum that vouches for them
        let ended = writer.sync_patch().and_then(|()| {
            let stored = state.snapshot.stored(n)?;
            let sum = sum.now(&*stored)?;
            Ok((writer.end_patch(n, sum.over(&*stored)?)?, sum))
        });
        let (ended, sum) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                saves.failed(writer, &error);
                return Err(error.into());
            }
        };
        let change = Some(BlockChange {
            block: n,
            through: saving.through,
            at: self.patched(),
        });
        let what = format!("block {n} saved");
        saves.show_saved(ended, &what, &[], change, sum.known(n), None)
    }

    /// The writer of FILE, once no other thread saves, if FILE still has the block that was written to; the change comes through this file.
    ///
    /// With `-o verify`, a block with a wrong checksum is not written: all writes come through here before the first byte changes.
    pub(super) fn begin<'a>(&self, saves: &'a Saves) -> Result<Saving<'a>> {
        // With -o verify this reads the block, without the writer's lock: only a save that moves bytes has to wait for it.
        let reading = saves.reading();
        let snapshot = Arc::clone(&saves.shown.now().snapshot);
        snapshot.check_sum(self.block)?;
        drop(reading);
        let saving = saves.begin()?;
        if !self.has_block_in(&saving.state) {
            return Err(stale(CHANGED));
        }
        let through = Some(self.through());
        Ok(Saving { through, ..saving })
    }

    /// Puts the checksum of a raw block, if bytes were written into it.
    pub(super) fn end_patch(&self, saves: &Saves) -> Result<()> {
        let Content::Patched(sum) = self.content() else {
            return Ok(());
        };
        let mut saving = self.begin(saves)?;
        let done = self.put_checksum(&mut saving, sum);
        if is_saved(&done) {
            saves.blocks.set(self, Content::Saved);
        }
        done
    }

    /// Makes what was written into a raw block durable; its checksum stays "not verified".
    pub(super) fn sync_patch(&self, saves: &Saves) -> Result<()> {
        let mut saving = self.begin(saves)?;
        let synced = saving.writer.sync_patch();
        Ok(synced.inspect_err(|error| saves.failed(&mut saving.writer, error))?)
    }

    /// Begins to keep what is written into a block until it is saved.
    fn begin_edit(&self, saves: &Saves) -> Result<Arc<Overlay>> {
        self.end_patch(saves)?;
        // with the writer's lock no save moves the bytes below the edits before the table has these
        let saving = self.begin(saves)?;
        self.check_current(saves)?;
        // only bytes that are written take memory; all others are read from the block when they are needed
        let below = saving.state.snapshot.block(self.block)?;
        let block = saves.blocks.over(below);
        saves.blocks.set(self, Content::Edited(Arc::clone(&block)));
        Ok(block)
    }

    /// Empties a file: what is written from now on is all of it. Until something is, it is not saved. The caller has its turn.
    pub(super) fn empty(&self, saves: &Saves) -> Result<()> {
        self.end_patch(saves)?;
        let nothing = Content::Emptied(saves.blocks.nothing());
        saves.blocks.set(self, nothing);
        Ok(())
    }

    /// Changes the size of a file for a caller that has its turn.
    fn resize(&self, saves: &Saves, size: u64) -> Result<()> {
        match (self.content(), self.file) {
            (Content::Emptied(_), file) if size == 0 => {
                self.empty(saves)?;
                // unlike O_TRUNC alone, this asks for no bytes
                if let Node::Block(_) = file {
                    self.save_if_empty();
                }
            }
            (Content::Emptied(bytes), _) | (Content::Edited(bytes), Node::Block(_)) => {
                bytes.resize(size);
            }
            (_, block @ Node::Block(_))
                if saves.blocks.size(&saves.shown.now(), block)? != size =>
            {
                self.begin_edit(saves)?.resize(size);
            }
            (_, array @ Node::Array(..)) if empties(saves, array, size)? => self.empty(saves)?,
            // ftruncate(2) to the present size changes nothing, and must not encode the block again
            _ => {}
        }
        self.note_write(&Ok(()), false);
        Ok(())
    }

    /// Saves what was written through a file; if it `closes`, also the checksum of a block that was patched. The caller has its turn.
    fn save(&self, saves: &Saves, closes: bool) -> Result<()> {
        let done = match self.content() {
            Content::Saved => Ok(()),
            Content::Patched(_) if closes => self.end_patch(saves),
            Content::Patched(_) => self.sync_patch(saves),
            Content::Edited(block) => self.save_edited(saves, &block),
            Content::Emptied(bytes) => self.save_emptied(saves, bytes),
        };
        done.inspect_err(|why| self.refuse(why))
    }

    fn close(&self, saves: &Saves) -> Result<()> {
        if !saves.blocks.leave(self, false) {
            return Ok(());
        }
        // what was refused is not tried again: its writer was told, and takes it for lost
        let refused = self.refusal().map(Err);
        let done = refused.unwrap_or_else(|| {
            let turn = self.turn();
            let done = self.save(saves, true);
            drop(turn);
            saves.noted(self.file, done)
        });
        // the last descriptor is gone: nobody is left who could try again
        if !saves.blocks.leave(self, true) {
            return done;
        }
        if let (Some(fate), Err(why)) = (saves.fate_of(self), &done) {
            saves.note_loss(self.block, self.file, why, fate);
            let _writer = saves.writer();
            if self.is_of(&saves.shown.now()) {
                let is_saved = false;
                saves.show_changed_block(BlockChange {
                    block: self.block,
                    through: Some(Through {
                        is_saved,
                        ..self.through()
                    }),
                    at: self.patched(),
                });
            }
        }
        // last of all: a program that opens the file now would else write to the one that has just been replaced
        saves.blocks.free(self);
        done
    }
}

/// Changes the size of a block or array. That of an array follows from its shape, unless it is written from its beginning.
pub(super) fn resize(
    saves: &Saves,
    node: Node,
    open: Option<&DataHandle>,
    size: u64,
) -> Result<()> {
    match (node, open) {
        (_, Some(open)) => open.resize(saves, size),
        (Node::Block(n), None) => match resize_by_path(saves, index(n), size) {
            // arrays need its bytes, but what follows may be these
            Err(Error::Library(Library::Rejected { .. })) if size == 0 => {
                empty_by_name(saves, node)
            }
            resized => resized,
        },
        (array, None) if empties(saves, array, size)? => empty_by_name(saves, array),
        _ => Ok(()),
    }
}

/// Empties a file by its name, as a file system that stands on this one does for `O_TRUNC`, before it opens the file or behind that. If
/// nobody has it open in time, it keeps its bytes, as a file that open(2) has emptied and nobody has written to.
fn empty_by_name(saves: &Saves, node: Node) -> Result<()> {
    let state = saves.shown.now();
    let truncate = true;
    let open = DataHandle::open(saves, &state, node, Access { truncate, ..WRITE })?;
    let written = open.writes()?;
    if saves.blocks.leave(written, false) {
        saves.blocks.note_emptied(Arc::clone(written));
    }
    Ok(())
}

/// Ends what was emptied by name and was not opened in time, and looks whether another program has changed FILE; `rarely`: only if the
/// last look is a while ago.
pub(super) fn look(saves: &Saves, rarely: bool) {
    for written in saves.blocks.take_emptied(None) {
        if let Err(error) = written.close(saves) {
            let path = saves.shown.now().path(written.file);
            warn!("{}: {path}: {error}", saves.path.display());
        }
    }
    saves.look(rarely);
}

/// Changes the size of a block without a handle, and saves it: no close follows. If it can't be saved, the block is as it was, but for
/// what is cut off of bytes that are not saved yet.
fn resize_by_path(saves: &Saves, block: usize, size: u64) -> Result<()> {
    let node = Node::Block(u32::try_from(block).map_err(|_| Error::NotFound)?);
    let state = saves.shown.now();
    let before = saves.blocks.size(&state, node)?;
    let open = DataHandle::open(saves, &state, node, WRITE)?;
    let written = open.writes()?;
    let turn = written.turn();
    let content = written.content();
    let is_there = block < state.snapshot.layout().blocks.len();
    let checked = is_there.then(|| check_resize(&state.snapshot, block, size));
    let resized = checked.unwrap_or(Ok(()));
    let resized = resized.and_then(|()| written.resize(saves, size));
    let done = resized.and_then(|()| written.save(saves, true));
    match (&done, content) {
        (Err(_), Content::Saved | Content::Patched(_)) => {
            if let Content::Edited(_) = written.content() {
                saves.blocks.set(written, Content::Saved);
            }
        }
        // what a shorter size has cut off is gone; a longer one is taken back
        (Err(_), Content::Edited(bytes) | Content::Emptied(bytes)) if size > before => {
            bytes.resize(before);
        }
        _ => {}
    }
    drop(turn);
    done.and(open.close(saves))
}

/// Whether a size empties an array. Else it is the size that the array has.
fn empties(saves: &Saves, array: Node, size: u64) -> Result<bool> {
    let now = saves.blocks.size(&saves.shown.now(), array)?;
    if now != size && size != 0 {
        return Err(fixed_size());
    }
    Ok(now != size)
}

/// Why nothing is written to a file that is another one by now.
const CHANGED: &str =
    "it has been changed since it was opened, by another program or another file of the mount";

/// The error of a write to a file that is another one by now.
fn stale(why: &str) -> Error {
    let why = format!("{why}; open it again to write to it");
    Library::Stale { why }.into()
}

/// Why an array can't have another size.
pub(super) fn fixed_size() -> Error {
    Error::NotPermitted("an array has the size of its shape: change that in tree.yaml")
}

#[cfg(test)]
mod tests;
