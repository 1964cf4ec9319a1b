//! Which processes keep a mount busy: proc_pid_cwd(5), proc_pid_fd(5), proc_pid_maps(5).

use std::fs;
use std::path::Path;

/// How many are named.
const MOST_NAMED: usize = 4;

/// The processes that have something of the mount at `mountpoint` open or stand in it, as far as we may look:
/// `bash (123), vim (456)`.
pub(super) fn name_users(mountpoint: &Path) -> Option<String> {
    let mut users: Vec<String> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
        })
        .filter(|entry| uses(&entry.path(), mountpoint))
        .map(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim_end(), entry.file_name().display())
        })
        .collect();
    let others = users.len().saturating_sub(MOST_NAMED);
    users.truncate(MOST_NAMED);
    let mut named = users.join(", ");
    if others > 0 {
        named = format!("{named} and {others} others");
    }
    (!named.is_empty()).then_some(named)
}

fn uses(process: &Path, mountpoint: &Path) -> bool {
    let inside = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    let stands = ["cwd", "root", "exe"]
        .iter()
        .any(|link| inside(&process.join(link)));
    let opened = || {
        let mut files = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        files.any(|entry| inside(&entry.path()))
    };
    let maps = || {
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let mut paths = maps
            .lines()
            .filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
        paths.any(|path| Path::new(path).starts_with(mountpoint))
    };
    stands || opened() || maps()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_its_own_directory() {
        let here = std::env::current_dir().unwrap();
        let me = Path::new("/proc").join(std::process::id().to_string());
        assert!(uses(&me, &here));
        assert!(!uses(&me, Path::new("/nosuch")));
    }
}
