//! Contact sheets: many pictures side by side.

use std::collections::HashSet;

use super::canvas::Canvas;
use super::{Elements, Picture, Shown, Style};
use crate::asdf::Snapshot;
use crate::error::Result;

/// The most pictures of a sheet.
const MOST_CELLS: usize = 64;
/// The most bytes of an array that are read for one.
const MOST_READ: u64 = 64 << 20;
/// Points between two pictures.
const GAP: u16 = 8;
/// The shorter side of what is worth looking at, and the elements of such a line.
const WORTHY: u64 = 16;

/// A sheet that is being drawn, row by row from the top.
pub struct Sheet {
    /// What each picture is drawn with.
    style: Style,
    columns: u16,
    width: u16,
    /// The row that is being filled, and those above it.
    row: Vec<Canvas>,
    above: Vec<Canvas>,
    /// Pictures so far, and such for which there is no room.
    count: usize,
    left_out: usize,
}

impl Sheet {
    /// An empty sheet for so many pictures, as large as the style says.
    #[must_use]
    pub fn new(count: usize, style: Style) -> Self {
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
            row: Vec::new(),
            above: Vec::new(),
            count: 0,
            left_out: 0,
        }
    }

    /// Whether nothing is on it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How each of its pictures is to be made.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style
    }

    /// Draws a picture on it, unless it is full.
    ///
    /// # Errors
    /// As [`Picture::draw`].
    pub fn add(&mut self, picture: &Picture, elements: Elements<'_>) -> Result<()> {
        if self.count >= MOST_CELLS {
            self.left_out = self.left_out.saturating_add(1);
            return Ok(());
        }
        let opened = picture.opened(elements)?;
        self.row.push(picture.canvas(&opened, &mut Vec::new())?);
        self.count = self.count.saturating_add(1);
        if self.row.len() >= self.columns.into() {
            self.end_row();
        }
        Ok(())
    }

    /// Puts the pictures of a row side by side.
    fn end_row(&mut self) {
        let height = self.row.iter().map(|canvas| canvas.size().1).max();
        let Some(height) = height else {
            return;
        };
        let mut strip = Canvas::new((self.width, height.saturating_add(GAP)));
        let cell = self.style.size.saturating_add(GAP);
        let lefts = (0_u16..).map(|n| n.saturating_mul(cell));
        for (left, canvas) in lefts.zip(self.row.drain(..)) {
            strip.put((left, 0), &canvas);
        }
        self.above.push(strip);
    }

    /// The PNG file, and how many pictures are not on it because it was full.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn file(mut self) -> Result<(Vec<u8>, usize)> {
        self.end_row();
        let heights = self.above.iter().map(|strip| strip.size().1);
        let height = heights.fold(0, u16::saturating_add);
        let mut sheet = Canvas::new((self.width, height.max(1)));
        let mut top = 0_u16;
        for strip in &self.above {
            sheet.put((0, top), strip);
            top = top.saturating_add(strip.size().1);
        }
        Ok((sheet.png(false, None)?, self.left_out))
    }
}

/// The arrays of a file that are worth a picture, in its order: those of some size, or else all that have one. What says where the elements
/// of another one are is left out, as it is an axis there.
#[must_use]
pub fn best(snapshot: &Snapshot, style: Style) -> Vec<usize> {
    let arrays = 0..snapshot.arrays().len();
    let pictures = arrays.filter_map(|i| Some((i, snapshot.picture(i, &[], style).ok()?)));
    let worth = |picture: &Picture| match picture.shown {
        Shown::Plane(grid) | Shown::Colour(grid, _) => grid.sides.0.min(grid.sides.1) >= WORTHY,
        Shown::Line(count) => count >= WORTHY,
    };
    let pictures = pictures.map(|(i, picture)| (i, worth(&picture), picture.places));
    let found: Vec<_> = pictures.collect();
    let any = found.iter().any(|(_, worth, _)| *worth);
    let beside = found
        .iter()
        .filter_map(|(.., places)| Some(places.as_ref()?.array));
    let beside: HashSet<usize> = beside.collect();
    let best = found
        .iter()
        .filter(|(i, worth, _)| *worth == any && !beside.contains(i));
    best.map(|(i, ..)| *i).collect()
}
