//! The names in `blocks/`: how they are spelled, and how one is made and removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::sync::Arc;

use super::node::Node;
use super::{Error, Result, State, Vfs, index};
use crate::source::Memory;

/// The name of block `n`.
pub(super) fn block_name(n: impl Display) -> OsString {
    format!("{n}.bin").into()
}

/// `N` of `N.bin`, spelled as it is listed.
pub(super) fn block_number(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_suffix(".bin")?;
    let n = digits.parse::<u32>().ok()?;
    (n.to_string() == digits).then_some(n)
}

impl Vfs {
    /// A new block at the end, which begins to exist when it is written to, or is closed after it was open for writing.
    pub(super) fn make_block(&self, name: &OsStr) -> Result<Node> {
        let state = self.state();
        let layout = state.snapshot.layout();
        let count = layout.blocks.len();
        let n = block_number(name)
            .filter(|&n| index(n) == count)
            .ok_or(Error::NotPermitted(
                "a new block gets the next free number, and nothing else can be made here",
            ))?;
        if layout.streamed() {
            return Err(Error::NotPermitted("nothing can follow a streamed block"));
        }
        self.edits
            .get_or_begin(count, || Some(Arc::new(Memory::new(Vec::new()))));
        Ok(Node::Block(n))
    }

    /// Has a block that was made, and is open for writing now, saved when it is closed, even if nothing is written.
    pub(super) fn begin_block(&self, node: Node) {
        if let Node::Block(n) = node
            && index(n) >= self.state().snapshot.layout().blocks.len()
            && let Some(draft) = self.edits.get(index(n))
        {
            draft.touch(node);
        }
    }

    /// Removes the last block, if no array uses it.
    pub(super) fn remove_block(&self, name: &OsStr) -> Result<()> {
        let state = self.state();
        let n = index(block_number(name).ok_or(Error::NotFound)?);
        let count = state.snapshot.layout().blocks.len();
        if n == count && self.edits.forget_unopened(count) {
            return Ok(());
        }
        if self.edits.forget_unopened(count) {
            self.tell_block_gone(count);
        }
        self.commit_removal(n)
    }

    /// That block `n` is the last one, that no array uses it, and that no draft is of it or behind it.
    pub(super) fn check_removable(&self, state: &State, n: usize) -> Result<()> {
        let count = state.snapshot.layout().blocks.len();
        if n >= count {
            return Err(Error::NotFound);
        }
        if n.checked_add(1) != Some(count) {
            return Err(Error::NotPermitted("only the last block can be removed"));
        }
        if state
            .snapshot
            .block_users()
            .get(n)
            .is_some_and(|users| !users.is_empty())
        {
            return Err(Error::Busy(
                "arrays use this block: take them out of tree.yaml first",
            ));
        }
        if self.edits.any_from(n) {
            return Err(Error::Busy(
                "the block, or a new one behind it, is being edited",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
