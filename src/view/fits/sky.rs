//! Coordinates on the sky of the images beside a `meta`: by its `wcsinfo`, if that is of a mosaic, or by the gwcs of its `wcs`.
//!
//! How many cards a header has for them is known without them. What they say is found when the header is read: an exact gnomonic
//! projection, or one that is fitted to the gwcs, if that is never more than [`MAX_ERROR`] off. Of a gwcs that is not known to its last
//! part there are no coordinates, but a comment that names the part.

mod fit;
mod gwcs;
mod transform;

use std::sync::Arc;

use super::header::{CARD, HeaderText, printable_ascii, real};
use crate::asdf::Snapshot;
use crate::asdf::outline::column::is_tagged;
use crate::asdf::paths::Paths;
use crate::asdf::tree::{Node, NodeId, NodeKind};
use crate::error::{Error, Result, unsupported};
use crate::source::{Made, Memory, Source, len_u64};
use crate::view::{Elements, array_at};

use fit::{CHECKED, Region, Tangent};
use gwcs::{Frame, Gwcs, Reader, float, pair, whole};

/// Cards that a header has for coordinates, blank ones where they take fewer: 53 of the highest degree, and comments.
pub(super) const CARDS: usize = 57;
pub(super) const SKY_LEN: usize = CARDS * CARD;
/// Largest error of coordinates, in pixels.
const MAX_ERROR: f64 = 0.25;
/// Degrees by pixel of a mosaic, at most. The oldest files may have seconds of arc.
const MAX_SCALE: f64 = 0.01;

/// What tells the place in the sky of the images in a directory.
#[derive(Debug)]
pub(super) struct Sky {
    wcs: Option<NodeId>,
    mosaic: Option<NodeId>,
    /// Shape of these images.
    shape: [u64; 2],
}

impl Sky {
    /// That of the images in a directory, if it has some.
    pub(super) fn of(snapshot: &Snapshot, paths: &Paths, directory: Node<'_>) -> Option<Self> {
        let meta = directory.get("meta");
        let get = |key| meta.and_then(|meta| meta.get(key));
        let is_gwcs = |node: &Node<'_>| {
            let is_old = node.tag().is_some_and(|tag| tag.contains("gwcs/"));
            is_old && is_tagged(*node, &["wcs-"])
        };
        let wcs = [get("wcs"), directory.get("wcs")].into_iter().flatten();
        let wcs = wcs.map(|wcs| paths.referent(wcs)).find(is_gwcs);
        let mosaic = get("wcsinfo").filter(|info| info.get("pixel_scale_ref").is_some());
        if wcs.is_none() && mosaic.is_none() {
            return None;
        }
        let declared = wcs.and_then(|wcs| wcs.get("pixel_shape"));
        let declared = declared.filter(|shape| shape.kind() == NodeKind::Sequence);
        let shape = if let Some(shape) = declared {
            let len = |len: Node<'_>| u64::try_from(whole(len.follow())?).ok();
            let [x, y] = shape.items().map(len).collect::<Vec<_>>()[..] else {
                return None;
            };
            [y?, x?]
        } else {
            let data = paths.referent(directory.get("data")?);
            // a quantity has its array as its value
            let value = || array_at(paths, paths.referent(data.get("value")?));
            let data = snapshot.array(array_at(paths, data).or_else(value)?).ok()?;
            <[u64; 2]>::try_from(data.shape()?).ok()?
        };
        Some(Self {
            wcs: wcs.map(Node::id),
            mosaic: mosaic.map(Node::id),
            shape,
        })
    }

    /// Whether an array of that shape is one of these images.
    pub(super) fn is_of(&self, shape: &[u64]) -> bool {
        shape == self.shape
    }

    /// The cards of the coordinates, by the transforms that the tree declares. The first read of the cards finds what they say; only that
    /// reads stored coefficients, from `elements`.
    pub(super) fn cards(&self, snapshot: &Snapshot, elements: Elements<'_>) -> Arc<dyn Source> {
        let node = |id: Option<NodeId>| snapshot.paths()?.tree().node(id?);
        let [y, x] = self.shape;
        let way = Way {
            mosaic: node(self.mosaic).map(|info| mosaic(info).map_err(unsupported)),
            gwcs: node(self.wcs).map(|wcs| {
                let reader = Reader::new(snapshot, elements);
                reader.gwcs(wcs).map_err(unsupported)
            }),
            size: [x, y],
        };
        Arc::new(Made::new(len_u64(SKY_LEN), move || {
            let mut cards = way.cards()?;
            cards.reserve(CARDS.saturating_sub(cards.len()));
            Ok(Arc::new(Memory::new(cards.as_bytes().to_vec())))
        }))
    }
}

/// The projection of a mosaic by its `wcsinfo`, as RAD's `l3_wcsinfo` has it; or why there is none.
fn mosaic(info: Node<'_>) -> Result<Tangent, String> {
    let missing = |key: &str| format!("wcsinfo has no {key}");
    let number = |key| info.get(key).and_then(float).ok_or_else(|| missing(key));
    if info.get("projection").and_then(Node::text) != Some("TAN") {
        return Err("wcsinfo has another projection than TAN".to_owned());
    }
    let scale = number("pixel_scale_ref")?;
    if !(scale > 0.0 && scale <= MAX_SCALE) {
        let why = format!("wcsinfo has a pixel_scale_ref of {scale:?}, not in degrees");
        return Err(why);
    }
    let pixel = [number("x_ref")?, number("y_ref")?];
    let sky = [number("ra_ref")?, number("dec_ref")?];
    if sky[1].abs() > 90.0 {
        return Err("wcsinfo has a dec_ref beyond the pole".to_owned());
    }
    let rows = info.get("rotation_matrix").into_iter();
    let rows: Option<Vec<_>> = rows.flat_map(Node::items).take(3).map(pair).collect();
    let Some([[xx, xy], [yx, yy]]) = rows.as_deref() else {
        return Err(missing("rotation_matrix of two by two"));
    };
    // readers need the inverse of the matrix
    if xx * yy - xy * yx == 0.0 {
        return Err("wcsinfo has a rotation_matrix of no area".to_owned());
    }
    Ok(Tangent {
        pixel,
        sky,
        matrix: [[xx * scale, xy * scale], [yx * scale, yy * scale]],
        degree: 1,
        distortion: Vec::new(),
    })
}

/// A way to the sky, or why it is not known.
struct Way {
    mosaic: Option<Result<Tangent>>,
    gwcs: Option<Result<Gwcs>>,
    /// Of the image, fastest axis first.
    size: [u64; 2],
}

impl Way {
    /// The cards of the coordinates, or a comment that tells why there are none.
    ///
    /// # Errors
    /// [`Error::Io`] if stored coefficients can't be read at the moment.
    fn cards(&self) -> Result<HeaderText> {
        let mut cards = HeaderText::default();
        match self.best() {
            Ok((tangent, frame, note)) => {
                if write(&mut cards, &tangent, frame).is_none() || cards.len() > CARDS {
                    cards = HeaderText::default();
                    cards.comment("no coordinates: numbers that FITS can't hold");
                } else {
                    cards.comment(&note);
                }
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => cards.refusal(&error.to_string()),
        }
        Ok(cards)
    }

    /// The projection to write, its frame, and how good it is.
    fn best(&self) -> Result<(Tangent, Frame, String)> {
        let gwcs = match (&self.gwcs, &self.mosaic) {
            (Some(Ok(gwcs)), _) => gwcs,
            (Some(Err(why)), None) => return Err(why.clone()),
            (_, None) => return Err(unsupported("no wcs")),
            (_, Some(mosaic)) => {
                let tangent = mosaic.clone()?;
                return Ok((tangent, Frame::Icrs, "exact, by meta.wcsinfo".to_owned()));
            }
        };
        let region = Region::of(self.size, gwcs.bounds)?;
        let grid = format!("on {CHECKED} x {CHECKED} pixels");
        // what the tree says is better than a fit to it, if both agree
        if let Some(Ok(mosaic)) = &self.mosaic
            && gwcs.frame == Frame::Icrs
            && let Ok(error) = gwcs.error(mosaic, region)
            && error <= MAX_ERROR
        {
            let note = format!("by meta.wcsinfo, {} px off the gwcs {grid}", above(error));
            return Ok((mosaic.clone(), gwcs.frame, note));
        }
        let (tangent, error) = gwcs.fitted(region)?;
        let degree = tangent.degree;
        if error > MAX_ERROR {
            let why = format!("degree {degree} is {} px off the gwcs", above(error));
            return Err(unsupported(why));
        }
        let error = above(error);
        let note = format!("fit of degree {degree}, {error} px off the gwcs {grid}");
        Ok((tangent, gwcs.frame, note))
    }
}

/// A number with a few digits that is not below this one.
fn above(number: f64) -> String {
    if number > 0.1 {
        // by half of the last digit that is shown
        return format!("{:.2}", number + 0.005);
    }
    // two digits round by a twentieth of the number at most
    format!("{:.1e}", number * 1.05)
}

/// Writes the keywords of a projection. `None` if a number is not finite.
fn write(cards: &mut HeaderText, tangent: &Tangent, frame: Frame) -> Option<()> {
    let (x, y, reference) = match frame {
        Frame::Icrs => ("RA---TAN", "DEC--TAN", Some("ICRS")),
        Frame::Galactic => ("GLON-TAN", "GLAT-TAN", None),
    };
    let is_distorted = !tangent.distortion.is_empty();
    let sip = if is_distorted { "-SIP" } else { "" };
    cards.value("WCSAXES", 2);
    cards.text("CTYPE1", &format!("{x}{sip}"));
    cards.text("CTYPE2", &format!("{y}{sip}"));
    let [longitude, latitude] = tangent.sky;
    let [[xx, xy], [yx, yy]] = tangent.matrix;
    cards.text("CUNIT1", "deg");
    cards.text("CUNIT2", "deg");
    // FITS counts pixels from 1
    for (keyword, number) in [
        ("CRPIX1", tangent.pixel[0] + 1.0),
        ("CRPIX2", tangent.pixel[1] + 1.0),
        ("CRVAL1", longitude.rem_euclid(360.0)),
        ("CRVAL2", latitude),
        ("CD1_1", xx),
        ("CD1_2", xy),
        ("CD2_1", yx),
        ("CD2_2", yy),
    ] {
        cards.value(keyword, real(number)?);
    }
    if let Some(reference) = reference {
        cards.text("RADESYS", reference);
    }
    // A and B move a pixel before the CD matrix (Shupe et al. 2005, equations 1 to 3)
    if is_distorted {
        cards.value("A_ORDER", tangent.degree);
        cards.value("B_ORDER", tangent.degree);
        for ((p, q), [a, b]) in &tangent.distortion {
            cards.value(&format!("A_{p}_{q}"), real(*a)?);
            cards.value(&format!("B_{p}_{q}"), real(*b)?);
        }
    }
    Some(())
}

impl HeaderText {
    /// Adds a comment that tells why there are no coordinates, on as many cards as it needs.
    fn refusal(&mut self, why: &str) {
        let text = printable_ascii(&format!("no coordinates: {why}"));
        // a comment has 72 characters behind its keyword of 8
        for part in text.as_bytes().chunks(CARD.saturating_sub(8)).take(5) {
            self.comment(&String::from_utf8_lossy(part));
        }
    }
}

#[cfg(test)]
mod tests;
