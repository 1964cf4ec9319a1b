//! Which process serves a mount, found without asking it.

use std::fs::{self, DirEntry};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::was_killed;
use crate::save::lock_holder;
use crate::source::Mounted;

/// The process that serves a mount: one of this program's name that has the mount's connection to the kernel. If the kernel does not
/// show connections, it is the process that has the file locked; there is none for a directory or a far file.
///
/// After an unmount the kernel gives the connection's number to the next mount, while the first one's daemon may still be ending. So
/// of several processes it is one that was not killed, and that of the highest number.
pub(super) fn daemon_of(mounted: &Mounted) -> Option<u32> {
    let connected = || {
        let name = fs::read("/proc/self/comm").ok()?;
        let line = format!("fuse_connection:\t{}\n", mounted.connection().display());
        let has_name = |process: &Path| fs::read(process.join("comm")).is_ok_and(|it| it == name);
        let processes = entries(Path::new("/proc")).filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let process = entry.path();
            (has_name(&process) && has_connection(&process, &line)).then_some(number)
        });
        processes.max_by_key(|&process| (!was_killed(process), process))
    };
    connected().or_else(|| lock_holder_of(mounted))
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

fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}
