//! The limits that the system sets to the process.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::common::{Mount, PROGRAM, Place, can_mount, daemons_of, is_root, run};
use crate::sample::{Block, Sample, array, noise};

/// The soft and the hard limit of descriptors of a process.
fn descriptors_allowed(pid: i32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    (
        words.next().unwrap().to_owned(),
        words.next().unwrap().to_owned(),
    )
}

#[test]
fn all_descriptors_that_are_allowed_can_be_used() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("prlimit");
    let limited = command.arg("--nofile=128:1024").arg(PROGRAM);
    let said = run(limited.arg(&place.file).arg(&place.mnt));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let allowed = descriptors_allowed(daemons_of(&place.mnt)[0]);
    place.unmount();
    assert_eq!(allowed, ("1024".to_owned(), "1024".to_owned()));
}

/// A descriptor for each edited block: a program that had a thousand arrays open for writing had the mount run out of them.
#[test]
fn edits_of_many_blocks_take_few_descriptors() {
    const BLOCKS: u8 = 200;
    if !can_mount() {
        return;
    }
    let names: Vec<String> = (0..BLOCKS).map(|n| format!("a{n}")).collect();
    let tree: String = (0..)
        .zip(&names)
        .map(|(source, name)| array(name, source, "uint8", "[9000]"))
        .collect();
    let sample = names.iter().fold(Sample::new(&tree), |sample, _| {
        sample.block(Block::raw(&[0; 9000]))
    });
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    let daemon = daemons_of(&mount.dir)[0];
    let count = || fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    let before = count();
    let open = |name: &String| {
        let path = mount.path(&format!("arrays/{name}.bin"));
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(name.as_bytes(), 5000).unwrap();
        file
    };
    let files: Vec<File> = names.iter().map(open).collect();
    assert!(count() < before + 20, "{} descriptors", count());
    for file in &files {
        file.sync_all().unwrap();
    }
    drop(files);
    for name in &names {
        let data = mount.read(&format!("arrays/{name}.bin")).unwrap();
        assert_eq!(&data[5000..5000 + name.len()], name.as_bytes());
    }
}

/// Sets the `RLIMIT_FSIZE` of the daemon, in bytes.
fn file_size_limit(mount: &Mount) -> impl Fn(Option<u64>) {
    let daemon = Pid::from_raw(daemons_of(&mount.dir)[0]);
    move |current| {
        let maximum = None;
        prlimit(daemon, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    }
}

/// `SIGXFSZ` ended the daemon, and with it the mount.
#[test]
fn a_save_that_the_limit_of_file_sizes_stops_is_refused_and_kept() {
    const EFBIG: Option<i32> = Some(27);
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n")
        .block(Block::raw(&vec![7; 30_000]))
        .write(dir.path());
    let old = fs::read(&file).unwrap();
    let mount = Mount::new(&file, &[]);
    let limit = file_size_limit(&mount);
    let save = |text: &str| {
        let tree = File::create(mount.path("tree.yaml"))?;
        tree.write_all_at(text.as_bytes(), 0)?;
        tree.sync_all()
    };
    let text = mount.text("tree.yaml").replace("a: 1", "a: 2");
    limit(Some(20_000));
    assert_eq!(save(&text).unwrap_err().raw_os_error(), EFBIG);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), vec![7; 30_000]);
    assert_eq!(fs::read(&file).unwrap(), old);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    assert_eq!(fs::read_to_string(&rejected).unwrap(), text);
    limit(None);
    save(&text).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(text.as_bytes()));
    assert!(!rejected.exists());
}

/// What is written behind the limit was missed only when the record of the save counted already: it was "saved, but", and the mount
/// read-only.
#[test]
fn a_save_that_would_stop_at_the_limit_of_file_sizes_is_not_begun() {
    const EFBIG: Option<i32> = Some(27);
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sizes = [100, 40_000, 5000];
    let sample = sizes
        .into_iter()
        .fold(Sample::new("a: 1\n"), |sample, size| {
            sample.block(Block::raw(&vec![7; size]))
        });
    let file = sample.write(dir.path());
    let old = fs::read(&file).unwrap();
    let mount = Mount::new(&file, &[]);
    let limit = file_size_limit(&mount);
    let remove = || fs::remove_file(mount.path("blocks/2.bin"));
    limit(Some(20_000));
    assert_eq!(remove().unwrap_err().raw_os_error(), EFBIG);
    assert_eq!(fs::read(&file).unwrap(), old);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    limit(None);
    remove().unwrap();
    assert!(!mount.path("blocks/2.bin").exists());
}

/// Threads that could not be started were a panic: of `--check`, and of a thread that serves a mount.
#[test]
fn a_file_is_checked_and_decoded_where_no_thread_can_be_started() {
    if !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let sample = Sample::new("a: 1\n").block(Block::bzp2(&noise(3_000_000)));
    let file = sample.write(dir.path());
    // a user without other processes
    let alone = ["--reuid=64321", "--regid=64321", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command
        .args(alone)
        .args(["prlimit", "--nproc=1", PROGRAM, "--check"]);
    let said = run(command.arg(&file));
    assert_eq!(
        (said.code, said.stderr.as_str()),
        (0, ""),
        "{}",
        said.stdout
    );
}

/// File servers take leases (Samba's oplocks, delegations of NFS): the mount was read-only, without a word, and saves were `EAGAIN`.
#[test]
fn a_file_that_another_process_has_a_lease_of_is_waited_for() {
    const HOLDER: &str = "
import fcntl, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print('has it', flush=True)
signal.sigwait([signal.SIGIO])
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
";
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut python = Command::new("python3");
    let python = python.args(["-c", HOLDER]).arg(&place.file);
    let mut holder = python.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = holder.stdout.take().unwrap();
    said.read_exact(&mut [0; 7]).unwrap();
    let mount = Mount::new(&place.file, &[]);
    assert!(holder.wait().unwrap().success());
    let text = mount.text("tree.yaml").replace("flux", "flow");
    fs::write(mount.path("tree.yaml"), &text).unwrap();
    assert!(fs::read(&place.file).unwrap().starts_with(text.as_bytes()));
}
