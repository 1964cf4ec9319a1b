//! What a pass through a block teaches, kept for the next mount: the stream's entries, and a checksum of each segment.
//!
//! An index that comes from a file is believed only as far as it proves right: each segment that is decoded with it must have
//! its checksum before anybody gets to see it. When one has not, or can't be decoded, the index is given up, with all that
//! came by it, and the block is read as if there had been none. That happens once for a block, at most.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | decoded length |
//! | 4 n | CRC-32 of each segment |
//! | rest | the entries, as [`Stream::export`] gives them |
//!
//! Numbers are little-endian.

use std::sync::{Arc, PoisonError};

use super::{Demand, SEGMENT, Shared, State, Stream};
use crate::codec::kept::{Fields, Slot};
use crate::error::{Error, Place, Result};
use crate::source::len_u64;

/// Blocks of fewer segments have no index kept: decoding them takes no time.
const LEAST_SEGMENTS: u64 = 4;

/// Checksums of segments, where they are known.
type Sums = Vec<Option<u32>>;

/// What is known of the segments.
#[derive(Default)]
pub(super) struct Learnt {
    /// Checksums of the segments that have been decoded, as far as the last of them.
    sums: Sums,
    /// How many these are.
    known: u64,
    /// Whether the stream in use has entries of another mount.
    pub(super) imported: bool,
    /// Whether all is kept already, or is going to be.
    kept: bool,
    /// The slot's key, as it was when the block was first read or the file last saved.
    key: Option<Vec<u8>>,
}

impl Learnt {
    /// Takes note of a segment that has been decoded, or finds that it is not the right one.
    fn note(&mut self, index: u64, sum: u32) -> Result<()> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        // What has been decoded is of that so this is no more than a part of it.
        let len = self.sums.len().max(index.saturating_add(1));
        self.sums.resize(len, None);
        match self.sums.get_mut(index) {
            Some(Some(known)) if self.imported && *known != sum => Err(wrong_index()),
            Some(unknown @ None) => {
                *unknown = Some(sum);
                self.known = self.known.saturating_add(1);
                Ok(())
            }
            Some(Some(_)) | None => Ok(()),
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let len = self
            .sums
            .capacity()
            .saturating_mul(size_of::<Option<u32>>());
        len_u64(len)
    }
}

impl Shared {
    /// The slot, if it is worth while to keep an index of this stream.
    pub(super) fn worth_keeping(slot: Option<Slot>, stream: &dyn Stream, len: u64) -> Option<Slot> {
        slot.filter(|_| stream.learns() && segments(len) >= LEAST_SEGMENTS)
    }

    /// The stream in use.
    pub(super) fn stream(&self) -> Arc<dyn Stream> {
        let imported = self.imported.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(imported.as_ref().unwrap_or(&self.first))
    }

    /// Takes the entries that another mount has left, if there are some. Comes before all else, once.
    pub(super) fn recall(&self) {
        if let Some(slot) = &self.slot {
            self.recalled.get_or_init(|| {
                let key = slot.key();
                if let Some(key) = &key {
                    self.recall_from(slot, key);
                }
                self.lock().learnt.key = key;
            });
        }
    }

    fn recall_from(&self, slot: &Slot, key: &[u8]) -> Option<()> {
        let found = slot.find(key)?;
        let _room = self.cache.room(found.len(), self.whose(Demand::AHEAD));
        let bytes = found.read(key)?;
        let Some((stream, sums)) = self.parse(&bytes) else {
            log::warn!("an index that was kept does not fit its block, and is not used");
            return None;
        };
        let mut state = self.lock();
        state.learnt = Learnt {
            known: segments(self.len),
            sums,
            imported: true,
            kept: true,
            key: None,
        };
        *self
            .imported
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(stream);
        self.recount(&mut state, self.whose(Demand::AHEAD));
        Some(())
    }

    fn parse(&self, bytes: &[u8]) -> Option<(Arc<dyn Stream>, Sums)> {
        let mut fields = Fields(bytes);
        if fields.u64()? != self.len {
            return None;
        }
        let len = usize::try_from(segments(self.len)).ok()?;
        let (sums, _) = fields.bytes(len.checked_mul(4)?)?.as_chunks();
        let sums = sums
            .iter()
            .map(|sum| Some(u32::from_le_bytes(*sum)))
            .collect();
        Some((self.first.import(fields.0)?, sums))
    }

    /// Compares a decoded segment with what is known of it, and has all kept when this was the last to be known.
    ///
    /// # Errors
    /// If the decoder that `imported` says something of began with an index that is wrong.
    pub(super) fn learn(
        &self,
        state: &mut State,
        index: u64,
        sum: u32,
        imported: bool,
    ) -> Result<()> {
        if imported && !state.learnt.imported {
            return Err(wrong_index());
        }
        state.learnt.note(index, sum)?;
        self.keep_learnt(state);
        Ok(())
    }

    /// Gives up an index that comes from a file, with all that came by it. Decoders under way find out at their next segment.
    pub(super) fn unlearn(&self, state: &mut State) {
        if state.learnt.imported {
            state.learnt = Learnt {
                key: state.learnt.key.take(),
                ..Learnt::default()
            };
            log::warn!("an index that was kept does not lead to the right bytes, and is not used");
            *self
                .imported
                .write()
                .unwrap_or_else(PoisonError::into_inner) = None;
            self.cache.forget(self.key);
            self.recount(state, self.whose(Demand::AHEAD));
        }
    }

    /// Has what is learnt kept, if all is and nobody has yet.
    pub(super) fn keep_learnt(&self, state: &mut State) {
        let all = state.learnt.known == segments(self.len);
        if self.slot.is_some() && all && !state.learnt.kept {
            let shared = self.this.clone();
            state.learnt.kept = self.cache.work().later(Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.tidy();
                    shared.write_learnt();
                }
            }));
        }
    }

    /// Takes the file as it is now for the one that has been decoded, and has what is learnt kept for it.
    pub(super) fn keep_anew(&self) {
        if let Some(slot) = &self.slot
            && self.recalled.get().is_some()
        {
            let key = slot.key();
            let mut state = self.lock();
            state.learnt.key = key;
            state.learnt.kept = false;
            self.keep_learnt(&mut state);
        }
    }

    fn write_learnt(&self) -> Option<()> {
        let slot = self.slot.as_ref()?;
        let stream = self.stream();
        let (sums, key) = {
            let learnt = &self.lock().learnt;
            (learnt.sums.clone(), learnt.key.clone())
        };
        let held = self.whose(Demand::AHEAD);
        let _room = self.cache.room(stream.held().saturating_mul(2), held);
        let entries = stream.export()?;
        let mut index = self.len.to_le_bytes().to_vec();
        for sum in sums {
            index.extend(sum?.to_le_bytes());
        }
        index.extend(entries);
        // What has been changed meanwhile is not what was decoded.
        if key == slot.key() {
            slot.store(&key?, &index);
        }
        Some(())
    }
}

fn segments(len: u64) -> u64 {
    len.div_ceil(len_u64(SEGMENT))
}

fn wrong_index() -> Error {
    Error::corrupt(
        Place::File,
        "an index that was kept does not lead to the right bytes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::bzp2::Bzp2;
    use crate::codec::inflate::ordinary_stream;
    use crate::codec::testing::{encoded, image, numbers, read_all};
    use crate::codec::zlib::Zlib;
    use crate::codec::{Cache, Codec, Decoded};
    use crate::source::{Memory, Source};
    use proptest::prelude::*;
    use std::fs;
    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use tempfile::TempDir;

    const KEY: &[u8] = b"key";

    /// Stored bytes, counted as they are read.
    struct Counting {
        bytes: Memory,
        read: AtomicU64,
    }

    impl Source for Counting {
        fn len(&self) -> u64 {
            self.bytes.len()
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
            self.bytes.read_exact_at(buf, offset)
        }
    }

    /// A block: its codec, its stored bytes and what they decode to.
    struct Block {
        codec: &'static dyn Codec,
        stored: Vec<u8>,
        plain: Vec<u8>,
    }

    /// As zlib writes it, with windows; as we write it, without; and bzip2, which has blocks.
    static BLOCKS: LazyLock<[Block; 3]> = LazyLock::new(|| {
        let plain = image((6 << 20) + 12_345);
        [
            (&Zlib as &dyn Codec, ordinary_stream(&plain, 6)),
            (&Zlib, encoded(&Zlib, &plain)),
            (&Bzp2, encoded(&Bzp2, &plain)),
        ]
        .map(|(codec, stored)| Block {
            codec,
            stored,
            plain: plain.clone(),
        })
    });

    impl Block {
        /// The block as a mount has it that keeps indexes in `dir`.
        fn open(&self, dir: &Path, key: &'static [u8]) -> (Decoded, Arc<Counting>) {
            let stored = Arc::new(Counting {
                bytes: Memory::new(self.stored.clone()),
                read: AtomicU64::new(0),
            });
            let len = self.plain.len() as u64;
            let stream = self.codec.open(stored.clone(), len).unwrap().stream;
            let slot = Slot::new(dir, move || Some(key.to_vec()));
            let cache = Cache::new(64 << 20);
            (Decoded::indexed(stream, len, &cache, Some(slot)), stored)
        }

        /// The index that a pass through the block leaves.
        fn index(&self) -> Vec<u8> {
            let dir = TempDir::new().unwrap();
            let (decoded, _) = self.open(dir.path(), KEY);
            assert!(read_all(&decoded).unwrap() == self.plain);
            kept(dir.path())
        }

        /// Reads the end first, then all before it, and compares.
        fn assert_reads_right(&self, decoded: &Decoded) {
            for (n, piece) in self.plain.chunks(700_001).enumerate().rev() {
                let mut buf = vec![0; piece.len()];
                decoded.read_exact_at(&mut buf, n as u64 * 700_001).unwrap();
                assert!(buf == piece, "piece {n}");
            }
        }
    }

    /// The index in a directory, as soon as it is there.
    fn kept(dir: &Path) -> Vec<u8> {
        let slot = Slot::new(dir, || None);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(index) = slot.find(KEY).and_then(|found| found.read(KEY)) {
                return index;
            }
            assert!(Instant::now() < deadline, "no index was kept");
            std::thread::yield_now();
        }
    }

    /// A directory with an index in it, which may be anything.
    fn dir_with(index: &[u8]) -> TempDir {
        let dir = TempDir::new().unwrap();
        Slot::new(dir.path(), || None).store(KEY, index);
        assert!(kept(dir.path()) == index);
        dir
    }

    #[test]
    fn after_a_pass_another_mount_reads_the_end_without_what_is_before_it() {
        for block in BLOCKS.iter() {
            let dir = TempDir::new().unwrap();
            let (first, stored) = block.open(dir.path(), KEY);
            assert!(read_all(&first).unwrap() == block.plain);
            let whole_pass = stored.read.load(Ordering::Relaxed);
            let index = kept(dir.path());
            drop(first);

            let (second, stored) = block.open(dir.path(), KEY);
            let mut end = [0; 4096];
            let at = block.plain.len() - end.len();
            second.read_exact_at(&mut end, at as u64).unwrap();
            assert!(end == block.plain[at..]);
            let read = stored.read.load(Ordering::Relaxed);
            assert!(read < whole_pass / 3, "{read} of {whole_pass} bytes read");
            let held = second.shared.stream().held();
            assert!(held > 0 && second.shared.cache.used() > held);

            block.assert_reads_right(&second);
            assert!(kept(dir.path()) == index, "it is not written again");
            let cache = Arc::clone(&second.shared.cache);
            drop(second);
            cache.work().stop();
        }
    }

    #[test]
    fn the_index_of_another_state_of_the_file_is_not_used() {
        let [block, ..] = &*BLOCKS;
        let dir = dir_with(&block.index());
        let (decoded, stored) = block.open(dir.path(), b"another key");
        decoded
            .read_exact_at(&mut [0], block.plain.len() as u64 - 1)
            .unwrap();
        assert!(stored.read.load(Ordering::Relaxed) >= block.stored.len() as u64);
        assert!(!decoded.shared.lock().learnt.imported);
    }

    #[test]
    fn the_index_of_another_block_does_no_harm() {
        for (block, other) in BLOCKS.iter().zip(BLOCKS.iter().cycle().skip(1)) {
            let dir = dir_with(&other.index());
            let (decoded, _) = block.open(dir.path(), KEY);
            block.assert_reads_right(&decoded);
            assert!(!decoded.shared.lock().learnt.imported);
        }
    }

    #[test]
    fn a_file_that_changes_during_the_pass_has_no_index_kept() {
        let [block, ..] = &*BLOCKS;
        let dir = TempDir::new().unwrap();
        let time = AtomicU64::new(0);
        let slot = Slot::new(dir.path(), move || {
            Some(vec![time.fetch_add(1, Ordering::SeqCst) as u8])
        });
        let stored = Arc::new(Memory::new(block.stored.clone()));
        let len = block.plain.len() as u64;
        let stream = block.codec.open(stored, len).unwrap().stream;
        let decoded = Decoded::indexed(stream, len, &Cache::new(64 << 20), Some(slot));
        read_all(&decoded).unwrap();
        assert!(decoded.shared.write_learnt().is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn after_a_save_the_index_is_kept_for_the_file_as_it_is_then() {
        let [block, ..] = &*BLOCKS;
        let dir = TempDir::new().unwrap();
        let saved = Arc::new(AtomicBool::new(false));
        let is_saved = Arc::clone(&saved);
        let slot = Slot::new(dir.path(), move || {
            let key = if is_saved.load(Ordering::SeqCst) {
                KEY
            } else {
                b"before"
            };
            Some(key.to_vec())
        });
        let stored = Arc::new(Memory::new(block.stored.clone()));
        let len = block.plain.len() as u64;
        let stream = block.codec.open(stored, len).unwrap().stream;
        let decoded = Decoded::indexed(stream, len, &Cache::new(64 << 20), Some(slot));
        read_all(&decoded).unwrap();
        saved.store(true, Ordering::SeqCst);
        decoded.keep_anew();
        assert!(!kept(dir.path()).is_empty());
        let (again, stored) = block.open(dir.path(), KEY);
        again.read_exact_at(&mut [0], len - 1).unwrap();
        assert!(stored.read.load(Ordering::Relaxed) < block.stored.len() as u64 / 3);
    }

    #[test]
    fn damage_of_the_block_is_told_with_an_index_as_without() {
        for block in BLOCKS.iter() {
            let dir = dir_with(&block.index());
            let mut damaged = Block {
                codec: block.codec,
                stored: block.stored.clone(),
                plain: block.plain.clone(),
            };
            let at = damaged.stored.len() / 2;
            let mut below = numbers(7);
            damaged.stored[at..at + 100_000].fill_with(|| below(256) as u8);
            let (decoded, _) = damaged.open(dir.path(), KEY);
            assert!(read_all(&decoded).is_err());
            let mut start = vec![0; 1 << 20];
            decoded.read_exact_at(&mut start, 0).unwrap();
            assert!(start == block.plain[..start.len()]);
            assert!(decoded.shared.cache.used() < 32 << 20);
        }
    }

    #[test]
    fn an_index_with_any_byte_changed_does_no_harm() {
        let plain: Vec<u8> = (0..(3 << 20) + 12_345).map(|n| (n / 5000) as u8).collect();
        let block = Block {
            codec: &Zlib,
            stored: encoded(&Zlib, &plain),
            plain,
        };
        let index = block.index();
        assert!((50..250).contains(&index.len()), "{} bytes", index.len());
        for at in 0..index.len() {
            let mut changed = index.clone();
            changed[at] ^= 1 << (at % 8);
            let dir = dir_with(&changed);
            let (decoded, _) = block.open(dir.path(), KEY);
            block.assert_reads_right(&decoded);
        }
    }

    #[test]
    fn readers_at_once_all_get_the_right_bytes_in_spite_of_a_wrong_index() {
        for block in BLOCKS.iter() {
            let mut index = block.index();
            let sums = 8..8 + 4 * segments(block.plain.len() as u64) as usize;
            index[sums.end - 5] ^= 1;
            let dir = dir_with(&index);
            let (decoded, _) = block.open(dir.path(), KEY);
            std::thread::scope(|scope| {
                for seed in 0..4 {
                    let decoded = &decoded;
                    scope.spawn(move || {
                        let mut below = numbers(seed);
                        for _ in 0..20 {
                            let at = below(block.plain.len() as u64 - 5000) as usize;
                            let mut buf = vec![0; 5000];
                            decoded.read_exact_at(&mut buf, at as u64).unwrap();
                            assert!(buf == block.plain[at..at + 5000]);
                        }
                        block.assert_reads_right(decoded);
                    });
                }
            });
            assert!(!decoded.shared.lock().learnt.imported);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn whatever_index_there_is_the_bytes_are_right(
            which in 0usize..3,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
            more in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            static INDEXES: LazyLock<Vec<Vec<u8>>> =
                LazyLock::new(|| BLOCKS.iter().map(Block::index).collect());
            let block = &BLOCKS[which];
            let mut index = INDEXES[which].clone();
            for (place, value) in changes {
                let at = place.index(index.len());
                index[at] = value;
            }
            if let Some(cut) = cut {
                index.truncate(cut.index(index.len()));
            }
            index.extend(more);
            let dir = dir_with(&index);
            let (decoded, _) = block.open(dir.path(), KEY);
            block.assert_reads_right(&decoded);
        }
    }
}
