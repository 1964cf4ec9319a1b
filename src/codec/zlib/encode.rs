//! Writing: one stream of segments that refer to nothing before them.
//!
//! Every reader takes it for an ordinary stream, and it is 0.04 % longer than one. But its segments are made on several
//! cores, reading it needs no window at the start of a segment, and an edit leaves the segments it does not touch as they are.

use std::io::Write;
use std::ops::Range;

use super::super::SEGMENT;
use super::super::cores::{codec_panicked, cores, on_all_cores};
use super::super::deflate::{ADLER_START, adler32, adler32_combine, deflate};
use super::super::headers::array_at;
use super::super::splice::{Edited, write};
use super::len_u64;
use super::segments::{DeflateSegment, find};
use super::wrapper::GZIP;
use crate::error::Result;
use crate::source::{Source, at_most};

/// Segments made at once, at most.
const AT_ONCE: usize = 4;

/// The level that is written where there is none to keep: zlib's default, and Python's.
pub(super) const DEFAULT_LEVEL: i32 = 6;

/// The level that a stream was written with, as far as the first bytes tell: one for each of four classes.
fn stream_level(stored: &dyn Source) -> Result<i32> {
    if stored.len() < 2 {
        return Ok(DEFAULT_LEVEL);
    }
    let header = array_at(stored, 0)?;
    let [_, flags] = header;
    // RFC 1950 §2.2, FLEVEL.
    Ok(match flags >> 6 {
        _ if header == GZIP => DEFAULT_LEVEL,
        0 => 1,
        1 => 4,
        2 => DEFAULT_LEVEL,
        _ => 9,
    })
}

/// The header of a stream of this level: a window of 32 KiB, and the class of the level in the upper two bits of the second byte.
fn header(level: i32) -> [u8; 2] {
    // FLEVEL, and with FCHECK a multiple of 31.
    match level {
        ..=1 => [0x78, 0x01],
        2..DEFAULT_LEVEL => [0x78, 0x5E],
        DEFAULT_LEVEL => [0x78, 0x9C],
        _ => [0x78, 0xDA],
    }
}

/// Writes a stream of all of `decoded`.
pub(super) fn encode(decoded: &dyn Source, level: i32, out: &mut dyn Write) -> Result<()> {
    let mut encoder = ZlibEncoder::begin(decoded, level, out)?;
    encoder.encode(0..decoded.len())?;
    encoder.end()
}

/// Writes an edited stream: segments that the edit did not touch as they are stored, if they are found again.
pub(super) fn reencode(edited: &Edited, out: &mut dyn Write) -> Result<()> {
    let stored = edited.stored.as_ref();
    let level = stream_level(stored)?;
    let Some(segments) = find(stored, edited.stored_len)? else {
        return encode(edited.decoded, level, out);
    };
    let len = edited.decoded.len();
    let mut encoder = ZlibEncoder::begin(edited.decoded, level, out)?;
    let mut start = 0_u64;
    // The range to be encoded next; it begins where a segment does.
    let mut new = 0..0;
    for segment in segments.iter().filter(|segment| segment.len > 0) {
        let decoded = start..start.saturating_add(len_u64(segment.len));
        start = decoded.end;
        // the segment that ended the stream is marked as its end: in the middle it would end the new one, too
        if edited.touches(&decoded) || segment.last && start < len {
            new.end = start.min(len);
            continue;
        }
        // all that changed in front of this segment, as one range: its segments are made on several cores
        encoder.encode(new)?;
        new = start..start;
        edited.copy(segment.stored.clone(), encoder.out)?;
        encoder.count(segment);
    }
    new.end = len;
    encoder.encode(new)?;
    encoder.end()
}

/// A stream under way.
struct ZlibEncoder<'a> {
    decoded: &'a dyn Source,
    level: i32,
    at_once: usize,
    /// The checksum of what is written.
    adler: u32,
    /// Whether the last segment is written.
    ended: bool,
    out: &'a mut dyn Write,
}

impl<'a> ZlibEncoder<'a> {
    /// Writes the header of the stream.
    fn begin(decoded: &'a dyn Source, level: i32, out: &'a mut dyn Write) -> Result<Self> {
        write(out, &header(level))?;
        Ok(Self {
            decoded,
            level,
            at_once: cores().min(AT_ONCE),
            adler: ADLER_START,
            ended: false,
            out,
        })
    }

    /// Encodes a range that begins where a segment does.
    fn encode(&mut self, range: Range<u64>) -> Result<()> {
        let Range { mut start, end } = range;
        while start < end {
            // as many segments in memory as there are cores, however long the range is
            let mut plain = Vec::new();
            while plain.len() < self.at_once && start < end {
                let len = at_most(end.saturating_sub(start), SEGMENT);
                let mut segment = vec![0; len];
                self.decoded.read_exact_at(&mut segment, start)?;
                start = start.saturating_add(len_u64(len));
                plain.push((segment, start >= self.decoded.len()));
            }
            self.write_all(&plain)?;
        }
        Ok(())
    }

    /// Encodes segments at the same time and writes them in order; with each, whether the stream ends with it.
    fn write_all(&mut self, plain: &[(Vec<u8>, bool)]) -> Result<()> {
        let level = self.level;
        let pack = |(segment, last): &(Vec<u8>, bool)| {
            let deflated = deflate(segment, level, *last)?;
            Ok((deflated, adler32(ADLER_START, segment)))
        };
        let pieces = on_all_cores(plain, pack, codec_panicked);
        for (piece, (segment, last)) in pieces.into_iter().zip(plain) {
            let (deflated, adler) = piece?;
            write(self.out, &deflated)?;
            // each core sums its own segment; the checksum of the stream follows from the parts
            self.adler = adler32_combine(self.adler, adler, len_u64(segment.len()));
            self.ended |= last;
        }
        Ok(())
    }

    /// Takes account of a segment that was copied.
    fn count(&mut self, segment: &DeflateSegment) {
        self.adler = adler32_combine(self.adler, segment.adler, len_u64(segment.len));
        self.ended |= segment.last;
    }

    /// Ends the stream: its last segment, if that is not written yet, and its checksum.
    fn end(mut self) -> Result<()> {
        if !self.ended {
            // There were no bytes, or the last that stayed was not the last before.
            self.write_all(&[(Vec::new(), true)])?;
        }
        write(self.out, &self.adler.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::deflate::ordinary_stream;
    use super::super::super::testing::{
        EditCase, edits, encoded, image, numbers, python, python_agrees,
    };
    use super::super::{FRAMING, Zlib};
    use super::*;
    use crate::source::Memory;
    use proptest::prelude::*;

    /// Numbers that zlib has little work with.
    fn smooth(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n / 3000 * 7) as u8).collect()
    }

    fn case(stored: Vec<u8>, before: Vec<u8>, at: usize) -> EditCase {
        EditCase {
            framing: FRAMING,
            stored,
            writes: vec![(at, vec![9; 10])],
            len: before.len(),
            before,
        }
    }

    fn segments(stored: &[u8], len: usize) -> Option<Vec<DeflateSegment>> {
        find(&Memory::new(stored.to_vec()), len as u64).unwrap()
    }

    fn bytes<'a>(stored: &'a [u8], segment: &DeflateSegment) -> &'a [u8] {
        &stored[segment.stored.start as usize..segment.stored.end as usize]
    }

    #[test]
    fn ten_bytes_cost_one_segment_and_python_reads_it() {
        let before = image(5 * SEGMENT + 10);
        let case = case(encoded(&Zlib, &before), before, 2 * SEGMENT + 77);
        let edited = case.run(&Zlib);
        assert_eq!(edited.encoded, SEGMENT as u64);
        let old = segments(&case.stored, case.len).unwrap();
        let new = segments(&edited.stored, case.len).unwrap();
        assert_eq!([old.len(), new.len()], [6, 6]);
        for (n, (old, new)) in old.iter().zip(&new).enumerate() {
            let same = bytes(&case.stored, old) == bytes(&edited.stored, new);
            assert_eq!(same, n != 2, "segment {n}");
        }
        assert!(python_agrees("zlib", &[(edited.stored, edited.decoded)]));
    }

    #[test]
    fn a_stream_that_ends_between_segments_gets_an_end() {
        let before = smooth(3 * SEGMENT);
        let mut case = case(encoded(&Zlib, &before), before, 5);
        case.writes.clear();
        case.len = 2 * SEGMENT;
        let edited = case.run(&Zlib);
        assert_eq!(edited.encoded, 0);
        case.stored = edited.stored.clone();
        case.before.truncate(2 * SEGMENT);
        case.len += 10;
        let longer = case.run(&Zlib);
        assert_eq!(longer.encoded, 10);
        let cases = [edited, longer].map(|edited| (edited.stored, edited.decoded));
        assert!(python_agrees("zlib", &cases));
    }

    #[test]
    fn the_streams_of_others_are_encoded_whole_in_their_class() {
        let before = image(SEGMENT + 5000);
        for (level, flags) in [(1, 0x01), (5, 0x5E), (6, 0x9C), (9, 0xDA)] {
            let stored = ordinary_stream(&before, level);
            let edited = case(stored, before.clone(), 100).run(&Zlib);
            assert_eq!(edited.encoded, before.len() as u64);
            assert_eq!(edited.stored[..2], [0x78, flags]);
        }
    }

    #[test]
    fn a_flush_that_the_window_outlives_is_no_start() {
        let before = image(SEGMENT).repeat(2);
        let flushed = |mode| {
            let program = format!(
                "import zlib\nc = zlib.compressobj(); o.write(c.compress(d[:1<<20]) + c.flush(zlib.{mode}))\n\
                 o.write(c.compress(d[1<<20:]) + c.flush())"
            );
            python(&program, &before)
        };
        let Some((sync, full)) = flushed("Z_SYNC_FLUSH").zip(flushed("Z_FULL_FLUSH")) else {
            return;
        };
        assert_eq!(segments(&sync, before.len()), None);
        assert_eq!(segments(&full, before.len()).unwrap().len(), 2);
        case(sync, before.clone(), 2000).run(&Zlib);
        assert_eq!(case(full, before, 2000).run(&Zlib).encoded, SEGMENT as u64);
    }

    #[test]
    fn marks_that_occur_by_chance_are_seen_through() {
        let mut below = numbers(3);
        let noisy: Vec<u8> = (0..3 * SEGMENT / 4)
            .flat_map(|_| match below(500) {
                0 => [0, 0, 0xFF, 0xFF],
                _ => std::array::from_fn(|_| below(256) as u8),
            })
            .collect();
        let case = case(encoded(&Zlib, &noisy), noisy, 5);
        assert_eq!(case.run(&Zlib).encoded, SEGMENT as u64);
    }

    #[test]
    fn nothing_is_kept_of_a_damaged_stream() {
        let before = image(2 * SEGMENT);
        let good = encoded(&Zlib, &before);
        for at in [good.len() - 1, good.len() / 3, good.len() / 3 * 2] {
            let mut stored = good.clone();
            stored[at] ^= 0x10;
            assert_eq!(segments(&stored, before.len()), None);
        }
        assert_eq!(segments(&good[..good.len() - 2], before.len()), None);
        assert_eq!(segments(&good, before.len() - 1), None);
        let whole = segments(&good, before.len());
        assert_eq!(whole.unwrap().len(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10))]
        #[test]
        fn edits_keep_the_segments_they_do_not_touch(
            (writes, len) in edits(3 * SEGMENT + 1000),
        ) {
            let before = smooth(3 * SEGMENT + 1000);
            let stored = encoded(&Zlib, &before);
            let case = EditCase { framing: FRAMING, stored, before, writes, len };
            let edited = case.run(&Zlib);
            let new = segments(&edited.stored, len).unwrap();
            let (mut start, mut kept) = (0, 0);
            for old in segments(&case.stored, case.before.len()).unwrap() {
                let end = start + old.len as u64;
                let touched = edited.touched.iter().any(|range| range.start < end && start < range.end);
                if !touched && end <= len as u64 && (!old.last || end == len as u64) {
                    let n = start as usize / SEGMENT;
                    prop_assert!(bytes(&edited.stored, &new[n]) == bytes(&case.stored, &old));
                    kept += end - start;
                }
                start = end;
            }
            prop_assert_eq!(edited.encoded, len as u64 - kept);
        }

        #[test]
        fn damaged_bytes_are_harmless(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
            size in 0u64..3_000_000,
        ) {
            let mut stored = encoded(&Zlib, &smooth(SEGMENT + 2000));
            for (place, value) in changes {
                let at = place.index(stored.len());
                stored[at] = value;
            }
            stored.truncate(cut.index(stored.len()) + 1);
            let _ = find(&Memory::new(stored), size);
        }
    }
}
