//! ASDF in FITS: the header and data units of a FITS file, the ASDF file that one of them holds, and the arrays in the others.
//!
//! ASDF Standard, appendix A "Embedding ASDF in FITS"; FITS Standard 4.0, sections 3 and 4; beyond
//! them, what asdf 2 and JWST's pipeline really write. A unit is a header in blocks of 2880 bytes, 36 cards of 80 bytes each, and data rounded up to such blocks.
//! FITS data are big-endian. Nothing is computed from them: what is not an array's elements as they are stored, but for the
//! sign bit of unsigned integers, is not shown as an array. Knows nothing of the tree.

mod card;

use std::sync::Arc;

use self::card::Cards;
use super::datatype::{ByteOrder, Datatype, Scalar};
use super::layout::Extent;
use super::text::read_up_to;
use crate::error::{Error, Place, Result, corrupt, unsupported};
use crate::source::{Short, Source, Window, checked_end};

/// Bytes of a FITS block.
pub(super) const BLOCK_LEN: u64 = 2880;
/// The most units of a file.
const HDU_LIMIT: usize = 10_000;
/// The first card of every FITS file.
const SIGNATURE: &[u8] = b"SIMPLE  =";
/// The name of the unit that holds the ASDF file.
const ASDF: &str = "ASDF";

/// A header and data unit.
#[derive(Debug, Clone)]
pub struct Hdu {
    /// `EXTNAME`; `PRIMARY` for a first unit without; else empty.
    pub name: String,
    /// `EXTVER`, 1 if there is none.
    pub version: i64,
    /// Its header, padding included.
    pub header: Extent,
    /// Its data, with the heap of a table but without padding; may reach beyond the end of a file that was cut short.
    pub data: Extent,
    /// Bytes of the array or of the table's rows.
    pub main_len: u64,
    /// Whether its data are an array, as all primary data; else rows of fields, or something else.
    is_image: bool,
    bitpix: i64,
    scale: f64,
    zero: f64,
    compressed: bool,
}

/// The units of a FITS file.
pub struct Fits {
    bytes: Arc<dyn Source>,
    hdus: Vec<Hdu>,
    /// What is not as it should be, but harms nothing else.
    pub problems: Vec<Error>,
}

/// Elements of an array of the tree, in a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnitElements {
    /// Index of the unit.
    pub hdu: usize,
    /// Bytes of each element whose highest bit is stored the other way round, as FITS has unsigned integers; 0 for none.
    pub flipped: u64,
    /// Bytes of all.
    pub len: u64,
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
                Err(error) => {
                    fits.problems.push(error);
                    None
                }
            };
        }
        Ok(Some(fits))
    }

    /// Takes in a unit. Where the next one begins, if the file goes on.
    fn add(&mut self, hdu: Hdu) -> Option<u64> {
        let end = hdu.data.end;
        let n = self.hdus.len();
        if end > self.bytes.len() {
            let why = format!(
                "unit {n} has {} bytes of data, but the file ends",
                hdu.data.len()
            );
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
        let hdu = self
            .hdus
            .iter()
            .skip(1)
            .find(|hdu| hdu.name.eq_ignore_ascii_case(ASDF))
            .ok_or_else(|| {
                let why = "a FITS file without an ASDF extension: nothing to mount; astropy.io.fits reads it";
                corrupt(why)
            })?;
        let bytes = Arc::clone(&self.bytes);
        Ok(Arc::new(Window::new(bytes, hdu.data.start, hdu.main_len)?))
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

    /// Index of the unit of that name and version.
    fn find(&self, name: &str, version: i64) -> Option<usize> {
        self.hdus
            .iter()
            .position(|hdu| hdu.version == version && hdu.name.eq_ignore_ascii_case(name))
    }

    /// The elements that a reference of the tree leads to: `NAME,VERSION` or an index, what follows `fits:`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such unit; [`Error::Unsupported`] if what it stores are not elements of that type.
    pub fn elements(&self, reference: &str, datatype: &Datatype) -> Result<UnitElements> {
        let missing = || {
            let why = format!("fits:{reference} wanted, but there is no such unit");
            corrupt(why)
        };
        // a name may hold commas
        let n = match reference.rsplit_once(',') {
            Some((name, version)) => version
                .trim()
                .parse()
                .ok()
                .and_then(|version| self.find(name.trim_end(), version)),
            None => reference.trim().parse().ok(),
        };
        let hdu = n.ok_or_else(missing)?;
        let found = self.hdus.get(hdu).ok_or_else(missing)?;
        let told = |why| unsupported(format!("fits:{reference}: {why}"));
        if !is_big_endian(datatype) {
            return Err(told("little-endian, but data in FITS are big-endian"));
        }
        Ok(UnitElements {
            hdu,
            flipped: found.flipped(datatype).map_err(told)?,
            len: found.main_len,
        })
    }

    /// The bytes of elements.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file was cut short before them.
    pub fn open_elements(&self, elements: UnitElements) -> Result<Arc<dyn Source>> {
        let main: Arc<dyn Source> =
            Arc::new(Window::new(self.data(elements.hdu)?, 0, elements.len)?);
        Ok(match elements.flipped {
            0 => main,
            itemsize => Arc::new(Flipped {
                inner: main,
                itemsize,
            }),
        })
    }
}

impl Hdu {
    /// What its files are called when it is unit `n`: `2-SCI,1`, or `2` if it has no name. References spell it likewise.
    #[must_use]
    pub fn file_stem(&self, n: u32) -> String {
        if self.name.is_empty() {
            return n.to_string();
        }
        format!("{n}-{},{}", self.name, self.version)
    }

    /// The unit whose header is at `at`; `None` if what is there is no unit, such as the special records of old files.
    fn read(bytes: &dyn Source, at: u64, primary: bool) -> Result<Option<Self>> {
        let Some((cards, header_end)) = Cards::read(bytes, at)? else {
            return Ok(None);
        };
        let extension = cards.text("XTENSION");
        if !primary && extension.is_none() {
            return Ok(None);
        }
        let broken = |why: &str| Error::corrupt(Place::Byte(at), format!("FITS header: {why}"));
        let bitpix = cards
            .integer("BITPIX")
            .filter(|bits| [8, 16, 32, 64, -32, -64].contains(bits))
            .ok_or_else(|| broken("no valid BITPIX"))?;
        let (main_len, data_len) =
            data_len(&cards, bitpix, primary).ok_or_else(|| broken("no valid NAXIS or size"))?;
        let end = header_end.checked_add(data_len);
        let end = end.ok_or_else(|| broken("data beyond 2^64"))?;
        let extended = extension.map(str::trim_end);
        let is_image = matches!(extended, None | Some("IMAGE" | "IUEIMAGE"));
        let name = cards
            .text("EXTNAME")
            .or(extension.filter(|name| *name == ASDF));
        let name = name.unwrap_or(if primary { "PRIMARY" } else { "" });
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
            is_image,
            bitpix,
            scale: cards.float("BSCALE").unwrap_or(1.0),
            zero: cards.float("BZERO").unwrap_or(0.0),
            compressed: cards.is_true("ZIMAGE"),
        }))
    }

    /// Bytes of each element whose highest bit is to be turned to get elements of that type, 0 if they are stored as they
    /// are; or why they are not stored.
    fn flipped(&self, datatype: &Datatype) -> Result<u64, &'static str> {
        if self.compressed {
            return Err("a compressed image; its bytes are in hdus/");
        }
        #[expect(clippy::float_cmp, reason = "exactly these numbers are meant")]
        let (unscaled, zero) = (self.scale == 1.0, |value| self.zero == value);
        if !self.is_image || (unscaled && zero(0.0)) {
            return Ok(0);
        }
        let Datatype::Scalar(scalar, _) = datatype else {
            return Err("a scaled image, declared as something else than numbers");
        };
        let offset_by_sign = match (self.bitpix, scalar) {
            (8, Scalar::Int8) => zero(-128.0),
            (16, Scalar::Uint16) => zero(f64::from(1_u32 << 15)),
            (32, Scalar::Uint32) => zero(f64::from(1_u32 << 31)),
            (64, Scalar::Uint64) => zero(f64::from(1_u32 << 31) * f64::from(1_u32 << 31) * 2.0),
            _ => false,
        };
        if unscaled && offset_by_sign {
            return Ok(u64::from(scalar.size()));
        }
        Err("a scaled image (BSCALE, BZERO): its elements are not stored; its bytes are in hdus/")
    }
}

/// Bytes of a unit's array or rows, and with what follows them.
fn data_len(cards: &Cards, bitpix: i64, primary: bool) -> Option<(u64, u64)> {
    let axes = cards.integer("NAXIS")?;
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
    let count = |name, default| match cards.integer(name) {
        Some(value) => u64::try_from(value).ok(),
        None => Some(default),
    };
    let each = bitpix.unsigned_abs().checked_div(8)?;
    let each = each.checked_mul(count("GCOUNT", 1)?)?;
    let extra = count("PCOUNT", 0)?;
    Some((
        each.checked_mul(array)?,
        each.checked_mul(array.checked_add(extra)?)?,
    ))
}

/// Whether numbers of more than one byte are all big-endian.
fn is_big_endian(datatype: &Datatype) -> bool {
    match datatype {
        Datatype::Scalar(scalar, order) => *order == ByteOrder::Big || scalar.size() == 1,
        Datatype::Ascii(_) => true,
        Datatype::Ucs4(_, order) => *order == ByteOrder::Big,
        Datatype::Struct(fields) => fields.iter().all(|field| is_big_endian(&field.datatype)),
    }
}

/// Elements with the highest bit of each turned: FITS stores an unsigned integer as the signed one that is 2^(bits-1) less.
struct Flipped {
    inner: Arc<dyn Source>,
    itemsize: u64,
}

impl Source for Flipped {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        const SIGN: u8 = 0x80;
        checked_end(offset, buf.len(), self.len())?;
        self.inner.read_exact_at(buf, offset)?;
        let inside = offset.checked_rem(self.itemsize).unwrap_or(0);
        let first = match inside {
            0 => 0,
            inside => self.itemsize.saturating_sub(inside),
        };
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let step = usize::try_from(self.itemsize).unwrap_or(usize::MAX);
        for byte in buf.iter_mut().skip(first).step_by(step.max(1)) {
            *byte ^= SIGN;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/fits.rs"]
mod tests;
