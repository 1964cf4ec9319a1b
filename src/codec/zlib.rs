//! The code `zlib`: one stream of RFC 1950.
//!
//! Such a stream can only be decoded from its start, unless one has been there before: while it is decoded, places are noted
//! where a DEFLATE block ends, as near before the start of a segment as there is one, with what is needed to go on from
//! there (see [`index`]). What comes first is decoded once, then everything is within reach, and for several cores.
//!
//! As in Python, what follows the stream is ignored, and so is a checksum that is cut off; a wrong one is an error at the end.

mod encode;
mod index;
mod segments;

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use self::index::{Index, Point, WINDOW, Window};
use super::inflate::{Inflate, Stop};
use super::{Codec, Cursor, Edited, Opened, SEGMENT, Stream};
use crate::error::{Error, Place, Result};
use crate::source::{Source, len_u64};

/// The code.
const CODE: [u8; 4] = *b"zlib";

/// Name of the one framing.
const FRAMING: &str = "stream";

/// No DEFLATE stream gives more than 1032 bytes for each of its own.
const MAX_RATIO: u64 = 1032;

/// Stored bytes read at once.
const INPUT_LEN: usize = 128 << 10;

/// How long before the start of a segment block ends are looked for; most streams have several there.
const SEARCH_LEN: usize = 128 << 10;

/// What zlib's own state takes, window included.
const STATE_LEN: u64 = 48 << 10;

/// The codec.
pub(super) struct Zlib;

impl Codec for Zlib {
    fn code(&self) -> [u8; 4] {
        CODE
    }

    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Opened> {
        let mut header = [0; 2];
        if data_size > 0 {
            stored.read_exact_at(&mut header, 0)?;
            let whole = u16::from_be_bytes(header);
            if header.first().map(|first| first & 0x0F) != Some(8)
                || whole.checked_rem(31) != Some(0)
            {
                return Err(Error::corrupt(
                    Place::File,
                    format!("{whole:04x} is not the start of a zlib stream"),
                ));
            }
        }
        Ok(Opened {
            framing: FRAMING,
            stream: Arc::new(Deflated {
                stored,
                data_size,
                index: Mutex::new(Index::new()),
                bad_end: OnceLock::new(),
            }),
        })
    }

    fn max_ratio(&self) -> u64 {
        MAX_RATIO
    }

    fn encode(
        &self,
        _framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()> {
        encode::encode(decoded, encode::Class::default(), out)
    }

    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        encode::reencode(edited, out)
    }
}

/// Bytes that a zlib stream decodes to, where that is written down nowhere: decodes it once, and keeps nothing.
///
/// # Errors
/// [`Error::Corrupt`] if it is damaged or ends early; of reading it.
pub fn decoded_len(stored: &dyn Source) -> Result<u64> {
    let mut inflate = Inflate::zlib()?;
    let mut input = vec![0; INPUT_LEN];
    let mut output = vec![0; INPUT_LEN];
    let (mut at, mut decoded) = (0_u64, 0_u64);
    loop {
        let left = stored.len().saturating_sub(at);
        let len = usize::try_from(left).map_or(INPUT_LEN, |left| left.min(INPUT_LEN));
        let input = input.get_mut(..len).unwrap_or_default();
        stored.read_exact_at(input, at)?;
        let turn = inflate.run(input, &mut output, false)?;
        at = at.saturating_add(len_u64(turn.used));
        decoded = decoded.saturating_add(len_u64(turn.filled));
        if turn.stop == Stop::End {
            return Ok(decoded);
        }
        if turn.used == 0 && turn.filled == 0 {
            let why = format!("the zlib stream does not end; {decoded} bytes were decoded");
            return Err(Error::corrupt(Place::File, why));
        }
    }
}

/// A zlib stream.
struct Deflated {
    stored: Arc<dyn Source>,
    data_size: u64,
    index: Mutex<Index>,
    /// What was wrong with the checksum, when somebody has read from start to end.
    bad_end: OnceLock<Error>,
}

impl Deflated {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decoder that stands at a point, and the stored bytes it wants next.
    fn resume(&self, point: &Point, window: &[u8]) -> Result<Inflate> {
        let mut head = [0];
        if point.bits > 0 {
            self.stored
                .read_exact_at(&mut head, point.stored.saturating_sub(1))?;
        }
        let [head] = head;
        let used_bits = 8_u32.saturating_sub(point.bits.into());
        let head = head.checked_shr(used_bits).unwrap_or(0);
        Inflate::resume(point.bits, head, window)
    }
}

impl Stream for Deflated {
    fn entry(&self, offset: u64) -> u64 {
        self.index().before(offset).map_or(0, |point| point.decoded)
    }

    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>> {
        let found = self
            .index()
            .before(offset)
            .map(|point| (point.place(), Arc::clone(&point.window)));
        let (inflate, position, next, tail) = match found {
            None => (Inflate::zlib()?, 0, 0, Vec::new()),
            Some((point, window)) => {
                let tail = window.expand();
                let inflate = self.resume(&point, &tail)?;
                (inflate, point.decoded, point.stored, tail)
            }
        };
        Ok(Box::new(Inflating {
            stream: self,
            inflate,
            position,
            next,
            input: Vec::new(),
            used: 0,
            tail,
            search_all: false,
        }))
    }

    fn parallel(&self) -> bool {
        true
    }

    fn held(&self) -> u64 {
        self.index().held()
    }

    fn learns(&self) -> bool {
        true
    }

    fn export(&self) -> Option<Vec<u8>> {
        self.index().export()
    }

    fn import(&self, entries: &[u8]) -> Option<Arc<dyn Stream>> {
        let index = Index::import(entries, self.data_size, self.stored.len())?;
        Some(Arc::new(Self {
            stored: Arc::clone(&self.stored),
            data_size: self.data_size,
            index: Mutex::new(index),
            bad_end: OnceLock::new(),
        }))
    }

    fn is_untidy(&self) -> bool {
        self.index().is_untidy()
    }

    /// Makes one window smaller: keeps only what the decoder will look at.
    fn tidy(&self) {
        let untidy = self.index().take_untidy();
        if let Some((point, window)) = untidy {
            let plain = window.expand();
            let mut input = vec![0; WINDOW.saturating_mul(2)];
            let left = self.stored.len().saturating_sub(point.stored);
            let len = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
            input.truncate(len);
            let sparse = self
                .stored
                .read_exact_at(&mut input, point.stored)
                .and_then(|()| {
                    Window::sparse(&plain, |dictionary| {
                        let mut ahead = vec![0; WINDOW];
                        let mut inflate = self.resume(&point, dictionary)?;
                        let turn = inflate.run(&input, &mut ahead, false)?;
                        ahead.truncate(turn.filled);
                        // Input enough, or the stream ends here: nothing further on looks at the window.
                        let whole = turn.filled == WINDOW || turn.stop == Stop::End;
                        Ok(whole.then_some(ahead))
                    })
                });
            if let Ok(Some(sparse)) = sparse {
                self.index().replace(point.decoded, sparse);
            }
        }
    }
}

/// A decoder under way in a zlib stream.
struct Inflating {
    stream: Arc<Deflated>,
    inflate: Inflate,
    position: u64,
    /// Stored bytes from here on are not read yet.
    next: u64,
    input: Vec<u8>,
    /// Bytes of `input` that have been used.
    used: usize,
    /// The last decoded bytes, as many as a window.
    tail: Vec<u8>,
    /// Whether block ends are so rare that they are to be looked for everywhere.
    search_all: bool,
}

/// The end of a block that was seen.
#[derive(Clone, Copy)]
struct Boundary {
    /// Bytes of the reader's buffer before it.
    filled: usize,
    stored: u64,
    bits: u8,
}

impl Inflating {
    /// The input at hand, after reading more if there is none. Empty at the end.
    fn refill(&mut self) -> Result<()> {
        if self.used < self.input.len() {
            return Ok(());
        }
        let left = self.stream.stored.len().saturating_sub(self.next);
        let len = usize::try_from(left).map_or(INPUT_LEN, |left| left.min(INPUT_LEN));
        self.input.resize(len, 0);
        self.used = 0;
        let outcome = self.stream.stored.read_exact_at(&mut self.input, self.next);
        if outcome.is_err() {
            self.input.clear();
        }
        outcome?;
        self.next = self.next.saturating_add(len_u64(len));
        Ok(())
    }

    /// One call of the decoder; gives what it has filled, why it stopped and whether it has moved at all.
    fn turn(&mut self, output: &mut [u8], stop_at_blocks: bool) -> Result<(usize, Stop, bool)> {
        self.refill()?;
        let input = self.input.get(self.used..).unwrap_or_default();
        let turn = self.inflate.run(input, output, stop_at_blocks)?;
        self.used = self.used.saturating_add(turn.used);
        Ok((turn.filled, turn.stop, turn.used > 0 || turn.filled > 0))
    }

    /// Decodes all of `buf`; gives the last block end at or behind `search_from`.
    fn fill(&mut self, buf: &mut [u8], search_from: usize) -> Result<Option<Boundary>> {
        let mut boundary = None;
        let mut filled = 0;
        while filled < buf.len() {
            let searching = filled >= search_from;
            let until = if searching { buf.len() } else { search_from };
            let target = buf.get_mut(filled..until).unwrap_or_default();
            let (more, stop, moved) = self.turn(target, searching)?;
            filled = filled.saturating_add(more);
            match stop {
                Stop::Boundary(bits) => boundary = Some(self.boundary(filled, bits)),
                Stop::End if filled < buf.len() => return Err(self.short(filled)),
                Stop::Full if !moved => return Err(self.short(filled)),
                Stop::Full | Stop::End => {}
            }
        }
        Ok(boundary)
    }

    /// Decodes the last bytes and what follows them. A checksum that was found wrong is so for all who come here later, also
    /// for those who can't check it, as they have not seen all.
    fn read_end(&mut self, buf: &mut [u8]) -> Result<()> {
        let outcome = self.fill(buf, buf.len()).and_then(|_| self.peek(buf.len()));
        match outcome {
            Err(error @ Error::Io { .. }) => Err(error),
            Err(error) => Err(self.stream.bad_end.get_or_init(|| error).clone()),
            Ok(_) => self.stream.bad_end.get().cloned().map_or(Ok(()), Err),
        }
    }

    /// Goes on as far as no byte is decoded, to find a block end just here or the end of the stream.
    fn peek(&mut self, len: usize) -> Result<Option<Boundary>> {
        let mut boundary = None;
        loop {
            match self.turn(&mut [], true)? {
                (_, Stop::Boundary(bits), _) => boundary = Some(self.boundary(len, bits)),
                (_, Stop::Full, true) => {}
                (_, Stop::Full, false) | (_, Stop::End, _) => return Ok(boundary),
            }
        }
    }

    fn boundary(&self, filled: usize, bits: u8) -> Boundary {
        let unused = self.input.len().saturating_sub(self.used);
        Boundary {
            filled,
            stored: self.next.saturating_sub(len_u64(unused)),
            bits,
        }
    }

    /// Notes a block end in the index, with the window before it.
    fn note(&self, boundary: Boundary, buf: &[u8]) {
        let mut window = Vec::with_capacity(WINDOW);
        let from_tail = WINDOW.saturating_sub(boundary.filled);
        let skipped = self.tail.len().saturating_sub(from_tail);
        window.extend(self.tail.get(skipped..).unwrap_or_default());
        let from = boundary.filled.saturating_sub(WINDOW);
        window.extend(buf.get(from..boundary.filled).unwrap_or_default());
        let point = Point {
            decoded: self.position.saturating_add(len_u64(boundary.filled)),
            stored: boundary.stored,
            bits: boundary.bits,
            window: Arc::new(Window::Whole(window)),
        };
        self.stream.index().add(point);
    }

    fn remember_tail(&mut self, buf: &[u8]) {
        let kept = WINDOW.saturating_sub(buf.len());
        let dropped = self.tail.len().saturating_sub(kept);
        self.tail.drain(..dropped);
        let from = buf.len().saturating_sub(WINDOW);
        self.tail.extend(buf.get(from..).unwrap_or_default());
    }

    fn short(&self, filled: usize) -> Error {
        Error::corrupt(
            Place::File,
            format!(
                "the zlib stream ends after {} of {} decoded bytes",
                self.position.saturating_add(len_u64(filled)),
                self.stream.data_size
            ),
        )
    }
}

impl Cursor for Inflating {
    fn position(&self) -> u64 {
        self.position
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        let end = self.position.saturating_add(len_u64(buf.len()));
        let wanted = self.stream.index().wants(end);
        let search_from = match (wanted, self.search_all) {
            (false, _) => buf.len(),
            (true, true) => 0,
            (true, false) => buf.len().saturating_sub(SEARCH_LEN),
        };
        if end >= self.stream.data_size {
            self.read_end(buf)?;
            self.position = end;
            return Ok(());
        }
        let mut boundary = self.fill(buf, search_from)?;
        if wanted {
            // An error here is not met yet: it is the next read's.
            boundary = self.peek(buf.len()).ok().flatten().or(boundary);
            if buf.len() >= SEGMENT {
                self.search_all = boundary.is_none();
            }
            if let Some(boundary) = boundary {
                self.note(boundary, buf);
            }
        }
        self.remember_tail(buf);
        self.position = end;
        Ok(())
    }

    fn held(&self) -> u64 {
        let own = self.input.capacity().saturating_add(self.tail.capacity());
        len_u64(own).saturating_add(STATE_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::inflate::ordinary_stream;
    use super::super::testing::{
        assert_harmless, assert_reads_like, encoded, image, open, python_agrees, python_encodes,
        read_all,
    };
    use super::*;
    use crate::source::Memory;
    use proptest::prelude::*;

    fn stream(stored: Vec<u8>, data_size: usize) -> Arc<dyn Stream> {
        let stored = Arc::new(Memory::new(stored));
        Zlib.open(stored, data_size as u64).unwrap().stream
    }

    /// Reads all in segments, as [`Decoded`](super::super::Decoded) does.
    fn pass(stream: &Arc<dyn Stream>, data_size: usize) -> Result<Vec<u8>> {
        let mut cursor = Arc::clone(stream).cursor(0)?;
        let mut out = vec![0; data_size];
        for segment in out.chunks_mut(SEGMENT) {
            cursor.read(segment)?;
        }
        Ok(out)
    }

    #[test]
    fn what_is_written_is_read_again_here_and_by_python() {
        let mut cases = Vec::new();
        for len in [0, 1, SEGMENT, SEGMENT + 1, 3_000_000] {
            let plain = image(len);
            let stored = encoded(&Zlib, &plain);
            assert_reads_like(&open(&Zlib, &stored, len as u64).unwrap(), &plain);
            cases.push((stored, plain));
        }
        assert!(python_agrees("zlib", &cases));
    }

    #[test]
    fn what_python_writes_is_read() {
        let plain = image(2_222_222);
        if let Some(stored) = python_encodes("zlib", &plain) {
            assert_reads_like(&open(&Zlib, &stored, plain.len() as u64).unwrap(), &plain);
        }
    }

    #[test]
    fn after_one_pass_every_segment_is_entered_just_before_it() {
        let plain = image(6 << 20);
        let stored = ordinary_stream(&plain, 6);
        for tidy in [false, true] {
            let stream = stream(stored.clone(), plain.len());
            assert_eq!(stream.entry(5 << 20), 0);
            assert!(pass(&stream, plain.len()).unwrap() == plain);
            let before = stream.held();
            while tidy && stream.is_untidy() {
                stream.tidy();
            }
            assert!(stream.held() < before || !tidy);
            for index in 1..6 {
                let start = index * SEGMENT;
                let mut cursor = Arc::clone(&stream).cursor(start as u64).unwrap();
                let entry = cursor.position() as usize;
                assert!(entry <= start && start - entry < SEARCH_LEN);
                let mut buf = vec![0; SEGMENT + start - entry];
                cursor.read(&mut buf).unwrap();
                assert!(buf == plain[entry..entry + buf.len()]);
            }
        }
    }

    #[test]
    fn our_own_streams_need_no_window() {
        let plain = image(4 << 20);
        let stream = stream(encoded(&Zlib, &plain), plain.len());
        pass(&stream, plain.len()).unwrap();
        while stream.is_untidy() {
            stream.tidy();
        }
        assert_eq!(stream.entry((3 << 20) + 5), 3 << 20);
        assert!(stream.held() < 3 * 500, "{} bytes held", stream.held());
    }

    #[test]
    fn a_stream_of_one_block_is_read_from_its_start() {
        let plain = vec![7; 5 << 20];
        let stored = ordinary_stream(&plain, 9);
        let stream = stream(stored.clone(), plain.len());
        pass(&stream, plain.len()).unwrap();
        assert_eq!(stream.entry(1 << 20), 0);
        assert_reads_like(&open(&Zlib, &stored, plain.len() as u64).unwrap(), &plain);
    }

    #[test]
    fn a_wrong_checksum_is_an_error_at_the_end_and_a_missing_one_is_none() {
        let plain = image(2_500_000);
        let mut stored = ordinary_stream(&plain, 6);
        let without = &stored[..stored.len() - 4];
        assert!(read_all(&open(&Zlib, without, plain.len() as u64).unwrap()).unwrap() == plain);
        *stored.last_mut().unwrap() ^= 1;
        let decoded = open(&Zlib, &stored, plain.len() as u64).unwrap();
        let mut buf = vec![0; 2 << 20];
        decoded.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf == plain[..buf.len()]);
        let error = read_all(&decoded).unwrap_err().to_string();
        assert_eq!(error, "file: zlib: incorrect data check");
    }

    #[test]
    fn sizes_that_disagree_cost_only_what_is_not_there() {
        let plain = image(1_500_000);
        let stored = ordinary_stream(&plain, 6);
        let decoded = open(&Zlib, &stored, 1_400_000).unwrap();
        assert!(read_all(&decoded).unwrap() == plain[..1_400_000]);
        let decoded = open(&Zlib, &stored, 1_600_000).unwrap();
        let mut buf = vec![0; 1 << 20];
        decoded.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf == plain[..buf.len()]);
        let error = read_all(&decoded).unwrap_err().to_string();
        assert_eq!(
            error,
            "file: the zlib stream ends after 1500000 of 1600000 decoded bytes"
        );
    }

    #[test]
    fn what_is_not_zlib_is_refused_at_once() {
        assert!(open(&Zlib, b"BZh9", 10).is_err());
        assert!(open(&Zlib, b"x", 10).is_err());
        let error = open(&Zlib, &[0x78, 0xBB, 0, 0, 0, 0], 10);
        let error = read_all(&error.unwrap()).unwrap_err().to_string();
        assert_eq!(error, "file: a zlib stream that needs a preset dictionary");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_bytes_are_harmless(
            len in 1usize..50_000,
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(),
            size in 0u64..100_000,
        ) {
            let mut stored = ordinary_stream(&image(len), 6);
            for (place, value) in changes {
                let at = place.index(stored.len());
                stored[at] = value;
            }
            stored.truncate(cut.index(stored.len()) + 1);
            assert_harmless(&Zlib, &stored, size);
        }
    }
}
