//! Extended attributes of a file, the access list among them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Gives `to` the attributes of `from`, and takes away all others: a new file inherits an access list from its directory, which permissions
/// that are set later would bring into effect.
pub(super) fn copy(from: &File, to: &File) -> io::Result<()> {
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
