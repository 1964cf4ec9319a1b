//! Views of a [`Snapshot`](crate::asdf::Snapshot) in other formats: FITS files ([`fits`]), statistics ([`stats`]), and with the feature `cli`
//! pictures, pages of HTML, JSON and Zarr. They are leaves: the format layer and the saves never import them.

#[doc(hidden)]
pub mod fits;
#[cfg(feature = "cli")]
pub(crate) mod json;
#[cfg(feature = "cli")]
pub(crate) mod page;
#[cfg(feature = "cli")]
pub mod picture;
pub mod stats;
#[cfg(feature = "cli")]
pub(crate) mod zarr;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::asdf::datatype::Datatype;
use crate::asdf::outline::PlaceId;
use crate::asdf::tree::Node;
use crate::asdf::{Array, Paths};
use crate::error::{Error, Result, corrupt};
use crate::source::{Joined, Memory, Source};

/// Mappings of more keys are not looked into for what they say of an array in them: there may be as many arrays.
#[cfg(feature = "cli")]
const MAX_BESIDE: usize = 1000;

/// Opens the elements of an array in C order, by its index.
pub(crate) type Elements<'a> = &'a dyn Fn(usize) -> Result<Arc<dyn Source>>;

/// The number of elements in an array of this shape; `None` if 64 bits cannot count them.
fn product(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |n, len| n.checked_mul(*len))
}

/// The index of the array that a node declares.
fn array_at(paths: &Paths, node: Node<'_>) -> Option<usize> {
    let outline = paths.outline();
    outline.array(outline.find(node.id())?)
}

/// The place that an array is looked for at: that of the quantity whose value it is, or its own.
fn shown_as(paths: &Paths, array: &Array) -> PlaceId {
    match array.unit() {
        Some(_) => paths.parent(array.home()),
        None => array.home(),
    }
}

/// The entries of mappings by what `name` calls their keys, as far as it does. Of equal keys, those of the first mapping count, and in it
/// the last one; what is merged is passed over, as [`Node::merged`] gives it.
fn entries<'t, K: Clone + Eq + Hash>(
    mappings: impl Iterator<Item = Node<'t>>,
    name: impl Fn(Node<'t>) -> Option<K>,
) -> Vec<(K, Node<'t>)> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for mapping in mappings {
        let own = mapping.entries().filter(|(key, _)| !key.is_merge());
        let own = own.filter_map(|(key, value)| Some((name(key)?, value)));
        let mut own: Vec<_> = own.collect();
        own.reverse();
        own.retain(|(name, _)| seen.insert(name.clone()));
        all.extend(own.into_iter().rev());
    }
    all
}

/// A number without its fraction.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "`as` saturates, and NaN becomes 0"
)]
fn whole(number: f64) -> i64 {
    number as i64
}

/// The datatype and the shape of an array.
fn typed(array: &Array) -> Result<(&Datatype, &[u64])> {
    array.datatype().zip(array.shape()).ok_or_else(no_longer)
}

/// A source with zeros behind it, so that it has `len` bytes.
fn padded(bytes: Arc<dyn Source>, len: u64) -> Result<Arc<dyn Source>> {
    let missing = usize::try_from(len.saturating_sub(bytes.len()));
    let missing = missing.map_err(|_| corrupt("more zeros than memory can have"))?;
    if missing == 0 {
        return Ok(bytes);
    }
    Ok(Arc::new(Joined::new(
        bytes,
        Arc::new(Memory::new(vec![0; missing])),
    )?))
}

fn no_longer() -> Error {
    corrupt("the tree no longer has this array")
}
