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
