//! Mounts of which one ends while another begins at the same place, commands that meet at one mount, and readers beside a writer.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{
    Mount, Mounted, PROGRAM, Place, can_mount, daemons_of, eventually, is_root, is_running,
    mounted_at, run,
};
use crate::sample::{Block, Sample, array};

/// Bytes of an array that is read while it is replaced.
const LEN: usize = 100_000;

/// What has been logged so far.
fn logged(log: &Path) -> String {
    fs::read_to_string(log).unwrap()
}

/// The daemon took away whatever was mounted where its own mount had been.
#[test]
fn a_signal_unmounts_only_the_mount_of_the_process_that_gets_it() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let log = place.dir.path().join("log");
    assert_eq!(
        place
            .mount(&["-r", "--log-file", log.to_str().unwrap()])
            .code,
        0
    );
    let daemon = daemons_of(&place.mnt)[0];
    let held = fs::File::open(place.mnt.join("tree.yaml")).unwrap();
    let end = |times: usize| {
        kill_process(Pid::from_raw(daemon).unwrap(), Signal::TERM).unwrap();
        eventually("it has tried", || {
            logged(&log).matches("signal 15").count() == times
        });
    };
    let over = Mounted::new(&place.mnt, &["-t", "tmpfs", "over"]);
    let both = mounted_at(&place.mnt);
    end(1);
    eventually("it has told or done it", || {
        logged(&log).contains("is mounted over it") || mounted_at(&place.mnt) != both
    });
    assert_eq!(mounted_at(&place.mnt), both);
    drop(over);
    assert_eq!(
        run(Command::new("umount").arg("-l").arg(&place.mnt)).code,
        0
    );
    assert_eq!(place.mount(&["-r"]).code, 0);
    end(2);
    eventually("it has told or done it", || {
        logged(&log).contains("not mounted any more") || mounted_at(&place.mnt).is_none()
    });
    assert!(mounted_at(&place.mnt).is_some());
    drop(held);
    eventually("ended", || !is_running(daemon));
    place.unmount();
}

/// Each of them was busy because another one asked the daemon at that moment, and none unmounted; or it said `Invalid argument`.
#[test]
fn commands_that_unmount_at_once_do_not_keep_each_other_from_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for _ in 0..10 {
        assert_eq!(place.mount(&[]).code, 0);
        let start = |_| {
            let mut command = Command::new(PROGRAM);
            let command = command.arg("-u").arg(&place.mnt).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let commands: Vec<_> = (0..3).map(start).collect();
        let mut done = 0;
        for command in commands {
            let ended = command.wait_with_output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            done += usize::from(ended.status.success());
            // one that came when all was over
            let late = said.contains("not a mounted ASDF file");
            assert!(ended.status.success() || late, "{said}");
        }
        assert!(done > 0 && mounted_at(&place.mnt).is_none());
        assert!(daemons_of(&place.mnt).is_empty());
    }
}

/// A quarter of the mounts failed, with `fusermount3 not found`: the daemon of the mount before removed the directory that it had made.
#[test]
fn a_mountpoint_that_the_daemon_before_removes_is_made_again() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    fs::remove_dir(&place.mnt).unwrap();
    for _ in 0..100 {
        let said = place.mount(&[]);
        assert_eq!((said.code, &*said.stderr), (0, ""));
        assert!(place.mnt.join("tree.yaml").exists());
        let said = run(Command::new("umount").arg(&place.mnt));
        assert_eq!((said.code, &*said.stderr), (0, ""));
    }
    eventually("ended", || daemons_of(&place.mnt).is_empty());
}

/// A service manager found no file, because the daemon before took that of the next one for its own.
#[test]
fn a_pid_file_that_names_another_daemon_by_now_stays() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let pid_file = place.dir.path().join("pid");
    let options = ["-r", "--pid-file", pid_file.to_str().unwrap()];
    let named = || fs::read_to_string(&pid_file).unwrap().trim().parse::<i32>();
    assert_eq!(place.mount(&options).code, 0);
    let first = named().unwrap();
    let held = fs::File::open(place.mnt.join("tree.yaml")).unwrap();
    assert_eq!(
        run(Command::new("umount").arg("-l").arg(&place.mnt)).code,
        0
    );
    assert_eq!(place.mount(&options).code, 0);
    let second = named().unwrap();
    assert!(first != second);
    drop(held);
    eventually("ended", || !is_running(first));
    assert_eq!(named(), Ok(second));
    place.unmount();
    assert!(!pid_file.exists());
}

/// It said `detaching: Broken pipe`.
#[test]
fn a_daemon_whose_command_was_ended_says_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut daemon = Command::new(PROGRAM);
    let daemon = daemon.env("ASDF_MOUNT_DAEMON", "1");
    let daemon = daemon.args([&place.file, &place.mnt]).stdout(writer);
    let ended = daemon.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        (ended.status.code(), ended.status.signal()),
        (Some(1), None)
    );
    assert_eq!(
        said,
        "asdf-mount: nothing is mounted: the command that was to be told of it has ended\n"
    );
    assert!(mounted_at(&place.mnt).is_none());
}

/// Both were there, and one hid the other.
#[test]
fn of_two_that_mount_at_one_place_at_once_one_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let other = place.dir.path().join("other.asdf");
    fs::copy(&place.file, &other).unwrap();
    fs::remove_dir(&place.mnt).unwrap();
    for _ in 0..30 {
        let start = |file| {
            let mut command = Command::new(PROGRAM);
            let command = command.arg(file).arg(&place.mnt).stdin(Stdio::null());
            let said = fs::File::create(place.dir.path().join("said")).unwrap();
            command.stderr(said).spawn().unwrap()
        };
        let commands = [&place.file, &other].map(start);
        let mut codes = commands.map(|mut command| command.wait().unwrap().code());
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(10)]);
        place.unmount();
    }
}

/// nohup(1) did not help: the mount was gone when its terminal was.
#[test]
fn a_mount_in_the_foreground_leaves_ignored_signals_ignored() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "trap '' HUP; exec \"$0\" -f \"$1\" \"$2\"", PROGRAM]);
    let mut daemon = shell.args([&place.file, &place.mnt]).spawn().unwrap();
    eventually("mounted", || mounted_at(&place.mnt).is_some());
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    place.unmount();
    assert!(daemon.wait().unwrap().success());
    assert_eq!(ignored & 1, 1, "{ignored:x}");
}

/// A lock of flock(1) was held, and a pipe did not end, until the unmount.
#[test]
fn a_daemon_keeps_nothing_open_that_its_shell_had_open() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let held = place.dir.path().join("held");
    let script = "exec 9> held; exec \"$0\" --files-from /dev/fd/8 mnt 8< list";
    fs::write(
        place.dir.path().join("list"),
        place.file.as_os_str().as_encoded_bytes(),
    )
    .unwrap();
    let mut shell = Command::new("sh");
    let shell = shell
        .args(["-c", script, PROGRAM])
        .current_dir(place.dir.path());
    let said = run(shell);
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert!(place.mnt.join("sample.asdf/tree.yaml").exists());
    let held = fs::canonicalize(held).unwrap();
    let mut pid = [0; 16];
    let len = rustix::fs::getxattr(&place.mnt, "user.asdf.pid", &mut pid).unwrap();
    let files = format!("/proc/{}/fd", str::from_utf8(&pid[..len]).unwrap());
    eventually("closed", || {
        let mut open = fs::read_dir(&files).unwrap();
        !open.any(|entry| fs::read_link(entry.unwrap().path()).is_ok_and(|to| to == held))
    });
    place.unmount();
}

/// Nothing was said, as when the system had run out of memory.
#[test]
fn a_daemon_that_is_killed_before_it_serves_is_told_of() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    let command = command.args(["--files-from", "-"]).arg(&place.mnt);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut command = command.spawn().unwrap();
    // it waits for its list
    let list = command.stdin.take().unwrap();
    let daemon = || {
        let mut all = daemons_of(&place.mnt).into_iter();
        all.find(|&process| process.cast_unsigned() != command.id())
    };
    eventually("started", || daemon().is_some());
    kill_process(Pid::from_raw(daemon().unwrap()).unwrap(), Signal::KILL).unwrap();
    let ended = command.wait_with_output().unwrap();
    drop(list);
    let said = String::from_utf8(ended.stderr).unwrap();
    let want = "asdf-mount: the daemon ended before it had mounted: signal: 9 (SIGKILL)\n";
    assert_eq!((ended.status.code(), &*said), (Some(1), want));
}

/// A reader got an empty file, or as many bytes as had been copied by then.
#[test]
fn a_reader_sees_one_whole_file_while_others_are_renamed_over_it() {
    if !can_mount() {
        return;
    }
    let tree = array("x", 0, "uint8", "[100000]");
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&tree)
        .block(Block::raw(&vec![b'a'; LEN]))
        .write(dir.path());
    let mount = Mount::new(&file, &[]);
    for name in ["arrays/x.bin", "blocks/0.bin"] {
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for byte in b"bcdefghijkbcdefghijk" {
                    let new = mount.path(name).with_file_name("new.tmp");
                    let bytes = vec![*byte; LEN];
                    fs::write(&new, &bytes).unwrap();
                    fs::rename(&new, mount.path(name)).unwrap();
                    assert_eq!(mount.read(name).unwrap(), bytes);
                }
            });
            while !writer.is_finished() {
                // a file that was replaced while it was open may be stale
                if let Ok(bytes) = mount.read(name) {
                    assert_eq!(bytes, vec![bytes[0]; LEN], "{name}");
                }
            }
        });
    }
}
