//! Saves: from a text or an edited block to FILE, and to the snapshot that follows.
//!
//! One save at a time. A save checks first, then commits through [`Writer`], then publishes the new snapshot, and only then
//! returns; the kernel is told what changed afterwards, from another thread.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::SystemTime;

use log::{info, warn};

use super::edit::Draft;
use super::info::Saves;
use super::node::Node;
use super::{Error, Invalidation, Result, State, Vfs, locked};
use crate::asdf::check::check_text;
use crate::asdf::checksum::{ChecksumState, md5};
use crate::asdf::header::BlockHeader;
use crate::asdf::{Array, Origin, Snapshot};
use crate::codec::{self, Edited, code_text};
use crate::error::{Error as Library, Place};
use crate::save::edit::{BlockEdit, Edit, Piece, Stored};
use crate::save::{Committed, Method, Writer};
use crate::source::{FileSource, Source, Window, len_u64};

/// How much of an edited block is copied at a time.
const CHUNK: usize = 1 << 20;

/// What happened to saves since the file was mounted.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When the last save was, and what it did.
    last: Option<(SystemTime, String)>,
    /// Why the text that was written last is not saved.
    refused: Option<String>,
}

impl History {
    /// What `info/status` says of them.
    pub(super) fn describe<'a>(&self, read_only: Option<&'a str>) -> Saves<'a> {
        let last = self.last.as_ref().map(|(when, what)| {
            let ago = when.elapsed().unwrap_or_default().as_secs();
            format!("{what}, {ago} s ago")
        });
        Saves {
            read_only,
            last,
            refused: self.refused.clone(),
        }
    }

    /// Why the text that was written last is not saved.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl Vfs {
    /// Checks a text and makes it FILE's.
    pub(super) fn save_text(&self, text: &Arc<Vec<u8>>) -> Result<()> {
        let mut writer = locked(self.writer()?);
        if *text != *locked(&self.root).committed() {
            check_text(&self.state().snapshot, text, self.options.validate)?;
            let committed = writer.save(&Edit::text(Arc::clone(text)))?;
            self.publish(committed, "tree saved")?;
        }
        locked(&self.root).saved(Arc::clone(text));
        locked(&self.history).refused = None;
        if let Err(error) = writer.clear_rejected() {
            warn!("the refused text that was kept is out of date, but can't be removed: {error}");
        }
        Ok(())
    }

    /// Keeps a text that could not be saved. `shown`: `tree.yaml` goes on showing it.
    pub(super) fn keep_refused(&self, text: &Arc<Vec<u8>>, error: &Error, shown: bool) {
        let mut why = format!("tree.yaml: {error}; not saved");
        if shown {
            locked(&self.root).refused(Arc::clone(text));
        }
        if let Ok(writer) = self.writer() {
            match locked(writer).spool_rejected(text) {
                Ok(path) => why = format!("{why}; the text is kept in {}", path.display()),
                Err(error) => warn!("the refused text can't be kept: {error}"),
            }
        }
        locked(&self.history).refused = Some(why);
    }

    /// Whether a refused text waits to be mended.
    #[must_use]
    pub fn has_refused_text(&self) -> bool {
        locked(&self.root).pending().is_some()
    }

    fn writer(&self) -> Result<&std::sync::Mutex<Writer>> {
        self.writer.as_ref().ok_or(Error::ReadOnly("this mount"))
    }

    /// Makes the snapshot of a save the one that counts, and has the kernel told what it changed.
    fn publish(&self, committed: Committed<Arc<File>>, what: &str) -> Result<()> {
        let old = self.state();
        if committed.method == Method::Nothing {
            return Ok(());
        }
        let written = committed.written;
        let how = if committed.method == Method::Replaced {
            "by replacing the file"
        } else {
            "in place"
        };
        let snapshot =
            old.snapshot
                .succeeded_by(committed.file, committed.layout, committed.text)?;
        let new = State::new(Arc::new(snapshot), &self.numbers)?;
        let changes = changes(&old, &new);
        *self
            .state
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(new);
        for change in changes {
            self.tell(change);
        }
        let what = format!("{what} {how}, {written} bytes written");
        info!("{what}");
        locked(&self.history).last = Some((SystemTime::now(), what));
        Ok(())
    }

    /// Saves the edits of a block.
    pub(super) fn commit_block(&self, draft: &Draft) -> Result<()> {
        let mut writer = locked(self.writer()?);
        let state = self.state();
        let n = draft.block;
        Self::check_resize(&state.snapshot, draft)?;
        let what = format!("block {n} saved");
        let Some(header) = state.snapshot.layout().blocks.get(n) else {
            let stored = raw(&draft.overlay, true)?;
            let edit = Edit {
                text: Some(Arc::clone(state.snapshot.text())),
                blocks: vec![BlockEdit::Append(stored)],
            };
            let committed = writer.save(&edit)?;
            return self.publish(committed, &format!("block {n} added"));
        };
        if header.compression != [0; 4] {
            let stored = self.reencoded(&state.snapshot, header, draft)?;
            let committed = writer.save(&Edit::block(BlockEdit::Replace { n, stored }))?;
            return self
                .publish(committed, &what)
                .inspect(|()| self.tell_block(&state, n));
        }
        if !header.streamed() && draft.overlay.keeps_length() {
            let with_checksum = header.has_checksum();
            let committed = write_in_place(&mut writer, n, draft, with_checksum)?;
            self.publish(committed, &what)?;
        } else {
            let with_checksum = header.has_checksum() && !header.streamed();
            let stored = resized(draft, with_checksum)?;
            let committed = writer.save(&Edit::block(BlockEdit::Replace { n, stored }))?;
            self.publish(committed, &what)?;
        }
        self.tell_block(&state, n);
        Ok(())
    }

    /// A block that changes its size must still hold every array that lies in it.
    fn check_resize(snapshot: &Snapshot, draft: &Draft) -> Result<()> {
        for &i in snapshot
            .block_users()
            .get(draft.block)
            .into_iter()
            .flatten()
        {
            if snapshot.array_view(i, draft.overlay.len()).is_err()
                && let Some(array) = snapshot
                    .arrays()
                    .get(i)
                    .filter(|array| array.problem().is_none())
            {
                return Err(Error::Library(Library::Rejected {
                    at: Place::Block(draft.block),
                    why: format!(
                        "with {} bytes it no longer holds array {}",
                        draft.overlay.len(),
                        array.path()
                    ),
                    advice: "change the array in tree.yaml first".to_owned(),
                }));
            }
        }
        Ok(())
    }

    /// Encodes an edited block: what of it the edit touched, as far as its codec can tell that from the rest.
    fn reencoded(
        &self,
        snapshot: &Snapshot,
        header: &BlockHeader,
        draft: &Draft,
    ) -> Result<Stored> {
        let codec = codec::codec(header.compression)?;
        let stored = snapshot.stored(draft.block)?;
        let decoded: &dyn Source = &*draft.overlay;
        // the new checksum must not vouch for a part that is damaged: decoding all of it finds that out
        let sound = snapshot.verify_checksum(draft.block, &mut |_| {})? != ChecksumState::Wrong;
        let write = |out: &mut dyn Write| match snapshot.framing(draft.block) {
            Some(framing) if sound => codec.reencode(
                &Edited {
                    framing,
                    stored: &stored,
                    stored_len: header.data_size,
                    decoded,
                    touched: &draft.overlay.touched(),
                },
                out,
            ),
            framing => codec.encode(framing, decoded, out),
        };
        let file = self.spooled(write)?;
        stored_as(file, header.compression, decoded, header.has_checksum())
    }

    /// A temporary file of what `write` writes.
    fn spooled(&self, write: impl FnOnce(&mut dyn Write) -> Result<(), Library>) -> Result<File> {
        let fail = |error| Library::io("the temporary file of a block", error);
        let mut out = BufWriter::with_capacity(CHUNK, self.spool_file()?);
        write(&mut out)?;
        out.flush().map_err(fail)?;
        let mut file = out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .map_err(fail)?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        Ok(file)
    }

    /// Encodes block `n` anew.
    pub(super) fn recompress(&self, n: usize, code: [u8; 4]) -> Result<()> {
        let mut writer = locked(self.writer()?);
        let state = self.state();
        let header = state
            .snapshot
            .layout()
            .blocks
            .get(n)
            .ok_or(Error::NotFound)?;
        if header.compression == code {
            return Ok(());
        }
        if header.streamed() {
            return Err(Error::NotPermitted("a streamed block is never compressed"));
        }
        if self.drafts.get(n).is_some() {
            return Err(Error::Busy("the block is being edited"));
        }
        let decoded = state.snapshot.block(n)?;
        let stored = if code == [0; 4] {
            let checksum = if header.has_checksum() {
                md5(&*decoded, &mut |_| {})?
            } else {
                [0; 16]
            };
            Stored {
                checksum,
                tight: true,
                ..Stored::raw(decoded)
            }
        } else {
            let codec = codec::codec(code)?;
            let file = self.spooled(|out| codec.encode(None, &*decoded, out))?;
            Stored {
                tight: true,
                ..stored_as(file, code, &*decoded, header.has_checksum())?
            }
        };
        let committed = writer.save(&Edit::block(BlockEdit::Replace { n, stored }))?;
        self.publish(
            committed,
            &format!("block {n} encoded as {}", code_text(code)),
        )
    }

    /// Removes the last block.
    pub(super) fn commit_removal(&self, n: usize) -> Result<()> {
        let mut writer = locked(self.writer()?);
        let committed = writer.save(&Edit {
            text: Some(Arc::clone(self.state().snapshot.text())),
            blocks: vec![BlockEdit::RemoveLast],
        })?;
        self.publish(committed, &format!("block {n} removed"))
    }

    /// Has the kernel forget the pages of a block and of the arrays in it.
    fn tell_block(&self, state: &State, n: usize) {
        if let Ok(number) = u32::try_from(n) {
            self.tell(Invalidation::Inode(Node::Block(number).ino()));
        }
        for (number, i) in state.catalogue().arrays() {
            if state
                .snapshot
                .arrays()
                .get(i)
                .is_some_and(|array| *array.origin() == Origin::Block(n))
            {
                self.tell(Invalidation::Inode(Node::ArrayBin(number).ino()));
                self.tell(Invalidation::Inode(Node::ArrayNpy(number).ino()));
            }
        }
    }
}

/// A block of what `file` holds, which is `decoded` under a compression code.
fn stored_as(
    file: File,
    code: [u8; 4],
    decoded: &dyn Source,
    with_checksum: bool,
) -> Result<Stored> {
    let bytes: Arc<dyn Source> = Arc::new(FileSource::open(Arc::new(file))?);
    let checksum = if with_checksum {
        md5(&*bytes, &mut |_| {})?
    } else {
        [0; 16]
    };
    Ok(Stored {
        pieces: vec![Piece::New(bytes)],
        compression: code,
        data_size: decoded.len(),
        checksum,
        tight: false,
    })
}

/// Writes the edited pieces of a raw block where they are. Its checksum says "not verified" meanwhile.
fn write_in_place(
    writer: &mut Writer,
    n: usize,
    draft: &Draft,
    with_checksum: bool,
) -> Result<Committed<Arc<File>>> {
    writer.begin_block_writes(n)?;
    let mut buf = vec![0; CHUNK];
    for (start, end) in draft.overlay.pieces() {
        let mut at = start;
        while at < end {
            let len = usize::try_from(end.saturating_sub(at))
                .unwrap_or(CHUNK)
                .min(CHUNK);
            let piece = buf.get_mut(..len).unwrap_or_default();
            draft.overlay.read_exact_at(piece, at)?;
            writer.write_block_data(n, at, piece)?;
            at = at.saturating_add(len_u64(len));
        }
    }
    let checksum = with_checksum
        .then(|| md5(&*draft.overlay, &mut |_| {}))
        .transpose()?;
    Ok(writer.end_block_writes(n, checksum)?)
}

/// A raw block of the bytes of a source.
fn raw(bytes: &Arc<crate::source::Overlay>, with_checksum: bool) -> Result<Stored> {
    let checksum = if with_checksum {
        md5(&**bytes, &mut |_| {})?
    } else {
        [0; 16]
    };
    Ok(Stored {
        checksum,
        ..Stored::raw(bytes.clone())
    })
}

/// A raw block of another length: what was not written over stays where it is.
fn resized(draft: &Draft, with_checksum: bool) -> Result<Stored> {
    let mut stored = raw(&draft.overlay, with_checksum)?;
    stored.pieces = draft
        .overlay
        .parts()
        .into_iter()
        .map(|(extent, kept)| {
            if kept {
                return Ok(Piece::Old(crate::asdf::layout::Extent {
                    start: extent.0,
                    end: extent.1,
                }));
            }
            let len = extent.1.saturating_sub(extent.0);
            let window = Window::new(draft.overlay.clone(), extent.0, len)?;
            Ok(Piece::New(Arc::new(window)))
        })
        .collect::<Result<_, Library>>()?;
    Ok(stored)
}

/// What the kernel knows of the old state that is not so in the new one.
fn changes(old: &State, new: &State) -> Vec<Invalidation> {
    let mut out = Vec::new();
    for (directory, name) in old.catalogue().missing_in(new.catalogue()) {
        out.push(Invalidation::Entry(Node::ArrayDir(directory).ino(), name));
    }
    for (number, i) in new.catalogue().arrays() {
        let before = old
            .catalogue()
            .array(number)
            .and_then(|i| old.snapshot.arrays().get(i));
        let after = new.snapshot.arrays().get(i);
        if before
            .zip(after)
            .is_some_and(|(before, after)| !Array::shows_the_same(before, after))
        {
            out.push(Invalidation::Inode(Node::ArrayBin(number).ino()));
            out.push(Invalidation::Inode(Node::ArrayNpy(number).ino()));
        }
    }
    let (old, new) = (&old.snapshot.layout().blocks, &new.snapshot.layout().blocks);
    for (n, before) in (0..).zip(old) {
        let after = usize::try_from(n).ok().and_then(|n| new.get(n));
        match after {
            None => out.push(Invalidation::Entry(
                Node::Blocks.ino(),
                format!("{n}.bin").into(),
            )),
            Some(after) if after.data_size != before.data_size => {
                out.push(Invalidation::Inode(Node::Block(n).ino()));
            }
            Some(_) => {}
        }
    }
    out
}
