//! The mount: made by mount(2) where this process may, so that its type is `fuse.asdf-mount`, by `fusermount3` otherwise, or by another
//! program before.

mod helper;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fuser::{BackgroundSession, Config, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getgid, getuid};

use super::Shim;
use super::waiters::Waiters;
use crate::collection::Collection;
use crate::source::{Mounted, unmount_with};

/// What the mount is to be like; the manual says what each option means.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct MountOptions {
    /// Source that `mount` and `df` show.
    pub fsname: OsString,
    /// Type behind `fuse.` that `mount` shows.
    pub subtype: String,
    /// No writing.
    pub read_only: bool,
    /// Other users may use the mount.
    pub allow_other: bool,
    /// Root may use the mount.
    pub allow_root: bool,
    /// Unmount when the daemon dies.
    pub auto_unmount: bool,
    /// Threads that serve requests.
    pub threads: usize,
    /// The programs that mount for users without privileges, the first that can be started counts.
    pub helpers: Vec<OsString>,
}

impl MountOptions {
    /// Who may use the mount; the kernel lets other users in only if some may.
    fn acl(&self) -> SessionACL {
        match (self.allow_other, self.allow_root) {
            (true, _) => SessionACL::All,
            (false, true) => SessionACL::RootAndOwner,
            (false, false) => SessionACL::Owner,
        }
    }

    /// How a mount that is made is served.
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.n_threads = Some(self.threads.max(1));
        // each thread has a descriptor of its own, where there is a device to open
        config.clone_fd = open_device().is_ok();
        config
    }
}

/// Opens the device that is mounted through.
fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/fuse")
}

/// A mounted file system that is being served in the background.
pub struct Mount {
    session: BackgroundSession,
    /// Unless another program has made it.
    own: Option<OwnMount>,
    requests: Arc<AtomicU64>,
    is_ending: Arc<AtomicBool>,
}

impl Mount {
    /// Mounts `files` at `mountpoint` and begins to serve them.
    ///
    /// # Errors
    /// What the kernel or `fusermount3` says.
    pub fn new(
        files: &Arc<Collection>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> io::Result<Self> {
        let (device, own) = mount(mountpoint, options)?;
        Self::serve(files, device, Some(own), options)
    }

    /// Begins to serve a mount that another program has made, through its device. The kernel lets in whom that program lets in.
    ///
    /// # Errors
    /// What the device says, as where nothing is mounted through it.
    pub fn on(
        files: &Arc<Collection>,
        device: OwnedFd,
        options: &MountOptions,
    ) -> io::Result<Self> {
        Self::serve(files, device, None, options)
    }

    fn serve(
        files: &Arc<Collection>,
        device: OwnedFd,
        own: Option<OwnMount>,
        options: &MountOptions,
    ) -> io::Result<Self> {
        // others are kept out by the kernel, unless root is let in alone: fuser would also refuse the close by a process of another user that
        // has inherited a descriptor
        let acl = match options.acl() {
            SessionACL::RootAndOwner if own.is_some() => SessionACL::RootAndOwner,
            _ => SessionACL::All,
        };
        let is_far = files.has_far();
        let others = options.threads.saturating_sub(1);
        let requests = Arc::<AtomicU64>::default();
        let is_ending = Arc::default();
        let most_here = if is_far { 0 } else { others };
        let shim = Shim {
            files: Arc::clone(files),
            handles: Arc::default(),
            requests: Arc::clone(&requests),
            is_far,
            waiters: Arc::new(Waiters::new(most_here, &is_ending)),
        };
        let session = Session::from_fd(shim, device, acl, options.config())?;
        let device = session.as_fd().try_clone_to_owned()?;
        // after `umount -l` or a killed connection nobody reads what is decoded
        files.decode_while(move || is_connected(&device));
        let session = session.spawn()?;
        Ok(Self {
            session,
            own,
            requests,
            is_ending,
        })
    }

    /// Itself in the table of mounts, unless another program has made it.
    #[must_use]
    pub fn mounted(&self) -> Option<&Mounted> {
        self.own.as_ref().map(|own| &own.mounted)
    }

    /// The count of requests for files and directories so far.
    #[must_use]
    pub fn requests(&self) -> &Arc<AtomicU64> {
        &self.requests
    }

    /// Whether the daemon is to end. While this is true, each request fails that would wait for a server, or that decodes for long.
    #[must_use]
    pub fn is_ending(&self) -> &Arc<AtomicBool> {
        &self.is_ending
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// What ended the session, if it was not an unmount.
    pub fn join(self) -> io::Result<()> {
        self.session.join()?;
        if let Some(mut own) = self.own {
            own.ended = true;
        }
        Ok(())
    }
}

/// Whether the kernel still takes replies: not after an unmount, once no descriptor of a file is left.
fn is_connected(device: &OwnedFd) -> bool {
    let mut device = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec::default();
    // if poll(2) fails, the mount counts as connected: that costs only time
    let _ = poll(&mut device, Some(&now));
    let [device] = device;
    !device.revents().contains(PollFlags::ERR)
}

/// The mount that was made. It is unmounted if this is dropped before the session has ended.
struct OwnMount {
    mounted: Mounted,
    /// Whether the session has ended because the file system was unmounted.
    ended: bool,
    /// The programs that unmount for users without privileges.
    helpers: Vec<OsString>,
    /// What tells `fusermount3`, which waits for its end, that the daemon is gone.
    _helper: Option<UnixStream>,
}

impl OwnMount {
    /// What has just been mounted at `mountpoint`.
    fn at(mountpoint: &Path, helpers: &[OsString], helper: Option<UnixStream>) -> io::Result<Self> {
        let gone = || io::Error::other("it was unmounted before it could be used");
        Ok(Self {
            mounted: Mounted::at(mountpoint).ok_or_else(gone)?,
            ended: false,
            helpers: helpers.to_vec(),
            _helper: helper,
        })
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        // another file system may be mounted there by now, which must stay
        if !self.ended
            && let Some(mounted) = self.mounted.again()
            && mounted.is_on_top()
        {
            // if this fails, the mount stays, and every call on it says that its daemon is gone
            let directory = mounted.directory();
            if rustix::mount::unmount(directory, UnmountFlags::DETACH) == Err(Errno::PERM) {
                let _ = unmount_with(&self.helpers, directory, true);
            }
        }
    }
}

/// Mounts at `mountpoint`. `fusermount3` mounts for users without privileges, where there is no device to open, and for `auto_unmount`, as
/// it stays to unmount when the daemon dies.
fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<(OwnedFd, OwnMount)> {
    let device = if options.auto_unmount {
        None
    } else {
        mount_ourselves(mountpoint, options)?
    };
    let (device, helper) = match device {
        Some(device) => (device, None),
        None => helper::mount(mountpoint, options)?,
    };
    Ok((device, OwnMount::at(mountpoint, &options.helpers, helper)?))
}

/// The device of a mount made by mount(2); `None` if this process may not make one, or can't open the device.
fn mount_ourselves(mountpoint: &Path, options: &MountOptions) -> io::Result<Option<OwnedFd>> {
    // a container may have no device, but a helper that has one
    let Ok(device) = open_device() else {
        return Ok(None);
    };
    let others = if options.acl() == SessionACL::Owner {
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
    let kind = format!("fuse.{}", options.subtype);
    match rustix::mount::mount(
        options.fsname.as_os_str(),
        mountpoint,
        kind,
        flags,
        data.as_c_str(),
    ) {
        Ok(()) => Ok(Some(device.into())),
        // no privilege: fusermount3 has it; any other error would be the same with it
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
