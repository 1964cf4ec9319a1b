//! Which blocks the tree uses, as far as the text shows without being parsed: the highest `source` of its arrays.
//!
//! Used only to choose between two readings of the blocks that are both possible.

/// How many blocks the tree in `text` needs; `None` if a source is not just a number. It may be too many, because every key
/// `source` counts, even outside of arrays.
pub(super) fn blocks_needed(text: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"source";
    let mut count = 0;
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(found) = rest.windows(KEY.len()).position(|bytes| bytes == KEY)
    {
        let (before, from_key) = rest.split_at_checked(found).unwrap_or((rest, &[]));
        let behind = from_key.get(KEY.len()..).unwrap_or_default();
        at = text.len().saturating_sub(behind.len());
        // the end of a longer word, such as `datasource`
        if before.last().is_some_and(|&byte| in_word(byte)) {
            continue;
        }
        count = count.max(needed_by(behind)?);
    }
    Some(count)
}

/// How many blocks the text behind a key `source` needs. 0 if the word is no key here, or names another file; `None` if its value
/// is no plain block number.
fn needed_by(behind: &[u8]) -> Option<usize> {
    let quoted = behind
        .strip_prefix(b"\"")
        .or_else(|| behind.strip_prefix(b"'"));
    let Some(value) = quoted
        .unwrap_or(behind)
        .trim_ascii_start()
        .strip_prefix(b":")
    else {
        return Some(0);
    };
    let blanks = value.iter().take_while(|&&byte| byte == b' ').count();
    let value = value.get(blanks..).unwrap_or_default();
    match value.first() {
        Some(byte) if byte.is_ascii_digit() => {}
        // without a blank the colon belongs to a longer word
        Some(byte) if blanks == 0 && in_word(*byte) => return Some(0),
        // the URI of another file, plain or quoted
        Some(byte) if byte.is_ascii_alphabetic() || b"\"'./".contains(byte) => return Some(0),
        _ => return None,
    }
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0_usize, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(usize::from(digit.saturating_sub(b'0')))
    });
    Some(number.saturating_add(1))
}

/// Whether a byte can stand in the same word as a letter.
fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_number_counts() {
        for (text, count) in [
            ("a: {source: 0, shape: [1]}\nb: {source: 11}\n", 12),
            ("a:\n  source: 3\n  shape: [1]\nb:\n  source: 2\n", 4),
            ("{\"source\": 1, 'source' : 2}", 3),
            ("resource: 7\ndata_source: 8\nsources: 9\nsource_id: 5", 0),
            (
                "source: other.asdf\nsource: 'x.asdf'\nsource: http://x/y",
                0,
            ),
            ("a: the source of all\n", 0),
            ("", 0),
        ] {
            assert_eq!(blocks_needed(text.as_bytes()), Some(count), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_makes_nothing_known() {
        for text in [
            "source: -1",
            "source: *a",
            "source:\n  1",
            "source: !!int 1",
            "source: &a 1",
        ] {
            assert_eq!(blocks_needed(text.as_bytes()), None, "{text}");
        }
    }
}
