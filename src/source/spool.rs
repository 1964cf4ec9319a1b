//! One temporary file for all bytes of a mount that are written and not saved yet.
//!
//! A [`SpoolFile`] is a sparse file of its own inside it: the space behind a part's offsets is taken, in grains, when they are written
//! to, and goes back to the others when the part is cut or dropped. So a thousand edits, of however many files, have one
//! descriptor, and the disk gets back what an edit took when it is over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::{at_most, len_u64};
use crate::error::lock;

/// Bytes that are taken at a time: a page, as most file systems do.
const GRAIN: u64 = 4096;

/// A temporary file without a name, made when the first byte is written to it.
#[derive(Debug)]
pub struct Spool {
    beside: PathBuf,
    file: OnceLock<File>,
    space: Mutex<Space>,
}

/// What of the file is taken, in grains.
#[derive(Debug, Default)]
struct Space {
    /// Free runs below `end`, by their start, with their end; apart from each other.
    free: BTreeMap<u64, u64>,
    /// Everything from here on is free.
    end: u64,
}

/// A sparse file in a [`Spool`]. Only what was written may be read.
#[derive(Debug)]
pub struct SpoolFile {
    spool: Arc<Spool>,
    /// Where its grains are in the spool: runs that lie side by side there, by their first grain.
    runs: BTreeMap<u64, Range<u64>>,
}

impl Spool {
    /// A file in the directory `beside` if possible, else in the one for temporary files.
    #[must_use]
    pub fn new(beside: &Path) -> Arc<Self> {
        Arc::new(Self {
            beside: beside.to_owned(),
            file: OnceLock::new(),
            space: Mutex::default(),
        })
    }

    /// An empty file in it.
    #[must_use]
    pub fn part(self: &Arc<Self>) -> SpoolFile {
        SpoolFile {
            spool: Arc::clone(self),
            runs: BTreeMap::new(),
        }
    }

    /// The temporary file, which the first write makes. If two threads make one at once, one of them is dropped.
    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let made = unnamed_file(&self.beside)?;
        Ok(self.file.get_or_init(|| made))
    }

    /// Gives grains back to the disk, then to the other parts. The disk may keep them where files have no holes.
    fn free(&self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        if let Some(file) = self.file.get() {
            let (start, end) = (
                run.start.saturating_mul(GRAIN),
                run.end.saturating_mul(GRAIN),
            );
            punch_hole(file, start, end.saturating_sub(start));
        }
        let mut space = lock(&self.space);
        space.free(run);
        // under the lock: no thread takes grains meanwhile that this would cut off
        if space.end == 0
            && let Some(file) = self.file.get()
        {
            let _ = file.set_len(0);
        }
    }
}

/// How many grains a run has.
fn len_of(run: &Range<u64>) -> u64 {
    run.end.saturating_sub(run.start)
}

/// A temporary file without a name, in this directory if possible, else in the one for temporary files.
///
/// # Errors
/// If neither directory has room for it.
pub fn unnamed_file(beside: &Path) -> io::Result<File> {
    tempfile::tempfile_in(beside).or_else(|_| tempfile::tempfile())
}

/// Gives the disk back what `len` bytes at `start` take, if the file system can.
#[cfg(target_os = "linux")]
fn punch_hole(file: &File, start: u64, len: u64) {
    use rustix::fs::FallocateFlags;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = rustix::fs::fallocate(file, hole, start, len);
}

#[cfg(not(target_os = "linux"))]
fn punch_hole(_: &File, _: u64, _: u64) {}

impl Space {
    /// At most `want` grains that lie side by side, at least one.
    fn take(&mut self, want: u64) -> Range<u64> {
        let Some((start, end)) = self.free.pop_first() else {
            let start = self.end;
            self.end = start.saturating_add(want);
            return start..self.end;
        };
        let taken = end.min(start.saturating_add(want));
        if taken < end {
            self.free.insert(taken, end);
        }
        start..taken
    }

    /// Takes back a run of grains, and joins it with the free ones that it touches.
    fn free(&mut self, run: Range<u64>) {
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &its_end)) = self.free.range(..start).next_back()
            && its_end == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(behind) = self.free.remove(&end) {
            end = behind;
        }
        if end == self.end {
            self.end = start;
        } else {
            self.free.insert(start, end);
        }
    }
}

impl SpoolFile {
    /// Writes all of `data` at `offset`. If that fails, it may have written some of it.
    ///
    /// # Errors
    /// Of making the file or writing to it.
    pub fn write_all_at(&mut self, data: &[u8], offset: u64) -> io::Result<()> {
        self.reserve(offset, offset.saturating_add(len_u64(data.len())));
        let file = self.spool.file()?;
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (place, len) = self.place(at, rest.len())?;
            let (piece, behind) = rest.split_at(len);
            file.write_all_at(piece, place)?;
            at = at.saturating_add(len_u64(len));
            rest = behind;
        }
        Ok(())
    }

    /// Fills `buf` with what was written at `offset`.
    ///
    /// # Errors
    /// Of reading the file; [`io::ErrorKind::UnexpectedEof`] where nothing was written.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.spool.file()?;
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (place, len) = self.place(at, rest.len())?;
            let (piece, behind) = rest.split_at_mut(len);
            file.read_exact_at(piece, place)?;
            at = at.saturating_add(len_u64(len));
            rest = behind;
        }
        Ok(())
    }

    /// Gives back all that lies wholly behind `len` bytes.
    pub fn cut(&mut self, len: u64) {
        let grain = len.div_ceil(GRAIN);
        if let Some((&first, run)) = self.runs.range_mut(..grain).next_back() {
            let kept = grain.saturating_sub(first);
            let end = run.start.saturating_add(kept);
            if run.end > end {
                let cut = end..std::mem::replace(&mut run.end, end);
                self.spool.free(cut);
            }
        }
        for run in self.runs.split_off(&grain).into_values() {
            self.spool.free(run);
        }
    }

    /// Takes the grains of these bytes that it has not yet.
    fn reserve(&mut self, start: u64, end: u64) {
        let end = end.div_ceil(GRAIN);
        let mut grain = start.checked_div(GRAIN).unwrap_or(0);
        while grain < end {
            let there = self.runs.range(..=grain).next_back();
            let there = there.map_or(0, |(&first, run)| first.saturating_add(len_of(run)));
            if there > grain {
                grain = there;
                continue;
            }
            let next = self.runs.range(grain..).next();
            let gap_end = next.map_or(end, |(&first, _)| first.min(end));
            let taken = lock(&self.spool.space).take(gap_end.saturating_sub(grain));
            let next = grain.saturating_add(len_of(&taken));
            self.add(grain, taken);
            grain = next;
        }
    }

    /// Notes where grains are, joining them with those in front of them if they lie side by side there too.
    fn add(&mut self, grain: u64, run: Range<u64>) {
        if let Some((&first, before)) = self.runs.range_mut(..grain).next_back()
            && first.saturating_add(len_of(before)) == grain
            && before.end == run.start
        {
            before.end = run.end;
        } else {
            self.runs.insert(grain, run);
        }
    }

    /// Where byte `at` is in the spool, and how many of `len` bytes lie there in one piece.
    fn place(&self, at: u64, len: usize) -> io::Result<(u64, usize)> {
        let (grain, inside) = (at / GRAIN, at % GRAIN);
        let run = self.runs.range(..=grain).next_back();
        let found = run.and_then(|(&first, run)| {
            let skipped = grain.saturating_sub(first);
            let grains = len_of(run).checked_sub(skipped).filter(|&left| left > 0)?;
            let place = run.start.checked_add(skipped)?.checked_mul(GRAIN)?;
            let there = grains.saturating_mul(GRAIN).saturating_sub(inside);
            Some((place.checked_add(inside)?, there))
        });
        let (place, there) = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((place, at_most(there, len)))
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.cut(0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use proptest::prelude::*;

    fn spool() -> (tempfile::TempDir, Arc<Spool>) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path());
        (dir, spool)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(usize, u64, Vec<u8>),
        Cut(usize, u64),
        Renew(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (part, place) = (0usize..3, 0u64..6 * GRAIN);
        let data = (1u8.., 1usize..3 * 4096).prop_map(|(byte, len)| vec![byte; len]);
        prop_oneof![
            4 => (part.clone(), place.clone(), data).prop_map(|(part, at, data)| Step::Write(part, at, data)),
            1 => (part.clone(), place).prop_map(|(part, len)| Step::Cut(part, len)),
            1 => part.prop_map(Step::Renew),
        ]
    }

    /// What is taken by parts and what is free are all grains of the file, each once.
    fn check_space(spool: &Spool, parts: &[SpoolFile]) -> Result<(), TestCaseError> {
        let space = lock(&spool.space);
        let taken = parts.iter().flat_map(|part| part.runs.values());
        let taken = taken.map(|run| (run.start, run.end));
        let free = space.free.iter().map(|(&start, &end)| (start, end));
        let mut runs: Vec<_> = taken.chain(free).collect();
        runs.sort_unstable();
        let mut at = 0;
        for (start, end) in runs {
            prop_assert_eq!(start, at);
            prop_assert!(end > start);
            at = end;
        }
        prop_assert_eq!(at, space.end);
        let mut free = space
            .free
            .iter()
            .zip(space.free.keys().skip(1).chain([&space.end]));
        prop_assert!(
            free.all(|((_, end), next)| end < next),
            "free runs that touch"
        );
        Ok(())
    }

    proptest! {
        #[test]
        fn parts_keep_their_bytes_apart_and_give_their_space_back(steps in prop::collection::vec(step(), 1..40)) {
            let (_dir, spool) = spool();
            let mut parts = [spool.part(), spool.part(), spool.part()];
            let mut models: [BTreeMap<u64, u8>; 3] = Default::default();
            for step in steps {
                match step {
                    Step::Write(n, at, data) => {
                        parts[n].write_all_at(&data, at).unwrap();
                        models[n].extend((at..).zip(data));
                    }
                    Step::Cut(n, len) => {
                        parts[n].cut(len);
                        models[n].split_off(&len);
                    }
                    Step::Renew(n) => {
                        parts[n] = spool.part();
                        models[n].clear();
                    }
                }
                check_space(&spool, &parts)?;
            }
            for (part, model) in parts.iter().zip(&models) {
                let mut rest = model.iter().peekable();
                while let Some((&start, &byte)) = rest.next() {
                    let mut wanted = vec![byte];
                    while let Some((_, &byte)) = rest.next_if(|(at, _)| **at == start + wanted.len() as u64) {
                        wanted.push(byte);
                    }
                    let mut found = vec![0; wanted.len()];
                    part.read_exact_at(&mut found, start).unwrap();
                    prop_assert!(found == wanted, "at {}", start);
                }
            }
            drop(parts);
            prop_assert_eq!(lock(&spool.space).end, 0);
            prop_assert_eq!(spool.file().unwrap().metadata().unwrap().len(), 0);
        }
    }

    #[test]
    fn a_part_that_is_gone_takes_no_room_on_the_disk() {
        let (dir, spool) = spool();
        let (mut first, mut second) = (spool.part(), spool.part());
        first.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        second.write_all_at(&[2; 10], 1 << 40).unwrap();
        let blocks = || spool.file().unwrap().metadata().unwrap().blocks() * 512;
        assert!(blocks() > 1 << 20);
        drop(first);
        assert!(blocks() < 1 << 20, "{} bytes are kept", blocks());
        let mut found = [0; 10];
        second.read_exact_at(&mut found, 1 << 40).unwrap();
        assert_eq!(found, [2; 10]);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "it has a name"
        );
    }

    #[test]
    fn bytes_that_are_written_in_order_are_one_run() {
        let (_dir, spool) = spool();
        let mut part = spool.part();
        for n in 0..100 {
            part.write_all_at(&[1; 1000], n * 1000).unwrap();
        }
        assert_eq!(part.runs.len(), 1);
    }

    #[test]
    fn what_was_never_written_is_an_error() {
        let (_dir, spool) = spool();
        let mut part = spool.part();
        part.write_all_at(&[1; 10], GRAIN).unwrap();
        for at in [0, GRAIN - 1, 2 * GRAIN] {
            let error = part.read_exact_at(&mut [0; 2], at).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_missing_directory_is_replaced_by_that_for_temporary_files() {
        let spool = Spool::new(Path::new("/nonexistent"));
        spool.part().write_all_at(b"x", 0).unwrap();
    }
}
