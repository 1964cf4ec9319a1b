//! The names of the files that a save makes beside FILE.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::digest::sha256;
use super::store::Store;

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;
/// What stands between FILE's name and what a file of ours is for.
const OURS: &[u8] = b".asdf-mount-";
/// Digits of the random part of a temporary file's name.
const DIGITS: usize = 16;
/// How many names are tried for a file that is to be kept.
const NAMES: u32 = 1000;

/// `.NAME.asdf-mount-journal`: a redo record that does not lie in FILE itself.
pub(super) fn sidecar(file: &OsStr) -> OsString {
    with_ending(file, b"journal")
}

/// Whether `name` is one that [`sidecar`] gives for any file.
pub(super) fn is_sidecar(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") && name.ends_with(b".asdf-mount-journal")
}

/// `.NAME.asdf-mount-` and a random number: a file that is not yet, or no longer, FILE.
pub(super) fn temporary(file: &OsStr) -> OsString {
    let random = RandomState::new().build_hasher().finish();
    with_ending(file, format!("{random:0DIGITS$x}").as_bytes())
}

/// Whether `name` is one that [`temporary`] gives for FILE.
pub(super) fn is_temporary(file: &OsStr, name: &OsStr) -> bool {
    name.as_bytes()
        .strip_prefix(with_ending(file, b"").as_bytes())
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The name, cut if need be so that with an ending of so many bytes it is no longer than the name of a file may be.
#[must_use]
pub fn short_enough(name: &OsStr, ending: usize) -> OsString {
    OsString::from_vec(stem(name, NAME_MAX.saturating_sub(ending)))
}

/// `NAME.ENDING`: a file for the user to find.
pub(super) fn beside(file: &OsStr, ending: &str) -> OsString {
    let room = NAME_MAX.saturating_sub(ending.len()).saturating_sub(1);
    OsString::from_vec([&stem(file, room)[..], b".", ending.as_bytes()].concat())
}

/// `NAME.ENDING`, `NAME.2.ENDING` and so on: the names of files to keep, in the order in which they are tried.
fn numbered(file: &OsStr, ending: &'static str) -> impl Iterator<Item = OsString> + use<> {
    let first = beside(file, ending);
    let file = file.to_owned();
    let others = (2..=NAMES).map(move |n| beside(&file, &format!("{n}.{ending}")));
    std::iter::once(first).chain(others)
}

/// Those of these names that are taken, as far as their numbers go on.
pub(super) fn taken<S: Store>(store: &S, file: &OsStr, ending: &'static str) -> Vec<OsString> {
    let mut names = numbered(file, ending);
    // the first may have been removed
    let first = names.next().filter(|name| store.stat_name(name).is_ok());
    let others = names.take_while(|name| store.stat_name(name).is_ok());
    first.into_iter().chain(others).collect()
}

/// Renames `from` to the first of these names that is free, and stays free until then: another mount may be looking for one, too.
pub(super) fn take_free<S: Store>(
    store: &S,
    from: &OsStr,
    (file, ending): (&OsStr, &'static str),
) -> io::Result<OsString> {
    for name in numbered(file, ending) {
        match store.rename_to_new(from, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed.map(|()| name),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The ending has a fixed place, so that a name that has to be cut is still the same each time.
fn with_ending(file: &OsStr, ending: &[u8]) -> OsString {
    let room = NAME_MAX
        .saturating_sub(OURS.len())
        .saturating_sub(DIGITS)
        .saturating_sub(1);
    OsString::from_vec([b".", &stem(file, room)[..], OURS, ending].concat())
}

/// FILE's name. If it is longer than `room` it is cut between two characters, and a hash of all of it tells it from others
/// that begin alike.
fn stem(file: &OsStr, room: usize) -> Vec<u8> {
    let whole = file.as_bytes();
    if whole.len() <= room {
        return whole.to_vec();
    }
    let [a, b, c, d, ..] = sha256(whole);
    let hash = format!("~{a:02x}{b:02x}{c:02x}{d:02x}");
    let starts = |at: &usize| whole.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let most = room.saturating_sub(hash.len());
    let end = (0..=most).rev().find(starts).unwrap_or(most);
    let start = whole.get(..end).unwrap_or_default();
    [start, hash.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_ours_is_known_again() {
        for file in ["a.asdf", &"x".repeat(255), ""] {
            let file = OsStr::new(file);
            assert!(is_temporary(file, &temporary(file)));
            assert!(!is_temporary(file, &sidecar(file)));
            assert!(!is_temporary(file, file));
            for name in [
                sidecar(file),
                temporary(file),
                beside(file, "rejected.yaml"),
            ] {
                assert!(name.len() <= NAME_MAX);
            }
        }
        assert!(!is_temporary(OsStr::new("b"), &temporary(OsStr::new("a"))));
        assert_eq!(
            beside(OsStr::new("a.asdf"), "rejected.yaml"),
            "a.asdf.rejected.yaml"
        );
    }

    #[test]
    fn long_names_that_begin_alike_have_files_of_their_own() {
        let [one, two] = ["1", "2"].map(|end| format!("{}{end}.asdf", "\u{20ac}".repeat(83)));
        let (one, two) = (OsStr::new(&one), OsStr::new(&two));
        assert_eq!(one.len(), NAME_MAX);
        assert_ne!(sidecar(one), sidecar(two));
        assert_ne!(beside(one, "rejected.yaml"), beside(two, "rejected.yaml"));
        assert!(!is_temporary(one, &temporary(two)));
        for name in [sidecar(one), temporary(one), beside(one, "rejected.yaml")] {
            assert!(name.to_str().is_some(), "a character is cut: {name:?}");
        }
    }
}
