//! Blocks that are edited, by several at once, and what becomes of their checksums and of those who read meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, XattrFlags};
use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount, eventually, run};
use crate::sample::{Block, Index, Sample, array, array_with, noise, ramp};

/// A file of its own, mounted for writing.
fn writable(sample: &Sample) -> (TempDir, PathBuf, Mount) {
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &[]);
    (dir, file, mount)
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

/// What a new mount of the file shows.
fn shown(file: &Path, name: &str) -> Vec<u8> {
    Mount::new(file, &["-r"]).read(name).unwrap()
}

/// The exit status of `--check`: 0, or 23 for damage.
fn check(file: &Path) -> i32 {
    asdf_mount(["--check".as_ref(), file.as_os_str()]).code
}

/// Whether a file's length can be set by its name, without opening it: `truncate(2)`, which the crates at hand leave out.
fn truncate(path: &Path, len: u64) -> bool {
    let script = "import os, sys; os.truncate(sys.argv[1], int(sys.argv[2]))";
    let mut command = Command::new("python3");
    run(command.args(["-c", script]).arg(path).arg(len.to_string())).code == 0
}

fn encode(mount: &Mount, block: &str, code: &[u8]) -> rustix::io::Result<()> {
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(mount.path(block), "user.asdf.compression", code, flags)
}

/// Bytes of a raw block are written where FILE has them, and a crash before the close leaves no false checksum.
#[test]
fn bytes_of_a_raw_block_are_in_the_file_before_the_close() {
    if !can_mount() {
        return;
    }
    let data = noise(1000);
    let sample = Sample::new(&array("x", 0, "uint8", "[1000]")).block(Block::raw(&data));
    let (_dir, file, mount) = writable(&sample);
    let before = fs::read(&file).unwrap();
    let start = before.windows(1000).position(|it| it == data).unwrap();
    let array = open(&mount.path("arrays/x.bin"));
    array.write_all_at(b"xyz", 7).unwrap();
    let state = || mount.attribute("blocks/0.bin", "user.asdf.checksum_state");
    assert_eq!(&fs::read(&file).unwrap()[start + 7..][..3], b"xyz");
    assert_eq!(&mount.read("blocks/0.bin").unwrap()[7..10], b"xyz");
    assert_eq!((state().unwrap().as_str(), check(&file)), ("none", 0));
    array.sync_all().unwrap();
    assert_eq!(state().unwrap(), "none");
    drop(array);
    assert_eq!((state().unwrap().as_str(), check(&file)), ("ok", 0));
    assert_eq!(fs::read(&file).unwrap().len(), before.len());
}

#[test]
fn what_is_written_while_a_save_runs_is_in_the_next_save() {
    const LEN: usize = 200_000;
    const WRITES: usize = 200;
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new(&array("x", 0, "uint8", &format!("[{LEN}]")))
        .block(Block::zlib(&noise(LEN)))
        .write(dir.path());
    let mount = Mount::new(&file, &[]);
    let open = |name| {
        let file = OpenOptions::new().write(true).open(mount.path(name));
        file.unwrap()
    };
    let (saving, writing) = (open("blocks/0.bin"), open("blocks/0.bin"));
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

#[test]
fn first_writes_through_several_descriptors_at_once_are_all_kept() {
    const LEN: usize = 3000;
    const ROUNDS: usize = 60;
    if !can_mount() {
        return;
    }
    let sample =
        Sample::new(&array("x", 0, "uint8", &format!("[{LEN}]"))).block(Block::raw(&[0; LEN]));
    let (_dir, file, mount) = writable(&sample);
    let header = mount.read("arrays/x.npy").unwrap().len() - LEN;
    let files = [
        ("blocks/0.bin", 0),
        ("arrays/x.bin", 0),
        ("arrays/x.npy", header),
    ];
    for (round, (name, shift)) in files.into_iter().cycle().take(ROUNDS).enumerate() {
        let barrier = Barrier::new(3);
        let descriptors = [(); 3].map(|()| open(&mount.path(name)));
        std::thread::scope(|scope| {
            for (n, file) in descriptors.into_iter().enumerate() {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let at = shift + n * 1000 + round;
                    file.write_all_at(b"w", at as u64).unwrap();
                });
            }
        });
    }
    mount.unmount();
    let found = shown(&file, "blocks/0.bin");
    let expected: Vec<u8> = (0..LEN)
        .map(|at| if at % 1000 < ROUNDS { b'w' } else { 0 })
        .collect();
    let lost = found.iter().zip(&expected).filter(|(a, b)| a != b);
    assert_eq!(lost.count(), 0, "of {} writes", 3 * ROUNDS);
    assert_eq!(check(&file), 0);
}

#[test]
fn a_hole_in_what_is_written_over_a_block_is_zeros_in_it() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n").block(Block::raw(&noise(300_000)));
    let (_dir, file, mount) = writable(&sample);
    // as cp does with a sparse file
    let mut copy = File::create(mount.path("blocks/0.bin")).unwrap();
    copy.write_all(b"front").unwrap();
    copy.seek(SeekFrom::Start(299_990)).unwrap();
    copy.write_all(b"the end...").unwrap();
    copy.sync_all().unwrap();
    drop(copy);
    let mut expected = vec![0; 300_000];
    expected[..5].copy_from_slice(b"front");
    expected[299_990..].copy_from_slice(b"the end...");
    assert!(mount.read("blocks/0.bin").unwrap() == expected);
    mount.unmount();
    assert!(shown(&file, "blocks/0.bin") == expected);
    assert_eq!(check(&file), 0);
}

#[test]
fn readers_go_on_while_a_block_is_encoded_anew() {
    if !can_mount() {
        return;
    }
    let data = ramp(3_000_000);
    let (_dir, _, mount) = writable(&Sample::new("a: 1\n").block(Block::raw(&data)));
    for code in ["zlib", "lz4", "none"] {
        let before = File::open(mount.path("blocks/0.bin")).unwrap();
        let mut start = vec![0; 1000];
        before.read_exact_at(&mut start, 0).unwrap();
        encode(&mount, "blocks/0.bin", code.as_bytes()).unwrap();
        let mut rest = vec![0; data.len() - 1000];
        before.read_exact_at(&mut rest, 1000).unwrap();
        assert!([start, rest].concat() == data, "the reader before {code}");
        assert!(mount.read("blocks/0.bin").unwrap() == data, "{code}");
    }
}

#[test]
fn edits_and_readers_follow_blocks_that_move_in_place() {
    if !can_mount() {
        return;
    }
    let (first, second) = (ramp(200_000), noise(200_000));
    for (what, last) in [("raw", Block::raw(&second)), ("zlib", Block::zlib(&second))] {
        let sample = Sample::new("a: 1\n").block(Block::zlib(&first)).block(last);
        let (dir, file, mount) = writable(&sample);
        // a file of two names is never replaced
        fs::hard_link(&file, dir.path().join("other.asdf")).unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let reader = File::open(mount.path("blocks/0.bin")).unwrap();
        let mut start = vec![0; 1000];
        reader.read_exact_at(&mut start, 0).unwrap();
        let edited = open(&mount.path("blocks/1.bin"));
        edited.write_all_at(b"EDITED", 100).unwrap();
        let tree = fs::read_to_string(mount.path("tree.yaml")).unwrap();
        let longer = tree.replace("a: 1", &format!("a: {}", "x".repeat(5000)));
        fs::write(mount.path("tree.yaml"), longer).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().ino(), inode);
        let mut rest = vec![0; first.len() - 1000];
        reader.read_exact_at(&mut rest, 1000).unwrap();
        assert!([start, rest].concat() == first, "{what}: an open file");
        assert!(mount.read("blocks/0.bin").unwrap() == first, "{what}");
        edited.sync_all().unwrap();
        drop((edited, reader));
        mount.unmount();
        let mut expected = second.clone();
        expected[100..106].copy_from_slice(b"EDITED");
        assert!(shown(&file, "blocks/1.bin") == expected, "{what}: the edit");
        assert_eq!(check(&file), 0, "{what}");
    }
}

#[test]
fn readers_never_meet_a_block_that_is_half_written() {
    const SAVES: usize = 25;
    if !can_mount() {
        return;
    }
    let mut data = noise(3_000_000);
    // without a checksum, so that nothing in the header changes with the bytes
    let block = Block::lz4(&data).allocated(4_000_000).checksum([0; 16]);
    let (_dir, file, mount) = writable(&Sample::new("a: 1\n").block(block));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (path, done, data) = (mount.path("blocks/0.bin"), &done, &data);
                scope.spawn(move || {
                    let mut reads = 0;
                    while !done.load(Ordering::Relaxed) {
                        let found = fs::read(&path).unwrap();
                        let differs = found.iter().zip(data).filter(|(a, b)| a != b).count();
                        assert!(found.len() == data.len() && differs <= 8 * SAVES);
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let editor = open(&mount.path("blocks/0.bin"));
        for n in 0..SAVES {
            // sometimes the chunk becomes longer, and sometimes shorter
            editor
                .write_all_at(&[n as u8; 8], (n * 100_000) as u64)
                .unwrap();
            editor.sync_all().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    for n in 0..SAVES {
        data[n * 100_000..n * 100_000 + 8].fill(n as u8);
    }
    mount.unmount();
    assert!(shown(&file, "blocks/0.bin") == data);
    assert_eq!(check(&file), 0);
}

/// A damaged block of this kind: what does `--check` say after the edit?
fn check_after(block: Block, edit: impl Fn(&Mount)) -> i32 {
    let wrong = block.checksum([7; 16]);
    let (_dir, file, mount) = writable(&Sample::new("a: 1\n").block(wrong));
    edit(&mount);
    mount.unmount();
    check(&file)
}

#[test]
fn no_edit_vouches_for_damage_that_it_does_not_write_over() {
    if !can_mount() {
        return;
    }
    let data = ramp(100_000);
    let kinds = || [Block::raw(&data), Block::lz4(&data), Block::zlib(&data)];
    let one_byte = |mount: &Mount| {
        open(&mount.path("blocks/0.bin"))
            .write_all_at(b"x", 5)
            .unwrap();
    };
    let longer = |mount: &Mount| {
        open(&mount.path("blocks/0.bin"))
            .write_all_at(b"x", 100_000)
            .unwrap();
    };
    let same_size = |mount: &Mount| {
        let path = mount.path("blocks/0.bin");
        rustix::fs::ftruncate(open(&path), 100_000).unwrap();
        assert!(truncate(&path, 100_000));
    };
    let anew = |mount: &Mount| {
        encode(mount, "blocks/0.bin", b"bzp2").unwrap_err();
    };
    let all = |mount: &Mount| fs::write(mount.path("blocks/0.bin"), noise(100_000)).unwrap();
    for block in kinds() {
        assert_eq!(check_after(block, one_byte), 23);
    }
    for block in kinds() {
        assert_eq!(check_after(block, longer), 23);
    }
    for block in kinds() {
        assert_eq!(check_after(block, same_size), 23);
    }
    for block in kinds() {
        assert_eq!(check_after(block, anew), 23);
    }
    for block in kinds() {
        assert_eq!(check_after(block, all), 0);
    }
}

#[test]
fn a_block_has_the_checksum_of_what_was_written_or_none_as_before() {
    if !can_mount() {
        return;
    }
    let data = ramp(100_000);
    for block in [Block::raw(&data), Block::lz4(&data)] {
        let without = block.clone().checksum([0; 16]);
        for (block, has_one) in [(block, true), (without, false)] {
            let (_dir, file, mount) = writable(&Sample::new("a: 1\n").block(block));
            for at in [0, 99_999, 100_000] {
                let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
                let written = time(&file);
                let edited = open(&mount.path("blocks/0.bin"));
                edited.write_all_at(b"x", at).unwrap();
                drop(edited);
                let sum = mount
                    .attribute("blocks/0.bin", "user.asdf.checksum")
                    .unwrap();
                assert_eq!(sum.contains(|c| c != '0'), has_one);
                let state = mount
                    .attribute("blocks/0.bin", "user.asdf.checksum_state")
                    .unwrap();
                assert_eq!(state, if has_one { "ok" } else { "none" });
                let info = mount.text("info/status");
                assert!(info.contains("block 0 saved"), "{info}");
                let (inside, outside) = (mount.path("blocks/0.bin"), &file);
                // the checksum is put behind the bytes
                let times = [time(&inside), time(outside)];
                assert!(written < times[0] && times[0] <= times[1], "at {at}");
                assert_eq!(check(&file), 0);
            }
        }
    }
}

#[test]
fn a_refused_truncation_costs_nobody_else_what_he_wrote() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[1000]")).block(Block::raw(&noise(1000)));
    let (_dir, file, mount) = writable(&sample);
    let path = mount.path("blocks/0.bin");
    let writer = open(&path);
    writer.write_all_at(b"HELLO", 0).unwrap();
    assert!(!truncate(&path, 10));
    writer.sync_all().unwrap();
    drop(writer);
    mount.unmount();
    assert_eq!(shown(&file, "blocks/0.bin")[..5], *b"HELLO");
}

#[test]
fn what_was_given_up_is_nowhere_any_more_and_told() {
    if !can_mount() {
        return;
    }
    let data = noise(100_000);
    let sample = Sample::new(&array("x", 0, "uint8", "[100000]")).block(Block::raw(&data));
    let (_dir, file, mount) = writable(&sample);
    let mut options = OpenOptions::new();
    let array = options
        .write(true)
        .truncate(true)
        .open(mount.path("arrays/x.bin"))
        .unwrap();
    array.write_all_at(&vec![0; 40_000], 0).unwrap();
    assert!(
        mount.read("blocks/0.bin").unwrap() == data,
        "a part is in no draft"
    );
    rustix::fs::fsync(&array).unwrap_err();
    drop(array);
    for name in ["blocks/0.bin", "arrays/x.bin"] {
        eventually("the file is as it was", || {
            mount.read(name).unwrap() == data
        });
    }
    eventually("it is told", || {
        mount.text("info/status").contains("given up")
    });
    for (name, told) in [("blocks/0.bin", true), ("arrays/x.bin", false)] {
        let again = open(&mount.path(name));
        again.write_all_at(&data[..1], 0).unwrap();
        again.sync_all().unwrap();
        drop(again);
        let status = mount.text("info/status");
        let is_told = status.contains("given up");
        let is_saved = status.contains("block 0 saved");
        assert!(is_saved != told && is_told == told, "{status}");
    }
    mount.unmount();
    assert!(shown(&file, "blocks/0.bin") == data);
    assert_eq!(check(&file), 0);
}

#[test]
fn a_block_that_cannot_be_written_is_refused_when_it_is_opened() {
    const EROFS: Option<i32> = Some(30);
    if !can_mount() {
        return;
    }
    // a frame of Blosc2 under the code of Blosc1, which we read, and others do not
    let frame = include_bytes!("../data/codec/pattern.b2frame");
    let tree = "inline: !core/ndarray-1.1.0 {data: [1, 2], datatype: int64}\n";
    let sample = Sample::new(tree).block(Block::coded(*b"blsc", frame.to_vec(), 200_000));
    let (_dir, _, mount) = writable(&sample);
    let files = ["blocks/0.bin", "arrays/inline.npy"];
    for file in files {
        let error = OpenOptions::new().write(true).open(mount.path(file));
        assert_eq!(error.unwrap_err().raw_os_error(), EROFS);
        // as `sed -i` and rsync do it; the reason was ENOENT for an array that is in no block
        let beside = mount.path(file).with_file_name(".new");
        fs::write(&beside, [1, 2, 3]).unwrap();
        let error = fs::rename(&beside, mount.path(file));
        assert_eq!(error.unwrap_err().raw_os_error(), EROFS, "{file}");
        assert_eq!(fs::read(&beside).unwrap(), [1, 2, 3]);
    }
    let refusals = |mount: &Mount| {
        let status = mount.text("info/status");
        files.map(|file| status.contains(&format!("refused   {file}: ")))
    };
    assert_eq!(refusals(&mount), [true, true]);
    // an array may be another one in another tree
    let text = mount.text("tree.yaml").replace("[1, 2]", "[1, 3]");
    fs::write(mount.path("tree.yaml"), text).unwrap();
    assert_eq!(refusals(&mount), [true, false]);
}

#[test]
fn every_compression_can_be_chosen_and_edited() {
    if !can_mount() {
        return;
    }
    let mut data = ramp(3_000_000);
    let (_dir, file, mount) = writable(&Sample::new("a: 1\n").block(Block::raw(&data)));
    for code in [
        "zlib",
        "bzp2",
        "lz4",
        "lz4f",
        "zstd",
        "xz",
        "blsc",
        "blsc:chunk",
        "bls2",
        "bls2:frame",
        "bsc2",
        "none",
    ] {
        encode(&mount, "blocks/0.bin", code.as_bytes()).unwrap();
        let name = mount
            .attribute("blocks/0.bin", "user.asdf.compression")
            .unwrap();
        assert_eq!(name, code);
        let block = open(&mount.path("blocks/0.bin"));
        block.write_all_at(code.as_bytes(), 1_500_000).unwrap();
        block.sync_all().unwrap();
        data[1_500_000..1_500_000 + code.len()].copy_from_slice(code.as_bytes());
        assert!(mount.read("blocks/0.bin").unwrap() == data, "{code}");
        let name = mount
            .attribute("blocks/0.bin", "user.asdf.compression")
            .unwrap();
        assert_eq!(name, code, "after an edit");
    }
    mount.unmount();
    assert!(shown(&file, "blocks/0.bin") == data);
    assert_eq!(check(&file), 0);
}

#[test]
fn of_a_block_that_is_cut_short_only_what_is_there_can_be_written() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n")
        .block(Block::raw(&noise(10_000)))
        .index(Index::Absent);
    let dir = TempDir::new().unwrap();
    let file = sample.write(dir.path());
    let mut cut = fs::read(&file).unwrap();
    cut.truncate(cut.len() - 5000);
    fs::write(&file, &cut).unwrap();
    let mount = Mount::new(&file, &[]);
    let edit = |at| {
        let edited = open(&mount.path("blocks/0.bin"));
        edited.write_all_at(b"X", at)?;
        edited.sync_all()
    };
    edit(9000).unwrap_err();
    let status = mount.text("info/status");
    assert!(status.contains("bytes to be written of"), "{status}");
    assert!(fs::read(&file).unwrap() == cut);
    edit(10).unwrap();
    // the checksum stays, as it is not that of what is there
    let place = cut.len() - 5000 + 10;
    cut[place] = b'X';
    assert!(fs::read(&file).unwrap() == cut);
    mount.unmount();
}

#[test]
fn a_block_that_is_being_edited_is_not_removed() {
    const EBUSY: Option<i32> = Some(16);
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n").block(Block::raw(&noise(1000)));
    let busy = |mount: &Mount, name| {
        let removed = fs::remove_file(mount.path(name));
        removed.is_err_and(|error| error.raw_os_error() == EBUSY)
    };
    // a process that another test starts meanwhile closes the descriptor that it has inherited, which saves the new block
    let mut mounts = (0..10).map(|_| {
        let (dir, _, mount) = writable(&sample);
        let new = File::create(mount.path("blocks/1.bin")).unwrap();
        new.write_all_at(b"new", 0).unwrap();
        busy(&mount, "blocks/0.bin").then_some((dir, mount))
    });
    let (_dir, mount) = mounts.find_map(|refused| refused).unwrap();
    let edited = open(&mount.path("blocks/1.bin"));
    edited.write_all_at(b"N", 0).unwrap();
    assert!(busy(&mount, "blocks/1.bin"));
    drop(edited);
    assert_eq!(mount.read("blocks/1.bin").unwrap(), b"New");
    fs::remove_file(mount.path("blocks/1.bin")).unwrap();
}

#[test]
fn a_block_that_is_made_and_never_written_is_an_empty_one() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n").block(Block::raw(&ramp(500)));
    let (_dir, file, mount) = writable(&sample);
    let new = mount.path("blocks/1.bin");
    let (kind, mode) = (rustix::fs::FileType::RegularFile, 0o644.into());
    let refused = rustix::fs::mknodat(rustix::fs::CWD, &new, kind, mode, 0);
    assert_eq!(refused, Err(rustix::io::Errno::PERM));
    let flags = OFlags::RDONLY | OFlags::CREATE;
    drop(rustix::fs::open(&new, flags, mode).unwrap());
    assert_eq!(fs::metadata(&new).unwrap().len(), 0);
    assert_eq!(shown(&file, "blocks/1.bin"), b"");
    // a removal that is refused leaves it
    let zero = mount.path("blocks/zero.bin");
    fs::remove_file(&zero).unwrap_err();
    assert_eq!(fs::metadata(&new).unwrap().len(), 0);
    fs::remove_file(&new).unwrap();
    fs::remove_file(&new).unwrap_err();
    // and the last block can be removed
    fs::remove_file(mount.path("blocks/0.bin")).unwrap();
    fs::write(mount.path("blocks/0.bin"), b"anew").unwrap();
    drop(mount);
    assert_eq!(shown(&file, "blocks/0.bin"), b"anew");
    assert_eq!(check(&file), 0);
}

#[test]
fn a_block_that_is_open_for_writing_is_not_removed() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n")
        .block(Block::raw(&ramp(500)))
        .block(Block::raw(&ramp(600)));
    let (_dir, file, mount) = writable(&sample);
    let path = mount.path("blocks/1.bin");
    let last = open(&path);
    let refused = fs::remove_file(&path).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(16));
    last.write_all_at(b"X", 0).unwrap();
    drop(last);
    fs::remove_file(&path).unwrap();
    fs::write(&path, [2; 10]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [2; 10]);
    drop(mount);
    let mount = Mount::new(&file, &["-r"]);
    assert_eq!(fs::read_dir(mount.path("blocks")).unwrap().count(), 2);
}

/// Opens with what a copying program opens its target with.
fn emptied(path: &Path) -> File {
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .unwrap()
}

#[test]
fn what_is_passed_over_in_an_emptied_array_is_zero() {
    if !can_mount() {
        return;
    }
    let strided =
        "source: 0, datatype: uint8, byteorder: little, shape: [1000], offset: 1999, strides: [-2]";
    let tree = array("a", 0, "uint8", "[200000]") + &array_with("b", strided);
    let (_dir, _file, mount) = writable(&Sample::new(&tree).block(Block::raw(&vec![7; 200_000])));
    let a = emptied(&mount.path("arrays/a.bin"));
    a.write_all_at(&[1; 10], 5).unwrap();
    a.write_all_at(&[2; 10], 199_990).unwrap();
    drop(a);
    let expected = [&[0; 5][..], &[1; 10], &vec![0; 199_975], &[2; 10]].concat();
    assert_eq!(mount.read("arrays/a.bin").unwrap(), expected);

    // cp of a sparse file ends with this
    let b = emptied(&mount.path("arrays/b.bin"));
    b.write_all_at(&[3; 10], 0).unwrap();
    b.set_len(1000).unwrap();
    b.sync_all().unwrap();
    drop(b);
    assert_eq!(
        mount.read("arrays/b.bin").unwrap(),
        [&[3; 10][..], &[0; 990]].concat()
    );
}

#[test]
fn an_append_does_not_write_over_what_it_does_not_see() {
    if !can_mount() {
        return;
    }
    let (_dir, _file, mount) = writable(&Sample::new("n: 1\n").block(Block::raw(&[b'A'; 1000])));
    let path = mount.path("blocks/0.bin");
    for _ in 0..30 {
        let before = fs::read(&path).unwrap();
        // given up when its last descriptor is closed, which may be before the append or after it
        drop(emptied(&path));
        let append = OpenOptions::new().append(true).open(&path);
        append.unwrap().write_all(b"z").unwrap();
        let behind = [&before[..], b"z"].concat();
        let after = fs::read(&path).unwrap();
        assert!(after == behind || after == b"z", "{after:?}");
    }
}

#[test]
fn the_number_of_blocks_stays_while_an_array_counts_them_from_the_end() {
    if !can_mount() {
        return;
    }
    let tree = array("a", -2, "uint8", "[10]");
    let blocks = [0, 1, 2].map(|n| Block::raw(&[n; 10]));
    let sample = blocks.into_iter().fold(Sample::new(&tree), Sample::block);
    let (_dir, file, mount) = writable(&sample);
    let block = File::create(mount.path("blocks/3.bin")).unwrap();
    block.write_all_at(&[3; 10], 0).unwrap();
    assert!(block.sync_all().is_err());
    drop(block);
    assert!(fs::remove_file(mount.path("blocks/2.bin")).is_err());
    assert_eq!(mount.read("arrays/a.bin").unwrap(), [1; 10]);
    let status = mount.text("info/status");
    assert!(
        status.contains("write source: 1 in tree.yaml first"),
        "{status}"
    );
    mount.unmount();
    assert_eq!(check(&file), 0);
}

/// `touch` and `cp` of an empty file said that all was well, and there was no block.
#[test]
fn a_block_that_is_made_and_not_written_is_an_empty_one() {
    if !can_mount() {
        return;
    }
    let (_dir, file, mount) = writable(&Sample::new("n: 1\n"));
    for n in 0..20 {
        let path = mount.path(&format!("blocks/{n}.bin"));
        drop(File::create(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(fs::read_dir(mount.path("blocks")).unwrap().count(), n + 1);
        if n % 2 == 0 {
            fs::write(&path, b"abc").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"abc");
        }
    }
    // a file that was made beside the blocks can become one, too
    let beside = mount.path("blocks/new.tmp");
    drop(File::create(&beside).unwrap());
    fs::rename(&beside, mount.path("blocks/20.bin")).unwrap();
    drop(mount);
    assert_eq!(shown(&file, "blocks/18.bin"), b"abc");
    assert_eq!(shown(&file, "blocks/20.bin"), b"");
    assert_eq!(check(&file), 0);
}

#[test]
fn no_room_is_made_behind_an_array() {
    if !can_mount() {
        return;
    }
    let (_dir, _file, mount) =
        writable(&Sample::new(&array("a", 0, "uint8", "[10]")).block(Block::raw(&[1; 10])));
    let array = open(&mount.path("arrays/a.bin"));
    let none = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&array, none, 0, 10).unwrap();
    let refused = rustix::fs::fallocate(&array, none, 0, 11).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::PERM);
}

#[test]
fn what_a_refused_truncation_would_have_cut_off_is_not_saved_later() {
    if !can_mount() {
        return;
    }
    let (_dir, file, mount) = writable(&Sample::new("a: 1\n").block(Block::raw(&ramp(16_000))));
    let path = mount.path("blocks/0.bin");
    let writer = open(&path);
    // a process of its own: what another test starts meanwhile would have the descriptor of this one for a moment
    let mut elsewhere = Command::new("sh")
        .args(["-c", "exec 7<>\"$0\" && echo open && read -r _"])
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    let mut open_there = elsewhere.stdout.take().unwrap();
    open_there.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"open\n");
    assert!(!truncate(&path, 100));
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 16_000);
    writer.write_all_at(b"xxxx", 0).unwrap();
    writer.sync_all().unwrap();
    let mut wanted = ramp(16_000);
    wanted[..4].copy_from_slice(b"xxxx");
    assert!(mount.read("blocks/0.bin").unwrap() == wanted);
    drop(writer);
    assert!(truncate(&path, 100));
    assert_eq!(fs::metadata(&path).unwrap().len(), 100);
}

/// The array was shown as an empty file while the block was being edited.
#[test]
fn an_array_of_a_damaged_block_stays_an_error_while_the_block_is_edited() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let mut stored = Block::zlib(&noise(800_000)).stored().to_vec();
    let middle = stored.len() / 2;
    stored[middle..middle + 70_000].fill(0xff);
    let turned =
        "source: 0, datatype: float64, byteorder: little, shape: [100, 1000], strides: [8, 800]";
    let sample =
        Sample::new(&array_with("x", turned)).block(Block::coded(*b"zlib", stored, 800_000));
    let mount = Mount::new(&sample.write(dir.path()), &[]);
    let end = || {
        let mut bytes = [0; 4096];
        let file = File::open(mount.path("arrays/x.bin")).unwrap();
        file.read_at(&mut bytes, 790_000)
            .map_err(|error| error.raw_os_error())
    };
    assert_eq!(end(), Err(Some(5)));
    let block = File::options()
        .write(true)
        .open(mount.path("blocks/0.bin"))
        .unwrap();
    block.write_at(b"Z", 0).unwrap();
    assert_eq!(end(), Err(Some(5)));
}

/// Each write of a descriptor that had been opened to append went to the end, whatever fcntl(2) had made of the descriptor since.
#[test]
fn a_descriptor_appends_while_its_flags_say_so() {
    if !can_mount() {
        return;
    }
    let (_dir, _file, mount) = writable(&Sample::new("a: 1\n").block(Block::raw(b"")));
    for name in ["blocks/0.bin", "scratch.txt"] {
        let path = mount.path(name);
        let appending = OpenOptions::new().append(true).create(true).open(&path);
        let mut appending = appending.unwrap();
        appending.write_all(b"abc").unwrap();
        rustix::fs::fcntl_setfl(&appending, OFlags::empty()).unwrap();
        appending.write_all_at(b"A", 0).unwrap();
        rustix::fs::fcntl_setfl(&appending, OFlags::APPEND).unwrap();
        appending.write_all_at(b"d", 0).unwrap();
        drop(appending);
        assert_eq!(mount.read(name).unwrap(), b"Abcd", "{name}");
    }
}
