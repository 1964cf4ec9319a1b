//! Looking at a file, with or without a cache in between.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::source::Stat;

/// Asks the disk, which may be another machine. Without this flag a file system may answer from its cache.
pub(in crate::save) const ASKED: AtFlags = AtFlags::STATX_FORCE_SYNC;

/// The attributes of a name in a directory; with [`AtFlags::EMPTY_PATH`], of an open file. By name alone: what a process runs out of
/// may be descriptors.
pub(in crate::save) fn stat_at(dir: impl AsFd, name: &OsStr, flags: AtFlags) -> io::Result<Stat> {
    match rustix::fs::statx(&dir, name, flags, StatxFlags::BASIC_STATS) {
        Ok(found) => Ok(stat_of(&found)),
        // an old kernel, or one that lets this process ask nothing: the file is opened as a place, and asked by an older call
        Err(Errno::NOSYS | Errno::PERM) => {
            let file = if flags.contains(AtFlags::EMPTY_PATH) {
                dir.as_fd().try_clone_to_owned()?
            } else {
                let follow = if flags.contains(AtFlags::SYMLINK_NOFOLLOW) {
                    OFlags::NOFOLLOW
                } else {
                    OFlags::empty()
                };
                let flags = OFlags::PATH | OFlags::CLOEXEC | follow;
                rustix::fs::openat(&dir, name, flags, Mode::empty())?
            };
            Ok(Stat::from(&File::from(file).metadata()?))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether names can be added to a directory, but not taken away (`chattr +a`).
pub(super) fn keeps_names(dir: &File) -> bool {
    let flags = AtFlags::EMPTY_PATH;
    let found = rustix::fs::statx(dir, "", flags, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
}

/// The attributes that statx(2) has found.
fn stat_of(found: &Statx) -> Stat {
    let time = |at: &StatxTimestamp| (at.tv_sec, at.tv_nsec.into());
    Stat {
        id: (
            rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            found.stx_ino,
        ),
        size: found.stx_size,
        mtime: time(&found.stx_mtime),
        ctime: time(&found.stx_ctime),
        links: found.stx_nlink.into(),
        uid: found.stx_uid,
        gid: found.stx_gid,
        mode: found.stx_mode.into(),
        left: Stat::ALL,
    }
}
