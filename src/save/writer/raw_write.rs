//! Writing into the data of a raw block: no journal for the data, as for any file, but never a false checksum.
//!
//! The checksum is "not verified" on disk before the first byte changes, and is set again when all of them are durable.

use std::ops::Range;

use super::{Committed, Method, Writer};
use crate::asdf::header::BlockHeader;
use crate::asdf::layout::Extent;
use crate::error::{Error, Place, Result};
use crate::save::baseline::named;
use crate::save::edit::{BlockEdit, Edit, no_such_block};
use crate::save::store::Store;
use crate::save::view::write_all;
use crate::source::{Source, checked_end};

/// How many bytes are in memory at a time.
const STEP: usize = 1 << 20;

/// What is to be written into the data of a raw block, where they are.
pub struct RawWrite<'a> {
    /// The block.
    pub n: usize,
    /// Its data as they are to be.
    pub data: &'a dyn Source,
    /// What of them is written.
    pub ranges: &'a [Range<u64>],
    /// Gives the MD5 of the data, all zero for "not verified". Asked for when they have been written.
    pub md5: &'a dyn Fn() -> Result<[u8; 16]>,
}

impl<S: Store> Writer<S> {
    /// Writes data of a raw block where they are. When this returns, they are durable, and so is their checksum.
    ///
    /// Space for all of it is found before anything changes, so that nothing is begun that a full disk would end. If it fails, `begun` is
    /// the save that set the checksum to "not verified", if it came to that: it stays so, and some of the data may be new.
    ///
    /// # Errors
    /// [`Error::Rejected`] if there is no such block or it is compressed; [`Error::Stale`] if another file has taken FILE's name;
    /// [`Error::Io`] if the data are not durable; those of reading them and of [`Writer::commit`].
    pub fn write_raw(
        &mut self,
        write: &RawWrite<'_>,
        begun: &mut Option<Committed<S::File>>,
    ) -> Result<Committed<S::File>> {
        let done = self.begin_raw(write).and_then(|first| {
            let first = begun.insert(first);
            self.finish_raw(write, first)
        });
        self.raw = None;
        done
    }

    /// Finds space, and sets the checksum to "not verified".
    fn begin_raw(&mut self, write: &RawWrite<'_>) -> Result<Committed<S::File>> {
        let raw = |block: &&BlockHeader| block.compression == [0; 4];
        let block = self.layout().blocks.get(write.n).filter(raw);
        let block = block.ok_or_else(|| no_such_block(write.n, "no raw block"))?;
        self.broken.clone().map_or(Ok(()), Err)?;
        self.alone()?;
        let file = self.open_writable()?;
        let found = self.store.stat(&file);
        let found = found.map_err(|cause| self.error("reading its state", cause))?;
        self.own.begin(found);
        let there = self.layout().stored_len(write.n);
        for range in write.ranges {
            if range.end > there {
                let why = format!("{} bytes to be written of {there} in the file", range.end);
                return Err(Error::corrupt(Place::Block(write.n), why));
            }
            let at = |offset: u64| block.data_offset().saturating_add(offset);
            let extent = Extent {
                start: at(range.start),
                end: at(range.end),
            };
            let reserve = || self.store.reserve(&file, extent);
            let reserved = self.own.write(|| self.store.stat(&file), reserve);
            reserved.map_err(|cause| self.error("reserving space", cause))?;
        }
        self.raw = Some(file);
        self.set_checksum(write.n, [0; 16])
    }

    /// Writes the data, makes them durable, and sets their checksum. Writes nothing if `begun`, the save that set it to "not
    /// verified", is unfinished.
    fn finish_raw(
        &mut self,
        write: &RawWrite<'_>,
        begun: &Committed<S::File>,
    ) -> Result<Committed<S::File>> {
        if let Some(left) = &begun.unfinished {
            return Err(left.clone());
        }
        self.write_data(write)?;
        let md5 = (write.md5)()?;
        self.sync_data(write)?;
        let mut committed = self.set_checksum(write.n, md5)?;
        if committed.method == Method::Nothing {
            // the header stays as it is, but not the data
            committed.method = Method::InPlace;
            committed.around = self.own.end(self.store.stat(&self.file));
            self.baseline.renew(committed.around.map(|around| around.1));
        }
        let lens = write.ranges.iter();
        let lens = lens.map(|range| range.end.saturating_sub(range.start));
        committed.written = lens.fold(committed.written, u64::saturating_add);
        Ok(committed)
    }

    /// Saves the checksum in a block's header; all zero is "not verified".
    fn set_checksum(&mut self, n: usize, md5: [u8; 16]) -> Result<Committed<S::File>> {
        let edit = Edit::block(BlockEdit::Checksum { n, md5 });
        self.commit(&edit, &mut |_| ())
    }

    /// Writes the data into the file that was opened for it, a [`STEP`] at a time. They need not be durable afterwards.
    fn write_data(&self, write: &RawWrite<'_>) -> Result<()> {
        let (Some(file), Some(block)) = (&self.raw, self.layout().blocks.get(write.n)) else {
            return Err(no_such_block(write.n, "no raw block"));
        };
        let there = self.layout().stored_len(write.n);
        let mut buf = vec![0; STEP];
        for range in write.ranges {
            let mut at = range.start;
            while at < range.end {
                let len = usize::try_from(range.end.saturating_sub(at)).unwrap_or(STEP);
                let piece = buf.get_mut(..len.min(STEP)).unwrap_or_default();
                let end = checked_end(at, piece.len(), there)
                    .map_err(|error| error.at(Place::Block(write.n)))?;
                write.data.read_exact_at(piece, at)?;
                let place = block.data_offset().saturating_add(at);
                let write = || write_all(&*self.store, file, piece, place);
                self.own.write(|| self.store.stat(file), write)?;
                at = end;
            }
        }
        Ok(())
    }

    /// Makes written data durable. A sync that failed may have dropped some of them, so they are all written once more before the
    /// second one.
    fn sync_data(&mut self, write: &RawWrite<'_>) -> Result<()> {
        let named = named(&*self.store, &self.name)?;
        if named.is_none_or(|named| named.id != self.baseline.stat.id) {
            return Err(self.replaced());
        }
        if self.sync_raw().is_ok() {
            return Ok(());
        }
        self.write_data(write)?;
        self.sync_raw()
            .inspect_err(|error| self.note_failure(error))
    }

    fn sync_raw(&self) -> Result<()> {
        let synced = self.raw.as_ref().map(|file| self.store.sync_data(file));
        synced
            .unwrap_or(Ok(()))
            .map_err(|cause| self.error("writing to disk", cause))
    }
}
