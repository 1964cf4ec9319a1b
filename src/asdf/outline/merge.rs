//! Merges: an array that `<<` brings into a mapping appears there as a link.

use super::{Component, Limit, PlaceId, Walk};
use crate::asdf::tree::Node;

impl<'t> Walk<'t> {
    /// Links to what an alias behind `<<` merges into the mapping around it, unless the mapping has a key of that name.
    pub(super) fn merge(&mut self, alias: Node<'t>) {
        let target = alias.follow();
        let Some(from) = self.outline.find(target.id()) else {
            return;
        };
        let Some(around) = self.stack.iter().rposition(|frame| !frame.merged) else {
            return;
        };
        let mut at = from.index();
        while let Some(&place) = self.outline.places.get(at) {
            if place.node >= target.behind() {
                return;
            }
            if !self.allowance.take(1) {
                self.outline.limits.reached(Limit::Merges, alias.id());
                return;
            }
            let id = PlaceId(u32::try_from(at).unwrap_or(u32::MAX));
            let inside = place.parent == from && id != from;
            if inside && self.is_free(around, place.component) {
                self.link(place.component, alias, id);
            }
            at = at.saturating_add(1);
        }
    }

    /// Whether the mapping at `around` has no key of that name, which it has from now on.
    fn is_free(&mut self, around: usize, component: Component) -> bool {
        let Component::Key(key) = component else {
            return false;
        };
        let Some(text) = self.tree.node(key).and_then(Node::text) else {
            return false;
        };
        let Some(frame) = self.stack.get_mut(around) else {
            return false;
        };
        let node = frame.node;
        let own = frame.own.get_or_insert_with(|| {
            let keys = node.entries().filter(|(key, _)| !key.is_merge());
            keys.filter_map(|(key, _)| key.text()).collect()
        });
        own.insert(text)
    }
}
