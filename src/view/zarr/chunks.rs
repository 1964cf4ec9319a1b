//! How an array is cut into chunks, and the directories that hold them (Zarr core specification 3, regular grids and the default
//! encoding of chunk keys): all of it is computed, as there may be millions.
//!
//! A chunk is a range of the elements in C order: whole rows of one axis, for one index of each axis before it. Only the last chunk
//! along that axis may reach beyond the array, and is padded.

use std::ops::Range;

use crate::view::product;

/// Most bytes of a chunk.
pub(crate) const MOST: u64 = 4 << 20;

/// The chunks of an array, by number in C order of their grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// The lengths of a chunk's axes, the slowest first.
    shape: Vec<u64>,
    /// How many chunks there are along each axis.
    grid: Vec<u64>,
    /// Bytes of a chunk.
    len: u64,
    /// Chunks along the axis that is cut; 1 if none is.
    along: u64,
    /// Bytes of the array for one index of each axis before that.
    stretch: u64,
}

impl Chunks {
    /// The chunks of an array of that shape. `None` if an element has no bytes, or more than a chunk may have, or the array 2^63 or more.
    pub(crate) fn of(shape: &[u64], itemsize: u64) -> Option<Self> {
        Self::cut(shape, itemsize, MOST)
    }

    /// The chunks of `len` bytes each of an array of that shape, if all are whole and have whole rows.
    pub(crate) fn of_len(shape: &[u64], itemsize: u64, len: u64) -> Option<Self> {
        // chunks of an equal, smaller length would do as well, but are not those that are stored
        let chunks = Self::cut(shape, itemsize, len).filter(|it| it.len == len)?;
        chunks.stretch.is_multiple_of(len).then_some(chunks)
    }

    /// The largest chunks of at most so many bytes.
    fn cut(shape: &[u64], itemsize: u64, most: u64) -> Option<Self> {
        if itemsize == 0 || itemsize > most {
            return None;
        }
        if shape.contains(&0) {
            return Some(Self {
                shape: vec![1; shape.len()],
                grid: vec![0; shape.len()],
                len: itemsize,
                along: 0,
                stretch: 0,
            });
        }
        let mut chunk = vec![1; shape.len()];
        // from the fastest axis on, as many as fit; the next one is cut
        let (mut len, mut along, mut stretch) = (itemsize, 1, itemsize);
        let mut whole = true;
        for (part, count) in chunk.iter_mut().zip(shape).rev() {
            if whole {
                stretch = len.checked_mul(*count)?;
                let rows = most.checked_div(len)?.max(1);
                along = count.div_ceil(rows);
                // of equal lengths, so that little is padded
                *part = count.div_ceil(along);
                len = len.checked_mul(*part)?;
                whole = along == 1;
            }
        }
        let grid = shape.iter().zip(&chunk);
        let grid: Option<Vec<u64>> = grid.map(|(n, part)| Some(n.div_ceil(*part))).collect();
        let bytes = product(shape)?.checked_mul(itemsize)?;
        i64::try_from(bytes).ok()?;
        Some(Self {
            shape: chunk,
            grid: grid?,
            len,
            along,
            stretch,
        })
    }

    /// The lengths of a chunk's axes, the slowest first.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// How many chunks there are.
    pub(crate) fn count(&self) -> u64 {
        let axes = self.grid.iter();
        axes.fold(1, |count, along| count.saturating_mul(*along))
    }

    /// Bytes of a chunk.
    pub(crate) fn chunk_len(&self) -> u64 {
        self.len
    }

    /// Where the bytes of a chunk are among those of the elements in C order; fewer than [`Chunks::chunk_len`] if it is to be padded.
    pub(crate) fn extent(&self, chunk: u64) -> Option<Range<u64>> {
        let before = chunk.checked_div(self.along)?.checked_mul(self.stretch)?;
        let inside = chunk.checked_rem(self.along)?.checked_mul(self.len)?;
        let start = before.checked_add(inside)?;
        let end = before.checked_add(self.stretch.min(inside.checked_add(self.len)?))?;
        Some(start..end).filter(|_| chunk < self.count())
    }

    /// How many directories fewer indices than that lead to.
    fn above(&self, depth: usize) -> u64 {
        let axes = self.grid.iter().take(depth);
        let (above, _) = axes.fold((0_u64, 1_u64), |(above, count), along| {
            (above.saturating_add(count), count.saturating_mul(*along))
        });
        above
    }

    /// How many directories there are, `c` among them: none of an array without axes, whose only chunk is `c`.
    pub(crate) fn directories(&self) -> u64 {
        self.above(self.grid.len())
    }

    /// The place of the chunk of that number. Place 0 is `c`; then come what is in it, what is in that, and so on, and the chunks last.
    pub(crate) fn place(&self, chunk: u64) -> u64 {
        self.directories().saturating_add(chunk)
    }

    /// The number of the chunk at a place; none of a directory.
    pub(crate) fn chunk(&self, place: u64) -> Option<u64> {
        place.checked_sub(self.directories())
    }

    /// How many indices lead to a place from `c`, and its number among those of that depth, in C order.
    fn depth(&self, mut place: u64) -> (usize, u64) {
        let mut count = 1_u64;
        for (depth, along) in self.grid.iter().enumerate() {
            match place.checked_sub(count) {
                Some(rest) => place = rest,
                None => return (depth, place),
            }
            count = count.saturating_mul(*along);
        }
        (self.grid.len(), place)
    }

    /// The place that a directory holds under that index, if it does.
    pub(crate) fn entry(&self, directory: u64, index: u64) -> Option<u64> {
        let (depth, at) = self.depth(directory);
        let along = *self.grid.get(depth)?;
        let first = at.checked_mul(along)?;
        let at = first.checked_add(index).filter(|_| index < along)?;
        at.checked_add(self.above(depth.checked_add(1)?))
    }

    /// The indices that lead to a place.
    pub(crate) fn indices(&self, place: u64) -> Vec<u64> {
        let (depth, mut at) = self.depth(place);
        let axes = self.grid.iter().take(depth).rev();
        let indices = axes.map(|along| {
            let index = at.checked_rem(*along).unwrap_or(0);
            at = at.checked_div(*along).unwrap_or(0);
            index
        });
        let mut indices: Vec<u64> = indices.collect();
        indices.reverse();
        indices
    }

    /// The key of a place below the array: `c/3/0`.
    pub(crate) fn key(&self, place: u64) -> String {
        let indices = self.indices(place).into_iter();
        let indices = indices.map(|index| format!("/{index}"));
        "c".to_owned() + &indices.collect::<String>()
    }

    /// The index that a name is, as keys spell it.
    pub(crate) fn index(name: &str) -> Option<u64> {
        let index: u64 = name.parse().ok()?;
        (index.to_string() == name).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(shape: &[u64], itemsize: u64) -> Chunks {
        Chunks::of(shape, itemsize).unwrap()
    }

    #[test]
    fn rows_are_kept_whole_as_far_as_they_fit() {
        for (shape, itemsize, chunk, grid) in [
            (&[4096, 4096][..], 4, &[256, 4096][..], &[16, 1][..]),
            (&[10, 4096, 4096], 4, &[1, 256, 4096], &[10, 16, 1]),
            (&[3, 5], 8, &[3, 5], &[1, 1]),
            (&[5 << 20], 1, &[5 << 19], &[2]),
            (&[2, 3 << 20], 4, &[1, 1 << 20], &[2, 3]),
            (&[7], 4 << 20, &[1], &[7]),
            (&[], 8, &[], &[]),
            (&[1 << 40, 0], 8, &[1, 1], &[0, 0]),
        ] {
            let found = of(shape, itemsize);
            assert_eq!((&*found.shape, &*found.grid), (chunk, grid), "{shape:?}");
        }
    }

    #[test]
    fn chunks_of_a_length_are_whole_rows() {
        for (shape, itemsize, len, chunk) in [
            (&[4096, 4096][..], 4, 4 << 20, Some(&[256, 4096][..])),
            (&[6, 4], 2, 16, Some(&[2, 4])),
            (&[6, 4], 2, 8, Some(&[1, 4])),
            (&[6, 4], 2, 4, Some(&[1, 2])),
            (&[2, 3, 4], 1, 12, Some(&[1, 3, 4])),
            (&[2, 3, 4], 1, 24, Some(&[2, 3, 4])),
            (&[], 8, 8, Some(&[])),
            // ends within a row, does not divide the rows, is longer, or shorter than an element
            (&[6, 4], 2, 12, None),
            (&[6, 4], 2, 32, None),
            (&[6, 4], 2, 96, None),
            (&[6, 4], 2, 1, None),
            (&[6, 4], 2, 0, None),
        ] {
            let found = Chunks::of_len(shape, itemsize, len);
            let found = found.as_ref().map(|found| &*found.shape);
            assert_eq!(found, chunk, "{shape:?} {len}");
        }
        let chunks = Chunks::of_len(&[6, 4], 2, 4).unwrap();
        assert_eq!(chunks.count(), 12);
        assert_eq!(chunks.indices(chunks.place(3)), [1, 1]);
        assert_eq!(chunks.extent(3), Some(12..16));
    }

    #[test]
    fn what_has_no_end_has_no_chunks() {
        for (shape, itemsize) in [
            (&[1 << 62, 2][..], 1),
            (&[u64::MAX, u64::MAX], 8),
            (&[2], 0),
            (&[2], MOST + 1),
        ] {
            assert_eq!(Chunks::of(shape, itemsize), None, "{shape:?}");
        }
        assert_eq!(of(&[1 << 59], 8).count(), 1 << 40);
    }

    #[test]
    fn keys_lead_through_all_directories() {
        let chunks = of(&[3, 2 << 20, 2], 4);
        assert_eq!(chunks.grid, [3, 4, 1]);
        assert_eq!((chunks.count(), chunks.directories()), (12, 1 + 3 + 12));
        let (mut keys, mut places) = (Vec::new(), vec![0]);
        let mut open = vec![0];
        while let Some(directory) = open.pop() {
            for place in (0..).map_while(|index| chunks.entry(directory, index)) {
                keys.push(chunks.key(place));
                places.push(place);
                match chunks.chunk(place) {
                    Some(chunk) => assert_eq!(place, chunks.place(chunk)),
                    None => open.push(place),
                }
            }
        }
        assert_eq!(keys.len(), 3 + 12 + 12);
        assert!(keys.contains(&"c/2/3".to_owned()));
        assert!(keys.contains(&"c/2/3/0".to_owned()));
        places.sort_unstable();
        assert_eq!(places, (0..28).collect::<Vec<_>>(), "each once");
        assert_eq!((chunks.chunk(15), chunks.chunk(16)), (None, Some(0)));
        let none = of(&[], 8);
        assert_eq!((none.count(), none.directories()), (1, 0));
        assert_eq!(none.key(none.place(0)), "c");
        assert_eq!(none.extent(0), Some(0..8));
        let empty = of(&[4, 0], 8);
        assert_eq!((empty.count(), empty.directories()), (0, 1));
    }

    #[test]
    fn an_index_has_one_spelling() {
        assert_eq!(Chunks::index("10"), Some(10));
        for name in ["01", "+1", "-1", "", "c", "1.0"] {
            assert_eq!(Chunks::index(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_chunk(
            shape in proptest::collection::vec(1_u64..2000, 0..4),
            itemsize in prop_oneof![Just(1_u64), Just(8), Just(700_000)],
        ) {
            let chunks = of(&shape, itemsize);
            prop_assert!(chunks.chunk_len() <= MOST);
            let bytes: u64 = shape.iter().product::<u64>() * itemsize;
            // at the start of each chunk that begins where the one before it ends, up to the last
            let (last, mut at) = (chunks.count().min(1000), 0);
            for chunk in 0..last {
                let extent = chunks.extent(chunk).unwrap();
                prop_assert_eq!(extent.start, at);
                prop_assert!(extent.end - extent.start <= chunks.chunk_len());
                at = extent.end;
            }
            if last == chunks.count() {
                prop_assert_eq!(at, bytes);
            }
            prop_assert_eq!(chunks.extent(chunks.count()), None);
        }
    }
}
