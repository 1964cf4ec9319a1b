//! Making the mount: by mount(2) where this process may, so that its type is `fuse.asdf-mount`, and by `fusermount3` otherwise.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use fuser::{Session, SessionACL};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getgid, getuid};

use super::Shim;
use super::options::MountOptions;
use crate::vfs::Mounted;

/// A mount that mount(2) made, which is taken away when this is dropped before the session has ended.
pub(super) struct Made(Option<Mounted>);

impl Made {
    /// The session has ended because the file system was unmounted.
    pub(super) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // what else may be mounted there by now is not ours to unmount
        if let Some(mounted) = self.0.take().and_then(|mounted| mounted.again()) {
            // then the mount stays, and every call on it says that its daemon is gone
            let _ = rustix::mount::unmount(mounted.directory(), UnmountFlags::DETACH);
        }
    }
}

/// Mounts at `mountpoint` and shakes hands with the kernel. `fusermount3` waits for the daemon's end where `auto_unmount` asks
/// for that, and mounts for users without privileges.
pub(super) fn session(
    shim: Shim,
    mountpoint: &Path,
    options: &MountOptions,
) -> io::Result<(Session<Shim>, Made)> {
    let mut config = options.config();
    let device = if options.auto_unmount {
        None
    } else {
        mount(mountpoint, options, config.acl)?
    };
    let Some(device) = device else {
        return Ok((Session::new(shim, mountpoint, &config)?, Made(None)));
    };
    let made = Made(Mounted::at(mountpoint));
    let acl = config.acl;
    // they are those of the mount, which is made already
    config.mount_options.clear();
    Ok((Session::from_fd(shim, device, acl, config)?, made))
}

/// The device of a mount made by mount(2); nothing where this process may not make one.
fn mount(
    mountpoint: &Path,
    options: &MountOptions,
    acl: SessionACL,
) -> io::Result<Option<OwnedFd>> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let others = if acl == SessionACL::Owner {
        ""
    } else {
        ",allow_other"
    };
    let data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions{others}",
        device.as_raw_fd(),
        FileType::Directory.as_raw_mode(),
        getuid().as_raw(),
        getgid().as_raw(),
    );
    let data = CString::new(data)?;
    let mut flags =
        MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    let asked = |wanted: &str| options.kernel.iter().any(|option| option == wanted);
    flags.set(MountFlags::SYNCHRONOUS, asked("sync"));
    flags.set(MountFlags::DIRSYNC, asked("dirsync"));
    let kind = format!("fuse.{}", options.subtype);
    match rustix::mount::mount(
        options.fsname.as_str(),
        mountpoint,
        kind,
        flags,
        data.as_c_str(),
    ) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
