//! The limits of the process that the system sets, where their defaults are those of an interactive program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use log::debug;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

/// Has the limits of the process fail calls rather than end it, and raises what it may raise.
///
/// A write beyond `RLIMIT_FSIZE` sends `SIGXFSZ`, which ends a process that does not handle it; handled, the write fails with
/// `EFBIG`, and a save fails as on a full disk. The handler is for this process only: a program that it starts has the default.
pub(super) fn set_up() {
    let ignored = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, ignored) {
        debug!("SIGXFSZ keeps its default: {error}");
    }
    if let Err(error) = allow_descriptors() {
        debug!("the limit of descriptors stays: {error}");
    }
}

/// Raises the soft limit of descriptors to the hard one. The soft one is low for the sake of programs that use `select(2)`.
fn allow_descriptors() -> rustix::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_descriptors_that_are_allowed_can_be_had() {
        allow_descriptors().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
