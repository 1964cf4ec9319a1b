//! The limits of the process that the system sets, where their defaults are those of an interactive program.

#[cfg(feature = "fuse")]
use std::fs::File;
#[cfg(feature = "fuse")]
use std::io::ErrorKind;
use std::sync::Arc;
#[cfg(feature = "fuse")]
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "fuse")]
use std::thread;

use log::debug;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

#[cfg(feature = "fuse")]
use super::exit::{Exit, Failure};
#[cfg(feature = "fuse")]
use crate::error::lock;

/// Descriptors of a mount beside one for each thread: FILE, its lock and directory, and some while it is saved.
#[cfg(feature = "fuse")]
const SPARE_DESCRIPTORS: usize = 16;
/// Threads of a mount beside those that serve: the session's, that of changes, of answers, of signals, of `idle`, of the tree and of the
/// first request; and the process `fusermount3`, which counts as one.
#[cfg(feature = "fuse")]
const SPARE_THREADS: usize = 8;
/// The device that is always empty and accepts any output.
#[cfg(feature = "fuse")]
const NULL: &str = "/dev/null";
/// Address space that the program, the stacks of threads, the arenas of the allocator, the decoders and encoders and the tree take
/// beside the cache, in bytes: a mount of a zlib block of 160 MB that six programs read and one edits took 612 MiB.
#[cfg(feature = "fuse")]
const SPARE_MEMORY: u64 = 672 << 20;

/// Makes calls beyond a limit fail instead of ending the process, and raises the limit of descriptors.
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

/// Checks that there is a `/dev/null`, which a daemon has in the place of a terminal.
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

/// Checks that a mount gets the descriptors, threads and memory that it may take, with `threads` that serve requests, `members`
/// descriptors for its members and `cache` bytes of cache. A daemon that lacks them later would leave a mount that does not answer.
#[cfg(feature = "fuse")]
pub(super) fn check_room(threads: usize, members: usize, cache: u64) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::new(Exit::Other, why));
    let wanted = threads
        .saturating_add(members)
        .saturating_add(SPARE_DESCRIPTORS);
    // opened and closed again: no call says how many more a process may have
    let spare: std::io::Result<Vec<File>> = (0..wanted).map(|_| File::open(NULL)).collect();
    if let Err(error) = spare {
        return refuse(format!(
            "a mount needs {wanted} more descriptors: {error}; ulimit -n raises their limit"
        ));
    }
    check_address_space(getrlimit(Resource::As).current, cache)?;
    let wanted = threads.saturating_add(SPARE_THREADS);
    if let Err(error) = start_threads(wanted) {
        return refuse(format!(
            "a mount needs {wanted} more threads: {error}; ulimit -u raises their limit"
        ));
    }
    Ok(())
}

/// Checks that a mount with `cache` bytes of cache stays within a limit of address space, if there is one. Without a limit nothing is
/// checked: more memory can be reserved than there is, and a cache may be larger than the memory of the machine.
#[cfg(feature = "fuse")]
fn check_address_space(limit: Option<u64>, cache: u64) -> Result<(), Failure> {
    let wanted = cache.saturating_add(SPARE_MEMORY);
    if limit.is_none_or(|limit| limit >= wanted) {
        return Ok(());
    }
    let (needed, cache) = (wanted >> 20, cache >> 20);
    let why = format!(
        "a mount with -o cache={cache}M needs {needed} MiB of address space; ulimit -v raises its limit, and a smaller cache takes less"
    );
    Err(Failure::new(Exit::Other, why))
}

/// Starts so many threads, which are all there at once and then end.
#[cfg(feature = "fuse")]
fn start_threads(count: usize) -> std::io::Result<()> {
    let gate = Mutex::new(());
    let enter = || drop(lock(&gate));
    thread::scope(|scope| {
        // all of them have to run at once, or the limit would not show
        let closed = gate.lock();
        let start = |_| thread::Builder::new().spawn_scoped(scope, enter).map(drop);
        let started = (0..count).try_for_each(start);
        drop(closed);
        started
    })
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

    #[cfg(feature = "fuse")]
    #[test]
    fn a_cache_for_which_there_is_no_address_space_is_refused() {
        check_room(1, 0, 1 << 60).unwrap();
        let limit = Some(800 << 20);
        check_address_space(limit, 64 << 20).unwrap();
        let refused = check_address_space(limit, 256 << 20).unwrap_err().message;
        assert!(refused.contains("-o cache=256M needs 928 MiB"), "{refused}");
    }

    #[test]
    fn all_descriptors_that_are_allowed_can_be_had() {
        allow_descriptors().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
