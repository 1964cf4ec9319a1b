//! Makes the checksums of headers right, which no mutation would hit.

/// Mends a payload of a code, as far as it has the shape.
pub fn mend(code: [u8; 4], payload: &mut [u8]) {
    let mended = match &code {
        b"xz\0\0" => xz(payload),
        b"lz4f" | b"lz4\0" => lz4_frame(payload),
        _ => None,
    };
    // what is cut short has nothing more to mend
    let _ = mended;
}

/// Stream header, first block header, index and stream footer.
fn xz(payload: &mut [u8]) -> Option<()> {
    let crc = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    let sum = crc(payload.get(6..8)?);
    payload.get_mut(8..12)?.copy_from_slice(&sum);
    let len = payload.len();
    let footer = payload.get_mut(len.checked_sub(12)?..)?;
    let sum = crc(&footer[4..10]);
    footer[..4].copy_from_slice(&sum);
    let backward = u32::from_le_bytes(footer[4..8].try_into().ok()?);
    let index = (u64::from(backward) + 1) * 4;
    let start = (len - 12).checked_sub(usize::try_from(index).ok()?)?;
    sealed(payload, start, len - 12)?;
    let block = (usize::from(*payload.get(12)?) + 1) * 4;
    sealed(payload, 12, 12 + block)
}

/// Puts the sum of a range at its end.
fn sealed(payload: &mut [u8], start: usize, end: usize) -> Option<()> {
    let range = payload.get_mut(start..end)?;
    let (bytes, sum) = range.split_at_mut(range.len().checked_sub(4)?);
    sum.copy_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    Some(())
}

/// The header of the first frame.
fn lz4_frame(payload: &mut [u8]) -> Option<()> {
    let flags = *payload.get(4)?;
    let size = if flags & 8 != 0 { 8 } else { 0 };
    let dictionary = if flags & 1 != 0 { 4 } else { 0 };
    let end = 6 + size + dictionary;
    let sum = xxhash_rust::xxh32::xxh32(payload.get(4..end)?, 0);
    *payload.get_mut(end)? = sum.to_le_bytes()[1];
    Some(())
}
