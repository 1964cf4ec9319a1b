//! Errors of the file system, and the one place where they become errno.

use std::ffi::OsStr;

use rustix::io::Errno;

use crate::error::{Error as Library, Place};

/// The longest name of a file, in bytes.
pub const NAME_MAX: u32 = 255;

/// That a name is not too long; the kernel lets longer ones through.
///
/// # Errors
/// [`Error::NameTooLong`].
pub fn check_name(name: &OsStr) -> Result<(), Error> {
    match u32::try_from(name.len()) {
        Ok(len) if len <= NAME_MAX => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Whether no name of a path is too long: one of a view may be where the name under `arrays/`, with another ending, is not.
pub(super) fn are_names(path: &str) -> bool {
    path.split('/')
        .all(|name| check_name(name.as_ref()).is_ok())
}

/// Which request failed: the same fault has another errno at another call, because that is what makes programs say something
/// sensible: `mv` takes `EINVAL` at a rename for "a directory into itself", and emacs ignores it at `fsync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are FUSE's own")]
pub enum Call {
    Lookup,
    Getattr,
    Setattr,
    Readlink,
    Create,
    Unlink,
    Rename,
    Open,
    Read,
    Write,
    Flush,
    Release,
    Fsync,
    Readdir,
    Statfs,
    Getxattr,
    Setxattr,
    Listxattr,
    Removexattr,
    Fallocate,
}

impl Call {
    /// Whether it is for a file that is open: a name has no part in it.
    fn is_of_open_file(self) -> bool {
        matches!(
            self,
            Self::Read | Self::Write | Self::Flush | Self::Fsync | Self::Fallocate
        )
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file can't be read or saved.
    #[error(transparent)]
    Library(#[from] Library),
    /// What was to be saved is, but not all that belongs to it could be done: why, and what follows.
    #[error("saved, but {0}: {1}")]
    Unfinished(Library, &'static str),
    /// No such name or inode.
    #[error("no such file")]
    NotFound,
    /// A name that is taken.
    #[error("it exists already")]
    Exists,
    /// A name that was free when the kernel looked it up.
    #[error("another program has made it meanwhile")]
    MadeMeanwhile,
    /// A file where a directory is needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory where a file is needed.
    #[error("it is a directory")]
    IsDirectory,
    /// The mount, or this file of it, is read-only.
    #[error("read-only: {0}")]
    ReadOnly(&'static str),
    /// What the mount's layout does not allow.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// A name of one file of the mount in another one.
    #[error("no rename or link leads from one ASDF file of the mount to another")]
    OtherMember,
    /// An argument that makes no sense.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// No attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// Something the file system does not do.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// A handle that is not open.
    #[error("no such handle")]
    BadHandle,
    /// Something that is in use.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// A block that is written through another file of the mount.
    #[error("busy: its block is open for writing as {0}; close that first")]
    InUse(String),
    /// A name that is longer than any here.
    #[error("a name has at most {NAME_MAX} bytes")]
    NameTooLong,
    /// A text or block beyond a limit.
    #[error("too big: {0}")]
    TooBig(&'static str),
}

impl Error {
    /// The errno for this error at that call.
    #[must_use]
    pub fn errno(&self, call: Call) -> i32 {
        self.kind(call).raw_os_error()
    }

    fn kind(&self, call: Call) -> Errno {
        match self {
            Self::Library(error) | Self::Unfinished(error, _) => library(error, call),
            Self::NotFound => not_found(call),
            Self::Exists => Errno::EXIST,
            // the kernel then looks it up again
            Self::MadeMeanwhile => Errno::STALE,
            Self::NotDirectory => Errno::NOTDIR,
            Self::IsDirectory => Errno::ISDIR,
            Self::ReadOnly(_) => Errno::ROFS,
            Self::NotPermitted(_) => Errno::PERM,
            // mv then copies
            Self::OtherMember => Errno::XDEV,
            Self::Invalid(_) => Errno::INVAL,
            Self::NoAttribute => Errno::NODATA,
            Self::NotSupported(_) => Errno::OPNOTSUPP,
            Self::BadHandle => Errno::BADF,
            Self::Busy(_) | Self::InUse(_) => Errno::BUSY,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::TooBig(_) => Errno::FBIG,
        }
    }

    /// The line of a text that is at fault, from 1, if one is.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Library(Library::Rejected {
                at: Place::Line { line, .. },
                ..
            }) => Some(*line),
            _ => None,
        }
    }

    /// Whether the user should find it in the log: a fault of the file or of a save, not a refused request.
    #[must_use]
    pub fn is_remarkable(&self) -> bool {
        matches!(
            self,
            Self::Library(_) | Self::Unfinished(..) | Self::ReadOnly(_) | Self::NotPermitted(_)
        )
    }
}

/// An inode that is gone had a name that the kernel still knew: told so, it looks the name up again, and finds what has it now.
fn not_found(call: Call) -> Errno {
    match call {
        Call::Getattr
        | Call::Setattr
        | Call::Readlink
        | Call::Open
        | Call::Getxattr
        | Call::Setxattr
        | Call::Listxattr
        | Call::Removexattr => Errno::STALE,
        call if call.is_of_open_file() => Errno::STALE,
        _ => Errno::NOENT,
    }
}

/// The errno of an error of the library at that call. An error of the system keeps its own, unless that would be taken to be of the
/// file in the mount.
fn library(error: &Library, call: Call) -> Errno {
    match error {
        Library::Io { cause, .. } => match Errno::from_io_error(cause) {
            // FILE has lost its name, which says nothing of the name of what is open
            Some(Errno::NOENT) if call.is_of_open_file() => Errno::STALE,
            found => found.unwrap_or(Errno::IO),
        },
        Library::Corrupt { .. } | Library::Unsupported { .. } => Errno::IO,
        Library::Rejected { .. } => match call {
            Call::Fsync | Call::Rename => Errno::IO,
            _ => Errno::INVAL,
        },
        Library::Stale { .. } => Errno::STALE,
        Library::NoRoom { limit: true, .. } => Errno::FBIG,
        Library::NoRoom { limit: false, .. } => Errno::NOSPC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_text_says_so_in_the_errno_that_each_call_can_carry() {
        let rejected = Error::from(Library::Rejected {
            at: Place::Line { line: 3, column: 1 },
            why: "x".into(),
            advice: "y".into(),
        });
        let errno = |call| Errno::from_raw_os_error(rejected.errno(call));
        assert_eq!(errno(Call::Flush), Errno::INVAL);
        assert_eq!(errno(Call::Fsync), Errno::IO);
        assert_eq!(errno(Call::Rename), Errno::IO);
    }

    #[test]
    fn a_name_is_not_there_but_an_inode_is_gone() {
        let errno = |call| Errno::from_raw_os_error(Error::NotFound.errno(call));
        assert_eq!(errno(Call::Lookup), Errno::NOENT);
        assert_eq!(errno(Call::Unlink), Errno::NOENT);
        assert_eq!(errno(Call::Open), Errno::STALE);
        assert_eq!(errno(Call::Getattr), Errno::STALE);
    }

    #[test]
    fn the_system_errno_is_passed_on() {
        let full = std::io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        let error = Error::from(Library::io("writing", full));
        assert_eq!(error.errno(Call::Flush), Errno::NOSPC.raw_os_error());
    }

    /// close(2) and fsync(2) said that there is no such file, where FILE had been moved away.
    #[test]
    fn what_is_open_is_stale_where_its_file_is_gone() {
        let gone = std::io::Error::from_raw_os_error(Errno::NOENT.raw_os_error());
        let error = Error::from(Library::io("opening it for writing", gone));
        let errno = |call| Errno::from_raw_os_error(error.errno(call));
        for call in [Call::Write, Call::Flush, Call::Fsync] {
            assert_eq!(errno(call), Errno::STALE);
        }
        assert_eq!(errno(Call::Lookup), Errno::NOENT);
        assert_eq!(errno(Call::Setxattr), Errno::NOENT);
    }
}
