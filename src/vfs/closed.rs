//! The root of FILE while FILE is closed. As long as FILE does not change, what is shown there is known without opening it.

use std::time::Duration;

use super::attr::{Attr, FileFacts, FileKind, VfsOptions};
use super::node::Node;
use super::{TREE_NAME, Vfs, locked, root_directories};
use crate::source::{Stat, len_u64};

/// A FILE that was changed less than so long before it was read may have been changed once more since, and have the times of before: the
/// clock of a file system may be as coarse as that.
const COARSEST_CLOCK: Duration = Duration::from_secs(1);

/// What the root of FILE showed when FILE was closed.
#[derive(Debug, Clone, Copy)]
pub struct ClosedRoot {
    /// Length of `tree.yaml`, in bytes.
    text_len: u64,
    is_fits: bool,
    /// Whether all pages that the kernel has of `tree.yaml` are of that text.
    pub keeps_pages: bool,
}

impl ClosedRoot {
    /// `tree.yaml`.
    pub const TREE: Node = Node::Text(0);
    /// Its name.
    pub const TREE_NAME: &str = TREE_NAME;

    /// The names in it, in the order in which [`Vfs`] lists them.
    #[must_use]
    pub fn entries(&self, options: &VfsOptions) -> Vec<(&'static str, Node)> {
        let mut entries = root_directories(self.is_fits, options);
        entries.push((TREE_NAME, Self::TREE));
        entries
    }

    /// The attributes of one of these, of a FILE with these attributes. How many directories are in a directory is not known: then it has
    /// one name.
    #[must_use]
    pub fn attr(&self, node: Node, file: &Stat, options: &VfsOptions) -> Attr {
        if node == Self::TREE {
            return FileFacts::of(file, options).attr(node, self.text_len);
        }
        let nlink = match node {
            Node::Blocks | Node::Info | Node::Hdus => 2,
            _ => 1,
        };
        let attr = Attr::of_file(node, FileKind::Directory, 0, file, options);
        Attr { nlink, ..attr }
    }
}

impl Vfs {
    /// What the root shows from now on, if FILE is closed now and stays as it is; nothing if that can't be told by FILE's attributes, or
    /// editors have made files beside `tree.yaml`. `before`: what it showed when FILE was opened. To be called if [`Vfs::is_at_rest`].
    #[must_use]
    pub fn closed_root(&self, before: Option<ClosedRoot>) -> Option<ClosedRoot> {
        let state = self.state();
        let age = state.made.duration_since(state.stat.changed());
        let has_times = state.timed && age.is_ok_and(|age| age > COARSEST_CLOCK);
        if self.is_far() || !has_times {
            return None;
        }
        let had_pages = before.is_some_and(|before| before.keeps_pages);
        let texts = locked(&self.texts);
        let text = texts.only_text()?;
        Some(ClosedRoot {
            text_len: len_u64(text.len()),
            is_fits: state.is_fits(),
            keeps_pages: texts.keeps_pages(had_pages),
        })
    }
}
