//! What can be written when, and what looking costs.

use std::time::{Duration, SystemTime};

use rustix::fs::XattrFlags;

use super::*;
use crate::asdf::sample::Sample;
use crate::error::Error as Library;
use crate::source::Loan;
use crate::vfs::testing::writable;
use crate::vfs::{Bytes, Call, Detail, Rename, TREE_NAME, info};

fn status(vfs: &Vfs) -> String {
    info::text(&vfs.saves, &vfs.scratch, &vfs.shown.now(), Node::Status)
}

fn read(vfs: &Vfs, fh: &Handle) -> Vec<u8> {
    match vfs.read(fh, 0, 1 << 20).unwrap() {
        Bytes::Owned(bytes) => bytes.to_vec(),
        Bytes::Lent(Loan::Shared(bytes, range), _) => (*bytes).as_ref()[range].to_vec(),
        Bytes::Lent(Loan::Mapped(_), _) => panic!("so few bytes are not mapped"),
    }
}

/// Makes a file in the root, open for writing.
fn made(vfs: &Vfs, name: &str) -> (Attr, Opened) {
    let facts = FileFacts::new(0o600, 0, 0);
    vfs.create(Node::Root, name.as_ref(), facts, WRITE).unwrap()
}

/// The process that had written was told of a change by another program next, then that all was well.
#[test]
fn once_a_save_has_failed_for_good_it_is_said_why_and_nothing_is_thrown_away() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc").block(b"def"));
    assert!(status(&vfs).contains("mount     writable\n"));
    let open = |node: Node, access| vfs.open_now(node, access).unwrap().handle;
    let (tree, block) = (open(Node::TREE, WRITE), open(Node::Block(0), WRITE));
    let text = [&Sample::TREE[..Sample::TREE.len() - 4], b"more: 1\n...\n"].concat();
    vfs.write(&tree, 0, &text, false).unwrap();
    vfs.write(&block, 1, b"BC", false).unwrap();
    let eio = std::io::Error::from_raw_os_error(5);
    vfs.saves
        .writer()
        .unwrap()
        .fail(Library::io("writing to disk", eio));
    for fh in [&tree, &block, &tree, &block] {
        assert_eq!(vfs.fsync(fh).unwrap_err().errno(Call::Fsync), 5);
    }
    assert_eq!(vfs.flush(&block, 0).unwrap_err().errno(Call::Flush), 5);
    let said = status(&vfs);
    let want = "mount     read-only: a save has failed; unmount, and mount again: writing to disk: Input/output error";
    assert!(said.contains(want), "{said}");
    assert!(!said.contains("changed"), "{said}");
    // also while another thread has the writer
    let writer = vfs.saves.writer().unwrap();
    for refused in [
        vfs.open_now(Node::TREE, WRITE).map(drop),
        vfs.write(&tree, 0, b"x", false).map(drop),
        vfs.write(&block, 0, b"x", false).map(drop),
        vfs.unlink(Node::Root, TREE_NAME.as_ref()),
    ] {
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    }
    drop(writer);
    assert_eq!(read(&vfs, &tree), text);
    assert_eq!(read(&vfs, &block), b"aBC");
    assert_eq!(read(&vfs, &open(Node::Block(1), Access::default())), b"def");
    vfs.release(&block);
    assert_eq!(read(&vfs, &open(Node::Block(0), Access::default())), b"aBC");
    // it is not given up: a raw block has in FILE what was written
    let said = status(&vfs);
    assert!(
        said.contains("is in the file, but may not be on the disk; its checksum is not set"),
        "{said}"
    );
}

/// A tree without arrays.
const TEXT: &[u8] =
    b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\na: [1, 2]\n...\n";

/// The mount went on showing a text that was neither FILE's nor kept, and said nothing of it.
#[test]
fn a_text_that_is_cut_by_its_path_and_refused_is_kept() {
    let (dir, vfs) = writable(&Sample::new().text(TEXT).block(b"x"));
    let cut = TEXT.len() - 8;
    let changes = Attributes {
        size: Some(cut as u64),
        ..Attributes::default()
    };
    let refused = vfs.setattr(Node::TREE, None, &changes);
    assert!(matches!(
        refused,
        Err(Error::Library(Library::Rejected { .. }))
    ));
    assert!(status(&vfs).contains("NOT SAVED: tree.yaml: "));
    let kept = std::fs::read(dir.path().join("a.asdf.rejected.yaml")).unwrap();
    assert_eq!(kept, TEXT[..cut]);
}

/// `ls -l info` put all texts together each time, with a look at every block.
#[test]
fn the_size_of_a_long_text_is_that_which_it_had_when_it_was_made_last() {
    for (blocks, is_long) in [(10, false), (1500, true)] {
        let sample = (0..blocks).fold(Sample::new(), |sample, _| sample.block(b"x"));
        let (_dir, vfs) = writable(&sample);
        let len = || vfs.getattr_now(Node::Status).unwrap().size;
        let before = status(&vfs).len() as u64;
        assert_eq!(len(), before);
        let what = "something that takes many words to tell of".to_owned();
        locked(&vfs.saves.news).last_save = Some((SystemTime::now(), what));
        assert_eq!(len() == before, is_long, "{blocks}");
        let after = status(&vfs).len() as u64;
        assert_eq!(len(), after);
        assert_ne!(after, before);
    }
}

/// It was saved first, and then the name was refused.
#[test]
fn a_link_to_a_name_that_is_taken_saves_nothing() {
    let (dir, vfs) = writable(&Sample::new());
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        names
            .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
            .collect::<Vec<_>>()
    };
    let before = files();
    let root = Node::Root;
    let (made, open) = made(&vfs, "next");
    vfs.write(&open.handle, 0, b"#ASDF 1.0.0\n---\na: 2\n...\n", false)
        .unwrap();
    let taken = vfs.link(made.node, root, TREE_NAME.as_ref());
    assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");
    assert_eq!(files(), before);
}

/// `touch` ended with 0 and there was no block, if another program had made its name before and not opened it for writing.
#[test]
fn a_block_that_is_made_and_not_opened_for_writing_is_an_empty_one() {
    let (_dir, vfs) = writable(&Sample::new());
    let count = || vfs.shown.now().snapshot.layout().blocks.len();
    let (made, reads) = vfs
        .create(
            Node::Blocks,
            "0.bin".as_ref(),
            FileFacts::new(0o600, 0, 0),
            Access::default(),
        )
        .unwrap();
    vfs.flush(&reads.handle, 0).unwrap();
    vfs.release(&reads.handle);
    assert_eq!(count(), 1);
    let writes = vfs.open_now(made.node, WRITE).unwrap().handle;
    vfs.flush(&writes, 0).unwrap();
    vfs.release(&writes);
    assert_eq!(count(), 1);
}

/// The kernel tells of a descriptor's end at any time after its close: then half of what the next writer had written was saved.
#[test]
fn a_late_end_of_a_descriptor_does_not_save_what_another_has_not_finished() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let open = || vfs.open_now(Node::Block(0), WRITE).unwrap().handle;
    let (first, second) = (open(), open());
    vfs.write(&first, 3, b"D", false).unwrap();
    vfs.flush(&first, 0).unwrap();
    // what makes a block longer is saved at a close
    vfs.write(&second, 4, b"E", false).unwrap();
    vfs.release(&first);
    let stored = || {
        let block = vfs.shown.now().snapshot.block(0).unwrap();
        crate::source::read_all(&*block, 10).unwrap()
    };
    assert_eq!(stored(), b"abcD");
    // what was written through a map, say
    vfs.release(&second);
    assert_eq!(stored(), b"abcDE");
}

/// A process that forks while a refused text is open made it the last word again, after a revert or a good save.
#[test]
fn a_refused_text_is_not_tried_again_for_a_process_that_inherited_its_descriptor() {
    const INIT: u32 = 1;
    let (dir, vfs) = writable(&Sample::new());
    let access = Access {
        truncate: true,
        pid: std::process::id(),
        ..WRITE
    };
    let handle = vfs.open_now(Node::TREE, access).unwrap().handle;
    // one that was saved at the second try has no error
    vfs.write(&handle, 0, TEXT, false).unwrap();
    let mut other = std::fs::OpenOptions::new();
    let other = other.write(true).open(dir.path().join("a.asdf")).unwrap();
    let busy = vfs.flush(&handle, std::process::id()).unwrap_err();
    assert!(busy.to_string().contains("open for writing"), "{busy}");
    drop(other);
    vfs.flush(&handle, std::process::id()).unwrap();
    vfs.flush(&handle, INIT).unwrap();
    vfs.write(&handle, 0, b"no tree at all\n", false).unwrap();
    vfs.flush(&handle, std::process::id()).unwrap_err();
    assert!(status(&vfs).contains("NOT SAVED"));
    vfs.setxattr(
        Node::Root,
        "user.asdf.revert".as_ref(),
        b"",
        XattrFlags::empty(),
    )
    .unwrap();
    vfs.flush(&handle, INIT).unwrap();
    assert!(!status(&vfs).contains("NOT SAVED"));
    vfs.flush(&handle, std::process::id()).unwrap_err();
    assert!(status(&vfs).contains("NOT SAVED"));
}

/// It was saved first, and then the names stayed as they were.
#[test]
fn an_exchange_that_scratch_files_leave_no_room_for_saves_nothing() {
    let long = format!("#ASDF 1.0.0\n---\na: {}\n...\n", "x".repeat(2 << 20));
    let (dir, vfs) = writable(&Sample::new().text(long.as_bytes()));
    let root = Node::Root;
    let (_, open) = made(&vfs, "next");
    vfs.write(&open.handle, 0, b"#ASDF 1.0.0\n---\na: 2\n...\n", false)
        .unwrap();
    let rename =
        |from: &str, to: &str, how| vfs.rename((root, from.as_ref()), (root, to.as_ref()), how);
    let full = rename("tree.yaml", "backup", Rename::Replace);
    let no_room = matches!(full, Err(Error::Library(Library::NoRoom { .. })));
    assert!(no_room, "{full:?}");
    let full = rename("next", "tree.yaml", Rename::Exchange);
    let no_room = matches!(full, Err(Error::Library(Library::NoRoom { .. })));
    assert!(no_room, "{full:?}");
    let saved = std::fs::read(dir.path().join("a.asdf")).unwrap();
    assert!(saved.starts_with(long.as_bytes()), "it was saved");
}

/// The sample's tree with a line more.
fn tree_with(line: &str) -> Vec<u8> {
    let end = b"...\n";
    let start = Sample::TREE.strip_suffix(end).unwrap();
    [start, line.as_bytes(), end].concat()
}

fn two_trees() -> [Vec<u8>; 2] {
    ["which: first\n", "which: second\n"].map(tree_with)
}

/// Opens `tree.yaml` and writes a text through it.
fn written(vfs: &Vfs, text: &[u8]) -> Handle {
    let access = Access {
        truncate: true,
        ..WRITE
    };
    let handle = vfs.open_now(Node::TREE, access).unwrap().handle;
    vfs.write(&handle, 0, text, false).unwrap();
    handle
}

/// The text of FILE, and what `tree.yaml` shows.
fn texts(vfs: &Vfs) -> [Vec<u8>; 2] {
    let shown = vfs.tree.current().bytes().unwrap();
    [vfs.shown.now().snapshot.text(), &shown].map(|text| text.to_vec())
}

/// As on any file system; each had a text of its own.
#[test]
fn all_descriptors_of_the_tree_share_its_bytes() {
    let (_dir, vfs) = writable(&Sample::new());
    let [one, two] = two_trees();
    let (first, second) = (written(&vfs, &one), written(&vfs, &two));
    assert_eq!(read(&vfs, &first), two);
    vfs.flush(&first, 0).unwrap();
    assert_eq!(texts(&vfs), [two.clone(), two.clone()]);
    vfs.flush(&second, 0).unwrap();
    vfs.release(&second);
    let third = tree_with("which: fourth\n");
    vfs.write(&first, 0, &third, false).unwrap();
    vfs.fsync(&first).unwrap();
    assert_eq!(texts(&vfs), [third.clone(), third]);
}

/// Two threads flush: the one that took the text first may save it last.
#[test]
fn a_text_that_waits_to_be_saved_does_not_replace_a_later_one() {
    let (_dir, vfs) = writable(&Sample::new());
    let [one, two] = two_trees();
    let handle = written(&vfs, &one);
    let Open::Scratch(file, _) = &handle.open else {
        panic!("tree.yaml is a scratch file");
    };
    let waiting = file.to_save().unwrap().unwrap();
    vfs.write(&handle, 0, &two, false).unwrap();
    vfs.flush(&handle, 0).unwrap();
    let saved = vfs.tree.save(&vfs.saves, &waiting, false, || Ok(()));
    saved.unwrap();
    assert_eq!(texts(&vfs), [two.clone(), two]);
    assert!(!file.is_dirty());
}

/// A descriptor of the file that was `tree.yaml` was closed while another one was renamed over it: its text was FILE's then, and
/// `tree.yaml` showed the other one for ever.
#[test]
fn a_text_that_is_replaced_while_it_waits_to_be_saved_is_not_saved() {
    let (_dir, vfs) = writable(&Sample::new());
    let [one, two] = two_trees();
    let handle = written(&vfs, &one);
    let Open::Scratch(file, _) = &handle.open else {
        panic!("tree.yaml is a scratch file");
    };
    let waiting = file.to_save().unwrap().unwrap();
    let (_, next) = made(&vfs, "next");
    vfs.write(&next.handle, 0, &two, false).unwrap();
    let names = ["next", TREE_NAME].map(|name| (Node::Root, name.as_ref()));
    vfs.rename(names[0], names[1], Rename::Replace).unwrap();
    let saved = vfs.tree.save(&vfs.saves, &waiting, false, || Ok(()));
    saved.unwrap();
    assert_eq!(texts(&vfs), [two.clone(), two]);
}

/// The kernel writes the pages of a map through any descriptor of the file: the one that was synced had nothing to save.
#[test]
fn a_sync_saves_what_was_written_through_another_descriptor() {
    let (_dir, vfs) = writable(&Sample::new());
    let open = || vfs.open_now(Node::TREE, WRITE).unwrap().handle;
    let (first, second) = (open(), open());
    let text = tree_with("more: 1\n");
    vfs.write(&second, 0, &text, true).unwrap();
    vfs.fsync(&first).unwrap();
    assert_eq!(texts(&vfs), [text.clone(), text]);
    vfs.write(&second, 0, b"half a text\n", false).unwrap();
    vfs.fsync(&first).unwrap_err();
    let reads = vfs.open_now(Node::TREE, Access::default()).unwrap().handle;
    vfs.fsync(&reads).unwrap();
    assert!(status(&vfs).contains("NOT SAVED"));
}

/// A tool renames what it has begun to write, and writes on: in FILE its text has head lines more than in the tool's file, and the rest
/// came to lie at other places.
#[test]
fn what_is_written_behind_a_rename_comes_where_the_tool_has_it() {
    let (_dir, vfs) = writable(&Sample::new());
    let tree = tree_with("which: first\n");
    let begins = tree.windows(5).position(|part| part == b"%YAML").unwrap();
    let dump = tree[begins..].to_vec();
    let (_, next) = made(&vfs, "next");
    vfs.write(&next.handle, 0, &dump, false).unwrap();
    let names = ["next", TREE_NAME].map(|name| (Node::Root, name.as_ref()));
    vfs.rename(names[0], names[1], Rename::Replace).unwrap();
    assert_eq!(texts(&vfs), [tree.clone(), tree]);
    let at = dump.windows(5).position(|part| part == b"first").unwrap();
    vfs.write(&next.handle, at as u64, b"third", false).unwrap();
    vfs.flush(&next.handle, 0).unwrap();
    let third = tree_with("which: third\n");
    assert_eq!(texts(&vfs), [third.clone(), third]);
}

/// What was written to it then went nowhere, and its close said that all was well.
#[test]
fn nothing_is_written_to_a_file_whose_bytes_a_block_has_got() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    for (directory, name, bytes) in [(Node::Blocks, ".tmp", b"123"), (Node::Root, "x", b"456")] {
        let made = vfs.create(directory, name.as_ref(), FileFacts::new(0o600, 0, 0), WRITE);
        let handle = made.unwrap().1.handle;
        vfs.write(&handle, 0, bytes, false).unwrap();
        let name = (directory, name.as_ref());
        let block = (Node::Blocks, "0.bin".as_ref());
        vfs.rename(name, block, Rename::Replace).unwrap();
        vfs.flush(&handle, 0).unwrap();
        let told = vfs.write(&handle, 3, b"more", false);
        let stale = matches!(told, Err(Error::Library(Library::Stale { .. })));
        assert!(stale, "{told:?}");
        let open = vfs
            .open_now(Node::Block(0), Access::default())
            .unwrap()
            .handle;
        assert_eq!(read(&vfs, &open), bytes);
        for handle in [handle, open] {
            vfs.release(&handle);
        }
    }
}

/// A name of an array is gone for everyone until it is made again; the array stays.
#[test]
fn each_array_that_is_removed_is_gone_until_it_is_made_again() {
    let array = "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}";
    let head = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
    let text = format!("{head}x: {array}\ny: {array}\n...\n");
    let (_dir, vfs) = writable(&Sample::new().text(text.as_bytes()).block(b"abc"));
    let names = || {
        let directory = vfs.opendir(Node::ARRAYS).unwrap();
        let mut names = Vec::new();
        let mut add = |_, name: &OsStr, _: &Attr| {
            names.push(name.to_owned());
            false
        };
        vfs.readdir(&directory, 0, Detail::Full, &mut add).unwrap();
        names
    };
    assert_eq!(names().len(), 4);
    for name in ["x.npy", "y.npy"] {
        vfs.unlink(Node::ARRAYS, name.as_ref()).unwrap();
        let again = vfs.unlink(Node::ARRAYS, name.as_ref());
        assert!(matches!(again, Err(Error::NotFound)));
    }
    assert_eq!(names(), ["x.bin", "y.bin"]);
    for name in ["x.npy", "y.npy"] {
        let gone = vfs.lookup(Node::ARRAYS, name.as_ref());
        assert!(matches!(gone, Err(Error::NotFound)));
        let facts = || FileFacts::new(0o644, 0, 0);
        let made = vfs.create(Node::ARRAYS, name.as_ref(), facts(), WRITE);
        vfs.release(&made.unwrap().1.handle);
        let anew = Access {
            exclusive: true,
            ..WRITE
        };
        let again = vfs.create(Node::ARRAYS, name.as_ref(), facts(), anew);
        assert!(matches!(again, Err(Error::Exists)));
    }
    assert_eq!(names().len(), 4);
}

/// `--revert` where nothing had been refused left the tree that was saved next, through an older descriptor, unseen.
#[test]
fn a_tree_that_is_saved_after_a_revert_is_shown() {
    let (_dir, vfs) = writable(&Sample::new());
    let [first, second] = two_trees();
    let handle = written(&vfs, &first);
    vfs.tree.give_up_refused(&vfs.saves, false).unwrap();
    vfs.flush(&handle, 0).unwrap();
    assert_eq!(texts(&vfs), [first.clone(), first.clone()]);
    // and where one had been
    let bad = written(&vfs, b"#ASDF 1.0.0\n--- [\n...\n");
    vfs.flush(&bad, 0).unwrap_err();
    vfs.tree.give_up_refused(&vfs.saves, false).unwrap();
    // what is written on into the text that was given up is no tree
    vfs.write(&bad, 0, &second, false).unwrap();
    let stale = vfs.flush(&bad, 0).unwrap_err();
    assert!(matches!(stale, Error::Library(Library::Stale { .. })));
    assert_eq!(texts(&vfs), [first.clone(), first]);
    for handle in [handle, bad] {
        vfs.release(&handle);
    }
}

/// A text that was the tree of the mount, but no longer FILE's, was said to be saved.
#[test]
fn a_text_that_is_no_longer_that_of_the_file_is_not_said_to_be_saved() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let handle = written(&vfs, vfs.shown.now().snapshot.text());
    std::fs::write(dir.path().join("a.asdf"), "what can't be shown").unwrap();
    let refused = vfs.flush(&handle, 0);
    let stale = matches!(refused, Err(Error::Library(Library::Stale { .. })));
    assert!(stale, "{refused:?}");
    vfs.release(&handle);
}

/// Of a rename that was refused it was said that an edit was lost, though the file that was to be renamed is there.
#[test]
fn nothing_is_lost_by_a_rename_that_is_refused() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let made = vfs.create(
        Node::Blocks,
        ".0.bin.tmp".as_ref(),
        FileFacts::new(0o644, 0, 0),
        WRITE,
    );
    let handle = made.unwrap().1.handle;
    vfs.write(&handle, 0, b"123", false).unwrap();
    vfs.release(&handle);
    let path = dir.path().join("a.asdf");
    let rename = || {
        let names = [".0.bin.tmp", "0.bin"].map(|name| (Node::Blocks, name.as_ref()));
        vfs.rename(names[0], names[1], Rename::Replace)
    };
    let editor = vfs.open_now(Node::Block(0), WRITE).unwrap().handle;
    vfs.write(&editor, 3, b"d", false).unwrap();
    rename().unwrap_err();
    assert!(status(&vfs).contains("blocks/0.bin: busy: its block is being edited"));
    vfs.flush(&editor, 0).unwrap();
    vfs.release(&editor);
    let elsewhere = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    rename().unwrap_err();
    assert!(vfs.losses().unsaved.is_empty());
    drop(elsewhere);
    let block = vfs
        .open_now(Node::Block(0), Access::default())
        .unwrap()
        .handle;
    assert_eq!(read(&vfs, &block), b"abcd");
    rename().unwrap();
    vfs.read(&block, 0, 3).map(drop).unwrap_err();
    vfs.release(&block);
    let block = vfs.open_now(Node::Block(0), Access::default());
    assert_eq!(read(&vfs, &block.unwrap().handle), b"123");
}

/// What was written to a file while a rename of it over `tree.yaml` was being saved went nowhere, and its close said that all was well.
#[test]
fn what_is_written_while_a_rename_is_being_saved_is_saved_at_the_close() {
    let (_dir, vfs) = writable(&Sample::new());
    let [one, two] = two_trees();
    let (made, next) = made(&vfs, "next");
    let file = vfs.file_of(made.node).unwrap();
    let write = |text: &[u8]| vfs.write(&next.handle, 0, text, false).unwrap();
    write(b"no tree at all\n");
    let refused = file.becoming().unwrap();
    write(&one);
    let saved = vfs.tree.save(&vfs.saves, &refused, false, || Ok(()));
    saved.unwrap_err();
    vfs.flush(&next.handle, 0).unwrap();
    assert_ne!(texts(&vfs)[0], one, "it is no tree.yaml");
    let waiting = file.becoming().unwrap();
    write(&two);
    let name = || {
        vfs.tree.give(&file);
        Ok(())
    };
    vfs.tree.save(&vfs.saves, &waiting, false, name).unwrap();
    assert_eq!(texts(&vfs), [one, two.clone()]);
    vfs.flush(&next.handle, 0).unwrap();
    assert_eq!(texts(&vfs), [two.clone(), two]);
}

/// A process that has removed the file of an array, and has renamed another one over it then, did not find it for two seconds.
#[test]
fn an_array_that_is_replaced_after_it_was_removed_is_found() {
    const ARRAY: &str = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";
    let (_dir, vfs) = writable(&Sample::new().text(ARRAY.as_bytes()).block(b"abc"));
    let names = [".x.bin.tmp", "x.bin"].map(|name| (Node::ARRAYS, name.as_ref()));
    for how in [Rename::Replace, Rename::NoReplace] {
        let made = vfs.create(Node::ARRAYS, names[0].1, FileFacts::new(0o644, 0, 0), WRITE);
        let handle = made.unwrap().1.handle;
        vfs.write(&handle, 0, b"123", false).unwrap();
        vfs.release(&handle);
        vfs.unlink(Node::ARRAYS, names[1].1).unwrap();
        vfs.rename(names[0], names[1], how).unwrap();
        vfs.lookup(Node::ARRAYS, names[1].1).unwrap();
    }
}

/// A file that mknod(2) had made under the name `tree.yaml`, while that was gone, was empty, though FILE has a tree.
#[test]
fn a_tree_that_is_made_and_not_opened_shows_the_tree() {
    let (_dir, vfs) = writable(&Sample::new());
    let (root, name) = (Node::Root, TREE_NAME.as_ref());
    let first = vfs.lookup(root, name).unwrap().node;
    vfs.unlink(root, name).unwrap();
    assert!(matches!(vfs.lookup(root, name), Err(Error::NotFound)));
    let made = vfs.mknod(root, name, 0o644, FileFacts::new(0o644, 0, 0));
    assert_ne!(made.unwrap().node, first);
    let [saved, shown] = texts(&vfs);
    assert_eq!(shown, saved);
}

/// A program that had removed the file of an array could not make it anew if another one had looked the name up in between: the kernel
/// kept the name. And what is renamed over `tree.yaml` is another file.
#[test]
fn the_kernel_keeps_no_name_that_may_lead_to_another_file() {
    let (_dir, vfs) = writable(&Sample::new());
    let made = vfs.create(Node::Root, "x".as_ref(), FileFacts::new(0o644, 0, 0), WRITE);
    vfs.release(&made.unwrap().1.handle);
    for name in ["x", TREE_NAME] {
        let found = vfs.lookup(Node::Root, name.as_ref()).unwrap();
        assert_eq!(found.entry_valid, Duration::ZERO);
        assert!(found.attr_valid > Duration::ZERO);
    }
}

/// A file beside the blocks that ftruncate(2) had made longer or shorter kept its time, so that tools took it for unchanged. One that has
/// no name any more was said to have one.
#[test]
fn a_file_beside_blocks_has_the_time_of_its_last_change_and_the_names_that_it_has() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let name = ".0.bin.tmp".as_ref();
    let (attr, opened) = vfs
        .create(Node::Blocks, name, FileFacts::new(0o644, 0, 0), WRITE)
        .unwrap();
    let set = |changes: Attributes| vfs.setattr(attr.node, Some(&opened.handle), &changes);
    let old = SystemTime::UNIX_EPOCH;
    let aged = Attributes {
        mtime: Some(old),
        ..Attributes::default()
    };
    let resized = |size| Attributes {
        size: Some(size),
        ..Attributes::default()
    };
    for size in [5, 2] {
        assert_eq!(set(aged).unwrap().mtime, old);
        assert!(set(resized(size)).unwrap().mtime > old);
    }
    assert_eq!(vfs.getattr_now(attr.node).unwrap().nlink, 1);
    vfs.unlink(Node::Blocks, name).unwrap();
    assert_eq!(vfs.getattr_now(attr.node).unwrap().nlink, 0);
}
