//! The cards of a FITS header: keywords and their values.
//!
//! FITS Standard 4.0, section 4. A card is 80 characters: a keyword of eight, `= `, a value, and a comment behind a slash; a
//! text may go on in cards `CONTINUE`. Only the keywords that describe the kind and the length of a unit are kept. Of equal
//! keywords the first counts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::BLOCK_LEN;
use crate::error::{Error, Place, Result};
use crate::source::{Source, at_most, read_up_to};

/// Characters of a card.
const CARD_LEN: usize = 80;
/// Characters of a keyword.
const KEYWORD_LEN: usize = 8;
/// The most blocks of a header: some 100,000 cards.
const HEADER_LIMIT: usize = 2800;
/// The keywords that are kept.
const KEPT: [&str; 14] = [
    "SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "GROUPS", "EXTNAME", "EXTVER",
    "BSCALE", "BZERO", "BLANK", "ZIMAGE", "TFIELDS",
];
/// The keywords that are kept with a number behind them: of axes and of columns.
const NUMBERED: [&str; 6] = ["NAXIS", "TFORM", "TTYPE", "TDIM", "TSCAL", "TZERO"];
/// Last character of a text that goes on in the next card.
const GOES_ON: char = '&';

/// A value, as it is written.
#[derive(Debug, PartialEq, Eq)]
enum CardValue {
    /// Between quotes, without the blanks at its end.
    Text(String),
    /// A number or a logical.
    Word(String),
}

/// Keywords with their values.
#[derive(Debug, Default)]
pub(super) struct Cards {
    values: HashMap<String, CardValue>,
    /// The keyword of the card before, if its text goes on.
    unfinished: Option<String>,
}

impl Cards {
    /// Reads the header at `at`. Returns it with the offset where its last block ends; `None` if no header begins there.
    pub(super) fn read(bytes: &dyn Source, at: u64) -> Result<Option<(Self, u64)>> {
        let mut cards = Self::default();
        let mut end = at;
        let len = at_most(BLOCK_LEN, usize::MAX);
        for n in 0..HEADER_LIMIT {
            let block = read_up_to(bytes, end, len)?;
            let begins = [&b"SIMPLE  "[..], b"XTENSION"];
            if n == 0 && !begins.iter().any(|keyword| block.starts_with(keyword)) {
                return Ok(None);
            }
            // the file ends within the header: what is left can hold no END
            if block.len() < len {
                break;
            }
            end = end.saturating_add(BLOCK_LEN);
            for card in block.chunks(CARD_LEN) {
                if card.starts_with(b"END") && card.get(3..).is_some_and(is_blank) {
                    return Ok(Some((cards, end)));
                }
                cards.add(card);
            }
        }
        let why = "FITS header: no END card";
        Err(Error::corrupt(Place::Byte(at), why))
    }

    /// Keeps the value of a card whose keyword is one of [`KEPT`] or [`NUMBERED`], unless an earlier card has it. Cards without `= `
    /// have no value.
    fn add(&mut self, card: &[u8]) {
        // only the card right behind may go on with a text
        let unfinished = self.unfinished.take();
        let Some((keyword, rest)) = card.split_at_checked(KEYWORD_LEN) else {
            return;
        };
        let Ok(keyword) = std::str::from_utf8(keyword.trim_ascii_end()) else {
            return;
        };
        if keyword == "CONTINUE" {
            self.go_on(unfinished, rest);
            return;
        }
        let numbered = |name: &&str| {
            let n = keyword.strip_prefix(name);
            n.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let is_kept = KEPT.contains(&keyword) || NUMBERED.iter().any(numbered);
        let value = rest.strip_prefix(b"= ").filter(|_| is_kept);
        if let Some(value) = value.and_then(CardValue::parse)
            && let Entry::Vacant(vacant) = self.values.entry(keyword.to_owned())
        {
            let goes_on = matches!(&value, CardValue::Text(text) if text.ends_with(GOES_ON));
            vacant.insert(value);
            self.unfinished = goes_on.then(|| keyword.to_owned());
        }
    }

    /// Appends what a card `CONTINUE` has to the text of the card before it.
    fn go_on(&mut self, unfinished: Option<String>, rest: &[u8]) {
        if let Some(keyword) = unfinished
            && let Some(CardValue::Text(text)) = self.values.get_mut(&keyword)
            && let Some(CardValue::Text(more)) = CardValue::parse(rest)
        {
            // the `&` that announced this card
            text.pop();
            text.push_str(&more);
            self.unfinished = text.ends_with(GOES_ON).then_some(keyword);
        }
    }

    /// The value of a keyword that is a text.
    pub(super) fn text(&self, keyword: &str) -> Option<&str> {
        match self.values.get(keyword)? {
            CardValue::Text(text) => Some(text),
            CardValue::Word(_) => None,
        }
    }

    /// The value of a keyword that is no text.
    fn word(&self, keyword: &str) -> Option<&str> {
        match self.values.get(keyword)? {
            CardValue::Word(word) => Some(word),
            CardValue::Text(_) => None,
        }
    }

    /// The value of a keyword that is a whole number.
    pub(super) fn integer(&self, keyword: &str) -> Option<i64> {
        self.word(keyword)?.parse().ok()
    }

    /// The value of a keyword that is a count, or `default` without such a card; `None` if it is no count.
    pub(super) fn count(&self, keyword: &str, default: u64) -> Option<u64> {
        match self.values.get(keyword) {
            None => Some(default),
            Some(_) => u64::try_from(self.integer(keyword)?).ok(),
        }
    }

    /// The value of a keyword that is a number, or `default` without such a card; `None` if it is no number. Fortran's `D` exponents
    /// are known.
    pub(super) fn float(&self, keyword: &str, default: f64) -> Option<f64> {
        match self.values.get(keyword) {
            None => Some(default),
            Some(_) => self.word(keyword)?.replace(['D', 'd'], "E").parse().ok(),
        }
    }

    /// Whether there is such a card.
    pub(super) fn has(&self, keyword: &str) -> bool {
        self.values.contains_key(keyword)
    }

    /// Whether a keyword has the value T.
    pub(super) fn is_true(&self, keyword: &str) -> bool {
        self.word(keyword) == Some("T")
    }
}

impl CardValue {
    /// The value in what follows `= `.
    fn parse(field: &[u8]) -> Option<Self> {
        let field = String::from_utf8_lossy(field);
        let field = field.trim_start();
        let Some(quoted) = field.strip_prefix('\'') else {
            // a slash begins the comment, and no number holds one
            let word = field.split('/').next().unwrap_or_default().trim();
            return (!word.is_empty()).then(|| Self::Word(word.to_owned()));
        };
        let mut text = String::new();
        let mut rest = quoted;
        loop {
            let (part, behind) = rest.split_once('\'')?;
            text.push_str(part);
            // two quotes stand for one
            match behind.strip_prefix('\'') {
                Some(more) => {
                    text.push('\'');
                    rest = more;
                }
                None => return Some(Self::Text(text.trim_end().to_owned())),
            }
        }
    }
}

fn is_blank(rest: &[u8]) -> bool {
    rest.iter().all(|&byte| byte == b' ')
}
