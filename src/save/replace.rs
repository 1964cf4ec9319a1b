//! R: a new file beside FILE, which then takes its name.
//!
//! Other programs see the old file or the new one, whole, at any moment. The steps and their names are those of the protocol in
//! [`super`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;

use super::baseline::{Baseline, in_directory};
use super::inplace::SaveFailure;
use super::name;
use super::plan::Plan;
use super::rope::{Segment, sum};
use super::status::Status;
use super::store::{Access, Store, impossible, lock_either};
use super::view::{StoreSource, write_all};
use crate::asdf::layout::Extent;
use crate::asdf::scan::scan;
use crate::error::{Error, Place, Result};
use crate::source::{Joined, Memory, Source, Stat, Window, at_most, each_piece, len_u64};

/// How often a copy is begun again because FILE changed under it.
const ATTEMPTS: usize = 3;
/// How many bytes are copied at a time where they pass through memory.
const STEP: usize = 1 << 20;

/// One save that replaces FILE.
pub(super) struct Replace<'a, S: Store> {
    pub(super) store: &'a Arc<S>,
    /// Told of each piece that is copied.
    pub(super) status: &'a Status,
    /// The name of FILE.
    pub(super) name: &'a OsStr,
    pub(super) baseline: &'a Baseline,
    pub(super) plan: &'a Plan,
    /// The filesystem's block, if it can share bytes between files.
    pub(super) grain: Option<u64>,
}

/// A finished copy.
pub(super) struct Copy<F> {
    /// The name that it was made under.
    name: OsString,
    /// FILE's attributes when it was copied.
    pub(super) of: Stat,
    /// The attributes of the copy when it was whole.
    pub(super) stat: Stat,
    /// The copy, open for reading and locked.
    pub(super) file: F,
    /// The same, open for writing.
    pub(super) writer: F,
    /// Bytes written, those that are shared not counted.
    pub(super) written: u64,
}

impl<F> Copy<F> {
    /// Whether FILE, which has these attributes now, has not been written since it was copied.
    fn is_of(&self, now: &Stat) -> bool {
        // not the time of the last change of the inode: the exchange of names changes that itself
        (now.size, now.mtime) == (self.of.size, self.of.mtime)
    }
}

impl<S: Store> Replace<'_, S> {
    /// Makes a copy that takes FILE's name; `begins` is called just before it does. Also gives the error if the directory can't be synced: a
    /// crash may then bring the old file back.
    pub(super) fn run(
        &self,
        begins: impl FnOnce(),
    ) -> Result<(Copy<S::File>, Option<Error>), SaveFailure> {
        let copy = self.copy()?;
        begins();
        let done = self.publish(&copy);
        // after any other failure the copy may be what has FILE's name
        if let Err(SaveFailure::Impossible(_) | SaveFailure::Refused(_)) = &done {
            self.remove(&copy.name);
        }
        Ok((copy, done?))
    }

    /// R1 to R5, again if FILE changes meanwhile.
    fn copy(&self) -> Result<Copy<S::File>, SaveFailure> {
        for _ in 0..ATTEMPTS {
            let (file, before) = self.unchanged()?;
            // the other names would go on leading to the old file
            if before.links > 1 {
                let why = format!("{} has {} hard links", self.name.display(), before.links);
                return Err(SaveFailure::Impossible(why));
            }
            let name = name::temporary(self.name);
            let copy = self.build(&name, &file, before);
            // FILE may have been written while it was copied, which then has old and new bytes
            let after = copy.and_then(|copy| Ok((self.stat(&file)?, copy)));
            let (after, copy) = after.inspect_err(|_| self.remove(&name))?;
            if copy.is_of(&after) {
                return Ok(copy);
            }
            self.remove(&name);
        }
        let why = format!(
            "{} is being written by another program",
            self.name.display()
        );
        Err(Error::Stale { why }.into())
    }

    /// FILE as it is, opened once more, if it is still what the plan was made for.
    fn unchanged(&self) -> Result<(S::File, Stat)> {
        let (file, stat) = self.baseline.opened_anew(self.store, self.name)?;
        let view = StoreSource::new(self.store, &file, stat.size);
        self.baseline.compare(self.name, &view)?;
        Ok((file, stat))
    }

    /// R1 to R5: makes the new file under `name` from FILE, with its lock, bytes, owner and attributes, and reads it back.
    fn build(&self, name: &OsStr, from: &S::File, of: Stat) -> Result<Copy<S::File>, SaveFailure> {
        let made = self.store.create(name, Some(from));
        let writer = made.map_err(|cause| self.refusal("making a file beside it", cause))?;
        let opened = self.store.open(name, Access::Read);
        let file = opened.map_err(|cause| self.refusal("making a file beside it", cause))?;
        // the copy is FILE from the moment it has the name: a mount that waits for the lock must not get in between
        let writable = || self.store.open(name, Access::Write);
        let file = match lock_either(&**self.store, file, writable) {
            Ok((file, true)) => file,
            Ok(_) => return Err(self.refusal("locking", io::ErrorKind::WouldBlock.into())),
            Err(cause) => return Err(self.refusal("locking", cause)),
        };
        let written = self.fill(from, &writer)?;
        let imitated = self.store.imitate(from, &writer);
        imitated.map_err(|cause| self.refusal("giving it its owner and attributes", cause))?;
        // data and attributes before the name, as a power cut may come between the two
        let synced = self.store.sync_all(&writer);
        synced.map_err(|cause| self.failed("writing to disk", cause))?;
        self.verify(&file)?;
        Ok(Copy {
            name: name.to_owned(),
            of,
            stat: self.stat(&file)?,
            file,
            writer,
            written,
        })
    }

    /// R2. How many bytes were written.
    fn fill(&self, from: &S::File, to: &S::File) -> Result<u64> {
        let store = &**self.store;
        let len = self.plan.layout().len;
        store
            .set_len(to, len)
            .map_err(|cause| self.failed("setting the length", cause))?;
        let old = StoreSource::open(self.store, from)?;
        let mut written = 0u64;
        for (offset, segment) in self.plan.segments().placed() {
            let more = match segment {
                // a new file is zero where nothing is written
                Segment::Fill(0, _) => 0,
                Segment::Keep(extent) => self.keep((from, *extent), to, *offset)?,
                Segment::Write(_) | Segment::Stream(_) | Segment::Fill(..) => {
                    let whole = Extent {
                        start: *offset,
                        end: sum(*offset, segment.len())?,
                    };
                    self.reserve(to, whole)?;
                    self.pour(segment, &old, to, *offset)?;
                    segment.len()
                }
            };
            written = written.saturating_add(more);
        }
        Ok(written)
    }

    /// Writes a segment through memory.
    fn pour(&self, segment: &Segment, old: &dyn Source, to: &S::File, offset: u64) -> Result<()> {
        let mut done = 0;
        while done < segment.len() {
            let mut buf = vec![0; at_most(segment.len().saturating_sub(done), STEP)];
            segment.read(old, &mut buf, done)?;
            write_all(&**self.store, to, &buf, sum(offset, done)?)?;
            done = sum(done, len_u64(buf.len()))?;
            self.status.add_copied(len_u64(buf.len()));
        }
        Ok(())
    }

    /// Takes over bytes of FILE: shared where they can be, the ragged edges copied. How many bytes were written.
    fn keep(&self, (from, extent): (&S::File, Extent), to: &S::File, offset: u64) -> Result<u64> {
        let Some(middle) = self.shareable(extent, offset) else {
            return self.copy_data((from, extent), to, offset);
        };
        let at = |start: u64| sum(offset, start.saturating_sub(extent.start));
        // a filesystem that shares bytes in general may refuse these, for an inode flag or a quota for example
        if let Err(cause) = self.store.share(from, middle, to, at(middle.start)?) {
            if impossible(&cause) {
                return self.copy_data((from, extent), to, offset);
            }
            return Err(self.failed("sharing blocks", cause));
        }
        let (before, behind) = (
            Extent {
                end: middle.start,
                ..extent
            },
            Extent {
                start: middle.end,
                ..extent
            },
        );
        let mut written = self.copy_data((from, before), to, offset)?;
        written = written.saturating_add(self.copy_data((from, behind), to, at(behind.start)?)?);
        Ok(written)
    }

    /// The whole filesystem blocks of an extent that moves by whole blocks.
    fn shareable(&self, extent: Extent, offset: u64) -> Option<Extent> {
        let grain = self
            .grain
            .filter(|_| moves_by(self.grain, extent, offset))?;
        // FICLONERANGE takes whole blocks only
        let start = extent.start.checked_next_multiple_of(grain)?;
        let end = extent.end.saturating_sub(extent.end.checked_rem(grain)?);
        (start < end).then_some(Extent { start, end })
    }

    /// Copies what is no hole. How many bytes that is.
    fn copy_data(
        &self,
        (from, extent): (&S::File, Extent),
        to: &S::File,
        offset: u64,
    ) -> Result<u64> {
        let mut copied = 0u64;
        let mut at = extent.start;
        while at < extent.end {
            let found = self.store.data(from, at);
            let Some(data) = found.map_err(|cause| self.failed("looking for holes", cause))? else {
                break;
            };
            // a hole stays a hole in the copy: a sparse file of terabytes does not fill the disk
            let start = data.start.max(at);
            let end = data.end.min(extent.end);
            if start >= end {
                break;
            }
            let target = sum(offset, start.saturating_sub(extent.start))?;
            self.copy_run((from, Extent { start, end }), to, target)?;
            copied = copied.saturating_add(end.saturating_sub(start));
            at = end;
        }
        Ok(copied)
    }

    /// Copies a run of data without holes.
    fn copy_run(&self, (from, run): (&S::File, Extent), to: &S::File, offset: u64) -> Result<()> {
        // a full disk then fails here, before any byte was copied, and not in the middle
        self.reserve(
            to,
            Extent {
                start: offset,
                end: sum(offset, run.len())?,
            },
        )?;
        let mut done = 0;
        while done < run.len() {
            let rest = Extent {
                start: sum(run.start, done)?,
                end: run.end,
            };
            let copied = self.store.copy(from, rest, to, sum(offset, done)?);
            let copied = match copied {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                other => other.map_err(|cause| self.failed("copying", cause))?,
            };
            done = sum(done, copied)?;
            self.status.add_copied(copied);
        }
        Ok(())
    }

    /// R5. The text is compared piece by piece with that in memory, and not read into memory once more.
    fn verify(&self, file: &S::File) -> Result<()> {
        let copy = Arc::new(StoreSource::open(self.store, file)?);
        let text = match self.plan.segments().placed().first() {
            Some((_, Segment::Write(text))) => Memory::shared(Arc::clone(text)),
            _ => Memory::new(Vec::new()),
        };
        // scan and text go through the same bytes: what is compared here is what the next mount reads
        let len = text.len().min(copy.len());
        let mut rest = text.bytes();
        each_piece(&*copy, 0..len, STEP, |piece| {
            let (wanted, behind) = rest.split_at(piece.len().min(rest.len()));
            let at = text.len().saturating_sub(len_u64(rest.len()));
            rest = behind;
            if piece != wanted {
                let why = "the copy has another text than was written to it";
                return Err(Error::corrupt(Place::Byte(at), why));
            }
            Ok(())
        })?;
        if len < text.len() {
            return Err(Error::corrupt(Place::Byte(len), "the copy is cut short"));
        }
        let behind = copy.len().saturating_sub(len);
        let behind = Arc::new(Window::new(copy, len, behind)?);
        let found = scan(&Joined::new(Arc::new(text), behind)?, false)?.layout;
        self.plan.check(&found)
    }

    /// R6 to R10. Gives the error if the copy has the name but the directory can't be synced.
    fn publish(&self, copy: &Copy<S::File>) -> Result<Option<Error>, SaveFailure> {
        let changed = || {
            let why = format!("{} has been changed during the save", self.name.display());
            Error::Stale { why }
        };
        // the attributes of before the copy: data that have been written since are not in it
        if !copy.is_of(&self.unchanged()?.1) {
            return Err(changed().into());
        }
        let swapped = self
            .store
            .exchange(&copy.name, self.name)
            .map_err(|cause| self.refusal("taking its name", cause))?;
        if swapped {
            // what has the temporary name now was FILE at the exchange
            let failed = match in_directory(&**self.store, &copy.name) {
                Ok(Some(old)) if self.is_copied(copy, &old) => None,
                Ok(_) => Some(changed()),
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                // the copy must not go before its name is known to be the temporary one again
                return Err(match self.swap_back(copy) {
                    Ok(true) => SaveFailure::Refused(error),
                    _ => SaveFailure::Unsure(error),
                });
            }
        } else {
            // what this replaces can't be had back: so the last look is as late as can be
            let last = in_directory(&**self.store, self.name)?;
            if !last.is_some_and(|last| self.is_copied(copy, &last)) {
                return Err(changed().into());
            }
            let renamed = self.store.rename(&copy.name, self.name);
            renamed.map_err(|cause| self.refusal("taking its name", cause))?;
        }
        // a second try: the error of the first may be one that an earlier write to the directory has left
        if self.store.sync_dir().is_err()
            && let Err(cause) = self.store.sync_dir()
        {
            let error = self.failed("writing to disk", cause);
            return match swapped.then(|| self.swap_back(copy)) {
                Some(Ok(true)) => Err(SaveFailure::Refused(error)),
                Some(Err(_)) => Err(SaveFailure::Unsure(error)),
                Some(Ok(false)) | None => Ok(Some(error)),
            };
        }
        if swapped {
            self.remove(&copy.name);
        }
        Ok(None)
    }

    /// Whether a file that was found by its name is the one that was copied, not written since.
    fn is_copied(&self, copy: &Copy<S::File>, found: &Stat) -> bool {
        found.id == self.baseline.stat.id && copy.is_of(found)
    }

    /// Gives FILE its name back, and tells whether it has it. An error means that it has, but that a crash may undo this.
    fn swap_back(&self, copy: &Copy<S::File>) -> Result<bool> {
        let back = self.store.exchange(&copy.name, self.name);
        if !back.unwrap_or(false) {
            return Ok(false);
        }
        let synced = self.store.sync_dir();
        synced.map_err(|cause| self.failed("writing to disk", cause))?;
        Ok(true)
    }

    /// Removes a temporary file; one that stays is removed at the next mount.
    fn remove(&self, name: &OsStr) {
        if let Err(error) = self.store.unlink(name)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::warn!("{}: {error}", name.display());
        }
    }

    fn reserve(&self, file: &S::File, extent: Extent) -> Result<()> {
        self.store
            .reserve(file, extent)
            .map_err(|cause| self.failed("reserving space for a copy", cause))
    }

    fn stat(&self, file: &S::File) -> Result<Stat> {
        self.store
            .stat(file)
            .map_err(|cause| self.failed("reading its state", cause))
    }

    fn failed(&self, what: &str, cause: io::Error) -> Error {
        Error::io(format!("{}: {what}", self.name.display()), cause)
    }

    fn refusal(&self, what: &str, cause: io::Error) -> SaveFailure {
        SaveFailure::of(self.name, what, cause)
    }
}

/// Bytes of FILE that `plan` has to copy: holes not counted, nor what can be shared because it moves by the `grain`.
pub(super) fn bytes_to_copy<S: Store>(
    store: &S,
    file: &S::File,
    plan: &Plan,
    grain: Option<u64>,
) -> io::Result<u64> {
    let mut total = 0u64;
    for (offset, segment) in plan.segments().placed() {
        let Segment::Keep(extent) = segment else {
            continue;
        };
        if moves_by(grain, *extent, *offset) {
            continue;
        }
        let mut at = extent.start;
        while let Some(data) = store.data(file, at)?.filter(|data| data.start < extent.end) {
            let end = data.end.min(extent.end);
            total = total.saturating_add(end.saturating_sub(data.start.max(at)));
            if end <= at {
                break;
            }
            at = end;
        }
    }
    Ok(total)
}

/// Whether bytes move by a multiple of the filesystem's block, so that it can share them.
fn moves_by(grain: Option<u64>, extent: Extent, offset: u64) -> bool {
    grain.is_some_and(|grain| extent.start.abs_diff(offset).checked_rem(grain) == Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::sample::Sample;
    use crate::save::edit::Edit;
    use crate::save::tests::disk::{Sim, Trouble};
    use crate::save::writer::{SaveOptions, Writer};

    /// Data that another program wrote between the copy and the last look before the exchange went with the old file.
    #[test]
    fn what_another_program_writes_at_any_moment_before_the_exchange_stays() {
        let name = OsStr::new("f.asdf");
        let (mut refused, mut saved) = (0, 0);
        for look in 1.. {
            let old = Sample::new().block(b"abc").bytes();
            let data = old.windows(3).position(|part| part == b"abc").unwrap();
            let mut sim = Sim::new(name, &old);
            sim.exchange = true;
            let sim = Arc::new(sim);
            let options = SaveOptions {
                replace: true,
                ..SaveOptions::default()
            };
            let Ok(mut opened) = Writer::open_in(Arc::clone(&sim), name, options) else {
                panic!("it can be opened");
            };
            sim.arm(Trouble {
                toucher: Some((look, data)),
                ..Trouble::default()
            });
            let text = b"#ASDF 1.0.0\n---\nnote: 1\n...\n".to_vec();
            let done = opened.writer.save(&Edit::text(Arc::new(text)));
            let exchanged = sim.touched_behind("sync directory");
            let content = sim.content(name).unwrap();
            match (exchanged, done) {
                // the save was over
                (None | Some(true), done) => {
                    done.unwrap();
                    break;
                }
                (Some(false), done) => {
                    let has_it = content.windows(3).any(|part| part == b"!bc");
                    assert!(has_it, "look {look}: {}", done.is_ok());
                    let count = if done.is_ok() {
                        &mut saved
                    } else {
                        &mut refused
                    };
                    *count += 1;
                }
            }
        }
        assert!(refused > 0 && saved > 0, "{refused} {saved}");
    }
}
