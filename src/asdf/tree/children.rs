//! Looks up items by index and values by key, time and again in the same collections.

use std::collections::HashMap;

use super::{Node, NodeId, Tree};

/// Most children of a collection that is searched each time. A larger one is gone through once, and its children are kept.
const FEW: usize = 32;

/// The children of the collections of one tree. Finding one takes time that does not grow with their number.
pub(in crate::asdf) struct Children<'t> {
    tree: &'t Tree,
    items: HashMap<NodeId, Vec<NodeId>>,
    values: HashMap<NodeId, HashMap<&'t str, NodeId>>,
}

impl<'t> Children<'t> {
    /// A look-up that has kept nothing yet.
    pub(in crate::asdf) fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            items: HashMap::new(),
            values: HashMap::new(),
        }
    }

    /// An item of a sequence, as it stands there.
    pub(in crate::asdf) fn item(&mut self, sequence: Node<'t>, index: usize) -> Option<Node<'t>> {
        let sequence = sequence.follow();
        if sequence.len() <= FEW {
            return sequence.items().nth(index);
        }
        let items = self.items.entry(sequence.id());
        let items = items.or_insert_with(|| sequence.items().map(Node::id).collect());
        self.tree.node(*items.get(index)?)
    }

    /// The value, as it stands there, of a mapping's own last key with that text; nothing that `<<` merges into it.
    pub(in crate::asdf) fn value(&mut self, mapping: Node<'t>, key: &str) -> Option<Node<'t>> {
        let mapping = mapping.follow();
        let texts = || {
            let entries = mapping.entries();
            entries.filter_map(|(key, value)| Some((key.text()?, value.id())))
        };
        let found = if mapping.len() <= FEW {
            texts().filter(|(text, _)| *text == key).last()?.1
        } else {
            let values = self.values.entry(mapping.id());
            // of equal keys `collect` keeps the last, like the search above
            *values.or_insert_with(|| texts().collect()).get(key)?
        };
        self.tree.node(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_children_are_found_like_few() {
        for count in [1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            let items: Vec<_> = (0..count).map(|i| format!("i{i}")).collect();
            let mut entries: Vec<_> = (0..count).map(|i| format!("k{i}: v{i}")).collect();
            entries.insert(0, "k0: a".to_owned());
            let (items, entries) = (items.join(", "), entries.join(", "));
            let text = format!("---\nl: [{items}]\nm: &m {{{entries}}}\nn: *m\n...\n");
            let tree = Tree::parse(text).unwrap();
            let mut children = Children::new(&tree);
            let root = tree.root().unwrap();
            let list = children.value(root, "l").unwrap();
            for place in ["m", "n"] {
                let map = children.value(root, place).unwrap();
                for i in 0..count {
                    let value = children.value(map, &format!("k{i}")).and_then(Node::text);
                    assert_eq!(value, Some(format!("v{i}").as_str()));
                }
                assert!(children.value(map, &format!("k{count}")).is_none());
                assert!(children.item(map, 0).is_none());
            }
            for i in 0..count {
                let item = children.item(list, i).and_then(Node::text);
                assert_eq!(item, Some(format!("i{i}").as_str()));
            }
            assert!(children.item(list, count).is_none());
            assert!(children.value(list, "i0").is_none());
        }
    }
}
