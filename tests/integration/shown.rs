//! What readers are shown after a save: at once, whole, and whoever had what open.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::{Mount, Mounted, asdf_mount, can_mount, is_root};
use crate::sample::{Block, Sample, array};

const LEN: usize = 100_000;

/// Arrays `a` and `b` of bytes 1 and 2, each in its block.
fn two_arrays() -> Sample {
    let shape = format!("[{LEN}]");
    let tree = ["a", "b"]
        .iter()
        .zip(0..)
        .map(|(name, n)| array(name, n, "uint8", &shape));
    Sample::new(&tree.collect::<String>())
        .block(Block::raw(&vec![1; LEN]))
        .block(Block::raw(&vec![2; LEN]))
}

fn writable(sample: &Sample) -> Option<(TempDir, PathBuf, Mount)> {
    if !can_mount() {
        return None;
    }
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    Some((dir, file, mount))
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn at(file: &File, offset: usize) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset as u64).unwrap();
    byte[0]
}

fn edit_tree(mount: &Mount, edit: impl Fn(&str) -> String) {
    let text = mount.text("tree.yaml");
    fs::write(mount.path("tree.yaml"), edit(&text)).unwrap();
}

/// Whether a handle of a file that has become another one reads the bytes that it was opened for, or an error.
fn is_of_before(file: &File, offset: usize, before: u8) -> bool {
    let mut byte = [0];
    match file.read_exact_at(&mut byte, offset as u64) {
        Ok(()) => byte[0] == before,
        Err(error) => Errno::from_io_error(&error) == Some(Errno::STALE),
    }
}

#[test]
fn who_has_an_array_open_is_never_shown_another_one() {
    let Some((_dir, _file, mount)) = writable(&two_arrays()) else {
        return;
    };
    let early = File::open(mount.path("arrays/a.bin")).unwrap();
    assert_eq!(at(&early, 0), 1);
    edit_tree(&mount, |text| {
        let text = text.replace("source: 0", "source: X");
        text.replace("source: 1", "source: 0")
            .replace("source: X", "source: 1")
    });
    assert!(is_of_before(&early, LEN / 2, 1));
    assert_eq!(mount.read("arrays/a.bin").unwrap(), vec![2; LEN]);
}

#[test]
fn an_array_or_block_that_comes_back_as_another_is_another_file() {
    let Some((_dir, _file, mount)) = writable(&two_arrays()) else {
        return;
    };
    let tree = mount.text("tree.yaml");
    let a = array("a", 0, "uint8", &format!("[{LEN}]"));
    let early = File::open(mount.path("arrays/a.bin")).unwrap();
    assert_eq!(at(&early, 0), 1);
    // both saves within a tick of FILE's clock, so that the kernel sees no other time of change
    fs::write(mount.path("tree.yaml"), tree.replace(&a, "")).unwrap();
    let back = tree.replace(&a, &a.replace("source: 0", "source: 1"));
    fs::write(mount.path("tree.yaml"), back).unwrap();
    assert!(is_of_before(&early, 0, 1));
    assert_eq!(mount.read("arrays/a.bin").unwrap(), vec![2; LEN]);
    let block = mount.path("blocks/2.bin");
    fs::write(&block, "old").unwrap();
    let early = File::open(&block).unwrap();
    assert_eq!(at(&early, 0), b'o');
    fs::remove_file(&block).unwrap();
    fs::write(&block, "new").unwrap();
    assert_eq!(fs::read(&block).unwrap(), b"new");
    drop(early);
}

/// The arrays of the tree before were kept, because the old snapshot had the new length, too.
#[test]
fn what_is_appended_to_a_streamed_block_is_in_its_array_at_once() {
    let sample = Sample::new(&array("a", -1, "uint8", "['*']")).block(Block::streamed(&[1; 10]));
    let Some((_dir, _file, mount)) = writable(&sample) else {
        return;
    };
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 10]);
    let mut block = OpenOptions::new();
    let mut block = block.append(true).open(mount.path("blocks/0.bin")).unwrap();
    block.write_all(&[1; 20]).unwrap();
    drop(block);
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 30]);
    assert_eq!(fs::metadata(mount.path("arrays/a.bin")).unwrap().len(), 30);
}

#[test]
fn what_a_save_makes_longer_is_all_there_at_once() {
    let sample = Sample::new(&array("a", 0, "uint8", "['*']")).block(Block::raw(&[1; 10]));
    let Some((_dir, _file, mount)) = writable(&sample) else {
        return;
    };
    let mut len = 10;
    for _ in 0..300 {
        assert_eq!(mount.read("arrays/a.bin").unwrap().len(), len);
        let append = OpenOptions::new()
            .append(true)
            .open(mount.path("blocks/0.bin"));
        append.unwrap().write_all(&[1; 10]).unwrap();
        len += 10;
    }
}

#[test]
fn a_block_that_follows_its_end_can_be_cut() {
    let sample = Sample::new(&array("a", 0, "int16", "['*']")).block(Block::raw(&[1; 1000]));
    let Some((_dir, file, mount)) = writable(&sample) else {
        return;
    };
    open(&mount.path("blocks/0.bin")).set_len(900).unwrap();
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 900]);
    mount.unmount();
    assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
}

#[test]
fn a_save_does_not_hide_that_others_have_changed_data() {
    let Some((_dir, file, mount)) = writable(&two_arrays()) else {
        return;
    };
    assert_eq!(mount.read("arrays/a.bin").unwrap(), vec![1; LEN]);
    let bytes = fs::read(&file).unwrap();
    let start = bytes
        .windows(9)
        .position(|window| window == [1; 9])
        .unwrap();
    open(&file).write_all_at(&[9], start as u64).unwrap();
    edit_tree(&mount, |text| text.replace("b:", "c:"));
    assert_eq!(mount.read("arrays/a.bin").unwrap()[..2], [9, 1]);
    assert_eq!(mount.read("blocks/0.bin").unwrap()[..2], [9, 1]);
}

#[test]
fn an_external_array_is_shown_to_all_as_who_opens_it_last_finds_it() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let other = |value: u8| {
        let sample = Sample::new(&array("x", 0, "uint8", "[100000]"));
        sample.block(Block::raw(&vec![value; LEN])).bytes()
    };
    fs::write(dir.path().join("other.asdf"), other(1)).unwrap();
    let fields = "source: other.asdf, datatype: uint8, byteorder: little, shape: [100000]";
    let file = Sample::new(&crate::sample::array_with("a", fields)).write(dir.path());
    let mount = Mount::new(&file, &[]);
    let early = File::open(mount.path("arrays/a.bin")).unwrap();
    assert_eq!(at(&early, 0), 1);
    fs::write(dir.path().join("new.asdf"), other(2)).unwrap();
    fs::rename(dir.path().join("new.asdf"), dir.path().join("other.asdf")).unwrap();
    let late = File::open(mount.path("arrays/a.bin")).unwrap();
    assert_eq!(at(&early, 0), 2);
    assert_eq!(at(&late, LEN / 2), 2);
}

/// Takes all room of the disk that `file` is on, and gives it back when dropped.
struct Full(PathBuf);

impl Full {
    fn beside(file: &Path) -> Self {
        let path = file.with_file_name("fill");
        let mut filling = File::create(&path).unwrap();
        while filling.write_all(&[0; 4096]).is_ok() {}
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn a_save_that_had_no_room_is_made_when_there_is() {
    if !can_mount() || !is_root() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let disk = Mounted::new(dir.path(), &["-t", "tmpfs", "-o", "size=1m", "none"]);
    let file = two_arrays().write(&disk.0);
    let mount = Mount::new(&file, &[]);
    let block = open(&mount.path("blocks/0.bin"));
    block.write_all_at(&[9; 1000], 0).unwrap();
    let full = Full::beside(&file);
    // it is in the file already
    block.sync_all().unwrap();
    let text = mount.text("tree.yaml").replace("b:", "c:");
    let mut tree = File::create(mount.path("tree.yaml")).unwrap();
    tree.write_all(text.as_bytes()).unwrap();
    assert_eq!(tree.sync_all().unwrap_err().raw_os_error(), Some(28));
    drop(tree);
    assert_eq!(mount.read("blocks/1.bin").unwrap(), vec![2; LEN]);
    drop(full);
    block.sync_all().unwrap();
    drop(block);
    assert_eq!(mount.read("arrays/a.bin").unwrap()[999..1001], [9, 1]);
    mount.unmount();
    assert_eq!(
        Mount::new(&file, &["-r"]).read("blocks/0.bin").unwrap()[..1000],
        [9; 1000]
    );
}

/// The header of the old form was read with elements that were written after the form had changed.
#[test]
fn a_form_from_between_two_writes_is_not_read_once_its_block_is_written_again() {
    let Some((_dir, _file, mount)) = writable(&two_arrays()) else {
        return;
    };
    let block = open(&mount.path("blocks/0.bin"));
    block.write_all_at(b"A", 7).unwrap();
    let between = File::open(mount.path("arrays/a.npy")).unwrap();
    edit_tree(&mount, |text| text.replacen("[100000]", "[10, 10]", 1));
    block.write_all_at(b"B", 7).unwrap();
    let mut all = Vec::new();
    let read = (&between).read_to_end(&mut all);
    let is_stale = read.is_err_and(|it| it.raw_os_error() == Some(Errno::STALE.raw_os_error()));
    assert!(is_stale || all[all.len() - LEN + 7] == b'A');
}
