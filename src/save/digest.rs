//! SHA-256: of a journal record, to know it whole, and of what a file's layout hangs on, to know it unchanged.

use sha2::Digest as _;
/// A SHA-256 in the making: [`Update`] adds bytes to it.
pub(super) use sha2::{Sha256, digest::Update};

/// A SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl From<Sha256> for Digest {
    fn from(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl Digest {
    /// The SHA-256 of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_sha_256() {
        // FIPS 180-2, appendix B.1
        let want = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(Digest::of(b"abc").0, want);
    }
}
