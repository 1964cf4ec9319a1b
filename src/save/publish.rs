//! A new file under a name that is still free: whole, or not at all.
//!
//! The bytes go to a temporary file in the same directory, which takes the name when they are on disk. Until then the name stays
//! free. A file that has it already is never replaced.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::name;
use super::recovery;
use super::store::{Access, Disk, Store};
use super::view::write_fully;
use crate::error::{Error, Result};
use crate::source::{FileSource, Source, at_most, each_piece, len_u64};

/// How many bytes are in memory at a time.
const STEP: usize = 1 << 20;

/// Makes the file `path` of `bytes`, with these permissions. `progress` is told how many bytes were written, and ends that by an error.
///
/// # Errors
/// [`Error::Io`] that names `path` if there is such a file already or it can't be written; of reading `bytes`; of `progress`.
pub fn publish(
    path: &Path,
    bytes: &dyn Source,
    permissions: Permissions,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let failed = |cause| Error::io(path.display().to_string(), cause);
    let (disk, own) = place(path).map_err(failed)?;
    // asked before the work; `rename_to_new` asks again, because the name can be taken meanwhile
    if disk.stat_name(own).is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    // removes what a killed run has left; the temporary file of a run that goes on is locked
    recovery::remove_temporaries(&disk, own);
    let (temporary, file) = locked_temporary(&disk, own).map_err(failed)?;
    let write = |piece: &[u8], at| write_fully(&disk, &file, piece, at).map_err(failed);
    let done = fill(write, bytes, progress).and_then(|()| {
        file.set_permissions(permissions).map_err(failed)?;
        // data before the name: else a power cut could leave the name with an empty file
        disk.sync_all(&file).map_err(failed)?;
        disk.rename_to_new(&temporary, own).map_err(failed)
    });
    if done.is_err() {
        // the error that counts is the one before
        let _ = disk.unlink(&temporary);
        return done;
    }
    disk.sync_dir().map_err(failed)
}

/// The directory of a path, open, and the name there.
fn place(path: &Path) -> io::Result<(Disk, &OsStr)> {
    let (Some(parent), Some(own)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    Ok((Disk::open_dir(parent)?, own))
}

/// A temporary file, made and locked. Another run may see it before it is locked, take it for a leftover and remove it: then
/// another one is made.
fn locked_temporary(disk: &Disk, own: &OsStr) -> io::Result<(OsString, Arc<File>)> {
    loop {
        let temporary = name::temporary(own);
        let file = disk.create(&temporary, None)?;
        // on a filesystem without locks no file is taken for a leftover
        let free = disk.lock(&file).unwrap_or(true);
        let id = disk.stat(&file)?.id;
        if free && disk.stat_name(&temporary).is_ok_and(|named| named.id == id) {
            return Ok((temporary, file));
        }
    }
}

/// Whether the file at `path` has just these bytes.
///
/// # Errors
/// [`Error::Io`]; of reading `bytes`.
pub fn is_published(path: &Path, bytes: &dyn Source) -> Result<bool> {
    let failed = |cause| Error::io(path.display().to_string(), cause);
    let (disk, own) = place(path).map_err(failed)?;
    if !disk.stat_name(own).map_err(failed)?.is_regular() {
        return Ok(false);
    }
    let file = disk.open(own, Access::Read).map_err(failed)?;
    let there = FileSource::new(Arc::clone(&file), file.metadata().map_err(failed)?.len());
    let mut same = there.len() == bytes.len();
    let (mut at, mut found, mut wanted) = (0, Vec::new(), Vec::new());
    while same && at < bytes.len() {
        let len = at_most(bytes.len().saturating_sub(at), STEP);
        found.resize(len, 0);
        wanted.resize(len, 0);
        there.read_exact_at(&mut found, at)?;
        bytes.read_exact_at(&mut wanted, at)?;
        same = found == wanted;
        at = at.saturating_add(len_u64(len));
    }
    Ok(same)
}

/// Writes all bytes into the file. `write` writes some of them at an offset.
fn fill(
    write: impl Fn(&[u8], u64) -> Result<()>,
    bytes: &dyn Source,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    each_piece(bytes, 0..bytes.len(), STEP, |piece| {
        write(piece, at)?;
        let len = len_u64(piece.len());
        at = at.saturating_add(len);
        progress(len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::source::{Memory, Short};
    use std::os::unix::fs::PermissionsExt;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn mode() -> Permissions {
        Permissions::from_mode(0o640)
    }

    #[test]
    fn a_file_is_made_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        let bytes = vec![7; STEP + 5];
        let mut told = 0;
        publish(&path, &Memory::new(bytes.clone()), mode(), &mut |n| {
            told += n;
            Ok(())
        })
        .unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(told, len_u64(STEP + 5));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["x.asdf"]);
    }

    #[test]
    fn what_is_stopped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        let stop = |_| Err(Error::io("stopped", io::ErrorKind::Other.into()));
        let bytes = Memory::new(vec![7; STEP + 5]);
        assert!(publish(&path, &bytes, mode(), &mut { stop }).is_err());
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_a_running_one_has_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        let bytes = Memory::new(vec![7; 10]);
        let disk = Disk::open_dir(dir.path()).unwrap();
        let own = OsStr::new("x.asdf");
        disk.create(&name::temporary(own), None).unwrap();
        let (running, _held) = locked_temporary(&disk, own).unwrap();
        let (other, _) = locked_temporary(&disk, OsStr::new("y.asdf")).unwrap();
        publish(&path, &bytes, mode(), &mut |_| Ok(())).unwrap();
        let mut found = names(dir.path());
        found.sort();
        let mut wanted = ["x.asdf".into(), running, other].map(|name| name.into_string().unwrap());
        wanted.sort();
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_file_is_known_by_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        let len = STEP + 5;
        std::fs::write(&path, vec![7; len]).unwrap();
        let same = |bytes: Vec<u8>| is_published(&path, &Memory::new(bytes)).unwrap();
        assert!(same(vec![7; len]));
        assert!(!same(vec![7; len - 1]));
        assert!(!same([vec![7; len - 1], vec![8]].concat()));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("x.asdf", &link).unwrap();
        assert!(!is_published(&link, &Memory::new(vec![7; len])).unwrap());
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        let missing = Error::corrupt(Place::File, "cut short");
        let bytes = Short::new(
            Arc::new(Memory::new(vec![1; 10])),
            len_u64(STEP * 2),
            missing,
        );
        assert!(publish(&path, &bytes, mode(), &mut |_| Ok(())).is_err());
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.asdf");
        std::fs::write(&path, "old").unwrap();
        let new = Memory::new(b"new".to_vec());
        assert!(publish(&path, &new, mode(), &mut |_| Ok(())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let disk = Disk::open_dir(dir.path()).unwrap();
        std::fs::write(dir.path().join("t"), "new").unwrap();
        assert!(
            disk.rename_to_new(OsStr::new("t"), OsStr::new("x.asdf"))
                .is_err()
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
}
