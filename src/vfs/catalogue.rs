//! The names under `arrays/`: directories, files and links, with numbers that outlive a save.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};

use super::format::Format;
use super::node::Node;
use crate::asdf::Places;
use crate::asdf::names::SUFFIXES;
use crate::asdf::outline::PlaceId;

/// Numbers given to paths under `arrays/`: to each name in the directory of a number. A path keeps its number for the life of
/// the mount; only paths that a save brings in for the first time make the list grow.
#[derive(Debug)]
pub(super) struct Numbers(HashMap<(u32, Box<str>), u32>);

impl Default for Numbers {
    fn default() -> Self {
        Self(HashMap::from([((0, "".into()), 0)]))
    }
}

impl Numbers {
    /// The number of that name in that directory, or `None` when 2^32 have been given.
    fn of(&mut self, directory: u32, name: impl Into<Box<str>>) -> Option<u32> {
        let next = u32::try_from(self.0.len()).ok();
        match self.0.entry((directory, name.into())) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => next.map(|next| *new.insert(next)),
        }
    }
}

/// What a place has under `arrays/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// The array of that index in the snapshot, as `.bin` and `.npy`.
    Array(usize),
    /// A link to the directory of that place.
    DirectoryLink(PlaceId),
    /// Links to the two files of the array at that place.
    ArrayLink(PlaceId),
    /// The reference of that index in the snapshot, should it stand for an array.
    ArrayElsewhere(usize),
    /// The reference of that index in the snapshot, should it stand for something that holds arrays.
    DirectoryElsewhere(usize),
}

/// Where a link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// From one place to another: to its directory, or to its file with this ending.
    Here {
        /// The place of the link.
        from: PlaceId,
        /// The place that it leads to.
        to: PlaceId,
        /// The ending of the file.
        ending: Option<&'static str>,
    },
    /// To what the reference of that index stands for in another mount: a directory, or a file with this ending.
    Elsewhere(usize, Option<&'static str>),
}

/// A directory under `arrays/`.
#[derive(Debug, Default)]
struct Directory {
    parent: u32,
    /// Sorted by name.
    entries: Vec<(OsString, Node)>,
    subdirectories: u32,
}

/// All names under `arrays/` of one snapshot.
#[derive(Debug)]
pub(super) struct Catalogue {
    directories: HashMap<u32, Directory>,
    /// By the number of each array: that of its directory, and its index in the snapshot.
    arrays: HashMap<u32, (u32, u32)>,
    links: HashMap<u32, Target>,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self {
            directories: HashMap::from([(0, Directory::default())]),
            arrays: HashMap::new(),
            links: HashMap::new(),
        }
    }
}

impl Catalogue {
    /// The catalogue of these items, each with its place.
    ///
    /// Items beyond the numbers' limit are left out.
    pub(super) fn new(
        places: &Places,
        items: impl IntoIterator<Item = (PlaceId, Item)>,
        numbers: &mut Numbers,
    ) -> Self {
        let mut maker = Maker {
            catalogue: Self::default(),
            places,
            numbers,
            made: HashMap::from([(PlaceId::ROOT, 0)]),
        };
        for (place, item) in items {
            // beyond the limit there is no number, so no file
            let _ = maker.add(place, item);
        }
        let mut catalogue = maker.catalogue;
        for directory in catalogue.directories.values_mut() {
            directory.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        catalogue
    }

    /// The node of that name in a directory.
    #[must_use]
    pub(super) fn lookup(&self, directory: u32, name: &OsStr) -> Option<Node> {
        let entries = self.entries(directory)?;
        let at = entries
            .binary_search_by(|entry| entry.0.as_os_str().cmp(name))
            .ok()?;
        entries.get(at).map(|entry| entry.1)
    }

    /// The names in a directory, sorted.
    #[must_use]
    pub(super) fn entries(&self, directory: u32) -> Option<&[(OsString, Node)]> {
        Some(&self.directories.get(&directory)?.entries)
    }

    /// The directory that holds a directory, and how many it holds itself.
    #[must_use]
    pub(super) fn directory_facts(&self, directory: u32) -> Option<(u32, u32)> {
        self.directories
            .get(&directory)
            .map(|found| (found.parent, found.subdirectories))
    }

    /// Index in the snapshot of the array with that number.
    #[must_use]
    pub(super) fn array(&self, number: u32) -> Option<usize> {
        let (_, index) = self.arrays.get(&number)?;
        usize::try_from(*index).ok()
    }

    /// Number of the directory that holds the array with that number.
    #[must_use]
    pub(super) fn directory_of(&self, array: u32) -> Option<u32> {
        self.arrays.get(&array).map(|(directory, _)| *directory)
    }

    /// Target of the link with that number.
    #[must_use]
    pub(super) fn link(&self, number: u32) -> Option<&Target> {
        self.links.get(&number)
    }

    /// Every array's number and index.
    pub(super) fn arrays(&self) -> impl Iterator<Item = (u32, usize)> {
        let arrays = self.arrays.iter();
        arrays.filter_map(|(&number, &(_, index))| Some((number, usize::try_from(index).ok()?)))
    }

    /// Names that `self` has and `other` lacks or has for another node: the directory's number and the name.
    #[must_use]
    pub(super) fn missing_in(&self, other: &Self) -> Vec<(u32, OsString)> {
        let mut out = Vec::new();
        if std::ptr::eq(self, other) {
            return out;
        }
        for (&number, directory) in &self.directories {
            for (name, node) in &directory.entries {
                if other.lookup(number, name) != Some(*node) {
                    out.push((number, name.clone()));
                }
            }
        }
        out
    }
}

/// A catalogue that is being made.
struct Maker<'a> {
    catalogue: Catalogue,
    places: &'a Places,
    numbers: &'a mut Numbers,
    /// The numbers of the places that are directories.
    made: HashMap<PlaceId, u32>,
}

impl Maker<'_> {
    fn add(&mut self, place: PlaceId, item: Item) -> Option<()> {
        let parent = self.directory(self.places.parent(place))?;
        match item {
            Item::Array(index) => {
                let stem = self.places.stem(place);
                let number = self.numbers.of(parent, &*stem)?;
                for format in Format::ALL {
                    let name = format!("{stem}{}", format.suffix());
                    self.enter(parent, name, Node::Array(number, format))?;
                }
                let index = u32::try_from(index).ok()?;
                self.catalogue.arrays.insert(number, (parent, index));
            }
            Item::DirectoryLink(to) => {
                let target = Target::Here {
                    from: place,
                    to,
                    ending: None,
                };
                self.link(parent, self.places.directory_name(place).into(), target)?;
            }
            Item::DirectoryElsewhere(reference) => {
                let target = Target::Elsewhere(reference, None);
                self.link(parent, self.places.directory_name(place).into(), target)?;
            }
            Item::ArrayLink(to) => {
                self.link_files(parent, place, |ending| Target::Here {
                    from: place,
                    to,
                    ending: Some(ending),
                })?;
            }
            Item::ArrayElsewhere(reference) => {
                let target = |ending| Target::Elsewhere(reference, Some(ending));
                self.link_files(parent, place, target)?;
            }
        }
        Some(())
    }

    fn enter(&mut self, directory: u32, name: String, node: Node) -> Option<()> {
        let directory = self.catalogue.directories.get_mut(&directory)?;
        directory.entries.push((name.into(), node));
        Some(())
    }

    fn link(&mut self, parent: u32, name: String, target: Target) -> Option<()> {
        let number = self.numbers.of(parent, name.as_str())?;
        self.enter(parent, name, Node::ArrayLink(number))?;
        self.catalogue.links.insert(number, target);
        Some(())
    }

    /// Links in the directory `parent` for the two files of an array at `place`.
    fn link_files(
        &mut self,
        parent: u32,
        place: PlaceId,
        target: impl Fn(&'static str) -> Target,
    ) -> Option<()> {
        let stem = self.places.stem(place);
        for ending in SUFFIXES {
            self.link(parent, format!("{stem}{ending}"), target(ending))?;
        }
        Some(())
    }

    /// The number of a place's directory, which is made if it is new, as are those that it is in.
    fn directory(&mut self, place: PlaceId) -> Option<u32> {
        let mut new = Vec::new();
        let mut at = place;
        let mut number = loop {
            match self.made.get(&at) {
                Some(number) => break *number,
                None => new.push(at),
            }
            at = self.places.parent(at);
        };
        while let Some(place) = new.pop() {
            let name = self.places.directory_name(place);
            let parent = number;
            number = self.numbers.of(parent, &*name)?;
            self.enter(parent, name.into(), Node::ArrayDir(number))?;
            let above = self.catalogue.directories.get_mut(&parent)?;
            above.subdirectories = above.subdirectories.saturating_add(1);
            let directory = Directory {
                parent,
                ..Directory::default()
            };
            self.catalogue.directories.insert(number, directory);
            self.made.insert(place, number);
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::tree::Tree;

    /// The places of a tree, in which `A` stands for an array.
    fn places(body: &str) -> Places {
        let array = "!<tag:stsci.edu:asdf/core/ndarray-1.0.0> [1]";
        let text = format!("---\n{}\n...\n", body.replace('A', array));
        Places::of(Tree::parse(text).unwrap())
    }

    fn id(places: &Places, path: &str) -> PlaceId {
        places.find(path).unwrap()
    }

    fn catalogue(numbers: &mut Numbers, body: &str, paths: &[&str]) -> Catalogue {
        let places = places(body);
        let items = paths.iter().enumerate();
        let items = items.map(|(i, path)| (id(&places, path), Item::Array(i)));
        Catalogue::new(&places, items, numbers)
    }

    fn names(catalogue: &Catalogue, directory: u32) -> Vec<&str> {
        catalogue
            .entries(directory)
            .unwrap()
            .iter()
            .map(|entry| entry.0.to_str().unwrap())
            .collect()
    }

    #[test]
    fn an_array_is_two_files_in_the_directory_of_its_path() {
        let found = catalogue(
            &mut Numbers::default(),
            "{meta: {flux: A}, data: A}",
            &["meta/flux", "data"],
        );
        assert_eq!(names(&found, 0), ["data.bin", "data.npy", "meta"]);
        let Some(Node::ArrayDir(meta)) = found.lookup(0, "meta".as_ref()) else {
            panic!("no directory")
        };
        assert_eq!(names(&found, meta), ["flux.bin", "flux.npy"]);
        let Some(Node::Array(flux, Format::Bin)) = found.lookup(meta, "flux.bin".as_ref()) else {
            panic!("no file")
        };
        assert_eq!(found.array(flux), Some(0));
        assert_eq!(found.directory_facts(meta), Some((0, 0)));
        assert_eq!(found.lookup(0, "flux.bin".as_ref()), None);
    }

    #[test]
    fn a_save_changes_no_number() {
        let mut numbers = Numbers::default();
        let before = catalogue(&mut numbers, "{a: A, b: A, c: A}", &["a", "b", "c"]);
        let after = catalogue(&mut numbers, "{c: A, x: A, a: A}", &["c", "x", "a"]);
        for name in ["a.bin", "c.npy"] {
            assert_eq!(
                before.lookup(0, name.as_ref()),
                after.lookup(0, name.as_ref())
            );
        }
        assert_eq!(
            before.missing_in(&after),
            [(0, "b.bin".into()), (0, "b.npy".into())]
        );
    }

    #[test]
    fn links_have_targets() {
        let places = places("{a: &a {x: &x A}, b: *a, y: *x}");
        let (a, x, b, y) = (
            id(&places, "a"),
            id(&places, "a/x"),
            id(&places, "b"),
            id(&places, "y"),
        );
        let items = [
            (x, Item::Array(0)),
            (b, Item::DirectoryLink(a)),
            (y, Item::ArrayLink(x)),
        ];
        let found = Catalogue::new(&places, items, &mut Numbers::default());
        assert_eq!(names(&found, 0), ["a", "b", "y.bin", "y.npy"]);
        let target = |name: &str| {
            let Some(Node::ArrayLink(link)) = found.lookup(0, name.as_ref()) else {
                panic!("no link {name}")
            };
            *found.link(link).unwrap()
        };
        let here = |from, to, ending| Target::Here { from, to, ending };
        assert_eq!(target("b"), here(b, a, None));
        assert_eq!(target("y.npy"), here(y, x, Some(".npy")));
    }
}
