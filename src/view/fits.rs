//! Arrays and tables as FITS files: what `fits/` of a mount shows.
//!
//! An array of numbers is the primary image of its file, with the axes in FITS' order, fastest first, so that the elements lie as in
//! C order; complex numbers are two images behind an empty primary unit. A structured array and a table (`core/table`, or one of astropy) is a binary table behind an empty primary unit. Numbers are
//! stored as FITS Standard 4.0 has them: big-endian, unsigned ones with an offset. The length of a file follows from the tree, and
//! elements are converted when they are read; nothing is kept.

mod column;
mod header;
mod image;
mod table;

use std::sync::Arc;

use crate::asdf::Array;
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::fits::BLOCK_LEN;
use crate::asdf::outline::PlaceId;
use crate::asdf::paths::Paths;
use crate::asdf::rows::{RowField, RowPart, Rows};
use crate::error::{Error, Place, Result, corrupt, unsupported};
use crate::source::{Joined, Memory, Source, len_u64};

use column::{Column, Columns, MAX_COLUMNS};
use header::{HeaderText, printable_ascii};

/// What is shown as a FITS file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The array of that index.
    Array(usize),
    /// The table at that place.
    Table(PlaceId),
}

/// A FITS file that can be made of arrays.
#[derive(Debug)]
pub struct FitsFile {
    units: Vec<Unit>,
    len: u64,
    omitted: Vec<(String, String)>,
}

/// A header and data unit of such a file.
#[derive(Debug)]
struct Unit {
    /// Its header, behind that of an empty primary unit if the file begins with one.
    header: Vec<u8>,
    /// The arrays that it is made of, by index.
    parts: Vec<RowPart<usize>>,
    /// Bytes of a row or element, and how many there are.
    width: u64,
    count: u64,
}

impl Unit {
    /// Bytes of its header and data, in whole blocks.
    fn len(&self) -> Option<u64> {
        let data = self.width.checked_mul(self.count)?;
        let data = data.checked_next_multiple_of(BLOCK_LEN)?;
        data.checked_add(len_u64(self.header.len()))
    }

    /// Its bytes.
    fn open(&self, elements: &dyn Fn(usize) -> Result<Arc<dyn Source>>) -> Result<Arc<dyn Source>> {
        let part = |part: &RowPart<usize>| {
            Ok(RowPart {
                records: elements(part.records)?,
                record: part.record,
                fields: part.fields.clone(),
            })
        };
        let parts = self.parts.iter().map(part).collect::<Result<_>>()?;
        let data = Rows::new(parts, self.width, self.count)?.into_source();
        let header = Arc::new(Memory::new(self.header.clone()));
        let used = len_u64(self.header.len()).saturating_add(data.len());
        let padding = self.len().unwrap_or(0).saturating_sub(used);
        let padding = vec![0; usize::try_from(padding).unwrap_or(0)];
        let data = Arc::new(Joined::new(data, Arc::new(Memory::new(padding)))?);
        Ok(Arc::new(Joined::new(header, data)?))
    }
}

impl FitsFile {
    /// The file of these units.
    fn new(units: Vec<Unit>, omitted: Vec<(String, String)>) -> Result<Self> {
        let mut lens = units.iter().map(Unit::len);
        let len = lens.try_fold(0_u64, |sum, len| sum.checked_add(len?));
        let len = len.filter(|len| i64::try_from(*len).is_ok());
        Ok(Self {
            len: len.ok_or_else(|| unsupported("a FITS file of 2^63 bytes or more"))?,
            units,
            omitted,
        })
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes: never, there is a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The headers that the file begins with. What it is made of decides them.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        let first = self.units.first();
        first.map_or(&[], |unit| &unit.header)
    }

    /// The arrays that it is made of, by index.
    pub fn arrays(&self) -> impl Iterator<Item = usize> {
        let parts = self.units.iter().flat_map(|unit| &unit.parts);
        parts.map(|part| part.records)
    }

    /// The columns that FITS can't hold, each with the reason.
    #[must_use]
    pub fn omitted(&self) -> &[(String, String)] {
        &self.omitted
    }

    /// The file, with the elements of each array, in C order, from `elements`.
    ///
    /// # Errors
    /// Those of `elements`; [`Error::Corrupt`] if there are too few of them.
    pub fn open(
        &self,
        elements: &dyn Fn(usize) -> Result<Arc<dyn Source>>,
    ) -> Result<Arc<dyn Source>> {
        let mut units = self.units.iter().map(|unit| unit.open(elements));
        let first = units.next().ok_or_else(no_longer)??;
        units.try_fold(first, |all, unit| -> Result<Arc<dyn Source>> {
            Ok(Arc::new(Joined::new(all, unit?)?))
        })
    }
}

impl Snapshot {
    /// All arrays, and the tables that are shown as directories; whether FITS can hold one is said by [`Snapshot::fits_file`].
    #[must_use]
    pub fn fits_subjects(&self) -> Vec<Subject> {
        let arrays = (0..self.arrays().len()).map(Subject::Array);
        let tables = self.tables().into_iter().map(Subject::Table);
        arrays.chain(tables).collect()
    }

    /// The path of an array or table in the tree.
    #[must_use]
    pub fn subject_path(&self, subject: Subject) -> String {
        let path = |(paths, place): (&Paths, PlaceId)| paths.path(place);
        self.place_of(subject).map(path).unwrap_or_default()
    }

    /// Whether a list of all arrays and tables names the file of one: not a file with a long path, if all paths of the tree are too long
    /// together.
    #[must_use]
    pub fn is_subject_listed(&self, subject: Subject) -> bool {
        let place = self.place_of(subject);
        place.is_some_and(|(paths, place)| paths.listed(place).is_some())
    }

    /// Where an array or table stands.
    fn place_of(&self, subject: Subject) -> Option<(&Paths, PlaceId)> {
        let place = match subject {
            Subject::Array(i) => self.arrays().get(i).map(Array::home),
            Subject::Table(place) => Some(place),
        };
        Some((self.paths()?, place?))
    }

    /// The FITS file of an array or a table.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if FITS can't hold it; [`Array::problem`].
    pub fn fits_file(&self, subject: Subject) -> Result<FitsFile> {
        let (at, made) = match subject {
            Subject::Array(i) => {
                let array = self.array(i)?;
                (array.brief_path(), self.file_of_array(i, array))
            }
            Subject::Table(place) => {
                let paths = self.paths().ok_or_else(no_longer)?;
                (paths.brief(place), self.file_of_table(place))
            }
        };
        made.map_err(|error| error.at(Place::Array(at)))
    }

    /// The file of array `i`: a binary table if it is structured, else one of images.
    fn file_of_array(&self, i: usize, array: &Array) -> Result<FitsFile> {
        let datatype = array.datatype().ok_or_else(no_longer)?;
        let shape = array.shape().ok_or_else(no_longer)?;
        let count = elements(shape).ok_or_else(no_longer)?;
        let name = array.brief_path();
        if matches!(datatype, Datatype::Struct(_)) {
            let mut columns = Columns::default();
            let added = columns.add("", datatype, &[], 0);
            columns.notes.extend(array.note());
            let fields = cells(&columns.list);
            let record = added.or(datatype.size()).ok_or_else(no_longer)?;
            let part = RowPart {
                records: i,
                record,
                fields,
            };
            return table_file(columns, vec![part], count, &name, Vec::new());
        }
        self.image_file(i, array, datatype, (shape, count))
    }

    /// The number that stands for no value in an array of integers, if the tree gives one.
    fn masked(&self, i: usize) -> Option<i128> {
        let node = self.paths()?.node(self.arrays().get(i)?.home())?;
        node.get("mask")?.follow().text()?.parse().ok()
    }
}

/// How many elements an array has.
fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |n, len| n.checked_mul(*len))
}

/// The fields that have elements.
fn cells(columns: &[Column]) -> Vec<RowField> {
    let fields = columns.iter().map(|column| column.field);
    fields.filter(|field| field.count > 0).collect()
}

/// The file of a binary table.
fn table_file(
    columns: Columns,
    parts: Vec<RowPart<usize>>,
    count: u64,
    name: &str,
    mut omitted: Vec<(String, String)>,
) -> Result<FitsFile> {
    if columns.are_too_many() {
        let why = format!("FITS tables have {MAX_COLUMNS} columns at most");
        return Err(unsupported(why));
    }
    omitted.extend(columns.omitted);
    if columns.list.is_empty() {
        let why = omitted.into_iter().next();
        let why = why.map_or_else(|| "no columns".to_owned(), |(_, why)| why);
        return Err(unsupported(why));
    }
    let mut header = HeaderText::default();
    header.text("XTENSION", "BINTABLE");
    header.value("BITPIX", 8);
    header.value("NAXIS", 2);
    header.value("NAXIS1", columns.width);
    header.value("NAXIS2", count);
    header.value("PCOUNT", 0);
    header.value("GCOUNT", 1);
    header.value("TFIELDS", columns.list.len());
    for (n, column) in (1..).zip(&columns.list) {
        column.write(&mut header, n);
    }
    header.text("EXTNAME", &printable_ascii(name));
    for note in &columns.notes {
        header.comment(&printable_ascii(note));
    }
    for (name, why) in omitted.iter().take(MAX_COLUMNS) {
        header.comment(&printable_ascii(&format!("left out: {name}: {why}")));
    }
    let unit = Unit {
        header: [empty_primary().finish(), header.finish()].concat(),
        parts,
        width: columns.width,
        count,
    };
    FitsFile::new(vec![unit], omitted)
}

/// The header of a primary unit without data.
fn empty_primary() -> HeaderText {
    let mut primary = HeaderText::default();
    primary.value("SIMPLE", 'T');
    primary.value("BITPIX", 8);
    primary.value("NAXIS", 0);
    primary.value("EXTEND", 'T');
    primary
}

fn no_longer() -> Error {
    corrupt("the tree no longer has this array")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::codec::Cache;
    use crate::source::read_all;
    use std::io::Write;

    fn snapshot(body: &str) -> Snapshot {
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
    fn made(snapshot: &Snapshot, subject: Subject) -> (Vec<String>, Vec<u8>) {
        let file = snapshot.fits_file(subject).unwrap();
        let source = file.open(&|i| snapshot.array_bin(i)).unwrap();
        assert_eq!(source.len(), file.len());
        assert_eq!(file.len() % BLOCK_LEN, 0);
        let bytes = read_all(&*source, 1 << 20).unwrap();
        let (header, data) = bytes.split_at(file.header().len());
        let cards = header.chunks(80).map(String::from_utf8_lossy);
        let cards = cards.map(|card| card.trim_end().to_owned());
        (
            cards.filter(|card| !card.is_empty()).collect(),
            data.to_vec(),
        )
    }

    fn has(cards: &[String], card: &str) -> bool {
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
            ("uint8", "256", None),
            ("float32", "5", None),
        ] {
            let body = array_with("x", datatype, "[2]", &format!(", mask: {mask}"));
            let (cards, _) = made(&snapshot(&body), Subject::Array(0));
            let blank = cards.iter().find(|card| card.contains("BLANK"));
            assert_eq!(blank.map(String::as_str), want, "{datatype}");
        }
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
        let (cards, _) = made(&snapshot, *snapshot.fits_subjects().last().unwrap());
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
        let subjects = snapshot.fits_subjects();
        let table = *subjects.last().unwrap();
        assert!(matches!(table, Subject::Table(_)) && subjects.len() == 4);
        assert_eq!(snapshot.subject_path(table), "t");
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
        let tables = snapshot.fits_subjects().into_iter();
        let tables = tables.filter(|subject| matches!(subject, Subject::Table(_)));
        let shown = tables.map(|table| {
            let (cards, _) = made(&snapshot, table);
            let names = cards.iter().filter_map(|card| card.strip_prefix("TTYPE"));
            let names = names.filter_map(|card| Some(card.split('\'').nth(1)?.trim_end()));
            let names: Vec<_> = names.collect();
            let omitted = snapshot.fits_file(table).unwrap().omitted;
            let omitted = omitted.iter().map(|(name, why)| format!("{name}: {why}"));
            let path = snapshot.subject_path(table);
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
        let error = snapshot(&body).fits_file(Subject::Array(0)).unwrap_err();
        assert!(error.to_string().contains("not of strings"), "{error}");
    }
}
