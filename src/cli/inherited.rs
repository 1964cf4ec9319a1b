//! Descriptors that the program which started this one has left open in it.
#![allow(
    unsafe_code,
    reason = "to own a descriptor that another program has opened has no safe function; see the call"
)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Where the descriptors of this process are.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Takes those beside the standard ones, to close them all by dropping this. With them a daemon would hold a lock of flock(1), or the end
/// of a pipe, for as long as it serves. Nothing may have been opened in this process before.
pub(super) fn take() -> Vec<OwnedFd> {
    let entries = std::fs::read_dir(DESCRIPTORS).into_iter().flatten();
    let numbers = entries.flatten().filter_map(|entry| {
        let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
        (number > libc::STDERR_FILENO).then_some(number)
    });
    let numbers: Vec<RawFd> = numbers.collect();
    // the one by which the directory was read is closed by now
    let is_open = |number: &RawFd| {
        let link = Path::new(DESCRIPTORS).join(number.to_string());
        link.symlink_metadata().is_ok()
    };
    let open = numbers.into_iter().filter(is_open);
    // SAFETY: the descriptor is open, and nothing in this process owns it: the process has opened nothing yet.
    open.map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        .collect()
}
