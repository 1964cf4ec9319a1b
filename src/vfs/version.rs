//! Which file a name leads to: a file of data whose form or bytes have changed is another file, with another inode number.
//!
//! The *version* of a file counts what has made it another one. Two states in which a file has the same version show the same bytes of
//! it, so the kernel may keep its pages for as long as it likes, and is never told of a change. A change that came through the file
//! itself leaves its version as it was: the kernel has these bytes already.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::data::block_of;
use super::node::Node;
use super::saved::BlockChange;
use super::state::State;

/// Inode numbers tell so many versions of a file apart. Of two versions with the same remainder, the older one is long gone.
pub const VERSIONS: u64 = 1 << 10;

/// What has made other files of those that are shown. No count ever goes down.
#[derive(Debug, Clone, Default)]
pub struct Versions {
    /// Where counting began: no earlier [`Vfs`](super::Vfs) of FILE, from before FILE was changed, has had a greater version.
    base: u64,
    /// How often another program has changed FILE.
    elsewhere: u64,
    /// How often FILE has got other attributes with the same time of change and length, which may hide a change of its bytes.
    touched: u64,
    /// Grows when a save has changed an array of the tree, or taken one away.
    arrays: u64,
    /// How often a save has changed the tree.
    trees: u64,
    /// How often there was another streamed block.
    streams: u64,
    /// How often saves have changed each block, if they have, and when the last one did.
    blocks: Arc<HashMap<usize, (u64, SystemTime)>>,
    /// The sum of `blocks`.
    saves: u64,
    /// When FILE's bytes came to be that no save has changed since, if that is known.
    since: Option<SystemTime>,
    /// When a save has changed `arrays`, if one has.
    arrays_since: Option<SystemTime>,
    /// The version of a file through which its block was changed, with what it would be otherwise.
    own: Arc<HashMap<Node, OwnChange>>,
}

/// A change of a block that came through one file.
#[derive(Debug, Clone, Copy)]
struct OwnChange {
    /// The version that the change would have given to the file.
    counted: u64,
    /// The version that the file keeps.
    kept: u64,
}

impl Versions {
    /// Those of a state that follows none with a greater version than `base`.
    pub(super) fn behind(base: u64) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    /// Those of files none of which is one of these.
    #[must_use]
    pub fn renewed(&self) -> Self {
        let counts = [
            self.elsewhere,
            self.touched,
            self.trees,
            self.saves,
            self.streams,
        ];
        let top = counts.into_iter().fold(self.base, u64::saturating_add);
        Self::behind(top.saturating_add(1))
    }

    /// Whether the tree is still the one with which counting began.
    #[must_use]
    pub fn is_of_one_tree(&self) -> bool {
        self.trees == 0 && self.elsewhere == 0
    }

    /// How often another program has changed FILE.
    pub(super) fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Notes that there is another streamed block.
    pub(super) fn changed_stream(&mut self) {
        self.streams = self.streams.saturating_add(1);
    }

    /// Notes that FILE has been touched, which may hide that its bytes are others.
    pub(super) fn touch(&mut self) {
        self.touched = self.touched.saturating_add(1);
    }

    /// Another program has changed FILE, which has this time of change now.
    pub(super) fn changed_elsewhere(&mut self, at: SystemTime) {
        self.elsewhere = self.elsewhere.saturating_add(1);
        self.since = Some(at);
        self.arrays_since = None;
        self.blocks = Arc::new(
            self.blocks
                .iter()
                .map(|(block, (count, _))| (*block, (*count, at)))
                .collect(),
        );
    }

    /// FILE's bytes are those with this time of change, if no other is known.
    pub(super) fn begin(&mut self, at: SystemTime) {
        self.since.get_or_insert(at);
    }

    /// The tree is another one, with the same arrays or not.
    pub(super) fn changed_tree(&mut self, same_arrays: bool, at: SystemTime) {
        self.trees = self.trees.saturating_add(1);
        if !same_arrays {
            // also an array that lies in a block now of which fewer saves were made has a greater version than before
            let more = self.saves.saturating_add(1);
            self.arrays = self.arrays.saturating_add(more);
            self.arrays_since = Some(at);
        }
    }

    /// A block has other bytes.
    fn changed_block(&mut self, block: usize, at: SystemTime) {
        let blocks = Arc::make_mut(&mut self.blocks);
        let (count, since) = blocks.entry(block).or_insert((0, at));
        *count = count.saturating_add(1);
        *since = at;
        self.saves = self.saves.saturating_add(1);
    }

    fn of_block(&self, block: usize) -> u64 {
        self.blocks.get(&block).map_or(0, |(count, _)| *count)
    }

    /// When the bytes of a block or array came to be; `None` of any other file, which has the time of FILE.
    pub(super) fn time(&self, file: Node, block: Option<usize>) -> Option<SystemTime> {
        let of_block = block.and_then(|block| self.blocks.get(&block));
        let of_block = of_block.map(|(_, at)| *at).or(self.since);
        match file {
            Node::Block(_) => of_block,
            Node::Array(..) => of_block.max(self.arrays_since),
            _ => None,
        }
    }

    /// The version of a file, by what is counted; `block`: the one that it shows, if it shows one.
    fn counted(&self, file: Node, block: Option<usize>) -> u64 {
        let of_block = block.map_or(0, |block| self.of_block(block));
        let counts = match file {
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
            | Node::TreeJson
            // these never have a number again
            | Node::Tree(_)
            | Node::Scratch(_) => return 0,
            Node::Block(_) => [self.elsewhere, of_block, 0],
            Node::Array(..) => [self.elsewhere, of_block, self.arrays],
            // these show several arrays, and more of the tree
            Node::View(..) | Node::StatsTsv => [self.elsewhere, self.saves, self.trees],
            Node::HduHeader(_) | Node::HduBin(_) => [self.elsewhere, 0, 0],
            _ => [0, 0, 0],
        };
        counts.into_iter().fold(self.base, u64::saturating_add)
    }

    /// The version of a file that grows.
    fn of_growing(&self, file: Node) -> u64 {
        let arrays = match file {
            Node::Block(_) => 0,
            _ => self.arrays,
        };
        let counts = [self.streams, arrays].into_iter();
        counts.fold(self.base, u64::saturating_add)
    }

    /// What tells the form and bytes of a file from others that it had. `block`: the one that it shows, if it shows one.
    fn form(&self, file: Node, block: Option<usize>) -> u64 {
        let counted = self.counted(file, block);
        let own = self.own.get(&file);
        own.filter(|own| own.counted == counted)
            .map_or(counted, |own| own.kept)
    }

    /// Whether a file of this form was written through itself after `before`, so that its last bytes are not those of `before`.
    fn has_own_change_since(&self, before: &Self, file: Node, form: u64) -> bool {
        let own = self.own.get(&file).filter(|own| own.kept == form);
        let known = before.own.get(&file).map(|own| own.counted);
        own.is_some_and(|own| known != Some(own.counted))
    }

    /// The version of a file.
    pub(super) fn of(&self, file: Node, block: Option<usize>) -> u64 {
        let form = self.form(file, block);
        let is_data = matches!(
            file,
            Node::Block(_)
                | Node::Array(..)
                | Node::View(..)
                | Node::StatsTsv
                | Node::HduHeader(_)
                | Node::HduBin(_)
        );
        form.saturating_add(if is_data { self.touched } else { 0 })
    }
}

impl State {
    /// The version of a file.
    pub(super) fn version(&self, file: Node) -> u64 {
        if self.is_growing(file) {
            return self.versions.of_growing(file);
        }
        self.versions.of(file, block_of(self, file))
    }

    /// When the bytes of a block or array came to be; `None` of one that grows, and of any other file, which have the time of FILE.
    pub(super) fn time(&self, file: Node) -> Option<SystemTime> {
        let time = self.versions.time(file, block_of(self, file));
        time.filter(|_| !self.is_growing(file))
    }

    /// The same for a handle, which goes on with a file that was only touched.
    pub(super) fn form(&self, file: Node) -> u64 {
        if self.is_growing(file) {
            return self.versions.of_growing(file);
        }
        self.versions.form(file, block_of(self, file))
    }

    /// Whether a file has the last bytes in this state that it had in its form of here, as `now` tells.
    pub(super) fn has_last_bytes(&self, file: Node, now: &Self) -> bool {
        let form = self.form(file);
        !now.versions
            .has_own_change_since(&self.versions, file, form)
    }

    /// Whether there is another streamed block than in the state before, not only a longer one.
    pub(super) fn has_other_stream(&self, before: &Self) -> bool {
        let is_replaced =
            self.versions.elsewhere != before.versions.elsewhere && self.stat.id != before.stat.id;
        is_replaced || self.stream() != before.stream()
    }

    /// The number of blocks up to the streamed one, if there is one: it is the last.
    fn stream(&self) -> Option<usize> {
        let layout = self.snapshot.layout();
        layout.streamed().then_some(layout.blocks.len())
    }

    /// Whether a file may grow at any time: then it is one file at all lengths, and the kernel keeps no pages of it.
    pub(super) fn is_growing(&self, file: Node) -> bool {
        let after = |block: usize| block.checked_add(1);
        self.stream()
            .is_some_and(|count| block_of(self, file).and_then(after) == Some(count))
    }

    /// Notes that a block has other bytes than in the state before.
    pub(super) fn note_changed(&mut self, change: BlockChange) {
        let BlockChange { block, through, at } = change;
        let at = at.unwrap_or_else(|| self.stat.modified());
        let kept = through.map(|file| (file, self.form(file)));
        self.versions.changed_block(block, at);
        if through.is_none() && self.stream() == block.checked_add(1) {
            self.versions.changed_stream();
        }
        if let Some((file, kept)) = kept {
            let counted = self.versions.counted(file, Some(block));
            let own = Arc::make_mut(&mut self.versions.own);
            own.insert(file, OwnChange { counted, kept });
        }
    }
}
