//! The kernel interface: `fuser`'s trait over [`Vfs`], and nothing else.
//!
//! Each operation is one call of the file system, then a reply or an errno; the one place that logs a failed request is
//! [`Vfs::refused`]. What the operations mean is `vfs`'s. The numbers by which the kernel knows inodes and open files end here.

mod convert;
mod handles;
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
    BackgroundSession, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use log::debug;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::XattrFlags;

use crate::source::Loan;
pub use options::MountOptions;

use crate::vfs::{
    Attr, Attributes, Bytes, Call, Error, Handle, Kernel, NAME_MAX, Rename, Vfs, check_name,
};
use convert::{access, caller, file, file_attr, open_flags};
use handles::Handles;

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
            kernel: Arc::clone(vfs.kernel()),
            handles: Handles::default(),
            requests: requests.clone(),
        };
        let (session, made) = mounting::session(shim, mountpoint, options)?;
        let device = session.as_fd().try_clone_to_owned()?;
        vfs.decode_while(move || is_connected(&device));
        let session = session.spawn()?;
        invalidate::from_thread(vfs, session.notifier())?;
        vfs.kernel().answer_from_thread()?;
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
    kernel: Arc<Kernel>,
    handles: Handles<Handle>,
    requests: Requests,
}

fn attr(reply: ReplyAttr, found: Result<Attr, Errno>) {
    match found {
        Ok(attr) => reply.attr(&attr.valid, &file_attr(&attr)),
        Err(errno) => reply.error(errno),
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
        done.map_err(|error| Errno::from_i32(self.vfs.refused(call, file(ino).ok(), None, &error)))
    }

    /// The same of one for a name in a directory.
    fn done_in<T>(
        &self,
        call: Call,
        (parent, name): (INodeNo, &OsStr),
        done: Result<T, Error>,
    ) -> Result<T, Errno> {
        self.requests.add_one();
        let parent = file(parent).ok();
        done.map_err(|error| Errno::from_i32(self.vfs.refused(call, parent, Some(name), &error)))
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
        let found = check_name(name).and_then(|()| file(parent));
        let found = found.and_then(|parent| self.vfs.lookup_by(parent, name, req.pid()));
        entry(reply, self.done_in(Call::Lookup, (parent, name), found));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let found = file(ino).and_then(|node| self.vfs.getattr(node));
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
        let handle = fh.map(|fh| self.handles.get(fh)).transpose();
        let done = handle.and_then(|handle| {
            let handle = handle.as_deref();
            self.vfs.setattr(file(ino)?, handle, &changes)
        });
        attr(reply, self.done(Call::Setattr, ino, done));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let target = file(ino).and_then(|node| self.vfs.readlink(node));
        match self.done(Call::Readlink, ino, target) {
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
        let done = file(parent);
        let done = done.and_then(|parent| self.vfs.mknod(parent, name, mode, caller(req)));
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
        let done = Err(self.vfs.make_directory());
        entry(reply, self.done_in(Call::Create, (parent, name), done));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = file(parent).and_then(|parent| self.vfs.unlink(parent, name, req.pid()));
        empty(reply, self.done_in(Call::Unlink, (parent, name), done));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = Err(self.vfs.make_directory());
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
        let done = file(parent);
        let done = done.and_then(|parent| self.vfs.symlink(parent, name, target, caller(req)));
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
        let directories = file(parent).and_then(|from| Ok((from, file(newparent)?)));
        let done = directories
            .and_then(|(from, to)| self.vfs.rename((from, name), (to, newname), how, req.pid()));
        let done = self.done_in(Call::Rename, (parent, name), done);
        self.kernel.reply_when_settled(move || empty(reply, done));
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let done = file(ino).and_then(|node| self.vfs.link(node, file(newparent)?, newname));
        let done = self.done_in(Call::Create, (newparent, newname), done);
        self.kernel.reply_when_settled(move || entry(reply, done));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let done = file(ino).and_then(|node| self.vfs.open(node, access(flags, req)));
        match self.done(Call::Open, ino, done) {
            Ok(opened) => {
                let flags = open_flags(&opened);
                reply.opened(self.handles.insert(opened.handle), flags);
            }
            Err(errno) => reply.error(errno),
        }
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
        let handle = self.handles.get(fh);
        let read = handle.and_then(|handle| self.vfs.read(&handle, offset, size));
        match self.done(Call::Read, ino, read) {
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
        let handle = self.handles.get(fh);
        let done = handle.and_then(|handle| self.vfs.write(&handle, offset, data, mapped));
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
        let handle = self.handles.get(fh);
        let saved = handle.and_then(|handle| self.vfs.flush(&handle, req.pid()));
        let saved = self.done(Call::Flush, ino, saved);
        self.kernel.reply_when_settled(move || empty(reply, saved));
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
        let done = self.handles.remove(fh);
        let done = done.map(|handle| self.vfs.release(&handle));
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
        let handle = self.handles.get(fh);
        let saved = handle.and_then(|handle| self.vfs.fsync(&handle));
        let saved = self.done(Call::Fsync, ino, saved);
        self.kernel.reply_when_settled(move || empty(reply, saved));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let done = file(ino).and_then(|node| self.vfs.opendir(node));
        match self.done(Call::Open, ino, done) {
            Ok(handle) => reply.opened(self.handles.insert(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut add = |next, name: &OsStr, attr: &Attr| {
            let (ino, valid) = (INodeNo(attr.node.ino()), &attr.valid);
            reply.add(ino, next, name, valid, &file_attr(attr), Generation(0))
        };
        let handle = self.handles.get(fh);
        let listed = handle.and_then(|handle| self.vfs.readdir(&handle, offset, &mut add));
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
        let done = self.handles.remove(fh);
        let done = done.map(|handle| self.vfs.release(&handle));
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
        let done = file(ino).and_then(|node| self.vfs.setxattr(node, name, value, flags));
        let done = self.done(Call::Xattr, ino, done);
        self.kernel.reply_when_settled(move || empty(reply, done));
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = file(ino).and_then(|node| self.vfs.getxattr(node, name));
        xattr(reply, size, self.done(Call::Xattr, ino, found));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = file(ino).and_then(|node| self.vfs.listxattr(node));
        xattr(reply, size, self.done(Call::Xattr, ino, found));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = file(ino).and_then(|node| self.vfs.removexattr(node, name));
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
        let done = file(parent);
        let done = done.and_then(|parent| self.vfs.create(parent, name, mode, caller(req), access));
        match self.done_in(Call::Create, (parent, name), done) {
            Ok((attr, opened)) => {
                let flags = open_flags(&opened);
                let fh = self.handles.insert(opened.handle);
                reply.created(&attr.valid, &file_attr(&attr), Generation(0), fh, flags);
            }
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
        let handle = self.handles.get(fh);
        let done = handle.and_then(|handle| self.vfs.fallocate(&handle, offset, length, mode));
        empty(reply, self.done(Call::Fallocate, ino, done));
    }
}
