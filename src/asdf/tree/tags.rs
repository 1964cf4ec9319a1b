//! Finds nodes of another kind than YAML's own tags and `<<` ask for. The Python library opens no file with one.
//!
//! As in PyYAML, an unknown tag is taken as it is. The values of `<<`, and the items of `!!omap` and `!!pairs`, may have any tag:
//! only their contents count.

use super::subset::{Warnings, quoted};
use super::{Node, NodeKind, Tree};
use crate::asdf::scalar::{TAG_PREFIX, Type};

/// The tag of bytes in base64.
pub(super) const BINARY: &str = "tag:yaml.org,2002:binary";

/// The tag of a mapping that keeps its order, as a list of mappings of one key.
pub(super) const ORDERED: &str = "tag:yaml.org,2002:omap";

const CORRECT: &str = "correct it, or its tag";

/// Looks for nodes of another kind than their tag is for.
pub(super) fn check(tree: &Tree, warnings: &mut Warnings) {
    // few trees have such a tag: in the others no node is looked at
    if !tree.tags.iter().any(|tag| tag.starts_with(TAG_PREFIX)) {
        return;
    }
    if let Some(root) = tree.root() {
        check_kind(root, warnings);
    }
    for parent in tree.all() {
        match parent.kind() {
            NodeKind::Mapping => {
                for (key, value) in parent.entries() {
                    check_kind(key, warnings);
                    if !key.is_merge() {
                        check_kind(value, warnings);
                    }
                }
            }
            NodeKind::Sequence if !is_of_pairs(parent) => {
                parent.items().for_each(|item| check_kind(item, warnings));
            }
            NodeKind::Sequence | NodeKind::Scalar | NodeKind::Alias => {}
        }
    }
}

/// The name of one of YAML's own tags.
fn own_tag(node: Node<'_>) -> Option<&str> {
    node.tag()?.strip_prefix(TAG_PREFIX)
}

fn is_of_pairs(node: Node<'_>) -> bool {
    matches!(own_tag(node), Some("omap" | "pairs"))
}

fn check_kind(node: Node<'_>, warnings: &mut Warnings) {
    let Some(name) = own_tag(node) else { return };
    let kind = match name {
        "null" | "bool" | "int" | "float" | "binary" | "timestamp" | "str" => NodeKind::Scalar,
        "seq" | "omap" | "pairs" => NodeKind::Sequence,
        "map" | "set" => NodeKind::Mapping,
        _ => return,
    };
    let found = node.follow().kind();
    if found != kind {
        let why = || {
            format!(
                "a {} with the tag !!{name}, which is for a {}",
                called(found),
                called(kind)
            )
        };
        warnings.advise(node.span().start, why, CORRECT);
    }
    if found == NodeKind::Sequence && is_of_pairs(node) {
        let faulty = node.items().find(|item| !is_pair(*item, name));
        if let Some(item) = faulty {
            let why = || format!("an item of !!{name} that is not a mapping of one key");
            warnings.advise(item.span().start, why, CORRECT);
        }
    }
}

fn called(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Scalar => "scalar",
        NodeKind::Sequence => "sequence",
        NodeKind::Mapping => "mapping",
        NodeKind::Alias => "alias",
    }
}

/// Whether an item has one key, in `!!omap` one that names something: `<<` and `=` have no meaning there.
fn is_pair(item: Node<'_>, list: &str) -> bool {
    let mut entries = item.entries();
    let (Some((key, _)), None) = (entries.next(), entries.next()) else {
        // an alias within its target has its own warning
        return item.is_recursive();
    };
    list == "pairs" || !matches!(key.scalar_type(), Some(Type::Merge | Type::Default))
}

/// Checks the value of a `<<`: a mapping, or a list of them.
pub(super) fn check_merged(value: Node<'_>, warnings: &mut Warnings) {
    // an alias within its target has its own warning
    let is_mapping =
        |node: &Node<'_>| node.follow().kind() == NodeKind::Mapping || node.is_recursive();
    let is_list = value.follow().kind() == NodeKind::Sequence;
    let faulty = if is_list {
        value.items().find(|item| !is_mapping(item))
    } else {
        Some(value).filter(|value| !is_mapping(value))
    };
    if let Some(faulty) = faulty {
        let why = || {
            let what = faulty.text().map_or_else(|| "a list".into(), quoted);
            format!("<< merges {what}, where a mapping or a list of mappings is needed")
        };
        warnings.advise(
            faulty.span().start,
            why,
            "name a mapping, or put << in quotes if it is no merge",
        );
    }
}

/// Whether Python's `binascii` decodes the text. It passes over other characters, and a padding that fits ends the data.
pub(super) fn is_base64(text: &str) -> bool {
    let (mut digits, mut pads) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            // padding counts only behind two or three digits of a group of four
            b'=' if digits % 4 >= 2 => {
                pads = pads.saturating_add(1);
                if (digits % 4).saturating_add(pads) >= 4 {
                    // what follows is not decoded, but must be ASCII all the same
                    return text.is_ascii();
                }
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => {
                (digits, pads) = (digits.saturating_add(1), 0);
            }
            _ => {}
        }
    }
    text.is_ascii() && digits.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is warned of in a value, which may merge `*m`, `*l`, `*s` and `*x`.
    fn warnings(value: &str) -> String {
        let anchors = "m: &m {k: 1}\nl: &l [*m, {j: 2}]\ns: &s [1]\nx: &x 1";
        let tree = Tree::parse(format!("{anchors}\na: {value}\n...\n")).unwrap();
        let messages = tree.warnings().list().iter().map(|w| w.message.as_str());
        messages.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn nodes_that_are_not_for_their_tag_are_warned_of() {
        // Verdicts of Python's asdf; tests/yaml_oracle.py has many more.
        for (value, message) in [
            (
                "!!str {a: 1}",
                "a mapping with the tag !!str, which is for a scalar",
            ),
            (
                "!!null []",
                "a sequence with the tag !!null, which is for a scalar",
            ),
            (
                "!!binary [1]",
                "a sequence with the tag !!binary, which is for a scalar",
            ),
            (
                "!!seq",
                "a scalar with the tag !!seq, which is for a sequence",
            ),
            (
                "!!map [1]",
                "a sequence with the tag !!map, which is for a mapping",
            ),
            (
                "[!!set x]",
                "a scalar with the tag !!set, which is for a mapping",
            ),
            (
                "!!omap {a: 1}",
                "a mapping with the tag !!omap, which is for a sequence",
            ),
            (
                "!!omap [{a: 1}, {b: 1, c: 2}]",
                "an item of !!omap that is not a mapping of one key",
            ),
            (
                "!!omap [{<<: *m}]",
                "an item of !!omap that is not a mapping of one key",
            ),
            (
                "!!pairs [*s]",
                "an item of !!pairs that is not a mapping of one key",
            ),
            (
                "[!!omap [&i !!omap {a: 1}], *i]",
                "a mapping with the tag !!omap, which is for a sequence",
            ),
            ("!!omap [!!omap {a: 1}, *m]", ""),
            ("!!pairs [{<<: *m}]", ""),
            (
                "[!!seq [], !!map {}, !!set {a, b}, !!omap [], !!null x, !!str '']",
                "",
            ),
            ("{<<: !!str {a: 1}}", ""),
            (
                "[!!foo {}, !!python/tuple x, !!merge [], !foo {}, ! []]",
                "",
            ),
        ] {
            assert_eq!(warnings(value), message, "{value}");
        }
    }

    #[test]
    fn only_mappings_are_merged() {
        let merges =
            |what| format!("<< merges {what}, where a mapping or a list of mappings is needed");
        for (value, message) in [
            ("{<<: 3}", merges("'3'")),
            ("{<<: ~}", merges("'~'")),
            ("{<<: [1]}", merges("'1'")),
            ("{<<: *x}", merges("'1'")),
            ("{<<: *s}", merges("'1'")),
            ("{<<: [*m, *l]}", merges("a list")),
            ("{!!merge x: 3}", merges("'3'")),
            ("{<<: {<<: 3}}", merges("'3'")),
            ("!foo {<<: *m, <<: 3}", merges("'3'")),
            ("{<<: *m}", String::new()),
            ("{<<: *l}", String::new()),
            ("{<<: [*m, {}], !!merge x: []}", String::new()),
            ("{'<<': 3}", String::new()),
            ("[<<, !!merge x]", String::new()),
        ] {
            assert_eq!(warnings(value), message, "{value}");
        }
        let recursive = "an alias within what it stands for";
        assert_eq!(warnings("&r {<<: *r}"), recursive);
        assert_eq!(warnings("&r {b: {<<: [*r]}}"), recursive);
    }

    #[test]
    fn base64_is_what_python_decodes() {
        // Verdicts of base64.decodebytes.
        for good in [
            "", "aGk=", "aGk==", "aG\nk=", "aG*k=", "aGk=a", "=", "====", "aa==", "aa=a=", "aa=aa",
            "a=a==", "aa=*=", "=aGk=", "aaaa=", "-_",
        ] {
            assert!(is_base64(good), "{good:?}");
        }
        for bad in [
            "a", "aa", "aGk", "a===", "aa=", "aa=a", "a=a=", "aaaaa=", "é", "aGk=é",
        ] {
            assert!(!is_base64(bad), "{bad:?}");
        }
    }
}
