//! Unmounting, and waiting until the daemon is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::complain;
use super::exit::{Exit, Failure};
use crate::vfs::Mounted;

/// Unmounts each and waits for its daemon. The status of the last failure, if any.
pub(super) fn all(mountpoints: &[PathBuf]) -> Exit {
    let mut exit = Exit::Ok;
    for mountpoint in mountpoints {
        match one(mountpoint) {
            Ok(Exit::Ok) => {}
            Ok(status) => exit = status,
            Err(failure) => {
                complain(&failure.message);
                exit = failure.exit;
            }
        }
    }
    exit
}

fn one(mountpoint: &Path) -> Result<Exit, Failure> {
    let fail =
        |why: String| Failure::new(Exit::Mountpoint, format!("{}: {why}", mountpoint.display()));
    let not_ours = || fail("not a mounted ASDF file".to_owned());
    let path = without_links(mountpoint);
    let mounted = Mounted::at(&path).filter(Mounted::is_fuse);
    let mounted = mounted.ok_or_else(not_ours)?;
    let daemon = match attribute(&path, "user.asdf.pid") {
        Ok(text) => text.parse().ok().and_then(Pid::from_raw),
        Err(error) if daemon_is_gone(error) && mounted.looks_ours() => {
            // its daemon is gone, and with it all that could be waited for
            unmount(&path, UnmountFlags::DETACH).map_err(fail)?;
            return Ok(Exit::Ok);
        }
        Err(error) if daemon_is_gone(error) => {
            let why = "a mount whose program is gone, and which may be of anything: umount or fusermount3 -u takes it away";
            return Err(fail(why.to_owned()));
        }
        Err(_) => None,
    };
    let daemon = daemon.ok_or_else(not_ours)?;
    let tree = path.join("tree.yaml");
    let pending = attribute(&tree, "user.asdf.error").is_ok();
    let kept = attribute(&tree, "user.asdf.rejected").ok();
    let handle = pidfd_open(daemon, PidfdFlags::empty());
    unmount(&path, UnmountFlags::empty()).map_err(fail)?;
    if let Ok(handle) = handle {
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
    }
    if pending {
        let place = kept.map_or_else(
            || "it could not be kept on disk, and is gone".to_owned(),
            |kept| format!("it is kept in {kept}"),
        );
        let why = format!("unmounted, but the tree that was refused is not saved: {place}");
        return Err(Failure::new(
            Exit::Pending,
            format!("{}: {why}", mountpoint.display()),
        ));
    }
    Ok(Exit::Ok)
}

/// The path as the table of mounts has it. A mountpoint whose daemon is gone can't be looked at, but its parent can.
fn without_links(path: &Path) -> PathBuf {
    let through_parent = || {
        let parent = path.parent()?;
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    let whole = path.canonicalize().ok().or_else(through_parent);
    whole.unwrap_or_else(|| path.to_owned())
}

/// Whether a call on a mount says that nobody serves it any more; one that was on its way when the daemon died is aborted.
pub(super) fn daemon_is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// The text of an extended attribute.
fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = [0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value)?;
    let value = value.get(..len).unwrap_or_default();
    Ok(String::from_utf8_lossy(value).into_owned())
}

/// Unmounts, through `fusermount3` where we may not ourselves.
pub(super) fn unmount(mountpoint: &Path, flags: UnmountFlags) -> Result<(), String> {
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(mountpoint, flags),
        Err(Errno::BUSY) => {
            Err("busy: close what is open in it and leave its directories".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn fusermount(mountpoint: &Path, flags: UnmountFlags) -> Result<(), String> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if flags.contains(UnmountFlags::DETACH) {
        command.arg("-z");
    }
    let done = command
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        Err(error) => Err(format!("fusermount3: {error}; install the package fuse3")),
    }
}
