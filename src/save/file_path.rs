//! How a file is found by its name: by its path as the system follows it, beneath a directory that is open, or far away.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::acl::limited;
use super::rejected;
use super::store::{ASKED, Access, Disk, Store, is_gone, open_waiting, stat_at};
use crate::error::{Error, Result, lock};
use crate::source::{FileSource, Source, Stat, open_beneath};

/// A directory, and what lies beneath it: no symbolic link is followed, not even to a place inside of it.
#[derive(Debug)]
pub struct Beneath {
    directory: File,
    path: PathBuf,
    /// Whether what is mounted below it belongs to it.
    cross_mounts: bool,
}

impl Beneath {
    /// The directory at `path`. What is mounted below it counts as absent, unless `cross_mounts`.
    ///
    /// # Errors
    /// Of opening it.
    pub fn new(path: &Path, cross_mounts: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            directory: rustix::fs::openat(CWD, path, flags, Mode::empty())?.into(),
            path: path.to_owned(),
            cross_mounts,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what is at a path relative to it; itself, if that is empty.
    ///
    /// # Errors
    /// Of openat2(2): `ELOOP` where a symbolic link is, `EXDEV` where something is mounted.
    pub fn open(&self, relative: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let relative = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        let opened = open_beneath(&self.directory, relative, flags, self.cross_mounts);
        Ok(opened?)
    }

    /// The attributes of what is at a path relative to it. Nothing is opened for reading.
    ///
    /// # Errors
    /// As [`Beneath::open`].
    pub fn stat(&self, relative: &Path) -> io::Result<Stat> {
        self.looked_at(relative, AtFlags::empty())
    }

    fn looked_at(&self, relative: &Path, how: AtFlags) -> io::Result<Stat> {
        if relative.as_os_str().is_empty() {
            // with no further descriptor, as there may be none left
            return stat_of(&self.directory, how);
        }
        stat_of(&self.open(relative, OFlags::PATH)?.into(), how)
    }
}

/// The attributes of a file that is open, perhaps only as a place (`O_PATH`), with the permissions that its access list leaves.
fn stat_of(file: &File, how: AtFlags) -> io::Result<Stat> {
    let stat = stat_at(file, OsStr::new(""), AtFlags::EMPTY_PATH | how)?;
    // fgetxattr(2) fails with EBADF on a descriptor that is only a place
    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(limited(stat, |name, list| {
        rustix::fs::getxattr(place, name, list)
    }))
}

/// A file that is open to be read.
pub struct OpenFile {
    /// The file, if it is one of this machine.
    pub local: Option<Arc<FileSource>>,
    /// Its bytes.
    pub bytes: Arc<dyn Source>,
    /// Its attributes from before anything of it was read.
    pub stat: Stat,
}

impl OpenFile {
    /// A file of this machine.
    ///
    /// # Errors
    /// Of the system.
    pub(super) fn of(file: Arc<File>) -> io::Result<Self> {
        let stat = stat_at(&*file, OsStr::new(""), AtFlags::EMPTY_PATH | ASKED)?;
        let local = Arc::new(FileSource::new(file, stat.size));
        Ok(Self {
            local: Some(Arc::clone(&local)),
            bytes: local,
            stat,
        })
    }
}

/// A file that no path of this machine leads to. It is only read.
pub trait FarFile: fmt::Debug + Send + Sync {
    /// Its attributes, as they were some seconds ago at most.
    ///
    /// # Errors
    /// Of the server, as the system would have them: [`io::ErrorKind::NotFound`] if there is no such file.
    fn stat(&self) -> io::Result<Stat>;

    /// Opens it as it is now. What was opened never becomes another state of it: reading it fails then.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn open(&self) -> Result<OpenFile>;

    /// Drops the known attributes, because they have changed: the next [`FarFile::stat`] asks the server.
    fn forget(&self);

    /// What there is to say of its server, for people: what each line is about, and what it says.
    fn told(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The path of a file.
#[derive(Debug, Clone)]
pub struct FilePath {
    /// Of a file far away, its URL without what is secret in it.
    whole: PathBuf,
    way: Way,
    /// Where the file was found last, if it is to be found there when the path leads nowhere any more.
    held: Option<Held>,
}

/// A directory, open, and the name of a file in it. Files that are found beneath a directory share it with the others that are in the same
/// one, and go by their own names.
pub(super) type Held = Arc<Mutex<Option<(Arc<File>, OsString)>>>;

/// How the path of a file or a directory is followed.
#[derive(Debug, Clone)]
enum Way {
    /// As the system follows it.
    System,
    /// Beneath a directory that is open, by a path relative to it.
    Beneath(Arc<Beneath>, PathBuf),
    /// Far away: a server has the file.
    Far(Arc<dyn FarFile>),
}

/// Why a file far away is not written.
pub const ONLY_READ: &str = "a remote file is only read";

impl<P: AsRef<Path> + ?Sized> From<&P> for FilePath {
    /// The path as the system follows it.
    fn from(path: &P) -> Self {
        Self {
            whole: path.as_ref().to_owned(),
            way: Way::System,
            held: None,
        }
    }
}

impl FilePath {
    /// What is at a path relative to a directory.
    #[must_use]
    pub fn beneath(directory: &Arc<Beneath>, relative: PathBuf) -> Self {
        Self {
            whole: directory.path.join(&relative),
            way: Way::Beneath(Arc::clone(directory), relative),
            held: None,
        }
    }

    /// The same path, which leads to the file also when a directory in it has been renamed: the directory of the file stays open from when
    /// the file is first opened.
    #[must_use]
    pub fn holding(self) -> Self {
        let held = Some(Held::default());
        Self { held, ..self }
    }

    /// The same, but the directory is open from now on, if it can be opened.
    #[must_use]
    pub fn holding_now(self) -> Self {
        let file = self.holding();
        // if it can't be, nor can the file, and opening that says why
        let _ = file.resolved(Access::Read);
        file
    }

    /// The same path, with the open directory of another file in it.
    #[must_use]
    pub fn holding_with(self, other: &Self) -> Self {
        let held = other.held.clone();
        Self { held, ..self }
    }

    /// The directory that is held open, opened once more, and the name of the file there; `gone` if there is none.
    fn in_held(&self, flags: OFlags, gone: io::Error) -> io::Result<(File, OsString)> {
        let held = self.held.as_ref().and_then(|held| lock(held).clone());
        let (directory, name) = held.ok_or(gone)?;
        let name = match &self.way {
            Way::Beneath(_, relative) => relative.file_name().map_or(name, OsStr::to_owned),
            Way::System | Way::Far(_) => name,
        };
        // the descriptor that is held is only a place; to list or to sync the directory it has to be opened
        let directory = rustix::fs::openat(&directory, ".", flags, Mode::empty())?;
        Ok((directory.into(), name))
    }

    /// A file far away, which messages call `name`.
    #[must_use]
    pub fn far(name: PathBuf, file: Arc<dyn FarFile>) -> Self {
        Self {
            whole: name,
            way: Way::Far(file),
            held: None,
        }
    }

    /// Whether it lies far away.
    #[must_use]
    pub fn is_far(&self) -> bool {
        matches!(self.way, Way::Far(_))
    }

    /// Drops the known attributes of a far file, because they have changed. Those of other files are always asked for.
    pub fn forget(&self) {
        if let Way::Far(file) = &self.way {
            file.forget();
        }
    }

    /// What there is to say of the server of a far file, for people: what each line is about, and what it says.
    #[must_use]
    pub fn told(&self) -> Vec<(&'static str, String)> {
        match &self.way {
            Way::Far(file) => file.told(),
            Way::System | Way::Beneath(..) => Vec::new(),
        }
    }

    /// The whole path, for messages; of a file far away its URL, without what is secret in it.
    #[must_use]
    pub fn whole(&self) -> &Path {
        &self.whole
    }

    /// The attributes of the file that is there now; far away, as they were some seconds ago at most. A file system that others write to
    /// as well may answer from its cache.
    ///
    /// # Errors
    /// Of the system.
    pub fn stat(&self) -> io::Result<Stat> {
        self.looked_at(AtFlags::empty())
    }

    /// The same, asked of the disk.
    ///
    /// # Errors
    /// Of the system.
    pub fn stat_asked(&self) -> io::Result<Stat> {
        self.looked_at(ASKED)
    }

    fn looked_at(&self, how: AtFlags) -> io::Result<Stat> {
        match &self.way {
            Way::System => {
                let stat = match stat_at(CWD, self.whole.as_os_str(), how) {
                    Err(gone) if is_gone(&gone) => return self.stat_held(gone, how),
                    found => found?,
                };
                Ok(limited(stat, |name, list| {
                    rustix::fs::getxattr(&self.whole, name, list)
                }))
            }
            Way::Beneath(directory, relative) => match directory.looked_at(relative, how) {
                Err(gone) if is_gone(&gone) => self.stat_held(gone, how),
                found => found,
            },
            Way::Far(file) => file.stat(),
        }
    }

    /// The attributes of the file in the directory that is held open; `gone` if there is none.
    fn stat_held(&self, gone: io::Error, how: AtFlags) -> io::Result<Stat> {
        let place = OFlags::PATH | OFlags::CLOEXEC;
        let (directory, name) = self.in_held(place | OFlags::DIRECTORY, gone)?;
        let file = rustix::fs::openat(directory, name, place | OFlags::NOFOLLOW, Mode::empty())?;
        stat_of(&file.into(), how)
    }

    /// Opens what is there now for reading, without waiting for a writer of a FIFO.
    ///
    /// # Errors
    /// [`Error::Io`], also if that is no regular file.
    pub fn open(&self) -> Result<OpenFile> {
        let failed = |cause| Error::io(self.whole.display().to_string(), cause);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if let Way::Far(file) = &self.way {
            return file.open();
        }
        let file = match self.open_as(flags) {
            // another program has a lease on it
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => {
                let file = self.open_as(OFlags::PATH);
                file.and_then(|file| open_waiting(&file, flags))
            }
            opened => opened.map(File::from),
        };
        let opened = file.and_then(|file| OpenFile::of(Arc::new(file)));
        let opened = opened.map_err(failed)?;
        if opened.stat.is_regular() {
            return Ok(opened);
        }
        Err(failed(io::ErrorKind::InvalidInput.into()))
    }

    /// Opens what is there now, a file or a directory of this machine.
    pub(super) fn open_as(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let opened = match &self.way {
            Way::System => {
                let opened = rustix::fs::openat(CWD, &self.whole, flags, Mode::empty());
                opened.map_err(io::Error::from)
            }
            Way::Beneath(directory, relative) => directory.open(relative, flags),
            Way::Far(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match opened {
            Err(gone) if is_gone(&gone) => {
                let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let (directory, name) = self.in_held(place, gone)?;
                let flags = flags | OFlags::NOFOLLOW;
                Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
            }
            opened => opened,
        }
    }

    /// The path of the directory that the file is in; of one far away, its own.
    fn parent(&self) -> Self {
        match &self.way {
            Way::System => Self::from(self.whole.parent().unwrap_or(Path::new("/"))),
            Way::Beneath(directory, relative) => {
                let own = relative.parent().unwrap_or(Path::new(""));
                Self::beneath(directory, own.to_owned())
            }
            Way::Far(_) => self.clone(),
        }
    }

    /// The directory that the file is in, opened to look names up in it.
    ///
    /// # Errors
    /// Of the system.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.parent().open_as(flags) {
            Err(gone) if is_gone(&gone) => Ok(self.in_held(flags, gone)?.0.into()),
            opened => opened,
        }
    }

    /// Checks that this process may write the file, by its permissions.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn check_writable(&self) -> io::Result<()> {
        if self.is_far() {
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, ONLY_READ));
        }
        let name = self.whole.file_name().unwrap_or(self.whole.as_os_str());
        let flags = AtFlags::EACCESS;
        Ok(rustix::fs::accessat(
            self.directory()?,
            name,
            rustix::fs::Access::WRITE_OK,
            flags,
        )?)
    }

    /// The files beside it that hold refused texts.
    #[must_use]
    pub fn rejected(&self) -> Vec<PathBuf> {
        if self.is_far() {
            return Vec::new();
        }
        let Ok((directory, name)) = self.resolved(Access::Read) else {
            return Vec::new();
        };
        let elsewhere = directory.path_elsewhere();
        let names = rejected::beside(&directory, &name).into_iter();
        let path = |name| match &elsewhere {
            Some(elsewhere) => elsewhere.join(name),
            None => self.whole.with_file_name(name),
        };
        names.map(path).collect()
    }

    /// The directory that the file is in, opened for that access to the file, and its name there. Symbolic links are resolved here,
    /// once, where they are followed.
    pub(super) fn resolved(&self, access: Access) -> io::Result<(Disk, OsString)> {
        match self.resolved_by_path(access) {
            Err(gone) if is_gone(&gone) => {
                let (directory, name) = self.in_held(access.of_directory(), gone)?;
                Ok((Disk::at(directory, self.parent(), self.held.clone()), name))
            }
            resolved => resolved,
        }
    }

    /// The same, as the path leads there.
    fn resolved_by_path(&self, access: Access) -> io::Result<(Disk, OsString)> {
        let path = match &self.way {
            Way::System => Self::from(&self.whole.canonicalize()?),
            Way::Beneath(..) | Way::Far(_) => self.clone(),
        };
        // `/` and paths that end in `..` have no name to replace
        let name = path.whole.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let directory = Disk::found(path.parent(), self.held.clone(), access)?;
        // another directory may have that path by now: the one that is held still has the file
        if let Err(gone) = directory.stat_name(name)
            && is_gone(&gone)
        {
            return Err(gone);
        }
        directory.hold(name);
        Ok((directory, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_found_beneath_a_directory_through_a_link_or_above_it() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("in/sub")).unwrap();
        for name in ["secret", "in/a", "in/sub/b"] {
            std::fs::write(root.join(name), name).unwrap();
        }
        symlink("../secret", root.join("in/out")).unwrap();
        symlink("sub", root.join("in/inner")).unwrap();
        let beneath = Arc::new(Beneath::new(&root.join("in"), false).unwrap());
        let read = |name: &str| {
            let path = FilePath::beneath(&beneath, name.into());
            assert_eq!(path.whole(), root.join("in").join(name));
            let opened = path.open().map(|_| ());
            assert_eq!(
                opened.is_ok(),
                path.resolved(Access::Read).is_ok()
                    && path.stat().is_ok_and(|stat| stat.is_regular())
            );
            opened.is_ok()
        };
        for (name, there) in [
            ("a", true),
            ("sub/b", true),
            ("out", false),
            ("inner/b", false),
            ("../secret", false),
            ("sub/../../secret", false),
        ] {
            assert_eq!(read(name), there, "{name}");
        }
        assert!(beneath.stat(Path::new("")).unwrap().is_directory());
    }

    /// A look at the new directory let go of the one that had the file, for all files of it.
    #[test]
    fn a_directory_that_was_renamed_is_held_although_another_has_its_path() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "f").unwrap();
        let beneath = Arc::new(Beneath::new(&root, false).unwrap());
        let path = FilePath::beneath(&beneath, "d/f".into()).holding();
        path.resolved(Access::Read).unwrap();
        std::fs::rename(root.join("d"), root.join("e")).unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        for _ in 0..2 {
            let (directory, name) = path.resolved(Access::Read).unwrap();
            assert!(directory.stat_name(&name).unwrap().is_regular());
            assert_eq!(directory.path_elsewhere(), Some(root.join("e")));
        }
    }

    #[test]
    fn what_is_mounted_below_counts_as_absent() {
        let root = Path::new("/");
        let beneath = |cross| {
            Beneath::new(root, cross)
                .unwrap()
                .stat(Path::new("proc/version"))
        };
        let refused = Errno::from_io_error(&beneath(false).unwrap_err());
        assert_eq!(refused, Some(Errno::XDEV));
        assert!(beneath(true).is_ok());
    }
}
