//! Processes of threads, as proc_pid_status(5) tells: the kernel names threads in its requests.

use std::fs;

/// The process of a thread; `None` if that is unknown, as it is in another PID namespace or without `/proc`.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    if thread == 0 {
        return None;
    }
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    group(&status)
}

/// The process of a thread, or whatever tells it from others.
pub(super) fn process(thread: u32) -> u32 {
    process_of(thread).unwrap_or(thread)
}

/// Whether a thread is known to be of another process than `process`.
pub(super) fn is_of_another(thread: u32, process: u32) -> bool {
    thread != process && process_of(thread).is_some_and(|found| found != process)
}

fn group(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().filter(|&process| process != 0)
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
}
