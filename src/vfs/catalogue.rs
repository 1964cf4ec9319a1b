//! The names under `arrays/`: directories, files and links, with numbers that outlive a save.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};

use super::node::Node;
use crate::asdf::names::SUFFIXES;

/// Numbers given to paths under `arrays/`. A path keeps its number for the life of the mount; only paths that a save brings
/// in for the first time make the list grow.
#[derive(Debug)]
pub(super) struct Numbers(HashMap<String, u32>);

impl Default for Numbers {
    fn default() -> Self {
        Self(HashMap::from([(String::new(), 0)]))
    }
}

impl Numbers {
    /// The number of that path, or `None` when 2^32 have been given.
    fn of(&mut self, path: &str) -> Option<u32> {
        if let Some(&number) = self.0.get(path) {
            return Some(number);
        }
        let number = u32::try_from(self.0.len()).ok()?;
        self.0.insert(path.to_owned(), number);
        Some(number)
    }
}

/// What a name under `arrays/` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// The array of that index in the snapshot, as `.bin` and `.npy`.
    Array(usize),
    /// A link to a directory, with its target relative to the link's directory.
    DirectoryLink(String),
    /// Links to an array's two files, with the target relative and without its ending.
    ArrayLink(String),
    /// The reference of that index in the snapshot, should it stand for an array.
    ArrayElsewhere(usize),
    /// The reference of that index in the snapshot, should it stand for something that holds arrays.
    DirectoryElsewhere(usize),
}

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// To this path, relative to the link's directory.
    Here(String),
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
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    directories: HashMap<u32, Directory>,
    arrays: HashMap<u32, usize>,
    links: HashMap<u32, Target>,
}

impl Catalogue {
    /// The catalogue of these items, each with the file names that lead to it (without `.bin` or `.npy`).
    ///
    /// Items whose path holds nothing, or beyond the numbers' limit, are left out.
    pub(super) fn new(
        items: impl IntoIterator<Item = (Vec<String>, Item)>,
        numbers: &mut Numbers,
    ) -> Self {
        let mut catalogue = Self::default();
        catalogue.directories.insert(0, Directory::default());
        for (path, item) in items {
            // beyond the limit there is no number, so no file
            let _ = catalogue.add(&path, item, numbers);
        }
        for directory in catalogue.directories.values_mut() {
            directory.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        catalogue
    }

    fn add(&mut self, path: &[String], item: Item, numbers: &mut Numbers) -> Option<()> {
        let (name, parents) = path.split_last()?;
        let mut joined = String::new();
        let mut parent = 0;
        for component in parents {
            joined.push('/');
            joined.push_str(component);
            parent = self.directory(parent, component, numbers.of(&joined)?);
        }
        joined.push('/');
        joined.push_str(name);
        let number = numbers.of(&joined)?;
        let entries = &mut self.directories.get_mut(&parent)?.entries;
        match item {
            Item::Array(index) => {
                entries.push((format!("{name}.bin").into(), Node::ArrayBin(number)));
                entries.push((format!("{name}.npy").into(), Node::ArrayNpy(number)));
                self.arrays.insert(number, index);
            }
            Item::DirectoryLink(target) => {
                entries.push((name.into(), Node::ArrayLink(number)));
                self.links.insert(number, Target::Here(target));
            }
            Item::DirectoryElsewhere(reference) => {
                entries.push((name.into(), Node::ArrayLink(number)));
                self.links
                    .insert(number, Target::Elsewhere(reference, None));
            }
            Item::ArrayLink(target) => {
                let target = |ending| Target::Here(format!("{target}{ending}"));
                self.link_files(parent, path, target, numbers)?;
            }
            Item::ArrayElsewhere(reference) => {
                let target = |ending| Target::Elsewhere(reference, Some(ending));
                self.link_files(parent, path, target, numbers)?;
            }
        }
        Some(())
    }

    /// Links in the directory `parent` for the two files of an array at `path`.
    fn link_files(
        &mut self,
        parent: u32,
        path: &[String],
        target: impl Fn(&'static str) -> Target,
        numbers: &mut Numbers,
    ) -> Option<()> {
        let name = path.last()?;
        let joined = path.join("/");
        for ending in SUFFIXES {
            let link = numbers.of(&format!("/{joined}{ending}"))?;
            let entries = &mut self.directories.get_mut(&parent)?.entries;
            entries.push((format!("{name}{ending}").into(), Node::ArrayLink(link)));
            self.links.insert(link, target(ending));
        }
        Some(())
    }

    /// The directory of that number in `parent`, made if it is new.
    fn directory(&mut self, parent: u32, name: &str, number: u32) -> u32 {
        if let Entry::Vacant(vacant) = self.directories.entry(number) {
            vacant.insert(Directory {
                parent,
                ..Directory::default()
            });
            if let Some(above) = self.directories.get_mut(&parent) {
                above.entries.push((name.into(), Node::ArrayDir(number)));
                above.subdirectories = above.subdirectories.saturating_add(1);
            }
        }
        number
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
        self.arrays.get(&number).copied()
    }

    /// Target of the link with that number.
    #[must_use]
    pub(super) fn link(&self, number: u32) -> Option<&Target> {
        self.links.get(&number)
    }

    /// Every array's number and index.
    pub(super) fn arrays(&self) -> impl Iterator<Item = (u32, usize)> {
        self.arrays.iter().map(|(&number, &index)| (number, index))
    }

    /// Names that `self` has and `other` lacks or has for another node: the directory's number and the name.
    #[must_use]
    pub(super) fn missing_in(&self, other: &Self) -> Vec<(u32, OsString)> {
        let mut out = Vec::new();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    fn catalogue(numbers: &mut Numbers, paths: &[&str]) -> Catalogue {
        Catalogue::new(
            paths
                .iter()
                .enumerate()
                .map(|(i, text)| (path(text), Item::Array(i))),
            numbers,
        )
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
        let found = catalogue(&mut Numbers::default(), &["meta/flux", "data"]);
        assert_eq!(names(&found, 0), ["data.bin", "data.npy", "meta"]);
        let Some(Node::ArrayDir(meta)) = found.lookup(0, "meta".as_ref()) else {
            panic!("no directory")
        };
        assert_eq!(names(&found, meta), ["flux.bin", "flux.npy"]);
        let Some(Node::ArrayBin(flux)) = found.lookup(meta, "flux.bin".as_ref()) else {
            panic!("no file")
        };
        assert_eq!(found.array(flux), Some(0));
        assert_eq!(found.directory_facts(meta), Some((0, 0)));
        assert_eq!(found.lookup(0, "flux.bin".as_ref()), None);
    }

    #[test]
    fn a_save_changes_no_number() {
        let mut numbers = Numbers::default();
        let before = catalogue(&mut numbers, &["a", "b", "c"]);
        let after = catalogue(&mut numbers, &["c", "x", "a"]);
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
        let items = [
            (path("a/x"), Item::Array(0)),
            (path("b"), Item::DirectoryLink("a".into())),
            (path("y"), Item::ArrayLink("a/x".into())),
        ];
        let found = Catalogue::new(items, &mut Numbers::default());
        assert_eq!(names(&found, 0), ["a", "b", "y.bin", "y.npy"]);
        let Some(Node::ArrayLink(link)) = found.lookup(0, "y.npy".as_ref()) else {
            panic!("no link")
        };
        assert_eq!(found.link(link), Some(&Target::Here("a/x.npy".into())));
    }
}
