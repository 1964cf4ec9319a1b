//! How the daemon's allocator is set up, so that its memory stays near the cache's budget.
//!
//! glibc moves the limit above which a buffer is a mapping of its own upwards with every such buffer that is freed, up to
//! 32 MiB, and has an arena for each thread. Decoders come and go with buffers of some megabytes on every thread, and the
//! holes that they leave took as much memory again as the cache. Large buffers that are used again and again are kept by us
//! (the cache's, and [`crate::source::PooledBuf`]), so that all others may go back at once.
#![allow(unsafe_code, reason = "mallopt has no safe wrapper; see the call")]

/// Buffers of at least so many bytes go back to the system when they are freed.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 512 << 10;

/// Free memory at the end of an arena that is kept for the next decoder.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 4 << 20;

/// Arenas for what is smaller.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Sets up the allocator; to be called before there are threads. Where it refuses, memory is used as by default.
#[cfg(target_env = "gnu")]
pub(super) fn keep_low() {
    for (option, value) in [
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_ARENA_MAX, ARENAS),
    ] {
        // SAFETY: mallopt takes two numbers and touches nothing but the allocator's own state.
        if unsafe { libc::mallopt(option, value) } == 0 {
            log::debug!("mallopt({option}, {value}) was refused");
        }
    }
}

/// Other C libraries have no such arenas.
#[cfg(not(target_env = "gnu"))]
pub(super) fn keep_low() {}
