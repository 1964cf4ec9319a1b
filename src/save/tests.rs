//! How saving is tested: a plan against a [`reference`] that knows the format only as bytes in a row, and as readers see it that
//! [`skip_along`]; each of the [`scenarios`] on a simulated [`disk`] that loses power or fails, in [`crash`]; and saves on a
//! [`real_disk`].

mod crash;
pub(super) mod disk;
mod others;
mod real_disk;
mod reference;
mod scenarios;
mod skip_along;

use std::sync::Arc;

use super::edit::Edit;
use super::store::Store;
use super::{Committed, Writer};
use crate::error::Result;
use crate::source::{Memory, Source};

fn source(bytes: &[u8]) -> Arc<dyn Source> {
    Arc::new(Memory::new(bytes.to_vec()))
}

impl<S: Store> Writer<S> {
    /// A save with nothing to observe.
    pub(super) fn save(&mut self, edit: &Edit) -> Result<Committed<S::File>> {
        self.commit(edit, &mut |_| ())
    }
}
