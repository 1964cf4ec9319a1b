//! How editors use the root.

use std::time::SystemTime;

use super::*;
use crate::vfs::Access;

pub(super) const TEXT: &[u8] = b"#ASDF 1.0.0\n--- {a: 1}\n...\n";
pub(super) const OTHER: &[u8] = b"#ASDF 1.0.0\n--- {a: 2}\n...\n";

pub(super) const WRITE: Access = Access {
    write: true,
    truncate: false,
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

pub(super) fn root() -> Texts {
    Texts::new(
        Arc::new(TEXT.to_vec()),
        facts(),
        ScratchRoom::new(64 << 10, &std::env::temp_dir()),
    )
}

fn write_new(root: &mut Texts, number: u32, text: &[u8]) -> TextHandle {
    let handle = root.open(number, EMPTIED).unwrap();
    root.write(handle, 0, text, false).unwrap();
    handle
}

fn unsaved(root: &Texts, handle: TextHandle) -> Option<Unsaved> {
    root.to_save(handle).unwrap()
}

fn text_to_save(root: &Texts, handle: TextHandle) -> Option<Arc<Vec<u8>>> {
    unsaved(root, handle).map(|unsaved| unsaved.text)
}

fn save(root: &mut Texts, handle: TextHandle) {
    let unsaved = unsaved(root, handle).unwrap();
    root.saved(&unsaved, &unsaved.text);
}

fn refuse(root: &mut Texts, unsaved: &Unsaved, kept: bool) {
    let kept = if kept {
        Ok("a file".into())
    } else {
        Err("no room".to_owned())
    };
    root.refuse(unsaved, &Error::Invalid("a test"), kept, false);
}

#[test]
fn what_is_written_is_what_is_saved() {
    let mut root = root();
    let handle = write_new(&mut root, 0, OTHER);
    let text = text_to_save(&root, handle).unwrap();
    assert_eq!(*text, OTHER);
    save(&mut root, handle);
    assert!(text_to_save(&root, handle).is_none());
    root.release(handle);
    assert_eq!(**root.bytes(0).unwrap(), OTHER);
}

#[test]
fn an_emptied_text_comes_back() {
    let mut root = root();
    let handle = root.open(0, EMPTIED).unwrap();
    assert_eq!(root.attr(0).unwrap().size, 0);
    assert!(text_to_save(&root, handle).is_none());
    root.release(handle);
    assert_eq!(**root.bytes(0).unwrap(), TEXT);
}

#[test]
fn a_text_that_no_document_has_begun_in_is_not_forgotten() {
    let mut root = root();
    for blank in ["", " \n\t", "\0\0\n"] {
        let handle = write_new(&mut root, 0, blank.as_bytes());
        assert!(root.unfinished(handle).is_none());
        root.release(handle);
        assert_eq!(**root.bytes(0).unwrap(), TEXT);
    }
    let handle = write_new(&mut root, 0, b"# a: 1\n");
    assert!(text_to_save(&root, handle).is_none());
    let unfinished = root.unfinished(handle).unwrap();
    assert_eq!(unfinished.text.as_slice(), b"# a: 1\n");
    assert!(unfinished.shown);
    refuse(&mut root, &unfinished, true);
    root.release(handle);
    assert_eq!(**root.bytes(0).unwrap(), b"# a: 1\n");

    // but what another writer has written since goes on being shown
    let handle = write_new(&mut root, 0, b"# a: 2\n");
    write_new(&mut root, 0, OTHER);
    assert!(!root.unfinished(handle).unwrap().shown);
}

/// A program that is told 0 by `close` believes that all is well.
#[test]
fn a_text_that_is_no_beginning_of_one_is_to_be_saved() {
    let mut root = root();
    for text in ["a: 1\n", "%YAML 1.1\n", "---\n", "\n#ASDF 1.0.0\n"] {
        let handle = write_new(&mut root, 0, text.as_bytes());
        assert_eq!(
            text_to_save(&root, handle).unwrap().as_slice(),
            text.as_bytes()
        );
        assert!(root.unfinished(handle).is_none(), "that is told by close");
    }
}

/// A program that goes on writing through a descriptor does not know that what it wrote before was made longer.
#[test]
fn what_was_put_back_is_shown_and_moves_nothing_for_who_goes_on_writing() {
    let mut root = root();
    let handle = write_new(&mut root, 0, b"--- {a: 1}\n");
    let written = unsaved(&root, handle).unwrap();
    root.saved(&written, &Arc::new(OTHER.to_vec()));
    assert_eq!(*root.committed, OTHER);
    assert_eq!(**root.bytes(0).unwrap(), OTHER);
    assert_eq!(root.view(handle).unwrap().as_slice(), OTHER);
    assert!(text_to_save(&root, handle).is_none());
    root.write(handle, 11, b"# more\n", false).unwrap();
    let text = text_to_save(&root, handle).unwrap();
    assert_eq!(text.as_slice(), b"--- {a: 1}\n# more\n");
    assert_eq!(root.bytes(0).unwrap(), &text);
    // what another writer has written since is not replaced
    let written = unsaved(&root, handle).unwrap();
    write_new(&mut root, 0, b"--- {b: 1}\n");
    root.saved(&written, &Arc::new(OTHER.to_vec()));
    assert_eq!(root.bytes(0).unwrap().as_slice(), b"--- {b: 1}\n");
}

#[test]
fn an_open_without_a_change_saves_nothing() {
    let mut root = root();
    let handle = root.open(0, WRITE).unwrap();
    assert!(text_to_save(&root, handle).is_none());
}

#[test]
fn two_writers_do_not_mix() {
    let mut root = root();
    let first = write_new(&mut root, 0, b"#ASDF 1.0.0\n--- {fi");
    let second = write_new(&mut root, 0, b"#ASDF 1.0.0\n--- {second: 2}\n...\n");
    root.write(first, 19, b"rst: 1}\n...\n", false).unwrap();
    assert_eq!(
        **root.view(first).unwrap(),
        *b"#ASDF 1.0.0\n--- {first: 1}\n...\n"[..].to_vec()
    );
    let text = text_to_save(&root, second).unwrap();
    assert!(text.ends_with(b"{second: 2}\n...\n"));
    save(&mut root, second);
    assert!(
        text_to_save(&root, first)
            .unwrap()
            .ends_with(b"{first: 1}\n...\n")
    );
}

#[test]
fn a_patch_starts_from_what_is_shown() {
    let mut root = root();
    let handle = root.open(0, WRITE).unwrap();
    root.write(handle, 20, b"2", false).unwrap();
    assert_eq!(*text_to_save(&root, handle).unwrap(), OTHER);
}

#[test]
fn a_text_renamed_away_is_replaced_by_a_new_file() {
    let mut root = root();
    root.rename(TREE_NAME.as_ref(), "tree.yaml~".as_ref(), 7)
        .unwrap();
    let number = root.create(TREE_NAME.as_ref(), facts()).unwrap();
    let handle = write_new(&mut root, number, OTHER);
    assert_eq!(*text_to_save(&root, handle).unwrap(), OTHER);
}

fn tree_of(root: &Texts) -> &[u8] {
    let number = root.lookup(TREE_NAME.as_ref()).unwrap();
    root.bytes(number).unwrap()
}

#[test]
fn a_text_that_is_taken_away_is_there_to_all_but_the_one_who_took_it() {
    let take_away: [fn(&mut Texts); 2] = [
        |root| root.unlink(TREE_NAME.as_ref(), 7).unwrap(),
        |root| {
            root.rename(TREE_NAME.as_ref(), "tree.yaml~".as_ref(), 7)
                .unwrap();
        },
    ];
    for take_away in take_away {
        let mut root = root();
        let free = |root: &Texts, process| root.is_free_to(TREE_NAME.as_ref(), || process);
        assert!(!free(&root, 7));
        take_away(&mut root);
        assert!(free(&root, 7) && !free(&root, 8));
        assert!(!root.is_free_to("other".as_ref(), || 7));
        assert!(root.names().any(|(name, _)| name == TREE_NAME));
        assert_eq!(tree_of(&root), TEXT);
        let shown = root.lookup(TREE_NAME.as_ref()).unwrap();

        // made anew, once
        let number = root.create(TREE_NAME.as_ref(), facts()).unwrap();
        assert!(root.is_tree(number) && root.file(shown).unwrap().names == 0);
        assert!(!free(&root, 7));
        let again = root.create(TREE_NAME.as_ref(), facts());
        assert!(matches!(again, Err(Error::Exists)));
    }
}

#[test]
fn a_text_that_another_writes_to_is_not_made_anew() {
    let mut root = root();
    root.unlink(TREE_NAME.as_ref(), 7).unwrap();
    let shown = root.lookup(TREE_NAME.as_ref()).unwrap();
    root.open(shown, Access::default()).unwrap();
    assert!(root.is_free_to(TREE_NAME.as_ref(), || 7));
    let handle = write_new(&mut root, shown, OTHER);
    assert!(!root.is_free_to(TREE_NAME.as_ref(), || 7));
    let anew = root.create(TREE_NAME.as_ref(), facts());
    assert!(matches!(anew, Err(Error::Exists)));
    assert_eq!(*text_to_save(&root, handle).unwrap(), OTHER);
}

#[test]
fn the_only_copy_of_a_refused_text_stays_in_sight() {
    for kept in [true, false] {
        let mut root = root();
        let handle = write_new(&mut root, 0, OTHER);
        let written = unsaved(&root, handle).unwrap();
        refuse(&mut root, &written, kept);
        root.release(handle);
        root.unlink(TREE_NAME.as_ref(), 7).unwrap();
        assert_eq!(tree_of(&root), if kept { TEXT } else { OTHER });
    }
}

#[test]
fn scratch_files_are_limited_and_give_their_room_back() {
    let mut root = root();
    let number = root.create("s".as_ref(), facts()).unwrap();
    let handle = root.open(number, WRITE).unwrap();
    assert!(matches!(
        root.write(handle, 0, &vec![1; 70 << 10], false),
        Err(Error::ScratchFull(_))
    ));
    assert_eq!(root.attr(number).unwrap().size, 0);
    root.write(handle, 0, &vec![1; 60 << 10], false).unwrap();
    assert!(root.create("t".as_ref(), facts()).is_ok());
    root.unlink("s".as_ref(), 7).unwrap();
    root.release(handle);
    let number = root.create("u".as_ref(), facts()).unwrap();
    let handle = root.open(number, WRITE).unwrap();
    root.write(handle, 0, &vec![1; 50 << 10], false).unwrap();
}

#[test]
fn a_refused_change_of_a_scratch_file_changes_nothing() {
    let mut root = root();
    let number = root.create("s".as_ref(), facts()).unwrap();
    let handle = root.open(number, WRITE).unwrap();
    root.write(handle, 0, b"before", false).unwrap();
    let full = |result| assert!(matches!(result, Err(Error::ScratchFull(_))));
    full(root.write(handle, 3, &vec![b'x'; 70 << 10], false));
    full(root.write(handle, 200 << 20, b"x", false));
    full(root.resize(handle, 200 << 20));
    let bytes = root.bytes(number).unwrap();
    assert_eq!(**bytes, b"before");
    assert!(bytes.capacity() < 1024, "{}", bytes.capacity());
    // what was taken before is given back
    root.resize(handle, 60 << 10).unwrap();
    root.resize(handle, 10).unwrap();
    assert!(root.bytes(number).unwrap().capacity() < 1024);
}

#[test]
fn each_name_counts() {
    for first in ["s", TREE_NAME] {
        let mut root = root();
        if first != TREE_NAME {
            root.create(first.as_ref(), facts()).unwrap();
        }
        let number = root.lookup(first.as_ref()).unwrap();
        let names: Vec<OsString> = (0..100).map(|n| n.to_string().into()).collect();
        let full = names
            .iter()
            .take_while(|name| root.link(number, name).is_ok());
        let made = full.count();
        assert!((60..70).contains(&made), "{made}");
        assert_eq!(root.lookup(&names[made]), None);
        assert_eq!(root.attr(number).unwrap().nlink, 1 + made as u32);
        root.unlink(&names[0], 7).unwrap();
        root.link(number, &names[made]).unwrap();
    }
}

#[test]
fn a_file_that_was_refused_another_name_is_as_it_was() {
    let mut root = root();
    let scratch = root.create("s".as_ref(), facts()).unwrap();
    let handle = root.open(scratch, WRITE).unwrap();
    root.write(handle, 0, &vec![1; 63 << 10], false).unwrap();
    let refused = root.link(0, "t".as_ref());
    assert!(matches!(refused, Err(Error::ScratchFull(_))));
    assert_eq!(root.attr(0).unwrap().nlink, 1);
    root.unlink("s".as_ref(), 7).unwrap();
    root.release(handle);
    root.link(0, "t".as_ref()).unwrap();
    assert_eq!(root.attr(0).unwrap().nlink, 2);
}

#[test]
fn one_text_of_any_length_can_be_renamed_away() {
    let mut root = root();
    let long = vec![b'x'; 100 << 10];
    let text = Arc::new([TEXT, &long].concat());
    root.reloaded(Arc::clone(&text)).unwrap();
    let rename =
        |root: &mut Texts, from: &str, to: &str| root.rename(from.as_ref(), to.as_ref(), 7);
    rename(&mut root, TREE_NAME, "tree.yaml~").unwrap();
    let number = root.create(TREE_NAME.as_ref(), facts()).unwrap();
    let handle = write_new(&mut root, number, &text);
    assert!(matches!(
        rename(&mut root, TREE_NAME, "another"),
        Err(Error::ScratchFull(_))
    ));
    assert!(root.is_tree(number));
    // an editor that leaves its backup makes the next one in its place
    rename(&mut root, TREE_NAME, "tree.yaml~").unwrap();
    root.unlink("tree.yaml~".as_ref(), 7).unwrap();
    root.release(handle);
    let number = root.create(TREE_NAME.as_ref(), facts()).unwrap();
    write_new(&mut root, number, &text);
    rename(&mut root, TREE_NAME, "another").unwrap();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let mut root = root();
    let number = root.create("s".as_ref(), facts()).unwrap();
    let handle = root.open(number, WRITE).unwrap();
    root.unlink("s".as_ref(), 7).unwrap();
    root.write(handle, 0, b"x", false).unwrap();
    assert_eq!(*root.view(handle).unwrap(), b"x");
    root.release(handle);
    assert!(root.attr(number).is_err());
}

#[test]
fn exchanging_names_changes_which_file_is_the_tree() {
    let mut root = root();
    let number = root.create("new".as_ref(), facts()).unwrap();
    root.exchange("new".as_ref(), TREE_NAME.as_ref()).unwrap();
    assert!(root.is_tree(number));
    assert_eq!(root.lookup("new".as_ref()), Some(0));
}

#[test]
fn a_refused_text_goes_on_being_shown() {
    let mut root = root();
    let bad = b"#ASDF 1.0.0\n--- [\n";
    let handle = write_new(&mut root, 0, bad);
    let written = unsaved(&root, handle).unwrap();
    refuse(&mut root, &written, true);
    root.release(handle);
    assert_eq!(**root.bytes(0).unwrap(), bad);
    let emptied = root.open(0, EMPTIED).unwrap();
    root.release(emptied);
    assert_eq!(**root.bytes(0).unwrap(), bad);
}

#[test]
fn who_appends_writes_behind_what_others_have_appended() {
    let mut root = root();
    let handles = [0, 0].map(|number| root.open(number, WRITE).unwrap());
    for (n, text) in [(0, "one\n"), (1, "two\n"), (0, "three\n")] {
        root.append(handles[n], text.as_bytes()).unwrap();
    }
    let shown = root.bytes(0).unwrap();
    assert_eq!(shown.as_slice(), [TEXT, b"one\ntwo\nthree\n"].concat());
    assert_eq!(&text_to_save(&root, handles[0]).unwrap(), shown);
}

#[test]
fn a_refused_text_makes_way_for_another_programs_only_if_it_is_kept_elsewhere() {
    let theirs = b"#ASDF 1.0.0\n--- {a: 3}\n...\n";
    for kept in [true, false] {
        let mut root = root();
        let early = root.open(0, WRITE).unwrap();
        let written = write_new(&mut root, 0, OTHER);
        let refused = unsaved(&root, written).unwrap();
        refuse(&mut root, &refused, kept);
        root.release(written);
        let is_outdated =
            |root: &Texts, handle| root.opened(handle).unwrap().text_epoch != root.text_epoch;
        assert!(!is_outdated(&root, early));
        let number = root.reloaded(Arc::new(theirs.to_vec())).unwrap();
        assert!(is_outdated(&root, early));
        assert_eq!(root.lookup(TREE_NAME.as_ref()), Some(number));
        assert_eq!(**root.view(early).unwrap(), *OTHER);
        let again = root.open(0, WRITE).map(drop);
        assert!(matches!(again, Err(Error::NotFound)));
        root.release(early);
        assert_eq!(tree_of(&root), if kept { &theirs[..] } else { OTHER });
        // who mends a text that was made of an older one can't save it over the newer one
        let late = root.open(number, EMPTIED).unwrap();
        assert_eq!(is_outdated(&root, late), !kept);
    }
}

/// A file whose rename over the tree had been refused could not replace it whatever was written into it.
#[test]
fn a_scratch_file_that_is_written_anew_is_of_the_text_of_now() {
    let mut root = root();
    let number = root.create("t".as_ref(), facts()).unwrap();
    let first = write_new(&mut root, number, OTHER);
    root.release(first);
    root.reloaded(Arc::new(b"#ASDF 1.0.0\n--- {a: 3}\n...\n".to_vec()))
        .unwrap();
    let is_outdated = |root: &mut Texts| {
        let unsaved = root.begin_becoming(number).unwrap().unwrap();
        root.is_outdated(&unsaved)
    };
    assert!(is_outdated(&mut root));
    let part = root.open(number, WRITE).unwrap();
    root.write(part, 0, b"#", false).unwrap();
    assert!(is_outdated(&mut root), "only a part of it");
    let anew = write_new(&mut root, number, OTHER);
    assert!(!is_outdated(&mut root));
    for handle in [part, anew] {
        root.release(handle);
    }
}

/// The text that was refused before stayed in sight, of which there was no copy then.
#[test]
fn the_text_that_was_refused_last_is_shown_whichever_handle_it_came_through() {
    for closed_first in [true, false] {
        let mut root = root();
        let first = write_new(&mut root, 0, OTHER);
        let second = write_new(&mut root, 0, b"#ASDF 1.0.0\n--- [\n");
        let of_second = unsaved(&root, second).unwrap();
        refuse(&mut root, &of_second, true);
        if closed_first {
            root.release(second);
        }
        let of_first = unsaved(&root, first).unwrap();
        refuse(&mut root, &of_first, true);
        if !closed_first {
            assert_eq!(tree_of(&root), of_second.text.as_slice());
            root.release(second);
        }
        assert_eq!(tree_of(&root), OTHER);
        root.release(first);
        assert_eq!(tree_of(&root), OTHER);
    }
}

/// The log told to copy it from there.
#[test]
fn the_only_copy_of_a_text_whose_file_is_tree_yaml_no_more_is_shown() {
    let mut root = root();
    let early = write_new(&mut root, 0, OTHER);
    root.reloaded(Arc::new(b"#ASDF 1.0.0\n--- {a: 3}\n...\n".to_vec()))
        .unwrap();
    let written = unsaved(&root, early).unwrap();
    refuse(&mut root, &written, false);
    root.release(early);
    assert_eq!(tree_of(&root), OTHER);
}

/// It was shown, and nothing could be saved then: each handle was one of the text of before.
#[test]
fn an_older_text_that_is_refused_is_not_shown_instead_of_a_refused_newer_one() {
    let mut root = root();
    let early = root.open(0, WRITE).unwrap();
    let theirs = b"#ASDF 1.0.0\n--- {a: 3}\n...\n";
    let number = root.reloaded(Arc::new(theirs.to_vec())).unwrap();
    let newer = write_new(&mut root, number, OTHER);
    let written = unsaved(&root, newer).unwrap();
    refuse(&mut root, &written, true);
    root.release(newer);
    assert_eq!(tree_of(&root), OTHER);
    root.write(early, 0, b"#ASDF 1.0.0\n", false).unwrap();
    root.resize(early, 12).unwrap();
    let unfinished = root.unfinished(early).unwrap();
    refuse(&mut root, &unfinished, true);
    assert_eq!(tree_of(&root), theirs);
    let late = root.open(number, EMPTIED).unwrap();
    assert_eq!(root.opened(late).unwrap().text_epoch, root.text_epoch);
}

#[test]
fn a_hard_link_of_a_tree_that_was_open_when_another_program_changed_file_can_be_opened() {
    let mut root = root();
    let early = root.open(0, WRITE).unwrap();
    root.link(0, "tree.yaml~".as_ref()).unwrap();
    let theirs = b"#ASDF 1.0.0\n--- {a: 3}\n...\n";
    root.reloaded(Arc::new(theirs.to_vec())).unwrap();
    assert_eq!(root.lookup("tree.yaml~".as_ref()), Some(0));
    let late = root.open(0, WRITE).unwrap();
    assert_eq!(**root.view(late).unwrap(), *TEXT);
    for handle in [early, late] {
        root.release(handle);
    }
    assert_eq!(tree_of(&root), theirs);
}

/// What was written to the hard link then, by who opened it after the change, was saved over what the other program had made.
#[test]
fn a_hard_link_of_a_tree_that_was_before_is_a_scratch_file() {
    let mut root = root();
    let early = root.open(0, WRITE).unwrap();
    root.link(0, "tree.yaml~".as_ref()).unwrap();
    root.reloaded(Arc::new(b"#ASDF 1.0.0\n--- {a: 3}\n...\n".to_vec()))
        .unwrap();
    root.write(early, 0, b"#", false).unwrap();
    let late = root.open(0, WRITE).unwrap();
    root.write(late, 0, OTHER, false).unwrap();
    assert!(unsaved(&root, late).is_none());
    assert_eq!(**root.view(late).unwrap(), *OTHER);
    let refused = unsaved(&root, early).unwrap();
    assert_eq!(**refused.text, *TEXT);
    assert!(root.is_outdated(&refused));
}

/// The name of before came back, though it was renamed.
#[test]
fn who_has_taken_the_tree_away_may_rename_another_name_of_it_over_it() {
    let mut root = root();
    root.unlink(TREE_NAME.as_ref(), 7).unwrap();
    let filled = root.lookup(TREE_NAME.as_ref()).unwrap();
    root.link(filled, "tree.yaml~".as_ref()).unwrap();
    root.rename("tree.yaml~".as_ref(), TREE_NAME.as_ref(), 7)
        .unwrap();
    assert_eq!(root.lookup("tree.yaml~".as_ref()), None);
    assert_eq!(root.lookup(TREE_NAME.as_ref()), Some(filled));
    assert_eq!(root.attr(filled).unwrap().nlink, 1);
}

#[test]
fn the_kernel_may_keep_pages_of_a_text_that_is_only_read() {
    let mut root = root();
    assert_eq!(
        [true, false].map(|had| root.keeps_pages(had)),
        [true, false]
    );
    let handle = root.open(0, Access::default()).unwrap();
    assert!(
        !root.keeps_pages(false),
        "it may have older ones until it has opened it"
    );
    root.release(handle);
    assert!(root.keeps_pages(false));
    assert_eq!(**root.only_text().unwrap(), TEXT);
    // those of another program's text are told by its times
    let mut changed = self::root();
    changed.reloaded(Arc::new(OTHER.to_vec()));
    assert!(!changed.keeps_pages(true));
    assert_eq!(**changed.only_text().unwrap(), OTHER);
}

#[test]
fn the_kernel_keeps_no_pages_of_a_text_that_was_opened_to_be_written_to() {
    let mut root = root();
    let (reading, writing) = (root.open(0, Access::default()), root.open(0, WRITE));
    root.release(writing.unwrap());
    root.release(reading.unwrap());
    assert!(!root.keeps_pages(true));
    assert!(root.only_text().is_some());
    root.create("note".as_ref(), facts()).unwrap();
    assert!(root.only_text().is_none(), "there is more to be shown");
}
