//! The DEFLATE encoder, and the checksums of zlib and gzip.

pub(crate) use zlib_rs::adler32::adler32;
pub(super) use zlib_rs::adler32::adler32_combine;
pub(crate) use zlib_rs::crc32::crc32;
use zlib_rs::{Deflate, DeflateFlush, Status, compress_bound};

use crate::error::{Result, corrupt};
use crate::source::at_most;

/// The initial value of an Adler-32 checksum.
pub(crate) const ADLER_START: u32 = 1;

/// Base 2 logarithm of the window.
const WINDOW: u8 = 15;

/// Bytes that the end mark of a flush may take beyond the bound.
const MARK_ROOM: usize = 64;

/// A piece of a DEFLATE stream that refers to nothing before it.
///
/// The `last` piece ends the stream. Any other ends on a byte boundary, where the next piece can be appended.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) if the encoder refuses `level`.
pub(super) fn deflate(plain: &[u8], level: i32, last: bool) -> Result<Vec<u8>> {
    let mut deflate = Deflate::new(level, false, WINDOW);
    let flush = if last {
        DeflateFlush::Finish
    } else {
        DeflateFlush::FullFlush
    };
    let (mut used, mut filled) = (0, 0);
    let mut out = Vec::new();
    loop {
        let left = plain.get(used..).unwrap_or_default();
        let room = compress_bound(left.len()).saturating_add(MARK_ROOM);
        out.resize(room.saturating_add(filled), 0);
        let free = out.get_mut(filled..).unwrap_or_default();
        let status = deflate
            .compress(left, free, flush)
            .map_err(|cause| corrupt(format!("zlib: {cause:?}")))?;
        let totals = [deflate.total_in(), deflate.total_out()];
        [used, filled] = totals.map(|total| at_most(total, usize::MAX));
        // Output that is full may not be all that a flush has to give.
        if status == Status::StreamEnd || (!last && filled < out.len()) {
            out.truncate(filled);
            return Ok(out);
        }
    }
}

/// The 64-bit FNV-1a hash, which will not change between versions of this program.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// A zlib stream as other programs write it, for tests.
#[cfg(test)]
pub(super) fn ordinary_stream(plain: &[u8], level: i32) -> Vec<u8> {
    let mut out = vec![0; compress_bound(plain.len())];
    let config = zlib_rs::DeflateConfig::new(level);
    let (written, code) = zlib_rs::compress_slice(&mut out, plain, config);
    assert_eq!(code, zlib_rs::ReturnCode::Ok);
    written.to_vec()
}
