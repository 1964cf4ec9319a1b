//! Temporary files without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// An empty file that nobody else can open: in `beside` if possible, else in the directory for temporary files.
///
/// # Errors
/// If neither has room for it.
pub(super) fn unlinked_file(beside: Option<&Path>) -> io::Result<File> {
    if let Some(file) = beside.and_then(|directory| in_directory(directory).ok()) {
        return Ok(file);
    }
    in_directory(&std::env::temp_dir())
}

fn in_directory(directory: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let private = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, flags, private) {
        Ok(file) => Ok(file.into()),
        Err(_) => named_for_a_moment(directory),
    }
}

/// For file systems without `O_TMPFILE`: makes the file, and takes its name away at once.
fn named_for_a_moment(directory: &Path) -> io::Result<File> {
    let name = format!(
        ".asdf-mount-spool-{}-{:?}",
        std::process::id(),
        std::time::Instant::now()
    );
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    let path = directory.join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = unlinked_file(Some(directory.path())).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn nobody_else_can_open_it_while_it_has_a_name() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let file = named_for_a_moment(directory.path()).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!((meta.mode() & 0o777, meta.nlink()), (0o600, 0));
    }

    #[test]
    fn a_missing_directory_is_replaced_by_that_for_temporary_files() {
        assert!(unlinked_file(Some(Path::new("/nonexistent"))).is_ok());
    }
}
