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
