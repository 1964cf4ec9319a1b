//! Block headers, from and to bytes.
//!
//! ASDF Standard, "Low-level file layout", section "Block header". After the magic and `header_size` (u16), all big-endian,
//! offsets from the end of `header_size`:
//!
//! | field | Current (48) | Draft36 | Draft40 | Draft44 | Finf |
//! |---|---|---|---|---|---|
//! | flags u32 | 0 | 0 | 0 | 0 | – |
//! | compression, 4 bytes | 4 | – | 4 | – | – |
//! | allocated size u64 | 8 | 4 | 8 | 4 | 0 |
//! | used size u64 | 16 | 12 | 16 | 12 | 8 |
//! | data size u64 | 24 | 20 | 24 | – | – |
//! | checksum | 32, 16 bytes | 28, 8 | 32, 8 | 20, 8 | 16, 8 |
//! | encoding name | – | – | – | 28, 16 bytes | 24, up to 16 |
//!
//! Knows nothing of what lies around a block: that is `scan`'s.

use std::fmt::Write;

use super::dialect::{BLOCK_MAGIC, Dialect};
use crate::error::{Error, Place, Result};

/// Bytes of the magic and of `header_size`, which `header_size` does not count.
pub const PREFIX_LEN: u64 = 6;
/// Bytes of the fields of today's header.
pub const FIELDS_LEN: u16 = 48;
/// Flag: the block reaches to the end of the file, and its sizes are not written down.
pub const STREAMED: u32 = 1;
/// Flag of the ASDF 0.1.0 draft: the data begin with an encoding chain.
pub const ENCODED: u32 = 2;

/// Which fields a header has, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderShape {
    /// ASDF 1.0.0 and the draft since March 2015.
    Current,
    /// The text of the ASDF 0.1.0 draft.
    Draft36,
    /// Files of March 2015.
    Draft40,
    /// Files of 2014.
    Draft44,
    /// The FINF 0.1.0 draft.
    Finf,
}

/// The header of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHeader {
    /// Byte offset of the magic from the start of the file.
    pub offset: u64,
    /// Bytes of the header after the `header_size` field.
    pub header_size: u16,
    /// Which fields there are.
    pub shape: HeaderShape,
    /// [`STREAMED`], [`ENCODED`] in drafts; other bits have no meaning.
    pub flags: u32,
    /// Compression code; all zero for none.
    pub compression: [u8; 4],
    /// Bytes that belong to the block after its header.
    pub allocated: u64,
    /// Bytes of these that hold data.
    pub used: u64,
    /// Bytes of the decoded data; equal to `used` where the header has no such field.
    pub data_size: u64,
    /// MD5 of the used bytes, all zero for none; shorter in the drafts and zero filled.
    pub checksum: [u8; 16],
    /// Encoding name of the drafts that have one, else all zero.
    pub encoding: [u8; 16],
}

impl BlockHeader {
    /// A header of today's shape for a new block.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self {
            offset,
            header_size: FIELDS_LEN,
            shape: HeaderShape::Current,
            flags: 0,
            compression: [0; 4],
            allocated: 0,
            used: 0,
            data_size: 0,
            checksum: [0; 16],
            encoding: [0; 16],
        }
    }

    /// Parses the header whose magic is at `offset`. `bytes` begins there and holds at least the fields, as far as the file does.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no magic, no such shape, or not enough bytes.
    pub fn parse(bytes: &[u8], offset: u64, dialect: &Dialect) -> Result<Self> {
        let fail = |why: String| Error::corrupt(Place::Byte(offset), why);
        let (magic, rest) = bytes
            .split_first_chunk::<4>()
            .ok_or_else(|| fail("block header cut short".into()))?;
        if !dialect.magics.contains(magic) {
            return Err(fail("no block magic".into()));
        }
        let (size, fields) = rest
            .split_first_chunk::<2>()
            .ok_or_else(|| fail("block header cut short".into()))?;
        let header_size = u16::from_be_bytes(*size);
        // a longer header is allowed: bytes behind the known fields are passed over
        let shape = dialect
            .shape(header_size)
            .ok_or_else(|| fail(format!("block header of {header_size} bytes is too short")))?;
        let base = Self {
            header_size,
            shape,
            ..Self::new(offset)
        };
        base.with_fields(fields)
            .ok_or_else(|| fail(format!("block header of {header_size} bytes is cut short")))
    }

    /// Fills in the fields of its shape from `fields`, the bytes behind `header_size`; `None` if these are too short.
    fn with_fields(self, fields: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| {
            fields
                .get(at..)?
                .first_chunk()
                .map(|bytes| u64::from_be_bytes(*bytes))
        };
        let code_at = |at: usize| fields.get(at..)?.first_chunk::<4>().copied();
        let u32_at = |at: usize| code_at(at).map(u32::from_be_bytes);
        let padded = |at: usize, len: usize| {
            let mut out = [0; 16];
            // a field that the end of the file cuts off keeps zeros: no data can follow it
            let found = fields.get(at..)?;
            for (to, from) in out.iter_mut().zip(found.iter().take(len)) {
                *to = *from;
            }
            Some(out)
        };
        Some(match self.shape {
            HeaderShape::Current => Self {
                flags: u32_at(0)?,
                compression: code_at(4)?,
                allocated: u64_at(8)?,
                used: u64_at(16)?,
                data_size: u64_at(24)?,
                checksum: *fields.get(32..)?.first_chunk()?,
                ..self
            },
            HeaderShape::Draft36 => Self {
                flags: u32_at(0)?,
                allocated: u64_at(4)?,
                used: u64_at(12)?,
                data_size: u64_at(20)?,
                checksum: padded(28, 8)?,
                ..self
            },
            HeaderShape::Draft40 => Self {
                flags: u32_at(0)?,
                compression: code_at(4)?,
                allocated: u64_at(8)?,
                used: u64_at(16)?,
                data_size: u64_at(24)?,
                checksum: padded(32, 8)?,
                ..self
            },
            HeaderShape::Draft44 => Self {
                flags: u32_at(0)?,
                allocated: u64_at(4)?,
                used: u64_at(12)?,
                // neither this shape nor FINF has a data size: the used size stands for it
                data_size: u64_at(12)?,
                checksum: padded(20, 8)?,
                encoding: padded(28, 16)?,
                ..self
            },
            HeaderShape::Finf => Self {
                allocated: u64_at(0)?,
                used: u64_at(8)?,
                data_size: u64_at(8)?,
                checksum: padded(16, 8)?,
                // all that `header_size` counts behind the fixed fields is the name
                encoding: padded(24, usize::from(self.header_size.saturating_sub(24)).min(16))?,
                ..self
            },
        })
    }

    /// Magic, `header_size` and the fields of today's shape: the first 54 bytes of the block.
    ///
    /// Whatever a longer header holds behind them is not ours to write.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(54);
        out.extend_from_slice(&BLOCK_MAGIC);
        out.extend_from_slice(&self.header_size.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.compression);
        for size in [self.allocated, self.used, self.data_size] {
            out.extend_from_slice(&size.to_be_bytes());
        }
        out.extend_from_slice(&self.checksum);
        out
    }

    /// Whether the block reaches to the end of the file.
    #[must_use]
    pub fn streamed(&self) -> bool {
        // FINF headers have no flags
        self.flags & STREAMED != 0 && self.shape != HeaderShape::Finf
    }

    /// Whether the data begin with an encoding chain (ASDF 0.1.0 draft).
    #[must_use]
    pub fn encoded(&self) -> bool {
        // only the text of the draft has chains; today's standard gives the bit no meaning
        self.flags & ENCODED != 0 && self.shape == HeaderShape::Draft36
    }

    /// Whether the data has to be decoded: it is compressed or, in drafts, encoded.
    #[must_use]
    pub fn is_transformed(&self) -> bool {
        self.compression != [0; 4] || self.encoded() || self.encoding != [0; 16]
    }

    /// Byte offset of the first data byte from the start of the file, saturating.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        // An offset from the index of a hostile file may lie
        // anywhere. Beyond the end of the file nobody finds a byte.
        self.offset
            .saturating_add(PREFIX_LEN)
            .saturating_add(u64::from(self.header_size))
    }

    /// Byte offset just behind the allocated space, or `None` beyond 2^64; of no meaning for a streamed block.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.data_offset().checked_add(self.allocated)
    }

    /// The checksum in hexadecimal digits.
    #[must_use]
    pub fn checksum_text(&self) -> String {
        self.checksum.iter().fold(String::new(), |mut out, byte| {
            // writing to a string can't fail
            let _ = write!(out, "{byte:02x}");
            out
        })
    }

    /// Whether there is a checksum to verify.
    ///
    /// All zero means "not verified" (the standard); so do sixteen `0` digits, which some DKIST files carry.
    #[must_use]
    pub fn has_checksum(&self) -> bool {
        self.shape == HeaderShape::Current
            && self.checksum != [0; 16]
            && self.checksum != [b'0'; 16]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::dialect::FirstLine;
    use proptest::prelude::*;

    fn dialect(line: &[u8]) -> &'static Dialect {
        FirstLine::parse(line, false).unwrap().dialect
    }

    fn draft_bytes(header_size: u16) -> Vec<u8> {
        let mut bytes = b"\xd3BLK".to_vec();
        bytes.extend(header_size.to_be_bytes());
        bytes.extend(0..u8::try_from(header_size).unwrap());
        bytes
    }

    #[test]
    fn each_shape_finds_its_fields() {
        let draft = dialect(b"#ASDF 0.1.0\n");
        let parse = |size| BlockHeader::parse(&draft_bytes(size), 0, draft).unwrap();
        let at = |first: u8| {
            u64::from_be_bytes(std::array::from_fn(|i| first + u8::try_from(i).unwrap()))
        };
        let sizes = |header: BlockHeader| (header.allocated, header.used, header.data_size);
        assert_eq!(sizes(parse(36)), (at(4), at(12), at(20)));
        assert_eq!(sizes(parse(40)), (at(8), at(16), at(24)));
        assert_eq!(sizes(parse(44)), (at(4), at(12), at(12)));
        assert_eq!(sizes(parse(48)), (at(8), at(16), at(24)));
        assert_eq!(parse(44).encoding[..2], [28, 29]);
        let finf = BlockHeader::parse(&draft_bytes(40), 0, dialect(b"%FINF 0.1.0\n")).unwrap();
        assert_eq!(
            (finf.allocated, finf.used, finf.encoding[0]),
            (at(0), at(8), 24)
        );
    }

    #[test]
    fn a_checksum_is_written_in_hex() {
        let mut header = BlockHeader::new(0);
        header.checksum[..2].copy_from_slice(&[0xa0, 0x0f]);
        assert_eq!(header.checksum_text(), format!("a00f{:028}", 0));
    }

    #[test]
    fn a_header_cut_short_is_an_error() {
        let v1 = dialect(b"#ASDF 1.0.0\n");
        let whole = BlockHeader::new(0).to_bytes();
        for len in 0..whole.len() {
            assert!(BlockHeader::parse(&whole[..len], 0, v1).is_err());
        }
        assert!(BlockHeader::parse(&whole, 0, v1).is_ok());
    }

    #[test]
    fn sizes_beyond_two_to_the_64_have_no_end() {
        let header = BlockHeader {
            allocated: u64::MAX,
            ..BlockHeader::new(10)
        };
        assert_eq!(header.end(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            offset: u64, flags: u32, compression: [u8; 4], allocated: u64, used: u64, data_size: u64, checksum: [u8; 16]
        ) {
            let header = BlockHeader { flags, compression, allocated, used, data_size, checksum, ..BlockHeader::new(offset) };
            let bytes = header.to_bytes();
            prop_assert_eq!(bytes.len(), 54);
            prop_assert_eq!(BlockHeader::parse(&bytes, offset, dialect(b"#ASDF 1.0.0\n")).unwrap(), header);
        }
    }
}
