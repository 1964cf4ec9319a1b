//! What is written into the root and is not FILE's: scratch files, and texts that are no tree. And what looking costs.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use crate::common::{Mount, Place, can_mount, eventually};
use crate::sample::{Block, Sample, array, array_with};

/// The write was made first and undone then, and the memory kept: 1.5 GB of 64 MiB.
#[test]
fn what_the_scratch_limit_refuses_takes_no_memory_and_changes_nothing() {
    const ENOSPC: Option<i32> = Some(28);
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mount = Mount::new(&file, &["-o", "scratch=64K"]);
    for n in 0..6 {
        let name = format!("s{n}");
        let scratch = File::create(mount.path(&name)).unwrap();
        scratch.write_all_at(b"before", 0).unwrap();
        let refused = scratch.write_all_at(&vec![b'x'; 64 << 10], 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), ENOSPC);
        // a hole takes nothing
        scratch.set_len(260_000_000).unwrap();
        scratch.set_len(6).unwrap();
        scratch.write_all_at(b"before", 0).unwrap();
        drop(scratch);
        assert_eq!(mount.text(&name), "before");
    }
    assert!(mount.peak() < 100 << 10, "{} kB", mount.peak());
    let link = |n: u32| fs::hard_link(mount.path("s0"), mount.path(&format!("link{n}")));
    let refused = (0..1000).find_map(|n| link(n).err());
    assert_eq!(refused.and_then(|error| error.raw_os_error()), ENOSPC);
}

/// Closing it gave 0, and it was gone without a word.
#[test]
fn a_text_without_a_tree_is_kept_when_it_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let before = fs::read(&file).unwrap();
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let mount = Mount::new(&file, &[]);
    let good = mount.text("tree.yaml").replace("a: 1", "a: 2");
    fs::write(mount.path("tree.yaml"), "# a: 1\n").unwrap();
    // the kernel tells of the last close behind our back
    let status = || mount.text("info/status");
    eventually("the text is refused", || status().contains("NOT SAVED"));
    let why = "no tree begins in the text";
    assert!(status().contains(why), "{}", status());
    let kept = mount.attribute("tree.yaml", "user.asdf.rejected").unwrap();
    assert_eq!(kept, rejected.to_str().unwrap());
    assert_eq!(fs::read_to_string(&rejected).unwrap(), "# a: 1\n");
    assert_eq!(mount.text("tree.yaml"), "# a: 1\n");
    assert_eq!(fs::read(&file).unwrap(), before);

    fs::write(mount.path("tree.yaml"), &good).unwrap();
    assert!(!status().contains("NOT SAVED") && !rejected.exists());
    assert_eq!(mount.text("tree.yaml"), good);
}

#[test]
fn a_blank_text_is_forgotten_when_it_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let text = mount.text("tree.yaml");
    for blank in ["", "\n  \n", "\0\0\0\0"] {
        fs::write(mount.path("tree.yaml"), blank).unwrap();
        eventually("the text is back", || mount.text("tree.yaml") == text);
    }
    // touch, after rm
    fs::remove_file(mount.path("tree.yaml")).unwrap();
    drop(File::create_new(mount.path("tree.yaml")).unwrap());
    eventually("the text is back", || mount.text("tree.yaml") == text);
    assert!(!mount.text("info/status").contains("NOT SAVED"));
    assert!(!dir.path().join("sample.asdf.rejected.yaml").exists());
}

/// `head > tree.yaml; tail >> tree.yaml`: what was appended went behind FILE's text.
#[test]
fn a_text_may_be_written_in_two_goes() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mount = Mount::new(&file, &[]);
    let text = mount.text("tree.yaml").replace("a: 1", "a: 2");
    let (head, tail) = text.split_at(text.find("---").unwrap());
    fs::write(mount.path("tree.yaml"), head).unwrap();
    let mut appended = OpenOptions::new();
    let mut appended = appended.append(true).open(mount.path("tree.yaml")).unwrap();
    appended.write_all(tail.as_bytes()).unwrap();
    appended.sync_all().unwrap();
    assert!(fs::read_to_string(&file).unwrap().starts_with(&text));
    drop(appended);
    eventually("nothing is refused", || {
        !mount.text("info/status").contains("NOT SAVED")
    });
}

#[test]
fn the_texts_of_info_have_their_size_before_they_are_read() {
    const FILES: [&str; 3] = ["info/status", "info/blocks.tsv", "info/arrays.tsv"];
    if !can_mount() {
        return;
    }
    for count in [10, 1500] {
        let dir = TempDir::new().unwrap();
        let sample = (0..count).fold(Sample::new("a: 1\n"), |sample, _| {
            sample.block(Block::raw(b"abc"))
        });
        let mount = Mount::new(&sample.write(dir.path()), &["-r"]);
        let len = |name: &str| fs::metadata(mount.path(name)).unwrap().len();
        for name in FILES {
            let before = len(name);
            let text = mount.text(name).len() as u64;
            assert_eq!(before, text, "{name}");
        }
    }
}

#[test]
fn a_slash_in_a_key_is_told_from_those_between_keys_wherever_a_path_is_shown() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let body = format!(
        "{}x:\n  {}a/c: !core/ndarray-1.0.0 [1, b]\n",
        array("a/b%", 0, "uint8", "[1]"),
        array_with(
            "b/c",
            "source: 0, datatype: uint8, byteorder: little, shape: [2]"
        )
    );
    let file = Sample::new(&body)
        .block(Block::raw(b"ab"))
        .write(dir.path());
    let mount = Mount::new(&file, &["-r"]);
    let of = |file: &str| mount.attribute(file, "user.asdf.path").unwrap();
    assert_eq!(of("arrays/a%2Fb%25.bin"), "a%2Fb%25");
    assert_eq!(of("arrays/x/b%2Fc.bin"), "x/b%2Fc");
    assert_eq!(mount.table("info/blocks.tsv")[1][10], "a%2Fb%25,x/b%2Fc");
    let arrays = mount.table("info/arrays.tsv");
    let paths: Vec<&str> = arrays[1..].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(paths, ["a%2Fb%25", "x/b%2Fc", "a%2Fc"]);
}

#[test]
fn a_blank_text_that_is_forgotten_leaves_nothing_of_its_length() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.mount(&[]).code, 0);
    let tree = place.mnt.join("tree.yaml");
    let text = fs::read(&tree).unwrap();
    let mut blank = File::create(&tree).unwrap();
    blank.write_all(b"\n").unwrap();
    assert_eq!(fs::metadata(&tree).unwrap().len(), 1);
    drop(blank);
    // the last close of a file is told to the mount a moment after it
    eventually("FILE's tree", || {
        fs::metadata(&tree).unwrap().len() == text.len() as u64
    });
    assert_eq!(fs::read(&tree).unwrap(), text);
    place.unmount();
}
