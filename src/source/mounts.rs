//! The kernel's table of mounts, as this process sees it: proc_pid_mountinfo(5).

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where the table is.
const TABLE: &str = "/proc/self/mountinfo";
/// The connections of all FUSE mounts that this user may abort, by the number of their file system.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The types of our mounts in it: made by mount(2) they have no subtype.
const TYPES: [&[u8]; 2] = [b"fuse", b"fuse.asdf-mount"];

/// A mount.
#[derive(Debug, Clone)]
pub struct Mounted {
    directory: PathBuf,
    /// The number of the file system, as `major:minor`.
    device: Vec<u8>,
    source: OsString,
    kind: Vec<u8>,
    /// Whether its root is the root of the file system, and it is no bind mount of a part.
    whole: bool,
    /// The options of the file system.
    options: Vec<u8>,
}

impl Mounted {
    /// All mounts, in the order in which they were made.
    #[must_use]
    pub fn all() -> Vec<Self> {
        mounts(&std::fs::read(TABLE).unwrap_or_default())
    }

    /// The mount at exactly this path, without links in it: the last one, which is on top.
    #[must_use]
    pub fn at(directory: &Path) -> Option<Self> {
        Self::all()
            .into_iter()
            .rfind(|mount| mount.directory == directory)
    }

    /// Another mount of the same file system, such as a bind mount.
    #[must_use]
    pub fn again(&self) -> Option<Self> {
        Self::all().into_iter().find(|mount| self.is_same(mount))
    }

    /// Whether the same file system is mounted elsewhere, too, as by a bind mount. To be asked before the unmount: afterwards
    /// another mount of the same file may have its number.
    #[must_use]
    pub fn has_copy(&self) -> bool {
        self.has_copy_in(&Self::all())
    }

    fn has_copy_in(&self, mounts: &[Self]) -> bool {
        let same = mounts.iter().filter(|mount| self.is_same(mount));
        same.count() > 1
    }

    /// Whether a path to its directory leads to it: it is mounted, and nothing is mounted over it.
    #[must_use]
    pub fn is_on_top(&self) -> bool {
        Self::at(&self.directory).is_some_and(|top| self.is_same(&top))
    }

    /// Whether both are of one file system. The number alone is not enough: after an unmount the kernel gives it to the next one.
    fn is_same(&self, other: &Self) -> bool {
        self.device == other.device && self.source == other.source
    }

    /// Makes the kernel fail every request that waits for the daemon, as when the last descriptor of `/dev/fuse` is closed.
    ///
    /// # Errors
    /// If there is no `/sys/fs/fuse/connections`, or another user has made the mount.
    pub fn abort(&self) -> std::io::Result<()> {
        let abort = Path::new(CONNECTIONS).join(self.connection());
        let abort = abort.join("abort");
        let mut abort = OpenOptions::new().write(true).open(abort)?;
        abort.write_all(b"1")
    }

    /// The number by which the kernel knows the connection to the program that serves it, as text.
    #[must_use]
    pub fn connection(&self) -> &OsStr {
        // of `major:minor`, the minor number is the connection's
        let mut numbers = self.device.split(|&byte| byte == b':');
        OsStr::from_bytes(numbers.next_back().unwrap_or_default())
    }

    /// The directory it is mounted on.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The source of the mount. For a mount of ours, the path of the file, unless `fsname` says something else.
    #[must_use]
    pub fn source(&self) -> &Path {
        Path::new(&self.source)
    }

    /// Whether `path`, a file, directory or URL, is mounted here.
    #[must_use]
    pub fn is_of(&self, path: &Path) -> bool {
        let source = self.source();
        // `fusermount3` has been given the name in this form
        source == path || source.as_os_str() == &*in_utf8(path.as_os_str())
    }

    /// Whether it is served by a program.
    #[must_use]
    pub fn is_fuse(&self) -> bool {
        self.kind == b"fuse" || self.kind.starts_with(b"fuse.")
    }

    /// Whether it has the type of our mounts. Mounts of other programs may have it too.
    fn may_be_ours(&self) -> bool {
        self.whole && TYPES.contains(&&*self.kind)
    }

    /// Whether it is surely a mount of an ASDF file by its type, or probably by its source, if that is a file.
    #[must_use]
    pub fn looks_ours(&self) -> bool {
        self.may_be_ours() && (self.kind != TYPES[0] || self.source().is_file())
    }

    /// The user who made it, and the group.
    #[must_use]
    pub fn ids(&self) -> Option<(u32, u32)> {
        let id = |name: &[u8]| {
            let mut options = self.options.split(|&byte| byte == b',');
            let number = options.find_map(|option| option.strip_prefix(name))?;
            str::from_utf8(number).ok()?.parse().ok()
        };
        Some((id(b"user_id=")?, id(b"group_id=")?))
    }

    /// The user who made it.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        Some(self.ids()?.0)
    }
}

/// A name in UTF-8. A byte that is not UTF-8 is written as `\xFF`.
#[must_use]
pub fn in_utf8(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // writing to a string can't fail
            let _ = write!(out, "\\x{byte:02X}");
        }
    }
    out
}

/// The mounts in a table; lines that make no sense are passed over.
fn mounts(table: &[u8]) -> Vec<Mounted> {
    table
        .split(|&byte| byte == b'\n')
        .filter_map(mounted)
        .collect()
}

/// The mount on a line of the table. A dash ends the optional fields, whose number varies.
fn mounted(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let [_, _, device, root, directory, ..] = fields.get(..dash)? else {
        return None;
    };
    let [_, kind, source, options] = fields.get(dash..)? else {
        return None;
    };
    Some(Mounted {
        directory: unescaped(directory).into(),
        device: device.to_vec(),
        source: unescaped(source),
        kind: kind.to_vec(),
        whole: *root == b"/",
        options: options.to_vec(),
    })
}

/// A field of the table with its octal escapes (`\040` for a blank) undone.
fn unescaped(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let code = digits.and_then(octal);
        out.push(code.unwrap_or(byte));
        rest = after.get(code.map_or(0, |_| 3)..).unwrap_or_default();
    }
    OsString::from_vec(out)
}

/// The byte that octal digits stand for; `None` above 255.
fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |code, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        code.checked_mul(8)?.checked_add(digit)
    })
}

/// Has the first of the `helpers` that starts unmount what is at `mountpoint`, for a user without privileges; if it is `lazy`, also while
/// it is in use. Its status, and what it says; `None` if none starts.
#[must_use]
pub fn unmount_with(helpers: &[OsString], mountpoint: &Path, lazy: bool) -> Option<Output> {
    let flags = if lazy { "-uz" } else { "-u" };
    helpers.iter().find_map(|helper| {
        let mut command = Command::new(helper);
        let command = command.args([flags, "--"]).arg(mountpoint);
        command.stdin(Stdio::null()).output().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_octal_digits_are_an_escape() {
        for (field, want) in [
            (r"a\040b", "a b"),
            (r"\134\011", "\\\t"),
            (r"\+40", r"\+40"),
            (r"\080", r"\080"),
            (r"\777", r"\777"),
            (r"\04", r"\04"),
        ] {
            assert_eq!(unescaped(field.as_bytes()), want, "{field}");
        }
    }

    #[test]
    fn the_mounts_of_our_own_and_of_root_are_known() {
        let table = b"22 28 0:21 / /proc rw,nosuid - proc proc rw\n\
            70 28 0:50 / /mnt/a\\040b rw,nosuid shared:9 - fuse.asdf-mount /data/x\\040y.asdf rw,user_id=1000,group_id=0\n\
            71 28 0:51 / /mnt/root ro - fuse /data/r.asdf ro,user_id=0,group_id=0\n\
            72 28 0:52 / /mnt/foreign rw - fuse.asdf-mount /data/f.asdf rw,user_id=1001,group_id=0\n\
            73 28 0:53 / /mnt/other rw - fuse.sshfs /data/o.asdf rw,user_id=1000,group_id=0\n\
            74 28 0:50 /arrays /mnt/bound rw - fuse.asdf-mount /data/b.asdf rw,user_id=1000,group_id=0\n\
            broken - line\n";
        let all = mounts(table);
        let trusted = |mount: &&Mounted| matches!(mount.owner(), Some(0 | 1000));
        let ours = all.iter().filter(|mount| mount.may_be_ours());
        let found: Vec<_> = ours
            .filter(trusted)
            .map(|mount| (mount.source().to_str(), mount.directory().to_str()))
            .collect();
        assert_eq!(
            found,
            [
                (Some("/data/x y.asdf"), Some("/mnt/a b")),
                (Some("/data/r.asdf"), Some("/mnt/root"))
            ]
        );
        // the last has the number of the second, but shows another file
        assert!(all[1].is_same(&all[1]) && !all[1].is_same(&all[5]));
        // what is the same is a copy only beside the mount itself
        assert!(!all[1].has_copy_in(&all) && !all[1].has_copy_in(&all[1..2]));
        let bound = [all[1].clone(), all[1].clone()];
        assert!(all[1].has_copy_in(&bound));
        let served = all.iter().filter(|mount| mount.is_fuse());
        assert_eq!((all.len(), served.count()), (6, 5));
    }

    #[test]
    fn a_mount_is_of_a_file_by_its_name_or_by_that_in_utf8() {
        let is_of = |source: &str, path: &[u8]| {
            let line = format!("1 2 0:3 / /m rw - fuse.asdf-mount {source} rw,user_id=0");
            let mounted = mounted(line.as_bytes()).unwrap();
            mounted.is_of(Path::new(OsStr::from_bytes(path)))
        };
        assert!(is_of("/a,b\\134c", b"/a,b\\c"));
        assert!(is_of("/a\\134xFFé", b"/a\xff\xc3\xa9"));
        assert!(!is_of("/a\\134xFE", b"/a\xff"));
        assert!(!is_of("/a\u{fffd}", b"/a\xff"));
    }

    #[test]
    fn a_mount_without_a_subtype_looks_like_ours_if_its_source_is_a_file() {
        let looks = |kind: &str, source: &str| {
            let line = format!("1 2 0:3 / /m rw - {kind} {source} rw,user_id=0");
            mounted(line.as_bytes()).unwrap().looks_ours()
        };
        assert!(looks("fuse.asdf-mount", "any"));
        assert!(looks(
            "fuse",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")
        ));
        assert!(!looks("fuse", "/nosuch"));
        assert!(!looks("fuse.other", "any"));
        assert!(!looks("tmpfs", "any"));
    }
}
