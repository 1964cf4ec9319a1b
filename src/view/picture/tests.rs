//! What pictures show.

use std::io::{Read, Write};
use std::sync::Arc;

use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use proptest::prelude::*;

const ARRAY: &str = "source: 0, datatype: float32, byteorder: little";

fn snapshot(fields: &str, values: &[f32]) -> Snapshot {
    let text = format!(
        "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\nx: !core/ndarray-1.0.0 {{{fields}}}\n...\n"
    );
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let sample = Sample::new().text(text.as_bytes()).block(&bytes);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample.bytes()).unwrap();
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

fn style(size: u16) -> Style {
    Style {
        size,
        limits: GreyLimits::MinMax,
        curve: Curve::Linear,
    }
}

/// Width, height and the pixels of the picture of the array.
fn drawn(snapshot: &Snapshot, style: Style) -> (usize, usize, Vec<u8>) {
    let picture = snapshot.picture(0, style).unwrap();
    let file = picture.draw(&*snapshot.array_bin(0).unwrap()).unwrap();
    assert_eq!(file.len() as u64, picture.len());
    let side = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (width, height) = (side(16), side(20));
    let mut rows = Vec::new();
    let stream = &file[8 + 25 + 780 + 8..];
    flate2::read::ZlibDecoder::new(stream)
        .read_to_end(&mut rows)
        .unwrap();
    let rows = rows.chunks(width + 1);
    assert_eq!(rows.len(), height);
    (
        width,
        height,
        rows.flat_map(|row| row[1..].to_vec()).collect(),
    )
}

fn plane(columns: usize, rows: usize, values: &[f32]) -> Snapshot {
    snapshot(&format!("{ARRAY}, shape: [{rows}, {columns}]"), values)
}

#[test]
fn row_0_is_at_the_bottom_and_what_is_no_number_has_a_colour() {
    let found = plane(2, 2, &[0.0, 1.0, f32::NAN, 0.5]);
    let (width, height, pixels) = drawn(&found, style(16));
    assert_eq!((width, height), (16, 16));
    let at = |x: usize, y: usize| pixels[y * width + x];
    assert_eq!([at(0, 0), at(15, 0)], [NOTHING, 126]);
    assert_eq!([at(0, 15), at(15, 15)], [0, WHITE]);
}

#[test]
fn a_point_is_the_mean_of_its_block() {
    // blocks of two by two; the last ones of odd sides are smaller
    let mut values = vec![0.0; 31 * 31];
    values[..2].copy_from_slice(&[4.0, f32::INFINITY]);
    values[31..33].copy_from_slice(&[2.0, 0.0]);
    values[30 * 31 + 30] = 8.0;
    let (width, height, pixels) = drawn(&plane(31, 31, &values), style(16));
    assert_eq!((width, height), (16, 16));
    assert_eq!(pixels[15 * 16], grey(2.0 / 8.0));
    assert_eq!(pixels[15], WHITE);
}

#[test]
fn of_further_axes_index_0_is_shown() {
    let fields = format!("{ARRAY}, shape: [2, 1, 2]");
    let (_, _, pixels) = drawn(&snapshot(&fields, &[0.0, 1.0, 50.0, 60.0]), style(16));
    assert_eq!([pixels[0], *pixels.last().unwrap()], [0, WHITE]);
    let picture = snapshot(&fields, &[0.0; 4]).picture(0, style(16)).unwrap();
    assert_eq!(picture.caption(), &["x", "float32 [2, 1, 2] index 0"]);
}

#[test]
fn a_line_rises_from_the_left_below_to_the_right_above() {
    let values: Vec<f32> = (0..5000_u16).map(f32::from).collect();
    let (width, height, pixels) = drawn(
        &snapshot(&format!("{ARRAY}, shape: [5000]"), &values),
        style(100),
    );
    assert_eq!((width, height), (100, 50));
    let line = |x: usize| (0..height).find(|y| pixels[y * width + x] == LINE).unwrap();
    assert_eq!((line(99), pixels[49 * width]), (0, LINE));
    assert!((0..99).all(|x| line(x) >= line(x + 1)));
    let few = [1.0, f32::NAN, 3.0, 2.0];
    let (_, _, pixels) = drawn(&snapshot(&format!("{ARRAY}, shape: [4]"), &few), style(100));
    assert_eq!(pixels[49 * 100], LINE);
    assert_eq!(pixels[66], LINE);
}

#[test]
fn a_caption_has_letters() {
    let (width, height, pixels) = drawn(&plane(200, 100, &vec![1.0; 20_000]), Style::default());
    assert_eq!((width, height), (256, 100 + 34));
    let letters = pixels.split(|pixel| *pixel == LETTER).count();
    assert!(letters > 200, "{letters}");
    assert_eq!(in_letters("\u{fc}/%25 \u{65e5}~"), "%C3%BC/%25 %E6%97%A5~");
}

/// The caption was left out of it: a thumbnail of 128 points was 159 high.
#[test]
fn a_picture_with_its_caption_is_no_larger_than_was_asked_for() {
    let values = vec![1.0; 600 * 2000];
    for (columns, rows) in [
        (2, 2),
        (10, 10),
        (200, 100),
        (30, 3000),
        (3000, 30),
        (600, 2000),
        (1, 9),
    ] {
        let found = plane(columns, rows, &values[..columns * rows]);
        for size in [16, 127, 128, 200, 256, 290, 1024] {
            let (width, height, _) = drawn(&found, style(size));
            let most = usize::from(size);
            assert!(
                width <= most && height <= most,
                "{columns}x{rows} at {size}: {width}x{height}"
            );
        }
    }
    let line = snapshot(&format!("{ARRAY}, shape: [2000]"), &values[..2000]);
    assert_eq!(drawn(&line, style(128)).1, 64 + 34);
    let tall = plane(600, 2000, &values);
    let (width, height, _) = drawn(&tall, style(1024));
    assert!(
        height > 1024 / 2 && width > 100,
        "as large as may be: {width}x{height}"
    );
}

#[test]
fn what_is_no_picture_is_refused() {
    for (fields, why) in [
        (format!("{ARRAY}, shape: []"), "a single number"),
        (format!("{ARRAY}, shape: [0, 3]"), "without elements"),
        (
            ARRAY.replace("float32", "[ascii, 4]") + ", shape: [1]",
            "of numbers",
        ),
    ] {
        let error = snapshot(&fields, &[0.0; 4])
            .picture(0, style(16))
            .err()
            .unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The count stopped at its largest number, while the sum went on.
#[test]
fn a_block_of_billions_of_elements_has_their_mean() {
    let mut means = Means::new(1, 2, 1, (2, 1));
    means.sums[0] = (4_294_967_295.0, f64::from(u32::MAX));
    for _ in 0..2 {
        means.take(8_589_934_592.0);
    }
    let want = (4_294_967_295.0 + 2.0 * 8_589_934_592.0) / 4_294_967_297.0;
    assert_eq!(means.done, [want]);
}

#[test]
fn numbers_are_short() {
    for (number, want) in [
        (0.0, "0"),
        (100.0, "100"),
        (-1.25, "-1.25"),
        (1e-9, "1.0000e-9"),
        (1.234_567_8e20, "1.2346e20"),
    ] {
        assert_eq!(short(number), want);
    }
}

proptest! {
    #[test]
    fn no_side_is_longer_than_was_asked_for(columns in 1_u64.., rows in 1_u64.., size in SIZES) {
        let shown = Shown::plane(columns, rows, size);
        let Shown::Plane { block, .. } = shown else { unreachable!() };
        let (width, height) = shown.points(size);
        prop_assert!(width >= 1 && height >= 1 && width <= size && height <= size);
        prop_assert_eq!(u64::from(width), columns.div_ceil(block.0));
        prop_assert_eq!(u64::from(height), rows.div_ceil(block.1));
    }
}
