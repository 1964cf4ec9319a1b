//! The meaning of plain scalars: YAML 1.1 types as PyYAML resolves them, and their values.
//!
//! The Python library reads every tree through PyYAML, so its regular expressions decide, also where they differ from the
//! YAML 1.1 text: `0777` is octal, `1:30` is 90, `yes` is true, but `1e3` and `-.5` are strings. Knows text only; tags and
//! nodes are `tree`'s.

use std::borrow::Cow;

use super::timestamp::is_timestamp;

/// The type of a scalar in YAML 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// `~`, `null` or nothing at all.
    Null,
    /// `yes`, `off`, `true`, …
    Bool,
    /// Decimal, octal, hexadecimal, binary or sexagesimal.
    Int,
    /// With a decimal point; also `.inf` and `.nan`.
    Float,
    /// A date, or a date and time. ASDF libraries read it as a string.
    Timestamp,
    /// `<<`, the key that merges other mappings.
    Merge,
    /// `=`, YAML 1.1's default value.
    Default,
    /// Everything else.
    Str,
}

/// The value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'t> {
    /// Null.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer within 128 bits.
    Int(i128),
    /// An integer beyond that, as written.
    Huge(&'t str),
    /// A floating-point number.
    Float(f64),
    /// A string; also timestamps, `<<` and `=`.
    Str(&'t str),
    /// A text that its type does not allow, such as `0x_` or `!!int one`.
    Malformed(&'t str),
}

/// The types with the last part of their tags, `tag:yaml.org,2002:…`.
const TAGS: [(Type, &str); 8] = [
    (Type::Null, "null"),
    (Type::Bool, "bool"),
    (Type::Int, "int"),
    (Type::Float, "float"),
    (Type::Timestamp, "timestamp"),
    (Type::Merge, "merge"),
    (Type::Default, "value"),
    (Type::Str, "str"),
];

/// What all tags of YAML's own types begin with.
pub(super) const TAG_PREFIX: &str = "tag:yaml.org,2002:";

impl Type {
    /// The type that a plain scalar of that text has.
    #[must_use]
    pub fn implicit(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "<<" => return Self::Merge,
            "=" => return Self::Default,
            _ => {}
        }
        // by the first character, as PyYAML chooses its patterns
        match text.as_bytes().first() {
            Some(b'0'..=b'9' | b'+' | b'-' | b'.') if is_int(text) => Self::Int,
            Some(b'0'..=b'9' | b'+' | b'-' | b'.') if is_float(text) => Self::Float,
            Some(b'0'..=b'9') if is_timestamp(text) => Self::Timestamp,
            Some(_) if bool_value(text, false).is_some() => Self::Bool,
            _ => Self::Str,
        }
    }

    /// The type that an explicit tag names, if it is one of YAML's own for scalars.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        let name = tag.strip_prefix(TAG_PREFIX)?;
        TAGS.iter()
            .find(|entry| entry.1 == name)
            .map(|entry| entry.0)
    }

    /// The short name of its tag: `int`, `str`, …
    #[must_use]
    pub fn name(self) -> &'static str {
        TAGS.iter()
            .find(|entry| entry.0 == self)
            .map_or("str", |entry| entry.1)
    }

    /// The value of `text`, which has this type by its looks or by an explicit tag.
    #[must_use]
    pub fn value(self, text: &str) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool => bool_value(text, true).map_or(Value::Malformed(text), Value::Bool),
            Self::Int => int_value(text),
            Self::Float => float_value(text).map_or(Value::Malformed(text), Value::Float),
            Self::Timestamp | Self::Merge | Self::Default | Self::Str => Value::Str(text),
        }
    }
}

/// The words for true and false; three spellings each as plain scalars, any case under an explicit `!!bool`.
fn bool_value(text: &str, any_case: bool) -> Option<bool> {
    const WORDS: [(&str, bool); 6] = [
        ("yes", true),
        ("no", false),
        ("true", true),
        ("false", false),
        ("on", true),
        ("off", false),
    ];
    let (_, value) = WORDS
        .into_iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text))?;
    let mut letters = text.bytes();
    let capital = letters.next().is_some_and(|b| b.is_ascii_uppercase());
    let rest_lower = letters.clone().all(|b| b.is_ascii_lowercase());
    let rest_upper = letters.all(|b| b.is_ascii_uppercase());
    // `yes`, `Yes` and `YES`, but not `yEs`
    (any_case || rest_lower || (capital && rest_upper)).then_some(value)
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn digit_or_underscore(c: char) -> bool {
    digit(c) || c == '_'
}

/// `text` without the prefix that matches `[0-9][0-9_]*`.
fn after_digits(text: &str) -> Option<&str> {
    Some(
        text.strip_prefix(digit)?
            .trim_start_matches(digit_or_underscore),
    )
}

/// `text` without the prefix that matches `(:[0-5]?[0-9])+`.
fn after_sixtieths(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(part) = rest.strip_prefix(':') {
        let one = part.strip_prefix(digit)?;
        // of two digits the first is at most 5
        let small = part.starts_with(|c| matches!(c, '0'..='5'));
        rest = one.strip_prefix(digit).filter(|_| small).unwrap_or(one);
    }
    (rest.len() < text.len()).then_some(rest)
}

/// Whether PyYAML's resolver takes a plain scalar for an integer: binary, octal with a leading zero, decimal, hexadecimal or in base 60.
fn is_int(text: &str) -> bool {
    let text = unsigned(text);
    let all = |rest: &str, allowed: fn(char) -> bool| {
        !rest.is_empty() && rest.chars().all(|c| c == '_' || allowed(c))
    };
    if let Some(rest) = text.strip_prefix("0b") {
        all(rest, |c| matches!(c, '0' | '1'))
    } else if let Some(rest) = text.strip_prefix("0x") {
        all(rest, |c| c.is_ascii_hexdigit())
    } else if let Some(rest) = text.strip_prefix('0') {
        // a zero alone is no octal number without digits
        rest.is_empty() || all(rest, |c| matches!(c, '0'..='7'))
    } else {
        after_digits(text)
            .is_some_and(|rest| rest.is_empty() || after_sixtieths(rest).is_some_and(str::is_empty))
    }
}

/// Whether PyYAML's resolver takes a plain scalar for a float. It needs a point, and its exponent a sign; one that begins with the
/// point has no sign in front, unless it is `.inf`.
fn is_float(text: &str) -> bool {
    let body = unsigned(text);
    let signed = body.len() < text.len();
    if let Some(fraction) = body.strip_prefix('.') {
        return match fraction {
            "inf" | "Inf" | "INF" => true,
            "nan" | "NaN" | "NAN" => !signed,
            _ => !signed && after_digits(fraction).is_some_and(is_exponent),
        };
    }
    let Some(rest) = after_digits(body) else {
        return false;
    };
    if let Some(fraction) = rest.strip_prefix('.') {
        return is_exponent(fraction.trim_start_matches(digit_or_underscore));
    }
    // base 60, with a point in the last part
    after_sixtieths(rest)
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|fraction| fraction.chars().all(digit_or_underscore))
}

/// Whether `text` is nothing or an exponent with a sign, which PyYAML demands.
fn is_exponent(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(['e', 'E'])
            .and_then(|rest| rest.strip_prefix(['-', '+']))
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(digit))
}

/// A number without the underscores that may stand between its digits.
fn without_underscores(text: &str) -> Cow<'_, str> {
    if text.contains('_') {
        text.replace('_', "").into()
    } else {
        text.into()
    }
}

/// The value of an integer by PyYAML's constructor: one sign, and then any text that Python's `int` takes. That text may have
/// blanks, a sign and a prefix of its own.
fn int_value(text: &str) -> Value<'_> {
    let plain = without_underscores(text);
    let body = unsigned(&plain);
    let magnitude = if let Some(binary) = body.strip_prefix("0b") {
        in_radix(binary, 2)
    } else if let Some(hexadecimal) = body.strip_prefix("0x") {
        in_radix(hexadecimal, 16)
    // Python's `int(text, 8)` also takes `0o17`, which comes here under a tag `!!int`
    } else if body.starts_with('0') {
        in_radix(body, 8)
    } else {
        in_sixtieths(body)
    };
    match magnitude {
        Value::Int(n) if plain.starts_with('-') => {
            n.checked_neg().map_or(Value::Huge(text), Value::Int)
        }
        Value::Int(n) => Value::Int(n),
        Value::Huge(_) => Value::Huge(text),
        _ => Value::Malformed(text),
    }
}

/// The number that Python's `int` makes of a text in that base, if it is one.
fn in_radix(text: &str, radix: u32) -> Value<'_> {
    let number = text.trim();
    let body = unsigned(number);
    let prefix = match radix {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    // Python's `int` takes the prefix of its base in either case
    let has_prefix = |start: &&str| start.eq_ignore_ascii_case(prefix);
    let start = body.get(..2).filter(has_prefix);
    let digits = start.and_then(|_| body.get(2..)).unwrap_or(body);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Value::Malformed(text);
    }
    match i128::from_str_radix(digits, radix) {
        Ok(n) if number.starts_with('-') => n.checked_neg().map_or(Value::Huge(text), Value::Int),
        Ok(n) => Value::Int(n),
        Err(_) => Value::Huge(text),
    }
}

/// Decimal numbers in base 60, divided by colons. A number without a colon stays as it is.
fn in_sixtieths(text: &str) -> Value<'_> {
    let parts = text.split(':').map(|part| in_radix(part, 10));
    parts.fold(Value::Int(0), |sum, part| match (sum, part) {
        (Value::Int(high), Value::Int(low)) => high
            .checked_mul(60)
            .and_then(|high| high.checked_add(low))
            .map_or(Value::Huge(text), Value::Int),
        // one part that is no number makes all of it none, whatever the others are
        (Value::Malformed(_), _) | (_, Value::Malformed(_)) => Value::Malformed(text),
        _ => Value::Huge(text),
    })
}

/// The value of a float by PyYAML's constructor; `None` if the text is no float. In base 60 the last part is added first, as in
/// PyYAML: the order decides how the sum is rounded.
fn float_value(text: &str) -> Option<f64> {
    let mut plain = without_underscores(text);
    if plain.contains(|c: char| c.is_ascii_uppercase()) {
        // as PyYAML does before it looks for `.inf`, `.nan` and exponents
        plain = plain.to_ascii_lowercase().into();
    }
    let body = unsigned(&plain);
    let magnitude = match body {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ if body.contains(':') => {
            let mut sum = 0.0;
            let mut base = 1.0;
            for part in body.rsplit(':') {
                sum += part.trim().parse::<f64>().ok()? * base;
                base *= 60.0;
            }
            sum
        }
        _ => body.trim().parse().ok()?,
    };
    Some(if plain.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Texts with the type and value that PyYAML 6.0.3 gives them (`text<TAB>type<TAB>value`), one a line.
    const RECORDED: &str = include_str!("../../tests/data/yaml11-scalars.tsv");

    /// A value in the words of the recording.
    fn recorded_form(value: Value<'_>) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Huge(_) => "huge".into(),
            Value::Float(x) if x.is_nan() => "nan".into(),
            Value::Float(x) => format!("{:016x}", x.to_bits()),
            Value::Str(text) => text.into(),
            Value::Malformed(_) => "error".into(),
        }
    }

    #[test]
    fn every_recorded_scalar_resolves_as_in_pyyaml() {
        let mut count = 0;
        for line in RECORDED.lines() {
            let [text, name, value] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("bad line {line:?}");
            };
            let kind = Type::implicit(text);
            assert_eq!(kind.name(), name, "type of {text:?}");
            assert_eq!(recorded_form(kind.value(text)), value, "value of {text:?}");
            count += 1;
        }
        assert!(count > 500, "only {count} recorded scalars");
    }

    #[test]
    fn an_explicit_tag_reads_what_a_plain_scalar_would_not() {
        let of = |tag: &str, text| recorded_form(Type::from_tag(tag).unwrap().value(text));
        assert_eq!(of("tag:yaml.org,2002:bool", "yEs"), "true");
        assert_eq!(of("tag:yaml.org,2002:int", "0o17"), "15");
        assert_eq!(
            of("tag:yaml.org,2002:float", "1e3"),
            recorded_form(Value::Float(1000.0))
        );
        assert_eq!(of("tag:yaml.org,2002:str", "12"), "12");
        assert_eq!(
            Type::from_tag("tag:stsci.edu:asdf/core/complex-1.0.0"),
            None
        );
    }

    #[test]
    fn a_tagged_number_is_what_python_makes_of_it() {
        // Verdicts of yaml.safe_load of PyYAML.
        for (text, value) in [
            ("+-5", "-5"),
            ("--5", "5"),
            ("- 5 ", "-5"),
            (" 010", "10"),
            ("0x-F", "-15"),
            ("0x0X5", "5"),
            ("0O17", "15"),
            ("0b1\n", "1"),
            ("_5_", "5"),
            ("1: -2", "58"),
            ("one", "error"),
            ("", "error"),
            ("_", "error"),
            ("-", "error"),
            (" 0x1F", "error"),
            ("0X1F", "error"),
            ("0b12", "error"),
            ("089", "error"),
            ("0:1", "error"),
            ("1:0o5", "error"),
            (":1", "error"),
            ("5.0", "error"),
            ("1e3", "error"),
            ("0x", "error"),
            ("\u{1c}5", "error"),
        ] {
            assert_eq!(recorded_form(Type::Int.value(text)), value, "{text:?}");
        }
        for good in [
            "--1", "- 1", " 1 ", "1:+2", "1: inf", "Infinity", "nan", ".iNF", "-.nan", "1.e3",
        ] {
            let value = Type::Float.value(good);
            assert!(matches!(value, Value::Float(_)), "{good:?}");
        }
        for bad in [
            "x", "", "_", "+", ".", "1e", "1:", ":1", "1:--2", "0x1F", " .inf", ".inf ", "1d3", "~",
        ] {
            let value = Type::Float.value(bad);
            assert_eq!(value, Value::Malformed(bad), "{bad:?}");
        }
        for (text, value) in [
            ("oN", "true"),
            ("y", "error"),
            ("", "error"),
            (" yes", "error"),
        ] {
            assert_eq!(recorded_form(Type::Bool.value(text)), value, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn decimal_integers_and_floats_come_back(n: i64, x in proptest::num::f64::NORMAL) {
            let text = n.to_string();
            prop_assert_eq!(Type::implicit(&text), Type::Int);
            prop_assert_eq!(Type::Int.value(&text), Value::Int(n.into()));
            let text = format!("{x:?}");
            if text.contains('.') && !text.contains('e') {
                prop_assert_eq!(Type::implicit(&text), Type::Float);
                prop_assert_eq!(Type::Float.value(&text), Value::Float(x));
            }
        }

        #[test]
        fn what_looks_like_a_float_has_a_value(text in "[-+]?[0-9._:e]{0,12}") {
            if Type::implicit(&text) == Type::Float {
                prop_assert!(matches!(Type::Float.value(&text), Value::Float(_)), "{}", text);
            }
        }
    }
}
