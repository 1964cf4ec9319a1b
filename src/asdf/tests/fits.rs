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
        (&["BZERO   = 32769"], "uint16", "[6]", "scaled"),
        (&["BZERO   = 'a'"], "int16", "[6]", "scaled"),
        (&["BLANK   = 7"], "int16", "[6]", "BLANK"),
        (&["GCOUNT  = 2"], "int16", "[6]", "groups"),
        (
            &["ZIMAGE  =                    T"],
            "int16",
            "[6]",
            "compressed",
        ),
        (&[], "int16", "[5]", "the shape [6]"),
        (&[], "int16", "[2, 3]", "the shape [6]"),
        (&[], "[[ascii, 2]]", "[6]", "is a table"),
        (&[], "int16", "[6], offset: 2", "a part of a unit"),
        (&[], "int16", "[6], strides: [4]", "a part of a unit"),
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

/// A binary table of these rows: a form and further cards for each column.
fn table(columns: &[(&str, &[&str])], rows: &[&[u8]], more: &[&str]) -> Vec<u8> {
    let mut cards = vec![
        "XTENSION= 'BINTABLE'".to_owned(),
        "BITPIX  = 8".to_owned(),
        "NAXIS   = 2".to_owned(),
        format!("NAXIS1  = {}", rows.first().map_or(0, |row| row.len())),
        format!("NAXIS2  = {}", rows.len()),
        "PCOUNT  = 0".to_owned(),
        "GCOUNT  = 1".to_owned(),
        format!("TFIELDS = {}", columns.len()),
        "EXTNAME = 'T'".to_owned(),
    ];
    for (n, (form, more)) in (1..).zip(columns) {
        cards.push(format!("TTYPE{n:<3}= 'C{n}'"));
        cards.push(format!("TFORM{n:<3}= '{form}'"));
        cards.extend(more.iter().map(|card| card.replace('#', &n.to_string())));
    }
    let cards = cards.iter().map(String::as_str).chain(more.iter().copied());
    unit(&cards.collect::<Vec<_>>(), &rows.concat())
}

/// The first array over a table unit, and its elements.
fn over(table: &[u8], datatype: &str, shape: &str) -> (Snapshot, Result<Vec<u8>>) {
    let tree = format!("a:\n{}", array("fits:T,1", datatype, shape));
    let snapshot = open(&[&primary(), table, &asdf(&tree, &[])].concat()).unwrap();
    let bytes = snapshot.array_bin(0);
    let bytes = bytes.and_then(|source| read_all(&*source, 1 << 20));
    (snapshot, bytes)
}

/// The bytes of a table of three columns, the second of that form, which has to be shown with that type and shape of cells.
fn column(column: (&str, &[&str]), stored: &[u8], (datatype, shape): (&str, &[u64])) -> Vec<u8> {
    // columns beside it show that it neither begins too early nor ends too late
    let row = [b"x", stored, b"yz"].concat();
    let unit = table(&[("1B", &[]), column, ("1I", &[])], &[&row, &row], &[]);
    let declared = "[uint8, uint8, int16]";
    let (snapshot, bytes) = over(&unit, declared, "['*']");
    let found = &snapshot.arrays()[0];
    let Some(Datatype::Struct(fields)) = found.datatype() else {
        panic!("no columns");
    };
    let field = &fields[1];
    assert_eq!(
        (field.datatype.to_string().as_str(), &*field.shape),
        (datatype, shape)
    );
    assert_eq!(field.name.as_deref(), Some("C2"));
    assert_eq!(found.shape(), Some(&[2][..]));
    assert!(
        found
            .note()
            .unwrap()
            .starts_with("column C1: uint8 in FITS")
    );
    bytes.unwrap()
}

/// Numbers with an offset had other values than astropy gives, and letters stood for truth values.
#[test]
fn columns_are_what_astropy_gives() {
    for (form, more, stored, datatype, shape, want) in [
        (
            "1I",
            &["TZERO#  = 32768"][..],
            &b"\x80\0"[..],
            "uint16",
            &[][..],
            &b"\0\0"[..],
        ),
        (
            "J",
            &["TZERO#  = 2147483648.0"],
            b"\0\0\0\x01",
            "uint32",
            &[],
            b"\x80\0\0\x01",
        ),
        (
            "1K",
            &["TZERO#  = 9223372036854775808", "TSCAL#  = 1"],
            b"\0\0\0\0\0\0\0\x01",
            "uint64",
            &[],
            b"\x80\0\0\0\0\0\0\x01",
        ),
        (
            "2B",
            &["TZERO#  = -128"],
            b"\0\xff",
            "int8",
            &[2],
            b"\x80\x7f",
        ),
        ("2b", &[], b"\0\xff", "uint8", &[2], b"\0\xff"),
    ] {
        let bytes = column((form, more), stored, (datatype, shape));
        assert_eq!(bytes, [b"x", want, b"yz"].concat().repeat(2), "{form}");
    }
}

#[test]
fn cells_have_the_shape_and_type_that_astropy_gives() {
    for (form, more, stored, datatype, shape, want) in [
        (
            "3L",
            &["TZERO#  = 7"][..],
            &b"TF\0"[..],
            "bool8",
            &[3][..],
            &b"\x01\0\0"[..],
        ),
        (
            "6I",
            &["TDIM#   = '(3, 2)'"],
            b"abcdefghijkl",
            "int16",
            &[2, 3],
            b"abcdefghijkl",
        ),
        (
            "3I",
            &["TDIM#   = '(1,2)'"],
            b"abcdef",
            "int16",
            &[2, 1],
            b"abcd",
        ),
        ("2I", &["TDIM#   = '(3)'"], b"abcd", "int16", &[2], b"abcd"),
        ("1I", &["TDIM#   = '(1)'"], b"ab", "int16", &[1], b"ab"),
        ("4A", &[], b"ab  ", "[ascii,4]", &[], b"ab  "),
        (
            "5A",
            &["TDIM#   = '(2,2)'"],
            b"abcde",
            "[ascii,2]",
            &[2],
            b"abcd",
        ),
        ("1C", &[], b"abcdefgh", "complex64", &[], b"abcdefgh"),
        ("1M", &[], &[1; 16], "complex128", &[], &[1; 16]),
        ("0E", &[], b"", "float32", &[0], b""),
    ] {
        let bytes = column((form, more), stored, (datatype, shape));
        assert_eq!(bytes, [b"x", want, b"yz"].concat().repeat(2), "{form}");
    }
}

#[test]
fn columns_that_arrays_cannot_hold_are_a_reason() {
    let row: &[u8] = &[0; 8];
    for (form, more, reason) in [
        ("8X", &[][..], "column C1: bits (8X)"),
        (
            "1PE(3)",
            &[],
            "column C1: cells of various lengths (1PE(3))",
        ),
        ("1QD", &[], "various lengths"),
        ("4I", &["TSCAL#  = 0.1"], "column C1: scaled"),
        ("4I", &["TZERO#  = -32768"], "scaled"),
        ("1K", &["TZERO#  = 5"], "scaled"),
        ("1D", &["TZERO#  = 1"], "scaled"),
        ("1C", &["TSCAL#  = 2"], "scaled"),
        ("8Z", &[], "no valid TFORM (8Z)"),
        ("", &[], "no valid TFORM"),
        ("7B", &[], "rows of 8 bytes, but columns of 7"),
        ("18446744073709551615D", &[], "2^64"),
        ("18446744073709551616D", &[], "no valid TFORM"),
    ] {
        let (_, bytes) = over(&table(&[(form, more)], &[row], &[]), "[uint8]", "[1]");
        let why = bytes.unwrap_err().to_string();
        assert!(why.contains(reason), "{why}");
    }
    for (kind, reason) in [
        (
            &["ZIMAGE  = T"][..],
            "a compressed image; its bytes are in hdus/",
        ),
        (&["BITPIX  = 16"], "the unit has the shape [1]"),
    ] {
        let (_, bytes) = over(&table(&[("8B", &[])], &[row], kind), "[uint8]", "[2]");
        let why = bytes.unwrap_err().to_string();
        assert!(why.contains(reason), "{why}");
    }
    let text = String::from_utf8(table(&[("8B", &[])], &[row], &[])).unwrap();
    let ascii = text.replace("'BINTABLE'", "'TABLE   '");
    let (_, bytes) = over(ascii.as_bytes(), "[uint8]", "[1]");
    let why = bytes.unwrap_err().to_string();
    assert!(why.contains("an extension of the kind TABLE"), "{why}");
}

#[test]
fn a_table_is_what_its_header_says_whatever_the_tree_declares() {
    let unit = table(&[("1B", &[]), ("1I", &["TZERO#  = 32768"])], &[b"abc"], &[]);
    for (declared, note) in [
        (
            "[{name: C1, datatype: uint8}, {name: C2, datatype: uint16}]",
            None,
        ),
        (
            "[{name: C1, datatype: uint8}, {name: C2, datatype: int16}]",
            Some("column C2: uint16 in FITS, the tree declares another name, type or shape"),
        ),
        (
            "[{name: c1, datatype: uint8}, {name: c2, datatype: uint16}]",
            Some("column C1: uint8 in FITS, the tree declares another name, type or shape"),
        ),
        (
            "[{name: C2, datatype: uint16}]",
            Some("2 columns in FITS, the tree declares 1"),
        ),
    ] {
        let (snapshot, bytes) = over(&unit, declared, "[1]");
        let found = &snapshot.arrays()[0];
        assert_eq!(found.note().as_deref(), note);
        assert_eq!(found.datatype_text().unwrap(), "[C1:uint8,C2:uint16]");
        assert_eq!(bytes.unwrap(), b"a\xe2c");
    }
    let (_, bytes) = over(&unit, "uint8", "[1]");
    assert!(bytes.unwrap_err().to_string().contains("is a table"));
}

#[test]
fn references_find_units_as_astropy_does() {
    let tree = [
        "a:\n",
        &array("fits:T,-2", "uint8", "[1]"),
        &array("fits:T,1", "uint8", "[1]"),
        &array("fits:PRIMARY,1", "uint8", "[1]"),
        &array("fits: own ,1", "uint8", "[1]"),
        &array("fits:0", "int8", "[1]"),
        &array("fits:4", "uint8", "[1]"),
        &array("fits:99", "uint8", "[1]"),
    ]
    .concat();
    let first = unit(
        &[
            "SIMPLE  = T",
            "BITPIX  = 8",
            "NAXIS   = 1",
            "NAXIS1  = 1",
            "EXTNAME = ' OWN'",
        ],
        b"p",
    );
    let bytes = [
        first,
        image("T", &["EXTVER  = -2"], 8, &[1], b"a"),
        image("T", &[], 8, &[1], b"b"),
        image("T", &[], 8, &[1], b"c"),
        image("empty", &[], 8, &[], b""),
        asdf(&tree, &[]),
    ];
    let snapshot = open(&bytes.concat()).unwrap();
    for (i, want) in [b"a", b"b", b"p", b"p", b"p"].iter().enumerate() {
        let found = snapshot.array_bin(i).unwrap();
        assert_eq!(read_all(&*found, 100).unwrap(), *want, "{i}");
    }
    let note = snapshot.arrays()[4].note();
    assert_eq!(
        note.unwrap(),
        "uint8 in FITS, the tree declares another type"
    );
    let why = [5, 6].map(|i| snapshot.arrays()[i].problem().unwrap().to_string());
    assert!(
        why[0].contains("no data") && why[1].contains("no such unit"),
        "{why:?}"
    );
}

#[test]
fn long_texts_go_on_in_the_next_card() {
    let unit = table(
        &[("1B", &[])],
        &[b"a"],
        &[
            "TTYPE2  = 'x&'",
            "CONTINUE  'y&' / z",
            "CONTINUE  'z'",
            "CONTINUE  'no'",
        ],
    );
    let unit = String::from_utf8(unit)
        .unwrap()
        .replace("TTYPE1  = 'C1'", "TTYPE3  = 'C1'");
    let unit = unit.replace("TTYPE2", "TTYPE1");
    let (snapshot, _) = over(unit.as_bytes(), "[uint8]", "[1]");
    assert_eq!(snapshot.arrays()[0].datatype_text().unwrap(), "[xyz:uint8]");
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
        let mut bytes = [
            primary(),
            image("SCI", &[], 16, &[6], &[0; 12]),
            table(&[("2I", &["TDIM#   = '(2,1)'", "TZERO#  = 32768"]), ("3A", &[]), ("1L", &[])], &[&[7; 8][..]; 9], &[]),
            asdf("a: 1\n", &[]),
        ].concat();
        for (at, value) in &flips {
            let at = at.index(bytes.len() - 9) + 9;
            bytes[at] = *value;
        }
        bytes.truncate(cut.index(bytes.len() - 9) + 9);
        if let Ok(found) = fits(&bytes) {
            for n in 0..found.hdus().len() {
                prop_assert!(found.header(n).is_ok());
                if let Ok(elements) = found.open_elements(n) {
                    let _ = read_all(&*elements, 1 << 16);
                }
                if let Ok(data) = found.data(n) {
                    let _ = read_all(&*data, 1 << 16);
                }
            }
        }
    }
}
