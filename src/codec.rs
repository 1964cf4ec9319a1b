//! Block compression: from a block's four-byte code and its stored bytes to its decoded bytes.
//!
//! A code is a label, not a format: several have more than one framing in the wild, told apart by a look at the payload. A framing has one of
//! two shapes. A row of chunks is a `Chunked`: it says where a chunk is and what a chunk decodes to, and keeps no position. Anything else is
//! a [`Stream`], which can be entered at certain offsets, with a [`Cursor`] that runs forward from there; `Chunks` makes these two of a
//! `Chunked`. Everything else (segments, the memory budget, one decode for many readers) is the work of [`Decoded`], the same for all codecs:
//!
//! | module | answers |
//! |---|---|
//! | `decoded` | From where does a read get a segment: the cache, a thread that decodes it, or a decoder of its own? |
//! | `decoded::decode` | How does a thread take a decoder through the segments, and what do others see of it? |
//! | `ahead`, `decoded::ahead` | What is decoded before a reader asks for it, and by which threads? |
//! | `cache` | Which segments and which decoders at rest are kept, and what do they count? |
//! | `limit` | When may a thread decode, and with how much memory? |
//! | `pool` | Which thread runs a job that its caller does not wait for? |
//!
//! # Locks and threads
//!
//! These threads decode:
//!
//! - The readers: threads that read a [`Decoded`]. In a mount they are those that answer the kernel's requests, and those that
//!   save.
//! - Up to two threads `asdf-ahead` for each [`Cache`]: those of its `Pool`. Dropping the cache joins them. They decode ahead of
//!   sequential readers, make the checkpoints of streams smaller, and read trees of the mount of many files ahead.
//! - Threads that one call starts and joins before it returns: for the blocks of a bzip2 batch, and for the pieces of zlib that a save
//!   encodes or compares. Of the locks below they take only that of the buffer pool.
//!
//! A thread takes locks in this order, and may leave some out:
//!
//! | lock | guards | while it is held |
//! |---|---|---|
//! | `Decoded::state` (in `decoded`) | running decodes, known damage, readers and queued jobs of a block | those of its stream and the cache; asks streams for entries, never decodes a segment |
//! | those of a stream | entries and what its decoders share | may read stored bytes |
//! | `Cache::kept` | segments, decoders at rest, what streams hold | none |
//! | `Limit::queue` | what is taken of the limit, and who waits | none |
//! | `Pool::state` | queued jobs, the threads that run them | may start a thread |
//! | `POOL` (in `source::pooled_buf`) | idle buffers | none |
//!
//! What counts in the cache is one atomic number. A stream has one lock, but for Blosc, which takes `Chunks::walk` before `Cframe::piece`.
//! A stream finds entries under its lock. That takes reads of stored headers, for LZ4 frames the decoding of one LZ4 block for each frame,
//! and for the offsets of a Blosc2 frame the decoding of one Blosc block.
//!
//! A thread waits for another in these places:
//!
//! - On `Decoded::moved`, for a running decode of the same block, with nothing. The thread that decodes never waits for the one that
//!   waits: its `Decoder` signals at each segment, and when it is dropped.
//! - On `Limit::moved`, for memory to decode with, with nothing: a test tries every order of such waits. It wakes at least four times a
//!   second to see whether the mount has ended.
//! - For a server, in the source of an object that lies far away, perhaps with a permit of the limit. It may also have the lock of a stream,
//!   and `Decoded::state` if it asks the stream for an entry: all readers of that block wait with it.
//! - For the lock of a stream, perhaps with a permit: the thread that has that lock waits for a server, or for room for an array as
//!   below, and never for the limit.
//! - On `Pool::called`, a thread without a job, with nothing.
//! - In `asdf::buffers`, for room for an array. A thread that decodes waits there too, if the array is part of an encoding
//!   chain, but only for threads that wait for no permit (`Buffers::beneath_decoders`).
//! - When it drops the last reference to a cache: for the jobs that run. It must hold none of these locks.
//!
//! So a decoder that reads the output of another must not read it from a [`Decoded`], where its thread would wait with a
//! permit. It reads it by [`decode_beneath`], which waits for no other thread.
//!
//! A function that needs one of these locks held takes what it guards as a parameter, such as `&DecodedState`: a thread has
//! such a reference only while it holds the lock.
//!
//! # A new codec
//!
//! Payloads of chunks take a [`Codec`] and a `Chunked`, which reads `Headers` and gives each `FoundChunk`. One long stream takes a [`Codec`], a
//! [`Stream`] and a [`Cursor`], with `Input` for the stored bytes and `Entries` for the offsets that it can be entered at. Nothing else here
//! knows of the codec. It has six places:
//!
//! 1. its module here, with tests on payloads that another program has written;
//! 2. this file: `mod`, a line in `CODECS`, and one in `NUMCODECS`, if numcodecs knows it;
//! 3. `Cargo.toml`, unless it is one of the standard: a feature with the crate that it needs, among the default ones;
//! 4. `tests/integration`: `architecture.rs`, which confines its crate to its module; `edit.rs`, if it encodes; `interop.rs`, if Python
//!    reads it;
//! 5. `tests/fuzz`: a target, its code in `src/seed.rs`, and the checksums of its payloads, if they have any, in `src/sums.rs`;
//! 6. the manual, the README and `CHANGELOG.md`, which list the codes.

mod ahead;
#[cfg(feature = "blosc")]
mod blosc;
mod bzp2;
mod cache;
pub mod caller;
mod chunks;
pub(crate) mod cores;
mod decoded;
mod deflate;
mod entries;
mod headers;
mod inflate;
mod input;
mod limit;
mod lz4;
#[cfg(feature = "lz4f")]
mod lz4f;
pub(crate) mod pool;
mod splice;
#[cfg(test)]
mod testing;
#[cfg(feature = "xz")]
mod xz;
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use self::cores::caught;
use self::decoded::Beneath;
use self::limit::check;
use crate::error::{Error, Result, corrupt, unsupported};
use crate::source::{PooledBuf, Source, at_most, len_u64};

#[cfg(feature = "remote")]
pub(crate) use ahead::{Reader, Readers};
pub use cache::{Cache, CountedBuf, SEGMENT};
pub use decoded::Decoded;
#[cfg(feature = "cli")]
pub(crate) use deflate::crc32;
pub(crate) use deflate::fnv1a;
#[doc(hidden)]
pub use splice::Edited;
#[doc(hidden)]
pub use zlib::decoded_len as zlib_len;

/// Size of the buffer used to skip from an entry to the wanted bytes.
const SKIP: usize = 64 << 10;

/// The decoded bytes of one block, seen by how they can be reached.
pub trait Stream: Send + Sync {
    /// The greatest decoded offset `<= offset` at which a [`Cursor`] can be placed without decoding what lies before.
    ///
    /// 0 is always an entry. May grow as checkpoints are collected.
    fn entry(&self, offset: u64) -> u64;

    /// A decoder at the entry at or before `offset`: its position is `self.entry(offset)`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unsupported`] if the payload cannot be decoded from there.
    fn cursor(self: Arc<Self>, offset: u64) -> Result<Box<dyn Cursor>>;

    /// Whether cursors at different entries may usefully run at the same time, on several cores.
    fn parallel(&self) -> bool {
        true
    }

    /// Bytes of memory that the stream holds beside its cursors: checkpoints, chunk tables.
    fn held(&self) -> u64 {
        0
    }

    /// Does a small piece of the work that was put off because a reader was waiting, such as making one checkpoint smaller; `false` if
    /// there is none.
    fn tidy(&self) -> bool {
        false
    }

    /// Whether a decoder got to the last of the decoded bytes, and not to the end that must follow, where a checksum may stand.
    fn lacks_end(&self) -> bool {
        false
    }

    /// Drops about half of the entries behind the first, and keeps entries further apart from now on.
    fn thin_out(&self) {}

    /// The same payload taken for `data_size` decoded bytes, with the entries found so far; `None` if these are found without decoding.
    fn resized(&self, data_size: u64) -> Option<Arc<dyn Stream>> {
        let _ = data_size;
        None
    }
}

/// A running decoder: a position in the decoded bytes that moves forward only.
pub trait Cursor: Send {
    /// Decoded offset of the next byte.
    fn position(&self) -> u64;

    /// Decodes bytes into the start of `buf`, and gives their number. It takes no more memory than was [needed](Cursor::needed)
    /// before the call, but for at most 256 KiB, which `held` counts from the next call on.
    ///
    /// It gives at least one byte. If that takes more memory, it gives none, and `needed` then says how much.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the stream is damaged or ends early; the cursor is then of no more use.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize>;

    /// Bytes of memory that this decoder holds while it is alive.
    fn held(&self) -> u64;

    /// Bytes of memory that the next [`Cursor::read`] needs in all: no less than it holds.
    fn needed(&self) -> u64 {
        self.held()
    }

    /// The decoded offset up to which the bytes are decoded already, and only need to be copied.
    fn decoded_to(&self) -> u64 {
        self.position()
    }

    /// The decoded offset up to which the bytes will be decoded once the next segment is read: further than the segment, if several
    /// pieces are decoded at once.
    ///
    /// While that goes on, a thread that wants bytes before that offset waits for this cursor instead of starting another one.
    fn will_decode_to(&self) -> u64 {
        self.decoded_to()
    }
}

impl dyn Cursor + '_ {
    /// Decodes up to the decoded offset `start`, and then on until all of `buf` is filled; `false` if `take` stops it on the way. That is
    /// called before each read with the memory that the read needs, and tells whether it may have so much.
    ///
    /// # Errors
    /// As of [`Cursor::read`]; those of `take`.
    fn fill_from(
        &mut self,
        start: u64,
        buf: &mut [u8],
        mut take: impl FnMut(u64) -> Result<bool>,
    ) -> Result<bool> {
        let mut filled = 0;
        while filled < buf.len() {
            let needed = self.needed();
            if !take(needed)? {
                return Ok(false);
            }
            let before = self.position();
            if before < start {
                // a decoder only moves on; what lies between is decoded and dropped
                let left = at_most(start.saturating_sub(before), SKIP);
                self.read(&mut PooledBuf::of(left))?;
            } else if before == start.saturating_add(len_u64(filled)) {
                let rest = buf.get_mut(filled..).unwrap_or_default();
                filled = filled.saturating_add(self.read(rest)?);
            } else {
                return Err(misplaced(start));
            }
            // A decoder that neither moves nor asks for more memory would be called for ever.
            if self.position() == before && self.needed() <= needed {
                return Err(misplaced(before));
            }
        }
        Ok(true)
    }
}

/// A block compression code that is known.
pub trait Codec: Send + Sync {
    /// The four bytes of the block header, NUL padded.
    fn code(&self) -> [u8; 4];

    /// Looks at the payload and gives the framing's name (for `info/blocks.tsv`) and its decoded bytes.
    ///
    /// Reads at most headers: never the whole payload.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no framing of this code fits.
    fn open(&self, stored: Arc<dyn Source>, data_size: u64) -> Result<Framed>;

    /// The most decoded bytes that one stored byte can stand for. A block header that says more is refused.
    fn max_ratio(&self) -> u64 {
        u64::MAX
    }

    /// Whether [`Codec::encode`] writes this framing; some are only read.
    fn writes(&self, framing: Option<&str>) -> bool {
        let _ = framing;
        true
    }

    /// The framings that can be asked for by name, beside the default: the name, as in `blsc:chunk`, and what [`Codec::open`] calls the
    /// framing.
    fn named_framings(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Writes the encoded form of `decoded` to `out`, in memory that does not grow with its length.
    ///
    /// `framing` is the framing to keep where the code has several (a name that [`Codec::open`] gave), else the common one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this program does not write the code or framing; else of reading `decoded`, or of `out`.
    fn encode(
        &self,
        framing: Option<&str>,
        decoded: &dyn Source,
        out: &mut dyn Write,
    ) -> Result<()>;

    /// Writes the encoded form of an edited block to `out`, and encodes no more of it than the framing makes necessary.
    ///
    /// What is not encoded again is there as it was stored, byte for byte.
    ///
    /// # Errors
    /// As of [`Codec::encode`]; of reading what was stored.
    fn reencode(&self, edited: &Edited, out: &mut dyn Write) -> Result<()> {
        self.encode(Some(edited.framing), edited.decoded, out)
    }
}

/// A compression as a user names it: a code, and perhaps one of its framings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The code of the block header; zeros for none.
    pub code: [u8; 4],
    /// The framing; `None` for the one that is written by default.
    pub framing: Option<&'static str>,
}

impl Choice {
    /// The choice that writes a block with this code and framing.
    #[must_use]
    pub fn of(code: [u8; 4], framing: Option<&str>) -> Self {
        let mut named = named_framings(code).iter();
        let framing = named.find(|named| Some(named.1) == framing);
        let framing = framing.map(|(_, framing)| *framing);
        Self { code, framing }
    }

    /// The choice of this name: `none`, a code, or a code and a framing as in `blsc:chunk`. `None` if it is not known.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        if name == b"none" {
            return Some(Self::of([0; 4], None));
        }
        let colon = name.iter().position(|&byte| byte == b':');
        let (text, framing) = match colon.and_then(|at| name.split_at_checked(at)) {
            Some((text, framing)) => (text, framing.get(1..)),
            None => (name, None),
        };
        let mut code = [0; 4];
        code.get_mut(..text.len())
            .filter(|_| !text.is_empty())?
            .copy_from_slice(text);
        let known = codec(code).ok()?.named_framings();
        let Some(wanted) = framing else {
            return Some(Self::of(code, None));
        };
        let mut known = known.iter();
        let (_, found) = known.find(|(name, _)| name.as_bytes() == wanted)?;
        Some(Self::of(code, Some(found)))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&code_text(self.code))?;
        let mut named = named_framings(self.code).iter();
        match named.find(|named| Some(named.1) == self.framing) {
            Some((name, _)) => write!(f, ":{name}"),
            None => Ok(()),
        }
    }
}

/// The framings of a code that can be asked for by name; none if the code is not known.
fn named_framings(code: [u8; 4]) -> &'static [(&'static str, &'static str)] {
    codec(code).map_or(&[], |codec| codec.named_framings())
}

/// A payload whose framing has been recognised.
pub struct Framed {
    /// Name of the framing, such as `python chunks` or `frame`.
    pub framing: &'static str,
    /// The decoded bytes.
    pub stream: Arc<dyn Stream>,
}

/// The codecs built in. For a new one, see [A new codec](self#a-new-codec).
static CODECS: &[&dyn Codec] = &[
    &zlib::Zlib,
    &bzp2::Bzp2,
    &lz4::Lz4,
    #[cfg(feature = "lz4f")]
    &lz4f::Lz4f,
    #[cfg(feature = "zstd")]
    &zstd::Zstd,
    #[cfg(feature = "xz")]
    &xz::Xz,
    #[cfg(feature = "blosc")]
    &blosc::Blosc(*b"blsc"),
    #[cfg(feature = "blosc")]
    &blosc::Blosc(*b"bls2"),
    #[cfg(feature = "blosc")]
    &blosc::Blosc(*b"bsc2"),
];

/// What numcodecs calls the compressions that it shares with ASDF, and their codes.
pub(crate) const NUMCODECS: [(&str, [u8; 4]); 6] = [
    ("zlib", *b"zlib"),
    ("bz2", *b"bzp2"),
    ("lz4", *b"lz4\0"),
    ("zstd", *b"zstd"),
    ("blosc", *b"blsc"),
    ("lzma", *b"xz\0\0"),
];

/// The codes that can be chosen for a block, as people read them.
pub fn codes() -> impl Iterator<Item = String> {
    CODECS.iter().map(|codec| code_text(codec.code()))
}

/// The codec of a block header's compression code.
///
/// # Errors
/// [`Error::Unsupported`] naming the code.
pub fn codec(code: [u8; 4]) -> Result<&'static dyn Codec> {
    CODECS
        .iter()
        .copied()
        .find(|codec| codec.code() == code)
        .ok_or_else(|| unsupported(format!("unknown compression {}", code_text(code))))
}

/// The decoded bytes of a compressed block, and the name of the framing they are stored in.
///
/// # Errors
/// [`Error::Unsupported`] if the code is not known, [`Error::Corrupt`] if no framing of it fits, or if `data_size` is more
/// than so many stored bytes can stand for.
pub fn decode(
    code: [u8; 4],
    stored: Arc<dyn Source>,
    data_size: u64,
    cache: &Arc<Cache>,
) -> Result<(&'static str, Arc<Decoded>)> {
    let opened = open(code, stored, data_size)?;
    let decoded = Decoded::new(opened.stream, data_size, cache);
    Ok((opened.framing, decoded))
}

/// Whether the stored bytes decode to more bytes than `decoded` has: tries to decode one more. The decoder starts at the last entry that
/// is known, so that it decodes little again.
///
/// # Errors
/// [`Error::Io`] of reading `stored`; [`Error::Unsupported`] if to decode one more takes too much memory, or is not supported.
pub fn goes_on(
    code: [u8; 4],
    stored: Arc<dyn Source>,
    decoded: &Decoded,
    cache: &Arc<Cache>,
) -> Result<bool> {
    let len = decoded.len();
    // not one: a decoder that has given all compares a checksum, and if that is wrong gives nothing
    let longer = len.saturating_add(2);
    let mut position = 0;
    let look = || {
        let stream = match decoded.stream.resized(longer) {
            Some(stream) => stream,
            None => open(code, stored, longer)?.stream,
        };
        // Its bytes must not take room in the cache: nobody reads them again.
        let mut cursor = caught(|| stream.cursor(len))?;
        let _memory = cache.count(cursor.held());
        let filled = cursor.fill_from(len, &mut [0], |needed| {
            cache.check_wanted()?;
            check(needed, cache.budget()).map(|()| true)
        });
        position = cursor.position();
        filled
    };
    match look() {
        Ok(_) => Ok(true),
        Err(error @ (Error::Io { .. } | Error::Unsupported { .. })) => Err(error),
        // it may have given the byte, and found damage behind it
        Err(_) => Ok(position > len),
    }
}

/// The decoded bytes of a payload that another decoder reads. Reading them waits for no other thread.
///
/// # Errors
/// As [`decode`].
pub fn decode_beneath(
    code: [u8; 4],
    stored: Arc<dyn Source>,
    data_size: u64,
    cache: &Arc<Cache>,
) -> Result<Arc<dyn Source>> {
    let (_, decoded) = decode(code, stored, data_size, cache)?;
    Ok(Arc::new(Beneath(decoded)))
}

/// Opens a payload of that code, unless it is too short for so many decoded bytes.
fn open(code: [u8; 4], stored: Arc<dyn Source>, data_size: u64) -> Result<Framed> {
    // Before the codec looks at the payload: a size that cannot be true costs no read and no memory.
    let codec = codec(code)?;
    let stored_len = stored.len();
    if data_size > stored_len.saturating_mul(codec.max_ratio()) {
        return Err(corrupt(format!(
            "{data_size} decoded bytes can't come from {stored_len} bytes of {}",
            code_text(code)
        )));
    }
    codec.open(stored, data_size)
}

fn misplaced(offset: u64) -> Error {
    let why = format!("the decoder does not get to decoded byte {offset}");
    corrupt(why)
}

/// A compression code as people read it: trailing NULs cut, other bytes escaped; `none` for no compression.
#[must_use]
pub fn code_text(code: [u8; 4]) -> String {
    if code == [0; 4] {
        return "none".to_owned();
    }
    let len = code
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last.saturating_add(1));
    code.iter()
        .take(len)
        .map(|&byte| byte.escape_ascii().to_string())
        .collect()
}

#[cfg(test)]
mod tests;
