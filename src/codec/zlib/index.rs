//! Points of a zlib stream that decoding can begin at.
//!
//! A point is the end of a DEFLATE block: a bit of the stored bytes, and the 32 KiB decoded before it, which matches behind it
//! may refer to. Of these only the bytes are kept that the next 32 KiB do refer to, often a few hundred: beyond, no match
//! reaches back over the point. Which ones these are is found out later; until then all are kept.
//!
//! They are the [`Entries`] of a stream, each just before the start of a segment. Their number is limited by the bytes of their
//! windows. In a seek index each has:
//!
//! | bytes | what |
//! |---|---|
//! | 8 + 4 + 1 | [`Point::stored`], [`Point::sum`], [`Point::bits`] |
//! | 2 | length of the window when expanded |
//! | 4 + n | length of its runs, and these |
//!
//! Numbers are little-endian.

use std::sync::Arc;

use super::{SEARCH_LEN, SEGMENT};
use crate::codec::entries::{Entries, IndexEntry};
use crate::error::Result;
use crate::source::{Fields, len_u64};

/// How far back a match may reach.
pub(super) const WINDOW: usize = 32 << 10;

/// Bytes that the points of one stream may take; beyond, every second one is dropped.
const INDEX_LEN: u64 = 16 << 20;

/// The least distance of points: two that lie before the starts of neighbouring segments may be so close.
const SPACING: usize = SEGMENT - SEARCH_LEN;

/// What a point takes beside its window.
const POINT_LEN: u64 = 96;

/// Bits of a byte that a block may begin within.
const MAX_BITS: u8 = 7;

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
        self.untidy.push(point.decoded);
        self.points.add(point.decoded, point);
        if self.held > INDEX_LEN {
            self.thin_out();
        }
    }

    /// Drops about every second point.
    pub(super) fn thin_out(&mut self) {
        self.points.thin_out();
        self.count();
    }

    /// Adds up the memory that the points hold.
    fn count(&mut self) {
        let points = self.points.rest().iter();
        self.held = points.map(|(_, point)| point.held()).sum();
    }

    /// Appends the index as bytes; `None` if there are no points.
    pub(super) fn export(&self, bytes: &mut Vec<u8>) -> Option<()> {
        self.points.export(bytes)
    }

    /// The index that these bytes are, if it may be that of a stream of so many decoded and stored bytes.
    pub(super) fn import(
        first: Point,
        bytes: &[u8],
        decoded_len: u64,
        stored_len: u64,
    ) -> Option<Self> {
        let mut index = Self::new(first);
        let end = stored_len.saturating_add(1);
        index.points = index.points.import(bytes, decoded_len, end)?;
        index.count();
        (index.held <= INDEX_LEN).then_some(index)
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Whether there are points to be made smaller.
    pub(super) fn is_untidy(&self) -> bool {
        !self.untidy.is_empty()
    }

    /// A point to be made smaller.
    pub(super) fn take_untidy(&mut self) -> Option<Point> {
        let decoded = self.untidy.pop()?;
        Some(self.before(decoded)).filter(|point| point.decoded == decoded)
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

impl IndexEntry for Point {
    fn position(&self) -> u64 {
        self.stored
    }

    fn export(&self, bytes: &mut Vec<u8>) -> Option<()> {
        let Window { len, runs } = self.window.as_ref();
        bytes.extend(self.stored.to_le_bytes());
        bytes.extend(self.sum.to_le_bytes());
        bytes.push(self.bits);
        bytes.extend(u16::try_from(*len).ok()?.to_le_bytes());
        bytes.extend(u32::try_from(runs.len()).ok()?.to_le_bytes());
        bytes.extend(runs);
        Some(())
    }

    fn import(decoded: u64, fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            decoded,
            stored: fields.u64()?,
            sum: fields.u32()?,
            bits: fields.u8().filter(|&bits| bits <= MAX_BITS)?,
            window: Arc::new(Window::import(fields)?),
        })
    }
}

impl Window {
    /// A window of an index as bytes.
    fn import(fields: &mut Fields<'_>) -> Option<Self> {
        let len = usize::from(u16::from_le_bytes(fields.array()?));
        let runs_are = usize::try_from(fields.u32()?).ok()?;
        let runs = fields.bytes(runs_are)?;
        let fits = runs_len(runs)? <= len && len <= WINDOW;
        fits.then(|| Self {
            len,
            runs: runs.to_vec(),
        })
    }

    /// All of these bytes, in two parts: one run.
    pub(super) fn whole(parts: [&[u8]; 2]) -> Self {
        let [first, second] = parts.map(<[u8]>::len);
        let len = first.saturating_add(second);
        let mut runs = Vec::with_capacity(len.saturating_add(RUN_HEAD));
        put_number(&mut runs, 0);
        put_number(&mut runs, len);
        for part in parts {
            runs.extend(part);
        }
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
    let low = low.saturating_sub(u8::from(low > high));
    u16::from(high)
        .checked_mul(PAIR_BASE)?
        .checked_add(low.into())
}

/// Bytes that the runs of a window reach over, if they are whole.
fn runs_len(runs: &[u8]) -> Option<usize> {
    let mut rest = runs;
    let mut len = 0_usize;
    while !rest.is_empty() {
        let (gap, run) = (take_number(&mut rest)?, take_number(&mut rest)?);
        rest = rest.get(run..)?;
        len = len.checked_add(gap)?.checked_add(run)?;
    }
    Some(len)
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

    /// A point as bytes: its numbers, its window's length and runs.
    fn row(at: (u64, u64), bits: u8, len: u16, runs: &[u8]) -> Vec<u8> {
        let mut row = [at.0.to_le_bytes(), at.1.to_le_bytes()].concat();
        row.extend(7_u32.to_le_bytes());
        row.push(bits);
        row.extend(len.to_le_bytes());
        row.extend((runs.len() as u32).to_le_bytes());
        row.extend(runs);
        row
    }

    const STEP: u64 = SPACING as u64;

    fn import(spacing: u64, rows: &[Vec<u8>]) -> Option<PointIndex> {
        let bytes = [spacing.to_le_bytes().to_vec(), rows.concat()].concat();
        PointIndex::import(Point::first(2, 1), &bytes, 9 * STEP, 1000)
    }

    /// What a second point can't be, next to a `good` one.
    fn impossible(good: &[u8]) -> [(&'static str, Vec<u8>); 13] {
        let second = |bits, len, runs: &[u8]| row((2 * STEP, 60), bits, len, runs);
        let empty = |at| row(at, 0, 0, b"");
        [
            ("beyond the decoded bytes", empty((9 * STEP, 60))),
            ("beyond the stored bytes", empty((2 * STEP, 1001))),
            ("too near to the point before", empty((2 * STEP - 1, 60))),
            ("not stored behind it", empty((2 * STEP, 50))),
            ("eight bits", second(8, 0, b"")),
            ("a window too long", second(0, 32769, b"")),
            ("runs beyond the window", second(0, 2, &[1, 2, 3, 4])),
            ("a run that is cut off", second(0, 9, &[1, 2, 3])),
            ("a number that is cut off", second(0, 9, &[1, 0x80])),
            ("a long number", second(0, 9, &[0x80, 0x80, 0x80, 0, 0])),
            (
                "gaps beyond all bounds",
                second(0, 32768, &[0xFF, 0xFF, 0x7F, 0].repeat(9)),
            ),
            ("cut off", good[..good.len() - 1].to_vec()),
            ("cut off in its numbers", good[..20].to_vec()),
        ]
    }

    #[test]
    fn points_that_can_not_be_are_not_imported() {
        let first = || row((STEP, 50), 0, 3, &[0, 3, b'a', b'b', b'c']);
        let good = row(
            (9 * STEP - 1, 1000),
            7,
            32768,
            &[0x7F, 2, b'x', b'y', 0, 1, b'z'],
        );
        let index = import(STEP, &[first(), good.clone()]).unwrap();
        assert_eq!(index.points.rest().len(), 2);
        let last = index.before(9 * STEP);
        assert_eq!((last.stored, last.bits, last.sum), (1000, 7, 7));
        let window = last.window.expand();
        assert_eq!(window.len(), WINDOW);
        assert_eq!(window[126..131], *b"\0xyz\0");
        let mut bytes = Vec::new();
        index.export(&mut bytes).unwrap();
        assert!(bytes == [STEP.to_le_bytes().to_vec(), first(), good.clone()].concat());
        assert!(bytes.len() as u64 <= index.held() + 8);

        for (what, bad) in impossible(&good) {
            assert!(import(STEP, &[first(), bad]).is_none(), "{what}");
        }
        for spacing in [0, STEP - 1, STEP + 1, u64::MAX] {
            assert!(import(spacing, &[first()]).is_none());
        }
    }

    #[test]
    fn more_points_than_are_kept_are_not_imported() {
        let rows = |count: u64| -> Vec<u8> {
            let window = [&[0, 0x80, 0x80, 2][..], &vec![1; WINDOW]].concat();
            (1..=count)
                .flat_map(|n| row((n * STEP, 2 + n), 0, 32768, &window))
                .collect()
        };
        let most = INDEX_LEN / (WINDOW as u64 + 4 + POINT_LEN);
        let import = |count| {
            let bytes = [STEP.to_le_bytes().to_vec(), rows(count)].concat();
            PointIndex::import(Point::first(2, 1), &bytes, u64::MAX, u64::MAX)
        };
        assert!(import(most).is_some_and(|index| index.held() <= INDEX_LEN));
        assert!(import(most + 1).is_none());
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
            prop_assert!(Window::whole(plain.split_at(needed.len() / 3).into()).expand() == plain);
            let want: Vec<u8> = plain
                .iter()
                .zip(&needed)
                .map(|(&byte, &needed)| if needed { byte } else { 0 })
                .collect();
            prop_assert!(expanded == want);
        }
    }
}
