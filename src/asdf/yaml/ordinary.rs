//! The events of a text that a program wrote, read without libyaml and several times as fast.
//!
//! Writers of ASDF files use little of YAML: collections in both styles, plain and quoted scalars, tags, anchors and aliases. This
//! reader knows only these, in the forms that such programs give them. Its events are those of libyaml, with the same places. At the
//! first byte that it does not know it gives up, and libyaml has to read the text from the start: so libyaml alone says which texts are
//! sound, and why others are not. Knows nothing of nodes or ASDF.

use super::{Event, EventKind, is_break};
use crate::asdf::scalar::TAG_PREFIX;

/// Longest key, tag or prefix of tags, in bytes. libyaml takes keys of up to 1024.
const MAX_SHORT: usize = 1000;
/// The tag of a scalar that has the type it looks like. Also the prefix for which `!` stands in front of a
/// tag, if no other is declared.
const NON_SPECIFIC: &str = "!";
/// So many bytes of the text are looked at before one that is not ordinary ends the search.
const AT_ONCE: usize = 1024;
/// Stands for the byte behind the text. A text with NUL is not ordinary.
const END: u8 = 0;

/// Passes the events of the document in `text`, from its first node on, to `take`. `None` if `take` refuses one of them, or if this
/// reader does not know the text; the events until then mean nothing.
pub(in crate::asdf) fn read(text: &str, take: impl FnMut(&Event<'_>) -> Option<()>) -> Option<()> {
    if !is_ordinary(text) {
        return None;
    }
    let mut reader = Reader {
        text,
        at: 0,
        line: 0,
        prefix: NON_SPECIFIC,
        levels: Vec::new(),
        start: None,
        anchor: None,
        tag: String::new(),
        last: Scalar::empty(0, 0),
        folded: String::new(),
        take,
    };
    reader.prologue()?;
    reader.value(0, false)?;
    reader.lines()
}

/// Whether each character of the text is a line feed, or one that can be seen and is the same to every reader.
fn is_ordinary(text: &str) -> bool {
    let is_odd = |c: char| {
        let breaks = is_break(c) && c != '\n';
        breaks
            || ('\u{7F}'..'\u{A0}').contains(&c)
            || matches!(c, '\u{FEFF}' | '\u{FFFE}'..='\u{FFFF}')
    };
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != 0x7F || *byte == b'\n';
    // without a branch for each byte, so that the compiler looks at many of them at once
    let are_plain = |part: &[u8]| part.iter().fold(true, |all, byte| all & is_plain(byte));
    text.as_bytes().chunks(AT_ONCE).all(are_plain) && (text.is_ascii() || !text.contains(is_odd))
}

/// Whether a byte of a tag means itself.
fn is_tag_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_/.:+~".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\n'
}

/// A collection that is being read.
#[derive(Clone, Copy)]
struct Level {
    is_sequence: bool,
    /// The least column of anything deeper: one more than its own. 0 in flow style, where columns mean nothing.
    inner: usize,
}

/// The events that begin and end a collection.
fn kinds(is_sequence: bool) -> (EventKind, EventKind) {
    if is_sequence {
        (EventKind::SequenceStart, EventKind::SequenceEnd)
    } else {
        (EventKind::MappingStart, EventKind::MappingEnd)
    }
}

/// A scalar that was read.
struct Scalar {
    start: usize,
    end: usize,
    /// The bytes of the value in the text; `None` if the value was put together in [`Reader::folded`].
    value: Option<(usize, usize)>,
    quoted: bool,
}

impl Scalar {
    fn empty(start: usize, end: usize) -> Self {
        Self {
            start,
            end,
            value: Some((start, start)),
            quoted: false,
        }
    }
}

struct Reader<'t, F> {
    text: &'t str,
    /// The next byte.
    at: usize,
    /// The first byte of its line.
    line: usize,
    /// What `!` stands for in front of a tag.
    prefix: &'t str,
    levels: Vec<Level>,
    /// Where the properties of the next node begin, if it has any.
    start: Option<usize>,
    /// The anchor of the node that comes next.
    anchor: Option<&'t str>,
    /// The tag of the node that comes next; empty if it has none.
    tag: String,
    /// The scalar that was read last. It stays here until it is passed on: to copy it from one function to the next, the processor had
    /// to wait for each of its fields.
    last: Scalar,
    folded: String,
    take: F,
}

impl<'t, F: FnMut(&Event<'_>) -> Option<()>> Reader<'t, F> {
    /// The byte `ahead` bytes behind the next one; [`END`] behind the text.
    fn byte(&self, ahead: usize) -> u8 {
        let at = self.at.saturating_add(ahead);
        self.text.as_bytes().get(at).copied().unwrap_or(END)
    }

    fn peek(&self) -> u8 {
        self.byte(0)
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn skip_while(&mut self, such: impl Fn(u8) -> bool) {
        while such(self.peek()) {
            self.skip(1);
        }
    }

    /// Skips spaces and ends of lines. Returns how many lines ended.
    fn skip_blanks(&mut self) -> usize {
        let mut breaks = 0_usize;
        while is_blank(self.peek()) {
            let is_end = self.peek() == b'\n';
            self.skip(1);
            if is_end {
                self.line = self.at;
                breaks = breaks.saturating_add(1);
            }
        }
        breaks
    }

    /// The least column of anything deeper than this place.
    fn inner(&self) -> usize {
        self.at.saturating_sub(self.line).saturating_add(1)
    }

    /// Whether an item of a block sequence begins here.
    fn is_entry(&self) -> bool {
        self.peek() == b'-' && is_blank(self.byte(1))
    }

    /// Whether `...` or `---` stands here as the mark of an end or start.
    fn is_marker(&self, dot: u8) -> bool {
        let is = |ahead| self.byte(ahead) == dot;
        self.inner() == 1 && is(0) && is(1) && is(2) && matches!(self.byte(3), b' ' | b'\n' | END)
    }

    /// Skips what stands in front of the tree, up to behind its `---`.
    fn prologue(&mut self) -> Option<()> {
        let (mut has_version, mut has_prefix) = (false, false);
        while !self.is_marker(b'-') {
            let (line, _) = self.text.get(self.at..)?.split_once('\n')?;
            if let Some(prefix) = line.strip_prefix("%TAG ! ").filter(|_| !has_prefix) {
                let is_short = (1..=MAX_SHORT).contains(&prefix.len());
                (is_short && prefix.bytes().all(is_tag_byte)).then_some(())?;
                (has_prefix, self.prefix) = (true, prefix);
            } else if line == "%YAML 1.1" && !has_version {
                has_version = true;
            } else if !line.starts_with('#') {
                return None;
            }
            self.skip(line.len().saturating_add(1));
            self.line = self.at;
        }
        self.skip(3);
        Some(())
    }

    /// Reads the lines behind the first up to the end of the document.
    fn lines(&mut self) -> Option<()> {
        loop {
            self.skip_blanks();
            if self.is_marker(b'.') {
                while self.leave().is_some() {}
                self.skip(3);
                return self.give(EventKind::DocumentEnd, self.at, self.at);
            }
            let mut level = *self.levels.last()?;
            while level.inner > self.inner()
                // a sequence may lie in the same column as the mapping that it is in
                || level.is_sequence && level.inner == self.inner() && !self.is_entry()
            {
                self.leave()?;
                level = *self.levels.last()?;
            }
            // `---` would begin a second document, and a column between two levels is a fault
            (level.inner == self.inner() && !self.is_marker(b'-')).then_some(())?;
            if level.is_sequence {
                self.entry(level.inner)?;
            } else {
                // a key has no further lines
                self.scalar(usize::MAX)?;
                self.entry_of()?;
            }
        }
    }

    /// Begins a collection at a place.
    fn enter(&mut self, is_sequence: bool, inner: usize, at: usize) -> Option<()> {
        self.levels.push(Level { is_sequence, inner });
        self.give(kinds(is_sequence).0, at, at)
    }

    /// Ends the collection that was begun last. None if there is none.
    fn leave(&mut self) -> Option<()> {
        let is_sequence = self.levels.pop()?.is_sequence;
        self.give(kinds(is_sequence).1, self.at, self.at)
    }

    /// Reads an item of a block sequence, and the items in it that begin in the same line, as in `- - a`.
    fn entry(&mut self, mut inner: usize) -> Option<()> {
        while self.is_entry() {
            if inner != self.inner() {
                inner = self.inner();
                self.enter(true, inner, self.at)?;
            }
            self.skip(1);
            self.skip_while(|byte| byte == b' ');
        }
        let first = self.at;
        let mark = self.properties(first)?;
        if self.start.is_some() || matches!(self.peek(), b'[' | b'{' | b'*') {
            return self.node(mark, inner, false);
        }
        let column = self.inner();
        self.scalar(inner)?;
        // a mapping begins behind the dash, as in `- key: value`
        if self.peek() == b':' {
            self.enter(false, column, first)?;
            return self.entry_of();
        }
        self.give_last()?;
        self.end_line()
    }

    /// Takes the last scalar as a key of the mapping on top, behind which the colon must follow, and reads its value.
    fn entry_of(&mut self) -> Option<()> {
        self.colon()?;
        let inner = self.levels.last()?.inner;
        self.value(inner, true)
    }

    /// Takes the last scalar as a key, and skips the colon that must follow.
    fn colon(&mut self) -> Option<()> {
        let key = &self.last;
        // libyaml takes only a key that ends in its line and within 1024 bytes
        let is_short = key.end.saturating_sub(key.start) <= MAX_SHORT && self.line <= key.start;
        (is_short && self.peek() == b':' && is_blank(self.byte(1))).then_some(())?;
        self.give_last()?;
        self.skip(1);
        Some(())
    }

    /// Reads the value behind a colon, or the top node behind `---`.
    fn value(&mut self, inner: usize, in_mapping: bool) -> Option<()> {
        let mark = self.at;
        self.skip_while(|byte| byte == b' ');
        let mark = self.properties(mark)?;
        self.node(mark, inner, in_mapping)
    }

    /// Reads a node behind its properties: from the same line, or else a block collection below. An empty node lies at the `mark`.
    fn node(&mut self, mark: usize, inner: usize, in_mapping: bool) -> Option<()> {
        match self.peek() {
            b'\n' => return self.below(mark, inner, in_mapping),
            b'[' | b'{' => self.flow()?,
            b'*' => self.alias()?,
            // a top scalar would be in the columns of marks
            _ if inner == 0 => return None,
            _ => {
                self.scalar(inner)?;
                self.give_last()?;
            }
        }
        self.end_line()
    }

    /// Skips the end of a line in which nothing else follows.
    fn end_line(&mut self) -> Option<()> {
        self.skip_while(|byte| byte == b' ');
        (self.peek() == b'\n').then_some(())
    }

    /// Begins the block collection in the lines below. If there is none, the node is empty.
    fn below(&mut self, mark: usize, inner: usize, in_mapping: bool) -> Option<()> {
        self.skip_blanks();
        let (own, is_entry) = (self.inner(), self.is_entry());
        let is_end = self.is_marker(b'.') || self.is_marker(b'-');
        // a sequence may lie in the column of the key whose value it is
        if own > inner && !is_end || own == inner && is_entry && in_mapping {
            return self.enter(is_entry, own, self.at);
        }
        // libyaml has an empty top node elsewhere, and another type for an empty one with `!`
        (inner > 0 && self.tag != NON_SPECIFIC).then_some(())?;
        self.last = Scalar::empty(self.start.unwrap_or(mark), mark);
        self.give_last()
    }

    /// Reads a tag and an anchor, if they are here. Returns the place behind the last of them, or the `mark` if there is none.
    fn properties(&mut self, mut mark: usize) -> Option<usize> {
        loop {
            let start = self.at;
            match self.peek() {
                b'!' if self.tag.is_empty() => self.tag()?,
                b'&' if self.anchor.is_none() => self.anchor = Some(self.name()?),
                _ => return Some(mark),
            }
            self.start = self.start.or(Some(start));
            mark = self.at;
            is_blank(self.peek()).then_some(())?;
            self.skip_while(|byte| byte == b' ');
        }
    }

    /// Reads a tag, and resolves it.
    fn tag(&mut self) -> Option<()> {
        // in this order: `!` alone, `!!int`, `!<whole tag>`, `!local`
        let (opening, prefix) = match self.byte(1) {
            b' ' | b'\n' => (1, NON_SPECIFIC),
            b'!' => (2, TAG_PREFIX),
            b'<' => (2, ""),
            _ => (1, self.prefix),
        };
        self.skip(opening);
        let start = self.at;
        self.skip_while(|byte| is_tag_byte(byte) || prefix.is_empty() && byte == b',');
        let suffix = self.text.get(start..self.at)?;
        let is_whole = prefix == NON_SPECIFIC || !suffix.is_empty();
        (is_whole && suffix.len() <= MAX_SHORT).then_some(())?;
        if prefix.is_empty() {
            (self.peek() == b'>').then_some(())?;
            self.skip(1);
        }
        self.tag.push_str(prefix);
        self.tag.push_str(suffix);
        Some(())
    }

    /// Reads the name of an anchor behind `&` or `*`.
    fn name(&mut self) -> Option<&'t str> {
        self.skip(1);
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        let name = self.text.get(start..self.at);
        name.filter(|name| !name.is_empty())
    }

    fn alias(&mut self) -> Option<()> {
        // an alias has no properties of its own
        self.start.is_none().then_some(())?;
        self.start = Some(self.at);
        self.anchor = Some(self.name()?);
        b" \n,]}".contains(&self.peek()).then_some(())?;
        self.give(EventKind::Alias, self.at, self.at)
    }

    /// Reads a flow collection with all that is in it.
    fn flow(&mut self) -> Option<()> {
        let around = self.levels.len();
        loop {
            let open = self.peek();
            match open {
                b'[' | b'{' => {
                    self.enter(open == b'[', 0, self.at)?;
                    self.skip(1);
                }
                b'*' => self.alias()?,
                _ => {
                    self.scalar(0)?;
                    self.give_last()?;
                }
            }
            self.gap()?;
            // a collection was opened here, and its first part comes next
            let is_in = matches!(open, b'[' | b'{') && !matches!(self.peek(), b']' | b'}');
            // closes every collection that ends here
            while !is_in && self.peek() != b',' {
                let close = if self.levels.last()?.is_sequence {
                    b']'
                } else {
                    b'}'
                };
                (self.peek() == close).then_some(())?;
                self.skip(1);
                self.leave()?;
                if self.levels.len() == around {
                    return Some(());
                }
                self.gap()?;
            }
            if !is_in {
                self.skip(1);
                self.gap()?;
            }
            if !self.levels.last()?.is_sequence {
                self.scalar(0)?;
                self.colon()?;
                self.gap()?;
            }
            self.properties(self.at)?;
        }
    }

    /// Skips blanks in a flow collection, whose lines do not begin in the first column.
    fn gap(&mut self) -> Option<()> {
        self.skip_blanks();
        // in the first column libyaml would look for `---`
        (self.inner() > 1).then_some(())
    }

    /// Reads a scalar: in flow style, or one whose further lines begin at the column `inner` or behind it.
    fn scalar(&mut self, inner: usize) -> Option<()> {
        self.folded.clear();
        match self.peek() {
            quote @ (b'\'' | b'"') => self.quoted(quote),
            _ => self.plain(inner),
        }
    }

    /// Appends the text from `start` to `end` to the value, then what `breaks` ends of lines stand for.
    fn fold(&mut self, start: usize, end: usize, breaks: usize) -> Option<()> {
        self.folded.push_str(self.text.get(start..end)?);
        // line folding: one end of a line is a blank, each further one a line feed
        match breaks {
            0 => {}
            1 => self.folded.push(' '),
            _ => self.folded.extend((1..breaks).map(|_| '\n')),
        }
        Some(())
    }

    fn quoted(&mut self, quote: u8) -> Option<()> {
        let start = self.at;
        self.skip(1);
        let first = self.at;
        let mut piece = first;
        loop {
            match self.peek() {
                b'\'' if quote == b'\'' && self.byte(1) == b'\'' => {
                    // two quotes stand for one
                    self.skip(1);
                    self.fold(piece, self.at, 0)?;
                    self.skip(1);
                    piece = self.at;
                }
                b'\n' => {
                    let line = self.text.get(piece..self.at)?.trim_end_matches(' ');
                    let end = piece.saturating_add(line.len());
                    let breaks = self.skip_blanks();
                    (self.inner() > 1).then_some(())?;
                    self.fold(piece, end, breaks)?;
                    piece = self.at;
                }
                END => return None,
                // escapes are left to libyaml
                b'\\' if quote == b'"' => return None,
                byte if byte == quote => break,
                _ => self.skip(1),
            }
        }
        if piece != first {
            self.fold(piece, self.at, 0)?;
        }
        let value = (piece == first).then_some((first, self.at));
        self.skip(1);
        self.last = Scalar {
            start,
            end: self.at,
            value,
            quoted: true,
        };
        Some(())
    }

    fn plain(&mut self, inner: usize) -> Option<()> {
        let is_start = match self.peek() {
            b'-' => !is_blank(self.byte(1)),
            b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|'
            | b'>' | b'\'' | b'"' | b'%' | b'@' | b'`' | b' ' | b'\n' | END => false,
            _ => true,
        };
        is_start.then_some(())?;
        let start = self.at;
        let mut piece = start;
        loop {
            let end = self.plain_line(inner == 0)?;
            let line = self.line;
            let breaks = self.skip_blanks();
            let is_behind = match inner {
                0 => matches!(self.peek(), b',' | b'[' | b']' | b'{' | b'}'),
                _ => self.at.saturating_sub(self.line) < inner,
            };
            if breaks == 0 || is_behind {
                if piece != start {
                    self.fold(piece, end, 0)?;
                }
                // back to the end of the value: blanks behind it belong to the next token
                (self.at, self.line) = (end, line);
                self.last = Scalar {
                    start,
                    end,
                    value: (piece == start).then_some((start, end)),
                    quoted: false,
                };
                return Some(());
            }
            // the mark of an end, a comment or a colon
            (self.inner() > 1 && !matches!(self.peek(), b'#' | b':' | END)).then_some(())?;
            self.fold(piece, end, breaks)?;
            piece = self.at;
        }
    }

    /// Skips the part of a plain scalar that is in this line. Returns the place behind it.
    fn plain_line(&mut self, flow: bool) -> Option<usize> {
        let mut end = self.at;
        loop {
            match self.peek() {
                b'\n' | END => return Some(end),
                b':' if matches!(self.byte(1), b' ' | b'\n' | END) => return Some(end),
                b':' if flow && b",?[]{}".contains(&self.byte(1)) => return None,
                b',' | b'[' | b']' | b'{' | b'}' if flow => return Some(end),
                // a comment, which ends the scalar for libyaml
                b'#' if end < self.at => return None,
                b' ' => self.skip(1),
                _ => {
                    self.skip(1);
                    end = self.at;
                }
            }
        }
    }

    /// Passes on the last scalar.
    fn give_last(&mut self) -> Option<()> {
        self.give(EventKind::Scalar, self.last.start, self.last.end)
    }

    /// Passes on an event that lies there, if it has no properties.
    fn give(&mut self, kind: EventKind, start: usize, end: usize) -> Option<()> {
        let value = match self.last.value {
            _ if kind != EventKind::Scalar => "",
            Some((start, end)) => self.text.get(start..end)?,
            None => &self.folded,
        };
        // by its length first: this is asked at each event, and to compare with an empty text calls `memcmp`, which was slow
        let tag = Some(self.tag.as_str()).filter(|tag| !tag.is_empty() && *tag != NON_SPECIFIC);
        let event = Event {
            kind,
            anchor: self.anchor,
            tag,
            value,
            // libyaml gives a scalar with `!` the type that it looks like, even a quoted one
            plain: self.tag == NON_SPECIFIC || !self.last.quoted && tag.is_none(),
            flow: self.levels.last().is_some_and(|level| level.inner == 0),
            start: self.start.unwrap_or(start),
            end,
        };
        (self.take)(&event)?;
        // properties belong to one node only
        (self.start, self.anchor) = (None, None);
        self.tag.clear();
        Some(())
    }
}

#[cfg(test)]
mod tests;
