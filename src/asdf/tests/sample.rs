//! A small writer of ASDF files for unit tests, made from the standard's text and not from the code under test.

use crate::asdf::layout::index_text;

/// A file that is put together piece by piece.
#[derive(Clone)]
pub(crate) struct Sample {
    text: Vec<u8>,
    padding: Vec<u8>,
    blocks: Vec<Vec<u8>>,
    index: bool,
}

impl Sample {
    /// The text of a file that says nothing.
    pub(crate) const TREE: &[u8] = b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n\
        %TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\nnote: original text\n...\n";

    pub(crate) fn new() -> Self {
        Self {
            text: Self::TREE.to_vec(),
            padding: Vec::new(),
            blocks: Vec::new(),
            index: true,
        }
    }

    pub(crate) fn text(mut self, text: &[u8]) -> Self {
        self.text = text.to_vec();
        self
    }

    pub(crate) fn padding(mut self, padding: &[u8]) -> Self {
        self.padding = padding.to_vec();
        self
    }

    /// A raw block of just these bytes.
    pub(crate) fn block(self, data: &[u8]) -> Self {
        self.stored(block(data))
    }

    /// A streamed block; a file with one has no index.
    pub(crate) fn streamed(mut self, data: &[u8]) -> Self {
        self.index = false;
        self.stored([&header(48, 1, *b"\0\0\0\0", [0, 0, 0], [0; 16]), data].concat())
    }

    /// A block as it lies on disk.
    pub(crate) fn stored(mut self, block: Vec<u8>) -> Self {
        self.blocks.push(block);
        self
    }

    pub(crate) fn index(mut self, index: bool) -> Self {
        self.index = index;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = [&self.text[..], &self.padding].concat();
        let mut offsets = Vec::new();
        for block in &self.blocks {
            offsets.push(out.len() as u64);
            out.extend(block);
        }
        if self.index && !offsets.is_empty() {
            out.extend(index_text(&offsets));
        }
        out
    }
}

/// A raw block of these bytes, with its MD5.
pub(crate) fn block(data: &[u8]) -> Vec<u8> {
    block_with(*b"\0\0\0\0", data, data.len() as u64, data.len() as u64)
}

/// A block with these stored bytes, their MD5, and that much space.
pub(crate) fn block_with(code: [u8; 4], stored: &[u8], data_size: u64, allocated: u64) -> Vec<u8> {
    use md5::{Digest, Md5};
    let used = stored.len() as u64;
    let mut out = header(
        48,
        0,
        code,
        [allocated, used, data_size],
        Md5::digest(stored).into(),
    );
    out.extend(stored);
    out.resize(out.len() + (allocated - used) as usize, 0);
    out
}

/// Magic, size and fields of a block header of `size` bytes.
pub(crate) fn header(
    size: u16,
    flags: u32,
    code: [u8; 4],
    sizes: [u64; 3],
    md5: [u8; 16],
) -> Vec<u8> {
    let mut out = b"\xd3BLK".to_vec();
    out.extend(size.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(code);
    for size in sizes {
        out.extend(size.to_be_bytes());
    }
    out.extend(md5);
    out.resize(6 + usize::from(size), 0xaa);
    out
}
