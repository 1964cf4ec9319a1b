//! What a real mount shows, read through the kernel.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use tempfile::TempDir;

use crate::common::{KERNEL_CACHES, Mount, can_mount, eventually, mounted};
use crate::sample::{Block, Index, Sample, array, flux, noise, ramp};

/// The errno that a damaged part gives.
const EIO: Option<i32> = Some(5);
const ENTRIES: usize = 100_000;
const TERABYTE: u64 = 1 << 40;

#[test]
fn the_tree_is_the_text_of_the_file_byte_for_byte() {
    if !can_mount() {
        return;
    }
    let crlf = "#ASDF 1.0.0\r\n# a comment\r\n%YAML 1.1\r\n---\r\na: [1, 2]  # kept\r\n...\r\n";
    for sample in [
        Sample::of_text(crlf.as_bytes())
            .padding(&[b' '; 100])
            .block(Block::raw(b"x")),
        Sample::new("a: \u{e9}t\u{e9}\n").padding(b"\0\0\0"),
        Sample::of_text(b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n").block(Block::raw(b"only a block")),
    ] {
        let (_dir, mount) = mounted(&sample);
        assert_eq!(mount.read("tree.yaml").unwrap(), sample.tree());
    }
}

#[test]
fn the_root_has_the_directories_of_the_contract() {
    if !can_mount() {
        return;
    }
    let (_dir, mount) = mounted(&Sample::new("a: 1\n"));
    assert_eq!(mount.names(""), ["arrays", "blocks", "info", "tree.yaml"]);
    assert_eq!(
        mount.names("info"),
        [
            "arrays.tsv",
            "blocks.tsv",
            "stats.tsv",
            "status",
            "tree.json"
        ]
    );
    assert!(mount.names("blocks").is_empty() && mount.names("arrays").is_empty());
}

#[test]
fn blocks_are_shown_decoded_whatever_their_header_and_compression() {
    if !can_mount() {
        return;
    }
    let (plain, soft) = (noise(100_000), ramp(9_000_000));
    let sample = Sample::new("a: 1\n")
        .padding(&[b' '; 1234])
        .block(Block::raw(&plain))
        .block(Block::raw(&plain).header_size(4090).allocated(200_000))
        .block(Block::zlib(&soft))
        .block(Block::bzp2(&soft).header_size(64))
        .block(Block::lz4(&soft))
        .block(Block::raw(b""));
    let (_dir, mount) = mounted(&sample);
    for (n, wanted) in [&plain, &plain, &soft, &soft, &soft, &Vec::new()]
        .into_iter()
        .enumerate()
    {
        let name = format!("blocks/{n}.bin");
        assert_eq!(
            fs::metadata(mount.path(&name)).unwrap().len(),
            wanted.len() as u64,
            "{name}"
        );
        assert!(mount.read(&name).unwrap() == *wanted, "{name}");
    }
    assert_eq!(mount.names("blocks").len(), 6);
}

#[test]
fn readers_at_random_places_of_many_blocks_take_no_more_than_the_cache_and_64_mib() {
    const LEN: usize = 4 << 20;
    if !can_mount() {
        return;
    }
    let data = noise(LEN);
    let sample = (0..16).fold(Sample::new("a: 1\n"), |sample, n| {
        sample.block(match n % 3 {
            0 => Block::zlib(&data),
            1 => Block::bzp2(&data),
            _ => Block::lz4(&data),
        })
    });
    let dir = TempDir::new().unwrap();
    let mount = Mount::new(&sample.write(dir.path()), &["-o", "cache=16M"]);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let block = File::open(mount.path(&format!("blocks/{n}.bin"))).unwrap();
            let data = &data;
            scope.spawn(move || {
                for step in 1..=6 {
                    let at = (n * 1_234_567 + step * 7_654_321) % (LEN - 4096);
                    let mut buf = [0; 4096];
                    block.read_exact_at(&mut buf, at as u64).unwrap();
                    assert!(buf == data[at..at + 4096], "block {n} at {at}");
                }
            });
        }
    });
    let peak = mount.peak();
    assert!(peak < (16 + 64) << 10, "{peak} KiB");
}

#[test]
fn a_wrong_index_costs_no_block() {
    if !can_mount() {
        return;
    }
    let trap = [
        b"\xd3BLK\0\x30#ASDF BLOCK INDEX\n---\n- 7\n...\n".as_slice(),
        &noise(500),
    ]
    .concat();
    for index in [
        Index::Absent,
        Index::Of(vec![]),
        Index::Of(vec![1, 2]),
        Index::Of(vec![u64::MAX, 0]),
    ] {
        let sample = Sample::new("a: 1\n")
            .block(Block::raw(&trap))
            .block(Block::raw(b"second"))
            .index(index);
        let (_dir, mount) = mounted(&sample);
        assert_eq!(mount.names("blocks"), ["0.bin", "1.bin"]);
        assert_eq!(mount.read("blocks/0.bin").unwrap(), trap);
        assert_eq!(mount.read("blocks/1.bin").unwrap(), b"second");
    }
}

#[test]
fn attributes_tell_of_blocks_arrays_and_the_file() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("flux", 0, "float32", "[4, 6]"))
        .block(Block::raw(&flux()).allocated(100))
        .block(Block::zlib(b"hello"));
    let (dir, mount) = mounted(&sample);
    let at = sample.tree().len().to_string();
    for (name, attribute, wanted) in [
        ("blocks/0.bin", "data_size", "96"),
        ("blocks/0.bin", "used_size", "96"),
        ("blocks/0.bin", "allocated_size", "100"),
        ("blocks/0.bin", "offset", &at),
        ("blocks/1.bin", "compression", "zlib"),
        ("arrays/flux.bin", "datatype", "float32"),
        ("arrays/flux.npy", "byteorder", "little"),
        ("arrays/flux.bin", "path", "flux"),
        (
            "arrays/flux.bin",
            "tag",
            "tag:stsci.edu:asdf/core/ndarray-1.0.0",
        ),
        ("", "version", "1.0.0"),
        ("", "standard", "1.5.0"),
    ] {
        assert_eq!(
            mount
                .attribute(name, &format!("user.asdf.{attribute}"))
                .as_deref(),
            Some(wanted),
            "{attribute} of {name:?}"
        );
    }
    let shape = mount
        .attribute("arrays/flux.bin", "user.asdf.shape")
        .unwrap();
    assert_eq!(shape.replace(' ', ""), "[4,6]");
    let file = fs::canonicalize(dir.path()).unwrap().join("sample.asdf");
    assert_eq!(
        mount.attribute("", "user.asdf.file").as_deref(),
        file.to_str()
    );
    assert_eq!(mount.attribute("tree.yaml", "user.asdf.nonsense"), None);
}

#[test]
fn attributes_can_be_listed() {
    if !can_mount() {
        return;
    }
    let (_dir, mount) = mounted(&Sample::new("a: 1\n").block(Block::raw(b"hello")));
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(mount.path("blocks/0.bin"), &mut names).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    for name in [
        "compression",
        "checksum",
        "checksum_state",
        "allocated_size",
        "used_size",
        "data_size",
        "offset",
        "flags",
    ] {
        assert!(
            names.split('\0').any(|n| n == format!("user.asdf.{name}")),
            "{name} is not in {names:?}"
        );
    }
}

#[test]
fn owner_mode_and_times_are_those_of_the_file() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n")
        .block(Block::raw(b"hello"))
        .write(dir.path());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let mount = Mount::new(&file, &["-r"]);
    let wanted = fs::metadata(&file).unwrap();
    for (name, mode) in [
        ("tree.yaml", 0o640),
        ("blocks/0.bin", 0o640),
        ("blocks", 0o750),
        ("", 0o750),
    ] {
        let found = fs::metadata(mount.path(name)).unwrap();
        assert_eq!(
            (found.uid(), found.gid()),
            (wanted.uid(), wanted.gid()),
            "{name:?}"
        );
        assert_eq!(found.mode() & 0o7777 & !0o222, mode & !0o222, "{name:?}");
        assert_eq!(
            (found.mtime(), found.mtime_nsec()),
            (wanted.mtime(), wanted.mtime_nsec()),
            "{name:?}"
        );
    }
}

#[test]
fn inode_numbers_are_stable_and_differ() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("flux", 0, "uint8", "[5]")).block(Block::raw(b"hello"));
    let (_dir, mount) = mounted(&sample);
    let names = [
        "",
        "tree.yaml",
        "blocks",
        "blocks/0.bin",
        "arrays",
        "arrays/flux.bin",
        "arrays/flux.npy",
        "info",
        "info/status",
    ];
    let numbers = || names.map(|name| fs::metadata(mount.path(name)).unwrap().ino());
    let first = numbers();
    assert_eq!(
        first.iter().collect::<BTreeSet<_>>().len(),
        names.len(),
        "{first:?}"
    );
    let alone = KERNEL_CACHES.write();
    fs::write("/proc/sys/vm/drop_caches", "2").ok();
    drop(alone);
    assert_eq!(numbers(), first);
    for entry in fs::read_dir(mount.path("blocks")).unwrap() {
        use std::os::unix::fs::DirEntryExt;
        assert_eq!(entry.unwrap().ino(), first[3]);
    }
}

#[test]
fn the_filesystem_has_the_size_of_the_one_below() {
    if !can_mount() {
        return;
    }
    let (dir, mount) = mounted(&Sample::new("a: 1\n"));
    let below = rustix::fs::statvfs(dir.path()).unwrap();
    let found = rustix::fs::statvfs(&mount.dir).unwrap();
    assert_eq!(
        found.f_blocks * found.f_frsize,
        below.f_blocks * below.f_frsize
    );
    assert!(found.f_bsize > 0 && found.f_namemax == 255);
}

#[test]
fn a_hundred_thousand_entries_can_be_listed() {
    if !can_mount() {
        return;
    }
    let sample = (0..ENTRIES).fold(Sample::new("a: 1\n"), |sample, _| {
        sample.block(Block::raw(b""))
    });
    let (_dir, mount) = mounted(&sample);
    let names: BTreeSet<_> = mount.names("blocks").into_iter().collect();
    assert_eq!(names.len(), ENTRIES);
    assert!(names.contains("0.bin") && names.contains("99999.bin"));
}

#[test]
fn a_streamed_block_reaches_to_the_end_of_the_file_and_grows_with_it() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("a: 1\n")
        .block(Block::raw(b"first"))
        .block(Block::streamed(b"so far"));
    let (dir, mount) = mounted(&sample);
    assert_eq!(mount.read("blocks/1.bin").unwrap(), b"so far");
    let mut file = OpenOptions::new()
        .append(true)
        .open(dir.path().join("sample.asdf"))
        .unwrap();
    file.write_all(b", so good").unwrap();
    eventually("the new bytes are seen", || {
        mount.read("blocks/1.bin").unwrap() == b"so far, so good"
    });
}

#[test]
fn a_file_that_takes_the_place_of_the_mounted_one_is_shown() {
    if !can_mount() {
        return;
    }
    let sample = |data: &[u8]| Sample::new("a: 1\n").block(Block::raw(data));
    for options in [&["-r"][..], &[]] {
        let dir = TempDir::new().unwrap();
        let file = sample(b"old").write(dir.path());
        let mount = Mount::new(&file, options);
        let open = File::open(mount.path("blocks/0.bin")).unwrap();
        let other = dir.path().join("other");
        fs::write(&other, sample(b"the new one").bytes()).unwrap();
        fs::rename(&other, &file).unwrap();
        eventually("the new file is shown", || {
            mount.read("blocks/0.bin").unwrap() == b"the new one"
        });
        drop(open);
        // a name that means no file any more changes nothing
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(mount.read("blocks/0.bin").unwrap(), b"the new one");
    }
}

#[test]
fn a_block_that_cannot_be_decoded_harms_no_other() {
    if !can_mount() {
        return;
    }
    let broken = noise(1000);
    let mut cut = Block::zlib(&ramp(3_000_000)).data_size(4_000_000);
    cut = cut.checksum([0; 16]);
    let sample = Sample::new("a: 1\n")
        .block(Block::coded(*b"zlib", broken.clone(), 5000))
        .block(Block::coded(*b"what", broken.clone(), 5000))
        .block(Block::coded(*b"lz4\0", broken.clone(), 5000))
        .block(Block::coded(*b"bzp2", broken, 1 << 60))
        .block(cut)
        .block(Block::raw(b"unharmed"));
    let (_dir, mount) = mounted(&sample);
    let told = |n: usize| {
        let status = mount.text("info/status");
        let mut problems = status.lines().filter(|line| line.starts_with("problem"));
        problems.any(|line| line.contains(&format!("block {n}:")))
    };
    assert!(!told(4), "this damage shows only when it is decoded");
    for n in 0..5 {
        let mut file = File::open(mount.path(&format!("blocks/{n}.bin"))).unwrap();
        // into a sink: one of them says that it has 2^60 bytes
        let error = io::copy(&mut file, &mut io::sink()).unwrap_err();
        assert_eq!(error.raw_os_error(), EIO, "block {n}");
        assert!(told(n), "block {n} is not in {}", mount.text("info/status"));
    }
    assert_eq!(mount.read("blocks/5.bin").unwrap(), b"unharmed");
    assert!(!told(5));
    let status = mount.text("info/status");
    assert!(
        status.contains("what"),
        "the unknown code is not in {status}"
    );
}

#[test]
fn a_tree_that_does_not_parse_still_mounts() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new("good: 1\nbad: [1, 2\nworse: }\n").block(Block::raw(b"hello"));
    let (_dir, mount) = mounted(&sample);
    assert_eq!(mount.read("tree.yaml").unwrap(), sample.tree());
    assert_eq!(mount.read("blocks/0.bin").unwrap(), b"hello");
    assert!(mount.names("arrays").is_empty());
    assert!(
        mount.text("info/status").contains("line 8"),
        "{}",
        mount.text("info/status")
    );
}

#[test]
fn reads_at_any_place_give_the_bytes_of_that_place() {
    if !can_mount() {
        return;
    }
    let (plain, soft) = (noise(5_000_000), ramp(12_000_000));
    let sample = Sample::new("a: 1\n")
        .block(Block::raw(&plain))
        .block(Block::zlib(&soft))
        .block(Block::lz4(&soft));
    let (_dir, mount) = mounted(&sample);
    std::thread::scope(|scope| {
        for (n, wanted) in [&plain, &soft, &soft].into_iter().enumerate() {
            let file = File::open(mount.path(&format!("blocks/{n}.bin"))).unwrap();
            for seed in 0..3_usize {
                let file = file.try_clone().unwrap();
                scope.spawn(move || {
                    for step in 0..40_usize {
                        let at = (seed * 7_919 + step * 1_299_709) % wanted.len();
                        let len = (1 + step * 5_003).min(wanted.len() - at);
                        let mut found = vec![0; len];
                        file.read_exact_at(&mut found, at as u64).unwrap();
                        assert!(
                            found == wanted[at..at + len],
                            "block {n}: {len} bytes at {at}"
                        );
                    }
                    let mut beyond = [0; 10];
                    assert_eq!(
                        file.read_at(&mut beyond, wanted.len() as u64 + 5).unwrap(),
                        0
                    );
                });
            }
        }
    });
}

#[test]
fn the_file_is_left_alone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("flux", 0, "uint8", "[5]"))
        .block(Block::raw(b"hello"))
        .block(Block::zlib(b"hello"));
    let file = sample.write(dir.path());
    let before = fs::metadata(&file).unwrap();
    let mount = Mount::new(&file, &[]);
    for name in [
        "tree.yaml",
        "blocks/0.bin",
        "blocks/1.bin",
        "arrays/flux.npy",
        "info/status",
    ] {
        mount.read(name).unwrap();
    }
    mount.unmount();
    let after = fs::metadata(&file).unwrap();
    assert_eq!(
        (after.ino(), after.mtime_nsec(), after.ctime_nsec()),
        (before.ino(), before.mtime_nsec(), before.ctime_nsec())
    );
    assert_eq!(fs::read(&file).unwrap(), sample.bytes());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "something was left beside the file"
    );
}

/// Reads 64 KiB in the middle of block 0 after the file was cut before it, and then looks around.
fn cut_while_mounted(block: Block) -> io::Result<()> {
    let sample = Sample::new("a: 1\n").block(block);
    let (dir, mount) = mounted(&sample);
    let open = File::open(mount.path("blocks/0.bin")).unwrap();
    let middle = open.metadata().unwrap().len() / 2;
    let cut = sample.tree().len() as u64 + 4096;
    OpenOptions::new()
        .write(true)
        .open(dir.path().join("sample.asdf"))
        .unwrap()
        .set_len(cut)
        .unwrap();
    let result = open.read_exact_at(&mut vec![0; 65536], middle);
    assert_eq!(
        mount.names(""),
        ["arrays", "blocks", "info", "tree.yaml"],
        "the mount does not live any more"
    );
    assert_eq!(mount.read("tree.yaml").unwrap(), sample.tree());
    result
}

#[test]
fn a_file_that_shrinks_gives_io_errors_and_the_mount_lives() {
    if !can_mount() {
        return;
    }
    // Plain bytes go from the mapped file to the kernel, which finds the pages gone; decoders read the file themselves.
    let data = ramp(16 << 20);
    for (what, block) in [
        ("raw", Block::raw(&data)),
        ("zlib", Block::zlib(&data)),
        ("bzp2", Block::bzp2(&data)),
        ("lz4", Block::lz4(&data)),
    ] {
        assert_eq!(
            cut_while_mounted(block).unwrap_err().raw_os_error(),
            EIO,
            "{what}"
        );
    }
}

#[test]
fn a_sparse_file_of_a_terabyte_mounts_like_a_small_one() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("large.asdf");
    let text = Sample::new(&array("end", 0, "uint8", "[1099511627776]"));
    let mut header = b"\xd3BLK\0\x30\0\0\0\0\0\0\0\0".to_vec();
    (0..3).for_each(|_| header.extend(TERABYTE.to_be_bytes()));
    header.extend([0; 16]);
    fs::write(&path, [text.tree(), &header].concat()).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    if file
        .set_len((text.tree().len() + header.len()) as u64 + TERABYTE)
        .is_err()
    {
        println!("skipped: no sparse file of 1 TiB on this filesystem");
        return;
    }
    let mount = Mount::new(&path, &["-r"]);
    let block = File::open(mount.path("arrays/end.bin")).unwrap();
    assert_eq!(block.metadata().unwrap().len(), TERABYTE);
    let mut last = [1; 100];
    block.read_exact_at(&mut last, TERABYTE - 100).unwrap();
    assert_eq!(last, [0; 100]);
}

#[test]
fn an_edit_leaves_the_chunks_it_does_not_touch_as_they_are_stored() {
    if !can_mount() {
        return;
    }
    // A thousand zeros as so many literals, which no encoder makes of them: whoever encodes them again is found out.
    let literals = [&[0xF0, 255, 255, 255, 220][..], &[0; 1000]].concat();
    let head = [
        (literals.len() as u32 + 4).to_be_bytes(),
        1000_u32.to_le_bytes(),
    ];
    let chunk = [head.as_flattened(), &literals].concat();
    let block = Block::coded(*b"lz4\0", chunk.repeat(3), 3000);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.asdf");
    let sample = Sample::new(&array("a", 0, "uint8", "[3000]")).block(block);
    fs::write(&path, sample.bytes()).unwrap();
    let mount = Mount::new(&path, &[]);
    let file = OpenOptions::new()
        .write(true)
        .open(mount.path("arrays/a.bin"))
        .unwrap();
    file.write_all_at(b"0123456789", 1500).unwrap();
    file.sync_all().unwrap();
    let stored = fs::read(&path).unwrap();
    let start = stored.windows(chunk.len()).position(|bytes| bytes == chunk);
    let rest = &stored[start.unwrap() + chunk.len()..];
    let second = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize + 4;
    assert!(second < 100, "{second} bytes for zeros and ten others");
    assert!(rest[second..].starts_with(&chunk));
    drop(file);
    let mut data = vec![0; 3000];
    data[1500..1510].copy_from_slice(b"0123456789");
    assert_eq!(mount.read("blocks/0.bin").unwrap(), data);
}
