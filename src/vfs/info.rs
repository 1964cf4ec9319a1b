//! The texts under `info/`.

mod status;

use std::fmt::Display;
use std::sync::Arc;

use log::warn;

use super::node::Node;
use super::state::State;
use super::{MemberScratch, Saves, locked};
use crate::asdf::{self, Array, Snapshot};
use crate::codec::code_text;
use crate::error::{Error as Library, percent_encoded, printable};
use crate::source::{Made, Memory, Source, len_u64};
use crate::view::fits::Subject;
use crate::view::json;
use crate::view::stats::Stats;

/// The most problems of a kind that are shown.
const MAX_PROBLEMS: usize = 100;

/// Longest `info/tree.json`, in bytes, that is kept from when its length was asked for to when it is opened.
const MAX_KEPT: u64 = 1 << 20;

/// Most blocks and arrays, and longest tree in bytes, for which a text is put together just to tell its length.
const MAX_COUNTED: usize = 1000;
const MAX_TEXT_COUNTED: usize = 1 << 20;

/// Characters of a number in `info/stats.tsv`: those of the longest float64.
const NUMBER: usize = 24;

/// A text under `info/`, as it is now, to be read.
pub(super) fn text(saves: &Saves, scratch: &MemberScratch, state: &State, node: Node) -> String {
    // it was made for its length a moment ago; it is handed over, not kept, because it may be long
    let mut infos = locked(&state.infos);
    let kept = infos.get_mut(&node).and_then(|info| info.1.take());
    drop(infos);
    let text = kept.unwrap_or_else(|| made(saves, scratch, state, node).into_string());
    // a program that asks for the size of the opened file gets this one
    locked(&state.infos).insert(node, (len_u64(text.len()), None));
    text
}

/// The size to show of a text under `info/`. A long text, or one that depends on other files, is made once for that; later it has the
/// size that it had when it was opened last.
///
/// Reads do not depend on this size, as the kernel passes them all on; but `tar` skips a file that seems empty.
pub(super) fn len(saves: &Saves, scratch: &MemberScratch, state: &State, node: Node) -> u64 {
    let snapshot = &state.snapshot;
    let short = snapshot.layout().blocks.len() <= MAX_COUNTED
        && snapshot.text().len() <= MAX_TEXT_COUNTED
        && snapshot.arrays().len() <= MAX_COUNTED;
    // it depends on the tree alone, which stays the same in a state
    let short = short && node != Node::TreeJson;
    let last = locked(&state.infos).get(&node).map(|info| info.0);
    last.filter(|_| !short).unwrap_or_else(|| {
        let text = made(saves, scratch, state, node);
        let len = text.len();
        let kept = (node == Node::TreeJson && len <= MAX_KEPT).then(|| text.into_string());
        locked(&state.infos).insert(node, (len, kept));
        len
    })
}

/// Makes a text under `info/`; of a node that has none of its own, the status.
fn made(saves: &Saves, scratch: &MemberScratch, state: &State, node: Node) -> Text {
    match node {
        Node::BlocksTsv => blocks_tsv(&state.snapshot),
        Node::ArraysTsv => arrays_tsv(state, saves.options.show.arrays),
        Node::FitsTsv => fits_tsv(state),
        Node::ZarrTsv => zarr_tsv(state),
        Node::TreeJson => tree_json(&state.snapshot, saves.options.show.arrays),
        _ => status::status(saves, &scratch.scratch.described(scratch.member), state),
    }
}

impl State {
    /// The size of `info/stats.tsv`.
    pub(super) fn stats_len(&self) -> u64 {
        let known = locked(&self.infos).get(&Node::StatsTsv).map(|info| info.0);
        known.unwrap_or_else(|| {
            let len = stats_tsv(&self.snapshot, &[]).len();
            locked(&self.infos).insert(Node::StatsTsv, (len, None));
            len
        })
    }

    /// `info/stats.tsv`, of what is saved.
    pub(super) fn stats_source(&self) -> Arc<dyn Source> {
        let snapshot = Arc::clone(&self.snapshot);
        let make = move || {
            let stats = snapshot.all_stats();
            // if the reader is gone, what was not read is not known, and the next reader asks for it
            snapshot.cache().check_wanted()?;
            let text = stats_tsv(&snapshot, &stats);
            let bytes: Arc<dyn Source> = Arc::new(Memory::new(text.into_string().into_bytes()));
            Ok(bytes)
        };
        Arc::new(Made::new(self.stats_len(), make))
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
        self.row_of_file(fields, usize::MAX);
    }

    /// As [`Text::row`]. The field with the index `file` is the path of a file in the mount. It keeps separators of lines and marks of
    /// direction, which names of files have too: a program opens this path.
    pub fn row_of_file<S: AsRef<str>>(&mut self, fields: impl IntoIterator<Item = S>, file: usize) {
        for (i, field) in fields.into_iter().enumerate() {
            if i > 0 {
                self.0.push('\t');
            }
            let field = field.as_ref();
            self.0.push_str(&if i == file {
                percent_encoded(field, char::is_control)
            } else {
                printable(field)
            });
        }
        self.0.push('\n');
    }

    /// Adds a line of `info/stats.tsv`, whose length does not depend on the numbers in it.
    fn stats_row(&mut self, path: &str, numbers: &[String]) {
        let numbers = numbers.iter().map(|number| format!("{number:>NUMBER$}"));
        self.row(std::iter::once(path.to_owned()).chain(numbers));
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
    let (unused, by_map) = (snapshot.listed_unused(), snapshot.arrays_by_map());
    for (n, header) in snapshot.layout().blocks.iter().enumerate() {
        // many arrays may share a block: the paths are made one after the other, for the text alone
        let mut arrays = String::new();
        for path in snapshot.paths_in_block(n, &by_map) {
            if !arrays.is_empty() {
                arrays.push(',');
            }
            arrays.push_str(&path.replace(',', "%2C"));
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
        text.row_of_file(array_row(array, shown), 9);
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
    let (plan, views) = (snapshot.fits_plan(), state.in_views());
    for subject in plan.subjects() {
        let place = snapshot.place_of(subject);
        let path = place.map(|(paths, place)| paths.path(place));
        let path = path.unwrap_or_default();
        match plan.file(subject) {
            Ok(file) => {
                match views.fits_path(subject) {
                    Some(mut shown) => {
                        // a long path is listed nowhere
                        if place.is_none_or(|(paths, place)| paths.listed(place).is_none()) {
                            "-".clone_into(&mut shown);
                        }
                        let row = [&*path, &shown, &file.len.to_string(), ""];
                        text.row_of_file(row, 1);
                    }
                    None => text.row([&*path, "-", "-", "its name would be too long"]),
                }
                // what a directory lacks has a line of its own
                let is_directory = matches!(subject, Subject::Directory(_));
                // a short path: each of many columns repeats it
                let brief = place.map(|(paths, place)| paths.brief(place));
                let brief = brief.unwrap_or_default();
                for (column, why) in file.omitted.iter().filter(|_| !is_directory) {
                    text.row([&format!("{brief}/{column}"), "-", "-", why]);
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
    let zarr = state.in_views().zarr();
    for (i, array) in state.snapshot.arrays().iter().enumerate() {
        let path = array.path();
        match zarr.listed(i) {
            Ok((shown, chunks)) => {
                let (shape, count) = (format!("{:?}", chunks.shape()), chunks.count().to_string());
                text.row_of_file([&*path, &shown, &shape, &count, ""], 1);
            }
            Err(error) => text.row([&path, "-", "-", "-", &error.to_string()]),
        }
    }
    text
}

/// `info/stats.tsv`: a line for each array, with what is known of its numbers; `stats` may be shorter.
///
/// To make it, all arrays are read. So it is made when it is read, and its numbers have blanks in front: its size is known before.
fn stats_tsv(snapshot: &Snapshot, stats: &[Result<Option<Stats>, Library>]) -> Text {
    let mut text = Text::default();
    let names = ["min", "max", "mean", "nan"].map(str::to_owned);
    text.stats_row("path", &names);
    for (i, array) in snapshot.arrays().iter().enumerate() {
        let found = match stats.get(i) {
            Some(Ok(found)) => *found,
            Some(Err(error)) => {
                warn!("info/stats.tsv: {error}");
                None
            }
            None => None,
        };
        text.stats_row(&array.path(), &stats_columns(found));
    }
    text
}

/// Smallest, largest, mean and count of NaN; `-` for what there is not.
fn stats_columns(stats: Option<Stats>) -> [String; 4] {
    let none = || "-".to_owned();
    let Some(Stats { range, mean, nan }) = stats else {
        return [none(), none(), none(), none()];
    };
    let (low, high) = range.unzip();
    [
        low.map_or_else(none, |low| low.to_string()),
        high.map_or_else(none, |high| high.to_string()),
        mean.map_or_else(none, |mean| format!("{mean:?}")),
        nan.to_string(),
    ]
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
    use crate::source::read_all;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, Open, Opened, Result as Outcome};
    use crate::view::stats::Number;

    #[test]
    fn a_row_holds_no_separators_but_its_own() {
        let mut text = Text::default();
        text.row(["a\tb\nc", "", "é\u{1b}"]);
        assert_eq!(text.into_string(), "a%09b%0Ac\t\té%1B\n");
        let mut text = Text::default();
        text.row_of_file(["a\u{2028}", "a\u{2028}\n"], 1);
        assert_eq!(text.into_string(), "a%E2%80%A8\ta\u{2028}%0A\n");
    }

    /// The tables named files that do not exist, because names of files keep these characters.
    #[test]
    fn a_table_names_each_file_as_a_program_opens_it() {
        let text = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            ? \"a\\u2028\\u202e%\"\n: !core/ndarray-1.0.0 [1, 2]\n...\n";
        let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()));
        let state = vfs.shown.now();
        for (text, field, file) in [
            (
                arrays_tsv(&state, true),
                9,
                "arrays/a\u{2028}\u{202e}%25.npy",
            ),
            (fits_tsv(&state), 1, "fits/a\u{2028}\u{202e}%25.fits"),
            (zarr_tsv(&state), 1, "zarr/a\u{2028}\u{202e}%25"),
        ] {
            let text = text.into_string();
            let row: Vec<&str> = text.split('\n').nth(1).unwrap().split('\t').collect();
            assert_eq!(row[0], "a%E2%80%A8%E2%80%AE%25");
            assert_eq!(row[field], file);
        }
    }

    /// A search of a mount made the longest text twice: to tell its length, and to be read.
    #[test]
    fn the_tree_as_json_is_made_once_to_be_looked_up_and_opened() {
        let (_dir, vfs) = writable(&Sample::new().text(b"#ASDF 1.0.0\n--- {a: 1}\n...\n"));
        let state = vfs.shown.now();
        let text_of = |node| text(&vfs.saves, &vfs.scratch, &state, node);
        let len_of = |node| len(&vfs.saves, &vfs.scratch, &state, node);
        let len = len_of(Node::TreeJson);
        let kept = || locked(&state.infos)[&Node::TreeJson].1.clone();
        assert_eq!(kept().map(|text| len_u64(text.len())), Some(len));
        text_of(Node::Status);
        let text = text_of(Node::TreeJson);
        assert_eq!(text, "{\n \"a\": 1\n}\n");
        assert!(kept().is_none());
        assert_eq!(text_of(Node::TreeJson), text);
        assert_eq!(len_of(Node::TreeJson), len);
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

    /// Each column that FITS has no place for repeated the whole path of its table: 50 KB made a text of 200 MB.
    #[test]
    fn a_column_that_is_left_out_has_a_short_path() {
        let key = "k".repeat(900);
        let array = "!core/ndarray-1.0.0 {source: 0, datatype: int8, byteorder: big, shape: [1]}";
        let text = format!(
            "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            t: &t !core/table-1.0.0 {{columns: [!core/column-1.0.0 {{name: c, data: {array}}}, 1, 2]}}\n\
            {key}: !core/table-1.0.0 {{x: {array}, columns: {{$ref: '#/t/columns'}}}}\n...\n"
        );
        let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()).block(b"1"));
        let text = fits_tsv(&vfs.shown.now()).into_string();
        let rows: Vec<_> = text
            .lines()
            .filter(|row| row.contains("are no array"))
            .collect();
        assert_eq!(rows.len(), 4, "{text}");
        assert!(rows[0].starts_with("t/col1\t-\t-\t"), "{}", rows[0]);
        let long = rows.iter().filter(|row| row.starts_with("kkk"));
        assert!(long.clone().all(|row| row.len() < 400));
        assert_eq!(long.count(), 2);
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

    /// A program that reads in pieces got the beginning of one table and the end of another.
    #[test]
    fn who_reads_the_table_gets_one_of_them() -> Outcome<()> {
        let sample = |name: &str, value: &[u8]| {
            let text = format!(
                "#ASDF 1.0.0\n%YAML 1.1\n--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\n\
                {name}: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {{source: 0, datatype: uint8, byteorder: little, shape: [1]}}\n...\n"
            );
            Sample::new().text(text.as_bytes()).block(value)
        };
        let (dir, vfs) = writable(&sample("x", b"1"));
        let open = || vfs.open_now(Node::StatsTsv, Access::default());
        let shown = |opened: &Opened| {
            let Open::Data(open) = &opened.handle.open else {
                panic!("no data")
            };
            let (source, _reading) = open.current_source(&vfs.saves)?;
            Outcome::<_>::Ok(read_all(&*source, 1 << 20)?)
        };
        let before = open()?;
        let first = shown(&before)?;
        let changed = sample("x", b"22").block(b"more");
        std::fs::write(dir.path().join("a.asdf"), changed.bytes()).unwrap();
        vfs.saves.refresh_soon();
        vfs.refresh();
        assert_ne!(shown(&open()?)?, first, "other elements");
        let refused = shown(&before).unwrap_err();
        assert!(refused.to_string().contains("open it again"), "{refused}");
        Ok(())
    }

    #[test]
    fn no_number_makes_a_line_longer() {
        let double = |low, high| Some((Number::Double(low), Number::Double(high)));
        let longest = Stats {
            range: double(f64::MIN, -f64::MIN_POSITIVE),
            mean: Some(-1.234_567_890_123_456_7e-300),
            nan: u64::MAX,
        };
        let (low, high) = (i64::MIN.into(), u64::MAX.into());
        let integers = Stats {
            range: Some((Number::Integer(low), Number::Integer(high))),
            ..longest
        };
        for stats in [None, Some(longest), Some(integers)] {
            let mut text = Text::default();
            text.stats_row("a", &stats_columns(stats));
            assert_eq!(text.len(), 1 + 4 * 25 + 1);
        }
    }
}
