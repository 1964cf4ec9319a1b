//! The tree as JSON.
//!
//! A tag that is none of YAML's own is the key `!tag` of an object: beside the keys of a mapping, beside `!items` of a sequence,
//! and beside `!value` of a scalar. Aliases and merge keys stand for what they lead to.

use std::collections::{HashMap, HashSet};
use std::io;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::scalar::Value;
use super::tree::{Node, NodeKind, Tree};
use crate::error::Error;

/// What tags of YAML's own types begin with.
const YAML: &str = "tag:yaml.org,2002:";
/// The most mappings that are merged into one.
const MOST_MERGED: usize = 1 << 10;

/// Writes a tree as one line of JSON; `null` where there is none.
///
/// # Errors
/// Of `out`.
pub(crate) fn write(tree: Option<&Tree>, mut out: impl io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut out, &tree.and_then(Tree::root).map(Tagged))?;
    out.write_all(b"\n")
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
struct Tagged<'t>(Node<'t>);

/// A node without its tag.
struct Untagged<'t>(Node<'t>);

impl Serialize for Tagged<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let node = self.0.follow();
        let Some(tag) = node.tag().filter(|tag| !tag.starts_with(YAML)) else {
            return Untagged(node).serialize(to);
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("!tag", tag)?;
        match node.kind() {
            NodeKind::Mapping => entries(node, &mut map)?,
            NodeKind::Sequence => map.serialize_entry("!items", &Untagged(node))?,
            NodeKind::Scalar | NodeKind::Alias => map.serialize_entry("!value", &Untagged(node))?,
        }
        map.end()
    }
}

impl Serialize for Untagged<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let node = self.0;
        match node.kind() {
            NodeKind::Mapping => {
                let mut map = to.serialize_map(None)?;
                entries(node, &mut map)?;
                map.end()
            }
            NodeKind::Sequence => to.collect_seq(node.items().map(Tagged)),
            NodeKind::Scalar => match node.value() {
                Some(Value::Bool(value)) => to.serialize_bool(value),
                Some(Value::Int(value)) => to.serialize_i128(value),
                Some(Value::Float(value)) if value.is_finite() => to.serialize_f64(value),
                None | Some(Value::Null) => to.serialize_unit(),
                // as YAML writes what JSON has no number for
                Some(Value::Float(value)) if value.is_nan() => to.serialize_str(".nan"),
                Some(Value::Float(value)) if value > 0.0 => to.serialize_str(".inf"),
                Some(Value::Float(_)) => to.serialize_str("-.inf"),
                Some(Value::Huge(text) | Value::Str(text) | Value::Malformed(text)) => {
                    to.serialize_str(text)
                }
            },
            // within what it stands for
            NodeKind::Alias => to.serialize_unit(),
        }
    }
}

/// The entries of a mapping, its own first, then those that it merges and does not have.
fn entries<M: SerializeMap>(mapping: Node<'_>, map: &mut M) -> Result<(), M::Error> {
    let mut seen = HashSet::new();
    for part in mapping.merged().take(MOST_MERGED) {
        for (key, value) in part.entries().filter(|(key, _)| !key.is_merge()) {
            let name = match key.text() {
                Some(text) => text.to_owned(),
                None => serde_json::to_string(&Tagged(key)).unwrap_or_default(),
            };
            if seen.insert(name.clone()) {
                map.serialize_entry(&name, &Tagged(value))?;
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
            base: &b {x: 1, y: .inf}\nm: {<<: *b, x: 2}\nu: !unit/unit-1.0.0 m\nl: !x [~, yes, 2020-01-01]\n1: *b\n...\n";
        let tree = Tree::parse(text).unwrap();
        let json = serde_json::to_value(Tagged(tree.root().unwrap())).unwrap();
        let want = serde_json::json!({
            "!tag": "tag:stsci.edu:asdf/core/asdf-1.1.0",
            "base": {"x": 1, "y": ".inf"},
            "m": {"x": 2, "y": ".inf"},
            "u": {"!tag": "tag:stsci.edu:asdf/unit/unit-1.0.0", "!value": "m"},
            "l": {"!tag": "tag:stsci.edu:asdf/x", "!items": [null, true, "2020-01-01"]},
            "1": {"x": 1, "y": ".inf"},
        });
        assert_eq!(json, want);
    }
}
