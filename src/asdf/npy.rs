//! The header of an NPY file: what `numpy.save` writes in front of the elements of an array.
//!
//! NumPy's `numpy.lib.format`: six bytes of magic, two of version, the length of the text (two bytes in version 1.0, four later,
//! little-endian), and a Python dictionary as text, in Latin-1 or, from version 3.0 on, UTF-8. The text ends in spaces and a
//! newline, so that the elements begin at a multiple of 64 bytes.

mod read;

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};

use super::datatype::{ByteOrder, Datatype, Field};
use crate::error::{Result, unsupported};

pub use read::Header;
pub(super) use read::plain;

/// First bytes of an NPY file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// The elements begin at a multiple of this.
const ALIGN: usize = 64;

/// Digits that numpy leaves room for in the first dimension, so that a file can grow without its header moving.
const GROWTH_DIGITS: usize = 21;

/// The header for an array of that datatype and shape.
///
/// It is byte for byte what numpy writes. Where numpy has no such type because a name is used twice, the later ones get a number;
/// a field without a name is called `f` and its position, as in numpy.
///
/// # Errors
/// [`Error::Unsupported`](crate::error::Error::Unsupported) if the datatype has no size or the text exceeds 4 GiB.
pub fn header(datatype: &Datatype, shape: &[u64], fortran_order: bool) -> Result<Vec<u8>> {
    // This also bounds the depth of the recursion below.
    if datatype.size().is_none() {
        return Err(unsupported("a datatype nested too deep or too large"));
    }
    let mut text = String::from("{'descr': ");
    dictionary(&mut text, datatype, shape, fortran_order)
        .map_err(|_| unsupported("a datatype that can't be written as text"))?;
    wrap(&text).ok_or_else(|| unsupported("an NPY header of more than 4 GiB"))
}

/// The rest of the dictionary, and the room for growth.
fn dictionary(
    text: &mut String,
    datatype: &Datatype,
    shape: &[u64],
    fortran_order: bool,
) -> fmt::Result {
    type_of(text, datatype)?;
    let order = if fortran_order { "True" } else { "False" };
    write!(text, ", 'fortran_order': {order}, 'shape': ")?;
    tuple(text, shape)?;
    text.push_str(", }");
    // numpy appends along the axis that is slowest in memory
    let grows = if fortran_order {
        shape.last()
    } else {
        shape.first()
    };
    let digits = grows.map_or(GROWTH_DIGITS, |count| count.to_string().len());
    text.extend(std::iter::repeat_n(
        ' ',
        GROWTH_DIGITS.saturating_sub(digits),
    ));
    Ok(())
}

/// The text with everything around it, in the first version that can hold it.
fn wrap(text: &str) -> Option<Vec<u8>> {
    let latin: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    let (version, encoded) = match latin {
        Some(latin) => (1, latin),
        None => (3, text.as_bytes().to_vec()),
    };
    if version == 1
        && let (len, padding) = padded(encoded.len(), 2)?
        && let Ok(len) = u16::try_from(len)
    {
        return Some(assemble(1, &len.to_le_bytes(), &encoded, padding));
    }
    // version 2 is for a Latin text whose length needs more than two bytes
    let (len, padding) = padded(encoded.len(), 4)?;
    let len = u32::try_from(len).ok()?.to_le_bytes();
    Some(assemble(version.max(2), &len, &encoded, padding))
}

/// The length to write for `len` bytes of text, where the length itself takes `size` bytes; and how many spaces it counts. As in
/// numpy, there are 64 spaces where none would do.
fn padded(len: usize, size: usize) -> Option<(usize, usize)> {
    let before = MAGIC.len().checked_add(2)?.checked_add(size)?;
    let used = len.checked_add(1)?;
    let padding = ALIGN.checked_sub(before.checked_add(used)?.checked_rem(ALIGN)?)?;
    Some((used.checked_add(padding)?, padding))
}

fn assemble(version: u8, len: &[u8], text: &[u8], padding: usize) -> Vec<u8> {
    [MAGIC, &[version, 0], len, text, &vec![b' '; padding], b"\n"].concat()
}

/// A datatype that is no structure as numpy's `dtype.str`; a structure is an empty text.
pub(crate) fn spelled(datatype: &Datatype) -> String {
    match datatype {
        Datatype::Scalar(scalar, order) => {
            // numpy's mark where a byte order means nothing
            let order = if scalar.size() == 1 {
                '|'
            } else {
                sign(*order)
            };
            format!("{order}{}{}", scalar.kind(), scalar.size())
        }
        Datatype::Ascii(len) => format!("|S{len}"),
        Datatype::Ucs4(len, order) => format!("{}U{len}", sign(*order)),
        Datatype::Struct(_) => String::new(),
    }
}

/// A datatype as numpy's `dtype.descr` or `dtype.str`.
fn type_of(text: &mut String, datatype: &Datatype) -> fmt::Result {
    let Datatype::Struct(fields) = datatype else {
        return write!(text, "'{}'", spelled(datatype));
    };
    text.push('[');
    for (i, (field, name)) in fields.iter().zip(names(fields)).enumerate() {
        text.push_str(if i == 0 { "(" } else { ", (" });
        string(text, &name)?;
        text.push_str(", ");
        type_of(text, &field.datatype)?;
        if !field.shape.is_empty() {
            text.push_str(", ");
            tuple(text, &field.shape)?;
        }
        text.push(')');
    }
    text.push(']');
    Ok(())
}

fn sign(order: ByteOrder) -> char {
    match order {
        ByteOrder::Big => '>',
        ByteOrder::Little => '<',
    }
}

/// A name for each field, none of them empty or twice.
pub(crate) fn names(fields: &[Field]) -> Vec<String> {
    let mut taken: HashSet<&str> = HashSet::new();
    let own: Vec<Option<&str>> = fields
        .iter()
        .map(|field| {
            field
                .name
                .as_deref()
                // the first field of a name keeps it
                .filter(|name| !name.is_empty() && taken.insert(name))
        })
        .collect();
    // Where the search for a free number begins for each name that is wanted more than once.
    let mut numbers: HashMap<String, u64> = HashMap::new();
    let mut given: HashSet<String> = HashSet::new();
    let mut free = |i: usize, field: &Field| {
        let wanted = field.name.clone().filter(|name| !name.is_empty());
        let wanted = wanted.unwrap_or_else(|| format!("f{i}"));
        let is_free = |name: &str| !taken.contains(name) && !given.contains(name);
        let mut name = wanted.clone();
        let number = numbers.entry(wanted.clone()).or_insert(1);
        while !is_free(&name) {
            *number = number.saturating_add(1);
            name = format!("{wanted}_{number}");
        }
        given.insert(name.clone());
        name
    };
    fields
        .iter()
        .zip(own)
        .enumerate()
        .map(|(i, (field, own))| own.map_or_else(|| free(i, field), str::to_owned))
        .collect()
}

/// A Python tuple of numbers.
fn tuple(text: &mut String, numbers: &[u64]) -> fmt::Result {
    let all: Vec<_> = numbers.iter().map(u64::to_string).collect();
    // a tuple of one is written `(3,)`
    let comma = if numbers.len() == 1 { "," } else { "" };
    write!(text, "({}{comma})", all.join(", "))
}

/// A string as Python's `repr` writes it.
fn string(text: &mut String, value: &str) -> fmt::Result {
    let quote = if value.contains('\'') && !value.contains('"') {
        '"'
    } else {
        '\''
    };
    text.push(quote);
    for c in value.chars() {
        match c {
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\\' => text.push_str("\\\\"),
            _ if c == quote => write!(text, "\\{c}")?,
            _ if is_printable(c) => text.push(c),
            _ => match u32::from(c) {
                code @ ..=0xFF => write!(text, "\\x{code:02x}")?,
                code @ ..=0xFFFF => write!(text, "\\u{code:04x}")?,
                code => write!(text, "\\U{code:08x}")?,
            },
        }
    }
    text.push(quote);
    Ok(())
}

/// Whether Python shows a character as it is: Unicode categories other than C and Z, and the space.
///
/// Rust's `escape_debug` has the same rule but for one case: characters that extend the one before them are escaped at
/// the start of a string only.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\x7f' => false,
        // `_` in front, so that `c` is not at the start
        _ => format!("_{c}").escape_debug().count() == 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::datatype::Scalar;
    use crate::error::Error;

    /// Headers written by numpy; `tests/data/npy_headers.py` makes the table and says what is in it. Its cases are built here
    /// a second time, as datatypes of a tree.
    const TABLE: &str = include_str!("../../tests/data/npy_headers.tsv");

    const BYTE: Datatype = Datatype::Scalar(Scalar::Uint8, ByteOrder::Little);

    fn field(name: &str, datatype: Datatype, shape: &[u64]) -> Field {
        Field {
            name: Some(name.to_owned()),
            datatype,
            shape: shape.to_vec(),
        }
    }

    fn unnamed(datatype: Datatype) -> Field {
        Field {
            name: None,
            ..field("", datatype, &[])
        }
    }

    fn bytes<'a>(names: impl IntoIterator<Item = &'a str>) -> Datatype {
        Datatype::Struct(
            names
                .into_iter()
                .map(|name| field(name, BYTE, &[]))
                .collect(),
        )
    }

    fn numbered(letter: char, width: usize, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{letter}{i:0width$}")).collect()
    }

    fn plain(case: &str) -> Option<Datatype> {
        let (name, order) = case.split_once(' ')?;
        let order = match order {
            "big" => ByteOrder::Big,
            "little" => ByteOrder::Little,
            _ => return None,
        };
        match name {
            "[ascii,0]" => Some(Datatype::Ascii(0)),
            "[ascii,5]" => Some(Datatype::Ascii(5)),
            "[ucs4,0]" => Some(Datatype::Ucs4(0, order)),
            "[ucs4,3]" => Some(Datatype::Ucs4(3, order)),
            _ => Some(Datatype::Scalar(Scalar::from_name(name)?, order)),
        }
    }

    fn structure(case: &str) -> Datatype {
        let scalar = |scalar, order| Datatype::Scalar(scalar, order);
        let float = scalar(Scalar::Float32, ByteOrder::Little);
        match case {
            "nested" => Datatype::Struct(vec![
                field("a", float, &[]),
                field("b", scalar(Scalar::Int16, ByteOrder::Big), &[2, 3]),
                field(
                    "c",
                    Datatype::Struct(vec![
                        field("d", Datatype::Ascii(3), &[]),
                        field("e", Datatype::Ucs4(2, ByteOrder::Little), &[4]),
                    ]),
                    &[2],
                ),
                field("f", scalar(Scalar::Bool8, ByteOrder::Big), &[]),
            ]),
            "empty" => bytes([]),
            "zero" => Datatype::Struct(vec![
                field("a", BYTE, &[0]),
                field("b", Datatype::Ascii(0), &[]),
                field("c", bytes([]), &[]),
            ]),
            "unnamed" => Datatype::Struct(vec![
                unnamed(float.clone()),
                field("x", float, &[]),
                field("", Datatype::Struct(vec![unnamed(BYTE)]), &[]),
            ]),
            "quoted" => bytes([
                "it's",
                "say \"x\"",
                "it's \"x\"",
                "back\\slash",
                "tab\tnewline\nreturn\rescape\x1bnul\0delete\x7f",
                "%s {}",
                "f0",
            ]),
            "latin" => bytes(["é", "\u{a0}", "\u{80}\u{9f}\u{ad}", "ÿ'"]),
            "unicode" => bytes([
                "日本",
                "e\u{301}",
                "\u{200b}\u{2028}\u{e000}\u{d7ff}",
                "\u{1f52d}",
                "\u{e0001}",
                "\u{378}",
                "\u{feff}",
            ]),
            "twice" => Datatype::Struct(vec![
                field("x", BYTE, &[]),
                field("x", BYTE, &[]),
                field("x_3", BYTE, &[]),
                field("x", BYTE, &[]),
                unnamed(BYTE),
                unnamed(BYTE),
                field("f4", BYTE, &[]),
            ]),
            "unicode fields 6000" => {
                let names = [numbered('ñ', 5, 3000), numbered('ω', 5, 3000)].concat();
                bytes(names.iter().map(String::as_str))
            }
            _ => {
                let count = case.strip_prefix("fields ").unwrap().parse().unwrap();
                bytes(numbered('n', 6, count).iter().map(String::as_str))
            }
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    fn digest(bytes: &[u8]) -> String {
        let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        format!("{} {} {hash:016x}", hex(&bytes[..12]), bytes.len())
    }

    #[test]
    fn headers_are_those_of_numpy() {
        for line in TABLE.lines() {
            let [case, shape, order, want] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let datatype = plain(case).unwrap_or_else(|| structure(case));
            let shape: Vec<_> = shape
                .split(',')
                .filter(|n| !n.is_empty())
                .map(|n| n.parse().unwrap())
                .collect();
            let got = header(&datatype, &shape, order == "F").unwrap();
            let text = String::from_utf8_lossy(&got[..got.len().min(300)]);
            let digits = if want.contains(' ') {
                digest(&got)
            } else {
                hex(&got)
            };
            assert_eq!(digits, want, "{case}: {text}");
        }
        assert_eq!(TABLE.lines().count(), 65);
    }

    #[test]
    fn many_names_used_twice_take_no_longer_than_others() {
        let fields = (0..20_000).map(|i| match i % 3 {
            0 => field("x", BYTE, &[]),
            1 => field(&format!("x_{}", i / 2), BYTE, &[]),
            _ => unnamed(BYTE),
        });
        let names = names(&fields.collect::<Vec<_>>());
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 20_000);
        assert!(names.iter().all(|name| !name.is_empty()));
    }

    #[test]
    fn a_datatype_without_end_is_refused() {
        let deep = (0..100).fold(BYTE, |inner, _| {
            Datatype::Struct(vec![field("x", inner, &[])])
        });
        assert!(matches!(
            header(&deep, &[1], false),
            Err(Error::Unsupported { .. })
        ));
    }
}
