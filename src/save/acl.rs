//! What an access control list leaves of the permission bits.
//!
//! A file with a list has the list's mask in place of its group's permissions. The kernel checks the files of a mount by their bits
//! alone, so where other users reach the mount these allow none of them more than the list does. All whom the list does not name may have
//! less than it gives them then, as may those that it names. A mount that its own user alone reaches keeps the bits: that process has
//! opened the file itself, and gets no more by them.

use rustix::io::Errno;

use crate::source::Stat;

/// The extended attribute that holds the list.
const NAME: &str = "system.posix_acl_access";

/// The bits of group and others.
const SHARED: u32 = 0o077;

/// The longest list that is read, in bytes.
const LONGEST: usize = 4 << 10;

/// The attributes with the permissions that the list leaves. `read` reads an extended attribute, and gives its length.
pub(crate) fn limited(
    stat: Stat,
    read: impl FnOnce(&str, &mut [u8]) -> Result<usize, Errno>,
) -> Stat {
    if stat.mode & SHARED == 0 {
        return stat;
    }
    let mut list = [0; LONGEST];
    let left = match read(NAME, &mut list) {
        Ok(len) => left_by(list.get(..len).unwrap_or_default()),
        // there is no list, or the file system has none
        Err(Errno::NODATA | Errno::OPNOTSUPP) => SHARED,
        // one that is too long, or that can't be read, as on a system without /proc
        Err(_) => 0,
    };
    let left = Stat::ALL & (!SHARED | left);
    Stat { left, ..stat }
}

/// The bits of group and others that a list leaves, in the form of `linux/posix_acl_xattr.h`: a version, then for each entry its tag, its
/// permissions and an id, little-endian. Of a list that is not understood, none.
fn left_by(list: &[u8]) -> u32 {
    const VERSION: [u8; 4] = 2u32.to_le_bytes();
    let Some(entries) = list.strip_prefix(&VERSION) else {
        return 0;
    };
    let (mut group, mut mask, mut other) = (0, 0o7, 0);
    // what all users, and all groups, that the list names have
    let (mut users, mut groups) = (None, None);
    let least = |all: Option<u32>, perm| Some(all.unwrap_or(0o7) & perm);
    for entry in entries.chunks(8) {
        let &[tag, 0, perm, 0, ..] = entry else {
            return 0;
        };
        let perm = u32::from(perm);
        match tag {
            0x01 => {}
            0x02 => users = least(users, perm),
            0x04 => group = perm,
            0x08 => groups = least(groups, perm),
            0x10 => mask = perm,
            0x20 => other = perm,
            _ => return 0,
        }
    }
    let named = |all: Option<u32>| all.map_or(0o7, |perm| perm & mask);
    let group = group & mask & named(users);
    // a user or group that the list names is one of the others here, unless it is that of the file
    let other = other & named(users) & named(groups);
    (group << 3 | other) & SHARED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let bytes = |&(tag, perm): &(u16, u16)| {
            let entry = u64::from(tag) | u64::from(perm) << 16 | 1234 << 32;
            entry.to_le_bytes()
        };
        let entries = entries.iter().flat_map(bytes);
        2u32.to_le_bytes().into_iter().chain(entries).collect()
    }

    #[test]
    fn the_bits_allow_no_user_more_than_the_list() {
        const USER: (u16, u16) = (0x01, 6);
        for (entries, want) in [
            // as without a list
            (&[USER, (0x04, 4), (0x20, 4)][..], 0o44),
            // a user who is named, and a mask that is not the group's
            (&[USER, (0x02, 6), (0x04, 0), (0x10, 6), (0x20, 0)], 0o00),
            (&[USER, (0x02, 6), (0x04, 4), (0x10, 6), (0x20, 4)], 0o44),
            // a user, and a group, who are denied what others may do
            (&[USER, (0x02, 0), (0x04, 4), (0x10, 4), (0x20, 4)], 0o00),
            (&[USER, (0x04, 6), (0x08, 0), (0x10, 6), (0x20, 4)], 0o60),
            (&[USER, (0x02, 6), (0x04, 6), (0x10, 4), (0x20, 6)], 0o44),
        ] {
            assert_eq!(left_by(&list(entries)), want, "{entries:?}");
        }
        for wrong in [
            &[][..],
            &[1, 0, 0, 0],
            &list(&[USER])[..9],
            &list(&[(3, 7)]),
        ] {
            assert_eq!(left_by(wrong), 0);
        }
    }

    #[test]
    fn a_file_without_a_list_keeps_its_bits() {
        let mut stat = Stat::from(&std::fs::metadata("/").unwrap());
        for mode in [0o100_664, 0o100_600, 0o40_755] {
            stat.mode = mode;
            assert_eq!(limited(stat, |_, _| Err(Errno::NODATA)), stat);
        }
        let limits = |read: Result<usize, Errno>| limited(stat, |_, _| read).permissions(true);
        assert_eq!(limits(Err(Errno::RANGE)), 0o700, "a list too long");
        assert_eq!(limits(Err(Errno::NOENT)), 0o700, "no /proc to read it by");
        assert_eq!(limits(Err(Errno::OPNOTSUPP)), 0o755, "no lists there");
        assert_eq!(limits(Ok(4)), 0o700, "no list of this version");
        let alone = limited(stat, |_, _| Ok(4)).permissions(false);
        assert_eq!(alone, 0o755, "no other user reaches the mount");
    }
}
