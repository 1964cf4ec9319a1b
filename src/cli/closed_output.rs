//! Whether the program was started with a standard output that cannot be written: closed (`>&-`), or open for reading only.
//!
//! The start of Rust's library opens `/dev/null` in the place of a standard descriptor that is closed, and its writes take `EBADF` for
//! success, so that all that is printed would be lost without an error. So it is looked at before that.
#![allow(
    unsafe_code,
    reason = "a function that runs before main is named in a section of the program"
)]

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;

use super::{Exit, Failure};

static NOT_WRITABLE: AtomicBool = AtomicBool::new(false);

/// That somebody may get what is written to standard output.
///
/// # Errors
/// That of write(2), if it cannot be written.
fn check_stdout() -> std::io::Result<()> {
    if NOT_WRITABLE.load(Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    Ok(())
}

/// The outcome of writing to standard output.
pub(super) fn printed(written: std::io::Result<()>) -> Result<(), Failure> {
    match written {
        Ok(()) => check_stdout().map_err(|error| unprinted(&error)),
        // a reader that closes the pipe has seen enough
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unprinted(&error)),
        _ => Ok(()),
    }
}

pub(super) fn unprinted(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Other, format!("standard output: {error}"))
}

/// Looks at the descriptor. It uses nothing of Rust's library, which is not ready yet.
#[cfg(target_os = "linux")]
extern "C" fn look() {
    let flags = rustix::fs::fcntl_getfl(rustix::stdio::stdout());
    let writable = flags.is_ok_and(|flags| flags & OFlags::ACCMODE != OFlags::RDONLY);
    NOT_WRITABLE.store(!writable, Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions without arguments, which the C library calls once, in the first thread, before main.
// This one makes one system call and stores a flag.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
