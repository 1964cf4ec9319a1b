//! An LZ4 block decoded piece by piece, with no more memory than the 64 KiB that it may refer back to.
//!
//! For blocks that are too long to be decoded in one piece of memory, which is faster.

use std::sync::Arc;

use super::chunk::Lz4Chunk;
use crate::codec::chunks::Pieces;
use crate::codec::input::{Input, keep_last};
use crate::error::{Error, Result, corrupt};
use crate::source::{Source, at_most, len_u64};

/// How far back a match may reach.
const WINDOW: usize = 1 << 16;

/// The shortest match.
const MIN_MATCH: u64 = 4;

/// A nibble that says that the length goes on in the next byte.
const LONG_LENGTH: u8 = 15;

/// A long LZ4 block that is being decoded.
pub(super) struct LongBlock {
    stored: Arc<dyn Source>,
    input: Input,
    /// Where the block ends in `stored`.
    end: u64,
    /// Decoded bytes to come.
    left: u64,
    /// The last [`WINDOW`] decoded bytes.
    window: Vec<u8>,
    /// Literals to come of this sequence.
    literals: u64,
    /// Lower nibble of its token, until the match begins.
    token: Option<u8>,
    /// Bytes to come of the match, and how far back they are.
    matched: u64,
    distance: usize,
}

impl LongBlock {
    /// The block of a chunk.
    pub(super) fn new(stored: Arc<dyn Source>, chunk: &Lz4Chunk) -> Self {
        let start = chunk.block_start();
        Self {
            stored,
            input: Input::new(start),
            end: start.saturating_add(chunk.len.into()),
            left: chunk.size.into(),
            window: Vec::new(),
            literals: 0,
            token: None,
            matched: 0,
            distance: 0,
        }
    }

    /// Reads on to where literals or a match begin.
    fn next_sequence(&mut self) -> Result<()> {
        // LZ4 Block Format, "Sequences": a token is two lengths, of literals and of the match; then the literals, then the distance.
        let Some(token) = self.token.take() else {
            let token = self.byte()?;
            self.literals = self.length(token.checked_shr(4).unwrap_or(0))?;
            self.token = Some(token & LONG_LENGTH);
            return Ok(());
        };
        let distance = u16::from_le_bytes([self.byte()?, self.byte()?]);
        self.distance = distance.into();
        self.matched = self.length(token)?.saturating_add(MIN_MATCH);
        Ok(())
    }

    /// A length that goes on in the following bytes, if the nibble says so.
    fn length(&mut self, nibble: u8) -> Result<u64> {
        let mut length = u64::from(nibble);
        if nibble == LONG_LENGTH {
            loop {
                let more = self.byte()?;
                length = length.saturating_add(more.into());
                // a byte of 255 says that the length goes on
                if more != u8::MAX {
                    break;
                }
            }
        }
        Ok(length)
    }

    /// Copies as many literals as there are in the input and fit into `rest`. How many.
    fn copy_literals(&mut self, rest: &mut [u8]) -> Result<usize> {
        let literals = at_most(self.literals, rest.len());
        let found = self.fill()?;
        let len = found.len().min(literals);
        if let (Some(target), Some(found)) = (rest.get_mut(..len), found.get(..len)) {
            target.copy_from_slice(found);
        }
        self.input.take(len);
        self.literals = self.literals.saturating_sub(len_u64(len));
        Ok(len)
    }

    /// Copies from up to `distance` bytes before `rest`: from `before`, or from the window before that.
    ///
    /// The run ends where the bytes it is copied from do, and goes on from there when called again.
    fn copy_match(&mut self, before: &[u8], rest: &mut [u8]) -> Result<usize> {
        let from = match before.len().checked_sub(self.distance) {
            Some(start) => before.get(start..),
            None => self
                .window
                .len()
                .checked_add(before.len())
                .and_then(|all| all.checked_sub(self.distance))
                .and_then(|start| self.window.get(start..)),
        };
        let from = from
            .filter(|from| !from.is_empty())
            .ok_or_else(|| self.damaged("a match reaches back to before the start"))?;
        // a match may reach into itself: each call copies only what is decoded already
        let len = from.len().min(at_most(self.matched, rest.len()));
        if let (Some(target), Some(from)) = (rest.get_mut(..len), from.get(..len)) {
            target.copy_from_slice(from);
        }
        self.matched = self.matched.saturating_sub(len_u64(len));
        Ok(len)
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.fill()?.first().copied();
        self.input.take(1);
        byte.ok_or_else(|| self.damaged("it ends early"))
    }

    /// The stored bytes that follow, at least one.
    fn fill(&mut self) -> Result<&[u8]> {
        if self.input.position() >= self.end {
            return Err(self.damaged("it ends early"));
        }
        self.input.fill(self.stored.as_ref(), self.end)
    }

    fn damaged(&self, why: &str) -> Error {
        corrupt(format!(
            "LZ4 block that ends at stored byte {}: {why}",
            self.end
        ))
    }
}

impl Pieces for LongBlock {
    fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    fn held(&self) -> u64 {
        self.input
            .held()
            .saturating_add(len_u64(self.window.capacity()))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            let (before, rest) = buf.split_at_mut(filled);
            let len = if self.literals > 0 {
                self.copy_literals(rest)?
            } else if self.matched > 0 {
                self.copy_match(before, rest)?
            } else {
                self.next_sequence()?;
                0
            };
            filled = filled.saturating_add(len);
        }
        self.left = self.left.saturating_sub(len_u64(buf.len()));
        let is_at_end =
            self.input.position() >= self.end && self.literals == 0 && self.matched == 0;
        if self.left == 0 && !is_at_end {
            return Err(self.damaged("it goes on behind its size"));
        }
        // the next read has another buffer, and its matches reach back into this one
        keep_last(&mut self.window, WINDOW, buf);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::chunks::ChunkStart;
    use crate::source::Memory;
    use proptest::prelude::*;

    fn decode(block: &[u8], size: usize, step: usize) -> Result<Vec<u8>> {
        let stored = Arc::new(Memory::new([b"xx12345678", block].concat()));
        let chunk = Lz4Chunk {
            at: ChunkStart { start: 0, mark: 2 },
            len: block.len() as u32,
            size: size as u32,
        };
        let mut long = LongBlock::new(stored, &chunk);
        let mut out = vec![0; size];
        for piece in out.chunks_mut(step) {
            long.read(piece)?;
        }
        Ok(out)
    }

    /// Bytes were missing then, without an error. A block that is decoded in one piece of memory is refused.
    #[test]
    fn a_block_of_more_bytes_than_announced_is_refused() {
        let plain = b"abcdefgh".repeat(100);
        let block = lz4_flex::block::compress(&plain);
        for step in [7, 800] {
            assert!(decode(&block, 800, step).unwrap() == plain);
            for size in [3, 10, 792, 799] {
                assert!(decode(&block, size, step).is_err(), "{size}");
            }
            assert!(decode(&[&block[..], &[0]].concat(), 800, step).is_err());
        }
    }

    proptest! {
        #[test]
        fn decodes_what_the_crate_encodes(
            runs in prop::collection::vec((prop::collection::vec(0u8..4, 1..40), 1usize..3000), 1..12),
            step in 1usize..100_000,
        ) {
            let plain: Vec<u8> = runs
                .iter()
                .flat_map(|(bytes, times)| bytes.repeat(*times))
                .collect();
            let block = lz4_flex::block::compress(&plain);
            prop_assert!(decode(&block, plain.len(), step).unwrap() == plain);
        }

        #[test]
        fn agrees_with_the_crate_on_random_bytes(block in prop::collection::vec(any::<u8>(), 1..60)) {
            let mut want = vec![0; 5000];
            if let Ok(len) = lz4_flex::block::decompress_into(&block, &mut want) {
                prop_assert_eq!(decode(&block, len, 7).unwrap(), &want[..len]);
            }
        }
    }
}
