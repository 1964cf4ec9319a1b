//! Hostile files among the indexes that are kept between mounts.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use asdf_mount::codec::{self, Cache, Decoded, IndexSlot};
use asdf_mount::source::{Memory, Source};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use crate::heap::Heap;
use crate::{SLACK, check_cache, check_empty, pattern, read};

/// The input is the whole file; else it is what follows the key, and the rest is made to fit.
const WHOLE: u8 = 1;
/// Everything is read, not only a few places.
const ALL: u8 = 2;
/// What indexes are found by.
const KEY: &[u8] = b"a block";
/// Bytes before the key: magic, checksum, length of the key.
const HEAD: usize = 16;
/// Decoded size: segments of 1 MiB, and a part of one; of fewer than four no index is kept.
const LEN: usize = (3 << 20) + 12_345;
/// The same for LZ4 frames, which get an entry after 8 MiB.
const LONG: usize = (8 << 20) + 765_432;

/// Each byte comes so often: bzip2 then has less to do for as many blocks, which is what takes the time.
const RUN: usize = 20;

/// A block, and the file with its index that reading it leaves.
struct Block {
    code: [u8; 4],
    stored: Memory,
    plain: Vec<u8>,
    dir: PathBuf,
    file: PathBuf,
    genuine: Vec<u8>,
}

/// A writer of each code that has an index kept.
const WRITERS: [(&[u8; 4], usize, fn(&[u8]) -> Vec<u8>); 3] = [
    (b"zlib", LEN, zlib),
    (b"bzp2", LEN, bzip2),
    (b"lz4f", LONG, linked_lz4),
];

static BLOCKS: LazyLock<Vec<Block>> = LazyLock::new(|| {
    let plain: Vec<u8> = pattern(LONG.div_ceil(RUN), 7)
        .into_iter()
        .flat_map(|byte| [byte; RUN])
        .collect();
    let block = |(code, len, write): (&[u8; 4], usize, fn(&[u8]) -> Vec<u8>)| {
        Block::new(*code, write(&plain[..len]), plain[..len].to_vec())
    };
    WRITERS.map(block).into()
});

impl Block {
    fn new(code: [u8; 4], stored: Vec<u8>, plain: Vec<u8>) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz/indexes");
        let dir = root
            .join(process::id().to_string())
            .join(codec::code_text(code));
        let _ = fs::remove_dir_all(&dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .expect("a directory below target");
        let mut block = Self {
            code,
            stored: Memory::new(stored),
            plain,
            dir,
            file: PathBuf::new(),
            genuine: Vec::new(),
        };
        block.learn();
        block
    }

    /// Has the index written.
    fn learn(&mut self) {
        let source = self.open(&Cache::new(4 << 20)).expect("a good payload");
        let mut whole = vec![0; self.plain.len()];
        source.read_exact_at(&mut whole, 0).expect("a good payload");
        assert!(whole == self.plain);
        while self.genuine.is_empty() {
            thread::sleep(Duration::from_millis(10));
            for entry in fs::read_dir(&self.dir).expect("its directory") {
                let path = entry.expect("its directory").path();
                if path.extension().is_some_and(|end| end == "index") {
                    self.genuine = fs::read(&path).expect("an index");
                    self.file = path;
                }
            }
        }
    }

    fn open(&self, cache: &Arc<Cache>) -> Option<Arc<Decoded>> {
        let slot = IndexSlot::new(&self.dir, || Some(KEY.to_vec()));
        let stored = Arc::new(self.stored.clone());
        let opened = codec::decode(
            self.code,
            stored,
            self.plain.len() as u64,
            cache,
            Some(slot),
        );
        opened.ok().map(|(_, source)| source)
    }

    /// A file with this index, under our key.
    fn write(&self, index: &[u8]) {
        let (head, _) = self.genuine.split_at(HEAD + KEY.len());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[12..]);
        sum.update(index);
        let sum = sum.finalize().to_le_bytes();
        let bytes = [&head[..8], &sum, &head[12..], index].concat();
        fs::write(&self.file, bytes).expect("the index");
    }
}

/// Reads a block with this index of it: `which` block, flags, three times place of a read, index.
///
/// Whatever the index is, what can be read is right, and all can be read.
pub fn index(input: &[u8]) {
    let Some((&[which, flags, places @ ..], index)) = input.split_first_chunk::<5>() else {
        return;
    };
    let block = &BLOCKS[usize::from(which) % BLOCKS.len()];
    if flags & WHOLE != 0 {
        fs::write(&block.file, index).expect("the index");
    } else {
        block.write(index);
    }
    let heap = Heap::start();
    let cache = Cache::new(4 << 20);
    let source = block.open(&cache).expect("a good payload");
    let whole = block.plain.len() as u64;
    let step = whole / 256;
    let few = places.map(|place| (u64::from(place) * step, 2 * step));
    let all = (0..16).map(|n| (16 * n * step, 16 * step + 255));
    let all = all.take(if flags & ALL != 0 { 16 } else { 0 });
    for (at, len) in few.into_iter().chain(all) {
        let len = len.min(whole - at);
        let bytes = read(&*source, at, len).expect("a good payload");
        let at = usize::try_from(at).expect("64 bits");
        assert!(
            bytes == block.plain[at..at + bytes.len()],
            "differs at {at}"
        );
    }
    check_cache(&cache);
    heap.check(cache.budget() + SLACK);
    drop(source);
    check_empty(&cache);
}

/// Inputs of [`index`] that are good.
pub fn genuine() -> Vec<Vec<u8>> {
    let inputs = BLOCKS.iter().zip(0..).flat_map(|(block, which)| {
        let index = &block.genuine[HEAD + KEY.len()..];
        [
            [&[which, 0, 250, 3, 100], index].concat(),
            [&[which, ALL, 9, 9, 9], index].concat(),
            [&[which, WHOLE, 250, 3, 100], &block.genuine[..]].concat(),
        ]
    });
    inputs.collect()
}

/// A stream as zlib writes it, which needs windows.
fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    let written = encoder.write_all(plain);
    written.and_then(|()| encoder.finish()).expect("memory")
}

fn bzip2(plain: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
    let written = encoder.write_all(plain);
    written.and_then(|()| encoder.finish()).expect("memory")
}

/// A frame whose blocks refer to what stands before them.
fn linked_lz4(plain: &[u8]) -> Vec<u8> {
    let info = FrameInfo::new()
        .block_mode(BlockMode::Linked)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(plain).expect("memory");
    encoder.finish().expect("memory")
}
