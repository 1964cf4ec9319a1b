//! What a refused text leaves, and when that goes; and what of a mount is not to be copied.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::{
    Mount, PATIENCE, PROGRAM, asdf_mount, can_mount, eventually, force_off, is_root, is_running,
    within,
};
use crate::sample::{Block, Index, Sample, array};

/// Shells, joe and busybox vi do not say that a text is refused.
#[test]
fn a_command_is_run_when_a_text_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let told = dir.path().join("told");
    let command = format!(
        "on-refuse=printf '%s|%s|%s' \"$ASDF_MOUNT_FILE\" \"$ASDF_MOUNT_LINE\" \"$ASDF_MOUNT_REASON\" > {0}.tmp; mv {0}.tmp {0}; false",
        told.display()
    );
    let log = dir.path().join("log");
    let mount = Mount::new(
        &file,
        &["-o", &command, "--log-file", log.to_str().unwrap()],
    );
    let bad = mount.text("tree.yaml").replace("a: 1", "a: [$(touch x)`\"");
    fs::write(mount.path("tree.yaml"), bad).unwrap();
    eventually("the command has run", || told.exists());
    let said = fs::read_to_string(&told).unwrap();
    let real = fs::canonicalize(&file).unwrap();
    let start = format!("{}|7|line 7, column 1: ", real.display());
    assert!(said.starts_with(&start), "{said}");
    eventually("its failure is in the log", || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("-o on-refuse: exit status: 1")
    });
}

/// It was told that it is the daemon: a mount that it made never went into the background.
#[test]
fn the_command_has_the_environment_that_the_mount_was_made_with() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let told = dir.path().join("told");
    let command = format!("on-refuse=env > {0}.tmp; mv {0}.tmp {0}", told.display());
    let mount = Mount::new(&file, &["-o", &command]);
    let bad = mount.text("tree.yaml").replace("a: 1", "a: [");
    fs::write(mount.path("tree.yaml"), bad).unwrap();
    eventually("the command has run", || told.exists());
    let said = fs::read_to_string(&told).unwrap();
    let has = |name: &str| said.lines().any(|line| line.starts_with(name));
    assert!(has("ASDF_MOUNT_FILE="), "{said}");
    for own in ["ASDF_MOUNT_DAEMON=", "ASDF_MOUNT_URLS="] {
        assert!(!has(own), "{said}");
    }
}

/// fsync(2) and close(2) refuse it both.
#[test]
fn a_command_is_run_once_for_a_text_that_is_synced_and_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let told = dir.path().join("told");
    let command = format!("on-refuse=echo x >> {}", told.display());
    let log = dir.path().join("log");
    let log_file = ["--log-file", log.to_str().unwrap()];
    let mount = Mount::new(&file, &["-o", &command, log_file[0], log_file[1]]);
    let bad = mount.text("tree.yaml").replace("a: 1", "a: [");
    let mut tree = File::create(mount.path("tree.yaml")).unwrap();
    tree.write_all(bad.as_bytes()).unwrap();
    tree.sync_all().unwrap_err();
    drop(tree);
    let told = || fs::read_to_string(&told).unwrap_or_default();
    eventually("the command has run", || !told().is_empty());
    mount.unmount();
    assert_eq!(told(), "x\n");
    let said = fs::read_to_string(log).unwrap();
    assert!(!said.contains("on-refuse"), "{said}");
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

/// The text of before was put over it, as if it had been refused last.
#[test]
fn a_refused_text_outlives_the_refused_one_that_an_editor_moves_back() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let (tree, backup) = (mount.path("tree.yaml"), mount.path("tree.yaml~"));
    let bad = |end: &str| {
        mount
            .text("tree.yaml")
            .replace("a: 1", &format!("a: [{end}"))
    };
    let (first, second) = (bad("first"), bad("second"));
    let refused = |text: &str| {
        let mut file = File::create(&tree).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap_err();
    };
    refused(&first);
    assert_eq!(fs::read_to_string(&rejected).unwrap(), first);
    fs::rename(&tree, &backup).unwrap();
    refused(&second);
    fs::remove_file(&tree).unwrap();
    let moved_back = fs::rename(&backup, &tree).unwrap_err();
    assert_eq!(moved_back.raw_os_error(), Some(5));
    assert_eq!(fs::read_to_string(&rejected).unwrap(), second);
    assert_eq!(fs::read_to_string(&backup).unwrap(), first);
    assert!(mount.text("info/status").contains("NOT SAVED"));
}

#[test]
fn both_names_stay_as_a_rename_over_a_refused_text_is_refused() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let (tree, new) = (mount.path("tree.yaml"), mount.path("sedAbCdEf"));
    let good = mount.text("tree.yaml");
    let first = good.replace("a: 1", "a: [1");
    let written = File::create(&tree).and_then(|mut file| {
        file.write_all(first.as_bytes())?;
        file.sync_all()
    });
    assert_eq!(written.unwrap_err().raw_os_error(), Some(5));
    assert_eq!(fs::read_to_string(&tree).unwrap(), first);

    let second = first.replace("[1", "[2");
    fs::write(&new, &second).unwrap();
    let renamed = fs::rename(&new, &tree).unwrap_err();
    assert_eq!(renamed.raw_os_error(), Some(5));
    for file in [&rejected, &new] {
        assert_eq!(fs::read_to_string(file).unwrap(), second, "{file:?}");
    }
    assert_eq!(fs::read_to_string(&tree).unwrap(), first);
    fs::remove_file(&new).unwrap();
    fs::write(&tree, second.replace("[2", "[2]")).unwrap();
    assert_eq!(mount.text("tree.yaml"), good.replace("a: 1", "a: [2]"));
    assert!(!rejected.exists());
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
    // all descriptors share the text, which is good now
    same.sync_all().unwrap();
    drop(same);
    assert_eq!(mount.text("tree.yaml"), good);
    let status = mount.text("info/status");
    assert!(!status.contains("NOT SAVED"), "{status}");
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
fn each_descriptor_may_try_the_refused_text_again() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let tree = mount.path("tree.yaml");
    let wants_a_block = |shape: &str| {
        let array = array("x", 0, "uint8", shape);
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
    assert_eq!(
        mount.read("arrays/x.bin").unwrap(),
        [0; 6],
        "they share the text"
    );
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
    // half a text: a process that another test forks may close its copy of the descriptor now, which saves what is whole
    let (half, rest) = text.split_at(text.len() / 2);
    edited.write_all(half.as_bytes()).unwrap();
    let other = fs::read_to_string(&file).unwrap().replace("a: 1", "a: 31");
    fs::write(&file, &other).unwrap();
    eventually("the other text is noticed", || {
        let len = format!(", {} bytes\n", other.len());
        mount.text("info/status").contains(&len)
    });
    edited.write_all(rest.as_bytes()).unwrap();
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
        "plain: &plain {{{fields}}}\nin_map: {0}\nin_list: [{0}, {0}]\nmerged: {1}\n\
        through: {{<<: {{inner: {0}}}}}\nlast: 1\n",
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
        (
            format!("inner: {}", array(fields)),
            format!("inner: {{{fields}}}"),
            "through/inner",
        ),
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

/// A file whose second block has lost its header, and its bytes.
fn without_a_header(sample: &Sample) -> (TempDir, PathBuf, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mut bytes = fs::read(&file).unwrap();
    let magics = bytes.windows(4).enumerate();
    let mut headers = magics.filter(|(_, four)| four == b"\xd3BLK");
    let second = headers.nth(1).unwrap().0;
    bytes[second..second + 54].fill(0);
    fs::write(&file, &bytes).unwrap();
    (dir, file, bytes)
}

#[test]
fn a_refused_text_is_given_up_when_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    let mount = Mount::new(&file, &[]);
    let tree = mount.path("tree.yaml");
    let good = fs::read(&tree).unwrap();
    let status = || mount.text("info/status");
    for asked in [mount.dir.as_os_str(), file.as_os_str()] {
        let written = File::create(&tree).and_then(|mut file| {
            file.write_all(b"no tree\n")?;
            file.sync_all()
        });
        assert!(written.is_err());
        assert_eq!(fs::read(&tree).unwrap(), b"no tree\n");
        assert!(status().contains("\nrevert    asdf-mount --revert "));
        let said = asdf_mount([OsStr::new("--revert"), asked]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.ends_with(".rejected.yaml\n"), "{}", said.stderr);
        assert_eq!(fs::read(&tree).unwrap(), good);
        assert!(!status().contains("NOT SAVED"), "{}", status());
        assert!(rejected.exists());
    }
    // both texts are the user's, and an unmount has nothing to tell
    let said = asdf_mount([OsStr::new("-u"), mount.dir.as_os_str()]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let second = dir.path().join("sample.asdf.2.rejected.yaml");
    for kept in [&rejected, &second] {
        assert_eq!(fs::read(kept).unwrap(), b"no tree\n");
    }
    fs::remove_file(second).unwrap();

    let mount = Mount::new(&file, &[]);
    let older = format!("\nrejected  {}: ", rejected.display());
    assert!(mount.text("info/status").contains(&older));
    fs::remove_file(&rejected).unwrap();
    assert!(!mount.text("info/status").contains(&older));
    let said = asdf_mount([OsStr::new("--revert"), dir.path().as_os_str()]);
    assert_eq!(said.code, 10, "{}", said.stderr);
}

/// Writes a text that is refused.
fn be_refused(mount: &Mount, text: &str) {
    let written = File::create(mount.path("tree.yaml")).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    assert!(written.is_err(), "{text}");
}

/// The next refused text, or good save, took away what the user had written into the file, or had put there.
#[test]
fn a_file_is_neither_overwritten_nor_removed_once_it_is_the_users() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let good = mount.text("tree.yaml");
    let bad = |end: &str| good.replace("a: 1", &format!("a: [{end}"));
    let [first, second, third] = ["", "2.", "3."].map(|number| {
        dir.path()
            .join(format!("sample.asdf.{number}rejected.yaml"))
    });
    let text = |file: &PathBuf| fs::read_to_string(file).unwrap();
    // given up: the user was told where it is
    be_refused(&mount, &bad("one"));
    let said = asdf_mount([OsStr::new("--revert"), mount.dir.as_os_str()]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    be_refused(&mount, &bad("two"));
    assert_eq!(text(&first), bad("one"));
    assert_eq!(text(&second), bad("two"));
    // corrected, but another program writes first
    fs::write(&second, "an hour of work").unwrap();
    be_refused(&mount, &bad("three"));
    assert_eq!(text(&second), "an hour of work");
    assert_eq!(text(&third), bad("three"));
    // moved away, and another file put there
    fs::rename(&third, dir.path().join("mine")).unwrap();
    fs::write(&third, "mine, too").unwrap();
    fs::write(mount.path("tree.yaml"), &good).unwrap();
    assert!(!mount.text("info/status").contains("NOT SAVED"));
    assert_eq!(text(&third), "mine, too");
    assert_eq!(text(&first), bad("one"));
}

/// What is corrected as the manual says leaves no file behind.
#[test]
fn a_corrected_file_goes_when_its_text_is_saved() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&Sample::new("a: 1\n").write(dir.path()), &[]);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    be_refused(&mount, &mount.text("tree.yaml").replace("a: 1", "a: [1"));
    let text = fs::read_to_string(&rejected).unwrap();
    fs::write(&rejected, text.replace("a: [1", "a: [1, 2]")).unwrap();
    fs::copy(&rejected, mount.path("tree.yaml")).unwrap();
    assert!(mount.text("tree.yaml").contains("a: [1, 2]"));
    assert!(!rejected.exists());
}

/// The only copy was given up, with a message that named a file which was no longer there.
#[test]
fn a_refused_text_is_kept_again_when_its_file_is_gone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("d")).unwrap();
    let file = Sample::new("a: 1\n").write(&at("d"));
    let rejected = file.with_file_name("sample.asdf.rejected.yaml");
    let mount = Mount::new(&file, &[]);
    let bad = mount.text("tree.yaml").replace("a: 1", "a: [");
    let kept = |path: &PathBuf| fs::read_to_string(path).unwrap();
    be_refused(&mount, &bad);
    fs::remove_file(&rejected).unwrap();
    assert!(mount.text("info/status").contains("your text is in /"));
    assert_eq!(kept(&rejected), bad);

    fs::remove_file(&rejected).unwrap();
    let named = mount.attribute("tree.yaml", "user.asdf.rejected").unwrap();
    assert_eq!(kept(&PathBuf::from(named)), bad);

    fs::remove_file(&rejected).unwrap();
    let said = asdf_mount([OsStr::new("--revert"), mount.dir.as_os_str()]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(kept(&rejected), bad);

    // its directory has another name, and another directory has that of before
    fs::remove_file(&rejected).unwrap();
    be_refused(&mount, &bad);
    fs::rename(at("d"), at("old")).unwrap();
    fs::create_dir(at("d")).unwrap();
    let moved = at("old").join("sample.asdf.rejected.yaml");
    let status = mount.text("info/status");
    let place = format!("your text is in {}\n", moved.display());
    assert!(status.contains(&place), "{status}");

    fs::remove_file(&moved).unwrap();
    let said = asdf_mount([OsStr::new("-u"), mount.dir.as_os_str()]);
    assert_eq!(said.code, 40, "{}", said.stderr);
    let place = format!("it is kept in {}\n", moved.display());
    assert!(said.stderr.ends_with(&place), "{}", said.stderr);
    assert_eq!(kept(&moved), bad);
}

/// A mount that root made for others kept the texts of all users where only root could read them.
#[test]
fn a_refused_text_of_another_users_file_is_that_users() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    for (owner, mode) in [(0, 0o600), (1234, 0o640)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        chown(&file, Some(owner), Some(owner)).unwrap();
        let mount = Mount::new(&file, &[]);
        let _ = fs::write(mount.path("tree.yaml"), "no tree\n");
        eventually("it is refused", || rejected.exists());
        let kept = fs::metadata(&rejected).unwrap();
        assert_eq!((kept.uid(), kept.mode() & 0o777), (owner, mode));
        // also where FILE has another name by then
        fs::rename(&file, dir.path().join("b.asdf")).unwrap();
        let before = kept.ino();
        let _ = fs::write(mount.path("tree.yaml"), "no tree either\n");
        eventually("that is kept", || {
            fs::metadata(&rejected).is_ok_and(|kept| kept.ino() != before)
        });
        let kept = fs::metadata(&rejected).unwrap();
        assert_eq!((kept.uid(), kept.mode() & 0o777), (owner, mode));
        drop(mount);
        fs::rename(dir.path().join("b.asdf"), &file).unwrap();
        fs::remove_file(&rejected).unwrap();
    }
}

/// The kernel holds the lock of a directory while an attribute of it is set. The thread that had it forget names waited for that lock,
/// and the reply for the thread: for a second, and for ever where the daemon was killed meanwhile.
#[test]
fn giving_a_text_up_does_not_wait_for_itself() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let mountpoint = fs::canonicalize(dir.path()).unwrap().join("mnt");
    let mut daemon = Command::new(PROGRAM)
        .arg("--foreground")
        .args([&file, &mountpoint])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let tree = mountpoint.join("tree.yaml");
    eventually("it is mounted", || tree.exists());
    let _ = fs::write(&tree, "no tree\n");
    eventually("it is refused", || {
        dir.path().join("sample.asdf.rejected.yaml").exists()
    });
    let mut asking = Command::new(PROGRAM)
        .arg("--revert")
        .arg(&mountpoint)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = i32::try_from(daemon.id()).unwrap();
    eventually("it is given up", || {
        let waits = "(invalidate) D ";
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let mut stats = tasks.flat_map(|task| fs::read_to_string(task.path().join("stat")));
        asking.try_wait().unwrap().is_some() || stats.any(|stat| stat.contains(waits))
    });
    daemon.kill().unwrap();
    let ended = within(PATIENCE, &mut || {
        !is_running(id) && asking.try_wait().unwrap().is_some()
    });
    force_off(&mountpoint);
    daemon.wait().unwrap();
    assert!(ended);
}

/// The advice named the block where the datatype was wrong.
#[test]
fn a_refusal_says_what_is_to_be_corrected() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("a", 0, "uint8", "[100]")).block(Block::raw(&[1; 100]));
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &[]);
    let tree = mount.path("tree.yaml");
    let good = fs::read_to_string(&tree).unwrap();
    for (old, new, advice) in [
        (
            "uint8",
            "float33",
            "unknown datatype 'float33': there are int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, complex64, complex128, bool8, [ascii, N] and [ucs4, N]; correct it; your text is in ",
        ),
        (
            "[100]",
            "[101]",
            "correct it, or the number of the block; your text is in ",
        ),
    ] {
        let text = good.replace(old, new);
        let written = File::create(&tree).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        assert!(written.is_err());
        let status = mount.text("info/status");
        assert!(status.contains(advice), "{status}");
    }
}

#[test]
fn the_status_tells_what_is_mounted_and_when_it_has_gone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let tree = format!(
        "asdf_library: !core/software-1.0.0 {{name: asdf, version: 4.1.0}}\n{}{}",
        array("small", 0, "uint8", "[100]"),
        array("large", 1, "uint8", "[20, 100]")
    );
    let sample = Sample::new(&tree)
        .block(Block::raw(&[1; 100]))
        .block(Block::raw(&[2; 2000]));
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &["-o", "cache=32M,fits"]);
    let status = mount.text("info/status");
    for line in [
        "written   by asdf 4.1.0\n",
        " of asdf-mount 0.1.0, -o cache=32M,fits\n",
        "view      fits/: arrays and tables as FITS files\noffered   -o previews: pictures of arrays\n",
        "array     large: uint8 [20, 100], 2000 bytes (1.9 KiB)\narray     small: uint8 [100], 100 bytes\n",
        "of 33554432 bytes (32.0 MiB)\n",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let moved = dir.path().join("moved.asdf");
    let longer = mount.text("tree.yaml").replace("\n...", "\n# more\n...");
    let tree = mount.path("tree.yaml");
    let mut tree = File::options().write(true).open(tree).unwrap();
    fs::rename(&file, &moved).unwrap();
    let gone = "the file is no longer there: it was moved or removed, and nothing can be saved; what was opened is still shown, copy it out";
    let changed = format!("\nchanged   {gone}\n");
    assert!(mount.text("info/status").contains(&changed));
    assert_eq!(mount.read("arrays/small.bin").unwrap(), [1; 100]);
    // a save of the tree finds that out, too, and said so in other words
    tree.write_all(longer.as_bytes()).unwrap();
    tree.sync_all().unwrap_err();
    drop(tree);
    let status = mount.text("info/status");
    assert_eq!(status.matches("\nchanged ").count(), 1, "{status}");
    assert!(status.contains(&changed), "{status}");
    assert!(
        status.contains(&format!("\nsave      NOT SAVED: tree.yaml: {gone}; ")),
        "{status}"
    );
    assert!(
        status.contains("\nmount     writable once the file is there again\n"),
        "{status}"
    );
    fs::rename(&moved, &file).unwrap();
    assert!(!mount.text("info/status").contains(&changed));
}

#[test]
fn a_file_with_a_lost_block_header_shows_the_other_blocks_and_is_not_saved() {
    if !can_mount() {
        return;
    }
    let data = [1, 2, 3].map(|n| vec![n; 100]);
    let body: Vec<String> = (0..3)
        .map(|n| array(&format!("a{n}"), n, "uint8", "[100]"))
        .collect();
    let sample = data
        .iter()
        .fold(Sample::new(&body.concat()), |sample, data| {
            sample.block(Block::raw(data))
        });
    let (_dir, file, damaged) = without_a_header(&sample);
    let mount = Mount::new(&file, &[]);
    assert_eq!(mount.read("arrays/a0.bin").unwrap(), data[0]);
    assert_eq!(mount.read("arrays/a2.bin").unwrap(), data[2]);
    assert!(mount.read("arrays/a1.bin").is_err());
    let error = mount.read("blocks/1.bin").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    for name in ["info/status", "info/blocks.tsv", "info/arrays.tsv"] {
        let text = mount.text(name);
        assert!(text.contains("its header is lost"), "{name}: {text}");
    }
    let error = fs::write(mount.path("tree.yaml"), b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30));
    drop(mount);
    let repair = [
        OsStr::new("--check"),
        OsStr::new("--repair"),
        file.as_os_str(),
    ];
    let said = asdf_mount(repair);
    assert_eq!(said.code, 23, "{said:?}");
    assert!(said.stdout.contains("not repaired: "), "{said:?}");
    assert!(
        fs::read(&file).unwrap() == damaged,
        "the file has been changed"
    );
}

#[test]
fn blocks_behind_a_lost_header_that_no_index_tells_of_are_only_shown_by_force() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("a", 0, "uint8", "[100]"))
        .block(Block::raw(&[1; 100]))
        .block(Block::raw(&[2; 100]))
        .block(Block::raw(&[3; 100]))
        .index(Index::Absent);
    let (_dir, file, _) = without_a_header(&sample);
    let said = asdf_mount([OsStr::new("--check"), file.as_os_str()]);
    assert_eq!(said.code, 23, "{}{}", said.stdout, said.stderr);
    let mount = Mount::new(&file, &["-o", "force"]);
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 100]);
    assert_eq!(mount.read("blocks/1.bin").unwrap(), [3; 100]);
    assert!(mount.text("info/status").contains("in doubt"));
}
