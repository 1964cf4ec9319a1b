//! What stands around a DEFLATE stream: a header, and behind it a checksum.
//!
//! | bytes | zlib (RFC 1950) |
//! |---|---|
//! | 1, 1 | method 8 and window, flags; together a multiple of 31 |
//! | 4 | behind the stream: Adler-32 of the decoded bytes, big-endian |
//!
//! | bytes | gzip (RFC 1952) |
//! |---|---|
//! | 2, 1, 1 | `1F 8B`, method 8, flags: text, header checksum, extra field, name, comment |
//! | 4, 1, 1 | modification time, extra flags, operating system |
//! | 2 + n | length of the extra field, and that |
//! | n + 1 | name with a NUL behind it; comment with a NUL behind it |
//! | 2 | lower half of the CRC-32 of the header to here |
//! | 4, 4 | behind the stream: CRC-32 and number of the decoded bytes modulo 2^32 |
//!
//! Numbers of gzip are little-endian; the three rows in the middle are there if a flag says so.

use super::super::deflate::{ADLER_START, adler32, crc32};
use super::super::headers::array_at;
use super::segments::checksum;
use super::{FRAMING, GZIP_FRAMING, HEADER_LEN, PRESET_DICTIONARY, len_u64};
use crate::error::{Result, corrupt, unsupported};
use crate::source::{Fields, Source, at_most};

/// The compression method, in the lower bits of a zlib header's first byte; and that byte for a window of 32 KiB.
const DEFLATE: u8 = 8;
const LARGEST_WINDOW: u8 = 0x78;

/// How gzip begins.
pub(super) const GZIP: [u8; 2] = [0x1F, 0x8B];

/// Flags of gzip; those that are in none of these are not known.
const HEADER_SUM: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const UNKNOWN: u8 = 0xE0;

/// The longest header of gzip that is looked through.
const MAX_HEADER: usize = 128 << 10;

/// The wrapper of a DEFLATE stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapper {
    Zlib,
    Gzip,
}

impl Wrapper {
    /// The wrapper of a payload, and the length of its header.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::Error::Corrupt) or [`Unsupported`](crate::error::Error::Unsupported) if the payload begins with no
    /// header of a stream that can be decoded.
    pub(super) fn open(stored: &dyn Source) -> Result<(Self, u64)> {
        let header = array_at(stored, 0)?;
        if header == GZIP {
            return Ok((Self::Gzip, gzip_header(stored)?));
        }
        // RFC 1950 §2.2: CM is 8, CINFO at most 7, and FCHECK makes both bytes a multiple of 31.
        let whole = u16::from_be_bytes(header);
        let [method, flags] = header;
        if method & 0x0F != DEFLATE || method > LARGEST_WINDOW || whole.checked_rem(31) != Some(0) {
            return Err(corrupt(format!(
                "{whole:04x} is not the start of a zlib stream"
            )));
        }
        if flags & PRESET_DICTIONARY != 0 {
            let why = "a zlib stream that needs a preset dictionary";
            return Err(unsupported(why));
        }
        Ok((Self::Zlib, HEADER_LEN))
    }

    /// Name of the framing.
    pub(super) fn framing(self) -> &'static str {
        match self {
            Self::Zlib => FRAMING,
            Self::Gzip => GZIP_FRAMING,
        }
    }

    /// The checksum of no bytes.
    pub(super) fn sum_of_nothing(self) -> u32 {
        match self {
            Self::Zlib => ADLER_START,
            Self::Gzip => 0,
        }
    }

    /// The checksum of some bytes and `bytes` behind them; `before` is the checksum of the former.
    pub(super) fn sum(self, before: u32, bytes: &[u8]) -> u32 {
        match self {
            Self::Zlib => adler32(before, bytes),
            Self::Gzip => crc32(before, bytes),
        }
    }

    /// Whether `sum` and `len` are the checksum and the length that stand at `at`, behind the stream. A number that is cut off counts as
    /// right.
    pub(super) fn agrees(self, stored: &dyn Source, at: u64, sum: u32, len: u64) -> Result<bool> {
        let number = |at| checksum(stored, at);
        match self {
            Self::Zlib => Ok(number(at)?.is_none_or(|found| found == sum)),
            Self::Gzip => {
                let [found, size] = [number(at)?, number(at.saturating_add(4))?];
                // RFC 1952 §2.3.1: CRC32 and ISIZE are little-endian, Adler-32 is not.
                let size = size.map(u32::swap_bytes).map(u64::from);
                Ok(found.is_none_or(|found| found.swap_bytes() == sum)
                    && size.is_none_or(|size| size == len & u64::from(u32::MAX)))
            }
        }
    }
}

/// Length of the header of gzip.
fn gzip_header(stored: &dyn Source) -> Result<u64> {
    let mut header = vec![0; at_most(stored.len(), MAX_HEADER)];
    stored.read_exact_at(&mut header, 0)?;
    let why = "not the header of a gzip stream";
    gzip_header_len(&header)
        .map(len_u64)
        .ok_or_else(|| corrupt(why))
}

/// The same, of a payload that begins with `bytes`; `None` if it has no such header.
fn gzip_header_len(bytes: &[u8]) -> Option<usize> {
    let mut fields = Fields(bytes);
    let [_, _, method, flags, ..] = fields.array::<10>()?;
    if method != DEFLATE || flags & UNKNOWN != 0 {
        return None;
    }
    // RFC 1952 §2.3.1: the fields come in this order, each if its flag is set.
    if flags & EXTRA != 0 {
        let len = u16::from_le_bytes(fields.array()?);
        fields.bytes(len.into())?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let len = fields.0.iter().position(|&byte| byte == 0)?;
            fields.bytes(len.checked_add(1)?)?;
        }
    }
    if flags & HEADER_SUM != 0 {
        let len = bytes.len().checked_sub(fields.0.len())?;
        let [low, high, ..] = crc32(0, bytes.get(..len)?).to_le_bytes();
        (fields.array()? == [low, high]).then_some(())?;
    }
    bytes.len().checked_sub(fields.0.len())
}
