use super::super::decode::{Decode, Decoder};
use super::*;
use crate::codec::bzp2::Bzp2;
use crate::codec::deflate::{crc32, ordinary_stream};
use crate::codec::testing::{Counted, encoded, image, numbers, read_all};
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
    fn open(&self, dir: &Path, key: &'static [u8]) -> (Arc<Decoded>, Arc<Counted<Memory>>) {
        let stored = Memory::new(self.stored.clone());
        let stored = Arc::new(Counted(stored, AtomicU64::new(0)));
        let len = self.plain.len() as u64;
        let stream = self.codec.open(stored.clone(), len).unwrap().stream;
        let slot = IndexSlot::new(dir, move || Some(key.to_vec()));
        let cache = Cache::new(64 << 20);
        (Decoded::new(stream, len, &cache, Some(slot)), stored)
    }

    /// The index that a pass through the block leaves.
    fn index(&self) -> Vec<u8> {
        let dir = TempDir::new().unwrap();
        let (decoded, _) = self.open(dir.path(), KEY);
        assert!(read_all(&*decoded).unwrap() == self.plain);
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
    kept_as(dir, KEY, |_| true)
}

/// The index of a key, as soon as there is one that is wanted.
fn kept_as(dir: &Path, key: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let slot = IndexSlot::new(dir, || None);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = slot.find(key).and_then(|found| found.read(key));
        if let Some(index) = found.filter(|index| wanted(index)) {
            return index;
        }
        assert!(Instant::now() < deadline, "no such index was kept");
        std::thread::yield_now();
    }
}

/// A directory with an index in it, which may be anything.
fn dir_with(index: &[u8]) -> TempDir {
    let dir = TempDir::new().unwrap();
    IndexSlot::new(dir.path(), || None).store(KEY, index);
    assert!(kept(dir.path()) == index);
    dir
}

#[test]
fn after_a_pass_another_mount_reads_the_end_without_what_is_before_it() {
    for block in BLOCKS.iter() {
        let dir = TempDir::new().unwrap();
        let (first, stored) = block.open(dir.path(), KEY);
        assert!(read_all(&*first).unwrap() == block.plain);
        let whole_slot = stored.1.load(Ordering::Relaxed);
        let index = kept(dir.path());
        drop(first);

        let (second, stored) = block.open(dir.path(), KEY);
        let mut end = [0; 4096];
        let at = block.plain.len() - end.len();
        second.read_exact_at(&mut end, at as u64).unwrap();
        assert!(end == block.plain[at..]);
        let read = stored.1.load(Ordering::Relaxed);
        assert!(read < whole_slot / 3, "{read} of {whole_slot} bytes read");
        let held = second.lock().stream.held();
        assert!(held > 0 && second.cache.used() > held);

        block.assert_reads_right(&second);
        assert!(kept(dir.path()) == index, "it is not written again");
        let cache = Arc::clone(&second.cache);
        drop(second);
        cache.jobs().stop();
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
    assert!(stored.1.load(Ordering::Relaxed) >= block.stored.len() as u64);
    assert!(!decoded.is_indexed(&decoded.lock().stream));
}

#[test]
fn the_index_of_another_block_does_no_harm() {
    for (block, other) in BLOCKS.iter().zip(BLOCKS.iter().cycle().skip(1)) {
        let dir = dir_with(&other.index());
        let (decoded, _) = block.open(dir.path(), KEY);
        block.assert_reads_right(&decoded);
        assert!(!decoded.is_indexed(&decoded.lock().stream));
    }
}

#[test]
fn a_file_that_changes_during_the_pass_has_no_index_kept() {
    let [block, ..] = &*BLOCKS;
    let dir = TempDir::new().unwrap();
    let time = AtomicU64::new(0);
    let slot = IndexSlot::new(dir.path(), move || {
        Some(vec![time.fetch_add(1, Ordering::SeqCst) as u8])
    });
    let stored = Arc::new(Memory::new(block.stored.clone()));
    let len = block.plain.len() as u64;
    let stream = block.codec.open(stored, len).unwrap().stream;
    let decoded = Decoded::new(stream, len, &Cache::new(64 << 20), Some(slot));
    read_all(&*decoded).unwrap();
    let key_is_gone = || {
        let sums = &decoded.lock().sums;
        sums.key.is_none() && !sums.stored
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !key_is_gone() {
        assert!(Instant::now() < deadline, "it is still to be kept");
        std::thread::yield_now();
    }
    read_all(&*decoded).unwrap();
    assert!(key_is_gone(), "nobody tries again before the file is saved");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The index of a block of which segment 2 is wrong, with the checksum of that, and the checksum of segment 4 is wrong.
fn forged(block: &Block) -> Vec<u8> {
    let mut index = block.index();
    let sums = 8..8 + 4 * segments(block.plain.len() as u64) as usize;
    let stored = Arc::new(Memory::new(block.stored.clone()));
    let stream = block
        .codec
        .open(stored, block.plain.len() as u64)
        .unwrap()
        .stream;
    let wanted = 2 << 20..3 << 20;
    // Each byte behind the sums is tried, from the last of the point before the segment on.
    let import = |index: &[u8]| stream.import(&index[sums.end..]).unwrap();
    let decoded = |index: &[u8]| -> Result<Vec<u8>> {
        let mut cursor = import(index).cursor(wanted.start as u64)?;
        let before = wanted.start as u64 - cursor.position();
        cursor.fill(&mut vec![0; before as usize])?;
        let mut bytes = vec![0; SEGMENT];
        cursor.fill(&mut bytes)?;
        Ok(bytes)
    };
    let point = import(&index).entry(wanted.start as u64).to_le_bytes();
    let at = index
        .windows(8)
        .position(|bytes| bytes == point)
        .expect("the point");
    let wrong = (at + 40..)
        .step_by(10)
        .find_map(|at| {
            index[at] ^= 0x55;
            let wrong = decoded(&index)
                .ok()
                .filter(|wrong| *wrong != block.plain[wanted.clone()]);
            if wrong.is_none() {
                index[at] ^= 0x55;
            }
            wrong
        })
        .expect("a byte of the window that counts");
    index[sums.start + 8..][..4].copy_from_slice(&crc32(0, &wrong).to_le_bytes());
    index[sums.start + 16] ^= 1;
    index
}

#[test]
fn what_came_by_a_wrong_index_goes_with_it_and_a_right_one_takes_its_place() {
    let [block, ..] = &*BLOCKS;
    let forged = forged(block);
    let dir = dir_with(&forged);
    let (decoded, _) = block.open(dir.path(), KEY);
    let segment = |index: usize| {
        let mut buf = vec![0; SEGMENT];
        decoded
            .read_exact_at(&mut buf, (index * SEGMENT) as u64)
            .unwrap();
        buf == block.plain[index * SEGMENT..][..SEGMENT]
    };
    assert!(!segment(2), "the index agrees with itself there");
    assert!(segment(4));
    assert!(segment(2), "nothing of it may stay in the cache");
    block.assert_reads_right(&decoded);
    let index = kept_as(dir.path(), KEY, |index| index != forged);
    assert!(index[..8 + 4 * 7] == block.index()[..8 + 4 * 7]);
}

#[test]
fn a_decoder_that_outlives_its_index_is_neither_believed_nor_used_again() {
    let [block, ..] = &*BLOCKS;
    let dir = TempDir::new().unwrap();
    let (decoded, _) = block.open(dir.path(), KEY);
    let shared = &decoded;
    let (other, _) = block.open(dir.path(), KEY);
    for (stream, is_outdated) in [(&other.first, true), (&shared.first, false)] {
        let cursor = Arc::clone(stream).cursor(0).unwrap();
        let shown = Arc::new(Decode::of(&*cursor, stream));
        let mut state = shared.lock();
        let noted = shared.note_sum(&mut state, &shown, 0, 1);
        assert_eq!(noted.is_err(), is_outdated);
        assert_eq!(state.sums.known, u64::from(!is_outdated));
        state.decodes.push(Arc::clone(&shown));
        drop(state);
        let runs = Decoder {
            block: shared,
            shown,
            parked: None,
        };
        let mut grant = Grant::new(&shared.cache);
        runs.park(cursor, Demand::Random(shared.key), &mut grant);
        let parked = shared.cache.unpark(shared.key, 0, |_| true);
        assert_eq!(parked.is_none(), is_outdated);
    }
}

/// 16 blocks could hold 256 MiB once, whatever the budget.
#[test]
fn what_is_learnt_of_many_blocks_stays_within_a_part_of_the_budget() {
    let [block, ..] = &*BLOCKS;
    let index = block.index();
    let dir = dir_with(&index);
    let budget = 1 << 20;
    let cache = Cache::new(budget);
    let len = block.plain.len() as u64;
    let decoded: Vec<Arc<Decoded>> = (0..10)
        .map(|n| {
            let stored = Arc::new(Memory::new(block.stored.clone()));
            let stream = block.codec.open(stored, len).unwrap().stream;
            let slot = IndexSlot::new(dir.path(), || Some(KEY.to_vec()));
            let slot = (n % 2 == 0).then_some(slot);
            let decoded = Decoded::new(stream, len, &cache, slot);
            block.assert_reads_right(&decoded);
            decoded
        })
        .collect();
    let held: u64 = decoded.iter().map(|one| one.lock().stream.held()).sum();
    assert!(held > 0 && held <= budget / 4, "{held} bytes held");
    for decoded in decoded.iter().take(2) {
        block.assert_reads_right(decoded);
    }
}

#[test]
fn after_a_save_the_index_is_kept_for_the_file_as_it_is_then() {
    let [block, ..] = &*BLOCKS;
    let dir = TempDir::new().unwrap();
    let saved = Arc::new(AtomicBool::new(false));
    let is_saved = Arc::clone(&saved);
    let slot = IndexSlot::new(dir.path(), move || {
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
    let decoded = Decoded::new(stream, len, &Cache::new(64 << 20), Some(slot));
    read_all(&*decoded).unwrap();
    kept_as(dir.path(), b"before", |_| true);
    saved.store(true, Ordering::SeqCst);
    decoded.store_index_anew();
    assert!(!kept(dir.path()).is_empty());
    let (again, stored) = block.open(dir.path(), KEY);
    again.read_exact_at(&mut [0], len - 1).unwrap();
    assert!(stored.1.load(Ordering::Relaxed) < block.stored.len() as u64 / 3);
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
        assert!(read_all(&*decoded).is_err());
        let mut start = vec![0; 1 << 20];
        decoded.read_exact_at(&mut start, 0).unwrap();
        assert!(start == block.plain[..start.len()]);
        assert!(decoded.cache.used() < 32 << 20);
    }
}

/// With an index no decoder begins at the start, and it is the one that does which zlib itself compares the checksum for.
#[test]
fn a_wrong_checksum_of_all_is_told_with_an_index_as_without() {
    let [zlib, _, bzip2] = &*BLOCKS;
    for (block, back) in [(zlib, 1), (bzip2, 3)] {
        let dir = dir_with(&block.index());
        let mut damaged = Block {
            codec: block.codec,
            stored: block.stored.clone(),
            plain: block.plain.clone(),
        };
        let at = damaged.stored.len() - back;
        damaged.stored[at] ^= 1;
        let (decoded, _) = damaged.open(dir.path(), KEY);
        let end = block.plain.len() as u64 - 1;
        assert!(decoded.read_exact_at(&mut [0], end).is_err());
        let mut buf = vec![0; 5 << 20];
        decoded.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf == block.plain[..buf.len()]);
        assert!(decoded.read_exact_at(&mut [0], end).is_err());
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
        assert!(!decoded.is_indexed(&decoded.lock().stream));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn whatever_index_there_is_the_bytes_are_right(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        more in prop::option::weighted(0.1, prop::collection::vec(any::<u8>(), 1..30)),
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
        index.extend(more.into_iter().flatten());
        let dir = dir_with(&index);
        let (decoded, _) = block.open(dir.path(), KEY);
        block.assert_reads_right(&decoded);
    }
}
