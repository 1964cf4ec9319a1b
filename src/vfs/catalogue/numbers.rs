//! The numbers of the names under `arrays/`. A name keeps its number for the life of the mount.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::vfs::index;

/// Bytes that a name takes beside its text: its place in the list, and in the table by hashes.
const PER_NAME: usize = 32;

/// Numbers given to paths under `arrays/`: to each name in the directory of a number. A path keeps its number for the life of
/// the mount; only paths that a save brings in for the first time make the list grow.
#[derive(Debug)]
pub(in crate::vfs) struct Numbers {
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
    pub(in crate::vfs) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// The memory that they take, in bytes, as estimated.
    pub(super) fn weight(&self) -> usize {
        let names = self.names.len().saturating_mul(PER_NAME);
        names.saturating_add(self.text.len())
    }

    /// The number of that name in that directory, or `None` when there are 2^32 of them, or 4 GiB.
    pub(in crate::vfs) fn of(&mut self, directory: u32, name: &str) -> Option<u32> {
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
    pub(super) fn find(&self, directory: u32, name: &str) -> Option<u32> {
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
    pub(super) fn at(&self, path: &str) -> Option<u32> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(0, |directory, name| self.find(directory, name))
    }

    /// Half of a hash: names that share one are told apart by themselves.
    fn hash(&self, directory: u32, name: &str) -> u32 {
        let hash = self.hasher.hash_one((directory, name)) >> u32::BITS;
        u32::try_from(hash).unwrap_or(0)
    }

    /// The name of that number.
    pub(super) fn name(&self, number: u32) -> Option<&str> {
        let at = index(number);
        let start = index(self.names.get(at)?.start);
        let next = self.names.get(at.saturating_add(1));
        self.text
            .get(start..next.map_or(self.text.len(), |next| index(next.start)))
    }

    /// The directory that has the name of that number.
    pub(super) fn directory(&self, number: u32) -> Option<u32> {
        Some(self.names.get(index(number))?.directory)
    }
}
