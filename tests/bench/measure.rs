//! Times what `scripts/bench` compares a mount with, without the cost of a scripting language: a codec's crate alone, and reads
//! at random places. Prints seconds.
//!
//!     measure codec CODE FILE OFFSET LEN     decode LEN stored bytes at OFFSET, as fast as the crate does it
//!     measure random FILE OFFSET LEN COUNT   the median of COUNT reads of 4 KiB within LEN bytes at OFFSET
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a measuring tool for the benchmark: wrong input may end it"
)]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const PAGE: u64 = 4096;
/// The size of the buffer that decoded bytes go to, like the largest read of the kernel.
const BUFFER: usize = 128 << 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args[at].parse::<u64>().unwrap();
    let seconds = match args[0].as_str() {
        "codec" => codec(&args[1], &args[2], number(3), number(4)),
        "random" => random(&args[1], number(2), number(3), number(4)),
        other => panic!("unknown measurement {other}"),
    };
    println!("{seconds:.9}");
}

fn codec(code: &str, path: &str, offset: u64, len: u64) -> f64 {
    let mut stored = vec![0; len as usize];
    File::open(path)
        .unwrap()
        .read_exact_at(&mut stored, offset)
        .unwrap();
    let start = Instant::now();
    match code {
        "zlib" => drain(flate2::read::ZlibDecoder::new(&stored[..])),
        "bzp2" => drain(bzip2::read::MultiBzDecoder::new(&stored[..])),
        "lz4" => lz4(&stored),
        other => panic!("unknown code {other}"),
    }
    start.elapsed().as_secs_f64()
}

fn drain(mut decoder: impl Read) {
    let mut buf = vec![0; BUFFER];
    while decoder.read(&mut buf).unwrap() > 0 {}
}

/// Chunks as Python writes them: length (big-endian), decoded size (little-endian), LZ4 block.
fn lz4(mut stored: &[u8]) {
    let mut out = Vec::new();
    while let Some((len, rest)) = stored.split_first_chunk() {
        let (chunk, next) = rest.split_at(u32::from_be_bytes(*len) as usize);
        let (size, packed) = chunk.split_first_chunk().unwrap();
        out.resize(u32::from_le_bytes(*size) as usize, 0);
        lz4_flex::block::decompress_into(packed, &mut out).unwrap();
        std::hint::black_box(&out);
        stored = next;
    }
}

fn random(path: &str, offset: u64, len: u64, count: u64) -> f64 {
    let file = File::open(path).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut buf = [0; PAGE as usize];
    let mut one = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let start = Instant::now();
        file.read_exact_at(&mut buf, offset + state % (len / PAGE) * PAGE)
            .unwrap();
        start.elapsed().as_secs_f64()
    };
    let mut seconds: Vec<f64> = (0..count).map(|_| one()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
