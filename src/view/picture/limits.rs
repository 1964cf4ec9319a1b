//! Which values are black and white: limits as image viewers choose them.

use crate::asdf::numbers::unsigned;
use crate::source::len_u64;

/// How the limits of a picture are chosen, of the finite values of its points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GreyLimits {
    /// By the slope of the sorted values near their median, as IRAF and DS9 do.
    Zscale,
    /// The smallest and the largest.
    MinMax,
    /// Those around so many percent of them, as many below as above.
    Percent(f64),
}

/// How values between the limits become grey.
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
/// How much the asinh curve lifts what is faint, as in DS9.
const SOFTENING: f64 = 10.0;

impl GreyLimits {
    /// The limits for these values; `None` if none is finite.
    pub(super) fn of(self, values: &[f64]) -> Option<(f64, f64)> {
        let mut finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        if let Self::Zscale = self {
            let step = (finite.len() / SAMPLE).max(1);
            finite = finite.into_iter().step_by(step).take(SAMPLE).collect();
        }
        finite.sort_unstable_by(f64::total_cmp);
        let (first, last) = (*finite.first()?, *finite.last()?);
        Some(match self {
            Self::MinMax => (first, last),
            Self::Percent(percent) => {
                let cut = ((100.0 - percent) / 200.0).clamp(0.0, 0.5);
                let below = share(finite.len(), cut);
                let above = finite.len().saturating_sub(below).saturating_sub(1);
                let at = |i: usize| finite.get(i).copied();
                (at(below).unwrap_or(first), at(above).unwrap_or(last))
            }
            Self::Zscale => zscale(&finite),
        })
    }

    /// It in words.
    pub(super) fn name(self) -> String {
        match self {
            Self::Zscale => "zscale".to_owned(),
            Self::MinMax => "minmax".to_owned(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

impl Curve {
    /// How bright a value is, from 0 to 1.
    pub(super) fn brightness(self, value: f64, (low, high): (f64, f64)) -> f64 {
        // halves, as the range may be larger than the largest number
        let range = high / 2.0 - low / 2.0;
        let part = if range > 0.0 {
            ((value / 2.0 - low / 2.0) / range).clamp(0.0, 1.0)
        } else {
            0.5
        };
        match self {
            Self::Linear => part,
            Self::Asinh => (part * SOFTENING).asinh() / SOFTENING.asinh(),
        }
    }

    /// It in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Asinh => "asinh",
        }
    }
}

/// That part of a length, rounded down.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a length is one"
)]
fn share(len: usize, part: f64) -> usize {
    (part * length(len)) as usize
}

fn length(len: usize) -> f64 {
    unsigned(len_u64(len))
}

/// IRAF's zscale of sorted values: a line is fitted to them by least squares, without those that deviate, and the limits are where
/// that line, made steeper, would reach from the median to the first and the last.
fn zscale(sorted: &[f64]) -> (f64, f64) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return (0.0, 0.0);
    };
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied().unwrap_or(*first);
    let median = match sorted.get(middle.wrapping_sub(1)) {
        Some(lower) if sorted.len().is_multiple_of(2) => lower / 2.0 + upper / 2.0,
        _ => upper,
    };
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
    let centre = sorted.len().saturating_sub(1) / 2;
    let low = median - slope * (length(centre) - 1.0);
    let high = median + slope * length(sorted.len().saturating_sub(centre));
    (low.max(*first), high.min(*last))
}

/// Leaves out the values that deviate from the line, and those next to them: a hundredth of all around each.
fn reject(sorted: &[f64], kept: &mut [bool], line: (f64, f64, f64)) {
    let grown = (sorted.len() / 100).max(1);
    let (before, behind) = (grown.saturating_sub(1) / 2, grown / 2);
    let deviates = |(i, value): &(usize, &f64)| {
        (*value - line.0 - line.1 * length(*i)).abs() > REJECTED * line.2
    };
    let points = sorted.iter().enumerate();
    let mut bad: Vec<usize> = points.filter(deviates).map(|(i, _)| i).collect();
    let known = kept.iter().enumerate().filter(|(_, kept)| !**kept);
    bad.extend(known.map(|(i, _)| i));
    for i in bad {
        let around = i.saturating_sub(before)..=i.saturating_add(behind);
        for at in around {
            if let Some(kept) = kept.get_mut(at) {
                *kept = false;
            }
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

    #[test]
    fn a_sky_with_a_star_is_shown_by_its_sky() {
        let mut values: Vec<f64> = (0..1000)
            .map(|i| 100.0 + f64::from(i % 100) / 100.0)
            .collect();
        values[500] = 1e6;
        let (low, high) = GreyLimits::Zscale.of(&values).unwrap();
        assert!(
            low >= 100.0 && (100.9..110.0).contains(&high),
            "{low} {high}"
        );
        assert_eq!(GreyLimits::MinMax.of(&values), Some((100.0, 1e6)));
        assert_eq!(
            GreyLimits::Percent(90.0).of(&values),
            Some((100.05, 100.95))
        );
    }

    /// `astropy.visualization.ZScaleInterval` of the tenth roots of 0 to 999.
    #[test]
    fn limits_are_those_of_astropy() {
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i).powf(0.1)).collect();
        let (low, high) = GreyLimits::Zscale.of(&values).unwrap();
        assert!(
            (low - ASTROPY.0).abs() < 1e-9 && (high - ASTROPY.1).abs() < 1e-9,
            "{low} {high}"
        );
    }

    const ASTROPY: (f64, f64) = (1.103_242_081_594_600_2, 1.995_062_698_893_672_4);

    #[test]
    fn limits_need_a_finite_value() {
        assert_eq!(GreyLimits::Zscale.of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(GreyLimits::Zscale.of(&[f64::NAN, 3.0]), Some((3.0, 3.0)));
        assert_eq!(GreyLimits::Percent(50.0).of(&[1.0]), Some((1.0, 1.0)));
    }

    proptest! {
        #[test]
        fn limits_are_among_the_values(values in prop::collection::vec(any::<f64>(), 1..300), percent in 0.0..100.0) {
            for limits in [GreyLimits::Zscale, GreyLimits::MinMax, GreyLimits::Percent(percent)] {
                if let Some((low, high)) = limits.of(&values) {
                    prop_assert!(low <= high && values.iter().any(|v| *v <= low) && values.iter().any(|v| *v >= high));
                    for curve in [Curve::Linear, Curve::Asinh] {
                        for value in &values {
                            let brightness = curve.brightness(*value, (low, high));
                            prop_assert!(value.is_nan() || (0.0..=1.0).contains(&brightness));
                        }
                    }
                }
            }
        }
    }
}
