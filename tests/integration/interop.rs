//! Files stay readable for other programs, and what other programs write can be saved.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use md5::{Digest, Md5};
use rustix::fs::XattrFlags;
use tempfile::TempDir;

use crate::common::{Mount, asdf_mount, can_mount, run};
use crate::sample::{Block, Sample, array, noise, ramp};

/// What stands between the tree and the first block of a file.
fn space(file: &Path) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let position = |needle: &[u8]| {
        bytes
            .windows(needle.len())
            .position(|found| found == needle)
    };
    let (end, block) = (position(b"\n...\n"), position(b"\xd3BLK"));
    bytes[end.unwrap() + 5..block.unwrap()].to_vec()
}

#[test]
fn the_user_chooses_what_stands_behind_the_tree() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("x", 0, "uint8", "[90]"))
        .padding(&[b'\n'; 90])
        .block(Block::raw(&noise(90)));
    for (options, want) in [
        (&[][..], vec![b'\n'; 89]),
        (&["-o", "pad=nul"], vec![0; 89]),
        (&["-o", "pad=blank"], vec![b' '; 89]),
        (&["-o", "pad=none"], vec![]),
    ] {
        let dir = TempDir::new().unwrap();
        let file = sample.write(dir.path());
        let mount = Mount::new(&file, options);
        let tree = mount.text("tree.yaml").replace("x:", "xy:");
        fs::write(mount.path("tree.yaml"), tree).unwrap();
        assert_eq!(mount.read("arrays/xy.bin").unwrap(), noise(90));
        mount.unmount();
        assert_eq!(space(&file), want, "{options:?}");
        assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
    }
}

/// Checksum of block 0, and what it is known to be.
fn checksum(mount: &Mount) -> (String, String) {
    let attribute = |name: &str| {
        let name = format!("user.asdf.{name}");
        mount.attribute("blocks/0.bin", &name).unwrap()
    };
    (attribute("checksum"), attribute("checksum_state"))
}

fn encode(mount: &Mount, code: &str) {
    let (path, flags) = (mount.path("blocks/0.bin"), XattrFlags::empty());
    rustix::fs::setxattr(path, "user.asdf.compression", code.as_bytes(), flags).unwrap();
}

fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// asdf-python up to 5.2 writes the checksum of the decoded bytes, and finds no other right.
#[test]
fn a_checksum_of_decoded_bytes_stays_one_through_every_edit() {
    if !can_mount() {
        return;
    }
    let data = ramp(3_000_000);
    let of_decoded = |mount: &Mount| {
        let sum = Md5::digest(mount.read("blocks/0.bin").unwrap());
        assert_eq!(checksum(mount), (hex(&sum), "ok-decoded".to_owned()));
    };
    let change = |mount: &Mount, at: u64| {
        let file = File::options().write(true).open(mount.path("blocks/0.bin"));
        file.unwrap().write_all_at(b"changed", at).unwrap();
    };
    let blocks = [Block::zlib(&data), Block::bzp2(&data), Block::lz4(&data)];
    for block in blocks {
        let decoded = Md5::digest(&data).into();
        let dir = TempDir::new().unwrap();
        let file = Sample::new("a: 1\n")
            .block(block.checksum(decoded))
            .write(dir.path());
        // unknown at first
        let mount = Mount::new(&file, &[]);
        change(&mount, 1_500_000);
        of_decoded(&mount);
        mount.unmount();
        let mount = Mount::new(&file, &[]);
        fs::write(mount.path("blocks/0.bin"), noise(100_000)).unwrap();
        of_decoded(&mount);
        // known
        change(&mount, 99_997);
        of_decoded(&mount);
        mount.unmount();
        let mount = Mount::new(&file, &[]);
        for code in ["lz4f", "zstd", "blsc", "lz4", "bzp2", "zlib"] {
            encode(&mount, code);
            of_decoded(&mount);
            change(&mount, 50_000);
            of_decoded(&mount);
        }
        assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
        // what is not compressed has but one checksum, and what is compressed then the standard's
        encode(&mount, "none");
        let sum = Md5::digest(mount.read("blocks/0.bin").unwrap());
        assert_eq!(checksum(&mount), (hex(&sum), "ok".to_owned()));
        encode(&mount, "zlib");
        assert_eq!(checksum(&mount).1, "ok");
        assert_ne!(checksum(&mount).0, hex(&sum));
        change(&mount, 50_000);
        assert_eq!(checksum(&mount).1, "ok");
    }
}

/// What `close` says to a program that has written that text to a file: 0, or an error number.
fn closed(path: &Path, text: &str) -> String {
    let script = "import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(fd, sys.argv[2].encode())
try:
    os.close(fd)
    print(0)
except OSError as error:
    print(error.errno)";
    let mut command = Command::new("python3");
    let said = run(command.args(["-c", script]).arg(path).arg(text));
    said.stdout.trim_end().to_owned()
}

#[test]
fn a_text_that_can_t_be_saved_is_refused_when_it_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let file = Sample::new("a: 1\n").write(dir.path());
    let before = fs::read(&file).unwrap();
    let mount = Mount::new(&file, &[]);
    let tree = mount.path("tree.yaml");
    for text in [
        "meta: {exposure: 1.0}\n",
        "!<tag:stsci.edu:asdf/core/asdf-1.1.0>\na: 1\n",
        "%YAML 1.1\n",
        "\n#ASDF 1.0.0\n",
    ] {
        assert_eq!(closed(&tree, text), "22", "{text}");
        assert_eq!(mount.text("tree.yaml"), text);
        let kept = fs::read_to_string(dir.path().join("sample.asdf.rejected.yaml"));
        assert_eq!(kept.unwrap(), text);
        assert!(mount.text("info/status").contains("NOT SAVED"));
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    // a shell may close the first part of a text before it writes the second
    assert_eq!(closed(&tree, "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n"), "0");
    assert_eq!(fs::read(&file).unwrap(), before);
}

const BODY: &str = "a: 1\nmeta:\n  x: !core/ndarray-1.0.0 {source: 0, datatype: uint8, byteorder: little, shape: [90]}\n";

/// What YAML libraries make of the text of [`Sample`]: with its directives, and with the tags written out.
fn dumps() -> [String; 2] {
    let tags = |text: &str| {
        let text = text.replace("!core/asdf-1.1.0", "!<tag:stsci.edu:asdf/core/asdf-1.1.0>");
        text.replace(
            "!core/ndarray-1.0.0",
            "!<tag:stsci.edu:asdf/core/ndarray-1.0.0>",
        )
    };
    let dump = format!("--- !core/asdf-1.1.0\n{BODY}").replace("a: 1", "a: 2");
    let directives = "%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n";
    [format!("{directives}{dump}"), tags(&dump)]
}

fn yaml_sample() -> Sample {
    Sample::new(BODY).block(Block::raw(&noise(90)))
}

#[test]
fn what_yaml_tools_drop_is_put_back() {
    const HEAD: &str = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n";
    const DIRECTIVES: &str = "%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n";
    if !can_mount() {
        return;
    }
    let [full, bare] = dumps();
    let healed = [
        format!("{HEAD}{full}...\n"),
        format!("{HEAD}{DIRECTIVES}{bare}...\n"),
    ];
    let said = [
        "tree saved, its # lines, its ... line put back,",
        "tree saved, its # lines, %YAML, %TAG !, its ... line put back,",
    ];
    for ((dump, healed), said) in [full, bare].iter().zip(healed).zip(said) {
        for renamed in [false, true] {
            let dir = TempDir::new().unwrap();
            let file = yaml_sample().write(dir.path());
            let mount = Mount::new(&file, &[]);
            let tree = mount.path("tree.yaml");
            if renamed {
                let other = mount.path("other");
                fs::write(&other, dump).unwrap();
                assert_eq!(fs::read_to_string(&other).unwrap(), *dump);
                fs::rename(other, &tree).unwrap();
            } else {
                assert_eq!(closed(&tree, dump), "0");
            }
            assert_eq!(fs::metadata(&tree).unwrap().len(), healed.len() as u64);
            assert_eq!(mount.text("tree.yaml"), healed);
            let status = mount.text("info/status");
            assert!(status.contains(said), "{status}");
            assert_eq!(mount.read("arrays/meta/x.bin").unwrap(), noise(90));
            // the same once more is no save, and what is shown is whole again
            assert_eq!(closed(&tree, dump), "0");
            assert_eq!(mount.text("tree.yaml"), healed);
            mount.unmount();
            assert!(fs::read(&file).unwrap().starts_with(healed.as_bytes()));
            assert_eq!(asdf_mount(["--check".as_ref(), file.as_os_str()]).code, 0);
        }
    }
}

#[test]
fn a_dump_that_was_cut_short_is_saved_only_by_a_rename() {
    if !can_mount() {
        return;
    }
    let [dump, _] = dumps();
    let cuts = [
        (dump.replace("a: 2\n", ""), "the key a"),
        (
            dump.split_once("meta:").unwrap().0.to_owned(),
            "the key meta",
        ),
        (
            dump.split_once("  x:").unwrap().0.to_owned(),
            "the array meta/x",
        ),
        (dump.trim_end().to_owned(), "the end of its last line"),
    ];
    for (cut, lacks) in cuts {
        let dir = TempDir::new().unwrap();
        let file = yaml_sample().write(dir.path());
        let before = fs::read(&file).unwrap();
        let mount = Mount::new(&file, &[]);
        let (tree, other) = (mount.path("tree.yaml"), mount.path("other"));
        assert_eq!(closed(&tree, &cut), "22", "{lacks}");
        let status = mount.text("info/status");
        assert!(status.contains(&format!("lacks {lacks} too")), "{status}");
        assert_eq!(mount.text("tree.yaml"), cut);
        let mut fsynced = File::create(&tree).unwrap();
        fsynced.write_all(cut.as_bytes()).unwrap();
        assert_eq!(fsynced.sync_all().unwrap_err().raw_os_error(), Some(5));
        drop(fsynced);
        assert_eq!(fs::read(&file).unwrap(), before);
        fs::write(&other, &cut).unwrap();
        fs::rename(&other, &tree).unwrap();
        let status = mount.text("info/status");
        assert!(!status.contains("NOT SAVED"), "{status}");
        assert!(mount.text("tree.yaml").ends_with("...\n"));
    }
}

#[test]
fn what_is_wrong_with_a_dump_is_told_by_its_own_lines() {
    if !can_mount() {
        return;
    }
    let [full, bare] = dumps();
    let dir = TempDir::new().unwrap();
    let file = yaml_sample().write(dir.path());
    let mount = Mount::new(&file, &[]);
    for (text, place) in [
        (full.replace("source: 0", "source: 7"), "line 6, column 6"),
        (bare.replace("source: 0", "source: 7"), "line 4, column 6"),
        (
            full.replace("!core/asdf-1.1.0", ""),
            "line 4, column 1: the tree has lost its tag",
        ),
    ] {
        let other = mount.path("other");
        fs::write(&other, &text).unwrap();
        fs::rename(&other, mount.path("tree.yaml")).unwrap_err();
        let status = mount.text("info/status");
        assert!(status.contains(place), "{place}: {status}");
    }
}

/// It was refused. asdf 6 writes 1.7.0.
#[test]
fn a_newer_minor_version_of_the_standard_is_saved_with_a_warning() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let sample = Sample::new(&array("x", 0, "uint8", "[3]")).block(Block::raw(b"abc"));
    let log = dir.path().join("log");
    let file = sample.write(dir.path());
    let mount = Mount::new(&file, &["--log-file", log.to_str().unwrap()]);
    let text = mount
        .text("tree.yaml")
        .replace("STANDARD 1.5.0", "STANDARD 1.7.0");
    let text = text.replace("ndarray-1.0.0", "ndarray-1.2.0");
    fs::write(mount.path("tree.yaml"), &text).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(text.as_bytes()));
    assert_eq!(mount.read("arrays/x.bin").unwrap(), b"abc");
    let warning =
        "line 2, column 16: version 1.7.0 of the ASDF Standard is newer than 1.6.0; read as 1.6.0";
    let status = mount.text("info/status");
    assert!(
        status.contains(&format!("problem   odd: {warning}\n")),
        "{status}"
    );
    assert!(fs::read_to_string(&log).unwrap().contains(warning));
    // it is told of once
    fs::write(mount.path("tree.yaml"), text.replace("x:", "y:")).unwrap();
    assert_eq!(
        fs::read_to_string(&log).unwrap().matches(warning).count(),
        1
    );
    let newer = text.replace("STANDARD 1.7.0", "STANDARD 2.0.0");
    let mut tree = File::create(mount.path("tree.yaml")).unwrap();
    tree.write_all(newer.as_bytes()).unwrap();
    assert!(tree.sync_all().is_err());
}
