//! The blocks of a snapshot as sources of decoded bytes.

use std::sync::Arc;

use super::Snapshot;
use super::checksum::ChecksumState;
use super::header::BlockHeader;
use crate::codec;
use crate::error::{Error, Place, Result};
use crate::source::{Short, Source, Tail, Window};

/// A block that has been opened.
#[derive(Clone)]
pub(super) struct Block {
    /// Its decoded bytes, or why they can't be had.
    data: Result<Arc<dyn Source>>,
    /// Name of the framing, where the block is compressed and the framing was recognised.
    framing: Option<&'static str>,
}

impl Snapshot {
    /// Bytes of decoded data in block `n`, known without decoding: what its header says, or for a streamed block what the
    /// file has at the moment. `None` if there is no such block.
    #[must_use]
    pub fn block_len(&self, n: usize) -> Option<u64> {
        let header = self.layout.blocks.get(n)?;
        if header.streamed() {
            return Some(Tail::new(Arc::clone(&self.file), header.data_offset()).len());
        }
        Some(header.data_size)
    }

    /// The decoded bytes of block `n`. Decodes nothing yet, unless checksums are to be verified.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its sizes contradict each other or the payload is not what its code says,
    /// [`Error::Unsupported`] for a compression that is not known.
    pub fn block(&self, n: usize) -> Result<Arc<dyn Source>> {
        if self.options.verify && self.verify_checksum(n, &mut |_| {})? == ChecksumState::Wrong {
            let why = "the checksum does not match; without -o verify it can be read";
            return Err(Error::corrupt(Place::Block(n), why));
        }
        self.unverified_block(n)
    }

    /// The decoded bytes of block `n`, whatever its checksum.
    pub(super) fn unverified_block(&self, n: usize) -> Result<Arc<dyn Source>> {
        self.opened_block(n)?.data.clone()
    }

    /// Name of the framing of a compressed block, if it has one that is known. Looks at the first stored bytes.
    #[must_use]
    pub fn framing(&self, n: usize) -> Option<&'static str> {
        self.opened_block(n).ok()?.framing
    }

    /// Why block `n` can't be read, as far as that shows without decoding.
    #[must_use]
    pub fn block_error(&self, n: usize) -> Option<&Error> {
        self.opened_block(n).ok()?.data.as_ref().err()
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

    fn header(&self, n: usize) -> Result<&BlockHeader> {
        self.layout.blocks.get(n).ok_or_else(|| {
            let why = format!("no such block; there are {}", self.layout.blocks.len());
            Error::corrupt(Place::Block(n), why)
        })
    }

    fn opened_block(&self, n: usize) -> Result<&Block> {
        let header = self.header(n)?;
        let slot = self
            .blocks
            .get(n)
            .ok_or_else(|| Error::corrupt(Place::Block(n), "no such block"))?;
        Ok(slot.get_or_init(|| match self.open_block(n, header) {
            Ok(block) => block,
            Err(error) => Block {
                data: Err(error.at(Place::Block(n))),
                framing: None,
            },
        }))
    }

    fn open_block(&self, n: usize, header: &BlockHeader) -> Result<Block> {
        let corrupt = |why: String| Err(Error::corrupt(Place::Block(n), why));
        if header.encoded() {
            return Err(Error::unsupported(
                Place::Block(n),
                "encoding chains of the ASDF 0.1.0 draft",
            ));
        }
        if header.encoding != [0; 16] {
            let name = header.encoding.escape_ascii().to_string();
            return Err(Error::unsupported(
                Place::Block(n),
                format!("encoding {name}"),
            ));
        }
        if header.streamed() {
            if header.compression != [0; 4] {
                return corrupt("streamed and compressed".to_owned());
            }
            let tail = Tail::new(Arc::clone(&self.file), header.data_offset());
            return Ok(Block {
                data: Ok(Arc::new(tail)),
                framing: None,
            });
        }
        if header.used > header.allocated {
            return corrupt(format!(
                "used {} bytes of {} allocated",
                header.used, header.allocated
            ));
        }
        let stored = self.stored(n)?;
        if header.compression != [0; 4] {
            let (framing, decoded) =
                codec::decode(header.compression, stored, header.data_size, &self.cache)?;
            return Ok(Block {
                data: Ok(Arc::new(decoded)),
                framing: Some(framing),
            });
        }
        if header.data_size != header.used {
            return corrupt(format!(
                "not compressed, but data size {} and used size {}",
                header.data_size, header.used
            ));
        }
        let there = stored.len();
        if there < header.used {
            let why = format!(
                "{} bytes used, but the file ends after {there}",
                header.used
            );
            let short = Short::new(stored, header.used, Error::corrupt(Place::Block(n), why));
            return Ok(Block {
                data: Ok(Arc::new(short)),
                framing: None,
            });
        }
        Ok(Block {
            data: Ok(stored),
            framing: None,
        })
    }
}
