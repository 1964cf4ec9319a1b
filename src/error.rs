//! The errors of reading and saving, by whose fault they are.
//!
//! [`Error`] is the error of the library: of sources, codecs, the format layer and saves. It is cheap to clone, because one
//! failed decode is reported to every reader that waits for it. The mapping to errno is in `vfs`, in one place.

use std::fmt::{self, Write};
use std::io;
use std::path::Path;
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

/// A place as the start of a message; empty for the file as a whole, because its path stands there where it is needed.
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
        /// The unsupported thing, by name.
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
    /// The edit needs more room than there is, or than the user allows.
    #[error("{why}")]
    NoRoom {
        /// The need, and the option or action that makes the room.
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

    /// The error for interfaces that want an `io::Error`. An error of the operating system keeps its number, and speaks
    /// in the words of the system.
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

    /// Whether the system had no room. That may change at any time, and says nothing about the medium.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { cause, .. } if matches!(cause.kind(), StorageFull | QuotaExceeded))
    }

    /// The same error at the place `at`, if it was only known to be somewhere in the file.
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

/// A value that is made on first use, or the error of making it. An error that the file causes is kept. After an I/O error the next
/// use tries again, because the medium may answer then.
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

    /// The value, if it was made.
    #[cfg(feature = "xz")]
    pub(crate) fn get(&self) -> Option<&T> {
        self.made.get()?.as_ref().ok()
    }

    /// The value, made now if it was not made before.
    ///
    /// # Errors
    /// Of `make`.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(found) = self.made.get() {
            return found.as_ref().map_err(Clone::clone);
        }
        let _making = lock(&self.making);
        // another thread may have made it while this one waited
        let found = match self.made.get() {
            Some(found) => found,
            None => match make() {
                // not kept, so that the next use tries again
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

/// Damage somewhere in the file. A caller that knows the place adds it, see [`Error::at`].
pub(crate) fn corrupt(why: impl Into<String>) -> Error {
    Error::corrupt(Place::File, why)
}

/// Something that the file uses and this program does not read, somewhere in the file.
pub(crate) fn unsupported(why: impl Into<String>) -> Error {
    Error::unsupported(Place::File, why)
}

/// The value, or `None` if it is damaged or not supported. An I/O error stays an error, because it says nothing about the file.
pub(crate) fn unless_damaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error @ Error::Io { .. }) => Err(error),
        found => Ok(found.ok()),
    }
}

/// Locks a mutex, even after a thread panicked with the lock: every holder leaves the contents whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text that may come from a file (a key, a URI, a parser's message), as part of one line for people or programs. Characters that
/// could begin another line, move a terminal's cursor or turn the direction of writing are percent-encoded.
#[must_use]
#[doc(hidden)]
pub fn printable(text: &str) -> String {
    percent_encoded(text, |c| c.is_control() || is_format(c))
}

/// A copy of `text` with `%` and two digits for each byte of an `escaped` character.
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

/// As [`printable`], for a name or path. Bytes that are not UTF-8 are percent-encoded, too.
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

/// A path as one word of a command that a user copies into a shell: in quotes if the shell would read it otherwise.
#[must_use]
#[doc(hidden)]
pub fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
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
    fn a_path_is_one_word_for_a_shell() {
        for (path, word) in [
            ("/mnt/m51-2.asdf", "/mnt/m51-2.asdf"),
            ("/mnt/é", "/mnt/é"),
            ("/mnt/my data", "'/mnt/my data'"),
            ("/mnt/a$(b)", "'/mnt/a$(b)'"),
            ("/mnt/it's", r"'/mnt/it'\''s'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
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
