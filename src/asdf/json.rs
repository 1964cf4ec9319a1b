//! The tree as JSON.
//!
//! A tag that is none of YAML's own is the key `!tag` of an object: beside the keys of a mapping, beside `!items` of a sequence,
//! and beside `!value` of a scalar. An array that has files in a mount has the path of one as `!file`. A key of the tree that begins
//! with `!` has another one in front, so that it is none of these. Aliases and merge keys stand for what they lead to.

use std::collections::{HashMap, HashSet};
use std::io;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Snapshot;
use super::scalar::Value;
use super::tree::{Node, NodeKind, Tree};
use crate::error::Error;

/// What tags of YAML's own types begin with.
const YAML: &str = "tag:yaml.org,2002:";
/// The most mappings that are merged into one.
const MOST_MERGED: usize = 1 << 10;

/// Gives the path in a mount of the file of the array that a node declares, if there is one.
type FileOf<'t> = &'t dyn Fn(Node<'_>) -> Option<String>;

/// Writes a tree as one line of JSON; `null` where there is none.
///
/// # Errors
/// Of `out`.
pub(crate) fn write(
    tree: Option<&Tree>,
    file_of: FileOf<'_>,
    mut out: impl io::Write,
) -> io::Result<()> {
    let root = tree.and_then(Tree::root);
    serde_json::to_writer(&mut out, &root.map(|root| Tagged(root, file_of)))?;
    out.write_all(b"\n")
}

/// The path in a mount of the file of the array that a node of the snapshot's tree declares, if it does and has one.
pub(crate) fn file_of(snapshot: &Snapshot, node: Node<'_>) -> Option<String> {
    let outline = snapshot.paths()?.outline();
    let number = outline.array(outline.find(node.id())?)?;
    snapshot.arrays().get(number)?.listed_file()
}

/// Writes the object that stands for a tree that is not valid.
///
/// # Errors
/// Of `out`.
pub(crate) fn write_error(error: &Error, mut out: impl io::Write) -> io::Result<()> {
    let object = HashMap::from([("!error", error.to_string())]);
    serde_json::to_writer(&mut out, &object)?;
    out.write_all(b"\n")
}

/// A node with its tag.
struct Tagged<'t>(Node<'t>, FileOf<'t>);

/// A node without its tag.
struct Untagged<'t>(Node<'t>, FileOf<'t>);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(node, file_of) = *self;
        let node = node.follow();
        let Some(tag) = node.tag().filter(|tag| !tag.starts_with(YAML)) else {
            return Untagged(node, file_of).serialize(to);
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("!tag", tag)?;
        if let Some(file) = file_of(node) {
            map.serialize_entry("!file", &file)?;
        }
        let untagged = Untagged(node, file_of);
        match node.kind() {
            NodeKind::Mapping => entries(node, file_of, &mut map)?,
            NodeKind::Sequence => map.serialize_entry("!items", &untagged)?,
            NodeKind::Scalar | NodeKind::Alias => map.serialize_entry("!value", &untagged)?,
        }
        map.end()
    }
}

impl Serialize for Untagged<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(node, file_of) = *self;
        match node.kind() {
            NodeKind::Mapping => {
                let mut map = to.serialize_map(None)?;
                entries(node, file_of, &mut map)?;
                map.end()
            }
            NodeKind::Sequence => to.collect_seq(node.items().map(|item| Tagged(item, file_of))),
            NodeKind::Scalar => match node.value() {
                Some(Value::Bool(value)) => to.serialize_bool(value),
                Some(Value::Int(value)) => to.serialize_i128(value),
                None | Some(Value::Null) => to.serialize_unit(),
                Some(Value::Float(value)) => match not_finite(value) {
                    Some(text) => to.serialize_str(text),
                    None => to.serialize_f64(value),
                },
                Some(Value::Huge(text) | Value::Str(text) | Value::Malformed(text)) => {
                    to.serialize_str(text)
                }
            },
            // within what it stands for
            NodeKind::Alias => to.serialize_unit(),
        }
    }
}

/// The string that stands for a number that JSON has none for, as YAML writes it.
pub(crate) fn not_finite(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_finite() => None,
        _ if value.is_nan() => Some(".nan"),
        _ if value > 0.0 => Some(".inf"),
        _ => Some("-.inf"),
    }
}

/// The entries of a mapping, its own first, then those that it merges and does not have.
fn entries<'t, M: SerializeMap>(
    mapping: Node<'t>,
    file_of: FileOf<'t>,
    map: &mut M,
) -> Result<(), M::Error> {
    let mut seen = HashSet::new();
    for part in mapping.merged().take(MOST_MERGED) {
        for (key, value) in part.entries().filter(|(key, _)| !key.is_merge()) {
            let name = match key.text() {
                Some(text) if text.starts_with('!') => format!("!{text}"),
                Some(text) => text.to_owned(),
                None => serde_json::to_string(&Tagged(key, file_of)).unwrap_or_default(),
            };
            if seen.insert(name.clone()) {
                map.serialize_entry(&name, &Tagged(value, file_of))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_json_with_its_tags() {
        let text = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            base: &b {x: 1, y: .inf}\nown: !x {'!tag': 1, '!': 2}\nm: {<<: *b, x: 2}\nu: !unit/unit-1.0.0 m\nl: !x [~, yes, 2020-01-01]\n1: *b\n...\n";
        let tree = Tree::parse(text).unwrap();
        let none = |_: Node<'_>| None;
        let root = Tagged(tree.root().unwrap(), &none);
        let json = serde_json::to_value(&root).unwrap();
        let want = serde_json::json!({
            "!tag": "tag:stsci.edu:asdf/core/asdf-1.1.0",
            "base": {"x": 1, "y": ".inf"},
            "own": {"!tag": "tag:stsci.edu:asdf/x", "!!tag": 1, "!!": 2},
            "m": {"x": 2, "y": ".inf"},
            "u": {"!tag": "tag:stsci.edu:asdf/unit/unit-1.0.0", "!value": "m"},
            "l": {"!tag": "tag:stsci.edu:asdf/x", "!items": [null, true, "2020-01-01"]},
            "1": {"x": 1, "y": ".inf"},
        });
        assert_eq!(json, want);
        let text = serde_json::to_string(&root).unwrap();
        assert_eq!(text.matches("\"!tag\"").count(), 4, "{text}");
    }
}
