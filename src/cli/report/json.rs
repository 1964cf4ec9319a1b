//! `--list --json`: one object for each file. The manual has the schema. A field that is also an extended attribute or a column of
//! `info/` has the same name there.

use std::collections::HashMap;
use std::path::Path;

use serde::ser::{Serialize, Serializer};

use crate::asdf::Origin;
use crate::asdf::header::BlockHeader;
use crate::asdf::text_frame::standard;
use crate::asdf::{Array, Snapshot};
use crate::cli::exit::Failure;
use crate::cli::print_line;
use crate::codec::code_text;
use crate::error::Error;
use crate::view::json;
use crate::view::stats::{Number, Stats};

#[derive(Default, serde::Serialize)]
struct FileObject<B: Serialize, A: Serialize, R: Serialize> {
    file: String,
    size: Option<u64>,
    container: Option<String>,
    version: Option<String>,
    standard: Option<String>,
    asdf_library: Option<String>,
    tree_size: Option<u64>,
    blocks: Option<B>,
    arrays: Option<A>,
    references: Option<R>,
    problems: Vec<String>,
}

#[derive(serde::Serialize)]
struct BlockObject<A: Serialize> {
    block: usize,
    offset: u64,
    header_size: u16,
    flags: u32,
    compression: String,
    framing: Option<&'static str>,
    allocated_size: u64,
    used_size: u64,
    data_size: u64,
    checksum: String,
    checksum_state: String,
    arrays: A,
    problem: Option<String>,
}

#[derive(serde::Serialize)]
struct ArrayObject<'a> {
    path: String,
    file: Option<String>,
    datatype: Option<String>,
    byteorder: Option<String>,
    shape: Option<Vec<u64>>,
    strides: Option<Vec<i64>>,
    offset: u64,
    unit: Option<String>,
    #[serde(serialize_with = "source")]
    source: &'a Array,
    bytes: Option<u64>,
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<StatsObject>,
}

#[derive(serde::Serialize)]
struct StatsObject {
    #[serde(serialize_with = "number")]
    min: Option<Number>,
    #[serde(serialize_with = "number")]
    max: Option<Number>,
    #[serde(serialize_with = "number")]
    mean: Option<Number>,
    nan: Option<u64>,
    problem: Option<String>,
}

/// Writes where the elements of an array are: the number of a block, or a text; null if that is not known.
fn source<S: Serializer>(array: &Array, to: S) -> Result<S::Ok, S::Error> {
    match array.origin() {
        Origin::Block(n) => n.serialize(to),
        Origin::Unknown => to.serialize_none(),
        _ => to.serialize_str(&array.source_text()),
    }
}

/// Writes a number as JSON; infinities and NaN as the strings that they are in the JSON of a tree.
#[expect(clippy::ref_option, reason = "serde hands over the field by reference")]
fn number<S: Serializer>(number: &Option<Number>, to: S) -> Result<S::Ok, S::Error> {
    let (value, single) = match *number {
        None => return to.serialize_none(),
        Some(Number::Integer(number)) => return to.serialize_i128(number),
        Some(Number::Single(number)) => (f64::from(number), Some(number)),
        Some(Number::Double(number)) => (number, None),
    };
    match (json::not_finite(value), single) {
        (Some(text), _) => to.serialize_str(text),
        (None, Some(number)) => to.serialize_f32(number),
        (None, None) => to.serialize_f64(value),
    }
}

/// The statistics of an array; nulls if it has none, or can't be read.
fn stats(found: &Result<Option<Stats>, Error>) -> StatsObject {
    let problem = found.as_ref().err().map(ToString::to_string);
    let found = found.as_ref().ok().copied().flatten();
    let (low, high) = found.and_then(|found| found.range).unzip();
    StatsObject {
        min: low,
        max: high,
        mean: found.and_then(|found| found.mean).map(Number::Double),
        nan: found.map(|found| found.nan),
        problem,
    }
}

#[derive(serde::Serialize)]
struct ReferenceObject {
    path: String,
    uri: String,
}

/// A list of objects, each made when it is written: there may be a million.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

fn block<'a>(
    (block, header): (usize, &BlockHeader),
    snapshot: &'a Snapshot,
    unused: &[usize],
    by_map: &'a HashMap<usize, Vec<&'a Array>>,
) -> BlockObject<impl Serialize + use<'a>> {
    BlockObject {
        block,
        offset: header.offset,
        header_size: header.header_size,
        flags: header.flags,
        compression: code_text(header.compression),
        framing: snapshot.framing(block),
        allocated_size: header.allocated,
        used_size: header.used,
        data_size: snapshot.block_len(block).unwrap_or(0),
        checksum: header.checksum_text(),
        checksum_state: snapshot.checksum_state(block).to_string(),
        arrays: Each(move || snapshot.paths_in_block(block, by_map)),
        problem: snapshot.block_problem(block, unused),
    }
}

fn array<'a>(array: &'a Array, found: Option<&Result<Option<Stats>, Error>>) -> ArrayObject<'a> {
    let shown = array.problem().is_none();
    ArrayObject {
        path: array.path(),
        file: array.listed_file(),
        datatype: array.datatype_text(),
        byteorder: array.byteorder_text(),
        shape: array.shape().map(<[u64]>::to_vec),
        strides: array.strides().map(<[i64]>::to_vec),
        offset: array.offset(),
        unit: array.unit().map(str::to_owned),
        source: array,
        bytes: shown.then(|| array.bin_len()),
        problem: array.remark(),
        stats: found.map(stats),
    }
}

/// Prints what a mount of the file at `path` would show, as one line.
pub(super) fn print(
    path: &Path,
    snapshot: &Snapshot,
    stats: &[Result<Option<Stats>, Error>],
) -> Result<(), Failure> {
    let layout = snapshot.layout();
    let blocks = || layout.blocks.iter().enumerate();
    let arrays = || snapshot.arrays().iter().enumerate();
    let (unused, by_map) = (snapshot.listed_unused(), snapshot.arrays_by_map());
    print_line(&FileObject {
        file: path.display().to_string(),
        size: Some(snapshot.file_len()),
        container: Some(snapshot.container()),
        version: Some(layout.version.to_string()),
        standard: standard(snapshot.text()),
        asdf_library: snapshot.written_by(),
        tree_size: Some(layout.text_end),
        blocks: Some(Each(|| {
            blocks().map(|found| block(found, snapshot, &unused, &by_map))
        })),
        arrays: Some(Each(|| {
            arrays().map(|(i, found)| array(found, stats.get(i)))
        })),
        references: Some(Each(|| {
            let references = snapshot.references();
            references.map(|(path, uri)| ReferenceObject {
                path,
                uri: uri.to_owned(),
            })
        })),
        problems: super::problems_around_arrays(snapshot).collect(),
    })
}

/// Prints that nothing is known of the file at `path`, and why.
pub(super) fn print_unread(path: &Path, failure: &Failure) -> Result<(), Failure> {
    print_line(&FileObject::<(), (), ()> {
        file: path.display().to_string(),
        problems: vec![failure.about(path).to_owned()],
        ..FileObject::default()
    })
}
