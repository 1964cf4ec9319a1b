//! One bzip2 block: from bits to the bytes before the run-length stage.
//!
//! Two steps. The first undoes Huffman and move-to-front coding and ends with a table of pointers, one for each byte. The
//! second follows them through 3.6 MB of memory, each step waiting for the last; so several blocks are followed at once.
#![expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "inner loops; every index is below a length checked where the table is made, see there"
)]

use super::bits::{BitFault, Bits, Mark};
use crate::source::PooledBuf;

/// Bytes of a block for each level of compression.
pub(super) const LEVEL_LEN: usize = 100_000;

/// Symbols coded with one table before the next selector.
const GROUP_LEN: usize = 50;

/// The longest Huffman code.
const MAX_BITS: u32 = 20;

/// Codes up to this length are found in one step.
const FAST_BITS: u32 = 10;

/// More selectors than a block of 900,000 bytes can use; some encoders write a few too many.
const MAX_SELECTORS: u32 = 18_002;

/// Symbols: two for runs, 255 positions, one for the end.
const MAX_SYMBOLS: usize = 258;

/// A block whose bytes are yet to be put in order.
pub(super) struct Pointers {
    /// For each byte of the sorted column: the byte itself (lower 8 bits), and which entry comes next.
    table: PooledBuf<u32>,
    /// The entry to begin at.
    first: u32,
    /// Checksum of the block's decoded bytes, as stored.
    pub(super) crc: u32,
    /// Bit position behind the block.
    pub(super) end: u64,
}

/// A Huffman code.
struct Code {
    /// By the next [`FAST_BITS`] bits: the symbol, and in the lower 4 bits the length of its code; 0 if the code is longer or there is
    /// none.
    fast: Box<[u16; 1 << FAST_BITS]>,
    /// By length: one more than the last code, aligned to [`MAX_BITS`] bits.
    limit: [u32; MAX_BITS as usize + 1],
    /// By length: what to subtract from a code to get its symbol's place in `symbols`.
    offset: [i32; MAX_BITS as usize + 1],
    /// The symbols by length and value of their codes.
    symbols: Vec<u16>,
}

impl Pointers {
    /// Decodes the block whose mark is at bit `start`, and which may have `max_len` bytes at most.
    pub(super) fn decode(bytes: &[u8], start: u64, max_len: usize) -> Result<Self, BitFault> {
        let mut bits = Bits::new(bytes, start);
        let decoded = Self::read(&mut bits, max_len);
        // the zeros behind the end may seem to contradict the format
        bits.check().and(decoded)
    }

    fn read(bits: &mut Bits<'_>, max_len: usize) -> Result<Self, BitFault> {
        if bits.mark()? != Mark::Block {
            return Err(BitFault::Bad("no block where one is expected"));
        }
        let crc = bits.take(32);
        if bits.bit() {
            return Err(BitFault::Unsupported("randomised block of bzip2 0.9.0"));
        }
        let origin = bits.take(24);
        let used = used_bytes(bits);
        if used.is_empty() {
            return Err(BitFault::Bad("no byte in use"));
        }
        let symbols = used.len() + 2;
        let groups = bits.take(3);
        if !(2..=6).contains(&groups) {
            return Err(BitFault::Bad("not 2 to 6 code tables"));
        }
        let selectors = selectors(bits, groups as usize)?;
        let codes = (0..groups)
            .map(|_| Code::read(bits, symbols))
            .collect::<Result<Vec<_>, _>>()?;
        bits.check()?;
        let mut table = PooledBuf::with_room(max_len);
        let counts = symbols_to_bytes(bits, &used, &selectors, &codes, max_len, &mut table)?;
        bits.check()?;
        // the walk through the table begins there without another check
        if origin as usize >= table.len() {
            return Err(BitFault::Bad("it begins behind its end"));
        }
        link(&mut table, &counts);
        Ok(Self {
            first: table[origin as usize] >> 8,
            table,
            crc,
            end: bits.position(),
        })
    }
}

/// The byte values that occur: 16 flags for 16 groups, then 16 flags for each group that has any.
fn used_bytes(bits: &mut Bits<'_>) -> Vec<u8> {
    let groups = bits.take(16);
    let mut used = Vec::with_capacity(256);
    for group in 0..16_u8 {
        if groups & 0x8000 >> group != 0 {
            let flags = bits.take(16);
            used.extend(
                (0..16)
                    .filter(|bit| flags & 0x8000 >> bit != 0)
                    .map(|bit| group * 16 + bit),
            );
        }
    }
    used
}

/// Which code each group of symbols is in: move-to-front positions, in unary.
fn selectors(bits: &mut Bits<'_>, groups: usize) -> Result<Vec<u8>, BitFault> {
    let count = bits.take(15);
    if count == 0 {
        return Err(BitFault::Bad("no selectors"));
    }
    let mut order = [0, 1, 2, 3, 4, 5];
    let mut selectors = Vec::with_capacity(count.min(MAX_SELECTORS) as usize);
    for n in 0..count {
        let mut position = 0;
        while bits.bit() {
            position += 1;
            if position >= groups {
                return Err(BitFault::Bad("a selector of a table that there is not"));
            }
        }
        order[..=position].rotate_right(1);
        // all are read, because the codes stand behind them; no more are kept than a block can use
        if n < MAX_SELECTORS {
            selectors.push(order[0]);
        }
    }
    bits.check()?;
    Ok(selectors)
}

impl Code {
    /// The code whose lengths follow: the first, then for each symbol steps up or down.
    fn read(bits: &mut Bits<'_>, symbols: usize) -> Result<Self, BitFault> {
        let mut lens = [0_u8; MAX_SYMBOLS];
        let mut len = bits.take(5);
        for place in &mut lens[..symbols] {
            loop {
                if !(1..=MAX_BITS).contains(&len) {
                    return Err(BitFault::Bad("a code length beyond 20"));
                }
                if !bits.bit() {
                    break;
                }
                len = if bits.bit() { len - 1 } else { len + 1 };
            }
            *place = len as u8;
        }
        Ok(Self::of_lengths(&lens[..symbols]))
    }

    /// The canonical code of these lengths, one for each symbol: shorter codes come first, and of one length those of lower
    /// symbols. Codes that are never assigned are allowed; [`Code::next`] refuses their bits. If there are more symbols than codes, the
    /// last ones never occur, as in libbz2.
    fn of_lengths(lens: &[u8]) -> Self {
        let mut code = Self {
            fast: Box::new([0; 1 << FAST_BITS]),
            limit: [0; MAX_BITS as usize + 1],
            offset: [0; MAX_BITS as usize + 1],
            symbols: Vec::with_capacity(lens.len()),
        };
        let mut next = 0_u32;
        for len in 1..=MAX_BITS {
            code.offset[len as usize] = next as i32 - code.symbols.len() as i32;
            let these = (0_u16..)
                .zip(lens)
                .filter(|&(_, &other)| u32::from(other) == len);
            for (symbol, _) in these {
                // also keeps the entries below within the table
                if next >= 1 << len {
                    break;
                }
                if len <= FAST_BITS {
                    let from = (next << (FAST_BITS - len)) as usize;
                    let entry = symbol << 4 | len as u16;
                    code.fast[from..from + (1 << (FAST_BITS - len))].fill(entry);
                }
                code.symbols.push(symbol);
                next += 1;
            }
            code.limit[len as usize] = next << (MAX_BITS - len);
            next <<= 1;
        }
        code
    }

    /// Takes the next symbol. Behind the end of the bytes it decodes zeros, so that the caller must [`Bits::check`] now and then.
    #[inline]
    fn next(&self, bits: &mut Bits<'_>) -> Result<u16, BitFault> {
        let ahead = bits.peek();
        let fast = self.fast[(ahead >> (64 - FAST_BITS)) as usize];
        if fast != 0 {
            bits.skip(u32::from(fast & 0xF));
            return Ok(fast >> 4);
        }
        // longer codes are rare, so that a comparison for each length is fast enough
        let ahead = (ahead >> (64 - MAX_BITS)) as u32;
        for len in FAST_BITS + 1..=MAX_BITS {
            if ahead < self.limit[len as usize] {
                bits.skip(len);
                let place = (ahead >> (MAX_BITS - len)) as i32 - self.offset[len as usize];
                let symbol = usize::try_from(place)
                    .ok()
                    .and_then(|place| self.symbols.get(place));
                return symbol
                    .copied()
                    .ok_or(BitFault::Bad("a code that there is not"));
            }
        }
        Err(BitFault::Bad("a code that there is not"))
    }
}

/// Decodes all symbols to bytes, the lower 8 bits of `table`, which is empty and has room for `max_len`; gives how often each
/// byte occurs.
fn symbols_to_bytes(
    bits: &mut Bits<'_>,
    used: &[u8],
    selectors: &[u8],
    codes: &[Code],
    max_len: usize,
    table: &mut Vec<u32>,
) -> Result<[u32; 256], BitFault> {
    let end = used.len() as u16 + 1;
    let mut order = [0_u8; 256];
    order[..used.len()].copy_from_slice(used);
    let mut counts = [0_u32; 256];
    // The length of a run, digit by digit: 1 or 2 times 1, 2, 4, ...
    let mut run = 0_usize;
    let mut digit = 1_usize;
    for &selector in selectors {
        let code = &codes[usize::from(selector)];
        for _ in 0..GROUP_LEN {
            let symbol = code.next(bits)?;
            if symbol < 2 {
                if digit > max_len {
                    return Err(BitFault::Bad("a run longer than a block may be"));
                }
                run += digit << symbol;
                digit <<= 1;
                continue;
            }
            if run > 0 {
                if run > max_len - table.len() {
                    return Err(BitFault::Bad("more bytes than a block may have"));
                }
                counts[usize::from(order[0])] += run as u32;
                table.resize(table.len() + run, u32::from(order[0]));
                run = 0;
                digit = 1;
            }
            if symbol == end {
                return Ok(counts);
            }
            if table.len() >= max_len {
                return Err(BitFault::Bad("more bytes than a block may have"));
            }
            // Below `end`, so below the number of bytes in use.
            let position = usize::from(symbol - 1);
            let byte = order[position];
            order.copy_within(..position, 1);
            order[0] = byte;
            counts[usize::from(byte)] += 1;
            table.push(u32::from(byte));
        }
        bits.check()?;
    }
    Err(BitFault::Bad("more symbols than selectors for them"))
}

/// Adds the pointers: entry `n` of the sorted column is followed by the one that its byte, sorted, came from.
fn link(table: &mut [u32], counts: &[u32; 256]) {
    let mut places = [0_u32; 256];
    let mut sum = 0;
    for (place, count) in places.iter_mut().zip(counts) {
        *place = sum;
        sum += count;
    }
    // The counts are of just these bytes, so that each place is used once, and is below the length.
    for n in 0..table.len() {
        let byte = (table[n] & 0xFF) as usize;
        let place = places[byte] as usize;
        places[byte] += 1;
        table[place] |= (n as u32) << 8;
    }
}

/// A block whose pointers are being followed.
struct Lane<'a> {
    table: &'a [u32],
    next: u32,
    out: &'a mut [u8],
}

/// The bytes of several blocks, in order.
pub(super) fn follow(blocks: &[Pointers]) -> Vec<PooledBuf<u8>> {
    let lens = blocks.iter().map(|block| block.table.len());
    let mut outs: Vec<_> = lens.map(PooledBuf::of).collect();
    let mut lanes: Vec<Lane<'_>> = blocks
        .iter()
        .zip(&mut outs)
        .map(|(block, out)| Lane {
            table: &block.table,
            next: block.first,
            out,
        })
        .collect();
    while !lanes.is_empty() {
        for some in lanes.chunks_mut(MAX_LANES) {
            follow_some(some);
        }
        lanes.retain(|lane| !lane.out.is_empty());
    }
    outs
}

/// Blocks followed at once, at most.
const MAX_LANES: usize = 8;

/// Follows up to [`MAX_LANES`] blocks as far as the shortest reaches, in the copy of the loop that is compiled for their number.
fn follow_some(lanes: &mut [Lane<'_>]) {
    macro_rules! by_count {
        ($($count:literal)*) => {
            match lanes.len() {
                $($count => {
                    if let Ok(lanes) = lanes.try_into() {
                        follow_lanes::<$count>(lanes);
                    }
                })*
                _ => {}
            }
        };
    }
    by_count!(1 2 3 4 5 6 7 8);
}

/// Follows `N` blocks as far as the shortest reaches.
fn follow_lanes<const N: usize>(lanes: &mut [Lane<'_>; N]) {
    let steps = lanes.iter().map(|lane| lane.out.len()).min().unwrap_or(0);
    let mut next = [0_u32; N];
    for (next, lane) in next.iter_mut().zip(lanes.iter()) {
        *next = lane.next;
    }
    for step in 0..steps {
        for (next, lane) in next.iter_mut().zip(lanes.iter_mut()) {
            let entry = lane.table[*next as usize];
            lane.out[step] = entry as u8;
            *next = entry >> 8;
        }
    }
    for (next, lane) in next.into_iter().zip(lanes) {
        lane.next = next;
        lane.out = std::mem::take(&mut lane.out).split_at_mut(steps).1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libbz2 reads such a table, which a damaged file may have where no selector leads to it.
    #[test]
    fn of_more_symbols_than_codes_the_last_ones_never_occur() {
        let code = Code::of_lengths(&[2, 1, 2, 2, 1, 3, 20]);
        let bytes = [0b0100_0000, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut bits = Bits::new(&bytes, 0);
        let found: Vec<_> = (0..3).map(|_| code.next(&mut bits).ok()).collect();
        assert_eq!(found, [Some(1), Some(4), Some(1)]);
    }
}
