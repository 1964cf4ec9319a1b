//! Which file a name leads to: a file of data whose form or bytes have changed is another file, with another inode number.
//!
//! The *version* of a file counts what has made it another one. Two states in which a file has the same version show the same bytes of
//! it, so the kernel may keep its pages for as long as it likes, and is never told of a change. A change that came through the file
//! itself leaves its version as it was: the kernel has these bytes already.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::index;
use super::node::{Node, View};
use crate::asdf::Origin;

/// Inode numbers tell so many versions of a file apart. Of two versions with the same remainder, the older one is long gone.
pub const VERSIONS: u64 = 1 << 10;

/// The blocks that a file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// None.
    Nothing,
    /// One.
    Block(usize),
    /// Some, which are not looked up: as those of an array in chunks.
    Several,
}

/// When files were made others, by a clock that goes on by one with each change. The version of a file is the time of the last change of
/// anything that it shows.
#[derive(Debug, Clone, Default)]
pub struct Versions {
    /// The time now.
    clock: u64,
    /// When this [`Vfs`](super::Vfs) began: no earlier one of FILE has had a greater version.
    begun: u64,
    /// When another program has changed FILE.
    elsewhere: u64,
    /// When FILE has got other attributes with the same time of change and length, which may hide a change of its bytes.
    touched: u64,
    /// When a save has changed each array of the tree, or taken it away, if one has.
    arrays: Arc<HashMap<u32, Change>>,
    /// When a save may have changed any of them.
    all_arrays: Option<Change>,
    /// When a save has changed the tree.
    tree: u64,
    /// When there was another streamed block.
    stream: u64,
    /// When a save has changed each block, if one has.
    blocks: Arc<HashMap<usize, Change>>,
    /// When FILE's bytes came to be that no save has changed since, if that is known.
    since: Option<SystemTime>,
    /// The version of a file through which its block was changed, with what it would be otherwise.
    own: Arc<HashMap<Node, OwnChange>>,
}

/// A change, by the clock of [`Versions`] and by that of the system.
#[derive(Debug, Clone, Copy)]
struct Change {
    clock: u64,
    at: SystemTime,
}

/// The last change of a block that came through one file.
#[derive(Debug, Clone, Copy)]
struct OwnChange {
    /// When, by the clock of [`Versions`]: the version that the change would give to the file.
    counted: u64,
    /// The version that the file has from then on.
    kept: u64,
}

/// That a block has other bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockChange {
    pub(super) block: usize,
    /// The file through which all of the change came, so that the kernel has it.
    pub(super) through: Option<Through>,
    /// When; [`None`] for the time of the save.
    pub(super) at: Option<SystemTime>,
}

impl BlockChange {
    /// The change that a save makes.
    pub(super) fn new(block: usize, through: Option<Through>) -> Self {
        let at = None;
        Self { block, through, at }
    }
}

/// A file that a change has come through, as it was when it was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Through {
    pub(super) file: Node,
    pub(super) version: u64,
    pub(super) form: u64,
    /// Whether FILE has what was written; else it was given up, and the kernel has other bytes than FILE.
    pub(super) is_saved: bool,
}

impl Versions {
    /// Those of a state that follows none with a greater version than `clock`.
    fn behind(clock: u64) -> Self {
        Self {
            clock,
            begun: clock,
            elsewhere: clock,
            touched: clock,
            tree: clock,
            stream: clock,
            ..Self::default()
        }
    }

    /// Those of files none of which is one of these.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self::behind(self.clock.saturating_add(1))
    }

    /// Whether nothing has changed since the beginning.
    pub(super) fn are_unchanged(&self) -> bool {
        self.clock == self.begun
    }

    /// When another program has changed FILE last, by the clock.
    pub(super) fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Moves the clock on.
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    /// Notes that there is another streamed block.
    pub(super) fn changed_stream(&mut self) {
        self.stream = self.tick();
    }

    /// Notes that FILE has been touched, which may hide that its bytes are others.
    pub(super) fn touch(&mut self) {
        self.touched = self.tick();
    }

    /// Another program has changed FILE, which has this time of change now.
    pub(super) fn changed_elsewhere(&mut self, at: SystemTime) {
        self.elsewhere = self.tick();
        self.since = Some(at);
        // An array in a stream does not count `elsewhere`: with the count of its own changes its version would fall. A stream of which no
        // array was declared anew is followed under its number.
        let changed = self.arrays.values().chain(&self.all_arrays);
        let changed = changed.map(|change| change.clock).max();
        self.stream = self.stream.max(changed.unwrap_or(0));
        // the one count of `elsewhere` covers all of them from now on
        self.blocks = Arc::default();
        self.arrays = Arc::default();
        self.all_arrays = None;
    }

    /// FILE's bytes are those with this time of change, if no other is known.
    pub(super) fn begin(&mut self, at: SystemTime) {
        self.since.get_or_insert(at);
    }

    /// The tree is another one, in which the arrays with these numbers show something else, or are no longer; `None`: perhaps all.
    pub(super) fn changed_tree(&mut self, changed: Option<&[u32]>, at: SystemTime) {
        let clock = self.tick();
        self.tree = clock;
        match changed {
            None => self.all_arrays = Some(Change { clock, at }),
            Some([]) => {}
            Some(changed) => {
                let changed = changed.iter().map(|number| (*number, Change { clock, at }));
                Arc::make_mut(&mut self.arrays).extend(changed);
            }
        }
    }

    /// A block has other bytes.
    pub(super) fn changed_block(&mut self, block: usize, at: SystemTime) {
        let clock = self.tick();
        Arc::make_mut(&mut self.blocks).insert(block, Change { clock, at });
    }

    /// The last change of a block has come through a file with this form; `own`: it has the form still.
    pub(super) fn changed_through(&mut self, file: Node, form: u64, block: usize, own: bool) {
        let counted = self.counted(file, Shows::Block(block));
        let kept = if own { form } else { counted };
        Arc::make_mut(&mut self.own).insert(file, OwnChange { counted, kept });
    }

    /// The changes of a block or array.
    fn changes(&self, file: Node, shows: Shows) -> impl Iterator<Item = Change> {
        let of_block = match shows {
            Shows::Block(block) => self.blocks.get(&block),
            Shows::Nothing | Shows::Several => None,
        };
        let all = (shows == Shows::Several).then(|| self.blocks.values());
        let of_array = match file {
            Node::Array(number, _) => [self.arrays.get(&number), self.all_arrays.as_ref()],
            _ => [None, None],
        };
        let changes = of_array.into_iter().chain([of_block]).flatten();
        changes.chain(all.into_iter().flatten()).copied()
    }

    /// When the last of the changes of a file was, by the clock, or `first` if that was later.
    fn last(&self, file: Node, shows: Shows, first: u64) -> u64 {
        let changes = self.changes(file, shows).map(|change| change.clock);
        changes.fold(first, u64::max)
    }

    /// When the bytes of a block or array came to be; `None` of any other file, which has the time of FILE.
    pub(super) fn time(&self, file: Node, shows: Shows) -> Option<SystemTime> {
        let changed = self.changes(file, shows).map(|change| change.at).max();
        match file {
            Node::Block(_) | Node::Array(..) => changed.or(self.since),
            _ => None,
        }
    }

    /// The version of a file, by what has changed.
    fn counted(&self, file: Node, shows: Shows) -> u64 {
        match file {
            // always the same directories, and texts of which the kernel keeps no pages
            Node::Root
            | Node::Blocks
            | Node::Info
            | Node::Hdus
            | Node::ArrayDir(0)
            | Node::ViewDir(_, 0)
            | Node::Status
            | Node::BlocksTsv
            | Node::ArraysTsv
            | Node::FitsTsv
            | Node::ZarrTsv
            | Node::TreeJson
            // these never have a number again
            | Node::Tree(_)
            | Node::Scratch(_) => 0,
            Node::Block(_) | Node::Array(..) => self.last(file, shows, self.elsewhere),
            // these show several arrays, and more of the tree; directories of zarr have numbers that follow from the lengths of arrays
            Node::View(..) | Node::StatsTsv | Node::ViewDir(View::Zarr, _) => {
                self.last(file, Shows::Several, self.elsewhere.max(self.tree))
            }
            Node::HduHeader(_) | Node::HduBin(_) => self.elsewhere,
            _ => self.begun,
        }
    }

    /// The version of a file that grows.
    pub(super) fn of_growing(&self, file: Node) -> u64 {
        self.last(file, Shows::Nothing, self.stream)
    }

    /// What tells the form and bytes of a file from others that it had.
    pub(super) fn form(&self, file: Node, shows: Shows) -> u64 {
        let counted = self.counted(file, shows);
        // a change that came through the file itself gives the others another number, not this file: the kernel has its bytes
        let own = self.own.get(&file);
        own.filter(|own| own.counted == counted)
            .map_or(counted, |own| own.kept)
    }

    /// Whether a file was written through itself after `before`, in any form, so that its last bytes are not those of `before`.
    pub(super) fn has_own_change_since(&self, before: &Self, file: Node) -> bool {
        let own = self.own.get(&file);
        own.is_some_and(|own| own.counted > before.clock)
    }

    /// The version of a file.
    pub(super) fn of(&self, file: Node, shows: Shows) -> u64 {
        let form = self.form(file, shows);
        let is_data = matches!(
            file,
            Node::Block(_)
                | Node::Array(..)
                | Node::View(..)
                | Node::StatsTsv
                | Node::HduHeader(_)
                | Node::HduBin(_)
        );
        if is_data {
            // a handle goes by the form alone: it goes on reading a file that was only touched
            form.max(self.touched)
        } else {
            form
        }
    }
}

/// The blocks that hold the bytes of a block or array, by the origin of the array of a number.
pub(super) fn shown<'a>(node: Node, origin: impl FnOnce(u32) -> Option<&'a Origin>) -> Shows {
    match node {
        Node::Block(n) => Shows::Block(index(n)),
        Node::Array(number, _) => match origin(number) {
            Some(Origin::Block(n)) => Shows::Block(*n),
            Some(Origin::Chunked) => Shows::Several,
            _ => Shows::Nothing,
        },
        _ => Shows::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::node::Format;

    /// It was that of before the change of the tree, and the kernel had other bytes under it.
    #[test]
    fn no_version_comes_back_when_another_program_has_changed_the_file() {
        let now = SystemTime::now();
        let file = Node::Array(0, Format::Bin);
        let mut versions = Versions::default();
        versions.changed_stream();
        let first = versions.of_growing(file);
        versions.changed_tree(Some(&[]), now);
        versions.changed_elsewhere(now);
        assert_eq!(versions.of_growing(file), first, "no array has changed");
        versions.changed_tree(Some(&[0]), now);
        let edited = versions.of_growing(file);
        assert!(edited > first);
        versions.changed_elsewhere(now);
        assert!(versions.of_growing(file) >= edited);
    }

    /// A block that got longer moved the numbers of the directories behind its array.
    #[test]
    fn a_directory_of_zarr_is_another_one_when_a_block_has_changed() {
        let directory = Node::ViewDir(View::Zarr, 3);
        let mut versions = Versions::default();
        let before = versions.of(directory, Shows::Nothing);
        versions.changed_block(0, SystemTime::now());
        assert!(versions.of(directory, Shows::Nothing) > before);
    }

    /// A handle from before read the bytes from before its own write: only the last write was known, and that had another form.
    #[test]
    fn a_write_through_a_file_is_known_after_a_later_one_in_another_form() {
        let now = SystemTime::now();
        let file = Node::Array(0, Format::Npy);
        let form = |versions: &Versions| versions.form(file, Shows::Block(0));
        let write = |versions: &mut Versions| {
            let before = form(versions);
            versions.changed_block(0, now);
            versions.changed_through(file, before, 0, true);
            assert_eq!(form(versions), before);
        };
        let mut versions = Versions::default();
        let opened = versions.clone();
        write(&mut versions);
        versions.changed_tree(Some(&[0]), now);
        let between = versions.clone();
        assert!(versions.has_own_change_since(&opened, file));
        write(&mut versions);
        versions.changed_tree(Some(&[0]), now);
        assert!(versions.has_own_change_since(&opened, file));
        assert!(versions.has_own_change_since(&between, file));
        assert!(!versions.has_own_change_since(&versions, file));
    }
}
