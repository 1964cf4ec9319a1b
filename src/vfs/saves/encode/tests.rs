use super::*;
use crate::asdf::sample::Sample;
use crate::vfs::Call;
use crate::vfs::Node;
use crate::vfs::block_write::resize;
use crate::vfs::testing::writable;

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
