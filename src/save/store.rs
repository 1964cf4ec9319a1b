//! Every operation that a save does on FILE and its directory, and nothing that decides which ones.
//!
//! [`Store`] is the seam: a test puts a simulated disk there. [`Disk`] is the real one. Names are names in FILE's directory,
//! which is held open from before the mount, as the mountpoint may hide it.
#![allow(
    unsafe_code,
    reason = "sharing a range of bytes and leases have no safe function; see each call"
)]

mod attributes;
mod locks;
mod look;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, SeekFrom,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Resource;

pub use attributes::Facts;
pub(super) use locks::lock_either;
pub use locks::{lock_shared, unlock};

use self::look::keeps_names;
pub(super) use self::look::{ASKED, stat_at};
use super::file_path::{FilePath, Held};
use crate::asdf::layout::Extent;
use crate::error::lock;
use crate::source::{Stat, at_most, len_u64};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be read and written.
    Write,
}

impl Access {
    /// How the directory is opened in which files are to be opened so.
    pub(super) fn of_directory(self) -> OFlags {
        let how = match self {
            Self::Read => OFlags::PATH,
            // to sync it, and to find what interrupted saves have left in it
            Self::Write => OFlags::RDONLY,
        };
        how | OFlags::DIRECTORY | OFlags::CLOEXEC
    }
}

/// A directory, and what can be done to the files in it.
///
/// Each function is one or a few system calls of that name; errors are the system's.
#[expect(missing_docs, reason = "each function is the system call of its name")]
pub trait Store: Send + Sync + 'static {
    /// An open file.
    type File: Clone + Send + Sync + 'static;

    /// Reads bytes from `offset` on; gives how many, 0 at the end of the file.
    fn read(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes bytes from `offset` on; gives how many.
    fn write(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes bytes durable, and a length that is needed to read them.
    fn sync_data(&self, file: &Self::File) -> io::Result<()>;
    fn sync_all(&self, file: &Self::File) -> io::Result<()>;
    fn set_len(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Reserves space without changing the file's length; does nothing on a filesystem that can't.
    fn reserve(&self, file: &Self::File, extent: Extent) -> io::Result<()>;
    /// The first run of bytes at or behind `from` that is not a hole.
    fn data(&self, file: &Self::File, from: u64) -> io::Result<Option<Extent>>;
    /// Makes `to` share the bytes of `from`, without copying them.
    fn share(
        &self,
        from: &Self::File,
        extent: Extent,
        to: &Self::File,
        offset: u64,
    ) -> io::Result<()>;
    /// Copies some bytes, at least one, from the start of `extent`.
    fn copy(
        &self,
        from: &Self::File,
        extent: Extent,
        to: &Self::File,
        offset: u64,
    ) -> io::Result<u64>;
    /// The attributes that the file has now. A file system that others write to as well is asked, and does not answer from its cache.
    fn stat(&self, file: &Self::File) -> io::Result<Stat>;
    /// Takes the exclusive lock for the life of the open file; `false` if another process has it.
    fn lock(&self, file: &Self::File) -> io::Result<bool>;
    /// Gives the lock up again.
    fn unlock(&self, file: &Self::File) -> io::Result<()>;
    /// The process that has the lock, if `/proc` tells.
    fn lock_holder(&self, file: &Self::File) -> Option<u32>;
    /// Whether another process has `file` open for writing. `false` if that can't be found out, as where this process has it open for
    /// writing, too.
    fn written_elsewhere(&self, file: &Self::File) -> io::Result<bool>;
    /// The processes that have the file open for writing, if `/proc` tells.
    fn writers(&self, file: &Self::File) -> Option<String>;
    /// The filesystem's block in bytes, if files may share blocks of `file`.
    fn grain(&self, file: &Self::File) -> Option<u64>;
    /// Gives `to` the owner, permissions, ACL and extended attributes of `from`.
    fn imitate(&self, from: &Self::File, to: &Self::File) -> io::Result<()>;
    /// Gives a file another owner, group and mode.
    fn set_facts(&self, file: &Self::File, facts: Facts) -> io::Result<()>;

    /// Opens an existing file; a symlink is an error. What is read through the new descriptor is what the file is now.
    fn open(&self, name: &OsStr, access: Access) -> io::Result<Self::File>;
    /// Makes a file for the owner alone, to be written, with the inode flags of `like`. None is made where it could not be removed.
    fn create(&self, name: &OsStr, like: Option<&Self::File>) -> io::Result<Self::File>;
    /// The attributes that what has that name has now, be it a symlink; not from a cache, as of [`Store::stat`].
    fn stat_name(&self, name: &OsStr) -> io::Result<Stat>;
    fn names(&self) -> io::Result<Vec<OsString>>;
    /// Swaps two names; `false` if the system can't, and then nothing has happened.
    fn exchange(&self, a: &OsStr, b: &OsStr) -> io::Result<bool>;
    /// Renames a file, over the one that has the new name.
    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Renames a file to a name that is free; `EEXIST` if it is not.
    fn rename_to_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()>;
    fn unlink(&self, name: &OsStr) -> io::Result<()>;
    /// Makes the names in the directory durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// The directory that is now at the path by which this one was found, if it is another one.
    ///
    /// # Errors
    /// `ENOENT` or `ENOTDIR` if there is no directory at the path.
    fn moved(&self) -> io::Result<Option<Self>>
    where
        Self: Sized,
    {
        Ok(None)
    }
    /// Has the file of that name found in this directory, also when that is renamed.
    fn hold(&self, _name: &OsStr) {}
    /// The path of this directory, if that is no longer the one by which it was found.
    fn path_elsewhere(&self) -> Option<PathBuf> {
        None
    }
    /// How many bytes this process may still write to the file system, if that tells.
    fn free(&self) -> Option<u64> {
        None
    }
    /// The user that this process acts as.
    fn user(&self) -> u32;
}

/// The error that another process has the file open for writing.
pub(super) fn busy() -> io::Error {
    Errno::BUSY.into()
}

/// Whether an error says that there is no file of that name. After any other error the file may be there.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR))
}

/// Whether an error says that this operation can't be done at all on this filesystem or by this user, rather than that it went wrong.
pub(super) fn impossible(error: &io::Error) -> bool {
    let errnos = [
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::BUSY,
        Errno::XDEV,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::INVAL,
        Errno::NAMETOOLONG,
        // something else has the name that a file is to be renamed to
        Errno::ISDIR,
        Errno::NOTEMPTY,
    ];
    Errno::from_io_error(error).is_some_and(|errno| errnos.contains(&errno))
}

/// The inode flags that a user sets on a file, and that a new file in its place has too.
const KEPT_FLAGS: IFlags = IFlags::NOCOW
    .union(IFlags::COMPRESSED)
    .union(IFlags::NODUMP)
    .union(IFlags::NOATIME)
    .union(IFlags::SYNC)
    .union(IFlags::JOURNALING)
    .union(IFlags::NOTAIL);

/// A directory on a real filesystem.
pub struct Disk {
    dir: Arc<File>,
    /// The path by which it was found; `None` for a directory that is not looked up again.
    path: Option<FilePath>,
    /// What leads to a file in it.
    held: Option<Held>,
}

impl Disk {
    /// Opens a directory that stays the same one, even if another takes its path.
    ///
    /// # Errors
    /// Of opening it.
    pub fn open_dir(path: &Path) -> io::Result<Self> {
        let found = Self::found(FilePath::from(path), None, Access::Write)?;
        Ok(Self {
            path: None,
            ..found
        })
    }

    /// Opens the directory that is at a path now. With [`Access::Read`] only files in it can be opened: that needs permission to search
    /// the directory, not to read it.
    ///
    /// # Errors
    /// Of opening it.
    pub(super) fn found(path: FilePath, held: Option<Held>, access: Access) -> io::Result<Self> {
        let dir = path.open_as(access.of_directory())?.into();
        Ok(Self::at(dir, path, held))
    }

    /// A directory that is open already, and was at that path.
    pub(super) fn at(dir: File, path: FilePath, held: Option<Held>) -> Self {
        Self {
            dir: Arc::new(dir),
            path: Some(path),
            held,
        }
    }

    /// A directory that is open already.
    pub(super) fn held(dir: File) -> Self {
        Self {
            dir: Arc::new(dir),
            path: None,
            held: None,
        }
    }

    /// Opens a name in the directory, and not what a symlink of that name leads to. With `NONBLOCK` it does not wait for the other
    /// end of a FIFO, but for another process that has a lease on the file.
    fn open_at(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(mode));
        match open(flags) {
            // Another process has a lease on the file, as file servers take: the kernel asks for it back, and this call waits for that.
            Err(Errno::AGAIN) if flags.contains(OFlags::NONBLOCK) => {
                let file = open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
                open_waiting(&file, flags)
            }
            opened => Ok(opened?.into()),
        }
    }

    /// A file in the directory that has no name.
    fn unnamed(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.dir, ".", flags, Mode::from_raw_mode(0o600))?.into())
    }
}

/// Opens the regular file that a descriptor stands for, and waits for another process that has a lease on it. The system ends the lease
/// after `/proc/sys/fs/lease-break-time` seconds.
///
/// # Errors
/// Of the system; `EAGAIN` if there is no `/proc`, or if it is no regular file: opening that might wait for ever.
pub(super) fn open_waiting(file: &OwnedFd, flags: OFlags) -> io::Result<File> {
    let found = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN.into());
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = flags.difference(OFlags::NONBLOCK | OFlags::NOFOLLOW);
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
    // the file is open, so it is `/proc` that is missing
    Ok(opened
        .map_err(|error| {
            if error == Errno::NOENT {
                Errno::AGAIN
            } else {
                error
            }
        })?
        .into())
}

impl Store for Disk {
    type File = Arc<File>;

    fn read(&self, file: &Arc<File>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
    }

    fn write(&self, file: &Arc<File>, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync_data(&self, file: &Arc<File>) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_all(&self, file: &Arc<File>) -> io::Result<()> {
        file.sync_all()
    }

    fn set_len(&self, file: &Arc<File>, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn reserve(&self, file: &Arc<File>, extent: Extent) -> io::Result<()> {
        if extent.is_empty() {
            return Ok(());
        }
        // which Linux does not heed where the size is kept
        // a write beyond the limit of the process would be SIGXFSZ, or EFBIG in the middle of a save
        let limit = rustix::process::getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| extent.end > limit) {
            return Err(Errno::FBIG.into());
        }
        let keep_size = FallocateFlags::KEEP_SIZE;
        let reserve = || rustix::fs::fallocate(file, keep_size, extent.start, extent.len());
        match retry_on_intr(reserve) {
            // NFS before 4.2, vfat and others: what room there is, the writes will find out
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn data(&self, file: &Arc<File>, from: u64) -> io::Result<Option<Extent>> {
        let size = file.metadata()?.len();
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // a filesystem that knows no holes: everything up to the end is data
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok((from < size).then_some(Extent {
                    start: from,
                    end: size,
                }));
            }
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        Ok(Some(Extent { start, end }))
    }

    fn share(
        &self,
        from: &Arc<File>,
        extent: Extent,
        to: &Arc<File>,
        offset: u64,
    ) -> io::Result<()> {
        let range = libc::file_clone_range {
            src_fd: from.as_raw_fd().into(),
            src_offset: extent.start,
            src_length: extent.len(),
            dest_offset: offset,
        };
        // SAFETY: FICLONERANGE reads one `file_clone_range` behind its pointer, which lives until the call returns, and writes
        // no memory of ours; both descriptors are open for as long as the files are borrowed.
        let done = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn copy(
        &self,
        from: &Arc<File>,
        extent: Extent,
        to: &Arc<File>,
        offset: u64,
    ) -> io::Result<u64> {
        /// So much at a time, so that a copy can be interrupted.
        const STEP: usize = 64 << 20;
        let (mut start, mut offset) = (extent.start, offset);
        let len = at_most(extent.len(), STEP);
        let copied = retry_on_intr(|| {
            rustix::fs::copy_file_range(from, Some(&mut start), to, Some(&mut offset), len)
        });
        match copied {
            // some filesystems copy nothing and say so without an error, as procfs and older FUSE
            Ok(copied) if copied > 0 => return Ok(len_u64(copied)),
            Ok(_) | Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buf = vec![0; len.min(1 << 20)];
        let read = from.read_at(&mut buf, extent.start)?;
        let bytes = buf
            .get(..read)
            .filter(|bytes| !bytes.is_empty())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(len_u64(to.write_at(bytes, offset)?))
    }

    fn stat(&self, file: &Arc<File>) -> io::Result<Stat> {
        // a call that failed is made once more: without FILE's attributes nobody knows whether another program has written it
        let look = || stat_at(file, OsStr::new(""), AtFlags::EMPTY_PATH | ASKED);
        look().or_else(|_| look())
    }

    fn lock(&self, file: &Arc<File>) -> io::Result<bool> {
        locks::lock(file)
    }

    fn unlock(&self, file: &Arc<File>) -> io::Result<()> {
        unlock(file)
    }

    fn lock_holder(&self, file: &Arc<File>) -> Option<u32> {
        super::lock_holder(file)
    }

    fn written_elsewhere(&self, file: &Arc<File>) -> io::Result<bool> {
        /// `F_SETSIG` of `fcntl(2)`, the same on all architectures of Linux.
        const F_SETSIG: libc::c_int = 10;
        // the kernel gives no lease of a file to a program that may write it
        if rustix::fs::fcntl_getfl(file)?.contains(OFlags::RDWR) {
            return Ok(false);
        }
        let fd = file.as_raw_fd();
        // SAFETY: these commands of fcntl take an integer and touch no memory. A lease that is broken while we hold it, for
        // these two calls, sends SIGURG instead of SIGIO: that is ignored by default.
        let taken = unsafe {
            libc::fcntl(fd, F_SETSIG, libc::SIGURG);
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK)
        };
        if taken == 0 {
            // SAFETY: as above.
            unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
            return Ok(false);
        }
        // a file of another user, or a filesystem without leases: nothing is known
        Ok(io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock)
    }

    fn writers(&self, file: &Arc<File>) -> Option<String> {
        super::processes::writers(file)
    }

    fn grain(&self, file: &Arc<File>) -> Option<u64> {
        let block = rustix::fs::fstatvfs(file).ok()?.f_bsize;
        let len = file.metadata().ok()?.len();
        // whether bytes can be shared is not said anywhere: it is tried, with a file that vanishes when it is closed
        let to = Arc::new(self.unnamed().ok()?);
        // a length of 0 means "to the end", which a file shorter than a block may be shared by
        let end = if len < block { 0 } else { block };
        self.share(file, Extent { start: 0, end }, &to, 0).ok()?;
        Some(block)
    }

    fn imitate(&self, from: &Arc<File>, to: &Arc<File>) -> io::Result<()> {
        attributes::imitate(from, to)
    }

    fn set_facts(&self, file: &Arc<File>, facts: Facts) -> io::Result<()> {
        attributes::set(file, facts)
    }

    fn open(&self, name: &OsStr, access: Access) -> io::Result<Arc<File>> {
        let flags = match access {
            Access::Read => OFlags::RDONLY | OFlags::NONBLOCK,
            Access::Write => OFlags::RDWR | OFlags::NONBLOCK,
        };
        Ok(Arc::new(self.open_at(name, flags, 0)?))
    }

    fn create(&self, name: &OsStr, like: Option<&Arc<File>>) -> io::Result<Arc<File>> {
        // of a directory in which no name can be removed, the copy could not be either
        if keeps_names(&self.dir) {
            return Err(Errno::PERM.into());
        }
        let file = self.open_at(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o600)?;
        if let Some(flags) = like.and_then(|like| rustix::fs::ioctl_getflags(like).ok())
            && flags.intersects(KEPT_FLAGS)
            && let Ok(mut ours) = rustix::fs::ioctl_getflags(&file)
        {
            for flag in flags.intersection(KEPT_FLAGS).iter() {
                // one that this filesystem or user may not set costs no other; bytes that can't be shared without it are copied
                if rustix::fs::ioctl_setflags(&file, ours | flag).is_ok() {
                    ours |= flag;
                }
            }
        }
        Ok(Arc::new(file))
    }

    fn stat_name(&self, name: &OsStr) -> io::Result<Stat> {
        stat_at(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW | ASKED)
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir)? {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    }

    fn exchange(&self, a: &OsStr, b: &OsStr) -> io::Result<bool> {
        // with an exchange FILE is under the other name afterwards, and can be looked at before it is removed
        match rustix::fs::renameat_with(&self.dir, a, &self.dir, b, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn rename_to_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
            // the filesystem can't check that the name is free, so it is looked up as late as possible
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match self.stat_name(to) {
                Ok(_) => Err(Errno::EXIST.into()),
                Err(error) if is_gone(&error) => self.rename(from, to),
                Err(error) => Err(error),
            },
            renamed => Ok(renamed?),
        }
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.dir.sync_all()
    }

    fn moved(&self) -> io::Result<Option<Self>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        match path.stat_asked() {
            Ok(found) if found.id == Stat::from(&self.dir.metadata()?).id => Ok(None),
            Ok(_) => Self::found(path.clone(), self.held.clone(), Access::Write).map(Some),
            // a link, or something that is mounted there
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::LOOP | Errno::XDEV) => Err(io::ErrorKind::NotFound.into()),
                _ => Err(error),
            },
        }
    }

    fn hold(&self, name: &OsStr) {
        if let Some(held) = &self.held {
            *lock(held) = Some((Arc::clone(&self.dir), name.to_owned()));
        }
    }

    fn path_elsewhere(&self) -> Option<PathBuf> {
        if matches!(self.moved(), Ok(None)) {
            return None;
        }
        let link = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        std::fs::read_link(link).ok()
    }

    fn free(&self) -> Option<u64> {
        let found = rustix::fs::fstatvfs(&self.dir).ok()?;
        // a part of the blocks is reserved for root
        let blocks = if self.user() == 0 {
            found.f_bfree
        } else {
            found.f_bavail
        };
        // some file systems have no sizes
        (found.f_blocks > 0).then_some(blocks.saturating_mul(found.f_frsize))
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }
}

#[cfg(test)]
mod tests;
