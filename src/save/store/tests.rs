use std::os::unix::fs::MetadataExt;

use rustix::fs::XattrFlags;

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
    assert_eq!(
        attributes::value(&to, OsStr::new("user.note")).unwrap(),
        b"kept"
    );
}

/// A save by a new file gave FILE the access list that new files in its directory get.
#[test]
fn a_copy_has_no_attribute_that_it_inherits_or_had_before() {
    let (dir, disk) = disk();
    let from = disk.create(OsStr::new("a"), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o660);
    from.set_permissions(mode).unwrap();
    // user::rw-, user:1234:rw-, group::---, mask::rw-, other::---
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 6, 1234),
        (0x04, 0, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(perm.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_default";
    match rustix::fs::setxattr(dir.path(), name, &list, XattrFlags::empty()) {
        // this file system has no lists
        Err(Errno::OPNOTSUPP) => {}
        done => done.unwrap(),
    }
    let to = disk.create(OsStr::new("b"), None).unwrap();
    rustix::fs::fsetxattr(&to, "user.note", b"old", XattrFlags::empty()).unwrap();
    disk.imitate(&from, &to).unwrap();
    assert_eq!(
        attributes::names(&to).unwrap(),
        attributes::names(&from).unwrap()
    );
    assert_eq!(to.metadata().unwrap().mode() & 0o777, 0o660);
    // a file whose list gives its group nothing, and has a mask in the place of the group's bits
    let name = "system.posix_acl_access";
    if rustix::fs::fsetxattr(&from, name, &list, XattrFlags::empty()).is_ok() {
        assert_eq!(from.metadata().unwrap().mode() & 0o777, 0o660);
        let shown = FilePath::from(dir.path().join("a").as_path())
            .stat()
            .unwrap();
        assert_eq!(
            [false, true].map(|it| shown.permissions(it)),
            [0o660, 0o600]
        );
    }
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

/// A file with `chattr +S` lost that flag by a save. Which flags can be set depends on the file system and the user.
#[test]
fn the_flags_of_a_file_are_those_of_the_one_it_is_made_like() {
    let (_dir, disk) = disk();
    let like = disk.create(OsStr::new("a"), None).unwrap();
    let Ok(mut set) = rustix::fs::ioctl_getflags(&like) else {
        return;
    };
    for flag in [
        IFlags::SYNC,
        IFlags::JOURNALING,
        IFlags::NOTAIL,
        IFlags::NODUMP,
    ] {
        if rustix::fs::ioctl_setflags(&like, set | flag).is_ok() {
            set |= flag;
        }
    }
    let made = disk.create(OsStr::new("b"), Some(&like)).unwrap();
    let flags = |file| rustix::fs::ioctl_getflags(file).unwrap();
    assert_eq!(flags(&made), flags(&like));
}

/// In a directory of `chattr +a` a copy of FILE stayed for good.
#[test]
fn nothing_is_made_that_could_not_be_removed() {
    let (_dir, disk) = disk();
    let set = |flags| rustix::fs::ioctl_setflags(&disk.dir, flags);
    let flags = rustix::fs::ioctl_getflags(&disk.dir).unwrap_or(IFlags::empty());
    if set(flags | IFlags::APPEND).is_err() {
        // this file system has no such flag
        return;
    }
    let made = disk.create(OsStr::new("f"), None);
    set(flags).unwrap();
    assert_eq!(made.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert!(!disk.names().unwrap().contains(&OsString::from("f")));
    disk.create(OsStr::new("f"), None).unwrap();
}

/// A disk that was full was written to for minutes.
#[test]
fn a_disk_tells_how_much_it_has_left() {
    let (_dir, disk) = disk();
    assert!(disk.free().unwrap() > 0);
}
