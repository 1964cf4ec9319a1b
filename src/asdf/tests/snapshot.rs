use std::sync::Arc;

use crate::asdf::check::{Validate, check_text};
use crate::asdf::sample::Sample;
use crate::asdf::*;

const HEAD: &str = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
const ARRAY: &str =
    "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: big, shape: ['*']}";

fn snapshot(body: &str, data: &[u8]) -> Snapshot {
    let text = format!("{HEAD}{body}\n...\n");
    let file = tempfile::tempfile().unwrap();
    let bytes = Sample::new().text(text.as_bytes()).block(data).bytes();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    Snapshot::open(Arc::new(file), Cache::new(1 << 20), OpenOptions::default()).unwrap()
}

/// `old`, after a save that made it what `saved` is.
fn after(old: &Snapshot, saved: &Snapshot, checked: Option<CheckedText>) -> Snapshot {
    let scan = Scan {
        layout: saved.layout.clone(),
        text: Arc::clone(&saved.text),
    };
    old.succeeded_by(
        Arc::clone(saved.file.as_ref().unwrap().file()),
        None,
        scan,
        &[0],
        checked,
    )
}

/// Each save of a block parsed the whole tree again.
#[test]
fn a_save_of_data_keeps_the_tree_and_its_arrays() {
    let old = snapshot(&format!("a: {ARRAY}"), b"abc");
    let tree = Arc::clone(old.shared_tree().unwrap().unwrap());
    assert_eq!(old.arrays()[0].bin_len(), 3);
    let next = after(&old, &snapshot(&format!("a: {ARRAY}"), b"xyz"), None);
    assert!(next.has_arrays_of(&old));
    assert!(Arc::ptr_eq(
        next.tree.get().unwrap().as_ref().unwrap().as_ref().unwrap(),
        &tree
    ));
    let longer = after(&old, &snapshot(&format!("a: {ARRAY}"), b"abcdef"), None);
    assert!(Arc::ptr_eq(longer.shared_tree().unwrap().unwrap(), &tree));
    assert_eq!(longer.arrays()[0].bin_len(), 6);
}

/// An append to a head that another process had just begun to write was saved: `--- !core/asdf-1.1added: 1`.
#[test]
fn a_tree_that_was_a_mapping_stays_one() {
    let old = snapshot("a: 1", b"");
    for (body, is_refused) in [
        ("--- !core/asdf-1.1a: 1", true),
        ("--- !core/asdf-1.1.0\n{}", false),
    ] {
        let text = HEAD.replace("--- !core/asdf-1.1.0\n", body) + "\n...\n";
        let checked = check_text(&old, &Arc::new(text.into_bytes()), Validate::Off, None);
        assert_eq!(checked.is_err(), is_refused, "{body}");
    }
}

/// A save of the tree parsed the one before, too, and looked for its arrays and for what in it breaks the rules.
#[test]
fn a_text_without_a_fault_is_not_compared_with_the_one_before() {
    let old = snapshot(&format!("a: {ARRAY}\nm: {{source: 1, shape: []}}"), b"abc");
    let check = |body: &str| {
        let text = format!("{HEAD}{body}\n...\n");
        check_text(&old, &Arc::new(text.into_bytes()), Validate::Warn, None)
    };
    assert!(check(&format!("a: {ARRAY}\nb: {{source: 1, shape: []}}")).is_ok());
    assert!(old.tree.get().is_none() && old.found.get().is_none());
    let bare = ARRAY.split_once(' ').unwrap().1;
    for lost in [
        format!("a: {bare}"),
        format!("b: !x &b {bare}\na: {{<<: *b}}"),
    ] {
        let why = check(&lost).err().unwrap().to_string();
        assert!(why.contains("array a has lost its tag"), "{why}");
    }
    assert!(old.tree.get().is_some());
}

/// Only the same array at the same path could be faulty: an edit in front of it in its list was refused.
#[test]
fn a_faulty_array_may_move_but_not_multiply() {
    let bad = ARRAY.replace("['*']", "[9]");
    let old = snapshot(&format!("l: [{bad}]\nm: 1"), b"abc");
    let check = |body: String| {
        let text = format!("{HEAD}{body}\n...\n");
        check_text(&old, &Arc::new(text.into_bytes()), Validate::Off, None)
    };
    assert!(check(format!("l: [{ARRAY}, {bad}]")).is_ok());
    assert!(check(format!("k: [1, {bad}]")).is_ok());
    for worse in [
        format!("l: [{bad}, {bad}]"),
        format!("l: [{}]", bad.replace('9', "8")),
    ] {
        let why = check(worse).err().unwrap().to_string();
        assert!(why.contains("wanted of a block of 3; correct it"), "{why}");
    }
}

/// A save of the tree parsed it twice: to check it, and to show it.
#[test]
fn a_save_of_the_tree_keeps_what_was_checked() {
    let old = snapshot(&format!("a: {ARRAY}"), b"abc");
    let saved = snapshot(&format!("a: {ARRAY}\nb: {ARRAY}"), b"abc");
    let check = || check_text(&old, saved.text(), Validate::Warn, None).unwrap();
    let checked = check();
    let (tree, found) = (Arc::clone(&checked.tree), Arc::clone(&checked.found));
    let next = after(&old, &saved, Some(checked));
    assert!(Arc::ptr_eq(
        next.tree.get().unwrap().as_ref().unwrap().as_ref().unwrap(),
        &tree
    ));
    assert!(Arc::ptr_eq(next.found.get().unwrap(), &found));
    assert_eq!(next.block_users(), [[0, 1]]);
    let other = snapshot("c: 1", b"abc");
    assert!(after(&old, &other, Some(check())).arrays().is_empty());
}
