//! What an index that is kept between mounts depends on: the file as it is, the block's header, and the block's last bytes.
//!
//! The size and the time of the last change tell one state of a file from another. Where a tool has set that time back, the
//! checksum in the header, or the one that compressed streams end with, tells the data from others.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::header::BlockHeader;
use crate::codec::Slot;
use crate::source::{FileSource, Source, Window};

/// As many of the block's last stored bytes belong to the key.
const TAIL_LEN: usize = 16;

/// The slot of a compressed block of `file` with these stored bytes in `bytes`.
pub(super) fn slot(
    dir: &Path,
    file: &Arc<FileSource>,
    bytes: &Arc<dyn Source>,
    header: &BlockHeader,
    stored: &Arc<dyn Source>,
) -> Option<Slot> {
    let len = header.data_offset().checked_sub(header.offset)?;
    let offset = header.offset;
    let header = Window::new(Arc::clone(bytes), offset, len).ok()?;
    let (file, stored) = (Arc::clone(file), Arc::clone(stored));
    Some(Slot::new(dir, move || {
        key(&file, offset, &header, stored.as_ref())
    }))
}

/// The numbers are little-endian, 8 bytes each: device, inode and size of the file, offset of the block and
/// length of its stored bytes, seconds and nanoseconds of the last change; then come the last of the stored bytes, and the header.
///
/// `None` if they can't be had.
fn key(file: &FileSource, offset: u64, header: &Window, stored: &dyn Source) -> Option<Vec<u8>> {
    let meta = file.file().metadata().ok()?;
    let len = stored.len();
    let mut key = Vec::new();
    for number in [meta.dev(), meta.ino(), meta.size(), offset, len] {
        key.extend(number.to_le_bytes());
    }
    for number in [meta.mtime(), meta.mtime_nsec()] {
        key.extend(number.to_le_bytes());
    }
    let mut tail = [0; TAIL_LEN];
    stored
        .read_exact_at(&mut tail, len.checked_sub(u64::try_from(TAIL_LEN).ok()?)?)
        .ok()?;
    key.extend(tail);
    key.extend(crate::source::read_all(header, u64::from(u16::MAX).saturating_mul(2)).ok()?);
    Some(key)
}
