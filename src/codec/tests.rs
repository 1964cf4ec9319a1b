use super::testing::{encoded, image};
use super::*;
use crate::source::Memory;
use crate::source::testing::Refusing;

/// Decoded bytes of the recorded payloads.
const RECORDED_LEN: u64 = 270_001;

/// A payload of each codec that is written, and some recorded ones, with the number of decoded bytes.
fn payloads() -> Vec<(&'static dyn Codec, Vec<u8>, u64)> {
    let mut payloads: Vec<(&'static dyn Codec, Vec<u8>, u64)> = Vec::new();
    let plain = image(5 << 18);
    for &codec in CODECS {
        if codec.writes(None) {
            payloads.push((codec, encoded(codec, &plain), plain.len() as u64));
        }
    }
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec");
    for (code, name) in [
        (*b"zstd", "frames.zst"),
        (*b"zstd", "seekable.zst"),
        (*b"lz4f", "apart.lz4"),
        (*b"lz4f", "linked_sums.lz4"),
        (*b"lz4f", "short.lz4"),
        (*b"xz\0\0", "blocks.xz"),
        (*b"xz\0\0", "streams.xz"),
    ] {
        if let Ok(codec) = codec(code) {
            let stored = std::fs::read(dir.join(name)).unwrap();
            payloads.push((codec, stored, RECORDED_LEN));
        }
    }
    payloads
}

/// All that `stream` decodes to.
fn read(stream: &Arc<dyn Stream>, len: u64) -> Result<Vec<u8>> {
    let decoded = Decoded::new(Arc::clone(stream), len, &Cache::new(64 << 20));
    let mut plain = vec![0; usize::try_from(len).unwrap()];
    let mut at = 0;
    for piece in plain.chunks_mut(300_000) {
        decoded.read_exact_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(plain)
}

/// An I/O error made a table of chunks end where it was met, for good.
#[test]
fn what_the_medium_refused_once_is_forgotten() {
    for (codec, stored, len) in payloads() {
        let name = code_text(codec.code());
        let undisturbed = codec.open(Refusing::new(&stored, u64::MAX), len).unwrap();
        let plain = read(&undisturbed.stream, len).unwrap();
        // Each of the first reads, and of the many that are alike some.
        for refused in (0..).scan(0, |next, _| {
            Some(std::mem::replace(next, *next + 1 + *next / 8))
        }) {
            let source = Refusing::new(&stored, refused);
            let Ok(opened) = codec.open(source.clone(), len) else {
                assert!(codec.open(source, len).is_ok(), "{name}");
                continue;
            };
            // From the end: what a table is made of is read then, and not what is decoded.
            let decoded = Decoded::new(Arc::clone(&opened.stream), len, &Cache::new(64 << 20));
            for at in [len - 1, len / 2, 0] {
                if let Err(error) = decoded.read_exact_at(&mut [0], at) {
                    assert!(matches!(error, Error::Io { .. }), "{name}: {error}");
                }
            }
            assert!(decoded.damage().is_none(), "{name}");
            let _ = read(&opened.stream, len);
            let has_refused = source.heal();
            let found = read(&opened.stream, len).unwrap();
            assert!(found == plain, "{name}: read {refused}");
            let entries = [&opened, &undisturbed].map(|opened| opened.stream.entry(len - 1));
            assert_eq!(entries[0], entries[1], "{name}: read {refused}");
            if !has_refused {
                break;
            }
        }
    }
}

#[test]
fn what_goes_on_behind_its_length_is_told_of_every_code() {
    for (codec, stored, len) in payloads() {
        let code = codec.code();
        let goes_on_behind = |len| {
            let cache = Cache::new(32 << 20);
            let stored: Arc<dyn Source> = Arc::new(Memory::new(stored.clone()));
            let (_, decoded) = decode(code, Arc::clone(&stored), len, &cache)?;
            testing::read_all(&*decoded)?;
            goes_on(code, stored, &decoded, &cache)
        };
        let name = code_text(code);
        assert!(!goes_on_behind(len).unwrap(), "{name}");
        // of some framings a length that is wrong is damage
        assert!(goes_on_behind(len - 1).unwrap_or(true), "{name}");
    }
}

/// The payloads that end in a checksum of their own, the length of what stands behind their data, and the number of decoded bytes.
fn summed() -> Vec<(&'static dyn Codec, Vec<u8>, usize, u64)> {
    let mut summed: Vec<(&'static dyn Codec, Vec<u8>, usize, u64)> = Vec::new();
    for (codec, stored, len) in payloads() {
        if codec.code() == *b"zlib" {
            summed.push((codec, stored, 4, len));
        }
    }
    if let Ok(codec) = codec(*b"lz4f") {
        let name = "tests/data/codec/linked_sums.lz4";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        summed.push((codec, std::fs::read(path).unwrap(), 8, RECORDED_LEN));
    }
    summed
}

/// It was taken for the end of the stream.
#[test]
fn a_wrong_checksum_behind_one_byte_more_hides_no_byte() {
    for (codec, mut stored, _, len) in summed() {
        *stored.last_mut().unwrap() ^= 1;
        let (code, cache) = (codec.code(), Cache::new(32 << 20));
        let stored: Arc<dyn Source> = Arc::new(Memory::new(stored));
        let (_, decoded) = decode(code, Arc::clone(&stored), len - 1, &cache).unwrap();
        testing::read_all(&*decoded).unwrap();
        let name = code_text(code);
        assert!(goes_on(code, stored, &decoded, &cache).unwrap(), "{name}");
    }
}

/// Nothing told that what such a checksum would have found was not looked for.
#[test]
fn a_checksum_that_is_cut_off_is_known() {
    for (codec, stored, behind, len) in summed() {
        for cut in 0..=behind {
            let stored = Arc::new(Memory::new(stored[..stored.len() - cut].to_vec()));
            let (_, decoded) = decode(codec.code(), stored, len, &Cache::new(32 << 20)).unwrap();
            testing::read_all(&*decoded).unwrap();
            let name = code_text(codec.code());
            assert_eq!(decoded.stream.lacks_end(), cut > 0, "{name} {cut}");
        }
    }
}
