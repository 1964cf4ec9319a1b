//! The DEFLATE decoder: what random access needs of libz-rs-sys, behind safe functions.
//!
//! The safe interface of zlib-rs does not tell where a DEFLATE block ends and can't begin within a byte, and random access needs
//! both. The C interface offers them: `data_type` after a call with `Z_BLOCK`, and `inflatePrime`.
#![allow(
    unsafe_code,
    reason = "the C interface of zlib is called with pointers; each call says why they are valid"
)]

use std::ffi::{CStr, c_int};

use libz_rs_sys as z;

use super::input::{Step, Stop};
use crate::error::{Error, Result, corrupt, unsupported};

/// What may be given to zlib at once: its lengths are 32-bit.
const AT_ONCE: usize = 1 << 30;

/// Base 2 logarithm of the window; the stream has a zlib header.
const ZLIB_WINDOW: c_int = 15;

/// The same without header: zlib marks that by the sign.
const RAW_WINDOW: c_int = -ZLIB_WINDOW;

/// Bits of `data_type` after a call that was to stop at blocks.
const UNUSED_BITS: c_int = 7;
const LAST_BLOCK: c_int = 64;
const AT_BOUNDARY: c_int = 128;

/// A running decoder.
pub(super) struct Inflate(Box<z::z_stream>);

// SAFETY: the stream owns what it points to (its state, allocated by itself), and nothing in it is tied to a thread.
// `next_in` and `next_out` dangle between calls, but are set before each use.
unsafe impl Send for Inflate {}

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
        let len = z::uInt::try_from(window.len()).map_err(|_| corrupt("a window beyond 4 GiB"))?;
        // SAFETY: the stream is initialised, and `window` is readable for `len` bytes, which are copied.
        let code = unsafe { z::inflateSetDictionary(&raw mut *inflate.0, window.as_ptr(), len) };
        inflate.check(code)?;
        Ok(inflate)
    }

    /// A decoder for windows of 2 to the power of `window_bits`; without a zlib header around the stream if that is negative.
    fn new(window_bits: c_int) -> Result<Self> {
        let mut stream = Box::new(z::z_stream::default());
        let len = c_int::try_from(size_of::<z::z_stream>()).unwrap_or(0);
        // SAFETY: the stream is a valid one with the default allocator; version and size are those it was compiled with.
        let code =
            unsafe { z::inflateInit2_(&raw mut *stream, window_bits, z::zlibVersion(), len) };
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
    ) -> Result<Step> {
        // the step says how much was used, and the caller comes again with the rest
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
        Ok(Step { used, filled, stop })
    }

    /// Makes an error of a return code of zlib, with zlib's own message if it left one.
    fn check(&self, code: c_int) -> Result<()> {
        match code {
            z::Z_OK => Ok(()),
            z::Z_NEED_DICT => Err(unsupported("a zlib stream that needs a preset dictionary")),
            z::Z_MEM_ERROR => Err(no_memory()),
            _ if self.0.msg.is_null() => Err(corrupt(format!("zlib: error {code}"))),
            _ => {
                // SAFETY: zlib's messages are constant strings with a NUL at the end.
                let text = unsafe { CStr::from_ptr(self.0.msg) };
                let text = text.to_string_lossy();
                Err(corrupt(format!("zlib: {text}")))
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

/// A length for zlib; those that it is given are at most [`AT_ONCE`].
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
