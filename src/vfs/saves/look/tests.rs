//! Changes by another program at the worst moments.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::*;
use crate::asdf::OpenOptions as Reading;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::save::edit::Edit;
use crate::save::{FarFile, FilePath, OpenFile, Writer, open_read_only, open_unlocked};
use crate::source::{Loan, Memory};
use crate::vfs::node::Node;
use crate::vfs::testing::{scratch, writable};
use crate::vfs::{Access, Bytes, Call, Handle, Vfs, VfsOptions};

/// What another program does, with times that tell it from what was before, whatever the clock is.
fn overwrite(path: &Path, bytes: &[u8], seconds: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

/// The file system of a file that is not open for writing.
fn read_only(path: &Path) -> Vfs {
    let opened = open_unlocked(&path.into()).unwrap();
    let stat = opened.file.stat;
    let snapshot = opened.snapshot(Cache::new(1 << 20), Reading::default());
    Vfs::new(
        path,
        snapshot.unwrap(),
        stat,
        Err("a test".to_owned()),
        VfsOptions::default(),
        scratch(),
    )
}

fn shown(vfs: &Vfs) -> String {
    vfs.saves.refresh_soon();
    vfs.refresh();
    String::from_utf8_lossy(vfs.shown.now().snapshot.text()).into_owned()
}

/// The attributes were looked at after the file had been read, so that a change in between was never shown.
#[test]
fn what_changes_after_it_was_read_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.asdf");
    std::fs::write(&path, Sample::new().bytes()).unwrap();
    let vfs = read_only(&path);
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
}

#[test]
fn the_moment_of_what_is_read_anew_is_that_before_it_was_read() {
    let (dir, vfs) = writable(&Sample::new());
    let path = dir.path().join("a.asdf");
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    let before = Stat::from(&std::fs::metadata(&path).unwrap());
    overwrite(&path, b"#ASDF 1.0.2", 2000);
    let mut writer = vfs.saves.writer().unwrap();
    let shown = vfs
        .saves
        .show_found(&vfs.shown.now(), Some(&mut writer), before);
    shown.unwrap();
    assert!(vfs.shown.now().stat.has_bytes_of(&before));
}

/// A block that was read before FILE became unreadable went on being shown to programs that opened it anew.
#[test]
fn nothing_is_read_while_file_can_not_be_shown() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let read = || {
        let opened = vfs.open_now(Node::Block(0), Access::default()).unwrap();
        let read = vfs.read(&opened.handle, 0, 3).map(drop);
        vfs.release(&opened.handle);
        read
    };
    read().unwrap();
    let held = vfs.open_now(Node::Block(0), Access::default()).unwrap();
    let reads_on = || vfs.read(&held.handle, 0, 3).map(drop);
    reads_on().unwrap();
    // no look at FILE takes the note back meanwhile
    let looking = locked(&vfs.saves.compared);
    vfs.saves.note_out_of_date(Some("a test"));
    assert!(reads_on().is_err() && reads_on().is_err());
    drop(looking);
    vfs.saves.note_out_of_date(None);
    reads_on().unwrap();
    overwrite(&dir.path().join("a.asdf"), b"not that!!!", 1000);
    vfs.saves.refresh_soon();
    vfs.refresh();
    vfs.saves.check_up_to_date().unwrap_err();
    read().unwrap_err();
    reads_on().unwrap_err();
}

/// A source that a handle had made just before went on being read.
#[test]
fn handles_look_for_their_sources_when_earlier_states_are_sealed() {
    let (_dir, vfs) = writable(&Sample::new());
    vfs.shown.put(vfs.shown.now().unread());
    let before = vfs.saves.blocks.generation();
    vfs.saves.seal(vfs.shown.now().stat.id);
    let sealed = vfs.saves.blocks.generation();
    assert!(sealed > before);
    vfs.saves.seal(vfs.shown.now().stat.id);
    assert_eq!(
        vfs.saves.blocks.generation(),
        sealed,
        "there is no other one"
    );
}

/// A save that failed took in what another program had made of the file, and nobody showed it.
#[test]
fn what_a_save_that_failed_finds_is_shown() {
    let (dir, vfs) = writable(&Sample::new());
    overwrite(&dir.path().join("a.asdf"), b"#ASDF 1.0.1", 1000);
    let mut writer = vfs.saves.writer().unwrap();
    vfs.saves.forgive(&mut writer);
    drop(writer);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
}

/// Its blocks went on being read where they had been before.
#[test]
fn nothing_is_read_of_a_file_that_a_save_which_failed_finds_unreadable() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    overwrite(&dir.path().join("a.asdf"), b"not that!!!", 1000);
    let mut writer = vfs.saves.writer().unwrap();
    vfs.saves.forgive(&mut writer);
    drop(writer);
    vfs.saves.refresh_soon();
    vfs.refresh();
    vfs.saves.check_up_to_date().unwrap_err();
}

/// It stayed out of date until the next look, and a save in between was refused.
#[test]
fn a_file_that_is_again_what_it_was_is_read_at_once() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let look = |start, seconds| {
        overwrite(&dir.path().join("a.asdf"), start, seconds);
        vfs.saves.refresh_soon();
        vfs.refresh();
        vfs.saves.check_up_to_date().is_ok()
    };
    vfs.saves.show_times(&vfs.shown.now(), None);
    assert!(!look(b"not that!!!", 1000));
    assert!(look(b"#ASDF 1.0.0", 2000));
}

/// It stayed out of date until the next look.
#[test]
fn a_file_that_a_save_has_just_written_is_read_at_once() {
    let (_dir, vfs) = writable(&Sample::new().block(b"abc"));
    let mut writer = vfs.saves.writer().unwrap();
    let why = "a save is under way, which will find that out";
    vfs.saves.note_out_of_date(Some(why));
    let text = b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec();
    let edit = Edit::text(Arc::new(text));
    let saved = vfs
        .saves
        .commit(&mut writer, &edit, "tree", None, None, None);
    saved.unwrap();
    vfs.saves.check_up_to_date().unwrap();
}

/// It was shown as it is, and each save refused, as its writer knew it as it had been.
#[test]
fn a_file_that_is_changed_while_it_is_opened_for_writing_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.asdf");
    std::fs::write(&path, Sample::new().bytes()).unwrap();
    let vfs = read_only(&path);
    let opened = Writer::open(vfs.saves.file.clone(), SaveOptions::default()).unwrap();
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    assert!(matches!(
        vfs.saves.writer_of_state(opened.writer),
        Err(Error::Library(Library::Stale { .. }))
    ));
    let opened = Writer::open(vfs.saves.file.clone(), SaveOptions::default()).unwrap();
    vfs.saves.writer_of_state(opened.writer).unwrap();
}

/// FILE was not looked at while a save encoded: for so long, arrays were read at places that meant nothing any more.
#[test]
fn nothing_is_read_of_a_file_that_is_changed_while_a_save_encodes() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let look = || {
        vfs.saves.refresh_soon();
        vfs.refresh();
        vfs.saves.check_up_to_date().is_ok()
    };
    let encoding = vfs.saves.writer().unwrap();
    assert!(look());
    let writing = vfs.saves.writing();
    overwrite(&dir.path().join("a.asdf"), b"#ASDF 1.0.1", 1000);
    // these times may be those of the save
    assert!(look());
    drop(writing);
    assert!(!look());
    drop(encoding);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
    assert!(look());
}

/// The file system of a file with this tree, over a block of three bytes.
fn with_tree(body: &str) -> (tempfile::TempDir, Vfs) {
    let text = tree(body);
    writable(&Sample::new().text(text.as_bytes()).block(b"abc"))
}

fn tree(body: &str) -> String {
    let array = "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [3]}";
    let body = body.replace("ARRAY", array);
    let head = "#ASDF 1.0.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n";
    format!("{head}{body}\n...\n")
}

fn save(vfs: &Vfs, body: &str) {
    let access = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let fh = vfs.open_now(Node::TREE, access).unwrap().handle;
    vfs.write(&fh, 0, tree(body).as_bytes(), false).unwrap();
    vfs.flush(&fh, 0).unwrap();
    vfs.release(&fh);
}

fn node_of(vfs: &Vfs, name: &str) -> Option<Node> {
    let found = vfs.lookup(Node::ARRAYS, name.as_ref());
    found.ok().map(|attr| attr.node)
}

/// Each save made the names of all arrays, before and after, though neither was ever asked for.
#[test]
fn a_save_makes_no_names_that_it_can_do_without() {
    let (_dir, vfs) = with_tree("a: ARRAY\nl: [1, &x ARRAY]\nm: *x");
    save(&vfs, "a: ARRAY\nl: [2, &x ARRAY]\nm: *x");
    assert!(!vfs.shown.now().is_named(), "nobody has asked for a name");
    let a = node_of(&vfs, "a.bin");
    for body in [
        "b: ARRAY\nl: [3, &x ARRAY]\nm: *x",
        "a: ARRAY\nl: [&x ARRAY]\nm: *x",
    ] {
        save(&vfs, body);
        assert_eq!(node_of(&vfs, "a.bin").is_some(), body.starts_with('a'));
    }
    assert_eq!(node_of(&vfs, "a.bin"), a);
}

/// A save of a very large tree that nothing had asked for left it in memory, twice while FILE was written.
#[test]
fn a_very_large_tree_stays_unread_until_something_asks_for_it() {
    let comment = format!("# {}\n", "x".repeat(MAX_PREPARED));
    let (_dir, small) = with_tree("a: ARRAY");
    small.prepare();
    save(&small, "a: ARRAY\nb: ARRAY");
    assert!(!small.shown.now().snapshot.is_unread());
    let (_dir, vfs) = with_tree(&format!("{comment}a: ARRAY"));
    vfs.prepare();
    save(&vfs, &format!("{comment}a: ARRAY\nb: ARRAY"));
    assert!(vfs.shown.now().snapshot.is_unread());
    assert!(node_of(&vfs, "b.bin").is_some());
}

/// A save read the new tree while the one that was shown was still in memory.
#[test]
fn a_very_large_tree_is_let_go_of_but_not_its_names() {
    let comment = format!("# {}\n", "x".repeat(MAX_PREPARED));
    let (_dir, vfs) = with_tree(&format!("{comment}a: ARRAY"));
    let a = node_of(&vfs, "a.bin");
    let before = vfs.shown.now();
    vfs.saves.let_go_of_tree();
    let state = vfs.shown.now();
    assert!(state.snapshot.is_unread() && !before.snapshot.is_unread());
    assert!(std::ptr::eq(before.catalogue(), state.catalogue()));
    assert_eq!(
        (node_of(&vfs, "a.bin"), state.snapshot.is_unread()),
        (a, true)
    );
    save(&vfs, &format!("{comment}b: ARRAY\na: ARRAY"));
    assert_eq!(node_of(&vfs, "a.bin"), a);
    assert!(node_of(&vfs, "b.bin").is_some());
}

#[test]
fn the_arrays_of_names_that_a_save_keeps_are_those_of_the_new_tree() {
    let (_dir, vfs) = with_tree("a: ARRAY\nb: ARRAY");
    let size = |name| vfs.lookup(Node::ARRAYS, name).unwrap().size;
    assert_eq!(size("b.bin".as_ref()), 3);
    let version = |name| vfs.lookup(Node::ARRAYS, name).unwrap().version;
    let before = version("b.npy".as_ref());
    let shorter = "!core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [2]}";
    save(&vfs, &format!("a: ARRAY\nb: {shorter}"));
    assert_eq!(size("b.bin".as_ref()), 2);
    assert!(version("b.npy".as_ref()) > before);
    let after = version("a.bin".as_ref());
    save(&vfs, &format!("a: ARRAY\nb: {shorter}\n# a note"));
    assert_eq!(version("a.bin".as_ref()), after, "it has the same bytes");
}

#[test]
fn a_file_that_is_opened_again_counts_versions_on() {
    let (_dir, mut vfs) = with_tree("a: ARRAY\nd: {b: ARRAY}");
    let (tree, versions) = (vfs.tree.mark(), vfs.shown.now().versions.renewed());
    vfs.begin_as(0, tree, versions, None);
    let version = |directory, name: &str| vfs.lookup(directory, name.as_ref()).unwrap().version;
    let of_arrays = version(Node::Root, "arrays");
    assert_eq!(of_arrays, 0, "it is always the same directory");
    let now = [version(Node::ARRAYS, "a.bin"), version(Node::ARRAYS, "d")];
    assert_eq!(now, [1, 1]);
    save(&vfs, "c: ARRAY\na: ARRAY\nd: {b: ARRAY}");
    assert_eq!(version(Node::ARRAYS, "a.bin"), 1, "it has the same bytes");
    save(&vfs, "c: ARRAY");
    save(&vfs, "c: ARRAY\na: ARRAY");
    assert!(
        version(Node::ARRAYS, "a.bin") > 1,
        "it may have been another one"
    );
}

/// A file far away: its bytes, and how often it has changed.
#[derive(Debug)]
struct Far(Mutex<(Vec<u8>, i64)>);

impl FarFile for Far {
    fn stat(&self) -> io::Result<Stat> {
        let (bytes, changes) = &*locked(&self.0);
        Ok(Stat {
            id: (1, 1),
            size: bytes.len() as u64,
            mtime: (*changes, 0),
            ctime: (*changes, 0),
            links: 1,
            uid: 0,
            gid: 0,
            mode: 0o100_444,
            left: Stat::ALL,
        })
    }

    fn open(&self) -> Result<OpenFile, Library> {
        let stat = self.stat().unwrap();
        let bytes = locked(&self.0).0.clone();
        Ok(OpenFile {
            local: None,
            bytes: Arc::new(Memory::new(bytes)),
            stat,
        })
    }

    fn forget(&self) {}
}

/// Of a file on this machine, a handle goes on with what took its place. A far one may be read by halves.
#[test]
fn what_is_open_of_a_far_file_that_has_changed_stays_out_of_date() {
    let sample = |bytes: &[u8]| Sample::new().block(bytes).bytes();
    let far = Arc::new(Far(Mutex::new((sample(b"abc"), 0))));
    let path = FilePath::far("https://h/a.asdf".into(), far.clone());
    let opened = open_read_only(path.clone()).unwrap();
    let stat = opened.file.stat;
    let snapshot = opened.snapshot(Cache::new(1 << 20), Reading::default());
    let writing = Err("a test".to_owned());
    let vfs = Vfs::new(
        path,
        snapshot.unwrap(),
        stat,
        writing,
        VfsOptions::default(),
        scratch(),
    );
    let open = || {
        vfs.open_now(Node::Block(0), Access::default())
            .unwrap()
            .handle
    };
    let read = |handle: &Handle| match vfs.read(handle, 0, 3) {
        Ok(Bytes::Owned(bytes)) => Ok(bytes.to_vec()),
        Ok(Bytes::Lent(Loan::Shared(all, range), _)) => Ok((*all).as_ref()[range].to_vec()),
        Ok(Bytes::Lent(..)) => panic!("mapped"),
        Err(error) => Err(error.errno(Call::Read)),
    };
    let old = open();
    assert_eq!(read(&old).unwrap(), b"abc");
    // `asdf-mount -u` looks at the root, for which no server is asked
    *locked(&vfs.saves.compared) = None;
    vfs.getattr(Node::Root, 0).unwrap();
    assert!(locked(&vfs.saves.compared).is_none());
    *locked(&far.0) = (sample(b"xyz"), 1);
    shown(&vfs);
    let stale = rustix::io::Errno::STALE.raw_os_error();
    assert_eq!(read(&old), Err(stale));
    assert_eq!(read(&open()).unwrap(), b"xyz");
    assert_eq!(read(&old), Err(stale));
    // also when it has become something else
    let new = open();
    *locked(&far.0) = (b"no ASDF".to_vec(), 2);
    shown(&vfs);
    assert_eq!((read(&old), read(&new)), (Err(stale), Err(stale)));
    assert!(vfs.is_read_only() && vfs.statfs().is_ok_and(|sizes| sizes.is_none()));
}

/// Where times are coarse, they told nothing of a change that followed a save at once: it was never shown, and every save was refused.
#[test]
fn a_change_that_only_a_save_has_found_is_shown() {
    let (dir, vfs) = writable(&Sample::new());
    let path = dir.path().join("a.asdf");
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    let stat = vfs.shown.now().snapshot.stat().ok();
    vfs.saves.show_times(&vfs.shown.now(), stat);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.0"));
    let emptied = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let save = |line: &str| {
        let tree = vfs.lookup(Node::Root, "tree.yaml".as_ref()).unwrap();
        let handle = vfs.open_now(tree.node, emptied).unwrap().handle;
        let text = vfs.shown.now().snapshot.text().clone();
        let text = [
            text.strip_suffix(b"...\n").unwrap(),
            line.as_bytes(),
            b"...\n",
        ]
        .concat();
        vfs.write(&handle, 0, &text, false).unwrap();
        vfs.flush(&handle, 0)
    };
    save("more: 1\n").unwrap_err();
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
    save("more: 2\n").unwrap();
    assert!(shown(&vfs).contains("more: 2"));
}

/// Each look waited a second for the lock, with the table of edits locked.
#[test]
fn a_file_that_another_mount_has_locked_is_not_waited_for() {
    let (dir, vfs) = writable(&Sample::new().block(b"abc"));
    let path = dir.path().join("a.asdf");
    let new = dir.path().join("new");
    std::fs::write(&new, Sample::new().block(b"xyz").bytes()).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let other = Writer::open(&path, SaveOptions::default()).unwrap();
    vfs.saves.refresh_soon();
    vfs.refresh();
    let looked_at = locked(&vfs.saves.compared).unwrap();
    assert!(looked_at.elapsed() < VALID, "longer than between two looks");
    assert!(vfs.saves.check_up_to_date().is_err());
    drop(other);
    vfs.saves.refresh_soon();
    vfs.refresh();
    assert!(vfs.saves.check_up_to_date().is_ok());
}

/// The note came after the save that it was about, and nothing could be read until the next look.
#[test]
fn a_look_beside_a_save_that_is_late_keeps_nothing_from_being_read() {
    let (_dir, vfs) = with_tree("a: ARRAY");
    let moment = vfs.saves.between_writes();
    save(&vfs, "a: ARRAY\nb: 1");
    let holds = || vfs.saves.between_writes() == moment;
    let why = Some("a save is under way");
    vfs.saves.note_out_of_date_if(why, holds);
    assert!(vfs.saves.check_up_to_date().is_ok());
    vfs.saves.note_out_of_date_if(why, || true);
    assert!(vfs.saves.check_up_to_date().is_err());
}

/// A mount that looked at FILE again showed half of each text: only when it is mounted anew, the journal was heeded.
#[test]
fn an_interrupted_save_of_another_mount_is_shown_whole() {
    use crate::save::journal::{Range, Record};
    let text = |c: &str| tree(&format!("a: {}\nb: {}", c.repeat(600), c.repeat(600)));
    let bytes = |c| {
        let text = text(c);
        Sample::new().text(text.as_bytes()).block(b"abc").bytes()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.asdf");
    let (old, new) = (bytes("o"), bytes("n"));
    std::fs::write(&path, &old).unwrap();
    let vfs = read_only(&path);
    let range = |offset: usize, end: usize| Range {
        offset: offset as u64,
        old: old[offset..end].to_vec(),
        new: new[offset..end].to_vec(),
    };
    let record = Record {
        old_len: old.len() as u64,
        new_len: new.len() as u64,
        sidecar_of: None,
        ranges: vec![range(0, 1024), range(1024, new.len())],
    };
    let mut torn = [&new[..1024], &old[1024..]].concat();
    torn.resize(record.tail().unwrap().start as usize, 0);
    record
        .write(&mut |sector| {
            torn.extend_from_slice(sector);
            Ok(())
        })
        .unwrap();
    std::fs::write(&path, &torn).unwrap();
    assert_eq!(shown(&vfs), text("n"));
}

/// It was reported as saved, although a crash might bring the old file back. And the mount was still said to be writable.
#[test]
fn a_text_that_a_crash_may_take_back_is_not_reported_as_saved() {
    let (_dir, vfs) = with_tree("a: ARRAY");
    save(&vfs, "a: ARRAY\nb: 1");
    let access = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let fh = vfs.open_now(Node::TREE, access).unwrap().handle;
    let same = tree("a: ARRAY\nb: 1");
    vfs.write(&fh, 0, same.as_bytes(), false).unwrap();
    let cause = io::Error::from_raw_os_error(5);
    let error = Library::io("writing to disk", cause);
    vfs.saves.writer().unwrap().leave_name(&error);
    assert!(vfs.flush(&fh, 0).is_err());
    assert!(vfs.why_read_only().is_some());
}

/// While another block was being edited, the old data were shown, and the save of that edit took over the time of the change.
#[test]
fn data_are_shown_that_are_written_with_the_old_time_while_another_block_is_edited() {
    let sample = Sample::new().block(b"abc").block(b"xyz");
    let (dir, vfs) = writable(&sample);
    let path = dir.path().join("a.asdf");
    let access = Access {
        write: true,
        ..Access::default()
    };
    let fh = vfs.open_now(Node::Block(0), access).unwrap().handle;
    vfs.write(&fh, 0, b"A", false).unwrap();
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|it| it == b"xyz").unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"XYZ", at as u64).unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    let read = |node, fh: Option<&Handle>| {
        vfs.saves.refresh_soon();
        vfs.refresh();
        let opened = vfs.open_now(node, Access::default()).unwrap();
        match vfs.read(fh.unwrap_or(&opened.handle), 0, 3).unwrap() {
            Bytes::Owned(bytes) => bytes.to_vec(),
            Bytes::Lent(Loan::Shared(all, range), _) => (*all).as_ref()[range].to_vec(),
            Bytes::Lent(..) => panic!("so few bytes are not mapped"),
        }
    };
    assert_eq!(read(Node::Block(1), None), b"XYZ");
    assert_eq!(read(Node::Block(0), Some(&fh)), b"Abc");
    vfs.flush(&fh, 0).unwrap();
    assert_eq!(read(Node::Block(0), None), b"Abc");
    let saved = std::fs::read(&path).unwrap();
    assert!(saved.windows(3).any(|it| it == b"Abc"));
}

/// An editor asked its user about a file that had another time.
#[test]
fn the_tree_keeps_its_time_when_another_program_changes_the_mode_of_the_file() {
    let (dir, vfs) = writable(&Sample::new().text(b"#ASDF 1.0.0\n--- {a: 1}\n...\n"));
    let access = Access {
        write: true,
        truncate: true,
        ..Access::default()
    };
    let tree = vfs.open_now(Node::TREE, access).unwrap().handle;
    let text = b"#ASDF 1.0.0\n--- {a: 2}\n...\n";
    vfs.write(&tree, 0, text, false).unwrap();
    vfs.flush(&tree, 0).unwrap();
    vfs.release(&tree);
    let attr = || vfs.getattr_now(Node::TREE).unwrap();
    let saved = attr().mtime;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(dir.path().join("a.asdf"), mode).unwrap();
    vfs.saves.refresh_soon();
    let now = attr();
    assert_eq!((now.perm, now.mtime), (0o640, saved));
}
