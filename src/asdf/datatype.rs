//! The datatype of an array's elements: scalars, strings and structures, each with its byte order.
//!
//! ASDF Standard, core/ndarray `definitions/datatype`. Knows sizes and names; knows nothing of YAML, which is `decl`'s.

use std::fmt;

/// How many levels structured datatypes may nest.
pub const MAX_DEPTH: usize = 32;

/// Order of the bytes of a multi-byte number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Most significant byte first.
    Big,
    /// Least significant byte first.
    Little,
}

impl fmt::Display for ByteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Big => "big",
            Self::Little => "little",
        })
    }
}

/// The scalar types of the standard, with `float16` of newer ndarray versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the standard's own")]
pub enum Scalar {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    Bool8,
}

/// Each scalar with its name in the tree, its NumPy type character and its size in bytes.
const SCALARS: [(Scalar, &str, char, u8); 14] = [
    (Scalar::Int8, "int8", 'i', 1),
    (Scalar::Int16, "int16", 'i', 2),
    (Scalar::Int32, "int32", 'i', 4),
    (Scalar::Int64, "int64", 'i', 8),
    (Scalar::Uint8, "uint8", 'u', 1),
    (Scalar::Uint16, "uint16", 'u', 2),
    (Scalar::Uint32, "uint32", 'u', 4),
    (Scalar::Uint64, "uint64", 'u', 8),
    (Scalar::Float16, "float16", 'f', 2),
    (Scalar::Float32, "float32", 'f', 4),
    (Scalar::Float64, "float64", 'f', 8),
    (Scalar::Complex64, "complex64", 'c', 8),
    (Scalar::Complex128, "complex128", 'c', 16),
    (Scalar::Bool8, "bool8", 'b', 1),
];

impl Scalar {
    /// The scalar type of that name in the tree.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        SCALARS
            .iter()
            .find(|entry| entry.1 == name)
            .map(|entry| entry.0)
    }

    /// The names of all.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        SCALARS.iter().map(|entry| entry.1)
    }

    /// The scalar type of NumPy's character for its kind and of that size in bytes.
    #[must_use]
    pub fn of_numpy(kind: char, size: u8) -> Option<Self> {
        let mut scalars = SCALARS.iter();
        let found = scalars.find(|entry| (entry.2, entry.3) == (kind, size));
        found.map(|entry| entry.0)
    }

    fn entry(self) -> (Self, &'static str, char, u8) {
        SCALARS
            .into_iter()
            .find(|entry| entry.0 == self)
            // every scalar has a row, so this is never taken
            .unwrap_or(SCALARS[0])
    }

    /// Its name in the tree.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// NumPy's character for its kind: `i`, `u`, `f`, `c` or `b`.
    #[must_use]
    pub fn kind(self) -> char {
        self.entry().2
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(self) -> u8 {
        self.entry().3
    }
}

/// The type of one element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Datatype {
    /// A number or truth value.
    Scalar(Scalar, ByteOrder),
    /// A string of that many ASCII characters, NUL padded.
    Ascii(u64),
    /// A string of that many UCS-4 characters of four bytes each, NUL padded.
    Ucs4(u64, ByteOrder),
    /// Fields one behind the other, without padding.
    Struct(Vec<Field>),
}

/// A field of a structured datatype.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name, if the tree has one.
    pub name: Option<String>,
    /// The type of its elements.
    pub datatype: Datatype,
    /// Its shape, slowest axis first; empty for a single element.
    pub shape: Vec<u64>,
}

impl Datatype {
    /// Size of one element in bytes, or `None` beyond 2^63 or [`MAX_DEPTH`].
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size_below(MAX_DEPTH)
    }

    /// As [`Datatype::size`], with at most `depth` levels of structures.
    fn size_below(&self, depth: usize) -> Option<u64> {
        let size = match self {
            Self::Scalar(scalar, _) => u64::from(scalar.size()),
            Self::Ascii(len) => *len,
            Self::Ucs4(len, _) => len.checked_mul(4)?,
            Self::Struct(fields) => {
                // a hostile file nests as deep as it likes: the
                // bound keeps the recursion within the stack
                let below = depth.checked_sub(1)?;
                fields.iter().try_fold(0u64, |sum, field| {
                    let one = field.datatype.size_below(below)?;
                    let all = field
                        .shape
                        .iter()
                        .try_fold(one, |size, &n| size.checked_mul(n))?;
                    sum.checked_add(all)
                })?
            }
        };
        // below 2^63, so that sizes and strides fit into an `i64`
        (size <= u64::MAX / 2).then_some(size)
    }
}

/// The byte order of all multi-byte numbers of a datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orders {
    /// There are none.
    None,
    /// The same for all.
    All(ByteOrder),
    /// Each has its own.
    Mixed,
}

impl Orders {
    /// The order of a datatype with one part of each order.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, order) | (order, Self::None) => order,
            (Self::All(a), Self::All(b)) if a == b => self,
            _ => Self::Mixed,
        }
    }
}

impl Datatype {
    /// The byte order of its numbers.
    #[must_use]
    pub fn orders(&self) -> Orders {
        match self {
            Self::Scalar(scalar, order) if scalar.size() > 1 => Orders::All(*order),
            Self::Ucs4(_, order) => Orders::All(*order),
            Self::Scalar(..) | Self::Ascii(_) => Orders::None,
            Self::Struct(fields) => fields
                .iter()
                .map(|field| field.datatype.orders())
                .fold(Orders::None, Orders::and),
        }
    }

    /// `<` for little-endian and `>` for big-endian, as NumPy has it.
    fn mark(&self) -> &'static str {
        match self.orders() {
            Orders::All(ByteOrder::Little) => "<",
            Orders::All(ByteOrder::Big) => ">",
            Orders::None | Orders::Mixed => "",
        }
    }
}

impl fmt::Display for Datatype {
    /// One line without blanks in the manner of the tree's flow style, for listings; the alternate form has a mark for the byte order in
    /// front of each multi-byte type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() && !matches!(self, Self::Struct(_)) {
            f.write_str(self.mark())?;
        }
        match self {
            Self::Scalar(scalar, _) => f.write_str(scalar.name()),
            Self::Ascii(len) => write!(f, "[ascii,{len}]"),
            Self::Ucs4(len, _) => write!(f, "[ucs4,{len}]"),
            Self::Struct(fields) => {
                f.write_str("[")?;
                for (i, field) in fields.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    if let Some(name) = &field.name {
                        write!(f, "{}:", name.escape_debug())?;
                    }
                    fmt::Display::fmt(&field.datatype, f)?;
                    if !field.shape.is_empty() {
                        write!(f, "{:?}", field.shape)?;
                    }
                }
                f.write_str("]")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scalar_is_found_by_its_name() {
        for (scalar, name, _, size) in SCALARS {
            assert_eq!(Scalar::from_name(name), Some(scalar));
            assert_eq!((scalar.name(), scalar.size()), (name, size));
        }
        assert_eq!(Scalar::from_name("float8"), None);
    }

    #[test]
    fn marks_tell_the_byte_orders_of_a_mixed_structure() {
        let field = |name: &str, datatype| Field {
            name: Some(name.to_owned()),
            datatype,
            shape: vec![],
        };
        let number = |scalar, order| Datatype::Scalar(scalar, order);
        let short = number(Scalar::Int16, ByteOrder::Little);
        let byte = number(Scalar::Uint8, ByteOrder::Big);
        let text = Datatype::Ucs4(2, ByteOrder::Big);
        let little = Datatype::Struct(vec![field("a", short.clone()), field("b", byte.clone())]);
        assert_eq!(little.orders(), Orders::All(ByteOrder::Little));
        let mixed = Datatype::Struct(vec![field("s", little), field("t", text)]);
        assert_eq!(mixed.orders(), Orders::Mixed);
        assert_eq!(format!("{mixed:#}"), "[s:[a:<int16,b:uint8],t:>[ucs4,2]]");
        assert_eq!(format!("{mixed}"), "[s:[a:int16,b:uint8],t:[ucs4,2]]");
        assert_eq!(byte.orders(), Orders::None);
    }

    #[test]
    fn a_structure_is_as_large_as_its_fields_together() {
        let field = |datatype, shape| Field {
            name: None,
            datatype,
            shape,
        };
        let of = |fields| Datatype::Struct(fields).size();
        let number = Datatype::Scalar(Scalar::Float64, ByteOrder::Big);
        assert_eq!(
            of(vec![
                field(number.clone(), vec![]),
                field(Datatype::Ascii(3), vec![2, 2])
            ]),
            Some(20)
        );
        assert_eq!(of(vec![field(number.clone(), vec![u64::MAX])]), None);
        let deep = (0..=MAX_DEPTH).fold(number, |inner, _| {
            Datatype::Struct(vec![field(inner, vec![])])
        });
        assert_eq!(deep.size(), None);
    }
}
