//! The columns of a FITS binary table, by the datatype of the arrays that they are made of (FITS Standard 4.0, section 7.3).

use std::collections::HashSet;

use super::header::{HeaderText, printable_ascii};
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::rows::{Conversion, RowField};
use crate::view::product;

/// How many columns FITS has keywords for.
pub(super) const MAX_COLUMNS: usize = 999;
/// Longest name of a column; a number may follow it in the card.
const MAX_NAME: usize = 60;

/// What a reader of float32 must know that were float16.
pub(super) const WIDENED: &str = "float16 in the tree, here float32";

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    /// The letter of its type, and how many elements a cell has.
    form: (char, u64),
    /// Shape of a cell, slowest axis first.
    shape: Vec<u64>,
    /// What is to be added to the stored numbers.
    zero: Option<i128>,
    pub(super) unit: Option<String>,
    /// The number that stands for no value.
    pub(super) null: Option<i128>,
    pub(super) field: RowField,
}

/// Records that are being laid out as the cells of rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) list: Vec<Column>,
    /// The fields that FITS has no columns for, each with the reason.
    pub(super) omitted: Vec<(String, String)>,
    /// What a reader of them must know.
    pub(super) notes: Vec<String>,
    /// Bytes of a row.
    pub(super) width: u64,
    /// The names of the columns, in small letters.
    taken: HashSet<String>,
}

impl Columns {
    /// Whether there are more of them than FITS has keywords for.
    pub(super) fn are_too_many(&self) -> bool {
        self.list.len() > MAX_COLUMNS
    }

    /// Adds the columns of a field at byte `at` of each record. Returns where the next field begins; `None` if that is beyond 64 bits, or if
    /// there are too many columns.
    pub(super) fn add(
        &mut self,
        name: &str,
        datatype: &Datatype,
        shape: &[u64],
        at: u64,
    ) -> Option<u64> {
        if self.are_too_many() {
            return None;
        }
        let count = product(shape)?;
        let end = at.checked_add(datatype.size()?.checked_mul(count)?)?;
        if let (Datatype::Struct(fields), []) = (datatype, shape) {
            let mut at = at;
            for (i, field) in fields.iter().enumerate() {
                let own = field.name.clone().filter(|own| !own.is_empty());
                let mut own = own.unwrap_or_else(|| format!("f{i}"));
                if !name.is_empty() {
                    own = format!("{name}_{own}");
                }
                at = self.add(&own, &field.datatype, &field.shape, at)?;
            }
            return Some(end);
        }
        let (letter, elements, change, zero) = match cell(datatype) {
            Ok(cell) => cell,
            Err(why) => {
                self.omitted.push((name.to_owned(), why.to_owned()));
                return Some(end);
            }
        };
        let repeat = count.checked_mul(elements)?;
        // FITS counts a complex number once, the conversion its two parts
        let pair = if matches!(letter, 'C' | 'M') { 2 } else { 1 };
        let field = RowField {
            from: at,
            to: self.width,
            count: repeat.checked_mul(pair)?,
            change,
        };
        self.width = self
            .width
            .checked_add(field.count.checked_mul(change.sizes().1)?)?;
        let mut shape = shape.to_vec();
        if letter == 'A' {
            // the characters of a string are its fastest axis
            shape.push(elements);
        }
        let name = self.free_name(name);
        if let Conversion::Widen(_) = change {
            self.notes.push(format!("{name}: {WIDENED}"));
        }
        self.list.push(Column {
            name,
            form: (letter, repeat),
            shape,
            zero,
            unit: None,
            null: None,
            field,
        });
        Some(end)
    }

    /// The name as FITS can hold it, with a number if another column has it: case makes no difference.
    fn free_name(&mut self, name: &str) -> String {
        let mut wanted = printable_ascii(name);
        // it is ASCII now, and can be cut anywhere
        wanted.truncate(MAX_NAME);
        let numbered = (2_u64..).map(|n| format!("{wanted}_{n}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        let free = names.find(|name| self.taken.insert(name.to_ascii_lowercase()));
        free.unwrap_or_default()
    }
}

impl Column {
    /// Adds its cards; columns count from 1.
    pub(super) fn write(&self, header: &mut HeaderText, n: usize) {
        header.text(&format!("TTYPE{n}"), &self.name);
        let (letter, repeat) = self.form;
        header.text(&format!("TFORM{n}"), &format!("{repeat}{letter}"));
        if let Some(zero) = self.zero {
            // of integers that are multiplied, readers would make floating-point numbers
            header.value(&format!("TSCAL{n}"), 1);
            header.value(&format!("TZERO{n}"), zero);
        }
        if let Some(null) = self.null {
            header.null(&format!("TNULL{n}"), null, self.zero.is_some());
        }
        // TDIM counts axes from the fastest one (7.3.2); a cell of one element without a shape is a single number
        let is_list_of_one = letter != 'A' && self.shape == [1];
        if (self.shape.len() > 1 && repeat > 0) || is_list_of_one {
            let axes: Vec<_> = self.shape.iter().rev().map(u64::to_string).collect();
            header.text(&format!("TDIM{n}"), &format!("({})", axes.join(",")));
        }
        if let Some(unit) = &self.unit {
            header.unit(&format!("TUNIT{n}"), unit);
        }
    }

    /// Has a number stand for no value, if its cells can hold it.
    pub(super) fn set_null(&mut self, number: i128) {
        let bits = bits(self.form.0);
        self.null = Some(number).filter(|number| can_be(*number, bits, self.zero));
    }
}

/// Whether an integer of so many bits, with what is added to it, can be that number.
pub(super) fn can_be(number: i128, bits: i8, zero: Option<i128>) -> bool {
    let stored = number.saturating_sub(zero.unwrap_or(0));
    match bits {
        8 => u8::try_from(stored).is_ok(),
        16 => i16::try_from(stored).is_ok(),
        32 => i32::try_from(stored).is_ok(),
        64 => i64::try_from(stored).is_ok(),
        _ => false,
    }
}

/// An element of a datatype as FITS has it, or why it has none: the letter of its type, how many FITS counts (of a string, its
/// characters), how they are converted, and what is added to the stored numbers.
fn cell(datatype: &Datatype) -> Result<(char, u64, Conversion, Option<i128>), &'static str> {
    Ok(match datatype {
        Datatype::Ascii(len) => ('A', *len, plain(1, ByteOrder::Big), None),
        Datatype::Ucs4(len, order) => ('A', *len, Conversion::Narrow(*order), None),
        Datatype::Struct(_) => return Err("FITS has no columns of arrays of structures"),
        Datatype::Scalar(scalar, order) => match scalar {
            Scalar::Float16 => ('E', 1, Conversion::Widen(*order), None),
            Scalar::Bool8 => ('L', 1, Conversion::Truth, None),
            Scalar::Complex64 => ('C', 1, plain(4, *order), None),
            Scalar::Complex128 => ('M', 1, plain(8, *order), None),
            Scalar::Float32 => ('E', 1, plain(4, *order), None),
            Scalar::Float64 => ('D', 1, plain(8, *order), None),
            integer => {
                let (change, zero) = integer_change(*integer, *order);
                let letter = match integer.size() {
                    1 => 'B',
                    2 => 'I',
                    4 => 'J',
                    _ => 'K',
                };
                (letter, 1, change, zero)
            }
        },
    })
}

/// The BITPIX of images whose numbers, or parts of numbers, are of the type with this letter.
fn bits(letter: char) -> i8 {
    match letter {
        'B' => 8,
        'I' => 16,
        'J' => 32,
        'K' => 64,
        'E' | 'C' => -32,
        'D' | 'M' => -64,
        _ => 0,
    }
}

/// A number that keeps its value.
fn plain(size: u8, order: ByteOrder) -> Conversion {
    Conversion::Number {
        size,
        swap: order == ByteOrder::Little && size > 1,
        flip: false,
    }
}

/// How an integer is converted, and what is added to the stored one: FITS has signed integers, and unsigned bytes.
pub(super) fn integer_change(integer: Scalar, order: ByteOrder) -> (Conversion, Option<i128>) {
    let size = integer.size();
    let is_unsigned = integer.kind() == 'u';
    // to add or to take away half of the range turns over the sign bit, and nothing else
    let flip = is_unsigned == (size > 1);
    let half = 1_i128 << size.saturating_mul(8).saturating_sub(1);
    let zero = if is_unsigned {
        half
    } else {
        half.saturating_neg()
    };
    let change = Conversion::Number {
        size,
        swap: order == ByteOrder::Little && size > 1,
        flip,
    };
    (change, flip.then_some(zero))
}

/// How the elements of an image, or the parts of complex ones, are converted, its BITPIX and BZERO; or why it is no image.
pub(super) fn pixel(datatype: &Datatype) -> Result<(Conversion, i8, Option<i128>), &'static str> {
    match datatype {
        // only tables have truth values: images have 0 and 1
        Datatype::Scalar(Scalar::Bool8, order) => Ok((plain(1, *order), 8, None)),
        Datatype::Scalar(..) => {
            let (letter, _, change, zero) = cell(datatype)?;
            Ok((change, bits(letter), zero))
        }
        _ => Err("FITS images are of numbers, not of strings"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::datatype::Field as Member;

    const ORDER: ByteOrder = ByteOrder::Little;

    fn number(scalar: Scalar) -> Datatype {
        Datatype::Scalar(scalar, ORDER)
    }

    fn member(name: &str, datatype: Datatype, shape: &[u64]) -> Member {
        Member {
            name: Some(name.to_owned()),
            datatype,
            shape: shape.to_vec(),
        }
    }

    fn cards(columns: &Columns) -> Vec<String> {
        let mut header = HeaderText::default();
        for (n, column) in columns.list.iter().enumerate() {
            column.write(&mut header, n + 1);
        }
        let text = String::from_utf8(header.finish()).unwrap();
        let cards = text.as_bytes().chunks(80);
        let cards = cards.map(|card| String::from_utf8_lossy(card).trim_end().to_owned());
        cards.take_while(|card| card != "END").collect()
    }

    #[test]
    fn integers_that_fits_lacks_have_an_offset() {
        for (scalar, zero) in [
            (Scalar::Int8, Some(-128)),
            (Scalar::Uint8, None),
            (Scalar::Int16, None),
            (Scalar::Uint16, Some(32768)),
            (Scalar::Uint32, Some(2_147_483_648)),
            (Scalar::Uint64, Some(9_223_372_036_854_775_808)),
        ] {
            assert_eq!(integer_change(scalar, ORDER).1, zero, "{scalar:?}");
        }
    }

    #[test]
    fn a_structure_is_a_row() {
        let inner = Datatype::Struct(vec![member("x", number(Scalar::Float64), &[])]);
        let datatype = Datatype::Struct(vec![
            member("flux", number(Scalar::Float32), &[2, 3]),
            member("half", number(Scalar::Float16), &[3]),
            member("Name", Datatype::Ucs4(5, ORDER), &[2]),
            member("name", number(Scalar::Uint16), &[]),
            member("in", inner.clone(), &[]),
            member("many", inner, &[2]),
            member("one", number(Scalar::Uint8), &[1]),
        ]);
        let mut columns = Columns::default();
        assert_eq!(
            columns.add("", &datatype, &[], 0),
            Some(24 + 6 + 40 + 2 + 8 + 16 + 1)
        );
        assert_eq!(columns.width, 24 + 12 + 10 + 2 + 8 + 1);
        let omitted: Vec<_> = columns.omitted.iter().map(|(name, _)| &**name).collect();
        assert_eq!(omitted, ["many"]);
        assert_eq!(columns.notes, ["half: float16 in the tree, here float32"]);
        columns.list[3].set_null(32767);
        let want = [
            "TTYPE1  = 'flux    '",
            "TFORM1  = '6E      '",
            "TDIM1   = '(3,2)   '",
            "TTYPE2  = 'half    '",
            "TFORM2  = '3E      '",
            "TTYPE3  = 'Name    '",
            "TFORM3  = '10A     '",
            "TDIM3   = '(5,2)   '",
            "TTYPE4  = 'name_2  '",
            "TFORM4  = '1I      '",
            "TSCAL4  =                    1",
            "TZERO4  =                32768",
            "COMMENT 32767 stands for no value (no TNULL4 beside an offset)",
            "TTYPE5  = 'in_x    '",
            "TFORM5  = '1D      '",
            "TTYPE6  = 'one     '",
            "TFORM6  = '1B      '",
            "TDIM6   = '(1)     '",
        ];
        assert_eq!(cards(&columns), want);
        let fields: Vec<_> = columns
            .list
            .iter()
            .map(|c| (c.field.from, c.field.to))
            .collect();
        assert_eq!(
            fields,
            [(0, 0), (24, 24), (30, 36), (70, 46), (72, 48), (96, 56)]
        );
    }

    #[test]
    fn a_number_that_a_cell_cannot_hold_is_no_null() {
        let mut columns = Columns::default();
        columns.add("a", &number(Scalar::Uint8), &[], 0);
        for (number, want) in [(-1, None), (256, None), (255, Some(255))] {
            columns.list[0].set_null(number);
            assert_eq!(columns.list[0].null, want);
        }
    }
}
