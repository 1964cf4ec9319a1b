//! Bytes of known length that are made when they are first read: a picture, a table of statistics.

use std::sync::Mutex;

use super::{Borrower, Loan, Memory, Source};
use crate::error::{Error, Place, Result, lock};

/// Bytes that are made when they are first read, and kept from then on. An error is not kept: the next read tries again.
pub struct Made {
    len: u64,
    make: Box<dyn Fn() -> Result<Vec<u8>> + Send + Sync>,
    /// Locked while the bytes are made: other readers wait for them.
    kept: Mutex<Option<Memory>>,
}

impl Made {
    /// `len` bytes that `make` gives.
    #[must_use]
    pub fn new(len: u64, make: impl Fn() -> Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self {
            len,
            make: Box::new(make),
            kept: Mutex::default(),
        }
    }

    /// The bytes, made now if they are not there.
    fn bytes(&self) -> Result<Memory> {
        let mut kept = lock(&self.kept);
        if let Some(bytes) = &*kept {
            return Ok(bytes.clone());
        }
        let bytes = Memory::new((self.make)()?);
        if bytes.len() != self.len {
            let why = format!("{} bytes were made instead of {}", bytes.len(), self.len);
            return Err(Error::corrupt(Place::File, why));
        }
        Ok(kept.insert(bytes).clone())
    }
}

impl Source for Made {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.bytes()?.read_exact_at(buf, offset)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        self.bytes()?.lend(offset, len, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::read_all;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_first_read_makes_the_bytes() {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let made = Made::new(3, move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::corrupt(Place::File, "not yet")),
            _ => Ok(b"abc".to_vec()),
        });
        assert_eq!((made.len(), times.load(Ordering::Relaxed)), (3, 0));
        assert!(read_all(&made, 10).is_err());
        for _ in 0..2 {
            assert_eq!(read_all(&made, 10).unwrap(), b"abc");
        }
        assert_eq!(times.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn another_length_than_was_said_is_an_error() {
        let made = Made::new(4, || Ok(b"abc".to_vec()));
        assert!(read_all(&made, 10).is_err());
    }
}
