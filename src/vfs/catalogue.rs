//! The names under `arrays/`: directories, files and links, with numbers that outlive a save.
//!
//! [`Numbers`] keeps each name once for the whole mount. A [`Catalogue`] is what one snapshot shows: a sorted list of numbers, and what
//! each is. It needs neither the tree nor its text.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::node::{Format, Node};
use super::{index, locked};
use crate::asdf::outline::{PlaceId, What};
use crate::asdf::{ArrayData, Origin, Paths, Snapshot};

/// Bytes that an entry of a catalogue takes, with what the files of an array show.
const PER_ENTRY: usize = 320;
/// Bytes that a name takes beside its text: its place in the list, and in the table by hashes.
const PER_NAME: usize = 32;

/// Something in a directory under `arrays/`.
#[derive(Debug)]
struct CatalogueEntry {
    /// The number of the directory that it is in.
    directory: u32,
    /// The number of its name there.
    number: u32,
    kind: EntryKind,
}

/// What an entry of the catalogue is.
#[derive(Debug)]
pub(super) enum EntryKind {
    /// The directory of that place.
    Directory(PlaceId),
    /// The array of that index in the snapshot, as a file in each format, and what these show.
    Array(u32, ArrayData),
    /// A link to that node: a directory, or a file of an array.
    Link(Node),
}

impl CatalogueEntry {
    /// The key by which entries are sorted. It has the node, as one number may have entries of several kinds.
    fn key(&self) -> (u32, Node) {
        (self.directory, self.node(Format::Bin))
    }

    /// The node of the entry; of an array, the file in this format.
    fn node(&self, format: Format) -> Node {
        match self.kind {
            EntryKind::Directory(_) => Node::ArrayDir(self.number),
            EntryKind::Array(..) => Node::Array(self.number, format),
            EntryKind::Link(_) => Node::ArrayLink(self.number),
        }
    }

    /// Its name number `at`, if it has so many: an array has one in each format, anything else one. `name` is the name of its number.
    fn name(&self, at: usize, name: &str) -> Option<(OsString, Node)> {
        let format = *Format::ALL.get(at)?;
        let suffix = match self.kind {
            EntryKind::Array(..) => format.suffix(),
            _ if at > 0 => return None,
            _ => "",
        };
        Some((format!("{name}{suffix}").into(), self.node(format)))
    }
}

/// All names under `arrays/` of one snapshot.
#[derive(Debug)]
pub(super) struct Catalogue {
    numbers: Arc<Mutex<Numbers>>,
    /// Sorted.
    entries: Vec<CatalogueEntry>,
}

impl Catalogue {
    /// What a snapshot shows under `arrays/`. What is beyond the numbers' limit is left out.
    pub(super) fn of(snapshot: &Snapshot, numbers: &Arc<Mutex<Numbers>>) -> Self {
        let mut entries = match snapshot.paths() {
            Some(paths) => entries(snapshot, paths, &mut locked(numbers)),
            None => Vec::new(),
        };
        // sorted by directory, then by node: a listing is one run, and a lookup a binary search
        entries.sort_unstable_by_key(CatalogueEntry::key);
        Self {
            numbers: Arc::clone(numbers),
            entries,
        }
    }

    /// What gives the names their numbers.
    pub(super) fn numbers(&self) -> &Arc<Mutex<Numbers>> {
        &self.numbers
    }

    /// Whether all of it depends on FILE alone: no array lies in another file.
    pub(super) fn is_of_one_file(&self) -> bool {
        let mut origins = self.arrays().map(|(.., data)| data.origin());
        origins.all(|origin| !matches!(origin, Origin::External(_) | Origin::Chunked))
    }

    /// The memory that it takes, in bytes, as estimated.
    pub(super) fn weight(&self) -> usize {
        let entries = self.entries.len().saturating_mul(PER_ENTRY);
        locked(&self.numbers).weight().saturating_add(entries)
    }

    /// The node of that name in a directory.
    #[must_use]
    pub(super) fn lookup(&self, directory: u32, name: &OsStr) -> Option<Node> {
        let name = name.to_str()?;
        let numbers = locked(&self.numbers);
        let number = numbers.find(directory, name);
        let whole = number.into_iter().flat_map(|number| {
            // one name may be that of a directory and, with an ending, of the files of an array: the first that is there counts
            let nodes = [Node::ArrayDir(number), Node::ArrayLink(number)];
            nodes.map(|node| (node, node))
        });
        let files = Format::ALL.into_iter().filter_map(|format| {
            let stem = name.strip_suffix(format.suffix())?;
            let number = numbers.find(directory, stem)?;
            Some((
                Node::Array(number, format),
                Node::Array(number, Format::Bin),
            ))
        });
        let mut known = whole.chain(files);
        let found = known.find(|(_, kept)| self.at(directory, *kept).is_some());
        found.map(|(node, _)| node)
    }

    /// Where the entries of a directory are, if it is one.
    pub(super) fn entries(&self, directory: u32) -> Option<Range<usize>> {
        if directory != 0 {
            self.find(Node::ArrayDir(directory))?;
        }
        let start = |of: u32| self.entries.partition_point(|entry| entry.directory < of);
        Some(start(directory)..start(directory.saturating_add(1)))
    }

    /// How many directories a directory holds, if it is one.
    #[must_use]
    pub(super) fn subdirectories(&self, directory: u32) -> Option<usize> {
        let entries = self.entries.get(self.entries(directory)?)?;
        let is_directory = |entry: &CatalogueEntry| matches!(entry.kind, EntryKind::Directory(_));
        // directories come first among the entries of a directory, as `Node` sorts them
        Some(entries.partition_point(is_directory))
    }

    /// The next name among these entries from `position` on, which is moved behind it. Each entry has as many positions as an array has
    /// files.
    pub(super) fn next(
        &self,
        entries: &Range<usize>,
        position: &mut usize,
    ) -> Option<(OsString, Node)> {
        let entries = self.entries.get(entries.clone())?;
        let numbers = locked(&self.numbers);
        loop {
            // a position is entry times formats plus format, so that a listing can go on in the middle of an array
            let names = Format::ALL.len();
            let entry = entries.get(position.checked_div(names)?)?;
            let at = position.checked_rem(names)?;
            *position = position.saturating_add(1);
            let name = numbers.name(entry.number)?;
            if let Some(name) = entry.name(at, name) {
                return Some(name);
            }
        }
    }

    /// The kind of a node in a directory, if it is there; an array is found by its first format.
    fn at(&self, directory: u32, node: Node) -> Option<&EntryKind> {
        let key = (directory, node);
        let at = self
            .entries
            .binary_search_by_key(&key, CatalogueEntry::key)
            .ok()?;
        Some(&self.entries.get(at)?.kind)
    }

    /// The kind of a node, in the directory of its number; an array is found by its first format.
    fn find(&self, node: Node) -> Option<&EntryKind> {
        let number = number(node)?;
        self.at(self.directory_of(number)?, node)
    }

    /// Index in the snapshot of the array with that number, and what its files show.
    #[must_use]
    pub(super) fn array(&self, number: u32) -> Option<(usize, &ArrayData)> {
        match self.find(Node::Array(number, Format::Bin))? {
            EntryKind::Array(i, data) => Some((index(*i), data)),
            _ => None,
        }
    }

    /// Number of the directory with the name of that number.
    #[must_use]
    pub(super) fn directory_of(&self, number: u32) -> Option<u32> {
        locked(&self.numbers).directory(number)
    }

    /// The place in the tree of the directory with that number. Without arrays, not even `arrays/` has one.
    pub(super) fn place_of(&self, directory: u32) -> Option<PlaceId> {
        if directory == 0 {
            return (!self.entries.is_empty()).then_some(PlaceId::ROOT);
        }
        match self.find(Node::ArrayDir(directory))? {
            EntryKind::Directory(place) => Some(*place),
            _ => None,
        }
    }

    /// Where the link with that number leads, from the directory in which it stands.
    pub(super) fn target(&self, number: u32) -> Option<String> {
        let link = Node::ArrayLink(number);
        let EntryKind::Link(target) = self.find(link)? else {
            return None;
        };
        let (from, to) = (self.path(link)?, self.path(*target)?);
        let ((from, _), (above, name)) = from.rsplit_once('/').zip(to.rsplit_once('/'))?;
        let pairs = from.split('/').zip(above.split('/'));
        let common = pairs.take_while(|(a, b)| a == b).count();
        let up = from.split('/').skip(common).map(|_| "..");
        let parts = up.chain(above.split('/').skip(common)).chain([name]);
        Some(parts.collect::<Vec<_>>().join("/"))
    }

    /// The path of a node below the mountpoint, if it is there.
    pub(super) fn path(&self, node: Node) -> Option<String> {
        let mut number = number(node)?;
        let (node, suffix) = match node {
            Node::Array(_, format) => (Node::Array(number, Format::Bin), format.suffix()),
            _ => (node, ""),
        };
        if node != Node::ARRAYS {
            self.find(node)?;
        }
        let numbers = locked(&self.numbers);
        let mut parts = Vec::new();
        while number != 0 {
            parts.push(numbers.name(number)?);
            number = numbers.directory(number)?;
        }
        parts.push("arrays");
        parts.reverse();
        Some(parts.join("/") + suffix)
    }

    /// Entry `at` of these: its number, its name without the ending of files, and its kind.
    pub(super) fn entry(
        &self,
        entries: &Range<usize>,
        at: usize,
    ) -> Option<(u32, String, &EntryKind)> {
        let entry = self.entries.get(entries.clone())?.get(at)?;
        let name = locked(&self.numbers).name(entry.number)?.to_owned();
        Some((entry.number, name, &entry.kind))
    }

    /// The number of a name in a directory, without the ending of files, whether it is there now or not.
    pub(super) fn number(&self, directory: u32, name: &str) -> Option<u32> {
        locked(&self.numbers).find(directory, name)
    }

    /// The directory and the name that a number stands for.
    pub(super) fn name_of(&self, number: u32) -> Option<(u32, String)> {
        let numbers = locked(&self.numbers);
        let name = numbers.name(number)?.to_owned();
        Some((numbers.directory(number)?, name))
    }

    /// The number of a place's directory.
    pub(super) fn number_of(&self, paths: &Paths, place: PlaceId) -> Option<u32> {
        locked(&self.numbers).at(&paths.directory_path(place))
    }

    /// The number of array `i` of the snapshot.
    pub(super) fn number_of_array(&self, snapshot: &Snapshot, i: usize) -> Option<u32> {
        let place = snapshot.arrays().get(i)?.home();
        let paths = snapshot.paths()?;
        let directory = self.number_of(paths, paths.parent(place))?;
        self.number(directory, &paths.stem(place))
    }

    /// Every array that has files: its index in the snapshot, its number, and what its files show.
    pub(super) fn arrays(&self) -> impl Iterator<Item = (usize, u32, &ArrayData)> {
        let arrays = self.entries.iter();
        arrays.filter_map(|entry| match &entry.kind {
            EntryKind::Array(i, data) => Some((index(*i), entry.number, data)),
            _ => None,
        })
    }

    /// The same without what they show.
    pub(super) fn numbers_of_arrays(&self) -> impl Iterator<Item = (usize, u32)> {
        self.arrays().map(|(i, number, _)| (i, number))
    }
}

/// Numbers given to paths under `arrays/`: to each name in the directory of a number. A path keeps its number for the life of
/// the mount; only paths that a save brings in for the first time make the list grow.
#[derive(Debug)]
pub(super) struct Numbers {
    /// `arrays/` itself, which is number 0, and the names.
    names: Vec<NumberedName>,
    /// The names, one behind the other.
    text: String,
    /// The last name of each hash.
    last: HashMap<u32, u32>,
    hasher: RandomState,
}

#[derive(Debug)]
struct NumberedName {
    directory: u32,
    /// Where it starts in the text; it ends where the next one starts.
    start: u32,
    /// The name before it with the same hash; 0 for none, as the name of `arrays/` itself is never looked up.
    before: u32,
}

impl Default for Numbers {
    fn default() -> Self {
        let top = NumberedName {
            directory: 0,
            start: 0,
            before: 0,
        };
        Self {
            names: vec![top],
            text: String::new(),
            last: HashMap::new(),
            hasher: RandomState::new(),
        }
    }
}

impl Numbers {
    /// Whether no name has a number yet.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// The memory that they take, in bytes, as estimated.
    fn weight(&self) -> usize {
        let names = self.names.len().saturating_mul(PER_NAME);
        names.saturating_add(self.text.len())
    }

    /// The number of that name in that directory, or `None` when there are 2^32 of them, or 4 GiB.
    pub(super) fn of(&mut self, directory: u32, name: &str) -> Option<u32> {
        if let Some(known) = self.find(directory, name) {
            return Some(known);
        }
        let number = u32::try_from(self.names.len()).ok()?;
        let start = u32::try_from(self.text.len()).ok()?;
        self.text.push_str(name);
        let last = self.last.insert(self.hash(directory, name), number);
        self.names.push(NumberedName {
            directory,
            start,
            before: last.unwrap_or(0),
        });
        Some(number)
    }

    /// The number of that name in that directory, if it was given one.
    fn find(&self, directory: u32, name: &str) -> Option<u32> {
        let mut number = *self.last.get(&self.hash(directory, name))?;
        while number != 0 {
            let known = self.names.get(index(number))?;
            if known.directory == directory && self.name(number) == Some(name) {
                return Some(number);
            }
            number = known.before;
        }
        None
    }

    /// The number of a path below `arrays/`, if it was given one.
    fn at(&self, path: &str) -> Option<u32> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(0, |directory, name| self.find(directory, name))
    }

    /// Half of a hash: names that share one are told apart by themselves.
    fn hash(&self, directory: u32, name: &str) -> u32 {
        let hash = self.hasher.hash_one((directory, name)) >> u32::BITS;
        u32::try_from(hash).unwrap_or(0)
    }

    /// The name of that number.
    fn name(&self, number: u32) -> Option<&str> {
        let at = index(number);
        let start = index(self.names.get(at)?.start);
        let next = self.names.get(at.saturating_add(1));
        self.text
            .get(start..next.map_or(self.text.len(), |next| index(next.start)))
    }

    /// The directory that has the name of that number.
    fn directory(&self, number: u32) -> Option<u32> {
        Some(self.names.get(index(number))?.directory)
    }
}

/// The number of something under `arrays/`.
fn number(node: Node) -> Option<u32> {
    match node {
        Node::ArrayDir(number) | Node::Array(number, _) | Node::ArrayLink(number) => Some(number),
        _ => None,
    }
}

/// The entries of a catalogue, in the order of the tree.
fn entries(snapshot: &Snapshot, paths: &Paths, numbers: &mut Numbers) -> Vec<CatalogueEntry> {
    let mut entries = Vec::new();
    // a link may lead to what has no number yet
    let mut links = Vec::new();
    // the number of each directory, which stands in front of what is in it
    let mut made = HashMap::from([(PlaceId::ROOT, 0)]);
    for (id, place) in paths.outline().ids().skip(1) {
        let (files, is_directory) = snapshot.found().shows(paths, id);
        let Some(&directory) = made.get(&place.parent) else {
            continue;
        };
        // beyond the limit there is no number, so no file
        let mut enter = |name: &str, kind| {
            let number = numbers.of(directory, name)?;
            entries.push(CatalogueEntry {
                directory,
                number,
                kind,
            });
            Some(number)
        };
        if files {
            let stem = paths.stem(id);
            if let What::Link { to, .. } = place.what {
                let files =
                    Format::ALL.map(|format| (format!("{stem}{}", format.suffix()), format));
                links.extend(files.map(|(name, format)| (directory, name, to, Some(format))));
            } else if let What::Array(i) = place.what
                && let Some(array) = snapshot.arrays().get(index(i))
            {
                enter(&stem, EntryKind::Array(i, array.data().clone()));
            }
        }
        if is_directory {
            let name = paths.directory_name(id);
            if let What::Link { to, .. } = place.what {
                links.push((directory, name.into_owned(), to, None));
            } else if let Some(number) = enter(&name, EntryKind::Directory(id)) {
                made.insert(id, number);
            }
        }
    }
    let links = links
        .into_iter()
        .filter_map(|(directory, name, to, format)| {
            let target = match format {
                Some(format) => Node::Array(numbers.at(&paths.file_path(to))?, format),
                None => Node::ArrayDir(*made.get(&to)?),
            };
            Some(CatalogueEntry {
                directory,
                number: numbers.of(directory, &name)?,
                kind: EntryKind::Link(target),
            })
        });
    entries.extend(links);
    entries
}

#[cfg(test)]
mod tests;
