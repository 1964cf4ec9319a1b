//! What the file system's operations take and give.

use std::fs;
use std::os::fd::AsFd;
use std::sync::{OnceLock, RwLockReadGuard};
use std::time::{Duration, SystemTime};

use rustix::fs::StatVfs;

use crate::asdf::check::Validate;
use crate::error::Error as Library;
use crate::source::{Loan, PooledBuf, Stat, len_u64};
use crate::view::picture::Style;

use super::{Node, Result, View};

/// How old what is known of FILE may be: how long the kernel keeps attributes, and names that never change, and how long FILE is taken to be
/// what it was at the last look, except by lookups in a mount that can be written.
pub(super) const VALID: Duration = Duration::from_secs(1);

/// How long the kernel may keep names: a save, or another file that is made, may give the name of a file to another file at any time. That
/// of a directory leads to no other one, and what is looked up in a directory that is gone is not found.
fn entries_valid(read_only: bool, node: Node) -> Duration {
    if read_only || kind(node) == FileKind::Directory && node != Node::Root {
        VALID
    } else {
        Duration::ZERO
    }
}

/// Kind of a file of the mount. There are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symlink, relative and inside the mount; or one that an editor made in the root.
    Symlink,
}

/// The kind of a file; of those in the root, of what is no symlink.
#[must_use]
pub fn kind(node: Node) -> FileKind {
    match node {
        Node::Root
        | Node::Blocks
        | Node::Info
        | Node::Hdus
        | Node::ArrayDir(_)
        | Node::ViewDir(..) => FileKind::Directory,
        Node::ArrayLink(_) => FileKind::Symlink,
        _ => FileKind::File,
    }
}

/// Attributes of a file.
#[derive(Debug, Clone)]
pub struct Attr {
    /// The file.
    pub node: Node,
    /// Kind.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits.
    pub perm: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the data.
    pub mtime: SystemTime,
    /// Last change of anything.
    pub ctime: SystemTime,
    /// Tells the file from others that its name led to before, counted by `Versions`.
    pub version: u64,
    /// How long the kernel may keep this without asking.
    pub attr_valid: Duration,
    /// How long the kernel may take the name that led to this for the name of this file.
    pub entry_valid: Duration,
}

impl Attr {
    /// The attributes of a node of FILE, which has the attributes `file`. Blocks and arrays can be written unless FILE is `read_only`.
    #[must_use]
    pub fn of_file(
        node: Node,
        size: u64,
        file: &Stat,
        read_only: bool,
        options: &VfsOptions,
    ) -> Self {
        let kind = kind(node);
        let perm = permissions(file, options);
        let (uid, gid) = owner_shown(file, options);
        Self {
            node,
            kind,
            // the kernel's file sizes are signed
            size: size.min(i64::MAX.unsigned_abs()),
            perm: match kind {
                FileKind::Directory => with_search_bits(perm),
                // what can never be written shows no write bits, so that cp -p and tests of a script see it
                FileKind::File if node.is_data() && !read_only => perm,
                FileKind::File => perm & 0o444,
                FileKind::Symlink => 0o777,
            },
            nlink: 1,
            uid,
            gid,
            mtime: file.modified(),
            ctime: file.changed(),
            version: 0,
            attr_valid: VALID,
            entry_valid: entries_valid(read_only, node),
        }
    }
}

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Access {
    /// For writing.
    pub write: bool,
    /// Emptied.
    pub truncate: bool,
    /// As a new file only.
    pub exclusive: bool,
    /// Thread that opens it, or its process; 0 if unknown.
    pub pid: u32,
}

/// To write.
pub(super) const WRITE: Access = Access {
    write: true,
    truncate: false,
    exclusive: false,
    pid: 0,
};

impl Access {
    /// Whether it changes nothing.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.write && !self.truncate
    }
}

/// While this lives, no save changes or moves stored bytes of the current snapshot.
///
/// Not reentrant. A thread takes it before `Blocks::by_block`: a save takes that while it holds the other side of the lock.
pub type Reading<'a> = RwLockReadGuard<'a, ()>;

/// Bytes that were read.
pub enum Bytes<'a> {
    /// A copy.
    Owned(PooledBuf<u8>),
    /// Lent for the reply; until this is dropped no save changes them.
    Lent(Loan, Reading<'a>),
}

impl Bytes<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        len_u64(match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Lent(Loan::Mapped(slice), _) => slice.len(),
            Self::Lent(Loan::Shared(_, range), _) => range.len(),
        })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Attributes to change.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "the names are those of stat(2)")]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub mtime: Option<SystemTime>,
    /// The user who changes them; without one, FILE's own owner and mode stay.
    pub by: Option<u32>,
}

/// How a rename treats a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Exchanges the two.
    Exchange,
}

/// The sizes of the file system that a file is in, as statvfs(3) tells. Of one that is only read, no room is free.
///
/// # Errors
/// [`Error::Library`](super::Error::Library) if the system does not tell them.
pub fn sizes_of_disk(file: impl AsFd, read_only: bool) -> Result<StatVfs> {
    let found = rustix::fs::fstatvfs(file);
    let mut found = found.map_err(|errno| Library::io("statfs", errno.into()))?;
    if read_only {
        (found.f_bfree, found.f_bavail) = (0, 0);
    }
    Ok(found)
}

/// How many bytes more may be written to a disk of these sizes: some blocks only by the `privileged`. Any number, if the file system tells
/// no sizes, as tmpfs without a limit.
pub(super) fn usable(disk: &StatVfs, privileged: bool) -> u64 {
    if disk.f_blocks == 0 {
        return u64::MAX;
    }
    let blocks = if privileged {
        disk.f_bfree
    } else {
        disk.f_bavail
    };
    blocks.saturating_mul(disk.f_frsize)
}

/// What the user asked of the mount.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub struct VfsOptions {
    /// Owner to show instead of FILE's.
    pub uid: Option<u32>,
    /// Group to show instead of FILE's.
    pub gid: Option<u32>,
    /// Permission bits to take away.
    pub umask: u32,
    /// Whether users other than the one who mounts reach the mount.
    pub allow_other: bool,
    /// How a tree is checked before it is saved.
    pub validate: Validate,
    /// The options of the command line, for people: empty, or with `, ` in front.
    pub given: String,
    /// Whether arrays are also shown as FITS files.
    pub fits: bool,
    /// Which directories are shown.
    pub show: Show,
    /// Whether arrays are also shown as pictures.
    pub previews: bool,
    /// Whether arrays are also shown as a group of Zarr.
    pub zarr: bool,
    /// How pictures are made.
    pub style: Style,
}

impl VfsOptions {
    /// Whether nothing is shown but `tree.yaml`.
    #[must_use]
    pub fn is_text_only(&self) -> bool {
        let Show {
            arrays,
            blocks,
            info,
        } = self.show;
        !arrays && !blocks && !info && !View::ALL.iter().any(|view| self.shows(*view))
    }

    /// Whether the mount is to show a view.
    pub(super) fn shows(&self, view: View) -> bool {
        match view {
            View::Fits => self.fits,
            View::Previews => self.previews,
            View::Zarr => self.zarr,
        }
    }
}

/// What is shown of a file beside `tree.yaml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Show {
    /// `arrays/`
    pub arrays: bool,
    /// `blocks/`, and `hdus/` of a FITS file.
    pub blocks: bool,
    /// `info/`
    pub info: bool,
}

impl Default for Show {
    fn default() -> Self {
        Self {
            arrays: true,
            blocks: true,
            info: true,
        }
    }
}

impl Show {
    /// What a list names, with colons between; the tree is always shown.
    ///
    /// # Errors
    /// The names that a list may have, if it has another one.
    pub fn new(list: &str) -> Result<Self, String> {
        let mut show = Self {
            arrays: false,
            blocks: false,
            info: false,
        };
        for part in list.split(':') {
            match part {
                "tree" => {}
                "arrays" => show.arrays = true,
                "blocks" => show.blocks = true,
                "info" => show.info = true,
                _ => {
                    return Err(
                        "tree, arrays, blocks and info can be shown, as in tree:info".into(),
                    );
                }
            }
        }
        Ok(show)
    }

    /// Whether a directory of the root is shown.
    pub(super) fn has(self, directory: Node) -> bool {
        match directory {
            Node::ArrayDir(_) => self.arrays,
            Node::Blocks | Node::Hdus => self.blocks,
            Node::Info => self.info,
            _ => true,
        }
    }
}

/// Permission bits of FILE without set-id, sticky and execute bits.
pub(super) fn permissions(file: &Stat, options: &VfsOptions) -> u16 {
    let bits = file.permissions(options.allow_other);
    u16::try_from(bits & 0o666 & !options.umask).unwrap_or(0)
}

/// Owner and group to show of FILE.
///
/// In a user namespace that has no number for one of them, stat(2) gives a number that stands for all such. The kernel lets no
/// process write to a file of the mount that has this number, also where FILE's mode allows it. So the numbers of the daemon are shown
/// in their place, unless other users reach the mount: to these they would be those of another user.
fn owner_shown(file: &Stat, options: &VfsOptions) -> (u32, u32) {
    static NAMELESS: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    let [user, group] = *NAMELESS.get_or_init(|| ["uid", "gid"].map(nameless));
    let stands_in = |nameless, shown| nameless == Some(shown) && !options.allow_other;
    let own_user = stands_in(user, file.uid).then(|| rustix::process::geteuid().as_raw());
    let own_group = stands_in(group, file.gid).then(|| rustix::process::getegid().as_raw());
    (
        options.uid.or(own_user).unwrap_or(file.uid),
        options.gid.or(own_group).unwrap_or(file.gid),
    )
}

/// The number that stands for those that this user namespace lacks, unless the namespace has that number itself. `kind`: `uid` or `gid`.
fn nameless(kind: &str) -> Option<u32> {
    let number = fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}")).ok()?;
    let number = number.trim().parse().ok()?;
    let map = fs::read_to_string(format!("/proc/self/{kind}_map")).ok()?;
    (!has_number(&map, number)).then_some(number)
}

/// Whether a map of user_namespaces(7) has a number: whether one of its ranges, each with start and length, does.
fn has_number(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(start)), Some(Ok(len))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        number.checked_sub(start).is_some_and(|at| at < len)
    })
}

/// Owner, mode and times of a scratch file.
#[derive(Debug, Clone)]
pub struct FileFacts {
    /// Permission bits.
    pub(super) perm: u16,
    /// Owner.
    pub(super) uid: u32,
    /// Group.
    pub(super) gid: u32,
    /// Time of the last change of its bytes.
    pub(super) mtime: SystemTime,
}

impl FileFacts {
    /// Those of a new file, which belongs to the process that makes it. It may change them next.
    #[must_use]
    pub fn new(mode: u32, uid: u32, gid: u32) -> Self {
        Self {
            perm: u16::try_from(mode & 0o777).unwrap_or(0),
            uid,
            gid,
            mtime: SystemTime::now(),
        }
    }

    /// Those of `tree.yaml`, for a FILE with these attributes.
    pub(super) fn of(file: &Stat, options: &VfsOptions) -> Self {
        let (uid, gid) = owner_shown(file, options);
        Self {
            perm: permissions(file, options),
            uid,
            gid,
            mtime: file.modified(),
        }
    }

    /// The attributes of a file of `size` bytes with one name, which the kernel does not keep.
    pub(super) fn attr(&self, node: Node, size: u64) -> Attr {
        Attr {
            node,
            kind: FileKind::File,
            size,
            perm: self.perm,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime,
            ctime: self.mtime,
            version: 0,
            attr_valid: VALID,
            // the name may lead to another file at any time
            entry_valid: Duration::ZERO,
        }
    }

    /// Changes those that are to be changed.
    pub(super) fn set(&mut self, changes: &Attributes) {
        let mode = changes
            .mode
            .and_then(|mode| u16::try_from(mode & 0o777).ok());
        self.perm = mode.unwrap_or(self.perm);
        self.uid = changes.uid.unwrap_or(self.uid);
        self.gid = changes.gid.unwrap_or(self.gid);
        self.mtime = changes.mtime.unwrap_or(self.mtime);
    }
}

/// A search bit for each read bit.
pub(super) fn with_search_bits(perm: u16) -> u16 {
    perm | ((perm & 0o444) >> 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_blocks_are_for_the_privileged() {
        let mut disk = rustix::fs::statvfs("/").unwrap();
        (disk.f_frsize, disk.f_bfree, disk.f_bavail) = (4096, 20, 15);
        assert_eq!(usable(&disk, true), 20 * 4096);
        assert_eq!(usable(&disk, false), 15 * 4096);
        // tmpfs without a limit, and FUSE file systems that do not tell
        (disk.f_blocks, disk.f_bfree, disk.f_bavail) = (0, 0, 0);
        assert_eq!(usable(&disk, false), u64::MAX);
    }

    #[test]
    fn a_namespace_has_the_numbers_of_its_map() {
        assert!(has_number("         0          0 4294967295\n", 65534));
        let some = "0 1000 1\n1 100000 65533\n";
        assert!(has_number(some, 0) && has_number(some, 65533));
        assert!(!has_number(some, 65534));
        for map in ["", "x", "0 0", "0 0 x"] {
            assert!(!has_number(map, 0), "{map}");
        }
    }
}
