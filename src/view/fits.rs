//! Arrays and tables as FITS files: what `fits/` of a mount shows.
//!
//! An array of numbers is the primary image of its file, with the axes in FITS' order, fastest first, so that the elements lie as in
//! C order; complex numbers are two images behind an empty primary unit. A structured array and a table (`core/table`, or one of astropy)
//! is a binary table behind an empty primary unit. A directory has a file of all that it holds. Numbers are
//! stored as FITS Standard 4.0 has them: big-endian, unsigned ones with an offset. The length of a file follows from the tree, and
//! elements are converted when they are read; nothing is kept.

mod column;
mod header;
mod image;
mod meta;
mod null;
mod plan;
mod sky;
mod table;

use std::sync::Arc;

use super::{Elements, no_longer, padded, product, typed, whole};
use crate::asdf::Array;
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::fits::BLOCK_LEN;
use crate::asdf::outline::PlaceId;
use crate::asdf::paths::Paths;
use crate::asdf::rows::{RowPart, Rows};
use crate::asdf::scalar::Value;
use crate::error::{Result, unsupported};
use crate::source::{Joined, Memory, Source, len_u64};

use column::{Columns, MAX_COLUMNS};
use header::{HeaderText, printable_ascii};
pub use plan::FitsPlan;
use sky::{SKY_LEN, Sky};

/// Floating-point numbers below that are integers of 64 bits if they are whole: 2^63.
const MAX_WHOLE: f64 = 9_223_372_036_854_775_808.0;

/// What is shown as a FITS file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The array of that index.
    Array(usize),
    /// The table at that place.
    Table(PlaceId),
    /// The directory at that place, with all that it holds.
    Directory(PlaceId),
}

/// A FITS file that can be made of arrays, or the units that an array or table has in one.
#[derive(Debug, Default)]
pub struct FitsFile {
    units: Vec<Unit>,
    /// Bytes of the file.
    pub len: u64,
    /// What tells the place of its images in the sky.
    sky: Option<Arc<Sky>>,
    /// The columns that FITS can't hold, each with the reason.
    pub omitted: Vec<(String, String)>,
}

/// A header and data unit of such a file.
#[derive(Debug)]
struct Unit {
    header: Vec<u8>,
    /// Where the header has blank cards for coordinates.
    sky_at: Option<usize>,
    /// The arrays that it is made of, by index.
    parts: Vec<RowPart<usize>>,
    /// Bytes of a row or element, and how many there are.
    width: u64,
    count: u64,
}

impl Unit {
    /// A header without data.
    fn of_header(header: HeaderText) -> Self {
        Self {
            header: header.finish(),
            sky_at: None,
            parts: Vec::new(),
            width: 0,
            count: 0,
        }
    }

    /// Bytes of its header and data, in whole blocks.
    fn len(&self) -> Option<u64> {
        let data = self.width.checked_mul(self.count)?;
        let data = data.checked_next_multiple_of(BLOCK_LEN)?;
        data.checked_add(len_u64(self.header.len()))
    }

    /// Its bytes.
    fn open(
        &self,
        elements: Elements<'_>,
        sky: Option<&Arc<dyn Source>>,
    ) -> Result<Arc<dyn Source>> {
        let header = self.header(sky)?;
        if self.parts.is_empty() {
            return Ok(header);
        }
        let parts = self.parts.iter().map(|part| {
            Ok(RowPart {
                records: elements(part.records)?,
                record: part.record,
                fields: part.fields.clone(),
            })
        });
        let parts = parts.collect::<Result<_>>()?;
        let data = Rows::new(parts, self.width, self.count)?.into_source();
        let whole = Arc::new(Joined::new(header, data)?);
        padded(whole, self.len().ok_or_else(no_longer)?)
    }

    /// Its header, with these cards of coordinates if it has room for them.
    fn header(&self, sky: Option<&Arc<dyn Source>>) -> Result<Arc<dyn Source>> {
        let cards = |bytes: &[u8]| Arc::new(Memory::new(bytes.to_vec()));
        let before = self.sky_at.and_then(|at| self.header.get(..at));
        let behind = self
            .sky_at
            .and_then(|at| self.header.get(at..)?.get(SKY_LEN..));
        Ok(match (before, sky, behind) {
            (Some(before), Some(sky), Some(behind)) => {
                let behind = Joined::new(Arc::clone(sky), cards(behind))?;
                Arc::new(Joined::new(cards(before), Arc::new(behind))?)
            }
            _ => cards(&self.header),
        })
    }
}

impl FitsFile {
    /// Bytes of the file, if they are fewer than 2^63.
    fn counted(&self) -> Option<u64> {
        let mut lens = self.units.iter().map(Unit::len);
        let len = lens.try_fold(0_u64, |sum, len| sum.checked_add(len?))?;
        i64::try_from(len).ok().and(Some(len))
    }

    /// The arrays that it is made of, by index.
    pub fn arrays(&self) -> impl Iterator<Item = usize> {
        let parts = self.units.iter().flat_map(|unit| &unit.parts);
        parts.map(|part| part.records)
    }

    /// The file, with the elements of each array of the snapshot, in C order, from `elements`.
    ///
    /// # Errors
    /// Those of `elements`; [`Error::Corrupt`] if there are too few of them.
    pub fn open(&self, snapshot: &Snapshot, elements: Elements<'_>) -> Result<Arc<dyn Source>> {
        let sky = self.sky.as_ref().map(|sky| sky.cards(snapshot, elements));
        let units = self.units.iter();
        let mut units = units.map(|unit| unit.open(elements, sky.as_ref()));
        let first = units.next().ok_or_else(no_longer)??;
        units.try_fold(first, |all, unit| -> Result<Arc<dyn Source>> {
            Ok(Arc::new(Joined::new(all, unit?)?))
        })
    }
}

impl Snapshot {
    /// Where an array, a table or a directory stands.
    #[must_use]
    pub fn place_of(&self, subject: Subject) -> Option<(&Paths, PlaceId)> {
        let place = match subject {
            Subject::Array(i) => self.arrays().get(i).map(Array::home),
            Subject::Table(place) | Subject::Directory(place) => Some(place),
        };
        Some((self.paths()?, place?))
    }

    /// The units of array `i`: a binary table if it is structured, else images, with room for coordinates if they are in a `sky`.
    /// Extensions have a name and a version.
    fn fits_of_array(
        &self,
        i: usize,
        name: Option<(&str, u64)>,
        sky: Option<Arc<Sky>>,
    ) -> Result<FitsFile> {
        let array = self.array(i)?;
        let (datatype, shape) = typed(array)?;
        let count = product(shape).ok_or_else(no_longer)?;
        if !matches!(datatype, Datatype::Struct(_)) {
            return Ok(FitsFile {
                units: self.image_units(i, (datatype, shape, count), name, sky.is_some())?,
                sky,
                ..FitsFile::default()
            });
        }
        let mut columns = Columns::default();
        let part = columns.add_array((i, array), "", &[], (None, None));
        columns.table(
            part.into_iter().collect(),
            count,
            (name, &*array.brief_path()),
        )
    }

    /// The number that stands for no value in an array, if the tree gives one: an integer, if it is whole.
    fn masked(&self, i: usize) -> Option<Value<'_>> {
        let node = self.paths()?.node(self.arrays().get(i)?.home())?;
        match node.get("mask")?.value()? {
            Value::Float(mask) if mask.fract() == 0.0 && mask.abs() < MAX_WHOLE => {
                Some(Value::Int(whole(mask).into()))
            }
            mask @ (Value::Int(_) | Value::Float(_)) => Some(mask),
            _ => None,
        }
    }
}

impl Columns {
    /// The units of a binary table of them. An extension has a name and a version.
    fn table(
        self,
        parts: Vec<RowPart<usize>>,
        count: u64,
        (name, path): (Option<(&str, u64)>, &str),
    ) -> Result<FitsFile> {
        if self.are_too_many() {
            let why = format!("FITS tables have {MAX_COLUMNS} columns at most");
            return Err(unsupported(why));
        }
        if self.count == 0 || parts.is_empty() {
            let why = self.omitted.into_iter().next();
            let why = why.map_or_else(|| "no columns".to_owned(), |(_, why)| why);
            return Err(unsupported(why));
        }
        let mut header = HeaderText::begin(Some("BINTABLE"), 8, &[count, self.width]);
        header.value("TFIELDS", self.count);
        header.extend(&self.cards);
        header.name(name.unwrap_or((path, 1)));
        for note in &self.notes {
            header.comment(&printable_ascii(note));
        }
        for (name, why) in self.omitted.iter().take(MAX_COLUMNS) {
            header.comment(&printable_ascii(&format!("left out: {name}: {why}")));
        }
        let unit = Unit {
            parts,
            width: self.width,
            count,
            ..Unit::of_header(header)
        };
        // a table is always an extension: alone in its file, it stands behind an empty primary unit
        let primary = name.is_none().then(HeaderText::primary);
        let primary = primary.map(Unit::of_header).into_iter();
        Ok(FitsFile {
            units: primary.chain([unit]).collect(),
            omitted: self.omitted,
            ..FitsFile::default()
        })
    }
}

#[cfg(test)]
mod tests;
