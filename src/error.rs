//! What can go wrong while reading or saving, told by whose fault it is.
//!
//! [`Error`] is the error of the library: of sources, codecs, the format layer and saves. It is cheap to clone, because one
//! failed decode is reported to every reader that waits for it. The mapping to errno is in `vfs`, in one place.

use std::fmt::{self, Write};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Where in the file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole.
    File,
    /// A byte offset from the start of the file.
    Byte(u64),
    /// Line and column of the tree's text, both counted from 1, the column in characters.
    Line {
        /// Line, from 1.
        line: u64,
        /// Column in characters, from 1.
        column: u64,
    },
    /// A block, by its index.
    Block(usize),
    /// An array, by its path in the tree.
    Array(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
            Self::Line { line, column } => write!(f, "line {line}, column {column}"),
            Self::Block(n) => write!(f, "block {n}"),
            Self::Array(path) => write!(f, "array {path}"),
        }
    }
}

/// A place in front of what is said of it. Of the file as a whole nothing stands there: its path does, where it is needed.
fn before(place: &Place) -> String {
    match place {
        Place::File => String::new(),
        place => format!("{place}: "),
    }
}

/// Error of the library, by whose fault it is. Its `Debug` is its `Display`: a `main` that returns it says it in words.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: the medium, permissions, space.
    #[error("{what}: {cause}")]
    Io {
        /// What was being done, or the path it was done to.
        what: String,
        /// What the operating system said; not a `source`, because the text already holds it.
        cause: Arc<io::Error>,
    },
    /// The bytes of the file contradict the format or themselves.
    #[error("{}{why}", before(at))]
    Corrupt {
        /// Where.
        at: Place,
        /// Found versus allowed.
        why: String,
    },
    /// The file is fine as far as known, but uses what this program does not read or may not write.
    #[error("{}{why}", before(at))]
    Unsupported {
        /// Where.
        at: Place,
        /// What is not supported, by name.
        why: String,
    },
    /// An edit breaks a rule; the file was not touched.
    #[error("{}{why}; {advice}", before(at))]
    Rejected {
        /// Where in the edited text, or which block.
        at: Place,
        /// The rule and what broke it.
        why: String,
        /// What to do about it.
        advice: String,
    },
    /// The file is no longer the one that was read.
    #[error("{why}")]
    Stale {
        /// What changed.
        why: String,
    },
    /// The edit needs room that there is not, or that the user did not allow it to take.
    #[error("{why}")]
    NoRoom {
        /// What was needed, and which option or action gives it.
        why: String,
        /// Whether a limit of ours was reached (`EFBIG`) rather than the disk's (`ENOSPC`).
        limit: bool,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Result of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An operating system error while doing `what`.
    pub fn io(what: impl Into<String>, cause: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            cause: Arc::new(cause),
        }
    }

    /// The same as the system would say it, for what speaks its language. The number of an error of the system is kept, and its words are
    /// those of the system then.
    #[must_use]
    #[doc(hidden)]
    pub fn to_system(&self) -> io::Error {
        match self {
            Self::Io { cause, .. } => match cause.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(cause.kind(), self.to_string()),
            },
            _ => io::Error::other(self.to_string()),
        }
    }

    /// Damage at a place.
    pub fn corrupt(at: Place, why: impl Into<String>) -> Self {
        Self::Corrupt {
            at,
            why: why.into(),
        }
    }

    /// Something known to exist, or unknown, that is not supported at a place.
    pub fn unsupported(at: Place, why: impl Into<String>) -> Self {
        Self::Unsupported {
            at,
            why: why.into(),
        }
    }

    /// Whether the system had no room: that may change at any time, and says nothing of the medium.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { cause, .. } if matches!(cause.kind(), StorageFull | QuotaExceeded))
    }

    /// The same error, said of `at` when it was only known to be somewhere in the file.
    #[must_use]
    pub fn at(self, at: Place) -> Self {
        match self {
            Self::Corrupt {
                at: Place::File,
                why,
            } => Self::Corrupt { at, why },
            Self::Unsupported {
                at: Place::File,
                why,
            } => Self::Unsupported { at, why },
            other => other,
        }
    }
}

/// What is made when it is first wanted, or why it can't be made: of the file's faults that stays so. What the medium refused is
/// tried again, because it may give it later.
#[derive(Debug)]
pub(crate) struct Lasting<T> {
    made: OnceLock<Result<T>>,
    /// Held while it is made: two threads would only do the same.
    making: Mutex<()>,
}

impl<T> Lasting<T> {
    /// Not made yet.
    pub(crate) const fn new() -> Self {
        Self {
            made: OnceLock::new(),
            making: Mutex::new(()),
        }
    }

    /// What was made, if it was.
    #[cfg(feature = "xz")]
    pub(crate) fn get(&self) -> Option<&T> {
        self.made.get()?.as_ref().ok()
    }

    /// What was made, or is now.
    ///
    /// # Errors
    /// Of `make`.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(found) = self.made.get() {
            return found.as_ref().map_err(Clone::clone);
        }
        let _making = lock(&self.making);
        let found = match self.made.get() {
            Some(found) => found,
            None => match make() {
                Err(error @ Error::Io { .. }) => return Err(error),
                lasting => self.made.get_or_init(|| lasting),
            },
        };
        found.as_ref().map_err(Clone::clone)
    }
}

impl<T: Clone> Clone for Lasting<T> {
    fn clone(&self) -> Self {
        Self {
            made: self.made.clone(),
            making: Mutex::new(()),
        }
    }
}

/// Damage, of which no more is known than that it is in the file: the caller may know the place, see [`Error::at`].
pub(crate) fn corrupt(why: impl Into<String>) -> Error {
    Error::corrupt(Place::File, why)
}

/// Something that the file uses and this program does not read, likewise.
pub(crate) fn unsupported(why: impl Into<String>) -> Error {
    Error::unsupported(Place::File, why)
}

/// What was found, or nothing for what is damaged or not supported. What the medium refuses says nothing of the file: that is an error.
pub(crate) fn unless_damaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error @ Error::Io { .. }) => Err(error),
        found => Ok(found.ok()),
    }
}

/// The contents of a mutex, also of one whose holder has panicked: all leave them whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text that may come from a file (a key, a URI, what a parser says of them), as part of one line for people or programs:
/// what could begin another line, move a terminal's cursor or turn the writing round is percent-encoded.
#[must_use]
#[doc(hidden)]
pub fn printable(text: &str) -> String {
    percent_encoded(text, |c| c.is_control() || is_format(c))
}

/// A text in which `%` and two digits stand for each byte of the characters that are `escaped`.
pub(crate) fn percent_encoded(text: &str, escaped: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // writing to a string can't fail
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// The bytes of a text with every `%XX` undone (RFC 3986 §2.1).
///
/// # Errors
/// If two hexadecimal digits do not follow a `%`: the bytes all the same, with such a `%` left as it is.
pub(crate) fn percent_decoded(text: &str) -> std::result::Result<Vec<u8>, Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut valid = true;
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        let code = || u8::try_from(digit(0)? << 4 | digit(1)?).ok();
        let code = (byte == b'%').then(code);
        valid &= code != Some(None);
        out.push(code.flatten().unwrap_or(byte));
        let used = if code.flatten().is_some() { 2 } else { 0 };
        rest = behind.get(used..).unwrap_or_default();
    }
    if valid { Ok(out) } else { Err(out) }
}

/// [`printable`] of a name or path, whose bytes need not be UTF-8: those that are not are percent-encoded, too.
#[must_use]
#[doc(hidden)]
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            // writing to a string can't fail
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Unicode's separators of lines and paragraphs, and its marks, embeddings, overrides and isolates of direction.
fn is_format(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_from_a_file_stays_on_its_line() {
        assert_eq!(
            printable("x\nproblem   fake\r\u{1b}[31m\t\u{85}é, 100 %"),
            "x%0Aproblem   fake%0D%1B[31m%09%C2%85é, 100 %"
        );
        assert_eq!(printable("a\u{202e}b\u{2028}c"), "a%E2%80%AEb%E2%80%A8c");
    }

    #[test]
    fn bytes_that_are_no_characters_are_told_apart() {
        let name = b"\xff \xc3\xa9\n\xc3";
        assert_eq!(printable_bytes(name), "%FF \u{e9}%0A%C3");
    }

    #[test]
    fn only_two_hexadecimal_digits_are_an_escape() {
        for (text, want) in [
            ("", Ok("")),
            ("a/b c", Ok("a/b c")),
            ("a%20b%2F", Ok("a b/")),
            ("%c3%A9", Ok("é")),
            ("%2525", Ok("%25")),
            ("é%41", Ok("éA")),
            ("%", Err("%")),
            ("%4", Err("%4")),
            ("a%4", Err("a%4")),
            ("%+5", Err("%+5")),
            ("%-5", Err("%-5")),
            ("% 5", Err("% 5")),
            ("%5+", Err("%5+")),
            ("%zz%41", Err("%zzA")),
            ("%é", Err("%é")),
        ] {
            let bytes = |text: &str| text.as_bytes().to_vec();
            let want = want.map(bytes).map_err(bytes);
            assert_eq!(percent_decoded(text), want, "{text}");
        }
        assert_eq!(percent_decoded("%FF%00"), Ok(vec![255, 0]));
    }

    #[test]
    fn a_message_says_where_and_what() {
        let error = Error::corrupt(Place::Block(3), "used 900 bytes of 800 allocated");
        assert_eq!(
            error.to_string(),
            "block 3: used 900 bytes of 800 allocated"
        );
    }

    #[test]
    fn only_an_unknown_place_is_made_precise() {
        let vague = Error::corrupt(Place::File, "x").at(Place::Block(1));
        assert_eq!(vague.to_string(), "block 1: x");
        assert_eq!(vague.at(Place::Byte(9)).to_string(), "block 1: x");
    }
}
