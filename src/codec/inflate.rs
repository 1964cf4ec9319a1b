//! The DEFLATE engine: what of libz-rs-sys is needed, behind safe functions.
//!
//! The crate's own safe interface can neither stop where a DEFLATE block ends nor begin in the middle of a stream, and both
//! are what random access is made of. The C interface can: `Z_BLOCK`, `inflatePrime` and `inflateSetDictionary`.
#![allow(
    unsafe_code,
    reason = "the C interface of zlib is called with pointers; each call says why they are valid"
)]

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

use libz_rs_sys as z;

use crate::error::{Error, Place, Result};

/// What may be given to zlib at once: its lengths are 32-bit.
const AT_ONCE: usize = 1 << 30;

/// Base 2 logarithm of the window, with a zlib header expected.
const ZLIB_WINDOW: c_int = 15;

/// The same, without header: zlib's way to say so is the sign.
const RAW_WINDOW: c_int = -ZLIB_WINDOW;

/// How much memory the compressor takes: zlib's default.
const MEM_LEVEL: c_int = 8;

/// Bits of `data_type` after a call that was to stop at blocks.
const UNUSED_BITS: c_int = 7;
const LAST_BLOCK: c_int = 64;
const AT_BOUNDARY: c_int = 128;

/// The initial value of an Adler-32 checksum.
pub(super) const ADLER_START: u32 = 1;

/// A running decoder.
pub(super) struct Inflate(Box<z::z_stream>);

// SAFETY: the stream owns what it points to (its state, allocated by itself), and nothing in it is tied to a thread.
// `next_in` and `next_out` dangle between calls, but are set anew before each use.
unsafe impl Send for Inflate {}

/// What one call of the decoder has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Input bytes used.
    pub(super) used: usize,
    /// Output bytes filled.
    pub(super) filled: usize,
    /// Why it stopped.
    pub(super) stop: Stop,
}

/// Why the decoder stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The input is used up or the output is full.
    Full,
    /// A block has ended, and another follows; so many bits of the last input byte used belong to that.
    Boundary(u8),
    /// The stream has ended, and its checksum is right if it has one.
    End,
}

impl Inflate {
    /// A decoder for a stream with zlib header.
    pub(super) fn zlib() -> Result<Self> {
        Self::new(ZLIB_WINDOW)
    }

    /// A decoder that begins at the boundary of a block, in a stream that it does not see the header of.
    ///
    /// The lowest `bits` (0 to 7) bits of `head` come before the input; `window` is what was decoded before, its end at least.
    pub(super) fn resume(bits: u8, head: u8, window: &[u8]) -> Result<Self> {
        let mut inflate = Self::new(RAW_WINDOW)?;
        // SAFETY: `new` has initialised the stream, and it is exclusively borrowed.
        let code = unsafe { z::inflatePrime(&raw mut *inflate.0, bits.into(), head.into()) };
        inflate.check(code)?;
        if window.is_empty() {
            return Ok(inflate);
        }
        let len = z::uInt::try_from(window.len())
            .map_err(|_| Error::corrupt(Place::File, "a window beyond 4 GiB"))?;
        // SAFETY: the stream is initialised, and `window` is readable for `len` bytes, which are copied.
        let code = unsafe { z::inflateSetDictionary(&raw mut *inflate.0, window.as_ptr(), len) };
        inflate.check(code)?;
        Ok(inflate)
    }

    fn new(window_bits: c_int) -> Result<Self> {
        let mut stream = Box::new(z::z_stream::default());
        // SAFETY: the stream is a valid one with the default allocator; version and size are those it was compiled with.
        let code = unsafe {
            z::inflateInit2_(
                &raw mut *stream,
                window_bits,
                z::zlibVersion(),
                stream_size(),
            )
        };
        if code == z::Z_OK {
            Ok(Self(stream))
        } else {
            Err(no_memory())
        }
    }

    /// Decodes from `input` to `output` until one of them ends, the stream ends or, if asked to, a block ends.
    pub(super) fn run(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        stop_at_blocks: bool,
    ) -> Result<Turn> {
        let input = input.get(..AT_ONCE).unwrap_or(input);
        let output_len = output.len().min(AT_ONCE);
        let stream = &mut *self.0;
        stream.next_in = input.as_ptr();
        stream.avail_in = short(input.len());
        stream.next_out = output.as_mut_ptr();
        stream.avail_out = short(output_len);
        let flush = if stop_at_blocks {
            z::Z_BLOCK
        } else {
            z::Z_NO_FLUSH
        };
        // SAFETY: the stream is initialised; `next_in` and `next_out` are valid for the lengths beside them, not null, and
        // borrowed for longer than this call. zlib writes to `output` only and does not read what it has not written.
        let code = unsafe { z::inflate(&raw mut *stream, flush) };
        let used = input.len().saturating_sub(long(stream.avail_in));
        let filled = output_len.saturating_sub(long(stream.avail_out));
        let flags = stream.data_type;
        let stop = match code {
            z::Z_STREAM_END => Stop::End,
            z::Z_BUF_ERROR => Stop::Full,
            z::Z_OK if flags & AT_BOUNDARY != 0 && flags & LAST_BLOCK == 0 => {
                Stop::Boundary(u8::try_from(flags & UNUSED_BITS).unwrap_or(0))
            }
            other => {
                self.check(other)?;
                Stop::Full
            }
        };
        Ok(Turn { used, filled, stop })
    }

    fn check(&self, code: c_int) -> Result<()> {
        match code {
            z::Z_OK => Ok(()),
            z::Z_NEED_DICT => Err(Error::unsupported(
                Place::File,
                "a zlib stream that needs a preset dictionary",
            )),
            z::Z_MEM_ERROR => Err(no_memory()),
            _ if self.0.msg.is_null() => {
                Err(Error::corrupt(Place::File, format!("zlib: error {code}")))
            }
            _ => {
                // SAFETY: zlib's messages are constant strings with a NUL at the end.
                let text = unsafe { CStr::from_ptr(self.0.msg) };
                let text = text.to_string_lossy();
                Err(Error::corrupt(Place::File, format!("zlib: {text}")))
            }
        }
    }
}

impl Drop for Inflate {
    fn drop(&mut self) {
        // SAFETY: the stream is initialised, and not used after this.
        unsafe { z::inflateEnd(&raw mut *self.0) };
    }
}

/// A piece of a DEFLATE stream that refers to nothing before it.
///
/// It ends with the whole stream if it is the `last` one, else on a byte boundary where the next can be appended.
pub(super) fn deflate(plain: &[u8], level: i32, last: bool) -> Result<Vec<u8>> {
    let mut stream = Box::new(z::z_stream::default());
    let len = short(plain.len());
    if long(len) != plain.len() {
        return Err(Error::corrupt(Place::File, "a piece beyond 4 GiB"));
    }
    // SAFETY: the stream is a valid one with the default allocator; version and size are those it was compiled with.
    let code = unsafe {
        z::deflateInit2_(
            &raw mut *stream,
            level,
            z::Z_DEFLATED,
            RAW_WINDOW,
            MEM_LEVEL,
            z::Z_DEFAULT_STRATEGY,
            z::zlibVersion(),
            stream_size(),
        )
    };
    if code != z::Z_OK {
        return Err(no_memory());
    }
    let stream = Deflate(stream);
    run_deflate(stream, plain, len, last)
}

/// A running compressor.
struct Deflate(Box<z::z_stream>);

impl Drop for Deflate {
    fn drop(&mut self) {
        // SAFETY: the stream is initialised, and not used after this.
        unsafe { z::deflateEnd(&raw mut *self.0) };
    }
}

fn run_deflate(mut deflate: Deflate, plain: &[u8], len: z::uInt, last: bool) -> Result<Vec<u8>> {
    let stream = &mut *deflate.0;
    // SAFETY: the stream is initialised.
    let bound = unsafe { z::deflateBound(&raw mut *stream, len.into()) };
    let mut out = Vec::with_capacity(usize::try_from(bound).unwrap_or(plain.len()));
    stream.next_in = plain.as_ptr();
    stream.avail_in = len;
    let flush = if last { z::Z_FINISH } else { z::Z_FULL_FLUSH };
    loop {
        // An end mark of a flush may come on top of the bound.
        out.reserve(64);
        let room: &mut [MaybeUninit<u8>] = out.spare_capacity_mut();
        stream.next_out = room.as_mut_ptr().cast();
        stream.avail_out = short(room.len());
        let before = long(stream.avail_out);
        // SAFETY: `next_in` is valid for `avail_in` bytes of `plain`, `next_out` for `avail_out` bytes of `out`'s room.
        let code = unsafe { z::deflate(&raw mut *stream, flush) };
        let written = before.saturating_sub(long(stream.avail_out));
        let filled = out.len().saturating_add(written);
        // SAFETY: zlib has written that many bytes behind those that were there, within the capacity.
        unsafe { out.set_len(filled) };
        match code {
            z::Z_STREAM_END => return Ok(out),
            z::Z_OK | z::Z_BUF_ERROR if stream.avail_out > 0 && !last => return Ok(out),
            z::Z_OK | z::Z_BUF_ERROR if stream.avail_out == 0 => {}
            _ => return Err(Error::corrupt(Place::File, format!("zlib: error {code}"))),
        }
    }
}

/// The Adler-32 checksum of what `before` is the checksum of, followed by `bytes`.
pub(super) fn adler32(before: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the pointer is valid for the length given with it.
    let sum = unsafe { z::adler32_z(before.into(), bytes.as_ptr(), bytes.len()) };
    u32::try_from(sum).unwrap_or(0)
}

/// The CRC-32 checksum of what `before` is the checksum of, followed by `bytes`; of nothing it is 0.
pub(super) fn crc32(before: u32, bytes: &[u8]) -> u32 {
    // SAFETY: the pointer is valid for the length given with it.
    let sum = unsafe { z::crc32_z(before.into(), bytes.as_ptr(), bytes.len()) };
    u32::try_from(sum).unwrap_or(0)
}

/// The checksum of two pieces together, of which the second has `len` bytes.
pub(super) fn adler32_combine(first: u32, second: u32, len: usize) -> u32 {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    u32::try_from(z::adler32_combine(first.into(), second.into(), len)).unwrap_or(0)
}

fn stream_size() -> c_int {
    c_int::try_from(size_of::<z::z_stream>()).unwrap_or(0)
}

fn short(len: usize) -> z::uInt {
    z::uInt::try_from(len).unwrap_or(z::uInt::MAX)
}

fn long(len: z::uInt) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn no_memory() -> Error {
    Error::io(
        "setting up zlib",
        std::io::Error::from(std::io::ErrorKind::OutOfMemory),
    )
}

/// A zlib stream as everybody else writes it, for tests.
#[cfg(test)]
pub(super) fn ordinary_stream(plain: &[u8], level: i32) -> Vec<u8> {
    let mut len = z::compressBound(plain.len() as z::uLong);
    let mut out = vec![0; len as usize];
    // SAFETY: both pointers are valid for the lengths given with them.
    let code = unsafe {
        z::compress2(
            out.as_mut_ptr(),
            &raw mut len,
            plain.as_ptr(),
            plain.len() as z::uLong,
            level,
        )
    };
    assert_eq!(code, z::Z_OK);
    out.truncate(len as usize);
    out
}
