use super::*;
use crate::asdf::tests::view_cases::cases;
use crate::asdf::tile::positions;
use crate::error::Error;
use proptest::prelude::*;

fn dense(itemsize: u64, shape: &[u64], block_len: u64) -> Result<View> {
    View::new(itemsize, shape, None, 0, block_len)
}

#[test]
fn a_view_that_leaves_its_block_is_corrupt() {
    let why = |strides: &[i64], shape: &[u64], offset, len| {
        View::new(4, shape, Some(strides), offset, len)
            .unwrap_err()
            .to_string()
    };
    assert!(dense(4, &[100], 400).is_ok());
    assert_eq!(
        dense(4, &[101], 400).unwrap_err().to_string(),
        "bytes 0..404 wanted of a block of 400"
    );
    assert_eq!(
        why(&[-4], &[2], 0, 400),
        "bytes -4..4 wanted of a block of 400"
    );
    assert_eq!(
        why(&[], &[], 397, 400),
        "bytes 397..401 wanted of a block of 400"
    );
    assert_eq!(why(&[4], &[2, 2], 0, 400), "1 strides for 2 dimensions");
    assert!(
        why(
            &[i64::MIN, i64::MIN],
            &[1 << 29, 1 << 29],
            u64::MAX,
            u64::MAX
        )
        .contains("wanted")
    );
    assert!(View::new(1, &[1 << 62], Some(&[i64::MAX]), u64::MAX, u64::MAX).is_err());
    assert!(
        dense(1, &[1 << 32, 1 << 32], u64::MAX)
            .unwrap_err()
            .to_string()
            .contains("2^63")
    );
    assert!(dense(1, &[1; MAX_NDIM], 1).is_ok());
    assert!(matches!(
        dense(1, &[1; MAX_NDIM + 1], 1),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn an_array_without_bytes_may_be_anywhere() {
    for (itemsize, shape) in [
        (0, vec![u64::MAX, u64::MAX]),
        (8, vec![u64::MAX, 0, u64::MAX]),
    ] {
        let view = View::new(itemsize, &shape, None, u64::MAX, 0).unwrap();
        assert_eq!((view.len(), view.extent()), (0, 0..0));
        assert!(view.is_dense() && view.is_fortran_dense() && view.is_injective());
        assert!(view.parts(0..9).is_empty() && view.run_at(0).is_none());
    }
}

#[test]
fn a_star_counts_whole_rows() {
    let rows = |row: &[u64], stride, offset| View::rows_to_end(4, row, stride, offset, 100).ok();
    assert_eq!(rows(&[3], None, 0), Some(8));
    assert_eq!(rows(&[3], None, 5), Some(7));
    assert_eq!(rows(&[3], Some(24), 5), Some(3));
    assert_eq!(rows(&[], None, 100), Some(0));
    assert_eq!(rows(&[], None, 101), None);
    assert_eq!(rows(&[3], Some(0), 0), None);
    assert_eq!(rows(&[3], Some(-12), 0), None);
    assert_eq!(rows(&[0], None, 0), None);
    assert_eq!(rows(&[u64::MAX, 2], None, 0), None);
}

#[test]
fn dense_orders_are_known_whatever_single_steps_say() {
    let view =
        |shape: &[u64], strides: &[i64]| View::new(4, shape, Some(strides), 0, 1000).unwrap();
    assert!(view(&[3, 1, 5], &[20, -7, 4]).is_dense());
    assert!(!view(&[3, 1, 5], &[20, 3, 4]).is_fortran_dense());
    assert!(view(&[3, 1, 5], &[4, 99, 12]).is_fortran_dense());
    assert!(!view(&[3, 5], &[4, 12]).is_dense());
    assert!(view(&[7], &[4]).is_fortran_dense() && view(&[7], &[4]).is_dense());
    assert!(view(&[], &[]).is_dense() && view(&[], &[]).is_fortran_dense());
}

#[test]
fn what_is_cut_turned_or_mirrored_from_an_array_is_injective() {
    let injective = |strides: &[i64]| {
        View::new(4, &[3, 5], Some(strides), 500, 1000)
            .unwrap()
            .is_injective()
    };
    for strides in [[20, 4], [4, 12], [-20, 4], [40, -8], [4, -13]] {
        assert!(injective(&strides), "{strides:?}");
    }
    for strides in [[4, 4], [0, 4], [19, 4], [20, 3], [11, 4]] {
        assert!(!injective(&strides), "{strides:?}");
    }
}

#[test]
fn axes_that_can_be_walked_as_one_are_merged() {
    let axes = |shape: &[u64], strides: &[i64]| {
        let view = View::new(2, shape, Some(strides), 500, 1000).unwrap();
        let axes = view
            .axes()
            .iter()
            .map(|axis| (axis.count, axis.stride, axis.pitch));
        (axes.collect::<Vec<_>>(), view.run())
    };
    assert_eq!(axes(&[3, 4, 5], &[80, 20, 2]), (vec![(12, 20, 10)], 10));
    assert_eq!(
        axes(&[3, 4, 5], &[90, 20, 4]),
        (vec![(3, 90, 40), (20, 4, 2)], 2)
    );
    assert_eq!(axes(&[3, 4], &[-8, -2]), (vec![(12, -2, 2)], 2));
    assert_eq!(axes(&[3, 4], &[0, 0]), (vec![(12, 0, 2)], 2));
}

proptest! {
    #[test]
    fn every_byte_is_where_counting_finds_it(case in cases(), cut in (0u64..3000, 0u64..3000)) {
        let (view, places) = (case.view(), case.places());
        prop_assert_eq!(view.len(), places.len() as u64);
        let range = cut.0.min(view.len())..(cut.0 + cut.1).min(view.len());
        let want: Vec<_> = places[range.start as usize..range.end as usize].to_vec();
        let runs = view.runs(range.clone()).flat_map(|(at, len)| (at..at + len).map(i128::from));
        prop_assert_eq!(runs.collect::<Vec<_>>(), want.clone());
        let parts = view.parts(range);
        prop_assert!(parts.len() <= 2 * view.axes().len() + 1);
        let mut got = Vec::new();
        for part in &parts {
            // the runs ascend in the block, and are put where they belong in C order
            let mut bytes = vec![-1; part.len() as usize];
            positions(&part.walks, part.low, part.first, &mut |offset, first| {
                for i in 0..part.run {
                    bytes[(first + i) as usize] = i128::from(offset + i);
                }
                Ok(())
            }).unwrap();
            got.extend(bytes);
        }
        prop_assert_eq!(got, want);
    }

    #[test]
    fn the_extent_is_exactly_what_is_touched(case in cases()) {
        let (view, places) = (case.view(), case.places());
        if let (Some(&low), Some(&high)) = (places.iter().min(), places.iter().max()) {
            prop_assert_eq!(view.extent(), low as u64..high as u64 + 1);
            let new = |len| View::new(case.itemsize, &case.shape, Some(&case.strides), case.offset, len);
            prop_assert!(new(high as u64 + 1).is_ok());
            prop_assert!(new(high as u64).is_err());
        }
        prop_assert_eq!(view.is_dense(), places.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn no_byte_of_an_injective_view_is_used_twice(case in cases()) {
        let mut places = case.places();
        places.sort_unstable();
        let twice = places.windows(2).any(|pair| pair[0] == pair[1]);
        prop_assert!(!(twice && case.view().is_injective()));
    }

    #[test]
    fn any_numbers_give_a_view_or_an_error(
        itemsize in any::<u64>(),
        axes in prop::collection::vec((any::<u64>(), any::<i64>()), 0..5),
        small in any::<bool>(),
        offset in any::<u64>(),
        block_len in any::<u64>(),
    ) {
        let (itemsize, shrink) = if small { (itemsize % 9, 60) } else { (itemsize, 0) };
        let shape: Vec<_> = axes.iter().map(|axis| axis.0 >> shrink).collect();
        let strides: Vec<_> = axes.iter().map(|axis| axis.1 >> shrink).collect();
        if let Ok(view) = View::new(itemsize, &shape, Some(&strides), offset >> shrink, block_len) {
            prop_assert!(view.extent().end <= block_len);
            let len = view.len();
            for part in view.parts(len / 3..len) {
                prop_assert!(part.low < block_len);
            }
        }
    }
}
