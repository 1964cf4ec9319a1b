//! Other decoders of the codes that we have a decoder of our own for.

use std::io::Read;

/// The decoded bytes as another decoder has them, if it has all of the payload and they are as many as said.
pub fn decode(code: [u8; 4], payload: &[u8], len: u64) -> Option<Vec<u8>> {
    match &code {
        b"zlib" => all(flate2::read::ZlibDecoder::new(payload), len),
        b"bzp2" => all(bzip2::read::BzDecoder::new(payload), len),
        b"lz4f" => all(lz4_flex::frame::FrameDecoder::new(payload), len),
        _ => None,
    }
}

fn all(decoder: impl Read, len: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.take(len + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == len).then_some(bytes)
}
