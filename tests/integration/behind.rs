//! What other programs do to FILE while it is mounted, and what becomes then of whatever is open.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::common::{Mount, Mounted, can_mount, eventually, is_root};
use crate::sample::{Block, Sample, array};

const ESTALE: Option<i32> = Some(116);

/// Arrays `a`, `b`, … of eight bytes, all 1, all 2, …, each in its block, and a key `n`.
fn arrays(names: &str, n: u32) -> Sample {
    let entry = |(source, name): (i64, char)| array(&name.to_string(), source, "uint8", "[8]");
    let entries: Vec<String> = (0..).zip(names.chars()).map(entry).collect();
    let tree = Sample::new(&format!("n: {n}\n{}", entries.concat()));
    names.bytes().fold(tree, |sample, name| {
        sample.block(Block::raw(&[name - b'a' + 1; 8]))
    })
}

fn mounted(names: &str) -> Option<(TempDir, PathBuf, Mount)> {
    if !can_mount() {
        return None;
    }
    let dir = TempDir::new().unwrap();
    let file = arrays(names, 1).write(dir.path());
    let mount = Mount::new(&file, &[]);
    Some((dir, file, mount))
}

fn writable(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Changes FILE in place, as a program does that writes all of it.
fn overwrite(file: &Path, sample: &Sample) {
    fs::write(file, sample.bytes()).unwrap();
}

/// Waits until the tree is that of the other program.
fn shown(mount: &Mount, text: &str) {
    eventually(text, || mount.text("tree.yaml").contains(text));
}

#[test]
fn a_descriptor_of_an_array_does_not_write_into_what_is_an_array_there_now() {
    let Some((_dir, file, mount)) = mounted("ab") else {
        return;
    };
    let a = writable(&mount.path("arrays/a.bin"));
    let text = mount.text("tree.yaml");
    let swapped = text
        .replace("source: 0", "source: X")
        .replace("source: 1", "source: 0");
    fs::write(
        mount.path("tree.yaml"),
        swapped.replace("source: X", "source: 1"),
    )
    .unwrap();
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [2; 8]);
    let before = fs::read(&file).unwrap();
    assert_eq!(
        a.write_all_at(&[9; 3], 0).unwrap_err().raw_os_error(),
        ESTALE
    );
    drop(a);
    assert_eq!(fs::read(&file).unwrap(), before);
    writable(&mount.path("arrays/a.bin"))
        .write_all_at(&[9; 8], 0)
        .unwrap();
    assert_eq!(mount.read("blocks/1.bin").unwrap(), [9; 8]);
}

#[test]
fn a_descriptor_does_not_write_into_a_file_that_has_become_another() {
    let Some((_dir, file, mount)) = mounted("abc") else {
        return;
    };
    // each in another block: one is written through one file at a time
    let handles =
        ["arrays/a.bin", "arrays/b.npy", "blocks/2.bin"].map(|path| writable(&mount.path(path)));
    let other = arrays("xabc", 2);
    overwrite(&file, &other);
    shown(&mount, "n: 2");
    for handle in handles {
        let written = handle.write_all_at(&[9; 8], 128);
        assert_eq!(written.unwrap_err().raw_os_error(), ESTALE);
    }
    assert_eq!(fs::read(&file).unwrap(), other.bytes());
    assert_eq!(mount.read("arrays/b.bin").unwrap(), [2; 8]);
}

/// At close the block of the other program was cut.
#[test]
fn a_descriptor_does_not_cut_or_lengthen_a_block_that_has_become_another() {
    let Some((_dir, file, mount)) = mounted("ab") else {
        return;
    };
    let handles = [(); 3].map(|()| writable(&mount.path("blocks/1.bin")));
    let other = arrays("xab", 2);
    overwrite(&file, &other);
    shown(&mount, "n: 2");
    let [cut, same, longer] = handles;
    for refused in [
        cut.set_len(3),
        same.set_len(8),
        rustix::fs::fallocate(&longer, rustix::fs::FallocateFlags::empty(), 0, 20)
            .map_err(Into::into),
    ] {
        assert_eq!(refused.unwrap_err().raw_os_error(), ESTALE);
    }
    drop([cut, same, longer]);
    assert_eq!(mount.read("blocks/1.bin").unwrap(), [1; 8]);
    assert_eq!(fs::read(&file).unwrap(), other.bytes());
}

/// It went back to the bytes of before the writes, in the file that a save had replaced.
#[test]
fn a_reader_beside_a_writer_sees_no_earlier_bytes_when_another_program_changes_the_file() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = arrays("ab", 1).write(dir.path());
    let mount = Mount::new(&file, &["-o", "save=replace"]);
    let writer = writable(&mount.path("arrays/a.bin"));
    writer.write_all_at(&[8; 2], 0).unwrap();
    let reader = File::open(mount.path("arrays/a.npy")).unwrap();
    let tree = mount.text("tree.yaml").replace("n: 1", "n: 3");
    fs::write(mount.path("tree.yaml"), tree).unwrap();
    writer.write_all_at(&[9; 2], 4).unwrap();
    let read = || {
        let mut elements = [0; 8];
        reader.read_exact_at(&mut elements, 128).map(|()| elements)
    };
    assert_eq!(read().unwrap(), [8, 8, 1, 1, 9, 9, 1, 1]);
    overwrite(&file, &arrays("ab", 2));
    shown(&mount, "n: 2");
    assert_eq!(read().unwrap_err().raw_os_error(), ESTALE);
}

#[test]
fn data_that_another_program_changes_are_shown_and_not_written_over() {
    let Some((_dir, file, mount)) = mounted("ab") else {
        return;
    };
    let early = writable(&mount.path("arrays/a.bin"));
    let late = writable(&mount.path("arrays/a.bin"));
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 8]);
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes
        .windows(8)
        .position(|window| window == [1; 8])
        .unwrap();
    bytes[at..at + 2].copy_from_slice(&[7, 7]);
    writable(&file).write_all_at(&[7, 7], at as u64).unwrap();

    // before it is noticed, and after
    let written = early
        .write_all_at(&[1; 8], 0)
        .and_then(|()| early.sync_all());
    assert_eq!(written.unwrap_err().raw_os_error(), ESTALE);
    drop(early);
    assert_eq!(
        mount.read("arrays/a.bin").unwrap(),
        [7, 7, 1, 1, 1, 1, 1, 1]
    );
    assert_eq!(mount.read("blocks/0.bin").unwrap()[..2], [7, 7]);
    let written = late.write_all_at(&[1; 8], 0);
    assert_eq!(written.unwrap_err().raw_os_error(), ESTALE);
    drop(late);
    assert_eq!(fs::read(&file).unwrap(), bytes);

    writable(&mount.path("arrays/a.bin"))
        .write_all_at(&[5], 7)
        .unwrap();
    assert_eq!(
        mount.read("arrays/a.bin").unwrap(),
        [7, 7, 1, 1, 1, 1, 1, 5]
    );
}

#[test]
fn a_refused_text_does_not_hold_up_what_another_program_has_made_of_the_file() {
    let Some((dir, file, mount)) = mounted("ab") else {
        return;
    };
    let bad = mount.text("tree.yaml").replace("n: 1", "n: [");
    fs::write(mount.path("tree.yaml"), &bad).unwrap();
    assert_eq!(mount.text("tree.yaml"), bad);
    overwrite(&file, &arrays("xab", 2));
    shown(&mount, "n: 2");
    assert_eq!(mount.read("arrays/b.bin").unwrap(), [2; 8]);
    let rejected = dir.path().join("sample.asdf.rejected.yaml");
    assert_eq!(fs::read_to_string(&rejected).unwrap(), bad);
    assert!(mount.text("info/status").contains("NOT SAVED"));
    let good = mount.text("tree.yaml").replace("n: 2", "n: 3");
    fs::write(mount.path("tree.yaml"), &good).unwrap();
    assert!(!mount.text("info/status").contains("NOT SAVED"));
    assert!(!rejected.exists());
}

#[test]
fn a_text_made_of_an_older_tree_is_not_saved_over_a_newer_one() {
    let Some((dir, file, mount)) = mounted("a") else {
        return;
    };
    let old = mount.text("tree.yaml");
    let edited = writable(&mount.path("tree.yaml"));
    let replacing = mount.path("tree.yaml.new");
    fs::write(&replacing, old.replace("n: 1", "n: 4")).unwrap();
    let other = arrays("a", 22);
    overwrite(&file, &other);
    eventually("the other tree is noticed", || {
        let len = format!(", {} bytes\n", other.bytes().len());
        mount.text("info/status").contains(&len)
    });
    let renamed = fs::rename(&replacing, mount.path("tree.yaml"));
    assert_eq!(renamed.unwrap_err().raw_os_error(), ESTALE);
    let status = mount.text("info/status");
    let why = "NOT SAVED: tree.yaml: the tree has been changed since this was opened";
    assert!(status.contains(why), "{status}");
    edited
        .write_all_at(old.replace("n: 1", "n: 3").as_bytes(), 0)
        .unwrap();
    assert_eq!(edited.sync_all().unwrap_err().raw_os_error(), ESTALE);
    drop(edited);
    assert_eq!(fs::read(&file).unwrap(), other.bytes());
    shown(&mount, "n: 22");
    let kept = fs::read_to_string(dir.path().join("sample.asdf.rejected.yaml")).unwrap();
    assert!(kept.contains("n: 3"), "{kept}");
    fs::write(mount.path("tree.yaml"), old.replace("n: 1", "n: 5")).unwrap();
    let saved = fs::read(&file).unwrap();
    assert!(String::from_utf8_lossy(&saved).contains("n: 5"));
}

#[test]
fn what_cannot_be_read_for_a_moment_is_shown_when_it_can_be_again() {
    let Some((_dir, file, mount)) = mounted("ab") else {
        return;
    };
    let mut writer = File::create(&file).unwrap();
    eventually("the change is noticed", || {
        mount.text("info/status").contains("changed   ")
    });
    let error = mount.read("blocks/1.bin").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    writer.write_all(&arrays("xab", 2).bytes()).unwrap();
    drop(writer);
    shown(&mount, "n: 2");
    assert_eq!(mount.read("arrays/b.bin").unwrap(), [2; 8]);
    let text = mount.text("tree.yaml").replace("n: 2", "n: 3");
    fs::write(mount.path("tree.yaml"), &text).unwrap();
    assert!(!mount.text("info/status").contains("changed   "));
    assert!(fs::read(&file).unwrap().starts_with(text.as_bytes()));
}

#[test]
fn what_an_external_array_is_now_is_shown_to_whoever_opens_it() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let external = dir.path().join("other.asdf");
    let sample = |data: &[u8]| Sample::new("{}\n").block(Block::raw(data)).bytes();
    fs::write(&external, sample(&[1; 8])).unwrap();
    let tree = "a: !core/ndarray-1.0.0 {source: other.asdf, datatype: uint8, byteorder: little, shape: [8]}\n";
    let mount = Mount::new(&Sample::new(tree).write(dir.path()), &[]);
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 8]);
    let open = File::open(mount.path("arrays/a.bin")).unwrap();
    fs::write(&external, sample(&[2; 8])).unwrap();
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [2; 8]);
    fs::write(dir.path().join("new"), sample(&[3; 8])).unwrap();
    fs::rename(dir.path().join("new"), &external).unwrap();
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [3; 8]);
    drop(open);
}

#[test]
fn owner_mode_and_times_are_those_that_the_file_has_now() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let facts = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (meta.mode() & 0o666, meta.mtime())
    };
    fs::metadata(mount.path("tree.yaml")).unwrap();
    let open = writable(&mount.path("arrays/a.bin"));
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    for path in ["tree.yaml", "blocks/0.bin", "arrays/a.npy"] {
        eventually(path, || facts(&mount.path(path)).0 == 0o600);
    }
    // nobody has changed a byte
    open.write_all_at(&[3], 0).unwrap();
    drop(open);
    let mut set = File::open(mount.path("tree.yaml")).unwrap();
    let before = facts(&mount.path("tree.yaml")).1;
    set.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    set = writable(&mount.path("tree.yaml"));
    set.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    drop(set);
    assert_eq!(facts(&mount.path("tree.yaml")).1, before);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(then)
        .unwrap();
    for path in ["tree.yaml", "blocks/0.bin"] {
        eventually(path, || facts(&mount.path(path)).1 == 1_000_000_000);
    }
    assert_eq!(mount.read("arrays/a.bin").unwrap()[0], 3);
}

#[test]
fn a_tree_that_is_open_when_another_program_changes_it_is_not_shown_to_others_nor_saved_over_theirs()
 {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let tree = mount.path("tree.yaml");
    let old = mount.text("tree.yaml");
    let reader = File::open(&tree).unwrap();
    let writer = writable(&tree);
    overwrite(&file, &arrays("a", 2));
    // a program that keeps the file open does not keep the others from seeing what it is
    shown(&mount, "n: 2");
    let mut rest = vec![0; old.len()];
    reader.read_exact_at(&mut rest, 0).unwrap();
    assert_eq!(String::from_utf8(rest).unwrap(), old);
    writer
        .write_all_at(old.replace("n: 1", "n: 9").as_bytes(), 0)
        .unwrap();
    assert_eq!(writer.sync_all().unwrap_err().raw_os_error(), ESTALE);
    let text = mount.text("tree.yaml").replace("n: 2", "n: 3");
    fs::write(&tree, &text).unwrap();
    drop((reader, writer));
    assert_eq!(mount.text("tree.yaml"), text);
    assert!(fs::read(&file).unwrap().starts_with(text.as_bytes()));
}

/// The old file was shown for ever, and saved in the directory that had been moved away.
#[test]
fn what_takes_the_place_of_the_directory_of_the_file_is_shown_and_saved() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, n) in [("d", 1), ("next", 2)] {
        fs::create_dir(at(name)).unwrap();
        arrays("a", n).write(&at(name));
    }
    let file = fs::read_dir(at("d")).unwrap().next().unwrap().unwrap();
    let name = file.file_name().into_string().unwrap();
    let mount = Mount::new(&file.path(), &[]);
    let save = |old: &str, new: &str| {
        let text = mount.text("tree.yaml").replace(old, new);
        let mut tree = File::create(mount.path("tree.yaml")).unwrap();
        tree.write_all(text.as_bytes()).unwrap();
        tree.sync_all()
    };
    save("n: 1", "n: 9").unwrap();
    fs::rename(at("d"), at("old")).unwrap();
    save("n: 9", "n: 10").unwrap();
    assert!(save("n: 10", "n: [").is_err());
    let kept = at("old").join(format!("{name}.rejected.yaml"));
    assert!(kept.exists());
    let status = mount.text("info/status");
    assert!(status.contains(kept.to_str().unwrap()), "{status}");
    fs::rename(at("next"), at("d")).unwrap();
    shown(&mount, "n: 2");
    save("n: 2", "n: 20").unwrap();
    writable(&mount.path("arrays/a.bin"))
        .write_all_at(&[9; 8], 0)
        .unwrap();
    let holds = |directory: &str, what: &[u8]| {
        let bytes = fs::read(at(directory).join(&name)).unwrap();
        bytes.windows(what.len()).any(|part| part == what)
    };
    assert!(holds("d", b"n: 20") && holds("d", &[9; 8]));
    assert!(holds("old", b"n: 10\n") && !holds("old", &[9; 8]));
}

/// An overlay copies a file of its lower layer at the first write. What was mapped before stayed the old file: long reads showed that for
/// ever, and short ones the new one.
#[test]
fn a_file_in_the_lower_layer_of_an_overlay_is_shown_as_it_is_saved() {
    const LEN: usize = 1 << 20;
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["lower", "layers", "all"] {
        fs::create_dir(at(name)).unwrap();
    }
    let sample = Sample::new(&array("a", 0, "uint8", &format!("[{LEN}]")));
    sample.block(Block::raw(&vec![1; LEN])).write(&at("lower"));
    let disk = Mounted::new(&at("layers"), &["-t", "tmpfs", "none"]);
    for name in ["upper", "work"] {
        fs::create_dir(disk.0.join(name)).unwrap();
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower").display(),
        disk.0.join("upper").display(),
        disk.0.join("work").display()
    );
    let all = Mounted::new(&at("all"), &["-t", "overlay", "-o", &layers, "none"]);
    let file = fs::read_dir(&all.0).unwrap().next().unwrap().unwrap();
    let mount = Mount::new(&file.path(), &[]);
    assert_eq!(mount.read("blocks/0.bin").unwrap(), vec![1; LEN]);
    writable(&mount.path("arrays/a.bin"))
        .write_all_at(&vec![9; LEN], 0)
        .unwrap();
    for name in ["blocks/0.bin", "arrays/a.bin"] {
        assert!(mount.read(name).unwrap() == vec![9; LEN], "{name}");
    }
}

#[test]
fn a_link_to_the_tree_of_before_counts_its_own_name_alone() {
    let Some((_dir, file, mount)) = mounted("a") else {
        return;
    };
    let [tree, link] = ["tree.yaml", "link"].map(|name| mount.path(name));
    let _held = File::open(&tree).unwrap();
    fs::hard_link(&tree, &link).unwrap();
    assert_eq!(fs::metadata(&link).unwrap().nlink(), 2);
    overwrite(&file, &arrays("a", 2));
    shown(&mount, "n: 2");
    assert_eq!(fs::metadata(&link).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(&tree).unwrap().nlink(), 1);
    assert!(fs::read_to_string(&link).unwrap().contains("n: 1"));
}
