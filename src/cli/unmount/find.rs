//! Which mount is meant: by its directory, by the file that it shows, or by a path inside.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::daemon_is_gone;
use crate::vfs::Mounted;

/// What is said of anything else.
pub(super) const NOT_OURS: &str =
    "not a mounted ASDF file; findmnt -t fuse.asdf-mount lists those that are mounted";

/// The mount that `path` names, which is served by a program; why there is none, otherwise.
pub(super) fn mount_of(path: &Path) -> Result<Mounted, String> {
    let whole = without_links(path);
    if let Some(mounted) = Mounted::at(&whole).filter(Mounted::is_fuse) {
        return Ok(mounted);
    }
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err("no such file or directory; check its path".to_owned());
        }
        Err(error) if !Errno::from_io_error(&error).is_some_and(daemon_is_gone) => {
            return Err(error.to_string());
        }
        _ => {}
    }
    let ours = || Mounted::all().into_iter().filter(Mounted::looks_ours);
    let mut of_file: Vec<Mounted> = ours().filter(|mount| mount.source() == whole).collect();
    if of_file.len() > 1 {
        let places: Vec<String> = of_file
            .iter()
            .map(|mount| mount.directory().display().to_string())
            .collect();
        return Err(format!(
            "mounted on {}; name the one to unmount",
            places.join(" and ")
        ));
    }
    let around = || ours().rfind(|mount| whole.starts_with(mount.directory()));
    of_file
        .pop()
        .or_else(around)
        .ok_or_else(|| NOT_OURS.to_owned())
}

/// The path as the table of mounts has it. A mountpoint whose daemon is gone can't be looked at, but its parent can.
fn without_links(path: &Path) -> PathBuf {
    let through_parent = || {
        let parent = path.parent()?;
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    let whole = path.canonicalize().ok().or_else(through_parent);
    whole.unwrap_or_else(|| path.to_owned())
}
