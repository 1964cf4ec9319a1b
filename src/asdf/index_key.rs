//! The key of a stored seek index: the file's identity and state, the block's header, and the block's last bytes.
//!
//! Size and modification time tell one state of a file from another. Where a tool has set that time back, the checksum in the
//! header, or the one at the end of a compressed stream, tells the data apart.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::header::BlockHeader;
use crate::codec::IndexSlot;
use crate::source::{FileSource, Source, Window};

/// How many of the block's last stored bytes belong to the key.
const TAIL_LEN: usize = 16;

/// The slot of a compressed block of `file` with these stored bytes in `bytes`.
pub(super) fn slot(
    dir: &Path,
    file: &Arc<FileSource>,
    bytes: &Arc<dyn Source>,
    header: &BlockHeader,
    stored: &Arc<dyn Source>,
) -> Option<IndexSlot> {
    let len = header.data_offset().checked_sub(header.offset)?;
    let offset = header.offset;
    let header = Window::new(Arc::clone(bytes), offset, len).ok()?;
    let (file, stored) = (Arc::clone(file), Arc::clone(stored));
    Some(IndexSlot::new(dir, move || {
        key(&file, offset, &header, stored.as_ref())
    }))
}

/// The numbers are little-endian, 8 bytes each: device, inode and size of the file, offset of the block and
/// length of its stored bytes, seconds and nanoseconds of the last change; then come the last of the stored bytes, and the header.
///
/// `None` if one of them can't be read.
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

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, block_with};
    use super::super::{OpenOptions, Snapshot};
    use super::*;
    use crate::asdf::scan::Scan;
    use crate::codec::{Cache, check_index_dir};
    use crate::source::{Memory, read_all};
    use std::fs::{self, File};
    use std::io::Write;
    use std::time::{Duration, Instant, SystemTime};
    use tempfile::TempDir;

    /// A block of as many segments as an index is kept of.
    fn sample() -> (Sample, Vec<u8>) {
        let plain: Vec<u8> = (0..5_u32 << 20).map(|n| (n / 999) as u8).collect();
        let mut stored = Vec::new();
        let codec = crate::codec::codec(*b"zlib").unwrap();
        let source = Memory::new(plain.clone());
        codec.encode(None, &source, &mut stored).unwrap();
        let len = stored.len() as u64;
        let block = block_with(*b"zlib", &stored, plain.len() as u64, len);
        (Sample::new().stored(block), plain)
    }

    #[test]
    fn the_key_has_all_that_an_index_depends_on() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [7; 1000]).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(12_345, 678_000_000);
        let file = File::options().write(true).read(true).open(&path).unwrap();
        file.set_modified(then).unwrap();
        let meta = file.metadata().unwrap();
        let file = FileSource::open(Arc::new(file)).unwrap();
        let header = Window::new(Arc::new(Memory::new(b"header".to_vec())), 1, 4).unwrap();
        let stored: Vec<u8> = (0..100).collect();
        let found = key(&file, 777, &header, &Memory::new(stored.clone())).unwrap();
        let numbers = [meta.dev(), meta.ino(), 1000, 777, 100, 12_345, 678_000_000];
        let mut want: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        want.extend(&stored[84..]);
        want.extend(b"eade");
        assert_eq!(found, want);
    }

    #[test]
    fn after_a_save_the_index_is_kept_for_the_file_as_it_is_then() {
        let place = TempDir::new().unwrap();
        let dir = place.path().join("indexes");
        check_index_dir(&dir).unwrap();
        let (sample, plain) = sample();
        let path = place.path().join("file.asdf");
        fs::write(&path, sample.bytes()).unwrap();
        let file = Arc::new(File::options().read(true).append(true).open(&path).unwrap());
        let options = OpenOptions {
            index_cache: Some(dir.clone()),
            ..OpenOptions::default()
        };
        let snapshot = Snapshot::open(Arc::clone(&file), Cache::new(64 << 20), options).unwrap();
        assert!(read_all(snapshot.block(0).unwrap().as_ref(), u64::MAX).unwrap() == plain);
        let eventually_kept = |count: usize| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while fs::read_dir(&dir).map_or(0, Iterator::count) != count {
                assert!(Instant::now() < deadline, "{count} indexes are not there");
                std::thread::yield_now();
            }
        };
        eventually_kept(1);
        file.as_ref().write_all(b"\n").unwrap();
        let scan = Scan {
            layout: snapshot.layout().clone(),
            text: Arc::clone(snapshot.text()),
        };
        let _next = snapshot.succeeded_by(file, None, scan, &[], None);
        eventually_kept(2);
    }
}
