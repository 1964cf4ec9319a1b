//! Saves on a real filesystem: what the simulated disk can't show.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::asdf::layout::BlockIndex;
use crate::asdf::sample::Sample;
use crate::asdf::scan::scan;
use crate::error::{Error, Result};
use crate::save::edit::{BlockEdit, Edit, StoredBlock};
use crate::save::plan::Pad;
use crate::save::{Method, NotOpened, Recovery, SaveOptions, Writable, Writer, open_read_only};
use crate::source::{Memory, Source, read_all};

mod planted;

struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn new(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f.asdf"), bytes).unwrap();
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("f.asdf")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    fn open(&self) -> Writable {
        open(&self.path(), SaveOptions::default())
    }

    /// Names in the directory beside FILE.
    fn others(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "f.asdf").collect()
    }
}

fn open(path: &Path, options: SaveOptions) -> Writable {
    match Writer::open(path, options) {
        Ok(opened) => opened,
        Err(refusal) => panic!("{refusal:?}"),
    }
}

fn padded() -> Vec<u8> {
    Sample::new()
        .padding(&[b' '; 300])
        .block(b"abc")
        .block(&[7; 5000])
        .bytes()
}

fn text(len: usize) -> Vec<u8> {
    format!("#ASDF 1.0.0\n---\nnote: {}\n...\n", "x".repeat(len)).into_bytes()
}

fn edit(len: usize) -> Edit {
    Edit::text(Arc::new(text(len)))
}

/// Text and stored bytes of the blocks.
fn content(bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let memory = Memory::new(bytes.to_vec());
    let found = scan(&memory, false).unwrap();
    assert!(found.layout.findings.is_empty() && matches!(found.layout.index, BlockIndex::Valid(_)));
    let block = |n: usize| {
        let at = found.layout.blocks[n].data_offset() as usize;
        bytes[at..at + found.layout.stored_len(n) as usize].to_vec()
    };
    (
        found.text.to_vec(),
        (0..found.layout.blocks.len()).map(block).collect(),
    )
}

#[test]
fn a_writer_can_be_shared_between_threads() {
    fn sendable<T: Send>() {}
    sendable::<Writer>();
    sendable::<crate::save::plan::Plan>();
}

#[test]
fn a_text_that_fits_is_saved_in_the_same_inode() {
    let folder = Folder::new(&padded());
    let inode = fs::metadata(folder.path()).unwrap().ino();
    let mut writer = folder.open().writer;
    let done = writer.save(&edit(20)).unwrap();
    assert_eq!(
        (done.method, &**done.scan.text),
        (Method::InPlace, &*text(20))
    );
    assert_eq!(
        content(&folder.bytes()),
        (text(20), vec![b"abc".to_vec(), vec![7; 5000]])
    );
    assert_eq!(fs::metadata(folder.path()).unwrap().ino(), inode);
    assert_eq!(folder.bytes().len(), padded().len());
    assert_eq!(writer.save(&edit(20)).unwrap().method, Method::Nothing);
    assert!(folder.others().is_empty());
}

#[test]
fn a_text_that_outgrows_its_space_is_saved_in_a_new_file_like_the_old_one() {
    let folder = Folder::new(&padded());
    let link = folder.dir.path().join("link");
    std::os::unix::fs::symlink("f.asdf", &link).unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o640)).unwrap();
    let before = fs::metadata(folder.path()).unwrap();
    let mut writer = open(&link, SaveOptions::default()).writer;
    let replaced = [
        (2000, Method::Replaced),
        (20, Method::InPlace),
        (30_000, Method::Replaced),
    ];
    for (len, how) in replaced {
        assert_eq!(writer.save(&edit(len)).unwrap().method, how);
        assert_eq!(content(&folder.bytes()).0, text(len));
        assert_eq!(content(&folder.bytes()).1, [b"abc".to_vec(), vec![7; 5000]]);
    }
    let after = fs::metadata(folder.path()).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    assert_eq!(folder.others(), ["link"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let refused = Writer::open(&folder.path(), SaveOptions::default());
    assert!(matches!(
        refused,
        Err(NotOpened::Locked { holder: Some(_) })
    ));
}

#[test]
fn a_file_with_two_names_keeps_both() {
    let folder = Folder::new(&padded());
    let other = folder.dir.path().join("other");
    fs::hard_link(folder.path(), &other).unwrap();
    let done = folder.open().writer.save(&edit(2000)).unwrap();
    assert_eq!(done.method, Method::InPlace);
    assert_eq!(content(&folder.bytes()).0, text(2000));
    assert_eq!(fs::read(other).unwrap(), folder.bytes());
}

/// What stands between text and first block.
fn space(bytes: &[u8]) -> Vec<u8> {
    let found = scan(&Memory::new(bytes.to_vec()), false).unwrap().layout;
    bytes[found.text_end as usize..found.head().end as usize].to_vec()
}

/// asdf-python 3.0 to 3.5 reads zeros there and nothing else, and pads with them; other programs pad with blanks.
#[test]
fn the_space_behind_the_text_keeps_its_byte_unless_another_is_asked_for() {
    let (zeros, blanks) = (vec![0; 300], vec![b' '; 300]);
    let cases = [
        (&zeros, Pad::Kept, 0),
        (&blanks, Pad::Kept, b' '),
        (&[b"\n", &blanks[..]].concat(), Pad::Kept, 0),
        (&blanks, Pad::Filled(0), 0),
        (&zeros, Pad::Filled(b' '), b' '),
        (&Vec::new(), Pad::Filled(b' '), b' '),
    ];
    for (padding, pad, want) in cases {
        let sample = Sample::new().padding(padding).block(b"abc");
        let folder = Folder::new(&sample.bytes());
        let options = SaveOptions {
            pad,
            ..SaveOptions::default()
        };
        let mut writer = open(&folder.path(), options).writer;
        for len in [20, 2000, 100] {
            writer.save(&edit(len)).unwrap();
            let space = space(&folder.bytes());
            let right = !space.is_empty() && space.iter().all(|&byte| byte == want);
            assert!(right, "{pad:?} for {padding:?}: {space:?}");
        }
    }
}

/// asdf-cxx and asdf-cpp find no block behind any space.
#[test]
fn no_space_is_made_where_there_was_none_and_blocks_are_copied_in_any_case() {
    let snug = |options| {
        let folder = Folder::new(&Sample::new().block(b"abc").bytes());
        let writer = open(&folder.path(), options).writer;
        (folder, writer)
    };
    let saved = |folder: &Folder, writer: &mut Writer, len| {
        let method = writer.save(&edit(len)).unwrap().method;
        assert_eq!(content(&folder.bytes()), (text(len), vec![b"abc".to_vec()]));
        (method, space(&folder.bytes()).len())
    };
    let (folder, mut writer) = snug(SaveOptions::default());
    assert_eq!(saved(&folder, &mut writer, 100), (Method::Replaced, 0));
    assert_eq!(saved(&folder, &mut writer, 200), (Method::Replaced, 0));
    assert_eq!(saved(&folder, &mut writer, 199), (Method::InPlace, 1));
    let (method, room) = saved(&folder, &mut writer, 300);
    assert_eq!((method, room > 4000), (Method::Replaced, true));

    let replace = SaveOptions {
        replace: true,
        ..SaveOptions::default()
    };
    let (folder, mut writer) = snug(replace);
    assert_eq!(saved(&folder, &mut writer, 0), (Method::Replaced, 0));
    let never = SaveOptions {
        grow: false,
        ..replace
    };
    let (folder, mut writer) = snug(never);
    let (method, room) = saved(&folder, &mut writer, 1);
    assert_eq!((method, room > 0), (Method::Replaced, true));

    let (folder, mut writer) = snug(SaveOptions::default());
    fs::hard_link(folder.path(), folder.dir.path().join("other")).unwrap();
    assert_eq!(saved(&folder, &mut writer, 100), (Method::InPlace, 0));
}

/// A copy of much for each line that is added would make every edit slow.
#[test]
fn a_long_file_gets_space_although_it_had_none() {
    let folder = Folder::new(&Sample::new().block(&vec![1; 33 << 20]).bytes());
    let mut writer = folder.open().writer;
    writer.save(&edit(100)).unwrap();
    assert!(space(&folder.bytes()).len() >= 4096);
    assert_eq!(writer.save(&edit(200)).unwrap().method, Method::InPlace);
}

#[test]
fn blocks_stay_right_behind_the_text_if_that_is_asked_for() {
    let folder = Folder::new(&padded());
    let absent = SaveOptions {
        pad: Pad::Absent,
        ..SaveOptions::default()
    };
    let mut writer = open(&folder.path(), absent).writer;
    for len in [20, 2000, 10] {
        assert_eq!(writer.save(&edit(len)).unwrap().method, Method::Replaced);
        let found = content(&folder.bytes());
        assert_eq!(found, (text(len), vec![b"abc".to_vec(), vec![7; 5000]]));
        assert_eq!(space(&folder.bytes()), b"");
    }
    let same_length = String::from_utf8(text(10)).unwrap().replace('x', "y");
    let edit = Edit::text(Arc::new(same_length.into_bytes()));
    assert_eq!(writer.save(&edit).unwrap().method, Method::InPlace);
}

#[test]
fn what_the_user_forbids_is_not_done() {
    let folder = Folder::new(&padded());
    let never = SaveOptions {
        grow: false,
        ..SaveOptions::default()
    };
    let mut writer = open(&folder.path(), never).writer;
    let refused = writer.save(&edit(2000));
    assert!(matches!(refused, Err(Error::NoRoom { limit: true, .. })));
    let ahead = writer.growth(&edit(2000));
    assert!(matches!(ahead, Err(Error::NoRoom { limit: true, .. })));
    assert_eq!(writer.growth(&edit(20)).unwrap(), 0);
    drop(writer);
    let replace = SaveOptions {
        replace: true,
        ..SaveOptions::default()
    };
    assert_eq!(
        open(&folder.path(), replace)
            .writer
            .save(&edit(20))
            .unwrap()
            .method,
        Method::Replaced
    );
    assert_eq!(content(&folder.bytes()).0, text(20));
}

#[test]
fn a_large_file_is_not_copied_beyond_the_limit() {
    let folder = Folder::new(&Sample::new().block(&vec![1; 65 << 20]).bytes());
    let old = folder.bytes();
    let mut writer = open(
        &folder.path(),
        SaveOptions {
            max_copy: 1 << 20,
            ..SaveOptions::default()
        },
    )
    .writer;
    let more: Arc<dyn Source> = Arc::new(Memory::new(vec![0; 70 << 20]));
    let longer = Edit {
        text: edit(2000).text,
        blocks: vec![BlockEdit::Append(StoredBlock::raw(more))],
    };
    let ahead = writer.growth(&longer);
    let saved = writer.save(&edit(2000));
    let shares = matches!(&saved, Ok(done) if done.written < 1 << 20);
    assert!(shares || matches!(saved, Err(Error::NoRoom { limit: true, .. })));
    assert!(shares || matches!(ahead, Err(Error::NoRoom { limit: true, .. })));
    assert!(shares || folder.bytes() == old);
}

#[test]
fn a_change_by_another_program_is_noticed_and_read() -> Result<()> {
    let folder = Folder::new(&padded());
    let mut writer = folder.open().writer;
    assert!(writer.reload()?.is_none());
    let file = File::options().write(true).open(folder.path()).unwrap();
    let busy = writer.save(&edit(20)).err().unwrap();
    assert!(
        matches!(&busy, Error::Io { cause, .. } if cause.raw_os_error() == Some(16)),
        "{busy}"
    );
    file.write_all_at(b"#ASDF 1.0.0\n# changed", 0).unwrap();
    drop(file);
    assert!(matches!(writer.save(&edit(20)), Err(Error::Stale { .. })));
    assert!(writer.reload()?.is_some());
    writer.save(&edit(20))?;

    fs::write(folder.dir.path().join("new"), padded()).unwrap();
    fs::rename(folder.dir.path().join("new"), folder.path()).unwrap();
    assert!(matches!(writer.save(&edit(30)), Err(Error::Stale { .. })));
    assert!(writer.reload()?.is_some());
    writer.save(&edit(30))?;
    assert_eq!(content(&folder.bytes()).0, text(30));
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o600)).unwrap();
    writer.save(&edit(40))?;
    Ok(())
}

#[test]
fn raw_data_are_written_with_the_checksum_taken_back() {
    let folder = Folder::new(&padded());
    let mut writer = folder.open().writer;
    let block = || {
        let found = scan(&Memory::new(folder.bytes()), false).unwrap();
        found.layout.blocks[1].clone()
    };
    for (n, end) in [(0, 5000), (1, 5001), (2, 5000)] {
        assert!(writer.begin_patch(n, &(4990..end)).is_err());
        assert_eq!(folder.bytes(), padded());
    }
    let begun = writer.begin_patch(1, &(4990..5000)).unwrap();
    assert!(!begun.scan.layout.blocks[1].has_checksum() && !block().has_checksum());
    writer.patch(1, |put| put(4990, b"01234")).unwrap();
    writer
        .patch(1, |put| {
            put(4995, b"56789")?;
            put(4999, b"xx")
        })
        .unwrap_err();
    assert!(content(&folder.bytes()).1[1].ends_with(b"0123456789"));
    // a save of something else may come in between
    writer.save(&edit(9000)).unwrap();
    writer.patch(1, |put| put(4999, b"X")).unwrap();
    writer.sync_patch().unwrap();
    let done = writer.end_patch(1, [3; 16]).unwrap();
    assert_eq!(done.scan.layout.blocks[1].checksum, [3; 16]);
    assert_eq!(block().checksum, [3; 16]);
    assert!(content(&folder.bytes()).1[1].ends_with(b"012345678X"));
}

/// A write into a raw block must not mix with what another program has made of FILE.
#[test]
fn raw_data_are_not_written_into_a_file_that_another_program_has_changed() {
    let folder = Folder::new(&padded());
    let mut writer = folder.open().writer;
    writer.begin_patch(1, &(0..5)).unwrap();
    writer.patch(1, |put| put(0, b"01234")).unwrap();
    let other = File::options().append(true).open(folder.path()).unwrap();
    other.set_len(other.metadata().unwrap().len()).unwrap();
    let at = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    other.set_modified(at).unwrap();
    let before = folder.bytes();
    for refused in [writer.patch(1, |put| put(0, b"x")), writer.sync_patch()] {
        assert!(matches!(refused, Err(Error::Stale { .. })));
    }
    fs::write(folder.path().with_extension("new"), &before).unwrap();
    fs::rename(folder.path().with_extension("new"), folder.path()).unwrap();
    let refused = writer.patch(1, |put| put(0, b"x"));
    assert!(matches!(refused, Err(Error::Stale { .. })));
    assert_eq!(folder.bytes(), before);
}

/// Does a save of `edit(len)` up to its commit: FILE has the record in its tail. What FILE is to be.
fn commit(folder: &Folder, len: usize) -> Vec<u8> {
    let plan = folder.open().writer.plan(&edit(len)).unwrap();
    let old: Arc<dyn Source> = Arc::new(Memory::new(folder.bytes()));
    let changes = plan.in_place().unwrap();
    let record = crate::save::inplace::record(&*old, changes, plan.layout().len)
        .unwrap()
        .unwrap();
    let file = File::options().write(true).open(folder.path()).unwrap();
    let mut at = record.tail().unwrap().start;
    record
        .write(&mut |part| {
            file.write_all_at(part, at).unwrap();
            at += part.len() as u64;
            Ok(())
        })
        .unwrap();
    read_all(&plan.next(old), 1 << 20).unwrap()
}

/// Why FILE can't be written.
fn refusal(folder: &Folder) -> String {
    match Writer::open(&folder.path(), SaveOptions::default()) {
        Err(NotOpened::Unwritable(Error::Stale { why })) => why,
        other => panic!("{:?}", other.map(|opened| opened.recovery)),
    }
}

#[test]
fn a_save_that_was_interrupted_is_shown_and_finished() {
    let folder = Folder::new(&padded());
    let want = commit(&folder, 20);
    let before = folder.bytes();
    let shown = open_read_only(&folder.path()).unwrap();
    assert_eq!((&shown.recovery, shown.locked), (&Recovery::Redone, false));
    assert_eq!(read_all(&*shown.file.bytes, 1 << 20).unwrap(), want);
    assert_eq!(folder.bytes(), before);
    let refused = Writer::open(&folder.path(), SaveOptions::default());
    assert!(matches!(refused, Err(NotOpened::Locked { .. })));
    drop(shown);
    assert_eq!(folder.open().recovery, Recovery::Redone);
    assert_eq!(folder.bytes(), want);
}

#[test]
fn a_journal_of_a_file_changed_since_is_set_aside() {
    let folder = Folder::new(&padded());
    let record = crate::save::journal::Record {
        old_len: padded().len() as u64,
        new_len: padded().len() as u64,
        sidecar_of: None,
        ranges: vec![crate::save::journal::Range {
            offset: 0,
            old: vec![1; 40],
            new: vec![2; 40],
        }],
    };
    let mut tail = Vec::new();
    record
        .write(&mut |part| {
            tail.extend(part);
            Ok(())
        })
        .unwrap();
    let mut bytes = padded();
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes.extend(&tail);
    fs::write(folder.path(), &bytes).unwrap();
    let refused = Writer::open(&folder.path(), SaveOptions::default());
    assert!(matches!(
        refused,
        Err(NotOpened::Unwritable(Error::Stale { .. }))
    ));
    assert_eq!(folder.bytes(), bytes);
    assert_eq!(
        fs::read(folder.dir.path().join("f.asdf.asdf-mount-rescued")).unwrap(),
        tail
    );
    assert!(matches!(
        open_read_only(&folder.path()).unwrap().recovery,
        Recovery::Foreign(_)
    ));
}

#[test]
fn a_refused_text_is_kept_until_it_is_cleared() {
    let folder = Folder::new(&padded());
    let path = folder.dir.path().join("f.asdf.rejected.yaml");
    let mut writer = folder.open().writer;
    assert_eq!(
        writer.keep_rejected(b"one").unwrap(),
        Path::new("f.asdf.rejected.yaml")
    );
    writer.keep_rejected(b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    drop(writer);
    let mut later = folder.open().writer;
    later.keep_rejected(b"three").unwrap();
    assert_eq!(folder.others().len(), 2);
    later.clear_rejected(b"").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
}

#[test]
fn a_sparse_file_stays_sparse_when_it_is_copied() {
    let mut bytes = Sample::new().block(b"").index(false).bytes();
    let mut header = scan(&Memory::new(bytes.clone()), false)
        .unwrap()
        .layout
        .blocks[0]
        .clone();
    let size = 64 << 20;
    (header.allocated, header.used, header.data_size) = (size, size, size);
    bytes.truncate(header.offset as usize);
    bytes.extend(header.to_bytes());
    let folder = Folder::new(&bytes);
    let file = File::options().write(true).open(folder.path()).unwrap();
    file.set_len(header.end().unwrap()).unwrap();
    drop(file);
    let done = folder.open().writer.save(&edit(2000)).unwrap();
    assert!(done.written < 1 << 20, "{}", done.written);
    assert!(fs::metadata(folder.path()).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn blocks_are_replaced_and_added_and_removed() {
    let folder = Folder::new(&padded());
    let mut writer = folder.open().writer;
    let stored = |bytes: &[u8]| StoredBlock::raw(Arc::new(Memory::new(bytes.to_vec())));
    let steps = [
        (
            BlockEdit::Replace {
                n: 1,
                stored: stored(b"short"),
            },
            Method::InPlace,
        ),
        (
            BlockEdit::Replace {
                n: 0,
                stored: stored(&[1; 9000]),
            },
            Method::Replaced,
        ),
        (BlockEdit::Append(stored(b"third")), Method::InPlace),
        (BlockEdit::RemoveLast, Method::InPlace),
    ];
    for (step, how) in steps {
        assert_eq!(writer.save(&Edit::block(step)).unwrap().method, how);
        content(&folder.bytes());
    }
    assert_eq!(
        content(&folder.bytes()).1,
        [vec![1; 9000], b"short".to_vec()]
    );
}

/// "A file of more than 2^63 bytes".
#[test]
fn a_size_that_means_nothing_hinders_no_save() {
    use crate::asdf::sample::header;
    for (flags, used) in [(1, 5), (1, u64::MAX), (0, 5), (0, u64::MAX)] {
        for raw in [false, true] {
            let code = if raw { *b"\0\0\0\0" } else { *b"zlib" };
            let block = header(48, flags, code, [u64::MAX, used, 5], [0; 16]);
            let sample = Sample::new().index(false).padding(&[b' '; 300]);
            let folder = Folder::new(&sample.stored([&block, &b"world"[..]].concat()).bytes());
            let mut writer = folder.open().writer;
            for len in [20, 30_000] {
                writer.save(&edit(len)).unwrap();
                let bytes = folder.bytes();
                let found = scan(&Memory::new(bytes.clone()), false).unwrap();
                assert_eq!(**found.text, *text(len), "{flags} {used}");
                assert_eq!(found.layout.blocks.len(), 1);
                assert_eq!(found.layout.blocks[0].used, used);
                let at = found.layout.blocks[0].data_offset() as usize;
                assert_eq!(&bytes[at..at + 5], b"world");
            }
        }
    }
}
