//! A text that was refused, kept in a file of its own until a save succeeds.
//!
//! `FILE.rejected.yaml` if FILE's directory can be written, else the same name in `$XDG_STATE_HOME/asdf-mount/`. A file that is
//! there already is somebody's text from an earlier mount: it stays, and the next free number is taken.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::name;
use super::store::{Disk, Store, impossible};
use super::view::write_fully;
use crate::error::{Error, Result};

/// How many names are tried.
const NAMES: u32 = 1000;

/// The file that holds the refused text.
#[derive(Debug)]
pub(super) struct Spool {
    kept: Option<Kept>,
    /// Where it goes if FILE's directory can't be written.
    state: Option<PathBuf>,
}

#[derive(Debug)]
struct Kept {
    name: OsString,
    /// The directory, if it is not FILE's.
    elsewhere: Option<PathBuf>,
}

impl Spool {
    /// `state` is the directory for files that can't be beside FILE.
    pub(super) fn new(state: Option<PathBuf>) -> Self {
        Self { kept: None, state }
    }

    /// Puts the text on disk, in the place of the one before. The name of the file, with its directory if that is not FILE's.
    pub(super) fn keep<S: Store>(
        &mut self,
        store: &Arc<S>,
        file: &OsStr,
        text: &[u8],
    ) -> Result<PathBuf> {
        let failed =
            |what: &dyn AsRef<OsStr>, cause| Error::io(what.as_ref().display().to_string(), cause);
        if self
            .kept
            .as_ref()
            .is_none_or(|kept| kept.elsewhere.is_none())
        {
            let held = self.kept.as_ref().map(|kept| kept.name.as_os_str());
            match write(&**store, file, held, text) {
                Ok(name) => {
                    self.kept = Some(Kept {
                        name: name.clone(),
                        elsewhere: None,
                    });
                    return Ok(name.into());
                }
                Err(error) if impossible(&error) => {}
                Err(cause) => return Err(failed(&name::beside(file, ENDING), cause)),
            }
        }
        let missing = || failed(&"$XDG_STATE_HOME", io::ErrorKind::NotFound.into());
        let path = self.state.clone().ok_or_else(missing)?;
        let held = self.kept.as_ref().filter(|kept| kept.elsewhere.is_some());
        let made = std::fs::create_dir_all(&path).and_then(|()| Disk::open_dir(&path));
        let name = made
            .and_then(|dir| write(&dir, file, held.map(|kept| kept.name.as_os_str()), text))
            .map_err(|cause| failed(&path, cause))?;
        let whole = path.join(&name);
        self.kept = Some(Kept {
            name,
            elsewhere: Some(path),
        });
        Ok(whole)
    }

    /// Removes the text again, if there is one. A failure leaves it there.
    pub(super) fn clear<S: Store>(&mut self, store: &Arc<S>) -> Result<()> {
        let Some(kept) = self.kept.take() else {
            return Ok(());
        };
        let removed = match &kept.elsewhere {
            None => store.unlink(&kept.name),
            Some(path) => std::fs::remove_file(path.join(&kept.name)),
        };
        match removed {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let what = kept.name.display().to_string();
                self.kept = Some(kept);
                Err(Error::io(what, cause))
            }
            _ => Ok(()),
        }
    }
}

const ENDING: &str = "rejected.yaml";

/// Writes a file that is there whole or not at all: `held` again, or under the first name that is free.
fn write<S: Store>(
    store: &S,
    file: &OsStr,
    held: Option<&OsStr>,
    text: &[u8],
) -> io::Result<OsString> {
    let temporary = name::temporary(file);
    let made = store.create(&temporary, None)?;
    let filled = write_fully(store, &made, text, 0)
        .and_then(|()| store.sync_all(&made))
        .and_then(|()| match held {
            Some(held) => Ok(held.to_owned()),
            None => free_name(store, file),
        })
        .and_then(|name| store.rename(&temporary, &name).map(|()| name));
    match filled {
        Ok(name) => store.sync_dir().map(|()| name),
        Err(error) => {
            // what matters is the first error; a leftover goes at the next mount
            let _ = store.unlink(&temporary);
            Err(error)
        }
    }
}

fn free_name<S: Store>(store: &S, file: &OsStr) -> io::Result<OsString> {
    let candidates = (1..=NAMES).map(|n| match n {
        1 => name::beside(file, ENDING),
        n => name::beside(file, &format!("{n}.{ENDING}")),
    });
    for name in candidates {
        match store.stat_name(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(name),
            _ => {}
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// `$XDG_STATE_HOME/asdf-mount`, by default in `~/.local/state`.
pub(super) fn state_dir() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("asdf-mount"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::save::sim::Sim;

    #[test]
    fn a_text_that_can_not_be_kept_beside_the_file_is_kept_elsewhere() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("asdf-mount");
        let file = OsStr::new("f.asdf");
        let mut sim = Sim::new(file, b"");
        sim.sealed = true;
        let sim = Arc::new(sim);
        let mut spool = Spool::new(Some(path.clone()));
        for text in ["one", "two"] {
            assert_eq!(
                spool.keep(&sim, file, text.as_bytes()).unwrap(),
                path.join("f.asdf.rejected.yaml")
            );
        }
        assert_eq!(
            std::fs::read(path.join("f.asdf.rejected.yaml")).unwrap(),
            b"two"
        );
        spool.clear(&sim).unwrap();
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        assert!(Spool::new(None).keep(&sim, file, b"three").is_err());
    }
}
