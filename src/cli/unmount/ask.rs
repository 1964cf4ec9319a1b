//! Asking the daemon of a mount about itself, in a process of its own: a daemon that does not answer may hold whoever asks
//! beyond the reach of any signal, and then this process must still end.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::wait::Wait;
use crate::cli::exit::Exit;

/// Set in the environment of the process that asks.
const ASKED: &str = "ASDF_MOUNT_ASKED";
/// What is asked: a file of the mount, an extended attribute of it, and how much of that, all or nothing. All answers together
/// fit into the smallest pipe.
const QUESTIONS: [(&str, &str, usize); 3] = [
    ("", "user.asdf.pid", 16),
    ("tree.yaml", "user.asdf.error", 0),
    ("tree.yaml", "user.asdf.rejected", 4000),
];

/// What a daemon says of itself.
pub(super) struct Answers {
    /// Its process, or why the mount does not say so.
    pub(super) daemon: Result<Option<Pid>, Errno>,
    /// Whether a refused tree is pending.
    pub(super) pending: bool,
    /// Where that is kept.
    pub(super) kept: Option<String>,
}

/// Asks the daemon that serves a mount; nothing if it does not answer in time.
pub(super) fn ask(
    path: &Path,
    wait: &mut Wait,
    what: impl FnOnce() -> String,
) -> std::io::Result<Option<Answers>> {
    let mut asking = Command::new(std::env::current_exe()?)
        .env(ASKED, "1")
        .args([OsStr::new("-u"), OsStr::new("--"), path.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let handle: OwnedFd = pidfd_open(Pid::from_child(&asking), PidfdFlags::empty())?;
    if !wait.for_end(&handle, what) {
        // it may not die before the daemon answers, and is left to init
        asking.kill()?;
        return Ok(None);
    }
    let said = asking.wait_with_output()?.stdout;
    let mut answers = said.split(|&byte| byte == 0).map(read);
    let mut next = || answers.next().unwrap_or(Err(Errno::IO));
    let daemon = next().map(|text| text.parse().ok().and_then(Pid::from_raw));
    let (error, kept) = (next(), next());
    Ok(Some(Answers {
        daemon,
        pending: error.is_ok(),
        kept: kept.ok(),
    }))
}

/// Whether this process is the one that asks.
pub(super) fn is_asked() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// Asks, and prints an answer to each question, with a NUL behind it: `+` and a value, or `-` and an error number.
pub(super) fn answer(mountpoints: &[PathBuf]) -> Exit {
    let mut out = Vec::new();
    for path in mountpoints {
        for (file, name, len) in QUESTIONS {
            let mut value = vec![0; len];
            match rustix::fs::getxattr(path.join(file), name, &mut value) {
                Ok(len) => {
                    out.push(b'+');
                    out.extend(value.iter().take(len).filter(|&&byte| byte != 0));
                }
                Err(error) => out.extend(format!("-{}", error.raw_os_error()).bytes()),
            }
            out.push(0);
        }
    }
    match std::io::stdout().write_all(&out) {
        Ok(()) => Exit::Ok,
        Err(_) => Exit::Other,
    }
}

fn read(answer: &[u8]) -> Result<String, Errno> {
    let text = String::from_utf8_lossy(answer);
    let error = |text: &str| text.strip_prefix('-')?.parse().ok();
    match text.strip_prefix('+') {
        Some(value) => Ok(value.to_owned()),
        None => Err(error(&text).map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
