//! Where the arrays stand in the tree: the directories and links that lead to them, each array once.
//!
//! An array is declared at the first place it appears. Aliases (`*name`), internal references (`$ref: "#/a/b"`) and merges
//! (`<<`) that lead to it, or to a collection that holds it, become links to that place, so that nothing is ever expanded.
//! Links never form a circle: an alias stands behind its target, and a link to a directory is only made when
//! the directory is complete.
//! Knows nothing of file names, which are `names`'s.

use std::collections::HashSet;

use crate::asdf::decl::{Allowance, Declared, is_array};
use crate::asdf::tree::{Component, Node, NodeId, NodeKind, Parts, Tree};
use crate::error::Result;

pub(crate) mod column;
mod limit;
mod merge;
pub(crate) mod pointer;
mod refer;

pub use limit::Limit;

/// Most places. A mount of more would be of no use.
pub const MAX_PLACES: usize = 1 << 20;

/// The number of a place, greater than the number of the place that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId(u32);

impl PlaceId {
    /// The top directory.
    pub const ROOT: Self = Self(0);

    /// The number as an index.
    pub(crate) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A place in the tree that leads to an array, or is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The place that it is in; the top is in itself.
    pub parent: PlaceId,
    /// Its key or index there.
    pub component: Component,
    /// The node that stands there in the text.
    pub node: NodeId,
    /// What it is.
    pub what: What,
    /// Whether it is at or below a key that is a collection. No name can be made of that, so nothing there has files.
    pub nameless: bool,
    /// Whether others are in it that have names.
    pub is_parent: bool,
}

/// The kind of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A collection with arrays in it.
    Directory,
    /// An array, by its number; there may be places below it, such as its mask.
    Array(u32),
    /// Another way to a place that is itself no link.
    Link {
        /// That place.
        to: PlaceId,
        /// Whether the link also shows everything below that place.
        whole: bool,
    },
    /// A reference that leads to nothing with a place.
    Nothing,
    /// A reference to something in another file.
    Elsewhere,
}

/// The arrays of a tree and the places that lead to them.
#[derive(Debug)]
pub struct Outline {
    places: Vec<Place>,
    /// How many arrays there are.
    arrays: u32,
    /// What the declarations may still cost.
    allowance: Allowance,
    /// The limits that the tree reaches, each with the first node beyond it.
    limits: Vec<(Limit, NodeId)>,
}

impl Outline {
    /// Finds every array of a tree.
    #[must_use]
    pub fn new(tree: &Tree) -> Self {
        TreeWalk::new(tree).run()
    }

    /// The places, parents before children, in document order but for references.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The place of that number.
    #[must_use]
    pub fn place(&self, id: PlaceId) -> Option<&Place> {
        self.places.get(id.index())
    }

    /// The places with their numbers.
    pub fn ids(&self) -> impl Iterator<Item = (PlaceId, &Place)> {
        (0..).map(PlaceId).zip(&self.places)
    }

    /// The declarations of the arrays of `tree` in document order, each with its place; an error where a declaration makes no
    /// sense. They are read one at a time, because all together can take more memory than the tree.
    pub fn declared<'t>(
        &self,
        tree: &'t Tree,
    ) -> impl Iterator<Item = (PlaceId, Result<Declared>)> + use<'_, 't> {
        // a copy, so that every run begins with what the walk has left
        let mut allowance = self.allowance.clone();
        let is_array = |place: &Place| matches!(place.what, What::Array(_));
        let arrays = self.ids().filter(move |(_, place)| is_array(place));
        arrays.filter_map(move |(home, place)| {
            let node = tree.node(place.node)?;
            Some((home, Declared::read(node, &mut allowance)))
        })
    }

    /// The number of the array that is at a place or that a link there leads to.
    #[must_use]
    pub fn array(&self, id: PlaceId) -> Option<usize> {
        let target = match self.place(id)?.what {
            What::Link { to, .. } => self.place(to)?.what,
            what => what,
        };
        match target {
            What::Array(number) => usize::try_from(number).ok(),
            _ => None,
        }
    }

    /// Notes at the place around this one that it has a place in it.
    fn note_parent(&mut self, of: &Place) {
        if of.what != What::Nothing
            && !of.nameless
            && let Some(parent) = self.places.get_mut(of.parent.index())
        {
            parent.is_parent = true;
        }
    }

    /// The place of a node, if it has one that is no link.
    pub(crate) fn find(&self, node: NodeId) -> Option<PlaceId> {
        let is_home = |place: &Place| matches!(place.what, What::Directory | What::Array(_));
        self.first(node, is_home)
    }

    /// The first place of a node, link or not.
    pub(crate) fn at(&self, node: NodeId) -> Option<PlaceId> {
        self.first(node, |_| true)
    }

    /// The first place of a node that passes the test `such`. Places stand in the order of their nodes.
    fn first(&self, node: NodeId, such: impl Fn(&Place) -> bool) -> Option<PlaceId> {
        let places = &self.places;
        let first = places.partition_point(|place| place.node < node);
        let same = |place: &&Place| place.node == node;
        let mut candidates = places.get(first..)?.iter().take_while(same);
        let at = first.saturating_add(candidates.position(such)?);
        u32::try_from(at).ok().map(PlaceId)
    }
}

/// A collection that is being walked through.
struct Level<'t> {
    node: Node<'t>,
    parts: Parts<'t>,
    component: Component,
    /// Its place, once something was found in it.
    place: Option<PlaceId>,
    /// Its children appear in the mapping around it, because `<<` merges it.
    merged: bool,
    /// Whether it has `<<` more than once. Readers then disagree on which of them counts, so nothing that they merge is shown.
    merges_twice: bool,
    /// The mappings that `<<` has merged into it so far.
    sources: Vec<Node<'t>>,
    /// The texts of its own keys and of the keys of earlier `sources`; filled on first use.
    taken: Option<HashSet<&'t str>>,
}

impl<'t> Level<'t> {
    /// A collection before its first part is visited; it has no place yet.
    fn new(node: Node<'t>, component: Component, merged: bool) -> Self {
        Self {
            node,
            parts: node.parts(),
            component,
            place: None,
            merged,
            merges_twice: node
                .entries()
                .filter(|(key, _)| key.is_merge())
                .nth(1)
                .is_some(),
            sources: Vec::new(),
            taken: None,
        }
    }

    /// The next part with its component; the component is `None` where `<<` merges the part.
    fn next(&mut self, tree: &Tree) -> Option<(Option<Component>, Node<'t>)> {
        let merged = self.merged;
        self.parts.find_map(|(component, node)| {
            let Component::Key(key) = component else {
                // the items of a merged list are merged themselves
                return Some(((!merged).then_some(component), node));
            };
            let is_merge = tree.node(key)?.is_merge();
            let is_shown = !is_merge || !self.merges_twice;
            is_shown.then_some(((!is_merge).then_some(component), node))
        })
    }
}

/// The walk through a tree, with the places that it has found so far.
struct TreeWalk<'t> {
    tree: &'t Tree,
    outline: Outline,
    stack: Vec<Level<'t>>,
    pointers: pointer::Pointers<'t>,
    /// Links by reference whose array's place is not yet known.
    pending: Vec<(PlaceId, NodeId)>,
    /// The names of columns that are linked in each table.
    columns: HashSet<(PlaceId, &'t str)>,
}

impl<'t> TreeWalk<'t> {
    /// A walk that has not begun. The root has a place from the start, even if nothing is found.
    fn new(tree: &'t Tree) -> Self {
        let root = Place {
            parent: PlaceId::ROOT,
            component: Component::Top,
            node: tree.root().map_or(NodeId::FIRST, Node::id),
            what: What::Directory,
            nameless: false,
            is_parent: false,
        };
        Self {
            tree,
            outline: Outline {
                places: vec![root],
                arrays: 0,
                allowance: Allowance::new(tree),
                limits: Vec::new(),
            },
            stack: Vec::new(),
            pointers: pointer::Pointers::new(tree),
            pending: Vec::new(),
            columns: HashSet::new(),
        }
    }

    /// Walks through the whole tree. Then resolves the links whose targets stood behind them.
    fn run(mut self) -> Outline {
        if let Some(root) = self.tree.root() {
            self.visit(Some(Component::Top), root);
        }
        while let Some(level) = self.stack.last_mut() {
            match level.next(self.tree) {
                Some((component, node)) if self.is_hidden(component, node) => {}
                Some((component, node)) => self.visit(component, node),
                None => self.leave(),
            }
        }
        // all places are known by now; a target beyond a limit has none, and its link shows nothing
        for (link, target) in std::mem::take(&mut self.pending) {
            let what = self
                .outline
                .find(target)
                .map_or(What::Nothing, |to| What::Link { to, whole: false });
            if let Some(place) = self.outline.places.get_mut(link.index()) {
                place.what = what;
                let place = *place;
                self.outline.note_parent(&place);
            }
        }
        self.outline
    }

    /// Records a part that is an array, a link or a reference, and enters any other collection. A part
    /// without `component` is merged.
    fn visit(&mut self, component: Option<Component>, node: Node<'t>) {
        match (component, node.kind()) {
            (None, NodeKind::Alias) => self.merge(node),
            (Some(component), NodeKind::Alias) => {
                let target = node.follow();
                // only a place can be linked to: an alias of
                // a collection without arrays shows nothing
                if let Some(to) = self.outline.find(target.id()) {
                    self.link(component, node, to);
                } else if let Some(uri) = pointer::reference(target) {
                    self.refer(component, node, uri);
                }
            }
            (Some(component), _) if is_array(node) => {
                self.declare(component, node);
            }
            (_, NodeKind::Scalar) => {}
            // a collection without arrays is passed over;
            // not a merged one, whose keys still hide others
            (Some(_), _) if node.leads_nowhere() => {}
            (Some(component), _) => {
                if let Some(uri) = pointer::reference(node) {
                    self.refer(component, node, uri);
                } else {
                    self.enter(component, node, false);
                }
            }
            (None, _) => self.enter(Component::Top, node, true),
        }
    }

    /// Goes into a collection. It gets a place when something is found in it.
    fn enter(&mut self, component: Component, node: Node<'t>, merged: bool) {
        let mut level = Level::new(node, component, merged);
        // the root has its place already
        level.place = self.stack.is_empty().then_some(PlaceId::ROOT);
        self.stack.push(level);
    }

    /// Comes out of a collection at its end.
    fn leave(&mut self) {
        if let Some(level) = self.stack.pop()
            && level.merged
        {
            self.note_source(level.node);
        }
    }

    /// Notes an array, and goes into its node, where it may have a mask.
    fn declare(&mut self, component: Component, node: Node<'t>) {
        let number = self.outline.arrays;
        let Some(place) = self.add(component, node, What::Array(number)) else {
            return;
        };
        self.outline.arrays = number.saturating_add(1);
        self.name_columns(component, node);
        // The lists of an inline array hold no arrays, but a mapping may have a mask.
        if node.kind() == NodeKind::Mapping {
            let mut level = Level::new(node, component, false);
            level.place = Some(place);
            self.stack.push(level);
        }
    }

    /// Adds a place in the collection at the top of the stack, which gets one itself if it has none yet.
    fn add(&mut self, component: Component, node: Node<'t>, what: What) -> Option<PlaceId> {
        let parent = self.here()?;
        self.push(parent, component, node.id(), what)
    }

    /// Adds a place, if there are not too many.
    fn push(
        &mut self,
        parent: PlaceId,
        component: Component,
        node: NodeId,
        what: What,
    ) -> Option<PlaceId> {
        let places = &mut self.outline.places;
        if places.len() >= MAX_PLACES {
            self.outline.note_limit(Limit::Places, node);
            return None;
        }
        let id = PlaceId(u32::try_from(places.len()).ok()?);
        let around = places.get(parent.index());
        let place = Place {
            parent,
            component,
            node,
            what,
            nameless: around.is_some_and(|it| it.nameless) || self.tree.is_nameless(component),
            is_parent: false,
        };
        places.push(place);
        self.outline.note_parent(&place);
        Some(id)
    }

    /// The place of the collection at the top of the stack. Collections around it that have no place yet get one.
    fn here(&mut self) -> Option<PlaceId> {
        // Places are made when something is found, because
        // most collections of a tree lead to no array.
        let known = self.stack.iter().rposition(|level| level.place.is_some());
        let mut place = known
            .and_then(|at| self.stack.get(at)?.place)
            .unwrap_or(PlaceId::ROOT);
        for at in known.map_or(0, |at| at.saturating_add(1))..self.stack.len() {
            let level = self.stack.get(at)?;
            let (merged, component, node) = (level.merged, level.component, level.node.id());
            // a merged collection shows its parts in the mapping around it, and shares its place
            if !merged {
                place = self.push(place, component, node, What::Directory)?;
            }
            self.stack.get_mut(at)?.place = Some(place);
        }
        Some(place)
    }

    /// Links to a complete place. If that is a link itself, links to its target.
    fn link(&mut self, component: Component, node: Node<'t>, to: PlaceId) {
        let what = match self.outline.place(to).map(|place| place.what) {
            Some(What::Directory | What::Array(_)) => What::Link { to, whole: true },
            Some(link @ What::Link { .. }) => link,
            Some(What::Nothing | What::Elsewhere) | None => return,
        };
        if self.add(component, node, what).is_some() {
            self.name_columns(component, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: &str =
        "!core/ndarray-1.0.0 {source: 0, datatype: int8, byteorder: big, shape: [1]}";

    fn parse(body: &str) -> Tree {
        let body = body.replace("ARRAY", ARRAY);
        Tree::parse(format!("%TAG ! tag:stsci.edu:asdf/\n---\n{body}\n...\n")).unwrap()
    }

    fn path(tree: &Tree, outline: &Outline, mut id: PlaceId) -> String {
        let mut parts = Vec::new();
        while id != PlaceId::ROOT {
            let place = outline.place(id).unwrap();
            parts.push(match place.component {
                Component::Top => "(top)".into(),
                component => tree.called(component).into_owned(),
            });
            id = place.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Arrays as `path`, links as `path -> target`, links to the files alone as `path => target`.
    pub(crate) fn outline(body: &str) -> Vec<String> {
        let tree = parse(body);
        let outline = Outline::new(&tree);
        let describe = |(id, place): (PlaceId, &Place)| {
            let path = |id| path(&tree, &outline, id);
            match place.what {
                What::Array(_) => Some(path(id)),
                What::Link { to, whole: true } => Some(format!("{} -> {}", path(id), path(to))),
                What::Link { to, whole: false } => Some(format!("{} => {}", path(id), path(to))),
                What::Elsewhere => Some(format!("{} -> elsewhere", path(id))),
                What::Directory | What::Nothing => None,
            }
        };
        outline.ids().filter_map(describe).collect()
    }

    #[test]
    fn arrays_are_found_at_any_depth_and_masks_below_their_arrays() {
        let body = "a: ARRAY\nb: [7, [ARRAY], {c: !x ARRAY}, {c: ARRAY}]\nd: !y {e: !core/ndarray-1.0.0 {data: [1], mask: ARRAY}}\nf: !core/ndarray-1.0.0 [[1, 2]]";
        assert_eq!(
            outline(&body.replace("!x ARRAY", "1")),
            ["a", "b/1/0", "b/3/c", "d/e", "d/e/mask", "f"]
        );
        assert_eq!(outline("ARRAY"), ["(top)"]);
        assert_eq!(outline("a: 1"), <[&str; 0]>::default());
        assert_eq!(outline("? [k]\n: ARRAY\nb: ARRAY"), ["[k]", "b"]);
    }

    #[test]
    fn aliases_link_to_the_first_place() {
        // The paths of rawasdf.find_ndarrays over the conformance file names/aliases.
        let body = "first: &arr ARRAY\nsecond: *arr\nlist: [*arr, {deep: *arr}]\nmap: &m {x: *arr}\nmap2: *m\nplain: &p [1]\nplain2: *p";
        assert_eq!(
            outline(body),
            [
                "first",
                "second -> first",
                "list/0 -> first",
                "list/1/deep -> first",
                "map/x -> first",
                "map2 -> map"
            ]
        );
    }

    #[test]
    fn an_alias_within_its_target_leads_nowhere() {
        assert_eq!(
            outline("loop: &l\n  self: *l\n  x: ARRAY\n  list: [*l]"),
            ["loop/x"]
        );
    }

    #[test]
    fn references_link_forward_to_arrays_and_back_to_anything() {
        let body = "data: !core/ndarray-1.0.0 {data: [1], mask: {$ref: '#/my_mask'}}\nmy_mask: ARRAY\nall: {'a/b ~c': ARRAY}\none: {$ref: '#/all/a~1b%20~0c'}\nback: {$ref: '#/all'}\nvia: {$ref: '#/back/a~1b ~0c'}\nfar: {$ref: 'other.asdf#/all'}\nno: {$ref: '#/none'}\nlater: {$ref: '#/last'}\nlast: [ARRAY]";
        assert_eq!(
            outline(body),
            [
                "data",
                "data/mask => my_mask",
                "my_mask",
                "all/a/b ~c",
                "one -> all/a/b ~c",
                "back -> all",
                "via -> all/a/b ~c",
                "far -> elsewhere",
                "last/0"
            ]
        );
    }

    #[test]
    fn an_alias_of_a_reference_leads_where_the_reference_does() {
        let body = "in: ARRAY\nal1: &r {$ref: '#/in'}\nal2: *r\nd: &d {$ref: '#/al'}\nal: {x: ARRAY}\nd2: *d\nl: &l {$ref: '#/late'}\nl2: *l\nlate: ARRAY\nfar: &f {$ref: 'o.asdf#/x'}\nfar2: *f";
        assert_eq!(
            outline(body),
            [
                "in",
                "al1 -> in",
                "al2 -> in",
                "al/x",
                "d2 -> al",
                "l => late",
                "l2 => late",
                "late",
                "far -> elsewhere",
                "far2 -> elsewhere"
            ]
        );
    }

    #[test]
    fn references_in_a_circle_make_no_circle_of_links() {
        let body = "a: {x: ARRAY, b: {$ref: '#/b'}}\nb: {y: ARRAY, a: {$ref: '#/a'}, up: {$ref: '#'}}\nc: {$ref: '#/d'}\nd: {$ref: '#/c'}";
        assert_eq!(outline(body), ["a/x", "b/y", "b/a -> a"]);
    }

    #[test]
    fn a_bomb_of_aliases_makes_one_link_for_each() {
        let mut body = "a0: &a0 [ARRAY]\n".to_owned();
        body.extend(
            (1..8).map(|i| format!("a{i}: &a{i} [{}]\n", format!("*a{}, ", i - 1).repeat(9))),
        );
        assert_eq!(outline(&body).len(), 1 + 7 * 9);
    }
}
