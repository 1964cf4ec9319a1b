//! The header of an NPY file that somebody else wrote: untrusted, and read strictly.
//!
//! The dictionary is a literal of Python. Only strings, whole numbers, truth values, lists, tuples and the one dictionary are read;
//! numpy writes nothing else.

use std::collections::HashSet;

use super::{MAGIC, header};
use crate::asdf::datatype::{ByteOrder, Datatype, Field, MAX_DEPTH, Scalar};
use crate::asdf::strided::{MAX_NDIM, View, c_strides};
use crate::error::{Result, corrupt, unsupported};

/// The longest text of a header, in bytes: room for ten thousand fields.
const MAX_TEXT: usize = 1 << 20;
/// Bytes in front of the length of the text.
const BEFORE_LEN: usize = 8;
/// Levels of lists and tuples: a field takes two.
const MAX_LEVELS: usize = 2 * MAX_DEPTH;

/// What an NPY header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Type of the elements.
    pub datatype: Datatype,
    /// Whether the elements follow in Fortran order.
    pub fortran_order: bool,
    /// Slowest axis first.
    pub shape: Vec<u64>,
    /// Bytes of the header.
    pub len: usize,
}

impl Header {
    /// Bytes of the longest header that is read.
    pub const LONGEST: usize = MAX_TEXT + BEFORE_LEN + 4;

    /// The header at the start of a file; `None` while `bytes` does not hold all of it.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::Error::Corrupt) if there is no NPY header; [`Unsupported`](crate::error::Error::Unsupported) if
    /// ASDF has no such datatype, or beyond a limit.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let begun = MAGIC.len().min(bytes.len());
        // with fewer bytes than the magic has, too: a wrong start is refused at once
        if bytes.get(..begun) != MAGIC.get(..begun) {
            return Err(corrupt("no NPY file: it does not begin with \\x93NUMPY"));
        }
        let Some((version, len, at)) = text_len(bytes)? else {
            return Ok(None);
        };
        // refused by the number alone, before a reader waits for so many bytes
        if len > MAX_TEXT {
            let why = format!("an NPY header of {len} bytes, of {MAX_TEXT} allowed");
            return Err(unsupported(why));
        }
        let end = at.saturating_add(len);
        let Some(text) = bytes.get(at..end) else {
            return Ok(None);
        };
        let text = if version < 3 {
            text.iter().map(|&byte| char::from(byte)).collect()
        } else {
            String::from_utf8(text.to_vec())
                .map_err(|_| corrupt("an NPY header that is not UTF-8"))?
        };
        Self::of(&text, end).map(Some)
    }

    /// Reads the dictionary `text`. `len` is the length of the whole header in bytes.
    fn of(text: &str, len: usize) -> Result<Self> {
        let mut parser = Parser { rest: text };
        let (mut descr, mut order, mut shape) = (None, None, None);
        for (key, value) in parser.dictionary()? {
            let known = match key.as_str() {
                "descr" => descr.replace(value),
                "fortran_order" => order.replace(value),
                "shape" => shape.replace(value),
                // numpy refuses other keys, too
                _ => return Err(corrupt(format!("the NPY header has a key {key:?}"))),
            };
            if known.is_some() {
                return Err(corrupt(format!("the NPY header has {key} twice")));
            }
        }
        // NumPy writes all three keys, and a guess at one could turn the axes of the array
        let missing = |key| move || corrupt(format!("the NPY header has no {key}"));
        let Literal::Bool(fortran_order) = order.ok_or_else(missing("fortran_order"))? else {
            return Err(corrupt("fortran_order is neither True nor False"));
        };
        let found = Self {
            datatype: datatype(&descr.ok_or_else(missing("descr"))?)?,
            fortran_order,
            shape: numbers(shape.ok_or_else(missing("shape"))?)?,
            len,
        };
        // fails here, so that `view` never fails for a header that was read
        found.view()?;
        Ok(found)
    }

    /// Bytes of the elements.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.view().map_or(0, |view| view.len())
    }

    /// The layout of the elements behind the header.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::Error::Corrupt) or [`Unsupported`](crate::error::Error::Unsupported) beyond a limit; never
    /// for a header that was read.
    pub fn view(&self) -> Result<View> {
        let size = self.datatype.size();
        let size = size.ok_or_else(|| corrupt("elements of more than 2^63 bytes"))?;
        let mut shape = self.shape.clone();
        // Fortran order is C order with the axes turned round
        if self.fortran_order {
            shape.reverse();
        }
        let mut strides = self.strides_in_c(&shape)?;
        if self.fortran_order {
            strides.reverse();
        }
        View::new(size, &self.shape, Some(&strides), 0, u64::MAX)
    }

    /// The strides in bytes of an array of this type and shape in C order.
    ///
    /// # Errors
    /// [`Corrupt`](crate::error::Error::Corrupt) beyond 2^63.
    pub fn c_strides(&self) -> Result<Vec<i64>> {
        self.strides_in_c(&self.shape)
    }

    /// As [`Header::c_strides`], for another shape.
    fn strides_in_c(&self, shape: &[u64]) -> Result<Vec<i64>> {
        let size = self.datatype.size().unwrap_or(u64::MAX);
        c_strides(size, shape).ok_or_else(|| {
            let shape = &self.shape;
            corrupt(format!(
                "{shape:?} elements of {size} bytes are 2^63 bytes or more"
            ))
        })
    }

    /// Whether numpy would write the same header for `datatype` and `shape`.
    #[must_use]
    pub fn is_of(&self, datatype: &Datatype, shape: &[u64]) -> bool {
        // as numpy's text, in which fields without a name, or with a repeated one, have got names
        let text = |datatype| header(datatype, shape, false).ok();
        self.shape == shape && text(&self.datatype) == text(datatype)
    }
}

/// Version, length of the text, and where the text begins.
fn text_len(bytes: &[u8]) -> Result<Option<(u8, usize, usize)>> {
    let Some(&[major, minor]) = bytes.get(MAGIC.len()..BEFORE_LEN) else {
        return Ok(None);
    };
    if !matches!((major, minor), (1..=3, 0)) {
        let why = format!("NPY version {major}.{minor}");
        return Err(unsupported(why));
    }
    let size = if major == 1 { 2 } else { 4 };
    let at = BEFORE_LEN.saturating_add(size);
    let Some(digits) = bytes.get(BEFORE_LEN..at) else {
        return Ok(None);
    };
    // little-endian: the last byte counts most
    let len = digits
        .iter()
        .rev()
        .fold(0_u64, |len, &byte| (len << 8) | u64::from(byte));
    Ok(Some((
        major,
        usize::try_from(len).unwrap_or(usize::MAX),
        at,
    )))
}

/// A value of Python.
#[derive(Debug, PartialEq)]
enum Literal {
    Text(String),
    Number(u64),
    Bool(bool),
    List(Vec<Self>),
    Tuple(Vec<Self>),
}

/// A tuple of lengths.
fn numbers(literal: Literal) -> Result<Vec<u64>> {
    let wrong = || corrupt("a shape that is not a tuple of numbers");
    let Literal::Tuple(items) = literal else {
        return Err(wrong());
    };
    if items.len() > MAX_NDIM {
        let why = format!("{} dimensions, of {MAX_NDIM} allowed", items.len());
        return Err(unsupported(why));
    }
    let number = |item| match item {
        Literal::Number(n) => Ok(n),
        _ => Err(wrong()),
    };
    items.into_iter().map(number).collect()
}

/// The datatype of a `descr`.
fn datatype(descr: &Literal) -> Result<Datatype> {
    match descr {
        Literal::Text(text) => plain(text),
        Literal::List(fields) if !fields.is_empty() => {
            let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            // numpy refuses them too
            let mut names = HashSet::new();
            if !fields.iter().all(|field| names.insert(&field.name)) {
                return Err(corrupt("two fields with one name"));
            }
            Ok(Datatype::Struct(fields))
        }
        _ => Err(corrupt(
            "a descr that is neither a string nor a list of fields",
        )),
    }
}

/// A field of a `descr`: its name, its type and, if it is an array itself, its shape. Padding, which NumPy writes as a field
/// without a name, and titles are not supported.
fn field(literal: &Literal) -> Result<Field> {
    let wrong = || corrupt("a field that is not a tuple of name, type and perhaps shape");
    let Literal::Tuple(parts) = literal else {
        return Err(wrong());
    };
    let (name, descr, shape) = match parts.as_slice() {
        [name, descr] => (name, descr, Vec::new()),
        [name, descr, Literal::Tuple(shape)] => {
            let number = |item: &Literal| match item {
                Literal::Number(n) => Ok(*n),
                _ => Err(wrong()),
            };
            let shape = shape.iter().map(number).collect::<Result<_>>()?;
            (name, descr, shape)
        }
        _ => return Err(wrong()),
    };
    match name {
        Literal::Text(name) if !name.is_empty() => Ok(Field {
            name: Some(name.clone()),
            datatype: datatype(descr)?,
            shape,
        }),
        Literal::Text(_) => Err(unsupported(
            "a structure with padding; numpy.lib.recfunctions.repack_fields removes it",
        )),
        Literal::Tuple(_) => Err(unsupported("a field with a title beside its name")),
        _ => Err(wrong()),
    }
}

/// A type such as `<f4`, as NumPy spells it.
///
/// # Errors
/// [`Unsupported`](crate::error::Error::Unsupported) if ASDF has no such datatype.
pub(in crate::asdf) fn plain(text: &str) -> Result<Datatype> {
    let unknown = || unsupported(format!("ASDF has no datatype for NumPy's {text:?}"));
    let mut chars = text.chars();
    let (order, kind) = (chars.next(), chars.next());
    let order = match order {
        Some('<') => Some(ByteOrder::Little),
        Some('>') => Some(ByteOrder::Big),
        Some('|') => None,
        _ => return Err(unknown()),
    };
    let digits = chars.as_str();
    // 19 digits fit into 64 bits; `parse` alone would also take a sign
    let is_number = digits.len() < 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let size = digits.parse::<u64>().ok().filter(|_| is_number);
    let (kind, size) = (kind.ok_or_else(unknown)?, size.ok_or_else(unknown)?);
    match (kind, order) {
        ('S', None) => Ok(Datatype::Ascii(size)),
        ('U', Some(order)) => Ok(Datatype::Ucs4(size, order)),
        _ => {
            let scalar = u8::try_from(size)
                .ok()
                .and_then(|size| Scalar::of_numpy(kind, size));
            let scalar = scalar.filter(|scalar| order.is_some() || scalar.size() == 1);
            let scalar = scalar.ok_or_else(unknown)?;
            Ok(Datatype::Scalar(scalar, order.unwrap_or(ByteOrder::Little)))
        }
    }
}

/// A reader of literals.
struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    /// The next character that is no blank. Blanks before it are taken.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r']);
        self.rest.chars().next()
    }

    /// Takes a character, if it is the next one.
    fn skip(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.rest = self.rest.strip_prefix(c).unwrap_or_default();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.skip(c) {
            return Ok(());
        }
        Err(corrupt(format!("{c:?} is missing in the NPY header")))
    }

    /// All of the text: a dictionary whose keys are strings.
    fn dictionary(&mut self) -> Result<Vec<(String, Literal)>> {
        let mut entries = Vec::new();
        self.expect('{')?;
        while !self.skip('}') {
            let Literal::Text(key) = self.literal(MAX_LEVELS)? else {
                return Err(corrupt("a key of the NPY header is no string"));
            };
            self.expect(':')?;
            entries.push((key, self.literal(MAX_LEVELS)?));
            if !self.skip(',') {
                self.expect('}')?;
                break;
            }
        }
        match self.peek() {
            None => Ok(entries),
            Some(_) => Err(corrupt(
                "there is more behind the dictionary of the NPY header",
            )),
        }
    }

    /// A value of Python; lists and tuples in it may be `levels` deep. One value in parentheses is no tuple without a comma.
    fn literal(&mut self, levels: usize) -> Result<Literal> {
        let deep = || unsupported("an NPY header nested too deep");
        match self.peek() {
            Some(quote @ ('\'' | '"')) => {
                self.expect(quote)?;
                self.string(quote).map(Literal::Text)
            }
            Some('[') => {
                self.expect('[')?;
                // the text is hostile, and without a bound this recursion would run out of stack
                let levels = levels.checked_sub(1).ok_or_else(deep)?;
                Ok(Literal::List(self.items(']', levels)?.0))
            }
            Some('(') => {
                self.expect('(')?;
                let levels = levels.checked_sub(1).ok_or_else(deep)?;
                match self.items(')', levels)? {
                    (items, false) if items.len() == 1 => Err(corrupt("a value in parentheses")),
                    (items, _) => Ok(Literal::Tuple(items)),
                }
            }
            Some('0'..='9') => self.number(),
            _ => self.word(),
        }
    }

    /// Items up to a bracket, and whether there is a comma behind the last.
    fn items(&mut self, end: char, levels: usize) -> Result<(Vec<Literal>, bool)> {
        let (mut items, mut comma) = (Vec::new(), false);
        while !self.skip(end) {
            items.push(self.literal(levels)?);
            comma = self.skip(',');
            if !comma {
                self.expect(end)?;
                break;
            }
        }
        Ok((items, comma))
    }

    /// A whole number without a sign. Its first digit comes next.
    fn number(&mut self) -> Result<Literal> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let number = digits.parse().ok();
        number
            .map(Literal::Number)
            .ok_or_else(|| corrupt("a number beyond 2^64 in the NPY header"))
    }

    /// `True` or `False`, and no other word: NumPy writes none.
    fn word(&mut self) -> Result<Literal> {
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(Literal::Bool(value));
            }
        }
        Err(corrupt(
            "the NPY header is cut short, or is no literal of Python",
        ))
    }

    /// The rest of a string, as Python's `repr` writes it.
    fn string(&mut self, quote: char) -> Result<String> {
        let open = || corrupt("a string without end in the NPY header");
        let mut out = String::new();
        let mut chars = self.rest.chars();
        loop {
            match chars.next().ok_or_else(open)? {
                c if c == quote => break,
                '\\' => {
                    let c = chars.next().ok_or_else(open)?;
                    let digits = match c {
                        'x' => 2,
                        'u' => 4,
                        'U' => 8,
                        _ => 0,
                    };
                    out.push(match c {
                        't' => '\t',
                        'n' => '\n',
                        'r' => '\r',
                        '\\' | '\'' | '"' => c,
                        _ if digits > 0 => {
                            let code: String = chars.by_ref().take(digits).collect();
                            // `from_str_radix` alone would also take a sign
                            let is_hex =
                                code.len() == digits && code.bytes().all(|b| b.is_ascii_hexdigit());
                            let code = u32::from_str_radix(&code, 16).ok().filter(|_| is_hex);
                            let c = code.and_then(char::from_u32);
                            c.ok_or_else(|| corrupt("a character in the NPY header that is none"))?
                        }
                        _ => return Err(corrupt(format!("\\{c} in a string of the NPY header"))),
                    });
                }
                c => out.push(c),
            }
        }
        self.rest = chars.as_str();
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
