//! The array in the data of a unit: the elements of an image, or the rows of a binary table, as astropy shows them (FITS Standard
//! 4.0, sections 4.4.1, 4.4.2 and 7.3).
//!
//! A number that is stored with an offset of half its range is an integer of the other sign. Data with another scale or offset, or
//! in a heap, are not shown; the error says why.

use super::card::Cards;
use crate::asdf::datatype::{ByteOrder, Datatype, Field, Scalar};
use crate::asdf::rows::{Conversion, RowField};
use crate::asdf::strided::MAX_NDIM;

/// Most columns of a table.
const MAX_COLUMNS: u64 = 999;

/// The elements of a unit.
#[derive(Debug, Clone)]
pub(in crate::asdf) struct Held {
    /// Type of an element, or of a row.
    pub(in crate::asdf) datatype: Datatype,
    /// Lengths of the axes, the slowest first; for a table, the number of rows.
    pub(in crate::asdf) shape: Vec<u64>,
    /// Bytes of an element or row as it is stored.
    pub(super) record: u64,
    /// How the parts of a stored element or row are converted.
    pub(super) fields: Vec<RowField>,
}

impl Held {
    /// The array of a unit with this header, or why it can't be shown.
    pub(super) fn of(cards: &Cards) -> Result<Self, String> {
        if cards.is_true("ZIMAGE") {
            return Err("a compressed image".to_owned());
        }
        // IUEIMAGE and A3DTABLE are older names for IMAGE and BINTABLE
        match cards.text("XTENSION").map(str::trim) {
            None | Some("IMAGE" | "IUEIMAGE") => image(cards),
            Some("BINTABLE" | "A3DTABLE") => table(cards),
            Some(other) => Err(format!("an extension of the kind {other}")),
        }
    }

    /// How many elements or rows there are.
    pub(super) fn count(&self) -> Option<u64> {
        product(&self.shape)
    }

    /// Whether the elements or rows lie in the unit just as they are shown.
    pub(super) fn is_plain(&self) -> bool {
        let mut fields = self.fields.iter();
        // `TDIM` may leave out what is stored at the end of a row
        self.datatype.size() == Some(self.record)
            && fields.all(|field| field.from == field.to && field.change.is_nothing())
    }

    /// How the type differs from the one that the tree declares, apart from the byte order; `None` if it does not.
    pub(in crate::asdf) fn difference(&self, declared: &Datatype) -> Option<String> {
        let (own, theirs) = match (&self.datatype, declared) {
            (Datatype::Struct(own), Datatype::Struct(theirs)) => (own, theirs),
            (own, _) if are_alike(own, declared) => return None,
            (own, _) => return Some(format!("{own} in FITS, the tree declares another type")),
        };
        if own.len() != theirs.len() {
            let (own, theirs) = (own.len(), theirs.len());
            return Some(format!("{own} columns in FITS, the tree declares {theirs}"));
        }
        let other = own.iter().zip(theirs).find(|(own, theirs)| {
            (&own.name, &own.shape) != (&theirs.name, &theirs.shape)
                || !are_alike(&own.datatype, &theirs.datatype)
        });
        other.map(|(own, _)| {
            let name = own.name.as_deref().unwrap_or_default();
            let kind = &own.datatype;
            format!("column {name}: {kind} in FITS, the tree declares another name, type or shape")
        })
    }
}

/// Whether two types of single elements are the same but for the byte order.
fn are_alike(a: &Datatype, b: &Datatype) -> bool {
    match (a, b) {
        (Datatype::Scalar(a, _), Datatype::Scalar(b, _)) => a == b,
        (Datatype::Ascii(a), Datatype::Ascii(b)) => a == b,
        _ => false,
    }
}

fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |n, len| n.checked_mul(*len))
}

/// The array of an image or of the primary unit.
fn image(cards: &Cards) -> Result<Held, String> {
    if cards.is_true("GROUPS") || cards.count("GCOUNT", 1) != Some(1) {
        return Err("groups of data".to_owned());
    }
    let stored = match cards.integer("BITPIX") {
        Some(8) => Scalar::Uint8,
        Some(16) => Scalar::Int16,
        Some(32) => Scalar::Int32,
        Some(64) => Scalar::Int64,
        Some(-32) => Scalar::Float32,
        _ => Scalar::Float64,
    };
    let given = unscaled(cards, stored, "BSCALE", "BZERO");
    let given = given.ok_or("a scaled image (BSCALE, BZERO)")?;
    if cards.has("BLANK") && stored == given && given.kind() != 'f' {
        return Err("an image with BLANK, which readers give as floats with NaN".to_owned());
    }
    let axes = cards.count("NAXIS", 0).filter(|axes| *axes > 0);
    let axes = 1..=axes.ok_or("no data")?;
    // FITS counts axes from the fastest one
    let shape = axes.rev().map(|n| cards.count(&format!("NAXIS{n}"), 0));
    let shape: Option<Vec<u64>> = shape.collect();
    Ok(Held {
        datatype: Datatype::Scalar(given, ByteOrder::Big),
        shape: shape.ok_or("no valid NAXIS")?,
        record: given.size().into(),
        fields: vec![RowField {
            from: 0,
            to: 0,
            count: 1,
            change: number(given.size(), stored != given),
        }],
    })
}

/// The type of numbers with the scale and offset of these keywords: the stored one, or the integer of the other sign (FITS
/// Standard 4.0, section 5.2.5).
#[expect(clippy::float_cmp, reason = "exactly these numbers are meant")]
fn unscaled(cards: &Cards, stored: Scalar, scale: &str, zero: &str) -> Option<Scalar> {
    let zero = cards.float(zero, 0.0)?;
    let offset = match stored {
        _ if zero == 0.0 => stored,
        Scalar::Uint8 if zero == -128.0 => Scalar::Int8,
        Scalar::Int16 if zero == 32_768.0 => Scalar::Uint16,
        Scalar::Int32 if zero == 2_147_483_648.0 => Scalar::Uint32,
        Scalar::Int64 if zero == 9_223_372_036_854_775_808.0 => Scalar::Uint64,
        _ => return None,
    };
    (cards.float(scale, 1.0)? == 1.0).then_some(offset)
}

/// The conversion of a number: as FITS stores it, or with the sign bit turned over.
fn number(size: u8, flip: bool) -> Conversion {
    Conversion::Number {
        size,
        swap: false,
        flip,
    }
}

/// The rows of a binary table, without its heap.
fn table(cards: &Cards) -> Result<Held, String> {
    let [width, rows, columns] = ["NAXIS1", "NAXIS2", "TFIELDS"].map(|name| cards.count(name, 0));
    let is_plain = (cards.integer("BITPIX"), cards.integer("NAXIS")) == (Some(8), Some(2));
    let (width, rows) = width.zip(rows).ok_or("no valid NAXIS")?;
    let columns = columns.filter(|n| is_plain && (1..=MAX_COLUMNS).contains(n));
    let columns = columns.ok_or("no valid table of columns")?;
    let (mut members, mut fields) = (Vec::new(), Vec::new());
    let (mut from, mut to) = (0_u64, 0_u64);
    for n in 1..=columns {
        let column = Column::of(cards, n).and_then(|column| Ok((column.lens()?, column)));
        let name = cards.text(&format!("TTYPE{n}"));
        let ((stored, given), column) =
            column.map_err(|why| format!("column {}: {why}", name.unwrap_or(&n.to_string())))?;
        if column.count > 0 {
            fields.push(RowField {
                from,
                to,
                count: column.count,
                change: column.change,
            });
        }
        // the two differ where `TDIM` leaves out elements of a cell
        let ends = from.checked_add(stored).zip(to.checked_add(given));
        (from, to) = ends.ok_or("rows of 2^64 bytes or more")?;
        members.push(Field {
            name: name.map(str::to_owned),
            datatype: column.datatype,
            shape: column.shape,
        });
    }
    // columns that do not fill the row show that one of them was misread: no cell can be trusted
    if from != width {
        return Err(format!("rows of {width} bytes, but columns of {from}"));
    }
    Ok(Held {
        datatype: Datatype::Struct(members),
        shape: vec![rows],
        record: width,
        fields,
    })
}

/// A column of a binary table.
struct Column {
    /// Type of an element.
    datatype: Datatype,
    /// Shape of a cell.
    shape: Vec<u64>,
    /// Bytes of a cell as it is stored, with the elements that `TDIM` leaves out.
    stored: Option<u64>,
    /// The conversion of its parts, and how many parts there are.
    change: Conversion,
    count: u64,
}

impl Column {
    /// Column `n`, from 1.
    fn of(cards: &Cards, n: u64) -> Result<Self, String> {
        let form = cards.text(&format!("TFORM{n}")).unwrap_or_default().trim();
        // `rTa` (FITS Standard 4.0, section 7.3.1): a
        // count, a letter, and more that means nothing here
        let letter = form.find(|c: char| !c.is_ascii_digit());
        let (repeat, letter) = form.split_at(letter.unwrap_or(form.len()));
        let repeat = if repeat.is_empty() { "1" } else { repeat };
        let repeat: u64 = repeat.parse().map_err(|_| "no valid TFORM".to_owned())?;
        let letter = letter.chars().next().map(|c| c.to_ascii_uppercase());
        let stored = match letter {
            Some('L') => Scalar::Bool8,
            Some('A') => return Self::text(cards, n, repeat),
            Some('B') => Scalar::Uint8,
            Some('I') => Scalar::Int16,
            Some('J') => Scalar::Int32,
            Some('K') => Scalar::Int64,
            Some('E') => Scalar::Float32,
            Some('D') => Scalar::Float64,
            Some('C') => Scalar::Complex64,
            Some('M') => Scalar::Complex128,
            Some('X') => return Err(format!("bits ({form})")),
            Some('P' | 'Q') => return Err(format!("cells of various lengths ({form})")),
            _ => return Err(format!("no valid TFORM ({form})")),
        };
        let is_letter = stored == Scalar::Bool8;
        let given = unscaled(cards, stored, &format!("TSCAL{n}"), &format!("TZERO{n}"));
        // scaling is not defined for logicals
        let given = given.or(is_letter.then_some(stored));
        let given = given.ok_or("scaled (TSCAL, TZERO)")?;
        let one = if repeat == 1 { &[][..] } else { &[repeat] };
        let shape = axes(cards, n, repeat).unwrap_or_else(|| one.to_vec());
        let elements = product(&shape).ok_or("no valid TDIM")?;
        // a complex number is two numbers
        let parts = if given.kind() == 'c' { 2 } else { 1 };
        let size = given.size().checked_div(parts).unwrap_or(1);
        Ok(Self {
            datatype: Datatype::Scalar(given, ByteOrder::Big),
            stored: repeat.checked_mul(given.size().into()),
            change: if is_letter {
                Conversion::Letter
            } else {
                number(size, stored != given)
            },
            count: elements.saturating_mul(parts.into()),
            shape,
        })
    }

    /// A column of strings. Blanks at their ends are kept, as by astropy.
    fn text(cards: &Cards, n: u64, repeat: u64) -> Result<Self, String> {
        let mut shape = axes(cards, n, repeat).unwrap_or_else(|| vec![repeat]);
        let count = product(&shape).ok_or("no valid TDIM")?;
        // the fastest axis is the length of the strings
        let len = shape.pop().unwrap_or(repeat);
        Ok(Self {
            datatype: Datatype::Ascii(len),
            shape,
            stored: Some(repeat),
            change: number(1, false),
            count,
        })
    }

    /// Bytes of a cell as it is stored, and as it is shown.
    fn lens(&self) -> Result<(u64, u64), String> {
        let given = self.count.checked_mul(self.change.sizes().1);
        let lens = self.stored.zip(given);
        lens.ok_or_else(|| "cells of 2^64 bytes or more".to_owned())
    }
}

/// The shape that `TDIM` declares for the cells of column `n`, slowest axis first. A shape of more elements than there are is
/// ignored, as astropy does.
fn axes(cards: &Cards, n: u64, repeat: u64) -> Option<Vec<u64>> {
    let dims = cards.text(&format!("TDIM{n}"))?.trim();
    let dims = dims.strip_prefix('(')?.strip_suffix(')')?;
    // from the end, because FITS names the fastest axis first
    let axes = dims.rsplit(',').map(|len| len.trim().parse().ok());
    let axes: Vec<u64> = axes.collect::<Option<_>>()?;
    let fits = product(&axes).is_some_and(|count| count <= repeat);
    // one axis is left for the rows
    (fits && axes.len() < MAX_NDIM).then_some(axes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

    /// References to such rows led to the bytes between them.
    #[test]
    fn rows_of_which_an_end_is_left_out_are_not_plain() {
        for (width, more, plain) in [
            (10, "", true),
            (10, "TDIM1   = '(10)'", true),
            (10, "TDIM1   = '(4)'", false),
        ] {
            let (naxis, form) = (
                format!("NAXIS1  = {width}"),
                format!("TFORM1  = '{width}A'"),
            );
            let cards = [
                "XTENSION= 'BINTABLE'",
                "BITPIX  = 8",
                "NAXIS   = 2",
                &naxis,
                "NAXIS2  = 3",
                "TFIELDS = 1",
                &form,
                more,
                "END",
            ];
            let mut header: String = cards.map(|card| format!("{card:<80}")).concat();
            header.push_str(&" ".repeat(2880_usize.saturating_sub(header.len())));
            let cards = Cards::read(&Memory::new(header.into_bytes()), 0).unwrap();
            let held = Held::of(&cards.unwrap().0).unwrap();
            assert_eq!(held.is_plain(), plain, "{more}");
        }
    }
}
