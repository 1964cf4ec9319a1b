//! Descriptors that the program which started this one has left open in it.

use std::os::fd::RawFd;
use std::path::Path;

use rustix::stdio::raw_stderr;

/// Where the descriptors of this process are.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The descriptors beside the standard ones, to be closed all when this is dropped. With them a daemon would hold a lock of flock(1), or
/// the end of a pipe, for as long as it serves.
pub(super) struct Inherited(Vec<RawFd>);

impl Inherited {
    /// Those that are open. This process must not have opened anything before.
    pub(super) fn take() -> Self {
        let entries = std::fs::read_dir(DESCRIPTORS).into_iter().flatten();
        let numbers = entries.flatten().filter_map(|entry| {
            let number: RawFd = entry.file_name().to_str()?.parse().ok()?;
            (number > raw_stderr()).then_some(number)
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
