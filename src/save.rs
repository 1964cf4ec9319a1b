//! Saving: how FILE changes on disk, and why no moment of a crash loses anything.
//!
//! A save is data. An [`Edit`](edit::Edit) says what changes in the words of the format, a [`Plan`](plan::Plan) is the next
//! file as runs of the old one and new bytes, computed without looking at a disk, and a [`Writer`] makes FILE what the plan
//! says. Only this module writes FILE, each system call of it through a [`Store`](store::Store), so that a test can put a
//! disk there that loses power.
//!
//! # Promise
//!
//! When [`Writer::commit`] returns, the new file is durable. Whatever moment the process, the kernel or the power dies at
//! before, FILE is the old file or the new one, or is made one of them by the next mount, without a question. The medium is
//! taken to write sectors of 512 bytes whole, in any order, and to keep what a successful sync covered.
//!
//! # Choosing
//!
//! 1. Nothing would change: nothing is written.
//! 2. No block moves, and a journal can hold the changes: **J**, in place. With `save=replace` rather R.
//! 3. Otherwise **R**, a new file: sharing the blocks of the old one where the filesystem can, else copying up to `max-copy`, if the disk has room for it.
//!    Not if FILE has more than one name, its directory can't be written, or its owner and attributes can't be given to a
//!    copy.
//! 4. Otherwise, if all that changes and moves fits into a journal, J again.
//! 5. Otherwise [`NoRoom`](Error::NoRoom), with FILE untouched. `grow=never` comes here as soon as a block would move.
//!
//! Space is never inserted into FILE (`FALLOC_FL_INSERT_RANGE`), although that takes no time for any length: after a crash in the
//! middle of it, the gap was found at another place of a fragmented file, on ext4 and on xfs.
//!
//! Data of raw blocks are written without a journal, as those of any file; but their checksum is set to "not verified" first,
//! through J, and set again at the end. A crash leaves a valid file and never a false checksum.
//!
//! # J: in place, with a redo journal
//!
//! - J1 Space is reserved behind the end of FILE and a record of all changes written there ([`journal`]).
//! - J2 `fdatasync`. This is the commit.
//! - J3 The changes are written. J4 `fdatasync`. J5 FILE is cut to its new length, `fsync`.
//!
//! Just before J1 and J5 FILE must end where it is expected to: what another program has appended is neither written over nor cut off.
//!
//! A record in a sidecar, `.NAME.asdf-mount-journal`, where FILE's tail will not do: its last block is streamed or cut short
//! and would have the record for data; or FILE gets shorter, which some filesystems do in several steps, so that a crash could
//! take the record and leave some of what was to go. The sidecar is written under another name, synced, renamed, and its
//! directory synced, which is the commit; then J3, J4 and, if shorter, `fsync`; then it is unlinked and the directory synced.
//!
//! Why this is right:
//! - Before the commit no byte of the old file changes.
//! - The commit means that the whole record is durable; a sidecar under its name.
//! - From then until J4 only bytes inside the recorded ranges change. So writing the ranges again gives exactly the new file,
//!   from any mixture of old and new sectors and any number of times: a crash inside the recovery is nothing new.
//! - The record goes only when J4 has made the new file durable. What a crash may leave of it is known by the tag of each of
//!   its sectors, and the witness in its first one says whether FILE is old, and the record was never whole, or new.
//!
//! Another program that reads FILE in the microseconds of J3, or between a crash and the next mount, may see a mixture.
//!
//! # R: replace
//!
//! - R1 `.NAME.asdf-mount-RANDOM` is made for the owner alone and locked. R2 It is filled; holes stay holes. FILE must not
//!   change meanwhile: it is begun again up to three times. R3 It gets owner, ACL, attributes and permissions. R4 `fsync`.
//!   R5 It is read back: text and every block header are where they were planned.
//! - R6 Name and content of FILE are still what they were. R7 The two exchange their names; a plain rename where that can't be
//!   had. R8 What has the temporary name now must be the file that was copied, and not written since; if it is not, they exchange
//!   names once more. Before a plain rename this is asked of FILE. R9 The directory is synced. R10 The old file is unlinked.
//!
//! For every process and at any moment, the name means the old file or a new one that is wholly durable.
//!
//! # Recovery
//!
//! At each mount for writing, under the lock, before anything is served; a mount for reading shows the same bytes without
//! writing them ([`open_read_only`]).
//! - A whole record that explains FILE (each sector of its ranges old, new, or cut from both): J3 to J5 again.
//! - A whole record that does not, while FILE does not parse: the same, because nothing that can be read is lost by it.
//! - A whole record that does not, while FILE parses: another program has changed FILE. Nothing is touched, a record in the tail
//!   is copied to `NAME.asdf-mount-rescued`, and FILE can only be read.
//! - A sidecar of another inode, while FILE parses and is not half of that save: FILE has replaced the file that was saved. The sidecar
//!   is renamed to `NAME.asdf-mount-rescued`, and FILE is as it is. If it may be half of the save, it can only be read.
//! - A sidecar of a save that keeps the length, which explains FILE, while FILE is longer: the end was appended to a streamed block.
//!   J3 and J4 again, which set no length.
//! - Parts of a record behind everything that belongs to FILE: cut off. If anything else stands behind them, another program has added
//!   it: nothing is touched, and FILE can only be read.
//! - Temporary files of R that no process has locked: removed, if FILE parses.
//!
//! # When things fail
//!
//! Space is reserved before the first byte of the old file changes. A sync that failed is not just asked again, because the system
//! may have dropped what it could not write: it is all written again from memory and synced once more. If that fails too:
//! - Before the commit, FILE is as it was.
//! - At the commit, the record is taken away again and that synced. FILE is as it was, but unless all of this succeeds a crash may
//!   make it new.
//! - After the commit, the save has happened. FILE is read through the record ([`Committed::bytes`]) until J3 to J5 are done, or by the
//!   next mount.
//! - After the exchange of names in R, they are exchanged back. Where that can't be done, FILE is new, but a crash may bring the
//!   old one back; what another program has written to that one since it was copied goes with it.
//!
//! Where it failed for want of room (`ENOSPC`, `EDQUOT`), which a file system that copies on write may say at any step, a save
//! that is committed is taken back: the old bytes are written and synced, then the record goes. What is left to do, if that fails
//! as well, is done before the next save. Everything else that fails at or after the commit makes the writer
//! [broken](Status::broken): nothing more is written, each further save is told the same error, and the next mount finds old or new.
//!
//! FILE counts as changed by another program if its name is gone or means another inode, or if its content differs. A system call
//! that fails says nothing of FILE. The name is one in the directory that FILE was found in, which is open: that may be renamed. Only if
//! another directory has got its path, and has a file of that name, this one is FILE.
//!
//! # Other programs
//!
//! A [`Writer`] keeps FILE open for reading, and locked (`flock`) by that descriptor. A save that is to write asks for a lease, which tells
//! whether any process has FILE open for writing (`EBUSY`): so a save opens FILE for writing only after that, and closes it when it has
//! written. Each save first compares FILE with what was read: name, length, text, the space behind the text and all block headers. The
//! disk is asked for them, and not a cache: by `AT_STATX_FORCE_SYNC`, and by a descriptor that is opened for that. Different times alone
//! are no change; anything else is [`Stale`](Error::Stale). So is a save in place whose FILE has lost its name meanwhile. A save of nothing
//! but a checksum goes by FILE's times and by the one header that it writes. Around each write of its own a save takes FILE's times, so that [`Committed::around`] tells whether another
//! program has written FILE at the same time.
//!
//! # Evidence
//!
//! `tests::crash` cuts every kind of save at every operation, loses, keeps or mixes what was not durable, recovers, and crashes
//! inside the recovery. It also shows that each sync is needed, by leaving it out, and lets each operation fail. `tests::real_disk`
//! does saves on real files.

mod acl;
mod baseline;
mod digest;
pub mod edit;
mod file_path;
mod holder;
mod inplace;
pub mod journal;
mod name;
mod own_writes;
pub mod plan;
pub mod processes;
mod publish;
mod recovery;
mod rejected;
mod replace;
pub mod rope;
pub mod sector;
mod status;
pub mod store;
mod view;
mod whole;
mod writer;

use std::sync::Arc;

use crate::asdf::scan::Scan;
use crate::asdf::{OpenOptions, Snapshot};
use crate::codec::Cache;
use crate::error::{Error, Result};

pub(crate) use acl::limited as limited_by_acl;
pub use file_path::{Beneath, FarFile, FilePath, ONLY_READ, OpenFile};
pub use holder::lock_holder;
pub use name::short_enough;
pub use plan::Pad;
pub use publish::{is_published, publish};
pub use recovery::Recovery;
pub use status::Status;
pub use whole::{Room, WholeBlock, whole};
pub use writer::{Committed, Method, NotOpened, Put, SaveOptions, Writable, Writer, writable};

/// A file that is only read.
pub struct ReadOnly {
    /// The file, with its bytes as they will be once an interrupted save is finished.
    pub file: OpenFile,
    /// What an interrupted save has left.
    pub recovery: Recovery,
    /// Whether another mount has it for writing.
    pub locked: bool,
    /// Its layout and text, if these bytes have been scanned already to know of an interrupted save.
    scan: Option<Scan>,
}

impl ReadOnly {
    /// The file as a snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn snapshot(self, cache: Arc<Cache>, options: OpenOptions) -> Result<Snapshot> {
        let OpenFile { local, bytes, .. } = self.file;
        match self.scan {
            Some(scan) => Ok(Snapshot::new(local, bytes, scan, cache, options)),
            None => Snapshot::read(local, bytes, cache, options),
        }
    }

    /// The file as a snapshot that has cache and options of an earlier one: of this file, or of the one whose place it has taken.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn snapshot_like(self, before: &Snapshot) -> Result<Snapshot> {
        let (cache, options) = before.opened_with();
        self.snapshot(Arc::clone(cache), options.clone())
    }
}

/// Opens a file to be read, locked against mounts that would write it. Nothing is written.
///
/// # Errors
/// [`Error::Io`] if it can't be read.
pub fn open_read_only(path: impl Into<FilePath>) -> Result<ReadOnly> {
    opened(&path.into(), true)
}

/// The same without a lock that lasts: other mounts may write it, as other programs may.
///
/// # Errors
/// As [`open_read_only`].
pub fn open_unlocked(path: &FilePath) -> Result<ReadOnly> {
    opened(path, false)
}

/// Opens a file to be read, and keeps it locked if it `stays_locked`. If another process has the lock, it may be saving: what looks
/// like an interrupted save is left alone then.
fn opened(path: &FilePath, stays_locked: bool) -> Result<ReadOnly> {
    use store::{Access, Store};
    if path.is_far() {
        return Ok(ReadOnly {
            file: path.open()?,
            recovery: Recovery::Clean,
            locked: false,
            scan: None,
        });
    }
    let failed = |cause| Error::io(path.whole().display().to_string(), cause);
    let (dir, name) = path.resolved(Access::Read).map_err(failed)?;
    let dir = Arc::new(dir);
    let file = dir.open(&name, Access::Read).map_err(failed)?;
    // a filesystem without locks says nothing of other mounts
    let locked = !store::lock_shared(&file).unwrap_or(true);
    let mut opened = OpenFile::of(Arc::clone(&file)).map_err(failed)?;
    let (recovery, scan) = if locked {
        // what looks like an interrupted save is one that another process is doing
        (Recovery::Clean, None)
    } else {
        recovery::shown(&dir, &name, &file, &mut opened.bytes)?
    };
    if !locked && !stays_locked {
        store::unlock(&file).map_err(failed)?;
    }
    Ok(ReadOnly {
        file: opened,
        recovery,
        locked,
        scan,
    })
}

#[cfg(test)]
mod tests;
