//! Locks on files, as flock(2) gives them.

use std::fs::File;
use std::io;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Takes a lock that no other process has or shares; `false` if one does.
///
/// # Errors
/// Of the system.
pub(super) fn lock(file: &File) -> io::Result<bool> {
    granted(rustix::fs::flock(
        file,
        FlockOperation::NonBlockingLockExclusive,
    ))
}

/// Takes a lock that other processes may share; `false` if one of them holds an exclusive lock.
///
/// # Errors
/// Of the system.
pub fn lock_shared(file: &File) -> io::Result<bool> {
    granted(rustix::fs::flock(
        file,
        FlockOperation::NonBlockingLockShared,
    ))
}

/// Gives up this process's lock on a file.
///
/// # Errors
/// Of the system; a filesystem without locks gives none.
pub fn unlock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::Unlock) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a lock was granted; not if another open file has it.
fn granted(locked: Result<(), Errno>) -> io::Result<bool> {
    match locked {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Locks `file`, which is open for reading; on NFS, which gives such a lock to a writer alone, the one that `writable` opens. The file that
/// was locked, and whether no other process has the lock.
pub(in crate::save) fn lock_either<S: super::Store>(
    store: &S,
    file: S::File,
    writable: impl FnOnce() -> io::Result<S::File>,
) -> io::Result<(S::File, bool)> {
    let file = match store.lock(&file) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF) => writable()?,
        locked => return Ok((file, locked?)),
    };
    let locked = store.lock(&file)?;
    Ok((file, locked))
}
