//! A file in the root: what is known of it, whatever its names.

use std::ffi::OsString;
use std::sync::Arc;

use crate::source::len_u64;
use crate::vfs::attr::FileFacts;

/// What a file in the root is.
#[derive(Debug, Clone)]
pub(super) enum FileContent {
    /// Bytes; those shown to every reader.
    Bytes(Arc<Vec<u8>>),
    /// A symlink, as emacs makes to lock a file.
    Link(OsString),
}

/// A file in the root.
#[derive(Debug)]
pub(super) struct RootFile {
    pub(super) content: FileContent,
    pub(super) facts: FileFacts,
    /// Names that it has.
    pub(super) names: u32,
    /// Bytes of the limit that it takes, see `limit`.
    pub(super) charged: u64,
    /// Whether it was `tree.yaml` once, and was not written to since: what an editor puts back when a save fails.
    pub(super) backup: bool,
    /// The root's when it was made.
    pub(super) text_epoch: u64,
    /// Whether it was `tree.yaml`, and open, when another program changed FILE: what its handles write is a text that is refused.
    pub(super) superseded: bool,
    /// Whether a block or array has got its bytes, or is getting them.
    pub(super) taken: bool,
}

impl RootFile {
    /// A file with one name, that no handle has open.
    pub(super) fn new(content: FileContent, facts: FileFacts, text_epoch: u64) -> Self {
        Self {
            content,
            facts,
            names: 1,
            charged: 0,
            backup: false,
            text_epoch,
            superseded: false,
            taken: false,
        }
    }
}

impl FileContent {
    /// Length in bytes; of a link, of its target.
    pub(super) fn len(&self) -> u64 {
        len_u64(match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Link(target) => target.len(),
        })
    }
}
