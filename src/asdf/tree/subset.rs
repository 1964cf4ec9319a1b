//! Finds YAML that the standard's subset forbids, though readers put up with it.
//!
//! ASDF Standard 1.6.0, "YAML subset" and "Numeric literals". A mount only warns: the Python library reads such files, and libasdf
//! ships one. A save refuses faults that it would add.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::{Node, NodeId, NodeKind, Tree, tags};
use crate::asdf::scalar::{Type, Value};
use crate::asdf::timestamp::is_date;
use crate::error::Place;

/// Most warnings that are kept; more are counted.
const MAX_WARNINGS: usize = 1000;
/// Mappings of up to so many entries are compared pair by pair.
const FEW: usize = 12;
/// The fewest characters of an integer beyond 64 bits, as in `0x8000000000000000`.
const MIN_LARGE: usize = 18;
/// The digits in front of the first dash of a timestamp.
const YEAR_LEN: usize = 4;
/// The most characters of the text that are quoted in a message.
const MAX_QUOTED: usize = 60;

/// The advice for most warnings.
const FORBIDDEN: &str = "ASDF does not allow it";

/// Something that the subset does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where in the text.
    pub byte: usize,
    /// What was found versus allowed.
    pub message: String,
    /// What to do about it.
    pub advice: &'static str,
}

/// The warnings of a tree.
#[derive(Debug, Clone, Default)]
pub struct Warnings {
    list: Vec<Warning>,
    more: usize,
}

impl Warnings {
    /// The first of them, in the order of the text.
    #[must_use]
    pub fn list(&self) -> &[Warning] {
        &self.list
    }

    /// How many more there are than the list has.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    /// The warnings with their places, for listings.
    pub fn places<'w>(&'w self, tree: &'w Tree) -> impl Iterator<Item = (Place, &'w Warning)> {
        self.list
            .iter()
            .map(|warning| (tree.place(warning.byte), warning))
    }

    pub(super) fn add(&mut self, byte: usize, message: impl FnOnce() -> String) {
        self.advise(byte, message, FORBIDDEN);
    }

    /// Keeps a warning. Beyond [`MAX_WARNINGS`] only counts it, without making its message.
    pub(super) fn advise(
        &mut self,
        byte: usize,
        message: impl FnOnce() -> String,
        advice: &'static str,
    ) {
        if self.list.len() < MAX_WARNINGS {
            self.list.push(Warning {
                byte,
                message: message(),
                advice,
            });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

/// Adds to `warnings` all that the nodes have and the subset forbids.
pub(super) fn check(tree: &Tree, mut warnings: Warnings) -> Warnings {
    tags::check(tree, &mut warnings);
    // the same memory for the keys of every mapping
    let mut few = Vec::with_capacity(FEW);
    let mut id = NodeId(0);
    while let Some(node) = tree.node(id) {
        match node.kind() {
            NodeKind::Mapping => check_keys(node, &mut few, tree, &mut warnings),
            NodeKind::Scalar => {
                check_integer(node, &mut warnings);
                check_value(node, &mut warnings);
            }
            NodeKind::Alias if node.is_recursive() => {
                warnings.add(node.span().start, || {
                    "an alias within what it stands for".into()
                });
            }
            NodeKind::Sequence if node.tag() == Some(tags::ORDERED) => {
                check_ordered(node, tree, &mut warnings);
            }
            NodeKind::Alias | NodeKind::Sequence => {}
        }
        id = id.next();
    }
    // several passes have found them: back to the order of the text
    warnings.list.sort_by_key(|warning| warning.byte);
    warnings
}

/// The meaning of a key. Keys of one meaning are one key to Python, such as `true`, `1` and `1.0`.
#[derive(PartialEq, Eq, Hash)]
enum Canonical<'t> {
    Null,
    Int(i128),
    Float(u64),
    Text(Option<&'t str>, Type, &'t str),
}

/// What a key means; `None` if it is no scalar.
fn canonical(key: Node<'_>) -> Option<Canonical<'_>> {
    let (kind, text) = key.typed()?;
    Some(match kind.value(text) {
        Value::Null => Canonical::Null,
        Value::Bool(b) => Canonical::Int(b.into()),
        Value::Int(n) => Canonical::Int(n),
        Value::Float(x) => {
            // by its digits, which are exact for every whole float
            let digits = (x.fract() == 0.0).then(|| format!("{x:.0}"));
            let whole = digits.and_then(|digits| digits.parse().ok());
            whole.map_or(Canonical::Float(x.to_bits()), Canonical::Int)
        }
        Value::Huge(text) | Value::Str(text) | Value::Malformed(text) => {
            // a tag of YAML's own is in `kind` already
            let own = key.tag().filter(|tag| Type::from_tag(tag).is_none());
            Canonical::Text(own, kind, text)
        }
    })
}

/// Warns of keys that are no strings, integers or truth values, and of keys that occur again. More than [`FEW`] keys are compared
/// by hashes with a random seed: no file can be made in which many of them collide. `few` holds the keys of a smaller mapping.
fn check_keys<'t>(
    mapping: Node<'t>,
    few: &mut Vec<Canonical<'t>>,
    tree: &Tree,
    warnings: &mut Warnings,
) {
    few.clear();
    let mut many: Vec<(u64, NodeId)> = Vec::new();
    let hasher = RandomState::new();
    for (key, value) in mapping.entries() {
        // merges are no keys of the mapping, and there may be several
        if key.is_merge() {
            tags::check_merged(value, warnings);
            continue;
        }
        let at = key.span().start;
        let Some(value) = canonical(key) else {
            warnings.add(at, || {
                "a key that is not a scalar, where ASDF allows strings, integers and truth values".into()
            });
            continue;
        };
        if let Canonical::Text(Some(tag), ..) = value
            && tag != tags::BINARY
        {
            warnings.add(at, || {
                let tag = quoted(tag);
                format!(
                    "a key with the tag {tag}, where ASDF allows strings, integers and truth values"
                )
            });
        }
        // Python takes nulls and floats for keys, but the standard does not
        if !matches!(value, Canonical::Text(..))
            && let Some(kind @ (Type::Null | Type::Float)) = key.scalar_type()
        {
            warnings.add(at, || {
                let name = kind.name();
                format!(
                    "a key of type {name}, where ASDF allows strings, integers and truth values"
                )
            });
        }
        // up to twelve keys are compared in 66 steps or less, and nothing is hashed
        if mapping.len() > FEW {
            many.push((hasher.hash_one(&value), key.id()));
        } else if few.contains(&value) {
            warn_of_repeated_key(key, warnings);
        } else {
            few.push(value);
        }
    }
    warn_of_repeated(many, tree, warnings);
}

/// Warns of keys that occur again in an `!!omap`, a list of mappings of one key: the Python library makes one mapping of it.
fn check_ordered(list: Node<'_>, tree: &Tree, warnings: &mut Warnings) {
    let hasher = RandomState::new();
    let keys = list.items().filter_map(|item| item.entries().next());
    let keys = keys.filter_map(|(key, _)| Some((hasher.hash_one(canonical(key)?), key.id())));
    warn_of_repeated(keys.collect(), tree, warnings);
}

/// The keys that equal an earlier one, in the order of the text. Works on hashes, because a set of a million keys takes
/// eight times their memory.
fn repeated(mut keys: Vec<(u64, NodeId)>, tree: &Tree) -> Vec<NodeId> {
    keys.sort_unstable();
    let mut repeated = Vec::new();
    let groups = keys.chunk_by(|a, b| a.0 == b.0);
    for alike in groups.filter(|alike| alike.len() > 1) {
        // equal hashes do not yet mean equal keys
        let mut known = HashSet::new();
        let mut is_new = |id| known.insert(tree.node(id).and_then(canonical));
        repeated.extend(alike.iter().map(|key| key.1).filter(|id| !is_new(*id)));
    }
    repeated.sort_unstable();
    repeated
}

fn warn_of_repeated(keys: Vec<(u64, NodeId)>, tree: &Tree, warnings: &mut Warnings) {
    for id in repeated(keys, tree) {
        if let Some(key) = tree.node(id) {
            warn_of_repeated_key(key, warnings);
        }
    }
}

fn warn_of_repeated_key(key: Node<'_>, warnings: &mut Warnings) {
    warnings.add(key.span().start, || {
        let text = quoted(key.text().unwrap_or_default());
        let alike = match key.scalar_type() {
            Some(Type::Bool | Type::Int | Type::Float) => " (true is 1, false is 0)",
            _ => "",
        };
        format!("key {text} occurs again in its mapping{alike}; readers take the last one")
    });
}

/// Warns of an integer beyond 64 bits ("Numeric literals"). Its value is asked for only if the text is long enough, as a tree may
/// hold millions.
fn check_integer(scalar: Node<'_>, warnings: &mut Warnings) {
    let bytes = scalar.text_bytes();
    let digits_first = matches!(bytes.first(), Some(b'0'..=b'9' | b'-' | b'+'));
    if bytes.len() < MIN_LARGE || !digits_first || scalar.scalar_type() != Some(Type::Int) {
        return;
    }
    let Some(text) = scalar.text() else { return };
    let large = match scalar.value() {
        Some(Value::Int(n)) => i64::try_from(n).is_err(),
        Some(Value::Huge(_)) => true,
        _ => false,
    };
    if large {
        warnings.add(scalar.span().start, || {
            format!("integer {} beyond the range of int64", quoted(text))
        });
    }
}

/// Warns of a scalar whose text its type does not allow, such as a date that does not exist. The Python library reads no such file.
fn check_value(scalar: Node<'_>, warnings: &mut Warnings) {
    let tagged = scalar.tag().is_some();
    let bytes = scalar.text_bytes();
    // of those without a tag, only the likes of `2001-13-45` and `0x_`
    if !tagged && bytes.get(YEAR_LEN) != Some(&b'-') && bytes.last() != Some(&b'_') {
        return;
    }
    let text = scalar.text().unwrap_or_default();
    let kind = scalar.scalar_type().unwrap_or(Type::Str);
    let is_binary = scalar.tag() == Some(tags::BINARY);
    let is_what = match kind.value(text) {
        _ if is_binary && !tags::is_base64(text) => "no base64".to_owned(),
        _ if kind == Type::Timestamp && !is_date(text) => "not a valid date or time".to_owned(),
        Value::Malformed(_) => format!("no {}", kind.name()),
        _ => return,
    };
    let advice = if tagged {
        "correct it, or its tag"
    } else {
        "correct it, or put it in quotes if it is text"
    };
    let why = || format!("{} is {is_what}", quoted(text));
    warnings.advise(scalar.span().start, why, advice);
}

/// A piece of the tree's text that is safe and short enough for a message.
pub(in crate::asdf) fn quoted(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(MAX_QUOTED)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        short.push('…');
    }
    format!("'{short}'")
}

#[cfg(test)]
mod tests {
    use super::super::MAX_DEPTH_OF_PYTHON;
    use super::*;

    /// What is warned of in the value of a key.
    fn warnings(value: &str) -> String {
        let tree = Tree::parse(format!("a: {value}\n...\n")).unwrap();
        let messages = tree.warnings().list().iter().map(|w| w.message.as_str());
        messages.collect::<Vec<_>>().join("; ")
    }

    /// A text could be saved that Python's asdf could not read.
    #[test]
    fn what_is_nested_too_deep_for_python_is_warned_of() {
        for depth in [MAX_DEPTH_OF_PYTHON, MAX_DEPTH_OF_PYTHON + 1] {
            // the mapping of the key is the first level
            let warned = warnings(&format!("\n{}x", "- ".repeat(depth - 1)));
            assert_eq!(warned.contains("deeper"), depth > MAX_DEPTH_OF_PYTHON);
        }
    }

    #[test]
    fn texts_that_their_type_does_not_allow_are_warned_of() {
        // Verdicts of Python's asdf; tests/yaml_oracle.py has many more.
        for (value, message) in [
            ("0x_", "'0x_' is no int"),
            ("[-0b_]", "'-0b_' is no int"),
            ("{<<: {k: 0x_}}", "'0x_' is no int"),
            ("! '0x_'", "'0x_' is no int"),
            ("!!int x", "'x' is no int"),
            ("!!float ''", "'' is no float"),
            ("!!bool y", "'y' is no bool"),
            ("!!binary aGk", "'aGk' is no base64"),
            ("2001-13-45", "'2001-13-45' is not a valid date or time"),
            ("!!timestamp x", "'x' is not a valid date or time"),
            ("'0x_'", ""),
            ("[0_, 1__, _, -_]", ""),
            ("!!int '5'", ""),
            ("!!float 5", ""),
            ("!!bool oN", ""),
            ("!!null x", ""),
            ("!!str 0x_", ""),
            ("!!binary aGk=", ""),
            ("!!int5 x", ""),
            ("!foo 0x_", ""),
        ] {
            assert_eq!(warnings(value), message, "{value}");
        }
    }

    #[test]
    fn keys_that_python_does_not_take_or_tell_apart_are_warned_of() {
        let tagged = |tag: &str| {
            format!(
                "a key with the tag '{tag}', where ASDF allows strings, integers and truth values"
            )
        };
        let again = |key: &str| {
            format!(
                "key '{key}' occurs again in its mapping (true is 1, false is 0); readers take the last one"
            )
        };
        for (value, message) in [
            ("{!<tag:o,1:x> k: 1}", tagged("tag:o,1:x")),
            ("{!!foo k: 1}", tagged("tag:yaml.org,2002:foo")),
            ("{1: 1, true: 2}", again("true")),
            ("{off: 1, 0x0: 2}", again("0x0")),
            ("!!omap [{1: 1}, {2: 1}, {yes: 1}]", again("yes")),
            ("{2: 1, true: 2, 0: 3}", String::new()),
            ("{'1': 1, 1: 2, 'true': 3}", String::new()),
            ("{!!binary aGk=: 1, !!str b: 2, =: 3}", String::new()),
            ("!!omap [{a: 1}, {b: 1}]", String::new()),
            ("!!pairs [{a: 1}, {a: 1}]", String::new()),
        ] {
            assert_eq!(warnings(value), message, "{value}");
        }
        for value in ["{1: 1, 1.0: 2}", "{0.0: 1, -0.0: 2}", "{1.5: 1, 1.50: 2}"] {
            assert!(warnings(value).contains("occurs again"), "{value}");
        }
        for value in [
            "{1: 1, 1.5: 2}",
            "{9007199254740993: 1, 9007199254740992.0: 2}",
        ] {
            assert!(!warnings(value).contains("occurs again"), "{value}");
        }
    }
}
