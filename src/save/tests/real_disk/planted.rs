//! Things that others put under the names of a save's files.

use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode};

use super::*;
use crate::save::journal::{Range, Record};

/// Puts something under a name; what it is.
type Plant = (&'static str, fn(&Path));

const PLANTS: [Plant; 10] = [
    ("directory", |path| fs::create_dir(path).unwrap()),
    ("full directory", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("x"), "x").unwrap();
    }),
    ("fifo", |path| {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    }),
    ("socket", |path| drop(UnixListener::bind(path).unwrap())),
    ("dangling link", |path| symlink("nosuch", path).unwrap()),
    ("link to FILE", |path| symlink("f.asdf", path).unwrap()),
    ("link to a device", |path| {
        symlink("/dev/zero", path).unwrap();
    }),
    ("empty file", |path| private(path, b"")),
    ("file for us alone", |path| private(path, &[7; 10_000])),
    ("file for all", |path| fs::write(path, "x").unwrap()),
];

/// A file as a save makes it.
fn private(path: &Path, bytes: &[u8]) {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.unwrap().write_all_at(bytes, 0).unwrap();
}

/// A file whose journal must lie beside it.
fn streamed() -> Vec<u8> {
    Sample::new().padding(&[b' '; 300]).streamed(b"abc").bytes()
}

#[test]
fn what_is_no_journal_does_not_hinder_a_mount_or_a_save() {
    for (name, plant) in PLANTS {
        for sample in [padded(), streamed()] {
            let folder = Folder::new(&sample);
            plant(&folder.dir.path().join(".f.asdf.asdf-mount-journal"));
            let shown = open_read_only(&folder.path()).unwrap();
            assert_eq!(shown.recovery, Recovery::Clean, "{name}");
            drop(shown);
            let mut opened = folder.open();
            assert_eq!(opened.recovery, Recovery::Clean, "{name}");
            for len in [20, 30_000] {
                opened.writer.save(&edit(len)).unwrap();
                let bytes = Memory::new(folder.bytes());
                assert_eq!(**scan(&bytes, false).unwrap().text, *text(len), "{name}");
            }
            drop(opened);
            assert_eq!(folder.open().recovery, Recovery::Clean, "{name}");
        }
    }
}

#[test]
fn what_is_no_file_is_no_leftover_of_a_save() {
    for (name, plant) in PLANTS {
        let folder = Folder::new(&padded());
        let path = folder
            .dir
            .path()
            .join(".f.asdf.asdf-mount-0123456789abcdef");
        plant(&path);
        let mut opened = folder.open();
        assert_eq!(opened.recovery, Recovery::Clean, "{name}");
        opened.writer.save(&edit(30_000)).unwrap();
        let is_file = name.contains("file");
        assert_eq!(fs::symlink_metadata(&path).is_err(), is_file, "{name}");
    }
}

/// The record of a save of `edit(20)`, put beside FILE.
fn plant_record(folder: &Folder, mode: u32, change: impl FnOnce(&mut Record)) {
    let plan = folder.open().writer.plan(&edit(20)).unwrap();
    let old = Memory::new(folder.bytes());
    let changes = plan.in_place().unwrap();
    let record = crate::save::inplace::record(&old, changes, plan.layout().len);
    let mut record = record.unwrap().unwrap();
    let meta = fs::metadata(folder.path()).unwrap();
    record.sidecar_of = Some((meta.dev(), meta.ino()));
    change(&mut record);
    let mut bytes = Vec::new();
    record
        .write(&mut |part| {
            bytes.extend(part);
            Ok(())
        })
        .unwrap();
    let path = folder.dir.path().join(".f.asdf.asdf-mount-journal");
    private(&path, &bytes);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_journal_is_finished_and_one_that_others_may_write_only_told_of() {
    let folder = Folder::new(&padded());
    plant_record(&folder, 0o600, |_| ());
    assert_eq!(folder.open().recovery, Recovery::Redone);
    assert_eq!(content(&folder.bytes()).0, text(20));

    // it explains the file: whatever it is, the file may be torn without it
    let folder = Folder::new(&padded());
    plant_record(&folder, 0o666, |_| ());
    let refused = Writer::open(&folder.path(), SaveOptions::default());
    let Err(NotOpened::Unwritable(error)) = refused else {
        panic!("{:?}", refused.map(|opened| opened.recovery));
    };
    assert!(error.to_string().contains("not made by this program"));
    assert_eq!(folder.bytes(), padded());

    // it does not, and is of no account
    let changes: [fn(&mut Record); 3] = [
        |record| record.sidecar_of.as_mut().unwrap().1 += 1,
        |record| {
            record.old_len += 1;
            record.new_len += 1;
        },
        |record| {
            record.ranges = vec![Range {
                offset: 0,
                old: vec![1; 40],
                new: vec![2; 40],
            }];
        },
    ];
    for change in changes {
        let folder = Folder::new(&padded());
        plant_record(&folder, 0o666, change);
        let mut opened = folder.open();
        assert_eq!(opened.recovery, Recovery::Clean);
        opened.writer.save(&edit(40)).unwrap();
        assert_eq!(content(&folder.bytes()).0, text(40));
    }
}

const SIDECAR: &str = ".f.asdf.asdf-mount-journal";

/// A file with a stream whose save of `edit(20)` was interrupted when its record had been made durable; and what it was to be.
fn committed(change: impl FnOnce(&mut Record)) -> (Folder, Vec<u8>) {
    let folder = Folder::new(&streamed());
    folder.open().writer.save(&edit(20)).unwrap();
    let new = folder.bytes();
    fs::write(folder.path(), streamed()).unwrap();
    plant_record(&folder, 0o600, change);
    (folder, new)
}

fn of_another_inode(record: &mut Record) {
    record.sidecar_of.as_mut().unwrap().1 += 1;
}

/// The file was read-only for good, as its length had changed.
#[test]
fn a_save_before_a_stream_that_was_appended_to_is_finished_and_the_rows_stay() {
    let (_, new) = committed(|_| ());
    for written in 0..2 {
        let (folder, _) = committed(|_| ());
        let rows = b"ROWS";
        let torn = if written == 0 {
            streamed()
        } else {
            new.clone()
        };
        fs::write(folder.path(), [&torn, &rows[..]].concat()).unwrap();
        let want = [&new, &rows[..]].concat();
        let shown = open_read_only(&folder.path()).unwrap();
        assert_eq!(shown.recovery, Recovery::Redone);
        assert_eq!(read_all(&*shown.file.bytes, 1 << 20).unwrap(), want);
        drop(shown);
        assert_eq!(folder.open().recovery, Recovery::Redone);
        assert_eq!(folder.bytes(), want);
        assert!(folder.others().is_empty());
    }
}

/// The file was read-only for good, and no message said what to do.
#[test]
fn a_journal_that_does_not_explain_a_longer_or_shorter_file_is_named_with_what_to_do() {
    let other = Sample::new().text(b"#ASDF 1.0.0\n---\nother: 1\n...\n");
    let other = other.padding(&[b' '; 300]).streamed(b"abcdef").bytes();
    let short = streamed()[..streamed().len() - 1].to_vec();
    let no_asdf = vec![b'x'; 3000];
    for bytes in [other, short, no_asdf] {
        let (folder, _) = committed(|_| ());
        fs::write(folder.path(), &bytes).unwrap();
        let why = refusal(&folder);
        assert!(
            why.starts_with(SIDECAR) && why.contains("if you remove it"),
            "{why}"
        );
        assert_eq!(folder.bytes(), bytes);
        assert_eq!(folder.others(), [SIDECAR]);
    }
}

/// The file was read-only for good, and called damaged.
#[test]
fn a_journal_of_a_file_that_was_replaced_is_set_aside() {
    let (_, new) = committed(|_| ());
    let other = Sample::new().padding(&[b'x'; 400]).streamed(b"other");
    let names = ["f.asdf.asdf-mount-rescued", "f.asdf.2.asdf-mount-rescued"];
    for bytes in [streamed(), new, other.bytes(), padded()] {
        let (folder, _) = committed(of_another_inode);
        fs::write(folder.path(), &bytes).unwrap();
        let record = fs::read(folder.dir.path().join(SIDECAR)).unwrap();
        fs::write(folder.dir.path().join(names[0]), "precious").unwrap();
        let shown = open_read_only(&folder.path()).unwrap();
        assert_eq!(shown.recovery, Recovery::Replaced(None));
        drop(shown);
        assert!(folder.dir.path().join(SIDECAR).exists());
        let mut opened = folder.open();
        let kept = Some(names[1].into());
        assert_eq!(opened.recovery, Recovery::Replaced(kept));
        let [first, second] = names.map(|name| fs::read(folder.dir.path().join(name)).unwrap());
        assert!(first == b"precious" && second == record);
        assert_eq!(folder.others().len(), 2);
        assert_eq!(folder.bytes(), bytes);
        opened.writer.save(&edit(30)).unwrap();
        assert!(folder.bytes().starts_with(&text(30)));
    }
}

#[test]
fn a_copy_of_a_half_saved_file_can_only_be_read_as_long_as_its_journal_is_there() {
    let two = |record: &mut Record| {
        of_another_inode(record);
        let at = record.old_len - 3;
        record.ranges.push(Range {
            offset: at,
            old: b"abc".to_vec(),
            new: b"xyz".to_vec(),
        });
    };
    let (folder, new) = committed(two);
    fs::write(folder.path(), &new).unwrap();
    let why = refusal(&folder);
    assert!(
        why.starts_with(SIDECAR) && why.contains("if you remove it"),
        "{why}"
    );
    assert_eq!(folder.bytes(), new);
    fs::remove_file(folder.dir.path().join(SIDECAR)).unwrap();
    assert_eq!(folder.open().recovery, Recovery::Clean);
}

/// It was sound to `--check`, and mounted to be written, as neither the old nor the new one.
#[test]
fn a_half_saved_stream_under_another_name_can_only_be_read() {
    let (folder, _) = committed(|_| ());
    let other = folder.dir.path().join("g.asdf");
    for rename in [false, true] {
        if rename {
            fs::rename(folder.path(), &other).unwrap();
        } else {
            fs::hard_link(folder.path(), &other).unwrap();
        }
        let refused = Writer::open(&other, SaveOptions::default());
        let Err(NotOpened::Unwritable(error)) = refused else {
            panic!("{:?}", refused.map(|opened| opened.recovery));
        };
        let said = error.to_string();
        assert!(
            said.contains(SIDECAR) && said.contains("by that name"),
            "{said}"
        );
        fs::rename(&other, folder.path()).unwrap();
        let _ = fs::remove_file(&other);
    }
    assert_eq!(folder.open().recovery, Recovery::Redone);
}

/// They were cut off with the journal, of which the power cut had left some sectors only.
#[test]
fn what_is_appended_behind_a_half_written_journal_stays() {
    let folder = Folder::new(&padded());
    commit(&folder, 20);
    let whole = folder.bytes();
    let start = padded().len().next_multiple_of(4096);
    // the last sector may be written in part, if the daemon was killed
    for end in (start + 24..whole.len()).step_by(8) {
        let mut half = whole[..end].to_vec();
        fs::write(folder.path(), &half).unwrap();
        assert_eq!(folder.open().recovery, Recovery::Dropped, "{end}");
        assert_eq!(folder.bytes(), padded());
        if end % 512 != 0 {
            continue;
        }
        for lost in [false, true] {
            if lost && end > start + 512 {
                half[start..start + 512].fill(0);
            }
            let added = [&half, &b"APPENDED"[..]].concat();
            fs::write(folder.path(), &added).unwrap();
            let shown = open_read_only(&folder.path()).unwrap();
            assert!(matches!(shown.recovery, Recovery::Foreign(_)), "{end}");
            assert_eq!(read_all(&*shown.file.bytes, 1 << 20).unwrap(), added);
            drop(shown);
            let why = refusal(&folder);
            assert!(why.contains("bytes have been added"), "{why}");
            assert_eq!(folder.bytes(), added);
            assert!(folder.others().is_empty());
        }
    }
}

/// It was said that the save was kept in a file that had been there before.
#[test]
fn a_journal_is_kept_under_a_name_that_is_free() {
    let folder = Folder::new(&padded());
    let kept = |name: &str| fs::read(folder.dir.path().join(name)).unwrap();
    let (first, second) = ("f.asdf.asdf-mount-rescued", "f.asdf.2.asdf-mount-rescued");
    fs::write(folder.dir.path().join(first), "precious").unwrap();
    commit(&folder, 20);
    let start = padded().len().next_multiple_of(4096);
    let record = folder.bytes()[start..].to_vec();
    let added = [&folder.bytes(), &b"APPENDED"[..]].concat();
    fs::write(folder.path(), &added).unwrap();
    // each mount finds it anew, and keeps it once
    for _ in 0..2 {
        let why = refusal(&folder);
        assert!(why.ends_with(&format!("kept in {second}")), "{why}");
        assert_eq!(folder.others().len(), 2);
        assert_eq!(kept(first), b"precious");
        assert!(kept(second) == record);
        assert_eq!(folder.bytes(), added);
    }
}
