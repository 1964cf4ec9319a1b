//! The forms in which `arrays/` shows an array. `fits/` and `previews/` are not forms but views, see [`views`](super::views).
//!
//! # A new view
//!
//! A further file of an array is a [`View`](super::View) if it can only be read, and a [`Format`] if it can be written, too: what is
//! written to any file of `arrays/` is saved, and each array has a file in each format.
//!
//! For a `View`: its methods, [`Views`](super::views::Views) and `InViews::source` in `views`; its numbers in [`Node`](super::Node); an
//! option in [`VfsOptions`](super::VfsOptions) and in `cli::options`; the manual, the README and `tests/integration/views.rs`.
//!
//! For a `Format`:
//! - here its methods, and in [`Node`](super::Node) its number: the compiler tells of these;
//! - its suffix in `asdf::names`, from which all names follow, and in [`ArrayData`] its length, which `--list` tells, too;
//! - if its header is not one of NPY, in `array_file` how that is read, and in `import` what of it changes the tree. The header may not be
//!   written over in place, and if its length changes, a handle is refused (`ESTALE`);
//! - `tests/integration/rewrite.rs`, the manual and the README.

use std::sync::Arc;

use crate::asdf::names::SUFFIXES;
use crate::asdf::{Array, ArrayData, Snapshot};
use crate::error::Result;
use crate::source::{Overlay, Source};

/// A form in which the elements of an array are a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The elements in C order, `.bin`.
    Bin,
    /// With an NPY header in front, and in Fortran order if they lie so, `.npy`.
    Npy,
}

impl Format {
    /// All of them, in the order of [`SUFFIXES`].
    pub(super) const ALL: [Self; 2] = [Self::Bin, Self::Npy];

    /// What names of such files end with.
    pub(super) fn suffix(self) -> &'static str {
        let [bin, npy] = SUFFIXES;
        match self {
            Self::Bin => bin,
            Self::Npy => npy,
        }
    }

    /// Bytes of the file of an array.
    pub(super) fn len(self, data: &ArrayData) -> u64 {
        let [bin, npy] = data.file_lens();
        match self {
            Self::Bin => bin,
            Self::Npy => npy,
        }
    }

    /// Whether a header comes before the elements.
    pub(super) fn has_header(self) -> bool {
        match self {
            Self::Bin => false,
            Self::Npy => true,
        }
    }

    /// How many bytes of the file of array `i` are in front of its elements.
    pub(super) fn header_len(self, snapshot: &Snapshot, i: usize) -> Result<u64> {
        match self {
            Self::Bin => Ok(0),
            Self::Npy => snapshot.npy_header_len(i),
        }
    }

    /// Whether the elements of an array are in Fortran order.
    pub(super) fn is_fortran(self, array: &Array) -> bool {
        self == Self::Npy && array.is_fortran()
    }

    /// The file of array `i`, as it is saved.
    pub(super) fn saved(self, snapshot: &Snapshot, i: usize) -> Result<Arc<dyn Source>> {
        match self {
            Self::Bin => snapshot.array_bin(i),
            Self::Npy => snapshot.array_npy(i),
        }
    }

    /// The file of array `i` with these bytes for its block.
    pub(super) fn over(
        self,
        snapshot: &Snapshot,
        i: usize,
        block: Arc<Overlay>,
    ) -> Result<Arc<dyn Source>> {
        match self {
            Self::Bin => snapshot.array_over(i, block),
            Self::Npy => snapshot.npy_over(i, block),
        }
    }
}
