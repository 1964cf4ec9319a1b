//! Open files and directories of the mount.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Arc;

use super::closed::ClosedTree;
use super::item::{Inode, Item};
use crate::vfs::{self, ClosedFile, Error, Node, Opened, Result, Vfs};

/// The error of a change outside of any member.
pub(super) const NOT_OURS: Error =
    Error::NotPermitted("directories and files are made where the files are");

/// An open file or directory of the mount.
pub enum Handle {
    /// Of a member.
    Member(Item, Arc<Vfs>, vfs::Handle),
    /// `tree.yaml` of a member that was closed when it was opened.
    Tree(Arc<ClosedTree>),
    /// A directory of the collection: what was in it when it was opened.
    Items(Vec<Item>),
    /// A directory of a member that was closed when it was opened, of a member that can't be read, or of the report.
    Names {
        /// Which directory.
        directory: Inode,
        /// What was in it when it was opened, in the order in which it is listed.
        names: Vec<(Cow<'static, OsStr>, Node)>,
        /// What the member showed when it was closed, if the kernel may keep the listing.
        kept: Option<Arc<ClosedFile>>,
    },
    /// A text of the collection.
    Text(Vec<u8>),
}

impl Handle {
    /// The member that it is of, and its handle there.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it is of none, or of one that has not been opened for it.
    pub fn member(&self) -> Result<(&Arc<Vfs>, &vfs::Handle)> {
        match self {
            Self::Member(_, vfs, handle) => Ok((vfs, handle)),
            Self::Tree(tree) => tree.opened().ok_or(NOT_OURS),
            Self::Items(_) | Self::Names { .. } | Self::Text(_) => Err(NOT_OURS),
        }
    }

    /// Whether to read it may take long.
    #[must_use]
    pub fn takes_long(&self) -> bool {
        self.member().is_ok_and(|(_, handle)| handle.takes_long())
    }
}

impl Opened<Handle> {
    /// An opened text of which the kernel keeps no pages, or an opened directory of which it keeps no listing.
    pub(super) fn unkept(handle: Handle) -> Self {
        Self {
            handle,
            keep_cache: false,
            direct: true,
        }
    }
}
