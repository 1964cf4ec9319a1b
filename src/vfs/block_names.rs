//! The names in `blocks/`: how they are spelled, and how one is made and removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::sync::Arc;

use super::node::Node;
use super::{Error, Result, State, Vfs, index};
use crate::source::{Memory, Source};

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
        loop {
            let state = self.state();
            let layout = state.snapshot.layout();
            let count = layout.blocks.len();
            let n =
                block_number(name)
                    .filter(|&n| index(n) == count)
                    .ok_or(Error::NotPermitted(
                        "a new block gets the next free number, and nothing else can be made here",
                    ))?;
            if layout.streamed() {
                return Err(Error::NotPermitted("nothing can follow a streamed block"));
            }
            // another thread may show a FILE that has a block of this number: an empty draft would hide that
            let is_shown = || Arc::ptr_eq(&self.state(), &state);
            let empty = || -> Arc<dyn Source> { Arc::new(Memory::new(Vec::new())) };
            let draft = {
                let made = Some(Node::Block(n));
                self.edits
                    .get_or_begin(count, made, || is_shown().then(empty))
            };
            if draft.is_some() {
                return Ok(Node::Block(n));
            }
        }
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
        if self.edits.forget_unopened(count) && n == count {
            return Ok(());
        }
        self.commit_removal(n)
    }

    /// That block `n` is the last one, that no array uses it, and that no draft is of it or behind it.
    pub(super) fn check_removable(&self, state: &State, n: usize) -> Result<()> {
        let count = state.snapshot.layout().blocks.len();
        let is_edited = self.edits.any_from(n);
        if n >= count && !is_edited {
            return Err(Error::NotFound);
        }
        if n.saturating_add(1) < count {
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
        if is_edited {
            return Err(Error::Busy(
                "the block, or a new one behind it, is being edited",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::asdf::sample::Sample;
    use crate::vfs::testing::writable;
    use crate::vfs::{Access, FileFacts};

    /// The block that another program had added was empty in the mount, and in FILE after the next write to it.
    #[test]
    fn a_block_is_made_only_if_the_file_that_is_shown_has_none_of_its_number() {
        let (_dir, vfs) = writable(&Sample::new().block(b"a"));
        let (_other_dir, other) = writable(&Sample::new().block(b"a").block(b"b"));
        let (old, new) = (vfs.state(), other.state());
        let owners = Arc::strong_count(&old);
        thread::scope(|scope| {
            let mut making = None;
            vfs.edits.while_none(1, || {
                making = Some(scope.spawn(|| vfs.make_block("1.bin".as_ref())));
                // the other thread has the old state, and waits for the table of edits
                while Arc::strong_count(&old) == owners {
                    thread::yield_now();
                }
                *vfs.state.write().unwrap() = new;
            });
            let made = making.unwrap().join().unwrap();
            assert!(matches!(made, Err(Error::NotPermitted(_))), "{made:?}");
        });
        assert!(vfs.edits.get(1).is_none());
    }

    /// There was "no such file".
    #[test]
    fn a_new_block_that_is_open_for_writing_is_busy() {
        let (_dir, vfs) = writable(&Sample::new().block(b"a"));
        let write = Access {
            write: true,
            ..Access::default()
        };
        let name = "1.bin".as_ref();
        let made = vfs.create(Node::Blocks, name, FileFacts::new(0o600, 0, 0), write);
        let handle = made.unwrap().1.handle;
        let remove = || vfs.unlink(Node::Blocks, name);
        assert!(matches!(remove(), Err(Error::Busy(_))));
        vfs.flush(&handle, 0).unwrap();
        vfs.release(&handle);
        remove().unwrap();
        assert!(matches!(remove(), Err(Error::NotFound)));
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
