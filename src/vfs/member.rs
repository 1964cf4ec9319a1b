//! What a mount asks of a file that is one of many: it is closed when nothing of it is used, and opened again later.

use std::fs::Metadata;
use std::sync::Arc;

use super::refresh::everything;
use super::{Vfs, locked};
use crate::asdf::Snapshot;

impl Vfs {
    /// Gives names under `arrays/` only numbers above `base`: those up to it are known to the kernel for names that an earlier
    /// [`Vfs`] of FILE gave, before FILE was changed. Those from there up to `known` it may know for the names of FILE as it is. To be
    /// called before anything is looked up.
    pub fn number_behind(&self, base: u32, known: u32) {
        self.state().number_behind(base, known);
    }

    /// The last number that a name under `arrays/` was given.
    #[must_use]
    pub fn last_number(&self) -> u32 {
        self.state().last_number()
    }

    /// Has the kernel told that what it knows of FILE's bytes is out of date.
    pub fn tell_all(&self) {
        let state = self.state();
        drop(
            self.kernel
                .announce(everything(&state, &state).collect(), None),
        );
    }

    /// FILE's attributes from before the state that is shown was read.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.state().meta.clone()
    }

    /// The same, if a [`Vfs`] of FILE as it is then gives names under `arrays/` the numbers that they have here.
    #[must_use]
    pub fn numbered_metadata(&self) -> Option<Metadata> {
        let state = self.state();
        let lasts = state.timed && state.is_numbered_as_anew();
        lasts.then(|| state.meta.clone())
    }

    /// The snapshot that is shown.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    /// Whether FILE has become something that can't be shown.
    #[must_use]
    pub fn is_out_of_date(&self) -> bool {
        self.saver.check_up_to_date().is_err()
    }

    /// Whether this can be dropped, and made again from FILE when something is asked of it, without a loss: nothing that was
    /// written is kept here only, and the kernel has been told of all changes. Files that are open are the caller's to know.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.kernel.is_settled()
            && self.edits.is_empty()
            && self.beside.is_empty()
            && locked(&self.texts).is_at_rest()
            && self.unsaved().is_empty()
    }
}
