//! What breaks a rule, and where. Paths are cut: ten thousand faults may lie in the same depth.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::asdf::paths::brief;
use crate::asdf::tree::{Component, Node, Tree};
use crate::error::Place;

/// Bytes of a key that are looked at from its start, and from its end, to tell paths apart.
const MAX_HASHED: usize = 128;

/// What breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The rule: the tag with its version, without the common start of the standard's tags.
    pub rule: &'static str,
    /// Line and column.
    pub place: Place,
    /// Which value, by keys and indices from the top; cut if that is too long for a message.
    pub path: String,
    /// What was found versus allowed.
    pub why: String,
    /// A hash of the path in which all items of a list are alike, and so are keys that only differ in the middle.
    way: u64,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.text())
    }
}

impl Fault {
    /// The fault of the node of `tree` that `steps` lead to.
    pub(super) fn new(
        rule: &'static str,
        tree: &Tree,
        node: Node<'_>,
        steps: impl Iterator<Item = Component> + Clone,
        why: &str,
    ) -> Self {
        let mut way = DefaultHasher::new();
        for step in steps.clone() {
            match step {
                // all items of a list are alike, because an edit
                // that inserts one moves the faults behind it
                Component::Index(_) => usize::MAX.hash(&mut way),
                key => hash_key(tree.key(key).unwrap_or_default(), &mut way),
            }
        }
        let steps: Vec<Cow<'_, str>> = steps.map(|step| tree.called(step)).collect();
        Self {
            rule,
            place: node.place(),
            path: brief(&steps),
            why: why.to_owned(),
            way: way.finish(),
        }
    }

    /// Everything but the place.
    #[must_use]
    pub fn text(&self) -> String {
        let path = self.path.as_str();
        let of = if path.is_empty() { "the tree" } else { path };
        format!("{of}: {} (rule {})", self.why, self.rule)
    }

    /// What it says, whichever items of lists it is about. Of two rules that say the same, the list has one, in another tree perhaps the
    /// other.
    pub(in crate::asdf) fn of_any_item(&self) -> (&str, u64) {
        (&self.why, self.way)
    }
}

/// The faults of a tree, in the order of the text.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The faults, or the first of them.
    pub list: Vec<Fault>,
    /// Whether there may be more faults: there were too many, or merges made the search too long.
    pub cut: bool,
}

/// Adds a key to the hash of a path. Keys that only differ in the middle hash alike.
fn hash_key(key: &str, hasher: &mut DefaultHasher) {
    let bytes = key.as_bytes();
    let end = bytes.len().saturating_sub(MAX_HASHED);
    bytes.len().hash(hasher);
    bytes.get(..MAX_HASHED).unwrap_or(bytes).hash(hasher);
    bytes.get(end..).hash(hasher);
}
