//! The files that arguments name: each file itself, and the ASDF files in a directory and below it.

use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use crate::collection::Match;

/// Files and what could not be looked at, in order; those of a directory by name. Symbolic links in a directory are not followed.
pub(super) fn all(paths: &[PathBuf], names: &Match) -> Vec<Result<PathBuf, Failure>> {
    let mut out = Vec::new();
    for path in paths {
        if path.is_dir() {
            below(path, names, &mut out);
        } else {
            out.push(Ok(path.clone()));
        }
    }
    out
}

fn below(directory: &Path, names: &Match, out: &mut Vec<Result<PathBuf, Failure>>) {
    let fail = |error: std::io::Error| {
        Failure::new(Exit::File, format!("{}: {error}", directory.display()))
    };
    let mut entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries.flatten().collect::<Vec<_>>(),
        Err(error) => return out.push(Err(fail(error))),
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below(&path, names, out),
            Ok(kind) if kind.is_file() && names.has(&entry.file_name()) => {
                out.push(Ok(path));
            }
            Ok(_) => {}
            Err(error) => out.push(Err(fail(error))),
        }
    }
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
        let found: Vec<_> = found.into_iter().map(|path| path.unwrap()).collect();
        let want = ["a.asdf", "b/a.asdf", "c.asdf", "b/x.txt"].map(|name| root.join(name));
        assert_eq!(found, want);
    }
}
