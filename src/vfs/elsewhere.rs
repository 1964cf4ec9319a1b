//! Links into other mounts: what a reference to another ASDF file becomes while a mount of that file is there.
//!
//! The kernel's table tells which mounts there are, and the other file itself tells the names in its mount. The other mount is never
//! asked: two mounts that refer to each other could wait for each other.

use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::format::Format;
use super::locked;
use super::mounts::Mounted;
use super::state::State;
use crate::asdf::{Other, Reference, Referent};
use crate::error::{Error, Place, Result};

/// How long what was found counts.
const LIFETIME: Duration = Duration::from_secs(1);
/// Longest target of a link (`PATH_MAX` without the NUL).
const MAX_TARGET: usize = 4095;

/// What is known of other files and their mounts.
#[derive(Default)]
pub(super) struct OtherFiles {
    mounts: Option<(Instant, Vec<Mounted>)>,
    files: HashMap<PathBuf, (Instant, Arc<Other>)>,
}

impl State {
    /// Where that reference leads: the root of the other mount, and what the reference stands for in it.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::Corrupt`] or [`Error::Io`], which say why it leads nowhere.
    pub(super) fn shown_elsewhere(&self, reference: usize) -> Result<(PathBuf, Referent)> {
        let missing = || Error::unsupported(Place::File, "no such reference");
        let found = self.snapshot.references().get(reference);
        let found = found.ok_or_else(missing)?;
        let file = self.snapshot.file_referred_to(found)?;
        let mountpoint = locked(&self.elsewhere).mountpoint(&file).ok_or_else(|| {
            let why = format!("{} is not mounted", file.display());
            Error::unsupported(Place::File, why)
        })?;
        let other = self.other(found, file)?;
        Ok((mountpoint, other.referent(reference)?.clone()))
    }

    /// What the references into `file` lead to, `reference` among them. It is read without the lock, for which links into all other
    /// files would wait; so two threads may read one file at once.
    fn other(&self, reference: &Reference, file: PathBuf) -> Result<Arc<Other>> {
        let known = locked(&self.elsewhere).files.get(&file).cloned();
        if let Some((at, other)) = &known
            && at.elapsed() < LIFETIME
        {
            return Ok(Arc::clone(other));
        }
        let known = known.as_ref().map(|(_, other)| other);
        let other = self.snapshot.other(reference, known)?;
        let found = (Instant::now(), Arc::clone(&other));
        locked(&self.elsewhere).files.insert(file, found);
        Ok(other)
    }

    /// The target of a link to what that reference stands for: to a directory, or to a file in that format.
    pub(super) fn target_elsewhere(
        &self,
        reference: usize,
        format: Option<Format>,
    ) -> Option<Vec<u8>> {
        let (mountpoint, referent) = self.shown_elsewhere(reference).ok()?;
        let name = match format {
            Some(format) => referent.array()? + format.suffix(),
            None => referent.directory()?,
        };
        let target = mountpoint.join("arrays").join(name);
        let target = target.into_os_string().into_vec();
        (target.len() <= MAX_TARGET).then_some(target)
    }
}

impl OtherFiles {
    /// Where that file is mounted.
    fn mountpoint(&mut self, file: &Path) -> Option<PathBuf> {
        let fresh = |at: &Instant| at.elapsed() < LIFETIME;
        if !self.mounts.as_ref().is_some_and(|(at, _)| fresh(at)) {
            let user = rustix::process::geteuid().as_raw();
            let mut mounts = Mounted::all();
            // any user may mount something that says it is a file of another user
            mounts.retain(|mount| mount.may_be_ours() && (mount.is_by(0) || mount.is_by(user)));
            self.mounts = Some((Instant::now(), mounts));
        }
        let (_, mounts) = self.mounts.as_ref()?;
        let found = mounts.iter().rfind(|mount| mount.is_of(file))?;
        Some(found.directory().to_owned())
    }
}
