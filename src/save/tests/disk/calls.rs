//! What a save asks of the simulated disk.

use std::ffi::{OsStr, OsString};
use std::io;

use super::{Handle, Inode, NameOp, Sim, When, errno, not_found};
use crate::asdf::layout::Extent;
use crate::save::store::{Access, Facts, Store};
use crate::source::Stat;

impl Store for Sim {
    type File = Handle;

    fn read(&self, file: &Handle, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state.lock().unwrap();
        if state.trouble.cut.is_some_and(|at| state.ops.len() > at) {
            return Err(errno(5));
        }
        let nth = state.reads;
        state.reads += 1;
        state.other(When::Read(nth));
        let inode = state.inode(*file);
        let content = if self.cached {
            &inode.pages
        } else {
            &inode.content
        };
        let start = (offset as usize).min(content.len());
        let len = buf.len().min(content.len() - start);
        buf[..len].copy_from_slice(&content[start..start + len]);
        state.bytes_read += len;
        let meddler = state.trouble.meddler.take_if(|it| it.0 <= offset);
        drop(state);
        if let Some((_, bytes)) = meddler {
            self.put("meddle", *file, bytes, 0)?;
        }
        Ok(len)
    }

    fn write(&self, file: &Handle, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.put("write", *file, bytes, offset)
    }

    fn sync_data(&self, file: &Handle) -> io::Result<()> {
        self.sync(*file, "sync file data", false)
    }

    fn sync_all(&self, file: &Handle) -> io::Result<()> {
        self.sync(*file, "sync file", true)
    }

    fn set_len(&self, file: &Handle, len: u64) -> io::Result<()> {
        self.op("set_len", |state, _, _| {
            let clock = state.clock;
            let inode = state.inode(*file);
            inode.resize(len as usize, self.stepwise);
            inode.mtime = clock;
        })
    }

    fn reserve(&self, _: &Handle, _: Extent) -> io::Result<()> {
        self.op("reserve", |_, _, _| ())
    }

    fn data(&self, file: &Handle, from: u64) -> io::Result<Option<Extent>> {
        let end = self.stat(file)?.size;
        Ok((from < end).then_some(Extent { start: from, end }))
    }

    fn share(&self, from: &Handle, extent: Extent, to: &Handle, offset: u64) -> io::Result<()> {
        let grain = self.grain.ok_or_else(|| errno(95))?;
        if [extent.start, extent.end, offset]
            .iter()
            .any(|at| at % grain != 0)
        {
            return Err(errno(22));
        }
        let mut bytes = vec![0; extent.len() as usize];
        self.read(from, &mut bytes, extent.start)?;
        self.put("share", *to, &bytes, offset)?;
        Ok(())
    }

    fn copy(&self, from: &Handle, extent: Extent, to: &Handle, offset: u64) -> io::Result<u64> {
        let mut bytes = vec![0; extent.len() as usize];
        self.read(from, &mut bytes, extent.start)?;
        self.put("copy", *to, &bytes, offset).map(|len| len as u64)
    }

    fn stat(&self, file: &Handle) -> io::Result<Stat> {
        let mut state = self.state.lock().unwrap();
        if let Some((behind, code)) = state.trouble.blind
            && state.ops.len() >= behind
        {
            return Err(errno(code));
        }
        state.looks += 1;
        if let Some((look, offset)) = state.trouble.toucher
            && look == state.looks
        {
            state.touch(offset);
            state.touched = Some(state.ops.len());
        }
        let inode = state.inode(*file);
        Ok(Stat {
            id: (1, file.0),
            size: inode.content.len() as u64,
            mtime: (0, inode.mtime),
            ctime: (0, inode.mtime),
            links: inode.links,
            uid: 0,
            gid: 0,
            mode: 0o100_600,
            left: Stat::ALL,
        })
    }

    fn lock(&self, _: &Handle) -> io::Result<bool> {
        Ok(true)
    }

    fn unlock(&self, _: &Handle) -> io::Result<()> {
        Ok(())
    }

    fn lock_holder(&self, _: &Handle) -> Option<u32> {
        None
    }

    fn written_elsewhere(&self, _: &Handle) -> io::Result<bool> {
        Ok(false)
    }

    fn writers(&self, _: &Handle) -> Option<String> {
        None
    }

    fn grain(&self, _: &Handle) -> Option<u64> {
        self.grain
    }

    fn imitate(&self, _: &Handle, _: &Handle) -> io::Result<()> {
        self.op("imitate", |_, _, _| ())
    }

    fn set_facts(&self, _: &Handle, _: Facts) -> io::Result<()> {
        self.op("set_facts", |_, _, _| ())
    }

    fn open(&self, name: &OsStr, _: Access) -> io::Result<Handle> {
        let mut state = self.state.lock().unwrap();
        let found = state.names.get(name).copied();
        let file = Handle(found.ok_or_else(not_found)?);
        let inode = state.inode(file);
        inode.pages.clone_from(&inode.content);
        Ok(file)
    }

    fn create(&self, name: &OsStr, _: Option<&Handle>) -> io::Result<Handle> {
        if self.sealed {
            return Err(errno(13));
        }
        self.op("create", |state, _, _| {
            let inode = state.inodes.keys().max().map_or(1, |last| last + 1);
            state.inodes.insert(inode, Inode::new(Vec::new()));
            state.names_op(NameOp::Link(name.to_owned(), inode));
            Handle(inode)
        })
    }

    fn stat_name(&self, name: &OsStr) -> io::Result<Stat> {
        let named = self.state.lock().unwrap().names.get(name).copied();
        self.stat(&Handle(named.ok_or_else(not_found)?))
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        Ok(self.state.lock().unwrap().names.keys().cloned().collect())
    }

    fn exchange(&self, a: &OsStr, b: &OsStr) -> io::Result<bool> {
        if !self.exchange {
            return Ok(false);
        }
        let op = NameOp::Exchange(a.to_owned(), b.to_owned());
        self.op("exchange", |state, _, _| state.names_op(op))?;
        Ok(true)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let op = NameOp::Rename(from.to_owned(), to.to_owned());
        self.op("rename", |state, _, _| state.names_op(op))
    }

    fn rename_to_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let op = NameOp::Rename(from.to_owned(), to.to_owned());
        self.op("rename", |state, _, _| {
            if state.names.contains_key(to) {
                return Err(errno(17));
            }
            state.names_op(op);
            Ok(())
        })?
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        if self.open(name, Access::Read).is_err() {
            return Err(not_found());
        }
        self.op("unlink", |state, _, _| {
            state.names_op(NameOp::Unlink(name.to_owned()));
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.op("sync directory", |state, _, lied| {
            if !lied {
                state.disk_names = state.names.clone();
                state.name_ops.clear();
            }
        })
    }

    fn free(&self) -> Option<u64> {
        self.free
    }

    fn user(&self) -> u32 {
        0
    }
}
