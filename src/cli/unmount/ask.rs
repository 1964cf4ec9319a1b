//! Asks the daemon of a mount about itself, from a child process: as long as the daemon does not answer, no signal may end the process
//! that asks, and the command itself must still end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Gid, Pid, PidfdFlags, Uid, geteuid, pidfd_open};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::LONGEST_VALUE;
use super::wait::Wait;
use crate::cli::exit::Exit;
use crate::save::processes::pid_namespace;
use crate::source::Mounted;

/// Set in the environment of the process that asks.
const ASKED: &str = "ASDF_MOUNT_ASKED";
/// The extended attributes of the mount's root that are asked for.
const QUESTIONS: [&str; 5] = [
    "user.asdf.pid",
    "user.asdf.pidns",
    "user.asdf.unkept",
    "user.asdf.unsaved",
    "user.asdf.scratch",
];

/// What a daemon says of itself.
pub(super) struct Answers {
    /// Its process, or why the mount does not say so.
    pub(super) daemon: Result<Option<Pid>, Errno>,
    /// Whether that number is of another PID namespace, as that of a container: here it is that of a stranger.
    pub(super) is_elsewhere: bool,
    /// The path below the mountpoint of a refused tree that is in memory only, or the paths of several.
    pub(super) unkept: Option<String>,
    /// What was written and is not saved, in lines.
    pub(super) unsaved: String,
    /// The names of files that are in the mount only.
    pub(super) scratch: Option<String>,
}

impl Answers {
    /// What is lost with the mount, as it is said behind "unmounted".
    pub(super) fn losses(&self) -> impl Iterator<Item = String> {
        let scratch = self.scratch.iter();
        let scratch = scratch.map(|names| {
            let verb = if names.contains(", ") { "are" } else { "is" };
            format!("; {names} existed only in the mount and {verb} lost")
        });
        scratch.chain(self.unsaved.lines().map(|line| format!(", but {line}")))
    }

    /// How an unmount ends.
    pub(super) fn exit(&self) -> Exit {
        if self.unsaved.is_empty() {
            Exit::Ok
        } else {
            Exit::Pending
        }
    }
}

/// Asks the daemon that serves a mount; nothing if it does not answer in time.
pub(super) fn ask(
    path: &Path,
    wait: &mut Wait,
    what: impl FnOnce() -> String,
) -> std::io::Result<Option<Answers>> {
    // a pipe may hold less than all that is said before this process reads
    let mut said = File::from(memfd_create("answers", MemfdFlags::CLOEXEC)?);
    // getxattr(2) on a mount whose daemon hangs cannot be given up, but a process that waits in it can
    let mut asking = Command::new(std::env::current_exe()?)
        .env(ASKED, "1")
        .args([OsStr::new("-u"), OsStr::new("--"), path.as_os_str()])
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .spawn()?;
    let handle: OwnedFd = pidfd_open(Pid::from_child(&asking), PidfdFlags::empty())?;
    if !wait.for_end(&handle, what) {
        // it may not die before the daemon answers, and is left to init
        asking.kill()?;
        return Ok(None);
    }
    asking.wait()?;
    let mut answers = Vec::new();
    said.seek(SeekFrom::Start(0))?;
    said.read_to_end(&mut answers)?;
    let mut answers = answers.split(|&byte| byte == 0).map(read);
    let mut next = || answers.next().unwrap_or(Err(Errno::IO));
    let daemon = next().map(|text| text.parse().ok().and_then(Pid::from_raw));
    let namespace = next().ok();
    Ok(Some(Answers {
        daemon,
        is_elsewhere: namespace.is_some_and(|theirs| pid_namespace() != Some(theirs)),
        unkept: next().ok(),
        unsaved: next().unwrap_or_default(),
        scratch: next().ok(),
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
        for name in QUESTIONS {
            let mut value = vec![0; LONGEST_VALUE];
            let mut ask = || rustix::fs::getxattr(path, name, &mut value);
            let said = match ask() {
                Err(Errno::ACCESS) if become_owner(path).is_some() => ask(),
                said => said,
            };
            match said {
                Ok(len) => {
                    out.push(b'+');
                    // a NUL ends each answer
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

/// Has root ask as the user whose mount it is: the kernel lets no other user in, root neither, unless the mount was made with
/// `allow_other` or `allow_root`. There is no way back, and none is needed: this process only asks.
fn become_owner(mountpoint: &Path) -> Option<()> {
    // FUSE refuses root, too, unless allow_other or allow_root is given
    let (user, group) = Mounted::at(mountpoint)?.ids()?;
    if !geteuid().is_root() || user == 0 {
        return None;
    }
    // only this thread changes, and the process has no other
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[]).ok()?;
    set_thread_res_gid(group, group, group).ok()?;
    set_thread_res_uid(user, user, user).ok()
}

/// An answer: the value behind `+`, or the errno behind `-`.
fn read(answer: &[u8]) -> Result<String, Errno> {
    let text = String::from_utf8_lossy(answer);
    let error = |text: &str| text.strip_prefix('-')?.parse().ok();
    match text.strip_prefix('+') {
        Some(value) => Ok(value.to_owned()),
        None => Err(error(&text).map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}
