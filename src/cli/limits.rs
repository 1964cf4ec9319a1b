//! The limits of the process that the system sets, where their defaults are those of an interactive program.

#[cfg(feature = "fuse")]
use std::fs::File;
#[cfg(feature = "fuse")]
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use log::debug;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

#[cfg(feature = "fuse")]
use super::exit::{Exit, Failure};

/// Descriptors of a mount beside one for each thread: FILE, its lock and directory, the spool, and some while it is saved.
#[cfg(feature = "fuse")]
const SPARE_DESCRIPTORS: usize = 16;
/// What holds nothing, and takes anything.
#[cfg(feature = "fuse")]
const NULL: &str = "/dev/null";
/// Address space that the threads' stacks and the least cache take, in bytes.
#[cfg(feature = "fuse")]
const LEAST_MEMORY: usize = 192 << 20;

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

/// That there is a `/dev/null`, which a daemon has in the place of a terminal.
#[cfg(feature = "fuse")]
pub(super) fn check_null() -> Result<(), Failure> {
    let Err(error) = File::open(NULL) else {
        return Ok(());
    };
    let advice = match error.kind() {
        ErrorKind::NotFound => "; mknod -m 666 /dev/null c 1 3 makes it as root",
        _ => "",
    };
    Err(Failure::new(
        Exit::Other,
        format!("{NULL}: {error}{advice}"),
    ))
}

/// That a mount served by so many threads gets the descriptors and the memory that it takes from its beginning: a daemon that
/// lacks them later would leave a mount that does not answer.
#[cfg(feature = "fuse")]
pub(super) fn check_room(threads: usize) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::new(Exit::Other, why));
    let wanted = threads.saturating_add(SPARE_DESCRIPTORS);
    let spare: std::io::Result<Vec<File>> = (0..wanted).map(|_| File::open(NULL)).collect();
    if let Err(error) = spare {
        return refuse(format!(
            "a mount needs {wanted} more descriptors: {error}; ulimit -n raises their limit"
        ));
    }
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(LEAST_MEMORY).is_err() {
        let mib = LEAST_MEMORY >> 20;
        return refuse(format!(
            "a mount needs {mib} MiB of address space; ulimit -v raises its limit"
        ));
    }
    Ok(())
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
