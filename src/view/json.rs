//! The tree as JSON.
//!
//! A tag that is none of YAML's own is the key `!tag` of an object: beside the keys of a mapping, beside `!items` of a sequence,
//! and beside `!value` of a scalar. An array that has files in a mount has the path of one as `!file`. A key of the tree that begins
//! with `!` has another one in front, so that it is none of these. A key that is no string, and has the text of another key, has its type
//! in front, as in `!int 1`. A key that is a mapping or sequence is spelled as in the tree. All other aliases, and merge keys, stand for
//! what they lead to.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io;

use serde::ser::{self, Serialize, SerializeMap};
use serde_json::ser::{PrettyFormatter, Serializer};

use super::{array_at, entries};
use crate::asdf::Snapshot;
use crate::asdf::scalar::{Type, Value};
use crate::asdf::tree::{Node, NodeKind, Tree};
use crate::error::{Error, Result, unsupported};

/// What tags of YAML's own types begin with.
const YAML: &str = "tag:yaml.org,2002:";
/// The type of keys that are strings.
const STRING: &str = "str";
/// How many times as long as the text JSON may be, and how many bytes besides.
const MOST_TIMES: usize = 4;
const SPARE: usize = 64 << 20;

/// A tree as JSON: in one line, or with a line for each value, for people and line-based tools; `null` where there is none. `file_of` gives
/// the path in a mount of the file of the array that a node declares, if there is one.
///
/// # Errors
/// [`Error::Unsupported`] if it is far longer than the text, [`MOST_TIMES`]: by aliases and tags, a short one can stand for endlessly much.
pub(crate) fn text(
    tree: Option<&Tree>,
    file_of: &dyn Fn(Node<'_>) -> Option<String>,
    in_lines: bool,
) -> Result<Vec<u8>> {
    let text = tree.map_or(0, |tree| tree.bytes().len());
    let most = text.saturating_mul(MOST_TIMES).saturating_add(SPARE);
    let mut out = Bounded {
        bytes: Vec::new(),
        room: most,
    };
    let root = tree.and_then(Tree::root);
    let root = root.map(|root| JsonNode::new(root, file_of));
    let written = if in_lines {
        let form = PrettyFormatter::with_indent(b" ");
        root.serialize(&mut Serializer::with_formatter(&mut out, form))
    } else {
        root.serialize(&mut Serializer::new(&mut out))
    };
    // a tree can always be written as JSON, so that all there may lack is room
    written.map_err(|_| unsupported(format!("the tree is more than {most} bytes of JSON")))?;
    out.bytes.push(b'\n');
    Ok(out.bytes)
}

/// Bytes in memory, as long as there is room.
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.room.checked_sub(bytes.len());
        self.room = left.ok_or(io::ErrorKind::OutOfMemory)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The path in a mount of the file of the array that a node of the snapshot's tree declares, if it does and has one.
pub(crate) fn file_of(snapshot: &Snapshot, node: Node<'_>) -> Option<String> {
    let number = array_at(snapshot.paths()?, node)?;
    snapshot.arrays().get(number)?.listed_file()
}

/// The line with the object that stands for a tree that is not valid.
pub(crate) fn error_line(error: &Error) -> Vec<u8> {
    let object = serde_json::json!({ "!error": error.to_string() });
    format!("{object}\n").into_bytes()
}

/// A node and all beneath it, as they are written.
#[derive(Clone, Copy)]
struct JsonNode<'t> {
    node: Node<'t>,
    /// Whether the object around this value has its tag already. The nodes beneath have theirs.
    without_tag: bool,
    file_of: &'t dyn Fn(Node<'_>) -> Option<String>,
}

impl<'t> JsonNode<'t> {
    fn new(node: Node<'t>, file_of: &'t dyn Fn(Node<'_>) -> Option<String>) -> Self {
        Self {
            node,
            without_tag: false,
            file_of,
        }
    }

    /// Writes the entries of a mapping, its own first, then those that it merges and does not have. Of equal keys, the last one counts.
    fn entries<M: SerializeMap>(self, map: &mut M) -> Result<(), M::Error> {
        let mut seen = HashSet::new();
        // this has an end, as what is merged counts in the weight of the tree (`MAX_WEIGHT`)
        let parts = self.node.merged().filter(|part| seen.insert(part.id()));
        let all = entries(parts, |key| Some((name(key), kind(key))));
        let strings = all.iter().filter(|((_, kind), _)| *kind == STRING);
        let mut names: HashSet<_> = strings.map(|((name, _), _)| name.clone()).collect();
        for ((name, kind), value) in all {
            let name = if kind == STRING || names.insert(name.clone()) {
                name
            } else {
                format!("!{kind} {name}").into()
            };
            map.serialize_entry(&name, &Self::new(value, self.file_of))?;
        }
        Ok(())
    }
}

/// What a key is called in JSON. A mapping or sequence has its spelling: its own JSON could be endlessly long, as that of a value.
fn name(key: Node<'_>) -> Cow<'_, str> {
    match key.text().unwrap_or_else(|| key.spelling()) {
        text if text.starts_with('!') => format!("!{text}").into(),
        text => text.into(),
    }
}

impl Serialize for JsonNode<'_> {
    fn serialize<S: ser::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let node = self.node.follow();
        let this = Self { node, ..*self };
        let tag = node.tag().filter(|tag| !tag.starts_with(YAML));
        if let Some(tag) = tag.filter(|_| !self.without_tag) {
            let mut map = to.serialize_map(None)?;
            map.serialize_entry("!tag", tag)?;
            if let Some(file) = (self.file_of)(node) {
                map.serialize_entry("!file", &file)?;
            }
            let value = Self {
                without_tag: true,
                ..this
            };
            match node.kind() {
                NodeKind::Mapping => this.entries(&mut map)?,
                NodeKind::Sequence => map.serialize_entry("!items", &value)?,
                NodeKind::Scalar | NodeKind::Alias => map.serialize_entry("!value", &value)?,
            }
            return map.end();
        }
        match node.kind() {
            NodeKind::Mapping => {
                let mut map = to.serialize_map(None)?;
                this.entries(&mut map)?;
                map.end()
            }
            NodeKind::Sequence => {
                to.collect_seq(node.items().map(|item| Self::new(item, self.file_of)))
            }
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
            // an alias within its own target
            NodeKind::Alias => to.serialize_unit(),
        }
    }
}

/// The type of a key: as YAML calls it, `json` for a collection, or another tag without the `!` that it may begin with.
fn kind(key: Node<'_>) -> &str {
    match (key.tag(), key.value()) {
        (Some(tag), Some(_)) if !tag.starts_with(YAML) => tag.trim_start_matches('!'),
        // timestamps are strings, too
        (_, Some(Value::Str(_))) => STRING,
        _ => key.scalar_type().map_or("json", Type::name),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_json_with_its_tags() {
        let text = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
            base: &b {x: 1, y: .inf}\nown: !x {'!tag': 1, '!': 2}\nm: {<<: *b, x: 2}\nu: !unit/unit-1.0.0 m\nl: !x [~, yes, 2020-01-01]\n1: *b\n...\n";
        let tree = Tree::parse(text).unwrap();
        let none = |_: Node<'_>| None;
        let root = JsonNode::new(tree.root().unwrap(), &none);
        let json = serde_json::to_value(root).unwrap();
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

    #[test]
    fn a_tree_of_endless_json_is_refused() {
        let of = |count: usize| {
            let (list, aliases) = ("!l!a 1, ".repeat(count), "*l, ".repeat(count));
            let tag = "x".repeat(1000);
            let text = format!("%TAG !l! tag:{tag}/\n---\nl: &l [{list}]\na: [{aliases}]\n...\n");
            super::text(Some(&Tree::parse(text).unwrap()), &|_| None, false)
        };
        assert!(of(10).unwrap().ends_with(b"]]}\n"));
        let why = of(1000).unwrap_err().to_string();
        assert!(why.contains("bytes of JSON"), "{why}");
    }

    /// Keys were spelled as JSON without a bound: a key within a key had each of its backslashes twice, and aliases were written out.
    #[test]
    fn keys_that_are_collections_are_spelled_as_in_the_tree() {
        let json = |text: String| {
            let json = super::text(Some(&Tree::parse(text).unwrap()), &|_| None, false);
            String::from_utf8(json.unwrap()).unwrap()
        };
        let nested = format!("{}a{}", "{? ".repeat(40), ": 1}".repeat(40));
        let want = format!("{{\"{}\":1}}\n", &nested[3..nested.len() - 4]);
        assert_eq!(json(format!("---\n{nested}\n...\n")), want);
        let (list, aliases) = ("!l!a 1, ".repeat(1000), "*l, ".repeat(1000));
        let tag = "x".repeat(1000);
        let list = format!("%TAG !l! tag:{tag}/\n---\nl: &l [{list}]\n");
        let of_list = format!("? [{aliases}]\n: 1\n? *l\n: 2\n? !l!a []\n: 3\n...\n");
        let json = json(list + &of_list);
        let want = format!("\"[{aliases}]\":1,\"*l\":2,\"!!l!a []\":3}}\n");
        assert!(json.ends_with(&want), "{}", json.len());
    }

    /// Keys behind the first thousand merged mappings were missing, without a word.
    #[test]
    fn however_many_mappings_are_merged_all_their_keys_are_there() {
        const COUNT: usize = 3000;
        let each = |form: &dyn Fn(usize) -> String| (0..COUNT).map(form).collect::<String>();
        let bases = each(&|n| format!("m{n}: &m{n} {{k{n}: {n}}}\n"));
        let aliases = each(&|n| format!("*m{n}, "));
        let text = format!("---\n{bases}all: {{<<: [{aliases}], own: 1}}\n...\n");
        let tree = Tree::parse(text).unwrap();
        let root = JsonNode::new(tree.root().unwrap(), &|_| None);
        let json = serde_json::to_value(root).unwrap();
        let all = json["all"].as_object().unwrap();
        assert_eq!(all.len(), COUNT + 1);
        assert_eq!(all["k2999"], 2999);
    }

    /// The values of all but one of them were missing, without a word.
    #[test]
    fn keys_of_one_text_and_several_types_are_all_there() {
        let text = "---\n{1: a, '1': b, !!float 1: c, [1]: d, '[1]': e, \
            2020-01-01: f, '2020-01-01': g, !x k: h, k: i, 7: j}\n...\n";
        let tree = Tree::parse(text).unwrap();
        let root = JsonNode::new(tree.root().unwrap(), &|_| None);
        let json = serde_json::to_string(&root).unwrap();
        let want = [
            r#"{"!int 1":"a","1":"b","!float 1":"c","!json [1]":"d","[1]":"e","#,
            r#""2020-01-01":"g","!x k":"h","k":"i","7":"j"}"#,
        ];
        assert_eq!(json, want.concat());
    }

    #[test]
    fn of_equal_keys_the_last_one_counts() {
        let text = "#ASDF 1.0.0\n%YAML 1.1\n---\n\
            k: 1\nm: &m {x: 1, y: 5}\nn: {x: 3, x: 4, <<: *m, y: 6, y: 7}\nk: 2\n...\n";
        let tree = Tree::parse(text).unwrap();
        let root = JsonNode::new(tree.root().unwrap(), &|_| None);
        let json = serde_json::to_string(&root).unwrap();
        assert_eq!(json, r#"{"m":{"x":1,"y":5},"n":{"x":4,"y":7},"k":2}"#);
    }
}
