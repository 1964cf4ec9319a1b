//! Taking bytes apart: the fields of a header, an index or a record, one after the other.

/// The bytes from which no field was taken yet.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `len` bytes, if there are so many.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (found, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(found)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (found, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*found)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// The next four bytes, little-endian.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, little-endian.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next four bytes, big-endian.
    pub fn u32_be(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes, big-endian.
    pub fn u64_be(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
