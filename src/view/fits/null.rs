//! The number that stands for no value, and how a header tells of it (FITS Standard 4.0, sections 4.4.2.5 and 7.3.2).

use crate::asdf::datatype::Datatype;
use crate::asdf::scalar::Value;

/// How a header tells of a number that stands for no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Null {
    /// By a card that readers know.
    Card(i128),
    /// By a comment with the number, which says why there is no card.
    Told(String, &'static str),
}

impl Null {
    /// How a header tells of that number among elements of the type, which FITS has with so many bits and something added to them. `None`
    /// if no element can be the number, or if FITS has it for no value.
    pub(super) fn of(
        number: Value<'_>,
        datatype: &Datatype,
        (bits, zero): (i8, Option<i128>),
    ) -> Option<Self> {
        let Datatype::Scalar(scalar, _) = datatype else {
            return None;
        };
        let text = match number {
            Value::Int(number) => number.to_string(),
            Value::Float(number) if !number.is_nan() => format!("{number:?}"),
            _ => return None,
        };
        let told = |text| Some(Self::Told(text, "of this type"));
        match (scalar.kind(), number) {
            ('f', _) => told(text),
            ('c', _) => told(format!("{text}+0j")),
            // a column of letters
            ('b', Value::Int(0 | 1)) if bits < 0 => told(text),
            // astropy fails to read a unit with BLANK and BZERO, or TNULL and TZERO
            (_, Value::Int(number)) if can_be(number, bits, zero) => Some(match zero {
                Some(_) => Self::Told(text, "beside an offset"),
                None => Self::Card(number),
            }),
            _ => None,
        }
    }
}

/// Whether an integer of so many bits, with what is added to it, can be that number.
fn can_be(number: i128, bits: i8, zero: Option<i128>) -> bool {
    let stored = number.saturating_sub(zero.unwrap_or(0));
    match bits {
        8 => u8::try_from(stored).is_ok(),
        16 => i16::try_from(stored).is_ok(),
        32 => i32::try_from(stored).is_ok(),
        64 => i64::try_from(stored).is_ok(),
        _ => false,
    }
}
