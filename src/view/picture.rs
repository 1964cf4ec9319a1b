//! Pictures of arrays, to look at: PNG files whose length follows from the shape.
//!
//! Of an array of two axes or more the last two are shown, of the others index 0; row 0 is at the bottom, as astronomers have it. What
//! is larger than the picture is shown by the means of blocks of elements. An array of one axis is a line. Elements are read once and
//! in order, so that the memory that a picture takes depends on its size alone.

mod font;
mod limits;
mod png;

use std::fmt::Write;
use std::sync::Arc;

use crate::asdf::Snapshot;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::numbers::{MOST_READ, each_chunk, each_number};
use crate::codec::Cache;
use crate::error::{Error, Place, Result, percent_encoded};
use crate::source::Source;

pub use limits::{Curve, GreyLimits};

/// Points of the longer side of a picture that a small array is enlarged to, and of the shorter side of a long one.
const ENLARGED: u16 = 256;
const SHORT: u64 = 64;
/// Pictures of fewer points have no caption.
const LEAST_WITH_CAPTION: u16 = 128;
/// Lines of the caption, the space around them, and rows of points in all.
const LINES: u16 = 3;
const MARGIN: u16 = 2;
const CAPTION: u16 = LINES * font::LINE + 2 * MARGIN;
/// The widest picture of a line.
const WIDEST_LINE: u16 = 640;

/// The brightest grey; what follows stands for no number, for the ground and letters of the caption, and for a line.
const WHITE: u8 = 251;
const NOTHING: u8 = 252;
const GROUND: u8 = 253;
const LETTER: u8 = 254;
const LINE: u8 = 255;

/// The fewest and the most points that the longer side of a picture may be given.
pub const SIZES: std::ops::RangeInclusive<u16> = 16..=2048;

/// How pictures are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// Most points of the longer side, with the caption; among [`SIZES`].
    pub size: u16,
    /// Which values are black and white.
    pub limits: GreyLimits,
    /// How those between become grey.
    pub curve: Curve,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            // so that a plane of 2048 columns and rows, as detectors have, is halved
            size: 1024 + CAPTION,
            limits: GreyLimits::Zscale,
            curve: Curve::Linear,
        }
    }
}

/// What of an array is shown.
#[derive(Debug, Clone, Copy)]
enum Shown {
    /// So many columns and rows, in blocks of so many columns and rows.
    Plane {
        columns: u64,
        rows: u64,
        block: (u64, u64),
    },
    /// So many elements.
    Line(u64),
}

/// A picture of an array that can be drawn.
pub struct Picture {
    shown: Shown,
    scalar: Scalar,
    order: ByteOrder,
    style: Style,
    cache: Arc<Cache>,
    /// The path of the array; its type and shape.
    caption: [String; 2],
    /// Points in a row and rows of the array's part, without the enlargement.
    points: (u16, u16),
    /// Points for each of these, in either direction.
    enlarged: u16,
}

impl Snapshot {
    /// The picture of array `i`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has no axis, no elements, or such that are no numbers; [`Array::problem`](crate::asdf::Array::problem).
    pub fn picture(&self, i: usize, style: Style) -> Result<Picture> {
        let array = self.array(i)?;
        let refuse = |why: &str| {
            let at = Place::Array(array.brief_path());
            Err(Error::unsupported(at, why))
        };
        let (Some(Datatype::Scalar(scalar, order)), Some(shape)) =
            (array.datatype(), array.shape())
        else {
            return refuse("pictures are of numbers");
        };
        if shape.contains(&0) {
            return refuse("an array without elements has no picture");
        }
        let plane = shape.iter().rev().take(2).copied();
        let size = u64::from(scalar.size());
        if plane.fold(size, u64::saturating_mul) > MOST_READ {
            return refuse("an array of more than 2^40 bytes has no picture");
        }
        let shown = match *shape {
            [] => return refuse("a single number has no picture"),
            [count] => Shown::Line(count),
            [.., rows, columns] => Shown::plane(columns, rows, style.size),
        };
        let mut kind = format!("{} {shape:?}", scalar.name());
        if shape.len() > 2 {
            kind.push_str(" index 0");
        }
        if let Some(unit) = array.unit() {
            // writing to a string can't fail
            let _ = write!(kind, " {unit}");
        }
        let points = shown.points(style.size);
        let times = |points: u16, room: u16| ENLARGED.min(room).checked_div(points).unwrap_or(1);
        let room = room(style.size);
        Ok(Picture {
            shown,
            scalar: *scalar,
            order: *order,
            style,
            cache: Arc::clone(self.cache()),
            caption: [array.brief_path(), kind].map(|line| in_letters(&line)),
            points,
            enlarged: match shown {
                Shown::Plane { .. } => {
                    let times = times(points.0, room.0).min(times(points.1, room.1));
                    times.max(1)
                }
                Shown::Line(_) => 1,
            },
        })
    }
}

/// A text in the letters that there are: what is not printable ASCII is percent-encoded, as in the names of files.
fn in_letters(text: &str) -> String {
    percent_encoded(text, |c| !matches!(c, ' '..='~'))
}

/// Rows of the caption in a picture of that size.
fn caption(size: u16) -> u16 {
    if size < LEAST_WITH_CAPTION {
        0
    } else {
        CAPTION
    }
}

/// The most columns and rows of points that a picture of that size has for the array.
fn room(size: u16) -> (u16, u16) {
    (size, size.saturating_sub(caption(size)))
}

impl Shown {
    /// A plane in blocks so large that a picture of that size holds it. A side that would become very short has smaller ones.
    fn plane(columns: u64, rows: u64, size: u16) -> Self {
        let room = room(size);
        let whole = columns
            .div_ceil(room.0.into())
            .max(rows.div_ceil(room.1.into()));
        let short = SHORT.min(size.into());
        let block = |len: u64| whole.min(len.div_ceil(short)).max(1);
        Self::Plane {
            columns,
            rows,
            block: (block(columns), block(rows)),
        }
    }

    /// Points in a row, and rows.
    fn points(self, size: u16) -> (u16, u16) {
        let most = |points: u64, room: u16| u16::try_from(points).unwrap_or(room).min(room);
        let room = room(size);
        match self {
            Self::Plane {
                columns,
                rows,
                block,
            } => (
                most(columns.div_ceil(block.0), room.0),
                most(rows.div_ceil(block.1), room.1),
            ),
            Self::Line(_) => {
                let width = size.min(WIDEST_LINE);
                (width, width / 2)
            }
        }
    }
}

impl Picture {
    /// The path of the array, and its type and shape, as they are under the picture.
    #[must_use]
    pub fn caption(&self) -> &[String; 2] {
        &self.caption
    }

    fn has_caption(&self) -> bool {
        caption(self.style.size) > 0
    }

    /// Points of the part that shows the array.
    fn sides(&self) -> (u16, u16) {
        let side = |points: u16| points.saturating_mul(self.enlarged);
        (side(self.points.0), side(self.points.1))
    }

    /// Width and height.
    fn size(&self) -> (u16, u16) {
        let (width, height) = self.sides();
        if !self.has_caption() {
            return (width, height);
        }
        (
            width.max(ENLARGED.min(self.style.size)),
            height.saturating_add(CAPTION),
        )
    }

    /// Bytes of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        let (width, height) = self.size();
        png::len(width, height)
    }

    /// Whether there are no bytes: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The PNG file of these elements, in C order.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn draw(&self, elements: &dyn Source) -> Result<Vec<u8>> {
        let (width, height) = self.size();
        let mut canvas = Canvas {
            width,
            pixels: vec![GROUND; usize::from(width).saturating_mul(usize::from(height))],
        };
        let limits = match self.shown {
            Shown::Plane {
                columns,
                rows,
                block,
            } => {
                let mut means = Means::new(self.points.0, columns, rows, block);
                self.read(elements, columns.saturating_mul(rows), &mut |number| {
                    means.take(number);
                })?;
                let limits = self.style.limits.of(&means.done);
                self.draw_plane(&mut canvas, &means.done, limits.unwrap_or_default());
                limits
            }
            Shown::Line(count) => {
                let mut ranges = Ranges::new(self.points.0, count);
                self.read(elements, count, &mut |number| ranges.take(number))?;
                let limits = ranges.limits();
                self.draw_line(&mut canvas, &ranges.done, limits.unwrap_or_default());
                limits
            }
        };
        if self.has_caption() {
            self.draw_caption(&mut canvas, limits);
        }
        Ok(png::file(width, &canvas.pixels, &palette()))
    }

    /// Calls `each` with the first `count` elements.
    fn read(&self, elements: &dyn Source, count: u64, each: &mut impl FnMut(f64)) -> Result<()> {
        let len = count.saturating_mul(self.scalar.size().into());
        each_chunk(&self.cache, elements, len, &mut |bytes| {
            each_number(self.scalar, self.order, bytes, each);
        })
    }

    /// Draws the means, row 0 at the bottom.
    fn draw_plane(&self, canvas: &mut Canvas, means: &[f64], limits: (f64, f64)) {
        let (_, height) = self.sides();
        let rows = means.chunks(usize::from(self.points.0.max(1)));
        for (row, means) in (0_u16..).zip(rows) {
            let low = row.saturating_add(1).saturating_mul(self.enlarged);
            let top = height.saturating_sub(low);
            for (column, mean) in (0_u16..).zip(means) {
                let grey = if mean.is_nan() {
                    NOTHING
                } else {
                    grey(self.style.curve.brightness(*mean, limits))
                };
                let left = column.saturating_mul(self.enlarged);
                for y in top..top.saturating_add(self.enlarged) {
                    for x in left..left.saturating_add(self.enlarged) {
                        canvas.set(x, y, grey);
                    }
                }
            }
        }
    }

    /// Draws a line through the ranges of values.
    fn draw_line(&self, canvas: &mut Canvas, ranges: &[Option<(f64, f64)>], limits: (f64, f64)) {
        let (width, height) = self.sides();
        for y in 0..height {
            (0..width).for_each(|x| canvas.set(x, y, 0));
        }
        let lowest = f64::from(height.saturating_sub(1));
        let y = |value: f64| {
            let down = 1.0 - Curve::Linear.brightness(value, limits);
            whole(down * lowest)
        };
        let gaps = f64::from(u32::try_from(ranges.len().saturating_sub(1)).unwrap_or(u32::MAX));
        let last = f64::from(width.saturating_sub(1));
        let x = |i: u32| match gaps {
            0.0 => whole(last / 2.0),
            gaps => whole(f64::from(i) * last / gaps),
        };
        let mut before: Option<(u16, u16)> = None;
        for (i, range) in (0_u32..).zip(ranges) {
            let Some((low, high)) = range else {
                before = None;
                continue;
            };
            let (x, top, bottom) = (x(i), y(*high), y(*low));
            (top..=bottom).for_each(|y| canvas.set(x, y, LINE));
            let middle = (x, top.midpoint(bottom));
            if let Some(before) = before {
                canvas.line(before, middle);
            }
            before = Some(middle);
        }
    }

    /// Writes path, type and limits in three lines below the array's part. Lines that are too long lose their beginning.
    fn draw_caption(&self, canvas: &mut Canvas, limits: Option<(f64, f64)>) {
        let third = match (limits, self.shown) {
            (None, _) => "no finite values".to_owned(),
            (Some((low, high)), Shown::Line(_)) => format!("{} .. {}", short(low), short(high)),
            (Some((low, high)), Shown::Plane { .. }) => {
                let (limits, curve) = (self.style.limits.name(), self.style.curve.name());
                format!("{} .. {} {limits} {curve}", short(low), short(high))
            }
        };
        let room = usize::from(canvas.width.saturating_sub(MARGIN) / font::ADVANCE);
        let [path, kind] = &self.caption;
        let mut top = self.sides().1.saturating_add(MARGIN);
        for text in [path, kind, &third] {
            // of a long path the end says more
            let len = text.chars().count();
            let text: String = text.chars().skip(len.saturating_sub(room)).collect();
            canvas.write(MARGIN, top, &text);
            top = top.saturating_add(font::LINE);
        }
    }
}

/// Points that are being drawn, from the top.
struct Canvas {
    width: u16,
    /// One byte for each, an index into the palette, row by row.
    pixels: Vec<u8>,
}

impl Canvas {
    /// Gives a point a colour; a point outside is passed over.
    fn set(&mut self, x: u16, y: u16, colour: u8) {
        let row = usize::from(y).saturating_mul(usize::from(self.width));
        let pixel = self.pixels.get_mut(row.saturating_add(x.into()));
        if let Some(pixel) = pixel.filter(|_| x < self.width) {
            *pixel = colour;
        }
    }

    /// Draws from one point to another on the right of it.
    fn line(&mut self, from: (u16, u16), to: (u16, u16)) {
        let width = f64::from(to.0.saturating_sub(from.0).max(1));
        let mut before = from.1;
        for x in from.0..=to.0 {
            let part = f64::from(x.saturating_sub(from.0)) / width;
            let y = whole(f64::from(from.1) + part * (f64::from(to.1) - f64::from(from.1)));
            (before.min(y)..=before.max(y)).for_each(|y| self.set(x, y, LINE));
            before = y;
        }
    }

    /// Writes a text whose upper left corner is at that point, in one line.
    fn write(&mut self, left: u16, top: u16, text: &str) {
        let lefts = (0_u16..).map(|n| left.saturating_add(n.saturating_mul(font::ADVANCE)));
        for (left, character) in lefts.zip(text.chars()) {
            for (column, bits) in (0_u16..).zip(font::columns(character)) {
                for row in (0_u16..8).filter(|row| bits >> row & 1 == 1) {
                    self.set(left.saturating_add(column), top.saturating_add(row), LETTER);
                }
            }
        }
    }
}

/// The means of the blocks of a plane, whose elements come in order.
struct Means {
    block: (u64, u64),
    columns: u64,
    rows: u64,
    /// Of the row of blocks that is being read: the sums of the finite elements, and how many they are: so many that a whole
    /// number of 32 bits has no room for them.
    sums: Vec<(f64, f64)>,
    /// The column and the row of the next element, the block it is in, and how many columns of that are left.
    at: (u64, u64),
    column: usize,
    left: u64,
    /// The means of the rows of blocks that are done; NaN for a block without a finite element.
    done: Vec<f64>,
}

impl Means {
    /// No means yet, of a plane in `points` blocks a row.
    fn new(points: u16, columns: u64, rows: u64, block: (u64, u64)) -> Self {
        Self {
            block,
            columns,
            rows,
            sums: vec![(0.0, 0.0); points.into()],
            at: (0, 0),
            column: 0,
            left: block.0,
            done: Vec::new(),
        }
    }

    /// Takes the next element; one that is not finite counts for nothing.
    fn take(&mut self, number: f64) {
        if number.is_finite()
            && let Some((sum, count)) = self.sums.get_mut(self.column)
        {
            *sum += number;
            *count += 1.0;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.column = self.column.saturating_add(1);
            self.left = self.block.0;
        }
        self.at.0 = self.at.0.saturating_add(1);
        if self.at.0 >= self.columns {
            self.end_row();
        }
    }

    /// Goes on to the next row of elements. Behind the last one of a row of blocks their means are done.
    fn end_row(&mut self) {
        (self.column, self.left) = (0, self.block.0);
        self.at = (0, self.at.1.saturating_add(1));
        let inside = self.at.1.checked_rem(self.block.1).unwrap_or(0);
        if inside == 0 || self.at.1 == self.rows {
            // without a finite element, 0 / 0 is what stands for none
            let means = self.sums.iter().map(|(sum, count)| sum / count);
            self.done.extend(means);
            self.sums.fill((0.0, 0.0));
        }
    }
}

/// The smallest and the largest value of each part of a line, whose elements come in order.
struct Ranges {
    /// Parts, and elements in all.
    parts: u64,
    count: u64,
    at: u64,
    done: Vec<Option<(f64, f64)>>,
}

impl Ranges {
    /// No ranges yet: one for each point, or for each of `count` elements if these are fewer.
    fn new(points: u16, count: u64) -> Self {
        let parts = count.min(points.into());
        Self {
            parts,
            count,
            at: 0,
            done: vec![None; usize::try_from(parts).unwrap_or(0)],
        }
    }

    /// Takes the next element, for the part that it is in; one that is not finite counts for nothing.
    fn take(&mut self, number: f64) {
        let part = u128::from(self.at)
            .saturating_mul(self.parts.into())
            .checked_div(self.count.into());
        self.at = self.at.saturating_add(1);
        let part = part.and_then(|part| usize::try_from(part).ok());
        let range = part.and_then(|part| self.done.get_mut(part));
        if let Some(range) = range.filter(|_| number.is_finite()) {
            let (low, high) = range.unwrap_or((number, number));
            *range = Some((low.min(number), high.max(number)));
        }
    }

    /// The smallest and the largest value of all.
    fn limits(&self) -> Option<(f64, f64)> {
        let ranges = self.done.iter().flatten().copied();
        ranges.reduce(|all, range| (all.0.min(range.0), all.1.max(range.1)))
    }
}

/// Greys, then the colours that are none.
fn palette() -> [[u8; 3]; 256] {
    let mut palette = [[0; 3]; 256];
    for (grey, colour) in (0..=WHITE).zip(&mut palette) {
        *colour = [whole_byte(f64::from(grey) / f64::from(WHITE) * 255.0); 3];
    }
    for (at, colour) in [
        (NOTHING, [0x20, 0x40, 0x80]),
        (GROUND, [0x18, 0x18, 0x18]),
        (LETTER, [0xE0, 0xE0, 0xE0]),
        (LINE, [0xFF, 0xB0, 0x20]),
    ] {
        if let Some(entry) = palette.get_mut(usize::from(at)) {
            *entry = colour;
        }
    }
    palette
}

/// The grey of a brightness from 0 to 1.
fn grey(brightness: f64) -> u8 {
    whole_byte(brightness * f64::from(WHITE))
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates"
)]
fn whole_byte(number: f64) -> u8 {
    number.round() as u8
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates"
)]
fn whole(number: f64) -> u16 {
    number.round() as u16
}

/// A number in few characters.
fn short(number: f64) -> String {
    if number.abs() >= 1e6 || (number != 0.0 && number.abs() < 1e-3) {
        return format!("{number:.4e}");
    }
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
