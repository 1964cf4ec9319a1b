//! Owner and group that are shown of FILE.

use std::fs;
use std::sync::OnceLock;

use super::VfsOptions;
use crate::source::Stat;

/// Owner and group to show of FILE.
///
/// In a user namespace that has no number for one of them, stat(2) gives a number that stands for all such. The kernel lets no
/// process write to a file of the mount that has this number, also where FILE's mode allows it. So the numbers of the daemon are shown
/// in their place, unless other users reach the mount: to these they would be those of another user.
pub(super) fn shown(file: &Stat, options: &VfsOptions) -> (u32, u32) {
    static NAMELESS: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    let [user, group] = *NAMELESS.get_or_init(|| ["uid", "gid"].map(nameless));
    let stands_in = |nameless, shown| nameless == Some(shown) && !options.allow_other;
    let own_user = stands_in(user, file.uid).then(|| rustix::process::geteuid().as_raw());
    let own_group = stands_in(group, file.gid).then(|| rustix::process::getegid().as_raw());
    (
        options.uid.or(own_user).unwrap_or(file.uid),
        options.gid.or(own_group).unwrap_or(file.gid),
    )
}

/// The number that stands for those that this user namespace lacks, unless the namespace has that number itself. `kind`: `uid` or `gid`.
fn nameless(kind: &str) -> Option<u32> {
    let number = fs::read_to_string(format!("/proc/sys/kernel/overflow{kind}")).ok()?;
    let number = number.trim().parse().ok()?;
    let map = fs::read_to_string(format!("/proc/self/{kind}_map")).ok()?;
    (!has(&map, number)).then_some(number)
}

/// Whether a map of user_namespaces(7) has a number: whether one of its ranges, each with start and length, does.
fn has(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(start)), Some(Ok(len))) = (fields.next(), fields.nth(1)) else {
            return false;
        };
        number.checked_sub(start).is_some_and(|at| at < len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_the_numbers_of_its_map() {
        assert!(has("         0          0 4294967295\n", 65534));
        let some = "0 1000 1\n1 100000 65533\n";
        assert!(has(some, 0) && has(some, 65533));
        assert!(!has(some, 65534));
        for map in ["", "x", "0 0", "0 0 x"] {
            assert!(!has(map, 0), "{map}");
        }
    }
}
