//! A file of a [`Store`] as a source, and writing all of something into it.

use std::io;
use std::sync::Arc;

use super::store::Store;
use crate::error::{Error, Place, Result};
use crate::source::{Source, checked_end, len_u64};

/// An open file of known length.
pub(super) struct StoreSource<S: Store> {
    store: Arc<S>,
    file: S::File,
    len: u64,
}

impl<S: Store> StoreSource<S> {
    /// The first `len` bytes of the file.
    pub(super) fn new(store: &Arc<S>, file: &S::File, len: u64) -> Self {
        Self {
            store: Arc::clone(store),
            file: file.clone(),
            len,
        }
    }

    /// The file as long as it is now.
    pub(super) fn open(store: &Arc<S>, file: &S::File) -> Result<Self> {
        let stat = store
            .stat(file)
            .map_err(|cause| Error::io("reading the file's size", cause))?;
        Ok(Self::new(store, file, stat.size))
    }
}

impl<S: Store> Source for StoreSource<S> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        checked_end(offset, buf.len(), self.len)?;
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let read = match self.store.read(&self.file, rest, at) {
                Ok(0) => {
                    return Err(Error::corrupt(
                        Place::Byte(at),
                        "the file has been cut short",
                    ));
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(cause) => return Err(Error::io(format!("reading at {at}"), cause)),
            };
            rest = rest.get_mut(read..).unwrap_or_default();
            at = at.saturating_add(len_u64(read));
        }
        Ok(())
    }
}

/// Writes all of `bytes`.
pub(super) fn write_all<S: Store>(
    store: &S,
    file: &S::File,
    bytes: &[u8],
    offset: u64,
) -> Result<()> {
    write_fully(store, file, bytes, offset)
        .map_err(|cause| Error::io(format!("writing {} bytes at {offset}", bytes.len()), cause))
}

/// Writes all of `bytes`, with the system's own error.
pub(super) fn write_fully<S: Store>(
    store: &S,
    file: &S::File,
    bytes: &[u8],
    offset: u64,
) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, offset);
    while !rest.is_empty() {
        let written = match store.write(file, rest, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        rest = rest.get(written..).unwrap_or_default();
        at = at.saturating_add(len_u64(written));
    }
    Ok(())
}
