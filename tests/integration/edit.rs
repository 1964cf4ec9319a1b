//! Blocks edited by several at once.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use crate::common::{Mount, can_mount};
use crate::sample::{Block, Sample, array, noise};

#[test]
fn what_is_written_while_a_save_runs_is_in_the_next_save() {
    const LEN: usize = 200_000;
    const WRITES: usize = 200;
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    // through two files: the kernel lets writing and syncing one file wait for each other
    let file = Sample::new(&array("x", 0, "uint8", &format!("[{LEN}]")))
        .block(Block::zlib(&noise(LEN)))
        .write(dir.path());
    let mount = Mount::new(&file, &[]);
    let open = |name| {
        let file = OpenOptions::new().write(true).open(mount.path(name));
        file.unwrap()
    };
    let (saving, writing) = (open("blocks/0.bin"), open("arrays/x.bin"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for n in 0..WRITES {
                writing.write_all_at(&[n as u8], (n * 1000) as u64).unwrap();
            }
        });
        while !writer.is_finished() {
            saving.sync_all().unwrap();
        }
    });
    drop(saving);
    mount.unmount();
    let mount = Mount::new(&file, &["-r"]);
    let found = fs::read(mount.path("blocks/0.bin")).unwrap();
    let lost = (0..WRITES).filter(|n| found[n * 1000] != *n as u8).count();
    assert_eq!(lost, 0, "of {WRITES} writes");
}
