//! Sends the replies to requests.

use std::time::Duration;

use fuser::{
    Errno, FileAttr, Generation, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyStatfs,
    ReplyXattr,
};
use rustix::fs::StatVfs;

use super::convert::file_attr;
use crate::collection::Item;
use crate::source::Loan;
use crate::vfs::{Attr, Bytes, NAME_MAX, VERSIONS};

/// The size of blocks that is told where there is no disk, in bytes.
const BLOCK_SIZE: u32 = 4096;

/// Replies with attributes. `found`: the item of the file, and its attributes.
pub(super) fn attr(reply: ReplyAttr, found: Result<(Item, Attr), Errno>) {
    match found {
        Ok((item, attr)) => reply.attr(&attr.attr_valid, &file_attr(item, &attr)),
        Err(errno) => reply.error(errno),
    }
}

/// What the kernel is told of a name: the attributes of its file, how long it may keep the name, and what tells the inode from an earlier
/// one with the same number. Once the kernel knows a new generation, it refuses requests for the old inode.
pub(super) fn named(item: Item, attr: &Attr) -> (FileAttr, Duration, Generation) {
    // while the name lasts, the kernel asks for the attributes of the old inode and does not look the name up
    let valid = attr.entry_valid.min(attr.attr_valid);
    let generation = Generation(attr.version / VERSIONS);
    (file_attr(item, attr), valid, generation)
}

pub(super) fn entry(reply: ReplyEntry, found: Result<(Item, Attr), Errno>) {
    match found {
        Ok((item, attr)) => {
            let (attributes, valid, generation) = named(item, &attr);
            reply.entry_with_ttls(&attr.attr_valid, &valid, &attributes, generation);
        }
        Err(errno) => reply.error(errno),
    }
}

/// Replies with bytes, which stay lent until the kernel has them.
pub(super) fn data(reply: ReplyData, read: Result<Bytes, Errno>) {
    match read {
        Ok(Bytes::Owned(bytes)) => reply.data(&bytes),
        Ok(Bytes::Lent(Loan::Mapped(slice), _reading)) => reply.data(slice.for_kernel()),
        Ok(Bytes::Lent(Loan::Shared(buffer, range), _reading)) => {
            match (*buffer).as_ref().get(range) {
                Some(bytes) => reply.data(bytes),
                // no bytes would be the end of the file
                None => reply.error(Errno::EIO),
            }
        }
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn link(reply: ReplyData, target: Result<Vec<u8>, Errno>) {
    match target {
        Ok(target) => reply.data(&target),
        Err(errno) => reply.error(errno),
    }
}

/// Replies with the sizes of the disk, if there is one.
pub(super) fn statfs(reply: ReplyStatfs, found: Result<Option<StatVfs>, Errno>) {
    match found {
        Ok(Some(disk)) => {
            let block_size = u32::try_from(disk.f_frsize).unwrap_or(BLOCK_SIZE);
            reply.statfs(
                disk.f_blocks,
                disk.f_bfree,
                disk.f_bavail,
                disk.f_files,
                disk.f_ffree,
                block_size,
                NAME_MAX,
                block_size,
            );
        }
        // df(1) leaves out a file system without blocks
        Ok(None) => reply.statfs(0, 0, 0, 0, 0, BLOCK_SIZE, NAME_MAX, BLOCK_SIZE),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// Replies with the value of an attribute, or the list of names, into a buffer of `size` bytes; with the length alone if that is 0.
pub(super) fn xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(errno) => reply.error(errno),
    }
}
