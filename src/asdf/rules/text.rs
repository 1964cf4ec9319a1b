//! The patterns for strings in the standard's schemas. As in JSON Schema, a pattern without anchors may
//! match anywhere in the string.

use crate::asdf::inline::number::halves;

/// `[A-Za-z_][A-Za-z0-9_]*`
pub(super) fn has_letter(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// `^[+-]$`, where `$` also stands before a newline at the end.
pub(super) fn is_sign(text: &str) -> bool {
    matches!(text.strip_suffix('\n').unwrap_or(text), "+" | "-")
}

/// The four patterns of a time: ISO, year and day, Besselian and Julian year. Their alternatives are not in brackets. Together they
/// therefore ask for no more than two digits of a month, day or hour, or for the letter and first digit of a year.
pub(super) fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let pair = bytes
        .windows(2)
        .any(|pair| matches!(pair, [b'0'..=b'2' | b'B' | b'J', b'0'..=b'9']));
    pair || bytes
        .windows(3)
        .any(|three| matches!(three, [b'3', b'0'..=b'5', b'0'..=b'9']))
}

/// A version by PEP 440, as Python's `packaging` 26 matches it. (Python also refuses numbers of more than 4300 digits.)
pub(super) fn is_version(text: &str) -> bool {
    // Python's `\s` has the separators of ASCII, too
    let blank = |c: char| c.is_whitespace() || matches!(c, '\x1c'..='\x1f');
    let text = text.trim_matches(blank).to_ascii_lowercase();
    let text = text.strip_prefix('v').unwrap_or(&text);
    let (public, local) = match text.split_once('+') {
        Some((public, local)) => (public, Some(local)),
        None => (text, None),
    };
    let is_word = |word: &str| {
        let mut bytes = word.bytes();
        !word.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric())
    };
    after_public(public) == Some("")
        && local.is_none_or(|local| local.split(SEPARATORS).all(is_word))
}

/// What stands between the parts of a version.
const SEPARATORS: [char; 3] = ['.', '_', '-'];

/// The rest of `text` behind a version without its local part: `EPOCH!RELEASE`, then parts such as `rc1`, `.post2` and `.dev3`.
fn after_public(text: &str) -> Option<&str> {
    let first = after_digits(text)?;
    let mut rest = match first.strip_prefix('!') {
        Some(release) => after_digits(release)?,
        None => first,
    };
    while let Some(next) = rest.strip_prefix('.').and_then(after_digits) {
        rest = next;
    }
    let early = ["alpha", "a", "beta", "b", "preview", "pre", "c", "rc"];
    rest = after_part(rest, &early).unwrap_or(rest);
    // a post-release may be a bare number, as in `1.0-1`
    let post = rest.strip_prefix('-').and_then(after_digits);
    let post = post.or_else(|| after_part(rest, &["post", "rev", "r"]));
    rest = post.unwrap_or(rest);
    Some(after_part(rest, &["dev"]).unwrap_or(rest))
}

/// The rest of `text` behind a part that begins with one of the words, maybe with a number.
fn after_part<'t>(text: &'t str, words: &[&str]) -> Option<&'t str> {
    let bare = |text: &'t str| text.strip_prefix(SEPARATORS).unwrap_or(text);
    let number = bare(
        words
            .iter()
            .find_map(|word| bare(text).strip_prefix(word))?,
    );
    Some(after_digits(number).unwrap_or(number))
}

/// The rest of `text` behind the digits at its start, if it has some.
fn after_digits(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// A complex number: a real part, an imaginary part that ends in `i` or `j`, or both; maybe in parentheses.
pub(super) fn is_complex(text: &str) -> bool {
    let (re, im) = halves(text.strip_suffix('\n').unwrap_or(text));
    let is_imaginary = re.is_empty() && im.is_some();
    (is_imaginary || is_real(re)) && im.is_none_or(is_real)
}

/// A number of the pattern: digits, maybe with a point in front of the last ones, or `inf` or `nan` in letters of one case; and maybe an
/// exponent.
fn is_real(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = unsigned(mantissa);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or(("", mantissa));
    let is_digits = |text: &str| after_digits(text) == Some("");
    let is_number = is_digits(fraction) && (whole.is_empty() || is_digits(whole));
    (is_number || ["inf", "INF", "nan", "NAN"].contains(&mantissa)) && is_digits(unsigned(exponent))
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// Whether an integer lies between two numbers that are integers themselves.
pub(super) fn between(n: i128, least: f64, most: f64) -> bool {
    // the rules have small bounds, so an integer beyond 32 bits is outside
    i32::try_from(n).is_ok_and(|n| (least..=most).contains(&f64::from(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_told_as_by_the_pattern_of_the_schema() {
        // Verdicts of Python's `re.search` with the pattern of core/complex-1.0.0.
        for text in [
            "1",
            "-1",
            "+.5",
            "1.5",
            "1e5",
            "1E-5",
            "1i",
            "-1J",
            ".5e3j",
            "1+1j",
            "1-2.5e-3I",
            "(1+1j)",
            "(1)",
            "inf",
            "nan+infj",
            "-INF-NANj",
            "1\n",
            "(-2i)",
        ] {
            assert!(is_complex(text), "{text:?}");
        }
        for text in [
            "", "j", "1.", "1+", "1+j", "1 + 1j", "1j+1", "(1+1j", "1+1j)", "1e", "1++1j", "x",
            "1+1", "Inf", "((1))", "1\n\n", "1ej",
        ] {
            assert!(!is_complex(text), "{text:?}");
        }
    }

    #[test]
    fn versions_are_told_as_by_python() {
        // Verdicts of `Version` of Python's packaging 26.4.
        for text in [
            "1",
            "6.0.0",
            " v1.0 ",
            "1!2.3",
            "1.0a",
            "1.0ALPHA-1",
            "1.0a-",
            "1.0_rc.2",
            "1.0c1.post2.dev3",
            "1.0-1",
            "1.0a-1-2",
            "1.0rev4",
            "0.1.dev1+g12ab.d20261128",
            "1+A_b-3",
            "\t1.0\u{85}\x1c",
        ] {
            assert!(is_version(text), "{text:?}");
        }
        for text in [
            "",
            "v",
            "unknown",
            "1.",
            ".1",
            "1..2",
            "1!",
            "!1",
            "1.0x",
            "1.0 a",
            "1.0--1",
            "1.0+",
            "1.0+a..b",
            "1.0+a b",
            "1+ä",
            "1.0dev1a",
            "1.0-1post2",
            "1.0.post1.post2",
            "1.0+a+b",
            "vv1",
            "a1",
            "1.0-",
        ] {
            assert!(!is_version(text), "{text:?}");
        }
    }

    #[test]
    fn times_are_told_as_by_the_patterns_of_the_schema() {
        for text in [
            "2026-11-21T09:35:16",
            "B1950.0",
            "J2000",
            "2000:001:00:00:00",
            "x12",
            "355",
        ] {
            assert!(is_time(text), "{text:?}");
        }
        for text in ["", "noon", "9", "B", "J.5", "36x", "399"] {
            assert!(!is_time(text), "{text:?}");
        }
    }
}
