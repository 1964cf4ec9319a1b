//! The places of a tree and their names: the paths of arrays, links and references.
//!
//! A place is a number and a step from the place above it. Its path is put together on each call: in a deep tree the paths of all
//! arrays together can be a thousand times as long as the text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::names::{Unnamed, escape, give_way, odd_names};
use super::outline::column::{MAX_LABEL, MAX_QUANTITY, is_tagged};
use super::outline::pointer::reference;
use super::outline::{Outline, Place, PlaceId, What};
use super::tree::{Node, Tree};
use crate::source::len_u64;

/// Most bytes of the paths of all arrays and references together. Beyond it, long paths are cut.
const MAX_PATHS: u64 = 64 << 20;
/// Longest path in a message.
const MAX_BRIEF: usize = 240;
/// What stands for the middle of a path that is cut.
const GAP: &str = "…";
/// Length of `%XX`.
const ESCAPE_LEN: usize = 3;

/// The places of a tree.
#[derive(Debug)]
pub struct Paths {
    tree: Arc<Tree>,
    outline: Outline,
    /// Names that are not just an encoded key; the others are made when they are asked for.
    odd: HashMap<PlaceId, Box<str>>,
    /// The names of directories that give way to arrays.
    moved: HashMap<PlaceId, Box<str>>,
    /// Whether the paths together are too long to be listed in full.
    long: bool,
}

impl Paths {
    /// Names the places of a tree.
    pub(crate) fn new(tree: &Arc<Tree>, outline: Outline) -> Self {
        let shown = |(id, place): &(PlaceId, &Place)| {
            *id != PlaceId::ROOT && place.what != What::Nothing && !place.nameless
        };
        let children = outline.ids().filter(shown);
        let mut children: Vec<_> = children.map(|(id, place)| (place.parent, id)).collect();
        // by directory, and within one in the order of the tree
        children.sort_unstable();
        let mut paths = Self {
            tree: Arc::clone(tree),
            outline,
            odd: HashMap::new(),
            moved: HashMap::new(),
            long: false,
        };
        for directory in children.chunk_by(|a, b| a.0 == b.0) {
            let entries = directory.iter().map(|&(_, child)| paths.entry(child));
            let odd = odd_names(entries.clone());
            let moved = give_way(entries, &odd);
            let place = |(at, name)| Some((directory.get::<usize>(at)?.1, name));
            paths.odd.extend(odd.into_iter().filter_map(place));
            paths.moved.extend(moved.into_iter().filter_map(place));
        }
        paths.long = paths.len_of_paths() > MAX_PATHS;
        paths
    }

    /// The entry of a place in its directory, before it has a name.
    fn entry(&self, id: PlaceId) -> Unnamed<'_> {
        Unnamed {
            key: self.step(id),
            array: self.has_files(id),
            directory: self.is_directory(id),
        }
    }

    /// Whether a place appears as the files of an array.
    fn has_files(&self, id: PlaceId) -> bool {
        self.outline.array(id).is_some()
    }

    fn what(&self, id: PlaceId) -> Option<What> {
        self.outline.place(id).map(|place| place.what)
    }

    /// Whether a place appears as a directory, or as a link to one.
    fn is_directory(&self, id: PlaceId) -> bool {
        self.outline
            .place(id)
            .is_some_and(|place| match place.what {
                What::Directory => true,
                What::Array(_) => place.is_parent,
                What::Link { to, whole } => whole && self.is_directory(to),
                What::Nothing | What::Elsewhere => false,
            })
    }

    /// Bytes of the paths of all arrays and references.
    fn len_of_paths(&self) -> u64 {
        let mut all: u64 = 0;
        let mut lens: Vec<u64> = Vec::with_capacity(self.outline.places().len());
        for (id, place) in self.outline.ids() {
            // parents stand before children: the length of the path above is known
            let above = lens.get(place.parent.index()).copied().unwrap_or(0);
            let step = len_u64(escape(&self.step(id)).len()).saturating_add(1);
            let len = above.saturating_add(step);
            lens.push(len);
            if matches!(place.what, What::Array(_) | What::Elsewhere) {
                all = all.saturating_add(len);
            }
        }
        all
    }

    /// The tree.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The node that stands at a place in the text.
    pub(crate) fn node(&self, id: PlaceId) -> Option<Node<'_>> {
        self.tree.node(self.outline.place(id)?.node)
    }

    /// The target of an alias, or of a `$ref` that is shown as a link; else the node itself.
    pub(crate) fn referent<'t>(&'t self, node: Node<'t>) -> Node<'t> {
        let node = node.follow();
        let link = reference(node).and_then(|_| self.outline.at(node.id()));
        let target = link.and_then(|link| match self.what(link)? {
            What::Link { to, .. } => self.node(to),
            _ => None,
        });
        target.unwrap_or(node)
    }

    /// The path and the URI of each reference into another file.
    pub(super) fn references(&self) -> impl Iterator<Item = (String, &str)> {
        let places = self.outline.ids();
        let elsewhere = places.filter(|(_, place)| place.what == What::Elsewhere);
        elsewhere.filter_map(|(id, place)| {
            let uri = reference(self.tree.node(place.node)?.follow())?;
            Some((self.path(id), uri))
        })
    }

    /// The unit of the array at a place, if the collection around it is a quantity or a table's column.
    pub(crate) fn unit(&self, id: PlaceId) -> Option<&str> {
        let place = self.outline.place(id)?;
        let around = self.node(place.parent)?;
        let gives = match self.tree.key(place.component)? {
            "value" => is_tagged(around, &["quantity-"]),
            "data" => is_tagged(around, &["column-", "maskedcolumn-"]),
            _ => false,
        };
        if !gives || around.len() > MAX_QUANTITY {
            return None;
        }
        let unit = around.get("unit")?.text();
        unit.filter(|unit| unit.len() <= MAX_LABEL)
    }

    /// The key or index of a place in the one above it, as the tree spells it.
    fn step(&self, id: PlaceId) -> Cow<'_, str> {
        let place = self.outline.place(id);
        place.map_or("".into(), |place| self.tree.called(place.component))
    }

    /// The place that a place is in.
    #[must_use]
    pub fn parent(&self, id: PlaceId) -> PlaceId {
        self.outline
            .place(id)
            .map_or(PlaceId::ROOT, |place| place.parent)
    }

    /// The places from below the top to this one.
    pub(crate) fn way(&self, mut id: PlaceId) -> Vec<PlaceId> {
        let mut way = Vec::new();
        while id != PlaceId::ROOT {
            way.push(id);
            id = self.parent(id);
        }
        way.reverse();
        way
    }

    /// The keys and indices that lead to a place.
    pub(crate) fn steps(&self, id: PlaceId) -> Vec<Cow<'_, str>> {
        self.way(id).into_iter().map(|id| self.step(id)).collect()
    }

    /// The keys and indices that lead to a place, joined by `/`. A slash, a percent sign or a control character in a key is
    /// percent-encoded, as in the names of files. If all paths of the tree are too long together, a long one is cut.
    pub(crate) fn path(&self, id: PlaceId) -> String {
        if self.long {
            self.brief(id)
        } else {
            let steps = self.steps(id);
            let steps: Vec<_> = steps.iter().map(|step| escape(step)).collect();
            steps.join("/")
        }
    }

    /// As [`Paths::path`], cut in the middle if it is too long for a message.
    pub(crate) fn brief(&self, id: PlaceId) -> String {
        brief(&self.steps(id))
    }

    /// The name of an array's files without `.bin` or `.npy`.
    #[must_use]
    pub fn stem(&self, id: PlaceId) -> Cow<'_, str> {
        let odd = self.odd.get(&id).map(|name| (**name).into());
        odd.unwrap_or_else(|| self.plain(id))
    }

    /// The name as a directory; empty for the top.
    #[must_use]
    pub fn directory_name(&self, id: PlaceId) -> Cow<'_, str> {
        let moved = self.moved.get(&id).map(|name| (**name).into());
        moved.unwrap_or_else(|| self.stem(id))
    }

    /// The encoded key.
    fn plain(&self, id: PlaceId) -> Cow<'_, str> {
        match id {
            PlaceId::ROOT => "".into(),
            _ => self.entry(id).encoded(),
        }
    }

    /// The path below `arrays/` of an array's files, without `.bin` or `.npy`; for a place without files,
    /// the path of its directory.
    #[must_use]
    pub fn file_path(&self, id: PlaceId) -> String {
        if self.has_files(id) {
            self.join(id, self.stem(id))
        } else {
            self.directory_path(id)
        }
    }

    /// The path of an array's files in a mount, without `.bin` or `.npy`. If all paths of the tree are too long together, a long one is
    /// left out.
    pub(crate) fn listed(&self, id: PlaceId) -> Option<String> {
        let path = self.file_path(id);
        let short = !self.long || path.len() <= MAX_BRIEF;
        short.then(|| format!("arrays/{path}"))
    }

    /// The path below `arrays/` of a directory.
    #[must_use]
    pub fn directory_path(&self, id: PlaceId) -> String {
        self.join(id, self.directory_name(id))
    }

    fn join(&self, id: PlaceId, last: Cow<'_, str>) -> String {
        let above = self.way(self.parent(id)).into_iter();
        let parts = above.map(|id| self.directory_name(id)).chain([last]);
        parts.collect::<Vec<_>>().join("/")
    }
}

/// Steps as a path, see [`Paths::path`], without their middle if they are too long for a message. Steps that are
/// not shown are not looked at.
pub(crate) fn brief(steps: &[Cow<'_, str>]) -> String {
    let len = steps
        .iter()
        .fold(0_usize, |len, step| len.saturating_add(step.len()))
        .saturating_add(steps.len().saturating_sub(1));
    if len <= MAX_BRIEF {
        let steps: Vec<_> = steps.iter().map(|step| escape(step)).collect();
        let whole = steps.join("/");
        if whole.len() <= MAX_BRIEF {
            return whole;
        }
    }
    // each end gets half; a key is escaped only as far as
    // it is shown, because it may have megabytes
    let half = MAX_BRIEF.saturating_sub(GAP.len()) / 2;
    let mut head = String::new();
    for step in steps {
        let (start, whole) = start_of(step, half.saturating_sub(head.len()));
        head.push_str(&start);
        if head.len() >= half || !whole {
            break;
        }
        head.push('/');
    }
    let mut tail: Vec<String> = Vec::new();
    let mut room = half;
    for step in steps.iter().rev() {
        let (end, whole) = end_of(step, room);
        let len = end.len();
        tail.push(end);
        if len >= room || !whole {
            break;
        }
        room = room.saturating_sub(len).saturating_sub(1);
    }
    tail.reverse();
    format!("{head}{GAP}{}", tail.join("/"))
}

/// As much of the start of a step as there is room for, and whether that is all of it. An escape is kept whole or left out.
fn start_of(step: &str, room: usize) -> (String, bool) {
    let first = step.get(..step.floor_char_boundary(room)).unwrap_or(step);
    let encoded = escape(first);
    let mut to = encoded.floor_char_boundary(room);
    let shown = encoded.get(..to).unwrap_or_default();
    if to < encoded.len()
        && let Some(at) = shown.rfind('%')
        && to.saturating_sub(at) < ESCAPE_LEN
    {
        to = at;
    }
    let whole = first.len() == step.len() && to == encoded.len();
    (encoded.get(..to).unwrap_or_default().to_owned(), whole)
}

/// As [`start_of`], for the end of a step.
fn end_of(step: &str, room: usize) -> (String, bool) {
    let from = step.ceil_char_boundary(step.len().saturating_sub(room));
    let encoded = escape(step.get(from..).unwrap_or(step));
    let mut cut = encoded.ceil_char_boundary(encoded.len().saturating_sub(room));
    let before = encoded.get(..cut).unwrap_or_default();
    // an escape that the cut would split is left out
    if let Some(at) = before.rfind('%')
        && cut.saturating_sub(at) < ESCAPE_LEN
    {
        cut = at.saturating_add(ESCAPE_LEN);
    }
    let whole = from == 0 && cut == 0;
    (encoded.get(cut..).unwrap_or_default().to_owned(), whole)
}

#[cfg(test)]
impl Paths {
    /// The places of a tree.
    pub(crate) fn of(tree: Tree) -> Self {
        let tree = Arc::new(tree);
        Self::new(&tree, Outline::new(&tree))
    }

    /// The place whose path in the tree that is.
    pub(crate) fn find(&self, path: &str) -> Option<PlaceId> {
        let mut ids = self.outline.ids().map(|(id, _)| id);
        ids.find(|id| self.path(*id) == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: &str = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> [1]";

    fn places(body: &str) -> Paths {
        let text = format!("---\n{}\n...\n", body.replace("ARRAY", ARRAY));
        Paths::of(Tree::parse(text).unwrap())
    }

    #[test]
    fn a_quantity_and_a_column_give_their_unit() {
        let found = places(
            "q: !<x/quantity-1.1.0> {value: ARRAY, unit: !<x/unit-1.0.0> Jy}\n\
            t: [!<x/column-1.0.0> {data: ARRAY, unit: m}, !<x/maskedcolumn-1.0.0> {data: ARRAY, unit: mm}]\n\
            n: {value: ARRAY, unit: s}\n\
            e: !<x/quantity-1.1.0> {unit: kg, <<: &m {unit: g}, value: ARRAY, unit: t}\n\
            m: !<x/quantity-1.1.0> {value: ARRAY, <<: *m}",
        );
        let unit = |path| found.unit(found.find(path).unwrap());
        let units = ["q/value", "t/0/data", "t/1/data", "n/value"].map(unit);
        assert_eq!(units, [Some("Jy"), Some("m"), Some("mm"), None]);
        let of_len = |len: usize| {
            let unit = "m".repeat(len);
            let found = places(&format!(
                "q: !<x/quantity-1.1.0> {{value: ARRAY, unit: {unit}}}"
            ));
            found.unit(found.find("q/value").unwrap()).map(str::len)
        };
        assert_eq!(
            [MAX_LABEL, MAX_LABEL + 1].map(of_len),
            [Some(MAX_LABEL), None]
        );
        // as readers find it: the last of equal keys, or a merged one
        assert_eq!(["e/value", "m/value"].map(unit), [Some("t"), Some("g")]);
    }

    #[test]
    fn a_path_in_a_message_is_cut_in_the_middle() {
        let steps = |steps: &[&str]| {
            let steps: Vec<Cow<'_, str>> =
                steps.iter().map(|step| (*step).to_owned().into()).collect();
            brief(&steps)
        };
        assert_eq!(steps(&["a", "0", "b"]), "a/0/b");
        assert_eq!(steps(&[]), "");
        assert_eq!(steps(&["a/b", "%2F\n"]), "a%2Fb/%252F%0A");
        let exact = "k".repeat(MAX_BRIEF - 2);
        assert_eq!(steps(&[&exact, "b"]), format!("{exact}/b"));
        let half = (MAX_BRIEF - GAP.len()) / 2;
        for steps_of in [
            vec!["é".repeat(1000)],
            vec!["start".to_owned(), "é".repeat(1000), "end".to_owned()],
            vec!["k".to_owned(); 512],
            vec!["k".repeat(half), "k".repeat(half), "k".repeat(half)],
            [vec![String::new(); 400], vec!["x".repeat(300)]].concat(),
        ] {
            let all: Vec<&str> = steps_of.iter().map(String::as_str).collect();
            let (whole, cut) = (all.join("/"), steps(&all));
            let (head, tail) = cut.split_once(GAP).unwrap();
            assert!(whole.starts_with(head) && whole.ends_with(tail), "{cut}");
            assert!(head.len() > half - 4 && tail.len() > half - 4, "{cut}");
            assert!(cut.len() <= MAX_BRIEF, "{}", cut.len());
        }
        // whatever the room, no escape is cut in two
        for len in 200..210 {
            let cut = steps(&["x".repeat(len - 200).as_str(), "/".repeat(len).as_str()]);
            let (head, tail) = cut.split_once(GAP).unwrap();
            assert!(cut.len() <= MAX_BRIEF, "{cut}");
            assert!(head.len() > half - 4 && tail.len() > half - 4, "{cut}");
            let slashes = head.trim_start_matches('x').strip_prefix('/').unwrap();
            for part in [slashes, tail] {
                assert_eq!(part, "%2F".repeat(part.len() / 3), "{cut}");
            }
        }
    }

    /// `a/b: {c: …}` and `a: {b/c: …}` looked alike.
    #[test]
    fn a_slash_in_a_key_is_told_from_those_between_keys() {
        let found = places("{a/b: {c: ARRAY}, a: {b/c: ARRAY, b: {c: ARRAY}}, a%2Fb: {c: ARRAY}}");
        let arrays = found
            .outline
            .ids()
            .filter(|(_, place)| matches!(place.what, What::Array(_)));
        let paths: Vec<String> = arrays.map(|(id, _)| found.path(id)).collect();
        assert_eq!(paths, ["a%2Fb/c", "a/b%2Fc", "a/b/c", "a%252Fb/c"]);
    }

    #[test]
    fn paths_that_are_too_long_together_are_cut() {
        let deep = |count: usize, key: usize| {
            let key = "k".repeat(key);
            let arrays = "ARRAY, ".repeat(count);
            places(&format!("{{? {key} : {{? {key} : [{arrays}]}}}}"))
        };
        let (few, many) = (deep(10, 5000), deep(10_000, 5000));
        let last = |places: &Paths| places.path(at_end(places));
        assert_eq!(last(&few).len(), 2 * 5001 + 1);
        let cut = last(&many);
        assert!(cut.len() <= MAX_BRIEF && cut.ends_with("k/9999"), "{cut}");
        // what real files have is never cut
        let real = deep(50_000, 100);
        assert_eq!(last(&real).len(), 2 * 101 + 5);
    }

    fn at_end(places: &Paths) -> PlaceId {
        places.outline.ids().last().unwrap().0
    }

    #[test]
    fn what_a_key_cannot_be_called_is_told_apart() {
        let paths = |body: &str| -> Vec<String> {
            let found = places(body);
            let ids = found.outline.ids().map(|(id, _)| id);
            ids.map(|id| found.file_path(id)).collect()
        };
        let masked = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> {data: [1], mask: ARRAY}";
        let body = format!("a.bin: [{{x/y: &a {masked}}}]\na: *a\nb: {masked}");
        let below_a = ["a%2Ebin/0", "a%2Ebin/0/x%2Fy", "a%2Ebin/0/x%2Fy/mask"];
        let want = [&["", "a%2Ebin"], &below_a[..], &["a", "b", "b/mask"]].concat();
        assert_eq!(paths(&body), want);
        assert_eq!(paths(masked), ["", "%", "%/mask"]);
    }
}
