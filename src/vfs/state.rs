//! What the mount shows at one moment: a snapshot, and the names it gives.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use super::attr::{FileFacts, permissions};
use super::catalogue::{Catalogue, Item, Numbers, Target};
use super::elsewhere::Elsewhere;
use super::info::Lens;
use super::node::Node;
use super::{Error, Options, Result, locked};
use crate::asdf::outline::PlaceId;
use crate::asdf::{Array, Snapshot};

/// A snapshot, the names it gives, and FILE's attributes from before it was taken.
pub(super) struct State {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) meta: Metadata,
    /// How often another program had changed FILE by then.
    pub(super) epoch: u64,
    catalogue: OnceLock<Catalogue>,
    numbers: Arc<Mutex<Numbers>>,
    pub(super) elsewhere: Elsewhere,
    pub(super) info_lens: Lens,
}

/// The names in a directory.
pub(super) enum Listing {
    Few(Vec<(OsString, Node)>),
    Blocks(u32),
    Arrays(u32),
}

impl State {
    /// What `snapshot` shows, after another program has changed FILE `epoch` times. `meta`: FILE's attributes from before it was
    /// read, so that whatever another program changes meanwhile is noticed.
    pub(super) fn new(
        snapshot: Arc<Snapshot>,
        meta: Metadata,
        numbers: &Arc<Mutex<Numbers>>,
        epoch: u64,
    ) -> Self {
        Self {
            snapshot,
            meta,
            epoch,
            catalogue: OnceLock::new(),
            numbers: Arc::clone(numbers),
            elsewhere: Elsewhere::default(),
            info_lens: Lens::default(),
        }
    }

    /// Owner and group of FILE, or those that the user asked for.
    pub(super) fn owner(&self, options: &Options) -> (u32, u32) {
        let uid = options.uid.unwrap_or(self.meta.uid());
        (uid, options.gid.unwrap_or(self.meta.gid()))
    }

    /// What `tree.yaml` has of FILE, whoever made it.
    pub(super) fn facts(&self, options: &Options, mtime: SystemTime) -> FileFacts {
        let (uid, gid) = self.owner(options);
        FileFacts {
            perm: permissions(&self.meta, options.umask),
            uid,
            gid,
            mtime,
        }
    }

    /// The names under `arrays/`. Made when they are first asked for, from the tree.
    pub(super) fn catalogue(&self) -> &Catalogue {
        self.catalogue.get_or_init(|| match self.snapshot.places() {
            None => Catalogue::default(),
            Some(places) => {
                let items = items(&self.snapshot);
                Catalogue::new(places, items, &mut locked(&self.numbers))
            }
        })
    }

    /// Index of the array with that number.
    pub(super) fn array_index(&self, number: u32) -> Result<usize> {
        self.catalogue().array(number).ok_or(Error::NotFound)
    }

    /// The target of the link with that number.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, or none at the moment.
    pub(super) fn link(&self, number: u32) -> Result<Vec<u8>> {
        match self.catalogue().link(number).ok_or(Error::NotFound)? {
            Target::Here { from, to, ending } => {
                let places = self.snapshot.places().ok_or(Error::NotFound)?;
                let way = places.relative(*from, *to, ending.is_none());
                Ok((way + ending.unwrap_or_default()).into_bytes())
            }
            Target::Elsewhere(reference, ending) => self
                .target_elsewhere(*reference, *ending)
                .ok_or(Error::NotFound),
        }
    }

    /// The array with that number.
    pub(super) fn array(&self, number: u32) -> Result<&Array> {
        self.snapshot
            .arrays()
            .get(self.array_index(number)?)
            .ok_or(Error::NotFound)
    }
}

impl Listing {
    /// The entry at that position.
    pub(super) fn get<'a>(&'a self, state: &'a State, at: usize) -> Option<(Cow<'a, OsStr>, Node)> {
        match self {
            Self::Few(entries) => entries
                .get(at)
                .map(|(name, node)| (Cow::Borrowed(name.as_os_str()), *node)),
            Self::Blocks(count) => {
                let n = u32::try_from(at).ok().filter(|n| n < count)?;
                Some((Cow::Owned(format!("{n}.bin").into()), Node::Block(n)))
            }
            Self::Arrays(number) => {
                let (name, node) = state.catalogue().entries(*number)?.get(at)?;
                Some((Cow::Borrowed(name.as_os_str()), *node))
            }
        }
    }
}

/// What stands under `arrays/`: the arrays that have files, and the links.
fn items(snapshot: &Snapshot) -> impl Iterator<Item = (PlaceId, Item)> {
    let arrays = snapshot
        .arrays()
        .iter()
        .enumerate()
        .filter(|(_, array)| array.has_files());
    let arrays = arrays.map(|(i, array)| (array.home(), Item::Array(i)));
    let links = snapshot.links().iter().map(|link| {
        let item = if link.is_array {
            Item::ArrayLink(link.to)
        } else {
            Item::DirectoryLink(link.to)
        };
        (link.from, item)
    });
    let references = snapshot.references().iter().enumerate();
    let references = references.flat_map(|(i, reference)| {
        [Item::ArrayElsewhere(i), Item::DirectoryElsewhere(i)].map(|item| (reference.place(), item))
    });
    arrays.chain(links).chain(references)
}
