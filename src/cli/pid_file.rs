//! `--pid-file`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use log::warn;

use super::exit::{Failure, unwritten};
use super::turn::lock_for_a_moment;

/// A file with our process id, removed at the end if it still has that. A daemon that is ending leaves it to the next one, which may have
/// written it by then: both lock it for that.
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file. Its whole path is kept: the daemon leaves its working directory before it removes the file.
    pub(super) fn write(path: &Path) -> Result<Self, Failure> {
        let write = || {
            let mut file = locked(path, OpenOptions::new().write(true).create(true))?;
            file.set_len(0)?;
            file.write_all(own().as_bytes())?;
            path.canonicalize().map(Self)
        };
        write().map_err(|error| unwritten("pid file", path, &error))
    }

    /// Removes the file, if it is still ours.
    fn remove(&self) -> io::Result<()> {
        let mut file = locked(&self.0, OpenOptions::new().read(true))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        if text == own() {
            fs::remove_file(&self.0)?;
        }
        Ok(())
    }
}

/// What is in the file.
fn own() -> String {
    format!("{}\n", std::process::id())
}

/// The file at `path`, locked. One that is removed while we wait for its lock is not the file at `path` any more.
fn locked(path: &Path, how: &OpenOptions) -> io::Result<File> {
    loop {
        let file = how.open(path)?;
        lock_for_a_moment(&file);
        let (locked, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            warn!("{}: {error}", self.0.display());
        }
    }
}
