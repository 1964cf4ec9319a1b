//! Timestamps: their form, by PyYAML's pattern, and whether they exist in the calendar and on the clock of Python's `datetime`.
//!
//! PyYAML makes a `date` or `datetime` of every timestamp, and refuses a file in which one is impossible. Years begin at 1, there
//! are no leap seconds, and a zone is less than a day.

const MINUTES_OF_A_DAY: u32 = 24 * 60;

/// The numbers of a timestamp as they are written. Those of a time or zone that is not there are 0.
#[derive(Default)]
struct Timestamp {
    /// Year, month and day.
    date: [u32; 3],
    /// Hour, minute and second, without its fraction.
    time: [u32; 3],
    /// Hours and minutes, without their sign.
    zone: [u32; 2],
}

/// Whether a text has the form of a timestamp. The date need not exist.
pub(super) fn is_timestamp(text: &str) -> bool {
    read(text).is_some()
}

/// Whether a scalar that is a timestamp by its looks or its tag is a date, or a date and time. A newline may follow, because `$` in
/// Python's pattern matches in front of one.
pub(super) fn is_date(text: &str) -> bool {
    let text = text.strip_suffix('\n').unwrap_or(text);
    read(text).is_some_and(|found| found.exists())
}

impl Timestamp {
    fn exists(&self) -> bool {
        let ([year, month, day], [hour, minute, second]) = (self.date, self.time);
        let [hours, minutes] = self.zone;
        let zone = hours.saturating_mul(60).saturating_add(minutes);
        let is_day = year > 0 && day > 0 && days(year, month).is_some_and(|days| day <= days);
        is_day && hour < 24 && minute < 60 && second < 60 && zone < MINUTES_OF_A_DAY
    }
}

/// The numbers of a timestamp; `None` if the text has not the form of one.
fn read(text: &str) -> Option<Timestamp> {
    let blank = |c| c == ' ' || c == '\t';
    let mut found = Timestamp::default();
    let (year, rest) = number(text, 4, 4)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 1, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 1, 2)?;
    found.date = [year, month, day];
    if rest.is_empty() {
        // a date alone has two digits for month and day; in front of a time one is enough
        return (text.len() == "2000-01-01".len()).then_some(found);
    }
    let time = match rest.strip_prefix(['T', 't']) {
        Some(time) => time,
        None => rest.strip_prefix(blank)?.trim_start_matches(blank),
    };
    let (hour, rest) = number(time, 1, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2, 2)?;
    let (second, rest) = number(rest.strip_prefix(':')?, 2, 2)?;
    found.time = [hour, minute, second];
    let fraction = rest.strip_prefix('.');
    let rest = fraction.map_or(rest, |digits| {
        digits.trim_start_matches(|c: char| c.is_ascii_digit())
    });
    // the zone: `Z`, or a sign with hours and perhaps minutes
    let zone = rest.trim_start_matches(blank);
    if rest.is_empty() || zone == "Z" {
        return Some(found);
    }
    let (hours, rest) = number(zone.strip_prefix(['-', '+'])?, 1, 2)?;
    let (minutes, rest) = match rest {
        "" => (0, ""),
        rest => number(rest.strip_prefix(':')?, 2, 2)?,
    };
    found.zone = [hours, minutes];
    rest.is_empty().then_some(found)
}

/// A number of so many digits at the start of a text, and what follows it.
fn number(text: &str, least: usize, most: usize) -> Option<(u32, &str)> {
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit);
    let (digits, rest) = text.split_at_checked(digits.count())?;
    let number = digits.parse().ok()?;
    (digits.len() >= least).then_some((number, rest))
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
