//! The Zstandard library: the only file that calls it.

use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective};

use crate::codec::input::{Step, Stop};
use crate::error::{Result, corrupt};
use crate::source::len_u64;

/// What a decoder takes beside the window, at most: its tables (160 KiB), a block of input and two of output (128 KiB each), and some bytes.
const BESIDE_WINDOW: u64 = 576 << 10;

/// Decodes frames, one after the other.
pub(in crate::codec) struct Decoder(DCtx<'static>);

impl Decoder {
    /// A decoder without a frame.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::error::Error::Corrupt) if the library has no memory for it.
    pub(in crate::codec) fn new() -> Result<Self> {
        DCtx::try_create()
            .map(Self)
            .ok_or_else(|| corrupt("no memory for a zstd decoder"))
    }

    /// Decodes the frame `packed` into `out`, which may be longer, and gives the decoded length.
    ///
    /// `dictionary` may be empty.
    #[cfg(feature = "blosc")]
    pub(in crate::codec) fn decode(
        &mut self,
        packed: &[u8],
        dictionary: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        let decoded = if dictionary.is_empty() {
            self.0.decompress(out, packed)
        } else {
            self.0.decompress_using_dict(out, packed, dictionary)
        };
        decoded.map_err(refused)
    }

    /// Decodes some of `input` into `out`. Behind the end of a frame another one begins.
    pub(super) fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step> {
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(out));
        let left = self.0.decompress_stream(&mut to, &mut from);
        let left = left.map_err(refused)?;
        Ok(Step {
            used: from.pos(),
            filled: to.pos(),
            stop: if left == 0 { Stop::End } else { Stop::Full },
        })
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.0.sizeof())
    }

    /// Bytes of memory that frames with such a window take at most.
    pub(super) fn bytes_for(window: usize) -> u64 {
        len_u64(window).saturating_add(BESIDE_WINDOW)
    }
}

/// Encodes frames.
pub(in crate::codec) struct ZstdEncoder(CCtx<'static>);

impl ZstdEncoder {
    /// An encoder of a compression level.
    pub(in crate::codec) fn new(level: i32) -> Result<Self> {
        let mut context =
            CCtx::try_create().ok_or_else(|| corrupt("no memory for a zstd encoder"))?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(refused)?;
        Ok(Self(context))
    }

    /// Encodes `bytes` as one frame into `out`, and gives its length; `None` if it does not fit.
    #[cfg(any(test, feature = "blosc"))]
    pub(in crate::codec) fn encode(&mut self, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.compress2(out, bytes).ok()
    }

    /// Begins a frame of `len` decoded bytes, to be fed through [`ZstdEncoder::push`].
    pub(super) fn begin(&mut self, len: u64) -> Result<()> {
        self.0
            .reset(ResetDirective::SessionOnly)
            .and_then(|_| self.0.set_pledged_src_size(Some(len)))
            .map_err(refused)?;
        Ok(())
    }

    /// Encodes a part of `bytes`, and gives how many bytes of it were taken and how many of `out` were filled.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(usize, usize)> {
        let (mut input, mut output) = (InBuffer::around(bytes), OutBuffer::around(out));
        self.0
            .compress_stream(&mut output, &mut input)
            .map_err(refused)?;
        Ok((input.pos(), output.pos()))
    }

    /// Ends the frame: gives how many bytes of `out` were filled, and whether that was all.
    pub(super) fn finish(&mut self, out: &mut [u8]) -> Result<(usize, bool)> {
        let mut output = OutBuffer::around(out);
        let left = self.0.end_stream(&mut output).map_err(refused)?;
        Ok((output.pos(), left == 0))
    }
}

fn refused(code: usize) -> crate::error::Error {
    corrupt(format!("zstd: {}", zstd_safe::get_error_name(code)))
}
