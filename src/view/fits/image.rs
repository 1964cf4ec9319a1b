//! Arrays of numbers as images: one in the primary unit, or two of complex numbers behind an empty one (FITS Standard 4.0, sections
//! 4.4.1.1 and 7.1).

use super::column::{WIDENED, can_be, pixel};
use super::header::{HeaderText, printable_ascii};
use super::{FitsFile, Unit, empty_primary, unsupported};
use crate::asdf::Array;
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::rows::{Conversion, RowField, RowPart};
use crate::error::Result;

impl Snapshot {
    /// The file of array `i`, of that shape and so many elements.
    pub(super) fn image_file(
        &self,
        i: usize,
        array: &Array,
        datatype: &Datatype,
        (shape, count): (&[u64], u64),
    ) -> Result<FitsFile> {
        let (change, bits, zero) = pixel(datatype).map_err(unsupported)?;
        let null = self.masked(i).filter(|null| can_be(*null, bits, zero));
        let path = printable_ascii(&array.brief_path());
        // the axes are in reverse order; a single number has one axis of length 1
        let axes = if shape.is_empty() { &[1][..] } else { shape };
        let header = |is_primary: bool, name: &str| {
            let mut header = HeaderText::default();
            if is_primary {
                header.value("SIMPLE", 'T');
            } else {
                header.text("XTENSION", "IMAGE");
            }
            header.value("BITPIX", bits);
            header.value("NAXIS", axes.len());
            for (n, len) in (1..).zip(axes.iter().rev()) {
                header.value(&format!("NAXIS{n}"), len);
            }
            if is_primary {
                header.value("EXTEND", 'T');
            } else {
                header.value("PCOUNT", 0);
                header.value("GCOUNT", 1);
            }
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
            header.text("EXTNAME", name);
            if let Conversion::Widen(_) = change {
                header.comment(WIDENED);
            }
            if let Some(note) = array.note() {
                header.comment(&printable_ascii(&note));
            }
            header.finish()
        };
        let size = change.sizes().0;
        let record = datatype.size().unwrap_or(size);
        let unit = |header, from| unit(header, i, (record, from), change, count);
        let units = if record == size {
            vec![unit(header(true, &path), 0)]
        } else {
            let mut primary = empty_primary();
            primary.text("EXTNAME", &path);
            let first = [primary.finish(), header(false, "re")].concat();
            vec![unit(first, 0), unit(header(false, "im"), size)]
        };
        FitsFile::new(units, Vec::new())
    }
}

/// The unit of a number in each record of array `i`: at this place, in records of that length.
fn unit(
    header: Vec<u8>,
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
        header,
        parts: vec![part],
        width: change.sizes().1,
        count,
    }
}
