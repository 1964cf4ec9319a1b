//! Other people's hands on FILE: noticing that somebody else has changed it, and showing what it is now.
//!
//! FILE's times are compared when something is looked at, at most once a second, and whether another file has taken its name. While
//! an edit is not saved nothing is reloaded: the save then says that FILE has changed (`ESTALE`), and both versions are kept.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use log::{info, warn};
use rustix::fs::OFlags;

use super::node::Node;
use super::{Handle, Invalidation, State, Vfs, locked};
use crate::asdf::Snapshot;
use crate::error::{Error, Result};

/// How often FILE is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

impl Vfs {
    /// Shows FILE as it is now, if somebody else has changed it.
    pub(super) fn refresh(&self) {
        let Ok(mut checked) = self.checked.try_lock() else {
            return;
        };
        if checked.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        *checked = Some(Instant::now());
        let state = self.state();
        // a name that is gone, or means something else now, leaves the file that was mounted
        let named = std::fs::metadata(&self.path);
        let named = named.ok().filter(Metadata::is_file);
        let Some(meta) = named.or_else(|| state.snapshot.metadata().ok()) else {
            return;
        };
        if moment(&meta) == moment(&state.meta) {
            return;
        }
        let count = state.snapshot.layout().blocks.len();
        if self.drafts.any(count) || self.has_refused_text() || self.has_edited_text() {
            return;
        }
        match self.reloaded(&state) {
            Ok(Some(snapshot)) => self.replace_state(&state, snapshot),
            Ok(None) => {}
            Err(error) => warn!(
                "{} has changed, and can't be read now: {error}",
                self.path.display()
            ),
        }
    }

    /// Whether somebody is writing a text.
    fn has_edited_text(&self) -> bool {
        let edited = |handle: &Handle| match handle {
            Handle::Text(text) => locked(text).is_edited(),
            _ => false,
        };
        self.handles.any(edited)
    }

    /// The snapshot of FILE as it is now; `None` if nothing but its times has changed, or a save is going on.
    fn reloaded(&self, state: &State) -> Result<Option<Snapshot>> {
        let Some(writer) = &self.writer else {
            return state.snapshot.read_again(self.open_again()?).map(Some);
        };
        let Ok(mut writer) = writer.try_lock() else {
            return Ok(None);
        };
        let Some(scan) = writer.reload()? else {
            return Ok(None);
        };
        let file = Arc::clone(writer.file());
        state.snapshot.replaced_by(file, scan).map(Some)
    }

    /// What has FILE's name now, if that is a file.
    fn open_again(&self) -> Result<Arc<File>> {
        let failed = |cause| Error::io(self.path.display().to_string(), cause);
        let mut options = OpenOptions::new();
        // a FIFO must not be waited for
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(&self.path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::ErrorKind::InvalidInput.into()));
        }
        Ok(Arc::new(file))
    }

    fn replace_state(&self, old: &State, snapshot: Snapshot) {
        let text = Arc::clone(snapshot.text());
        let new = match State::new(Arc::new(snapshot), &self.numbers) {
            Ok(new) => new,
            Err(error) => return warn!("{}: {error}", self.path.display()),
        };
        info!("{} was changed by another program", self.path.display());
        for (directory, name) in old.catalogue().missing_in(new.catalogue()) {
            self.tell(Invalidation::Entry(Node::ArrayDir(directory).ino(), name));
        }
        for (number, _) in new.catalogue().arrays() {
            self.tell(Invalidation::Inode(Node::ArrayBin(number).ino()));
            self.tell(Invalidation::Inode(Node::ArrayNpy(number).ino()));
        }
        for n in (0..).take(new.snapshot.layout().blocks.len()) {
            self.tell(Invalidation::Inode(Node::Block(n).ino()));
        }
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        let count = old.snapshot.layout().blocks.len();
        self.drafts.forget_unopened(count);
        self.drafts.changed();
        if let Some(number) = locked(&self.root).reloaded(text) {
            self.tell(Invalidation::Inode(Node::Text(number).ino()));
        }
    }
}

/// What changes when a file changes, or when another one takes its name.
fn moment(meta: &Metadata) -> (u64, u64, u64, i64, i64) {
    (
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
    )
}
