//! Writing into the data of a raw block where they are: no journal for the data, as for any file, but never a false checksum.
//!
//! The checksum is "not verified" on disk before the first byte changes, and is set again when all of them are durable. In between,
//! the block is written as often as the caller likes, and other saves may come.

use std::ops::Range;

use super::{Committed, Method, Writer};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::Extent;
use crate::error::{Error, Place, Result};
use crate::save::baseline::named;
use crate::save::edit::{BlockEdit, Edit, no_such_block};
use crate::save::store::Store;
use crate::save::view::write_all;
use crate::source::{Stat, checked_end};

/// Writes bytes at an offset of a block's data.
pub type Put<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

impl<S: Store> Writer<S> {
    /// Begins to write data of block `n`: sets its checksum to "not verified", durably. Finds space for the bytes of `reserved` before, so
    /// that nothing is begun that a full disk would end.
    ///
    /// # Errors
    /// [`Error::Rejected`] if there is no such block or it is compressed; [`Error::Stale`] if another program has changed FILE; those of
    /// [`Writer::commit`].
    pub fn begin_patch(&mut self, n: usize, reserved: &Range<u64>) -> Result<Committed<S::File>> {
        self.check_whole()?;
        self.end_raw()?;
        self.alone()?;
        let extent = self.patched(n, reserved)?;
        let file = self.open_writable()?;
        let found = self.store.stat(&file);
        let found = found.map_err(|cause| self.error("reading its state", cause))?;
        self.own.begin(found);
        // a hole in FILE gets its blocks now: a full disk is an error here, not a lost write of a mapping later
        let reserve = || self.store.reserve(&file, extent);
        let reserved = self.own.write(|| self.store.stat(&file), reserve);
        reserved.map_err(|cause| self.error("reserving space", cause))?;
        self.raw = Some(file);
        // durable before the first byte of data: a checksum on disk is never wrong because of us
        self.set_checksum(n, [0; 16])
    }

    /// Has `write` put data into block `n`, which [`Writer::begin_patch`] was called for. They need not be durable afterwards.
    ///
    /// # Errors
    /// [`Error::Stale`] if FILE is not as the last write or save has left it: then nothing is written. [`Error::Io`] of writing, after
    /// which some of the bytes may be there; those of `write`.
    pub fn patch(
        &mut self,
        n: usize,
        write: impl FnOnce(&mut Put<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check_whole()?;
        let file = match self.raw.take() {
            Some(file) => file,
            None => self.open_writable()?,
        };
        self.check_as_left(&file)?;
        let done = write(&mut |at, bytes| {
            let end = checked_end(at, bytes.len(), u64::MAX)?;
            let extent = self.patched(n, &(at..end))?;
            write_all(&*self.store, &file, bytes, extent.start)
        });
        // its times are those of our own write now
        self.baseline.renew(self.store.stat(&file).ok());
        self.raw = Some(file);
        done
    }

    /// Makes the data that were written durable. A sync that has failed may have dropped some of them, so that nothing is written any more
    /// after it.
    ///
    /// # Errors
    /// [`Error::Stale`] if FILE is not as the last write has left it; [`Error::Io`].
    pub fn sync_patch(&mut self) -> Result<()> {
        self.check_whole()?;
        let file = match self.raw.take() {
            Some(file) => file,
            None => self.open_writable()?,
        };
        self.check_as_left(&file)?;
        let synced = self.sync_raw(&file);
        self.raw = Some(file);
        synced
    }

    /// Syncs data of raw blocks through the descriptor that they were written through.
    fn sync_raw(&self, file: &S::File) -> Result<()> {
        let synced = self.store.sync_data(file);
        let synced = synced.map_err(|cause| self.error("writing to disk", cause));
        // The kernel forgets after one report that pages were lost, for want of room as well: a second sync would say that all is well.
        synced.inspect_err(|error| self.status.note_broken(error.clone()))
    }

    /// Syncs the data of raw blocks before another save does, and closes their descriptor. A sync by that save would take the report of lost
    /// pages for its own, write its own bytes again, and go on.
    pub(super) fn end_raw(&mut self) -> Result<()> {
        self.raw.take().map_or(Ok(()), |file| self.sync_raw(&file))
    }

    /// Ends the writing of block `n`, after [`Writer::sync_patch`]: gives it this checksum.
    ///
    /// # Errors
    /// Those of [`Writer::commit`]. The checksum is "not verified" then.
    pub fn end_patch(&mut self, n: usize, md5: [u8; 16]) -> Result<Committed<S::File>> {
        self.own.begin(self.baseline.stat);
        let ended = self.set_checksum(n, md5);
        self.raw = None;
        let mut ended = ended?;
        if ended.method == Method::Nothing {
            // the header stays as it is, but not the data
            ended.method = Method::InPlace;
            ended.around = self.own.end(self.store.stat(&self.file));
            self.baseline.renew(ended.around.map(|around| around.1));
        }
        Ok(ended)
    }

    /// FILE's attributes as the last write or save has left them, if they are known.
    #[must_use]
    pub fn left(&self) -> Option<Stat> {
        self.baseline.timed.then_some(self.baseline.stat)
    }

    /// FILE's attributes before the last save and behind its last write; `None` if another program may have written FILE since it began.
    pub fn alone_around(&self) -> Option<(Stat, Stat)> {
        self.own.end(self.store.stat(&self.file))
    }

    /// Checks that FILE is as the last write or save has left it. If its times do not tell, its text and headers do. What a save that failed
    /// has left in it is settled first.
    fn check_as_left(&mut self, file: &S::File) -> Result<()> {
        if !self.is_settled() {
            self.compare()?;
            return self.settle();
        }
        let now = self.store.stat(file);
        let now = now.map_err(|cause| self.error("reading its state", cause))?;
        // one fstat(2) a write; the name and the text are looked at only when the times have moved
        if now.links > 0 && self.baseline.same_moment(&now) {
            return Ok(());
        }
        let named = named(&*self.store, &self.name)?;
        if now.links == 0 || named.is_none_or(|named| named.id != now.id) {
            return Err(self.replaced());
        }
        if self.baseline.timed && !now.has_bytes_of(&self.baseline.stat) {
            let why = format!(
                "{} has been changed by another program",
                self.name.display()
            );
            return Err(Error::Stale { why });
        }
        self.compare()
    }

    /// Where in FILE a range of the data of a raw block is.
    fn patched(&self, n: usize, range: &Range<u64>) -> Result<Extent> {
        let raw = |block: &&BlockHeader| block.compression == [0; 4];
        let block = self.layout().blocks.get(n).filter(raw);
        let block = block.ok_or_else(|| no_such_block(n, "no raw block"))?;
        let there = self.layout().stored_len(n);
        let too_far = || {
            let why = format!("{} bytes to be written of {there} in the file", range.end);
            Error::corrupt(Place::Block(n), why)
        };
        if range.start > range.end || range.end > there {
            return Err(too_far());
        }
        let at = |offset: u64| block.data_offset().checked_add(offset).ok_or_else(too_far);
        Ok(Extent {
            start: at(range.start)?,
            end: at(range.end)?,
        })
    }

    /// Saves the checksum in a block's header; all zero is "not verified".
    fn set_checksum(&mut self, n: usize, md5: [u8; 16]) -> Result<Committed<S::File>> {
        let edit = Edit::block(BlockEdit::Checksum { n, md5 });
        self.commit_beside(&edit, &mut |_| ())
    }
}
