//! The manual says everything that the command can do, and the README stays short.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::asdf_mount;

/// Every option of `-o` that is promised.
const MOUNT_OPTIONS: [&str; 22] = [
    "ro",
    "rw",
    "allow_other",
    "allow_root",
    "uid",
    "gid",
    "umask",
    "cache",
    "index-cache",
    "scratch",
    "threads",
    "verify",
    "save",
    "grow",
    "max-copy",
    "validate",
    "allow_external",
    "force",
    "auto_unmount",
    "fsname",
    "subtype",
    "x-",
];

/// The contract of exit statuses.
const EXIT_CODES: [u8; 13] = [0, 1, 2, 10, 11, 12, 13, 20, 21, 23, 30, 31, 40];

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The manual as a reader sees it: without the backslashes that keep troff from breaking words.
fn manual() -> String {
    file("man/asdf-mount.1")
        .replace("\\-", "-")
        .replace("\\&", "")
}

/// The words that introduce an entry of a list in the manual (`.It Fl r`, `.It 20`), and flags in the synopsis.
fn entries(manual: &str) -> BTreeSet<String> {
    manual
        .lines()
        .filter_map(|line| line.strip_prefix(".It "))
        .flat_map(|line| line.split([' ', '=', ',']))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_flag_of_the_command_is_in_the_manual() {
    let help = asdf_mount(["--help"]).stdout;
    let entries = entries(&manual());
    let flags: BTreeSet<&str> = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| {
            line.split_whitespace()
                .take_while(|word| word.starts_with('-'))
        })
        .map(|word| word.trim_end_matches(',').split(['=', '[']).next().unwrap())
        .collect();
    assert!(flags.len() >= 15, "too few flags in the help: {flags:?}");
    for flag in flags {
        let name = flag.strip_prefix('-').unwrap();
        assert!(entries.contains(name), "{flag} has no entry in the manual");
    }
}

#[test]
fn every_mount_option_and_exit_status_is_in_the_manual() {
    let entries = entries(&manual());
    for option in MOUNT_OPTIONS {
        assert!(
            entries.contains(option) || option == "x-" && manual().contains("x-*"),
            "-o {option} has no entry"
        );
    }
    for code in EXIT_CODES {
        assert!(
            entries.contains(&code.to_string()),
            "exit status {code} has no entry"
        );
    }
}

#[test]
fn every_error_number_is_in_the_manual() {
    let numbers: BTreeSet<String> = file("src/vfs/error.rs")
        .split("#[cfg(test)]")
        .next()
        .unwrap()
        .split("Errno::")
        .skip(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_uppercase).collect())
        .filter(|name: &String| !name.is_empty())
        .collect();
    assert!(numbers.len() > 10, "too few in the source: {numbers:?}");
    let manual = manual();
    let section = manual.split(".Sh ERROR NUMBERS").nth(1).unwrap();
    let section = section.split(".Sh ").next().unwrap();
    for number in numbers {
        let entry = format!("Er E{number}");
        assert!(section.contains(&entry), "E{number} has no entry");
    }
}

#[test]
fn every_document_names_the_formats_and_actions() {
    for document in ["README.md", "CHANGELOG.md", "man/asdf-mount.1"] {
        let text = file(document);
        for word in [
            "in FITS",
            "ASDF 0.1.0",
            "FINF 0.1.0",
            "exploded form",
            "-explode",
            "-implode",
            "-repair",
            "setfattr",
        ] {
            assert!(text.contains(word), "{word} is not in {document}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = file("README.md").lines().count();
    assert!(lines < 150, "{lines} lines");
}
