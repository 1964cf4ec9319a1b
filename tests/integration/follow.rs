//! Files that grow while they are mounted, followed by programs that read on at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::{Mount, can_mount, eventually};
use crate::sample::{Block, Sample, array, noise};

/// How long a reader may take to see what was appended; `tail` looks once a second, as the kernel does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads on after the end of the file, as a program would that waits for data.
const PYTHON: &str = "import sys, time
with open(sys.argv[1], 'rb', buffering=0) as f:
    while True:
        data = f.read(1 << 16)
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            time.sleep(0.01)
";

/// A program that follows a file, with what it has said so far.
struct Follower {
    child: Child,
    said: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    name: String,
}

impl Follower {
    fn new(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n) = out.read(&mut bytes)
                && n > 0
                && sender.send(bytes[..n].to_vec()).is_ok()
            {}
        });
        Self {
            child,
            said,
            seen: Vec::new(),
            name,
        }
    }

    /// Waits until it has said so much, and compares it.
    fn expect(&mut self, wanted: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.len() < wanted.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(RecvTimeoutError::Timeout) => panic!(
                    "{}: {} of {} bytes",
                    self.name,
                    self.seen.len(),
                    wanted.len()
                ),
                Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.name),
            }
        }
        let differs = self.seen.iter().zip(wanted).position(|(a, b)| a != b);
        assert!(self.seen == wanted, "{}: differs at {differs:?}", self.name);
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The ways in which people follow a file.
fn followers(path: &Path) -> Vec<Follower> {
    let mut all: Vec<_> = [
        vec!["-f"],
        vec!["-F"],
        vec!["-f", "---disable-inotify"],
        vec!["-f", "-s", "0.05"],
    ]
    .iter()
    .map(|options| {
        let mut tail = Command::new("tail");
        Follower::new(tail.args(options).args(["-c", "+1"]).arg(path))
    })
    .collect();
    let mut python = Command::new("python3");
    all.push(Follower::new(python.args(["-c", PYTHON]).arg(path)));
    all
}

fn append(file: &Path, data: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(data).unwrap();
}

fn streamed() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let start = noise(5000);
    let sample = Sample::new(&array("x", -1, "uint8", "['*']")).block(Block::streamed(&start));
    let file = sample.write(dir.path());
    (dir, file, start)
}

/// Appends in steps of odd sizes, over page boundaries and over many pages; all followers must see each.
fn follow(options: &[&str]) {
    let (_dir, file, mut data) = streamed();
    let mount = Mount::new(&file, options);
    let mut followers = followers(&mount.path("blocks/0.bin"));
    for step in [1, 700, 300_000] {
        for follower in &mut followers {
            follower.expect(&data);
        }
        let more = &noise(data.len() + step)[data.len()..];
        append(&file, more);
        data.extend(more);
    }
    for follower in &mut followers {
        follower.expect(&data);
    }
    drop(followers);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), data);
    eventually("the array has grown", || {
        mount.read("arrays/x.bin").unwrap() == data
    });
}

#[test]
fn a_streamed_block_can_be_followed() {
    if can_mount() {
        follow(&["-r"]);
    }
}

#[test]
fn a_streamed_block_can_be_followed_while_the_file_may_be_saved() {
    if can_mount() {
        follow(&[]);
    }
}

#[test]
fn a_mapped_reader_sees_what_was_appended() {
    if !can_mount() {
        return;
    }
    let (_dir, file, mut data) = streamed();
    let mount = Mount::new(&file, &["-r"]);
    let path = mount.path("blocks/0.bin");
    // a page that holds the old end of the file is known to the kernel, with zeros behind it
    let open = File::open(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    let more = noise(9000);
    append(&file, &more);
    data.extend(&more);
    eventually("the size has grown", || {
        open.metadata().unwrap().len() == data.len() as u64
    });
    let said = mapped(&path);
    assert!(said == data, "{} bytes", said.len());
}

/// What a program finds in a map of a file that it has just opened.
fn mapped(path: &Path) -> Vec<u8> {
    let script = "import mmap, sys; f = open(sys.argv[1], 'rb'); sys.stdout.buffer.write(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[:])";
    let mut command = Command::new("python3");
    let said = command.args(["-c", script]).arg(path).output();
    said.unwrap().stdout
}

/// A map of them was refused (ENODEV): readers of tables that map their files, such as that of pandas with `memory_map`, failed.
#[test]
fn the_files_that_describe_the_mount_can_be_mapped() {
    if !can_mount() {
        return;
    }
    let (_dir, file, _) = streamed();
    let mount = Mount::new(&file, &[]);
    for before in [true, false] {
        for name in ["arrays.tsv", "blocks.tsv", "stats.tsv", "tree.json"] {
            let path = mount.path("info").join(name);
            assert_eq!(mapped(&path), fs::read(&path).unwrap(), "{name}");
        }
        if before {
            let text = mount.text("tree.yaml");
            fs::write(mount.path("tree.yaml"), text.replace("x:", "another:")).unwrap();
        }
    }
    assert!(mount.text("info/arrays.tsv").contains("another"));
}
