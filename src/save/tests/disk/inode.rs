//! A file of the simulated disk: what reads see, and what may be on the medium.

use std::collections::{BTreeMap, BTreeSet};

use super::{BLOCK, SECTOR_LEN};

/// The bytes of a file, and which of them a crash may lose.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What reads see.
    pub(super) content: Vec<u8>,
    /// What reads see of it where pages are cached: without what another machine has written since it was opened last.
    pub(super) pages: Vec<u8>,
    /// What was last known to be on the medium, in whole sectors.
    disk: Vec<u8>,
    disk_len: usize,
    /// Versions of sectors that may be on the medium instead.
    versions: BTreeMap<usize, Vec<[u8; SECTOR_LEN]>>,
    /// Sectors that the next sync writes.
    pub(super) dirty: BTreeSet<usize>,
    /// Lengths that may be on the medium instead.
    pub(super) lengths: Vec<usize>,
    pub(super) links: u64,
    pub(super) mtime: i64,
}

impl Inode {
    fn sector(&self, n: usize) -> [u8; SECTOR_LEN] {
        let mut out = [0; SECTOR_LEN];
        let start = (n * SECTOR_LEN).min(self.content.len());
        let end = (start + SECTOR_LEN).min(self.content.len());
        out[..end - start].copy_from_slice(&self.content[start..end]);
        out
    }

    /// Notes that these bytes have changed.
    pub(super) fn touch(&mut self, start: usize, end: usize) {
        for n in start / SECTOR_LEN..end.div_ceil(SECTOR_LEN) {
            let now = self.sector(n);
            self.versions.entry(n).or_default().push(now);
            self.dirty.insert(n);
        }
    }

    pub(super) fn resize(&mut self, len: usize, stepwise: bool) {
        let old = self.content.len();
        self.content.resize(len, 0);
        self.pages.resize(len, 0);
        if len < old {
            // the rest of a block is zeroed, whole blocks go, maybe in several steps
            let block = len.next_multiple_of(BLOCK).min(old);
            self.touch(len, block);
            let step = (len + (old - len) / 2).next_multiple_of(BLOCK);
            self.lengths
                .extend((stepwise && step < old).then_some(step));
        }
        self.lengths.push(len);
    }

    pub(super) fn settle(&mut self, shrunk_too: bool) {
        for n in std::mem::take(&mut self.dirty) {
            let now = self.sector(n);
            let end = (n + 1) * SECTOR_LEN;
            self.disk.resize(self.disk.len().max(end), 0);
            self.disk[n * SECTOR_LEN..end].copy_from_slice(&now);
            self.versions.remove(&n);
        }
        if shrunk_too || self.content.len() >= self.disk_len {
            self.disk_len = self.content.len();
            self.disk
                .truncate(self.disk_len.next_multiple_of(SECTOR_LEN));
            self.versions
                .retain(|n, _| n * SECTOR_LEN < self.content.len());
            self.lengths.clear();
        }
    }

    /// How many versions each sector has, and then how many lengths there are.
    pub(super) fn choices(&self) -> Vec<usize> {
        let sectors = self.versions.values().map(|versions| versions.len() + 1);
        sectors.chain([self.lengths.len() + 1]).collect()
    }

    /// The file on the medium after these choices; 0 is the oldest.
    pub(super) fn survivor(&self, choices: &mut impl Iterator<Item = usize>) -> Self {
        let mut disk = self.disk.clone();
        for (n, versions) in &self.versions {
            let choice = choices.next().unwrap();
            if choice > 0 {
                let end = (n + 1) * SECTOR_LEN;
                disk.resize(disk.len().max(end), 0);
                disk[n * SECTOR_LEN..end].copy_from_slice(&versions[choice - 1]);
            }
        }
        let len = match choices.next().unwrap() {
            0 => self.disk_len,
            choice => self.lengths[choice - 1],
        };
        disk.resize(len, 0);
        Self::new(disk)
    }

    pub(super) fn new(content: Vec<u8>) -> Self {
        let mut disk = content.clone();
        disk.resize(content.len().next_multiple_of(SECTOR_LEN), 0);
        Self {
            disk_len: content.len(),
            content,
            disk,
            links: 1,
            ..Self::default()
        }
    }
}
