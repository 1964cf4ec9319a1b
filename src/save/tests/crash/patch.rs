//! Faults of the disk while a raw block is written.

use super::*;

/// The kernel tells once of pages that it has lost. A second sync was believed, and so was the sync of another save that had taken the
/// report for its own: the checksum vouched for bytes that were not there.
#[test]
fn no_sync_that_fails_leaves_a_false_checksum() {
    let file = Sample::new().block(&[1; 700]).block(&[2; 900]).bytes();
    let (old_md5, old) = block_after(Sim::new(OsStr::new(NAME), &file));
    let new_md5 = [9; 16];
    let mut new = old.clone();
    new[100..700].fill(9);
    let note = Edit::text(Arc::new(b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec()));
    let mut random = Random(1);
    for (code, beside) in [(ENOSPC, false), (ENOSPC, true), (EIO, false), (EIO, true)] {
        for at in 0.. {
            let disk = Arc::new(Sim::new(OsStr::new(NAME), &file));
            let opened =
                Writer::open_in(Arc::clone(&disk), OsStr::new(NAME), SaveOptions::default());
            let mut writer = opened.map_err(drop).unwrap().writer;
            disk.arm(Trouble {
                fault: Some((at, Fault::Errno(code))),
                ..Trouble::default()
            });
            let begun = (0..2).any(|_| writer.begin_patch(1, &(100..700)).is_ok());
            if begun && writer.patch(1, |put| put(100, &[9; 600])).is_ok() {
                if beside {
                    let _ = writer.save(&note);
                }
                for _ in 0..2 {
                    let synced = writer.sync_patch();
                    let _ = synced.and_then(|()| writer.end_patch(1, new_md5));
                }
            }
            for way in ways(&disk.choices(), 30, &mut random) {
                let (md5, data) = block_after(disk.crash(&way));
                let is_true = (md5 == old_md5 && data == old)
                    || (md5 == new_md5 && data == new)
                    || md5 == [0; 16];
                assert!(is_true, "{code} at {at}, beside a save: {beside}, {way:?}");
            }
            if disk.ops().len() <= at {
                assert!(at > 10);
                break;
            }
        }
    }
}

/// With its bytes in the file and its record at the end, an unfinished save was taken for the change of another program.
#[test]
fn a_block_is_written_on_after_a_save_that_the_disk_had_no_room_for() {
    let scenario = Sample::new().padding(&[0; 1300]).block(&[2; 900]);
    let note = Edit::text(Arc::new(b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec()));
    let mut unfinished = 0;
    for at in 0..60 {
        let disk = Arc::new(Sim::new(OsStr::new(NAME), &scenario.bytes()));
        let opened = Writer::open_in(Arc::clone(&disk), OsStr::new(NAME), SaveOptions::default());
        let mut writer = opened.map_err(drop).unwrap().writer;
        writer.begin_patch(0, &(0..900)).unwrap();
        writer.patch(0, |put| put(0, &[3; 900])).unwrap();
        disk.arm(Trouble {
            fault: Some((at, Fault::Forever(ENOSPC))),
            ..Trouble::default()
        });
        if writer.save(&note).is_err() {
            // as the mount does: the save has changed FILE's times
            assert!(writer.reload().unwrap().is_none());
        }
        disk.arm(Trouble::default());
        if writer.status().broken().is_some() {
            continue;
        }
        unfinished += usize::from(!writer.is_settled());
        writer.patch(0, |put| put(0, &[4; 900])).unwrap();
        writer.sync_patch().unwrap();
        writer.end_patch(0, [4; 16]).unwrap();
    }
    assert!(unfinished > 0);
}
