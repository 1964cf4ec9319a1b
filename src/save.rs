//! Saving.

mod baseline;
pub mod digest;
pub mod edit;
mod inplace;
pub mod journal;
mod name;
pub mod plan;
mod publish;
mod recovery;
mod replace;
pub mod rope;
mod spool;
pub mod store;
mod view;
mod whole;
mod writer;

#[cfg(test)]
mod crash;
#[cfg(test)]
mod model;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod trial;

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::source::{FileSource, Source};

pub use publish::publish;
pub use recovery::Recovery;
pub use whole::{WholeBlock, whole};
pub use writer::{Committed, Method, Opened, Options, Refusal, Writer};

/// A file that is only read.
pub struct ReadOnly {
    /// The file.
    pub file: Arc<FileSource>,
    /// Its bytes, as they will be once an interrupted save is finished.
    pub source: Arc<dyn Source>,
    /// What an interrupted save has left.
    pub recovery: Recovery,
    /// Whether another mount has it for writing.
    pub locked: bool,
}

/// Opens a file to be read, locked against mounts that would write it. Nothing is written.
///
/// # Errors
/// [`Error::Io`] if it can't be read.
pub fn open_read_only(path: &Path) -> Result<ReadOnly> {
    use store::{Access, Store};
    let (dir, name) = writer::directory(path)?;
    let failed = |cause| Error::io(path.display().to_string(), cause);
    let dir = Arc::new(dir);
    let file = dir.open(&name, Access::Read).map_err(failed)?;
    // where there are no locks nobody else has one
    let locked = !store::lock_shared(&file).unwrap_or(true);
    let source = Arc::new(FileSource::open(Arc::clone(&file))?);
    let bytes: Arc<dyn Source> = source.clone();
    let (shown, recovery) = if locked {
        // what looks like an interrupted save is one that is going on
        (None, Recovery::Clean)
    } else {
        recovery::shown(&dir, &name, &file, &bytes)?
    };
    Ok(ReadOnly {
        file: source,
        source: shown.unwrap_or(bytes),
        recovery,
        locked,
    })
}
