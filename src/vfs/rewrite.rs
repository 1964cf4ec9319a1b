//! Files of arrays that are emptied and written anew, as `numpy.save` and `cp` do.
//!
//! What is written is kept aside until all of the file is there. A part of it is never in the draft of the block: so a save
//! of that draft does not save half a file, and if the file is refused, nothing is lost that was written through other files. All
//! handles of the file share what is written anew: the kernel has one set of pages for them, and writes those of a map through any of
//! them. As soon as the NPY header is whole, it decides how the elements behind it are kept:
//!
//! | Header | Elements | Once they are whole, at a close or sync |
//! |---|---|---|
//! | that of the array | where the array has them in its block | they go into the draft of the block, which is saved |
//! | the other order of axes | in order | they are put where the array has them, and then as above |
//! | another datatype or shape | in order | the tree gets the new values, and the block the elements, in one save |
//!
//! A file without a header, `.bin`, is one of the first kind.

mod save;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::edit::{DataHandle, Writes, fixed_size};
use super::elements::ArrayFile;
use super::node::Node;
use super::{Error, Result, State, Vfs, locked};
use crate::asdf::Origin;
use crate::asdf::npy::Header;
use crate::error::Error as Library;
use crate::source::{Joined, Memory, Overlay, ScratchBytes, Source, Window, len_u64};

/// What is written anew of the file of an array, for all handles that have opened the file as one state shows it.
pub(super) struct Rewriting {
    /// The state when the first of these handles opened the file.
    pub(super) opened: Arc<State>,
    /// How many handles have emptied the file. When the last of them ends, a file that is not whole is given up.
    emptied: AtomicUsize,
    rewritten: Mutex<Option<Rewritten>>,
}

/// A file that was emptied.
struct Rewritten {
    so_far: SoFar,
    /// Set if what was written is given up.
    lost: Arc<OnceLock<Error>>,
    /// Why the last attempt to save it failed.
    unsaved: Option<Error>,
}

/// How far it has been written.
enum SoFar {
    /// A part of its NPY header.
    Head(Vec<u8>),
    /// Its header, if it has one, and elements.
    Elements(WrittenElements),
    /// Why a write has failed: bytes are missing now, or were too many, so that the file can't become whole.
    Failed(Error),
}

impl Rewriting {
    /// Nothing yet, of a file as that state shows it.
    pub(super) fn new(opened: &Arc<State>) -> Self {
        Self {
            opened: Arc::clone(opened),
            emptied: AtomicUsize::new(0),
            rewritten: Mutex::default(),
        }
    }

    /// Whether it is being written anew.
    pub(super) fn is_under_way(&self) -> bool {
        locked(&self.rewritten).is_some()
    }

    /// How many bytes have been written, if it is being written anew.
    pub(super) fn len(&self) -> Option<u64> {
        let rewritten = locked(&self.rewritten);
        Some(rewritten.as_ref()?.so_far.end())
    }

    /// Drops what was written: the file is what it was before.
    pub(super) fn forget(&self) {
        *locked(&self.rewritten) = None;
    }

    /// As after a write that has failed.
    #[cfg(test)]
    pub(super) fn fail(&self, why: Error) {
        if let Some(rewritten) = locked(&self.rewritten).as_mut() {
            rewritten.so_far = SoFar::Failed(why);
        }
    }
}

impl Rewritten {
    /// Whether a handle has written some of it.
    fn is_by(&self, writes: &Writes) -> bool {
        Arc::ptr_eq(&self.lost, &locked(&writes.lost))
    }

    /// Whether a sync through a handle saves it: if the handle has emptied the file, or written some of it.
    fn is_saved_by(&self, writes: &Writes) -> bool {
        writes.has_emptied.load(Ordering::Relaxed) || self.is_by(writes)
    }
}

impl SoFar {
    /// Whether there is nothing to save: no byte was written, or only the header that the array has anyway.
    fn is_nothing(&self) -> bool {
        match self {
            Self::Head(head) => head.is_empty(),
            Self::Elements(elements) => elements.done == 0 && elements.header.is_none(),
            Self::Failed(_) => false,
        }
    }

    /// Where a handle that appends writes.
    fn end(&self) -> u64 {
        match self {
            Self::Head(head) => len_u64(head.len()),
            Self::Elements(it) => len_u64(it.head.len()).saturating_add(it.done),
            Self::Failed(_) => 0,
        }
    }
}

/// What was written of a file behind its header.
pub(super) struct WrittenElements {
    /// The header, which may not change any more.
    head: Vec<u8>,
    /// The parsed header, unless it has the datatype, shape and order of the array.
    header: Option<Header>,
    /// The elements: in their order if there is a `header`, else where the array has them in its block.
    bytes: Arc<Overlay>,
    /// How many bytes of elements have been written, counted in their order.
    done: u64,
}

impl Vfs {
    /// Writes into the file of an array that was emptied; `None` if it was not.
    pub(super) fn rewrite(
        &self,
        open: &DataHandle,
        writes: &Writes,
        offset: Option<u64>,
        data: &[u8],
    ) -> Option<Result<()>> {
        if !open.rewriting.is_under_way() {
            return None;
        }
        self.refresh();
        if let Err(stale) = self.check_current(open, writes) {
            return Some(Err(stale));
        }
        let state = self.state();
        let kept = open.check_kept();
        let mut rewritten = locked(&open.rewriting.rewritten);
        let Rewritten { so_far, lost, .. } = rewritten.as_mut()?;
        let file = kept.and_then(|()| ArrayFile::of(&state, open.node));
        let written = file.and_then(|file| {
            *locked(&writes.lost) = Arc::clone(lost);
            let offset = offset.unwrap_or_else(|| so_far.end());
            self.write_elements(file, so_far, offset, data)
        });
        if let Err(error @ Error::Library(Library::Io { .. } | Library::NoRoom { .. })) = &written {
            // after a refusal another write may be right, but here bytes are missing
            *so_far = SoFar::Failed(error.clone());
        }
        Some(written)
    }

    /// Takes in what is written at `offset` of the file; the caller holds the lock that `so_far` is behind. Once the header is
    /// whole, elements go behind it, and the header may only be written again as it is.
    fn write_elements(
        &self,
        file: ArrayFile<'_>,
        so_far: &mut SoFar,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let elements = match so_far {
            SoFar::Failed(why) => return Err(why.clone()),
            SoFar::Elements(elements) => elements,
            SoFar::Head(head) => {
                let Some((header, rest)) = collect(file, head, offset, data)? else {
                    return Ok(());
                };
                let head = std::mem::take(head);
                *so_far = SoFar::Elements(self.begin(file, head, header)?);
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

    /// Has the file of an array written anew.
    pub(super) fn begin_anew(
        &self,
        open: &DataHandle,
        writes: &Writes,
        state: &State,
    ) -> Result<()> {
        let so_far = match open.node {
            Node::Array(_, format) if format.has_header() => SoFar::Head(Vec::new()),
            node => SoFar::Elements(WrittenElements {
                head: Vec::new(),
                header: None,
                bytes: self.nothing_in_block(ArrayFile::of(state, node)?)?,
                done: 0,
            }),
        };
        if !writes.has_emptied.swap(true, Ordering::Relaxed) {
            open.rewriting.emptied.fetch_add(1, Ordering::Relaxed);
        }
        let mut rewritten = locked(&open.rewriting.rewritten);
        let lost = match rewritten.take() {
            // what was written is cut off, as on any file system: the handles that wrote it get an error, and can't write to the new file
            Some(before) if !before.so_far.is_nothing() && !before.is_by(writes) => {
                let why =
                    "it has been emptied through another descriptor; open it again to write to it";
                let _ = before.lost.set(
                    Library::Stale {
                        why: why.to_owned(),
                    }
                    .into(),
                );
                Arc::default()
            }
            before => before.map(|before| before.lost).unwrap_or_default(),
        };
        *rewritten = Some(Rewritten {
            so_far,
            lost,
            unsaved: None,
        });
        Ok(())
    }

    /// An overlay over no bytes.
    fn nothing(&self) -> Arc<Overlay> {
        let empty = Arc::new(Memory::new(Vec::new()));
        Arc::new(Overlay::new(empty, ScratchBytes::new(&self.edits.scratch)))
    }

    /// An overlay as long as the block of an array, to put elements where the array has them.
    fn nothing_in_block(&self, file: ArrayFile<'_>) -> Result<Arc<Overlay>> {
        let Origin::Block(block) = *file.array.origin() else {
            return Err(Error::NotFound);
        };
        let bytes = self.nothing();
        let len = file.state.snapshot.block_len(block);
        bytes.resize(len.ok_or(Error::NotFound)?);
        Ok(bytes)
    }

    /// Begins to take elements behind that header, which is `head` parsed.
    fn begin(&self, file: ArrayFile<'_>, head: Vec<u8>, header: Header) -> Result<WrittenElements> {
        let is_same = file.is_of(&header);
        let fortran_order = header.fortran_order && !header.view()?.is_dense();
        let in_place = is_same && fortran_order == file.format.is_fortran(file.array);
        let bound = file.state.snapshot.bound(file.index);
        if let Some(why) = bound.filter(|_| !is_same) {
            return Err(Error::NotPermitted(why));
        }
        let bytes = if in_place {
            self.nothing_in_block(file)?
        } else {
            let bytes = self.nothing();
            bytes.resize(header.data_len());
            bytes
        };
        Ok(WrittenElements {
            head,
            header: (!in_place).then_some(header),
            bytes,
            done: 0,
        })
    }

    /// What a handle reads of a file that is written anew: what has been written so far.
    pub(super) fn rewritten_source(
        &self,
        open: &DataHandle,
    ) -> Result<Option<Arc<dyn Source>>, Library> {
        let rewritten = locked(&open.rewriting.rewritten);
        let elements = match rewritten.as_ref().map(|it| &it.so_far) {
            None | Some(SoFar::Failed(_)) => return Ok(None),
            Some(SoFar::Head(head)) => return Ok(Some(Arc::new(Memory::new(head.clone())))),
            Some(SoFar::Elements(elements)) => elements,
        };
        let state = self.state();
        let Ok(file) = ArrayFile::of(&state, open.node) else {
            return Ok(None);
        };
        let bytes = Arc::clone(&elements.bytes);
        let body: Arc<dyn Source> = if elements.header.is_some() {
            Arc::new(Window::new(bytes, 0, elements.done)?)
        } else {
            let before = file.format.header_len(&state.snapshot, file.index)?;
            let over = file.format.over(&state.snapshot, file.index, bytes)?;
            Arc::new(Window::new(over, before, elements.done)?)
        };
        let head = Arc::new(Memory::new(elements.head.clone()));
        Ok(Some(Arc::new(Joined::new(head, body)?)))
    }

    /// Sets the length of the file of an array. One that is emptied is written anew; one that is being written is filled up with
    /// zeros.
    pub(super) fn resize_array(&self, open: &DataHandle, size: u64) -> Result<()> {
        let writes = open.writes()?;
        self.refresh();
        self.check_current(open, writes)?;
        let state = self.state();
        let file = ArrayFile::of(&state, open.node)?;
        let under_way = open.rewriting.is_under_way();
        if size == 0 && (under_way || self.size(&state, open.node)? != 0) {
            return self.begin_anew(open, writes, &state);
        }
        if !under_way {
            return self.check_size(open.node, size..=size);
        }
        let mut rewritten = locked(&open.rewriting.rewritten);
        let Some(Rewritten { so_far, lost, .. }) = rewritten.as_mut() else {
            return Ok(());
        };
        let SoFar::Elements(elements) = so_far else {
            return Err(fixed_size());
        };
        *locked(&writes.lost) = Arc::clone(lost);
        let full = file.full(elements.header.as_ref());
        if size.checked_sub(len_u64(elements.head.len())) != Some(full) {
            return Err(fixed_size());
        }
        if elements.done < full {
            // to write the last byte puts zeros before it
            put(file, so_far, full.saturating_sub(1), &[0])?;
        }
        Ok(())
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
    let end = from.saturating_add(data.len()).min(head.len());
    head.splice(from..end, data.iter().copied());
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
            Err(file.refused(why, advice))
        }
    }
}

/// Puts elements where they go, from byte `at` of them on.
fn put(file: ArrayFile<'_>, so_far: &mut SoFar, at: u64, data: &[u8]) -> Result<()> {
    let SoFar::Elements(elements) = so_far else {
        return Ok(());
    };
    let end = at.saturating_add(len_u64(data.len()));
    if end > file.full(elements.header.as_ref()) {
        let why = match &elements.header {
            Some(_) => Error::NotPermitted("more bytes than the NPY header says"),
            None => fixed_size(),
        };
        *so_far = SoFar::Failed(why.clone());
        return Err(why);
    }
    let bytes = &elements.bytes;
    if elements.header.is_some() {
        bytes.write(at, data)?;
    } else {
        // zeros only over this array's elements: another array may lie between them in the block
        file.put_zeros(bytes, elements.done..at)?;
        file.put(bytes, at, data)?;
    }
    elements.done = elements.done.max(end);
    Ok(())
}
