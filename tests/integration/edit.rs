//! Edits that get in the way of each other: by several at once, and after one that was refused.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use crate::common::{Mount, can_mount};
use crate::sample::{Block, Sample, array, noise};

#[test]
fn what_is_written_while_a_save_runs_is_in_the_next_save() {
    const LEN: usize = 200_000;
    const WRITES: usize = 200;
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    // through two files: the kernel lets writing and syncing one file wait for each other
    let file = Sample::new(&array("x", 0, "uint8", &format!("[{LEN}]")))
        .block(Block::zlib(&noise(LEN)))
        .write(dir.path());
    let mount = Mount::new(&file, &[]);
    let open = |name| {
        let file = OpenOptions::new().write(true).open(mount.path(name));
        file.unwrap()
    };
    let (saving, writing) = (open("blocks/0.bin"), open("arrays/x.bin"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for n in 0..WRITES {
                writing.write_all_at(&[n as u8], (n * 1000) as u64).unwrap();
            }
        });
        while !writer.is_finished() {
            saving.sync_all().unwrap();
        }
    });
    drop(saving);
    mount.unmount();
    let mount = Mount::new(&file, &["-r"]);
    let found = fs::read(mount.path("blocks/0.bin")).unwrap();
    let lost = (0..WRITES).filter(|n| found[n * 1000] != *n as u8).count();
    assert_eq!(lost, 0, "of {WRITES} writes");
}

#[test]
fn a_good_text_that_is_renamed_over_the_tree_ends_what_was_refused_before() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let mount = Mount::new(&file, &[]);
    let (tree, other) = (mount.path("tree.yaml"), mount.path("other"));
    let good = fs::read(&tree).unwrap();
    let bad = [&good[..], b"and more"].concat();
    let pending = || mount.text("info/status").contains("NOT SAVED");

    // sed -i twice, the second time back to what it was
    fs::write(&other, &bad).unwrap();
    assert_eq!(
        fs::rename(&other, &tree).unwrap_err().raw_os_error(),
        Some(5)
    );
    assert!(pending() && rejected.exists());
    assert_eq!(fs::read(&tree).unwrap(), good, "the old text stays there");
    fs::write(&other, &good).unwrap();
    fs::rename(&other, &tree).unwrap();
    assert!(!pending() && !rejected.exists());

    // an editor that moves the tree away, is refused, and moves it back
    fs::rename(&tree, &other).unwrap();
    let written = File::create(&tree).and_then(|mut file| {
        file.write_all(&bad)?;
        file.sync_all()
    });
    assert_eq!(written.unwrap_err().raw_os_error(), Some(5));
    fs::rename(&other, &tree).unwrap();
    assert_eq!(fs::read(&tree).unwrap(), good);
    assert!(pending() && rejected.exists(), "the text is lost");
}

#[test]
fn attributes_of_the_mount_are_not_copied_with_its_root() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &["-r"]);
    let mut list = vec![0; 4096];
    let len = rustix::fs::listxattr(&mount.dir, &mut list).unwrap();
    list.truncate(len);
    let list = String::from_utf8(list).unwrap();
    for (name, listed) in [("version", true), ("pid", false), ("cache_used", false)] {
        let name = format!("user.asdf.{name}");
        assert_eq!(
            list.split('\0').any(|found| found == name),
            listed,
            "{name}"
        );
        assert!(mount.attribute("", &name).is_some(), "{name}");
    }
}
