//! How editors use the name `tree.yaml`.

use std::time::SystemTime;

use super::*;
use crate::asdf::sample::Sample;
use crate::asdf::text::TEXT_LIMIT;
use crate::vfs::Access;
use crate::vfs::scratch::is_beginning;
use crate::vfs::testing::{scratch, writable};

const TEXT: &[u8] = b"#ASDF 1.0.0\n--- {a: 1}\n...\n";
const OTHER: &[u8] = b"#ASDF 1.0.0\n--- {a: 2}\n...\n";
const THEIRS: &[u8] = b"#ASDF 1.0.0\n--- {a: 3}\n...\n";

const WRITE: Access = Access {
    write: true,
    truncate: false,
    exclusive: false,
    pid: 1,
};
const EMPTIED: Access = Access {
    truncate: true,
    ..WRITE
};

fn facts() -> FileFacts {
    FileFacts {
        perm: 0o600,
        uid: 0,
        gid: 0,
        mtime: SystemTime::UNIX_EPOCH,
    }
}

fn tree() -> TreeFile {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT));
    TreeFile::new(&vfs.shown, &vfs.options, scratch().tree_room())
}

/// Removes `tree.yaml`, and lets the time go by in which nobody finds it.
fn remove(tree: &TreeFile) {
    locked(&tree.inner).show_current(Role::Plain);
}

/// Opens the file that is `tree.yaml` as a shell does for `>`, and writes a text.
fn written(tree: &TreeFile, text: &[u8]) -> Arc<ScratchFile> {
    let file = tree.current();
    file.open(EMPTIED, tree.epoch()).unwrap();
    if !text.is_empty() {
        file.write(0, text, false).unwrap();
    }
    file
}

fn close(tree: &TreeFile, file: &Arc<ScratchFile>) {
    if file.close(true)
        && let Some(unsaved) = file.unsaved().unwrap()
        && is_blank(&unsaved.text)
    {
        tree.forget(file);
    }
}

fn text_to_save(file: &Arc<ScratchFile>) -> Option<Vec<u8>> {
    file.to_save().unwrap().map(|unsaved| unsaved.text.to_vec())
}

fn save(tree: &TreeFile, file: &Arc<ScratchFile>) {
    let unsaved = file.to_save().unwrap().unwrap();
    tree.saved(&unsaved, &unsaved.text, false);
}

fn refuse(tree: &TreeFile, unsaved: &Unsaved, kept: bool) {
    let kept = if kept {
        Ok("a file".into())
    } else {
        Err("no room".to_owned())
    };
    tree.refuse(unsaved, &Error::Invalid("a test"), kept);
}

fn shown(tree: &TreeFile) -> Vec<u8> {
    tree.current().bytes().unwrap().to_vec()
}

fn is_outdated(tree: &TreeFile, file: &Arc<ScratchFile>) -> bool {
    let unsaved = file.becoming().unwrap();
    tree.to_replace(&unsaved).unwrap().1
}

#[test]
fn what_is_written_is_what_is_saved() {
    let tree = tree();
    let file = written(&tree, OTHER);
    assert_eq!(text_to_save(&file).unwrap(), OTHER);
    save(&tree, &file);
    assert!(text_to_save(&file).is_none());
    close(&tree, &file);
    assert_eq!(shown(&tree), OTHER);
    assert_eq!(tree.current().node, Node::TREE);
}

/// A rename may refuse a file to which nothing was written since it was saved; a refused text that was kept gave its place to it again
/// and again.
#[test]
fn a_refusal_is_remembered_until_the_text_is_saved_or_changed() {
    let tree = tree();
    let file = written(&tree, OTHER);
    save(&tree, &file);
    refuse(&tree, &file.becoming().unwrap(), true);
    remove(&tree);
    let newer = written(&tree, b"#ASDF 1.0.0\n---\na: 3\n...\n");
    refuse(&tree, &newer.to_save().unwrap().unwrap(), true);
    let again = file.becoming().unwrap();
    let passed_over = tree.is_known(&again, &Error::Invalid("a test"));
    assert!(passed_over.is_none());
    save(&tree, &newer);
    assert!(newer.refusal().is_none());
}

/// After truncate(2) to a length that no text has, `tree.yaml` had that length until it was written anew.
#[test]
fn a_text_does_not_get_longer_than_a_tree_may_be() {
    let tree = tree();
    let file = tree.current();
    file.open(WRITE, tree.epoch()).unwrap();
    let too_long = |done: crate::vfs::Result<()>| {
        let error = done.unwrap_err();
        assert!(
            error.to_string().contains("at most 268435456 bytes"),
            "{error}"
        );
    };
    too_long(file.resize(TEXT_LIMIT + 1, tree.epoch()));
    too_long(file.write(TEXT_LIMIT, b"x", false));
    too_long(file.write(u64::MAX, b"xy", false));
    assert_eq!(shown(&tree), TEXT);
    assert!(!file.is_dirty() && file.becoming().unwrap().short.is_none());
    let (_dir, vfs) = writable(&Sample::new().text(TEXT));
    let other = vfs
        .scratch
        .create(Node::Root, "x".as_ref(), None, facts(), 0);
    let other = vfs.file_of(other.unwrap()).unwrap();
    other.resize(TEXT_LIMIT + 1, 0).unwrap();
}

#[test]
fn a_text_that_no_document_has_begun_in_is_not_forgotten() {
    let tree = tree();
    for (n, blank) in ["", " \n\t", "\0\0\n"].into_iter().enumerate() {
        let file = written(&tree, blank.as_bytes());
        assert_eq!(
            file.node,
            Node::Tree(n as u32),
            "the bytes of a number stay"
        );
        assert!(text_to_save(&file).is_none());
        close(&tree, &file);
        assert_eq!(shown(&tree), TEXT);
    }
    for cut in ["#ASDF 1.0.0\n%YAML 1.1\n", "#ASDF 1.0.0\n\n--", "#"] {
        assert!(is_beginning(cut.as_bytes()), "{cut}");
    }
    let file = written(&tree, b"# a: 1\n");
    assert!(text_to_save(&file).is_none());
    let unfinished = file.unsaved().unwrap().unwrap();
    assert_eq!(unfinished.text.as_slice(), b"# a: 1\n");
    refuse(&tree, &unfinished, true);
    close(&tree, &file);
    assert_eq!(shown(&tree), b"# a: 1\n");
}

/// A program that is told 0 by `close` believes that all is well.
#[test]
fn a_text_that_is_no_beginning_of_one_is_to_be_saved() {
    let tree = tree();
    let texts = [
        "a: 1\n",
        "%YAML 1.1\n",
        "---\n",
        "\n#ASDF 1.0.0\n",
        "#ASDF 1.0.0\na: 1\n",
        "#ASDF 1.0.0\n--\n",
        "#ASDF 1.0.0\na",
    ];
    for text in texts {
        let file = written(&tree, text.as_bytes());
        assert_eq!(text_to_save(&file).unwrap(), text.as_bytes());
        assert!(!is_beginning(text.as_bytes()), "that is told by close");
    }
}

/// A program that goes on writing through a descriptor does not know that what it wrote before was made longer.
#[test]
fn what_was_put_back_is_shown_and_moves_nothing_for_who_goes_on_writing() {
    let tree = tree();
    let file = written(&tree, b"--- {a: 1}\n");
    let unsaved = file.to_save().unwrap().unwrap();
    tree.saved(&unsaved, &Arc::new(OTHER.to_vec()), false);
    assert_eq!(shown(&tree), OTHER);
    assert_ne!(tree.current().node, file.node);
    assert!(text_to_save(&file).is_none());
    file.write(11, b"# more\n", false).unwrap();
    assert_eq!(text_to_save(&file).unwrap(), b"--- {a: 1}\n# more\n");
    let unsaved = file.to_save().unwrap().unwrap();
    tree.saved(&unsaved, &Arc::new(THEIRS.to_vec()), false);
    assert_eq!(shown(&tree), THEIRS);
    // what another writer has written since is not replaced
    file.write(11, b"# less\n", false).unwrap();
    let other = written(&tree, b"--- {b: 1}\n");
    let unsaved = file.to_save().unwrap().unwrap();
    tree.saved(&unsaved, &Arc::new(OTHER.to_vec()), false);
    assert_eq!(shown(&tree), b"--- {b: 1}\n");
    // and when the name leads elsewhere, nothing is saved through it
    remove(&tree);
    for file in [file, other] {
        file.write(0, b"---", false).unwrap();
        assert!(text_to_save(&file).is_none());
    }
}

#[test]
fn an_open_without_a_change_saves_nothing() {
    let tree = tree();
    let file = tree.current();
    file.open(WRITE, 0).unwrap();
    assert!(text_to_save(&file).is_none());
    assert!(!tree.is_at_rest());
    file.write(20, b"2", false).unwrap();
    assert_eq!(text_to_save(&file).unwrap(), OTHER);
}

#[test]
fn the_only_copy_of_a_refused_text_stays_in_sight() {
    for kept in [true, false] {
        let tree = tree();
        let file = written(&tree, OTHER);
        refuse(&tree, &file.to_save().unwrap().unwrap(), kept);
        close(&tree, &file);
        remove(&tree);
        assert_eq!(shown(&tree), if kept { TEXT } else { OTHER });
    }
}

#[test]
fn a_refused_text_goes_on_being_shown() {
    let tree = tree();
    let bad = b"#ASDF 1.0.0\n--- [\n";
    let file = written(&tree, bad);
    refuse(&tree, &file.to_save().unwrap().unwrap(), true);
    close(&tree, &file);
    assert_eq!(shown(&tree), bad);
    for _ in 0..2 {
        close(&tree, &written(&tree, b""));
        assert_eq!(shown(&tree), bad);
    }
    let mended = written(&tree, OTHER);
    save(&tree, &mended);
    close(&tree, &mended);
    close(&tree, &written(&tree, b""));
    assert_eq!(shown(&tree), OTHER);
}

#[test]
fn who_appends_writes_behind_what_others_have_appended() {
    let tree = tree();
    let file = tree.current();
    for text in ["one\n", "two\n", "three\n"] {
        file.open(WRITE, 0).unwrap();
        file.write(None, text.as_bytes(), false).unwrap();
    }
    assert_eq!(shown(&tree), [TEXT, b"one\ntwo\nthree\n"].concat());
}

#[test]
fn a_refused_text_makes_way_for_another_programs_only_if_it_is_kept_elsewhere() {
    for kept in [true, false] {
        let tree = tree();
        let file = written(&tree, OTHER);
        refuse(&tree, &file.to_save().unwrap().unwrap(), kept);
        tree.reloaded(Arc::new(THEIRS.to_vec()));
        assert_eq!(file.bytes().unwrap().as_slice(), OTHER);
        assert!(is_outdated(&tree, &file) && text_to_save(&file).is_some());
        assert!(matches!(file.open(WRITE, 0), Err(Error::NotFound)));
        close(&tree, &file);
        assert_eq!(shown(&tree), if kept { THEIRS } else { OTHER });
        // who mends a text that was made of an older one can't save it over the newer one
        let current = tree.current();
        current.open(WRITE, tree.epoch()).unwrap();
        current.write(0, b"#", false).unwrap();
        assert_eq!(is_outdated(&tree, &current), !kept);
    }
}

#[test]
fn a_refused_text_is_shown_once_no_file_keeps_it_any_more() {
    let tree = tree();
    let file = written(&tree, OTHER);
    refuse(&tree, &file.to_save().unwrap().unwrap(), true);
    tree.reloaded(Arc::new(THEIRS.to_vec()));
    close(&tree, &file);
    assert_eq!(shown(&tree), THEIRS);
    tree.note_kept(Err("it is gone".to_owned()));
    assert_eq!(shown(&tree), OTHER);
    // a program may have opened it: it stays what it is
    tree.note_kept(Ok("kept".into()));
    assert_eq!(shown(&tree), OTHER);
    assert_eq!(tree.refusal(|it| it.kept().is_some()), Some(true));
}

/// A file whose rename over the tree had been refused could not replace it whatever was written into it.
#[test]
fn a_scratch_file_that_is_written_anew_is_of_the_text_of_now() {
    let tree = tree();
    let file = tree.current();
    remove(&tree);
    tree.reloaded(Arc::new(THEIRS.to_vec()));
    assert!(is_outdated(&tree, &file));
    file.write(0, b"#", false).unwrap();
    assert!(is_outdated(&tree, &file), "only a part of it");
    file.resize(0, tree.epoch()).unwrap();
    assert!(!is_outdated(&tree, &file));
}

/// It showed the text that had been refused of the other file.
#[test]
fn a_refused_tree_that_is_emptied_while_another_text_is_refused_shows_files_tree() {
    let tree = tree();
    let file = written(&tree, OTHER);
    refuse(&tree, &file.to_save().unwrap().unwrap(), true);
    close(&tree, &file);
    file.open(WRITE, 0).unwrap();
    file.resize(0, 0).unwrap();
    let room = Arc::clone(scratch().room());
    let text = Arc::new(Vec::new());
    let other = ScratchFile::new(Node::Scratch(1), FileKind::File, &room, text, facts(), 0);
    other.write(0, THEIRS, false).unwrap();
    refuse(&tree, &Arc::new(other).becoming().unwrap(), true);
    close(&tree, &file);
    assert_eq!(shown(&tree), TEXT);
}

/// The log told to copy it from there.
#[test]
fn the_only_copy_of_a_text_whose_file_is_tree_yaml_no_more_is_shown() {
    let tree = tree();
    let early = written(&tree, OTHER);
    tree.reloaded(Arc::new(THEIRS.to_vec()));
    refuse(&tree, &early.to_save().unwrap().unwrap(), false);
    assert_eq!(shown(&tree), OTHER);
}

/// An editor that had moved its backup back to the name left nothing by which the text could be read.
#[test]
fn the_only_copy_of_a_text_stays_in_sight_when_a_backup_is_moved_back() {
    for kept in [true, false] {
        let tree = tree();
        let backup = tree.current();
        remove(&tree);
        let file = written(&tree, OTHER);
        refuse(&tree, &file.to_save().unwrap().unwrap(), kept);
        close(&tree, &file);
        tree.give(&backup);
        assert_eq!(shown(&tree), if kept { TEXT } else { OTHER });
        // a program that has the backup open saves what it writes, and no close saves the copy over that
        backup.write(0, THEIRS, false).unwrap();
        save(&tree, &backup);
        assert_eq!(shown(&tree), THEIRS);
        assert!(!tree.current().is_dirty() && tree.is_at_rest());
    }
}

/// It was shown, and nothing could be saved then: each handle was one of the text of before.
#[test]
fn an_older_text_that_is_refused_is_not_shown_instead_of_a_refused_newer_one() {
    let tree = tree();
    let early = tree.current();
    early.open(WRITE, 0).unwrap();
    tree.reloaded(Arc::new(THEIRS.to_vec()));
    let newer = written(&tree, OTHER);
    refuse(&tree, &newer.to_save().unwrap().unwrap(), true);
    close(&tree, &newer);
    early.write(0, b"#ASDF 1.0.0\n", false).unwrap();
    refuse(&tree, &early.to_save().unwrap().unwrap(), true);
    assert_eq!(shown(&tree), OTHER);
}

/// What was written to the hard link then was saved over what the other program had made.
#[test]
fn what_is_written_to_a_hard_link_of_a_tree_that_another_program_has_replaced_is_refused() {
    let tree = tree();
    let old = tree.current();
    let link = Named::free(Arc::clone(&old));
    tree.reloaded(Arc::new(THEIRS.to_vec()));
    assert_eq!(shown(&tree), THEIRS);
    let late = old.open(WRITE, tree.epoch());
    assert!(late.is_ok(), "it has a name");
    old.write(0, OTHER, false).unwrap();
    assert!(text_to_save(&old).is_some() && is_outdated(&tree, &old));
    drop(link);
}

#[test]
fn a_file_that_gets_the_name_keeps_its_number() {
    let tree = tree();
    let backup = tree.current();
    remove(&tree);
    let file = written(&tree, OTHER);
    save(&tree, &file);
    // FILE's old text is none, until it is saved
    tree.give(&backup);
    assert_eq!(shown(&tree), OTHER);
    let becoming = backup.becoming().unwrap();
    tree.saved(&becoming, &becoming.text, true);
    tree.give(&backup);
    assert_eq!(shown(&tree), TEXT);
    assert_eq!(tree.current().node, backup.node);
    assert!(matches!(file.role(), Role::Plain));
}

/// A program that looked while another one made `tree.yaml` anew found a stale file, and found the next one stale, too.
#[test]
fn a_file_that_has_just_lost_the_name_can_be_read() {
    let tree = tree();
    for number in 0..3 {
        remove(&tree);
        let old = tree.file(Node::Tree(number)).unwrap();
        assert_eq!(old.attr().nlink, 0);
        old.open(Access::default(), 0).unwrap();
        assert_eq!(old.bytes().unwrap().as_slice(), TEXT);
        old.close(false);
        assert!(matches!(old.open(WRITE, 0), Err(Error::NotFound)));
    }
}

#[test]
fn a_text_that_is_not_saved_keeps_its_member_open() {
    let tree = tree();
    assert!(tree.is_at_rest() && tree.at_rest().is_some());
    let file = tree.current();
    file.open(WRITE, 0).unwrap();
    assert!(!tree.is_at_rest());
    file.close(true);
    assert!(tree.is_at_rest() && tree.at_rest().is_some());
    file.open(WRITE, 0).unwrap();
    file.write(0, b"#", false).unwrap();
    file.close(true);
    assert!(!tree.is_at_rest() && tree.at_rest().is_none());
}

/// The bytes of a number would be others.
#[test]
fn numbers_go_on_where_the_member_was_closed() {
    let tree = tree();
    tree.reloaded(Arc::new(OTHER.to_vec()));
    let mark = tree.mark();
    assert_eq!(mark.node, Node::Tree(1));
    let next = self::tree();
    next.begin(mark);
    assert_eq!(next.current().node, Node::Tree(1));
    assert_eq!(next.epoch(), tree.epoch());
    let next = self::tree();
    next.begin(mark.changed());
    assert_eq!(next.current().node, Node::Tree(2));
    assert_ne!(next.epoch(), tree.epoch());
    // the first file had been put back in its place
    let node = Node::TREE;
    let next = self::tree();
    next.begin(TreeMark { node, ..mark });
    assert!(!is_outdated(&next, &next.current()));
}

/// open(2) with `O_RDONLY | O_TRUNC` left `tree.yaml` empty for all programs until one wrote it, called blocks read-only, and seemed to
/// empty a file of `info/`.
#[test]
fn what_is_opened_to_be_read_and_emptied_keeps_its_bytes() {
    let (_dir, vfs) = writable(&Sample::new().text(TEXT).block(b"abc"));
    let emptied = Access {
        truncate: true,
        ..Access::default()
    };
    for (parent, name) in [(Node::Root, "tree.yaml"), (Node::Blocks, "0.bin")] {
        let before = vfs.lookup(parent, name.as_ref()).unwrap();
        let opened = vfs.open_now(before.node, emptied).unwrap();
        vfs.flush(&opened.handle, 0).unwrap();
        vfs.release(&opened.handle);
        let after = vfs.lookup(parent, name.as_ref()).unwrap();
        assert_eq!(after.size, before.size, "{name}");
    }
    let refused = vfs.open_now(Node::Status, emptied);
    assert!(matches!(refused, Err(Error::ReadOnly(_))));
}

/// What the second of them wrote behind its completed text was dropped, and its close returned 0.
#[test]
fn each_program_whose_text_was_completed_goes_on_writing_it() {
    let tree = tree();
    let complete = |file: &Arc<ScratchFile>, text: &[u8]| {
        let unsaved = file.to_save().unwrap().unwrap();
        tree.saved(&unsaved, &Arc::new(text.to_vec()), false);
    };
    let mut before = None;
    for _ in 0..3 {
        let file = written(&tree, b"a: 2\n");
        complete(&file, OTHER);
        file.write(None, b"# more\n", false).unwrap();
        assert_eq!(text_to_save(&file).unwrap(), b"a: 2\n# more\n");
        complete(&file, THEIRS);
        // what the one before writes now is refused, and not dropped
        if let Some(before) = before.replace(Arc::clone(&file)) {
            before.write(None, b"# late\n", false).unwrap();
            let unsaved = before.to_save().unwrap().unwrap();
            assert!(tree.to_replace(&unsaved).unwrap().1, "out of date");
        }
        close(&tree, &file);
    }
}
