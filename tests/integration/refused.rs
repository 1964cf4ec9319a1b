//! What a refused text leaves, and when that goes; and what of a mount is not to be copied.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use crate::common::{Mount, can_mount};
use crate::sample::{Block, Sample};

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
fn a_text_refused_once_does_not_come_back_when_its_last_descriptor_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let tree = mount.path("tree.yaml");
    let good = mount.text("tree.yaml").replace("a: 1", "a: 2");

    let mut bad = File::create(&tree).unwrap();
    let same = bad.try_clone().unwrap();
    bad.write_all(good.replace("a: 2", "a: [").as_bytes())
        .unwrap();
    bad.sync_all().unwrap_err();
    fs::write(&tree, &good).unwrap();
    drop(bad);
    same.sync_all().unwrap_err();
    drop(same);
    assert_eq!(mount.text("tree.yaml"), good);
    assert!(!mount.text("info/status").contains("NOT SAVED"));
}

#[test]
fn a_refused_text_that_is_written_again_is_kept_again() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let tree = mount.path("tree.yaml");
    let good = mount.text("tree.yaml").replace("a: 1", "a: 2");
    let bad = good.replace("a: 2", "a: [");

    let file = File::create(&tree).unwrap();
    let write = || {
        file.write_all_at(bad.as_bytes(), 0).unwrap();
        file.sync_all().unwrap_err();
    };
    write();
    fs::write(&tree, &good).unwrap();
    assert!(!rejected.exists());
    write();
    assert_eq!(fs::read_to_string(&rejected).unwrap(), bad);
    assert!(mount.text("info/status").contains("NOT SAVED"));
}

#[test]
fn each_descriptor_may_try_its_refused_text_again() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let tree = mount.path("tree.yaml");
    let wants_a_block = |shape: &str| {
        let array = crate::sample::array("x", 0, "uint8", shape);
        mount.text("tree.yaml").replace("a: 1\n", &array)
    };
    let texts = ["[5]", "[6]"].map(wants_a_block);
    let files = texts.each_ref().map(|text| {
        let file = File::options().write(true).open(&tree).unwrap();
        file.set_len(0).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
        file.sync_all().unwrap_err();
        file
    });
    fs::write(mount.path("blocks/0.bin"), [0; 6]).unwrap();
    files[0].sync_all().unwrap();
    assert_eq!(mount.read("arrays/x.bin").unwrap(), [0; 5]);
}

#[test]
fn a_text_that_is_being_written_does_not_undo_what_another_program_does_meanwhile() {
    const ESTALE: Option<i32> = Some(116);
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mount = Mount::new(&file, &[]);
    let text = mount.text("tree.yaml").replace("a: 1", "a: 2");
    let mut edited = File::create(mount.path("tree.yaml")).unwrap();
    edited.write_all(text.as_bytes()).unwrap();
    let other = fs::read_to_string(&file).unwrap().replace("a: 1", "a: 3");
    fs::write(&file, &other).unwrap();
    // longer than the time after which the file is looked at again, which nothing tells of
    let begun = std::time::Instant::now();
    while begun.elapsed().as_millis() < 2500 {
        fs::metadata(mount.path("info")).unwrap();
        fs::metadata(mount.path("nothing")).unwrap_err();
    }
    assert_eq!(edited.sync_all().unwrap_err().raw_os_error(), ESTALE);
    assert_eq!(fs::read_to_string(&file).unwrap(), other);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    assert_eq!(fs::read_to_string(rejected).unwrap(), text);
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

#[test]
fn an_array_that_lost_its_tag_is_told_of_wherever_it_stands() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let fields = "source: 0, datatype: uint8, byteorder: little, shape: [4]";
    let array = |fields: &str| format!("!core/ndarray-1.0.0 {{{fields}}}");
    let tree = format!(
        "plain: &plain {{{fields}}}\nin_map: {0}\nin_list: [{0}, {0}]\nmerged: {1}\nlast: 1\n",
        array(fields),
        array("<<: *plain"),
    );
    let file = Sample::new(&tree)
        .block(Block::raw(&[1; 4]))
        .write(dir.path());
    let mount = Mount::new(&file, &[]);
    let path = mount.path("tree.yaml");
    let text = mount.text("tree.yaml");

    let in_list = format!("[{0}, {0}]", array(fields));
    let half_list = format!("[{}, {{{fields}}}]", array(fields));
    for (from, to, lost) in [
        (
            format!("in_map: {}", array(fields)),
            format!("in_map: {{{fields}}}"),
            "in_map",
        ),
        (in_list, half_list, "in_list/1"),
        (array("<<: *plain"), "{<<: *plain}".to_owned(), "merged"),
    ] {
        let untagged = text.replace(&from, &to);
        assert_ne!(untagged, text, "{from}");
        // refused when it is closed, which `write` does not tell
        fs::write(&path, untagged).unwrap();
        let status = mount.text("info/status");
        let why = format!("array {lost} has lost its tag tag:stsci.edu:asdf/core/ndarray-1.0.0");
        assert!(status.contains(&why), "{status}");
    }
    fs::write(&path, text.replace("last: 1", "last: 2")).unwrap();
    assert!(!mount.text("info/status").contains("NOT SAVED"));
}
