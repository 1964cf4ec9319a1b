//! `info/status`: what is mounted, how it stands, and what is wrong, on one screen.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use super::{MAX_PROBLEMS, Text};
use crate::asdf::check::Validate;
use crate::asdf::layout::{BlockIndex, Severity};
use crate::asdf::text_frame::standard;
use crate::asdf::{Array, Snapshot};
use crate::error::shell_word;
use crate::save::Status;
use crate::vfs::state::State;
use crate::vfs::tree_file::Refused;
use crate::vfs::{Saves, View, locked};

/// What is said of saves before the first.
const NOTHING_SAVED: &str = "nothing saved since the file was mounted";
/// How many arrays are named, the largest first.
const LARGEST: usize = 5;

/// The text as it is now. `scratch`: the files that the end of the mount would lose.
pub(super) fn status(saves: &Saves, scratch: &[String], state: &State) -> Text {
    let snapshot = &state.snapshot;
    let mut text = Text::default();
    mounted(saves, snapshot, &mut text);
    whereabouts(saves, &mut text);
    contents(snapshot, &mut text);
    news(saves, scratch, &mut text);
    problems(snapshot, &mut text);
    if saves.options.validate != Validate::Off {
        broken_rules(snapshot, &mut text);
    }
    text
}

/// What is mounted, and how.
fn mounted(saves: &Saves, snapshot: &Snapshot, text: &mut Text) {
    let layout = snapshot.layout();
    text.line(format_args!("file      {}", saves.path.display()));
    let standard = standard(snapshot.text());
    text.line(format_args!(
        "format    {} {}{}, {}",
        snapshot.container(),
        layout.version,
        standard.map_or_else(String::new, |standard| format!(", standard {standard}")),
        sized(snapshot.file_len())
    ));
    if let Some(writer) = snapshot.written_by() {
        text.line(format_args!("written   by {writer}"));
    }
    match saves.why_read_only() {
        Some(why) => text.line(format_args!("mount     read-only: {why}")),
        None if saves.why_not_there().is_some() => {
            text.line(format_args!(
                "mount     writable once the file is there again"
            ));
        }
        None => text.line(format_args!("mount     writable")),
    }
    for (name, told) in saves.file.told() {
        text.line(format_args!("{name:<10}{told}"));
    }
    text.line(format_args!(
        "daemon    process {} of asdf-mount {}{}",
        std::process::id(),
        env!("CARGO_PKG_VERSION"),
        saves.options.given
    ));
    for view in View::ALL {
        let (name, what) = (view.name(), view.what());
        if saves.options.shows(view) {
            text.line(format_args!("view      {name}/: {what}"));
        } else {
            text.line(format_args!("offered   -o {name}: {what}"));
        }
    }
}

/// Whether FILE is still there, and what is shown.
fn whereabouts(saves: &Saves, text: &mut Text) {
    let changed = || saves.check_up_to_date().err().map(|why| why.to_string());
    if let Some(why) = saves.why_not_there().or_else(changed) {
        text.line(format_args!("changed   {why}"));
    }
    saves.tree.rescue_if_idle(saves);
    let known = saves.tree.refusal(|it| it.kept().map(Path::to_owned));
    let known = known.flatten();
    let others = saves.file.rejected().into_iter();
    let then = match saves.why_read_only() {
        None => "; correct it and copy it over tree.yaml, or remove it",
        Some(_) => "",
    };
    for other in others.filter(|it| Some(it) != known.as_ref()) {
        text.line(format_args!(
            "rejected  {}: this text was refused{then}",
            other.display()
        ));
    }
}

/// What became of saves, and of what was not saved.
fn news(saves: &Saves, scratch: &[String], text: &mut Text) {
    if let Some((done, total)) = saves.status().and_then(Status::copying) {
        let (done, total) = (sized(done), sized(total));
        text.line(format_args!(
            "saving    by a new file: {done} of {total} written"
        ));
    }
    let refused = saves.tree.refusal(Refused::describe);
    let news = locked(&saves.news);
    let mut unsaved = refused.iter().chain(news.given_up()).peekable();
    if unsaved.peek().is_none() {
        match &news.last_save {
            Some((when, what)) => {
                let ago = when.elapsed().unwrap_or_default().as_secs();
                text.line(format_args!("save      {what}, {ago} s ago"));
            }
            None => text.line(format_args!("save      {NOTHING_SAVED}")),
        }
    }
    for why in unsaved {
        text.line(format_args!("save      NOT SAVED: {why}"));
    }
    if refused.is_some() {
        text.line(format_args!(
            "revert    asdf-mount --revert {} shows the saved tree again",
            shell_word(&saves.path)
        ));
    }
    for why in news.refusals() {
        text.line(format_args!("refused   {why}"));
    }
    for file in scratch.iter().take(MAX_PROBLEMS) {
        text.line(format_args!(
            "scratch   {file} exists only in this mount: copy it out before unmounting"
        ));
    }
}

/// What is in the file.
fn contents(snapshot: &Snapshot, text: &mut Text) {
    let layout = snapshot.layout();
    let room = layout.head().len().saturating_sub(layout.text_end);
    let tree = match snapshot.tree() {
        None => "none".to_owned(),
        Some(Ok(_)) => format!(
            "{}, {} of padding behind it",
            sized(layout.text_end),
            sized(room)
        ),
        Some(Err(error)) => format!("not valid: {error}"),
    };
    text.line(format_args!("tree      {tree}"));
    let index = match &layout.index {
        BlockIndex::Absent => "no index".to_owned(),
        BlockIndex::Valid(_) => "index in order".to_owned(),
        BlockIndex::Wrong(_, why) => format!("index not used: {why}"),
    };
    text.line(format_args!("blocks    {}, {index}", layout.blocks.len()));
    if let Some(unused) = Snapshot::unused_text(&snapshot.listed_unused()) {
        text.line(format_args!("unused    {unused}"));
    }
    text.line(format_args!("arrays    {}", snapshot.arrays().len()));
    for array in largest(snapshot) {
        text.line(format_args!(
            "array     {}: {} {}, {}",
            array.path(),
            array.datatype_text().unwrap_or_default(),
            array.shape_text().unwrap_or_default(),
            sized(array.bin_len())
        ));
    }
    text.line(format_args!(
        "cache     {} used of {}",
        sized(snapshot.cache().used()),
        sized(snapshot.cache().budget())
    ));
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
            Severity::Partial | Severity::ReadOnly => "damaged in part",
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

/// The largest arrays, in the order of their sizes.
fn largest(snapshot: &Snapshot) -> Vec<&Array> {
    let mut heap = BinaryHeap::with_capacity(LARGEST + 1);
    let shown = snapshot.arrays().iter().enumerate();
    for (i, array) in shown.filter(|(_, array)| array.problem().is_none()) {
        heap.push((Reverse(array.bin_len()), i));
        if heap.len() > LARGEST {
            heap.pop();
        }
    }
    let sorted = heap.into_sorted_vec().into_iter();
    sorted
        .filter_map(|(_, i)| snapshot.arrays().get(i))
        .collect()
}

/// A number of bytes, and in the largest unit of which it has one or more, with tenths that are rounded down.
fn sized(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut shown = format!("{bytes} bytes");
    let mut whole = bytes;
    for unit in UNITS {
        if whole < 1024 {
            break;
        }
        let tenths = (whole % 1024).saturating_mul(10) / 1024;
        whole /= 1024;
        shown = format!("{bytes} bytes ({whole}.{tenths} {unit})");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_bytes_and_in_a_unit() {
        for (bytes, want) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1024 bytes (1.0 KiB)"),
            (240_000, "240000 bytes (234.3 KiB)"),
            (1 << 20, "1048576 bytes (1.0 MiB)"),
            (u64::MAX, "18446744073709551615 bytes (15.9 EiB)"),
        ] {
            assert_eq!(sized(bytes), want);
        }
    }
}
