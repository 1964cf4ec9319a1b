//! What the fuzz targets do with their input, and what must hold whatever it is.
//!
//! Nothing panics or hangs; the heap stays within the budget of the cache and [`SLACK`]; two readers that get the bytes of one
//! place get the same, and what another decoder gives where there is one; an edit of what was read is stored as what is read again.

mod heap;
mod reference;
mod sums;

use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use asdf_mount::asdf::check::{Validate, check_text};
use asdf_mount::asdf::outline::Outline;
use asdf_mount::asdf::tree::{NodeId, Tree};
use asdf_mount::asdf::{OpenOptions, Snapshot, sources};
use asdf_mount::codec::{self, Cache, Decoded, Edited};
use asdf_mount::source::{FileSource, Memory, Source};

use heap::Heap;

/// Length of what stands in front of the payload in the input of [`decode`].
pub const HEADER: usize = 16;
/// The checksums of headers are made right before the payload is read, so that what is behind them is reached.
pub const MEND: u8 = 1;
/// The decoded size is taken as it is, else its lowest bits.
pub const ANY_SIZE: u8 = 2;
/// What is edited gets longer.
const LONGER: u8 = 4;

/// What may be used beyond the budget of the cache: what the issue of the codecs allows.
const SLACK: u64 = 64 << 20;

/// The bits of a decoded size that is not [`ANY_SIZE`]: up to eight segments.
const SIZE_BITS: u64 = (8 << 20) - 1;
/// How much is read from the start on.
const FRONT: u64 = 3 << 20;
/// The most that one read asks for.
const READ: u64 = 256 << 10;
/// What empty buffers may take beyond the budget: as many as were filled at the same time.
const SPARE: u64 = 8 << 20;
/// How many arrays and blocks of a file are read.
const OPENED: usize = 16;

/// Decodes a payload of a code.
///
/// The input: budget (MiB, two bits), flags, decoded size (little-endian, 8 bytes), three times place and length of a read,
/// payload.
pub fn decode(code: [u8; 4], input: &[u8]) {
    let Some((head, payload)) = input.split_first_chunk::<HEADER>() else {
        return;
    };
    let [budget, flags, size @ .., a, b, c, d, e, f] = *head;
    let data_size = match u64::from_le_bytes(size) {
        any if flags & ANY_SIZE != 0 => any,
        few => few & SIZE_BITS,
    };
    let mut payload = payload.to_vec();
    if flags & MEND != 0 {
        sums::mend(code, &mut payload);
    }
    let heap = Heap::start();
    let cache = Cache::new(u64::from(budget % 4 + 1) << 20);
    let payload = Memory::new(payload);
    let stored: Arc<dyn Source> = Arc::new(payload.clone());
    let open = || codec::decode(code, Arc::clone(&stored), data_size, &cache);
    if let (Ok((framing, forward)), Ok((again, random))) = (open(), open()) {
        assert_eq!(framing, again);
        let front = compare(&forward, &random, [(a, b), (c, d), (e, f)]);
        check_cache(&cache);
        if data_size <= FRONT
            && let Some(expected) = reference::decode(code, payload.bytes(), data_size)
        {
            assert!(front == expected, "another decoder reads something else");
        }
        if front.len() as u64 == data_size {
            edit(
                code,
                framing,
                &stored,
                front,
                [(a, b), (c, d)],
                flags & LONGER != 0,
            );
        }
    }
    heap.check(cache.budget() + SLACK);
    check_empty(&cache);
}

/// Edits bytes of a block that was read as a whole, here and there or behind its end, as a save does: what is stored then decodes to
/// the edited bytes.
fn edit(
    code: [u8; 4],
    framing: &str,
    stored: &Arc<dyn Source>,
    mut decoded: Vec<u8>,
    places: [(u8, u8); 2],
    longer: bool,
) {
    let stored_len = decoded.len() as u64;
    let mut touched: Vec<Range<u64>> = Vec::new();
    for (place, few) in places {
        let at = decoded.len() / 256 * usize::from(place) + usize::from(few);
        if let Some(byte) = decoded.get_mut(at) {
            *byte ^= 1 | place;
            touched.push(at as u64..at as u64 + 1);
        }
    }
    touched.sort_by_key(|range| range.start);
    touched.dedup();
    if longer {
        decoded.extend(1..=places[0].1);
    }
    let source = Memory::new(decoded.clone());
    let edited = Edited {
        framing,
        stored,
        stored_len,
        decoded: &source,
        touched: &touched,
    };
    let mut anew = Vec::new();
    codec::codec(code)
        .and_then(|codec| codec.reencode(&edited, &mut anew))
        .expect("what was read is written");
    let cache = Cache::new(1 << 20);
    let (_, again) = codec::decode(code, Arc::new(Memory::new(anew)), source.len(), &cache)
        .expect("what was written is read");
    let mut at = 0;
    for bytes in decoded.chunks(1 << 18) {
        let found = read(again.as_ref(), at, bytes.len() as u64).expect("what was written is read");
        assert!(found == bytes, "other bytes than the edited ones near {at}");
        at += bytes.len() as u64;
    }
}

/// Reads one from the start on and the other here and there; gives what there is at the start.
fn compare(forward: &Decoded, random: &Decoded, places: [(u8, u8); 3]) -> Vec<u8> {
    let len = forward.len();
    let mut front = Vec::new();
    while let at = front.len() as u64
        && at < len.min(FRONT)
        && let Some(bytes) = read(forward, at, READ.min(len - at))
    {
        front.extend(bytes);
    }
    let anywhere = places.map(|(place, few)| {
        let at = len / 256 * u64::from(place) + u64::from(few);
        (at.min(len), 1 << (few % 19))
    });
    let tail = (len.saturating_sub(9), 9);
    for (at, few) in [tail].into_iter().chain(anywhere) {
        let Some(bytes) = read(random, at, few.min(len - at)) else {
            continue;
        };
        let known = usize::try_from(at).ok().and_then(|at| front.get(at..));
        let known = known.unwrap_or_default();
        let both = known.len().min(bytes.len());
        assert!(bytes[..both] == known[..both], "differs at {at}");
        if let Some(other) = read(forward, at, few.min(len - at)) {
            assert!(other == bytes, "differs at {at}");
        }
    }
    front
}

fn read(source: &dyn Source, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(READ)).ok()?];
    source.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// Checks that nothing is counted of blocks that are gone, but for empty buffers. What was going to be read is given up.
fn check_empty(cache: &Cache) {
    let most = cache.budget() + SPARE;
    let deadline = Instant::now() + Duration::from_secs(10);
    while cache.used() > most && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(cache.used() <= most, "{} are still counted", cache.used());
}

fn check_cache(cache: &Cache) {
    let most = cache.budget() + SLACK;
    assert!(cache.used() <= most, "{} of {most} used", cache.used());
}

/// Opens a file and reads of everything in it.
pub fn file(input: &[u8]) {
    let heap = Heap::start();
    let Some(snapshot) = open(input.to_vec()) else {
        return;
    };
    look_at(&snapshot);
    // the arrays' own buffers are a budget beside the cache
    heap.check(2 * SLACK);
}

/// Reads the text of a tree, and takes it for an edit of the tree of a file with two blocks.
pub fn tree(input: &[u8]) {
    let heap = Heap::start();
    if let Ok(tree) = Tree::parse(input) {
        let _ = Outline::new(&tree);
        if input.ends_with(b"\n...\n") {
            compare_with_libyaml(&tree);
        }
    }
    let blocks = [block(&[7; 64]), block(&[])].concat();
    if let Some(old) = open([TEXT, &blocks].concat()) {
        let input = Arc::new(input.to_vec());
        for validate in [Validate::Off, Validate::Warn, Validate::Strict] {
            let _ = check_text(&old, &input, validate, None);
        }
    }
    if let Some(snapshot) = open([input, &blocks].concat()) {
        look_at(&snapshot);
    }
    heap.check(2 * SLACK);
}

/// Compares a tree with the one that libyaml reads, as it does wherever there is a tab: one behind the document changes nothing.
fn compare_with_libyaml(tree: &Tree) {
    let text = [tree.text(), "#\t\n"].concat();
    let other = Tree::parse(text).expect("a comment may follow");
    let warnings = [tree, &other].map(Tree::warnings);
    assert_eq!(warnings[0].list(), warnings[1].list());
    assert_eq!(tree.len(), other.len());
    let mut id = NodeId::FIRST;
    while let (Some(node), Some(other)) = (tree.node(id), other.node(id)) {
        assert_eq!(node.kind(), other.kind());
        assert_eq!(node.span(), other.span());
        assert_eq!(node.tag(), other.tag());
        assert_eq!(node.text(), other.text());
        assert_eq!(node.scalar_type(), other.scalar_type());
        assert_eq!(node.len(), other.len());
        assert_eq!(node.behind(), other.behind());
        assert_eq!(node.follow().id(), other.follow().id());
        id = id.next();
    }
}

/// Decodes a block of the ASDF 0.1.0 draft that begins with an encoding chain; the first bytes are its decoded size.
pub fn chain(input: &[u8]) {
    let Some((&[low, middle, high], stored)) = input.split_first_chunk::<3>() else {
        return;
    };
    let len = (stored.len() as u64).to_be_bytes();
    let data_size = [0, 0, 0, 0, 0, high, middle, low];
    let head = [&b"\xd3BLK\0\x24"[..], &ENCODED.to_be_bytes(), &len, &len];
    let block = [&head.concat()[..], &data_size, &[0; 8], stored].concat();
    file(&[&b"#ASDF 0.1.0\n"[..], &block].concat());
}

/// The text of a file that says nothing.
const TEXT: &[u8] = b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n\
    --- !core/asdf-1.1.0\na: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [64]}\n...\n";
/// The flag of the draft's blocks that begin with a chain.
const ENCODED: u32 = 2;

/// A block that is not compressed.
fn block(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_be_bytes();
    [
        &b"\xd3BLK\0\x30"[..],
        &[0; 8],
        &len,
        &len,
        &len,
        &[0; 16],
        data,
    ]
    .concat()
}

fn open(bytes: Vec<u8>) -> Option<Snapshot> {
    static NOTHING: LazyLock<Arc<FileSource>> = LazyLock::new(|| {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        Arc::new(FileSource::open(Arc::new(file)).expect("an empty file"))
    });
    let bytes = Arc::new(Memory::new(bytes));
    let cache = Cache::new(4 << 20);
    Snapshot::read(Arc::clone(&NOTHING), bytes, cache, OpenOptions::default()).ok()
}

fn look_at(snapshot: &Snapshot) {
    let _ = (snapshot.layout().regions(), snapshot.faults());
    let _ = sources::storages(snapshot);
    let _ = sources::with_sources(snapshot, &|storage| Ok(storage.clone()));
    for n in 0..snapshot.layout().blocks.len().min(OPENED) {
        let _ = (snapshot.block_len(n), snapshot.framing(n));
        let _ = snapshot.checksum_state(n);
        look_into(snapshot.block(n).ok());
    }
    for n in 0..snapshot.arrays().len().min(OPENED) {
        let array = &snapshot.arrays()[n];
        let _ = (array.path(), array.datatype_text(), array.shape_text());
        let _ = (array.strides_text(), array.source_text(), array.npy_len());
        look_into(snapshot.array_bin(n).ok());
        look_into(snapshot.array_npy(n).ok());
    }
    if let Some(fits) = snapshot.fits() {
        for n in 0..fits.hdus().len().min(OPENED) {
            look_into(fits.header(n).ok());
            look_into(fits.data(n).ok());
        }
    }
    check_cache(snapshot.cache());
}

/// Reads the start and the end.
fn look_into(source: Option<Arc<dyn Source>>) {
    let Some(source) = source else {
        return;
    };
    let len = source.len();
    read(&*source, 0, len.min(READ));
    let tail = len.min(100);
    read(&*source, len - tail, tail);
}

/// Bytes with runs, or with noise in the lowest bits of some.
pub fn pattern(len: usize, noise: u32) -> Vec<u8> {
    let mut state = 1u32;
    (0..len)
        .map(|n| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (n >> 5) as u8 ^ (state >> 24 & noise) as u8
        })
        .collect()
}
