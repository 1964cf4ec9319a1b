//! A file as a source: positional reads, and its pages mapped for replies to the kernel.
//!
//! The map is only ever the origin of a `writev` to `/dev/fuse`. There the kernel copies the pages, and answers `EFAULT` when
//! the file has been truncated under us; the same access from our own code would be a `SIGBUS` that kills the mount. So the
//! mapped bytes leave this module in a [`MapSlice`], whose one way out is named for its only use.
#![allow(
    unsafe_code,
    reason = "mapping a file, and handing its pages to the kernel, needs three unsafe calls; see each"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

use super::{Borrower, Loan, Source};
use crate::error::{Error, Place, Result};
use crate::source::len_u64;

/// How many mapped bytes may be served before their page table entries are dropped again, so that a long read through the
/// map does not look like memory of ours (the pages stay in the page cache).
const RELEASE_EVERY: u64 = 32 << 20;

/// An open file of known length.
pub struct FileSource {
    file: Arc<File>,
    len: u64,
    /// Its pages, if it can be mapped.
    map: Option<Arc<FileMap>>,
}

/// Most bytes that the kernel maps when one page is touched: the whole of a large folio.
const FOLIO: u64 = 2 << 20;

/// Shorter reads are copied, because that costs less than mapping.
const MIN_LOAN: usize = 32 << 10;

/// The pages of a file.
struct FileMap {
    pages: Mmap,
    /// Bytes of pages that were lent since page table entries were dropped last.
    served: AtomicU64,
}

/// A part of a mapped file, lent for one reply.
pub struct MapSlice {
    map: Arc<FileMap>,
    start: usize,
    len: usize,
}

impl FileSource {
    /// The first `len` bytes of `file`.
    ///
    /// A file that can't be mapped (too large for the address space, a pseudo file, one of an overlay file system) is read by `pread`
    /// alone.
    #[must_use]
    pub fn new(file: Arc<File>, len: u64) -> Self {
        let map = FileMap::new(&file, len).map(Arc::new);
        Self { file, len, map }
    }

    /// `file` with its present length.
    ///
    /// # Errors
    /// [`Error::Io`] if its length can't be read.
    pub fn open(file: Arc<File>) -> Result<Self> {
        let len = file
            .metadata()
            .map_err(|cause| Error::io("reading the file's size", cause))?
            .len();
        Ok(Self::new(file, len))
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Fills `buf` with the bytes at `offset` that the file has at the moment, also beyond the length it had when it was opened.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file ends before, [`Error::Io`].
    pub fn read_now(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|cause| match cause.kind() {
                std::io::ErrorKind::UnexpectedEof => Error::corrupt(
                    Place::Byte(offset),
                    format!(
                        "{} bytes wanted, but the file has been cut short",
                        buf.len()
                    ),
                ),
                _ => Error::io(format!("reading {} bytes at {offset}", buf.len()), cause),
            })
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        super::checked_end(offset, buf.len(), self.len)?;
        self.read_now(buf, offset)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        // a page that is gone is `EFAULT` to the kernel, and to us a signal that ends the mount
        let for_kernel = to == Borrower::Kernel && len >= MIN_LOAN;
        let map = self.map.as_ref().filter(|_| for_kernel);
        let slice = |map: &Arc<FileMap>| {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(len)?;
            (end <= map.pages.len()).then(|| MapSlice {
                map: Arc::clone(map),
                start,
                len,
            })
        };
        Ok(map.and_then(slice).map(Loan::Mapped))
    }
}

/// Whether the file may lie in the lower layer of an overlay, as in containers. The first write copies it to the upper one; a
/// descriptor from before reads the copy from then on, but what it maps stays the file below.
fn is_copied_up(file: &File) -> bool {
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    rustix::fs::fstatfs(file).is_ok_and(|of| u64::try_from(of.f_type) == Ok(OVERLAYFS_SUPER_MAGIC))
}

impl FileMap {
    /// Maps the first `len` bytes; `None` if there are none, or the system can't.
    fn new(file: &File, len: u64) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        // after a save in place the map would still show the bytes below
        if is_copied_up(file) {
            return None;
        }
        // SAFETY: a map is unsound for code that reads it while others change the file. Nothing in this program reads it:
        // the bytes go to the kernel as the vector of a write, see `MapSlice::for_kernel`.
        let pages = unsafe { MmapOptions::new().len(len).map(file) }.ok()?;
        Some(Self {
            pages,
            served: AtomicU64::new(0),
        })
    }

    /// Counts the pages that a loan may have mapped, and drops the page table entries now and then.
    fn count(&self, start: usize, len: usize) {
        let end = start.saturating_add(len);
        // whole folios, because a page that is touched brings the folio around it
        let folio = |at: usize| len_u64(at).checked_div(FOLIO);
        let len = folio(end)
            .unwrap_or(0)
            .saturating_sub(folio(start).unwrap_or(0))
            .saturating_add(1)
            .saturating_mul(FOLIO);
        // relaxed: threads that race here drop the entries twice, or a little later
        if self
            .served
            .fetch_add(len, Ordering::Relaxed)
            .saturating_add(len)
            < RELEASE_EVERY
        {
            return;
        }
        self.served.store(0, Ordering::Relaxed);
        // SAFETY: for a shared file map MADV_DONTNEED only drops page table entries; the next access, here the kernel's, finds
        // the same bytes of the file again. A failure costs memory, not correctness.
        let _ = unsafe {
            self.pages
                .unchecked_advise_range(UncheckedAdvice::DontNeed, 0, self.pages.len())
        };
    }
}

impl MapSlice {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, to be passed to a system call and to nothing else.
    #[must_use]
    pub fn for_kernel(&self) -> &[u8] {
        // SAFETY: `lend` checked that the range lies inside the map. The slice is valid memory for as long as the map lives;
        // its bytes may change or vanish, which is why callers only pass it on to the kernel.
        unsafe {
            std::slice::from_raw_parts(self.map.pages.as_ptr().wrapping_add(self.start), self.len)
        }
    }
}

impl Drop for MapSlice {
    fn drop(&mut self) {
        self.map.count(self.start, self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    #[test]
    fn reads_and_loans_are_the_bytes_of_the_file() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        let source = FileSource::open(file(&bytes)).unwrap();
        let mut buf = [0; 4];
        source.read_exact_at(&mut buf, 3).unwrap();
        assert_eq!(buf, bytes[3..7]);
        let Ok(Some(Loan::Mapped(slice))) = source.lend(3, MIN_LOAN, Borrower::Kernel) else {
            panic!("not mapped")
        };
        assert_eq!(slice.for_kernel(), &bytes[3..3 + MIN_LOAN]);
        let none = |at, len, to| source.lend(at, len, to).unwrap().is_none();
        assert!(none(3, MIN_LOAN - 1, Borrower::Kernel), "short");
        assert!(none(99_999, MIN_LOAN, Borrower::Kernel), "beyond the end");
        // Its own code could die of them.
        assert!(none(3, MIN_LOAN, Borrower::Program));
    }

    #[test]
    fn a_file_cut_short_is_an_error_not_a_signal() {
        let file = file(&[1; 10_000]);
        let source = FileSource::open(Arc::clone(&file)).unwrap();
        file.set_len(100).unwrap();
        let error = source.read_exact_at(&mut [0; 10], 9_000).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Corrupt {
                    at: Place::Byte(9_000),
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn an_empty_file_is_an_empty_source() {
        let source = FileSource::open(file(b"")).unwrap();
        assert!(source.is_empty());
        assert!(source.read_exact_at(&mut [], 0).is_ok());
    }
}
