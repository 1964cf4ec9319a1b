//! The texts under `info/`.

mod stats;
mod status;

use std::collections::HashMap;
use std::fmt::Display;

use super::node::Node;
use super::state::State;
use super::{Vfs, locked};
use crate::asdf::{self, Array, Snapshot};
use crate::codec::code_text;
use crate::error::printable;
use crate::source::len_u64;
use crate::view::fits::Subject;
use crate::view::json;

/// The most problems of a kind that are shown.
const MAX_PROBLEMS: usize = 100;

/// Longest `info/tree.json`, in bytes, that is kept from when its length was asked for to when it is opened.
const MAX_KEPT: u64 = 1 << 20;

/// Most blocks and arrays, and longest tree in bytes, for which a text is put together just to tell its length.
const MAX_COUNTED: usize = 1000;
const MAX_TEXT_COUNTED: usize = 1 << 20;

impl Vfs {
    /// A text under `info/`, as it is now, to be read.
    pub(super) fn info_text(&self, state: &State, node: Node) -> String {
        // it was made for its length a moment ago; it is handed over, not kept, because it may be long
        let kept = (node == Node::TreeJson).then(|| locked(&state.json).take());
        let text = kept.flatten();
        let text = text.unwrap_or_else(|| self.made(state, node).into_string());
        // a program that asks for the size of the opened file gets this one
        locked(&state.info_lens).insert(node, len_u64(text.len()));
        text
    }

    /// The size to show of a text under `info/`. A long text, or one that depends on other files, is made once for that; later it has the
    /// size that it had when it was opened last.
    ///
    /// Reads do not depend on this size, as the kernel passes them all on; but `tar` skips a file that seems empty.
    pub(super) fn info_len(&self, state: &State, node: Node) -> u64 {
        let snapshot = &state.snapshot;
        let short = snapshot.layout().blocks.len() <= MAX_COUNTED
            && snapshot.text().len() <= MAX_TEXT_COUNTED
            && snapshot.arrays().len() <= MAX_COUNTED;
        // it depends on the tree alone, which stays the same in a state
        let short = short && node != Node::TreeJson;
        let last = locked(&state.info_lens).get(&node).copied();
        last.filter(|_| !short).unwrap_or_else(|| {
            let text = self.made(state, node);
            let len = text.len();
            locked(&state.info_lens).insert(node, len);
            if node == Node::TreeJson && len <= MAX_KEPT {
                *locked(&state.json) = Some(text.into_string());
            }
            len
        })
    }

    /// Makes a text under `info/`; of a node that has none of its own, the status.
    fn made(&self, state: &State, node: Node) -> Text {
        match node {
            Node::BlocksTsv => blocks_tsv(&state.snapshot),
            Node::ArraysTsv => arrays_tsv(state, self.options.show.arrays),
            Node::FitsTsv => fits_tsv(state),
            Node::ZarrTsv => zarr_tsv(state),
            Node::TreeJson => tree_json(&state.snapshot, self.options.show.arrays),
            _ => self.status(state),
        }
    }
}

/// A text that is being put together.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Adds a line; texts from the file can't make it more than one.
    pub fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.push_str(&printable(&line.to_string()));
        self.0.push('\n');
    }

    /// Adds a line of a TSV. There is no quoting: tabs, newlines and other control characters in a field are percent-encoded.
    pub fn row<S: AsRef<str>>(&mut self, fields: impl IntoIterator<Item = S>) {
        for (i, field) in fields.into_iter().enumerate() {
            if i > 0 {
                self.0.push('\t');
            }
            self.0.push_str(&printable(field.as_ref()));
        }
        self.0.push('\n');
    }

    /// Adds a line for each problem of a kind, as many as can be read.
    fn problems(&mut self, kind: &str, problems: impl IntoIterator<Item: Display>) {
        let mut problems = problems.into_iter();
        for problem in problems.by_ref().take(MAX_PROBLEMS) {
            self.line(format_args!("problem   {problem}"));
        }
        // counted, not printed: a hostile file may have millions
        let more = problems.count();
        if more > 0 {
            self.line(format_args!(
                "problem   {kind}: {more} more of the kind; --check lists them"
            ));
        }
    }

    /// Length in bytes.
    fn len(&self) -> u64 {
        len_u64(self.0.len())
    }

    /// The text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

/// `info/tree.json`: the tree, or the object `{"!error": WHY}` if it is not valid or too long; with the files of arrays if
/// they are `shown`.
fn tree_json(snapshot: &Snapshot, shown: bool) -> Text {
    let file_of = |node: asdf::tree::Node<'_>| json::file_of(snapshot, node).filter(|_| shown);
    let tree = snapshot.tree().transpose().map_err(Clone::clone);
    let lines = tree.and_then(|tree| json::text(tree, &file_of, true));
    let lines = lines.unwrap_or_else(|error| json::error_line(&error));
    // JSON is UTF-8
    Text(String::from_utf8(lines).unwrap_or_default())
}

/// `info/blocks.tsv`: one line a block.
fn blocks_tsv(snapshot: &Snapshot) -> Text {
    let mut text = Text::default();
    text.row([
        "block",
        "offset",
        "header_size",
        "flags",
        "compression",
        "framing",
        "allocated_size",
        "used_size",
        "data_size",
        "checksum_state",
        "arrays",
        "checksum",
        "problem",
    ]);
    let users = snapshot.block_users();
    let unused = snapshot.listed_unused();
    // which blocks have the chunks of an array is not told: their numbers would have to be read
    let mut maps: HashMap<usize, Vec<&Array>> = HashMap::new();
    for (array, map) in snapshot.chunk_maps() {
        // an array whose map is no block has that as its problem
        if let Ok(map) = map {
            maps.entry(map).or_default().push(array);
        }
    }
    for (n, header) in snapshot.layout().blocks.iter().enumerate() {
        // many arrays may share a block: the paths are made one after the other, for the text alone
        let mut arrays = String::new();
        let used_by = users.get(n).into_iter().flatten();
        let used_by = used_by.filter_map(|&i| snapshot.arrays().get(i));
        for array in used_by.chain(maps.get(&n).into_iter().flatten().copied()) {
            if !arrays.is_empty() {
                arrays.push(',');
            }
            arrays.push_str(&array.path().replace(',', "%2C"));
        }
        text.row([
            n.to_string(),
            header.offset.to_string(),
            header.header_size.to_string(),
            header.flags.to_string(),
            code_text(header.compression),
            framing(snapshot, n),
            header.allocated.to_string(),
            header.used.to_string(),
            snapshot.block_len(n).unwrap_or(0).to_string(),
            snapshot.checksum_state(n).to_string(),
            arrays,
            header.checksum_text(),
            snapshot.block_problem(n, &unused).unwrap_or_default(),
        ]);
    }
    text
}

/// How the bytes of a block are framed, if it is known; of one whose header is lost nothing is.
fn framing(snapshot: &Snapshot, n: usize) -> String {
    let lost = snapshot.layout().lost.get(&n);
    let framing = snapshot.framing(n).unwrap_or("-");
    lost.map_or_else(|| framing.to_owned(), ToString::to_string)
}

/// `info/arrays.tsv`: one line an array, then one a reference to another file; with their files if they are `shown`.
fn arrays_tsv(state: &State, shown: bool) -> Text {
    let mut text = Text::default();
    text.row([
        "path",
        "datatype",
        "shape",
        "byteorder",
        "strides",
        "offset",
        "source",
        "bytes",
        "problem",
        "file",
        "unit",
    ]);
    for array in state.snapshot.arrays() {
        text.row(array_row(array, shown));
    }
    for (path, uri) in state.snapshot.references() {
        text.row([
            &*path,
            "-",
            "-",
            "-",
            "-",
            "-",
            uri,
            "-",
            "in another file; mount that",
            "-",
            "-",
        ]);
    }
    text
}

/// `info/fits.tsv`: one line for each array, table and directory, and for each column that FITS has no place for.
fn fits_tsv(state: &State) -> Text {
    let mut text = Text::default();
    text.row(["path", "file", "bytes", "problem"]);
    let snapshot = &state.snapshot;
    let plan = snapshot.fits_plan();
    for subject in plan.subjects() {
        let place = snapshot.place_of(subject);
        let path = place.map(|(paths, place)| paths.path(place));
        let path = path.unwrap_or_default();
        match plan.file(subject) {
            Ok(file) => {
                let why = state.why_unreadable(subject).unwrap_or_default();
                match state.fits_path(subject) {
                    Some(mut shown) => {
                        // a long path is listed nowhere
                        if place.is_none_or(|(paths, place)| paths.listed(place).is_none()) {
                            "-".clone_into(&mut shown);
                        }
                        text.row([&*path, &shown, &file.len.to_string(), &why]);
                    }
                    None => text.row([&*path, "-", "-", "its name would be too long"]),
                }
                // what a directory lacks has a line of its own
                let is_directory = matches!(subject, Subject::Directory(_));
                for (column, why) in file.omitted.iter().filter(|_| !is_directory) {
                    text.row([&format!("{path}/{column}"), "-", "-", why]);
                }
            }
            Err(error) => text.row([&path, "-", "-", &error.to_string()]),
        }
    }
    text
}

/// `info/zarr.tsv`: one line for each array.
fn zarr_tsv(state: &State) -> Text {
    let mut text = Text::default();
    text.row(["path", "directory", "chunk", "chunks", "problem"]);
    for (i, array) in state.snapshot.arrays().iter().enumerate() {
        let path = array.path();
        match state.zarr_listed(i) {
            Ok((shown, chunks)) => text.row([
                &*path,
                &shown,
                &format!("{:?}", chunks.shape()),
                &chunks.count().to_string(),
                "",
            ]),
            Err(error) => text.row([&path, "-", "-", "-", &error.to_string()]),
        }
    }
    text
}

/// The line of an array in `info/arrays.tsv`; what it does not have is `-`.
fn array_row(array: &Array, shown: bool) -> [String; 11] {
    let unknown = || "-".to_owned();
    [
        array.path(),
        array.datatype_text().unwrap_or_else(unknown),
        array.shape_text().unwrap_or_else(unknown),
        array.byteorder_text().unwrap_or_else(unknown),
        array.strides_text().unwrap_or_else(unknown),
        array.offset().to_string(),
        array.source_text(),
        if array.problem().is_some() {
            unknown()
        } else {
            array.bin_len().to_string()
        },
        array.remark().unwrap_or_default(),
        array
            .listed_file()
            .filter(|_| shown)
            .unwrap_or_else(unknown),
        array.unit().map_or_else(unknown, str::to_owned),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;

    #[test]
    fn a_row_holds_no_separators_but_its_own() {
        let mut text = Text::default();
        text.row(["a\tb\nc", "", "é\u{1b}"]);
        assert_eq!(text.into_string(), "a%09b%0Ac\t\té%1B\n");
    }

    /// A search of a mount made the longest text twice: to tell its length, and to be read.
    #[test]
    fn the_tree_as_json_is_made_once_to_be_looked_up_and_opened() {
        let (_dir, vfs) = writable(&Sample::new().text(b"#ASDF 1.0.0\n--- {a: 1}\n...\n"));
        let state = vfs.shown.now();
        let len = vfs.info_len(&state, Node::TreeJson);
        let kept = locked(&state.json).as_ref().map(|text| len_u64(text.len()));
        assert_eq!(kept, Some(len));
        vfs.info_text(&state, Node::Status);
        let text = vfs.info_text(&state, Node::TreeJson);
        assert_eq!(text, "{\n \"a\": 1\n}\n");
        assert!(locked(&state.json).is_none());
        assert_eq!(vfs.info_text(&state, Node::TreeJson), text);
        assert_eq!(vfs.info_len(&state, Node::TreeJson), len);
    }

    /// `ls` of `info/` had a text of gigabytes put together, for a short tree with many arrays deep in it.
    #[test]
    fn files_whose_paths_are_too_long_together_are_not_named() {
        const LEVELS: usize = 120;
        let (open, close) = (format!("{{{}: ", "k".repeat(250)), "}");
        let text = |count: usize| {
            format!(
                "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\nm: {}[{}]{}\n...\n",
                open.repeat(LEVELS),
                "!core/ndarray-1.0.0 [1], ".repeat(count),
                close.repeat(LEVELS)
            )
        };
        let lines = |count: usize| {
            let (_dir, vfs) = writable(&Sample::new().text(text(count).as_bytes()));
            let text = fits_tsv(&vfs.shown.now()).into_string();
            let lines = text.lines().skip(1).map(str::to_owned);
            lines.collect::<Vec<_>>()
        };
        let (few, mut many) = (lines(1), lines(2300));
        let directory = many.pop().unwrap();
        assert!(
            directory.ends_with("has 1000 extensions at most"),
            "{directory}"
        );
        let file = few[0].split('\t').nth(1).unwrap();
        assert!(file.starts_with("fits/m/kkk") && file.ends_with("k/0.fits"));
        assert_eq!(many.len(), 2300);
        let last = many.last().unwrap();
        assert!(last.ends_with("k/2299\t-\t5760\t"), "{last}");
        assert!(last.len() < 500, "{}", last.len());
    }

    #[test]
    fn many_problems_of_a_kind_are_cut_short() {
        let mut text = Text::default();
        text.problems("arrays", 0..MAX_PROBLEMS);
        text.problems("blocks", 0..1000);
        let text = text.into_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 201);
        assert_eq!(lines[99..101], ["problem   99", "problem   0"]);
        let last = "problem   blocks: 900 more of the kind; --check lists them";
        assert_eq!(lines[200], last);
    }
}
