//! The manual says everything that the command can do, and the README stays short.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::asdf_mount;

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

const PAGES: [&str; 3] = [
    "man/asdf-mount.1",
    "man/asdf-mount-semantics.7",
    "man/asdf-mount-cookbook.7",
];

/// A page as a reader sees it: without the backslashes that keep troff from breaking words.
fn page(name: &str) -> String {
    file(name).replace("\\-", "-").replace("\\&", "")
}

/// The page with the options and exit statuses.
fn manual() -> String {
    page("man/asdf-mount.1")
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

/// The part of a source file from `start` to `end`.
fn part<'a>(source: &'a str, start: &str, end: &str) -> &'a str {
    let rest = source.split_once(start).unwrap().1;
    rest.split_once(end).unwrap().0
}

/// A section of a page.
fn section(page: &str, name: &str) -> String {
    part(page, &format!(".Sh {name}\n"), "\n.Sh ").to_owned()
}

#[test]
fn every_mount_option_is_in_the_manual() {
    let source = file("src/cli/options.rs");
    // `("sync" | "async", None) => …`: what stands in front of the value
    let options: BTreeSet<&str> = part(&source, "match (name, value) {", "\n        }\n")
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("(\"")?.split_once("\","))
        .flat_map(|(names, _)| names.split("\" | \""))
        .collect();
    assert!(options.contains("max-copy"), "{options:?}");
    let entries = entries(&section(&manual(), "MOUNT OPTIONS"));
    for option in options {
        assert!(entries.contains(option), "-o {option} has no entry");
    }
}

#[test]
fn every_exit_status_is_in_the_manual() {
    let source = file("src/cli/exit.rs");
    let statuses: BTreeSet<&str> = part(&source, "enum Exit {", "\n}\n")
        .lines()
        .filter_map(|line| line.strip_suffix(',')?.split_once(" = "))
        .map(|(_, status)| status)
        .collect();
    assert!(statuses.contains("23"), "{statuses:?}");
    let listed = entries(&section(&manual(), "EXIT STATUS"));
    assert!(
        statuses
            .iter()
            .copied()
            .eq(listed.iter().map(String::as_str))
    );
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
    let section = section(&page("man/asdf-mount-semantics.7"), "ERROR NUMBERS");
    for number in numbers {
        let entry = format!("Er E{number}");
        assert!(section.contains(&entry), "E{number} has no entry");
    }
}

#[test]
fn every_document_names_the_formats_and_actions() {
    let pages = PAGES.map(file).concat();
    for (document, text) in [
        ("README.md", file("README.md")),
        ("CHANGELOG.md", file("CHANGELOG.md")),
        ("the manual", pages),
    ] {
        for word in [
            "in FITS",
            "ASDF 0.1.0",
            "FINF 0.1.0",
            "exploded form",
            "-preview",
            "-page",
            "-references",
            "-explode",
            "-implode",
            "-compact",
            "-repair",
            "setfattr",
        ] {
            assert!(text.contains(word), "{word} is not in {document}");
        }
    }
}

#[test]
fn every_page_is_of_this_version() {
    for page in PAGES {
        let version = concat!("\n.Os asdf-mount ", env!("CARGO_PKG_VERSION"), "\n");
        assert!(file(page).contains(version), "{page}");
    }
}

/// The variables that the sources read and users may set; those that the program sets for itself begin with its name.
#[test]
fn every_variable_of_the_environment_is_in_the_manual() {
    let section = section(&manual(), "ENVIRONMENT");
    let mut found = 0;
    for source in [
        "src/cli/daemon.rs",
        "src/cli/edit.rs",
        "src/cli/options.rs",
        "src/save/rejected.rs",
    ] {
        let source = file(source);
        let product = source.split("#[cfg(test)]").next().unwrap();
        for word in product.split('"').skip(1).step_by(2) {
            let name = |c: char| c.is_ascii_uppercase() || c == '_';
            if word.len() > 3 && word.chars().all(name) && !word.starts_with("ASDF_MOUNT") {
                found += 1;
                assert!(section.contains(word), "{word} is not in ENVIRONMENT");
            }
        }
    }
    assert!(found >= 6, "{found}");
}

/// The help and the completions are made from one table of options; the manual has the same options, values and order.
#[test]
fn the_manual_has_the_options_and_values_of_the_help() {
    let help = asdf_mount(["-o", "help"]).stdout;
    let heads = help.lines().filter_map(|line| line.strip_prefix("  "));
    let known: Vec<&str> = heads.filter_map(|head| head.split(' ').next()).collect();
    let section = section(&manual(), "MOUNT OPTIONS");
    let entries = section.lines().filter_map(|line| line.strip_prefix(".It "));
    let listed: Vec<String> = entries.flat_map(heads_of_entry).collect();
    // behind those of the help are words of mount(8)
    assert_eq!(listed.get(..known.len()).unwrap(), known);
}

/// The options of an entry as the help writes them: `Cm uid Ns = Ns Ar N , Cm gid Ns = Ns Ar N` is `uid=N` and `gid=N`.
fn heads_of_entry(entry: &str) -> Vec<String> {
    let mut heads = vec![String::new()];
    let mut is_optional = false;
    for word in entry.split(' ') {
        match word {
            "," => heads.push(String::new()),
            "Cm" | "Ar" | "Ns" => {}
            "Op" => {
                heads.last_mut().unwrap().push('[');
                is_optional = true;
            }
            "Oo" => heads.last_mut().unwrap().push('['),
            "Oc" => heads.last_mut().unwrap().push(']'),
            word => heads.last_mut().unwrap().push_str(word),
        }
    }
    if is_optional {
        heads.last_mut().unwrap().push(']');
    }
    heads
}

#[test]
fn the_pages_are_short_and_so_are_their_paragraphs() {
    let lines = file("man/asdf-mount.1").lines().count();
    assert!(lines <= 700, "{lines} lines in asdf-mount(1)");
    for page in PAGES {
        let (mut prose, mut is_display) = (String::new(), false);
        for line in file(page).lines() {
            is_display |= line.starts_with(".Bd");
            if !is_display {
                prose.push_str(line);
                prose.push('\n');
            }
            is_display &= line != ".Ed";
        }
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("page");
        fs::write(&path, prose).unwrap();
        let rendered = Command::new("mandoc")
            .args(["-T", "ascii", "-O", "width=80"])
            .arg(&path)
            .output();
        let Ok(rendered) = rendered else {
            println!("skipped: no mandoc");
            return;
        };
        let text = String::from_utf8(rendered.stdout).unwrap();
        for paragraph in text.split("\n\n") {
            let lines = paragraph.lines().count();
            assert!(lines <= 14, "{page}: {lines} lines: {paragraph}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = file("README.md").lines().count();
    assert!(lines < 150, "{lines} lines");
}
