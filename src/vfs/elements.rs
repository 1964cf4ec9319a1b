//! Writing through the files of arrays: elements go where the array has them in its block.
//!
//! The size of an array follows from its shape. A file that is emptied is written anew, see `rewrite`: elements that are passed over then
//! read as zeros, as a hole in any file does.

use std::ops::Range;

use super::block_edits::BlockDraft;
use super::edit::{DataHandle, fixed_size};
use super::format::Format;
use super::node::Node;
use super::{Error, Result, State, Vfs};
use crate::asdf::Array;
use crate::asdf::npy::Header;
use crate::asdf::scatter::scatter;
use crate::error::{Error as Library, Place};
use crate::source::{Overlay, Source, len_u64};

/// Zeros that are written at a time over what was emptied.
const ZEROS: usize = 64 << 10;

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

    /// Bytes of elements that the file has with this header; without one, with that of the array.
    pub(super) fn full(self, header: Option<&Header>) -> u64 {
        header.map_or_else(|| self.array.bin_len(), Header::data_len)
    }

    /// Whether the array has the datatype and shape of a header.
    pub(super) fn is_of(self, header: &Header) -> bool {
        let known = self.array.datatype().zip(self.array.shape());
        known.is_some_and(|(datatype, shape)| header.is_of(datatype, shape))
    }

    /// Puts bytes where the elements of the array are in its block, from byte `at` of the elements on.
    pub(super) fn put(self, block: &Overlay, at: u64, data: &[u8]) -> Result<()> {
        let view = self.state.snapshot.array_view(self.index, block.len())?;
        if self.format.is_fortran(self.array) {
            block.write(view.extent().start.saturating_add(at), data)?;
        } else {
            let patch = &mut |offset, bytes: &[u8]| block.write(offset, bytes);
            let place = || Place::Array(self.array.path());
            scatter(&view, place, at, data, patch)?;
        }
        Ok(())
    }

    /// Puts zeros over elements that were emptied and passed over, as a hole in the file would read.
    pub(super) fn put_zeros(self, block: &Overlay, range: Range<u64>) -> Result<()> {
        let zeros = vec![0; ZEROS];
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end.saturating_sub(at)).map_or(ZEROS, |n| n.min(ZEROS));
            self.put(block, at, zeros.get(..len).unwrap_or_default())?;
            at = at.saturating_add(len_u64(len));
        }
        Ok(())
    }

    /// Why what was written to the file is not saved.
    pub(super) fn refused(self, why: String, advice: &str) -> Error {
        Error::Library(Library::Rejected {
            at: Place::Array(self.array.path()),
            why,
            advice: advice.to_owned(),
        })
    }
}

impl Vfs {
    /// Writes into the draft of the block that holds an array.
    pub(super) fn write_array(
        &self,
        open: &DataHandle,
        draft: &BlockDraft,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let state = self.state();
        let file = ArrayFile::of(&state, open.node)?;
        let header = file.format.header_len(&state.snapshot, file.index)?;
        let data = self.skip_header(open, header, offset, data)?;
        let at = offset.max(header).saturating_sub(header);
        let end = at.checked_add(len_u64(data.len()));
        if end.is_none_or(|end| end > file.array.bin_len()) {
            return Err(fixed_size());
        }
        let put = file.put(&draft.overlay, at, data);
        if put.is_err() && !draft.overlay.keeps_length() {
            return Err(Error::Busy("its block is being given another length"));
        }
        put?;
        draft.touch(open.node);
        Ok(())
    }

    /// The part of a write behind the NPY header. What lies in the header must be what is there already.
    fn skip_header<'a>(
        &self,
        open: &DataHandle,
        header: u64,
        offset: u64,
        data: &'a [u8],
    ) -> Result<&'a [u8]> {
        let inside = usize::try_from(header.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(data.len());
        let (inside, behind) = data.split_at(inside);
        if !inside.is_empty() {
            let mut there = vec![0; inside.len()];
            let reading = self.saver.reading();
            self.current_source(open, &reading)?
                .read_exact_at(&mut there, offset)?;
            if there != inside {
                return Err(Error::NotPermitted(
                    "the NPY header follows the tree: change datatype or shape there, or write all of the file anew",
                ));
            }
        }
        Ok(behind)
    }
}
