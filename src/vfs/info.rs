//! The texts under `info/`.

use std::fmt::Display;

use super::node::Node;
use super::state::State;
use super::texts::Refused;
use super::{Invalidation, Vfs, locked};
use crate::asdf::check::Validate;
use crate::asdf::layout::{Index, Severity};
use crate::asdf::{Array, Snapshot};
use crate::codec::{check_index_dir, code_text};
use crate::error::printable;
use crate::source::len_u64;

/// The most problems of a kind that are shown.
const MAX_PROBLEMS: usize = 100;

/// Most blocks and arrays, and longest tree in bytes, for which a text is put together just to tell its length.
const MAX_COUNTED: usize = 1000;
const MAX_TEXT_COUNTED: usize = 1 << 20;

/// What is said of saves before the first.
const NOTHING_SAVED: &str = "nothing saved since the file was mounted";

impl Vfs {
    /// A text under `info/`, as it is now, to be read.
    pub(super) fn info_text(&self, state: &State, node: Node) -> String {
        let text = self.made(state, node);
        let before = locked(&state.info_lens).insert(node, text.len());
        if before != Some(text.len()) {
            // a program that asks for the size of what it has opened
            self.kernel.tell(Invalidation::Attributes(node));
        }
        text.into_string()
    }

    /// The size to show of a text under `info/`. A long one, or one that looks into other files, is put together once for that; then
    /// it has the size that it had when it was opened last.
    ///
    /// Reads do not go by it: the kernel passes them all on. But `tar` passes over a file that seems empty.
    pub(super) fn info_len(&self, state: &State, node: Node) -> u64 {
        let snapshot = &state.snapshot;
        let short = snapshot.layout().blocks.len() <= MAX_COUNTED
            && snapshot.text().len() <= MAX_TEXT_COUNTED
            && snapshot.arrays().len() <= MAX_COUNTED;
        let short = short && (node != Node::ArraysTsv || snapshot.references().is_empty());
        let last = locked(&state.info_lens).get(&node).copied();
        last.filter(|_| !short).unwrap_or_else(|| {
            let len = self.made(state, node).len();
            locked(&state.info_lens).insert(node, len);
            len
        })
    }

    fn made(&self, state: &State, node: Node) -> Text {
        match node {
            Node::BlocksTsv => blocks_tsv(&state.snapshot),
            Node::ArraysTsv => arrays_tsv(state),
            _ => self.status(state),
        }
    }

    /// `info/status`: one screen for people.
    fn status(&self, state: &State) -> Text {
        let snapshot = &state.snapshot;
        let mut text = Text::default();
        text.line(format_args!("file      {}", self.saver.path.display()));
        text.line(format_args!(
            "format    {} {}, {} bytes",
            snapshot.container(),
            snapshot.layout().version,
            snapshot.layout().len
        ));
        match self.saver.why_read_only() {
            Some(why) => text.line(format_args!("mount     read-only: {why}")),
            None => text.line(format_args!("mount     writable")),
        }
        if let Err(why) = self.saver.check_up_to_date() {
            text.line(format_args!("changed   {why}"));
        }
        contents(snapshot, &mut text);
        self.news(&mut text);
        problems(snapshot, &mut text);
        if self.options.validate != Validate::Off {
            broken_rules(snapshot, &mut text);
        }
        text
    }

    /// What became of saves, and of what was not saved.
    fn news(&self, text: &mut Text) {
        let refused = locked(&self.texts).refusal().map(Refused::describe);
        let scratch = self.scratch();
        let last = self.saver.last();
        let news = locked(&self.edits.news);
        let mut unsaved = refused.iter().chain(news.given_up()).peekable();
        if unsaved.peek().is_none() {
            let last = last.as_deref().unwrap_or(NOTHING_SAVED);
            text.line(format_args!("save      {last}"));
        }
        for why in unsaved {
            text.line(format_args!("save      NOT SAVED: {why}"));
        }
        for why in news.refusals() {
            text.line(format_args!("refused   {why}"));
        }
        for file in scratch.iter().take(MAX_PROBLEMS) {
            text.line(format_args!(
                "memory    {file}: in memory only, gone at unmount"
            ));
        }
    }
}

/// A text that is being put together.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Adds a line; texts from the file can't make it more than one.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.push_str(&printable(&line.to_string()));
        self.0.push('\n');
    }

    /// Adds a line of a TSV. There is no quoting: tabs, newlines and other control characters in a field are percent-encoded.
    fn row<S: AsRef<str>>(&mut self, fields: impl IntoIterator<Item = S>) {
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

    fn into_string(self) -> String {
        self.0
    }
}

/// What is in the file.
fn contents(snapshot: &Snapshot, text: &mut Text) {
    let layout = snapshot.layout();
    let room = layout.head().len().saturating_sub(layout.text_end);
    let tree = match snapshot.tree() {
        None => "none".to_owned(),
        Some(Ok(_)) => format!(
            "{} bytes, {room} bytes of padding behind it",
            layout.text_end
        ),
        Some(Err(error)) => format!("not valid: {error}"),
    };
    text.line(format_args!("tree      {tree}"));
    let index = match &layout.index {
        Index::Absent => "no index".to_owned(),
        Index::Valid(_) => "index in order".to_owned(),
        Index::Wrong(_, why) => format!("index not used: {why}"),
    };
    text.line(format_args!("blocks    {}, {index}", layout.blocks.len()));
    text.line(format_args!("arrays    {}", snapshot.arrays().len()));
    text.line(format_args!(
        "cache     {} of {} bytes used",
        snapshot.cache().used(),
        snapshot.cache().budget()
    ));
    if let Some(dir) = snapshot.index_cache() {
        match check_index_dir(dir) {
            Ok(()) if dir.is_dir() => {
                text.line(format_args!("indexes   kept in {}", dir.display()));
            }
            Ok(()) => text.line(format_args!(
                "indexes   none kept yet; {} is to be made for the first",
                dir.display()
            )),
            Err(error) => text.line(format_args!("indexes   not kept in {error}")),
        }
    }
}

/// What of the tree breaks a rule of the core tags, a line each.
fn broken_rules(snapshot: &Snapshot, text: &mut Text) {
    let faults = snapshot.faults().list.iter();
    text.problems("tree", faults.map(|fault| format!("tree: {fault}")));
}

/// What is wrong with the file, a line each.
fn problems(snapshot: &Snapshot, text: &mut Text) {
    let findings = snapshot.layout().findings.iter();
    let findings = findings.map(|finding| {
        let how = match finding.severity {
            Severity::Odd => "odd",
            Severity::Partial | Severity::Frozen => "damaged in part",
            Severity::Damaged => "damaged",
        };
        format!("{how}: {}", finding.error)
    });
    text.problems("file", findings);
    if let Some(Ok(tree)) = snapshot.tree() {
        let warnings = tree.warnings().places(tree);
        let warnings =
            warnings.map(|(place, warning)| format!("tree: {place}: {}", warning.message));
        text.problems("tree", warnings);
    }
    let limits = snapshot.limits().iter();
    text.problems("tree", limits.map(|limit| format!("tree: {limit}")));
    let arrays = snapshot.arrays().iter().filter_map(Array::problem);
    text.problems("arrays", arrays);
    let blocks = 0..snapshot.layout().blocks.len();
    text.problems("blocks", blocks.filter_map(|n| snapshot.block_error(n)));
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
        "allocated",
        "used",
        "data_size",
        "checksum",
        "arrays",
    ]);
    let users = snapshot.block_users();
    for (n, header) in snapshot.layout().blocks.iter().enumerate() {
        let arrays: Vec<String> = users
            .get(n)
            .into_iter()
            .flatten()
            .filter_map(|&i| snapshot.arrays().get(i))
            .map(|array| array.path().replace(',', "%2C"))
            .collect();
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
            arrays.join(","),
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

/// `info/arrays.tsv`: one line an array, then one a reference to another file.
fn arrays_tsv(state: &State) -> Text {
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
    ]);
    for array in state.snapshot.arrays() {
        text.row(array_row(array));
    }
    for (i, reference) in state.snapshot.references().iter().enumerate() {
        let problem = state.shown_elsewhere(i).err();
        text.row([
            &*reference.path(),
            "-",
            "-",
            "-",
            "-",
            "-",
            reference.uri(),
            "-",
            &problem.map_or_else(String::new, |error| error.to_string()),
        ]);
    }
    text
}

fn array_row(array: &Array) -> [String; 9] {
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
        array
            .problem()
            .map_or_else(String::new, ToString::to_string),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_no_separators_but_its_own() {
        let mut text = Text::default();
        text.row(["a\tb\nc", "", "é\u{1b}"]);
        assert_eq!(text.into_string(), "a%09b%0Ac\t\té%1B\n");
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
