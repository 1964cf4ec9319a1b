//! What the tests of several modules need: the file system of a sample, to be written, without a kernel.

use std::ffi::OsStr;
use std::sync::Arc;

use tempfile::TempDir;

use super::{
    Access, Attr, Handle, Node, Opened, Result, Scratch, VERSIONS, Vfs, VfsOptions, block_write,
};
use crate::asdf::sample::Sample;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::save::{self, Writer};
use crate::source::{FileSource, Source, Stat};

/// The file system of a sample in a folder of its own.
pub(super) fn writable(sample: &Sample) -> (TempDir, Vfs) {
    writable_with(sample, OpenOptions::default(), |file| file)
}

/// The same, read with these options and through what `through` makes of the file.
pub(super) fn writable_with<S: Source + 'static>(
    sample: &Sample,
    open: OpenOptions,
    through: impl FnOnce(Arc<FileSource>) -> Arc<S>,
) -> (TempDir, Vfs) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.asdf");
    std::fs::write(&path, sample.bytes()).unwrap();
    let writer = Writer::open(&path, save::SaveOptions::default());
    let writer = writer.map_err(drop).unwrap().writer;
    let file = Arc::clone(writer.file());
    let stat = Stat::from(&file.metadata().unwrap());
    let file = Arc::new(FileSource::open(file).unwrap());
    let bytes = through(Arc::clone(&file));
    let snapshot = Snapshot::read(file, bytes, Cache::new(1 << 20), open).unwrap();
    let (options, writing) = (VfsOptions::default(), Ok(save::SaveOptions::default()));
    let mut vfs = Vfs::new(&path, snapshot, stat, writing, options, scratch());
    vfs.take_writer(writer);
    (dir, vfs)
}

/// The scratch files of a mount.
pub(super) fn scratch() -> Arc<Scratch> {
    Scratch::new(1 << 20, &std::env::temp_dir())
}

impl Vfs {
    /// Opens a file as it is now.
    pub(super) fn open_now(&self, node: Node, access: Access) -> Result<Opened> {
        self.open(node, self.shown.now().version(node) % VERSIONS, access)
    }

    /// The attributes of a name in a directory as it is now.
    pub(super) fn lookup(&self, directory: Node, name: &OsStr) -> Result<Attr> {
        self.lookup_in(directory, self.shown.now().version(directory), name)
    }

    /// Opens a directory as it is now.
    pub(super) fn opendir(&self, directory: Node) -> Result<Handle> {
        self.opendir_in(directory, self.shown.now().version(directory))
    }

    /// Shows FILE as it is now, if the last look is a while ago.
    pub(super) fn refresh(&self) {
        block_write::look(&self.saves, true);
    }

    /// The attributes of a file as it is now.
    pub(super) fn getattr_now(&self, node: Node) -> Result<Attr> {
        self.refresh();
        self.getattr(node, self.shown.now().version(node) % VERSIONS)
    }
}
