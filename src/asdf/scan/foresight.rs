//! Telling a source that lies far away which headers are going to be read.

use super::index_hint::IndexHint;
use crate::error::Result;
use crate::source::Source;

/// Headers that are told of at once; as many more when half of them have been read.
const AT_ONCE: usize = 32;

/// Where the block index says that headers are. It need not be right: each header is read all the same, and a wrong one has bytes
/// brought that are not wanted.
#[derive(Default)]
pub(super) struct Foresight {
    offsets: Vec<u64>,
    /// So many of them the source has been told of.
    told: usize,
}

impl Foresight {
    /// That of a file whose text ends there; nothing if `source` has no use for it.
    pub(super) fn of(source: &dyn Source, text_end: u64) -> Result<Self> {
        if !source.expect(&[]) {
            return Ok(Self::default());
        }
        let hint = IndexHint::read(source, text_end)?;
        Ok(Self {
            offsets: hint.map(|hint| hint.offsets).unwrap_or_default(),
            told: 0,
        })
    }

    /// Tells of what comes next, as the header at `at` is going to be read.
    pub(super) fn tell(&mut self, source: &dyn Source, at: u64) {
        let half = self.told.saturating_sub(AT_ONCE / 2);
        let is_near = self.told == 0 || self.offsets.get(half).is_some_and(|&near| near <= at);
        let next = self.offsets.get(self.told..).unwrap_or_default();
        if is_near && !next.is_empty() {
            let next = next.get(..AT_ONCE).unwrap_or(next);
            source.expect(next);
            self.told = self.told.saturating_add(next.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;
    use crate::asdf::sample::Sample;
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
            assert_eq!(*far.1.lock().unwrap(), offsets);
        }
        let mut wrong = Sample::new().block(&[7; 99]).index(false).bytes();
        let first = Sample::TREE.len() as u64;
        wrong.extend(crate::asdf::layout::index_text(&[first, first + 60]));
        let far = Far(wrong, Mutex::default());
        assert_eq!(scan(&far, false).unwrap().layout.blocks.len(), 1);
    }
}
