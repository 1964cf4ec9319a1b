//! Members of a mount of many that are closed and opened again: what the kernel knows of them, what is in memory only, what there is to
//! tell, and the descriptors that all of it takes.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{
    Mount, PROGRAM, asdf_mount, assert_refused, can_mount, daemons_of, eventually, is_root,
    mounted_at, run,
};
use crate::many::{data, files, open_files, sample};
use crate::sample::{Block, Sample, array};

const NOBODY: u32 = 65534;

fn tree(n: usize) -> String {
    String::from_utf8(sample(n).tree().to_vec()).unwrap()
}

/// A file that was renamed could not be written: the member of the old name, which no program used any more, still had it locked.
#[test]
fn a_renamed_file_can_be_written_once_nothing_is_open_under_its_old_name() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let block = |name: &str| mount.path(&format!("{name}/blocks/0.bin"));
    let write = |name: &str| {
        let file = File::options().write(true).open(block(name))?;
        file.write_all_at(name.as_bytes(), 0)?;
        file.sync_all()
    };
    write("a.asdf").unwrap();
    let reader = File::open(block("a.asdf")).unwrap();
    fs::rename(dir.path().join("a.asdf"), dir.path().join("c.asdf")).unwrap();
    eventually("the new name is shown", || block("c.asdf").exists());
    let refused = write("c.asdf").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
    drop(reader);
    // the kernel tells of the end of a descriptor when it likes
    eventually("the new name can be written", || write("c.asdf").is_ok());
}

/// As long as anything was open under the name that the file took over, all of it was EIO.
#[test]
fn a_file_that_takes_over_the_name_of_an_open_one_is_shown_once_nothing_is_open_under_its_old_name()
{
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let block = |name: &str| mount.path(&format!("{name}/blocks/0.bin"));
    for name in ["a.asdf", "b.asdf"] {
        let file = File::options().write(true).open(block(name)).unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
    }
    let readers = ["a.asdf", "b.asdf"].map(|name| File::open(block(name)).unwrap());
    fs::rename(dir.path().join("a.asdf"), dir.path().join("b.asdf")).unwrap();
    let read = || fs::read(block("b.asdf"));
    eventually("the file, which is locked, can not be read", || {
        let failed = read().err().and_then(|error| error.raw_os_error());
        failed == Some(Errno::IO.raw_os_error())
    });
    let [old, _new] = readers;
    drop(old);
    eventually("the file is shown under the name that it has now", || {
        read().is_ok_and(|read| read.starts_with(b"a.asdf"))
    });
}

/// Names that a save brings in are numbered behind the others, and in the order of the tree when the member is opened again.
#[test]
fn no_inode_number_means_another_file_after_saves_of_ours() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let others_want_its_place = || {
        eventually("the member is closed", || {
            mount.read("b.asdf/info/status").unwrap();
            open_files(&mount, dir.path()) == 1
        });
    };
    let flux = || fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    let before = flux().ino();
    let edited = tree(0).replace("n: 0", "n: 100");
    fs::write(mount.path("a.asdf/tree.yaml"), &edited).unwrap();
    others_want_its_place();
    assert_eq!(flux().len(), 64);
    let tree_yaml = mount.path("a.asdf/tree.yaml");
    let said = run(Command::new("sed")
        .arg("-i")
        .arg("s/n: 100/n: 101/")
        .arg(&tree_yaml));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let number = fs::metadata(&tree_yaml).unwrap().ino();
    others_want_its_place();
    assert_eq!(
        fs::metadata(&tree_yaml).unwrap().ino(),
        number,
        "after a save of another file"
    );
    let block = mount.path("a.asdf/blocks/0.bin");
    let block = File::options().write(true).open(block);
    block.unwrap().write_all_at(b"xyz", 3).unwrap();
    others_want_its_place();
    assert_ne!(flux().ino(), before, "it has other bytes");
    let before = flux().ino();
    // a name in front of the others: those that follow have other numbers than if they were given anew
    let more = edited.replace("n: 100\n", &array("dark", 0, "uint8", "[9]"));
    fs::write(mount.path("a.asdf/tree.yaml"), &more).unwrap();
    let dark = || fs::metadata(mount.path("a.asdf/arrays/dark.bin")).unwrap();
    let known = dark().ino();
    others_want_its_place();
    eventually("no number means another array", || {
        let found = [flux(), dark()].map(|meta| (meta.ino(), meta.len()));
        let taken = |(ino, len)| (ino == before && len != 64) || (ino == known && len != 9);
        assert!(!found.into_iter().any(taken), "{found:?}");
        found.map(|(_, len)| len) == [64, 9]
    });
}

/// The kernel kept the pages of an array that nothing had looked for since its member was opened again.
#[test]
fn pages_from_before_a_member_was_closed_are_not_shown_for_changed_bytes() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    assert_eq!(mount.read("a.asdf/arrays/flux.bin").unwrap(), data(0));
    mount.read("b.asdf/info/status").unwrap();
    let number = fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    mount.read("b.asdf/info/status").unwrap();
    assert_eq!(mount.text("a.asdf/tree.yaml"), tree(0));
    // as long as the other, so that the kernel does not see it by its length
    let changed = Sample::new(&tree_body(0).replace("n: 0", "n: 7")).block(Block::raw(&data(7)));
    assert_eq!(changed.bytes().len(), sample(0).bytes().len());
    fs::write(dir.path().join("a.asdf"), changed.bytes()).unwrap();
    eventually("the tree is shown as it is now", || {
        mount.text("a.asdf/tree.yaml").contains("n: 7")
    });
    let now = fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    assert_ne!(now.ino(), number.ino(), "it may have other bytes");
    assert_eq!(mount.read("a.asdf/arrays/flux.bin").unwrap(), data(7));
}

/// The kernel cut the longer text of a changed file to the length that it knew from before the member was closed.
#[test]
fn a_longer_tree_is_shown_whole_after_a_member_was_closed() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    for n in 10..20 {
        let tree_yaml = mount.path("a.asdf/tree.yaml");
        fs::metadata(&tree_yaml).unwrap();
        let before = mount.text("a.asdf/tree.yaml");
        eventually("the member is closed", || {
            mount.read("b.asdf/info/status").unwrap();
            open_files(&mount, dir.path()) == 1
        });
        let longer = format!("{}note: {}\n", tree_body(n), "x".repeat(n));
        let elsewhere = dir.path().join("new");
        let sample = Sample::new(&longer).block(Block::raw(&data(n)));
        fs::write(&elsewhere, sample.bytes()).unwrap();
        fs::rename(elsewhere, dir.path().join("a.asdf")).unwrap();
        let shown = mount.text("a.asdf/tree.yaml");
        let whole = shown.contains(&format!("note: {}\n", "x".repeat(n)));
        assert!(whole || shown == before, "{shown}");
    }
}

fn tree_body(n: usize) -> String {
    format!("n: {n}\n{}", array("flux", 0, "uint8", "[64]"))
}

/// Members with scratch files stayed open: `sed -i.bak` over more of them than there are descriptors ended in `EMFILE`, and `-u` then
/// did not know its own mount.
#[test]
fn scratch_files_outlive_members_that_are_closed_for_others() {
    const COUNT: usize = 60;
    if !can_mount() {
        return;
    }
    let names: Vec<_> = (0..COUNT).map(|n| format!("{n:02}.asdf")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let dir = files(&names);
    let place = TempDir::new().unwrap();
    let mnt = fs::canonicalize(place.path()).unwrap();
    let mut shell = Command::new("sh");
    let script = "ulimit -n 90; exec \"$0\" -q -o open=4 \"$1\" \"$2\"";
    let said = run(shell.args(["-c", script, PROGRAM]).args([dir.path(), &mnt]));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    for (n, name) in names.iter().enumerate() {
        let path = mnt.join(name).join("tree.yaml");
        let script = format!("s/n: {n}$/n: 1{n:03}/");
        let said = run(Command::new("sed").arg("-i.bak").arg(script).arg(path));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{name}");
    }
    fs::write(mnt.join("07.asdf/note"), "mine").unwrap();
    fs::write(mnt.join("08.asdf/blocks/.part"), "of a tool").unwrap();
    let daemon = daemons_of(&mnt)[0];
    eventually("descriptors are given back", || {
        let _ = fs::read(mnt.join("50.asdf/tree.yaml"));
        let _ = fs::read(mnt.join("51.asdf/tree.yaml"));
        let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap();
        open.count() < 60
    });
    for (n, name) in names.iter().enumerate() {
        let text = |file: &str| fs::read_to_string(mnt.join(name).join(file)).unwrap();
        assert_eq!(text("tree.yaml.bak"), tree(n), "{name}");
        let want = tree(n).replace(&format!("n: {n}\n"), &format!("n: 1{n:03}\n"));
        assert_eq!(text("tree.yaml"), want, "{name}");
    }
    assert_eq!(fs::read(mnt.join("07.asdf/note")).unwrap(), b"mine");
    let part = fs::read(mnt.join("08.asdf/blocks/.part"));
    assert_eq!(part.unwrap(), b"of a tool");
    // its own backup is put back
    let put_back = fs::rename(
        mnt.join("05.asdf/tree.yaml.bak"),
        mnt.join("05.asdf/tree.yaml"),
    );
    put_back.unwrap();
    let saved = fs::read(dir.path().join("05.asdf")).unwrap();
    assert!(saved.starts_with(tree(5).as_bytes()));
    let said = asdf_mount([Path::new("-u"), &mnt]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    // a tool's temporary file is not, as nobody misses it
    let lost = [
        "06.asdf: tree.yaml.bak (187 bytes)",
        "07.asdf: note (4 bytes)",
    ];
    assert!(
        lost.iter().all(|lost| said.stderr.contains(lost)),
        "{}",
        said.stderr
    );
    assert!(!said.stderr.contains(".part"), "{}", said.stderr);
    assert!(mounted_at(&mnt).is_none());
}

#[test]
fn the_memory_of_scratch_files_is_that_of_the_mount() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "c.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1,scratch=64K"]);
    let note = vec![b'x'; 40 << 10];
    fs::write(mount.path("a.asdf/note.tmp"), &note).unwrap();
    mount.read("c.asdf/info/status").unwrap();
    let refused = fs::write(mount.path("b.asdf/note.tmp"), &note).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let status = mount.text(".asdf-mount/status");
    let used = "of 65536 bytes for scratch files\n";
    assert!(status.contains(used), "{status}");
    fs::remove_file(mount.path("b.asdf/note.tmp")).unwrap();
    assert_eq!(mount.read("a.asdf/note.tmp").unwrap(), note);
    fs::remove_file(mount.path("a.asdf/note.tmp")).unwrap();
    // the kernel tells later that the file is closed that has just been read
    eventually("its memory is free", || {
        fs::write(mount.path("b.asdf/note.tmp"), &note).is_ok()
    });
}

#[test]
fn what_a_member_has_to_tell_outlives_its_closing() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "c.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let edited = tree(0).replace("n: 0", "n: 100");
    fs::write(mount.path("a.asdf/tree.yaml"), edited).unwrap();
    let block = mount.path("b.asdf/blocks/0.bin");
    let refused = run(Command::new("truncate").arg("-s5").arg(block));
    assert_ne!(refused.code, 0);
    let told = |name: &str, words: &str| {
        let status = mount.text(&format!("{name}/info/status"));
        assert!(status.contains(words), "{words:?} is not in {status}");
    };
    for _ in 0..2 {
        told("a.asdf", " s ago");
        told("b.asdf", "it no longer holds array flux");
        eventually("the members are closed", || {
            mount.read("c.asdf/info/status").unwrap();
            open_files(&mount, dir.path()) == 1
        });
        let status = mount.text(".asdf-mount/status");
        assert!(status.contains("NOT SAVED: b.asdf: "), "{status}");
    }
    let said = asdf_mount([Path::new("-u"), &mount.dir]);
    assert_eq!(said.code, 40, "{}", said.stderr);
    assert!(said.stderr.contains("b.asdf: "), "{}", said.stderr);
}

#[test]
fn a_file_that_is_removed_is_closed_when_that_is_noticed() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf", "sub/c.asdf", "sub/d.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let names = ["a.asdf", "b.asdf", "sub/c.asdf", "sub/d.asdf"];
    for name in names {
        mount.read(&format!("{name}/blocks/0.bin")).unwrap();
    }
    fs::remove_file(dir.path().join("a.asdf")).unwrap();
    fs::remove_file(dir.path().join("sub/c.asdf")).unwrap();
    eventually("a listing closes it", || {
        mount.names("");
        open_files(&mount, dir.path()) == 3
    });
    // the space of a directory that was removed stayed taken
    fs::remove_dir_all(dir.path().join("sub")).unwrap();
    eventually("a listing of what it was in closes all", || {
        mount.names("");
        open_files(&mount, dir.path()) == 1
    });
    fs::remove_file(dir.path().join("b.asdf")).unwrap();
    eventually("the report closes all", || {
        mount.text(".asdf-mount/status");
        open_files(&mount, dir.path()) == 0
    });
}

#[test]
fn a_name_that_is_no_text_is_told_from_others_in_the_table() {
    if !can_mount() {
        return;
    }
    let dir = files(&["\u{e9}.asdf", "\u{202e}.asdf"]);
    for name in [&b"\xff.asdf"[..], b"\xfe.asdf"] {
        let path = dir.path().join(OsStr::from_bytes(name));
        fs::write(path, sample(1).bytes()).unwrap();
    }
    let mount = Mount::new(dir.path(), &[]);
    let table = mount.table(".asdf-mount/files.tsv");
    let paths: Vec<_> = table.iter().skip(1).map(|row| row[0].as_str()).collect();
    let want = ["\u{e9}.asdf", "\u{202e}.asdf", "%FE.asdf", "%FF.asdf"];
    assert_eq!(paths, want);
}

/// Any user could read the names of files that are closed to others.
#[test]
fn what_is_not_saved_is_told_to_the_owner_of_the_mount_only() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = files(&["shut/a.asdf"]);
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(dir.path(), 0o755);
    mode(&dir.path().join("shut"), 0o700);
    let mount = Mount::new(dir.path(), &["-o", "allow_other"]);
    mode(mount.dir.parent().unwrap(), 0o755);
    fs::write(mount.path("shut/a.asdf/note"), "secret").unwrap();
    let note = "shut/a.asdf: note (6 bytes)";
    let asked = mount.attribute("", "user.asdf.scratch");
    assert_eq!(asked.as_deref(), Some(note));
    let program = "
import os, sys
print(os.getxattr(sys.argv[1], 'user.asdf.pid').decode().isdigit())
for name in ['scratch', 'unsaved', 'unkept']:
    try: print(os.getxattr(sys.argv[1], 'user.asdf.' + name))
    except OSError as error: print(error.errno)
";
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(&mount.dir);
    let said = run(python.uid(NOBODY).gid(NOBODY));
    assert_eq!(
        (said.stdout.as_str(), said.stderr.as_str()),
        ("True\n61\n61\n61\n", "")
    );
}

/// The root of a mount of many is not to be written, and the kernel did not let its owner set the attribute there.
#[test]
fn the_owner_of_a_mount_of_many_gives_refused_texts_up() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = files(&["a.asdf", "d/b.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    let script = "for it in a d/b; do echo '--- [' > \"$0/$it.asdf/tree.yaml\"; done";
    run(Command::new("sh").args(["-c", script]).arg(&mount.dir));
    assert_eq!(mount.text("a.asdf/tree.yaml"), "--- [\n");
    // what the status names is the file
    let file = dir.path().canonicalize().unwrap().join("d/b.asdf");
    let advice = format!("asdf-mount --revert {} shows", file.display());
    assert!(mount.text("d/b.asdf/info/status").contains(&advice));
    let said = |whose: &Path, trees: &[(&str, &Path)]| -> String {
        let whose = whose.display();
        let line = |(tree, file): &(&str, &Path)| {
            let file = file.display();
            format!(
                "asdf-mount: {whose}: {tree} shows the saved tree again; the refused text is in {file}.rejected.yaml\n"
            )
        };
        trees.iter().map(line).collect()
    };
    // another mount shows the file, too, and has refused nothing
    let _other = Mount::new(&file, &["-r"]);
    for asked in [file.clone(), mount.path("d/b.asdf/tree.yaml")] {
        fs::write(mount.path("d/b.asdf/tree.yaml"), "--- [\n").unwrap();
        assert_eq!(mount.text("d/b.asdf/tree.yaml"), "--- [\n");
        let one = asdf_mount([OsStr::new("--revert"), asked.as_os_str()]);
        assert_eq!(one.stderr, said(&asked, &[("tree.yaml", &file)]));
        assert_eq!(mount.text("d/b.asdf/tree.yaml"), tree(1));
        assert_eq!(mount.text("a.asdf/tree.yaml"), "--- [\n");
        fs::remove_file(dir.path().join("d/b.asdf.rejected.yaml")).unwrap();
    }
    for wrong in ["d", "none.asdf"] {
        let said = asdf_mount([OsStr::new("--revert"), mount.path(wrong).as_os_str()]);
        assert_refused(&said, 10, "not a mounted ASDF file");
        assert_eq!(mount.text("a.asdf/tree.yaml"), "--- [\n");
    }
    // the owner, whom permissions hold for
    let mut owner = Command::new("setpriv");
    owner.args(["--bounding-set", "-dac_override", PROGRAM, "--revert"]);
    let all = run(owner.arg(&mount.dir));
    let file = dir.path().canonicalize().unwrap().join("a.asdf");
    let told = said(&mount.dir, &[("a.asdf/tree.yaml", &file)]);
    assert_eq!((all.code, all.stderr), (0, told));
    assert_eq!(mount.text("a.asdf/tree.yaml"), tree(0));
}

/// They were gone when their directory was renamed, and what had been written to them could not be saved.
#[test]
fn files_that_were_named_one_by_one_are_found_where_their_directory_is_now() {
    if !can_mount() {
        return;
    }
    let dir = files(&["d/a.asdf", "d/b.asdf", "c.asdf"]);
    let at = |name: &str| dir.path().join(name);
    let mut command = Command::new(PROGRAM);
    command.args(["-q", "-o", "open=1"]);
    command.args([at("d/a.asdf"), at("d/b.asdf")]);
    let mount = Mount::by(&mut command, &at("c.asdf"));
    let save = |name: &str, old: &str, new: &str| {
        let path = format!("{name}/tree.yaml");
        let text = mount.text(&path).replace(old, new);
        let mut tree = File::create(mount.path(&path)).unwrap();
        tree.write_all(text.as_bytes()).unwrap();
        tree.sync_all()
    };
    save("a.asdf", "n: 0", "n: 10").unwrap();
    let path = mount.path("a.asdf/tree.yaml");
    let tree = File::options().read(true).write(true).open(path).unwrap();
    let place = mount.text("a.asdf/tree.yaml").find("n: 10").unwrap();
    tree.write_all_at(b"n: 20", place as u64).unwrap();
    fs::rename(at("d"), at("old")).unwrap();
    tree.sync_all().unwrap();
    drop(tree);
    save("a.asdf", "n: 20", "n: 100").unwrap();
    // was never open
    save("b.asdf", "n: 1", "n: 200").unwrap();
    assert_eq!(mount.names(""), ["a.asdf", "b.asdf", "c.asdf"]);
    let holds = |name: &str, what: &[u8]| {
        let bytes = fs::read(at(name)).unwrap();
        bytes.windows(what.len()).any(|part| part == what)
    };
    assert!(holds("old/a.asdf", b"n: 100\n") && holds("old/b.asdf", b"n: 200\n"));
    // what gets the path has the file from then on
    fs::create_dir(at("d")).unwrap();
    fs::copy(at("c.asdf"), at("d/b.asdf")).unwrap();
    eventually("the new one is shown", || {
        mount.text("b.asdf/tree.yaml").contains("n: 2\n")
    });
    save("b.asdf", "n: 2", "n: 300").unwrap();
    assert!(holds("d/b.asdf", b"n: 300\n") && holds("old/b.asdf", b"n: 200\n"));
}

/// A listing of the directory said for ever what was there before; only a lookup in it told that the file can't be read.
#[test]
fn a_file_that_another_program_breaks_is_listed_as_such() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf"]);
    let mount = Mount::new(dir.path(), &[]);
    assert!(mount.names("a.asdf").contains(&"tree.yaml".to_owned()));
    fs::write(dir.path().join("a.asdf"), "garbage").unwrap();
    eventually("it is listed as a file that can't be read", || {
        mount.names("a.asdf") == ["info"]
    });
}
