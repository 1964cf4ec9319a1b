//! The files that arguments name: each file itself, and the ASDF files in a directory and below it.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::exit::{Exit, Failure};
use crate::collection::Match;

/// A file to be looked at, or the file or directory that can't be, and why.
pub(super) struct ToLookAt {
    pub(super) path: PathBuf,
    pub(super) failure: Option<Failure>,
}

/// Files and what could not be looked at, in order; those of a directory by name. Symbolic links in a directory are not followed.
pub(super) fn all(paths: &[PathBuf], names: &Match) -> Vec<ToLookAt> {
    let mut out = Vec::new();
    for path in paths {
        if !path.is_dir() {
            out.push(ToLookAt {
                path: path.clone(),
                failure: None,
            });
            continue;
        }
        let before = out.len();
        below(path, names, &mut out);
        if out.len() == before {
            let why = format!("no file below it is named {names}; -o match=GLOB finds others");
            out.push(unfound(path, &why));
        }
    }
    out
}

/// What is in the way of looking at a file or directory.
fn unfound(path: &Path, why: &dyn Display) -> ToLookAt {
    ToLookAt {
        path: path.to_owned(),
        failure: Some(Failure::of(Exit::File, path, why)),
    }
}

fn below(directory: &Path, names: &Match, out: &mut Vec<ToLookAt>) {
    let mut entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries.flatten().collect::<Vec<_>>(),
        Err(error) => return out.push(unfound(directory, &error)),
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => below(&path, names, out),
            Ok(kind) if kind.is_file() && names.has(&entry.file_name()) => {
                out.push(ToLookAt {
                    path,
                    failure: None,
                });
            }
            Ok(_) => {}
            Err(error) => out.push(unfound(&path, &error)),
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
        assert!(found.iter().all(|found| found.failure.is_none()));
        let found: Vec<_> = found.into_iter().map(|found| found.path).collect();
        let want = ["a.asdf", "b/a.asdf", "c.asdf", "b/x.txt"].map(|name| root.join(name));
        assert_eq!(found, want);
    }

    /// As if all of it were in order, nothing was said of a directory in which files have other names.
    #[test]
    fn a_directory_without_files_is_told_of() {
        let place = tempfile::TempDir::new().unwrap();
        std::fs::write(place.path().join("x.fits"), "").unwrap();
        let names = Match::new("*.asdf:*.txt").unwrap();
        let [found] = &all(&[place.path().to_owned()], &names)[..] else {
            panic!("one is told of");
        };
        let failure = found.failure.as_ref().unwrap();
        let why = "no file below it is named *.asdf or *.txt; -o match=GLOB finds others";
        assert!(failure.message.ends_with(why), "{}", failure.message);
        assert_eq!(failure.exit, Exit::File);
    }
}
