//! Arrays of one axis as lines, with axes, ticks and units.

use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::Circle;
use plotters::series::LineSeries;
use plotters::style::{Color, RGBColor};

use super::canvas::{Area, Canvas, FAINT, LETTERS, letters};
use super::limits::{GreyLimits, Tones};
use super::numbers::{DIGITS, MOST_DIGITS, common, is_rounding, range, short, within};
use super::{NO_VALUES, Picture, Readers, pixel};
use crate::asdf::numbers::unsigned;
use crate::error::Result;
use crate::source::len_u64;

/// The colour of the line.
const LINE: RGBColor = RGBColor(0xFF, 0xBB, 0x22);
/// The part of its range that an axis of values has beyond it on either side.
const BEYOND: f64 = 0.05;
/// How many points the edge of a dot is from its centre.
const DOT: i32 = 2;
/// Parts of a line for each column of points: fewer elements are drawn one by one.
const PARTS: u16 = 4;
/// Most ticks of an axis.
const MOST_TICKS: usize = 10;

/// A part of a line.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The index of its first element, and where that is along the axis.
    first: u64,
    x: f64,
    /// The smallest and the largest of its finite values.
    values: Option<(f64, f64)>,
}

impl Part {
    /// Takes a value; one that is not finite counts for nothing.
    fn take(&mut self, number: f64) {
        if number.is_finite() {
            let values = self.values.unwrap_or((number, number));
            self.values = Some(both(values, (number, number)));
        }
    }
}

/// The range that holds two others.
fn both(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// So many parts without values: fewer if there are fewer elements. Elements are at their index.
fn parts(most: u16, count: u64) -> Vec<Part> {
    let parts = count.min(most.into());
    let part = |n: u64| {
        let first = u128::from(n).saturating_mul(count.into());
        let first = first.div_ceil(u128::from(parts.max(1)));
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        Part {
            first,
            x: unsigned(first),
            values: None,
        }
    };
    (0..parts).map(part).collect()
}

/// The points of the line, in pieces: a part without a finite value is a gap.
fn pieces(parts: &[Part]) -> impl Iterator<Item = Vec<(f64, f64)>> {
    let is_gap = |part: &Part| part.values.is_none() || !part.x.is_finite();
    let pieces = parts.split(is_gap);
    pieces.filter(|piece| !piece.is_empty()).map(|piece| {
        let both = piece.iter().filter_map(|part| {
            let (low, high) = part.values?;
            Some([(part.x, low), (part.x, high)])
        });
        let mut points: Vec<_> = both.flatten().collect();
        points.dedup();
        points
    })
}

/// Draws the line between these limits: with its axes, and what they are called, in letters of that size; or nothing else.
fn draw(
    parts: &[Part],
    area: &Area<'_>,
    limits: (f64, f64),
    named: Option<(u16, &str, &str)>,
) -> Result<()> {
    let xs = parts.iter().map(|part| part.x);
    let xs = xs.filter(|x| x.is_finite()).map(|x| (x, x)).reduce(both);
    let axes = (
        Axis::of(xs.unwrap_or_default(), 0.0),
        Axis::of(limits, BEYOND),
    );
    let mut chart = ChartBuilder::on(area);
    if let Some((font, ..)) = named {
        let font = u32::from(font);
        chart
            .margin(font / 2)
            .margin_right(font.saturating_mul(2))
            .x_label_area_size(font.saturating_mul(3))
            .y_label_area_size(font.saturating_mul(6));
    }
    let mut chart = chart.build_cartesian_2d(axes.0, axes.1)?;
    if let Some((font, x, y)) = named {
        let (width, height) = area.dim_in_pixel();
        let letters_in = |side: u32| {
            let letters = side.checked_div(font.into()).unwrap_or(0);
            usize::try_from(letters).unwrap_or(0)
        };
        let [faint, strong] = [FAINT, LETTERS].map(|[r, g, b]| RGBColor(r, g, b));
        chart
            .configure_mesh()
            .label_style(letters(font))
            .axis_desc_style(letters(font))
            .axis_style(strong)
            .bold_line_style(faint)
            .light_line_style(faint.mix(0.0))
            // numbers that do not touch each other
            .x_labels(letters_in(width).saturating_sub(8) / 5)
            .y_labels(letters_in(height).saturating_sub(3) / 2)
            .x_desc(axes.0.title(x))
            .y_desc(axes.1.title(y))
            .draw()?;
    }
    for points in pieces(parts) {
        // a single point is no line
        let dot = points.first().filter(|_| points.len() == 1);
        let dot = dot.map(|point| Circle::new(*point, DOT, LINE.filled()));
        chart.draw_series(dot)?;
        chart.draw_series(LineSeries::new(points, LINE))?;
    }
    Ok(())
}

impl Picture {
    /// Draws a line. Gives the range of its values in words.
    pub(super) fn draw_line(
        &self,
        canvas: &mut Canvas,
        (values, places): &Readers,
        count: u64,
    ) -> Result<String> {
        let (width, height) = self.sides;
        let mut parts = parts(width.saturating_mul(PARTS), count);
        if self.values.bytes(count) > self.style.most {
            for part in &mut parts {
                let at = self.first.saturating_add(part.first);
                values.one(at, &mut |number, _| part.take(number))?;
            }
        } else {
            let (mut at, mut part) = (0_u64, 0_usize);
            values.run(self.first, count, &mut |number, _| {
                // each part has an element, so that none is passed over
                let next = part.saturating_add(1);
                if parts.get(next).is_some_and(|next| next.first <= at) {
                    part = next;
                }
                at = at.saturating_add(1);
                if let Some(part) = parts.get_mut(part) {
                    part.take(number);
                }
            })?;
        }
        if let Some(places) = places {
            for part in &mut parts {
                places.one(part.first, &mut |x, _| part.x = x)?;
            }
        }
        let label = self.places.as_ref().map_or("index", |(_, label)| label);
        let unit = self.unit.as_ref().map(|unit| format!(" ({unit})"));
        let value = format!("{}{}", self.name, unit.unwrap_or_default());
        let named = self.around().1 > 0;
        let whole = canvas.area()?;
        let (chart, _) = whole.split_vertically(u32::from(height));
        let ends = parts.iter().filter_map(|part| part.values);
        let ends: Vec<f64> = ends.flat_map(|(low, high)| [low, high]).collect();
        // an axis has room for all that a brightness has not
        let limits = match self.style.limits {
            GreyLimits::Auto => GreyLimits::MinMax,
            named => named,
        };
        let tones = Tones::of(limits, None, ends.clone(), &ends);
        let limits = tones.map_or((0.0, 0.0), |tones| tones.limits);
        let named = named.then_some((self.font, label, &*value));
        draw(&parts, &chart, limits, named)?;
        let words = tones.map(|tones| range(tones.limits) + &self.style.limits.name());
        Ok(words.unwrap_or_else(|| NO_VALUES.to_owned()))
    }
}

/// An axis between two values, the first of which is smaller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// The axis that has all of a range, and that part of it beyond on either side.
    pub(super) fn of((low, high): (f64, f64), beyond: f64) -> Self {
        // of numbers that differ by how they were rounded, the difference shows nothing
        let high = if is_rounding((low, high)) { low } else { high };
        // halves, as the range may be larger than the largest number
        let half = (high / 2.0 - low / 2.0) * beyond;
        let [wide_low, wide_high] = [low - half * 2.0, high + half * 2.0];
        let wide = |wide: f64, value| if wide.is_finite() { wide } else { value };
        let (low, high) = (wide(wide_low, low), wide(wide_high, high));
        if low < high {
            return Self { low, high };
        }
        let around = (low.abs() / 2.0).clamp(0.5, f64::MAX / 4.0);
        Self {
            low: low - around,
            high: high + around,
        }
    }

    /// What it is called, and what its numbers are counted from.
    fn title(&self, name: &str) -> String {
        let common = common((self.low, self.high));
        let sign = if common < 0.0 { '+' } else { '\u{2212}' };
        let from = format!(" {sign} {}", short(common.abs(), MOST_DIGITS));
        name.to_owned() + if common == 0.0 { "" } else { from.as_str() }
    }

    /// How far a value is from the low end to the high one: from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let range = self.high / 2.0 - self.low / 2.0;
        let part = (value / 2.0 - self.low / 2.0) / range;
        if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            0.5
        }
    }

    /// The distance of ticks, if there are to be no more than so many: 1, 2 or 5 times a power of 10.
    pub(super) fn step(&self, most: usize) -> f64 {
        let rough = (self.high / 2.0 - self.low / 2.0) / unsigned(len_u64(most.max(1))) * 2.0;
        let power = 10_f64.powf(rough.log10().floor());
        let times = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let fits = times.into_iter().find(|step| *step >= rough);
        fits.unwrap_or(rough)
    }

    /// The values that have ticks.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.clamp(2, MOST_TICKS);
        let step = self.step(most);
        let first = (self.low / step).ceil();
        let numbers = (0..=len_u64(most)).map(unsigned);
        let ticks = numbers.map(|n| (first + n) * step);
        let inside = |tick: &f64| (self.low..=self.high).contains(tick);
        let mut ticks: Vec<f64> = ticks.filter(inside).collect();
        ticks.dedup();
        ticks
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let len = f64::from(end) - f64::from(start);
        pixel(f64::from(start) + self.part(*value) * len)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.ticks(hint.max_num_points())
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        within((self.low, self.high), *value, DIGITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let axis = Axis {
            low: -1.03,
            high: 2.2,
        };
        assert_eq!(axis.ticks(5), [-1.0, 0.0, 1.0, 2.0]);
        let axis = Axis::of((7.0, 7.0), BEYOND);
        assert_eq!(axis.ticks(10), [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        let axis = Axis::of((1.0, 1.0 + f64::EPSILON), BEYOND);
        assert_eq!(axis.ticks(3), [0.5, 1.0, 1.5], "not what was rounded");
    }

    /// All ticks had one number.
    #[test]
    fn ticks_of_a_short_range_far_from_0_differ() {
        let axis = Axis::of((2_460_123.25, 2_460_123.75), 0.0);
        let labels = axis.ticks(5).into_iter().map(|tick| axis.format_ext(&tick));
        assert_eq!(
            labels.collect::<Vec<_>>(),
            ["0.3", "0.4", "0.5", "0.6", "0.7"]
        );
        assert_eq!(axis.title("time"), "time \u{2212} 2460123");
        let axis = Axis::of((-60_123.36, -60_123.34), 0.0);
        assert_eq!(axis.title("x"), "x + 60123.4");
        assert_eq!(Axis::of((-1.0, 1.0), 0.0).title("x"), "x");
    }

    proptest! {
        #[test]
        fn any_range_has_an_axis(a: f64, b: f64, value: f64) {
            if a.is_finite() && b.is_finite() {
                let axis = Axis::of((a.min(b), a.max(b)), BEYOND);
                prop_assert!(axis.ticks(10).len() <= 11);
                prop_assert!((0.0..=1.0).contains(&axis.part(value)));
                prop_assert!((10..=20).contains(&axis.map(&value, (10, 20))));
            }
        }
    }
}
