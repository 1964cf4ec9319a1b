//! Arrays of numbers as images: one in the primary unit, or two of complex numbers behind an empty one (FITS Standard 4.0, sections
//! 4.4.1.1 and 7.1).

use super::column::{WIDENED, can_be, pixel};
use super::header::{HeaderText, printable_ascii};
use super::sky::CARDS;
use super::{Unit, empty_primary_header, unsupported};
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::rows::{Conversion, RowField, RowPart};
use crate::error::Result;

impl Snapshot {
    /// The units of array `i`, with so many elements: see [`Snapshot::units_of_array`].
    pub(super) fn image_units(
        &self,
        i: usize,
        (datatype, shape, count): (&Datatype, &[u64], u64),
        name: Option<(&str, u64)>,
        in_sky: bool,
    ) -> Result<Vec<Unit>> {
        let array = self.array(i)?;
        let (change, bits, zero) = pixel(datatype).map_err(unsupported)?;
        let null = self.masked(i).filter(|null| can_be(*null, bits, zero));
        // the axes are in reverse order; a single number has one axis of length 1
        let axes = if shape.is_empty() { &[1][..] } else { shape };
        let header = |is_primary: bool, name: (&str, u64)| {
            let mut header = HeaderText::default();
            header.axes(is_primary, bits, axes);
            if let Some(zero) = zero {
                header.value("BSCALE", 1);
                header.value("BZERO", zero);
            }
            if let Some(null) = null {
                header.null("BLANK", null, zero.is_some());
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
                ..Unit::of_header(header)
            }
        };
        let size = change.sizes().0;
        let record = datatype.size().unwrap_or(size);
        let unit = |unit: Unit, from| filled(unit, i, (record, from), change, count);
        let path = array.brief_path();
        if record == size {
            let called = name.unwrap_or((&path, 1));
            return Ok(vec![unit(header(name.is_none(), called), 0)]);
        }
        let (re, im, version) = match name {
            Some((name, version)) => (format!("{name}/re"), format!("{name}/im"), version),
            None => ("re".to_owned(), "im".to_owned(), 1),
        };
        let mut units = vec![
            unit(header(false, (&re, version)), 0),
            unit(header(false, (&im, version)), size),
        ];
        if name.is_none() {
            let mut primary = empty_primary_header();
            primary.name((&path, 1));
            units.insert(0, Unit::of_header(primary));
        }
        Ok(units)
    }
}

impl HeaderText {
    /// Adds the cards that an image begins with: its type and its axes, the slowest first.
    fn axes(&mut self, is_primary: bool, bits: i8, axes: &[u64]) {
        if is_primary {
            self.value("SIMPLE", 'T');
        } else {
            self.text("XTENSION", "IMAGE");
        }
        self.value("BITPIX", bits);
        self.value("NAXIS", axes.len());
        for (n, len) in (1..).zip(axes.iter().rev()) {
            self.value(&format!("NAXIS{n}"), len);
        }
        if is_primary {
            self.value("EXTEND", 'T');
        } else {
            self.value("PCOUNT", 0);
            self.value("GCOUNT", 1);
        }
    }
}

/// The unit with the data of a number in each record of array `i`: at this place, in records of that length.
fn filled(
    unit: Unit,
    i: usize,
    (record, from): (u64, u64),
    change: Conversion,
    count: u64,
) -> Unit {
    let field = RowField {
        from,
        to: 0,
        count: 1,
        change,
    };
    let part = RowPart {
        records: i,
        record,
        fields: vec![field],
    };
    Unit {
        parts: vec![part],
        width: change.sizes().1,
        count,
        ..unit
    }
}
