//! The names of keys as files and directories.
//!
//! A key keeps its spelling as far as a file name allows. Other characters are percent-encoded, and so is `%` itself. A `%` without
//! two hexadecimal digits behind it is therefore free for other meanings: `%` alone is the empty key or the tree's top, `%~` stands
//! before the hash of a key that is too long, and `%+` before the number of a key that occurs again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::codec::fnv1a;
use crate::error::percent_encoded;

/// What the files of an array end with.
pub const SUFFIXES: [&str; 2] = [".bin", ".npy"];
/// Longest name of an array without its suffix: Linux allows 255 bytes with it.
const MAX_STEM: usize = 251;

/// A key as part of a file name: injective as long as nothing has to be cut.
#[must_use]
pub fn encode(key: &str) -> Cow<'_, str> {
    let encoded = match key {
        "" => "%".into(),
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        _ => escape(key),
    };
    if encoded.len() > MAX_STEM {
        cut(&encoded, MAX_STEM).into()
    } else {
        encoded
    }
}

/// A key between slashes: its own slashes, percent signs and control characters are percent-encoded.
pub(super) fn escape(key: &str) -> Cow<'_, str> {
    let escaped = |c: char| c == '/' || c == '%' || c.is_control();
    if !key.contains(escaped) {
        return key.into();
    }
    percent_encoded(key, escaped).into()
}

/// The beginning of an encoded key and a hash of all of it, in `len` bytes at most.
fn cut(encoded: &str, len: usize) -> String {
    // of all of it, so that keys which differ only behind the cut have different names
    let hash = format!("%~{:016x}", fnv1a(encoded.as_bytes()));
    let room = encoded.floor_char_boundary(len.saturating_sub(hash.len()));
    let mut start = encoded.get(..room).unwrap_or_default();
    // An escape is kept whole or left out.
    if let Some(at) = start
        .rfind('%')
        .filter(|at| start.len().saturating_sub(*at) < 3)
    {
        start = start.get(..at).unwrap_or_default();
    }
    format!("{start}{hash}")
}

/// Something in a directory that needs a name.
#[derive(Debug, Clone)]
pub(super) struct Unnamed<'k> {
    /// Its key or index in the tree.
    pub(super) key: Cow<'k, str>,
    /// Whether it is an array, with a file for each of [`SUFFIXES`].
    pub(super) array: bool,
    /// Whether it is a directory; an array can be one as well.
    pub(super) directory: bool,
}

impl<'k> Unnamed<'k> {
    /// Its key as part of a file name.
    pub(super) fn encoded(&self) -> Cow<'k, str> {
        match &self.key {
            Cow::Borrowed(key) => encode(key),
            Cow::Owned(key) => encode(key).into_owned().into(),
        }
    }
}

/// The names in one directory that are not just an encoded key, by the index of the entry. No two names in the directory are equal
/// once directories have given way to arrays.
pub(super) fn odd_names<'k, I>(entries: I) -> HashMap<usize, Box<str>>
where
    I: DoubleEndedIterator<Item = Unnamed<'k>> + ExactSizeIterator,
{
    let mut odd = HashMap::new();
    let mut taken = HashSet::with_capacity(entries.len());
    // Where to go on counting for each key: a key that occurs
    // a million times must not take the square of that.
    let mut again: HashMap<Cow<'_, str>, u32> = HashMap::new();
    // of a key that is there twice, readers take the last value: that has the plain name
    for (at, entry) in entries.enumerate().rev() {
        let encoded = entry.encoded();
        if taken.insert(encoded.clone()) {
            continue;
        }
        // the plain name counts as the first, so numbers begin at 2
        let count = again.entry(encoded.clone()).or_insert(1);
        let stem = loop {
            *count = count.saturating_add(1);
            let stem = numbered(&encoded, *count);
            if taken.insert(stem.clone().into()) {
                break stem.into();
            }
        };
        odd.insert(at, stem);
    }
    odd
}

/// The directories that have the name of an array's file, by the index of the entry. Each gets another name: its last dot is encoded.
/// `odd` holds the names that are not just an encoded key.
pub(super) fn give_way<'k>(
    entries: impl Iterator<Item = Unnamed<'k>> + Clone,
    odd: &HashMap<usize, Box<str>>,
) -> HashMap<usize, Box<str>> {
    let stem = |(at, entry): (usize, Unnamed<'k>)| match odd.get(&at) {
        Some(name) => name.to_string().into(),
        None => entry.encoded(),
    };
    let suffix_of = |stem: &str| {
        let mut suffixes = SUFFIXES.into_iter();
        suffixes.find(|suffix| stem.ends_with(suffix))
    };
    let directories = entries.clone().enumerate();
    let directories = directories.filter(|(_, entry)| entry.directory);
    let like_files = directories.filter_map(|(at, entry)| {
        let stem = stem((at, entry));
        Some((at, suffix_of(&stem)?, stem))
    });
    let like_files: Vec<_> = like_files.collect();
    // hardly any tree has such keys: for the others no set of all arrays is made
    if like_files.is_empty() {
        return HashMap::new();
    }
    let arrays = entries.enumerate().filter(|(_, entry)| entry.array);
    let arrays: HashSet<Cow<'_, str>> = arrays.map(stem).collect();
    let renamed = like_files.into_iter().filter_map(|(at, suffix, stem)| {
        let array = stem.strip_suffix(suffix)?;
        // no key has this name: for keys `%2E` only stands as the whole name or twice
        let encoded = || format!("{array}{}", suffix.replace('.', "%2E"));
        let encoded = arrays.contains(array).then(encoded)?;
        Some((at, encoded.into()))
    });
    renamed.collect()
}

/// The name of the entry that is number `count` among equal keys of a directory.
fn numbered(encoded: &str, count: u32) -> String {
    let number = format!("%+{count}");
    if encoded.len().saturating_add(number.len()) <= MAX_STEM {
        return format!("{encoded}{number}");
    }
    let short = cut(encoded, MAX_STEM.saturating_sub(number.len()));
    format!("{short}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_keys_keep_their_spelling() {
        for key in [
            "flux",
            "with space",
            "dotted.name",
            "-dash",
            "été",
            "名前",
            "*?",
            "...",
            ".hidden",
            "a\\b",
            "~",
            &"k".repeat(251),
        ] {
            assert_eq!(encode(key), key);
        }
    }

    #[test]
    fn what_a_file_name_cannot_hold_is_encoded() {
        let cases = [
            ("a/b", "a%2Fb"),
            ("100%", "100%25"),
            ("", "%"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("a\0\t\n\u{7f}", "a%00%09%0A%7F"),
            ("\u{85}", "%C2%85"),
            ("../../etc", "..%2F..%2Fetc"),
        ];
        for (key, name) in cases {
            assert_eq!(encode(key), name, "{key:?}");
        }
    }

    #[test]
    fn long_keys_are_cut_between_characters_and_told_apart_by_a_hash() {
        // FNV-1a by its published test vector.
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        for unit in ["k", "é", "名", "/"] {
            let (a, b) = (unit.repeat(300), unit.repeat(301));
            assert!(encode(&a).len() <= MAX_STEM && encode(&a).len() > MAX_STEM - 5);
            assert!(encode(&a).contains("%~") && encode(&a) != encode(&b));
        }
    }

    fn names(entries: &[(&str, bool, bool)]) -> Vec<(String, String)> {
        let entry = |&(key, array, directory): &(&str, bool, bool)| Unnamed {
            key: key.to_owned().into(),
            array,
            directory,
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        assigned(&entries)
    }

    /// The names of all entries: of the files without their suffix, and of the directory.
    fn assigned(entries: &[Unnamed<'_>]) -> Vec<(String, String)> {
        let odd = odd_names(entries.iter().cloned());
        let directories = give_way(entries.iter().cloned(), &odd);
        let name = |(at, entry): (usize, &Unnamed<'_>)| {
            let stem = (odd.get(&at)).map_or(entry.encoded().into_owned(), ToString::to_string);
            let directory = directories.get(&at).map(ToString::to_string);
            (stem.clone(), directory.unwrap_or(stem))
        };
        entries.iter().enumerate().map(name).collect()
    }

    #[test]
    fn a_directory_gives_way_to_an_array() {
        let given = names(&[
            ("a", true, true),
            ("a.bin", true, true),
            ("a.npy", false, true),
            ("b.bin", false, true),
        ]);
        let directories: Vec<&str> = given.iter().map(|(_, directory)| &**directory).collect();
        assert_eq!(directories, ["a", "a%2Ebin", "a%2Enpy", "b.bin"]);
        assert_eq!(given[1].0, "a.bin", "its files are a.bin.bin and a.bin.npy");
    }

    #[test]
    fn keys_that_encode_alike_are_numbered() {
        let given = names(&[
            ("1", true, false),
            ("1", true, false),
            ("1", false, true),
            ("1%+2", true, false),
        ]);
        let stems: Vec<&str> = given.iter().map(|(stem, _)| &**stem).collect();
        assert_eq!(stems, ["1%+3", "1%+2", "1", "1%25+2"]);
    }

    proptest! {
        #[test]
        fn encoding_is_injective(a in "[/%.2EF~+\\x00a]{0,6}", b in "[/%.2EF~+\\x00a]{0,6}") {
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }

        #[test]
        fn all_files_of_a_directory_have_valid_names_of_their_own(
            entries in prop::collection::vec(("([/%.a\\x00]|\\.bin|\\.npy){0,3}|a{249,253}", any::<bool>(), any::<bool>()), 0..12)
        ) {
            let entries: Vec<Unnamed<'_>> = entries
                .into_iter()
                .map(|(key, array, directory)| Unnamed { key: key.into(), array, directory })
                .collect();
            let mut all = HashSet::new();
            for (entry, (stem, directory)) in entries.iter().zip(assigned(&entries)) {
                let files = SUFFIXES.map(|suffix| format!("{stem}{suffix}"));
                let files = files.into_iter().filter(|_| entry.array);
                for file in files.chain(entry.directory.then_some(directory)) {
                    prop_assert!((1..=255).contains(&file.len()) && !file.contains(['/', '\0']), "{}", file);
                    prop_assert!(file != "." && file != ".." && all.insert(file));
                }
            }
        }
    }
}
