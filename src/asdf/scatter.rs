//! The way back: bytes written to an array in C order become patches of its block.

use super::copy::{CopyAxis, copy};
use super::strided::View;
use super::tile::{Grain, Tile, in_memory, misplaced, positions};
use crate::error::{Error, Place, Result};
use crate::source::checked_end;

/// Only whole runs are written: what lies between them is not ours.
const GRAIN: Grain = Grain {
    gap: 0,
    ..Grain::DEFAULT
};

/// Calls `patch` for each run of the block that changes when `bytes` are written at `offset` in C order to the array of `view`;
/// with the block offset and the new bytes of the run. `at` is the array's place, for the error.
///
/// Runs are as long as the write makes them, across elements and rows, and do not overlap; runs of whole rows ascend. Memory: at
/// most 1 MiB, and none for runs that lie in `bytes` as in the block.
///
/// # Errors
/// [`Error::Rejected`] if elements share bytes, so that a write could not be read back; [`Error::Corrupt`] if the write reaches
/// beyond the end of the array, before any patch; what `patch` returns.
pub fn scatter(
    view: &View,
    at: impl FnOnce() -> Place,
    offset: u64,
    bytes: &[u8],
    patch: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    // a byte that two elements share could keep only one of the two values written
    if !view.is_injective() {
        return Err(Error::Rejected {
            at: at(),
            why: "elements of the array share bytes of its block".to_owned(),
            advice: "write to the block under blocks/ instead".to_owned(),
        });
    }
    // before the first patch, so that a write that is too long changes nothing
    let end = checked_end(offset, bytes.len(), view.len())?;
    let mut scratch = Vec::new();
    let mut rest = bytes;
    for part in view.parts(offset..end) {
        let (from, tail) = rest.split_at(in_memory(part.len())?.min(rest.len()));
        part.cut(GRAIN, &mut |tile| {
            scatter_tile(tile, from, &mut scratch, patch)
        })?;
        rest = tail;
    }
    Ok(())
}

/// Calls `patch` with the pieces of a tile. `bytes` is the box from which the tile was cut, in C order. Runs that lie alone in the
/// block are taken straight from `bytes`, others are first put together in `scratch`.
fn scatter_tile(
    tile: &Tile,
    bytes: &[u8],
    scratch: &mut Vec<u8>,
    patch: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let pieces = tile.pieces(GRAIN.gap);
    let (inside, between) = tile.walks.split_at(pieces.joined);
    let (span, run) = (in_memory(pieces.span)?, in_memory(tile.run)?);
    // each run lies alone: it is taken from `bytes` without a copy
    if inside.is_empty() {
        return positions(between, tile.low, tile.first, &mut |offset, first| {
            let piece = bytes
                .get(in_memory(first)?..)
                .and_then(|bytes| bytes.get(..run));
            patch(offset, piece.ok_or_else(misplaced)?)
        });
    }
    let packed = in_memory(pieces.packed())?;
    // grows to the largest tile and serves all tiles of the write
    if scratch.len() < packed {
        scratch.resize(packed, 0);
    }
    let steps: Vec<_> = tile
        .steps(&pieces)?
        .into_iter()
        .map(CopyAxis::turned_back)
        .collect();
    let from = (bytes, in_memory(tile.first)?);
    copy(from, (scratch, 0), &steps, run).ok_or_else(misplaced)?;
    let mut packed = scratch.chunks(in_memory(pieces.pitch())?);
    positions(between, tile.low, 0, &mut |offset, _| {
        let piece = packed.next().and_then(|piece| piece.get(..span));
        patch(offset, piece.ok_or_else(misplaced)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asdf::buffers::Buffers;
    use crate::asdf::gather::Strided;
    use crate::asdf::tests::view_cases::cases;
    use crate::source::{Memory, Source};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn patches(view: &View, offset: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut patches = Vec::new();
        scatter(view, || Place::File, offset, bytes, &mut |at, bytes| {
            patches.push((at, bytes.to_vec()));
            Ok(())
        })
        .unwrap();
        patches
    }

    fn lengths(view: &View, offset: u64, len: usize) -> Vec<(u64, usize)> {
        patches(view, offset, &vec![0; len])
            .into_iter()
            .map(|(at, bytes)| (at, bytes.len()))
            .collect()
    }

    proptest! {
        #[test]
        fn a_write_changes_the_bytes_of_its_elements_and_is_read_back(
            case in cases(),
            write in (0u64..3000, 0u64..1000),
        ) {
            let view = case.view();
            prop_assume!(view.is_injective());
            let start = write.0 % (view.len() + 1);
            let len = write.1.min(view.len() - start);
            let bytes: Vec<_> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            let mut want = vec![0; case.block_len as usize];
            for (byte, &place) in bytes.iter().zip(&case.places()[start as usize..]) {
                want[place as usize] = *byte;
            }
            let mut block = vec![0; case.block_len as usize];
            for (at, patch) in patches(&view, start, &bytes) {
                let old = &mut block[at as usize..][..patch.len()];
                prop_assert!(!patch.is_empty() && old.iter().all(|&byte| byte == 0), "written twice");
                old.copy_from_slice(&patch);
            }
            prop_assert_eq!(&block, &want);
            let array = Strided::new(Arc::new(Memory::new(block)), view, &Buffers::alone(0, Grain::DEFAULT)).unwrap();
            let mut read = vec![0; bytes.len()];
            array.read_exact_at(&mut read, start).unwrap();
            prop_assert_eq!(read, bytes);
        }
    }

    #[test]
    fn runs_are_joined_across_rows_of_a_transposed_array() {
        let view = View::new(8, &[4, 3], Some(&[8, 100]), 0, 1000).unwrap();
        assert_eq!(lengths(&view, 0, 96), [(0, 32), (100, 32), (200, 32)]);
        assert_eq!(lengths(&view, 24, 48), [(8, 16), (108, 16), (208, 16)]);
        assert_eq!(lengths(&view, 20, 10), [(204, 4), (8, 6)]);
    }

    #[test]
    fn a_write_larger_than_the_scratch_buffer_is_read_back() {
        let (rows, columns) = (700u64, 500u64);
        let bytes: Vec<_> = (0..8 * rows * columns)
            .map(|i| (i * 31 / 8) as u8)
            .collect();
        for (gap, count) in [(0, 3), (8, rows as usize)] {
            let row = 8 * columns + gap;
            for (step, offset) in [(8, 0), (-8, 8 * (columns - 1))] {
                let strides = [step, row as i64];
                let view = View::new(8, &[columns, rows], Some(&strides), offset, row * rows);
                let view = view.unwrap();
                let patches = patches(&view, 0, &bytes);
                assert_eq!(patches.len(), count);
                let mut block = vec![0; (row * rows) as usize];
                for (at, patch) in patches {
                    block[at as usize..][..patch.len()].copy_from_slice(&patch);
                }
                let block = Arc::new(Memory::new(block));
                let array = Strided::new(block, view, &Buffers::alone(0, Grain::DEFAULT)).unwrap();
                let mut read = vec![0; bytes.len()];
                array.read_exact_at(&mut read, 0).unwrap();
                assert!(read == bytes);
            }
        }
    }

    #[test]
    fn a_mirrored_array_is_one_run() {
        let view = View::new(2, &[2, 3], Some(&[-6, -2]), 20, 1000).unwrap();
        assert_eq!(
            patches(&view, 2, &[1, 2, 3, 4, 5, 6]),
            [(14, vec![5, 6, 3, 4, 1, 2])]
        );
    }

    #[test]
    fn a_large_write_in_a_dense_array_is_one_patch() {
        let view = View::new(8, &[1 << 10, 1 << 10], None, 3, 10 << 20).unwrap();
        assert_eq!(lengths(&view, 5, 8 << 20 >> 1), [(8, 4 << 20)]);
    }

    #[test]
    fn elements_that_share_bytes_are_not_written() {
        let view = View::new(4, &[97, 4], Some(&[4, 4]), 0, 400).unwrap();
        let at = || Place::Array("w".to_owned());
        let error = scatter(&view, at, 0, &[0; 4], &mut |_, _| panic!("patched")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "array w: elements of the array share bytes of its block; write to the block under blocks/ instead"
        );
    }

    #[test]
    fn a_write_beyond_the_end_changes_nothing() {
        let view = View::new(4, &[2], Some(&[8]), 0, 100).unwrap();
        let wrote = scatter(&view, || Place::File, 4, &[0; 5], &mut |_, _| {
            panic!("patched")
        });
        assert!(matches!(wrote, Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_patch_that_fails_ends_the_write() {
        let view = View::new(4, &[2], Some(&[8]), 0, 100).unwrap();
        let mut calls = 0;
        let wrote = scatter(&view, || Place::File, 0, &[0; 8], &mut |_, _| {
            calls += 1;
            Err(Error::corrupt(Place::File, "no"))
        });
        assert!(wrote.is_err());
        assert_eq!(calls, 1);
    }
}
