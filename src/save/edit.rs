//! What a save changes, in the words of the format: text, blocks, headers.
//!
//! An edit says nothing of offsets. Stored bytes are given as they are to lie on disk, encoded and with their MD5, so planning and
//! committing never decode.

use std::sync::Arc;

use crate::asdf::layout::Extent;
use crate::error::{Error, Place, Result};
use crate::source::Source;

/// Everything that one save changes.
#[derive(Clone, Default)]
pub struct Edit {
    /// The new text, if it changes: `#ASDF` line to the newline of the `...` line.
    ///
    /// A first block for a file that has none needs it in any case, because the space between text and block is then new.
    pub text: Option<Arc<Vec<u8>>>,
    /// Changes of blocks, one after the other: an index means the blocks as the edits before have left them.
    pub blocks: Vec<BlockEdit>,
}

/// A change of one block.
#[derive(Clone)]
pub enum BlockEdit {
    /// Other stored bytes for block `n`.
    Replace {
        /// The block.
        n: usize,
        /// What it is to hold.
        stored: StoredBlock,
    },
    /// Another checksum for block `n`, whose stored bytes stay.
    Checksum {
        /// The block.
        n: usize,
        /// MD5 of the used bytes, all zero for "not verified".
        md5: [u8; 16],
    },
    /// A new block behind the last one.
    Append(StoredBlock),
    /// The last block goes.
    RemoveLast,
}

impl BlockEdit {
    /// The block that gets other stored bytes, if one does.
    #[must_use]
    pub fn replaced(&self) -> Option<usize> {
        match self {
            Self::Replace { n, .. } => Some(*n),
            _ => None,
        }
    }
}

/// The stored bytes of a block and the header fields that describe them.
#[derive(Clone)]
pub struct StoredBlock {
    /// The bytes, in pieces; all of them together are the used bytes.
    pub pieces: Vec<Piece>,
    /// Compression code; all zero for none.
    pub compression: [u8; 4],
    /// Bytes of the decoded data.
    pub data_size: u64,
    /// MD5 of the stored bytes, all zero for "not verified".
    pub checksum: [u8; 16],
    /// Whether to give up allocated space that the bytes do not need. Everything behind the block moves then.
    pub shrink: bool,
}

/// A run of stored bytes.
#[derive(Clone)]
pub enum Piece {
    /// Bytes that the block stores already, counted from its first data byte.
    ///
    /// They cost nothing if they stay at their place in the block: a raw block is truncated or appended to with these.
    Old(Extent),
    /// New bytes.
    New(Arc<dyn Source>),
}

impl Piece {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Old(extent) => extent.len(),
            Self::New(source) => source.len(),
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl StoredBlock {
    /// A raw block of these bytes, not verified.
    #[must_use]
    pub fn raw(bytes: Arc<dyn Source>) -> Self {
        Self {
            compression: [0; 4],
            data_size: bytes.len(),
            checksum: [0; 16],
            pieces: vec![Piece::New(bytes)],
            shrink: false,
        }
    }

    /// Length of the bytes: the used size.
    ///
    /// # Errors
    /// [`Error::NoRoom`] beyond 2^63.
    pub fn used(&self) -> Result<u64> {
        self.pieces
            .iter()
            .try_fold(0, |total, piece| super::rope::sum(total, piece.len()))
    }
}

impl Edit {
    /// A new text and nothing else.
    #[must_use]
    pub fn text(text: Arc<Vec<u8>>) -> Self {
        Self {
            text: Some(text),
            blocks: Vec::new(),
        }
    }

    /// Sets the checksum of the blocks that it stores.
    pub fn set_checksum(&mut self, md5: [u8; 16]) {
        for block in &mut self.blocks {
            if let BlockEdit::Replace { stored, .. } | BlockEdit::Append(stored) = block {
                stored.checksum = md5;
            }
        }
    }

    /// A change of one block and nothing else.
    #[must_use]
    pub fn block(edit: BlockEdit) -> Self {
        Self {
            text: None,
            blocks: vec![edit],
        }
    }
}

/// The error that an edit names a block, or a part of one, that is not there.
pub(super) fn no_such_block(n: usize, why: &str) -> Error {
    Error::Rejected {
        at: Place::Block(n),
        why: why.to_owned(),
        advice: "remount the file to see its blocks as they are".to_owned(),
    }
}
