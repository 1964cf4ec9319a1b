//! Bytes that are not in FILE: in memory while they are few, then in a temporary file without a name.
//!
//! All [`ScratchBytes`] of a mount share one [`ScratchRoom`], which has the limit. Bytes that grow beyond [`IN_MEMORY`], or find
//! the shared memory used up, get a temporary file of their own, so that the disk has its space back when they are dropped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{checked_end, len_u64};
use crate::error::{Error, Result};

/// The longest bytes that are kept in memory.
const IN_MEMORY: u64 = 1 << 20;
/// How much memory all of them take together.
const MEMORY: u64 = 64 << 20;

/// What all scratch bytes of a mount may take.
#[derive(Debug)]
pub struct ScratchRoom {
    limit: u64,
    used: AtomicU64,
    in_memory: AtomicU64,
    directory: PathBuf,
}

impl ScratchRoom {
    /// Room for so many bytes. Temporary files lie in `directory` if possible, else in the one for temporary files.
    #[must_use]
    pub fn new(limit: u64, directory: &Path) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            in_memory: AtomicU64::new(0),
            directory: directory.to_owned(),
        })
    }

    /// How many bytes may be taken.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes are taken now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `more` bytes of the limit.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; then none are taken.
    pub fn take(&self, more: u64) -> Result<()> {
        add_within(&self.used, more, self.limit)
            .then_some(())
            .ok_or_else(|| {
                let limit = self.limit;
                let why = format!(
                    "scratch files are limited to {limit} bytes in all; -o scratch=SIZE raises it"
                );
                Error::NoRoom { why, limit: false }
            })
    }

    /// Gives back `bytes` that were taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Adds to a sum, unless it would exceed a limit. Returns whether it did.
fn add_within(sum: &AtomicU64, more: u64, limit: u64) -> bool {
    let next = |sum: u64| {
        sum.checked_add(more)
            // a write over bytes that are taken already needs no room
            .filter(|&sum| more == 0 || sum <= limit)
    };
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .is_ok()
}

/// Bytes that can be written and cut; what was never written reads as zeros.
#[derive(Debug)]
pub struct ScratchBytes {
    room: Arc<ScratchRoom>,
    len: u64,
    /// Bytes taken of the room: all that were written, each time they were, but no more than the length.
    taken: u64,
    held: Held,
}

/// Where the bytes are.
#[derive(Debug)]
enum Held {
    /// As many as were written so far, counted in the room's memory by their capacity.
    Memory(Vec<u8>),
    File(File),
}

impl ScratchBytes {
    /// No bytes.
    #[must_use]
    pub fn new(room: &Arc<ScratchRoom>) -> Self {
        Self {
            room: Arc::clone(room),
            len: 0,
            taken: 0,
            held: Held::Memory(Vec::new()),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// [`Error::NoRoom`], and then nothing has changed; [`Error::Io`], and then some of `data` may be written; [`Error::Corrupt`] beyond
    /// 2^63.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = checked_end(offset, data.len(), i64::MAX.unsigned_abs())?;
        let len = self.len.max(end);
        // Bytes that are written twice count twice, up to the length:
        // to count them exactly would take a list of all pieces.
        let wanted = self.taken.saturating_add(len_u64(data.len())).min(len);
        let more = wanted.saturating_sub(self.taken);
        // before the write, so that two threads can't pass the limit together
        self.room.take(more)?;
        self.taken = wanted;
        let written = self.put(offset, end, data);
        if written.is_ok() {
            self.len = len;
        }
        written.map_err(|cause| {
            if cause.kind() == io::ErrorKind::FileTooLarge {
                // a hole may be longer than the disk lets a file be
                let why = format!("no temporary file can have {len} bytes");
                return Error::NoRoom { why, limit: false };
            }
            Error::io("writing to the temporary file of a scratch file", cause)
        })
    }

    fn put(&mut self, offset: u64, end: u64, data: &[u8]) -> io::Result<()> {
        // once and for good: a file is never taken back into memory
        if end > IN_MEMORY || !self.grow(end)? {
            self.leave_memory()?;
        }
        match &mut self.held {
            Held::Memory(bytes) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                let there = bytes
                    .get_mut(start..)
                    .and_then(|behind| behind.get_mut(..data.len()));
                let there = there.ok_or(io::ErrorKind::UnexpectedEof)?;
                there.copy_from_slice(data);
                Ok(())
            }
            Held::File(file) => file.write_all_at(data, offset),
        }
    }

    /// Grows the bytes in memory to `end`, if they are in memory. Returns `false` if the shared memory is used up.
    fn grow(&mut self, end: u64) -> io::Result<bool> {
        let Held::Memory(bytes) = &mut self.held else {
            return Ok(true);
        };
        let end = usize::try_from(end).map_err(io::Error::other)?;
        if end > bytes.len() {
            let before = bytes.capacity();
            if end > before {
                // doubled, so that small writes in sequence do not copy everything each time
                let wanted = end.max(before.saturating_mul(2));
                let more = len_u64(wanted.saturating_sub(before));
                if !add_within(&self.room.in_memory, more, MEMORY) {
                    return Ok(false);
                }
                bytes.reserve_exact(wanted.saturating_sub(bytes.len()));
            }
            bytes.resize(end, 0);
        }
        Ok(true)
    }

    /// Moves the bytes from memory to a temporary file.
    fn leave_memory(&mut self) -> io::Result<()> {
        if let Held::Memory(bytes) = &self.held {
            let file = unnamed_file(&self.room.directory)?;
            // the memory is given back only when the file has everything
            file.write_all_at(bytes, 0)?;
            self.free_memory();
            self.held = Held::File(file);
        }
        Ok(())
    }

    /// Gives back the shared memory that these bytes take.
    fn free_memory(&self) {
        if let Held::Memory(bytes) = &self.held {
            self.room
                .in_memory
                .fetch_sub(len_u64(bytes.capacity()), Ordering::Relaxed);
        }
    }

    /// Fills `buf` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] beyond the end; [`Error::Io`].
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let read = match &self.held {
            Held::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let there = bytes.get(start..).unwrap_or_default();
                let (written, hole) = buf.split_at_mut(there.len().min(buf.len()));
                written.copy_from_slice(there.get(..written.len()).unwrap_or_default());
                hole.fill(0);
                Ok(())
            }
            Held::File(file) => read_with_holes(file, buf, offset),
        };
        read.map_err(|cause| Error::io("reading the temporary file of a scratch file", cause))
    }

    /// Sets the length; what is added reads as zeros.
    ///
    /// # Errors
    /// [`Error::Io`] if the end can't be cut off: it would show again when the length grows.
    pub fn resize(&mut self, len: u64) -> Result<()> {
        if len < self.len {
            match &mut self.held {
                Held::Memory(bytes) => {
                    let before = bytes.capacity();
                    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
                    bytes.shrink_to_fit();
                    let freed = before.saturating_sub(bytes.capacity());
                    self.room
                        .in_memory
                        .fetch_sub(len_u64(freed), Ordering::Relaxed);
                }
                Held::File(file) => {
                    // a file that ends in a hole is shorter than the bytes, and must not grow here
                    let there = file.metadata().map(|file| file.len());
                    let cut = there.and_then(|there| file.set_len(len.min(there)));
                    cut.map_err(|cause| {
                        Error::io("cutting the temporary file of a scratch file", cause)
                    })?;
                }
            }
            let freed = self.taken.saturating_sub(len);
            self.taken = self.taken.min(len);
            self.room.give(freed);
        }
        self.len = len;
        Ok(())
    }
}

impl Drop for ScratchBytes {
    fn drop(&mut self) {
        self.free_memory();
        self.room.give(self.taken);
    }
}

/// Reads a file that may end before `buf` is full: the rest reads as zeros.
fn read_with_holes(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    let (mut rest, mut at) = (buf, offset);
    while !rest.is_empty() {
        match file.read_at(rest, at) {
            // the file ends: all that follows is a hole
            Ok(0) => {
                rest.fill(0);
                return Ok(());
            }
            Ok(read) => {
                rest = rest.split_at_mut(read).1;
                at = at.saturating_add(len_u64(read));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A temporary file without a name, in this directory if possible, else in the one for temporary files.
///
/// # Errors
/// If neither directory has room for it.
pub fn unnamed_file(beside: &Path) -> io::Result<File> {
    tempfile::tempfile_in(beside).or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn room(limit: u64) -> Arc<ScratchRoom> {
        ScratchRoom::new(limit, &std::env::temp_dir())
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, usize),
        Resize(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let far = || prop_oneof![0..5000_u64, IN_MEMORY - 3000..IN_MEMORY + 3000];
        let step = prop_oneof![
            (far(), 0..3000_usize).prop_map(|(at, len)| Step::Write(at, len)),
            far().prop_map(Step::Resize),
        ];
        prop::collection::vec(step, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn it_is_a_file(steps in steps()) {
            let room = room(u64::MAX);
            let (mut bytes, mut model) = (ScratchBytes::new(&room), Vec::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(at, len) => {
                        let data = vec![n as u8 + 1; len];
                        bytes.write(at, &data).unwrap();
                        let end = at as usize + len;
                        model.resize(model.len().max(end), 0);
                        model[at as usize..end].copy_from_slice(&data);
                    }
                    Step::Resize(len) => {
                        bytes.resize(len).unwrap();
                        model.resize(len as usize, 0);
                    }
                }
                let mut found = vec![9; model.len()];
                bytes.read_exact_at(&mut found, 0).unwrap();
                prop_assert!(found == model);
                prop_assert!(room.used() <= bytes.len());
            }
            prop_assert!(bytes.read_exact_at(&mut [0], model.len() as u64).is_err());
            drop(bytes);
            prop_assert_eq!((room.used(), room.in_memory.load(Ordering::Relaxed)), (0, 0));
        }
    }

    #[test]
    fn beyond_the_limit_nothing_is_written() {
        let room = room(10);
        let mut bytes = ScratchBytes::new(&room);
        bytes.write(0, &[1; 8]).unwrap();
        assert!(matches!(
            bytes.write(8, &[1; 3]),
            Err(Error::NoRoom { limit: false, .. })
        ));
        assert_eq!((bytes.len(), room.used()), (8, 8));
        bytes.write(0, &[2; 8]).unwrap();
        bytes.resize(0).unwrap();
        bytes.write(0, &[1; 10]).unwrap();
    }

    #[test]
    fn a_hole_takes_nothing() {
        let room = room(100);
        let mut bytes = ScratchBytes::new(&room);
        bytes.write(1 << 40, b"end").unwrap();
        assert_eq!(room.used(), 3);
        let mut found = [9; 4];
        bytes.read_exact_at(&mut found, (1 << 40) - 1).unwrap();
        assert_eq!(&found, b"\0end");
    }

    #[test]
    fn many_small_ones_do_not_take_all_memory() {
        let room = room(u64::MAX);
        let mut all: Vec<_> = (0..80).map(|_| ScratchBytes::new(&room)).collect();
        for bytes in &mut all {
            bytes.write(0, &vec![7; 1 << 20]).unwrap();
        }
        assert!(room.in_memory.load(Ordering::Relaxed) <= MEMORY);
        let mut last = [0];
        all[79].read_exact_at(&mut last, (1 << 20) - 1).unwrap();
        assert_eq!(last, [7]);
    }

    #[test]
    fn a_missing_directory_is_replaced_by_that_for_temporary_files() {
        let room = ScratchRoom::new(u64::MAX, Path::new("/nonexistent"));
        ScratchBytes::new(&room).write(IN_MEMORY, b"x").unwrap();
    }
}
