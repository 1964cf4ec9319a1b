//! Whole files, and edits of compressed or resized blocks, become FILE's: all of it or nothing. And where the bytes of an array's file go in
//! its block.

use std::ops::Range;
use std::sync::Arc;

use crate::asdf::check::{CheckedText, check_text};
use crate::asdf::layout::Extent;
use crate::asdf::npy::Header;
use crate::asdf::scatter::scatter;
use crate::asdf::{Array, Snapshot};
use crate::error::{Error as Library, Place};
use crate::save::Put;
use crate::save::edit::{BlockEdit, Edit, Piece, StoredBlock};
use crate::source::{Overlay, Source, Window, at_most, len_u64};
use crate::vfs::blocks::{Content, Sum, WrittenFile};
use crate::vfs::data::DataHandle;
use crate::vfs::node::{Format, Node};
use crate::vfs::saves::{Saves, Saving, check_counted, is_saved};
use crate::vfs::scratch::copy_pieces;
use crate::vfs::version::{BlockChange, Through};
use crate::vfs::{Error, Result, State, locked};

impl WrittenFile {
    /// Saves a file that was written from its beginning. Nothing, if nothing was written and it is no new block.
    pub(in crate::vfs) fn save_emptied(&self, saves: &Saves, bytes: Arc<Overlay>) -> Result<()> {
        if self.unsaved().is_none() {
            return Ok(());
        }
        // a file with missing bytes is not saved, even if its program closes it without looking at the error of write(2)
        self.short().map_or(Ok(()), Err)?;
        self.import(saves, bytes, true)
    }

    /// Makes these bytes those of a file; `own`: they were written to it, so that the kernel has them.
    fn import(&self, saves: &Saves, bytes: Arc<dyn Source>, own: bool) -> Result<()> {
        let mut saving = self.begin(saves)?;
        self.check_current(saves)?;
        let state = Arc::clone(&saving.state);
        saving.through = saving.through.filter(|_| own);
        let done = match self.file {
            Node::Block(_) => self.import_block(&mut saving, bytes),
            array => {
                let file = ArrayFile::of(&state, array)?;
                self.import_array(&mut saving, file, bytes)
            }
        };
        drop(saving);
        if !is_saved(&done) {
            return done;
        }
        locked(&saves.news).saved(self.block, Some(self.file));
        // its writers may go on, also if the save has made it another file
        self.renew(&saves.shown.now());
        saves.blocks.set(self, Content::Saved);
        done
    }

    /// Makes these bytes those of a block.
    fn import_block(&self, saving: &mut Saving<'_>, bytes: Arc<dyn Source>) -> Result<()> {
        let (n, len, state) = (self.block, bytes.len(), &saving.state);
        if n >= state.snapshot.layout().blocks.len() {
            return self.append_block(saving, &bytes);
        }
        check_resize(&state.snapshot, n, len)?;
        // the same length of a raw block: written where it is, and FILE is not copied
        if state.is_raw(n) && state.snapshot.block_len(n) == Some(len) {
            return self.overwrite(saving, 0..len, true, |put| copy_pieces(&*bytes, put));
        }
        self.replace_block(saving, bytes, None)
    }

    /// Makes these bytes, which are those of its file, the elements of an array.
    fn import_array(
        &self,
        saving: &mut Saving<'_>,
        file: ArrayFile<'_>,
        bytes: Arc<dyn Source>,
    ) -> Result<()> {
        let snapshot = &file.state.snapshot;
        if !file.format.has_header() {
            file.check_len(bytes.len(), file.array.bin_len())?;
            return self.import_elements(saving, file, &*bytes);
        }
        let header = file.header(&*bytes)?;
        let start = len_u64(header.len);
        let len = header.data_len();
        let full = start.checked_add(len).ok_or(Error::TooBig("beyond 2^64"))?;
        file.check_len(bytes.len(), full)?;
        let mut head = vec![0; header.len];
        bytes.read_exact_at(&mut head, 0)?;
        let elements: Arc<dyn Source> = Arc::new(Window::new(bytes, start, len)?);
        if !file.is_of(&header) {
            // other arrays lie in the block, or the declaration is shared: a new form would change those, too
            if let Some(why) = snapshot.bound(file.index) {
                return Err(Error::NotPermitted(why));
            }
            return self.redeclare(saving, file, &header, elements);
        }
        // an array of one axis is dense in both orders: NumPy may say either
        let fortran = header.fortran_order && !header.view()?.is_dense();
        if fortran == file.format.is_fortran(file.array) {
            // of a header that is spelled otherwise than it is shown, the kernel has other bytes
            let is_shown = |_: &Through| file.elements_of(0, &head).is_ok();
            saving.through = saving.through.filter(is_shown);
            return self.import_elements(saving, file, &*elements);
        }
        let elements = snapshot.in_c_order(&header, elements)?;
        let format = Format::Bin;
        saving.through = None;
        self.import_elements(saving, ArrayFile { format, ..file }, &*elements)
    }

    /// Makes these the elements of an array that keeps its form. They are in the order of the file.
    fn import_elements(
        &self,
        saving: &mut Saving<'_>,
        file: ArrayFile<'_>,
        elements: &dyn Source,
    ) -> Result<()> {
        let (n, snapshot) = (self.block, &file.state.snapshot);
        let len = snapshot.block_len(n).ok_or(Error::NotFound)?;
        let extent = snapshot.array_view(file.index, len)?.extent();
        // nothing is begun for an array that can't be written
        file.put(len, 0, &[], &mut |_, _| Ok(()))?;
        if file.state.is_raw(n) {
            // a file that covers the whole block needs no checksum of the old bytes
            let whole = elements.len() == len;
            let range = extent.start..extent.end;
            return self.overwrite(saving, range, whole, |put| {
                copy_pieces(elements, |at, piece| file.put(len, at, piece, put))
            });
        }
        // a compressed block is encoded again as a whole, so the elements are put over its decoded bytes first
        let block = saving.saves.blocks.over(snapshot.block(n)?);
        copy_pieces(elements, |at, piece| {
            let write = &mut |at, run: &[u8]| block.write(at, run);
            file.put(len, at, piece, write)
        })?;
        self.save_overlay(saving, &block)
    }

    /// Writes all of a file into its raw block, where that is: bytes of this range, or the `whole` block.
    fn overwrite(
        &self,
        saving: &mut Saving<'_>,
        range: Range<u64>,
        whole: bool,
        write: impl FnOnce(&mut Put<'_>) -> Result<(), Library>,
    ) -> Result<()> {
        let sum = self.take_checksum(saving, &range, whole)?;
        self.show_patched(saving.saves, saving.through);
        // who reads the block from now on waits until it is whole, see `wait_for_import`; who is reading it has the bytes of before
        drop(saving.saves.stirring());
        self.put(saving.saves, &mut saving.writer, write)?;
        let put = self.put_checksum(saving, sum);
        // the bytes are in FILE, and only the checksum is left to be put at the next save
        put.inspect_err(|_| saving.saves.blocks.set(self, Content::Patched(sum)))
    }

    /// Saves edits of a block that can't be written where it is.
    pub(in crate::vfs) fn save_edited(&self, saves: &Saves, block: &Arc<Overlay>) -> Result<()> {
        self.short().map_or(Ok(()), Err)?;
        let mut saving = self.begin(saves)?;
        let done = self.save_overlay(&mut saving, block);
        if is_saved(&done) {
            locked(&saves.news).saved(self.block, Some(self.file));
            saves.blocks.set(self, Content::Saved);
        }
        done
    }

    /// Saves the decoded bytes of a block, with edits. Encodes or writes only what they touch, where the format lets it.
    fn save_overlay(&self, saving: &mut Saving<'_>, block: &Arc<Overlay>) -> Result<()> {
        let (saves, writer) = (saving.saves, &mut saving.writer);
        let (n, snapshot, len) = (self.block, &saving.state.snapshot, block.len());
        check_resize(snapshot, n, len)?;
        // A hole in it takes no space, but to sum or encode it takes time by its length, and other saves wait: so room is checked first. It
        // is summed before it is written: a block that does not decode is refused while FILE is untouched.
        let (edit, sum) = if saving.state.is_raw(n) {
            let stored = resized(block)?;
            let mut edit = Edit::block(BlockEdit::Replace { n, stored });
            saves.check_free(n, writer.growth(&edit)?)?;
            let sum = Sum::of(snapshot, n, &**block, Some(block))?;
            edit.set_checksum(sum.over(&**block)?);
            (edit, sum)
        } else {
            // how short the codec will make it is not known yet
            saves.check_room_for(n, len)?;
            let sum = Sum::of(snapshot, n, &**block, Some(block))?;
            let stored = saves.reencoded(snapshot, n, block, &sum)?;
            (Edit::block(BlockEdit::Replace { n, stored }), sum)
        };
        let change = BlockChange::new(n, saving.through);
        let what = format!("block {n} saved");
        saves.commit(writer, &edit, &what, Some(change), sum.known(n), None)
    }

    /// Gives the block other bytes altogether; `with`: the text that FILE gets with them, and what to say of it.
    fn replace_block(
        &self,
        saving: &mut Saving<'_>,
        decoded: Arc<dyn Source>,
        with: Option<(Arc<Vec<u8>>, CheckedText, String)>,
    ) -> Result<()> {
        let (saves, n, snapshot) = (saving.saves, self.block, &saving.state.snapshot);
        saves.check_room_for(n, decoded.len())?;
        let sum = Sum::of(snapshot, n, &*decoded, None)?;
        let header = snapshot.layout().blocks.get(n).ok_or(Error::NotFound)?;
        let stored = saves.encoded(header.compression, snapshot.framing(n), decoded, &sum)?;
        let mut edit = Edit::block(BlockEdit::Replace { n, stored });
        let (mut checked, mut what) = (None, format!("block {n} saved"));
        if let Some((text, of_it, said)) = with {
            (edit.text, checked, what) = (Some(text), Some(of_it), said);
        }
        let change = Some(BlockChange::new(n, saving.through));
        let writer = &mut saving.writer;
        saves.commit(writer, &edit, &what, change, sum.known(n), checked)
    }

    /// Adds the block, of these bytes, behind the last one.
    fn append_block(&self, saving: &mut Saving<'_>, bytes: &Arc<dyn Source>) -> Result<()> {
        let (saves, writer) = (saving.saves, &mut saving.writer);
        let (n, snapshot) = (self.block, &saving.state.snapshot);
        check_counted(snapshot)?;
        let mut edit = Edit {
            text: Some(Arc::clone(snapshot.text())),
            blocks: vec![BlockEdit::Append(StoredBlock::raw(Arc::clone(bytes)))],
        };
        saves.check_free(n, writer.growth(&edit)?)?;
        edit.set_checksum(Sum::Stored.over(&**bytes)?);
        let change = BlockChange::new(n, saving.through);
        let (what, sum) = (format!("block {n} added"), Sum::Stored.known(n));
        saves.commit(writer, &edit, &what, Some(change), sum, None)
    }

    /// Saves an array that gets another datatype or shape: its new declaration in the tree, and its block.
    fn redeclare(
        &self,
        saving: &mut Saving<'_>,
        file: ArrayFile<'_>,
        header: &Header,
        elements: Arc<dyn Source>,
    ) -> Result<()> {
        let (saves, n, snapshot) = (saving.saves, self.block, &file.state.snapshot);
        let text = Arc::new(snapshot.redeclared(file.index, header)?);
        let decoded = snapshot.in_c_order(header, elements)?;
        saves.let_go_of_tree();
        // `let_go_of_tree` may have put a state without its tree in the place of this one
        saving.state = saves.shown.now();
        let (snapshot, resized) = (&saving.state.snapshot, Some((n, decoded.len())));
        let checked = check_text(snapshot, &text, saves.options.validate, resized)?;
        let what = format!("array {} and its block {n} saved", file.array.path());
        let text_too = Some((Arc::clone(&text), checked, what));
        saving.through = None;
        let done = self.replace_block(saving, decoded, text_too);
        // FILE has the text even if the save is unfinished: an editor must not go on from the old one
        if is_saved(&done) {
            saves.tree.reloaded(text);
        }
        done
    }
}

/// Gives a block or array the bytes of a file, and saves it. Others see the bytes of before until all are saved.
pub(in crate::vfs) fn import_file(saves: &Saves, node: Node, bytes: Arc<dyn Source>) -> Result<()> {
    let (open, is_new) = DataHandle::make_block(saves, node)?;
    let imported = open.writes().and_then(|written| {
        let _turn = written.turn();
        written.end_patch(saves)?;
        if !is_new && !matches!(written.content(), Content::Saved) {
            return Err(Error::Busy("its block is being edited"));
        }
        written.import(saves, bytes, false)?;
        // what has been renamed over the file is another one: descriptors of the old one write no more
        saves.blocks.free(written);
        Ok(())
    });
    if let (Err(_), Ok(written)) = (&imported, open.writes())
        && is_new
    {
        // the block that was made for it is none
        saves.blocks.set(written, Content::Saved);
    }
    imported.and(open.close(saves))
}

/// Checks that a block of that length still holds every array that lies in it.
pub(in crate::vfs) fn check_resize(snapshot: &Snapshot, block: usize, len: u64) -> Result<()> {
    let users = snapshot.block_users().get(block).map(Vec::as_slice);
    let users = users.unwrap_or_default();
    let before = snapshot.block_len(block);
    let refused = |why: String, advice: &str| {
        Err(Error::Library(Library::Rejected {
            at: Place::Block(block),
            why,
            advice: advice.to_owned(),
        }))
    };
    let is_for_chunks = || {
        let blocks = snapshot.chunk_blocks();
        // if that is not known, a block that no array declares may be one
        blocks.map_or_else(|_| users.is_empty(), |blocks| blocks.contains(&block))
    };
    if before != Some(len) && is_for_chunks() {
        let why = format!("it is for a chunk of an array, and its length can't become {len} bytes");
        return refused(why, "write as many as it has");
    }
    let is_faulty = |&i: &usize| snapshot.arrays().get(i)?.problem().map(drop);
    // how many bytes an array needs is not known if its declaration makes no sense
    let is_needed = || match users {
        [] => !snapshot.unused_blocks().contains(&block),
        users => users.iter().find_map(is_faulty).is_some(),
    };
    if before.is_some_and(|before| len < before) && is_needed() {
        let why =
            format!("with {len} bytes it may no longer hold an array that makes no sense as it is");
        return refused(why, "correct tree.yaml first");
    }
    for &i in users {
        // an array that makes no sense already does not keep its block from being mended
        let sound = |array: &&Array| array.problem().is_none();
        let Some(array) = snapshot.arrays().get(i).filter(sound) else {
            continue;
        };
        let holds = if array.goes_to_the_end() {
            array.offset() <= len
        } else {
            snapshot.array_view(i, len).is_ok()
        };
        if !holds {
            let why = format!("with {len} bytes it no longer holds array {}", array.path());
            return refused(why, "change the array in tree.yaml first");
        }
    }
    Ok(())
}

/// A raw block of another length. Bytes that were not written over are kept from FILE.
fn resized(block: &Arc<Overlay>) -> Result<StoredBlock> {
    let mut stored = StoredBlock::raw(block.clone());
    stored.pieces = block
        .parts()
        .into_iter()
        .map(|(extent, kept)| {
            let (start, end) = extent;
            if kept {
                return Ok(Piece::Old(Extent { start, end }));
            }
            let len = end.saturating_sub(start);
            let window = Window::new(block.clone(), start, len)?;
            Ok(Piece::New(Arc::new(window)))
        })
        .collect::<Result<_, Library>>()?;
    Ok(stored)
}

/// The file of an array, in a state that shows it.
#[derive(Clone, Copy)]
pub(in crate::vfs) struct ArrayFile<'a> {
    pub(in crate::vfs) state: &'a State,
    pub(in crate::vfs) array: &'a Array,
    /// Index of the array in the snapshot.
    pub(in crate::vfs) index: usize,
    pub(in crate::vfs) format: Format,
}

impl<'a> ArrayFile<'a> {
    /// The file of that node.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the state shows no array there.
    pub(in crate::vfs) fn of(state: &'a State, file: Node) -> Result<Self> {
        let Node::Array(number, format) = file else {
            return Err(Error::NotFound);
        };
        Ok(Self {
            state,
            array: state.array(number)?,
            index: state.array_index(number)?,
            format,
        })
    }

    /// Whether the array has the datatype and shape of a header.
    pub(in crate::vfs) fn is_of(self, header: &Header) -> bool {
        let known = self.array.datatype().zip(self.array.shape());
        known.is_some_and(|(datatype, shape)| header.is_of(datatype, shape))
    }

    /// Puts bytes where the elements of the array are in its block, which has `len` bytes, from byte `at` of the elements on.
    ///
    /// # Errors
    /// [`Library::Rejected`] if elements share bytes; that of `put`.
    pub(in crate::vfs) fn put(
        self,
        len: u64,
        at: u64,
        data: &[u8],
        put: &mut Put<'_>,
    ) -> Result<(), Library> {
        let view = self.state.snapshot.array_view(self.index, len)?;
        // the file shows the bytes in the order of the block, so they go there in one run
        if self.format.is_fortran(self.array) {
            let at = view.extent().start.checked_add(at);
            let beyond = || Library::corrupt(Place::Array(self.array.path()), "beyond 2^64");
            return put(at.ok_or_else(beyond)?, data);
        }
        let place = || Place::Array(self.array.path());
        scatter(&view, place, at, data, put)
    }

    /// Where in the elements a write into the file goes, and with which bytes. What goes into the NPY header must be there already.
    pub(in crate::vfs) fn elements_of(self, offset: u64, data: &[u8]) -> Result<(u64, &[u8])> {
        let snapshot = &self.state.snapshot;
        let header = self.format.header_len(snapshot, self.index)?;
        // a write that begins behind the header has elements only
        let Some(inside) = header.checked_sub(offset).filter(|&inside| inside > 0) else {
            return Ok((offset.saturating_sub(header), data));
        };
        let inside = usize::try_from(inside).map_or(data.len(), |inside| inside.min(data.len()));
        let (inside, behind) = data.split_at(inside);
        // made of the tree: no byte of the block is read, which may lie elsewhere by now
        let header = self.array.npy_header()?;
        let there = usize::try_from(offset).map(|at| header.get(at..)?.get(..inside.len()));
        // programs that copy a file write the header that they have read: that is allowed, any other is a new form
        if there != Ok(Some(inside)) {
            return Err(Error::NotPermitted(
                "the NPY header follows the tree: change datatype or shape in tree.yaml, or empty the file and write all of it",
            ));
        }
        Ok((0, behind))
    }

    /// Checks that a file that was written from its beginning has all of its bytes.
    pub(in crate::vfs) fn check_len(self, len: u64, full: u64) -> Result<()> {
        if len == full {
            return Ok(());
        }
        let why = format!("{len} bytes written of {full}");
        Err(self.refused(
            why,
            "write all of it, or change the shape in tree.yaml first",
        ))
    }

    /// Why what was written to the file is not saved.
    pub(in crate::vfs) fn refused(self, why: String, advice: &str) -> Error {
        Error::Library(Library::Rejected {
            at: Place::Array(self.array.path()),
            why,
            advice: advice.to_owned(),
        })
    }

    /// The header of an NPY file that was written from its beginning.
    pub(in crate::vfs) fn header(self, file: &dyn Source) -> Result<Header> {
        let len = at_most(file.len(), Header::LONGEST);
        let mut head = vec![0; len];
        file.read_exact_at(&mut head, 0)?;
        match Header::read(&head) {
            Ok(Some(header)) => Ok(header),
            Ok(None) => {
                let len = len_u64(head.len());
                let why = format!("{len} bytes written, which is no whole NPY header");
                Err(self.refused(why, "write all of the file"))
            }
            Err(Library::Corrupt { why, .. } | Library::Unsupported { why, .. }) => {
                Err(self.refused(why, "write what numpy.save does"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::attr::WRITE;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Call};
    use rustix::fs::XattrFlags;

    /// A header of more than 128 KiB was called incomplete.
    #[test]
    fn an_array_of_many_fields_is_written_with_the_header_that_it_is_shown_with() {
        let field = |n| format!("{{name: field_number_{n}, datatype: uint8, byteorder: little}}");
        let fields: Vec<_> = (0..8000).map(field).collect();
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            x: !core/ndarray-1.0.0 {{source: 0, datatype: [{}], byteorder: little, shape: [1]}}\n...\n",
            fields.join(", ")
        );
        let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()).block(&[1; 8000]));
        let array = vfs.lookup(Node::ARRAYS, "x.npy".as_ref()).unwrap().node;
        let truncate = true;
        let handle = vfs
            .open_now(array, Access { truncate, ..WRITE })
            .unwrap()
            .handle;
        let head = vfs.shown.now().snapshot.arrays()[0].npy_header().unwrap();
        vfs.write(&handle, 0, &[&*head, &[2; 8000]].concat(), false)
            .unwrap();
        vfs.flush(&handle, 0).unwrap();
        vfs.release(&handle);
        let mut found = [0; 8000];
        let block = vfs.shown.now().snapshot.block(0).unwrap();
        block.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(found, [2; 8000]);
    }

    /// A map begins with the header. To compare it, the block was read where it had been, and the file called damaged.
    #[test]
    fn a_write_over_the_header_of_a_file_that_another_program_has_changed_is_stale() {
        let text = |more: &str| {
            format!(
                "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
                x: !core/ndarray-1.0.0 {{source: 0, datatype: uint8, byteorder: little, shape: [3]}}\n{more}...\n"
            )
        };
        let sample = |more| Sample::new().text(text(more).as_bytes()).block(b"abc");
        let (dir, vfs) = writable(&sample(""));
        let name = "user.asdf.compression".as_ref();
        vfs.setxattr(Node::Block(0), name, b"zlib", XattrFlags::empty())
            .unwrap();
        let array = vfs.lookup(Node::ARRAYS, "x.npy".as_ref()).unwrap().node;
        let access = Access {
            write: true,
            ..Access::default()
        };
        let handle = vfs.open_now(array, access).unwrap().handle;
        let head = vfs.shown.now().snapshot.arrays()[0].npy_header().unwrap();
        // the state that this save leaves has opened no block yet
        let elements = u64::try_from(head.len()).unwrap();
        vfs.write(&handle, elements, b"A", false).unwrap();
        vfs.flush(&handle, 0).unwrap();
        // the next look is a second later
        vfs.saves.look(false);
        std::fs::write(dir.path().join("a.asdf"), sample("y: 123456\n").bytes()).unwrap();
        let refused = vfs.write(&handle, 0, &[&*head, b"ABC"].concat(), false);
        let errno = refused.unwrap_err().errno(Call::Write);
        assert_eq!(errno, rustix::io::Errno::STALE.raw_os_error());
    }
}
