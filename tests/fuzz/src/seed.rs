//! Writes the inputs that fuzzing begins with: `seed CORPUS FILE…`.
//!
//! Payloads that our encoders write, recorded ones (`tests/data/codec`), and the blocks, trees and whole of the files given.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

use asdf_mount::asdf::{OpenOptions, Snapshot};
use asdf_mount::codec::{Cache, code_text, codec};
use asdf_mount::source::{Memory, read_all};
use asdf_mount_fuzz::{HEADER, MEND, pattern};

/// Longer inputs would make every run slow.
const LONGEST: usize = 64 << 10;

const CODES: [&[u8; 4]; 9] = [
    b"zlib", b"bzp2", b"lz4\0", b"blsc", b"bls2", b"bsc2", b"zstd", b"lz4f", b"xz\0\0",
];

fn main() -> io::Result<()> {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let corpus = args.next().ok_or(io::ErrorKind::InvalidInput)?;
    let corpus = Corpus(corpus);
    for code in CODES {
        corpus.encoded(code)?;
    }
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/codec");
    for entry in fs::read_dir(recorded)? {
        corpus.recorded(&entry?.path())?;
    }
    for chain in CHAINS {
        corpus.add("chain", &[&[60, 0, 0], chain.as_bytes(), ZLIB].concat())?;
    }
    for cards in [IMAGE, TABLE] {
        corpus.add("fits", &fits(cards))?;
    }
    args.try_for_each(|path| corpus.file(&path))
}

/// Chains for 60 bytes.
const CHAINS: [&str; 3] = [
    "[zlib]\n...\n",
    "[[tile, {shape: [5, 3], original_shape: [10, 6], item_size: 1}], [zlib]]\n...\n",
    "[[quantize, {dtype: 32, original_shape: [15]}], zlib]\n...\n",
];
/// `zlib.compress(bytes(range(20)) * 3)` of Python.
const ZLIB: &[u8] = b"\x78\x9c\x63\x60\x64\x62\x66\x61\x65\x63\xe7\xe0\xe4\xe2\xe6\xe1\xe5\xe3\x17\x10\x14\x12\x66\x20\x52\x0c\x00\x3c\x5a\x02\x3b";

/// The ASDF extension as an image, and as a table; `LEN` stands for its length.
const IMAGE: &str =
    "XTENSION= 'IMAGE   '|BITPIX  = 8|NAXIS   = 1|NAXIS1  = LEN|PCOUNT  = 0|GCOUNT  = 1";
const TABLE: &str = "XTENSION= 'BINTABLE'|BITPIX  = 8|NAXIS   = 2|NAXIS1  = LEN|NAXIS2  = 1|PCOUNT  = 0|GCOUNT  = 1\
    |TFIELDS = 1|TTYPE1  = 'ASDF_METADATA'|TFORM1  = 'LENB    '";
/// An image of four times two 16-bit numbers.
const SCIENCE: &str = "XTENSION= 'IMAGE   '|BITPIX  = 16|NAXIS   = 2|NAXIS1  = 4|NAXIS2  = 2|PCOUNT  = 0|GCOUNT  = 1\
    |EXTNAME = 'SCI     '|EXTVER  = 1";
const EMBEDDED: &str = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\n\
    a: !core/ndarray-1.0.0 {source: 'fits:SCI,1', datatype: int16, byteorder: big, shape: [2, 4]}\n...\n";

/// A FITS file of a science image and an ASDF extension.
fn fits(cards: &str) -> Vec<u8> {
    let primary = "SIMPLE  = T|BITPIX  = 8|NAXIS   = 0|EXTEND  = T";
    let cards = format!("{cards}|EXTNAME = 'ASDF    '").replace("LEN", &EMBEDDED.len().to_string());
    let parts = [
        (primary, &[][..]),
        (SCIENCE, &[1; 16]),
        (&cards, EMBEDDED.as_bytes()),
    ];
    let mut out = Vec::new();
    for (cards, data) in parts {
        for card in cards.split('|').chain(["END"]) {
            out.extend(format!("{card:80}").into_bytes());
        }
        out.resize(out.len().next_multiple_of(2880), b' ');
        out.extend(data);
        out.resize(out.len().next_multiple_of(2880), 0);
    }
    out
}

struct Corpus(PathBuf);

impl Corpus {
    fn add(&self, target: &str, input: &[u8]) -> io::Result<()> {
        if input.len() > LONGEST {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let dir = self.0.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("seed-{:016x}", hasher.finish())), input)
    }

    fn payload(&self, code: [u8; 4], stored: &[u8], data_size: u64) -> io::Result<()> {
        let mut head = [0, MEND, 0, 0, 0, 0, 0, 0, 0, 0, 200, 12, 100, 9, 30, 200];
        head[2..10].copy_from_slice(&data_size.to_le_bytes());
        debug_assert_eq!(head.len(), HEADER);
        self.add(&code_text(code), &[&head, stored].concat())
    }

    /// What our own encoders write.
    fn encoded(&self, code: &[u8; 4]) -> io::Result<()> {
        let codec = codec(*code).map_err(io::Error::other)?;
        for len in [0, 1, 1000, 30_000, 300_000, 2_100_000] {
            for noise in [0, 3, 255] {
                let plain = Memory::new(pattern(len, noise));
                let mut stored = Vec::new();
                if codec.encode(None, &plain, &mut stored).is_ok() {
                    self.payload(*code, &stored, len as u64)?;
                }
            }
        }
        Ok(())
    }

    /// Recorded payloads by the endings of their names. Their decoded sizes are written in the tests that use them.
    fn recorded(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (codes, data_size): (&[&[u8; 4]], u64) = match name.rsplit('.').next() {
            Some("chunks") => return self.chunks(&fs::read(path)?),
            Some("b2chunk") => (&[b"bls2", b"bsc2"], 16_000),
            Some("b2frame") if name.starts_with("pattern") => (&[b"bls2", b"bsc2"], 200_000),
            Some("b2frame") => (&[b"bls2", b"bsc2"], 80_000),
            Some("lz4") => (&[b"lz4f", b"lz4\0"], 270_001),
            Some("zst") => (&[b"zstd"], 270_001),
            Some("xz") => (&[b"xz\0\0"], 270_001),
            _ => return Ok(()),
        };
        let bytes = fs::read(path)?;
        codes
            .iter()
            .try_for_each(|&&code| self.payload(code, &bytes, data_size))
    }

    /// Blosc chunks, each behind its stored and its decoded length.
    fn chunks(&self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((head, rest)) = bytes.split_first_chunk::<8>() {
            let [len, size] = [&head[..4], &head[4..]].map(|number| {
                number
                    .iter()
                    .rev()
                    .fold(0u32, |sum, &byte| sum << 8 | u32::from(byte))
            });
            let (chunk, rest) = rest.split_at(len as usize);
            for code in [b"blsc", b"bls2", b"bsc2"] {
                self.payload(*code, chunk, size.into())?;
            }
            let prefixed = [&len.to_be_bytes()[..], chunk].concat();
            self.payload(*b"blsc", &prefixed.repeat(2), u64::from(size) * 2)?;
            bytes = rest;
        }
        Ok(())
    }

    /// A file, its text, its compressed blocks.
    fn file(&self, path: &Path) -> io::Result<()> {
        let bytes = fs::read(path)?;
        let fits = bytes.starts_with(b"SIMPLE");
        self.add(if fits { "fits" } else { "scan" }, &bytes)?;
        let file = Arc::new(fs::File::open(path)?);
        let Ok(snapshot) = Snapshot::open(file, Cache::new(1 << 20), OpenOptions::default()) else {
            return Ok(());
        };
        self.add("tree", snapshot.text())?;
        for (n, header) in snapshot.layout().blocks.iter().enumerate() {
            let stored = snapshot
                .stored(n)
                .and_then(|stored| read_all(&*stored, LONGEST as u64));
            let Ok(stored) = stored else { continue };
            if header.flags & 2 != 0 {
                let size = header.data_size.to_le_bytes();
                self.add("chain", &[&size[..3], &stored].concat())?;
            } else if CODES.contains(&&header.compression) {
                self.payload(header.compression, &stored, header.data_size)?;
            }
        }
        Ok(())
    }
}
