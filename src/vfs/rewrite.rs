//! Files of arrays that are emptied and written anew, as `numpy.save` and `cp` do.
//!
//! What is written is kept aside, in the spool, until all of the file is there: a part of it is in no draft that another descriptor
//! saves, and if it is refused, nothing of any other is given up. What an NPY header says decides, as soon as it is whole, how the elements
//! behind it are kept:
//!
//! | Header | Elements | Once they are whole, at a close or sync |
//! |---|---|---|
//! | that of the array | where the array has them in its block | they go into the draft of the block, which is saved |
//! | the other order of axes | in order | they are put where the array has them, and then as above |
//! | another datatype or shape | in order | the tree gets the new values, and the block the elements, in one save |
//!
//! A file without a header, `.bin`, is one of the first kind.

use std::sync::{Arc, RwLockWriteGuard};

use super::commit::Sum;
use super::edit::{DataHandle, Writes, block_of, fixed_size};
use super::format::Format;
use super::node::Node;
use super::publish::{Precomputed, Saved};
use super::write::copy;
use super::{Error, Result, State, Vfs, locked};
use crate::asdf::check::check_text;
use crate::asdf::npy::Header;
use crate::error::{Error as Library, Place};
use crate::save::edit::{BlockEdit, Edit};
use crate::source::{Memory, Overlay, Source, len_u64};

/// How far a file is that was emptied.
pub(super) enum Rewritten {
    /// So much of its NPY header, which is not whole.
    Head(Vec<u8>),
    /// Its header, if it has one, and elements.
    Elements(Elements),
    /// Why a write has failed, after which the rest is no whole file either: bytes are missing, or were too many.
    Failed(Error),
}

impl Rewritten {
    /// Whether nothing that a save would have to be made of has been written: the header that the array has says nothing.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Head(head) => head.is_empty(),
            Self::Elements(elements) => elements.done == 0 && elements.header.is_none(),
            Self::Failed(_) => false,
        }
    }

    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        match self {
            Self::Head(_) => true,
            Self::Elements(elements) => elements.done == 0,
            Self::Failed(_) => false,
        }
    }
}

/// What was written of a file behind its header.
pub(super) struct Elements {
    /// The header, which may not change any more.
    head: Vec<u8>,
    /// What it says, unless that is the datatype, shape and order that the array has.
    header: Option<Header>,
    /// The elements: of such a header in order, else where the array has them in its block.
    bytes: Arc<Overlay>,
    /// How many bytes of elements there are, counted in order.
    done: u64,
}

/// The file of an array in a state.
#[derive(Clone, Copy)]
struct ArrayFile<'a> {
    state: &'a State,
    number: u32,
    format: Format,
}

impl<'a> ArrayFile<'a> {
    /// The one that a handle has open.
    fn of(state: &'a State, open: &DataHandle) -> Result<Self> {
        let Node::Array(number, format) = open.node else {
            return Err(Error::NotFound);
        };
        Ok(Self {
            state,
            number,
            format,
        })
    }

    /// Bytes of elements that a file with this header has.
    fn full(self, header: Option<&Header>) -> Result<u64> {
        header.map_or_else(
            || Ok(self.state.array(self.number)?.bin_len()),
            |header| Ok(header.data_len()),
        )
    }
}

impl Vfs {
    /// Writes into the file of an array that was emptied; `None` if this one was not.
    pub(super) fn rewrite(
        &self,
        open: &DataHandle,
        writes: &Writes,
        offset: u64,
        data: &[u8],
        mapped: bool,
    ) -> Option<Result<()>> {
        let is_mapped = |so_far: &mut Rewritten| mapped && so_far.is_empty();
        // a map is one of the file as long as it is shown: of the array as it is, if nothing has been written
        locked(&open.rewritten).take_if(is_mapped);
        locked(&open.rewritten).as_ref()?;
        self.refresh();
        if let Err(stale) = self.check_current(open.node, writes) {
            return Some(Err(stale));
        }
        let state = self.state();
        let mut rewritten = locked(&open.rewritten);
        let so_far = rewritten.as_mut()?;
        let written = ArrayFile::of(&state, open)
            .and_then(|file| self.write_elements(file, so_far, offset, data));
        if let Err(error @ Error::Library(Library::Io { .. } | Library::NoRoom { .. })) = &written {
            // not a refusal, after which another write may be right
            *so_far = Rewritten::Failed(error.clone());
        }
        Some(written)
    }

    fn write_elements(
        &self,
        file: ArrayFile<'_>,
        so_far: &mut Rewritten,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let elements = match so_far {
            Rewritten::Failed(why) => return Err(why.clone()),
            Rewritten::Elements(elements) => elements,
            Rewritten::Head(head) => {
                let Some((header, rest)) = collect(file, head, offset, data)? else {
                    return Ok(());
                };
                let head = std::mem::take(head);
                *so_far = Rewritten::Elements(self.begin(file, head, header)?);
                return put(file, so_far, 0, &rest);
            }
        };
        let head = &elements.head;
        let before = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(head.len());
        let inside = data.len().min(head.len().saturating_sub(before));
        let (again, data) = data.split_at(inside);
        if head
            .get(before..)
            .is_none_or(|head| !head.starts_with(again))
        {
            return Err(Error::NotPermitted(
                "elements follow the NPY header already: write the file anew",
            ));
        }
        let at = offset.saturating_sub(len_u64(head.len()));
        put(file, so_far, at, data)
    }

    /// Of a file of which nothing has been written.
    pub(super) fn nothing_of(&self, state: &State, node: Node) -> Result<Option<Rewritten>> {
        Ok(match node {
            Node::Array(_, Format::Npy) => Some(Rewritten::Head(Vec::new())),
            Node::Array(..) => Some(Rewritten::Elements(Elements {
                head: Vec::new(),
                header: None,
                bytes: self.nothing_in_block(state, node)?,
                done: 0,
            })),
            _ => None,
        })
    }

    /// Nothing, in order.
    fn nothing(&self) -> Arc<Overlay> {
        let empty = Arc::new(Memory::new(Vec::new()));
        Arc::new(Overlay::new(empty, self.edits.spool.part()))
    }

    /// Nothing where an array has elements in its block.
    fn nothing_in_block(&self, state: &State, array: Node) -> Result<Arc<Overlay>> {
        let block = block_of(state, array).ok_or(Error::NotFound)?;
        let bytes = self.nothing();
        let len = state.snapshot.block_len(block);
        bytes.resize(len.ok_or(Error::NotFound)?);
        Ok(bytes)
    }

    /// Where elements go behind that header.
    fn begin(&self, file: ArrayFile<'_>, head: Vec<u8>, header: Header) -> Result<Elements> {
        let array = file.state.array(file.number)?;
        let is_same = is_of(file, &header)?;
        let fortran_order = header.fortran_order && !header.view()?.is_dense();
        let in_place = is_same && fortran_order == file.format.is_fortran(array);
        let i = file.state.array_index(file.number)?;
        if let Some(why) = file.state.snapshot.bound(i).filter(|_| !is_same) {
            return Err(Error::NotPermitted(why));
        }
        let bytes = if in_place {
            self.nothing_in_block(file.state, Node::Array(file.number, file.format))?
        } else {
            self.nothing()
        };
        Ok(Elements {
            head,
            header: (!in_place).then_some(header),
            bytes,
            done: 0,
        })
    }

    /// What a handle reads of a file that it has emptied and written where the array has its elements.
    pub(super) fn rewritten_source(
        &self,
        open: &DataHandle,
    ) -> Result<Option<Arc<dyn Source>>, Library> {
        let rewritten = locked(&open.rewritten);
        let Some(Rewritten::Elements(elements)) = &*rewritten else {
            return Ok(None);
        };
        let state = self.state();
        let file = ArrayFile::of(&state, open).ok();
        let i = file.and_then(|file| state.array_index(file.number).ok().zip(Some(file.format)));
        let Some((i, format)) = i.filter(|_| elements.header.is_none() && elements.done > 0) else {
            return Ok(None);
        };
        let bytes = Arc::clone(&elements.bytes);
        format.over(&state.snapshot, i, bytes).map(Some)
    }

    /// Sets the length of the file of an array. One that is emptied is written anew; one that is being written is filled up with
    /// zeros.
    pub(super) fn resize_array(&self, open: &DataHandle, size: u64) -> Result<()> {
        let writes = open.writes()?;
        self.refresh();
        self.check_current(open.node, writes)?;
        let state = self.state();
        let file = ArrayFile::of(&state, open)?;
        let mut rewritten = locked(&open.rewritten);
        if size == 0 && (rewritten.is_some() || self.size(&state, open.node)? != 0) {
            *rewritten = self.nothing_of(&state, open.node)?;
            return Ok(());
        }
        let Some(so_far) = rewritten.as_mut() else {
            return self.check_size(open.node, size..=size);
        };
        let Rewritten::Elements(elements) = so_far else {
            return Err(fixed_size());
        };
        let full = file.full(elements.header.as_ref())?;
        if size.checked_sub(len_u64(elements.head.len())) != Some(full) {
            return Err(fixed_size());
        }
        if elements.done < full {
            // a byte at the end: what is passed over becomes zeros
            put(file, so_far, full.saturating_sub(1), &[0])?;
        }
        Ok(())
    }

    /// That all of a file that was emptied has been written, if anything has; whether it has.
    fn check_whole(&self, open: &DataHandle, writes: &Writes) -> Result<bool> {
        if locked(&open.rewritten)
            .as_ref()
            .is_none_or(Rewritten::is_nothing)
        {
            return Ok(false);
        }
        // the array of now may be another one than that which was being written
        self.check_current(open.node, writes)?;
        let state = self.state();
        let file = ArrayFile::of(&state, open)?;
        let (done, full) = match &*locked(&open.rewritten) {
            Some(Rewritten::Failed(why)) => return Err(why.clone()),
            Some(Rewritten::Head(head)) => {
                let why = format!("{} bytes written, which is no whole NPY header", head.len());
                return Err(refused(file, why, "write all of the file"));
            }
            Some(Rewritten::Elements(it)) => (it.done, file.full(it.header.as_ref())?),
            None => return Ok(false),
        };
        if done >= full {
            return Ok(true);
        }
        let why = format!("{done} bytes written of {full}");
        let advice = "write all of it, or change the shape in tree.yaml first";
        Err(refused(file, why, advice))
    }

    /// Saves a file that was emptied, once all of it is there; `None` if this one was not. What can't be saved now may be at the next sync.
    pub(super) fn save_rewritten(&self, open: &DataHandle, writes: &Writes) -> Option<Result<()>> {
        locked(&open.rewritten).as_ref()?;
        match self.check_whole(open, writes) {
            Ok(true) => Some(self.save_elements(open, writes)),
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn save_elements(&self, open: &DataHandle, writes: &Writes) -> Result<()> {
        let (header, bytes) = match &*locked(&open.rewritten) {
            Some(Rewritten::Elements(it)) => (it.header.clone(), Arc::clone(&it.bytes)),
            _ => return Ok(()),
        };
        let state = self.state();
        let file = ArrayFile::of(&state, open)?;
        match header {
            None => self.save_in_block(open, writes, &bytes),
            Some(header) if is_of(file, &header)? => {
                let placed = self.placed(file, &header, bytes)?;
                self.save_in_block(open, writes, &placed)
            }
            Some(header) => self.save_anew(open, writes, &header, &bytes),
        }
    }

    /// Notes what is lost of a file that was emptied, as its handle ends: the last sync has refused it.
    pub(super) fn note_lost_elements(&self, open: &DataHandle, writes: &Writes) {
        match self.check_whole(open, writes) {
            Ok(false) => {}
            Ok(true) => self.note_loss(writes.block, &[open.node], &"it was not saved"),
            Err(why) => self.note_loss(writes.block, &[open.node], &why),
        }
    }

    /// Elements that came in another order than that of the array, where it has them in its block.
    fn placed(
        &self,
        file: ArrayFile<'_>,
        header: &Header,
        elements: Arc<Overlay>,
    ) -> Result<Arc<Overlay>> {
        let placed = self.nothing_in_block(file.state, Node::Array(file.number, file.format))?;
        let elements = file.state.snapshot.in_c_order(header, elements)?;
        copy(&*elements, |at, piece| {
            super::elements::put(file.state, file.number, Format::Bin, &placed, at, piece)
        })?;
        Ok(placed)
    }

    /// Saves elements that lie where the array has them in its block, with what others have written into that.
    fn save_in_block(&self, open: &DataHandle, writes: &Writes, bytes: &Overlay) -> Result<()> {
        self.alone(writes.block, |draft, saved| {
            if locked(&open.rewritten).is_none() {
                // by another thread, meanwhile
                return Ok(());
            }
            self.check_current(open.node, writes)?;
            if draft.overlay.len() < bytes.len() {
                return Err(Error::Busy("its block is being made shorter"));
            }
            *locked(&writes.lost) = Arc::clone(&draft.lost);
            if let Err(error) = draft.overlay.take(bytes) {
                // some of them may be in the draft, and what others wrote is not to be saved with that
                let error = error.into();
                self.end_draft(draft, saved, Some(&error));
                return Err(error);
            }
            *locked(&open.rewritten) = None;
            draft.touch(open.node);
            self.save_held(draft, saved)
        })
    }

    /// Makes an array another one, with the whole of its block.
    fn save_anew(
        &self,
        open: &DataHandle,
        writes: &Writes,
        header: &Header,
        elements: &Arc<Overlay>,
    ) -> Result<()> {
        // with the draft of the block in hand no other is begun, on bytes that this replaces
        self.alone(writes.block, |draft, saved| {
            if draft.is_touched() {
                return Err(Error::Busy("its block is being edited"));
            }
            let done = self.commit_anew(open, writes, header, elements, saved)?;
            *locked(&open.rewritten) = None;
            locked(&self.edits.news).saved(draft.block, &[open.node]);
            self.end_draft(draft, saved, None);
            done.finished()
        })
    }

    /// Saves the text that declares an array anew, and its block.
    fn commit_anew(
        &self,
        open: &DataHandle,
        target: &Writes,
        header: &Header,
        elements: &Arc<Overlay>,
        _saved: &RwLockWriteGuard<'_, bool>,
    ) -> Result<Saved<'_>> {
        let (mut writer, state) = self.begin_save()?;
        self.check_current(open.node, target)?;
        let (n, Node::Array(number, _)) = (target.block, open.node) else {
            return Err(Error::NotFound);
        };
        let i = state.array_index(number)?;
        let path = state.array(number)?.path();
        let text = Arc::new(state.snapshot.redeclared(i, header)?);
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
        let saved = self.commit(&mut writer, &edit, &what, Precomputed::Text(checked))?;
        if let Some(tree) = locked(&self.texts).reloaded(text) {
            self.tell_tree(tree);
        }
        drop(self.announce_block(&state, n));
        Ok(saved)
    }
}

/// Takes in a piece of an NPY header. When that is whole, gives it with the bytes that came behind it.
fn collect(
    file: ArrayFile<'_>,
    head: &mut Vec<u8>,
    offset: u64,
    data: &[u8],
) -> Result<Option<(Header, Vec<u8>)>> {
    let from = usize::try_from(offset).ok().filter(|&at| at <= head.len());
    let from = from.ok_or(Error::NotPermitted(
        "an NPY file that is written anew begins with its header",
    ))?;
    let before = head.get(from..).unwrap_or_default().to_vec();
    head.truncate(from);
    head.extend_from_slice(data);
    match Header::read(head) {
        Ok(Some(header)) => {
            let rest = head.split_off(header.len);
            Ok(Some((header, rest)))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            head.truncate(from);
            head.extend(before);
            let (Library::Corrupt { why, .. } | Library::Unsupported { why, .. }) = error else {
                return Err(error.into());
            };
            let advice = "write what numpy.save does";
            Err(refused(file, why, advice))
        }
    }
}

/// Whether the array has the datatype and shape of a header.
fn is_of(file: ArrayFile<'_>, header: &Header) -> Result<bool> {
    let array = file.state.array(file.number)?;
    let known = array.datatype().zip(array.shape());
    Ok(known.is_some_and(|(datatype, shape)| header.is_of(datatype, shape)))
}

/// Puts elements where they go, from byte `at` of them on.
fn put(file: ArrayFile<'_>, so_far: &mut Rewritten, at: u64, data: &[u8]) -> Result<()> {
    let Rewritten::Elements(elements) = so_far else {
        return Ok(());
    };
    let ArrayFile {
        state,
        number,
        format,
    } = file;
    let end = at.saturating_add(len_u64(data.len()));
    if end > file.full(elements.header.as_ref())? {
        let why = match &elements.header {
            Some(_) => Error::NotPermitted("more bytes than the NPY header says"),
            None => fixed_size(),
        };
        *so_far = Rewritten::Failed(why.clone());
        return Err(why);
    }
    let bytes = &elements.bytes;
    if elements.header.is_some() {
        bytes.write(at, data)?;
    } else {
        // where all of a block is written it is sparse, but another array may lie in between
        super::elements::put_zeros(state, number, format, bytes, elements.done..at)?;
        super::elements::put(state, number, format, bytes, at, data)?;
    }
    elements.done = elements.done.max(end);
    Ok(())
}

/// Why what was written is not saved.
fn refused(file: ArrayFile<'_>, why: String, advice: &str) -> Error {
    let array = file.state.array(file.number);
    Error::Library(Library::Rejected {
        at: array.map_or(Place::File, |array| Place::Array(array.path())),
        why,
        advice: advice.to_owned(),
    })
}
