//! The properties of an ndarray, each from its node.

use super::{Allowance, MAX_NDIM, Properties, Storage, bad};
use crate::asdf::datatype::{ByteOrder, Datatype, Field, MAX_DEPTH, Scalar};
use crate::asdf::scalar::Value;
use crate::asdf::tree::{Node, NodeKind, quoted};
use crate::error::Result;

/// A property's value as it is written, for messages.
fn written(node: Node<'_>) -> String {
    match node.text() {
        Some(text) => quoted(text),
        None => "a collection".into(),
    }
}

/// The value, if it is an integer of at most 128 bits.
fn integer(node: Node<'_>) -> Option<i128> {
    match node.value() {
        Some(Value::Int(n)) => Some(n),
        _ => None,
    }
}

/// The items of a list property.
fn list<'t>(node: Node<'t>, what: &str) -> Result<impl Iterator<Item = Node<'t>> + use<'t>> {
    if node.follow().kind() != NodeKind::Sequence {
        let why = format!("{what} {}, where a list belongs", written(node));
        return Err(bad(node, why));
    }
    if node.len() > MAX_NDIM {
        let why = format!("{what} of {} dimensions, of {MAX_NDIM} allowed", node.len());
        return Err(bad(node, why));
    }
    Ok(node.items())
}

/// The property `shape` (core/ndarray-1.1.0): lengths of the axes. The first may be `*`, which becomes `None`.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) with the line, if it is not a list of lengths, or is longer than [`MAX_NDIM`].
pub(super) fn shape(node: Node<'_>) -> Result<Vec<Option<u64>>> {
    let dim = |(at, item): (usize, Node<'_>)| match item.value() {
        Some(Value::Str("*")) if at == 0 => Ok(None),
        Some(Value::Str("*")) => Err(bad(item, "a '*' in shape that is not its first entry")),
        _ => len(item).map(Some),
    };
    list(node, "shape")?.enumerate().map(dim).collect()
}

/// A length in a shape: an integer, not negative.
fn len(item: Node<'_>) -> Result<u64> {
    let len = integer(item).and_then(|n| u64::try_from(n).ok());
    len.ok_or_else(|| {
        bad(
            item,
            format!("{} in shape, where a length belongs", written(item)),
        )
    })
}

/// The property `strides`: bytes from one element to the next along each axis, which may be negative.
///
/// # Errors
/// As of [`shape`].
pub(super) fn strides(node: Node<'_>) -> Result<Vec<i64>> {
    let stride = |item: Node<'_>| {
        let stride = integer(item).and_then(|n| i64::try_from(n).ok());
        let why = || format!("{} in strides, where bytes belong", written(item));
        stride.ok_or_else(|| bad(item, why()))
    };
    list(node, "strides")?.map(stride).collect()
}

/// The property `offset`: bytes from the start of the block's data to the first element.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) with the line, if it is not a number of bytes from 0 to 2^63 - 1.
pub(super) fn offset(node: Node<'_>) -> Result<u64> {
    let offset = integer(node).and_then(|n| u64::try_from(n).ok());
    offset.filter(|&n| i64::try_from(n).is_ok()).ok_or_else(|| {
        bad(
            node,
            format!("offset {}, where bytes belong", written(node)),
        )
    })
}

/// The property `byteorder`, of numbers of more than one byte.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) with the line, if it is neither `big` nor `little`.
pub(super) fn byteorder(node: Node<'_>) -> Result<ByteOrder> {
    match node.text() {
        Some("big") => Ok(ByteOrder::Big),
        Some("little") => Ok(ByteOrder::Little),
        _ => {
            let why = format!("byteorder {}, neither big nor little", written(node));
            Err(bad(node, why))
        }
    }
}

/// The property `source`: the index of a block, negative if it counts from the last one; the URI of a file; or `fits:` and an
/// extension.
///
/// # Errors
/// [`Error::Corrupt`](crate::error::Error::Corrupt) with the line, if it is none of these.
pub(super) fn storage(source: Node<'_>, allowance: &mut Allowance) -> Result<Storage> {
    let block = integer(source).and_then(|n| i64::try_from(n).ok());
    match (block, source.value()) {
        (Some(block), _) => Ok(Storage::Block(block)),
        (None, Some(Value::Str(uri))) => {
            allowance.charge(source, uri)?;
            Ok(match uri.strip_prefix("fits:") {
                Some(extension) => Storage::Fits(extension.into()),
                None => Storage::External(uri.into()),
            })
        }
        _ => {
            let why = format!("source {}, neither a block nor a URI", written(source));
            Err(bad(source, why))
        }
    }
}

/// A datatype: a scalar's name, a string type with its length, or a list of fields. `order` is the byte order where nothing else is
/// declared; structures may nest `depth` levels deep.
pub(super) fn datatype(
    node: Node<'_>,
    order: ByteOrder,
    depth: usize,
    allowance: &mut Allowance,
) -> Result<Datatype> {
    // each visit costs a unit, because aliases may lead here again and again
    allowance.charge(node, "")?;
    if let Some(name) = node.text() {
        let scalar = Scalar::from_name(name);
        let why = || {
            let known: Vec<_> = Scalar::names().collect();
            let known = known.join(", ");
            format!(
                "unknown datatype {}: there are {known}, [ascii, N] and [ucs4, N]",
                written(node)
            )
        };
        return scalar
            .map(|scalar| Datatype::Scalar(scalar, order))
            .ok_or_else(|| bad(node, why()));
    }
    if node.follow().kind() != NodeKind::Sequence || node.is_empty() {
        return Err(bad(node, "a datatype that is neither a name nor a list"));
    }
    if let Some(string) = string_type(node, order) {
        return Ok(string);
    }
    let Some(below) = depth.checked_sub(1) else {
        let why = format!("a datatype of more than {MAX_DEPTH} levels");
        return Err(bad(node, why));
    };
    let fields = node
        .items()
        .map(|item| field(item, order, below, allowance));
    fields.collect::<Result<_>>().map(Datatype::Struct)
}

/// `[ascii, n]` or `[ucs4, n]`.
fn string_type(node: Node<'_>, order: ByteOrder) -> Option<Datatype> {
    let mut items = node.items();
    let (name, len) = (items.next()?, items.next()?);
    let len = integer(len).and_then(|n| u64::try_from(n).ok())?;
    match (name.text()?, items.next()) {
        ("ascii", None) => Some(Datatype::Ascii(len)),
        ("ucs4", None) => Some(Datatype::Ucs4(len, order)),
        _ => None,
    }
}

/// A field of a structured datatype: a mapping with `datatype` and perhaps `name`, `byteorder` and `shape`, or a datatype alone.
/// `order` is the byte order of the structure around it; its own datatype may have `depth` levels.
fn field(
    node: Node<'_>,
    order: ByteOrder,
    depth: usize,
    allowance: &mut Allowance,
) -> Result<Field> {
    if node.follow().kind() != NodeKind::Mapping {
        return Ok(Field {
            name: None,
            datatype: datatype(node, order, depth, allowance)?,
            shape: Vec::new(),
        });
    }
    let own = Properties::read(node, allowance)?;
    let name = own.name.and_then(Node::text).unwrap_or_default();
    allowance.charge(node, name)?;
    let order = own.byteorder.map_or(Ok(order), byteorder)?;
    let element = own
        .datatype
        .ok_or_else(|| bad(node, "a field without datatype"))?;
    // `len` refuses a `*`: a field has no end of a block to reach
    let dims = |shape| list(shape, "shape")?.map(len).collect();
    Ok(Field {
        name: (!name.is_empty()).then(|| name.into()),
        datatype: datatype(element, order, depth, allowance)?,
        shape: own.shape.map_or(Ok(Vec::new()), dims)?,
    })
}
