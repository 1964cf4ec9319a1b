//! The codecs inside Blosc chunks.

use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

use super::blosclz;

use crate::codec::lz4f::decode_block;
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
    /// One that is registered with Blosc2 under this number. None of these is decoded.
    Registered(u8),
    /// One of a format that is not known.
    Unknown(u8),
}

impl Inner {
    /// The codec of a format number, which stands in the top bits of the flags.
    pub(super) fn of_format(format: u8) -> Self {
        match format {
            0 => Self::BloscLz,
            1 => Self::Lz4,
            3 => Self::Zlib,
            4 => Self::Zstd,
            6 => Self::Registered(0),
            _ => Self::Unknown(format),
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
            Inner::Registered(number) => {
                return Err(unsupported(format!("Blosc2 codec {number}")));
            }
            Inner::Unknown(format) => {
                return Err(unsupported(format!("Blosc codec format {format}")));
            }
            Inner::BloscLz | Inner::Zlib if !dictionary.is_empty() => {
                return Err(unsupported(format!("a dictionary of {codec:?} in Blosc2")));
            }
            Inner::BloscLz => {
                blosclz::decode(packed, out).ok_or_else(|| corrupt("BloscLZ stream"))?;
                wanted
            }
            Inner::Lz4 => decode_block(packed, dictionary, out)?,
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

    /// Decodes a zlib stream, and gives its decoded length. It must end within `packed` and fit `out`, or it is corrupt; what
    /// stands behind it is ignored.
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
