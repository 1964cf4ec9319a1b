//! The names of files that editors make beside the file that they edit, and that no user misses when they are gone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::asdf::names::SUFFIXES;
use crate::vfs::TREE_NAME;

/// What such a name begins and ends with.
const PATTERNS: [(&str, &str); 11] = [
    // hidden: swap files (.tree.yaml.swp), locks (.#tree.yaml, .~lock.tree.yaml#), temporary files (.goutputstream-XXXXXX)
    (".", ""),
    // backups
    ("", "~"),
    ("", ".bck"),
    ("", ".rej"),
    ("", "___jb_old___"),
    // what emacs and jed save by themselves
    ("#", "#"),
    // what nano and joe leave when they are killed
    ("", ".save"),
    ("DEADJOE", ""),
    // temporary files
    ("", ".swp"),
    ("", "___jb_tmp___"),
    ("tmp.", ""),
];
/// What mkstemp(3) and its like put behind these: characters that are chosen at random.
const BEFORE_RANDOM: [&str; 3] = ["sed", "tmp", "XX"];
/// How many random characters Python's `tempfile` has behind `tmp`.
const AFTER_TMP: usize = 8;
/// How many of them there are, at least and at most.
const RANDOM: std::ops::RangeInclusive<usize> = 6..=10;

/// Whether an editor makes files of that name.
pub(in crate::vfs) fn is_made_by_editor(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let fits = |(start, end): &(&str, &str)| {
        let rest = name.strip_prefix(start.as_bytes());
        rest.is_some_and(|rest| rest.ends_with(end.as_bytes()))
    };
    let of_tree = name.strip_prefix(TREE_NAME.as_bytes());
    let of_tree = of_tree.and_then(|rest| rest.strip_prefix(b"."));
    let mut before = BEFORE_RANDOM.iter();
    // vim tries whether it can make files with 4913 and larger numbers
    name.iter().all(u8::is_ascii_digit)
        || PATTERNS.iter().any(fits)
        || of_tree.is_some_and(is_random)
        || before.any(|start| name.strip_prefix(start.as_bytes()).is_some_and(is_random))
        || name.strip_prefix(b"tmp").is_some_and(is_of_tempfile)
}

/// Whether tools make files of that name beside files of data: `x.tmp`, `x.tmp.npy`, as programs that write NPY files put the ending behind all
/// else, and the names that Python's `tempfile` chooses, with an ending.
pub(in crate::vfs) fn is_temporary_data(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let mut endings = SUFFIXES.into_iter();
    let stem = endings.find_map(|ending| name.strip_suffix(ending.as_bytes()));
    stem.unwrap_or(name).ends_with(b".tmp")
        || stem.is_some_and(|stem| stem.strip_prefix(b"tmp").is_some_and(is_of_tempfile))
}

/// Whether characters were chosen at random, rather than a word by people.
fn is_random(characters: &[u8]) -> bool {
    RANDOM.contains(&characters.len())
        && characters
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || *c == b'_')
        && characters.iter().any(|c| !c.is_ascii_lowercase())
}

/// Whether they are as many as Python's `tempfile` has behind `tmp`, where all may be small letters.
fn is_of_tempfile(characters: &[u8]) -> bool {
    characters.len() == AFTER_TMP
        && characters
            .iter()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_editors_are_told_from_those_of_users() {
        let editors = [
            ".tree.yaml.swp",
            ".tree.yaml.swx",
            "4913",
            "5036",
            "tree.yaml~",
            ".tree.yaml.un~",
            "tree.yaml.~1~",
            ".#tree.yaml",
            "#tree.yaml#",
            ".goutputstream-9XK2A1",
            "tree.yaml.pQ3xYz",
            ".tree.yaml.Xq12Ab",
            "sedA8xYkQ",
            "XXtfDEBd",
            "tmp_k3x9q1a",
            "tmpqwertyui",
            "tree.yaml.rej",
            "tree.yaml.save",
            ".tree.yaml.kate-swp",
            "DEADJOE",
            "tree.yaml___jb_tmp___",
            "tree.yaml___jb_old___",
            ".~lock.tree.yaml#",
            "tmp.8XkQ1aZ0bC",
            ".t",
        ];
        for name in editors {
            assert!(is_made_by_editor(name.as_ref()), "{name}");
        }
        let users = [
            "results.csv",
            "tree.yaml.backup",
            "tree.yaml.bak",
            "tree.yaml.orig",
            "tree.yaml.tmp",
            "tree2.yaml",
            "notes",
            "sediment.csv",
            "#1.txt",
            "data_2024.npy",
            "tmpfile",
            "a.asdf",
        ];
        for name in users {
            assert!(!is_made_by_editor(name.as_ref()), "{name}");
        }
    }
}
