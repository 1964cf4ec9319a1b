//! Writing through the files of arrays: elements go where the array has them in its block.
//!
//! An array has the size of its shape. One that is emptied is written anew, see `rewrite`; what is passed over then reads as
//! zeros, as in any file.

use std::ops::Range;

use super::block_edits::BlockDraft;
use super::edit::{DataHandle, fixed_size};
use super::format::Format;
use super::node::Node;
use super::{Error, Result, State, Vfs};
use crate::asdf::scatter::scatter;
use crate::error::Place;
use crate::source::{Overlay, Source, len_u64};

/// Zeros that are written at a time over what was emptied.
const ZEROS: usize = 64 << 10;

impl Vfs {
    pub(super) fn write_array(
        &self,
        open: &DataHandle,
        draft: &BlockDraft,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let Node::Array(number, format) = open.node else {
            return Err(Error::NotFound);
        };
        let state = self.state();
        let header = format.header_len(&state.snapshot, state.array_index(number)?)?;
        let data = self.skip_header(open, header, offset, data)?;
        let at = offset.max(header).saturating_sub(header);
        let end = at.checked_add(len_u64(data.len()));
        let len = state.array(number)?.bin_len();
        if end.is_none_or(|end| end > len) {
            return Err(fixed_size());
        }
        let put = put(&state, number, format, &draft.overlay, at, data);
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

/// Puts bytes where the elements of an array are in its block, from byte `at` of them on.
pub(super) fn put(
    state: &State,
    number: u32,
    format: Format,
    overlay: &Overlay,
    at: u64,
    data: &[u8],
) -> Result<()> {
    let array = state.array(number)?;
    let i = state.array_index(number)?;
    let view = state.snapshot.array_view(i, overlay.len())?;
    if format.is_fortran(array) {
        overlay.write(view.extent().start.saturating_add(at), data)?;
    } else {
        let patch = &mut |offset, bytes: &[u8]| overlay.write(offset, bytes);
        scatter(&view, || Place::Array(array.path()), at, data, patch)?;
    }
    Ok(())
}

/// The same with zeros over elements that were emptied and passed over, as a hole in the file would read.
pub(super) fn put_zeros(
    state: &State,
    number: u32,
    format: Format,
    overlay: &Overlay,
    range: Range<u64>,
) -> Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end.saturating_sub(at)).map_or(ZEROS, |n| n.min(ZEROS));
        let zeros = zeros.get(..len).unwrap_or_default();
        put(state, number, format, overlay, at, zeros)?;
        at = at.saturating_add(len_u64(len));
    }
    Ok(())
}
