//! Headers of Zstandard frames, and the walk along them.
//!
//! Written from RFC 8878 §3.1.1 (frames), §3.1.1.2 (blocks), §3.1.2 (skippable frames), and for the seek table from facebook/zstd,
//! contrib/seekable_format/zstd_seekable_compression_format.md 0.1.0.

use crate::codec::caller::Steps;
use crate::codec::entries::Entries;
use crate::codec::headers::{Headers, array_at, read_into};
use crate::codec::input::MAX_IDLE;
use crate::error::{Error, Result, corrupt, unsupported};
use crate::source::{PooledBuf, Source, at_most, len_u64};

const MAGIC: u32 = 0xFD2F_B528;
/// Skippable frames have magics from here to here + 15.
const SKIPPABLE: u32 = 0x184D_2A50;
/// The skippable frame of a seek table, and the last four bytes of it.
const SEEK_TABLE: u32 = 0x184D_2A5E;
const SEEKABLE: u32 = 0x8F92_EAB1;
/// Greatest seek table that is read, enough for five million frames: it is read as a whole before anything is decoded.
const MAX_SEEK_TABLE: u64 = 64 << 20;
/// The seek table is read in pieces of so many entries.
const SEEK_ENTRIES: usize = 4096;
/// Greatest window that is decoded: 2^27 bytes, as the library's own default has it.
const MAX_WINDOW: u64 = 1 << 27;
const MIN_WINDOW: u64 = 1 << 10;

/// What the header of a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Bytes that a decoder must remember.
    pub(super) window: usize,
    /// Decoded length of the frame, where the writer knew it.
    pub(super) content_size: Option<u64>,
    /// Offset of the first block in the payload.
    blocks: u64,
    checksum: bool,
}

/// The frame at `at` or, behind skippable ones, after it: its offset and header; `None` at the end of the payload.
pub(super) fn next_frame(stored: &dyn Source, mut at: u64) -> Result<Option<(u64, Frame)>> {
    for _ in 0..MAX_IDLE {
        if at >= stored.len() {
            return Ok(None);
        }
        let magic = u32::from_le_bytes(array_at(stored, at)?);
        if magic == MAGIC {
            return Ok(Some((at, header(stored, at)?)));
        }
        if magic & !0xF != SKIPPABLE {
            return Err(corrupt(format!(
                "magic {magic:08x} is not that of a zstd frame"
            )));
        }
        let len = u32::from_le_bytes(array_at(stored, at.saturating_add(4))?);
        at = at.saturating_add(8).saturating_add(len.into());
    }
    Err(corrupt(format!("more than {MAX_IDLE} frames without data")))
}

/// Reads the frame header at `at`, behind the magic.
fn header(stored: &dyn Source, at: u64) -> Result<Frame> {
    let mut at = at.saturating_add(4);
    let mut field = |len: usize| -> Result<u64> {
        let mut bytes = [0; 8];
        stored.read_exact_at(bytes.get_mut(..len).unwrap_or_default(), at)?;
        at = at.saturating_add(len_u64(len));
        Ok(u64::from_le_bytes(bytes))
    };
    // RFC 8878 §3.1.1.1.1: the descriptor tells which fields follow, and how long they are.
    let descriptor = field(1)?;
    let single_segment = descriptor & 0x20 != 0;
    let window = if single_segment {
        None
    } else {
        Some(field(1)?)
    };
    let dictionary = field(match descriptor & 3 {
        3 => 4,
        len => usize::try_from(len).unwrap_or_default(),
    })?;
    if dictionary != 0 {
        return Err(unsupported(format!(
            "zstd frame for dictionary {dictionary}"
        )));
    }
    let content_size = match (descriptor >> 6, single_segment) {
        (0, false) => None,
        (0, true) => Some(field(1)?),
        // §3.1.1.1.4: a field of two bytes counts from 256.
        (1, _) => Some(field(2)?.saturating_add(256)),
        (2, _) => Some(field(4)?),
        _ => Some(field(8)?),
    };
    let window = match window {
        None => content_size.unwrap_or_default(),
        // §3.1.1.1.2: exponent and mantissa.
        Some(code) => {
            let base = 1u64 << (10u64.saturating_add(code >> 3));
            base.saturating_add((base >> 3).saturating_mul(code & 7))
        }
    };
    if window > MAX_WINDOW {
        return Err(unsupported(format!(
            "zstd window of {window} bytes, at most {MAX_WINDOW} allowed"
        )));
    }
    Ok(Frame {
        window: usize::try_from(window.max(MIN_WINDOW)).unwrap_or_default(),
        content_size,
        blocks: at,
        checksum: descriptor & 4 != 0,
    })
}

/// The offset behind a frame, found along its block headers.
fn frame_end(stored: &dyn Source, frame: &Frame, steps: &mut Steps) -> Result<u64> {
    let mut headers = Headers::new(stored);
    let mut at = frame.blocks;
    let mut idle = 0u32;
    loop {
        steps.check()?;
        let [a, b, c] = headers.array(at)?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = u64::from(header >> 3);
        // §3.1.1.2: a block of type RLE stores one byte, whatever its size.
        let stored_size = match (header >> 1) & 3 {
            1 => 1,
            3 => return Err(corrupt("zstd block of a reserved type")),
            _ => size,
        };
        at = at.saturating_add(3).saturating_add(stored_size);
        if header & 1 != 0 {
            return Ok(at.saturating_add(if frame.checksum { 4 } else { 0 }));
        }
        idle = if size == 0 { idle.saturating_add(1) } else { 0 };
        if idle > MAX_IDLE {
            return Err(corrupt(format!(
                "more than {MAX_IDLE} zstd blocks without data"
            )));
        }
    }
}

/// The starts of frames that are known so far, by decoded offset.
pub(super) struct Frames {
    pub(super) entries: Entries<u64>,
    found: FoundBy,
    data_size: u64,
}

/// How the starts of frames are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    /// They were not looked for yet.
    Nothing,
    /// A seek table has all of them.
    Table,
    /// Headers: the decoded offset and the offset in the payload of the next frame to look at.
    Headers(u64, u64),
    /// Decoding alone.
    Decoding,
}

impl Frames {
    /// Only the start is known.
    pub(super) fn new(data_size: u64) -> Self {
        Self {
            entries: Entries::new(data_size, 0),
            found: FoundBy::Nothing,
            data_size,
        }
    }

    /// The last frame that is known to start at or before `offset`: its decoded offset and its offset in the payload.
    ///
    /// Looks at headers up to there, or once at a seek table.
    pub(super) fn at(&mut self, stored: &dyn Source, offset: u64) -> (u64, u64) {
        if self.found == FoundBy::Nothing && offset > 0 {
            self.found = match seek_table(stored, self.data_size) {
                Ok(entries) => {
                    self.entries = entries;
                    FoundBy::Table
                }
                // The next one to ask may get further.
                Err(Error::Io { .. }) => return (0, 0),
                Err(_) => FoundBy::Headers(0, 0),
            }
        }
        let (mut idle, mut steps) = (0u32, Steps::default());
        while let FoundBy::Headers(decoded, at) = self.found
            && decoded <= offset
        {
            self.entries.add(decoded, at);
            let next = match behind(stored, (decoded, at), offset, &mut steps) {
                Ok(next) => next,
                // the medium, or the reader is gone
                Err(Error::Io { .. }) => break,
                // Damage is told by the cursor that runs into it.
                Err(_) => FoundBy::Decoding,
            };
            if next == self.found {
                break;
            }
            idle = match next {
                FoundBy::Headers(end, _) if end == decoded => idle.saturating_add(1),
                _ => 0,
            };
            self.found = if idle < MAX_IDLE {
                next
            } else {
                FoundBy::Decoding
            };
        }
        self.entries.at(offset)
    }

    /// Keeps the start of a frame that decoding ran into.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is another one than a seek table says. The table is of no more use then: the bytes at its entries may have
    /// other offsets than it says.
    pub(super) fn meet(&mut self, decoded: u64, at: u64) -> Result<()> {
        let (start, before) = self.entries.at(decoded);
        let [_, behind] = self.entries.around(decoded);
        let fits = before < at || before == at && start == decoded;
        if self.found == FoundBy::Table && !(fits && behind.is_none_or(|&(_, behind)| at < behind))
        {
            (self.entries, self.found) = (Entries::new(self.data_size, 0), FoundBy::Decoding);
            let why = format!("zstd frame at {at} of the payload, where no seek table has it");
            return Err(corrupt(why));
        }
        self.entries.add(decoded, at);
        Ok(())
    }
}

/// Where the frame behind the one at `at` starts: the same place if that one holds `offset`.
fn behind(
    stored: &dyn Source,
    (decoded, at): (u64, u64),
    offset: u64,
    steps: &mut Steps,
) -> Result<FoundBy> {
    let next = next_frame(stored, at)?;
    let Some((frame, size)) = next.and_then(|(_, frame)| Some((frame, frame.content_size?))) else {
        return Ok(FoundBy::Decoding);
    };
    let end = decoded.saturating_add(size);
    if end > offset {
        return Ok(FoundBy::Headers(decoded, at));
    }
    Ok(FoundBy::Headers(end, frame_end(stored, &frame, steps)?))
}

/// The frames that a seek table at the end of the payload lists.
///
/// Its sums must be the lengths of the payload and of the data; what the entries say besides is checked by the cursors that come to the
/// frames ([`Frames::meet`]).
fn seek_table(stored: &dyn Source, data_size: u64) -> Result<Entries<u64>> {
    let none = || corrupt("no seek table");
    let footer = stored.len().checked_sub(9).ok_or_else(none)?;
    let [n0, n1, n2, n3, descriptor, magic @ ..] = array_at::<9>(stored, footer)?;
    if u32::from_le_bytes(magic) != SEEKABLE || descriptor & 0x7C != 0 {
        return Err(none());
    }
    let count = u64::from(u32::from_le_bytes([n0, n1, n2, n3]));
    let width: usize = if descriptor & 0x80 != 0 { 12 } else { 8 };
    // Entries have a checksum if the descriptor says so.
    let size = count.saturating_mul(len_u64(width));
    let at = footer.checked_sub(size).filter(|_| size <= MAX_SEEK_TABLE);
    let mut at = at.ok_or_else(none)?;
    let table = at.checked_sub(8).ok_or_else(none)?;
    let start = array_at::<8>(stored, table)?;
    let [magic, len] = [0, 4].map(|n| start.get(n..).and_then(|part| part.first_chunk::<4>()));
    if magic != Some(&SEEK_TABLE.to_le_bytes())
        || len.map(|&len| u64::from(u32::from_le_bytes(len))) != Some(size.saturating_add(9))
    {
        return Err(none());
    }
    let mut entries = Entries::new(data_size, 0);
    let (mut compressed, mut decoded) = (0u64, 0u64);
    let mut buf = PooledBuf::default();
    while at < footer {
        let len = at_most(
            footer.saturating_sub(at),
            SEEK_ENTRIES.saturating_mul(width),
        );
        for entry in read_into(stored, at, len, &mut buf)?.chunks_exact(width) {
            if let [a, b, c, d, e, f, g, h, ..] = *entry {
                entries.add(decoded, compressed);
                compressed = compressed.saturating_add(u32::from_le_bytes([a, b, c, d]).into());
                decoded = decoded.saturating_add(u32::from_le_bytes([e, f, g, h]).into());
            }
        }
        at = at.saturating_add(len_u64(len));
    }
    if compressed != table || decoded != data_size {
        return Err(none());
    }
    Ok(entries)
}
