//! The directories and files of a listing: what the keys of a bucket say, with a slash between the parts of a name.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use log::warn;

use super::contents::{DirEntries, Match};
use super::item::ItemKind;
use super::renewed::Renewed;
use crate::error::{Result, printable};
use crate::save::FilePath;
use crate::source::Stat;
use crate::vfs::check_name;

/// A listing is asked for anew after so many times the time that it took.
const PAUSE: u32 = 20;
/// The device number of the directories, which are on no device of this machine.
const DEVICE: u64 = u64::MAX;
/// The mode of a directory: every user may look into it who may use the mount.
const DIRECTORY: u32 = 0o040_555;

/// A file of a listing.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name below what is listed, with slashes.
    pub name: String,
    /// Its attributes, as far as the listing tells them; none of one that can't be read by its name.
    pub stat: Option<Stat>,
}

/// Something whose files can be listed.
pub trait Listable: fmt::Debug + Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> PathBuf;

    /// All files, at any depth.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    fn list(&self) -> Result<Vec<Listed>>;

    /// The file of a name that is listed.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::error::Error::Unsupported) if there can be none of that name.
    fn file(&self, name: &str) -> Result<FilePath>;
}

/// The files of a bucket, as they were when it was listed last.
#[derive(Debug)]
pub struct Listing {
    bucket: Box<dyn Listable>,
    names: Match,
    /// The attributes of each directory.
    directory: Stat,
    known: Renewed<Arc<ListedNames>>,
}

/// What is in a bucket.
#[derive(Debug, Default)]
struct ListedNames {
    /// The attributes of each directory and file, by the directory that it is in and its name. The root is the empty path.
    shown: HashMap<PathBuf, BTreeMap<String, Stat>>,
    /// Names of files that can't be shown.
    left_out: Vec<String>,
}

impl Listing {
    /// The files of `bucket` whose names match.
    ///
    /// # Errors
    /// Of listing it.
    pub fn new(bucket: Box<dyn Listable>, names: Match) -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(0);
        let listing = Self {
            bucket,
            names,
            directory: Stat {
                id: (DEVICE, 0),
                size: 0,
                mtime: (now, 0),
                ctime: (now, 0),
                links: 1,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                mode: DIRECTORY,
                left: Stat::ALL,
            },
            known: Renewed::new(PAUSE),
        };
        let begun = Instant::now();
        let listed = listing.bucket.list()?;
        let names = listing.told(listed, None);
        listing.known.learn(begun, names);
        Ok(listing)
    }

    /// What it is called in messages.
    pub(super) fn name(&self) -> PathBuf {
        self.bucket.name()
    }

    /// The names as they are now, or were some seconds ago. While the bucket can't be listed, the names that it had.
    fn names(&self) -> Arc<ListedNames> {
        self.known.get(|last| match self.bucket.list() {
            Ok(listed) => self.told(listed, last.as_deref()),
            Err(error) => {
                warn!("{}: shown as it was: {error}", self.name().display());
                last.unwrap_or_default()
            }
        })
    }

    /// The names of these files. Says in the log which are left out, if others were left out of the names before.
    fn told(&self, listed: Vec<Listed>, before: Option<&ListedNames>) -> Arc<ListedNames> {
        let names = ListedNames::of(listed, &self.names, self.directory);
        let known = before.map_or(&[][..], |before| &before.left_out);
        if let Some(first) = names.left_out.first()
            && names.left_out != known
        {
            warn!(
                "{}: {} files are left out, because no file can be called so: {} …",
                self.name().display(),
                names.left_out.len(),
                printable(first)
            );
        }
        Arc::new(names)
    }

    /// The names of files that can't be shown, because no file of a directory can have them.
    pub(super) fn left_out(&self) -> Vec<String> {
        self.names().left_out.clone()
    }

    /// The attributes of a directory or a file.
    pub(super) fn look_at(&self, relative: &Path) -> Option<Stat> {
        let names = self.names();
        match relative.file_name() {
            Some(_) => names.find(relative),
            None => Some(self.directory),
        }
    }

    /// What is in a directory.
    pub(super) fn entries(&self, relative: &Path) -> io::Result<DirEntries> {
        let names = self.names();
        let entries = names.entries(relative).ok_or(io::ErrorKind::NotFound)?;
        let mut out = DirEntries::default();
        for (name, stat) in entries {
            out.push(OsStr::new(name), ItemKind::of(stat));
        }
        Ok(out)
    }

    /// The file at a path, whether it is there or not.
    pub(super) fn file(&self, relative: &Path) -> io::Result<FilePath> {
        let name = relative.to_str().ok_or(io::ErrorKind::NotFound)?;
        self.bucket.file(name).map_err(|error| error.to_system())
    }
}

impl ListedNames {
    /// The files whose names match, and the directories that lead to them, which have the attributes of `directory`. A file is left out
    /// if a part of its name is empty, `.`, `..` or longer than 255 bytes, or if it lies below a file that has bytes.
    fn of(files: Vec<Listed>, matching: &Match, directory: Stat) -> Self {
        let mut names = Self::default();
        names.shown.insert(PathBuf::new(), BTreeMap::new());
        for Listed { name, stat } in files {
            let parts: Vec<&str> = name.split('/').collect();
            let Some((last, above)) = parts.split_last() else {
                continue;
            };
            let sound = |part: &&str| {
                let special = matches!(*part, "" | "." | "..") || part.contains('\0');
                !special && check_name(OsStr::new(part)).is_ok()
            };
            let stat = stat.filter(|_| parts.iter().all(sound));
            if !matching.has(OsStr::new(last)) {
                continue;
            }
            if !stat.is_some_and(|stat| names.insert((above, directory), (last, stat))) {
                names.left_out.push(name);
            }
        }
        names
    }

    /// Takes in a file, and the directories above it. Whether it did: not if one of these is a file with bytes.
    fn insert(&mut self, (above, directory): (&[&str], Stat), (last, file): (&str, Stat)) -> bool {
        let mut way = PathBuf::new();
        for part in above {
            let entries = self.shown.entry(way.clone()).or_default();
            // a file of no bytes marks a folder
            let is_file = |known: &Stat| !known.is_directory() && known.size > 0;
            if entries.get(*part).is_some_and(is_file) {
                return false;
            }
            entries.insert((*part).to_owned(), directory);
            way.push(part);
        }
        // a directory of that name came first, if there is one
        let entries = self.shown.entry(way).or_default();
        let found = entries.entry(last.to_owned()).or_insert(file);
        !found.is_directory() || file.size == 0
    }

    /// The attributes of the directory or file at a path below the root, if there is one.
    fn find(&self, relative: &Path) -> Option<Stat> {
        let (directory, name) = (relative.parent()?, relative.file_name()?);
        self.shown.get(directory)?.get(name.to_str()?).copied()
    }

    /// The names in a directory, with their attributes.
    fn entries(&self, relative: &Path) -> Option<&BTreeMap<String, Stat>> {
        self.shown.get(relative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn stat(size: u64) -> Stat {
        Stat {
            id: (1, size),
            size,
            mtime: (7, 0),
            ctime: (7, 0),
            links: 1,
            uid: 0,
            gid: 0,
            mode: 0o100_444,
            left: Stat::ALL,
        }
    }

    fn listed(name: &str, size: u64) -> Listed {
        Listed {
            name: name.to_owned(),
            stat: Some(stat(size)),
        }
    }

    fn directory() -> Stat {
        Stat {
            mode: DIRECTORY,
            ..stat(0)
        }
    }

    fn names_of(files: impl IntoIterator<Item = Listed>) -> ListedNames {
        let files = files.into_iter().collect();
        ListedNames::of(files, &Match::default(), directory())
    }

    fn seen(names: &ListedNames, directory: &str) -> Option<Vec<(String, ItemKind)>> {
        let entries = names.entries(Path::new(directory))?.iter();
        Some(
            entries
                .map(|(name, stat)| (name.to_owned(), ItemKind::of(stat)))
                .collect(),
        )
    }

    #[test]
    fn slashes_in_keys_make_directories() {
        let files = ["b.asdf", "x/y/a.asdf", "x/c.asdf", "x/n.txt", "e/n.txt"];
        let names = names_of(files.map(|name| listed(name, 3)));
        let entry = |name: &str, kind| (name.to_owned(), kind);
        let want = [
            entry("b.asdf", ItemKind::Member),
            entry("x", ItemKind::Directory),
        ];
        assert_eq!(seen(&names, "").unwrap(), want);
        let want = [
            entry("c.asdf", ItemKind::Member),
            entry("y", ItemKind::Directory),
        ];
        assert_eq!(seen(&names, "x").unwrap(), want);
        assert_eq!(names.find(Path::new("x/y/a.asdf")), Some(stat(3)));
        assert_eq!(names.find(Path::new("x/y")), Some(directory()));
        for absent in ["e", "x/n.txt", "x/y/a.asdf/b"] {
            assert_eq!(names.find(Path::new(absent)), None, "{absent}");
        }
        assert_eq!(seen(&names, "b.asdf"), None);
    }

    #[test]
    fn keys_that_no_file_can_have_for_a_name_are_left_out() {
        let long = format!("{}.asdf", "n".repeat(255));
        let files = [
            "a//b.asdf",
            "./b.asdf",
            "../b.asdf",
            "c/",
            "",
            "a\0.asdf",
            &long,
        ];
        let names = names_of(files.map(|name| listed(name, 3)));
        assert_eq!(seen(&names, ""), Some(Vec::new()));
        // what does not match is no loss
        let want = ["a//b.asdf", "./b.asdf", "../b.asdf", "a\0.asdf", &long];
        assert_eq!(names.left_out, want);
        let unreadable = ["x//a.asdf", "x//note.txt"].map(|name| Listed {
            name: name.to_owned(),
            stat: None,
        });
        let names = names_of(unreadable);
        assert_eq!(names.left_out, ["x//a.asdf"]);
    }

    #[test]
    fn of_a_file_and_a_directory_of_one_name_the_first_is_shown() {
        for files in [["a.asdf", "a.asdf/b.asdf"], ["a.asdf/b.asdf", "a.asdf"]] {
            let names = names_of(files.map(|name| listed(name, 3)));
            let shown = seen(&names, "").unwrap();
            let kind = if files[0] == "a.asdf" {
                ItemKind::Member
            } else {
                ItemKind::Directory
            };
            assert_eq!(shown, [("a.asdf".to_owned(), kind)]);
            assert_eq!(names.left_out, files[1..]);
        }
    }

    /// The mark of a folder hid what is in it.
    #[test]
    fn a_file_of_no_bytes_gives_way_to_the_directory_of_its_name() {
        for files in [
            [("a.asdf", 0), ("a.asdf/b.asdf", 3)],
            [("a.asdf/b.asdf", 3), ("a.asdf", 0)],
        ] {
            let names = names_of(files.map(|(name, size)| listed(name, size)));
            let want = [("a.asdf".to_owned(), ItemKind::Directory)];
            assert_eq!(seen(&names, "").unwrap(), want);
            let want = [("b.asdf".to_owned(), ItemKind::Member)];
            assert_eq!(seen(&names, "a.asdf").unwrap(), want);
        }
    }

    /// A bucket that can be listed a number of times.
    #[derive(Debug)]
    struct Failing(AtomicUsize);

    impl Listable for Failing {
        fn name(&self) -> PathBuf {
            "s3://b/".into()
        }

        fn list(&self) -> Result<Vec<Listed>> {
            let left = self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            left.map(|left| vec![listed("a.asdf", u64::try_from(left).unwrap())])
                .map_err(|_| Error::io("s3://b/", io::ErrorKind::TimedOut.into()))
        }

        fn file(&self, name: &str) -> Result<FilePath> {
            Ok(name.into())
        }
    }

    #[test]
    fn a_bucket_that_cannot_be_listed_any_more_is_shown_as_it_was() {
        let failing = |times| Box::new(Failing(AtomicUsize::new(times)));
        assert!(Listing::new(failing(0), Match::default()).is_err());
        let listing = Listing::new(failing(2), Match::default()).unwrap();
        let size = || Some(listing.look_at(Path::new("a.asdf"))?.size);
        let root = listing.look_at(Path::new("")).unwrap();
        assert_eq!(ItemKind::of(&root), ItemKind::Directory);
        assert_eq!(size(), Some(2), "listed when it was made");
        listing.known.expire();
        assert_eq!(size(), Some(1), "listed again");
        listing.known.expire();
        assert_eq!(size(), Some(1), "as it was");
    }
}
