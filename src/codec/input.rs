//! What cursors read and keep: stored bytes in pieces, decoded bytes that a read left over, and those that later ones refer to.

use crate::error::{Result, corrupt};
use crate::source::{PooledBuf, Source, at_most, len_u64};

/// A long stream is read in pieces of this size.
pub(super) const PIECE: usize = 128 << 10;

/// Chunks, blocks, frames or streams without data, one behind the other, that are passed over. Each costs a read, so more are taken for
/// hostile.
pub(super) const MAX_IDLE: u32 = 1024;

/// Input that a decoder may use without giving any output. A stream with more of it is taken for hostile.
pub(super) const MAX_IDLE_INPUT: usize = 1 << 20;

/// A payload that is read from an offset on, in pieces.
#[derive(Default)]
pub(super) struct Input {
    /// Offset in the payload behind `bytes`.
    at: u64,
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes that the decoder has used since its last output, as [`Input::moved`] counts them.
    idle: usize,
}

/// What one call of a decoder has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Input bytes used.
    pub(super) used: usize,
    /// Output bytes filled.
    pub(super) filled: usize,
    /// Why it stopped.
    pub(super) stop: Stop,
}

/// Why a decoder stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The input is used up or the output is full.
    Full,
    /// A DEFLATE block has ended, and another follows; so many bits of the last input byte used belong to that.
    Boundary(u8),
    /// The stream or frame has ended, all of its output is given, and its checksum is right if it has one.
    End,
}

impl Step {
    /// Whether the decoder has done nothing, so that another call would do nothing either.
    pub(super) fn is_stuck(&self) -> bool {
        self.used == 0 && self.filled == 0 && self.stop != Stop::End
    }
}

impl Input {
    /// The payload from `at` on.
    pub(super) fn new(at: u64) -> Self {
        let mut input = Self::default();
        input.seek(at);
        input
    }

    /// Offset in the payload of the next byte.
    pub(super) fn position(&self) -> u64 {
        let left = self.bytes.len().saturating_sub(self.taken);
        self.at.saturating_sub(len_u64(left))
    }

    /// Goes to another offset.
    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
        self.bytes.clear();
        self.taken = 0;
    }

    /// The next bytes, none at `end`.
    pub(super) fn fill(&mut self, stored: &dyn Source, end: u64) -> Result<&[u8]> {
        if self.taken >= self.bytes.len() {
            let len = at_most(end.saturating_sub(self.at), PIECE);
            check_end(stored, self.at, len)?;
            // A read that fails leaves no bytes that could be taken for those of the payload.
            let mut bytes = std::mem::take(&mut self.bytes);
            self.taken = 0;
            bytes.resize(len, 0);
            stored.read_exact_at(&mut bytes, self.at)?;
            self.bytes = bytes;
            self.at = self.at.saturating_add(len_u64(len));
        }
        Ok(self.bytes.get(self.taken..).unwrap_or_default())
    }

    /// Moves on by `len` of the bytes that [`Input::fill`] gave.
    pub(super) fn take(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
    }

    /// Moves on by what a decoder has used, and counts it if there was no output.
    pub(super) fn moved(&mut self, step: &Step) {
        self.take(step.used);
        // Blocks without data use input and give nothing: only their sum tells a hostile stream.
        self.idle = match step.filled {
            0 => self.idle.saturating_add(step.used),
            _ => 0,
        };
    }

    /// Whether the decoder has used more than [`MAX_IDLE_INPUT`] since its last output.
    pub(super) fn is_idle(&self) -> bool {
        self.idle > MAX_IDLE_INPUT
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.bytes.capacity())
    }
}

/// Decoded bytes that did not fit into the buffer of the read that decoded them.
#[derive(Default)]
pub(super) struct Pending {
    bytes: PooledBuf<u8>,
    taken: usize,
}

impl Pending {
    /// A buffer of `len` bytes to decode into; what was left over before is dropped.
    ///
    /// The caller says with [`Pending::keep`] how many of them count; until then none do.
    pub(super) fn space(&mut self, len: usize) -> &mut [u8] {
        self.bytes.reset(len);
        self.taken = len;
        &mut self.bytes
    }

    /// Decodes `len` bytes into `buf`, or into the buffer here if there are too many for it; gives how many are in `buf`.
    pub(super) fn decode(
        &mut self,
        buf: &mut [u8],
        len: usize,
        decode: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<usize> {
        // Straight into the buffer of the read where it fits: one copy less of each byte.
        if let Some(out) = buf.get_mut(..len) {
            decode(out)?;
            return Ok(len);
        }
        decode(self.space(len))?;
        self.keep(len);
        Ok(self.take(buf))
    }

    /// Keeps the first `len` bytes of the space.
    pub(super) fn keep(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.taken = 0;
    }

    /// Moves as many bytes as there are and fit into `buf`, and says how many.
    pub(super) fn take(&mut self, buf: &mut [u8]) -> usize {
        let left = self.bytes.get(self.taken..).unwrap_or_default();
        let len = left.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), left.get(..len)) {
            to.copy_from_slice(from);
        }
        self.taken = self.taken.saturating_add(len);
        len
    }

    /// Bytes left over.
    pub(super) fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.taken)
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        len_u64(self.bytes.capacity())
    }
}

/// Appends `bytes` to `history`, and keeps only its last `most` bytes.
pub(super) fn keep_last(history: &mut Vec<u8>, most: usize, bytes: &[u8]) {
    let tail = bytes.get(bytes.len().saturating_sub(most)..);
    let tail = tail.unwrap_or_default();
    let room = most.saturating_sub(tail.len());
    history.drain(..history.len().saturating_sub(room));
    history.extend_from_slice(tail);
}

/// Checks that a payload has `len` bytes at `offset`.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) if not. It names no place in the file, because the offset is one in the payload.
pub(super) fn check_end(source: &dyn Source, offset: u64, len: usize) -> Result<()> {
    if offset.saturating_add(len_u64(len)) > source.len() {
        let why = format!(
            "{len} bytes wanted at {offset} of the payload, which has {}",
            source.len()
        );
        return Err(corrupt(why));
    }
    Ok(())
}
