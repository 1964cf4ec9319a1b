//! Contact sheets: many pictures side by side.

use std::collections::HashSet;

use super::canvas::Canvas;
use super::{Picture, Shown, Style, in_letters};
use crate::asdf::Snapshot;
use crate::error::Result;
use crate::view::Elements;

/// The most pictures of a sheet.
const MOST_CELLS: usize = 64;
/// The most bytes of an array that are read for one.
const MOST_READ: u64 = 64 << 20;
/// Points between two pictures.
const GAP: u16 = 8;
/// The shorter side of what is worth looking at, and the elements of such a line.
const WORTHY: u64 = 16;

/// A sheet that is being drawn.
pub(crate) struct Sheet {
    /// What each picture is drawn with.
    style: Style,
    columns: u16,
    width: u16,
    pictures: Vec<Canvas>,
    /// How many there is no room for.
    left_out: usize,
}

impl Sheet {
    /// An empty sheet for so many pictures, as large as the style says.
    pub(crate) fn new(count: usize, style: Style) -> Self {
        let cells = count.clamp(1, MOST_CELLS);
        let columns = (1..=8_u16).find(|n| usize::from(n.saturating_mul(*n)) >= cells);
        let columns = columns.unwrap_or(8);
        let cell = style.size.checked_div(columns).unwrap_or(style.size);
        Self {
            style: Style {
                size: cell.saturating_sub(GAP).max(16),
                most: style.most.min(MOST_READ),
                ..style
            },
            columns,
            width: style.size,
            pictures: Vec::new(),
            left_out: 0,
        }
    }

    /// Whether nothing is on it.
    pub(crate) fn is_empty(&self) -> bool {
        self.pictures.is_empty()
    }

    /// How each of its pictures is to be made.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// Draws a picture on it, unless it is full. In place of one that can't be drawn it has its name, and why.
    ///
    /// # Errors
    /// As [`Picture::draw`].
    pub(crate) fn add(&mut self, picture: &Picture, elements: Elements<'_>) -> Result<()> {
        if self.pictures.len() >= MOST_CELLS {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let opened = picture.opened(elements);
        let drawn = opened.and_then(|opened| picture.canvas(&opened));
        let outcome = drawn.map(|(canvas, _)| self.pictures.push(canvas));
        if let Err(error) = &outcome {
            let mut canvas = Canvas::new(picture.size());
            picture.draw_caption(&mut canvas, &in_letters(&error.to_string()));
            self.pictures.push(canvas);
        }
        outcome
    }

    /// The PNG file, and how many pictures are not on it because it was full.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub(crate) fn file(self) -> Result<(Vec<u8>, usize)> {
        let cell = self.style.size.saturating_add(GAP);
        let mut placed = Vec::new();
        let mut bottom = GAP / 2;
        for row in self.pictures.chunks(self.columns.into()) {
            let lefts = (0_u16..).map(|n| n.saturating_mul(cell).saturating_add(GAP / 2));
            placed.extend(lefts.zip(row).map(|(left, it)| ((left, bottom), it)));
            let height = row.iter().map(|it| it.size().1).max().unwrap_or(0);
            bottom = bottom.saturating_add(height).saturating_add(GAP);
        }
        let mut sheet = Canvas::new((self.width, bottom.max(1)));
        for (corner, picture) in placed {
            sheet.put(corner, picture);
        }
        Ok((sheet.png(true, None)?, self.left_out))
    }
}

/// The arrays of a file that are worth a picture, in its order: those of some size, or else all that have one.
pub(crate) fn best(snapshot: &Snapshot, style: Style) -> Vec<usize> {
    let arrays = 0..snapshot.arrays().len();
    let found = arrays.filter_map(|i| {
        let picture = snapshot.picture(i, &[], style).ok()?;
        let worth = match picture.shown {
            Shown::Plane(grid, ..) => grid.sides.0.min(grid.sides.1) >= WORTHY,
            Shown::Line(count) => count >= WORTHY,
        };
        Some((i, worth, picture.places))
    });
    let found: Vec<_> = found.collect();
    let any = found.iter().any(|(_, worth, _)| *worth);
    // places of elements are the axis of another picture
    let beside = found
        .iter()
        .filter_map(|(.., places)| Some(places.as_ref()?.0.array));
    let beside: HashSet<usize> = beside.collect();
    let best = found
        .iter()
        .filter(|(i, worth, _)| *worth == any && !beside.contains(i));
    best.map(|(i, ..)| *i).collect()
}
