//! Pictures of arrays, to look at: PNG files of a length that follows from the shape.
//!
//! Of an array of two axes or more a plane of the last two is shown; row 0 is at the bottom, as astronomers have it. What is larger than
//! the picture is shown by the means of blocks of elements. A last axis of three or four is colours. Truth values and unsigned integers
//! that are called so, or have single high bits, are flags, and each bit of them has a colour. An array of one axis is a line. Elements are
//! read once and in order, so that the memory that a picture takes depends on its size alone.

mod canvas;
mod flags;
mod limits;
mod line;
mod numbers;
mod plane;
mod read;
mod sheet;

use std::iter;
use std::sync::Arc;

use super::{Elements, MAX_BESIDE, array_at, product, shown_as, whole};
use crate::asdf::datatype::{Datatype, Scalar};
use crate::asdf::numbers::MOST_READ;
use crate::asdf::tree::Node;
use crate::asdf::{Array, Snapshot};
use crate::codec::Cache;
use crate::error::{Error, Place, Result, percent_encoded};
use crate::source::{Made, Memory, Source};

use canvas::{Canvas, most_bytes};
use read::{Grid, Numbers, Reader};

pub use limits::{Curve, GreyLimits};
pub(super) use numbers::short;
pub(crate) use sheet::{Sheet, best};

/// Points of the longer side that a small array is enlarged to, and of the shorter side of a long one.
const ENLARGED: u16 = 480;
const SHORT: u64 = 64;
/// Fewer rows, or columns, are so many points high, or wide, or an eighth of the picture.
const FEW: u64 = 16;
const BAND: u16 = 96;
/// Pictures of fewer points have no caption, and such of fewer no bar at their side.
const LEAST_WITH_CAPTION: u16 = 128;
const LEAST_WITH_BAR: u16 = 256;
/// The narrowest picture with a caption, in sizes of its letters.
const NARROWEST: u16 = 26;
/// Sizes of letters in pictures of fewer points than this, and in larger ones.
const FONTS: [(u16, u16); 2] = [(320, 11), (700, 14)];
const LARGE_FONT: u16 = 20;
/// The longer side of a picture, so that a plane of 2048 columns and rows, as detectors have, is halved.
const DEFAULT: u16 = 1024 + bar(LARGE_FONT);
/// The widest picture of a line.
const WIDEST_LINE: u16 = 960;
/// The most bytes of an array that are read for a picture of it alone.
const MOST: u64 = 2 << 30;
/// What an array is called that has the places of the elements of those beside it.
const PLACES: [&str; 8] = [
    "wavelength",
    "wavelengths",
    "wave",
    "lambda",
    "time",
    "times",
    "frequency",
    "energy",
];
/// What the caption says of an array without any.
const NO_VALUES: &str = "no finite values";

/// The fewest and the most points that the longer side of a picture may be given.
pub const SIZES: std::ops::RangeInclusive<u16> = 16..=2048;

/// How numbers between black and white are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are called so everywhere")]
pub enum Colours {
    Grey,
    Inferno,
    Viridis,
    Cubehelix,
}

/// How pictures are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// Most points of the longer side, with all that is around the array; among [`SIZES`].
    pub size: u16,
    /// Which values are black and white.
    pub limits: GreyLimits,
    /// How those between become bright; if it is not said, as suits the limits.
    pub curve: Option<Curve>,
    /// What colours brightness has.
    pub colours: Colours,
    /// The most bytes that are read, as far as that is possible: more elements than they hold are sampled.
    pub most: u64,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            size: DEFAULT,
            limits: GreyLimits::Auto,
            curve: None,
            colours: Colours::Grey,
            most: MOST,
        }
    }
}

/// What of an array is shown.
#[derive(Debug, Clone, Copy)]
enum Shown {
    /// A plane with so many numbers for each element: colours, or numbers or flags if it has one, or if this one is shown alone.
    Plane(Grid, u64, Option<u64>),
    /// So many elements.
    Line(u64),
}

impl Shown {
    /// Whether it is a plane of colours.
    fn has_colours(self) -> bool {
        matches!(self, Self::Plane(_, 2.., None))
    }
}

/// A picture of an array that can be drawn.
pub(crate) struct Picture {
    values: Numbers,
    shown: Shown,
    style: Style,
    cache: Arc<Cache>,
    /// The number of its first element.
    first: u64,
    /// The path of the array, and its type and shape, as they are under the picture.
    pub(crate) caption: [String; 2],
    /// What it is called, without its path, and the unit of its values.
    name: String,
    unit: Option<String>,
    /// The array that has the places of the elements of a line; what it is called, and its unit.
    places: Option<(Numbers, String)>,
    /// Points of the part that shows the array, and the size of letters.
    sides: (u16, u16),
    font: u16,
}

/// The values of an array, and the places of the elements of a line.
type Readers = (Reader, Option<Reader>);

impl Snapshot {
    /// The picture of array `i`: of the plane at these indices of its first axes, or else of the first plane.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it has no axis, no elements, such that are no numbers, or no such plane; [`Array::problem`].
    pub(crate) fn picture(&self, i: usize, plane: &[u64], style: Style) -> Result<Picture> {
        let array = self.array(i)?;
        let refuse = |why: &str| Error::unsupported(Place::Array(array.brief_path()), why);
        let Some((values, shape)) = Numbers::of(i, array).zip(array.shape()) else {
            return Err(refuse("pictures are of numbers"));
        };
        if shape.contains(&0) {
            return Err(refuse("an array without elements has no picture"));
        }
        let (first_axes, shown) = shown(shape, values.scalar, style.size);
        let shown = shown.ok_or_else(|| refuse("a single number has no picture"))?;
        let (mut shown, mut axes, mut alone) = (shown, first_axes.to_vec(), 1);
        if let Shown::Plane(_, channels @ 2.., one) = &mut shown
            && let Some(index) = plane.get(axes.len())
        {
            axes.push(*channels);
            (*one, alone) = (Some(*index), *channels);
        }
        let of_plane = shape.get(first_axes.len()..).and_then(product);
        let of_plane = of_plane.unwrap_or(u64::MAX);
        if values.bytes(of_plane) > MOST_READ {
            return Err(refuse("an array of more than 2^40 bytes has no picture"));
        }
        let (number, index) = plane_at(&axes, plane).map_err(|why| refuse(&why))?;
        let number = number.checked_div(alone).unwrap_or(0);
        let mut kind = format!("{} {shape:?}", values.scalar.name());
        if !index.is_empty() {
            kind = format!("{kind} index {index:?}");
        }
        let path = array.path();
        let last = path.rsplit('/').next().unwrap_or_default();
        let name = self.name_of(array).unwrap_or_else(|| last.to_owned());
        // a short block can pretend to be an array of terabytes: of such a one single elements are read
        let endless = self.repeats_endlessly(array);
        let sides = sides(&shown, style.size);
        Ok(Picture {
            values,
            style: Style {
                most: if endless { 0 } else { style.most },
                ..style
            },
            cache: Arc::clone(self.cache()),
            first: number.saturating_mul(of_plane),
            caption: [array.brief_path(), kind].map(|line| in_letters(&line)),
            name: in_letters(&name),
            unit: array.unit().map(in_letters),
            places: match shown {
                Shown::Line(count) => self.places_beside(array, count),
                Shown::Plane(..) => None,
            },
            sides,
            // a small picture in a large frame has small letters
            font: font(style.size.min(sides.0.max(sides.1))),
            shown,
        })
    }

    /// How many planes each of the first axes of array `i` has; none if its picture shows all of it.
    pub(crate) fn planes(&self, i: usize) -> &[u64] {
        let array = self.array(i).ok();
        let known = array.and_then(|array| Some((array.shape()?, array.datatype()?)));
        match known {
            Some((shape, Datatype::Scalar(scalar, _))) => shown(shape, *scalar, 16).0,
            _ => &[],
        }
    }

    /// What an array is called: the name of its column, or else its last key that is not that of the value of a quantity.
    fn name_of(&self, array: &Array) -> Option<String> {
        let paths = self.paths()?;
        let around = paths.node(paths.parent(array.home()));
        let around = around.filter(|around| around.is_within(MAX_BESIDE))?;
        let key = |place| paths.steps(place).pop().map(String::from);
        match key(array.home())? {
            // the data of a table's column
            data if data == "data" => around.get("name")?.text().map(str::to_owned),
            _ => key(shown_as(paths, array)),
        }
    }

    /// The array in the same mapping that says where the elements of an array of one axis are, and what it is called, with its unit.
    fn places_beside(&self, array: &Array, count: u64) -> Option<(Numbers, String)> {
        let paths = self.paths()?;
        let around = paths.node(paths.parent(shown_as(paths, array)));
        let around = around.filter(|it| it.is_within(MAX_BESIDE))?;
        PLACES.iter().find_map(|name| {
            let node = around.get(name)?.follow();
            let found = |node: Node<'_>| {
                let i = array_at(paths, node)?;
                let other = self.array(i).ok()?;
                let numbers = Numbers::of(i, other)?;
                let unit = other.unit().map(|unit| format!(" ({unit})"));
                let label = format!("{name}{}", unit.unwrap_or_default());
                let fits = other.shape() == Some(&[count]) && other.home() != array.home();
                fits.then(|| (numbers, in_letters(&label)))
            };
            found(node).or_else(|| found(node.get("value")?.follow()))
        })
    }
}

/// The first axes of a shape, which choose what is shown, and what that is; none of a single number.
fn shown(shape: &[u64], scalar: Scalar, size: u16) -> (&[u64], Option<Shown>) {
    let is_colour = |channels: u64| matches!(channels, 3 | 4) && matches!(scalar.kind(), 'u' | 'f');
    match shape {
        [] => (&[], None),
        [count] => (&[], Some(Shown::Line(*count))),
        [first @ .., rows, columns, channels]
            if is_colour(*channels) && rows.min(columns) > channels =>
        {
            let grid = Grid::of((*columns, *rows), size);
            (first, Some(Shown::Plane(grid, *channels, None)))
        }
        [first @ .., 1, count] | [first @ .., count, 1] if *count > 1 => {
            (first, Some(Shown::Line(*count)))
        }
        [first @ .., rows, columns] => {
            let grid = Grid::of((*columns, *rows), size);
            (first, Some(Shown::Plane(grid, 1, None)))
        }
    }
}

/// The number of the plane at these indices of the first axes, and all its indices: those that are not given are 0.
fn plane_at(axes: &[u64], plane: &[u64]) -> std::result::Result<(u64, Vec<u64>), String> {
    if plane.len() > axes.len() {
        let count = axes.len();
        return Err(format!("it has {count} axes to choose planes of"));
    }
    let mut indices = plane.to_vec();
    indices.resize(axes.len(), 0);
    let mut number = 0_u64;
    for (index, len) in indices.iter().zip(axes) {
        if index >= len {
            let last = len.saturating_sub(1);
            return Err(format!("its planes are 0 to {last}"));
        }
        number = number.saturating_mul(*len).saturating_add(*index);
    }
    Ok((number, indices))
}

/// A text in the letters that there are: what the font does not have is percent-encoded, as in the names of files.
fn in_letters(text: &str) -> String {
    percent_encoded(text, |c| !canvas::has_letter(c))
}

/// The size of letters in a picture of so many points.
fn font(size: u16) -> u16 {
    let found = FONTS.iter().find(|(below, _)| size < *below);
    found.map_or(LARGE_FONT, |(_, font)| *font)
}

/// Columns of a bar, or a legend, with letters of that size.
const fn bar(font: u16) -> u16 {
    font.saturating_mul(7)
}

/// Columns of the bar and rows of the caption in a picture of that size, with letters of that size.
fn around(size: u16, font: u16) -> (u16, u16) {
    let from = |least: u16, part: u16| if size < least { 0 } else { part };
    // two lines, and points between them and around
    let caption = font.saturating_mul(2).saturating_add(6);
    let bar = from(LEAST_WITH_BAR, bar(font));
    (bar, from(LEAST_WITH_CAPTION, caption))
}

/// The most columns and rows of points that a picture of that size has for the array itself.
fn room(size: u16) -> (u16, u16) {
    let (bar, caption) = around(size, font(size));
    (size.saturating_sub(bar), size.saturating_sub(caption))
}

/// Points of the part of a picture of that size that shows the array. A small plane is enlarged; few rows, or columns, are bands that can
/// be seen.
fn sides(shown: &Shown, size: u16) -> (u16, u16) {
    let Shown::Plane(grid, ..) = shown else {
        let width = size.min(WIDEST_LINE);
        return (width, width / 2);
    };
    let (room, (width, height)) = (room(size), grid.points);
    let times = |room: u16, points: u16| room.checked_div(points).unwrap_or(1);
    let most = times(room.0, width).min(times(room.1, height));
    let wanted = ENLARGED.div_ceil(width.max(height).max(1));
    let all = wanted.min(most).max(1);
    let extent = |len: u64, room: u16, points: u16| {
        let least = if len < FEW { BAND.min(size / 8) } else { 1 };
        let band = least.div_ceil(points.max(1));
        points.saturating_mul(band.min(times(room, points)).max(all))
    };
    let (columns, rows) = grid.sides;
    (extent(columns, room.0, width), extent(rows, room.1, height))
}

impl Grid {
    /// A plane in blocks so large that a picture of that size holds it. A side that would become very short has smaller ones.
    fn of((columns, rows): (u64, u64), size: u16) -> Self {
        let room = room(size);
        let whole = columns
            .div_ceil(room.0.into())
            .max(rows.div_ceil(room.1.into()));
        let short = SHORT.min(size.into());
        // a plane of five rows and thousands of columns would else be one point high
        let block = |len: u64| whole.min(len.div_ceil(short)).max(1);
        let block = (block(columns), block(rows));
        let most = |points: u64, room: u16| u16::try_from(points).unwrap_or(room).min(room);
        Self {
            sides: (columns, rows),
            block,
            points: (
                most(columns.div_ceil(block.0), room.0),
                most(rows.div_ceil(block.1), room.1),
            ),
        }
    }
}

impl Picture {
    /// The same picture with a name in front of the path.
    pub(crate) fn of_file(mut self, name: &str) -> Self {
        let [path, _] = &mut self.caption;
        *path = format!("{}: {path}", in_letters(name));
        self
    }

    /// The arrays whose elements it shows.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = usize> {
        let places = self.places.as_ref().map(|(places, _)| places.array);
        iter::once(self.values.array).chain(places)
    }

    /// Columns of the bar, and rows of the caption.
    fn around(&self) -> (u16, u16) {
        let (bar, caption) = around(self.style.size, self.font);
        let has_bar = matches!(self.shown, Shown::Plane(..)) && !self.shown.has_colours();
        (if has_bar { bar } else { 0 }, caption)
    }

    /// Width and height.
    fn size(&self) -> (u16, u16) {
        let ((width, height), (bar, caption)) = (self.sides, self.around());
        let mut width = width.saturating_add(bar);
        if caption > 0 {
            let narrowest = self.font.saturating_mul(NARROWEST);
            width = width.max(narrowest.min(self.style.size));
        }
        (width, height.saturating_add(caption))
    }

    /// Bytes of the file in a mount, which follow from the shape.
    pub(crate) fn file_len(&self) -> u64 {
        most_bytes(self.size(), self.shown.has_colours())
    }

    /// About how many bytes the PNG file has at most: few of a line, and one or three for each point of noise.
    pub(crate) fn likely_len(&self) -> u64 {
        let size = match self.shown {
            Shown::Plane(grid, ..) => grid.points,
            Shown::Line(_) => (1, 1),
        };
        most_bytes(size, self.shown.has_colours())
    }

    /// The PNG file, as short as it comes, drawn now; and whether it shows flags.
    ///
    /// # Errors
    /// Those of opening and reading the elements.
    pub(crate) fn draw(&self, elements: Elements<'_>) -> Result<(Vec<u8>, bool)> {
        let (canvas, are_flags) = self.canvas(&self.opened(elements)?)?;
        Ok((canvas.png(self.shown.has_colours(), None)?, are_flags))
    }

    /// The PNG file of [`Picture::file_len`] bytes, drawn when it is first read.
    ///
    /// # Errors
    /// Those of opening the elements.
    pub(crate) fn open(self, elements: Elements<'_>) -> Result<Arc<dyn Source>> {
        let (len, opened) = (self.file_len(), self.opened(elements)?);
        Ok(Arc::new(Made::new(len, move || {
            let (canvas, _) = self.canvas(&opened)?;
            let file = canvas.png(self.shown.has_colours(), Some(len))?;
            Ok(Arc::new(Memory::new(file)))
        })))
    }

    fn opened(&self, elements: Elements<'_>) -> Result<Readers> {
        let places = self.places.as_ref();
        let places = places.map(|(places, _)| places.open(&self.cache, elements));
        let values = self.values.open(&self.cache, elements)?;
        Ok((values, places.transpose()?))
    }

    /// Draws it. Tells whether it shows flags.
    fn canvas(&self, opened: &Readers) -> Result<(Canvas, bool)> {
        let mut canvas = Canvas::new(self.size());
        let (third, are_flags) = match self.shown {
            Shown::Plane(grid, channels, None) if self.shown.has_colours() => {
                let words = self.draw_colours(&mut canvas, &opened.0, grid, channels)?;
                (words, false)
            }
            Shown::Plane(grid, channels, alone) => {
                let channel = (alone.unwrap_or(0), channels);
                self.draw_plane(&mut canvas, &opened.0, grid, channel)?
            }
            Shown::Line(count) => (self.draw_line(&mut canvas, opened, count)?, false),
        };
        self.draw_caption(&mut canvas, &third);
        if !matches!(self.shown, Shown::Line(_)) {
            // the plane and its bar keep their colours; letters around them have more shades than a palette has room for
            let ((width, height), font) = (self.sides, self.font);
            let bar = width.saturating_add(font / 2);
            canvas.settle(&[0..width, bar..bar.saturating_add(font)], height);
        }
        Ok((canvas, are_flags))
    }

    /// Writes the caption, with these words at its end.
    fn draw_caption(&self, canvas: &mut Canvas, words: &str) {
        let (_, rows) = self.around();
        if rows == 0 {
            return;
        }
        let ([path, kind], font) = (&self.caption, self.font);
        let unit = self.unit.as_ref().map(|unit| format!(" {unit}"));
        let second = format!("{kind}{} \u{b7} {words}", unit.unwrap_or_default());
        let room = canvas.size().0.saturating_sub(font);
        let mut top = self.sides.1.saturating_add(3);
        for (text, by_end) in [(path, true), (&second, false)] {
            canvas.write((font / 2, top), text, (font, room), by_end);
            top = top.saturating_add(font).saturating_add(2);
        }
    }
}

/// The point on a canvas that is nearest to a place.
fn pixel(number: f64) -> i32 {
    i32::try_from(whole(number.round())).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
