//! What the tests of all codecs share.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::{Cache, Codec, Cursor, Decoded, Edited, limit};
use crate::error::Result;
use crate::source::{Memory, Overlay, ScratchBytes, ScratchRoom, Source};

/// A Python with asdf in it: `scripts/test` makes one and names it.
fn python_program() -> Option<PathBuf> {
    let named = std::env::var_os("ASDF_MOUNT_PYTHON").map(PathBuf::from);
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/python");
    named.or_else(|| made.exists().then_some(made))
}

/// Pseudo-random numbers, the same in every run.
pub(super) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// `len` bytes like those of a detector: 16-bit integers, a gradient and noise.
pub(super) fn image(len: usize) -> Vec<u8> {
    let mut below = numbers(5);
    (0..len.div_ceil(2))
        .flat_map(|n| {
            ((n % 2048) as u64 / 3 + 1000 + below(16) + below(16)).to_le_bytes()[..2].to_vec()
        })
        .take(len)
        .collect()
}

/// `len` bytes like those of a detector; of some lengths also such as nothing makes shorter, and such as all does.
#[cfg(feature = "blosc")]
pub(super) fn plains(len: usize) -> Vec<Vec<u8>> {
    use super::headers::tests::noise;
    let others = [5000, 3 << 20]
        .contains(&len)
        .then(|| [noise(len), vec![0; len]]);
    [image(len)]
        .into_iter()
        .chain(others.into_iter().flatten())
        .collect()
}

/// `stored` opened by `codec`, with a cache of its own.
pub(super) fn open(codec: &dyn Codec, stored: &[u8], data_size: u64) -> Result<Arc<Decoded>> {
    let stored: Arc<dyn Source> = Arc::new(Memory::new(stored.to_vec()));
    let opened = codec.open(stored, data_size)?;
    Ok(Decoded::new(
        opened.stream,
        data_size,
        &Cache::new(64 << 20),
    ))
}

impl dyn Cursor + '_ {
    /// Decodes until all of `buf` is filled, in as much memory as a cache of `budget` bytes allows one decoder.
    pub(super) fn fill(&mut self, buf: &mut [u8], budget: u64) -> Result<()> {
        let take = |needed| limit::check(needed, budget).map(|()| true);
        self.fill_from(self.position(), buf, take).map(drop)
    }
}

/// All the decoded bytes.
pub(super) fn read_all(source: &dyn Source) -> Result<Vec<u8>> {
    crate::source::read_all(source, u64::MAX)
}

/// `decoded` written by `codec`.
pub(super) fn encoded(codec: &dyn Codec, decoded: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    codec
        .encode(None, &Memory::new(decoded.to_vec()), &mut out)
        .unwrap();
    out
}

/// An edit of a block whose chunks, or whatever the codec has, are encoded apart.
pub(super) struct EditCase {
    pub(super) framing: &'static str,
    /// What the block stores, and the decoded bytes that it stands for.
    pub(super) stored: Vec<u8>,
    pub(super) before: Vec<u8>,
    /// Pieces that are written, by their offset.
    pub(super) writes: Vec<(usize, Vec<u8>)>,
    /// The length that the block gets afterwards.
    pub(super) len: usize,
}

/// What became of an [`EditCase`].
pub(super) struct EditOutcome {
    pub(super) stored: Vec<u8>,
    pub(super) decoded: Vec<u8>,
    /// How many decoded bytes were encoded: those that the codec asked for.
    pub(super) encoded: u64,
    pub(super) touched: Vec<Range<u64>>,
}

impl EditCase {
    /// Edits the block as the mount does, checks that the result decodes to the edited bytes, and gives it.
    pub(super) fn run(&self, codec: &dyn Codec) -> EditOutcome {
        let base: Arc<dyn Source> = Arc::new(Memory::new(self.before.clone()));
        let overlay = Overlay::new(
            base,
            ScratchBytes::new(&ScratchRoom::new(u64::MAX, &std::env::temp_dir())),
        );
        let mut model = self.before.clone();
        for (at, bytes) in &self.writes {
            overlay.write(*at as u64, bytes).unwrap();
            model.resize(model.len().max(at + bytes.len()), 0);
            model[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        overlay.resize(self.len as u64);
        model.resize(self.len, 0);
        let touched = overlay.touched();
        let counted = Counted(overlay, AtomicU64::new(0));
        let stored: Arc<dyn Source> = Arc::new(Memory::new(self.stored.clone()));
        let edited = Edited {
            framing: self.framing,
            stored: &stored,
            stored_len: self.before.len() as u64,
            decoded: &counted,
            touched: &touched,
        };
        let mut stored = Vec::new();
        codec.reencode(&edited, &mut stored).unwrap();
        let decoded = open(codec, &stored, self.len as u64).unwrap();
        let decoded = read_all(&*decoded).unwrap();
        assert!(decoded == model, "other bytes than the edited ones");
        EditOutcome {
            stored,
            decoded,
            encoded: counted.1.into_inner(),
            touched,
        }
    }

    /// Checks that the chunks which the edit left alone are stored as before, and that only the others were encoded.
    ///
    /// A chunk is of `size` decoded bytes, the last one maybe of fewer; `chunks` finds them in a payload, as stored bytes by
    /// decoded offset.
    pub(super) fn check_untouched(
        &self,
        edited: &EditOutcome,
        size: usize,
        chunks: impl Fn(&[u8]) -> Vec<(u64, &[u8])>,
    ) {
        let (size, before, after) = (size as u64, self.before.len() as u64, self.len as u64);
        let new = chunks(&edited.stored);
        let mut kept = 0;
        for (start, chunk) in chunks(&self.stored) {
            let end = (start + size).min(before);
            let touches = |range: &Range<u64>| range.start < end && start < range.end;
            let fills_up = end == before && after > before && end - start < size;
            if !edited.touched.iter().any(touches) && !fills_up && end <= after {
                assert!(new.contains(&(start, chunk)), "the chunk at {start}");
                kept += end - start;
            }
        }
        assert_eq!(edited.encoded, after - kept);
    }
}

/// A source that counts the bytes that are read of it.
pub(super) struct Counted<S>(pub(super) S, pub(super) AtomicU64);

impl<S: Source> Source for Counted<S> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_exact_at(buf, offset)
    }
}

/// Edits of a few pieces of a block of about `len` bytes, and its length afterwards: the same in half of the cases.
pub(super) fn edits(len: usize) -> impl Strategy<Value = (Vec<(usize, Vec<u8>)>, usize)> {
    let write = (0..len, prop::collection::vec(any::<u8>(), 1..50));
    let after = prop_oneof![Just(len), 0..len.saturating_mul(2)];
    (prop::collection::vec(write, 0..4), after)
}

/// Reads at random, and from start to end in pieces, and compares.
pub(super) fn assert_reads_like(source: &dyn Source, model: &[u8]) {
    let mut below = numbers(model.len() as u64);
    let mut buf = vec![0; 10_000];
    for _ in 0..20 {
        let len = below(buf.len() as u64).min(model.len() as u64) as usize;
        let offset = below((model.len() - len + 1) as u64) as usize;
        source
            .read_exact_at(&mut buf[..len], offset as u64)
            .unwrap();
        assert!(buf[..len] == model[offset..offset + len], "at {offset}");
    }
    let mut offset = 0;
    for piece in model.chunks(100_000) {
        let mut buf = vec![0; piece.len()];
        source.read_exact_at(&mut buf, offset).unwrap();
        assert!(buf == piece, "at {offset}");
        offset += piece.len() as u64;
    }
}

/// Whatever is read of damaged bytes is right or an error, and comes to an end.
pub(super) fn assert_harmless(codec: &dyn Codec, stored: &[u8], data_size: u64) {
    let Ok(decoded) = open(codec, stored, data_size) else {
        return;
    };
    let tail = data_size.min(10);
    let quarters = (0..4).map(|part| (data_size / 4 * part, 4096));
    for (offset, most) in quarters.chain([(data_size - tail, tail)]) {
        let mut buf = vec![0; (data_size - offset).min(most) as usize];
        if let Err(error) = decoded.read_exact_at(&mut buf, offset) {
            assert_ne!(error.to_string(), "a codec panicked");
        }
    }
}

/// Whether Python's asdf decodes each of these to the bytes beside it; true where there is no such Python.
pub(super) fn python_agrees(code: &str, cases: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let program = format!(
        "class F:\n def read_blocks(self, n):\n  for i in range(0, n, 65536): yield s[i:min(i+65536, n)]\n\
         while d:\n  n, m = (int.from_bytes(d[k:k+8], 'little') for k in (0, 8))\n  s = d[16:16+n]; d = d[16+n:]\n  \
         o.write(bytes(c.decompress(F(), n, m, '{code}')))"
    );
    let mut input = Vec::new();
    for (stored, plain) in cases {
        input.extend((stored.len() as u64).to_le_bytes());
        input.extend((plain.len() as u64).to_le_bytes());
        input.extend(stored);
    }
    let want: Vec<u8> = cases.iter().flat_map(|(_, plain)| plain.clone()).collect();
    python(&program, &input).is_none_or(|found| found == want)
}

/// What Python's asdf encodes these bytes to; `None` where there is no such Python.
pub(super) fn python_encodes(code: &str, plain: &[u8]) -> Option<Vec<u8>> {
    python(&format!("c.compress(o, d, '{code}')"), plain)
}

/// What a Python program writes to `o` that has `input` as `d`; `None` where there is no such Python.
pub(super) fn python(program: &str, input: &[u8]) -> Option<Vec<u8>> {
    let command = python_program()?;
    let start =
        "import sys, asdf._compression as c\nd = sys.stdin.buffer.read(); o = sys.stdout.buffer\n";
    let mut child = Command::new(command)
        .args(["-c", &[start, program].concat()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success(), "the Python program failed");
    Some(output.stdout)
}
