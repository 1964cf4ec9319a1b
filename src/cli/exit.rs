//! Exit statuses: a contract, listed in the manual.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use crate::error::{Error, Place};

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "fuse"),
    expect(dead_code, reason = "some ends are those of mounts only")
)]
pub(super) enum Exit {
    /// All is well.
    Ok = 0,
    /// Something else went wrong; `--check`: repairable or suspicious.
    Other = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// The mountpoint can't be used.
    Mountpoint = 10,
    /// FILE can't be opened.
    File = 11,
    /// FILE lies under the mountpoint.
    Overlap = 12,
    /// Another mount has FILE open for writing.
    Locked = 13,
    /// Not an ASDF file.
    NotAsdf = 20,
    /// A version of the format that is not known.
    Version = 21,
    /// FILE is damaged.
    Damaged = 23,
    /// There is no FUSE here.
    NoFuse = 30,
    /// The kernel or `fusermount3` refused the mount.
    Refused = 31,
    /// Unmounted with something that was written and not saved.
    Pending = 40,
    /// Not unmounted: a refused tree is in memory only.
    Unkept = 41,
    /// Gave up waiting for a daemon that still serves.
    Serving = 42,
}

impl Exit {
    /// The status of a daemon that ended before it could serve; that is a failure, whatever it says.
    #[cfg(feature = "fuse")]
    pub(super) fn of_child(code: Option<i32>) -> Self {
        const FAILURES: [Exit; 12] = [
            Exit::Usage,
            Exit::Mountpoint,
            Exit::File,
            Exit::Overlap,
            Exit::Locked,
            Exit::NotAsdf,
            Exit::Version,
            Exit::Damaged,
            Exit::NoFuse,
            Exit::Refused,
            Exit::Pending,
            Exit::Serving,
        ];
        FAILURES
            .into_iter()
            .find(|exit| Some(i32::from(exit.status())) == code)
            .unwrap_or(Self::Other)
    }

    fn status(self) -> u8 {
        #[expect(clippy::as_conversions, reason = "the discriminants are the statuses")]
        let status = self as u8;
        status
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// A failure: one line for people, and the exit status.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The status.
    pub(super) exit: Exit,
    /// What, where, what to do.
    pub(super) message: String,
    /// The error of reading a file that it is, if it is one.
    #[cfg_attr(
        not(feature = "fuse"),
        expect(dead_code, reason = "only a mount of many files asks")
    )]
    pub(super) cause: Option<Error>,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            cause: None,
        }
    }

    /// A failure of the file or directory at `path`; the message begins with the path.
    pub(super) fn of(exit: Exit, path: &Path, why: impl Display) -> Self {
        Self::new(exit, format!("{}: {why}", path.display()))
    }

    /// The failure to read the file at `path`.
    pub(super) fn reading(path: &Path, error: &Error) -> Self {
        let exit = match error {
            // while it was read
            Error::Stale { .. } if text_of_far(path, error).is_some() => Exit::File,
            // the first line says it
            Error::Unsupported {
                at: Place::Line { line: 1, .. },
                ..
            } => Exit::Version,
            Error::Io { .. } | Error::Unsupported { .. } => Exit::File,
            Error::Corrupt { .. } => Exit::NotAsdf,
            _ => Exit::Other,
        };
        let why = error_of(path, error);
        let advice = match error {
            Error::Io { cause, .. } if text_of_far(path, error).is_none() => match cause.kind() {
                ErrorKind::NotFound => "; check its path",
                ErrorKind::PermissionDenied => {
                    "; you must be able to read it, and to search its directories"
                }
                _ => "",
            },
            _ => "",
        };
        Self {
            cause: Some(error.clone()),
            ..Self::of(exit, path, format!("{why}{advice}"))
        }
    }

    /// The failure to read something in the file at `path` that could be opened: that is an ASDF file, of a version that is known.
    pub(super) fn within(path: &Path, error: &Error) -> Self {
        let failure = Self::reading(path, error);
        let exit = match error {
            Error::Corrupt { .. } => Exit::Damaged,
            Error::Unsupported { .. } => Exit::Other,
            _ => failure.exit,
        };
        Self { exit, ..failure }
    }

    /// Prints the message on standard error, and gives the exit status.
    pub(super) fn told(self) -> Exit {
        super::complain(&self.message);
        self.exit
    }

    /// The message about the file at `path`, without the path in front.
    pub(super) fn about(&self, path: &Path) -> &str {
        let place = format!("{}: ", path.display());
        self.message.strip_prefix(&place).unwrap_or(&self.message)
    }
}

/// The failure to write a file that an option names.
#[cfg(feature = "fuse")]
pub(super) fn unwritten(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::NotFound => "; its directory must be there",
        _ => "",
    };
    let path = path.display();
    Failure::new(Exit::Other, format!("{what} {path}: {error}{advice}"))
}

/// The text of an error of the file at `path`, for a message that begins with the path.
pub(super) fn error_of(path: &Path, error: &Error) -> String {
    if let Some(said) = text_of_far(path, error) {
        return said.to_owned();
    }
    match error {
        Error::Io { what, cause } if names(what, path) => match cause.kind() {
            ErrorKind::NotFound => "no such file".to_owned(),
            _ => cause.to_string(),
        },
        _ => error.to_string(),
    }
}

/// The text of an error of the file at `path` if that is a far file, without the name in front. It has the advice in it, too.
fn text_of_far<'a>(path: &Path, error: &'a Error) -> Option<&'a str> {
    let (Error::Io { what, .. }
    | Error::Unsupported { why: what, .. }
    | Error::Stale { why: what }) = error
    else {
        return None;
    };
    let name = path.to_str()?;
    what.strip_prefix(name)?.strip_prefix(": ")
}

/// Whether `what` is that path, its last part, or where it leads.
fn names(what: &str, path: &Path) -> bool {
    // an error has the path as it is shown, which differs if the path is not UTF-8
    let is_shown = what == path.to_string_lossy();
    let what = Path::new(what);
    is_shown
        || path.file_name() == Some(what.as_os_str())
        || path.canonicalize().is_ok_and(|whole| whole == what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// It was another error, and the URL was said twice.
    #[test]
    fn a_far_file_that_changes_while_it_is_opened_can_not_be_opened() {
        let url = Path::new("https://h/a.asdf");
        let why = "https://h/a.asdf: it has changed since it was opened: 9 bytes".to_owned();
        let failure = Failure::reading(url, &Error::Stale { why: why.clone() });
        assert_eq!((failure.exit, failure.message), (Exit::File, why));
    }

    /// A tree or a file that is too large was said to be of an unknown version.
    #[test]
    fn only_the_first_line_tells_of_an_unknown_version() {
        for (line, exit) in [(1, Exit::Version), (2, Exit::File)] {
            let at = Place::Line { line, column: 7 };
            let error = Error::unsupported(at, "newer");
            let file = Path::new("a.asdf");
            assert_eq!(Failure::reading(file, &error).exit, exit);
            assert_eq!(Failure::within(file, &error).exit, Exit::Other);
        }
        let error = Error::unsupported(Place::File, "the tree does not end");
        let failure = Failure::reading(Path::new("a.asdf"), &error);
        assert_eq!(failure.exit, Exit::File);
    }

    #[test]
    fn a_path_is_said_once() {
        let denied = || ErrorKind::PermissionDenied.into();
        let path = Path::new("Cargo.toml");
        let whole = path.canonicalize().unwrap();
        let error = Error::io(whole.display().to_string(), denied());
        assert_eq!(error_of(path, &error), "permission denied");
        assert_eq!(error_of(&whole, &error), "permission denied");
        let error = Error::io("Cargo.toml", denied());
        assert_eq!(error_of(&whole, &error), "permission denied");
        let path = Path::new(OsStr::from_bytes(b"a\xff.asdf"));
        let error = Error::io(path.display().to_string(), denied());
        assert_eq!(error_of(path, &error), "permission denied");
        let other = Error::io("external source x", denied());
        assert_eq!(
            error_of(path, &other),
            "external source x: permission denied"
        );
    }
}
