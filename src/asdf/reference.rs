//! References into other files: `$ref: "other.asdf#/path"`.
//!
//! ASDF Standard, "References". References are listed; nothing of the other file is read or shown.

use std::sync::Arc;

use super::Snapshot;
use super::outline::PlaceId;
use super::paths::Paths;

/// A place in the tree that refers to something in another file.
#[derive(Debug, Clone)]
pub struct Reference {
    paths: Arc<Paths>,
    place: PlaceId,
}

impl Reference {
    pub(super) fn new(paths: &Arc<Paths>, place: PlaceId) -> Self {
        let paths = Arc::clone(paths);
        Self { paths, place }
    }

    /// Its path in the tree, components joined by `/`. If the paths of all arrays are too long together, a long one is cut.
    #[must_use]
    pub fn path(&self) -> String {
        self.paths.path(self.place)
    }

    /// The file and the pointer within it, as the tree says them.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.paths.uri(self.place).unwrap_or_default()
    }
}

impl Snapshot {
    /// The references into other files, in the tree's order.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.found().references
    }
}
