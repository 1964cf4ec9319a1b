//! Files of arrays that are emptied and written anew, as `numpy.save` and `cp` do.
//!
//! What an NPY header says decides, as soon as it is whole, where the elements behind it go:
//!
//! | Header | Elements | At the close |
//! |---|---|---|
//! | that of the array | where the array has them, in the draft of its block | the draft is saved |
//! | the other order of axes | aside, in the spool | they are put where the array has them |
//! | another datatype or shape | aside, in the spool | the tree gets the new values, and the block the elements, in one save |
//!
//! A file without a header, `.bin`, is one of the first kind.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};

use super::block_edits::BlockDraft;
use super::commit::Sum;
use super::edit::{DataHandle, Writes, fixed_size};
use super::format::Format;
use super::node::Node;
use super::publish::{Precomputed, Saved};
use super::{Error, Result, State, Vfs, locked};
use crate::asdf::check::check_text;
use crate::asdf::npy::Header;
use crate::error::{Error as Library, Place};
use crate::save::edit::{BlockEdit, Edit};
use crate::source::{Memory, Overlay, Source, len_u64};

/// How much is copied at a time.
const CHUNK: usize = 1 << 20;

/// How far a file is that was emptied.
pub(super) enum Rewritten {
    /// So much of its NPY header, which is not whole.
    Head(Vec<u8>),
    /// The header, and how many bytes of elements have been written where the array has them.
    InPlace { head: Vec<u8>, done: u64 },
    /// The header, and the elements aside.
    Aside {
        head: Vec<u8>,
        header: Header,
        elements: Arc<Overlay>,
    },
    /// A write was refused that went beyond the array of the header.
    TooLong,
    /// All of it has been saved.
    Saved,
}

impl Rewritten {
    /// Of a file of which nothing has been written.
    pub(super) fn nothing(format: Format) -> Self {
        match format {
            Format::Bin => Self::InPlace {
                head: Vec::new(),
                done: 0,
            },
            Format::Npy => Self::Head(Vec::new()),
        }
    }

    /// The bytes in front of the elements.
    fn head(&self) -> &[u8] {
        match self {
            Self::Head(head) | Self::InPlace { head, .. } | Self::Aside { head, .. } => head,
            Self::TooLong | Self::Saved => &[],
        }
    }
}

impl DataHandle {
    /// Whether what was written through it so far is not in the draft of its block.
    pub(super) fn is_aside(&self) -> bool {
        matches!(
            &*locked(&self.rewritten),
            Some(Rewritten::Head(_) | Rewritten::Aside { .. } | Rewritten::TooLong)
        )
    }

    /// Whether elements of an array that was emptied were written through it into the draft of its block.
    fn is_part(&self) -> bool {
        let rewritten = locked(&self.rewritten);
        let part = matches!(&*rewritten, Some(Rewritten::InPlace { done, .. }) if *done > 0);
        drop(rewritten);
        part || self.failure().is_some() && !self.is_aside()
    }

    /// Notes that a write to an array that was emptied has failed; not a refusal, after which another write may be right.
    pub(super) fn note_failure(&self, error: &Error) {
        if let Error::Library(Library::Io { .. } | Library::NoRoom { .. }) = error {
            locked(&self.failed).get_or_insert_with(|| Box::new(error.clone()));
        }
    }

    /// Why a write to an array that was emptied has failed.
    pub(super) fn failure(&self) -> Option<Error> {
        locked(&self.failed).as_deref().cloned()
    }
}

/// The file of an array in a state.
#[derive(Clone, Copy)]
struct ArrayFile<'a> {
    state: &'a State,
    number: u32,
    format: Format,
}

impl Vfs {
    /// Writes into the file of an array that was emptied.
    pub(super) fn rewrite(
        &self,
        rewritten: &mut Rewritten,
        (number, format): (u32, Format),
        draft: &BlockDraft,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let state = self.state();
        let file = ArrayFile {
            state: &state,
            number,
            format,
        };
        if let Rewritten::Head(head) = rewritten {
            let Some((header, rest)) = collect(file, head, offset, data)? else {
                return Ok(());
            };
            let head = std::mem::take(head);
            *rewritten = self.begin(file, head, header)?;
            return put(file, rewritten, draft, 0, &rest);
        }
        let head = rewritten.head();
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
        put(file, rewritten, draft, at, data)
    }

    /// Where elements go behind that header.
    fn begin(&self, file: ArrayFile<'_>, head: Vec<u8>, header: Header) -> Result<Rewritten> {
        let array = file.state.array(file.number)?;
        let is_same = is_of(file, &header)?;
        let fortran_order = header.fortran_order && !header.view()?.is_dense();
        if is_same && fortran_order == file.format.is_fortran(array) {
            return Ok(Rewritten::InPlace { head, done: 0 });
        }
        let i = file.state.array_index(file.number)?;
        if let Some(why) = file.state.snapshot.bound(i).filter(|_| !is_same) {
            return Err(Error::NotPermitted(why));
        }
        let nothing = Arc::new(Memory::new(Vec::new()));
        let elements = Overlay::new(nothing, self.edits.spool.part());
        Ok(Rewritten::Aside {
            head,
            header,
            elements: Arc::new(elements),
        })
    }

    /// Sets the length of the file of an array. One that is emptied is written anew; one that is being written is filled up with
    /// zeros.
    pub(super) fn resize_array(
        &self,
        open: &DataHandle,
        draft: &BlockDraft,
        size: u64,
    ) -> Result<()> {
        let Node::Array(number, format) = open.node else {
            return Err(Error::NotFound);
        };
        let state = self.state();
        let file = ArrayFile {
            state: &state,
            number,
            format,
        };
        let mut rewritten = locked(&open.rewritten);
        if size == 0 {
            *locked(&open.failed) = None;
        }
        let Some(so_far) = rewritten.as_mut() else {
            if size != 0 || self.size(&state, open.node)? == 0 {
                return self.check_size(open.node, size..=size);
            }
            *rewritten = Some(Rewritten::nothing(format));
            return Ok(());
        };
        if size == 0 && !matches!(so_far, Rewritten::Saved) {
            *so_far = Rewritten::nothing(format);
            return Ok(());
        }
        let Some(len) = size.checked_sub(len_u64(so_far.head().len())) else {
            return Err(fixed_size());
        };
        let (full, done) = match so_far {
            Rewritten::InPlace { done, .. } => (state.array(number)?.bin_len(), *done),
            Rewritten::Aside {
                header, elements, ..
            } => (header.data_len(), elements.len()),
            Rewritten::Head(_) | Rewritten::TooLong | Rewritten::Saved => return Err(fixed_size()),
        };
        if len != full {
            return Err(fixed_size());
        }
        match so_far {
            Rewritten::Aside { elements, .. } => elements.resize(full),
            _ if done < full => {
                // a byte at the end: what is passed over becomes zeros
                let last = full.saturating_sub(1);
                put(file, so_far, draft, last, &[0])?;
            }
            _ => {}
        }
        Ok(())
    }

    /// That a file that was emptied has been written to its end, if it was written to.
    pub(super) fn check_rewritten(&self, open: &DataHandle) -> Result<()> {
        let Node::Array(number, _) = open.node else {
            return Ok(());
        };
        if matches!(&*locked(&open.rewritten), None | Some(Rewritten::Saved)) {
            return Ok(());
        }
        if let Some(failed) = open.failure() {
            return Err(failed);
        }
        if let Some(writes) = &open.writes {
            // the array of now may be another one than that which was being written
            self.check_current(open.node, writes)?;
        }
        let state = self.state();
        let (done, full) = match &*locked(&open.rewritten) {
            Some(Rewritten::InPlace { done, .. }) => (*done, state.array(number)?.bin_len()),
            Some(Rewritten::Aside {
                header, elements, ..
            }) => (elements.len(), header.data_len()),
            Some(Rewritten::Head(head)) if !head.is_empty() => {
                let why = format!("{} bytes written, which is no whole NPY header", head.len());
                return Err(refused(&state, number, why, "write all of the file"));
            }
            Some(Rewritten::TooLong) => return Err(too_long()),
            _ => return Ok(()),
        };
        if done >= full {
            return Ok(());
        }
        let why = format!("{done} bytes written of {full}");
        let advice = "write all of it, or change the shape in tree.yaml first";
        Err(refused(&state, number, why, advice))
    }

    /// The same, before the draft is saved that it was written into. A part of a file, which is refused, spoils the draft. There is no
    /// draft any more if the close of another writer has saved the part, or the draft was given up.
    pub(super) fn check_part(&self, open: &DataHandle, draft: Option<&BlockDraft>) -> Result<()> {
        let is_part = open.is_part();
        if draft.is_none() && !is_part {
            return Ok(());
        }
        let whole = self.check_rewritten(open);
        match (draft.filter(|_| is_part), &whole) {
            // what another handle wrote says nothing of the part
            (Some(draft), Ok(())) => draft.mend(open.node),
            (Some(draft), Err(error)) => draft.spoil(open.node, error),
            (None, _) => {}
        }
        whole
    }

    /// Gives up a draft that holds nothing but a part of a file that was refused, as the handle that wrote it is closed.
    pub(super) fn abandon_parts(&self, open: &DataHandle, block: usize) {
        let draft = self.edits.get(block);
        let parts = draft.filter(|draft| draft.is_refused_part());
        if let Some(error) = parts.and_then(|draft| draft.spoilt()) {
            self.abandon(open, &error);
        }
    }

    /// Saves a file whose elements lie aside; nothing of any other.
    pub(super) fn save_aside(&self, open: &DataHandle, writes: &Writes) -> Option<Result<()>> {
        let (header, elements) = match &*locked(&open.rewritten) {
            Some(Rewritten::Head(head)) if !head.is_empty() => (None, None),
            Some(Rewritten::TooLong) => (None, None),
            Some(Rewritten::Aside {
                header, elements, ..
            }) => (Some(header.clone()), Some(Arc::clone(elements))),
            _ => return None,
        };
        let whole = self.check_rewritten(open);
        let (Ok(()), Some((header, elements))) = (&whole, header.zip(elements)) else {
            return Some(whole);
        };
        let Node::Array(number, format) = open.node else {
            return None;
        };
        let state = self.state();
        let file = ArrayFile {
            state: &state,
            number,
            format,
        };
        let saved = match is_of(file, &header) {
            Ok(true) => self.put_in_order(open, number, &header, &elements),
            Ok(false) => self.save_anew(open, writes, &header, &elements),
            Err(error) => Err(error),
        };
        if matches!(saved, Ok(()) | Err(Error::Unfinished(..))) {
            *locked(&open.rewritten) = Some(Rewritten::Saved);
        }
        Some(saved)
    }

    /// Saves elements that came in another order than that of the array.
    fn put_in_order(
        &self,
        open: &DataHandle,
        number: u32,
        header: &Header,
        elements: &Arc<Overlay>,
    ) -> Result<()> {
        let begun = Cell::new(false);
        let put = self.change(open, |draft| {
            if draft.is_touched() {
                return Err(Error::Busy("its block is being edited"));
            }
            begun.set(true);
            let state = self.state();
            let elements = state.snapshot.in_c_order(header, elements.clone())?;
            let mut buffer = vec![0; CHUNK];
            let mut at = 0;
            while at < elements.len() {
                let left = usize::try_from(elements.len().saturating_sub(at));
                let len = left.map_or(CHUNK, |left| left.min(CHUNK));
                let chunk = buffer.get_mut(..len).unwrap_or_default();
                elements.read_exact_at(chunk, at)?;
                super::elements::put(&state, number, Format::Bin, draft, at, chunk)?;
                at = at.saturating_add(len_u64(len));
            }
            draft.touch(open.node);
            Ok(draft.block)
        });
        if let (Err(error), true) = (&put, begun.get()) {
            // nothing may be built on half of it
            self.abandon(open, error);
        }
        let draft = self.edits.get(put?);
        draft.map_or(Ok(()), |draft| self.save_block(&draft))
    }

    /// Makes an array another one, with the whole of its block.
    fn save_anew(
        &self,
        open: &DataHandle,
        writes: &Writes,
        header: &Header,
        elements: &Arc<Overlay>,
    ) -> Result<()> {
        loop {
            // with the draft of the block in hand no other is begun, on bytes that this replaces
            let draft = self.draft(writes.block)?;
            let mut saved = draft.saved.write().unwrap_or_else(PoisonError::into_inner);
            if *saved {
                continue;
            }
            if draft.is_touched() {
                return Err(Error::Busy("its block is being edited"));
            }
            let done = self.commit_anew(open, writes, header, elements, &saved)?;
            locked(&self.edits.news).saved(draft.block, &[open.node]);
            *saved = true;
            self.edits.remove(&draft, true);
            return done.finished();
        }
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
            Err(refused(file.state, file.number, why, advice))
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
fn put(
    ArrayFile {
        state,
        number,
        format,
    }: ArrayFile<'_>,
    rewritten: &mut Rewritten,
    draft: &BlockDraft,
    at: u64,
    data: &[u8],
) -> Result<()> {
    let end = at.saturating_add(len_u64(data.len()));
    match rewritten {
        Rewritten::InPlace { done, .. } => {
            if end > state.array(number)?.bin_len() {
                return Err(fixed_size());
            }
            super::elements::put_zeros(state, number, format, draft, *done..at)?;
            super::elements::put(state, number, format, draft, at, data)?;
            draft.touch_part(Node::Array(number, format), *done == 0);
            *done = (*done).max(end);
            Ok(())
        }
        Rewritten::Aside {
            header, elements, ..
        } => {
            if end > header.data_len() {
                *rewritten = Rewritten::TooLong;
                return Err(too_long());
            }
            Ok(elements.write(at, data)?)
        }
        Rewritten::TooLong => Err(too_long()),
        Rewritten::Head(_) | Rewritten::Saved => {
            let why = "the array has been saved; open it again to write to it".to_owned();
            Err(Library::Stale { why }.into())
        }
    }
}

/// Why a file is not saved that goes on behind its array.
fn too_long() -> Error {
    Error::NotPermitted("more bytes than the NPY header says")
}

/// Why what was written is not saved.
fn refused(state: &State, number: u32, why: String, advice: &str) -> Error {
    let path = state.array(number).map(crate::asdf::Array::path);
    Error::Library(Library::Rejected {
        at: path.map_or(Place::File, Place::Array),
        why,
        advice: advice.to_owned(),
    })
}
