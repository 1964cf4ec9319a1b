//! References into other files: `$ref: "other.asdf#/path"`.
//!
//! ASDF Standard, "References". Nothing of the other file is shown here: what a reference can become is a link to the place where
//! another mount shows the other file. For its names the other file is read, within the bounds of external sources
//! ([`Sandbox`](super::external::Sandbox)). Knows nothing of mounts, which are `vfs`'s.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::find::NAMELESS;
use super::outline::PlaceId;
use super::outline::pointer::Pointers;
use super::paths::Paths;
use super::{OpenOptions, Snapshot};
use crate::error::{Error, Result, unsupported};
use crate::source::Stat;

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

    /// Its place in the tree.
    #[must_use]
    pub fn place(&self) -> PlaceId {
        self.place
    }

    /// Whether no name of a file can be made for it.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.paths.is_nameless(self.place)
    }

    /// The path of its files below `arrays/` if it stands for an array, without `.bin` or `.npy`.
    #[must_use]
    pub fn file_path(&self) -> String {
        self.paths.file_path(self.place)
    }

    /// The path of its link in a mount, likewise. If the paths of the tree are too long together, a long one is left out.
    #[must_use]
    pub fn listed_file(&self) -> Option<String> {
        let path = self.paths.listed(self.place);
        path.filter(|_| !self.is_nameless())
    }

    /// The file and the pointer within it, as the tree says them.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.paths.uri(self.place).unwrap_or_default()
    }
}

/// What a reference leads to, by its names below `arrays/` in a mount of the other file.
#[derive(Debug, Clone)]
pub struct Referent {
    paths: Arc<Paths>,
    place: PlaceId,
    is_array: bool,
    is_directory: bool,
}

impl Referent {
    /// The array that it is, without `.bin` or `.npy`.
    #[must_use]
    pub fn array(&self) -> Option<String> {
        self.is_array.then(|| self.paths.file_path(self.place))
    }

    /// The directory with the arrays in it; empty for `arrays/` itself.
    #[must_use]
    pub fn directory(&self) -> Option<String> {
        let path = || self.paths.directory_path(self.place);
        self.is_directory.then(path)
    }
}

/// What the references into one other file lead to, as that file is at the moment.
#[derive(Debug)]
pub struct Other {
    stat: Stat,
    referents: HashMap<usize, Result<Referent>>,
}

impl Other {
    /// What that reference leads to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no array, or the file can't be read.
    pub fn referent(&self, reference: usize) -> Result<&Referent> {
        match self.referents.get(&reference) {
            Some(found) => found.as_ref().map_err(Clone::clone),
            None => Err(unsupported("not a reference into that file")),
        }
    }
}

impl Snapshot {
    /// The references into other files, in the tree's order.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.found().references
    }

    /// The path of the file that a reference leads into, whether there is one or not. Nothing is opened.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it lies outside the directory that external sources may be in; if nothing can be named after the reference.
    pub fn file_referred_to(&self, reference: &Reference) -> Result<PathBuf> {
        if reference.is_nameless() {
            return Err(unsupported(NAMELESS));
        }
        self.sandbox("other files")?.located(reference.uri())
    }

    /// What all references into the file of this one lead to. `known` is given back if the file has not changed since.
    ///
    /// # Errors
    /// As [`Snapshot::file_referred_to`]; [`Error::Io`] if the attributes of the file can't be had.
    pub fn other(&self, reference: &Reference, known: Option<&Arc<Other>>) -> Result<Arc<Other>> {
        let path = self.file_referred_to(reference)?;
        let file = self.sandbox("other files")?.open(reference.uri())?;
        let meta = file
            .metadata()
            .map_err(|cause| Error::io("reading the file's attributes", cause))?;
        let stat = Stat::from(&meta);
        if let Some(known) = known.filter(|known| stat.is_untouched_since(&known.stat)) {
            return Ok(Arc::clone(known));
        }
        let into_it = self.references().iter().enumerate().filter(|(_, other)| {
            self.file_referred_to(other)
                .is_ok_and(|other| other == path)
        });
        Ok(Arc::new(Other {
            stat,
            referents: self.resolve(file, into_it),
        }))
    }

    /// What these references lead to in that file.
    fn resolve<'r>(
        &self,
        file: File,
        references: impl Iterator<Item = (usize, &'r Reference)>,
    ) -> HashMap<usize, Result<Referent>> {
        let opened = Self::open(
            Arc::new(file),
            Arc::clone(&self.cache),
            OpenOptions::default(),
        );
        let tree = opened.as_ref().map_err(Clone::clone);
        let mut tree = tree.and_then(|there| Ok((there, there.referred_to()?)));
        let mut find = |uri: &str| match &mut tree {
            Ok((there, pointers)) => there.referent(pointers, uri),
            Err(error) => Err(error.clone()),
        };
        references
            .map(|(i, reference)| (i, find(reference.uri())))
            .collect()
    }

    /// The tree of this file, for references into it.
    fn referred_to(&self) -> Result<Pointers<'_>> {
        let missing = || unsupported("the file referred to has no tree");
        let tree = self.tree().ok_or_else(missing)?.map_err(Clone::clone)?;
        Ok(Pointers::new(tree))
    }

    /// What the fragment of a URI leads to in this file.
    fn referent<'t>(&'t self, pointers: &mut Pointers<'t>, uri: &str) -> Result<Referent> {
        let fragment = uri.split_once('#').map_or("", |(_, fragment)| fragment);
        let found = self.found();
        let paths = found.paths.as_ref();
        // where a limit is in the way nothing is shown in a mount of the other file either
        let node = pointers.resolve(&format!("#{fragment}")).ok().flatten();
        let place = node.and_then(|node| paths?.outline().find(node.id()));
        paths
            .zip(place)
            .map(|(paths, place)| Referent {
                paths: Arc::clone(paths),
                place,
                is_array: found.is_shown(paths, place),
                is_directory: found.is_directory(paths, place),
            })
            .filter(|found| found.is_array || found.is_directory)
            .ok_or_else(|| {
                let why = format!("there is no array at {uri}");
                unsupported(why)
            })
    }
}
