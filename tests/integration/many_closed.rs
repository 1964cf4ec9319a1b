//! Closed members of a mount of many: their directories and `tree.yaml` are shown without opening them, and never as they were before.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::RwLockReadGuard;
use std::time::{Duration, SystemTime};

use rustix::fs::{Advice, Dir, fadvise};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{Mount, can_mount, daemons_of, eventually, kernel_keeps, run};
use crate::many::{data, files};
use crate::sample::{Block, Sample, array};

/// A tree with a word of its own, always of the same length, that fills some pages.
fn text(word: u32) -> String {
    let line = format!("# {word:06}\n");
    format!("word: {word:06}\n{}", array("flux", 0, "uint8", "[64]")) + &line.repeat(3000)
}

fn file(word: u32) -> Vec<u8> {
    Sample::new(&text(word)).block(Block::raw(&data(0))).bytes()
}

fn set_time(path: &Path, time: SystemTime) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// A mount of `a.asdf` and others, of which one is open at a time, with `a.asdf` closed: its root is known.
fn closed() -> (TempDir, Mount, RwLockReadGuard<'static, ()>) {
    let kept = kernel_keeps();
    let dir = files(&["b.asdf"]);
    let path = dir.path().join("a.asdf");
    fs::write(&path, file(1)).unwrap();
    set_time(&path, SystemTime::now() - Duration::from_secs(100));
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    settle(&mount, dir.path());
    assert_eq!(words(&mount), "000001");
    (dir, mount, kept)
}

/// Has `a.asdf` opened once more, when the time of its last change, which can't be set, tells it from what it may become, and closed.
fn settle(mount: &Mount, dir: &Path) {
    std::thread::park_timeout(Duration::from_millis(1100));
    close(mount, dir);
    words(mount);
    close(mount, dir);
}

/// Closes `a.asdf`.
fn close(mount: &Mount, dir: &Path) {
    eventually("the member is closed", || {
        mount.read("b.asdf/blocks/0.bin").unwrap();
        is_closed(mount, dir)
    });
}

/// Whether the daemon does not have `a.asdf` open, nor a file that had its name.
fn is_closed(mount: &Mount, dir: &Path) -> bool {
    let file = fs::canonicalize(dir).unwrap().join("a.asdf");
    let fds = fs::read_dir(format!("/proc/{}/fd", daemons_of(&mount.dir)[0])).unwrap();
    let mut open = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let name = file.as_os_str().as_bytes();
    !open.any(|path| path.as_os_str().as_bytes().starts_with(name))
}

/// The words of `a.asdf/tree.yaml`, which must be of one text.
fn words(mount: &Mount) -> String {
    word_of(&mount.text("a.asdf/tree.yaml"))
}

fn word_of(text: &str) -> String {
    let lines = text.lines();
    let words = lines.filter_map(|line| line.strip_prefix("# ").or(line.strip_prefix("word: ")));
    let words: Vec<_> = words.collect();
    assert_eq!(words.len(), 3001, "all of the text");
    assert!(words.iter().all(|word| *word == words[0]), "a mixture");
    words[0].to_owned()
}

/// The file, opened while its member is closed, which it stays.
fn open(mount: &Mount, dir: &Path) -> File {
    let file = File::open(mount.path("a.asdf/tree.yaml")).unwrap();
    assert!(is_closed(mount, dir));
    file
}

/// Has the kernel read a file anew.
fn drop_pages(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn read(mut file: &File) -> io::Result<String> {
    let mut text = String::new();
    file.read_to_string(&mut text).map(|_| text)
}

#[test]
fn what_the_kernel_knows_of_a_tree_is_read_and_listed_without_opening_the_member() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    for _ in 0..3 {
        let names = fs::read_dir(mount.path("a.asdf")).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["arrays", "blocks", "info", "tree.yaml"]);
        let meta = fs::metadata(mount.path("a.asdf/tree.yaml")).unwrap();
        let behind = fs::metadata(dir.path().join("a.asdf")).unwrap();
        assert_eq!(meta.modified().unwrap(), behind.modified().unwrap());
        assert_eq!(meta.permissions(), behind.permissions());
        assert_eq!(words(&mount), "000001");
        let none = File::open(mount.path("a.asdf/.gitignore"));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(is_closed(&mount, dir.path()));
    }
    // what the kernel has dropped is read from FILE
    let file = open(&mount, dir.path());
    drop_pages(&file);
    assert_eq!(word_of(&read(&file).unwrap()), "000001");
    assert!(is_closed(&mount, dir.path()));
}

/// What is below a directory, with what `stat` says of it; of texts about the file, the names alone: how long they are is not known
/// before they are made.
fn below(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if directory.ends_with("info") {
            found.insert(path, String::new());
            continue;
        }
        let meta = fs::symlink_metadata(&path).unwrap();
        let ids = (meta.ino(), meta.mode(), meta.uid(), meta.gid());
        let times = (
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        let said = format!("{ids:?} {times:?} {}", meta.len());
        if meta.is_dir() {
            found.extend(below(&path));
        }
        found.insert(path, said);
    }
    found
}

#[test]
fn all_directories_of_a_closed_member_are_listed_without_opening_it() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let root = mount.path("a.asdf");
    let open = below(&root);
    let names: Vec<_> = open
        .keys()
        .map(|path| path.strip_prefix(&root).unwrap())
        .collect();
    let shown = [
        "arrays/flux.npy",
        "blocks/0.bin",
        "info/status",
        "tree.yaml",
    ];
    assert!(
        shown.iter().all(|name| names.contains(&Path::new(name))),
        "{names:?}"
    );
    close(&mount, dir.path());
    for _ in 0..2 {
        assert_eq!(below(&root), open);
        let none = File::open(root.join("arrays/none.bin")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        assert!(is_closed(&mount, dir.path()));
    }
    assert_eq!(mount.read("a.asdf/arrays/flux.bin").unwrap(), data(0));
}

#[test]
fn directories_are_listed_anew_when_a_file_has_changed_whose_size_and_times_are_put_back() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let path = dir.path().join("a.asdf");
    let before = fs::metadata(&path).unwrap();
    let renamed = |name: &str| {
        let text = text(1).replace("flux", name);
        Sample::new(&text).block(Block::raw(&data(0))).bytes()
    };
    let mut name = "flux";
    for (next, in_place) in [("wind", true), ("rain", false), ("flux", true)] {
        let listed = |name: &str| [format!("{name}.bin"), format!("{name}.npy")];
        settle(&mount, dir.path());
        for _ in 0..2 {
            assert_eq!(mount.names("a.asdf/arrays"), listed(name));
            close(&mount, dir.path());
        }
        assert_eq!(mount.names("a.asdf/arrays"), listed(name));
        assert!(is_closed(&mount, dir.path()), "{name}");
        if in_place {
            let opened = File::options().write(true).open(&path).unwrap();
            opened.write_all_at(&renamed(next), 0).unwrap();
        } else {
            fs::write(dir.path().join("new"), renamed(next)).unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
        }
        set_time(&path, before.modified().unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), before.len());
        assert_eq!(mount.names("a.asdf/arrays"), listed(next));
        eventually("the name of before is gone", || {
            !mount.path(&format!("a.asdf/arrays/{name}.bin")).exists()
        });
        let shown = mount.read(&format!("a.asdf/arrays/{next}.bin"));
        assert_eq!(shown.unwrap(), data(0));
        name = next;
    }
}

/// The kernel would keep the names of before, and show them to other programs.
#[test]
fn a_directory_that_was_opened_before_a_change_and_is_listed_after_it_has_the_names_of_now() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let arrays = mount.path("a.asdf/arrays");
    assert_eq!(mount.names("a.asdf/arrays"), ["flux.bin", "flux.npy"]);
    close(&mount, dir.path());
    let before = File::open(&arrays).unwrap();
    assert!(is_closed(&mount, dir.path()));
    let text = text(2).replace("flux", "wind");
    let file = Sample::new(&text).block(Block::raw(&data(0)));
    fs::write(dir.path().join("a.asdf"), file.bytes()).unwrap();
    settle(&mount, dir.path());
    mount.names("a.asdf/arrays");
    close(&mount, dir.path());
    let wind = ["wind.bin", "wind.npy"];
    for _ in 0..2 {
        assert_eq!(mount.names("a.asdf/arrays"), wind);
    }
    drop_pages(&before);
    let names = Dir::new(before).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().to_owned();
        name.into_string().unwrap()
    });
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    assert_eq!(names, wind);
    assert_eq!(mount.names("a.asdf/arrays"), wind);
    assert!(is_closed(&mount, dir.path()));
}

#[test]
fn what_a_save_makes_of_the_names_is_listed_when_its_member_was_closed() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    assert_eq!(mount.names("a.asdf/arrays"), ["flux.bin", "flux.npy"]);
    settle(&mount, dir.path());
    assert_eq!(mount.names("a.asdf/arrays"), ["flux.bin", "flux.npy"]);
    let new = text(1).replace("flux", "wind");
    fs::write(mount.path("a.asdf/tree.yaml"), Sample::new(&new).tree()).unwrap();
    settle(&mount, dir.path());
    for _ in 0..2 {
        assert_eq!(mount.names("a.asdf/arrays"), ["wind.bin", "wind.npy"]);
        assert_eq!(mount.read("a.asdf/arrays/wind.bin").unwrap(), data(0));
        close(&mount, dir.path());
    }
    // a file that a tool makes beside those of blocks is in memory only
    let beside = mount.path("a.asdf/blocks/.0.bin.x1y2z3");
    fs::write(&beside, "x").unwrap();
    close(&mount, dir.path());
    assert_eq!(mount.names("a.asdf/blocks"), [".0.bin.x1y2z3", "0.bin"]);
    assert_eq!(fs::read(&beside).unwrap(), b"x");
    fs::remove_file(&beside).unwrap();
    close(&mount, dir.path());
    assert_eq!(mount.names("a.asdf/blocks"), ["0.bin"]);
}

#[test]
fn a_file_that_another_program_changes_while_its_member_is_closed_is_shown_as_it_is() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let path = dir.path().join("a.asdf");
    let (before, new) = (fs::metadata(&path).unwrap(), dir.path().join("new"));
    for (n, in_place) in [(2, false), (3, true)] {
        // of the same length and time, as rsync and tar make them
        if in_place {
            let opened = File::options().write(true).open(&path).unwrap();
            opened.write_all_at(&file(n), 0).unwrap();
        } else {
            fs::write(&new, file(n)).unwrap();
            fs::rename(&new, &path).unwrap();
        }
        set_time(&path, before.modified().unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), before.len());
        assert_eq!(words(&mount), format!("{n:06}"));
        settle(&mount, dir.path());
    }
    fs::write(&path, "no ASDF").unwrap();
    eventually("it is not shown any more", || {
        mount.read("a.asdf/tree.yaml").is_err()
            && mount.text("a.asdf/info/status").contains("not readable")
    });
}

#[test]
fn a_save_is_shown_after_its_member_was_closed() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    for n in 2..6 {
        let text = Sample::new(&text(n)).tree().to_vec();
        fs::write(mount.path("a.asdf/tree.yaml"), text).unwrap();
        assert_eq!(words(&mount), format!("{n:06}"));
        close(&mount, dir.path());
        assert_eq!(words(&mount), format!("{n:06}"));
    }
    let note = mount.path("a.asdf/note");
    fs::write(&note, "x").unwrap();
    close(&mount, dir.path());
    let has_note = || {
        let names = fs::read_dir(mount.path("a.asdf")).unwrap();
        names.flatten().any(|name| name.file_name() == "note")
    };
    assert!(has_note());
    close(&mount, dir.path());
    fs::remove_file(note).unwrap();
    close(&mount, dir.path());
    assert!(!has_note());
}

#[test]
fn a_tree_that_is_changed_while_it_is_open_is_not_read_as_a_mixture() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let path = dir.path().join("a.asdf");
    let opened = open(&mount, dir.path());
    let mut first = [0; 5000];
    opened.read_exact_at(&mut first, 0).unwrap();
    assert!(is_closed(&mount, dir.path()), "the kernel has those");
    fs::write(&path, file(2)).unwrap();
    eventually("the new text is shown", || words(&mount) == "000002");
    drop_pages(&opened);
    let error = read(&opened).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE));
    // through the mount, nothing is lost that was open
    drop(opened);
    settle(&mount, dir.path());
    let opened = open(&mount, dir.path());
    let tree = mount.path("a.asdf/tree.yaml");
    let edit = ["-i", "s/000002/000003/"];
    let said = run(Command::new("sed").args(edit).arg(&tree));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(words(&mount), "000003");
    drop_pages(&opened);
    assert_eq!(word_of(&read(&opened).unwrap()), "000002");
}

#[test]
fn bytes_of_a_changed_file_are_not_read_for_a_tree_that_was_opened_before() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let path = dir.path().join("a.asdf");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let opened = open(&mount, dir.path());
    drop_pages(&opened);
    opened.read_exact_at(&mut [0; 5000], 0).unwrap();
    assert!(is_closed(&mount, dir.path()), "read from the file");
    let changed = File::options().write(true).open(&path).unwrap();
    changed.write_all_at(&file(2), 0).unwrap();
    set_time(&path, before);
    drop_pages(&opened);
    let error = read(&opened).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE));
    drop(opened);
    assert_eq!(words(&mount), "000002");
}

/// `chmod` and `ln` of FILE made an open `tree.yaml` stale, though the text was the same.
#[test]
fn a_tree_can_be_read_on_after_another_change_than_of_its_text() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    let path = dir.path().join("a.asdf");
    let opened = open(&mount, dir.path());
    drop_pages(&opened);
    fs::hard_link(&path, dir.path().join("link")).unwrap();
    assert_eq!(word_of(&read(&opened).unwrap()), "000001");
}

#[test]
fn a_file_with_two_names_is_shown_as_it_is_under_both() {
    if !can_mount() {
        return;
    }
    let (dir, mount, _kept) = closed();
    fs::hard_link(dir.path().join("a.asdf"), dir.path().join("c.asdf")).unwrap();
    for n in 2..5 {
        let text = Sample::new(&text(n)).tree().to_vec();
        fs::write(mount.path("c.asdf/tree.yaml"), text).unwrap();
        assert_eq!(words(&mount), format!("{n:06}"));
        close(&mount, dir.path());
    }
}

/// The block of an array became long enough for it while its member was open. The next time that the member was opened, the names behind it
/// had the numbers of others, and the kernel showed the bytes of one array under the name of another.
#[test]
fn no_array_has_the_number_of_another_one_after_a_longer_block_has_brought_in_a_name() {
    if !can_mount() {
        return;
    }
    let _kept = kernel_keeps();
    let dir = files(&["b.asdf"]);
    let names = ["a", "b", "c"];
    let arrays = names.iter().zip(0..);
    let tree: String = arrays
        .map(|(name, block)| array(name, block, "uint8", "[64]"))
        .collect();
    let short = data(0)[..32].to_vec();
    let sample = Sample::new(&tree).block(Block::raw(&short));
    let sample = sample
        .block(Block::raw(&data(1)))
        .block(Block::raw(&data(2)));
    fs::write(dir.path().join("a.asdf"), sample.bytes()).unwrap();
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let number = |name: &str| fs::metadata(mount.path(name)).unwrap().ino();
    let shown = ["b.bin", "b.npy", "c.bin", "c.npy"];
    assert_eq!(mount.names("a.asdf/arrays"), shown, "a has too few bytes");
    let before = number("a.asdf/arrays/c.bin");
    assert_eq!(mount.read("a.asdf/arrays/c.bin").unwrap(), data(2));
    fs::write(mount.path("a.asdf/blocks/0.bin"), data(0)).unwrap();
    close(&mount, dir.path());
    for (n, name) in names.iter().enumerate() {
        let name = format!("a.asdf/arrays/{name}.bin");
        assert_eq!(mount.read(&name).unwrap(), data(n), "{name}");
    }
    assert_ne!(number("a.asdf/arrays/b.bin"), before);
}

/// A lookup in the directory that the kernel knew was answered by its number alone, which another one had by then: the bytes of `bar/x.bin`
/// were read and written as those of `foo/x.bin`.
#[test]
fn no_directory_is_taken_for_another_one_that_has_its_number_now() {
    if !can_mount() {
        return;
    }
    let _kept = kernel_keeps();
    let dir = files(&["b.asdf"]);
    let path = dir.path().join("a.asdf");
    let within = |name: &str, block| format!("{name}:\n  {}", array("x", block, "uint8", "[64]"));
    let before = Sample::new(&within("foo", 0)).block(Block::raw(&data(1)));
    let after = Sample::new(&(within("bar", 0) + &within("foo", 1)));
    let after = after
        .block(Block::raw(&data(2)))
        .block(Block::raw(&data(3)));
    fs::write(&path, before.bytes()).unwrap();
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let foo = mount.path("a.asdf/arrays/foo");
    close(&mount, dir.path());
    assert_eq!(fs::read(foo.join("x.bin")).unwrap(), data(1));
    close(&mount, dir.path());
    let new = dir.path().join("new");
    fs::write(&new, after.bytes()).unwrap();
    fs::rename(&new, &path).unwrap();
    let mut opened = File::options();
    let opened = opened
        .read(true)
        .write(true)
        .open(foo.join("x.bin"))
        .unwrap();
    let mut found = vec![0; 64];
    opened.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(found, data(3));
    opened.write_all_at(b"new", 0).unwrap();
    drop(opened);
    assert_eq!(mount.read("a.asdf/arrays/bar/x.bin").unwrap(), data(2));
    assert_eq!(mount.names("a.asdf/arrays/foo"), ["x.bin", "x.npy"]);
}
