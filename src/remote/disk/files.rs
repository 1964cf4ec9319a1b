//! The files of a directory of the user's own that hold pieces between mounts:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | what kind of file it is; the last is the version of the format |
//! | 4 | CRC-32 of all that follows |
//! | 4 | length of the key |
//! | n | the key, compared byte for byte |
//! | rest | the content |
//!
//! Numbers are little-endian. A file is written under another name and then renamed, but not synced: a torn file has a wrong
//! checksum, and is ignored. Also ignored are symbolic links, and files that another user owns or may write, or that lie in a
//! directory that another user owns or may write. A file is read whole, and only if it is no larger than this module writes.
//!
//! The checksum finds a file that is torn or damaged, and the key one that is stale. Neither guards against a forged file,
//! because both can be computed: owner and permissions do. A file that the user can write is trusted.

use std::ffi::CStr;
use std::fs::{DirBuilder, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::super::pieces::PIECE;
use crate::codec::{crc32, fnv1a};
use crate::error::{Error, Result};
use crate::source::Fields;

/// First bytes of a file; the last is the version of the format.
const MAGIC: [u8; 8] = *b"ASDFFAR\x01";

/// What follows the number that a file's name begins with. The name of a file that is being written has more behind that.
const SUFFIX: &str = ".piece";

/// Length of the largest file: a piece, with what stands before it.
const LONGEST: u64 = PIECE + 4096;

/// Bytes before the key.
const HEAD_LEN: usize = 16;

/// Bytes of a unit in which a file's room on disk is counted, see stat(2).
const SECTOR: u64 = 512;

/// Digits of the number that a file's name begins with.
const DIGITS: usize = 16;

/// Permissions that let others change what is in a file or directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A file that was opened, but not read yet.
pub(super) struct StoredFile {
    file: File,
    len: u64,
}

impl StoredFile {
    /// What is stored, if the file is whole and has this key.
    pub(super) fn read(mut self, key: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len).ok()?];
        self.file.read_exact(&mut bytes).ok()?;
        let content = content_of(&bytes, key)?;
        // the content is at the end: moved within the buffer instead of copied into another
        let start = bytes.len().saturating_sub(content.len());
        bytes.drain(..start);
        // Only the order in which old files are removed depends on it.
        let _ = self.file.set_modified(SystemTime::now());
        Some(bytes)
    }
}

/// Checks that files can be stored in a directory: it does not exist yet, or only the user may write in it.
///
/// # Errors
/// [`Error::Io`] that says why not.
pub(super) fn check_dir(dir: &Path) -> Result<()> {
    match open_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(dir.display().to_string(), error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Opens the file of this key, if it exists and its owner and permissions are right.
///
/// # Errors
/// Of the system; what says why not.
pub(super) fn find(dir: &Path, key: &[u8]) -> io::Result<StoredFile> {
    // all that follows is relative to this descriptor: nobody can put another directory in its place
    let dir = open_dir(dir)?;
    let name = file_name(key);
    // another user could have put a link or a FIFO there, if the directory was open to others once
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(&dir, name, flags, Mode::empty())?);
    let meta = file.metadata()?;
    // asked of the open file, not of its name, which may lead elsewhere by then
    check_owner(&meta)?;
    if !meta.is_file() || meta.len() > LONGEST {
        return Err(io::Error::other("not a file of ours"));
    }
    let len = meta.len();
    Ok(StoredFile { file, len })
}

/// Writes a file, and gives the directory.
///
/// # Errors
/// Of the system; what says why not.
pub(super) fn store(path: &Path, key: &[u8], content: &[u8]) -> io::Result<OwnedFd> {
    let len = HEAD_LEN
        .saturating_add(key.len())
        .saturating_add(content.len());
    if u64::try_from(len).is_ok_and(|len| len > LONGEST) {
        return Err(io::Error::other(format!("{len} bytes are too many")));
    }
    let head = head(key, content).ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let dir = open_dir(path)?;
    let name = file_name(key);
    // of no other writer, nor of one that was killed: processes in two containers may have the same number
    let temporary = format!("{name}.{:016x}", RandomState::new().hash_one(key));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, &temporary, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(file);
    let written = file
        .write_all(&head)
        .and_then(|()| file.write_all(content))
        .and_then(|()| Ok(rustix::fs::renameat(&dir, &temporary, &dir, &name)?));
    if written.is_err() {
        // The error of writing is returned, not that of removing.
        let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
    }
    written?;
    Ok(dir)
}

/// Removes the files that were not used for the longest time, until the rest is within the limits.
///
/// A file that can't be removed stays: another mount has removed it, or it is not ours.
///
/// # Errors
/// Of listing the directory.
pub(super) fn make_room(dir: &OwnedFd, limit: u64, files: usize) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_ours(name)
            && let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode).is_file()
        {
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            let sectors = u64::try_from(stat.st_blocks).unwrap_or(0);
            // what is compressed or has holes counts as what it may become
            let taken = sectors.saturating_mul(SECTOR).max(len);
            found.push(((stat.st_mtime, stat.st_mtime_nsec), taken, name.to_owned()));
        }
    }
    // the time of change is that of the last use: `read` sets it
    found.sort_unstable_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
    let mut sum = 0_u64;
    for (n, (_, taken, name)) in found.iter().enumerate() {
        sum = sum.saturating_add(*taken);
        if sum > limit || n >= files {
            let removed = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            if let Err(error) = removed {
                log::debug!("{name:?} not removed: {error}");
            }
        }
    }
    Ok(())
}

/// The content in the bytes of a file, if they are whole and of this key.
fn content_of<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut fields = Fields(bytes);
    let magic: [u8; 8] = fields.array()?;
    let sum = u32::from_le_bytes(fields.array()?);
    // after a power cut the file may be there without its bytes
    if magic != MAGIC || crc32(0, fields.0) != sum {
        return None;
    }
    let len = usize::try_from(fields.u32()?).ok()?;
    // the name has 64 bits of the key only: the whole key is in the file
    (fields.bytes(len)? == key).then_some(fields.0)
}

/// What comes before the content in a file.
fn head(key: &[u8], content: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(key.len()).ok()?.to_le_bytes();
    let sum = crc32(crc32(crc32(0, &len), key), content);
    Some([MAGIC.as_slice(), &sum.to_le_bytes(), &len, key].concat())
}

/// The name of a key's file: its hash. Two keys with the same hash replace each other's file.
fn file_name(key: &[u8]) -> String {
    format!("{:0DIGITS$x}{SUFFIX}", fnv1a(key))
}

/// Whether we have made a file of this name.
fn is_ours(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.split_at_checked(DIGITS).is_some_and(|(digits, rest)| {
        digits.iter().all(u8::is_ascii_hexdigit) && rest.starts_with(SUFFIX.as_bytes())
    })
}

/// Opens the directory, if only the user may write in it.
fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    check_owner(&dir.metadata()?)?;
    Ok(dir.into())
}

/// Checks that only this user may change a file or directory.
fn check_owner(meta: &Metadata) -> io::Result<()> {
    let uid = meta.uid();
    let ours = rustix::process::geteuid().as_raw();
    if uid != ours {
        return Err(io::Error::other(format!(
            "owned by user {uid}, not by {ours}"
        )));
    }
    if meta.mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(io::Error::other("others may write there"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use tempfile::TempDir;

    const KEY: &[u8] = b"this piece of this object";

    /// A directory that does not exist yet, in one that goes away with the test.
    fn dir() -> (TempDir, PathBuf) {
        let place = TempDir::new().unwrap();
        let dir = place.path().join("a/b");
        (place, dir)
    }

    fn store(dir: &Path, key: &[u8], content: &[u8]) {
        super::store(dir, key, content).unwrap();
    }

    fn load(dir: &Path, key: &[u8]) -> Option<Vec<u8>> {
        find(dir, key).ok()?.read(key)
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_kept_is_found_by_its_key_and_no_other() {
        let (_place, dir) = dir();
        assert!(load(&dir, KEY).is_none());
        store(&dir, KEY, b"content");
        assert_eq!(load(&dir, KEY).unwrap(), b"content");
        assert!(load(&dir, b"another").is_none());
        store(&dir, KEY, b"a newer one");
        assert_eq!(load(&dir, KEY).unwrap(), b"a newer one");
        assert_eq!(names(&dir), [file_name(KEY)]);
    }

    #[test]
    fn another_key_of_the_same_name_does_not_match() {
        let (_place, dir) = dir();
        store(&dir, b"another", b"content");
        fs::rename(dir.join(file_name(b"another")), dir.join(file_name(KEY))).unwrap();
        assert!(load(&dir, KEY).is_none());
    }

    #[test]
    fn only_the_user_may_read_what_is_kept() {
        let (_place, dir) = dir();
        store(&dir, KEY, b"content");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(dir.parent().unwrap()), 0o700);
        assert_eq!(mode(&dir.join(file_name(KEY))), 0o600);
    }

    #[test]
    fn what_others_may_write_is_not_used() {
        let (_place, dir) = dir();
        store(&dir, KEY, b"content");
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let file = dir.join(file_name(KEY));
        for (path, good, bad) in [(&file, 0o600, 0o606), (&dir, 0o700, 0o777)] {
            chmod(path, bad);
            assert!(load(&dir, KEY).is_none());
            assert_eq!(check_dir(&dir).is_err(), path == &dir);
            chmod(path, good);
            assert!(load(&dir, KEY).is_some());
        }
        chmod(&dir, 0o720);
        fs::remove_file(&file).unwrap();
        assert!(super::store(&dir, KEY, b"content").is_err());
        assert!(names(&dir).is_empty(), "nothing is written there either");
    }

    #[test]
    fn what_others_own_is_not_used() {
        let (_place, dir) = dir();
        store(&dir, KEY, b"content");
        let file = dir.join(file_name(KEY));
        let chown = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None);
        let us = rustix::process::geteuid().as_raw();
        for path in [&file, &dir] {
            if chown(path, us + 1).is_err() {
                return; // only root can give away
            }
            assert!(load(&dir, KEY).is_none());
            chown(path, us).unwrap();
            assert!(load(&dir, KEY).is_some());
        }
    }

    #[test]
    fn links_and_things_that_are_no_files_are_not_used() {
        let (place, dir) = dir();
        store(&dir, KEY, b"content");
        let link = place.path().join("link");
        symlink(&dir, &link).unwrap();
        assert!(load(&link, KEY).is_none());
        let file = dir.join(file_name(KEY));
        let elsewhere = place.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(load(&dir, KEY).is_none());
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(load(&dir, KEY).is_none());
    }

    /// In a container, a process may have the number of one that was killed while it wrote.
    #[test]
    fn what_was_left_half_written_keeps_nothing_from_being_stored() {
        let (_place, dir) = dir();
        store(&dir, b"another", b"content");
        for count in 0..1000 {
            let name = format!("{}.{}.{count}", file_name(KEY), std::process::id());
            fs::write(dir.join(name), b"half").unwrap();
        }
        store(&dir, KEY, b"content");
        assert_eq!(load(&dir, KEY).unwrap(), b"content");
    }

    #[test]
    fn what_is_too_large_is_neither_written_nor_read() {
        let (_place, dir) = dir();
        assert!(super::store(&dir, KEY, &vec![0; LONGEST as usize]).is_err());
        assert!(!dir.exists());
        store(&dir, KEY, b"content");
        let file = fs::OpenOptions::new()
            .write(true)
            .open(dir.join(file_name(KEY)))
            .unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(load(&dir, KEY).is_none());
    }

    #[test]
    fn the_longest_unused_go_when_there_are_too_many() {
        let (_place, dir) = dir();
        let keys: Vec<Vec<u8>> = (0..6).map(|n| vec![n]).collect();
        for (age, key) in keys.iter().enumerate() {
            store(&dir, key, &vec![0; 64 << 10]);
            let file = File::open(dir.join(file_name(key))).unwrap();
            let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64);
            file.set_modified(then).unwrap();
        }
        fs::write(dir.join("not ours"), vec![0; 500_000]).unwrap();
        assert!(load(&dir, &keys[1]).is_some(), "used now");
        let handle = open_dir(&dir).unwrap();
        make_room(&handle, 240 << 10, 100).unwrap();
        let kept = |n: usize| dir.join(file_name(&keys[n])).exists();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(kept),
            [false, true, false, false, true, true]
        );
        make_room(&handle, 240 << 10, 1).unwrap();
        assert!(kept(1) && !kept(5));
        assert!(dir.join("not ours").exists());
    }

    #[test]
    fn what_cannot_be_removed_does_not_keep_the_rest() {
        let (_place, dir) = dir();
        store(&dir, KEY, b"content");
        let old = |n: u64| {
            let path = dir.join(format!("{n:016x}{SUFFIX}"));
            let file = File::create(&path).unwrap();
            file.set_len(100 << 20).unwrap();
            let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            file.set_modified(then).unwrap();
            path
        };
        let files = [1, 2, 3].map(old);
        fs::remove_file(&files[1]).unwrap();
        fs::create_dir(&files[1]).unwrap();
        let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(2);
        let dir_there = File::open(&files[1]).unwrap();
        dir_there.set_modified(then).unwrap();
        let handle = super::store(&dir, b"another", b"content").unwrap();
        make_room(&handle, 100 << 20, 100).unwrap();
        let there = [&files[0], &files[1], &files[2]].map(|path| path.exists());
        assert_eq!(there, [false, true, false]);
        assert!(load(&dir, KEY).is_some() && load(&dir, b"another").is_some());
    }

    #[test]
    fn a_file_that_was_torn_or_changed_anywhere_is_not_used() {
        let whole = [head(KEY, b"content").unwrap().as_slice(), b"content"].concat();
        assert_eq!(content_of(&whole, KEY), Some(b"content".as_slice()));
        for at in 0..whole.len() {
            assert!(content_of(&whole[..at], KEY).is_none(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                assert!(content_of(&changed, KEY).is_none(), "bit {bit} of {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_harmless(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            right in any::<bool>(),
        ) {
            let mut file = bytes;
            if right && file.len() >= HEAD_LEN {
                file[..8].copy_from_slice(&MAGIC);
                let sum = crc32(0, &file[12..]);
                file[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            prop_assert!(content_of(&file, KEY).is_none());
        }
    }
}
