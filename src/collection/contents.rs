//! Where the files of a collection come from: the directories of one directory, a list, or what a server lists.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;
use rustix::fs::{Dir, FileType, OFlags};

use super::item::ItemKind;
use super::listing::Listing;
use crate::save::{Beneath, FilePath};
use crate::source::Stat;

/// Which names are those of members.
#[derive(Debug, Clone)]
pub struct Match(Vec<Pattern>);

impl Match {
    /// The names that match any of these patterns, which a colon separates: `*`, `?` and `[a-z]` as in a shell.
    ///
    /// # Errors
    /// What is wrong with a pattern.
    pub fn new(patterns: &str) -> Result<Self, String> {
        let patterns = patterns.split(':').map(Pattern::new);
        let patterns: Result<Vec<_>, _> = patterns.collect();
        let patterns = patterns.map_err(|error| error.to_string())?;
        if patterns
            .iter()
            .any(|pattern| pattern.as_str().contains('/'))
        {
            return Err("a pattern is for names, which hold no slash".to_owned());
        }
        if patterns.iter().any(|pattern| pattern.as_str().is_empty()) {
            return Err("a pattern such as *.asdf is needed".to_owned());
        }
        Ok(Self(patterns))
    }

    /// Whether a file of that name is a member. As in a shell, a pattern must begin with a dot to match a name that does.
    #[must_use]
    pub fn has(&self, name: &OsStr) -> bool {
        let name = String::from_utf8_lossy(name.as_bytes());
        let dotted = |text: &str| text.starts_with('.');
        let mut patterns = self.0.iter();
        patterns.any(|pattern| dotted(&name) <= dotted(pattern.as_str()) && pattern.matches(&name))
    }
}

impl Default for Match {
    fn default() -> Self {
        Self(Pattern::new("*.asdf").into_iter().collect())
    }
}

/// What a collection is of.
#[derive(Debug)]
pub enum Contents {
    /// The files below a directory whose names match, in directories like those there.
    Mirror(Arc<Beneath>, Match),
    /// Files, each by the name that it is shown under. Those of this machine are found from the root directory: a link that takes the
    /// place of one is not followed, as it may lead into the mount itself.
    List(BTreeMap<OsString, FilePath>),
    /// The files of a listing, in directories that their names make.
    Listing(Listing),
}

/// A name in a directory of a collection.
pub(super) struct DirEntry {
    pub(super) name: OsString,
    pub(super) kind: ItemKind,
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

    /// Whether all of it lies far away, and so is only read.
    #[must_use]
    pub fn is_far(&self) -> bool {
        match self {
            Self::Mirror(..) => false,
            Self::List(files) => files.values().all(FilePath::is_far),
            Self::Listing(_) => true,
        }
    }

    /// Whether any of it does.
    pub(super) fn has_far(&self) -> bool {
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

    /// The attributes of a directory or a member, and which of the two it is.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] for anything else, also for links and for what is mounted there; of the system.
    pub(super) fn look_at(&self, relative: &Path) -> io::Result<(ItemKind, Stat)> {
        let found = match self {
            Self::Mirror(root, names) => {
                let stat = root.stat(relative).map_err(absent)?;
                let is_member = || relative.file_name().is_some_and(|name| names.has(name));
                let kind = match stat {
                    stat if stat.is_directory() => Some(ItemKind::Directory),
                    stat if stat.is_regular() && is_member() => Some(ItemKind::Member),
                    _ => None,
                };
                kind.map(|kind| (kind, stat))
            }
            Self::List(_) if relative.as_os_str().is_empty() => {
                Some((ItemKind::Directory, Stat::from(&std::fs::metadata("/")?)))
            }
            Self::List(files) => {
                let file = files.get(relative.as_os_str()).ok_or_else(no_such_file)?;
                let stat = file.stat().map_err(absent)?;
                stat.is_regular().then_some((ItemKind::Member, stat))
            }
            Self::Listing(listing) => listing.look_at(relative),
        };
        found.ok_or_else(no_such_file)
    }

    /// The directories and members in a directory, in any order. A member is known by its name and type alone.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn entries(&self, relative: &Path) -> io::Result<Vec<DirEntry>> {
        let (root, names) = match self {
            Self::Mirror(root, names) => (root, names),
            Self::List(files) => {
                let entry = |name: &OsString| DirEntry {
                    name: name.clone(),
                    kind: ItemKind::Member,
                };
                return Ok(files.keys().map(entry).collect());
            }
            Self::Listing(listing) => return listing.entries(relative),
        };
        let directory = root.open(relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut out = Vec::new();
        for entry in Dir::new(directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile if names.has(name) => Some(ItemKind::Member),
                // what is mounted there is not shown, and neither is what can't be looked at
                FileType::Directory | FileType::Unknown => {
                    let found = self.look_at(&relative.join(name));
                    found.ok().map(|(kind, _)| kind)
                }
                _ => None,
            };
            out.extend(kind.map(|kind| DirEntry {
                name: name.to_owned(),
                kind,
            }));
        }
        Ok(out)
    }

    /// That there are as many descriptors left as opening a member takes.
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

    /// A directory of the file system that it is on, of a list that of its first file; nothing of what lies far away.
    pub(super) fn any_directory(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Mirror(root, _) => root.open(Path::new(""), OFlags::PATH).map(Some),
            Self::List(files) => {
                let near = files.values().find(|file| !file.is_far());
                near.map(FilePath::directory).transpose()
            }
            Self::Listing(_) => Ok(None),
        }
    }
}

fn no_such_file() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// Where a link is or something is mounted, there is nothing to be shown.
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
        let mut names: Vec<_> = contents.entries(Path::new("")).unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<_> = names
            .iter()
            .map(|entry| (&*entry.name, entry.kind))
            .collect();
        let want = [("a.asdf", ItemKind::Member), ("sub", ItemKind::Directory)];
        assert_eq!(names, want.map(|(name, kind)| (OsStr::new(name), kind)));
        let kind = |path: &str| contents.look_at(Path::new(path)).ok().map(|found| found.0);
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
}
