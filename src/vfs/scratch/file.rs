//! One scratch file: bytes, owner and mode, and how many names and open descriptors it has. All descriptors share its bytes.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::asdf::text::TEXT_LIMIT;
use crate::error::Error as Library;
use crate::source::{Memory, ScratchBytes, ScratchRoom, Source, each_piece, len_u64};
use crate::vfs::attr::{Access, Attr, Attributes, FileFacts, FileKind};
use crate::vfs::error::Error;
use crate::vfs::node::Node;
use crate::vfs::{Result, locked};

/// How much is copied at a time.
const CHUNK: usize = 1 << 20;

/// What a file is to FILE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::vfs) enum Role {
    /// Nothing: no save concerns it.
    Plain,
    /// `tree.yaml`: what is written to it is saved.
    Tree,
    /// It was `tree.yaml` when FILE got another text: what is written to it is refused.
    Stale,
    /// A block or array has got its bytes, or is getting them: nothing more is written to it.
    Taken,
}

/// A scratch file.
#[derive(Debug)]
pub(in crate::vfs) struct ScratchFile {
    /// What the kernel knows it by. The bytes of a number change only through that number.
    pub(in crate::vfs) node: Node,
    kind: FileKind,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    content: Content,
    /// What its bytes are charged to.
    room: Arc<ScratchRoom>,
    facts: FileFacts,
    role: Role,
    names: u32,
    open: u32,
    writers: u32,
    /// How often its bytes were changed.
    version: u64,
    /// The version that was saved last.
    saved: u64,
    /// Why the text was refused, and in which version.
    refused: Option<(u64, Error)>,
    /// Which of FILE's texts it was made of, see `TreeFile::epoch`.
    made_of: u64,
    /// Why bytes are missing: the last write failed.
    short: Option<Library>,
    /// The same, of bytes that were stored in a map.
    lost: Option<Library>,
}

#[derive(Debug)]
enum Content {
    /// A text of FILE, or the target of a link, until something is written.
    Shared(Arc<Vec<u8>>),
    Own(ScratchBytes),
}

impl Source for Content {
    fn len(&self) -> u64 {
        match self {
            Self::Shared(text) => len_u64(text.len()),
            Self::Own(bytes) => bytes.len(),
        }
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Library> {
        match self {
            Self::Shared(text) => Memory::shared(Arc::clone(text)).read_exact_at(buf, offset),
            Self::Own(bytes) => bytes.read_exact_at(buf, offset),
        }
    }
}

/// A version of a file's text that is to be saved.
#[derive(Debug, Clone)]
pub(in crate::vfs) struct Unsaved {
    pub(in crate::vfs) text: Arc<Vec<u8>>,
    pub(in crate::vfs) file: Arc<ScratchFile>,
    /// Which version of the file it is.
    pub(in crate::vfs) version: u64,
    /// Which of FILE's texts it was made of.
    pub(in crate::vfs) made_of: u64,
    /// Whether the file is to become `tree.yaml` with it.
    pub(in crate::vfs) becoming: bool,
    /// Why bytes of it are missing, so that it is not to be saved.
    pub(in crate::vfs) short: Option<Library>,
}

/// Why nothing more is written to a file that was renamed over a block or array.
fn taken() -> Error {
    let why = "this file was renamed over a block or array and has been saved there: write to that block or array";
    let why = why.to_owned();
    Library::Stale { why }.into()
}

/// Whether a text has nothing in it but blanks and the zeros of a hole.
pub(in crate::vfs) fn is_blank(text: &[u8]) -> bool {
    let blank = |&byte: &u8| byte == 0 || byte.is_ascii_whitespace();
    text.iter().all(blank)
}

/// Whether it may be the beginning of a text, which is not saved yet: blank, or the lines in front of the document, of which the last may
/// be cut. A shell closes a file between writes to it. Behind any other line no document can begin.
pub(in crate::vfs) fn is_beginning(text: &[u8]) -> bool {
    let stands_before =
        |line: &[u8]| is_blank(line) || line.starts_with(b"#") || line.starts_with(b"%");
    let mut lines = text.rsplit(|&byte| byte == b'\n');
    let last = lines.next().unwrap_or_default();
    // the last line may be cut in the middle of `---`
    let last_is = stands_before(last) || (last.len() < 3 && b"---".starts_with(last));
    is_blank(text) || (text.starts_with(b"#") && last_is && lines.all(stands_before))
}

impl Source for ScratchFile {
    fn len(&self) -> u64 {
        locked(&self.inner).content.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Library> {
        locked(&self.inner).content.read_exact_at(buf, offset)
    }
}

impl ScratchFile {
    /// A file without names, of a text or of nothing; or a symlink, of its target.
    pub(in crate::vfs) fn new(
        node: Node,
        kind: FileKind,
        room: &Arc<ScratchRoom>,
        text: Arc<Vec<u8>>,
        facts: FileFacts,
        made_of: u64,
    ) -> Self {
        let inner = Inner {
            content: Content::Shared(text),
            room: Arc::clone(room),
            facts,
            role: Role::Plain,
            names: 0,
            open: 0,
            writers: 0,
            version: 0,
            saved: 0,
            refused: None,
            made_of,
            short: None,
            lost: None,
        };
        let inner = Mutex::new(inner);
        Self { node, kind, inner }
    }

    /// Its attributes.
    pub(in crate::vfs) fn attr(&self) -> Attr {
        let inner = locked(&self.inner);
        let is_link = self.kind == FileKind::Symlink;
        let perm = if is_link { 0o777 } else { inner.facts.perm };
        Attr {
            kind: self.kind,
            perm,
            nlink: inner.names,
            ..inner.facts.attr(self.node, inner.content.len())
        }
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub(in crate::vfs) fn target(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symlink"));
        }
        self.bytes().map(|bytes| bytes.to_vec())
    }

    /// All its bytes.
    ///
    /// # Errors
    /// [`Error::TooBig`] if no text is so long; [`Error::Library`].
    pub(in crate::vfs) fn bytes(&self) -> Result<Arc<Vec<u8>>> {
        locked(&self.inner).bytes()
    }

    /// What an open descriptor reads from.
    pub(in crate::vfs) fn source(self: &Arc<Self>) -> Arc<dyn Source> {
        // a reader of the saved text keeps that text, whatever is written to the file later
        if let Content::Shared(text) = &locked(&self.inner).content {
            return Arc::new(Memory::shared(Arc::clone(text)));
        }
        Arc::<Self>::clone(self)
    }

    pub(super) fn link(&self) {
        let mut inner = locked(&self.inner);
        inner.names = inner.names.saturating_add(1);
    }

    pub(super) fn unlink(&self) {
        let mut inner = locked(&self.inner);
        inner.names = inner.names.saturating_sub(1);
    }

    /// Opens it. What is written into a file that was emptied is made of FILE's text of `epoch`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if what is written would be lost or refused, as its name leads to another file by now.
    pub(in crate::vfs) fn open(&self, access: Access, epoch: u64) -> Result<()> {
        let mut inner = locked(&self.inner);
        // with a descriptor open, the file lives on without a name, as on any disk
        let is_replaced = inner.open == 0 || inner.role == Role::Stale;
        if !access.only_reads() && inner.names == 0 && is_replaced {
            return Err(Error::NotFound);
        }
        if access.truncate {
            inner.resize(0, epoch)?;
        }
        inner.open = inner.open.saturating_add(1);
        inner.writers = inner.writers.saturating_add(access.write.into());
        Ok(())
    }

    /// Ends a descriptor. Whether it was the last one that writes.
    pub(in crate::vfs) fn close(&self, writes: bool) -> bool {
        let mut inner = locked(&self.inner);
        inner.open = inner.open.saturating_sub(1);
        if writes {
            inner.writers = inner.writers.saturating_sub(1);
        }
        writes && inner.writers == 0
    }

    /// Writes bytes, at the end if no offset is given, behind what others have appended. A hole before them reads as zeros.
    ///
    /// # Errors
    /// [`Library::NoRoom`]; [`Library::Stale`] if a block or array has got its bytes.
    pub(in crate::vfs) fn write(
        &self,
        offset: impl Into<Option<u64>>,
        data: &[u8],
        mapped: bool,
    ) -> Result<()> {
        let mut inner = locked(&self.inner);
        let offset = offset.into().unwrap_or_else(|| inner.content.len());
        inner.write(offset, data, mapped)
    }

    /// Checks that no bytes are missing in it.
    ///
    /// # Errors
    /// Why a write of them has failed.
    pub(in crate::vfs) fn check_whole(&self) -> Result<(), Library> {
        locked(&self.inner).missing().map_or(Ok(()), Err)
    }

    /// Sets the length.
    ///
    /// # Errors
    /// As [`ScratchFile::write`].
    pub(in crate::vfs) fn resize(&self, len: u64, epoch: u64) -> Result<()> {
        locked(&self.inner).resize(len, epoch)
    }

    /// Sets owner, mode and times. Of a file that is `tree.yaml` only the time, while something in it is not saved: the rest is FILE's.
    pub(in crate::vfs) fn set(&self, changes: &Attributes) {
        let mut inner = locked(&self.inner);
        if inner.role != Role::Tree {
            inner.facts.set(changes);
        } else if let Some(mtime) = changes.mtime.filter(|_| inner.is_dirty()) {
            inner.facts.mtime = mtime;
        }
    }

    /// Sets the time of the last change of its bytes.
    pub(in crate::vfs) fn set_mtime(&self, mtime: SystemTime) {
        locked(&self.inner).facts.mtime = mtime;
    }

    /// What it is to FILE.
    pub(in crate::vfs) fn role(&self) -> Role {
        locked(&self.inner).role
    }

    /// Makes it something else to FILE. Once this returns, no other thread writes to one that is taken.
    pub(in crate::vfs) fn set_role(&self, role: Role) {
        locked(&self.inner).role = role;
    }

    /// Whether a descriptor is open.
    pub(in crate::vfs) fn is_open(&self) -> bool {
        locked(&self.inner).open > 0
    }

    /// Whether something was written to it that is not saved.
    pub(in crate::vfs) fn is_dirty(&self) -> bool {
        locked(&self.inner).is_dirty()
    }

    /// Whether it has just these bytes, shared.
    pub(in crate::vfs) fn shares(&self, text: &Arc<Vec<u8>>) -> bool {
        matches!(&locked(&self.inner).content, Content::Shared(own) if Arc::ptr_eq(own, text))
    }

    /// Charges its bytes to another room.
    ///
    /// # Errors
    /// [`Library::NoRoom`] if that has too little.
    pub(in crate::vfs) fn move_into(&self, room: &Arc<ScratchRoom>) -> Result<()> {
        let mut inner = locked(&self.inner);
        if !Arc::ptr_eq(&inner.room, room) {
            inner.content = Content::Own(inner.copy(room)?);
            inner.room = Arc::clone(room);
        }
        Ok(())
    }

    /// What was written since the last save; nothing if the file is no text of FILE.
    ///
    /// # Errors
    /// As [`ScratchFile::bytes`].
    pub(in crate::vfs) fn unsaved(self: &Arc<Self>) -> Result<Option<Unsaved>> {
        let inner = locked(&self.inner);
        let is_text = matches!(inner.role, Role::Tree | Role::Stale);
        let unsaved = (is_text && inner.is_dirty()).then(|| inner.whole(self, false));
        unsaved.transpose()
    }

    /// What a flush saves: nothing if no document has begun.
    ///
    /// # Errors
    /// As [`ScratchFile::bytes`].
    pub(in crate::vfs) fn to_save(self: &Arc<Self>) -> Result<Option<Unsaved>> {
        Ok(self
            .unsaved()?
            .filter(|unsaved| !is_beginning(&unsaved.text)))
    }

    /// Its text, to become FILE's when it gets the name `tree.yaml`.
    ///
    /// # Errors
    /// As [`ScratchFile::bytes`]; [`Error::Invalid`] for a symlink.
    pub(in crate::vfs) fn becoming(self: &Arc<Self>) -> Result<Unsaved> {
        if self.kind != FileKind::File {
            return Err(Error::Invalid("a symlink has no bytes"));
        }
        locked(&self.inner).whole(self, true)
    }

    /// Notes that a version was saved. `text`: that one, if FILE has it as it was written.
    pub(in crate::vfs) fn note_saved(&self, version: u64, text: Option<&Arc<Vec<u8>>>) {
        let mut inner = locked(&self.inner);
        // two saves may end in another order than they began
        inner.saved = inner.saved.max(version);
        // it was refused before, perhaps
        inner.refused.take_if(|(refused, _)| *refused <= version);
        if !inner.is_dirty()
            && let Some(text) = text
        {
            inner.content = Content::Shared(Arc::clone(text));
        }
    }

    /// Whether a version was saved, or a later one.
    pub(in crate::vfs) fn is_saved(&self, version: u64) -> bool {
        locked(&self.inner).saved >= version
    }

    /// Notes that a version was refused.
    pub(in crate::vfs) fn note_refused(&self, version: u64, why: &Error) {
        locked(&self.inner).refused = Some((version, why.clone()));
    }

    /// Why the text was refused, if it was since it was changed.
    pub(in crate::vfs) fn refusal(&self) -> Option<Error> {
        locked(&self.inner).refusal().cloned()
    }

    /// Has it count as not saved, though nothing was written to it. The version that it is.
    pub(in crate::vfs) fn touch(&self) -> u64 {
        let mut inner = locked(&self.inner);
        inner.changed();
        inner.version
    }

    /// Whether the text is refused when the kernel releases its last descriptor, which may have been closed already.
    pub(in crate::vfs) fn awaits_refusal(&self) -> bool {
        let inner = locked(&self.inner);
        let is_begun = |text: Arc<Vec<u8>>| is_beginning(&text) && !is_blank(&text);
        inner.is_dirty() && inner.refusal().is_none() && inner.bytes().is_ok_and(is_begun)
    }
}

impl Inner {
    fn is_dirty(&self) -> bool {
        self.version != self.saved
    }

    fn refusal(&self) -> Option<&Error> {
        let refused = self.refused.as_ref();
        let refused = refused.filter(|(version, _)| *version == self.version);
        refused.map(|(_, why)| why)
    }

    /// Why bytes are missing in it.
    fn missing(&self) -> Option<Library> {
        self.lost.clone().or_else(|| self.short.clone())
    }

    fn whole(&self, file: &Arc<ScratchFile>, becoming: bool) -> Result<Unsaved> {
        Ok(Unsaved {
            text: self.bytes()?,
            file: Arc::clone(file),
            version: self.version,
            made_of: self.made_of,
            becoming,
            short: self.missing(),
        })
    }

    fn bytes(&self) -> Result<Arc<Vec<u8>>> {
        let len = self.content.len();
        match &self.content {
            Content::Shared(text) => Ok(Arc::clone(text)),
            // refused before the bytes are read into memory
            Content::Own(_) if len > TEXT_LIMIT => Err(Error::TooBig("beyond the limit of a tree")),
            Content::Own(bytes) => {
                let len = usize::try_from(len);
                let len = len.map_err(|_| Error::TooBig("beyond the address space"))?;
                let mut all = vec![0; len];
                bytes.read_exact_at(&mut all, 0)?;
                Ok(Arc::new(all))
            }
        }
    }

    /// A copy of its bytes that is charged to this room.
    fn copy(&self, room: &Arc<ScratchRoom>) -> Result<ScratchBytes> {
        let mut copy = ScratchBytes::new(room);
        copy_pieces(&self.content, |at, piece| copy.write(at, piece))?;
        copy.resize(self.content.len())?;
        Ok(copy)
    }

    /// Its bytes, to be changed.
    fn own(&mut self) -> Result<&mut ScratchBytes> {
        if self.role == Role::Taken {
            return Err(taken());
        }
        // copied at the first write: FILE's text is shared with the state, and does not change
        if let Content::Shared(_) = self.content {
            self.content = Content::Own(self.copy(&self.room)?);
        }
        match &mut self.content {
            Content::Own(bytes) => Ok(bytes),
            Content::Shared(_) => Err(Error::BadHandle),
        }
    }

    /// That a file of FILE's text may get this length: a longer text can't be saved, and would be shown instead of FILE's tree.
    fn check_len(&self, len: u64) -> Result<(), Library> {
        let is_text = matches!(self.role, Role::Tree | Role::Stale);
        if is_text && len > TEXT_LIMIT {
            let why = format!("a tree has at most {TEXT_LIMIT} bytes");
            return Err(Library::NoRoom { why, limit: true });
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8], mapped: bool) -> Result<()> {
        let fits = self.check_len(offset.saturating_add(len_u64(data.len())));
        let bytes = self.own()?;
        let written = fits.and_then(|()| bytes.write(offset, data));
        // a write that fails for another reason may have changed some of the bytes
        if !matches!(written, Err(Library::NoRoom { .. })) {
            self.changed();
        }
        // the beginning of a text may be a valid tree; a file into which nothing was written has all of it
        let short = written.as_ref().err().filter(|_| self.is_dirty());
        self.short = short.cloned();
        // what was stored in a map is not written again
        let lost = written.as_ref().err().filter(|_| mapped);
        self.lost = self.lost.take().or(lost.cloned());
        Ok(written?)
    }

    fn resize(&mut self, len: u64, epoch: u64) -> Result<()> {
        if len == 0 && self.role != Role::Taken {
            // a program that empties a file writes into it what it makes of FILE's text of now
            self.content = Content::Own(ScratchBytes::new(&self.room));
            self.made_of = epoch;
            (self.short, self.lost) = (None, None);
        } else {
            self.check_len(len)?;
            self.own()?.resize(len)?;
        }
        self.changed();
        Ok(())
    }

    fn changed(&mut self) {
        self.version = self.version.saturating_add(1);
        self.facts.mtime = SystemTime::now();
    }
}

/// Passes all bytes on, in pieces, each with its offset.
pub(in crate::vfs) fn copy_pieces(
    bytes: &dyn Source,
    mut to: impl FnMut(u64, &[u8]) -> Result<(), Library>,
) -> Result<(), Library> {
    let mut at = 0;
    each_piece(bytes, 0..bytes.len(), CHUNK, |piece| {
        to(at, piece)?;
        at = at.saturating_add(len_u64(piece.len()));
        Ok(())
    })
}
