//! `zarr/`: the arrays as a group of Zarr, read-only; [`view::zarr`](crate::view::zarr) says how.
//!
//! The directories and files of an array are computed from its shape. Each array gets a range of numbers for its directories, and one for
//! its files, when a request first looks into `zarr/`; a group has the number of its directory under `arrays/`. Numbers of arrays mean
//! others when the tree changes: then the inodes have another version, and a name is looked up in a directory of this version only.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, OnceLock};

use super::catalogue::{Catalogue, EntryKind};
use super::error::{are_names, check_name};
use super::node::{Format, NUMBERS, Node, View};
use super::{Error, Result, locked};
use crate::asdf::{Origin, Snapshot};
use crate::error::{Error as Library, unsupported};
use crate::source::{Memory, Source, len_u64};
use crate::view::zarr::{
    CHUNKS, Chunks, METADATA, Object, group, names_in_arrays, node_name, text,
};

/// The first number of what is in an array; those below are of groups.
const FIRST: u32 = NUMBERS / 2;
/// Most nodes below a group whose metadata it has, too, and most bytes of these and their paths: each array repeats the scalars of its group.
const MAX_CONSOLIDATED: usize = 10_000;
const MAX_BYTES_CONSOLIDATED: usize = 16 << 20;

/// What `zarr/` shows of the arrays of a state.
#[derive(Debug, Default)]
pub(super) struct ZarrView {
    /// Sorted by the number of the array under `arrays/`.
    slots: Vec<Slot>,
    /// Bytes of the metadata of groups, by the numbers of these.
    lens: Mutex<HashMap<u32, u64>>,
}

/// The numbers of what is in an array.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The number of its name under `arrays/`.
    name: u32,
    /// Its index in the snapshot.
    array: usize,
    /// The first number of its directories: its own; then come those of chunks.
    directories: u32,
    /// The first number of its files: its metadata; then come the chunks.
    files: u32,
}

/// `zarr/` of a state.
#[derive(Clone, Copy)]
pub(super) struct Zarr<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) catalogue: &'a Catalogue,
    /// Made by the first request that needs it.
    pub(super) shown: &'a OnceLock<ZarrView>,
}

/// A directory of `zarr/`.
enum Directory {
    Group(u32),
    Array(Slot),
    /// That at a place of the chunks.
    Chunks(Slot, Chunks, u64),
}

/// A file of `zarr/`.
enum File {
    Group(u32),
    Array(Slot),
    Chunk(Slot, u64),
}

impl ZarrView {
    /// What is shown of these arrays, as long as there are numbers.
    fn new(snapshot: &Snapshot, catalogue: &Catalogue) -> Self {
        let mut arrays: Vec<_> = catalogue.numbers_of_arrays().collect();
        arrays.sort_unstable_by_key(|(_, name)| *name);
        // each array takes a run of numbers, so that a number is turned into array and chunk by one binary search
        let (mut directories, mut files) = (FIRST, FIRST);
        let slots = arrays.into_iter().filter_map(|(array, name)| {
            let chunks = snapshot.zarr_chunks(array).ok()?;
            let slot = Slot {
                name,
                array,
                directories,
                files,
            };
            (directories, files) = (
                behind(directories, chunks.directories())?,
                behind(files, chunks.count())?,
            );
            Some(slot)
        });
        Self {
            slots: slots.collect(),
            lens: Mutex::default(),
        }
    }

    /// The array with that number under `arrays/`.
    fn of_name(&self, name: u32) -> Option<&Slot> {
        let at = self.slots.binary_search_by_key(&name, |slot| slot.name);
        self.slots.get(at.ok()?)
    }

    /// The array that the number of a directory or file is of, with how many of its numbers are before it.
    fn of_number(&self, number: u32, first: impl Fn(&Slot) -> u32) -> Option<(&Slot, u32)> {
        // the last array whose run begins at or before the number
        let behind = self.slots.partition_point(|slot| first(slot) <= number);
        let slot = self.slots.get(behind.checked_sub(1)?)?;
        Some((slot, number.checked_sub(first(slot))?))
    }
}

/// The number behind `first` and so many more, if there is one.
fn behind(first: u32, more: u64) -> Option<u32> {
    let next = u64::from(first).checked_add(1)?.checked_add(more)?;
    u32::try_from(next).ok().filter(|next| *next <= NUMBERS)
}

/// Adds to the first number of an array's directories or files.
fn number(first: u32, at: u64) -> Option<u32> {
    first.checked_add(u32::try_from(at).ok()?)
}

fn directory(number: u32) -> Node {
    Node::ViewDir(View::Zarr, number)
}

fn file(number: u32) -> Node {
    Node::View(View::Zarr, number)
}

impl Slot {
    /// The node of a place of the chunks.
    fn node(self, chunks: &Chunks, place: u64) -> Option<Node> {
        let behind = |first, at: u64| number(first, at.checked_add(1)?);
        match chunks.chunk(place) {
            Some(chunk) => behind(self.files, chunk).map(file),
            None => behind(self.directories, place).map(directory),
        }
    }
}

impl<'a> Zarr<'a> {
    /// What is shown.
    fn shown(self) -> &'a ZarrView {
        let made = || ZarrView::new(self.snapshot, self.catalogue);
        self.shown.get_or_init(made)
    }

    fn chunks(self, slot: Slot) -> Option<Chunks> {
        self.snapshot.zarr_chunks(slot.array).ok()
    }

    fn directory_of(self, number: u32) -> Option<Directory> {
        if number < FIRST {
            self.catalogue.entries(number)?;
            return Some(Directory::Group(number));
        }
        let (slot, at) = self.shown().of_number(number, |slot| slot.directories)?;
        let Some(at) = at.checked_sub(1) else {
            return Some(Directory::Array(*slot));
        };
        let chunks = self.chunks(*slot)?;
        let is_there = u64::from(at) < chunks.directories();
        is_there.then(|| Directory::Chunks(*slot, chunks, at.into()))
    }

    fn file_of(self, number: u32) -> Option<File> {
        if number < FIRST {
            self.catalogue.entries(number)?;
            return Some(File::Group(number));
        }
        let (slot, at) = self.shown().of_number(number, |slot| slot.files)?;
        let Some(at) = at.checked_sub(1) else {
            return Some(File::Array(*slot));
        };
        // a number behind the last chunk is of no file: the kernel may ask for one of an earlier tree
        let count = self.chunks(*slot)?.count();
        Some(File::Chunk(*slot, at.into())).filter(|_| u64::from(at) < count)
    }

    /// Whether there is a directory of that number.
    pub(super) fn has_directory(self, number: u32) -> bool {
        self.directory_of(number).is_some()
    }

    /// The node of that name in a directory.
    pub(super) fn find(self, within: u32, name: &OsStr) -> Option<Node> {
        let name = name.to_str()?;
        match self.directory_of(within)? {
            Directory::Group(number) if name == METADATA => Some(file(number)),
            Directory::Group(within) => {
                let found = |(name, is_beside): (String, bool)| {
                    let number = self.catalogue.number(within, &name)?;
                    self.node_in_group(within, number, is_beside)
                };
                names_in_arrays(name).find_map(found)
            }
            Directory::Array(slot) if name == METADATA => Some(file(slot.files)),
            Directory::Array(slot) if name == CHUNKS => slot.node(&self.chunks(slot)?, 0),
            Directory::Array(_) => None,
            Directory::Chunks(slot, chunks, within) => {
                slot.node(&chunks, chunks.entry(within, Chunks::index(name)?)?)
            }
        }
    }

    /// The node of a name under `arrays/`: the group if it is a directory beside an array, else the array, or the group if there is none.
    fn node_in_group(self, within: u32, number: u32, is_beside: bool) -> Option<Node> {
        let is_array = self.catalogue.array(number).is_some();
        let holder = self.catalogue.directory_of(number)?;
        if is_array && !is_beside {
            let slot = self.shown().of_name(number)?;
            return Some(directory(slot.directories)).filter(|_| holder == within);
        }
        let is_group = is_array == is_beside && self.catalogue.entries(number).is_some();
        is_group.then(|| directory(number))
    }

    /// The next name of a directory from `position` on, which is moved behind it: the metadata first.
    pub(super) fn next(self, within: u32, position: &mut usize) -> Option<(OsString, Node)> {
        let known = self.directory_of(within)?;
        let at = *position;
        *position = at.saturating_add(1);
        let (name, node) = match (&known, at.checked_sub(1)) {
            (Directory::Group(number), None) => (METADATA.to_owned(), file(*number)),
            (Directory::Group(number), Some(mut entry)) => {
                let next = self.next_in_group(*number, &mut entry)?;
                *position = entry.saturating_add(1);
                next
            }
            (Directory::Array(slot), None) => (METADATA.to_owned(), file(slot.files)),
            (Directory::Array(slot), Some(0)) => {
                let chunks = self.chunks(*slot)?;
                (CHUNKS.to_owned(), slot.node(&chunks, 0)?)
            }
            (Directory::Array(_), Some(_)) => return None,
            (Directory::Chunks(slot, chunks, within), _) => {
                let entry = chunks.entry(*within, len_u64(at))?;
                (at.to_string(), slot.node(chunks, entry)?)
            }
        };
        Some((name.into(), node))
    }

    /// The next node of a group from entry `at` of its directory under `arrays/` on, which is moved behind it.
    fn next_in_group(self, group: u32, at: &mut usize) -> Option<(String, Node)> {
        let entries = self.catalogue.entries(group)?;
        loop {
            let (number, name, kind) = self.catalogue.entry(&entries, *at)?;
            *at = at.saturating_add(1);
            let node = match kind {
                EntryKind::Directory(_) => Some(directory(number)),
                EntryKind::Array(..) => {
                    let slot = self.shown().of_name(number);
                    slot.map(|slot| directory(slot.directories))
                }
                EntryKind::Link(_) => None,
            };
            let is_directory = matches!(kind, EntryKind::Directory(_));
            let is_beside = is_directory && self.catalogue.array(number).is_some();
            let name = node_name(&name, is_beside);
            if let Some(node) = node.filter(|_| check_name(name.as_ref()).is_ok()) {
                return Some((name, node));
            }
        }
    }

    /// Bytes of a file.
    pub(super) fn len(self, number: u32) -> Result<u64> {
        Ok(match self.file_of(number).ok_or(Error::NotFound)? {
            File::Group(group) => {
                if let Some(len) = locked(&self.shown().lens).get(&group) {
                    return Ok(*len);
                }
                let len = len_u64(self.group_text(group).len());
                locked(&self.shown().lens).insert(group, len);
                len
            }
            File::Array(slot) => len_u64(self.array_text(slot)?.len()),
            File::Chunk(slot, _) => self.snapshot.zarr_chunks(slot.array)?.chunk_len(),
        })
    }

    /// The bytes of a file.
    pub(super) fn source(self, number: u32) -> Result<Arc<dyn Source>, Library> {
        let missing = || unsupported("the tree no longer has this array");
        Ok(match self.file_of(number).ok_or_else(missing)? {
            File::Group(group) => Arc::new(Memory::new(self.group_text(group))),
            File::Array(slot) => Arc::new(Memory::new(self.array_text(slot)?)),
            File::Chunk(slot, chunk) => {
                let elements = Format::Bin.saved(self.snapshot, slot.array)?;
                self.snapshot.zarr_chunk(slot.array, chunk, elements)?
            }
        })
    }

    /// Where the elements of a chunk are; those of any other file are nowhere.
    pub(super) fn origin(self, number: u32) -> Option<&'a Origin> {
        match self.file_of(number)? {
            File::Chunk(slot, _) => Some(self.snapshot.arrays().get(slot.array)?.origin()),
            File::Group(_) | File::Array(_) => None,
        }
    }

    /// The directory of array `i` below the mountpoint, and its chunks.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn listed(self, i: usize) -> Result<(String, Chunks), Library> {
        let chunks = self.snapshot.zarr_chunks(i)?;
        let name = self.catalogue.number_of_array(self.snapshot, i);
        let slot = name.and_then(|name| self.shown().of_name(name));
        let slot = slot.ok_or_else(|| unsupported("more chunks than there are numbers for"))?;
        let path = self.path(directory(slot.directories));
        let path = path.filter(|path| are_names(path));
        let path = path.ok_or_else(|| unsupported("its name would be too long"))?;
        Ok((path, chunks))
    }

    /// The text of the metadata of an array.
    fn array_text(self, slot: Slot) -> Result<Vec<u8>, Library> {
        Ok(text(&self.snapshot.zarr_metadata(slot.array)?))
    }

    /// The text of the metadata of a group, with that of all nodes below it unless they are too many.
    fn group_text(self, number: u32) -> Vec<u8> {
        let (mut below, mut room) = (Object::new(), MAX_BYTES_CONSOLIDATED);
        let all = self.add_below(number, "", &mut below, &mut room);
        text(&group(&self.group_attributes(number), all.map(|()| below)))
    }

    /// Adds the metadata of what is below a group by its paths. `None` if there is too much of it.
    fn add_below(self, within: u32, path: &str, out: &mut Object, room: &mut usize) -> Option<()> {
        let mut at = 0;
        while let Some((name, Node::ViewDir(_, number))) = self.next_in_group(within, &mut at) {
            if out.len() >= MAX_CONSOLIDATED {
                return None;
            }
            let path = format!("{path}{name}");
            let metadata = match self.directory_of(number) {
                Some(Directory::Group(_)) => Some(group(&self.group_attributes(number), None)),
                Some(Directory::Array(slot)) => self.snapshot.zarr_metadata(slot.array).ok(),
                Some(Directory::Chunks(..)) | None => None,
            };
            if let Some(metadata) = metadata {
                let len = path.len().saturating_add(text(&metadata).len());
                *room = room.checked_sub(len)?;
                out.insert(path.clone(), metadata);
            }
            if number < FIRST {
                self.add_below(number, &(path + "/"), out, room)?;
            }
        }
        Some(())
    }

    /// The attributes of a group.
    fn group_attributes(self, number: u32) -> Object {
        let place = self.catalogue.place_of(number);
        place.map_or_else(Object::new, |place| self.snapshot.zarr_attributes(place))
    }

    /// The path of a file or directory below the mountpoint.
    pub(super) fn path(self, node: Node) -> Option<String> {
        let below = |directory: u32, name: &str| {
            Some(format!("{}/{name}", self.path(self::directory(directory))?))
        };
        match node {
            Node::ViewDir(View::Zarr, 0) => Some(View::Zarr.name().to_owned()),
            Node::ViewDir(View::Zarr, number) => match self.directory_of(number)? {
                Directory::Group(number) => {
                    let (within, name) = self.catalogue.name_of(number)?;
                    let is_beside = self.catalogue.array(number).is_some();
                    below(within, &node_name(&name, is_beside))
                }
                Directory::Array(slot) => {
                    let (within, name) = self.catalogue.name_of(slot.name)?;
                    below(within, &node_name(&name, false))
                }
                Directory::Chunks(slot, chunks, directory) => {
                    below(slot.directories, &chunks.key(directory))
                }
            },
            Node::View(View::Zarr, number) => match self.file_of(number)? {
                File::Group(number) => below(number, METADATA),
                File::Array(slot) => below(slot.directories, METADATA),
                File::Chunk(slot, chunk) => {
                    let chunks = self.chunks(slot)?;
                    below(slot.directories, &chunks.key(chunks.place(chunk)))
                }
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;

    /// A mapping of long texts that others merge made metadata of gigabytes, as each array has its own copy.
    #[test]
    fn metadata_that_are_too_long_together_are_those_of_each_node_alone() {
        let texts = |n| format!("  k{n}: {}\n", "x".repeat(4000));
        let base: String = (0..200).map(texts).collect();
        let has_all = |count: usize| {
            let array =
                "!core/ndarray-1.0.0 {source: 0, datatype: int8, byteorder: big, shape: [1]}";
            let group = |n| format!("m{n}: {{<<: *b, x: {array}}}\n");
            let groups: String = (0..count).map(group).collect();
            let text = format!(
                "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n---\nb: &b\n{base}{groups}...\n"
            );
            let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()).block(b"1"));
            let state = vfs.shown.now();
            let zarr = state.in_views().zarr();
            let text = String::from_utf8(zarr.group_text(0)).unwrap();
            assert_eq!(zarr.len(0).unwrap(), len_u64(text.len()));
            text.contains("consolidated_metadata")
        };
        assert!(has_all(2));
        assert!(!has_all(12));
    }
}
