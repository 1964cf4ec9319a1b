use super::*;
use crate::error::{Error, Place, Result};

/// A block that is read here and there.
const ANY: (u64, bool) = (0, false);

/// One that is read sequentially.
const LONG: (u64, bool) = (1, true);

fn fill(cache: &Cache, (key, sequential): (u64, bool), index: u64) {
    let mut buffer = cache.segment(key, SEGMENT, sequential);
    buffer.fill(index as u8);
    cache.insert(key, index, buffer, false);
}

fn has_room_ahead(cache: &Cache) -> bool {
    !cache.missing(u64::MAX, std::iter::once(0)).is_empty()
}

#[test]
fn the_least_recently_used_goes_first() {
    let cache = Cache::new(3 * cost(SEGMENT));
    for index in 0..3 {
        fill(&cache, ANY, index);
    }
    let first = cache.get(0, 0).unwrap().0.as_ptr();
    cache.get(0, 0).unwrap();
    cache.get(0, 2).unwrap();
    let _buffer = cache.segment(0, SEGMENT, false);
    assert_eq!(cache.get(0, 0).unwrap().0.as_ptr(), first);
    assert!(!cache.contains(0, 1));
    assert_eq!(cache.used(), 3 * cost(SEGMENT));
}

#[test]
fn what_a_reply_is_made_from_is_neither_reused_nor_forgotten_about() {
    let cache = Cache::new(2 * cost(SEGMENT));
    fill(&cache, ANY, 7);
    let (lent, _) = cache.get(0, 7).unwrap();
    for index in 8..20 {
        fill(&cache, ANY, index);
    }
    assert!(lent.iter().all(|&byte| byte == 7));
    cache.forget(0);
    assert_eq!(cache.used(), cost(SEGMENT), "it counts until it is sent");
    drop(lent);
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_short_segment_counts_what_it_takes() {
    let cache = Cache::new(1 << 20);
    let buffer = cache.segment(0, 1000, false);
    assert_eq!(cache.used(), cost(1000));
    cache.insert(0, 0, buffer, false);
    assert_eq!(cache.used(), cost(1000));
    drop(cache.segment(0, 500, false));
    cache.forget(0);
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_block_read_sequentially_makes_room_at_its_own_cost() {
    let cache = Cache::new(8 * cost(SEGMENT));
    for index in 0..4 {
        fill(&cache, ANY, index);
    }
    for index in 0..50 {
        fill(&cache, LONG, index);
    }
    assert!((0..4).all(|index| cache.contains(0, index)));
    assert!((47..50).all(|index| cache.contains(1, index)));
    assert_eq!(cache.used(), 7 * cost(SEGMENT));
}

#[test]
fn a_sequential_read_uses_few_buffers_again_whatever_the_budget() {
    let cache = Cache::new(1 << 40);
    for index in 0..100 {
        fill(&cache, LONG, index);
    }
    let most = SEQUENTIAL_WINDOW + 2 * cost(SEGMENT);
    assert!(cache.used() <= most, "{}", cache.used());
    assert!((93..100).all(|index| cache.contains(1, index)));
    fill(&cache, ANY, 0);
    assert!(cache.contains(1, 99), "room is made for no other reader");
}

#[test]
fn unread_segments_are_bounded_until_somebody_reads_them() {
    let cache = Cache::new(8 * cost(SEGMENT));
    for index in 0..2 {
        assert!(has_room_ahead(&cache));
        let buffer = cache.segment(0, SEGMENT, false);
        cache.insert(0, index, buffer, true);
    }
    assert!(!has_room_ahead(&cache));
    cache.get(0, 0).unwrap();
    assert!(has_room_ahead(&cache));
}

#[test]
fn what_readers_have_abandoned_does_not_keep_others_from_reading_ahead() {
    // Once segments that nobody came for counted for ever: after nine files were read in part, no other was read ahead.
    let cache = Cache::new(16 * cost(SEGMENT));
    let ahead = |key, index| {
        let buffer = cache.segment(key, SEGMENT, true);
        cache.insert(key, index, buffer, true);
    };
    for index in 0..4 {
        ahead(1, index);
    }
    assert!(!has_room_ahead(&cache));
    for index in 0..4 {
        drop(cache.segment(2, SEGMENT, true));
        assert!(has_room_ahead(&cache));
        ahead(2, index);
        assert!(!has_room_ahead(&cache));
    }
    drop(cache.segment(2, SEGMENT, true));
    assert!(!has_room_ahead(&cache), "now they are its own");
    drop(cache.segment(3, SEGMENT, false));
    assert!(!has_room_ahead(&cache), "it does not read sequentially");
    assert!((0..4).all(|index| cache.contains(1, index)));
    for key in [1, 2] {
        (0..4).for_each(|index| drop(cache.get(key, index)));
    }
    assert_eq!(cache.unread.load(Ordering::SeqCst), 0);
}

/// A stream that only holds memory, which it gives up by halves down to a least amount.
struct Holding {
    held: AtomicU64,
    least: u64,
}

impl Stream for Holding {
    fn entry(&self, _offset: u64) -> u64 {
        0
    }

    fn cursor(self: Arc<Self>, _offset: u64) -> Result<Box<dyn Cursor>> {
        Err(Error::unsupported(Place::File, "nothing to decode"))
    }

    fn parallel(&self) -> bool {
        false
    }

    fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    fn thin_out(&self) {
        let half = (self.held() / 2).max(self.least);
        self.held.store(half, Ordering::SeqCst);
    }
}

fn holding(held: u64, least: u64) -> Arc<dyn Stream> {
    Arc::new(Holding {
        held: AtomicU64::new(held),
        least,
    })
}

#[test]
fn streams_hold_a_part_of_the_budget_and_those_that_hold_more_than_theirs_give_up() {
    let cache = Cache::new(4000);
    let streams = [holding(600, 0), holding(100, 0), holding(200, 0)];
    for (key, stream) in (0..).zip(&streams) {
        cache.recount(key, stream, true);
    }
    assert_eq!(cache.used(), 900, "that much they may hold");
    let fourth = holding(500, 0);
    cache.recount(3, &fourth, true);
    let held = |stream: &Arc<dyn Stream>| stream.held();
    assert_eq!(streams.each_ref().map(held), [300, 100, 200]);
    assert_eq!(fourth.held(), 250);
    assert_eq!(cache.used(), 850);
    cache.forget(0);
    cache.recount(1, &streams[1], true);
    assert_eq!(cache.used(), 550);
    for key in 0..4 {
        cache.forget(key);
    }
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_stream_that_has_nothing_to_give_up_leaves_the_others_their_part() {
    let cache = Cache::new(4000);
    let fixed = holding(1200, 1200);
    cache.recount(0, &fixed, true);
    let other = holding(800, 100);
    cache.recount(1, &other, true);
    cache.recount(1, &other, true);
    assert_eq!((fixed.held(), other.held()), (1200, 400));
    assert_eq!(cache.used(), 1600);
}

/// A decoder that only holds memory. Notes what counts while it is freed.
struct Holds {
    held: u64,
    position: u64,
    freed_at: Arc<AtomicU64>,
    used: Arc<AtomicU64>,
}

impl Cursor for Holds {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn held(&self) -> u64 {
        self.held
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::SeqCst);
        self.freed_at.store(used, Ordering::SeqCst);
    }
}

fn rest(cache: &Cache, key: u64, position: u64, held: u64) -> Arc<AtomicU64> {
    let freed_at = Arc::<AtomicU64>::default();
    let cursor = Holds {
        held,
        position,
        freed_at: Arc::clone(&freed_at),
        used: Arc::clone(&cache.used),
    };
    cache.rest(key, (Box::new(cursor), cache.count(0)));
    freed_at
}

#[test]
fn segments_and_decoders_go_in_the_order_of_their_use() {
    let cache = Cache::new(4 * cost(SEGMENT));
    fill(&cache, ANY, 0);
    let first = rest(&cache, 1, 0, cost(SEGMENT));
    fill(&cache, ANY, 1);
    let second = rest(&cache, 2, 0, cost(SEGMENT));
    cache.get(0, 0).unwrap();
    let is_gone = |freed_at: &Arc<AtomicU64>| freed_at.load(Ordering::SeqCst) > 0;
    fill(&cache, ANY, 2);
    assert!(is_gone(&first) && !is_gone(&second));
    fill(&cache, ANY, 3);
    assert!(!cache.contains(0, 1) && !is_gone(&second));
    fill(&cache, ANY, 4);
    assert!(cache.contains(0, 0) && is_gone(&second));
    assert_eq!(cache.used(), 4 * cost(SEGMENT));
}

/// It counted no more before, and then other decoders took the memory that it still had.
#[test]
fn a_decoder_counts_until_it_is_freed() {
    let cache = Cache::new(1 << 20);
    let freed_at = rest(&cache, 1, 0, 1000);
    let _buffer = cache.buffer(1 << 20);
    assert_eq!(freed_at.load(Ordering::SeqCst), (1 << 20) + 1000);
    assert_eq!(cache.used(), 1 << 20);
}

#[test]
fn the_nearest_decoder_is_taken_and_a_block_has_few_of_them() {
    let cache = Cache::new(1 << 20);
    for position in [10, 40, 30, 20, 50] {
        rest(&cache, 1, position, 100);
    }
    rest(&cache, 2, 35, 100);
    assert_eq!(cache.used(), 500);
    let taken = |start, least| {
        let (cursor, memory) = cache.take(1, start, least)?;
        assert_eq!(memory.bytes(), 100);
        Some(cursor.position())
    };
    assert_eq!(taken(39, 0), Some(30));
    assert_eq!(taken(39, 21), None);
    assert_eq!(taken(39, 0), Some(20));
    assert_eq!(taken(39, 0), None, "the oldest had to go");
    cache.forget(1);
    assert_eq!(cache.used(), 100);
}

#[test]
fn of_two_decoders_at_one_place_the_later_one_stays() {
    let cache = Cache::new(1 << 20);
    let first = rest(&cache, 1, 10, 100);
    rest(&cache, 2, 10, 100);
    rest(&cache, 1, 10, 50);
    assert!(first.load(Ordering::SeqCst) > 0);
    assert_eq!(cache.used(), 150);
    assert_eq!(cache.take(1, 10, 0).unwrap().1.bytes(), 50);
    assert!(cache.take(1, 10, 0).is_none());
}
