//! What a save that was interrupted has left, and what becomes of it.

use super::*;
use crate::asdf::sample::Sample;
use crate::save::sector::ALIGNMENT;
use crate::save::tests::disk::{Fault, Sim, Trouble};
use crate::save::view::write_all;
use crate::save::writer::{SaveOptions, Writer};

/// A full disk left half of it, which later mounts took for the whole.
#[test]
fn a_record_is_rescued_whole_or_not_at_all() {
    const ENOSPC: i32 = 28;
    let name = OsStr::new("f.asdf");
    let mut file = Sample::new().block(&[7; 3000]).bytes();
    let len = len_u64(file.len());
    let record = Record {
        old_len: len,
        new_len: len,
        sidecar_of: None,
        ranges: vec![Range {
            offset: 0,
            old: vec![1; 2000],
            new: vec![2; 2000],
        }],
    };
    file.resize(file.len().next_multiple_of(ALIGNMENT as usize), 0);
    let mut tail = Vec::new();
    let mut write = |part: &[u8]| {
        tail.extend_from_slice(part);
        Ok(())
    };
    record.write(&mut write).unwrap();
    file.extend_from_slice(&tail);
    let mut refused = 0;
    for fault in [Fault::Errno(ENOSPC), Fault::Short] {
        for n in 0.. {
            let disk = Arc::new(Sim::new(name, &file));
            disk.arm(Trouble {
                fault: Some((n, fault)),
                ..Trouble::default()
            });
            let opened = Writer::open_in(Arc::clone(&disk), name, SaveOptions::default());
            assert!(opened.is_err());
            for kept in disk.names().unwrap().iter().filter(|kept| **kept != name) {
                assert!(kept.to_string_lossy().ends_with(RESCUED), "{kept:?}");
                assert!(disk.content(kept).unwrap() == tail);
            }
            refused += usize::from(disk.names().unwrap().len() == 1);
            assert!(disk.content(name).unwrap() == file);
            if disk.ops().len() <= n {
                break;
            }
        }
    }
    assert!(refused > 2);
}

/// Whatever fails when it is set aside, it has one of its names.
#[test]
fn no_fault_loses_the_journal_of_a_file_that_was_replaced() {
    const EIO: i32 = 5;
    let name = OsStr::new("f.asdf");
    let file = Sample::new().streamed(b"abc").bytes();
    let record = Record {
        old_len: len_u64(file.len()),
        new_len: len_u64(file.len()),
        sidecar_of: Some((1, 77)),
        ranges: vec![Range {
            offset: 0,
            old: vec![1; 20],
            new: vec![2; 20],
        }],
    };
    let mut bytes = Vec::new();
    let mut write = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    record.write(&mut write).unwrap();
    for n in 0..3 {
        let disk = Arc::new(Sim::new(name, &file));
        let sidecar = disk.create(&name::sidecar(name), None).unwrap();
        write_all(&*disk, &sidecar, &bytes, 0).unwrap();
        disk.arm(Trouble {
            fault: Some((n, Fault::Errno(EIO))),
            ..Trouble::default()
        });
        let open = || Writer::open_in(Arc::clone(&disk), name, SaveOptions::default());
        assert_eq!(open().is_ok(), n == 2);
        disk.arm(Trouble::default());
        assert!(open().is_ok());
        let kept = name::beside(name, RESCUED);
        assert_eq!(disk.names().unwrap(), [name, &*kept]);
        assert!(disk.content(&kept).unwrap() == bytes && disk.content(name).unwrap() == file);
    }
}

/// The search for traces of a save scanned FILE, and then the writer did so again.
#[test]
fn a_mount_scans_the_file_once_and_hashes_its_head_once() {
    let name = OsStr::new("f.asdf");
    let text = format!("#ASDF 1.0.0\n---\nnote: {}\n...\n", "x".repeat(100_000));
    let sample = Sample::new().text(text.as_bytes()).block(b"abc").bytes();
    let disk = Arc::new(Sim::new(name, &sample));
    let file = disk.open(name, Access::Read).unwrap();
    let found = scan(&StoreSource::open(&disk, &file).unwrap(), false).unwrap();
    let scanned = disk.bytes_read();
    let head = usize::try_from(found.layout.head().end).unwrap();
    assert!(Writer::open_in(Arc::clone(&disk), name, SaveOptions::default()).is_ok());
    let others = 1000;
    let read = disk.bytes_read() - scanned;
    assert!(
        read < scanned + head + others,
        "{read} bytes, a scan reads {scanned}"
    );
}
