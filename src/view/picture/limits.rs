//! Which values are black and white, and how those between become bright: as image viewers choose them.

use std::borrow::Cow;

use crate::asdf::numbers::unsigned;
use crate::source::len_u64;
use crate::view::whole;

/// How the limits of a picture are chosen, of the finite elements that are read for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GreyLimits {
    /// Nearly all between black and white, and what is near the sky spread, so that sky, faint arms and bright nucleus are seen at once.
    Auto,
    /// By the slope of the sorted values near their median, as IRAF and DS9 do.
    Zscale,
    /// The smallest and the largest, of points, which can be means.
    MinMax,
    /// Those around so many percent of them, as many below as above.
    Percent(f64),
}

/// How values between the limits become bright.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// In proportion.
    Linear,
    /// By the inverse hyperbolic sine, which lifts what is faint.
    Asinh,
}

/// Most values that zscale looks at.
const SAMPLE: usize = 1000;
/// How much of the range around the median zscale shows: IRAF's contrast.
const CONTRAST: f64 = 0.25;
/// Deviations beyond which a value is left out of the fit, and how often that is done.
const REJECTED: f64 = 2.5;
const ITERATIONS: usize = 5;
/// Of fewer values there is no fit, nor if less than half of them are left.
const FEWEST: usize = 5;
/// The part of the range between the limits from which on the asinh curve bends, as in DS9.
const SOFTENING: f64 = 0.1;
/// Deviations from the median of the sky: what is no sky, what is a border around the image if it is many values that are one, and how far
/// below the curve is steepest; and deviations from there to where it begins to bend.
const NO_SKY: f64 = 3.0;
const BORDER: f64 = 5.0;
const STEEPEST: f64 = 2.0;
const BEND: f64 = 3.0;
/// The part of all values that is black, and that is white.
const BEYOND: f64 = 0.003;
/// How many standard deviations of normal values the median of their distances from their median is.
const DEVIATIONS: f64 = 1.482_602_218_505_602;

/// How bright values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tones {
    /// The values that are black and white, and those next to them outwards.
    pub(super) limits: (f64, f64),
    /// The value where the curve is steepest, and how far from there it begins to bend; none of a straight one.
    pub(super) bend: Option<(f64, f64)>,
}

impl Tones {
    /// The tones of points, by a sample of the finite elements they are made of; `None` if no point is finite.
    pub(super) fn of(
        limits: GreyLimits,
        curve: Option<Curve>,
        mut sample: Vec<f64>,
        points: &[f64],
    ) -> Option<Self> {
        let finite = points.iter().filter(|v| v.is_finite()).map(|v| (*v, *v));
        let ends = finite.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        sample.sort_unstable_by(f64::total_cmp);
        let (found, sky) = match limits {
            GreyLimits::MinMax => (ends, None),
            GreyLimits::Percent(percent) => (within(&sample, (100.0 - percent) / 200.0), None),
            GreyLimits::Zscale => {
                let step = sample.len().div_ceil(SAMPLE).max(1);
                let some: Vec<f64> = sample.iter().copied().step_by(step).collect();
                (zscale(&some), None)
            }
            GreyLimits::Auto => auto(&sample),
        };
        // limits that are one value would show no other: then all are shown
        let found = if found.0 < found.1 { found } else { ends };
        let is_auto = limits == GreyLimits::Auto;
        let usual = if is_auto { Curve::Asinh } else { Curve::Linear };
        let part = (found.1 - found.0) * SOFTENING;
        let bend = match (curve.unwrap_or(usual), sky) {
            (Curve::Linear, _) => None,
            // of what is brighter than a billion times the bend, no shade would be left below it
            (Curve::Asinh, Some((median, deviation))) => {
                let bend = (BEND * deviation).max(part / 1e8);
                Some((median - STEEPEST * deviation, bend))
            }
            (Curve::Asinh, None) => Some((found.0, part)),
        };
        Some(Self {
            limits: found,
            bend: bend.filter(|(steepest, bend)| steepest.is_finite() && bend.is_normal()),
        })
    }

    /// A value on the curve. Halves, as the range may be larger than the largest number.
    fn bent(&self, value: f64) -> f64 {
        self.bend.map_or(value / 2.0, |(steepest, bend)| {
            ((value / 2.0 - steepest / 2.0) / bend * 2.0).asinh()
        })
    }

    /// How bright a value is, from 0 to 1.
    pub(super) fn brightness(&self, value: f64) -> f64 {
        let (low, high) = self.limits;
        let [from, to, at] = [low, high, value.clamp(low, high)].map(|value| self.bent(value));
        if to > from {
            ((at - from) / (to - from)).clamp(0.0, 1.0)
        } else if low == 0.0 {
            0.0
        } else {
            0.5
        }
    }

    /// The value of that brightness.
    pub(super) fn value(&self, brightness: f64) -> f64 {
        let between = |(low, high)| low * (1.0 - brightness) + high * brightness;
        let Some((steepest, bend)) = self.bend else {
            return between(self.limits);
        };
        let (low, high) = self.limits;
        steepest + bend * between((self.bent(low), self.bent(high))).sinh()
    }

    /// The curve in words.
    pub(super) fn curve(&self) -> &'static str {
        self.bend.map_or("linear", |_| "asinh")
    }
}

impl GreyLimits {
    /// It in words, behind others; of the usual ones nothing is said.
    pub(super) fn name(self) -> String {
        match self {
            Self::Auto => String::new(),
            Self::Zscale => " zscale".to_owned(),
            Self::MinMax => " minmax".to_owned(),
            Self::Percent(percent) => format!(" {percent}%"),
        }
    }
}

/// Limits of sorted values, and the median and the deviation of their sky.
fn auto(sorted: &[f64]) -> ((f64, f64), Option<(f64, f64)>) {
    let mut values = Cow::from(sorted);
    let (mut median, mut deviation) = sky(&values);
    let common = middle(sorted);
    let is_common = deviation == 0.0;
    if is_common {
        // most values are one, as where an image has a border of zeros: the others are the image
        values.to_mut().retain(|v| (v - common).abs() > 0.0);
        (median, deviation) = sky(&values);
    }
    let is_far = |value: f64| deviation > 0.0 && value < median - BORDER * deviation;
    let first = values.first().copied().unwrap_or(common);
    let border = values.partition_point(|value| *value <= first);
    let is_border = border > share(values.len(), BEYOND) && is_far(first);
    let kept = values.get(if is_border { border } else { 0 }..);
    // of values that are all one no other is left
    let kept = kept.filter(|kept| !kept.is_empty()).unwrap_or(sorted);
    let (black, white) = within(kept, BEYOND);
    // zeros among counts are no border
    let is_dark = is_common && !is_far(common);
    let black = if is_dark { black.min(common) } else { black };
    let sky = Some((median, deviation)).filter(|_| deviation > 0.0);
    ((black, white), sky)
}

/// The limits of sorted values that leave out that part of them below, and above.
fn within(sorted: &[f64], beyond: f64) -> (f64, f64) {
    let below = share(sorted.len(), beyond.clamp(0.0, 0.5));
    let above = sorted.len().saturating_sub(below).saturating_sub(1);
    let at = |i: usize| sorted.get(i).copied().unwrap_or_default();
    (at(below), at(above))
}

/// Median and standard deviation of the sky among sorted values: of those that are left when what deviates has been left out.
fn sky(sorted: &[f64]) -> (f64, f64) {
    let mut kept = sorted;
    let mut found = (middle(kept), 0.0);
    for _ in 0..ITERATIONS {
        let median = middle(kept);
        let mut distances: Vec<f64> = kept.iter().map(|value| (value - median).abs()).collect();
        let at = distances.len() / 2;
        if at >= distances.len() {
            break;
        }
        let (_, distance, _) = distances.select_nth_unstable_by(at, f64::total_cmp);
        found = (median, *distance * DEVIATIONS);
        let reach = NO_SKY * found.1;
        let start = kept.partition_point(|value| *value < median - reach);
        let end = kept.partition_point(|value| *value <= median + reach);
        let left = kept.get(start..end).unwrap_or(kept);
        if found.1 == 0.0 || left.len() == kept.len() {
            break;
        }
        kept = left;
    }
    found
}

/// The middle one of sorted values; of two, the upper one.
fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// That part of a length, rounded down.
fn share(len: usize, part: f64) -> usize {
    usize::try_from(whole(part * length(len))).unwrap_or(len)
}

fn length(len: usize) -> f64 {
    unsigned(len_u64(len))
}

/// IRAF's zscale of sorted values: fits a line to those that do not deviate, makes it steeper, and goes along it from the median to the
/// first and the last.
fn zscale(sorted: &[f64]) -> (f64, f64) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return (0.0, 0.0);
    };
    let at = |i: usize| sorted.get(i).copied().unwrap_or(*first);
    let centre = sorted.len().saturating_sub(1) / 2;
    let median = f64::midpoint(at(centre), at(sorted.len() / 2));
    let fewest = FEWEST.max(sorted.len() / 2);
    let (mut kept, mut count) = (vec![true; sorted.len()], sorted.len());
    let mut slope = 0.0;
    for _ in 0..ITERATIONS {
        if count < fewest {
            break;
        }
        let line = fit(sorted, &kept);
        slope = line.1;
        reject(sorted, &mut kept, line);
        let left = kept.iter().filter(|kept| **kept).count();
        if std::mem::replace(&mut count, left) <= left {
            break;
        }
    }
    if count < fewest || !slope.is_finite() {
        return (*first, *last);
    }
    let slope = slope / CONTRAST;
    let low = median - slope * (length(centre) - 1.0);
    let high = median + slope * length(sorted.len().saturating_sub(centre));
    (low.max(*first), high.min(*last))
}

/// Leaves out the values that deviate from the line, and those next to them: a hundredth of all around each.
fn reject(sorted: &[f64], kept: &mut [bool], line: (f64, f64, f64)) {
    let grown = (sorted.len() / 100).max(1);
    let (before, behind) = (grown.saturating_sub(1) / 2, grown / 2);
    let known = kept.to_vec();
    for (i, (value, is_kept)) in sorted.iter().zip(known).enumerate() {
        let deviates = (value - line.0 - line.1 * length(i)).abs() > REJECTED * line.2;
        // what was left out before grows again, as it does in astropy
        if deviates || !is_kept {
            let end = i.saturating_add(behind).saturating_add(1).min(kept.len());
            let around = kept.get_mut(i.saturating_sub(before)..end);
            around.unwrap_or_default().fill(false);
        }
    }
}

/// The line through the values that are kept, over their positions: its start, its slope, and the standard deviation from it.
fn fit(sorted: &[f64], kept: &[bool]) -> (f64, f64, f64) {
    let points = sorted.iter().enumerate().zip(kept);
    let points = points.filter(|(_, kept)| **kept);
    let points: Vec<(f64, f64)> = points.map(|((i, value), _)| (length(i), *value)).collect();
    let count = length(points.len());
    let mean = |part: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread = mean(&|point| (point.0 - x).powi(2));
    let common = mean(&|point| (point.0 - x) * (point.1 - y));
    let slope = if spread > 0.0 { common / spread } else { 0.0 };
    let start = y - slope * x;
    let variance = mean(&|point| (point.1 - start - slope * point.0).powi(2));
    (start, slope, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tones of a picture of all values.
    fn of(limits: GreyLimits, curve: Option<Curve>, values: &[f64]) -> Option<Tones> {
        let sample = values.iter().copied().filter(|v| v.is_finite()).collect();
        Tones::of(limits, curve, sample, values)
    }

    fn limits(limits: GreyLimits, values: &[f64]) -> Option<(f64, f64)> {
        of(limits, None, values).map(|tones| tones.limits)
    }

    #[test]
    fn a_sky_with_a_star_is_shown_by_its_sky() {
        let mut values: Vec<f64> = (0..1000)
            .map(|i| 100.0 + f64::from(i % 100) / 100.0)
            .collect();
        values[500] = 1e6;
        let (low, high) = limits(GreyLimits::Zscale, &values).unwrap();
        assert!(
            low >= 100.0 && (100.9..110.0).contains(&high),
            "{low} {high}"
        );
        assert_eq!(limits(GreyLimits::MinMax, &values), Some((100.0, 1e6)));
        assert_eq!(
            limits(GreyLimits::Percent(90.0), &values),
            Some((100.05, 100.95))
        );
    }

    /// Numbers around 0 that are spread as noise is, with a deviation of 1: sums of twelve.
    fn noise(count: usize) -> impl Iterator<Item = f64> {
        let mut state = 1_u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24)
        };
        (0..count).map(move |_| (0..12).map(|_| next()).sum::<f64>() - 6.0)
    }

    #[test]
    fn sky_arms_and_nucleus_have_tones_of_their_own() {
        // a fifth of all is a galaxy, whose nucleus is a thousand times as bright as its arms
        let noise = noise(10_000).enumerate();
        let values: Vec<f64> = noise
            .map(|(n, noise)| match n {
                0..20 => 120_000.0,
                20..2000 => 220.0 + noise,
                _ => 100.0 + 3.0 * noise,
            })
            .collect();
        let tones = of(GreyLimits::Auto, None, &values).unwrap();
        let (black, white) = tones.limits;
        assert!((90.0..93.0).contains(&black), "{black}");
        assert!(white > 200.0, "{white}");
        let [sky, arms] = [100.0, 220.0].map(|value| tones.brightness(value));
        assert!(
            (0.1..0.4).contains(&sky) && arms > sky + 0.4,
            "{sky} {arms}"
        );
        assert!(tones.brightness(120_000.0) > 0.999);
        for brightness in [0.0, 0.2, 0.7, 1.0] {
            let value = tones.value(brightness);
            assert!((tones.brightness(value) - brightness).abs() < 1e-9);
        }
    }

    /// Where most values are 0, the limits were 0 and 0.
    #[test]
    fn a_border_of_zeros_is_no_sky_and_few_values_are_seen() {
        let sky = noise(4000).map(|noise| 100.0 + noise);
        let values: Vec<f64> = std::iter::repeat_n(0.0, 6000).chain(sky).collect();
        let (black, white) = limits(GreyLimits::Auto, &values).unwrap();
        assert!(black > 96.0 && white < 104.0, "{black} {white}");
        let mut values = vec![0.0; 10_000];
        values[7] = 5.0;
        for choice in [
            GreyLimits::Auto,
            GreyLimits::Zscale,
            GreyLimits::Percent(90.0),
        ] {
            assert_eq!(limits(choice, &values), Some((0.0, 5.0)), "{choice:?}");
        }
    }

    /// All below two deviations under the sky was black: of what is darker than it, nothing was seen.
    #[test]
    fn what_is_darker_than_the_sky_has_tones_as_what_is_brighter() {
        let noise = noise(10_000).enumerate();
        let values: Vec<f64> = noise
            .map(|(n, noise)| match n {
                0..200 => f64::from(u8::try_from(n).unwrap()) * 5.0,
                200..400 => f64::from(u8::try_from(n - 200).unwrap()) * -5.0,
                _ => 12.0 * noise,
            })
            .collect();
        let tones = of(GreyLimits::Auto, None, &values).unwrap();
        let (black, white) = tones.limits;
        assert!(black < -800.0 && white > 800.0, "{black} {white}");
        let tones = [-700.0, -300.0, -100.0, 0.0, 100.0, 300.0, 700.0].map(|v| tones.brightness(v));
        assert!(
            tones.windows(2).all(|two| two[1] > two[0] + 0.05),
            "{tones:?}"
        );
        assert!((0.4..0.7).contains(&tones[3]), "{tones:?}");
    }

    /// A detector has rows of zeros around it, whose number is no reason to make black of them.
    #[test]
    fn zeros_among_counts_are_dark_and_those_around_an_image_are_not_shown() {
        let mut counts = vec![0.0; 9000];
        counts.extend([1.0; 900]);
        counts.extend([2.0; 90]);
        counts.extend([3.0; 40]);
        let tones = of(GreyLimits::Auto, None, &counts).unwrap();
        assert_eq!(tones.limits, (0.0, 3.0));
        assert!(tones.brightness(1.0) > 0.1);
        let sky = noise(9900).map(|noise| 100.0 + noise);
        let values: Vec<f64> = std::iter::repeat_n(0.0, 100).chain(sky).collect();
        let (black, white) = limits(GreyLimits::Auto, &values).unwrap();
        assert!(black > 96.0 && white < 104.0, "{black} {white}");
    }

    /// `astropy.visualization.ZScaleInterval` of the tenth roots of 0 to 999.
    #[test]
    fn limits_are_those_of_astropy() {
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i).powf(0.1)).collect();
        let (low, high) = limits(GreyLimits::Zscale, &values).unwrap();
        assert!(
            (low - ASTROPY.0).abs() < 1e-9 && (high - ASTROPY.1).abs() < 1e-9,
            "{low} {high}"
        );
    }

    const ASTROPY: (f64, f64) = (1.103_242_081_594_600_2, 1.995_062_698_893_672_4);

    #[test]
    fn limits_need_a_finite_value() {
        assert_eq!(limits(GreyLimits::Zscale, &[f64::NAN, f64::INFINITY]), None);
        assert_eq!(
            limits(GreyLimits::Zscale, &[f64::NAN, 3.0]),
            Some((3.0, 3.0))
        );
        assert_eq!(limits(GreyLimits::Percent(50.0), &[1.0]), Some((1.0, 1.0)));
    }

    proptest! {
        #[test]
        fn limits_are_among_the_values(values in prop::collection::vec(any::<f64>(), 1..300), percent in 0.0..100.0) {
            for limits in [GreyLimits::Auto, GreyLimits::Zscale, GreyLimits::MinMax, GreyLimits::Percent(percent)] {
                for curve in [None, Some(Curve::Linear), Some(Curve::Asinh)] {
                    let Some(tones) = of(limits, curve, &values) else { continue };
                    let (low, high) = tones.limits;
                    prop_assert!(low <= high && values.iter().any(|v| *v <= low) && values.iter().any(|v| *v >= high));
                    for value in &values {
                        let brightness = tones.brightness(*value);
                        prop_assert!(value.is_nan() || (0.0..=1.0).contains(&brightness), "{value} {tones:?}");
                    }
                }
            }
        }
    }
}
