//! The directory to mount on: found, made if it is missing, and refused where a mount would hide something.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use log::{info, warn};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::exit::{Exit, Failure};
use super::far::Sources;
use super::inherited;
use super::options::Options;
use super::turn::lock_for_a_moment;
use super::unmount::{self, Daemon, find};
use crate::error::shell_word;
use crate::source::Mounted;

/// The directory to mount on; removed at the end if it was made for this mount.
pub(super) struct Mountpoint {
    /// Its whole path, without links in it.
    pub(super) path: PathBuf,
    made: bool,
    /// The device of the mount, if another program has made it.
    pub(super) device: Option<OwnedFd>,
    /// What a mount there hides, in words; `None` if that is nothing.
    hidden: Option<String>,
}

impl Mountpoint {
    /// Prepares `wanted`, or else the directory that is named after the file to be mounted. A missing one is made. What is in it is
    /// out of sight while it is mounted on: the one named after the file must be empty, and of the other one a message tells when the
    /// mount is made.
    pub(super) fn prepare(
        wanted: Option<&Path>,
        mounted: &Sources,
        options: &Options,
    ) -> Result<Self, Failure> {
        let path = match wanted {
            Some(path) => path.to_owned(),
            None => mounted.directory_name()?,
        };
        let fail =
            |why: String| Failure::new(Exit::Mountpoint, format!("{}: {why}", path.display()));
        if let Some(number) = inherited::named(&path) {
            options.check_for_mounted()?;
            let device = inherited::device(number).map_err(fail)?;
            return Ok(Self {
                path,
                made: false,
                device: Some(device),
                hidden: None,
            });
        }
        check_daemon(&path, wanted.is_some()).map_err(fail)?;
        let mut mountpoint = Self::find(&path, wanted.is_some()).map_err(fail)?;
        if let Some(why) = mounted.hidden_by(&mountpoint.path, options) {
            let why = format!("{why} the mountpoint {}", path.display());
            return Err(Failure::new(Exit::Overlap, why));
        }
        mountpoint.check_what_is_there(wanted).map_err(fail)?;
        Ok(mountpoint)
    }

    /// The directory at `path`, made if it is missing; why there is none, otherwise.
    fn find(path: &Path, named: bool) -> Result<Self, String> {
        loop {
            // without a dot at the end, which a directory has only once it is there
            let made = match std::fs::create_dir(path.components().as_path()) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                // a directory where none may be made, or a mount whose daemon is gone, says more when it is looked at
                Err(error) => match path.symlink_metadata() {
                    Ok(_) => false,
                    Err(_) if !named => {
                        return Err(format!("{error}; name a MOUNTPOINT behind FILE"));
                    }
                    Err(_) => return Err(unusable(path, &error)),
                },
            };
            match path.canonicalize() {
                Ok(path) if path.is_dir() => {
                    return Ok(Self {
                        path,
                        made,
                        device: None,
                        hidden: None,
                    });
                }
                Ok(_) => return Err("not a directory; name one to mount on".to_owned()),
                // the daemon of an earlier mount had made it, and has removed it
                Err(error)
                    if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {}
                Err(error) => return Err(unusable(path, &error)),
            }
        }
    }

    /// Mounts there. The directory is locked meanwhile: of two mounts that are made at once, one would hide the other. If it is gone, it is
    /// made again: the daemon of an earlier mount, which had made it, removes it when it ends.
    pub(super) fn mount<T>(
        &mut self,
        mount: impl Fn(&Path) -> std::io::Result<T>,
    ) -> Result<std::io::Result<T>, Failure> {
        loop {
            // what may not be opened can still be mounted on
            // two commands that mount on one directory at a time would mount over each other
            let directory = open_directory(&self.path).inspect(lock_for_a_moment);
            check_daemon(&self.path, true)
                .map_err(|why| Failure::of(Exit::Mountpoint, &self.path, why))?;
            let mounted = mount(&self.path);
            drop(directory);
            if mounted.is_ok()
                && let Some(hidden) = &self.hidden
            {
                warn!("{hidden}");
            }
            if mounted.is_ok() || std::fs::create_dir(&self.path).is_err() {
                return Ok(mounted);
            }
            self.made = true;
        }
    }

    /// Refuses to hide what is in the directory, or takes note of it if the user has named the directory.
    fn check_what_is_there(&mut self, wanted: Option<&Path>) -> Result<(), String> {
        let path = wanted.unwrap_or(&self.path);
        let there = Mounted::at(&self.path);
        // the mount of another program may take for ever to list
        let hidden = if there.is_some() {
            0
        } else {
            std::fs::read_dir(&self.path).map_or(0, Iterator::count)
        };
        match hidden {
            0 => {}
            _ if wanted.is_none() => {
                return Err("there already and not empty; name a MOUNTPOINT behind FILE".to_owned());
            }
            hidden => {
                let plural = if hidden == 1 {
                    "entry is"
                } else {
                    "entries are"
                };
                let path = path.display();
                self.hidden = Some(format!(
                    "{path}: not empty; its {hidden} {plural} hidden until you unmount"
                ));
            }
        }
        Ok(())
    }
}

/// The directory at `path`, unless a mount of ours is there, whose daemon would be waited for.
fn open_directory(path: &Path) -> Option<File> {
    let is_ours = Mounted::at(path).is_some_and(|mounted| mounted.looks_ours());
    (!is_ours).then(|| File::open(path).ok()).flatten()
}

/// Refuses a `path` at which one of our mounts is. This comes before any other call on `path`: a call does not return while the daemon of
/// that mount is stopped or waits for a server. A mount whose daemon is gone is taken away, if the user has not `named` the directory.
fn check_daemon(path: &Path, named: bool) -> Result<(), String> {
    let whole = find::without_links(path);
    let Some(mounted) = find::around(&whole) else {
        return Ok(());
    };
    let is_there = mounted.directory() == whole;
    let (place, source) = (path.display(), mounted.source().display());
    let daemon = unmount::daemon_of(&mounted);
    match daemon.map_err(|error| format!("asking who serves it: {error}"))? {
        Daemon::Silent(why) => Err(format!("already mounted ({source}): {why}")),
        Daemon::Serves if is_there => Err(format!(
            "already mounted ({source}); asdf-mount -u {} first",
            shell_word(path)
        )),
        Daemon::Gone if is_there && !named => {
            // if that fails, the mount is refused with the reason
            if unmount::unmount(&mounted, UnmountFlags::DETACH).is_ok() {
                info!("{place}: a mount whose daemon is gone was taken away");
            }
            Ok(())
        }
        Daemon::Gone => Err(dead(path)),
        Daemon::Serves => Ok(()),
    }
}

/// What is said of a mount whose daemon is gone.
fn dead(path: &Path) -> String {
    let path = shell_word(path);
    format!("a mount whose daemon is gone is there; asdf-mount -u {path} takes it away")
}

/// Why nothing can be mounted at `path`, and what to do.
pub(super) fn unusable(path: &Path, error: &std::io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(error) if unmount::daemon_is_gone(error) => dead(path),
        Some(Errno::NOENT) if path.is_symlink() => {
            "a link to what is not there; name a directory, or make that one".to_owned()
        }
        Some(Errno::NOENT) => match path.parent() {
            Some(parent) if !parent.exists() && !parent.as_os_str().is_empty() => {
                format!(
                    "no such directory; mkdir -p {} makes it",
                    shell_word(parent)
                )
            }
            _ => "no directory can be made there; name another one".to_owned(),
        },
        _ => error.to_string(),
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        if self.made
            && let Err(error) = std::fs::remove_dir(&self.path)
            // the next mount is there already
            && error.kind() != ErrorKind::ResourceBusy
        {
            warn!("{}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_without_a_daemon_is_known_by_two_errors() {
        let why = |errno: Errno| unusable(Path::new("mnt"), &errno.into());
        for errno in [Errno::NOTCONN, Errno::CONNABORTED] {
            assert!(why(errno).ends_with("; asdf-mount -u mnt takes it away"));
        }
        assert!(!why(Errno::ACCESS).contains("asdf-mount -u"));
    }

    /// It was to make '', or a directory that was there.
    #[test]
    fn what_is_to_be_made_is_missing() {
        let dir = tempfile::TempDir::new().unwrap();
        let why = |path: &Path| unusable(path, &Errno::NOENT.into());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(why(&link).starts_with("a link to what is not there"));
        for path in [Path::new("mnt"), Path::new("/proc/self/x"), Path::new("")] {
            let said = why(path);
            assert!(said.starts_with("no directory can be made there"), "{said}");
        }
        let missing = why(&dir.path().join("a/b/mnt"));
        assert!(missing.ends_with("/a/b makes it"), "{missing}");
        let dotted = dir.path().join("./m/./");
        let made = Mountpoint::find(&dotted, true).unwrap();
        assert_eq!(made.path, dir.path().canonicalize().unwrap().join("m"));
    }
}
