//! How much the inline arrays of a tree may take in memory together.
//!
//! Short strings of a long datatype, and aliases of long lists, let a short text declare many arrays of [`MAX_BYTES`]. Each is in memory
//! while a program reads it.

use super::{Elements, MAX_BYTES};
use crate::asdf::tree::Tree;
use crate::error::{Result, unsupported};
use crate::source::len_u64;

/// Bytes of elements for each byte of the text. The shortest element with its comma, `1,`, takes two bytes of text and at most 16
/// bytes, as a complex number.
const PER_BYTE: u64 = 8;

/// The memory that is left for the inline arrays of a tree.
#[derive(Debug)]
pub struct Room {
    left: u64,
    all: u64,
}

impl Room {
    /// The room of a tree before its first array: enough for all numbers that its text can hold, and for one array
    /// of [`MAX_BYTES`] besides.
    #[must_use]
    pub fn of(tree: &Tree) -> Self {
        let numbers = len_u64(tree.bytes().len()).saturating_mul(PER_BYTE);
        let all = numbers.saturating_add(MAX_BYTES);
        Self { left: all, all }
    }

    /// Takes what the elements of an array need.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::error::Error::Unsupported) if less is left. Then nothing is taken.
    pub fn take(&mut self, elements: &Elements) -> Result<()> {
        let left = self.left.checked_sub(elements.len());
        self.left = left.ok_or_else(|| {
            let why = format!(
                "with this array, inline data of more than {} bytes in all",
                self.all
            );
            unsupported(why)
        })?;
        Ok(())
    }
}
