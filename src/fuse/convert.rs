//! Conversions between the types of `fuser` and those of the file system.

use fuser::{FileAttr, FileType, FopenFlags, INodeNo, OpenAccMode, OpenFlags, Request};
use rustix::fs::OFlags;

use crate::collection::{Handle, Inode, Item};
use crate::vfs::{Access, Attr, Error, FileFacts, FileKind, Node, Opened};

/// Attributes of a file of an item as the kernel takes them.
pub(super) fn file_attr(item: Item, attr: &Attr) -> FileAttr {
    let node = attr.node;
    FileAttr {
        ino: INodeNo(Inode::new(item, node, attr.version).number()),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        crtime: attr.ctime,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 128 << 10,
        flags: 0,
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
    }
}

/// How the kernel may read an opened file. If the program `only_reads`, closing the file saves nothing, so the kernel need not flush it.
pub(super) fn open_flags(opened: &Opened<Handle>, only_reads: bool) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct);
    flags.set(FopenFlags::FOPEN_NOFLUSH, only_reads);
    flags
}

/// How the kernel may list an opened directory.
pub(super) fn opendir_flags(opened: &Opened<Handle>) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    // the kernel drops the listing itself when the directory has another time, or when it makes or removes a name there
    flags.set(FopenFlags::FOPEN_CACHE_DIR, !opened.direct);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags
}

/// How a request opens a file.
pub(super) fn access(flags: OpenFlags, req: &Request) -> Access {
    let how = OFlags::from_bits_retain(flags.0.cast_unsigned());
    Access {
        pid: req.pid(),
        write: flags.acc_mode() != OpenAccMode::O_RDONLY,
        truncate: how.contains(OFlags::TRUNC),
        exclusive: how.contains(OFlags::EXCL),
    }
}

/// Whether a descriptor with these flags appends now: fcntl(2) may change that after it was opened.
pub(super) fn appends(flags: OpenFlags) -> bool {
    OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::APPEND)
}

/// Owner and mode of a file that a request makes: it belongs to the user of the request.
pub(super) fn facts(mode: u32, req: &Request) -> FileFacts {
    FileFacts::new(mode, req.uid(), req.gid())
}

/// The file with that inode number.
pub(super) fn inode(ino: INodeNo) -> Result<Inode, Error> {
    Inode::from_number(ino.0).ok_or(Error::NotFound)
}

/// The node of a second directory, which must be of the same member.
pub(super) fn beside(first: Inode, second: INodeNo) -> Result<Node, Error> {
    let second = inode(second)?;
    let same = second.item == first.item;
    same.then_some(second.node).ok_or(Error::OtherMember)
}
