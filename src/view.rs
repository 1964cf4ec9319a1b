//! Views of a [`Snapshot`](crate::asdf::Snapshot) in other formats: FITS files ([`fits`]), pictures ([`picture`]), statistics
//! ([`stats`]), JSON and Zarr. They are leaves: the format layer and the saves never import them.

#[doc(hidden)]
pub mod fits;
#[cfg(feature = "cli")]
pub(crate) mod json;
pub mod picture;
pub mod stats;
#[cfg(feature = "cli")]
pub mod zarr;
