//! What is shown after a save, whatever another program or a failing disk does meanwhile.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::asdf::sample::{Sample, block_with};
use crate::source::{Loan, Memory, Source};
use crate::vfs::attr::WRITE;
use crate::vfs::block_write::import_file;
use crate::vfs::testing::{writable, writable_with};
use crate::vfs::{Access, Bytes, Detail, FileFacts, Vfs};

/// Another program replaces some bytes of FILE by others.
fn put(path: &Path, old: &[u8], new: &[u8], seconds: u64) {
    let bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(old.len()).position(|it| it == old).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(new, at as u64).unwrap();
    // whatever the clock is, the times tell it from what was before
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

fn noted(note: &str) -> Edit {
    let text = format!("#ASDF 1.0.0\n---\nnote: {note}\n...\n");
    Edit::text(Arc::new(text.into_bytes()))
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let codec = crate::codec::codec(*b"zlib").unwrap();
    let bytes = Memory::new(bytes.to_vec());
    codec.encode(None, &bytes, &mut out).unwrap();
    out
}

/// The next look at FILE.
fn look(vfs: &Vfs) {
    vfs.saves.refresh_soon();
    vfs.refresh();
}

/// It had the time of FILE, as it may grow: each save of the tree made it new, though none of its bytes had changed.
#[test]
fn a_streamed_block_has_the_time_of_its_bytes() {
    let (dir, vfs) = writable(&Sample::new().padding(&[0; 4000]).streamed(b"abc"));
    let path = dir.path().join("a.asdf");
    let time = || vfs.getattr_now(Node::Block(0)).unwrap().mtime;
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    put(&path, b"abc", b"xyz", 1000);
    look(&vfs);
    assert_eq!(time(), at(1000));
    let mut writer = vfs.saves.writer().unwrap();
    let saved = vfs
        .saves
        .commit(&mut writer, &noted("1"), "tree", None, None, None);
    saved.unwrap();
    drop(writer);
    assert!(vfs.stat().modified() > at(1000));
    assert_eq!(time(), at(1000));
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    file.set_modified(at(2000)).unwrap();
    drop(file);
    look(&vfs);
    let grown = vfs.getattr_now(Node::Block(0)).unwrap();
    assert_eq!((grown.size, grown.mtime), (7, at(2000)));
    let handle = vfs.open_now(Node::Block(0), WRITE).unwrap().handle;
    vfs.write(&handle, 0, b"X", false).unwrap();
    let written = time();
    assert!(written > at(2000));
    vfs.flush(&handle, 0).unwrap();
    vfs.release(&handle);
    assert_eq!(time(), written);
}

/// The kernel kept the old pages, and this program the old decoded bytes, for good: the times of the save were later.
#[test]
fn data_that_another_program_writes_during_a_save_of_the_text_are_shown() {
    let [old, new] = [b"abcdefgh", b"hgfedcba"].map(|bytes| zlib(bytes));
    let block = block_with(*b"zlib", &old, 8, old.len() as u64);
    let sample = Sample::new().padding(&[0; 4000]);
    let (dir, vfs) = writable(&sample.stored(block).block(b"raw"));
    let path = dir.path().join("a.asdf");
    let version = || vfs.shown.now().version(Node::Block(1));
    let before = version();
    let read = || {
        let opened = vfs.open_now(Node::Block(0), Access::default()).unwrap();
        match vfs.read(&opened.handle, 0, 8).unwrap() {
            Bytes::Owned(bytes) => bytes.to_vec(),
            Bytes::Lent(Loan::Shared(all, range), _) => (*all).as_ref()[range].to_vec(),
            Bytes::Lent(..) => panic!("it is compressed"),
        }
    };
    assert_eq!(read(), b"abcdefgh");
    let mut writer = vfs.saves.writer().unwrap();
    let committed = writer.commit(&noted("1"), &mut |_| {
        put(&path, &old, &new, 1000);
        put(&path, b"raw", b"RAW", 2000);
    });
    let committed = committed.unwrap();
    assert!(committed.around.is_none());
    let saved = vfs.saves.show_saved(committed, "x", &[], None, None, None);
    saved.unwrap();
    drop(writer);
    look(&vfs);
    assert!(version() > before);
    assert_eq!(read(), b"hgfedcba");
}

/// The state took the times that FILE had when it was shown, so that it was never looked at again.
#[test]
fn a_text_that_another_program_writes_right_behind_a_save_is_shown() {
    let (dir, vfs) = writable(&Sample::new().padding(&[0; 4000]).block(b"abc"));
    let mut writer = vfs.saves.writer().unwrap();
    let committed = writer.commit(&noted("1"), &mut |_| ()).unwrap();
    assert!(committed.around.is_some());
    put(&dir.path().join("a.asdf"), b"note: 1", b"note: 2", 1000);
    let saved = vfs.saves.show_saved(committed, "x", &[], None, None, None);
    saved.unwrap();
    drop(writer);
    look(&vfs);
    let text = Arc::clone(vfs.shown.now().snapshot.text());
    assert!(String::from_utf8_lossy(&text).contains("note: 2"));
}

/// The exchange of names changes the time of change of the new file: that is no other program.
#[test]
fn a_save_by_a_new_file_is_not_taken_for_a_change_by_another_program() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let mut writer = vfs.saves.writer().unwrap();
    let committed = writer
        .commit(&noted(&"1".repeat(100)), &mut |_| ())
        .unwrap();
    assert_eq!(committed.method, Method::Replaced);
    let (_, now) = committed.around.unwrap();
    let there = std::fs::metadata(dir.path().join("a.asdf")).unwrap();
    assert!(Stat::from(&there).is_untouched_since(&now));
}

/// Once something had touched FILE, its own bytes were read with the layout that its journal was yet to make true.
#[test]
fn the_bytes_of_an_unfinished_save_are_shown_when_file_is_touched() {
    for is_touched in [false, true] {
        let sample = || Sample::new().padding(&[0; 4000]);
        let (_dir, vfs) = writable(&sample().block(b"abc"));
        let mut writer = vfs.saves.writer().unwrap();
        let bytes: Arc<dyn Source> = Arc::new(Memory::new(sample().block(b"xyz").bytes()));
        let cause = std::io::Error::from_raw_os_error(5);
        let committed = Committed {
            file: Arc::clone(writer.file()),
            scan: crate::asdf::scan::scan(&*bytes, false).unwrap(),
            bytes: Some(writer.leave_committed(&*bytes).unwrap()),
            method: Method::InPlace,
            written: 3,
            unfinished: Some(Library::io("J3", cause)),
            around: None,
        };
        let saved = vfs.saves.show_saved(committed, "x", &[0], None, None, None);
        assert!(matches!(saved, Err(Error::Unfinished(..))));
        if is_touched {
            vfs.saves.show_times(&vfs.shown.now(), None);
            vfs.saves.catch_up(Some(&mut writer));
        }
        drop(writer);
        let mut data = [0; 3];
        let block = vfs.shown.now().snapshot.block(0).unwrap();
        block.read_exact_at(&mut data, 0).unwrap();
        assert_eq!(&data, b"xyz", "touched: {is_touched}");
    }
}

/// The block that another program had added was empty in the mount, and in FILE after the next write to it.
#[test]
fn a_block_that_another_program_adds_is_not_the_one_that_is_being_made() {
    let (dir, vfs) = writable(&Sample::new().block(b"a"));
    let name = "1.bin".as_ref();
    let made = vfs.create(Node::Blocks, name, FileFacts::new(0o600, 0, 0), WRITE);
    let made = made.unwrap().1.handle;
    let other = Sample::new().block(b"a").block(b"b").bytes();
    std::fs::write(dir.path().join("a.asdf"), other).unwrap();
    vfs.saves.refresh_soon();
    assert_eq!(vfs.lookup(Node::Blocks, name).unwrap().size, 1);
    let refused = vfs.write(&made, 0, b"x", false);
    let stale = matches!(refused, Err(Error::Library(Library::Stale { .. })));
    assert!(stale, "{refused:?}");
    vfs.release(&made);
    assert_eq!(vfs.lookup(Node::Blocks, name).unwrap().size, 1);
}

/// As nobody had asked for names since the block had come, all arrays were taken for changed: whoever had mapped one got SIGBUS.
#[test]
fn an_array_that_a_new_block_and_another_tree_leave_as_it_was_keeps_its_number() {
    let tree = |note: u8| {
        format!(
            "#ASDF 1.0.0\n%YAML 1.1\n--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\n\
            x: !<tag:stsci.edu:asdf/core/ndarray-1.0.0> {{source: 0, datatype: uint8, byteorder: little, shape: [3]}}\n\
            note: {note}\n...\n"
        )
    };
    let (_dir, vfs) = writable(&Sample::new().text(tree(1).as_bytes()).block(b"abc"));
    let number = || vfs.lookup(Node::ArrayDir(0), "x.bin".as_ref()).unwrap();
    let before = number();
    let facts = FileFacts::new(0o600, 0, 0);
    let made = vfs.create(Node::Blocks, "1.bin".as_ref(), facts, WRITE);
    let (_, block) = made.unwrap();
    vfs.flush(&block.handle, 0).unwrap();
    vfs.release(&block.handle);
    let text = vfs.open_now(Node::TREE, WRITE).unwrap().handle;
    vfs.write(&text, 0, tree(2).as_bytes(), false).unwrap();
    vfs.flush(&text, 0).unwrap();
    assert_eq!(vfs.snapshot().layout().blocks.len(), 2);
    assert_eq!(number().version, before.version);
}

/// Another program had made FILE shorter. Behind its last block, a block was listed that an open file had written to, and kept the last one
/// from being removed.
#[test]
fn a_block_that_another_program_takes_away_is_not_being_written() {
    let (dir, vfs) = writable(&Sample::new().block(b"a").block(b"b"));
    let opened = vfs.open_now(Node::Block(1), WRITE).unwrap().handle;
    vfs.write(&opened, 0, b"x", false).unwrap();
    std::fs::write(dir.path().join("a.asdf"), Sample::new().block(b"a").bytes()).unwrap();
    look(&vfs);
    let mut listed = Vec::new();
    let directory = vfs.opendir(Node::Blocks).unwrap();
    let mut note = |_, name: &std::ffi::OsStr, _: &_| {
        listed.push(name.to_owned());
        false
    };
    vfs.readdir(&directory, 0, Detail::Quick, &mut note)
        .unwrap();
    assert_eq!(listed, ["0.bin"]);
    vfs.unlink(Node::Blocks, "0.bin".as_ref()).unwrap();
    vfs.release(&opened);
}

/// Between two looks, another program wrote into FILE and then moved a new file over it. A file that was open showed the changed bytes of
/// the old file as those from before.
#[test]
fn a_file_that_is_changed_before_it_is_replaced_is_not_read_as_it_was() {
    let sample = || Sample::new().block(b"abcdefgh");
    let (dir, vfs) = writable(&sample());
    let (path, other) = (dir.path().join("a.asdf"), dir.path().join("b.asdf"));
    let opened = vfs.open_now(Node::Block(0), Access::default()).unwrap();
    put(&path, b"abcdefgh", b"ABCDEFGH", 1000);
    std::fs::write(&other, sample().block(b"more").bytes()).unwrap();
    std::fs::rename(&other, &path).unwrap();
    look(&vfs);
    let found = vfs.read(&opened.handle, 0, 8);
    let stale = matches!(found, Err(Error::Library(Library::Stale { .. })));
    assert!(stale, "the file has the bytes of neither");
}

/// A save had moved FILE to another inode since the block was opened. The edits were read over the bytes of that inode, which another program
/// had cut short.
#[test]
fn edits_are_not_read_over_bytes_that_another_program_has_taken_away() {
    let (dir, vfs) = writable(&Sample::new().block(b"a").block(b"abcdefgh"));
    let opened = vfs.open_now(Node::Block(1), WRITE).unwrap().handle;
    let mut writer = vfs.saves.writer().unwrap();
    let committed = writer.commit(&noted(&"1".repeat(100)), &mut |_| ());
    let committed = committed.unwrap();
    assert_eq!(committed.method, Method::Replaced);
    let saved = vfs.saves.show_saved(committed, "x", &[], None, None, None);
    saved.unwrap();
    drop(writer);
    vfs.write(&opened, 8, b"longer", false).unwrap();
    std::fs::write(dir.path().join("a.asdf"), Sample::new().block(b"a").bytes()).unwrap();
    look(&vfs);
    let found = vfs.read(&opened, 0, 14);
    let stale = matches!(found, Err(Error::Library(Library::Stale { .. })));
    assert!(stale, "its bytes are gone");
    vfs.release(&opened);
}

/// A program that had opened the file meanwhile read refused bytes and saved ones in one, or the saved ones cut at the length of the others.
#[test]
fn what_was_given_up_is_not_read_on_as_what_is_saved() {
    let text = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [4]}\n...\n";
    let (_dir, vfs) = writable(&Sample::new().text(text).block(b"abcd"));
    let access = Access {
        truncate: true,
        ..WRITE
    };
    let block = Node::Block(0);
    let opened = vfs.open_now(block, access).unwrap().handle;
    vfs.write(&opened, 0, b"x", false).unwrap();
    let reader = vfs.open_now(block, Access::default()).unwrap().handle;
    vfs.read(&reader, 0, 4).unwrap();
    vfs.flush(&opened, 0).unwrap_err();
    vfs.release(&opened);
    let found = vfs.read(&reader, 0, 4);
    let stale = matches!(found, Err(Error::Library(Library::Stale { .. })));
    assert!(stale, "the kernel may have the refused bytes");
    let next = vfs.open_now(block, Access::default()).unwrap().handle;
    vfs.read(&next, 0, 4).unwrap();
}

/// With `-o verify` only reads were refused, and what has to read the block: bytes of a raw block, and all of another one, were written.
#[test]
fn a_block_with_a_wrong_checksum_is_not_written_if_checksums_are_verified() {
    let raw = block_with([0; 4], b"abcd", 4, 4);
    let stored = zlib(b"abcd");
    let used = stored.len() as u64;
    for mut block in [raw, block_with(*b"zlib", &stored, 4, used)] {
        block[38] ^= 1;
        let open = crate::asdf::OpenOptions {
            verify: true,
            ..crate::asdf::OpenOptions::default()
        };
        let (dir, vfs) = writable_with(&Sample::new().stored(block), open, |file| file);
        let path = dir.path().join("a.asdf");
        let before = std::fs::read(&path).unwrap();
        let refused = |done: Result<()>| {
            let why = done.unwrap_err().to_string();
            assert!(why.contains("the checksum does not match"), "{why}");
            assert_eq!(std::fs::read(&path).unwrap(), before);
        };
        for (bytes, truncate) in [
            (&b"X"[..], false),
            (b"longer", false),
            (b"ABCD", true),
            (b"A", true),
        ] {
            let access = Access { truncate, ..WRITE };
            let handle = vfs.open_now(Node::Block(0), access).unwrap().handle;
            let written = vfs.write(&handle, 0, bytes, false).map(drop);
            refused(written.and_then(|()| vfs.flush(&handle, 0)));
            vfs.release(&handle);
        }
        for bytes in [&b"ABCD"[..], b"A"] {
            let bytes = Arc::new(Memory::new(bytes.to_vec()));
            refused(import_file(&vfs.saves, Node::Block(0), bytes));
        }
        assert!(vfs.snapshot().check_sum(0).is_err());
    }
}

/// A handle of before gave old bytes and new ones of a file whose time had been set back.
#[test]
fn stored_bytes_are_as_before_after_a_new_mode_but_not_with_a_time_that_may_be_set_back() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let path = dir.path().join("a.asdf");
    let first = vfs.shown.now();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    look(&vfs);
    let second = vfs.shown.now();
    assert!(!Arc::ptr_eq(&first, &second) && !first.is_sealed());
    let file = File::options().write(true).open(&path).unwrap();
    let meta = file.metadata().unwrap();
    let last = meta.len().checked_sub(1).unwrap();
    file.write_all_at(b"d", last).unwrap();
    file.set_modified(meta.modified().unwrap()).unwrap();
    look(&vfs);
    assert!(first.is_sealed() && second.is_sealed());
}
