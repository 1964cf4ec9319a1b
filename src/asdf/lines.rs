//! Lines and columns of byte offsets in a text, found in constant time.
//!
//! A tree may be one line of 200 MB with a million arrays: counting from the start for each would never end.

/// Bytes between two remembered places.
const STEP: usize = 512;

/// Where lines begin, remembered every [`STEP`] bytes.
#[derive(Debug)]
pub(super) struct Lines {
    /// Line and column, from 0, at each multiple of `STEP`.
    marks: Vec<(u32, u32)>,
}

impl Lines {
    /// Goes through all of the text once.
    pub(super) fn new(text: &[u8]) -> Self {
        let mut at = (0, 0);
        let marks = text
            .chunks(STEP)
            .map(|chunk| {
                let here = at;
                at = advance(here, chunk);
                here
            })
            .collect();
        Self { marks }
    }

    /// Line and column of a byte of the text, both from 1, the column in characters; only `\n` ends a line, as in editors.
    pub(super) fn find(&self, text: &[u8], byte: usize) -> (u64, u64) {
        let byte = byte.min(text.len());
        let page = (byte / STEP).min(self.marks.len().saturating_sub(1));
        let mark = self.marks.get(page).copied().unwrap_or_default();
        let start = page.saturating_mul(STEP);
        let passed = text.get(start..byte).unwrap_or_default();
        let (line, column) = advance(mark, passed);
        (
            u64::from(line).saturating_add(1),
            u64::from(column).saturating_add(1),
        )
    }
}

/// Line and column behind `passed`.
fn advance((line, column): (u32, u32), passed: &[u8]) -> (u32, u32) {
    let mut newlines = 0u32;
    let mut tail = passed;
    // without the first part, which ends the line that was begun before
    for part in passed.split(|&b| b == b'\n').skip(1) {
        newlines = newlines.saturating_add(1);
        tail = part;
    }
    let column = if newlines > 0 { 0 } else { column };
    // in UTF-8 the bytes of the form 10xxxxxx continue a character
    let is_first_byte = |b: &&u8| **b & 0xC0 != 0x80;
    let characters = tail.iter().filter(is_first_byte).count();
    // a chunk has 512 bytes, so this never fails
    let characters = u32::try_from(characters).unwrap_or(u32::MAX);
    (
        line.saturating_add(newlines),
        column.saturating_add(characters),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_counted_from_one_in_characters() {
        let text = "a: é\nb: [1,\r\n 2]\n";
        let lines = Lines::new(text.as_bytes());
        let of = |needle: &str| lines.find(text.as_bytes(), text.find(needle).unwrap());
        assert_eq!(of("a"), (1, 1));
        assert_eq!(of("\nb"), (1, 5));
        assert_eq!(of("2]"), (3, 2));
        assert_eq!(lines.find(text.as_bytes(), text.len()), (4, 1));
        assert_eq!(Lines::new(b"").find(b"", 7), (1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_place_is_what_counting_from_the_start_gives(parts in prop::collection::vec("[a-zé名]{0,900}\n?", 0..12), pick: prop::sample::Index) {
            let text = parts.concat();
            let places: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
            let byte = *pick.get(&places);
            let before = &text[..byte];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            prop_assert_eq!(Lines::new(text.as_bytes()).find(text.as_bytes(), byte), (line as u64, column as u64));
        }
    }
}
