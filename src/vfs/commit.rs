//! Saves: from a text or an edited block to FILE, and to the snapshot that follows.
//!
//! One save at a time. A save checks first, then commits through [`Writer`], then shows the new snapshot, and only then returns.

mod sum;

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::sync::{Arc, MutexGuard};

use log::warn;

pub(super) use self::sum::Sum;
use super::attr::usable;
use super::data::block_of;
use super::node::Node;
use super::saved::{BlockChange, Saved};
use super::scratch::Unsaved;
use super::{Error, MAX_PREPARED, Result, State, Vfs, locked};
use crate::asdf::Snapshot;
use crate::asdf::check::check_written;
use crate::asdf::checksum::ChecksumState;
use crate::asdf::heal::WrittenText;
use crate::codec::{self, Choice, Edited};
use crate::error::{Error as Library, Place};
use crate::save::Writer;
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::source::{FileSource, Overlay, Source, unnamed_file};

/// How much of an edited block is copied at a time.
const CHUNK: usize = 1 << 20;

/// FILE, while one thread saves: its writer, and what it is.
pub(super) type Saving<'a> = (MutexGuard<'a, Writer>, Arc<State>);

impl Vfs {
    /// Saves a text, and runs `named` before another save can begin. A text that can't be saved is kept, and the error says why.
    pub(super) fn save_text(
        &self,
        unsaved: &Unsaved,
        named: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut name = Ok(());
        let saved = self.commit_text(unsaved, || name = named());
        self.keep_unless_saved(unsaved, &saved);
        saved.and(name)
    }

    /// Keeps a text that was not saved.
    pub(super) fn keep_unless_saved(&self, unsaved: &Unsaved, saved: &Result<()>) {
        match saved {
            Ok(()) | Err(Error::Unfinished(..)) => {}
            Err(error) => self.refuse_text(unsaved, error),
        }
    }

    /// Checks a text and makes it FILE's, with what YAML tools drop of it put back.
    pub(super) fn commit_text(&self, unsaved: &Unsaved, named: impl FnOnce()) -> Result<()> {
        if let Some(short) = &unsaved.short {
            return Err(short.clone().into());
        }
        let mut writer = self.saver.writer()?;
        self.catch_up(Some(&mut writer));
        // asked with the writer's lock: a save that this thread has waited for may have changed the answer
        let replaced = self.tree.to_replace(unsaved);
        let Some((committed, outdated)) = replaced else {
            return Ok(());
        };
        let written = WrittenText::new(&unsaved.text, &committed);
        let saved = Arc::clone(&written.text);
        self.saver.check_up_to_date()?;
        let done = if saved == committed {
            // nothing to write; but the save before may have left a name that a crash would take back
            writer.make_last()?;
            Saved::default()
        } else if outdated {
            let why = "the tree has been changed since this was opened".to_owned();
            return Err(Library::Stale { why }.into());
        } else {
            self.write_text(&mut writer, &written, !unsaved.becoming)?
        };
        let finished = done.finished();
        let gets_name = unsaved.becoming && finished.is_ok();
        self.tree.saved(unsaved, &saved, gets_name);
        if finished.is_ok() {
            named();
        }
        // a good save ends the refused text; the file beside FILE would only mislead
        if let Err(error) = writer.clear_rejected() {
            let file = self.saver.path.display();
            warn!(
                "{file}: the refused text that was kept is out of date, but can't be removed: {error}"
            );
        }
        finished
    }

    /// Checks a text that FILE does not have yet, and writes it. `may_be_cut`: whether it was written through a handle, so that its program
    /// may not be done.
    fn write_text(
        &self,
        writer: &mut Writer,
        written: &WrittenText,
        may_be_cut: bool,
    ) -> Result<Saved<'_>> {
        self.let_go_of_tree();
        let state = self.state();
        let snapshot = &state.snapshot;
        let checked = check_written(snapshot, written, self.options.validate, may_be_cut)?;
        let what = match written.put_back.as_str() {
            "" => "tree saved".to_owned(),
            put_back => format!("tree saved, {put_back} put back,"),
        };
        let text = Arc::clone(&written.text);
        // a large tree that no request has needed so far is not kept while FILE is written, nor after that
        let unasked = text.len() > MAX_PREPARED && snapshot.is_unread() && !state.is_named();
        let checked = Some(checked).filter(|_| !unasked);
        let done = self.commit(writer, &Edit::text(text), &what, None, None, checked)?;
        locked(&self.blocks.news).forget_refusals(None);
        Ok(done)
    }

    /// The writer of FILE, once no other thread saves, and the state of FILE then. A save takes the state only here: it may change while
    /// the save waits for the writer.
    pub(super) fn begin_save(&self) -> Result<Saving<'_>> {
        let mut writer = self.saver.writer()?;
        self.catch_up(Some(&mut writer));
        self.saver.check_up_to_date()?;
        Ok((writer, self.state()))
    }

    /// Checks that the disk has room for all bytes of a block, before any are encoded: a hole may be longer than the disk.
    pub(super) fn check_room_for(&self, n: usize, len: u64) -> Result<()> {
        let now = self.state().snapshot.block_len(n).unwrap_or(0);
        self.check_free(n, len.saturating_sub(now))
    }

    /// Checks that the disk has so many bytes left for block `n`, as far as this user may fill it.
    pub(super) fn check_free(&self, n: usize, growth: u64) -> Result<()> {
        let privileged = rustix::process::geteuid().is_root();
        let free = self.statfs()?.map_or(0, |disk| usable(&disk, privileged));
        if growth <= free {
            return Ok(());
        }
        let why = format!("block {n} would take {growth} bytes more, but the disk has {free} left");
        Err(Library::NoRoom { why, limit: false }.into())
    }

    /// Encodes an edited block. A codec that can encode parts encodes only those that the edit touched.
    pub(super) fn reencoded(
        &self,
        snapshot: &Snapshot,
        n: usize,
        block: &Overlay,
        sum: &Sum,
    ) -> Result<StoredBlock> {
        let header = snapshot.layout().blocks.get(n).ok_or(Error::NotFound)?;
        let codec = codec::codec(header.compression)?;
        let stored = snapshot.stored(n)?;
        let write = |out: &mut dyn Write| match snapshot.framing(n) {
            // a block whose checksum is wrong is decoded as a whole, which tells whether it can be
            Some(framing) if !matches!(sum, Sum::Is(_, ChecksumState::Wrong)) => codec.reencode(
                &Edited {
                    framing,
                    stored: &stored,
                    stored_len: header.data_size,
                    decoded: block,
                    touched: &block.touched(),
                },
                out,
            ),
            framing => codec.encode(framing, block, out),
        };
        let file = self.spooled(write)?;
        stored_as(file, header.compression, block, sum)
    }

    /// A temporary file of what `write` writes.
    fn spooled(&self, write: impl FnOnce(&mut dyn Write) -> Result<(), Library>) -> Result<File> {
        let fail = |error| Library::io("the temporary file of a block", error);
        let folder = self.saver.path.parent().unwrap_or(&self.saver.path);
        let mut out = BufWriter::with_capacity(CHUNK, unnamed_file(folder).map_err(fail)?);
        write(&mut out)?;
        out.flush().map_err(fail)?;
        let mut file = out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .map_err(fail)?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        Ok(file)
    }

    /// A block of these bytes under a compression code.
    fn encoded(
        &self,
        code: [u8; 4],
        framing: Option<&str>,
        decoded: Arc<dyn Source>,
        sum: &Sum,
    ) -> Result<StoredBlock> {
        if code == [0; 4] {
            return Ok(StoredBlock {
                checksum: sum.over(&*decoded)?,
                ..StoredBlock::raw(decoded)
            });
        }
        let codec = codec::codec(code)?;
        if !codec.writes(framing) {
            return Err(Error::NotSupported("this compression is only read"));
        }
        let file = self.spooled(|out| codec.encode(framing, &*decoded, out))?;
        stored_as(file, code, &*decoded, sum)
    }

    /// Other bytes for block `n`, in its compression.
    pub(super) fn stored_anew(
        &self,
        state: &State,
        n: usize,
        decoded: Arc<dyn Source>,
        sum: &Sum,
    ) -> Result<StoredBlock> {
        let header = state.snapshot.layout().blocks.get(n);
        let code = header.ok_or(Error::NotFound)?.compression;
        self.encoded(code, state.snapshot.framing(n), decoded, sum)
    }

    /// Encodes a block anew. No file of the mount may be writing it.
    pub(super) fn recompress(&self, node: Node, choice: Choice) -> Result<()> {
        let state = self.state();
        let n = block_of(&state, node).ok_or(Error::NotFound)?;
        if !is_another(&state, n, choice)? {
            return Ok(());
        }
        self.alone(&state, n, node, || self.encode_anew(n, choice))
    }

    /// Runs `change` while no file of the mount has a block open for writing.
    fn alone(
        &self,
        state: &State,
        block: usize,
        node: Node,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let added = self.blocks.add_writer(state, block, node, true);
        let written = added.map_err(|other| self.in_use(other))?;
        let done = change();
        self.blocks.remove_writer(&written);
        done
    }

    /// Encodes block `n` anew.
    fn encode_anew(&self, n: usize, choice: Choice) -> Result<()> {
        let (mut writer, state) = self.begin_save()?;
        if !is_another(&state, n, choice)? {
            return Ok(());
        }
        let header = state.snapshot.layout().blocks.get(n);
        let header = header.ok_or(Error::NotFound)?;
        let sum = match state.snapshot.verify_checksum(n, &mut |_| {})? {
            ChecksumState::Wrong => {
                let why = "the checksum does not match its data, which are kept as they are";
                return Err(Library::corrupt(Place::Block(n), why).into());
            }
            // the decoded bytes stay the same
            ChecksumState::Decoded if choice.code == [0; 4] => {
                Sum::Is(header.checksum, ChecksumState::Used)
            }
            ChecksumState::Decoded => Sum::Is(header.checksum, ChecksumState::Decoded),
            _ if header.has_checksum() => Sum::Stored,
            _ => Sum::None,
        };
        let decoded = state.snapshot.block(n)?;
        let mut stored = self.encoded(choice.code, choice.framing, decoded, &sum)?;
        stored.shrink = true;
        let edit = Edit::block(BlockEdit::Replace { n, stored });
        let what = format!("block {n} encoded as {choice}");
        let saved = self.commit(&mut writer, &edit, &what, None, sum.known(n), None)?;
        saved.finished()
    }

    /// Removes the last block, if no array uses it.
    pub(super) fn remove_last_block(&self, node: Node) -> Result<()> {
        let state = self.state();
        let n = block_of(&state, node).ok_or(Error::NotFound)?;
        self.alone(&state, n, node, || self.commit_removal(n))
    }

    fn commit_removal(&self, n: usize) -> Result<()> {
        let (mut writer, state) = self.begin_save()?;
        self.check_removable(&state, n)?;
        check_counted(&state.snapshot)?;
        let edit = Edit {
            text: Some(Arc::clone(state.snapshot.text())),
            blocks: vec![BlockEdit::RemoveLast],
        };
        let what = format!("block {n} removed");
        let change = BlockChange {
            block: n,
            through: None,
            at: None,
        };
        let saved = self.commit(&mut writer, &edit, &what, Some(change), None, None)?;
        saved.finished()?;
        locked(&self.blocks.news).removed(n);
        Ok(())
    }

    /// Shows the same state, in which a block has other bytes.
    pub(super) fn show_changed_block(&self, change: BlockChange) {
        let old = self.state();
        old.snapshot.forget_chunks();
        let stat = old.timed.then(|| old.left());
        let mut new = old.next(Arc::clone(&old.snapshot), stat);
        new.note_changed(change);
        self.show(new);
    }
}

/// Whether block `n` is not encoded like that yet, and may be.
fn is_another(state: &State, n: usize, choice: Choice) -> Result<bool> {
    let header = state.snapshot.layout().blocks.get(n);
    let header = header.ok_or(Error::NotFound)?;
    if Choice::of(header.compression, state.snapshot.framing(n)) == choice {
        return Ok(false);
    }
    if header.streamed() {
        return Err(Error::NotPermitted("a streamed block is never compressed"));
    }
    Ok(true)
}

/// Checks that every array keeps its block if the number of blocks changes.
pub(super) fn check_counted(snapshot: &Snapshot) -> Result<()> {
    let arrays = snapshot.arrays();
    match arrays.iter().find(|array| array.counts_from_the_end()) {
        None => Ok(()),
        Some(array) => Err(Error::Library(Library::Rejected {
            at: Place::Array(array.path()),
            why: "its source counts blocks from the end, and would be another one".to_owned(),
            advice: format!("write source: {} in tree.yaml first", array.source_text()),
        })),
    }
}

/// A block of the bytes in `file`, which are `decoded` compressed under that code.
fn stored_as(file: File, code: [u8; 4], decoded: &dyn Source, sum: &Sum) -> Result<StoredBlock> {
    let bytes: Arc<dyn Source> = Arc::new(FileSource::open(Arc::new(file))?);
    Ok(StoredBlock {
        checksum: sum.over(&*bytes)?,
        pieces: vec![Piece::New(bytes)],
        compression: code,
        data_size: decoded.len(),
        shrink: false,
    })
}

#[cfg(test)]
mod tests;
