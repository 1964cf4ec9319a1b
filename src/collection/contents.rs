//! Where the files of a collection come from: the directories of one directory, a list, or what a server lists.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;
use rustix::fs::{FileType, OFlags, RawDir};

use super::item::ItemKind;
use super::listing::Listing;
use super::many::is_lack;
use crate::save::{Beneath, FilePath};
use crate::source::Stat;

/// Bytes that are read of a directory at once.
const DIRECTORY_BUFFER: usize = 64 << 10;

/// Which names are those of members.
#[derive(Debug, Clone)]
pub struct Match(Vec<Pattern>);

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pattern) in self.0.iter().enumerate() {
            let or = if i > 0 { " or " } else { "" };
            write!(f, "{or}{}", pattern.as_str())?;
        }
        Ok(())
    }
}

impl Match {
    /// The names that match any of these patterns, which a colon separates: `*`, `?` and `[a-z]` as in a shell.
    ///
    /// # Errors
    /// What is wrong with a pattern.
    pub fn new(patterns: &str) -> Result<Self, String> {
        let patterns = patterns.split(':').map(Pattern::new);
        let patterns: Result<Vec<_>, _> = patterns.collect();
        let patterns = patterns.map_err(|error| error.to_string())?;
        let mut texts = patterns.iter().map(Pattern::as_str);
        if texts.clone().any(|text| text.contains('/')) {
            return Err("a pattern is for names, which hold no slash".to_owned());
        }
        if texts.any(str::is_empty) {
            return Err("a pattern such as *.asdf is needed".to_owned());
        }
        Ok(Self(patterns))
    }

    /// Whether a file of that name is a member. As in a shell, a pattern must begin with a dot to match a name that does.
    #[must_use]
    pub fn has(&self, name: &OsStr) -> bool {
        self.0.iter().any(|pattern| fits(pattern, name.as_bytes()))
    }
}

impl Default for Match {
    fn default() -> Self {
        Self(Pattern::new("*.asdf").into_iter().collect())
    }
}

/// Whether a name matches a pattern. In a name that is not UTF-8, each bad sequence counts as one character.
fn fits(pattern: &Pattern, name: &[u8]) -> bool {
    let text = pattern.as_str();
    if name.starts_with(b".") && !text.starts_with('.') {
        return false;
    }
    // To compare endings takes a tenth of the time of a match, and a directory may hold a hundred thousand names.
    let is_special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']');
    match text.strip_prefix('*') {
        Some(ending) if !ending.bytes().any(is_special) => name.ends_with(ending.as_bytes()),
        _ => pattern.matches(&String::from_utf8_lossy(name)),
    }
}

/// What a collection is of.
pub enum Contents {
    /// The files below a directory whose names match, in directories like those there.
    Mirror(Arc<Beneath>, Match),
    /// Files, each by the name that it is shown under. Those of this machine are found from the root directory: a link that takes the
    /// place of one is not followed, as it may lead into the mount itself.
    List(BTreeMap<OsString, FilePath>),
    /// The files of a listing, in directories that their names make.
    Listing(Listing),
}

/// The names in a directory of a collection, each with its kind. They are in one buffer, as there may be a hundred thousand.
#[derive(Debug, Default)]
pub(super) struct DirEntries {
    names: Vec<u8>,
    /// Where each name ends.
    ends: Vec<(usize, ItemKind)>,
}

impl DirEntries {
    /// Adds a name.
    pub(super) fn push(&mut self, name: &OsStr, kind: ItemKind) {
        self.names.extend_from_slice(name.as_bytes());
        self.ends.push((self.names.len(), kind));
    }

    /// The names in the order in which they were added.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&OsStr, ItemKind)> {
        let mut start = 0;
        self.ends.iter().map(move |&(end, kind)| {
            let name = self.names.get(start..end).unwrap_or_default();
            start = end;
            (OsStr::from_bytes(name), kind)
        })
    }
}

impl Contents {
    /// The directory that is shown, for messages; nothing of a list.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::Mirror(root, _) => Some(root.path().to_owned()),
            Self::List(_) => None,
            Self::Listing(listing) => Some(listing.name()),
        }
    }

    /// Where temporary files may be: in the directory that is shown, or that of the first file of a list.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let first = |files: &BTreeMap<_, FilePath>| {
            let near = files.values().find(|file| !file.is_far())?;
            near.whole().parent().map(Path::to_owned)
        };
        match self {
            Self::Mirror(root, _) => Some(root.path().to_owned()),
            Self::List(files) => first(files),
            Self::Listing(_) => None,
        }
        .unwrap_or_else(std::env::temp_dir)
    }

    /// Whether all of it is on servers, and so is only read.
    #[must_use]
    pub fn is_far(&self) -> bool {
        match self {
            Self::Mirror(..) => false,
            Self::List(files) => files.values().all(FilePath::is_far),
            Self::Listing(_) => true,
        }
    }

    /// Whether any of it is on a server.
    #[must_use]
    pub fn has_far(&self) -> bool {
        match self {
            Self::List(files) => files.values().any(FilePath::is_far),
            _ => self.is_far(),
        }
    }

    /// The path of a member.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] of what a list does not have.
    pub(super) fn file(&self, relative: PathBuf) -> io::Result<FilePath> {
        match self {
            Self::Mirror(root, _) => Ok(FilePath::beneath(root, relative)),
            Self::List(files) => {
                let known = files.get(relative.as_os_str());
                known.cloned().ok_or_else(no_such_file)
            }
            Self::Listing(listing) => listing.file(&relative),
        }
    }

    /// The attributes of a directory or a member; [`ItemKind::of`] tells which of the two it is.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for anything else, also for links and for what is mounted there; of the system.
    pub(super) fn look_at(&self, relative: &Path) -> io::Result<Stat> {
        let (stat, is_shown) = match self {
            Self::Mirror(root, names) => {
                let stat = root.stat(relative).map_err(absent)?;
                let is_member = || relative.file_name().is_some_and(|name| names.has(name));
                let is_shown = stat.is_directory() || stat.is_regular() && is_member();
                (stat, is_shown)
            }
            Self::List(_) if relative.as_os_str().is_empty() => {
                (Stat::from(&std::fs::metadata("/")?), true)
            }
            Self::List(files) => {
                let file = files.get(relative.as_os_str()).ok_or_else(no_such_file)?;
                let stat = match file.stat() {
                    // what its server says is told in it
                    Err(_) if file.is_far() => unanswered(),
                    stat => stat.map_err(absent)?,
                };
                (stat, stat.is_regular())
            }
            Self::Listing(listing) => (listing.look_at(relative)?, true),
        };
        is_shown.then_some(stat).ok_or_else(no_such_file)
    }

    /// Why the server of a file of a list does not tell its attributes, if it was asked and does not.
    pub(super) fn failure(&self, relative: &Path) -> Option<io::Error> {
        match self {
            Self::List(files) => files.get(relative.as_os_str())?.stat().err(),
            _ => None,
        }
    }

    /// The directories and members in a directory, in any order. A member is known by its name and type alone.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn entries(&self, relative: &Path) -> io::Result<DirEntries> {
        let mut out = DirEntries::default();
        let (root, names) = match self {
            Self::Mirror(root, names) => (root, names),
            Self::List(files) => {
                for name in files.keys() {
                    out.push(name, ItemKind::Member);
                }
                return Ok(out);
            }
            Self::Listing(listing) => return listing.entries(relative),
        };
        let directory = root.open(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut buffer = vec![MaybeUninit::uninit(); DIRECTORY_BUFFER];
        let mut read = RawDir::new(directory, &mut buffer);
        while let Some(entry) = read.next().transpose()? {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile if names.has(name) => Some(ItemKind::Member),
                // what is mounted there is not shown
                kind @ (FileType::Directory | FileType::Unknown) => {
                    match self.look_at(&relative.join(name)) {
                        Ok(stat) => Some(ItemKind::of(&stat)),
                        Err(error) if is_lack(&error) => return Err(error),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                        Err(_) => (kind == FileType::Directory).then_some(ItemKind::Directory),
                    }
                }
                _ => None,
            };
            if let Some(kind) = kind {
                out.push(name, kind);
            }
        }
        Ok(out)
    }

    /// Whether the attributes of each file are asked of a server by a request of its own.
    pub(super) fn asks_for_each(&self) -> bool {
        matches!(self, Self::List(files) if files.values().any(FilePath::is_far))
    }

    /// Checks that enough descriptors are left to open a member.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_descriptors() -> io::Result<()> {
        /// FILE, its directory, and what is open while it is read.
        const WANTED: usize = 4;
        let opened: io::Result<Vec<_>> = (0..WANTED).map(|_| File::open("/")).collect();
        opened.map(drop)
    }

    /// The names of files that can't be shown under them.
    pub(super) fn left_out(&self) -> Vec<String> {
        match self {
            Self::Listing(listing) => listing.left_out(),
            _ => Vec::new(),
        }
    }

    /// A directory of the file system that it is on, of a list that of the first file that has one; nothing of what lies far away.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn any_directory(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Mirror(root, _) => root.open(Path::new(""), OFlags::PATH).map(Some),
            Self::List(files) => {
                let near = files.values().filter(|file| !file.is_far());
                let mut found = Ok(None);
                for directory in near.map(FilePath::directory) {
                    found = directory.map(Some);
                    if found.is_ok() {
                        break;
                    }
                }
                found
            }
            Self::Listing(_) => Ok(None),
        }
    }
}

/// The attributes of a file whose server does not tell them. They are those of no other file.
pub(super) fn unanswered() -> Stat {
    far_stat(u64::MAX, 0, (0, 0), ItemKind::Member)
}

/// The attributes of a file or directory on a server, which has no inode: `id` tells it from others. It is on no device of this machine,
/// belongs to the user who mounts it, and can be read by every user who may use the mount.
pub(super) fn far_stat(id: u64, size: u64, mtime: (i64, i64), kind: ItemKind) -> Stat {
    let mode = match kind {
        ItemKind::Directory => 0o040_555,
        ItemKind::Member => 0o100_444,
    };
    Stat {
        id: (u64::MAX, id),
        size,
        mtime,
        ctime: mtime,
        links: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode,
        left: Stat::ALL,
    }
}

fn no_such_file() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Has links, and directories where something is mounted, count as not there.
fn absent(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    match Errno::from_io_error(&error) {
        Some(Errno::XDEV | Errno::LOOP | Errno::NOTDIR) => no_such_file(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_known_by_their_names() {
        let names = Match::new("*.asdf:cal_[0-9]*").unwrap();
        for (name, want) in [
            ("a.asdf", true),
            ("cal_7.fits", true),
            ("cal_x", false),
            ("a.asdf.gz", false),
            (".a.asdf", false),
            (".asdf", false),
        ] {
            assert_eq!(names.has(name.as_ref()), want, "{name}");
        }
        let hidden = Match::new(".*:*a?").unwrap();
        for (name, want) in [
            (".a.asdf", true),
            ("ba?", true),
            ("bax", true),
            ("xa", false),
        ] {
            assert_eq!(hidden.has(name.as_ref()), want, "{name}");
        }
        assert!(names.has(OsStr::from_bytes(b"\xff.asdf")));
        assert!(Match::default().has("x.asdf".as_ref()));
        for wrong in ["", "*.asdf:", "a[", "sub/*.asdf"] {
            assert!(Match::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_directory_is_mirrored_without_links_and_other_files() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        for name in ["a.asdf", "note.txt", "sub/b.asdf"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("a.asdf", root.join("link.asdf")).unwrap();
        std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
        let beneath = Arc::new(Beneath::new(root, false).unwrap());
        let contents = Contents::Mirror(beneath, Match::default());
        let entries = contents.entries(Path::new("")).unwrap();
        let mut names: Vec<_> = entries.iter().collect();
        names.sort_by_key(|entry| entry.0);
        let want = [("a.asdf", ItemKind::Member), ("sub", ItemKind::Directory)];
        assert_eq!(names, want.map(|(name, kind)| (OsStr::new(name), kind)));
        let kind = |path: &str| {
            let found = contents.look_at(Path::new(path));
            found.ok().map(|stat| ItemKind::of(&stat))
        };
        for (path, want) in [
            ("", Some(ItemKind::Directory)),
            ("sub", Some(ItemKind::Directory)),
            ("sub/b.asdf", Some(ItemKind::Member)),
            ("note.txt", None),
            ("link.asdf", None),
            ("link/b.asdf", None),
            ("none", None),
        ] {
            assert_eq!(kind(path), want, "{path:?}");
        }
    }

    /// Without the directory of its first file, the whole mount had no sizes, and `df` failed.
    #[test]
    fn the_disk_of_a_list_is_that_of_any_file_whose_directory_is_there() {
        let place = tempfile::TempDir::new().unwrap();
        let [gone, there] = ["gone/a.asdf", "b.asdf"].map(|name| place.path().join(name));
        let list = |paths: &[&Path]| {
            let files = paths.iter().map(|path| {
                let name = path.file_name().unwrap().to_owned();
                (name, FilePath::from(*path))
            });
            Contents::List(files.collect()).any_directory()
        };
        assert!(list(&[&gone, &there]).unwrap().is_some());
        assert!(list(&[&gone]).is_err());
        assert!(list(&[]).unwrap().is_none());
    }
}
