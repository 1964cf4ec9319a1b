//! `-o on-refuse`: a command that is run when a text is refused, for editors and shells that do not say so.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use log::warn;

use super::daemon;
use crate::vfs::{Error, Vfs};

/// Whether the command runs. It is run once at a time, for whatever file of the mount.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Runs `command` with a shell when a text of the file at `path` is refused, from a thread of its own: a `close` never waits for it.
/// What is refused while it runs is left to the log.
pub(super) fn run_when_refused(vfs: &Vfs, path: &Path, command: &str) {
    let (path, command) = (path.to_owned(), command.to_owned());
    vfs.on_refusal(move |why| {
        // a command that hangs must not pile up processes, one for each save of an editor
        if RUNNING.swap(true, Ordering::AcqRel) {
            return warn!(
                "-o on-refuse: not run, as it still runs for a text that was refused before"
            );
        }
        let (path, command) = (path.clone(), command.clone());
        let thread = thread::Builder::new().name("on-refuse".to_owned());
        let begun = thread.spawn(move || {
            run(&command, &path, &why);
            RUNNING.store(false, Ordering::Release);
        });
        if let Err(error) = begun {
            RUNNING.store(false, Ordering::Release);
            warn!("-o on-refuse: {error}");
        }
    });
}

/// Runs the command to its end. What it has to say is in its environment, so that no text is taken for a part of the command.
fn run(command: &str, path: &Path, why: &Error) {
    let line = why.line().map(|line| line.to_string());
    let ended = daemon::keep_own(&mut Command::new("/bin/sh"))
        .args(["-c", command])
        .env("ASDF_MOUNT_FILE", path)
        .env("ASDF_MOUNT_LINE", line.unwrap_or_default())
        .env("ASDF_MOUNT_REASON", why.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => warn!("-o on-refuse: {status}"),
        Err(error) => warn!("-o on-refuse: {error}"),
    }
}
