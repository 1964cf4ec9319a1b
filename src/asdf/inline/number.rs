//! Values as bytes of a numeric type.

use super::Written;
use crate::asdf::datatype::Scalar;
use crate::asdf::numbers::{nearest, single};

/// Passes the value's bytes to `put`, the lowest first and the parts of a complex number one by one. `None` if the
/// type can't hold the value.
pub(super) fn encode(item: Written<'_>, scalar: Scalar, mut put: impl FnMut(&[u8])) -> Option<()> {
    match scalar {
        Scalar::Bool8 => put(&[u8::from(truth(item)?)]),
        Scalar::Float16 => put(&half(float(item)?).to_le_bytes()),
        Scalar::Float32 => put(&single(float(item)?).to_le_bytes()),
        Scalar::Float64 => put(&float(item)?.to_le_bytes()),
        Scalar::Complex64 => {
            let (re, im) = parts(item)?;
            put(&single(re).to_le_bytes());
            put(&single(im).to_le_bytes());
        }
        Scalar::Complex128 => {
            let (re, im) = parts(item)?;
            put(&re.to_le_bytes());
            put(&im.to_le_bytes());
        }
        _ => {
            // 128 bits hold every integer type, so the range is checked before bytes are cut off
            let value = integer(item)?;
            let (least, most) = range(scalar);
            if value < least || value > most {
                return None;
            }
            put(value.to_le_bytes().get(..usize::from(scalar.size()))?);
        }
    }
    Some(())
}

/// The least and the greatest value of an integer type.
fn range(scalar: Scalar) -> (i128, i128) {
    match scalar {
        Scalar::Int8 => (i8::MIN.into(), i8::MAX.into()),
        Scalar::Int16 => (i16::MIN.into(), i16::MAX.into()),
        Scalar::Int32 => (i32::MIN.into(), i32::MAX.into()),
        Scalar::Int64 => (i64::MIN.into(), i64::MAX.into()),
        Scalar::Uint8 => (0, u8::MAX.into()),
        Scalar::Uint16 => (0, u16::MAX.into()),
        Scalar::Uint32 => (0, u32::MAX.into()),
        Scalar::Uint64 => (0, u64::MAX.into()),
        _ => (0, 0),
    }
}

/// Whether a value is true: any number but zero is, a null is not.
fn truth(item: Written<'_>) -> Option<bool> {
    match item {
        Written::Null => Some(false),
        Written::Bool(b) => Some(b),
        Written::Int(n) => Some(n != 0),
        Written::Float(x) => Some(x != 0.0),
        Written::Complex(..) | Written::Text(_) => None,
    }
}

/// The value as an integer: a null is 0, and of a float the fraction is dropped. A text must be a decimal integer.
fn integer(item: Written<'_>) -> Option<i128> {
    match item {
        Written::Null => Some(0),
        Written::Bool(b) => Some(b.into()),
        Written::Int(n) => Some(n),
        Written::Float(x) => truncate(x),
        Written::Text(text) => text.trim().parse().ok(),
        Written::Complex(..) => None,
    }
}

/// The value as a float: a null is NaN, and an integer is rounded.
fn float(item: Written<'_>) -> Option<f64> {
    match item {
        Written::Null => Some(f64::NAN),
        Written::Bool(b) => Some(f64::from(u8::from(b))),
        Written::Int(n) => Some(nearest(n)),
        Written::Float(x) => Some(x),
        // `1e3` is a text in YAML 1.1, and a number beyond 128 bits arrives as a text too
        Written::Text(text) => real(&text.trim().replace('_', "")),
        Written::Complex(..) => None,
    }
}

/// Real and imaginary part of a value; 0 is the imaginary part of one that is not complex.
fn parts(item: Written<'_>) -> Option<(f64, f64)> {
    match item {
        Written::Complex(re, im) => Some((re, im)),
        Written::Text(text) => complex(text),
        item => Some((float(item)?, 0.0)),
    }
}

/// A complex number in the words of core/complex: `1+2i`, `-3J`, `(inf-1.5j)`, with any of `i`, `I`, `j`, `J`.
pub(super) fn complex(text: &str) -> Option<(f64, f64)> {
    let (re, im) = halves(text.trim());
    let re = match re {
        "" if im.is_some() => 0.0,
        re => real(re)?,
    };
    let im = match im {
        None => 0.0,
        Some("" | "+") => 1.0,
        Some("-") => -1.0,
        Some(im) => real(im)?,
    };
    Some((re, im))
}

/// The real and the imaginary part of a complex number as they are written, without its parentheses and unit. The real part of an
/// imaginary number is empty.
pub(in crate::asdf) fn halves(text: &str) -> (&str, Option<&str>) {
    let inner = text
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    let text = inner.unwrap_or(text);
    let Some(body) = text.strip_suffix(['i', 'I', 'j', 'J']) else {
        return (text, None);
    };
    let is_exponent = |at: usize| {
        let mut before = body.get(..at).unwrap_or_default().chars().rev();
        matches!(before.next(), Some('e' | 'E'))
    };
    // The sign of the imaginary part is the last one that is not an
    // exponent's. Without such a sign the whole number is imaginary.
    let mut signs = body.rmatch_indices(['+', '-']).map(|(at, _)| at);
    let sign = signs.find(|&at| !is_exponent(at)).unwrap_or(0);
    let (re, im) = body.split_at(sign);
    (re, Some(im))
}

/// A decimal number. As in Python, `1e400` is infinite, but an integer beyond the range of doubles is `None`.
fn real(text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    let digits = unsigned_digits(text);
    (x.is_finite() || !digits).then_some(x)
}

fn unsigned_digits(text: &str) -> bool {
    text.trim_start_matches(['+', '-'])
        .bytes()
        .all(|b| b.is_ascii_digit())
}

/// The integral part of a number, if it has one within 128 bits.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "finite and within range: the conversion only drops the fraction"
)]
fn truncate(x: f64) -> Option<i128> {
    // below 2^127, which is about 1.7e38
    (x.abs() < 1e38).then_some(x as i128)
}

/// The bits of the nearest half (IEEE 754 binary16), ties to even; infinite beyond its range.
fn half(x: f64) -> u16 {
    /// Bits of a double's fraction, and how many of them a half has no room for.
    const FRACTION: u32 = 52;
    const DROPPED: u32 = 42;
    const MIDDLE: u64 = 1 << (DROPPED - 1);
    /// The difference of the exponents' biases, where a double has its exponent.
    const BIAS: u64 = (1023 - 15) << FRACTION;
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = x.abs();
    if x.is_nan() {
        // a quiet NaN; the payload of the double is lost
        return sign | 0x7E00;
    }
    // 65520 is halfway from the greatest half, 65504, to 65536: the tie goes to infinity
    if magnitude >= 65520.0 {
        return sign | 0x7C00;
    }
    if magnitude < 1.0 / 16384.0 {
        // Below 2^-14 a half is subnormal: units of 2^-24, exact because only the exponent changes.
        return sign | tie_to_even(magnitude * 16_777_216.0);
    }
    let bits = magnitude.to_bits().saturating_sub(BIAS);
    let kept = bits >> DROPPED;
    let dropped = bits & ((1 << DROPPED) - 1);
    let up = dropped > MIDDLE || (dropped == MIDDLE && kept & 1 == 1);
    // A carry out of the fraction raises the exponent, as it should.
    let rounded = kept.saturating_add(u64::from(up));
    // never taken: below 65520 at most infinity comes out
    sign | u16::try_from(rounded).unwrap_or(0x7C00)
}

/// The nearest integer of a number from 0 to 1024.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, not negative and small"
)]
fn tie_to_even(x: f64) -> u16 {
    x.round_ties_even() as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::inline::Elements;
    use crate::asdf::inline::tests::declared;
    use proptest::prelude::*;

    #[test]
    fn halves_are_rounded_as_numpy_rounds_them() {
        // Recorded from NumPy 2: np.array([...], 'f2').
        let cases = [
            (65504.0, 0x7BFF),
            (65519.9, 0x7BFF),
            (65520.0, 0x7C00),
            (1e6, 0x7C00),
            (1e-8, 0),
            (5.96e-8, 1),
            (2.980_232_238_769_531_2e-8, 0),
            (3e-8, 1),
            (0.1, 0x2E66),
            (1.0 / 3.0, 0x3555),
            (-0.0, 0x8000),
            (1.000_488_281_25, 0x3C00),
            (1.001_464_843_75, 0x3C02),
            (f64::NEG_INFINITY, 0xFC00),
        ];
        for (x, bits) in cases {
            assert_eq!(half(x), bits, "{x}");
        }
    }

    #[test]
    fn complex_numbers_are_read_in_all_their_spellings() {
        // Expected values from Python's complex(), with i for j.
        let cases = [
            ("1-1j", (1.0, -1.0)),
            ("1J", (0.0, 1.0)),
            ("-1", (-1.0, 0.0)),
            ("1.5e-3+2E+4i", (1.5e-3, 2e4)),
            ("(1.5e3j)", (0.0, 1.5e3)),
            ("inf-1.5J", (f64::INFINITY, -1.5)),
            ("-INFi", (0.0, f64::NEG_INFINITY)),
            ("+.5-.25I", (0.5, -0.25)),
            ("j", (0.0, 1.0)),
            ("2-j", (2.0, -1.0)),
        ];
        for (text, value) in cases {
            assert_eq!(complex(text), Some(value), "{text}");
        }
        assert!(complex("nan+1i").is_some_and(|(re, _)| re.is_nan()));
        for text in ["", "one", "1+2", "1+2k", "1e+", "(1j", "1 + 2j"] {
            assert_eq!(complex(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_half_is_the_nearest_one(bits in 0u16..0x7C00, share in -0.49f64..0.49) {
            let value = |bits: u16| {
                let (exponent, fraction) = (i32::from(bits >> 10), f64::from(bits & 0x3FF));
                if exponent == 0 { fraction * 2f64.powi(-24) } else { (1024.0 + fraction) * 2f64.powi(exponent - 25) }
            };
            let x = value(bits);
            let step = if share < 0.0 && bits > 0 { x - value(bits - 1) } else { value(bits + 1) - x };
            prop_assert_eq!(half(x), bits);
            prop_assert_eq!(half(-x), bits | 0x8000);
            prop_assert_eq!(half(x + share.abs().copysign(if bits > 0 { share } else { 1.0 }) * step), bits);
        }
    }

    #[test]
    fn nulls_that_read_as_zeros_are_counted() {
        for (array, want) in [
            ("[[1, null], [~, 4]]", 2),
            ("{datatype: bool8, data: [null, true]}", 1),
            ("{datatype: [ascii, 2], data: [a, null]}", 1),
            ("[1.5, null]", 0),
            ("{datatype: complex64, data: [null]}", 0),
            ("{datatype: float32, data: [null, 1]}", 0),
            ("[1, 2]", 0),
            (
                "{datatype: [int8, float32, {datatype: int16, shape: [2]}], data: [[null, null, [null, 1]], [1, 2, [3, null]]]}",
                3,
            ),
        ] {
            let (tree, inline) = declared(array).unwrap();
            let elements = Elements::new(&tree, &inline).unwrap();
            assert_eq!(elements.nulls(), want, "{array}");
        }
    }
}
