//! A file in the root: what is known of it, whatever its names.

use std::sync::Arc;

use crate::source::len_u64;
use crate::vfs::attr::{FileFacts, FileKind};

/// A file in the root.
#[derive(Debug)]
pub(super) struct RootFile {
    /// A file, or a symlink, as emacs makes to lock a file.
    pub(super) kind: FileKind,
    /// The bytes that every reader sees; of a symlink, its target.
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) facts: FileFacts,
    /// Names that it has.
    pub(super) names: u32,
    /// Bytes of the limit that it takes, see `limit`.
    pub(super) charged: u64,
    /// Whether it was `tree.yaml` once and was not written to since: an editor puts it back when a save fails. Means nothing while it is
    /// `tree.yaml`.
    pub(super) backup: bool,
    /// [`Texts::text_epoch`](super::Texts) when it was made, or emptied last; when it was `tree.yaml`, that of the text that it showed
    /// last under that name.
    pub(super) text_epoch: u64,
    /// If it was `tree.yaml`, and open, when another program changed FILE: how many handles had been opened by then. A text that these
    /// write is refused; those that are opened later, by another name, write to a scratch file.
    pub(super) superseded: Option<u64>,
    /// Whether it is being saved, to become `tree.yaml` then.
    pub(super) becoming: bool,
    /// Whether a block or array has got its bytes, or is getting them.
    pub(super) taken: bool,
}

impl RootFile {
    /// A file with one name, that no handle has open.
    pub(super) fn new(
        kind: FileKind,
        bytes: Arc<Vec<u8>>,
        facts: FileFacts,
        text_epoch: u64,
    ) -> Self {
        Self {
            kind,
            bytes,
            facts,
            names: 1,
            charged: 0,
            backup: false,
            text_epoch,
            superseded: None,
            becoming: false,
            taken: false,
        }
    }

    /// Length in bytes; of a link, of its target.
    pub(super) fn len(&self) -> u64 {
        len_u64(self.bytes.len())
    }
}
