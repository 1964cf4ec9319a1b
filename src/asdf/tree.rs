//! The tree: its exact text, and the nodes that the text describes.
//!
//! Nodes lie in one array in document order, 20 bytes each, and point into the text; a value is copied only where it differs
//! from its spelling. Aliases are leaves that know their target and are never expanded. Knows YAML and the subset of it that
//! the standard allows; what an array is, is `decl`'s.

mod children;
mod compose;
mod node;
mod subset;
mod tags;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::asdf::lines::Lines;
use crate::asdf::yaml::{self, YamlFault};
use crate::error::{Error, Place, Result};
use crate::source::PooledBuf;

pub(in crate::asdf) use children::Children;
pub(in crate::asdf) use node::Parts;
pub use node::{Component, Node};
pub(in crate::asdf) use subset::quoted;
pub use subset::{Warning, Warnings};

/// Largest text, in bytes.
pub const MAX_TEXT: usize = 256 << 20;
/// Most levels of collections in collections.
pub const MAX_DEPTH: usize = 512;
/// Most levels that Python's asdf reads, whose recursion ends at some 247.
pub(in crate::asdf) const MAX_DEPTH_OF_PYTHON: usize = 240;
/// Most levels of collections in flow style: parsing them costs their depth for each token.
pub const MAX_FLOW_DEPTH: usize = 128;
/// Most nodes.
pub const MAX_NODES: u32 = 1 << 24;
/// Most nodes if every alias were replaced by what it stands for, as some readers do; long texts count as several.
pub const MAX_WEIGHT: u64 = 1 << 26;

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeKind {
    /// Text.
    #[default]
    Scalar,
    /// Items in order.
    Sequence,
    /// Keys and values in order.
    Mapping,
    /// `*name`: stands for another node.
    Alias,
}

/// A node's number in document order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The number of the top node.
    pub const FIRST: Self = Self(0);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Raw {
    /// First byte; of the tag or anchor, if there is one.
    start: u32,
    /// The byte behind it.
    end: u32,
    /// A scalar's value in the text or pool; a collection's next node that is not in it; an alias's target.
    at: u32,
    /// A scalar's bytes; a collection's children.
    len: u32,
    /// Number of its tag, from 1; 0 for none.
    tag: u16,
    kind: NodeKind,
    flags: u8,
}

impl Raw {
    /// The scalar's type shows in its text.
    const PLAIN: u8 = 1;
    /// The scalar's value is in the pool.
    const POOLED: u8 = 2;
    /// The collection's end has not come yet.
    const OPEN: u8 = 4;
    /// The alias stands for a node that it is part of.
    const RECURSIVE: u8 = 8;
    /// A tag, an alias or a text `$ref` is in the collection.
    const LEADING: u8 = 16;
}

/// A parsed tree with its text.
#[derive(Debug)]
pub struct Tree {
    /// Invariant: UTF-8.
    bytes: Arc<Vec<u8>>,
    nodes: PooledBuf<Raw>,
    /// Resolved tags; a node's tag is its place here plus one.
    tags: Vec<Box<str>>,
    /// Values that differ from their spelling in the text, one behind the other.
    pool: String,
    lines: OnceLock<Lines>,
    /// What only the events of the text showed.
    noted: Warnings,
    /// These with what the nodes show, which is looked for on first use: a listing needs none of it.
    warnings: OnceLock<Warnings>,
}

impl Tree {
    /// Parses the text head of a file: from its first byte to the end of the `...` line.
    ///
    /// # Errors
    /// `Corrupt` with line and column if it is not one document of valid YAML 1.1 in UTF-8 within the limits.
    pub fn parse(text: impl Into<Vec<u8>>) -> Result<Self> {
        Self::of(Arc::new(text.into()))
    }

    /// As [`Tree::parse`], for a text that is shared.
    ///
    /// # Errors
    /// As [`Tree::parse`].
    pub fn of(bytes: Arc<Vec<u8>>) -> Result<Self> {
        let shared = Arc::clone(&bytes);
        let mut tree = Self {
            bytes,
            nodes: PooledBuf::default(),
            tags: Vec::new(),
            pool: String::new(),
            lines: OnceLock::new(),
            noted: Warnings::default(),
            warnings: OnceLock::new(),
        };
        let text = yaml::decode(&shared);
        let noted = text.and_then(|text| compose::compose(&mut tree, text));
        tree.noted = noted.map_err(|fault| report(&fault, &shared))?;
        Ok(tree)
    }

    /// The text, byte for byte. Looks through all of it: not to be asked for each node.
    #[must_use]
    pub fn text(&self) -> &str {
        // Never the default: the text was decoded when it was parsed.
        str::from_utf8(&self.bytes).unwrap_or_default()
    }

    /// The text's bytes.
    #[must_use]
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }

    /// A part of the text, or of the values that differ from their spelling.
    fn part(&self, range: Range<usize>, pooled: bool) -> Option<&str> {
        if pooled {
            return self.pool.get(range);
        }
        str::from_utf8(self.bytes.get(range)?).ok()
    }

    /// The top node; none if no document begins in the text.
    #[must_use]
    pub fn root(&self) -> Option<Node<'_>> {
        self.node(NodeId::FIRST)
    }

    /// The node of that number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<Node<'_>> {
        Node::new(self, id)
    }

    /// The text of a key; `None` for an index, and for a key that is a collection.
    pub(in crate::asdf) fn key(&self, component: Component) -> Option<&str> {
        match component {
            Component::Key(key) => self.node(key)?.text(),
            Component::Top | Component::Index(_) => None,
        }
    }

    /// Whether a part has no name, because its key is a collection.
    pub(in crate::asdf) fn is_nameless(&self, component: Component) -> bool {
        matches!(component, Component::Key(_)) && self.key(component).is_none()
    }

    /// The name of a part, as the tree spells it. A key that is a collection is called by its text.
    pub(in crate::asdf) fn called(&self, component: Component) -> Cow<'_, str> {
        match component {
            Component::Index(index) => index.to_string().into(),
            Component::Key(key) if self.is_nameless(component) => {
                let key = self
                    .node(key)
                    .map(Node::span)
                    .and_then(|span| self.part(span, false));
                key.unwrap_or_default().into()
            }
            Component::Top | Component::Key(_) => self.key(component).unwrap_or_default().into(),
        }
    }

    /// All nodes, in document order.
    pub(in crate::asdf) fn all(&self) -> impl Iterator<Item = Node<'_>> {
        (0..).map_while(|id| self.node(NodeId(id)))
    }

    /// How many nodes have a tag of that kind themselves.
    pub(in crate::asdf) fn count_tagged(&self, such: impl Fn(&str) -> bool) -> usize {
        // asked once for each tag: a tree may have millions of nodes, but few tags
        let such: Vec<bool> = self.tags.iter().map(|tag| such(tag)).collect();
        let has_tag = |raw: &&Raw| {
            let number = usize::from(raw.tag).checked_sub(1);
            number.and_then(|number| such.get(number)) == Some(&true)
        };
        self.nodes.iter().filter(has_tag).count()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What the standard's YAML subset does not allow, but readers put up with.
    #[must_use]
    pub fn warnings(&self) -> &Warnings {
        let check = || subset::check(self, self.noted.clone());
        self.warnings.get_or_init(check)
    }

    /// Line and column of a byte of the text.
    #[must_use]
    pub fn place(&self, byte: usize) -> Place {
        // built with the first fault: most trees have none, and a text has up to 256 MiB
        let lines = self.lines.get_or_init(|| Lines::new(&self.bytes));
        let (line, column) = lines.find(&self.bytes, byte);
        Place::Line { line, column }
    }
}

/// A fault of the text as an error that people can find.
fn report(fault: &YamlFault, text: &[u8]) -> Error {
    // the fault may be that this is not UTF-8; columns count characters all the same
    let text = String::from_utf8_lossy(text.get(..fault.byte).unwrap_or(text));
    let text = text.as_bytes();
    let lines = Lines::new(text);
    let (line, column) = lines.find(text, text.len());
    let mut why = fault.why.clone();
    if let Some((context, began)) = &fault.context {
        let (began, _) = lines.find(text, *began);
        why = format!("{why} {context} that began in line {began}");
    }
    Error::corrupt(Place::Line { line, column }, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::scalar::Value;
    use proptest::prelude::*;

    const HEAD: &str = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";

    fn tree(body: &str) -> Tree {
        Tree::parse(format!("{HEAD}{body}\n...\n")).unwrap()
    }

    fn error(text: impl Into<Vec<u8>>) -> String {
        Tree::parse(text).unwrap_err().to_string()
    }

    fn get<'t>(tree: &'t Tree, key: &str) -> Node<'t> {
        tree.root().unwrap().get(key).unwrap()
    }

    #[test]
    fn tags_are_resolved_and_text_comes_without_quotes_and_folds() {
        let tree = tree(
            "a: !x/y-1.0 'it''s'\nb: !<tag:o,1:z> \"\\u00e9\\\n  t\\xe9\"\nc: |\n  two\n  lines\nd: ! '12'\ne: '12'",
        );
        assert_eq!(get(&tree, "a").tag(), Some("tag:stsci.edu:asdf/x/y-1.0"));
        assert_eq!(get(&tree, "a").text(), Some("it's"));
        assert_eq!(get(&tree, "b").tag(), Some("tag:o,1:z"));
        assert_eq!(get(&tree, "b").text(), Some("été"));
        assert_eq!(get(&tree, "c").text(), Some("two\nlines\n"));
        assert_eq!(
            get(&tree, "d").value(),
            Some(Value::Int(12)),
            "the non-specific tag makes it plain"
        );
        assert_eq!(get(&tree, "e").value(), Some(Value::Str("12")));
        let root = tree.root().unwrap();
        assert_eq!(
            (root.tag(), root.len()),
            (Some("tag:stsci.edu:asdf/core/asdf-1.1.0"), 5)
        );
    }

    #[test]
    fn spans_cover_tag_and_anchor_and_end_with_the_last_child() {
        let tree = tree("a: !t &x\n  b: [1, 2]   # comment\n\nc: *x");
        let node = get(&tree, "a");
        assert_eq!(&tree.text()[node.span()], "!t &x\n  b: [1, 2]");
        assert_eq!(node.place(), Place::Line { line: 5, column: 4 });
        let (_, alias) = tree.root().unwrap().entries().nth(1).unwrap();
        assert_eq!(&tree.text()[alias.span()], "*x");
        assert_eq!(
            (alias.kind(), alias.follow().id()),
            (NodeKind::Alias, node.id())
        );
        assert_eq!(
            alias
                .get("b")
                .unwrap()
                .items()
                .map(|n| n.text().unwrap())
                .collect::<Vec<_>>(),
            ["1", "2"]
        );
    }

    #[test]
    fn own_keys_win_over_merged_ones_and_the_last_over_the_first() {
        // Expected values from PyYAML 6.0.3.
        let tree = tree(
            "A: &A {k: A, a: 1}\nB: &B {k: B, b: 1, <<: *A}\nlist: {<<: [*A, *B], own: 1}\ntwo: {<<: *A, <<: *B}\nown: {k: 1, k: 2, <<: *A}",
        );
        let text = |map: &str, key: &str| get(&tree, map).get(key).map(|n| n.text().unwrap());
        assert_eq!(text("list", "k"), Some("A"));
        assert_eq!(text("list", "b"), Some("1"));
        assert_eq!(text("two", "k"), Some("B"));
        assert_eq!(text("own", "k"), Some("2"));
        assert_eq!(text("B", "a"), Some("1"));
        assert_eq!(text("own", "none"), None);
        // its own three entries, one of which is the merge, and the two of A
        assert!(get(&tree, "B").is_within(5) && !get(&tree, "B").is_within(4));
    }

    #[test]
    fn mappings_that_merge_each_other_again_and_again_are_given_up() {
        let link = |i: u32| format!("m{i}: &m{i} {{<<: [*m{0}, *m{0}]}}\n", i - 1);
        let chain: Vec<String> = (1..40).map(link).collect();
        let body = format!("m0: &m0 {{x: 1}}\n{}", chain.concat());
        // So many expanded nodes are refused; a cheaper chain is cut by the look-up's own budget.
        assert!(
            error(format!("{HEAD}{body}...\n")).contains("aliases that stand for far too much")
        );
        let tree = tree(&body[..body.find("m20").unwrap()]);
        assert!(get(&tree, "m19").get("none").is_none());
        assert!(!get(&tree, "m19").is_within(1000));
    }

    #[test]
    fn an_alias_within_its_target_is_a_leaf() {
        let tree = tree("loop: &l\n  self: *l\n  x: 1\n  <<: *l");
        let alias = get(&tree, "loop").entries().next().unwrap().1;
        assert!(alias.is_recursive() && alias.follow().kind() == NodeKind::Alias);
        assert_eq!(
            (alias.len(), alias.text(), alias.get("x").is_none()),
            (0, None, true)
        );
        assert!(get(&tree, "loop").get("none").is_none());
    }

    #[test]
    fn what_was_read_before_libyaml_takes_over_is_forgotten() {
        let tree = tree("a: !t &x [1, 'it''s']\nb: *x\nc: |\n  end");
        assert_eq!((tree.len(), tree.tags.len()), (9, 2));
        assert_eq!(tree.pool, "it's");
        assert_eq!(get(&tree, "b").tag(), Some("tag:stsci.edu:asdf/t"));
    }

    #[test]
    fn a_collection_leads_somewhere_if_something_in_it_does() {
        let tree = tree(
            "a: &a [1, {k: [x, '!t']}]\nb: !t []\nc: [[{k: !t x}]]\nd: {k: [*a]}\ne: [{'$ref': x}]\nf: {k: {l: {}}}",
        );
        let keys = ["a", "b", "c", "d", "e", "f"];
        let leads = keys.map(|key| !get(&tree, key).leads_nowhere());
        assert_eq!(leads, [false, false, true, true, true, false]);
        assert!(!tree.root().unwrap().leads_nowhere());
    }

    #[test]
    fn errors_say_line_column_and_cause() {
        assert_eq!(
            error(format!("{HEAD}a: [1, 2\nb: }}\n")),
            "line 6, column 2: did not find expected ',' or ']' while parsing a flow sequence that began in line 5"
        );
        assert_eq!(
            error(format!("{HEAD}é: *x\n")),
            "line 5, column 4: alias *x without its anchor before it"
        );
        assert_eq!(
            error(format!("{HEAD}a: &x 1\nb: &x 2\n")),
            "line 6, column 4: anchor &x occurs twice"
        );
        assert_eq!(
            error([HEAD.as_bytes(), b"a: \xff\n"].concat()),
            "line 5, column 4: bytes that are not UTF-8"
        );
        assert_eq!(
            error(format!("{HEAD}a: \u{1}\n")),
            "line 5, column 4: control characters are not allowed"
        );
        assert_eq!(
            error(format!("\u{feff}{HEAD}a: 1\n")),
            "line 1, column 1: byte order mark before the tree"
        );
        assert_eq!(
            error([0xFE, 0xFF, 0, 0x23]),
            "line 1, column 1: UTF-16 text, where the standard wants UTF-8"
        );
        assert!(error("%YAML 2.0\n--- a\n").contains("incompatible YAML document"));
        assert!(
            Tree::parse("%YAML 1.2\n--- a\n").is_ok(),
            "libyaml reads it, so do the others"
        );
    }

    #[test]
    fn there_is_one_document_or_none() {
        assert_eq!(
            error(format!("{HEAD}a: 1\n...\n# fine\n--- b\n")),
            "line 8, column 1: text behind the end of the tree's document"
        );
        assert!(
            Tree::parse("#ASDF 1.0.0\n# no tree\n")
                .unwrap()
                .root()
                .is_none()
        );
        let empty = Tree::parse("#ASDF 1.0.0\n--- \n...\n").unwrap();
        assert_eq!(empty.root().unwrap().value(), Some(Value::Null));
    }

    #[test]
    fn unknown_directives_are_passed_over_with_a_warning() {
        let tree = Tree::parse("%FINF 0.1.0\n%TAG ! tag:x/\n--- !a {b: 1}\n...\n").unwrap();
        assert_eq!(tree.root().unwrap().tag(), Some("tag:x/a"));
        assert!(tree.text().starts_with("%FINF"), "the text is the user's");
        let (place, warning) = tree.warnings().places(&tree).next().unwrap();
        assert_eq!(
            (place, &*warning.message),
            (
                Place::Line { line: 1, column: 1 },
                "unknown directive '%FINF'"
            )
        );
    }

    #[test]
    fn what_the_subset_forbids_is_warned_of() {
        let tree = tree(
            "a: {x: 1, y: 2, x: 3}\n1: i\n0x1: j\n'1': fine\nfalse: k\nFALSE: l\n1.5: f\n~: n\n[1]: s\nlarge: [9223372036854775807, 9223372036854775808, -0x8000000000000001, '9223372036854775808']\nr: &r [*r]",
        );
        let found: Vec<_> = tree
            .warnings()
            .places(&tree)
            .map(|(place, w)| format!("{place}: {}", w.message))
            .collect();
        let key = "where ASDF allows strings, integers and truth values";
        assert_eq!(
            found,
            [
                "line 5, column 17: key 'x' occurs again in its mapping; readers take the last one".into(),
                "line 7, column 1: key '0x1' occurs again in its mapping (true is 1, false is 0); readers take the last one".into(),
                "line 10, column 1: key 'FALSE' occurs again in its mapping (true is 1, false is 0); readers take the last one".into(),
                format!("line 11, column 1: a key of type float, {key}"),
                format!("line 12, column 1: a key of type null, {key}"),
                format!("line 13, column 1: a key that is not a scalar, {key}"),
                "line 14, column 30: integer '9223372036854775808' beyond the range of int64".into(),
                "line 14, column 51: integer '-0x8000000000000001' beyond the range of int64".into(),
                "line 15, column 8: an alias within what it stands for".into(),
            ]
        );
    }

    /// To look for faults of the subset took as long as to parse the text, also for a listing, which tells of none.
    #[test]
    fn what_the_subset_forbids_is_looked_for_when_it_is_asked_for() {
        let tree = tree("a: 1\na: 2\nb: !core/ndarray-1.0.0 [1]");
        let outline = crate::asdf::outline::Outline::new(&tree);
        assert_eq!(outline.places().len(), 2);
        assert!(tree.warnings.get().is_none());
        assert_eq!(tree.warnings().list().len(), 1);
    }

    #[test]
    fn keys_that_occur_again_are_found_among_many_as_among_few() {
        for others in [0, 100] {
            let others: Vec<_> = (0..others).map(|i| format!("k{i}: 0")).collect();
            let body = format!("a: 1\nb: 1\n{}\nb: 2\n'a': 2\nb: 3\n", others.join("\n"));
            let tree = tree(&body);
            let found = tree.warnings().list().iter();
            let keys: Vec<_> = found
                .map(|w| w.message.split(' ').nth(1).unwrap())
                .collect();
            assert_eq!(keys, ["'b'", "'a'", "'b'"]);
        }
    }

    #[test]
    fn limits_end_hostile_texts_early() {
        let nested = |open: &str, n: usize| format!("{HEAD}{}", open.repeat(n));
        assert!(error(nested("[", 20_000)).contains("nested deeper than"));
        assert!(error(nested("- ", 20_000)).contains("nested deeper than"));
        assert!(error("%TAG !a! tag:x\n".repeat(20_000)).contains("bytes of directives"));
        assert!(error("%TAG !a! tag:x\u{85}".repeat(20_000)).contains("bytes of directives"));
        assert!(
            error(format!("%TAG !a! {}\n--- !a!b c\n", "x".repeat(5000)))
                .contains("a tag of 5001 bytes")
        );
        assert!(
            error("--- a\n...\n".to_owned() + &"%TAG !a! tag:x\n".repeat(20_000))
                .contains("behind the end")
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "(--- )?([a-z0-9&*!%|>'\":,?#~é \\-\\[\\]{}\n]|\n  |: |- ){0,60}") {
            if let Ok(tree) = Tree::parse(text) {
                let mut id = NodeId(0);
                while let Some(node) = tree.node(id) {
                    prop_assert!(tree.text().get(node.span()).is_some());
                    prop_assert!(node.behind() > id && node.behind().0 as usize <= tree.len());
                    let children = match node.follow().kind() {
                        NodeKind::Mapping => node.entries().count(),
                        _ => node.items().count(),
                    };
                    prop_assert_eq!(children, node.len());
                    id = id.next();
                }
            }
        }
    }
}
