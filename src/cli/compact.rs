//! `--compact`: a file without the blocks that nothing uses, and without gaps. All other blocks are copied as they are stored.

use std::collections::HashSet;
use std::path::Path;

use super::exit::{Exit, Failure};
use super::explode::{Original, block, publish, unwritten};
use super::options::Options;
use crate::asdf::Snapshot;
use crate::asdf::decl::Storage;
use crate::asdf::sources::{block_index, storages, with_sources};
use crate::error::{Error, Place, Result};
use crate::save::{self, Room, WholeBlock};

/// Writes `file` to `out` without the blocks that no array uses.
pub(super) fn compact(out: &Path, file: &Path, options: &Options) -> Result<Exit, Failure> {
    let original = Original::open(file, options)?;
    let fail = |error: Error| unwritten(file, out, &error);
    let (text, blocks) = compacted(&original.snapshot).map_err(fail)?;
    let padding = original.snapshot.padding(Room::MOST).map_err(fail)?;
    let bytes = save::whole(text, &blocks, Room::Kept(padding)).map_err(fail)?;
    publish("compacting", &original, out, &bytes)?.map_err(fail)?;
    let sources = storages(&original.snapshot).map_err(fail)?;
    original.tell_unreached(out, &sources).map_err(fail)?;
    Ok(Exit::Ok)
}

/// The text with the new number of each block, and the blocks that are used.
fn compacted(snapshot: &Snapshot) -> Result<(Vec<u8>, Vec<WholeBlock>)> {
    let count = snapshot.layout().blocks.len();
    let mut used = vec![false; count];
    for storage in storages(snapshot)? {
        if let Storage::Block(source) = storage
            && let Some(used) = used.get_mut(block_index(source, count)?)
        {
            *used = true;
        }
    }
    let chunks = snapshot.chunk_blocks()?;
    for (n, used) in used.iter_mut().enumerate() {
        *used |= chunks.contains(&n);
    }
    check_known(snapshot, &used)?;
    let first = used.iter().position(|used| !used).unwrap_or(count);
    if let Some(n) = chunks.range(first..).next() {
        let why = "it is for chunks of an array: another block lists its number, which therefore can't change";
        return Err(Error::unsupported(Place::Block(*n), why));
    }
    let mut numbers = vec![0_usize; count];
    let mut blocks = Vec::new();
    for (n, (number, _)) in numbers
        .iter_mut()
        .zip(&used)
        .enumerate()
        .filter(|(_, (_, used))| **used)
    {
        *number = blocks.len();
        blocks.push(block(snapshot, n)?);
    }
    let all = i64::try_from(blocks.len()).unwrap_or(i64::MAX);
    let text = with_sources(snapshot, &|storage| {
        let Storage::Block(source) = storage else {
            return Ok(storage.clone());
        };
        let n = block_index(*source, count)?;
        let number = numbers
            .get(n)
            .and_then(|number| i64::try_from(*number).ok());
        let number = number.ok_or_else(|| refused("a block without a number"))?;
        // one that counts from the end does so still
        Ok(Storage::Block(if *source < 0 {
            number.saturating_sub(all)
        } else {
            number
        }))
    })?;
    Ok((text, blocks))
}

/// That nothing but arrays may name a block that goes or gets another number.
fn check_known(snapshot: &Snapshot, used: &[bool]) -> Result<()> {
    let Some(first) = used.iter().position(|used| !used) else {
        return Ok(());
    };
    if !used.contains(&true) {
        return Err(refused(
            "no array uses any of its blocks: another file may name them",
        ));
    }
    let unused: HashSet<usize> = snapshot.unused_blocks().into_iter().collect();
    if used
        .iter()
        .enumerate()
        .any(|(n, used)| *used == unused.contains(&n))
    {
        return Err(refused(
            "it is not known which blocks some of its arrays use",
        ));
    }
    let moved: HashSet<usize> = (first..used.len()).collect();
    match snapshot.other_user_of(&moved) {
        None => Ok(()),
        Some(at) => {
            let why = "this may be the number of a block, under a tag that is not known, and could become wrong";
            Err(Error::unsupported(at, why))
        }
    }
}

fn refused(why: &str) -> Error {
    Error::unsupported(Place::File, why)
}
