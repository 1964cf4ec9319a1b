//! A save of nothing but the checksum of a block, which is part of each close of a raw one: its time does not depend on how many blocks
//! there are.

use std::sync::Arc;

use super::{Committed, Method, Writer};
use crate::asdf::header::BlockHeader;
use crate::asdf::scan::Scan;
use crate::error::Result;
use crate::save::edit::{BlockEdit, Edit};
use crate::save::inplace;
use crate::save::rope::Segment;
use crate::save::store::Store;
use crate::save::view::StoreSource;
use crate::source::{Source, Stat};

impl<S: Store> Writer<S> {
    /// The save of such an edit. `None` if it is another edit, or if more of FILE has to be looked at: if it has been touched, if the last
    /// save has left something, if there is something to be mended in its layout, and where a new file is preferred.
    ///
    /// Of FILE's bytes only the header that is written is compared. What else another program may have changed stays as it is.
    pub(super) fn commit_checksum(
        &mut self,
        edit: &Edit,
        observer: &mut dyn FnMut(bool),
    ) -> Result<Option<Committed<S::File>>> {
        let (None, [BlockEdit::Checksum { n, md5 }]) = (&edit.text, &*edit.blocks) else {
            return Ok(None);
        };
        if self.options.replace || self.unsettled.is_some() || !self.is_tidy()? {
            return Ok(None);
        }
        let (file, stat) = self.baseline.opened_anew(&self.store, &self.name)?;
        let old = StoreSource::new(&self.store, &file, stat.size);
        let known = self.layout().blocks.get(*n).map(BlockHeader::to_bytes);
        let Some(header) = known.filter(|_| self.is_untouched(&stat)) else {
            return Ok(None);
        };
        let offset = self.layout().blocks.get(*n).map_or(0, |block| block.offset);
        let mut found = vec![0; header.len()];
        old.read_exact_at(&mut found, offset)?;
        self.baseline.renew(Some(stat));
        let mut baseline = self.baseline.clone();
        let changed = baseline.layout.blocks.get_mut(*n).map(|block| {
            block.checksum = *md5;
            block.to_bytes()
        });
        let Some(new) = changed.filter(|_| found == header) else {
            return Ok(None);
        };
        let change = [(offset, Segment::Write(Arc::new(new)))];
        let Some(record) = inplace::record(&old, &change, baseline.layout.len)? else {
            return Ok(None);
        };
        self.begin_own();
        let mut save = Committed {
            file: self.file.clone(),
            scan: Scan {
                layout: baseline.layout.clone(),
                text: Arc::clone(&baseline.text),
            },
            method: Method::Nothing,
            written: 0,
            unfinished: None,
            bytes: None,
            around: None,
        };
        if record.is_empty() {
            return Ok(Some(save));
        }
        self.alone()?;
        let done = self.in_place(false, record, &mut save, observer);
        self.finished(done, save, baseline, Arc::new(old)).map(Some)
    }

    /// Whether only this save has written FILE since it was compared.
    fn is_untouched(&self, now: &Stat) -> bool {
        let known = self.baseline.stat;
        let by_us = || self.raw.is_some() && self.own.alone_since(&known, now);
        self.baseline.same_moment(now) || self.baseline.same_moment(&known) && by_us()
    }

    /// Whether a save of nothing would change nothing: no index to mend, no bytes that belong to no block.
    fn is_tidy(&self) -> Result<bool> {
        if let Some(known) = self.baseline.tidy.get() {
            return Ok(*known);
        }
        let plan = self.plan(&Edit::default())?;
        let tidy = plan.in_place().is_some_and(|changes| changes.is_empty());
        Ok(*self.baseline.tidy.get_or_init(|| tidy))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::asdf::sample::Sample;
    use crate::asdf::scan::scan;
    use crate::error::Error;
    use crate::save::tests::disk::{Deed, Sim};
    use crate::save::writer::SaveOptions;
    use crate::source::Memory;

    const NAME: &str = "f.asdf";

    fn open(sample: &Sample) -> (Arc<Sim>, Writer<Sim>) {
        let sim = Arc::new(Sim::new(NAME.as_ref(), &sample.bytes()));
        let opened = Writer::open_in(Arc::clone(&sim), NAME.as_ref(), SaveOptions::default());
        let Ok(opened) = opened else {
            panic!("it can be opened");
        };
        (sim, opened.writer)
    }

    fn blocks(count: usize) -> Sample {
        (0..count).fold(Sample::new(), |sample, _| sample.block(b"abc"))
    }

    fn checksum(n: usize, byte: u8) -> Edit {
        Edit::block(BlockEdit::Checksum { n, md5: [byte; 16] })
    }

    /// With 400 blocks it took 5 ms, of which all but one header were not concerned.
    #[test]
    fn a_checksum_costs_the_same_however_many_blocks_there_are() {
        let read = |count| {
            let (sim, mut writer) = open(&blocks(count));
            writer.save(&checksum(1, 1)).unwrap();
            let before = sim.bytes_read();
            writer.save(&checksum(2, 2)).unwrap();
            sim.bytes_read() - before
        };
        assert_eq!(read(5), read(500));
    }

    #[test]
    fn what_is_saved_is_what_is_read() {
        let (sim, mut writer) = open(&blocks(200));
        for (n, byte) in [(0, 1), (199, 2), (100, 3), (0, 0)] {
            let saved = writer.save(&checksum(n, byte)).unwrap();
            assert_eq!(saved.method, Method::InPlace);
            let content = sim.content(NAME.as_ref()).unwrap();
            let found = scan(&Memory::new(content), false).unwrap().layout;
            assert!(
                found.blocks == saved.scan.layout.blocks && found.blocks == writer.layout().blocks
            );
            assert_eq!(found.blocks[n].checksum, [byte; 16]);
            assert!(saved.around.is_some() && writer.reload().unwrap().is_none());
        }
        assert_eq!(
            writer.save(&checksum(0, 0)).unwrap().method,
            Method::Nothing
        );
    }

    #[test]
    fn it_is_not_written_into_what_another_program_has_made_of_the_header() {
        let sample = blocks(3);
        let bytes = sample.bytes();
        let at = bytes
            .windows(4)
            .rposition(|part| part == b"\xd3BLK")
            .unwrap()
            + 30;
        for known in [false, true] {
            let (sim, mut writer) = open(&sample);
            if known {
                writer.save(&checksum(0, 1)).unwrap();
            }
            sim.do_elsewhere(Deed::Touch(at));
            let saved = writer.save(&checksum(2, 2));
            assert!(matches!(saved, Err(Error::Stale { .. })));
            assert_eq!(sim.content(NAME.as_ref()).unwrap()[at], b'!');
        }
    }

    /// As any save does, it mends the block index.
    #[test]
    fn a_wrong_index_is_mended() {
        let (sim, mut writer) = open(&blocks(3).index(false));
        writer.save(&checksum(0, 1)).unwrap();
        let content = sim.content(OsStr::new(NAME)).unwrap();
        assert!(content.windows(5).any(|part| part == b"INDEX"));
    }
}
