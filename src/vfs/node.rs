//! The files of the mount, and their inode numbers.
//!
//! An inode number is computed from the node and back, without a table. The upper four of 32 bits tell the kind, the lower 28
//! bits which one of that kind. Names under `arrays/` get their numbers from [`Numbers`](super::catalogue::Numbers), in which a name keeps its
//! number and names that a save or another program brings in are added: so the inode of a name stays the same as long as its `Vfs` lives.
//! The kernel sees these numbers as they are only in the mount of one file that is not on a server; for others see `collection::Inode`.
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
//! - if its header is not one of NPY, in `import` how that is read, and what of it changes the tree. The header may not be
//!   written over in place, and if its length changes, a handle is refused (`ESTALE`);
//! - `tests/integration/rewrite.rs`, the manual and the README.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::sync::Arc;

use super::error::Error;
use crate::asdf::names::SUFFIXES;
use crate::asdf::{Array, ArrayData, Snapshot};
use crate::error::Result;
use crate::source::{Overlay, Source};

/// Bits of the number of a file in its kind.
const NUMBER_BITS: u32 = 28;
/// How many files of a kind there can be.
pub(super) const NUMBERS: u32 = 1 << NUMBER_BITS;

/// The name of the text of FILE.
pub(super) const TREE_NAME: &str = "tree.yaml";

/// The name of block `n`.
pub(super) fn block_name(n: impl Display) -> OsString {
    format!("{n}.bin").into()
}

/// `N` of `N.bin`, spelled as it is listed.
pub(super) fn block_number(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_suffix(".bin")?;
    let n = digits.parse::<u32>().ok()?;
    // `007.bin` and `+7.bin` are no names of block 7: a name has one spelling
    (n.to_string() == digits).then_some(n)
}

/// A further way to show arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// `fits/`: FITS files.
    Fits,
    /// `previews/`: pictures.
    Previews,
    /// `zarr/`: a group of Zarr, which has its own names.
    Zarr,
}

/// A file or directory of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The mount's root.
    Root,
    /// `blocks/`
    Blocks,
    /// `info/`
    Info,
    /// `info/status`
    Status,
    /// `info/blocks.tsv`
    BlocksTsv,
    /// `info/arrays.tsv`
    ArraysTsv,
    /// `info/fits.tsv`
    FitsTsv,
    /// `info/zarr.tsv`
    ZarrTsv,
    /// `info/stats.tsv`
    StatsTsv,
    /// `info/tree.json`
    TreeJson,
    /// `hdus/`, in a FITS file
    Hdus,
    /// `blocks/N.bin`
    Block(u32),
    /// A directory under `arrays/`; 0 is `arrays/` itself.
    ArrayDir(u32),
    /// A file of an array under `arrays/`, in one of the forms that it has.
    Array(u32, Format),
    /// A symlink under `arrays/`.
    ArrayLink(u32),
    /// A file that is, or was, `tree.yaml` and was not made under another name; 0 is the first.
    Tree(u32),
    /// A file that is not in FILE, which was made in the root or beside blocks or arrays.
    Scratch(u32),
    /// `hdus/N-….hdr`
    HduHeader(u32),
    /// `hdus/N-….bin`
    HduBin(u32),
    /// A directory of a view, with the number of that of `arrays/`; one of Zarr may have a number of its own.
    ViewDir(View, u32),
    /// A file of a view, with the number of its name, or one of its own.
    View(View, u32),
}

impl Node {
    /// The file that is `tree.yaml` when the file is mounted.
    pub const TREE: Self = Self::Tree(0);
    /// `arrays/`
    pub const ARRAYS: Self = Self::ArrayDir(0);

    /// Whether it has the bytes of a block or an array, which can be written.
    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::Block(_) | Self::Array(..))
    }

    /// Checks that it can be written.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub(super) fn check_writable(self) -> super::Result<()> {
        if self.is_data() || matches!(self, Self::Tree(_) | Self::Scratch(_)) {
            return Ok(());
        }
        let why = "it is made of the rest: write to tree.yaml, or to a file in arrays/ or blocks/";
        Err(Error::ReadOnly(why))
    }

    /// Whether it is a text under `info/`.
    pub(super) fn is_info(self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::BlocksTsv
                | Self::ArraysTsv
                | Self::FitsTsv
                | Self::ZarrTsv
                | Self::StatsTsv
                | Self::TreeJson
        )
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(self) -> u64 {
        let (kind, number) = match self {
            Self::Root => (0, 1),
            Self::Blocks => (0, 2),
            Self::Info => (0, 3),
            Self::Status => (0, 4),
            Self::BlocksTsv => (0, 5),
            Self::ArraysTsv => (0, 6),
            Self::Hdus => (0, 7),
            Self::FitsTsv => (0, 8),
            Self::StatsTsv => (0, 9),
            Self::TreeJson => (0, 10),
            Self::ZarrTsv => (0, 11),
            Self::Block(n) => (1, n),
            Self::ArrayDir(n) => (2, n),
            Self::Array(n, Format::Bin) => (3, n),
            Self::Array(n, Format::Npy) => (4, n),
            Self::ArrayLink(n) => (5, n),
            Self::Tree(n) => (6, n),
            Self::HduHeader(n) => (7, n),
            Self::HduBin(n) => (8, n),
            Self::Scratch(n) => (9, n),
            Self::ViewDir(View::Fits, n) => (10, n),
            Self::View(View::Fits, n) => (11, n),
            Self::ViewDir(View::Previews, n) => (12, n),
            Self::View(View::Previews, n) => (13, n),
            Self::ViewDir(View::Zarr, n) => (14, n),
            Self::View(View::Zarr, n) => (15, n),
        };
        (kind << NUMBER_BITS) | u64::from(number)
    }

    /// The node with that inode number, whether it exists or not.
    #[must_use]
    pub fn from_ino(ino: u64) -> Option<Self> {
        let number = u32::try_from(ino & u64::from(NUMBERS - 1)).ok()?;
        Some(match (ino >> NUMBER_BITS, number) {
            (0, 1) => Self::Root,
            (0, 2) => Self::Blocks,
            (0, 3) => Self::Info,
            (0, 4) => Self::Status,
            (0, 5) => Self::BlocksTsv,
            (0, 6) => Self::ArraysTsv,
            (0, 7) => Self::Hdus,
            (0, 8) => Self::FitsTsv,
            (0, 9) => Self::StatsTsv,
            (0, 10) => Self::TreeJson,
            (0, 11) => Self::ZarrTsv,
            (1, n) => Self::Block(n),
            (2, n) => Self::ArrayDir(n),
            (3, n) => Self::Array(n, Format::Bin),
            (4, n) => Self::Array(n, Format::Npy),
            (5, n) => Self::ArrayLink(n),
            (6, n) => Self::Tree(n),
            (7, n) => Self::HduHeader(n),
            (8, n) => Self::HduBin(n),
            (9, n) => Self::Scratch(n),
            (10, n) => Self::ViewDir(View::Fits, n),
            (11, n) => Self::View(View::Fits, n),
            (12, n) => Self::ViewDir(View::Previews, n),
            (13, n) => Self::View(View::Previews, n),
            (14, n) => Self::ViewDir(View::Zarr, n),
            (15, n) => Self::View(View::Zarr, n),
            _ => return None,
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_node_is_found_by_its_inode_number(n in 0..NUMBERS) {
            for node in [
                Node::Root, Node::Blocks, Node::Info, Node::Status, Node::BlocksTsv, Node::ArraysTsv,
                Node::Hdus, Node::HduHeader(n), Node::HduBin(n), Node::Scratch(n), Node::FitsTsv, Node::StatsTsv, Node::TreeJson,
                Node::ViewDir(View::Fits, n), Node::View(View::Fits, n),
                Node::ViewDir(View::Previews, n), Node::View(View::Previews, n),
                Node::ZarrTsv, Node::ViewDir(View::Zarr, n), Node::View(View::Zarr, n),
                Node::Block(n), Node::ArrayDir(n), Node::Array(n, Format::Bin), Node::Array(n, Format::Npy), Node::ArrayLink(n), Node::Tree(n),
            ] {
                prop_assert_eq!(Node::from_ino(node.ino()), Some(node));
            }
        }

        #[test]
        fn any_number_is_a_node_or_none(ino: u64) {
            if let Some(node) = Node::from_ino(ino) {
                prop_assert_eq!(node.ino(), ino);
            }
        }
    }

    #[test]
    fn block_names_are_spelled_in_one_way() {
        for (name, want) in [
            ("0.bin", Some(0)),
            ("12.bin", Some(12)),
            ("012.bin", None),
            ("+1.bin", None),
            (".bin", None),
            ("1", None),
        ] {
            assert_eq!(block_number(name.as_ref()), want, "{name}");
        }
    }
}
