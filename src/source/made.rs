//! Bytes of known length whose source is made when they are first read: a picture, a table of statistics, an encoded block.

use std::sync::Arc;

use super::{Borrower, Loan, Source, checked_end};
use crate::error::{Lasting, Result, corrupt};

/// Bytes whose source is made by the first read, and then kept. An error is kept as well, unless it is an I/O error: then
/// the next read tries again.
pub struct Made {
    len: u64,
    make: Box<dyn Fn() -> Result<Arc<dyn Source>> + Send + Sync>,
    /// Locked while the source is made: other readers wait for it.
    source: Lasting<Arc<dyn Source>>,
}

impl Made {
    /// The first `len` bytes of the source that `make` returns.
    #[must_use]
    pub fn new(
        len: u64,
        make: impl Fn() -> Result<Arc<dyn Source>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            len,
            make: Box::new(make),
            source: Lasting::new(),
        }
    }

    /// The source for a read of `len` bytes at `offset`, made now if it is not there.
    fn source(&self, offset: u64, len: usize) -> Result<&Arc<dyn Source>> {
        // first: a read beyond the end must not cost the making
        checked_end(offset, len, self.len)?;
        self.source.get_or_make(|| {
            let made = (self.make)()?;
            if made.len() < self.len {
                let why = format!("{} bytes were made instead of {}", made.len(), self.len);
                return Err(corrupt(why));
            }
            Ok(made)
        })
    }
}

impl Source for Made {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.source(offset, buf.len())?.read_exact_at(buf, offset)
    }

    fn lend(&self, offset: u64, len: usize, to: Borrower) -> Result<Option<Loan>> {
        self.source(offset, len)?.lend(offset, len, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::source::{Memory, read_all};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn abc() -> Arc<dyn Source> {
        Arc::new(Memory::new(b"abc".to_vec()))
    }

    #[test]
    fn the_first_read_that_the_medium_does_not_refuse_makes_the_bytes() {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let made = Made::new(3, move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::io("reading", std::io::ErrorKind::TimedOut.into())),
            _ => Ok(abc()),
        });
        assert_eq!((made.len(), times.load(Ordering::Relaxed)), (3, 0));
        assert!(read_all(&made, 10).is_err());
        for _ in 0..2 {
            assert_eq!(read_all(&made, 10).unwrap(), b"abc");
        }
        assert_eq!(times.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn fewer_bytes_than_were_said_are_an_error() {
        let made = Made::new(4, || Ok(abc()));
        assert!(read_all(&made, 10).is_err());
    }
}
