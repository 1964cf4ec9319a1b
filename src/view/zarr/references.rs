//! The arrays of files as references into them: JSON as kerchunk makes it, version 1, with metadata of Zarr version 2, which xarray opens by
//! fsspec without this program.
//!
//! A chunk is a part of the file: elements that lie there in C or Fortran order, or a stored stream that numcodecs decodes. What would
//! have to be gathered, or decoded in another way, is left out. A few elements in the tree are in the references themselves.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};

use super::{Chunks, Object, no_longer, node_name, typed};
use crate::asdf::datatype::Datatype;
use crate::asdf::fits::Fits;
use crate::asdf::npy::{names, spelled};
use crate::asdf::outline::PlaceId;
use crate::asdf::{Array, Origin, Snapshot};
use crate::codec::{NUMCODECS, code_text};
use crate::error::{Error, Result, unsupported};
use crate::source::{Source, Window, len_u64, read_all};

/// Most bytes of the elements of an array that are in the references themselves.
const MOST_INSIDE: u64 = 1 << 20;
/// Most bytes that numcodecs decodes at once.
const MOST_DECODED: u64 = (1 << 31) - 1;
/// Most bytes of the attributes of a file: each array repeats the scalars of its group.
const MOST_ATTRIBUTES: usize = 32 << 20;
/// Most chunks of an array.
const MOST_CHUNKS: u64 = 1 << 20;
/// Bytes of a length in front of a stored chunk.
const LENGTH: usize = 4;

/// The references to the arrays of files.
#[derive(Debug, Default)]
pub(crate) struct References {
    by_key: Object,
    /// Bytes left for the attributes of a file.
    room: usize,
}

/// The chunks of an array, and what they are.
struct Referred {
    /// Lengths of a chunk's axes.
    chunk: Vec<u64>,
    /// `C` or `F`.
    order: char,
    /// What numcodecs calls its codec, if it has one.
    codec: Option<&'static str>,
    /// Each chunk, with the indices that lead to it.
    chunks: Vec<(Vec<u64>, Value)>,
}

impl References {
    /// Adds the arrays of the file at `url` to the group at `path`, which is empty or ends with a slash. Returns the paths of the arrays
    /// that can't be read without this program, each with the reason; so also further attributes, if there are too many.
    pub(crate) fn add(
        &mut self,
        snapshot: &Snapshot,
        url: &str,
        path: &str,
    ) -> Vec<(String, Error)> {
        self.room = MOST_ATTRIBUTES;
        self.add_group(path, snapshot, PlaceId::ROOT);
        let arrays = snapshot.arrays().iter().enumerate();
        let left_out = arrays.filter_map(|(i, array)| {
            let added = self.add_array(snapshot, i, (url, path));
            Some((array.path(), added.err()?))
        });
        let mut left_out: Vec<_> = left_out.collect();
        if self.room == 0 {
            let why = unsupported(format!("more than {MOST_ATTRIBUTES} bytes in all"));
            left_out.push(("further attributes".to_owned(), why));
        }
        left_out
    }

    /// All of them as a line of JSON.
    pub(crate) fn into_json(self) -> String {
        let all = json!({ "version": 1, "refs": self.by_key });
        format!("{all}\n")
    }

    /// The attributes, or none from where they are too many on.
    fn affordable(&mut self, attributes: Object) -> Object {
        let len = json!(attributes).to_string().len();
        self.room = self.room.saturating_sub(len);
        if self.room == 0 {
            return Object::new();
        }
        attributes
    }

    fn add_text(&mut self, key: String, value: &Value) {
        self.by_key.insert(key, value.to_string().into());
    }

    /// Adds the group of a place, unless it is there.
    fn add_group(&mut self, path: &str, snapshot: &Snapshot, place: PlaceId) {
        let key = format!("{path}.zgroup");
        if !self.by_key.contains_key(&key) {
            let attributes = self.affordable(snapshot.zarr_attributes(place));
            self.add_text(key, &json!({ "zarr_format": 2 }));
            self.add_text(format!("{path}.zattrs"), &attributes.into());
        }
    }

    /// Adds an array, and the groups that it is in.
    fn add_array(&mut self, of: &Snapshot, i: usize, (url, path): (&str, &str)) -> Result<()> {
        of.zarr_chunks(i)?;
        let array = of.array(i)?;
        let (datatype, shape) = typed(array)?;
        let dtype = dtype(datatype)?;
        let referred = of.referred(i, array, url)?;
        let paths = of.paths().ok_or_else(no_longer)?;
        let mut path = path.to_owned();
        let mut group = PlaceId::ROOT;
        for place in paths.way(array.home()) {
            self.add_group(&path, of, group);
            let name = if place == array.home() {
                node_name(&paths.stem(place), false)
            } else {
                let is_beside = paths.outline().array(place).is_some();
                node_name(&paths.directory_name(place), is_beside)
            };
            path = format!("{path}{name}/");
            group = place;
        }
        let codec = referred.codec.map(|id| json!({ "id": id }));
        let metadata = json!({
            "zarr_format": 2,
            "shape": shape,
            "chunks": referred.chunk,
            "dtype": dtype,
            "compressor": codec,
            "fill_value": null,
            "order": referred.order,
            "filters": null,
        });
        self.add_text(format!("{path}.zarray"), &metadata);
        let (attributes, axes) = of.attributes_and_axes(i);
        let mut attributes = self.affordable(attributes);
        attributes.insert("_ARRAY_DIMENSIONS".to_owned(), axes.into());
        self.add_text(format!("{path}.zattrs"), &attributes.into());
        for (indices, reference) in referred.chunks {
            let indices: Vec<_> = indices.iter().map(u64::to_string).collect();
            let key = match &*indices {
                // the only chunk of an array without axes
                [] => "0".to_owned(),
                indices => indices.join("."),
            };
            self.by_key.insert(format!("{path}{key}"), reference);
        }
        Ok(())
    }
}

impl Snapshot {
    /// The chunks of array `i` as references to the file at `url`.
    fn referred(&self, i: usize, array: &Array, url: &str) -> Result<Referred> {
        let shape = array.shape().unwrap_or_default();
        let itemsize = array.datatype().and_then(Datatype::size).unwrap_or(0);
        let (elements, at, is_fortran) = match array.origin() {
            Origin::Inline => {
                let bytes = read_all(&*self.array_bin(i)?, MOST_INSIDE)?;
                let inside = in_base64(&bytes);
                return Ok(Referred::one(shape, None, inside, bytes.is_empty()));
            }
            Origin::Block(n) => {
                let header = self.layout().blocks.get(*n).ok_or_else(no_longer)?;
                let holder = self.block(*n)?;
                let view = self.array_view(i, holder.len())?;
                let at = self.fits().map_or(Some(0), Fits::asdf_at);
                let at = at.and_then(|at| at.checked_add(header.data_offset()));
                let at = at.ok_or_else(no_longer)?;
                if header.is_transformed() {
                    if !view.is_dense() || view.len() != holder.len() {
                        return Err(unsupported("not all of a compressed block, in C order"));
                    }
                    return self.streams(*n, (shape, itemsize), (url, at));
                }
                if !view.is_dense() && !view.is_fortran_dense() {
                    return Err(unsupported("its elements do not lie together"));
                }
                let start = view.extent().start;
                let elements: Arc<dyn Source> = Arc::new(Window::new(holder, start, view.len())?);
                (elements, at.saturating_add(start), !view.is_dense())
            }
            Origin::Fits { unit, .. } => {
                let fits = self.fits().ok_or_else(no_longer)?;
                let at = fits.elements_at(*unit)?;
                let at = at.ok_or_else(|| unsupported("its unit has to be converted"))?;
                (fits.data(*unit)?, at, false)
            }
            Origin::External(_) => return Err(unsupported("in another file")),
            Origin::Chunked => return Err(unsupported("in chunks of its own")),
            Origin::Unknown => return Err(no_longer()),
        };
        Referred::plain(
            &*elements,
            (shape, itemsize),
            is_fortran,
            (url, at, self.file_len()),
        )
    }

    /// The chunks of an array that is all of the compressed block `n`, whose data begin at that byte of the file at `url`.
    fn streams(
        &self,
        n: usize,
        (shape, itemsize): (&[u64], u64),
        (url, at): (&str, u64),
    ) -> Result<Referred> {
        let stored = self.stored(n)?;
        let len = self.block_len(n).unwrap_or(0);
        if len == 0 {
            return Ok(Referred::one(shape, None, Value::Null, true));
        }
        let header = self.layout().blocks.get(n).ok_or_else(no_longer)?;
        let code = header.compression;
        let known = NUMCODECS.iter().find(|(_, known)| *known == code);
        // of chunks, where the decoded size is behind their stored one
        let (codec, size_at) = match (known, &code, self.framing(n)) {
            (_, b"zlib", Some("gzip")) => ("gzip", None),
            (Some((name, _)), b"lz4\0", Some("chunks")) => (*name, Some(0)),
            (Some((name, _)), b"blsc", Some("prefixed chunks")) => (*name, Some(4)),
            // numcodecs reads no other framing of these two, and no padding behind xz
            (_, b"lz4\0" | b"blsc" | b"xz\0\0", _) | (None, ..) => {
                let why = "compressed in a way that numcodecs does not read";
                return Err(unsupported(format!("{}, {why}", code_text(code))));
            }
            (Some((name, _)), ..) => (*name, None),
        };
        if let Some(size_at) = size_at {
            let elements = (shape, itemsize, len);
            return stored_chunks(&*stored, (codec, size_at), elements, (url, at));
        }
        if len > MOST_DECODED {
            let why =
                format!("one stream of {len} bytes; numcodecs decodes {MOST_DECODED} at most");
            return Err(unsupported(why));
        }
        let reference = json!([url, at, stored.len()]);
        Ok(Referred::one(shape, Some(codec), reference, false))
    }
}

impl Referred {
    /// An array of one chunk, or none.
    fn one(shape: &[u64], codec: Option<&'static str>, reference: Value, is_empty: bool) -> Self {
        let chunk = (vec![0; shape.len()], reference);
        Self {
            chunk: shape.iter().map(|len| (*len).max(1)).collect(),
            order: 'C',
            codec,
            chunks: if is_empty { Vec::new() } else { vec![chunk] },
        }
    }

    /// The chunks of elements that lie in a file as they are, from that byte of it on. The first axis may be the fastest. The last chunk
    /// along an axis may reach into other bytes of the file: readers leave these out.
    fn plain(
        elements: &dyn Source,
        (shape, itemsize): (&[u64], u64),
        is_fortran: bool,
        (url, at, file_len): (&str, u64, u64),
    ) -> Result<Self> {
        let turned = |mut axes: Vec<u64>| {
            if is_fortran {
                axes.reverse();
            }
            axes
        };
        let chunks = Chunks::of(&turned(shape.to_vec()), itemsize).ok_or_else(no_longer)?;
        if chunks.count() > MOST_CHUNKS {
            let why = format!("{} chunks, at most {MOST_CHUNKS} allowed", chunks.count());
            return Err(unsupported(why));
        }
        let reference = |n| -> Result<Value> {
            let extent = chunks.extent(n).ok_or_else(no_longer)?;
            let start = at.saturating_add(extent.start);
            let len = chunks.chunk_len();
            if start.saturating_add(len) <= file_len {
                return Ok(json!([url, start, len]));
            }
            // the file ends within the chunk
            let [there, len] = [extent.end.saturating_sub(extent.start), len]
                .map(|len| usize::try_from(len).unwrap_or(0));
            let mut bytes = vec![0; len];
            let own = bytes.get_mut(..there).ok_or_else(no_longer)?;
            elements.read_exact_at(own, extent.start)?;
            Ok(in_base64(&bytes))
        };
        let all = (0..chunks.count())
            .map(|n| Ok((turned(chunks.indices(chunks.place(n))), reference(n)?)));
        Ok(Self {
            chunks: all.collect::<Result<_>>()?,
            chunk: turned(chunks.shape().to_vec()),
            order: if is_fortran { 'F' } else { 'C' },
            codec: None,
        })
    }
}

/// The chunks of a block as chunks of an array of that shape, element size and length: all have the same number of whole rows. In front
/// of each is its stored length; `size_at` bytes behind that, its decoded one.
fn stored_chunks(
    stored: &dyn Source,
    (codec, size_at): (&'static str, u64),
    (shape, itemsize, len): (&[u64], u64, u64),
    (url, at): (&str, u64),
) -> Result<Referred> {
    let (mut streams, mut from, mut decoded, mut each) = (Vec::new(), 0_u64, 0_u64, None);
    while decoded < len {
        let mut lengths = [[0; LENGTH]; 2];
        let [stream, size] = &mut lengths;
        stored.read_header_at(stream, from)?;
        let start = from.saturating_add(len_u64(LENGTH));
        stored.read_header_at(size, start.saturating_add(size_at))?;
        // Python asdf writes the stored length, LZ4 and Blosc their own headers
        let (stream, size) = (u32::from_be_bytes(*stream), u32::from_le_bytes(*size));
        streams.push(json!([url, at.saturating_add(start), stream]));
        if *each.get_or_insert(size) != size || size == 0 || len_u64(streams.len()) > MOST_CHUNKS {
            return Err(unsupported(format!("{codec} chunks of different lengths")));
        }
        from = start.saturating_add(stream.into());
        decoded = decoded.saturating_add(size.into());
    }
    let each = u64::from(each.unwrap_or(0));
    let chunks = Chunks::of_len(shape, itemsize, each).filter(|_| decoded == len);
    let why = || unsupported(format!("its {codec} chunks do not end with rows"));
    let chunks = chunks.ok_or_else(why)?;
    let indexed = (0..chunks.count()).map(|n| chunks.indices(chunks.place(n)));
    Ok(Referred {
        chunks: indexed.zip(streams).collect(),
        chunk: chunks.shape().to_vec(),
        order: 'C',
        codec: Some(codec),
    })
}

/// Bytes as kerchunk has them in the references themselves.
fn in_base64(bytes: &[u8]) -> Value {
    format!("base64:{}", BASE64_STANDARD.encode(bytes)).into()
}

/// The type of elements as version 2 of Zarr has it: NumPy's string, or a list of fields.
fn dtype(datatype: &Datatype) -> Result<Value> {
    let Datatype::Struct(fields) = datatype else {
        return Ok(spelled(datatype).into());
    };
    let typed = fields.iter().zip(names(fields)).map(|(field, name)| {
        if matches!(field.datatype, Datatype::Struct(_)) {
            return Err(unsupported("Zarr 2 has no records in records"));
        }
        Ok(json!([name, dtype(&field.datatype)?]))
    });
    typed.collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{array, snapshot};
    use super::*;

    /// The references of a file of one block with these bytes, and what is left out.
    fn made(body: &str, bytes: &[u8]) -> (Value, Vec<String>) {
        let snapshot = snapshot(body, bytes);
        let mut references = References::default();
        let left_out = references.add(&snapshot, "file:///a", "");
        let left_out = left_out.iter().map(|(path, why)| format!("{path}: {why}"));
        let mut json: Value = serde_json::from_str(&references.into_json()).unwrap();
        assert_eq!(json["version"], 1);
        (json["refs"].take(), left_out.collect())
    }

    fn text(refs: &Value, key: &str) -> Value {
        serde_json::from_str(refs[key].as_str().unwrap()).unwrap()
    }

    #[test]
    fn a_chunk_is_a_part_of_the_file() {
        let body = format!(
            "m: {{x: {}, dims: [y, x], gain: 2}}\nf: {}\n",
            array("int16", "shape: [2, 3], offset: 4"),
            array("int8", "shape: [2, 3], strides: [1, 2]"),
        );
        let bytes: Vec<u8> = (0..32).collect();
        let (refs, left_out) = made(&body, &bytes);
        assert!(left_out.is_empty(), "{left_out:?}");
        let file = snapshot(&body, &bytes);
        let data = file.layout().blocks.get(0).unwrap().data_offset();
        assert_eq!(refs["m/x/0.0"], json!(["file:///a", data + 4, 12]));
        let metadata = text(&refs, "m/x/.zarray");
        assert_eq!(metadata["dtype"], ">i2");
        assert_eq!(
            (&metadata["order"], &metadata["chunks"]),
            (&json!("C"), &json!([2, 3]))
        );
        assert_eq!(metadata["fill_value"], Value::Null);
        let attributes = json!({"gain": 2, "_ARRAY_DIMENSIONS": ["y", "x"]});
        assert_eq!(text(&refs, "m/x/.zattrs"), attributes);
        assert_eq!(text(&refs, "m/.zattrs"), json!({"gain": 2}));
        assert_eq!(text(&refs, "m/.zgroup"), json!({"zarr_format": 2}));
        assert_eq!(text(&refs, "f/.zarray")["order"], "F");
        assert_eq!(refs["f/0.0"], json!(["file:///a", data, 6]));
        assert_eq!(refs.as_object().unwrap().len(), 10);
    }

    #[test]
    fn a_last_chunk_reaches_into_what_follows_or_is_here() {
        let bytes = vec![7; 5 << 20];
        let body = format!(
            "x: {}\ny: {}\n",
            array("uint8", "shape: [4194305]"),
            array("uint8", "shape: [4194306]")
        );
        let (refs, _) = made(&body, &bytes);
        let half = (4 << 19) + 1;
        for (key, at) in [("x/0", 0), ("y/0", 0), ("y/1", half)] {
            assert_eq!(refs[key][2], half, "{key}");
            assert_eq!(refs[key][1], refs["x/0"][1].as_u64().unwrap() + at, "{key}");
        }
        // a byte of it is none of the array
        assert_eq!(refs["x/1"][2], half);
        let body = format!("x: {}\n", array("uint8", "shape: [3, 1572864]"));
        let (refs, _) = made(&body, &bytes[..3 * 1_572_864]);
        assert_eq!(refs["x/0.0"][2], 3_145_728);
        let inside = refs["x/1.0"].as_str().unwrap();
        let inside = inside.strip_prefix("base64:BwcH").unwrap();
        assert_eq!((inside.len(), inside.ends_with("AAAA")), (4_194_300, true));
    }

    /// A mapping of long texts that others merge made references of gigabytes.
    #[test]
    fn attributes_are_left_out_where_they_are_too_many() {
        let texts = |n| format!("  k{n}: {}\n", "x".repeat(4000));
        let base: String = (0..200).map(texts).collect();
        let x = array("int8", "shape: [2]");
        let groups = |n| format!("m{n}: {{<<: *b, x: {x}}}\n");
        let groups: String = (0..25).map(groups).collect();
        let (refs, left_out) = made(&format!("b: &b\n{base}{groups}"), &[0; 8]);
        assert_eq!(
            left_out,
            ["further attributes: more than 33554432 bytes in all"]
        );
        assert!(text(&refs, "m0/x/.zattrs")["k0"].is_string());
        assert_eq!(text(&refs, "m24/.zattrs"), json!({}));
        assert_eq!(
            text(&refs, "m24/x/.zattrs"),
            json!({"_ARRAY_DIMENSIONS": ["d1_2"]})
        );
        assert!(refs["m24/x/0"].is_array());
    }

    #[test]
    fn what_needs_this_program_is_left_out() {
        let body = format!(
            "gap: {}\nnone: {}\ndeep: {}\nfar: !core/ndarray-1.0.0 {{source: b.asdf, datatype: int8, byteorder: big, shape: [2]}}\n\
             inline: !core/ndarray-1.0.0 {{datatype: int8, data: [1, 2]}}\n",
            array("int8", "shape: [2, 3], strides: [8, 1]"),
            array("[ascii, 0]", "shape: [3]"),
            array(
                "[{name: a, datatype: [{name: b, datatype: int8}]}]",
                "shape: [3]"
            ),
        );
        let (refs, left_out) = made(&body, &[0; 32]);
        let want = [
            "gap: its elements do not lie together",
            "none: array none: Zarr has no strings of no characters",
            "deep: Zarr 2 has no records in records",
            "far: in another file",
        ];
        assert_eq!(left_out, want);
        assert_eq!(refs["inline/0"], "base64:AQI=");
    }
}
