//! PNG files whose pixels are stored as they are: their length follows from width and height.
//!
//! PNG specification (third edition), sections 5 and 11; the pixels are indexes into a palette, in a zlib stream (RFC 1950) of stored
//! deflate blocks (RFC 1951, section 3.2.4), one for each row.

use crate::codec::{ADLER_START, adler32, crc32};
use crate::source::len_u64;

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n'];
/// Bytes of a chunk beside its data: length, type and sum.
const CHUNK: u64 = 12;
/// What a zlib stream of stored blocks begins with.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// Bytes in front of a row: those of a stored block, and the filter.
const ROW_HEADER: u64 = 6;

/// Bytes of a picture.
pub(super) fn len(width: u16, height: u16) -> u64 {
    let pixels = stream_len(width, height);
    let parts = [
        len_u64(SIGNATURE.len()),
        CHUNK,
        13,
        CHUNK,
        768,
        CHUNK,
        pixels,
        CHUNK,
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Bytes of the zlib stream.
fn stream_len(width: u16, height: u16) -> u64 {
    let row = u64::from(width).saturating_add(ROW_HEADER);
    u64::from(height).saturating_mul(row).saturating_add(6)
}

/// The picture of these pixels, whole rows of them from the top.
pub(super) fn file(width: u16, pixels: &[u8], palette: &[[u8; 3]; 256]) -> Vec<u8> {
    let rows = pixels.chunks_exact(usize::from(width.max(1)));
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    let size = |side: u16| u32::from(side).to_be_bytes();
    // 8 bits a pixel, of a palette; nothing interlaced
    let header = [&size(width)[..], &size(height), &[8, 3, 0, 0, 0]].concat();
    let mut stream = ZLIB.to_vec();
    let mut adler = ADLER_START;
    let stored = width.saturating_add(1).to_le_bytes();
    let inverse = stored.map(|byte| !byte);
    for (y, row) in (1..).zip(rows) {
        stream.push(u8::from(y == height));
        stream.extend(stored);
        stream.extend(inverse);
        stream.push(0);
        stream.extend(row);
        adler = adler32(adler, &[0]);
        adler = adler32(adler, row);
    }
    stream.extend(adler.to_be_bytes());
    let mut out = SIGNATURE.to_vec();
    chunk(&mut out, *b"IHDR", &header);
    chunk(&mut out, *b"PLTE", palette.as_flattened());
    chunk(&mut out, *b"IDAT", &stream);
    chunk(&mut out, *b"IEND", &[]);
    out
}

/// Appends a chunk: length, type, data, and the CRC-32 of type and data (PNG, section 5.3).
fn chunk(out: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    out.extend(len.to_be_bytes());
    out.extend(kind);
    out.extend(data);
    let crc = crc32(crc32(0, &kind), data);
    out.extend(crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_chunk_ends_with_the_sum_of_its_type_and_data() {
        let mut out = Vec::new();
        chunk(&mut out, *b"IEND", &[]);
        assert_eq!(out, b"\0\0\0\0IEND\xae\x42\x60\x82");
        out.clear();
        chunk(&mut out, *b"1234", b"56789");
        assert!(out.ends_with(&0xCBF4_3926_u32.to_be_bytes()));
    }

    #[test]
    fn another_decoder_finds_the_pixels() {
        for (width, height) in [(1, 1), (7, 3), (300, 400)] {
            let pixels: Vec<u8> = (0..usize::from(width) * height).map(|i| i as u8).collect();
            let file = file(width, &pixels, &[[1, 2, 3]; 256]);
            assert_eq!(file.len() as u64, len(width, height as u16));
            let stream = 8 + 25 + 780 + 8;
            let mut found = Vec::new();
            let mut decoder = flate2::read::ZlibDecoder::new(&file[stream..]);
            decoder.read_to_end(&mut found).unwrap();
            let rows = pixels.chunks(usize::from(width));
            let want: Vec<u8> = rows.flat_map(|row| [&[0], row].concat()).collect();
            assert_eq!(found, want);
        }
    }
}
