//! Files that are found beneath a directory that is open, and nowhere else.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens what is at a path beneath a directory. No symbolic link is followed, not even to a place inside of it, and without `cross_mounts`
/// no other mount is entered.
///
/// # Errors
/// Of openat2(2): `ELOOP` at a symbolic link, `EXDEV` at a mount and for a path that leads out of the directory.
#[cfg(target_os = "linux")]
pub(crate) fn open_beneath(
    directory: impl AsFd,
    path: &Path,
    flags: OFlags,
    cross_mounts: bool,
) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{Mode, ResolveFlags, openat2};
    /// A rename elsewhere in the tree may make the kernel give up; it says so, and not for ever.
    const ATTEMPTS: usize = 100;
    let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    how.set(ResolveFlags::NO_XDEV, !cross_mounts);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || openat2(&directory, path, flags, Mode::empty(), how);
    let mut opened = open();
    for _ in 0..ATTEMPTS {
        // openat2(2) gives EAGAIN when something on the way is renamed meanwhile
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
        opened = open();
    }
    opened
}

/// Fails with `ENOSYS`: this system can't open a file in that way.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open_beneath(
    _: impl AsFd,
    _: &Path,
    _: OFlags,
    _: bool,
) -> rustix::io::Result<OwnedFd> {
    Err(Errno::NOSYS)
}
