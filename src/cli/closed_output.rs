//! Whether the program was started with standard output closed (`>&-`).
//!
//! The start of Rust's library opens `/dev/null` in the place of a standard descriptor that is closed, so that all that is printed would
//! be lost without an error. So it is looked at before that.
#![allow(
    unsafe_code,
    reason = "a function that runs before main is named in a section of the program"
)]

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// That somebody may get what is written to standard output.
///
/// # Errors
/// That of write(2), if it was closed.
pub(super) fn check_stdout() -> std::io::Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    Ok(())
}

/// Looks at the descriptor. It uses nothing of Rust's library, which is not ready yet.
#[cfg(target_os = "linux")]
extern "C" fn look() {
    let found = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    CLOSED.store(found.is_err(), Ordering::Relaxed);
}

// SAFETY: the section holds pointers to functions without arguments, which the C library calls once, in the first thread, before main.
// This one makes one system call and stores a flag.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
