//! What keeps a mount busy: proc_pid_cwd(5), proc_pid_fd(5), proc_pid_maps(5), proc_pid_mountinfo(5), loop(4).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::error::shell_word;
use crate::save::processes::{entries, named};
use crate::source::Mounted;

/// The message that the mount at `mountpoint` is in use: by what, and what to do. It names a mount inside, a loop device, or the
/// processes that this user may look at; `None` if nothing of that is found.
pub(super) fn busy(mountpoint: &Path) -> Option<String> {
    if let Some(inner) = mounted_inside(mountpoint) {
        let (inner, word) = (inner.display(), shell_word(&inner));
        return Some(format!(
            "busy: {inner} is mounted in it; umount {word} first"
        ));
    }
    if let Some((device, file)) = loop_device(mountpoint) {
        let (device, file) = (device.display(), file.display());
        return Some(format!(
            "busy: {device} is set up on {file}; losetup -d {device} first"
        ));
    }
    let inside = mountpoint.to_owned();
    let who = match named(move |process| uses(process, &inside)) {
        Some(users) => format!("in use by {users}"),
        // with its parent gone or elsewhere
        None if uses(Path::new("/proc/self"), mountpoint) => {
            "in use by this command, which was started in it".to_owned()
        }
        None => return None,
    };
    Some(busy_by(&who))
}

/// The message that the mount at `mountpoint` is in use, though nothing is found that uses it.
pub(super) fn unseen(mountpoint: &Path) -> String {
    let mountpoint = mountpoint.display();
    busy_by(&format!(
        "in use by a process that this command can't see; as root, fuser -vm {mountpoint} names it"
    ))
}

fn busy_by(who: &str) -> String {
    format!("busy: {who}: close what is open in it and leave its directories")
}

/// What was mounted last below `mountpoint`. What was there before it is hidden, and does not keep it busy.
fn mounted_inside(mountpoint: &Path) -> Option<PathBuf> {
    let mounts = Mounted::all();
    let own = mounts
        .iter()
        .rposition(|mount| mount.directory() == mountpoint)?;
    let mut later = mounts.iter().skip(own.saturating_add(1));
    let inner = later.rfind(|mount| mount.directory().starts_with(mountpoint))?;
    Some(inner.directory().to_owned())
}

/// A loop device, and the file of the mount that it shows: no process has that open.
fn loop_device(mountpoint: &Path) -> Option<(PathBuf, PathBuf)> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    devices.into_iter().find_map(|device| {
        let file = fs::read(device.path().join("loop/backing_file")).ok()?;
        let file = PathBuf::from(OsString::from_vec(file.strip_suffix(b"\n")?.to_vec()));
        let name = Path::new("/dev").join(device.file_name());
        file.starts_with(mountpoint).then_some((name, file))
    })
}

/// Whether a process has something of the mount open or stands in it.
fn uses(process: &Path, mountpoint: &Path) -> bool {
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    // links in /proc name what is open without asking the mount
    let stands = ["cwd", "root", "exe"]
        .iter()
        .any(|link| inside(&process.join(link)));
    let opened = || entries(&process.join("fd")).any(|entry| inside(&entry.path()));
    let maps = || {
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let mut paths = maps
            .lines()
            .filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
        paths.any(|path| Path::new(path).starts_with(mountpoint))
    };
    stands || opened() || maps()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_own_directory() {
        let here = std::env::current_dir().unwrap();
        let me = Path::new("/proc").join(std::process::id().to_string());
        assert!(uses(&me, &here));
        assert!(!uses(&me, Path::new("/nosuch")));
    }
}
