//! What one mount has learnt of a block is there for the next.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::common::{Mount, Place, can_mount, daemons_of, eventually, run};
use crate::sample::{Block, Sample, noise};

const LEN: usize = 12_000_000;

/// Bytes that the daemon of a mount has read so far.
fn bytes_read(mount: &Mount) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", daemons_of(&mount.dir)[0])).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// Bytes that the daemon of a new mount reads to show the end of the block, which has to be right.
fn cost_of_the_end(file: &Path, option: &str, data: &[u8]) -> u64 {
    let mount = Mount::new(file, &["-r", "-o", option]);
    let before = bytes_read(&mount);
    let mut end = [0; 4096];
    let at = data.len() - end.len();
    let block = File::open(mount.path("blocks/0.bin")).unwrap();
    block.read_exact_at(&mut end, at as u64).unwrap();
    assert!(end == data[at..]);
    bytes_read(&mount) - before
}

fn indexes(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "index"))
        .collect()
}

#[test]
fn the_second_mount_of_a_zlib_block_reads_its_end_at_once() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let data = noise(LEN);
    let file = Sample::new("a: 1\n")
        .block(Block::zlib(&data))
        .write(dir.path());
    let kept = dir.path().join("kept");
    let option = format!("index-cache={}", kept.display());

    let first = Mount::new(&file, &["-r", "-o", &option]);
    let status = first.text("info/status");
    assert!(status.contains("indexes   none kept yet"), "{status}");
    assert!(first.read("blocks/0.bin").unwrap() == data);
    eventually("an index is kept", || indexes(&kept).len() == 1);
    let told = format!("indexes   kept in {}", kept.display());
    assert!(first.text("info/status").contains(&told));
    first.unmount();

    let whole = LEN as u64;
    let cost = cost_of_the_end(&file, &option, &data);
    assert!(cost < whole / 4, "{cost} bytes read");
    let cost = cost_of_the_end(&file, "index-cache=off", &data);
    assert!(cost >= whole, "{cost} bytes read");

    let later = SystemTime::now() + Duration::from_secs(5);
    File::open(&file).unwrap().set_modified(later).unwrap();
    let cost = cost_of_the_end(&file, &option, &data);
    assert!(
        cost >= whole,
        "{cost} bytes read of a file that has changed"
    );
}

/// A daemon with one thread that looked for an index in its own mount would wait for itself.
#[test]
fn no_index_is_looked_for_under_the_mountpoint() {
    if !can_mount() {
        return;
    }
    let data = noise(LEN);
    let place = Place::of(&Sample::new("a: 1\n").block(Block::zlib(&data)));
    let option = format!("threads=1,index-cache={}/blocks", place.mnt.display());
    let said = place.mount(&["-r", "-o", &option]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.stderr.contains("no indexes are kept"),
        "{}",
        said.stderr
    );
    let block = place.mnt.join("blocks/0.bin");
    let read = run(Command::new("timeout")
        .args(["-s", "KILL", "20", "md5sum"])
        .arg(block));
    if read.code != 0 {
        for daemon in daemons_of(&place.mnt) {
            run(Command::new("kill").args(["-KILL", &daemon.to_string()]));
        }
    }
    place.unmount();
    assert_eq!(read.code, 0, "{}", read.stderr);
}
