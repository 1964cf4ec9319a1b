//! The lines around the tree, where some readers want more than the standard.
//!
//! The Python library (asdf 6.0, `_io.py` and `_helpers.py`) wants `%YAML` directly behind the lines that begin with `#`, nothing
//! but the line's end behind the `...`, and a version of the standard that it knows. We read files that lack this, and refuse a
//! save by which a file would lose it.

use super::dialect::{KNOWN_STANDARDS, last_before};
use crate::error::{Error, Place, printable};
use crate::source::len_u64;

/// Start of the comment line that names the version of the standard.
const STANDARD: &[u8] = b"#ASDF_STANDARD";

/// The lines around the tree that some readers refuse, each as an error with place, reason and advice.
#[must_use]
pub fn oddities(text: &[u8], has_tree: bool) -> Vec<Error> {
    let found = [
        has_tree.then(|| yaml_line(text)).flatten(),
        standard_line(text),
        has_tree.then(|| last_line(text)).flatten(),
    ];
    found.into_iter().flatten().collect()
}

/// The version of the standard that a text names.
#[must_use]
pub fn standard(text: &[u8]) -> Option<String> {
    Some(named_standard(text)?.1)
}

/// The tags of arrays that asdf-python knows under the version of the standard in a text; none for a version that is not known. It reads
/// an array with another tag as a mapping, with no more than a warning. A later version than all known ones has the tag of the last of
/// them, or its own.
#[must_use]
pub fn known_arrays(text: &[u8]) -> &'static [&'static str] {
    // a text without a version counts as 1.0.0
    let version = standard(text).unwrap_or_else(|| "1.0.0".to_owned());
    match &*version {
        "1.6.0" => &["core/ndarray-1.1.0"],
        known if KNOWN_STANDARDS.contains(&known) => &["core/ndarray-1.0.0"],
        later if last_before(later).is_some() => &["core/ndarray-1.1.0", "core/ndarray-1.2.0"],
        _ => &[],
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"#")
}

/// Where a text names the version of the standard: its beginning, if it names none.
pub(super) fn place_of_standard(text: &[u8]) -> Place {
    let first = Place::Line { line: 1, column: 1 };
    named_standard(text).map_or(first, |(place, _)| place)
}

/// Place and version of the standard that a text names.
fn named_standard(text: &[u8]) -> Option<(Place, String)> {
    let mut comments = lines(text).take_while(|line| is_comment(line));
    let mut number = 0_u64;
    comments.find_map(|line| {
        number = number.saturating_add(1);
        let version = line.strip_prefix(STANDARD)?.trim_ascii_start();
        let column = len_u64(line.len().saturating_sub(version.len())).saturating_add(1);
        // only for a message and a comparison: a version of other characters is not known anyway
        let version = String::from_utf8_lossy(version.trim_ascii_end()).into_owned();
        let place = Place::Line {
            line: number,
            column,
        };
        Some((place, version))
    })
}

/// A version of the standard that a text names and that is newer than those known.
#[must_use]
pub fn newer_standard(text: &[u8]) -> Option<Error> {
    let (place, version) = named_standard(text)?;
    let last = last_before(&version)?;
    let version = printable(&version);
    let why =
        format!("version {version} of the ASDF Standard is newer than {last}; read as {last}");
    Some(Error::unsupported(place, why))
}

/// The fault of the line that names the version of the standard: the version is not in [`KNOWN_STANDARDS`], and not newer.
fn standard_line(text: &[u8]) -> Option<Error> {
    let (place, version) = named_standard(text)?;
    // a newer version is a finding of the scan, and is read as the last known one
    if KNOWN_STANDARDS.contains(&version.as_str()) || newer_standard(text).is_some() {
        return None;
    }
    let (version, [first, .., last]) = (printable(&version), KNOWN_STANDARDS);
    Some(Error::Rejected {
        at: place,
        why: format!("version {version} of the ASDF Standard is not known"),
        advice: format!("asdf-mount knows {first} to {last}"),
    })
}

/// The fault of the `%YAML 1.1` line: it is missing, or does not follow the comments directly.
fn yaml_line(text: &[u8]) -> Option<Error> {
    let is_directive = |line: &[u8]| {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        line.starts_with(b"%") && words.by_ref().take(2).eq([&b"%YAML"[..], b"1.1"])
    };
    let comments = lines(text).take_while(|line| is_comment(line)).count();
    let mut directives = lines(text)
        .skip(comments)
        .take_while(|line| !line.starts_with(b"---"));
    if directives.next().is_some_and(is_directive) {
        return None;
    }
    let why = if directives.any(is_directive) {
        "the %YAML 1.1 line does not stand directly behind the # lines"
    } else {
        "there is no %YAML 1.1 line directly behind the # lines"
    };
    Some(Error::Rejected {
        at: Place::Line {
            line: len_u64(comments).saturating_add(1),
            column: 1,
        },
        why: why.to_owned(),
        advice: "put the line %YAML 1.1 there".to_owned(),
    })
}

/// The fault of the last line: blanks follow the `...` in it.
fn last_line(text: &[u8]) -> Option<Error> {
    let end = text
        .strip_suffix(b"\r\n")
        .or_else(|| text.strip_suffix(b"\n"));
    let text = end.unwrap_or(text);
    let start = text.iter().rposition(|&byte| byte == b'\n');
    let start = start.map_or(0, |at| at.saturating_add(1));
    let line = text.get(start..)?;
    if line.strip_prefix(b"...").is_none_or(<[u8]>::is_empty) {
        return None;
    }
    Some(Error::Rejected {
        at: Place::Line {
            line: len_u64(lines(text).count()),
            column: 4,
        },
        why: "there are blanks behind the `...` that ends the tree".to_owned(),
        advice: "remove them".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let found = oddities(text.as_bytes(), true);
        found
            .iter()
            .map(|odd| odd.to_string().split_once(';').unwrap().0.to_owned())
            .collect()
    }

    #[test]
    fn what_python_does_not_open_is_odd() {
        // Verdicts of asdf.open of asdf 6.0.0.
        let text = |standard: &str, yaml: &str, end: &str| {
            format!(
                "#ASDF 1.0.0\n#ASDF_STANDARD {standard}\n{yaml}%TAG ! tag:stsci.edu:asdf/\n--- !core/asdf-1.1.0\na: 1\n{end}"
            )
        };
        let yaml = "%YAML 1.1\n";
        for (good, what) in [
            (text("1.5.0", yaml, "...\n"), "plain"),
            (text("1.6.0", yaml, "...\r\n"), "CR LF"),
            (text("1.0.0", yaml, "..."), "no newline"),
            (text("  1.5.0  ", "%YAML  1.1  \n", "...\n"), "blanks"),
            (text("1.5.0", "# more\n%YAML 1.1\n", "...\n"), "comments"),
        ] {
            assert_eq!(found(&good), [""; 0], "{what}");
        }
        let blanks = "there are blanks behind the `...` that ends the tree";
        let missing = "there is no %YAML 1.1 line directly behind the # lines";
        let late = "the %YAML 1.1 line does not stand directly behind the # lines";
        for (bad, place, why) in [
            (text("1.5.0", yaml, "...  \n"), "line 7, column 4", blanks),
            (text("1.5.0", yaml, "...\t"), "line 7, column 4", blanks),
            (text("1.5.0", yaml, "...\r"), "line 7, column 4", blanks),
            (text("1.5.0", "", "...\n"), "line 3, column 1", missing),
            (
                text("1.5.0", "\n%YAML 1.1\n", "...\n"),
                "line 3, column 1",
                late,
            ),
            (
                text("1.5.0", " %YAML 1.1\n", "...\n"),
                "line 3, column 1",
                missing,
            ),
            (
                text("2.0.0", yaml, "...\n"),
                "line 2, column 16",
                "version 2.0.0 of the ASDF Standard is not known",
            ),
            (
                text("1.5.9", yaml, "...\n"),
                "line 2, column 16",
                "version 1.5.9 of the ASDF Standard is not known",
            ),
            (
                text("1.6.0-dev", yaml, "...\n"),
                "line 2, column 16",
                "version 1.6.0-dev of the ASDF Standard is not known",
            ),
        ] {
            assert_eq!(found(&bad), [format!("{place}: {why}")]);
        }
    }

    /// asdf 6 writes 1.7.0. `--check` said that the line was to be put back, and a save that brought it was refused.
    #[test]
    fn a_newer_minor_version_of_the_standard_is_no_fault() {
        for version in ["1.7.0", "1.7.0-dev", "1.6.1", "1.10.0"] {
            let text =
                format!("#ASDF 1.0.0\n#ASDF_STANDARD {version}\n%YAML 1.1\n---\na: 1\n...\n");
            assert_eq!(found(&text), [""; 0], "{version}");
            let newer = newer_standard(text.as_bytes()).unwrap().to_string();
            assert_eq!(
                newer,
                format!(
                    "line 2, column 16: version {version} of the ASDF Standard is newer than 1.6.0; read as 1.6.0"
                )
            );
        }
        for version in ["1.6.0", "1.6.0-dev", "1.5.9", "2.0.0", "1.7", "x"] {
            let text = format!("#ASDF 1.0.0\n#ASDF_STANDARD {version}\n");
            assert!(newer_standard(text.as_bytes()).is_none(), "{version}");
        }
    }

    #[test]
    fn each_known_standard_has_its_tag_of_arrays() {
        // Verdicts of asdf.open of asdf 6.0.0.
        let known =
            |lines: &str| known_arrays(format!("#ASDF 1.0.0\n{lines}%YAML 1.1\n").as_bytes());
        assert_eq!(known(""), ["core/ndarray-1.0.0"]);
        for version in ["1.0.0", "1.3.0", "1.5.0"] {
            let line = format!("#ASDF_STANDARD {version}\n");
            assert_eq!(known(&line), ["core/ndarray-1.0.0"], "{version}");
        }
        let new = ["core/ndarray-1.1.0", "core/ndarray-1.2.0"];
        assert_eq!(known("#ASDF_STANDARD 1.6.0\n"), &new[..1]);
        assert_eq!(known("#ASDF_STANDARD 1.7.0\n"), new);
        assert!(known("#ASDF_STANDARD 2.0.0\n").is_empty());
    }

    #[test]
    fn a_text_without_a_tree_needs_no_directive() {
        assert!(oddities(b"#ASDF 1.0.0\n# no tree\n", false).is_empty());
    }

    #[test]
    fn the_standard_is_read_from_its_line() {
        assert_eq!(
            standard(b"#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\r\n%YAML 1.1\n").as_deref(),
            Some("1.5.0")
        );
        assert_eq!(
            standard(b"#ASDF 1.0.0\n%YAML 1.1\n#ASDF_STANDARD 9\n"),
            None
        );
    }
}
