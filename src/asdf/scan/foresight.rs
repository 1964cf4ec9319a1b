//! Announces the next headers to a remote source, so that it can fetch several at once.

use super::walk::BlockWalk;
use crate::error::Result;

/// Headers that are announced at once. As many follow when half of them have been read.
const AT_ONCE: usize = 32;

impl BlockWalk<'_> {
    /// Announces the headers that come next, before the one at `at` is read, to a source that has a use for that.
    ///
    /// The offsets come from the block index, which may be wrong. Each header is still read; a wrong offset only
    /// fetches bytes that nobody needs.
    pub(super) fn foretell(&mut self, at: u64) -> Result<()> {
        // to fetch the index for a single header would take as long as to fetch the header
        let is_single = || self.blocks_needed().is_some_and(|needed| needed < 2);
        // an empty list asks whether the source has a use for any
        if !self.source.expect(&[]) || self.layout.blocks.is_empty() && is_single() {
            return Ok(());
        }
        let Some(hint) = self.hint()? else {
            return Ok(());
        };
        // half of the last batch has been read
        let half = self.foretold.saturating_sub(AT_ONCE / 2);
        let is_near = self.foretold == 0 || hint.offsets.get(half).is_some_and(|&near| near <= at);
        let next = hint.offsets.get(self.foretold..).unwrap_or_default();
        if is_near && !next.is_empty() {
            let next = next.get(..AT_ONCE).unwrap_or(next);
            self.source.expect(next);
            self.foretold = self.foretold.saturating_add(next.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::source::Source;
    use std::sync::Mutex;

    /// A file far away, which notes what it is told.
    struct Far(Vec<u8>, Mutex<Vec<u64>>);

    impl Source for Far {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            let start = usize::try_from(offset).unwrap();
            buf.copy_from_slice(&self.0[start..start + buf.len()]);
            Ok(())
        }

        fn expect(&self, headers: &[u64]) -> bool {
            self.1.lock().unwrap().extend(headers);
            true
        }
    }

    #[test]
    fn a_source_far_away_is_told_of_each_header_once_and_a_wrong_index_costs_no_block() {
        for count in [0, 1, 31, 32, 33, 100] {
            let sample = (0..count).fold(Sample::new(), |sample, _| sample.block(&[7; 9]));
            let bytes = sample.bytes();
            let far = Far(bytes, Mutex::default());
            let layout = scan(&far, false).unwrap().layout;
            let offsets: Vec<u64> = layout.blocks.iter().map(|block| block.offset).collect();
            assert_eq!(offsets.len(), count);
            // the tree needs none: so what lies behind the first one is told when it is known to be there
            let want = if count == 1 { Vec::new() } else { offsets };
            assert_eq!(*far.1.lock().unwrap(), want);
        }
        let mut wrong = Sample::new().block(&[7; 99]).index(false).bytes();
        let first = Sample::TREE.len() as u64;
        wrong.extend(crate::asdf::layout::index_text(&[first, first + 60]));
        let far = Far(wrong, Mutex::default());
        assert_eq!(scan(&far, false).unwrap().layout.blocks.len(), 1);
    }
}
