//! The columns of a FITS binary table, by the datatype of the arrays that they are made of (FITS Standard 4.0, section 7.3).

use std::collections::HashSet;

use super::header::{HeaderText, printable_ascii};
use super::null::Null;
use crate::asdf::Array;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::rows::{Conversion, RowField, RowPart};
use crate::asdf::scalar::Value;
use crate::view::product;

/// How many columns FITS has keywords for.
pub(super) const MAX_COLUMNS: usize = 999;
/// Longest name of a column; a number may follow it in the card.
const MAX_NAME: usize = 60;

/// What a reader of float32 must know that were float16.
pub(super) const WIDENED: &str = "float16 in the tree, here float32";

/// Records that are being laid out as the cells of rows.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// The cards of all columns, and how many columns there are.
    pub(super) cards: HeaderText,
    pub(super) count: usize,
    /// The fields of a record that have elements.
    fields: Vec<RowField>,
    /// The fields that FITS has no columns for, each with the reason.
    pub(super) omitted: Vec<(String, String)>,
    /// What a reader of them must know.
    pub(super) notes: Vec<String>,
    /// Bytes of a row.
    pub(super) width: u64,
    /// The names of the columns, in small letters.
    taken: HashSet<String>,
}

/// What the tree says of all columns of a field: their unit, and the number that stands for no value.
type Said<'t> = (Option<&'t str>, Option<Value<'t>>);

impl Columns {
    /// Whether there are more of them than FITS has keywords for.
    pub(super) fn are_too_many(&self) -> bool {
        self.count > MAX_COLUMNS
    }

    /// Adds the columns of an array, whose records have cells of that shape. `None` as of [`Columns::add`].
    pub(super) fn add_array(
        &mut self,
        (i, array): (usize, &Array),
        name: &str,
        cell: &[u64],
        said: Said<'_>,
    ) -> Option<RowPart<usize>> {
        self.fields.clear();
        let record = self.add(name, array.datatype()?, cell, 0, said)?;
        let note = array.note().map(|note| match name {
            "" => note,
            name => format!("{name}: {note}"),
        });
        self.notes.extend(note);
        Some(RowPart {
            records: i,
            record,
            fields: std::mem::take(&mut self.fields),
        })
    }

    /// Adds the columns of a field at byte `at` of each record. Returns where the next field begins; `None` if that is beyond 64 bits, or if
    /// there are too many columns.
    fn add(
        &mut self,
        name: &str,
        datatype: &Datatype,
        shape: &[u64],
        at: u64,
        said: Said<'_>,
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
                at = self.add(&own, &field.datatype, &field.shape, at, said)?;
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
        if field.count > 0 {
            self.fields.push(field);
        }
        self.count = self.count.saturating_add(1);
        let null = said.1;
        let null = null.and_then(|null| Null::of(null, datatype, (bits(letter, change), zero)));
        self.write(&name, (letter, repeat), &shape, zero, (said.0, null));
        Some(end)
    }

    /// Adds the cards of the last column: of its name, the letter of its type, how many elements a cell has, the shape of a cell, slowest
    /// axis first, and what is to be added to the stored numbers.
    fn write(
        &mut self,
        name: &str,
        (letter, repeat): (char, u64),
        shape: &[u64],
        zero: Option<i128>,
        (unit, null): (Option<&str>, Option<Null>),
    ) {
        let (header, n) = (&mut self.cards, self.count);
        header.text(&format!("TTYPE{n}"), name);
        header.text(&format!("TFORM{n}"), &format!("{repeat}{letter}"));
        if let Some(zero) = zero {
            // of integers that are multiplied, readers would make floating-point numbers
            header.value(&format!("TSCAL{n}"), 1);
            header.value(&format!("TZERO{n}"), zero);
        }
        if let Some(null) = null {
            header.null(&format!("TNULL{n}"), &null);
        }
        // TDIM counts axes from the fastest one (7.3.2); a cell of one element without a shape is a single number
        let is_list_of_one = letter != 'A' && *shape == [1];
        if (shape.len() > 1 && repeat > 0) || is_list_of_one {
            let axes: Vec<_> = shape.iter().rev().map(u64::to_string).collect();
            header.text(&format!("TDIM{n}"), &format!("({})", axes.join(",")));
        }
        if let Some(unit) = unit {
            header.unit(&format!("TUNIT{n}"), unit);
        }
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

/// An element of a datatype as FITS has it, or why it has none: the letter of its type, how many FITS counts (of a string, its
/// characters), how they are converted, and what is added to the stored numbers.
fn cell(datatype: &Datatype) -> Result<(char, u64, Conversion, Option<i128>), &'static str> {
    Ok(match datatype {
        Datatype::Ascii(len) => ('A', *len, number(1, ByteOrder::Big, false), None),
        Datatype::Ucs4(len, order) => ('A', *len, Conversion::Narrow(*order), None),
        Datatype::Struct(_) => return Err("FITS has no columns of arrays of structures"),
        Datatype::Scalar(scalar, order) => match scalar {
            Scalar::Float16 => ('E', 1, Conversion::Widen(*order), None),
            Scalar::Bool8 => ('L', 1, Conversion::Truth, None),
            Scalar::Complex64 => ('C', 1, number(4, *order, false), None),
            Scalar::Complex128 => ('M', 1, number(8, *order, false), None),
            Scalar::Float32 => ('E', 1, number(4, *order, false), None),
            Scalar::Float64 => ('D', 1, number(8, *order, false), None),
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

/// The BITPIX of images whose numbers, or parts of numbers, are of the type with this letter and converted like this.
fn bits(letter: char, change: Conversion) -> i8 {
    let bits = i8::try_from(change.sizes().1.saturating_mul(8)).unwrap_or(0);
    let is_integer = matches!(letter, 'B' | 'I' | 'J' | 'K');
    if is_integer {
        bits
    } else {
        bits.saturating_neg()
    }
}

/// The conversion of a number; `flip` turns over its sign bit.
fn number(size: u8, order: ByteOrder, flip: bool) -> Conversion {
    Conversion::Number {
        size,
        swap: order == ByteOrder::Little && size > 1,
        flip,
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
    (number(size, order, flip), flip.then_some(zero))
}

/// How the elements of an image, or the parts of complex ones, are converted, its BITPIX and BZERO; or why it is no image.
pub(super) fn pixel(datatype: &Datatype) -> Result<(Conversion, i8, Option<i128>), &'static str> {
    match datatype {
        // only tables have truth values: images have 0 and 1
        Datatype::Scalar(Scalar::Bool8, _) => Ok((Conversion::Bit, 8, None)),
        Datatype::Scalar(..) => {
            let (letter, _, change, zero) = cell(datatype)?;
            Ok((change, bits(letter, change), zero))
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
        let cards = columns.cards.as_bytes().chunks(80);
        let cards = cards.map(|card| String::from_utf8_lossy(card).trim_end().to_owned());
        cards.collect()
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
            columns.add("", &datatype, &[], 0, (None, Some(Value::Int(32767)))),
            Some(24 + 6 + 40 + 2 + 8 + 16 + 1)
        );
        assert_eq!(columns.width, 24 + 12 + 10 + 2 + 8 + 1);
        let omitted: Vec<_> = columns.omitted.iter().map(|(name, _)| &**name).collect();
        assert_eq!(omitted, ["many"]);
        assert_eq!(columns.notes, ["half: float16 in the tree, here float32"]);
        let want = [
            "TTYPE1  = 'flux    '",
            "TFORM1  = '6E      '",
            "COMMENT 32767 stands for no value (no TNULL1 of this type)",
            "TDIM1   = '(3,2)   '",
            "TTYPE2  = 'half    '",
            "TFORM2  = '3E      '",
            "COMMENT 32767 stands for no value (no TNULL2 of this type)",
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
            "COMMENT 32767 stands for no value (no TNULL5 of this type)",
            "TTYPE6  = 'one     '",
            "TFORM6  = '1B      '",
            "TDIM6   = '(1)     '",
        ];
        assert_eq!(cards(&columns), want);
        let fields = columns.fields.iter();
        let fields: Vec<_> = fields.map(|field| (field.from, field.to)).collect();
        assert_eq!(
            fields,
            [(0, 0), (24, 24), (30, 36), (70, 46), (72, 48), (96, 56)]
        );
    }

    #[test]
    fn a_number_that_a_cell_cannot_hold_is_no_null() {
        for (number, want) in [(-1, false), (256, false), (255, true)] {
            let mut columns = Columns::default();
            let said = (None, Some(Value::Int(number)));
            columns.add("a", &self::number(Scalar::Uint8), &[], 0, said);
            let has_null = cards(&columns)
                .iter()
                .any(|card| card.starts_with("TNULL1"));
            assert_eq!(has_null, want);
        }
    }
}
