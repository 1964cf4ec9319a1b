use super::*;

fn disk() -> (tempfile::TempDir, Disk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open_dir(dir.path()).unwrap();
    (dir, disk)
}

#[test]
fn a_lock_is_held_once_and_its_holder_is_known() {
    let (_dir, disk) = disk();
    let first = disk.create(OsStr::new("f"), None).unwrap();
    let second = disk.open(OsStr::new("f"), Access::Read).unwrap();
    assert!(disk.lock(&first).unwrap());
    assert!(!disk.lock(&second).unwrap());
    assert!(!lock_shared(&second).unwrap());
    assert_eq!(disk.lock_holder(&second), Some(std::process::id()));
}

#[test]
fn a_writer_elsewhere_is_noticed() {
    let (dir, disk) = disk();
    drop(disk.create(OsStr::new("f"), None).unwrap());
    let file = disk.open(OsStr::new("f"), Access::Read).unwrap();
    assert!(!disk.written_elsewhere(&file).unwrap());
    let writer = File::options()
        .write(true)
        .open(dir.path().join("f"))
        .unwrap();
    assert!(disk.written_elsewhere(&file).unwrap());
    drop(writer);
    assert!(!disk.written_elsewhere(&file).unwrap());
}

#[test]
fn a_symlink_is_not_followed() {
    let (dir, disk) = disk();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("l")).unwrap();
    assert!(disk.open(OsStr::new("l"), Access::Read).is_err());
    assert_ne!(
        disk.stat_name(OsStr::new("l")).unwrap().mode & 0o170_000,
        0o100_000
    );
}

#[test]
fn holes_are_told_from_data() {
    let (_dir, disk) = disk();
    let file = disk.create(OsStr::new("f"), None).unwrap();
    disk.set_len(&file, 1 << 20).unwrap();
    disk.write(&file, &[1; 4096], 512 << 10).unwrap();
    let found = disk.data(&file, 0).unwrap().unwrap();
    assert!(
        found.start <= 512 << 10 && found.end >= (512 << 10) + 4096,
        "{found:?}"
    );
    assert_eq!(disk.data(&file, 1 << 20).unwrap(), None);
}

#[test]
fn attributes_are_taken_over() {
    let (_dir, disk) = disk();
    let from = disk.create(OsStr::new("a"), None).unwrap();
    let to = disk.create(OsStr::new("b"), None).unwrap();
    std::os::unix::fs::fchown(&from, None, None).unwrap();
    from.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640))
        .unwrap();
    rustix::fs::fsetxattr(&from, "user.note", b"kept", XattrFlags::empty()).unwrap();
    disk.imitate(&from, &to).unwrap();
    assert_eq!(
        to.metadata().unwrap().mode(),
        from.metadata().unwrap().mode()
    );
    assert_eq!(attribute(&to, OsStr::new("user.note")).unwrap(), b"kept");
}

#[test]
fn bytes_are_copied_between_files() {
    let (_dir, disk) = disk();
    let from = disk.create(OsStr::new("a"), None).unwrap();
    let to = disk.create(OsStr::new("b"), None).unwrap();
    disk.write(&from, b"0123456789", 0).unwrap();
    assert_eq!(
        disk.copy(&from, Extent { start: 2, end: 7 }, &to, 1)
            .unwrap(),
        5
    );
    let mut buf = [9; 6];
    disk.read(&to, &mut buf, 0).unwrap();
    assert_eq!(&buf, b"\x0023456");
}
