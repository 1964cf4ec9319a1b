//! Finding blocks with the help of the block index, where skipping along leads nowhere or past blocks.
//!
//! A stale index, or data that look like an index, must not be used. An index is used if it lists all blocks that skipping along
//! has found, and more, and if its places fit: each has the header of a block that ends where the next one begins, or is where the
//! block in front ends. An index is also used if each of its places has a whole header: other headers that were found are then
//! left over from an update.

use super::BLOCK_LIMIT;
use super::index_hint::IndexHint;
use super::walk::{BlockWalk, Ended, LONGEST_HEADER};
use crate::asdf::header::{BlockHeader, FIELDS_LEN, STREAMED};
use crate::asdf::layout::{BlockIndex, Severity};
use crate::asdf::parts::Parts;
use crate::error::{Error, Place, Result};
use crate::source::len_u64;

/// The most blocks whose headers may be lost. If there are more, the index is taken to be wrong.
const LOST_LIMIT: usize = 1000;

/// A place where the block index has a block, and what was found there.
struct Placed {
    header: BlockHeader,
    /// The fault of the header, if it has one.
    flaw: Option<String>,
    /// Whether nothing of the header can be used.
    lost: bool,
    /// Whether skipping along has come here.
    found: bool,
    /// Where the next block or the index begins.
    limit: u64,
    /// Where the used bytes end by the header that was found there.
    used_end: u64,
}

impl Placed {
    /// Whether the header is whole and fits its place.
    fn sound(&self) -> bool {
        self.flaw.is_none()
    }
}

impl BlockWalk<'_> {
    /// Takes all blocks from the block index, if the index surely knows more than skipping along has found. Returns whether it did.
    pub(super) fn ask_index(&mut self, ended: &Ended) -> Result<bool> {
        // in most files the walk has found all blocks, and the index is not even read
        if !self.may_hide_blocks(ended) {
            return Ok(false);
        }
        let Some(hint) = self.hint()? else {
            return Ok(false);
        };
        let Some(entries) = self.entries(&hint)? else {
            // some blocks that were found are not listed: they may be left over from an update
            let vouched = self.vouched(&hint)?;
            let helps = vouched.is_some();
            if let Some(entries) = vouched {
                self.take(entries, &hint, ended);
            }
            return Ok(helps);
        };
        let known = entries.iter().filter(|entry| entry.found).count();
        if entries.iter().filter(|entry| entry.lost).count() > LOST_LIMIT {
            return Ok(false);
        }
        let helps = match (ended, self.layout.blocks.last()) {
            // without a block, all that counts is whether blocks fit in front of the index
            (Ended::Complete, None) => self.room_for_blocks(&hint),
            // the walk has come to its end in order: new
            // blocks can only lie where it skipped over them
            (Ended::Complete, Some(last)) if self.end_in_file(last).is_some() => {
                known < entries.len() && skipped_over(&entries)
            }
            // the walk has broken off, or its last block reaches beyond the file
            _ => leads_on(&entries, hint.extent.start),
        };
        if helps {
            self.take(entries, &hint, ended);
        }
        Ok(helps)
    }

    /// Whether there can be blocks that skipping along did not come to.
    fn may_hide_blocks(&self, ended: &Ended) -> bool {
        let Some(last) = self.layout.blocks.last() else {
            return true;
        };
        match (ended, &self.layout.index) {
            (Ended::Unreadable(..), _) => self.layout.blocks.len() < BLOCK_LIMIT,
            (Ended::Stuck(_), _) => true,
            // the sizes and the checksum of a block that is streamed are zero
            _ if last.streamed() => {
                last.allocated > 0 || last.used > 0 || last.data_size > 0 || last.has_checksum()
            }
            _ if self.end_in_file(last).is_none() => true,
            (Ended::Complete, BlockIndex::Valid(_)) => false,
            (Ended::Complete, BlockIndex::Wrong(..)) => true,
            // the last block may reach over the index
            (Ended::Complete, BlockIndex::Absent) => last.allocated > last.used,
        }
    }

    /// The places that the index lists; `None` if it does not list all blocks that were found.
    fn entries(&mut self, hint: &IndexHint) -> Result<Option<Vec<Placed>>> {
        let is_listed = |block: &BlockHeader| hint.offsets.binary_search(&block.offset).is_ok();
        if !self.layout.blocks.iter().all(is_listed) {
            return Ok(None);
        }
        let entries = hint.places().map(|(offset, limit)| {
            let blocks = &self.layout.blocks;
            let before = blocks.partition_point(|block| block.offset < offset);
            let found = blocks.get(before);
            let is_found = found.is_some_and(|block| block.offset == offset);
            self.entry(offset, limit, is_found)
        });
        entries.collect::<Result<_>>().map(Some)
    }

    /// The blocks of an index that does not list all blocks that were found. `None` unless the index passes the tests of
    /// asdf-python, each of its places has a whole header, and the tree needs no more blocks.
    ///
    /// asdf-python 2 updates files in such a way that headers of blocks that are gone stay in the file, behind blocks that
    /// no longer reach up to them.
    fn vouched(&mut self, hint: &IndexHint) -> Result<Option<Vec<Placed>>> {
        // asdf-python's first test: the index begins with the first block
        let first = self.layout.blocks.first().map(|block| block.offset);
        let count = hint.offsets.len();
        let is_enough = self.blocks_needed().is_some_and(|needed| needed <= count);
        if first != hint.offsets.first().copied() || !is_enough {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(count);
        let mut end = None;
        for (offset, limit) in hint.places() {
            let header = self.header(offset)?.ok();
            let Some(header) = header.filter(|header| {
                !header.streamed()
                    && header.used <= header.allocated
                    && header.end().is_some_and(|end| end <= limit)
            }) else {
                return Ok(None);
            };
            end = header.end();
            entries.push(Placed {
                used_end: header.data_offset().saturating_add(header.used),
                header,
                flaw: None,
                lost: false,
                found: true,
                limit,
            });
        }
        // asdf-python's last test: the last block ends where the index begins
        Ok((end == Some(hint.extent.start)).then_some(entries))
    }

    /// The place at `offset`, where the index has a block, if something else begins at `limit`.
    fn entry(&mut self, offset: u64, limit: u64, found: bool) -> Result<Placed> {
        let header = self.header(offset)?;
        let mended = self.mended(offset, limit)?;
        let used = |header: &BlockHeader| header.data_offset().saturating_add(header.used);
        let used_end = header.as_ref().map_or(offset, used);
        let mut is_lost = false;
        // in the order of trust: a header that fits its place; one that fits if magic, size
        // and flags are put right; one of which only the allocated size is wrong; none
        let (header, flaw) = match (header, mended) {
            (Ok(header), _) if self.fits(&header, limit, found)? => (header, None),
            (header, Some(mended)) => {
                let why = match header {
                    Ok(header) if header.streamed() => "it says that it is streamed".to_owned(),
                    Ok(header) => format!("it says that it has {} bytes", header.header_size),
                    Err(error) => reason(error),
                };
                let why =
                    format!("its header is damaged: {why}; read as the block index places it");
                (mended, Some(why))
            }
            (Ok(header), None) if can_be_cut(&header, limit) => {
                let why = format!(
                    "{} bytes allocated, but something else begins after {}",
                    header.allocated,
                    limit.saturating_sub(header.data_offset())
                );
                (header, Some(why))
            }
            (header, None) => {
                let why = match header {
                    Ok(_) => "its sizes reach over what lies behind it".to_owned(),
                    Err(error) => reason(error),
                };
                is_lost = true;
                (
                    lost(offset, limit),
                    Some(format!("its header is lost: {why}")),
                )
            }
        };
        Ok(Placed {
            header,
            flaw,
            lost: is_lost,
            found,
            limit,
            used_end,
        })
    }

    /// Whether a block with that header ends in front of `limit`, and no other follows there that the index does not know.
    fn fits(&mut self, header: &BlockHeader, limit: u64, found: bool) -> Result<bool> {
        let Some(end) = header.end().filter(|_| !header.streamed()) else {
            return Ok(false);
        };
        // the walk has been behind this block and knows what is there
        if found || end >= limit {
            return Ok(end <= limit);
        }
        Ok(header.used <= header.allocated && self.plausible(end)?.is_none())
    }

    /// The header at `offset`, with its magic, header size and flags put right. `None` unless its sizes then make the
    /// block end exactly at `limit`.
    fn mended(&mut self, offset: u64, limit: u64) -> Result<Option<BlockHeader>> {
        let dialect = self.dialect;
        let mut bytes = self.header_bytes(offset)?.to_vec();
        let size = FIELDS_LEN.to_be_bytes();
        let start = dialect.magics.iter().take(1).flatten().chain(&size);
        for (to, from) in bytes.iter_mut().zip(start) {
            *to = *from;
        }
        let header = BlockHeader::parse(&bytes, offset, &dialect).ok();
        let header = header.map(|header| BlockHeader {
            flags: header.flags & !STREAMED,
            ..header
        });
        // bytes that are no header would have to hit `limit` by chance
        Ok(header.filter(|header| {
            let agrees = header.is_transformed() || header.data_size == header.used;
            header.end() == Some(limit) && header.used <= header.allocated && agrees
        }))
    }

    /// Whether there is room for the blocks of the index between it and the text.
    fn room_for_blocks(&self, hint: &IndexHint) -> bool {
        let room = hint.extent.start.saturating_sub(self.layout.text_end);
        room >= len_u64(LONGEST_HEADER)
    }

    /// Replaces the blocks of the layout by these, and notes their faults.
    fn take(&mut self, entries: Vec<Placed>, hint: &IndexHint, ended: &Ended) {
        // from here on the index vouches for the numbers: no gap puts them in doubt
        self.guided = true;
        // the index has no block where the walk stopped: a note, and no reason to stop
        if let Ended::Unreadable(at, error) = ended
            && hint.offsets.binary_search(at).is_err()
        {
            self.layout.note(Severity::Odd, error.clone());
        }
        // `run` looks for it once more, to compare it with these blocks
        self.layout.index = BlockIndex::Absent;
        self.layout.blocks = Parts::default();
        let last = entries.len().saturating_sub(1);
        for (n, entry) in entries.into_iter().enumerate() {
            let end = entry.header.end().unwrap_or(entry.limit);
            if let Some(why) = entry.flaw {
                let error = Error::corrupt(Place::Block(n), why);
                self.layout.note(Severity::ReadOnly, error.clone());
                if entry.lost {
                    self.layout.lost.insert(n, error);
                }
            } else if end < entry.limit && n < last {
                let gap = entry.limit.saturating_sub(end);
                let why = format!("{gap} bytes that belong to no block");
                let error = Error::corrupt(Place::Byte(end), why);
                self.layout.note(Severity::Odd, error);
            }
            self.layout.blocks.push(entry.header);
        }
        // a last block that reaches over the index keeps `find_index` from seeing it
        if self.layout.blocks_end() > hint.extent.start {
            self.layout.index = BlockIndex::Valid(hint.extent);
        }
    }
}

/// Whether skipping along has passed over blocks that are sure to be some.
fn skipped_over(entries: &[Placed]) -> bool {
    // in front of the first block that was found, all may be lost
    let mut behind = entries.iter().skip_while(|entry| !entry.found);
    behind.all(|entry| entry.found || entry.sound()) && !any_in_use(entries)
}

/// Whether an entry lies in bytes that a block uses, so that it is data.
fn any_in_use<'a>(entries: impl IntoIterator<Item = &'a Placed>) -> bool {
    let mut used_end = 0;
    entries.into_iter().any(|entry| {
        if entry.found {
            used_end = entry.used_end;
        }
        !entry.found && entry.header.offset < used_end
    })
}

/// Whether the index leads on from where skipping along has ended, at or behind the last block that was found.
fn leads_on(entries: &[Placed], index: u64) -> bool {
    // the sizes of the last block that was found may be wrong, so it does not count here
    let ahead = entries.iter().rposition(|entry| entry.found);
    if any_in_use(entries.iter().take(ahead.unwrap_or(0))) {
        return false;
    }
    let mut end = None;
    for entry in entries {
        // a found block that ends exactly here vouches for
        // the place, even if its own header is damaged
        let follows = end == Some(entry.header.offset);
        if !entry.found && (entry.sound() || follows) {
            return true;
        }
        end = entry.header.end().filter(|_| entry.found);
    }
    let known = entries.iter().filter(|entry| entry.found && entry.sound());
    let Some(last) = entries.last().filter(|last| last.found) else {
        return false;
    };
    // one whose allocated size is wrong does not end at the index, and one that is lost has no end
    let ends_there = !last.lost && last.header.end() == Some(index);
    ends_there || !last.sound() && (known.count() > 0 || last.used_end == index)
}

/// Whether nothing but the allocated size of a block is wrong.
fn can_be_cut(header: &BlockHeader, limit: u64) -> bool {
    let used_end = header.data_offset().checked_add(header.used);
    let agrees = header.is_transformed() || header.data_size == header.used;
    header.header_size == FIELDS_LEN
        && !header.streamed()
        && agrees
        && used_end.is_some_and(|end| end <= limit)
}

/// Stands for a header that can't be read: all bytes up to `limit` are data.
fn lost(offset: u64, limit: u64) -> BlockHeader {
    let header = BlockHeader::new(offset);
    let room = limit.saturating_sub(header.data_offset());
    BlockHeader {
        allocated: room,
        used: room,
        data_size: room,
        ..header
    }
}

/// The reason of an error, without its place: the finding names the block.
fn reason(error: Error) -> String {
    match error {
        Error::Corrupt { why, .. } => why,
        error => error.to_string(),
    }
}
