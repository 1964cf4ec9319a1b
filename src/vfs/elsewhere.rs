//! Links into other mounts: what a reference to another ASDF file becomes while a mount of that file is there.
//!
//! Which mounts there are is looked up in the kernel's table, what the names in them are is read from the other file itself. The
//! other mount is never asked for anything: two mounts that refer to each other must not be able to wait for each other.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::locked;
use super::state::State;
use crate::asdf::{Other, Reference, Referent, Snapshot};
use crate::error::{Error, Place, Result};

/// How long what was found counts.
const LIFETIME: Duration = Duration::from_secs(1);
/// The kernel's table of mounts, as this process sees them.
const MOUNTS: &str = "/proc/self/mountinfo";
/// The types of our mounts in it: made by mount(2) they have no subtype.
const MOUNT_TYPES: [&[u8]; 2] = [b"fuse", b"fuse.asdf-mount"];
/// Longest target of a link (`PATH_MAX` without the NUL).
const MAX_TARGET: usize = 4095;

/// What is known of other files and their mounts.
#[derive(Default)]
pub(super) struct Elsewhere(Mutex<Known>);

#[derive(Default)]
struct Known {
    mounts: Option<(Instant, Vec<Mounted>)>,
    files: HashMap<PathBuf, (Instant, Arc<Other>)>,
}

/// A mount of an ASDF file.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    /// The path of the file, as its mount says it.
    source: OsString,
    directory: PathBuf,
}

/// Where a reference leads.
pub(super) struct ShownElsewhere {
    /// The root of the other mount.
    mountpoint: PathBuf,
    referent: Referent,
}

impl State {
    /// Where that reference leads.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Corrupt`] or [`Error::Io`], which say why it leads nowhere.
    pub(super) fn shown_elsewhere(&self, reference: usize) -> Result<ShownElsewhere> {
        let missing = || Error::unsupported(Place::File, "no such reference");
        let found = self.snapshot.references().get(reference);
        let found = found.ok_or_else(missing)?;
        let file = self.snapshot.file_referred_to(found)?;
        let mut known = locked(&self.elsewhere.0);
        let mountpoint = known.mountpoint(&file).ok_or_else(|| {
            let why = format!("{} is not mounted", file.display());
            Error::unsupported(Place::File, why)
        })?;
        let other = known.other(&self.snapshot, found, file)?;
        Ok(ShownElsewhere {
            mountpoint,
            referent: other.referent(reference)?.clone(),
        })
    }

    /// The target of a link to what that reference stands for: to a directory, or to a file with that ending.
    pub(super) fn target_elsewhere(
        &self,
        reference: usize,
        ending: Option<&str>,
    ) -> Option<Vec<u8>> {
        let shown = self.shown_elsewhere(reference).ok()?;
        let name = match ending {
            Some(ending) => shown.referent.array()? + ending,
            None => shown.referent.directory()?,
        };
        let target = shown.mountpoint.join("arrays").join(name);
        let target = target.into_os_string().into_vec();
        (target.len() <= MAX_TARGET).then_some(target)
    }
}

impl Known {
    /// Where that file is mounted.
    fn mountpoint(&mut self, file: &Path) -> Option<PathBuf> {
        let fresh = |at: &Instant| at.elapsed() < LIFETIME;
        if !self.mounts.as_ref().is_some_and(|(at, _)| fresh(at)) {
            let table = std::fs::read(MOUNTS).unwrap_or_default();
            let user = rustix::process::geteuid().as_raw();
            self.mounts = Some((Instant::now(), mounts(&table, user)));
        }
        let (_, mounts) = self.mounts.as_ref()?;
        let found = mounts.iter().rfind(|mount| mount.source == *file)?;
        Some(found.directory.clone())
    }

    /// What the references into `file` lead to, `reference` among them.
    fn other(
        &mut self,
        snapshot: &Snapshot,
        reference: &Reference,
        file: PathBuf,
    ) -> Result<Arc<Other>> {
        let known = self.files.get(&file);
        if let Some((at, other)) = known
            && at.elapsed() < LIFETIME
        {
            return Ok(Arc::clone(other));
        }
        let other = snapshot.other(reference, known.map(|(_, other)| other))?;
        self.files
            .insert(file, (Instant::now(), Arc::clone(&other)));
        Ok(other)
    }
}

/// The mounts of ASDF files in a table of mounts (proc_pid_mountinfo(5)), made by `user` or by root: anybody may mount something
/// that says it is a file of somebody else.
fn mounts(table: &[u8], user: u32) -> Vec<Mounted> {
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(|line| mounted(line, user)).collect()
}

fn mounted(line: &[u8], user: u32) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let [_, _, _, root, directory, ..] = fields.get(..dash)? else {
        return None;
    };
    let [_, kind, source, options] = fields.get(dash..)? else {
        return None;
    };
    let trusted = [0, user].map(|user| format!("user_id={user}"));
    let mut options = options.split(|&byte| byte == b',');
    let ours = options.any(|option| trusted.iter().any(|user| user.as_bytes() == option));
    if !ours || !MOUNT_TYPES.contains(kind) || *root != b"/" {
        return None;
    }
    Some(Mounted {
        source: unescaped(source),
        directory: unescaped(directory).into(),
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

/// The byte that digits stand for, three of which can say more than there are bytes.
fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |code, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        code.checked_mul(8)?.checked_add(digit)
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
            74 28 0:50 /arrays /mnt/bound rw - fuse.asdf-mount /data/b.asdf rw,user_id=1000\n\
            broken - line\n";
        let found = mounts(table, 1000);
        let found: Vec<_> = found
            .iter()
            .map(|mount| (mount.source.to_str(), mount.directory.to_str()))
            .collect();
        assert_eq!(
            found,
            [
                (Some("/data/x y.asdf"), Some("/mnt/a b")),
                (Some("/data/r.asdf"), Some("/mnt/root"))
            ]
        );
    }
}
