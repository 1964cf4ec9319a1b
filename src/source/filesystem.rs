//! The file system of a file: how finely its clock separates two changes, and whether other machines change its files.

use std::fs::File;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::Stat;

/// The magic number of a file system, as in statfs(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem(u64);

/// File systems to which others than this kernel may write, or whose attributes it remembers for a while, by their magic numbers.
const SHARED: [(u64, &str); 15] = [
    (0x6573_5546, "FUSE"),
    (0x6969, "NFS"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB"),
    (0x517B, "SMB"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    (0x0BD0_0BD0, "Lustre"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x1983_0326, "BeeGFS"),
    (0x4750_4653, "GPFS"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
];

/// ext4, XFS, Btrfs, tmpfs: since Linux 6.13 no change gets a time that a program has already seen.
const MULTIGRAIN: [u64; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994];
const MULTIGRAIN_SINCE: (u32, u32) = (6, 13);

/// More than a tick of the kernel's clock, from which file systems take their times. The slowest tick takes 10 ms.
const TICKS: Duration = Duration::from_millis(20);
/// The same for a clock that counts seconds (ext3, HFS+), or two at a time (FAT).
const SECONDS: Duration = Duration::from_secs(2);
/// How far the clock of another machine may be behind ours.
const SKEW: Duration = Duration::from_hours(1);

impl FileSystem {
    /// The file system of an open file; `None` if the system does not say.
    #[must_use]
    pub fn of(file: &File) -> Option<Self> {
        let found = rustix::fs::fstatfs(file).ok()?;
        // the type of the number differs between machines, some of which extend its sign
        let magic = i128::from(found.f_type) & i128::from(u32::MAX);
        u64::try_from(magic).ok().map(Self)
    }

    /// Its name, if other machines or programs may change its files without this kernel. The kernel may then report a change late,
    /// and locks may hold on one side only.
    #[must_use]
    pub fn shared(self) -> Option<&'static str> {
        let known = SHARED.iter().find(|(magic, _)| *magic == self.0);
        known.map(|(_, name)| *name)
    }

    /// The longest time after a look at a file in which a change may leave its attributes as they are. A time in whole seconds is
    /// taken for one of a clock that only counts seconds.
    fn grain(self, stat: &Stat, has_multigrain: bool) -> Duration {
        // by a finer clock this is rare, and then only costs one more look
        if stat.ctime.1 == 0 {
            return SECONDS;
        }
        if has_multigrain && MULTIGRAIN.contains(&self.0) {
            return Duration::ZERO;
        }
        TICKS
    }
}

/// How long from now a file has to be compared by content once more. The file has just been looked at, had these attributes, and
/// was then read. `None` if any change since the look has surely changed the attributes.
fn settles_in(stat: &Stat, file: Option<&File>) -> Option<Duration> {
    // a time in the future counts as this moment
    let age = stat.changed().elapsed().unwrap_or_default();
    // older than any clock can be behind
    if age > SKEW.saturating_add(SECONDS) {
        return None;
    }
    let grain = file.and_then(FileSystem::of).map_or(SECONDS, |system| {
        let grain = system.grain(stat, has_multigrain());
        // by the clock of another machine, the age proves nothing
        let by_our_clock = system.shared().is_none();
        if by_our_clock && age > grain {
            return Duration::ZERO;
        }
        grain
    });
    (!grain.is_zero()).then_some(grain)
}

/// A look at a file, whose bytes were then read.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The attributes that the file had.
    pub stat: Stat,
    /// When the file has to be compared by content once more, as its times may hide a change until then.
    pub settles: Option<Instant>,
}

impl Look {
    /// A look just now at an open file with these attributes; of a file that is not open, nothing is known of its clock.
    #[must_use]
    pub fn now(stat: Stat, file: Option<&File>) -> Self {
        Self {
            stat,
            settles: settles_in(&stat, file).and_then(|wait| Instant::now().checked_add(wait)),
        }
    }

    /// The same behind another look, which may have come late enough for this one to need no other.
    #[must_use]
    pub fn after(self, before: Option<&Self>) -> Self {
        let settled =
            |before: &&Self| self.stat.is_untouched_since(&before.stat) && before.is_over();
        match before.filter(settled) {
            Some(_) => Self {
                settles: None,
                ..self
            },
            None => self,
        }
    }

    /// Whether the file, which has these attributes now, has the bytes that were read, as far as its times tell.
    #[must_use]
    pub fn holds(&self, now: &Stat) -> bool {
        now.is_untouched_since(&self.stat) && (self.settles.is_none() || !self.is_over())
    }

    /// Whether a change from now on would give the file other times.
    fn is_over(&self) -> bool {
        self.settles.is_none_or(|at| at <= Instant::now())
    }
}

/// Whether this kernel gives different times to two changes within one tick.
fn has_multigrain() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let name = rustix::system::uname();
        let release = name.release().to_str().ok();
        release
            .and_then(version)
            .is_some_and(|found| found >= MULTIGRAIN_SINCE)
    })
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn stat(nanos: i64) -> Stat {
        let file = tempfile::tempfile().unwrap();
        let mut stat = Stat::from(&file.metadata().unwrap());
        stat.ctime.1 = nanos;
        stat
    }

    /// A change in the second in which FILE was read was never shown.
    #[test]
    fn the_grain_of_a_clock_is_told_by_its_times_and_the_kernel() {
        for magic in MULTIGRAIN {
            let system = FileSystem(magic);
            assert_eq!(system.grain(&stat(0), true), SECONDS);
            assert_eq!(system.grain(&stat(1), false), TICKS);
            assert!(system.grain(&stat(1), true).is_zero());
        }
        let nfs = FileSystem(0x6969);
        assert_eq!(nfs.grain(&stat(1), true), TICKS);
        assert_eq!(nfs.grain(&stat(0), true), SECONDS);
        assert_eq!(nfs.shared(), Some("NFS"));
    }

    #[test]
    fn what_was_changed_long_ago_is_settled() {
        let file = tempfile::tempfile().unwrap();
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let at = |seconds: u64, nanos| {
            let seconds = i64::try_from(now.as_secs() - seconds).unwrap();
            Stat {
                ctime: (seconds, nanos),
                ..stat(0)
            }
        };
        assert_eq!(settles_in(&at(1, 0), Some(&file)), Some(SECONDS));
        assert_eq!(settles_in(&at(4, 0), Some(&file)), None);
        assert_eq!(settles_in(&at(1, 1), Some(&file)), None);
        // a clock that was set back
        let ahead = Stat {
            ctime: (i64::try_from(now.as_secs()).unwrap() + 60, 0),
            ..stat(0)
        };
        assert_eq!(settles_in(&ahead, Some(&file)), Some(SECONDS));
    }

    #[test]
    fn a_look_within_a_tick_holds_until_that_is_over() {
        let young = stat(0);
        let look = Look::now(young, None);
        assert!(look.holds(&young));
        assert!(!look.holds(&Stat { size: 1, ..young }));
        let over = Look {
            settles: Some(Instant::now()),
            ..look
        };
        assert!(!over.holds(&young));
        // nothing can hide from a look behind that
        assert!(look.after(Some(&over)).settles.is_none());
        assert!(look.after(Some(&look)).settles.is_some());
        let other = Stat { size: 1, ..young };
        assert!(Look::now(other, None).after(Some(&over)).settles.is_some());
        let old = Stat {
            ctime: (0, 1),
            ..young
        };
        assert!(Look::now(old, None).settles.is_none());
    }

    #[test]
    fn releases_are_read() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert_eq!(version("5.4.0-generic"), Some((5, 4)));
        assert_eq!(version("7.1"), Some((7, 1)));
        assert_eq!(version("none"), None);
    }
}
