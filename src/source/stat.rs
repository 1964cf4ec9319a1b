//! The attributes of a file: which one it is, how long, whose, and when it was changed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

/// The bits of a mode that hold the type of a file, stat(2), and their values for a regular file and a directory.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// The attributes of a file, as stat(2) has them. For a remote file they come from the answer of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Device and inode number.
    pub id: (u64, u64),
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of content, in seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Time of the last change of anything, in seconds and nanoseconds.
    pub ctime: (i64, i64),
    /// Names of the file.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permissions.
    pub mode: u32,
    /// The permissions that an access control list leaves to every user; all if there is none.
    pub left: u32,
}

impl Stat {
    /// [`Stat::left`] of a file without a list.
    pub const ALL: u32 = 0o777;

    /// Whether it is a regular file: no directory, symlink or device.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.mode & TYPE == REGULAR
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & TYPE == DIRECTORY
    }

    /// Whether this is the same file as `before`, with the same bytes as far as attributes tell: the same device,
    /// inode, length and time of change. Attributes miss bytes that change twice within one tick of the file system's
    /// clock (see [`Look`](super::Look)), bytes that are written through a map and not yet synced, and a
    /// time that a program has set back.
    #[must_use]
    pub fn has_bytes_of(&self, before: &Self) -> bool {
        let bytes = |stat: &Self| (stat.id, stat.size, stat.mtime);
        bytes(self) == bytes(before)
    }

    /// As [`Stat::has_bytes_of`], and nothing else of the file was changed either, such as owner and mode.
    #[must_use]
    pub fn is_untouched_since(&self, before: &Self) -> bool {
        self.has_bytes_of(before) && self.ctime == before.ctime
    }

    /// Whether the file has other owners, permissions or names, which a new [`Stat::ctime`] may tell of.
    #[must_use]
    pub fn has_other_access(&self, before: &Self) -> bool {
        let access = |stat: &Self| (stat.links, stat.uid, stat.gid, stat.mode, stat.left);
        access(self) != access(before)
    }

    /// The permission bits; with `list_counts`, only the ones that an access control list leaves to every user.
    #[must_use]
    pub fn permissions(&self, list_counts: bool) -> u32 {
        let left = if list_counts { self.left } else { Self::ALL };
        self.mode & Self::ALL & left
    }

    /// When its bytes were changed last.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        moment(self.mtime)
    }

    /// When anything of it was changed last.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        moment(self.ctime)
    }
}

/// A time in seconds and nanoseconds; the epoch for one that the clock of this machine can't express.
fn moment((seconds, nanos): (i64, i64)) -> SystemTime {
    let nanos = Duration::from_nanos(nanos.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let at = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    // nanoseconds count forward, also before the epoch
    let at = at.and_then(|at| at.checked_add(nanos));
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

impl From<&Metadata> for Stat {
    fn from(found: &Metadata) -> Self {
        Self {
            id: (found.dev(), found.ino()),
            size: found.len(),
            mtime: (found.mtime(), found.mtime_nsec()),
            ctime: (found.ctime(), found.ctime_nsec()),
            links: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            mode: found.mode(),
            left: Self::ALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (seconds, nanos) in [(0, 0), (1_700_000_000, 999_999_999), (-3, 250_000_000)] {
            let at = moment((seconds, nanos));
            file.as_file().set_modified(at).unwrap();
            let meta = file.as_file().metadata().unwrap();
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (seconds, nanos));
            assert_eq!(Stat::from(&meta).modified(), meta.modified().unwrap());
        }
        assert_eq!(
            moment((i64::MAX, 1)),
            SystemTime::UNIX_EPOCH
                .checked_add(Duration::new(i64::MAX.unsigned_abs(), 1))
                .unwrap_or(SystemTime::UNIX_EPOCH)
        );
    }

    #[test]
    fn files_and_directories_are_told_apart() {
        let place = tempfile::TempDir::new().unwrap();
        let directory = Stat::from(&place.path().metadata().unwrap());
        assert!(directory.is_directory() && !directory.is_regular());
        let file = Stat::from(&tempfile::tempfile().unwrap().metadata().unwrap());
        assert!(file.is_regular() && !file.is_directory());
        assert!(file.has_bytes_of(&file) && !file.has_bytes_of(&directory));
        let mut touched = file;
        touched.ctime.1 += 1;
        assert!(touched.has_bytes_of(&file) && !touched.is_untouched_since(&file));
    }

    /// The seconds of one of its times were left out once.
    #[test]
    fn a_state_is_told_by_each_number() {
        let was = Stat::from(&std::fs::metadata("/").unwrap());
        let changes: [fn(&mut Stat); 7] = [
            |stat| stat.id.0 += 1,
            |stat| stat.id.1 += 1,
            |stat| stat.size += 1,
            |stat| stat.mtime.0 += 1,
            |stat| stat.mtime.1 += 1,
            |stat| stat.ctime.0 += 1,
            |stat| stat.ctime.1 += 1,
        ];
        for (n, change) in changes.iter().enumerate() {
            let mut now = was;
            assert!(now.is_untouched_since(&was));
            change(&mut now);
            assert!(!now.is_untouched_since(&was), "change {n}");
        }
    }
}
