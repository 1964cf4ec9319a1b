//! Listings that are open while names change: what the kernel is told of a name is true when it is told, whenever the directory
//! was opened. `std::fs::read_dir` opens the directory; its first `next` reads the names, with their inodes (READDIRPLUS).

use std::fs::{self, File, OpenOptions, ReadDir};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::Dir;
use tempfile::TempDir;

use crate::common::{Mount, can_mount, eventually, run};
use crate::sample::{Block, Sample, array};

/// Arrays of these names, each of eight equal bytes in a block of its own.
fn arrays(names: &str) -> Sample {
    let entries = (0..).zip(names.chars());
    let tree: String = entries
        .map(|(source, name)| array(&name.to_string(), source, "uint8", "[8]"))
        .collect();
    names.bytes().fold(
        Sample::new(&format!("note: old\n{tree}")),
        |sample, name| sample.block(Block::raw(&[name; 8])),
    )
}

fn mounted(names: &str) -> Option<(TempDir, PathBuf, Mount)> {
    if !can_mount() {
        return None;
    }
    let dir = TempDir::new().unwrap();
    let file = arrays(names).write(dir.path());
    let mount = Mount::new(&file, &[]);
    Some((dir, file, mount))
}

/// Reads the names that are left of an open listing.
fn rest(listing: ReadDir) -> Vec<String> {
    let names = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The text of the mount with another note.
fn noted(mount: &Mount, note: &str) -> String {
    let text = mount.text("tree.yaml");
    let (before, rest) = text.split_once("note: ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    format!("{before}note: {note}\n{after}")
}

#[track_caller]
fn assert_in_file(file: &Path, note: &str) {
    let bytes = fs::read(file).unwrap();
    let line = format!("note: {note}\n");
    let found = bytes.windows(line.len()).any(|at| at == line.as_bytes());
    assert!(found, "FILE has no {line:?}");
}

fn create(path: &Path) -> File {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .unwrap()
}

/// `rewinddir` showed the names of the moment of `opendir` for as long as the directory was open.
#[test]
fn a_directory_that_is_rewound_has_the_names_of_now() {
    let Some((_dir, _file, mount)) = mounted("ab") else {
        return;
    };
    let names = |directory: &mut Dir| {
        let names = directory.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    let open = |name| Dir::new(File::open(mount.path(name)).unwrap()).unwrap();
    let [mut root, mut blocks, mut of_arrays] = ["", "blocks", "arrays"].map(open);
    assert_eq!(names(&mut blocks), ["0.bin", "1.bin"]);
    assert_eq!(names(&mut of_arrays).len(), 4);
    let before = names(&mut root);
    fs::write(mount.path("blocks/2.bin"), b"new").unwrap();
    fs::write(mount.path("note.txt"), b"new").unwrap();
    let tree = mount.text("tree.yaml");
    let another = tree.replace("\n...", &format!("\n{}...", array("c", 2, "uint8", "[3]")));
    fs::write(mount.path("tree.yaml"), another).unwrap();
    for directory in [&mut root, &mut blocks, &mut of_arrays] {
        directory.rewind();
    }
    assert_eq!(names(&mut blocks), ["0.bin", "1.bin", "2.bin"]);
    assert_eq!(names(&mut of_arrays).len(), 6);
    let now = names(&mut root);
    assert!(
        now.len() == before.len() + 1 && now.contains(&"note.txt".to_owned()),
        "{now:?}"
    );
}

#[test]
fn a_save_by_the_backup_dance_is_not_lost_to_a_listing() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let (tree, backup) = (mount.path("tree.yaml"), mount.path("tree.yaml~"));
    let new = noted(&mount, "new");
    let listing = fs::read_dir(&mount.dir).unwrap();
    fs::rename(&tree, &backup).unwrap();
    rest(listing);
    let mut out = create(&tree);
    out.write_all(new.as_bytes()).unwrap();
    out.sync_all().unwrap();
    drop(out);
    fs::remove_file(&backup).unwrap();
    assert_in_file(&file, "new");
    assert_eq!(mount.text("tree.yaml"), new);
}

#[test]
fn a_listing_by_another_process_does_not_bring_back_the_name_that_an_editor_has_freed() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let (tree, backup) = (mount.path("tree.yaml"), mount.path("tree.yaml~"));
    let new = noted(&mount, "new");
    let mut out = loop {
        fs::rename(&tree, &backup).unwrap();
        let freed = Instant::now();
        let listed = run(Command::new("ls").arg("-l").arg(&mount.dir));
        let made = OpenOptions::new().write(true).create_new(true).open(&tree);
        // the name is gone for two seconds, and on a busy machine `ls` may take that long
        if freed.elapsed() < Duration::from_secs(1) {
            assert!(!listed.stdout.contains(" tree.yaml\n"), "{}", listed.stdout);
            break made.unwrap();
        }
        fs::rename(&backup, &tree).unwrap();
    };
    out.write_all(new.as_bytes()).unwrap();
    drop(out);
    assert_in_file(&file, "new");
}

#[test]
fn a_temporary_name_that_was_renamed_away_is_free_again() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let (tree, temporary) = (mount.path("tree.yaml"), mount.path(".t"));
    for (note, exclusive) in [("one", false), ("two", true)] {
        let text = noted(&mount, note);
        fs::write(&temporary, &text).unwrap();
        let listing = fs::read_dir(&mount.dir).unwrap();
        fs::rename(&temporary, &tree).unwrap();
        rest(listing);
        let mut options = OpenOptions::new();
        options.write(true).create(true).create_new(exclusive);
        let mut next = options.truncate(!exclusive).open(&temporary).unwrap();
        next.write_all(b"#ASDF half a text").unwrap();
        drop(next);
        assert_in_file(&file, note);
        assert_eq!(mount.text("tree.yaml"), text);
        fs::remove_file(&temporary).unwrap();
    }
}

#[test]
fn a_listing_does_not_bring_back_what_was_removed() {
    let Some((_dir, _file, mount)) = mounted("a") else {
        return;
    };
    let scratch = mount.path("scratch");
    fs::write(&scratch, "x").unwrap();
    let held = File::open(&scratch).unwrap();
    let listing = fs::read_dir(&mount.dir).unwrap();
    fs::remove_file(&scratch).unwrap();
    let names = rest(listing);
    assert!(!names.contains(&"scratch".to_owned()), "{names:?}");
    assert!(!scratch.exists());
    drop(held);
}

#[test]
fn a_listing_does_not_bring_back_the_replaced_tree() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let (tree, temporary) = (mount.path("tree.yaml"), mount.path(".t"));
    let held = File::open(&tree).unwrap();
    let listing = fs::read_dir(&mount.dir).unwrap();
    fs::write(&temporary, noted(&mount, "one")).unwrap();
    fs::rename(&temporary, &tree).unwrap();
    rest(listing);
    assert!(mount.text("tree.yaml").contains("note: one"));
    let two = noted(&mount, "two");
    let mut out = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&tree)
        .unwrap();
    out.write_all(two.as_bytes()).unwrap();
    out.sync_all().unwrap();
    drop(out);
    assert_in_file(&file, "two");
    drop(held);
    assert_eq!(mount.text("tree.yaml"), two);
}

#[test]
fn exchanged_names_are_listed_with_the_files_that_they_have_now() {
    let Some((_dir, _file, mount)) = mounted("a") else {
        return;
    };
    let (one, two) = (mount.path("one"), mount.path("two"));
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    let listing = fs::read_dir(&mount.dir).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, &one, cwd, &two, exchange).unwrap();
    rest(listing);
    assert_eq!(
        (mount.text("one"), mount.text("two")),
        ("2".into(), "1".into())
    );
}

#[test]
fn a_listing_does_not_bring_back_an_array_that_a_save_took_out() {
    let Some((_dir, _file, mount)) = mounted("ab") else {
        return;
    };
    let listing = fs::read_dir(mount.path("arrays")).unwrap();
    let text = mount.text("tree.yaml");
    // `a` has become an alias of `b`: links where files were
    let (a, b) = (array("a", 0, "uint8", "[8]"), array("b", 1, "uint8", "[8]"));
    let anchored = b.replacen("b: ", "b: &b ", 1);
    let text = text
        .replace(&a, "")
        .replace(&b, &format!("{anchored}a: *b\n"));
    fs::write(mount.path("tree.yaml"), text).unwrap();
    let names = rest(listing);
    assert!(names.contains(&"a.bin".to_owned()), "{names:?}");
    let is_link = |name: &str| mount.path(name).symlink_metadata().unwrap().is_symlink();
    assert!(is_link("arrays/a.bin") && is_link("arrays/a.npy"));
    assert_eq!(mount.read("arrays/a.bin").unwrap(), b"bbbbbbbb");
    let listing = fs::read_dir(mount.path("arrays")).unwrap();
    let text = mount.text("tree.yaml").replace("a: *b\n", "");
    fs::write(mount.path("tree.yaml"), text).unwrap();
    let names = rest(listing);
    assert!(!names.contains(&"a.bin".to_owned()), "{names:?}");
    assert!(!mount.path("arrays/a.bin").exists());
}

#[test]
fn a_listing_does_not_bring_back_a_removed_block() {
    let Some((_dir, _file, mount)) = mounted("a") else {
        return;
    };
    let block = mount.path("blocks/1.bin");
    fs::write(&block, "a new block").unwrap();
    let listing = fs::read_dir(mount.path("blocks")).unwrap();
    fs::remove_file(&block).unwrap();
    assert_eq!(rest(listing), ["0.bin"]);
    assert!(!block.exists());
    // the next one of that number is another block
    fs::write(&block, "another").unwrap();
    assert_eq!(mount.text("blocks/1.bin"), "another");
}

#[test]
fn blocks_and_arrays_that_another_program_took_out_are_gone_when_its_tree_is_shown() {
    let Some((_dir, file, mount)) = mounted("abc") else {
        return;
    };
    let listings = ["blocks", "arrays"].map(|name| fs::read_dir(mount.path(name)).unwrap());
    fs::metadata(mount.path("blocks/2.bin")).unwrap();
    let other = file.with_extension("other");
    fs::write(&other, arrays("a").bytes()).unwrap();
    // what follows within a second is what a kernel would answer that remembers
    let looked =
        || ["blocks/2.bin", "arrays/c.npy"].map(|name| fs::metadata(mount.path(name)).is_ok());
    assert_eq!(looked(), [true, true]);
    fs::rename(&other, &file).unwrap();
    eventually("the other tree", || {
        let shown = !mount.text("tree.yaml").contains("\nb: ");
        if !shown {
            looked();
        }
        shown
    });
    for name in [
        "blocks/1.bin",
        "blocks/2.bin",
        "arrays/b.bin",
        "arrays/c.npy",
    ] {
        let gone = fs::metadata(mount.path(name)).map_err(|error| error.kind());
        assert_eq!(gone.err(), Some(ErrorKind::NotFound), "{name}");
    }
    let [blocks, arrays] = listings.map(rest);
    assert_eq!(
        (blocks, arrays),
        (
            vec!["0.bin".into()],
            vec!["a.bin".to_owned(), "a.npy".into()]
        )
    );
}
