//! Unmounting, and waiting until the daemon is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::complain;
use super::exit::{Exit, Failure};

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
    let daemon = attribute(mountpoint, "user.asdf.pid")
        .and_then(|text| text.parse().ok())
        .and_then(Pid::from_raw)
        .ok_or_else(|| fail("not a mounted ASDF file".to_owned()))?;
    let pending = attribute(&mountpoint.join("tree.yaml"), "user.asdf.error").is_some();
    let handle = pidfd_open(daemon, PidfdFlags::empty());
    unmount(mountpoint, UnmountFlags::empty()).map_err(fail)?;
    if let Ok(handle) = handle {
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        while poll(&mut fds, None) == Err(Errno::INTR) {}
    }
    if pending {
        let why = "unmounted, but the tree that was refused is not saved: see the .rejected.yaml beside the file";
        return Err(Failure::new(
            Exit::Pending,
            format!("{}: {why}", mountpoint.display()),
        ));
    }
    Ok(Exit::Ok)
}

/// The text of an extended attribute.
fn attribute(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut value).ok()?;
    Some(String::from_utf8_lossy(value.get(..len)?).into_owned())
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
