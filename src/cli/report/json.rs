//! `--list --json`: one object for a file. The manual has the schema; what is an extended attribute or a column of `info/` too is
//! called like it.

use std::path::Path;

use serde::ser::{Serialize, Serializer};

use crate::asdf::Reference;
use crate::asdf::header::BlockHeader;
use crate::asdf::stats::{Number, Stats};
use crate::asdf::text_frame::standard;
use crate::asdf::{Array, Snapshot};
use crate::cli::exit::Failure;
use crate::cli::print_line;
use crate::codec::code_text;
use crate::error::Error;

#[derive(serde::Serialize)]
struct FileObject<B: Serialize, A: Serialize, R: Serialize> {
    file: String,
    size: u64,
    container: String,
    version: String,
    standard: Option<String>,
    tree_size: u64,
    blocks: B,
    arrays: A,
    references: R,
    problems: Vec<String>,
}

#[derive(serde::Serialize)]
struct BlockObject {
    block: usize,
    offset: u64,
    compression: String,
    allocated_size: u64,
    used_size: u64,
    data_size: u64,
}

#[derive(serde::Serialize)]
struct ArrayObject {
    path: String,
    file: Option<String>,
    datatype: Option<String>,
    byteorder: Option<String>,
    shape: Option<Vec<u64>>,
    unit: Option<String>,
    source: String,
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
    mean: Option<f64>,
    nan: Option<u64>,
}

/// Writes a number as JSON; what JSON has no number for is null.
#[expect(clippy::ref_option, reason = "serde hands over the field by reference")]
fn number<S: Serializer>(number: &Option<Number>, to: S) -> Result<S::Ok, S::Error> {
    match *number {
        None => to.serialize_none(),
        Some(Number::Integer(number)) => to.serialize_i128(number),
        Some(Number::Single(number)) => to.serialize_f32(number),
        Some(Number::Double(number)) => to.serialize_f64(number),
    }
}

/// The statistics of an array; nulls if it has none, or can't be read.
fn stats(found: &Result<Option<Stats>, Error>) -> StatsObject {
    let found = found.as_ref().ok().copied().flatten();
    let (low, high) = found.and_then(|found| found.range).unzip();
    StatsObject {
        min: low,
        max: high,
        mean: found.and_then(|found| found.mean),
        nan: found.map(|found| found.nan),
    }
}

#[derive(serde::Serialize)]
struct ReferenceObject {
    path: String,
    file: String,
    uri: String,
}

/// Objects that are made one at a time, when they are written: there may be a million.
struct Each<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

fn block((block, header): (usize, &BlockHeader), snapshot: &Snapshot) -> BlockObject {
    BlockObject {
        block,
        offset: header.offset,
        compression: code_text(header.compression),
        allocated_size: header.allocated,
        used_size: header.used,
        data_size: snapshot.block_len(block).unwrap_or(0),
    }
}

fn array(array: &Array, found: Option<&Result<Option<Stats>, Error>>) -> ArrayObject {
    let shown = array.problem().is_none();
    ArrayObject {
        path: array.path(),
        file: shown.then(|| format!("arrays/{}.npy", array.file_path())),
        datatype: array.datatype_text(),
        byteorder: array.byteorder_text(),
        shape: array.shape().map(<[u64]>::to_vec),
        unit: array.unit().map(str::to_owned),
        source: array.source_text(),
        bytes: shown.then(|| array.bin_len()),
        problem: array.problem().map(ToString::to_string),
        stats: found.map(stats),
    }
}

fn reference(reference: &Reference) -> ReferenceObject {
    ReferenceObject {
        path: reference.path(),
        file: format!("arrays/{}", reference.file_path()),
        uri: reference.uri().to_owned(),
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
    print_line(&FileObject {
        file: path.display().to_string(),
        size: layout.len,
        container: snapshot.container(),
        version: layout.version.to_string(),
        standard: standard(snapshot.text()),
        tree_size: layout.text_end,
        blocks: Each(|| blocks().map(|found| block(found, snapshot))),
        arrays: Each(|| arrays().map(|(i, found)| array(found, stats.get(i)))),
        references: Each(|| snapshot.references().iter().map(reference)),
        problems: layout
            .findings
            .iter()
            .map(|finding| finding.error.to_string())
            .collect(),
    })
}
