//! Unmounting, and waiting until the daemon is gone.

mod ask;
pub(super) mod find;
pub(super) mod serving;
mod users;
pub(super) mod wait;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::complain;
use super::exit::{Exit, Failure};
use super::far::Urls;
use crate::collection::REPORT;
use crate::error::shell_word;
use crate::save::processes::{has_ended, is_stopped};
use crate::source::{Mounted, unmount_with};
use wait::Wait;

/// The longest value that Linux has (`XATTR_SIZE_MAX`).
const LONGEST_VALUE: usize = 64 << 10;

/// How long a process may look at a mount without being taken for one that uses it.
const LOOK: Duration = Duration::from_secs(1);
/// After what time it is tried again whether the process has looked.
const AGAIN: Duration = Duration::from_millis(10);

/// See [`helpers`].
const HELPERS: [&str; 4] = [
    "fusermount3",
    "fusermount",
    "/sbin/fusermount3",
    "/bin/fusermount3",
];

/// Unmounts each and waits for its daemon, no longer than `limit`; with `discard` also where a text is lost by that. The status of
/// the last failure, if any.
pub(super) fn all(mountpoints: &[PathBuf], urls: &Urls, limit: Duration, discard: bool) -> Exit {
    if ask::is_asked() {
        return ask::answer(mountpoints);
    }
    let mut exit = Exit::Ok;
    for mountpoint in mountpoints {
        match one(mountpoint, mountpoint, urls, limit, discard) {
            Ok(Exit::Ok) => {}
            Ok(status) => exit = status,
            Err(failure) => {
                complain(&failure.message);
                exit = failure.exit;
            }
        }
    }
    exit
}

/// Makes `tree.yaml` of a mount show FILE's tree again instead of a refused text; with `discard` also if that text is in memory only.
pub(super) fn revert(mountpoint: &Path, urls: &Urls, discard: bool) -> Result<Exit, Failure> {
    let say = |why: &str| format!("{}: {why}", mountpoint.display());
    let fail = |why: &str| Failure::new(Exit::Mountpoint, say(why));
    let directory = &find::refusing(mountpoint, urls).map_err(|why| fail(&why))?;
    let refused = attribute(directory, "user.asdf.refused").unwrap_or_default();
    let refused = refused.to_string_lossy();
    let kept = |tree| {
        Some((
            tree,
            attribute(&directory.join(tree), "user.asdf.rejected")?,
        ))
    };
    // asked before: afterwards the mount knows nothing of them
    let kept: Vec<_> = refused.lines().filter_map(kept).collect();
    let asked = match give_up(directory, discard) {
        // the root of a mount of many files may not be writable; the attribute of its report does the same
        Err(Errno::ACCESS) => match give_up(&directory.join(REPORT), discard) {
            Err(Errno::NOENT) => Err(Errno::ACCESS),
            asked => asked,
        },
        asked => asked,
    };
    asked.map_err(|error| match error {
        Errno::OPNOTSUPP => fail(find::NOT_OURS),
        Errno::ROFS => fail("mounted read-only: no text is refused there"),
        error if daemon_is_gone(error) => {
            fail("its daemon is gone; asdf-mount -u takes the mount away")
        }
        Errno::ACCESS | Errno::PERM => fail(&format!("{error}; only the user who mounted it may")),
        error => {
            let tree = unkept(directory);
            let why = format!(
                "the tree that was refused is in memory only ({error}); copy {} elsewhere, or let it go with --discard",
                tree.display()
            );
            Failure::new(Exit::Unkept, say(&why))
        }
    })?;
    for (tree, kept) in kept {
        let kept = kept.display();
        complain(&say(&format!(
            "{tree} shows the saved tree again; the refused text is in {kept}"
        )));
    }
    Ok(Exit::Ok)
}

/// Asks the mount that `path` is in to give up the refused tree; with `discard` also one that is in memory only.
pub(super) fn give_up(path: &Path, discard: bool) -> Result<(), Errno> {
    let how = if discard { "discard" } else { "" };
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(path, "user.asdf.revert", how.as_bytes(), flags)
}

/// An extended attribute of a file of the mount, if it has it.
pub(super) fn attribute(path: &Path, name: &str) -> Option<OsString> {
    let mut value = vec![0; LONGEST_VALUE];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(OsString::from_vec(value))
}

/// The path of the refused tree that is in memory only, or the paths of several.
fn unkept(directory: &Path) -> PathBuf {
    let paths = attribute(directory, "user.asdf.unkept");
    directory.join(paths.unwrap_or_else(|| "tree.yaml".into()))
}

/// Unmounts one, which messages call `name`, and waits for its daemon. What would be lost is asked before: after an unmount there is no
/// mount to ask.
pub(super) fn one(
    mountpoint: &Path,
    name: &Path,
    urls: &Urls,
    limit: Duration,
    discard: bool,
) -> Result<Exit, Failure> {
    let say = |why: &str| format!("{}: {why}", name.display());
    let fail = |why: &str| Failure::new(Exit::Mountpoint, say(why));
    let mounted = find::mount_of(mountpoint, urls).map_err(|why| fail(&why))?;
    let path = mounted.directory().to_owned();
    check_owner(&mounted).map_err(|why| fail(&why))?;
    if free_from_killed(&mounted) {
        return Ok(Exit::Ok);
    }
    // one limit for all that is waited for: the daemon's answer, which takes a moment, and its end
    let mut wait = Wait::new(limit);
    let answers = ask::ask(&path, &mut Wait::new(limit.max(AT_ONCE)), || {
        say(&format!("waiting: {}", silence(&mounted)))
    })
    .map_err(|error| fail(&error.to_string()))?;
    let Some(answers) = answers else {
        let why = say(&format!("still mounted: {}", silence(&mounted)));
        return Err(Failure::new(Exit::Serving, why));
    };
    let daemon = match answers.daemon {
        Ok(daemon) => daemon.ok_or_else(|| fail(find::NOT_OURS))?,
        Err(error) if daemon_is_gone(error) && mounted.looks_ours() => {
            // its daemon is gone, and with it all that could be waited for
            take_away(&mounted, UnmountFlags::DETACH).map_err(|why| fail(&why))?;
            return Ok(Exit::Ok);
        }
        Err(error) => return Err(fail(not_told(error, &mounted))),
    };
    if let Some(tree) = answers.unkept.as_deref().filter(|_| !discard) {
        let why = format!(
            "not unmounted: the tree that was refused is in memory only; copy {} elsewhere, or unmount with --discard",
            path.join(tree).display()
        );
        return Err(Failure::new(Exit::Unkept, say(&why)));
    }
    // the end of a daemon in another namespace can't be waited for
    let here = Some(daemon).filter(|_| !answers.is_elsewhere);
    let handle = here.map(|daemon| pidfd_open(daemon, PidfdFlags::empty()));
    // asked before the unmount, after which the table no longer tells
    let has_copy = mounted.has_copy();
    take_away(&mounted, UnmountFlags::empty()).map_err(|why| fail(&why))?;
    if has_copy && let Some(other) = mounted.again() {
        let other = other.directory().display();
        complain(&say(&format!(
            "unmounted; what it showed is still mounted on {other}"
        )));
        return Ok(Exit::Ok);
    }
    let waits = |handle: &OwnedFd| {
        wait.for_end(handle, || {
            let serves = still_serves(daemon, &mounted);
            say(&format!("unmounted; waiting: {serves}"))
        })
    };
    let ended = handle.and_then(Result::ok).as_ref().is_none_or(waits);
    for loss in answers.losses() {
        complain(&say(&format!("unmounted{loss}")));
    }
    if !ended {
        let why = format!("unmounted, but {}", still_serves(daemon, &mounted));
        return Err(Failure::new(Exit::Serving, say(&why)));
    }
    Ok(answers.exit())
}

/// Why a mount is left alone that does not say which process serves it.
fn not_told(error: Errno, mounted: &Mounted) -> &'static str {
    match error {
        error if daemon_is_gone(error) => {
            "its program is gone, and may have been another one than asdf-mount: umount or fusermount3 -u takes the mount away"
        }
        Errno::ACCESS if mounted.looks_ours() => {
            "this user may not ask its daemon; umount takes the mount away"
        }
        _ => find::NOT_OURS,
    }
}

/// Unmounts this mount, unless another process has done that meanwhile.
fn take_away(mounted: &Mounted, flags: UnmountFlags) -> Result<(), String> {
    match unmount(mounted, flags) {
        // another program may have unmounted it meanwhile: that is what was wanted
        Err(_) if mounted.again().is_none() => Ok(()),
        done => done,
    }
}

/// Makes the kernel fail the requests to a daemon that was killed. A thread of it may wait in the kernel for a program that waits for
/// the daemon: without this neither ends, and the mount stays. Whether that has unmounted it, too.
fn free_from_killed(mounted: &Mounted) -> bool {
    if !mounted.looks_ours() || !serving::daemon_of(mounted).is_some_and(has_ended) {
        return false;
    }
    // umount2(2) with MNT_FORCE also unmounts what is not in use; if both are in vain, the mount is asked next and says why
    mounted.abort().is_err() && try_to_unmount(mounted, UnmountFlags::FORCE) == Ok(true)
}

/// Checks that this user may unmount it, if it is one of our mounts.
fn check_owner(mounted: &Mounted) -> Result<(), String> {
    let me = rustix::process::geteuid().as_raw();
    match mounted.owner().filter(|_| mounted.looks_ours() && me != 0) {
        Some(0) => Err("mounted by root; only root can unmount it".to_owned()),
        Some(user) if user != me => Err(format!(
            "mounted by user {user}; only that user and root can unmount it"
        )),
        _ => Ok(()),
    }
}

/// How long a daemon is waited for before its mountpoint is refused for another mount, or that of a URL.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What is known of the daemon of a mount.
#[cfg(feature = "fuse")]
pub(super) enum Daemon {
    /// It answers.
    Serves,
    /// It has ended, and left its mount.
    Gone,
    /// It does not answer, for this reason.
    Silent(String),
}

/// Looks whether the daemon of a mount of ours answers.
#[cfg(feature = "fuse")]
pub(super) fn daemon_of(mounted: &Mounted) -> std::io::Result<Daemon> {
    let mut wait = Wait::new(AT_ONCE);
    let answers = ask::ask(mounted.directory(), &mut wait, String::new)?;
    Ok(match answers.map(|answers| answers.daemon) {
        None => Daemon::Silent(silence(mounted)),
        Some(Err(error)) if daemon_is_gone(error) => Daemon::Gone,
        Some(_) => Daemon::Serves,
    })
}

/// Why the daemon of a mount does not answer, and what to do.
fn silence(mounted: &Mounted) -> String {
    let (file, mount) = (mounted.source().display(), shell_word(mounted.directory()));
    let locked = |until| match serving::lock_holder_of(mounted) {
        Some(_) => format!("; {file} stays locked{until}"),
        None => String::new(),
    };
    match serving::daemon_of(mounted) {
        Some(daemon) if is_stopped(daemon) => {
            let locked = locked("");
            format!("daemon {daemon} is stopped, kill -CONT {daemon} lets it go on{locked}")
        }
        Some(daemon) if has_ended(daemon) => {
            format!(
                "daemon {daemon} was killed while programs waited for it; asdf-mount -u {mount} frees them and {file}"
            )
        }
        _ if find::is_url(mounted.source()) => format!(
            "its daemon does not answer, and may wait for the server of {file}; umount -l {mount} takes the mount away"
        ),
        Some(daemon) => {
            let locked = locked(" until it ends");
            format!("daemon {daemon} does not answer, umount -l takes the mount away{locked}")
        }
        None => format!(
            "its daemon does not answer; umount -f {mount} frees the programs that wait for it, umount -l {mount} after that takes the mount away"
        ),
    }
}

/// Why a daemon still runs although its mount is gone, and what to do.
fn still_serves(daemon: Pid, mounted: &Mounted) -> String {
    let locked = if serving::lock_holder_of(mounted).is_some() {
        ", which stays locked"
    } else {
        ""
    };
    let file = mounted.source().display();
    let daemon = daemon.as_raw_nonzero();
    let serves = format!("daemon {daemon} still serves {file}{locked}");
    if is_stopped(daemon.get().unsigned_abs()) {
        return format!("{serves}: it is stopped, kill -CONT {daemon} lets it go on");
    }
    format!(
        "{serves}: a file of it is still open, another mount namespace has it, or it has something to finish"
    )
}

/// Whether a call on a mount says that no process serves it any more; one that was on its way when the daemon died is aborted.
pub(super) fn daemon_is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// Unmounts this mount, and nothing that is mounted over it or instead of it. If it is in use, and no process that uses it
/// can be seen, another command that unmounts it may just be looking at it: so it is tried again for a second.
pub(super) fn unmount(mounted: &Mounted, flags: UnmountFlags) -> Result<(), String> {
    let mountpoint = mounted.directory();
    let begun = Instant::now();
    loop {
        if try_to_unmount(mounted, flags)? {
            return Ok(());
        }
        // a process that only looks at the mount, such as updatedb, is gone a moment later: then it is tried again
        if let Some(why) = users::busy(mountpoint) {
            return Err(why);
        }
        if begun.elapsed() > LOOK {
            return Err(users::unseen(mountpoint));
        }
        std::thread::sleep(AGAIN);
    }
}

/// Unmounts this mount, through `fusermount3` where we may not ourselves. `false` if it is in use.
///
/// # Errors
/// Any other reason why it is still there.
fn try_to_unmount(mounted: &Mounted, flags: UnmountFlags) -> Result<bool, String> {
    let mountpoint = mounted.directory();
    if !mounted.is_on_top() {
        return Err(match mounted.again() {
            None => "not mounted any more".to_owned(),
            Some(there) if there.directory() == mountpoint => {
                "something else is mounted over it; umount that first".to_owned()
            }
            Some(there) => format!("it is mounted on {} now", there.directory().display()),
        });
    }
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(true),
        Err(Errno::PERM) => fusermount(mountpoint, flags),
        Err(Errno::BUSY) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// The programs that mount and unmount for users without privileges, in the order in which they are looked for.
pub(super) fn helpers() -> Vec<OsString> {
    let named = std::env::var_os("FUSERMOUNT_PATH").map(|path| vec![path]);
    named.unwrap_or_else(|| HELPERS.map(OsString::from).to_vec())
}

/// That none of the helpers can be started, and what to do.
pub(super) fn no_helper() -> String {
    match std::env::var_os("FUSERMOUNT_PATH") {
        Some(path) => format!(
            "{}: no such program; FUSERMOUNT_PATH names it, unset that",
            path.display()
        ),
        None => "fusermount3 not found: install the package fuse3".to_owned(),
    }
}

/// Unmounts with the first of the helpers that can be started. `false` if the mount is in use.
fn fusermount(mountpoint: &Path, flags: UnmountFlags) -> Result<bool, String> {
    let is_lazy = flags.contains(UnmountFlags::DETACH);
    let done = unmount_with(&helpers(), mountpoint, is_lazy).ok_or_else(no_helper)?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(true),
        false if said.contains("busy") => Ok(false),
        false => Err(said.trim().to_owned()),
    }
}
