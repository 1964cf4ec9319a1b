//! Whether a timestamp exists in the calendar and on the clock of Python's `datetime`.
//!
//! PyYAML makes a `date` or `datetime` of every timestamp, and refuses a file in which one is impossible. Years begin at 1, there
//! are no leap seconds, and a zone is less than a day.

use super::scalar::is_timestamp;

const MINUTES_OF_A_DAY: u32 = 24 * 60;

/// Whether a scalar that is a timestamp by its looks or its tag is a date, or a date and time. A newline may follow, because `$` in
/// Python's pattern matches in front of one.
pub(super) fn is_date(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    is_timestamp(text) && read(text).is_some()
}

/// Goes through the numbers of a timestamp, from the year to the zone; `None` if one of them is impossible.
fn read(text: &str) -> Option<()> {
    let mut rest = text;
    let (year, month, day) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
    if year == 0 || day == 0 || day > days(year, month)? {
        return None;
    }
    // a date without a time
    let Some(hour) = number(&mut rest) else {
        return Some(());
    };
    let (minute, second) = (number(&mut rest)?, number(&mut rest)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // as a whole, because its digits may be too many for a number
    if rest.starts_with('.') {
        rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    }
    // no zone, a `Z`, or hours and perhaps minutes
    let hours = number(&mut rest).unwrap_or(0);
    let zone = hours
        .checked_mul(60)?
        .checked_add(number(&mut rest).unwrap_or(0))?;
    (zone < MINUTES_OF_A_DAY).then_some(())
}

/// Days of a month in the Gregorian calendar; `None` if there is no such month.
fn days(year: u32, month: u32) -> Option<u32> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 if is_leap => Some(29),
        2 => Some(28),
        _ => None,
    }
}

/// Takes the next number from `text`, with all that stands in front of it.
fn number(text: &mut &str) -> Option<u32> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = text.get(start..)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, rest) = rest.split_at_checked(end)?;
    *text = rest;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_makes_dates_of_the_same_timestamps() {
        // Verdicts of yaml.safe_load of PyYAML.
        for good in [
            "2000-02-29",
            "0001-01-01",
            "9999-12-31",
            "2001-1-1 0:00:00",
            "2001-01-01 1:00:00 +23:59",
            "2001-01-01 1:00:00.99999999 Z",
            "2001-01-01 1:00:00.",
            "0001-01-01 00:00:00 +01:00",
            "9999-12-31 23:00:00 -5",
            "2001-01-01 1:00:00 +00:99",
            "2001-01-01 1:00:00 -0",
            "2001-01-01 1:00:00 -00:30",
            "2001-01-01\n",
        ] {
            assert!(is_date(good), "{good}");
        }
        for bad in [
            "2001-13-45",
            "2001-02-29",
            "1900-02-29",
            "0000-01-01",
            "2001-00-01",
            "2001-01-00",
            "2001-04-31",
            "2001-01-01 24:00:00",
            "2001-01-01 23:60:00",
            "2001-01-01 23:59:60",
            "2001-01-01 1:00:00 +24:00",
            "2001-01-01 1:00:00 -24",
            "2001-01-01 1:00:00 -23:99",
            "2001-01-01 1:00:00 +23:60",
            "2001-01-01\n\n",
            "2001-01-01 ",
            "foo",
            "",
        ] {
            assert!(!is_date(bad), "{bad}");
        }
    }
}
