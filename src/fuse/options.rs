//! How a mount is to be.

/// What the mount is to be like; the manual says what each option means.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct MountOptions {
    /// Source that `mount` and `df` show.
    pub fsname: String,
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
    /// Options of the kernel that are passed on as they are.
    pub kernel: Vec<String>,
    /// Threads that serve requests.
    pub threads: usize,
}
