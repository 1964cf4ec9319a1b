//! FITS headers as text: cards of 80 characters in blocks of 2880 bytes (FITS Standard 4.0, sections 4.1 and 4.2).

use std::fmt::{Display, Write};

use super::null::Null;
use crate::asdf::fits::BLOCK_LEN;
use crate::error::percent_encoded;

/// Characters of a card.
pub(super) const CARD: usize = 80;
/// Most characters of a text in a card, where a `'` counts twice.
const MAX_TEXT: usize = 68;
/// Most characters of the name of a unit: there is room for `/re` behind it.
const MAX_NAME: usize = 65;
/// Least characters of a text in a card.
const MIN_TEXT: usize = 8;

/// A header that is being put together.
#[derive(Debug, Default)]
pub(super) struct HeaderText(String);

impl HeaderText {
    /// The cards that a unit begins with, in the order of FITS Standard 4.0, sections 4.4.1 and 7: of an extension of that kind, or else of
    /// the primary unit. The slowest axis comes first.
    pub(super) fn begin(extension: Option<&str>, bits: i8, axes: &[u64]) -> Self {
        let mut header = Self::default();
        match extension {
            Some(kind) => header.text("XTENSION", kind),
            None => header.value("SIMPLE", 'T'),
        }
        header.value("BITPIX", bits);
        header.value("NAXIS", axes.len());
        // FITS counts axes from the fastest one
        for (n, len) in (1..).zip(axes.iter().rev()) {
            header.value(&format!("NAXIS{n}"), len);
        }
        if extension.is_some() {
            header.value("PCOUNT", 0);
            header.value("GCOUNT", 1);
        } else {
            header.value("EXTEND", 'T');
        }
        header
    }

    /// The header of a primary unit without data.
    pub(super) fn primary() -> Self {
        Self::begin(None, 8, &[])
    }

    /// Adds a card with a number or `T` or `F`.
    pub(super) fn value(&mut self, keyword: &str, value: impl Display) {
        // the fixed format (section 4.2.3): a number ends in column 30
        self.card(&format!("{keyword:<8}= {value:>20}"));
    }

    /// Adds a card with a value under several words such as `HIERARCH A B`. `None` if there is no room for it.
    pub(super) fn long_value(&mut self, words: &str, value: &str) -> Option<()> {
        let card = format!("{words} = {value}");
        (card.len() <= CARD).then(|| self.card(&card))
    }

    /// Adds the name of a unit, and its version, if there are others of that name.
    pub(super) fn name(&mut self, (name, version): (&str, u64)) {
        self.text("EXTNAME", &printable_ascii(name));
        if version > 1 {
            self.value("EXTVER", version);
        }
    }

    /// Adds a card with a text. What does not fit is left out.
    pub(super) fn text(&mut self, keyword: &str, text: &str) {
        // a quote within quotes is written twice (section 4.2.1.1)
        let quoted = cut(text, MAX_TEXT).replace('\'', "''");
        self.card(&format!("{keyword:<8}= '{quoted:<MIN_TEXT$}'"));
    }

    /// Adds a text under several words, with further cards for what does not fit into the first (FITS Standard 4.0, section 4.2.1.2).
    /// `None` if the words leave no room.
    pub(super) fn long_text(&mut self, words: &str, text: &str) -> Option<()> {
        let mut start = format!("{words} = '");
        let room = CARD.checked_sub(start.len().saturating_add(1))?;
        let room = Some(room).filter(|room| *room >= MIN_TEXT)?;
        let (mut part, mut most) = (String::new(), room);
        let mut letters = text.chars().peekable();
        while let Some(c) = letters.next() {
            let len = if c == '\'' { 2 } else { 1 };
            // the last part has no `&` behind it
            let beside = usize::from(letters.peek().is_some());
            if part.len().saturating_add(len).saturating_add(beside) > most {
                self.card(&format!("{start}{:<MIN_TEXT$}'", part + "&"));
                (start, part) = ("CONTINUE  '".to_owned(), String::new());
                most = MAX_TEXT;
            }
            part.extend(std::iter::repeat_n(c, len));
        }
        self.card(&format!("{start}{part:<MIN_TEXT$}'"));
        Some(())
    }

    /// Adds blank cards, to be overwritten. Gives the byte that they begin at.
    pub(super) fn reserve(&mut self, cards: usize) -> usize {
        let at = self.0.len();
        for _ in 0..cards {
            self.card("");
        }
        at
    }

    /// How many cards there are.
    pub(super) fn len(&self) -> usize {
        self.0.len() / CARD
    }

    /// The cards.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Adds the cards of another header.
    pub(super) fn extend(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// Adds a card with a unit, or one that tells why there is none: of a part of it, or with other letters, no program would know it.
    pub(super) fn unit(&mut self, keyword: &str, unit: &str) {
        let spelled = spelled_in_fits(unit);
        let len = spelled.len().saturating_add(spelled.matches('\'').count());
        if len <= MAX_TEXT && spelled.chars().all(is_printable_ascii) {
            self.text(keyword, &spelled);
        } else {
            self.comment(&format!(
                "no {keyword}: FITS can't hold {}",
                printable_ascii(unit)
            ));
        }
    }

    /// Adds a card with the number that stands for no value, or one that tells people of it.
    pub(super) fn null(&mut self, keyword: &str, null: &Null) {
        match null {
            Null::Card(number) => self.value(keyword, number),
            Null::Told(number, why) => {
                self.comment(&format!(
                    "{number} stands for no value (no {keyword} {why})"
                ));
            }
        }
    }

    /// Adds a card that tells people something, cut to its length.
    pub(super) fn comment(&mut self, text: &str) {
        let card = format!("COMMENT {text}");
        self.card(card.get(..CARD.min(card.len())).unwrap_or_default());
    }

    /// Appends a card, filled up with blanks. A longer one must have been cut before.
    fn card(&mut self, card: &str) {
        // writing to a string can't fail
        let _ = write!(self.0, "{card:<CARD$}");
    }

    /// The header with its end, in whole blocks.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.card("END");
        let mut bytes = self.0.into_bytes();
        let block = usize::try_from(BLOCK_LEN).unwrap_or(CARD);
        bytes.resize(bytes.len().next_multiple_of(block), b' ');
        bytes
    }
}

/// As much of a text as fits into so many characters of a card, where a `'` counts twice.
fn cut(text: &str, mut room: usize) -> &str {
    let end = text.find(|c: char| {
        let left = room.checked_sub(if c == '\'' { 2 } else { 1 });
        room = left.unwrap_or(0);
        left.is_none()
    });
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The name of a unit as readers find it: cut, and without blanks at its end.
pub(super) fn cut_name(name: &str) -> &str {
    cut(name, MAX_NAME).trim_end()
}

/// A floating-point number as FITS has it, if it is finite: as few digits as tell it from all others.
pub(super) fn real(number: f64) -> Option<String> {
    let is_finite = number.is_finite();
    // `{:?}` writes 1e-7, which FITS has as 1E-7
    is_finite.then(|| format!("{number:?}").to_ascii_uppercase())
}

/// A unit with the names that FITS Standard 4.0, section 4.3, has for letters beyond ASCII.
fn spelled_in_fits(unit: &str) -> String {
    let mut spelled = String::new();
    for c in unit.chars() {
        match c {
            '\u{b5}' | '\u{3bc}' => spelled.push('u'),
            '\u{c5}' | '\u{212b}' => spelled.push_str("Angstrom"),
            '\u{3a9}' | '\u{2126}' => spelled.push_str("Ohm"),
            '\u{b0}' => spelled.push_str("deg"),
            other => spelled.push(other),
        }
    }
    spelled
}

fn is_printable_ascii(c: char) -> bool {
    matches!(c, ' '..='~')
}

/// A text as FITS can hold it: what is not printable ASCII is percent-encoded, as in the names of files.
pub(super) fn printable_ascii(text: &str) -> String {
    percent_encoded(text, |c| !is_printable_ascii(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_made_of_cards_and_fills_blocks() {
        let mut header = HeaderText::default();
        header.value("SIMPLE", 'T');
        header.value("BZERO", 1_u64 << 63);
        header.text("EXTNAME", "it's");
        header.text("BUNIT", &"'".repeat(100));
        header.comment(&"c".repeat(100));
        let bytes = header.finish();
        assert_eq!(bytes.len(), 2880);
        let cards: Vec<_> = bytes.chunks(80).map(String::from_utf8_lossy).collect();
        assert_eq!(
            cards[0],
            format!("{:<80}", "SIMPLE  =                    T")
        );
        assert_eq!(cards[1].trim_end(), "BZERO   =  9223372036854775808");
        assert_eq!(cards[2].trim_end(), "EXTNAME = 'it''s   '");
        assert_eq!(cards[3].as_ref(), format!("BUNIT   = '{}'", "'".repeat(68)));
        assert_eq!(cards[4], format!("COMMENT {}", "c".repeat(72)));
        assert_eq!(cards[5].trim_end(), "END");
        let mut long = HeaderText::default();
        (0..36).for_each(|n| long.value("NAXIS", n));
        assert_eq!(long.finish().len(), 5760);
    }

    #[test]
    fn units_are_spelled_as_fits_has_them_or_left_out_with_the_reason() {
        for (unit, want) in [
            ("Jy", "BUNIT   = 'Jy      '"),
            ("\u{b5}Jy / \u{3bc}m", "BUNIT   = 'uJy / um'"),
            (
                "10\u{c5} \u{212b} k\u{2126} \u{b0}",
                "BUNIT   = '10Angstrom Angstrom kOhm deg'",
            ),
            ("m\u{b2}", "COMMENT no BUNIT: FITS can't hold m%C2%B2"),
            ("'", "BUNIT   = '''      '"),
            ("m\n", "COMMENT no BUNIT: FITS can't hold m%0A"),
        ] {
            let mut header = HeaderText::default();
            header.unit("BUNIT", unit);
            assert_eq!(header.0.trim_end(), want);
        }
        for (len, keyword) in [(68, "BUNIT"), (69, "COMMENT")] {
            let mut header = HeaderText::default();
            header.unit("BUNIT", &"m".repeat(len));
            assert!(header.0.starts_with(keyword), "{}", header.0);
            assert_eq!(header.0.len(), CARD);
        }
    }

    #[test]
    fn only_printable_ascii_is_left() {
        assert_eq!(printable_ascii("a é\n%"), "a %C3%A9%0A%");
    }
}
