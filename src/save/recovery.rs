//! Finds what a crash has left of a save, and finishes or removes it.
//!
//! This is done under the lock of FILE, before anything is served. See "Recovery" of the protocol in [`super`].

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::sync::Arc;

use super::baseline::{in_directory, scanned, stat};
use super::inplace::{InPlace, is_ours};
use super::journal::{Head, Range, Record};
use super::name;
use super::own_writes::OwnWrites;
use super::rope::{Rope, Segment, Segments};
use super::sector::{RECORD_LIMIT, SECTOR, SECTOR_LEN, Tag, may_be_ours};
use super::store::{Access, Store, impossible, lock_either};
use super::view::{StoreSource, write_fully};
use crate::asdf::layout::{BlockIndex, Extent, Region};
use crate::asdf::scan::{Scan, scan};
use crate::error::{Error, Result};
use crate::source::{Source, Stat, Window, len_u64, read_all, read_up_to};

/// What the name of a record that FILE has no use for ends with.
const RESCUED: &str = "asdf-mount-rescued";

/// What was found, and done where FILE may be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Recovery {
    #[default]
    /// Nothing: no save was interrupted.
    Clean,
    /// A save was committed but not finished. Its bytes have been written, or, read only, are shown as if they had.
    Redone,
    /// A save was interrupted before it was committed, or when all was done but tidying up. What was left of its journal has
    /// been removed, or is not shown.
    Dropped,
    /// A save of another file, which FILE has replaced, was interrupted. Its journal has been kept under this name; read only, it is
    /// where it was.
    Replaced(Option<OsString>),
    /// A save is pending, but another program has changed FILE since: why that is thought. Read only, FILE is shown as it is.
    Foreign(String),
}

/// What lies beside or behind the bytes of FILE.
enum Traces {
    /// No trace of a save. FILE was scanned to be sure of that: the outcome of the scan.
    Clean(Result<Scan>),
    /// A whole record that explains FILE as it is; or one that does not, while FILE does not parse.
    Pending(Record),
    /// A tail that was never completed, or not wholly removed: FILE ends here.
    Unfinished(u64),
    /// A whole record that does not explain FILE, which parses, or does not belong to it; or parts of one, and behind them what another
    /// program has added: the reason, and the bytes of a whole record in FILE's tail.
    Foreign(String, Option<Extent>),
}

/// Looks for the traces of an interrupted save. `bytes` are those of FILE. Runs `when_replaced` if the sidecar is that of another file,
/// which FILE has replaced: it says nothing of FILE then.
fn find<S: Store>(
    store: &Arc<S>,
    name: &OsStr,
    file: &S::File,
    bytes: &Arc<dyn Source>,
    when_replaced: impl FnOnce() -> Result<()>,
) -> Result<Traces> {
    if let Some(found) = find_sidecar(store, name, file, &**bytes, when_replaced)? {
        return Ok(found);
    }
    match Record::read(&**bytes)? {
        // a record at another place was copied there with the bytes of some file, and says nothing about this one
        Some((record, base)) if record.tail()?.start == base => {
            let tail = Extent {
                start: base,
                end: bytes.len(),
            };
            // where it lies counts, not what it says of that
            let sidecar_of = None;
            judge(
                &**bytes,
                Record {
                    sidecar_of,
                    ..record
                },
                Some(tail),
            )
        }
        _ => match find_unfinished(bytes)? {
            Traces::Clean(Ok(found)) if found.layout.streamed() => {
                let left = find_elsewhere(store, file, &**bytes)?;
                Ok(left.unwrap_or(Traces::Clean(Ok(found))))
            }
            traces => Ok(traces),
        },
    }
}

/// Looks for the sidecar of a save that was interrupted when FILE had another name, or came through another of its names. Asked only of a
/// file with a stream, because a journal in its tail would be data of the stream.
fn find_elsewhere<S: Store>(
    store: &Arc<S>,
    file: &S::File,
    bytes: &dyn Source,
) -> Result<Option<Traces>> {
    let its = stat(store, file)?;
    let names = store.names().unwrap_or_default();
    for other in names.iter().filter(|other| name::is_sidecar(other)) {
        let found = store.stat_name(other);
        let is_ours = found.is_ok_and(|found| is_ours(&found, store.user(), its.uid));
        let Some(journal) = is_ours
            .then(|| store.open(other, Access::Read).ok())
            .flatten()
        else {
            continue;
        };
        if let Some((record, 0)) = Record::read(&StoreSource::open(store, &journal)?)?
            && record.sidecar_of.is_some_and(|of| of.1 == its.id.1)
            && explains(bytes, &record)?
        {
            let why = format!(
                "{}: an interrupted save of this file under another name; mount it once by that name; {IF_REMOVED}",
                other.display()
            );
            return Ok(Some(Traces::Foreign(why, None)));
        }
    }
    Ok(None)
}

/// What removing a sidecar costs.
const IF_REMOVED: &str =
    "if you remove it, the file can be saved again as it is now, without the interrupted save";

/// Looks at the file with the name of a sidecar, which may be any file. A record that explains FILE counts; anything else is only
/// logged.
fn find_sidecar<S: Store>(
    store: &Arc<S>,
    name: &OsStr,
    file: &S::File,
    bytes: &dyn Source,
    when_replaced: impl FnOnce() -> Result<()>,
) -> Result<Option<Traces>> {
    let sidecar = name::sidecar(name);
    let foreign = |why: &str| {
        let why = format!("{}: {why}; {IF_REMOVED}", sidecar.display());
        Ok(Some(Traces::Foreign(why, None)))
    };
    let ignore = |why: &str| {
        log::warn!("{}: {why}; left alone", sidecar.display());
        Ok(None)
    };
    let failed = |cause| Error::io(sidecar.display().to_string(), cause);
    let its = store.stat(file).map_err(failed)?;
    let Some(found) = in_directory(&**store, &sidecar)? else {
        return Ok(None);
    };
    if !found.is_regular() {
        return ignore("not a file");
    }
    // anybody who may write to the directory can make a file of this name: a record of another user must not change FILE
    let ours = is_ours(&found, store.user(), its.uid);
    let journal = match store.open(&sidecar, Access::Read) {
        Ok(journal) => journal,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if ours && impossible(&error) => {
            return foreign("may be an interrupted save, but can't be read");
        }
        Err(error) if impossible(&error) => return ignore("can't be read"),
        Err(cause) => return Err(failed(cause)),
    };
    let Some((record, 0)) = Record::read(&StoreSource::open(store, &journal)?)? else {
        return ignore("not a journal");
    };
    // device numbers may change from boot to boot, inode numbers do not
    // FILE may be another file now: cp and mv bring a new inode, and leave the sidecar beside it
    let replaced = record.sidecar_of.is_none_or(|of| of.1 != its.id.1);
    let (old, new) = (record.old_len, record.new_len);
    // a save that sets no length writes nothing behind the old end: what has been appended to a streamed block stays
    let appended = old == new && its.size > new && explains(bytes, &record)?;
    // during a save FILE has one of the two lengths, or one in between
    let changed = !(old.min(new)..=old.max(new)).contains(&its.size) && !appended;
    if !ours {
        if !replaced && !changed && explains(bytes, &record)? {
            return foreign("an interrupted save, but not made by this program for this user");
        }
        return ignore("not made by this program for this user");
    }
    if replaced {
        // a copy of a file that was half saved is half saved as well
        if scan(bytes, false).is_err() || is_torn(bytes, &record)? {
            return foreign(
                "belongs to a file that has been replaced since, maybe by a half saved one",
            );
        }
        return when_replaced().map(|()| None);
    }
    if changed {
        return foreign("the file's length has been changed since");
    }
    match judge(bytes, record, None)? {
        Traces::Foreign(why, _) => foreign(&why),
        found => Ok(Some(found)),
    }
}

/// Whether FILE is what the save of that record leaves when it is stopped in its middle: neither the old file nor the new one.
fn is_torn(file: &dyn Source, record: &Record) -> Result<bool> {
    let (old, new) = (record.old_len, record.new_len);
    let of_save = (old.min(new)..=old.max(new)).contains(&file.len());
    let is = |len: u64, side: fn(&Range) -> &[u8]| {
        if of_save && file.len() != len {
            return Ok(false);
        }
        for range in &record.ranges {
            let side = side(range);
            if read_up_to(file, range.offset, side.len())? != side {
                return Ok(false);
            }
        }
        Ok::<_, Error>(true)
    };
    Ok(explains(file, record)? && !is(old, |range| &range.old)? && !is(new, |range| &range.new)?)
}

/// What to do with `record`: it is pending if FILE is what that save can have left. If FILE is anything else, the record is
/// foreign to it, unless FILE can't be read as it is: then nothing is lost by making it what the record says.
fn judge(file: &dyn Source, record: Record, tail: Option<Extent>) -> Result<Traces> {
    if explains(file, &record)? {
        return Ok(Traces::Pending(record));
    }
    // a file that parses has been repaired or replaced by somebody: their work is not overwritten
    if scan(file, false).is_ok() {
        let why = "an interrupted save is pending, but the file has been changed since";
        return Ok(Traces::Foreign(why.to_owned(), tail));
    }
    Ok(Traces::Pending(record))
}

/// Whether the save of that record can have left FILE as it is.
pub(super) fn explains(file: &dyn Source, record: &Record) -> Result<bool> {
    for range in &record.ranges {
        let mut found = read_up_to(file, range.offset, range.new.len())?;
        // bytes that were reserved and not yet written are zero, too
        found.resize(range.new.len(), 0);
        if !range.explains(&found) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks for sectors of a record among the bytes of FILE that belong to no text, block or index.
fn find_unfinished(file: &Arc<dyn Source>) -> Result<Traces> {
    let found = match scan(&**file, false) {
        Ok(found) => found,
        failed => return Ok(Traces::Clean(failed)),
    };
    // no record begins earlier, so that a mount of a file of terabytes reads no more than this
    let earliest = file.len().saturating_sub(RECORD_LIMIT);
    for (region, extent) in found.layout.regions() {
        let known = match region {
            // what a region of its own explains is not searched: data of a block may hold a copy of a record
            Region::Text | Region::Block(_) => true,
            Region::Index => matches!(found.layout.index, BlockIndex::Valid(_)),
            Region::Padding | Region::Gap | Region::Trailer => false,
        };
        if known {
            continue;
        }
        let mut next = extent.start.max(earliest).checked_next_multiple_of(SECTOR);
        while let Some(at) = next.filter(|&at| at < extent.end) {
            let sector = read_up_to(&**file, at, SECTOR_LEN)?;
            if let Some(tag) =
                Tag::parse(&sector).filter(|tag| tag.base().is_some_and(|base| base <= at))
            {
                let left = unfinished(file, tag)?;
                return Ok(left.unwrap_or(Traces::Clean(Ok(found))));
            }
            next = at.checked_add(SECTOR);
        }
    }
    Ok(Traces::Clean(Ok(found)))
}

/// The state of a record whose sectors have this tag and whose footer does not end FILE; `None` if no save has written them.
fn unfinished(file: &Arc<dyn Source>, tag: Tag) -> Result<Option<Traces>> {
    let base = tag.base().unwrap_or(u64::MAX);
    let end = tag.old_len.max(tag.new_len);
    let gap = Window::new(Arc::clone(file), end, base.saturating_sub(end))?;
    // a save leaves zeros between the end of FILE and its record: other bytes come from another program
    if read_all(&gap, RECORD_LIMIT)?.iter().any(|&byte| byte != 0) {
        return Ok(None);
    }
    let sector = read_up_to(&**file, base, SECTOR_LEN)?;
    let added = is_added_to(&**file, base)?;
    let partial = |len| {
        // to cut the file would lose what another program has added to it
        let why = "bytes have been added to the file behind what is left of an interrupted save; --compact makes a file \
            without both";
        Ok(Some(if added {
            Traces::Foreign(why.to_owned(), None)
        } else {
            Traces::Unfinished(len)
        }))
    };
    let Some(head) = Tag::parse(&sector).and_then(|_| Head::of_sector(&sector)) else {
        // a record is removed from its end, so one without its start was never completed
        return partial(tag.old_len);
    };
    if let Some(len) = head.record_len()
        && let Ok(record) = Window::new(Arc::clone(file), base, len)
        && Record::read(&record)?.is_some()
    {
        let why = "an interrupted save is pending, but bytes have been added to the file since";
        let tail = Extent {
            start: base,
            end: base.saturating_add(len),
        };
        return Ok(Some(Traces::Foreign(why.to_owned(), Some(tail))));
    }
    partial(if head.witness.holds(&**file)? {
        tag.new_len
    } else {
        tag.old_len
    })
}

/// Whether there is anything from `base` on, where a record begins, that no save has written: sectors that are neither one of a record,
/// of which the end may be missing, nor zero.
fn is_added_to(file: &dyn Source, base: u64) -> Result<bool> {
    /// How much is read at a time.
    const STEP: usize = 1 << 20;
    if file.len().saturating_sub(base) > RECORD_LIMIT {
        return Ok(true);
    }
    let mut at = base;
    while at < file.len() {
        let piece = read_up_to(file, at, STEP)?;
        if piece.is_empty() || !piece.chunks(SECTOR_LEN).all(may_be_ours) {
            return Ok(true);
        }
        at = at.saturating_add(len_u64(piece.len()));
    }
    Ok(false)
}

/// Finishes or removes what an interrupted save has left, and says what FILE is then. FILE is locked; `file` is it, open for
/// reading.
///
/// The search for traces scans FILE. That scan is handed on, with the `stat` from before it, so that a mount reads a long text once.
///
/// # Errors
/// [`Error::Stale`] if the record does not explain FILE: it has been put beside it then, and nothing else was touched; of
/// scanning FILE.
pub(super) fn settle<S: Store>(
    store: &Arc<S>,
    name: &OsStr,
    file: &S::File,
) -> Result<(Recovery, Stat, Scan)> {
    let failed = |cause| Error::io(format!("{}: recovering", name.display()), cause);
    let writable = || store.open(name, Access::Write).map_err(failed);
    let before = stat(store, file)?;
    let bytes: Arc<dyn Source> = Arc::new(StoreSource::new(store, file, before.size));
    let mut aside = None;
    let when_replaced = || {
        aside = Some(set_aside(&**store, name)?);
        Ok(())
    };
    let recovery = match find(store, name, file, &bytes, when_replaced)? {
        Traces::Clean(scan) => {
            let scan = scan?;
            remove_temporaries(&**store, name);
            let recovery = aside.map_or(Recovery::Clean, |kept| Recovery::Replaced(Some(kept)));
            return Ok((recovery, before, scan));
        }
        Traces::Pending(record) => {
            let save = InPlace {
                store,
                file: &writable()?,
                name,
                record: &record,
                own: &OwnWrites::default(),
            };
            save.finish()?;
            Recovery::Redone
        }
        Traces::Unfinished(len) => {
            let file = writable()?;
            store.set_len(&file, len).map_err(failed)?;
            store.sync_all(&file).map_err(failed)?;
            Recovery::Dropped
        }
        Traces::Foreign(why, tail) => {
            let kept = match tail {
                Some(tail) => {
                    let kept = rescue(store, name, &bytes, tail)?;
                    format!(", the save is kept in {}", kept.display())
                }
                None => String::new(),
            };
            let why = format!("{why}; nothing was touched{kept}");
            return Err(Error::Stale { why });
        }
    };
    let (before, scan) = scanned(store, file)?;
    remove_temporaries(&**store, name);
    Ok((recovery, before, scan))
}

/// Gives the sidecar, which is that of another file, a name that is in the way of no save: which.
fn set_aside<S: Store>(store: &S, name: &OsStr) -> Result<OsString> {
    let sidecar = name::sidecar(name);
    let failed = |cause| Error::io(format!("{}: setting it aside", sidecar.display()), cause);
    let kept = name::take_free(store, &sidecar, (name, RESCUED)).map_err(failed)?;
    store.sync_dir().map_err(failed)?;
    log::info!("{}: set aside as {}", sidecar.display(), kept.display());
    Ok(kept)
}

/// Copies a record that can't be used to a file beside FILE, if there is no such copy already: whole, or not at all.
fn rescue<S: Store>(
    store: &Arc<S>,
    name: &OsStr,
    bytes: &Arc<dyn Source>,
    tail: Extent,
) -> Result<OsString> {
    let record = Window::new(Arc::clone(bytes), tail.start, tail.len())?;
    let record = read_all(&record, RECORD_LIMIT)?;
    let mut there = name::taken(&**store, name, RESCUED).into_iter();
    // what can't be read is no copy of it
    if let Some(kept) = there.find(|kept| holds(store, kept, &record).unwrap_or(false)) {
        return Ok(kept);
    }
    let what = name::beside(name, RESCUED);
    let failed = |cause| Error::io(what.display().to_string(), cause);
    let temporary = name::temporary(name);
    let copy = store.create(&temporary, None).map_err(failed)?;
    let kept = write_fully(&**store, &copy, &record, 0)
        .and_then(|()| store.sync_all(&copy))
        .and_then(|()| name::take_free(&**store, &temporary, (name, RESCUED)));
    if kept.is_err() {
        // the first error is returned; a leftover is removed at a later mount
        let _ = store.unlink(&temporary);
    }
    let kept = kept.map_err(failed)?;
    store.sync_dir().map_err(failed)?;
    Ok(kept)
}

/// Whether the file of that name beside FILE has just these bytes.
fn holds<S: Store>(store: &Arc<S>, name: &OsStr, bytes: &[u8]) -> Result<bool> {
    let failed = |cause| Error::io(name.display().to_string(), cause);
    if !store.stat_name(name).map_err(failed)?.is_regular() {
        return Ok(false);
    }
    let file = store.open(name, Access::Read).map_err(failed)?;
    let found = StoreSource::open(store, &file)?;
    Ok(found.len() == len_u64(bytes.len()) && read_all(&found, found.len())? == bytes)
}

/// Removes the temporary files for FILE that no running program has locked. FILE must have been read: a temporary file may be
/// all that is left of one that can't be.
pub(super) fn remove_temporaries<S: Store>(store: &S, file: &OsStr) {
    let names = store.names().unwrap_or_default();
    for leftover in names.iter().filter(|other| name::is_temporary(file, other)) {
        if !store
            .stat_name(leftover)
            .is_ok_and(|stat| stat.is_regular())
        {
            log::warn!("{}: not a file; left alone", leftover.display());
            continue;
        }
        // a temporary file is locked as long as its program runs
        let writable = || store.open(leftover, Access::Write);
        let file = store.open(leftover, Access::Read);
        let locked = file.and_then(|file| lock_either(store, file, writable));
        if locked.is_ok_and(|(_, free)| free) && store.unlink(leftover).is_err() {
            log::warn!(
                "{}: left over from an interrupted save, not removable",
                leftover.display()
            );
        }
    }
}

/// Turns `bytes`, those of FILE, into what they will be once an interrupted save is settled, without writing anything. Gives what was
/// found, and the scan of FILE if it is shown as it is.
pub(super) fn shown<S: Store>(
    store: &Arc<S>,
    name: &OsStr,
    file: &S::File,
    bytes: &mut Arc<dyn Source>,
) -> Result<(Recovery, Option<Scan>)> {
    let mut replaced = false;
    let when_replaced = || {
        replaced = true;
        Ok(())
    };
    let (segments, recovery) = match find(store, name, file, bytes, when_replaced)? {
        Traces::Clean(scan) if replaced => return Ok((Recovery::Replaced(None), scan.ok())),
        Traces::Clean(scan) => return Ok((Recovery::Clean, scan.ok())),
        Traces::Foreign(why, _) => return Ok((Recovery::Foreign(why), None)),
        Traces::Pending(record) => (redone(bytes.len(), &record)?, Recovery::Redone),
        Traces::Unfinished(len) => {
            let mut segments = Segments::default();
            segments.push(Segment::Keep(Extent { start: 0, end: len }))?;
            (segments, Recovery::Dropped)
        }
    };
    *bytes = Arc::new(Rope::new(Arc::clone(bytes), segments));
    Ok((recovery, None))
}

/// A file of `len` bytes with the ranges of `record` in it.
pub(super) fn redone(len: u64, record: &Record) -> Result<Segments> {
    let mut out = Segments::default();
    let fill = |out: &mut Segments, to: u64| {
        let start = out.len();
        // a save that made FILE longer may have been stopped before: what is missing reads as zeros until a range covers it
        let end = to.min(len).max(start);
        out.push(Segment::Keep(Extent { start, end }))?;
        out.push(Segment::Fill(0, to.saturating_sub(end)))
    };
    for range in &record.ranges {
        fill(&mut out, range.offset)?;
        out.push(Segment::Write(Arc::new(range.new.clone())))?;
    }
    // finishing it sets no length then, so that what has been appended to a streamed block stays
    let keeps_length = record.sidecar_of.is_some() && record.old_len == record.new_len;
    let end = if keeps_length { len } else { 0 };
    fill(&mut out, record.new_len.max(end))?;
    Ok(out)
}

#[cfg(test)]
mod tests;
