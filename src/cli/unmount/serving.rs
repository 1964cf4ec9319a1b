//! Which process serves a mount, found without asking it.

use std::fs;
#[cfg(feature = "fuse")]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::save::lock_holder;
use crate::save::processes::{all, entries, has_ended};
use crate::source::Mounted;

/// The process that serves a mount: one of this program's name that has the mount's connection to the kernel. If the kernel does not
/// show connections, it is the process that has the file locked; there is none for a directory or a far file.
///
/// After an unmount the kernel gives the connection's number to the next mount, while the first one's daemon may still be ending. So
/// of several processes it is the one that has the mounted file locked, else one that was not killed, and that of the highest number.
pub(in crate::cli) fn daemon_of(mounted: &Mounted) -> Option<u32> {
    let connected = connected(mounted);
    if let [only] = connected[..] {
        return Some(only);
    }
    let locks = lock_holder_of(mounted);
    let rank = |&process: &u32| (Some(process) == locks, !has_ended(process), process);
    connected.into_iter().max_by_key(rank).or(locks)
}

/// Whether a process that has the file at `path` locked serves a mount. The number of its connection alone does not tell: that of a
/// process that is ending may be another mount's by now.
#[cfg(feature = "fuse")]
pub(in crate::cli) fn serves(process: u32, mounted: &Mounted, path: &Path) -> bool {
    let is_inside = || fs::canonicalize(path).is_ok_and(|real| real.starts_with(mounted.source()));
    let is_one = is_one(mounted.source(), path);
    match connected(mounted)[..] {
        [] => lock_holder_of(mounted) == Some(process),
        // Unless the mount has ended meanwhile, and its daemon before this look at all processes; or it is the next mount with that number,
        // whose daemon began behind this look.
        [only] => only == process && is_one != Some(false) && mounted.again().is_some(),
        ref several => several.contains(&process) && (is_one == Some(true) || is_inside()),
    }
}

/// Whether two paths are names of one file, if both are files.
#[cfg(feature = "fuse")]
fn is_one(source: &Path, path: &Path) -> Option<bool> {
    let file = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let (source, file) = (file(source)?, file(path)?);
    Some((source.dev(), source.ino()) == (file.dev(), file.ino()))
}

/// The processes of this program's name that have a connection of the mount's number.
fn connected(mounted: &Mounted) -> Vec<u32> {
    let line = format!("fuse_connection:\t{}\n", mounted.connection().display());
    let processes = all()
        .filter(|(number, process)| is_of_this_program(*number) && has_connection(process, &line));
    processes.map(|(number, _)| number).collect()
}

/// Whether a process runs a program of this name.
fn is_of_this_program(process: u32) -> bool {
    let name = |of: &str| fs::read(format!("/proc/{of}/comm")).ok();
    name("self").is_some_and(|own| name(&process.to_string()) == Some(own))
}

/// Whether a process is a daemon of this program that sees the mounts that this process sees. Of one in another mount namespace nobody here
/// can say whether its mount is gone.
#[cfg(feature = "fuse")]
pub(in crate::cli) fn is_daemon_here(process: u32) -> bool {
    let mounts = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    is_of_this_program(process)
        && mounts("self").is_some_and(|own| mounts(&process.to_string()) == Some(own))
}

/// The process that has what is mounted locked.
pub(super) fn lock_holder_of(mounted: &Mounted) -> Option<u32> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(mounted.source(), flags, Mode::empty());
    file.ok().and_then(|file| lock_holder(&file.into()))
}

/// Whether a thread of a process has a descriptor whose `fdinfo` has this line. Each thread is looked at: the first thread of a killed
/// process has no descriptors any more.
fn has_connection(process: &Path, line: &str) -> bool {
    let mut descriptors =
        entries(&process.join("task")).flat_map(|thread| entries(&thread.path().join("fdinfo")));
    descriptors.any(|entry| fs::read_to_string(entry.path()).is_ok_and(|it| it.contains(line)))
}
