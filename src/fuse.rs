//! The kernel interface: `fuser`'s trait over [`Collection`] and [`Vfs`], and nothing else.
//!
//! Each operation is one call of the file system, then a reply or an errno. `vfs` knows what an operation means, and `collection` which
//! file it is for. Inode numbers and numbers of open files are turned into nodes and handles here. `request` logs requests.

mod convert;
mod handles;
mod mounting;
mod pending;
mod reply;
mod request;
mod waiters;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use log::debug;
use rustix::fs::XattrFlags;

pub use mounting::{Mount, MountOptions};

use crate::collection::{Collection, Handle, Inode};
use crate::vfs::{self, Attributes, Bytes, Call, Error, Node, Opened, Rename, Vfs, check_name};
use convert::{access, appends, beside, facts, file_attr, inode, open_flags, opendir_flags};
use handles::Handles;
use reply::{attr, data, empty, entry, link, named, statfs, xattr};
use waiters::Waiters;

/// The largest request that is asked for, in bytes, for reads (read-ahead) as for writes.
const MAX_REQUEST: u32 = 1 << 20;

/// The trait's implementation.
#[derive(Clone)]
struct Shim {
    files: Arc<Collection>,
    handles: Arc<Handles<Handle>>,
    /// How many requests have come.
    requests: Arc<AtomicU64>,
    /// Whether there are files on servers.
    is_far: bool,
    /// The threads for requests that may take long.
    waiters: Arc<Waiters>,
}

impl Shim {
    /// Runs something on a file of a member.
    fn on<T>(
        &self,
        ino: INodeNo,
        run: impl FnOnce(&Arc<Vfs>, Inode) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let inode = inode(ino)?;
        run(&self.files.member(inode)?, inode)
    }

    /// Runs something on an open file. For one that is of no member gives `nothing`, if there is that, else an error.
    fn through<T>(
        &self,
        fh: FileHandle,
        nothing: Option<T>,
        run: impl FnOnce(&Vfs, &vfs::Handle) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.handles.get(fh)?.member() {
            Ok((vfs, handle)) => run(vfs, handle),
            Err(error) => nothing.ok_or(error),
        }
    }

    /// Closes a file or directory.
    fn released(&self, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        let asked = self.asked(Call::Release, ino);
        let done = self.handles.remove(fh);
        let done = done.map(|handle| self.files.release(&handle));
        empty(reply, asked.done(done));
    }
}

impl Filesystem for Shim {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // O_TRUNC with the open, so that an empty file is not saved in between; the kernel clears set-id bits itself; several lookups in one directory at a time
        let mut wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        let lists_attributes = !self.files.lists_names_only();
        wanted.set(InitFlags::FUSE_DO_READDIRPLUS, lists_attributes);
        // of many files, the kernel is to ask for attributes only in directories where programs look at them
        wanted.set(InitFlags::FUSE_READDIRPLUS_AUTO, self.files.is_many());
        // each of these is only an improvement: a kernel that lacks it is served without
        for flag in wanted.iter() {
            if let Err(missing) = config.add_capabilities(flag) {
                debug!("the kernel lacks {missing:?}");
            }
        }
        // the nearest possible value is as good
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config
            .set_max_readahead(MAX_REQUEST)
            .or_else(|most| config.set_max_readahead(most));
        // read-ahead of several readers at once; the kernel's 12 would make one decoding reader hold up the others
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.serve(req, (reply, ReplyEntry::error), move |shim, reply| {
            let asked = shim.asked(Call::Lookup, parent).named(&name);
            let found = check_name(&name).and_then(|()| inode(parent));
            let found = found.and_then(|parent| shim.files.lookup(parent, &name));
            let found = asked.done(found);
            reply.send(|reply| entry(reply, found));
        });
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(req, (reply, ReplyAttr::error), move |shim, reply| {
            let asked = shim.asked(Call::Getattr, ino);
            let found = inode(ino).and_then(|inode| {
                let attr = shim.files.getattr(inode)?;
                Ok((inode.item, attr))
            });
            let found = asked.done(found);
            reply.send(|reply| attr(reply, found));
        });
    }

    fn setattr(
        &self,
        req: &Request,
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
        let asked = self.asked(Call::Setattr, ino);
        let changes = Attributes {
            mode,
            uid,
            gid,
            size,
            mtime: mtime.map(|time| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            }),
            by: Some(req.uid()),
        };
        let handle = fh.map(|fh| self.handles.get(fh)).transpose();
        let done = self.on(ino, |vfs, inode| {
            let handle = handle?;
            let handle = handle.as_deref().map(Handle::member).transpose()?;
            let handle = handle.map(|(_, handle)| handle);
            Ok((inode.item, vfs.setattr(inode.node, handle, &changes)?))
        });
        attr(reply, asked.done(done));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve(req, (reply, ReplyData::error), move |shim, reply| {
            let asked = shim.asked(Call::Readlink, ino);
            let target = shim.on(ino, |vfs, inode| vfs.readlink(inode.node, inode.version));
            let target = asked.done(target);
            reply.send(|reply| link(reply, target));
        });
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
        let asked = self.asked(Call::Create, parent).named(name);
        let done = self.on(parent, |vfs, dir| {
            Ok((dir.item, vfs.mknod(dir.node, name, mode, facts(mode, req))?))
        });
        entry(reply, asked.done(done));
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
        let asked = self.asked(Call::Create, parent).named(name);
        let done = self.on(parent, |vfs, _| Err(vfs.make_directory()));
        entry(reply, asked.done(done));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let asked = self.asked(Call::Unlink, parent).named(name);
        let done = self.on(parent, |vfs, dir| vfs.unlink(dir.node, name));
        empty(reply, asked.done(done));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let asked = self.asked(Call::Unlink, parent).named(name);
        let done = self.on(parent, |vfs, _| Err(vfs.make_directory()));
        empty(reply, asked.done(done));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let asked = self.asked(Call::Create, parent).named(name);
        let done = self.on(parent, |vfs, dir| {
            Ok((
                dir.item,
                vfs.symlink(dir.node, name, target, facts(0o777, req))?,
            ))
        });
        entry(reply, asked.done(done));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let asked = self.asked(Call::Rename, parent).named(name);
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
            RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
            flags if flags.is_empty() => Rename::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let done = self.on(parent, |vfs, from| {
            let to = beside(from, newparent)?;
            vfs.rename((from.node, name), (to, newname), how)
        });
        empty(reply, asked.done(done));
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let asked = self.asked(Call::Create, newparent).named(newname);
        let done = self.on(ino, |vfs, of| {
            let to = beside(of, newparent)?;
            Ok((of.item, vfs.link(of.node, to, newname)?))
        });
        entry(reply, asked.done(done));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let access = access(flags, req);
        // the status waits for the end of a text, and one of many files for its lock
        let waits = inode(ino).is_ok_and(|it| it.node == Node::Status)
            || self.files.is_many() && !access.only_reads();
        let long = self.is_far || waits;
        self.serve_if(long, req, (reply, ReplyOpen::error), move |shim, reply| {
            let asked = shim.asked(Call::Open, ino);
            let done = inode(ino).and_then(|inode| shim.files.open(inode, access));
            let flags = |opened: &Opened<Handle>| open_flags(opened, access.only_reads());
            let done = done.map(|opened| (flags(&opened), opened.handle));
            shim.opened(reply, asked.done(done));
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let handle = self.handles.get(fh);
        let long = handle.as_ref().is_ok_and(|handle| handle.takes_long());
        let long = self.is_far || long;
        self.serve_if(long, req, (reply, ReplyData::error), move |shim, reply| {
            let asked = shim.asked(Call::Read, ino);
            let read = match &handle {
                Ok(handle) => shim.files.read(handle, offset, size),
                Err(error) => Err(error.clone()),
            };
            let len = read.as_ref().ok().map(Bytes::len);
            let read = asked.moved(read, len);
            reply.send(|reply| data(reply, read));
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let asked = self.asked(Call::Write, ino);
        // pages that a map has changed come without a caller, so an error can only be noted
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let done = self.through(fh, None, |vfs, handle| {
            // O_APPEND: the kernel's offset is of before another descriptor appended
            let at = (mapped || !appends(flags)).then_some(offset);
            vfs.write(handle, at, data, mapped)
        });
        let len = done.as_ref().ok().copied().map(u64::from);
        match asked.moved(done, len) {
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
        let asked = self.asked(Call::Flush, ino);
        let saved = self.through(fh, Some(()), |vfs, handle| vfs.flush(handle, req.pid()));
        empty(reply, asked.done(saved));
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
        self.released(ino, fh, reply);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let asked = self.asked(Call::Fsync, ino);
        let saved = self.through(fh, Some(()), |vfs, handle| vfs.fsync(handle).map(drop));
        empty(reply, asked.done(saved));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.serve(req, (reply, ReplyOpen::error), move |shim, reply| {
            let asked = shim.asked(Call::Open, ino);
            let done = inode(ino).and_then(|inode| shim.files.opendir(inode));
            let done = done.map(|opened| (opendir_flags(&opened), opened.handle));
            shim.opened(reply, asked.done(done));
        });
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        // a server may have to be asked for the list, once more after rewinddir(3)
        self.serve(req, (reply, ReplyDirectory::error), move |shim, reply| {
            let asked = shim.asked(Call::Readdir, ino);
            let listed = shim.listed(ino, fh, offset).and_then(|handle| {
                shim.files
                    .readdir(&handle, offset, true, &mut |next, name, item, attr| {
                        let FileAttr { ino, kind, .. } = file_attr(item, attr);
                        let is_full = reply.add(|reply| reply.add(ino, next, kind, name));
                        is_full.unwrap_or(true)
                    })
            });
            let listed = asked.done(listed);
            reply.send(|reply| match listed {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            });
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        // a server may have to be asked for the attributes
        self.serve(
            req,
            (reply, ReplyDirectoryPlus::error),
            move |shim, reply| {
                let asked = shim.asked(Call::Readdir, ino);
                let listed = shim.listed(ino, fh, offset).and_then(|handle| {
                    shim.files
                        .readdir(&handle, offset, false, &mut |next, name, item, attr| {
                            let (attr, valid, generation) = named(item, attr);
                            let is_full = reply.add(|reply| {
                                reply.add(attr.ino, next, name, &valid, &attr, generation)
                            });
                            is_full.unwrap_or(true)
                        })
                });
                let listed = asked.done(listed);
                reply.send(|reply| match listed {
                    Ok(()) => reply.ok(),
                    Err(errno) => reply.error(errno),
                });
            },
        );
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.released(ino, fh, reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let asked = self.asked(Call::Statfs, ino);
        statfs(reply, asked.done(self.files.statfs()));
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
        let asked = self.asked(Call::Setxattr, ino).of(name);
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let done = inode(ino).and_then(|inode| self.files.setxattr(inode, name, value, flags));
        empty(reply, asked.done(done));
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (name, user) = (name.to_owned(), req.uid());
        self.serve(req, (reply, ReplyXattr::error), move |shim, reply| {
            let asked = shim.asked(Call::Getxattr, ino).of(&name);
            let found = inode(ino).and_then(|inode| shim.files.getxattr(inode, &name, user));
            let found = asked.done(found);
            reply.send(|reply| xattr(reply, size, found));
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.serve(req, (reply, ReplyXattr::error), move |shim, reply| {
            let asked = shim.asked(Call::Listxattr, ino);
            let found = inode(ino).and_then(|inode| shim.files.listxattr(inode));
            let found = asked.done(found);
            reply.send(|reply| xattr(reply, size, found));
        });
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let asked = self.asked(Call::Removexattr, ino).of(name);
        let done = self.on(ino, |vfs, inode| vfs.removexattr(inode.node, name));
        empty(reply, asked.done(done));
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
        let asked = self.asked(Call::Create, parent).named(name);
        let access = access(OpenFlags(flags), req);
        let done = self.on(parent, |vfs, dir| {
            let (attr, opened) = vfs.create(dir.node, name, facts(mode, req), access)?;
            let opened = Collection::opened(dir.item, Arc::clone(vfs), opened);
            Ok((dir.item, attr, opened))
        });
        match asked.done(done) {
            Ok((item, attr, opened)) => {
                let flags = open_flags(&opened, false);
                let fh = self.handles.insert(opened.handle);
                let (attr, valid, generation) = named(item, &attr);
                reply.created(&valid, &attr, generation, fh, flags);
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
        let asked = self.asked(Call::Fallocate, ino);
        let done = self.through(fh, None, |vfs, handle| {
            vfs.fallocate(handle, offset, length, mode)
        });
        empty(reply, asked.done(done));
    }
}
