//! Views of a [`Snapshot`](crate::asdf::Snapshot) in other formats: FITS files ([`fits`]), statistics ([`stats`]), and with the feature `cli`
//! pictures, pages of HTML, JSON and Zarr. They are leaves: the format layer and the saves never import them.

#[doc(hidden)]
pub mod fits;
#[cfg(feature = "cli")]
pub(crate) mod json;
#[cfg(feature = "cli")]
pub mod page;
#[cfg(feature = "cli")]
pub mod picture;
pub mod stats;
#[cfg(feature = "cli")]
pub mod zarr;
