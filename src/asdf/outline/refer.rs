//! References: a `$ref` within the tree becomes a link, one into another file is recorded.

use super::{Limit, TreeWalk, What};
use crate::asdf::decl::is_array;
use crate::asdf::tree::{Component, Node, NodeKind};

/// Bytes of a repeated URI that cost as much as a node.
const REPEATED_UNIT: usize = 64;

impl<'t> TreeWalk<'t> {
    /// Whether a reference into another file may be recorded. Its text has a cost where aliases repeat it.
    fn may_repeat(&mut self, node: Node<'t>, uri: &str) -> bool {
        let (key, value) = (node.entries().next()).unzip();
        // a reference that the text spells out has paid with its own bytes
        let own = [Some(node), key, value];
        let own = own
            .iter()
            .flatten()
            .all(|node| node.kind() != NodeKind::Alias);
        let cost = (uri.len() / REPEATED_UNIT).saturating_add(1);
        let may = own || self.outline.allowance.take(cost);
        if !may {
            self.outline.note_limit(Limit::Repeated, node.id());
        }
        may
    }

    /// Links to the target of an internal reference; one into another file is only noted.
    pub(super) fn refer(&mut self, component: Component, node: Node<'t>, uri: &str) {
        if !uri.is_empty() && !uri.starts_with('#') {
            if self.may_repeat(node, uri) {
                self.add(component, node, What::Elsewhere);
            }
            return;
        }
        let target = match self.pointers.resolve(uri) {
            Ok(Some(target)) => target,
            Ok(None) => return,
            Err(limit) => return self.outline.note_limit(limit, node.id()),
        };
        // The target may stand in front of the reference, around it or behind it. A link to what
        // is around would close a circle; what is behind is linked when all places are known.
        let complete = target.behind() <= node.id();
        let around = target.id() <= node.id() && !complete;
        if complete {
            if let Some(to) = self.outline.find(target.id()) {
                self.link(component, node, to);
            }
        } else if !around && is_array(target) {
            let link = self.add(component, node, What::Nothing);
            self.pending.extend(link.map(|link| (link, target.id())));
        }
    }
}
