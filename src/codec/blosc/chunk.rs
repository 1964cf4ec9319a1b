//! Blosc1 and Blosc2 chunks: a header, and blocks that can be decoded one by one.
//!
//! Written from Blosc/c-blosc2 README_CHUNK_FORMAT.rst, and for what that leaves open from the behaviour of c-blosc 1.21 and c-blosc2
//! 3.3. All integers are little-endian.
//!
//! | offset | what |
//! |---|---|
//! | 0 | format version: 1, 2 Blosc1; 3 to 5 Blosc2 |
//! | 1 | version of the inner codec, not looked at |
//! | 2 | flags: 1 shuffle, 2 stored uncompressed, 4 bit shuffle, 8 delta, 16 not split, codec in bits 5 to 7 |
//! | 3 | typesize |
//! | 4, 8, 12 | decoded size, block size, size of the chunk with this header |
//! | 16 | if flags have 1 and 4, in Blosc2: six filters, codec, its parameter, six filter parameters, 0, Blosc2 flags |
//! | | block starts (4 bytes each, from the start of the chunk), dictionary (size, bytes), streams (size, bytes) |
//!
//! A block is one stream, or one per byte of an element. No block is decoded but those that are read, and with differences the
//! first. A compressed block must fit in memory as a whole, several times over where it has filters, and may be of [`MAX_BLOCK`]
//! bytes at most; the libraries choose 8 MiB or less by themselves. Stored chunks and runs are taken in blocks of our own size.

use super::filters;
use super::inner::{Decoder, Inner};
use crate::codec::headers::{Headers, array_at, read_into};
use crate::error::{Result, corrupt, unsupported};
use crate::source::{PooledBuf, Source, at_most, len_u64};

/// Greatest block that is decoded.
const MAX_BLOCK: u64 = 16 << 20;
/// Greatest dictionary, as c-blosc2 has it.
const MAX_DICTIONARY: usize = 128 << 10;
/// Size of the blocks in which stored chunks and runs are given, in elements.
const PLAIN_BLOCK: u64 = 64 << 10;
/// Blosc1 splits blocks only for elements up to this size, and streams from this size on.
const MAX_SPLIT: u64 = 16;
const MIN_SPLIT: u64 = 128;

/// Bytes of a chunk's header, and of one that is extended, as those of Blosc2 are.
pub(super) const HEADER: u64 = 16;
pub(super) const EXTENDED: u64 = 32;
/// The flags of a header.
pub(super) const SHUFFLED: u8 = 1;
pub(super) const STORED: u8 = 2;
pub(super) const BIT_SHUFFLED: u8 = 4;
pub(super) const DELTA: u8 = 8;
pub(super) const NOT_SPLIT: u8 = 16;
const DICTIONARY: u8 = 1;
/// Blosc2 flags that change the layout in ways that are not read: a longer header, codecs per stream, lazy and instrumented chunks.
const FOREIGN: u8 = 0x8E;

/// A filter of a chunk's pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    /// Of elements of this size, 0 for the chunk's.
    Shuffle(u8),
    BitShuffle,
    Delta,
    /// Of elements of this size, 0 for the chunk's.
    ByteDelta(u8),
    /// One that is not known.
    Other(u8),
}

/// What the blocks are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Packing {
    /// Block starts, then streams.
    Packed,
    /// The decoded bytes, behind the header.
    Stored,
    /// An element again and again.
    Run(Vec<u8>),
}

/// A chunk whose header has been read and checked against the payload.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    /// Offset of the header in the payload.
    pub(super) at: u64,
    /// Bytes of the chunk.
    pub(super) len: u64,
    header: u64,
    /// Decoded bytes.
    pub(super) size: u64,
    /// Decoded bytes of each block but the last; not 0.
    pub(super) block: u64,
    blosc1: bool,
    split: bool,
    dictionary: bool,
    typesize: u8,
    codec: Inner,
    /// In the order of encoding.
    filters: Vec<Filter>,
    content: Packing,
}

impl Chunk {
    /// Reads the header at `at` of a chunk that may take `room` bytes of the payload and `data_room` decoded bytes.
    pub(super) fn read(headers: &mut Headers, at: u64, room: u64, data_room: u64) -> Result<Self> {
        let [version, _, flags, typesize, sizes @ ..] = headers.array::<16>(at)?;
        let [size, block, len] = [0, 4, 8].map(|n| {
            let bytes = sizes.get(n..).and_then(|bytes| bytes.first_chunk());
            u64::from(bytes.map_or(0, |&bytes| u32::from_le_bytes(bytes)))
        });
        if !(1..=5).contains(&version) {
            return Err(unsupported(format!("Blosc format version {version}")));
        }
        let blosc1 = version < 3;
        let both = SHUFFLED | BIT_SHUFFLED;
        let extended = (!blosc1 && flags & both == both)
            .then(|| headers.array::<32>(at))
            .transpose()?;
        let header = if extended.is_some() { EXTENDED } else { HEADER };
        if len < header || len > room || size > data_room || (block == 0 && size > 0) {
            return Err(corrupt(format!(
                "Blosc chunk of {len} bytes for {size} in blocks of {block}: \
                 {room} bytes are there for {data_room}"
            )));
        }
        let mut chunk = Self {
            at,
            len,
            header,
            size,
            block: block.max(1),
            blosc1,
            split: flags & NOT_SPLIT == 0,
            dictionary: false,
            typesize,
            codec: Inner::of_format(flags >> 5),
            filters: Vec::new(),
            content: Packing::Packed,
        };
        if let Some(extended) = extended {
            chunk.extend(headers, &extended)?;
        } else {
            chunk.set_filters(flags);
        }
        if chunk.content == Packing::Packed && flags & STORED != 0 {
            if len.saturating_sub(header) < size {
                return Err(corrupt("stored Blosc chunk that is too short"));
            }
            chunk.content = Packing::Stored;
        }
        chunk.check_blocks()?;
        Ok(chunk)
    }

    /// A chunk that is not stored at all, but said to be a run of a special value.
    pub(super) fn special(kind: u8, typesize: u8, size: u64) -> Result<Self> {
        let mut chunk = Self {
            at: 0,
            len: 0,
            header: 0,
            size,
            block: 1,
            blosc1: false,
            split: false,
            dictionary: false,
            typesize,
            codec: Inner::BloscLz,
            filters: Vec::new(),
            content: Packing::Run(special_value(kind, typesize)?),
        };
        chunk.check_blocks()?;
        Ok(chunk)
    }

    /// Takes over what the second half of an extended header says.
    fn extend(&mut self, headers: &mut Headers, header: &[u8; 32]) -> Result<()> {
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, rest @ ..] = header;
        let [
            f0,
            f1,
            f2,
            f3,
            f4,
            f5,
            codec,
            _,
            m0,
            m1,
            m2,
            m3,
            m4,
            m5,
            _,
            flags,
        ] = *rest;
        if let Inner::Registered(number) = &mut self.codec {
            *number = codec;
        }
        self.dictionary = flags & DICTIONARY != 0;
        let pipeline = [(f0, m0), (f1, m1), (f2, m2), (f3, m3), (f4, m4), (f5, m5)];
        self.filters = pipeline.into_iter().filter_map(filter).collect();
        if flags & FOREIGN != 0 {
            return Err(unsupported(format!("Blosc2 chunk with flags {flags:#04x}")));
        }
        match (flags >> 4) & 7 {
            0 => {}
            3 => {
                let typesize = usize::from(self.typesize);
                let mut value = Vec::new();
                for n in 0..len_u64(typesize) {
                    let [byte] =
                        headers.array(self.at.saturating_add(EXTENDED).saturating_add(n))?;
                    value.push(byte);
                }
                self.content = Packing::Run(value);
            }
            kind => self.content = Packing::Run(special_value(kind, self.typesize)?),
        }
        Ok(())
    }

    /// Takes the filters from the flags of a short header.
    fn set_filters(&mut self, flags: u8) {
        if flags & DELTA != 0 && !self.blosc1 {
            self.filters.push(Filter::Delta);
        }
        if flags & SHUFFLED != 0 && self.typesize > 1 {
            self.filters.push(Filter::Shuffle(0));
        }
        if flags & BIT_SHUFFLED != 0 {
            self.filters.push(Filter::BitShuffle);
        }
    }

    /// Checks, or for chunks without streams chooses, the size of the blocks.
    fn check_blocks(&mut self) -> Result<()> {
        let typesize = u64::from(self.typesize.max(1));
        match &self.content {
            Packing::Packed if self.block.min(self.size) > MAX_BLOCK => Err(unsupported(format!(
                "Blosc block of {} bytes, at most {MAX_BLOCK} allowed",
                self.block
            ))),
            Packing::Packed => {
                let starts = self.blocks().saturating_mul(4);
                if self.header.saturating_add(starts) > self.len && self.size > 0 {
                    return Err(corrupt("Blosc chunk without room for its block starts"));
                }
                Ok(())
            }
            Packing::Run(value)
                if value.is_empty() || !self.size.is_multiple_of(len_u64(value.len())) =>
            {
                Err(corrupt("Blosc run that is not of whole elements"))
            }
            Packing::Stored | Packing::Run(_) => {
                self.block = PLAIN_BLOCK.saturating_mul(typesize);
                Ok(())
            }
        }
    }

    /// Number of blocks.
    fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block.max(1))
    }

    /// Decoded bytes of block `n`.
    pub(super) fn block_len(&self, n: u64) -> usize {
        let start = n.saturating_mul(self.block);
        let len = self.size.saturating_sub(start).min(self.block);
        usize::try_from(len).unwrap_or(usize::MAX)
    }

    /// The `N` decoded bytes at `offset` that the chunk has there, if they need not be unpacked.
    pub(super) fn plain_at<const N: usize>(
        &self,
        stored: &dyn Source,
        offset: u64,
    ) -> Result<Option<[u8; N]>> {
        match &self.content {
            Packing::Packed => Ok(None),
            Packing::Stored => {
                let start = self.at.saturating_add(self.header);
                array_at(stored, start.saturating_add(offset)).map(Some)
            }
            Packing::Run(value) => {
                let within = offset.checked_rem(len_u64(value.len())).unwrap_or_default();
                let skipped = usize::try_from(within).unwrap_or_default();
                let mut bytes = value.iter().copied().cycle().skip(skipped);
                Ok(Some(std::array::from_fn(|_| {
                    bytes.next().unwrap_or_default()
                })))
            }
        }
    }

    /// Bytes of memory that decoding a block takes: the block, its streams, two buffers for filters, what deltas are to.
    pub(super) fn memory(&self) -> u64 {
        let block = self.block.min(self.size);
        if self.content != Packing::Packed {
            return block;
        }
        let heads = u64::from(self.typesize.max(1)).saturating_mul(4);
        let input = block.saturating_add(heads).min(self.len);
        let buffers = match self.filters.as_slice() {
            [] => 1,
            filters if filters.contains(&Filter::Delta) => 4,
            _ => 3,
        };
        let dictionary = if self.dictionary { MAX_DICTIONARY } else { 0 };
        block
            .saturating_mul(buffers)
            .saturating_add(input)
            .saturating_add(len_u64(dictionary))
    }

    /// Streams of block `n`, of the same decoded length each.
    fn streams(&self, n: u64) -> usize {
        let typesize = u64::from(self.typesize.max(1));
        let short = len_u64(self.block_len(n)) < self.block;
        let fits = !self.blosc1
            || typesize <= MAX_SPLIT && self.block.checked_div(typesize) >= Some(MIN_SPLIT);
        if self.split && !short && fits {
            usize::from(self.typesize.max(1))
        } else {
            1
        }
    }
}

/// The filter of a pipeline slot, if it has one to be undone.
fn filter((id, parameter): (u8, u8)) -> Option<Filter> {
    match id {
        // No filter; and bits cut off, of floats and of integers, which cannot be brought back.
        0 | 4 | 36 => None,
        1 => Some(Filter::Shuffle(parameter)),
        2 => Some(Filter::BitShuffle),
        3 => Some(Filter::Delta),
        35 => Some(Filter::ByteDelta(parameter)),
        _ => Some(Filter::Other(id)),
    }
}

/// The element that a special chunk repeats. A chunk that was not initialised reads as zeros, so that each read gives the same.
fn special_value(kind: u8, typesize: u8) -> Result<Vec<u8>> {
    match (kind, typesize) {
        (1 | 4, _) => Ok(vec![0]),
        (2, 4) => Ok(f32::NAN.to_le_bytes().to_vec()),
        (2, 8) => Ok(f64::NAN.to_le_bytes().to_vec()),
        (2, _) => Err(unsupported(format!(
            "Blosc2 run of NaN of {typesize} bytes"
        ))),
        _ => Err(corrupt(format!("Blosc2 special value {kind}"))),
    }
}

/// Decodes blocks, one after the other, in buffers that are used again.
#[derive(Default)]
pub(super) struct BlockDecoder {
    zstd: Option<Decoder>,
    input: PooledBuf<u8>,
    scratch: [PooledBuf<u8>; 2],
    /// The first block of the chunk at an offset, decoded, for differences to it.
    first: Option<(u64, PooledBuf<u8>)>,
    /// The dictionary of the chunk at an offset.
    dictionary: Option<(u64, PooledBuf<u8>)>,
}

impl BlockDecoder {
    /// Decodes block `n` of a chunk into `out`, which is as long as the block.
    pub(super) fn decode(
        &mut self,
        stored: &dyn Source,
        chunk: &Chunk,
        n: u64,
        out: &mut [u8],
    ) -> Result<()> {
        match &chunk.content {
            Packing::Stored => {
                let offset = chunk
                    .at
                    .saturating_add(chunk.header)
                    .saturating_add(n.saturating_mul(chunk.block));
                return stored.read_exact_at(out, offset);
            }
            Packing::Run(value) => {
                for element in out.chunks_mut(value.len().max(1)) {
                    element.copy_from_slice(value.get(..element.len()).unwrap_or_default());
                }
                return Ok(());
            }
            Packing::Packed => {}
        }
        // all blocks but the first are stored as differences to the first one
        let delta = chunk.filters.contains(&Filter::Delta);
        if delta && n > 0 {
            self.decode_first(stored, chunk)?;
        }
        if chunk.filters.is_empty() {
            return self.unpack(stored, chunk, n, out);
        }
        let [mut from, mut to] = std::mem::take(&mut self.scratch);
        from.reset(out.len());
        to.reset(out.len());
        // taken out, because `unpack` borrows all of the decoder; put back below
        let first = self.first.take_if(|_| delta && n > 0);
        let reference = first.as_ref().map(|(_, first)| first.as_slice());
        let done = self
            .unpack(stored, chunk, n, &mut from)
            .and_then(|()| unfilter(chunk, reference, [&mut from, &mut to], out));
        self.scratch = [from, to];
        self.first = first.or(self.first.take());
        done
    }

    /// Decodes the first block of a chunk and keeps it, unless it is there.
    fn decode_first(&mut self, stored: &dyn Source, chunk: &Chunk) -> Result<()> {
        if self.first.as_ref().is_none_or(|&(at, _)| at != chunk.at) {
            let mut first = PooledBuf::of(chunk.block_len(0));
            self.decode(stored, chunk, 0, &mut first)?;
            self.first = Some((chunk.at, first));
        }
        Ok(())
    }

    /// Decodes the streams of block `n` into `out`.
    fn unpack(&mut self, stored: &dyn Source, chunk: &Chunk, n: u64, out: &mut [u8]) -> Result<()> {
        if chunk.dictionary {
            self.read_dictionary(stored, chunk)?;
        }
        let dictionary = self.dictionary.as_ref().filter(|_| chunk.dictionary);
        let dictionary = dictionary.map_or(&[][..], |(_, bytes)| bytes.as_slice());
        let streams = chunk.streams(n);
        let len = out.len().checked_div(streams).unwrap_or_default();
        if len.saturating_mul(streams) != out.len() || len == 0 {
            return Err(corrupt("Blosc block that is not of whole elements"));
        }
        let mut input = Packed::new(stored, chunk, n, out.len(), streams, &mut self.input)?;
        for out in out.chunks_exact_mut(len) {
            let size = i32::from_le_bytes(input.array()?);
            match usize::try_from(size) {
                // Blosc2: a stream without bytes is zeros, and a negative size is one repeated byte
                Ok(0) => out.fill(0),
                Ok(size) if size == len => out.copy_from_slice(input.take(size)?),
                Ok(size) if size < len => {
                    let (packed, zstd) = (input.take(size)?, &mut self.zstd);
                    chunk.codec.decode(zstd, packed, dictionary, out)?;
                }
                Ok(size) => {
                    return Err(corrupt(format!("Blosc stream of {size} bytes for {len}")));
                }
                Err(_) => out.fill(input.run(size)?),
            }
        }
        Ok(())
    }

    /// Reads the dictionary of a chunk, unless it is there.
    fn read_dictionary(&mut self, stored: &dyn Source, chunk: &Chunk) -> Result<()> {
        if self
            .dictionary
            .as_ref()
            .is_some_and(|&(at, _)| at == chunk.at)
        {
            return Ok(());
        }
        let start = chunk
            .header
            .saturating_add(chunk.blocks().saturating_mul(4));
        let at = chunk.at.saturating_add(start);
        let len = usize::try_from(u32::from_le_bytes(array_at(stored, at)?)).unwrap_or(usize::MAX);
        let end = start.saturating_add(4).saturating_add(len_u64(len));
        if len == 0 || len > MAX_DICTIONARY || end > chunk.len {
            return Err(corrupt(format!("Blosc2 dictionary of {len} bytes")));
        }
        let mut bytes = PooledBuf::default();
        read_into(stored, at.saturating_add(4), len, &mut bytes)?;
        self.dictionary = Some((chunk.at, bytes));
        Ok(())
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        let [a, b] = &self.scratch;
        let kept = [&self.first, &self.dictionary]
            .into_iter()
            .flatten()
            .map(|(_, bytes)| bytes.capacity());
        kept.chain([a.capacity(), b.capacity(), self.input.capacity()])
            .map(len_u64)
            .sum()
    }
}

/// Undoes the filters of a chunk: from the first buffer, through both, into `out`.
fn unfilter(
    chunk: &Chunk,
    first: Option<&[u8]>,
    [from, to]: [&mut PooledBuf<u8>; 2],
    out: &mut [u8],
) -> Result<()> {
    let typesize = usize::from(chunk.typesize);
    let or_typesize = |size: u8| if size == 0 { typesize } else { size.into() };
    for (place, &filter) in chunk.filters.iter().enumerate().rev() {
        match filter {
            Filter::Shuffle(size) if place == 0 => {
                filters::unshuffle(or_typesize(size), from, out);
                return Ok(());
            }
            Filter::Shuffle(size) => {
                filters::unshuffle(or_typesize(size), from, to);
                std::mem::swap(from, to);
            }
            Filter::BitShuffle => {
                filters::bit_unshuffle(typesize, chunk.blosc1, from, to);
                std::mem::swap(from, to);
            }
            // Differences are to decoded data, so no filter can have been there before them.
            Filter::Delta if place == 0 => filters::undelta(typesize, first, from),
            Filter::Delta => return Err(unsupported("a Blosc2 filter in front of delta")),
            Filter::ByteDelta(size) => filters::unbytedelta(or_typesize(size), from),
            Filter::Other(id) => return Err(unsupported(format!("Blosc2 filter {id}"))),
        }
    }
    out.copy_from_slice(from);
    Ok(())
}

/// The streams of a block, read at once as far as the size of the block can be told.
struct Packed<'a> {
    stored: &'a dyn Source,
    bytes: &'a mut PooledBuf<u8>,
    taken: usize,
    /// Offset of the block in the payload, and the most bytes that it takes there.
    at: u64,
    most: usize,
}

impl<'a> Packed<'a> {
    /// The streams of block `n`, which decodes to `size` bytes.
    fn new(
        stored: &'a dyn Source,
        chunk: &Chunk,
        n: u64,
        size: usize,
        streams: usize,
        bytes: &'a mut PooledBuf<u8>,
    ) -> Result<Self> {
        let starts = chunk.at.saturating_add(chunk.header);
        let entry = starts.saturating_add(n.saturating_mul(4));
        let start = u64::from(u32::from_le_bytes(array_at(stored, entry)?));
        let room = chunk.len.checked_sub(start).filter(|&room| room >= 4);
        let Some(room) = room.filter(|_| start >= chunk.header) else {
            return Err(corrupt(format!("Blosc block at {start} of {}", chunk.len)));
        };
        // Blocks stand in any order, so the next start is only a hint.
        let next = if n.saturating_add(1) < chunk.blocks() {
            u32::from_le_bytes(array_at(stored, entry.saturating_add(4))?).into()
        } else {
            chunk.len
        };
        // no stream is longer than what it decodes to, and each has a length of four bytes in front
        let most = at_most(room, size.saturating_add(streams.saturating_mul(4)));
        let hint = next.checked_sub(start).filter(|&hint| hint > 0);
        let at = chunk.at.saturating_add(start);
        read_into(stored, at, at_most(hint.unwrap_or(u64::MAX), most), bytes)?;
        Ok(Self {
            stored,
            bytes,
            taken: 0,
            at,
            most,
        })
    }

    /// The next `len` bytes.
    fn take(&mut self, len: usize) -> Result<&[u8]> {
        let start = self.taken;
        let end = start.saturating_add(len);
        if end > self.bytes.len() && end <= self.most {
            // the hint was too short: the next start is not that of the block behind this one
            read_into(self.stored, self.at, self.most, self.bytes)?;
        }
        self.taken = end;
        let bytes = self.bytes.get(start..end);
        bytes.ok_or_else(|| corrupt("Blosc stream beyond the end of its chunk"))
    }

    /// The next four bytes.
    fn array(&mut self) -> Result<[u8; 4]> {
        let bytes = self.take(4)?.first_chunk().copied();
        Ok(bytes.unwrap_or_default())
    }

    /// The byte of which a stream with a negative size consists.
    fn run(&mut self, size: i32) -> Result<u8> {
        let token = self.take(1)?.first().copied().unwrap_or_default();
        let value = size.checked_neg().and_then(|size| u8::try_from(size).ok());
        if token & 1 == 0 {
            return Err(unsupported(format!(
                "Blosc2 stream with token {token:#04x}"
            )));
        }
        value.ok_or_else(|| corrupt(format!("Blosc2 run of {size}")))
    }
}
