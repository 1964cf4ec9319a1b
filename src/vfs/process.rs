//! Processes of threads, as proc_pid_status(5) tells: the kernel names threads in its requests.

use std::fs;
use std::io::ErrorKind;

/// SIGKILL as a set of signals; the lowest bit is for signal 1.
const KILL: u64 = 1 << 8;
/// Those that end a process with a core dump: SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ and SIGSYS.
const CORE: u64 = 0x4180_04fc;

/// The process of a thread; `None` if that is unknown, as it is in another PID namespace or without `/proc`.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    if thread == 0 {
        return None;
    }
    group(&status(thread)?)
}

/// The PID namespace of this process, as pid_namespaces(7) tells it; `None` without `/proc`. In another one, the number of a process is
/// that of a stranger.
#[must_use]
pub fn pid_namespace() -> Option<String> {
    let found = fs::read_link("/proc/self/ns/pid").ok()?;
    found.into_os_string().into_string().ok()
}

/// Whether a thread has ended, or has a signal by which it must end. If a signal ends a process without a core dump, the kernel sends SIGKILL
/// to each of its threads. Nothing is known of thread 0, which is in no namespace of ours.
#[must_use]
pub fn is_ending(thread: u32) -> bool {
    let of = |name: &str| fs::read_to_string(format!("/proc/{name}/status"));
    match of(&thread.to_string()) {
        _ if thread == 0 => false,
        Ok(status) => is_killed(&status),
        Err(error) => error.kind() == ErrorKind::NotFound && of("self").is_ok(),
    }
}

/// The text of proc_pid_status(5) of a thread.
fn status(thread: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

/// Whether this process ignores a signal.
#[must_use]
pub fn ignores(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bit = u32::try_from(signal)
        .ok()
        .and_then(|signal| signal.checked_sub(1));
    let bit = bit.and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
    signals(&status, "SigIgn:") & bit != 0
}

/// A set of signals of a status. An unknown one has none.
fn signals(status: &str, name: &str) -> u64 {
    let digits = field(status, name);
    digits.map_or(0, |digits| u64::from_str_radix(digits, 16).unwrap_or(0))
}

/// Whether the thread of a status has ended, SIGKILL is pending for it, or for it or its process a signal that ends with a core dump and
/// that is neither blocked, ignored nor caught.
fn is_killed(status: &str) -> bool {
    if field(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
        return true;
    }
    let set = |name| signals(status, name);
    let heeded = set("SigBlk:") | set("SigIgn:") | set("SigCgt:");
    let core = (set("SigPnd:") | set("ShdPnd:")) & CORE & !heeded;
    set("SigPnd:") & KILL | core != 0
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    Some(lines.find_map(|line| line.strip_prefix(name))?.trim())
}

/// Whether a thread is known to be of another process than `process`.
pub(super) fn is_of_another(thread: u32, process: u32) -> bool {
    thread != process && process_of(thread).is_some_and(|found| found != process)
}

/// The process of a status, which calls it the thread group; 0 is one that this PID namespace does not have.
fn group(status: &str) -> Option<u32> {
    let process = field(status, "Tgid:")?;
    process.parse().ok().filter(|&process| process != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_of_its_process() {
        let thread = || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let name = link.file_name().unwrap().to_str().unwrap();
            name.parse().unwrap()
        };
        let other = std::thread::spawn(move || (thread(), process_of(thread())));
        let (other, found) = other.join().unwrap();
        assert_ne!(other, std::process::id());
        assert_eq!(found, Some(std::process::id()));
        assert_eq!(process_of(std::process::id()), Some(std::process::id()));
        assert_eq!(process_of(0), None);
    }

    #[test]
    fn a_status_without_a_process_tells_nothing() {
        assert_eq!(
            group("Name:\tsh\nTgid:\t17\nNgid:\t0\nPid:\t18\n"),
            Some(17)
        );
        for status in ["", "Pid:\t18\n", "Tgid:\t0\n", "Tgid:\tx\n"] {
            assert_eq!(group(status), None, "{status:?}");
        }
    }

    #[test]
    fn a_thread_is_killed_that_has_the_signal() {
        assert!(is_killed(
            "SigQ:\t0/9\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"
        ));
        assert!(is_killed("SigPnd:\t0000000000004102\n"));
        assert!(is_killed("State:\tZ (zombie)\nSigPnd:\t0\n"));
        assert!(is_ending(u32::MAX), "there is no such thread");
        let quit = "SigPnd:\t0\nShdPnd:\t0000000000000004\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t";
        assert!(is_killed(&format!("{quit}0000000000004002\n")));
        assert!(!is_killed(&format!("{quit}0000000000004006\n")));
        for status in [
            "",
            "SigPnd:\t0000000000004002\nShdPnd:\t0000000000000100\n",
            "SigPnd:\tx\n",
        ] {
            assert!(!is_killed(status), "{status:?}");
        }
        assert!(!is_ending(std::process::id()));
        assert!(!is_ending(0));
    }
}
