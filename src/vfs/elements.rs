//! Writing through the files of arrays: elements go where the array has them in its block.
//!
//! An array has the size of its shape. One that `open` emptied is to be written to its end; what is passed over reads as zeros
//! then, as in any file.

use std::ops::Range;

use super::block_edits::BlockDraft;
use super::edit::{DataHandle, fixed_size};
use super::format::Format;
use super::node::Node;
use super::{Error, Result, State, Vfs, locked};
use crate::asdf::scatter::Scatter;
use crate::error::{Error as Library, Place};
use crate::source::{Source, len_u64};

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
        let state = self.state();
        let Node::Array(number, format) = open.node else {
            return Err(Error::NotFound);
        };
        let i = state.array_index(number)?;
        let header = format.header_len(&state.snapshot, i)?;
        let data = self.skip_header(open, header, offset, data)?;
        let at = offset.max(header).saturating_sub(header);
        let end = u64::try_from(data.len())
            .ok()
            .and_then(|len| at.checked_add(len));
        let len = state.array(number)?.bin_len();
        if end.is_none_or(|end| end > len) {
            return Err(fixed_size());
        }
        let mut rewritten = locked(&open.rewritten);
        if let Some(rewritten) = rewritten.as_mut() {
            put_zeros(&state, number, format, draft, *rewritten..at)?;
            *rewritten = (*rewritten).max(end.unwrap_or(0));
        }
        drop(rewritten);
        put_elements(&state, number, format, draft, at, data)?;
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
                    "the NPY header follows the tree: change datatype or shape there",
                ));
            }
        }
        Ok(behind)
    }

    /// Makes what is missing of an array that was emptied zeros.
    pub(super) fn fill_up(&self, open: &DataHandle, draft: &BlockDraft) -> Result<()> {
        let mut rewritten = locked(&open.rewritten);
        let (Some(rewritten), Node::Array(number, format)) = (rewritten.as_mut(), open.node) else {
            return Ok(());
        };
        let state = self.state();
        let len = state.array(number)?.bin_len();
        put_zeros(&state, number, format, draft, *rewritten..len)?;
        *rewritten = (*rewritten).max(len);
        draft.touch(open.node);
        Ok(())
    }

    /// An array that was emptied must have been written to its end.
    pub(super) fn check_rewritten(&self, open: &DataHandle) -> Result<()> {
        let Some(rewritten) = *locked(&open.rewritten) else {
            return Ok(());
        };
        let Node::Array(number, _) = open.node else {
            return Ok(());
        };
        let state = self.state();
        let array = state.array(number)?;
        if rewritten < array.bin_len() {
            return Err(Error::Library(Library::Rejected {
                at: Place::Array(array.path()),
                why: format!("{rewritten} bytes written of {}", array.bin_len()),
                advice: "write all of it, or change the shape in tree.yaml first".to_owned(),
            }));
        }
        Ok(())
    }
}

/// Puts bytes where the elements of an array are, from byte `at` of them on.
fn put_elements(
    state: &State,
    number: u32,
    format: Format,
    draft: &BlockDraft,
    at: u64,
    data: &[u8],
) -> Result<()> {
    let array = state.array(number)?;
    let overlay = &draft.overlay;
    let i = state.array_index(number)?;
    let view = state.snapshot.array_view(i, overlay.len())?;
    if format.is_fortran(array) {
        overlay.write(view.extent().start.saturating_add(at), data)?;
    } else {
        Scatter::new(view, Place::Array(array.path()))?.scatter(
            at,
            data,
            &mut |offset, bytes| overlay.write(offset, bytes),
        )?;
    }
    Ok(())
}

/// The same with zeros over elements that were emptied and passed over, as a hole in the file would read.
fn put_zeros(
    state: &State,
    number: u32,
    format: Format,
    draft: &BlockDraft,
    range: Range<u64>,
) -> Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = range.start;
    while at < range.end {
        let len = usize::try_from(range.end.saturating_sub(at)).map_or(ZEROS, |n| n.min(ZEROS));
        let zeros = zeros.get(..len).unwrap_or_default();
        put_elements(state, number, format, draft, at, zeros)?;
        at = at.saturating_add(len_u64(len));
    }
    Ok(())
}
