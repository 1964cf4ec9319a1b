//! Writing: one stream of segments that refer to nothing before them.
//!
//! Every reader takes it for an ordinary stream, and it is 0.04 % longer than one. But its segments are made on several
//! cores, and reading it needs no window at the start of a segment.

use std::io::Write;
use std::thread;

use super::super::SEGMENT;
use super::super::inflate::{ADLER_START, adler32, adler32_combine, deflate};
use crate::error::{Error, Place, Result};
use crate::source::Source;

/// First bytes of a stream: a window of 32 KiB, the default level.
const HEADER: [u8; 2] = [0x78, 0x9C];

/// zlib's default, and Python's.
const LEVEL: i32 = 6;

/// Segments made at once, at most.
const AT_ONCE: usize = 4;

pub(super) fn encode(decoded: &dyn Source, out: &mut dyn Write) -> Result<()> {
    let at_once = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(AT_ONCE);
    write(out, &HEADER)?;
    let mut adler = ADLER_START;
    let mut offset = 0_u64;
    let mut ended = false;
    while !ended {
        let mut plain = Vec::new();
        while plain.len() < at_once && !ended {
            let left = decoded.len().saturating_sub(offset);
            let len = usize::try_from(left).map_or(SEGMENT, |left| left.min(SEGMENT));
            let mut segment = vec![0; len];
            decoded.read_exact_at(&mut segment, offset)?;
            offset = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
            ended = offset >= decoded.len();
            plain.push((segment, ended));
        }
        for piece in encode_all(&plain) {
            let piece = piece?;
            write(out, &piece.deflated)?;
            adler = adler32_combine(adler, piece.adler, piece.len);
        }
    }
    write(out, &adler.to_be_bytes())
}

struct Piece {
    deflated: Vec<u8>,
    adler: u32,
    len: usize,
}

/// Encodes each segment, on a thread of its own but for the first.
fn encode_all(plain: &[(Vec<u8>, bool)]) -> Vec<Result<Piece>> {
    let Some((first, others)) = plain.split_first() else {
        return Vec::new();
    };
    thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|segment| scope.spawn(move || encode_one(segment)))
            .collect();
        let mut pieces = vec![encode_one(first)];
        pieces.extend(others.into_iter().map(|other| {
            other
                .join()
                .unwrap_or_else(|_| Err(Error::corrupt(Place::File, "zlib: encoder panicked")))
        }));
        pieces
    })
}

fn encode_one((segment, last): &(Vec<u8>, bool)) -> Result<Piece> {
    Ok(Piece {
        deflated: deflate(segment, LEVEL, *last)?,
        adler: adler32(ADLER_START, segment),
        len: segment.len(),
    })
}

fn write(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes)
        .map_err(|cause| Error::io("writing a zlib stream", cause))
}
