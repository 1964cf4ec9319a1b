//! A block that takes many minutes to decode: who does not want its bytes need not wait for them.

use std::process::Command;

use crate::common::{PROGRAM, Place, can_mount, eventually, mounted, run};
use crate::sample::{Block, Sample, array};

const BLOCK_MAGIC: u64 = 0x3141_5926_5359;
const END_MAGIC: u64 = 0x1772_4538_5090;
/// Zeros that fill one bzip2 block.
const ZEROS: usize = 30_000_000;

fn bits_of(bytes: &[u8]) -> Vec<bool> {
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    bits.collect()
}

fn bytes_of(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| {
        (0..8).fold(0, |byte, i| {
            byte << 1 | u8::from(bits.get(i) == Some(&true))
        })
    };
    bits.chunks(8).map(byte).collect()
}

/// 900 GB of zeros, in a bzip2 stream of a megabyte that has one block again and again, and no end.
fn endless() -> Block {
    const TIMES: usize = 30_000;
    let one = Block::bzp2(&vec![0; ZEROS]);
    let bits = bits_of(one.stored());
    let end = bits_of(&(END_MAGIC << 16).to_be_bytes()[..6]);
    let begin = bits_of(&(BLOCK_MAGIC << 16).to_be_bytes()[..6]);
    let len = bits.windows(48).position(|window| window == end).unwrap();
    assert_eq!(
        bits.windows(48).rposition(|window| window == begin),
        Some(32)
    );
    let stored = bytes_of(&[&bits[..32], &bits[32..len].repeat(TIMES)].concat());
    Block::coded(*b"bzp2", stored, ZEROS * TIMES)
}

#[test]
fn a_mount_ends_at_once_though_a_killed_reader_has_left_it_decoding() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("zeros", 0, "uint8", "[900000000000]")).block(endless());
    let (_dir, mount) = mounted(&sample);
    let used = || mount.attribute("", "user.asdf.cache_used").unwrap();
    let idle = used();
    let mut reader = Command::new("tail")
        .args(["-c", "1"])
        .arg(mount.path("blocks/0.bin"))
        .spawn()
        .unwrap();
    eventually("it decodes", || used() != idle);
    reader.kill().unwrap();
    reader.wait().unwrap();
    // Fails if the daemon does not end.
    mount.unmount();
}

/// Such a block was decoded in silence for hours.
#[test]
fn a_check_is_bounded_by_an_option() {
    let sample = Sample::new(&array("zeros", 0, "uint8", "[900000000000]")).block(endless());
    let said = run(Command::new(PROGRAM)
        .args(["--check", "-o", "max-check=1G"])
        .arg(&Place::of(&sample).file));
    assert_eq!(said.code, 1, "{said:?}");
    let why = "suspicious: block 0: not decoded, because max-check allows less than its 900000000000 bytes; its checksum matches\n";
    assert!(said.stdout.ends_with(why), "{said:?}");
}
