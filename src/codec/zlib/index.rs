//! Points of a zlib stream that decoding can begin at.
//!
//! A point is the end of a DEFLATE block: a bit of the stored bytes, and the 32 KiB decoded before it, which matches behind it
//! may refer to. Of these only the bytes are kept that the next 32 KiB do refer to, often a few hundred: beyond, no match
//! reaches back over the point. Which ones these are is found out later; until then all are kept.
//!
//! They are the [`Entries`] of a stream, each just before the start of a segment. Their number is limited by the bytes of their
//! windows.

use std::sync::Arc;

use super::{SEARCH_LEN, SEGMENT};
use crate::codec::entries::Entries;
use crate::error::Result;
use crate::source::len_u64;

/// How far back a match may reach.
pub(super) const WINDOW: usize = 32 << 10;

/// Bytes that the points of one stream may take; beyond, every second one is dropped.
const INDEX_LEN: u64 = 16 << 20;

/// The least distance of points: two that lie before the starts of neighbouring segments may be so close.
const SPACING: usize = SEGMENT - SEARCH_LEN;

/// What a point takes beside its window.
const POINT_LEN: u64 = 96;

/// Bytes of the two numbers in front of a run, at most: each has three.
const RUN_HEAD: usize = 6;

/// A pair of different bytes is a number to this base.
const PAIR_BASE: u16 = 255;

/// The lower seven bits of a byte of a number, and the bit that says that there is more of it.
const NUMBER_BITS: u8 = 0x7F;
const NUMBER_GOES_ON: u8 = 0x80;

/// A point to begin at.
#[derive(Clone)]
pub(super) struct Point {
    /// Decoded bytes before it.
    pub(super) decoded: u64,
    /// Stored bytes before it, a byte that is shared with what lies before counted.
    pub(super) stored: u64,
    /// How many bits of that byte come behind the point.
    pub(super) bits: u8,
    /// The checksum of all that was decoded before it.
    pub(super) sum: u32,
    /// What was decoded before it, as much as a window.
    pub(super) window: Arc<Window>,
}

/// Decoded bytes before a point.
#[derive(Default)]
pub(super) struct Window {
    /// Length when expanded.
    len: usize,
    /// Those that are needed: for each run of them its distance from the run before, its length and the bytes.
    runs: Vec<u8>,
}

/// The points known of a stream.
#[derive(Clone)]
pub(super) struct PointIndex {
    points: Entries<Point>,
    held: u64,
    /// Points that are to be made smaller, by their decoded offset.
    untidy: Vec<u64>,
}

impl PointIndex {
    /// Only the point where the first block begins.
    pub(super) fn new(first: Point) -> Self {
        Self {
            points: Entries::spaced(len_u64(SPACING), first),
            held: 0,
            untidy: Vec::new(),
        }
    }

    /// The last point at or before a decoded offset.
    pub(super) fn before(&self, offset: u64) -> Point {
        self.points.at(offset).1
    }

    /// Whether a point just before `offset` would be of use: where a segment begins, and no point is near.
    pub(super) fn wants(&self, offset: u64) -> bool {
        offset.is_multiple_of(len_u64(SEGMENT)) && self.points.wants(offset)
    }

    /// Adds a point, unless there is one nearby.
    pub(super) fn add(&mut self, point: Point) {
        if !self.points.wants(point.decoded) {
            return;
        }
        self.held = self.held.saturating_add(point.held());
        // which bytes of the window are needed is found out later, off the reader's way
        self.untidy.push(point.decoded);
        self.points.add(point.decoded, point);
        // half of the points still reach everything: a read only decodes up to twice as much before its first byte
        if self.held > INDEX_LEN {
            self.thin_out();
        }
    }

    /// Drops about every second point.
    pub(super) fn thin_out(&mut self) {
        self.points.thin_out();
        let points = self.points.rest().iter();
        self.held = points.map(|(_, point)| point.held()).sum();
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// A point to be made smaller; `None` if there is none.
    pub(super) fn take_untidy(&mut self) -> Option<Point> {
        let decoded = self.untidy.pop()?;
        // if it has been dropped, the one before it: to make that smaller again changes nothing
        Some(self.before(decoded))
    }

    /// Changes the window of a point.
    pub(super) fn replace(&mut self, decoded: u64, window: Window) {
        if let Some(point) = self.points.at_mut(decoded) {
            self.held = self.held.saturating_sub(point.held());
            point.window = Arc::new(window);
            self.held = self.held.saturating_add(point.held());
        }
    }
}

impl Point {
    /// Where the first block begins, with the checksum of nothing.
    pub(super) fn first(stored: u64, sum: u32) -> Self {
        Self {
            decoded: 0,
            stored,
            bits: 0,
            sum,
            window: Arc::default(),
        }
    }

    fn held(&self) -> u64 {
        len_u64(self.window.runs.capacity()).saturating_add(POINT_LEN)
    }
}

impl Window {
    /// All of these bytes: one run.
    pub(super) fn whole(bytes: &[u8]) -> Self {
        let len = bytes.len();
        let mut runs = Vec::with_capacity(len.saturating_add(RUN_HEAD));
        put_number(&mut runs, 0);
        put_number(&mut runs, len);
        runs.extend(bytes);
        Self { len, runs }
    }

    /// The bytes, with zeros for those that are not needed.
    pub(super) fn expand(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        let mut rest = self.runs.as_slice();
        while let (Some(gap), Some(run)) = (take_number(&mut rest), take_number(&mut rest)) {
            bytes.resize(bytes.len().saturating_add(gap), 0);
            let (found, behind) = rest.split_at_checked(run).unwrap_or((rest, &[]));
            bytes.extend(found);
            rest = behind;
        }
        // the last run may end before the window does: no match reaches what follows it
        bytes.resize(self.len, 0);
        bytes
    }

    /// `plain` with only those bytes that what follows it is made from.
    ///
    /// `decode` gives the bytes that follow with another window in its place. It is called with two windows, in which byte *i* is the
    /// high and the low part of the number *i*; the two parts always differ. Where the two results differ, the byte was copied from the
    /// window, and the pair says from which position.
    pub(super) fn sparse(
        plain: &[u8],
        decode: impl Fn(&[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Self>> {
        let positions = 0..u16::try_from(plain.len()).unwrap_or(u16::MAX);
        let (high, low): (Vec<u8>, Vec<u8>) = positions.map(pair_of).unzip();
        // a byte that the stream itself holds comes out the same both times; one copied from the window does not
        let (Some(high), Some(low)) = (decode(&high)?, decode(&low)?) else {
            return Ok(None);
        };
        let mut needed = vec![false; plain.len()];
        for (high, low) in high.into_iter().zip(low) {
            if let Some(position) = position_of(high, low)
                && let Some(needed) = needed.get_mut(usize::from(position))
            {
                *needed = true;
            }
        }
        Ok(Some(Self::of_needed(plain, &needed)))
    }

    /// The runs of `plain` that are marked as needed.
    fn of_needed(plain: &[u8], needed: &[bool]) -> Self {
        let mut runs = Vec::new();
        let mut at = 0_usize;
        let mut rest = needed;
        while let Some(gap) = rest.iter().position(|&needed| needed) {
            let behind = rest.get(gap..).unwrap_or_default();
            let run = behind
                .iter()
                .position(|&needed| !needed)
                .unwrap_or(behind.len());
            put_number(&mut runs, gap);
            put_number(&mut runs, run);
            let start = at.saturating_add(gap);
            let end = start.saturating_add(run);
            runs.extend(plain.get(start..end).unwrap_or_default());
            at = end;
            rest = needed.get(end..).unwrap_or_default();
        }
        runs.shrink_to_fit();
        Self {
            len: plain.len(),
            runs,
        }
    }
}

/// A position in a window as two bytes that are not equal.
fn pair_of(position: u16) -> (u8, u8) {
    let [.., high] = position.checked_div(PAIR_BASE).unwrap_or(0).to_be_bytes();
    let [.., low] = position.checked_rem(PAIR_BASE).unwrap_or(0).to_be_bytes();
    (high, low.saturating_add(u8::from(low >= high)))
}

/// The position that [`pair_of`] has made these of; equal bytes are none.
fn position_of(high: u8, low: u8) -> Option<u16> {
    if high == low {
        return None;
    }
    // undoes the step over `high` that `pair_of` takes so that the two never are equal
    let low = low.saturating_sub(u8::from(low > high));
    u16::from(high)
        .checked_mul(PAIR_BASE)?
        .checked_add(low.into())
}

/// Appends a number, seven bits to a byte, the lowest first.
fn put_number(runs: &mut Vec<u8>, number: usize) {
    let mut rest = number;
    loop {
        let low = u8::try_from(rest & usize::from(NUMBER_BITS)).unwrap_or(0);
        rest = rest.checked_shr(7).unwrap_or(0);
        if rest == 0 {
            runs.push(low);
            return;
        }
        runs.push(low | NUMBER_GOES_ON);
    }
}

/// Takes such a number from the front; positions within a window have at most three bytes.
fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0_usize;
    for shift in [0, 7, 14] {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= usize::from(byte & NUMBER_BITS).checked_shl(shift)?;
        if byte & NUMBER_GOES_ON == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_position_of_a_window_is_a_pair_of_its_own() {
        for position in 0..WINDOW as u16 {
            let (high, low) = pair_of(position);
            assert_eq!(position_of(high, low), Some(position));
        }
        assert!((0..=255).all(|literal| position_of(literal, literal).is_none()));
    }

    #[test]
    fn more_points_than_may_be_kept_are_thinned_out() {
        let mut index = PointIndex::new(Point::first(2, 1));
        let window = Arc::new(Window::whole(&vec![7; WINDOW]));
        let most = INDEX_LEN / WINDOW as u64;
        for n in 1..=most {
            let (decoded, window) = (n << 20, Arc::clone(&window));
            index.add(Point {
                decoded,
                window,
                ..Point::first(n, 1)
            });
            assert!(index.held() <= INDEX_LEN);
        }
        assert!(index.points.rest().len() as u64 >= most / 3);
    }

    #[test]
    fn points_thin_out_to_none() {
        let mut index = PointIndex::new(Point::first(2, 1));
        let point = |n: u64| Point {
            decoded: n << 20,
            ..Point::first(n, 1)
        };
        for n in 1..=24 {
            index.add(point(n));
        }
        for left in [12, 6, 3, 1, 0, 0] {
            index.thin_out();
            assert_eq!(index.points.rest().len(), left);
            assert_eq!(index.held(), POINT_LEN * left as u64);
        }
        let mut apart = PointIndex::new(Point::first(2, 1));
        apart.add(point(8));
        apart.add(point(16));
        apart.thin_out();
        assert_eq!(
            apart.points.rest().len(),
            1,
            "it goes on until there are fewer"
        );
        index.add(point(5));
        assert!(index.points.rest().is_empty(), "and they stay apart");
    }

    proptest! {
        #[test]
        fn a_sparse_window_has_what_is_needed_and_zeros(
            runs in prop::collection::vec((0usize..9000, 0usize..400), 0..20),
            bytes in prop::collection::vec(1u8.., 100..200),
        ) {
            let mut needed: Vec<bool> = runs
                .iter()
                .flat_map(|&(gap, run)| [vec![false; gap], vec![true; run]].concat())
                .collect();
            needed.resize(WINDOW, false);
            let plain: Vec<u8> = bytes.into_iter().cycle().take(WINDOW).collect();
            let expanded = Window::of_needed(&plain, &needed).expand();
            prop_assert!(Window::whole(&plain).expand() == plain);
            let want: Vec<u8> = plain
                .iter()
                .zip(&needed)
                .map(|(&byte, &needed)| if needed { byte } else { 0 })
                .collect();
            prop_assert!(expanded == want);
        }
    }
}
