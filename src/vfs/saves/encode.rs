//! Blocks as a save stores them: encoded, encoded anew, or removed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use super::{Saves, Saving};
use crate::asdf::Snapshot;
use crate::asdf::checksum::ChecksumState;
use crate::codec::{self, Choice, Edited};
use crate::error::{Error as Library, Place};
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::source::{FileSource, Overlay, Source, unnamed_file};
use crate::vfs::blocks::Sum;
use crate::vfs::node::Node;
use crate::vfs::scratch::MemberScratch;
use crate::vfs::version::BlockChange;
use crate::vfs::{Error, Result, State, block_number, index, locked};

/// How much of an edited block is copied at a time.
const CHUNK: usize = 1 << 20;

impl Saves {
    /// Checks that the disk has room for all bytes of a block, before any are encoded: a hole may be longer than the disk.
    pub(in crate::vfs) fn check_room_for(&self, n: usize, len: u64) -> Result<()> {
        let now = self.shown.now().snapshot.block_len(n).unwrap_or(0);
        self.check_free(n, len.saturating_sub(now))
    }

    /// Encodes an edited block. A codec that can encode parts encodes only those that the edit touched.
    pub(in crate::vfs) fn reencoded(
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
        let folder = self.path.parent().unwrap_or(&self.path);
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
    pub(in crate::vfs) fn encoded(
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

    /// Encodes block `n` anew. No file of the mount may be writing it.
    pub(in crate::vfs) fn recompress(&self, n: u32, choice: Choice) -> Result<()> {
        if !is_another(&self.shown.now(), index(n), choice)? {
            return Ok(());
        }
        self.alone(n, || self.encode_anew(index(n), choice))
    }

    /// Runs `change` while no file of the mount has block `n` open for writing.
    fn alone(&self, n: u32, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let state = self.shown.now();
        let added = self
            .blocks
            .add_writer(&state, index(n), Node::Block(n), true);
        let written = added.map_err(|other| state.in_use(other))?;
        let done = change();
        self.blocks.remove_writer(&written);
        done
    }

    fn encode_anew(&self, n: usize, choice: Choice) -> Result<()> {
        let Saving {
            mut writer, state, ..
        } = self.begin()?;
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
        self.commit(&mut writer, &edit, &what, None, sum.known(n), None)
    }

    /// Takes away the name of a block: that of the last one, which no array uses, with the block; that of another one for a while, as `mv`
    /// from another file system takes it before it makes the file.
    pub(in crate::vfs) fn remove_block(&self, scratch: &MemberScratch, name: &OsStr) -> Result<()> {
        let n = block_number(name).ok_or(Error::NotFound)?;
        let state = self.shown.now();
        if index(n) >= state.snapshot.layout().blocks.len() || is_removable(&state, index(n)) {
            return self.alone(n, || self.commit_removal(index(n)));
        }
        if let Some(written) = self.blocks.writer_of(&state, index(n)) {
            return Err(state.in_use(written.file));
        }
        // the block stays in FILE: its name comes back if no program makes it again
        scratch.hide(Node::Blocks, name)
    }

    /// Removes block `n`, if it is the last one, no array uses it, and none is being made behind it.
    fn commit_removal(&self, n: usize) -> Result<()> {
        let Saving {
            mut writer, state, ..
        } = self.begin()?;
        if self.blocks.any_behind(&state, n) {
            return Err(Error::Busy("a new block behind it is being written"));
        }
        if n >= state.snapshot.layout().blocks.len() {
            return Err(Error::NotFound);
        }
        if !is_removable(&state, n) {
            return Err(Error::Busy("arrays use this block by now"));
        }
        check_counted(&state.snapshot)?;
        let edit = Edit {
            text: Some(Arc::clone(state.snapshot.text())),
            blocks: vec![BlockEdit::RemoveLast],
        };
        let what = format!("block {n} removed");
        let change = BlockChange::new(n, None);
        self.commit(&mut writer, &edit, &what, Some(change), None, None)?;
        locked(&self.news).saved(n, None);
        Ok(())
    }
}

/// Whether block `n` is the last one, and no array uses it.
fn is_removable(state: &State, n: usize) -> bool {
    let snapshot = &state.snapshot;
    // none is unused if an array may name it that is not known
    n.saturating_add(1) == snapshot.layout().blocks.len() && snapshot.unused_blocks().contains(&n)
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
pub(in crate::vfs) fn check_counted(snapshot: &Snapshot) -> Result<()> {
    let arrays = snapshot.arrays();
    match arrays.iter().find(|array| array.counts_from_the_end()) {
        None => Ok(()),
        Some(array) => Err(Error::Library(Library::Rejected {
            at: Place::Array(array.path()),
            why: "its source counts blocks from the end, and would then name another block"
                .to_owned(),
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
