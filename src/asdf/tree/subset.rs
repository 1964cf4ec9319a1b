//! What YAML allows and the standard's subset of it does not, and what readers put up with all the same.
//!
//! ASDF Standard 1.6.0, "YAML subset" and "Numeric literals". Mounting only warns of it: the Python library reads such files,
//! and libasdf ships one. A save refuses what it would add.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::{Node, NodeId, NodeKind, Tree};
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

/// What to do about most of it.
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

    /// How many there are beside those in the list.
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

    fn add(&mut self, byte: usize, message: impl FnOnce() -> String) {
        self.advise(byte, message, FORBIDDEN);
    }

    /// Keeps a warning, or counts it alone if there are [`MAX_WARNINGS`]: then its message is not made.
    fn advise(&mut self, byte: usize, message: impl FnOnce() -> String, advice: &'static str) {
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

/// Looks for everything that the subset forbids.
pub(super) fn check(tree: &Tree, unknown_directives: &[usize]) -> Warnings {
    let mut warnings = Warnings::default();
    let text = tree.text();
    for &at in unknown_directives {
        let line = text.get(at..).unwrap_or_default();
        let name = line.split_whitespace().next().unwrap_or_default();
        warnings.add(at, || format!("unknown directive {}", quoted(name)));
    }
    let mut id = NodeId(0);
    while let Some(node) = tree.node(id) {
        match node.kind() {
            NodeKind::Mapping => check_keys(node, tree, &mut warnings),
            NodeKind::Scalar => {
                check_integer(node, &mut warnings);
                check_timestamp(node, &mut warnings);
            }
            NodeKind::Alias if node.is_recursive() => {
                warnings.add(node.span().start, || {
                    "an alias within what it stands for".into()
                });
            }
            NodeKind::Alias | NodeKind::Sequence => {}
        }
        id = id.next();
    }
    warnings.list.sort_by_key(|warning| warning.byte);
    warnings
}

/// A key such that equal ones mean the same.
#[derive(PartialEq, Eq, Hash)]
enum Canonical<'t> {
    Null,
    Bool(bool),
    Int(i128),
    Float(u64),
    Text(Option<&'t str>, Type, &'t str),
}

/// What a key means; `None` if it is no scalar.
fn canonical(key: Node<'_>) -> Option<Canonical<'_>> {
    Some(match key.value()? {
        Value::Null => Canonical::Null,
        Value::Bool(b) => Canonical::Bool(b),
        Value::Int(n) => Canonical::Int(n),
        Value::Float(x) => Canonical::Float(x.to_bits()),
        Value::Huge(text) | Value::Str(text) | Value::Malformed(text) => {
            let kind = key.scalar_type()?;
            let own = key.tag().filter(|tag| Type::from_tag(tag).is_none());
            Canonical::Text(own, kind, text)
        }
    })
}

/// Warns of keys that are no strings, integers or truth values, and of those that occur again. More than [`FEW`] are compared by
/// hashes, with a random seed: no file can be made in which many of them collide.
fn check_keys(mapping: Node<'_>, tree: &Tree, warnings: &mut Warnings) {
    let mut few: Vec<Canonical<'_>> = Vec::new();
    let mut many: Vec<(u64, NodeId)> = Vec::new();
    let hasher = RandomState::new();
    for (key, _) in mapping.entries() {
        if key.is_merge() {
            continue;
        }
        let at = key.span().start;
        let Some(value) = canonical(key) else {
            warnings.add(at, || {
                "a key that is not a scalar, where ASDF allows strings, integers and truth values".into()
            });
            continue;
        };
        if let Canonical::Null | Canonical::Float(_) = value {
            warnings.add(at, || {
                let name = key.scalar_type().map_or("", Type::name);
                format!(
                    "a key of type {name}, where ASDF allows strings, integers and truth values"
                )
            });
        }
        if mapping.len() > FEW {
            many.push((hasher.hash_one(&value), key.id()));
        } else if few.contains(&value) {
            warn_of_repeated(key, warnings);
        } else {
            few.push(value);
        }
    }
    for id in repeated(many, tree) {
        if let Some(key) = tree.node(id) {
            warn_of_repeated(key, warnings);
        }
    }
}

/// The keys that equal one in front of them, in the order of the text, of keys with their hashes: these take an eighth of the memory
/// that a set of a million keys does.
fn repeated(mut keys: Vec<(u64, NodeId)>, tree: &Tree) -> Vec<NodeId> {
    keys.sort_unstable();
    let mut repeated = Vec::new();
    let groups = keys.chunk_by(|a, b| a.0 == b.0);
    for alike in groups.filter(|alike| alike.len() > 1) {
        let mut known = HashSet::new();
        let mut is_new = |id| known.insert(tree.node(id).and_then(canonical));
        repeated.extend(alike.iter().map(|key| key.1).filter(|id| !is_new(*id)));
    }
    repeated.sort_unstable();
    repeated
}

fn warn_of_repeated(key: Node<'_>, warnings: &mut Warnings) {
    warnings.add(key.span().start, || {
        let text = quoted(key.text().unwrap_or_default());
        format!("key {text} occurs again in its mapping; readers take the last one")
    });
}

/// Warns of an integer beyond 64 bits ("Numeric literals"). Its value is asked for only if the text is long enough, as a tree may
/// hold millions.
fn check_integer(scalar: Node<'_>, warnings: &mut Warnings) {
    let Some(text) = scalar.text() else { return };
    let digits_first = text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
    if text.len() < MIN_LARGE || !digits_first || scalar.scalar_type() != Some(Type::Int) {
        return;
    }
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

/// The Python library reads no file with a timestamp that its calendar does not have.
fn check_timestamp(scalar: Node<'_>, warnings: &mut Warnings) {
    let text = scalar.text().unwrap_or_default();
    let looks_so = text.as_bytes().get(YEAR_LEN) == Some(&b'-');
    if (looks_so || scalar.tag().is_some())
        && scalar.scalar_type() == Some(Type::Timestamp)
        && !is_date(text)
    {
        let why = || {
            format!(
                "timestamp {} is no date or time that there is",
                quoted(text)
            )
        };
        let advice = "correct it, or put it in quotes if it is text";
        warnings.advise(scalar.span().start, why, advice);
    }
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
