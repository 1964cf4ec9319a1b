//! The kernel interface: `fuser`'s trait over [`Vfs`], and nothing else.
//!
//! Each operation is one call of the file system, then a reply or an errno; the one place that logs a failed request is
//! [`Vfs::refused`]. What the operations mean is `vfs`'s.

mod invalidate;
mod mounting;
mod options;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use fuser::{
    BackgroundSession, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use log::debug;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, XattrFlags};

use crate::source::Loan;
pub use options::MountOptions;

use crate::vfs::{
    Access, Attr, Attributes, Bytes, Call, Caller, Error, Kind, NAME_MAX, Opened, Rename, Vfs,
    check_name,
};

/// The largest request that is asked for, in bytes, for reads (read-ahead) as for writes.
const MAX_REQUEST: u32 = 1 << 20;

/// A mounted file system that is being served in the background.
pub struct Mount {
    session: BackgroundSession,
    made: mounting::Made,
    requests: Requests,
}

/// How many requests a mount has answered.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<AtomicU64>);

impl Requests {
    /// Those of files and directories until now.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Mount {
    /// Mounts `vfs` at `mountpoint` and begins to serve it.
    ///
    /// # Errors
    /// What the kernel or `fusermount3` says.
    pub fn new(vfs: &Arc<Vfs>, mountpoint: &Path, options: &MountOptions) -> io::Result<Self> {
        let requests = Requests::default();
        let shim = Shim {
            vfs: Arc::clone(vfs),
            requests: requests.clone(),
        };
        let (session, made) = mounting::session(shim, mountpoint, options)?;
        let device = session.as_fd().try_clone_to_owned()?;
        vfs.decode_while(move || is_connected(&device));
        let session = session.spawn()?;
        invalidate::from_thread(vfs, session.notifier())?;
        vfs.answer_from_thread()?;
        Ok(Self {
            session,
            made,
            requests,
        })
    }

    /// Counts its requests from now on.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// What ended the session, if it was not an unmount.
    pub fn join(self) -> io::Result<()> {
        self.session.join()?;
        self.made.forget();
        Ok(())
    }
}

/// Whether the kernel still takes replies: not after an unmount, when no descriptor of a file is left either.
fn is_connected(device: &OwnedFd) -> bool {
    let mut device = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec::default();
    // if it can't be asked it counts as connected: then no more is lost than time
    let _ = poll(&mut device, Some(&now));
    let [device] = device;
    !device.revents().contains(PollFlags::ERR)
}

/// The trait's implementation.
struct Shim {
    vfs: Arc<Vfs>,
    requests: Requests,
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        crtime: attr.ctime,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: 128 << 10,
        flags: 0,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
    }
}

fn opened(reply: ReplyOpen, opened: Result<Opened, Errno>) {
    match opened {
        Ok(handle) => reply.opened(FileHandle(handle.fh), open_flags(&handle)),
        Err(errno) => reply.error(errno),
    }
}

fn attr(reply: ReplyAttr, found: Result<Attr, Errno>) {
    match found {
        Ok(attr) => reply.attr(&attr.valid, &file_attr(&attr)),
        Err(errno) => reply.error(errno),
    }
}

fn open_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    if opened.keep_cache {
        flags |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if opened.direct {
        flags |= FopenFlags::FOPEN_DIRECT_IO;
    }
    flags
}

fn access(flags: OpenFlags, req: &Request) -> Access {
    let how = OFlags::from_bits_retain(flags.0.cast_unsigned());
    Access {
        pid: req.pid(),
        write: flags.acc_mode() != OpenAccMode::O_RDONLY,
        truncate: how.contains(OFlags::TRUNC),
        append: how.contains(OFlags::APPEND),
    }
}

fn caller(req: &Request) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
    }
}

fn entry(reply: ReplyEntry, found: Result<Attr, Errno>) {
    match found {
        Ok(attr) => reply.entry(&attr.valid, &file_attr(&attr), Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(errno) => reply.error(errno),
    }
}

impl Shim {
    /// What became of a request for a file; of a failed one the errno, once the log has it.
    fn done<T>(&self, call: Call, ino: INodeNo, done: Result<T, Error>) -> Result<T, Errno> {
        self.requests.add_one();
        done.map_err(|error| Errno::from_i32(self.vfs.refused(call, ino.0, None, &error)))
    }

    /// The same of one for a name in a directory.
    fn done_in<T>(
        &self,
        call: Call,
        (parent, name): (INodeNo, &OsStr),
        done: Result<T, Error>,
    ) -> Result<T, Errno> {
        self.requests.add_one();
        done.map_err(|error| Errno::from_i32(self.vfs.refused(call, parent.0, Some(name), &error)))
    }
}

impl Filesystem for Shim {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // each of these is only an improvement: a kernel that lacks it is served without
        for wanted in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
        ] {
            if let Err(missing) = config.add_capabilities(wanted) {
                debug!("the kernel lacks {missing:?}");
            }
        }
        // the nearest possible value is as good
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config
            .set_max_readahead(MAX_REQUEST)
            .or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = check_name(name).and_then(|()| self.vfs.lookup_by(parent.0, name, req.pid()));
        entry(reply, self.done_in(Call::Lookup, (parent, name), found));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.vfs.getattr(ino.0, fh.map(|fh| fh.0));
        attr(reply, self.done(Call::Getattr, ino, found));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Attributes {
            mode,
            uid,
            gid,
            size,
            mtime: mtime.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            }),
        };
        let done = self.vfs.setattr(ino.0, fh.map(|fh| fh.0), &changes);
        attr(reply, self.done(Call::Setattr, ino, done));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.done(Call::Readlink, ino, self.vfs.readlink(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let done = self.vfs.mknod(parent.0, name, mode, caller(req));
        entry(reply, self.done_in(Call::Create, (parent, name), done));
    }

    fn mkdir(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let done = Err(self.vfs.mkdir(parent.0, name));
        entry(reply, self.done_in(Call::Create, (parent, name), done));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.vfs.unlink(parent.0, name, req.pid());
        empty(reply, self.done_in(Call::Unlink, (parent, name), done));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = Err(self.vfs.rmdir(parent.0, name));
        empty(reply, self.done_in(Call::Unlink, (parent, name), done));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let done = self.vfs.symlink(parent.0, name, target, caller(req));
        entry(reply, self.done_in(Call::Create, (parent, name), done));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            flags if flags.is_empty() => Rename::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let done = self
            .vfs
            .rename((parent.0, name), (newparent.0, newname), how, req.pid());
        let done = self.done_in(Call::Rename, (parent, name), done);
        self.vfs.reply_when_settled(move || empty(reply, done));
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let done = self.vfs.link(ino.0, newparent.0, newname);
        let done = self.done_in(Call::Create, (newparent, newname), done);
        self.vfs.reply_when_settled(move || entry(reply, done));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let done = self.vfs.open(ino.0, access(flags, req));
        opened(reply, self.done(Call::Open, ino, done));
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.done(Call::Read, ino, self.vfs.read(fh.0, offset, size)) {
            Ok(Bytes::Owned(bytes)) => reply.data(&bytes),
            Ok(Bytes::Lent(Loan::Mapped(slice), _reading)) => reply.data(slice.for_kernel()),
            Ok(Bytes::Lent(Loan::Shared(buffer, range), _reading)) => {
                reply.data((*buffer).as_ref().get(range).unwrap_or_default());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let done = self.vfs.write(fh.0, offset, data, mapped);
        match self.done(Call::Write, ino, done) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let saved = self.vfs.flush(fh.0, req.pid());
        let saved = self.done(Call::Flush, ino, saved);
        self.vfs.reply_when_settled(move || empty(reply, saved));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.vfs.release(fh.0);
        empty(reply, self.done(Call::Release, ino, done));
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let saved = self.done(Call::Fsync, ino, self.vfs.fsync(fh.0));
        self.vfs.reply_when_settled(move || empty(reply, saved));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        opened(reply, self.done(Call::Open, ino, self.vfs.opendir(ino.0)));
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.vfs.readdir(fh.0, offset, &mut |next, name, attr| {
            reply.add(
                INodeNo(attr.ino),
                next,
                name,
                &attr.valid,
                &file_attr(attr),
                Generation(0),
            )
        });
        match self.done(Call::Readdir, ino, listed) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.vfs.release(fh.0);
        empty(reply, self.done(Call::Release, ino, done));
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.done(Call::Statfs, ino, self.vfs.statfs()) {
            Ok(fs) => reply.statfs(
                fs.blocks,
                fs.free,
                fs.available,
                fs.files,
                fs.files_free,
                fs.block_size,
                NAME_MAX,
                fs.block_size,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let done = self.vfs.setxattr(ino.0, name, value, flags);
        let done = self.done(Call::Xattr, ino, done);
        self.vfs.reply_when_settled(move || empty(reply, done));
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = self.vfs.getxattr(ino.0, name);
        xattr(reply, size, self.done(Call::Xattr, ino, found));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = self.vfs.listxattr(ino.0);
        xattr(reply, size, self.done(Call::Xattr, ino, found));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.vfs.removexattr(ino.0, name);
        empty(reply, self.done(Call::Xattr, ino, done));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let access = access(OpenFlags(flags), req);
        let done = self.vfs.create(parent.0, name, mode, caller(req), access);
        match self.done_in(Call::Create, (parent, name), done) {
            Ok((attr, handle)) => reply.created(
                &attr.valid,
                &file_attr(&attr),
                Generation(0),
                FileHandle(handle.fh),
                open_flags(&handle),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.vfs.fallocate(fh.0, offset, length, mode);
        empty(reply, self.done(Call::Fallocate, ino, done));
    }
}
