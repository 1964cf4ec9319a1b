use super::*;
use crate::asdf::Snapshot;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::{Memory, read_all};
use proptest::prelude::*;
use std::io::Write;

/// A unit of these cards and data, made from the FITS standard's text.
fn unit(cards: &[&str], data: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = cards
        .iter()
        .chain(&["END"])
        .flat_map(|card| format!("{card:<80}").into_bytes())
        .collect();
    out.resize(out.len().next_multiple_of(2880), b' ');
    out.extend(data);
    out.resize(out.len().next_multiple_of(2880), 0);
    out
}

fn primary() -> Vec<u8> {
    unit(
        &[
            "SIMPLE  =                    T / comment",
            "BITPIX  =                    8",
            "NAXIS   =                    0",
        ],
        b"",
    )
}

fn image(name: &str, more: &[&str], bitpix: i64, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let mut cards = vec![
        "XTENSION= 'IMAGE   '           / comment".to_owned(),
        format!("BITPIX  = {bitpix:>20}"),
        format!("NAXIS   = {:>20}", shape.len()),
    ];
    for (i, n) in shape.iter().rev().enumerate() {
        cards.push(format!("NAXIS{}  = {n:>20}", i + 1));
    }
    cards.push(format!("EXTNAME = '{name}'"));
    let cards: Vec<&str> = cards
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    unit(&cards, data)
}

fn asdf(tree: &str, blocks: &[&[u8]]) -> Vec<u8> {
    let text = format!(
        "#ASDF 1.0.0\n#ASDF_STANDARD 1.6.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n{tree}...\n"
    );
    let mut sample = Sample::new().text(text.as_bytes());
    for block in blocks {
        sample = sample.block(block);
    }
    let bytes = sample.bytes();
    image("ASDF", &[], 8, &[bytes.len() as u64], &bytes)
}

fn open(bytes: &[u8]) -> Result<Snapshot> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Snapshot::open(
        Arc::new(file),
        Cache::new(1 << 24),
        crate::asdf::OpenOptions::default(),
    )
}

fn fits(bytes: &[u8]) -> Result<Fits> {
    let bytes: Arc<dyn Source> = Arc::new(Memory::new(bytes.to_vec()));
    Ok(Fits::open(&bytes)?.unwrap())
}

fn array(source: &str, datatype: &str, shape: &str) -> String {
    format!(
        "  - !core/ndarray-1.1.0 {{source: '{source}', datatype: {datatype}, byteorder: big, shape: {shape}}}\n"
    )
}

#[test]
fn arrays_lie_in_the_units_that_references_name() {
    let tree = [
        "a:\n",
        &array("fits:SCI,1", "int16", "[2, 3]"),
        &array("fits:sci,2", "int8", "[2]"),
        &array("fits:A,B C,1", "uint8", "[3]"),
        &array("fits:2", "int8", "[2]"),
        "  - !core/ndarray-1.1.0 {source: 0, datatype: uint8, byteorder: big, shape: [3]}\n",
    ]
    .concat();
    let bytes = [
        primary(),
        image("SCI", &[], 16, &[2, 3], b"abcdefghijkl"),
        image(
            "SCI     ",
            &["EXTVER  =                    2"],
            8,
            &[2],
            b"xy",
        ),
        image("A,B C", &[], 8, &[3], b"123"),
        asdf(&tree, &[b"own"]),
    ]
    .concat();
    let snapshot = open(&bytes).unwrap();
    let want: [&[u8]; 5] = [b"abcdefghijkl", b"xy", b"123", b"xy", b"own"];
    for (i, want) in want.iter().enumerate() {
        let found = snapshot.array_bin(i).unwrap();
        assert_eq!(read_all(&*found, 100).unwrap(), *want, "{i}");
    }
    assert_eq!(snapshot.arrays()[0].source_text(), "fits:SCI,1");
    assert_eq!(snapshot.container(), "ASDF in FITS");
    assert!(snapshot.layout().findings.is_empty());
}

#[test]
fn unsigned_integers_have_their_sign_bit_turned() {
    for (bitpix, zero, datatype, stored, want) in [
        (
            16_i64,
            "32768",
            "uint16",
            &[0x80, 0, 0x7f, 0xff][..],
            &[0, 0, 0xff, 0xff][..],
        ),
        (32, "2147483648", "uint32", &[0x80, 0, 0, 1], &[0, 0, 0, 1]),
        (
            64,
            "9223372036854775808",
            "uint64",
            &[0, 1, 2, 3, 4, 5, 6, 7],
            &[0x80, 1, 2, 3, 4, 5, 6, 7],
        ),
        (
            64,
            "9.223372036854775808D18",
            "uint64",
            &[0; 8],
            &[0x80, 0, 0, 0, 0, 0, 0, 0],
        ),
        (8, "-128", "int8", &[0, 0xff], &[0x80, 0x7f]),
    ] {
        let count = stored.len() as u64 * 8 / bitpix.unsigned_abs();
        let zero = format!("BZERO   = {zero:>20}");
        let tree = format!(
            "a:\n{}",
            array("fits:DQ,1", datatype, &format!("[{count}]"))
        );
        let bytes = [
            primary(),
            image("DQ", &[&zero, "BSCALE  = 1"], bitpix, &[count], stored),
            asdf(&tree, &[]),
        ];
        let snapshot = open(&bytes.concat()).unwrap();
        let source = snapshot.array_bin(0).unwrap();
        assert_eq!(read_all(&*source, 100).unwrap(), want, "{datatype}");
        for at in 0..want.len() {
            let mut rest = vec![0; want.len() - at];
            source.read_exact_at(&mut rest, at as u64).unwrap();
            assert_eq!(rest, want[at..], "{datatype} from {at}");
        }
    }
}

#[test]
fn what_is_not_stored_is_listed_with_the_reason() {
    for (more, datatype, shape, reason) in [
        (&["BSCALE  = 0.5"][..], "float32", "[3]", "scaled"),
        (&["BZERO   = 32768"], "int16", "[6]", "scaled"),
        (
            &["ZIMAGE  =                    T"],
            "int16",
            "[6]",
            "compressed",
        ),
        (&[], "int16", "[5]", "10 bytes"),
        (&[], "int16", "[7]", "14"),
        (&["EXTVER  = 7"], "int16", "[6]", "no such unit"),
    ] {
        let tree = format!("a:\n{}", array("fits:SCI,1", datatype, shape));
        let bytes = [
            primary(),
            image("SCI", more, 16, &[6], &[0; 12]),
            asdf(&tree, &[]),
        ];
        let snapshot = open(&bytes.concat()).unwrap();
        let problem = snapshot.arrays()[0].problem().unwrap().to_string();
        assert!(problem.contains(reason), "{problem}");
    }
}

#[test]
fn a_file_without_asdf_is_none_of_ours() {
    let bytes = [primary(), image("SCI", &[], 8, &[3], b"abc")].concat();
    assert!(matches!(open(&bytes), Err(Error::Corrupt { .. })));
    assert!(matches!(open(&primary()), Err(Error::Corrupt { .. })));
}

#[test]
fn units_of_every_kind_are_passed_over() {
    let table = unit(
        &[
            "XTENSION= 'BINTABLE'",
            "BITPIX  = 8",
            "NAXIS   = 2",
            "NAXIS1  = 4",
            "NAXIS2  = 3",
            "PCOUNT  = 3000 / heap",
            "GCOUNT  = 1",
            "EXTNAME = 'O''Neill' / a quote",
            "EXTNAME = 'second'",
        ],
        &[7; 3012],
    );
    let foreign = unit(
        &[
            "XTENSION= 'FOREIGN'",
            "BITPIX  = -64",
            "NAXIS   = 1",
            "NAXIS1  = 2",
        ],
        &[0; 16],
    );
    let special = vec![b'x'; 2880];
    let bytes = [primary(), table, foreign, asdf("a: 1\n", &[]), special].concat();
    let found = fits(&bytes).unwrap();
    let stems: Vec<_> = (0..)
        .zip(found.hdus())
        .map(|(n, hdu)| hdu.file_stem(n))
        .collect();
    assert_eq!(stems, ["0-PRIMARY,1", "1-O'Neill,1", "2", "3-ASDF,1"]);
    let table = &found.hdus()[1];
    assert_eq!((table.data.len(), table.main_len), (3012, 12));
    assert_eq!(found.data(1).unwrap().len(), 3012);
    assert_eq!(found.header(1).unwrap().len(), 2880);
    assert!(found.problems.is_empty());
    assert!(open(&bytes).is_ok());
}

#[test]
fn data_cut_short_give_an_error_where_they_end() {
    let whole = [
        primary(),
        asdf("a: 1\n", &[]),
        image("SCI", &[], 8, &[100], &[1; 100]),
    ]
    .concat();
    let cut = &whole[..whole.len() - 2880 + 10];
    let found = fits(cut).unwrap();
    assert_eq!(found.problems.len(), 1);
    let data = found.data(2).unwrap();
    assert_eq!(data.len(), 100);
    assert!(data.read_exact_at(&mut [0; 10], 0).is_ok());
    assert!(data.read_exact_at(&mut [0; 10], 1).is_err());
    assert!(open(cut).is_ok());
}

#[test]
fn sizes_beyond_any_file_are_errors() {
    let huge = u64::MAX / 2;
    let bytes = [
        primary(),
        image("BIG", &[], 64, &[huge, huge], b""),
        asdf("a: 1\n", &[]),
    ]
    .concat();
    let found = fits(&bytes).unwrap();
    assert_eq!((found.hdus().len(), found.problems.len()), (1, 1));
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_nothing_reaches_outside(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = [primary(), image("SCI", &[], 16, &[6], &[0; 12]), asdf("a: 1\n", &[])].concat();
        for (at, value) in &flips {
            let at = at.index(bytes.len() - 9) + 9;
            bytes[at] = *value;
        }
        bytes.truncate(cut.index(bytes.len() - 9) + 9);
        if let Ok(found) = fits(&bytes) {
            for n in 0..found.hdus().len() {
                prop_assert!(found.header(n).is_ok());
                if let Ok(data) = found.data(n) {
                    let _ = read_all(&*data, 1 << 16);
                }
            }
        }
    }
}
