//! Arrays of numbers as images: one in the primary unit, or two of complex numbers behind an empty one (FITS Standard 4.0, sections
//! 4.4.1.1 and 7.1).

use super::column::{WIDENED, pixel};
use super::header::{HeaderText, printable_ascii};
use super::null::Null;
use super::sky::CARDS;
use super::{Unit, unsupported};
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::rows::{Conversion, RowField, RowPart};
use crate::error::Result;

impl Snapshot {
    /// The units of array `i`, with so many elements: see [`Snapshot::fits_of_array`].
    pub(super) fn image_units(
        &self,
        i: usize,
        (datatype, shape, count): (&Datatype, &[u64], u64),
        name: Option<(&str, u64)>,
        in_sky: bool,
    ) -> Result<Vec<Unit>> {
        let array = self.array(i)?;
        let (change, bits, zero) = pixel(datatype).map_err(unsupported)?;
        let null = self.masked(i);
        let null = null.and_then(|null| Null::of(null, datatype, (bits, zero)));
        let (size, width) = change.sizes();
        let record = datatype.size().unwrap_or(size);
        // without an axis, NAXIS is 0 and the unit has no data: a single number has an axis of length 1
        let axes = if shape.is_empty() { &[1][..] } else { shape };
        let unit = |extension: Option<&str>, name: (&str, u64), from: u64| {
            let mut header = HeaderText::begin(extension, bits, axes);
            if let Some(zero) = zero {
                header.value("BSCALE", 1);
                header.value("BZERO", zero);
            }
            if let Some(null) = &null {
                header.null("BLANK", null);
            }
            if let Some(unit) = array.unit() {
                header.unit("BUNIT", unit);
            }
            header.name(name);
            if let Conversion::Widen(_) = change {
                header.comment(WIDENED);
            }
            if let Some(note) = array.note() {
                header.comment(&printable_ascii(&note));
            }
            let sky_at = in_sky.then(|| header.reserve(CARDS));
            Unit {
                sky_at,
                parts: vec![one_of_each(i, (record, from), change)],
                width,
                count,
                ..Unit::of_header(header)
            }
        };
        let path = array.brief_path();
        if record == size {
            let extension = name.map(|_| "IMAGE");
            return Ok(vec![unit(extension, name.unwrap_or((&path, 1)), 0)]);
        }
        let mut units = Vec::new();
        let (of, version) = if let Some((name, version)) = name {
            (format!("{name}/"), version)
        } else {
            let mut primary = HeaderText::primary();
            primary.name((&path, 1));
            units.push(Unit::of_header(primary));
            (String::new(), 1)
        };
        // FITS has no complex images: the real parts are one, the imaginary ones another
        for (part, from) in [("re", 0), ("im", size)] {
            let called = format!("{of}{part}");
            units.push(unit(Some("IMAGE"), (&called, version), from));
        }
        Ok(units)
    }
}

/// A number of each record of array `i`, at byte `from` of it.
fn one_of_each(i: usize, (record, from): (u64, u64), change: Conversion) -> RowPart<usize> {
    let field = RowField {
        from,
        to: 0,
        count: 1,
        change,
    };
    RowPart {
        records: i,
        record,
        fields: vec![field],
    }
}
