//! The command as the manual has it: options, exit codes, messages, and how it comes and goes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{assert_not_forged, hostile};
use crate::common::{
    Mount, Outcome, PROGRAM, Place, asdf_mount, assert_refused, can_mount, daemons_of, eventually,
    is_root, is_running, mount_options, mounted_at, run,
};
use crate::sample::{Block, Index, Sample, array, noise};

/// The user without privileges.
const NOBODY: u32 = 65534;

#[test]
fn a_missing_file_exits_with_11() {
    let place = Place::new();
    fs::remove_file(&place.file).unwrap();
    assert_refused(
        &place.mount(&[]),
        11,
        "sample.asdf: no such file; check its path",
    );
}

/// The command printed the note, and the daemon printed it once more.
#[test]
fn an_option_of_before_is_noted_once() {
    if !can_mount() {
        return;
    }
    for options in [
        &["-o", "index-cache=/x"][..],
        &["-o", "index-cache=/x", "--check"],
    ] {
        let place = Place::new();
        let said = place.mount(options);
        assert_eq!(
            said.stderr.matches("index-cache").count(),
            1,
            "{options:?}: {said:?}"
        );
        run(Command::new(PROGRAM).arg("-u").arg(&place.mnt));
    }
}

#[test]
fn a_device_as_file_exits_with_11() {
    let mut place = Place::new();
    place.file = "/dev/null".into();
    assert_refused(
        &place.mount(&[]),
        11,
        "not a file; name the ASDF file itself",
    );
}

#[test]
fn a_mountpoint_whose_parent_is_missing_exits_with_10() {
    let mut place = Place::new();
    place.mnt = place.mnt.join("a/b");
    let advice = format!(
        "mkdir -p {} makes it",
        place.mnt.parent().unwrap().display()
    );
    assert_refused(&place.mount(&[]), 10, &advice);
}

#[test]
fn a_file_as_mountpoint_exits_with_10() {
    let place = Place::new();
    fs::remove_dir(&place.mnt).unwrap();
    fs::write(&place.mnt, "").unwrap();
    assert_refused(
        &place.mount(&[]),
        10,
        "mnt: not a directory; name one to mount on",
    );
}

#[test]
fn a_file_below_its_mountpoint_exits_with_12() {
    let place = Place::new();
    let below = place.mnt.join("sample.asdf");
    fs::rename(&place.file, &below).unwrap();
    let said = run(Command::new(PROGRAM).arg(&below).arg(&place.mnt));
    assert_refused(&said, 12, "sample.asdf");
}

#[test]
fn a_file_that_is_not_asdf_exits_with_20() {
    let place = Place::of(&Sample::of_text(b"SIMPLE  =                    T"));
    assert_refused(&place.mount(&[]), 20, "sample.asdf");
}

#[test]
fn a_greater_major_version_exits_with_21_unless_forced() {
    if !can_mount() {
        return;
    }
    let text = Sample::new("a: 1\n").tree().to_vec();
    let newer = String::from_utf8(text)
        .unwrap()
        .replace("#ASDF 1.0.0", "#ASDF 2.0.0");
    let place = Place::of(&Sample::of_text(newer.as_bytes()));
    assert_refused(&place.mount(&[]), 21, "2.0.0");
    let mount = Mount::new(&place.file, &["-o", "force"]);
    assert_eq!(mount.read("tree.yaml").unwrap(), newer.as_bytes());
    let said = &mount.said.stderr;
    assert!(said.contains("its version is not known"), "{said}");
    assert!(
        !said.contains("-o force"),
        "it advises what was done: {said}"
    );
}

#[test]
fn a_file_whose_blocks_cannot_be_counted_exits_with_23_unless_forced() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("flux", 0, "uint8", "[5]"))
        .block(Block::raw(b"hello"))
        .block(Block::raw(&noise(5000)).header_size(20))
        .block(Block::raw(b"lost"))
        .index(Index::Absent);
    let place = Place::of(&sample);
    assert_refused(&place.mount(&[]), 23, "force");
    let mount = Mount::new(&place.file, &["-o", "force"]);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"hello");
    assert!(mount_options(&mount.dir).starts_with("ro,"));
    assert!(
        mount.said.stderr.contains("read-only"),
        "{}",
        mount.said.stderr
    );
}

#[test]
fn a_file_that_was_cut_short_mounts_and_says_which_block_it_costs() {
    if !can_mount() {
        return;
    }
    let place = Place::of(
        &Sample::new("a: 1\n")
            .block(Block::raw(b"hello"))
            .block(Block::raw(&noise(5000))),
    );
    let whole = fs::read(&place.file).unwrap();
    fs::write(&place.file, &whole[..whole.len() - 3000]).unwrap();
    let mount = Mount::new(&place.file, &[]);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"hello");
    assert_eq!(
        mount.read("blocks/1.bin").unwrap_err().raw_os_error(),
        Some(5)
    );
    assert!(
        mount.said.stderr.contains("block 1"),
        "{}",
        mount.said.stderr
    );
}

/// A place that belongs to the user without privileges, with a program in it that this user can run.
fn place_of_nobody() -> (Place, PathBuf) {
    let place = Place::new();
    let program = place.dir.path().join("asdf-mount");
    fs::copy(PROGRAM, &program).unwrap();
    for path in [place.dir.path(), &place.mnt, &place.file] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    (place, program)
}

/// Runs a script, in which `$@` are these arguments, where mounts are seen by nobody else.
fn in_private_mounts<S: AsRef<OsStr>>(
    script: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Outcome {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec", script, "sh"])
        .args(arguments);
    run(&mut command)
}

/// A script of root, in which `as_nobody` runs a command as the user without privileges; `/dev/fuse` has the permissions that udev gives it.
fn beside_nobody<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) -> Outcome {
    let devices =
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/fuse c 10 229
        as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }";
    in_private_mounts(&format!("{devices}\n{script}"), arguments)
}

#[test]
fn what_another_user_has_put_beside_a_file_does_not_hinder_its_repair() {
    if !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    let planted = place.dir.path().join(".sample.asdf.asdf-mount-journal");
    fs::write(&planted, "what only root can read").unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)).unwrap();
    let mut repair = Command::new(program);
    repair.args(["--check", "--repair"]).arg(&place.file);
    let said = run(repair.uid(NOBODY).gid(NOBODY));
    assert_eq!(said.code, 0, "{} {}", said.stdout, said.stderr);
    assert!(planted.exists());
}

/// The name stood among the options of `fusermount3`, which took what followed the comma for an option.
#[test]
fn a_file_of_any_name_is_mounted_by_a_user_and_found_by_that_name() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    for name in [
        &b"run,ro.asdf"[..],
        b"back\\slash,\\,.asdf",
        b"in,dir/f\\040 \t.asdf",
        b"l\xe9,\xff.asdf",
        "\u{e9},\n\\xFF.asdf".as_bytes(),
    ] {
        let file = place.dir.path().join(OsStr::from_bytes(name));
        let above = file.parent().unwrap();
        fs::create_dir_all(above).unwrap();
        fs::copy(&place.file, &file).unwrap();
        for path in [above, &file] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let script = "as_nobody \"$1\" \"$2\" \"$3\"; as_nobody sed -i '/^---/a note: 1' \"$3/tree.yaml\"; as_nobody \"$1\" -u \"$2\"";
        let said = beside_nobody(script, [&program, &file, &place.mnt]);
        assert_eq!(said.code, 0, "{}: {said:?}", file.display());
        let saved = fs::read(&file).unwrap();
        assert!(
            saved.windows(8).any(|part| part == b"note: 1\n"),
            "{}",
            file.display()
        );
    }
    let script = "as_nobody \"$1\" -o 'fsname=a\\,b\\\\c,subtype=asdf-mount' \"$2\" \"$3\"; findmnt -no SOURCE \"$3\"; as_nobody \"$1\" -u \"$3\"";
    let said = beside_nobody(script, [&program, &place.file, &place.mnt]);
    assert!(said.stdout.ends_with("a,b\\c\n"), "{said:?}");
}

/// What was written before the mode was set could not be saved when it was closed: FILE could not be opened for writing by then.
#[test]
fn what_takes_the_right_to_write_saves_what_it_has_written() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    for (how, saved) in [
        ("cp -p \"$4\" \"$3/tree.yaml\"", "note: 1\n"),
        ("install -m 444 \"$4\" \"$3/tree.yaml\"", "note: 2\n"),
        ("cp -p \"$4\" \"$3/blocks/0.bin\"", "note: 3\n"),
    ] {
        let source = place.dir.path().join("source");
        let tree = format!(
            "as_nobody \"$1\" --tree \"$2\" | sed '/^note/d; /^---/a {}' >\"$4\"",
            saved.trim()
        );
        let script = format!(
            "rm -f \"$4\"; {tree}; chown 65534 \"$4\"; chmod 444 \"$4\"; chmod 644 \"$2\"
            as_nobody \"$1\" \"$2\" \"$3\"; as_nobody {how}; stat -c %a \"$2\"
            as_nobody sh -c 'echo >>\"$1\"' sh \"$3/tree.yaml\" 2>/dev/null && echo written; as_nobody \"$1\" -u \"$3\""
        );
        let said = beside_nobody(&script, [&program, &place.file, &place.mnt, &source]);
        assert_eq!(
            (said.code, &*said.stdout, &*said.stderr),
            (0, "444\n", ""),
            "{how}"
        );
        let bytes = fs::read(&place.file).unwrap();
        assert!(
            bytes
                .windows(saved.len())
                .any(|part| part == saved.as_bytes()),
            "{how}"
        );
    }
}

#[test]
fn without_a_fuse_device_it_exits_with_30_and_says_how_to_get_one() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let script = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; exec \"$@\"";
    let said = in_private_mounts(script, [Path::new(PROGRAM), &place.file, &place.mnt]);
    assert_refused(&said, 30, "/dev/fuse");
}

#[test]
fn without_access_to_the_fuse_device_it_exits_with_30_and_says_how_to_get_it() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    // and it is not said to be mounted read-only, when it is not mounted
    fs::set_permissions(&place.file, fs::Permissions::from_mode(0o444)).unwrap();
    let script =
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 600 /dev/fuse c 10 229
        exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let said = in_private_mounts(script, [&program, &place.file, &place.mnt]);
    assert_refused(&said, 30, "/dev/fuse: no access to it; chmod 666 /dev/fuse");
}

#[test]
fn a_mount_that_the_kernel_refuses_exits_with_31() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let said = run(Command::new("setpriv")
        .args([
            "--bounding-set=-sys_admin",
            "--inh-caps=-sys_admin",
            PROGRAM,
        ])
        .args([&place.file, &place.mnt]));
    assert_refused(&said, 31, "mnt");
}

#[test]
fn it_returns_when_the_mount_is_readable_and_says_nothing_off_a_terminal() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let said = place.mount(&[]);
    let tree = fs::read(place.mnt.join("tree.yaml"));
    place.unmount();
    assert_eq!(
        (said.code, said.stdout.as_str(), said.stderr.as_str()),
        (0, "", "")
    );
    assert!(tree.unwrap().starts_with(b"#ASDF 1.0.0\n"));
}

#[test]
fn a_mountpoint_it_made_is_named_after_the_file_and_goes_with_the_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let made = fs::canonicalize(place.dir.path()).unwrap().join("sample");
    let said = run(Command::new(PROGRAM)
        .arg("sample.asdf")
        .current_dir(place.dir.path()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(made.join("tree.yaml").exists());
    assert_eq!(asdf_mount([Path::new("-u"), &made]).code, 0);
    assert!(!made.exists(), "the directory stayed");
}

#[test]
fn a_mountpoint_it_made_goes_when_the_mount_fails() {
    let place = Place::of(&Sample::of_text(b"not asdf at all"));
    let said = run(Command::new(PROGRAM)
        .arg("sample.asdf")
        .current_dir(place.dir.path()));
    assert_refused(&said, 20, "sample.asdf");
    assert!(!place.dir.path().join("sample").exists());
}

#[test]
fn unmounting_what_is_not_mounted_exits_with_10() {
    let place = Place::new();
    let said = run(Command::new(PROGRAM).arg("-u").arg(&place.mnt));
    assert_refused(&said, 10, "mnt");
}

#[test]
fn only_a_fuse_mount_is_asked_who_serves_it() {
    let place = Place::new();
    let pid = std::process::id().to_string();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&place.mnt, "user.asdf.pid", pid.as_bytes(), flags).is_err() {
        println!("skipped: no extended attributes here");
        return;
    }
    let said = run(Command::new(PROGRAM).arg("-u").arg(&place.mnt));
    assert_refused(&said, 10, "mnt: not a mounted ASDF file");
}

#[test]
fn what_a_killed_daemon_leaves_can_be_taken_away() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let daemons = daemons_of(&place.mnt);
    kill_process(Pid::from_raw(daemons[0]).unwrap(), Signal::KILL).unwrap();
    eventually("gone", || !is_running(daemons[0]));
    let advice = format!("asdf-mount -u {} takes it away", place.mnt.display());
    assert_refused(&place.mount(&[]), 10, &advice);
    // by another name than that in the table of mounts, too
    let said = run(Command::new(PROGRAM)
        .args(["-u", "mnt"])
        .current_dir(place.dir.path()));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(mounted_at(&place.mnt).is_none());
    assert_eq!(place.mount(&[]).code, 0);
    place.unmount();
}

/// A process that is killed when this is dropped: a test that fails leaves nobody waiting for it.
struct Doomed(Pid);

impl Drop for Doomed {
    fn drop(&mut self) {
        kill_process(self.0, Signal::KILL).unwrap();
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_is_asked_is_gone_too() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = Doomed(Pid::from_raw(daemons_of(&place.mnt)[0]).unwrap());
    kill_process(daemon.0, Signal::STOP).unwrap();
    let mut unmount = Command::new(PROGRAM)
        .arg("-u")
        .arg(&place.mnt)
        .spawn()
        .unwrap();
    let parent = format!("PPid:\t{}\n", unmount.id());
    let asks = |process: &Path| {
        // where the kernel waits for the answer to a request
        fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains(&parent))
            && fs::read_to_string(process.join("wchan"))
                .is_ok_and(|place| place == "request_wait_answer")
    };
    eventually("asked", || {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        processes.any(|process| asks(&process.path()))
    });
    drop(daemon);
    assert_eq!(unmount.wait().unwrap().code(), Some(0));
    assert!(mounted_at(&place.mnt).is_none());
}

/// The daemon left the terminal's session when the command had returned, and a terminal that was closed at once ended the mount.
#[test]
fn the_daemon_has_a_session_of_its_own_before_the_mount_is_said_to_be_there() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // the daemon waits until it can say so
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let mut daemon = Command::new(PROGRAM)
        .args([&place.file, &place.mnt])
        .env("ASDF_MOUNT_DAEMON", "1")
        .stdin(Stdio::null())
        .stdout(writer)
        .spawn()
        .unwrap();
    let pid = daemon.id().to_string();
    // read from /proc: in a PID namespace, getsid(2) gives 0 for a session that began outside it, which rustix takes for impossible
    let leads = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, behind_name) = stat.rsplit_once(") ").unwrap();
        behind_name.split(' ').nth(3) == Some(&pid)
    };
    eventually("the daemon leads a session", leads);
    let mut said = Vec::new();
    // it lets go of the pipe when it has said it
    reader.read_to_end(&mut said).unwrap();
    assert!(said.ends_with(b"\0ready\n"));
    place.unmount();
    assert!(daemon.wait().unwrap().success());
}

/// `-u FILE` found no mount, since its name stood in the table as text.
#[test]
fn a_file_whose_name_is_no_text_names_its_mount() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut place = Place::new();
    let name = place.dir.path().join(OsStr::from_bytes(b"\xe9.asdf"));
    fs::rename(&place.file, &name).unwrap();
    place.file = name;
    // the tests beside this one read the table of mounts as text
    let script = "\"$1\" \"$2\" \"$3\"; \"$1\" -u \"$2\"";
    let said = in_private_mounts(script, [Path::new(PROGRAM), &place.file, &place.mnt]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn several_mountpoints_are_unmounted_at_once() {
    if !can_mount() {
        return;
    }
    let (one, two) = (Place::new(), Place::new());
    assert_eq!((one.mount(&[]).code, two.mount(&[]).code), (0, 0));
    let said = run(Command::new(PROGRAM).arg("-u").args([&one.mnt, &two.mnt]));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(mounted_at(&one.mnt).is_none() && mounted_at(&two.mnt).is_none());
}

#[test]
fn in_the_foreground_it_stays_until_the_unmount_and_exits_with_0() {
    if !can_mount() {
        return;
    }
    for flags in [&["-f", "-f"][..], &["-d"]] {
        let place = Place::new();
        let log = place.mnt.with_file_name("log");
        let mut child = Command::new(PROGRAM)
            .args(flags)
            .arg("--log-file")
            .arg(&log)
            .arg("--pid-file")
            .args([&place.pid_file(), &place.file, &place.mnt])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("mounted", || place.pid_file().exists());
        let tree = fs::read(place.mnt.join("tree.yaml")).unwrap();
        fs::read(place.mnt.join("nothing")).unwrap_err();
        assert!(
            child.try_wait().unwrap().is_none(),
            "{flags:?} left the foreground"
        );
        let said = run(Command::new("umount").arg(&place.mnt));
        assert_eq!((said.code, &*said.stderr), (0, ""));
        let mut status = None;
        eventually("ended", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(0));
        let log = fs::read_to_string(&log).unwrap();
        let told = [
            format!(": Read tree.yaml: {} bytes, ", tree.len()),
            ": Lookup nothing: no such file, ".to_owned(),
        ];
        for line in told {
            let mut found = log.lines().filter(|logged| logged.contains(&line));
            let found = found.next().is_some_and(|logged| logged.ends_with(" µs"));
            assert_eq!(found, flags == ["-d"], "{line}: {log}");
        }
    }
}

/// Without a time nothing told how long ago it was, and all questions for attributes looked alike.
#[test]
fn a_request_is_logged_on_a_terminal_with_its_time_and_the_attribute_that_it_asks_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let log = place.mnt.with_file_name("log");
    let mut child = Command::new(PROGRAM)
        .args(["-d", "--pid-file"])
        .args([&place.pid_file(), &place.file, &place.mnt])
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    eventually("mounted", || place.pid_file().exists());
    let block = place.mnt.join("blocks/0.bin");
    let [mut value, mut names] = [[0; 100], [0; 100]];
    rustix::fs::getxattr(&block, "user.asdf.offset", &mut value).unwrap();
    rustix::fs::listxattr(&block, &mut names[..0]).unwrap();
    rustix::fs::removexattr(&block, "user.x").unwrap_err();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&block, "user.y", b"1", flags).unwrap_err();
    place.unmount();
    child.wait().unwrap();
    let log = fs::read_to_string(&log).unwrap();
    for told in [
        "Getxattr blocks/0.bin user.asdf.offset: done, ",
        "Listxattr blocks/0.bin: done, ",
        "Removexattr blocks/0.bin user.x: no such attribute, ",
        "Setxattr blocks/0.bin user.y: not supported: ",
    ] {
        let told = format!("Z asdf-mount: {told}");
        let mut lines = log.lines().filter(|line| line.contains(&told));
        let line = lines.next().unwrap_or_else(|| panic!("{told}: {log}"));
        assert!(line.starts_with("20") && line.ends_with(" µs"), "{line}");
    }
}

/// On a busy machine a daemon may take longer to end than a lock is waited for.
#[test]
fn a_daemon_that_is_slow_to_end_after_the_unmount_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = Pid::from_raw(daemons_of(&place.mnt)[0]).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    rustix::mount::unmount(&place.mnt, UnmountFlags::empty()).unwrap();
    let said = said_while_stopped(&place, daemon);
    assert!(said.contains(": waiting for its end"), "{said}");
    place.unmount();
}

/// Mounts a file whose daemon is stopped and has no mount any more: the first line of what the program says. Then the daemon goes on.
fn said_while_stopped(place: &Place, daemon: Pid) -> String {
    let mut again = Command::new(PROGRAM)
        .args([&place.file, &place.mnt])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut messages = BufReader::new(again.stderr.take().unwrap());
    messages.read_line(&mut said).unwrap();
    kill_process(daemon, Signal::CONT).unwrap();
    assert_eq!(again.wait().unwrap().code(), Some(0), "{said}");
    said
}

/// The lock is of the file, not of the name. The daemon was said to have no mount, and waited for, because its mount has another name.
#[test]
fn a_second_name_of_a_mounted_file_is_refused_at_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let second = place.dir.path().join("second.asdf");
    fs::hard_link(&place.file, &second).unwrap();
    let said = asdf_mount([&second, &place.dir.path().join("other")]);
    assert_eq!(said.code, 13, "{}", said.stderr);
    assert!(said.stderr.contains("has it locked"), "{}", said.stderr);
    assert!(!said.stderr.contains("waiting"), "{}", said.stderr);
    place.unmount();
}

/// The kernel gives the number of a connection to the next mount, and the daemon that has ended its own mount still shows that number.
/// The daemon of the other mount was taken for it, so that nobody waited.
#[test]
fn a_daemon_that_is_slow_to_end_is_told_from_that_of_the_next_mount() {
    if !can_mount() {
        return;
    }
    let (place, other) = (Place::new(), Place::new());
    // its process has a lower number than the daemon that it could be taken for
    let mut next = Command::new("sh")
        .args([
            "-c",
            "read go; exec \"$0\" -rf \"$@\"",
            PROGRAM,
            "--pid-file",
        ])
        .args([&other.pid_file(), &other.file, &other.mnt])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = Pid::from_raw(daemons_of(&place.mnt)[0]).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    rustix::mount::unmount(&place.mnt, UnmountFlags::empty()).unwrap();
    next.stdin.take().unwrap().write_all(b"\n").unwrap();
    eventually("the other file is mounted", || other.pid_file().exists());
    let said = said_while_stopped(&place, daemon);
    assert!(said.contains(": waiting for its end"), "{said}");
    other.unmount();
    next.wait().unwrap();
    place.unmount();
}

#[test]
fn a_file_can_be_mounted_again_as_soon_as_it_is_unmounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    for _ in 0..20 {
        let said = place.mount(&[]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        // unlike `asdf-mount -u` this does not wait for the daemon
        let said = run(Command::new("umount").arg(&place.mnt));
        assert_eq!(said.code, 0, "{}", said.stderr);
    }
}

#[test]
fn signals_unmount_in_order() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new();
        assert_eq!(place.mount(&[]).code, 0);
        let daemons = daemons_of(&place.mnt);
        assert_eq!(daemons.len(), 1, "one daemon a mount");
        kill_process(Pid::from_raw(daemons[0]).unwrap(), signal).unwrap();
        eventually("unmounted", || mounted_at(&place.mnt).is_none());
        eventually("gone", || !is_running(daemons[0]));
    }
}

#[test]
fn the_pid_file_names_the_daemon_and_the_log_file_its_complaints() {
    if !can_mount() {
        return;
    }
    let place = Place::of(&Sample::new("a: 1\n").block(Block::coded(*b"zlib", noise(100), 100)));
    let (pid, log) = (place.dir.path().join("pid"), place.dir.path().join("log"));
    let said = place.mount(&[
        "--pid-file",
        pid.to_str().unwrap(),
        "--log-file",
        log.to_str().unwrap(),
    ]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let named: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let daemons = daemons_of(&place.mnt);
    let failed = fs::read(place.mnt.join("blocks/0.bin")).unwrap_err();
    place.unmount();
    assert_eq!(daemons, [named]);
    assert_eq!(failed.raw_os_error(), Some(5));
    assert!(
        fs::read_to_string(&log).unwrap().contains("block 0"),
        "the log does not say which block"
    );
}

#[test]
fn read_only_is_asked_for_in_three_ways() {
    if !can_mount() {
        return;
    }
    for options in [&["-r"][..], &["--read-only"], &["-o", "ro"]] {
        let place = Place::new();
        let mount = Mount::new(&place.file, options);
        assert!(
            mount_options(&mount.dir).starts_with("ro,"),
            "{options:?}: {}",
            mount_options(&mount.dir)
        );
        let refused = fs::write(mount.path("tree.yaml"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn a_mount_grants_nothing_that_it_need_not() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&Place::new().file, &[]);
    let options = mount_options(&mount.dir);
    for wanted in ["nosuid", "nodev", "noexec", "default_permissions"] {
        assert!(
            options.split(',').any(|option| option == wanted),
            "{wanted} is not in {options}"
        );
    }
    assert!(!options.contains("allow_other"), "{options}");
}

#[test]
fn owner_and_mode_can_be_given_as_options() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.file, fs::Permissions::from_mode(0o644)).unwrap();
    let nobody = run(Command::new("id").args(["-u", "nobody"])).stdout;
    let nobody: u32 = nobody.trim().parse().unwrap();
    let mount = Mount::new(
        &place.file,
        &["-o", "ro,uid=nobody", "-o", "gid=77,umask=027"],
    );
    for (name, mode) in [
        ("tree.yaml", 0o640),
        ("blocks", 0o750),
        ("blocks/0.bin", 0o640),
    ] {
        let found = fs::metadata(mount.path(name)).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o7777 & !0o222),
            (nobody, 77, mode & !0o222),
            "{name}"
        );
    }
    let said = place.mount(&["-o", "uid=nosuchuser"]);
    assert_refused(&said, 2, "give the number, which id -u nosuchuser prints");
}

#[test]
fn options_that_are_not_for_us_are_ignored() {
    if !can_mount() {
        return;
    }
    let options = "defaults,_netdev,nofail,noauto,user,users,x-systemd.automount,noatime,ro";
    Mount::new(&Place::new().file, &["-o", options]).unmount();
}

#[test]
fn options_may_stand_behind_the_names() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let said = run(Command::new(PROGRAM)
        .args([&place.file, &place.mnt])
        .args(["-o", "ro"]));
    let options = mount_options(&place.mnt);
    place.unmount();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(options.starts_with("ro,"), "{options}");
}

#[test]
fn it_can_stand_in_fstab() {
    if !can_mount() || !is_root() || !Path::new("/sbin/mount.fuse").exists() {
        return;
    }
    let place = Place::new();
    let fstab = place.dir.path().join("fstab");
    let line = format!(
        "{} {} fuse.asdf-mount ro,noauto,nofail,_netdev 0 0\n",
        place.file.display(),
        place.mnt.display()
    );
    fs::write(&fstab, line).unwrap();
    // installed, as far as this script sees; mount(8) looks for helpers in the standard places only
    let script =
        "mount -t tmpfs none /usr/local/bin; cp \"$1\" /usr/local/bin; mount -T \"$2\" \"$3\"
        ls \"$3\"; grep -F \" $3 \" /proc/self/mounts; asdf-mount -u \"$3\"";
    let said = in_private_mounts(script, [Path::new(PROGRAM), &fstab, &place.mnt]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let mounted = format!(
        "tree.yaml\n{} {} fuse",
        place.file.display(),
        place.mnt.display()
    );
    assert!(said.stdout.contains(&mounted), "{}", said.stdout);
}

#[test]
fn a_user_without_privileges_mounts_through_fusermount() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    let script =
        "as_nobody \"$@\"; as_nobody head -n 1 \"$3/tree.yaml\"; grep -F \" $3 \" /proc/self/mounts
        as_nobody fusermount3 -u \"$3\"";
    let said = beside_nobody(script, [&program, &place.file, &place.mnt]);
    eventually("the daemon is gone", || daemons_of(&place.mnt).is_empty());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.starts_with("#ASDF 1.0.0\n"), "{}", said.stdout);
    assert!(said.stdout.contains("user_id=65534"), "{}", said.stdout);
}

/// The mount stayed without a daemon, because only root may take it away by umount2(2).
#[test]
fn a_mount_of_a_user_whose_pid_file_can_not_be_written_is_taken_away() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    let script = "as_nobody \"$1\" --pid-file /nosuch/pid \"$2\" \"$3\" || echo $?
        ! grep -F \" $3 \" /proc/self/mounts";
    let said = beside_nobody(script, [&program, &place.file, &place.mnt]);
    assert_eq!((said.code, &*said.stdout), (0, "1\n"), "{said:?}");
}

/// It waited for a reader of the pipe, and said nothing.
#[test]
fn a_log_file_that_is_a_pipe_without_a_reader_is_refused() {
    let place = Place::new();
    let pipe = place.dir.path().join("pipe");
    assert_eq!(run(Command::new("mkfifo").arg(&pipe)).code, 0);
    let said = place.mount(&["--log-file", pipe.to_str().unwrap()]);
    assert!(
        said.code != 0 && said.stderr.contains("/pipe: "),
        "{said:?}"
    );
}

/// Its daemon, which had no time to answer, was said not to answer.
#[test]
fn a_mount_whose_end_is_not_waited_for_is_unmounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let said = asdf_mount(["-u", "--timeout", "0", place.mnt.to_str().unwrap()]);
    // the daemon may take a moment to end
    let is_over = said.code == 0 || said.stderr.contains(": unmounted, but daemon ");
    assert!(is_over && mounted_at(&place.mnt).is_none(), "{said:?}");
}

/// The kernel does not let root ask the daemon, and root was told that the mount is none.
#[test]
fn root_unmounts_what_a_user_has_mounted() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    let script = "for name in \"$3\" \"$2\" \"$3/arrays\"; do
            as_nobody \"$1\" \"$2\" \"$3\"
            \"$1\" -u \"$name\"
            ! grep -F \" $3 \" /proc/self/mounts
        done
        as_nobody \"$1\" \"$2\" \"$3\"
        echo 1 | as_nobody tee \"$3/arrays/flux.bin\" || true
        \"$1\" -u \"$3\" || echo $?";
    let said = beside_nobody(script, [&program, &place.file, &place.mnt]);
    let daemons = daemons_of(&place.mnt);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.stdout, "1\n40\n", "{said:?}");
    assert!(
        said.stderr
            .contains("unmounted, but an edit is not saved: arrays/flux.bin"),
        "{said:?}"
    );
    assert!(daemons.is_empty(), "-u did not wait for {daemons:?}");
}

/// What is in the mount of another user can't be looked at, and the error number of that was all that was said.
#[test]
fn a_user_is_told_that_a_path_is_in_the_mount_of_root() {
    if !can_mount() || !is_root() {
        return;
    }
    let (place, program) = place_of_nobody();
    assert_eq!(place.mount(&[]).code, 0);
    let mut command = Command::new(&program);
    let said = run(command
        .arg("-u")
        .arg(place.mnt.join("arrays"))
        .uid(NOBODY)
        .gid(NOBODY));
    place.unmount();
    let words = "mnt/arrays: mounted by root; only root can unmount it";
    assert_refused(&said, 10, words);
}

#[test]
fn no_text_from_a_file_begins_a_line_of_status_tables_or_log() {
    if !can_mount() {
        return;
    }
    let place = Place::of(&hostile());
    let log = place.dir.path().join("log");
    let mount = Mount::new(&place.file, &["--log-file", log.to_str().unwrap()]);
    for name in ["info/status", "info/arrays.tsv", "info/blocks.tsv"] {
        assert_not_forged(&mount.text(name));
    }
    let text = mount.text("tree.yaml").replace("[5]", "[6]");
    let refused = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(mount.path("tree.yaml"))
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            rustix::fs::fsync(&file).map_err(Into::into)
        });
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(5));
    assert_not_forged(&mount.text("info/status"));
    assert_not_forged(&fs::read_to_string(&log).unwrap());
}

#[test]
fn a_newline_in_the_name_of_the_file_is_no_matter() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let odd = place.dir.path().join("a\nready b.asdf");
    fs::rename(&place.file, &odd).unwrap();
    let mount = Mount::new(&odd, &[]);
    assert_eq!(mount.said.stderr, "");
    assert!(mount.text("tree.yaml").starts_with("#ASDF 1.0.0\n"));
    let status = mount.text("info/status");
    let first = status.lines().next().unwrap();
    assert!(first.ends_with("/a%0Aready b.asdf"), "{first}");
}
