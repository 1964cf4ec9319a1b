//! Which mount is meant: by its directory, by the file or URL that it shows, or by a path inside.

use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::ask::ask;
use super::wait::Wait;
use super::{AT_ONCE, attribute, daemon_is_gone};
use crate::cli::far::Urls;
use crate::source::Mounted;

/// The message for a path that names none of our mounts.
pub(super) const NOT_OURS: &str =
    "not a mounted ASDF file; findmnt -t fuse.asdf-mount lists those that are mounted";

/// The mount that `path` names, which is served by a program; why there is none, otherwise. `urls`: what URLs are called.
pub(super) fn mount_of(path: &Path, urls: &Urls) -> Result<Mounted, String> {
    let whole = without_links(path);
    if let Some(mounted) = Mounted::at(&whole).filter(Mounted::is_fuse) {
        return Ok(mounted);
    }
    let mut of_file = showing(path, &whole, urls)?;
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

/// The mounts that show the file or URL that `path` names; `whole` is its path without links.
///
/// The table of mounts, which all users can read, has a URL without what may be secret in it, and so has the same text for many URLs. The
/// whole URL is in the environment of the daemon, which only its user and root can read.
///
/// # Errors
/// If a mount may be that of the URL, or that of another one.
fn showing(path: &Path, whole: &Path, urls: &Urls) -> Result<Vec<Mounted>, String> {
    let url = urls.shown(path);
    let name = url.as_deref().unwrap_or(path);
    let shows = |mount: &Mounted| mount.looks_ours() && (mount.is_of(whole) || mount.is_of(name));
    let mounts = Mounted::all().into_iter().filter(shows);
    if !urls.hides(path) {
        return Ok(mounts.collect());
    }
    let (mut found, mut silent) = (Vec::new(), None);
    for mount in mounts {
        match is_of_url(&mount, path, urls) {
            Some(true) => found.push(mount),
            Some(false) => {}
            None => silent = Some(mount),
        }
    }
    match silent.filter(|_| found.is_empty()) {
        Some(mount) => {
            let there = mount.directory().display();
            Err(format!(
                "{there} may show another query or login of this URL, and its daemon does not tell; name {there} instead"
            ))
        }
        None => Ok(found),
    }
}

/// Whether the daemon of a mount was given the URL that `path` is called; nothing if that can't be found out.
fn is_of_url(mount: &Mounted, path: &Path, urls: &Urls) -> Option<bool> {
    let answers = ask(mount.directory(), &mut Wait::new(AT_ONCE), String::new).ok()??;
    let daemon = answers.daemon.ok().flatten();
    // in another PID namespace that number is another process
    let daemon = daemon.filter(|_| !answers.is_elsewhere)?;
    let environment = std::fs::read(format!("/proc/{}/environ", daemon.as_raw_nonzero()));
    Some(urls.are_in(path, &environment.ok()?))
}

/// The directory where `path` shows the text that was refused: of several mounts that show a file, the one that has refused a text. In a
/// mount of many files, a path means the file that it lies in.
pub(super) fn refusing(path: &Path, urls: &Urls) -> Result<PathBuf, String> {
    let whole = without_links(path);
    let shown = |it: &Path| attribute(it, "user.asdf.file");
    if let Some(mounted) = around(&whole) {
        let directory = mounted.directory();
        let mut inside = (whole.ancestors()).take_while(|it| it.starts_with(directory));
        let file = inside.find(|it| shown(it).is_some());
        // a directory with several files, or a wrong name, does not mean all files of the mount
        let is_gone = |error: &_| Errno::from_io_error(error).is_some_and(daemon_is_gone);
        if file.is_none() && whole != directory && !whole.metadata().is_err_and(|it| is_gone(&it)) {
            return Err(NOT_OURS.to_owned());
        }
        return Ok(file.unwrap_or(directory).to_owned());
    }
    let in_many = |mount: Mounted| {
        let source = mount.source();
        let is_of_many = mount.looks_ours() && !source.is_file() && !is_url(source);
        // files of a list have their names alone
        let below = whole.strip_prefix(source).ok();
        let below = below.or(whole.file_name().map(Path::new))?;
        let place = is_of_many.then(|| mount.directory().join(below))?;
        (shown(&place)? == *whole.as_os_str()).then_some(place)
    };
    let mounts = showing(path, &whole, urls)?.into_iter();
    let mounts = mounts.map(|it| it.directory().to_owned());
    let mut places = mounts.chain(Mounted::all().into_iter().filter_map(in_many));
    let first = places.next();
    let has_refused = |it: &PathBuf| attribute(it, "user.asdf.refused").is_some();
    // no other mount is asked if the first one has: its daemon may be stopped
    let refusing = match first {
        Some(first) if !has_refused(&first) => places.find(has_refused).or(Some(first)),
        first => first,
    };
    match refusing {
        Some(place) => Ok(place),
        None => mount_of(path, urls).map(|mount| mount.directory().to_owned()),
    }
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
