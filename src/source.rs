//! Bytes that can be read at any position: the one abstraction behind every file of the mount.
//!
//! A file, a window on it, a decoded block, a strided array, inline bytes, an NPY header in front of an array: each is a
//! [`Source`], and they stack. A source knows its length and its bytes; it knows nothing of names, inodes or the kernel.

mod beneath;
mod fields;
mod file;
mod filesystem;
mod made;
mod mounts;
mod overlay;
mod peek;
mod pooled_buf;
mod scratch;
mod stat;
#[cfg(test)]
pub(crate) mod testing;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Place, Result};

pub(crate) use beneath::open_beneath;
#[doc(hidden)]
pub use fields::Fields;
pub use file::{FileSource, MapSlice};
#[doc(hidden)]
pub use filesystem::{FileSystem, Look};
pub use made::Made;
#[doc(hidden)]
pub use mounts::{Mounted, in_utf8, unmount_with};
#[doc(hidden)]
pub use overlay::Overlay;
#[doc(hidden)]
pub use peek::Peek;
#[doc(hidden)]
pub use pooled_buf::{PooledBuf, free_idle};
#[doc(hidden)]
pub use scratch::{ScratchBytes, ScratchRoom, unnamed_file};
#[doc(hidden)]
pub use stat::Stat;

/// Bytes of known length, readable at any offset, shared between threads.
///
/// They never change, with two exceptions: a [`Tail`] grows with its file, and an [`Overlay`] can be written to. The same holds for
/// sources on top of these. The caller must see to it that the file below does not change while it reads.
pub trait Source: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the range reaches beyond the end or the bytes there are damaged, [`Error::Io`] if the medium fails.
    /// `buf` may then hold anything.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Announces headers at these offsets, so that a remote source can fetch them at the same time. Returns whether that helps this
    /// source; without offsets it only asks.
    fn expect(&self, headers: &[u64]) -> bool {
        let _ = headers;
        false
    }

    /// Fills `buf` as [`Source::read_exact_at`] does, with a header whose surroundings will not be read. A remote source then
    /// fetches hardly more than the header.
    ///
    /// # Errors
    /// As [`Source::read_exact_at`].
    fn read_header_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_exact_at(buf, offset)
    }

    /// The bytes `offset..offset + len` without a copy, where the source has them in memory in one piece. Pages of a mapped file are
    /// only lent to the [kernel](Borrower::Kernel).
    ///
    /// `None` means "use [`Source::read_exact_at`]"; it is not an error, and may change from call to call.
    ///
    /// # Errors
    /// As [`Source::read_exact_at`]; the caller need not try that, too, and wait for the same medium again.
    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        let _ = (offset, len, to);
        Ok(None)
    }
}

/// Who borrows bytes: that decides what may be lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Borrower {
    /// The kernel, for a reply: it may also have pages of a mapped file.
    Kernel,
    /// This program, which looks at them itself.
    Program,
}

/// Bytes in memory that a source lends for one reply.
pub enum Loan {
    /// Pages of a mapped file. They vanish when a program truncates the file, so only the kernel may look at them.
    Mapped(MapSlice),
    /// A part of a buffer that does not change.
    Shared(Arc<dyn Buffer>, Range<usize>),
}

/// A buffer that does not change: a vector, or a buffer of the pool, which gets it back afterwards.
pub trait Buffer: AsRef<[u8]> + Any + Send + Sync {}

impl<T: AsRef<[u8]> + Any + Send + Sync> Buffer for T {}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped(slice) => write!(f, "Mapped({} bytes)", slice.len()),
            Self::Shared(_, range) => write!(f, "Shared({range:?})"),
        }
    }
}

/// A length in memory as one of a file: `usize` is never wider than 64 bits.
#[must_use]
#[doc(hidden)]
pub fn len_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// How many of `left` bytes are taken at once: all of them, but no more than `most`.
#[must_use]
#[doc(hidden)]
pub fn at_most(left: u64, most: usize) -> usize {
    usize::try_from(left).map_or(most, |left| left.min(most))
}

/// Reads a range from its start to its end, and calls `take` with each piece: `most` bytes, and the rest at the end.
///
/// # Errors
/// Of reading, and of `take`, which ends it.
#[doc(hidden)]
pub fn each_piece(
    source: &dyn Source,
    range: Range<u64>,
    most: usize,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let Range { mut start, end } = range;
    let mut buf = PooledBuf::default();
    while start < end {
        let len = at_most(end.saturating_sub(start), most.max(1));
        buf.reset(len);
        source.read_exact_at(&mut buf, start)?;
        take(&buf)?;
        start = start.saturating_add(len_u64(len));
    }
    Ok(())
}

/// The whole of `source` in memory, if it is at most `limit` bytes long.
///
/// # Errors
/// [`Error::Unsupported`] above the limit; the errors of reading.
pub fn read_all(source: &dyn Source, limit: u64) -> Result<Vec<u8>> {
    let len = source.len();
    let len = usize::try_from(len)
        .ok()
        .filter(|_| len <= limit)
        .ok_or_else(|| {
            Error::unsupported(Place::File, format!("{len} bytes, at most {limit} allowed"))
        })?;
    // bounded by `limit` and not by the file
    let mut buf = vec![0; len];
    source.read_exact_at(&mut buf, 0)?;
    Ok(buf)
}

/// At most `len` bytes at `offset`; fewer at the end of the source, and none behind it.
///
/// # Errors
/// Of reading.
pub(crate) fn read_up_to(source: &dyn Source, offset: u64, len: usize) -> Result<Vec<u8>> {
    let there = source.len().saturating_sub(offset);
    let mut buf = vec![0; at_most(there, len)];
    source.read_exact_at(&mut buf, offset.min(source.len()))?;
    Ok(buf)
}

/// The offset just behind `len` bytes at `offset`.
///
/// # Errors
/// [`Error::Corrupt`] if they reach beyond `end`.
#[doc(hidden)]
pub fn checked_end(offset: u64, len: usize, end: u64) -> Result<u64> {
    u64::try_from(len)
        .ok()
        .and_then(|len| offset.checked_add(len))
        .filter(|&sum| sum <= end)
        .ok_or_else(|| {
            Error::corrupt(
                Place::Byte(offset),
                format!("{len} bytes wanted, but the end is at {end}"),
            )
        })
}

/// A part of another source.
pub struct Window {
    inner: Arc<dyn Source>,
    offset: u64,
    len: u64,
}

impl Window {
    /// `len` bytes of `inner` from `offset` on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the window reaches beyond the end of `inner`.
    pub fn new(inner: Arc<dyn Source>, offset: u64, len: u64) -> Result<Self> {
        offset
            .checked_add(len)
            .filter(|&end| end <= inner.len())
            .ok_or_else(|| {
                Error::corrupt(
                    Place::Byte(offset),
                    format!(
                        "{len} bytes from {offset} on reach beyond the end at {}",
                        inner.len()
                    ),
                )
            })?;
        Ok(Self { inner, offset, len })
    }

    /// The offset in `inner` of the byte at `offset` of the window.
    fn inner_offset(&self, offset: u64, len: usize) -> Result<u64> {
        checked_end(offset, len, self.len)?;
        self.offset
            .checked_add(offset)
            .ok_or_else(|| Error::corrupt(Place::Byte(offset), "offset beyond 2^64"))
    }
}

impl Source for Window {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner
            .read_exact_at(buf, self.inner_offset(offset, buf.len())?)
    }

    fn read_header_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner
            .read_header_at(buf, self.inner_offset(offset, buf.len())?)
    }

    fn expect(&self, headers: &[u64]) -> bool {
        // the offsets come from a block index, which may be wrong
        let within = headers.iter().filter(|&&at| at < self.len);
        let headers: Vec<u64> = within.map(|at| self.offset.saturating_add(*at)).collect();
        self.inner.expect(&headers)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        self.inner.lend(self.inner_offset(offset, len)?, len, to)
    }
}

/// Bytes in memory.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Vec<u8>>);

impl Memory {
    /// A source of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    /// A source of bytes that are shared.
    #[must_use]
    pub fn shared(bytes: Arc<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Source for Memory {
    fn len(&self) -> u64 {
        len_u64(self.0.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len())?;
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..)?.get(..buf.len()))
            .ok_or_else(|| Error::corrupt(Place::Byte(offset), "beyond the end"))?;
        buf.copy_from_slice(found);
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize, _: Borrower) -> Result<Option<Loan>> {
        checked_end(offset, len, self.len())?;
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(len)?));
        Ok(range.map(|range| Loan::Shared(self.0.clone(), range)))
    }
}

/// A source whose header promises more bytes than there are: the bytes that are there, then an error.
#[doc(hidden)]
pub struct Short {
    inner: Arc<dyn Source>,
    len: u64,
    missing: Error,
}

impl Short {
    /// `inner` as a source of `len` bytes. A read beyond `inner` fails with `missing`.
    #[must_use]
    pub fn new(inner: Arc<dyn Source>, len: u64, missing: Error) -> Self {
        Self {
            inner,
            len,
            missing,
        }
    }
}

impl Source for Short {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = checked_end(offset, buf.len(), self.len)?;
        if end > self.inner.len() {
            return Err(self.missing.clone());
        }
        self.inner.read_exact_at(buf, offset)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        let end = checked_end(offset, len, self.len)?;
        if end > self.inner.len() {
            return Err(self.missing.clone());
        }
        self.inner.lend(offset, len, to)
    }
}

/// The rest of a file from an offset on, as long as the file is at the moment: a streamed block.
///
/// The one source whose length changes: it grows when a program appends to the file.
#[doc(hidden)]
pub struct Tail {
    file: Arc<FileSource>,
    offset: u64,
}

impl Tail {
    /// What `file` has from `offset` on.
    #[must_use]
    pub fn new(file: Arc<FileSource>, offset: u64) -> Self {
        Self { file, offset }
    }
}

impl Source for Tail {
    fn len(&self) -> u64 {
        // if the size can't be read, the file counts as it was when it was opened
        let len = self
            .file
            .file()
            .metadata()
            .map_or(self.file.len(), |meta| meta.len());
        len.saturating_sub(self.offset)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len())?;
        self.file.read_now(buf, self.offset.saturating_add(offset))
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        // the map ends where the file once ended: what has grown since is read instead
        self.file.lend(self.offset.saturating_add(offset), len, to)
    }
}

/// One source in front of another, such as an NPY header in front of an array.
pub struct Joined {
    head: Arc<dyn Source>,
    tail: Arc<dyn Source>,
    len: u64,
}

impl Joined {
    /// `head`, then `tail`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if their lengths together exceed 2^64.
    pub fn new(head: Arc<dyn Source>, tail: Arc<dyn Source>) -> Result<Self> {
        let len = head
            .len()
            .checked_add(tail.len())
            .ok_or_else(|| Error::corrupt(Place::File, "a length beyond 2^64"))?;
        Ok(Self { head, tail, len })
    }
}

impl Source for Joined {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let in_head = at_most(self.head.len().saturating_sub(offset), buf.len());
        let (first, second) = buf.split_at_mut(in_head);
        // an empty read would still open the source below, which may have to decode for that
        if !first.is_empty() {
            self.head.read_exact_at(first, offset)?;
        }
        if second.is_empty() {
            return Ok(());
        }
        self.tail
            .read_exact_at(second, offset.saturating_sub(self.head.len()))
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        match offset.checked_sub(self.head.len()) {
            Some(in_tail) => self.tail.lend(in_tail, len, to),
            None if len_u64(len) <= self.head.len().saturating_sub(offset) => {
                self.head.lend(offset, len, to)
            }
            // across the seam the bytes are not in one piece
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory(bytes: &[u8]) -> Arc<dyn Source> {
        Arc::new(Memory::new(bytes.to_vec()))
    }

    #[test]
    fn a_window_may_not_reach_beyond_its_source() {
        assert!(Window::new(memory(b"abc"), 1, 2).is_ok());
        assert!(Window::new(memory(b"abc"), 1, 3).is_err());
        assert!(Window::new(memory(b"abc"), u64::MAX, 2).is_err());
    }

    #[test]
    fn a_read_beyond_the_end_is_an_error() {
        let mut buf = [0; 2];
        assert!(memory(b"abc").read_exact_at(&mut buf, 2).is_err());
        assert!(memory(b"abc").read_exact_at(&mut buf, u64::MAX).is_err());
    }

    #[test]
    fn a_short_source_fails_only_where_bytes_are_missing() {
        let missing = Error::corrupt(Place::Block(1), "cut short");
        let short = Short::new(memory(b"abc"), 10, missing);
        let mut buf = [0; 2];
        assert!(short.read_exact_at(&mut buf, 1).is_ok());
        assert_eq!(&buf, b"bc");
        assert_eq!(
            short.read_exact_at(&mut buf, 2).unwrap_err().to_string(),
            "block 1: cut short"
        );
    }

    #[test]
    fn a_tail_grows_with_its_file() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"headdata").unwrap();
        let source = FileSource::open(Arc::new(file.try_clone().unwrap())).unwrap();
        let tail = Tail::new(Arc::new(source), 4);
        assert_eq!(tail.len(), 4);
        file.write_all(b"more").unwrap();
        assert_eq!(read_all(&tail, 100).unwrap(), b"datamore");
    }

    proptest! {
        #[test]
        fn windows_and_joins_read_like_slices(
            head in prop::collection::vec(any::<u8>(), 0..20),
            tail in prop::collection::vec(any::<u8>(), 0..20),
            cut in (0usize..40, 0usize..40),
            read in (0usize..40, 0usize..40),
        ) {
            let model = [head.clone(), tail.clone()].concat();
            let joined = Joined::new(memory(&head), memory(&tail)).unwrap();
            let (start, len) = (cut.0.min(model.len()), cut.1.min(model.len() - cut.0.min(model.len())));
            let model = &model[start..start + len];
            let window = Window::new(Arc::new(joined), start as u64, len as u64).unwrap();
            let mut buf = vec![0; read.1];
            let got = window.read_exact_at(&mut buf, read.0 as u64);
            match model.get(read.0..read.0 + read.1) {
                Some(want) => { prop_assert!(got.is_ok()); prop_assert_eq!(&buf[..], want); }
                None => prop_assert!(got.is_err()),
            }
        }
    }
}
