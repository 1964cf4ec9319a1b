//! Open blocks, arrays and parts of FITS files: which state of FILE a handle reads, and from what.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::attr::{Reading, WRITE};
use super::blocks::{Content, WrittenFile};
use super::node::Node;
use super::saves::Saves;
use super::views::hdu_source;
use super::{Access, Error, Result, State, index, locked};
use crate::asdf::Snapshot;
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
    /// Whether bytes of it may have to be decoded, or made of more than is asked for.
    pub(super) takes_long: bool,
    /// The file that it writes to, if it is open for writing; all descriptors of the file share that.
    writes: Option<Arc<WrittenFile>>,
    /// What it reads from, with [`Blocks::generation`](super::blocks::Blocks::generation) when that was made.
    source: Mutex<Option<(u64, Arc<dyn Source>)>>,
}

impl DataHandle {
    /// A handle of a file as a state shows it.
    pub(super) fn new(node: Node, opened: &Arc<State>, writes: Option<Arc<WrittenFile>>) -> Self {
        Self {
            node,
            opened: Arc::clone(opened),
            form: AtomicU64::new(opened.form(node)),
            takes_long: opened.takes_long(node),
            writes,
            source: Mutex::default(),
        }
    }

    /// The file that is written to.
    pub(super) fn writes(&self) -> Result<&Arc<WrittenFile>> {
        self.writes.as_ref().ok_or(Error::ReadOnly(
            "inline and external arrays, and those in chunks: edit tree.yaml, the other file, or the block of a chunk",
        ))
    }

    /// The form of the file that its program knows.
    pub(super) fn form(&self) -> u64 {
        self.form.load(Ordering::Acquire)
    }

    /// Takes the file as it is after a save through this handle for the one that its program knows.
    pub(super) fn renew(&self, form: u64) {
        self.form.store(form, Ordering::Release);
    }

    /// Opens a block or array.
    pub(super) fn open(
        saves: &Saves,
        state: &Arc<State>,
        node: Node,
        access: Access,
    ) -> Result<Self> {
        if state.is_elsewhere(node) {
            // the kernel shows the same pages to all handles of the file: those that are open look at the other file anew, too
            saves.blocks.changed();
        }
        let block = state.block_of(node);
        if let Some(block) = block {
            saves.blocks.wait_for_release(state, block, node);
        }
        let block = block.filter(|_| access.write);
        let written = block.map(|block| add_writer(saves, state, block, node));
        let handle = Self::new(node, state, written.transpose()?);
        if !access.write {
            // what can't be read is not opened: the kernel looks the name up again then; of writers this has been asked
            handle.state_of(saves)?;
        }
        if access.truncate {
            let written = handle.writes()?;
            // open(2) fails then, and no close follows that would free the block
            let turn = written.turn();
            let emptied = written.empty(saves);
            drop(turn);
            if let Err(error) = emptied {
                saves.blocks.remove_writer(written);
                return Err(error);
            }
        } else if access.write {
            handle.writes()?;
        }
        Ok(handle)
    }

    /// Opens a block for writing that FILE does not have yet: it is saved when it is closed, even if nothing is written. If another thread
    /// has made it, or FILE has it, opens that. Whether it was made.
    pub(super) fn make_block(saves: &Saves, node: Node) -> Result<(Self, bool)> {
        let state = saves.shown.now();
        // an array in no block can't be opened for writing either, and that says why
        if let Some(block) = state.block_of(node)
            && block >= state.snapshot.layout().blocks.len()
            && let Some(made) = saves.blocks.make(&state, block, node)
        {
            return Ok((Self::new(node, &state, Some(made)), true));
        }
        Ok((Self::open(saves, &state, node, WRITE)?, false))
    }

    /// The state that a handle reads: the one that is shown, if the file still has the form that it had when it was opened; else the one
    /// from then, as long as FILE has its bytes.
    ///
    /// # Errors
    /// [`Library::Stale`].
    fn state_of(&self, saves: &Saves) -> Result<Arc<State>> {
        let state = saves.shown.now();
        if state.form(self.node) == self.form() {
            return Ok(state);
        }
        let before = &self.opened.versions;
        let is_written = state.versions.has_own_change_since(before, self.node);
        // saves move what lies below unsaved bytes, so that these have left the old state
        let version = self.opened.version(self.node);
        let is_unsaved = (saves.blocks)
            .content_of(&self.opened, self.node, version)
            .is_some();
        // the old bytes are still where the old state says, unless a save or another program has written over them: then it is sealed
        if !is_written && !is_unsaved && !self.opened.is_sealed() && !saves.file.is_far() {
            return Ok(Arc::clone(&self.opened));
        }
        let why = "it has changed since it was opened: open it again".to_owned();
        Err(Library::Stale { why }.into())
    }

    /// The source that a handle reads from now: with what is written through its file and not saved yet.
    ///
    /// # Errors
    /// As [`Self::state_of`]; why the bytes can't be had.
    fn source_of(&self, saves: &Saves) -> Result<Arc<dyn Source>> {
        let missing = || Library::corrupt(Place::File, "the tree no longer has this array");
        let state = self.state_of(saves)?;
        let snapshot = &state.snapshot;
        let version = self.opened.version(self.node);
        let edited = match saves.blocks.content_of(&state, self.node, version) {
            Some(Content::Emptied(bytes)) => return Ok(bytes),
            Some(Content::Edited(block)) => Some(block),
            _ => None,
        };
        let source: Result<Arc<dyn Source>, Library> = match (self.node, edited) {
            (Node::Block(_), Some(block)) => Ok(block),
            (Node::Block(n), None) => snapshot.block(index(n)),
            (Node::Array(number, format), block) => {
                let i = state.array_index(number).map_err(|_| missing())?;
                match block {
                    Some(block) => format.over(snapshot, i, block),
                    None => format.saved(snapshot, i),
                }
            }
            (Node::View(view, number), _) => state.in_views().source(view, number),
            (Node::StatsTsv, _) => Ok(state.stats_source()),
            (node, _) => hdu_source(snapshot, node).map_err(|_| missing()),
        };
        Ok(source?)
    }

    /// Waits for a write or import into the block of a handle that is going on: of an import the handle reads all or nothing. The caller may
    /// not keep saves from moving bytes meanwhile.
    fn wait_for_import(&self, saves: &Saves) {
        let block = self.opened.block_of(self.node);
        let written = block.and_then(|n| saves.blocks.writer_of(&self.opened, n));
        if let Some(written) = written {
            // whoever has the turn is writing; the guard is dropped at once, as only the end of that is waited for
            drop(written.turn());
        }
    }

    /// The source that a handle reads from, made anew if contents or states have changed since, and what keeps saves from moving its bytes.
    ///
    /// # Errors
    /// [`Library::Corrupt`] if another program has changed FILE, and the change can't be shown; of a FILE that lies far away
    /// [`Library::Stale`]. As [`Self::state_of`]; why the bytes can't be had.
    pub(super) fn current_source<'a>(
        &self,
        saves: &'a Saves,
    ) -> Result<(Arc<dyn Source>, Reading<'a>)> {
        let (generation, reading) = loop {
            let reading = saves.reading();
            // taken before the state is: if another state is shown meanwhile, the source is made anew at the next read
            let generation = saves.blocks.generation();
            let made = locked(&self.source);
            if let Some((_, source)) = made.as_ref().filter(|made| made.0 >= generation) {
                return Ok((Arc::clone(source), reading));
            }
            drop(made);
            drop(reading);
            self.wait_for_import(saves);
            let reading = saves.reading();
            // else another import may have begun, which waits for nobody who reads from now on
            if saves.blocks.generation() == generation {
                break (generation, reading);
            }
        };
        // what was opened on a server is gone for good
        let of_disk = |error: Library| Library::corrupt(Place::File, error.to_string());
        let checked = saves.check_up_to_date();
        checked.map_err(|error| {
            if saves.file.is_far() {
                error
            } else {
                of_disk(error)
            }
        })?;
        // without the lock, as it may ask a server; an error is not kept: the next write may mend it
        let made = self.source_of(saves)?;
        let mut current = locked(&self.source);
        // another thread may have made one meanwhile: pictures and statistics are made at the first read of one source
        if let Some((_, source)) = current.as_ref().filter(|made| made.0 >= generation) {
            return Ok((Arc::clone(source), reading));
        }
        let before = current.replace((generation, Arc::clone(&made)));
        drop(current);
        // without the lock, too: its end may take that of a cache
        drop(before);
        Ok((made, reading))
    }
}

/// Adds a writer of a block through a file.
fn add_writer(saves: &Saves, state: &State, block: usize, node: Node) -> Result<Arc<WrittenFile>> {
    check_encodable(&state.snapshot, block)?;
    let is_there = block < state.snapshot.layout().blocks.len();
    if !is_there && saves.blocks.writer_of(state, block).is_none() {
        return Err(Error::NotFound);
    }
    let now = saves.shown.now();
    check_shown(&now, state, node)?;
    let added = saves.blocks.add_writer(&now, block, node, false);
    let written = added.map_err(|other| now.in_use(other))?;
    // the writer before may have made it another file meanwhile
    if let Err(gone) = check_shown(&saves.shown.now(), state, node) {
        saves.blocks.remove_writer(&written);
        return Err(gone);
    }
    for writer in saves.blocks.take_emptied(Some(&written)) {
        saves.blocks.leave(&writer, false);
    }
    Ok(written)
}

/// Checks that a file is still the one that a state shows.
fn check_shown(now: &State, state: &State, node: Node) -> Result<()> {
    if now.version(node) == state.version(node) {
        return Ok(());
    }
    let why = "it is another file by now: look it up again".to_owned();
    Err(Library::Stale { why }.into())
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
        "blocks of this compression are read-only: recompress it first, with setfattr -n user.asdf.compression -v zlib",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::Memory;
    use crate::vfs::testing::writable;
    use crate::vfs::{Bytes, View};

    /// A thread that was slow to ask for it threw the newer source away, so that a picture was drawn again.
    #[test]
    fn a_source_that_another_thread_has_made_meanwhile_is_kept() {
        let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
        let saves = &vfs.saves;
        let handle = DataHandle::new(Node::Block(0), &saves.shown.now(), None);
        let source = || handle.current_source(saves).unwrap().0;
        let made = source();
        assert!(Arc::ptr_eq(&made, &source()));
        let newer: Arc<dyn Source> = Arc::new(Memory::new(b"abc".to_vec()));
        let generation = saves.blocks.generation().checked_add(1).unwrap();
        *locked(&handle.source) = Some((generation, Arc::clone(&newer)));
        assert!(Arc::ptr_eq(&newer, &source()));
        saves.blocks.changed();
        assert!(Arc::ptr_eq(&newer, &source()));
        saves.blocks.changed();
        assert!(!Arc::ptr_eq(&newer, &source()), "it is old by now");
    }

    /// Each write gave them other numbers, if one had been opened since the last: with two readers, `open` and `read` were `ESTALE` again
    /// and again. A file of a view kept its number and its pages.
    #[test]
    fn the_other_files_of_a_block_that_is_written_are_read_as_it_is() {
        const TEXT: &[u8] =
            b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";
        let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abc"));
        let array = vfs.lookup(Node::ARRAYS, "x.bin".as_ref()).unwrap().node;
        let view = vfs.lookup(Node::ViewDir(View::Fits, 0), "x.fits".as_ref());
        let view = view.unwrap().node;
        let written = vfs.open_now(Node::Block(0), WRITE).unwrap().handle;
        vfs.write(&written, 0, b"A", false).unwrap();
        let open = |file| vfs.open_now(file, Access::default()).unwrap();
        let opened = [array, view].map(open);
        assert!(opened.iter().all(|opened| opened.direct));
        let version = vfs.shown.now().version(array);
        for byte in [b"B", b"C"] {
            vfs.write(&written, 0, byte, false).unwrap();
            assert_eq!(vfs.shown.now().version(array), version);
            let Ok(Bytes::Owned(bytes)) = vfs.read(&opened[0].handle, 0, 1) else {
                panic!("so few bytes are not lent");
            };
            assert_eq!(bytes.to_vec(), byte);
        }
        vfs.flush(&written, 0).unwrap();
        vfs.release(&written);
        assert!(vfs.shown.now().version(array) > version);
        assert!(!open(array).direct && !open(view).direct);
    }
}
