//! Running the program and mounting with it, in ways that never hang: everything has a deadline, and a mount that does not
//! answer is aborted.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::sample::{Block, Sample, array, noise};

/// How long anything may take before it counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_asdf-mount");

/// Held by tests that tell what the kernel keeps of files, and alone by one that has it drop all of that.
pub(crate) static KERNEL_CACHES: RwLock<()> = RwLock::new(());

/// So that the kernel is not made to drop what it keeps.
pub(crate) fn kernel_keeps() -> RwLockReadGuard<'static, ()> {
    let kept = KERNEL_CACHES.read();
    kept.unwrap_or_else(PoisonError::into_inner)
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether this machine can mount; says so when it can't.
pub(crate) fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: no /dev/fuse here");
    }
    can
}

/// Whether the tests run as root, which some of them need; says so when they don't.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// What mount(8) has mounted somewhere, until this is dropped.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    pub(crate) fn new(at: &Path, words: &[&str]) -> Self {
        let said = run(Command::new("mount").args(words).arg(at));
        assert_eq!(said.code, 0, "{}", said.stderr);
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// The condition, asked again until it holds or time is up.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(
        within(PATIENCE, &mut holds),
        "still not true after {PATIENCE:?}: {what}"
    );
}

pub(crate) fn within(limit: Duration, holds: &mut dyn FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// How long a command or a mount may take: some are Python programs that compare a thousand files.
const RUN_LIMIT: Duration = Duration::from_secs(200);

/// Runs a command to its end. Its output goes through files, because a daemon it leaves behind may keep it open.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let dir = TempDir::new().unwrap();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let mut child = command
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mut status: Option<ExitStatus> = None;
    let ended = within(RUN_LIMIT, &mut || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    if !ended {
        child.kill().unwrap();
        panic!(
            "{command:?} did not end within {RUN_LIMIT:?}; stderr: {}",
            text(&err)
        );
    }
    Outcome {
        code: status.and_then(|s| s.code()).unwrap_or(-1),
        stdout: text(&out),
        stderr: text(&err),
    }
}

/// Runs the program with these arguments.
pub(crate) fn asdf_mount<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Outcome {
    run(Command::new(PROGRAM).args(args))
}

/// A table of what is mounted, in which names need not be text.
pub(crate) fn mount_table(name: &str) -> String {
    let table = fs::read(format!("/proc/self/{name}")).unwrap();
    String::from_utf8_lossy(&table).into_owned()
}

/// The `major:minor` of what is mounted at exactly this path.
pub(crate) fn mounted_at(path: &Path) -> Option<String> {
    let wanted = path.to_str().unwrap().replace(' ', "\\040");
    mount_table("mountinfo")
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[4] == wanted)
        .map(|fields| fields[2].to_owned())
        .next_back()
}

/// The options of what is mounted at exactly this path: those of the mount and those of the filesystem.
pub(crate) fn mount_options(path: &Path) -> String {
    let wanted = path.to_str().unwrap();
    mount_table("mounts")
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(1) == Some(wanted))
        .and_then(|line| line.split(' ').nth(3))
        .unwrap_or_default()
        .to_owned()
}

/// The processes of the program under test that have this path among their arguments.
pub(crate) fn daemons_of(mountpoint: &Path) -> Vec<i32> {
    let program = fs::canonicalize(PROGRAM).unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let ours = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
        if ours
            && arguments
                .split(|&b| b == 0)
                .any(|a| a == mountpoint.as_os_str().as_bytes())
        {
            found.push(pid);
        }
    }
    found
}

/// Ends a mount that may not answer any more: fails its requests, then detaches it.
pub(crate) fn force_off(mountpoint: &Path) {
    if mounted_at(mountpoint).is_some() {
        let _ = Command::new("umount").arg("-fl").arg(mountpoint).output();
    }
}

/// A mounted file. Unmounted, and its daemon waited for, when dropped; aborted when it does not answer for too long.
pub(crate) struct Mount {
    pub(crate) dir: PathBuf,
    /// What the command said when it mounted.
    pub(crate) said: Outcome,
    _place: TempDir,
    /// Held to tell the watchdog, by its drop, that the mount is over.
    watch: Option<mpsc::Sender<()>>,
}

impl Mount {
    /// Mounts `file` with these options in front.
    pub(crate) fn new(file: &Path, options: &[&str]) -> Self {
        Self::by(Command::new(PROGRAM).args(options), file)
    }

    /// The same by a command that is to be ended with `file` and the mountpoint.
    pub(crate) fn by(command: &mut Command, file: &Path) -> Self {
        let place = TempDir::new().unwrap();
        let dir = fs::canonicalize(place.path()).unwrap().join("mnt");
        fs::create_dir(&dir).unwrap();
        let (watch, over) = mpsc::channel::<()>();
        let guarded = dir.clone();
        std::thread::spawn(move || {
            if over.recv_timeout(RUN_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{} is aborted after {RUN_LIMIT:?}", guarded.display());
                force_off(&guarded);
            }
        });
        let said = run(command.arg(file).arg(&dir));
        let mount = Self {
            dir,
            said,
            _place: place,
            watch: Some(watch),
        };
        assert_eq!(mount.said.code, 0, "mounting: {}", mount.said.stderr);
        assert!(
            mounted_at(&mount.dir).is_some(),
            "exit status 0, but nothing is mounted"
        );
        mount
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name).unwrap()).unwrap()
    }

    /// The names in a directory of the mount, sorted.
    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A table of `info/`: its header line, and its lines, in fields.
    pub(crate) fn table(&self, name: &str) -> Vec<Vec<String>> {
        self.text(name)
            .lines()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect()
    }

    /// An extended attribute.
    pub(crate) fn attribute(&self, name: &str, attribute: &str) -> Option<String> {
        let mut value = vec![0; 4096];
        let len = rustix::fs::getxattr(self.path(name), attribute, &mut value).ok()?;
        value.truncate(len);
        Some(String::from_utf8(value).unwrap())
    }

    /// The most memory that the daemon has had, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        let daemon = daemons_of(&self.dir)[0];
        let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
        peak.unwrap().parse().unwrap()
    }

    /// Unmounts and waits until the daemon is gone.
    pub(crate) fn unmount(self) {
        drop(self);
    }
}

/// The sample in a folder of its own, mounted read-only.
pub(crate) fn mounted(sample: &Sample) -> (TempDir, Mount) {
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-r"]);
    (dir, mount)
}

impl Drop for Mount {
    fn drop(&mut self) {
        let daemons = daemons_of(&self.dir);
        let gone = within(PATIENCE, &mut || {
            mounted_at(&self.dir).is_none()
                || Command::new("umount")
                    .arg(&self.dir)
                    .output()
                    .is_ok_and(|o| o.status.success())
                || Command::new("fusermount3")
                    .arg("-u")
                    .arg(&self.dir)
                    .output()
                    .is_ok_and(|o| o.status.success())
        });
        if !gone {
            force_off(&self.dir);
        }
        let ended = within(RUN_LIMIT, &mut || {
            daemons.iter().all(|pid| !is_running(*pid))
        });
        drop(self.watch.take());
        if !std::thread::panicking() {
            assert!(gone, "could not unmount {}", self.dir.display());
            assert!(ended, "the daemon outlives its mount");
        }
    }
}

/// Whether any thread of the process still lives, and with it what the process has open and locked.
pub(crate) fn is_running(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads > 1 || threads == 1 && !is_in_state(pid, 'Z')
}

/// Whether that is the state of a process, as proc_pid_stat(5) has it.
fn is_in_state(pid: i32, state: char) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let found = stat.rsplit(')').next().unwrap().trim_start();
        found.starts_with(state)
    })
}

/// A daemon that is stopped until this is dropped.
pub(crate) struct Stopped(pub(crate) Pid);

impl Stopped {
    pub(crate) fn daemon_of(mnt: &Path) -> Self {
        let daemon = daemons_of(mnt)[0];
        let stopped = Self(Pid::from_raw(daemon).unwrap());
        kill_process(stopped.0, Signal::STOP).unwrap();
        // kill(2) does not wait for the process to stop
        eventually("stopped", || is_in_state(daemon, 'T'));
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

/// A folder with an ASDF file and an empty directory in it.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) file: PathBuf,
    pub(crate) mnt: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::of(&Sample::new(&array("flux", 0, "int32", "[5]")).block(Block::raw(&noise(20))))
    }

    pub(crate) fn of(sample: &Sample) -> Self {
        let dir = TempDir::new().unwrap();
        let file = sample.write(dir.path());
        let mnt = fs::canonicalize(dir.path()).unwrap().join("mnt");
        fs::create_dir(&mnt).unwrap();
        Self { dir, file, mnt }
    }

    /// The program on this file and mountpoint.
    pub(crate) fn mount(&self, options: &[&str]) -> Outcome {
        run(Command::new(PROGRAM)
            .args(options)
            .arg(&self.file)
            .arg(&self.mnt))
    }

    /// What a daemon in the foreground is given as `--pid-file`. It writes the file when it no longer asks its own mount: until then
    /// the mount may be busy.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.dir.path().join("pid")
    }

    /// Takes the mount away and waits for its daemon.
    pub(crate) fn unmount(&self) {
        let said = run(Command::new(PROGRAM).arg("-u").arg(&self.mnt));
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(mounted_at(&self.mnt).is_none());
        assert!(
            daemons_of(&self.mnt).is_empty(),
            "-u returned before the daemon was gone"
        );
    }
}

/// A refusal has this exit status, one line that says so much, and leaves nothing mounted.
#[track_caller]
pub(crate) fn assert_refused(said: &Outcome, code: i32, words: &str) {
    assert_eq!(said.code, code, "stderr: {}", said.stderr);
    assert_eq!(
        said.stderr.lines().count(),
        1,
        "not one line: {:?}",
        said.stderr
    );
    assert!(said.stderr.starts_with("asdf-mount: "), "{:?}", said.stderr);
    assert!(
        said.stderr.contains(words),
        "{words:?} is not in {:?}",
        said.stderr
    );
    assert_eq!(said.stdout, "");
}
