//! `--pid-file`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
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
            // a pipe would be waited for, and a device removed at the end
            if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
                return Err(io::Error::other("not a regular file; name another one"));
            }
            let file = locked(path, OpenOptions::new().read(true).write(true).create(true))?;
            if !may_be_replaced(&file)? {
                let why = "holds something else than a process ID; name another one";
                return Err(io::Error::other(why));
            }
            file.set_len(0)?;
            file.write_all_at(own().as_bytes(), 0)?;
            path.canonicalize().map(Self)
        };
        write().map_err(|error| unwritten("pid file", path, &error))
    }

    /// Removes the file, if it is still ours.
    fn remove(&self) -> io::Result<()> {
        let mut file = locked(&self.0, OpenOptions::new().read(true))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // another daemon may have written its own number since
        if text == own() {
            fs::remove_file(&self.0)?;
        }
        Ok(())
    }
}

/// Whether a file is empty or has the number of a process, as a daemon leaves it that was killed. A path that was left out on the command
/// line makes FILE the pid file.
fn may_be_replaced(file: &File) -> io::Result<bool> {
    let mut there = Vec::new();
    file.take(64).read_to_end(&mut there)?;
    let number = there.trim_ascii();
    // a process ID is an i32
    Ok(number.len() <= 10 && number.iter().all(u8::is_ascii_digit))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The daemon waited for ever for what is in a pipe, and removed a device.
    #[test]
    fn only_a_regular_file_is_written_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(PidFile::write(&pipe).is_err());
        assert!(PidFile::write(Path::new("/dev/null")).is_err());
        let path = place.path().join("pid");
        fs::write(&path, "#ASDF 1.0.0\n").unwrap();
        assert!(PidFile::write(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "#ASDF 1.0.0\n");
        // numbers that are data
        for numbers in ["1\n2\n3\n".to_owned(), "1".repeat(64)] {
            fs::write(&path, &numbers).unwrap();
            assert!(PidFile::write(&path).is_err());
            assert_eq!(fs::read_to_string(&path).unwrap(), numbers);
        }
        // what a daemon has left that was killed
        fs::write(&path, "4194304\n").unwrap();
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own());
        drop(file);
        assert!(pipe.exists() && !path.exists());
    }
}
