//! The file of an array: where its bytes go in the block.

use super::node::{Format, Node};
use super::{Error, Result, State};
use crate::asdf::Array;
use crate::asdf::npy::Header;
use crate::asdf::scatter::scatter;
use crate::error::{Error as Library, Place};
use crate::save::Put;
use crate::source::len_u64;

/// The file of an array, in a state that shows it.
#[derive(Clone, Copy)]
pub(super) struct ArrayFile<'a> {
    pub(super) state: &'a State,
    pub(super) array: &'a Array,
    /// Index of the array in the snapshot.
    pub(super) index: usize,
    pub(super) format: Format,
}

impl<'a> ArrayFile<'a> {
    /// The file of that node.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the state shows no array there.
    pub(super) fn of(state: &'a State, file: Node) -> Result<Self> {
        let Node::Array(number, format) = file else {
            return Err(Error::NotFound);
        };
        Ok(Self {
            state,
            array: state.array(number)?,
            index: state.array_index(number)?,
            format,
        })
    }

    /// Whether the array has the datatype and shape of a header.
    pub(super) fn is_of(self, header: &Header) -> bool {
        let known = self.array.datatype().zip(self.array.shape());
        known.is_some_and(|(datatype, shape)| header.is_of(datatype, shape))
    }

    /// Puts bytes where the elements of the array are in its block, which has `len` bytes, from byte `at` of the elements on.
    ///
    /// # Errors
    /// [`Library::Rejected`] if elements share bytes; that of `put`.
    pub(super) fn put(
        self,
        len: u64,
        at: u64,
        data: &[u8],
        put: &mut Put<'_>,
    ) -> Result<(), Library> {
        let view = self.state.snapshot.array_view(self.index, len)?;
        // the file shows the bytes in the order of the block, so they go there in one run
        if self.format.is_fortran(self.array) {
            let at = view.extent().start.checked_add(at);
            let beyond = || Library::corrupt(Place::Array(self.array.path()), "beyond 2^64");
            return put(at.ok_or_else(beyond)?, data);
        }
        let place = || Place::Array(self.array.path());
        scatter(&view, place, at, data, put)
    }

    /// Where in the elements a write into the file goes, and with which bytes. What goes into the NPY header must be there already.
    pub(super) fn elements_of(self, offset: u64, data: &[u8]) -> Result<(u64, &[u8])> {
        let snapshot = &self.state.snapshot;
        let header = self.format.header_len(snapshot, self.index)?;
        // a write that begins behind the header has elements only
        let Some(inside) = header.checked_sub(offset).filter(|&inside| inside > 0) else {
            return Ok((offset.saturating_sub(header), data));
        };
        let inside = usize::try_from(inside).map_or(data.len(), |inside| inside.min(data.len()));
        let (inside, behind) = data.split_at(inside);
        let mut there = vec![0; inside.len()];
        let file = self.format.saved(snapshot, self.index)?;
        file.read_exact_at(&mut there, offset)?;
        // programs that copy a file write the header that they have read: that is allowed, any other is a new form
        if there != inside {
            return Err(Error::NotPermitted(
                "the NPY header follows the tree: change datatype or shape in tree.yaml, or empty the file and write all of it",
            ));
        }
        Ok((0, behind))
    }

    /// Checks that a file that was written from its beginning has all of its bytes.
    pub(super) fn check_len(self, len: u64, full: u64) -> Result<()> {
        if len == full {
            return Ok(());
        }
        let why = format!("{len} bytes written of {full}");
        Err(self.refused(
            why,
            "write all of it, or change the shape in tree.yaml first",
        ))
    }

    /// Why what was written to the file is not saved.
    pub(super) fn refused(self, why: String, advice: &str) -> Error {
        Error::Library(Library::Rejected {
            at: Place::Array(self.array.path()),
            why,
            advice: advice.to_owned(),
        })
    }

    /// The header of an NPY file that was written from its beginning.
    pub(super) fn header(self, file: &dyn crate::source::Source) -> Result<Header> {
        /// More than any header that NumPy writes.
        const LONGEST: u64 = 1 << 17;
        let len = usize::try_from(file.len().min(LONGEST)).unwrap_or(0);
        let mut head = vec![0; len];
        file.read_exact_at(&mut head, 0)?;
        match Header::read(&head) {
            Ok(Some(header)) => Ok(header),
            Ok(None) => {
                let len = len_u64(head.len());
                let why = format!("{len} bytes written, which is no whole NPY header");
                Err(self.refused(why, "write all of the file"))
            }
            Err(Library::Corrupt { why, .. } | Library::Unsupported { why, .. }) => {
                Err(self.refused(why, "write what numpy.save does"))
            }
            Err(error) => Err(error.into()),
        }
    }
}
