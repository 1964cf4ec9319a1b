use super::*;
use crate::asdf::sample::Sample;
use crate::vfs::attr::WRITE;
use crate::vfs::scratch::REPLACED_WITHIN;
use crate::vfs::testing::writable;
use crate::vfs::{Access, Call, Rename, TREE_NAME};
use rustix::io::Errno;

/// It could not be removed again: its name was taken for that of FILE's tree.
#[test]
fn a_file_beside_an_array_may_be_called_like_the_tree() {
    let text =
        b"#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
        tree: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}\n...\n";
    let (_dir, vfs) = writable(&Sample::new().text(text).block(b"abc"));
    let (name, facts) = (TREE_NAME.as_ref(), FileFacts::new(0o600, 0, 0));
    let made = vfs.create(Node::ARRAYS, name, facts, WRITE).unwrap();
    vfs.release(&made.1.handle);
    vfs.unlink(Node::ARRAYS, name).unwrap();
    let gone = vfs.unlink(Node::ARRAYS, name);
    assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
}

#[test]
fn a_tree_that_is_removed_is_gone_for_two_seconds_or_until_it_is_made_again() {
    let (_dir, vfs) = writable(&Sample::new());
    let (root, name) = (Node::Root, TREE_NAME.as_ref());
    let make = || vfs.mknod(root, name, 0o100_600, FileFacts::new(0o600, 0, 0));
    let find = || vfs.lookup(root, name);
    let text = || Arc::clone(vfs.snapshot().text());
    let (before, old) = (text(), vfs.open_now(Node::TREE, WRITE).unwrap().handle);
    vfs.unlink(root, name).unwrap();
    assert!(matches!(find(), Err(Error::NotFound)));
    assert!(matches!(vfs.unlink(root, name), Err(Error::NotFound)));
    vfs.write(&old, None, b"# more\n", false).unwrap();
    vfs.flush(&old, 0).unwrap();
    assert_eq!(text(), before, "it has no name");
    assert_eq!(make().unwrap().node, Node::Tree(1));
    assert!(matches!(make(), Err(Error::Exists)));
    assert_eq!(vfs.tree.current().bytes().unwrap(), before);
    vfs.unlink(root, name).unwrap();
    for removed in vfs.scratch.table().hidden.values_mut() {
        *removed = removed.checked_sub(REPLACED_WITHIN).unwrap();
    }
    assert_eq!(find().unwrap().node, Node::Tree(2));
    assert!(matches!(make(), Err(Error::Exists)));
    assert_eq!(vfs.tree.current().bytes().unwrap(), before);
}

/// It was not found for two seconds, as the array had been removed whose name it had.
#[test]
fn a_file_that_is_made_is_there_even_if_the_tree_has_lost_what_was_gone() {
    let text = |key: &str| {
        let array =
            "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}";
        let start = Sample::TREE.strip_suffix(b"...\n").unwrap();
        let line = format!("a: {array}\n{key}: {array}\n...\n");
        [start, line.as_bytes()].concat()
    };
    let (_dir, vfs) = writable(&Sample::new().text(&text("x.tmp")).block(b"abc"));
    let (name, facts) = ("x.tmp.npy".as_ref(), FileFacts::new(0o600, 0, 0));
    vfs.unlink(Node::ARRAYS, name).unwrap();
    let truncate = true;
    let tree = vfs.open_now(Node::TREE, Access { truncate, ..WRITE });
    let tree = tree.unwrap().handle;
    vfs.write(&tree, 0, &text("y"), false).unwrap();
    vfs.flush(&tree, 0).unwrap();
    let made = vfs.mknod(Node::ARRAYS, name, 0o100_600, facts).unwrap();
    assert!(matches!(made.node, Node::Scratch(_)));
    assert!(vfs.lookup(Node::ARRAYS, name).is_ok());
}

/// The target of the link became the bytes of the block.
#[test]
fn a_symlink_is_not_renamed_over_a_block() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let (link, facts) = ("link".as_ref(), FileFacts::new(0o777, 0, 0));
    vfs.symlink(Node::Root, link, "far".as_ref(), facts)
        .unwrap();
    for block in ["0.bin", "1.bin"] {
        let to = (Node::Blocks, block.as_ref());
        let refused = vfs.rename((Node::Root, link), to, Rename::Replace);
        let is_refused = matches!(refused, Err(Error::Invalid(_)));
        assert!(is_refused, "{refused:?}");
    }
    assert!(vfs.lookup(Node::Root, link).is_ok());
    assert!(vfs.blocks.is_empty() && vfs.snapshot().layout().blocks.len() == 1);
}

/// In a message it could have the name that the first `tree.yaml` of another member has now.
#[test]
fn a_file_is_called_by_a_name_in_its_own_member() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let (tree, old) = (TREE_NAME.as_ref(), "old".as_ref());
    let renamed = vfs.rename((Node::Root, tree), (Node::Root, old), Rename::Replace);
    renamed.unwrap();
    let other = MemberScratch {
        scratch: Arc::clone(&vfs.scratch.scratch),
        member: 1,
        shown: Arc::clone(&vfs.shown),
    };
    assert_eq!(vfs.scratch.path_of(Node::TREE).as_deref(), Some("old"));
    assert_eq!(other.path_of(Node::TREE), None);
}

#[test]
fn names_of_editors_are_told_from_those_of_users() {
    let editors = [
        ".tree.yaml.swp",
        ".tree.yaml.swx",
        "4913",
        "5036",
        "tree.yaml~",
        ".tree.yaml.un~",
        "tree.yaml.~1~",
        ".#tree.yaml",
        "#tree.yaml#",
        ".goutputstream-9XK2A1",
        "tree.yaml.pQ3xYz",
        ".tree.yaml.Xq12Ab",
        "sedA8xYkQ",
        "tmp_k3x9q1a",
        "tmpqwertyui",
        "tree.yaml.rej",
        "tree.yaml.save",
        ".tree.yaml.kate-swp",
        "DEADJOE",
        "tree.yaml___jb_tmp___",
        "tree.yaml___jb_old___",
        ".~lock.tree.yaml#",
        "tmp.8XkQ1aZ0bC",
        ".t",
    ];
    for name in editors {
        assert!(is_made_by_editor(name.as_ref()), "{name}");
    }
    let users = [
        "results.csv",
        "tree.yaml.backup",
        "tree.yaml.bak",
        "tree.yaml.orig",
        "tree.yaml.tmp",
        "tree2.yaml",
        "notes",
        "sediment.csv",
        "#1.txt",
        "data_2024.npy",
        "tmpfile",
        "a.asdf",
    ];
    for name in users {
        assert!(!is_made_by_editor(name.as_ref()), "{name}");
    }
    for name in ["XXtfDEBd", "XXabcdef", "XXa.tmp", "x.tmp.npy"] {
        assert!(is_temporary_data(name.as_ref()), "{name}");
    }
    for name in ["XXfinal2", "XXa.npy"] {
        let is_one = is_made_by_editor(name.as_ref());
        assert!(!is_one, "{name}");
    }
}

/// A program that made or opened a file got `EEXIST` if another one made it between the kernel's look at the name and its request.
#[test]
fn a_name_that_is_taken_meanwhile_is_looked_up_again_unless_a_new_file_is_wanted() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let create = |directory, name: &str, exclusive| {
        let access = Access { exclusive, ..WRITE };
        let facts = FileFacts::new(0o600, 0, 0);
        vfs.create(directory, name.as_ref(), facts, access)
    };
    let (_, opened) = create(Node::Root, "x", false).unwrap();
    for (directory, name) in [
        (Node::Root, "x"),
        (Node::Root, "info"),
        (Node::Blocks, "0.bin"),
    ] {
        for (exclusive, errno) in [(true, Errno::EXIST), (false, Errno::STALE)] {
            let taken = create(directory, name, exclusive).map(drop).unwrap_err();
            assert_eq!(taken.errno(Call::Create), errno.raw_os_error(), "{name}");
        }
    }
    vfs.release(&opened.handle);
}
