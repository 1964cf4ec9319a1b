//! Bounded reads of headers, for the codecs that walk along the chunks of a payload. Knows no format.

use super::input::check_end;
use crate::error::{Result, corrupt};
use crate::source::{Peek, PooledBuf, Source};

/// The `N` bytes at `offset`.
///
/// # Errors
/// As of the source, a range beyond its end included.
pub(super) fn array_at<const N: usize>(source: &dyn Source, offset: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    check_end(source, offset, N)?;
    source.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// A payload whose headers are read one after the other.
pub(super) struct Headers<'a> {
    source: &'a dyn Source,
    peek: Peek,
}

impl<'a> Headers<'a> {
    /// Those of this payload. Nothing is read yet.
    pub(super) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            peek: Peek::default(),
        }
    }

    /// The payload.
    #[cfg(feature = "blosc")]
    pub(super) fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// Length of the payload.
    pub(super) fn len(&self) -> u64 {
        self.source.len()
    }

    /// The `N` bytes at `offset`.
    ///
    /// # Errors
    /// As of the source, a range beyond its end included.
    pub(super) fn array<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        check_end(self.source, offset, N)?;
        let bytes = self.peek.read(self.source, offset, N)?;
        let array = bytes.first_chunk().copied();
        array.ok_or_else(|| corrupt("a header beyond the end"))
    }
}

/// The `len` bytes at `offset`, in `buf`, whose memory is used again and again.
///
/// # Errors
/// As of the source, a range beyond its end included: checked before `buf` grows.
pub(super) fn read_into<'a>(
    source: &dyn Source,
    offset: u64,
    len: usize,
    buf: &'a mut PooledBuf<u8>,
) -> Result<&'a [u8]> {
    check_end(source, offset, len)?;
    buf.reset(len);
    source.read_exact_at(buf, offset)?;
    Ok(buf)
}

#[cfg(test)]
#[allow(dead_code, reason = "a build without further codecs uses none of it")]
pub(super) mod tests {
    use super::*;
    use crate::codec::{Codec, Stream};
    use crate::source::Memory;
    use std::sync::Arc;

    /// What `codec` makes of a payload, read from 0 to its end in steps of `step`.
    pub(in crate::codec) fn decode(
        codec: &dyn Codec,
        stored: &[u8],
        data_size: u64,
        step: usize,
    ) -> Result<Vec<u8>> {
        let stream = codec
            .open(Arc::new(Memory::new(stored.to_vec())), data_size)?
            .stream;
        decode_from(&stream, 0, data_size, step)
    }

    /// The bytes from `offset` to the end, through a cursor at the entry before.
    pub(in crate::codec) fn decode_from(
        stream: &Arc<dyn Stream>,
        offset: u64,
        data_size: u64,
        step: usize,
    ) -> Result<Vec<u8>> {
        let entry = stream.entry(offset);
        assert!(entry <= offset, "entry {entry} for {offset}");
        let mut cursor = Arc::clone(stream).cursor(offset)?;
        assert_eq!(cursor.position(), entry);
        let mut out = vec![0; usize::try_from(data_size - entry).unwrap()];
        for part in out.chunks_mut(step) {
            cursor.fill(part, u64::MAX)?;
        }
        assert_eq!(cursor.position(), data_size);
        Ok(out.split_off(usize::try_from(offset - entry).unwrap()))
    }

    /// What `codec` writes for `decoded`.
    pub(in crate::codec) fn encode(codec: &dyn Codec, decoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        codec
            .encode(None, &Memory::new(decoded.to_vec()), &mut out)
            .unwrap();
        out
    }

    /// Every way to read a payload is tried on damaged bytes; nothing may panic or say more than there is.
    pub(in crate::codec) fn poke(codec: &dyn Codec, stored: &[u8], data_size: u64, offset: u64) {
        let Ok(opened) = codec.open(Arc::new(Memory::new(stored.to_vec())), data_size) else {
            return;
        };
        for offset in [0, offset.min(data_size), data_size.saturating_sub(1), 0] {
            let _ = decode_from(&opened.stream, offset, data_size, 70_000);
        }
    }

    /// Little-endian 16-bit numbers that rise slowly with a few outliers, cut to `len` bytes.
    ///
    /// `tests/data/codec/make.py` has the same formula.
    pub(in crate::codec) fn pattern(len: usize) -> Vec<u8> {
        (0..len.div_ceil(2) as u32)
            .flat_map(|n| {
                let outlier = n.wrapping_mul(2_654_435_761) >> 20;
                let value = (n / 64) ^ if n % 499 == 0 { outlier } else { 0 };
                (value as u16).to_le_bytes()
            })
            .take(len)
            .collect()
    }

    /// Bytes that no codec makes smaller: those of a linear congruential generator.
    pub(in crate::codec) fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(next).collect()
    }

    /// A recorded payload of `tests/data/codec`.
    pub(in crate::codec) fn recorded(name: &str) -> Vec<u8> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec");
        std::fs::read(dir.join(name)).unwrap()
    }
}
