//! Open files and directories of the mount.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::sync::Arc;

use super::closed::ClosedTree;
use super::item::{Inode, Item};
use crate::vfs::{self, Error, Node, Opened, Result, Vfs};

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
        /// As [`Handle::has_fixed_names`] says.
        are_fixed: bool,
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

    /// Whether the names in it change only by requests of the kernel, or when the kernel is told: it may keep the listing. In other
    /// directories of a member, names may change although the directory has the same times.
    #[must_use]
    pub fn has_fixed_names(&self) -> bool {
        matches!(
            self,
            Self::Names {
                are_fixed: true,
                ..
            }
        )
    }
}

impl Opened<Handle> {
    /// The opened file, if it is of the state of its FILE that the inode number has. Otherwise FILE, which is on a server, has changed: the
    /// kernel would mix pages of two states. After the error it looks the name up again.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn of_state(self, number: u64) -> Result<Self> {
        let Ok((vfs, handle)) = self.handle.member() else {
            return Ok(self);
        };
        let now = Inode::from_number(number).map(|inode| inode.number_in(vfs.file_epoch()));
        if now == Some(number) {
            return Ok(self);
        }
        vfs.release(handle);
        Err(Error::NotFound)
    }
}
