//! The open files of the root. Each handle that writes to `tree.yaml` has its own version of the text until that is saved.

use std::sync::Arc;
use std::time::SystemTime;

use super::{TREE_NAME, Texts};
use crate::asdf::text::TEXT_LIMIT;
use crate::source::len_u64;
use crate::vfs::beside::taken;
use crate::vfs::{Access, Error};

/// Names an open file of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::vfs) struct TextHandle {
    /// The file.
    pub(in crate::vfs) number: u32,
    /// Tells it from others of that file.
    id: u64,
}

/// What is known of an open file of the root.
#[derive(Debug)]
pub(super) struct OpenText {
    /// What was written through it; only of `tree.yaml`.
    draft: Option<TextDraft>,
    /// The epoch of the text that it showed when it was opened.
    pub(super) text_epoch: u64,
    /// Whether a descriptor of it was closed after the last write. If it was the last one, the kernel will release the handle soon.
    closing: bool,
}

/// A handle's own version of the text.
#[derive(Debug)]
struct TextDraft {
    bytes: Arc<Vec<u8>>,
    /// Whether it was changed since it was last saved.
    touched: bool,
    /// Whether all of it was written through maps of the file.
    mapped: bool,
    /// Why it was refused after its last change, and FILE's text at that time.
    refused: Option<(Error, Arc<Vec<u8>>)>,
}

/// A text that is to be saved.
#[derive(Debug)]
pub(in crate::vfs) struct Unsaved {
    pub(in crate::vfs) text: Arc<Vec<u8>>,
    /// The file that it was written to.
    pub(in crate::vfs) number: u32,
    /// The epoch of the text that it was made of.
    pub(super) text_epoch: u64,
    /// The handle that it was written through; `None` if it is the text of a file that is about to become `tree.yaml`.
    pub(in crate::vfs) through: Option<TextHandle>,
    /// Whether `tree.yaml` shows it.
    pub(super) shown: bool,
}

impl TextDraft {
    /// Whether a YAML document has begun: whether a line begins with `---`.
    fn has_document(&self) -> bool {
        self.bytes
            .split(|&byte| byte == b'\n')
            .any(|line| line.starts_with(b"---"))
    }

    /// Whether it may be the beginning of a text, which is not saved yet: blank, or comments without a document.
    fn is_beginning(&self) -> bool {
        self.is_blank() || (self.bytes.starts_with(b"#") && !self.has_document())
    }

    fn is_blank(&self) -> bool {
        is_blank(&self.bytes)
    }
}

/// Whether a text has nothing in it but blanks and the zeros of a hole.
pub(super) fn is_blank(text: &[u8]) -> bool {
    let blank = |&byte: &u8| byte == 0 || byte.is_ascii_whitespace();
    text.iter().all(blank)
}

impl Texts {
    /// Opens a file. To truncate `tree.yaml` gives the handle an empty draft; a scratch file is emptied itself.
    ///
    /// # Errors
    /// [`Error::NotFound`], also for a file that was `tree.yaml` before another program changed FILE, and has no other name; of
    /// [`Texts::check_lives`].
    pub(in crate::vfs) fn open(
        &mut self,
        number: u32,
        access: Access,
    ) -> Result<TextHandle, Error> {
        if !access.only_reads() {
            self.check_lives(number)?;
        }
        let file = self.file(number)?;
        if file.superseded.is_some() && file.names == 0 {
            return Err(Error::NotFound);
        }
        let text_epoch = self.shown_epoch(number);
        if access.write {
            self.pages_are_of_text = Some(false);
            if self.is_tree(number) {
                // a file that another process makes under the name must not replace what is written here
                self.vacancy = None;
            }
        }
        let id = self.opened;
        let handle = TextHandle { number, id };
        self.opened = self.opened.saturating_add(1);
        let open = OpenText {
            draft: None,
            text_epoch,
            closing: false,
        };
        self.open.insert(handle, open);
        if access.truncate
            && let Err(error) = self.resize(handle, 0)
        {
            self.release(handle);
            return Err(error);
        }
        Ok(handle)
    }

    /// Checks that a file may be written to: not if it has neither a name nor a handle, as what is written to it would be lost.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(in crate::vfs) fn check_lives(&self, number: u32) -> Result<(), Error> {
        if self.file(number)?.names == 0 && !self.is_open(number) {
            return Err(Error::NotFound);
        }
        Ok(())
    }

    /// Whether what is written through this handle is the text of FILE, rather than that of a scratch file.
    fn is_text(&self, handle: TextHandle) -> bool {
        let file = self.file(handle.number);
        let superseded = file.ok().and_then(|file| file.superseded);
        self.is_tree(handle.number) || superseded.is_some_and(|handles| handle.id < handles)
    }

    /// Whether what is written through this handle is its own draft. While the file is being saved to become `tree.yaml`, what other
    /// threads write to it is not in the text that is saved, but is of the text of FILE after that.
    fn has_draft(&self, handle: TextHandle) -> bool {
        self.is_text(handle) || self.file(handle.number).is_ok_and(|file| file.becoming)
    }

    pub(super) fn opened(&self, handle: TextHandle) -> Result<&OpenText, Error> {
        self.open.get(&handle).ok_or(Error::BadHandle)
    }

    /// Whether any handle has that file open.
    pub(in crate::vfs) fn is_open(&self, number: u32) -> bool {
        self.open.keys().any(|handle| handle.number == number)
    }

    /// Whether a handle has written to that file what is not saved.
    pub(in crate::vfs) fn is_written(&self, number: u32) -> bool {
        let mut handles = self.open.iter();
        handles.any(|(handle, open)| handle.number == number && open.touched().is_some())
    }

    /// The bytes that this handle sees: its own draft, or what the file shows.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub(in crate::vfs) fn view(&self, handle: TextHandle) -> Result<Arc<Vec<u8>>, Error> {
        let open = self.opened(handle)?;
        match open.touched() {
            Some(draft) => Ok(Arc::clone(&draft.bytes)),
            None => self.bytes(handle.number).cloned(),
        }
    }

    /// Writes at an offset, filling a hole with zeros. `mapped`: whether the bytes are of a map.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::ScratchFull`].
    pub(in crate::vfs) fn write(
        &mut self,
        handle: TextHandle,
        offset: u64,
        data: &[u8],
        mapped: bool,
    ) -> Result<(), Error> {
        let touched = self.opened(handle)?.touched();
        let only_mapped = mapped && touched.is_none_or(|draft| draft.mapped);
        let bytes = Arc::clone(self.own(handle)?);
        let start = self.checked_len(offset)?;
        self.put(handle, bytes, start, data)?;
        let open = self.open.get_mut(&handle);
        if let Some(draft) = open.and_then(|open| open.draft.as_mut()) {
            draft.mapped = only_mapped;
        }
        Ok(())
    }

    /// Writes at the end of what the file shows, so behind what others have appended.
    ///
    /// # Errors
    /// As [`Texts::write`].
    pub(in crate::vfs) fn append(&mut self, handle: TextHandle, data: &[u8]) -> Result<(), Error> {
        self.opened(handle)?;
        let bytes = Arc::clone(self.bytes(handle.number)?);
        let end = bytes.len();
        self.put(handle, bytes, end, data)
    }

    /// Puts data into bytes, which the file has from then on as [`Texts::change`] says.
    fn put(
        &mut self,
        handle: TextHandle,
        bytes: Arc<Vec<u8>>,
        start: usize,
        data: &[u8],
    ) -> Result<(), Error> {
        let end = start
            .checked_add(data.len())
            .ok_or(Error::TooBig("beyond the limit of a tree"))?;
        self.checked_len(len_u64(end))?;
        let len = bytes.len().max(end);
        self.change(handle, bytes, len, |bytes| {
            if let Some(place) = bytes.get_mut(start..end) {
                place.copy_from_slice(data);
            }
        })
    }

    /// Sets the length, filling with zeros.
    ///
    /// # Errors
    /// [`Error::TooBig`], [`Error::ScratchFull`].
    pub(in crate::vfs) fn resize(&mut self, handle: TextHandle, len: u64) -> Result<(), Error> {
        let len = self.checked_len(len)?;
        let bytes = Arc::clone(self.own(handle)?);
        self.change(handle, bytes, len, |_| ())
    }

    /// Sets the length if what the handle sees is shorter.
    ///
    /// # Errors
    /// As [`Texts::resize`].
    pub(in crate::vfs) fn extend(&mut self, handle: TextHandle, len: u64) -> Result<(), Error> {
        if len > len_u64(self.view(handle)?.len()) {
            self.resize(handle, len)?;
        }
        Ok(())
    }

    /// The length, if a file may have it: up to the limit of a tree, or that of all scratch files if it is greater.
    fn checked_len(&self, len: u64) -> Result<usize, Error> {
        if len > TEXT_LIMIT.max(self.room.limit()) {
            return Err(Error::TooBig("beyond the limit of a tree"));
        }
        usize::try_from(len).map_err(|_| Error::TooBig("beyond the address space"))
    }

    /// The bytes that a change through this handle starts from. Until a file that is being saved has become `tree.yaml`, its writers
    /// share its bytes as those of any scratch file do.
    fn own(&self, handle: TextHandle) -> Result<&Arc<Vec<u8>>, Error> {
        let (open, shown) = (self.opened(handle)?, self.bytes(handle.number)?);
        let draft = open.draft.as_ref().map(|draft| &draft.bytes);
        Ok(draft.filter(|_| self.is_text(handle)).unwrap_or(shown))
    }

    /// Makes bytes `len` long, has them edited, and gives them to the handle. If the limit does not allow that, nothing changes.
    fn change(
        &mut self,
        handle: TextHandle,
        mut bytes: Arc<Vec<u8>>,
        len: usize,
        edit: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let number = handle.number;
        let (is_text, has_draft) = (self.is_text(handle), self.has_draft(handle));
        if self.file(number)?.taken {
            return Err(taken());
        }
        self.check_room(number, len_u64(len))?;
        self.set_draft(handle, None);
        let text_epoch = self.text_epoch;
        let file = self.file_mut(number)?;
        file.backup &= is_text;
        if len == 0 {
            // a program that empties a file writes into it what it makes of FILE's text of now
            file.text_epoch = text_epoch;
        }
        // the file lets go of the bytes, so that they have one owner and are not copied
        self.show(number, Arc::default())?;
        let owned = Arc::make_mut(&mut bytes);
        let shorter = len < owned.len();
        owned.resize(len, 0);
        if shorter {
            owned.shrink_to_fit();
        }
        edit(owned);
        let draft = has_draft.then(|| TextDraft {
            bytes: Arc::clone(&bytes),
            touched: true,
            mapped: false,
            refused: None,
        });
        self.set_draft(handle, draft);
        self.show(number, bytes)?;
        self.recount(number);
        Ok(())
    }

    /// Gives a handle another draft, or none. It counts as in use again, whatever descriptors of it were closed before.
    fn set_draft(&mut self, handle: TextHandle, draft: Option<TextDraft>) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.draft = draft;
            open.closing = false;
        }
    }

    /// Has readers of a file see these bytes, as written now. The caller tells the kernel.
    pub(super) fn show(&mut self, number: u32, bytes: Arc<Vec<u8>>) -> Result<(), Error> {
        self.pages_are_of_text = Some(false);
        let file = self.file_mut(number)?;
        file.bytes = bytes;
        file.facts.mtime = SystemTime::now();
        Ok(())
    }

    /// What a flush of this handle saves: nothing if nothing was written since the last save, if no document has begun, or if the
    /// file is not `tree.yaml`. A handle without a draft saves what maps have written: the kernel writes their pages through any handle of
    /// the file.
    ///
    /// # Errors
    /// [`Error::BadHandle`]; why the text was refused, if FILE has got another text since: the refused one must not take its place.
    pub(in crate::vfs) fn to_save(&self, handle: TextHandle) -> Result<Option<Unsaved>, Error> {
        self.opened(handle)?;
        match self.drafted(handle) {
            None => Ok(None),
            Some(_) if !self.has_draft(handle) => Ok(None),
            Some((_, _, draft)) if draft.is_beginning() => Ok(None),
            Some((through, open, draft)) => match &draft.refused {
                Some((why, committed)) if self.has_other_text(committed, draft) => Err(why.clone()),
                _ => Ok(Some(open.unsaved(through, &draft.bytes, true))),
            },
        }
    }

    /// What was written through this handle since it was last saved; if nothing was, what a handle of the same file has of maps.
    fn drafted(&self, handle: TextHandle) -> Option<(TextHandle, &OpenText, &TextDraft)> {
        let written = |(&handle, open)| Some((handle, open, OpenText::touched(open)?));
        let own = self.open.get_key_value(&handle).and_then(written);
        let mut of_file = self.open.iter().filter(|it| it.0.number == handle.number);
        own.or_else(|| of_file.find_map(|it| written(it).filter(|(_, _, draft)| draft.mapped)))
    }

    /// Whether FILE has got another text since its text was `then`, and not that of the draft.
    fn has_other_text(&self, then: &Arc<Vec<u8>>, draft: &TextDraft) -> bool {
        !Arc::ptr_eq(then, &self.committed) && *self.committed != *draft.bytes
    }

    /// Why the text of this handle was refused, if it was since it was changed.
    pub(in crate::vfs) fn refused_through(&self, handle: TextHandle) -> Option<Error> {
        let draft = self.opened(handle).ok()?.draft.as_ref()?;
        draft.refused.as_ref().map(|(why, _)| why.clone())
    }

    /// The text that closing this handle would lose: a draft in which something was written, but no document has begun.
    pub(in crate::vfs) fn unfinished(&self, handle: TextHandle) -> Option<Unsaved> {
        let open = self.opened(handle).ok()?;
        let draft = open.touched()?;
        let text = &draft.bytes;
        let begun = draft.is_beginning() && !draft.is_blank() && *text != self.committed;
        if !begun || !self.has_draft(handle) {
            return None;
        }
        // not if the file shows what another handle has written since
        let shown = Arc::ptr_eq(self.bytes(handle.number).ok()?, text);
        let unsaved = open.unsaved(handle, text, false);
        Some(Unsaved {
            shown: shown && !self.is_outdated(&unsaved),
            ..unsaved
        })
    }

    /// Notes that a descriptor of this handle has been closed.
    pub(in crate::vfs) fn note_closing(&mut self, handle: TextHandle) {
        if let Some(open) = self.open.get_mut(&handle) {
            open.closing = true;
        }
    }

    /// Whether a handle is likely to be released soon whose text is refused then.
    pub(in crate::vfs) fn awaits_refusal(&self) -> bool {
        let mut closing = self.open.iter().filter(|(_, open)| open.closing);
        closing.any(|(handle, open)| {
            self.is_left_by_heir(*handle, open) || self.unfinished(*handle).is_some()
        })
    }

    /// Whether the draft of a handle was not saved at the last flush, and not refused either: a process that inherited the handle has
    /// flushed a text that is no valid tree, and the process that opened the handle may write the rest.
    fn is_left_by_heir(&self, handle: TextHandle, open: &OpenText) -> bool {
        let waits = |draft: &TextDraft| draft.refused.is_none() && !draft.is_beginning();
        self.is_text(handle) && open.touched().is_some_and(waits)
    }

    /// What is to be saved of a file before it gets the name `tree.yaml`: nothing if it has the name already, or if an editor that gives up
    /// puts its backup back. The text that was refused stays refused then. After the save call [`Texts::end_becoming`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for a symlink.
    pub(in crate::vfs) fn begin_becoming(&mut self, number: u32) -> Result<Option<Unsaved>, Error> {
        if self.is_tree(number) {
            return Ok(None);
        }
        let text = Arc::clone(self.bytes(number)?);
        let is_committed = text == self.committed;
        let file = self.file_mut(number)?;
        if file.backup && is_committed {
            return Ok(None);
        }
        file.becoming = true;
        Ok(Some(Unsaved {
            text,
            number,
            text_epoch: file.text_epoch,
            through: None,
            shown: false,
        }))
    }

    /// Notes that a file has become `tree.yaml`, or has been refused. A refused one holds all that was written to it, as any scratch file.
    pub(in crate::vfs) fn end_becoming(&mut self, number: u32) {
        if let Some(file) = self.files.get_mut(&number) {
            file.becoming = false;
        }
        let of_file = self.open.keys().filter(|handle| handle.number == number);
        let refused: Vec<_> = of_file.filter(|it| !self.is_text(**it)).copied().collect();
        for handle in refused {
            self.set_draft(handle, None);
        }
    }

    /// Whether FILE has got another text from another program since this one was begun: then this one is not saved.
    pub(super) fn is_outdated(&self, unsaved: &Unsaved) -> bool {
        unsaved.text_epoch != self.text_epoch
    }

    /// FILE's text, which `unsaved` is to replace, and whether `unsaved` is outdated. `None` if it is not to be saved any more: its file has
    /// lost the name `tree.yaml` to one that another thread has saved.
    pub(in crate::vfs) fn to_replace(&self, unsaved: &Unsaved) -> Option<(Arc<Vec<u8>>, bool)> {
        let wanted = unsaved.through.is_none_or(|handle| self.is_text(handle));
        wanted.then(|| (Arc::clone(&self.committed), self.is_outdated(unsaved)))
    }

    /// Whether the file of a text shows another one, as something else was written to it.
    pub(in crate::vfs) fn shows_another(&self, unsaved: &Unsaved) -> bool {
        let shown = self.bytes(unsaved.number);
        !shown.is_ok_and(|shown| Arc::ptr_eq(shown, &unsaved.text))
    }

    /// Notes that `text` is FILE's text now: what was written, perhaps with something put back. The file shows it from now on, unless it
    /// shows an unsaved text of another handle. If something was put back, the handle keeps the text that it has written, as its program
    /// writes on by the offsets in that. Gives the number of `tree.yaml` if that is another file by now and shows the text, too.
    pub(in crate::vfs) fn saved(&mut self, unsaved: &Unsaved, text: &Arc<Vec<u8>>) -> Option<u32> {
        self.committed = Arc::clone(text);
        self.refused = None;
        let whole = unsaved.text == *text;
        if let Some(draft) = self.draft_of(unsaved) {
            draft.touched = false;
            if whole && let Some(handle) = unsaved.through {
                self.set_draft(handle, None);
            }
        }
        if unsaved.through.is_none() && !whole {
            self.keep_as_written(unsaved);
        }
        self.show_saved(unsaved.number, text);
        let tree = self.lookup(TREE_NAME.as_ref());
        let another = tree.filter(|tree| unsaved.through.is_some() && *tree != unsaved.number);
        another.filter(|tree| self.show_saved(*tree, text))
    }

    /// Has a file show a text that was saved, unless it shows an unsaved one. Whether it showed another text before.
    fn show_saved(&mut self, number: u32, text: &Arc<Vec<u8>>) -> bool {
        let shown = self.bytes(number);
        shown.is_ok_and(|shown| !Arc::ptr_eq(shown, text) && !self.is_unsaved(shown))
            && self.show(number, Arc::clone(text)).is_ok()
    }

    /// Has the handles of a file that becomes `tree.yaml`, in whose text something was put back, keep the text that they know.
    fn keep_as_written(&mut self, unsaved: &Unsaved) {
        let handles = self.open.iter_mut();
        let of_file = handles.filter(|(handle, _)| handle.number == unsaved.number);
        for (_, open) in of_file.filter(|(_, open)| open.touched().is_none()) {
            open.draft = Some(TextDraft {
                bytes: Arc::clone(&unsaved.text),
                touched: false,
                mapped: false,
                refused: None,
            });
        }
    }

    /// Whether these are the bytes of a draft that is not saved.
    pub(super) fn is_unsaved(&self, shown: &Arc<Vec<u8>>) -> bool {
        let mut drafts = self.open.values().filter_map(OpenText::touched);
        drafts.any(|draft| Arc::ptr_eq(&draft.bytes, shown))
    }

    /// Notes for the handle that a text was written through that it was refused.
    pub(super) fn note_refused(&mut self, unsaved: &Unsaved, error: &Error) {
        let committed = Arc::clone(&self.committed);
        if let Some(draft) = self.draft_of(unsaved) {
            draft.refused = Some((error.clone(), committed));
        }
    }

    /// The draft of the handle that a text was written through, unless it has written more since.
    fn draft_of(&mut self, unsaved: &Unsaved) -> Option<&mut TextDraft> {
        let draft = self.open.get_mut(&unsaved.through?)?.draft.as_mut();
        draft.filter(|draft| draft.bytes == unsaved.text)
    }

    /// Closes a handle. If `tree.yaml` shows its unsaved draft, it shows the current text again: FILE's, or the one that was refused last.
    /// Gives the number of `tree.yaml` if it shows another text now.
    pub(in crate::vfs) fn release(&mut self, handle: TextHandle) -> Option<u32> {
        let open = self.open.remove(&handle)?;
        // a handle that only reads has had the kernel drop the pages from before
        self.pages_are_of_text.get_or_insert(true);
        let number = handle.number;
        let current = Arc::clone(self.current());
        let shows_another = self.is_tree(number)
            && open.draft.is_some_and(|draft| {
                let shown = self.bytes(number);
                let is_shown = shown.is_ok_and(|shown| Arc::ptr_eq(shown, &draft.bytes));
                is_shown && draft.touched && !Arc::ptr_eq(&draft.bytes, &current)
            });
        if shows_another {
            // the file is there: `bytes` has just found it
            let _ = self.show(number, current);
        }
        self.forget_if_gone(number);
        shows_another.then_some(number)
    }
}

impl OpenText {
    /// What was written through it since it was last saved.
    fn touched(&self) -> Option<&TextDraft> {
        self.draft.as_ref().filter(|draft| draft.touched)
    }

    /// What is to be saved of a text that was written through it; `handle` is its own.
    fn unsaved(&self, handle: TextHandle, text: &Arc<Vec<u8>>, shown: bool) -> Unsaved {
        Unsaved {
            text: Arc::clone(text),
            number: handle.number,
            text_epoch: self.text_epoch,
            through: Some(handle),
            shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WRITE, root};
    use super::*;
    use crate::vfs::FileFacts;

    /// A writer did not see what another one had written while a rename was being saved: of a file that was refused then, that was gone.
    #[test]
    fn writers_of_a_file_share_its_bytes_until_it_is_the_tree() {
        let mut root = root();
        let facts = FileFacts::new(0o600, 0, 0);
        let number = root.create("x".as_ref(), facts).unwrap();
        let [one, two] = [(); 2].map(|()| root.open(number, WRITE).unwrap());
        let write = |root: &mut Texts, handle, at, data| root.write(handle, at, data, false);
        write(&mut root, one, 0, b"....").unwrap();
        root.begin_becoming(number).unwrap().unwrap();
        write(&mut root, one, 0, b"1").unwrap();
        write(&mut root, two, 1, b"2").unwrap();
        write(&mut root, one, 2, b"1").unwrap();
        root.end_becoming(number);
        assert_eq!(**root.bytes(number).unwrap(), b"121.");
    }
}
