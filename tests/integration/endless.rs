//! A block that takes many minutes to decode: who does not want its bytes need not wait for them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{PROGRAM, Place, can_mount, daemons_of, eventually, is_running, mounted, run};
use crate::sample::{Block, Sample, array, array_with};

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

/// The reader decoded for hours, and the daemon stayed as long.
#[test]
fn a_signal_ends_a_mount_whose_reader_decodes_for_hours() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("zeros", 0, "uint8", "[900000000000]")).block(endless());
    let (_dir, mount) = mounted(&sample);
    let daemon = daemons_of(&mount.dir)[0];
    let used = || mount.attribute("", "user.asdf.cache_used").unwrap();
    let idle = used();
    let reader = Command::new("tail")
        .args(["-c", "1"])
        .arg(mount.path("blocks/0.bin"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it decodes", || used() != idle);
    kill_process(Pid::from_raw(daemon).unwrap(), Signal::TERM).unwrap();
    let ended = reader.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("Input/output error"), "{said}");
    eventually("the daemon ends", || !is_running(daemon));
}

/// They had all threads, so that nothing of the mount could be read; and it went on decoding when they were gone.
#[test]
fn readers_that_wait_for_hours_keep_nobody_else_waiting_and_can_be_killed() {
    if !can_mount() {
        return;
    }
    let body = array("zeros", 0, "uint8", "[900000000000]") + &array("x", 1, "uint8", "[4]");
    let sample = Sample::new(&body)
        .block(endless())
        .block(Block::raw(b"abcd"));
    let place = Place::of(&sample);
    assert_eq!(place.mount(&["-o", "threads=2"]).code, 0);
    let readers: Vec<_> = (1..6)
        .map(|n| {
            let mut reader = Command::new("tail");
            reader.args(["-c", &n.to_string()]);
            reader.arg(place.mnt.join("blocks/0.bin")).spawn().unwrap()
        })
        .collect();
    let used = || fs::read_to_string(place.mnt.join("info/status")).unwrap();
    eventually("they decode", || !used().contains("cache     0 bytes"));
    assert_eq!(fs::read(place.mnt.join("arrays/x.bin")).unwrap(), b"abcd");
    for mut reader in readers {
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    let daemon = Daemon::of(&place.mnt);
    eventually("nothing is decoded for nobody", || daemon.rests());
    place.unmount();
}

/// The reader was in state D, and neither `-u` nor SIGTERM ended the mount.
#[test]
fn a_reader_of_statistics_can_be_killed() {
    if !can_mount() {
        return;
    }
    let sample = Sample::new(&array("zeros", 0, "uint8", "[900000000000]")).block(endless());
    let place = Place::of(&sample);
    assert_eq!(place.mount(&[]).code, 0);
    let mut reader = Command::new("cat");
    let mut reader = reader
        .arg(place.mnt.join("info/stats.tsv"))
        .spawn()
        .unwrap();
    let used = || fs::read_to_string(place.mnt.join("info/status")).unwrap();
    eventually("it decodes", || !used().contains("cache     0 bytes"));
    reader.kill().unwrap();
    reader.wait().unwrap();
    let daemon = Daemon::of(&place.mnt);
    eventually("nothing is decoded for nobody", || daemon.rests());
    place.unmount();
}

/// A terabyte of one byte was summed up.
#[test]
fn an_array_that_shows_a_byte_endlessly_has_no_statistics() {
    if !can_mount() {
        return;
    }
    let fields =
        "source: 0, datatype: uint8, byteorder: little, shape: [1048576, 1048575], strides: [0, 0]";
    let sample = Sample::new(&array_with("a", fields)).block(Block::raw(b"abcd"));
    let (_dir, mount) = mounted(&sample);
    let stats = mount.table("info/stats.tsv");
    assert_eq!(stats[1][1].trim(), "-");
    assert_eq!(
        mount.path("arrays/a.bin").metadata().unwrap().len(),
        1_048_576 * 1_048_575
    );
    mount.unmount();
}

/// What a daemon does.
struct Daemon(String);

impl Daemon {
    fn of(mountpoint: &Path) -> Self {
        Self(format!("/proc/{}/stat", daemons_of(mountpoint)[0]))
    }

    /// Whether it uses no time of a processor for a while.
    fn rests(&self) -> bool {
        let used = || {
            let stat = fs::read_to_string(&self.0).unwrap();
            let behind = stat.rsplit(')').next().unwrap();
            let fields: Vec<&str> = behind.split_whitespace().collect();
            // utime and stime
            [fields[11], fields[12]].map(|ticks| ticks.parse::<u64>().unwrap())
        };
        let before = used();
        std::thread::sleep(Duration::from_millis(200));
        used() == before
    }
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
