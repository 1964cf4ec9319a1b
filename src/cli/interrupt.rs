//! Signals that ask for an end while something is written: it ends in order, and what was begun is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit::{Exit, Failure};
use crate::error::{Error, Result};
use crate::save::processes::ignores;

/// The signals that ask a process to end. Of a process in the foreground not those that are ignored since it began, as nohup(1) has it,
/// and shells for what they run in the background; a daemon gets none from a terminal.
pub(super) fn heeded(in_foreground: bool) -> Vec<i32> {
    let signals = [SIGHUP, SIGINT, SIGTERM].into_iter();
    signals
        .filter(|&signal| !(in_foreground && ignores(signal)))
        .collect()
}

/// Handles these signals from now on; a second one ends the process at once. Gives a function that fails with [`Error::Io`] once a
/// signal has come.
pub(super) fn heed() -> Result<impl Fn() -> Result<()>, Failure> {
    let come = Arc::new(AtomicBool::new(false));
    for signal in heeded(true) {
        // the second signal ends the process at once
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&come))
            .and_then(|_| flag::register(signal, Arc::clone(&come)))
            .map_err(|error| Failure::new(Exit::Other, format!("signals: {error}")))?;
    }
    Ok(move || {
        if come.load(Ordering::Relaxed) {
            let cause = std::io::Error::other("nothing is left of what was begun");
            return Err(Error::io("ended by a signal", cause));
        }
        Ok(())
    })
}
