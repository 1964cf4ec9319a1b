//! The files that arguments name: each file itself, and the ASDF files in a directory and below it.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use crate::collection::Match;

/// Files, each with a failure if it is a file or directory that could not be looked at.
pub(super) type Files = Vec<(PathBuf, Result<(), Failure>)>;

/// The files that `paths` name, in order, and those of a directory sorted by name. Symbolic links in a directory are not followed.
pub(super) fn all(paths: &[PathBuf], names: &Match) -> Files {
    let mut out = Vec::new();
    for path in paths {
        if !path.is_dir() {
            out.push((path.clone(), Ok(())));
            continue;
        }
        let before = out.len();
        below(path, names, &mut out);
        if out.len() == before {
            let why = format!("no file below it is named {names}; -o match=GLOB finds others");
            out.push(unfound(path.clone(), &why));
        }
    }
    out
}

/// A file or directory that could not be looked at.
fn unfound(path: PathBuf, why: &dyn Display) -> (PathBuf, Result<(), Failure>) {
    let failure = Failure::of(Exit::File, &path, why);
    (path, Err(failure))
}

/// Adds the files in a directory and below it whose names match, and a failure for each that can't be looked at.
fn below(directory: &Path, names: &Match, out: &mut Files) {
    let (mut entries, read) = match std::fs::read_dir(directory) {
        Ok(entries) => before_error(entries),
        Err(error) => (Vec::new(), Err(error)),
    };
    // the same order on every disk, so that two runs can be compared
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            // not through links: one may lead back up
            Ok(kind) if kind.is_dir() => below(&path, names, out),
            Ok(kind) if kind.is_file() && names.has(&entry.file_name()) => {
                out.push((path, Ok(())));
            }
            Ok(_) => {}
            Err(error) => out.push(unfound(path, &error)),
        }
    }
    if let Err(error) = read {
        out.push(unfound(directory.to_owned(), &error));
    }
}

/// What comes before the first error, and that error: of what would come behind it, nothing is known.
fn before_error<T>(all: impl IntoIterator<Item = io::Result<T>>) -> (Vec<T>, io::Result<()>) {
    let mut found = Vec::new();
    let read = all.into_iter().try_for_each(|one| {
        found.push(one?);
        Ok(())
    });
    (found, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_the_files_below_it() {
        let place = tempfile::TempDir::new().unwrap();
        let root = place.path();
        std::fs::create_dir(root.join("b")).unwrap();
        for name in ["c.asdf", "b/a.asdf", "b/x.txt", "a.asdf"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("b/loop")).unwrap();
        let found = all(&[root.to_owned(), root.join("b/x.txt")], &Match::default());
        assert!(found.iter().all(|(_, found)| found.is_ok()));
        let found: Vec<_> = found.into_iter().map(|(path, _)| path).collect();
        let want = ["a.asdf", "b/a.asdf", "c.asdf", "b/x.txt"].map(|name| root.join(name));
        assert_eq!(found, want);
    }

    /// The rest of a directory was passed over in silence, and what was checked before it was all that there seemed to be.
    #[test]
    fn a_directory_whose_listing_breaks_off_is_told_of() {
        let names = [Ok("a"), Err(io::ErrorKind::TimedOut.into()), Ok("b")];
        let (found, read) = before_error(names);
        assert_eq!(found, ["a"]);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// As if all of it were in order, nothing was said of a directory in which files have other names.
    #[test]
    fn a_directory_without_files_is_told_of() {
        let place = tempfile::TempDir::new().unwrap();
        std::fs::write(place.path().join("x.fits"), "").unwrap();
        let names = Match::new("*.asdf:*.txt").unwrap();
        let [(_, found)] = &all(&[place.path().to_owned()], &names)[..] else {
            panic!("one is told of");
        };
        let failure = found.as_ref().unwrap_err();
        let why = "no file below it is named *.asdf or *.txt; -o match=GLOB finds others";
        assert!(failure.message.ends_with(why), "{}", failure.message);
        assert_eq!(failure.exit, Exit::File);
    }
}
