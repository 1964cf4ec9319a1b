//! The limits that the system sets to the process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

use crate::common::{Mount, PROGRAM, Place, can_mount, daemons_of, run};
use crate::sample::{Block, Sample, array};

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
    let daemon = Pid::from_raw(daemons_of(&mount.dir)[0]);
    let limit = |current| {
        let maximum = None;
        prlimit(daemon, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    };
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
