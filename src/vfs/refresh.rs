//! Other people's hands on FILE: noticing that somebody else has changed it, and showing what it is now.
//!
//! FILE's times are compared when something is looked at or read, at most once a second, and whether another file has taken its
//! name. Then all of it is shown anew, and whoever has something open for writing can't save any more what he made of the state
//! before (`ESTALE`): each state has an epoch, and so has each handle. While a block has edits that are not saved, or FILE can't
//! be read, the state stays; its places in FILE mean nothing any more, so nothing is read by them.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{info, warn};
use rustix::fs::OFlags;

use super::attr::modified;
use super::node::Node;
use super::root::TREE_NAME;
use super::{Invalidation, State, Vfs, hdus, locked};
use crate::error::{Error, Result};
use crate::save::{Reload, Writer};

/// How often FILE is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

impl Vfs {
    /// Shows FILE as it is now, if somebody else has changed it. Whether that was so.
    pub(super) fn refresh(&self) -> bool {
        let Ok(mut checked) = self.checked.try_lock() else {
            return false;
        };
        if checked.is_some_and(|at| at.elapsed() < INTERVAL) {
            return false;
        }
        // the save that is going on looks for itself, and this one after it
        let Ok(mut writer) = self.writer.as_ref().map(Mutex::try_lock).transpose() else {
            return false;
        };
        *checked = Some(Instant::now());
        let before = self.state();
        self.catch_up(writer.as_deref_mut());
        !Arc::ptr_eq(&before, &self.state())
    }

    /// The same at once, for a save: what follows publishes new times of FILE, which would hide what somebody else has changed.
    pub(super) fn catch_up(&self, writer: Option<&mut Writer>) {
        let state = self.state();
        let Some(meta) = self.metadata_now(&state) else {
            return;
        };
        if moment(&meta) == moment(&state.meta) && changed_at(&meta) == changed_at(&state.meta) {
            *locked(&self.adrift) = None;
            return;
        }
        let mut shown = Ok(());
        let count = state.snapshot.layout().blocks.len();
        let none_edited = self.drafts.while_none(count, || {
            shown = self.show_anew(&state, writer, meta.clone());
        });
        let adrift = match shown {
            Err(error) => Some(error.to_string()),
            Ok(()) if none_edited || moment(&meta) == moment(&state.meta) => None,
            Ok(()) => Some("blocks of it are being edited here".to_owned()),
        };
        let news = adrift.as_ref().map(|why| drifted(why));
        if std::mem::replace(&mut *locked(&self.adrift), adrift).is_none()
            && let Some(news) = news
        {
            warn!("{}: {news}", self.path.display());
        }
    }

    /// Shows FILE, which had these attributes just now, instead of an older state.
    fn show_anew(
        &self,
        old: &State,
        writer: Option<&mut Writer>,
        mut meta: Metadata,
    ) -> Result<()> {
        let mut changed = moment(&meta) != moment(&old.meta);
        let snapshot = match writer {
            None => {
                let (file, before) = self.open_again()?;
                meta = before;
                old.snapshot.read_again(file)?
            }
            Some(writer) => match writer.reload()? {
                Reload::Same | Reload::Touched => old.snapshot.with_data_anew()?,
                Reload::Changed(scan) => {
                    changed = true;
                    let file = Arc::clone(writer.file());
                    old.snapshot.replaced_by(file, scan)?
                }
            },
        };
        let text = Arc::clone(snapshot.text());
        let epoch = old.epoch.saturating_add(u64::from(changed));
        let new = State::new(Arc::new(snapshot), meta, &self.numbers, epoch);
        if changed {
            info!("{} was changed by another program", self.path.display());
        }
        let gone = old.names_gone_in(&new).into_iter();
        let forgotten = gone.chain(everything(&new)).collect();
        let facts = new.facts(&self.options, modified(&new.meta));
        self.show(new, forgotten);
        if let Some(number) = locked(&self.root).reloaded(text, facts) {
            self.tell(Invalidation::Inode(Node::Text(number).ino()));
            let name = (Node::Root.ino(), TREE_NAME.into());
            self.tell(Invalidation::Entry(name.0, name.1));
        }
        Ok(())
    }

    /// Takes the times that FILE has now for those of the state: a save of ours has moved them and then failed.
    ///
    /// Not if FILE differs in anything that a save depends on: then somebody else has changed it, too.
    pub(super) fn forgive(&self, writer: &mut Writer) -> Result<()> {
        let old = self.state();
        let meta = old.snapshot.metadata()?;
        match writer.reload()? {
            Reload::Same => {}
            Reload::Touched => {
                let snapshot = Arc::clone(&old.snapshot);
                let new = State::new(snapshot, meta, &self.numbers, old.epoch);
                self.show(new, Vec::new());
            }
            // there may be drafts of the old state
            Reload::Changed(_) => writer.distrust(),
        }
        Ok(())
    }

    /// Makes a state the one that is shown, and has the kernel told what that changes.
    pub(super) fn show(&self, new: State, changes: Vec<Invalidation>) {
        let before = self.state();
        let _announced = self.announce(changes, Some(&before));
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.drafts.changed();
    }

    /// Has FILE looked at when something is asked for next: it is known to have changed.
    pub(super) fn refresh_soon(&self) {
        *locked(&self.checked) = None;
    }

    /// The attributes of FILE now. A name that is gone, or means something else, leaves the file that was mounted.
    fn metadata_now(&self, state: &State) -> Option<Metadata> {
        let named = std::fs::metadata(&self.path).ok().filter(Metadata::is_file);
        named.or_else(|| {
            let open = state.snapshot.metadata().ok()?;
            (moment(&open) != moment(&state.meta)).then_some(open)
        })
    }

    /// Why stored bytes can't be read by the places that are known: FILE has been changed, and it is not shown anew.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub(super) fn check_afloat(&self) -> Result<()> {
        match &*locked(&self.adrift) {
            Some(why) => Err(Error::Stale { why: drifted(why) }),
            None => Ok(()),
        }
    }

    /// That the data of FILE are those of the state on which an edit of them was made.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub(super) fn check_data(&self, state: &State) -> Result<()> {
        match self.metadata_now(state) {
            Some(meta) if moment(&meta) != moment(&state.meta) => Err(Error::Stale {
                why: "the file has been changed by another program since it was read".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// What has FILE's name now, if that is a file, and its attributes.
    fn open_again(&self) -> Result<(Arc<File>, Metadata)> {
        let failed = |cause| Error::io(self.path.display().to_string(), cause);
        let mut options = OpenOptions::new();
        // a FIFO must not be waited for
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(&self.path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        }
        Ok((Arc::new(file), meta))
    }
}

/// The pages of every file that shows bytes of FILE.
fn everything(state: &State) -> impl Iterator<Item = Invalidation> {
    let arrays = state.catalogue().arrays();
    let arrays = arrays.flat_map(|(number, _)| [Node::ArrayBin(number), Node::ArrayNpy(number)]);
    let blocks = (0..).take(state.snapshot.layout().blocks.len());
    let units = hdus::entries(&state.snapshot).into_iter();
    arrays
        .chain(blocks.map(Node::Block))
        .chain(units.map(|(_, node)| node))
        .map(|node| Invalidation::Inode(node.ino()))
}

/// What changes when the bytes of a file change, or when another one takes its name.
fn moment(meta: &Metadata) -> (u64, u64, u64, i64, i64) {
    (
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
    )
}

/// When anything of a file was changed, its owner and mode too.
fn changed_at(meta: &Metadata) -> (i64, i64) {
    (meta.ctime(), meta.ctime_nsec())
}

/// Why nothing of FILE can be read.
fn drifted(why: &str) -> String {
    format!("the file has been changed by another program, and can't be shown as it is now: {why}")
}

#[cfg(test)]
mod tests;
