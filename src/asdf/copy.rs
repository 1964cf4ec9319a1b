//! Elements copied from one layout in memory to another, fast enough not to be noticed beside the reading.
//!
//! The kernels are written for sizes known to the compiler (1, 2, 4, 8 and 16 bytes), and a transposition goes in blocks of
//! one cache line's width, so that each line is written whole.
#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "`copy` proves at its entrance that every position lies inside both slices"
)]

/// A series of positions in both layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CopyAxis {
    /// Number of positions, at least 1.
    pub(super) count: usize,
    /// Bytes from one position to the next where bytes are read.
    pub(super) from: isize,
    /// Bytes from one position to the next where they are written.
    pub(super) to: isize,
}

impl CopyAxis {
    /// The same positions for the way back.
    pub(super) fn turned_back(self) -> Self {
        Self {
            count: self.count,
            from: self.to,
            to: self.from,
        }
    }
}

/// Bytes of a cache line: the width of a block where it is written.
const LINE: usize = 64;

/// Lines of a block. With more lines written in turn, the processor does not fetch all of them ahead.
const HEIGHT: usize = 8;

/// Copies `run` bytes at every position of `steps`, from `from` beginning at `from_at` to `to` beginning at `to_at`.
///
/// Returns `None`, with nothing copied, if a position lies outside of a slice.
#[must_use]
pub(super) fn copy(
    (from, from_at): (&[u8], usize),
    (to, to_at): (&mut [u8], usize),
    steps: &[CopyAxis],
    run: usize,
) -> Option<()> {
    let reads = steps.iter().map(|step| (step.count, step.from));
    let writes = steps.iter().map(|step| (step.count, step.to));
    if !fits(from.len(), from_at, run, reads) || !fits(to.len(), to_at, run, writes) {
        return None;
    }
    let mut copier = Copier {
        from,
        to,
        run,
        outer: steps
            .iter()
            .filter(|step| step.count > 1)
            .copied()
            .collect(),
        along: None,
        across: None,
    };
    // the longer the run, the fewer the copies
    copier.widen();
    let (from_at, to_at) = copier.choose(from_at, to_at);
    // taken out, because the walk changes the copier while it goes over them
    let outer = std::mem::take(&mut copier.outer);
    copier.walk(&outer, from_at, to_at);
    Some(())
}

/// Whether `run` bytes at every position lie inside a slice of `len` bytes.
fn fits(len: usize, at: usize, run: usize, steps: impl Iterator<Item = (usize, isize)>) -> bool {
    // Every operation here is checked. This proof is what lets
    // the kernels index and add without checks of their own.
    let reach = |(low, high): (usize, usize), (count, step): (usize, isize)| {
        let far = count.checked_sub(1)?.checked_mul(step.unsigned_abs())?;
        Some(if step < 0 {
            (low.checked_sub(far)?, high)
        } else {
            (low, high.checked_add(far)?)
        })
    };
    at.checked_add(run)
        .and_then(|end| steps.into_iter().try_fold((at, end), reach))
        .is_some_and(|(_, end)| end <= len)
}

struct Copier<'a> {
    from: &'a [u8],
    to: &'a mut [u8],
    run: usize,
    outer: Vec<CopyAxis>,
    /// The step that is smallest where bytes are written; there it is positive.
    along: Option<CopyAxis>,
    /// The step that is smallest where bytes are read, if it is another one; there it is positive.
    across: Option<CopyAxis>,
}

impl Copier<'_> {
    /// Takes steps that lie together in both layouts into the run.
    fn widen(&mut self) {
        let together =
            |step: &CopyAxis, run| usize::try_from(step.from) == Ok(run) && step.from == step.to;
        while let Some(i) = self.outer.iter().position(|step| together(step, self.run)) {
            // the order of the steps is free until `choose` sorts them
            self.run *= self.outer.swap_remove(i).count;
        }
    }

    /// Picks the two inner steps and turns them round where needed; returns the beginnings that follow from that.
    fn choose(&mut self, mut from_at: usize, mut to_at: usize) -> (usize, usize) {
        self.outer
            .sort_by_key(|step| std::cmp::Reverse(step.to.unsigned_abs()));
        // Begins at the other end and walks back: the positions
        // stay the same ones, so the proof of `fits` holds.
        let mut turned = |step: CopyAxis| {
            let last = step.count.cast_signed() - 1;
            from_at = from_at.wrapping_add_signed(last * step.from);
            to_at = to_at.wrapping_add_signed(last * step.to);
            CopyAxis {
                count: step.count,
                from: -step.from,
                to: -step.to,
            }
        };
        let smallest = |steps: &[CopyAxis]| {
            let steps = steps.iter().enumerate();
            steps
                .min_by_key(|(_, step)| step.from.unsigned_abs())
                .map(|(i, _)| i)
        };
        let read_first = smallest(&self.outer);
        // sorted, so the last step is the smallest where bytes are written
        let written_first = self.outer.len().checked_sub(1);
        self.along = self
            .outer
            .pop()
            .map(|step| if step.to < 0 { turned(step) } else { step });
        // A step that is smallest on both sides leaves nothing to transpose. Another
        // one lies in front of the step that was popped, so its index is still right.
        if read_first != written_first {
            let step = read_first.map(|i| self.outer.remove(i));
            self.across = step.map(|step| if step.from < 0 { turned(step) } else { step });
        }
        (from_at, to_at)
    }

    /// Copies at every position of `steps`.
    fn walk(&mut self, steps: &[CopyAxis], from_at: usize, to_at: usize) {
        let Some((step, rest)) = steps.split_first() else {
            return self.inner(from_at, to_at);
        };
        let (mut from_at, mut to_at) = (from_at, to_at);
        for _ in 0..step.count {
            self.walk(rest, from_at, to_at);
            // wrapping, because the position behind the
            // last may lie before the slice; it is not used
            from_at = from_at.wrapping_add_signed(step.from);
            to_at = to_at.wrapping_add_signed(step.to);
        }
    }

    /// Copies along and across, with the kernel for the length of the run.
    fn inner(&mut self, from_at: usize, to_at: usize) {
        // A length that the compiler knows makes each copy one move instead of a call.
        match self.run {
            1 => self.plane::<1, LINE>(from_at, to_at),
            2 => self.plane::<2, { LINE / 2 }>(from_at, to_at),
            4 => self.plane::<4, { LINE / 4 }>(from_at, to_at),
            8 => self.plane::<8, { LINE / 8 }>(from_at, to_at),
            16 => self.plane::<16, { LINE / 16 }>(from_at, to_at),
            _ => self.rows(from_at, to_at),
        }
    }

    /// Copies along and across, elements of `N` bytes in blocks of `W` × [`HEIGHT`] where both layouts allow it.
    fn plane<const N: usize, const W: usize>(&mut self, from_at: usize, to_at: usize) {
        let Some(along) = self.along else {
            return self.rows(from_at, to_at);
        };
        let Some(across) = self.across else {
            return self.line::<N>((from_at, to_at), along);
        };
        let at = |x: usize, y: usize| {
            let (x, y) = (x.cast_signed(), y.cast_signed());
            (
                from_at.wrapping_add_signed(x * along.from + y * across.from),
                to_at.wrapping_add_signed(x * along.to + y * across.to),
            )
        };
        // a block needs neighbours on both sides: along
        // where it is written, across where it is read
        let blocks = along.to == N.cast_signed() && across.from == N.cast_signed();
        // The rest beside the blocks, or a plane without
        // blocks, goes in lines: the longer, the faster.
        let (width, height) = if blocks {
            (along.count / W * W, across.count / HEIGHT * HEIGHT)
        } else if along.count < W {
            (0, 0)
        } else {
            (along.count, 0)
        };
        for y in (0..height).step_by(HEIGHT) {
            for x in (0..width).step_by(W) {
                match N {
                    1 => self.block_of_bytes(at(x, y), along.from, across.to),
                    _ => self.block::<N, W>(at(x, y), along.from, across.to),
                }
            }
        }
        for y in height..across.count {
            let count = width;
            self.line::<N>(at(0, y), CopyAxis { count, ..along });
        }
        for x in width..along.count {
            self.line::<N>(at(x, 0), across);
        }
    }

    /// Transposes one block.
    fn block<const N: usize, const W: usize>(
        &mut self,
        (from_at, to_at): (usize, usize),
        from_step: isize,
        to_step: isize,
    ) {
        // LINE × HEIGHT = 512 bytes, which stay in the nearest cache
        let mut block = [[[0; N]; W]; HEIGHT];
        let mut at = from_at;
        for x in 0..W {
            let (cells, _) = self.from[at..][..HEIGHT * N].as_chunks::<N>();
            for (row, cell) in block.iter_mut().zip(cells) {
                row[x] = *cell;
            }
            at = at.wrapping_add_signed(from_step);
        }
        let mut at = to_at;
        for row in &block {
            self.to[at..][..W * N].copy_from_slice(row.as_flattened());
            at = at.wrapping_add_signed(to_step);
        }
    }

    /// Transposes one block of single bytes, eight by eight of them at a time in the registers.
    fn block_of_bytes(
        &mut self,
        (from_at, to_at): (usize, usize),
        from_step: isize,
        to_step: isize,
    ) {
        let mut block = [[[0; 8]; LINE / 8]; HEIGHT];
        let mut at = from_at;
        // `x` counts groups of eight bytes of a line
        for x in 0..LINE / 8 {
            let mut words = [0; HEIGHT];
            for word in &mut words {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&self.from[at..][..8]);
                *word = u64::from_le_bytes(bytes);
                at = at.wrapping_add_signed(from_step);
            }
            for (row, word) in block.iter_mut().zip(transposed(words)) {
                row[x] = word.to_le_bytes();
            }
        }
        let mut at = to_at;
        for row in &block {
            self.to[at..][..LINE].copy_from_slice(row.as_flattened());
            at = at.wrapping_add_signed(to_step);
        }
    }

    /// Copies elements of `N` bytes along one step.
    fn line<const N: usize>(&mut self, (from_at, to_at): (usize, usize), step: CopyAxis) {
        let Some(last) = step.count.checked_sub(1) else {
            return;
        };
        // chunks can't go backward or overlap; such steps go cell by cell
        let forward = |step| usize::try_from(step).ok().filter(|&step| step >= N);
        let (mut from_at, mut to_at) = (from_at, to_at);
        let Some((from, to)) = forward(step.from).zip(forward(step.to)) else {
            for _ in 0..step.count {
                self.to[to_at..][..N].copy_from_slice(&self.from[from_at..][..N]);
                from_at = from_at.wrapping_add_signed(step.from);
                to_at = to_at.wrapping_add_signed(step.to);
            }
            return;
        };
        // ends with the last cell: the gap behind it may lie outside the slice
        let cells = self.from[from_at..][..last * from + N].chunks(from);
        let out = &mut self.to[to_at..][..last * to + N];
        if to == N {
            for (to, from) in out.as_chunks_mut::<N>().0.iter_mut().zip(cells) {
                to.copy_from_slice(&from[..N]);
            }
        } else {
            for (to, from) in out.chunks_mut(to).zip(cells) {
                to[..N].copy_from_slice(&from[..N]);
            }
        }
    }

    /// Copies runs of any length along and across.
    fn rows(&mut self, from_at: usize, to_at: usize) {
        let once = CopyAxis {
            count: 1,
            from: 0,
            to: 0,
        };
        let (along, across) = (self.along.unwrap_or(once), self.across.unwrap_or(once));
        for y in 0..across.count.cast_signed() {
            for x in 0..along.count.cast_signed() {
                let from_at = from_at.wrapping_add_signed(x * along.from + y * across.from);
                let to_at = to_at.wrapping_add_signed(x * along.to + y * across.to);
                self.to[to_at..][..self.run].copy_from_slice(&self.from[from_at..][..self.run]);
            }
        }
    }
}

/// Eight rows of eight bytes, transposed: halves of the words are exchanged, then quarters, then bytes.
fn transposed(mut rows: [u64; 8]) -> [u64; 8] {
    for (apart, low) in [
        (4, 0x0000_0000_FFFF_FFFF),
        (2, 0x0000_FFFF_0000_FFFF),
        (1, 0x00FF_00FF_00FF_00FF_u64),
    ] {
        let bits = 8 * apart;
        for i in (0..8).filter(|i| i & apart == 0) {
            // the high part of `a` changes places with the low part of `b`
            let (a, b) = (rows[i], rows[i + apart]);
            rows[i] = (a & low) | (b & low) << bits;
            rows[i + apart] = (a >> bits & low) | (b & !low);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The steps of a box between two packed layouts, turned round where `signs` says, and where it begins.
    fn layout(counts: &[usize], order: &[usize], signs: u8, run: usize) -> (Vec<isize>, usize) {
        let mut steps = vec![0; counts.len()];
        let (mut packed, mut at) = (run, 0);
        for &i in order {
            steps[i] = packed as isize;
            if signs >> i & 1 == 1 {
                steps[i] = -steps[i];
                at += (counts[i] - 1) * packed;
            }
            packed = packed * counts[i] + if counts[i] % 3 == 1 { 5 } else { 0 };
        }
        (steps, at)
    }

    /// What is at the end of `to`, copied element by element.
    fn naive(
        from: &[u8],
        from_at: usize,
        len: usize,
        to_at: usize,
        steps: &[CopyAxis],
        run: usize,
    ) -> Vec<u8> {
        let mut to = vec![0; len];
        let mut places = vec![(from_at as isize, to_at as isize)];
        for step in steps {
            let moved = |&(a, b): &(isize, isize), i: isize| (a + i * step.from, b + i * step.to);
            places = (0..step.count as isize)
                .flat_map(|i| places.iter().map(move |p| moved(p, i)))
                .collect();
        }
        for (a, b) in places {
            to[b as usize..][..run].copy_from_slice(&from[a as usize..][..run]);
        }
        to
    }

    fn check(counts: &[usize], orders: [&[usize]; 2], signs: [u8; 2], run: usize) {
        let (from_steps, from_at) = layout(counts, orders[0], signs[0], run);
        let (to_steps, to_at) = layout(counts, orders[1], signs[1], run);
        let steps: Vec<_> = (0..counts.len())
            .map(|i| CopyAxis {
                count: counts[i],
                from: from_steps[i],
                to: to_steps[i],
            })
            .collect();
        let len = (counts.iter().product::<usize>() * run + 6) * (counts.len() + 1) * 2;
        let from: Vec<_> = (0..len).map(|i| (i * 131 / 8) as u8 ^ i as u8).collect();
        let mut to = vec![0; len];
        copy((&from, from_at), (&mut to, to_at), &steps, run).unwrap();
        let want = naive(&from, from_at, len, to_at, &steps, run);
        assert!(to == want, "{counts:?} {orders:?} {signs:?} {run}");
    }

    #[test]
    fn planes_of_all_sizes_are_transposed() {
        for run in [1, 2, 3, 4, 8, 12, 16] {
            for counts in [[1, 1], [3, 70], [70, 3], [64, 64], [65, 130], [8, 31]] {
                for signs in 0..4 {
                    check(&counts, [&[0, 1], &[1, 0]], [signs, signs >> 1], run);
                    check(&counts, [&[0, 1], &[0, 1]], [signs, 0], run);
                }
            }
        }
    }

    #[test]
    fn nothing_is_copied_from_or_to_outside() {
        let step = |count, from, to| [CopyAxis { count, from, to }];
        let mut to = [7; 10];
        assert!(copy((&[1; 10], 0), (&mut to, 0), &step(4, 3, 1), 2).is_none());
        assert!(copy((&[1; 10], 2), (&mut to, 0), &step(4, -1, 1), 1).is_none());
        assert!(copy((&[1; 10], 0), (&mut to, 2), &step(4, 1, -1), 1).is_none());
        let far = step(usize::MAX, isize::MAX, 1);
        assert!(copy((&[1; 10], 0), (&mut to, 0), &far, 1).is_none());
        assert!(copy((&[1; 10], usize::MAX), (&mut to, 0), &[], 1).is_none());
        assert!(copy((&[1; 10], 0), (&mut to, 0), &step(0, 1, 1), 1).is_none());
        assert_eq!(to, [7; 10]);
        copy((&[1; 10], 3), (&mut to, 0), &step(4, -1, 2), 1).unwrap();
        assert_eq!(to, [1, 7, 1, 7, 1, 7, 1, 7, 7, 7]);
    }

    proptest! {
        #[test]
        fn boxes_of_any_order_and_direction_are_copied(
            counts in prop::collection::vec(prop_oneof![4 => 1usize..6, 1 => 6usize..20], 0..4),
            seeds in (any::<u64>(), any::<u64>()),
            signs in (any::<u8>(), any::<u8>()),
            run in 1usize..18,
        ) {
            let order = |seed: u64| {
                let mut order: Vec<_> = (0..counts.len()).collect();
                order.sort_by_key(|&i| seed.rotate_left(8 * i as u32) & 0xFFFF);
                order
            };
            check(&counts, [&order(seeds.0), &order(seeds.1)], [signs.0, signs.1], run);
        }
    }
}
