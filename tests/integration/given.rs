//! Mounts where no device of FUSE is to be seen: another program has made them, or a `fusermount3` that asks outside of a sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    Outcome, PROGRAM, Place, assert_refused, can_mount, daemons_of, eventually, is_root,
    is_running, mounted_at, run,
};

/// Mounts at `sys.argv[1]` through `device`.
const MOUNT: &str = "
import ctypes, os, socket, subprocess, sys
device = os.open(os.environ.get('DEVICE', '/dev/fuse'), os.O_RDWR)
def mount(at):
    libc = ctypes.CDLL(None, use_errno=True)
    data = f'fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions'
    assert libc.mount(b'given', at.encode(), b'fuse', 6, data.encode()) == 0, ctypes.get_errno()
";

/// A program of Python.
fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{MOUNT}{script}")]);
    command
}

/// Where the descriptors of a program are not to be taken for its files, the daemon is known by its FILE.
fn daemons(place: &Place) -> Vec<i32> {
    daemons_of(&place.file)
}

#[test]
fn a_mount_that_another_program_has_made_is_served_through_its_descriptor() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    fs::set_permissions(&place.file, fs::Permissions::from_mode(0o666)).unwrap();
    // the program is in a namespace that has neither the mount nor the device, as a container
    let script = "
hidden = 'mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; echo hidden; read go; exec \"$@\"'
command = ['unshare', '--mount', 'sh', '-ec', hidden, 'sh', *sys.argv[1:3], f'/dev/fd/{device}']
pipe = subprocess.PIPE
program = subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=[device], text=True)
program.stdout.readline()
mount(sys.argv[3])
program.communicate('go\\n', timeout=30)
sys.exit(program.returncode)
";
    let mut command = python(script);
    let said = run(command.arg(PROGRAM).args([&place.file, &place.mnt]));
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let daemons = daemons(&place);
    assert_eq!(daemons.len(), 1);
    // whom the kernel lets in may use it
    let edit = "sed 's/^flux/a: 2\\nflux/' \"$1\" >\"$2\" && cat \"$2\" >\"$1\"";
    let new = place.dir.path().join("new");
    fs::write(&new, "").unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let said = run(Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"])
        .args(["-c", edit, "sh"])
        .args([&place.mnt.join("tree.yaml"), &new]));
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert_eq!(run(Command::new("umount").arg(&place.mnt)).code, 0);
    eventually("ended", || !daemons.iter().any(|pid| is_running(*pid)));
    let saved = String::from_utf8_lossy(&fs::read(&place.file).unwrap()).into_owned();
    assert!(saved.contains("\na: 2\nflux"), "{saved}");
}

#[test]
fn a_signal_ends_who_serves_a_mount_of_another_program() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let script = "
mount(sys.argv[3])
os.set_inheritable(device, True)
os.execv(sys.argv[1], [sys.argv[1], '-f', '--pid-file', sys.argv[4], sys.argv[2], f'/dev/fd/{device}'])
";
    let mut daemon = python(script)
        .arg(PROGRAM)
        .args([&place.file, &place.mnt, &place.pid_file()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    eventually("serving", || place.pid_file().exists());
    assert!(fs::read(place.mnt.join("tree.yaml")).is_ok());
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    assert!(!place.pid_file().exists());
    // the mount is that of the other program
    assert!(mounted_at(&place.mnt).is_some());
    assert!(fs::read_dir(&place.mnt).is_err());
    assert_eq!(run(Command::new("umount").arg(&place.mnt)).code, 0);
}

#[test]
fn a_descriptor_that_is_no_mount_is_refused() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let start = |options: &str, opened: &str| -> Outcome {
        let script = format!("exec \"$@\" {options} /dev/fd/9 {opened}");
        run(Command::new("sh")
            .args(["-c", &script, "sh", PROGRAM])
            .arg(&place.file))
    };
    let why = "/dev/fd/9: not an open descriptor of the device of FUSE";
    assert_refused(&start("", ""), 10, why);
    assert_refused(&start("", "9</dev/null"), 10, why);
    // nothing is mounted through it
    assert_refused(&start("", "9<>/dev/fuse"), 31, "/dev/fd/9: ");
    for option in ["allow_other", "idle=1s", "fsname=x"] {
        let said = start(&format!("-o {option}"), "9<>/dev/fuse");
        assert_refused(&said, 2, "no effect with a mount that another program");
    }
}

/// It was said that there is no `/dev/fuse`, before `fusermount3` was asked.
#[test]
fn a_helper_that_mounts_from_outside_is_asked_without_a_device() {
    if !can_mount() || !is_root() {
        return;
    }
    let place = Place::new();
    let bin = place.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let helper = bin.join("fusermount3");
    let script = "
mount(sys.argv[-1])
assert sys.argv[1] == '-o' and 'default_permissions' in sys.argv[2].split(','), sys.argv
socket.send_fds(socket.socket(fileno=int(os.environ['_FUSE_COMMFD'])), [b'\\0'], [device])
";
    fs::write(&helper, format!("#!/usr/bin/env python3\n{MOUNT}{script}")).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let hidden = "mknod -m 666 \"$4/device\" c 10 229
        mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3
        export DEVICE=\"$4/device\" PATH=\"$4:$PATH\"
        \"$1\" \"$2\" \"$3\"; grep -c int32 \"$3/tree.yaml\"; \"$1\" -u \"$3\"; rm \"$4/fusermount3\"
        PATH=$4 \"$1\" \"$2\" \"$3\" || echo $?";
    let said = run(Command::new("unshare")
        .args(["--mount", "sh", "-ec", hidden, "sh", PROGRAM])
        .args([&place.file, &place.mnt, &bin]));
    assert_eq!(
        (said.code, &*said.stdout),
        (0, "1\n30\n"),
        "{}",
        said.stderr
    );
    assert!(
        said.stderr.starts_with("asdf-mount: /dev/fuse: not there"),
        "{}",
        said.stderr
    );
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
}
