//! The text at the start of a file: where it ends.
//!
//! ASDF Standard, "Low-level file layout", sections "Header", "Comments" and "Tree". Knows lines only: the first line, comment
//! lines, and the tree up to the newline of its `...` line. What the tree says is `tree`'s.

use std::any::Any;
use std::io::BufRead;
use std::sync::Arc;

use super::dialect::{Dialect, FirstLine};
use super::layout::{Finding, Layout, Severity};
use super::scan::Scan;
use crate::error::{Error, Place, Result, unsupported};
use crate::source::{Borrower, Loan, Source, at_most, len_u64};

/// The longest text of a file that is read, in bytes.
pub const TEXT_LIMIT: u64 = 256 << 20;
/// Bytes that are read at a time in a search.
pub(super) const CHUNK: u64 = 64 << 10;

/// Reads from the start of the file, a growing piece at a time, until the end of the text is in sight. Returns the layout in front
/// of the blocks. A text that is in memory already, as in a save, is not copied.
pub(super) fn read_text(source: &dyn Source, first: &FirstLine) -> Result<Scan> {
    if let Some(lent) = lent_start(source) {
        let mut search = EndSearch::new(first);
        let is_whole = len_u64(lent.len()) == source.len();
        // the vector is kept as the text, so it must end where the text does
        if search.find(&lent, is_whole) && search.at == lent.len() {
            return Ok(search.text(lent, source.len()));
        }
    }
    let mut bytes = Vec::new();
    let mut search = EndSearch::new(first);
    let mut goal = CHUNK;
    loop {
        let have = bytes.len();
        let there = goal.min(source.len());
        bytes.resize(at_most(there, usize::MAX), 0);
        let new = bytes.get_mut(have..).unwrap_or_default();
        source.read_exact_at(new, len_u64(have))?;
        if search.find(&bytes, there == source.len()) {
            bytes.truncate(search.at);
            bytes.shrink_to_fit();
            return Ok(search.text(Arc::new(bytes), source.len()));
        }
        // without this, a file that is text to its end would be read whole
        if goal >= TEXT_LIMIT {
            let why = format!("the tree does not end within {TEXT_LIMIT} bytes");
            return Err(unsupported(why));
        }
        // of a remote file all that is read is fetched: this keeps
        // what lies behind the text to three tenths of it, and a chunk
        let more = (goal.saturating_mul(3) / 10).saturating_add(CHUNK) / CHUNK;
        let more = more.saturating_mul(CHUNK);
        goal = goal.saturating_add(more).min(TEXT_LIMIT);
    }
}

/// The vector that is all of a source, if it is in memory.
fn lent_start(source: &dyn Source) -> Option<Arc<Vec<u8>>> {
    let lend = |len| match source.lend(0, len, Borrower::Program).ok()?? {
        Loan::Shared(bytes, range) => {
            let bytes: Arc<dyn Any + Send + Sync> = bytes;
            Some((bytes.downcast::<Vec<u8>>().ok()?, range))
        }
        Loan::Mapped(_) => None,
    };
    // one byte is lent to find the vector, and then all of it
    let (bytes, _) = lend(1)?;
    let (all, range) = lend(bytes.len())?;
    (len_u64(all.len()) <= TEXT_LIMIT && range == (0..bytes.len())).then_some(all)
}

/// Looks for the end of the text in more and more of a file, at each byte only once.
struct EndSearch<'a> {
    first: &'a FirstLine,
    /// Where the next line begins; in the end, where the text ends.
    at: usize,
    in_tree: bool,
    oddity: Option<&'static str>,
}

impl<'a> EndSearch<'a> {
    fn new(first: &'a FirstLine) -> Self {
        Self {
            first,
            at: first.len,
            in_tree: false,
            oddity: None,
        }
    }

    /// Goes on towards the end of the text. Returns whether the end is in sight in `bytes`, the first bytes of the file; with
    /// `whole`, all of it. They begin with the bytes of the last call.
    ///
    /// A block magic is no UTF-8, so that the first one ends a text whose `...` is missing.
    fn find(&mut self, bytes: &[u8], whole: bool) -> bool {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            if rest.is_empty() && whole {
                let why = "the tree has no `...` line: the file may have been cut short";
                return self.end(0, why);
            }
            let dialect = self.first.dialect;
            let line = next_line(rest, whole).or_else(|| {
                // a block may go on for long without a newline
                position_of_magic(rest, dialect).map(|_| rest)
            });
            let Some(line) = line else {
                return false;
            };
            if let Some(magic) = position_of_magic(line, dialect) {
                // padding and a block on one line, or a tree whose end marker is missing or glued to the block
                return self.end(magic, "the tree has no `...` line of its own");
            }
            let content = line.trim_ascii_start();
            self.at = self.at.saturating_add(line.len());
            if self.in_tree {
                let tail = line.strip_prefix(b"...");
                if tail.is_some_and(|tail| tail.trim_ascii().is_empty()) {
                    return true;
                }
            } else if content.starts_with(b"%") || content.starts_with(b"---") {
                // directives belong to the document behind them
                self.in_tree = true;
            } else if !line.starts_with(b"#") {
                self.oddity = self.oddity.or(Some(
                    "only comments may stand between the first line and the tree",
                ));
            }
        }
    }

    /// Ends a text without `...`. A tree ends `behind` bytes further on, and is odd for the reason `why`. Without
    /// a tree the text ends here.
    fn end(&mut self, behind: usize, why: &'static str) -> bool {
        if self.in_tree {
            self.at = self.at.saturating_add(behind);
            self.oddity = Some(why);
        }
        true
    }

    /// The text that ends where the search does, in a file of so many bytes.
    fn text(self, text: Arc<Vec<u8>>, len: u64) -> Scan {
        let mut layout = Layout::of_text(self.first, len_u64(text.len()), len);
        layout.has_tree = self.in_tree;
        layout.findings.extend(self.oddity.map(|why| Finding {
            severity: Severity::Odd,
            error: Error::corrupt(Place::Byte(len_u64(self.at)), why),
        }));
        Scan { layout, text }
    }
}

/// The next line with its newline, or the rest when `whole`; `None` if its end is not in sight.
fn next_line(rest: &[u8], whole: bool) -> Option<&[u8]> {
    let mut behind = rest;
    // many bytes at a time, unlike a search by an iterator
    let len = behind.skip_until(b'\n').ok()?;
    let line = rest.get(..len)?;
    (whole || line.ends_with(b"\n")).then_some(line)
}

/// Where the first block magic in `bytes` is.
pub(super) fn position_of_magic(bytes: &[u8], dialect: &Dialect) -> Option<usize> {
    // no magic is ASCII, and most lines of a tree are
    if bytes.is_ascii() {
        return None;
    }
    bytes
        .windows(4)
        .position(|four| dialect.magics.iter().any(|magic| four == magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

    fn text(bytes: &[u8]) -> Scan {
        let first = FirstLine::parse(bytes, false).unwrap();
        read_text(&Memory::new(bytes.to_vec()), &first).unwrap()
    }

    #[test]
    fn the_end_of_the_text_is_found() {
        let head = "#ASDF 1.0.0\n";
        let cases = [
            ("%YAML 1.1\n---\na: 1\n...\n", "padding", true),
            ("%YAML 1.1\r\n---\r\n...\r\n", "", true),
            ("--- {}\n...", "", true),
            ("--- {}\n...  \n", "\n...\n", true),
            ("---\na: '\n ...\n'\n...\n", "", true),
            ("---\na: 1\n", "", true),
            ("# only a comment\n", "", false),
            ("", "", false),
        ];
        for (inside, behind, has_tree) in cases {
            let found = text(format!("{head}{inside}{behind}").as_bytes());
            assert_eq!(**found.text, *format!("{head}{inside}").as_bytes());
            assert_eq!(found.layout.has_tree, has_tree, "{inside:?}");
        }
    }

    #[test]
    fn a_text_of_many_chunks_is_read_to_its_end() {
        let long = format!("#ASDF 1.0.0\n---\n{}...\n", "- a line\n".repeat(100_000));
        let found = text(format!("{long}\n...\n").as_bytes());
        assert_eq!(**found.text, *long.as_bytes());
    }

    /// Of a text that was a little longer than 64 KiB, four times as much was fetched from a server.
    #[test]
    fn hardly_more_than_the_text_is_read() {
        struct Reads(Memory, std::sync::atomic::AtomicU64);
        impl Source for Reads {
            fn len(&self) -> u64 {
                self.0.len()
            }

            fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
                let end = offset + len_u64(buf.len());
                self.1.fetch_max(end, std::sync::atomic::Ordering::Relaxed);
                self.0.read_exact_at(buf, offset)
            }
        }
        for lines in [1, 7000, 8000, 15_000, 40_000, 90_000, 500_000] {
            let text = format!("#ASDF 1.0.0\n---\n{}...\n", "- a line\n".repeat(lines));
            let len = len_u64(text.len());
            let file = Memory::new([text.into_bytes(), vec![0; 8 << 20]].concat());
            let first = FirstLine::parse(b"#ASDF 1.0.0\n", false).unwrap();
            let reads = Reads(file, 0.into());
            assert_eq!(read_text(&reads, &first).unwrap().layout.text_end, len);
            let read = reads.1.into_inner();
            assert!(read <= len + len * 3 / 10 + CHUNK, "{read} for {len}");
        }
    }

    #[test]
    fn the_end_is_the_same_however_much_is_in_sight_at_a_time() {
        let texts: [&[u8]; 4] = [
            b"#ASDF 1.0.0\n# c\n%YAML 1.1\n---\na: '\n ...'\n...\n\n...\n",
            b"#ASDF 1.0.0\nodd\n---\na: 1\n... \xd3BLK\n",
            b"#ASDF 1.0.0\n---\na: 1\n",
            b"#ASDF 1.0.0\n\xd3BLK no newline",
        ];
        for bytes in texts {
            let first = FirstLine::parse(bytes, false).unwrap();
            let mut whole = EndSearch::new(&first);
            assert!(whole.find(bytes, true));
            let mut search = EndSearch::new(&first);
            assert!((0..=bytes.len()).any(|len| search.find(&bytes[..len], len == bytes.len())));
            assert_eq!(
                (search.at, search.in_tree, search.oddity),
                (whole.at, whole.in_tree, whole.oddity)
            );
        }
    }

    #[test]
    fn a_block_without_a_newline_ends_the_text_of_a_file_without_a_tree() {
        let data = vec![b'x'; 3 * usize::try_from(CHUNK).unwrap()];
        let bytes = [&b"#ASDF 1.0.0\n"[..], b"\xd3BLK", &data].concat();
        let first = FirstLine::parse(&bytes, false).unwrap();
        let in_sight = bytes.get(..100).unwrap();
        let mut search = EndSearch::new(&first);
        assert!(search.find(in_sight, false));
        assert_eq!((search.at, search.in_tree), (12, false));
        assert_eq!(**text(&bytes).text, *b"#ASDF 1.0.0\n");
    }

    #[test]
    fn a_text_in_memory_is_not_copied() {
        let bytes = Arc::new(b"#ASDF 1.0.0\n---\na: 1\n...\n".to_vec());
        let first = FirstLine::parse(&bytes, false).unwrap();
        let found = read_text(&Memory::shared(Arc::clone(&bytes)), &first).unwrap();
        assert!(Arc::ptr_eq(&found.text, &bytes));
        let longer = Arc::new([&bytes[..], &b"# no more text"[..]].concat());
        let found = read_text(&Memory::shared(longer), &first).unwrap();
        assert_eq!(found.text, bytes);
    }

    #[test]
    fn content_before_the_tree_is_noted() {
        assert_eq!(text(b"#ASDF 1.0.0\n\n---\n...\n").layout.findings.len(), 1);
        assert_eq!(
            text(b"#ASDF 1.0.0\n# comment\n---\n...\n")
                .layout
                .findings
                .len(),
            0
        );
    }
}
