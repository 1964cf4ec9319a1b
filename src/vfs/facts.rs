//! Owner and mode of FILE, which are those of the files of the mount, changed through them.
//!
//! The kernel has checked by then that the user may change those of the file that it knows, by the owner that is shown. The daemon may be
//! root, and the owner that is shown an option's: so it is asked here who FILE belongs to.

use super::node::Node;
use super::{Attr, Attributes, Error, Result, Vfs};
use crate::save::store::Facts;

/// The permission bits of a mode, with set-id and sticky bits.
const MODE_MASK: u32 = 0o7777;
/// Of them, those by which a file is a program, or a directory is searched.
const EXECUTE_BITS: u32 = 0o111;
/// The number of the user who may change any file.
const ROOT: u32 = 0;

impl Vfs {
    /// Gives FILE the owner and the mode that a file of the mount is to have, which has these attributes now. What it has already is no
    /// change. Execute bits are ignored, as files of the mount never show any, and `install` sets them on all; so are bits that `umask=` hides.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the file has an owner and mode of its own, or shows those that options give; if the user may not do
    /// that to FILE; for set-id and sticky bits. [`Error::Library`] if FILE is another by now, or the system refuses.
    pub(super) fn set_facts(&self, now: &Attr, changes: &Attributes) -> Result<()> {
        let bits = MODE_MASK & !(EXECUTE_BITS | self.options.umask);
        let mode = changes.mode.map(|mode| mode & bits);
        let mode = mode.filter(|mode| *mode != u32::from(now.perm) & bits);
        let uid = changes.uid.filter(|uid| *uid != now.uid);
        let gid = changes.gid.filter(|gid| *gid != now.gid);
        if mode.is_none() && uid.is_none() && gid.is_none() {
            return Ok(());
        }
        if !has_facts_of_file(now.node) {
            return Err(Error::NotPermitted(
                "owner and mode of this file are not yours to change",
            ));
        }
        if mode.is_some_and(|mode| mode & !0o666 != 0) {
            return Err(Error::NotPermitted("FILE gets no set-id and sticky bits"));
        }
        if (uid.is_some() && self.options.uid.is_some())
            || (gid.is_some() && self.options.gid.is_some())
        {
            return Err(Error::NotPermitted(
                "an option of the mount gives the owner that is shown",
            ));
        }
        let mut writer = self.saves.writer()?;
        self.saves.catch_up(Some(&mut writer));
        let state = self.shown.now();
        let may = changes
            .by
            .is_some_and(|user| user == ROOT || (user == state.stat.uid && uid.is_none()));
        if !may {
            return Err(Error::NotPermitted(
                "only the owner of FILE and root change its owner and mode",
            ));
        }
        // bits that are not shown stay
        let mode = mode.map(|mode| mode | (state.stat.mode & MODE_MASK & !bits & 0o777));
        let stat = writer.set_facts(Facts { uid, gid, mode })?;
        if state.timed && stat.has_bytes_of(&state.stat) {
            self.saves.show_times(&state, Some(stat));
        }
        // else another program has changed FILE at the same time, which the next look finds
        Ok(())
    }
}

/// Whether owner and mode of a file of the mount are FILE's to be changed.
fn has_facts_of_file(node: Node) -> bool {
    matches!(
        node,
        Node::Root | Node::Tree(_) | Node::Scratch(_) | Node::Block(_) | Node::Array(..)
    )
}
