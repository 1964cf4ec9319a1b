//! The mount: made by mount(2) where this process may, so that its type is `fuse.asdf-mount`, and by `fusermount3` otherwise.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{getgid, getuid};

use super::Shim;
use super::waiters::Waiters;
use crate::collection::Collection;
use crate::source::{Mounted, in_utf8};

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
}

impl MountOptions {
    /// The same for `fuser`.
    fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = self.mount_options();
        config.acl = match (self.allow_other, self.allow_root) {
            (true, _) => SessionACL::All,
            (false, true) => SessionACL::RootAndOwner,
            (false, false) => SessionACL::Owner,
        };
        config.n_threads = Some(self.threads.max(1));
        config.clone_fd = true;
        config
    }

    /// The options for the kernel and `fusermount3`. The kernel checks permissions itself.
    fn mount_options(&self) -> Vec<MountOption> {
        let mut out = vec![
            // fuser takes no bytes that are no UTF-8
            MountOption::FSName(escaped(&in_utf8(&self.fsname))),
            MountOption::Subtype(escaped(&self.subtype)),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        if self.read_only {
            out.push(MountOption::RO);
        }
        if self.auto_unmount {
            out.push(MountOption::AutoUnmount);
        }
        out
    }
}

/// A value in the list of options that `fusermount3` takes, which ends at a comma unless a backslash stands before it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,")
}

/// A mounted file system that is being served in the background.
pub struct Mount {
    session: BackgroundSession,
    own: OwnMount,
    requests: Arc<AtomicU64>,
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
        let requests = Arc::<AtomicU64>::default();
        let shim = Shim {
            files: Arc::clone(files),
            handles: Arc::default(),
            requests: Arc::clone(&requests),
            is_far: files.has_far(),
            waiters: Arc::new(Waiters::new(if files.has_far() {
                0
            } else {
                options.threads.saturating_sub(1)
            })),
        };
        let (session, own) = begin(shim, mountpoint, options)?;
        let device = session.as_fd().try_clone_to_owned()?;
        files.decode_while(move || is_connected(&device));
        let session = session.spawn()?;
        Ok(Self {
            session,
            own,
            requests,
        })
    }

    /// Itself in the table of mounts.
    #[must_use]
    pub fn mounted(&self) -> &Mounted {
        &self.own.mounted
    }

    /// The count of requests for files and directories so far.
    #[must_use]
    pub fn requests(&self) -> &Arc<AtomicU64> {
        &self.requests
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// What ended the session, if it was not an unmount.
    pub fn join(self) -> io::Result<()> {
        self.session.join()?;
        self.own.forget();
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
    ended: bool,
}

impl OwnMount {
    /// What has just been mounted at `mountpoint`.
    fn at(mountpoint: &Path) -> io::Result<Self> {
        let gone = || io::Error::other("it was unmounted before it could be used");
        Ok(Self {
            mounted: Mounted::at(mountpoint).ok_or_else(gone)?,
            ended: false,
        })
    }

    /// The session has ended because the file system was unmounted.
    fn forget(mut self) {
        self.ended = true;
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
            let _ = rustix::mount::unmount(mounted.directory(), UnmountFlags::DETACH);
        }
    }
}

/// Mounts at `mountpoint`, and begins to talk to the kernel. `fusermount3` mounts for users without privileges, and for `auto_unmount`, as
/// it stays to unmount when the daemon dies.
fn begin(
    shim: Shim,
    mountpoint: &Path,
    options: &MountOptions,
) -> io::Result<(Session<Shim>, OwnMount)> {
    let mut config = options.config();
    let device = if options.auto_unmount {
        None
    } else {
        mount(mountpoint, options, config.acl)?
    };
    let Some(device) = device else {
        let session = Session::new(shim, mountpoint, &config)?;
        return Ok((session, OwnMount::at(mountpoint)?));
    };
    let own = OwnMount::at(mountpoint)?;
    let acl = config.acl;
    // the mount is made already, with these options
    config.mount_options.clear();
    Ok((Session::from_fd(shim, device, acl, config)?, own))
}

/// The device of a mount made by mount(2); `None` if this process may not make one.
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
    let kind = format!("fuse.{}", options.subtype);
    match rustix::mount::mount(
        options.fsname.as_os_str(),
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
