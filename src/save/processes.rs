//! Processes: what they have open, proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_comm(5); and whose a thread is and whether it ends,
//! proc_pid_status(5): the kernel names threads in its requests.

use std::fs::{self, DirEntry, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::printable;

/// How many are named.
const MOST_NAMED: usize = 4;
/// How long processes are looked at. Reading what a process has open blocks while that process executes another program and closes
/// files for that. Such a close may wait for the thread that looks.
const LOOKING: Duration = Duration::from_secs(1);
/// Of the flags of an open file, those that say whether it can be written.
const ACCESS: u32 = 0o3;
/// The states of a process that has ended.
const ENDED: [char; 2] = ['Z', 'X'];
/// The states of a process that a signal has stopped, or that is traced.
const STOPPED: [char; 2] = ['T', 't'];
/// SIGKILL as a set of signals; the lowest bit is for signal 1.
const KILL: u64 = 1 << 8;
/// Those that end a process with a core dump: SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ and SIGSYS.
const CORE: u64 = 0x4180_04fc;

/// The other processes for whose directories in `/proc` `is_one` holds, as far as this user may look: `bash (123), vim (456)`. `None` if
/// there is none, or if that is not known after a second.
#[must_use]
pub fn named(is_one: impl Fn(&Path) -> bool + Send + 'static) -> Option<String> {
    /// Locked while a thread looks. One that is blocked for long is not joined by others.
    static LOOKS: Mutex<()> = Mutex::new(());
    let (found, receiver) = mpsc::sync_channel(1);
    let look = move || {
        let alone = LOOKS.try_lock();
        drop(found.send(alone.ok().and_then(|_alone| look(is_one))));
    };
    let thread = thread::Builder::new().name("processes".to_owned());
    thread.spawn(look).ok()?;
    receiver.recv_timeout(LOOKING).ok()?
}

/// What [`named`] gives, however long it takes: each look at a process may block.
fn look(is_one: impl Fn(&Path) -> bool) -> Option<String> {
    let me = std::process::id();
    let users = all().filter(|(number, process)| *number != me && is_one(process));
    let users = users.map(|(number, process)| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let name = printable(name.strip_suffix('\n').unwrap_or(&name));
        format!("{name} ({number})")
    });
    in_words(users.collect())
}

/// All processes, with their directories in `/proc`.
pub(crate) fn all() -> impl Iterator<Item = (u32, PathBuf)> {
    let process = |entry: DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    };
    entries(Path::new("/proc")).filter_map(process)
}

/// What is in a directory of `/proc`, as far as this user may look.
pub(crate) fn entries(directory: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

fn in_words(mut users: Vec<String>) -> Option<String> {
    let others = users.len().saturating_sub(MOST_NAMED);
    users.truncate(MOST_NAMED);
    let named = users.join(", ");
    match others {
        0 => (!named.is_empty()).then_some(named),
        1 => Some(format!("{named} and 1 other")),
        _ => Some(format!("{named} and {others} others")),
    }
}

/// The other processes that have the file open for writing. Open files are told apart by their paths: to ask for the inode of one can
/// block in a file system that does not answer, or that waits for this thread.
pub(super) fn writers(file: &File) -> Option<String> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    named(move |process| {
        entries(&process.join("fd")).any(|entry| {
            let same = fs::read_link(entry.path()).is_ok_and(|to| to == path);
            same && is_for_writing(&process.join("fdinfo").join(entry.file_name()))
        })
    })
}

/// Whether a file is open for writing, by what `/proc` says of its descriptor.
fn is_for_writing(descriptor: &Path) -> bool {
    let text = fs::read_to_string(descriptor).unwrap_or_default();
    let flags = field(&text, "flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
}

/// The process of a thread; `None` if that is unknown, as it is in another PID namespace or without `/proc`.
pub(crate) fn process_of(thread: u32) -> Option<u32> {
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

/// Whether the process has ended; some of its threads may not be able to.
pub(crate) fn has_ended(process: u32) -> bool {
    status(process).is_some_and(|status| is_in_state(&status, ENDED))
}

/// Whether a signal has stopped the process.
pub(crate) fn is_stopped(process: u32) -> bool {
    status(process).is_some_and(|status| is_in_state(&status, STOPPED))
}

fn is_in_state(status: &str, letters: [char; 2]) -> bool {
    field(status, "State:").is_some_and(|state| state.starts_with(letters))
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
    if is_in_state(status, ENDED) {
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
pub(crate) fn is_of_another(thread: u32, process: u32) -> bool {
    thread != process && process_of(thread).is_some_and(|found| found != process)
}

/// The process of a status, which calls it the thread group; 0 is one that this PID namespace does not have.
fn group(status: &str) -> Option<u32> {
    let process = field(status, "Tgid:")?;
    process.parse().ok().filter(|&process| process != 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn one_process_that_is_not_named_is_one_other() {
        let said = |count: usize| in_words(vec!["a (1)".to_owned(); count]);
        assert_eq!(said(0), None);
        assert_eq!(said(1).unwrap(), "a (1)");
        let four = "a (1), a (1), a (1), a (1)";
        assert_eq!(said(4).unwrap(), four);
        assert_eq!(said(5).unwrap(), format!("{four} and 1 other"));
        assert_eq!(said(6).unwrap(), format!("{four} and 2 others"));
    }

    #[test]
    fn a_process_that_writes_a_file_is_named_and_one_that_reads_it_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hold = |open: File| {
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(open).spawn().unwrap()
        };
        let mut reader = hold(File::open(file.path()).unwrap());
        let mut writer = hold(
            fs::OpenOptions::new()
                .append(true)
                .open(file.path())
                .unwrap(),
        );
        let found = writers(file.as_file()).unwrap();
        let names = |process: &Child| found.contains(&format!("({})", process.id()));
        assert!(names(&writer) && !names(&reader), "{found}");
        for process in [&mut reader, &mut writer] {
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }

    #[test]
    fn every_thread_is_of_its_process() {
        let thread = || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let name = link.file_name().unwrap().to_str().unwrap();
            name.parse().unwrap()
        };
        let other = thread::spawn(move || (thread(), process_of(thread())));
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
        assert!(!is_ending(std::process::id()) && !has_ended(std::process::id()));
        assert!(!is_stopped(std::process::id()));
        assert!(is_in_state("Name:\tT\nState:\tt (tracing stop)\n", STOPPED));
        assert!(!is_ending(0));
    }
}
