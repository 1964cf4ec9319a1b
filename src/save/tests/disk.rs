//! A disk that remembers what it has been promised: what the operating system shows, and all that may be on the medium.
//!
//! A sector that was written since the last sync may hold any of its versions. So may the length of a file, and any of the
//! changes of names may be lost. A sync that fails leaves the sectors in that state for good: a later sync does not write them
//! again unless they are written again. Shrinking is durable after `sync_all` only, and may happen in several steps.

mod calls;
mod inode;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Mutex;

use inode::Inode;

use crate::save::sector::SECTOR;

const SECTOR_LEN: usize = SECTOR as usize;
/// The filesystem's block, in bytes.
const BLOCK: usize = 4096;

/// What goes wrong at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::save) enum Fault {
    /// It fails, with this errno.
    Errno(i32),
    /// It fails, with this errno, and so do all of its kind from then on.
    Forever(i32),
    /// A write writes only half.
    Short,
}

/// What happens at which operations that change something, counted from when it was armed.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::save) struct Trouble {
    /// Power fails before this one: nothing works any more.
    pub(in crate::save) cut: Option<usize>,
    /// This one goes wrong.
    pub(in crate::save) fault: Option<(usize, Fault)>,
    /// This one, a sync, does nothing and says it did: for negative controls.
    pub(in crate::save) lie: Option<usize>,
    /// Behind so many operations, looking at a name or a file fails with this errno.
    pub(in crate::save) blind: Option<(usize, i32)>,
    /// As so many files have been looked at, another program that has the first one open writes a `!` there.
    pub(in crate::save) toucher: Option<(usize, usize)>,
    /// After the first read there or behind, another program writes these bytes to the start of the file.
    pub(in crate::save) meddler: Option<(u64, &'static [u8])>,
    /// Just before this operation, or this read, another program does that.
    pub(in crate::save) other: Option<(When, Deed)>,
}

/// A moment, counted from when trouble was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::save) enum When {
    Op(usize),
    Read(usize),
}

/// What another program does.
#[derive(Debug, Clone, Copy)]
pub(in crate::save) enum Deed {
    /// Appends to the first file.
    Append(&'static [u8]),
    /// Writes a `!` there into the first file.
    Touch(usize),
    /// Renames a new file over this name.
    Replace(&'static str, &'static [u8]),
}

/// A file of the disk, open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::save) struct Handle(u64);

#[derive(Debug, Clone)]
enum NameOp {
    Link(OsString, u64),
    Unlink(OsString),
    Rename(OsString, OsString),
    Exchange(OsString, OsString),
}

#[derive(Debug, Clone, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<OsString, u64>,
    disk_names: BTreeMap<OsString, u64>,
    name_ops: Vec<NameOp>,
    clock: i64,
    ops: Vec<&'static str>,
    bytes_read: usize,
    /// How many files have been looked at, and how many operations there had been when another program changed one.
    looks: usize,
    reads: usize,
    /// Before which operation another program did its deed.
    done_at: Option<usize>,
    touched: Option<usize>,
    trouble: Trouble,
}

/// Changes the bytes of a file.
pub(in crate::save) type Spoil = fn(&mut Vec<u8>);

/// The disk.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a habit of some file system"
)]
#[derive(Debug)]
pub(in crate::save) struct Sim {
    state: Mutex<State>,
    /// Whether files may share blocks, and of what size.
    pub(in crate::save) grain: Option<u64>,
    /// Whether names can be swapped.
    pub(in crate::save) exchange: bool,
    /// Whether files get shorter in several steps.
    pub(in crate::save) stepwise: bool,
    /// Whether files can be made in the directory.
    pub(in crate::save) sealed: bool,
    /// How many bytes may still be written, if that is known.
    pub(in crate::save) free: Option<u64>,
    /// Whether what another program writes is seen only by who opens the file then.
    pub(in crate::save) cached: bool,
    /// What becomes of the bytes of a file that is written to, without an error.
    pub(in crate::save) spoil: Option<Spoil>,
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

fn not_found() -> io::Error {
    errno(2)
}

fn apply(names: &mut BTreeMap<OsString, u64>, op: &NameOp) {
    match op {
        NameOp::Link(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        NameOp::Unlink(name) => {
            names.remove(name);
        }
        NameOp::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameOp::Exchange(a, b) => {
            if let (Some(&first), Some(&second)) = (names.get(a), names.get(b)) {
                names.insert(a.clone(), second);
                names.insert(b.clone(), first);
            }
        }
    }
}

impl State {
    fn inode(&mut self, file: Handle) -> &mut Inode {
        self.inodes.get_mut(&file.0).unwrap()
    }

    /// The first file, changed by another program that has it open.
    fn touch(&mut self, offset: usize) {
        self.clock += 1;
        let clock = self.clock;
        let inode = self.inode(Handle(1));
        inode.content[offset] = b'!';
        inode.mtime = clock;
    }

    /// What another program does now.
    fn other(&mut self, now: When) {
        let Some((when, deed)) = self.trouble.other else {
            return;
        };
        if when != now || self.done_at.is_some() {
            return;
        }
        self.clock += 1;
        let clock = self.clock;
        self.done_at = Some(self.ops.len());
        match deed {
            Deed::Touch(offset) => self.touch(offset),
            Deed::Append(bytes) => {
                let inode = self.inode(Handle(1));
                inode.content.extend(bytes);
                inode.mtime = clock;
            }
            Deed::Replace(name, bytes) => {
                let n = self.inodes.keys().max().map_or(1, |last| last + 1);
                self.inodes.insert(n, Inode::new(bytes.to_vec()));
                self.names_op(NameOp::Link(name.into(), n));
            }
        }
    }

    fn names_op(&mut self, op: NameOp) {
        apply(&mut self.names, &op);
        self.name_ops.push(op);
    }

    fn after(&self, names: BTreeMap<OsString, u64>, inodes: BTreeMap<u64, Inode>) -> Self {
        Self {
            inodes,
            disk_names: names.clone(),
            names,
            clock: self.clock,
            ..Self::default()
        }
    }
}

impl Sim {
    /// A disk with one file on it.
    pub(in crate::save) fn new(name: &OsStr, content: &[u8]) -> Self {
        let names = BTreeMap::from([(name.to_owned(), 1)]);
        let state = State {
            inodes: BTreeMap::from([(1, Inode::new(content.to_vec()))]),
            disk_names: names.clone(),
            names,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            grain: None,
            exchange: true,
            stepwise: true,
            sealed: false,
            free: None,
            cached: false,
            spoil: None,
        }
    }

    fn with(&self, state: State) -> Self {
        Self {
            state: Mutex::new(state),
            grain: self.grain,
            exchange: self.exchange,
            stepwise: self.stepwise,
            sealed: self.sealed,
            free: self.free,
            cached: self.cached,
            spoil: self.spoil,
        }
    }

    /// Another machine does that to the first file.
    pub(in crate::save) fn do_elsewhere(&self, deed: Deed) {
        let mut state = self.state.lock().unwrap();
        let now = When::Op(state.ops.len());
        state.trouble.other = Some((now, deed));
        state.done_at = None;
        state.other(now);
    }

    pub(in crate::save) fn set_links(&self, name: &OsStr, links: u64) {
        let mut state = self.state.lock().unwrap();
        let inode = state.names[name];
        state.inode(Handle(inode)).links = links;
    }

    /// Lets things go wrong, counted from now on.
    pub(in crate::save) fn arm(&self, trouble: Trouble) {
        let mut state = self.state.lock().unwrap();
        state.ops.clear();
        state.looks = 0;
        state.reads = 0;
        state.done_at = None;
        state.trouble = trouble;
    }

    /// The operations so far that change something, by name.
    pub(in crate::save) fn ops(&self) -> Vec<&'static str> {
        self.state.lock().unwrap().ops.clone()
    }

    /// Whether another program has changed the first file behind an operation of that kind; `None` if it has not.
    pub(in crate::save) fn touched_behind(&self, kind: &str) -> Option<bool> {
        let state = self.state.lock().unwrap();
        let before = state.ops.get(..state.touched?)?;
        Some(before.contains(&kind))
    }

    /// How many operations there had been when another program did its deed.
    pub(in crate::save) fn deed_done(&self) -> Option<usize> {
        self.state.lock().unwrap().done_at
    }

    /// How many bytes have been read so far.
    pub(in crate::save) fn bytes_read(&self) -> usize {
        self.state.lock().unwrap().bytes_read
    }

    /// What the name shows now.
    pub(in crate::save) fn content(&self, name: &OsStr) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        Some(state.inodes[state.names.get(name)?].content.clone())
    }

    /// The number of ways in which each part that is not durable can have survived.
    pub(in crate::save) fn choices(&self) -> Vec<usize> {
        let state = self.state.lock().unwrap();
        let mut out: Vec<usize> = state.inodes.values().flat_map(Inode::choices).collect();
        out.extend(state.name_ops.iter().map(|_| 2));
        out
    }

    /// The disk as a crash leaves it, after these choices.
    pub(in crate::save) fn crash(&self, choices: &[usize]) -> Self {
        let state = self.state.lock().unwrap();
        let mut choices = choices.iter().copied();
        let survivors = state
            .inodes
            .iter()
            .map(|(n, inode)| (*n, inode.survivor(&mut choices)));
        let mut inodes: BTreeMap<u64, Inode> = survivors.collect();
        for (n, inode) in &mut inodes {
            inode.links = state.inodes[n].links;
        }
        let mut names = state.disk_names.clone();
        for op in &state.name_ops {
            if choices.next().unwrap() == 1 {
                apply(&mut names, op);
            }
        }
        self.with(state.after(names, inodes))
    }

    /// The disk as a killed process leaves it: nothing is lost, and nothing is any more durable than it was.
    pub(in crate::save) fn kill(&self) -> Self {
        let mut state = self.state.lock().unwrap().clone();
        state.ops.clear();
        state.trouble = Trouble::default();
        self.with(state)
    }

    /// Runs one operation that changes something, unless something goes wrong first. `lied` is for a sync that does nothing.
    fn op<T>(
        &self,
        kind: &'static str,
        run: impl FnOnce(&mut State, Option<Fault>, bool) -> T,
    ) -> io::Result<T> {
        let mut state = self.state.lock().unwrap();
        let n = state.ops.len();
        state.other(When::Op(n));
        state.ops.push(kind);
        let Trouble {
            cut, fault, lie, ..
        } = state.trouble;
        if cut.is_some_and(|at| n >= at) {
            return Err(errno(5));
        }
        let fault = fault.and_then(|(at, fault)| match fault {
            Fault::Forever(code) if n >= at && state.ops[at] == kind => Some(Fault::Errno(code)),
            fault => (n == at).then_some(fault),
        });
        if let Some(Fault::Errno(code) | Fault::Forever(code)) = fault {
            if kind.starts_with("sync file") {
                // the system takes the sectors for clean now, and will not write them again
                state
                    .inodes
                    .values_mut()
                    .for_each(|inode| inode.dirty.clear());
            }
            return Err(errno(code));
        }
        state.clock += 1;
        Ok(run(&mut state, fault, lie == Some(n)))
    }

    fn sync(&self, file: Handle, kind: &'static str, shrunk_too: bool) -> io::Result<()> {
        self.op(kind, |state, _, lied| {
            if !lied {
                state.inode(file).settle(shrunk_too);
            }
        })
    }

    fn put(
        &self,
        kind: &'static str,
        file: Handle,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        self.op(kind, |state, fault, _| {
            let half = if fault == Some(Fault::Short) && kind != "share" {
                bytes.len().div_ceil(2)
            } else {
                bytes.len()
            };
            let bytes = &bytes[..half];
            let clock = state.clock;
            let inode = state.inode(file);
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            if end > inode.content.len() {
                inode.content.resize(end, 0);
                inode.lengths.push(end);
            }
            inode.content[start..end].copy_from_slice(bytes);
            if inode.pages.len() < end {
                inode.pages.resize(end, 0);
            }
            inode.pages[start..end].copy_from_slice(bytes);
            if let Some(spoil) = self.spoil {
                spoil(&mut inode.content);
            }
            inode.touch(start, end);
            inode.mtime = clock;
            bytes.len()
        })
    }
}
