//! Writing into the data of raw blocks: no journal for the data, as for any file, but never a false checksum.
//!
//! The checksum is "not verified" on disk before the first byte changes, and is set again when all of them are durable.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Committed, Method, Writer};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::Extent;
use crate::error::{Error, Place, Result};
use crate::save::baseline::named;
use crate::save::edit::{BlockEdit, Edit, no_such_block};
use crate::save::store::Store;
use crate::save::view::write_all;
use crate::source::checked_end;

/// Raw blocks whose data are being written.
pub(super) struct Session<F> {
    /// FILE, open for writing.
    pub(super) file: F,
    blocks: BTreeSet<usize>,
}

#[cfg(test)]
impl<S: Store> Writer<S> {
    /// Makes it [broken](Writer::broken), as a disk does that fails.
    pub(crate) fn fail(&mut self, why: Error) {
        self.broken = Some(why);
    }
}

impl<S: Store> Writer<S> {
    /// Prepares for writing these bytes of the data of raw block `n`: finds space for them, so that nothing is begun that a full
    /// disk would end, and sets the checksum, if there is one, to "not verified".
    ///
    /// # Errors
    /// Those of [`Writer::commit`]; [`Error::Rejected`] if there is no such block or its data are compressed.
    pub fn begin_block_writes(
        &mut self,
        n: usize,
        ranges: &[Range<u64>],
    ) -> Result<Committed<S::File>> {
        let raw = |block: &BlockHeader| block.compression == [0; 4];
        if !self.layout.blocks.get(n).is_some_and(raw) {
            return Err(no_such_block(n, "no raw block"));
        }
        self.check_writable()?;
        self.alone()?;
        if self.session.is_none() {
            self.session = Some(Session {
                file: self.open_writable()?,
                blocks: BTreeSet::new(),
            });
        }
        let begun = self
            .reserve_block_data(n, ranges)
            .and_then(|()| self.set_checksum(n, [0; 16]));
        match (&begun, &mut self.session) {
            (Ok(_), Some(session)) => {
                session.blocks.insert(n);
            }
            _ => self.abandon_block_writes(n),
        }
        begun
    }

    fn reserve_block_data(&self, n: usize, ranges: &[Range<u64>]) -> Result<()> {
        let (Some(session), Some(block)) = (&self.session, self.layout.blocks.get(n)) else {
            return Ok(());
        };
        let at = |offset: u64| block.data_offset().saturating_add(offset);
        let there = self.layout.stored_len(n);
        for range in ranges {
            if range.end > there {
                let why = format!("{} bytes to be written of {there} in the file", range.end);
                return Err(Error::corrupt(Place::Block(n), why));
            }
            let extent = Extent {
                start: at(range.start),
                end: at(range.end),
            };
            self.store
                .reserve(&session.file, extent)
                .map_err(|cause| self.error("reserving space", cause))?;
        }
        Ok(())
    }

    /// Gives up writing into block `n`: what has been written stays, and its checksum "not verified".
    pub fn abandon_block_writes(&mut self, n: usize) {
        if let Some(session) = &mut self.session {
            session.blocks.remove(&n);
        }
        self.session.take_if(|session| session.blocks.is_empty());
    }

    fn set_checksum(&mut self, n: usize, md5: [u8; 16]) -> Result<Committed<S::File>> {
        self.save(&Edit::block(BlockEdit::Checksum { n, md5 }))
    }

    /// Writes `bytes` at `offset` of the data of block `n`. Not durable before [`Writer::end_block_writes`].
    ///
    /// # Errors
    /// [`Error::Rejected`] beyond the end of the data, or if the block has not been prepared; [`Error::Io`].
    pub fn write_block_data(&mut self, n: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let session = self
            .session
            .as_ref()
            .filter(|session| session.blocks.contains(&n));
        let (Some(session), Some(block)) = (session, self.layout.blocks.get(n)) else {
            return Err(no_such_block(n, "not prepared for being written"));
        };
        checked_end(offset, bytes.len(), self.layout.stored_len(n))
            .map_err(|error| error.at(Place::Block(n)))?;
        let at = block.data_offset().saturating_add(offset);
        write_all(&*self.store, &session.file, bytes, at)
    }

    /// Makes what was written into blocks durable. If the system fails to, it may have dropped what was written: `again` writes all
    /// of it once more.
    fn sync_data(&mut self, again: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.check_writable()?;
        let named = named(&*self.store, &self.name)?;
        if named.is_none_or(|named| named.id != self.baseline.stat.id) {
            let why = format!("{} has been replaced by another file", self.name.display());
            return Err(Error::Stale { why });
        }
        if self.sync_session().is_ok() {
            return Ok(());
        }
        again(self)?;
        let synced = self.sync_session();
        synced.inspect_err(|error| self.note_failure(error))
    }

    fn sync_session(&self) -> Result<()> {
        let file = self.session.as_ref().map(|session| &session.file);
        let synced = file.map_or(Ok(()), |file| self.store.sync_data(file));
        synced.map_err(|cause| self.error("writing to disk", cause))
    }

    /// Ends writing into block `n`: its data become durable, then its checksum, `None` if it is to have none. `again` writes all the
    /// data once more.
    ///
    /// # Errors
    /// [`Error::Stale`] if FILE has been replaced meanwhile; [`Error::Io`] if the data are not durable, or of `again`; those of
    /// [`Writer::commit`].
    pub fn end_block_writes(
        &mut self,
        n: usize,
        md5: Option<[u8; 16]>,
        again: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Committed<S::File>> {
        self.sync_data(again)?;
        let mut committed = self.set_checksum(n, md5.unwrap_or([0; 16]))?;
        if committed.method == Method::Nothing {
            // the header stays as it is, but not the data
            committed.method = Method::InPlace;
            self.baseline.renew(&self.store, &self.file);
        }
        self.abandon_block_writes(n);
        Ok(committed)
    }
}
