//! A writer of ASDF files, made from the text of the standard (file layout 1.1.1) and sharing nothing with the code under
//! test. What it writes wrong, it writes wrong on purpose.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

const MAGIC: &[u8] = b"\xd3BLK";
const STREAMED: u32 = 1;

/// What stands behind the last block.
#[derive(Clone)]
pub(crate) enum Index {
    Right,
    Absent,
    /// These offsets, right or not.
    Of(Vec<u64>),
}

/// A block as it will lie in the file.
#[derive(Clone)]
pub(crate) struct Block {
    header_size: u16,
    flags: u32,
    code: [u8; 4],
    stored: Vec<u8>,
    allocated: u64,
    data_size: u64,
    checksum: [u8; 16],
}

impl Block {
    /// Plain bytes.
    pub(crate) fn raw(data: &[u8]) -> Self {
        Self::coded(*b"\0\0\0\0", data.to_vec(), data.len())
    }

    /// Stored bytes that decode to `data_size` bytes, under a compression code.
    pub(crate) fn coded(code: [u8; 4], stored: Vec<u8>, data_size: usize) -> Self {
        Self {
            header_size: 48,
            flags: 0,
            code,
            allocated: stored.len() as u64,
            data_size: data_size as u64,
            checksum: Md5::digest(&stored).into(),
            stored,
        }
    }

    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    pub(crate) fn zlib(data: &[u8]) -> Self {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        Self::coded(*b"zlib", encoder.finish().unwrap(), data.len())
    }

    pub(crate) fn bzp2(data: &[u8]) -> Self {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        encoder.write_all(data).unwrap();
        Self::coded(*b"bzp2", encoder.finish().unwrap(), data.len())
    }

    /// As Python writes it: chunks of 4 MiB, each a length (big-endian), its decoded size (little-endian), an LZ4 block.
    pub(crate) fn lz4(data: &[u8]) -> Self {
        let mut stored = Vec::new();
        for chunk in data.chunks(4 << 20) {
            let packed = lz4_flex::block::compress(chunk);
            stored.extend((packed.len() as u32 + 4).to_be_bytes());
            stored.extend((chunk.len() as u32).to_le_bytes());
            stored.extend(packed);
        }
        Self::coded(*b"lz4\0", stored, data.len())
    }

    /// A block that goes on to the end of the file.
    pub(crate) fn streamed(data: &[u8]) -> Self {
        let mut block = Self::raw(data);
        (
            block.flags,
            block.allocated,
            block.data_size,
            block.checksum,
        ) = (STREAMED, 0, 0, [0; 16]);
        block
    }

    pub(crate) fn header_size(mut self, size: u16) -> Self {
        self.header_size = size;
        self
    }

    /// Room behind the used bytes.
    pub(crate) fn allocated(mut self, size: u64) -> Self {
        self.allocated = size;
        self
    }

    /// A data size that may be a lie.
    pub(crate) fn data_size(mut self, size: u64) -> Self {
        self.data_size = size;
        self
    }

    pub(crate) fn checksum(mut self, checksum: [u8; 16]) -> Self {
        self.checksum = checksum;
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let used = if self.flags & STREAMED == 0 {
            self.stored.len() as u64
        } else {
            0
        };
        let mut out = MAGIC.to_vec();
        out.extend(self.header_size.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(self.code);
        for size in [self.allocated, used, self.data_size] {
            out.extend(size.to_be_bytes());
        }
        out.extend(self.checksum);
        out.resize(6 + usize::from(self.header_size), 0);
        out.extend(&self.stored);
        let spare = self.allocated.saturating_sub(self.stored.len() as u64);
        out.resize(out.len() + spare as usize, 0);
        out
    }
}

/// A file that is put together piece by piece.
#[derive(Clone)]
pub(crate) struct Sample {
    text: Vec<u8>,
    padding: Vec<u8>,
    blocks: Vec<Block>,
    index: Index,
}

impl Sample {
    /// A file whose tree is this mapping.
    pub(crate) fn new(body: &str) -> Self {
        Self::of_text(
            format!(
                "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n{body}...\n"
            )
            .as_bytes(),
        )
    }

    /// A file of this text.
    pub(crate) fn of_text(text: &[u8]) -> Self {
        Self {
            text: text.to_vec(),
            padding: Vec::new(),
            blocks: Vec::new(),
            index: Index::Right,
        }
    }

    pub(crate) fn padding(mut self, padding: &[u8]) -> Self {
        self.padding = padding.to_vec();
        self
    }

    pub(crate) fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    pub(crate) fn index(mut self, index: Index) -> Self {
        self.index = index;
        self
    }

    /// The text that `tree.yaml` has to show.
    pub(crate) fn tree(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = [self.text.as_slice(), &self.padding].concat();
        let mut offsets = Vec::new();
        for block in &self.blocks {
            offsets.push(out.len() as u64);
            out.extend(block.bytes());
        }
        let streamed = self
            .blocks
            .last()
            .is_none_or(|block| block.flags & STREAMED != 0);
        match &self.index {
            Index::Right if !streamed => out.extend(index(&offsets)),
            Index::Of(offsets) => out.extend(index(offsets)),
            Index::Right | Index::Absent => {}
        }
        out
    }

    /// The file, written into a folder.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("sample.asdf");
        fs::write(&path, self.bytes()).unwrap();
        path
    }
}

fn index(offsets: &[u64]) -> Vec<u8> {
    let lines: String = offsets
        .iter()
        .map(|offset| format!("- {offset}\n"))
        .collect();
    format!("#ASDF BLOCK INDEX\n%YAML 1.1\n---\n{lines}...\n").into_bytes()
}

/// The line of a tree that declares an array.
pub(crate) fn array(name: &str, source: i64, datatype: &str, shape: &str) -> String {
    array_with(
        name,
        &format!("source: {source}, datatype: {datatype}, byteorder: little, shape: {shape}"),
    )
}

/// The line of a tree that declares an array by these fields.
pub(crate) fn array_with(name: &str, fields: &str) -> String {
    format!("{name}: !core/ndarray-1.0.0 {{{fields}}}\n")
}

/// Bytes that look like noise but are the same each time, so that no two parts of a block are alike.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Bytes that compress: every value of a slow ramp with a little noise on it.
pub(crate) fn ramp(len: usize) -> Vec<u8> {
    noise(len)
        .iter()
        .enumerate()
        .map(|(i, n)| ((i >> 9) as u8).wrapping_add(n & 3))
        .collect()
}

/// 24 float32 values that differ.
pub(crate) fn flux() -> Vec<u8> {
    (0..24_u8)
        .flat_map(|i| f32::from(i).to_le_bytes())
        .collect()
}
