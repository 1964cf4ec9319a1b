//! Attributes of a file: owner, mode, and the extended ones, the access list among them.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Owner, group and mode that a file is to get, each if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Its permissions, with set-id and sticky bits.
    pub mode: Option<u32>,
}

/// Gives them to a file. The mode comes last, as another owner takes bits away.
pub(super) fn set(file: &File, facts: Facts) -> io::Result<()> {
    if facts.uid.is_some() || facts.gid.is_some() {
        std::os::unix::fs::fchown(file, facts.uid, facts.gid)?;
    }
    let mode = facts.mode.map(Permissions::from_mode);
    mode.map_or(Ok(()), |mode| file.set_permissions(mode))
}

/// Gives `to` the owner, the mode and the extended attributes of `from`.
pub(super) fn imitate(from: &File, to: &File) -> io::Result<()> {
    let (found, made) = (from.metadata()?, to.metadata()?);
    if (found.uid(), found.gid()) != (made.uid(), made.gid()) {
        std::os::unix::fs::fchown(to, Some(found.uid()), Some(found.gid()))?;
    }
    copy(from, to)?;
    to.set_permissions(found.permissions())
}

/// Gives `to` the extended attributes of `from`, and takes away all others: a new file inherits an access list from its directory, which permissions
/// that are set later would bring into effect.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let wanted = names(from)?;
    for name in names(to)?.iter().filter(|name| !wanted.contains(name)) {
        match rustix::fs::fremovexattr(to, &**name) {
            Err(error) if !name.as_bytes().starts_with(b"security.") => return Err(error.into()),
            _ => {}
        }
    }
    for name in wanted {
        let attribute = value(from, &name)?;
        if value(to, &name).ok().as_ref() != Some(&attribute) {
            rustix::fs::fsetxattr(to, &*name, &attribute, XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Names of the extended attributes, those that a filesystem without any has not.
pub(super) fn names(file: &File) -> io::Result<Vec<OsString>> {
    let len = match rustix::fs::flistxattr(file, &mut [0u8; 0]) {
        Ok(_) => 64 << 10,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = vec![0; len];
    let len = rustix::fs::flistxattr(file, &mut names[..])?;
    names.truncate(len);
    Ok(names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect())
}

/// The value of an extended attribute.
pub(super) fn value(file: &File, name: &OsStr) -> io::Result<Vec<u8>> {
    /// The longest value that Linux has (`XATTR_SIZE_MAX`).
    const LONGEST: usize = 64 << 10;
    let mut value = vec![0; LONGEST];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}
