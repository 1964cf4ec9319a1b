//! Many files in one mount: what is shown, what is open, how members come, change and go.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{
    Mount, PROGRAM, asdf_mount, assert_refused, can_mount, daemons_of, eventually, is_root,
    kernel_keeps, mounted_at, run,
};
use crate::sample::{Block, Sample, array, noise};

/// A file with a number in its tree, and an array over a block that depends on it.
pub(crate) fn sample(n: usize) -> Sample {
    let tree = format!("n: {n}\n{}", array("flux", 0, "uint8", "[64]"));
    Sample::new(&tree).block(Block::raw(&data(n)))
}

/// The bytes of its block.
pub(crate) fn data(n: usize) -> Vec<u8> {
    noise(64)
        .iter()
        .map(|byte| byte.wrapping_add(n as u8))
        .collect()
}

/// Files of these names, each with its place in the list as its number.
pub(crate) fn files(names: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (n, name) in names.iter().enumerate() {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, sample(n).bytes()).unwrap();
    }
    dir
}

/// How many of these files the daemon has open.
pub(crate) fn open_files(mount: &Mount, dir: &Path) -> usize {
    let daemon = daemons_of(&mount.dir)[0];
    let dir = fs::canonicalize(dir).unwrap();
    let fds = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap();
    fds.flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .filter(|path| path.starts_with(&dir) && path.extension().is_some())
        .collect::<HashSet<_>>()
        .len()
}

#[test]
fn a_directory_is_mirrored_with_its_files_as_directories() {
    if !can_mount() {
        return;
    }
    let dir = files(&[
        "a.asdf",
        "visit 3/b.asdf",
        "visit 3/deep/c.asdf",
        "empty/x.txt",
        // the report takes its place
        ".asdf-mount/d.asdf",
    ]);
    let root = dir.path();
    fs::write(root.join("note.txt"), "").unwrap();
    symlink("a.asdf", root.join("link.asdf")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    fs::set_permissions(root.join("a.asdf"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("empty"), Permissions::from_mode(0o750)).unwrap();
    let mount = Mount::new(root, &[]);
    assert_eq!(mount.names(""), ["a.asdf", "empty", "visit 3"]);
    assert_eq!(mount.names("visit 3"), ["b.asdf", "deep"]);
    assert!(mount.names("empty").is_empty());
    let shown = mount.names("visit 3/deep/c.asdf");
    assert_eq!(shown, ["arrays", "blocks", "info", "tree.yaml"]);
    for (n, name) in ["a.asdf", "visit 3/b.asdf", "visit 3/deep/c.asdf"]
        .iter()
        .enumerate()
    {
        let text = mount.read(&format!("{name}/tree.yaml")).unwrap();
        assert_eq!(text, sample(n).tree());
        for file in ["blocks/0.bin", "arrays/flux.bin"] {
            assert_eq!(mount.read(&format!("{name}/{file}")).unwrap(), data(n));
        }
    }
    let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("a.asdf"), mode("empty")), (0o750, 0o550));
    assert_eq!(
        (mode("a.asdf/tree.yaml"), mode("a.asdf/info")),
        (0o640, 0o750)
    );
    for name in ["note.txt", "link.asdf", "etc", "nothing"] {
        let error = fs::metadata(mount.path(name)).unwrap_err();
        assert_eq!(
            error.raw_os_error(),
            Some(Errno::NOENT.raw_os_error()),
            "{name}"
        );
    }
    for refused in [
        fs::create_dir(mount.path("new")),
        fs::write(mount.path("new.asdf"), ""),
        fs::remove_dir(mount.path("a.asdf")),
        fs::rename(mount.path("a.asdf"), mount.path("b.asdf")),
    ] {
        assert!(refused.is_err());
    }
    assert!(root.join("a.asdf").exists());
    let status = mount.text(".asdf-mount/status");
    assert!(status.contains("mount     writable\n"), "{status}");
    let table = mount.table(".asdf-mount/files.tsv");
    let paths: Vec<_> = table.iter().map(|row| row[0].as_str()).collect();
    let want = ["path", "a.asdf", "visit 3/b.asdf", "visit 3/deep/c.asdf"];
    assert_eq!(paths, want);
    assert_eq!(
        table[1][1..6],
        [&sample(0).bytes().len().to_string(), "open", "1", "1", ""]
    );
}

/// A listing of 100,000 files with their attributes took a minute: four requests for each.
#[test]
fn a_listing_with_attributes_asks_for_few_files_one_by_one() {
    const COUNT: usize = 1500;
    if !can_mount() {
        return;
    }
    let _kept = kernel_keeps();
    let names: Vec<_> = (0..COUNT).map(|n| format!("{n:04}.asdf")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = files(&names);
    let place = TempDir::new().unwrap();
    let mnt = fs::canonicalize(place.path()).unwrap().join("mnt");
    let log = place.path().join("log");
    let mut daemon = Command::new(PROGRAM)
        .args(["-d", "--log-file"])
        .args([&log, dir.path(), &mnt])
        .spawn()
        .unwrap();
    eventually("it is mounted", || mounted_at(&mnt).is_some());
    let listed = run(Command::new("ls").arg("-l").arg(&mnt));
    let opened = fs::read_to_string(&log).unwrap().contains("tree.yaml");
    let gone = asdf_mount([Path::new("-u"), &mnt]);
    assert!(daemon.wait().unwrap().success());
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    assert_eq!((gone.code, opened), (0, false));
    assert_eq!(listed.stdout.lines().count(), COUNT + 1);
    let said = fs::read_to_string(log).unwrap();
    let asked = |call: &str| said.lines().filter(|line| line.contains(call)).count();
    assert!(asked("Readdir ") > 0, "{said}");
    let (lookups, attributes) = (asked("Lookup "), asked("xattr "));
    assert!(attributes < 10, "{attributes} questions for attributes");
    assert!(lookups < COUNT / 2, "{lookups} names looked up");
}

/// What a listing says of a file is so when it says it, and no longer than until something changes.
#[test]
fn a_listing_with_attributes_is_of_the_files_as_they_are() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "c.asdf", "d.asdf"]);
    let root = dir.path();
    let mount = Mount::new(root, &[]);
    mount.read("d.asdf/tree.yaml").unwrap();
    // its names are read when the directory is opened, and what they stand for when the first one is asked for
    let listing = fs::read_dir(&mount.dir).unwrap();
    fs::remove_file(root.join("a.asdf")).unwrap();
    fs::remove_file(root.join("b.asdf")).unwrap();
    fs::create_dir(root.join("b.asdf")).unwrap();
    fs::set_permissions(root.join("c.asdf"), Permissions::from_mode(0o600)).unwrap();
    // a name behind the last that is still there may come without attributes, which says nothing of it
    let names: Vec<_> = listing.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        ["c.asdf", "d.asdf"]
            .iter()
            .all(|name| names.contains(&name.into()))
    );
    let mode = |name: &str| fs::metadata(mount.path(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("c.asdf"), 0o700);
    assert_eq!(mode("b.asdf"), 0o555, "a directory now");
    assert!(!mount.path("a.asdf").exists());
    // what takes the whole tree is told when it is asked for
    let size = |name: &str| fs::metadata(mount.path(name)).unwrap().len();
    for name in ["arrays.tsv", "blocks.tsv", "status"] {
        let path = format!("d.asdf/info/{name}");
        assert_eq!(mount.names("d.asdf/info").len(), 5);
        assert_eq!(size(&path), mount.text(&path).len() as u64, "{name}");
    }
}

/// Of a directory whose files can't be looked at, the names are shown all the same.
#[test]
fn names_of_files_that_cannot_be_looked_at_are_listed() {
    if !can_mount() {
        return;
    }
    let dir = files(&["sub/a.asdf", "sub/b.asdf"]);
    let sub = dir.path().join("sub");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&sub, Permissions::from_mode(0o744)).unwrap();
    let place = TempDir::new().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let mnt = fs::canonicalize(place.path()).unwrap().join("mnt");
    if !is_root() {
        return;
    }
    let nobody = |command: &mut Command| run(command.uid(65534).gid(65534));
    let mounted = nobody(Command::new(PROGRAM).args([dir.path(), &mnt]));
    if mounted.code != 0 {
        println!("skipped: users can't mount here: {}", mounted.stderr);
        return;
    }
    let listed = nobody(Command::new("ls").arg("-1").arg(mnt.join("sub")));
    let looked = nobody(Command::new("ls").arg("-l").arg(mnt.join("sub")));
    let gone = nobody(Command::new(PROGRAM).arg("-u").arg(&mnt));
    assert_eq!(
        (listed.code, listed.stdout.as_str()),
        (0, "a.asdf\nb.asdf\n")
    );
    assert_ne!(looked.code, 0);
    assert!(looked.stderr.contains("a.asdf"), "{}", looked.stderr);
    assert_eq!(gone.code, 0);
}

/// `ls -l` asked for access lists and labels of each of 100,000 files, as it was not told that the file system has none.
#[test]
fn access_lists_and_labels_are_not_supported() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    for name in ["system.posix_acl_access", "security.selinux"] {
        for path in ["", "a.asdf", "a.asdf/tree.yaml"] {
            let found = rustix::fs::getxattr(mount.path(path), name, &mut [0; 64]);
            assert_eq!(found, Err(Errno::OPNOTSUPP), "{name} of {path:?}");
        }
    }
    assert_eq!(
        open_files(&mount, dir.path()),
        1,
        "only the last was opened"
    );
}

#[test]
fn names_that_match_are_shown_and_only_what_is_asked_for_of_each() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.cal", "b.asdf", "c.raw"]);
    let mount = Mount::new(dir.path(), &["-o", "match=*.cal:c*,show=tree:info"]);
    assert_eq!(mount.names(""), ["a.cal", "c.raw"]);
    assert_eq!(mount.names("a.cal"), ["info", "tree.yaml"]);
    assert!(fs::metadata(mount.path("a.cal/arrays")).is_err());
    mount.unmount();
    let alone = Mount::new(&dir.path().join("b.asdf"), &["-o", "show=tree"]);
    assert_eq!(alone.names(""), ["tree.yaml"]);
    assert_eq!(alone.read("tree.yaml").unwrap(), sample(1).tree());
}

#[test]
fn nothing_is_open_until_it_is_looked_at_and_few_are_open_at_once() {
    if !can_mount() {
        return;
    }
    let names: Vec<_> = (0..20).map(|n| format!("{n:02}.asdf")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = files(&names);
    let mount = Mount::new(dir.path(), &["-o", "open=3"]);
    let listed = run(Command::new("ls").arg("-la").arg(&mount.dir));
    assert_eq!((listed.code, listed.stdout.lines().count()), (0, 21));
    assert_eq!(open_files(&mount, dir.path()), 0);
    mount.read("07.asdf/tree.yaml").unwrap();
    assert_eq!(open_files(&mount, dir.path()), 1);
    for (n, name) in names.iter().enumerate() {
        let flux = mount.read(&format!("{name}/arrays/flux.bin")).unwrap();
        assert_eq!(flux, data(n));
        assert!(open_files(&mount, dir.path()) <= 3);
    }
    // what is in use stays open
    let held: Vec<_> = names
        .iter()
        .map(|name| File::open(mount.path(&format!("{name}/blocks/0.bin"))).unwrap())
        .collect();
    for (n, mut file) in held.iter().enumerate() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, data(n));
    }
    drop(held);
    eventually("members that are closed are let go of", || {
        let _ = mount.read("00.asdf/tree.yaml");
        let _ = mount.read("19.asdf/tree.yaml");
        open_files(&mount, dir.path()) <= 4
    });
}

#[test]
fn inode_numbers_last_while_members_are_closed_and_opened_again() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let number = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
    let names = [
        "a.asdf",
        "a.asdf/arrays",
        "a.asdf/arrays/flux.bin",
        "a.asdf/blocks/0.bin",
    ];
    let before = names.map(number);
    assert_eq!(mount.read("b.asdf/blocks/0.bin").unwrap(), data(1));
    assert_eq!(open_files(&mount, dir.path()), 1);
    assert_eq!(names.map(number), before);
    let unique: HashSet<_> = before
        .into_iter()
        .chain(["b.asdf/blocks/0.bin"].map(number))
        .collect();
    assert_eq!(unique.len(), 5);
    // another program changes the file while it is closed: its arrays come in another order
    assert_eq!(mount.read("b.asdf/blocks/0.bin").unwrap(), data(1));
    let tree = [
        array("dark", 1, "uint8", "[64]"),
        array("flux", 0, "uint8", "[64]"),
    ]
    .concat();
    let changed = Sample::new(&tree)
        .block(Block::raw(&data(7)))
        .block(Block::raw(&data(8)));
    fs::write(dir.path().join("a.asdf"), changed.bytes()).unwrap();
    eventually("the file is shown as it is now", || {
        let read = |name: &str| mount.read(&format!("a.asdf/arrays/{name}.bin")).ok();
        (read("flux"), read("dark")) == (Some(data(7)), Some(data(8)))
    });
    assert!(!before.contains(&number("a.asdf/arrays/dark.bin")));
    assert_ne!(
        number("a.asdf/blocks/0.bin"),
        before[3],
        "it has other bytes"
    );
}

#[test]
fn files_come_and_go_and_are_replaced() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mount = Mount::new(dir.path(), &[]);
    let shows = |name: &str, n: Option<usize>| {
        eventually(name, || {
            let text = mount.read(&format!("{name}/tree.yaml")).ok();
            let bytes = mount.read(&format!("{name}/blocks/0.bin")).ok();
            text == n.map(|n| sample(n).tree().to_vec()) && bytes == n.map(data)
        });
    };
    shows("a.asdf", Some(0));
    fs::write(at("c.asdf"), sample(2).bytes()).unwrap();
    shows("c.asdf", Some(2));
    assert_eq!(mount.names(""), ["a.asdf", "b.asdf", "c.asdf"]);
    fs::rename(at("c.asdf"), at("a.asdf")).unwrap();
    shows("a.asdf", Some(2));
    shows("c.asdf", None);
    fs::rename(at("a.asdf"), at("d.asdf")).unwrap();
    shows("d.asdf", Some(2));
    shows("a.asdf", None);
    let mut held = File::open(mount.path("b.asdf/blocks/0.bin")).unwrap();
    fs::remove_file(at("b.asdf")).unwrap();
    shows("b.asdf", None);
    assert_eq!(mount.names(""), ["d.asdf"]);
    let mut bytes = Vec::new();
    held.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, data(1));
    drop(held);
    // so that its space is free
    eventually("a file that is gone is closed", || {
        let _ = fs::metadata(mount.path("b.asdf"));
        open_files(&mount, dir.path()) == 1
    });
    fs::create_dir(at("b.asdf")).unwrap();
    fs::write(at("b.asdf/e.asdf"), sample(5).bytes()).unwrap();
    shows("b.asdf/e.asdf", Some(5));
}

#[test]
fn a_file_that_can_not_be_read_says_why_and_spoils_nothing() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "c.asdf"]);
    let at = |name: &str| dir.path().join(name);
    fs::write(at("b.asdf"), "not ASDF at all").unwrap();
    let mut cut = sample(2).bytes();
    cut.truncate(cut.len() - 20);
    fs::write(at("c.asdf"), cut).unwrap();
    let mount = Mount::new(dir.path(), &[]);
    let listed = run(Command::new("ls").arg("-lR").arg(&mount.dir));
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    assert_eq!(mount.names("b.asdf"), ["info"]);
    assert_eq!(mount.names("b.asdf/info"), ["status"]);
    let alone = TempDir::new().unwrap();
    let said = run(Command::new(PROGRAM).arg(at("b.asdf")).arg(alone.path()));
    let why = said.stderr.split_once("b.asdf: ").unwrap().1;
    let status = mount.text("b.asdf/info/status");
    assert!(
        status.starts_with("mount     not readable: ") && status.contains(why.trim()),
        "{status}"
    );
    let row = |name: &str| {
        let table = mount.table(".asdf-mount/files.tsv");
        table.into_iter().find(|row| row[0] == name).unwrap()
    };
    assert_eq!(row("b.asdf")[2], "unreadable");
    assert!(row("b.asdf")[5].contains(why.trim()));
    assert!(
        mount
            .text(".asdf-mount/status")
            .contains("problem   b.asdf: ")
    );
    assert!(fs::write(mount.path("b.asdf/tree.yaml"), "a: 1\n").is_err());
    assert_eq!(mount.read("a.asdf/blocks/0.bin").unwrap(), data(0));
    fs::write(at("b.asdf"), sample(9).bytes()).unwrap();
    eventually("a file that was mended is shown", || {
        mount.read("b.asdf/blocks/0.bin").ok() == Some(data(9))
    });
}

#[test]
fn a_member_is_saved_and_locked_from_its_first_change_on() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let is_free = |name: &str| {
        let file = File::open(at(name)).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let tree = mount.text("a.asdf/tree.yaml");
    assert!(is_free("a.asdf"));
    let edited = tree.replace("n: 0", "n: 100");
    fs::write(mount.path("a.asdf/tree.yaml"), &edited).unwrap();
    assert!(!is_free("a.asdf") && is_free("b.asdf"));
    let saved = fs::read(at("a.asdf")).unwrap();
    assert!(saved.starts_with(edited.as_bytes()));
    let block = File::options()
        .write(true)
        .open(mount.path("a.asdf/blocks/0.bin"));
    let mut block = block.unwrap();
    block.seek(SeekFrom::Start(3)).unwrap();
    block.write_all(b"xyz").unwrap();
    block.sync_all().unwrap();
    drop(block);
    let mut want = data(0);
    want[3..6].copy_from_slice(b"xyz");
    assert_eq!(mount.read("a.asdf/arrays/flux.bin").unwrap(), want);
    eventually("a member that is closed is free", || {
        mount.read("b.asdf/tree.yaml").unwrap();
        is_free("a.asdf")
    });
    assert_eq!(mount.read("a.asdf/blocks/0.bin").unwrap(), want);
    // another program has it: it can be read, and the change is refused
    let other = File::open(at("b.asdf")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let refused = fs::write(mount.path("b.asdf/tree.yaml"), "n: 1\n").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(mount.read("b.asdf/tree.yaml").unwrap(), sample(1).tree());
    let says_so = || mount.text("b.asdf/info/status").contains("was locked by");
    assert!(says_so());
    drop(other);
    let edited = mount.text("b.asdf/tree.yaml").replace("n: 1", "n: 2");
    fs::write(mount.path("b.asdf/tree.yaml"), edited).unwrap();
    assert!(!says_so());
}

/// Each open that was refused kept a thread of the daemon for two seconds, one after the other: four of them stopped the mount.
#[test]
fn opens_of_a_locked_file_wait_at_the_same_time_and_hold_up_nothing_else() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let block = mount.path("a.asdf/blocks/0.bin");
    let open = || File::options().write(true).open(&block);
    let other = File::open(dir.path().join("a.asdf")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let opens = [(); 8].map(|()| scope.spawn(open));
        eventually("the others are read meanwhile", || {
            mount.read("b.asdf/tree.yaml").unwrap();
            begun.elapsed() > Duration::from_millis(300)
        });
        let are_over = opens.iter().any(ScopedJoinHandle::is_finished);
        assert!(!are_over, "the others had to wait");
        for open in opens {
            let refused = open.join().unwrap().unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(4), "in turn");
    // it is waited for as long as before
    let waiting = std::thread::scope(|scope| {
        let opens = [(); 8].map(|()| scope.spawn(open));
        std::thread::park_timeout(Duration::from_millis(300));
        drop(other);
        opens.map(|open| open.join().unwrap().is_ok())
    });
    assert_eq!(waiting.iter().filter(|is_open| **is_open).count(), 8);
}

/// The daemon held the lock for the old name.
#[test]
fn a_file_that_was_written_is_written_again_by_a_new_name() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mount = Mount::new(dir.path(), &[]);
    let tree = mount.text("a.asdf/tree.yaml");
    fs::write(
        mount.path("a.asdf/tree.yaml"),
        tree.replace("n: 0", "n: 100"),
    )
    .unwrap();
    // the kernel lets go of the handle behind the program's back
    std::thread::sleep(Duration::from_millis(100));
    fs::rename(at("a.asdf"), at("b.asdf")).unwrap();
    let edited = tree.replace("n: 0", "n: 200");
    fs::write(mount.path("b.asdf/tree.yaml"), &edited).unwrap();
    let saved = fs::read(at("b.asdf")).unwrap();
    assert!(saved.starts_with(edited.as_bytes()));
}

#[test]
fn what_is_not_saved_names_the_member() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "sub/b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let path = mount.path("sub/b.asdf/tree.yaml");
    let refused = fs::write(&path, "#ASDF 1.0.0\n--- [\n...\n");
    assert!(refused.is_ok(), "the write is refused when it is closed");
    // the member stays open, though others want its place
    mount.read("a.asdf/tree.yaml").unwrap();
    assert!(
        mount
            .text(".asdf-mount/status")
            .contains("NOT SAVED: sub/b.asdf: ")
    );
    assert_eq!(
        mount.text("sub/b.asdf/tree.yaml"),
        "#ASDF 1.0.0\n--- [\n...\n"
    );
    let said = asdf_mount([Path::new("-u"), &mount.dir]);
    assert_eq!(said.code, 40, "{}", said.stderr);
    assert!(said.stderr.contains("sub/b.asdf: "), "{}", said.stderr);
    assert!(dir.path().join("sub/b.asdf.rejected.yaml").exists());
    assert_eq!(
        fs::read(dir.path().join("sub/b.asdf")).unwrap(),
        sample(1).bytes()
    );
}

#[test]
fn what_is_moved_to_another_member_is_copied() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    fs::write(mount.path("a.asdf/note"), "hi").unwrap();
    let (from, to) = (mount.path("a.asdf/note"), mount.path("b.asdf/note"));
    let refused = fs::rename(&from, &to).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
    let said = run(Command::new("mv").arg(&from).arg(&to));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(mount.text("b.asdf/note"), "hi");
    let said = asdf_mount([Path::new("-u"), &mount.dir]);
    assert!(
        said.stderr.contains("b.asdf: note (2 bytes)"),
        "{}",
        said.stderr
    );
}

#[test]
fn files_are_listed_by_name_and_two_of_a_name_are_refused() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "x/b.data", "y/a.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mnt = fs::canonicalize(dir.path()).unwrap().join("mnt");
    fs::create_dir(&mnt).unwrap();
    let shows = |want: &[(&str, usize)]| {
        for (name, n) in want {
            assert_eq!(
                fs::read(mnt.join(name).join("blocks/0.bin")).unwrap(),
                data(*n)
            );
        }
        let listed = fs::read_dir(&mnt).unwrap().count();
        assert_eq!(listed, want.len());
        assert_eq!(asdf_mount([Path::new("-u"), &mnt]).code, 0);
    };
    let said = asdf_mount([&at("a.asdf"), &at("x/b.data"), &mnt]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    shows(&[("a.asdf", 0), ("b.data", 1)]);
    let said = asdf_mount([&at("a.asdf"), &at("y/a.asdf"), &mnt]);
    assert_refused(&said, 2, "y/a.asdf: the same name as ");
    let list = at("list");
    fs::write(&list, format!("{}\n", at("y/a.asdf").display())).unwrap();
    let said = asdf_mount([Path::new("--files-from"), &list, &at("x/b.data"), &mnt]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    shows(&[("a.asdf", 2), ("b.data", 1)]);
    let names = format!("{}\0{}\0", at("a.asdf").display(), at("x/b.data").display());
    // the daemon has another standard input than the command, unless it needs that
    for input in ["-", "/dev/stdin", "/proc/self/fd/0"] {
        let mut daemon = Command::new(PROGRAM)
            .args(["--files-from", input, "-0"])
            .arg(&mnt)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut list = daemon.stdin.take().unwrap();
        list.write_all(names.as_bytes()).unwrap();
        drop(list);
        assert!(daemon.wait().unwrap().success(), "{input}");
        shows(&[("a.asdf", 0), ("b.data", 1)]);
    }
    fs::write(&list, names).unwrap();
    let said = asdf_mount([Path::new("--files-from"), &list, &mnt]);
    assert_refused(&said, 2, "list: its paths end in NUL; add -0");
    let said = asdf_mount([&at("a.asdf"), &at("none.asdf"), &mnt]);
    assert_refused(&said, 11, "none.asdf: no such file");
    let said = asdf_mount([&at("a.asdf"), &at("x"), &mnt]);
    assert_refused(&said, 2, "x: a directory among FILEs");
    assert_refused(&asdf_mount([dir.path()]), 10, "Name one at the end");
    assert!(mounted_at(&mnt).is_none());
}

/// The daemon waited for itself for ever.
#[test]
fn a_listed_file_that_becomes_a_link_into_the_mount_is_gone() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mnt = at("mnt");
    fs::create_dir(&mnt).unwrap();
    let said = asdf_mount([&at("a.asdf"), &at("b.asdf"), &mnt]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let tree = |name: &str| fs::read(mnt.join(name).join("tree.yaml"));
    assert_eq!(tree("a.asdf").unwrap(), sample(0).tree());
    fs::remove_file(at("a.asdf")).unwrap();
    symlink(mnt.join("b.asdf/tree.yaml"), at("a.asdf")).unwrap();
    eventually("the link is not followed", || tree("a.asdf").is_err());
    assert_eq!(tree("b.asdf").unwrap(), sample(1).tree());
    assert_eq!(asdf_mount([Path::new("-u"), &mnt]).code, 0);
}

#[test]
fn a_directory_is_mounted_on_a_directory_in_it() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "mnt/hidden.asdf"]);
    let root = fs::canonicalize(dir.path()).unwrap();
    let mnt = root.join("mnt");
    let said = asdf_mount([Path::new("-q"), &root, &mnt]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let listed = run(Command::new("ls").arg("-R").arg(&mnt));
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    assert!(!mnt.join("mnt").exists());
    assert_eq!(fs::read(mnt.join("a.asdf/blocks/0.bin")).unwrap(), data(0));
    assert_eq!(asdf_mount([Path::new("-u"), &mnt]).code, 0);
    let said = asdf_mount([
        "-o",
        "other-mounts",
        root.to_str().unwrap(),
        mnt.to_str().unwrap(),
    ]);
    assert_refused(
        &said,
        12,
        "with -o other-mounts it would hold the mountpoint",
    );
}

#[test]
fn what_is_mounted_below_is_shown_only_if_that_is_asked_for() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = files(&["a.asdf", "sub/b.asdf"]);
    let inner = TempDir::new().unwrap();
    fs::write(inner.path().join("c.asdf"), sample(3).bytes()).unwrap();
    let mount_it = |dir: &Path| {
        let sub = dir.join("sub");
        let said = run(Command::new("mount")
            .arg("--bind")
            .arg(inner.path())
            .arg(&sub));
        assert_eq!(said.code, 0, "{}", said.stderr);
        sub
    };
    let sub = mount_it(dir.path());
    let shown = Mount::new(dir.path(), &[]).names("");
    let mount = Mount::new(dir.path(), &["-o", "other-mounts"]);
    let all = mount.names("sub");
    mount.unmount();
    run(Command::new("umount").arg(&sub));
    assert_eq!(shown, ["a.asdf"]);
    assert_eq!(all, ["c.asdf"]);
}

/// A member kept the directory that its file was first written in, and was shown and saved there.
#[test]
fn what_takes_the_place_of_a_directory_is_shown_and_saved() {
    if !can_mount() {
        return;
    }
    let dir = files(&["v/a.asdf", "next/a.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mount = Mount::new(dir.path(), &[]);
    let tree = |n: usize| String::from_utf8(sample(n).tree().to_vec()).unwrap();
    let first = tree(0).replace("n: 0", "n: 100");
    fs::write(mount.path("v/a.asdf/tree.yaml"), &first).unwrap();
    fs::rename(at("v"), at("old")).unwrap();
    fs::rename(at("next"), at("v")).unwrap();
    eventually("the file of the new directory is shown", || {
        mount.read("v/a.asdf/tree.yaml").ok().as_deref() == Some(sample(1).tree())
            && mount.read("v/a.asdf/blocks/0.bin").ok() == Some(data(1))
    });
    let second = tree(1).replace("n: 1", "n: 200");
    fs::write(mount.path("v/a.asdf/tree.yaml"), &second).unwrap();
    let starts = |name: &str, text: &str| fs::read(at(name)).unwrap().starts_with(text.as_bytes());
    assert!(starts("v/a.asdf", &second) && starts("old/a.asdf", &first));
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    if !can_mount() {
        return;
    }
    let dir = files(&["in/sub/a.asdf", "secret/a.asdf"]);
    let root = dir.path().join("in");
    let mount = Mount::new(&root, &["-o", "open=1"]);
    assert_eq!(mount.read("sub/a.asdf/blocks/0.bin").unwrap(), data(0));
    fs::rename(root.join("sub"), root.join("old")).unwrap();
    symlink("../secret", root.join("sub")).unwrap();
    eventually("the link is not shown", || {
        mount.read("sub/a.asdf/blocks/0.bin").is_err() && mount.names("") == ["old"]
    });
    fs::remove_file(root.join("old/a.asdf")).unwrap();
    symlink("../../secret/a.asdf", root.join("old/a.asdf")).unwrap();
    eventually("nor is one in the place of a file", || {
        mount.read("old/a.asdf/blocks/0.bin").is_err() && mount.names("old").is_empty()
    });
}

#[test]
fn other_users_reach_what_is_open_to_them_there() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = files(&["open.asdf", "closed.asdf", "shut/a.asdf", "bad.asdf"]);
    let mode = |name: &str, mode| {
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    };
    fs::write(dir.path().join("bad.asdf"), "secret").unwrap();
    mode("", 0o755);
    mode("open.asdf", 0o644);
    mode("closed.asdf", 0o600);
    mode("bad.asdf", 0o600);
    mode("shut", 0o700);
    mode("shut/a.asdf", 0o644);
    let mount = Mount::new(dir.path(), &["-o", "allow_other"]);
    fs::set_permissions(mount.dir.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let reads = |path: &str| {
        let mut cat = Command::new("cat");
        let said = run(cat.arg(mount.path(path)).uid(65534).gid(65534));
        said.code == 0
    };
    assert!(reads("open.asdf/tree.yaml"));
    for path in [
        "closed.asdf/tree.yaml",
        "shut/a.asdf/tree.yaml",
        "bad.asdf/info/status",
        ".asdf-mount/files.tsv",
    ] {
        assert!(!reads(path), "{path}");
        assert!(mount.read(path).is_ok(), "{path}");
    }
}

#[test]
fn a_read_only_mount_of_many_changes_nothing() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf"]);
    let mount = Mount::new(dir.path(), &["-r"]);
    let refused = fs::write(mount.path("a.asdf/tree.yaml"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    // no lock is held: another mount may write it
    let alone = Mount::new(&dir.path().join("a.asdf"), &[]);
    let block = File::options()
        .write(true)
        .open(alone.path("blocks/0.bin"))
        .unwrap();
    block.write_all_at(b"new", 0).unwrap();
    drop(block);
    eventually("the change of the other mount is shown", || {
        mount
            .read("a.asdf/blocks/0.bin")
            .unwrap()
            .starts_with(b"new")
    });
}

/// The paths of all files below a directory, sorted.
fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_member_shows_byte_for_byte_what_the_file_shows_alone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let big = noise(3 << 20);
    let samples = [
        sample(0),
        Sample::new("a: 1\n"),
        Sample::new(&array("x", 0, "uint8", "[3145728]")).block(Block::zlib(&big)),
        Sample::new(&array("x", 0, "int16", "[100, 3]")).block(Block::lz4(&big[..600])),
        Sample::new(&array("x", -1, "uint8", "['*']")).block(Block::streamed(&big[..99])),
        Sample::new(&array("x", 0, "uint8", "[999]")).block(Block::raw(&big[..64])),
    ];
    for (n, sample) in samples.iter().enumerate() {
        fs::write(dir.path().join(format!("{n}.asdf")), sample.bytes()).unwrap();
    }
    let many = Mount::new(dir.path(), &["-r", "-o", "open=2"]);
    for n in 0..samples.len() {
        let name = format!("{n}.asdf");
        let alone = Mount::new(&dir.path().join(&name), &["-r"]);
        let member = many.path(&name);
        let files = all_files(&alone.dir);
        assert_eq!(files, all_files(&member));
        // the status says how much of the cache the mount uses
        let same = files
            .into_iter()
            .filter(|file| *file != Path::new("info/status"));
        for file in same {
            let (one, other) = (alone.dir.join(&file), member.join(&file));
            let read = |path: &Path| fs::read(path).map_err(|error| error.raw_os_error());
            assert_eq!(read(&one), read(&other), "{name}/{}", file.display());
            let facts = |path: &Path| {
                let meta = fs::metadata(path).unwrap();
                (meta.len(), meta.mode(), meta.mtime_nsec())
            };
            assert_eq!(facts(&one), facts(&other), "{name}/{}", file.display());
        }
    }
}
