//! Edits in front of a source whose bytes stay the same: what was written is in scratch bytes, everything else comes from below.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{ScratchBytes, Source, checked_end, len_u64};
use crate::error::{Error, Place, Result};

/// A source with edits. Memory grows with the number of separate pieces that were written, never with their bytes.
pub struct Overlay {
    base: RwLock<Arc<dyn Source>>,
    edits: RwLock<Edits>,
}

/// Which bytes come from where.
#[derive(Debug)]
struct Edits {
    len: u64,
    /// Length of the base that is still visible. Behind it, bytes that were not written are zeros.
    base_len: u64,
    /// Written pieces by their start, with their end; apart from each other.
    pieces: BTreeMap<u64, u64>,
    /// Their bytes, at the offsets that they have in the edited source.
    written: ScratchBytes,
}

impl Overlay {
    /// `base` without edits yet. Writes go into `written`, which is empty.
    #[must_use]
    pub fn new(base: Arc<dyn Source>, written: ScratchBytes) -> Self {
        let len = base.len();
        let edits = Edits {
            len,
            base_len: len,
            pieces: BTreeMap::new(),
            written,
        };
        Self {
            base: RwLock::new(base),
            edits: RwLock::new(edits),
        }
    }

    /// Reads the bytes of the base from another source from now on, because they have moved. They must be the same.
    pub fn rebase(&self, base: Arc<dyn Source>) {
        *self.base.write().unwrap_or_else(PoisonError::into_inner) = base;
    }

    /// How many bytes the base has.
    #[must_use]
    pub fn base_len(&self) -> u64 {
        self.base().len()
    }

    fn base(&self) -> Arc<dyn Source> {
        Arc::clone(&self.base.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read_edits(&self) -> RwLockReadGuard<'_, Edits> {
        self.edits.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_edits(&self) -> RwLockWriteGuard<'_, Edits> {
        self.edits.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `data` at `offset`; a hole before it reads as zeros.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] beyond 2^63.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = checked_end(offset, data.len(), i64::MAX.unsigned_abs())?;
        let mut edits = self.write_edits();
        // the bytes first: a write that fails must not leave a piece without them
        edits.written.write(offset, data)?;
        edits.add(offset, end);
        edits.len = edits.len.max(end);
        Ok(())
    }

    /// Sets the length; what is added reads as zeros.
    pub fn resize(&self, len: u64) {
        let mut edits = self.write_edits();
        edits.len = len;
        // cut off for good: if it grows later, zeros are there and not the base
        edits.base_len = edits.base_len.min(len);
        edits.cut(len);
    }

    /// All bytes in order, in parts: start and end of each, and whether its bytes are the base's at their old place.
    #[must_use]
    pub fn parts(&self) -> Vec<((u64, u64), bool)> {
        let edits = self.read_edits();
        let mut out = Vec::new();
        let mut at = 0;
        while at < edits.len {
            let (origin, end) = edits.at(at);
            out.push(((at, end), matches!(origin, Layer::Base)));
            at = end;
        }
        out
    }

    /// The ranges whose bytes may differ from the base, in order. Bytes that were cut off at the end are not among them.
    #[must_use]
    pub fn touched(&self) -> Vec<Range<u64>> {
        self.parts()
            .into_iter()
            .filter(|&(_, kept)| !kept)
            .map(|((start, end), _)| start..end)
            .collect()
    }
}

impl Edits {
    /// Adds a written piece, and joins it with pieces that it touches.
    fn add(&mut self, mut start: u64, mut end: u64) {
        // an empty write must not join two pieces into one
        if start == end {
            return;
        }
        // with `..=` also a piece that begins where this
        // one ends: writes in sequence make one piece
        while let Some((&found, &found_end)) = self.pieces.range(..=end).next_back() {
            if found_end < start {
                break;
            }
            self.pieces.remove(&found);
            start = start.min(found);
            end = end.max(found_end);
        }
        self.pieces.insert(start, end);
    }

    /// Forgets what was written from `len` on.
    fn cut(&mut self, len: u64) {
        self.pieces.split_off(&len);
        if let Some(mut last) = self.pieces.last_entry() {
            let end = len.min(*last.get());
            last.insert(end);
        }
        // Reads go by the pieces: an error only means that
        // the disk gets its space back when the edit ends.
        let _ = self.written.resize(len.min(self.written.len()));
    }

    /// The layer of the byte at `at`, and where that layer ends at the latest.
    fn at(&self, at: u64) -> (Layer, u64) {
        match gap_at(&self.pieces, at, self.len) {
            (false, end) => (Layer::Written, end),
            (true, next) if at < self.base_len => (Layer::Base, next.min(self.base_len)),
            (true, next) => (Layer::Zeros, next),
        }
    }
}

/// Whether `at` lies between pieces, and where that, or the piece that it lies in, ends: at `end` at the latest.
fn gap_at(pieces: &BTreeMap<u64, u64>, at: u64, end: u64) -> (bool, u64) {
    let before = pieces.range(..=at).next_back().map(|(_, &end)| end);
    if let Some(covered) = before.filter(|&covered| covered > at) {
        return (false, covered.min(end));
    }
    let next = pieces.range(at..).next().map_or(end, |(&start, _)| start);
    (true, next.min(end))
}

enum Layer {
    Written,
    Base,
    Zeros,
}

impl Source for Overlay {
    fn len(&self) -> u64 {
        self.read_edits().len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let edits = self.read_edits();
        checked_end(offset, buf.len(), edits.len)?;
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let (origin, end) = edits.at(at);
            let len = usize::try_from(end.saturating_sub(at))
                .unwrap_or(usize::MAX)
                .min(rest.len());
            // never taken as long as the pieces are right: without it the loop would not end
            if len == 0 {
                return Err(Error::corrupt(
                    Place::Byte(at),
                    "beyond the end of the edit",
                ));
            }
            let (part, behind) = rest.split_at_mut(len);
            match origin {
                Layer::Base => self.base().read_exact_at(part, at)?,
                Layer::Zeros => part.fill(0),
                Layer::Written => edits.written.read_exact_at(part, at)?,
            }
            at = at.saturating_add(len_u64(len));
            rest = behind;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Memory, ScratchRoom, read_all};
    use proptest::prelude::*;

    /// Nothing, for what is written.
    fn part() -> ScratchBytes {
        ScratchBytes::new(&ScratchRoom::new(u64::MAX, &std::env::temp_dir()))
    }

    #[derive(Debug, Clone)]
    enum Edit {
        Write(u8, Vec<u8>),
        Resize(u8),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            (0u8..60, prop::collection::vec(1u8.., 0..20))
                .prop_map(|(at, data)| Edit::Write(at, data)),
            (0u8..60).prop_map(Edit::Resize),
        ]
    }

    proptest! {
        #[test]
        fn edits_read_back_like_those_of_a_vector(
            base in prop::collection::vec(1u8.., 0..50),
            edits in prop::collection::vec(edit(), 0..12),
        ) {
            let overlay = Overlay::new(Arc::new(Memory::new(base.clone())), part());
            let mut model = base.clone();
            for edit in edits {
                match edit {
                    Edit::Write(at, data) => {
                        let at = usize::from(at);
                        overlay.write(at as u64, &data).unwrap();
                        model.resize(model.len().max(at + data.len()), 0);
                        model[at..at + data.len()].copy_from_slice(&data);
                    }
                    Edit::Resize(len) => {
                        overlay.resize(u64::from(len));
                        model.resize(usize::from(len), 0);
                    }
                }
                prop_assert_eq!(&read_all(&overlay, 1000).unwrap(), &model);
            }
            let mut at = 0;
            for ((start, end), _) in overlay.parts() {
                prop_assert!(start == at && end > start);
                at = end;
            }
            prop_assert_eq!(at, overlay.len());
            let touched = overlay.touched();
            prop_assert!(touched.windows(2).all(|two| two[0].end <= two[1].start));
            // what is touched, written over the base, is the edited source
            let mut rebuilt = base;
            rebuilt.resize(model.len(), 0xee);
            for range in touched {
                let range = range.start as usize..range.end as usize;
                rebuilt[range.clone()].copy_from_slice(&model[range]);
            }
            prop_assert_eq!(rebuilt, model);
        }
    }

    #[test]
    fn the_base_may_move() {
        let base = |bytes: &[u8]| Arc::new(Memory::new(bytes.to_vec()));
        let overlay = Overlay::new(base(b"abc"), part());
        overlay.write(1, b"B").unwrap();
        overlay.rebase(base(b"xyz"));
        assert_eq!(read_all(&overlay, 100).unwrap(), b"xBz");
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let overlay = Overlay::new(Arc::new(Memory::new(b"secret".to_vec())), part());
        overlay.write(0, b"SE").unwrap();
        overlay.resize(1);
        overlay.resize(6);
        assert_eq!(read_all(&overlay, 100).unwrap(), b"S\0\0\0\0\0");
    }
}
