//! The blocks of a snapshot as sources of decoded bytes.

use std::sync::Arc;

use super::Snapshot;
use super::chain::Chain;
use super::checksum::ChecksumState;
use super::header::BlockHeader;
use crate::codec::{self, Decoded};
use crate::error::{Error, Place, Result};
use crate::source::{Short, Source, Tail, Window, at_most};

/// A block that has been opened.
#[derive(Clone)]
pub(super) struct OpenBlock {
    /// Its decoded bytes.
    data: Arc<dyn Source>,
    /// Name of the framing, where the block is compressed and the framing was recognised.
    framing: Option<&'static str>,
    /// The source `data` again, as a decoder that can be asked for damage; `None` if the block is not compressed.
    compressed: Option<Arc<Decoded>>,
}

impl OpenBlock {
    /// A block without compression.
    fn plain(data: Arc<dyn Source>) -> Self {
        Self {
            data,
            framing: None,
            compressed: None,
        }
    }
}

impl Snapshot {
    /// Length of the decoded data of block `n` in bytes: from its header, or for a streamed block from the present length of the
    /// file. Decodes only a block with an encoding name (ASDF drafts), once. `None` if there is no such block.
    #[must_use]
    pub fn block_len(&self, n: usize) -> Option<u64> {
        let header = self.layout.blocks.get(n)?;
        if header.streamed() {
            return Some(self.tail(header).map_or(0, |tail| tail.len()));
        }
        if header.encoding != [0; 16] {
            // the drafts that name an encoding in the header do not write down how long the decoded data is
            return Some(self.block(n).map_or(header.data_size, |block| block.len()));
        }
        // `data_size` says nothing about data that is not
        // encoded: asdf-python does not look at it either
        Some(if header.is_transformed() {
            header.data_size
        } else {
            header.used
        })
    }

    /// The decoded bytes of block `n`. Decodes nothing yet, unless checksums are to be verified.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its sizes contradict each other or the payload is not what its code says,
    /// [`Error::Unsupported`] for a compression that is not known.
    pub fn block(&self, n: usize) -> Result<Arc<dyn Source>> {
        self.check_sum(n)?;
        self.unverified_block(n)
    }

    /// Verifies the checksum of block `n`, if checksums are to be verified before its bytes are read or written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it does not match; as [`Snapshot::verify_checksum`].
    pub fn check_sum(&self, n: usize) -> Result<()> {
        if self.options.verify && self.verify_checksum(n, &mut |_| {})? == ChecksumState::Wrong {
            let why = "the checksum does not match; without -o verify it can be read and written";
            return Err(Error::corrupt(Place::Block(n), why));
        }
        Ok(())
    }

    /// The decoded bytes of block `n`, whatever its checksum.
    ///
    /// # Errors
    /// As [`Snapshot::block`].
    pub fn unverified_block(&self, n: usize) -> Result<Arc<dyn Source>> {
        Ok(Arc::clone(&self.opened_block(n)?.data))
    }

    /// Name of the framing of a compressed block, if it has one that is known. Looks at the first stored bytes.
    #[must_use]
    pub fn framing(&self, n: usize) -> Option<&'static str> {
        self.opened_block(n).ok()?.framing
    }

    /// Why block `n` can't be read, or the first damage that a read has met so far. Decodes nothing.
    #[must_use]
    pub fn block_error(&self, n: usize) -> Option<Error> {
        match self.opened_block(n) {
            Ok(block) => Some(block.compressed.as_ref()?.damage()?.at(Place::Block(n))),
            Err(error) => Some(error),
        }
    }

    /// Whether a compressed block decodes to more bytes than its header says.
    ///
    /// # Errors
    /// As [`Snapshot::block`]; [`Error::Io`] of reading it.
    pub fn goes_on(&self, n: usize) -> Result<bool> {
        let block = self.opened_block(n)?;
        let (code, stored) = (self.header(n)?.compression, self.stored(n)?);
        let decoded = block.compressed.as_ref();
        decoded.map_or(Ok(false), |decoded| {
            codec::goes_on(code, stored, decoded, &self.cache)
        })
    }

    /// Whether a compressed block, all of which was read, does not end behind its data: no checksum in it says that these are right.
    #[must_use]
    pub fn lacks_end(&self, n: usize) -> bool {
        let block = self.opened_block(n).ok();
        block.is_some_and(|block| {
            block
                .compressed
                .as_ref()
                .is_some_and(|decoded| decoded.stream.lacks_end())
        })
    }

    /// The used bytes of block `n` as they are stored, as far as the file has them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such block.
    pub fn stored(&self, n: usize) -> Result<Arc<dyn Source>> {
        let header = self.header(n)?;
        let window = Window::new(
            Arc::clone(&self.bytes),
            header.data_offset(),
            self.layout.stored_len(n),
        )?;
        Ok(Arc::new(window))
    }

    /// The bytes between the text and the first block, at most `most` of them.
    ///
    /// # Errors
    /// Of reading it.
    pub fn padding(&self, most: u64) -> Result<Vec<u8>> {
        let start = self.layout.text_end;
        let len = self.layout.head().end.saturating_sub(start).min(most);
        let mut padding = vec![0; at_most(len, usize::MAX)];
        self.bytes.read_exact_at(&mut padding, start)?;
        Ok(padding)
    }

    fn header(&self, n: usize) -> Result<&BlockHeader> {
        self.layout.blocks.get(n).ok_or_else(|| {
            let why = format!("no such block; there are {}", self.layout.blocks.len());
            Error::corrupt(Place::Block(n), why)
        })
    }

    /// Block `n`, opened on first use. An error that the file causes is kept and returned again.
    fn opened_block(&self, n: usize) -> Result<&OpenBlock> {
        let header = self.header(n)?;
        let slot = self
            .blocks
            .get(n)
            .ok_or_else(|| Error::corrupt(Place::Block(n), "no such block"))?;
        let open = || self.open_block(n, header);
        slot.get_or_make(|| open().map_err(|error| error.at(Place::Block(n))))
    }

    /// Finds out how block `n` is stored. Decodes nothing, except where a draft's header does not say how long the data are.
    fn open_block(&self, n: usize, header: &BlockHeader) -> Result<OpenBlock> {
        // behind a damaged block the numbers may be off,
        // and `source: 3` could read another array's data
        if let Some(why) = self.layout.withheld(n, self.options.force) {
            return Err(why.clone());
        }
        let corrupt = |why: &str| Err(Error::corrupt(Place::Block(n), why));
        let chain = Chain::named(header.encoding)?;
        if header.streamed() {
            // no size bounds the data of a streamed block:
            // nothing would tell a decoder where to stop
            if header.compression != [0; 4] {
                return corrupt("streamed and compressed");
            }
            if header.encoded() || chain.is_some() {
                return corrupt("streamed and encoded");
            }
            return Ok(OpenBlock::plain(self.tail(header)?));
        }
        let stored = self.stored(n)?;
        if header.encoded() || chain.is_some() {
            return self.open_encoded(header, chain, stored);
        }
        if header.compression != [0; 4] {
            let code = header.compression;
            let (framing, decoded) = codec::decode(code, stored, header.data_size, &self.cache)?;
            return Ok(OpenBlock {
                data: decoded.clone(),
                framing: Some(framing),
                compressed: Some(decoded),
            });
        }
        let there = stored.len();
        // Neither size can be true, so nothing says where the data ends. With only the file
        // too short, below, the end is known, and the bytes before the cut can be read.
        if there < header.used && header.used > header.allocated {
            return corrupt("it uses more bytes than it has allocated, and than there are");
        }
        if there < header.used {
            let why = format!(
                "{} bytes used, but the file or the block ends after {there}",
                header.used
            );
            let short = Short::new(stored, header.used, Error::corrupt(Place::Block(n), why));
            return Ok(OpenBlock::plain(Arc::new(short)));
        }
        Ok(OpenBlock::plain(stored))
    }

    /// The data of a streamed block.
    fn tail(&self, header: &BlockHeader) -> Result<Arc<dyn Source>> {
        // A window would fix the length. `Tail` asks the file at
        // each read, so that readers see what a writer appends.
        if let Some(file) = self.plain_file() {
            return Ok(Arc::new(Tail::new(Arc::clone(file), header.data_offset())));
        }
        let start = header.data_offset();
        let len = self.bytes.len().saturating_sub(start);
        Ok(Arc::new(Window::new(Arc::clone(&self.bytes), start, len)?))
    }

    /// Opens an encoded block of the drafts. `named` is the chain of its encoding name; without it the chain
    /// stands in front of the data.
    fn open_encoded(
        &self,
        header: &BlockHeader,
        named: Option<Chain>,
        stored: Arc<dyn Source>,
    ) -> Result<OpenBlock> {
        let buffers = self.buffers.beneath();
        let (chain, stored, len) = if let Some(chain) = named {
            // a header with an encoding name has no `data_size`:
            // one pass over the data finds the length
            let len = chain.decoded_len(&stored, &buffers)?;
            (chain, stored, len)
        } else {
            let (chain, data) = Chain::read(stored)?;
            (chain, data, header.data_size)
        };
        let data = Arc::new(chain.decoded(stored, len, buffers)?);
        Ok(OpenBlock {
            framing: Some("encoding chain"),
            ..OpenBlock::plain(data)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::OpenOptions;
    use crate::asdf::header::ENCODED;
    use crate::asdf::sample::{Sample, block_with};
    use crate::codec::Cache;
    use crate::source::testing::Refusing;
    use crate::source::{FileSource, Memory, read_all};
    use md5::{Digest, Md5};

    const DATA: &[u8] = &[7; 5000];

    fn zlib(decoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let codec = codec::codec(*b"zlib").unwrap();
        codec
            .encode(None, &Memory::new(decoded.to_vec()), &mut out)
            .unwrap();
        out
    }

    /// A file with a block of zlib, whose checksum is that of the decoded bytes.
    fn compressed() -> Vec<u8> {
        let stored = zlib(DATA);
        let mut block = block_with(*b"zlib", &stored, DATA.len() as u64, stored.len() as u64);
        block[38..54].copy_from_slice(&Md5::digest(DATA));
        Sample::new().stored(block).bytes()
    }

    /// A draft with an encoded block.
    fn encoded() -> Vec<u8> {
        let data = [b"[zlib, zlib]\n...\n", &zlib(&zlib(DATA))[..]].concat();
        let mut file = b"#ASDF 0.1.0\n%YAML 1.1\n---\na: 1\n...\n\xd3BLK\0\x24".to_vec();
        file.extend(ENCODED.to_be_bytes());
        for size in [data.len(), data.len(), DATA.len()] {
            file.extend((size as u64).to_be_bytes());
        }
        file.extend([0; 8]);
        file.extend(data);
        file
    }

    /// A draft whose block has an encoding name, and so no length of its own.
    fn named() -> Vec<u8> {
        let data = zlib(DATA);
        let mut file = b"%FINF 0.1.0\n%YAML 1.1\n---\na: 1\n...\n\x89BLK\0\x28".to_vec();
        for size in [data.len(), data.len()] {
            file.extend((size as u64).to_be_bytes());
        }
        file.extend([0; 8]);
        file.extend(b"zlib\0\0\0\0\0\0\0\0\0\0\0\0");
        file.extend(data);
        file
    }

    /// One read that failed made a block unreadable, or its checksum wrong, as long as the file was mounted.
    #[test]
    fn what_the_medium_refused_once_is_read_the_next_time() {
        for bytes in [compressed(), encoded(), named()] {
            let mut refusals = 0;
            for refused in 0.. {
                let source = Refusing::new(&bytes, refused);
                let file = FileSource::open(Arc::new(tempfile::tempfile().unwrap())).unwrap();
                let cache = Cache::new(16 << 20);
                let options = OpenOptions::default();
                let Ok(snapshot) = Snapshot::read(Arc::new(file), source.clone(), cache, options)
                else {
                    continue;
                };
                let all = || read_all(&*snapshot.block(0)?, 1 << 20);
                let outcomes = [
                    snapshot.verify_checksum(0, &mut |_| {}).map(drop),
                    all().map(drop),
                    snapshot.block_error(0).map_or(Ok(()), Err),
                ];
                for outcome in outcomes {
                    if let Err(error) = outcome {
                        assert!(matches!(error, Error::Io { .. }), "{error}");
                        refusals += 1;
                    }
                }
                let has_refused = source.heal();
                let state = snapshot.verify_checksum(0, &mut |_| {}).unwrap();
                assert_ne!(state, ChecksumState::Wrong);
                assert_eq!(all().unwrap(), DATA);
                assert!(snapshot.block_error(0).is_none());
                if !has_refused {
                    break;
                }
            }
            assert!(refusals > 2);
        }
    }
}
