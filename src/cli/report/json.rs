//! `--list --json`: one object for a file. The manual has the schema; a name that is an extended attribute too is called like it.

use std::path::Path;

use serde::ser::{Serialize, Serializer};

use crate::asdf::Reference;
use crate::asdf::frame::standard;
use crate::asdf::stats::{Number, Stats};
use crate::asdf::{Array, Snapshot};
use crate::cli::exit::Failure;
use crate::cli::print_line;
use crate::codec::code_text;
use crate::error::Error;

#[derive(serde::Serialize)]
struct FileObject<'a> {
    file: String,
    size: u64,
    container: String,
    version: String,
    standard: Option<String>,
    tree_size: u64,
    blocks: Blocks<'a>,
    arrays: Arrays<'a>,
    references: References<'a>,
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
    size: Option<u64>,
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<StatsObject>,
}

#[derive(serde::Serialize)]
struct StatsObject {
    min: Option<NumberValue>,
    max: Option<NumberValue>,
    mean: Option<f64>,
    nan: Option<u64>,
}

/// A number; what JSON has no number for is null.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum NumberValue {
    Integer(i128),
    Single(f32),
    Double(f64),
}

impl From<Number> for NumberValue {
    fn from(number: Number) -> Self {
        match number {
            Number::Integer(number) => Self::Integer(number),
            Number::Single(number) => Self::Single(number),
            Number::Double(number) => Self::Double(number),
        }
    }
}

/// The statistics of an array; nulls if it has none, or can't be read.
fn stats(found: &Result<Option<Stats>, Error>) -> StatsObject {
    let found = found.as_ref().ok().copied().flatten();
    let (low, high) = found.and_then(|found| found.range).unzip();
    StatsObject {
        min: low.map(Into::into),
        max: high.map(Into::into),
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

/// The blocks of a file, one at a time: there may be a million.
struct Blocks<'a>(&'a Snapshot);

/// The arrays of a file, one at a time, perhaps with their statistics.
struct Arrays<'a>(&'a Snapshot, &'a [Result<Option<Stats>, Error>]);

/// What of a file leads into others.
struct References<'a>(&'a Snapshot);

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let blocks = self.0.layout().blocks.iter().enumerate();
        to.collect_seq(blocks.map(|(block, header)| BlockObject {
            block,
            offset: header.offset,
            compression: code_text(header.compression),
            allocated_size: header.allocated,
            used_size: header.used,
            data_size: self.0.block_len(block).unwrap_or(0),
        }))
    }
}

impl Serialize for Arrays<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let arrays = self.0.arrays().iter().enumerate();
        to.collect_seq(arrays.map(|(i, array): (usize, &Array)| {
            let shown = array.problem().is_none();
            ArrayObject {
                path: array.path(),
                file: shown.then(|| format!("arrays/{}.npy", array.file_path())),
                datatype: array.datatype_text(),
                byteorder: array.byteorder_text(),
                shape: array.shape().map(<[u64]>::to_vec),
                unit: array.unit().map(str::to_owned),
                source: array.source_text(),
                size: shown.then(|| array.bin_len()),
                problem: array.problem().map(ToString::to_string),
                stats: self.1.get(i).map(stats),
            }
        }))
    }
}

impl Serialize for References<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            self.0
                .references()
                .iter()
                .map(|reference: &Reference| ReferenceObject {
                    path: reference.path(),
                    file: format!("arrays/{}", reference.file_path()),
                    uri: reference.uri().to_owned(),
                }),
        )
    }
}

/// Prints what a mount of the file at `path` would show, as one line.
pub(super) fn print(
    path: &Path,
    snapshot: &Snapshot,
    stats: &[Result<Option<Stats>, Error>],
) -> Result<(), Failure> {
    let layout = snapshot.layout();
    print_line(&FileObject {
        file: path.display().to_string(),
        size: layout.len,
        container: snapshot.container(),
        version: layout.version.to_string(),
        standard: standard(snapshot.text()),
        tree_size: layout.text_end,
        blocks: Blocks(snapshot),
        arrays: Arrays(snapshot, stats),
        references: References(snapshot),
        problems: layout
            .findings
            .iter()
            .map(|finding| finding.error.to_string())
            .collect(),
    })
}
