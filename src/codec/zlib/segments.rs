//! Finding the segments again that [`encode`](super::encode) has written, so that an edit can leave them as they are.
//!
//! Nothing says where they are. A full flush leaves the bytes of an empty stored block, but such bytes occur in other places
//! too, and other programs write them where what follows still refers to the window. So each segment is decoded without a window, from
//! where the one before it ended. It must give just as many bytes as a segment has and end on a byte boundary, and all of them
//! together must have the checksum of the stream. That takes a fifth of the time of encoding them.

use std::ops::Range;

use super::super::SEGMENT;
use super::super::cores::{codec_panicked, cores, on_all_cores};
use super::super::deflate::{ADLER_START, adler32, adler32_combine};
use super::super::headers::array_at;
use super::super::inflate::Inflate;
use super::super::input::{Input, PIECE, Stop};
use super::{HEADER_LEN, PRESET_DICTIONARY, len_u64};
use crate::error::Result;
use crate::source::{Source, at_most};

/// The end of a full flush.
const MARK: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// Length of a stream's checksum.
pub(super) const CHECKSUM_LEN: u64 = 4;

/// The most stored bytes of a segment: far more than one takes that does not get smaller.
const MAX_STORED: u64 = 2 << 20;

/// Segments decoded at once, at most.
const AT_ONCE: usize = 4;

/// A part of a stream that refers to nothing before it, and begins and ends on a byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeflateSegment {
    /// Where it is among the stored bytes.
    pub(super) stored: Range<u64>,
    /// Number of decoded bytes, and their checksum.
    pub(super) len: usize,
    pub(super) adler: u32,
    /// Whether the stream ends with it.
    pub(super) last: bool,
}

/// The segments of a stream of `data_size` bytes; `None` if it does not consist of such.
///
/// # Errors
/// Of reading `stored`.
pub(super) fn find(stored: &dyn Source, data_size: u64) -> Result<Option<Vec<DeflateSegment>>> {
    if stored.len() < HEADER_LEN.saturating_add(CHECKSUM_LEN) {
        return Ok(None);
    }
    // RFC 1950 §2.2: the window of 32 KiB that is always written here.
    let [0x78, flags] = array_at(stored, 0)? else {
        return Ok(None);
    };
    if flags & PRESET_DICTIONARY != 0 {
        return Ok(None);
    }
    let mut segments: Vec<DeflateSegment> = Vec::new();
    let mut decoded = 0_u64;
    let mut adler = ADLER_START;
    loop {
        let at = segments.last().map_or(HEADER_LEN, |last| last.stored.end);
        // All places where a segment may begin are decoded at the same time; those where none does are dropped.
        let starts = likely_starts(stored, at, cores().min(AT_ONCE))?;
        let found = on_all_cores(&starts, |&start| decode(stored, start), codec_panicked);
        let mut next = at;
        for segment in found {
            let Some(segment) = segment?.filter(|segment| segment.stored.start == next) else {
                continue;
            };
            next = segment.stored.end;
            decoded = decoded.saturating_add(len_u64(segment.len));
            adler = adler32_combine(adler, segment.adler, len_u64(segment.len));
            let last = segment.last;
            segments.push(segment);
            if last {
                // copied segments are not checked again, so nothing is copied of a stream that is damaged anywhere
                let whole = decoded == data_size && checksum(stored, next)? == Some(adler);
                return Ok(whole.then_some(segments));
            }
        }
        // no segment begins here, as in streams of other programs; or there are more bytes than the block has
        if next == at || decoded > data_size {
            return Ok(None);
        }
    }
}

/// The checksum at `at`, if it is not cut off.
pub(super) fn checksum(stored: &dyn Source, at: u64) -> Result<Option<u32>> {
    if at.saturating_add(CHECKSUM_LEN) > stored.len() {
        return Ok(None);
    }
    Ok(Some(u32::from_be_bytes(array_at(stored, at)?)))
}

/// `at`, and up to `count` places in all where a full flush seems to end behind it.
fn likely_starts(stored: &dyn Source, at: u64, count: usize) -> Result<Vec<u64>> {
    let mut starts = vec![at];
    let end = stored
        .len()
        .min(at.saturating_add(MAX_STORED.saturating_mul(len_u64(count))));
    let mut buf = vec![0; PIECE];
    let mut from = at;
    while starts.len() < count && end.saturating_sub(from) >= len_u64(MARK.len()) {
        let len = at_most(end.saturating_sub(from), PIECE);
        let bytes = buf.get_mut(..len).unwrap_or_default();
        stored.read_exact_at(bytes, from)?;
        let marks = bytes
            .windows(MARK.len())
            .zip(from..)
            .filter(|&(window, _)| window == MARK)
            .map(|(_, mark)| mark.saturating_add(len_u64(MARK.len())));
        let missing = count.saturating_sub(starts.len());
        starts.extend(marks.take(missing));
        // A mark may lie across the end of the piece.
        from = from.saturating_add(len_u64(len.saturating_sub(MARK.len().saturating_sub(1))));
    }
    Ok(starts)
}

/// The segment that begins at `start`, if one does.
fn decode(stored: &dyn Source, start: u64) -> Result<Option<DeflateSegment>> {
    // without a window: a segment that refers to bytes before it fails here
    let mut inflate = Inflate::resume(0, 0, &[])?;
    // One byte more than a segment has, which a longer one fills.
    let mut output = vec![0; SEGMENT.saturating_add(1)];
    let mut input = Input::new(start);
    let mut filled = 0_usize;
    loop {
        let rest = input.fill(stored, stored.len())?;
        let room = output.get_mut(filled..).unwrap_or_default();
        // the four bytes of the mark may occur in data by chance; then this is no DEFLATE block
        let Ok(step) = inflate.run(rest, room, true) else {
            return Ok(None);
        };
        input.take(step.used);
        filled = filled.saturating_add(step.filled);
        let end = input.position();
        let ends = match step.stop {
            Stop::End => true,
            Stop::Boundary(0) if filled == SEGMENT => is_marked(stored, end)?,
            Stop::Boundary(_) | Stop::Full => false,
        };
        if ends && filled <= SEGMENT {
            let decoded = output.get(..filled).unwrap_or_default();
            return Ok(Some(DeflateSegment {
                stored: start..end,
                len: filled,
                adler: adler32(ADLER_START, decoded),
                last: step.stop == Stop::End,
            }));
        }
        let stuck = step.stop == Stop::Full && step.used == 0;
        if ends || filled > SEGMENT || stuck || end.saturating_sub(start) > MAX_STORED {
            return Ok(None);
        }
    }
}

/// Whether a full flush ends at `end`.
fn is_marked(stored: &dyn Source, end: u64) -> Result<bool> {
    Ok(array_at(stored, end.saturating_sub(len_u64(MARK.len())))? == MARK)
}
