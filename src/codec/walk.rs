//! The chunks of a payload that stand one behind the other, found along their headers as far as readers have asked.
//!
//! Knows no format. What was found is kept in [`Entries`], so that most questions for an entry cost no read.

use super::entries::Entries;
use crate::error::Result;

/// Where a chunk begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkStart {
    /// Its decoded offset.
    pub(super) start: u64,
    /// What its header is found by: its offset in the payload, or its number.
    pub(super) mark: u64,
}

/// A chunk that was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FoundChunk {
    /// Where it begins.
    pub(super) at: ChunkStart,
    /// Decoded bytes from an entry in it to the next.
    pub(super) block: u64,
    /// Where the chunk behind it begins.
    pub(super) next: ChunkStart,
}

impl FoundChunk {
    /// The last entry in it at or before `offset`.
    #[cfg(feature = "blosc")]
    pub(super) fn entry(&self, offset: u64) -> u64 {
        let within = offset.saturating_sub(self.at.start);
        let rest = within.checked_rem(self.block).unwrap_or(within);
        self.at.start.saturating_add(within.saturating_sub(rest))
    }
}

/// The chunks found so far.
pub(super) struct ChunkWalk {
    found: Entries<FoundChunk>,
    /// The first place not looked at yet.
    frontier: ChunkStart,
}

impl ChunkWalk {
    /// No chunks yet, of a payload with so many decoded bytes.
    pub(super) fn new(data_size: u64) -> Self {
        Self {
            found: Entries::new(data_size, FoundChunk::default()),
            frontier: ChunkStart::default(),
        }
    }

    /// The chunk that holds the byte at `offset`. Those on the way there are read by `read`, which gives the chunk at a place, or
    /// the first behind it that has data.
    ///
    /// # Errors
    /// Of `read`; the walk goes on there when it is asked again.
    pub(super) fn locate(
        &mut self,
        offset: u64,
        mut read: impl FnMut(ChunkStart) -> Result<FoundChunk>,
    ) -> Result<FoundChunk> {
        let mut found = self.near(offset);
        while found.next.start <= offset {
            found = read(found.next)?;
            self.found.add(found.at.start, found);
            self.frontier = self.frontier.max(found.next);
        }
        Ok(found)
    }

    /// The chunk that holds `offset` if it is kept, else one that ends before it.
    fn near(&self, offset: u64) -> FoundChunk {
        let (_, near) = self.found.at(offset);
        if near.next.start <= offset && self.frontier.start <= offset && self.frontier > near.next {
            return FoundChunk {
                at: self.frontier,
                block: 0,
                next: self.frontier,
            };
        }
        near
    }

    /// The last place at or before `offset` that the walk has reached, after [`ChunkWalk::locate`] has failed.
    pub(super) fn reached(&self, offset: u64) -> ChunkStart {
        let near = self.near(offset);
        if near.next.start <= offset {
            near.next
        } else {
            near.at
        }
    }

    /// Bytes of memory held.
    pub(super) fn held(&self) -> u64 {
        self.found.held()
    }

    /// Drops about half of what is kept.
    pub(super) fn thin_out(&mut self) {
        self.found.thin_out();
    }
}
