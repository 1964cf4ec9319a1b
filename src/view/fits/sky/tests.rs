//! Transforms and coordinates by trees as gwcs 1.0 writes them. The numbers are those of gwcs 1.0 and astropy 8.0.

use std::sync::Arc;

use super::super::tests::{has, made, path, snapshot};
use super::*;
use crate::source::Source;
use crate::view::fits::Subject;

/// Transforms, each with a point that it takes and the point that it gives.
const TRANSFORMS: &[(&str, &[f64], &[f64])] = &[
    ("!transform/shift-1.4.0 {offset: 1.5}", &[3.25], &[4.75]),
    ("!transform/scale-1.4.0 {factor: -3.0}", &[3.25], &[-9.75]),
    (
        "!transform/identity-1.4.0 {n_dims: 2}",
        &[12.5, 66.25],
        &[12.5, 66.25],
    ),
    (
        "!transform/remap_axes-1.5.0 {mapping: [1, 0, 1], n_inputs: 3}",
        &[-0.3, -0.4, 0.5],
        &[-0.4, -0.3, -0.4],
    ),
    (
        "!transform/concatenate-1.4.0 {forward: [!transform/constant-1.6.0 {dimensions: 1, value: 4.5}, \
         !transform/identity-1.4.0 ]}",
        &[12.5, 66.25],
        &[4.5, 66.25],
    ),
    (
        "!transform/polynomial-1.3.0 {coefficients: [1, -2, 0.5], domain: [0, 4], window: [-1, 1]}",
        &[3.25],
        &[-0.054_687_5],
    ),
    (
        "!transform/polynomial-1.3.0 {coefficients: !core/ndarray-1.1.0 {data: [[7, 35, 42, 49], [14, 56, 63, 7.7], \
         [21, 70, 5.5, 0], [28, 0, 0, 0]], datatype: float64}, domain: [[0, 10], [-2, 2]], window: [[-1, 1], null]}",
        &[12.5, 66.25],
        &[1_940_104.837_890_625],
    ),
    (
        "!transform/affine-1.5.0 {matrix: [[1, 2], [3, 4.5]], translation: [-1, 7]}",
        &[12.5, 66.25],
        &[144.0, 342.625],
    ),
    (
        "!transform/rotate3d-1.5.0 {direction: native2celestial, phi: 5.6, psi: 180.0, theta: -72.05}",
        &[12.5, 66.25],
        &[142.136_072_500_510_2, -82.719_911_023_102_33],
    ),
    (
        "!transform/rotate3d-1.5.0 {direction: celestial2native, phi: 5.6, psi: 170.0, theta: -72.05}",
        &[12.5, 66.25],
        &[165.822_622_757_505_8, -48.377_486_243_496_98],
    ),
    (
        "!transform/rotate3d-1.5.0 {direction: xyz, phi: 23.0, psi: 5.0, theta: 14.0}",
        &[12.5, 66.25],
        &[61.993_396_114_550_3, 61.593_741_753_791_59],
    ),
    (
        "!transform/rotate_sequence_3d-1.2.0 {angles: [10.0, -20.0, 30.0, 40.0, -50.0], axes_order: zyxyz, \
         rotation_type: cartesian}",
        &[-0.3, -0.4, 0.5],
        &[
            -0.369_023_088_944_553_6,
            -0.437_773_491_291_117_64,
            0.414_941_357_481_519_06,
        ],
    ),
    (
        "!transform/rotate_sequence_3d-1.2.0 {angles: [10.0, -20.0, 30.0], axes_order: xzy, rotation_type: spherical}",
        &[12.5, 66.25],
        &[118.225_332_195_611_46, 65.562_580_682_313_94],
    ),
    (
        "!<tag:stsci.edu:gwcs/spherical_cartesian-1.3.0> {transform_type: spherical_to_cartesian, wrap_lon_at: 360}",
        &[12.5, 66.25],
        &[
            0.393_199_985_189_855_33,
            0.087_170_338_067_873_94,
            0.915_311_479_119_447_1,
        ],
    ),
    (
        "!<tag:stsci.edu:gwcs/spherical_cartesian-1.3.0> {transform_type: cartesian_to_spherical, wrap_lon_at: 360}",
        &[-0.3, -0.4, 0.5],
        &[233.130_102_354_155_98, 45.0],
    ),
    (
        "!<tag:stsci.edu:gwcs/spherical_cartesian-1.3.0> {transform_type: cartesian_to_spherical, wrap_lon_at: 180}",
        &[-0.3, -0.4, 0.5],
        &[-126.869_897_645_844_02, 45.0],
    ),
    (
        "!transform/gnomonic-1.4.0 {direction: pix2sky}",
        &[12.5, 66.25],
        &[169.315_087_599_997_3, 40.359_447_779_804_25],
    ),
    (
        "!transform/gnomonic-1.4.0 {direction: sky2pix}",
        &[12.5, 66.25],
        &[5.456_604_209_555_616, -24.613_151_009_160_692],
    ),
    (
        "!transform/compose-1.4.0 {forward: [!transform/concatenate-1.4.0 {forward: [!transform/shift-1.4.0 {offset: 1.0}, \
         !transform/scale-1.4.0 {factor: 2.0}]}, !transform/remap_axes-1.5.0 {mapping: [1, 0]}]}",
        &[12.5, 66.25],
        &[132.5, 13.5],
    ),
];

#[test]
fn transforms_give_what_astropy_gives() {
    for (transform, from, want) in TRANSFORMS {
        let snapshot = snapshot(&format!("t: {transform}\n"));
        let node = snapshot.paths().unwrap().tree().root().unwrap();
        let elements = |i| snapshot.array_bin(i);
        let reader = Reader::new(&snapshot, &elements);
        let found = reader.transform(node.get("t").unwrap()).unwrap();
        assert_eq!((found.inputs, found.outputs), (from.len(), want.len()));
        let found = found.apply(from).unwrap();
        for (found, want) in found.iter().zip(*want) {
            assert!(
                (found - want).abs() <= 1e-12 * want.abs().max(1.0),
                "{transform}: {found}"
            );
        }
    }
}

/// A gwcs of two by two steps, as of an image with a rectangle of 300 by 200 pixels.
const STEPS: &str = "t:
  data: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, strides: [0, 0], shape: [200, 300]}
  line: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}
  small: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [2, 3]}
  meta:
    wcs: !<tag:stsci.edu:gwcs/wcs-1.4.0>
      name: ''
      pixel_shape: null
      steps:
      - !<tag:stsci.edu:gwcs/step-1.3.0>
        frame: !<tag:stsci.edu:gwcs/frame2d-1.2.0>
          axes_order: [0, 1]
          unit: [!unit/unit-1.0.0 pixel, !unit/unit-1.0.0 pixel]
        transform: !transform/compose-1.4.0
          bounding_box: !transform/property/bounding_box-1.2.0
            ignore: []
            intervals: {x: [-0.5, 299.5], y: [-0.5, 199.5]}
            order: C
          inputs: [x, y]
          forward:
          - !transform/concatenate-1.4.0 {forward: [!transform/shift-1.4.0 {offset: -149.5}, !transform/shift-1.4.0 {offset: -99.5}]}
          - !transform/concatenate-1.4.0 {forward: [!transform/scale-1.4.0 {factor: -0.001}, !transform/scale-1.4.0 {factor: 0.001}]}
      - !<tag:stsci.edu:gwcs/step-1.3.0>
        frame: middle
        transform: !transform/compose-1.4.0
          forward:
          - !transform/gnomonic-1.4.0 {direction: pix2sky}
          - !transform/rotate3d-1.5.0 {direction: native2celestial, phi: 10.0, theta: 20.0, psi: 180.0}
      - !<tag:stsci.edu:gwcs/step-1.3.0>
        frame: !<tag:stsci.edu:gwcs/celestial_frame-1.2.0>
          axes_order: [0, 1]
          reference_frame: !<tag:astropy.org:astropy/coordinates/frames/icrs-1.1.0> {frame_attributes: {}}
          unit: [!unit/unit-1.0.0 deg, !unit/unit-1.0.0 deg]
        transform: null
";

/// The cards that tell of coordinates in the header of the first array.
fn sky_cards(body: &str) -> Vec<String> {
    let (cards, _) = made(&snapshot(body), Subject::Array(0));
    let from = cards.iter().position(|card| card.starts_with("EXTNAME"));
    let cards = cards[from.unwrap() + 1..].to_vec();
    cards.into_iter().filter(|card| card != "END").collect()
}

#[test]
fn a_gwcs_that_is_a_tangent_plane_is_written_as_one() {
    let cards = sky_cards(STEPS);
    for card in [
        "WCSAXES =                    2",
        "CTYPE1  = 'RA---TAN'",
        "CTYPE2  = 'DEC--TAN'",
        "CUNIT2  = 'deg     '",
        "CRPIX1  =                150.5",
        "CRPIX2  =                100.5",
        "RADESYS = 'ICRS    '",
    ] {
        assert!(has(&cards, card), "{card}: {cards:?}");
    }
    for (keyword, want) in [
        ("CRVAL1", 10.0),
        ("CRVAL2", 20.0),
        ("CD1_1", -0.001),
        ("CD1_2", 0.0),
        ("CD2_1", 0.0),
        ("CD2_2", 0.001),
    ] {
        let card = cards.iter().find_map(|card| card.strip_prefix(keyword));
        let value = card.unwrap().trim_start().strip_prefix("= ").unwrap();
        let value: f64 = value.trim().parse().unwrap();
        assert!((value - want).abs() < 1e-12, "{keyword} {value}");
    }
    let last = cards.last().unwrap();
    assert!(last.starts_with("COMMENT fit of degree 1, ") && last.ends_with("64 x 64 pixels"));
    let galactic = STEPS.replace("frames/icrs-1.1.0", "frames/galactic-1.1.0");
    assert!(has(&sky_cards(&galactic), "CTYPE2  = 'GLAT-TAN'"));
}

#[test]
fn images_of_another_shape_have_no_coordinates() {
    let snapshot = snapshot(STEPS);
    for i in [1, 2] {
        let (cards, _) = made(&snapshot, Subject::Array(i));
        assert_eq!(cards.last().unwrap(), "END");
        assert!(!cards.iter().any(|card| card.contains("oordinates")));
    }
    let small = STEPS.replace("pixel_shape: null", "pixel_shape: [3, 2]");
    assert_eq!(sky_cards(&small), [""; 0]);
}

/// Parts of a gwcs that are not known, each in place of another, and what is said of them.
const UNKNOWN: &[(&str, &str, &str)] = &[
    ("gnomonic-", "airy-", "the transform airy is not known"),
    (
        "!transform/gnomonic-1.4.0",
        "!<tag:example.org:x/warp-1.0.0>",
        "the transform warp-1.0.0 is not known",
    ),
    (
        "offset: -149.5",
        "offset: !unit/quantity-1.2.0 {unit: arcsec, value: 1.0}",
        "offset with the unit arcsec",
    ),
    ("offset: -149.5", "offset: .nan", "offset is no number"),
    (
        "unit-1.0.0 deg",
        "unit-1.0.0 rad",
        "the unit rad is not known",
    ),
    ("unit-1.0.0 pixel", "unit-1.0.0 mm", "the unit mm of pixels"),
    (
        "frames/icrs-1.1.0",
        "frames/fk4-1.1.0",
        "the frame fk4-1.1.0 is not known",
    ),
    (
        "celestial_frame-1.2.0",
        "spectral_frame-1.2.0",
        "the frame spectral_frame-1.2.0 is not known",
    ),
    (
        "axes_order: [0, 1]",
        "axes_order: [1, 0]",
        "a frame with axes in another order",
    ),
    (
        "ignore: []",
        "ignore: [x]",
        "a bounding_box that is not known",
    ),
    (
        "{direction: pix2sky}",
        "{direction: up}",
        "gnomonic: up is not known",
    ),
    (
        "factor: -0.001",
        "factor: 0.0",
        "pixels that all lie on a line of the sky",
    ),
    (
        "factor: -0.001",
        "factor: 100.0",
        "an image of about half the sky",
    ),
    (
        "{x: [-0.5, 299.5]",
        "{x: [300, 400]",
        "fewer than two rows or columns in the bounding_box",
    ),
    (
        "pix2sky",
        "sky2pix",
        "no place in the sky at pixel (149.5, 99.5)",
    ),
];

#[test]
fn what_is_not_known_gives_no_coordinates_and_is_named() {
    for (from, to, why) in UNKNOWN {
        assert!(STEPS.contains(from), "{from}");
        let cards = sky_cards(&STEPS.replace(from, to));
        let said: Vec<_> = cards
            .iter()
            .map(|card| card.strip_prefix("COMMENT "))
            .collect();
        let said: Option<Vec<_>> = said.into_iter().collect();
        let said = said.unwrap_or_else(|| panic!("{to}: {cards:?}")).concat();
        assert!(
            said.starts_with("no coordinates: ") && said.contains(why),
            "{said}"
        );
    }
}

/// A mosaic, as RAD 1.2 has it.
const MOSAIC: &str = "t:
  data: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, strides: [0, 0], shape: [200, 300]}
  meta:
    wcsinfo: {ra_ref: 269.9, dec_ref: 65.9, x_ref: 1234.5, y_ref: -456.25, pixel_scale_ref: 1.5e-05,
      projection: TAN, rotation_matrix: [[-1.0, 0.25], [0.25, 1.0]]}
";

#[test]
fn a_mosaic_has_the_projection_of_its_wcsinfo() {
    let cards = sky_cards(MOSAIC);
    for card in [
        "CTYPE1  = 'RA---TAN'",
        "CRPIX1  =               1235.5",
        "CRPIX2  =              -455.25",
        "CRVAL1  =                269.9",
        "CRVAL2  =                 65.9",
        "CD1_1   =              -1.5E-5",
        "CD1_2   =              3.75E-6",
        "CD2_2   =               1.5E-5",
        "COMMENT exact, by meta.wcsinfo",
    ] {
        assert!(has(&cards, card), "{card}: {cards:?}");
    }
    for (from, to, why) in [
        ("projection: TAN", "projection: ZEA", "another projection"),
        (
            "1.5e-05",
            "0.055",
            "a pixel_scale_ref of 0.055, not in degrees",
        ),
        ("ra_ref: 269.9", "ra_ref: .inf", "wcsinfo has no ra_ref"),
        (", 1.0]]", ", -0.0625]]", "a rotation_matrix of no area"),
        (", 1.0]]", ", 1.0], [1.0]]", "no rotation_matrix"),
    ] {
        let cards = sky_cards(&MOSAIC.replace(from, to));
        assert_eq!(cards.len(), 1, "{cards:?}");
        assert!(cards[0].contains(why), "{cards:?}");
    }
}

#[test]
fn a_wcsinfo_that_its_gwcs_contradicts_is_not_believed() {
    let info = |x: &str| {
        STEPS.to_owned()
            + "    wcsinfo: {ra_ref: 10.0, dec_ref: 20.0, x_ref: "
            + x
            + ", y_ref: 99.5, pixel_scale_ref: 0.001, projection: TAN, rotation_matrix: [[-1.0, 0.0], [0.0, 1.0]]}\n"
    };
    let last = |x| sky_cards(&info(x)).pop().unwrap();
    assert!(last("149.5").starts_with("COMMENT by meta.wcsinfo, "));
    assert!(last("150.5").starts_with("COMMENT fit of degree 1, "));
}

/// A gwcs with stored coefficients, as many as one or two doubles of the block.
fn stored(source: u8, many: u8) -> String {
    let array = format!(
        "!core/ndarray-1.0.0 {{source: {source}, datatype: float64, byteorder: little, shape: [{many}]}}"
    );
    STEPS.replace(
        "!transform/scale-1.4.0 {factor: 0.001}",
        &format!("!transform/polynomial-1.3.0 {{coefficients: {array}}}"),
    )
}

#[test]
fn coefficients_that_are_of_no_use_are_told_of() {
    let said = |body: String| sky_cards(&body).concat();
    // what the block holds as doubles is next to nothing
    assert!(said(stored(0, 2)).contains("pixels that all lie on a line of the sky"));
    assert!(said(stored(7, 2)).contains("COMMENT no coordinates: "));
    let many = STEPS.replace("offset: -149.5", "offset: &x [1.0]");
    assert!(said(many).contains("offset is no number"));
}

/// An array of so many bytes that gives none.
struct Broken(u64);

impl Source for Broken {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        Err(Error::io("a test", std::io::ErrorKind::Other.into()))
    }
}

#[test]
fn a_header_needs_no_elements_but_coefficients() {
    let snapshot = snapshot(&stored(0, 2));
    let file = snapshot.fits_plan().file(Subject::Array(0)).unwrap();
    let header = |broken: usize| {
        let elements = |i| -> Result<Arc<dyn Source>> {
            let elements = snapshot.array_bin(i)?;
            if i == broken {
                return Ok(Arc::new(Broken(elements.len())));
            }
            Ok(elements)
        };
        let source = file.open(&snapshot, &elements).unwrap();
        let mut header = vec![0; 5760];
        source.read_exact_at(&mut header, 0).map(|()| header)
    };
    let found = header(0).unwrap();
    assert_eq!(found, header(1).unwrap());
    let array = (0..snapshot.arrays().len()).find(|i| {
        let path = path(&snapshot, Subject::Array(*i));
        path.ends_with("coefficients")
    });
    // an error of the medium is none of the coordinates
    assert!(header(array.unwrap()).is_err());
}
