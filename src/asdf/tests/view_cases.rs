//! Arrays of any shape and strides in small blocks, and where their bytes are, element by element.

use crate::asdf::strided::View;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) itemsize: u64,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) offset: u64,
    pub(crate) block_len: u64,
}

impl Case {
    pub(crate) fn view(&self) -> View {
        let Self {
            itemsize, shape, ..
        } = self;
        View::new(
            *itemsize,
            shape,
            Some(&self.strides),
            self.offset,
            self.block_len,
        )
        .unwrap()
    }

    /// The block offset of each byte, in C order.
    pub(crate) fn places(&self) -> Vec<i128> {
        let mut firsts = vec![i128::from(self.offset)];
        for (&count, &stride) in self.shape.iter().zip(&self.strides) {
            let steps = || (0..count).map(|i| i128::from(i) * i128::from(stride));
            firsts = firsts
                .iter()
                .flat_map(|at| steps().map(move |step| at + step))
                .collect();
        }
        let bytes = |at: i128| (0..self.itemsize).map(move |i| at + i128::from(i));
        firsts.into_iter().flat_map(bytes).collect()
    }
}

/// Axes in any order and direction, packed or with gaps, repeated or overlapping, with slack at both ends of the block.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let itemsize = prop_oneof![
        Just(0u64),
        Just(1),
        Just(2),
        Just(3),
        Just(4),
        Just(8),
        Just(16),
        1u64..20
    ];
    let axis = (
        0u64..100,
        prop_oneof![6 => 1u64..7, 1 => 7u64..40, 1 => Just(0)],
        prop_oneof![4 => Just(0i64), 2 => 1i64..20, 1 => Just(-1000)],
        prop_oneof![2 => Just(1i64), 1 => Just(-1)],
    );
    (
        itemsize,
        prop::collection::vec(axis, 0..5),
        0u64..9,
        0u64..9,
    )
        .prop_map(|(itemsize, axes, before, after)| build(itemsize, &axes, before, after))
}

/// An axis is drawn as a place in the order of packing, a count, a gap and a direction.
fn build(itemsize: u64, axes: &[(u64, u64, i64, i64)], before: u64, after: u64) -> Case {
    // Packed in the order of the first numbers; the third is a gap, or says that the axis repeats or overlaps.
    let mut order: Vec<_> = (0..axes.len()).collect();
    order.sort_by_key(|&i| axes[i].0);
    let mut strides = vec![0; axes.len()];
    let mut packed = itemsize as i64;
    for i in order {
        let (_, count, gap, sign) = axes[i];
        strides[i] = if gap < 0 {
            itemsize as i64 * (axes[i].0 % 2) as i64
        } else {
            packed + gap
        } * sign;
        packed = packed.max(strides[i].abs() * count as i64);
    }
    let reach = |sign: i64| -> i64 {
        let far = axes
            .iter()
            .zip(&strides)
            .map(|(axis, &stride)| (axis.1 as i64 - 1) * stride);
        far.filter(|far| far * sign > 0).sum()
    };
    let offset = before + reach(-1).unsigned_abs();
    let block_len = offset + reach(1).unsigned_abs() + itemsize + after;
    Case {
        itemsize,
        shape: axes.iter().map(|axis| axis.1).collect(),
        strides,
        offset,
        block_len,
    }
}
