//! Puts back the lines that YAML tools drop from a text.
//!
//! A program that loads the YAML and dumps it again writes no `#ASDF` line, as that is a comment to it, often no `%YAML` and `%TAG`,
//! and hardly ever the `...`. These are machinery and no content: they are taken from the text that is to be replaced.
//!
//! A `%TAG` that the dump does not need harms nothing: it is a shorthand (YAML 1.1, section 7.1.2), and tags that are written out,
//! `!<tag:stsci.edu:asdf/core/asdf-1.1.0>`, do not use it.

use std::sync::Arc;

use crate::error::{Error, Place};
use crate::source::len_u64;

/// A text that a program has written, with what it lacked put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenText {
    /// The whole text.
    pub text: Arc<Vec<u8>>,
    /// What was put back, for people; empty if the text is as it was written.
    pub put_back: String,
    /// Whether something was put back and the text ended within a line. No program ends a text there on purpose.
    pub is_cut: bool,
    /// How many lines were put in front of the text that had been written.
    lines: u64,
}

impl WrittenText {
    /// Heals a text that begins with `%YAML` or `---` and has no comment up to the `---`. In front it gets the lines that stand
    /// before the tree in `old` and that it lacks. Behind it gets a `...` line, if it has none. Any other text stays as it is.
    #[must_use]
    pub fn new(text: &Arc<Vec<u8>>, old: &[u8]) -> Self {
        heal(text, old).unwrap_or_else(|| Self {
            text: Arc::clone(text),
            put_back: String::new(),
            is_cut: false,
            lines: 0,
        })
    }

    /// The error, with its line counted in the text that the program wrote instead of the healed one.
    #[must_use]
    pub fn as_written(&self, error: Error) -> Error {
        match error {
            Error::Rejected {
                at: Place::Line { line, column },
                why,
                advice,
            } => Error::Rejected {
                at: Place::Line {
                    // an error in a line that was put back is shown at the first line
                    line: line.saturating_sub(self.lines).max(1),
                    column,
                },
                why,
                advice,
            },
            other => other,
        }
    }
}

/// The text with the lines that it lacks; `None` if nothing is to be put back.
fn heal(text: &[u8], old: &[u8]) -> Option<WrittenText> {
    if !text.starts_with(b"%YAML") && !text.starts_with(b"---") {
        return None;
    }
    let (own, tree) = split_head(text);
    let (head, _) = split_head(old);
    // a comment in front of the tree shows that this head was written on purpose
    let has_comment = lines(own).any(is_comment);
    if has_comment || !head.starts_with(b"#") {
        return None;
    }
    let comments = lines(head).take_while(|line| is_comment(line));
    let comments: usize = comments.map(<[u8]>::len).sum();
    let (comments, directives) = head.split_at_checked(comments)?;
    let mut whole = comments.to_vec();
    let mut put_back = vec!["its # lines".to_owned()];
    // the Python library wants %YAML right behind the lines of comment
    whole.extend(lines(own).filter(is_yaml).flatten());
    for line in lines(directives) {
        // a directive for the same thing is the program's own, even with another version or prefix
        let is_there = lines(own).any(|own| own == line || says_the_same(own, line));
        if is_there {
            continue;
        }
        whole.extend_from_slice(line);
        let mut words = words(line);
        match (words.next(), words.next()) {
            (Some(b"%YAML"), _) => put_back.push("%YAML".to_owned()),
            (Some(b"%TAG"), Some(handle)) => {
                put_back.push(format!("%TAG {}", String::from_utf8_lossy(handle)));
            }
            _ => {}
        }
    }
    whole.extend(lines(own).filter(|line| !is_yaml(line)).flatten());
    // without the tree: the difference to the text's own head is how far the tree moves down
    let before = lines(&whole).count();
    whole.extend_from_slice(tree);
    let has_end = last_line(&whole).is_some_and(is_end);
    let is_cut = !has_end && !whole.ends_with(b"\n");
    if is_cut {
        whole.push(b'\n');
    }
    if !has_end {
        // as the old text ends, with `\r\n` if it has that
        let end = last_line(old).filter(|line| is_end(line) && line.ends_with(b"\n"));
        whole.extend_from_slice(end.unwrap_or(b"...\n"));
        put_back.push("its ... line".to_owned());
    }
    Some(WrittenText {
        lines: len_u64(before.saturating_sub(lines(own).count())),
        is_cut,
        text: Arc::new(whole),
        put_back: put_back.join(", "),
    })
}

/// The lines of a text with their ends.
fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n')
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty())
}

/// A text up to the line that begins its document, and from there on.
fn split_head(text: &[u8]) -> (&[u8], &[u8]) {
    let head = lines(text).take_while(|line| !line.starts_with(b"---"));
    let end = head.map(<[u8]>::len).sum();
    text.split_at_checked(end).unwrap_or((text, &[]))
}

fn is_comment(line: &[u8]) -> bool {
    line.starts_with(b"#")
}

/// The last line that is not blank.
fn last_line(text: &[u8]) -> Option<&[u8]> {
    lines(text).rev().find(|line| !line.trim_ascii().is_empty())
}

fn is_end(line: &[u8]) -> bool {
    line.trim_ascii_end() == b"..."
}

fn is_yaml(line: &&[u8]) -> bool {
    words(line).next() == Some(b"%YAML")
}

/// Whether two lines are directives of the same thing: `%YAML`, or `%TAG` for the same handle.
fn says_the_same(a: &[u8], b: &[u8]) -> bool {
    let (mut a, mut b) = (words(a), words(b));
    match (a.next(), b.next()) {
        (Some(b"%YAML"), Some(b"%YAML")) => true,
        (Some(b"%TAG"), Some(b"%TAG")) => a.next() == b.next(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n# mine\n";
    const DIRECTIVES: &str = "%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n%TAG !e! tag:e.org:\n";

    fn healed(text: &str, old: &str) -> Option<(String, String)> {
        let healed = heal(text.as_bytes(), old.as_bytes())?;
        Some((
            String::from_utf8(healed.text.to_vec()).unwrap(),
            healed.put_back,
        ))
    }

    #[test]
    fn what_a_dump_lacks_is_put_back() {
        let old = format!("{HEAD}{DIRECTIVES}--- !core/asdf-1.1.0\na: 1\n...\n");
        let whole = |tree: &str| format!("{HEAD}{DIRECTIVES}{tree}...\n");
        let comments = "its # lines";
        let end = "its ... line";
        let cases = [
            // ruamel.yaml
            (
                format!("{DIRECTIVES}--- !core/asdf-1.1.0\na: 2\n"),
                whole("--- !core/asdf-1.1.0\na: 2\n"),
                format!("{comments}, {end}"),
            ),
            // PyYAML, tags written out
            (
                "--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\na: 2\n".to_owned(),
                whole("--- !<tag:stsci.edu:asdf/core/asdf-1.1.0>\na: 2\n"),
                format!("{comments}, %YAML, %TAG !, %TAG !e!, {end}"),
            ),
            (
                "%YAML 1.1\n--- !core/asdf-1.1.0\n...\n".to_owned(),
                whole("--- !core/asdf-1.1.0\n"),
                format!("{comments}, %TAG !, %TAG !e!"),
            ),
            // a handle that means something else now, and a new one
            (
                "%YAML 1.1\n%TAG !e! tag:f.org:\n%TAG !g! tag:g.org:\n---\nx".to_owned(),
                format!(
                    "{HEAD}%YAML 1.1\n%TAG ! tag:stsci.edu:asdf/\n%TAG !e! tag:f.org:\n%TAG !g! tag:g.org:\n---\nx\n...\n"
                ),
                format!("{comments}, %TAG !, {end}"),
            ),
            (
                "---\na: |\n  ...\n\n".to_owned(),
                whole("---\na: |\n  ...\n\n"),
                format!("{comments}, %YAML, %TAG !, %TAG !e!, {end}"),
            ),
        ];
        for (text, want, put_back) in cases {
            let found = healed(&text, &old);
            assert_eq!(found, Some((want, put_back)), "{text}");
        }
    }

    #[test]
    fn no_other_text_is_touched() {
        let old = format!("{HEAD}{DIRECTIVES}---\na: 1\n...\n");
        for text in [
            "",
            "\n",
            "a: 1\n",
            "#ASDF 1.0.0\n---\n",
            "%YAML 1.1\n# a comment of its own\n---\n",
            " %YAML 1.1\n---\n",
            "%TAG ! tag:x\n---\n",
            "!<tag:stsci.edu:asdf/core/asdf-1.1.0>\na: 1\n",
            &old,
        ] {
            assert_eq!(healed(text, &old), None, "{text}");
        }
        assert_eq!(healed("---\n", "%YAML 1.1\n---\n"), None);
    }

    #[test]
    fn the_lines_of_the_old_text_stay_in_their_order() {
        let old = "#ASDF 1.0.0\r\n# a\r\n%YAML 1.1\r\n# b\r\n%TAG ! tag:x\r\n--- 1\r\n...\r\n";
        let want = old.replace("--- 1", "--- 2");
        for text in ["--- 2\r\n...\r\n", "--- 2\r\n"] {
            assert_eq!(healed(text, old).unwrap().0, want);
        }
        // a file without a tree
        let want = "#ASDF 1.0.0\n%YAML 1.1\n--- 2\n...\n";
        let found = healed("%YAML 1.1\n--- 2\n...\n", "#ASDF 1.0.0\n");
        assert_eq!(found.unwrap(), (want.to_owned(), "its # lines".to_owned()));
    }

    #[test]
    fn lines_are_those_of_the_text_that_was_written() {
        let old = format!("{HEAD}{DIRECTIVES}---\na: 1\n...\n");
        let rejected = |line| Error::Rejected {
            at: Place::Line { line, column: 3 },
            why: String::new(),
            advice: String::new(),
        };
        for (text, line, want) in [
            ("---\nb: 1\n", 8, 2),
            ("%YAML 1.1\n---\nb: 1\n", 8, 3),
            ("%YAML 1.1\n%TAG !n! tag:n\n---\nb: 1\n", 9, 4),
            ("---\nb: 1\n", 1, 1),
        ] {
            let error = heal(text.as_bytes(), old.as_bytes()).unwrap();
            let error = error.as_written(rejected(line)).to_string();
            assert!(
                error.starts_with(&format!("line {want}, column 3")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_text_that_ends_within_a_line_is_told() {
        let is_cut = |text: &str| heal(text.as_bytes(), HEAD.as_bytes()).unwrap().is_cut;
        assert!(is_cut("---\na: wor"));
        assert!(!is_cut("---\na: word\n"));
        assert!(!is_cut("---\na: word\n..."));
    }

    proptest! {
        #[test]
        fn what_is_healed_needs_no_more_and_keeps_what_was_written(
            start in prop::sample::select(vec!["%YAML 1.1\n", "%YAML 1.1\n%TAG ! tag:y\n", ""]),
            tree in "(--- ?[a!]{0,3}\n)([a-z: .#%-]{0,9}\n){0,4}[a-z.]{0,3}",
            old in "#ASDF 1\\.0\\.0\n(#[a-z]{0,3}\n){0,2}(%YAML 1\\.1\n)?(%TAG ! tag:x\n)?(#[a-z]{0,3}\n)?(---\n)?",
        ) {
            let text = format!("{start}{tree}");
            let Some(found) = heal(text.as_bytes(), old.as_bytes()) else {
                return Err(TestCaseError::fail("not healed"));
            };
            prop_assert!(heal(&found.text, old.as_bytes()).is_none());
            let found = String::from_utf8(found.text.to_vec()).unwrap();
            prop_assert!(found.contains(&tree));
            prop_assert!(found.starts_with("#ASDF 1.0.0\n"));
            prop_assert!(found.trim_end().ends_with("..."));
            prop_assert!(found.matches("%YAML 1.1\n").count() <= 1);
        }
    }
}
