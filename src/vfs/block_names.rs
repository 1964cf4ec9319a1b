//! The names in `blocks/`: how they are spelled, and how one is made and removed.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;

use super::attr::WRITE;
use super::blocks::Blocks;
use super::data::DataHandle;
use super::node::Node;
use super::saves::Saves;
use super::{Error, Result, State, Vfs, index};

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

impl State {
    /// The node of a block that is to be made.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if it would not be the next one.
    pub(super) fn new_block(&self, name: &OsStr) -> Result<Node> {
        let layout = self.snapshot.layout();
        let next = block_number(name).filter(|&n| index(n) == layout.blocks.len());
        let next = next.ok_or(Error::NotPermitted(
            "a new block gets the next free number, and nothing else can be made here",
        ))?;
        if layout.streamed() {
            return Err(Error::NotPermitted("nothing can follow a streamed block"));
        }
        Ok(Node::Block(next))
    }
}

impl DataHandle {
    /// Opens a block for writing that FILE does not have yet: it is saved when it is closed, even if nothing is written. If another thread
    /// has made it, or FILE has it, opens that. Whether it was made.
    pub(super) fn make_block(saves: &Saves, node: Node) -> Result<(Self, bool)> {
        let state = saves.shown.now();
        // an array in no block can't be opened for writing either, and that says why
        if let Some(block) = state.block_of(node)
            && block >= state.snapshot.layout().blocks.len()
            && let Some(made) = saves.blocks.make(&state, block, node)
        {
            return Ok((Self::new(node, &state, Some(made)), true));
        }
        Ok((Self::open(saves, &state, node, WRITE)?, false))
    }
}

impl Vfs {
    /// Takes away the name of a block: that of the last one, which no array uses, with the block; that of another one for a while, as `mv`
    /// from another file system takes it before it makes the file.
    pub(super) fn remove_block(&self, name: &OsStr) -> Result<()> {
        let n = block_number(name).ok_or(Error::NotFound)?;
        let state = self.shown.now();
        if index(n) >= state.snapshot.layout().blocks.len() || is_removable(&state, index(n)) {
            return self.saves.remove_last_block(n);
        }
        let written = self.blocks.writer_of(index(n));
        if let Some(written) = written.filter(|written| written.has_block_in(&state)) {
            return Err(state.in_use(written.file));
        }
        if self.scratch.hidden(Node::Blocks).contains(name) {
            return Err(Error::NotFound);
        }
        // the block stays in FILE: its name comes back if no program makes it again
        self.scratch.hide(Node::Blocks, name)
    }
}

impl Blocks {
    /// That block `n` is the last one, that no array uses it, and that none is being made behind it.
    pub(super) fn check_removable(&self, state: &State, n: usize) -> Result<()> {
        if self.any_behind(n) {
            return Err(Error::Busy("a new block behind it is being written"));
        }
        if n >= state.snapshot.layout().blocks.len() {
            return Err(Error::NotFound);
        }
        if is_removable(state, n) {
            return Ok(());
        }
        Err(Error::Busy("arrays use this block by now"))
    }
}

/// Whether block `n` is the last one, and no array uses it.
fn is_removable(state: &State, n: usize) -> bool {
    let snapshot = &state.snapshot;
    n.saturating_add(1) == snapshot.layout().blocks.len()
        && snapshot.block_users().get(n).is_none_or(Vec::is_empty)
        && snapshot
            .chunk_blocks()
            .is_ok_and(|blocks| !blocks.contains(&n))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::asdf::sample::Sample;
    use crate::error::Error as Library;
    use crate::vfs::testing::writable;
    use crate::vfs::{Call, FileFacts};

    /// The block that another program had added was empty in the mount, and in FILE after the next write to it.
    #[test]
    fn a_block_that_another_program_adds_is_not_the_one_that_is_being_made() {
        let (dir, vfs) = writable(&Sample::new().block(b"a"));
        let name = "1.bin".as_ref();
        let made = vfs.create(Node::Blocks, name, FileFacts::new(0o600, 0, 0), WRITE);
        let made = made.unwrap().1.handle;
        let other = Sample::new().block(b"a").block(b"b").bytes();
        fs::write(dir.path().join("a.asdf"), other).unwrap();
        vfs.saves.refresh_soon();
        assert_eq!(vfs.lookup(Node::Blocks, name).unwrap().size, 1);
        let refused = vfs.write(&made, 0, b"x", false);
        let stale = matches!(refused, Err(Error::Library(Library::Stale { .. })));
        assert!(stale, "{refused:?}");
        vfs.release(&made);
        assert_eq!(vfs.lookup(Node::Blocks, name).unwrap().size, 1);
    }

    /// There was "no such file".
    #[test]
    fn a_new_block_that_is_open_for_writing_is_busy() {
        let (_dir, vfs) = writable(&Sample::new().block(b"a"));
        let name = "1.bin".as_ref();
        let made = vfs.create(Node::Blocks, name, FileFacts::new(0o600, 0, 0), WRITE);
        let handle = made.unwrap().1.handle;
        let remove = || vfs.unlink(Node::Blocks, name);
        let busy = remove().unwrap_err().errno(Call::Unlink);
        assert_eq!(busy, rustix::io::Errno::BUSY.raw_os_error());
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
