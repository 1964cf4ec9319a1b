//! A source that fails one of its reads with an I/O error, for tests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Memory, Source};
use crate::error::{Error, Result};

/// Bytes of which one read, counted from 0, is refused; all others are good.
pub(crate) struct Refusing {
    bytes: Memory,
    refused: u64,
    reads: AtomicU64,
}

impl Refusing {
    pub(crate) fn new(bytes: &[u8], refused: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes: Memory::new(bytes.to_vec()),
            refused,
            reads: AtomicU64::new(0),
        })
    }

    /// Refuses nothing from now on; tells whether it had refused its read before.
    pub(crate) fn heal(&self) -> bool {
        self.reads.swap(u64::MAX / 2, Ordering::Relaxed) > self.refused
    }
}

impl Source for Refusing {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.refused {
            let cause = io::Error::from_raw_os_error(libc::EIO);
            return Err(Error::io("reading", cause));
        }
        self.bytes.read_exact_at(buf, offset)
    }
}
