//! The directories and files of a listing: what the keys of a bucket say, with a slash between the parts of a name. Each directory is
//! listed when it is first looked into.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use log::warn;

use super::contents::{DirEntries, Match, far_stat};
use super::item::ItemKind;
use super::renewed::Renewed;
use crate::error::{Error, Place, Result, printable};
use crate::save::FilePath;
use crate::source::Stat;
use crate::vfs::{check_name, locked};

/// A directory is listed anew after so many times the time that it took.
const PAUSE: u32 = 20;
/// So many directories are listed at once where all of them are.
const AT_ONCE: usize = 4;
/// Why something is in no listing.
pub(super) const LEFT_OUT: &str = "left out: its name, or its time in the listing, is impossible";
/// The most directories whose names are remembered.
const MAX_KNOWN: usize = 1 << 16;

/// What a listing tells those who open a file of it.
pub type ListedSource = dyn Any + Send + Sync;

/// What a name in a listing stands for.
#[derive(Debug, Clone)]
pub enum Listed {
    /// A file with these attributes, and what is handed to [`Listable::file`].
    File(Stat, Arc<ListedSource>),
    /// A directory.
    Folder,
    /// Something that can't be read by its name.
    Unreadable,
}

/// Something whose files can be listed.
pub trait Listable: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> PathBuf;

    /// How long a listing counts as new.
    fn ttl(&self) -> Duration;

    /// The files and directories in a directory, whose name is empty if it is the root, each with its name there.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    fn list(&self, directory: &str) -> Result<Vec<(String, Listed)>>;

    /// The file of a name below the root, and what its listing has told of it.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::error::Error::Unsupported) if there can be none of that name.
    fn file(&self, name: &str, source: Option<&ListedSource>) -> Result<FilePath>;
}

/// The files of a bucket, each directory as it was when it was listed last.
pub struct Listing {
    bucket: Box<dyn Listable>,
    names: Match,
    /// The attributes of each directory.
    directory: Stat,
    /// The directories that were listed. Held for moments.
    known: Mutex<HashMap<PathBuf, Arc<Renewed<Level>>>>,
}

/// What is in a directory, or why it was never listed.
type Level = Result<Arc<ListedNames>>;

/// The names in a directory.
#[derive(Debug, Default)]
struct ListedNames {
    /// Each file by its attributes and what its listing has told of it; `None` for a directory.
    shown: BTreeMap<String, Option<(Stat, Arc<ListedSource>)>>,
    /// Names of files that can't be shown.
    left_out: Vec<String>,
}

impl Listing {
    /// The files of `bucket` whose names match. Its root is listed.
    ///
    /// # Errors
    /// Of listing it.
    pub fn new(bucket: Box<dyn Listable>, names: Match) -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(0);
        let listing = Self {
            bucket,
            names,
            directory: far_stat(0, 0, (now, 0), ItemKind::Directory),
            known: Mutex::default(),
        };
        listing.names(Path::new(""))?;
        Ok(listing)
    }

    /// What it is called in messages.
    pub(super) fn name(&self) -> PathBuf {
        self.bucket.name()
    }

    /// The names in a directory as they are now, or were some seconds ago. While it can't be listed, the names that it had.
    fn names(&self, directory: &Path) -> Level {
        let mut known = locked(&self.known);
        // each name that is looked up as a directory gets an entry: somebody may look up millions
        if known.len() >= MAX_KNOWN && !known.contains_key(directory) {
            known.clear();
        }
        let level = known.entry(directory.to_owned());
        let new = || Arc::new(Renewed::new(self.bucket.ttl(), PAUSE, Level::is_ok));
        // the map is unlocked before the server is asked, so that other directories are answered meanwhile
        let level = Arc::clone(level.or_insert_with(new));
        drop(known);
        level.get(|last| {
            let name = directory.to_str().unwrap_or_default();
            let last = last.and_then(Result::ok);
            match self.bucket.list(name) {
                Ok(listed) => Ok(self.told(directory, listed, last.as_deref())),
                Err(error) => {
                    if last.is_some() {
                        warn!("{error}; shown as it was");
                    } else if !name.is_empty() {
                        // of the root, the failure of the mount is told
                        warn!("{error}");
                    }
                    last.ok_or(error)
                }
            }
        })
    }

    /// The names of these files. Says in the log which are left out, if others were left out of the names before.
    fn told(
        &self,
        directory: &Path,
        listed: Vec<(String, Listed)>,
        before: Option<&ListedNames>,
    ) -> Arc<ListedNames> {
        let names = ListedNames::of(listed, &self.names);
        let known = before.map_or(&[][..], |before| &before.left_out);
        if let Some(first) = names.left_out.first()
            && names.left_out != known
        {
            warn!(
                "{}: {} files are left out, because of impossible names or times: {} …",
                self.name().join(directory).display(),
                names.left_out.len(),
                printable(first)
            );
        }
        Arc::new(names)
    }

    /// The names of files that can't be shown, of the directories that were listed.
    pub(super) fn left_out(&self) -> Vec<String> {
        let known: Vec<_> = {
            let known = locked(&self.known);
            let levels = known.iter();
            let levels = levels.map(|(directory, level)| (directory.clone(), Arc::clone(level)));
            levels.collect()
        };
        let mut out: Vec<String> = Vec::new();
        for (directory, level) in known {
            let Some(Ok(names)) = level.last() else {
                continue;
            };
            let way = match directory.to_str() {
                Some("") | None => String::new(),
                Some(way) => format!("{way}/"),
            };
            out.extend(names.left_out.iter().map(|name| format!("{way}{name}")));
        }
        out.sort();
        out.dedup();
        out
    }

    /// What is at a path, as [`ListedNames::shown`] has it. The root is there without being listed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; of listing the directory that it is in.
    fn find(&self, relative: &Path) -> io::Result<Option<(Stat, Arc<ListedSource>)>> {
        let (Some(directory), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Ok(None);
        };
        let names = self.names(directory).map_err(|error| error.to_system())?;
        let found = name.to_str().and_then(|name| names.shown.get(name));
        found.cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    /// The attributes of a directory or a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; of listing the directory that it is in.
    pub(super) fn look_at(&self, relative: &Path) -> io::Result<Stat> {
        let found = self.find(relative)?;
        Ok(found.map_or(self.directory, |(stat, _)| stat))
    }

    /// What is in a directory.
    pub(super) fn entries(&self, relative: &Path) -> io::Result<DirEntries> {
        let names = self.names(relative).map_err(|error| error.to_system())?;
        let mut out = DirEntries::default();
        for (name, file) in &names.shown {
            let kind = match file {
                Some(_) => ItemKind::Member,
                None => ItemKind::Directory,
            };
            out.push(OsStr::new(name), kind);
        }
        Ok(out)
    }

    /// The file at a path, whether it is there or not.
    pub(super) fn file(&self, relative: &Path) -> io::Result<FilePath> {
        let name = relative.to_str().ok_or(io::ErrorKind::NotFound)?;
        let source = self.find(relative).ok().flatten();
        let source = source.as_ref().map(|(_, source)| &**source);
        let file = self.bucket.file(name, source);
        file.map_err(|error| error.to_system())
    }

    /// All files below the root, by their names below it, sorted, also those that are hidden by a file that is called as their directory is;
    /// the directories that could not be listed; and what is left out because no file can be called so.
    ///
    /// # Errors
    /// Of listing the root.
    pub fn all(&self) -> Result<Vec<(String, Result<FilePath>)>> {
        self.names(Path::new(""))?;
        let mut out = Vec::new();
        let mut directories = vec![PathBuf::new()];
        while !directories.is_empty() {
            // a few at a time: a bucket may have a million prefixes
            let rest = directories.len().saturating_sub(AT_ONCE);
            let next = directories.split_off(rest);
            for (directory, names) in self.names_of_each(next) {
                let names = match names {
                    Ok(names) => names,
                    Err(error) => {
                        out.push((format!("{}/", directory.display()), Err(error)));
                        continue;
                    }
                };
                for (name, file) in &names.shown {
                    let path = directory.join(name);
                    let Some((_, source)) = file else {
                        directories.push(path);
                        continue;
                    };
                    let way = path.to_string_lossy().into_owned();
                    let file = self.bucket.file(&way, Some(&**source));
                    out.push((way, file));
                }
                for name in &names.left_out {
                    let hidden = name.strip_suffix('/');
                    if let Some(name) = hidden.filter(|name| names.shown.contains_key(*name)) {
                        directories.push(directory.join(name));
                        continue;
                    }
                    // a path would take the slash away that such a name may begin with
                    let way = match directory.to_string_lossy() {
                        way if way.is_empty() => name.clone(),
                        way => format!("{way}/{name}"),
                    };
                    out.push((way, Err(Error::unsupported(Place::File, LEFT_OUT))));
                }
            }
        }
        out.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(out)
    }

    /// The names in each of a few directories, which the server is asked for at once.
    fn names_of_each(&self, directories: Vec<PathBuf>) -> Vec<(PathBuf, Level)> {
        std::thread::scope(|scope| {
            for directory in &directories {
                // without a thread, the server is asked below; with one, there is an answer by then
                let _ = std::thread::Builder::new().spawn_scoped(scope, || self.names(directory));
            }
        });
        let names = |directory: PathBuf| {
            let names = self.names(&directory);
            (directory, names)
        };
        directories.into_iter().map(names).collect()
    }
}

impl ListedNames {
    /// The files whose names match, and the directories. What can't be the name of a file is left out. Of a file and a directory of one name
    /// the file is shown, unless it has no bytes: then it marks a folder.
    fn of(listed: Vec<(String, Listed)>, matching: &Match) -> Self {
        let mut names = Self::default();
        for (name, what) in listed {
            let last = name.rsplit('/').next().unwrap_or_default();
            // a folder that can't be read may have any names in it
            let is_folder = matches!(what, Listed::Folder) || last.is_empty();
            if !is_folder && !matching.has(OsStr::new(last)) {
                continue;
            }
            // keys of a bucket are any bytes; names of files are not
            let special = matches!(name.as_str(), "" | "." | "..") || name.contains(['\0', '/']);
            let is_sound = !special && check_name(OsStr::new(&name)).is_ok();
            let file = match what {
                Listed::File(stat, source) if is_sound => Some((stat, source)),
                Listed::Folder if is_sound => None,
                _ => {
                    names.left_out.push(name);
                    continue;
                }
            };
            let Some(there) = names.shown.get(&name) else {
                names.shown.insert(name, file);
                continue;
            };
            let is_file = there.is_some();
            if is_file == file.is_some() {
                continue;
            }
            let of_file = there.as_ref().or(file.as_ref());
            let has_bytes = of_file.is_some_and(|(stat, _)| stat.size > 0);
            // what is there stays, unless the other one goes before it
            if has_bytes != is_file {
                names.shown.insert(name.clone(), file);
            }
            if has_bytes {
                names.left_out.push(format!("{name}/"));
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Cache;
    use crate::collection::{Collection, Contents, Inode, Item, Unopened};
    use crate::error::Error;
    use crate::vfs::{Node, Scratch, VfsOptions};
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

    fn listed(name: &str, size: u64) -> (String, Listed) {
        match name.strip_suffix('/') {
            Some(name) => (name.to_owned(), Listed::Folder),
            None => (name.to_owned(), Listed::File(stat(size), Arc::new(()))),
        }
    }

    /// The names that are shown of these, a directory with a slash, and those that are left out.
    fn names_of(files: &[(&str, u64)]) -> (Vec<String>, Vec<String>) {
        let files = files.iter().map(|(name, size)| listed(name, *size));
        let names = ListedNames::of(files.collect(), &Match::default());
        let shown = names.shown.iter().map(|(name, file)| {
            let end = if file.is_none() { "/" } else { "" };
            format!("{name}{end}")
        });
        (shown.collect(), names.left_out)
    }

    #[test]
    fn names_that_no_file_can_have_are_left_out_and_others_do_not_count() {
        let long = format!("{}.asdf", "n".repeat(255));
        let files = [
            ("b.asdf", 3),
            ("x/", 0),
            ("n.txt", 3),
            ("a\0.asdf", 3),
            (&long, 3),
        ];
        let (shown, left_out) = names_of(&files);
        assert_eq!(shown, ["b.asdf", "x/"]);
        assert_eq!(left_out, ["a\0.asdf", &long]);
    }

    /// Their names did not match, so that nothing told of what was left out with them.
    #[test]
    fn folders_that_can_not_be_read_are_left_out() {
        let names = ["/", "../", "/a.asdf", "/a.txt"];
        let listed = names.map(|name| (name.to_owned(), Listed::Unreadable));
        let names = ListedNames::of(listed.into(), &Match::default());
        assert!(names.shown.is_empty());
        assert_eq!(names.left_out, ["/", "../", "/a.asdf"]);
    }

    #[test]
    fn of_a_file_and_a_directory_of_one_name_the_file_is_shown_unless_it_is_empty() {
        for files in [
            [("a.asdf", 3), ("a.asdf/", 0)],
            [("a.asdf/", 0), ("a.asdf", 3)],
        ] {
            let (shown, left_out) = names_of(&files);
            assert_eq!(
                (shown, left_out),
                (vec!["a.asdf".to_owned()], vec!["a.asdf/".to_owned()])
            );
        }
        for files in [
            [("a.asdf", 0), ("a.asdf/", 0)],
            [("a.asdf/", 0), ("a.asdf", 0)],
        ] {
            assert_eq!(names_of(&files), (vec!["a.asdf/".to_owned()], Vec::new()));
        }
    }

    /// A bucket with a file that is called as a directory, and with names that no file can have.
    struct Odd;

    impl Listable for Odd {
        fn name(&self) -> PathBuf {
            "s3://b/".into()
        }

        fn ttl(&self) -> Duration {
            Duration::from_secs(10)
        }

        fn list(&self, directory: &str) -> Result<Vec<(String, Listed)>> {
            Ok(match directory {
                "" => vec![
                    listed("x.asdf", 3),
                    listed("x.asdf/", 0),
                    ("/".to_owned(), Listed::Unreadable),
                ],
                "x.asdf" => vec![
                    listed("in.asdf", 3),
                    listed("\t.asdf", 3),
                    listed("\0.asdf", 3),
                ],
                _ => return Err(Error::io("s3://b/", io::ErrorKind::TimedOut.into())),
            })
        }

        fn file(&self, name: &str, _: Option<&ListedSource>) -> Result<FilePath> {
            if name.contains('\t') {
                return Err(Error::unsupported(Place::File, "no such key"));
            }
            Ok(name.into())
        }
    }

    /// What no mount can show seemed not to be there, and a check of all files ended well without it.
    #[test]
    fn all_files_are_also_those_that_a_mount_does_not_show() {
        let listing = Listing::new(Box::new(Odd), Match::default()).unwrap();
        let found = listing.all().unwrap();
        let found = found
            .iter()
            .map(|(name, file)| (name.as_str(), file.is_ok()));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                ("/", false),
                ("x.asdf", true),
                ("x.asdf/\0.asdf", false),
                ("x.asdf/\t.asdf", false),
                ("x.asdf/in.asdf", true),
            ]
        );
    }

    /// A bucket that can be listed a number of times.
    struct Failing(Arc<AtomicUsize>);

    impl Listable for Failing {
        fn name(&self) -> PathBuf {
            "s3://b/".into()
        }

        fn ttl(&self) -> Duration {
            Duration::from_secs(10)
        }

        fn list(&self, directory: &str) -> Result<Vec<(String, Listed)>> {
            let left = self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            let left = left.map_err(|_| Error::io("s3://b/", io::ErrorKind::TimedOut.into()))?;
            let name = match directory {
                "" => "x/".to_owned(),
                directory => format!("{}.asdf", directory.len()),
            };
            Ok(vec![
                listed(&name, left as u64),
                listed("a.asdf", left as u64),
            ])
        }

        fn file(&self, name: &str, _: Option<&ListedSource>) -> Result<FilePath> {
            Ok(name.into())
        }
    }

    /// A bucket of a million objects was listed to its end before it was mounted.
    #[test]
    fn a_directory_is_listed_when_it_is_looked_into_and_then_shown_as_it_was() {
        let left = |times| Arc::new(AtomicUsize::new(times));
        let new = |left: &Arc<AtomicUsize>| {
            Listing::new(Box::new(Failing(Arc::clone(left))), Match::default())
        };
        assert!(new(&left(0)).is_err());
        let left = left(3);
        let listing = new(&left).unwrap();
        let size = |path: &str| Some(listing.look_at(Path::new(path)).ok()?.size);
        assert_eq!(
            ItemKind::of(&listing.look_at(Path::new("")).unwrap()),
            ItemKind::Directory
        );
        assert_eq!(size("a.asdf"), Some(3), "listed when it was made");
        assert_eq!(left.load(Ordering::Relaxed), 2);
        assert_eq!(size("x/1.asdf"), Some(2), "listed when it was looked into");
        let expire = |path: &str| locked(&listing.known)[Path::new(path)].expire();
        expire("");
        assert_eq!(size("a.asdf"), Some(1), "listed again");
        expire("");
        assert_eq!(size("a.asdf"), Some(1), "as it was");
        assert_eq!(size("y/1.asdf"), None);
        let error = listing.look_at(Path::new("y/1.asdf")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// `asdf-mount -u` waited for the bucket to be listed again, and gave up.
    #[test]
    fn what_an_unmount_asks_for_is_told_without_listing() {
        let left = Arc::new(AtomicUsize::new(9));
        let listing = Listing::new(Box::new(Failing(Arc::clone(&left))), Match::default());
        let unopened = || Unopened {
            why: "a test".to_owned(),
            cause: None,
        };
        let files = Collection::many(
            Contents::Listing(listing.unwrap()),
            4,
            true,
            VfsOptions::default(),
            Scratch::new(0, Path::new("/")),
            Box::new(move |_| Err(unopened())),
            Cache::new(1 << 20),
        );
        let root = Inode::new(Item::ROOT, Node::Root, 0);
        let (item, _) = files.lookup(root, "a.asdf".as_ref()).unwrap();
        files.opendir(Inode::new(item, Node::Root, 0)).unwrap();
        let Collection::Many(many) = &files else {
            panic!("one file");
        };
        let Contents::Listing(listing) = &many.contents else {
            panic!("no listing");
        };
        locked(&listing.known)[Path::new("")].expire();
        let before = left.load(Ordering::Relaxed);
        let user = rustix::process::geteuid().as_raw();
        for name in ["pid", "pidns", "unkept", "unsaved", "scratch"] {
            let name = format!("user.asdf.{name}");
            let _ = files.getxattr(root, name.as_ref(), user);
        }
        files.getattr(root).unwrap();
        assert_eq!(left.load(Ordering::Relaxed), before);
    }
}
