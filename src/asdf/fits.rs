//! ASDF in FITS: the header and data units of a FITS file, the ASDF file that one of them holds, and the arrays in the others.
//!
//! ASDF Standard, appendix A "Embedding ASDF in FITS"; FITS Standard 4.0, sections 3 and 4; beyond them, the files that asdf 2 and
//! JWST's pipeline really write. A unit is a header and data, each in blocks of 2880 bytes; a header block has 36 cards of 80
//! bytes. Each header describes the data of its own unit. Knows nothing of the tree.

mod card;
mod held;

use std::sync::{Arc, OnceLock};

use self::card::Cards;
use self::held::Held;
use super::datatype::Datatype;
use super::layout::Extent;
use super::rows::{RowPart, Rows};
use crate::error::{Error, Place, Result, corrupt, unsupported};
use crate::source::{Short, Source, Window, read_up_to};

/// Bytes of a FITS block.
pub(crate) const BLOCK_LEN: u64 = 2880;
/// The most units of a file.
const HDU_LIMIT: usize = 10_000;
/// The first card of every FITS file.
const SIGNATURE: &[u8] = b"SIMPLE  =";
/// The name of the unit that holds the ASDF file.
const ASDF: &str = "ASDF";
/// The name of the first unit.
const PRIMARY: &str = "PRIMARY";

/// A header and data unit.
#[derive(Debug, Clone)]
pub struct Hdu {
    /// `EXTNAME`. Without one: `PRIMARY` for the first unit, else empty.
    pub name: String,
    /// `EXTVER`, 1 if there is none.
    pub version: i64,
    /// Its header, padding included.
    pub header: Extent,
    /// Its data, with the heap of a table but without padding; may reach beyond the end of a file that was cut short.
    pub data: Extent,
    /// Bytes of the array or of the table's rows.
    pub main_len: u64,
    /// The array in its data, or why there is none; filled on first use.
    held: OnceLock<Result<Arc<Held>>>,
}

/// The units of a FITS file.
pub struct Fits {
    bytes: Arc<dyn Source>,
    hdus: Vec<Hdu>,
    /// Faults that do not keep other units from being read.
    pub problems: Vec<Error>,
}

impl Fits {
    /// Bytes of the file.
    pub(super) fn file_len(&self) -> u64 {
        self.bytes.len()
    }

    /// The units of the file, if it is a FITS file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its first header makes no sense, [`Error::Io`].
    pub fn open(bytes: &Arc<dyn Source>) -> Result<Option<Self>> {
        if read_up_to(&**bytes, 0, SIGNATURE.len())? != SIGNATURE {
            return Ok(None);
        }
        let mut fits = Self {
            bytes: Arc::clone(bytes),
            hdus: Vec::new(),
            problems: Vec::new(),
        };
        let mut at = Some(0);
        while let Some(from) = at {
            at = match Hdu::read(&**bytes, from, fits.hdus.is_empty()) {
                Ok(None) => None,
                Ok(Some(hdu)) if fits.hdus.len() < HDU_LIMIT => fits.add(hdu),
                Ok(Some(_)) => {
                    let why = format!("more than {HDU_LIMIT} units; the rest is not shown");
                    fits.problems
                        .push(Error::unsupported(Place::Byte(from), why));
                    None
                }
                Err(error) if fits.hdus.is_empty() || matches!(error, Error::Io { .. }) => {
                    return Err(error);
                }
                // behind a broken header nothing says where
                // the next unit begins: the list ends here
                Err(error) => {
                    fits.problems.push(error);
                    None
                }
            };
        }
        Ok(Some(fits))
    }

    /// Adds a unit. Returns where the next one begins, if the file goes on.
    fn add(&mut self, hdu: Hdu) -> Option<u64> {
        let end = hdu.data.end;
        let n = self.hdus.len();
        if end > self.bytes.len() {
            let why = format!(
                "unit {n} has {} bytes of data, but the file ends",
                hdu.data.len()
            );
            // the unit is kept: its header can be read, and data up to the cut
            let at = Place::Byte(hdu.data.start);
            self.problems.push(Error::corrupt(at, why));
        }
        if !hdu.name.is_empty() && self.find(&hdu.name, hdu.version).is_some() {
            let why = format!(
                "unit {n} has the name of another, {},{}; that one counts",
                hdu.name, hdu.version
            );
            self.problems
                .push(Error::corrupt(Place::Byte(hdu.header.start), why));
        }
        self.hdus.push(hdu);
        // data are padded to whole blocks (FITS Standard 4.0, section 3.1)
        end.checked_next_multiple_of(BLOCK_LEN)
            .filter(|&next| next < self.bytes.len())
    }

    /// The units, in the order of the file.
    #[must_use]
    pub fn hdus(&self) -> &[Hdu] {
        &self.hdus
    }

    /// The ASDF file that is in this file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none, or only a part of it.
    pub fn embedded(&self) -> Result<Arc<dyn Source>> {
        let hdu = self.asdf().ok_or_else(|| {
            let why =
                "a FITS file without an ASDF extension: nothing to mount; astropy.io.fits reads it";
            corrupt(why)
        })?;
        let bytes = Arc::clone(&self.bytes);
        Ok(Arc::new(Window::new(bytes, hdu.data.start, hdu.main_len)?))
    }

    /// Where the ASDF file begins in this file, if there is one.
    #[must_use]
    pub fn asdf_at(&self) -> Option<u64> {
        Some(self.asdf()?.data.start)
    }

    fn asdf(&self) -> Option<&Hdu> {
        // the first unit is no extension
        let mut hdus = self.hdus.iter().skip(1);
        hdus.find(|hdu| hdu.name.eq_ignore_ascii_case(ASDF))
    }

    /// Byte offset in this file where the elements of unit `n` begin; `None` if they are converted when they are read.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it can't be shown as an array; [`Error::Corrupt`] if there is no such unit.
    pub fn elements_at(&self, n: usize) -> Result<Option<u64>> {
        let plain = self.held(n)?.is_plain();
        Ok(plain.then_some(self.hdu(n)?.data.start))
    }

    /// The header of unit `n`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such unit.
    pub fn header(&self, n: usize) -> Result<Arc<dyn Source>> {
        let header = self.hdu(n)?.header;
        let bytes = Arc::clone(&self.bytes);
        Ok(Arc::new(Window::new(bytes, header.start, header.len())?))
    }

    /// The data of unit `n` as they are stored.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such unit.
    pub fn data(&self, n: usize) -> Result<Arc<dyn Source>> {
        let Extent { start, end } = self.hdu(n)?.data;
        let there = end.min(self.bytes.len()).saturating_sub(start);
        // the whole unit may lie behind the end of a file that was cut short
        let start = start.min(self.bytes.len());
        let window = Arc::new(Window::new(Arc::clone(&self.bytes), start, there)?);
        let len = end.saturating_sub(start);
        if there == len {
            return Ok(window);
        }
        let why = format!("the data of unit {n} are cut short after {there} bytes");
        let missing = corrupt(why);
        Ok(Arc::new(Short::new(window, len, missing)))
    }

    fn hdu(&self, n: usize) -> Result<&Hdu> {
        self.hdus
            .get(n)
            .ok_or_else(|| corrupt(format!("no FITS unit {n}")))
    }

    /// Index of the unit of that name and version. The first one is also called `PRIMARY`, whatever its name.
    fn find(&self, name: &str, version: i64) -> Option<usize> {
        let name = name.trim();
        let mut units = self.hdus.iter().enumerate();
        let found = units.find(|(n, hdu)| {
            let is_called = |other: &str| name.eq_ignore_ascii_case(other);
            let is_named = is_called(hdu.name.trim()) || (*n == 0 && is_called(PRIMARY));
            hdu.version == version && is_named
        });
        found.map(|(n, _)| n)
    }

    /// The unit that a reference in the tree names, and the array in it. `reference` is the text behind `fits:`, either
    /// `NAME,VERSION` or an index.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such unit; [`Error::Unsupported`] if it can't be shown as an array.
    pub(super) fn referred(&self, reference: &str) -> Result<(usize, Arc<Held>)> {
        // a name may hold commas
        let n = match reference.rsplit_once(',') {
            Some((name, version)) => version
                .trim()
                .parse()
                .ok()
                .and_then(|version| self.find(name, version)),
            None => reference.trim().parse().ok(),
        };
        let n = n.filter(|n| *n < self.hdus.len()).ok_or_else(|| {
            let why = format!("fits:{reference} wanted, but there is no such unit");
            corrupt(why)
        })?;
        Ok((n, self.held(n)?))
    }

    /// The array in the data of unit `n`.
    fn held(&self, n: usize) -> Result<Arc<Held>> {
        let hdu = self.hdu(n)?;
        if let Some(held) = hdu.held.get() {
            return held.clone();
        }
        // read a second time: to keep the cards of 10,000 units would take too much memory
        let header = Cards::read(&*self.bytes, hdu.header.start)?;
        let (cards, _) = header.ok_or_else(|| corrupt(format!("FITS unit {n} is gone")))?;
        let held = Held::of(&cards).map(Arc::new);
        let held = held.map_err(|why| unsupported(format!("{why}; its bytes are in hdus/")));
        hdu.held.get_or_init(|| held).clone()
    }

    /// The elements of unit `n`, one behind the other.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it can't be shown as an array; [`Error::Corrupt`] if the file was cut short before it.
    pub(super) fn open_elements(&self, n: usize) -> Result<Arc<dyn Source>> {
        let held = self.held(n)?;
        let width = Datatype::size(&held.datatype);
        let (width, count) = width.zip(held.count()).ok_or_else(too_large)?;
        // both numbers come from the file, so their product may be anything
        let stored = held.record.checked_mul(count).ok_or_else(too_large)?;
        let records: Arc<dyn Source> = Arc::new(Window::new(self.data(n)?, 0, stored)?);
        let part = RowPart {
            records,
            record: held.record,
            fields: held.fields.clone(),
        };
        Ok(Rows::new(vec![part], width, count)?.into_source())
    }
}

impl Hdu {
    /// The name of its files as unit `n`, without suffix: `2-SCI,1`, or `2` if it has no name. References in
    /// the tree spell it likewise.
    #[must_use]
    pub fn file_stem(&self, n: u32) -> String {
        if self.name.is_empty() {
            return n.to_string();
        }
        format!("{n}-{},{}", self.name, self.version)
    }

    /// The unit whose header is at `at`; `None` if no unit begins there, as with the special records of old files.
    fn read(bytes: &dyn Source, at: u64, primary: bool) -> Result<Option<Self>> {
        let Some((cards, header_end)) = Cards::read(bytes, at)? else {
            return Ok(None);
        };
        // every unit but the first one has it (FITS Standard 4.0, section 4.4.1)
        let extension = cards.text("XTENSION");
        if !primary && extension.is_none() {
            return Ok(None);
        }
        let broken = |why: &str| Error::corrupt(Place::Byte(at), format!("FITS header: {why}"));
        // the bits of a number, negative for floating-point: FITS has no others
        let bitpix = cards
            .integer("BITPIX")
            .filter(|bits| [8, 16, 32, 64, -32, -64].contains(bits))
            .ok_or_else(|| broken("no valid BITPIX"))?;
        let (main_len, data_len) =
            data_len(&cards, bitpix, primary).ok_or_else(|| broken("no valid NAXIS or size"))?;
        let end = header_end.checked_add(data_len);
        let end = end.ok_or_else(|| broken("data beyond 2^64"))?;
        let name = cards
            .text("EXTNAME")
            .or(extension.filter(|name| *name == ASDF));
        let name = name.unwrap_or(if primary { PRIMARY } else { "" });
        Ok(Some(Self {
            name: name.to_owned(),
            version: cards.integer("EXTVER").unwrap_or(1),
            header: Extent {
                start: at,
                end: header_end,
            },
            data: Extent {
                start: header_end,
                end,
            },
            main_len,
            held: OnceLock::new(),
        }))
    }
}

/// Length in bytes of a unit's array or rows, and the same with the heap behind them.
fn data_len(cards: &Cards, bitpix: i64, primary: bool) -> Option<(u64, u64)> {
    let axes = cards.integer("NAXIS")?;
    // FITS Standard 4.0, section 4.4.1: at most 999 axes
    if !(0..=999).contains(&axes) {
        return None;
    }
    if axes == 0 {
        return Some((0, 0));
    }
    let mut counts =
        (1..=axes).map(|axis| u64::try_from(cards.integer(&format!("NAXIS{axis}"))?).ok());
    let first = counts.next()??;
    // random groups have no first axis
    let groups = primary && first == 0 && cards.is_true("GROUPS");
    let first = if groups { 1 } else { first };
    let array = counts.try_fold(first, |product, count| product.checked_mul(count?))?;
    let each = bitpix.unsigned_abs().checked_div(8)?;
    let each = each.checked_mul(cards.count("GCOUNT", 1)?)?;
    let extra = cards.count("PCOUNT", 0)?;
    // FITS Standard 4.0, section 4.4.1.2: |BITPIX| × GCOUNT × (PCOUNT + NAXIS1 × NAXIS2 × …) bits
    Some((
        each.checked_mul(array)?,
        each.checked_mul(array.checked_add(extra)?)?,
    ))
}

fn too_large() -> Error {
    corrupt("a FITS unit of 2^64 bytes or more")
}

#[cfg(test)]
#[path = "tests/fits.rs"]
mod tests;
