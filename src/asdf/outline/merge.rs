//! Merges: an array that `<<` brings into a mapping appears there as a link, or itself if it stands behind the `<<`.
//!
//! A key of the mapping hides a merged key of the same text. A key of an earlier merge hides one of a later merge. Both hide it
//! even if they lead to no array.

use super::{Limit, PlaceId, TreeWalk};
use crate::asdf::tree::{Component, Node, NodeKind};

impl<'t> TreeWalk<'t> {
    /// Links to what an alias behind `<<` merges into the mapping around it.
    pub(super) fn merge(&mut self, alias: Node<'t>) {
        let target = alias.follow();
        if let Some(from) = self.outline.find(target.id()) {
            self.link_merged(alias, from);
        }
        self.note_source(target);
    }

    /// Links to each array or directory in `from` from the mapping that an alias merges it into.
    fn link_merged(&mut self, alias: Node<'t>, from: PlaceId) {
        // the places inside a collection follow its own, up to the first node behind it
        let behind = alias.follow().behind();
        let mut at = from.index();
        while let Some(&place) = self.outline.places.get(at) {
            if place.node >= behind {
                return;
            }
            // aliases of aliases can lead to the same places again and again
            if !self.outline.allowance.take(1) {
                self.outline.note_limit(Limit::Merges, alias.id());
                return;
            }
            let id = PlaceId(u32::try_from(at).unwrap_or(u32::MAX));
            let inside = place.parent == from && id != from;
            if inside && self.may_merge(alias, from, place.component) {
                self.link(place.component, alias, id);
            }
            at = at.saturating_add(1);
        }
    }

    /// Whether a component of `from` is a key that appears in the mapping into which `alias` merges `from`. From then on the key
    /// counts as taken in that mapping.
    fn may_merge(&mut self, alias: Node<'t>, from: PlaceId, component: Component) -> bool {
        let text = self.tree.key(component);
        // names of columns are added by `column`, and are no keys that YAML would merge
        let Some(text) = text.filter(|text| !self.columns.contains(&(from, text))) else {
            return false;
        };
        let Some(into) = self.mapping() else {
            return false;
        };
        // asked before the key is added below, which would hide the key from itself
        let hidden = self.is_taken(alias, into, text);
        if let Some(taken) = self.stack.get_mut(into).and_then(|f| f.taken.as_mut()) {
            taken.insert(text);
        }
        !hidden
    }

    /// Whether a child of the collection at the top of the stack is hidden from the mapping that `<<` merges it into.
    pub(super) fn is_hidden(&mut self, component: Option<Component>, node: Node<'t>) -> bool {
        let merged = self.stack.last().is_some_and(|level| level.merged);
        let Some(component) = component else {
            return false;
        };
        // a scalar shows nothing that could be hidden
        if !merged || node.kind() == NodeKind::Scalar {
            return false;
        }
        let below = self.stack.len().checked_sub(2);
        let text = self.tree.key(component);
        text.zip(below)
            .is_some_and(|(text, below)| self.is_taken(node, below, text))
    }

    /// Records that a mapping was merged into the one at the top of the stack. Its keys hide keys of later merges.
    pub(super) fn note_source(&mut self, source: Node<'t>) {
        let into = self.mapping().and_then(|at| self.stack.get_mut(at));
        if let (Some(into), NodeKind::Mapping) = (into, source.kind()) {
            into.sources.push(source);
        }
    }

    /// The mapping nearest the top of the stack. Above it may be the list of mappings that are merged into it.
    fn mapping(&self) -> Option<usize> {
        let is = |kind| kind == NodeKind::Mapping;
        self.stack.iter().rposition(|level| is(level.node.kind()))
    }

    /// Whether a key that is merged into the collection at `into` is hidden there, or in a mapping that this is merged into.
    fn is_taken(&mut self, at: Node<'t>, into: usize, text: &str) -> bool {
        for level in self.stack.iter_mut().take(into.saturating_add(1)).rev() {
            let node = level.node;
            let taken = level.taken.get_or_insert_with(|| own(node).collect());
            for source in std::mem::take(&mut level.sources) {
                for mapping in source.merged() {
                    if !self.outline.allowance.take(mapping.len().saturating_add(1)) {
                        self.outline.note_limit(Limit::Merges, at.id());
                        // beyond the limit nothing more is shown
                        return true;
                    }
                    taken.extend(own(mapping));
                }
            }
            if taken.contains(text) {
                return true;
            }
            if !level.merged {
                return false;
            }
        }
        false
    }
}

/// The texts of a mapping's own keys.
fn own(mapping: Node<'_>) -> impl Iterator<Item = &str> {
    let keys = mapping.entries().filter(|(key, _)| !key.is_merge());
    keys.filter_map(|(key, _)| key.text())
}

#[cfg(test)]
mod tests {
    use crate::asdf::outline::tests::outline;

    #[test]
    fn merged_arrays_appear_unless_the_mapping_has_its_own() {
        let body = "base: &b {x: ARRAY, y: ARRAY, z: {w: ARRAY}}\nderived:\n  <<: *b\n  y: 2\nagain: {<<: [*b, {q: ARRAY}]}";
        assert_eq!(
            outline(body),
            [
                "base/x",
                "base/y",
                "base/z/w",
                "derived/x -> base/x",
                "derived/z -> base/z",
                "again/x -> base/x",
                "again/y -> base/y",
                "again/z -> base/z",
                "again/q"
            ]
        );
    }

    #[test]
    fn a_key_of_an_earlier_merge_hides_a_later_one_though_it_leads_to_no_array() {
        let body = "base: &b {x: 1, y: [2]}\nmore: &m {x: ARRAY, y: [ARRAY], z: ARRAY}\n";
        let more = ["more/x", "more/y/0", "more/z"];
        for merged in [
            "derived: {<<: [*b, *m]}",
            "derived: {<<: [{x: 1}, {y: 2}, *m]}",
            "derived: {<<: {<<: [*b, *m]}}",
            "derived: {<<: {x: 1, y: 1, <<: *m}}",
        ] {
            let found = outline(&format!("{body}{merged}"));
            let (first, rest) = found.split_at(3);
            assert_eq!(first, more, "{merged}");
            assert_eq!(rest, ["derived/z -> more/z"], "{merged}");
        }
        let through = "indirect: &i {<<: *b}\nderived: {<<: [*i, *m]}";
        let found = outline(&format!("{body}{through}"));
        assert_eq!(found.last().unwrap(), "derived/z -> more/z");
        assert_eq!(found.len(), 4, "{found:?}");
    }

    /// The first one counted here, and the last one in Python: a write into `derived/x` changed an array that `derived` does not have.
    #[test]
    fn nothing_is_merged_where_a_mapping_merges_twice() {
        let body = "base: &b {x: ARRAY}\nmore: &m {x: ARRAY, y: ARRAY}\n";
        for merged in [
            "derived: {<<: *b, <<: *m}",
            "derived: {<<: *m, <<: {x: ARRAY}}",
            "derived: {<<: {<<: *b, <<: *m}}",
        ] {
            let found = outline(&format!("{body}{merged}\nlast: {{z: ARRAY, <<: *b}}"));
            assert_eq!(
                found,
                ["base/x", "more/x", "more/y", "last/z", "last/x -> base/x"],
                "{merged}"
            );
        }
    }

    #[test]
    fn an_array_behind_a_merge_is_hidden_like_one_behind_an_alias() {
        let inline = "{x: ARRAY, y: [ARRAY], z: ARRAY}";
        for (body, want) in [
            (format!("d: {{x: 1, <<: {inline}}}"), vec!["d/y/0", "d/z"]),
            (format!("d: {{<<: {inline}, z: 1}}"), vec!["d/x", "d/y/0"]),
            (
                format!("d: {{<<: [{{x: 1}}, {inline}]}}"),
                vec!["d/y/0", "d/z"],
            ),
            (
                format!("d: {{<<: [{inline}, {inline}]}}"),
                vec!["d/x", "d/y/0", "d/z"],
            ),
        ] {
            assert_eq!(outline(&body), want, "{body}");
        }
    }

    #[test]
    fn the_name_of_a_column_is_no_key_that_is_merged() {
        let table = "!core/table-1.0.0 {columns: [!core/column-1.0.0 {name: c, data: ARRAY}]}";
        assert_eq!(
            outline(&format!("t: &t {table}\nd: {{<<: *t}}")),
            [
                "t/columns/0/data",
                "t/c -> t/columns/0/data",
                "d/columns -> t/columns"
            ]
        );
    }
}
