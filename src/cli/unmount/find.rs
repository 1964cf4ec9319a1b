//! Which mount is meant: by its directory, by the file or URL that it shows, or by a path inside.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::{attribute, daemon_is_gone};
use crate::source::Mounted;

/// The message for a path that names none of our mounts.
pub(super) const NOT_OURS: &str =
    "not a mounted ASDF file; findmnt -t fuse.asdf-mount lists those that are mounted";

/// The mount that `path` names, which is served by a program; why there is none, otherwise.
pub(super) fn mount_of(path: &Path) -> Result<Mounted, String> {
    let whole = without_links(path);
    if let Some(mounted) = Mounted::at(&whole).filter(Mounted::is_fuse) {
        return Ok(mounted);
    }
    let shows = |mount: &Mounted| {
        // a URL stands there as it is
        mount.looks_ours() && (mount.is_of(&whole) || mount.is_of(path))
    };
    let mut of_file: Vec<Mounted> = Mounted::all().into_iter().filter(shows).collect();
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
    if let Some(mounted) = of_file.pop().or_else(|| around(&whole)) {
        return Ok(mounted);
    }
    Err(match path.metadata() {
        _ if is_url(path) => NOT_OURS.to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "no such file or directory; check its path".to_owned()
        }
        Err(error) if !Errno::from_io_error(&error).is_some_and(daemon_is_gone) => {
            error.to_string()
        }
        _ => NOT_OURS.to_owned(),
    })
}

/// The directory that a mount of many files shows a file as, if it has opened that file.
pub(super) fn in_mount_of_many(path: &Path) -> Option<PathBuf> {
    let whole = without_links(path);
    let shows_many = |mount: &Mounted| {
        let source = mount.source();
        mount.looks_ours() && !source.is_file() && !is_url(source)
    };
    let place = |mount: &Mounted| {
        // files of a list have their names alone
        let below = whole.strip_prefix(mount.source()).ok();
        let below = below.or(whole.file_name().map(Path::new))?;
        Some(mount.directory().join(below))
    };
    let mounts = Mounted::all();
    let mut places = mounts.iter().filter(|it| shows_many(it)).filter_map(place);
    places.find(|place| {
        attribute(place, "user.asdf.file").is_some_and(|file| *file == *whole.as_os_str())
    })
}

/// Whether that is a URL.
pub(super) fn is_url(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    text.windows(3).any(|part| part == b"://")
}

/// The mount of ours at a path without links, or else the one that it lies in.
pub(in crate::cli) fn around(whole: &Path) -> Option<Mounted> {
    let holds = |mount: &Mounted| whole.starts_with(mount.directory()) && mount.looks_ours();
    Mounted::all().into_iter().rfind(holds)
}

/// The path as the table of mounts has it. Nothing in a mount of ours is looked at for it: a daemon that is stopped never answers, and one
/// of another user does not let us look.
pub(in crate::cli) fn without_links(path: &Path) -> PathBuf {
    // realpath(3) would ask the mount, whose daemon may hang: links inside of it are not followed
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mounts = Mounted::all();
    let ours: Vec<&Mounted> = mounts.iter().filter(|mount| mount.looks_ours()).collect();
    let mut whole = PathBuf::new();
    for part in absolute.components() {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
        if ours
            .iter()
            .any(|mount| whole.starts_with(mount.directory()))
        {
            continue;
        }
        if let Ok(real) = whole.canonicalize() {
            whole = real;
        }
    }
    whole
}
