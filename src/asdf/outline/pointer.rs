//! Internal references: `$ref: "#/path/to/node"`, a JSON pointer (RFC 6901) in the fragment of a URI.

use std::collections::HashMap;

use super::Limit;
use crate::asdf::tree::{Children, Node, NodeId, NodeKind, Tree};
use crate::error::percent_decoded;

/// Most references that may lead from one to the next.
pub(crate) const MAX_HOPS: usize = 16;
/// Most steps, and bytes of URIs, that all references of a tree may cost together.
const MAX_SEARCHED: usize = 1 << 26;

/// The URI of a reference: a mapping whose one key is `$ref`.
pub(crate) fn reference(node: Node<'_>) -> Option<&str> {
    if node.kind() != NodeKind::Mapping || node.len() != 1 {
        return None;
    }
    let (key, uri) = node.entries().next()?;
    uri.text().filter(|_| key.is_key("$ref"))
}

/// Resolves references, each text once.
pub(crate) struct Pointers<'t> {
    tree: &'t Tree,
    known: HashMap<String, Result<Option<NodeId>, Limit>>,
    children: Children<'t>,
    left: usize,
}

impl<'t> Pointers<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            known: HashMap::new(),
            children: Children::new(tree),
            left: MAX_SEARCHED,
        }
    }

    /// The node that a URI refers to, through aliases and further references; `None` if it is in another file or does not exist.
    ///
    /// # Errors
    /// The limit that the search has reached.
    pub(crate) fn resolve(&mut self, uri: &str) -> Result<Option<Node<'t>>, Limit> {
        let known = self.known.get(uri).copied();
        let found = known.unwrap_or_else(|| {
            let found = self.follow(uri);
            self.known.insert(uri.into(), found);
            found
        });
        Ok(found?.and_then(|id| self.tree.node(id)))
    }

    /// Follows a pointer from the top of the tree, and each reference that it leads through.
    fn follow(&mut self, uri: &str) -> Result<Option<NodeId>, Limit> {
        let mut uri = uri.to_owned();
        // references in a circle end here, too
        for _ in 0..=MAX_HOPS {
            self.charge(uri.len())?;
            let pointer = uri.strip_prefix('#');
            let pointer = pointer.and_then(|text| percent_decoded(text).ok());
            let pointer = pointer.and_then(|bytes| String::from_utf8(bytes).ok());
            let (Some(pointer), Some(mut node)) = (pointer, self.tree.root()) else {
                return Ok(None);
            };
            let mut steps = pointer.split('/');
            // RFC 6901, section 3: a pointer is empty or begins with a slash
            if steps.next() != Some("") {
                return Ok(None);
            }
            let mut through = None;
            for step in steps.by_ref() {
                // RFC 6901, section 4: `~1` first, so that `~01` becomes `~1` and no slash
                match self.step(node, &step.replace("~1", "/").replace("~0", "~"))? {
                    Some(next) => node = next,
                    None => return Ok(None),
                }
                through = reference(node);
                if through.is_some() {
                    break;
                }
            }
            let Some(next) = through else {
                return Ok(Some(node.id()));
            };
            // a reference on the way stands for the path up to it; the rest goes on from its target
            let rest: Vec<&str> = steps.collect();
            uri = if rest.is_empty() {
                next.into()
            } else {
                format!("{next}/{}", rest.join("/"))
            };
        }
        Err(Limit::Hops)
    }

    /// Takes `cost` from what all references together may cost; an error if less is left.
    fn charge(&mut self, cost: usize) -> Result<(), Limit> {
        let left = self.left.checked_sub(cost);
        self.left = left.ok_or(Limit::References)?;
        Ok(())
    }

    /// The child of a node by one token of a pointer (RFC 6901, section 4): an item of a list by its index, or a value by its key.
    fn step(&mut self, node: Node<'t>, step: &str) -> Result<Option<Node<'t>>, Limit> {
        self.charge(1)?;
        let found = if node.kind() == NodeKind::Sequence {
            index(step).and_then(|index| self.children.item(node, index))
        } else {
            self.children.value(node, step)
        };
        Ok(found.map(Node::follow))
    }
}

/// An index as RFC 6901 has it: digits, without a sign or a zero in front.
fn index(step: &str) -> Option<usize> {
    let plain = step.bytes().all(|byte| byte.is_ascii_digit());
    let short = step == "0" || !step.starts_with('0');
    step.parse().ok().filter(|_| plain && short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(body: &str) -> Tree {
        Tree::parse(format!("---\n{body}\n...\n")).unwrap()
    }

    #[test]
    fn an_index_has_neither_sign_nor_leading_zeros() {
        // RFC 6901 §4.
        let tree = tree("l: [a, b]\nm: {'00': c, '+0': d}");
        let mut pointers = Pointers::new(&tree);
        for (uri, want) in [
            ("#/l/0", Some("a")),
            ("#/l/1", Some("b")),
            ("#/l/2", None),
            ("#/l/00", None),
            ("#/l/01", None),
            ("#/l/+0", None),
            ("#/l/-0", None),
            ("#/l/", None),
            ("#/l/99999999999999999999999", None),
            ("#%2fl/%31", Some("b")),
            ("#/%+c/1", None),
            ("#/m/00", Some("c")),
            ("#/m/+0", Some("d")),
        ] {
            let found = pointers.resolve(uri).unwrap();
            assert_eq!(found.map(|node| node.text().unwrap()), want, "{uri}");
        }
    }

    #[test]
    fn references_into_many_children_reach_no_limit() {
        let entries: Vec<_> = (0..100_000).map(|i| format!("k{i}: x")).collect();
        let items = "x, ".repeat(100_000);
        let tree = tree(&format!("l: [{items}]\nm: {{{}}}", entries.join(", ")));
        let mut pointers = Pointers::new(&tree);
        for i in 0..100_000 {
            for uri in [format!("#/l/{i}"), format!("#/m/k{i}")] {
                assert!(pointers.resolve(&uri).unwrap().is_some(), "{uri}");
            }
        }
    }
}
