//! What FILE was when it was read. Compared with what it is, it tells whether another program has changed FILE.
//!
//! Bytes decide, not times: some filesystems have clocks too coarse to tell two writes apart, and a change of times alone must
//! not cost the user the save of a text. (Edits of a block end with it: the bytes of blocks are not compared.)

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::sync::Arc;

use super::digest::{Digest, Sha256};
use super::store::{Access, Store, is_gone};
use super::view::StoreSource;
use crate::asdf::layout::Layout;
use crate::asdf::scan::{Scan, scan};
use crate::error::{Error, Result};
use crate::source::{Source, Stat, each_piece, len_u64};

/// How much is compared at a time.
const STEP: usize = 1 << 20;

/// Identity, length and times of FILE, its text and layout, and the SHA-256 of the space behind the text.
///
/// Its times, owner and mode are those of the last look, not those of the mount: what must hold since the mount began is a field of
/// [`Writer`](super::Writer).
///
/// A save takes that digest twice: of FILE as it is, for the comparison before anything is written, and of the next file, with which the
/// save after it compares. The second one is of the planned bytes: taken from the disk later, it could be of bytes that another program
/// has written since.
///
/// The text is shared with the mount that shows it, so that it takes no memory of its own, and is compared byte for byte. Block data
/// are not read: they may be too long to be read at each save, and no save depends on them.
#[derive(Debug, Clone)]
pub(super) struct Baseline {
    pub(super) stat: Stat,
    pub(super) text: Arc<Vec<u8>>,
    pub(super) layout: Layout,
    rest: [u8; 32],
    /// The byte that fills the space between the text and the first block; zero if that is empty or holds several values.
    pub(super) padding: u8,
    /// Whether FILE was changed while it was scanned, so that scan and digest may be of different bytes.
    pub(super) torn: bool,
    /// Whether the times of `stat` are FILE's. False if `fstat` failed after a save.
    pub(super) timed: bool,
    /// Whether a save of nothing would change nothing of the layout; empty until that has been asked.
    pub(super) tidy: OnceCell<bool>,
}

impl Baseline {
    /// FILE as it was scanned; `before` is its `stat` from before the scan. If another program has written FILE since then, it counts as
    /// changed whatever its bytes are, because scan and digest may be of different bytes.
    pub(super) fn of<S: Store>(
        store: &Arc<S>,
        file: &S::File,
        before: &Stat,
        scan: &Scan,
    ) -> Result<Self> {
        let stat = stat(store, file)?;
        let (rest, padding) = padding_of(&StoreSource::open(store, file)?, &scan.layout)?;
        let mut now = Self {
            stat,
            text: Arc::clone(&scan.text),
            layout: scan.layout.clone(),
            rest,
            padding,
            torn: false,
            timed: true,
            tidy: OnceCell::new(),
        };
        // a write between the scan and the digest would be taken for FILE's own state, and a later save would not see it
        now.torn = !now.same_moment(before);
        Ok(now)
    }

    /// Keeps `shown` as the text if it has the same bytes, so that a long text is in memory once.
    pub(super) fn share_text(&mut self, shown: &Arc<Vec<u8>>) {
        if self.text == *shown {
            self.text = Arc::clone(shown);
        }
    }

    /// What FILE is to be after a save: `bytes`, which have been scanned. Identity and times stay those from before the save.
    pub(super) fn succeeded_by(&self, bytes: &dyn Source, next: &Scan) -> Result<Self> {
        let (rest, padding) = padding_of(bytes, &next.layout)?;
        let mut next = Self {
            stat: Stat {
                size: next.layout.len,
                ..self.stat
            },
            text: Arc::clone(&next.text),
            layout: next.layout.clone(),
            rest,
            padding,
            torn: self.torn,
            timed: false,
            tidy: OnceCell::new(),
        };
        next.share_text(&self.text);
        Ok(next)
    }

    /// Takes over the identity and times of FILE after a save. Without any, as `fstat` failed or another program may have written FILE, the
    /// next comparison goes by content alone.
    pub(super) fn renew(&mut self, stat: Option<Stat>) {
        self.timed = stat.is_some();
        if let Some(stat) = stat {
            let size = self.stat.size;
            self.stat = Stat { size, ..stat };
        }
    }

    /// FILE, opened once more by its name. A file system that others write to as well may show what it was when an older descriptor was
    /// opened. Also its `stat`, from before anything is read of it.
    ///
    /// # Errors
    /// [`Error::Stale`] if the name is gone or leads to another file; [`Error::Io`] of looking.
    pub(super) fn opened_anew<S: Store>(
        &self,
        store: &Arc<S>,
        name: &OsStr,
    ) -> Result<(S::File, Stat)> {
        let replaced = "has been replaced by another file since it was read";
        let gone = "is no longer there under its name";
        match named(&**store, name)? {
            Some(named) if named.id == self.stat.id => {}
            Some(_) => return Err(changed(name, replaced)),
            None => return Err(changed(name, gone)),
        }
        let file = match store.open(name, Access::Read) {
            Err(error) if is_gone(&error) => return Err(changed(name, gone)),
            opened => opened.map_err(|cause| Error::io(name.display().to_string(), cause))?,
        };
        let stat = stat(store, &file)?;
        // between the look at the name and open(2) another program can have replaced the file
        if stat.id != self.stat.id {
            return Err(changed(name, replaced));
        }
        // the name was found in a cache
        if stat.links == 0 && self.stat.links > 0 {
            return Err(changed(name, gone));
        }
        Ok((file, stat))
    }

    /// Compares with FILE as it is now, by its content, which is `view`. The content is read even if the times are the same.
    ///
    /// # Errors
    /// [`Error::Stale`] that says how, if it has other bytes; [`Error::Io`] of reading them.
    pub(super) fn compare(&self, name: &OsStr, view: &dyn Source) -> Result<()> {
        if self.torn {
            let why = "was changed by another program while it was read";
            return Err(changed(name, why));
        }
        // the cheapest comparison first: it reads nothing
        let (is, was) = (view.len(), self.stat.size);
        if is != was {
            let why = format!("has {is} bytes, it had {was} when it was read");
            return Err(changed(name, &why));
        }
        let is_same = self.has_text(view)?
            && padding_of(view, &self.layout)?.0 == self.rest
            && self.has_headers(view)?;
        if !is_same {
            let why = "has been changed by another program since it was read";
            return Err(changed(name, why));
        }
        Ok(())
    }

    /// Whether FILE, which is as long as it was, begins with the text.
    fn has_text(&self, file: &dyn Source) -> Result<bool> {
        let mut wanted = self.text.as_slice();
        let mut same = true;
        each_piece(file, 0..len_u64(wanted.len()), STEP, |found| {
            let (now, later) = wanted.split_at_checked(found.len()).unwrap_or_default();
            same &= now == found;
            wanted = later;
            Ok(())
        })?;
        Ok(same)
    }

    /// Whether FILE has the block headers where they were.
    fn has_headers(&self, file: &dyn Source) -> Result<bool> {
        let mut found = [0; 54];
        for block in self.layout.blocks.iter() {
            // headers are compared, data are not: where blocks lie is all that a save relies on
            file.read_exact_at(&mut found, block.offset)?;
            if found.as_slice() != block.to_bytes() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the file has not been touched since.
    pub(super) fn same_moment(&self, stat: &Stat) -> bool {
        !self.torn && self.timed && stat.is_untouched_since(&self.stat)
    }
}

/// The error that FILE is not what it was.
fn changed(name: &OsStr, why: &str) -> Error {
    let why = format!("{} {why}", name.display());
    Error::Stale { why }
}

/// The `stat` of the file of that name; `None` if there is none, or if another directory has the path of this one, and a file of that name.
/// A directory that was only renamed is still that of the file.
///
/// # Errors
/// [`Error::Io`] if the call fails for another reason: the file may be there.
pub(super) fn named<S: Store>(store: &S, name: &OsStr) -> Result<Option<Stat>> {
    match store.moved() {
        Ok(Some(other)) if in_directory(&other, name)?.is_some() => Ok(None),
        Ok(_) => in_directory(store, name),
        Err(error) if is_gone(&error) => in_directory(store, name),
        Err(cause) => Err(Error::io(name.display().to_string(), cause)),
    }
}

/// The `stat` of the file of that name in the directory that is open, wherever that is now; `None` if there is none.
///
/// # Errors
/// As [`named`].
pub(super) fn in_directory<S: Store>(store: &S, name: &OsStr) -> Result<Option<Stat>> {
    let failed = |cause| Error::io(name.display().to_string(), cause);
    match store.stat_name(name) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(cause) => Err(failed(cause)),
    }
}

/// The `stat` of FILE now.
pub(super) fn stat<S: Store>(store: &Arc<S>, file: &S::File) -> Result<Stat> {
    let found = store.stat(file);
    found.map_err(|cause| Error::io("reading the file's state", cause))
}

/// FILE as a scan finds it, and its `stat` from before that.
pub(super) fn scanned<S: Store>(store: &Arc<S>, file: &S::File) -> Result<(Stat, Scan)> {
    let before = stat(store, file)?;
    let scan = scan(&StoreSource::new(store, file, before.size), false)?;
    Ok((before, scan))
}

/// The SHA-256 of what stands between the text and the first block, and the byte that this space is filled with.
fn padding_of(file: &dyn Source, layout: &Layout) -> Result<([u8; 32], u8)> {
    let end = layout.head().end.min(file.len());
    let mut hasher = Sha256::default();
    let (mut byte, mut mixed) = (None, false);
    each_piece(file, layout.text_end..end, STEP, |bytes| {
        hasher.update(bytes);
        let byte = *byte.get_or_insert(bytes.first().copied().unwrap_or(0));
        mixed |= bytes.iter().any(|&other| other != byte);
        Ok(())
    })?;
    Ok((
        hasher.finalize().into(),
        // a space of several values is filled with zeros: the format allows any byte there
        byte.filter(|_| !mixed).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::save::edit::Edit;
    use crate::save::tests::disk::{Sim, Trouble};
    use crate::save::writer::{Method, SaveOptions, Writer};

    const NAME: &str = "f.asdf";

    /// A name that could not be looked at was taken for one that is gone.
    #[test]
    fn what_can_not_be_looked_at_has_not_changed() {
        const EMFILE: i32 = 24;
        let sample = Sample::new().block(b"abc");
        let sim = Arc::new(Sim::new(NAME.as_ref(), &sample.bytes()));
        let opened = Writer::open_in(Arc::clone(&sim), NAME.as_ref(), SaveOptions::default());
        let Ok(mut opened) = opened else {
            panic!("it can be opened");
        };
        let writer = &mut opened.writer;
        let text = b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec();
        let edit = Edit::text(Arc::new(text));
        let blind = |blind| {
            sim.arm(Trouble {
                blind,
                ..Trouble::default()
            });
        };
        let code = |error| match error {
            Some(Error::Io { cause, .. }) => cause.raw_os_error(),
            other => panic!("{other:?}"),
        };
        blind(Some((0, EMFILE)));
        assert_eq!(code(writer.reload().err()), Some(EMFILE));
        assert_eq!(code(writer.save(&edit).err()), Some(EMFILE));
        blind(None);
        assert!(matches!(writer.reload(), Ok(None)));
        writer.save(&edit).unwrap();
        // as if it could not be looked at behind the save
        writer.forget_times();
        assert!(matches!(writer.reload(), Ok(None)));
        writer
            .save(&Edit::text(Arc::new(Sample::TREE.to_vec())))
            .unwrap();
        sim.unlink(NAME.as_ref()).unwrap();
        assert!(matches!(writer.reload(), Err(Error::Stale { .. })));
    }

    /// Its writer then looked for the file that it had replaced, and was not to save again.
    #[test]
    fn a_new_file_that_can_not_be_looked_at_behind_the_save_is_known() {
        let sample = Sample::new().block(b"abc");
        let text = b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec();
        let options = SaveOptions {
            replace: true,
            ..SaveOptions::default()
        };
        // a save, and how many operations it takes; nothing can be looked at behind so many of them
        let save = |blind| {
            let sim = Arc::new(Sim::new(NAME.as_ref(), &sample.bytes()));
            let opened = Writer::open_in(Arc::clone(&sim), NAME.as_ref(), options);
            let Ok(mut opened) = opened else {
                panic!("it can be opened");
            };
            sim.arm(Trouble {
                blind,
                ..Trouble::default()
            });
            let saved = opened.writer.save(&Edit::text(Arc::new(text.clone())));
            assert_eq!(saved.unwrap().method, Method::Replaced);
            let operations = sim.ops().len();
            sim.arm(Trouble::default());
            (operations, opened.writer)
        };
        let (operations, _) = save(None);
        let (_, mut writer) = save(Some((operations, 5)));
        assert!(matches!(writer.reload(), Ok(None)));
        let old = Edit::text(Arc::new(Sample::TREE.to_vec()));
        assert_eq!(writer.save(&old).unwrap().method, Method::Replaced);
    }

    /// A file that is opened for writing after it was shown was in memory twice.
    #[test]
    fn of_two_texts_that_are_the_same_one_is_kept() {
        let sample = Sample::new().block(b"abc");
        let sim = Arc::new(Sim::new(NAME.as_ref(), &sample.bytes()));
        let opened = Writer::open_in(Arc::clone(&sim), NAME.as_ref(), SaveOptions::default());
        let Ok(mut opened) = opened else {
            panic!("it can be opened");
        };
        let (shown, other) = (Arc::new(Sample::TREE.to_vec()), Arc::new(vec![b'#']));
        let layout = opened.writer.layout().clone();
        assert!(opened.writer.has_read(&shown, &layout));
        assert!(!opened.writer.has_read(&other, &layout));
        assert_eq!(
            (Arc::strong_count(&shown), Arc::strong_count(&other)),
            (2, 1)
        );
        assert!(matches!(opened.writer.reload(), Ok(None)));
    }

    /// What was changed behind the scan was in the baseline all the same, and so was never read.
    #[test]
    fn what_changes_while_it_is_scanned_is_read_once_more() {
        let sample = Sample::new().block(b"abc");
        let sim = Arc::new(Sim::new(NAME.as_ref(), &sample.bytes()));
        let starts = |reload: Result<Option<Scan>>, want: &[u8]| match reload {
            Ok(Some(scan)) => assert!(scan.text.starts_with(want)),
            other => panic!("{other:?}"),
        };
        let opened = Writer::open_in(Arc::clone(&sim), NAME.as_ref(), SaveOptions::default());
        let Ok(mut opened) = opened else {
            panic!("it can be opened");
        };
        // another length tells before anything is read
        let end = sample.bytes().len() as u64;
        sim.write(opened.writer.file(), b"\n", end).unwrap();
        sim.arm(Trouble {
            // when the scan has read the text
            meddler: Some((Sample::TREE.len() as u64, b"#ASDF 1.0.1")),
            ..Trouble::default()
        });
        starts(opened.writer.reload(), b"#ASDF 1.0.0");
        starts(opened.writer.reload(), b"#ASDF 1.0.1");
        assert!(matches!(opened.writer.reload(), Ok(None)));
    }
}
