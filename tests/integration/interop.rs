//! Files stay readable for other programs, and what other programs write can be saved.

use std::fs::{self, File};
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
