//! How a file is found by its name: by its path as the system follows it, or beneath a directory that is open.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::store::Disk;

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
        /// A rename elsewhere in the tree may make the kernel give up; it says so, and not for ever.
        const ATTEMPTS: usize = 100;
        let mut how =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        how.set(ResolveFlags::NO_XDEV, !self.cross_mounts);
        let relative = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || openat2(&self.directory, relative, flags, Mode::empty(), how);
        let mut opened = open();
        for _ in 0..ATTEMPTS {
            if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
                break;
            }
            opened = open();
        }
        Ok(opened?)
    }

    /// The attributes of what is at a path relative to it. Nothing is opened for reading.
    ///
    /// # Errors
    /// As [`Beneath::open`].
    pub fn metadata(&self, relative: &Path) -> io::Result<Metadata> {
        if relative.as_os_str().is_empty() {
            // with no further descriptor, as there may be none left
            return self.directory.metadata();
        }
        File::from(self.open(relative, OFlags::PATH)?).metadata()
    }
}

/// The path of a file.
#[derive(Debug, Clone)]
pub struct FilePath {
    whole: PathBuf,
    /// The directory that it is followed from, and the way from there.
    beneath: Option<(Arc<Beneath>, PathBuf)>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for FilePath {
    /// The path as the system follows it.
    fn from(path: &P) -> Self {
        Self {
            whole: path.as_ref().to_owned(),
            beneath: None,
        }
    }
}

impl FilePath {
    /// What is at a path relative to a directory.
    #[must_use]
    pub fn beneath(directory: &Arc<Beneath>, relative: PathBuf) -> Self {
        Self {
            whole: directory.path.join(&relative),
            beneath: Some((Arc::clone(directory), relative)),
        }
    }

    /// The whole path, for messages.
    #[must_use]
    pub fn whole(&self) -> &Path {
        &self.whole
    }

    /// The attributes of the file that is there now.
    ///
    /// # Errors
    /// Of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.beneath {
            None => std::fs::metadata(&self.whole),
            Some((directory, relative)) => directory.metadata(relative),
        }
    }

    /// Opens what is there now for reading, without waiting for a writer of a FIFO.
    ///
    /// # Errors
    /// Of the system.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match &self.beneath {
            None => rustix::fs::openat(CWD, &self.whole, flags, Mode::empty())?,
            Some((directory, relative)) => directory.open(relative, flags)?,
        };
        Ok(file.into())
    }

    /// The directory that the file is in, opened to look names up in it.
    ///
    /// # Errors
    /// Of the system.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match &self.beneath {
            None => {
                let own = self.whole.parent().unwrap_or(Path::new("/"));
                let flags = flags | OFlags::CLOEXEC;
                Ok(rustix::fs::openat(CWD, own, flags, Mode::empty())?)
            }
            Some((directory, relative)) => {
                directory.open(relative.parent().unwrap_or(Path::new("")), flags)
            }
        }
    }

    /// That this process may write the file, by its permissions.
    ///
    /// # Errors
    /// Why not.
    pub fn check_writable(&self) -> io::Result<()> {
        let name = self.whole.file_name().unwrap_or(self.whole.as_os_str());
        let flags = AtFlags::EACCESS;
        Ok(rustix::fs::accessat(
            self.directory()?,
            name,
            Access::WRITE_OK,
            flags,
        )?)
    }

    /// The directory that the file is in, and its name there. Symbolic links are resolved here, once, where they are followed.
    pub(super) fn resolved(&self) -> io::Result<(Disk, OsString)> {
        let no_file = || io::Error::from(io::ErrorKind::IsADirectory);
        let Some((directory, relative)) = &self.beneath else {
            let whole = self.whole.canonicalize()?;
            let (own, name) = (whole.parent(), whole.file_name());
            let (own, name) = own.zip(name).ok_or_else(no_file)?;
            return Ok((Disk::open_dir(own)?, name.to_owned()));
        };
        let name = relative.file_name().ok_or_else(no_file)?;
        let own = relative.parent().unwrap_or(Path::new(""));
        let dir = directory.open(own, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let way = (Arc::clone(directory), own.to_owned());
        Ok((Disk::of(dir.into(), Some(way)), name.to_owned()))
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
                path.resolved().is_ok() && path.metadata().is_ok_and(|meta| meta.is_file())
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
        assert!(beneath.metadata(Path::new("")).unwrap().is_dir());
    }

    #[test]
    fn what_is_mounted_below_counts_as_absent() {
        let root = Path::new("/");
        let beneath = |cross| {
            Beneath::new(root, cross)
                .unwrap()
                .metadata(Path::new("proc/version"))
        };
        let refused = Errno::from_io_error(&beneath(false).unwrap_err());
        assert_eq!(refused, Some(Errno::XDEV));
        assert!(beneath(true).is_ok());
    }
}
