//! Internal references: `$ref: "#/path/to/node"`, a JSON pointer (RFC 6901) in the fragment of a URI.

use std::collections::HashMap;

use crate::asdf::tree::{Kind, Node, NodeId, Tree};

/// Most references that may lead from one to the next.
const MAX_HOPS: usize = 16;
/// Most children and bytes that all references of a tree together are searched through.
const MAX_SEARCHED: usize = 1 << 26;

/// The URI of a reference: a mapping whose one key is `$ref`.
pub(in crate::asdf) fn reference(node: Node<'_>) -> Option<&str> {
    if node.kind() != Kind::Mapping || node.len() != 1 {
        return None;
    }
    let (key, uri) = node.entries().next()?;
    uri.text().filter(|_| key.is_key("$ref"))
}

/// Resolves references, each text once.
pub(in crate::asdf) struct Pointers<'t> {
    tree: &'t Tree,
    known: HashMap<String, Option<NodeId>>,
    left: usize,
}

impl<'t> Pointers<'t> {
    pub(in crate::asdf) fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            known: HashMap::new(),
            left: MAX_SEARCHED,
        }
    }

    /// The node that a URI refers to, through aliases and further references; none in other files.
    pub(in crate::asdf) fn resolve(&mut self, uri: &str) -> Option<Node<'t>> {
        if let Some(&known) = self.known.get(uri) {
            return self.tree.node(known?);
        }
        let found = self.follow(uri);
        self.known.insert(uri.into(), found.map(Node::id));
        found
    }

    fn follow(&mut self, uri: &str) -> Option<Node<'t>> {
        let mut uri = uri.to_owned();
        for _ in 0..MAX_HOPS {
            self.left = self.left.checked_sub(uri.len())?;
            let mut node = self.tree.root()?;
            let pointer = decode_uri(uri.strip_prefix('#')?)?;
            let mut steps = pointer.split('/');
            if steps.next() != Some("") {
                return None;
            }
            let mut through = None;
            for step in steps.by_ref() {
                node = self.step(node, &step.replace("~1", "/").replace("~0", "~"))?;
                through = reference(node);
                if through.is_some() {
                    break;
                }
            }
            let Some(next) = through else {
                return Some(node);
            };
            let rest: Vec<&str> = steps.collect();
            uri = if rest.is_empty() {
                next.into()
            } else {
                format!("{next}/{}", rest.join("/"))
            };
        }
        None
    }

    fn step(&mut self, node: Node<'t>, step: &str) -> Option<Node<'t>> {
        self.left = self.left.checked_sub(node.len().saturating_add(1))?;
        if let Ok(index) = step.parse()
            && let Some(item) = node.items().nth(index)
        {
            return Some(item.follow());
        }
        let own = node.entries().filter(|(key, _)| key.text() == Some(step));
        own.last().map(|(_, value)| value.follow())
    }
}

/// Replaces `%XX` in a URI by the bytes they stand for.
fn decode_uri(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        rest = after.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}
