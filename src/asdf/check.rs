//! Checks an edited text before it is saved: it must be readable, and must break nothing that was right before.
//!
//! Only faults that the edit adds are refused; a fault that the file had before is left to the user. Two faults are the same if
//! they say the same of an array, on whatever line and at whatever path.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Snapshot;
use super::array::{Array, Origin};
use super::decl::is_ndarray;
use super::dialect::FirstLine;
use super::find::ArrayTable;
use super::heal::WrittenText;
use super::rules::{self, Fault, Faults};
use super::text::read_text;
use super::text_frame::{known_arrays, oddities, place_of_standard};
use super::tree::{Children, Node, NodeKind, Tree};
use crate::error::{Error, Place, Result};
use crate::source::{Memory, len_u64};

/// The tag that the top of a tree has, without its version.
const ROOT_TAG: &str = "tag:stsci.edu:asdf/core/asdf-";

/// Keys by which a mapping is known as an array in a block, even without its tag.
const ARRAY_KEYS: [&str; 3] = ["source", "datatype", "shape"];

/// How strictly a text is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validate {
    /// It can be read, and its arrays lie in their blocks.
    Off,
    /// Also: it breaks no rule of the core tags that the text before kept.
    #[default]
    Warn,
    /// It has no fault at all, old or new.
    Strict,
}

/// A text that may be saved, with the results of its check. The next snapshot takes them over and does not parse the text again.
pub struct CheckedText {
    pub(super) tree: Arc<Tree>,
    /// The arrays of the tree, proved against the blocks of the snapshot before. A block that is resized with the text
    /// counts with its new length.
    pub(super) found: Arc<ArrayTable>,
    /// The broken rules; `None` if they were not looked for.
    pub(super) faults: Option<Faults>,
}

impl CheckedText {
    /// Whether `text` is the text that was checked.
    pub(super) fn is(&self, text: &[u8]) -> bool {
        self.tree.bytes().as_slice() == text
    }
}

/// Checks a text that is to replace the text of `old`. The old tree is only looked into if the new one has a fault that the old one
/// may have had. Most texts have none; then the old tree is not even parsed. `resized` is a block that is saved together with the
/// text, and its new length in bytes.
///
/// # Errors
/// [`Error::Rejected`] with line and column, the reason, and what to do.
pub fn check_text(
    old: &Snapshot,
    text: &Arc<Vec<u8>>,
    validate: Validate,
    resized: Option<(usize, u64)>,
) -> Result<CheckedText> {
    let strict = validate == Validate::Strict;
    // from the outside inwards, so that the fault that is named first is the one to correct first
    check_frame(old.text(), text)?;
    // `Strict` compares with nothing: every fault counts as new
    let known = if strict {
        Vec::new()
    } else {
        oddities(old.text(), old.layout().has_tree)
    };
    check_readers(&known, text)?;
    let tree = Tree::of(Arc::clone(text));
    let tree = tree.map_err(|error| {
        let advice = yaml_advice(text, &error);
        rejected(error, advice)
    })?;
    let tree = Arc::new(tree);
    let before = (!strict).then_some(old);
    check_subset(before, &tree)?;
    // before the arrays are looked for: both together would take more memory
    let faults = (validate != Validate::Off).then(|| rules::check(&tree));
    let found = old.find_in(&tree, resized);
    check_arrays(before, &found)?;
    if validate != Validate::Off {
        check_externals(old, strict, &found)?;
    }
    check_tags(old, &tree)?;
    check_standard(before, text, &found)?;
    if let Some(faults) = faults.as_ref().filter(|faults| !faults.list.is_empty()) {
        let none = Faults::default();
        check_rules(before.map_or(&none, Snapshot::faults), faults)?;
    }
    Ok(CheckedText {
        tree,
        found,
        faults,
    })
}

/// As [`check_text`], for a text that a program has written: errors name the lines that the program wrote. With `may_be_cut`, the
/// text came through a handle and its end may be missing. If such a text lacked lines that were put back, it must also end in a
/// line break, and have every array and every top-level key of `old`.
///
/// # Errors
/// As of [`check_text`]; [`Error::Rejected`] that names the missing part.
pub fn check_written(
    old: &Snapshot,
    written: &WrittenText,
    validate: Validate,
    may_be_cut: bool,
) -> Result<CheckedText> {
    let checked = check_text(old, &written.text, validate, None);
    let checked = checked.map_err(|error| written.as_written(error))?;
    // A YAML tool leaves out the `#ASDF` line; a text that was cut off has lost
    // more than that. Only a text that is complete otherwise gets the line back.
    let lacks = match written {
        _ if !may_be_cut || written.put_back.is_empty() => None,
        WrittenText { is_cut: true, .. } => Some("the end of its last line".to_owned()),
        _ => missing(old, &checked),
    };
    let Some(lacks) = lacks else {
        return Ok(checked);
    };
    refuse(
        Place::Line { line: 1, column: 1 },
        format!("the #ASDF line is missing, and is not put back in a text that lacks {lacks} too"),
        "write all of it, from the #ASDF line on; or write it to another file and rename that to tree.yaml",
    )
}

/// The first top-level key or array of `old` that the text lacks.
fn missing(old: &Snapshot, checked: &CheckedText) -> Option<String> {
    let old_tree = old.tree()?.ok()?;
    let keys = |tree: &Tree| {
        let entries = tree.root().into_iter().flat_map(Node::entries);
        let keys = entries.filter_map(|(key, _)| key.text().map(str::to_owned));
        keys.collect::<HashSet<_>>()
    };
    let found = keys(&checked.tree);
    if let Some(key) = keys(old_tree).into_iter().find(|key| !found.contains(key)) {
        return Some(format!("the key {key}"));
    }
    let found: HashSet<String> = checked.found.arrays.iter().map(Array::path).collect();
    let mut arrays = old.arrays().iter();
    let array = arrays.find(|array| !found.contains(&array.path()))?;
    Some(format!("the array {}", array.brief_path()))
}

/// The error as a refusal with advice.
fn rejected(error: Error, advice: &str) -> Error {
    match error {
        Error::Corrupt { at, why } | Error::Unsupported { at, why } => Error::Rejected {
            at,
            why,
            advice: advice.to_owned(),
        },
        other => other,
    }
}

fn refuse<T>(at: Place, why: impl Into<String>, advice: &str) -> Result<T> {
    Err(Error::Rejected {
        at,
        why: why.into(),
        advice: advice.to_owned(),
    })
}

/// What to do about a text that does not parse.
fn yaml_advice(text: &[u8], error: &Error) -> &'static str {
    let (Error::Corrupt { at, .. } | Error::Unsupported { at, .. }) = error else {
        return "correct the YAML";
    };
    let line = match at {
        Place::Line { line, .. } => usize::try_from(line.saturating_sub(1)).ok(),
        _ => None,
    };
    let line = line.and_then(|line| text.split(|&byte| byte == b'\n').nth(line));
    // a tab among the blanks that indent the line is the usual cause
    let mut indent = line.unwrap_or_default().iter();
    let has_tab = indent.find(|&&byte| byte != b' ') == Some(&b'\t');
    if has_tab {
        "indent with blanks, because YAML takes no tabs there"
    } else {
        "correct the YAML"
    }
}

/// Checks the first line and the end: the frame around the YAML document.
fn check_frame(old: &[u8], text: &Arc<Vec<u8>>) -> Result<()> {
    let first = |text: &[u8]| {
        text.split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default()
            .trim_ascii_end()
            .to_vec()
    };
    let top = Place::Line { line: 1, column: 1 };
    // known by its byte order mark, before another test calls it something else
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return refuse(top, "the text is UTF-16", "save it as UTF-8");
    }
    if !text
        .split(|&byte| byte == b'\n')
        .any(|line| line.starts_with(b"---"))
    {
        return refuse(
            top,
            "no line begins with ---, as in a YAML dump that has lost its tags",
            "put back the lines in front of the tree and the tags, such as !core/ndarray-1.0.0",
        );
    }
    if first(old) != first(text) {
        let was = String::from_utf8_lossy(&first(old)).into_owned();
        return refuse(
            top,
            "the #ASDF line has changed",
            &format!("put back the first line: {was}"),
        );
    }
    let line =
        FirstLine::parse(text, true).map_err(|error| rejected(error, "put back the first line"))?;
    let found = read_text(&Memory::shared(Arc::clone(text)), &line)?;
    // `read_text` stops at the first `...` line: whatever
    // follows would become padding, which no reader shows
    if found.text.len() < text.len() {
        return refuse(
            place_of_end(&found.text),
            "there is text behind the `...` line that ends the tree",
            "remove it, or the early `...`",
        );
    }
    let ends = text
        .split(|&byte| byte == b'\n')
        .rev()
        .find(|line| !line.is_empty());
    // Readers take the `...` line as the end of the tree (ASDF Standard,
    // "Tree"). Without it they would read the first block as YAML.
    if !found.layout.has_tree || ends.is_none_or(|line| line.trim_ascii_end() != b"...") {
        return refuse(
            place_of_end(&found.text),
            "the tree does not end in a `...` line",
            "end it with a line of three dots",
        );
    }
    Ok(())
}

/// Refuses oddities around the tree that some readers reject, unless they are `known` from the text before.
fn check_readers(known: &[Error], text: &[u8]) -> Result<()> {
    let known: HashSet<String> = known.iter().map(reason).collect();
    let mut odd = oddities(text, true).into_iter();
    odd.find(|odd| !known.contains(&reason(odd)))
        .map_or(Ok(()), Err)
}

/// Line and column just behind a text.
fn place_of_end(text: &[u8]) -> Place {
    let line = text.split(|&byte| byte == b'\n').skip(1).count();
    Place::Line {
        line: len_u64(line).saturating_add(1),
        column: 1,
    }
}

/// Refuses YAML that ASDF's subset forbids, unless the old tree has the same already: readers put up with it.
fn check_subset(old: Option<&Snapshot>, tree: &Tree) -> Result<()> {
    if tree.warnings().list().is_empty() {
        return Ok(());
    }
    let old = old.and_then(|old| old.tree()?.ok());
    let known: HashSet<&str> = old
        .into_iter()
        .flat_map(|old| old.warnings().list())
        .map(|warning| warning.message.as_str())
        .collect();
    for (place, warning) in tree.warnings().places(tree) {
        if !known.contains(warning.message.as_str()) {
            return refuse(place, warning.message.clone(), warning.advice);
        }
    }
    Ok(())
}

/// Checks that no problem is that of more arrays than in `old`. An item that is put into a list gives other paths to the arrays behind it.
fn check_arrays(old: Option<&Snapshot>, found: &ArrayTable) -> Result<()> {
    let faulty = faulty_by_reason(&found.arrays);
    if faulty.is_empty() {
        return Ok(());
    }
    let known = faulty_by_reason(old.map(Snapshot::arrays).unwrap_or_default());
    for (why, arrays) in faulty {
        let known = known.get(&why).map_or(&[][..], Vec::as_slice);
        if arrays.len() <= known.len() {
            continue;
        }
        let known: HashSet<_> = known.iter().map(|array| array.brief_path()).collect();
        let is_new = |array: &&&Array| !known.contains(&array.brief_path());
        let Some(array) = arrays.iter().find(is_new) else {
            continue;
        };
        let advice = match array.shape() {
            // the declaration makes no sense, whatever block it names
            None => "correct it",
            Some(_) => "correct it, or the number of the block",
        };
        if let Some(error) = array.problem() {
            return Err(rejected(error.into_owned(), advice));
        }
    }
    Ok(())
}

/// The arrays that have a problem, by its reason, in which their paths are left out.
fn faulty_by_reason(arrays: &[Array]) -> BTreeMap<String, Vec<&Array>> {
    let mut faulty: BTreeMap<String, Vec<&Array>> = BTreeMap::new();
    for (array, error) in arrays.iter().filter_map(|a| Some((a, a.problem()?))) {
        let why = reason(&error);
        let named = format!("{}: ", Place::Array(array.brief_path()));
        let why = why.strip_prefix(&named).unwrap_or(&why).to_owned();
        faulty.entry(why).or_default().push(array);
    }
    faulty
}

/// Checks arrays in files that the text before did not name: each file must be there and hold its array. Where no file may be
/// opened, nothing is checked.
fn check_externals(old: &Snapshot, strict: bool, found: &ArrayTable) -> Result<()> {
    let outside = found.arrays.iter();
    let mut outside = outside
        .filter_map(|array| Some((array, external_uri(array)?)))
        .peekable();
    if outside.peek().is_none() {
        return Ok(());
    }
    let old_arrays = if strict { &[] } else { old.arrays() };
    let known: HashSet<&str> = old_arrays.iter().filter_map(external_uri).collect();
    for (array, _) in outside.filter(|(_, uri)| !known.contains(uri)) {
        old.look_for(array);
        let problem = array.problem().map(Cow::into_owned);
        // only `Corrupt` says that the file is missing or too short;
        // an I/O error or a closed sandbox is no fault of the text
        if let Some(error @ Error::Corrupt { .. }) = problem {
            let advice = "put the file there first, or correct the source; -o validate=off saves it all the same";
            return Err(rejected(error, advice));
        }
    }
    Ok(())
}

fn external_uri(array: &Array) -> Option<&str> {
    match array.origin() {
        Origin::External(uri) => Some(uri),
        _ => None,
    }
}

/// The reason of an error, without its line.
fn reason(error: &Error) -> String {
    match error {
        Error::Corrupt { why, .. }
        | Error::Unsupported { why, .. }
        | Error::Rejected { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

/// Refuses a tree that is no mapping any more, or that has lost tags. Programs that know no tags drop all of them,
/// and every array with them.
fn check_tags(old: &Snapshot, tree: &Tree) -> Result<()> {
    let has_root_tag = |tree: &Tree| {
        tree.root()
            .and_then(Node::tag)
            .is_some_and(|tag| tag.starts_with(ROOT_TAG))
    };
    let root = || tree.root().map_or(Place::File, Node::place);
    let is_mapping = |tree: &Tree| {
        tree.root()
            .is_some_and(|root| root.kind() == NodeKind::Mapping)
    };
    let was = |has: &dyn Fn(&Tree) -> bool| old.tree().and_then(Result::ok).is_some_and(has);
    if !is_mapping(tree) && was(&is_mapping) {
        return refuse(
            root(),
            "the tree is not a mapping any more",
            "write all of it",
        );
    }
    let advice = "keep the tags (!core/...): the program that wrote this has dropped them";
    if !has_root_tag(tree) && was(&has_root_tag) {
        return refuse(root(), "the tree has lost its tag !core/asdf", advice);
    }
    // most texts end here, before every path of the old tree is looked up in the new one
    if !tree.all().any(may_be_untagged) {
        return Ok(());
    }
    let mut children = Children::new(tree);
    for array in old.arrays() {
        if let Some(node) = node_at(tree, &mut children, &array.steps())
            && node.kind() == NodeKind::Mapping
            && !node.tag().is_some_and(is_ndarray)
            && ARRAY_KEYS.iter().all(|key| node.get(key).is_some())
        {
            let path = array.brief_path();
            let why = format!("array {path} has lost its tag {}", array.tag());
            return refuse(node.place(), why, advice);
        }
    }
    Ok(())
}

/// Refuses an array that asdf-python would read as a mapping, because its tag is none of that version of the standard: one that the edit
/// adds, or all of them if it changes the version.
fn check_standard(old: Option<&Snapshot>, text: &[u8], found: &ArrayTable) -> Result<()> {
    let now = known_arrays(text);
    let mut new = misread(now, &found.arrays);
    if new.is_empty() {
        return Ok(());
    }
    let before = old.map_or(now, |old| known_arrays(old.text()));
    let known = old.map_or(Vec::new(), |old| misread(before, old.arrays()));
    let has_changed = before != now;
    // an item that is put into a list gives other paths to the arrays behind it
    if before.is_empty() || !has_changed && new.len() <= known.len() {
        return Ok(());
    }
    let known: HashSet<_> = known.iter().map(|(array, _)| array.brief_path()).collect();
    new.retain(|(array, _)| !known.contains(&array.brief_path()));
    let (Some((array, tag)), Some(now)) = (new.first(), now.first()) else {
        return Ok(());
    };
    let path = array.brief_path();
    let why = format!(
        "with this version of the standard, Python does not read array {path} with its tag {tag}"
    );
    if has_changed {
        let advice = "undo the change of the #ASDF_STANDARD line, or change the tags, too";
        return refuse(place_of_standard(text), why, advice);
    }
    refuse(array.place(), why, &format!("give it the tag !{now}"))
}

/// The arrays that asdf-python reads as mappings where it knows the tags `known`, each with its tag. Drafts and FINF have tags of their own.
fn misread<'a>(known: &[&str], arrays: &'a [Array]) -> Vec<(&'a Array, &'a str)> {
    if known.is_empty() {
        return Vec::new();
    }
    let arrays = arrays.iter().filter_map(|array| {
        let tag = array.tag().strip_prefix("tag:stsci.edu:asdf/")?;
        let is_misread = tag.starts_with("core/ndarray") && !known.contains(&tag);
        is_misread.then_some((array, tag))
    });
    arrays.collect()
}

/// Whether a node may be an array that has lost its tag: it has the keys of one, or merges mappings that may have them.
fn may_be_untagged(node: Node<'_>) -> bool {
    if node.kind() != NodeKind::Mapping || node.tag().is_some_and(is_ndarray) {
        return false;
    }
    let mut left = ARRAY_KEYS.to_vec();
    node.entries().any(|(key, _)| {
        left.retain(|name| key.text() != Some(name));
        left.is_empty() || key.is_merge()
    })
}

/// Refuses a broken rule, unless `old` breaks it at the same place or, as often, at other items of the same list.
fn check_rules(old: &Faults, new: &Faults) -> Result<()> {
    // the list of old faults is incomplete, so an old fault could be called new
    if old.cut {
        return Ok(());
    }
    let mut known: HashMap<_, usize> = HashMap::new();
    for fault in &old.list {
        let count = known.entry(fault.of_any_item()).or_default();
        *count = count.saturating_add(1);
    }
    // A fault that stayed at its place uses up its old counterpart first. The
    // fault that is left over, and named to the user, is then one at a new place.
    let at_home: HashSet<String> = old.list.iter().map(Fault::text).collect();
    let (mut stayed, mut others): (Vec<&Fault>, Vec<&Fault>) = new
        .list
        .iter()
        .partition(|fault| at_home.contains(&fault.text()));
    stayed.append(&mut others);
    for fault in stayed {
        let left = known.get_mut(&fault.of_any_item());
        let Some(left) = left.filter(|left| **left > 0) else {
            let advice = "correct it; -o validate=off saves it all the same";
            return refuse(fault.place.clone(), fault.text(), advice);
        };
        *left = left.saturating_sub(1);
    }
    Ok(())
}

/// The node that keys and indices lead to.
fn node_at<'t>(
    tree: &'t Tree,
    children: &mut Children<'t>,
    path: &[Cow<'_, str>],
) -> Option<Node<'t>> {
    path.iter()
        .try_fold(tree.root()?.follow(), |node, component| {
            let next = match node.kind() {
                NodeKind::Sequence => children.item(node, component.parse().ok()?),
                // `get` walks all merged mappings, so it is only asked where there is a merge
                _ => children.value(node, component).or_else(|| {
                    let merges = children.value(node, "<<").is_some();
                    merges.then(|| node.get(component)).flatten()
                }),
            };
            next.map(Node::follow)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(body: &str) -> Faults {
        let head = "%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
        rules::check(&Tree::parse(format!("{head}{body}\n...\n")).unwrap())
    }

    fn refusal(old: &str, new: &str) -> Option<String> {
        let verdict = check_rules(&faults(old), &faults(new));
        verdict.err().map(|error| error.to_string())
    }

    const GOOD: &str = "!core/software-1.0.0 {name: n, version: '1'}";
    const BAD: &str = "!core/software-1.0.0 {name: n}";

    #[test]
    fn only_a_rule_that_was_kept_before_is_told_of() {
        let one = |node: &str| format!("a: {node}\nb: 1");
        assert_eq!(refusal(&one(BAD), &one(BAD)), None);
        assert_eq!(refusal(&one(BAD), &one(GOOD)), None);
        assert_eq!(
            refusal(&one(GOOD), &one(BAD)).unwrap(),
            "line 3, column 4: a: version is missing (rule core/software-1.0.0); correct it; -o validate=off saves it all \
             the same"
        );
        let worse = "!core/software-1.0.0 {name: 1}";
        let why = refusal(&one(BAD), &one(worse)).unwrap();
        assert!(why.contains("a/name: a string is needed"), "{why}");
    }

    #[test]
    fn a_fault_may_move_within_a_list_but_not_multiply() {
        let list = |nodes: &[&str]| format!("a: [{}]", nodes.join(", "));
        assert_eq!(
            refusal(&list(&[GOOD, BAD]), &list(&[GOOD, GOOD, BAD])),
            None
        );
        let why = refusal(&list(&[GOOD, BAD]), &list(&[BAD, BAD])).unwrap();
        assert!(why.contains("a/0: version is missing"), "{why}");
    }

    /// What two rules say is in the list once, under the rule that is left when the other has nothing to say.
    #[test]
    fn a_fault_is_known_by_whichever_rule_it_was_found() {
        let file = |item: &str| {
            let first = "!core/extension_metadata-1.0.0 {extension_class: a.B}";
            format!("history: {{extensions: [{first}, !core/extension_metadata-1.0.0 {item}]}}")
        };
        let rules = |item: &str| {
            let found = faults(&file(item)).list;
            found.iter().map(|it| it.rule).collect::<Vec<_>>()
        };
        assert_ne!(rules("{}"), rules("{extension_uri: x}"));
        assert_eq!(refusal(&file("{}"), &file("{extension_uri: x}")), None);
    }

    #[test]
    fn more_faults_than_can_be_compared_refuse_nothing() {
        let old = Faults {
            list: Vec::new(),
            cut: true,
        };
        let new = faults(&format!("a: {BAD}"));
        assert!(check_rules(&old, &new).is_ok());
        assert!(check_rules(&Faults::default(), &new).is_err());
    }
}
