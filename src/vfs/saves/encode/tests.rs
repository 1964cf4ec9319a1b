use super::*;
use crate::asdf::sample::Sample;
use crate::vfs::attr::WRITE;
use crate::vfs::block_write::resize;
use crate::vfs::testing::writable;
use crate::vfs::{Call, FileFacts};

#[test]
fn whether_a_block_is_used_is_looked_at_when_nobody_else_saves() {
    let text = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        a: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";
    let sample = Sample::new().text(text).block(b"abc").block(b"def");
    let (_dir, vfs) = writable(&sample);
    vfs.saves.commit_removal(0).unwrap_err();
    vfs.saves.commit_removal(1).unwrap();
    vfs.saves.commit_removal(1).unwrap_err();
    // as a save may have begun to use it after `remove_block` has found it unused
    let error = vfs.saves.commit_removal(0).unwrap_err();
    assert!(matches!(error, Error::Busy(_)), "{error}");
}

/// It was an input/output error.
#[test]
fn a_block_that_no_file_can_hold_is_too_big() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let size = i64::MAX.unsigned_abs();
    let error = resize(&vfs.saves, Node::Block(0), None, size).unwrap_err();
    let errno = error.errno(Call::Setattr);
    assert_eq!(errno, rustix::io::Errno::FBIG.raw_os_error(), "{error}");
}

/// There was "no such file".
#[test]
fn a_new_block_that_is_open_for_writing_is_busy() {
    let (_dir, vfs) = writable(&Sample::new().block(b"a"));
    let name = "1.bin".as_ref();
    let made = vfs.create(Node::Blocks, name, FileFacts::new(0o600, 0, 0), WRITE);
    let handle = made.unwrap().1.handle;
    let remove = || vfs.unlink(Node::Blocks, name);
    let busy = remove().unwrap_err().errno(Call::Unlink);
    assert_eq!(busy, rustix::io::Errno::BUSY.raw_os_error());
    vfs.flush(&handle, 0).unwrap();
    vfs.release(&handle);
    remove().unwrap();
    assert!(matches!(remove(), Err(Error::NotFound)));
}

/// Each of them was taken away or cut for good, though the text names them.
#[test]
fn a_block_that_an_unknown_array_may_use_is_neither_removed_nor_made_shorter() {
    let text = |array: &str| {
        format!(
            "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\na: {array}\n...\n"
        )
    };
    for array in [
        "!core/ndarray-1.0.0 {source: 1, datatype: float128, byteorder: little, shape: [3]}",
        "!core/ndarray-1.0.0 {source: 1, datatype: uint8, byteorder: little, shpe: [3]}",
        "!core/ndarray-1.0.0 {source: -1, datatype: uint8, byteorder: little, shape: 3}",
        "!core/ndarray-1.0.0 {source: 1",
    ] {
        let sample = Sample::new().text(text(array).as_bytes());
        let (_dir, vfs) = writable(&sample.block(b"abc").block(b"def"));
        let error = vfs.saves.commit_removal(1).unwrap_err();
        assert!(matches!(error, Error::Busy(_)), "{array}: {error}");
        let cut = resize(&vfs.saves, Node::Block(1), None, 2).expect_err(array);
        let errno = cut.errno(Call::Setattr);
        assert_eq!(
            errno,
            rustix::io::Errno::INVAL.raw_os_error(),
            "{array}: {cut}"
        );
        // longer is no loss
        resize(&vfs.saves, Node::Block(1), None, 4).unwrap();
        assert_eq!(vfs.shown.now().snapshot.block_len(1), Some(4), "{array}");
    }
}

/// The array then showed the new block.
#[test]
fn no_block_comes_behind_the_last_one_of_an_array_that_makes_no_sense() {
    let text = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        a: !core/ndarray-1.0.0 {source: -1, datatype: uint8, byteorder: little, shape: 3}\n...\n";
    let (_dir, vfs) = writable(&Sample::new().text(text).block(b"abc"));
    check_counted(&vfs.shown.now().snapshot).unwrap_err();
}
