//! The dialects of ASDF that exist, as one table: first line, block magic, block header shapes, what may be written.
//!
//! | first line | since | block magic | header shapes |
//! |---|---|---|---|
//! | `#ASDF 1.x.y` | ASDF file format 1 | `D3 42 4C 4B` | 48 |
//! | `#ASDF 0.1.y`, `%ASDF 0.1.y` | ASDF 0.1.0 draft | `D3 42 4C 4B` | 36, 40, 44 and 48, told apart by header size |
//! | `%FINF 0.1.y` | FINF 0.1.0 draft | `89 42 4C 4B` or `D3 42 4C 4B` | 24 and an encoding name |
//!
//! `%ASDF` was the first line for some months of 2014. The 40- and 44-byte shapes stand in no text, but in the files that the
//! history of the asdf-standard repository holds (commits b85b73e6 and f0891e35).

use super::header::HeaderShape;
use super::other_formats::why_not_asdf;
use crate::error::{Error, Place, Result, corrupt};

/// How a block begins since the ASDF drafts.
pub const BLOCK_MAGIC: [u8; 4] = *b"\xd3BLK";
/// How a block begins in the text of the FINF draft.
const FINF_MAGIC: [u8; 4] = *b"\x89BLK";
/// The greatest major version of the file format that this program knows.
const KNOWN_MAJOR: u64 = 1;
/// The greatest minor version of the file format that this program knows.
const KNOWN_MINOR: u64 = 0;
/// The versions of the ASDF Standard that this program knows.
pub const KNOWN_STANDARDS: [&str; 7] = [
    "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0",
];
/// The longest first line that is looked at, in bytes.
pub const FIRST_LINE_LIMIT: usize = 256;

/// One kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Its name for people.
    pub name: &'static str,
    /// How its first line begins.
    signature: &'static str,
    /// Its major version.
    major: u64,
    /// The magics with which its blocks may begin. All blocks of one file begin with the same magic; the first block shows which.
    pub magics: &'static [[u8; 4]],
    /// Rows of header size and shape, the largest size first. The first row whose size is not greater than the header's counts.
    shapes: &'static [(u16, HeaderShape)],
    /// Whether this program saves such files.
    pub writable: bool,
}

static ASDF_1: Dialect = Dialect {
    name: "ASDF",
    signature: "#ASDF",
    major: 1,
    magics: &[BLOCK_MAGIC],
    shapes: &[(48, HeaderShape::Current)],
    writable: true,
};

static ASDF_0: Dialect = Dialect {
    name: "ASDF draft",
    signature: "#ASDF",
    major: 0,
    magics: &[BLOCK_MAGIC],
    shapes: DRAFT_SHAPES,
    writable: false,
};

static ASDF_0_PERCENT: Dialect = Dialect {
    name: "ASDF draft of 2014",
    signature: "%ASDF",
    magics: &[BLOCK_MAGIC, FINF_MAGIC],
    ..ASDF_0
};

static FINF_0: Dialect = Dialect {
    name: "FINF draft",
    signature: "%FINF",
    major: 0,
    magics: &[FINF_MAGIC, BLOCK_MAGIC],
    shapes: &[(24, HeaderShape::Finf)],
    writable: false,
};

const DRAFT_SHAPES: &[(u16, HeaderShape)] = &[
    // The draft lets a header be longer than its 36 bytes. Only the sizes 40 and 44
    // have shapes of their own, so 41 to 43 and 45 to 47 are long forms of the 36.
    (48, HeaderShape::Current),
    (45, HeaderShape::Draft36),
    (44, HeaderShape::Draft44),
    (41, HeaderShape::Draft36),
    (40, HeaderShape::Draft40),
    (36, HeaderShape::Draft36),
];

static DIALECTS: [&Dialect; 4] = [&ASDF_1, &ASDF_0, &ASDF_0_PERCENT, &FINF_0];

/// Version numbers, of the first line or of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u64,
    /// Minor.
    pub minor: u64,
    /// Patch.
    pub patch: u64,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What the first line says.
#[derive(Debug, PartialEq, Eq)]
pub struct FirstLine {
    /// The kind of file.
    pub dialect: &'static Dialect,
    /// Version of the file format.
    pub version: Version,
    /// Length of the line with its newline, in bytes.
    pub len: usize,
}

impl FirstLine {
    /// Parses the start of a file. `start` holds [`FIRST_LINE_LIMIT`] bytes, or the whole file if it is shorter.
    ///
    /// The version gate of the standard (section "Versioning conventions") is here and nowhere else: a greater major version
    /// is refused unless `force`, a greater minor one is read; [`FirstLine::newer_minor`] tells.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is no ASDF file, [`Error::Unsupported`] for a newer major version.
    pub fn parse(start: &[u8], force: bool) -> Result<Self> {
        let not_asdf = || corrupt(why_not_asdf(start));
        // a binary file may go on for gigabytes without a newline
        let window = start.get(..FIRST_LINE_LIMIT).unwrap_or(start);
        let len = window
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(window.len(), |at| at.saturating_add(1));
        let line = window
            .get(..len)
            .and_then(|line| std::str::from_utf8(line).ok())
            .ok_or_else(not_asdf)?;
        // every signature has five characters
        let (signature, rest) = line.split_at_checked(5).ok_or_else(not_asdf)?;
        if !rest.starts_with([' ', '\t']) {
            return Err(not_asdf());
        }
        let version =
            parse_version(rest.trim_matches([' ', '\t', '\r', '\n'])).ok_or_else(not_asdf)?;
        // with `force` a newer major version is read like the last that is known
        let major = version.major.min(KNOWN_MAJOR);
        let dialect = DIALECTS
            .iter()
            .find(|dialect| {
                // only `#ASDF` belongs to two dialects, which the major version tells apart
                dialect.signature == signature && (dialect.major == major || signature != "#ASDF")
            })
            .ok_or_else(not_asdf)?;
        if version.major > KNOWN_MAJOR && !force {
            let why =
                format!("version {version} is newer than 1: try a newer asdf-mount, or -o force");
            return Err(Error::unsupported(Place::Line { line: 1, column: 7 }, why));
        }
        Ok(Self {
            dialect,
            version,
            len,
        })
    }

    /// Whether the minor version is greater than those known: such a file is read, with a warning.
    #[must_use]
    pub fn newer_minor(&self) -> bool {
        self.version.major == KNOWN_MAJOR && self.version.minor > KNOWN_MINOR
    }
}

/// The last known version of the standard, if `version` is a later one with the same major number. Trees of such a version are read
/// by the rules of the last known one, with a warning.
pub(super) fn last_before(version: &str) -> Option<&'static str> {
    let last = KNOWN_STANDARDS.last()?;
    let (found, known) = (parse_version(version)?, parse_version(last)?);
    (found.major == known.major && found > known).then_some(last)
}

impl Dialect {
    /// The shape of a block header of that many bytes, if there is one.
    #[must_use]
    pub fn shape(&self, header_size: u16) -> Option<HeaderShape> {
        self.shapes
            .iter()
            .find(|row| row.0 <= header_size)
            .map(|row| row.1)
    }
}

/// Parses `1.2.3` or `1.2.3-dev`. A suffix behind the patch number is ignored.
fn parse_version(text: &str) -> Option<Version> {
    let mut parts = text.splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next()?;
    let digits = patch
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(patch.len());
    let patch = patch.get(..digits)?.parse().ok()?;
    Some(Version {
        major,
        minor,
        patch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Option<&'static str> {
        FirstLine::parse(line.as_bytes(), false)
            .ok()
            .map(|first| first.dialect.name)
    }

    #[test]
    fn the_first_line_tells_the_dialect() {
        let cases = [
            ("#ASDF 1.0.0\n#ASDF_STANDARD 1.5.0\n", Some("ASDF")),
            ("#ASDF 1.0.0\r\n", Some("ASDF")),
            ("#ASDF\t1.0.0-dev \n", Some("ASDF")),
            ("#ASDF 1.7.0\n", Some("ASDF")),
            ("#ASDF 0.1.0\n", Some("ASDF draft")),
            ("%ASDF 0.1.0\n", Some("ASDF draft of 2014")),
            ("%FINF 0.1.0\n", Some("FINF draft")),
            ("#ASDF 2.0.0\n", None),
            ("#ASDF1.0.0\n", None),
            ("#ASDF one\n", None),
            ("SIMPLE  =                    T", None),
            ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(name(line), want, "{line:?}");
        }
    }

    #[test]
    fn no_magic_is_ascii() {
        let all = DIALECTS.iter();
        assert!(
            all.flat_map(|dialect| dialect.magics)
                .all(|magic| !magic.is_ascii())
        );
    }

    #[test]
    fn a_newer_major_version_is_read_only_when_forced() {
        let error = FirstLine::parse(b"#ASDF 2.1.0\n", false).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(
            FirstLine::parse(b"#ASDF 2.1.0\n", true)
                .unwrap()
                .version
                .major,
            2
        );
    }

    #[test]
    fn a_newer_minor_version_is_noticed() {
        assert!(
            FirstLine::parse(b"#ASDF 1.1.0\n", false)
                .unwrap()
                .newer_minor()
        );
        assert!(
            !FirstLine::parse(b"#ASDF 1.0.9\n", false)
                .unwrap()
                .newer_minor()
        );
    }

    #[test]
    fn draft_headers_are_told_apart_by_their_size() {
        use HeaderShape::{Current, Draft36, Draft40, Draft44};
        let shapes: Vec<_> = [35, 36, 40, 44, 47, 48, 64]
            .map(|size| ASDF_0.shape(size))
            .into();
        assert_eq!(
            shapes,
            [
                None,
                Some(Draft36),
                Some(Draft40),
                Some(Draft44),
                Some(Draft36),
                Some(Current),
                Some(Current)
            ]
        );
        assert_eq!(ASDF_1.shape(47), None);
    }
}
