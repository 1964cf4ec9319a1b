//! One array as the tree declares it: where its data is, what its elements are, how they lie there.
//!
//! ASDF Standard, core/ndarray. Checks everything that can be checked without looking at blocks; whether the view lies inside
//! its block is found out later. Knows nothing of where in the tree the array stands, which is `outline`'s.

pub(super) mod chunked;
mod property;

use crate::asdf::datatype::{ByteOrder, Datatype, MAX_DEPTH};
use crate::asdf::scalar::Type;
use crate::asdf::strided::MAX_NDIM;
use crate::asdf::tree::{Node, NodeId, NodeKind, Tree};
use crate::error::{Error, Result, corrupt, unsupported};
use crate::source::len_u64;

use chunked::Chunked;

/// Units that aliases and merges may add to what the declarations of a tree cost.
const SPARE: u64 = 1 << 18;
/// Bytes of copied text that cost one unit, as much as a field.
const TEXT_UNIT: u64 = 64;

/// What the tree declares of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum Declared {
    /// Elements in a block.
    Stored(StoredArray),
    /// Elements in the tree itself.
    Inline(Inline),
    /// Elements in the chunks of a grid.
    Chunked(Box<Chunked>),
}

/// A view of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredArray {
    /// Where the bytes are.
    pub storage: Storage,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Byte order of the elements, and of every field that does not declare its own.
    pub byteorder: ByteOrder,
    /// Lengths of the dimensions, slowest first; at most [`MAX_NDIM`]. `None` for `*`: as many as the block holds.
    pub shape: Vec<Option<u64>>,
    /// First byte in the block; at most `i64::MAX`.
    pub offset: u64,
    /// Bytes from one element to the next, one for each dimension; none for C order.
    pub strides: Option<Vec<i64>>,
}

/// Where the bytes of an array are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A block of this file; negative from the end.
    Block(i64),
    /// The first block of the file at that URI.
    External(String),
    /// An extension of the FITS file around this one: what follows `fits:`.
    Fits(String),
}

/// Elements written in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Inline {
    /// The nested lists.
    pub data: NodeId,
    /// The declared type; else it follows from the elements.
    pub datatype: Option<Datatype>,
    /// The declared shape, which the data must have; `None` in it for `*`.
    pub shape: Option<Vec<Option<u64>>>,
}

/// Whether a tag marks an array, in any version of the standard or its drafts.
#[must_use]
pub fn is_ndarray(tag: &str) -> bool {
    let Some(rest) = tag.strip_prefix("tag:stsci.edu:") else {
        return false;
    };
    let Some(rest) = rest.strip_prefix("asdf/").or(rest.strip_prefix("finf/")) else {
        return false;
    };
    // the drafts have a version in front of the name: `0.1.0/core/ndarray`
    let name = match rest.split_once('/') {
        Some((version, name)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => rest,
    };
    match name.strip_prefix("core/ndarray") {
        Some("") => true,
        Some(version) => version
            .strip_prefix('-')
            .is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit())),
        None => false,
    }
}

/// Whether a node declares an array: one by itself, or one in chunks that are in the file.
pub(super) fn is_array(node: Node<'_>) -> bool {
    let is_chunked = |tag| chunked::is_tag(tag) && chunked::is_inside(node);
    node.tag()
        .is_some_and(|tag| is_ndarray(tag) || is_chunked(tag))
}

impl Declared {
    /// Reads the declaration at a node that is an array.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unsupported`] with its line, if it makes no sense.
    pub(super) fn read(node: Node<'_>, allowance: &mut Allowance) -> Result<Self> {
        let declared = if node.tag().is_some_and(chunked::is_tag) {
            let chunked = Chunked::read(node, allowance);
            chunked.map(|chunked| Self::Chunked(Box::new(chunked)))
        } else {
            let properties = Properties::read(node, allowance);
            properties.and_then(|properties| properties.declared(allowance))
        };
        declared.map_err(|why| why.at(node.place()))
    }
}

/// The memory that declarations may still take, in units of about one field. Aliases and merges let a short
/// text declare without end.
#[derive(Debug, Clone)]
pub(super) struct Allowance(u64);

impl Allowance {
    /// What all declarations of a tree together may cost: one for each of its nodes, and [`SPARE`].
    pub(super) fn new(tree: &Tree) -> Self {
        let nodes = len_u64(tree.len());
        Self(nodes.saturating_add(SPARE))
    }

    /// Takes `cost` from the allowance. Takes nothing, and returns false, if less is left.
    pub(super) fn take(&mut self, cost: usize) -> bool {
        let left = u64::try_from(cost)
            .ok()
            .and_then(|cost| self.0.checked_sub(cost));
        // what does not fit leaves the rest to smaller declarations
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// Takes the cost of a text that is copied into the declaration.
    fn charge(&mut self, at: Node<'_>, text: &str) -> Result<()> {
        let cost = len_u64(text.len()) / TEXT_UNIT;
        let cost = usize::try_from(cost)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        if self.take(cost) {
            return Ok(());
        }
        let why = "aliases make the declarations too large";
        Err(Error::unsupported(at.place(), why))
    }
}

/// The properties of an ndarray node, or of a field of its datatype.
#[derive(Default)]
pub(super) struct Properties<'t> {
    /// Whether the tag is one of FINF, which has a default for the byte order.
    legacy: bool,
    name: Option<Node<'t>>,
    data: Option<Node<'t>>,
    source: Option<Node<'t>>,
    pub(super) datatype: Option<Node<'t>>,
    pub(super) byteorder: Option<Node<'t>>,
    pub(super) shape: Option<Node<'t>>,
    offset: Option<Node<'t>>,
    pub(super) strides: Option<Node<'t>>,
}

impl<'t> Properties<'t> {
    /// Finds the properties of an ndarray node, its own before merged ones.
    fn read(node: Node<'t>, allowance: &mut Allowance) -> Result<Self> {
        let mut found = Self {
            legacy: node.tag().is_some_and(|tag| tag.contains(":finf/")),
            ..Self::default()
        };
        match node.follow().kind() {
            NodeKind::Sequence => found.data = Some(node.follow()),
            NodeKind::Mapping => {
                for (rank, mapping) in node.merged().enumerate() {
                    // The node's own mapping stands in the text, which has paid
                    // for it. A merged one may be the same alias a thousand times.
                    if rank > 0 && !allowance.take(mapping.len().saturating_add(1)) {
                        let why = "merges make the declarations too large";
                        return Err(unsupported(why));
                    }
                    found.fill(mapping);
                }
            }
            _ => {
                let why = "an ndarray that is neither a mapping nor a list";
                return Err(corrupt(why));
            }
        }
        for property in found.all() {
            // a null counts as no value, but hides a merged one: `strides: null` is an array in C order
            *property = property.filter(|node| node.scalar_type() != Some(Type::Null));
        }
        Ok(found)
    }

    /// Takes the missing properties from a mapping. Of equal keys in it the last counts.
    fn fill(&mut self, mapping: Node<'t>) {
        // Filled apart, because within one mapping the last of
        // equal keys counts, and between mappings the first.
        let mut own = Self::default();
        for (key, value) in mapping.entries() {
            let Some(slot) = key.text().and_then(|name| own.slot(name)) else {
                continue;
            };
            *slot = Some(value.follow());
        }
        for (mine, new) in self.all().into_iter().zip(own.all()) {
            *mine = mine.or(*new);
        }
    }

    /// Where the value of a key belongs; none for a key without a meaning here. FINF calls the datatype `dtype`.
    fn slot(&mut self, name: &str) -> Option<&mut Option<Node<'t>>> {
        Some(match name {
            "name" => &mut self.name,
            "data" => &mut self.data,
            "source" => &mut self.source,
            "datatype" | "dtype" => &mut self.datatype,
            "byteorder" => &mut self.byteorder,
            "shape" => &mut self.shape,
            "offset" => &mut self.offset,
            "strides" => &mut self.strides,
            _ => return None,
        })
    }

    /// All properties, always in the same order, so that two sets can be paired.
    fn all(&mut self) -> [&mut Option<Node<'t>>; 8] {
        [
            &mut self.name,
            &mut self.data,
            &mut self.source,
            &mut self.datatype,
            &mut self.byteorder,
            &mut self.shape,
            &mut self.offset,
            &mut self.strides,
        ]
    }

    /// What the properties declare together.
    fn declared(&self, allowance: &mut Allowance) -> Result<Declared> {
        let shape = self.shape.map(property::shape).transpose()?;
        match (self.source, self.data) {
            (Some(_), Some(_)) => Err(missing("both source and data")),
            (None, None) => Err(missing("neither source nor data")),
            (None, Some(data)) => {
                // a list in the tree has no byte order: the bytes made
                // of it are little-endian, unless a field says otherwise
                let order = ByteOrder::Little;
                let read = |node| property::datatype(node, order, MAX_DEPTH, allowance);
                Ok(Declared::Inline(Inline {
                    data: data.id(),
                    datatype: self.datatype.map(read).transpose()?,
                    shape,
                }))
            }
            (Some(source), None) => {
                let shape = shape.ok_or_else(|| missing("no shape"))?;
                self.stored(source, shape, allowance).map(Declared::Stored)
            }
        }
    }

    /// The declaration of an array in a block. It needs a datatype and, except in FINF, a byte order. The default of the offset is
    /// 0; without strides the elements are in C order.
    fn stored(
        &self,
        source: Node<'t>,
        shape: Vec<Option<u64>>,
        allowance: &mut Allowance,
    ) -> Result<StoredArray> {
        let byteorder = match self.byteorder {
            Some(node) => property::byteorder(node)?,
            // FINF 0.1.0's schema has this default; later ones make the property required.
            None if self.legacy => ByteOrder::Big,
            None => return Err(missing("no byteorder")),
        };
        let element = self.datatype.ok_or_else(|| missing("no datatype"))?;
        let datatype = property::datatype(element, byteorder, MAX_DEPTH, allowance)?;
        if datatype.size().is_none() {
            return Err(bad(element, "an element of more than 2^63 bytes"));
        }
        let strides = self.strides.map(property::strides).transpose()?;
        if let Some(strides) = &strides
            && strides.len() != shape.len()
        {
            let why = format!("{} strides for {} dimensions", strides.len(), shape.len());
            return Err(missing(&why));
        }
        Ok(StoredArray {
            storage: property::storage(source, allowance)?,
            datatype,
            byteorder,
            shape,
            offset: self.offset.map_or(Ok(0), property::offset)?,
            strides,
        })
    }
}

/// A fault of the declaration as a whole.
fn missing(why: &str) -> Error {
    corrupt(format!("an ndarray with {why}"))
}

/// A fault of one property.
fn bad(node: Node<'_>, why: impl Into<String>) -> Error {
    Error::corrupt(node.place(), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::datatype::{Field, Scalar};
    use crate::asdf::outline::Outline;

    /// The declaration of a tree that is one array.
    fn declared(body: &str) -> Result<Declared> {
        declared_with(
            "tag:stsci.edu:asdf/",
            &format!("!core/ndarray-1.0.0 {body}"),
        )
    }

    fn declared_with(prefix: &str, body: &str) -> Result<Declared> {
        let text = format!("%TAG ! {prefix}\n---\n{body}\n...\n");
        let tree = Tree::parse(text).unwrap();
        first_of(&tree)
    }

    fn first_of(tree: &Tree) -> Result<Declared> {
        Outline::new(tree).declared(tree).next().unwrap().1
    }

    fn stored(body: &str) -> StoredArray {
        match declared(body) {
            Ok(Declared::Stored(stored)) => stored,
            other => panic!("{other:?}"),
        }
    }

    fn reason(body: &str) -> String {
        declared(body).unwrap_err().to_string()
    }

    #[test]
    fn every_spelling_of_the_tag_is_known() {
        for tag in [
            "asdf/core/ndarray-1.0.0",
            "asdf/core/ndarray-1.1.0",
            "asdf/core/ndarray-7.0.0",
            "asdf/core/ndarray",
            "asdf/0.1.0/core/ndarray",
            "finf/0.1.0/core/ndarray",
        ] {
            assert!(is_ndarray(&format!("tag:stsci.edu:{tag}")), "{tag}");
        }
        for tag in [
            "!core/ndarray-1.0.0",
            "tag:stsci.edu:asdf/core/ndarray-chunk-1.0.0",
            "tag:stsci.edu:asdf/core/chunked-ndarray-1.0.0",
            "tag:stsci.edu:asdf/core/ndarrays",
            "tag:example.org:asdf/core/ndarray-1.0.0",
        ] {
            assert!(!is_ndarray(tag), "{tag}");
        }
    }

    #[test]
    fn a_view_of_a_block_is_read_with_all_its_properties() {
        let view = stored(
            "{source: -2, datatype: float32, byteorder: big, shape: ['*', 3], offset: 0x10, strides: [-24, 4]}",
        );
        assert_eq!(
            view,
            StoredArray {
                storage: Storage::Block(-2),
                datatype: Datatype::Scalar(Scalar::Float32, ByteOrder::Big),
                byteorder: ByteOrder::Big,
                shape: vec![None, Some(3)],
                offset: 16,
                strides: Some(vec![-24, 4]),
            }
        );
        let at = |source: &str| {
            let body = format!("{{source: {source}, datatype: int8, byteorder: big, shape: []}}");
            stored(&body).storage
        };
        assert_eq!(at("other.asdf"), Storage::External("other.asdf".into()));
        assert_eq!(at("'fits:SCI,1'"), Storage::Fits("SCI,1".into()));
    }

    #[test]
    fn a_structure_hands_its_byte_order_down() {
        let body = "{source: 0, byteorder: little, shape: [2], datatype: [[ascii, 4], uint16, {name: c, byteorder: big, shape: [3], datatype: [{name: x, datatype: float64}, [ucs4, 2]]}]}";
        let unnamed = |datatype| Field {
            name: None,
            datatype,
            shape: vec![],
        };
        let inner = Datatype::Struct(vec![
            Field {
                name: Some("x".into()),
                datatype: Datatype::Scalar(Scalar::Float64, ByteOrder::Big),
                shape: vec![],
            },
            unnamed(Datatype::Ucs4(2, ByteOrder::Big)),
        ]);
        let whole = Datatype::Struct(vec![
            unnamed(Datatype::Ascii(4)),
            unnamed(Datatype::Scalar(Scalar::Uint16, ByteOrder::Little)),
            Field {
                name: Some("c".into()),
                datatype: inner,
                shape: vec![3],
            },
        ]);
        assert_eq!(whole.size(), Some(4 + 2 + 3 * 16));
        assert_eq!(stored(body).datatype, whole);
    }

    #[test]
    fn finf_says_dtype_and_means_big() {
        let body = "!core/ndarray {source: 0, dtype: int16, shape: [2]}";
        let Ok(Declared::Stored(view)) = declared_with("tag:stsci.edu:finf/0.1.0/", body) else {
            panic!("not read");
        };
        assert_eq!(
            view.datatype,
            Datatype::Scalar(Scalar::Int16, ByteOrder::Big)
        );
        let why = declared_with("tag:stsci.edu:asdf/0.1.0/", body).unwrap_err();
        assert_eq!(
            why.to_string(),
            "line 3, column 1: an ndarray with no byteorder"
        );
    }

    #[test]
    fn lists_in_the_tree_are_inline_data() {
        let Ok(Declared::Inline(inline)) = declared("[[1, 2]]") else {
            panic!("not read");
        };
        assert_eq!((inline.datatype, inline.shape), (None, None));
        let Ok(Declared::Inline(inline)) = declared("{data: [1], datatype: int8, shape: [1]}")
        else {
            panic!("not read");
        };
        let int8 = Datatype::Scalar(Scalar::Int8, ByteOrder::Little);
        assert_eq!(
            (inline.datatype, inline.shape),
            (Some(int8), Some(vec![Some(1)]))
        );
    }

    #[test]
    fn merged_properties_count_where_own_ones_are_missing() {
        let text = "%TAG ! tag:stsci.edu:asdf/\n--- \nd: &d {source: 9, datatype: int8, byteorder: big, shape: [4], strides: [2]}\na: !core/ndarray-1.0.0 {<<: *d, source: 1, strides: null}\n...\n";
        let tree = Tree::parse(text).unwrap();
        let Ok(Declared::Stored(view)) = first_of(&tree) else {
            panic!("not read");
        };
        assert_eq!(
            (&view.storage, &*view.shape),
            (&Storage::Block(1), &[Some(4)][..])
        );
        assert_eq!(view.strides, None, "an own null hides what is merged");
    }

    #[test]
    fn nonsense_is_told_by_line_and_reason() {
        let with = |change: &str| {
            let key = change.split(':').next().unwrap();
            let all = [
                "source: 0",
                "datatype: int8",
                "byteorder: big",
                "shape: [2]",
            ];
            let rest = all.iter().filter(|p| !p.starts_with(&format!("{key}:")));
            let parts: Vec<&str> = rest.copied().chain([change]).collect();
            reason(&format!("{{{}}}", parts.join(", ")))
        };
        let cases = [
            (
                "datatype: float80",
                "unknown datatype 'float80': there are int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, complex64, complex128, bool8, [ascii, N] and [ucs4, N]",
            ),
            (
                "datatype: []",
                "a datatype that is neither a name nor a list",
            ),
            ("datatype: [{name: x}]", "a field without datatype"),
            (
                "datatype: [[ucs4, 9223372036854775807], int8]",
                "an element of more than 2^63 bytes",
            ),
            (
                "byteorder: middle",
                "byteorder 'middle', neither big nor little",
            ),
            ("byteorder: ~", "an ndarray with no byteorder"),
            (
                "shape: [2, '*']",
                "a '*' in shape that is not its first entry",
            ),
            ("shape: [-1]", "'-1' in shape, where a length belongs"),
            ("shape: 7", "shape '7', where a list belongs"),
            ("source: 1.5", "source '1.5', neither a block nor a URI"),
            (
                "strides: [1, 1]",
                "an ndarray with 2 strides for 1 dimensions",
            ),
            ("strides: [x]", "'x' in strides, where bytes belong"),
            ("offset: -1", "offset '-1', where bytes belong"),
            ("data: [1]", "an ndarray with both source and data"),
        ];
        for (change, expected) in cases {
            let full = with(change);
            let (place, why) = full.split_once(": ").unwrap();
            assert_eq!(why, expected);
            assert!(place.starts_with("line 3, column "), "{full}");
        }
        assert_eq!(
            reason("{}"),
            "line 3, column 1: an ndarray with neither source nor data"
        );
        assert_eq!(
            reason("7"),
            "line 3, column 1: an ndarray that is neither a mapping nor a list"
        );
        let ones = "1, ".repeat(MAX_NDIM + 1);
        assert!(with(&format!("shape: [{ones}]")).contains("33 dimensions, of 32 allowed"));
        let deep = format!("{}int8{}", "[".repeat(40), "]".repeat(40));
        assert!(with(&format!("datatype: {deep}")).contains("more than 32 levels"));
    }

    #[test]
    fn a_datatype_that_doubles_at_every_level_is_refused() {
        let mut body = "--- \nt0: &t0 int8\n".to_owned();
        body.extend((1..24).map(|i| format!("t{i}: &t{i} [*t{0}, *t{0}]\n", i - 1)));
        body += "a: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {source: 0, datatype: *t23, byteorder: big, shape: [1]}\n";
        let tree = Tree::parse(body).unwrap();
        let why = first_of(&tree).unwrap_err();
        assert!(
            why.to_string()
                .ends_with("aliases make the declarations too large")
        );
    }
}
