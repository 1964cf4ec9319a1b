//! The space between the text and the first block.
//!
//! ASDF Standard, "Low-level file layout", section "Tree": what it holds is free. But not every reader takes everything:
//! asdf-python 3.0 to 3.5 takes zeros only (`_reader.py`, `read_blocks_serially`), asdf-cxx and asdf-cpp no space at all.

/// What the user wants there to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pad {
    /// The byte that is there now, zeros where there is none or more than one; and no space where there was none, as far as
    /// blocks are copied in any case and that costs little.
    #[default]
    Kept,
    /// This byte.
    Filled(u8),
    /// No space: the blocks move whenever the length of the text changes.
    Absent,
}

/// Finds out what byte all of some bytes are, as they are read.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::save) struct Filler {
    first: Option<u8>,
    mixed: bool,
}

impl Filler {
    /// Takes in the bytes that follow.
    pub(in crate::save) fn update(&mut self, bytes: &[u8]) {
        if let Some(&byte) = bytes.first() {
            let first = *self.first.get_or_insert(byte);
            self.mixed |= bytes.iter().any(|&byte| byte != first);
        }
    }

    /// The byte; zero if there was none, or more than one.
    pub(in crate::save) fn byte(self) -> u8 {
        self.first.filter(|_| !self.mixed).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_byte_is_found_however_the_bytes_are_split(
            parts in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..4),
        ) {
            let mut filler = Filler::default();
            for part in &parts {
                filler.update(part);
            }
            let all = parts.concat();
            let same = all.iter().all(|byte| *byte == all[0]);
            let want = if same { all.first().copied().unwrap_or(0) } else { 0 };
            prop_assert_eq!(filler.byte(), want);
        }
    }
}
