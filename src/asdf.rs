//! The format layer: an ASDF file as it is parsed, usable without FUSE.

pub mod buffers;
mod copy;
pub mod datatype;
pub mod dialect;
pub mod header;
pub mod layout;
pub mod scan;
pub mod text;

pub mod gather;
#[cfg(test)]
pub(crate) mod sample;
pub mod scatter;
mod tile;
pub mod view;
