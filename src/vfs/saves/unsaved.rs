//! What is said of edits that are refused or lost.

use std::fs;

use tempfile::TempDir;

use rustix::fs::XattrFlags;

use crate::asdf::sample::Sample;
use crate::error::Error as Library;
use crate::vfs::node::Node;
use crate::vfs::testing::writable;
use crate::vfs::{Access, Error, FileFacts, Format, Handle, Rename, TREE_NAME, Vfs, info};

const TEXT: &[u8] = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
    x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";

const OTHER: &[u8] = b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
    y: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";

/// The file system of an array `x` of three bytes, and the nodes of its two files.
fn mounted() -> (TempDir, Vfs, [Node; 2]) {
    let (dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abc"));
    let (_, number) = vfs
        .shown
        .now()
        .catalogue()
        .numbers_of_arrays()
        .next()
        .unwrap();
    (
        dir,
        vfs,
        Format::ALL.map(|format| Node::Array(number, format)),
    )
}

fn open(vfs: &Vfs, node: Node, truncate: bool) -> Handle {
    let access = Access {
        write: true,
        truncate,
        ..Access::default()
    };
    vfs.open_now(node, access).unwrap().handle
}

/// The lines of `info/status` that begin with this word.
fn lines(vfs: &Vfs, word: &str) -> Vec<String> {
    let status = info::text(&vfs.saves, &vfs.scratch, &vfs.shown.now(), Node::Status);
    let lines = status.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(|line| line.trim_start().to_owned()).collect()
}

#[test]
fn a_change_of_a_block_that_is_refused_has_its_reason_in_the_status_until_one_is_saved() {
    let (_dir, vfs, [bin, npy]) = mounted();
    let refused = || lines(&vfs, "refused ");
    let part = open(&vfs, npy, false);
    vfs.write(&part, 0, b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'", false)
        .unwrap_err();
    let header = "arrays/x.npy: not permitted: the NPY header follows the tree: change datatype or shape in tree.yaml, or \
        empty the file and write all of it";
    assert_eq!(refused(), [header]);
    vfs.release(&part);

    let short = open(&vfs, bin, true);
    vfs.write(&short, 0, b"A", false).unwrap();
    vfs.flush(&short, 0).unwrap_err();
    assert_eq!(refused().len(), 1);
    assert!(refused()[0].starts_with("arrays/x.bin: array x: 1 bytes written of 3; "));
    vfs.write(&short, 1, b"BC", false).unwrap();
    vfs.flush(&short, 0).unwrap();
    assert!(refused().is_empty());
    vfs.release(&short);

    let block = Node::Block(0);
    let name = "user.asdf.compression".as_ref();
    let encode = |code: &[u8]| vfs.setxattr(block, name, code, XattrFlags::empty());
    encode(b"nope").unwrap_err();
    assert!(refused()[0].starts_with("blocks/0.bin: invalid: unknown compression; choose none, "));
    encode(b"zlib").unwrap();
    assert!(refused().is_empty());
    assert!(vfs.losses().unsaved.is_empty());
}

/// What a program stores in a map is written behind its back: it was told of nothing, and neither was the user who unmounted.
#[test]
fn what_was_stored_in_a_map_and_is_not_taken_is_told_of_with_its_name() {
    let (dir, vfs, [_, npy]) = mounted();
    let map = open(&vfs, npy, false);
    let path = dir.path().join("a.asdf");
    let mut bytes = fs::read(&path).unwrap();
    let data = bytes.windows(3).rposition(|three| three == b"abc").unwrap();
    bytes[data] = b'X';
    fs::write(&path, &bytes).unwrap();
    vfs.saves.refresh_soon();
    vfs.write(&map, 128, b"ABC", true).unwrap_err();
    let why = "arrays/x.npy: it has been changed since it was opened, by another program or another file of the mount; \
        open it again to write to it; what was written is given up";
    assert_eq!(lines(&vfs, "save "), [format!("NOT SAVED: {why}")]);
    let told = vfs.getxattr(Node::Root, "user.asdf.unsaved".as_ref());
    assert_eq!(
        told.unwrap(),
        format!("an edit is not saved: {why}").as_bytes()
    );
    let block = Node::Block(0);
    let name = "user.asdf.compression".as_ref();
    vfs.setxattr(block, name, b"nope", XattrFlags::empty())
        .unwrap_err();
    assert_eq!(lines(&vfs, "refused ").len(), 1, "another reason");
    vfs.release(&map);
    assert!(!vfs.end());
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// It was said that FILE has what was written, when FILE was another file, or gone.
#[test]
fn what_was_written_into_a_file_that_is_no_longer_there_is_not_said_to_be_in_it() {
    let [renamed, removed, truncated] = [0, 1, 2];
    for how in [renamed, removed, truncated] {
        for closes in [true, false] {
            // FILE is looked at before a close writes to it, and not any more at the end of the mount
            if how == truncated && !closes {
                continue;
            }
            let (dir, vfs, [bin, _]) = mounted();
            let path = dir.path().join("a.asdf");
            let handle = open(&vfs, bin, false);
            vfs.write(&handle, 0, b"A", false).unwrap();
            let bytes = fs::read(&path).unwrap();
            match how {
                0 => {
                    fs::write(dir.path().join("b.asdf"), bytes).unwrap();
                    fs::rename(dir.path().join("b.asdf"), &path).unwrap();
                }
                1 => fs::remove_file(&path).unwrap(),
                _ => {
                    let file = fs::File::options().write(true).open(&path).unwrap();
                    file.set_len(bytes.len() as u64 - 1).unwrap();
                }
            }
            if closes {
                vfs.saves.refresh_soon();
                vfs.flush(&handle, 0).unwrap_err();
                vfs.release(&handle);
            }
            assert!(!vfs.end());
            let said = &vfs.losses().unsaved[0];
            let fate = "what was written was in the file that another program has changed, replaced or removed";
            assert!(said.ends_with(fate), "{how} {closes}: {said}");
        }
    }
}

#[test]
fn an_edit_that_the_end_of_the_mount_cuts_short_is_told_of() {
    let (_dir, vfs, [bin, _]) = mounted();
    assert!(vfs.losses().unsaved.is_empty());
    vfs.write(&open(&vfs, bin, false), 0, b"A", false).unwrap();
    assert!(!vfs.end());
    let said = "an edit is not saved: arrays/x.bin: the mount has ended before it was closed; \
        what was written is in the file, but may not be on the disk; its checksum is not set";
    assert_eq!(vfs.losses().unsaved, [said]);
}

/// `umount -f` cuts off a program that has a text open: what it had written so far was gone, and nobody was told.
#[test]
fn a_text_that_the_end_of_the_mount_cuts_short_is_kept_and_told_of() {
    let (dir, vfs, _) = mounted();
    let before = fs::read(dir.path().join("a.asdf")).unwrap();
    let tree = vfs.lookup(Node::Root, "tree.yaml".as_ref()).unwrap().node;
    let handle = open(&vfs, tree, true);
    vfs.write(&handle, 0, OTHER, false).unwrap();
    assert!(!vfs.end());
    assert_eq!(fs::read(dir.path().join("a.asdf")).unwrap(), before);
    let kept = vfs.tree.refusal(|it| it.kept().unwrap().to_owned());
    assert_eq!(fs::read(kept.unwrap()).unwrap(), OTHER);
    let said = vfs.losses().unsaved;
    let why = "the tree that was refused is not saved (the mount has ended before it was closed";
    assert!(said.len() == 1 && said[0].starts_with(why), "{said:?}");
}

/// Only the text that had the name was kept, and one that was FILE's was told of as lost.
#[test]
fn a_text_that_another_program_has_made_stale_is_kept_at_the_end_of_the_mount() {
    for (text, is_lost) in [(OTHER, true), (TEXT, false)] {
        let (dir, vfs, _) = mounted();
        let tree = vfs.lookup(Node::Root, "tree.yaml".as_ref()).unwrap().node;
        let handle = open(&vfs, tree, true);
        vfs.write(&handle, 0, text, false).unwrap();
        if is_lost {
            let changed = String::from_utf8_lossy(TEXT).replace("1.0.0", "1.0.1");
            let changed = Sample::new().text(changed.as_bytes());
            let changed = changed.block(b"abc").bytes();
            fs::write(dir.path().join("a.asdf"), changed).unwrap();
            vfs.saves.refresh_soon();
            vfs.refresh();
        }
        assert_eq!(vfs.end(), !is_lost);
        let kept = vfs.tree.refusal(|it| it.kept().unwrap().to_owned());
        assert_eq!(
            kept.map(|kept| fs::read(kept).unwrap()),
            is_lost.then(|| text.to_vec())
        );
    }
}

/// The second text was nowhere any more, while the status said that it is kept.
#[test]
fn a_text_that_is_refused_once_more_does_not_take_the_place_of_a_later_one() {
    let (dir, vfs, _) = mounted();
    let mut written = Vec::new();
    for wrong in ["[first", "[second"] {
        let tree = vfs.lookup(Node::Root, "tree.yaml".as_ref());
        let handle = open(&vfs, tree.unwrap().node, true);
        let text = [TEXT, wrong.as_bytes()].concat();
        vfs.write(&handle, 0, &text, false).unwrap();
        vfs.fsync(&handle).unwrap_err();
        written.push((handle, text));
        // another program changes FILE between them, so that the second gets a file of its own
        if wrong == "[first" {
            fs::write(
                dir.path().join("a.asdf"),
                Sample::new().text(OTHER).block(b"abc").bytes(),
            )
            .unwrap();
            vfs.saves.refresh_soon();
            vfs.refresh();
        }
    }
    let kept = || {
        let kept = vfs.tree.refusal(|it| it.kept().unwrap().to_owned());
        fs::read(kept.unwrap()).unwrap()
    };
    for (handle, _) in &written {
        assert_eq!(kept(), written[1].1);
        vfs.flush(handle, 0).unwrap_err();
        vfs.release(handle);
    }
    assert_eq!(kept(), written[1].1);
}

/// `asdf-mount -u` ended with 0, as the kernel lets `close` return before it tells of it.
#[test]
fn what_is_not_saved_is_told_when_a_text_that_was_closed_has_been_refused() {
    let (_dir, vfs, _) = mounted();
    let tree = vfs.lookup(Node::Root, "tree.yaml".as_ref()).unwrap().node;
    let begun = open(&vfs, tree, true);
    vfs.write(&begun, 0, b"#ASDF 1.0.0\n# half a text\n", false)
        .unwrap();
    vfs.flush(&begun, 0).unwrap();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| vfs.getxattr(Node::Root, "user.asdf.unsaved".as_ref()));
        vfs.release(&begun);
        let said = String::from_utf8(asked.join().unwrap().unwrap()).unwrap();
        assert!(
            said.contains("the tree that was refused is not saved (no tree begins in the text: "),
            "{said}"
        );
    });
}

/// `cp long.yaml /mnt/t; mv /mnt/t /mnt/tree.yaml` saved the beginning, if that was a tree.
#[test]
fn a_text_of_which_a_write_failed_is_not_saved() {
    let (dir, vfs, _) = mounted();
    let in_file = || fs::read(dir.path().join("a.asdf")).unwrap();
    let write = Access {
        write: true,
        ..Access::default()
    };
    let (first, root) = (in_file(), Node::Root);
    let made = vfs.create(root, "t".as_ref(), FileFacts::new(0o600, 0, 0), write);
    let handle = made.unwrap().1.handle;
    let begin = OTHER;
    vfs.write(&handle, 0, begin, false).unwrap();
    let end = begin.len() as u64;
    let rename = || {
        let (from, to) = ("t".as_ref(), TREE_NAME.as_ref());
        vfs.rename((root, from), (root, to), Rename::Replace)
    };
    vfs.write(&handle, end, &vec![b'#'; 2 << 20], false)
        .unwrap_err();
    let full = rename();
    let no_room = matches!(full, Err(Error::Library(Library::NoRoom { .. })));
    assert!(no_room, "{full:?}");
    assert_eq!(in_file(), first);
    vfs.write(&handle, 0, begin, false).unwrap();
    rename().unwrap();
    assert_ne!(in_file(), first);
}

/// `cp long mnt/blocks/.t; mv mnt/blocks/.t mnt/blocks/0.bin` saved the beginning.
#[test]
fn a_file_of_which_a_write_failed_becomes_no_block() {
    let (dir, vfs, _) = mounted();
    let in_file = || fs::read(dir.path().join("a.asdf")).unwrap();
    let write = Access {
        write: true,
        ..Access::default()
    };
    let (first, blocks) = (in_file(), Node::Blocks);
    let facts = FileFacts::new(0o600, 0, 0);
    let made = vfs.create(blocks, ".t".as_ref(), facts, write);
    let handle = made.unwrap().1.handle;
    vfs.write(&handle, 0, b"xyz", false).unwrap();
    vfs.write(&handle, 3, &vec![b'#'; 2 << 20], true)
        .unwrap_err();
    // the next page of the same map, and a write of another process
    vfs.write(&handle, 0, b"xyz", true).unwrap();
    vfs.write(&handle, 0, b"xyz", false).unwrap();
    let (from, to) = (".t".as_ref(), "0.bin".as_ref());
    let full = vfs.rename((blocks, from), (blocks, to), Rename::Replace);
    let no_room = matches!(full, Err(Error::Library(Library::NoRoom { .. })));
    assert!(no_room, "{full:?}");
    assert_eq!(in_file(), first);
}

/// The pages of a map that came before were saved, and the news that the others are lost ended with that.
#[test]
fn a_compressed_block_of_which_pages_of_a_map_are_lost_is_not_saved() {
    let len = 4 << 20;
    let text = String::from_utf8(TEXT.to_vec()).unwrap();
    let text = text.replace("[3]", &format!("[{len}]"));
    let sample = Sample::new().text(text.as_bytes()).block(&vec![0; len]);
    let (dir, vfs) = writable(&sample);
    let block = Node::Block(0);
    let name = "user.asdf.compression".as_ref();
    vfs.setxattr(block, name, b"zlib", XattrFlags::empty())
        .unwrap();
    let in_file = || fs::read(dir.path().join("a.asdf")).unwrap();
    let first = in_file();
    let handle = open(&vfs, block, false);
    vfs.write(&handle, 0, &[7; 4096], true).unwrap();
    vfs.write(&handle, 4096, &vec![7; len - 4096], true)
        .unwrap_err();
    vfs.release(&handle);
    assert_eq!(vfs.losses().unsaved.len(), 1);
    assert_eq!(in_file(), first);
}

/// `cp` took so many bytes of the new array, and said nothing.
#[test]
fn an_array_that_the_tree_has_changed_has_its_own_length_while_the_old_one_is_rewritten() {
    let (_dir, vfs, [bin, _]) = mounted();
    let emptying = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let handle = vfs.open(bin, 0, emptying).unwrap().handle;
    vfs.write(&handle, 0, b"A", false).unwrap();
    let len = || vfs.attr(&vfs.shown.now(), bin).unwrap().size;
    assert_eq!(len(), 1);
    let tree = vfs.open(Node::TREE, 0, emptying).unwrap().handle;
    let text = TEXT.to_vec();
    let text = String::from_utf8(text).unwrap().replace("[3]", "[2]");
    vfs.write(&tree, 0, text.as_bytes(), false).unwrap();
    vfs.flush(&tree, 0).unwrap();
    assert_eq!(len(), 2);
    vfs.write(&handle, 1, b"B", false).unwrap_err();
}
