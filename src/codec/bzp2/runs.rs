//! The run-length stage of a bzip2 block, and its checksum.
//!
//! Four equal bytes are followed by a count of more of them, 0 to 255; so a block may have 52 times as many bytes as it is
//! stored in, which are made only when they are read.

use crate::source::len_u64;
use std::sync::LazyLock;

/// Equal bytes before a count.
const RUN: usize = 4;

/// The most that a count can say.
const MAX_REPEAT: usize = 255;

/// The generator of the checksum: CRC-32, the most significant bit first.
const CRC_POLYNOMIAL: u32 = 0x04C1_1DB7;

/// By byte, and by how many more bytes follow it in a word: what it does to the checksum.
static CRC_TABLES: LazyLock<[[u32; 256]; 8]> = LazyLock::new(crc_tables);

/// Splits a part off the start of a block: bytes as they are, how often the last of these comes again, and what is behind. The part ends
/// with the first count; without one it is all of the block.
pub(super) fn split_span(bytes: &[u8]) -> (&[u8], u8, &[u8]) {
    let run = bytes
        .windows(RUN)
        .position(|run| matches!(run, [a, b, c, d] if a == b && b == c && c == d));
    let end = run.map_or(bytes.len(), |start| start.saturating_add(RUN));
    let (literal, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    match rest.split_first() {
        Some((&count, behind)) => (literal, count, behind),
        None => (literal, 0, rest),
    }
}

/// Length and checksum of a block's decoded bytes.
pub(super) fn measure(bytes: &[u8]) -> (u64, u32) {
    let mut crc = u32::MAX;
    let mut len = 0_u64;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (literal, repeat, behind) = split_span(rest);
        crc = crc_of(crc, literal);
        if let Some(&byte) = literal.last() {
            let more = [byte; MAX_REPEAT];
            crc = crc_of(crc, more.get(..repeat.into()).unwrap_or_default());
        }
        len = len
            .saturating_add(len_u64(literal.len()))
            .saturating_add(repeat.into());
        rest = behind;
    }
    (len, !crc)
}

/// The checksum `before` carried on over `bytes`, eight at a time. It is neither inverted at the start nor at the end.
fn crc_of(before: u32, bytes: &[u8]) -> u32 {
    let tables = &*CRC_TABLES;
    let at = |table: usize, byte: u8| {
        let table = tables.get(table);
        table
            .and_then(|table| table.get(usize::from(byte)))
            .copied()
            .unwrap_or(0)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = before;
    for &[a, b, c, d, e, f, g, h] in words {
        let [w, x, y, z] = crc.to_be_bytes();
        crc = at(7, a ^ w)
            ^ at(6, b ^ x)
            ^ at(5, c ^ y)
            ^ at(4, d ^ z)
            ^ at(3, e)
            ^ at(2, f)
            ^ at(1, g)
            ^ at(0, h);
    }
    for &byte in rest {
        let [high, ..] = crc.to_be_bytes();
        crc = crc.wrapping_shl(8) ^ at(0, high ^ byte);
    }
    crc
}

/// Table `n` has for each byte the checksum that it leaves when `n` zero bytes follow it.
fn crc_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut table = [0_u32; 256];
    for (byte, entry) in (0_u32..).zip(&mut table) {
        let mut crc = byte.wrapping_shl(24);
        for _ in 0..8 {
            let carry = crc.leading_zeros() == 0;
            crc = crc.wrapping_shl(1) ^ if carry { CRC_POLYNOMIAL } else { 0 };
        }
        *entry = crc;
    }
    let first = table;
    for place in &mut tables {
        *place = table;
        for entry in &mut table {
            let [high, ..] = entry.to_be_bytes();
            let carried = first.get(usize::from(high)).copied().unwrap_or(0);
            *entry = entry.wrapping_shl(8) ^ carried;
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_catalogue() {
        // CRC-32/BZIP2 of "123456789", and of some zeros by the definition alone.
        assert_eq!(measure(b"123456789"), (9, 0xFC89_1918));
        assert_eq!(!crc_of(u32::MAX, b"123456789123456789"), {
            let bitwise = |crc: u32, byte: u8| {
                (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
                    crc << 1 ^ if crc >> 31 == 1 { CRC_POLYNOMIAL } else { 0 }
                })
            };
            !b"123456789123456789"
                .iter()
                .fold(u32::MAX, |crc, &byte| bitwise(crc, byte))
        });
    }

    #[test]
    fn four_equal_bytes_have_a_count_behind_them() {
        assert_eq!(split_span(b"abcde"), (&b"abcde"[..], 0, &b""[..]));
        assert_eq!(split_span(b"xaaaa\x05yy"), (&b"xaaaa"[..], 5, &b"yy"[..]));
        assert_eq!(
            split_span(b"aaaa\x00aaaa\x02"),
            (&b"aaaa"[..], 0, &b"aaaa\x02"[..])
        );
        assert_eq!(
            split_span(b"zzaaaa"),
            (&b"zzaaaa"[..], 0, &b""[..]),
            "a count that is missing is none"
        );
        assert_eq!(measure(b"aaaa\xFFaaaa\xFF").0, 518);
    }
}
