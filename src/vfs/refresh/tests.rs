//! Changes by another program at the worst moments.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::asdf::OpenOptions as Reading;
use crate::asdf::check::Validate;
use crate::asdf::sample::Sample;
use crate::codec::Cache;
use crate::save::open_read_only;
use crate::vfs::Options;
use crate::vfs::testing::writable;

/// What another program does, with times that tell it from what was before, whatever the clock is.
fn overwrite(path: &Path, bytes: &[u8], seconds: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

fn shown(vfs: &Vfs) -> String {
    vfs.refresh_soon();
    vfs.refresh();
    String::from_utf8_lossy(vfs.state().snapshot.text()).into_owned()
}

/// The attributes were looked at after the file had been read, so that a change in between was never shown.
#[test]
fn what_changes_after_it_was_read_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.asdf");
    std::fs::write(&path, Sample::new().bytes()).unwrap();
    let opened = open_read_only(&path).unwrap();
    let meta = opened.meta.clone();
    let snapshot = opened.snapshot(Cache::new(1 << 20), Reading::default());
    let snapshot = snapshot.unwrap();
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    let options = Options {
        uid: None,
        gid: None,
        umask: 0,
        read_only: Some("a test".to_owned()),
        scratch: 0,
        validate: Validate::Warn,
    };
    let vfs = Vfs::new(&path, snapshot, meta, None, options);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
}

#[test]
fn the_moment_of_what_is_read_anew_is_that_before_it_was_read() {
    let (dir, vfs) = writable(&Sample::new());
    let path = dir.path().join("a.asdf");
    overwrite(&path, b"#ASDF 1.0.1", 1000);
    let before = std::fs::metadata(&path).unwrap();
    overwrite(&path, b"#ASDF 1.0.2", 2000);
    let mut writer = locked(vfs.writer.as_ref().unwrap());
    let shown = vfs.show_anew(&vfs.state(), Some(&mut writer), before.clone());
    shown.unwrap();
    assert_eq!(moment(&vfs.state().meta), moment(&before));
}

/// A save that failed took in what another program had made of the file, and nobody showed it.
#[test]
fn what_a_save_that_failed_finds_is_shown() {
    let (dir, vfs) = writable(&Sample::new());
    overwrite(&dir.path().join("a.asdf"), b"#ASDF 1.0.1", 1000);
    let mut writer = locked(vfs.writer.as_ref().unwrap());
    vfs.forgive(&mut writer);
    drop(writer);
    assert!(shown(&vfs).starts_with("#ASDF 1.0.1"));
}
