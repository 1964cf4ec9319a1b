//! Arrays whose elements are written in the tree: their type, their shape, their bytes.
//!
//! ASDF Standard, core/ndarray `definitions/inline-data`. Values are converted as NumPy does for the Python library: numbers to
//! the declared type if it can hold them, texts cut to its length. Numbers are little-endian but where a field declares
//! otherwise. A null is a missing value: NaN in floating-point arrays, zero in others, where the nulls are counted.

pub(super) mod number;
mod output;
mod room;

use self::output::Output;
pub(super) use self::output::element;
pub use self::room::Room;
use crate::asdf::datatype::{ByteOrder, Datatype, Scalar};
use crate::asdf::decl::Inline;
use crate::asdf::scalar::Value;
use crate::asdf::strided::MAX_NDIM;
use crate::asdf::tree::{Node, NodeId, NodeKind, Tree, quoted};
use crate::error::{Error, Result};
use crate::source::len_u64;

/// Most bytes of one array; more than the largest tree has nodes for.
pub const MAX_BYTES: u64 = 256 << 20;

/// The elements of an inline array, each of them found to fit.
#[derive(Debug)]
pub struct Elements {
    data: NodeId,
    datatype: Datatype,
    shape: Vec<u64>,
    /// The lengths of the nested lists; like the shape, unless there are no elements.
    lists: Vec<u64>,
    len: u64,
    /// Nulls that read as zeros, or as empty texts.
    nulls: u64,
}

impl Elements {
    /// Finds type and shape, and checks every element.
    ///
    /// # Errors
    /// `Corrupt` with the line of the first element or list that does not fit, `Unsupported` beyond [`MAX_BYTES`].
    pub fn new(tree: &Tree, inline: &Inline) -> Result<Self> {
        let data = top(tree, inline.data)?;
        let lists = lists(data, inline)?;
        let shape = agreed_shape(data, &lists, inline.shape.as_deref())?;
        let count = lists
            .iter()
            .try_fold(1u64, |count, &n| count.checked_mul(n))
            .ok_or_else(|| too_large(data))?;
        let datatype = match &inline.datatype {
            Some(datatype) => datatype.clone(),
            None => infer(data, &lists)?,
        };
        let len = datatype
            .size()
            .and_then(|size| size.checked_mul(count))
            .filter(|&len| len <= MAX_BYTES)
            .ok_or_else(|| too_large(data))?;
        let mut elements = Self {
            data: data.id(),
            datatype,
            shape,
            lists,
            len,
            nulls: 0,
        };
        // without output: a short text may declare [`MAX_BYTES`] of padding
        elements.nulls = elements.write(tree, &mut Output(None))?;
        Ok(elements)
    }

    /// The type, declared or inferred.
    #[must_use]
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// The shape, slowest axis first.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Bytes of all elements together.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How many missing values read as zeros, or as empty texts.
    #[must_use]
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in C order, as they would lie in a block.
    ///
    /// # Errors
    /// As [`Elements::new`], if `tree` is not the tree that `new` was given.
    pub fn bytes(&self, tree: &Tree) -> Result<Vec<u8>> {
        // at most [`MAX_BYTES`], as `new` has checked
        let mut bytes = Vec::with_capacity(usize::try_from(self.len).unwrap_or(0));
        self.write(tree, &mut Output(Some(&mut bytes)))?;
        Ok(bytes)
    }

    /// Writes the elements. Returns how many nulls among them [`encode`] counts.
    fn write(&self, tree: &Tree, out: &mut Output<'_>) -> Result<u64> {
        let mut nulls = 0_u64;
        walk(top(tree, self.data)?, &self.lists, &mut |node| {
            nulls = nulls.saturating_add(encode(node, &self.datatype, out)?);
            Ok(())
        })?;
        Ok(nulls)
    }
}

fn top(tree: &Tree, data: NodeId) -> Result<Node<'_>> {
    let node = tree.node(data).map(Node::follow);
    node.ok_or_else(|| Error::corrupt(crate::error::Place::File, "inline data without its node"))
}

fn too_large(data: Node<'_>) -> Error {
    let why = format!("inline data of more than {MAX_BYTES} bytes");
    Error::unsupported(data.place(), why)
}

fn bad(node: Node<'_>, why: impl Into<String>) -> Error {
    Error::corrupt(node.place(), why)
}

/// The lengths of the nested lists, each taken from the first list of its level.
fn lists(data: Node<'_>, inline: &Inline) -> Result<Vec<u64>> {
    let mut lens = Vec::new();
    let mut node = data;
    let mut complete = true;
    while node.kind() == NodeKind::Sequence {
        lens.push(len_u64(node.len()));
        let Some(first) = node.items().next() else {
            complete = false;
            break;
        };
        node = first.follow();
    }
    // The lists of a record are not dimensions of the array.
    let record = inline.datatype.as_ref().map_or(0, record_depth);
    if complete {
        let ndim = lens.len().checked_sub(record);
        let why = "inline data without the lists that its structured datatype needs";
        lens.truncate(ndim.ok_or_else(|| bad(data, why))?);
    }
    if lens.len() > MAX_NDIM {
        let why = format!("lists nested {} deep, of {MAX_NDIM} allowed", lens.len());
        return Err(bad(data, why));
    }
    Ok(lens)
}

/// How many lists deep the first value of an element stands.
fn record_depth(datatype: &Datatype) -> usize {
    let Datatype::Struct(fields) = datatype else {
        return 0;
    };
    let first = fields.first();
    first.map_or(1, |field| {
        record_depth(&field.datatype)
            .saturating_add(field.shape.len())
            .saturating_add(1)
    })
}

/// The shape of the data, which must be the declared one if there is one.
fn agreed_shape(
    data: Node<'_>,
    lists: &[u64],
    declared: Option<&[Option<u64>]>,
) -> Result<Vec<u64>> {
    let Some(declared) = declared else {
        return Ok(lists.to_vec());
    };
    let same = |(dim, len): (&Option<u64>, &u64)| dim.is_none_or(|dim| dim == *len);
    if declared.len() == lists.len() && declared.iter().zip(lists).all(same) {
        return Ok(lists.to_vec());
    }
    // `[]` may stand for any array without elements.
    let wanted: Vec<u64> = declared.iter().map(|dim| dim.unwrap_or(0)).collect();
    if lists.contains(&0) && wanted.contains(&0) {
        return Ok(wanted);
    }
    let spelled = |dim: &Option<u64>| dim.map_or_else(|| "*".to_owned(), |len| len.to_string());
    let declared: Vec<String> = declared.iter().map(spelled).collect();
    let declared = declared.join(", ");
    let why = format!("inline data of shape {lists:?}, declared [{declared}]");
    Err(bad(data, why))
}

/// Visits the elements in lists of the given lengths.
fn walk<'t>(
    node: Node<'t>,
    lists: &[u64],
    visit: &mut dyn FnMut(Node<'t>) -> Result<()>,
) -> Result<()> {
    let Some((&len, inner)) = lists.split_first() else {
        return visit(node.follow());
    };
    if node.follow().kind() != NodeKind::Sequence {
        return Err(bad(node, "a single value, where a list belongs"));
    }
    if u64::try_from(node.len()) != Ok(len) {
        let why = format!("a list of {}, where the first one has {len}", node.len());
        return Err(bad(node, why));
    }
    // no deeper than `lists`, which has at most [`MAX_NDIM`] levels
    node.items().try_for_each(|item| walk(item, inner, visit))
}

/// A value in the data.
#[derive(Debug, Clone, Copy)]
enum Written<'t> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Complex(f64, f64),
    Text(&'t str),
}

/// The single value at a node; complex if its tag says so.
fn item(node: Node<'_>) -> Result<Written<'_>> {
    let Some(value) = node.value() else {
        return Err(bad(node, "a collection, where a single value belongs"));
    };
    if node.tag().is_some_and(|tag| tag.contains("/core/complex")) {
        let text = node.text().unwrap_or_default();
        let (re, im) = number::complex(text)
            .ok_or_else(|| bad(node, format!("{} is not a complex number", quoted(text))))?;
        return Ok(Written::Complex(re, im));
    }
    Ok(match value {
        Value::Null => Written::Null,
        Value::Bool(b) => Written::Bool(b),
        Value::Int(n) => Written::Int(n),
        Value::Float(x) => Written::Float(x),
        Value::Str(text) | Value::Huge(text) | Value::Malformed(text) => Written::Text(text),
    })
}

/// The standard's inference: the widest kind among the values decides. Where there are none, NumPy takes floating-point numbers.
fn infer(data: Node<'_>, lists: &[u64]) -> Result<Datatype> {
    if lists.contains(&0) {
        return Ok(Datatype::Scalar(Scalar::Float64, ByteOrder::Little));
    }
    let (mut scalar, mut rank, mut texts, mut width) = (Scalar::Bool8, 0, false, 1);
    walk(data, lists, &mut |node| {
        let text = node.text().unwrap_or_default();
        width = width.max(text.chars().count());
        let (kind, order) = match item(node)? {
            Written::Null | Written::Bool(_) => (Scalar::Bool8, 0),
            Written::Int(n) if i64::try_from(n).is_ok() => (Scalar::Int64, 1),
            Written::Float(_) => (Scalar::Float64, 2),
            Written::Complex(..) => (Scalar::Complex128, 3),
            Written::Text(_) if !matches!(node.value(), Some(Value::Huge(_))) => {
                texts = true;
                return Ok(());
            }
            Written::Int(_) | Written::Text(_) => {
                let why = format!("integer {} beyond the range of int64", quoted(text));
                return Err(bad(node, why));
            }
        };
        if order > rank {
            (scalar, rank) = (kind, order);
        }
        Ok(())
    })?;
    Ok(if texts {
        let width = len_u64(width);
        Datatype::Ucs4(width, ByteOrder::Little)
    } else {
        Datatype::Scalar(scalar, ByteOrder::Little)
    })
}

/// Appends the bytes of one element. Returns how many nulls in it read as zeros or empty texts, because their type has no NaN.
fn encode(node: Node<'_>, datatype: &Datatype, out: &mut Output<'_>) -> Result<u64> {
    match datatype {
        Datatype::Scalar(scalar, order) => encode_scalar(node, *scalar, *order, out),
        Datatype::Ascii(len) => encode_text(node, *len, out, |c, out| {
            let byte = u8::try_from(u32::from(c)).ok().filter(u8::is_ascii)?;
            out.push(&[byte], ByteOrder::Little);
            Some(1)
        }),
        Datatype::Ucs4(len, order) => encode_text(node, len.saturating_mul(4), out, |c, out| {
            out.push(&u32::from(c).to_le_bytes(), *order);
            Some(4)
        }),
        Datatype::Struct(fields) => {
            if node.follow().kind() != NodeKind::Sequence || node.len() != fields.len() {
                let why = format!("a record of {} fields belongs here", fields.len());
                return Err(bad(node, why));
            }
            let mut nulls = 0_u64;
            for (field, item) in fields.iter().zip(node.items()) {
                walk(item, &field.shape, &mut |node| {
                    nulls = nulls.saturating_add(encode(node, &field.datatype, out)?);
                    Ok(())
                })?;
            }
            Ok(nulls)
        }
    }
}

/// Appends a text in `len` bytes: cut, or padded with NUL.
fn encode_text(
    node: Node<'_>,
    len: u64,
    out: &mut Output<'_>,
    mut put: impl FnMut(char, &mut Output<'_>) -> Option<u64>,
) -> Result<u64> {
    let is_null = matches!(item(node)?, Written::Null);
    let text = node.text().filter(|_| !is_null).unwrap_or_default();
    let mut left = len;
    let mut chars = text.chars();
    while left > 0
        && let Some(c) = chars.next()
    {
        let used =
            put(c, out).ok_or_else(|| bad(node, format!("{} is not ASCII", quoted(text))))?;
        left = left.saturating_sub(used);
    }
    out.pad(left);
    Ok(is_null.into())
}

/// Appends a number in its byte order. Returns 1 if it is a null that reads as zero, else 0.
fn encode_scalar(
    node: Node<'_>,
    scalar: Scalar,
    order: ByteOrder,
    out: &mut Output<'_>,
) -> Result<u64> {
    let item = item(node)?;
    let written = number::encode(item, scalar, |bytes| out.push(bytes, order));
    written.ok_or_else(|| {
        let text = quoted(node.text().unwrap_or_default());
        bad(node, format!("{text}, where {} belongs", scalar.name()))
    })?;
    let is_zero = matches!(item, Written::Null) && !matches!(scalar.kind(), 'f' | 'c');
    Ok(is_zero.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::decl::Declared;
    use crate::asdf::outline::Outline;
    use proptest::prelude::*;

    /// The array in a tree that is nothing else.
    pub(super) fn declared(array: &str) -> Result<(Tree, Inline)> {
        let text = format!("%TAG ! tag:stsci.edu:asdf/\n--- !core/ndarray-1.0.0\n{array}\n");
        let tree = Tree::parse(text)?;
        let outline = Outline::new(&tree);
        let Declared::Inline(inline) = outline.declared(&tree).next().unwrap().1? else {
            panic!("{array} is not inline");
        };
        Ok((tree, inline))
    }

    /// Its type, shape and bytes in hexadecimal.
    fn read(array: &str) -> Result<(String, Vec<u64>, String)> {
        let (tree, inline) = declared(array)?;
        let elements = Elements::new(&tree, &inline)?;
        let bytes = elements.bytes(&tree)?;
        assert_eq!(bytes.len() as u64, elements.len());
        let hex = hex(bytes);
        Ok((
            elements.datatype().to_string(),
            elements.shape().to_vec(),
            hex,
        ))
    }

    fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
        bytes
            .into_iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    fn reason(array: &str) -> String {
        let error = read(array).unwrap_err().to_string();
        error.split_once(": ").unwrap().1.to_owned()
    }

    /// Arrays with type, shape and bytes, recorded from NumPy 2 through the conformance suite's independent reader.
    const RECORDED: [(&str, &str, &[u64], &str); 15] = [
        ("[[], []]", "float64", &[2, 0], ""),
        (
            "[[1, 0], [0, 1]]",
            "int64",
            &[2, 2],
            "0100000000000000000000000000000000000000000000000100000000000000",
        ),
        (
            "[1, 2.5, .inf]",
            "float64",
            &[3],
            "000000000000f03f0000000000000440000000000000f07f",
        ),
        ("[true, no]", "bool8", &[2], "0100"),
        (
            "[a, 'bcd']",
            "[ucs4,3]",
            &[2],
            "610000000000000000000000620000006300000064000000",
        ),
        (
            "[010, 0x1F, 1_000, 1:30, 0b11]",
            "int64",
            &[5],
            "08000000000000001f00000000000000e8030000000000005a000000000000000300000000000000",
        ),
        (
            "[1, true]",
            "int64",
            &[2],
            "01000000000000000100000000000000",
        ),
        (
            "[!core/complex-1.0.0 1+2i, 3]",
            "complex128",
            &[2],
            "000000000000f03f000000000000004000000000000008400000000000000000",
        ),
        (
            "{datatype: float32, data: [[1, 2.1], [3, 1e3]]}",
            "float32",
            &[2, 2],
            "0000803f666606400000404000007a44",
        ),
        (
            "{datatype: int8, shape: ['*'], data: [1, -1.9]}",
            "int8",
            &[2],
            "01ff",
        ),
        (
            "{datatype: int16, shape: [0, 3], data: []}",
            "int16",
            &[0, 3],
            "",
        ),
        ("{data: 7}", "int64", &[], "0700000000000000"),
        (
            "{datatype: [ascii, 2], data: [a, bcd]}",
            "[ascii,2]",
            &[2],
            "61006263",
        ),
        (
            "{datatype: uint64, data: [18446744073709551615]}",
            "uint64",
            &[1],
            "ffffffffffffffff",
        ),
        (
            "{datatype: complex64, data: [1, '2j']}",
            "complex64",
            &[2],
            "0000803f000000000000000000000040",
        ),
    ];

    #[test]
    fn a_check_does_not_write_what_pads_a_text() {
        // a thousand times 256 MB would take minutes
        let (tree, inline) = declared("{data: [a], datatype: [ucs4, 67000000]}").unwrap();
        for _ in 0..1000 {
            assert_eq!(Elements::new(&tree, &inline).unwrap().len(), 268_000_000);
        }
    }

    #[test]
    fn arrays_are_what_numpy_makes_of_them() {
        for (array, datatype, shape, hex) in RECORDED {
            assert_eq!(
                read(array).unwrap(),
                (datatype.into(), shape.to_vec(), hex.into()),
                "{array}"
            );
        }
    }

    #[test]
    fn records_are_lists_of_their_fields() {
        let array = "{datatype: [[ascii, 4], uint16, {name: k, datatype: int16, byteorder: big, shape: [2]}], data: [[M110, 110, [1, 2]], [M31, 31, [3, 4]]]}";
        let (_, shape, hex) = read(array).unwrap();
        assert_eq!(
            (shape, &*hex),
            (vec![2], "4d3131306e00000100024d3331001f0000030004"),
            "recorded as above"
        );
        let nested = "{datatype: [{datatype: [int8, [ucs4, 1]]}, uint8], data: [[[1, x], 2]]}";
        assert_eq!(read(nested).unwrap().2, "017800000002");
        let empty = "{datatype: [int8, int8], data: []}";
        assert_eq!(read(empty).unwrap().1, [0]);
    }

    #[test]
    fn missing_values_are_nan_or_zero() {
        assert_eq!(
            read("[1, null]").unwrap().2,
            "01000000000000000000000000000000"
        );
        assert_eq!(
            read("[~, 1.5]").unwrap().2,
            "000000000000f87f000000000000f83f"
        );
        assert_eq!(
            read("[~, ab]").unwrap().2,
            "00000000000000006100000062000000"
        );
    }

    #[test]
    fn what_does_not_fit_is_told_by_line_and_value() {
        let cases = [
            ("[[1, 2], [3]]", "a list of 1, where the first one has 2"),
            ("[[1], 2]", "a single value, where a list belongs"),
            ("[1, [2]]", "a collection, where a single value belongs"),
            ("[{a: 1}]", "a collection, where a single value belongs"),
            (
                "[9223372036854775808]",
                "integer '9223372036854775808' beyond the range of int64",
            ),
            ("[!core/complex-1.0.0 one]", "'one' is not a complex number"),
            ("{datatype: int8, data: [128]}", "'128', where int8 belongs"),
            (
                "{datatype: int8, data: [.nan]}",
                "'.nan', where int8 belongs",
            ),
            (
                "{datatype: bool8, data: [maybe]}",
                "'maybe', where bool8 belongs",
            ),
            ("{datatype: [ascii, 4], data: [é]}", "'é' is not ASCII"),
            (
                "{datatype: int8, shape: [3], data: [1, 2]}",
                "inline data of shape [2], declared [3]",
            ),
            (
                "{datatype: [int8, int8], data: [[1, 2], [3]]}",
                "a record of 2 fields belongs here",
            ),
            (
                "{datatype: [int8], data: 3}",
                "inline data without the lists that its structured datatype needs",
            ),
            (
                "{datatype: [ucs4, 1000000000], data: [a]}",
                "inline data of more than 268435456 bytes",
            ),
        ];
        for (array, why) in cases {
            assert_eq!(reason(array), why, "{array}");
        }
        assert!(
            read("[1,\n x: 2]")
                .unwrap_err()
                .to_string()
                .starts_with("line 4, column 2: ")
        );
    }

    #[test]
    fn a_list_that_contains_itself_ends() {
        assert!(read("&a [*a]").is_err());
        assert!(read("{datatype: &t [*t], data: [1]}").is_err());
    }

    proptest! {
        #[test]
        fn numbers_come_back(ints in prop::collection::vec(any::<i64>(), 1..20), floats in prop::collection::vec(-1e300f64..1e300, 1..20)) {
            let bytes = hex(ints.iter().flat_map(|n| n.to_le_bytes()));
            prop_assert_eq!(read(&format!("{ints:?}")).unwrap().2, bytes);
            let signed = |x: &f64| format!("{x:.17e}").replace('e', "e+").replace("e+-", "e-");
            let text: Vec<String> = floats.iter().map(signed).collect();
            let bytes = hex(floats.iter().flat_map(|x| x.to_le_bytes()));
            prop_assert_eq!(read(&format!("[{}]", text.join(", "))).unwrap().2, bytes);
        }
    }
}
