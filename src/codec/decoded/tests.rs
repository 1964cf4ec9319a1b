use super::*;
use crate::codec::Cursor;
use crate::codec::testing::numbers;
use crate::error::Place;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, LazyLock, RwLock, mpsc};
use std::thread;

const MIB: u64 = 1 << 20;

/// Bytes that come again after a prime number of them, so that none can be taken for its neighbours'.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut below = numbers(99);
    (0..65521).map(|_| below(256) as u8).collect()
});

/// The bytes that a [`Fake`] has.
fn model(offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    let mut from = (offset % PATTERN.len() as u64) as usize;
    while bytes.len() < len {
        let until = PATTERN.len().min(from + len - bytes.len());
        bytes.extend_from_slice(&PATTERN[from..until]);
        from = 0;
    }
    bytes
}

/// A stream that counts what is asked of it.
struct Fake {
    entries: u64,
    parallel: bool,
    cursor_held: u64,
    /// So much is decoded at once, and only needs to be read then.
    batch: u64,
    /// Position of the first damaged byte, and of the first good one behind it.
    damage: (u64, u64),
    refuse: AtomicBool,
    opened: AtomicUsize,
    decoded: AtomicU64,
    live: Arc<AtomicUsize>,
    /// Decoders that have begun, and the most of them at once.
    begun: AtomicUsize,
    most: AtomicUsize,
    /// Pieces of work that are put off.
    untidy: AtomicUsize,
    /// Called with the position before bytes are decoded.
    before: Box<dyn Fn(u64) + Send + Sync>,
}

struct FakeCursor {
    stream: Arc<Fake>,
    position: u64,
    begun: bool,
}

impl Fake {
    fn new(entries: u64) -> Self {
        Self {
            entries,
            parallel: true,
            cursor_held: 1000,
            batch: 1,
            damage: (u64::MAX, u64::MAX),
            refuse: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            decoded: AtomicU64::new(0),
            live: Arc::default(),
            begun: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            untidy: AtomicUsize::new(0),
            before: Box::new(|_| ()),
        }
    }
}

impl Fake {
    /// Has each decoder wait at the first barrier before it decodes bytes, and then at the second.
    fn pause(&mut self) -> Arc<(Barrier, Barrier)> {
        let barriers = Arc::new((Barrier::new(2), Barrier::new(2)));
        let waits_at = Arc::clone(&barriers);
        self.before = Box::new(move |_| {
            waits_at.0.wait();
            waits_at.1.wait();
        });
        barriers
    }
}

impl Stream for Fake {
    fn entry(&self, offset: u64) -> u64 {
        offset / self.entries * self.entries
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.live.fetch_add(1, Ordering::SeqCst);
        let position = self.entry(offset);
        Ok(Box::new(FakeCursor {
            stream: self,
            position,
            begun: false,
        }))
    }

    fn parallel(&self) -> bool {
        self.parallel
    }

    fn tidy(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let done = (self.untidy).fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        done.is_ok()
    }
}

impl Cursor for FakeCursor {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if !std::mem::replace(&mut self.begun, true) {
            let begun = self.stream.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.stream.most.fetch_max(begun, Ordering::SeqCst);
        }
        (self.stream.before)(self.position);
        if self.stream.refuse.load(Ordering::SeqCst) {
            return Err(Error::io("reading", std::io::Error::other("not now")));
        }
        let end = self.position + buf.len() as u64;
        let (bad, good) = self.stream.damage;
        if self.position < good && end > bad {
            return Err(Error::corrupt(Place::Byte(bad), "damaged"));
        }
        buf.copy_from_slice(&model(self.position, buf.len()));
        self.stream
            .decoded
            .fetch_add(buf.len() as u64, Ordering::SeqCst);
        self.position = end;
        Ok(buf.len())
    }

    fn held(&self) -> u64 {
        self.stream.cursor_held
    }

    fn decoded_to(&self) -> u64 {
        self.position.next_multiple_of(self.stream.batch)
    }
}

impl Drop for FakeCursor {
    fn drop(&mut self) {
        self.stream.live.fetch_sub(1, Ordering::SeqCst);
        if self.begun {
            self.stream.begun.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn read(source: &Decoded, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; len];
    source.read_exact_at(&mut buf, offset)?;
    Ok(buf)
}

#[test]
fn many_threads_read_what_a_slice_would_give_within_the_budget() {
    let len = 40 * MIB + 12345;
    for entries in [u64::MAX, 4 * MIB, 300_000] {
        let budget = 16 * MIB;
        let cache = Cache::new(budget);
        let decoded = Decoded::new(Arc::new(Fake::new(entries)), len, &cache);
        thread::scope(|scope| {
            for seed in 0..6 {
                let (decoded, cache) = (&decoded, &cache);
                scope.spawn(move || {
                    let mut below = numbers(seed);
                    for _ in 0..12 {
                        let size = below(200_000) as usize;
                        let offset = below(len - size as u64);
                        assert_eq!(read(decoded, offset, size).unwrap(), model(offset, size));
                        if let Some(Loan::Shared(bytes, range)) =
                            decoded.lend(offset, size, Borrower::Program).unwrap()
                        {
                            assert_eq!((*bytes).as_ref()[range], model(offset, size));
                        }
                        // Memory counts before room is made for it: a segment of each reader, and of two threads that decode ahead.
                        let most = budget + 8 * (MIB + 1000);
                        assert!(cache.used() <= most, "{} bytes used", cache.used());
                    }
                });
            }
        });
        drop(decoded);
        while Arc::strong_count(&cache) > 1 {
            thread::yield_now(); // What was being decoded ahead ends first.
        }
        assert_eq!(cache.used(), 0, "a dropped block leaves nothing");
    }
}

#[test]
fn a_segment_is_decoded_once_however_many_wait() {
    let mut fake = Fake::new(MIB);
    let (reached, go) = &*fake.pause();
    let fake = Arc::new(fake);
    let cache = Cache::new(16 * MIB);
    let decoded = Decoded::new(fake.clone(), 4 * MIB, &cache);
    let asked = Barrier::new(9);
    thread::scope(|scope| {
        for reader in 0..8 {
            let (decoded, asked) = (&decoded, &asked);
            scope.spawn(move || {
                asked.wait();
                let offset = 2 * MIB + reader * 1000;
                assert_eq!(read(decoded, offset, 500).unwrap(), model(offset, 500));
            });
        }
        asked.wait();
        reached.wait();
        go.wait();
    });
    assert_eq!(fake.decoded.load(Ordering::SeqCst), MIB);
    assert_eq!(fake.opened.load(Ordering::SeqCst), 1);
}

#[test]
fn reading_on_never_starts_over() {
    for parallel in [false, true] {
        let mut fake = Fake::new(u64::MAX);
        fake.parallel = parallel;
        let fake = Arc::new(fake);
        let len = 64 * MIB;
        let cache = Cache::new(8 * MIB);
        let decoded = Decoded::new(fake.clone(), len, &cache);
        for offset in (0..len).step_by(128 << 10) {
            let bytes = read(&decoded, offset, 128 << 10).unwrap();
            assert_eq!(bytes[..64], model(offset, 64));
        }
        assert_eq!(fake.opened.load(Ordering::SeqCst), 1);
        assert_eq!(fake.decoded.load(Ordering::SeqCst), len);
        assert!(cache.used() <= cache.budget());
    }
}

#[test]
fn what_a_reader_waited_for_is_no_longer_ahead_of_him() {
    let mut fake = Fake::new(u64::MAX);
    fake.parallel = false;
    let (reached, go) = &*fake.pause();
    let fake = Arc::new(fake);
    let cache = Cache::new(8 * MIB); // One segment may be ahead.
    let decoded = Decoded::new(fake.clone(), 3 * MIB, &cache);
    thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..3 {
                read(&decoded, index * MIB, 1 << 20).unwrap();
            }
        });
        for index in 0..3 {
            reached.wait();
            let came = || lock(&decoded.state).readers.wanted(9).next() == Some(3);
            while index == 2 && !came() {
                thread::yield_now();
            }
            go.wait();
        }
    });
    assert!(!cache.missing(u64::MAX, std::iter::once(0)).is_empty());
}

/// In a small cache nothing is decoded ahead, and what was put off is done all the same.
#[test]
fn what_a_stream_has_put_off_is_done_for_sequential_readers() {
    for budget in [MIB, 64 * MIB] {
        let mut fake = Fake::new(MIB);
        fake.untidy = AtomicUsize::new(50);
        let fake = Arc::new(fake);
        let decoded = Decoded::new(fake.clone(), 9 * MIB, &Cache::new(budget));
        read(&decoded, 5 * MIB, 10).unwrap();
        read(&decoded, 0, 10).unwrap();
        assert_eq!(fake.untidy.load(Ordering::SeqCst), 50);
        read(&decoded, MIB, 10).unwrap();
        while fake.untidy.load(Ordering::SeqCst) > 0 {
            thread::yield_now();
        }
    }
}

/// Each gave its thread up to the other, and looked again, for ever.
#[test]
fn the_jobs_of_several_blocks_come_to_their_end() {
    let cache = Cache::new(64 * MIB);
    let blocks = [(); 3].map(|()| Decoded::new(Arc::new(Fake::new(MIB)), 9 * MIB, &cache));
    // both threads are busy until the jobs of all blocks wait
    let gate = Arc::new(Barrier::new(3));
    for _ in 0..2 {
        let gate = Arc::clone(&gate);
        let job = move || {
            gate.wait();
        };
        assert!(cache.ahead.run(Box::new(job)).is_ok());
    }
    for block in &blocks {
        for index in 0..9 {
            read(block, index * MIB, 1 << 20).unwrap();
        }
        assert!(lock(&block.state).ahead > 0);
    }
    gate.wait();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while blocks.iter().any(|block| lock(&block.state).ahead > 0) {
        assert!(std::time::Instant::now() < patience, "they go on");
        thread::yield_now();
    }
}

#[test]
fn a_second_decoder_runs_ahead_from_the_next_entry() {
    let (reached, places) = mpsc::channel();
    let gate = Arc::new(RwLock::new(()));
    let mut fake = Fake::new(4 * MIB);
    let waits_at = Arc::clone(&gate);
    fake.before = Box::new(move |position| {
        if position >= 8 * MIB {
            let _ = reached.send(position); // the test may be over
            drop(waits_at.read().unwrap());
        }
    });
    let fake = Arc::new(fake);
    let decoded = Decoded::new(fake.clone(), 64 * MIB, &Cache::new(64 * MIB));
    let shut = gate.write().unwrap();
    for index in 0..8 {
        read(&decoded, index * MIB, 1 << 20).unwrap();
    }
    let place = || {
        let patience = std::time::Duration::from_secs(20);
        places.recv_timeout(patience).unwrap()
    };
    let mut places = [place(), place()];
    places.sort_unstable();
    assert_eq!(places, [8 * MIB, 12 * MIB]);
    drop(shut);
}

#[test]
fn a_long_read_leaves_what_others_use() {
    let cache = Cache::new(32 * MIB);
    let small = Arc::new(Fake::new(MIB));
    let other = Decoded::new(small.clone(), 32 * MIB, &cache);
    for index in [0, 20, 10, 4, 15] {
        read(&other, index * MIB, 10).unwrap();
    }
    let before = small.decoded.load(Ordering::SeqCst);
    let long = Decoded::new(Arc::new(Fake::new(MIB)), 100 * MIB, &cache);
    for offset in (0..100 * MIB).step_by(1 << 20) {
        read(&long, offset, 1 << 20).unwrap();
    }
    for index in [0, 20, 10, 4, 15] {
        read(&other, index * MIB, 10).unwrap();
    }
    assert_eq!(small.decoded.load(Ordering::SeqCst), before);
}

#[test]
fn damage_costs_only_what_lies_behind_it_up_to_the_next_entry() {
    let mut fake = Fake::new(4 * MIB);
    fake.damage = (5 * MIB + 300_000, 5 * MIB + 300_001);
    let fake = Arc::new(fake);
    let cache = Cache::new(32 * MIB);
    let decoded = Decoded::new(fake.clone(), 12 * MIB, &cache);
    let bad = 5 * MIB + 300_000;
    for _again in 0..2 {
        assert!(read(&decoded, bad - 10, 20).is_err());
        assert!(decoded.lend(bad - 10, 20, Borrower::Program).is_err());
        assert!(read(&decoded, 7 * MIB, 1).is_err(), "behind the damage");
        let error = read(&decoded, bad, 1).unwrap_err();
        assert_eq!(error.to_string(), format!("byte {bad}: damaged"));
        assert!(read(&decoded, 5 * MIB, 9).is_err(), "a part of a segment");
        assert_eq!(
            read(&decoded, 5 * MIB - 9, 9).unwrap(),
            model(5 * MIB - 9, 9)
        );
        assert_eq!(read(&decoded, 3 * MIB, 9).unwrap(), model(3 * MIB, 9));
        assert_eq!(read(&decoded, 8 * MIB, 9).unwrap(), model(8 * MIB, 9));
    }
    let opened = fake.opened.load(Ordering::SeqCst);
    assert!(read(&decoded, bad, 1).is_err() && read(&decoded, 6 * MIB, 1).is_err());
    assert_eq!(
        fake.opened.load(Ordering::SeqCst),
        opened,
        "a known damage is not decoded again"
    );
}

#[test]
fn what_the_medium_refuses_once_it_may_give_later() {
    let fake = Arc::new(Fake::new(MIB));
    let decoded = Decoded::new(fake.clone(), 4 * MIB, &Cache::new(16 * MIB));
    fake.refuse.store(true, Ordering::SeqCst);
    assert!(read(&decoded, MIB, 10).is_err());
    fake.refuse.store(false, Ordering::SeqCst);
    assert_eq!(read(&decoded, MIB, 10).unwrap(), model(MIB, 10));
}

/// The thread that decoded ended with it: a reader's, or for good one of the few that decode ahead.
#[test]
fn where_a_codec_panics_is_damage() {
    let mut fake = Fake::new(MIB);
    fake.before = Box::new(|position| assert!(position != 5 * MIB, "of a test"));
    let cache = Cache::new(64 * MIB);
    let decoded = Decoded::new(Arc::new(fake), 9 * MIB, &cache);
    for segment in 0..9 {
        let found = read(&decoded, segment * MIB, 1 << 20);
        match found {
            Ok(bytes) => assert!(segment != 5 && bytes == model(segment * MIB, 1 << 20)),
            Err(error) => assert_eq!((segment, &*error.to_string()), (5, "a codec panicked")),
        }
    }
    assert_eq!(decoded.damage().unwrap().to_string(), "a codec panicked");
}

#[test]
fn all_who_wait_for_a_failing_segment_get_its_error() {
    let mut fake = Fake::new(MIB);
    fake.damage = (0, u64::MAX);
    let decoded = Decoded::new(Arc::new(fake), 4 * MIB, &Cache::new(16 * MIB));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| read(&decoded, 100, 10).unwrap_err().to_string()))
            .collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), "byte 0: damaged");
        }
    });
}

#[test]
fn an_absurd_size_costs_nothing_until_it_is_read() {
    let cache = Cache::new(16 * MIB);
    let decoded = Decoded::new(Arc::new(Fake::new(MIB)), 1 << 60, &cache);
    assert_eq!(cache.used(), 0);
    let last = (1 << 60) - 5;
    assert_eq!(read(&decoded, last, 5).unwrap(), model(last, 5));
    assert!(read(&decoded, last, 6).is_err());
    assert!(read(&decoded, u64::MAX, 1).is_err());
    assert!(read(&decoded, 1 << 60, 0).unwrap().is_empty());
}

#[test]
fn decoders_that_take_memory_are_dropped_before_the_budget_is_passed() {
    let cache = Cache::new(32 * MIB);
    let mut blocks = Vec::new();
    let mut live = Vec::new();
    for block in 0..16 {
        let mut fake = Fake::new(u64::MAX);
        fake.cursor_held = 7 * MIB;
        live.push(Arc::clone(&fake.live));
        let decoded = Decoded::new(Arc::new(fake), 16 * MIB, &cache);
        read(&decoded, block * MIB, 10).unwrap();
        blocks.push(decoded);
        assert!(cache.used() <= cache.budget());
        let alive: usize = live.iter().map(|live| live.load(Ordering::SeqCst)).sum();
        assert!(alive <= 4, "{alive} decoders alive");
    }
    drop(blocks);
    assert!(live.iter().all(|live| live.load(Ordering::SeqCst) == 0));
}

#[test]
fn room_is_made_for_what_a_decoder_needs_and_its_memory_stays_with_it() {
    let cache = Cache::new(8 * MIB);
    for index in 0..7 {
        let buffer = cache.segment(u64::MAX, SEGMENT, false);
        cache.insert(u64::MAX, index, buffer, false);
    }
    let mut fake = Fake::new(u64::MAX);
    fake.cursor_held = 6 * MIB;
    let counts_in = Arc::clone(&cache);
    fake.before = Box::new(move |_| {
        let used = counts_in.used();
        assert!(used > 7 * MIB && used <= 8 * MIB, "{used} bytes");
    });
    let decoded = Decoded::new(Arc::new(fake), 16 * MIB, &cache);
    assert_eq!(read(&decoded, 5, 10).unwrap(), model(5, 10));
    assert_eq!(cache.limit.taken(), 0);
    let used = cache.used();
    assert!(used > 7 * MIB && used <= 8 * MIB, "{used} bytes");
    drop(decoded);
    assert!(cache.used() < 2 * MIB);
}

#[test]
fn what_takes_more_memory_than_there_may_be_is_refused() {
    let mut fake = Fake::new(MIB);
    fake.cursor_held = 100 * MIB;
    let fake = Arc::new(fake);
    let small = Decoded::new(fake.clone(), MIB, &Cache::new(16 * MIB));
    for _ in 0..2 {
        let error = read(&small, 5, 10).unwrap_err();
        assert!(error.to_string().contains("-o cache=68M"), "{error}");
    }
    assert_eq!(fake.decoded.load(Ordering::SeqCst), 0);
    let large = Decoded::new(fake, MIB, &Cache::new(68 * MIB));
    assert_eq!(read(&large, 5, 10).unwrap(), model(5, 10));
}

#[test]
fn decoders_on_their_way_take_no_more_memory_than_there_may_be() {
    let mut fake = Fake::new(8 * MIB);
    fake.cursor_held = 20 * MIB;
    let fake = Arc::new(fake);
    let cache = Cache::new(16 * MIB);
    let decoded = Decoded::new(fake.clone(), 96 * MIB, &cache);
    for _ in 0..3 {
        let start = Barrier::new(12);
        thread::scope(|scope| {
            for reader in 0..12 {
                let (decoded, start) = (&decoded, &start);
                scope.spawn(move || {
                    start.wait();
                    let offset = (8 * reader + 7) * MIB;
                    assert_eq!(read(decoded, offset, 500).unwrap(), model(offset, 500));
                });
            }
        });
    }
    // one runs, and another is being freed
    assert!(fake.most.load(Ordering::SeqCst) <= 2);
}

#[test]
fn dropping_all_while_decoding_ahead_ends_in_order() {
    for round in 0..20 {
        let fake = Arc::new(Fake::new(MIB));
        let cache = Cache::new(64 * MIB);
        let decoded = Decoded::new(fake.clone(), 64 * MIB, &cache);
        for index in 0..round % 7 {
            read(&decoded, index * MIB, 1 << 20).unwrap();
        }
        drop(decoded);
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(cache);
            done.send(()).unwrap();
        });
        ended
            .recv_timeout(std::time::Duration::from_secs(20))
            .unwrap();
    }
}
