//! Planes of numbers, colours and flags as pictures.

use std::iter;

use super::canvas::{Canvas, FAINT, GROUND, Rgb, width};
use super::flags::{self, Flags};
use super::limits::Tones;
use super::line::Axis;
use super::numbers::{common, is_rounding, range, within};
use super::read::{Blocks, Grid, Reader};
use super::{Colours, NO_VALUES, Picture, Style, pixel};
use crate::asdf::datatype::Scalar;
use crate::asdf::numbers::unsigned;
use crate::error::Result;
use crate::view::whole;

/// Shades between black and white. A palette has room for the colours around the plane besides.
const SHADES: usize = 224;
const LAST_SHADE: usize = SHADES - 1;
/// Most digits of the numbers beside the bar.
const DIGITS: usize = 5;
/// How bright the values are whose round numbers are beside the bar of a curve, and how much brighter or darker these may be.
const MARKS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
const NEAR: f64 = 0.08;
/// How often the steps are halved that such a number is a multiple of.
const STEPS: u32 = 48;

impl Colours {
    /// What stands for no number: unlike all shades. Both digits of each part are equal.
    fn nothing(self) -> Rgb {
        match self {
            Self::Grey => [0x22, 0x44, 0x88],
            Self::Inferno | Self::Viridis | Self::Cubehelix => [0x99; 3],
        }
    }

    /// All shades, from black to white.
    fn shades(self) -> Vec<Rgb> {
        let shade = |n: usize| {
            let gradient = match self {
                Self::Grey => {
                    let grey = n.saturating_mul(255) / LAST_SHADE;
                    return [u8::try_from(grey).unwrap_or(u8::MAX); 3];
                }
                Self::Inferno => colorous::INFERNO,
                Self::Viridis => colorous::VIRIDIS,
                Self::Cubehelix => colorous::CUBEHELIX,
            };
            gradient.eval_rational(n, SHADES).into_array()
        };
        (0..SHADES).map(shade).collect()
    }
}

/// The shade of a brightness.
fn shade(shades: &[Rgb], brightness: f64) -> Rgb {
    let last = u8::try_from(shades.len().saturating_sub(1)).unwrap_or(u8::MAX);
    let number = usize::from(part_of(brightness, last));
    shades.get(number).copied().unwrap_or(GROUND)
}

/// That part of a number, from 0 to it.
fn part_of(part: f64, of: u8) -> u8 {
    let part = (part.clamp(0.0, 1.0) * f64::from(of)).round();
    u8::try_from(whole(part)).unwrap_or(of)
}

impl Picture {
    /// Draws a plane of numbers or flags, a channel of so many, and at its side what its colours mean. Gives the limits in words, and
    /// whether it shows flags.
    pub(super) fn draw_plane(
        &self,
        canvas: &mut Canvas,
        reader: &Reader,
        grid: Grid,
        (mut left, channels): (u64, u64),
    ) -> Result<(String, bool)> {
        let Style { most, limits, .. } = self.style;
        let row = grid.sides.0.saturating_mul(channels);
        let mut blocks = Blocks::new(grid.sampled(self.values.bytes(row), most));
        let kind = self.values.scalar.kind();
        let is_named = kind == 'b' || flags::is_named(&self.name);
        let mut flags = matches!(kind, 'u' | 'b').then(|| Flags::new(is_named));
        grid.read(reader, (self.first, channels), most, &mut |number, bits| {
            if left > 0 {
                left = left.saturating_sub(1);
                return;
            }
            left = channels.saturating_sub(1);
            blocks.take(number, bits);
            if let Some(flags) = &mut flags {
                flags.take(bits);
            }
        })?;
        // only now, as it takes all values to tell flags from numbers
        if let Some(flags) = flags.filter(Flags::are_flags) {
            self.draw_points(canvas, grid, flags.colours(&blocks.bits));
            let words = self.draw_legend(canvas, &flags.legend());
            return Ok((words, true));
        }
        let sample = blocks.sample.numbers;
        let Some(tones) = self.tones(canvas, grid, sample, &blocks.means) else {
            return Ok((NO_VALUES.to_owned(), false));
        };
        let (shades, nothing) = (self.style.colours.shades(), self.style.colours.nothing());
        let points = blocks.means.iter().map(|mean| match mean {
            mean if mean.is_nan() => nothing,
            mean => shade(&shades, tones.brightness(*mean)),
        });
        self.draw_points(canvas, grid, points);
        self.draw_bar(canvas, &tones, &shades);
        let mut words = format!("{}{} {}", range(tones.limits), limits.name(), tones.curve());
        if blocks.not_finite > 0 {
            let part = unsigned(blocks.not_finite) / unsigned(blocks.count);
            let part = format!(" \u{b7} {} not finite", percent(part));
            words.push_str(&part);
        }
        Ok((words, false))
    }

    /// The tones of points, by a sample of elements. Without a finite one there are none, and all points have the colour of nothing.
    fn tones(
        &self,
        canvas: &mut Canvas,
        grid: Grid,
        sample: Vec<f64>,
        points: &[f64],
    ) -> Option<Tones> {
        let (limits, curve) = (self.style.limits, self.style.curve);
        let tones = Tones::of(limits, curve, sample, points);
        if tones.is_none() {
            self.draw_points(canvas, grid, iter::repeat(self.style.colours.nothing()));
        }
        tones
    }

    /// Draws a plane of colours. Gives the limits in words.
    pub(super) fn draw_colours(
        &self,
        canvas: &mut Canvas,
        reader: &Reader,
        grid: Grid,
        channels: u64,
    ) -> Result<String> {
        let most = self.style.most;
        let row = grid.sides.0.saturating_mul(channels);
        let sampled = grid.sampled(self.values.bytes(row), most);
        let mut blocks: Vec<_> = (0..channels).map(|_| Blocks::new(sampled)).collect();
        let mut channel = 0_usize;
        grid.read(reader, (self.first, channels), most, &mut |number, bits| {
            if let Some(blocks) = blocks.get_mut(channel) {
                blocks.take(number, bits);
            }
            channel = channel.saturating_add(1);
            if channel >= blocks.len() {
                channel = 0;
            }
        })?;
        // a fourth colour says how much there is of the others
        let opacity = blocks.split_off(blocks.len().min(3)).pop();
        let (tones, words, opaque) = match self.values.scalar {
            // bytes are colours as screens have them: to stretch them would change their hues
            Scalar::Uint8 => {
                let (limits, bend) = ((0.0, 255.0), None);
                (Tones { limits, bend }, "colours".to_owned(), 255.0)
            }
            scalar => {
                let all = |of: fn(&Blocks) -> &Vec<f64>| blocks.iter().flat_map(of).copied();
                let means: Vec<_> = all(|it| &it.means).collect();
                let sample = all(|it| &it.sample.numbers).collect();
                let Some(tones) = self.tones(canvas, grid, sample, &means) else {
                    return Ok(NO_VALUES.to_owned());
                };
                let words = format!("colours {}", range(tones.limits));
                let is_16_bits = scalar == Scalar::Uint16;
                (tones, words, if is_16_bits { 65_535.0 } else { 1.0 })
            }
        };
        let points = blocks.first().map_or(0, |blocks| blocks.means.len());
        let colours = (0..points).map(|n| {
            let of = |blocks: &Blocks| blocks.means.get(n).copied().unwrap_or(f64::NAN);
            let part = opacity.as_ref().map_or(opaque, of) / opaque;
            let part = part.clamp(0.0, 1.0);
            let mut colour = [0; 3];
            for ((to, blocks), ground) in colour.iter_mut().zip(&blocks).zip(GROUND) {
                let brightness = tones.brightness(of(blocks)) * 255.0;
                let mixed = brightness * part + f64::from(ground) * (1.0 - part);
                *to = part_of(mixed / 255.0, u8::MAX);
            }
            colour
        });
        self.draw_points(canvas, grid, colours);
        Ok(words)
    }

    /// Draws a point for each block, row 0 at the bottom.
    fn draw_points(&self, canvas: &mut Canvas, grid: Grid, colours: impl Iterator<Item = Rgb>) {
        let (width, height) = self.sides;
        let times = |side: u16, points: u16| side.checked_div(points).unwrap_or(1);
        let (across, up) = (times(width, grid.points.0), times(height, grid.points.1));
        let rows = 1..=grid.points.1;
        let points = rows.flat_map(|row| (0..grid.points.0).map(move |column| (column, row)));
        for ((column, row), colour) in points.zip(colours) {
            let left = column.saturating_mul(across);
            let top = height.saturating_sub(row.saturating_mul(up));
            canvas.fill((left, top), (across, up), colour);
        }
    }

    /// Draws a bar with all shades from black below to white above, and numbers beside it.
    fn draw_bar(&self, canvas: &mut Canvas, tones: &Tones, shades: &[Rgb]) {
        let ((left, height), font) = (self.sides, self.font);
        let (bar, _) = self.around();
        if bar == 0 {
            return;
        }
        let left = left.saturating_add(font / 2);
        let last = f64::from(height.saturating_sub(1).max(1));
        for y in 0..height {
            let brightness = 1.0 - f64::from(y) / last;
            canvas.fill((left, y), (font, 1), shade(shades, brightness));
        }
        let left = left.saturating_add(font);
        let room = bar.saturating_sub(font.saturating_mul(2)).saturating_sub(2);
        let mut free = 0;
        let most = usize::from(height.checked_div(font).unwrap_or(0) / 2);
        for value in round(tones, most).into_iter().rev() {
            let y = pixel((1.0 - tones.brightness(value)) * last);
            let y = u16::try_from(y).unwrap_or(0);
            canvas.fill((left, y), (font / 4, 1), FAINT);
            let above = y.saturating_sub(font / 2);
            let top = above.min(height.saturating_sub(font)).max(free);
            if top.saturating_add(font) > height.max(font) {
                continue;
            }
            let number = bar_number(tones.limits, value, (font, room));
            let at = (left.saturating_add(font / 2), top);
            canvas.write(at, &number, (font, room), false);
            free = top.saturating_add(font);
        }
    }

    /// Draws what the colour of each flag is, and how many elements have it. Gives in words how many there are.
    fn draw_legend(&self, canvas: &mut Canvas, legend: &[(usize, Rgb, f64)]) -> String {
        let ((left, height), font) = (self.sides, self.font);
        let line = font.saturating_add(2);
        let is_mask = self.values.scalar == Scalar::Bool8;
        let words = match (legend, is_mask) {
            ([], true) => "all false".to_owned(),
            ([], false) => "no bit is set".to_owned(),
            ([(.., part)], true) => format!("{} true", percent(*part)),
            (some, _) => format!("{} bits", some.len()),
        };
        let (bar, _) = self.around();
        if bar == 0 || height < line.saturating_mul(2) {
            return words;
        }
        let left = left.saturating_add(font / 2);
        let room = bar.saturating_sub(font / 2);
        // a heading, as a line has no room for the word
        let heading = if is_mask { "" } else { "bit" };
        canvas.write((left, 0), heading, (font, room), false);
        let rows = usize::from(height.checked_div(line).unwrap_or(0)).saturating_sub(1);
        let mut top = line;
        for (n, (bit, colour, part)) in legend.iter().enumerate() {
            if n.saturating_add(1) >= rows && legend.len() > rows {
                let more = legend.len().saturating_sub(n);
                canvas.write((left, top), &format!("{more} more"), (font, room), false);
                break;
            }
            let name = if is_mask {
                "true".to_owned()
            } else {
                bit.to_string()
            };
            let side = font.saturating_sub(4);
            canvas.fill((left, top.saturating_add(2)), (side, side), *colour);
            let text = format!("{name}: {}", percent(*part));
            let at = (left.saturating_add(font), top);
            canvas.write(at, &text, (font, room.saturating_sub(font)), false);
            top = top.saturating_add(line);
        }
        words
    }
}

/// Round numbers between the limits, from dark to bright, no more than about so many: ticks in equal steps, or for a curve the roundest
/// ones near places in equal steps.
fn round(tones: &Tones, most: usize) -> Vec<f64> {
    let (low, high) = tones.limits;
    if is_rounding((low, high)) {
        return vec![low];
    }
    let is_inside = |value: &f64| (low..=high).contains(value);
    let axis = Axis::of(tones.limits, 0.0);
    if tones.bend.is_none() {
        let ticks: Vec<f64> = axis.ticks(most).into_iter().filter(is_inside).collect();
        // no round number may lie within limits that are close together
        return if ticks.is_empty() {
            vec![low, high]
        } else {
            ticks
        };
    }
    let common = common(tones.limits);
    let near = |mark: &f64| {
        let value = tones.value(*mark) - common;
        let steps = (0..STEPS).map(|n| axis.step(1_usize.unbounded_shl(n)));
        let mut rounded = steps.map(|step| (value / step).round() * step + common);
        let is_near = |value: &f64| (tones.brightness(*value) - mark).abs() < NEAR;
        rounded.find(|value| is_inside(value) && is_near(value))
    };
    let mut all: Vec<f64> = MARKS.iter().filter_map(near).collect();
    all.dedup();
    all
}

/// A number beside a bar between these limits: what all have in common is in the caption. In letters of that size it has as many digits
/// as there is room for.
fn bar_number(limits: (f64, f64), value: f64, (font, room): (u16, u16)) -> String {
    let sign = if common(limits) == 0.0 { "" } else { "+" };
    let numbers = (1..=DIGITS).rev().map(|digits| {
        let number = within(limits, value, digits);
        format!("{sign}{number}")
    });
    let mut fitting = numbers.filter(|number| width(number, font) <= f32::from(room));
    fitting.next().unwrap_or_default()
}

/// A part of all in percent.
fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent > 0.0 && percent < 0.01 => "<0.01%".to_owned(),
        percent if percent >= 10.0 => format!("{percent:.0}%"),
        percent => format!("{percent:.2}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blue of what is no number was a colour of numbers in viridis.
    #[test]
    fn what_is_no_number_has_no_shade_of_numbers() {
        use Colours::{Cubehelix, Grey, Inferno, Viridis};
        for colours in [Grey, Inferno, Viridis, Cubehelix] {
            let nothing = colours.nothing();
            for shade in colours.shades() {
                let distances = shade.iter().zip(nothing).map(|(a, b)| a.abs_diff(b));
                let distance: u32 = distances.map(u32::from).sum();
                assert!(distance > 0x30, "{colours:?} {shade:?}");
            }
        }
    }

    /// They were those of equal parts of the bar: 269.8, 162.1, 110.3.
    #[test]
    fn numbers_beside_a_bar_are_round() {
        let of = |limits: (f64, f64), bend: Option<(f64, f64)>| {
            let room = (20, 98);
            let all = round(&Tones { limits, bend }, 6).into_iter();
            let all = all.map(|value| bar_number(limits, value, room));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of((88.3, 1105.6), None), "200 400 600 800 1000");
        assert_eq!(of((7.0, 7.0), None), "7");
        // of a bar with room for two numbers between whose limits lies none of the steps
        let close = Tones {
            limits: (1.52, 1.98),
            bend: None,
        };
        assert_eq!(round(&close, 1), [1.52, 1.98]);
        let galaxy = of((73.7638, 504.888), Some((79.3, 31.1)));
        assert_eq!(galaxy, "80 100 150 200 400");
        let noise = of((-2.6e300, 2.9e300), Some((-2.1e300, 3e300)));
        assert_eq!(noise, "-2e300 -1e300 0 1e300 2e300");
        let far = of((1e9 + 0.0035, 1e9 + 0.9975), Some((1e9 - 0.1, 0.9)));
        assert_eq!(far, "+0.1 +0.2 +0.5 +0.6 +0.8");
    }

    /// They were cut: -1.966e30 for -1.966e300.
    #[test]
    fn numbers_beside_a_bar_are_whole_and_differ() {
        let of = |limits: (f64, f64)| {
            [limits.0, limits.1].map(|value| bar_number(limits, value, (20, 98)))
        };
        assert_eq!(of((-1.966e300, 2.807e300)), ["-1.97e300", "2.807e300"]);
        assert_eq!(of((1e9 - 3.25, 1e9 + 4.5)), ["+6.75", "+14.5"]);
        assert_eq!(of((1234.5, 1237.75)), ["1234.5", "1237.8"]);
        assert_eq!(bar_number((0.0, 4.0), 6.9e-18, (20, 98)), "0");
        assert_eq!(range((1e9 - 3.25, 1e9 + 4.5)), "999999990 + (6.75 .. 14.5)");
    }
}
