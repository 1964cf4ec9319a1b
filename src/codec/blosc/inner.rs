//! The codecs inside Blosc chunks.

use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

use super::blosclz;

use crate::codec::lz4f::{decode_block, decode_block_with};
use crate::codec::zstd::Decoder;
use crate::error::{Result, corrupt, unsupported};

/// Base 2 logarithm of the largest window of a zlib stream.
const WINDOW: u8 = 15;

/// A codec that a chunk's header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inner {
    BloscLz,
    /// Both `lz4` and `lz4hc`.
    Lz4,
    Zlib,
    Zstd,
}

impl Inner {
    /// The codec of a format number, which stands in the top bits of the flags, and the number of a registered one.
    pub(super) fn new(format: u8, registered: u8) -> Result<Self> {
        match format {
            0 => Ok(Self::BloscLz),
            1 => Ok(Self::Lz4),
            3 => Ok(Self::Zlib),
            4 => Ok(Self::Zstd),
            6 => Err(unsupported(format!("Blosc2 codec {registered}"))),
            _ => Err(unsupported(format!("Blosc codec format {format}"))),
        }
    }
}

/// Decoders that are kept from stream to stream.
#[derive(Default)]
pub(super) struct Decoders {
    zstd: Option<Decoder>,
    zlib: Option<Inflate>,
}

impl Decoders {
    /// Decodes a stream that must fill `out`.
    pub(super) fn decode(
        &mut self,
        codec: Inner,
        packed: &[u8],
        dictionary: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let wanted = out.len();
        let len = match codec {
            Inner::BloscLz | Inner::Zlib if !dictionary.is_empty() => {
                return Err(unsupported(format!("a dictionary of {codec:?} in Blosc2")));
            }
            Inner::BloscLz => {
                blosclz::decode(packed, out).ok_or_else(|| corrupt("BloscLZ stream"))?;
                wanted
            }
            Inner::Lz4 if dictionary.is_empty() => decode_block(packed, out)?,
            Inner::Lz4 => decode_block_with(packed, dictionary, out)?,
            Inner::Zlib => self.inflate(packed, out)?,
            Inner::Zstd => {
                let zstd = match self.zstd.take() {
                    Some(zstd) => zstd,
                    None => Decoder::new()?,
                };
                self.zstd.insert(zstd).decode(packed, dictionary, out)?
            }
        };
        if len != wanted {
            return Err(corrupt(format!(
                "Blosc stream of {len} bytes, {wanted} expected"
            )));
        }
        Ok(())
    }

    fn inflate(&mut self, packed: &[u8], out: &mut [u8]) -> Result<usize> {
        let zlib = self.zlib.get_or_insert_with(|| Inflate::new(true, WINDOW));
        zlib.reset(true);
        match zlib.decompress(packed, out, InflateFlush::Finish) {
            Ok(Status::StreamEnd) => Ok(usize::try_from(zlib.total_out()).unwrap_or(usize::MAX)),
            Ok(_) => Err(corrupt("zlib stream that does not end")),
            Err(cause) => Err(corrupt(format!("zlib: {}", InflateError::as_str(cause)))),
        }
    }
}
