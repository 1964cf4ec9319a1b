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
mod plan;
mod sky;
mod table;

use std::sync::Arc;

use super::{Elements, no_longer, product};
use crate::asdf::Array;
use crate::asdf::Snapshot;
use crate::asdf::datatype::Datatype;
use crate::asdf::fits::BLOCK_LEN;
use crate::asdf::outline::PlaceId;
use crate::asdf::paths::Paths;
use crate::asdf::rows::{RowPart, Rows};
use crate::error::{Result, unsupported};
use crate::source::{Joined, Made, Memory, Source, len_u64};

use column::{Columns, MAX_COLUMNS};
use header::{HeaderText, printable_ascii};
pub use plan::FitsPlan;
use sky::{Sky, Way};

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
    fn open(&self, elements: Elements<'_>, way: Option<&Arc<Way>>) -> Result<Arc<dyn Source>> {
        let header = self.header(way);
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
        let used = header.len().saturating_add(data.len());
        let padding = self.len().unwrap_or(0).saturating_sub(used);
        let padding = vec![0; usize::try_from(padding).unwrap_or(0)];
        let data = Arc::new(Joined::new(data, Arc::new(Memory::new(padding)))?);
        Ok(Arc::new(Joined::new(header, data)?))
    }

    /// Its header: with coordinates, which are found when it is read, if it has room for them.
    fn header(&self, way: Option<&Arc<Way>>) -> Arc<dyn Source> {
        let blank = self.header.clone();
        let (Some(at), Some(way)) = (self.sky_at, way) else {
            return Arc::new(Memory::new(blank));
        };
        let way = Arc::clone(way);
        Arc::new(Made::new(len_u64(blank.len()), move || {
            let mut header = blank.clone();
            way.write(header.get_mut(at..).unwrap_or_default())?;
            Ok(Arc::new(Memory::new(header)))
        }))
    }
}

impl FitsFile {
    /// Bytes of the file, if they are fewer than 2^63.
    fn len(&self) -> Option<u64> {
        let mut lens = self.units.iter().map(Unit::len);
        let len = lens.try_fold(0_u64, |sum, len| sum.checked_add(len?))?;
        i64::try_from(len).ok().and(Some(len))
    }

    /// Bytes of the file.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        // a longer file is refused
        self.len().unwrap_or(u64::MAX)
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
        let way = self.sky.as_ref().map(|sky| sky.way(snapshot, elements));
        let way = way.map(Arc::new);
        let units = self.units.iter();
        let mut units = units.map(|unit| unit.open(elements, way.as_ref()));
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
        let datatype = array.datatype().ok_or_else(no_longer)?;
        let shape = array.shape().ok_or_else(no_longer)?;
        let count = product(shape).ok_or_else(no_longer)?;
        if !matches!(datatype, Datatype::Struct(_)) {
            return Ok(FitsFile {
                units: self.image_units(i, (datatype, shape, count), name, sky.is_some())?,
                sky,
                ..FitsFile::default()
            });
        }
        let mut columns = Columns::default();
        let added = columns.add("", datatype, &[], 0, (None, None));
        columns.notes.extend(array.note());
        let part = RowPart {
            records: i,
            record: added.or(datatype.size()).ok_or_else(no_longer)?,
            fields: std::mem::take(&mut columns.fields),
        };
        columns.table(vec![part], count, (name, &*array.brief_path()))
    }

    /// The number that stands for no value in an array of integers, if the tree gives one.
    fn masked(&self, i: usize) -> Option<i128> {
        let node = self.paths()?.node(self.arrays().get(i)?.home())?;
        node.get("mask")?.follow().text()?.parse().ok()
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
        if self.count == 0 {
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
            sky: None,
        })
    }
}

#[cfg(test)]
mod tests;
