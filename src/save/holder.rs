//! Which process holds the lock on a file, as the system's tables have it: proc_locks(5) and proc_pid_mountinfo(5).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use crate::error::lock;
use crate::source::FileSystem;

/// The process that holds a lock (`flock`) on the file, as far as the system tells.
#[must_use]
pub fn lock_holder(file: &File) -> Option<u32> {
    let own = table(&format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let mount = own.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    let device = device(&table("/proc/self/mountinfo")?, mount.trim())?;
    let inode = file.metadata().ok()?.ino();
    holder(&table("/proc/locks")?, device, inode)
}

/// A file of `/proc` as text.
fn table(path: &str) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The device of a mounted file system by which the table of locks knows it, which stat(2) does not tell of all.
fn device(mounts: &str, mount: &str) -> Option<(u32, u32)> {
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(mount))?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The process that a line of proc_locks(5) names for that file. A process that waits for the lock has an arrow in its line, one of
/// another PID namespace the number 0: neither is told.
fn holder(locks: &str, (major, minor): (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, pid, id) = (words.next()?, words.nth(2)?, words.next()?);
        let pid = pid.parse().ok().filter(|pid| *pid != 0);
        pid.filter(|_| kind == "FLOCK" && id == wanted)
    })
}

/// Says, once for each file system, that a lock may be seen on one side of it only.
pub(super) fn warn_of_locks(path: &Path, file: &File) {
    static SAID: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let Some(name) = FileSystem::of(file).and_then(FileSystem::shared) else {
        return;
    };
    let device = file.metadata().map_or(0, |meta| meta.dev());
    let mut said = lock(&SAID);
    if said.insert(device) {
        log::warn!(
            "{}: lies on {name}, where locks may not hold: let no other machine write it while it is mounted",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_number_on_two_devices_are_told_apart() {
        let mounts = "22 28 0:21 / /proc rw - proc proc rw\n24 1 254:0 / / rw - ext4 /dev/vda rw\n245 24 0:43 / /run rw - tmpfs t rw\n";
        let locks = "1: FLOCK  ADVISORY  WRITE 77 00:2b:1106 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 78 fe:00:1106 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 79 fe:00:1106 0 EOF\n\
            3: FLOCK  ADVISORY  READ 0 fe:00:1106 0 EOF\n\
            4: FLOCK  ADVISORY  READ 80 fe:00:1106 0 EOF\n\
            5: FLOCK  ADVISORY  READ 81 fe:00:106 0 EOF\n";
        let held = |mount, inode| holder(locks, device(mounts, mount).unwrap(), inode);
        assert_eq!(held("24", 1106), Some(80));
        assert_eq!(held("245", 1106), Some(77));
        assert_eq!(held("24", 106), Some(81));
        assert_eq!(held("22", 1106), None);
        assert_eq!(device(mounts, "2"), None);
    }
}
