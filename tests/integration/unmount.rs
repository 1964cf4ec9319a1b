//! `-u`: what it waits for, how long, and what it says meanwhile.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use crate::common::{
    Outcome, PROGRAM, Place, Stopped, assert_refused, can_mount, daemons_of, eventually, is_root,
    is_running, mounted_at, run,
};

/// A program that is ended when this is dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn unmount(mountpoint: &Path, seconds: &str) -> Outcome {
    run(Command::new(PROGRAM)
        .args(["-u", "--timeout", seconds])
        .arg(mountpoint))
}

/// Unmounts, once the process that has asked the stopped daemon, and is in the mount until it has its answer, is gone.
fn unmount_after_stop(place: &Place) {
    eventually("unmounted", || unmount(&place.mnt, "1000").code == 0);
}

#[test]
fn a_stopped_daemon_is_named_and_not_waited_for_beyond_the_limit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let stopped = Stopped::daemon_of(&place.mnt);
    let pid = stopped.0.as_raw_nonzero();
    let said = unmount(&place.mnt, "3");
    let (mnt, file) = (place.mnt.display(), fs::canonicalize(&place.file).unwrap());
    let why = format!(
        "daemon {pid} is stopped, kill -CONT {pid} lets it go on; {} stays locked",
        file.display()
    );
    let want =
        format!("asdf-mount: {mnt}: waiting: {why}\nasdf-mount: {mnt}: still mounted: {why}\n");
    assert_eq!((said.code, said.stderr), (42, want));
    assert!(mounted_at(&place.mnt).is_some());
    // no more is said of what is not waited for
    let said = unmount(&place.mnt, "0");
    assert_eq!((said.code, said.stderr.lines().count()), (42, 1));
    drop(stopped);
    unmount_after_stop(&place);
}

/// The process that had its number here was waited for.
#[test]
fn a_daemon_in_another_pid_namespace_is_not_taken_for_a_process_of_this_one() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let daemon = Command::new("unshare")
        .args(["--fork", "--pid", "--kill-child", PROGRAM, "-f"])
        .arg("--pid-file")
        .args([&place.pid_file(), &place.file, &place.mnt])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _daemon = Held(daemon);
    eventually("mounted", || place.pid_file().exists());
    let said = unmount(&place.mnt, "1000");
    assert_eq!((said.code, &*said.stderr), (0, ""));
}

/// It was found by the lock of its file only, which a directory has not: one that was killed while a thread of it waited in the kernel
/// left a mount that `-u` could not take away.
#[test]
fn the_daemon_of_a_directory_is_found_where_the_kernel_tells_its_connections() {
    if !can_mount() {
        return;
    }
    let mut place = Place::new();
    let files = place.dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::rename(&place.file, files.join("a.asdf")).unwrap();
    place.file = files;
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = daemons_of(&place.mnt)[0];
    let descriptors = fs::read_dir(format!("/proc/{daemon}/fdinfo")).unwrap();
    let mut descriptors = descriptors.map(|entry| fs::read_to_string(entry.unwrap().path()));
    if !descriptors.any(|told| told.is_ok_and(|told| told.contains("fuse_connection"))) {
        println!("skipped: this kernel does not tell the connections of a process");
        return place.unmount();
    }
    let stopped = Stopped::daemon_of(&place.mnt);
    let said = unmount(&place.mnt, "0");
    let words =
        format!("still mounted: daemon {daemon} is stopped, kill -CONT {daemon} lets it go on");
    assert_refused(&said, 42, &words);
    assert!(!said.stderr.contains("locked"), "{}", said.stderr);
    drop(stopped);
    unmount_after_stop(&place);
}

/// A process with the program's name that mounts at each path of its arguments, and unmounts those behind `--` again. Then its first thread
/// ends, and another one still has the connections, until standard input is closed: what a daemon is while it ends, or once it was killed.
const ENDING: &str = r#"
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
split = sys.argv.index("--")
stay, go = (list(map(os.fsencode, part)) for part in (sys.argv[1:split], sys.argv[split + 1:]))
for place in stay + go:
    device = os.open("/dev/fuse", os.O_RDWR)
    os.mkdir(place)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
    assert not libc.mount(b"x", place, b"fuse.asdf-mount", 0, options)
for place in go:
    assert not libc.umount2(place, 2)
with open("/proc/self/comm", "w") as name:
    name.write("asdf-mount")
def hold():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        pass
    print("ending", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=hold).start()
libc.pthread_exit(None)
"#;

/// Starts such a process, and waits until its first thread has ended.
fn ending(stay: &[PathBuf], go: &[PathBuf]) -> Held {
    let mut command = Command::new("python3");
    command.args(["-c", ENDING]).args(stay).arg("--").args(go);
    let ending = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut ending = Held(ending.unwrap());
    let mut said = [0; 7];
    let told = ending.0.stdout.as_mut().unwrap().read_exact(&mut said);
    told.unwrap();
    assert_eq!(&said, b"ending\n");
    ending
}

/// It was aborted as a mount whose daemon was killed, once in 2,000 on a busy machine: the kernel gives the number of an unmounted
/// connection to the next mount, and another daemon that had it was still ending.
#[test]
fn a_mount_is_not_taken_for_that_of_a_daemon_which_is_ending() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let go: Vec<_> = (0..16)
        .map(|n| place.dir.path().join(n.to_string()))
        .collect();
    let _ending = ending(&[], &go);
    assert_eq!(place.mount(&[]).code, 0);
    let said = unmount(&place.mnt, "1000");
    assert_eq!((said.code, &*said.stderr), (0, ""));
}

#[test]
fn the_mount_of_a_killed_daemon_is_taken_away_though_it_is_in_use() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mnt = fs::canonicalize(dir.path()).unwrap().join("mnt");
    let _killed = ending(std::slice::from_ref(&mnt), &[]);
    let used = rustix::fs::open(&mnt, OFlags::PATH, Mode::empty()).unwrap();
    let said = unmount(&mnt, "1000");
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert!(mounted_at(&mnt).is_none());
    drop(used);
}

#[test]
fn a_mount_that_lives_on_in_another_namespace_is_not_waited_for_beyond_the_limit() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = daemons_of(&place.mnt)[0];
    let ready = place.dir.path().join("ready");
    // mounts of tests that run meanwhile must not live on there, too
    let script = format!(
        "awk '$3 ~ /^fuse/ && $2 != \"{}\" {{ print $2 }}' /proc/mounts | xargs -r -n 1 umount -l
        touch '{}' && exec sleep 1000",
        place.mnt.display(),
        ready.display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    let namespace = Held(unshare.stdin(Stdio::null()).spawn().unwrap());
    eventually("the namespace is there", || ready.exists());
    let said = unmount(&place.mnt, "3");
    let file = fs::canonicalize(&place.file).unwrap();
    let want = format!(
        "asdf-mount: {}: unmounted, but daemon {daemon} still serves {}, which stays locked: ",
        place.mnt.display(),
        file.display(),
    );
    assert_eq!(said.code, 42, "{}", said.stderr);
    let last = said.stderr.lines().last().unwrap();
    assert!(last.starts_with(&want), "{}", said.stderr);
    assert!(
        last.contains("another mount namespace has it"),
        "{}",
        said.stderr
    );
    assert!(mounted_at(&place.mnt).is_none());
    drop(namespace);
    eventually("the daemon ends", || !is_running(daemon));
}

/// Another mount there waited for the daemon to answer, without a word, and so did `-u` of a path inside.
#[test]
fn what_a_stopped_daemon_serves_is_not_looked_at() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let stopped = Stopped::daemon_of(&place.mnt);
    let pid = stopped.0.as_raw_nonzero();
    let file = fs::canonicalize(&place.file).unwrap();
    let file = file.display();
    let why =
        format!("daemon {pid} is stopped, kill -CONT {pid} lets it go on; {file} stays locked");
    let other = place.dir.path().join("other.asdf");
    fs::copy(&place.file, &other).unwrap();
    let inside = place.mnt.join("new");
    for (files, mountpoint) in [
        (&[&other][..], &place.mnt),
        (&[&other], &inside),
        (&[&other, &place.file], &place.mnt),
    ] {
        let said = run(Command::new(PROGRAM).args(files).arg(mountpoint));
        let mountpoint = mountpoint.display();
        let words = format!("{mountpoint}: already mounted ({file}): {why}");
        assert_refused(&said, 10, &words);
    }
    let said = unmount(&place.mnt.join("arrays"), "0");
    let words = format!("still mounted: {why}");
    assert_refused(&said, 42, &words);
    drop(stopped);
    unmount_after_stop(&place);
}

#[test]
fn a_bind_mount_is_not_waited_for_while_the_original_lives() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let bound = fs::canonicalize(place.dir.path()).unwrap().join("bound");
    fs::create_dir(&bound).unwrap();
    let bind = |from: &Path, to: &Path| {
        let bound = run(Command::new("mount").arg("--bind").args([from, to]));
        assert_eq!(bound.code, 0, "{}", bound.stderr);
    };
    bind(&place.mnt, &bound);
    let still = |gone: &Path, left: &Path| {
        format!(
            "asdf-mount: {}: unmounted; what it showed is still mounted on {}\n",
            gone.display(),
            left.display()
        )
    };
    // what would be waited for would be told; that the daemon of a busy machine takes long to answer is told, too
    let unmount = |mountpoint: &Path| {
        let mut said = unmount(mountpoint, "1000");
        let lines = said.stderr.split_inclusive('\n');
        said.stderr = lines
            .filter(|line| !line.contains(" does not answer, "))
            .collect();
        said
    };
    let said = unmount(&bound);
    let want = still(&bound, &place.mnt);
    assert_eq!((said.code, said.stderr), (0, want));
    assert!(place.mnt.join("tree.yaml").exists());
    bind(&place.mnt, &bound);
    let said = unmount(&place.mnt);
    let want = still(&place.mnt, &bound);
    assert_eq!((said.code, said.stderr), (0, want));
    assert!(bound.join("tree.yaml").exists());
    let said = unmount(&bound);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(daemons_of(&place.mnt).is_empty());
}

#[test]
fn a_file_that_is_open_beyond_a_lazy_unmount_is_told_of() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let daemon = daemons_of(&place.mnt)[0];
    let bound = fs::canonicalize(place.dir.path()).unwrap().join("bound");
    fs::create_dir(&bound).unwrap();
    let done = run(Command::new("mount")
        .arg("--bind")
        .args([&place.mnt, &bound]));
    assert_eq!(done.code, 0, "{}", done.stderr);
    let open = fs::File::open(bound.join("tree.yaml")).unwrap();
    let lazy = run(Command::new("umount").arg("-l").arg(&bound));
    assert_eq!(lazy.code, 0, "{}", lazy.stderr);
    let said = unmount(&place.mnt, "6");
    assert_eq!(said.code, 42, "{}", said.stderr);
    let lines: Vec<_> = said.stderr.lines().collect();
    let why = format!(
        "daemon {daemon} still serves {}, which stays locked: a file of it is still open, another mount namespace has it, or it has something to finish",
        fs::canonicalize(&place.file).unwrap().display()
    );
    let mnt = place.mnt.display();
    let want = [
        format!("asdf-mount: {mnt}: unmounted; waiting: {why}"),
        format!("asdf-mount: {mnt}: unmounted, but {why}"),
    ];
    assert_eq!(lines, want);
    drop(open);
    eventually("the daemon ends", || !is_running(daemon));
}

#[test]
fn what_is_mounted_or_set_up_inside_is_named() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let mnt = fs::canonicalize(&place.mnt).unwrap();
    let done = |command: &str, arguments: &[&str]| {
        let done = run(Command::new(command).args(arguments));
        assert_eq!(done.code, 0, "{command}: {}", done.stderr);
        done.stdout
    };
    let busy = |why: &str| {
        let said = unmount(&place.mnt, "1000");
        let want = format!("asdf-mount: {}: busy: {why}\n", place.mnt.display());
        assert_eq!((said.code, said.stderr), (10, want));
    };
    let inner = mnt.join("arrays").to_str().unwrap().to_owned();
    done("mount", &["-t", "tmpfs", "tmpfs", &inner]);
    busy(&format!("{inner} is mounted in it; umount {inner} first"));
    done("umount", &[&inner]);
    let block = mnt.join("blocks/0.bin").to_str().unwrap().to_owned();
    let device = done("losetup", &["--find", "--show", "--read-only", &block]);
    let device = device.trim_end();
    busy(&format!(
        "{device} is set up on {block}; losetup -d {device} first"
    ));
    done("losetup", &["-d", device]);
    place.unmount();
}

/// However the process ends that holds the other end of the pipe.
#[test]
fn a_mount_can_go_with_the_end_of_standard_input() {
    if !can_mount() {
        return;
    }
    for flags in [&["-q"][..], &["-f"]] {
        let place = Place::new();
        let (input, lifeline) = std::io::pipe().unwrap();
        let mut command = Command::new(PROGRAM)
            .args(flags)
            .args(["-o", "until-eof"])
            .args([&place.file, &place.mnt])
            .stdin(input)
            .spawn()
            .unwrap();
        eventually("mounted", || place.mnt.join("tree.yaml").exists());
        let daemons = daemons_of(&place.mnt);
        drop(lifeline);
        eventually("unmounted", || mounted_at(&place.mnt).is_none());
        assert!(command.wait().unwrap().success());
        eventually("ended", || !daemons.iter().any(|pid| is_running(*pid)));
    }
    let place = Place::new();
    let said = place.mount(&["-o", "until-eof", "--files-from", "-"]);
    assert_refused(&said, 2, "the list of --files-from ends standard input");
}
