//! The codecs inside Blosc chunks.

use super::blosclz;
use crate::codec::inflate::Inflate;
use crate::codec::input::Stop;
use crate::codec::lz4f::decode_block;
pub(super) use crate::codec::zstd::Decoder;
use crate::error::{Result, corrupt, unsupported};

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

    /// Decodes a stream that must fill `out`. The decoder of Zstandard is kept from stream to stream.
    pub(super) fn decode(
        self,
        zstd: &mut Option<Decoder>,
        packed: &[u8],
        dictionary: &[u8],
        out: &mut [u8],
    ) -> Result<()> {
        let wanted = out.len();
        let len = match self {
            Self::Registered(number) => {
                return Err(unsupported(format!("Blosc2 codec {number}")));
            }
            Self::Unknown(format) => {
                return Err(unsupported(format!("Blosc codec format {format}")));
            }
            Self::BloscLz | Self::Zlib if !dictionary.is_empty() => {
                return Err(unsupported(format!("a dictionary of {self:?} in Blosc2")));
            }
            Self::BloscLz => {
                blosclz::decode(packed, out).ok_or_else(|| corrupt("BloscLZ stream"))?;
                wanted
            }
            Self::Lz4 => decode_block(packed, dictionary, out)?,
            Self::Zlib => {
                // what stands behind the stream is ignored
                let step = Inflate::zlib()?.run(packed, out, false)?;
                if step.stop != Stop::End {
                    return Err(corrupt("zlib stream that does not end"));
                }
                step.filled
            }
            Self::Zstd => {
                let kept = match zstd.take() {
                    Some(kept) => kept,
                    None => Decoder::new()?,
                };
                zstd.insert(kept).decode(packed, dictionary, out)?
            }
        };
        if len != wanted {
            return Err(corrupt(format!(
                "Blosc stream of {len} bytes, {wanted} expected"
            )));
        }
        Ok(())
    }
}
