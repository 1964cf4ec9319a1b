//! What pictures are drawn on: coloured points, letters of a font that is part of the program, and PNG files made of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Once;

use ab_glyph::{Font, FontRef, ScaleFont, point};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{BitMapBackend, DrawingArea, IntoDrawingArea, IntoFont, RGBColor};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, TextStyle, register_font};

use super::pixel;
use crate::codec::crc32;
use crate::error::{Error, Result, unsupported};

/// A colour: red, green, blue.
pub(super) type Rgb = [u8; 3];

/// The ground and the letters around what is shown, and lines that help the eye. Both digits of each part are equal: see
/// [`Canvas::settle`].
pub(super) const GROUND: Rgb = [0x11; 3];
pub(super) const LETTERS: Rgb = [0xDD; 3];
pub(super) const FAINT: Rgb = [0x44; 3];

/// DejaVu Sans, as far as Latin, Greek, Cyrillic and what units are written with; its licence is beside it.
const FONT: &[u8] = include_bytes!("DejaVuSans.ttf");
/// What it is called here.
const FONT_NAME: &str = "DejaVu Sans";
/// Colours of a PNG file with a palette.
const PALETTE: usize = 256;
/// The upper bits of each part of a colour that leave few enough colours for it, whatever they are: 64.
const LEAST_BITS: u32 = 2;
/// Bytes of a PNG file with such a palette beside its image data: signature, header, palette, end, and room to fill.
const AROUND: u64 = 4096;
/// What fills a file up to the length that was listed: a chunk that is ancillary, private and safe to copy (PNG, section 5.4).
const FILL: &[u8; 4] = b"fiLl";
/// Bytes of a chunk beside its data; the last one of a file has none.
const CHUNK: usize = 12;

/// Where plotters draws.
pub(super) type Area<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

/// Points that are being drawn, row by row from the top.
pub(super) struct Canvas {
    width: u16,
    height: u16,
    rgb: Vec<u8>,
}

/// The most bytes of a PNG file of that size, which has a palette unless it shows many colours.
pub(super) fn most_bytes((width, height): (u16, u16), many_colours: bool) -> u64 {
    let bytes = if many_colours { 3 } else { 1 };
    // each row has a byte for its filter, and deflate makes 9 bits of 8 at the worst
    let row = u64::from(width).saturating_mul(bytes).saturating_add(1);
    let raw = row.saturating_mul(height.into());
    raw.saturating_add(raw / 8).saturating_add(AROUND)
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for Error {
    fn from(why: DrawingAreaErrorKind<E>) -> Self {
        unsupported(format!("drawing: {why}"))
    }
}

impl Canvas {
    /// One of that width and height.
    pub(super) fn new((width, height): (u16, u16)) -> Self {
        let points = usize::from(width).saturating_mul(height.into());
        Self {
            width,
            height,
            rgb: GROUND.repeat(points),
        }
    }

    pub(super) fn size(&self) -> (u16, u16) {
        (self.width, self.height)
    }

    /// Bytes in a row.
    fn stride(&self) -> usize {
        usize::from(self.width).saturating_mul(3)
    }

    /// Gives a point a colour; a point outside is passed over.
    pub(super) fn set(&mut self, x: u16, y: u16, colour: Rgb) {
        let row = usize::from(y).saturating_mul(self.stride());
        let start = row.saturating_add(usize::from(x).saturating_mul(3));
        let inside = x < self.width;
        let point = self.rgb.get_mut(start..start.saturating_add(3));
        if let Some(point) = point.filter(|_| inside) {
            point.copy_from_slice(&colour);
        }
    }

    /// Fills a rectangle.
    pub(super) fn fill(&mut self, (left, top): (u16, u16), size: (u16, u16), colour: Rgb) {
        for y in top..top.saturating_add(size.1) {
            for x in left..left.saturating_add(size.0) {
                self.set(x, y, colour);
            }
        }
    }

    /// Puts another canvas on it, with its upper left corner at that point.
    pub(super) fn put(&mut self, (left, top): (u16, u16), other: &Self) {
        let rows = other.rgb.chunks_exact(other.stride().max(1));
        for (y, row) in (top..=u16::MAX).zip(rows) {
            for (x, colour) in (left..=u16::MAX).zip(row.as_chunks().0) {
                self.set(x, y, *colour);
            }
        }
    }

    /// All of it, for plotters.
    pub(super) fn area(&mut self) -> Result<Area<'_>> {
        let size = (self.width.into(), self.height.into());
        let canvas = BitMapBackend::with_buffer_and_format(&mut self.rgb, size);
        let canvas = canvas.map_err(|why| unsupported(format!("drawing: {why}")))?;
        Ok(canvas.into_drawing_area())
    }

    /// Writes a text in one line below and to the right of that point. It is cut to the width `room`: words at its end, or if `by_end`
    /// letters at its start.
    pub(super) fn write(
        &mut self,
        at: (u16, u16),
        text: &str,
        (size, room): (u16, u16),
        by_end: bool,
    ) {
        let Ok(font) = FontRef::try_from_slice(FONT) else {
            return;
        };
        let (mut left, mut text) = (text, Cow::from(text));
        while width(&text, size) > f32::from(room) && !left.is_empty() {
            if by_end {
                left = left.get(left.ceil_char_boundary(1)..).unwrap_or_default();
                text = format!("\u{2026}{left}").into();
            } else {
                // of a number a part would be another number
                left = left.rsplit_once(' ').map_or("", |(left, _)| left);
                text = format!("{left} \u{2026}").into();
            }
        }
        let font = font.as_scaled(f32::from(size));
        let mut right = f32::from(at.0);
        for c in text.chars() {
            let place = point(right, f32::from(at.1) + font.ascent());
            let glyph = font
                .glyph_id(c)
                .with_scale_and_position(font.scale(), place);
            right += font.h_advance(glyph.id);
            let Some(outline) = font.outline_glyph(glyph) else {
                continue;
            };
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, coverage| {
                let at = |corner: f32, within: u32| {
                    let corner = u32::try_from(pixel(corner.into())).unwrap_or(0);
                    u16::try_from(corner.saturating_add(within)).unwrap_or(u16::MAX)
                };
                let shade = f64::from(coverage) * f64::from(LETTERS[0]);
                let shade = shade + (1.0 - f64::from(coverage)) * f64::from(GROUND[0]);
                let shade = u8::try_from(pixel(shade)).unwrap_or(LETTERS[0]);
                if coverage > 0.0 {
                    self.set(at(corner.x, x), at(corner.y, y), [shade; 3]);
                }
            });
        }
    }

    /// Rounds colours outside of two rectangles at the top, of those columns and so many rows: a palette then has room for those inside.
    pub(super) fn settle(&mut self, columns: &[Range<u16>; 2], rows: u16) {
        let stride = self.stride().max(1);
        for (y, row) in self.rgb.chunks_exact_mut(stride).enumerate() {
            let points = row.as_chunks_mut::<3>().0;
            for (x, colour) in (0_u16..).zip(points) {
                if y < rows.into() && columns.iter().any(|columns| columns.contains(&x)) {
                    continue;
                }
                // to one of sixteen values, both of whose digits are equal
                *colour = colour.map(|part| part >> 4 | part & 0xF0);
            }
        }
    }

    /// The PNG file. It has a palette if its colours are few; unless they may be many, they become fewer. `len` is how long it is to be.
    pub(super) fn png(&self, many_colours: bool, len: Option<u64>) -> Result<Vec<u8>> {
        let failed = |why: png::EncodingError| unsupported(format!("writing a PNG file: {why}"));
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, self.width.into(), self.height.into());
        encoder.set_depth(png::BitDepth::Eight);
        let indexed = self.indexed(if many_colours { 8 } else { LEAST_BITS });
        let data = if let Some((palette, points)) = &indexed {
            encoder.set_color(png::ColorType::Indexed);
            encoder.set_palette(palette.concat());
            points
        } else {
            encoder.set_color(png::ColorType::Rgb);
            &self.rgb
        };
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(data).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(match len {
            Some(len) => filled(out, len),
            None => out,
        })
    }

    /// At most 256 colours from dark to bright, and which of them each point has, if so many bits of each part of a colour can be kept.
    fn indexed(&self, least_bits: u32) -> Option<(Vec<Rgb>, Vec<u8>)> {
        let (points, _) = self.rgb.as_chunks::<3>();
        for bits in (least_bits..=8).rev() {
            let coarse = |part: u8| part & 0xFF_u8.unbounded_shl(8_u32.saturating_sub(bits));
            let mut known: BTreeMap<Rgb, u8> = BTreeMap::new();
            let is_few = points.iter().all(|point| {
                known.insert(point.map(coarse), 0);
                known.len() <= PALETTE
            });
            if !is_few {
                continue;
            }
            let mut palette: Vec<Rgb> = known.keys().copied().collect();
            palette.sort_by_key(|colour| colour.iter().copied().map(u32::from).sum::<u32>());
            for (index, colour) in (0..=u8::MAX).zip(&palette) {
                known.insert(*colour, index);
            }
            let index = |point: &Rgb| known.get(&point.map(coarse)).copied().unwrap_or(0);
            return Some((palette, points.iter().map(index).collect()));
        }
        None
    }
}

/// How wide a text is in letters of that size.
pub(super) fn width(text: &str, size: u16) -> f32 {
    let Ok(font) = FontRef::try_from_slice(FONT) else {
        return 0.0;
    };
    let font = font.as_scaled(f32::from(size));
    text.chars().map(|c| font.h_advance(font.glyph_id(c))).sum()
}

/// Whether the font has a letter.
pub(super) fn has_letter(c: char) -> bool {
    FontRef::try_from_slice(FONT).is_ok_and(|font| font.glyph_id(c).0 > 0)
}

/// How letters of that size are written.
pub(super) fn letters(size: u16) -> TextStyle<'static> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // what is no font has no letters, which a test would see
        let _ = register_font(FONT_NAME, FontStyle::Normal, FONT);
    });
    let [red, green, blue] = LETTERS;
    TextStyle {
        font: (FONT_NAME, f64::from(size)).into_font(),
        color: plotters::style::Color::to_backend_color(&RGBColor(red, green, blue)),
        pos: Pos::new(HPos::Left, VPos::Top),
    }
}

/// The file, with a chunk in front of its end that makes it so long.
fn filled(mut png: Vec<u8>, len: u64) -> Vec<u8> {
    let around = png.len().saturating_add(CHUNK);
    let data = usize::try_from(len).unwrap_or(0).saturating_sub(around);
    let end = png.split_off(png.len().saturating_sub(CHUNK));
    png.extend(u32::try_from(data).unwrap_or(0).to_be_bytes());
    let start = png.len();
    png.extend(FILL);
    png.resize(png.len().saturating_add(data), 0);
    let sum = crc32(0, png.get(start..).unwrap_or_default());
    png.extend(sum.to_be_bytes());
    png.extend(end);
    png
}
