//! Other processes, by what they have open: proc_pid_fd(5), proc_pid_fdinfo(5), proc_pid_comm(5).

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
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
    let me = std::process::id().to_string();
    let processes = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && name != *me
    });
    let users = processes.filter(|entry| is_one(&entry.path()));
    let users = users.map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let name = printable(name.strip_suffix('\n').unwrap_or(&name));
        format!("{name} ({})", entry.file_name().display())
    });
    in_words(users.collect())
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
        let files = fs::read_dir(process.join("fd")).into_iter().flatten();
        files.flatten().any(|entry| {
            let same = fs::read_link(entry.path()).is_ok_and(|to| to == path);
            same && is_for_writing(&process.join("fdinfo").join(entry.file_name()))
        })
    })
}

/// Whether a file is open for writing, by what `/proc` says of its descriptor.
fn is_for_writing(descriptor: &Path) -> bool {
    let text = fs::read_to_string(descriptor).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & ACCESS != 0)
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
}
