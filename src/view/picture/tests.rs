//! What pictures show.

use std::io::Write;
use std::sync::Arc;

use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::read_all;
use proptest::prelude::*;

const ARRAY: &str = "source: 0, datatype: float32, byteorder: little";

/// A file whose tree is `tree`, with `N` in it for an ndarray's tag, and one block.
fn with_tree(tree: &str, block: &[u8]) -> Snapshot {
    let tree = tree.replace("N {", "!core/ndarray-1.0.0 {");
    let text = format!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{tree}\n...\n");
    let sample = Sample::new().text(text.as_bytes()).block(block);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample.bytes()).unwrap();
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn snapshot(fields: &str, values: &[f32]) -> Snapshot {
    with_tree(&format!("x: N {{{fields}}}"), &bytes(values))
}

fn plane(columns: usize, rows: usize, values: &[f32]) -> Snapshot {
    snapshot(&format!("{ARRAY}, shape: [{rows}, {columns}]"), values)
}

fn style(size: u16) -> Style {
    Style {
        size,
        limits: GreyLimits::MinMax,
        ..Style::default()
    }
}

/// Points of a picture, from the top.
struct Drawn {
    width: usize,
    height: usize,
    points: Vec<[u8; 3]>,
}

impl Drawn {
    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.points[y * self.width + x]
    }
}

/// What another decoder finds in a PNG file.
fn decoded(file: &[u8]) -> Drawn {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut points = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut points).unwrap();
    Drawn {
        width: info.width as usize,
        height: info.height as usize,
        points: points.as_chunks().0.to_vec(),
    }
}

fn drawn_plane(snapshot: &Snapshot, plane: &[u64], style: Style) -> Drawn {
    let picture = snapshot.picture(0, plane, style).unwrap();
    decoded(&picture.draw(&|i| snapshot.array_bin(i)).unwrap().0)
}

fn drawn(snapshot: &Snapshot, style: Style) -> Drawn {
    drawn_plane(snapshot, &[], style)
}

const NOTHING: [u8; 3] = [0x22, 0x44, 0x88];
const WHITE: [u8; 3] = [255; 3];

#[test]
fn row_0_is_at_the_bottom_and_what_is_no_number_has_a_colour() {
    let found = drawn(&plane(2, 2, &[0.0, 1.0, f32::NAN, 0.5]), style(16));
    assert_eq!((found.width, found.height), (16, 16));
    assert_eq!([found.at(0, 0), found.at(15, 0)], [NOTHING, [128; 3]]);
    assert_eq!([found.at(0, 15), found.at(15, 15)], [[0; 3], WHITE]);
}

#[test]
fn a_point_is_the_mean_of_its_block() {
    // blocks of two by two; the last ones of odd sides are smaller
    let mut values = vec![0.0; 31 * 31];
    values[..2].copy_from_slice(&[4.0, f32::INFINITY]);
    values[31..33].copy_from_slice(&[2.0, 0.0]);
    values[30 * 31 + 30] = 8.0;
    let found = drawn(&plane(31, 31, &values), style(16));
    assert_eq!((found.width, found.height), (16, 16));
    assert_eq!([found.at(0, 15), found.at(15, 0)], [[64; 3], WHITE]);
}

#[test]
fn a_plane_of_further_axes_can_be_chosen() {
    let fields = format!("{ARRAY}, shape: [2, 2, 2, 2]");
    let mut values = vec![0.0; 16];
    values[8..12].copy_from_slice(&[0.0, 1.0, 2.0, 4.0]);
    let file = snapshot(&fields, &values);
    assert_eq!(file.planes(0), [2, 2]);
    assert_eq!(drawn(&file, style(16)).at(15, 0), [0; 3]);
    for plane in [&[1][..], &[1, 0]] {
        let found = drawn_plane(&file, plane, style(16));
        assert_eq!([found.at(0, 0), found.at(15, 0)], [[128; 3], WHITE]);
    }
    let picture = file.picture(0, &[1], style(16)).unwrap();
    assert_eq!(picture.caption, ["x", "float32 [2, 2, 2, 2] index [1, 0]"]);
    for (plane, why) in [
        (&[2][..], "its planes are 0 to 1"),
        (&[0, 0, 0], "it has 2 axes to choose planes of"),
    ] {
        let error = file.picture(0, plane, style(16)).err().unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_line_rises_from_the_left_below_to_the_right_above() {
    let values: Vec<f32> = (0..5000_u16).map(f32::from).collect();
    let file = snapshot(&format!("{ARRAY}, shape: [5000]"), &values);
    let found = drawn(&file, style(100));
    assert_eq!((found.width, found.height), (100, 50));
    let line = |x: usize| (0..50).find(|y| found.at(x, *y)[0] > 0x80).unwrap();
    assert!(line(1) > 40 && line(98) < 9, "{} {}", line(1), line(98));
    assert!((1..98).all(|x| line(x) >= line(x + 1)));
    // a row of a plane, or a column, is a line too
    for shape in ["[1, 5000]", "[5000, 1]"] {
        let file = snapshot(&format!("{ARRAY}, shape: {shape}"), &values);
        assert!(drawn(&file, style(100)).points == found.points);
    }
}

/// It was a point that no one saw, or none.
#[test]
fn an_element_without_neighbours_is_a_dot() {
    let line = |values: &[f32]| {
        let fields = format!("{ARRAY}, shape: [{}]", values.len());
        let found = drawn(&snapshot(&fields, values), style(100));
        found.points.iter().filter(|point| point[0] > 0x80).count()
    };
    assert!(line(&[3.0]) > 9);
    assert!(line(&[1.0, f32::NAN, 2.0, f32::NAN, 3.0]) > 3 * 9 - 12);
}

/// A hot pixel left no room for the spectrum, and the option that would help was passed over.
#[test]
fn the_limits_that_are_asked_for_are_those_of_the_axis() {
    let mut values: Vec<f32> = (0..1000_u16).map(f32::from).collect();
    values[500] = 1e9;
    let file = snapshot(&format!("{ARRAY}, shape: [1000]"), &values);
    let highest = |limits| {
        let style = Style {
            limits,
            ..style(100)
        };
        let found = drawn(&file, style);
        (0..50).find(|y| found.at(98, *y)[0] > 0x80).unwrap()
    };
    assert!(highest(GreyLimits::Auto) > 40 && highest(GreyLimits::Percent(99.0)) < 9);
}

/// The file of a line over places that are the other way round.
fn over(places: &str) -> Snapshot {
    let values: Vec<f32> = (0..100_u8).chain((0..100).rev()).map(f32::from).collect();
    let both = format!(
        "s: {{flux: N {{{ARRAY}, shape: [100]}}, {places}: N {{{ARRAY}, shape: [100], offset: 400}}}}"
    );
    with_tree(&both, &bytes(&values))
}

#[test]
fn a_line_is_drawn_over_the_wavelengths_beside_it() {
    let file = over("wavelength");
    let picture = file.picture(0, &[], style(100)).unwrap();
    assert_eq!(picture.arrays().collect::<Vec<_>>(), [0, 1]);
    let right = drawn(&file, style(100));
    let other = over("weight");
    let picture = other.picture(0, &[], style(100)).unwrap();
    assert_eq!(picture.arrays().collect::<Vec<_>>(), [0]);
    let left = drawn(&other, style(100));
    let is_line = |drawn: &Drawn, x, y| drawn.at(x, y)[0] > 0x40;
    assert!(is_line(&right, 0, 2) || is_line(&right, 1, 3));
    assert!(is_line(&left, 99, 2) || is_line(&left, 98, 3));
    // what says where the elements of another are is no picture of its own
    assert_eq!(best(&file, style(100)), [0]);
    assert_eq!(best(&other, style(100)), [0, 1]);
}

fn colours(scalar: &str, shape: &str, block: &[u8]) -> Snapshot {
    let fields = format!("source: 0, datatype: {scalar}, byteorder: little, shape: {shape}");
    with_tree(&format!("x: N {{{fields}}}"), block)
}

#[test]
fn a_last_axis_of_three_or_four_is_colours() {
    let mut block = [10, 20, 30].repeat(20);
    block[..3].copy_from_slice(&[250, 128, 7]);
    let found = drawn(&colours("uint8", "[4, 5, 3]", &block), style(100));
    assert_eq!((found.width, found.height), (100, 80));
    assert_eq!(
        [found.at(0, 79), found.at(0, 0)],
        [[250, 128, 7], [10, 20, 30]]
    );
    // the fourth says how much there is of the others; without it there is the ground
    let mut block = [200, 100, 50, 255].repeat(30);
    block[3] = 0;
    let found = drawn(&colours("uint8", "[5, 6, 4]", &block), style(100));
    assert_eq!(
        [found.at(0, 79), found.at(99, 0)],
        [canvas::GROUND, [200, 100, 50]]
    );
    // of other types black and white are chosen as of greys
    let values: Vec<f32> = (0..60_u8).map(f32::from).collect();
    let found = drawn(
        &colours("float32", "[4, 5, 3]", &bytes(&values)),
        style(100),
    );
    assert_eq!(found.at(99, 0)[2], 255);
}

/// It was said to have no axis to choose planes of.
#[test]
fn each_colour_can_be_chosen() {
    let mut values = [0.0; 240];
    // the second element of the first row: in plane 0 its third colour, and in plane 1 its first
    (values[4 + 2], values[120 + 4]) = (1.0, 1.0);
    let file = colours("float32", "[2, 5, 6, 4]", &bytes(&values));
    for (plane, is_lit) in [
        ([0, 0], false),
        ([0, 2], true),
        ([1, 0], true),
        ([1, 3], false),
    ] {
        let picture = file.picture(0, &plane, style(100)).unwrap();
        let caption = format!("float32 [2, 5, 6, 4] index {plane:?}");
        assert_eq!(picture.caption[1], caption);
        let found = picture.draw(&|i| file.array_bin(i)).unwrap();
        let lit = decoded(&found.0).at(30, 79) == WHITE;
        assert_eq!(lit, is_lit, "{plane:?}");
    }
    let error = file.picture(0, &[0, 4], style(100)).err().unwrap();
    assert!(
        error.to_string().contains("its planes are 0 to 3"),
        "{error}"
    );
}

#[test]
fn flags_have_colours_by_bit_and_a_legend() {
    let mut block = vec![0_u8; 64 * 64];
    block[0] = 2;
    block[64..128].fill(16);
    block[64] = 18;
    let of = |name: &str, scalar: &str, shape: &str, block: &[u8]| {
        let fields = format!("source: 0, datatype: {scalar}, byteorder: little, shape: {shape}");
        with_tree(&format!("{name}: N {{{fields}}}"), block)
    };
    let file = of("dq", "uint8", "[64, 64]", &block);
    let found = drawn(&file, style(800));
    let low = 64 * 8 - 1;
    let [rare, common] = [found.at(0, low), found.at(100, low - 8)];
    assert!(rare != common && rare != [0; 3], "{rare:?} {common:?}");
    // of two flags the rarer one is seen
    assert_eq!(found.at(0, low - 8), rare);
    assert_eq!(found.at(100, low), [0; 3]);
    let legend = |colour: [u8; 3]| (0..200).any(|y| found.at(64 * 8 + 9, y) == colour);
    assert!(legend(rare) && legend(common));
    // classes and counts are numbers: those with two bits, and low ones
    let classes = [0_u8, 1, 2, 4].repeat(18);
    let mut photons = [0_u8, 0, 1, 0, 0, 0].repeat(12);
    photons[70..].copy_from_slice(&[44, 1]);
    for (name, scalar, block, are_flags) in [
        ("x", "uint8", &classes, false),
        ("dq", "uint8", &classes, true),
        (
            "x",
            "uint16",
            &[photons.clone(), photons.clone()].concat(),
            false,
        ),
        ("x", "uint16", &[0, 0, 4, 0, 0, 1, 0, 8].repeat(18), true),
    ] {
        let found = drawn(&of(name, scalar, "[8, 9]", block), style(300));
        let of_array = (0..200).flat_map(|y| (0..200).map(move |x| (x, y)));
        let is_grey = of_array
            .map(|(x, y)| found.at(x, y))
            .all(|[red, green, blue]| red == green && green == blue);
        assert_eq!(is_grey, !are_flags, "{name} {scalar}");
    }
}

/// Classes 1 and 3 of a map had one colour, and counts of photons were bits.
#[test]
fn each_class_has_a_tone_of_its_own() {
    let block = [0_u8, 1, 2, 3].repeat(100);
    let found = drawn(&colours("uint8", "[20, 20]", &block), style(100));
    let mut tones: Vec<_> = (0..100).map(|x| found.at(x, 8)).collect();
    tones.sort_unstable();
    tones.dedup();
    assert!(tones.len() >= 4, "{tones:?}");
}

#[test]
fn what_is_all_0_is_black() {
    for scalar in ["bool8", "uint8", "int8"] {
        let found = drawn(&colours(scalar, "[20, 20]", &[0; 400]), Style::default());
        assert_eq!(
            (found.at(0, 0), found.at(479, 479)),
            ([0; 3], [0; 3]),
            "{scalar}"
        );
    }
    let one = drawn(&colours("int8", "[20, 20]", &[1; 400]), Style::default());
    assert_eq!(one.at(0, 0), [128; 3]);
}

#[test]
fn brightness_has_the_colours_that_were_asked_for() {
    let of = |colours| {
        let style = Style {
            colours,
            ..style(16)
        };
        let found = drawn(&plane(2, 1 + 1, &[0.0, 1.0, 1.0, 1.0]), style);
        (found.at(0, 15), found.at(15, 15))
    };
    assert_eq!(of(Colours::Grey), ([0; 3], WHITE));
    // the ends of matplotlib's
    assert_eq!(of(Colours::Inferno), ([0, 0, 4], [252, 255, 164]));
    assert_eq!(of(Colours::Viridis).0, [68, 1, 84]);
    assert_eq!(of(Colours::Cubehelix), ([0; 3], WHITE));
}

#[test]
fn a_caption_has_letters_and_a_bar_has_all_shades() {
    let values: Vec<f32> = (0..20_000_u16).map(f32::from).collect();
    let found = drawn(&plane(200, 100, &values), Style::default());
    assert_eq!((found.width, found.height), (600 + 98, 300 + 34));
    let letters = |top: usize, end: usize, left: usize| {
        let rows = (top..end).flat_map(|y| (left..found.width).map(move |x| (x, y)));
        rows.filter(|(x, y)| found.at(*x, *y)[0] > 0x80).count()
    };
    assert!(letters(300, 334, 0) > 200);
    assert!(letters(0, 300, 600 + 7 + 14) > 100);
    let bar: Vec<u8> = (0..300).map(|y| found.at(600 + 10, y)[0]).collect();
    assert!(bar.is_sorted_by(|a, b| a >= b) && bar[0] == 255 && bar[299] == 0);
    assert_eq!(
        in_letters("\u{fc}/%25 \u{65e5}~\u{3bc}\u{2026}"),
        "\u{fc}/%25 %E6%97%A5~\u{3bc}\u{2026}"
    );
}

/// The caption was left out of it: a thumbnail of 128 points was 159 high.
#[test]
fn a_picture_with_all_around_it_is_no_larger_than_was_asked_for() {
    let values = vec![1.0; 600 * 2000];
    for (columns, rows) in [
        (2, 2),
        (10, 10),
        (200, 100),
        (30, 3000),
        (3000, 30),
        (600, 2000),
        (2, 9),
    ] {
        let found = plane(columns, rows, &values[..columns * rows]);
        for size in [16, 127, 128, 200, 255, 256, 290, 320, 700, 1164] {
            let picture = found.picture(0, &[], style(size)).unwrap();
            let (width, height) = picture.size();
            assert!(
                width <= size && height <= size,
                "{columns}x{rows} at {size}: {width}x{height}"
            );
        }
    }
    let line = snapshot(&format!("{ARRAY}, shape: [2000]"), &values[..2000]);
    assert_eq!(drawn(&line, style(128)).height, 64 + 28);
    let tall = drawn(&plane(600, 2000, &values), Style::default());
    assert!(tall.height > 1000 && tall.width > 400, "as large as may be");
}

/// They were 2 points high.
#[test]
fn few_rows_are_bands() {
    let values: Vec<f32> = (0..3)
        .flat_map(|row| vec![f32::from(row as u8); 5000])
        .collect();
    let found = drawn(&plane(5000, 3, &values), style(DEFAULT));
    let tones: Vec<_> = [5, 40, 85].map(|y| found.at(9, y)).into();
    assert_eq!(
        (found.height, &*tones),
        (96 + 46, &[WHITE, [128; 3], [0; 3]][..])
    );
    let found = drawn(&plane(3, 127, &values[..381]), Style::default());
    assert_eq!((found.width, found.height), (26 * 14, 508 + 34));
    assert_eq!([found.at(0, 0), found.at(95, 507)], [[0; 3]; 2]);
}

#[test]
fn the_file_in_a_mount_is_as_long_as_was_said() {
    let values: Vec<f32> = (0..20_000_u32)
        .map(|n| (n.wrapping_mul(0x9E37_79B9) >> 8) as f32)
        .collect();
    for file in [
        plane(200, 100, &values),
        snapshot(&format!("{ARRAY}, shape: [20000]"), &values),
        colours("uint8", "[20, 20, 3]", &bytes(&values)[..1200]),
    ] {
        for size in [16, 300, 1000] {
            let picture = || file.picture(0, &[], style(size)).unwrap();
            let opened = picture().open(&|i| file.array_bin(i)).unwrap();
            let whole = read_all(&*opened, 10 << 20).unwrap();
            assert_eq!(
                (whole.len() as u64, picture().file_len()),
                (opened.len(), opened.len())
            );
            let (short, _) = picture().draw(&|i| file.array_bin(i)).unwrap();
            assert!(short.len() < whole.len());
            assert!(decoded(&whole).points == decoded(&short).points);
        }
    }
}

/// A block of some bytes kept a reader busy for 20 s.
#[test]
fn an_array_that_shows_its_block_endlessly_is_sampled() {
    let fields = format!("{ARRAY}, strides: [0, 4], shape: [1000000, 2]");
    let fields = fields.replace("shape: [1000000, 2]", "shape: [200000000, 2]");
    let found = drawn(&snapshot(&fields, &[1.0, 3.0]), style(100));
    assert_eq!(
        [found.at(0, 0), found.at(found.width - 1, 0)],
        [[0; 3], WHITE]
    );
    let fields = format!("{ARRAY}, strides: [0], shape: [400000000]");
    let found = drawn(&snapshot(&fields, &[1.0]), style(100));
    assert_eq!(found.width, 100);
}

#[test]
fn of_a_plane_that_is_too_large_some_rows_are_read() {
    let mut values = vec![1.0; 64 * 64];
    // the first row of each block of four is read, and the third
    for row in [1, 3] {
        values[row * 64..][..64].fill(100.0);
    }
    let style = |most| Style { most, ..style(16) };
    let file = plane(64, 64, &values);
    let bottom = |most| drawn(&file, style(most)).at(0, 15)[0];
    assert_eq!(bottom(16 * 64 * 4 * 2), 128, "nothing but 1");
    assert_eq!(bottom(16 * 64 * 4 * 4), 255, "the mean of 1, 100, 1, 100");
    assert_eq!(bottom(0), 128, "a single point of each block");
}

#[test]
fn a_sheet_has_pictures_side_by_side() {
    let tree = format!(
        "a: N {{{ARRAY}, shape: [20, 20]}}\nb: N {{{ARRAY}, shape: [2, 2]}}\nc: N {{{ARRAY}, shape: [20, 20]}}"
    );
    let file = with_tree(
        &tree,
        &bytes(&(0..400_u16).map(f32::from).collect::<Vec<_>>()),
    );
    let found = best(&file, style(400));
    assert_eq!(found, [0, 2], "not the small one");
    let mut sheet = Sheet::new(found.len(), style(400));
    for i in found {
        let picture = file.picture(i, &[], sheet.style()).unwrap();
        sheet.add(&picture, &|i| file.array_bin(i)).unwrap();
    }
    let (png, left_out) = sheet.file().unwrap();
    assert_eq!(left_out, 0);
    let found = decoded(&png);
    assert_eq!(found.width, 400);
    assert_eq!([found.at(4, 4), found.at(204, 4)], [found.at(4, 4); 2]);
    assert_ne!(found.at(204, 4), canvas::GROUND);
    assert_eq!([found.at(3, 4), found.at(4, 3)], [canvas::GROUND; 2]);
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
            .picture(0, &[], style(16))
            .err()
            .unwrap();
        assert!(error.to_string().contains(why), "{error}");
    }
}

proptest! {
    #[test]
    fn no_side_is_longer_than_was_asked_for(columns in 1_u64.., rows in 1_u64.., size in SIZES) {
        let grid = Grid::of((columns, rows), size);
        let (width, height) = grid.points;
        prop_assert!(width >= 1 && height >= 1 && width <= size && height <= size);
        prop_assert_eq!(u64::from(width), columns.div_ceil(grid.block.0));
        prop_assert_eq!(u64::from(height), rows.div_ceil(grid.block.1));
    }
}
