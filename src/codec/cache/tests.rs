use super::ledger::SEQUENTIAL_WINDOW;
use super::*;
use crate::error::{Error, Place, Result};

const ANY: Demand = Demand::Random(0);

fn fill(cache: &Cache, demand: Demand, index: u64) {
    let mut buffer = cache.segment(SEGMENT, demand);
    buffer.fill(index as u8);
    cache.insert(demand.key(), index, buffer, false);
}

#[test]
fn the_least_recently_used_goes_first() {
    let cache = Cache::new(3 * cost(SEGMENT));
    for index in 0..3 {
        fill(&cache, ANY, index);
    }
    let first = cache.get(0, 0).unwrap().as_ptr();
    cache.get(0, 0).unwrap();
    cache.get(0, 2).unwrap();
    let _buffer = cache.segment(SEGMENT, ANY);
    assert_eq!(cache.get(0, 0).unwrap().as_ptr(), first);
    assert!(!cache.contains(0, 1));
    assert_eq!(cache.used(), 3 * cost(SEGMENT));
}

#[test]
fn what_a_reply_is_made_from_is_neither_reused_nor_forgotten_about() {
    let cache = Cache::new(2 * cost(SEGMENT));
    fill(&cache, ANY, 7);
    let lent = cache.get(0, 7).unwrap();
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
    let buffer = cache.segment(1000, ANY);
    assert_eq!(cache.used(), cost(1000));
    cache.insert(0, 0, buffer, false);
    assert_eq!(cache.used(), cost(1000));
    drop(cache.segment(500, ANY));
    cache.forget(0);
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_block_read_sequentially_makes_room_at_its_own_cost() {
    let cache = Cache::new(8 * cost(SEGMENT));
    for index in 0..4 {
        fill(&cache, ANY, index);
    }
    let long = Demand::Sequential(1);
    for index in 0..50 {
        fill(&cache, long, index);
    }
    assert!((0..4).all(|index| cache.contains(0, index)));
    assert!((46..50).all(|index| cache.contains(1, index)));
    assert_eq!(cache.used(), 8 * cost(SEGMENT));
}

#[test]
fn a_sequential_read_uses_few_buffers_again_whatever_the_budget() {
    let cache = Cache::new(1 << 40);
    let long = Demand::Sequential(1);
    for index in 0..100 {
        fill(&cache, long, index);
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
        assert!(cache.has_room_ahead());
        let buffer = cache.segment(SEGMENT, ANY);
        cache.insert(0, index, buffer, true);
    }
    assert!(!cache.has_room_ahead());
    cache.get(0, 0).unwrap();
    assert!(cache.has_room_ahead());
}

#[test]
fn what_readers_have_abandoned_does_not_keep_others_from_reading_ahead() {
    // Once segments that nobody came for counted for ever: after nine files were read in part, no other was read ahead.
    let cache = Cache::new(16 * cost(SEGMENT));
    let ahead = |key, index| {
        let demand = Demand::Sequential(key);
        let buffer = cache.segment(SEGMENT, demand);
        cache.insert(key, index, buffer, true);
    };
    for index in 0..4 {
        ahead(1, index);
    }
    assert!(!cache.has_room_ahead());
    let reader = Demand::Sequential(2);
    for index in 0..4 {
        drop(cache.segment(SEGMENT, reader));
        assert!(cache.has_room_ahead());
        ahead(2, index);
        assert!(!cache.has_room_ahead());
    }
    drop(cache.segment(SEGMENT, reader));
    assert!(!cache.has_room_ahead(), "now they are its own");
    drop(cache.segment(SEGMENT, Demand::Random(3)));
    assert!(!cache.has_room_ahead(), "it does not read sequentially");
    assert!((0..4).all(|index| cache.contains(1, index)));
    for key in [1, 2] {
        (0..4).for_each(|index| drop(cache.get(key, index)));
    }
    assert_eq!(cache.lock().unread, 0);
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
fn streams_hold_a_part_of_the_budget_and_those_that_hold_most_give_up_theirs() {
    let cache = Cache::new(4000);
    let streams = [holding(600, 0), holding(100, 0), holding(200, 0)];
    for (key, stream) in (0..).zip(&streams) {
        cache.recount(stream, Demand::Random(key));
    }
    assert_eq!(cache.used(), 900, "that much they may hold");
    let fourth = holding(500, 0);
    cache.recount(&fourth, Demand::Random(3));
    let held = |stream: &Arc<dyn Stream>| stream.held();
    assert_eq!(streams.each_ref().map(held), [300, 100, 200]);
    assert_eq!(fourth.held(), 250);
    assert_eq!(cache.used(), 850);
    cache.forget(0);
    cache.recount(&streams[1], Demand::Random(1));
    assert_eq!(cache.used(), 550);
    for key in 0..4 {
        cache.forget(key);
    }
    assert_eq!(cache.used(), 0);
}

#[test]
fn streams_that_have_nothing_to_give_up_are_left_alone() {
    let cache = Cache::new(4000);
    let fixed = holding(1200, 1200);
    cache.recount(&fixed, Demand::Random(0));
    let other = holding(800, 100);
    cache.recount(&other, Demand::Random(1));
    assert_eq!((fixed.held(), other.held()), (1200, 100));
    assert_eq!(cache.used(), 1300);
}
