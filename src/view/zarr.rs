//! Arrays as a group of Zarr: what `zarr/` of a mount shows, and what `--references` says of a file.
//!
//! A mapping or sequence of the tree that leads to arrays is a group, an array an array of Zarr core specification 3, with a regular grid of
//! [`Chunks`] and the codec `bytes`: the elements in C order with their own byte order. Records are little-endian, as zarr-python has
//! them, and strings are of its types `null_terminated_bytes` and `fixed_length_utf32`. What is masked in the tree has its elements here,
//! as in an NPY file.

mod chunks;
mod references;

use std::collections::HashSet;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::json::not_finite;
use super::{MAX_BESIDE, array_at, entries, no_longer, padded, typed};
use crate::asdf::datatype::{ByteOrder, Datatype, Orders, Scalar};
use crate::asdf::npy::names;
use crate::asdf::outline::PlaceId;
use crate::asdf::rows::{Conversion, RowField, RowPart, Rows};
use crate::asdf::strided::MAX_NDIM;
use crate::asdf::tree::{Node, NodeKind};
use crate::asdf::{Array, Paths, Snapshot, scalar};
use crate::error::{Place, Result, unsupported};
use crate::source::{Source, Window};

pub(crate) use chunks::Chunks;
pub(crate) use references::References;

/// Attributes, or metadata by the paths of nodes.
pub(crate) type Object = serde_json::Map<String, Value>;

/// The name of the file with the metadata of a group or an array.
pub(crate) const METADATA: &str = "zarr.json";
/// What metadata of all versions are called.
const OURS: [&str; 5] = [METADATA, ".zarray", ".zattrs", ".zgroup", ".zmetadata"];
/// The name of the directory of an array's chunks, or of the only chunk of an array without axes.
pub(crate) const CHUNKS: &str = "c";
/// Attributes by which xarray reads other elements than are there: only the group has them.
const DECODING: &str =
    "_Encoding _FillValue _Unsigned add_offset calendar dtype missing_value scale_factor units";
/// Most keys of a mapping whose scalars are attributes: each array in it has them.
const MAX_KEYS: usize = 256;
/// Longest text of an attribute, in bytes.
const MAX_TEXT: usize = 4 << 10;
/// The keys beside an array that may name its axes.
const AXES: [&str; 3] = ["dimension_names", "dimensions", "dims"];

impl Snapshot {
    /// The chunks of array `i`.
    ///
    /// # Errors
    /// [`crate::error::Error::Unsupported`] if Zarr has no such type; [`Array::problem`].
    pub(crate) fn zarr_chunks(&self, i: usize) -> Result<Chunks> {
        let array = self.array(i)?;
        let chunks = chunks_of(array);
        chunks.map_err(|error| error.at(Place::Array(array.brief_path())))
    }

    /// The metadata of array `i`.
    ///
    /// # Errors
    /// As [`Snapshot::zarr_chunks`].
    pub(crate) fn zarr_metadata(&self, i: usize) -> Result<Value> {
        let chunks = self.zarr_chunks(i)?;
        let (datatype, shape) = typed(self.array(i)?)?;
        let (attributes, axes) = self.attributes_and_axes(i);
        let codec = match datatype.orders() {
            Orders::All(order) if !matches!(datatype, Datatype::Struct(_)) => {
                json!({ "name": "bytes", "configuration": { "endian": order.to_string() } })
            }
            _ => json!({ "name": "bytes" }),
        };
        Ok(json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": data_type(datatype).map_err(unsupported)?,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunks.shape() } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": fill_value(datatype),
            "codecs": [codec],
            "attributes": attributes,
            "dimension_names": axes,
        }))
    }

    /// The bytes of a chunk of array `i`, whose elements in C order are these: padded with zeros if it reaches beyond the array.
    ///
    /// # Errors
    /// As [`Snapshot::zarr_chunks`]; [`crate::error::Error::Corrupt`] if there are too few elements.
    pub(crate) fn zarr_chunk(
        &self,
        i: usize,
        chunk: u64,
        mut elements: Arc<dyn Source>,
    ) -> Result<Arc<dyn Source>> {
        let chunks = self.zarr_chunks(i)?;
        let extent = chunks.extent(chunk).ok_or_else(no_longer)?;
        let (datatype, _) = typed(self.array(i)?)?;
        if let Datatype::Struct(_) = datatype {
            let mut fields = Vec::new();
            let record = lay_out(datatype, 0, &mut fields);
            let count = elements.len().checked_div(record).unwrap_or(0);
            let part = RowPart {
                records: elements,
                record,
                fields,
            };
            elements = Rows::new(vec![part], record, count)?.into_source();
        }
        let len = extent.end.saturating_sub(extent.start);
        let there = Window::new(elements, extent.start, len)?;
        // all chunks of a regular grid are equally long
        padded(Arc::new(there), chunks.chunk_len())
    }

    /// The attributes of array `i`, and the names of its axes.
    fn attributes_and_axes(&self, i: usize) -> (Object, Vec<String>) {
        let Some((array, paths)) = self.arrays().get(i).zip(self.paths()) else {
            return (Object::new(), Vec::new());
        };
        let home = array.home();
        let parent = paths.parent(home);
        let around = paths.node(parent);
        let mut attributes = around.map(scalars).unwrap_or_default();
        attributes.retain(|key, _| !DECODING.split(' ').any(|it| it == key));
        let mask = paths.node(home).and_then(|own| attribute(own.get("mask")?));
        let own = [("unit", array.unit().map(Value::from)), ("mask", mask)];
        let own = own.into_iter();
        attributes.extend(own.filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let name = paths.steps(home).pop().unwrap_or_default();
        let shape = array.shape().unwrap_or_default();
        // the shape that names of so many axes belong to: that of the first array beside them
        let shape_with = |count: usize| {
            let beside = around?.merged().flat_map(Node::entries);
            let beside = beside.filter_map(|(_, node)| self.arrays().get(array_at(paths, node)?));
            let beside = beside.filter(|array| paths.parent(array.home()) == parent);
            let mut shapes = beside.filter_map(Array::shape);
            shapes.find(|shape| shape.len() == count)
        };
        (attributes, axes(around, &name, shape, shape_with))
    }

    /// The attributes of the group of a place: the scalars of its mapping.
    pub(crate) fn zarr_attributes(&self, place: PlaceId) -> Object {
        let is_group = |paths: &&Paths| paths.outline().array(place).is_none();
        let paths = self.paths().filter(is_group);
        let node = paths.and_then(|paths| paths.node(place));
        node.map(scalars).unwrap_or_default()
    }
}

/// The chunks of an array.
fn chunks_of(array: &Array) -> Result<Chunks> {
    let (datatype, shape) = typed(array)?;
    data_type(datatype).map_err(unsupported)?;
    let itemsize = datatype.size().ok_or_else(no_longer)?;
    let too_large = || {
        let most = chunks::MOST;
        unsupported(format!(
            "elements of {itemsize} bytes, chunks have {most} at most"
        ))
    };
    Chunks::of(shape, itemsize).ok_or_else(too_large)
}

/// The metadata of a group, with that of all nodes below it by their paths if they are given.
pub(crate) fn group(attributes: &Object, below: Option<Object>) -> Value {
    let mut metadata = json!({
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
    });
    if let (Some(below), Some(metadata)) = (below, metadata.as_object_mut()) {
        // as zarr-python writes it; the specification has no word of it yet
        let consolidated = json!({ "kind": "inline", "must_understand": false, "metadata": below });
        metadata.insert("consolidated_metadata".to_owned(), consolidated);
    }
    metadata
}

/// Metadata as the text of a file.
pub(crate) fn text(metadata: &Value) -> Vec<u8> {
    format!("{metadata}\n").into_bytes()
}

/// The name of a node, by its name under `arrays/`. Percent-encoded are what Zarr forbids (names of metadata and of dots, `__` at the
/// beginning) and a backslash, a slash for zarr-python. A directory beside an array of its name has a `%` behind it.
pub(crate) fn node_name(name: &str, is_beside_array: bool) -> String {
    let mut name = match name.strip_prefix("__") {
        Some(rest) => format!("%5F_{rest}"),
        None if OURS.contains(&name) || name.bytes().all(|byte| byte == b'.') => {
            name.replacen('.', "%2E", 1)
        }
        None => name.to_owned(),
    }
    .replace('\\', "%5C");
    if is_beside_array {
        name.push('%');
    }
    name
}

/// What names under `arrays/` a node of that name may have, if it is a directory beside an array or not.
pub(crate) fn names_in_arrays(name: &str) -> impl Iterator<Item = (String, bool)> {
    let beside = name.strip_suffix('%').map(|stem| (stem, true));
    let both = [Some((name, false)), beside].into_iter().flatten();
    let all = both.flat_map(|(stem, is_beside)| {
        // no name under `arrays/` has an escaped backslash
        let stem = stem.replace("%5C", "\\");
        let plain = stem.replacen("%5F_", "__", 1).replacen("%2E", ".", 1);
        [(stem, is_beside), (plain, is_beside)]
    });
    all.filter(move |(found, is_beside)| node_name(found, *is_beside) == name)
}

/// The type of elements.
fn data_type(datatype: &Datatype) -> Result<Value, &'static str> {
    let text = |name: &str| {
        let length = json!({ "length_bytes": datatype.size() });
        json!({ "name": name, "configuration": length })
    };
    Ok(match datatype {
        Datatype::Ascii(0) | Datatype::Ucs4(0, _) => {
            return Err("Zarr has no strings of no characters");
        }
        Datatype::Ascii(_) => text("null_terminated_bytes"),
        Datatype::Ucs4(..) => text("fixed_length_utf32"),
        Datatype::Struct(fields) => {
            let typed = fields.iter().zip(names(fields)).map(|(field, name)| {
                if !field.shape.is_empty() {
                    return Err("Zarr has no records with arrays in them");
                }
                Ok(json!([name, data_type(&field.datatype)?]))
            });
            let typed: Vec<Value> = typed.collect::<Result<_, _>>()?;
            json!({ "name": "structured", "configuration": { "fields": typed } })
        }
        Datatype::Scalar(Scalar::Bool8, _) => "bool".into(),
        Datatype::Scalar(scalar, _) => scalar.name().into(),
    })
}

/// The element that stands where there is none.
fn fill_value(datatype: &Datatype) -> Value {
    match datatype {
        Datatype::Ascii(_) | Datatype::Ucs4(..) => "".into(),
        Datatype::Struct(_) => {
            let size = datatype.size().unwrap_or(0).min(chunks::MOST);
            let zeros = vec![0; usize::try_from(size).unwrap_or(0)];
            BASE64_STANDARD.encode(zeros).into()
        }
        Datatype::Scalar(scalar, _) => match scalar.kind() {
            'b' => false.into(),
            'c' => json!([0.0, 0.0]),
            'f' => json!(0.0),
            _ => 0.into(),
        },
    }
}

/// Appends the numbers and texts of a record that begins at `at`, each little-endian. Gives where it ends.
fn lay_out(datatype: &Datatype, at: u64, out: &mut Vec<RowField>) -> u64 {
    let number = |size, order| (size, order == ByteOrder::Big);
    let (count, (size, swap)) = match datatype {
        Datatype::Struct(fields) => {
            let each = fields.iter();
            return each.fold(at, |at, field| lay_out(&field.datatype, at, out));
        }
        Datatype::Ascii(len) => (*len, (1, false)),
        Datatype::Ucs4(len, order) => (*len, number(4, *order)),
        Datatype::Scalar(Scalar::Complex64, order) => (2, number(4, *order)),
        Datatype::Scalar(Scalar::Complex128, order) => (2, number(8, *order)),
        Datatype::Scalar(scalar, order) => (1, number(scalar.size(), *order)),
    };
    let change = Conversion::Number {
        size,
        swap,
        flip: false,
    };
    out.push(RowField {
        from: at,
        to: at,
        count,
        change,
    });
    at.saturating_add(datatype.size().unwrap_or(0))
}

/// The names of the axes of an array: as the mapping around it has them under any of [`AXES`], if its axes are as long as those of the
/// array that the names are of, or else `dN_LEN`, where N counts from the last axis.
fn axes<'a>(
    around: Option<Node<'_>>,
    name: &str,
    shape: &[u64],
    shape_with: impl Fn(usize) -> Option<&'a [u64]>,
) -> Vec<String> {
    let around = around.filter(|around| around.is_within(MAX_BESIDE));
    let names = |names: Node<'_>| {
        let names = names.items().take(MAX_NDIM);
        let names = names.map(|name| match name.value()? {
            scalar::Value::Str(name) => Some(name.to_owned()),
            _ => None,
        });
        let names: Option<Vec<_>> = names.collect();
        let different = |names: &Vec<String>| names.iter().collect::<HashSet<_>>().len();
        names.filter(|names| different(names) == names.len())
    };
    let all = AXES.iter().filter_map(|key| names(around?.get(key)?));
    for names in all {
        // xarray opens no group in which axes of one name have different lengths
        let lens = shape_with(names.len());
        // a coordinate is called like the axis that it is of
        let at = names.iter().position(|axis| axis == name);
        if let ([len], Some(at)) = (shape, at)
            && lens.is_none_or(|lens| lens.get(at) == Some(len))
        {
            return vec![name.to_owned()];
        }
        if lens == Some(shape) {
            return names;
        }
    }
    // xarray takes axes of one name for the same: these are such as NumPy would broadcast together
    let numbers = (1..=shape.len()).rev();
    let axes = numbers.zip(shape).map(|(n, len)| format!("d{n}_{len}"));
    axes.collect()
}

/// The scalars of a mapping, with those that `<<` merges into it, by their keys; none if it has too many keys.
fn scalars(mapping: Node<'_>) -> Object {
    if !mapping.is_within(MAX_KEYS) {
        return Object::new();
    }
    let all = entries(mapping.merged(), Node::text).into_iter();
    let shown = all.filter(|(key, _)| key.len() <= MAX_TEXT);
    let shown = shown.filter_map(|(key, value)| Some((key.to_owned(), attribute(value)?)));
    shown.collect()
}

/// A scalar as JSON, if it is one and not too long.
fn attribute(node: Node<'_>) -> Option<Value> {
    let node = node.follow();
    if node.kind() != NodeKind::Scalar || node.text().is_none_or(|text| text.len() > MAX_TEXT) {
        return None;
    }
    Some(match node.value()? {
        scalar::Value::Null => Value::Null,
        scalar::Value::Bool(value) => value.into(),
        // readers have numbers of 64 bits, and would round what is longer
        scalar::Value::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            _ => value.to_string().into(),
        },
        scalar::Value::Float(value) => not_finite(value).map_or_else(|| json!(value), Value::from),
        scalar::Value::Huge(text) | scalar::Value::Str(text) | scalar::Value::Malformed(text) => {
            text.into()
        }
    })
}

#[cfg(test)]
mod tests;
