//! What the files say, of trees made here.

use super::*;
use crate::asdf::OpenOptions;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::source::read_all;
use std::io::Write;

pub(super) fn snapshot(body: &str) -> Snapshot {
    let text = format!("#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\n{body}...\n");
    let bytes: Vec<u8> = (0..48).collect();
    let sample = Sample::new().text(text.as_bytes()).block(&bytes);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample.bytes()).unwrap();
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

fn array(name: &str, datatype: &str, shape: &str) -> String {
    array_with(name, datatype, shape, "")
}

fn array_with(name: &str, datatype: &str, shape: &str, more: &str) -> String {
    format!(
        "{name}: !core/ndarray-1.0.0 {{source: 0, datatype: {datatype}, byteorder: little, shape: {shape}{more}}}\n"
    )
}

/// Header cards and data of the file of the first array.
pub(super) fn made(snapshot: &Snapshot, subject: Subject) -> (Vec<String>, Vec<u8>) {
    let file = snapshot.fits_plan().file(subject).unwrap();
    let source = file.open(snapshot, &|i| snapshot.array_bin(i)).unwrap();
    assert_eq!(source.len(), file.len);
    assert_eq!(file.len % BLOCK_LEN, 0);
    let bytes = read_all(&*source, 1 << 20).unwrap();
    let headers = file.units.iter().take_while(|unit| unit.parts.is_empty());
    let headers = headers.map(|unit| unit.header.len()).sum::<usize>();
    let with_data = file.units.iter().find(|unit| !unit.parts.is_empty());
    let (header, data) = bytes.split_at(headers + with_data.map_or(0, |unit| unit.header.len()));
    let cards = header.chunks(80).map(String::from_utf8_lossy);
    let cards = cards.map(|card| card.trim_end().to_owned());
    (
        cards.filter(|card| !card.is_empty()).collect(),
        data.to_vec(),
    )
}

/// All arrays and tables.
fn subjects(snapshot: &Snapshot) -> Vec<Subject> {
    let all = snapshot.fits_plan().subjects().into_iter();
    let all = all.filter(|subject| !matches!(subject, Subject::Directory(_)));
    all.collect()
}

/// The path of an array or table in the tree.
pub(super) fn path(snapshot: &Snapshot, subject: Subject) -> String {
    let (paths, place) = snapshot.place_of(subject).unwrap();
    paths.path(place)
}

pub(super) fn has(cards: &[String], card: &str) -> bool {
    cards.iter().any(|found| found == card)
}

#[test]
fn axes_are_reversed_and_elements_are_not() {
    let (cards, data) = made(&snapshot(&array("x", "int16", "[2, 3]")), Subject::Array(0));
    let start = [
        "SIMPLE  =                    T",
        "BITPIX  =                   16",
    ];
    assert_eq!(cards[..2], start);
    assert!(has(&cards, "NAXIS1  =                    3"));
    assert!(has(&cards, "NAXIS2  =                    2"));
    assert_eq!(data[..12], [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]);
    assert_eq!(data.len(), 2880);
}

/// Other bytes than 0 and 1 stood in images of truth values as they are.
#[test]
fn truth_values_are_bytes_of_0_and_1() {
    let (cards, data) = made(&snapshot(&array("x", "bool8", "[2, 3]")), Subject::Array(0));
    assert!(has(&cards, "BITPIX  =                    8"));
    assert_eq!(data[..6], [0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_single_number_is_an_image_of_one() {
    let (cards, data) = made(&snapshot(&array("x", "uint8", "[]")), Subject::Array(0));
    assert!(has(&cards, "NAXIS   =                    1"));
    assert!(has(&cards, "NAXIS1  =                    1"));
    assert_eq!(data.len(), 2880);
}

/// Images of float16 had no files.
#[test]
fn float16_is_stored_as_float32() {
    let body = array("x", "float16", "[2, 3]").replace("ndarray-1.0.0", "ndarray-1.1.0");
    let (cards, data) = made(&snapshot(&body), Subject::Array(0));
    assert!(has(&cards, "BITPIX  =                  -32"));
    assert!(has(&cards, "COMMENT float16 in the tree, here float32"));
    // 0x0100 is 2^-16, 0x0b0a is (1 + 778 / 1024) 2^-13
    assert_eq!(data[..4], 2_f32.powi(-16).to_be_bytes());
    let last = (1.0 + 778.0 / 1024.0) * 2_f32.powi(-13);
    assert_eq!(data[20..24], last.to_be_bytes());
    assert_eq!(data[24..], [0; 2856]);
}

/// Images of complex numbers had no files.
#[test]
fn complex_numbers_are_two_images() {
    let body = array("x", "complex64", "[2, 3]");
    let (cards, data) = made(&snapshot(&body), Subject::Array(0));
    assert!(has(&cards, "NAXIS   =                    0"));
    assert!(has(&cards, "EXTNAME = 'x       '"));
    assert!(has(&cards, "EXTNAME = 're      '"));
    assert_eq!(data[..8], [3, 2, 1, 0, 11, 10, 9, 8]);
    let (padding, rest) = data[24..].split_at(2880 - 24);
    assert!(padding.iter().all(|byte| *byte == 0));
    let (header, data) = rest.split_at(2880);
    assert!(
        header
            .windows(20)
            .any(|card| card == b"EXTNAME = 'im      '")
    );
    assert_eq!(data[..8], [7, 6, 5, 4, 15, 14, 13, 12]);
    assert_eq!(data.len(), 2880);
}

#[test]
fn an_array_without_elements_has_a_header_alone() {
    let file = made(
        &snapshot(&array("x", "float32", "[0, 3]")),
        Subject::Array(0),
    );
    assert!(has(&file.0, "NAXIS2  =                    0") && file.1.is_empty());
}

#[test]
fn the_number_of_a_mask_is_blank() {
    for (datatype, mask, want) in [
        (
            "uint16",
            "0",
            Some("COMMENT 0 stands for no value (no BLANK beside an offset)"),
        ),
        ("int8", "128", None),
        ("int16", "-7", Some("BLANK   =                   -7")),
        ("int16", "0x7FFF", Some("BLANK   =                32767")),
        ("int16", "1_000", Some("BLANK   =                 1000")),
        ("uint8", "010", Some("BLANK   =                    8")),
        ("uint8", "256", None),
        ("uint8", "7.0", Some("BLANK   =                    7")),
        ("uint8", "7.5", None),
        (
            "float32",
            "-999.0",
            Some("COMMENT -999 stands for no value (no BLANK of this type)"),
        ),
        (
            "float64",
            "5",
            Some("COMMENT 5 stands for no value (no BLANK of this type)"),
        ),
        (
            "float64",
            "1.0e+30",
            Some("COMMENT 1e30 stands for no value (no BLANK of this type)"),
        ),
        (
            "complex64",
            "0.5",
            Some("COMMENT 0.5+0j stands for no value (no BLANK of this type)"),
        ),
        // FITS has it for no value
        ("float32", ".nan", None),
        ("bool8", "1", Some("BLANK   =                    1")),
    ] {
        let body = array_with("x", datatype, "[2]", &format!(", mask: {mask}"));
        let (cards, _) = made(&snapshot(&body), Subject::Array(0));
        let blank = cards.iter().find(|card| card.contains("BLANK"));
        assert_eq!(blank.map(String::as_str), want, "{datatype}");
    }
}

/// Masked elements of columns were shown as they are, without a word.
#[test]
fn the_number_of_a_mask_is_told_where_a_column_has_no_null() {
    let body = |datatype: &str, mask: &str| {
        let data = array_with("data", datatype, "[2]", &format!(", mask: {mask}"));
        let data = data.trim_end();
        format!("t: !core/table-1.0.0 {{columns: [!core/column-1.0.0 {{name: c, {data}}}]}}\n")
    };
    for (datatype, mask, want) in [
        (
            "float64",
            "-999.0",
            Some("COMMENT -999 stands for no value (no TNULL1 of this type)"),
        ),
        (
            "complex64",
            "1",
            Some("COMMENT 1+0j stands for no value (no TNULL1 of this type)"),
        ),
        (
            "bool8",
            "0",
            Some("COMMENT 0 stands for no value (no TNULL1 of this type)"),
        ),
        ("bool8", "2", None),
        ("[ascii, 2]", "0", None),
        ("int16", "3", Some("TNULL1  =                    3")),
    ] {
        let snapshot = snapshot(&body(datatype, mask));
        let (cards, _) = made(&snapshot, *subjects(&snapshot).last().unwrap());
        let null = cards.iter().find(|card| card.contains("TNULL"));
        assert_eq!(null.map(String::as_str), want, "{datatype}");
    }
}

/// Extensions of one directory had the same name and no version, so that readers found the first alone.
#[test]
fn extensions_whose_names_are_cut_alike_have_versions() {
    let key = "k".repeat(70);
    let body = format!(
        "d:\n  {}  {}",
        array(&format!("{key}1"), "uint8", "[2]"),
        array(&format!("{key}2"), "complex64", "[2]")
    );
    let snapshot = snapshot(&body);
    let mut subjects = snapshot.fits_plan().subjects().into_iter();
    let directory = subjects.find(|subject| matches!(subject, Subject::Directory(_)));
    let file = snapshot.fits_plan().file(directory.unwrap()).unwrap();
    let names = file.units.iter().skip(1).map(|unit| {
        let cards = unit.header.chunks(80).map(String::from_utf8_lossy);
        let cards = cards.map(|card| card.trim_end().to_owned());
        let cards = cards.filter(|card| card.starts_with("EXT"));
        cards.collect::<Vec<_>>()
    });
    let names: Vec<_> = names.collect();
    let cut = format!("d/{}", "k".repeat(63));
    let version = format!("EXTVER  = {:>20}", 2);
    let want = [
        vec![format!("EXTNAME = '{cut}'")],
        vec![format!("EXTNAME = '{cut}/re'"), version.clone()],
        vec![format!("EXTNAME = '{cut}/im'"), version],
    ];
    assert_eq!(names, want);
}

#[test]
fn nulls_are_told_of() {
    let inline = |data: &str| format!("!core/ndarray-1.0.0 {{datatype: int32, data: {data}}}");
    let body = format!(
        "a: {}\nt: !core/table-1.0.0 {{columns: [!core/column-1.0.0 {{name: c, data: {}}}]}}\n",
        inline("[1, null]"),
        inline("[null, 2, null]")
    );
    let snapshot = snapshot(&body);
    let (cards, _) = made(&snapshot, Subject::Array(0));
    assert!(
        has(&cards, "COMMENT 1 null in the tree reads as zero"),
        "{cards:?}"
    );
    let (cards, _) = made(&snapshot, *subjects(&snapshot).last().unwrap());
    assert!(
        has(&cards, "COMMENT c: 2 nulls in the tree read as zeros"),
        "{cards:?}"
    );
}

#[test]
fn a_table_is_gathered_from_its_columns() {
    let column = |name: &str, more: &str, datatype: &str, shape: &str| {
        let data = array("data", datatype, shape);
        let data = data.trim_end();
        format!("  - !core/column-1.0.0 {{name: {name}, {more}{data}}}\n")
    };
    let columns = [
        column("a", "unit: Jy, ", "uint16", "[2]"),
        column("long", "", "uint8", "[3]"),
        column("b", "", "[ascii, 2]", "[2, 2]"),
        "  - !time/time-1.1.0 {value: 5}\n".to_owned(),
    ];
    let body = format!("t: !core/table-1.0.0\n  columns:\n{}", columns.concat());
    let snapshot = snapshot(&body);
    let subjects = subjects(&snapshot);
    let table = *subjects.last().unwrap();
    assert!(matches!(table, Subject::Table(_)) && subjects.len() == 4);
    assert_eq!(path(&snapshot, table), "t");
    let (cards, data) = made(&snapshot, table);
    for card in [
        "NAXIS1  =                    6",
        "NAXIS2  =                    2",
        "TTYPE1  = 'a       '",
        "TUNIT1  = 'Jy      '",
        "TFORM2  = '4A      '",
        "TDIM2   = '(2,2)   '",
        "COMMENT left out: long: 3 rows, but the table has 2",
        "COMMENT left out: col3: its data are no array of this file",
    ] {
        assert!(has(&cards, card), "{card}: {cards:?}");
    }
    assert_eq!(data[..12], [0x81, 0, 0, 1, 2, 3, 0x83, 2, 4, 5, 6, 7]);
}

#[test]
fn columns_that_are_references_are_those_they_lead_to() {
    let column =
        |name: &str, data: &str| format!("!core/column-1.0.0 {{name: {name}, data: {data}}}");
    let array = |shape| {
        array("", "uint8", shape)
            .trim_start_matches(": ")
            .trim()
            .to_owned()
    };
    let table = |name: &str, columns: &[&str]| {
        format!(
            "{name}: !core/table-1.0.0\n  columns: [{}]\n",
            columns.join(", ")
        )
    };
    let body = [
        format!("a: {}\n", array("[2]")),
        table(
            "t",
            &[&column("x", &array("[2]")), &column("y", "{$ref: '#/a'}")],
        ),
        table("u", &["{$ref: '#/t/columns/1'}", "{$ref: '#/t/columns/0'}"]),
        "v: !core/table-1.0.0 {columns: {$ref: '#/t/columns'}}\n".to_owned(),
        table(
            "w",
            &[
                &column("late", "{$ref: '#/z'}"),
                "{$ref: '#/x/columns/0'}",
                "{$ref: 'o.asdf#/t'}",
            ],
        ),
        table("x", &[&column("far", &array("[2]"))]),
        format!("z: {}\n", array("[2]")),
    ];
    let snapshot = snapshot(&body.concat());
    let tables = subjects(&snapshot).into_iter();
    let tables = tables.filter(|subject| matches!(subject, Subject::Table(_)));
    let shown = tables.map(|table| {
        let (cards, _) = made(&snapshot, table);
        let names = cards.iter().filter_map(|card| card.strip_prefix("TTYPE"));
        let names = names.filter_map(|card| Some(card.split('\'').nth(1)?.trim_end()));
        let names: Vec<_> = names.collect();
        let omitted = snapshot.fits_plan().file(table).unwrap().omitted;
        let omitted = omitted.iter().map(|(name, why)| format!("{name}: {why}"));
        let path = path(&snapshot, table);
        (path, names.join(" "), omitted.collect())
    });
    let shown: Vec<(String, String, Vec<String>)> = shown.collect();
    let omitted = ["col1", "col2"].map(|column| {
        format!(
            "{column}: its $ref leads to no array of this file, nor to a column before this one"
        )
    });
    for (found, (path, names, omitted)) in shown.iter().zip([
        ("t", "x y", &[][..]),
        ("u", "y x", &[]),
        ("v", "x y", &[]),
        ("w", "late", &omitted),
        ("x", "far", &[]),
    ]) {
        let want = (path.to_owned(), names.to_owned(), omitted.to_vec());
        assert_eq!(*found, want);
    }
    assert_eq!(shown.len(), 5);
}

#[test]
fn what_fits_cannot_hold_is_refused() {
    let body = array("x", "[ascii, 2]", "[2]");
    let error = snapshot(&body)
        .fits_plan()
        .file(Subject::Array(0))
        .unwrap_err();
    assert!(error.to_string().contains("not of strings"), "{error}");
}
