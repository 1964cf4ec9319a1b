//! Members of a mount of many that are closed and opened again: what the kernel knows of them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::common::{Mount, can_mount, eventually};
use crate::many::{data, files, open_files, sample};
use crate::sample::{Block, Sample, array};

fn tree(n: usize) -> String {
    String::from_utf8(sample(n).tree().to_vec()).unwrap()
}

/// Each save of ours counted as a change by another program when the member was opened again: its files had other numbers, and programs
/// that had just looked them up got `ESTALE`.
#[test]
fn a_save_of_ours_leaves_inode_numbers_as_they_are() {
    if !can_mount() {
        return;
    }
    let dir = files(&["a.asdf", "b.asdf"]);
    let mount = Mount::new(dir.path(), &["-o", "open=1"]);
    let others_want_its_place = || {
        eventually("the member is closed", || {
            mount.read("b.asdf/tree.yaml").unwrap();
            open_files(&mount, dir.path()) == 1
        });
    };
    let flux = || fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    let before = flux().ino();
    let edited = tree(0).replace("n: 0", "n: 100");
    fs::write(mount.path("a.asdf/tree.yaml"), &edited).unwrap();
    others_want_its_place();
    assert_eq!(flux().ino(), before, "after a save of the tree");
    let block = mount.path("a.asdf/blocks/0.bin");
    let block = File::options().write(true).open(block);
    block.unwrap().write_all_at(b"xyz", 3).unwrap();
    others_want_its_place();
    assert_eq!(flux().ino(), before, "after a save of a block");
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
    mount.read("b.asdf/tree.yaml").unwrap();
    let number = fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    mount.read("b.asdf/tree.yaml").unwrap();
    assert_eq!(mount.text("a.asdf/tree.yaml"), tree(0));
    // as long as the other, so that the kernel does not see it by its length
    let changed = Sample::new(&tree_body(0).replace("n: 0", "n: 7")).block(Block::raw(&data(7)));
    assert_eq!(changed.bytes().len(), sample(0).bytes().len());
    fs::write(dir.path().join("a.asdf"), changed.bytes()).unwrap();
    eventually("the tree is shown as it is now", || {
        mount.text("a.asdf/tree.yaml").contains("n: 7")
    });
    let now = fs::metadata(mount.path("a.asdf/arrays/flux.bin")).unwrap();
    assert_eq!(now.ino(), number.ino(), "what the test is about");
    assert_eq!(mount.read("a.asdf/arrays/flux.bin").unwrap(), data(7));
}

fn tree_body(n: usize) -> String {
    format!("n: {n}\n{}", array("flux", 0, "uint8", "[64]"))
}
