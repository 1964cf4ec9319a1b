//! Numbers as text, in few characters.

/// Digits of numbers in captions and at axes, and the most that tell two numbers apart.
pub(super) const DIGITS: usize = 6;
pub(super) const MOST_DIGITS: usize = 15;
/// How many times as large as their range numbers are that differ in their last digits alone.
const ALIKE: f64 = 1e3;

/// What the numbers of a range have in common, if that is all but their last digits: of days in a few hours, the first of them. Else 0.
pub(super) fn common((low, high): (f64, f64)) -> f64 {
    let (range, largest) = (high - low, low.abs().max(high.abs()));
    if largest / range < ALIKE || is_rounding((low, high)) {
        return 0.0;
    }
    let unit = 10_f64.powf(range.log10().ceil());
    (low / unit).floor() * unit
}

/// Whether two numbers are one, but for how they were rounded.
pub(super) fn is_rounding((low, high): (f64, f64)) -> bool {
    high / 2.0 - low / 2.0 <= low.abs().max(high.abs()) * (4.0 * f64::EPSILON)
}

/// A number of a range with so many digits, without what all of the range have in common.
pub(super) fn within(limits: (f64, f64), number: f64, digits: usize) -> String {
    // what is to be 0 may be nearly that
    let is_zero = number.abs() < (limits.1 / 2.0 - limits.0 / 2.0) * 1e-12;
    let number = if is_zero { 0.0 } else { number };
    short(number - common(limits), digits)
}

/// A range in words.
pub(super) fn range(limits: (f64, f64)) -> String {
    let common = common(limits);
    let [low, high] = [limits.0, limits.1].map(|end| short(end - common, DIGITS));
    if common == 0.0 {
        return format!("{low} .. {high}");
    }
    format!("{} + ({low} .. {high})", short(common, MOST_DIGITS))
}

/// A number in few characters, with so many digits.
pub(in crate::view) fn short(number: f64, digits: usize) -> String {
    let trimmed = |text: &str| {
        let is_whole = !text.contains('.');
        let digits = text.trim_end_matches(|c| c == '0' && !is_whole);
        digits.trim_end_matches('.').to_owned()
    };
    let text = format!("{number:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = i32::try_from(digits).unwrap_or(1);
    match exponent.parse::<i32>() {
        Ok(power) if (-3..digits.max(6)).contains(&power) => {
            let behind = digits.saturating_sub(power).saturating_sub(1);
            let behind = usize::try_from(behind).unwrap_or(0);
            trimmed(&format!("{number:.behind$}"))
        }
        _ => format!("{}e{exponent}", trimmed(mantissa)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, digits, want) in [
            (0.0, 4, "0"),
            (100.0, 4, "100"),
            (-1.25, 6, "-1.25"),
            (1e-9, 4, "1e-9"),
            (1.234_567_8e20, 5, "1.2346e20"),
            (366.877, 4, "366.9"),
            (999_999.6, 4, "1e6"),
            (0.001_234, 3, "0.00123"),
        ] {
            assert_eq!(short(number, digits), want);
        }
    }
}
