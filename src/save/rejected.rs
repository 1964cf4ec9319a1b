//! A text that was refused, kept in a file of its own until a save succeeds. An editor has closed it by then, so the file may be
//! the only copy.
//!
//! The file is `FILE.rejected.yaml`; if that fails for any reason, it has the same name in `$XDG_STATE_HOME/asdf-mount/`, else in
//! `$TMPDIR`. A file that is there already stays, and the next free number is taken, unless it has what was written there last. So a
//! text from an earlier mount stays, one that was given up, and a file that the user has corrected or put there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::digest::{Digest, Sha256, sha256};
use super::name;
use super::store::{Access, Disk, Store, is_gone};
use super::view::write_fully;
use crate::error::{Error, Result};
use crate::source::{Stat, len_u64};

/// The file that holds the refused text.
#[derive(Debug)]
pub(super) struct RejectedText {
    /// Where a refused text is kept now, if one is.
    kept: Option<Kept>,
    /// Where it goes if it can't be kept beside FILE: the first of these that takes it.
    elsewhere: Vec<Elsewhere>,
}

/// The file that a refused text is kept in.
#[derive(Debug)]
struct Kept {
    name: OsString,
    /// Which of the other directories it is in; `None` beside FILE.
    place: Option<usize>,
    text: Print,
    /// The attributes of the file since then, if they could be had.
    stat: Option<Stat>,
}

/// What a text is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    len: u64,
    digest: [u8; 32],
}

impl Print {
    fn of(text: &[u8]) -> Self {
        Self {
            len: len_u64(text.len()),
            digest: sha256(text),
        }
    }
}

/// A directory that is made when it is needed. The part of its path that exists is held open from before the mount: the mountpoint
/// may hide it, and a text written into the mount itself would be lost.
#[derive(Debug)]
struct Elsewhere {
    path: PathBuf,
    /// The part of the path that exists, open.
    there: File,
    /// What is to be made in it.
    missing: PathBuf,
}

impl RejectedText {
    /// `elsewhere` are the directories for a text that can't be kept beside FILE, the best one first.
    pub(super) fn new(elsewhere: &[PathBuf]) -> Self {
        Self {
            kept: None,
            elsewhere: elsewhere
                .iter()
                .filter_map(|path| Elsewhere::find(path))
                .collect(),
        }
    }

    /// Writes a refused text of FILE to disk, in the place of the one before; `file` is the name of FILE and `open` the open file. Gives
    /// the name of the file with the text, with its directory if that is not FILE's.
    ///
    /// # Errors
    /// [`Error::Io`] if no directory takes it, with what each of them said.
    pub(super) fn keep<S: Store>(
        &mut self,
        store: &Arc<S>,
        (file, open): (&OsStr, Option<&S::File>),
        text: &[u8],
    ) -> Result<PathBuf> {
        let places = std::iter::once(None).chain((0..self.elsewhere.len()).map(Some));
        let mut failures = Vec::new();
        for place in places {
            let path = self.path(place);
            match self.write(store, place, (file, open), text) {
                Ok(name) => {
                    let whole = path.join(&name);
                    let kept = Kept {
                        stat: self.stat(store, place, &name).ok(),
                        text: Print::of(text),
                        name,
                        place,
                    };
                    if let Some(before) = self.kept.replace(kept)
                        && before.place != place
                    {
                        // the older text may stay: the newer one is kept
                        let _ = self.remove(store, &before, &[before.text]);
                    }
                    return Ok(whole);
                }
                Err(cause) => failures.push((path.join(name::beside(file, ENDING)), cause)),
            }
        }
        // FILE's directory has been tried at least
        let last = failures.pop();
        let (path, cause) = last.unwrap_or_else(|| (file.into(), io::ErrorKind::NotFound.into()));
        let others = failures.iter().fold(String::new(), |said, (path, cause)| {
            format!("{said}{}: {cause}; ", path.display())
        });
        Err(Error::io(format!("{others}{}", path.display()), cause))
    }

    /// Where a text is kept, from FILE's directory, if its file is still there.
    pub(super) fn kept<S: Store>(&self, store: &Arc<S>) -> Option<PathBuf> {
        let kept = self.kept.as_ref()?;
        match self.stat(store, kept.place, &kept.name) {
            Err(gone) if is_gone(&gone) => None,
            // what can't be looked at is there as far as is known
            _ => Some(self.path(kept.place).join(&kept.name)),
        }
    }

    /// The attributes of what has that name in FILE's directory (no `place`) or another one.
    fn stat<S: Store>(
        &self,
        store: &Arc<S>,
        place: Option<usize>,
        name: &OsStr,
    ) -> io::Result<Stat> {
        match place {
            None => store.stat_name(name),
            Some(place) => self.directory(place)?.stat_name(name),
        }
    }

    /// Removes the text again, if there is one, and its file has that or what is `saved` now. A failure leaves it there.
    pub(super) fn clear<S: Store>(&mut self, store: &Arc<S>, saved: &[u8]) -> Result<()> {
        let Some(kept) = self.kept.take() else {
            return Ok(());
        };
        match self.remove(store, &kept, &[kept.text, Print::of(saved)]) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                let what = kept.name.display().to_string();
                self.kept = Some(kept);
                Err(Error::io(what, cause))
            }
            _ => Ok(()),
        }
    }

    /// Leaves the file with the text to the user.
    pub(super) fn release(&mut self) {
        self.kept = None;
    }

    /// Leaves a text that is kept beside FILE where it is, as another directory is FILE's now.
    pub(super) fn left_behind(&mut self) {
        self.kept = self.kept.take().filter(|kept| kept.place.is_some());
    }

    /// A directory's path, from FILE's.
    fn path(&self, place: Option<usize>) -> PathBuf {
        let elsewhere = place.and_then(|place| self.elsewhere.get(place));
        elsewhere.map_or_else(PathBuf::new, |elsewhere| elsewhere.path.clone())
    }

    /// Opens one of the other directories.
    fn directory(&self, place: usize) -> io::Result<Disk> {
        let elsewhere = self.elsewhere.get(place);
        elsewhere.ok_or(io::ErrorKind::NotFound)?.open()
    }

    /// Writes the text in FILE's directory (no `place`) or another one, in place of the one that is kept there. The name of the file.
    fn write<S: Store>(
        &self,
        store: &Arc<S>,
        place: Option<usize>,
        (file, open): (&OsStr, Option<&S::File>),
        text: &[u8],
    ) -> io::Result<OsString> {
        let held = self.kept.as_ref().filter(|kept| kept.place == place);
        match place {
            None => {
                let owned = open.filter(|open| is_of_other_user(&**store, open));
                write(&**store, file, held, text, owned)
            }
            Some(place) => write(&self.directory(place)?, file, held, text, None),
        }
    }

    /// Removes a file, if it has one of these texts.
    fn remove<S: Store>(&self, store: &Arc<S>, kept: &Kept, texts: &[Print]) -> io::Result<()> {
        match kept.place {
            None => remove(&**store, kept, texts),
            Some(place) => remove(&self.directory(place)?, kept, texts),
        }
    }
}

impl Elsewhere {
    /// Opens as much of a path as there is.
    fn find(path: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut ancestors = path.ancestors();
        ancestors.find_map(|there| {
            let open = rustix::fs::open(there, flags, Mode::empty()).ok()?;
            Some(Self {
                path: path.to_owned(),
                there: open.into(),
                missing: path.strip_prefix(there).ok()?.to_owned(),
            })
        })
    }

    /// The directory, made if it is missing.
    fn open(&self) -> io::Result<Disk> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = openat(&self.there, ".", flags, Mode::empty())?;
        for name in &self.missing {
            match mkdirat(&directory, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            directory = openat(&directory, name, flags, Mode::empty())?;
        }
        Ok(Disk::held(directory.into()))
    }
}

const ENDING: &str = "rejected.yaml";

/// The files beside FILE that hold refused texts, as far as their numbers go on. In other directories they may be of another FILE.
pub(super) fn beside<S: Store>(store: &S, file: &OsStr) -> Vec<OsString> {
    name::taken(store, file, ENDING)
}

/// Whether the file has one of these texts by now. One that can't be read has the text of before if its attributes are those of then.
fn has<S: Store>(store: &S, kept: &Kept, texts: &[Print]) -> bool {
    let read = || -> io::Result<bool> {
        let file = store.open(&kept.name, Access::Read)?;
        let (mut hash, mut len, mut buf) = (Sha256::new(), 0, vec![0; 64 << 10]);
        // it may be any file by now, of any length
        while texts.iter().any(|text| len <= text.len) {
            let read = match store.read(&file, &mut buf, len) {
                Ok(0) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                other => other?,
            };
            hash.update(buf.get(..read).unwrap_or_default());
            len = len.saturating_add(len_u64(read));
        }
        let digest = hash.finalize().into();
        Ok(texts.contains(&Print { len, digest }))
    };
    let is_untouched = |_| {
        let stat = store.stat_name(&kept.name).ok();
        stat.is_some() && stat == kept.stat
    };
    read().unwrap_or_else(is_untouched)
}

/// Removes a file, if it has one of these texts.
fn remove<S: Store>(store: &S, kept: &Kept, texts: &[Print]) -> io::Result<()> {
    if has(store, kept, texts) {
        store.unlink(&kept.name)?;
    }
    Ok(())
}

/// Writes a file that is there whole or not at all: `held` again, if that has the text of before, or under the first name that is free.
/// It gets the owner and the permissions of `owned`.
fn write<S: Store>(
    store: &S,
    file: &OsStr,
    held: Option<&Kept>,
    text: &[u8],
    owned: Option<&S::File>,
) -> io::Result<OsString> {
    let temporary = name::temporary(file);
    let made = store.create(&temporary, None)?;
    let filled = write_fully(store, &made, text, 0)
        .and_then(|()| {
            if let Some(owned) = owned {
                // a file without the owner of FILE keeps the text as well
                let _ = store.imitate(owned, &made);
            }
            store.sync_all(&made)
        })
        .and_then(|()| match held {
            Some(held) if has(store, held, &[held.text]) => {
                store.rename(&temporary, &held.name)?;
                Ok(held.name.clone())
            }
            _ => name::take_free(store, &temporary, (file, ENDING)),
        });
    match filled {
        Ok(name) => {
            if let Err(error) = store.sync_dir() {
                // the file is there; in another directory there might be none
                let name = name.display();
                log::warn!("{name}: {error}: a crash may take the refused text that is in it");
            }
            Ok(name)
        }
        Err(error) => {
            // the first error is returned; a leftover is removed at the next mount
            let _ = store.unlink(&temporary);
            Err(error)
        }
    }
}

/// Whether a file belongs to another user than this process, as in a mount that root makes for others: then users that may read it may
/// also read the text beside it. Otherwise only its owner may.
fn is_of_other_user<S: Store>(store: &S, file: &S::File) -> bool {
    store.stat(file).is_ok_and(|stat| stat.uid != store.user())
}

/// The directories for a text that can't be kept beside FILE: `$XDG_STATE_HOME/asdf-mount`, by default in `~/.local/state`, and
/// `$TMPDIR`.
pub(super) fn other_directories() -> Vec<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let state = state.map(|state| state.join("asdf-mount"));
    state.into_iter().chain([std::env::temp_dir()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::save::tests::disk::Sim;

    const FILE: &str = "f.asdf";
    const NAME: &str = "f.asdf.rejected.yaml";

    fn sim(sealed: bool) -> Arc<Sim> {
        let mut sim = Sim::new(FILE.as_ref(), b"");
        sim.sealed = sealed;
        Arc::new(sim)
    }

    #[test]
    fn a_text_that_can_not_be_kept_beside_the_file_is_kept_in_the_first_place_that_takes_it() {
        let place = tempfile::tempdir().unwrap();
        let [file, state, last] =
            ["file", "state/asdf-mount", "last"].map(|name| place.path().join(name));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&last).unwrap();
        let sim = sim(true);
        for (directories, taken) in [(vec![&state, &last], &state), (vec![&file, &last], &last)] {
            let directories: Vec<PathBuf> = directories.into_iter().cloned().collect();
            let mut rejected = RejectedText::new(&directories);
            assert!(!state.exists(), "made before it is needed");
            for text in ["one", "two"] {
                let kept = rejected.keep(&sim, (FILE.as_ref(), None), text.as_bytes());
                assert_eq!(kept.unwrap(), taken.join(NAME));
                assert_eq!(std::fs::read_to_string(taken.join(NAME)).unwrap(), text);
            }
            rejected.clear(&sim, b"").unwrap();
            assert_eq!(std::fs::read_dir(taken).unwrap().count(), 0);
            let _ = std::fs::remove_dir(&state);
        }
        let refused = RejectedText::new(std::slice::from_ref(&file)).keep(
            &sim,
            (FILE.as_ref(), None),
            b"three",
        );
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with(&format!("{NAME}: ")), "{said}");
        assert!(said.contains(&format!("; {}/", file.display())), "{said}");
        assert!(
            RejectedText::new(&[])
                .keep(&sim, (FILE.as_ref(), None), b"four")
                .is_err()
        );
    }

    #[test]
    fn all_texts_of_earlier_mounts_are_found() {
        let sim = sim(false);
        let keep = |text: &[u8]| {
            let mut rejected = RejectedText::new(&[]);
            rejected.keep(&sim, (FILE.as_ref(), None), text).unwrap();
        };
        assert!(beside(&*sim, FILE.as_ref()).is_empty());
        keep(b"one");
        keep(b"two");
        let names = [NAME, "f.asdf.2.rejected.yaml"];
        assert_eq!(beside(&*sim, FILE.as_ref()), names);
        sim.unlink(NAME.as_ref()).unwrap();
        assert_eq!(beside(&*sim, FILE.as_ref()), names[1..]);
    }

    #[test]
    fn a_newer_text_that_can_be_kept_beside_the_file_takes_the_place_of_the_older_one() {
        let place = tempfile::tempdir().unwrap();
        let directories = [place.path().join("state")];
        let mut rejected = RejectedText::new(&directories);
        rejected
            .keep(&sim(true), (FILE.as_ref(), None), b"one")
            .unwrap();
        assert!(directories[0].join(NAME).exists());
        let disk = sim(false);
        let kept = rejected.keep(&disk, (FILE.as_ref(), None), b"two").unwrap();
        assert_eq!(kept, Path::new(NAME));
        assert!(!directories[0].join(NAME).exists());
        rejected.clear(&disk, b"").unwrap();
        assert!(disk.stat_name(NAME.as_ref()).is_err());
    }

    /// They were overwritten, and removed: what the user had corrected, and other files that had got the name.
    #[test]
    fn a_file_with_another_text_is_neither_overwritten_nor_removed() {
        let disk = sim(false);
        let put = |name: &str, text: &[u8]| {
            let file = disk.create("new".as_ref(), None).unwrap();
            write_fully(&*disk, &file, text, 0).unwrap();
            disk.rename("new".as_ref(), name.as_ref()).unwrap();
        };
        let has = |name: &str, text: &[u8]| disk.content(name.as_ref()).as_deref() == Some(text);
        let mut rejected = RejectedText::new(&[]);
        let mut keep = |text: &[u8]| {
            let kept = rejected.keep(&disk, (FILE.as_ref(), None), text);
            kept.unwrap().into_os_string().into_string().unwrap()
        };
        assert_eq!(keep(b"one"), NAME);
        assert_eq!(keep(b"two"), NAME);
        let [second, third] = [2, 3].map(|n| format!("{FILE}.{n}.rejected.yaml"));
        // of the same length, and longer
        put(NAME, b"mon");
        assert_eq!(keep(b"three"), second);
        put(&second, &[b'x'; 10_000]);
        assert_eq!(keep(b"four"), third);
        assert!(has(NAME, b"mon") && has(&second, &[b'x'; 10_000]));
        put(&third, b"saved, and more");
        rejected.clear(&disk, b"saved").unwrap();
        assert!(has(&third, b"saved, and more"));
        // what is FILE's text now is needed no more
        let kept = rejected.keep(&disk, (FILE.as_ref(), None), b"five");
        let kept = kept.unwrap().into_os_string().into_string().unwrap();
        put(&kept, b"saved");
        rejected.clear(&disk, b"saved").unwrap();
        assert_eq!(disk.content(kept.as_ref()), None);
    }

    /// It was said to be there, and the text was given up.
    #[test]
    fn a_file_that_is_gone_keeps_no_text() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        for sealed in [false, true] {
            let disk = sim(sealed);
            let mut rejected = RejectedText::new(std::slice::from_ref(&state));
            assert_eq!(rejected.kept(&disk), None);
            let path = rejected.keep(&disk, (FILE.as_ref(), None), b"one").unwrap();
            assert_eq!(rejected.kept(&disk).as_ref(), Some(&path));
            if sealed {
                std::fs::remove_dir_all(&state).unwrap();
            } else {
                disk.unlink(path.as_os_str()).unwrap();
            }
            assert_eq!(rejected.kept(&disk), None);
            let again = rejected.keep(&disk, (FILE.as_ref(), None), b"one");
            assert_eq!(again.unwrap(), path);
            rejected.release();
            assert_eq!(rejected.kept(&disk), None);
            rejected.clear(&disk, b"one").unwrap();
            assert!(disk.stat_name(NAME.as_ref()).is_ok() != sealed);
            assert_eq!(state.join(NAME).exists(), sealed);
        }
    }

    /// What is mounted over it must not get the text: that would be the mount itself.
    #[test]
    fn a_directory_that_is_hidden_later_still_takes_the_text() {
        let place = tempfile::tempdir().unwrap();
        let [path, moved] = ["mnt", "moved"].map(|name| place.path().join(name));
        std::fs::create_dir(&path).unwrap();
        let mut rejected = RejectedText::new(&[path.join("state/asdf-mount")]);
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        rejected
            .keep(&sim(true), (FILE.as_ref(), None), b"one")
            .unwrap();
        assert!(moved.join("state/asdf-mount").join(NAME).exists());
    }

    /// It took the place of the other text.
    #[test]
    fn a_text_that_another_mount_keeps_at_that_moment_stays() {
        use crate::save::tests::disk::{Deed, Trouble, When};
        let disk = sim(false);
        disk.arm(Trouble {
            other: Some((When::Op(3), Deed::Replace(NAME, b"other"))),
            ..Trouble::default()
        });
        let mut rejected = RejectedText::new(&[]);
        let kept = rejected.keep(&disk, (FILE.as_ref(), None), b"one").unwrap();
        assert_eq!(disk.ops().get(3), Some(&"rename"));
        assert_eq!(kept, Path::new("f.asdf.2.rejected.yaml"));
        assert_eq!(disk.content(kept.as_os_str()).unwrap(), b"one");
        assert_eq!(disk.content(NAME.as_ref()).unwrap(), b"other");
    }

    /// The text was kept elsewhere then, and the file beside FILE stayed for good.
    #[test]
    fn a_text_is_kept_once_though_the_directory_can_not_be_synced() {
        use crate::save::tests::disk::{Fault, Trouble};
        let place = tempfile::tempdir().unwrap();
        let disk = sim(false);
        let mut rejected = RejectedText::new(&[place.path().join("state")]);
        disk.arm(Trouble {
            fault: Some((4, Fault::Errno(5))),
            ..Trouble::default()
        });
        let kept = rejected.keep(&disk, (FILE.as_ref(), None), b"one").unwrap();
        assert_eq!(disk.ops().get(4), Some(&"sync directory"));
        assert_eq!(kept, Path::new(NAME));
        assert!(!place.path().join("state").exists());
        disk.arm(Trouble::default());
        rejected.clear(&disk, b"").unwrap();
        assert!(disk.stat_name(NAME.as_ref()).is_err());
    }
}
