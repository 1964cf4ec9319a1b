//! Descriptors that the program which started this one has left open in it.

use std::fs::Metadata;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::FdFlags;
use rustix::stdio::raw_stderr;

/// Where the descriptors of this process are.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The major and minor number of the device of FUSE.
pub(super) const FUSE_NUMBER: (u32, u32) = (10, 229);

/// The descriptors beside the standard ones, to be closed all when this is dropped. With them a daemon would hold a lock of flock(1), or
/// the end of a pipe, for as long as it serves.
pub(super) struct Inherited(Vec<RawFd>);

impl Inherited {
    /// Those that are open, but for `kept`. This process must not have opened anything before.
    pub(super) fn take(kept: Option<RawFd>) -> Self {
        let entries = std::fs::read_dir(DESCRIPTORS).into_iter().flatten();
        let numbers = entries.flatten().filter_map(|entry| {
            let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
            // a descriptor of the shell, such as the end of a pipe, would keep its reader waiting for as long as the mount lasts
            (number > raw_stderr() && Some(number) != kept).then_some(number)
        });
        let mut numbers: Vec<RawFd> = numbers.collect();
        // the one by which the directory was read is closed by now
        numbers.retain(|number| {
            let link = Path::new(DESCRIPTORS).join(number.to_string());
            link.symlink_metadata().is_ok()
        });
        Self(numbers)
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        for number in self.0.drain(..) {
            // there is nothing to be done about an error; the descriptor is closed all the same
            let _ = nix::unistd::close(number);
        }
    }
}

/// The number of the descriptor that a mountpoint `/dev/fd/N` names: that of a mount which another program has made.
pub(super) fn named(mountpoint: &Path) -> Option<RawFd> {
    let number = mountpoint.strip_prefix("/dev/fd").ok()?;
    let number = number.to_str()?.parse().ok()?;
    (number > raw_stderr()).then_some(number)
}

/// Takes over the device of FUSE that was inherited under a number.
///
/// # Errors
/// Why that is no such device.
#[expect(unsafe_code, reason = "the number is all that is known of it")]
pub(super) fn device(number: RawFd) -> Result<OwnedFd, String> {
    let found = Path::new(DESCRIPTORS).join(number.to_string()).metadata();
    if !found.is_ok_and(|found| is_fuse(&found)) {
        return Err("not an open descriptor of the device of FUSE".to_owned());
    }
    // SAFETY: the descriptor is open, as its metadata say. It was inherited, so that no part of this process owns it but
    // [`Inherited`], from which it was kept.
    let device = unsafe { OwnedFd::from_raw_fd(number) };
    let closed = rustix::io::fcntl_setfd(&device, FdFlags::CLOEXEC);
    closed.map_err(|error| error.to_string())?;
    Ok(device)
}

/// Whether that is the device of FUSE.
pub(super) fn is_fuse(meta: &Metadata) -> bool {
    let number = meta.rdev();
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    meta.file_type().is_char_device() && number == FUSE_NUMBER
}
