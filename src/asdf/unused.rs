//! Blocks that no array uses, and whether something else in the tree may name a block by its number.
//!
//! The standard has no users of blocks but arrays. A library may keep block numbers under a tag of its own, as asdf-zarr does
//! for chunks, which are known ([`Snapshot::chunk_blocks`]). Nothing in the tree marks others. Every number under an unknown tag
//! therefore counts as the number of a block, if there is such a block.

use std::collections::{HashMap, HashSet};

use super::Snapshot;
use super::array::{Array, Origin};
use super::decl;
use super::decl::chunked;
use super::find::block_index;
use super::outline::Limit;
use super::scalar::Value;
use super::tree::{Node, NodeId, NodeKind, Tree};
use crate::error::Place;

/// Starts of tags whose values hold no block numbers outside of arrays: tags of the standard, and of
/// libraries whose schemas show this.
const WITHOUT_BLOCKS: [&str; 10] = [
    "tag:stsci.edu:asdf/",
    "tag:stsci.edu:gwcs/",
    "tag:astropy.org:astropy/",
    "tag:yaml.org,2002:",
    "asdf://asdf-format.org/",
    "asdf://astropy.org/",
    "asdf://stsci.edu/gwcs/",
    "asdf://stsci.edu/datamodels/",
    "tag:sunpy.org:",
    "asdf://sunpy.org/",
];

impl Snapshot {
    /// The blocks that no array uses, for a list, which reads no block: none if an array may have chunks in blocks, as their numbers are in
    /// another block.
    #[must_use]
    pub fn listed_unused(&self) -> Vec<usize> {
        match self.chunk_maps().next() {
            Some(_) => Vec::new(),
            None => self.unused_blocks(),
        }
    }

    /// The blocks that no array uses; none if some users may be unknown, as with a tree that is not valid. Reads which blocks have chunks.
    #[must_use]
    pub fn unused_blocks(&self) -> Vec<usize> {
        let is_known = match self.tree() {
            None => true,
            Some(Err(_)) => false,
            Some(Ok(tree)) => self.knows_all_users(tree),
        };
        let chunks = is_known.then(|| self.chunk_blocks());
        let Some(Ok(chunks)) = chunks else {
            return Vec::new();
        };
        let users = self.block_users().iter().enumerate();
        let unused = users.filter(|(n, users)| users.is_empty() && !chunks.contains(n));
        unused.map(|(n, _)| n).collect()
    }

    /// The arrays that have chunks in blocks, by the block that holds the numbers of these blocks. Reads no block.
    #[must_use]
    pub fn arrays_by_map(&self) -> HashMap<usize, Vec<&Array>> {
        let mut by_map: HashMap<usize, Vec<&Array>> = HashMap::new();
        for (array, map) in self.chunk_maps() {
            // an array whose map is no block has that as its problem
            if let Ok(map) = map {
                by_map.entry(map).or_default().push(array);
            }
        }
        by_map
    }

    /// The paths of the arrays in block `n`, for a list of blocks: of those that lie in it, then of those that have it as their map, see
    /// [`Snapshot::arrays_by_map`]. A block with chunks is not known as such, because the numbers of these blocks would have to be read.
    pub fn paths_in_block<'a>(
        &'a self,
        n: usize,
        by_map: &'a HashMap<usize, Vec<&'a Array>>,
    ) -> impl Iterator<Item = String> {
        let users = self.block_users().get(n).into_iter().flatten();
        let users = users.filter_map(|&i| self.arrays().get(i));
        let mapped = by_map.get(&n).into_iter().flatten().copied();
        users.chain(mapped).map(Array::path)
    }

    /// A remark on block `n` for a list of blocks: its error, or that it is among the `unused` ones.
    #[must_use]
    pub fn block_problem(&self, n: usize, unused: &[usize]) -> Option<String> {
        let unused = unused.binary_search(&n).is_ok();
        let unused = unused.then(|| "unused: no array names it".to_owned());
        self.block_error(n)
            .map(|error| error.to_string())
            .or(unused)
    }

    /// A sentence on these `unused` blocks, if there are any. It names as many numbers as people can read.
    #[must_use]
    pub fn unused_text(unused: &[usize]) -> Option<String> {
        /// How many runs of numbers are named.
        const NAMED: usize = 8;
        let runs = unused.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        let mut names: Vec<String> = runs
            .filter_map(|run| match (run.first()?, run.last()?) {
                (first, last) if first == last => Some(first.to_string()),
                (first, last) => Some(format!("{first} to {last}")),
            })
            .collect();
        if names.len() > NAMED {
            names.truncate(NAMED);
            names.push("others".to_owned());
        }
        let (what, them) = match unused {
            [] => return None,
            [_] => ("block", "it"),
            _ => ("blocks", "them"),
        };
        let numbers = names.join(", ");
        Some(format!(
            "{what} {numbers}: unused, no array names {them}; --compact OUT FILE writes a file without {them}"
        ))
    }

    /// Whether the users of all blocks are known: no array is left out, and each says where its elements are.
    fn knows_all_users(&self, tree: &Tree) -> bool {
        let arrays = self.arrays();
        let is_left_out = self
            .paths()
            .is_some_and(|paths| paths.outline().reaches(Limit::Places));
        // an array that was left out may use a block that no other one does
        let declared = || match tree.count_tagged(chunked::is_tag) {
            0 => tree.count_tagged(decl::is_ndarray),
            _ => tree.all().filter(is_array).count(),
        };
        !is_left_out
            && arrays
                .iter()
                .all(|array| *array.origin() != Origin::Unknown)
            // last, because it looks at every node
            && declared() == arrays.len()
    }

    /// The first place outside of arrays that may name one of `blocks` by its number.
    #[must_use]
    pub fn other_user_of(&self, blocks: &HashSet<usize>) -> Option<Place> {
        let tree = self.tree()?.ok()?;
        let count = self.layout().blocks.len();
        let names = |node: Node<'_>| {
            let n = integer(node).and_then(|n| block_index(n, count).ok());
            n.is_some_and(|n| blocks.contains(&n))
        };
        let mut around = Vec::new();
        let found = tree.all().find(|node| {
            let context = enter(&mut around, *node);
            match node.kind() {
                // with a `source`, this may be an array that has lost its tag
                NodeKind::Mapping if context == Context::Plain => {
                    source_of(*node).is_some_and(names)
                }
                NodeKind::Scalar if context == Context::Unknown => names(*node),
                // what it leads to may stand under a tag that is known
                NodeKind::Alias if context == Context::Unknown => match node.follow() {
                    target if target.kind() == NodeKind::Scalar => names(target),
                    target => !is_array(&target),
                },
                _ => false,
            }
        });
        found.map(Node::place)
    }
}

/// What the tags around a node say of the numbers in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context {
    /// They name no blocks.
    Plain,
    /// They may name blocks.
    Unknown,
    /// They belong to an array, whose block is known.
    Array,
}

/// The context of `node`. `around` has the collections around the node before it, each with the number of the first node behind it;
/// then the collections around this one.
fn enter(around: &mut Vec<(NodeId, Context)>, node: Node<'_>) -> Context {
    while around.pop_if(|(behind, _)| *behind <= node.id()).is_some() {}
    let outer = around
        .last()
        .map_or(Context::Plain, |(_, context)| *context);
    let context = match node.tag() {
        Some(_) if is_array(&node) => Context::Array,
        Some(tag) if WITHOUT_BLOCKS.iter().any(|known| tag.starts_with(known)) => Context::Plain,
        // a library that we do not know may keep numbers of blocks in its own objects
        Some(_) => Context::Unknown,
        None => outer,
    };
    if matches!(node.kind(), NodeKind::Mapping | NodeKind::Sequence) {
        around.push((node.behind(), context));
    }
    context
}

/// The integer at a node. Under a tag that is not YAML's own, a scalar is a string to us, but not to the
/// library that knows the tag.
fn integer(node: Node<'_>) -> Option<i64> {
    match node.value()? {
        Value::Int(n) => i64::try_from(n).ok(),
        Value::Str(text) if node.tag().is_some() => text.parse().ok(),
        _ => None,
    }
}

fn is_array(node: &Node<'_>) -> bool {
    node.kind() != NodeKind::Alias && decl::is_array(*node)
}

/// The `source` of a mapping, as an array has it.
fn source_of(mapping: Node<'_>) -> Option<Node<'_>> {
    let mut entries = mapping.entries();
    entries.find_map(|(key, value)| key.is_key("source").then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::sample::Sample;
    use crate::codec::Cache;
    use crate::source::Memory;
    use std::sync::Arc;

    /// A file of four blocks, in whose tree `A0` stands for an array in block 0, and so on.
    fn snapshot(body: &str) -> Snapshot {
        let mut body = body.to_owned();
        for n in 0..=9 {
            let array = format!(
                "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> {{source: {n}, datatype: uint8, shape: [3], byteorder: little}}"
            );
            body = body.replace(&format!("A{n}"), &array);
        }
        let text = format!("#ASDF 1.0.0\n---\n{body}\n...\n");
        let sample = (0..4).fold(Sample::new().text(text.as_bytes()), |file, _| {
            file.block(b"abc")
        });
        let file = Arc::new(Memory::new(sample.bytes()));
        Snapshot::read(None, file, Cache::new(0), OpenOptions::default()).unwrap()
    }

    #[test]
    fn blocks_without_an_array_are_unused_where_all_arrays_are_known() {
        for (body, want) in [
            ("a: A1\nb: [A3]\n? [1]\n: A0", &[2][..]),
            ("a: 1", &[0, 1, 2, 3]),
            ("a: [", &[]),
            ("a: A0\nb: A9", &[]),
            (
                "a: A0\nb: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {source: [1]}",
                &[],
            ),
            ("? [A0]\n: 1", &[]),
        ] {
            assert_eq!(snapshot(body).unused_blocks(), want, "{body}");
        }
    }

    #[test]
    fn a_number_that_may_be_that_of_a_block_is_found() {
        let dropped = HashSet::from([1, 2]);
        for (body, line) in [
            (
                "a: A0\nn: 1\nl: [1, 2]\nm: {sources: 1, x: {source: a}}",
                None,
            ),
            ("a: A0\nm: {source: 1}", Some(3)),
            ("a: A0\nm: {x: [{source: -2}]}", Some(3)),
            ("a: A0\nm: {source: 3}", None),
            ("a: A0\nz: !<asdf://a.b/zarr-1.0.0> {map: 1}", Some(3)),
            (
                "a: A0\nz: !<asdf://a.b/zarr-1.0.0> {map: {x: [0, 2]}}",
                Some(3),
            ),
            (
                "a: A0\nz: !<asdf://a.b/zarr-1.0.0> {map: 3, x: A1, y: '1', z: 1.0}",
                None,
            ),
            ("a: A0\nz: !<asdf://a.b/zarr-1.0.0> 1\nn: 1", Some(3)),
            ("n: &n 1\nz: !<asdf://a.b/zarr-1.0.0> [*n]", Some(3)),
            ("n: &n {x: 1}\nz: !<asdf://a.b/zarr-1.0.0> [*n]", Some(3)),
            ("n: &n A0\nz: !<asdf://a.b/zarr-1.0.0> [*n]", None),
            (
                "z: !<asdf://a.b/x-1> {t: !<tag:stsci.edu:asdf/core/software-1.0.0> {name: 1}}",
                None,
            ),
        ] {
            let found = snapshot(body).other_user_of(&dropped);
            let found = found.map(|place| match place {
                Place::Line { line, .. } => line - 1,
                other => panic!("{other}"),
            });
            assert_eq!(found, line, "{body}");
        }
    }
}
