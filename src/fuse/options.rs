//! How a mount is to be.

use std::ffi::OsString;

use fuser::{Config, MountOption, SessionACL};

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
    pub(super) fn config(&self) -> Config {
        let mut config = Config::default();
        config.mount_options = self.mount_options();
        config.acl = match (self.allow_other, self.allow_root) {
            (true, _) => SessionACL::All,
            (false, true) => SessionACL::RootAndOwner,
            (false, false) => SessionACL::Owner,
        };
        // while a rename waits for what a map has changed, the kernel writes that, which is a request, too
        config.n_threads = Some(self.threads.max(2));
        config.clone_fd = true;
        config
    }

    /// The options for the kernel and `fusermount3`. The kernel checks permissions itself.
    fn mount_options(&self) -> Vec<MountOption> {
        let mut out = vec![
            // fuser takes no other: what is no UTF-8 is known from a mount by mount(2) only
            MountOption::FSName(self.fsname.to_string_lossy().into_owned()),
            MountOption::Subtype(self.subtype.clone()),
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
